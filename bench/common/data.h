/* data.h: the input of a case, and its expected result. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include "timing.h"

#include "cases.h"

static void bench_case_size(bench_case *c, size_t bytes)
{
    const size_t n = (size_t)c->ranks, count = bytes / sizeof(float) ? bytes / sizeof(float) : 1;

    c->block = count / n ? count / n : 1;
    c->count = bench_rows[c->collective].is_by_block ? c->block * n : count;
}

/* Whole numbers whose sums are exact in f32 for up to 64 ranks; the period is a prime, so a block in the wrong place shows. */
static float bench_value(int rank, size_t i)
{
    return (float)((size_t)(rank + 1) * (i % 1013 + 1));
}

static const float bench_spoilt = -7;             /* is never a result */

static void bench_fill(const bench_case *c)
{
    const bool is_own = c->collective == BENCH_ALLREDUCE_IN_PLACE || c->collective == BENCH_BROADCAST;

    for (size_t i = 0; i < c->count; i++) {
        c->in[i] = bench_value(c->rank, i);
        c->out[i] = is_own ? c->in[i] : bench_spoilt;
    }
}

/* What element i of `out` must be after one operation with this root. */
static float bench_expected(const bench_case *c, int root, size_t i)
{
    const int n = c->ranks, r = c->rank;
    const size_t b = c->block, mine = (size_t)r * b;
    const float one = (float)(i % 1013 + 1);

    switch (c->collective) {
    case BENCH_ALLREDUCE: case BENCH_ALLREDUCE_IN_PLACE: return (float)(n * (n + 1) / 2) * one;
    case BENCH_BROADCAST:      return bench_value(root, i);
    case BENCH_REDUCE:         return r == root ? (float)(n * (n + 1) / 2) * one : bench_spoilt;
    case BENCH_ALLGATHER:      return bench_value((int)(i / b), i % b);
    case BENCH_REDUCE_SCATTER: return i < b ? (float)(n * (n + 1) / 2) * bench_value(0, mine + i) : bench_spoilt;
    case BENCH_ALLTOALL:       return bench_value((int)(i / b), mine + i % b);
    case BENCH_GATHER:         return r == root ? bench_value((int)(i / b), i % b) : bench_spoilt;
    case BENCH_SCATTER:        return i < b ? bench_value(root, mine + i) : bench_spoilt;
    case BENCH_SCAN:           return (float)((r + 1) * (r + 2) / 2) * one;
    default:                   return bench_spoilt;
    }
}

/* The first element that is wrong, or the count.  is_loose: elements outside the result are not compared. */
static size_t bench_check(const bench_case *c, int root, bool is_loose)
{
    for (size_t i = 0; i < c->count; i++) {
        const float expected = bench_expected(c, root, i);
        if (c->out[i] != expected && !(is_loose && expected == bench_spoilt)) return i;
    }
    return c->count;
}

/* The last element of the result; where this rank has none, the last of all. */
static size_t bench_last(const bench_case *c, int root)
{
    size_t i = c->count;

    while (i > 0 && bench_expected(c, root, i - 1) == bench_spoilt) i--;
    return (i > 0 ? i : c->count) - 1;
}

static void bench_wrong(const bench_case *c, const char *who, int root, size_t at)
{
    fprintf(stderr, "%s: %s of %zu floats, root %d: rank %d has %g at %zu, not %g\n", who, bench_rows[c->collective].name,
            c->count, root, c->rank, (double)c->out[at], at, (double)bench_expected(c, root, at));
    exit(BENCH_WRONG);
}

/* The first operations of a contender, each of them checked: one for every root, but only the last of these where checking
 * takes long.  `is_spoilt`: make the result wrong, to see that it is noticed.  Leaves zeros in the buffers: a sum in place that
 * is repeated a thousand times would overflow. */
BENCH_UNUSED static void bench_verify(const bench_team *team, bench_contender *it, const bench_case *c, bool is_spoilt)
{
    const size_t long_count = 1 << 18;
    const int roots = bench_rows[c->collective].is_rooted ? c->ranks : 1;

    for (int root = 0; root < roots; root++) {
        const bool is_checked = c->collective != BENCH_BARRIER && (root + 1 == roots || c->count < long_count);
        if (is_checked) bench_fill(c);
        bench_barrier(team);
        it->op(it->context, it->next++);
        bench_barrier(team);
        if (!is_checked) continue;
        if (is_spoilt) c->out[bench_last(c, root)] += 1;
        const size_t at = bench_check(c, root, it->is_loose);
        if (at < c->count) bench_wrong(c, it->name, root, at);
    }
    memset(c->in, 0, c->count * sizeof *c->in);
    memset(c->out, 0, c->count * sizeof *c->out);
    bench_barrier(team);
}

#endif /* BENCH_DATA_H */
