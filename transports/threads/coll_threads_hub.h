/* coll_threads_hub.h - what ranks that share memory share: the hub, its bell, its failure; and what each keeps for itself.
 *
 * The ranks of a hub are threads of one process, or of several that have mapped the same memory (transports/joined/): so nothing
 * in it that a collective uses is a pointer, and places are told by their distance from the hub.  Messages, and leaving after a
 * failure, are for the threads of one process. */
#ifndef COLL_THREADS_HUB_H
#define COLL_THREADS_HUB_H

#include <pthread.h>

/* A rank publishes so many turns before the first of them is over, in groups of a few ranks and in others, and has a slot for
 * each of twice as many; so it is with the bags in which the longer eager inputs lie (coll_threads_turn.h). */
enum {
    COLL__TURNS_ABREAST = 16, COLL__TURN_SLOTS = 2 * COLL__TURNS_ABREAST, COLL__FEW_RANKS = 16, COLL__TURNS_ABREAST_MANY = 4,
    COLL__BAGS_ABREAST = 4, COLL__BAG_SLOTS = 2 * COLL__BAGS_ABREAST
};

/* Memory of a rank that others of its host read in place: a part of a segment that it has made (coll_segment.h). */
typedef struct coll__region {
    uint64_t segment;                             /* coll__fd_id                                              */
    uint64_t base, length;                        /* where it lies in the memory of its process; 0: there is none */
    uint64_t offset;                              /* and in the segment                                       */
    uint32_t number;                              /* the descriptor of the segment in that process            */
} coll__region;

/* Its staging area (coll_threads_staging.h); and what coll_alloc gives, of which the first word says how long it is by now. */
enum { COLL__REGION_STAGING, COLL__REGION_LENT, COLL__REGIONS };

/* One rank's place in the hub. */
typedef struct __attribute__((aligned(COLL__LINE))) coll__desk {
    uint32_t is_working;                          /* this rank reads or writes other ranks' memory            */
    uint32_t has_left;
    uint32_t is_asleep;                           /* in a transport of its own (coll_joined.h), woken through `bell` */
    uint32_t pid;                                 /* apart: of its process                                    */
    int      party;                               /* the first rank of those that have one memory, as threads do */
    coll__region regions[COLL__REGIONS];          /* apart                                                    */
    coll__bell bell;                              /* where the hub has_bells; its descriptors are of this rank's process */
    uint64_t bell_id;                             /* apart: which pipe it is                                  */
    __attribute__((aligned(COLL__LINE))) pthread_mutex_t lock;  /* guards the messages to this rank           */
    uint32_t arrived;                             /* how many there are                                       */
    unsigned char report[COLL__REPORT_LENGTH];    /* of the call in which this rank was last found waiting    */
    coll__session *session;                       /* whose transport this is, while it is here                */
} coll__desk;

typedef struct coll__fifo { coll_xfer *first, **end; } coll__fifo;

/* Sends of one rank to another on one channel, in the order in which they are taken; linked by `link`. */
typedef struct coll__sends {
    coll_xfer *first, *last;
    struct coll__sends *next;                     /* among those that hold something                          */
} coll__sends;

typedef struct coll__hub {
    int      first, size;                         /* its ranks are called first .. first + size - 1, or       */
    bool     has_names;                           /* as a list says that stands behind the desks, in ascending order */
    bool     is_apart;                            /* its ranks are of several processes                       */
    bool     can_copy;                            /* apart: each may copy from and to the processes of the others */
    int      holders;                             /* ranks that have not freed their communicator             */
    bool     has_bells;                           /* ranks sleep elsewhere than on the word `bell`            */
    bool     has_membarrier;
    bool     is_crowded;                          /* there are more ranks than processors                     */
    size_t   room_at, room_end;                   /* apart: memory for groups that nobody has had yet         */
    int64_t  gaps;                                /* and what has come back; all three are guarded by `lock`  */
    uint32_t left_count;
    __attribute__((aligned(COLL__LINE))) uint32_t bell;
    uint32_t sleepers, is_failing, has_failed;    /* failing: somebody writes `failure`; failed: it is written */
    pthread_mutex_t lock;                         /* guards holders, groups, exoduses                            */
    int             locked_by;                    /* the rank that has it, and 1; 0: nobody, or not known     */
    coll_failure    failure;
    int64_t         all, groups;                  /* the group of all ranks; the others, oldest first; 0: none */
    coll__fifo     *inboxes;                      /* of one process: sends not taken yet, by receiver, sender and channel */
    struct coll__exodus *exoduses;                /* of one process: see coll_threads_shrink.h                */
} coll__hub;

/* How long calls of some length take in two ways (coll_threads_stores.h, coll_threads_staging.h). */
typedef struct coll__trial {
    float    best[2];                             /* ns a byte, in the first way and in the other; 0: not known */
    uint16_t calls;
    bool     counts;                              /* the call that is under way                               */
} coll__trial;

enum { COLL__TRIAL_CLASSES = 8 };                        /* by length: powers of 2                                   */

enum { COLL__STAGING_EACH = 4 << 20 };            /* bytes of an input that is staged, and of what is made for others */

/* Apart: what a rank has for itself in a direct turn (coll_threads_staging.h). */
typedef struct coll__staging {
    const unsigned char *send;                    /* its input, of which others may see a copy                */
    unsigned char       *recv, *made;             /* its result; what it makes for others, NULL: in the result */
    bool                 is_careful, is_harmed;   /* it overwrites its input before all are done; has begun to */
    bool                 is_staged;               /* in the staging area                                      */
    coll__trial         *copies;                  /* of this length, and the time at which the turn began; 0: not timed */
    int64_t              began;
    size_t               length;                  /* bytes of what may be staged                              */
} coll__staging;

/* A rank's side of a group. */
typedef struct coll__member {
    struct coll__thread *thread;
    struct coll__group  *group;
    const int           *ranks;                   /* what its members are called                              */
    struct coll__seat   *seats;                   /* the group's                                              */
    struct coll__seat   *own;                     /* ours among them                                          */
    unsigned char       *bags;                    /* room for the longer eager inputs: rows of bags, one for each rank */
    size_t               bag_length, row_length;
    uint64_t  abreast, slot_mask;                 /* turns that each publishes before the first is over; turn & slot_mask: its
                                                     slot, of twice as many                                   */
    uint64_t  last_bag;                           /* our last turn with one                                   */
    size_t    eager_most;                         /* bytes of an eager message, the longest;                  */
    size_t    rooted_most;                        /* of one that only the root has: it may fill a row;        */
    size_t    eager_sure, learned_from;           /* of one that goes eagerly always; beyond this it is learned */
    int       rank, count;                        /* our rank in the group, and how many it has               */
    int       looks;                              /* at a word that has not come yet, before we do something else */
    bool      is_apart;                           /* some members are of other processes                      */
    bool      is_eager_only;                      /* apart, and one may not copy from another                 */
    uint64_t  turn, all_posted;                   /* every rank is known to have published all_posted         */
    void     *held;                               /* memory of ours that others use during a turn             */
    size_t    held_length;
    coll__trial stores[2][COLL__TRIAL_CLASSES];             /* of kinds that move elements, and that combine them       */
    coll__trial copies[COLL__TRIAL_CLASSES];    /* of what is copied to a staging area, or by the kernel    */
    coll__staging staging;
    struct coll__member *next;
} coll__member;

/* A region of another rank, as this one has mapped it, to read it. */
typedef struct coll__mapping {
    coll__region         region;                  /* as it was when this rank entered the hub                 */
    const unsigned char *at;                      /* NULL: not yet                                            */
    uint64_t             opened;                  /* bytes that may be read                                   */
    bool                 is_refused;              /* it cannot be mapped, or is not what the region says      */
} coll__mapping;

/* One rank's side of the hub. */
typedef struct coll__thread {
    coll__hub *hub;
    coll__desk *desk;                             /* ours there                                               */
    coll__bell *ropes;                            /* what bells of other processes are rung by; NULL: all are of this one */
    coll__mapping *mappings;                      /* of the regions of others, by desk                        */
    int        rank;                              /* as all ranks are called                                  */
    bool       is_armed;                          /* counted among the sleepers                               */
    bool       has_waited_for_lock;               /* in vain                                                  */
    bool       has_posted;                        /* a receive, since the last look into the inbox            */
    bool       has_taken;                         /* messages outside a look, of which nobody has been told   */
    uint32_t   bell_seen;
    coll__sends *sends, *outgoing;                /* ours not taken yet, by peer and channel; those that hold any */
    coll__fifo *recvs;                            /* ours, by peer and channel                                */
    int        waiting_recvs;
    unsigned char *is_gone;                       /* ranks that had left when progress last began             */
    uint32_t   gone_count;
    coll_failure suspicion;                       /* what this rank has found to be wrong; a look makes it everyone's */
    coll__member all;                             /* of the group of all ranks                                */
    coll__member *members;                        /* of the other groups                                      */
    coll__source *sources;
    void      **results;
    void       *scratch, *fetched;                /* of no meaning between two calls                          */
    coll__member *stager;                         /* whose turn has our staging area; NULL: nobody's          */
    size_t      scratch_length, fetched_length;
} coll__thread;

/* Are some members of other processes? */
static inline bool coll__is_apart(const coll__member *m) { return COLL__HAS_HUB && m->is_apart; }

/* ---- >>places: by their distance from the hub, 0 for none ---- */

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

/* Bytes of a hub with its desks and names. */
static inline size_t coll__hub_length(int size)
{
    return coll__round_up(sizeof(coll__hub) + (size_t)size * (sizeof(coll__desk) + sizeof(int)), COLL__LINE);
}

/* Which desk is that of a rank? */
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

/* What is the rank called that has this desk? */
static inline int coll__desk_name(const coll__hub *hub, int number)
{
    return hub->has_names ? coll__hub_names(hub)[number] : hub->first + number;
}

enum { COLL__LOCK_MS = 10000, COLL__LOCK_YIELDS = 100, COLL__LOCK_NAP_US = 500 };

/* A rank of another process may be killed while it has the lock.  What it leaves behind is whole or not yet to be found.  It may
 * also be stopped: false, if the hub fails meanwhile, or after COLL__LOCK_MS, which this rank waits only once. */
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

/* ---- >>bell: waking those who sleep ---- */

/* What a bell of another process is rung by: its own end of the same pipe.  It is opened at the start, for the right to open it
 * may be lost (seteuid, PR_SET_DUMPABLE), or when it is needed. */
static const coll__bell *coll__rope_to(const coll__thread *me, int number)
{
    const coll__desk *desk = &coll__hub_desks(me->hub)[number];
    coll__bell *rope = me->ropes ? &me->ropes[number] : NULL;

    if (!rope) return &desk->bell;
    if (rope->rope < 0) rope->rope = coll__pipe_reopen(desk->pid, desk->bell.rope, desk->bell_id);
    return rope;
}

/* Let all who sleep return, those who sleep on the word by `wake`.  One that sleeps elsewhere has said so before its last look
 * at the word: either it finds that it has changed, or we find that it is asleep. */
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

/* Somebody sleeps, or the hub has failed. */
static __attribute__((noinline)) bool coll__hub_ring_late(const coll__thread *me)
{
    coll__hub_wake(me);
    return !__atomic_load_n(&me->hub->has_failed, __ATOMIC_SEQ_CST);
}

/* false: the hub has failed, after which somebody is always taken to sleep: so whoever publishes looks at one word for both. */
static inline bool coll__hub_ring(const coll__thread *me)
{
    return __builtin_expect(__atomic_load_n(&me->hub->sleepers, __ATOMIC_SEQ_CST) == 0, 1) || coll__hub_ring_late(me);
}

/* From here on no rank begins a turn. */
static void coll__hub_set_failed(coll__hub *hub)
{
    __atomic_store_n(&hub->has_failed, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&hub->sleepers, 1, __ATOMIC_SEQ_CST);
}

/* Publish a number that others wait for.  Either this rank sees that somebody sleeps, or the one who goes to sleep sees the
 * number at its last look.  That takes a full barrier on both sides; where the kernel has membarrier, the sleeper executes it
 * for all, and publishing is a plain store, which need not wait for the cache lines written before.
 * false: the hub has failed. */
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

/* ---- >>failure: kept in the hub, the first one for all ---- */

/* Is nobody of this process in another one's memory?  Those of other processes only read, and find the failure afterwards. */
static bool coll__hub_is_quiet(const coll__thread *me)
{
    for (int i = 0; i < me->hub->size; i++) {
        const coll__desk *desk = &coll__hub_desks(me->hub)[i];
        if (desk->party == me->desk->party && __atomic_load_n(&desk->is_working, __ATOMIC_SEQ_CST)) return false;
    }
    return true;
}

/* From here on nobody of this process enters anyone's memory; wait for those who are in it. */
static void coll__hub_quiesce(const coll__thread *me)
{
    if (me->hub->has_membarrier) coll__membarrier();
    while (!coll__hub_is_quiet(me)) sched_yield();
}

/* The first one counts.  Nothing is locked, for a signal handler may have something to say. */
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
    coll__hub_wake_by(me, coll__word_alarm); /* this may be a signal handler                             */
    return true;
}

/* Publish this rank's report, and compare it with those of the others. */
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

/* This rank waits in a call.  If another one waits under the same number in another call, neither will end. */
static void coll__threads_report_stall(void *context, const unsigned char *head)
{
    coll__thread *me = (coll__thread *)context;
    coll_failure failure = { COLL_OK, -1, "" };
    unsigned char report[COLL__REPORT_LENGTH] = { 0 };

    coll__report_make(me->desk->session, head, report);
    if (coll__hub_compare(me, report, &failure) < 0) (void)coll__threads_fail(me, &failure);
}

/* Go to work in other ranks' memory; false: the communicator has failed.  Either this rank sees the failure, or the one who
 * fails sees it at work; who executes the barriers for that is as in coll__hub_publish. */
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

/* Has the communicator failed by now?  Asked when the memory of other processes has been read: a rank that has failed uses its
 * own again.  It says so first, by an exchange of this word; so whoever finds that it has not yet, has read before that. */
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
