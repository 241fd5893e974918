/* coll_blocks.h - broadcast and reduce of a vector in n blocks, in the fewest rounds: n - 1 + q, q = ceil(log_2 p).
 *
 * In every round each rank sends one block and receives one block, at the distances of the circulant of radix 2.  A schedule of
 * q numbers for each rank determines the blocks.  It repeats every q rounds, with all numbers increased by q.
 *
 *     p = 5, n = 4, root 0: block received (and its sender)
 *
 *         round      0       1       2       3       4       5
 *         rank 1   0 (0)     -       -     3 (0)   2 (4)   1 (3)
 *         rank 2     -     1 (0)     -     0 (1)   3 (0)   2 (4)
 *         rank 3     -       -     2 (0)   1 (2)   0 (1)   3 (0)
 *         rank 4     -       -     0 (1)   2 (3)   1 (2)   3 (1)
 *
 * After J.  L.  Traeff (arXiv 2312.11236, 2407.18004), with the test that accepted ranks strictly decrease, without which
 * sender and receiver disagree from p = 33 on. */
#ifndef COLL_BLOCKS_H
#define COLL_BLOCKS_H

#include "coll_ring_bruck.h"

enum { COLL__BLOCKS_BITS = 32 };                  /* rounds of a schedule: q <= 31 for any int                */

/* The schedule of one rank, counted from the root: in round i it receives block receive[i % q], plus q for each repetition.
 * Numbers beyond the last block mean the last one.  Each rank except the root has exactly one of them in the last q rounds, so
 * that every block is received exactly once. */
typedef struct coll__schedule {
    int q, skip[COLL__BLOCKS_BITS + 1];
    int receive[COLL__BLOCKS_BITS];
} coll__schedule;

/* The search for a schedule: over the sums of skips, largest skip first, in a list from which used skips are removed. */
typedef struct coll__blocks_search {
    coll__schedule *found;
    int count;                                    /* entries of `receive` found so far                        */
    int rank, size, base, accepted;
    int next[COLL__BLOCKS_BITS + 1], previous[COLL__BLOCKS_BITS + 1];
} coll__blocks_search;

static void coll__blocks_unlink(coll__blocks_search *s, int e)
{
    if (s->previous[e] <= s->found->q) s->next[s->previous[e]] = s->next[e];
    if (s->next[e] >= 0) s->previous[s->next[e]] = s->previous[e];
}

/* The index of the smallest skip in the greedy sum of skips that gives `rank`; q for the root. */
static int coll__blocks_base(const coll__schedule *schedule, int rank)
{
    for (int k = schedule->q - 1; k >= 0 && rank > 0; k--) {
        if (rank < schedule->skip[k]) continue;
        rank -= schedule->skip[k];
        if (rank == 0) return k;
    }
    return schedule->q;
}

static inline int64_t coll__blocks_low(const coll__blocks_search *s)
{
    return (int64_t)s->rank + s->size - s->found->skip[s->count + 1];
}

/* Search below the sum `at`, whose smallest skip is number e.  A sum in the window of round `count` gives that round. */
static void coll__blocks_walk(coll__blocks_search *s, int64_t at, int e)
{
    const int q = s->found->q;

    if (at > (int64_t)s->rank + s->size - s->found->skip[s->count] || at >= s->accepted) return;
    for (int f = s->next[e]; f >= 0 && s->count < q && at <= coll__blocks_low(s); f = s->next[f])
        coll__blocks_walk(s, at + s->found->skip[f], f);
    if (s->count >= q || at < coll__blocks_low(s) || at > (int64_t)s->rank + s->size - s->found->skip[s->count]) return;
    s->found->receive[s->count++] = e == q ? s->base : e - q;
    coll__blocks_unlink(s, e);
    s->accepted = (int)at;
}

/* Idle rounds before the first one, so that the last round ends a repetition. */
static inline int coll__blocks_idle(int q, int blocks) { return (q - (blocks - 1) % q) % q; }

static void coll__blocks_find(coll__schedule *schedule, int rank, int size)
{
    coll__blocks_search s = { .found = schedule, .rank = rank, .size = size };
    const int q = coll__circulant_rounds(size, 2);

    schedule->q = q;
    schedule->skip[q] = size;
    for (int k = q - 1; k >= 0; k--) schedule->skip[k] = (schedule->skip[k + 1] - 1) / 2 + 1;
    s.base = coll__blocks_base(schedule, rank);
    s.accepted = size > INT_MAX / 2 ? INT_MAX : 2 * size;
    for (int e = 0; e <= q; e++) s.next[e] = e - 1, s.previous[e] = e + 1;
    coll__blocks_unlink(&s, s.base);
    for (int top = s.base == q ? q - 1 : q; s.count < q && top >= 0; top = s.next[top])
        coll__blocks_walk(&s, schedule->skip[top], top);
}

/* The block that this rank receives in step i, counted from the idle rounds; -1: none. */
static int coll__blocks_received(const coll__schedule *s, int i, int blocks)
{
    const int number = s->receive[i % s->q] - coll__blocks_idle(s->q, blocks) + i / s->q * s->q;
    return number < 0 ? -1 : coll__less(number, blocks - 1);
}

/* The rank to which this rank sends in step i, counted from the root; 0: none, because the root needs nothing. */
static inline int coll__blocks_target(int rank, int size, const coll__schedule *s, int i)
{
    return (int)(((int64_t)rank + s->skip[i % s->q]) % size);
}

/* Does a rank send `block` in a later step than i?  A block is forwarded within two repetitions after it was received. */
static bool coll__blocks_sends_later(int rank, int size, int blocks, int block, int i)
{
    const int q = coll__circulant_rounds(size, 2), steps = blocks - 1 + q + coll__blocks_idle(q, blocks);
    coll__schedule to = { .q = 0 };

    for (int k = 0; k < q; k++) {
        const int target = (int)(((int64_t)rank + coll__circulant_skip(size, 2, q - k)) % size);
        if (target == 0) continue;
        coll__blocks_find(&to, target, size);
        for (int at = i + 1 + coll__mod(k - i - 1, q); at < steps && at <= i + 3 * q; at += q)
            if (coll__blocks_received(&to, at, blocks) == block) return true;
    }
    return false;
}

/* Broadcast: n - 1 + q rounds of m / n, the least possible for any p; for long vectors. */
static bool coll__broadcast_blocks(coll__round *now, int k)
{
    const int size = now->size, blocks = now->blocks, v = coll__mod(now->rank - now->root, size);
    coll__schedule own = { .q = 0 }, next = { .q = 0 };

    if (size == 1 || k >= blocks - 1 + coll__circulant_rounds(size, 2)) return false;
    coll__blocks_find(&own, v, size);
    const int i = k + coll__blocks_idle(own.q, blocks), skip = own.skip[i % own.q];
    const int target = coll__blocks_target(v, size, &own, i);
    if (target != 0) {
        coll__blocks_find(&next, target, size);
        const int sent = coll__blocks_received(&next, i, blocks);
        if (sent >= 0) coll__send(now, now->rank + skip, coll__block(COLL__RESULT, sent));
    }
    const int got = v == 0 ? -1 : coll__blocks_received(&own, i, blocks);
    if (got >= 0) coll__recv(now, now->rank - skip, coll__block(COLL__RESULT, got));
    return true;
}

/* Reduce: the broadcast backwards, with send and receive exchanged.  A rank forwards the sum of a block when all ranks to which
 * the broadcast would send it have delivered theirs.  n - 1 + q rounds of m / n, and as much folded; for long vectors and
 * operations that commute.  A rank that has received nothing yet sends its raw input.  Sums of block b are in slot b; slot n is
 * for receiving. */
static bool coll__reduce_blocks(coll__round *now, int k)
{
    const int size = now->size, blocks = now->blocks, v = coll__mod(now->rank - now->root, size);
    coll__schedule own = { .q = 0 }, next = { .q = 0 };

    if (size == 1) return coll__fold_alone(now, k);
    const int rounds = blocks - 1 + coll__circulant_rounds(size, 2);
    if (k >= rounds) return false;
    coll__blocks_find(&own, v, size);
    const int step = rounds - 1 - k, i = step + coll__blocks_idle(own.q, blocks), skip = own.skip[i % own.q];
    const int sent = v == 0 ? -1 : coll__blocks_received(&own, i, blocks);
    if (sent >= 0)
        coll__send(now, now->rank - skip, coll__blocks_sends_later(v, size, blocks, sent, i)
                                              ? coll__slot_of(COLL__PART, sent, sent) : coll__block(COLL__INPUT, sent));
    const int target = coll__blocks_target(v, size, &own, i);
    if (target == 0) return true;
    coll__blocks_find(&next, target, size);
    const int got = coll__blocks_received(&next, i, blocks);
    if (got < 0) return true;
    const coll__span landed = coll__blocks_sends_later(target, size, blocks, got, i) ? coll__slot_of(COLL__PART, blocks, got)
                                                                                     : coll__slot_of(COLL__WORK, 0, got);
    const coll__span sum = coll__slot_of(COLL__PART, got, got);
    coll__recv(now, now->rank + skip, landed);
    coll__fold_two(now, v == 0 && step <= got ? coll__block(COLL__RESULT, got) : sum,   /* the root's last fold of this block */
                   coll__blocks_sends_later(v, size, blocks, got, i) ? sum : coll__block(COLL__INPUT, got), landed);
    return true;
}

#endif /* COLL_BLOCKS_H */
