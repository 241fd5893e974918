/* coll_hybrid.h - communicators in which some ranks share memory and others do not.
 *
 * Every rank has its own sockets (coll_tcp.h) to all the others, and up to two domains (coll_threads.h).  One has the ranks of
 * its process, if there are several, and carries their messages.  The other has all ranks of its host, if their processes share
 * memory (coll_hybrid_domain.h), and carries whole collectives.  If all ranks of a collective belong to one domain, it is carried
 * out there, by loads and stores.  Otherwise the engine uses messages.
 *
 *            process 0           process 1               process 2          ranks first .. first + count - 1 of each process
 *     rank 0   rank 1        rank 2   rank 3         rank 4   rank 5
 *       |        |             |        |              |        |
 *     --+--------+--         --+--------+--          --+--------+--         domains of processes
 *     --+--------+-------------+--------+--          --+--------+--         domains of hosts
 *       |        |             |        |              |        |
 *     ==+========+=============+========+==============+========+==         sockets, from every rank to every rank elsewhere
 *
 * A rank sleeps in its sockets, because it cannot wait for sockets and a word at once.  So a domain rings a doorbell that the
 * sockets watch, for ranks that have set is_asleep: coll__hybrid_sleep here and coll__domain_wake there.
 *
 * A failure is decided over TCP, as in a world without domains; the decision then ends the domains.  Ranks of this process stop
 * accessing this rank's memory, and all return the same cause.  Survivors create a world over TCP (coll_shrink), then domains of
 * hosts. */
#ifndef COLL_HYBRID_H
#define COLL_HYBRID_H

enum { COLL__HYBRID_TRAITS = COLL__OPENS_SOME };

#if COLL__HAS_HYBRID

#include "hybrid/coll_hybrid_exported.h"
#include "hybrid/coll_hybrid_domain.h"

/* The context is that of the sockets: functions that only use sockets need none here. */
static inline coll__hybrid *coll__hybrid_of(const void *context)
{
    return (coll__hybrid *)((const coll__tcp *)context)->hybrid;
}

static inline bool coll__is_neighbour(const coll__hybrid *me, int rank)
{
    const coll__domain *domain = me->domains[COLL__DOMAIN_OF_PROCESS] ? me->domains[COLL__DOMAIN_OF_PROCESS]->domain : NULL;
    return domain && rank >= domain->first && rank - domain->first < domain->size;
}

/* ---- >>messages ---- */

static coll_status coll__hybrid_send(void *context, coll_xfer *x)
{
    coll__hybrid *me = coll__hybrid_of(context);
    return coll__is_neighbour(me, x->peer) ? coll__threads_send(me->domains[COLL__DOMAIN_OF_PROCESS], x)
           : coll__tcp_send(me->tcp, x);
}

static coll_status coll__hybrid_recv(void *context, coll_xfer *x)
{
    coll__hybrid *me = coll__hybrid_of(context);
    return coll__is_neighbour(me, x->peer) ? coll__threads_recv(me->domains[COLL__DOMAIN_OF_PROCESS], x)
           : coll__tcp_recv(me->tcp, x);
}

static bool coll__hybrid_has_left(const void *context, int peer)
{
    const coll__hybrid *me = coll__hybrid_of(context);
    const coll__thread *thread = me->domains[COLL__DOMAIN_OF_PROCESS];

    if (peer < 0) return (thread && coll__threads_has_left(thread, peer)) || coll__tcp_has_left(me->tcp, peer);
    return coll__is_neighbour(me, peer) ? coll__threads_has_left(thread, peer) : coll__tcp_has_left(me->tcp, peer);
}

/* ---- >>failure ---- */

/* A failure that a domain has is the cause, because it was first among its ranks.  The others may have agreed on another. */
static const coll_failure *coll__hybrid_fail(void *context, const coll_failure *cause)
{
    coll__hybrid *me = coll__hybrid_of(context);

    for (int i = COLL__DOMAINS - 1; i >= 0; i--)
        if (me->domains[i] && __atomic_load_n(&me->domains[i]->domain->has_failed, __ATOMIC_ACQUIRE))
            cause = &me->domains[i]->domain->failure;
    const coll_failure *agreed = coll__tcp_fail(me->tcp, cause);
    if (agreed && me->domains[COLL__DOMAIN_OF_HOST]) coll__host_domain_fail(me->domains[COLL__DOMAIN_OF_HOST], agreed);
    return agreed
           && me->domains[COLL__DOMAIN_OF_PROCESS] ? coll__threads_fail(me->domains[COLL__DOMAIN_OF_PROCESS], agreed) : agreed;
}

/* ---- >>progress ---- */

/* Tells the domains whether this rank sleeps. */
static void coll__hybrid_delay(const coll__hybrid *me, uint32_t is_asleep)
{
    for (int i = 0; i < COLL__DOMAINS; i++)
        if (me->domains[i]) __atomic_store_n(&me->domains[i]->rank_slot->is_asleep, is_asleep, __ATOMIC_SEQ_CST);
}

/* Sleeps in the sockets, unless the doorbell of a domain has rung since it was last checked. */
static coll_status coll__hybrid_sleep(coll__hybrid *me, int wait_ms)
{
    bool has_rung = false;

    if (me->domains[COLL__DOMAIN_OF_HOST]) coll__host_domain_probe(me->domains[COLL__DOMAIN_OF_HOST], me->tcp);
    coll__hybrid_delay(me, 1);
    for (int i = 0; i < COLL__DOMAINS; i++)
        if (me->domains[i])
            has_rung |= __atomic_load_n(&me->domains[i]->domain->doorbell, __ATOMIC_SEQ_CST) != me->domains[i]->doorbell_seen;
    const coll_status status = coll__tcp_progress(me->tcp, has_rung ? 0 : wait_ms);
    coll__hybrid_delay(me, 0);
    return status;
}

static coll_status coll__hybrid_progress(void *context, int wait_ms)
{
    coll__hybrid *me = coll__hybrid_of(context);
    bool sleeps = true;

    for (int i = 0; i < COLL__DOMAINS; i++) if (me->domains[i]) sleeps = coll__may_sleep(me->domains[i], wait_ms) && sleeps;
    coll_status status = sleeps ? coll__hybrid_sleep(me, wait_ms) : coll__tcp_progress(me->tcp, 0);
    for (int i = 0; i < COLL__DOMAINS; i++) {
        coll__thread *thread = me->domains[i];
        if (!thread) continue;
        if (status == COLL_OK) status = coll__threads_look(thread);
        if (thread->suspicion.status != COLL_OK) (void)coll__hybrid_fail(context, &thread->suspicion);
    }
    return status;
}

/* ---- >>whole collectives: if all ranks belong to one domain ---- */

/* This rank's side of the domain that has the ranks of a task; NULL: none. */
static inline coll__thread *coll__hybrid_side(const coll__hybrid *me, const coll_task *task)
{
    return task->group ? ((const coll__member *)task->group)->thread : me->domains[COLL__DOMAIN_OF_HOST];
}

static coll_status coll__hybrid_offload(void *context, coll_task *task, coll_failure *failure)
{
    coll__thread *side = coll__hybrid_side(coll__hybrid_of(context), task);
    return side ? coll__threads_offload(side, task, failure) : COLL_ERR_UNSUPPORTED;
}

static coll_offload_fn *coll__hybrid_bind(void *context, const coll_task *task, void **bound)
{
    coll__thread *side = coll__hybrid_side(coll__hybrid_of(context), task);
    return side ? coll__threads_bind(side, task, bound) : NULL;
}

/* Of offered calls: those of groups, and of all ranks if these have a domain. */
static int coll__hybrid_can_offload(const void *context, const coll_call *call, int size, char *why, size_t room)
{
    const coll__hybrid *me = coll__hybrid_of(context);
    const coll__thread *side = me->domains[me->domains[COLL__DOMAIN_OF_HOST] ? COLL__DOMAIN_OF_HOST : COLL__DOMAIN_OF_PROCESS];
    const coll__form *form = coll__form_of(call->kind);
    const size_t unit = coll_type_size(call->type);

    (void)size;
    if (!side) {
        coll__print(why, room, "these processes share no memory for whole collectives");
        return 0;
    }
    if (!form) {
        coll__print(why, room, "the shared-memory domain does not have it");
        return 0;
    }
    const coll__member *all = &side->all;
    if (all->is_eager_only && coll__is_direct(all, form, call, unit, coll__eager_bytes(all, form, call, unit))) {
        coll__print(why, room, "one process may not read the memory of another (ptrace), and this is longer than %zu bytes",
                    coll__most(COLL__EAGER_SHORT, coll__bounce_most(all, form)));
        return 0;
    }
    return 1;
}

/* If one rank alone cannot create a group, the world fails. */
static void *coll__hybrid_group(void *context, uint64_t id, uint32_t number, const int *ranks, int count, int me)
{
    coll__hybrid *hybrid = coll__hybrid_of(context);
    bool is_of_process = true, is_of_host = hybrid->domains[COLL__DOMAIN_OF_HOST] != NULL;

    for (int i = 0; i < count; i++) {
        is_of_process = is_of_process && coll__is_neighbour(hybrid, ranks[i]);
        is_of_host = is_of_host && coll__is_of_this_host(hybrid->tcp, ranks[i]);
    }
    coll__thread *const side = is_of_process ? hybrid->domains[COLL__DOMAIN_OF_PROCESS]
                             : is_of_host ? hybrid->domains[COLL__DOMAIN_OF_HOST] : NULL;
    void *const group = side ? coll__threads_group(side, id, number, ranks, count, me) : NULL;
    if (side && !group) (void)coll__hybrid_fail(context, &side->suspicion);
    return group;
}

static coll_status coll__hybrid_part(void *context, void *group, const unsigned char *made, coll_failure *failure)
{
    const coll__hybrid *me = coll__hybrid_of(context);        /* NULL: sockets only                             */

    if (group) return coll__threads_part(((coll__member *)group)->thread, group, made, failure);
    for (int i = 0; me && i < COLL__DOMAINS; i++)
        if (me->domains[i] && coll__threads_part(me->domains[i], NULL, made, failure) < 0) return failure->status;
    return coll__tcp_part(context, NULL, made, failure);
}

static void coll__hybrid_report_stall(void *context, const unsigned char *head)
{
    const coll__hybrid *me = coll__hybrid_of(context);
    coll_failure failure = { COLL_OK, -1, "" };

    for (int i = 0; i < COLL__DOMAINS; i++)
        if (me->domains[i] && coll__domain_compare(me->domains[i], me->tcp->heartbeat.session, head, &failure) < 0)
            (void)coll__hybrid_fail(context, &failure);
    coll__tcp_report_stall(context, head);
}

static void coll__hybrid_mark_stragglers(const void *context, const coll_task *task, unsigned char *is_late)
{
    const coll__thread *side = coll__hybrid_side(coll__hybrid_of(context), task);
    if (side) coll__threads_mark_stragglers(side, task, is_late);
}

static const coll_allocator *coll__hybrid_memory(void *context)
{
    coll__hybrid *me = coll__hybrid_of(context);
    return me->exported ? &me->exported->allocator : NULL;
}

/* ---- >>description ---- */

/* "4 ranks in one memory; 2 threads x io_uring; network to 4 ranks". */
static const char *coll__hybrid_describe(const void *context)
{
    coll__hybrid *me = coll__hybrid_of(context);
    const coll__thread *process = me->domains[COLL__DOMAIN_OF_PROCESS], *host = me->domains[COLL__DOMAIN_OF_HOST];
    const int first = process ? process->domain->first : me->tcp->rank, count = process ? process->domain->size : 1;
    const char *elsewhere = coll__tcp_describe_but(me->tcp, first, count);

    *me->description = '\0';
    if (host) coll__append(me->description, sizeof me->description, "%d ranks in one memory; ", host->domain->size);
    if (process) coll__append(me->description, sizeof me->description, "%d threads x ", count);
    coll__append(me->description, sizeof me->description, "%s", elsewhere);
    return me->description;
}

/* ---- >>open, close ---- */

static void coll__hybrid_close(void *context)
{
    coll__hybrid *me = coll__hybrid_of(context);

    if (me->domains[COLL__DOMAIN_OF_HOST]) coll__host_domain_leave(me);
    if (me->domains[COLL__DOMAIN_OF_PROCESS]) coll__threads_close(me->domains[COLL__DOMAIN_OF_PROCESS]);
    coll__tcp_close(me->tcp);
    coll__exported_drop(me->exported);
    coll__give(me);
}

/* ---- >>shrink ---- */

/* The survivors agree over TCP.  Memory of coll_alloc stays; coll__host_enter does the rest. */
static coll_status coll__hybrid_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                       coll_failure *failure)
{
    const coll__hybrid *me = coll__hybrid_of(context);
    const coll_status status = coll__tcp_shrink(me->tcp, ranks, count, timeout_ms, out, failure);
    coll__tcp *const tcp = (coll__tcp *)out->context;

    if (status < 0 || out->is_agree || tcp->voters < tcp->size || !me->exported) return status;
    coll__hybrid *fresh = (coll__hybrid *)coll__allocate(coll__like(context), sizeof *fresh);
    if (!fresh) {
        coll__tcp_close(tcp);
        return coll__set_failure(failure, COLL_ERR_MEMORY, -1, "no memory for a rank");
    }
    fresh->tcp = tcp;
    fresh->exported = coll__exported_share(me->exported);
    tcp->hybrid = fresh;
    return COLL_OK;
}

static const coll_transport coll__hybrid_transport = {
    .name = "hybrid",
    .send = coll__hybrid_send,
    .recv = coll__hybrid_recv,
    .progress = coll__hybrid_progress,
    .close = coll__hybrid_close,
    .fail = coll__hybrid_fail,
    .offload = coll__hybrid_offload,
    .can_offload = coll__hybrid_can_offload,
    .bind = coll__hybrid_bind,
    .group = coll__hybrid_group,
    .ungroup = coll__threads_ungroup,
    .memory = coll__hybrid_memory,
    .host = coll__tcp_host,
    .site = coll__tcp_site,
    .report_stall = coll__hybrid_report_stall,
    .mark_stragglers = coll__hybrid_mark_stragglers,
    .peer_status = COLL__IF_WATCH(coll__tcp_peer_status),
    .failed = coll__tcp_failed,
    .shrink = COLL__SHRINKS(coll__hybrid_shrink),
    .abort = coll__tcp_abort,
    .has_left = coll__hybrid_has_left,
    .wake = coll__tcp_wake,
    .in_background = true,
    .traffic = coll__tcp_traffic,
    .describe = coll__hybrid_describe,
};

/* ---- >>one rank of a process: hybrid if it shares memory with others of its host, else TCP ---- */

static bool coll__host_enter(void *context, coll__opened *out, coll_status *status);

static const coll__elastic coll__host_elastic = {
    .waiting = coll__tcp_waiting, .table = coll__tcp_newcomers, .enter = coll__host_enter
};

static const coll__internals coll__host_internals = {
    .part = coll__hybrid_part, .watch = coll__tcp_watch, .has_freed = COLL__IF_WATCH(coll__tcp_has_freed),
    .elastic = COLL__SHRINKS(&coll__host_elastic)
};

/* A rank without a domain of its process: has it one of its host? */
static void coll__host_settle(coll__tcp *tcp, coll__opened *out)
{
    coll__hybrid *const me = (coll__hybrid *)tcp->hybrid;
    const coll__thread *const thread = me ? me->domains[COLL__DOMAIN_OF_HOST] : NULL;
    const bool is_hybrid = me && (thread || me->exported);

    if (!is_hybrid) coll__give(me), tcp->hybrid = NULL;
    out->transport = is_hybrid ? &coll__hybrid_transport : &coll__tcp_transport;
    out->internals = &coll__host_internals;
    out->offloads_all = thread && thread->domain->size == out->size;
}

/* The new world of coll_shrink has domains of hosts, but none of processes: each rank is there as if its process had no other.  A
 * rank without one tries again after every coll_shrink, as all ranks of its host do.  The first world of newcomers has none. */
static COLL__UNUSED bool coll__host_enter(void *context, coll__opened *out, coll_status *status)
{
    coll__tcp *const tcp = (coll__tcp *)context;
    const bool is_first = coll__tcp_enter(context, out, status);
    coll__hybrid *me = (coll__hybrid *)tcp->hybrid;

    if (!is_first && !me) tcp->hybrid = me = (coll__hybrid *)coll__allocate(coll__like(tcp), sizeof *me);
    if (me) me->tcp = tcp;
    if (!is_first) *status = me ? coll__host_domain_enter(me, tcp->rank, out->is_crowded) : COLL_ERR_MEMORY;
    coll__host_settle(tcp, out);
    return is_first;
}

/* ---- >>open ---- */

enum { COLL__JOINING_STACK = 1 << 20 };           /* resolvers of addresses take more than threads of the library usually do */

/* One joining rank.  The world is complete only with all ranks, so the ranks of a process join at the same time.  Each joins in a
 * thread, which then ends. */
typedef struct coll__joining {
    pthread_t      thread;
    struct coll__joiners *joiners;
    coll__tcp_settings settings;                  /* of this rank                                             */
    coll__opened   opened;                        /* the outcome                                              */
    coll__hybrid  *hybrid;                        /* its sockets, and its side of the host's domain           */
} coll__joining;

typedef struct coll__joiners {
    pthread_mutex_t lock;                         /* guards the rest, and blocks all threads until each is created */
    bool            is_off;                       /* there are not enough threads: no rank joins              */
    coll_status     status;                       /* the first error                                          */
    char            sentence[COLL__START_ROOM];
    coll__tcp_settings *settings;                 /* of the first rank; those of the others are copies that point into it */
    int             count;
    coll__joining   joining_ranks[];
} coll__joiners;

/* Joins the world, and then the domain of the host. */
static void *coll__joining_main(void *at)
{
    coll__joining *joining = (coll__joining *)at;
    coll__joiners *all = joining->joiners;
    coll__hybrid *hybrid = joining->hybrid;

    pthread_mutex_lock(&all->lock);
    const bool is_off = all->is_off;
    pthread_mutex_unlock(&all->lock);
    if (is_off) return NULL;
    coll_status status = coll__tcp_join(&hybrid->tcp, &joining->settings, &joining->opened);
    if (status == COLL_OK) {
        hybrid->tcp->hybrid = hybrid;
        status = coll__host_domain_enter(hybrid, all->settings->config.rank, joining->opened.is_crowded);
        if (status < 0)
            coll__start_failed(status, "no memory for the domain of the %d ranks of this host", joining->opened.local_size);
    }
    pthread_mutex_lock(&all->lock);
    if (status < 0 && all->status == COLL_OK) {   /* the caller returns the first error                       */
        all->status = status;
        coll__print(all->sentence, sizeof all->sentence, "%s", coll__start_error);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* All ranks of this process join: the first in this thread. */
static coll_status coll__joiners_run(coll__joiners *all)
{
    int started = 1, error = 0;

    pthread_mutex_lock(&all->lock);
    while (!error && started < all->count)
        if ((error = coll__thread_begin(&all->joining_ranks[started].thread, COLL__JOINING_STACK, coll__joining_main,
                                        &all->joining_ranks[started])) == 0) started++;
    all->is_off = error != 0;
    pthread_mutex_unlock(&all->lock);
    (void)coll__joining_main(&all->joining_ranks[0]);
    for (int i = 1; i < started; i++) pthread_join(all->joining_ranks[i].thread, NULL);
    if (error) return coll__start_failed(COLL_ERR_SYSTEM, "no thread for rank %d: %s", started, strerror(error));
    return all->status < 0 ? coll__start_failed(all->status, "%s", all->sentence) : COLL_OK;
}

static void coll__joiners_free(coll__joiners *all)
{
    for (int i = 0; i < all->count; i++) {
        coll__joining *joining = &all->joining_ranks[i];
        if (joining->hybrid && joining->hybrid->tcp) coll__hybrid_close(joining->hybrid->tcp);
        else coll__give(joining->hybrid);
        coll__wipe(joining->settings.key, sizeof joining->settings.key);
    }
    coll__tcp_settings_free(all->settings);
    pthread_mutex_destroy(&all->lock);
    coll__give(all);
}

/* Joins ranks rank .. rank + count - 1 to a world, by the settings of the first.  Each then has its settings, its sockets and its
 * side of the host's domain.  Returns an error with its sentence. */
static coll_status coll__hybrid_bootstrap(coll__joiners *all, const coll__settings *s)
{
    coll_status status;
    bool has_memory = true;

    if (!(all->settings = coll__tcp_settings_new(s, &status))) return status;
    for (int i = 0; i < all->count; i++) {
        coll__joining *joining = &all->joining_ranks[i];
        joining->joiners = all;
        joining->settings = *all->settings;
        joining->settings.config.rank += i;
        joining->opened = coll__opened_as(&coll__hybrid_transport, NULL, s->config.rank + i, s->config.size, s);
        joining->hybrid = (coll__hybrid *)coll__allocate(coll__like(all), sizeof *joining->hybrid);
        has_memory = has_memory && joining->hybrid;
    }
    return has_memory ? coll__joiners_run(all) : coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", all->count);
}

/* A domain for the ranks that have joined, with a side for each.  Returns false: no memory. */
static bool coll__hybrid_domain(const coll__joiners *all)
{
    const coll__opened *first = &all->joining_ranks[0].opened;
    coll__domain *domain = coll__domain_open(coll__like(all), first->rank, all->count, first->is_crowded);
    bool is_whole = true;

    if (!domain) return false;
    for (int i = 0; i < all->count; i++) coll__domain_rank_slots(domain)[i].doorbell = coll__no_doorbell;
    domain->has_doorbells = true;
    for (int i = 0; i < all->count && is_whole; i++) {        /* duplicated: a peer may ring after this rank has left */
        coll__hybrid *me = all->joining_ranks[i].hybrid;
        coll__doorbell *doorbell = &coll__domain_rank_slots(domain)[i].doorbell;
        *doorbell = coll__doorbell_share(&me->tcp->io.doorbell);
        if (doorbell->fd >= 0)
            me->domains[COLL__DOMAIN_OF_PROCESS] = coll__thread_open(coll__like(me), domain, me->tcp->rank);
        is_whole = me->domains[COLL__DOMAIN_OF_PROCESS] != NULL;
        domain->holders += is_whole;
    }
    coll__domain_release(domain);
    return is_whole;
}

/* Takes the context of a rank that has joined.  If each process has one rank, all ranks may belong to one domain. */
static void coll__hybrid_opened(coll__opened *opened, coll__joining *joining)
{
    coll__hybrid *me = joining->hybrid;

    *opened = joining->opened;
    COLL__ASSERT(me->tcp->rank == opened->rank, "rank %d has sockets of rank %d", opened->rank, me->tcp->rank);
    opened->context = me->tcp;
    opened->internals = &coll__host_internals;
    opened->offloads_all = me->domains[COLL__DOMAIN_OF_HOST] && me->domains[COLL__DOMAIN_OF_HOST]->domain->size == opened->size;
    joining->hybrid = NULL;
}

static coll_status coll__hybrid_open(const coll__settings *s, int count, coll__opened *out)
{
    coll__joiners *all = (coll__joiners *)coll__allocate(s->config.allocator,
                                                         sizeof *all + (size_t)count * sizeof *all->joining_ranks);

    if (!all) return coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);
    pthread_mutex_init(&all->lock, NULL);
    all->count = count;
    coll_status status = coll__hybrid_bootstrap(all, s);
    if (status == COLL_OK && count > 1 && !coll__hybrid_domain(all))
        status = coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);
    for (int i = 0; i < count && status == COLL_OK; i++) {
        coll__hybrid_opened(&out[i], &all->joining_ranks[i]);
        coll__tcp_say_joined(&out[i], &all->joining_ranks[i].settings, s->source);
    }
    coll__joiners_free(all);
    return status;
}

static const coll__transport_row coll__hybrid_row = { .traits = COLL__HYBRID_TRAITS, .open = coll__hybrid_open };

/* One rank of a process: without a domain it uses TCP only. */
static coll_status coll__host_open(const coll__settings *s, int count, coll__opened *out)
{
    const coll_status status = s->is_newcomer ? coll__tcp_open(s, count, out) : coll__hybrid_open(s, count, out);

    if (status == COLL_OK) coll__host_settle((coll__tcp *)out->context, out);
    return status;
}

static const coll__transport_row coll__host_row = {
    .name = "tcp", .traits = COLL__TCP_TRAITS, .settle = coll__tcp_defaults, .open = coll__host_open
};

#else

static coll_status coll__hybrid_open(const coll__settings *s, int count, coll__opened *out)
{
    (void)out;
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "this process makes %d of %d ranks, but this program was compiled with %s",
                              count, s->config.size, COLL__HYBRID_WITHOUT);
}

static const coll__transport_row coll__hybrid_row = { .traits = COLL__HYBRID_TRAITS, .open = coll__hybrid_open };

#define coll__host_row coll__tcp_row              /* one rank of a process has sockets only                   */

#endif

#endif /* COLL_HYBRID_H */
