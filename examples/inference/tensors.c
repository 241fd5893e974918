/* tensors.c - sums of an engine's tensors, beside the loop that engines write first: us a call of each.
 *
 *     build/release/coll-run -n 3 build/release/inference/tensors [CALLS]          three processes of this host
 *     COLL_SHARE=off build/release/coll-run -n 3 build/release/inference/tensors     which talk TCP, as if they were on three
 *     build/release/inference/tensors -t 3 [CALLS]                                 three threads
 *
 * ggml_coll.h is the adapter, star.h the loop, which has sockets everywhere.  Both get what a pass of the engine has written:
 * a copy of the rank's partial result, which is part of the time.  Checked are the sums of both, that all ranks have the same
 * bits, and that after the first calls the library allocates nothing: its allocator counts. */
#define _GNU_SOURCE 1
#include "ggml_coll.h"
#include "star.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

enum { WARM = 8, ROUNDS = 5, MOST = 64 << 10 };

static long taken;                                /* by all ranks of this process                             */

static void *count_allocate(void *context, size_t length, size_t alignment)
{
    void *at;

    (void)context;
    __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
    return posix_memalign(&at, alignment < sizeof(void *) ? sizeof(void *) : alignment, length) ? NULL : at;
}

static void count_free(void *context, void *at, size_t length) { (void)context, (void)length, free(at); }

static const coll_allocator counting = { count_allocate, count_free, NULL };

/* One rank: the tensor and what is in it before each call. */
typedef struct bench {
    coll_comm *comm;
    star       star;
    tensor     t;
    size_t     bytes;
    float      data[MOST / 4], partial[MOST / 4], room[MOST / 4];
} bench;

typedef struct row {
    double us, sent;                              /* of a call; bytes that the busiest rank sends             */
    long   taken;
    bool   is_right, is_same;
} row;

/* Between -1 and 1, the same numbers on every rank. */
static float partial_of(int rank, size_t i)
{
    uint32_t at = (uint32_t)i * 64 + (uint32_t)rank;

    at = (at ^ (at >> 16)) * 0x7feb352du;
    at = (at ^ (at >> 15)) * 0x846ca68bu;
    return (float)((at ^ (at >> 16)) >> 8) * 0x1p-23f - 1;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* The sum by the adapter, or where there is none by the star; nonzero after an error. */
static int sum_once(bench *b, const tensor_sum *sum)
{
    memcpy(b->data, b->partial, b->bytes);
    if (!sum) return !star_sum(&b->star, b->data, b->room, b->bytes / 4);
    return tensor_sum_run(sum) != COLL_OK;
}

/* Is each element as near to the sum in f64 as it must be, with inputs and the sum off by `unit` of themselves? */
static bool is_right(const bench *b, double unit)
{
    for (size_t i = 0; i < b->bytes / 4; i++) {
        double sum = 0, size = 0;
        for (int r = 0; r < coll_size(b->comm); r++) sum += partial_of(r, i), size += fabs((double)partial_of(r, i));
        if (!(fabs((double)b->data[i] - sum) <= unit * (size + fabs(sum) + unit * size) + 1e-6 * size)) return false;
    }
    return true;
}

/* Do all ranks have the same bits?  All ranks get the same answer. */
static int agree(bench *b, row *out)
{
    uint64_t ends[3] = { 14695981039346656037u, 0, out->is_right };

    for (size_t i = 0; i < b->bytes; i++) ends[0] = (ends[0] ^ ((const unsigned char *)b->data)[i]) * 1099511628211u;
    ends[1] = ~ends[0];                           /* the least of these is that of the most                   */
    if (coll_allreduce(b->comm, COLL_IN_PLACE, ends, 3, COLL_U64, COLL_MIN)) return 1;
    out->is_same = ends[0] == ~ends[1], out->is_right = ends[2] != 0;
    return 0;
}

/* Bytes that this rank has sent so far.  Of the star it is known what it sends. */
static double sent_by(const bench *b, const tensor_sum *sum, int calls)
{
    uint64_t sent, received;

    if (!sum) return (double)b->bytes * calls * (b->star.rank == 0 ? b->star.size - 1 : 1);
    coll_traffic(b->comm, &sent, &received);
    return (double)sent;
}

/* The fastest of some rounds of calls, and the fewest allocations of one; no rank is ahead when they are counted. */
static int measure(bench *b, const tensor_sum *sum, double unit, int calls, row *out)
{
    *out = (row){ .us = INFINITY, .taken = -1 };
    for (int i = 0; i < WARM; i++) if (sum_once(b, sum)) return 1;
    const double sent = sent_by(b, sum, 0);
    for (int round = 0; round < ROUNDS; round++) {
        if (coll_barrier(b->comm)) return 1;
        const long before = __atomic_load_n(&taken, __ATOMIC_RELAXED);
        if (coll_barrier(b->comm)) return 1;
        const double start = now_us();
        for (int i = 0; i < calls; i++) if (sum_once(b, sum)) return 1;
        const double us = (now_us() - start) / calls;
        if (coll_barrier(b->comm)) return 1;
        const long now = __atomic_load_n(&taken, __ATOMIC_RELAXED) - before;
        out->us = us < out->us ? us : out->us;
        out->taken = out->taken < 0 || now < out->taken ? now : out->taken;
    }
    double most[2] = { (double)out->taken, (sent_by(b, sum, ROUNDS * calls) - sent) / (ROUNDS * calls) };
    if (coll_allreduce(b->comm, COLL_IN_PLACE, most, 2, COLL_F64, COLL_MAX)) return 1;        /* of any rank  */
    out->taken = (long)most[0], out->sent = most[1], out->is_right = is_right(b, unit);
    return agree(b, out);
}

/* What the adapter does not sum, it says; and f16 is summed as f16. */
static const char *refuse(bench *b)
{
    tensor_sum sum;
    uint16_t half[6];
    const int size = coll_size(b->comm);
    tensor turned = { TENSOR_F32, { 8, 16, 1, 1 }, { 64, 4, 512, 512 }, b->data }, packed = turned;
    const tensor small = { TENSOR_F16, { 3, 2, 1, 1 }, { 2, 6, 0, 0 }, half };

    if (tensor_sum_begin(&sum, b->comm, &turned, 0) != COLL_ERR_UNSUPPORTED) return "a turned tensor is not refused";
    if (coll_rank(b->comm) == 0) printf("refused: %s\n", sum.why);
    packed.type = 2;                              /* GGML_TYPE_Q4_0                                           */
    if (tensor_sum_begin(&sum, b->comm, &packed, 0) != COLL_ERR_UNSUPPORTED) return "a quantized tensor is not refused";
    if (coll_rank(b->comm) == 0) printf("refused: %s\n", sum.why);
    if (tensor_sum_begin(&sum, b->comm, &small, COLL_F32) != COLL_ERR_UNSUPPORTED) return "a wider wire is not refused";
    if (coll_rank(b->comm) == 0) printf("refused: %s\n", sum.why);
    for (int i = 0; i < 6; i++) half[i] = coll_f32_to_f16((float)(i + coll_rank(b->comm)));
    if (tensor_sum_begin(&sum, b->comm, &small, 0) || tensor_sum_run(&sum)) return coll_error(b->comm);
    for (int i = 0; i < 6; i++)
        if (half[i] != coll_f32_to_f16((float)(size * i + size * (size - 1) / 2))) return "f16 is wrong";
    return NULL;
}

static int bench_all(bench *b, int calls)
{
    const int rank = coll_rank(b->comm);
    int wrong = 0;

    if (rank == 0) printf("%d ranks, %d calls a round\n         us a call                         KiB sent by the busiest rank\n"
                          "  KiB   coll f32  coll bf16   star f32   coll f32  coll bf16   star f32\n", coll_size(b->comm), calls);
    for (b->bytes = 16 << 10; b->bytes <= MOST; b->bytes *= 2) {
        tensor_sum sums[2];
        row rows[3];
        b->t = (tensor){ TENSOR_F32, { 1024, (int64_t)b->bytes / 4096, 1, 1 }, { 4, 4096, b->bytes, b->bytes }, b->data };
        for (size_t i = 0; i < b->bytes / 4; i++) b->partial[i] = partial_of(rank, i);
        for (int w = 0; w < 2; w++)
            if (tensor_sum_begin(&sums[w], b->comm, &b->t, w ? COLL_BF16 : 0)) return fprintf(stderr, "%s\n", sums[w].why), 1;
        for (int w = 0; w < 3; w++)
            if (measure(b, w < 2 ? &sums[w] : NULL, w == 1 ? 0x1p-8 : 0, calls, &rows[w]))
                return fprintf(stderr, "rank %d: %s\n", rank, w < 2 ? coll_error(b->comm) : "the star is broken"), 1;
        for (int w = 0; w < 3; w++) wrong |= !rows[w].is_right || !rows[w].is_same || (w < 2 && rows[w].taken != 0);
        if (rank == 0)
            printf("%5d %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f   sums %s, bits %s, allocations %ld and %ld\n",
                   (int)(b->bytes >> 10), rows[0].us, rows[1].us, rows[2].us, rows[0].sent / 1024, rows[1].sent / 1024,
                   rows[2].sent / 1024, rows[0].is_right && rows[1].is_right && rows[2].is_right ? "right" : "WRONG",
                   rows[0].is_same && rows[1].is_same ? "the same" : "DIFFER", rows[0].taken, rows[1].taken);
    }
    return wrong;
}

static int worker(coll_comm *comm, void *arg)
{
    bench *const b = calloc(1, sizeof *b);
    const char *why = "there is no memory";
    int wrong = 1;

    if (b && (b->comm = comm, !(why = star_open(&b->star, comm) ? refuse(b) : "the star cannot be opened")))
        wrong = bench_all(b, *(const int *)arg);
    if (why) fprintf(stderr, "rank %d: %s\n", coll_rank(comm), why);
    if (b) star_close(&b->star);
    free(b);
    return wrong;
}

int main(int argc, char **argv)
{
    const bool is_threads = argc > 2 && strcmp(argv[1], "-t") == 0;
    const coll_config config = { .allocator = &counting };
    coll_comm *comm;
    int calls = argc > 1 + 2 * is_threads ? atoi(argv[1 + 2 * is_threads]) : 200;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (calls < 1) return fprintf(stderr, "usage: tensors [-t RANKS] [CALLS]\n"), 2;
    if (is_threads) {
        return coll_spawn(atoi(argv[2]), worker, &calls, &config) != 0;
    }
    if (coll_init(&comm, &config)) return 1;
    const int result = worker(comm, &calls);
    return coll_free(comm) != COLL_OK || result;
}
