/* coll_ring_bruck.h - algorithms with the same steps on every rank, at fixed distances on a circle of ranks: the radix-r
 * circulant, alltoall by digits, the direct exchange and the ring.
 *
 * In the costs p is the number of ranks, r the radix, m the whole vector, R = ceil(log_r p) rounds and M the messages that a
 * rank sends in them.  All are valid for every p >= 1 and r >= 2; powers of two are not special. */
#ifndef COLL_RING_BRUCK_H
#define COLL_RING_BRUCK_H

#include "coll_leaves.h"

/* ---- >>numbers ---- */

/* The skip after `steps` divisions: size, ceil(size / r), ceil(that / r), ..., 1. */
static inline int coll__circulant_skip(int size, int radix, int steps)
{
    int skip = size;
    while (steps-- > 0) skip = (skip - 1) / radix + 1;
    return skip;
}

/* ceil(log_radix size): rounds until all ranks know what one rank knows. */
static inline int coll__circulant_rounds(int size, int radix)
{
    int rounds = 0;
    for (int skip = size; skip > 1; skip = (skip - 1) / radix + 1) rounds++;
    return rounds;
}

/* radix to the power of n, at most `size`. */
static inline int coll__power(int size, int radix, int n)
{
    int power = 1;
    while (n-- > 0 && power < size) power = power > size / radix ? size : power * radix;
    return power < size ? power : size;
}

static inline int coll__less(int a, int b) { return a < b ? a : b; }

/* The blocks of ranks `offset`, `offset` + 1, ... after this one: in RESULT by number, in WORK by distance, because slots do
 * not wrap around. */
static inline coll__span coll__held(const coll__round *now, coll__place place, int offset, int blocks)
{
    if (place == COLL__RESULT) return coll__blocks(place, now->rank + offset, blocks);
    return coll__slots(place, offset, blocks, coll__mod(now->rank + offset, now->blocks));
}

/* The input block of this rank: number `rank` of p, or 0 of 1. */
static inline coll__span coll__own(const coll__round *now)
{
    return coll__block(COLL__INPUT, coll__mod(now->rank, now->blocks));
}

/* The input vector of this rank; and in WORK the vectors of ranks `offset`, `offset` + 1, ... after it. */
static inline coll__span coll__vector(const coll__round *now) { return coll__blocks(COLL__INPUT, 0, now->blocks); }

static inline coll__span coll__vectors(const coll__round *now, int offset, int vectors)
{
    return coll__slots(COLL__WORK, offset * now->blocks, vectors * now->blocks, 0);
}

/* to = one, finished: divided, scaled and rounded as the place of `to` requires. */
static void coll__fold_one(coll__round *now, coll__span to, coll__span one)
{
    coll__fold(now, to);
    coll__from(now, one);
}

/* to = one (op) other. */
static void coll__fold_two(coll__round *now, coll__span to, coll__span one, coll__span other)
{
    coll__fold_one(now, to, one);
    coll__from(now, other);
}

/* For a single rank: its own contribution, finished, in all blocks. */
static bool coll__fold_alone(coll__round *now, int k)
{
    if (k > 0) return false;
    coll__fold_one(now, coll__blocks(COLL__RESULT, 0, now->blocks), coll__vector(now));
    return true;
}

/* ---- >>circulant: distances shrink from p to 1 by the radix, rounded up ---- */

/* What was gathered from ranks after this one: their blocks in RESULT, or their vectors in WORK. */
static coll__span coll__gathered(const coll__round *now, coll__place place, int offset, int ranks)
{
    return place == COLL__RESULT ? coll__blocks(place, now->rank + offset, ranks) : coll__vectors(now, offset, ranks);
}

/* Round k of the allgather: every rank forwards what it has, over increasing distances.
 *
 *     p = 5, r = 2: skips 5 3 2 1.  Rank v holds blocks v .. v+s-1 before the round of skip s, and v .. v+S-1 after it:
 *
 *         has v          v v+1          v v+1 v+2       all
 *           from v+1       from v+2       from v+3
 *
 * Before: rank v has block v in RESULT.  After: all blocks.  With WORK instead of RESULT it gathers a whole vector of each rank
 * from INPUT.  R rounds, at most (r - 1) R messages, and each rank sends p - 1 blocks, the least possible.  r = p is the direct
 * exchange in one round; with empty blocks it is the dissemination barrier.  This is Bruck's allgather (1997) for any radix, as
 * the mirror image of Traeff's reduce-scatter (arXiv 2410.14234). */
static bool coll__circulant_allgather(coll__round *now, int k, coll__place place)
{
    const int me = now->rank, rounds = coll__circulant_rounds(now->size, now->radix);

    if (k >= rounds) return false;
    const int near = coll__circulant_skip(now->size, now->radix, rounds - k);
    const int far = coll__circulant_skip(now->size, now->radix, rounds - k - 1);
    const bool is_raw = place == COLL__WORK && k == 0;        /* our vector is only in INPUT                  */
    if (is_raw && rounds > 1) coll__copy(now, coll__vectors(now, 0, 1), coll__vector(now));
    for (int low = near; low < far; low += near) {
        const int ranks = coll__less(near, far - low);
        coll__send(now, me - low, is_raw ? coll__vector(now) : coll__gathered(now, place, 0, ranks));
        coll__recv(now, me + low, coll__gathered(now, place, low, ranks));
    }
    return true;
}

/* Round k of the reduce-scatter, the mirror image: every rank forwards sums for other ranks, over decreasing distances.  R[i]
 * is what rank v has of block v + i.
 *
 *     p = 5, r = 2: skips 5 3 2 1
 *
 *         R[0] R[1] R[2] R[3] R[4]      R[0] R[1] R[2]      R[0] R[1]      R[0]
 *                        `-to v+3-'               `-to v+2       `-to v+1    = block v
 *
 * Before: every rank has the whole vector in INPUT.  After: rank v has block v of the sum in RESULT.  R rounds, p - 1 blocks
 * sent and folded by each rank, the least possible.  The first round sends raw inputs, the others partial sums; received blocks
 * are folded in the order of distances, not of arrival.  So the same inputs always give the same bits.  Needs an operation that
 * commutes.  After J.  L.  Traeff (arXiv 2410.14234), for any radix. */
static bool coll__circulant_reduce(coll__round *now, int k)
{
    const int me = now->rank;

    if (now->size == 1) return coll__fold_alone(now, k);
    if (k >= coll__circulant_rounds(now->size, now->radix)) return false;
    const int far = coll__circulant_skip(now->size, now->radix, k), near = coll__circulant_skip(now->size, now->radix, k + 1);
    const coll__place landing = k == 0 ? COLL__WORK : COLL__PART;
    const int behind = (k == 0 ? 0 : far) - near;             /* PART: does not overlap the sums being sent   */
    for (int low = near; low < far; low += near) {
        const int blocks = coll__less(near, far - low);
        coll__send(now, me + low, k == 0 ? coll__blocks(COLL__INPUT, me + low, blocks)
                                           : coll__held(now, COLL__PART, low, blocks));
        coll__recv(now, me - low, coll__slots(landing, behind + low, blocks, me));
    }
    coll__fold(now, near == 1 ? coll__block(COLL__RESULT, me) : coll__held(now, COLL__PART, 0, near));
    coll__from(now, k == 0 ? coll__blocks(COLL__INPUT, me, near) : coll__held(now, COLL__PART, 0, near));
    for (int low = near; low < far; low += near)
        coll__from(now, coll__slots(landing, behind + low, coll__less(near, far - low), me));
    return true;
}

/* ---- >>direct: from source to destination in one message ---- */

/* The only round of the direct reduce-scatter: every rank gets its block of all inputs; that of rank v + d in slot d.  1 round,
 * p - 1 messages, (p - 1) / p m sent, the least possible.  Each starts with the next rank, so that not all send to one rank at
 * once.  This is the radix-p case of the circulant. */
static void coll__direct_exchange(coll__round *now)
{
    const int me = now->rank, size = now->size;

    for (int j = 1; j < size; j++) {
        for (int t = coll__first_term(now, me); t < coll__end_term(now, me); t++)
            coll__send(now, me + j, coll__own_term(now, t, me + j));
        for (int t = coll__first_term(now, me - j); t < coll__end_term(now, me - j); t++)
            coll__recv(now, me - j, coll__other_term(now, t));
    }
}

/* The canonical reduction: all terms of this rank's block, in the order of ranks, in one fold with one rounding. */
static void coll__fold_terms(coll__round *now, coll__span to)
{
    coll__fold(now, to);
    for (int i = 0; i < now->size; i++)
        for (int t = coll__first_term(now, i); t < coll__end_term(now, i); t++)
            coll__from(now, i == now->rank ? coll__own_term(now, t, now->rank) : coll__other_term(now, t));
}

/* The same for blocks first, first + 1, ... of the p vectors in WORK. */
static void coll__fold_all(coll__round *now, coll__span to, int first)
{
    coll__fold(now, to);
    for (int i = 0; i < now->size; i++)
        coll__from(now, i == now->rank ? coll__blocks(COLL__INPUT, first, to.blocks)
                                       : coll__slots(COLL__WORK, coll__mod(i - now->rank, now->size) * now->blocks + first,
                                                     to.blocks, first));
}

/* Every block of INPUT is sent to its rank, in one round, the nearest rank first: p - 1 messages, (p - 1) / p m. */
static bool coll__alltoall_direct(coll__round *now, int k)
{
    const int me = now->rank;

    if (k > 0) return false;
    coll__copy(now, coll__block(COLL__RESULT, me), coll__block(COLL__INPUT, me));
    for (int j = 1; j < now->size; j++) {
        coll__send(now, me + j, coll__block(COLL__INPUT, me + j));
        coll__recv(now, me - j, coll__block(COLL__RESULT, me - j));
    }
    return true;
}

/* ---- >>alltoall by digits ---- */

/* Some of B[first .. size), where B[d] is the block for distance d: `run` of them at every `stride`. */
static coll__span coll__digits(const coll__round *now, int area, int first, int run, int stride)
{
    const int left = now->size - first, blocks = left <= 0 ? 0 : left / stride * run + coll__less(run, left % stride);
    return (coll__span){ .place = COLL__WORK, .first = area * now->size + first, .blocks = blocks, .step = stride,
                         .is_same = true, .run = run };
}

/* The same of INPUT, where the block for rank v + d has number v + d. */
static coll__span coll__digits_input(const coll__round *now, int first, int stride)
{
    coll__span span = coll__digits(now, 0, first, 1, stride);
    span.place = COLL__INPUT, span.first = now->rank + first;
    return span;
}

/* Copy the blocks that round k + 1 sends and round k does not move to where round k receives, so that a message is one span.
 * Their last hop was in round k - 1, k - 3, ... In round k nothing is received at their old or new place. */
static void coll__digits_gather(coll__round *now, int k)
{
    const int size = now->size, r = now->radix, unit = coll__power(size, r, k + 1), stride = coll__power(size, r, k + 2);

    for (int j = 1; j < r && j <= (size - 1) / unit; j++)
        for (int hop = k - 1; hop >= 0; hop -= 2) {
            const int low = coll__power(size, r, hop), run = coll__power(size, r, hop + 1) - low;
            const coll__span to = coll__digits(now, k & 1, j * unit + low, run, stride);
            if (to.blocks) coll__copy(now, to, coll__digits(now, hop & 1, j * unit + low, run, stride));
        }
}

/* The blocks at their destination before the last round k: those with fewer digits than it has. */
static void coll__digits_deliver(coll__round *now, int k)
{
    for (int hop = 0; hop < k; hop++) {
        const int low = coll__power(now->size, now->radix, hop), run = coll__power(now->size, now->radix, hop + 1) - low;
        coll__span to = coll__blocks(COLL__RESULT, now->rank - low, run);
        to.step = -1;
        coll__copy(now, to, coll__slots(COLL__WORK, (hop & 1) * now->size + low, run, 0));
    }
}

/* Round k of Bruck's alltoall (1997), for any radix: the block for distance d makes a hop of j r^k for the k-th digit j of d,
 * together with all blocks that have this digit.
 *
 *     p = 9, r = 3, rank v sends      round 0   to v+1: B[1] B[4] B[7]    to v+2: B[2] B[5] B[8]
 *                                     round 1   to v+3: B[3] B[4] B[5]    to v+6: B[6] B[7] B[8]
 *
 * R rounds; as many blocks as there are nonzero digits in 1 .. p - 1, about (r - 1) / r R p.  The radix trades rounds for
 * bytes; r = p is direct.  Two areas of p slots alternate: a round sends from the area in which the last round has received,
 * and receives in the other one; the last round receives in RESULT. */
static bool coll__alltoall_circulant(coll__round *now, int k)
{
    const int size = now->size, me = now->rank, r = now->radix, rounds = coll__circulant_rounds(size, r);

    if (k == 0) coll__copy(now, coll__block(COLL__RESULT, me), coll__block(COLL__INPUT, me));
    if (k >= rounds) return k == 0;
    const int unit = coll__power(size, r, k), stride = coll__power(size, r, k + 1), before = (k + 1) & 1;
    const bool is_last = k == rounds - 1;
    if (!is_last) coll__digits_gather(now, k);
    else coll__digits_deliver(now, k);
    for (int j = 1; j < r && j <= (size - 1) / unit; j++) {
        const int hop = j * unit;
        const coll__span sent = k == 0 ? coll__digits_input(now, hop, stride) : coll__digits(now, before, hop, unit, stride);
        coll__span got = is_last ? coll__blocks(COLL__RESULT, me - hop, sent.blocks)
                                 : coll__digits(now, k & 1, hop, unit, stride);
        if (is_last) got.step = -1;
        if (k > 0) coll__copy(now, coll__digits(now, before, hop, 1, stride), coll__digits_input(now, hop, stride));
        coll__send(now, me + hop, sent);
        coll__recv(now, me - hop, got);
    }
    return true;
}

/* ---- >>ring: neighbors only, in a given order ---- */

/* The rank at place `at` of the ring. */
static inline int coll__ring_rank(const coll__round *now, int at)
{
    const int i = coll__mod(at, now->size);
    return now->order ? now->order[i] : i;
}

static int coll__ring_place_of(const coll__round *now, int rank)
{
    int at = 0;
    if (!now->order) return rank;
    while (at < now->size - 1 && now->order[at] != rank) at++;
    return at;
}

/* Round k of the allgather: forward the block received last.  p - 1 rounds, p - 1 blocks, the least possible.  Each link of the
 * ring carries each block once, so the order can avoid slow links. */
static bool coll__ring_allgather(coll__round *now, int k)
{
    if (k >= now->size - 1) return false;
    const int at = coll__ring_place_of(now, now->rank);
    coll__send(now, coll__ring_rank(now, at + 1), coll__block(COLL__RESULT, coll__ring_rank(now, at - k)));
    coll__recv(now, coll__ring_rank(now, at - 1), coll__block(COLL__RESULT, coll__ring_rank(now, at - k - 1)));
    return true;
}

/* Round k of the reduce-scatter: forward the last partial sum, fold our input into the next one.
 *
 *     block of the rank at place i:     i+1 --> i+2 --> ... --> i - 1 --> i       each adds its own; i has the sum
 *
 * p - 1 rounds, p - 1 blocks sent and folded by each rank; two slots alternate between receiving and sending. */
static bool coll__ring_reduce(coll__round *now, int k)
{
    if (now->size == 1) return coll__fold_alone(now, k);
    if (k >= now->size - 1) return false;
    const int at = coll__ring_place_of(now, now->rank);
    const int sent = coll__ring_rank(now, at - k - 1), got = coll__ring_rank(now, at - k - 2);
    const coll__span landed = k == 0 ? coll__slot_of(COLL__WORK, 0, got) : coll__slot_of(COLL__PART, k & 1, got);
    coll__send(now, coll__ring_rank(now, at + 1),
               k == 0 ? coll__block(COLL__INPUT, sent) : coll__slot_of(COLL__PART, (k - 1) & 1, sent));
    coll__recv(now, coll__ring_rank(now, at - 1), landed);
    coll__fold_two(now, k == now->size - 2 ? coll__block(COLL__RESULT, got) : coll__slot_of(COLL__PART, k & 1, got), landed,
                   coll__block(COLL__INPUT, got));
    return true;
}

#endif /* COLL_RING_BRUCK_H */
