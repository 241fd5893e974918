/* coll_joined.h - communicators in which some ranks share memory and others do not.
 *
 * Every rank has its own sockets (coll_tcp.h) to all the others, and up to two domains (coll_threads.h).  One has the ranks of
 * its process, if there are several, and carries their messages.  The other has all ranks of its host, if their processes share
 * memory (coll_joined_hub.h), and carries whole collectives.  If all ranks of a collective belong to one domain, it is carried
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
 * sockets watch, for ranks that have set is_asleep: coll__joined_sleep here and coll__hub_wake there.
 *
 * A failure is decided over TCP, as in a world without domains; the decision then ends the domains.  Ranks of this process stop
 * accessing this rank's memory, and all return the same cause.  Survivors create a world over TCP (coll_shrink), then domains. */
#ifndef COLL_JOINED_H
#define COLL_JOINED_H

enum { COLL__JOINED_TRAITS = COLL__OPENS_SOME };

#if COLL__HAS_JOINED

#include <signal.h>
#include "joined/coll_joined_lent.h"
#include "joined/coll_joined_hub.h"

enum { COLL__HUB_OF_PROCESS, COLL__HUB_OF_HOST, COLL__HUBS };

typedef struct coll__joined {
    coll__tcp    *tcp;
    coll__thread *hubs[COLL__HUBS];               /* this rank's side of each; NULL: none                     */
    void         *mapped;                         /* mapping of the host's                                    */
    coll__lent   *lent;                           /* exported memory of this rank; NULL: none                 */
    bool          has_met;                        /* the ranks of this host have a domain, or had one in an earlier world */
    bool          is_crowded;                     /* ranks share processors                                   */
    char          description[200];
} coll__joined;

/* The context is that of the sockets: functions that only use sockets need none here. */
static inline coll__joined *coll__joined_of(const void *context)
{
    return (coll__joined *)((const coll__tcp *)context)->joined;
}

static inline bool coll__is_neighbour(const coll__joined *me, int rank)
{
    const coll__hub *hub = me->hubs[COLL__HUB_OF_PROCESS] ? me->hubs[COLL__HUB_OF_PROCESS]->hub : NULL;
    return hub && rank >= hub->first && rank - hub->first < hub->size;
}

/* ---- >>messages ---- */

static coll_status coll__joined_send(void *context, coll_xfer *x)
{
    coll__joined *me = coll__joined_of(context);
    return coll__is_neighbour(me, x->peer) ? coll__threads_send(me->hubs[COLL__HUB_OF_PROCESS], x) : coll__tcp_send(me->tcp, x);
}

static coll_status coll__joined_recv(void *context, coll_xfer *x)
{
    coll__joined *me = coll__joined_of(context);
    return coll__is_neighbour(me, x->peer) ? coll__threads_recv(me->hubs[COLL__HUB_OF_PROCESS], x) : coll__tcp_recv(me->tcp, x);
}

static bool coll__joined_has_left(const void *context, int peer)
{
    const coll__joined *me = coll__joined_of(context);
    const coll__thread *thread = me->hubs[COLL__HUB_OF_PROCESS];

    if (peer < 0) return (thread && coll__threads_has_left(thread, peer)) || coll__tcp_has_left(me->tcp, peer);
    return coll__is_neighbour(me, peer) ? coll__threads_has_left(thread, peer) : coll__tcp_has_left(me->tcp, peer);
}

/* ---- >>failure ---- */

/* A failure that a domain has is the cause, because it was first among its ranks.  The others may have agreed on another. */
static const coll_failure *coll__joined_fail(void *context, const coll_failure *cause)
{
    coll__joined *me = coll__joined_of(context);

    for (int i = COLL__HUBS - 1; i >= 0; i--)
        if (me->hubs[i] && __atomic_load_n(&me->hubs[i]->hub->has_failed, __ATOMIC_ACQUIRE)) cause = &me->hubs[i]->hub->failure;
    const coll_failure *agreed = coll__tcp_fail(me->tcp, cause);
    if (agreed && me->hubs[COLL__HUB_OF_HOST]) coll__host_hub_fail(me->hubs[COLL__HUB_OF_HOST], agreed);
    return agreed && me->hubs[COLL__HUB_OF_PROCESS] ? coll__threads_fail(me->hubs[COLL__HUB_OF_PROCESS], agreed) : agreed;
}

/* ---- >>progress ---- */

/* Tells the domains whether this rank sleeps. */
static void coll__joined_doze(const coll__joined *me, uint32_t is_asleep)
{
    for (int i = 0; i < COLL__HUBS; i++)
        if (me->hubs[i]) __atomic_store_n(&me->hubs[i]->desk->is_asleep, is_asleep, __ATOMIC_SEQ_CST);
}

/* Sleeps in the sockets, unless the doorbell of a domain has rung since it was last checked. */
static coll_status coll__joined_sleep(coll__joined *me, int wait_ms)
{
    bool has_rung = false;

    if (me->hubs[COLL__HUB_OF_HOST]) coll__host_hub_probe(me->hubs[COLL__HUB_OF_HOST], me->tcp);
    coll__joined_doze(me, 1);
    for (int i = 0; i < COLL__HUBS; i++)
        if (me->hubs[i]) has_rung |= __atomic_load_n(&me->hubs[i]->hub->bell, __ATOMIC_SEQ_CST) != me->hubs[i]->bell_seen;
    const coll_status status = coll__tcp_progress(me->tcp, has_rung ? 0 : wait_ms);
    coll__joined_doze(me, 0);
    return status;
}

static coll_status coll__joined_progress(void *context, int wait_ms)
{
    coll__joined *me = coll__joined_of(context);
    bool sleeps = true;

    for (int i = 0; i < COLL__HUBS; i++) if (me->hubs[i]) sleeps = coll__may_sleep(me->hubs[i], wait_ms) && sleeps;
    coll_status status = sleeps ? coll__joined_sleep(me, wait_ms) : coll__tcp_progress(me->tcp, 0);
    for (int i = 0; i < COLL__HUBS; i++) {
        coll__thread *thread = me->hubs[i];
        if (!thread) continue;
        if (status == COLL_OK) status = coll__threads_look(thread);
        if (thread->suspicion.status != COLL_OK) (void)coll__joined_fail(context, &thread->suspicion);
    }
    return status;
}

/* ---- >>whole collectives: if all ranks belong to one domain ---- */

/* This rank's side of the domain that has the ranks of a task; NULL: none. */
static inline coll__thread *coll__joined_side(const coll__joined *me, const coll_task *task)
{
    return task->group ? ((const coll__member *)task->group)->thread : me->hubs[COLL__HUB_OF_HOST];
}

static coll_status coll__joined_offload(void *context, coll_task *task, coll_failure *failure)
{
    coll__thread *side = coll__joined_side(coll__joined_of(context), task);
    return side ? coll__threads_offload(side, task, failure) : COLL_ERR_UNSUPPORTED;
}

static coll_offload_fn *coll__joined_bind(void *context, const coll_task *task, void **bound)
{
    coll__thread *side = coll__joined_side(coll__joined_of(context), task);
    return side ? coll__threads_bind(side, task, bound) : NULL;
}

/* Of offered calls: those of groups, and of all ranks if these have a domain. */
static int coll__joined_can_offload(const void *context, const coll_call *call, int size, char *why, size_t room)
{
    const coll__joined *me = coll__joined_of(context);
    const coll__thread *side = me->hubs[me->hubs[COLL__HUB_OF_HOST] ? COLL__HUB_OF_HOST : COLL__HUB_OF_PROCESS];

    (void)size;
    if (!side) {
        coll__print(why, room, "these processes share no memory for whole collectives");
        return 0;
    }
    if (!coll__form_of(call->kind)) {
        coll__print(why, room, "the hub of the host does not have it");
        return 0;
    }
    if (side->all.is_eager_only && coll__call_is_long(&side->all, call)) {
        coll__print(why, room, "one process may not read the memory of another (ptrace), and this is longer than %zu bytes",
                    coll__eager_most(&side->all, coll__form_of(call->kind)));
        return 0;
    }
    return 1;
}

/* If one rank alone cannot create a group, the world fails. */
static void *coll__joined_group(void *context, uint64_t id, uint32_t number, const int *ranks, int count, int me)
{
    coll__joined *joined = coll__joined_of(context);
    bool is_of_process = true, is_of_host = joined->hubs[COLL__HUB_OF_HOST] != NULL;

    for (int i = 0; i < count; i++) {
        is_of_process = is_of_process && coll__is_neighbour(joined, ranks[i]);
        is_of_host = is_of_host && coll__is_of_this_host(joined->tcp, ranks[i]);
    }
    coll__thread *const side = is_of_process ? joined->hubs[COLL__HUB_OF_PROCESS] : is_of_host ? joined->hubs[COLL__HUB_OF_HOST]
                                                                                              : NULL;
    void *const group = side ? coll__threads_group(side, id, number, ranks, count, me) : NULL;
    if (side && !group) (void)coll__joined_fail(context, &side->suspicion);
    return group;
}

static coll_status coll__joined_part(void *context, void *group, const unsigned char *made, coll_failure *failure)
{
    const coll__joined *me = coll__joined_of(context);

    if (group) return coll__threads_part(((coll__member *)group)->thread, group, made, failure);
    for (int i = 0; i < COLL__HUBS; i++)
        if (me->hubs[i] && coll__threads_part(me->hubs[i], NULL, made, failure) < 0) return failure->status;
    return coll__tcp_part(me->tcp, NULL, made, failure);
}

static void coll__joined_mark_stragglers(const void *context, const coll_task *task, unsigned char *is_late)
{
    const coll__thread *side = coll__joined_side(coll__joined_of(context), task);
    if (side) coll__threads_mark_stragglers(side, task, is_late);
}

static const coll_allocator *coll__joined_memory(void *context)
{
    coll__joined *me = coll__joined_of(context);
    return me->lent ? &me->lent->allocator : NULL;
}

/* ---- >>description ---- */

/* "4 ranks in one memory; 2 threads x io_uring; network to 4 ranks". */
static const char *coll__joined_describe(const void *context)
{
    coll__joined *me = coll__joined_of(context);
    const coll__thread *process = me->hubs[COLL__HUB_OF_PROCESS], *host = me->hubs[COLL__HUB_OF_HOST];
    const int first = process ? process->hub->first : me->tcp->rank, count = process ? process->hub->size : 1;
    const char *elsewhere = coll__tcp_describe_but(me->tcp, first, count);

    *me->description = '\0';
    if (host) coll__append(me->description, sizeof me->description, "%d ranks in one memory; ", host->hub->size);
    if (process) coll__append(me->description, sizeof me->description, "%d threads x ", count);
    coll__append(me->description, sizeof me->description, "%s", elsewhere);
    return me->description;
}

/* ---- >>open, close ---- */

/* Enters the domain of the host.  `party`: the lowest rank of this process. */
static coll_status coll__joined_meet(coll__joined *me, int party, bool is_crowded)
{
    coll_status status;

    me->hubs[COLL__HUB_OF_HOST] = coll__host_hub_enter(me->tcp, party, is_crowded, &me->lent, &me->mapped, &status);
    me->has_met = me->hubs[COLL__HUB_OF_HOST] != NULL;
    me->is_crowded = is_crowded;
    return status;
}

static void coll__joined_close(void *context)
{
    coll__joined *me = coll__joined_of(context);

    if (me->hubs[COLL__HUB_OF_HOST]) coll__host_hub_leave(me->hubs[COLL__HUB_OF_HOST], me->mapped);
    if (me->hubs[COLL__HUB_OF_PROCESS]) coll__threads_close(me->hubs[COLL__HUB_OF_PROCESS]);
    coll__tcp_close(me->tcp);
    coll__lent_drop(me->lent);
    coll__give(me);
}

/* The sockets of a rank are open. */
static void coll__joined_with(coll__joined *me, coll__tcp *tcp)
{
    me->tcp = tcp;
    tcp->joined = me;
}

/* ---- >>shrink ---- */

/* Ranks of this process in the new world, *out, if they are consecutive there.  Otherwise this rank alone, because a domain has
 * no gaps.  Returns their number, and the first one. */
static int coll__joined_neighbours(const coll__joined *me, const coll_survivors *out, int *first)
{
    int count = 0, last = -1;

    for (int i = out->count - 1; i >= 0; i--) {
        if (!coll__is_neighbour(me, out->ranks[i])) continue;
        if (last < 0) last = i;
        *first = i;
        count++;
    }
    if (last - *first + 1 == count) return count;
    *first = out->rank;
    return 1;
}

/* If a rank of this process has not received the new world, because the sender died, it requests it here. */
static void coll__joined_serve(void *context) { coll__events((coll__tcp *)context); }

/* This rank's side of its process's domain in the new world.  NULL: *failure. */
static coll__thread *coll__joined_move(const coll__joined *me, coll__tcp *tcp, const coll_survivors *world, int timeout_ms,
                                       coll_failure *failure)
{
    int first = 0;
    const int count = coll__joined_neighbours(me, world, &first);
    coll_survivors here = { .ranks = (int *)coll__take(coll__like(me), (size_t)count * sizeof *here.ranks) };

    if (!here.ranks) {
        coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", count);
        return NULL;
    }
    const coll_status status = coll__exodus_run(me->hubs[COLL__HUB_OF_PROCESS], world->ranks + first, count, first, timeout_ms,
                                                coll__joined_serve, tcp, &here, failure);
    coll__thread *thread = status == COLL_OK ? (coll__thread *)here.context : NULL;
    if (thread) thread->desk->bell = coll__bell_share(&tcp->io.bell);
    const bool is_whole = here.count == count;    /* else the others may have dropped one while this was suspended */
    if (thread && (!is_whole || thread->desk->bell.fd < 0)) {
        coll__blame(failure, is_whole ? COLL_ERR_SYSTEM : COLL_ERR_PEER, -1,
                    is_whole ? "no file descriptor is left to wake it by (see ulimit -n)"
                             : "a rank of this process has been lost on the way");
        coll__threads_close(thread);
        thread = NULL;
    }
    coll__give(here.ranks);
    return thread;
}

/* The domains of the new world, for a rank whose sockets are open. */
static coll_status coll__joined_resettle(const coll__joined *me, coll__joined *fresh, const coll_survivors *world, int timeout_ms,
                                         coll_failure *failure)
{
    const bool has_process = me->hubs[COLL__HUB_OF_PROCESS] != NULL;
    coll_status status;

    if (has_process) {
        fresh->hubs[COLL__HUB_OF_PROCESS] = coll__joined_move(me, fresh->tcp, world, timeout_ms, failure);
        if (!fresh->hubs[COLL__HUB_OF_PROCESS]) return failure->status;
    }
    if (!me->has_met) return COLL_OK;
    const int party = has_process ? fresh->hubs[COLL__HUB_OF_PROCESS]->hub->first : world->rank;
    status = coll__joined_meet(fresh, party, me->is_crowded);
    fresh->has_met = true;                        /* also if a rank died meanwhile: the next world may have one */
    return status < 0 ? coll__blame(failure, status, -1, "no memory for the hub of this host") : COLL_OK;
}

/* The survivors agree over TCP, as processes do, and then in memory. */
static coll_status coll__joined_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                       coll_failure *failure)
{
    const coll__joined *me = coll__joined_of(context);
    coll_status status = coll__tcp_shrink(me->tcp, ranks, count, timeout_ms, out, failure);

    if (status < 0) return status;
    coll__joined *fresh = (coll__joined *)coll__allocate(coll__like(context), sizeof *fresh);
    if (!fresh) {
        coll__tcp_close(out->context);
        return coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for a rank");
    }
    coll__joined_with(fresh, (coll__tcp *)out->context);
    fresh->lent = coll__lent_share(me->lent);
    status = coll__joined_resettle(me, fresh, out, timeout_ms, failure);
    if (status < 0) coll__joined_close(out->context);
    return status;
}

static const coll_transport coll__joined_transport = {
    .name = "joined",
    .send = coll__joined_send,
    .recv = coll__joined_recv,
    .progress = coll__joined_progress,
    .close = coll__joined_close,
    .fail = coll__joined_fail,
    .offload = coll__joined_offload,
    .can_offload = coll__joined_can_offload,
    .bind = coll__joined_bind,
    .group = coll__joined_group,
    .ungroup = coll__threads_ungroup,
    .memory = coll__joined_memory,
    .host = coll__tcp_host,
    .site = coll__tcp_site,
    .report_stall = coll__tcp_report_stall,
    .mark_stragglers = coll__joined_mark_stragglers,
    .peer_status = COLL__IF_WATCH(coll__tcp_peer_status),
    .failed = coll__tcp_failed,
    .shrink = COLL__SHRINKS(coll__joined_shrink),
    .abort = coll__tcp_abort,
    .has_left = coll__joined_has_left,
    .wake = coll__tcp_wake,
    .in_background = true,
    .traffic = coll__tcp_traffic,
    .describe = coll__joined_describe,
};

static const coll__internals coll__joined_internals = {
    .part = coll__joined_part, .watch = coll__tcp_watch, .has_freed = COLL__IF_WATCH(coll__tcp_has_freed)
};

/* ---- >>open ---- */

/* One joining rank.  The world is complete only with all ranks, so the ranks of a process join at the same time.  Each joins in a
 * thread, which then ends. */
typedef struct coll__comer {
    pthread_t      thread;
    struct coll__arrival *arrival;
    coll__tcp_settings settings;                  /* of this rank                                             */
    coll__opened   opened;                        /* the outcome                                              */
    coll__joined  *joined;                        /* its sockets, and its side of the host's domain           */
    coll_status    status;
} coll__comer;

typedef struct coll__arrival {
    pthread_mutex_t lock;                         /* guards the rest, and blocks all threads until each is created */
    bool            is_off;                       /* there are not enough threads: no rank joins              */
    coll_status     status;                       /* the first error                                          */
    char            sentence[COLL__START_ROOM];
    coll__tcp_settings *settings;                 /* of the first rank; those of the others are copies that point into it */
    int             count;
    coll__comer    *comers;
} coll__arrival;

/* Joins the world, and then the domain of the host. */
static coll_status coll__comer_comes(coll__comer *comer)
{
    coll__joined *joined = comer->joined;
    coll__tcp *tcp;
    coll_status status = coll__tcp_join(&tcp, &comer->settings, &comer->opened);

    if (status < 0) return status;
    coll__joined_with(joined, tcp);
    status = coll__joined_meet(joined, comer->arrival->settings->config.rank, comer->opened.is_crowded);
    return status < 0 ? coll__start_failed(status, "no memory for the hub of the %d ranks of this host", comer->opened.local_size)
                      : COLL_OK;
}

static void *coll__comer_main(void *at)
{
    coll__comer *comer = (coll__comer *)at;
    coll__arrival *all = comer->arrival;

    pthread_mutex_lock(&all->lock);
    const bool is_off = all->is_off;
    pthread_mutex_unlock(&all->lock);
    if (is_off) return NULL;
    comer->status = coll__comer_comes(comer);
    pthread_mutex_lock(&all->lock);
    if (comer->status < 0 && all->status == COLL_OK) {        /* the caller returns the first error           */
        all->status = comer->status;
        coll__print(all->sentence, sizeof all->sentence, "%s", coll__start_error);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* All ranks of this process join: the first in this thread.  The other threads block the program's signals. */
static coll_status coll__arrival_run(coll__arrival *all)
{
    sigset_t every, before;
    int started = 1, error = 0;

    sigfillset(&every);
    pthread_mutex_lock(&all->lock);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    while (!error && started < all->count)
        if ((error = pthread_create(&all->comers[started].thread, NULL, coll__comer_main, &all->comers[started])) == 0) started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    all->is_off = error != 0;
    pthread_mutex_unlock(&all->lock);
    (void)coll__comer_main(&all->comers[0]);
    for (int i = 1; i < started; i++) pthread_join(all->comers[i].thread, NULL);
    if (error) return coll__start_failed(COLL_ERR_SYSTEM, "no thread for rank %d: %s", started, strerror(error));
    return all->status < 0 ? coll__start_failed(all->status, "%s", all->sentence) : COLL_OK;
}

static void coll__arrival_free(coll__arrival *all)
{
    if (!all) return;
    for (int i = 0; all->comers && i < all->count; i++) {
        if (all->comers[i].joined && all->comers[i].joined->tcp) coll__joined_close(all->comers[i].joined->tcp);
        else coll__give(all->comers[i].joined);
        coll__wipe(all->comers[i].settings.key, sizeof all->comers[i].settings.key);
    }
    coll__give(all->comers);
    coll__tcp_settings_free(all->settings);
    pthread_mutex_destroy(&all->lock);
    coll__give(all);
}

/* Joins ranks rank .. rank + count - 1 to a world, by the settings of the first.  Each then has its settings, its sockets and its
 * side of the host's domain.  NULL: an error, with its sentence. */
static coll__arrival *coll__joined_bootstrap(const coll__settings *s, int count, coll_status *status)
{
    const coll_allocator *const memory = s->config.allocator;
    coll__arrival *all = (coll__arrival *)coll__allocate(memory, sizeof *all);
    bool has_memory = all != NULL;

    *status = COLL_ERR_MEMORY;
    if (all) {
        pthread_mutex_init(&all->lock, NULL);
        all->count = count;
        all->comers = (coll__comer *)coll__allocate(memory, (size_t)count * sizeof *all->comers);
        has_memory = all->comers != NULL;
    }
    for (int i = 0; has_memory && i < count; i++)
        has_memory = (all->comers[i].joined = (coll__joined *)coll__allocate(memory, sizeof(coll__joined))) != NULL;
    if (has_memory) all->settings = coll__tcp_settings_new(s, status);
    for (int i = 0; has_memory && all->settings && i < count; i++) {
        all->comers[i].arrival = all;
        all->comers[i].settings = *all->settings;
        all->comers[i].settings.config.rank += i;
        all->comers[i].opened = coll__opened_as(&coll__joined_transport, NULL, s->config.rank + i, s->config.size, s);
    }
    if (has_memory && all->settings) *status = coll__arrival_run(all);
    else if (!has_memory) coll__start_failed(*status, "no memory for %d ranks", count);
    if (*status == COLL_OK) return all;
    coll__arrival_free(all);
    return NULL;
}

/* A domain for the ranks that have joined. */
static coll__hub *coll__joined_hub(const coll__arrival *all)
{
    const coll__opened *first = &all->comers[0].opened;
    coll__hub *hub = coll__hub_open(coll__like(all), first->rank, all->count, first->is_crowded);

    if (!hub) return NULL;
    for (int i = 0; i < all->count; i++) coll__hub_desks(hub)[i].bell = coll__no_bell;
    hub->has_bells = true;
    for (int i = 0; i < all->count; i++) {        /* duplicated: a peer may ring after this rank has left     */
        coll__hub_desks(hub)[i].bell = coll__bell_share(&all->comers[i].joined->tcp->io.bell);
        if (coll__hub_desks(hub)[i].bell.fd >= 0) continue;
        coll__hub_release(hub);
        return NULL;
    }
    return hub;
}

/* The context of a rank that has joined, with its side of its process's domain, if there is one.  NULL: no memory. */
static coll__joined *coll__joined_take(coll__arrival *all, int index, coll__hub *hub)
{
    coll__comer *comer = &all->comers[index];
    coll__joined *me = comer->joined;

    COLL__ASSERT(me->tcp && me->tcp->rank == comer->opened.rank && (!hub || comer->opened.rank == hub->first + index),
                 "number %d of a process is rank %d, and has sockets of rank %d", index, comer->opened.rank,
                 me->tcp ? me->tcp->rank : -1);
    if (hub) {
        if (!(me->hubs[COLL__HUB_OF_PROCESS] = coll__thread_open(hub, comer->opened.rank))) return NULL;
        hub->holders++;
    }
    comer->joined = NULL;
    return me;
}

/* If each process has one rank, all ranks may belong to one domain. */
static void coll__joined_opened(coll__opened *opened, coll__joined *me, const coll__comer *comer)
{
    *opened = comer->opened;
    opened->context = me->tcp;
    opened->internals = &coll__joined_internals;
    opened->offloads_all = me->hubs[COLL__HUB_OF_HOST] && me->hubs[COLL__HUB_OF_HOST]->hub->size == opened->size;
}

static coll_status coll__joined_open(const coll__settings *s, int count, coll__opened *out)
{
    coll_status status;
    coll__arrival *all = coll__joined_bootstrap(s, count, &status);
    int taken = 0;

    if (!all) return status;
    coll__hub *hub = count > 1 ? coll__joined_hub(all) : NULL;
    for (coll__joined *me; (hub || count == 1) && taken < count && (me = coll__joined_take(all, taken, hub)); taken++) {
        coll__joined_opened(&out[taken], me, &all->comers[taken]);
        coll__tcp_say_joined(&out[taken], &all->comers[taken].settings, s->source);
    }
    if (taken < count) status = coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);
    for (int i = 0; i < taken && status < 0; i++) coll__joined_close(out[i].context);
    if (hub) coll__hub_release(hub);
    coll__arrival_free(all);
    return status;
}

static const coll__transport_row coll__joined_row = { .traits = COLL__JOINED_TRAITS, .open = coll__joined_open };

/* One rank of a process: without a domain it uses TCP only. */
static coll_status coll__host_open(const coll__settings *s, int count, coll__opened *out)
{
    const coll_status status = coll__joined_open(s, count, out);
    coll__joined *me = status < 0 ? NULL : coll__joined_of(out->context);

    if (!me || me->hubs[COLL__HUB_OF_HOST]) return status;
    out->transport = &coll__tcp_transport;
    out->internals = &coll__tcp_internals;
    coll__give(me);
    return COLL_OK;
}

static const coll__transport_row coll__host_row = {
    .name = "tcp", .traits = COLL__TCP_TRAITS, .settle = coll__tcp_defaults, .open = coll__host_open
};

#else

static coll_status coll__joined_open(const coll__settings *s, int count, coll__opened *out)
{
    (void)out;
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "this process makes %d of %d ranks, but this program was compiled with %s",
                              count, s->config.size, COLL__JOINED_WITHOUT);
}

static const coll__transport_row coll__joined_row = { .traits = COLL__JOINED_TRAITS, .open = coll__joined_open };

#define coll__host_row coll__tcp_row              /* one rank of a process has sockets only                   */

#endif

#endif /* COLL_JOINED_H */
