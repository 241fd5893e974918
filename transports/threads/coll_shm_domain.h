/* coll_shm_domain.h - a shared-memory domain: what its ranks share (doorbell, first failure), and what each keeps for itself.
 *
 * The ranks are threads of one process, or of several processes that map the same memory (transports/hybrid/).  So collectives
 * use offsets from the domain, and no pointers.  Messages and migration after a failure need one process. */
#ifndef COLL_SHM_DOMAIN_H
#define COLL_SHM_DOMAIN_H

#include <pthread.h>

/* Operations that a rank publishes before the first is complete, in groups of up to COLL__FEW_RANKS and in larger ones.  There
 * are twice as many slots.  The same holds for bounce buffers of longer eager inputs (coll_shm_op.h). */
enum {
    COLL__SHM_OPS_OVERLAP = 16, COLL__SHM_OP_SLOTS = 2 * COLL__SHM_OPS_OVERLAP, COLL__FEW_RANKS = 16,
                            COLL__SHM_OPS_OVERLAP_MANY = 4,
    COLL__BOUNCES_OVERLAP = 4, COLL__BOUNCE_SLOTS = 2 * COLL__BOUNCES_OVERLAP
};

/* Memory of a rank that peers on its host read in place: a part of a segment that it has made (coll_segment.h). */
typedef struct coll__region {
    uint64_t segment;                             /* coll__fd_id                                              */
    uint64_t base, length;                        /* address in its process, and bytes; 0: there is none      */
    uint64_t offset;                              /* offset in the segment                                    */
    uint32_t number;                              /* descriptor of the segment in that process                */
} coll__region;

/* Its staging area (coll_shm_staging.h), and the memory of coll_alloc, whose first word is its current length. */
enum { COLL__REGION_STAGING, COLL__REGION_EXPORTED, COLL__REGIONS };

/* A rank slot: state of one rank in the domain. */
typedef struct __attribute__((aligned(COLL__LINE))) coll__rank_slot {
    uint64_t is_working;                          /* reads or writes other ranks' memory                      */
    uint32_t has_left;
    uint32_t is_asleep;                           /* in its own transport (coll_hybrid.h); `doorbell` wakes it    */
    uint32_t pid;                                 /* several processes: that of this rank                     */
    int      process;                             /* lowest rank of the same address space                    */
    coll__region regions[COLL__REGIONS];          /* several processes                                        */
    coll__doorbell doorbell;                      /* if the domain uses them; its descriptors belong to this rank's process */
    uint64_t doorbell_id;                         /* several processes: identity of the pipe                  */
    __attribute__((aligned(COLL__LINE))) pthread_mutex_t lock;  /* guards the messages to this rank           */
    uint32_t arrived;                             /* number of these messages                                 */
    unsigned char report[COLL__REPORT_LENGTH];    /* its last report, of a stall or from coll_free            */
    coll__session *session;                       /* of this transport, until it is closed; NULL: hybrid      */
} coll__rank_slot;

typedef struct coll__fifo { coll_xfer *first, **end; } coll__fifo;

/* Pending sends from one rank to another on one channel, in order; linked by `link`. */
typedef struct coll__sends {
    coll_xfer *first, *last;
    struct coll__sends *next;                     /* next list that is not empty                              */
} coll__sends;

typedef struct coll__domain {
    int      first, size;                         /* its ranks are first .. first + size - 1, or              */
    bool     has_names;                           /* listed behind the rank slots, in ascending order         */
    bool     is_apart;                            /* its ranks belong to several processes                    */
    bool     can_copy;                            /* several processes: each may read the memory of the others */
    int      holders;                             /* ranks that have not freed their communicator             */
    bool     has_doorbells;                       /* ranks do not sleep on the word `doorbell`                    */
    bool     has_membarrier;
    bool     is_crowded;                          /* more ranks than processors                               */
    size_t   room_at, room_end;                   /* several processes: memory never used by a group          */
    int64_t  gaps;                                /* and freed groups; `lock` guards all three                */
    uint32_t left_count;
    __attribute__((aligned(COLL__LINE))) uint32_t doorbell;
    uint32_t sleepers, is_failing, has_failed;    /* failing: `failure` is being written; failed: it is written */
    pthread_mutex_t lock;                         /* guards holders, groups, migrations                          */
    int             locked_by;                    /* rank that holds it, plus 1; 0: none, or unknown          */
    coll_failure    failure;
    int64_t         all, groups;                  /* offsets: group of all ranks; others, oldest first; 0: none */
    coll__fifo     *inboxes;                      /* one process: sends not received, by receiver, sender and channel */
    struct coll__migration *migrations;           /* one process: see coll_threads_shrink.h                   */
} coll__domain;

enum { COLL__STAGING_EACH = 4 << 20 };            /* bytes of a staged input, and of results for others       */

/* Private state of a rank in a direct operation (coll_shm_staging.h). */
typedef struct coll__staging {
    const unsigned char *send;                    /* its input; peers may see a copy                          */
    unsigned char       *recv;                    /* its result; several processes, the rest:                 */
    unsigned char       *made;                    /* its results for others; NULL: in its result              */
    bool                 is_careful;              /* it overwrites its input before all are done              */
} coll__staging;

/* A rank's side of a group. */
typedef struct coll__member {
    struct coll__thread *thread;
    struct coll__group  *group;
    const int           *ranks;                   /* their ranks in the transport                             */
    struct coll__group_slot   *group_slots;       /* slots of the group                                       */
    struct coll__group_slot   *own;               /* slot of this rank                                        */
    unsigned char       *bounces;                 /* bounce buffers: rows with one buffer per rank            */
    size_t               bounce_length, row_length;
    uint64_t  overlap, slot_mask;                 /* operations that each rank publishes before the first is complete; turn &
                                                     slot_mask: slot of an operation                          */
    uint64_t  last_bounce;                        /* last operation that used a bounce buffer                 */
    int       rank, count;                        /* rank in the group, and size of the group                 */
    int       looks;                              /* polls of a number before other work                      */
    bool      is_apart;                           /* members belong to several processes                      */
    bool      is_eager_only;                      /* and these may not read one another's memory              */
    uint64_t  op_number, all_posted;              /* all ranks are known to have published all_posted         */
    void     *held;                               /* private memory that peers use during an operation        */
    size_t    held_length;
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
    coll__domain *domain;
    coll__rank_slot *rank_slot;                   /* slot of this rank                                        */
    coll__doorbell *peer_doorbells;               /* its ends of other processes' doorbells; NULL: one process only */
    coll__mapping *mappings;                      /* of other ranks' regions, by rank slot                    */
    int        rank;                              /* in the transport                                         */
    bool       is_armed;                          /* counted in `sleepers`                                    */
    bool       has_waited_for_lock;               /* and timed out                                            */
    bool       has_posted;                        /* a receive since the inbox was last checked               */
    bool       has_taken;                         /* messages whose senders are not woken yet                 */
    uint32_t   doorbell_seen;
    coll__sends *sends, *outgoing;                /* own pending sends, by peer and channel; lists that are not empty */
    coll__fifo *recvs;                            /* own receives, by peer and channel                        */
    int        waiting_recvs;
    unsigned char *has_left;                      /* ranks that had left at the last progress                 */
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
static inline bool coll__is_apart(const coll__member *m) { return COLL__HAS_DOMAIN && m->is_apart; }

/* ---- >>places: offsets from the domain, 0 for none ---- */

static inline void *coll__domain_at(const coll__domain *domain, int64_t place)
{
    return place ? (void *)((uintptr_t)domain + (uintptr_t)place) : NULL;
}

static inline int64_t coll__domain_place(const coll__domain *domain, const void *at)
{
    return at ? (int64_t)((uintptr_t)at - (uintptr_t)domain) : 0;
}

static inline coll__rank_slot *coll__domain_rank_slots(const coll__domain *domain)
{
    return (coll__rank_slot *)coll__domain_at(domain, sizeof *domain);
}

static inline int *coll__domain_names(const coll__domain *domain)
{
    return (int *)(void *)(coll__domain_rank_slots(domain) + domain->size);
}

/* Bytes of a domain with its rank slots and names. */
static inline size_t coll__domain_length(int size)
{
    return coll__round_up(sizeof(coll__domain) + (size_t)size * (sizeof(coll__rank_slot) + sizeof(int)), COLL__LINE);
}

/* Index of a rank's slot. */
static inline int coll__rank_slot_number(const coll__domain *domain, int rank)
{
    const int *const names = coll__domain_names(domain);
    int from = 0, to = domain->size;

    if (!domain->has_names) return rank - domain->first;
    while (to - from > 1) {
        const int middle = (from + to) / 2;
        if (names[middle] <= rank) from = middle;
        else to = middle;
    }
    return from;
}

static inline coll__rank_slot *coll__rank_slot_of(const coll__domain *domain, int rank)
{
    return coll__domain_rank_slots(domain) + coll__rank_slot_number(domain, rank);
}

/* Rank of a slot. */
static inline int coll__rank_slot_name(const coll__domain *domain, int number)
{
    return domain->has_names ? coll__domain_names(domain)[number] : domain->first + number;
}

enum { COLL__LOCK_MS = 10000, COLL__LOCK_YIELDS = 100, COLL__LOCK_DELAY_US = 500 };

/* If a process dies while it holds the lock, every update is complete, or not linked yet.  The holder may also be suspended.
 * Returns false if the domain fails, or after COLL__LOCK_MS, which this rank waits only once. */
static bool coll__domain_lock(coll__thread *me)
{
    coll__domain *const domain = me->domain;
    const int64_t deadline = me->has_waited_for_lock ? 0 : coll__deadline(COLL__LOCK_MS);

    for (int tries = 0;; tries++) {
        const int error = domain->is_apart ? pthread_mutex_trylock(&domain->lock) : pthread_mutex_lock(&domain->lock);
#if defined(EOWNERDEAD)
        if (error == EOWNERDEAD) (void)pthread_mutex_consistent(&domain->lock);
#endif
        if (error != EBUSY) break;
        const bool is_late = coll__now() >= deadline;
        me->has_waited_for_lock |= is_late;
        if (is_late || __atomic_load_n(&domain->has_failed, __ATOMIC_ACQUIRE)) return false;
        if (tries < COLL__LOCK_YIELDS) sched_yield();
        else coll__delay(COLL__LOCK_DELAY_US);
    }
    __atomic_store_n(&domain->locked_by, me->rank + 1, __ATOMIC_RELAXED);
    return true;
}

static inline void coll__domain_unlock(coll__domain *domain)
{
    __atomic_store_n(&domain->locked_by, 0, __ATOMIC_RELAXED);
    (void)pthread_mutex_unlock(&domain->lock);
}

/* ---- >>doorbell: waking sleeping ranks ---- */

/* This process's own end of another process's doorbell pipe.  It is opened at the start, or else when needed: the right to open
 * it may be lost (seteuid, PR_SET_DUMPABLE). */
static const coll__doorbell *coll__doorbell_to(const coll__thread *me, int number)
{
    const coll__rank_slot *rank_slot = &coll__domain_rank_slots(me->domain)[number];
    coll__doorbell *peer_doorbell = me->peer_doorbells ? &me->peer_doorbells[number] : NULL;

    if (!peer_doorbell) return &rank_slot->doorbell;
    if (peer_doorbell->write_fd < 0)
        peer_doorbell->write_fd = coll__pipe_reopen(rank_slot->pid, rank_slot->doorbell.write_fd, rank_slot->doorbell_id);
    return peer_doorbell;
}

/* Wakes all sleeping ranks; those on the word by `wake`.  A rank that sleeps elsewhere sets is_asleep before its last check of
 * the word.  So either it sees the new word, or this rank sees is_asleep.  Each rank begins with the next one: if processors are
 * busy, the rank that is always woken last runs first, and often in vain. */
static void coll__domain_wake_by(const coll__thread *me, void (*wake)(uint32_t *word))
{
    coll__domain *domain = me->domain;

    __atomic_add_fetch(&domain->doorbell, 1, __ATOMIC_SEQ_CST);
    if (!domain->has_doorbells) wake(&domain->doorbell);
    for (int k = 1; domain->has_doorbells && k <= domain->size; k++) {
        const int i = coll__wrap((int)(me->rank_slot - coll__domain_rank_slots(domain)) + k, domain->size);
        uint32_t *const is_asleep = &coll__domain_rank_slots(domain)[i].is_asleep;
        if (__atomic_load_n(is_asleep, __ATOMIC_SEQ_CST) && __atomic_exchange_n(is_asleep, 0, __ATOMIC_SEQ_CST))
            coll__doorbell_ring(coll__doorbell_to(me, i));
    }
}

static void coll__domain_wake(const coll__thread *me) { coll__domain_wake_by(me, coll__word_wake); }

/* A rank sleeps, or the domain has failed. */
static __attribute__((noinline)) bool coll__domain_ring_late(const coll__thread *me)
{
    coll__domain_wake(me);
    return !__atomic_load_n(&me->domain->has_failed, __ATOMIC_SEQ_CST);
}

/* Returns false if the domain has failed.  A failure increments `sleepers`: a publisher checks one word for both. */
static inline bool coll__domain_ring(const coll__thread *me)
{
    return __builtin_expect(__atomic_load_n(&me->domain->sleepers, __ATOMIC_SEQ_CST) == 0, 1) || coll__domain_ring_late(me);
}

/* From here on no rank begins an operation. */
static void coll__domain_set_failed(coll__domain *domain)
{
    __atomic_store_n(&domain->has_failed, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&domain->sleepers, 1, __ATOMIC_SEQ_CST);
}

/* Stores a value before later loads: either this rank sees what another one has stored, or that one sees this value.  That takes
 * a full barrier on both sides.  With membarrier the other side executes both, and this one is a plain store, which does not
 * drain the store buffer. */
static inline void coll__domain_store(const coll__thread *me, uint64_t *at, uint64_t value)
{
    if (me->domain->has_membarrier) {
        __atomic_store_n(at, value, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } else {
        (void)__atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
    }
}

/* Publishes a number that peers wait for.  Either this rank sees the sleeper, or the sleeper sees the number at its last check.
 * Returns false if the domain has failed. */
static inline bool coll__domain_publish(const coll__thread *me, uint64_t *at, uint64_t value)
{
    coll__domain_store(me, at, value);
    return coll__domain_ring(me);
}

/* ---- >>failure: the domain keeps the first one ---- */

/* Waits until no rank of this process accesses another one's memory; after a failure none begins to.  Other processes only read,
 * and check for a failure afterwards. */
static void coll__domain_quiesce(const coll__thread *me)
{
    if (me->domain->has_membarrier) coll__membarrier();
    for (int i = 0; i < me->domain->size; i++) {
        const coll__rank_slot *rank_slot = &coll__domain_rank_slots(me->domain)[i];
        while (rank_slot->process == me->rank_slot->process && __atomic_load_n(&rank_slot->is_working, __ATOMIC_SEQ_CST))
            sched_yield();
    }
}

/* The first failure is kept.  Takes no lock: may run in a signal handler. */
static void coll__domain_fail(coll__domain *domain, coll_status status, int rank, const char *text)
{
    size_t n = 0;

    if (__atomic_exchange_n(&domain->is_failing, 1, __ATOMIC_ACQ_REL)) return;
    domain->failure.status = status;
    domain->failure.rank = rank;
    for (; text[n] && n + 1 < sizeof domain->failure.text; n++) domain->failure.text[n] = text[n];
    domain->failure.text[n] = '\0';
    coll__domain_set_failed(domain);
}

static const coll_failure *coll__threads_fail(void *context, const coll_failure *cause)
{
    coll__thread *me = (coll__thread *)context;
    coll__domain *domain = me->domain;
    coll_failure own = cause ? *cause : me->suspicion;

    if (own.status == COLL_ERR_TIMEOUT && own.rank >= 0 && me->rank_slot->session && coll__domain_lock(me)) {
        coll__excuse(&own, coll__rank_slot_of(domain, own.rank)->report, me->rank_slot->report);
        coll__domain_unlock(domain);
    }
    if (cause) coll__domain_fail(domain, own.status, own.rank, own.text);
    if (!__atomic_load_n(&domain->is_failing, __ATOMIC_SEQ_CST)) return NULL;
    while (!__atomic_load_n(&domain->has_failed, __ATOMIC_SEQ_CST)) sched_yield();
    (void)coll__domain_ring(me);
    coll__domain_quiesce(me);
    return &domain->failure;
}

static bool coll__threads_abort(void *context, const char *text)
{
    coll__thread *me = (coll__thread *)context;

    coll__domain_fail(me->domain, COLL_ERR_ABORTED, me->rank, text);
    coll__domain_wake_by(me, coll__word_alarm); /* may run in a signal handler                                   */
    return true;
}

/* Begins to access other ranks' memory.  Returns false if the domain has failed.  Either this rank sees the failure, or the
 * failing rank sees is_working. */
static bool coll__work_begin(coll__thread *me)
{
    coll__domain_store(me, &me->rank_slot->is_working, 1);
    if (!__atomic_load_n(&me->domain->has_failed, __ATOMIC_SEQ_CST)) return true;
    __atomic_store_n(&me->rank_slot->is_working, 0, __ATOMIC_SEQ_CST);
    return false;
}

static void coll__work_end(coll__thread *me)
{
    __atomic_store_n(&me->rank_slot->is_working, 0, __ATOMIC_RELEASE);
}

/* Returns whether the domain has failed, after a read of other processes' memory: a failed rank reuses its own.  It sets this
 * word first.  If this read-modify-write finds no failure, the data was read before that. */
static bool coll__domain_has_failed(coll__domain *domain)
{
    return __atomic_fetch_or(&domain->has_failed, 0, __ATOMIC_ACQ_REL) != 0;
}

static coll_status coll__failed_left(coll_failure *failure, int rank, int by)
{
    return coll__set_failure(failure, COLL_ERR_PEER, rank, "rank %d has left the communicator, and rank %d still waits for it",
                             rank, by);
}

#endif /* COLL_SHM_DOMAIN_H */
