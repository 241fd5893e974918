/* cases.h: the collectives that are compared.
 *
 * All of them move f32, and reductions are sums.  The bytes of a case are those of one buffer (allreduce, broadcast, reduce,
 * scan), of the result (allgather), of one rank's input (reduce_scatter, alltoall), of the root's whole (gather, scatter).
 * Where the buffer consists of blocks, each has at least one element. */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H

#include <stdbool.h>
#include <stddef.h>

typedef enum bench_collective {
    BENCH_ALLREDUCE, BENCH_ALLREDUCE_IN_PLACE, BENCH_BROADCAST, BENCH_REDUCE, BENCH_ALLGATHER, BENCH_REDUCE_SCATTER,
    BENCH_ALLTOALL, BENCH_GATHER, BENCH_SCATTER, BENCH_SCAN, BENCH_BARRIER, BENCH_COLLECTIVES
} bench_collective;

#ifndef __cplusplus                               /* which has no such initializers                              */

/* Rooted ones have root i mod n in operation i, so that no rank runs ahead; of a scan, whose first ranks would, each operation
 * begins together. */
static const struct bench_row {
    const char *name;
    bool is_rooted, is_synced, is_by_block;
} bench_rows[BENCH_COLLECTIVES] = {
    [BENCH_ALLREDUCE]          = { "allreduce",          false, false, false },
    [BENCH_ALLREDUCE_IN_PLACE] = { "allreduce_in_place", false, false, false },
    [BENCH_BROADCAST]          = { "broadcast",          true,  false, false },
    [BENCH_REDUCE]             = { "reduce",             true,  false, false },
    [BENCH_ALLGATHER]          = { "allgather",          false, false, true  },
    [BENCH_REDUCE_SCATTER]     = { "reduce_scatter",     false, false, true  },
    [BENCH_ALLTOALL]           = { "alltoall",           false, false, true  },
    [BENCH_GATHER]             = { "gather",             true,  false, true  },
    [BENCH_SCATTER]            = { "scatter",            true,  false, true  },
    [BENCH_SCAN]               = { "scan",               false, true,  false },
    [BENCH_BARRIER]            = { "barrier",            false, false, false },
};

#endif

/* One rank's part of a test. */
typedef struct bench_case {
    bench_collective collective;
    int    rank, ranks;
    size_t count, block;                          /* floats in the buffer that the bytes count, and in one of its blocks */
    float *in, *out;
} bench_case;

#endif /* BENCH_CASES_H */
