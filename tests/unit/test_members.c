/* test_members - the consensus of members (core/membership) in a world of its own: 2 to 9 members, and lines between them.
 * Everything follows from one seed: when members begin, delays, deaths, pauses, cuts in one direction or both, lines that
 * end, errors and repeated calls, decisions of round 0, the last of them perhaps known to some members only; and newcomers, so
 * that one world follows another.  Then all is healed, and progress is required: of the members that have entered a world, if
 * they are a quorum, or one of them knows the decision.
 * members_detector.h does the same for the failure detector.
 *     test_members [SEEDS [FIRST]]      COLL_TEST_SEED=... replays one seed, and prints what happens */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "../../coll.h"
#include "../../core/base/coll_base.h"
#ifndef MEMBERSHIP
#define MEMBERSHIP "../../core/membership/coll_consensus.h"         /* or a copy with a fault                   */
#endif
#include MEMBERSHIP
#ifndef OUTCOME
#define OUTCOME "../../core/membership/coll_outcome.h"
#endif
#include OUTCOME

#include "../support/check.h"

enum {
    MEMBERS = 9, NEWCOMERS = 3, MOST = MEMBERS + NEWCOMERS, WORLDS = 3, SLOTS = 8, ACCEPTED = 48, EVENTS = 1 << 16,
    STEPS = 1 << 18, HELD = 1 << 14, ROOM = 56,
    PATIENT = 3000000,                            /* us: the grace after the faults.  Of members that were given up, none
                                                     answers, and one that asks them in turn waits so long for each */
    NEVER_ENDS = 600                              /* virtual seconds                                          */
};

typedef enum event_kind {
    NOTE, ENTRY, CALL, TICK, BEGIN, DOWN, KILL, STOP, GO_ON, CUT, HEAL, SUSPECT, LEAVE, TURN, END_LINE
} event_kind;

typedef struct event {
    int64_t  at;
    uint64_t order;
    event_kind kind;
    int      from, to;                            /* processes                                                */
    int      world;                               /* of a note, or left; entry: of the decision               */
    unsigned line;                                /* the number of the line                                   */
    size_t   length;
    unsigned char bytes[ROOM];
} event;

/* What a process knows of one world. */
typedef struct side {
    coll__consensus c;
    uint64_t memory[MOST * sizeof(coll__consensus_place) / 8 + 8];
    uint32_t seen;                                /* the slot at the last look                                */
    uint64_t said[SLOTS];                         /* what it has brought to each slot                         */
    coll_decisions known;                         /* of round 0                                               */
    uint64_t accepted[SLOTS][ACCEPTED];
    int      accepted_count[SLOTS];
} side;

typedef struct member {
    side     sides[WORLDS];
    int      world;                               /* the last one that it is in; -1: none yet                 */
    bool     is_dead, is_stopped, has_begun, is_late_to_begin;
    int      flags_left, errors;                  /* operations before the last; how often it failed          */
    uint64_t flags;
    int64_t  began, tick_at;
    bool     is_calling[MOST], is_up[MOST];       /* is_up: as far as it knows                                */
    unsigned left[WORLDS];                        /* those of which it has heard that they have left          */
    bool     has_excuse;                          /* it was stopped, cut off, or suspected                    */
} member;

/* A world, as the first member that knows it does. */
typedef struct world {
    int      count, process[MOST];                /* by place; 0: not yet                                     */
    int      voters;                              /* the first ones; newcomers are behind them                */
    bool     is_decided[SLOTS];
    coll__decision_kind kind[SLOTS];
    uint64_t flags[SLOTS], value[SLOTS];
    unsigned set[SLOTS];
    uint32_t chosen;                              /* this slot is decided by round 0; 0: none is              */
} world;

static struct {
    uint64_t seed, state, order;
    int64_t  now, healed_at, grace, limit;        /* us                                                       */
    int      count, total, worlds, events, flag_ops;        /* count: members of the first world              */
    bool     talks, is_cut[MOST][MOST], is_up[MOST][MOST], is_healed;
    int      turn_kind, turn_count;               /* the network is cut anew when so many notes of this kind were sent */
    unsigned line[MOST][MOST];
    int64_t  last[MOST][MOST];                    /* the last arrival, by direction                           */
    member   m[MOST];
    world    w[WORLDS];
    event   *heap, *held;                         /* held: cannot arrive now                                  */
    int      held_count;
    unsigned char none_failed[MOST];
    int64_t  slowest;
    uint64_t decisions, too_few, given_up, joined;
} w;

static uint64_t draw(void) { return w.state += UINT64_C(0x9e3779b97f4a7c15), coll__mix64(w.state); }
static int64_t below(int64_t n) { return (int64_t)(draw() % (uint64_t)n); }

#define TALK(...) (w.talks ? (void)(printf("%9.6f ", (double)w.now * 1e-6), printf(__VA_ARGS__), putchar('\n')) : (void)0)
#define DEMAND(condition, ...)                                                                   \
    do {                                                                                         \
        if (!(condition)) fprintf(stderr, "seed %llu, at %.6f s: ", (unsigned long long)w.seed, (double)w.now * 1e-6); \
        CHECK(condition, __VA_ARGS__);                                                           \
    } while (0)

static int place_of(int e, int process)
{
    for (int i = 0; i < w.w[e].count; i++) if (w.w[e].process[i] == process) return i;
    return -1;
}

/* Has the process entered this world? */
static bool is_in(int process, int e) { return e <= w.m[process].world && w.m[process].sides[e].c.count > 0; }

/* ---- >>events: a heap by (time, order) ---- */

static bool is_before(const event *a, const event *b) { return a->at < b->at || (a->at == b->at && a->order < b->order); }

static event *insert(event e)
{
    int i = w.events++;

    if (w.events > EVENTS) fprintf(stderr, "seed %llu: too many events\n", (unsigned long long)w.seed), abort();
    for (; i > 0 && is_before(&e, &w.heap[(i - 1) / 2]); i = (i - 1) / 2) w.heap[i] = w.heap[(i - 1) / 2];
    w.heap[i] = e;
    return &w.heap[i];
}

static event *push(int64_t at, event_kind kind, int from, int to)
{
    return insert((event){ .at = at > w.now ? at : w.now, .order = w.order++, .kind = kind, .from = from, .to = to });
}

static event pop(void)
{
    const event first = w.heap[0], last = w.heap[--w.events];
    int i = 0;

    for (int k; (k = 2 * i + 1) < w.events; i = k) {
        if (k + 1 < w.events && is_before(&w.heap[k + 1], &w.heap[k])) k++;
        if (!is_before(&w.heap[k], &last)) break;
        w.heap[i] = w.heap[k];
    }
    w.heap[i] = last;
    return first;
}

/* ---- >>what must hold ---- */

static uint64_t value_of(const coll__decision *d, int count)
{
    uint64_t hash = coll__hash_with(coll__hash_with(coll__hash_of_none, (uint64_t)d->kind), d->flags);
    for (size_t i = 0; i < coll__places_length(count); i++) hash = coll__hash_with(hash, d->members[i]);
    return hash;
}

static unsigned set_of(const coll__decision *d, int count)
{
    unsigned set = 0;
    for (int i = 0; i < count; i++) set |= (unsigned)coll__place_in(d->members, i) << i;
    return set;
}

/* More than half of the voters, or half with the first. */
static bool is_most(unsigned set, int voters)
{
    const int there = __builtin_popcount(set & ((1u << voters) - 1));
    return 2 * there > voters || (2 * there == voters && (set & 1));
}

/* Remember what a member has accepted. */
static void note_accepted(side *m)
{
    const uint32_t s = m->c.slot - 1;
    if (s >= SLOTS || m->c.ballot == 0) return;
    const uint64_t what = coll__hash_with(value_of(&m->c.held, m->c.count), m->c.ballot);
    for (int i = 0; i < m->accepted_count[s]; i++) if (m->accepted[s][i] == what) return;
    if (m->accepted_count[s] < ACCEPTED) m->accepted[s][m->accepted_count[s]++] = what;
}

/* Has a quorum accepted one value at one ballot? */
static bool was_accepted(int e, uint32_t s)
{
    for (int k = 0; k < w.w[e].count; k++) {
        const side *one = &w.m[w.w[e].process[k]].sides[e];
        for (int a = 0; a < one->accepted_count[s]; a++) {
            unsigned set = 0;
            for (int i = 0; i < w.w[e].count; i++) {
                const side *m = &w.m[w.w[e].process[i]].sides[e];
                for (int b = 0; b < m->accepted_count[s]; b++) if (m->accepted[s][b] == one->accepted[s][a]) set |= 1u << i;
            }
            if (is_most(set, w.w[e].voters)) return true;
        }
    }
    return false;
}

/* The flags of an operation: of a go on of the first world, a hash of the newcomers, or 0 at a member that calls coll_shrink. */
enum { TABLE = 0x7ab1e };

static bool has_newcomers(int e, const coll__decision *d)
{
    return e == 0 && d->kind == COLL__DECIDES_GO_ON && d->flags == TABLE;
}

/* A decision is sound: of a quorum of the voters. */
static void check_sound(int e, int place, uint32_t s, const coll__decision *d)
{
    world *const of = &w.w[e];
    const unsigned set = set_of(d, of->count);
    uint64_t flags = ~UINT64_C(0);

    for (int i = 0; i < of->count; i++) if (set >> i & 1) flags &= w.m[of->process[i]].sides[e].said[s];
    DEMAND(s + 1 != of->chosen || set == (1u << of->count) - 1, "slot %u: all have accepted round 0, not %x", s + 1, set);
    if (d->kind == COLL__DECIDES_FLAGS)
        DEMAND(d->flags == flags, "slot %u: flags %llx, and the members' are %llx", s + 1, (unsigned long long)d->flags,
               (unsigned long long)flags);
    else
        DEMAND(d->flags == 0 || (e == 0 && d->flags == TABLE), "slot %u: flags %llx", s + 1, (unsigned long long)d->flags);
    DEMAND(is_most(set, of->voters), "world %d, slot %u: %x is no quorum of %d", e, s + 1, set, of->voters);
    DEMAND(set == 1u << place || was_accepted(e, s), "world %d, slot %u: %x was not accepted by a quorum", e, s + 1, set);
    DEMAND(s == 0 || of->is_decided[s - 1], "slot %u is decided before the one before it", s + 1);
    DEMAND(s == 0 || !(set & ~of->set[s - 1]), "slot %u: %x, after %x", s + 1, set, of->set[s - 1]);
    DEMAND(s == 0 || of->kind[s - 1] != COLL__DECIDES_GO_ON, "slot %u, after the last", s + 1);
}

/* A process has learnt a decision. */
static void check_decision(int process, int e, uint32_t s)
{
    const coll__decision *const d = &w.m[process].sides[e].c.past;
    world *const of = &w.w[e];

    if (s >= SLOTS) return;
    if (!of->is_decided[s]) {
        of->is_decided[s] = true;
        of->kind[s] = d->kind;
        of->set[s] = set_of(d, of->count);
        of->value[s] = value_of(d, of->count);
        check_sound(e, place_of(e, process), s, d);
        w.decisions++;
        w.joined += has_newcomers(e, d);
    }
    DEMAND(of->value[s] == value_of(d, of->count), "world %d, slot %u: process %d has kind %d, members %x; decided was kind %d, "
           "members %x", e, s + 1, process, (int)d->kind, set_of(d, of->count), (int)of->kind[s], of->set[s]);
}

/* ---- >>the program of a member ---- */

static void begin(int i)
{
    member *m = &w.m[i];
    if (m->is_dead || m->world < 0) return;
    coll__consensus *c = &m->sides[m->world].c;

    if (coll__consensus_is_busy(c)) {             /* it failed, learnt a decision behind that, and goes on    */
        m->has_begun = true;
        return;
    }
    if (m->is_stopped) {
        m->is_late_to_begin = true;
        return;
    }
    const coll__decision_kind kind = m->flags_left > 0 ? COLL__DECIDES_FLAGS : COLL__DECIDES_GO_ON;
    const uint64_t table = w.total > w.count && m->world == 0 && below(8) ? TABLE : 0;
    const uint64_t flags = kind == COLL__DECIDES_FLAGS ? m->flags << (c->slot - 1) : table;
    m->began = w.now;
    m->has_begun = true;
    TALK("%d begins kind %d of slot %u of world %d", i, (int)kind, c->slot, m->world);
    if (kind == COLL__DECIDES_FLAGS && c->slot <= SLOTS) m->sides[m->world].said[c->slot - 1] = flags;
    coll__consensus_learn(c, &m->sides[m->world].known);
    coll__consensus_begin(c, kind, flags, w.now, w.is_healed ? PATIENT : w.grace,
                          w.now + (w.is_healed ? (w.total + 1) * PATIENT : w.limit));
}

/* The process has gone on: the members of its last world may hear that it has left that one, before they hear why. */
static void leave(int i, int e)
{
    for (int p = 0; p < w.w[e].count; p++)
        if (w.w[e].process[p] != i) push(w.now + below(3) * below(20000), LEAVE, w.w[e].process[p], i)->world = e;
}

/* The process enters a world, which `d`, the last decision of the one before, has made. */
static void enter(int i, int e, const coll__decision *d)
{
    member *m = &w.m[i];
    world *of = &w.w[e], *before = e > 0 ? &w.w[e - 1] : NULL;

    if (m->world >= e) return;
    if (before && of->count == 0) {
        for (int p = 0; p < before->count; p++)
            if (coll__place_in(d->members, p)) of->process[of->count++] = before->process[p];
        of->voters = of->count;
        for (int k = w.count; k < w.total && has_newcomers(e - 1, d); k++) of->process[of->count++] = k;
    }
    const int place = place_of(e, i);
    DEMAND(place >= 0, "process %d enters world %d, and is not in it", i, e);
    if (place < 0) return;
    side *s = &m->sides[e];
    coll__consensus_open(&s->c, s->memory, of->count, place);
    s->c.voters = of->voters;
    s->known = (coll_decisions){ .failed = w.none_failed };
    for (int k = 0; k < SLOTS; k++) s->said[k] = UINT64_MAX;
    s->seen = 1;
    for (int p = 0; p < of->count; p++) if (p != place && m->is_up[of->process[p]]) coll__consensus_up(&s->c, p);
    m->world = e;
    m->flags_left = e > 0 ? (w.flag_ops ^ e) & 1 : w.flag_ops;
    push(w.now + below(3) * below(200000), BEGIN, i, i);
    if (before && place_of(e - 1, i) >= 0 && below(2)) leave(i, e - 1);
    TALK("%d enters world %d at place %d", i, e, place);
}

/* ---- >>lines ---- */

static int64_t delay(void) { return 20 + below(10) * below(10) * below(200); }

/* Sends on the line; NULL: it has ended. */
static event *send(int i, int k, event_kind kind)
{
    int64_t at = w.now + delay();

    if (!w.is_up[i][k]) return NULL;              /* it does not know yet                                     */
    if (at <= w.last[i][k]) at = w.last[i][k] + 1;
    w.last[i][k] = at;
    event *e = push(at, kind, i, k);
    e->line = w.line[i][k];
    return e;
}

/* The first member sends the decision that made the next world to a newcomer. */
static void send_entry(int i, int to, int e)
{
    const coll__consensus *c = &w.m[i].sides[e].c;
    const coll__member_note n = { .kind = COLL__NOTE_DECIDED, .slot = c->slot - 1, .decision = c->past };
    event *v = send(i, to, ENTRY);

    if (!v) return;
    v->world = e;
    v->length = coll__member_note_write(v->bytes, &n, c->count);
}

/* A proposer that decides early has waited for all members that live, can be reached, and are not said to be dead. */
static void check_waited(int i, int e, const coll__consensus *before, unsigned gone)
{
    const coll__consensus *const c = &w.m[i].sides[e].c;
    const bool is_early = w.now - w.m[i].began < before->grace / 4 && w.now < before->deadline;

    if (before->role != COLL__CONSENSUS_PROPOSES || before->is_bound || c->slot == before->slot || !is_early) return;
    for (int p = 0; p < c->count; p++) {
        const member *const m = &w.m[w.w[e].process[p]];
        const bool is_excused = m->is_dead || m->has_excuse || gone >> p & 1;
        DEMAND(coll__place_in(c->past.members, p) || is_excused, "world %d, slot %u: %d has not waited for %d", e, before->slot,
               i, w.w[e].process[p]);
    }
}

/* Looks at what has become of its operation. */
static void look_at(int i, int e)
{
    member *m = &w.m[i];
    side *s = &m->sides[e];
    coll__consensus *c = &s->c;

    note_accepted(s);
    if (c->slot != s->seen) {
        DEMAND(c->slot == s->seen + 1, "process %d goes from slot %u to %u", i, s->seen, c->slot);
        s->seen = c->slot;
        check_decision(i, e, c->slot - 2);
        TALK("%d learns slot %u of world %d: kind %d, members %x%s", i, c->slot - 1, e, (int)c->past.kind,
             set_of(&c->past, c->count), c->role == COLL__CONSENSUS_GIVEN_UP ? ", without it" : "");
        if (c->role == COLL__CONSENSUS_DECIDED && c->past.kind != COLL__DECIDES_GO_ON) {
            DEMAND(c->kind != COLL__DECIDES_GO_ON || coll__consensus_is_busy(c), "process %d is to go on, and ends", i);
            if (m->flags_left > 0 && c->past.kind == COLL__DECIDES_FLAGS) m->flags_left--;
            push(w.now + below(3) * below(200000), BEGIN, i, i);
        }
        for (int k = w.count; k < w.total && i == 0 && has_newcomers(e, &c->past); k++) send_entry(i, k, e);
        if (c->role == COLL__CONSENSUS_DECIDED && c->past.kind == COLL__DECIDES_GO_ON && e + 1 < w.worlds)
            enter(i, e + 1, &c->past);
        if (c->role == COLL__CONSENSUS_GIVEN_UP) w.given_up++;
    }
    if (e == m->world && c->role == COLL__CONSENSUS_TOO_FEW && m->has_begun) {
        m->has_begun = false;
        m->errors += w.is_healed;
        w.too_few++;
        TALK("%d has too few", i);
        if (below(8) == 0) m->flags_left = 0;     /* it does not repeat the call, but goes on                 */
        if (!w.is_healed || m->errors < 8) push(w.now + below(2000000), BEGIN, i, i);
    }
}

static void look(int i) { for (int e = 0; e < WORLDS; e++) if (is_in(i, e)) look_at(i, e); }

static void line_down(int a, int b)
{
    if (!w.is_up[a][b]) return;
    w.is_up[a][b] = w.is_up[b][a] = false;
    w.line[a][b] = ++w.line[b][a];
    push(w.now + delay(), DOWN, a, b);
    push(w.now + delay(), DOWN, b, a);
}

static void call(int i, int k)
{
    if (w.m[i].is_up[k] || w.m[i].is_calling[k]) return;
    w.m[i].is_calling[k] = true;
    push(w.now + delay(), CALL, i, k);
}

static void pump(int i)
{
    unsigned char bytes[ROOM];
    member *m = &w.m[i];
    int64_t next = 0;

    if (m->is_dead || m->is_stopped) return;
    for (int e = 0; e < WORLDS; e++) {
        coll__consensus *c = &m->sides[e].c;
        if (!is_in(i, e)) continue;
        for (int p = 0; p < c->count; p++) if (m->left[e] >> w.w[e].process[p] & 1) coll__consensus_suspect(c, p);
        const coll__consensus before = *c;
        unsigned gone = 0;
        for (int p = 0; p < c->count; p++)
            gone |= (unsigned)(c->places[p].has_failed || m->left[e] >> w.w[e].process[p] & 1) << p;
        coll__consensus_tick(c, w.now);
        check_waited(i, e, &before, gone);
        look_at(i, e);
        for (int p = 0; p < c->count; p++) {
            const int k = w.w[e].process[p];
            size_t length;
            while ((length = coll__consensus_say(c, p, bytes, w.now)) > 0) {
                event *v = send(i, k, NOTE);
                if (!v) continue;
                v->world = e;
                v->length = length;
                memcpy(v->bytes, bytes, length);
                if (bytes[0] == w.turn_kind && --w.turn_count == 0) push(w.now, TURN, i, k);
            }
            if (coll__consensus_wants(c, p)) call(i, k);
        }
        const int64_t due = coll__consensus_next(c);
        if (due && (next == 0 || due < next)) next = due;
    }
    if (next && next != m->tick_at) push(m->tick_at = next > w.now ? next : w.now + 1, TICK, i, i);
}

/* The line of i to k is up, is down, or k refuses: in all worlds. */
static void up(int i, int k)
{
    if (w.m[i].is_up[k]) return;
    w.m[i].is_up[k] = true;
    for (int e = 0, p; e < WORLDS; e++) if (is_in(i, e) && (p = place_of(e, k)) >= 0) coll__consensus_up(&w.m[i].sides[e].c, p);
}

static void down(int i, int k)
{
    if (!w.m[i].is_up[k] || w.is_up[i][k]) return;
    w.m[i].is_up[k] = false;
    for (int e = 0, p; e < WORLDS; e++) if (is_in(i, e) && (p = place_of(e, k)) >= 0) coll__consensus_down(&w.m[i].sides[e].c, p);
}

static void lost(int i, int k)
{
    for (int e = 0, p; e < WORLDS; e++)
        if (is_in(i, e) && (p = place_of(e, k)) >= 0 && !w.m[i].is_up[k]) coll__consensus_lost(&w.m[i].sides[e].c, p);
}

/* i has called k. */
static void called(int i, int k)
{
    member *m = &w.m[i];

    if (w.is_cut[i][k] || w.is_cut[k][i] || w.m[k].is_stopped) {
        push(w.now + 200000, CALL, i, k);
        return;
    }
    m->is_calling[k] = false;
    if (w.m[k].is_dead) {
        TALK("%d: %d refuses", i, k);
        lost(i, k);
        return;
    }
    if (w.is_up[i][k]) return;
    if (m->is_up[k] || w.m[k].is_up[i]) {         /* the end of the old line is on its way                    */
        m->is_calling[k] = true;
        push(w.now + 20000, CALL, i, k);
        return;
    }
    w.is_up[i][k] = w.is_up[k][i] = true;
    up(i, k);
    up(k, i);
    pump(k);
}

static void entry(const event *v)
{
    coll__member_note n;
    const bool is_valid = coll__member_note_read(&n, v->bytes, v->length, w.w[v->world].count);

    DEMAND(is_valid, "%d to %d: an invalid decision", v->from, v->to);
    if (is_valid) enter(v->to, v->world + 1, &n.decision);
}

/* ---- >>one event ---- */

/* What was held arrives now, in its order, or is held again. */
static void release(void)
{
    const int count = w.held_count;

    w.held_count = 0;
    for (int i = 0; i < count; i++) {
        event e = w.held[i];
        e.at = w.now;
        (void)insert(e);
    }
}

static void suspect(int i, int k)
{
    for (int e = 0, p; e < WORLDS; e++)
        if (is_in(i, e) && (p = place_of(e, k)) >= 0) coll__consensus_suspect(&w.m[i].sides[e].c, p);
}

/* No cut but this one, in both directions. */
static void cut_only(unsigned set)
{
    TALK("cut: %x from the rest", set);
    for (int i = 0; i < w.total; i++) w.m[i].has_excuse = true;
    for (int i = 0; i < w.total; i++)
        for (int k = 0; k < w.total; k++) w.is_cut[i][k] = set && ((set >> i ^ set >> k) & 1);
    release();
}

/* The cut that waited for a note of i to k.  Some of the lines end, too, and some members call again. */
static void turn(int i, int k)
{
    const bool ends = below(2), again = below(2);

    if (i == k) w.turn_kind = 0;                  /* healed for good                                          */
    if (i != k && !w.turn_kind) return;
    cut_only(i == k ? 0 : ((unsigned)draw() | 1u << i) & ~(1u << k));
    for (int a = 0; a < w.total && i != k; a++)
        for (int b = 0; b < a; b++) if (w.is_cut[a][b] ? ends : again && below(2)) line_down(a, b);
    if (below(4) == 0) w.turn_count = 1 + (int)below(6 * w.count);
}

static void fault(const event *e)
{
    const int a = e->from, b = e->to;
    member *const m = e->kind == CUT || e->kind == HEAL ? NULL : &w.m[a];

    if (e->kind == KILL) {
        TALK("%d is killed", a);
        m->is_dead = true;
        for (int k = 0; k < w.total; k++) if (k != a) line_down(a, k);
    } else if (e->kind == STOP) {
        TALK("%d stops", a);
        m->is_stopped = m->has_excuse = true;
    } else if (e->kind == GO_ON) {
        TALK("%d goes on", a);
        m->is_stopped = false;
        if (m->is_late_to_begin) begin(a);
        m->is_late_to_begin = false;
        release();
        pump(a);
    } else if (e->kind == CUT || e->kind == HEAL) {
        TALK("%s: %x to %x", e->kind == CUT ? "cut" : "healed", a, b);
        for (int i = 0; i < w.total; i++) {
            w.m[i].has_excuse |= (a | b) >> i & 1;
            for (int k = 0; k < w.total; k++) if (a >> i & 1 && b >> k & 1) w.is_cut[i][k] = e->kind == CUT;
        }
        release();
    } else if (e->kind == SUSPECT) {
        TALK("%d suspects %d", a, b);
        w.m[b].has_excuse = true;
        suspect(a, b);
    } else if (e->kind == LEAVE) {
        TALK("%d hears that %d has left world %d", a, b, e->world);
        m->left[e->world] |= 1u << b;
    } else if (e->kind == TURN) {
        turn(a, b);
    } else {
        TALK("the line between %d and %d ends", a, b);
        line_down(a, b);
    }
}

/* What comes on a line. */
static void arrives(const event *e)
{
    const int who = e->to, place = e->kind == NOTE ? place_of(e->world, e->from) : 0;

    if (e->line != w.line[e->from][who] || !w.m[who].is_up[e->from]) return;
    if (e->kind == ENTRY) entry(e);
    else if (is_in(who, e->world)) {
        DEMAND(coll__consensus_note(&w.m[who].sides[e->world].c, place, e->bytes, e->length, w.now), "%d to %d: refused", e->from,
               who);
        TALK("   %d -> %d: kind %d, world %d", e->from, who, e->bytes[0], e->world);
    }
}

static void step(void)
{
    event e = pop();

    w.now = e.at;
    if (e.kind >= KILL && e.kind <= END_LINE) {
        fault(&e);
        return;
    }
    const bool is_sent = e.kind <= ENTRY;
    const int who = is_sent ? e.to : e.from;
    if (w.m[who].is_dead) return;
    if (w.m[who].is_stopped || (is_sent && w.is_cut[e.from][e.to])) {             /* later, in order           */
        if (is_sent && e.line != w.line[e.from][e.to]) return;
        if (e.kind == BEGIN) {
            begin(who);
            return;
        }
        if (w.held_count == HELD) fprintf(stderr, "seed %llu: too many are held\n", (unsigned long long)w.seed), abort();
        w.held[w.held_count++] = e;
        return;
    }
    if (is_sent) arrives(&e);
    else if (e.kind == CALL) called(e.from, e.to);
    else if (e.kind == BEGIN) begin(who);
    else if (e.kind == DOWN) down(who, e.to);
    else if (e.kind == TICK && w.m[who].tick_at == e.at) w.m[who].tick_at = 0;
    look(who);
    pump(who);
}

/* ---- >>a world ---- */

static void plan_faults(int64_t span)
{
    const int faults = (int)below(below(2) ? 6 : 20);
    int stops = 0, kills = 0;

    for (int f = 0; f < faults; f++) {
        const int64_t at = below(span), then = at + 1 + below(span);
        const int a = (int)below(w.total), b = (a + 1 + (int)below(w.total - 1)) % w.total;
        const int set = 1 + (int)below((1 << w.total) - 2), all = ((1 << w.total) - 1) & ~set;
        const int rest = below(2) ? all : 1 << b & all ? 1 << b : all & (int)draw();
        switch (below(9)) {
            case 0: if (kills++ < 3) push(at, KILL, a, a); break;
            case 1: if (stops++ == 0) push(at, STOP, a, a), push(then, GO_ON, a, a); break;
            case 2: case 5:
                push(at, CUT, set, rest), push(at, CUT, rest, set);
                push(then, HEAL, set, rest), push(then, HEAL, rest, set);
                break;
            case 3: case 4: push(at, CUT, set, rest), push(then, HEAL, set, rest); break;
            case 6: push(at, SUSPECT, a, b); break;
            default: push(at, END_LINE, a, b); break;
        }
    }
    w.healed_at = 2 * span + 1;
    if (below(3)) return;
    w.turn_kind = COLL__NOTE_HOLD + (int)below(3);                /* the network is cut, and anew when a note is under way */
    w.turn_count = 1 + (int)below(below(2) ? w.count : 6 * w.count);
    w.grace = 50000 + below(300000);
    w.limit = 1000 + below(1000000);
    cut_only((unsigned)draw() & (unsigned)draw());
    push(2 * span, TURN, 0, 0);
}

/* It goes on in the last world, was given up, or waits to come in. */
static bool is_over(int i)
{
    const member *m = &w.m[i];

    if (m->is_dead || m->world < 0) return true;
    const coll__consensus *c = &m->sides[m->world].c;
    return coll__consensus_is_over(c) && (c->role == COLL__CONSENSUS_GIVEN_UP || m->world == w.worlds - 1);
}

static bool all_over(void)
{
    for (int i = 0; i < w.total; i++) if (!is_over(i)) return false;
    return true;
}

/* After the faults: those that have entered a world, and are left, must make its decision, or cannot.  A member that has not
 * entered it waits for a decision of the world before, where only other members can tell it: newcomers know that decision, but
 * have no line of that world. */
static void check_progress(void)
{
    const double waited = (double)(w.now - w.healed_at) * 1e-6;

    for (int e = 0; e < w.worlds; e++) {
        unsigned here = 0, open = 0;
        int knows = -1;
        for (int p = 0; p < w.w[e].count; p++) {
            const int i = w.w[e].process[p];
            const member *m = &w.m[i];
            const coll__consensus *c = &m->sides[e].c;
            if (m->is_dead || !is_in(i, e) || c->role == COLL__CONSENSUS_GIVEN_UP) continue;
            if (coll__consensus_is_over(c)) knows = i;
            else open |= 1u << p;
            here |= 1u << p;
        }
        if (!open) continue;
        DEMAND(knows < 0, "world %d: process %d knows who goes on, and %x have not learnt it in %.1f s", e, knows, open, waited);
        DEMAND(knows >= 0 || !is_most(here, w.w[e].voters), "world %d: %x of %d are left, and nothing was decided in %.1f s", e,
               here, w.w[e].count, waited);
    }
}

/* Before the faults round 0 has decided `count` slots of the first world.  In the next one some have accepted, or all; then some
 * know that. */
static void round_0(uint32_t count)
{
    world *const of = &w.w[0];
    const unsigned all = (1u << w.count) - 1, some = (unsigned)draw() & (unsigned)draw() & all;
    const unsigned accepted = below(2) ? all : (unsigned)draw() & all, decided = accepted == all ? some : 0;
    uint64_t flags[SLOTS];

    for (uint32_t s = 0; s <= count; s++) {
        flags[s] = UINT64_MAX;
        for (int i = 0; i < w.count; i++) flags[s] &= w.m[i].flags << s;
        for (int i = 0; i < w.count && (s < count || accepted); i++) w.m[i].sides[0].said[s] = w.m[i].flags << s;
    }
    of->chosen = accepted == all ? count + 1 : 0;
    for (int i = 0; i < w.count; i++) {
        member *m = &w.m[i];
        side *v = &m->sides[0];
        const uint32_t own = count + (decided >> i & 1);
        v->known = (coll_decisions){ .count = own, .last = own ? flags[own - 1] : 0, .next = flags[count],
                                     .failed = w.none_failed, .has_next = own == count && accepted >> i & 1 };
        m->flags_left = m->flags_left + (int)(count + 1 - own);
        coll__consensus_learn(&v->c, &v->known);
        v->seen = v->c.slot;
        note_accepted(v);
        for (uint32_t s = 0; s < own; s++) {
            of->is_decided[s] = true;
            of->kind[s] = COLL__DECIDES_FLAGS;
            of->flags[s] = flags[s];
            of->set[s] = all;
            v->c.past.flags = flags[s];
            of->value[s] = value_of(&v->c.past, w.count);
        }
    }
}

static void set_up(void)
{
    const int64_t spread = below(2) ? 1 : below(2) ? 5000 : 1000000;
    const int lines = (int)below(3);

    w.count = below(2) ? 3 + (int)below(3) : 2 + (int)below(MEMBERS - 1);
    w.worlds = below(2) ? 1 : 2 + (int)below(2);
    w.total = w.count + (w.worlds > 1 ? (int)below(NEWCOMERS + 1) : 0);
    w.flag_ops = (int)below(3);
    w.grace = below(2) ? 3000000 : 50000 + below(300000);
    w.limit = below(3) ? 8000000 : 1000 + below(1000000);
    TALK("%d members, %d newcomers, %d worlds, %d flags", w.count, w.total - w.count, w.worlds, w.flag_ops);
    w.w[0].count = w.count;
    w.w[0].voters = w.count;
    for (int i = 0; i < w.count; i++) w.w[0].process[i] = i;
    for (int i = 0; i < w.total; i++) {
        member *m = &w.m[i];
        m->flags = draw() | draw();
        m->world = -1;
        if (i >= w.count) continue;
        enter(i, 0, NULL);
        push(below(spread), BEGIN, i, i);
    }
    if (below(2)) round_0((uint32_t)below(3));
    for (int i = 0; i < w.total; i++)
        for (int k = 0; k < i; k++) {
            if (i >= w.count ? k > 0 : lines == 0 || (lines == 1 && k > 0)) continue;
            w.is_up[i][k] = w.is_up[k][i] = true;
            up(i, k), up(k, i);
        }
}

static void run_seed(uint64_t seed, bool talks)
{
    event *heap = w.heap, *held = w.held;
    const uint64_t decisions = w.decisions, too_few = w.too_few, given_up = w.given_up, joins = w.joined;
    const int64_t slowest = w.slowest;

    memset(&w, 0, sizeof w);
    w.heap = heap;
    w.held = held;
    w.decisions = decisions, w.too_few = too_few, w.given_up = given_up, w.slowest = slowest;
    w.joined = joins;
    w.seed = w.state = seed;
    w.talks = talks;
    set_up();
    plan_faults(below(3) == 0 ? 2000 : below(2) ? 100000 : 6000000);
    int steps = 0;
    while (w.events > 0 && w.now < (int64_t)NEVER_ENDS * 1000000 && ++steps < STEPS) {
        if (!w.is_healed && w.heap[0].at > w.healed_at) w.is_healed = true;
        step();
        if (all_over()) break;
    }
    if (w.is_healed && w.now - w.healed_at > w.slowest) w.slowest = w.now - w.healed_at;
    w.is_healed = true;
    DEMAND(steps < STEPS, "%d events, and no end", steps);
    check_progress();
}

#include "members_detector.h"

int main(int argc, char **argv)
{
    const char *one = getenv("COLL_TEST_SEED");
    const uint64_t seeds = one ? 1 : argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    const uint64_t first = one ? strtoull(one, NULL, 10) : argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

    w.heap = (event *)malloc(EVENTS * sizeof *w.heap);
    w.held = (event *)malloc(HELD * sizeof *w.held);
    if (!w.heap || !w.held) return 1;
    test_paths();
    test_waits();
    test_sentences();
    for (uint64_t i = 0; i < seeds && check__failed < 10; i++) {
        run_seed(first + i, one != NULL);
        run_watchers(first + i);
        CHECK(true, "seed");
    }
    printf("%llu seeds from %llu: %llu decisions, %llu times too few, %llu given up, %llu with newcomers; the last "
           "decision %.1f s after the faults\n", (unsigned long long)seeds, (unsigned long long)first,
           (unsigned long long)w.decisions, (unsigned long long)w.too_few, (unsigned long long)w.given_up,
           (unsigned long long)w.joined, (double)w.slowest * 1e-6);
    printf("%llu decisions of failures, %llu silent members\n", (unsigned long long)f.decisions, (unsigned long long)f.deaths);
    free(w.heap);
    free(w.held);
    return CHECK_DONE();
}
