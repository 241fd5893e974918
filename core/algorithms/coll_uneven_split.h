/* coll_uneven_split.h - uneven splits of a vector, for ranks with unequal links: all links are busy equally long.
 *
 * In an allreduce where each rank sums one block and then distributes it, rank i moves
 *
 *     sent        all inputs but its own block, then its own block to each other:      1 - b(i) + (p - 1) b(i)
 *     received    its own block from each other, then all other blocks:                (p - 1) b(i) + 1 - b(i)
 *
 * of the vector, where b(i) is its share.  So a rank moves at least the whole vector, and its share is additional work for the
 * others.  In the time T a link of rate R carries R T.  If all links are busy,
 *
 *     b(i) = max(0, (R(i) T - 1) / (p - 2)),    with the T for which all shares are 1 together
 *
 * With one of four links at half the rate of the others, T is 2 of the slow link's and the slow rank has no share; with equal
 * shares T is 3.  Both halves are in transit at once, in slices (coll_engine.h), so their sum counts. */
#ifndef COLL_UNEVEN_SPLIT_H
#define COLL_UNEVEN_SPLIT_H

#include "../../coll.h"

#include <limits.h>

/* Adjacent ranks with equal links, and their shares of a vector. */
typedef struct coll__rank_run {
    int      first;                               /* up to the next run's first                               */
    uint32_t rate;                                /* in sixteenths of the slowest link's                      */
    uint32_t each, before;                        /* parts of the vector: for each rank; for all ranks before */
} coll__rank_run;

enum { COLL__RUNS_MOST = COLL__HAS_CHOICE ? 8 : 1 };

/* All ranks, in increasing order.  No runs: equal links. */
typedef struct coll__shares {
    int      count;
    uint32_t parts;                               /* of the whole vector                                      */
    double   time;                                /* T, if the slowest link carries the vector in 1           */
    coll__rank_run runs[COLL__RUNS_MOST];
} coll__shares;

enum { COLL__RATE_UNIT = 16, COLL__RATE_MOST = 1 << 16, COLL__SHARES_MOST = 1 << 30 };

/* ---- >>position of a share ---- */

/* The run of a rank. */
static inline const coll__rank_run *coll__run_of(const coll__shares *s, int rank)
{
    int i = s->count - 1;

    while (i > 0 && s->runs[i].first > rank) i--;
    return &s->runs[i];
}

/* How many of the vector's `groups` are before a rank's share. */
static inline size_t coll__share_begin(const coll__shares *s, size_t groups, int rank)
{
    const coll__rank_run *const run = coll__run_of(s, rank);
    const uint32_t part = run->before + (uint32_t)(rank - run->first) * run->each;

    return groups / s->parts * part + (size_t)((uint64_t)(groups % s->parts) * part / s->parts);
}

/* ---- >>rates ---- */

static inline int coll__run_length(const coll__shares *s, int i, int size)
{
    return (i + 1 < s->count ? s->runs[i + 1].first : size) - s->runs[i].first;
}

/* A rate relative to the slowest link, in sixteenths. */
static inline uint32_t coll__rate_in(double rate)
{
    return rate < (double)COLL__RATE_MOST ? (uint32_t)(rate * (double)COLL__RATE_UNIT + 0.5) : COLL__RATE_MOST * COLL__RATE_UNIT;
}

/* Add the next rank, or all from it on.  If there is no room for another run, the last one includes it, at the lower rate. */
static inline void coll__rates_add(coll__shares *s, int rank, uint32_t rate)
{
    coll__rank_run *const last = s->count ? &s->runs[s->count - 1] : NULL;

    if (last && last->rate == rate) return;
    if (s->count < COLL__RUNS_MOST) s->runs[s->count++] = (coll__rank_run){ .first = rank, .rate = rate };
    else if (rate < last->rate) last->rate = rate;
}

/* ---- >>shares ---- */

/* Compute the shares, in integers, which are equal on every processor.  S are the ranks with a share, sum is the sum of their
 * rates:
 *
 *     T = (p - 2 + |S|) / sum,    b(i) in proportion to R(i) (p - 2 + |S|) - sum
 *
 * if T is at least the slowest link's time for one vector; otherwise R(i) - least. */
static void coll__shares_divide(coll__shares *s, int size)
{
    const uint64_t least = COLL__RATE_UNIT;
    uint64_t sum = 0, ranks = 0, had, parts = 0, most = 0, each[COLL__RUNS_MOST];

    do {                                          /* S: first all ranks, then without those whose links carry
                                                     less than a vector in T                                  */
        const uint64_t all = sum, some = (uint64_t)size - 2 + ranks;
        had = ranks;
        sum = ranks = 0;
        for (int i = 0; i < s->count; i++) {
            const uint64_t count = (uint64_t)coll__run_length(s, i, size), rate = s->runs[i].rate;
            if (rate * some > all) sum += count * rate, ranks += count;
        }
    } while (had != ranks);
    const uint64_t beyond = (uint64_t)size - 2 + ranks;
    const bool is_slowest = beyond * least <= sum;
    s->time = is_slowest ? 1 : (double)(beyond * least) / (double)sum;
    for (int i = 0; i < s->count; i++) {
        const uint64_t rate = s->runs[i].rate;
        each[i] = is_slowest ? rate - least : rate * beyond > sum ? rate * beyond - sum : 0;
        most = coll__run_length(s, i, size) > 0 && each[i] > most ? each[i] : most;
    }
    const uint64_t unit = most * (uint64_t)size / COLL__SHARES_MOST + 1;
    for (int i = 0; i < s->count; i++) {
        s->runs[i].each = (uint32_t)(each[i] / unit);
        s->runs[i].before = (uint32_t)parts;
        parts += (uint64_t)coll__run_length(s, i, size) * s->runs[i].each;
    }
    s->parts = (uint32_t)parts;
}

/* Settle the shares of `size` ranks whose rates were added.  Rates become relative to the slowest of these ranks; returns how
 * much faster that one is than the old reference.  Two ranks always take the whole vector each. */
static inline double coll__shares_settle(coll__shares *s, int size)
{
    uint32_t least = UINT32_MAX, most = 0;

    while (s->count > 0 && s->runs[s->count - 1].first >= size) s->count--;
    for (int i = 0; i < s->count; i++) {
        if (s->runs[i].rate < least) least = s->runs[i].rate;
        if (s->runs[i].rate > most) most = s->runs[i].rate;
    }
    if (s->count == 0) return 1;
    for (int i = 0; i < s->count; i++)
        s->runs[i].rate = (uint32_t)(((uint64_t)s->runs[i].rate * COLL__RATE_UNIT + least / 2) / least);
    if (size < 3 || most == least) s->count = 0;
    else coll__shares_divide(s, size);
    return (double)least / (double)COLL__RATE_UNIT;
}

/* The longest share, as a fraction of 1. */
static inline double coll__longest_share(const coll__shares *s, int size)
{
    uint32_t longest = 0;

    if (!s || s->count == 0) return 1.0 / size;
    for (int i = 0; i < s->count; i++) if (s->runs[i].each > longest) longest = s->runs[i].each;
    return (double)longest / s->parts;
}

#endif /* COLL_UNEVEN_SPLIT_H */
