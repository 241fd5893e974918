/* coll_cost.h - costs of algorithms, as closed forms.
 *
 * The model: a rank that sends the messages of a round begins one every `overhead`; each arrives `latency` later.  The bytes
 * use the sender's link and the receiver's link, one message at a time.  A receiver takes at most one message every `overhead`.
 * A message between two idle ranks takes latency + bytes * per_byte.  Folding takes per_byte_reduced for each byte of all
 * sources of a fold except the first.  A rank begins its next round when it has received and folded everything; a rank that
 * only sends does not wait.
 *
 * All forms use only + - * / and comparisons of doubles, so that all ranks get the same bits from the same numbers. */
#ifndef COLL_COST_H
#define COLL_COST_H

#include "coll_ring_bruck.h"
#include "coll_link_model.h"

/* The time of an algorithm, or of a part of one, on two or more ranks. */
typedef double coll__cost_fn(const coll__link *link, const coll__shape *s);

/* The link of ranks that only send, or only receive, at any time: they copy half as much. */
static inline coll__link coll__one_way(const coll__link *link)
{
    const double alone = coll__longer(link->per_byte - link->per_byte_handled, link->per_byte_handled);
    coll__link half = *link;

    if (alone < half.per_byte) half.per_byte = alone;
    return half;
}

/* The link of a chain, whose ranks send and receive at the same time; of two ranks one only sends. */
static inline coll__link coll__chain_way(const coll__link *link, int size) { return size == 2 ? coll__one_way(link) : *link; }

/* The messages of a round from one rank, or to one: `bytes` in total, in decreasing length, the last one `last`.  Either the
 * link is always busy, or it waits for each message and ends with the last one. */
static double coll__burst(const coll__link *link, double messages, double bytes, double last)
{
    if (messages <= 0) return 0;
    return link->latency + coll__longer(bytes * link->per_byte, (messages - 1) * link->overhead + last * link->per_byte);
}

/* One block of p, on the wire and as a partial result. */
static double coll__block_bytes(const coll__shape *s) { return s->bytes / s->size; }
static double coll__block_sum_bytes(const coll__shape *s) { return s->sum_bytes / s->size; }

/* ---- >>circles ---- */

/* The circulant over decreasing distances, with `first` bytes for each block in the first round and `later` bytes in the others;
 * `fold` is the time to fold a byte. */
static double coll__circulant_time(const coll__link *link, const coll__shape *s, double first, double later, double fold)
{
    double t = 0, block = first;

    for (int far = s->size, near; far > 1; far = near, block = later) {
        near = (far - 1) / s->radix + 1;
        const int messages = (far - 1) / near;
        t += coll__burst(link, messages, (far - near) * block, (far - messages * near) * block) + (far - near) * block * fold;
    }
    return t;
}

/* Also the barrier, without bytes. */
static double coll__cost_allgather(const coll__link *link, const coll__shape *s)
{
    return coll__circulant_time(link, s, coll__block_bytes(s), coll__block_bytes(s), 0);
}

static double coll__cost_ring_allgather(const coll__link *link, const coll__shape *s)
{
    return (s->size - 1) * (link->latency + coll__block_bytes(s) * link->per_byte);
}

/* Raw blocks in the first round, partial sums later. */
static double coll__cost_circulant_reduce(const coll__link *link, const coll__shape *s)
{
    return coll__circulant_time(link, s, coll__block_bytes(s), coll__block_sum_bytes(s), link->per_byte_reduced);
}

static double coll__cost_ring_reduce(const coll__link *link, const coll__shape *s)
{
    const double raw = coll__block_bytes(s), sum = coll__block_sum_bytes(s);
    return (s->size - 1) * (link->latency + raw * link->per_byte_reduced) + (raw + (s->size - 2) * sum) * link->per_byte;
}

/* One block to every other rank, in one round. */
static double coll__cost_direct_reduce(const coll__link *link, const coll__shape *s)
{
    const double all = coll__block_bytes(s) * (s->size - 1);
    return coll__burst(link, s->size - 1, all, coll__block_bytes(s)) + all * link->per_byte_reduced;
}

static double coll__cost_bruck(const coll__link *link, const coll__shape *s)
{
    const int size = s->size, rounds = coll__circulant_rounds(size, s->radix);
    const double block = coll__block_bytes(s);
    double t = 0;

    for (int k = 0; k < rounds; k++) {            /* one message for each nonzero digit k      */
        const int unit = coll__power(size, s->radix, k), stride = coll__power(size, s->radix, k + 1);
        const int messages = coll__less(s->radix - 1, (size - 1) / unit), left = size - messages * unit;
        const int blocks = size - size / stride * unit - coll__less(unit, size % stride);
        const int last = left / stride * unit + coll__less(unit, left % stride);
        t += coll__burst(link, messages, blocks * block, last * block);
    }
    return t;
}

/* ---- >>trees: the time of the longest path; the subtrees of a level are equal except the last one, which may be cut ---- */

/* Ranks in the last subtree of this unit. */
static int coll__tree_rest(int size, int unit) { return size - (size - 1) / unit * unit; }

/* From the root.  Each edge carries `vector` bytes, or `block` bytes for each rank below it.  `whole` is the time of a full
 * subtree, `cut` that of the last one. */
static double coll__tree_spread(const coll__link *both, const coll__shape *s, double vector, double block)
{
    const coll__link half = coll__one_way(both), *const link = &half;
    const int size = s->size, rounds = coll__circulant_rounds(size, s->radix);
    double whole = 0, cut = 0;

    for (int k = 0; k < rounds; k++) {
        const int unit = coll__power(size, s->radix, k), stride = coll__power(size, s->radix, k + 1);
        const int rest = coll__tree_rest(size, stride), children = (rest - 1) / unit;
        const double full = vector + unit * block, last = vector + (rest - children * unit) * block;
        const double gap = coll__longer(link->overhead, full * link->per_byte);
        const double arrival = link->latency + full * link->per_byte;
        if (children > 0) {
            const double in_cut = (children - 1) * gap + link->latency + last * link->per_byte + cut;
            const double own = (children - 1) * gap + coll__longer(link->overhead, last * link->per_byte) + whole;
            cut = coll__longer(in_cut, own);
            if (children > 1) cut = coll__longer(cut, (children - 2) * gap + arrival + whole);
        }
        whole += coll__longer((s->radix - 2) * gap + arrival, (s->radix - 1) * gap);
    }
    return cut;
}

/* To the root: the mirror image.  An edge carries `raw` bytes from one rank, `sum` from several, and `block` for each rank
 * below it; `fold` is the time to fold a byte. */
static double coll__tree_collect_time(const coll__link *both, const coll__shape *s, double raw, double sum, double block,
                                      double fold)
{
    const coll__link half = coll__one_way(both), *const link = &half;
    const int size = s->size, rounds = coll__circulant_rounds(size, s->radix);
    double whole = 0, cut = 0;

    for (int k = 0; k < rounds; k++) {
        const int unit = coll__power(size, s->radix, k), stride = coll__power(size, s->radix, k + 1);
        const int rest = coll__tree_rest(size, stride), children = (rest - 1) / unit, below = rest - children * unit;
        const double full = (unit == 1 ? raw : sum) + unit * block, last = (below == 1 ? raw : sum) + below * block;
        if (children > 1)
            cut = whole + coll__burst(link, children, (children - 1) * full + last, last)
                    + ((children - 1) * full + last) * fold;
        else if (children == 1)
            cut = coll__longer(whole + coll__longer(link->overhead, last * link->per_byte),
                                 cut + coll__burst(link, 1, last, last)) + last * fold;
        whole += coll__burst(link, s->radix - 1, (s->radix - 1) * full, full) + (s->radix - 1) * full * fold;
    }
    return cut;
}

static double coll__cost_broadcast_tree(const coll__link *link, const coll__shape *s)
{
    return coll__tree_spread(link, s, s->bytes, 0);
}

static double coll__cost_scatter_tree(const coll__link *link, const coll__shape *s)
{
    return coll__tree_spread(link, s, 0, coll__block_bytes(s));
}

static double coll__cost_gather_tree(const coll__link *link, const coll__shape *s)
{
    return coll__tree_collect_time(link, s, 0, 0, coll__block_bytes(s), 0);
}

static double coll__cost_reduce_gather(const coll__link *link, const coll__shape *s)
{
    return coll__tree_collect_time(link, s, 0, 0, s->bytes, 0) + (s->size - 1) * s->bytes * link->per_byte_reduced;
}

static double coll__cost_reduce_tree(const coll__link *link, const coll__shape *s)
{
    return coll__tree_collect_time(link, s, s->bytes, s->sum_bytes, 0, link->per_byte_reduced);
}

/* ---- >>steps one after the other ---- */

/* `steps` messages of `bytes` each, and `folded` bytes after each. */
static double coll__steps_time(const coll__link *link, double steps, double bytes, double folded)
{
    return steps * (link->latency + bytes * link->per_byte + folded * link->per_byte_reduced);
}

/* The time from one slice to the next in a pipeline.  A rank receives a slice, folds it and sends it on while the next ones are
 * in transit.  The longest of overhead with copies, bytes and folding determines the time. */
static double coll__pace(const coll__link *link, double bytes, double folded)
{
    const double work = link->overhead + bytes * link->per_byte_handled;
    return coll__longer(work, coll__longer(bytes * link->per_byte, folded * link->per_byte_reduced));
}

/* The longest path of a block, in messages: the most skips, each at most half the one before, in the greedy sum that gives a
 * rank.  It is q if p is a power of 2, else usually less. */
static inline int coll__blocks_depth(int size)
{
    int skip[32] = { 1 }, most[32] = { 0 }, q = 0;            /* most[k]: for the ranks below skip[k]         */

    while (1L << q < size) q++;
    for (int k = q, at = size; k >= 0; k--, at = (at - 1) / 2 + 1) skip[k] = at;
    for (int k = 1; k <= q; k++)
        for (int left = skip[k], used = 0, j = k - 1; j >= 0; j--) {
            if (left <= skip[j]) continue;
            if (used + most[j] > most[k]) most[k] = used + most[j];
            left -= skip[j];
            if (++used > most[k]) most[k] = used;
        }
    return most[q];
}

/* With three or more ranks all except the root wait in each round for a rank that waited in the round before: n - 1 whole steps
 * after the first block has arrived everywhere.  The other q - depth rounds are sent without waiting, but use the link.  With 4
 * or 5 ranks some rounds wait for nothing, and short blocks take a quarter or a sixth less.  Of two ranks one only sends: a
 * chain. */
static double coll__blocks_time(const coll__link *both, const coll__shape *s, double first, double other, bool is_sum)
{
    const coll__link way = coll__chain_way(both, s->size), *const link = &way;
    const int depth = coll__blocks_depth(s->size), free_rounds = coll__circulant_rounds(s->size, 2) - depth;
    const double pace = coll__pace(link, other, s->size == 2 && is_sum ? other : 0);
    const double waits = s->size == 2 ? 0 : s->blocks - 2 + depth, others = s->size == 2 ? s->blocks - 1 : free_rounds;

    return coll__steps_time(link, 1, first, is_sum ? first : 0) + coll__steps_time(link, waits, other, is_sum ? other : 0)
           + others * pace;
}

static double coll__cost_broadcast_blocks(const coll__link *link, const coll__shape *s)
{
    return coll__blocks_time(link, s, s->bytes / s->blocks, s->bytes / s->blocks, false);
}

/* The first step sends raw inputs; with two ranks all steps do. */
static double coll__cost_reduce_blocks(const coll__link *link, const coll__shape *s)
{
    const double share = s->bytes / s->blocks, sum = s->sum_bytes / s->blocks;
    return coll__blocks_time(link, s, share, s->size == 2 ? share : sum, true);
}

/* The first slice takes p - 1 whole steps to the end of the chain; the n - 1 others follow directly.  A rank forwards slice t
 * in a later tick than it was received in.  That costs nothing: several ticks are in progress, so that tick begins when slice t
 * has arrived.  The first step sends a raw input; each step adds a raw input. */
static double coll__cost_scan_chain(const coll__link *both, const coll__shape *s)
{
    const coll__link way = coll__chain_way(both, s->size), *const link = &way;
    const double share = s->bytes / s->slices, sum = s->sum_bytes / s->slices;
    return coll__steps_time(link, s->size - 2, sum, share) + coll__steps_time(link, 1, share, share)
           + (s->slices - 1) * coll__pace(link, s->size == 2 ? share : sum, share);
}

/* ---- >>double tree ---- */

/* From the top of a binary tree of `ranks` ranks, in order, to the last of them, or back: a full tree on the left of the top,
 * the rest on its right.  A message to the first child takes `hop`, to the second one `gap` more. */
static double coll__dbtree_depth(int ranks, double hop, double gap)
{
    double t = 0;

    for (int full = 0; full < 31 && ranks >> full; full++) {
        const bool has_right = (ranks & ((1 << full) - 1)) > 0;
        if (!(ranks >> full & 1)) continue;
        t = has_right ? gap + hop + t : 0;
        if (full > 0) t = coll__longer(t, hop + (full - 1) * (hop + gap));
    }
    return t;
}

/* Down both trees, or up, with halves of `half` bytes, of which `folded` are folded; messages of leaves may be shorter by
 * `less`.  If p is a power of 2, tree 1 has one more level. */
static double coll__dbtree_time(const coll__link *link, int size, double half, double folded, double less)
{
    const double fold = folded * link->per_byte_reduced, hop = link->latency + half * link->per_byte + fold;
    const double gap = coll__longer(link->overhead, half * link->per_byte) + fold;
    const bool is_higher = (size & (size - 1)) == 0;
    const double even = coll__dbtree_depth(size - 1, hop, gap);
    const double odd = size > 3 ? coll__dbtree_depth(size, hop, gap) : (size - 2) * hop;      /* there is no number 1 */

    return hop + coll__longer(even + (is_higher ? gap : 0), odd + (is_higher ? 0 : gap)) - less * link->per_byte;
}

/* The time of the slices after the first one: a rank sends at most `halves` for each, and receives as many. */
static double coll__dbtree_rest(const coll__link *link, double slices, double halves, double half, double folded)
{
    const double work = halves * (link->overhead + half * link->per_byte_handled);
    return (slices - 1) * coll__longer(work, coll__longer(halves * half * link->per_byte, folded * link->per_byte_reduced));
}

static double coll__cost_broadcast_dbtree(const coll__link *both, const coll__shape *s)
{
    const coll__link way = coll__chain_way(both, s->size), *const link = &way;
    const double half = s->bytes / s->slices / 2;
    return coll__dbtree_time(link, s->size, half, 0, 0) + coll__dbtree_rest(link, s->slices, 2, half, 0);
}

/* Half of a vector as a partial result; with two ranks all messages are raw inputs. */
static double coll__dbtree_sum(const coll__shape *s) { return (s->size == 2 ? s->bytes : s->sum_bytes) / s->slices / 2; }

static double coll__cost_reduce_dbtree(const coll__link *both, const coll__shape *s)
{
    const coll__link way = coll__chain_way(both, s->size), *const link = &way;
    const double half = s->bytes / s->slices / 2, sum = coll__dbtree_sum(s);
    return coll__dbtree_time(link, s->size, sum, sum, sum - half) + coll__dbtree_rest(link, s->slices, 2, sum, 2 * sum);
}

static double coll__cost_allreduce_dbtree(const coll__link *link, const coll__shape *s)
{
    const double half = s->bytes / s->slices / 2, sum = coll__dbtree_sum(s);
    return coll__dbtree_time(link, s->size, sum, sum, sum - half) + coll__dbtree_time(link, s->size, half, 0, 0)
           + coll__dbtree_rest(link, s->slices, 4, (half + sum) / 2, 2 * sum);
}

/* All vectors, of which each rank folds one block; a scan: the last rank has the longest prefix to fold. */
static double coll__cost_gather_fold(const coll__link *link, const coll__shape *s)
{
    return coll__circulant_time(link, s, s->bytes, s->bytes, 0)
           + (s->size - 1) * (s->bytes / s->blocks) * link->per_byte_reduced;
}

/* Raw in the first round, and while W is the input of one rank; each round folds the received sum with W, and W with V where
 * that is sent. */
static double coll__cost_census(const coll__link *both, const coll__shape *s)
{
    const coll__link way = coll__chain_way(both, s->size), *const link = &way;
    const int rounds = coll__circulant_rounds(s->size, 2);
    double t = 0;

    for (int k = 0; k < rounds; k++) {
        const int known = (s->size - 1) >> (rounds - k), hop = ((s->size - 1) >> (rounds - k - 1)) - known;
        const bool is_last = k == rounds - 1, adds = !is_last && ((s->size - 1) >> (rounds - k - 2)) & 1;
        t += coll__steps_time(link, 1, hop == 1 ? s->bytes : s->sum_bytes, 0);
        if (known > 0) t += (known == 1 ? s->bytes : s->sum_bytes) * link->per_byte_reduced;
        if (adds || is_last) t += s->bytes * link->per_byte_reduced;
    }
    return t;
}

/* Bytes of a rank in both rounds: T of the vector; with equal links 2 (p - 1) / p. */
static double coll__cost_allreduce_shares(const coll__link *link, const coll__shape *s)
{
    const int others = s->size - 1;
    const double half = s->bytes / 2 * (s->shares ? s->shares->time : 2.0 * others / s->size);
    const double longest = s->bytes * coll__longest_share(s->shares, s->size);

    return 2 * coll__burst(link, others, half, others > 0 ? half / others : 0) + longest * others * link->per_byte_reduced;
}

/* ---- >>slices of a vector ---- */

/* The time of n slices that take `one` each if alone, in R rounds, with the busier of link and processor busy for `busy`.  L =
 * min(n, `most_lag`) ticks are in progress together.  A lag of L ticks, each with `a` rounds of different slices, takes as long
 * as one round alone after the others' work in the same tick,
 *
 *     (one + (a - 1) busy) / R,        or        L a busy / R
 *
 * if work dominates: then latencies, and folding during sends, are hidden.  There are R - 1 + ceil(n / L) such lags, with a =
 * 1, 2, ... rounds in a tick at either end and A = min(R, ceil(n / L)) in between; after the last one nothing is hidden.  All
 * work together is n busy.  For each lag, the excess of the first term over the second is added. */
static double coll__slices_time(double slices, double most_lag, double rounds, double one, double busy)
{
    const double lag = slices < most_lag ? slices : most_lag, groups = (double)((long)((slices + lag - 1) / lag));
    const double idle = one - busy, hidden = (lag - 1) * busy, most = groups < rounds ? groups : rounds;
    double ramp = most - 1, excess;

    if (rounds < 1) return slices * one;
    if (hidden * ramp > idle) ramp = (double)(long)(idle / hidden);
    excess = 2 * ramp * idle - ramp * (ramp + 1) * hidden;
    excess += (rounds + groups - 1 - 2 * (most - 1)) * coll__longer(0, idle - most * hidden);
    return slices * busy + (excess - coll__longer(0, idle - hidden) + idle) / rounds;
}

/* ---- >>neighbors ---- */

/* Neighbor lists differ between ranks and are not counted; there is no choice for them. */
static double coll__cost_neighbor(const coll__link *link, const coll__shape *s)
{
    return link->latency + s->bytes * link->per_byte;
}

/* No further part. */
static double coll__cost_none(const coll__link *link, const coll__shape *s) { return (void)link, (void)s, 0; }

#endif /* COLL_COST_H */
