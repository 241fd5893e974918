/* coll_sim_shrink.h - after the end of a simulated world: its survivors agree on flags, or continue in the next one.
 *
 * When a world ends, every rank continues until it ends or calls coll_shrink or coll_agree.  Then the ranks of the first list
 * decide who goes on, as all transports do (core/membership/coll_consensus.h).  While one of them has missed a decision, the
 * others only tell it.  A list that has agreed keeps its state.  Notes are events.  Each takes the latency, and leaves a rank
 * `overhead` after the one before.  The failure detector is the simulator: when the ranks begin, it knows which ones have ended
 * or are cut off; it reports a later fault after the detection time.  No rank continues before all have an outcome.
 *
 * The next world replaces the previous one: with the same places, stacks, NICs and pending faults, but its own ranks, lanes and
 * failure.  Newcomers that the ranks have agreed on begin in it, behind the others.  Worlds follow one another: of several lists
 * of ranks, as derived communicators have them, only one can continue.
 *
 * A world in which all ranks wait to continue ends, too (coll_grow). */
#ifndef COLL_SIM_SHRINK_H
#define COLL_SIM_SHRINK_H

#include "../../core/membership/coll_consensus.h"
#include "../../core/membership/coll_newcomers.h"

/* A rank that waits to continue, on its own stack. */
typedef struct coll__sim_migration {
    coll__sim_rank *role;                         /* its rank in the world that has ended                     */
    const int      *ranks;
    int             count, me, timeout_ms;        /* me: its place in the list                                */
    bool            is_listed;                    /* its list is the one that continues                       */
    bool            is_done;                      /* it has its outcome                                       */
    uint64_t        newcomers;                    /* the hash of their table, of a coll_grow; 0: none         */
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

/* ---- >>newcomers: fibers that have not begun (core/session/coll_grow.h) ---- */

enum { COLL__SIM_NEWCOMER = 8 };                  /* bytes of one in a table: its place, and its order        */

static int coll__sim_waiting(void *context, int wanted, int wait_ms)
{
    const coll__sim *const w = ((const coll__sim_rank *)context)->world;
    int count = 0;

    (void)wanted, (void)wait_ms;
    for (int i = 0; w->fibers && i < w->places; i++) count += !w->fibers[i].newest && !w->fibers[i].is_over;
    return count;
}

static coll__orders coll__sim_orders(const coll__sim *w) { return (coll__orders){ &w->ranks[0].order, sizeof *w->ranks }; }

static unsigned char *coll__sim_newcomers(void *context, int count, const int *places, size_t *length)
{
    coll__sim_rank *const r = (coll__sim_rank *)context;
    const coll__sim *const w = r->world;
    const bool lives = coll__sim_waiting(context, 0, 0) >= count;     /* some may have been killed since      */
    int from = 0, at = 0, place = 0;

    *length = (size_t)count * COLL__SIM_NEWCOMER;
    coll__give(r->newcomers);
    r->newcomers = count > 0 ? (unsigned char *)coll__take(coll__like(w), *length) : NULL;
    r->newcomer_count = r->newcomers ? count : 0;
    for (int i = 0; i < r->newcomer_count; i++) {
        while (w->fibers[from].newest || (lives && w->fibers[from].is_over)) from++;
        if (places) place = coll__order_next(coll__sim_orders(w), w->size, places, &at, place) + 1;
        coll__put32(r->newcomers + i * COLL__SIM_NEWCOMER, (uint32_t)from++);
        coll__put32(r->newcomers + i * COLL__SIM_NEWCOMER + 4, (uint32_t)place);
    }
    return r->newcomers;
}

/* They begin behind the others, which were these ranks of `before`.  One that was killed since is detected as any rank. */
static void coll__sim_newcomers_begin(coll__sim *w, const coll__sim_rank *giver, const int *ranks, int before)
{
    for (int i = 0; i < giver->newcomer_count; i++) {
        const unsigned char *const told = giver->newcomers + i * COLL__SIM_NEWCOMER;
        coll__sim_rank *const r = &w->ranks[w->voters + i];
        coll__sim_rank_init(w, r, w->voters + i, (int)coll__get32(told));
        r->order = coll__get32(told + 4);
        r->clock = w->now + w->config.latency;
        r->state = COLL__SIM_KILLED;
        if (w->fibers[r->place].is_over) coll__sim_push(w, COLL__SIM_NOTICE, r->clock + w->config.detection, r, 0);
        else w->live++, coll__fiber_begin(r);
    }
    coll__orders_arrange(coll__sim_orders(w), w->voters, w->size, ranks, before);
}

/* ---- >>the decision ---- */

enum { COLL__SIM_GRACE_S = 10 };

/* A member that takes part in the decision. */
typedef struct coll__sim_voter {
    coll__sim_migration *who;                     /* NULL: it does not                                        */
    coll__consensus consensus;
    double   next_note, ended;                    /* earliest time of its next note; time of its outcome, 0: none yet */
    int64_t  tick_at;                             /* ns                                                       */
    uint32_t ticks, slot, order;                  /* number of the only tick that counts; slot at the begin; of its rank */
    double   struck_at;                           /* killed or stopped meanwhile; never: it is not            */
} coll__sim_voter;

typedef struct coll__sim_agreement {
    coll__sim *world;
    int        count, open;                       /* members; those of `slot` that live and have no outcome   */
    uint32_t   slot;                              /* the first one that is open                               */
    bool       has_memory;
    coll__sim_voter *voters;                      /* by place in the list                                     */
    unsigned char *bytes;                         /* of a note                                                */
} coll__sim_agreement;

typedef struct coll__sim_note { int from, to; size_t length; unsigned char bytes[]; } coll__sim_note;

static inline int64_t coll__sim_ns(double time) { return (int64_t)(time * 1e9 + 0.5); }
static inline int coll__sim_place_of(const coll__sim_voter *v) { return v->who->role->place; }
static inline bool coll__sim_takes_part(const coll__sim_voter *v) { return v->who && !(v->struck_at < coll__sim_never); }

static bool coll__sim_event_add(coll__sim_agreement *a, coll__sim_kind kind, double time, void *what, uint32_t generation)
{
    const size_t before = a->world->event_count;

    coll__sim_push(a->world, kind, time, what, generation);
    if (a->world->event_count != before) return true;
    a->has_memory = false;
    return false;
}

/* How long a note is on its way: always the same, so that notes to a member keep their order. */
static double coll__sim_note_latency(const coll__sim *w, int from, int to)
{
    const coll_sim *c = &w->config;
    const int host = from / c->ranks_per_host, other = to / c->ranks_per_host, each = c->hosts_per_site;

    if (host == other) return c->local_latency;
    return each > 0 && host / each != other / each ? c->far_latency : c->latency;
}

static bool coll__sim_are_apart(const coll__sim_agreement *a, int one, int other)
{
    const coll__sim_voter *const v = &a->voters[one], *const peer = &a->voters[other];

    if (!coll__sim_takes_part(peer)) return true;
    return coll__sim_is_cut(a->world, coll__sim_place_of(v), coll__sim_place_of(peer), a->world->now)
        || coll__sim_is_cut(a->world, coll__sim_place_of(peer), coll__sim_place_of(v), a->world->now);
}

static void coll__sim_note_send(coll__sim_agreement *a, int from, int to, size_t length)
{
    coll__sim *w = a->world;
    coll__sim_voter *v = &a->voters[from];
    const double leaves = coll__later(w->now, v->next_note);

    v->next_note = leaves + coll__later(w->config.overhead, 1e-9);
    if (coll__sim_are_apart(a, from, to)) return;
    coll__sim_note *n = (coll__sim_note *)coll__take(coll__like(w), sizeof *n + length);
    if (!n) {
        a->has_memory = false;
        return;
    }
    n->from = from;
    n->to = to;
    n->length = length;
    memcpy(n->bytes, a->bytes, length);
    const double way = coll__sim_note_latency(w, coll__sim_place_of(v), coll__sim_place_of(&a->voters[to]));
    if (!coll__sim_event_add(a, COLL__SIM_NOTE, leaves + way, n, 0)) coll__give(n);
}

/* What a member does after an event. */
static void coll__sim_voter_advance(coll__sim_agreement *a, int place)
{
    coll__sim *w = a->world;
    coll__sim_voter *v = &a->voters[place];
    const int64_t now = coll__sim_ns(w->now);
    size_t length;

    if (!coll__consensus_is_behind(&v->consensus)) coll__consensus_tick(&v->consensus, now);
    for (int i = 0; i < a->count; i++)
        while ((length = coll__consensus_say(&v->consensus, i, a->bytes, now)) > 0) coll__sim_note_send(a, place, i, length);
    const int64_t next = coll__consensus_next(&v->consensus);
    if (next && next != v->tick_at) {
        const double at = coll__later(w->now, (double)next * 1e-9);
        v->tick_at = next;
        (void)coll__sim_event_add(a, COLL__SIM_TICK, at + 1e-9 + 1e-15 * at, v, ++v->ticks);        /* never before it */
    }
    const bool is_behind = coll__consensus_is_behind(&v->consensus);
    if (v->ended > 0 || (coll__consensus_is_busy(&v->consensus) && !is_behind)) return;
    v->ended = w->now;
    a->open -= v->slot == a->slot;
}

/* A fault with a time.  A member that has its outcome is struck in the next world. */
static void coll__sim_voter_strike(coll__sim_agreement *a, coll__sim_strike *s)
{
    coll__sim *w = a->world;

    if (s->fault.kind <= COLL_SIM_STOP) {
        coll__sim_voter *v = a->voters;
        while (v < a->voters + a->count && (!v->who || coll__sim_place_of(v) != s->fault.rank)) v++;
        if (v == a->voters + a->count || v->ended > 0) return;
        s->is_over = true;
        v->struck_at = s->fault.time;
        v->who->role->state = s->fault.kind == COLL_SIM_KILL ? COLL__SIM_KILLED : COLL__SIM_STOPPED;
        w->fibers[s->fault.rank].migration = NULL;
        w->waiting--;
        w->fibers[s->fault.rank].is_over = true;
        w->live--;
        a->open -= v->slot == a->slot;
    }
    (void)coll__sim_event_add(a, COLL__SIM_DETECT, coll__later(w->now, s->fault.time + w->config.detection), s, 0);
}

/* All members hear which lines have ended. */
static void coll__sim_detect(coll__sim_agreement *a)
{
    for (int i = 0; i < a->count; i++) {
        coll__sim_voter *v = &a->voters[i];
        for (int k = 0; coll__sim_takes_part(v) && k < a->count; k++) {
            if (k == i || !v->consensus.places[k].is_up || !coll__sim_are_apart(a, i, k)) continue;
            coll__consensus_down(&v->consensus, k);
            coll__consensus_lost(&v->consensus, k);
        }
        if (coll__sim_takes_part(v)) coll__sim_voter_advance(a, i);
    }
}

static void coll__sim_voter_event(coll__sim_agreement *a, const coll__sim_event *e)
{
    coll__sim *w = a->world;

    w->now = e->time;
    w->order = (w->order ^ (uint64_t)e->kind) * UINT64_C(0x100000001b3);
    if (e->kind == COLL__SIM_NOTE) {
        coll__sim_note *n = (coll__sim_note *)e->what;
        coll__sim_voter *v = &a->voters[n->to];
        if (coll__sim_takes_part(v) && v->consensus.places[n->from].is_up) {
            (void)coll__consensus_note(&v->consensus, n->from, n->bytes, n->length, coll__sim_ns(w->now));
            coll__sim_voter_advance(a, n->to);
        }
        coll__give(n);
    } else if (e->kind == COLL__SIM_TICK) {
        coll__sim_voter *v = (coll__sim_voter *)e->what;
        if (e->generation != v->ticks || !coll__sim_takes_part(v)) return;
        v->tick_at = 0;
        coll__sim_voter_advance(a, (int)(v - a->voters));
    } else if (e->kind == COLL__SIM_STRIKE) {
        coll__sim_voter_strike(a, (coll__sim_strike *)e->what);
    } else {
        coll__sim_detect(a);
    }
}

static void coll__sim_voters_begin(coll__sim_agreement *a)
{
    coll__sim *w = a->world;
    const int64_t grace = COLL__SIM_GRACE_S * INT64_C(1000000000)
                        + 8 * coll__sim_ns(coll__later(w->config.latency, w->config.far_latency));

    for (int i = 0; i < w->config.fault_count; i++) {
        coll__sim_strike *s = &w->strikes[i];
        const bool is_timed = s->fault.number == 0 && (s->fault.kind <= COLL_SIM_STOP || s->fault.kind == COLL_SIM_CUT);
        if (s->is_over || !is_timed) continue;
        if (s->fault.time > w->now) (void)coll__sim_event_add(a, COLL__SIM_STRIKE, s->fault.time, s, 0);
        else coll__sim_voter_strike(a, s);
    }
    for (int i = 0; i < a->count; i++) {
        coll__sim_voter *v = &a->voters[i];
        const int64_t now = coll__sim_ns(w->now);
        if (!coll__sim_takes_part(v)) continue;
        for (int k = 0; k < a->count; k++)
            if (k == i || coll__sim_are_apart(a, i, k)) coll__consensus_down(&v->consensus, k);
            else coll__consensus_up(&v->consensus, k);
        const coll__sim_migration *m = v->who;
        coll__consensus_begin(&v->consensus, m->out->is_agree ? COLL__DECIDES_FLAGS : COLL__DECIDES_GO_ON,
                              m->out->is_agree ? m->out->flags : m->newcomers, now, grace,
                              m->timeout_ms > 0 ? now + (int64_t)m->timeout_ms * COLL__MS : coll__never);
        for (int k = 0; k < a->count; k++) coll__consensus_lost(&v->consensus, k);
    }
    for (int i = 0; i < a->count; i++) if (coll__sim_takes_part(&a->voters[i])) coll__sim_voter_advance(a, i);
}

/* ---- >>the next world ---- */

/* Does a member know the newcomers that the others have agreed on? */
static bool coll__sim_goes_on(const coll__sim_voter *v)
{
    return coll__sim_takes_part(v) && v->consensus.role == COLL__CONSENSUS_DECIDED
        && (!v->consensus.past.flags || v->consensus.past.flags == v->who->newcomers);
}

/* The rank of a member in the next world, in which `ranks` are these.  One that was killed meanwhile is detected there. */
static void coll__sim_rank_reborn(coll__sim_rank *r, coll__sim_voter *v, const int *ranks, int count)
{
    coll__sim *w = r->world;
    coll__sim_migration *e = v->who;

    r->before = e->role;
    r->calls = e->role->calls;
    r->clock = v->ended;
    if (coll__sim_goes_on(v)) {
        w->fibers[r->place].newest = r;
        w->holders++;
        memcpy(e->out->ranks, ranks, (size_t)count * sizeof *ranks);
        e->out->count = count;
        e->out->rank = r->rank;
        e->out->context = r;
        return;
    }
    r->state = coll__sim_takes_part(v) ? COLL__SIM_STOPPED : e->role->state;
    r->clock = coll__sim_takes_part(v) ? v->ended : v->struck_at;
    if (r->state == COLL__SIM_KILLED) coll__sim_push(w, COLL__SIM_NOTICE, r->clock + w->config.detection, r, 0);
}

/* Who continues: members[i] is the place in the list of the next rank i, and ranks[i] its rank.  Behind a world of newcomers the
 * ranks may have another order (coll_replace). */
static int coll__sim_members(const coll__sim_agreement *a, const coll__consensus *decided, int *members, int *ranks)
{
    int count = 0;

    for (int i = 0; i < a->count; i++) if (coll__place_in(decided->past.members, i)) members[count++] = i;
    coll__orders_sort((coll__orders){ &a->voters[0].order, sizeof *a->voters }, members, count);
    for (int i = 0; i < count; i++) ranks[i] = a->voters[members[i]].who->role->rank;
    return count;
}

/* Replaces this world by the next one, of the members that `decided` knows, and of newcomers.  Returns false: no memory. */
static bool coll__sim_rebirth(coll__sim *w, coll__sim_agreement *a, const coll__consensus *decided)
{
    coll_failure *over = (coll_failure *)coll__sim_chunk(w, sizeof *over);
    int *const members = (int *)coll__sim_chunk(w, 2 * (size_t)a->count * sizeof *members), *const ranks = members + a->count;
    const int count = members ? coll__sim_members(a, decided, members, ranks) : 0;
    const coll__sim_rank *giver = NULL;

    for (int i = 0; i < count && !giver; i++)
        if (decided->past.flags && coll__sim_goes_on(&a->voters[members[i]])) giver = a->voters[members[i]].who->role;
    const int all = count + (giver ? giver->newcomer_count : 0);
    const bool keeps_order = w->voters < w->size && !giver;
    coll__sim_rank *fresh = (coll__sim_rank *)coll__sim_chunk(w, (size_t)all * sizeof *fresh);
    if (!over || !members || !fresh) return false;
    *over = w->failure;
    for (int i = 0; i < w->size; i++) {
        w->ranks[i].over = over;
        w->ranks[i].has_news = false;
    }
    const int before = w->size;
    w->ranks = fresh;
    w->size = all;
    w->voters = count;
    w->failure = (coll_failure){ COLL_OK, -1, "" };
    *w->hint = '\0';
    w->left_count = w->unseen = 0;
    w->has_parted = false;
    w->turns = w->idle = 0;
    for (int i = 0; i < count; i++) {
        coll__sim_voter *v = &a->voters[members[i]];
        coll__sim_rank_init(w, &fresh[i], i, v->who->role->place);
        if (keeps_order) fresh[i].order = v->who->role->order;
        coll__sim_rank_reborn(&fresh[i], v, ranks, count);
    }
    if (giver) coll__sim_newcomers_begin(w, giver, ranks, before);
    coll__sim_strikes_due(w);
    return true;
}

/* All have their outcome.  Returns false: no memory. */
static bool coll__sim_outcomes(coll__sim *w, coll__sim_agreement *a)
{
    const coll__consensus *decided = NULL;
    double first = coll__sim_never;

    for (int i = 0; i < a->count; i++) {
        const coll__sim_voter *v = &a->voters[i];
        if (!coll__sim_takes_part(v)) continue;
        if (v->ended > 0 && v->ended < first) first = v->ended;
        if (coll__consensus_is_over(&v->consensus) && v->consensus.role != COLL__CONSENSUS_GIVEN_UP) decided = &v->consensus;
    }
    if (first < coll__sim_never) w->now = first;
    for (int i = 0; i < a->count; i++) {
        const coll__sim_voter *v = &a->voters[i];
        if (!coll__sim_takes_part(v)) continue;
        coll__sim_migration *m = v->who;
        *(coll__consensus *)m->out->known->kept = v->consensus;
        m->is_done = v->ended > 0 && !coll__consensus_is_behind(&v->consensus);
        if (!m->is_done) continue;
        m->role->clock = v->ended;
        if (v->consensus.role == COLL__CONSENSUS_GIVEN_UP) coll__failed_given_up(m->failure);
        else if (v->consensus.role == COLL__CONSENSUS_TOO_FEW) coll__failed_too_few(m->failure, v->consensus.counted, a->count);
        else if (m->out->is_agree && v->consensus.past.kind == COLL__DECIDES_GO_ON) coll__failed_over(m->failure);
        else if (m->out->is_agree) coll__survivors_in(v->consensus.past.members, m->ranks, m->count, m->me, m->out);
        else if (!coll__sim_goes_on(v)) coll__failed_given_up(m->failure);
        m->out->flags = v->consensus.past.flags;
    }
    return !decided || coll__sim_rebirth(w, a, decided);
}

/* The members with this list decide.  Returns false: no memory. */
static bool coll__sim_decide(coll__sim *w, const coll__sim_migration *lead)
{
    coll__sim_agreement a = { .world = w, .count = lead->count };
    coll__sim_event e;

    a.voters = (coll__sim_voter *)coll__take_zeros(coll__like(w), (size_t)a.count, sizeof *a.voters);
    a.bytes = (unsigned char *)coll__take_zeros(coll__like(w), coll__member_note_most(lead->count), 1);
    a.has_memory = a.voters && a.bytes;
    for (int i = 0; a.has_memory && i < a.count; i++) a.voters[i].struck_at = coll__sim_never;
    for (int i = 0; a.has_memory && i < w->places; i++) {
        coll__sim_migration *m = w->fibers[i].migration;
        if (!m || !m->is_listed) continue;
        coll__sim_voter *v = &a.voters[m->me];
        v->who = m;
        v->consensus = *(coll__consensus *)m->out->known->kept;
        v->slot = v->consensus.slot;
        v->order = m->role->order;
        if (a.open == 0 || v->slot < a.slot) a.open = 0, a.slot = v->slot;
        a.open += v->slot == a.slot;
    }
    if (a.has_memory) coll__sim_voters_begin(&a);
    while (a.has_memory && a.open > 0 && coll__sim_pop(w, &e)) coll__sim_voter_event(&a, &e);
    while (coll__sim_pop(w, &e)) if (e.kind == COLL__SIM_NOTE) coll__give(e.what);
    COLL__ASSERT(!a.has_memory || a.open == 0, "%d members have no outcome, and no event is left", a.open);
    const bool is_memory = a.has_memory && coll__sim_outcomes(w, &a);
    coll__give(a.voters);
    coll__give(a.bytes);
    return is_memory;
}

/* All living ranks wait for the others: the first list continues. */
static void coll__sim_migration_go(coll__sim *w)
{
    const coll__sim_migration *lead = NULL;

    for (int i = 0; i < w->places; i++) {
        coll__sim_migration *e = w->fibers[i].migration;
        if (!e) continue;
        if (!lead) lead = e;
        e->is_listed = e->count == lead->count && !memcmp(e->ranks, lead->ranks, (size_t)e->count * sizeof *e->ranks);
        if (!e->is_listed)
            coll__set_failure(e->failure, COLL_ERR_UNSUPPORTED, -1, "in a simulated world only one list of ranks goes on");
        w->now = coll__later(w->now, e->role->clock);
    }
    if (!lead) return;
    w->now += w->config.detection;
    const bool has_memory = coll__sim_decide(w, lead);
    for (int i = 0; i < w->places; i++) {
        coll__sim_migration *e = w->fibers[i].migration;
        if (!e || (has_memory && e->is_listed && !e->is_done)) continue;
        if (!has_memory) coll__set_failure(e->failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", e->count);
        w->fibers[i].migration = NULL;
        w->waiting--;
        if (w->failure.status == COLL_OK) coll__sim_push(w, COLL__SIM_RUN, e->role->clock, e->role, e->role->generation);
    }
}

/* Of this list, also if a rank is killed in it.  NULL: no memory. */
static coll__consensus *coll__sim_consensus(coll__sim *w, coll_decisions *known, int count, int me)
{
    coll__consensus *c = (coll__consensus *)known->kept;

    if (!c) {
        known->kept = c = (coll__consensus *)coll__take_zeros(coll__like(w), 1, sizeof *c + coll__consensus_memory(count));
        if (c) coll__consensus_open(c, c + 1, count, me);
    }
    if (c && count == w->size) c->voters = w->voters;
    if (c) coll__consensus_learn(c, known);
    return c;
}

static coll_status coll__sim_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                    coll_failure *failure)
{
    coll__sim_rank *r = (coll__sim_rank *)context;
    coll__sim *w = r->world;
    coll__sim_migration e = { .role = r, .ranks = ranks, .count = count, .timeout_ms = timeout_ms, .out = out,
                              .failure = failure };

    if (w->running == NULL)
        return coll__set_failure(failure, COLL_ERR_UNSUPPORTED, -1,
                                 "one thread that polls for all ranks cannot wait for them: this "
                                 "takes coll_spawn");
    if (r->over) return coll__failed_over(failure);
    while (ranks[e.me] != r->rank) e.me++;
    if (!coll__sim_consensus(w, out->known, count, e.me))
        return coll__set_failure(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", count);
    if (count == w->size) e.newcomers = coll__newcomers_hash(r->newcomers, (size_t)r->newcomer_count * COLL__SIM_NEWCOMER);
    w->fibers[r->place].migration = &e;
    w->waiting++;
    coll__fiber_suspend(r);
    coll__fiber_leave(r, false);
    if (failure->status == COLL_OK && !out->is_agree) w->running = (coll__sim_rank *)out->context;
    return failure->status;
}

#endif /* COLL_SIM_SHRINK_H */
