/* engines.c - sums of bf16 between processes of one host, as tensor parallelism on CPUs needs them: an inference engine's own
 * kernel beside coll_allreduce.
 *
 *     sh bench/engines/compare.sh            downloads and compiles an engine's kernel, and runs this on 2, 3 and 4 processes
 *
 * Both sides sum in place what the rank has just written.  Rounds of the two sides alternate.  A round's time is that of the
 * slowest rank; the table has medians of the rounds.  Every sum is compared with the exact result, which bf16 can represent. */
#define _GNU_SOURCE 1
#include "../../coll.h"
#include "engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LEAST = 16 << 10, MOST = 1 << 20, MEASURED = 15, CALLS = 12 };

typedef struct bench {
    coll_comm *comm;
    size_t     count;
    uint16_t   input[MOST / 2], data[MOST / 2], expected[MOST / 2];
    size_t     wrong;                             /* elements of this rank, of both sides                     */
} bench;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static unsigned input_of(int rank, size_t i) { return (unsigned)((i * 7 + (size_t)rank * 3 + i / 64) % 9); }

static void fill(bench *b)
{
    for (size_t i = 0; i < b->count; i++) {
        unsigned sum = 0;
        for (int r = 0; r < coll_size(b->comm); r++) sum += input_of(r, i);
        b->input[i] = coll_f32_to_bf16((float)input_of(coll_rank(b->comm), i));
        b->expected[i] = coll_f32_to_bf16((float)sum);
    }
}

/* One round: us for a call on the slowest rank, or a negative number after an error. */
static double round_of(bench *b, bool is_engine)
{
    double us = 0;

    if (coll_barrier(b->comm)) return -1;
    for (int i = 0; i < CALLS; i++) {
        memcpy(b->data, b->input, b->count * 2);
        const double start = now_us();
        if (is_engine) engine_sum(b->data, b->count);
        else if (coll_allreduce(b->comm, COLL_IN_PLACE, b->data, b->count, COLL_BF16, COLL_SUM)) return -1;
        us += now_us() - start;
        for (size_t k = 0; k < b->count; k++) b->wrong += b->data[k] != b->expected[k];
    }
    us /= CALLS;
    return coll_allreduce(b->comm, COLL_IN_PLACE, &us, 1, COLL_F64, COLL_MAX) ? -1 : us;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One row of the table; nonzero after an error. */
static int measure(bench *b)
{
    double us[2][MEASURED];
    uint64_t wrong;

    fill(b);
    for (int i = -2; i < MEASURED; i++)
        for (int side = 0; side < 2; side++) {
            const double is = round_of(b, side == 0);
            if (is < 0) return fprintf(stderr, "rank %d: %s\n", coll_rank(b->comm), coll_error(b->comm)), 1;
            if (i >= 0) us[side][i] = is;
        }
    for (int side = 0; side < 2; side++) qsort(us[side], MEASURED, sizeof **us, by_size);
    wrong = b->wrong;
    if (coll_allreduce(b->comm, COLL_IN_PLACE, &wrong, 1, COLL_U64, COLL_SUM)) return 1;
    const double theirs = us[0][MEASURED / 2], ours = us[1][MEASURED / 2];
    if (coll_rank(b->comm) == 0)
        printf("%6d %10zu %12.1f %12.1f %9.3f   %s\n", coll_size(b->comm), b->count * 2, theirs, ours, ours / theirs,
               wrong ? "WRONG" : "right");
    return wrong != 0;
}

int main(void)
{
    bench *const b = calloc(1, sizeof *b);
    int32_t key = (int32_t)getpid();
    int result = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!b || coll_init(&b->comm, NULL)) return fprintf(stderr, "%s\n", b ? coll_error(NULL) : "no memory"), 1;
    if (coll_broadcast(b->comm, &key, 1, COLL_I32, 0)) return fprintf(stderr, "%s\n", coll_error(b->comm)), 1;
    engine_create(coll_size(b->comm), coll_rank(b->comm), key);
    if (coll_barrier(b->comm)) return fprintf(stderr, "%s\n", coll_error(b->comm)), 1;
    engine_join(coll_size(b->comm), coll_rank(b->comm), key);
    if (coll_barrier(b->comm)) return fprintf(stderr, "%s\n", coll_error(b->comm)), 1;
    engine_unlink(coll_rank(b->comm), key);
    if (coll_rank(b->comm) == 0)
        printf("%6s %10s %12s %12s %9s   us a call; ratio: coll / engine\n", "ranks", "bytes", engine_name, "coll", "ratio");
    for (b->count = LEAST / 2; !result && b->count <= MOST / 2; b->count *= 2) result = measure(b);
    coll_free(b->comm);
    free(b);
    return result;
}
