/* coll_shares.h - ranks whose links do not carry alike: a vector that is cut into a block for each of them is cut so that all
 * links are busy equally long.
 *
 * An allreduce that each rank sums a block of, and then hands out, takes its rank i
 *
 *     sent        all inputs but its own block, then its own block to each other:      1 - b(i) + (p - 1) b(i)
 *     received    its own block from each other, then all other blocks:                (p - 1) b(i) + 1 - b(i)
 *
 * of the vector, where b(i) is its share.  So a rank takes at least the whole vector, and its share is what it does beyond that
 * for the others.  In the time T a link of rate R carries R T, and with all of them busy
 *
 *     b(i) = max(0, (R(i) T - 1) / (p - 2)),    with the T for which all shares are 1 together
 *
 * With one of four links at half the rate of the others that is T = 2 of the slow link's, and the slow rank has no share; with
 * equal shares it is T = 3.  Both halves are on the way at once, in slices (coll_engine.h): what counts is their sum. */
#ifndef COLL_SHARES_H
#define COLL_SHARES_H

#include "../../coll.h"

#include <limits.h>

/* Ranks next to one another whose links carry alike, and what they get of a vector. */
typedef struct coll__rank_run {
    int      first;                               /* to the next one's first                                  */
    uint32_t rate;                                /* in sixteenths of the slowest link's                      */
    uint32_t each, before;                        /* parts of the vector for each; for all in front of it     */
} coll__rank_run;

enum { COLL__RUNS_MOST = COLL__HAS_CHOICE ? 8 : 1 };

/* All ranks, in rising order.  No runs: their links are alike. */
typedef struct coll__shares {
    int      count, size;                         /* size: of all ranks, once they are settled; 0             */
    uint32_t parts;                               /* of the vector, in all                                    */
    double   time;                                /* T, where the slowest link carries the vector in 1        */
    coll__rank_run runs[COLL__RUNS_MOST];
} coll__shares;

enum { COLL__RATE_UNIT = 16, COLL__RATE_MOST = 1 << 16, COLL__SHARES_MOST = 1 << 30 };

/* ---- >>where a share lies ---- */

/* Which run is a rank in? */
static inline const coll__rank_run *coll__run_of(const coll__shares *s, int rank)
{
    int i = s->count - 1;

    while (i > 0 && s->runs[i].first > rank) i--;
    return &s->runs[i];
}

/* Of the vector's `groups`, how many lie in front of a rank's share. */
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

/* A rate, of that of the slowest link, in sixteenths. */
static inline uint32_t coll__rate_in(double rate)
{
    return rate < COLL__RATE_MOST ? (uint32_t)(rate * COLL__RATE_UNIT + 0.5) : COLL__RATE_MOST * COLL__RATE_UNIT;
}

/* Add the next rank, or all from it on.  If there is no room for another run, the last one takes it in, at the slower rate. */
static inline void coll__rates_add(coll__shares *s, int rank, uint32_t rate)
{
    coll__rank_run *const last = s->count ? &s->runs[s->count - 1] : NULL;

    if (last && last->rate == rate) return;
    if (s->count < COLL__RUNS_MOST) s->runs[s->count++] = (coll__rank_run){ .first = rank, .rate = rate };
    else if (rate < last->rate) last->rate = rate;
}

/* ---- >>shares ---- */

/* The shares, in whole numbers, which are the same on every processor.  With the ranks S that have one, and the sum of their
 * rates,
 *
 *     T = (p - 2 + |S|) / sum,    b(i) in proportion to R(i) (p - 2 + |S|) - sum
 *
 * where that T is no shorter than the slowest link takes for one vector; otherwise R(i) - least. */
static void coll__shares_divide(coll__shares *s, int size)
{
    const uint64_t least = COLL__RATE_UNIT;
    uint64_t sum = 0, ranks = (uint64_t)size, parts = 0, most = 0, each[COLL__RUNS_MOST];

    for (int i = 0; i < s->count; i++) sum += (uint64_t)coll__run_length(s, i, size) * s->runs[i].rate;
    for (uint64_t had = 0; had != ranks;) {       /* S: all, then without those whose links carry less than a vector in T */
        const uint64_t all = sum, some = (uint64_t)size - 2 + ranks;
        had = ranks;
        sum = ranks = 0;
        for (int i = 0; i < s->count; i++) {
            const uint64_t count = (uint64_t)coll__run_length(s, i, size), rate = s->runs[i].rate;
            if (rate * some > all) sum += count * rate, ranks += count;
        }
    }
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

/* Of `size` ranks, whose rates have been added.  Gives by how much the slowest of them is faster than the slowest that the rates
 * are meant for: they are of the former's from here on.  Two ranks take the whole vector each, whatever is whose. */
static inline double coll__shares_settle(coll__shares *s, int size)
{
    uint32_t least = UINT32_MAX, most = 0;

    s->size = size;
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
    return (double)least / COLL__RATE_UNIT;
}

/* Rank `i` is called `name` among those that have `all`. */
static inline void coll__rates_inherit(coll__shares *s, int i, const coll__shares *all, int name)
{
    if (all->count) coll__rates_add(s, i, coll__run_of(all, name)->rate);
}

/* The longest, of 1. */
static inline double coll__longest_share(const coll__shares *s, int size)
{
    uint32_t longest = 0;

    if (!s || s->count == 0) return 1.0 / size;
    for (int i = 0; i < s->count; i++) if (s->runs[i].each > longest) longest = s->runs[i].each;
    return (double)longest / s->parts;
}

#endif /* COLL_SHARES_H */
