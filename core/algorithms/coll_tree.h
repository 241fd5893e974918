/* coll_tree.h - algorithms with a root: the k-nomial tree and the double binary tree.  Tree ranks are counted from
 * the root.
 *
 * In the costs p is the number of ranks, r the radix, m the whole vector, R = ceil(log_r p) rounds. */
#ifndef COLL_TREE_H
#define COLL_TREE_H

#include "coll_ring_bruck.h"

/* ---- >>tree ---- */

/* An edge as seen by one of its two ranks. */
typedef struct coll__edge {
    int  peer;
    bool is_parent;                               /* this rank is the parent                                  */
    int  unit;                                    /* ranks in a full subtree of this level                    */
    int  first, ranks;                            /* of the subtree below: first rank, counted from this one; number of ranks */
} coll__edge;

/* The next edge of this rank on the level of *edge, which begins with no ranks; false: there are no more.
 *
 *     p = 6, r = 2 (rank numbers from the root)        level 4: 0-4    level 2: 0-2    level 1: 0-1, 2-3, 4-5
 *
 *         0 --+-- 4 --- 5
 *             +-- 2 --- 3
 *             +-- 1
 *
 * A subtree has consecutive ranks, so scatter and gather move one range per edge.  Toward the leaves levels go from large units
 * to small ones, toward the root from small to large. */
static bool coll__tree_edge(const coll__round *now, coll__edge *edge)
{
    const int size = now->size, unit = edge->unit, first = edge->first + unit;
    const int v = coll__mod(now->rank - now->root, size), digit = v / unit % now->radix;

    if (v % unit) return false;
    if (digit) {                                  /* a child: its parent has digit 0 here */
        if (edge->ranks > 0) return false;
        *edge = (coll__edge){ now->rank - digit * unit, false, unit, 0, coll__less(unit, size - v) };
        return true;
    }
    if (first / unit >= now->radix || first >= size - v) return false;
    *edge = (coll__edge){ now->rank + first, true, unit, first, coll__less(unit, size - v - first) };
    return true;
}

/* The level of round k toward the root, and toward the leaves. */
static coll__edge coll__tree_up(const coll__round *now, int k)
{
    return (coll__edge){ .unit = coll__power(now->size, now->radix, k) };
}

static coll__edge coll__tree_down(const coll__round *now, int k)
{
    return coll__tree_up(now, coll__circulant_rounds(now->size, now->radix) - 1 - k);
}

/* Is this rank neither the root nor a leaf? */
static bool coll__is_between(const coll__round *now)
{
    const int v = coll__mod(now->rank - now->root, now->size);
    return v > 0 && v % now->radix == 0 && v < now->size - 1;
}

/* Send a span down an edge, or up, or receive it. */
static void coll__pass(coll__round *now, const coll__edge *edge, bool is_down, coll__span span)
{
    if (edge->is_parent == is_down) coll__send(now, edge->peer, span);
    else coll__recv(now, edge->peer, span);
}

/* ---- >>from the root ---- */

/* Broadcast down the tree, farthest first: R rounds, at most (r - 1) R m sent by the root; for short vectors. */
static bool coll__broadcast_tree(coll__round *now, int k)
{
    if (k >= coll__circulant_rounds(now->size, now->radix)) return false;
    for (coll__edge edge = coll__tree_down(now, k); coll__tree_edge(now, &edge);)
        coll__pass(now, &edge, true, coll__blocks(COLL__RESULT, 0, now->blocks));
    return true;
}

/* Broadcast as scatter down the tree, then allgather: 2 R rounds, 2 (p - 1) / p m; for medium vectors.  van de Geijn's
 * broadcast, with the circulant as its second half. */
static bool coll__broadcast_scatter(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix);

    if (k >= rounds) return coll__circulant_allgather(now, k - rounds, COLL__RESULT);
    for (coll__edge edge = coll__tree_down(now, k); coll__tree_edge(now, &edge);)
        coll__pass(now, &edge, true, coll__held(now, COLL__RESULT, edge.first, edge.ranks));
    return true;
}

/* Sums for the ranks from `first` on, at the root, after the vectors. */
static coll__span coll__root_sums(const coll__round *now, int first, int ranks)
{
    return coll__slots(COLL__WORK, now->size * now->blocks + first, ranks, first);
}

/* Round k of R that bring each rank its block, which the root has in INPUT, or in WORK.  An inner rank keeps the blocks of its
 * subtree in WORK until it has forwarded them; all have arrived before the last round. */
static void coll__tree_hand_out(coll__round *now, int k, coll__place of_root)
{
    const coll__span own = coll__block(COLL__RESULT, now->rank);

    if (k == coll__circulant_rounds(now->size, now->radix) - 1 && coll__is_between(now))
        coll__copy(now, own, coll__held(now, COLL__WORK, 0, 1));
    for (coll__edge edge = coll__tree_down(now, k); coll__tree_edge(now, &edge);) {
        const coll__span held = coll__held(now, COLL__WORK, edge.first, edge.ranks);
        if (!edge.is_parent) coll__recv(now, edge.peer, edge.ranks == 1 ? own : held);
        else if (now->rank != now->root) coll__send(now, edge.peer, held);
        else coll__send(now, edge.peer, of_root == COLL__INPUT ? coll__blocks(COLL__INPUT, edge.peer, edge.ranks)
                                                               : coll__root_sums(now, edge.first, edge.ranks));
    }
}

/* Scatter down the tree: R rounds, (p - 1) / p m sent by the root, the least possible.  With radix p it is direct. */
static bool coll__scatter_tree(coll__round *now, int k)
{
    if (k > 0 && k >= coll__circulant_rounds(now->size, now->radix)) return false;
    if (k == 0 && now->rank == now->root)
        coll__copy(now, coll__block(COLL__RESULT, now->rank), coll__block(COLL__INPUT, now->rank));
    coll__tree_hand_out(now, k, COLL__INPUT);
    return true;
}

/* ---- >>to the root ---- */

/* Gather up the tree: R rounds, (p - 1) / p m into the root, the least possible; with radix p it is direct.  An inner rank
 * copies its own block beside those of its subtree, to send one range. */
static bool coll__gather_tree(coll__round *now, int k)
{
    const bool is_root = now->rank == now->root;

    if (k > 0 && k >= coll__circulant_rounds(now->size, now->radix)) return false;
    if (k == 0 && is_root) coll__copy(now, coll__block(COLL__RESULT, now->rank), coll__own(now));
    if (k == 0 && coll__is_between(now)) coll__copy(now, coll__held(now, COLL__WORK, 0, 1), coll__own(now));
    for (coll__edge edge = coll__tree_up(now, k); coll__tree_edge(now, &edge);) {
        const coll__span held = coll__held(now, is_root ? COLL__RESULT : COLL__WORK, edge.first, edge.ranks);
        coll__pass(now, &edge, false, edge.is_parent || edge.ranks > 1 ? held : coll__own(now));
    }
    return true;
}

/* Round k of R that bring all vectors to the root's WORK; true on the root when all have arrived. */
static bool coll__tree_collect_vectors(coll__round *now, int k)
{
    if (k == 0 && coll__is_between(now)) coll__copy(now, coll__vectors(now, 0, 1), coll__vector(now));
    for (coll__edge edge = coll__tree_up(now, k); coll__tree_edge(now, &edge);)
        coll__pass(now, &edge, false, edge.is_parent || edge.ranks > 1 ? coll__vectors(now, edge.first, edge.ranks)
                                                                       : coll__vector(now));
    return k == coll__circulant_rounds(now->size, now->radix) - 1 && now->rank == now->root;
}

/* Reduce by gathering all inputs at the root, which folds them in the order of ranks: R rounds, (p - 1) m into the root; for
 * short vectors, and for operations that do not commute. */
static bool coll__reduce_gather(coll__round *now, int k)
{
    if (now->size == 1) return coll__fold_alone(now, k);
    if (k >= coll__circulant_rounds(now->size, now->radix)) return false;
    if (coll__tree_collect_vectors(now, k)) coll__fold_all(now, coll__block(COLL__RESULT, 0), 0);
    return true;
}

/* Where a parent receives from this edge: raw input from a leaf, else a partial sum. */
static coll__span coll__edge_landing(const coll__edge *edge)
{
    const int child = edge->first / edge->unit;
    return edge->ranks == 1 ? coll__slot_of(COLL__WORK, child - 1, 0) : coll__slot_of(COLL__PART, child, 0);
}

/* Reduce up the tree: every parent folds its own input and its children's sums, in the order of ranks counted from the root.  R
 * rounds, each with (r - 1) m into a parent and as much folded; for short vectors and operations that commute. */
static bool coll__reduce_tree(coll__round *now, int k)
{
    const coll__span sum = coll__slot_of(COLL__PART, 0, 0);

    if (now->size == 1) return coll__fold_alone(now, k);
    if (k >= coll__circulant_rounds(now->size, now->radix)) return false;
    for (coll__edge edge = coll__tree_up(now, k); coll__tree_edge(now, &edge);)
        coll__pass(now, &edge, false, edge.is_parent ? coll__edge_landing(&edge) : edge.ranks == 1 ? coll__own(now) : sum);
    for (coll__edge edge = coll__tree_up(now, k); coll__tree_edge(now, &edge) && edge.is_parent;) {
        const bool is_done = now->rank == now->root && edge.unit > (now->size - 1) / now->radix;
        if (edge.first == edge.unit)
            coll__fold_one(now, is_done ? coll__block(COLL__RESULT, 0) : sum, edge.unit == 1 ? coll__own(now) : sum);
        coll__from(now, coll__edge_landing(&edge));
    }
    return true;
}

/* Reduce as a direct reduce-scatter, after which every rank sends its block to the root: 2 rounds, less than m sent by each
 * rank, 2 (p - 1) / p m into the root; for long vectors, in the canonical order. */
static bool coll__reduce_direct(coll__round *now, int k)
{
    const int me = now->rank;
    const bool is_root = me == now->root;

    if (k > 1 || (k > 0 && now->size == 1)) return false;
    if (k == 0) {
        coll__direct_exchange(now);
        coll__fold_terms(now, is_root ? coll__block(COLL__RESULT, me) : coll__slot_of(COLL__WORK, 0, me));
        return true;
    }
    if (!is_root) coll__send(now, now->root, coll__slot_of(COLL__WORK, 0, me));
    for (int j = 1; is_root && j < now->size; j++) coll__recv(now, me + j, coll__block(COLL__RESULT, me + j));
    return true;
}

/* ---- >>double tree: two binary trees, half of the vector in each ---- */

/* The neighbors of this rank in one of the two trees, and the levels of the edges to them; level 0: none. */
typedef struct coll__node {
    int parent, left, right;
    int up, down_left, down_right;
} coll__node;

/* The place of this rank in tree 0 or 1, with ranks counted from the root, which is above both trees.
 *
 *     p = 7      tree 0      0                  tree 1      0              level of the edge above
 *                            |                              |
 *                            4                              3              4
 *                          /   \                          /   \
 *                         2     6                        1     5           2
 *                        / \   /                          \   / \
 *                       1   3 5                            2 4   6         1
 *
 * Rank v of tree t has the number u = v + t; numbers on its left are smaller, those on its right are larger.  Its level is the
 * largest power of 2 that divides u, so the leaves have odd numbers.  An inner rank of one tree is a leaf of the other: a rank
 * sends at most two halves and receives at most two. */
static coll__node coll__node_of(const coll__round *now, int tree)
{
    const int me = now->rank, v = coll__mod(me - now->root, now->size), last = now->size - 1 + tree;
    const int u = v > 0 ? v + tree : 0, up = u & -u, left = up / 2;
    const bool is_right = up > last - u || (up > 0 && (u / up & 2));
    int right = v > 0 ? left : 1 << 30;

    while (right > last - u) right /= 2;          /* the largest existing subtree; for the root all           */
    return (coll__node){ .parent = !is_right ? me + up : u == up ? now->root : me - up, .left = me - left,
                         .right = v > 0 ? me + right : me + right - tree, .up = up,
                         .down_left = u - left > tree ? left : 0, .down_right = right };
}

/* Levels of the two trees: floor(log_2 p) + 1. */
static inline int coll__dbtree_rounds(int size) { return size > 1 ? coll__circulant_rounds(size + 1, 2) : 0; }

/* Broadcast down both trees, each with half of the vector: q rounds (q + 1 if p is a power of 2), 2 (p - 1) messages of m / 2,
 * and m sent by the busiest rank.  For long vectors and many ranks, in a pipeline of slices.  The blocks of coll_blocks.h wait
 * for each other in every round; here ranks only wait for the first slice.  On 6 to 32 ranks at 10 Gbit/s, with 20 us of latency,
 * 256 KiB take 0.74 to 0.91 of the time of the best other algorithm (simulated).
 *
 * After P.  Sanders, J.  Speck and J.  L.  Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"
 * (Parallel Computing 35, 2009).  Their second tree is the first one mirrored or shifted; this one is shifted and has no number
 * for the root, so that both are in order for any p. */
static bool coll__broadcast_dbtree(coll__round *now, int k)
{
    const int rounds = coll__dbtree_rounds(now->size);

    if (k >= rounds) return false;
    for (int tree = 0, level = 1 << (rounds - 1 - k); tree < 2; tree++) {
        const coll__node node = coll__node_of(now, tree);
        const coll__span half = coll__block(COLL__RESULT, tree);
        if (node.up == level) coll__recv(now, node.parent, half);
        if (node.down_left == level) coll__send(now, node.left, half);
        if (node.down_right == level) coll__send(now, node.right, half);
    }
    return true;
}

/* The steps of this rank on a level of one of the trees, toward the root.  A leaf sends its raw input; others send the sum of
 * left child, own input and right child, in this order. */
static void coll__dbtree_fold(coll__round *now, const coll__node *node, int tree, int level)
{
    const bool is_raw = level == 1 || now->size == 2, has_left = node->down_left == level, has_right = node->down_right == level;
    const coll__span own = coll__block(COLL__INPUT, tree), sum = coll__slot_of(COLL__PART, 3, tree);
    const coll__span right = coll__slot_of(is_raw ? COLL__WORK : COLL__PART, tree, tree);
    const coll__span left = coll__slot_of(right.place, 1 + tree, tree);

    if (node->up == level) coll__send(now, node->parent, is_raw ? own : sum);
    if (has_left) coll__recv(now, node->left, left);
    if (has_right) coll__recv(now, node->right, right);
    if (!has_left && !has_right) return;
    coll__fold(now, now->rank == now->root ? coll__block(COLL__RESULT, tree) : sum);
    if (has_left) coll__from(now, left);
    coll__from(now, node->down_right > 0 && node->down_right < level ? sum : own);    /* the right child was folded before */
    if (has_right) coll__from(now, right);
}

/* Reduce up both trees: the broadcast backwards, with as many rounds and messages, m into the busiest rank and as much folded.
 * The order is that of ranks counted from the root: for operations that commute.  On 6 to 32 ranks, as above: 0.69 to 0.93. */
static bool coll__reduce_dbtree(coll__round *now, int k)
{
    if (now->size == 1) return coll__fold_alone(now, k);
    if (k >= coll__dbtree_rounds(now->size)) return false;
    for (int tree = 0; tree < 2; tree++) {
        const coll__node node = coll__node_of(now, tree);
        coll__dbtree_fold(now, &node, tree, 1 << k);
    }
    return true;
}

/* Allreduce: to rank 0, and down again.  Twice as many rounds, 4 (p - 1) messages of m / 2, and 2 m sent by the busiest rank, p
 * / (p - 1) times the least.  The root is rank 0, so it keeps the order of ranks: also for operations that do not commute.  Not
 * canonical, because a rank folds three terms at once.  Direct, circulant and ring are faster except with many ranks: by the
 * closed forms 16 MiB on 1,024 take 0.69 of their time at 100 Gbit/s, 0.98 at 10 Gbit/s. */
static bool coll__allreduce_dbtree(coll__round *now, int k)
{
    const int half = coll__dbtree_rounds(now->size);
    return k < half || now->size == 1 ? coll__reduce_dbtree(now, k) : coll__broadcast_dbtree(now, k - half);
}

/* ---- >>to rank 0 and back ---- */

/* Round k of the allgather up and down the tree: before, rank v has block v in RESULT; after, all ranks have all blocks.  2 R
 * rounds, 2 (p - 1) messages; rank 0 gets p - 1 blocks and sends all p to up to (r - 1) R ranks. */
static bool coll__tree_allgather(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix);

    if (k >= rounds) return coll__broadcast_tree(now, k - rounds);
    for (coll__edge edge = coll__tree_up(now, k); coll__tree_edge(now, &edge);)
        coll__pass(now, &edge, false, coll__held(now, COLL__RESULT, edge.first, edge.ranks));
    return true;
}

#endif /* COLL_TREE_H */
