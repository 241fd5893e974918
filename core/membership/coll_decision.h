/* coll_decision.h - what the members of a world decide together: the quorum, the outcome, and the notes as bytes.
 *
 * The members of a world have places: 0 to count - 1.  They make decisions one after the other; each has a number, its slot.
 *
 *     go on     these members continue in the next world; the others are given up.  The last decision of a world
 *     flags     the bitwise AND of the flags of these members; the others have failed
 *
 * The flags of a go on are 0, or a hash of the newcomers that come into the next world behind these members.  There they have no
 * vote: so the members that survive are a quorum, however many newcomers die.  All vote in the world after that one.
 *
 * Bytes of a note, little endian:
 *
 *     0 kind   1 kind of the decision   4 slot   8 ballot   16 promised   24 flags   32 flags of the note itself
 *
 *     40 newcomers of the note itself   48 the members: a bit for each place
 *
 * The members and the flags at 24 are those of the decision; a note without one ends at 48. */
#ifndef COLL_DECISION_H
#define COLL_DECISION_H

#include "../base/coll_base.h"
#include "../base/coll_text.h"

/* ---- >>sets of places: a bit for each ---- */

static inline size_t coll__places_length(int count) { return ((size_t)count + 7) / 8; }
static inline bool coll__place_in(const unsigned char *set, int place) { return set[place / 8] >> place % 8 & 1; }
static inline void coll__place_set(unsigned char *set, int place, bool is_in)
{
    const unsigned bit = 1u << place % 8;
    set[place / 8] = (unsigned char)(is_in ? set[place / 8] | bit : set[place / 8] & ~bit);
}

static inline int coll__places_in(const unsigned char *set, int count)
{
    int there = 0;

    for (int i = 0; i < count; i++) there += coll__place_in(set, i);
    return there;
}

/* ---- >>quorum ---- */

/* Are `there` of `count` members a quorum: more than half of them, or exactly half with the first? */
static inline bool coll__is_enough(int there, bool has_first, int count) { return 2 * there + has_first > count; }

static inline bool coll__places_are_enough(const unsigned char *set, int count)
{
    return coll__is_enough(coll__places_in(set, count), coll__place_in(set, 0), count);
}

/* ---- >>the outcome ---- */

/* The ranks that go on: those of the places in `set`, which contains `me`. */
static COLL__UNUSED void coll__survivors_in(const unsigned char *set, const int *ranks, int count, int me, coll_survivors *out)
{
    out->count = 0;
    for (int i = 0; i < count; i++) {
        if (!coll__place_in(set, i)) continue;
        if (i == me) out->rank = out->count;
        out->ranks[out->count++] = ranks[i];
    }
}

static COLL__UNUSED coll_status coll__failed_too_few(coll_failure *failure, int there, int count)
{
    return coll__set_failure(failure, COLL_ERR_PEER, -1, "only %d of %d ranks are left: a quorum is more than half of them, or "
                             "half with the first", there, count);
}

static COLL__UNUSED coll_status coll__failed_given_up(coll_failure *failure)
{
    return coll__set_failure(failure, COLL_ERR_PEER, -1, "the others have given this rank up");
}

static COLL__UNUSED coll_status coll__failed_over(coll_failure *failure)
{
    return coll__set_failure(failure, COLL_ERR_UNSUPPORTED, -1, "it is decided who goes on: call coll_shrink, and use the "
                             "communicator that it gives; where it gave none, the others go on without this rank");
}

/* ---- >>notes ---- */

typedef enum coll__member_note_kind {
    COLL__NOTE_NONE,
    COLL__NOTE_PREPARE,                           /* accept nothing below this ballot                         */
    COLL__NOTE_HOLD,                              /* the sender's promise, and what it has accepted last      */
    COLL__NOTE_PROPOSE,                           /* accept this decision                                     */
    COLL__NOTE_DECIDED,                           /* this is the decision of the slot                         */
    COLL__NOTE_PING,                              /* answer with a hold                                       */
    COLL__NOTE_TOO_FEW,                           /* the proposer has given up: no quorum; flags: how many    */
    COLL__NOTE_LIMIT
} coll__member_note_kind;

typedef enum coll__decision_kind { COLL__DECIDES_NOTHING, COLL__DECIDES_GO_ON, COLL__DECIDES_FLAGS } coll__decision_kind;

typedef struct coll__decision {
    coll__decision_kind kind;
    uint64_t       flags;
    unsigned char *members;                       /* a bit for each place                                     */
} coll__decision;

typedef struct coll__member_note {
    coll__member_note_kind kind;
    uint32_t slot;
    uint64_t ballot, promised;                    /* ballot: of the decision in it; 0: none                   */
    uint64_t flags;                               /* of a hold: its sender's; too few: how many were there    */
    uint64_t newcomers;                           /* of a hold: the hash that its sender proposes             */
    coll__decision decision;                      /* its members are in the bytes that were read              */
} coll__member_note;

enum { COLL__NOTE_HEAD = 48 };

/* The longest note of a world of `count` members. */
static inline size_t coll__member_note_most(int count) { return COLL__NOTE_HEAD + coll__places_length(count); }

static inline bool coll__member_note_has_decision(coll__member_note_kind kind, uint64_t ballot)
{
    return kind == COLL__NOTE_PROPOSE || kind == COLL__NOTE_DECIDED || (kind == COLL__NOTE_HOLD && ballot > 0);
}

/* Writes a note; returns its length. */
static size_t coll__member_note_write(unsigned char *to, const coll__member_note *n, int count)
{
    const bool has_decision = coll__member_note_has_decision(n->kind, n->ballot);

    memset(to, 0, COLL__NOTE_HEAD);
    to[0] = (unsigned char)n->kind;
    to[1] = has_decision ? (unsigned char)n->decision.kind : 0;
    coll__put32(to + 4, n->slot);
    coll__put64(to + 8, n->ballot);
    coll__put64(to + 16, n->promised);
    coll__put64(to + 24, has_decision ? n->decision.flags : 0);
    coll__put64(to + 32, n->flags);
    coll__put64(to + 40, n->newcomers);
    if (!has_decision) return COLL__NOTE_HEAD;
    memcpy(to + COLL__NOTE_HEAD, n->decision.members, coll__places_length(count));
    return coll__member_note_most(count);
}

/* Reads a note of `length` bytes, which must stay while it is used.  Returns false: it is not valid in this world. */
static bool coll__member_note_read(coll__member_note *n, const unsigned char *from, size_t length, int count)
{
    if (length < COLL__NOTE_HEAD || from[0] == COLL__NOTE_NONE || from[0] >= COLL__NOTE_LIMIT || from[2] || from[3]) return false;
    n->kind = (coll__member_note_kind)from[0];
    n->slot = coll__get32(from + 4);
    n->ballot = coll__get64(from + 8);
    n->promised = coll__get64(from + 16);
    n->flags = coll__get64(from + 32);
    n->newcomers = coll__get64(from + 40);
    n->decision = (coll__decision){ (coll__decision_kind)from[1], coll__get64(from + 24), NULL };
    if (!coll__member_note_has_decision(n->kind, n->ballot)) return from[1] == 0 && length == COLL__NOTE_HEAD;
    if (from[1] != COLL__DECIDES_GO_ON && from[1] != COLL__DECIDES_FLAGS) return false;
    n->decision.members = (unsigned char *)(uintptr_t)from + COLL__NOTE_HEAD;
    const int spare = (int)(8 * coll__places_length(count)) - count;
    return length == coll__member_note_most(count) && n->decision.members[coll__places_length(count) - 1] >> (8 - spare) == 0;
}

#endif /* COLL_DECISION_H */
