/* coll_algorithms.h - the algorithms, each a pure function of the round.
 *
 * Two generators give everything here: the radix-r circulant, in which rank v talks to ranks at fixed distances round the
 * circle, and the k-nomial tree.  Both work for any number of ranks.  Reductions are direct: whoever is to own a block gets
 * every rank's raw contribution and combines them in rank order, so each element is rounded once and its bits depend on
 * nothing but the inputs.
 *
 * In the costs p is the number of ranks, r the radix, m the whole vector; R = ceil(log_r p) rounds.
 */
#ifndef COLL_ALGORITHMS_H
#define COLL_ALGORITHMS_H

/* ---- >>circulant: distances shrink from p to 1 by the radix, rounded up ---- */

/* ceil(log_radix size): how many rounds it takes for something known to one rank to reach all. */
static int coll__circulant_rounds(int size, int radix)
{
    int rounds = 0;
    for (int skip = size; skip > 1; skip = (skip + radix - 1) / radix) rounds++;
    return rounds;
}

/* The skip after `steps` divisions: size, ceil(size / r), ceil(that / r), ..., 1. */
static int coll__circulant_skip(int size, int radix, int steps)
{
    int skip = size;
    while (steps-- > 0) skip = (skip + radix - 1) / radix;
    return skip;
}

/* Round k of the allgather: everyone passes on what it has, over distances that grow.
 *
 *     p = 5, r = 2: skips 5 3 2 1.  Rank v holds blocks v .. v+s-1 before the round of skip s, and v .. v+S-1 after it:
 *
 *         has v          v v+1          v v+1 v+2       all
 *           from v+1       from v+2       from v+3
 *
 * Before: rank v has block v in `place`.  After: all blocks.  R rounds, (r - 1) R messages at most, and each rank sends
 * p - 1 blocks, the least possible.  r = p is the direct exchange in one round; with empty blocks it is the dissemination
 * barrier.  This is Bruck's allgather (1997) for any radix, as the mirror image of Traeff's reduce-scatter (arXiv
 * 2410.14234). */
static bool coll__circulant_allgather(coll__round *now, int k, coll__place place)
{
    const int me = now->rank, rounds = coll__circulant_rounds(now->size, now->radix);

    if (k >= rounds) return false;
    const int near = coll__circulant_skip(now->size, now->radix, rounds - k);
    const int far = coll__circulant_skip(now->size, now->radix, rounds - k - 1);
    for (int low = near; low < far; low += near) {
        const int blocks = (far < low + near ? far : low + near) - low;
        coll__send(now, me - low, coll__blocks(now, place, me, blocks));
        coll__recv(now, me + low, coll__blocks(now, place, me + low, blocks));
    }
    return true;
}

/* The only round of the direct reduce-scatter: every owner gets its block of every rank's input.
 *
 * Before: every rank has its whole vector.  After: rank v holds block v of the sum at `to`, rounded once.
 * 1 round, p - 1 messages, (p - 1) / p m sent, the least possible.  Starting with the next rank keeps all from writing to
 * the same one at once.  This is the radix-p case of the circulant reduce-scatter. */
static void coll__direct_exchange(coll__round *now, coll__place to)
{
    const int me = now->rank;

    for (int j = 1; j < now->size; j++) {
        coll__send(now, me + j, coll__blocks(now, COLL__INPUT, me + j, 1));
        coll__recv(now, me - j, coll__blocks(now, COLL__WORK, me - j, 1));
    }
    coll__fold(now, coll__blocks(now, to, me, 1));
}

/* ---- >>tree: k-nomial, by ranks counted from the root ---- */

/* radix to the power of n, but no more than is needed to pass `size`. */
static int coll__tree_unit(int size, int radix, int n)
{
    int unit = 1;
    while (n-- > 0 && unit < size) unit = unit > size / radix ? size : unit * radix;
    return unit;
}

static int coll__tree_rounds(int size, int radix)
{
    int rounds = 0;
    while (coll__tree_unit(size, radix, rounds) < size) rounds++;
    return rounds;
}

/* What rank `me` does on the level whose subtrees hold `unit` ranks.
 *
 *     p = 6, r = 2 (rank numbers from the root)        level 4: 0-4    level 2: 0-2, (4-6)    level 1: 0-1, 2-3, 4-5
 *
 *         0 --+-- 4 --- 5
 *             +-- 2 --- 3
 *             +-- 1
 *
 * `emit` is told each edge of that level that touches this rank: the peer, whether this rank is the parent, and the
 * subtree below the edge, which is a consecutive run of ranks. */
static void coll__tree_level(coll__round *now, int unit,
                             void (*emit)(coll__round *now, int peer, bool is_parent, int first, int ranks))
{
    const int size = now->size, v = coll__wrap(now->rank - now->root, size), r = now->radix;
    const int digit = v / unit % r;

    if (v % unit) return;
    if (digit) {                                  /* a child: its parent has digit 0 here */
        const int ranks = unit < size - v ? unit : size - v;
        emit(now, now->rank - digit * unit, false, now->rank, ranks);
        return;
    }
    for (int j = 1; j < r && v + (int64_t)j * unit < size; j++) {
        const int child = v + j * unit, ranks = unit < size - child ? unit : size - child;
        emit(now, now->rank + j * unit, true, now->rank + j * unit, ranks);
    }
}

static void coll__tree_pass_on(coll__round *now, int peer, bool is_parent, int first, int ranks)
{
    (void)first, (void)ranks;
    if (is_parent) coll__send(now, peer, coll__all(COLL__RESULT));
    else coll__recv(now, peer, coll__all(COLL__RESULT));
}

static void coll__tree_hand_out(coll__round *now, int peer, bool is_parent, int first, int ranks)
{
    const coll__span subtree = coll__blocks(now, COLL__RESULT, first, ranks);
    if (is_parent) coll__send(now, peer, subtree);
    else coll__recv(now, peer, subtree);
}

static void coll__tree_collect(coll__round *now, int peer, bool is_parent, int first, int ranks)
{
    const coll__span subtree = coll__blocks(now, COLL__WORK, first, ranks);
    if (is_parent) coll__recv(now, peer, subtree);
    else coll__send(now, peer, subtree);
}

/* ---- >>barrier, allgather ---- */

/* R rounds, no data. */
static bool coll__barrier_circulant(coll__round *now, int k)
{
    return coll__circulant_allgather(now, k, COLL__RESULT);
}

/* R rounds, (p - 1) / p m. */
static bool coll__allgather_circulant(coll__round *now, int k)
{
    if (k == 0) coll__copy(now, coll__blocks(now, COLL__RESULT, now->rank, 1), coll__blocks(now, COLL__INPUT, now->rank, 1));
    return coll__circulant_allgather(now, k, COLL__RESULT) || k == 0;
}

/* ---- >>broadcast ---- */

/* The tree, farthest first: R rounds, R (r - 1) m sent by the root; for short vectors. */
static bool coll__broadcast_tree(coll__round *now, int k)
{
    const int rounds = coll__tree_rounds(now->size, now->radix);

    if (k >= rounds) return false;
    coll__tree_level(now, coll__tree_unit(now->size, now->radix, rounds - 1 - k), coll__tree_pass_on);
    return true;
}

/* Scatter down the tree, then allgather: 2 R rounds, 2 (p - 1) / p m; for long vectors.  van de Geijn's broadcast, with the
 * circulant as its second half. */
static bool coll__broadcast_scatter(coll__round *now, int k)
{
    const int rounds = coll__tree_rounds(now->size, now->radix);

    if (k >= rounds) return coll__circulant_allgather(now, k - rounds, COLL__RESULT);
    coll__tree_level(now, coll__tree_unit(now->size, now->radix, rounds - 1 - k), coll__tree_hand_out);
    return true;
}

/* ---- >>reduce ---- */

/* Bring all inputs to the root, which combines them: R rounds, (p - 1) m into the root; for short vectors. */
static bool coll__reduce_gather(coll__round *now, int k)
{
    const int rounds = coll__tree_rounds(now->size, now->radix), last = rounds > 0 ? rounds - 1 : 0;

    if (k > last) return false;
    if (k == 0) coll__copy(now, coll__blocks(now, COLL__WORK, now->rank, 1), coll__all(COLL__INPUT));
    coll__tree_level(now, coll__tree_unit(now->size, now->radix, k), coll__tree_collect);
    if (k == last && now->rank == now->root) coll__fold(now, coll__all(COLL__RESULT));
    return true;
}

/* Direct reduce-scatter, then every owner hands its block to the root: 2 rounds, m sent by each rank, (p - 1) / p m by the
 * root; for long vectors. */
static bool coll__reduce_direct(coll__round *now, int k)
{
    const bool is_root = now->rank == now->root;

    if (k > 1) return false;
    if (k == 0) {
        coll__direct_exchange(now, is_root ? COLL__RESULT : COLL__MINE);
        return true;
    }
    if (!is_root) coll__send(now, now->root, coll__blocks(now, COLL__MINE, now->rank, 1));
    for (int j = 1; is_root && j < now->size; j++)
        coll__recv(now, now->rank + j, coll__blocks(now, COLL__RESULT, now->rank + j, 1));
    return true;
}

/* ---- >>reduce_scatter, allreduce ---- */

/* 1 round, (p - 1) / p m. */
static bool coll__reduce_scatter_direct(coll__round *now, int k)
{
    if (k > 0) return false;
    coll__direct_exchange(now, COLL__RESULT);
    return true;
}

/* Allgather of the raw inputs, then everyone combines all: R rounds, (p - 1) m; for short vectors. */
static bool coll__allreduce_gather(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix), last = rounds > 0 ? rounds - 1 : 0;

    if (k > last) return false;
    if (k == 0) coll__copy(now, coll__blocks(now, COLL__WORK, now->rank, 1), coll__all(COLL__INPUT));
    coll__circulant_allgather(now, k, COLL__WORK);
    if (k == last) coll__fold(now, coll__all(COLL__RESULT));
    return true;
}

/* Direct reduce-scatter, then allgather of the rounded blocks: 1 + R rounds, 2 (p - 1) / p m, the least possible; for long
 * vectors. */
static bool coll__allreduce_direct(coll__round *now, int k)
{
    if (k > 0) return coll__circulant_allgather(now, k - 1, COLL__RESULT);
    coll__direct_exchange(now, COLL__RESULT);
    return true;
}

/* ---- >>table: what there is to choose from ---- */

typedef struct coll__algorithm {
    coll_kind   kind;
    const char *name;
    bool      (*round)(coll__round *now, int k);
    bool        by_block;                         /* one block per rank; otherwise one in all                 */
    bool        folds;                            /* uses COLL__WORK                                          */
} coll__algorithm;

static const coll__algorithm coll__algorithms[] = {
    { COLL_BARRIER,        "circulant", coll__barrier_circulant,     true,  false },
    { COLL_BROADCAST,      "tree",      coll__broadcast_tree,        false, false },
    { COLL_BROADCAST,      "scatter",   coll__broadcast_scatter,     true,  false },
    { COLL_REDUCE,         "gather",    coll__reduce_gather,         false, true  },
    { COLL_REDUCE,         "direct",    coll__reduce_direct,         true,  true  },
    { COLL_ALLREDUCE,      "gather",    coll__allreduce_gather,      false, true  },
    { COLL_ALLREDUCE,      "direct",    coll__allreduce_direct,      true,  true  },
    { COLL_REDUCE_SCATTER, "direct",    coll__reduce_scatter_direct, true,  true  },
    { COLL_ALLGATHER,      "circulant", coll__allgather_circulant,   true,  false },
};

enum { COLL__ALGORITHM_COUNT = sizeof coll__algorithms / sizeof *coll__algorithms };

#endif /* COLL_ALGORITHMS_H */
