/* coll_threads_hub.h - a shared-memory domain: what its ranks share (doorbell, first failure), and what each keeps for itself.
 *
 * The ranks are threads of one process, or of several processes that map the same memory (transports/joined/).  So collectives
 * use offsets from the domain, and no pointers.  Messages and migration after a failure need one process. */
#ifndef COLL_THREADS_HUB_H
#define COLL_THREADS_HUB_H

#include <pthread.h>

/* Operations that a rank publishes before the first is complete, in groups of up to COLL__FEW_RANKS and in larger ones.  There
 * are twice as many slots.  The same holds for bounce buffers of longer eager inputs (coll_threads_turn.h). */
enum {
    COLL__TURNS_ABREAST = 16, COLL__TURN_SLOTS = 2 * COLL__TURNS_ABREAST, COLL__FEW_RANKS = 16, COLL__TURNS_ABREAST_MANY = 4,
    COLL__BAGS_ABREAST = 4, COLL__BAG_SLOTS = 2 * COLL__BAGS_ABREAST
};

/* Memory of a rank that peers on its host read in place: a part of a segment that it has made (coll_segment.h). */
typedef struct coll__region {
    uint64_t segment;                             /* coll__fd_id                                              */
    uint64_t base, length;                        /* address in its process, and bytes; 0: there is none      */
    uint64_t offset;                              /* offset in the segment                                    */
    uint32_t number;                              /* descriptor of the segment in that process                */
} coll__region;

/* Its staging area (coll_threads_staging.h), and the memory of coll_alloc, whose first word is its current length. */
enum { COLL__REGION_STAGING, COLL__REGION_LENT, COLL__REGIONS };

/* A rank slot: state of one rank in the domain. */
typedef struct __attribute__((aligned(COLL__LINE))) coll__desk {
    uint32_t is_working;                          /* reads or writes other ranks' memory                      */
    uint32_t has_left;
    uint32_t is_asleep;                           /* in its own transport (coll_joined.h); `bell` wakes it    */
    uint32_t pid;                                 /* several processes: that of this rank                     */
    int      party;                               /* lowest rank of the same address space                    */
    coll__region regions[COLL__REGIONS];          /* several processes                                        */
    coll__bell bell;                              /* if has_bells; its descriptors belong to this rank's process */
    uint64_t bell_id;                             /* several processes: identity of the pipe                  */
    __attribute__((aligned(COLL__LINE))) pthread_mutex_t lock;  /* guards the messages to this rank           */
    uint32_t arrived;                             /* number of these messages                                 */
    unsigned char report[COLL__REPORT_LENGTH];    /* its last report, of a stall or from coll_free            */
    coll__session *session;                       /* of this transport, until it is closed                    */
} coll__desk;

typedef struct coll__fifo { coll_xfer *first, **end; } coll__fifo;

/* Pending sends from one rank to another on one channel, in order; linked by `link`. */
typedef struct coll__sends {
    coll_xfer *first, *last;
    struct coll__sends *next;                     /* next list that is not empty                              */
} coll__sends;

typedef struct coll__hub {
    int      first, size;                         /* its ranks are first .. first + size - 1, or              */
    bool     has_names;                           /* listed behind the rank slots, in ascending order         */
    bool     is_apart;                            /* its ranks belong to several processes                    */
    bool     can_copy;                            /* several processes: each may read the memory of the others */
    int      holders;                             /* ranks that have not freed their communicator             */
    bool     has_bells;                           /* ranks do not sleep on the word `bell`                    */
    bool     has_membarrier;
    bool     is_crowded;                          /* more ranks than processors                               */
    size_t   room_at, room_end;                   /* several processes: memory never used by a group          */
    int64_t  gaps;                                /* and returned blocks; `lock` guards all three             */
    uint32_t left_count;
    __attribute__((aligned(COLL__LINE))) uint32_t bell;
    uint32_t sleepers, is_failing, has_failed;    /* failing: `failure` is being written; failed: it is written */
    pthread_mutex_t lock;                         /* guards holders, groups, exoduses                            */
    int             locked_by;                    /* rank that holds it, plus 1; 0: none, or unknown          */
    coll_failure    failure;
    int64_t         all, groups;                  /* offsets: group of all ranks; others, oldest first; 0: none */
    coll__fifo     *inboxes;                      /* one process: sends not received, by receiver, sender and channel */
    struct coll__exodus *exoduses;                /* one process: see coll_threads_shrink.h                   */
} coll__hub;

/* Times of calls of one length in two ways (coll_threads_stores.h, coll_threads_staging.h). */
typedef struct coll__trial {
    float    best[2];                             /* ns per byte, in the first way and the other; 0: unknown  */
    uint16_t calls;
    bool     counts;                              /* the current call is timed                                */
} coll__trial;

enum { COLL__TRIAL_CLASSES = 8 };                        /* by length: powers of 2                                   */

enum { COLL__STAGING_EACH = 4 << 20 };            /* bytes of a staged input, and of results for others       */

/* Between processes: private state of a rank in a direct operation (coll_threads_staging.h). */
typedef struct coll__staging {
    const unsigned char *send;                    /* its input; peers may see a copy                          */
    unsigned char       *recv, *made;             /* its result; its results for others, NULL: in its result  */
    bool                 is_careful, is_harmed;   /* it overwrites its input before all are done; has begun to */
    bool                 is_staged;               /* uses the staging area                                    */
    coll__trial         *copies;                  /* trial of this length, and start time of the operation; 0: not timed */
    int64_t              began;
    size_t               length;                  /* bytes that may be staged                                 */
} coll__staging;

/* A rank's side of a group. */
typedef struct coll__member {
    struct coll__thread *thread;
    struct coll__group  *group;
    const int           *ranks;                   /* their ranks in the transport                             */
    struct coll__seat   *seats;                   /* slots of the group                                       */
    struct coll__seat   *own;                     /* slot of this rank                                        */
    unsigned char       *bags;                    /* bounce buffers: rows with one buffer per rank            */
    size_t               bag_length, row_length;
    uint64_t  abreast, slot_mask;                 /* operations that each rank publishes before the first is complete; turn &
                                                     slot_mask: slot of an operation                          */
    uint64_t  last_bag;                           /* last operation that used a bounce buffer                 */
    size_t    eager_most;                         /* bytes of the longest eager input;                        */
    size_t    rooted_most;                        /* the same if only the root has one: it may fill a row;    */
    size_t    eager_sure, learned_from;           /* up to here always eager; beyond this timing decides      */
    int       rank, count;                        /* rank in the group, and size of the group                 */
    int       looks;                              /* polls of a number before other work                      */
    bool      is_apart;                           /* members belong to several processes                      */
    bool      is_eager_only;                      /* and these may not read one another's memory              */
    uint64_t  turn, all_posted;                   /* all ranks are known to have published all_posted         */
    void     *held;                               /* private memory that peers use during an operation        */
    size_t    held_length;
    coll__trial stores[2][COLL__TRIAL_CLASSES];             /* kinds that move elements; kinds that combine them */
    coll__trial copies[COLL__TRIAL_CLASSES];    /* copies to the staging area, or by the kernel               */
    coll__staging staging;
    struct coll__member *next;
} coll__member;

/* A region of another rank, mapped by this rank for reading. */
typedef struct coll__mapping {
    coll__region         region;                  /* as it was when this rank entered the domain              */
    const unsigned char *at;                      /* NULL: not mapped yet                                     */
    uint64_t             opened;                  /* bytes that may be read                                   */
    bool                 is_refused;              /* it cannot be mapped, or its segment is another one       */
} coll__mapping;

/* One rank's side of the domain. */
typedef struct coll__thread {
    coll__hub *hub;
    coll__desk *desk;                             /* slot of this rank                                        */
    coll__bell *ropes;                            /* its ends of other processes' doorbells; NULL: one process only */
    coll__mapping *mappings;                      /* of other ranks' regions, by rank slot                    */
    int        rank;                              /* in the transport                                         */
    bool       is_armed;                          /* counted in `sleepers`                                    */
    bool       has_waited_for_lock;               /* and timed out                                            */
    bool       has_posted;                        /* a receive since the inbox was last checked               */
    bool       has_taken;                         /* messages whose senders are not woken yet                 */
    uint32_t   bell_seen;
    coll__sends *sends, *outgoing;                /* own pending sends, by peer and channel; lists that are not empty */
    coll__fifo *recvs;                            /* own receives, by peer and channel                        */
    int        waiting_recvs;
    unsigned char *is_gone;                       /* ranks that had left at the last progress                 */
    uint32_t   gone_count;
    coll_failure suspicion;                       /* failure that this rank has found; progress publishes it  */
    coll__member all;                             /* in the group of all ranks                                */
    coll__member *members;                        /* in the other groups                                      */
    coll__source *sources;
    void      **results;
    void       *scratch, *fetched;                /* undefined between two calls                              */
    coll__member *stager;                         /* member that uses the staging area; NULL: none            */
    size_t      scratch_length, fetched_length;
} coll__thread;

/* Returns whether the members belong to several processes. */
static inline bool coll__is_apart(const coll__member *m) { return COLL__HAS_HUB && m->is_apart; }

/* ---- >>places: offsets from the domain, 0 for none ---- */

static inline void *coll__hub_at(const coll__hub *hub, int64_t place)
{
    return place ? (void *)((uintptr_t)hub + (uintptr_t)place) : NULL;
}

static inline int64_t coll__hub_place(const coll__hub *hub, const void *at)
{
    return at ? (int64_t)((uintptr_t)at - (uintptr_t)hub) : 0;
}

static inline coll__desk *coll__hub_desks(const coll__hub *hub) { return (coll__desk *)coll__hub_at(hub, sizeof *hub); }

static inline int *coll__hub_names(const coll__hub *hub) { return (int *)(void *)(coll__hub_desks(hub) + hub->size); }

/* Bytes of a domain with its rank slots and names. */
static inline size_t coll__hub_length(int size)
{
    return coll__round_up(sizeof(coll__hub) + (size_t)size * (sizeof(coll__desk) + sizeof(int)), COLL__LINE);
}

/* Index of a rank's slot. */
static inline int coll__desk_number(const coll__hub *hub, int rank)
{
    const int *const names = coll__hub_names(hub);
    int from = 0, to = hub->size;

    if (!hub->has_names) return rank - hub->first;
    while (to - from > 1) {
        const int middle = (from + to) / 2;
        if (names[middle] <= rank) from = middle;
        else to = middle;
    }
    return from;
}

static inline coll__desk *coll__desk_of(const coll__hub *hub, int rank)
{
    return coll__hub_desks(hub) + coll__desk_number(hub, rank);
}

/* Rank of a slot. */
static inline int coll__desk_name(const coll__hub *hub, int number)
{
    return hub->has_names ? coll__hub_names(hub)[number] : hub->first + number;
}

enum { COLL__LOCK_MS = 10000, COLL__LOCK_YIELDS = 100, COLL__LOCK_NAP_US = 500 };

/* If a process dies while it holds the lock, every update is complete, or not linked yet.  The holder may also be suspended.
 * Returns false if the domain fails, or after COLL__LOCK_MS, which this rank waits only once. */
static bool coll__hub_lock(coll__thread *me)
{
    coll__hub *const hub = me->hub;
    const int64_t deadline = me->has_waited_for_lock ? 0 : coll__deadline(COLL__LOCK_MS);

    for (int tries = 0;; tries++) {
        const int error = hub->is_apart ? pthread_mutex_trylock(&hub->lock) : pthread_mutex_lock(&hub->lock);
#if defined(EOWNERDEAD)
        if (error == EOWNERDEAD) (void)pthread_mutex_consistent(&hub->lock);
#endif
        if (error != EBUSY) break;
        const bool is_late = coll__now() >= deadline;
        me->has_waited_for_lock |= is_late;
        if (is_late || __atomic_load_n(&hub->has_failed, __ATOMIC_ACQUIRE)) return false;
        if (tries < COLL__LOCK_YIELDS) sched_yield();
        else coll__nap(COLL__LOCK_NAP_US);
    }
    __atomic_store_n(&hub->locked_by, me->rank + 1, __ATOMIC_RELAXED);
    return true;
}

static inline void coll__hub_unlock(coll__hub *hub)
{
    __atomic_store_n(&hub->locked_by, 0, __ATOMIC_RELAXED);
    (void)pthread_mutex_unlock(&hub->lock);
}

/* ---- >>doorbell: waking sleeping ranks ---- */

/* This process's own end of another process's doorbell pipe.  It is opened at the start, or else when needed: the right to open
 * it may be lost (seteuid, PR_SET_DUMPABLE). */
static const coll__bell *coll__rope_to(const coll__thread *me, int number)
{
    const coll__desk *desk = &coll__hub_desks(me->hub)[number];
    coll__bell *rope = me->ropes ? &me->ropes[number] : NULL;

    if (!rope) return &desk->bell;
    if (rope->rope < 0) rope->rope = coll__pipe_reopen(desk->pid, desk->bell.rope, desk->bell_id);
    return rope;
}

/* Wakes all sleeping ranks; those on the word by `wake`.  A rank that sleeps elsewhere sets is_asleep before its last check of
 * the word.  So either it sees the new word, or this rank sees is_asleep. */
static void coll__hub_wake_by(const coll__thread *me, void (*wake)(uint32_t *word))
{
    coll__hub *hub = me->hub;

    __atomic_add_fetch(&hub->bell, 1, __ATOMIC_SEQ_CST);
    if (!hub->has_bells) wake(&hub->bell);
    for (int i = 0; hub->has_bells && i < hub->size; i++) {
        coll__desk *desk = &coll__hub_desks(hub)[i];
        if (__atomic_load_n(&desk->is_asleep, __ATOMIC_SEQ_CST) && __atomic_exchange_n(&desk->is_asleep, 0, __ATOMIC_SEQ_CST))
            coll__bell_ring(coll__rope_to(me, i));
    }
}

static void coll__hub_wake(const coll__thread *me) { coll__hub_wake_by(me, coll__word_wake); }

/* A rank sleeps, or the domain has failed. */
static __attribute__((noinline)) bool coll__hub_ring_late(const coll__thread *me)
{
    coll__hub_wake(me);
    return !__atomic_load_n(&me->hub->has_failed, __ATOMIC_SEQ_CST);
}

/* Returns false if the domain has failed.  A failure increments `sleepers`: a publisher checks one word for both. */
static inline bool coll__hub_ring(const coll__thread *me)
{
    return __builtin_expect(__atomic_load_n(&me->hub->sleepers, __ATOMIC_SEQ_CST) == 0, 1) || coll__hub_ring_late(me);
}

/* From here on no rank begins an operation. */
static void coll__hub_set_failed(coll__hub *hub)
{
    __atomic_store_n(&hub->has_failed, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&hub->sleepers, 1, __ATOMIC_SEQ_CST);
}

/* Publishes a number that peers wait for.  Either this rank sees the sleeper, or the sleeper sees the number at its last check.
 * That takes a full barrier on both sides.  With membarrier the sleeper executes both, and publishing is a plain store, which
 * does not drain the store buffer.  Returns false if the domain has failed. */
static inline bool coll__hub_publish(const coll__thread *me, uint64_t *at, uint64_t value)
{
    if (me->hub->has_membarrier) {
        __atomic_store_n(at, value, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } else {
        (void)__atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
    }
    return coll__hub_ring(me);
}

/* ---- >>failure: the domain keeps the first one ---- */

/* Returns whether no rank of this process accesses another one's memory.  Other processes only read, and check for a failure
 * afterwards. */
static bool coll__hub_is_quiet(const coll__thread *me)
{
    for (int i = 0; i < me->hub->size; i++) {
        const coll__desk *desk = &coll__hub_desks(me->hub)[i];
        if (desk->party == me->desk->party && __atomic_load_n(&desk->is_working, __ATOMIC_SEQ_CST)) return false;
    }
    return true;
}

/* Waits until no rank of this process accesses another one's memory; after a failure none begins to. */
static void coll__hub_quiesce(const coll__thread *me)
{
    if (me->hub->has_membarrier) coll__membarrier();
    while (!coll__hub_is_quiet(me)) sched_yield();
}

/* The first failure is kept.  Takes no lock: may run in a signal handler. */
static void coll__hub_fail(coll__hub *hub, coll_status status, int rank, const char *text)
{
    size_t n = 0;

    if (__atomic_exchange_n(&hub->is_failing, 1, __ATOMIC_ACQ_REL)) return;
    hub->failure.status = status;
    hub->failure.rank = rank;
    for (; text[n] && n + 1 < sizeof hub->failure.text; n++) hub->failure.text[n] = text[n];
    hub->failure.text[n] = '\0';
    coll__hub_set_failed(hub);
}

static const coll_failure *coll__threads_fail(void *context, const coll_failure *cause)
{
    coll__thread *me = (coll__thread *)context;
    coll__hub *hub = me->hub;

    if (cause) coll__hub_fail(hub, cause->status, cause->rank, cause->text);
    if (!__atomic_load_n(&hub->is_failing, __ATOMIC_SEQ_CST)) return NULL;
    while (!__atomic_load_n(&hub->has_failed, __ATOMIC_SEQ_CST)) sched_yield();
    (void)coll__hub_ring(me);
    coll__hub_quiesce(me);
    return &hub->failure;
}

static bool coll__threads_abort(void *context, const char *text)
{
    coll__thread *me = (coll__thread *)context;

    coll__hub_fail(me->hub, COLL_ERR_ABORTED, me->rank, text);
    coll__hub_wake_by(me, coll__word_alarm); /* may run in a signal handler                                   */
    return true;
}

/* Publishes this rank's report and compares it with those of the others. */
static coll_status coll__hub_compare(coll__thread *me, const unsigned char *report, coll_failure *failure)
{
    coll__hub *hub = me->hub;
    const coll__desk *desks = coll__hub_desks(hub);
    bool differs = false;

    if (!coll__hub_lock(me)) return COLL_OK;
    memcpy(me->desk->report, report, COLL__REPORT_LENGTH);
    for (int i = 0; i < hub->size && !differs; i++)
        differs = coll__reports_disagree(failure, report, me->rank, desks[i].report, coll__desk_name(hub, i));
    coll__hub_unlock(hub);
    return differs ? failure->status : COLL_OK;
}

/* This rank waits in a call.  If another one waits in a different call of the same number, both would block forever. */
static void coll__threads_report_stall(void *context, const unsigned char *head)
{
    coll__thread *me = (coll__thread *)context;
    coll_failure failure = { COLL_OK, -1, "" };
    unsigned char report[COLL__REPORT_LENGTH] = { 0 };

    coll__report_make(me->desk->session, head, report);
    if (coll__hub_compare(me, report, &failure) < 0) (void)coll__threads_fail(me, &failure);
}

/* Begins to access other ranks' memory.  Returns false if the domain has failed.  Either this rank sees the failure, or the
 * failing rank sees is_working.  Barriers are as in coll__hub_publish. */
static bool coll__work_begin(coll__thread *me)
{
    uint32_t *is_working = &me->desk->is_working;

    if (me->hub->has_membarrier) {
        __atomic_store_n(is_working, 1, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } else {
        (void)__atomic_exchange_n(is_working, 1, __ATOMIC_SEQ_CST);
    }
    if (!__atomic_load_n(&me->hub->has_failed, __ATOMIC_SEQ_CST)) return true;
    __atomic_store_n(is_working, 0, __ATOMIC_SEQ_CST);
    return false;
}

static void coll__work_end(coll__thread *me)
{
    __atomic_store_n(&me->desk->is_working, 0, __ATOMIC_RELEASE);
}

/* Returns whether the domain has failed, after a read of other processes' memory: a failed rank reuses its own.  It sets this
 * word first.  If this read-modify-write finds no failure, the data was read before that. */
static bool coll__hub_has_failed(coll__hub *hub)
{
    return __atomic_fetch_or(&hub->has_failed, 0, __ATOMIC_ACQ_REL) != 0;
}

static coll_status coll__blame_left(coll_failure *failure, int rank, int by)
{
    return coll__blame(failure, COLL_ERR_PEER, rank, "rank %d has left the communicator, and rank %d still waits for it",
                       rank, by);
}

#endif /* COLL_THREADS_HUB_H */
