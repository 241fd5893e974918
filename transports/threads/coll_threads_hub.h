/* coll_threads_hub.h - what the ranks of a process share: the hub, its bell, its failure; and what each keeps for itself. */
#ifndef COLL_THREADS_HUB_H
#define COLL_THREADS_HUB_H

#include <pthread.h>

/* A rank publishes so many turns before the first of them is over; and has a slot for each of twice as many. */
enum { COLL__TURNS_ABREAST = 4, COLL__TURN_SLOTS = 2 * COLL__TURNS_ABREAST };

/* One rank's place in the hub. */
typedef struct __attribute__((aligned(COLL__LINE))) coll__desk {
    uint32_t is_working;                          /* this rank reads or writes other ranks' memory            */
    uint32_t has_left;
    uint32_t is_asleep;                           /* in a transport of its own (coll_joined.h), woken through `bell` */
    coll__bell bell;                              /* where the hub has_bells                                  */
    __attribute__((aligned(COLL__LINE))) pthread_mutex_t lock;  /* guards the messages to this rank           */
    uint32_t arrived;                             /* how many there are                                       */
    unsigned char report[COLL_HEAD_LENGTH];       /* the call in which this rank was last found waiting       */
    const coll_doing *doing;                      /* what it does, while it is here                           */
} coll__desk;

typedef struct coll__fifo { coll_xfer *first, **end; } coll__fifo;

/* Sends of one rank to another on one channel, in the order in which they are taken; linked by `link`. */
typedef struct coll__sends {
    coll_xfer *first, *last;
    struct coll__sends *next;                     /* among those that hold something                          */
} coll__sends;

typedef struct coll__hub {
    int      first, size;                         /* its ranks are called first .. first + size - 1           */
    int      holders;                             /* ranks that have not freed their communicator             */
    bool     has_bells;                           /* ranks sleep elsewhere than on the word `bell`            */
    bool     has_membarrier;
    bool     is_crowded;                          /* there are more ranks than processors                     */
    size_t   cache_length;                        /* bytes of the last level that one processor reaches       */
    uint32_t left_count;
    __attribute__((aligned(COLL__LINE))) uint32_t bell;
    uint32_t sleepers, is_failing, has_failed;    /* failing: somebody writes `failure`; failed: it is written */
    pthread_mutex_t lock;                         /* guards holders, groups, exoduses                            */
    coll_failure    failure;
    coll__desk     *desks;
    coll__fifo     *inboxes;                      /* sends not taken yet, by receiver, sender and channel     */
    struct coll__exodus *exoduses;                /* see coll_threads_shrink.h                                */
    struct coll__group *all, *groups;             /* the group of all ranks; the others, oldest first         */
} coll__hub;

/* A rank's side of a group. */
typedef struct coll__member {
    struct coll__thread *thread;
    struct coll__group  *group;
    struct coll__seat   *seats;                   /* the group's                                              */
    struct coll__seat   *own;                     /* ours among them                                          */
    coll__source        *eager[2][COLL__TURN_SLOTS];          /* the eager inputs: long ones or not, by slot  */
    size_t    eager_most;                         /* bytes of an eager message, the longest                   */
    int       rank, count;                        /* our rank in the group, and how many it has               */
    int       looks;                              /* at a word that has not come yet, before we do something else */
    size_t    cache_share;                        /* our part of the cache                                    */
    uint64_t  turn, all_posted;                   /* every rank is known to have published all_posted         */
    void     *held;                               /* memory of ours that others use during a turn             */
    size_t    held_length;
    struct coll__member *next;
} coll__member;

/* One rank's side of the hub. */
typedef struct coll__thread {
    coll__hub *hub;
    int        rank;                              /* as all ranks are called: from hub->first on              */
    bool       is_armed;                          /* counted among the sleepers                               */
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
    void       *scratch;                          /* of no meaning between two calls                          */
    size_t      scratch_length;
} coll__thread;

static inline coll__desk *coll__desk_of(const coll__hub *hub, int rank) { return &hub->desks[rank - hub->first]; }

/* ---- >>bell: waking those who sleep ---- */

/* Let all who sleep return, those who sleep on the word by `wake`.  One that sleeps elsewhere has said so before its last look
 * at the word: either it finds that it has changed, or we find that it is asleep. */
static void coll__hub_wake_by(coll__hub *hub, void (*wake)(uint32_t *word))
{
    __atomic_add_fetch(&hub->bell, 1, __ATOMIC_SEQ_CST);
    if (!hub->has_bells) wake(&hub->bell);
    for (int i = 0; hub->has_bells && i < hub->size; i++) {
        coll__desk *desk = &hub->desks[i];
        if (__atomic_load_n(&desk->is_asleep, __ATOMIC_SEQ_CST) && __atomic_exchange_n(&desk->is_asleep, 0, __ATOMIC_SEQ_CST))
            coll__bell_ring(&desk->bell);
    }
}

static void coll__hub_wake(coll__hub *hub) { coll__hub_wake_by(hub, coll__word_wake); }

static inline void coll__hub_ring(coll__hub *hub)
{
    if (__atomic_load_n(&hub->sleepers, __ATOMIC_SEQ_CST) != 0) coll__hub_wake(hub);
}

/* Publish a number that others wait for.  Either this rank sees that somebody sleeps, or the one who goes to sleep sees the
 * number at its last look.  That takes a full barrier on both sides; where the kernel has membarrier, the sleeper executes it
 * for all, and publishing is a plain store, which need not wait for the cache lines written before. */
static inline void coll__hub_publish(coll__hub *hub, uint64_t *at, uint64_t value)
{
    if (hub->has_membarrier) {
        __atomic_store_n(at, value, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } else {
        (void)__atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
    }
    coll__hub_ring(hub);
}

/* ---- >>failure: kept in the hub, the first one for all ---- */

/* From here on nobody enters anyone's memory; wait for those who are in it. */
static void coll__hub_quiesce(coll__hub *hub)
{
    if (hub->has_membarrier) coll__membarrier();
    for (int i = 0; i < hub->size; i++)
        while (__atomic_load_n(&hub->desks[i].is_working, __ATOMIC_SEQ_CST)) sched_yield();
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
    __atomic_store_n(&hub->has_failed, 1, __ATOMIC_SEQ_CST);
}

static const coll_failure *coll__threads_fail(void *context, const coll_failure *cause)
{
    coll__thread *me = (coll__thread *)context;
    coll__hub *hub = me->hub;

    if (cause) coll__hub_fail(hub, cause->status, cause->rank, cause->text);
    if (!__atomic_load_n(&hub->is_failing, __ATOMIC_SEQ_CST)) return NULL;
    while (!__atomic_load_n(&hub->has_failed, __ATOMIC_SEQ_CST)) sched_yield();
    coll__hub_ring(hub);
    coll__hub_quiesce(hub);
    return &hub->failure;
}

static bool coll__threads_abort(void *context, const char *text)
{
    coll__thread *me = (coll__thread *)context;

    coll__hub_fail(me->hub, COLL_ERR_ABORTED, me->rank, text);
    coll__hub_wake_by(me->hub, coll__word_alarm); /* this may be a signal handler                             */
    return true;
}

/* This rank waits in a call.  Another that waits under the same number in another call will wait for ever, and so shall we. */
static void coll__threads_report_stall(void *context, const unsigned char *head)
{
    coll__thread *me = (coll__thread *)context;
    coll__hub *hub = me->hub;
    coll_failure failure = { COLL_OK, -1, "" };

    pthread_mutex_lock(&hub->lock);
    memcpy(coll__desk_of(hub, me->rank)->report, head, COLL_HEAD_LENGTH);
    for (int i = 0; i < hub->size && failure.status == COLL_OK; i++)
        if (coll__heads_disagree(hub->desks[i].report, head))
            coll__blame_mismatch(&failure, hub->desks[i].report, hub->first + i, head, me->rank);
    pthread_mutex_unlock(&hub->lock);
    if (failure.status != COLL_OK) (void)coll__threads_fail(me, &failure);
}

/* Go to work in other ranks' memory; false: the communicator has failed.  Either this rank sees the failure, or the one who
 * fails sees it at work; who executes the barriers for that is as in coll__hub_publish. */
static bool coll__work_begin(coll__thread *me)
{
    uint32_t *is_working = &coll__desk_of(me->hub, me->rank)->is_working;

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
    __atomic_store_n(&coll__desk_of(me->hub, me->rank)->is_working, 0, __ATOMIC_RELEASE);
}

static coll_status coll__blame_left(coll_failure *failure, int rank, int by)
{
    return coll__blame(failure, COLL_ERR_PEER, rank, "rank %d has left the communicator, and rank %d still waits for it",
                       rank, by);
}

#endif /* COLL_THREADS_HUB_H */
