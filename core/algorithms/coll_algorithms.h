/* coll_algorithms.h - the algorithms of all collectives, composed of the generators in coll_ring_bruck.h, coll_tree.h,
 * coll_blocks.h and coll_scan.h; and their table.
 *
 * In the costs p is the number of ranks, r the radix, m the whole vector, R = ceil(log_r p) rounds. */
#ifndef COLL_ALGORITHMS_H
#define COLL_ALGORITHMS_H

#include "coll_blocks.h"
#include "coll_cost.h"
#include "coll_link_model.h"
#include "coll_scan.h"
#include "coll_tree.h"

/* ---- >>barrier, allgather, reduce_scatter ---- */

/* The circulant allgather with empty blocks: R rounds, no data.  By the tree 2 R rounds and 2 (p - 1) messages, the fewest
 * possible; the circulant sends p R.  For ranks that share processors. */
static bool coll__barrier_circulant(coll__round *now, int k) { return coll__circulant_allgather(now, k, COLL__RESULT); }

/* Copy our own block to its place, in the first round.  Returns whether there is this round; `is_more`: other ranks' blocks are
 * moved in it. */
static bool coll__with_own(coll__round *now, int k, bool is_more)
{
    if (k == 0) coll__copy(now, coll__block(COLL__RESULT, now->rank), coll__block(COLL__INPUT, now->rank));
    return is_more || k == 0;
}

/* R rounds, (p - 1) / p m. */
static bool coll__allgather_circulant(coll__round *now, int k)
{
    return coll__with_own(now, k, coll__circulant_allgather(now, k, COLL__RESULT));
}

/* p - 1 rounds, (p - 1) / p m. */
static bool coll__allgather_ring(coll__round *now, int k) { return coll__with_own(now, k, coll__ring_allgather(now, k)); }

/* 2 R rounds, 2 (p - 1) messages; for short vectors of ranks that share processors. */
static bool coll__allgather_tree(coll__round *now, int k) { return coll__with_own(now, k, coll__tree_allgather(now, k)); }

/* Allgather of the raw vectors; then every rank folds the block that it needs, in an allreduce the only one: R rounds, (p - 1)
 * m; for short vectors.  Canonical. */
static bool coll__gather_fold(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix), last = rounds > 0 ? rounds - 1 : 0;
    const int block = coll__mod(now->rank, now->blocks);

    if (k > last) return false;
    coll__circulant_allgather(now, k, COLL__WORK);
    if (k == last) coll__fold_all(now, coll__block(COLL__RESULT, block), block);
    return true;
}

/* Rank 0 gets all vectors, folds them, and scatters the sums: 2 R rounds, (p - 1) m into rank 0, but only 2 (p - 1) messages;
 * for short vectors of ranks that share processors.  Canonical. */
static bool coll__reduce_scatter_tree(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix);

    if (rounds == 0) return coll__fold_alone(now, k);
    if (k >= 2 * rounds) return false;
    if (k >= rounds) {
        coll__tree_hand_out(now, k - rounds, COLL__WORK);
    } else if (coll__tree_collect_vectors(now, k)) {
        coll__fold_all(now, coll__block(COLL__RESULT, 0), 0);
        coll__fold_all(now, coll__root_sums(now, 1, now->size - 1), 1);
    }
    return true;
}

/* 1 round, (p - 1) / p m; canonical. */
static bool coll__direct_reduce(coll__round *now, int k)
{
    if (k > 0) return false;
    coll__direct_exchange(now);
    coll__fold_terms(now, coll__block(COLL__RESULT, now->rank));
    return true;
}

/* ---- >>allreduce ---- */

/* Gather all inputs at rank 0, fold, then broadcast: 2 R rounds, (p - 1) m into rank 0 and up to (r - 1) R m out of it, but
 * only 2 (p - 1) messages instead of p R: for short vectors of ranks that share processors.  Canonical. */
static bool coll__allreduce_tree(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix);
    return k < rounds || rounds == 0 ? coll__reduce_gather(now, k) : coll__broadcast_tree(now, k - rounds);
}

/* Direct reduce-scatter, then allgather of the rounded blocks: 1 + R rounds, 2 (p - 1) / p m, the least possible; for long
 * vectors.  Canonical, because the reduction takes one round; the allgather does not round.  With leaves, nodes may first be
 * added in another round (coll_leaves.h).  "shares" is the same in 2 rounds
 * (radix p), with blocks in proportion to the links of their ranks: T m over the slowest link, the least possible
 * (coll_uneven_split.h). */
static bool coll__allreduce_direct(coll__round *now, int k)
{
    if (COLL__LEAVES_OF(now) && COLL__LEAVES_OF(now)->has_sums && k-- == 0) return coll__leaves_gather(now), true;
    return k == 0 ? coll__direct_reduce(now, 0) : coll__circulant_allgather(now, k - 1, COLL__RESULT);
}

/* Circulant reduce-scatter and its mirror image: 2 R rounds, 2 (p - 1) / p m. */
static bool coll__allreduce_circulant(coll__round *now, int k)
{
    const int half = coll__circulant_rounds(now->size, now->radix);
    return k < half || now->size == 1 ? coll__circulant_reduce(now, k)
                                      : coll__circulant_allgather(now, k - half, COLL__RESULT);
}

/* Twice around the ring: 2 (p - 1) rounds, 2 (p - 1) / p m, over links of the ring only. */
static bool coll__allreduce_ring(coll__round *now, int k)
{
    const int half = now->size - 1;
    return k < half || now->size == 1 ? coll__ring_reduce(now, k) : coll__ring_allgather(now, k - half);
}

/* ---- >>neighbors ---- */

/* Of the blocks for this rank itself, the k-th one is that from its k-th entry among the sources. */
static bool coll__neighbor_exchange(coll__round *now, int k, bool is_one_block)
{
    const coll__graph *graph = now->graph;
    int self = -1;                                /* the last entry of this rank among the sources            */

    if (k > 0) return false;
    for (int j = 0; j < graph->destinations; j++) {
        const coll__span block = coll__block(COLL__INPUT, is_one_block ? 0 : j);
        if (graph->destination[j] == COLL_RANK_NONE) continue;
        if (graph->destination[j] != now->rank) {
            coll__send(now, graph->destination[j], block);
            continue;
        }
        while (++self < graph->sources && graph->source[self] != now->rank) {}
        if (self < graph->sources) coll__copy(now, coll__block(COLL__RESULT, self), block);
    }
    for (int i = 0; i < graph->sources; i++)
        if (graph->source[i] != COLL_RANK_NONE && graph->source[i] != now->rank)
            coll__recv(now, graph->source[i], coll__block(COLL__RESULT, i));
    return true;
}

/* Every rank sends to its neighbors, in the order of the lists: 1 round.  A rank that is listed twice gets two messages. */
static bool coll__neighbor_allgather(coll__round *now, int k) { return coll__neighbor_exchange(now, k, true); }
static bool coll__neighbor_alltoall(coll__round *now, int k) { return coll__neighbor_exchange(now, k, false); }

/* ---- >>table of all algorithms ---- */

/* How the vector is cut into now->blocks. */
typedef enum coll__cut {
    COLL__CUT_ONE,
    COLL__CUT_TWO,
    COLL__CUT_PER_RANK,
    COLL__CUT_SHARES,                             /* per rank, in proportion to its link (coll_uneven_split.h)      */
    COLL__CUT_MANY                                /* as many as the tuner chooses                             */
} coll__cut;

typedef struct coll__algorithm {
    coll_kind   kind;
    const char *name;
    bool      (*round)(coll__round *now, int k);
    coll__cost_fn *cost, *then;                   /* then: of what follows                                    */
    coll__cut   cut;
    bool        keeps_order;                      /* valid for operations that do not commute                 */
    bool        is_canonical;                     /* reductions: gives the bits of the canonical order; true
                                                     if nothing is reduced                                    */
    bool        needs_exact;                      /* only for operations whose grouping does not change a bit */
    bool        has_radix;
    bool        is_pipelined;                     /* runs in many slices; the tuner chooses how many          */
    bool        has_order;                        /* uses now->order                                          */
    bool        is_even;                          /* all ranks send equally many messages and blocks          */
} coll__algorithm;

#define COLL__ROW(kind, name, round, cost, then, cut, keeps, canonical, exact, radix, pipelined, order, even)                   \
    { COLL_##kind, name, coll__##round, COLL__COST_OF(cost), COLL__COST_OF(then), COLL__CUT_##cut, keeps, canonical, exact,     \
      radix, pipelined, order, even },

/* ALT: left out of programs without choice.  ...V: also for blocks of different lengths. */
#if COLL__HAS_CHOICE
#define COLL__COST_OF(name) coll__cost_##name
#define COLL__ALT(...) COLL__ROW(__VA_ARGS__)
#else
#define COLL__COST_OF(name) NULL
#define COLL__ALT(...)
#endif
#if COLL__HAS_COUNTS
#define COLL__IF_COUNTS(...) __VA_ARGS__
#else
#define COLL__IF_COUNTS(...)
#endif
#define COLL__ROWV(kind, ...) COLL__ROW(kind, __VA_ARGS__) COLL__IF_COUNTS(COLL__ROW(kind##V, __VA_ARGS__))
#define COLL__SCANS(row, ...) row(SCAN, __VA_ARGS__) row(EXSCAN, __VA_ARGS__)
#define COLL__ALTV(kind, ...) COLL__ALT(kind, __VA_ARGS__) COLL__IF_COUNTS(COLL__ALT(kind##V, __VA_ARGS__))

/* An algorithm without a radix has radix p. */
static const coll__algorithm coll__algorithms[] = {
    /* kind, name, round, cost, then, cut; keeps order, canonical, needs exact, radix, pipelined, has an order, even */
    COLL__ROW(BARRIER,        "circulant",  barrier_circulant,   allgather,         none,           PER_RANK, 1, 1, 0, 1, 0, 0, 1)
    COLL__ALT(BARRIER,        "tree",       tree_allgather,      gather_tree,       broadcast_tree, PER_RANK, 1, 1, 0, 1, 0, 0, 0)
#if COLL__HAS_BROADCAST
    COLL__ROW(BROADCAST,      "tree",       broadcast_tree,      broadcast_tree,    none,           ONE,      1, 1, 0, 1, 0, 0, 0)
    COLL__ALT(BROADCAST,      "scatter",    broadcast_scatter,   scatter_tree,      allgather,      PER_RANK, 1, 1, 0, 1, 0, 0, 0)
    COLL__ALT(BROADCAST,      "blocks",     broadcast_blocks,    broadcast_blocks,  none,           MANY,     1, 1, 0, 0, 0, 0, 0)
    COLL__ALT(BROADCAST,      "dbtree",     broadcast_dbtree,    broadcast_dbtree,  none,           TWO,      1, 1, 0, 0, 1, 0, 0)
#endif
#if COLL__HAS_REDUCE
    COLL__ALT(REDUCE,         "gather",     reduce_gather,       reduce_gather,     none,           ONE,      1, 1, 0, 1, 0, 0, 0)
    COLL__ROW(REDUCE,         "direct",     reduce_direct,       direct_reduce,     allgather,      PER_RANK, 1, 1, 0, 0, 0, 0, 0)
    COLL__ALT(REDUCE,         "tree",       reduce_tree,         reduce_tree,       none,           ONE,      0, 0, 0, 1, 0, 0, 0)
    COLL__ALT(REDUCE,         "blocks",     reduce_blocks,       reduce_blocks,     none,           MANY,     0, 0, 0, 0, 0, 0, 0)
    COLL__ALT(REDUCE,         "dbtree",     reduce_dbtree,       reduce_dbtree,     none,           TWO,      0, 0, 0, 0, 1, 0, 0)
#endif
    COLL__ALT(ALLREDUCE,      "gather",     gather_fold,         gather_fold,       none,           ONE,      1, 1, 0, 1, 0, 0, 1)
    COLL__ROW(ALLREDUCE,      "direct",     allreduce_direct,    direct_reduce,     allgather,      PER_RANK, 1, 1, 0, 1, 0, 0, 1)
    COLL__ALT(ALLREDUCE,      "shares",     allreduce_direct,    allreduce_shares,  none,           SHARES,   1, 1, 0, 0, 0, 0, 1)
    COLL__ALT(ALLREDUCE,      "circulant",  allreduce_circulant, circulant_reduce,  allgather,      PER_RANK, 0, 0, 0, 1, 0, 0, 1)
    COLL__ALT(ALLREDUCE,      "ring",       allreduce_ring,      ring_reduce,       ring_allgather, PER_RANK, 0, 0, 0, 0, 0, 1, 1)
    COLL__ALT(ALLREDUCE,      "tree",       allreduce_tree,      reduce_gather,     broadcast_tree, ONE,      1, 1, 0, 1, 0, 0, 0)
    COLL__ALT(ALLREDUCE,      "dbtree",     allreduce_dbtree,    allreduce_dbtree,  none,           TWO,      1, 0, 0, 0, 1, 0, 0)
    COLL__ALT(ALLREDUCE,      "census",     allreduce_census,    census,            none,           ONE,      0, 0, 1, 0, 0, 0, 1)
#if COLL__HAS_REDUCE_SCATTER
    COLL__ALTV(REDUCE_SCATTER, "gather",    gather_fold,         gather_fold,       none,           PER_RANK, 1, 1, 0, 1, 0, 0, 1)
    COLL__ALTV(REDUCE_SCATTER, "tree",      reduce_scatter_tree, reduce_gather,     scatter_tree,   PER_RANK, 1, 1, 0, 1, 0, 0, 0)
    COLL__ROWV(REDUCE_SCATTER, "direct",    direct_reduce,       direct_reduce,     none,           PER_RANK, 1, 1, 0, 0, 0, 0, 1)
    COLL__ALTV(REDUCE_SCATTER, "circulant", circulant_reduce,    circulant_reduce,  none,           PER_RANK, 0, 0, 0, 1, 0, 0, 1)
    COLL__ALTV(REDUCE_SCATTER, "ring",      ring_reduce,         ring_reduce,       none,           PER_RANK, 0, 0, 0, 0, 0, 1, 1)
#endif
#if COLL__HAS_SCAN
    COLL__SCANS(COLL__ALT,    "gather",     scan_gather,         gather_fold,       none,           ONE,      1, 1, 0, 1, 0, 0, 1)
    COLL__SCANS(COLL__ROW,    "transposed", scan_transposed,     direct_reduce,     allgather,      PER_RANK, 1, 1, 0, 0, 0, 0, 0)
    COLL__SCANS(COLL__ALT,    "census",     scan_census,         census,            none,           ONE,      1, 0, 0, 0, 0, 0, 0)
    COLL__SCANS(COLL__ALT,    "chain",      scan_chain,          scan_chain,        none,           ONE,      1, 1, 0, 0, 1, 0, 0)
#endif
#if COLL__HAS_GATHER
    COLL__ALTV(GATHER,        "tree",       gather_tree,         gather_tree,       none,           PER_RANK, 1, 1, 0, 1, 0, 0, 0)
    COLL__ROWV(GATHER,        "direct",     gather_tree,         gather_tree,       none,           PER_RANK, 1, 1, 0, 0, 0, 0, 0)
#endif
#if COLL__HAS_SCATTER
    COLL__ALTV(SCATTER,       "tree",       scatter_tree,        scatter_tree,      none,           PER_RANK, 1, 1, 0, 1, 0, 0, 0)
    COLL__ROWV(SCATTER,       "direct",     scatter_tree,        scatter_tree,      none,           PER_RANK, 1, 1, 0, 0, 0, 0, 0)
#endif
    COLL__ROWV(ALLGATHER,     "circulant",  allgather_circulant, allgather,         none,           PER_RANK, 1, 1, 0, 1, 0, 0, 1)
    COLL__ALTV(ALLGATHER,     "ring",       allgather_ring,      ring_allgather,    none,           PER_RANK, 1, 1, 0, 0, 0, 1, 1)
    COLL__ALTV(ALLGATHER,     "tree",       allgather_tree,      gather_tree,       broadcast_tree, PER_RANK, 1, 1, 0, 1, 0, 0, 0)
#if COLL__HAS_ALLTOALL
    COLL__ALTV(ALLTOALL,      "circulant",  alltoall_circulant,  bruck,             none,           PER_RANK, 1, 1, 0, 1, 0, 0, 1)
    COLL__ROWV(ALLTOALL,      "direct",     alltoall_direct,     bruck,             none,           PER_RANK, 1, 1, 0, 0, 0, 0, 1)
    COLL__IF_COUNTS(
        COLL__ALT(ALLTOALLW,  "circulant",  alltoall_circulant,  bruck,             none,           PER_RANK, 1, 1, 0, 1, 0, 0, 1)
        COLL__ROW(ALLTOALLW,  "direct",     alltoall_direct,     bruck,             none,           PER_RANK, 1, 1, 0, 0, 0, 0, 1)
    )
#endif
#if COLL__HAS_NEIGHBOR
    COLL__ROWV(NEIGHBOR_ALLGATHER, "direct", neighbor_allgather, neighbor,          none,           PER_RANK, 1, 1, 0, 0, 0, 0, 0)
    COLL__ROWV(NEIGHBOR_ALLTOALL, "direct", neighbor_alltoall,   neighbor,          none,           PER_RANK, 1, 1, 0, 0, 0, 0, 0)
    COLL__IF_COUNTS(COLL__ROW(NEIGHBOR_ALLTOALLW, "direct", neighbor_alltoall, neighbor, none, PER_RANK, 1, 1, 0, 0, 0, 0, 0))
#endif
};

#undef COLL__ALTV
#undef COLL__SCANS
#undef COLL__ROWV
#undef COLL__IF_COUNTS
#undef COLL__ALT
#undef COLL__ROW
#undef COLL__COST_OF

enum { COLL__ALGORITHM_COUNT = sizeof coll__algorithms / sizeof *coll__algorithms };

/* The blocks of its vector; `many`: the tuner's choice. */
static inline int coll__blocks_of(const coll__algorithm *a, int size, int many)
{
    return a->cut == COLL__CUT_PER_RANK || a->cut == COLL__CUT_SHARES ? size
         : a->cut == COLL__CUT_MANY ? many : a->cut == COLL__CUT_TWO ? 2 : 1;
}

/* Its time.  If a tree follows, one slice is sent down while the next one is sent up, so a rank's link is used both ways:
 * per_byte_handled 0 disables coll__one_way. */
static double coll__cost_of(const coll__algorithm *a, const coll__link *link, const coll__shape *s)
{
    coll__link both = *link;

    if (s->size < 2) return 0;
    if (a->then == coll__cost_broadcast_tree || a->then == coll__cost_scatter_tree) both.per_byte_handled = 0;
    return a->cost(&both, s) + a->then(&both, s);
}

/* Is the number after its name a number of blocks or slices? */
static inline bool coll__has_cut(const coll__algorithm *a) { return a->cut == COLL__CUT_MANY || a->is_pipelined; }

#endif /* COLL_ALGORITHMS_H */
