/* coll_sim_shrink.h - after the end of a simulated world: its survivors continue in the next one.
 *
 * When a world ends, every rank continues until it ends or calls coll_shrink.  Then it is known which ranks are left and can
 * reach each other: a cut network stays cut.  They gather at the first of their list that is left, as over TCP; those that cannot
 * reach it gather at the next.  The next world needs a quorum of the list.  It replaces the previous one: with the same places,
 * stacks, NICs and pending faults, but its own ranks, lanes and failure.  The agreement takes the detection time and a round
 * trip.
 *
 * Worlds follow one another: of several lists of ranks, as derived communicators have them, only one can continue. */
#ifndef COLL_SIM_SHRINK_H
#define COLL_SIM_SHRINK_H

/* A rank that waits to continue, on its own stack. */
typedef struct coll__sim_migration {
    coll__sim_rank *role;                         /* its rank in the world that has ended                     */
    const int      *ranks;
    int             count, me;                    /* me: its place in the list                                */
    coll_survivors *out;
    coll_failure   *failure;
} coll__sim_migration;

static void coll__sim_rank_init(coll__sim *w, coll__sim_rank *r, int rank, int place)
{
    r->world = w;
    r->rank = rank;
    r->place = place;
    r->wake_at = r->timer_at = coll__sim_never;
}

/* Pending faults that have a time. */
static void coll__sim_strikes_due(coll__sim *w)
{
    for (int i = 0; i < w->config.fault_count; i++) {
        coll__sim_strike *s = &w->strikes[i];
        if (!s->is_over && s->fault.kind <= COLL_SIM_STOP && s->fault.number == 0)
            coll__sim_push(w, COLL__SIM_STRIKE, s->fault.time, s, 0);
    }
}

/* Replaces this world by the next one, with the `count` ranks in `who`, from `when` on.  Returns false: no memory. */
static bool coll__sim_rebirth(coll__sim *w, coll__sim_migration **who, int length, int count, double when)
{
    coll_failure *over = (coll_failure *)coll__sim_chunk(w, sizeof *over);
    coll__sim_rank *fresh = (coll__sim_rank *)coll__sim_chunk(w, (size_t)count * sizeof *fresh);

    if (!over || !fresh) return false;
    for (int i = 0, rank = 0; i < length; i++) {
        if (!who[i]) continue;
        coll_survivors *out = who[i]->out;
        coll__sim_rank_init(w, &fresh[rank], rank, who[i]->role->place);
        fresh[rank].before = who[i]->role;
        fresh[rank].calls = who[i]->role->calls;
        fresh[rank].clock = when;
        out->context = w->fibers[who[i]->role->place].newest = &fresh[rank];
        out->rank = rank++;
        out->count = 0;
        for (int k = 0; k < length; k++) if (who[k]) out->ranks[out->count++] = who[i]->ranks[k];
    }
    *over = w->failure;
    for (int i = 0; i < w->size; i++) {
        w->ranks[i].over = over;
        w->ranks[i].has_news = false;
    }
    w->ranks = fresh;
    w->size = count;
    w->holders += count;
    w->failure = (coll_failure){ COLL_OK, -1, "" };
    *w->hint = '\0';
    w->left_count = w->unseen = 0;
    w->has_parted = false;
    w->turns = w->idle = 0;
    w->now = coll__later(w->now, when);
    coll__sim_strikes_due(w);
    return true;
}

/* The ranks of a list, `who`, gather: those that reach the first one at it, the others at the next.  Those with a quorum
 * continue, the others fail. */
static bool coll__sim_gather(coll__sim *w, coll__sim_migration **who, coll__sim_migration **chosen, unsigned char *is_there,
                             int length, double when)
{
    int count = 0;

    for (int host = 0; host < length; host++) {
        int there = 0;
        for (int i = 0; who[host] && i < length; i++) {
            const int from = who[host]->role->place, to = who[i] ? who[i]->role->place : -1;
            is_there[i] = to >= 0 && !coll__sim_is_cut(w, from, to, when) && !coll__sim_is_cut(w, to, from, when);
            there += is_there[i];
        }
        const bool goes_on = there > 0 && coll__is_quorum(is_there, length);
        if (goes_on) count = there;
        for (int i = 0; there > 0 && i < length; i++) {
            if (!is_there[i]) continue;
            if (goes_on) chosen[i] = who[i];
            else coll__set_failure(who[i]->failure, COLL_ERR_PEER, -1,
                                   "only %d of %d ranks are left: that is not most of them, and "
                                   "the others might go on elsewhere", there, length);
            who[i] = NULL;
        }
    }
    return count == 0 || coll__sim_rebirth(w, chosen, length, count, when);
}

/* Applies a fault with a time.  Returns whether it hits a rank that waits for the others. */
static bool coll__sim_migration_struck(coll__sim *w, coll__sim_strike *s, double when)
{
    coll__fiber *f = s->fault.rank < w->places ? &w->fibers[s->fault.rank] : NULL;

    if (s->is_over || s->fault.kind > COLL_SIM_STOP || s->fault.number || when < s->fault.time || !f) return false;
    s->is_over = true;
    if (!f->migration) return false;
    f->migration->role->state = s->fault.kind == COLL_SIM_KILL ? COLL__SIM_KILLED : COLL__SIM_STOPPED;
    f->migration = NULL;
    f->is_over = true;
    w->live--;
    return true;
}

/* The time at which the waiting ranks have gathered.  Ranks that die until then are detected, too. */
static double coll__sim_migration_time(coll__sim *w)
{
    const double miss = w->config.detection + 2 * w->config.latency;
    double when = w->now;

    for (int i = 0; i < w->places; i++) if (w->fibers[i].migration) when = coll__later(when, w->fibers[i].migration->role->clock);
    when += miss;
    for (int i = 0; i < w->config.fault_count;) {
        coll__sim_strike *s = &w->strikes[i++];
        if (!coll__sim_migration_struck(w, s, when)) continue;
        when = coll__later(when, s->fault.time + miss);
        i = 0;                                    /* more faults are due by then                              */
    }
    return when;
}

/* All living ranks wait for the others: the first list continues. */
static void coll__sim_migration_go(coll__sim *w)
{
    const coll__sim_migration *lead = NULL;
    const double when = coll__sim_migration_time(w);

    for (int i = 0; i < w->places && !lead; i++) lead = w->fibers[i].migration;
    if (!lead) return;
    const size_t length = (size_t)lead->count;
    coll__sim_migration **who = (coll__sim_migration **)coll__take_zeros(coll__like(w), 2 * length, sizeof *who);
    unsigned char *is_there = (unsigned char *)coll__take_zeros(coll__like(w), length, 1);
    bool is_memory = who && is_there;
    for (int i = 0; i < w->places && is_memory; i++) {
        coll__sim_migration *e = w->fibers[i].migration;
        if (!e) continue;
        if (e->count == lead->count && !memcmp(e->ranks, lead->ranks, length * sizeof *e->ranks)) who[e->me] = e;
        else coll__set_failure(e->failure, COLL_ERR_UNSUPPORTED, -1, "in a simulated world only one list of ranks goes on");
    }
    if (is_memory) is_memory = coll__sim_gather(w, who, who + length, is_there, lead->count, when);
    coll__give(who);
    coll__give(is_there);
    for (int i = 0; i < w->places; i++) {
        coll__sim_migration *e = w->fibers[i].migration;
        if (!e) continue;
        if (!is_memory) coll__set_failure(e->failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", e->count);
        w->fibers[i].migration = NULL;
        if (w->failure.status == COLL_OK) coll__sim_push(w, COLL__SIM_RUN, when, e->role, e->role->generation);
    }
}

static coll_status coll__sim_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                    coll_failure *failure)
{
    coll__sim_rank *r = (coll__sim_rank *)context;
    coll__sim *w = r->world;
    coll__sim_migration e = { .role = r, .ranks = ranks, .count = count, .out = out, .failure = failure };

    (void)timeout_ms;                             /* no living rank is missing here                           */
    if (w->running == NULL)
        return coll__set_failure(failure, COLL_ERR_UNSUPPORTED, -1,
                                 "one thread that polls for all ranks cannot wait for them: this "
                                 "takes coll_spawn");
    if (r->over)
        return coll__set_failure(failure, COLL_ERR_UNSUPPORTED, -1,
                                 "this has been done already: shrink the communicator it gave");
    while (ranks[e.me] != r->rank) e.me++;
    w->fibers[r->place].migration = &e;
    coll__fiber_suspend(r);
    coll__fiber_leave(r, false);
    if (failure->status == COLL_OK) w->running = (coll__sim_rank *)out->context;
    return failure->status;
}

#endif /* COLL_SIM_SHRINK_H */
