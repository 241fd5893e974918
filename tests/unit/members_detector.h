/* members_detector.h - the failure detector and the outcome of a failure, in the same kind of world: 2 to 9 members and simulated
 * lines.  Beats are late or lost, lines are cut in one direction, members are killed, with or without an end of their lines,
 * stopped and continued, or leave; bytes wait in a line until its reader runs.  After member 0 has left, members open lines. */

enum { TIMEOUT = 800000, BEAT = TIMEOUT / COLL__BEATS, LIMIT = TIMEOUT + BEAT, LATE = 8000, SAID = 256, SOON = 100000, BOX = 64 };

typedef enum said_kind { SAYS_BEAT, SAYS_FAIL, SAYS_REPORT, SAYS_DEATH, SAYS_BYE, SAYS_END } said_kind;

/* One direction of a line; what has arrived and is not read. */
typedef struct box { int count, said[BOX]; said_kind kind[BOX]; int64_t last, arrived_at; } box;

/* The line that `from` has opened to `to`: boxes[0] is read by `to`, boxes[1] by `from`. */
typedef struct wire { bool is_up, is_calling; unsigned number; box boxes[2]; } wire;

typedef struct watcher {
    coll__detector d;
    coll__outcome  o;
    uint64_t memory[MEMBERS * (sizeof(coll__detector_line) + 16) / 8];
    bool     is_dead, is_stopped, has_left, never_came, is_sleepy, was_skipped;     /* sleepy: it reads behind its turns only   */
    int      told_left, told_dead;
    unsigned waits, met;                          /* after member 0 has left: for these; a note has come      */
    int64_t  turn_at, went_on_at, woke_at, failed_at, decided_at, asks_until;
    int      asked[MEMBERS];                      /* refusals, in a row                                       */
    int64_t  asked_at[MEMBERS];
    coll_failure cause;
} watcher;

static struct {
    watcher  m[MEMBERS];
    wire     wires[MEMBERS][MEMBERS];
    coll_failure said[SAID];
    int      count, said_count;
    bool     is_short, is_orphaned, has_cuts;     /* short: no stop or cut is as long as the timeout          */
    uint64_t deaths, decisions;
} f;

static const char *name_of(const void *names, int member, char *text, size_t room)
{
    (void)names;
    snprintf(text, room, "rank %d (of %d)", member, f.count);
    return text;
}

/* ---- >>lines ---- */

static void watcher_turn(int i);

static wire *wire_at(int i, int index, int *side)
{
    const bool is_opener = i != 0 && index < f.count;

    *side = is_opener ? 1 : 0;
    return is_opener ? &f.wires[i][index] : &f.wires[index % f.count][i];
}

static int other_end(int index) { return index % f.count; }
static int lines_of(int i) { return i == 0 ? f.count : 2 * f.count; }

static void wire_send(int i, int index, said_kind kind, int said)
{
    int side;
    wire *x = wire_at(i, index, &side);
    box *to = &x->boxes[!side];
    int64_t at = w.now + 20 + below(LATE);

    if (!x->is_up) return;
    if (at <= to->last) at = to->last + 1;
    to->last = at;
    event *e = push(at, NOTE, (int)((x - &f.wires[0][0]) / MEMBERS), (int)((x - &f.wires[0][0]) % MEMBERS));
    e->world = !side;
    e->line = x->number;
    e->length = (size_t)said;
    e->bytes[0] = (unsigned char)kind;
}

static void watcher_say(int i, said_kind kind, const coll_failure *failure, int but)
{
    const int said = failure ? f.said_count++ % SAID : 0;

    if (failure) f.said[said] = *failure;
    for (int k = 0; k < lines_of(i); k++) if (other_end(k) != i && k != but) wire_send(i, k, kind, said);
}

static void watcher_decide(int i, const coll_failure *failure, coll__failure_source source)
{
    watcher *m = &f.m[i];
    const coll_failure before = m->o.decision;
    const bool was_dead = failure->rank >= 0 && m->d.dead.has[failure->rank];
    const bool may_again = i == 0 && failure->rank == 0 && source == COLL__FROM_MEMBER && !m->o.is_taken
                        && coll__detector_slept(&m->d, w.now);
    const bool is_new = coll__outcome_decide(&m->o, failure, source, w.now);
    const bool dies = (failure->status == COLL_ERR_PEER || failure->status == COLL_ERR_TIMEOUT) && source != COLL__FROM_START
                   && (is_new || source == COLL__FROM_FIRST);

    DEMAND(is_new == (before.status == COLL_OK || may_again), "%d decides twice, or not: %s", i, failure->text);
    DEMAND(failure->rank < 0 || m->d.dead.has[failure->rank] == (was_dead || dies), "%d: %d is dead, or not", i, failure->rank);
    DEMAND(m->o.decision.status == (is_new ? failure->status : before.status), "%d has another decision", i);
    if (!is_new) return;
    TALK("%d decides: %s", i, failure->text);
    f.decisions++;
    m->decided_at = w.now;
    if (source != COLL__FROM_FIRST) watcher_say(i, SAYS_FAIL, &m->o.decision, -1);
}

static void watcher_reports(int i, const coll_failure *cause)
{
    watcher *m = &f.m[i];

    const bool is_first = m->o.decision.status == COLL_OK && (m->o.report.status == COLL_OK || i == 0 || m->d.left.has[0]);
    const coll_failure before = m->o.report;
    const bool sends = coll__outcome_report(&m->o, cause, w.now);

    DEMAND(sends == is_first, "%d reports twice, or not", i);
    DEMAND(before.status == COLL_OK || !strcmp(before.text, m->o.report.text), "%d has another report", i);
    if (!sends) return;
    DEMAND((m->o.decision.status != COLL_OK) == (i == 0 || m->d.left.has[0]), "%d decides, or not, alone", i);
    if (m->o.decision.status != COLL_OK) m->decided_at = w.now;
    if (m->o.decision.status != COLL_OK) watcher_say(i, SAYS_FAIL, &m->o.decision, -1);
    else watcher_say(i, SAYS_REPORT, &m->o.report, -1);
}

/* ---- >>reading ---- */

static void watcher_hears(int i, int index, said_kind kind, const coll_failure *what)
{
    watcher *m = &f.m[i];
    const bool is_first = i != 0 && index == 0;
    const int rank = coll__detector_met(&m->d, index, what->rank);

    m->met |= index < f.count ? 1u << index : 0;

    DEMAND(rank == (is_first ? what->rank : other_end(index)), "%d takes a note of %d for one about %d", i, other_end(index),
           rank);
    if (kind == SAYS_FAIL || kind == SAYS_REPORT || kind == SAYS_DEATH) {
        watcher_decide(i, what, is_first ? COLL__FROM_FIRST : kind == SAYS_REPORT ? COLL__FROM_REPORT : COLL__FROM_MEMBER);
    } else if (kind == SAYS_BYE && coll__members_add(&m->d.left, rank)) {
        const bool was_decided = m->o.decision.status != COLL_OK;
        TALK("%d hears that %d has left", i, rank);
        if (coll__outcome_left(&m->o, w.now)) {
            m->decided_at = w.now;
            watcher_say(i, SAYS_FAIL, &m->o.decision, -1);
        }
        const bool has_report = rank == 0 && m->o.report.status != COLL_OK && !m->o.is_asking;
        DEMAND(was_decided || (m->o.decision.status != COLL_OK) == has_report, "%d hears that %d has left, and decides, or not",
               i, rank);
    }
}

static void watcher_ends(int i, int index)
{
    watcher *m = &f.m[i];
    coll_failure failure = { COLL_OK, -1, "" };
    const int k = other_end(index);

    if (index >= f.count) return;
    if (i != 0 && k != 0) f.wires[i][k].is_up = false;
    const bool was_met = m->met >> index & 1, had_left = m->d.left.has[index], was_dead = m->d.dead.has[index];
    const coll__line_end end = coll__detector_ended(&m->d, index);
    DEMAND((end == COLL__END_DEATH) == (was_met && !had_left), "%d: the end of %d's line means %d", i, k, (int)end);
    DEMAND((end == COLL__END_EARLY) == (!was_met && !had_left && (i == 0 || k == 0)), "%d: the end of %d's line is early: %d", i,
           k, (int)end);
    DEMAND(m->d.dead.has[index] == (was_dead || end == COLL__END_DEATH), "%d: the end of %d's line, and no death", i, k);
    DEMAND(!m->d.lines[index].is_up, "%d: the line to %d is up", i, k);
    TALK("%d: the line to %d has ended, %d", i, k, (int)end);
    f.m[k].never_came |= end == COLL__END_EARLY;
    if (end == COLL__END_IN_ORDER) return;
    coll__failed_member(&m->o, &failure, COLL_ERR_PEER, k, end == COLL__END_EARLY ? "never came" : "is gone");
    watcher_decide(i, &failure, end == COLL__END_EARLY ? COLL__FROM_START : COLL__FROM_MEMBER);
    DEMAND(end != COLL__END_EARLY || m->d.dead.has[index] == was_dead, "%d: %d never came, and is dead", i, k);
}

static void watcher_reads(int i, int index)
{
    int side;
    wire *x = wire_at(i, index, &side);
    box *from = &x->boxes[side];

    if (from->count) coll__detector_heard(&f.m[i].d, index, w.now);
    for (int n = 0; n < from->count; n++) {
        coll_failure what = { COLL_OK, other_end(index), "" };
        if (from->kind[n] != SAYS_BEAT && from->kind[n] != SAYS_END) what = f.said[from->said[n]];
        if (from->kind[n] == SAYS_END) watcher_ends(i, index);
        else watcher_hears(i, index, from->kind[n], &what);
    }
    from->count = 0;
}

/* ---- >>turns ---- */

/* A member is declared dead because it was silent: it was, all that has come is read, and this one was awake. */
static void check_silent(int i, int first, int before, bool is_decided)
{
    watcher *m = &f.m[i];
    int side;

    for (int n = before; n < m->d.dead.count; n++) {
        const int k = m->d.dead.list[n];
        const box *from = &wire_at(i, k, &side)->boxes[side];
        const int64_t least = k == first || is_decided ? LIMIT : TIMEOUT;
        DEMAND(from->count == 0, "%d declares %d dead, and has not read all", i, k);
        DEMAND(w.now - from->arrived_at > least, "%d declares %d dead after %.3f s", i, k,
               (double)(w.now - from->arrived_at) * 1e-6);
        DEMAND(w.now - m->woke_at >= TIMEOUT / 2, "%d declares %d dead, and was stopped itself until %.3f s ago", i, k,
               (double)(w.now - m->woke_at) * 1e-6);
        DEMAND(!m->d.left.has[k], "%d declares %d dead, which has left", i, k);
        f.deaths++;
    }
}

static void watcher_checks(int i)
{
    watcher *m = &f.m[i];
    const bool is_decided = m->o.decision.status != COLL_OK;
    coll_failure failure = { COLL_OK, -1, "" };
    int count;

    for (int k = 0; k < lines_of(i); k++) if (other_end(k) != i) watcher_reads(i, k);
    const bool was_decided = is_decided || m->o.decision.status != COLL_OK;
    const int dead = m->d.dead.count, first = coll__detector_check(&m->d, was_decided, &count);
    DEMAND(count == m->d.dead.count - dead && (i == 0 || count <= 1), "%d: %d of %d die", i, count, m->d.dead.count - dead);
    DEMAND(first < 0 || m->d.dead.has[first], "%d: %d is silent, and not dead", i, first);
    check_silent(i, first, dead, was_decided);
    for (int k = 0; k < f.count && first >= 0; k++) {             /* who is with the first one                */
        int side;
        if (k == i || (i != 0 && k >= m->d.watched)) continue;
        const wire *x = wire_at(i, k, &side);
        const int64_t silent = w.now - m->d.lines[k].heard_at;
        if (i == 0 && !was_decided && !m->d.has_slept && x->is_up && m->d.lines[k].is_up && silent > TIMEOUT && !m->d.left.has[k])
            DEMAND(m->d.dead.has[k], "%d is silent, and does not die with %d", k, first);
    }
    if (first < 0 || was_decided) return;
    coll__failed_silent(&m->o, &failure, first, count, false);
    DEMAND(failure.rank == (2 * count > f.count ? 0 : first), "%d: %d of %d are silent, and %d is named", i, count, f.count,
           failure.rank);
    watcher_decide(i, &failure, COLL__FROM_MEMBER);
}

/* The program: it waits for members, takes decisions, and asks. */
static void watcher_program(int i)
{
    watcher *m = &f.m[i];
    const bool is_orphan = i != 0 && m->d.left.has[0];

    for (int k = 1; k < f.count && is_orphan; k++) {
        wire *x = &f.wires[i][k];
        if (!(m->waits >> k & 1) || k == i || x->is_up || x->is_calling || m->o.decision.status != COLL_OK) continue;
        m->d.watched = f.count;
        x->is_calling = true;
        push(w.now + (x->number ? BEAT : 0) + 20 + below(LATE), CALL, i, k);
    }
    if (m->o.decision.status != COLL_OK && !m->o.is_taken && below(4) == 0) m->o.is_taken = true;
    if (!m->o.is_asking) return;
    const int64_t until = coll__outcome_until(&m->o, m->cause.rank, m->asks_until - SOON, m->asks_until, m->asks_until + LIMIT);
    if (m->o.decision.status == COLL_OK && w.now < until) return;
    m->o.is_asking = false;
    const bool may_end = i == 0 || m->d.left.has[0] || !m->d.lines[0].is_up || w.now >= m->asks_until + LIMIT;
    DEMAND(m->o.decision.status != COLL_OK || may_end,
           "%d does not wait for the decision of member 0", i);
    watcher_decide(i, &m->cause, COLL__FROM_MEMBER);
}

static void watcher_turn(int i)
{
    watcher *m = &f.m[i];

    if (m->is_dead || m->is_stopped || m->has_left) return;
    const int64_t late = w.now - m->d.turned_at;
    const bool is_beat = coll__detector_turn(&m->d, w.now);
    if (late > TIMEOUT / 2) m->woke_at = w.now;
    DEMAND(late <= TIMEOUT / 2 || coll__detector_slept(&m->d, w.now), "%d does not know that it slept", i);
    DEMAND(m->woke_at || !coll__detector_slept(&m->d, w.now), "%d has not slept", i);
    if (is_beat) {
        m->was_skipped = !m->was_skipped && below(8) == 0;       /* lost, or late by one                     */
        if (!m->was_skipped) watcher_say(i, SAYS_BEAT, NULL, -1);
    }
    if (coll__detector_next(&m->d) <= w.now) watcher_checks(i);
    for (; i == 0 && m->told_left < m->d.left.count; m->told_left++) {
        const coll_failure what = { COLL_OK, m->d.left.list[m->told_left], "" };
        watcher_say(i, SAYS_BYE, &what, what.rank);
    }
    for (; i == 0 && m->o.decision.status != COLL_OK && m->told_dead < m->d.dead.count; m->told_dead++) {
        const coll_failure what = { COLL_ERR_PEER, m->d.dead.list[m->told_dead], "" };
        watcher_say(i, SAYS_DEATH, &what, -1);
    }
    for (int k = 0; k < lines_of(i) && (m->is_sleepy || m->went_on_at == w.now); k++)
        if (other_end(k) != i) watcher_reads(i, k);
    watcher_program(i);
    const int64_t next = coll__detector_next(&m->d);
    DEMAND(next > w.now || i != 0, "%d: no time passes", i);
    if (next != m->turn_at) push(m->turn_at = (next > w.now ? next : w.now + 1) + below(2) * below(1000), TICK, i, i);
}

/* ---- >>one event ---- */

/* i has called k, for which it waits: the line is up, or its address refuses. */
static void watcher_called(int i, int k)
{
    watcher *m = &f.m[i];
    wire *x = &f.wires[i][k];
    coll_failure failure = { COLL_OK, -1, "" };

    x->is_calling = false;
    x->number++;
    if (m->is_dead || m->has_left) return;
    if (w.is_cut[i][k]) {                         /* no answer                                                */
        m->asked[k] = 0;
        return;
    }
    if (f.m[k].is_dead || f.m[k].has_left) {
        const int addresses = 1 + 4 * (k % 4);
        if (m->asked[k]++ == 0) m->asked_at[k] = w.now;
        const bool is_gone = coll__detector_refused(&m->d, k, m->asked[k], addresses, w.now);
        DEMAND(is_gone == (w.now - m->asked_at[k] > TIMEOUT && m->asked[k] >= addresses), "%d: %d is gone, or not", i, k);
        if (!is_gone) return;
        coll__failed_member(&m->o, &failure, COLL_ERR_PEER, k, "is gone: its address refuses connections");
        watcher_decide(i, &failure, COLL__FROM_MEMBER);
        return;
    }
    *x = (wire){ .is_up = true, .number = x->number };
    x->boxes[0].arrived_at = x->boxes[1].arrived_at = w.now;
    coll__detector_up(&m->d, k, false, w.now);
    m->met &= ~(1u << k);
    wire_send(i, k, SAYS_BEAT, 0);
    if (f.m[k].o.decision.status != COLL_OK) {
        f.said[f.said_count % SAID] = f.m[k].o.decision;
        wire_send(k, f.count + i, SAYS_FAIL, f.said_count++ % SAID);
    }
}

/* All lines of i end; what was sent before arrives first.  Some end later, by `most`. */
static void watcher_lines_end(int i, int64_t most)
{
    for (int k = 0; k < lines_of(i); k++) {
        int side;
        if (other_end(k) == i) continue;
        box *to = &wire_at(i, k, &side)->boxes[!side];
        if (below(4) == 0) to->last = (to->last > w.now ? to->last : w.now) + below(2 * most);
        wire_send(i, k, SAYS_END, 0);
    }
}

static void watcher_leaves(int i)
{
    watcher *m = &f.m[i];
    const coll_failure what = { COLL_OK, i, "" };

    if (m->is_dead || m->is_stopped || m->has_left || m->o.decision.status != COLL_OK) return;
    TALK("%d leaves", i);
    watcher_say(i, SAYS_BYE, &what, -1);
    watcher_lines_end(i, TIMEOUT);
    m->has_left = true;
}

static void watcher_arrives(const event *e)
{
    wire *x = &f.wires[e->from][e->to];
    box *to = &x->boxes[e->world];
    const int i = e->world ? e->from : e->to, k = e->world ? e->to : e->from;
    watcher *m = &f.m[i];

    if (!x->is_up || x->number != e->line || m->is_dead || m->has_left) return;
    if (w.is_cut[k][i]) {
        w.held[w.held_count++] = *e;
        return;
    }
    if (to->count == BOX) return;                 /* only beats are so many                                   */
    to->kind[to->count] = (said_kind)e->bytes[0];
    to->said[to->count++] = (int)e->length;
    to->arrived_at = w.now;
    if (m->is_stopped || m->is_sleepy) return;
    watcher_reads(i, e->world || i == 0 ? k : f.count + k);
    watcher_turn(i);
}

static void watcher_event(const event *e)
{
    static const coll_status statuses[] = { COLL_ERR_PEER, COLL_ERR_TIMEOUT, COLL_ERR_MISMATCH, COLL_ERR_ABORTED };
    watcher *m = &f.m[e->from];

    switch (e->kind) {
    case NOTE: watcher_arrives(e); break;
    case CALL: watcher_called(e->from, e->to); break;
    case KILL:
        if (m->is_dead || m->has_left) break;
        TALK("%d is killed%s", e->from, e->world ? ", and its lines end" : "");
        if (e->world) watcher_lines_end(e->from, 1);
        m->is_dead = true;
        m->failed_at = w.now;
        break;
    case STOP: TALK("%d stops", e->from); m->is_stopped = true; break;
    case GO_ON:                                   /* the end of a stop within a stop changes nothing          */
        if (!m->is_stopped) break;
        TALK("%d goes on", e->from);
        m->is_stopped = false;
        m->went_on_at = w.now;
        watcher_turn(e->from);
        break;
    case CUT: w.is_cut[e->from][e->to] = true; break;
    case HEAL: w.is_cut[e->from][e->to] = false; release(); break;
    case LEAVE: watcher_leaves(e->from); break;
    case SUSPECT:                                 /* its program has found a failure                          */
        if (m->is_dead || m->is_stopped || m->has_left || m->o.is_asking) break;
        TALK("%d suspects %d", e->from, e->to);
        coll__failed_member(&m->o, &m->cause, statuses[below(4)], e->to, "does not answer");
        if (m->o.decision.status == COLL_OK && below(2)) m->o.is_asking = true, m->asks_until = w.now + SOON;
        watcher_reports(e->from, &m->cause);
        watcher_turn(e->from);
        break;
    default:
        if (m->turn_at <= w.now) m->turn_at = 0;
        watcher_turn(e->from);
        break;
    }
}

/* ---- >>a world ---- */

static void watchers_plan(void)
{
    const int64_t span = 4 * TIMEOUT;
    int64_t most = f.is_short ? TIMEOUT - BEAT - 4 * LATE : 3 * TIMEOUT;
    const int faults = (int)below(below(2) ? 3 : 8);

    const int64_t left_at = below(TIMEOUT), asks_at = left_at + below(2 * LATE) - LATE;
    const int asker = (int)below(f.count);

    if (f.is_orphaned) push(left_at, LEAVE, 0, 0);
    if (f.is_orphaned && below(4) == 0) push(asks_at > 0 ? asks_at : 0, SUSPECT, asker, (asker + 1) % f.count);
    for (int n = 0; n < faults; n++) {
        const int64_t at = below(8) ? TIMEOUT + below(span) : below(LATE), length = 1 + below(most), then = at + length;
        const int a = (int)below(f.count), b = (a + 1 + (int)below(f.count - 1)) % f.count;
        int64_t spent = 0;
        switch (below(8)) {
        case 0: case 1: push(at, KILL, a, a)->world = below(2); break;
        case 2: case 3: push(at, STOP, a, a), push(then, GO_ON, a, a), spent = length; break;
        case 4: case 5: push(at, CUT, a, b), push(then, HEAL, a, b), f.has_cuts = true, spent = length; break;
        case 6: if (f.is_orphaned || a) push(at, LEAVE, a, a); break;
        default:
            push(at, SUSPECT, a, b);
            if (below(2)) push(at + below(LATE), SUSPECT, a, (b + 1) % f.count);
            break;
        }
        if (f.is_short && most > spent + 1) most -= spent;       /* one after the other, they are short, too  */
    }
}

/* What must hold when nothing changes any more. */
static void watchers_end(int64_t over)
{
    const watcher *first = &f.m[0];

    for (int i = 0; i < f.count; i++) {
        const watcher *m = &f.m[i];
        if (m->is_dead || m->has_left) continue;
        const bool is_decided = m->o.decision.status != COLL_OK, has_first = !first->is_dead && !first->has_left;
        DEMAND(!m->o.is_asking, "%d still asks", i);
        for (int k = 0; k < f.count; k++) {
            const watcher *o = &f.m[k];
            const bool watches = k != i && (i == 0 || (k == 0 && !m->d.left.has[0]) || (m->waits >> k & 1 && m->d.left.has[0]));
            if (!watches || !o->is_dead || m->d.left.has[k]) continue;
            DEMAND(is_decided, "%d does not know that %d is dead, %.3f s later", i, k, (double)(over - o->failed_at) * 1e-6);
            DEMAND(m->d.dead.has[k] || i != 0 || o->never_came, "%d: %d is not among the dead", i, k);
            const int64_t late = LIMIT + 7 * BEAT / 2;
            const int64_t woke_at = m->woke_at - TIMEOUT / 2, heard_at = m->d.lines[k].heard_at;
            const int64_t on_at = heard_at < m->went_on_at ? m->went_on_at - LIMIT : heard_at - 3 * BEAT;     /* it read then */
            int64_t from = o->failed_at > woke_at ? o->failed_at : woke_at;
            if (on_at > from) from = on_at;
            DEMAND(!f.is_short || f.has_cuts || (i && k) || m->decided_at <= from + late, "%d knows %d's death after %.3f s", i,
                   k, (double)(m->decided_at - o->failed_at) * 1e-6);
        }
        if (i && has_first && f.is_short && first->o.decision.status != COLL_OK)
            DEMAND(is_decided && m->o.decision.rank == first->o.decision.rank && m->o.decision.status == first->o.decision.status
                   && !strcmp(m->o.decision.text, first->o.decision.text), "%d says \"%s\", and 0 \"%s\"", i, m->o.decision.text,
                   first->o.decision.text);
        for (int k = 0; k < first->d.dead.count && i && has_first && f.is_short; k++)
            DEMAND(m->d.dead.has[first->d.dead.list[k]], "%d does not know that %d is dead, which 0 knows", i,
                   first->d.dead.list[k]);
        if (i && is_decided && m->o.decision.rank == 0 && has_first && !first->o.is_taken && first->woke_at && !f.has_cuts)
            DEMAND(first->o.decision.rank == 0, "%d has given 0 up, and 0 says \"%s\"", i, first->o.decision.text);
    }
}

/* ---- >>single rules ---- */

/* A connection without beats: when had it the last answer, and since when is one missing? */
static void test_paths(void)
{
    uint64_t memory[2 * sizeof(coll__detector_line)] = { 0 };
    coll__detector d;
    int64_t since = 0, now = 1000;

    coll__detector_open(&d, memory, 3, 1);
    d.timeout = TIMEOUT;
    d.turned_at = now;
    DEMAND(!coll__detector_path(&d, 2, &since, 1, now) && since == now, "silence before the first look counts");
    now += LIMIT;
    DEMAND(!coll__detector_path(&d, 2, &since, 1, now), "a path is silent at the limit");
    DEMAND(coll__detector_path(&d, 2, &since, 1, now + 1) && since == 1000, "a path is not silent beyond the limit");
    coll__detector_up(&d, 2, true, now);
    DEMAND(!coll__detector_path(&d, 2, &since, 1, now + 1), "a path is silent, and the line of its member is watched");
    d.lines[2].is_up = false;
    DEMAND(!coll__detector_path(&d, 2, &since, now - 5, now + 1) && since == now - 5, "an answer does not count");
    DEMAND(!coll__detector_path(&d, 2, &since, 0, now + LIMIT) && since == 0, "a path is silent, and nothing is in flight");
    since = now;
    now += TIMEOUT;
    (void)coll__detector_turn(&d, now);
    DEMAND(!coll__detector_path(&d, 2, &since, 1, now + BEAT) && since == now + BEAT, "silence before a sleep counts");
    DEMAND(coll__detector_path(&d, 2, &since, 1, now + BEAT + LIMIT + 1), "a path is not silent after a sleep");
}

/* Until when a program waits for the decision. */
static void test_waits(void)
{
    uint64_t memory[2 * sizeof(coll__detector_line)] = { 0 };
    coll__detector d;
    coll__outcome o = { .detector = &d };

    for (int me = 0; me < 3; me++) {
        memset(memory, 0, sizeof memory);
        coll__detector_open(&d, memory, 4, me);
        d.timeout = TIMEOUT;
        for (int bits = 0; bits < 32; bits++) {
            const bool is_up = bits & 1, has_left = bits & 2, is_dead = bits & 4, has_gone = bits & 8, is_timed = bits & 16;
            d.lines[0].is_up = is_up, d.left.has[0] = has_left, d.dead.has[3] = is_dead, d.left.has[3] = has_gone;
            d.timeout = is_timed ? TIMEOUT : 0;
            const bool may_send = me > 0 && has_left && !is_dead && !has_gone && is_timed;
            for (int suspect = -1; suspect < 4; suspect++) {
                const bool is_other = suspect > 0 && suspect != me, sends = suspect == 3 ? may_send
                    : me > 0 && has_left && is_timed && is_other;
                const int64_t right = me > 0 && is_up && !has_left ? 3 : sends ? 2 : 1;
                DEMAND(coll__outcome_until(&o, suspect, 1, 2, 3) == right, "%d, %#x, %d: it waits until %d, not %d", me,
                       (unsigned)bits, suspect, (int)coll__outcome_until(&o, suspect, 1, 2, 3), (int)right);
            }
        }
    }
}

/* All say the same. */
static void test_sentences(void)
{
    static const struct { int me, first, count; bool is_unanswered; const char *text; int rank; } rows[] = {
        { 0, 2, 1, false, "rank 2 (of 5) has sent no heartbeat for 0.5 s", 2 },
        { 1, 0, 1, false, "rank 0 (of 5) has sent no heartbeat for 0.5 s", 0 },
        { 0, 2, 2, false, "rank 2 (of 5) has sent no heartbeat for 0.5 s, nor has rank 3", 2 },
        { 0, 0, 2, false, "rank 0 (of 5) has sent no heartbeat for 0.5 s, nor has rank 1", 0 },
        { 0, 2, 3, false, "rank 0 (of 5) is cut off: no heartbeat from ranks 2-4 for 0.5 s", 0 },
        { 0, 2, 1, true, "the link between rank 0 (of 5) and rank 2 (of 5) is silent: no answer for 0.5 s", 2 },
        { 3, 2, 1, true, "the link between rank 2 (of 5) and rank 3 (of 5) is silent: no answer for 0.5 s", 2 },
        { 0, 2, 2, true, "the link between rank 0 (of 5) and rank 2 (of 5) is silent: no answer for 0.5 s, nor from rank 3", 2 },
    };
    uint64_t memory[2 * sizeof(coll__detector_line)];
    coll__detector d;
    coll__outcome o = { .detector = &d, .name = name_of };

    f.count = 5;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        coll_failure failure = { COLL_OK, -1, "" };
        memset(memory, 0, sizeof memory);
        coll__detector_open(&d, memory, 5, rows[r].me);
        d.timeout = 500000000;
        for (int i = 0; i < rows[r].count; i++) (void)coll__members_add(&d.dead, rows[r].first + i);
        coll__failed_silent(&o, &failure, rows[r].first, rows[r].count, rows[r].is_unanswered);
        DEMAND(failure.status == COLL_ERR_PEER && failure.rank == rows[r].rank && !strcmp(failure.text, rows[r].text),
               "row %d: %d, \"%s\"", (int)r, failure.rank, failure.text);
    }
}

/* No kill, no report, no end: then nothing may be decided, as long as no stop or cut is as long as the timeout. */
static void run_watchers(uint64_t seed)
{
    bool may_fail = false;

    memset(&f.m, 0, sizeof f.m);
    memset(&f.wires, 0, sizeof f.wires);
    memset(w.is_cut, 0, sizeof w.is_cut);
    w.events = w.held_count = 0;
    w.now = f.has_cuts = 0;
    w.state = seed ^ UINT64_C(0x5bd1e995);
    f.count = 2 + (int)below(MEMBERS - 1);
    f.is_short = below(2);
    f.is_orphaned = below(3) == 0;
    for (int i = 0; i < f.count; i++) {
        watcher *m = &f.m[i];
        coll__detector_open(&m->d, m->memory, f.count, i);
        m->o = (coll__outcome){ &m->d, name_of, NULL, { COLL_OK, -1, "" }, { COLL_OK, -1, "" }, false, false };
        m->d.timeout = TIMEOUT;
        m->is_sleepy = below(4) == 0;
        m->waits = f.is_orphaned ? (unsigned)draw() & (unsigned)draw() : 0;
        for (int k = 1; k < f.count; k++) {
            if (i == 0 && below(2)) m->met |= 1u << k;
            if (i == 0) coll__detector_up(&m->d, k, m->met >> k & 1, w.now);
            f.wires[k][0].is_up = true;
        }
        if (i) m->met = (unsigned)below(2);
        if (i) coll__detector_up(&m->d, 0, m->met, w.now);
        push(0, TICK, i, i);
    }
    watchers_plan();
    for (int n = 0; n < w.events; n++)
        may_fail = may_fail || w.heap[n].kind == KILL || w.heap[n].kind == SUSPECT || (w.heap[n].kind == LEAVE && f.is_orphaned);
    const int64_t over = 16 * TIMEOUT;
    while (w.events > 0 && w.heap[0].at < over) {
        const event e = pop();
        w.now = e.at;
        watcher_event(&e);
    }
    for (int i = 0; i < f.count; i++)
        DEMAND(may_fail || !f.is_short || f.m[i].o.decision.status == COLL_OK, "%d: \"%s\", and nothing has failed", i,
               f.m[i].o.decision.text);
    watchers_end(over);
}
