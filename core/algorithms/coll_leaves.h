/* coll_leaves.h - sums over leaves: the dyadic tree over the inputs of all ranks, cut into the terms that ranks exchange.
 *
 * A node is the leaves k 2^j ... (k + 1) 2^j - 1; k is its number.  Every rank has the largest nodes of its run, as vectors.  A
 * term is such a node, or a larger one: then one rank, its home, receives the nodes below it and adds them.  This moves whole
 * vectors, but fewer terms follow.  Every term is sent in blocks, as in the direct exchange, and costs p - 1 blocks; a node that
 * is moved to a home costs p.
 *
 *     24 leaves on 5 ranks       0                   1                   2                   3                   4
 *     runs                       0-4                 5-9                 10-14               15-19               20-23
 *     nodes                      0-3 4               5 6-7 8-9           10-11 12-13 14      15 16-19            20-23
 *     moved                         `----------------->       `--------------->   <----------'
 *     terms                      0-3                 4-7                 8-15                16-19               20-23
 *
 * So 3 vectors and 5 * 4 / 5 terms are sent; without moves it would be 11 * 4 / 5.  The terms are the cut of the tree that costs
 * least: a node is one term if this is cheaper than the terms of its halves. */
#ifndef COLL_LEAVES_H
#define COLL_LEAVES_H

#include "coll_round.h"

/* The level of the first node of the leaves at ... end - 1. */
static inline int coll__leaf_level(int64_t at, int64_t end)
{
    int level = 0;
    while (!(at >> level & 1) && at + (INT64_C(2) << level) <= end) level++;
    return level;
}

/* How many vectors a run of leaves has. */
static inline int64_t coll__leaf_vectors(int64_t at, int64_t leaves, bool are_sums)
{
    const int64_t end = at + leaves;
    int64_t vectors = 0;

    if (leaves <= 0 || !are_sums) return leaves > 0 ? leaves : 0;
    for (; at < end; at += INT64_C(1) << coll__leaf_level(at, end)) vectors++;
    return vectors;
}

/* A private flag of a call whose inputs are nodes.  Carriers and transports that do not know a flag decline the call. */
enum { COLL__OVER_NODES = 1 << 30 };

typedef struct coll__leaf_node {
    int rank, vector;                             /* which has it; number of the vector there                 */
    int level, slot;                              /* slot: number among the nodes that the home receives      */
} coll__leaf_node;

typedef struct coll__leaf_term {
    int rank;                                     /* the home                                                 */
    int first, count;                             /* its nodes                                                */
    int slot;                                     /* several nodes: number among the sums that the home makes */
} coll__leaf_term;

struct coll__leaves {
    int  nodes, terms;                            /* of all ranks, in the order of their leaves               */
    bool are_sums;                                /* vectors are sums; false: inputs, which are never added before the end */
    bool has_sums;                                /* a home adds nodes                                        */
    int  vectors, made, received;                 /* of this rank: vectors; as home: sums, and nodes of others */
    coll__leaf_node *node;
    coll__leaf_term *term;
    int *node_number, *term_number;               /* k                                                        */
    int *first_term;                              /* of every rank, and of all                                */
};

/* Append the nodes of the next rank. */
static inline void coll__leaves_add(coll__leaves *t, int rank, int64_t at, int64_t leaves)
{
    for (int vector = 0, level; leaves > 0; vector++, at += INT64_C(1) << level, leaves -= INT64_C(1) << level) {
        level = t->are_sums ? coll__leaf_level(at, at + leaves) : 0;
        t->node[t->nodes] = (coll__leaf_node){ rank, vector, level, 0 };
        t->node_number[t->nodes++] = (int)(at >> level);
    }
}

/* Cut nodes from ... to - 1, which are below one node of `level`, into terms.  Returns the blocks sent. */
static int64_t coll__leaves_cut(coll__leaves *t, int level, int from, int to, int size)
{
    const int terms = t->terms;
    int home = from, middle = from, most = 1;

    if (from == to) return 0;
    int64_t cost = size - 1;
    if (to - from > 1) {
        const int64_t first = (int64_t)t->node_number[from] << t->node[from].level;
        const int64_t half = ((first >> level) * 2 + 1) << (level - 1);
        while (middle < to && (int64_t)t->node_number[middle] << t->node[middle].level < half) middle++;
        cost = coll__leaves_cut(t, level - 1, from, middle, size) + coll__leaves_cut(t, level - 1, middle, to, size);
        for (int i = from + 1, run = 1; i < to; i++) {
            run = t->node[i].rank == t->node[i - 1].rank ? run + 1 : 1;
            if (run > most) most = run, home = i;
        }
        const int64_t at_home = size - 1 + (int64_t)size * (to - from - most);
        if (at_home >= cost || !t->are_sums) return cost;
        t->terms = terms;
        t->term_number[t->terms] = (int)(first >> level);
        cost = at_home;
    } else t->term_number[t->terms] = t->node_number[from];
    t->term[t->terms++] = (coll__leaf_term){ t->node[home].rank, from, to - from, 0 };
    return cost;
}

/* Cut the tree into terms, as rank `me` of `size` sees them. */
static inline void coll__leaves_settle(coll__leaves *t, int me, int size)
{
    int rank = 0, level = 0;

    while (t->nodes > 0 && (int64_t)t->node_number[t->nodes - 1] << t->node[t->nodes - 1].level >> level) level++;
    (void)coll__leaves_cut(t, level, 0, t->nodes, size);
    for (int k = 0; k < t->terms; k++) {
        coll__leaf_term *const term = &t->term[k];
        const bool is_home = term->rank == me;
        while (rank <= term->rank) t->first_term[rank++] = k;
        if (term->count == 1) continue;
        t->has_sums = true;
        if (is_home) term->slot = t->made++;
        for (int i = term->first; is_home && i < term->first + term->count; i++)
            if (t->node[i].rank != me) t->node[i].slot = t->received++;
    }
    while (rank <= size) t->first_term[rank++] = t->terms;
    for (int i = 0; i < t->nodes; i++) t->vectors += t->node[i].rank == me;
}

/* Is it the tree over the ranks?  Then each has one node, and node i is number i, as far as it tells which sums are complete. */
static inline bool coll__leaves_are_ranks(const coll__leaves *t, int size)
{
    for (int i = 0; i < t->nodes; i++) {
        const int number = i < t->nodes - 1 ? t->node_number[i] : i;
        if (t->node[i].rank != i || (number ^ (number + 1)) != (i ^ (i + 1))) return false;
    }
    return t->nodes == size;
}

/* Vector `vector` of this rank: some of its blocks. */
static coll__span coll__leaf_blocks(const coll__round *now, int vector, int first, int blocks)
{
    return coll__blocks(COLL__LEAVES_OF(now)->are_sums ? COLL__NODES : COLL__INPUT, vector * now->blocks + first, blocks);
}

/* The round in which nodes are moved to homes, and added there. */
static inline void coll__leaves_gather(coll__round *now)
{
    const coll__leaves *const t = COLL__LEAVES_OF(now);

    for (const coll__leaf_term *term = t->term; term < t->term + t->terms; term++)
        for (const coll__leaf_node *n = t->node + term->first; n < t->node + term->first + term->count; n++) {
            if (n->rank == term->rank) continue;
            if (n->rank == now->rank) coll__send(now, term->rank, coll__leaf_blocks(now, n->vector, 0, now->blocks));
            if (term->rank == now->rank)
                coll__recv(now, n->rank, coll__slots(COLL__PART, (t->made + n->slot) * now->blocks, now->blocks, 0));
        }
    for (const coll__leaf_term *term = t->term; term < t->term + t->terms; term++) {
        if (term->rank != now->rank || term->count == 1) continue;
        coll__fold(now, coll__slots(COLL__PART, term->slot * now->blocks, now->blocks, 0));
        for (const coll__leaf_node *n = t->node + term->first; n < t->node + term->first + term->count; n++)
            coll__from(now, n->rank == now->rank
                                ? coll__leaf_blocks(now, n->vector, 0, now->blocks)
                                : coll__slots(COLL__PART, (t->made + n->slot) * now->blocks, now->blocks, 0));
    }
}

/* The numbers of the sources of a fold: of the terms; or of the nodes of a sum that rank `me` makes as a home. */
static inline const int *coll__leaf_numbers(const coll__leaves *t, int me, bool is_result, size_t slot)
{
    int k = t->first_term[me];

    if (is_result) return t->term_number;
    while (t->term[k].count == 1 || (size_t)t->term[k].slot != slot) k++;
    return t->node_number + t->term[k].first;
}

/* ---- >>terms of a sum: one input of each rank, or nodes of a tree over leaves ---- */

/* The terms of a rank: their first number, and that behind the last.  Terms are in the order of ranks. */
static inline int coll__first_term(const coll__round *now, int rank)
{
    const coll__leaves *const t = COLL__LEAVES_OF(now);
    return t ? t->first_term[coll__mod(rank, now->size)] : rank;
}

static inline int coll__end_term(const coll__round *now, int rank)
{
    const coll__leaves *const t = COLL__LEAVES_OF(now);
    return t ? t->first_term[coll__mod(rank, now->size) + 1] : rank + 1;
}

/* Block `block` of a term of this rank; and where it receives its block of a term of another rank. */
static inline coll__span coll__own_term(const coll__round *now, int term, int block)
{
    const coll__leaves *const tree = COLL__LEAVES_OF(now);
    if (!tree) return coll__block(COLL__INPUT, block);
    const coll__leaf_term *const t = &tree->term[term];
    block = coll__mod(block, now->blocks);
    if (t->count == 1) return coll__leaf_blocks(now, tree->node[t->first].vector, block, 1);
    return coll__slot_of(COLL__PART, t->slot * now->blocks + block, block);
}

static inline coll__span coll__other_term(const coll__round *now, int term)
{
    const coll__leaves *const t = COLL__LEAVES_OF(now);
    if (!t) return coll__slot_of(COLL__WORK, term - now->rank + (term < now->rank ? now->size : 0), now->rank);
    return coll__slot_of(t->are_sums ? COLL__PART : COLL__WORK, (t->made + t->received) * now->blocks + term, now->rank);
}

#endif /* COLL_LEAVES_H */
