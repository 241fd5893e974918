/* test_leaf_runs.c - allreduce over leaves: the bytes that it sends, and the sentences on runs that do not fit.
 *
 *     test_leaf_runs                 COLL_TEST_SEED=n repeats a run
 *
 * Bytes are those of a simulated job, for 24 leaves in equal runs and for random splits.  The manual's bound is computed here
 * from the number of nodes, which this file counts by itself.  Bits: test_leaves. */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../../coll.h"

#include "../support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 12, VECTORS = 256, COUNT = 20000, FEW = 4 };

typedef struct job {
    int64_t first[MOST], leaves[MOST];            /* of each rank                                             */
    int     count;
    coll_call call;
    uint64_t sent;                                /* by all ranks                                             */
    coll_status status[MOST];
    char    said[MOST][400];
} job;

static uint64_t state;

static int drawn(int below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((state >> 33) % (uint64_t)below);
}

/* Each rank makes the call with its run. */
static int make_call(coll_comm *comm, void *context)
{
    static float vectors[VECTORS * COUNT];        /* zeros, which all ranks read                              */
    job *const j = context;
    const int me = coll_rank(comm);
    coll_call call = j->call;
    uint64_t before, after, received;

    call.send = vectors;
    call.recv = malloc((size_t)j->count * sizeof(float) + 1);
    call.count = (size_t)j->count;
    call.type = COLL_F32;
    call.first_leaf = j->first[me];
    call.leaves = j->leaves[me];
    coll_traffic(comm, &before, &received);
    j->status[me] = call.recv ? coll_run(comm, &call) : COLL_ERR_MEMORY;
    coll_traffic(comm, &after, &received);
    snprintf(j->said[me], sizeof j->said[me], "%s", j->status[me] ? coll_error(comm) : "");
    __atomic_add_fetch(&j->sent, after - before, __ATOMIC_RELAXED);
    free(call.recv);
    return 0;
}

static void run(job *j, int size, const char *transport)
{
    const coll_sim machine = { .seed = 1 };
    const coll_config config = { .transport = transport, .sim = strcmp(transport, "sim") ? NULL : &machine };

    j->sent = 0;
    CHECK(coll_spawn(size, make_call, j, &config) == 0, "%d ranks of %s: %s", size, transport, coll_error(NULL));
}

/* The nodes of a run, largest first from every place: counted by trying all. */
static int nodes_of(int64_t from, int64_t leaves)
{
    int nodes = 0;

    while (leaves > 0) {
        int64_t length = 1;
        for (int64_t l = 1; l <= leaves; l *= 2) if (from % l == 0) length = l;
        from += length, leaves -= length, nodes++;
    }
    return nodes;
}

static double ratio(job *j, int size, double plain)
{
    run(j, size, "sim");
    for (int i = 0; i < size; i++) CHECK(j->status[i] == COLL_OK, "rank %d of %d: %s", i, size, j->said[i]);
    return (double)j->sent / plain;
}

static double plain_bytes(int size)
{
    job j = { .count = COUNT, .call = { .kind = COLL_ALLREDUCE, .flags = COLL_DETERMINISTIC, .algorithm = "direct" } };
    return ratio(&j, size, 1);
}

static void check_equal_runs(void)
{
    static const int sizes[] = { 5, 7, 8 };

    for (int k = 0; k < 3; k++) {
        job j = { .count = COUNT, .call = { .kind = COLL_ALLREDUCE } };
        for (int i = 0, at = 0; i < sizes[k]; at += (int)j.leaves[i++])
            j.first[i] = at, j.leaves[i] = 24 / sizes[k] + (i < 24 % sizes[k]);
        const double times = ratio(&j, sizes[k], plain_bytes(sizes[k]));
        printf("24 leaves on %d ranks: %.3f times the bytes\n", sizes[k], times);
        CHECK(times <= 1.5, "24 leaves on %d ranks take %.3f times the bytes", sizes[k], times);
    }
    job falling = { .count = COUNT, .call = { .kind = COLL_ALLREDUCE }, .first = { 0, 8, 16, 20, 22 },
                    .leaves = { 8, 8, 4, 2, 2 } };
    const double times = ratio(&falling, 5, plain_bytes(5));
    CHECK(times <= 1.01, "8, 8, 4, 2 and 2 leaves take %.3f times the bytes", times);
}

/* Vectors without elements, and with fewer than there are ranks. */
static void check_short(const char *transport)
{
    for (int count = 0; count < 3; count++) {
        job j = { .count = count, .call = { .kind = COLL_ALLREDUCE }, .first = { 0, 5, 10, 15, 20 },
                  .leaves = { 5, 5, 5, 5, 4 } };
        run(&j, 5, transport);
        for (int i = 0; i < 5; i++) CHECK(j.status[i] == COLL_OK, "%s, %d elements: %s", transport, count, j.said[i]);
    }
}

static void check_bound(void)
{
    double closest = 0;

    for (int t = 0; t < 60; t++) {
        job j = { .count = COUNT, .call = { .kind = COLL_ALLREDUCE } };
        const int size = 2 + drawn(MOST - 1);
        int at = 0, nodes = 0;
        for (int i = 0; i < size; at += j.leaves[i] > 0 ? (int)j.leaves[i] : 0, i++) {
            j.first[i] = at, j.leaves[i] = drawn(drawn(2) ? 8 : 200);
            if (j.leaves[i] == 0) j.leaves[i] = i == 0 ? 1 : -1;
            nodes += nodes_of(at, j.leaves[i]);
        }
        const double bound = (double)COUNT * sizeof(float) * (size - 1) * (1 + (double)nodes / size);
        const double times = ratio(&j, size, bound);
        CHECK(times <= 1.01, "%d nodes on %d ranks: %.3f of the bound", nodes, size, times);      /* heads: under 1 % */
        if (times > closest) closest = times;
    }
    printf("random splits: at most %.3f of the bound\n", closest);
}

/* ---- >>sentences ---- */

typedef struct wrong {
    int64_t first[FEW], leaves[FEW];
    coll_status status;
    const char *words;
} wrong;

static void check_sentences(const char *transport)
{
    static const wrong wrongs[] = {
        { { 0, 3, 5, 7 }, { 3, 3, 2, 1 }, COLL_ERR_MISMATCH,
          "rank 2 has leaves 5 to 6, but those of rank 1 end with 5: runs must adjoin" },
        { { 0, 4, 5, 7 }, { 3, 1, 2, 1 }, COLL_ERR_MISMATCH, "rank 1 has leaves 4 to 4, but those of rank 0 end with 2" },
        { { 7, 1, 0, 1 }, { -1, 2, -1, 2 }, COLL_ERR_MISMATCH, "the first leaves, those of rank 1, begin with leaf 1" },
        { { 0, 0, 0, 0 }, { -1, -1, -1, -1 }, COLL_ERR_MISMATCH, "no rank has leaves" },
        { { 0, 3, 6, 7 }, { 3, 3, 1, 0 }, COLL_ERR_ARGUMENT, "first_leaf is 7, but leaves is 0" },
        { { 0, 3, 6, -7 }, { 3, 3, 1, 1 }, COLL_ERR_ARGUMENT, "1 leaves from -7 on are out of range" },
        { { 0, 3, 6, 7 }, { 3, 3, 1, -2 }, COLL_ERR_ARGUMENT, "-2 leaves from 7 on are out of range" },
    };

    for (int k = 0; k < (int)(sizeof wrongs / sizeof *wrongs); k++) {
        const wrong *const w = &wrongs[k];
        job j = { .count = 5, .call = { .kind = COLL_ALLREDUCE } };
        const bool is_local = w->status == COLL_ERR_ARGUMENT;
        memcpy(j.first, w->first, sizeof w->first);
        memcpy(j.leaves, w->leaves, sizeof w->leaves);
        run(&j, FEW, transport);
        for (int i = is_local ? FEW - 1 : 0; i < FEW; i++)
            CHECK(j.status[i] == w->status && strstr(j.said[i], w->words), "%s: rank %d: %d, \"%s\", expected \"%s\"", transport,
                  i, (int)j.status[i], j.said[i], w->words);
    }
    const coll_call unsupported[] = {
        { .kind = COLL_ALLREDUCE, .op = COLL_MAX }, { .kind = COLL_REDUCE }, { .kind = COLL_ALLREDUCE, .wire = COLL_MXI8 },
        { .kind = COLL_ALLREDUCE, .flags = COLL_STOCHASTIC }, { .kind = COLL_ALLREDUCE, .algorithm = "ring" },
    };
    for (int k = 0; k < (int)(sizeof unsupported / sizeof *unsupported); k++) {
        job j = { .count = 5, .call = unsupported[k], .leaves = { 1 } };
        run(&j, 1, transport);
        CHECK(j.status[0] == COLL_ERR_UNSUPPORTED && strstr(j.said[0], "leaves are for sums"), "%s: \"%s\"", transport,
              j.said[0]);
    }
    job mixed = { .count = 5, .call = { .kind = COLL_ALLREDUCE }, .leaves = { 1, 0, 1, 1 }, .first = { 0, 0, 1, 2 } };
    run(&mixed, FEW, transport);
    for (int i = 0; i < FEW; i++)
        CHECK(mixed.status[i] == COLL_ERR_MISMATCH, "%s: a call without leaves: rank %d: %d, \"%s\"", transport, i,
              (int)mixed.status[i], mixed.said[i]);
}

int main(void)
{
    const char *seed = getenv("COLL_TEST_SEED");

    state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    printf("COLL_TEST_SEED=%llu\n", (unsigned long long)state);
    check_equal_runs();
    check_bound();
    check_short("sim");
    check_short("threads");
    check_sentences("sim");
    check_sentences("threads");
    return CHECK_DONE();
}
