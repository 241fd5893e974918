/* coll_joined.h - ranks that are threads of several processes, in one communicator.
 *
 * Every rank has both: a place in the hub that the ranks of its process share (coll_threads.h), and sockets of its own
 * (coll_tcp.h), so that each thread moves its own bytes between processes.  A message goes through the hub when its receiver is
 * in this process, and through a socket when it is not.  A collective whose ranks are all of this process is carried out by
 * loads and stores, as if there were no other; the engine has the others.
 *
 *            process 0                     process 1                 ranks first .. first + count - 1 of each process
 *     rank 0   rank 1   rank 2         rank 3   rank 4
 *       |        |        |              |        |
 *     --+--------+--------+--          --+--------+--               the hub: memory
 *       |        |        |              |        |
 *     ==+========+========+==============+========+==               sockets, from every rank to every rank elsewhere
 *
 * A rank sleeps in its sockets, for nothing can wait for those and for a word at once.  So the hub rings a bell that the
 * sockets watch, for those who have said that they sleep: coll__joined_sleep here and coll__hub_wake there.
 *
 * A failure is judged over TCP, as in a world of processes; the verdict then ends the hub, so that the neighbours, who may
 * be at work in our memory, let go of it and return the same cause.  So do survivors: they make a world over TCP (coll_shrink),
 * and those of a process then a hub. */
#ifndef COLL_JOINED_H
#define COLL_JOINED_H

enum { COLL__JOINED_TRAITS = COLL__OPENS_SOME };

#if !defined(COLL_NO_JOINED)

#include <signal.h>

typedef struct coll__joined {
    coll__tcp    *tcp;
    coll__thread *thread;
    char          description[160];
} coll__joined;

static inline bool coll__is_neighbour(const coll__joined *me, int rank)
{
    const coll__hub *hub = me->thread->hub;
    return rank >= hub->first && rank - hub->first < hub->size;
}

/* ---- >>messages ---- */

static coll_status coll__joined_send(void *context, coll_xfer *x)
{
    coll__joined *me = (coll__joined *)context;
    return coll__is_neighbour(me, x->peer) ? coll__threads_send(me->thread, x) : coll__tcp_send(me->tcp, x);
}

static coll_status coll__joined_recv(void *context, coll_xfer *x)
{
    coll__joined *me = (coll__joined *)context;
    return coll__is_neighbour(me, x->peer) ? coll__threads_recv(me->thread, x) : coll__tcp_recv(me->tcp, x);
}

static bool coll__joined_has_left(const void *context, int peer)
{
    const coll__joined *me = (const coll__joined *)context;

    if (peer < 0) return coll__threads_has_left(me->thread, peer) || coll__tcp_has_left(me->tcp, peer);
    return coll__is_neighbour(me, peer) ? coll__threads_has_left(me->thread, peer) : coll__tcp_has_left(me->tcp, peer);
}

/* ---- >>failure ---- */

/* What the hub knows already is the cause, for it was first among the neighbours.  The other ranks may have agreed on another. */
static const coll_failure *coll__joined_fail(void *context, const coll_failure *cause)
{
    coll__joined *me = (coll__joined *)context;
    const coll__hub *hub = me->thread->hub;
    const bool has_failed = __atomic_load_n(&hub->has_failed, __ATOMIC_ACQUIRE);
    const coll_failure *agreed = coll__tcp_fail(me->tcp, has_failed ? &hub->failure : cause);

    return agreed ? coll__threads_fail(me->thread, agreed) : NULL;
}

/* ---- >>progress ---- */

/* Sleep in the sockets, unless the hub's bell has rung since it was last looked at. */
static coll_status coll__joined_sleep(coll__joined *me, int wait_ms)
{
    const coll__hub *hub = me->thread->hub;
    uint32_t *is_asleep = &coll__desk_of(hub, me->thread->rank)->is_asleep;

    COLL__ASSERT(!__atomic_load_n(is_asleep, __ATOMIC_RELAXED), "rank %d sleeps twice", me->thread->rank);
    __atomic_store_n(is_asleep, 1, __ATOMIC_SEQ_CST);
    const bool has_rung = __atomic_load_n(&hub->bell, __ATOMIC_SEQ_CST) != me->thread->bell_seen;
    const coll_status status = coll__tcp_progress(me->tcp, has_rung ? 0 : wait_ms);
    __atomic_store_n(is_asleep, 0, __ATOMIC_SEQ_CST);
    return status;
}

static coll_status coll__joined_progress(void *context, int wait_ms)
{
    coll__joined *me = (coll__joined *)context;
    const bool sleeps = coll__may_sleep(me->thread, wait_ms);
    coll_status status = sleeps ? coll__joined_sleep(me, wait_ms) : coll__tcp_progress(me->tcp, 0);

    if (status == COLL_OK) status = coll__threads_look(me->thread);
    if (me->thread->suspicion.status != COLL_OK) (void)coll__joined_fail(me, &me->thread->suspicion);
    return status;
}

/* From any thread. */
static void coll__joined_wake(void *context) { coll__tcp_wake(((coll__joined *)context)->tcp); }

static void coll__joined_report_stall(void *context, const unsigned char *head)
{
    coll__tcp_report_stall(((coll__joined *)context)->tcp, head);
}

/* ---- >>failure: the sockets' side knows all ranks ---- */

static void coll__joined_watch(void *context, const coll_doing *doing) { coll__tcp_watch(((coll__joined *)context)->tcp, doing); }

static void coll__joined_peer_status(void *context, const unsigned char *is_late, char *text, size_t room)
{
    coll__tcp_peer_status(((coll__joined *)context)->tcp, is_late, text, room);
}

static bool coll__joined_has_freed(void *context, int peer, uint64_t number)
{
    return coll__tcp_has_freed(((coll__joined *)context)->tcp, peer, number);
}

static void coll__joined_failed(void *context, unsigned char *is_failed)
{
    coll__tcp_failed(((coll__joined *)context)->tcp, is_failed);
}

static bool coll__joined_abort(void *context, const char *text) { return coll__tcp_abort(((coll__joined *)context)->tcp, text); }

/* ---- >>whole collectives: where all ranks are of this process ---- */

/* Only groups are offered: all ranks are never of one process. */
static coll_status coll__joined_offload(void *context, coll_task *task, coll_failure *failure)
{
    return coll__threads_offload(((coll__joined *)context)->thread, task, failure);
}

static void *coll__joined_group(void *context, uint64_t id, const int *ranks, int count, int me)
{
    coll__joined *joined = (coll__joined *)context;

    for (int i = 0; i < count; i++) if (!coll__is_neighbour(joined, ranks[i])) return NULL;
    return coll__threads_group(joined->thread, id, ranks, count, me);
}

static void coll__joined_ungroup(void *context, void *group) { coll__threads_ungroup(((coll__joined *)context)->thread, group); }

static void coll__joined_mark_stragglers(const void *context, const coll_task *task, unsigned char *is_late)
{
    coll__threads_mark_stragglers(((const coll__joined *)context)->thread, task, is_late);
}

static int coll__joined_host(void *context, int rank) { return coll__tcp_host(((coll__joined *)context)->tcp, rank); }

/* ---- >>seeing ---- */

static void coll__joined_traffic(const void *context, uint64_t *sent, uint64_t *received)
{
    coll__tcp_traffic(((const coll__joined *)context)->tcp, sent, received);
}

static const char *coll__joined_describe(const void *context)
{
    coll__joined *me = (coll__joined *)(uintptr_t)context;    /* its text is ours to write                    */
    const coll__hub *hub = me->thread->hub;
    const char *elsewhere = coll__tcp_describe_but(me->tcp, hub->first, hub->size);

    coll__print(me->description, sizeof me->description, "%d threads x %s", hub->size, elsewhere);
    return me->description;
}

/* ---- >>close ---- */

static void coll__joined_close(void *context)
{
    coll__joined *me = (coll__joined *)context;

    if (me->thread) coll__threads_close(me->thread);
    coll__tcp_close(me->tcp);
    coll__give(me);
}

/* ---- >>shrink ---- */

#if !defined(COLL_NO_SHRINK)

/* Of the new world, described in *out: the ranks of this process, if they follow one another there; otherwise this one alone,
 * for a hub has no gaps.  Gives how many, and which is the first. */
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

/* A neighbour that the host has not told of the new world, since it has died, asks us. */
static void coll__joined_serve(void *context) { coll__events((coll__tcp *)context); }

/* This rank's place in the hub that the neighbours have in the new world.  NULL: *failure. */
static coll__thread *coll__joined_move(const coll__joined *me, const coll_survivors *world, int timeout_ms, coll_failure *failure)
{
    int first = 0;
    coll__tcp *tcp = (coll__tcp *)world->context;
    const int count = coll__joined_neighbours(me, world, &first);
    coll_survivors here = { .ranks = (int *)coll__take(coll__like(me), (size_t)count * sizeof *here.ranks) };

    if (!here.ranks) {
        coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", count);
        return NULL;
    }
    const coll_status status = coll__exodus_run(me->thread, world->ranks + first, count, first, timeout_ms, coll__joined_serve,
                                                tcp, &here, failure);
    coll__thread *thread = status == COLL_OK ? (coll__thread *)here.context : NULL;
    if (thread) coll__desk_of(thread->hub, world->rank)->bell = coll__bell_share(&tcp->io.bell);
    if (thread && (here.count < count || coll__desk_of(thread->hub, world->rank)->bell.fd < 0)) {
        coll__blame(failure, COLL_ERR_SYSTEM, -1, here.count < count ? "a rank of this process has been lost on the way"
                    : "no file descriptor is left to wake it by (see ulimit -n)");
        coll__threads_close(thread);
        thread = NULL;
    }
    coll__give(here.ranks);
    return thread;
}

/* The survivors meet over TCP, as processes do, and those of a process then in its memory. */
static coll_status coll__joined_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                       coll_failure *failure)
{
    coll__joined *me = (coll__joined *)context, *fresh;
    const coll_status status = coll__tcp_shrink(me->tcp, ranks, count, timeout_ms, out, failure);

    if (status < 0) return status;
    coll__tcp *tcp = (coll__tcp *)out->context;
    coll__thread *thread = coll__joined_move(me, out, timeout_ms, failure);
    fresh = thread ? (coll__joined *)coll__allocate(coll__like(context), sizeof *fresh) : NULL;
    out->context = fresh;
    if (fresh) {
        fresh->tcp = tcp;
        fresh->thread = thread;
        return COLL_OK;
    }
    if (thread) coll__threads_close(thread);
    coll__tcp_close(tcp);
    return failure->status < 0 ? failure->status : coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for a rank");
}

#endif

static const coll_transport coll__joined_transport = {
    .name = "joined",
    .send = coll__joined_send,
    .recv = coll__joined_recv,
    .progress = coll__joined_progress,
    .close = coll__joined_close,
    .fail = coll__joined_fail,
    .offload = coll__joined_offload,
    .group = coll__joined_group,
    .ungroup = coll__joined_ungroup,
    .host = coll__joined_host,
    .report_stall = coll__joined_report_stall,
    .mark_stragglers = coll__joined_mark_stragglers,
    .watch = coll__joined_watch,
    .peer_status = coll__joined_peer_status,
    .has_freed = coll__joined_has_freed,
    .failed = coll__joined_failed,
    .shrink = COLL__SHRINKS(coll__joined_shrink),
    .abort = coll__joined_abort,
    .has_left = coll__joined_has_left,
    .wake = coll__joined_wake,
    .in_background = true,
    .traffic = coll__joined_traffic,
    .describe = coll__joined_describe,
};

/* ---- >>open ---- */

/* One rank on its way in.  The world is complete when all ranks are, so those of a process come at the same time, each in a
 * thread that ends when it is in. */
typedef struct coll__comer {
    pthread_t      thread;
    struct coll__arrival *arrival;
    coll__tcp_settings settings;                  /* of this rank                                             */
    coll__opened   opened;                        /* what it has learnt                                       */
    coll__tcp     *tcp;
    coll_status    status;
} coll__comer;

typedef struct coll__arrival {
    pthread_mutex_t lock;                         /* guards the rest, and holds all back until every thread is there */
    bool            is_off;                       /* there are not enough threads: nobody is to come          */
    coll_status     status;                       /* the first error                                          */
    char            sentence[COLL__START_ROOM];
    coll__tcp_settings *settings;                 /* of the first rank, of which the others' are copies that point into it */
    int             count;
    coll__comer    *comers;
} coll__arrival;

static void *coll__comer_main(void *at)
{
    coll__comer *comer = (coll__comer *)at;
    coll__arrival *all = comer->arrival;

    pthread_mutex_lock(&all->lock);
    const bool is_off = all->is_off;
    pthread_mutex_unlock(&all->lock);
    if (is_off) return NULL;
    comer->status = coll__tcp_join(&comer->tcp, &comer->settings, &comer->opened);
    pthread_mutex_lock(&all->lock);
    if (comer->status < 0 && all->status == COLL_OK) {        /* what went wrong first is what the caller has to know */
        all->status = comer->status;
        coll__print(all->sentence, sizeof all->sentence, "%s", coll__start_error);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* All ranks of this process meet the others: the first in this thread.  The signals of the program are not for the threads. */
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
        if (all->comers[i].tcp) coll__tcp_close(all->comers[i].tcp);
        coll__wipe(all->comers[i].settings.key, sizeof all->comers[i].settings.key);
    }
    coll__give(all->comers);
    coll__tcp_settings_free(all->settings);
    pthread_mutex_destroy(&all->lock);
    coll__give(all);
}

/* Bring ranks rank .. rank + count - 1 of a world, by the settings of the first.  Each comer then has its settings and its
 * sockets, until coll__joined_take.  NULL: an error, with its sentence. */
static coll__arrival *coll__joined_bootstrap(const coll__settings *s, int count, coll_status *status)
{
    coll__arrival *all = (coll__arrival *)coll__allocate(s->config.allocator, sizeof *all);

    *status = COLL_ERR_MEMORY;
    if (all) {
        pthread_mutex_init(&all->lock, NULL);
        all->count = count;
        all->comers = (coll__comer *)coll__allocate(s->config.allocator, (size_t)count * sizeof *all->comers);
    }
    const bool has_memory = all && all->comers;
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

/* A hub for the ranks that have arrived. */
static coll__hub *coll__joined_hub(const coll__arrival *all)
{
    const coll__opened *first = &all->comers[0].opened;
    coll__hub *hub = coll__hub_open(coll__like(all), first->rank, all->count, first->is_crowded);

    if (!hub) return NULL;
    for (int i = 0; i < all->count; i++) coll__hub_desks(hub)[i].bell = coll__no_bell;
    hub->has_bells = true;
    for (int i = 0; i < all->count; i++) {        /* of its own: a neighbour may ring when we have left       */
        coll__hub_desks(hub)[i].bell = coll__bell_share(&all->comers[i].tcp->io.bell);
        if (coll__hub_desks(hub)[i].bell.fd >= 0) continue;
        coll__hub_release(hub);
        return NULL;
    }
    return hub;
}

/* The context of a rank that has arrived, which takes over its sockets. */
static coll__joined *coll__joined_take(coll__arrival *all, int index, coll__hub *hub)
{
    coll__comer *comer = &all->comers[index];
    coll__joined *me = (coll__joined *)coll__allocate(coll__like(all), sizeof *me);
    coll__thread *thread = me ? coll__thread_open(hub, comer->opened.rank) : NULL;

    if (!thread) {
        coll__give(me);
        return NULL;
    }
    COLL__ASSERT(comer->tcp && comer->tcp->rank == comer->opened.rank && comer->opened.rank == hub->first + index,
                 "rank %d, number %d of a process from rank %d, has sockets of rank %d", comer->opened.rank, index, hub->first,
                 comer->tcp ? comer->tcp->rank : -1);
    hub->holders++;
    me->thread = thread;
    me->tcp = comer->tcp;
    comer->tcp = NULL;
    return me;
}

static coll_status coll__joined_open(const coll__settings *s, int count, coll__opened *out)
{
    coll_status status;
    coll__arrival *all = coll__joined_bootstrap(s, count, &status);
    int taken = 0;

    if (!all) return status;
    coll__hub *hub = coll__joined_hub(all);
    for (coll__joined *me; hub && taken < count && (me = coll__joined_take(all, taken, hub)); taken++) {
        out[taken] = all->comers[taken].opened;
        out[taken].context = me;
        out[taken].offloads_all = false;
        coll__tcp_say_joined(&out[taken], &all->comers[taken].settings, s->source);
    }
    if (taken < count) status = coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);
    for (int i = 0; i < taken && status < 0; i++) coll__joined_close(out[i].context);
    if (hub) coll__hub_release(hub);
    coll__arrival_free(all);
    return status;
}

static const coll__transport_row coll__joined_row = { .traits = COLL__JOINED_TRAITS, .open = coll__joined_open };

#else

#if defined(COLL_NO_TCP)
#define COLL__JOINED_WITHOUT "COLL_NO_TCP"
#elif defined(COLL_NO_THREADS)
#define COLL__JOINED_WITHOUT "COLL_NO_THREADS"
#else
#define COLL__JOINED_WITHOUT "COLL_NO_JOINED"
#endif

static coll_status coll__joined_open(const coll__settings *s, int count, coll__opened *out)
{
    (void)out;
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "this process makes %d of %d ranks, but this program was compiled with "
                              COLL__JOINED_WITHOUT, count, s->config.size);
}

static const coll__transport_row coll__joined_row = { .traits = COLL__JOINED_TRAITS, .open = coll__joined_open };

#endif

#endif /* COLL_JOINED_H */
