/* coll_newcomers.h - the order of ranks when newcomers take the places of others (core/session/coll_grow.h).
 *
 * In their first world newcomers are behind the members, which alone have a vote.  The next one has the members of that world in
 * ascending order: each has a place, plus 1, or all have 0, and keep their order. */
#ifndef COLL_NEWCOMERS_H
#define COLL_NEWCOMERS_H

#include "coll_decision.h"

/* The orders of the members of a world, so many bytes apart. */
typedef struct coll__orders { void *first; size_t each; } coll__orders;

static inline uint32_t *coll__order_of(coll__orders o, int member)
{
    return (uint32_t *)(void *)((unsigned char *)o.first + (size_t)member * o.each);
}

/* The lowest place behind `place` that no member has; *at: the members before that one have earlier places.  They are to have
 * `places`, or -1: behind the one before.  In a world which has just taken newcomers that had places these are known. */
static inline int coll__order_next(coll__orders o, int size, const int *places, int *at, int place)
{
    for (; *at < size; (*at)++, place++) {
        const int taken = *coll__order_of(o, *at) ? (int)*coll__order_of(o, *at) - 1 : places[*at];
        if (taken > place) break;
    }
    return place;
}

/* The places of the members, which were these of so many ranks, beside newcomers that have places. */
static inline void coll__orders_arrange(coll__orders o, int members, int size, const int *ranks, int count)
{
    uint32_t place = 0;

    for (int rank = 0, i = 0, at = members; rank < count && i < members && *coll__order_of(o, members); rank++) {
        while (at < size && *coll__order_of(o, at) == place + 1) at++, place++;
        place++;
        if (ranks[i] == rank) *coll__order_of(o, i++) = place;
    }
}

/* Sort members by their places. */
static inline void coll__orders_sort(coll__orders o, int *members, int count)
{
    for (int i = 1; i < count; i++)
        for (int k = i, one = members[i]; k > 0 && *coll__order_of(o, members[k - 1]) > *coll__order_of(o, one); k--)
            members[k] = members[k - 1], members[k - 1] = one;
}

/* The flags of a decision to go on with this table of newcomers.  0: without. */
static inline uint64_t coll__newcomers_hash(const unsigned char *table, size_t length)
{
    uint64_t hash = coll__hash_of_none;

    for (size_t i = 0; table && i < length; i++) hash = coll__hash_with(hash, table[i]);
    return table ? hash | 1 : 0;
}

#endif /* COLL_NEWCOMERS_H */
