/* test_members - the consensus of members (core/membership) in a world of its own: 2 to 9 members, and lines between them.
 * Everything follows from one seed: when members begin, delays, deaths, pauses, cuts in one direction or both, lines that
 * end, errors and repeated calls, decisions of round 0, the last of them perhaps known to some members only.  Then all is healed,
 * and progress is required.
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

#include "../support/check.h"

enum {
    MOST = 9, SLOTS = 7, ACCEPTED = 64, EVENTS = 1 << 16, STEPS = 1 << 18, HELD = 1 << 14,
    NEVER_ENDS = 600                              /* virtual seconds                                          */
};

typedef enum event_kind { NOTE, CALL, TICK, BEGIN, DOWN, KILL, STOP, GO_ON, CUT, HEAL, SUSPECT, END_LINE } event_kind;

typedef struct event {
    int64_t  at;
    uint64_t order;
    event_kind kind;
    int      from, to;
    unsigned line;                                /* the number of the line                                   */
    size_t   length;
    unsigned char bytes[48];
} event;

typedef struct member {
    coll__consensus c;
    uint64_t memory[MOST * sizeof(coll__consensus_place) / 8 + 8];
    bool     is_dead, is_stopped, has_begun, is_late_to_begin;
    int      flags_left, errors;                  /* operations before the last; how often it failed          */
    uint64_t flags, said[SLOTS];                  /* said: what it has brought to each slot                   */
    coll_decisions known;                         /* of round 0                                               */
    int64_t  began, tick_at;
    uint32_t seen;                                /* the slot at the last look                                */
    bool     is_calling[MOST];
    uint64_t accepted[SLOTS][ACCEPTED];
    int      accepted_count[SLOTS];
} member;

static struct {
    uint64_t seed, state, order;
    int64_t  now, healed_at, grace, limit;        /* us                                                       */
    int      count, events, flag_ops;
    bool     talks, is_cut[MOST][MOST], is_up[MOST][MOST], is_healed;
    unsigned line[MOST][MOST];
    int64_t  last[MOST][MOST];                    /* the last arrival, by direction                           */
    member   m[MOST];
    event   *heap, *held;                         /* held: cannot arrive now                                  */
    int      held_count;
    bool     is_decided[SLOTS];
    coll__decision_kind decided_kind[SLOTS];
    uint64_t decided_flags[SLOTS];
    unsigned decided_set[SLOTS];
    uint32_t chosen;                              /* this slot is decided by round 0; 0: none is              */
    unsigned char none_failed[MOST];
    int64_t  slowest;
    uint64_t decisions, too_few, given_up;
} w;

static uint64_t draw(void) { return w.state += UINT64_C(0x9e3779b97f4a7c15), coll__mix64(w.state); }
static int64_t below(int64_t n) { return (int64_t)(draw() % (uint64_t)n); }

#define TALK(...) (w.talks ? (void)(printf("%9.6f ", (double)w.now * 1e-6), printf(__VA_ARGS__), putchar('\n')) : (void)0)
#define DEMAND(condition, ...)                                                                   \
    do {                                                                                         \
        if (!(condition)) fprintf(stderr, "seed %llu, at %.6f s: ", (unsigned long long)w.seed, (double)w.now * 1e-6); \
        CHECK(condition, __VA_ARGS__);                                                           \
    } while (0)

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

static uint64_t value_of(const coll__decision *d)
{
    uint64_t hash = coll__hash_with(coll__hash_with(coll__hash_of_none, (uint64_t)d->kind), d->flags);
    for (size_t i = 0; i < coll__places_length(w.count); i++) hash = coll__hash_with(hash, d->members[i]);
    return hash;
}

static unsigned set_of(const coll__decision *d)
{
    unsigned set = 0;
    for (int i = 0; i < w.count; i++) set |= (unsigned)coll__place_in(d->members, i) << i;
    return set;
}

/* Remember what a member has accepted. */
static void note_accepted(member *m)
{
    const uint32_t s = m->c.slot - 1;
    if (s >= SLOTS || m->c.ballot == 0) return;
    const uint64_t what = coll__hash_with(value_of(&m->c.held), m->c.ballot);
    for (int i = 0; i < m->accepted_count[s]; i++) if (m->accepted[s][i] == what) return;
    if (m->accepted_count[s] < ACCEPTED) m->accepted[s][m->accepted_count[s]++] = what;
}

/* Has a quorum accepted one value at one ballot? */
static bool was_accepted(uint32_t s)
{
    for (int k = 0; k < w.count; k++)
        for (int a = 0; a < w.m[k].accepted_count[s]; a++) {
            bool has_first = false;
            int there = 0;
            for (int i = 0; i < w.count; i++)
                for (int b = 0; b < w.m[i].accepted_count[s]; b++)
                    if (w.m[i].accepted[s][b] == w.m[k].accepted[s][a]) there++, has_first |= i == 0;
            if (coll__is_enough(there, has_first, w.count)) return true;
        }
    return false;
}

/* A member has learnt a decision. */
static void check_decision(int place, uint32_t s)
{
    const coll__decision *const d = &w.m[place].c.past;
    const unsigned set = set_of(d);

    if (s >= SLOTS) return;
    if (!w.is_decided[s]) {
        uint64_t flags = ~UINT64_C(0);
        w.is_decided[s] = true;
        w.decided_kind[s] = d->kind;
        w.decided_flags[s] = d->flags;
        w.decided_set[s] = set;
        w.decisions++;
        for (int i = 0; i < w.count; i++) if (set >> i & 1) flags &= w.m[i].said[s];
        DEMAND(s + 1 != w.chosen || set == (1u << w.count) - 1, "slot %u: all have accepted round 0, not %x", s + 1, set);
        DEMAND(d->flags == flags, "slot %u: flags %llx, and the members' are %llx", s + 1, (unsigned long long)d->flags,
               (unsigned long long)flags);
        DEMAND(coll__is_enough(__builtin_popcount(set), set & 1, w.count), "slot %u: %x is no quorum of %d", s + 1, set, w.count);
        DEMAND(set == 1u << place || was_accepted(s), "slot %u: %x was not accepted by a quorum", s + 1, set);
        DEMAND(s == 0 || w.is_decided[s - 1], "slot %u is decided before the one before it", s + 1);
        DEMAND(s == 0 || !(set & ~w.decided_set[s - 1]), "slot %u: %x, after %x", s + 1, set, w.decided_set[s - 1]);
    }
    DEMAND(w.decided_kind[s] == d->kind && w.decided_flags[s] == d->flags && w.decided_set[s] == set,
           "slot %u: place %d has kind %d, flags %llx, members %x; decided was kind %d, flags %llx, members %x", s + 1, place,
           (int)d->kind, (unsigned long long)d->flags, set, (int)w.decided_kind[s], (unsigned long long)w.decided_flags[s],
           w.decided_set[s]);
}

/* ---- >>the program of a member ---- */

static void begin(int i)
{
    member *m = &w.m[i];
    const bool is_last = m->flags_left == 0;

    if (m->is_dead || coll__consensus_is_busy(&m->c)) return;
    if (m->is_stopped) {
        m->is_late_to_begin = true;
        return;
    }
    m->began = w.now;
    m->has_begun = true;
    TALK("%d begins %s of slot %u", i, is_last ? "go on" : "flags", m->c.slot);
    if (!is_last) m->said[m->c.slot - 1] = m->flags << (m->c.slot - 1);
    coll__consensus_learn(&m->c, &m->known);
    coll__consensus_begin(&m->c, is_last ? COLL__DECIDES_GO_ON : COLL__DECIDES_FLAGS, m->flags << (m->c.slot - 1), w.now,
                          w.is_healed ? 3000000 : w.grace, w.now + (w.is_healed ? 8000000 : w.limit));
}

/* Looks at what has become of its operation. */
static void look(int i)
{
    member *m = &w.m[i];
    coll__consensus *c = &m->c;

    note_accepted(m);
    if (c->slot != m->seen) {
        DEMAND(c->slot == m->seen + 1, "place %d goes from slot %u to %u", i, m->seen, c->slot);
        m->seen = c->slot;
        check_decision(i, c->slot - 2);
        TALK("%d learns slot %u: kind %d, members %x%s", i, c->slot - 1, (int)c->past.kind, set_of(&c->past),
             c->role == COLL__CONSENSUS_GIVEN_UP ? ", without it" : "");
        if (c->role == COLL__CONSENSUS_DECIDED && c->past.kind == COLL__DECIDES_FLAGS) {
            DEMAND(c->kind != COLL__DECIDES_GO_ON || coll__consensus_is_busy(c), "place %d is to go on, and ends", i);
            if (m->flags_left > 0) m->flags_left--;
            push(w.now + below(3) * below(200000), BEGIN, i, i);
        }
        if (c->role == COLL__CONSENSUS_GIVEN_UP) w.given_up++;
    }
    if (c->role == COLL__CONSENSUS_TOO_FEW && m->has_begun) {
        m->has_begun = false;
        m->errors += w.is_healed;
        w.too_few++;
        TALK("%d has too few", i);
        if (below(8) == 0) m->flags_left = 0;     /* it does not repeat the call, but goes on                 */
        if (!w.is_healed || m->errors < 6) push(w.now + below(2000000), BEGIN, i, i);
    }
}

/* ---- >>lines ---- */

static int64_t delay(void) { return 20 + below(10) * below(10) * below(200); }

static void line_down(int a, int b)
{
    if (!w.is_up[a][b]) return;
    w.is_up[a][b] = w.is_up[b][a] = false;
    w.line[a][b] = ++w.line[b][a];
    push(w.now + delay(), DOWN, a, b);
    push(w.now + delay(), DOWN, b, a);
}

static void pump(int i)
{
    member *m = &w.m[i];

    if (m->is_dead || m->is_stopped) return;
    coll__consensus_tick(&m->c, w.now);
    look(i);
    for (int k = 0; k < w.count; k++) {
        unsigned char bytes[48];
        size_t length;
        while ((length = coll__consensus_say(&m->c, k, bytes, w.now)) > 0) {
            int64_t at = w.now + delay();
            if (!w.is_up[i][k]) continue;         /* it does not know yet                                     */
            if (at <= w.last[i][k]) at = w.last[i][k] + 1;
            w.last[i][k] = at;
            event *e = push(at, NOTE, i, k);
            e->line = w.line[i][k];
            e->length = length;
            memcpy(e->bytes, bytes, length);
        }
        if (coll__consensus_wants(&m->c, k) && !m->c.places[k].is_up && !m->is_calling[k]) {
            m->is_calling[k] = true;
            push(w.now + delay(), CALL, i, k);
        }
    }
    const int64_t next = coll__consensus_next(&m->c);
    if (next && next != m->tick_at) push(m->tick_at = next > w.now ? next : w.now + 1, TICK, i, i);
}

static void up(int i, int k)
{
    if (!w.m[i].c.places[k].is_up) coll__consensus_up(&w.m[i].c, k);
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
        if (!m->c.places[k].is_up) coll__consensus_lost(&m->c, k);
        return;
    }
    if (w.is_up[i][k]) return;
    if (m->c.places[k].is_up || w.m[k].c.places[i].is_up) {         /* the end of the old line is on its way    */
        m->is_calling[k] = true;
        push(w.now + 20000, CALL, i, k);
        return;
    }
    w.is_up[i][k] = w.is_up[k][i] = true;
    up(i, k);
    up(k, i);
    pump(k);
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

static void fault(const event *e)
{
    const int a = e->from, b = e->to;
    member *const m = e->kind == CUT || e->kind == HEAL ? NULL : &w.m[a];

    if (e->kind == KILL) {
        TALK("%d is killed", a);
        m->is_dead = true;
        for (int k = 0; k < w.count; k++) if (k != a) line_down(a, k);
    } else if (e->kind == STOP) {
        TALK("%d stops", a);
        m->is_stopped = true;
    } else if (e->kind == GO_ON) {
        TALK("%d goes on", a);
        m->is_stopped = false;
        if (m->is_late_to_begin) begin(a);
        m->is_late_to_begin = false;
        release();
        pump(a);
    } else if (e->kind == CUT || e->kind == HEAL) {
        TALK("%s: %x to %x", e->kind == CUT ? "cut" : "healed", a, b);
        for (int i = 0; i < w.count; i++)
            for (int k = 0; k < w.count; k++) if (a >> i & 1 && b >> k & 1) w.is_cut[i][k] = e->kind == CUT;
        release();
    } else if (e->kind == SUSPECT) {
        TALK("%d suspects %d", a, b);
        coll__consensus_suspect(&m->c, b);
    } else {
        TALK("the line between %d and %d ends", a, b);
        line_down(a, b);
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
    const int who = e.kind == NOTE ? e.to : e.from;
    if (w.m[who].is_dead) return;
    if (w.m[who].is_stopped || (e.kind == NOTE && w.is_cut[e.from][e.to])) {      /* later, in order           */
        if (e.kind == NOTE && e.line != w.line[e.from][e.to]) return;
        if (e.kind == BEGIN) {
            begin(who);
            return;
        }
        if (w.held_count == HELD) fprintf(stderr, "seed %llu: too many are held\n", (unsigned long long)w.seed), abort();
        w.held[w.held_count++] = e;
        return;
    }
    if (e.kind == NOTE) {
        if (e.line != w.line[e.from][e.to] || !w.m[who].c.places[e.from].is_up) return;
        DEMAND(coll__consensus_note(&w.m[who].c, e.from, e.bytes, e.length, w.now), "%d to %d: refused", e.from, e.to);
        TALK("   %d -> %d: kind %d", e.from, e.to, e.bytes[0]);
    } else if (e.kind == CALL) {
        called(e.from, e.to);
    } else if (e.kind == BEGIN) {
        begin(who);
    } else if (e.kind == DOWN) {
        if (w.m[who].c.places[e.to].is_up && !w.is_up[who][e.to]) coll__consensus_down(&w.m[who].c, e.to);
    } else if (e.kind == TICK && w.m[who].tick_at == e.at) {
        w.m[who].tick_at = 0;
    }
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
        const int a = (int)below(w.count), b = (a + 1 + (int)below(w.count - 1)) % w.count;
        const int set = 1 + (int)below((1 << w.count) - 2), all = ((1 << w.count) - 1) & ~set;
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
}

static bool all_over(void)
{
    for (int i = 0; i < w.count; i++) if (!w.m[i].is_dead && !coll__consensus_is_over(&w.m[i].c)) return false;
    return true;
}

/* After the faults: those that are left must make their decision, or cannot. */
static void check_progress(void)
{
    int alive = 0;
    bool has_first = false, is_any = false, goes_on = false;

    for (int i = 0; i < w.count; i++) {
        const member *m = &w.m[i];
        const bool is_in = !m->is_dead && m->c.role != COLL__CONSENSUS_GIVEN_UP;
        alive += is_in;
        has_first |= is_in && i == 0;
        is_any |= is_in && !coll__consensus_is_over(&m->c);
        goes_on |= is_in && coll__consensus_is_over(&m->c);
    }
    if (!is_any) return;
    DEMAND(!goes_on, "a member knows who goes on, and another has not learnt it in %.1f s", (double)(w.now - w.healed_at) * 1e-6);
    DEMAND(goes_on || !coll__is_enough(alive, has_first, w.count), "%d of %d are left, and nothing was decided in %.1f s", alive,
           w.count, (double)(w.now - w.healed_at) * 1e-6);
}

/* Before the faults round 0 has decided `count` slots.  In the next one some have accepted, or all; then some know that. */
static void round_0(uint32_t count)
{
    const unsigned all = (1u << w.count) - 1, some = (unsigned)draw() & (unsigned)draw() & all;
    const unsigned accepted = below(2) ? all : (unsigned)draw() & all, decided = accepted == all ? some : 0;
    uint64_t flags[SLOTS];

    for (uint32_t s = 0; s <= count; s++) {
        flags[s] = UINT64_MAX;
        for (int i = 0; i < w.count; i++) flags[s] &= w.m[i].flags << s;
        for (int i = 0; i < w.count && (s < count || accepted); i++) w.m[i].said[s] = w.m[i].flags << s;
        if (s == count && !decided) continue;
        w.is_decided[s] = true;
        w.decided_kind[s] = COLL__DECIDES_FLAGS;
        w.decided_flags[s] = flags[s];
        w.decided_set[s] = all;
    }
    w.chosen = accepted == all ? count + 1 : 0;
    for (int i = 0; i < w.count; i++) {
        member *m = &w.m[i];
        const uint32_t own = count + (decided >> i & 1);
        m->known = (coll_decisions){ .count = own, .last = own ? flags[own - 1] : 0, .next = flags[count],
                                     .failed = w.none_failed, .has_next = own == count && accepted >> i & 1 };
        m->flags_left = m->flags_left + (int)(count + 1 - own);
        coll__consensus_learn(&m->c, &m->known);
        m->seen = m->c.slot;
        note_accepted(m);
    }
}

static void run_seed(uint64_t seed, bool talks)
{
    event *heap = w.heap, *held = w.held;
    const uint64_t decisions = w.decisions, too_few = w.too_few, given_up = w.given_up;
    const int64_t slowest = w.slowest;

    memset(&w, 0, sizeof w);
    w.heap = heap;
    w.held = held;
    w.decisions = decisions, w.too_few = too_few, w.given_up = given_up, w.slowest = slowest;
    w.seed = w.state = seed;
    w.talks = talks;
    w.count = below(2) ? 3 + (int)below(3) : 2 + (int)below(MOST - 1);
    w.flag_ops = (int)below(3);
    const int64_t span = below(2) ? 2000 : below(2) ? 100000 : 6000000, spread = below(2) ? 1 : below(2) ? 5000 : 1000000;
    const int lines = (int)below(3);
    w.grace = below(2) ? 3000000 : 50000 + below(300000);
    w.limit = below(3) ? 8000000 : 1000 + below(1000000);
    TALK("%d members, %d flags", w.count, w.flag_ops);
    for (int i = 0; i < w.count; i++) {
        member *m = &w.m[i];
        coll__consensus_open(&m->c, m->memory, w.count, i);
        m->seen = 1;
        m->flags = draw() | draw();
        m->flags_left = w.flag_ops;
        for (int s = 0; s < SLOTS; s++) m->said[s] = UINT64_MAX;
        push(below(spread), BEGIN, i, i);
    }
    if (below(2)) round_0((uint32_t)below(3));
    for (int i = 0; i < w.count; i++)
        for (int k = 0; k < i; k++) {
            if (lines == 0 || (lines == 1 && k > 0)) continue;
            w.is_up[i][k] = w.is_up[k][i] = true;
            up(i, k), up(k, i);
        }
    plan_faults(span);
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

int main(int argc, char **argv)
{
    const char *one = getenv("COLL_TEST_SEED");
    const uint64_t seeds = one ? 1 : argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    const uint64_t first = one ? strtoull(one, NULL, 10) : argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

    w.heap = (event *)malloc(EVENTS * sizeof *w.heap);
    w.held = (event *)malloc(HELD * sizeof *w.held);
    if (!w.heap || !w.held) return 1;
    for (uint64_t i = 0; i < seeds && check__failed < 10; i++) {
        run_seed(first + i, one != NULL);
        CHECK(true, "seed");
    }
    printf("%llu seeds from %llu: %llu decisions, %llu times too few, %llu given up; the last decision %.1f s after the faults\n",
           (unsigned long long)seeds, (unsigned long long)first, (unsigned long long)w.decisions, (unsigned long long)w.too_few,
           (unsigned long long)w.given_up, (double)w.slowest * 1e-6);
    free(w.heap);
    free(w.held);
    return CHECK_DONE();
}
