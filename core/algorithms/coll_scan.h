/* coll_scan.h - prefix sums in the order of ranks, and the census, a scan around the circle.
 *
 * The canonical prefix of rank v is ((0 + 1) + 2) + ... + v.  Gather, transposed and chain compute exactly that and give the
 * same bits; the census keeps the order of ranks but groups terms differently.  exscan excludes rank v itself; rank 0 has no
 * result.  In the costs p is the number of ranks, m the vector, q = ceil(log_2 p). */
#ifndef COLL_SCAN_H
#define COLL_SCAN_H

#include "coll_ring_bruck.h"

/* Where a rank's raw contribution to a block is, after an exchange that put that of rank v + d in slot d. */
static inline coll__span coll__raw(const coll__round *now, int rank, int block)
{
    if (rank == now->rank) return coll__block(COLL__INPUT, block);
    return coll__slot_of(COLL__WORK, coll__mod(rank - now->rank, now->size), block);
}

/* Every rank gets all raw inputs (circulant allgather) and folds those of its prefix: R rounds, (p - 1) m; for short vectors. */
static bool coll__scan_gather(coll__round *now, int k)
{
    const int rounds = coll__circulant_rounds(now->size, now->radix), last = rounds > 0 ? rounds - 1 : 0;
    const int end = now->rank + !now->is_exclusive;           /* the ranks of the prefix are 0 .. end - 1     */
    const coll__span result = coll__block(COLL__RESULT, 0), sum = coll__slot_of(COLL__PART, 0, 0);

    if (k > last) return false;
    coll__circulant_allgather(now, k, COLL__WORK);
    if (k < last || end == 0) return true;
    if (end == 1) coll__fold_one(now, result, coll__raw(now, 0, 0));
    for (int i = 1; i < end; i++)
        coll__fold_two(now, i == end - 1 ? result : sum, i == 1 ? coll__raw(now, 0, 0) : sum, coll__raw(now, i, 0));
    return true;
}

/* All prefixes of one block, each finished for its rank.  Two slots alternate for the running sum: an exclusive prefix may
 * overwrite this rank's input, so it is written after the next sum. */
static void coll__scan_block(coll__round *now)
{
    const int me = now->rank, sums = now->size - now->is_exclusive;

    for (int i = 0; i < now->size; i++) {
        const int slot = coll__mod(i - me, now->size);
        const coll__span to = i == me ? coll__block(COLL__RESULT, me) : coll__slot_of(COLL__WORK, slot, me);
        const coll__span sum = coll__slot_of(COLL__PART, i & 1, me), before = coll__slot_of(COLL__PART, (i & 1) ^ 1, me);
        if (i == 0 && sums > 0) coll__fold_one(now, sum, coll__raw(now, 0, me));
        else if (i < sums) coll__fold_two(now, sum, before, coll__raw(now, i, me));
        if (!now->is_exclusive) coll__fold_one(now, to, sum);
        else if (i > 0) coll__fold_one(now, to, before);
    }
}

/* Transposed: rank v gets block v of all inputs, computes every rank's prefix of it, and returns them.
 *
 *     direct exchange        prefixes of block v        direct exchange
 *
 * 2 rounds, 2 (p - 1) / p m sent, and only m / p folded for each rank: for long vectors. */
static bool coll__scan_transposed(coll__round *now, int k)
{
    const int me = now->rank, size = now->size;

    if (k > 1 || (k == 1 && size == 1)) return false;
    if (k == 0) {
        coll__direct_exchange(now);
        coll__scan_block(now);
        return true;
    }
    for (int j = 1; j < size; j++) {
        const int to = coll__mod(me + j, size), from = coll__mod(me - j, size);
        if (to > 0 || !now->is_exclusive) coll__send(now, to, coll__slot_of(COLL__WORK, j, me));
        if (me > 0 || !now->is_exclusive) coll__recv(now, from, coll__block(COLL__RESULT, from));
    }
    return true;
}

/* The chain: rank v receives the sum of all ranks before it, adds its input and sends the sum on.
 *
 *     0 --> 0+1 --> 0+1+2 --> ... --> p-1
 *
 * p - 1 rounds, m sent and m folded by each rank: for many slices in a pipeline. */
static bool coll__scan_chain(coll__round *now, int k)
{
    const int me = now->rank, last = now->size - 1;
    const coll__span result = coll__block(COLL__RESULT, 0), own = coll__own(now), sum = coll__slot_of(COLL__PART, 1, 0);
    const coll__span landed = coll__slot_of(me == 1 ? COLL__WORK : COLL__PART, 0, 0);

    if (k > 0 && k >= last) return false;
    if (k == me && me < last) coll__send(now, me + 1, me == 0 ? own : sum);
    if (me == 0 && k == 0 && !now->is_exclusive) coll__fold_one(now, result, own);
    if (me == 0 || k != me - 1) return true;
    coll__recv(now, me - 1, landed);
    if (me < last) coll__fold_two(now, sum, landed, own);
    if (now->is_exclusive) coll__fold_one(now, result, landed);
    else if (me < last) coll__fold_one(now, result, sum);
    else coll__fold_two(now, result, landed, own);
    return true;
}

/* ---- >>census ---- */

/* Ranks in W before round k: the k highest bits of p - 1. */
static inline int coll__census_known(int size, int rounds, int k) { return (size - 1) >> (rounds - k); }

/* Round k of the census.  W is the sum of ranks before this one.  Its length doubles in each round; if p - 1 has a bit there,
 * the sender adds its own V, which makes it one longer.
 *
 *     p = 7, p - 1 = 110 in binary        W has 1 rank, then 1 + 1 + 1 = 3 ranks, then 3 + 3 = 6 ranks
 *
 *         round 0: V to v+1         round 1: W + V to v+2         round 2: W to v+3
 *
 * After q rounds W covers all ranks before this one: from 0 on, or, if cyclic, all other ranks.  q rounds of m, the least
 * possible for any p; at most 2 q folds of m.  If W is the input of one rank, it is kept and sent raw.  After Bar-Noy, Kipnis
 * and Schieber. */
static bool coll__census(coll__round *now, int k, bool is_cyclic)
{
    const int size = now->size, me = now->rank, rounds = coll__circulant_rounds(size, 2);
    const coll__span result = coll__block(COLL__RESULT, 0), own = coll__own(now);

    if (k > 0 && k >= rounds) return false;
    const int known = coll__census_known(size, rounds, k), hop = rounds ? coll__census_known(size, rounds, k + 1) - known : 0;
    const int mine = is_cyclic ? known : coll__less(known, me);               /* ranks in W                   */
    const int theirs = is_cyclic ? known : coll__less(known, me - hop);       /* ranks in the W of the rank one hop before */
    const int extra = hop - known;                                            /* 1: V is added                */
    const bool sends = rounds && (is_cyclic || me + hop < size) && mine + extra > 0;
    const bool receives = rounds && (is_cyclic || me >= hop) && theirs + extra > 0;
    coll__span w = mine <= 1 ? coll__slot_of(COLL__WORK, 0, 0) : coll__slot_of(COLL__PART, 0, 0);
    const coll__span x = theirs + extra == 1 ? coll__slot_of(COLL__WORK, mine > 0, 0) : coll__slot_of(COLL__PART, 2, 0);

    if (sends) coll__send(now, me + hop, !extra ? w : mine == 0 ? own : coll__slot_of(COLL__PART, 1, 0));
    if (receives) coll__recv(now, me - hop, x);
    if (k < rounds - 1) {
        if (receives && mine > 0) coll__fold_two(now, coll__slot_of(COLL__PART, 0, 0), x, w), w = coll__slot_of(COLL__PART, 0, 0);
        const int next = coll__census_known(size, rounds, k + 1), next_hop = coll__census_known(size, rounds, k + 2) - next;
        if (next_hop > next && (is_cyclic || (me > 0 && me + next_hop < size)))
            coll__fold_two(now, coll__slot_of(COLL__PART, 1, 0), w, own);
        return true;
    }
    if (now->is_exclusive && mine == 0 && !receives) return true;             /* rank 0                       */
    coll__fold(now, result);
    if (receives) coll__from(now, x);
    if (mine > 0) coll__from(now, w);
    if (!now->is_exclusive) coll__from(now, own);
    return true;
}

/* In the order of ranks: q (latency + m), the fewest rounds possible; for short vectors. */
static bool coll__scan_census(coll__round *now, int k) { return coll__census(now, k, false); }

/* Every rank starts the circle at itself and groups terms differently: only for operations whose grouping does not change a
 * bit, such as integers, min and max. */
static bool coll__allreduce_census(coll__round *now, int k) { return coll__census(now, k, true); }

#endif /* COLL_SCAN_H */
