/* coll_sim.h - the real engine and the real algorithms for many ranks in one thread, under a virtual clock.
 *
 * One world, shared by the ranks' contexts, holds everything: lanes between ranks, NICs of hosts, pending events.  There are two
 * ways to run it:
 *
 *   fibers     coll_spawn gives each rank its own stack; a rank that waits switches to the scheduler, which advances time.
 *              Programs with blocking calls run unchanged.  A rank that blocks outside the library blocks all.
 *   polling    coll_init_threads gives all communicators to one thread, which starts operations on all of them and polls:
 *              every poll of a rank without news processes the next event.
 *
 * Nothing waits in real time.  If a rank waits and no event is left, that is a deadlock, which every rank reports.  Costs and
 * order of events are in sim/coll_sim_wire.h.  After a failure the survivors continue in the next world
 * (sim/coll_sim_shrink.h). */
#ifndef COLL_SIM_H
#define COLL_SIM_H

enum { COLL__SIM_TRAITS = COLL__OPENS_ALL | COLL__WHEN_NAMED | COLL__LEAVES_JOB };

#if COLL__HAS_SIM

#include "sim/coll_sim_world.h"
#include "sim/coll_sim_wire.h"
#include "sim/coll_sim_fiber.h"
#include "sim/coll_sim_shrink.h"
#include "sim/coll_sim_text.h"

/* ---- >>deadlock ---- */

/* Has a rank made another call of the number of one in which a rank has waited?  Large worlds have no records. */
static bool coll__sim_disagrees(const coll__sim *w, coll_failure *failure)
{
    for (int i = 0; i < w->size; i++) {
        const unsigned char *const head = w->ranks[i].head;
        if (coll__get32(head + 8) == 0 || (i > 0 && !memcmp(w->ranks[i - 1].head, head, COLL_HEAD_LENGTH))) continue;
        for (int k = 0; k < w->size; k++) {
            const coll__sim_rank *r = &w->ranks[k];
            if (!r->has_closed && coll__recorded_disagrees(failure, r->session, head, i)) return true;
            if (coll__heads_disagree(head, r->head)) return coll__failed_mismatch(failure, head, i, r->head, k) < 0;
        }
    }
    return false;
}

/* " in allreduce #3 of 8 x f32 (sum) for ranks 1, 2": where a rank waits. */
static void coll__sim_describe_wait(const coll__sim_rank *r, unsigned char *is_awaited, char *text, size_t room)
{
    char who[40] = "", call[COLL__CALL_ROOM] = "";
    int count = 0;

    if (coll__get16(r->head)) coll__head_describe(r->head, call, sizeof call);
    coll__print(text, room, "%s%s", *call ? " in " : "", call);
    memset(is_awaited, 0, (size_t)r->world->size);
    for (const coll__lane *lane = r->recvs; lane; lane = lane->to_next) {
        if (!lane->recvs || lane->last_recv->any_head || is_awaited[lane->from]) continue;
        is_awaited[lane->from] = 1;
        count++;
    }
    coll__append_ranks(who, sizeof who, is_awaited, r->world->size);
    if (strlen(who) + 1 == sizeof who) coll__append(text, room, " for %d others", count);
    else if (count > 0) coll__append(text, room, count == 1 ? " for rank %s" : " for ranks %s", who);
}

/* Ends the world.  At a time limit of rank `by` calls that differ are the cause, and a rank that waits in the same one is not. */
static void coll__sim_end_by(coll__sim *w, int by, const coll_failure *cause)
{
    coll_failure own = *cause, differs = { COLL_OK, -1, "" };
    const bool differ = cause->status == COLL_ERR_TIMEOUT && coll__sim_disagrees(w, &differs);

    if (cause->rank >= 0 && w->ranks[cause->rank].state < COLL__SIM_FINISHED)
        coll__excuse(&own, w->ranks[cause->rank].head, w->ranks[by].head);
    coll__sim_end(w, differ ? &differs : &own);
}

/* A rank waits, and no event is left.  First all waiting ranks are woken, once: a peer may have freed the communicator. */
static void coll__sim_stuck(coll__sim *w)
{
    if (!w->is_asking) {
        w->is_asking = true;
        w->idle = 0;
        for (int i = 0; i < w->size; i++) if (!w->ranks[i].has_closed) coll__sim_tell(&w->ranks[i], w->now);
        return;
    }
    unsigned char *is_waiting = (unsigned char *)coll__take_zeros(coll__like(w), (size_t)w->size, 1);
    coll_failure failure = { COLL_OK, -1, "" };
    char who[48] = "the ranks", when[32] = "", what[128] = "";
    int first = 0, count = 0;

    coll__append_time(when, sizeof when, w->now);
    for (int i = 0; is_waiting && i < w->size; i++) {
        const coll__sim_rank *r = &w->ranks[i];
        is_waiting[i] = !r->has_closed && (w->fibers ? r->state == COLL__SIM_SUSPENDED : r->recvs || r->sends);
        count += is_waiting[i];
    }
    if (count > 0) {
        coll__print(who, sizeof who, count == 1 ? "rank " : "ranks ");
        coll__append_ranks(who, sizeof who, is_waiting, w->size);
        if (strlen(who) + 1 == sizeof who) coll__print(who, sizeof who, "%d of %d ranks", count, w->size);
        while (!is_waiting[first]) first++;
        coll__sim_describe_wait(&w->ranks[first], is_waiting, what, sizeof what);
    }
    coll__give(is_waiting);
    coll__set_failure(&failure, COLL_ERR_TIMEOUT, -1, "nothing can move any more at %s: %s wait%s", when, who,
                      count == 1 ? "s" : "");
    if (*what && count > 1) coll__append(failure.text, sizeof failure.text, " (rank %d%s)", first, what);
    else coll__append(failure.text, sizeof failure.text, "%s", what);
    if (*w->hint) coll__append(failure.text, sizeof failure.text, "; %s", w->hint);
    coll__sim_end_by(w, 0, &failure);
}

/* ---- >>calls of a rank ---- */

/* Returns whether this call may continue: not after the end of the world, or of the rank. */
static bool coll__sim_begin_call(coll__sim_rank *r)
{
    coll__sim *w = r->world;

    if (coll__sim_end_of(r)->status != COLL_OK || r->state >= COLL__SIM_FINISHED) return false;
    if (w->running != r) r->clock = coll__later(r->clock, w->now);
    if (w->config.fault_count > 0) coll__sim_count_call(r);
    if (r->state < COLL__SIM_FINISHED) return w->failure.status == COLL_OK;
    if (w->running == r) coll__fiber_leave(r, false);     /* never returns                                    */
    return false;
}

/* The first poll after a start is free.  Then other ranks run at the same time; then time advances, by growing steps, because a
 * program may poll for long. */
static double coll__sim_next_look(const coll__sim_rank *r)
{
    const int doublings = r->polls - 3 < 20 ? r->polls - 3 : 20;

    if (r->polls <= 2) return r->clock;
    const double step = (r->world->config.latency / 16 + 1e-9) * (double)(1 << doublings);
    return r->clock + (step < 1e-3 ? step : 1e-3);
}

static coll_status coll__sim_progress_fiber(coll__sim_rank *r, int wait_ms)
{
    coll__sim *w = r->world;

    const int polls = r->polls;
    if (wait_ms <= 0 && polls < INT_MAX) r->polls++;
    if (r->has_news || (wait_ms <= 0 && polls == 0)) {
        coll__sim_seen(r);
        return COLL_OK;
    }
    if (wait_ms <= 0) coll__fiber_wait(r, coll__sim_never, coll__sim_next_look(r));
    else coll__fiber_wait(r, wait_ms == INT_MAX ? coll__sim_never : r->clock + wait_ms * 1e-3, -1);
    coll__sim_seen(r);
    return w->failure.status;
}

enum { COLL__SIM_FREE_POLLS = 3 };

/* Polls without fibers.  Time stops while ranks have news that the program has not seen, because their next calls belong to this
 * moment.  That is limited, because it may never look.  Time also stops for the first polls of a call: the program may be about
 * to begin the same call on other ranks. */
static coll_status coll__sim_progress_poll(coll__sim_rank *r, int wait_ms)
{
    coll__sim *w = r->world;
    const double deadline = wait_ms == INT_MAX ? coll__sim_never : coll__later(r->clock, w->now) + wait_ms * 1e-3;
    const uint64_t limit = UINT64_C(1000000) + 1000 * (uint64_t)w->size;
    const bool begins = wait_ms <= 0 && r->polls < COLL__SIM_FREE_POLLS;
    if (begins) r->polls++;
    const bool held = begins || (wait_ms <= 0 && w->unseen > 0 && ++w->turns < 64 + 4 * (uint64_t)w->size);

    if (!r->has_news && wait_ms <= 0 && w->event_count > 0 && (!held || !(w->events[0].time > w->now))) {
        if (w->events[0].time > w->now) w->turns = 0;
        (void)coll__sim_step(w);
    } else if (!r->has_news && wait_ms <= 0 && (r->recvs || r->sends) && ++w->idle > limit) {
        coll__sim_stuck(w);
    }
    if (wait_ms > 0) {
        while (!r->has_news && w->event_count > 0 && !(w->events[0].time > deadline)) (void)coll__sim_step(w);
        if (!r->has_news && w->failure.status == COLL_OK) {
            if (wait_ms == INT_MAX || ++w->idle > limit) coll__sim_stuck(w);
            else r->clock = deadline;
        }
    }
    coll__sim_seen(r);
    return w->failure.status;
}

static coll_status coll__sim_progress(void *context, int wait_ms)
{
    coll__sim_rank *r = (coll__sim_rank *)context;
    coll__sim *w = r->world;

    if (!coll__sim_begin_call(r)) return coll__sim_end_of(r)->status != COLL_OK ? coll__sim_end_of(r)->status : COLL_ERR_ABORTED;
    if (w->running == r) return coll__sim_progress_fiber(r, wait_ms);
    if (w->running) return COLL_OK;               /* called for a rank that does not run now                  */
    return coll__sim_progress_poll(r, wait_ms);
}

static const coll_failure *coll__sim_fail(void *context, const coll_failure *cause)
{
    coll__sim_rank *r = (coll__sim_rank *)context;
    coll__sim *w = r->world;

    if (coll__sim_end_of(r)->status == COLL_OK && r->state >= COLL__SIM_KILLED) {
        w->death = (coll_failure){ COLL_ERR_ABORTED, r->rank, "" };
        coll__print(w->death.text, sizeof w->death.text, "rank %d was %s, as the simulation prescribes", r->rank,
                    r->state == COLL__SIM_KILLED ? "killed" : "stopped");
        return &w->death;
    }
    if (cause && !r->over) coll__sim_end_by(w, r->rank, cause);
    return coll__sim_end_of(r)->status != COLL_OK ? coll__sim_end_of(r) : NULL;
}

/* A peer has left when it has closed and all that it sent is received. */
static bool coll__sim_has_left(const void *context, int peer)
{
    const coll__sim_rank *r = (const coll__sim_rank *)context;
    const coll__sim *w = r->world;

    if (r->over) return false;
    if (peer < 0) return w->left_count > 0;
    if (!w->ranks[peer].has_left) return false;
    for (int channel = 0; channel < COLL_CHANNEL_COUNT; channel++) {
        const coll__lane *lane = coll__lane_find(w, peer, r->rank, channel);
        if (lane && lane->parcels) return false;
    }
    return true;
}

static void coll__sim_report_stall(void *context, const unsigned char *head)
{
    memcpy(((coll__sim_rank *)context)->head, head, COLL_HEAD_LENGTH);
}

static void coll__sim_watch(void *context, coll__session *session) { ((coll__sim_rank *)context)->session = session; }

/* Nothing is in flight when this is called. */
static bool coll__sim_has_freed(void *context, int peer, uint64_t id)
{
    const coll__sim *w = ((const coll__sim_rank *)context)->world;

    if (peer < 0 || !w->is_asking) return w->is_asking;
    const coll__sim_rank *other = &w->ranks[peer];
    return !other->has_closed && other->session && coll__comm_is_freed(other->session, id);
}

/* The other ranks are compared with the first rank that leaves a world. */
static coll_status coll__sim_part(void *context, void *group, const unsigned char *made, coll_failure *failure)
{
    coll__sim_rank *r = (coll__sim_rank *)context;
    coll__sim *w = r->world;

    (void)group;
    if (r->over) return COLL_OK;                  /* its world has ended and was replaced                     */
    if (!w->has_parted) memcpy(w->made, made, COLL_HEAD_LENGTH), w->parted = r->rank;
    w->has_parted = true;
    if (!coll__heads_disagree(w->made, made)) return COLL_OK;
    coll__failed_mismatch(failure, made, r->rank, w->made, w->parted);
    coll__sim_end(w, failure);
    return failure->status;
}

static int64_t coll__sim_now(void *context) { return (int64_t)(((const coll__sim_rank *)context)->clock * 1e9); }

static void coll__sim_charge_reduce(void *context, size_t length)
{
    coll__sim_rank *r = (coll__sim_rank *)context;
    r->clock += (double)length * r->world->config.seconds_per_byte_reduced;
}

static void coll__sim_traffic(const void *context, uint64_t *sent, uint64_t *received)
{
    const coll__sim_rank *r = (const coll__sim_rank *)context;
    *sent = r->sent;
    *received = r->received;
}

static const char *coll__sim_describe(const void *context) { return ((const coll__sim_rank *)context)->world->text; }

/* ---- >>open, close ---- */

static void coll__sim_release(coll__sim *w)
{
    if (--w->holders > 0) return;
    w->failure.status = COLL_OK;                  /* once more, for the memory of unreceived messages         */
    const coll_failure over = { COLL_ERR_ABORTED, -1, "" };
    if (w->ranks) coll__sim_end(w, &over);
    for (void *chunk = w->chunks, *next; chunk; chunk = next) {
        next = *(void **)chunk;
        coll__give(chunk);
    }
    coll__give(w->events);
    coll__give(w);
}

static void coll__sim_close(void *context)
{
    coll__sim_rank *r = (coll__sim_rank *)context;
    coll__sim *w = r->world;

    coll__sim_withdraw(r);
    coll__sim_seen(r);
    coll__give(r->newcomers);
    r->newcomers = NULL;
    r->has_closed = true;
    if (coll__sim_end_of(r)->status == COLL_OK && r->state < COLL__SIM_KILLED)
        coll__sim_push(w, COLL__SIM_LEFT, coll__later(r->clock, w->now) + w->config.latency, r, 0);
    coll__sim_release(w);
}

/* The numbers of the machine at the start. */
static void coll__sim_numbers(const coll__sim *w, coll__numbers *n)
{
    const coll_sim *c = &w->config;
    const int hosts = (w->size + c->ranks_per_host - 1) / c->ranks_per_host;
    double most = c->seconds_per_byte;

    for (int i = 0; c->fault_count > 0 && i < hosts; i++) most = coll__later(most, coll__sim_per_byte(w, i, 0));
    n->link = (coll__link){ c->latency, c->overhead, most, c->seconds_per_byte_reduced, 0 };
    if (c->hosts_per_site > 0) n->far = (coll__far){ c->far_latency, c->far_seconds_per_byte };
    n->origin = COLL__BY_SIMULATION;
    n->shares.count = 0;
    for (int i = 0; COLL__HAS_CHOICE && c->fault_count > 0 && i < hosts; i++)
        coll__rates_add(&n->shares, i * c->ranks_per_host, coll__rate_in(most / coll__sim_per_byte(w, i, 0)));
}

/* A world of `size` ranks, and `spares` that may join; the caller holds it until coll__sim_release.  All defaults of `config` are
 * filled in. */
static coll__sim *coll__sim_open(const coll_allocator *memory, int size, int spares, const coll_sim *config)
{
    const size_t n = (size_t)size + (size_t)spares, faults = (size_t)config->fault_count;
    coll__sim *w = (coll__sim *)coll__allocate(memory, sizeof *w);

    if (!w) return NULL;
    w->config = *config;
    w->config.faults = NULL;                      /* copied; the caller's may be freed                        */
    w->size = w->voters = size;
    w->places = (int)n;
    w->holders = 1;
    w->failure.rank = w->death.rank = -1;
    w->ranks = (coll__sim_rank *)coll__sim_chunk(w, n * sizeof *w->ranks);
    w->hosts = (coll__sim_host *)coll__sim_chunk(w, (n / (size_t)config->ranks_per_host + 1) * sizeof *w->hosts);
    w->sites = (coll__sim_host *)coll__sim_chunk(w, n * sizeof *w->sites);
    w->strikes = (coll__sim_strike *)coll__sim_chunk(w, (faults + 1) * sizeof *w->strikes);
    for (w->table_length = 64; w->table_length < 32 * n;) w->table_length *= 2;
    w->table = (coll__lane **)coll__sim_chunk(w, w->table_length * sizeof *w->table);
    if (!w->ranks || !w->hosts || !w->sites || !w->strikes || !w->table) {
        coll__sim_release(w);
        return NULL;
    }
    for (int i = 0; i < size; i++) coll__sim_rank_init(w, &w->ranks[i], i, i);
    for (size_t i = 0; i < faults; i++) w->strikes[i].fault = config->faults[i];
    coll__sim_strikes_due(w);
    coll__print(w->text, sizeof w->text, "virtual clock, ");
    coll__append_time(w->text, sizeof w->text, config->latency);
    if (config->seconds_per_byte > 0) coll__append(w->text, sizeof w->text, ", %.4g Gbit/s", 8e-9 / config->seconds_per_byte);
    return w;
}

static const coll_transport coll__sim_transport = {
    .name = "sim",
    .send = coll__sim_send,
    .recv = coll__sim_recv,
    .progress = coll__sim_progress,
    .close = coll__sim_close,
    .fail = coll__sim_fail,
    .host = coll__sim_host_of,
    .site = coll__sim_site_of,
    .report_stall = coll__sim_report_stall,
    .shrink = COLL__SHRINKS(coll__sim_shrink),
    .has_left = coll__sim_has_left,
    .now = coll__sim_now,
    .charge_reduce = coll__sim_charge_reduce,
    .traffic = coll__sim_traffic,
    .describe = coll__sim_describe,
};

static bool coll__sim_enter(void *context, coll__opened *out, coll_status *status);

static const coll__elastic coll__sim_elastic = {
    .waiting = coll__sim_waiting, .table = coll__sim_newcomers, .enter = coll__sim_enter
};

static const coll__internals coll__sim_internals = {
    .part = coll__sim_part, .watch = coll__sim_watch, .has_freed = coll__sim_has_freed,
    .elastic = COLL__SHRINKS(&coll__sim_elastic)
};

/* A rank of the first world, or of the first one of newcomers; the caller holds it. */
static coll__opened coll__sim_opened(coll__sim_rank *r, const coll__settings *s)
{
    const coll__sim *const w = r->world;
    const int each = w->voters == w->size ? w->config.ranks_per_host : w->size, from = r->rank / each * each;
    coll__opened o = coll__opened_as(&coll__sim_transport, r, r->rank, w->size, s);
    int local_rank = 0, local_size = 0;

    for (int i = from; i < w->size && i < from + each; i++) {
        if (coll__sim_host_of(r, i) != coll__sim_host_of(r, r->rank)) continue;
        local_size++;
        local_rank += i < r->rank;
    }
    coll__opened_at(&o, local_rank, local_size);
    o.internals = &coll__sim_internals;
    o.spin_us = -1;                               /* nothing happens while a rank spins                       */
    o.is_synchronous = w->config.capacity < 0;
    if (s->numbers.origin == COLL__BY_DEFAULT) coll__sim_numbers(w, &o.numbers);
    return o;
}

static bool coll__sim_enter(void *context, coll__opened *out, coll_status *status)
{
    coll__sim_rank *const r = (coll__sim_rank *)context;

    *status = COLL_OK;
    if (r->world->voters == r->world->size) return false;
    *out = coll__sim_opened(r, r->world->settings);
    return true;
}

static coll_status coll__sim_open_ranks(const coll__settings *s, int count, coll__opened *out)
{
    coll__sim_settings sim;
    const int spares = s->config.elastic > 0 ? s->config.elastic : 0;
    const coll_status status = coll__sim_settle(&sim, s->config.sim, count + spares);

    if (status < 0) return status;
    coll__sim *world = coll__sim_open(s->config.allocator, count, spares, &sim.config);
    if (world && spares) world->settings = (coll__settings *)coll__sim_chunk(world, sizeof *world->settings);
    if (world && spares && !world->settings) coll__sim_release(world), world = NULL;
    if (!world) return coll__start_failed(COLL_ERR_MEMORY, "no memory for %d simulated ranks", count + spares);
    if (spares) *world->settings = *s;
    for (int i = 0; i < count; i++) {
        world->holders++;
        out[i] = coll__sim_opened(&world->ranks[i], s);
    }
    coll__sim_release(world);
    return COLL_OK;
}

/* ---- >>spawn: ranks are fibers of the calling thread ---- */

static void coll__sim_body(void *arg, coll__sim_rank *r)
{
    coll__worker *const worker = (coll__worker *)arg + r->place;
    coll_status status = COLL_OK;

    if (COLL__HAS_SHRINK && !worker->comm) {      /* it joins                                                 */
        const coll__opened opened = coll__sim_opened(r, r->world->settings);
        r->world->holders++;
        worker->comm = coll__comm_new(&opened, r->world->settings);
        status = worker->comm ? coll__join_inside(&worker->comm) : COLL_ERR_MEMORY;
    }
    if (status == COLL_OK) (void)coll__worker_main(worker);
}

/* Frees what killed and stopped ranks have left open: communicators of each of their worlds, and derived ones. */
static void coll__sim_bury(coll__sim *w)
{
    for (int i = 0; i < w->places; i++)
        for (coll__sim_rank *r = w->fibers[i].newest, *before; r; r = before) {
            coll__session *const session = r->session;
            before = r->before;
            if (r->has_closed || !session) continue;
            session->is_held = false;             /* a rank that was inside never leaves                      */
            for (bool is_last = false; !is_last;) {
                is_last = session->comms->next == NULL;
                coll__comm_close(session->comms);
            }
        }
}

static coll_status coll__sim_spawn(int count, coll__worker *workers)
{
    coll__sim *world = ((coll__sim_rank *)workers[0].comm->session->context)->world;
    const int places = world->places;
    coll__worker *const all = (coll__worker *)coll__take(coll__like(world), (size_t)places * sizeof *all);

    for (int i = 0; all && i < places; i++) {
        all[i] = workers[i < count ? i : 0];
        if (i >= count) all[i].comm = NULL;
    }
    const bool has_run = all && coll__sim_run(world, coll__sim_body, all) == COLL_OK;
    if (has_run) coll__sim_bury(world);
    for (int i = 0; i < count && !has_run; i++) coll__comm_close(workers[i].comm);
    for (int i = 0; i < places && has_run; i++) if (all[i].result && !workers[0].result) workers[0].result = all[i].result;
    if (all) coll__sim_run_end(world);
    coll__give(all);
    return has_run ? COLL_OK : coll__start_failed(COLL_ERR_MEMORY, "no memory for the stacks of %d ranks", count);
}

static const coll__transport_row coll__sim_row = {
    .name = "sim", .traits = COLL__SIM_TRAITS, .open = coll__sim_open_ranks, .spawn = coll__sim_spawn
};

/* ---- >>virtual time ---- */

COLL_API double coll_sim_time(const coll_comm *comm)
{
    if (!comm || !*comm->guard || comm->session->transport != &coll__sim_transport) return 0;
    return ((const coll__sim_rank *)comm->session->context)->clock;
}

#else

static const coll__transport_row coll__sim_row = {
    .name = "sim", .traits = COLL__SIM_TRAITS, .missing = COLL__MISSING
};

COLL_API double coll_sim_time(const coll_comm *comm)
{
    (void)comm;
    return 0;
}

#endif
#endif /* COLL_SIM_H */
