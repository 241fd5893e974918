/* coll_tree.h - algorithms with a root: the k-nomial tree, by ranks counted from the root, and the chain.
 *
 * In the costs p is the number of ranks, r the radix, m the whole vector, R = ceil(log_r p) rounds.
 */
#ifndef COLL_TREE_H
#define COLL_TREE_H

#include "coll_circulant.h"

/* ---- >>tree ---- */

/* An edge as one of its two ends sees it. */
typedef struct coll__edge {
    int  peer;
    bool is_parent;                               /* this rank is the upper end                               */
    int  unit;                                    /* ranks in a whole subtree of this level                   */
    int  first, ranks;                            /* of the subtree below: its first rank, counted from this one; how many */
} coll__edge;

/* What this rank does on the level whose subtrees hold `unit` ranks: `emit` is told each edge of that level that touches it.
 *
 *     p = 6, r = 2 (rank numbers from the root)        level 4: 0-4    level 2: 0-2    level 1: 0-1, 2-3, 4-5
 *
 *         0 --+-- 4 --- 5
 *             +-- 2 --- 3
 *             +-- 1
 *
 * A subtree is a run of consecutive ranks, so scatter and gather move one range an edge.  Levels run from large units to
 * small ones towards the leaves, and the other way round towards the root. */
static void coll__tree_level(coll__round *now, int unit, void (*emit)(coll__round *now, const coll__edge *edge))
{
    const int size = now->size, v = coll__mod(now->rank - now->root, size), digit = v / unit % now->radix;

    if (v % unit) return;
    if (digit) {                                  /* a child: its parent has digit 0 here */
        const coll__edge up = { now->rank - digit * unit, false, unit, 0, coll__less(unit, size - v) };
        emit(now, &up);
        return;
    }
    for (int j = 1; j < now->radix && j <= (size - 1 - v) / unit; j++) {
        const coll__edge down = { now->rank + j * unit, true, unit, j * unit, coll__less(unit, size - v - j * unit) };
        emit(now, &down);
    }
}

/* Ranks in the subtree of this one, itself included. */
static int coll__tree_ranks(const coll__round *now)
{
    const int size = now->size, v = coll__mod(now->rank - now->root, size);
    int unit = 1, n = 0;

    if (v == 0) return size;
    while (v % coll__power(size, now->radix, n + 1) == 0) unit = coll__power(size, now->radix, ++n);
    return coll__less(unit, size - v);
}

/* Unit of round k towards the leaves. */
static int coll__tree_down(const coll__round *now, int k)
{
    return coll__power(now->size, now->radix, coll__circulant_rounds(now->size, now->radix) - 1 - k);
}

/* ---- >>from the root ---- */

static void coll__edge_pass_on(coll__round *now, const coll__edge *edge)
{
    if (edge->is_parent) coll__send(now, edge->peer, coll__block(COLL__RESULT, 0));
    else coll__recv(now, edge->peer, coll__block(COLL__RESULT, 0));
}

/* Broadcast down the tree, farthest first: R rounds, at most (r - 1) R m sent by the root; for short vectors. */
static bool coll__broadcast_tree(coll__round *now, int k)
{
    if (k >= coll__circulant_rounds(now->size, now->radix)) return false;
    coll__tree_level(now, coll__tree_down(now, k), coll__edge_pass_on);
    return true;
}

static void coll__edge_split(coll__round *now, const coll__edge *edge)
{
    const coll__span subtree = coll__held(now, COLL__RESULT, edge->first, edge->ranks);
    if (edge->is_parent) coll__send(now, edge->peer, subtree);
    else coll__recv(now, edge->peer, subtree);
}

/* Broadcast as scatter down the tree, then allgather: 2 R rounds, 2 (p - 1) / p m; between short and long vectors.  van de
 * Geijn's broadcast, with the circulant as its second half. */
static bool coll__broadcast_scatter(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix);

    if (k >= rounds) return coll__circulant_allgather(now, k - rounds, COLL__RESULT);
    coll__tree_level(now, coll__tree_down(now, k), coll__edge_split);
    return true;
}

/* A subtree's blocks down an edge, of the root from where it has them. */
static void coll__hand_out(coll__round *now, const coll__edge *edge, coll__span of_root)
{
    if (edge->is_parent)
        coll__send(now, edge->peer, now->rank == now->root ? of_root : coll__held(now, COLL__WORK, edge->first, edge->ranks));
    else
        coll__recv(now, edge->peer, edge->ranks == 1 ? coll__block(COLL__RESULT, now->rank)
                                                     : coll__held(now, COLL__WORK, 0, edge->ranks));
}

static void coll__edge_hand_out(coll__round *now, const coll__edge *edge)
{
    coll__hand_out(now, edge, coll__blocks(COLL__INPUT, edge->peer, edge->ranks));
}

/* A rank that is neither the root nor a leaf. */
static bool coll__is_between(const coll__round *now) { return now->rank != now->root && coll__tree_ranks(now) > 1; }

/* Round k of R that bring each rank its block.  A rank with others below it keeps their blocks in WORK for as long as it takes
 * to pass them on; all have come before the last round. */
static void coll__tree_hand_out(coll__round *now, int k, void (*emit)(coll__round *now, const coll__edge *edge))
{
    if (k == coll__circulant_rounds(now->size, now->radix) - 1 && coll__is_between(now))
        coll__copy(now, coll__block(COLL__RESULT, now->rank), coll__held(now, COLL__WORK, 0, 1));
    coll__tree_level(now, coll__tree_down(now, k), emit);
}

/* Scatter down the tree: R rounds, (p - 1) / p m sent by the root, the least possible. */
static bool coll__scatter_tree(coll__round *now, int k)
{
    if (k > 0 && k >= coll__circulant_rounds(now->size, now->radix)) return false;
    if (k == 0 && now->rank == now->root)
        coll__copy(now, coll__block(COLL__RESULT, now->rank), coll__block(COLL__INPUT, now->rank));
    if (now->size > 1) coll__tree_hand_out(now, k, coll__edge_hand_out);
    return true;
}

/* Scatter without detours: 1 round, p - 1 messages of the root, (p - 1) / p m. */
static bool coll__scatter_direct(coll__round *now, int k)
{
    const int me = now->rank;

    if (k > 0) return false;
    if (me != now->root) coll__recv(now, now->root, coll__block(COLL__RESULT, me));
    else coll__copy(now, coll__block(COLL__RESULT, me), coll__block(COLL__INPUT, me));
    for (int j = 1; me == now->root && j < now->size; j++) coll__send(now, me + j, coll__block(COLL__INPUT, me + j));
    return true;
}

/* The chain: each rank passes the vector to the next one, along the order of the ring rotated so that the root is first.
 *
 *     root --> next --> ... --> last
 *
 * p - 1 rounds, m sent by each rank and over each link: for links to neighbours only, in many slices that follow one another
 * down the chain.  The first of n slices takes p - 1 messages of m / n, the others come right behind it. */
static bool coll__broadcast_chain(coll__round *now, int k)
{
    if (k >= now->size - 1) return false;
    const int at = coll__ring_place_of(now, now->rank);
    const int behind = coll__mod(at - coll__ring_place_of(now, now->root), now->size);    /* the root             */
    if (behind == k) coll__send(now, coll__ring_rank(now, at + 1), coll__block(COLL__RESULT, 0));
    if (behind == k + 1) coll__recv(now, coll__ring_rank(now, at - 1), coll__block(COLL__RESULT, 0));
    return true;
}

/* ---- >>to the root ---- */

/* A subtree's blocks up an edge, into the root's RESULT. */
static void coll__edge_collect(coll__round *now, const coll__edge *edge)
{
    const coll__place here = now->rank == now->root ? COLL__RESULT : COLL__WORK;

    if (edge->is_parent) coll__recv(now, edge->peer, coll__held(now, here, edge->first, edge->ranks));
    else coll__send(now, edge->peer, edge->ranks == 1 ? coll__own(now) : coll__held(now, COLL__WORK, 0, edge->ranks));
}

/* A subtree's vectors up an edge. */
static void coll__edge_collect_vectors(coll__round *now, const coll__edge *edge)
{
    if (edge->is_parent) coll__recv(now, edge->peer, coll__vectors(now, edge->first, edge->ranks));
    else coll__send(now, edge->peer, edge->ranks == 1 ? coll__vector(now) : coll__vectors(now, 0, edge->ranks));
}

/* Gather up the tree: R rounds, (p - 1) / p m into the root, the least possible.  A rank with others below it puts its own
 * block beside theirs, to send one range. */
static bool coll__gather_tree(coll__round *now, int k)
{
    if (k > 0 && k >= coll__circulant_rounds(now->size, now->radix)) return false;
    if (k == 0 && now->rank == now->root)
        coll__copy(now, coll__block(COLL__RESULT, now->rank), coll__block(COLL__INPUT, now->rank));
    if (k == 0 && coll__is_between(now)) coll__copy(now, coll__held(now, COLL__WORK, 0, 1), coll__own(now));
    if (now->size > 1) coll__tree_level(now, coll__power(now->size, now->radix, k), coll__edge_collect);
    return true;
}

/* Gather without detours: 1 round, p - 1 messages into the root, (p - 1) / p m. */
static bool coll__gather_direct(coll__round *now, int k)
{
    const int me = now->rank;

    if (k > 0) return false;
    if (me != now->root) coll__send(now, now->root, coll__block(COLL__INPUT, me));
    else coll__copy(now, coll__block(COLL__RESULT, me), coll__block(COLL__INPUT, me));
    for (int j = 1; me == now->root && j < now->size; j++) coll__recv(now, me + j, coll__block(COLL__RESULT, me + j));
    return true;
}

/* Round k of R that bring all vectors to the root's WORK; true: they are there, and this is the root. */
static bool coll__tree_collect(coll__round *now, int k)
{
    if (k == 0 && coll__is_between(now)) coll__copy(now, coll__vectors(now, 0, 1), coll__vector(now));
    coll__tree_level(now, coll__power(now->size, now->radix, k), coll__edge_collect_vectors);
    return k == coll__circulant_rounds(now->size, now->radix) - 1 && now->rank == now->root;
}

/* Reduce by bringing all inputs to the root, which combines them in the order of ranks: R rounds, (p - 1) m into the root;
 * for short vectors, and for operations that do not commute. */
static bool coll__reduce_gather(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix);

    if (rounds == 0) return coll__fold_alone(now, k);
    if (k >= rounds) return false;
    if (coll__tree_collect(now, k)) coll__fold_vectors(now, coll__block(COLL__RESULT, 0), 0);
    return true;
}

/* What a parent is sent over this edge: a rank with nobody below it sends its raw input, others a partial sum. */
static coll__span coll__edge_landing(const coll__edge *edge)
{
    const int child = edge->first / edge->unit;
    return edge->ranks == 1 ? coll__slot_of(COLL__WORK, child - 1, 0) : coll__slot_of(COLL__PART, child, 0);
}

static void coll__edge_partial(coll__round *now, const coll__edge *edge)
{
    if (edge->is_parent) coll__recv(now, edge->peer, coll__edge_landing(edge));
    else coll__send(now, edge->peer, edge->ranks == 1 ? coll__own(now) : coll__slot_of(COLL__PART, 0, 0));
}

/* The folds of a level.  The first child's edge opens the fold. */
static void coll__edge_fold(coll__round *now, const coll__edge *edge)
{
    if (!edge->is_parent) return;
    if (edge->first == edge->unit) {
        const bool is_done = now->rank == now->root && edge->unit > (now->size - 1) / now->radix;
        coll__fold(now, is_done ? coll__block(COLL__RESULT, 0) : coll__slot_of(COLL__PART, 0, 0));
        coll__from(now, edge->unit == 1 ? coll__own(now) : coll__slot_of(COLL__PART, 0, 0));
    }
    coll__from(now, coll__edge_landing(edge));
}

/* Reduce up the tree: every parent folds its own and its children's sums, in the order of ranks counted from the root.  R
 * rounds, each with (r - 1) m into a parent and as much folded; for short vectors and operations that commute. */
static bool coll__reduce_tree(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix);

    if (rounds == 0) return coll__fold_alone(now, k);
    if (k >= rounds) return false;
    coll__tree_level(now, coll__power(now->size, now->radix, k), coll__edge_partial);
    coll__tree_level(now, coll__power(now->size, now->radix, k), coll__edge_fold);
    return true;
}

/* Reduce as a direct reduce-scatter, after which every owner hands its block to the root: 2 rounds, less than m sent by each
 * rank, 2 (p - 1) / p m into the root; for long vectors, in the canonical order. */
static bool coll__reduce_direct(coll__round *now, int k)
{
    const int me = now->rank;
    const bool is_root = me == now->root;

    if (k > 1 || (k > 0 && now->size == 1)) return false;
    if (k == 0) {
        coll__direct_exchange(now);
        coll__fold_all(now, is_root ? coll__block(COLL__RESULT, me) : coll__slot_of(COLL__WORK, 0, me), me);
        return true;
    }
    if (!is_root) coll__send(now, now->root, coll__slot_of(COLL__WORK, 0, me));
    for (int j = 1; is_root && j < now->size; j++) coll__recv(now, me + j, coll__block(COLL__RESULT, me + j));
    return true;
}

/* ---- >>to rank 0 and back ---- */

/* Sums for the ranks from `first` on, at the root, behind the vectors they are made of. */
static coll__span coll__root_sums(const coll__round *now, int first, int ranks)
{
    return coll__slots(COLL__WORK, now->size * now->blocks + first, ranks, first);
}

static void coll__edge_hand_sums(coll__round *now, const coll__edge *edge)
{
    coll__hand_out(now, edge, coll__root_sums(now, edge->first, edge->ranks));
}

static void coll__edge_join(coll__round *now, const coll__edge *edge)
{
    const coll__span subtree = coll__held(now, COLL__RESULT, edge->first, edge->ranks);
    if (edge->is_parent) coll__recv(now, edge->peer, subtree);
    else coll__send(now, edge->peer, subtree);
}

static void coll__edge_pass_all(coll__round *now, const coll__edge *edge)
{
    if (edge->is_parent) coll__send(now, edge->peer, coll__blocks(COLL__RESULT, 0, now->size));
    else coll__recv(now, edge->peer, coll__blocks(COLL__RESULT, 0, now->size));
}

/* Round k of the allgather up the tree and down again: before, rank v has block v in RESULT; after, all have all.  2 R rounds,
 * 2 (p - 1) messages; rank 0 gets p - 1 blocks, and all p go out to up to (r - 1) R others. */
static bool coll__tree_allgather(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix);

    if (k >= 2 * rounds) return false;
    if (k < rounds) coll__tree_level(now, coll__power(now->size, now->radix, k), coll__edge_join);
    else coll__tree_level(now, coll__tree_down(now, k - rounds), coll__edge_pass_all);
    return true;
}

#endif /* COLL_TREE_H */
