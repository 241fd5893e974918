/* coll_consensus.h - how the members of a world make their decisions, one after the other: single-decree Paxos for each slot.
 *
 * Lamport, The Part-Time Parliament, 1998.  This is a state machine without socket, thread, clock, or memory of its own.  The
 * caller passes each event to it (up, down, lost, note, tick), and then reads which lines it wants and what to send on them.
 *
 *     member                  proposer
 *     hold (slot) ->                      announces itself: it has begun this slot
 *                          <- prepare (base)          accept no proposal below base from any member
 *     hold (accepted, base) ->            promise, with what it has accepted last, and its flags
 *                          <- ping        repeated: a sign of life, to be answered with a hold
 *                          <- propose (ballot)
 *     hold (ballot, base) ->              accepted
 *                          <- decided     once all members that are there have accepted; or too few
 *
 * The proposer is the first member that is neither lost nor late in a member's own view.  Different views only cost time: a
 * member that learns of an earlier proposer follows it, also if it was a proposer itself, unless it has a quorum.  A ballot is
 * a round, the place of its proposer, and a count.  A proposer needs a quorum of all members.  It proposes what one of them has
 * accepted, that of the highest ballot, for that may be decided.  Only the proposer that counts its own acceptances decides.
 * So it may replace its own proposal at the next ballot as long as one is missing.
 *
 * Newcomers have the last places.  They answer as all members do, and may propose, but are no part of a quorum.
 *
 * All that a member must remember is kept between operations that fail and are begun again: its promise and what it has accepted.
 * A member is lost if it refuses connections, and late if it gives no sign for `grace`.  With a quorum late members
 * are not waited for.  A member that a decision leaves out is given up, for ever.
 *
 * Notes of an earlier slot are answered with its decision.  Notes are not queued: what to send follows from the state when
 * a line can take it.  Cost: 3 notes to and from each member. */
#ifndef COLL_CONSENSUS_H
#define COLL_CONSENSUS_H

#include "coll_decision.h"

enum { COLL__CONSENSUS_SIGNS = 8 };               /* signs of life per grace                                  */

typedef enum coll__consensus_role {
    COLL__CONSENSUS_IDLE,                         /* nothing is under way; the slot may be open               */
    COLL__CONSENSUS_FOLLOWS, COLL__CONSENSUS_PROPOSES,
    COLL__CONSENSUS_DECIDED,                      /* in `past`                                                */
    COLL__CONSENSUS_TOO_FEW,                      /* the slot stays open: begin it again                      */
    COLL__CONSENSUS_GIVEN_UP                      /* the others have decided without this member              */
} coll__consensus_role;

/* What a member knows of another one. */
typedef struct coll__consensus_place {
    bool     is_up;                               /* the line to it                                           */
    bool     is_there;                            /* proposer: it has promised `base`                         */
    bool     is_lost, is_late;
    bool     is_suspect;                          /* it has left, or another member has declared it dead      */
    bool     has_failed;                          /* a decision has left it out                               */
    bool     owes_hold, owes_decision, owes_refusal, owes_ping;       /* what is to be said to it             */
    bool     is_prepared;                            /* proposer: it was sent the prepare of `base`              */
    uint64_t asked, holds;                        /* proposer: the last proposal sent to it; accepted by it   */
    uint64_t flags, newcomers;                    /* proposer: told by it                                     */
    int64_t  silent_since;                        /* since when an answer is missing; 0: none is              */
} coll__consensus_place;

typedef struct coll__consensus {
    int      count, me;
    int      voters;                              /* the others, behind them, are newcomers                   */
    coll__consensus_role role;
    uint32_t slot;                                /* of the next decision                                     */
    uint64_t promised, ballot;                    /* it accepts nothing below; of `held`, 0: none             */
    bool     is_bound;                            /* `held` is from another proposer                          */
    coll__decision held, past;                    /* the last accepted or own proposal; the last decision, of the slot before */
    coll__decision_kind kind;                     /* of the operation under way                               */
    uint64_t flags, newcomers;                    /* newcomers: a hash of their table, for a go on; 0: none   */
    int      proposer;                            /* the one that it follows                                  */
    uint64_t base;                                /* of this proposer; promised by all that are there         */
    bool     is_time;                             /* it proposes                                              */
    int      counted;                             /* proposer, and too few: how many were there               */
    int64_t  grace, began, until, deadline, ping_at, heard_at;        /* heard_at: from the proposer          */
    coll__consensus_place *places;
} coll__consensus;

/* ---- >>open ---- */

static inline size_t coll__consensus_memory(int count)
{
    return coll__round_up((size_t)count * sizeof(coll__consensus_place), sizeof(uint64_t)) + 2 * coll__places_length(count);
}

/* `memory` has coll__consensus_memory(count) bytes, which are 0. */
static void coll__consensus_open(coll__consensus *c, void *memory, int count, int me)
{
    unsigned char *const sets = (unsigned char *)memory
                              + coll__round_up((size_t)count * sizeof(coll__consensus_place), sizeof(uint64_t));

    *c = (coll__consensus){ .count = count, .me = me, .voters = count, .slot = 1, .flags = UINT64_MAX,
                            .places = (coll__consensus_place *)memory };
    c->held.members = sets;
    c->past.members = sets + coll__places_length(count);
}

/* Is it to go on, and has learnt that its slot has other flags?  The next tick begins the next slot. */
static inline bool coll__consensus_is_behind(const coll__consensus *c)
{
    return c->role == COLL__CONSENSUS_DECIDED && c->kind == COLL__DECIDES_GO_ON && c->past.kind == COLL__DECIDES_FLAGS;
}

static inline bool coll__consensus_is_busy(const coll__consensus *c)
{
    return c->role == COLL__CONSENSUS_FOLLOWS || c->role == COLL__CONSENSUS_PROPOSES || coll__consensus_is_behind(c);
}

/* Nothing can be begun any more. */
static inline bool coll__consensus_is_over(const coll__consensus *c)
{
    return c->role == COLL__CONSENSUS_GIVEN_UP
        || (c->role == COLL__CONSENSUS_DECIDED && c->past.kind == COLL__DECIDES_GO_ON);
}

static inline void coll__decision_copy(const coll__consensus *c, coll__decision *to, const coll__decision *from)
{
    to->kind = from->kind;
    to->flags = from->flags;
    memmove(to->members, from->members, coll__places_length(c->count));
}

/* ---- >>views ---- */

static int coll__consensus_there(const coll__consensus *c, bool *is_quorum)
{
    int there = 0, voters = 0;

    for (int i = 0; i < c->count; i++) {
        there += c->places[i].is_there;
        voters += i < c->voters && c->places[i].is_there;
    }
    *is_quorum = coll__is_enough(voters, c->places[0].is_there, c->voters);
    return there;
}

/* Can those that are not lost be a quorum? */
static bool coll__consensus_may_be_enough(const coll__consensus *c)
{
    int most = 0;

    for (int i = 0; i < c->voters; i++) most += i == c->me || !(c->places[i].is_lost || c->places[i].has_failed);
    return coll__is_enough(most, c->me == 0 || !(c->places[0].is_lost || c->places[0].has_failed), c->voters);
}

static int coll__consensus_first(const coll__consensus *c)
{
    int i = 0;

    while (i < c->me && (c->places[i].is_lost || c->places[i].is_late || c->places[i].has_failed)) i++;
    return i;
}

/* Until when a sign of life may be missing.  Near the deadline two missing signs are enough. */
static int64_t coll__consensus_timeout(const coll__consensus *c, int64_t since)
{
    const int64_t two_signs = since + 2 * c->grace / COLL__CONSENSUS_SIGNS;
    const int64_t last = two_signs > c->deadline ? two_signs : c->deadline;

    return since + c->grace < last ? since + c->grace : last;
}

/* ---- >>roles ---- */

/* A round above all known promises: prepare is sent to all again. */
static void coll__consensus_raise(coll__consensus *c, uint64_t promised)
{
    c->base = c->promised = ((promised >> 48) + 1) << 48 | (uint64_t)c->me << 32;
    c->is_time = false;
    for (int i = 0; i < c->count; i++) {
        coll__consensus_place *const p = &c->places[i];
        p->is_there = i == c->me;
        p->is_prepared = false;
        p->asked = p->holds = 0;
    }
}

static void coll__consensus_seek(coll__consensus *c, int64_t now)
{
    const int first = coll__consensus_first(c);

    c->base = 0;
    c->is_time = false;
    for (int i = 0; i < c->count; i++) c->places[i].is_there = false;
    if (first < c->me) {
        c->role = COLL__CONSENSUS_FOLLOWS;
        c->proposer = first;
        c->heard_at = now;
        c->places[first].owes_hold = true;
        return;
    }
    c->role = COLL__CONSENSUS_PROPOSES;
    c->began = c->ping_at = now;
    c->until = c->deadline;
    c->counted = 0;
    c->places[c->me].flags = c->flags;
    c->places[c->me].newcomers = c->newcomers;
    for (int i = 0; i < c->count; i++) c->places[i].silent_since = 0;
    coll__consensus_raise(c, c->promised);
}

/* Begin the operation of the open slot, or begin it again after an error.  One that is to go on keeps the flags of an earlier
 * operation. */
static void coll__consensus_begin(coll__consensus *c, coll__decision_kind kind, uint64_t flags, int64_t now, int64_t grace,
                                  int64_t deadline)
{
    if (coll__consensus_is_over(c)) return;
    c->kind = kind;
    if (kind == COLL__DECIDES_FLAGS) c->flags = flags;
    else c->newcomers = flags;
    c->grace = grace;
    c->deadline = deadline;
    for (int i = 0; i < c->count; i++) {
        coll__consensus_place *const p = &c->places[i];
        p->is_lost = p->is_late = p->owes_refusal = false;
        p->silent_since = 0;
    }
    coll__consensus_seek(c, now);
}

static void coll__consensus_decide(coll__consensus *c, const coll__decision *decision)
{
    const bool goes_on = coll__place_in(decision->members, c->me);

    coll__decision_copy(c, &c->past, decision);
    c->slot++;
    c->promised = c->ballot = 0;
    c->is_bound = false;
    c->flags = UINT64_MAX;
    for (int i = 0; i < c->count; i++) {
        coll__consensus_place *const p = &c->places[i];
        if (c->role == COLL__CONSENSUS_PROPOSES && i != c->me) p->owes_decision = true;
        if (!coll__place_in(c->past.members, i)) p->has_failed = true;
        p->owes_hold = p->owes_ping = p->is_there = false;
    }
    c->role = goes_on ? COLL__CONSENSUS_DECIDED : COLL__CONSENSUS_GIVEN_UP;
}

/* Accept a proposal instead of an earlier one. */
static void coll__consensus_accept(coll__consensus *c, uint64_t ballot, const coll__decision *decision)
{
    if (ballot <= c->ballot) return;
    c->ballot = ballot;
    c->is_bound = true;
    coll__decision_copy(c, &c->held, decision);
}

/* Round 0: collectives of all members have decided, and made a proposal that this member accepts.  Only if all have accepted it,
 * it is decided.  So every quorum knows it, and ballot 1 is below those of all proposers. */
static void coll__consensus_learn(coll__consensus *c, const coll_decisions *known)
{
    if (c->slot <= known->count) {
        c->slot = known->count + 1;
        c->past.kind = COLL__DECIDES_FLAGS;
        c->past.flags = known->last;
        for (int i = 0; i < c->count; i++) {
            c->places[i].has_failed = known->failed[i];
            coll__place_set(c->past.members, i, !c->places[i].has_failed);
        }
    }
    if (!known->has_next || c->slot != known->count + 1 || c->promised || c->ballot) return;
    c->ballot = 1;
    c->is_bound = true;
    c->held.kind = COLL__DECIDES_FLAGS;
    c->held.flags = known->next;
    for (int i = 0; i < c->count; i++) coll__place_set(c->held.members, i, true);
}

/* ---- >>what happens ---- */

static void coll__consensus_up(coll__consensus *c, int place)
{
    coll__consensus_place *const p = &c->places[place];

    p->is_up = true;
    p->is_lost = p->is_there = p->is_prepared = false;
    p->asked = p->holds = 0;
    p->silent_since = 0;
    if (c->role == COLL__CONSENSUS_FOLLOWS && place == c->proposer) p->owes_hold = true;
}

static void coll__consensus_down(coll__consensus *c, int place)
{
    coll__consensus_up(c, place);
    c->places[place].is_up = false;
}

/* It refuses connections at all its addresses, or the failure detector has declared it dead. */
static void coll__consensus_lost(coll__consensus *c, int place)
{
    if (place != c->me) c->places[place].is_lost = !c->places[place].is_up;
}

/* Another member says that it is dead, or it has left this world: perhaps for the next one, with the decision. */
static COLL__UNUSED void coll__consensus_suspect(coll__consensus *c, int place)
{
    if (place != c->me && !c->places[place].is_suspect) c->places[place].is_suspect = c->places[place].is_late = true;
}

/* A hold for this proposer. */
static void coll__consensus_heard(coll__consensus *c, coll__consensus_place *p, const coll__member_note *n)
{
    if (n->promised > c->base) coll__consensus_raise(c, n->promised);
    if (n->promised < c->base) {                  /* an answer to an earlier prepare, or to none              */
        p->is_prepared = false;
        return;
    }
    p->holds = n->ballot;
    if (n->ballot != p->asked) p->asked = 0;      /* it followed another one when it was sent the proposal    */
    p->flags = n->flags;
    p->newcomers = n->newcomers;
    if (!p->is_there && n->ballot > 0) coll__consensus_accept(c, n->ballot, &n->decision);
    p->is_there = true;
}

/* A prepare, a proposal or a ping of the proposer that it follows. */
static void coll__consensus_answer(coll__consensus *c, int place, const coll__member_note *n, int64_t now)
{
    c->heard_at = now;
    c->places[place].owes_hold = true;
    if (n->kind == COLL__NOTE_PING || n->ballot < c->promised) return;
    c->promised = n->kind == COLL__NOTE_PREPARE ? n->ballot : c->promised;
    if (n->kind == COLL__NOTE_PROPOSE) coll__consensus_accept(c, n->ballot, &n->decision);
}

/* A note of this slot. */
static void coll__consensus_read(coll__consensus *c, int place, const coll__member_note *n, int64_t now)
{
    coll__consensus_place *const p = &c->places[place];
    const bool is_call = n->kind == COLL__NOTE_PREPARE || n->kind == COLL__NOTE_PROPOSE || n->kind == COLL__NOTE_PING;
    bool is_quorum;

    if (n->kind == COLL__NOTE_DECIDED) {
        coll__consensus_decide(c, &n->decision);
        return;
    }
    if (!coll__consensus_is_busy(c)) return;
    p->is_lost = p->is_late = false;
    if (c->role == COLL__CONSENSUS_PROPOSES) {
        (void)coll__consensus_there(c, &is_quorum);
        if (n->kind == COLL__NOTE_HOLD) coll__consensus_heard(c, p, n);
        if (!is_call || place > c->me || is_quorum) return;
    }
    if (is_call && coll__consensus_first(c) < (c->role == COLL__CONSENSUS_FOLLOWS ? c->proposer : c->me))
        coll__consensus_seek(c, now);
    if (c->role != COLL__CONSENSUS_FOLLOWS || place != c->proposer) return;
    if (is_call) coll__consensus_answer(c, place, n, now);
    if (n->kind != COLL__NOTE_TOO_FEW) return;
    c->role = COLL__CONSENSUS_TOO_FEW;
    c->counted = n->flags < (uint64_t)c->count ? (int)n->flags : c->count;
}

/* A note from this place.  Returns false: it is not valid, and the line must be closed. */
static bool coll__consensus_note(coll__consensus *c, int place, const unsigned char *bytes, size_t length, int64_t now)
{
    coll__consensus_place *const p = &c->places[place];
    coll__member_note n;

    if (place == c->me || !coll__member_note_read(&n, bytes, length, c->count)) return false;
    p->silent_since = 0;
    if (n.slot < c->slot || p->has_failed) {
        if (n.kind != COLL__NOTE_DECIDED && n.kind != COLL__NOTE_TOO_FEW) p->owes_decision = true;
    } else if (n.slot == c->slot) {
        coll__consensus_read(c, place, &n, now);
    } else if (n.kind == COLL__NOTE_DECIDED && !coll__place_in(n.decision.members, c->me)) {
        c->role = COLL__CONSENSUS_GIVEN_UP;
    } else {
        p->owes_hold = true;                      /* it knows the decision of this slot, and then tells it    */
    }
    return true;
}

/* ---- >>time ---- */

/* Make the proposal, or replace the own one if those that are there have changed.  Decide if all have accepted it. */
static void coll__consensus_propose(coll__consensus *c)
{
    bool is_same = c->held.kind == c->kind, is_accepted = true;
    uint64_t flags = ~UINT64_C(0);

    for (int i = 0; i < c->count; i++) {
        const coll__consensus_place *const p = &c->places[i];
        if (p->is_there) flags &= c->kind == COLL__DECIDES_FLAGS ? p->flags : p->newcomers;
        is_same = is_same && p->is_there == coll__place_in(c->held.members, i);
    }
    is_same = is_same && c->held.flags == flags;
    if (c->ballot < c->base || (!c->is_bound && !is_same)) {
        c->ballot = c->ballot < c->base ? c->base : c->ballot + 1;
        for (int i = 0; i < c->count && !c->is_bound; i++) coll__place_set(c->held.members, i, c->places[i].is_there);
        if (!c->is_bound) c->held.kind = c->kind, c->held.flags = flags;
    }
    for (int i = 0; i < c->count; i++)
        if (i != c->me && c->places[i].is_there && c->places[i].holds != c->ballot) is_accepted = false;
    if (is_accepted) coll__consensus_decide(c, &c->held);
}

/* Those that may still come.  Without a quorum late members are waited for, but one that another member has declared dead, and
 * that gives no sign. */
static int coll__consensus_open_places(const coll__consensus *c, bool is_enough, int64_t now)
{
    const bool has_waited = now - c->began > c->grace;
    int open = 0;

    for (int i = 0; i < c->count; i++) {
        const coll__consensus_place *const p = &c->places[i];
        const bool may_come = !p->is_late || !(is_enough || (p->is_suspect && has_waited));
        open += !p->is_there && !p->is_lost && !p->has_failed && may_come;
    }
    return open;
}

static void coll__consensus_count(coll__consensus *c, int64_t now)
{
    bool is_enough;
    const int there = coll__consensus_there(c, &is_enough), open = coll__consensus_open_places(c, is_enough, now);

    if (!is_enough) c->until = coll__consensus_may_be_enough(c) ? c->deadline : c->began + c->grace;
    else if (there != c->counted || c->until == c->deadline) c->until = now + c->grace;
    if (c->until > c->deadline) c->until = c->deadline;
    c->counted = there;
    c->is_time = open == 0 || now >= c->until;
    if (c->is_time && is_enough) {
        coll__consensus_propose(c);
    } else if (c->is_time) {
        c->role = COLL__CONSENSUS_TOO_FEW;
        for (int i = 0; i < c->count; i++) c->places[i].owes_refusal = c->places[i].is_there && i != c->me;
    }
}

static void coll__consensus_tick(coll__consensus *c, int64_t now)
{
    if (coll__consensus_is_behind(c)) coll__consensus_seek(c, now);
    if (c->role == COLL__CONSENSUS_FOLLOWS) {
        if (now > coll__consensus_timeout(c, c->heard_at)) c->places[c->proposer].is_late = true;
        if (coll__consensus_first(c) != c->proposer) coll__consensus_seek(c, now);
    }
    if (c->role != COLL__CONSENSUS_PROPOSES) return;
    const bool is_ping = now >= c->ping_at;
    if (is_ping) c->ping_at = now + c->grace / COLL__CONSENSUS_SIGNS;
    for (int i = 0; i < c->count; i++) {
        coll__consensus_place *const p = &c->places[i];
        if (p->silent_since && now > coll__consensus_timeout(c, p->silent_since)) {
            p->is_there = p->is_prepared = false;
            p->is_late = true;
            p->silent_since = 0;
        }
        p->owes_ping |= is_ping && p->is_there && i != c->me;
    }
    coll__consensus_count(c, now);
}

/* When the next tick is due; 0: never. */
static int64_t coll__consensus_next(const coll__consensus *c)
{
    if (c->role == COLL__CONSENSUS_FOLLOWS) return coll__consensus_timeout(c, c->heard_at) + 1;
    if (c->role != COLL__CONSENSUS_PROPOSES) return 0;
    int64_t next = !c->is_time && c->until < c->ping_at ? c->until : c->ping_at;
    for (int i = 0; i < c->count; i++) {
        const int64_t since = c->places[i].silent_since, late = since ? coll__consensus_timeout(c, since) + 1 : next;
        if (late < next) next = late;
    }
    return next;
}

/* ---- >>what to do ---- */

/* Returns whether the line to this place is needed: call it if it is down. */
static COLL__UNUSED bool coll__consensus_wants(const coll__consensus *c, int place)
{
    const coll__consensus_place *const p = &c->places[place];

    if (place == c->me || p->has_failed || p->is_lost) return false;
    return c->role == COLL__CONSENSUS_PROPOSES || (c->role == COLL__CONSENSUS_FOLLOWS && place == c->proposer);
}

/* What a proposer has to say to a member; COLL__NOTE_NONE: nothing. */
static coll__member_note_kind coll__consensus_demand(coll__consensus *c, coll__consensus_place *p)
{
    if (c->role != COLL__CONSENSUS_PROPOSES || p->has_failed) return COLL__NOTE_NONE;
    if (!p->is_prepared) {
        p->is_prepared = true;
        return COLL__NOTE_PREPARE;
    }
    if (c->is_time && p->is_there && p->asked != c->ballot) {
        p->asked = c->ballot;
        return COLL__NOTE_PROPOSE;
    }
    return p->owes_ping ? COLL__NOTE_PING : COLL__NOTE_NONE;
}

/* The next note for a line that can take one: its length, at most coll__member_note_most(count); 0: nothing now. */
static size_t coll__consensus_say(coll__consensus *c, int place, unsigned char *to, int64_t now)
{
    coll__consensus_place *const p = &c->places[place];
    coll__member_note n = { .slot = c->slot };

    if (place == c->me || !p->is_up) return 0;
    if (p->owes_decision && c->slot > 1) {
        n = (coll__member_note){ .kind = COLL__NOTE_DECIDED, .slot = c->slot - 1, .decision = c->past };
        p->owes_decision = false;
    } else if (p->owes_refusal) {
        n.kind = COLL__NOTE_TOO_FEW;
        n.flags = (uint64_t)c->counted;
        p->owes_refusal = false;
    } else if ((n.kind = coll__consensus_demand(c, p)) != COLL__NOTE_NONE) {
        n.ballot = n.kind == COLL__NOTE_PROPOSE ? c->ballot : c->base;
        n.decision = c->held;
        p->owes_ping = false;
        if (!p->silent_since) p->silent_since = now;
    } else if (p->owes_hold) {
        n = (coll__member_note){ COLL__NOTE_HOLD, c->slot, c->ballot, c->promised, c->flags, c->newcomers, c->held };
        p->owes_hold = false;
    }
    return n.kind != COLL__NOTE_NONE ? coll__member_note_write(to, &n, c->count) : 0;
}

#endif /* COLL_CONSENSUS_H */
