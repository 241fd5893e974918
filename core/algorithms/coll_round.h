/* coll_round.h - rounds and steps of algorithms.
 *
 * An algorithm is a function of (rank, size, root, radix, ...)  and the number k of the round.  It lists this rank's steps in
 * round k and returns whether there is such a round; the last k is the same on every rank.  It uses ranks and blocks only: no
 * bytes, types, memory, time or network, and no state between rounds.
 *
 * The data of a call is cut into blocks, numbered on a circle.  A span is some blocks of one place.  The order within a round
 * is: copies; then sends and receives, all at once; then folds, one after the other.  Sends read the places after earlier
 * rounds and this round's copies.  A place that receives is not read before the folds. */
#ifndef COLL_ROUND_H
#define COLL_ROUND_H

#include <limits.h>

#include "../../coll.h"

typedef enum coll__place {
    COLL__INPUT,                                  /* the user's send buffer                                   */
    COLL__RESULT,                                 /* the user's recv buffer                                   */
    COLL__WORK,                                   /* temporary slots: values as on the wire                   */
    COLL__PART,                                   /* temporary slots: partial results, not divided or rounded */
    COLL__NODES,                                  /* the user's send buffer: partial results (coll_leaves.h)  */
    COLL__PLACES = COLL__NODES + COLL__HAS_LEAVES
} coll__place;

/* `blocks` blocks at `first`, first + step, ... INPUT, RESULT and NODES: block numbers, modulo the circle.  WORK and PART: slot
 * numbers; `about` is the block whose value is in the first slot (the others: the following blocks, or all the same block),
 * which determines its length. */
typedef struct coll__span {
    coll__place place;
    int  first, blocks, step;
    int  about;
    bool is_same;                                 /* WORK, PART: every slot has a value of block `about`      */
    int  run;                                     /* > 1: this many adjacent blocks at each position          */
} coll__span;

typedef enum coll__verb { COLL__SEND, COLL__RECV, COLL__COPY, COLL__FOLD, COLL__FROM } coll__verb;

typedef struct coll__step {
    coll__verb verb;
    int        peer;                              /* send, recv                                               */
    coll__span span;                              /* what is sent; the destination otherwise; FROM: what is folded */
    coll__span from;                              /* copy                                                     */
} coll__step;

typedef struct coll__leaves coll__leaves;         /* coll_leaves.h                                            */

/* The neighbors of a rank. */
typedef struct coll__graph {
    int sources, destinations;
    const int *source, *destination;              /* ranks; COLL_RANK_NONE: none                              */
} coll__graph;

/* Parameters and result of an algorithm's round. */
typedef struct coll__round {
    int rank, size, root, radix;
    int blocks;                                   /* of the vector                                            */
    bool is_exclusive;                            /* exscan, not scan                                         */
    const int *order;                             /* ranks in the order of a ring; NULL: 0, 1, ...            */
    const coll__graph *graph;
#if COLL__HAS_LEAVES
    const coll__leaves *leaves;                   /* the terms of the sum; NULL: one of each rank             */
#endif
    coll__step *steps;                            /* NULL: only count                                         */
    int count, capacity;
    int moved, sent;                              /* blocks in sends and receives; messages sent              */
    int made, from;                               /* blocks made by copies and folds; their sources           */
    int slots[COLL__PLACES];                      /* WORK, PART: one more than the highest slot used          */
} coll__round;

static inline int coll__mod(int value, int size)
{
    if (value >= 0 && value < size) return value;         /* the usual case, because divisions are slow       */
    const int rest = value % size;
    return rest < 0 ? rest + size : rest;
}

/* The number of block or slot `i` of a span.  `circle`: number of blocks of INPUT and RESULT. */
static inline int coll__span_at(const coll__span *span, int i, int circle)
{
    const int at = span->run > 1 ? span->first + i / span->run * span->step + i % span->run : span->first + i * span->step;
    return span->place == COLL__INPUT || span->place == COLL__RESULT ? coll__mod(at, circle) : at;
}

/* The block whose value it has. */
static inline int coll__span_about(const coll__span *span, int i, int circle)
{
    if (span->place == COLL__INPUT || span->place == COLL__RESULT) return coll__span_at(span, i, circle);
    return span->is_same ? span->about : coll__mod(span->about + i, circle);
}

static inline void coll__add_step(coll__round *now, coll__step step)
{
    const coll__span *s = &step.span;

    if (now->steps && now->count < now->capacity) now->steps[now->count] = step;
    now->count++;
    if (step.verb == COLL__SEND) now->sent++;
    if (step.verb == COLL__SEND || step.verb == COLL__RECV) now->moved += s->blocks;
    if (step.verb == COLL__COPY || step.verb == COLL__FOLD) now->made += s->blocks;
    if (step.verb == COLL__COPY || step.verb == COLL__FROM) now->from += s->blocks;
    const int last = s->blocks > 0 ? coll__span_at(s, s->blocks - 1, 1) : -1;
    if ((s->place == COLL__WORK || s->place == COLL__PART) && now->slots[s->place] <= last) now->slots[s->place] = last + 1;
}

/* ---- >>spans ---- */

/* Consecutive slots of WORK or PART, for blocks `about`, about + 1, ... */
static inline coll__span coll__slots(coll__place place, int first, int slots, int about)
{
    return (coll__span){ .place = place, .first = first, .blocks = slots, .step = 1, .about = about };
}

/* Consecutive blocks of INPUT or RESULT. */
static inline coll__span coll__blocks(coll__place place, int first, int blocks) { return coll__slots(place, first, blocks, 0); }
static inline coll__span coll__block(coll__place place, int block) { return coll__blocks(place, block, 1); }
static inline coll__span coll__slot_of(coll__place place, int slot, int about) { return coll__slots(place, slot, 1, about); }

/* ---- >>steps ---- */

static inline void coll__send(coll__round *now, int peer, coll__span span)
{
    coll__add_step(now, (coll__step){ .verb = COLL__SEND, .peer = coll__mod(peer, now->size), .span = span });
}

static inline void coll__recv(coll__round *now, int peer, coll__span span)
{
    coll__add_step(now, (coll__step){ .verb = COLL__RECV, .peer = coll__mod(peer, now->size), .span = span });
}

/* Copy block by block, from one place to another; not PART. */
static inline void coll__copy(coll__round *now, coll__span to, coll__span from)
{
    coll__add_step(now, (coll__step){ .verb = COLL__COPY, .span = to, .from = from });
}

/* Fold block by block the spans of the following coll__from, in that order: block i of `to` becomes the combination of block i
 * of all of them that have so many.  A result in PART stays partial; elsewhere it is divided (COLL_AVG), scaled and rounded.
 * `to` may be one of the sources. */
static inline void coll__fold(coll__round *now, coll__span to)
{
    coll__add_step(now, (coll__step){ .verb = COLL__FOLD, .span = to });
}

static inline void coll__from(coll__round *now, coll__span source)
{
    coll__add_step(now, (coll__step){ .verb = COLL__FROM, .span = source });
}

#endif /* COLL_ROUND_H */
