/* coll_threads.h - ranks that share memory: collectives by loads and stores on one another's buffers.  Here all ranks are threads
 * of one process; coll_hybrid.h also has domains of several processes.
 *
 * All ranks share a domain.  In each group, also in that of all ranks, every rank has a slot.  A collective is an operation of
 * its group, numbered from 1 on every rank.  Operations of different groups are independent.
 *
 *   EAGER, for vectors that a slot has room for (coll__is_direct).  Each rank copies its input into its slot and publishes the
 *   number of the operation beside it; ranks that need the input read it there.  One phase: no rank waits for its readers,
 *   because there are many slots, used in turn.  A slot is reused once all have published a later operation, which they do
 *   after they have read it.
 *
 *   DIRECT, for longer vectors and those whose lengths only some ranks know.  Each rank publishes its buffers.  Once the required
 *   peers have published, it does its share of the work, in their memory.  It returns once all peers that access its memory
 *   are done.  Between processes a rank writes into its own memory only, and the others read it there (coll_shm_reduce.h).
 *
 * A failing rank waits until no rank of its process accesses its memory before it returns.  Ranks of other processes only read;
 * they check for a failure afterwards.
 *
 * The engine waits: it polls the slots for a while, and then sleeps on the domain's doorbell.  Every publisher rings that while
 * there are sleepers. */
#ifndef COLL_THREADS_H
#define COLL_THREADS_H

#if COLL__HAS_THREADS

#include "threads/coll_shm_domain.h"              /* what the ranks share: the doorbell, the first failure  */
#include "threads/coll_threads_p2p.h"             /* messages, for send and recv and for algorithms named by the caller */
COLL__FOR_SIZE
#include "threads/coll_shm_group.h"               /* groups of ranks, with a slot for each member           */
COLL__FOR_SPEED
#include "threads/coll_shm_access.h"              /* how a rank reads the memory of another                 */
#include "threads/coll_shm_copy.h"                /* what a rank does in an operation: moves blocks         */
#include "threads/coll_shm_reduce.h"              /* or combines them                                       */
#include "threads/coll_shm_kinds.h"               /* the table of kinds: which ranks wait for which         */
#include "threads/coll_shm_staging.h"             /* copies that other processes can read                   */
#include "threads/coll_shm_op.h"                  /* operations: publish, wait, work, wait                  */

/* ---- >>progress ---- */

/* Prepares to sleep for up to wait_ms; 0: this rank is awake.  Returns true if it may sleep now.  The first call arms the
 * doorbell: the caller then checks once more, because it may have rung before. */
static bool coll__may_sleep(coll__thread *me, int wait_ms)
{
    coll__domain *domain = me->domain;

    if (wait_ms > 0 && me->is_armed) return !me->has_posted;
    if (wait_ms > 0) {
        __atomic_add_fetch(&domain->sleepers, 1, __ATOMIC_SEQ_CST);
        if (domain->has_membarrier) coll__membarrier();
        me->is_armed = true;
    } else if (me->is_armed) {
        __atomic_sub_fetch(&domain->sleepers, 1, __ATOMIC_SEQ_CST);
        me->is_armed = false;
    }
    return false;
}

/* Receives messages, and checks which ranks have left.  A failure goes into `suspicion`. */
static coll_status coll__threads_look(coll__thread *me)
{
    coll__domain *domain = me->domain;

    if (me->is_armed) me->doorbell_seen = __atomic_load_n(&domain->doorbell, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&domain->has_failed, __ATOMIC_ACQUIRE)) return domain->failure.status;
    coll__see_who_left(me);
    const coll_status status = coll__mail_look(me);
    return status < 0 ? status : me->suspicion.status;
}

static coll_status coll__threads_progress(void *context, int wait_ms)
{
    coll__thread *me = (coll__thread *)context;

    if (coll__may_sleep(me, wait_ms)) coll__word_wait(&me->domain->doorbell, me->doorbell_seen, wait_ms);
    const coll_status status = coll__threads_look(me);
    if (me->suspicion.status != COLL_OK) (void)coll__threads_fail(me, &me->suspicion);
    return status;
}

/* Called from any thread.  A rank that is about to sleep sees that the doorbell has rung since it armed. */
static void coll__threads_wake(void *context) { coll__domain_wake((const coll__thread *)context); }

/* ---- >>freed communicators ---- */

static void coll__threads_watch(void *context, coll__session *session)
{
    const coll__thread *me = (const coll__thread *)context;
    coll__rank_slot *rank_slot = coll__rank_slot_of(me->domain, me->rank);

    pthread_mutex_lock(&rank_slot->lock);
    rank_slot->session = session;
    pthread_mutex_unlock(&rank_slot->lock);
}

/* What it has published or sent before is in memory: the next progress sees it. */
static bool coll__threads_has_freed(void *context, int peer, uint64_t id)
{
    coll__rank_slot *rank_slot = coll__rank_slot_of(((coll__thread *)context)->domain, peer);

    pthread_mutex_lock(&rank_slot->lock);
    const bool has_freed = rank_slot->session && coll__comm_is_freed(rank_slot->session, id);
    pthread_mutex_unlock(&rank_slot->lock);
    return has_freed;
}

COLL__FOR_SIZE

/* ---- >>open, close ---- */

static void coll__domain_free(coll__domain *domain)
{
    for (int i = 0; domain->has_doorbells && i < domain->size; i++)
        coll__doorbell_close(&coll__domain_rank_slots(domain)[i].doorbell);
    coll__group_free(domain, (coll__group *)coll__domain_at(domain, domain->all));
    coll__give(domain->inboxes);
    coll__give(domain);
}

/* A domain of several processes is not freed: it ends when the last process unmaps it. */
static void coll__domain_release(coll__domain *domain)
{
    if (domain->is_apart) return;
    pthread_mutex_lock(&domain->lock);
    const bool is_last = --domain->holders == 0;
    pthread_mutex_unlock(&domain->lock);
    if (!is_last) return;
    for (coll__group *g; (g = (coll__group *)coll__domain_at(domain, domain->groups)) != NULL;) { /* some members never entered */
        domain->groups = g->next;
        coll__group_free(domain, g);
    }
    for (int i = 0; i < domain->size; i++) pthread_mutex_destroy(&coll__domain_rank_slots(domain)[i].lock);
    pthread_mutex_destroy(&domain->lock);
    coll__domain_free(domain);
}

static void coll__thread_free(coll__thread *me)
{
    coll__member_end(&me->all);
    coll__give(me->recvs);
    coll__give(me->sends);
    coll__give(me->has_left);
    coll__give(me->sources);
    coll__give(me->results);
    coll__give(me->scratch);
    coll__shm_access_close(me);
    coll__give(me);
}

static void coll__threads_close(void *context)
{
    coll__thread *me = (coll__thread *)context;
    coll__domain *domain = me->domain;

    if (me->is_armed) __atomic_sub_fetch(&domain->sleepers, 1, __ATOMIC_SEQ_CST);
    if (!domain->is_apart) coll__threads_watch(me, NULL);
    coll__withdraw_sends(me);
    while (me->members) coll__threads_ungroup(me, me->members);
    __atomic_store_n(&me->rank_slot->has_left, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&domain->left_count, 1, __ATOMIC_SEQ_CST);
    (void)coll__domain_ring(me);
    coll__thread_free(me);
    coll__domain_release(domain);
}

static const char *coll__threads_describe(const void *context)
{
    (void)context;
    return "shared memory";
}

/* A rank's side of a domain; NULL: no memory. */
static coll__thread *coll__thread_open(const coll_allocator *memory, coll__domain *domain, int rank)
{
    const coll__codec usual = { .acc_size = 1 };  /* enough, except for a user's long elements                */
    const size_t size = (size_t)domain->size;
    coll__thread *me = (coll__thread *)coll__allocate(memory, sizeof *me);

    if (!me) return NULL;
    me->domain = domain;
    me->rank = rank;
    me->rank_slot = coll__rank_slot_of(domain, rank);
    me->has_left = (unsigned char *)coll__allocate(memory, size);
    me->sources = (coll__source *)coll__allocate(memory, size * sizeof *me->sources);
    me->results = (void **)coll__allocate(memory, (size + 1) * sizeof *me->results);
    me->scratch_length = coll__most(coll__combine_scratch(&usual, domain->size),
                                    coll__combine_scratch(&usual, 2) + 2 * COLL__BLOCK);
    me->scratch_length = coll__round_up(me->scratch_length + COLL__GRID_BYTES, COLL__LINE);
    me->scratch = coll__take_lines(memory, me->scratch_length);       /* first touched by its own thread      */
    const bool has_rest = domain->is_apart ? coll__shm_access_open(me, memory) : coll__sends_open(me);
    if (!me->has_left || !me->sources || !me->results || !me->scratch || !has_rest) {
        coll__thread_free(me);
        return NULL;
    }
    for (int i = 0; i < domain->size; i++) me->sources[i] = (coll__source){ NULL, COLL__AS_USER, i };
    coll__member_init(&me->all, me, (coll__group *)coll__domain_at(domain, domain->all), coll__rank_slot_number(domain, rank));
    return me;
}

/* Initializes a domain: the group of all of its ranks.  Returns false: no memory. */
static bool coll__domain_begin(coll__domain *domain, bool is_crowded)
{
    domain->holders = 1;
    domain->failure.rank = -1;
    domain->is_crowded = is_crowded;
    domain->all = coll__domain_place(domain, coll__group_new(domain, 0, 0, NULL, domain->size));
    return domain->all != 0;
}

/* A domain for ranks first .. first + size - 1 of one process; the caller holds it until coll__domain_release. */
static coll__domain *coll__domain_open(const coll_allocator *memory, int first, int size, bool is_crowded)
{
    coll__domain *domain = (coll__domain *)coll__allocate(memory, coll__domain_length(size));

    if (!domain) return NULL;
    domain->first = first;
    domain->size = size;
    domain->has_membarrier = coll__membarrier_register();
    const bool has_inboxes = coll__inboxes_open(domain);
    if (!coll__domain_begin(domain, is_crowded) || !has_inboxes) {
        coll__domain_free(domain);
        return NULL;
    }
    pthread_mutex_init(&domain->lock, NULL);      /* a default mutex needs no resources on Linux              */
    for (int i = 0; i < size; i++) pthread_mutex_init(&coll__domain_rank_slots(domain)[i].lock, NULL);
    return domain;
}

/* All ranks share one process. */
static int coll__threads_host(void *context, int rank)
{
    (void)context, (void)rank;
    return 0;
}

#include "threads/coll_threads_shrink.h"          /* the survivors of a failure migrate to a new domain     */

static const coll_transport coll__threads_transport = {
    .name = "threads",
    .send = coll__threads_send,
    .recv = coll__threads_recv,
    .progress = coll__threads_progress,
    .close = coll__threads_close,
    .fail = coll__threads_fail,
    .offload = coll__threads_offload,
    .offload_ahead = COLL__SHM_OPS_OVERLAP - 1,
    .bind = coll__threads_bind,
    .group = coll__threads_group,
    .ungroup = coll__threads_ungroup,
    .host = coll__threads_host,
    .report_stall = coll__threads_report_stall,
    .mark_stragglers = coll__threads_mark_stragglers,
    .has_left = coll__threads_has_left,
    .wake = coll__threads_wake,
    .shrink = COLL__SHRINKS(coll__threads_shrink),
    .abort = coll__threads_abort,
    .describe = coll__threads_describe,
};

static const coll__internals coll__threads_internals = {
    .part = coll__threads_part, .watch = coll__threads_watch, .has_freed = coll__threads_has_freed
};

/* Ranks 0 .. count - 1: all ranks of the world. */
static coll_status coll__threads_open(const coll__settings *s, int count, coll__opened *out)
{
    coll__domain *domain = coll__domain_open(s->config.allocator, 0, count, count > coll__processors());
    int rank = 0;

    for (coll__thread *me; domain && rank < count && (me = coll__thread_open(s->config.allocator, domain, rank)); rank++) {
        domain->holders++;
        out[rank] = coll__opened_as(&coll__threads_transport, me, rank, count, s);
        out[rank].internals = &coll__threads_internals;
        coll__opened_at(&out[rank], rank, count);
    }
    if (domain) coll__domain_release(domain);
    if (rank == count) return COLL_OK;
    for (int i = 0; i < rank; i++) coll__threads_close(out[i].context);
    return coll__start_failed(COLL_ERR_MEMORY, "no memory for rank %d of %d", rank, count);
}

static const coll__transport_row coll__threads_row = {
    .name = "threads", .traits = COLL__OPENS_ALL, .open = coll__threads_open
};

COLL__FOR_SPEED

#else

/* Used only if named; a single rank uses coll_alone.h. */
static const coll__transport_row coll__threads_row = {
    .name = "threads", .traits = COLL__OPENS_ALL | COLL__WHEN_NAMED, .missing = COLL__MISSING
};

#endif
#endif /* COLL_THREADS_H */
