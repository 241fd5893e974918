/* coll_nccl_bench.c - on GPUs: the time that the library adds to NCCL, and whether 16-bit sums have the bits of the processor.
 *
 *     make bench-nccl RANKS=4                        a process for each GPU of this host
 *     sh bench/nccl/one_card.sh 2                    several processes on one GPU: right, but slow (see there)
 *
 * Each rank takes the device of its number on its host, or COLL_DEVICE.  First every result is compared bit for bit with what the
 * host communicator makes of the same numbers; then ncclAllReduce and coll_allreduce are timed in turns, on the same buffers,
 * communicator and stream, and medians are printed.  A result is waited for on the host in both.
 *
 * Without a GPU it says so and ends with 77. */
#define _DEFAULT_SOURCE 1
#define COLL_WITH_NCCL
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include <math.h>

enum { ROUNDS = 41, LONGEST = 64 << 20, NO_GPU = 77 };

typedef struct bench {
    coll_comm *host, *comm;
    coll__nccl *nccl;
    unsigned char *send, *recv;                   /* of the device                                            */
    unsigned char *input, *expected, *got;        /* of the host, pinned                                      */
} bench;

static void fail(const coll_comm *comm, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, coll_error(comm));
    exit(1);
}

static void copy(bench *b, void *to, const void *from, size_t length, bool to_device)
{
    const coll__cuda_calls *cuda = &b->nccl->gpu->cuda;
    coll__mark *mark = coll__mark_take(b->nccl->gpu);
    coll__cuda_result is = to_device ? cuda->MemcpyHtoDAsync_v2(coll__cuda_at(to), from, length, b->nccl->stream)
                                     : cuda->MemcpyDtoHAsync_v2(to, coll__cuda_at(from), length, b->nccl->stream);

    if (!mark || is || cuda->EventRecord(mark->event, b->nccl->stream)) fail(b->comm, "copy");
    while ((is = cuda->EventQuery(mark->event)) == COLL__CUDA_NOT_READY) sched_yield();
    if (is) fail(b->comm, "copy");
    coll__mark_drop(b->nccl->gpu, mark);
}

/* ---- >>bits ---- */

/* Numbers of all sizes, with some infinities and NaNs among them. */
static void fill(bench *b, coll_type type, size_t count, int rank)
{
    uint64_t state = (uint64_t)rank * 77 + 1;

    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const float x = (float)((int64_t)state >> 32) * (i % 3 ? 1e-9f : 3e-5f);
        if (type == COLL_F32) ((float *)b->input)[i] = i % 509 == 0 ? (float)INFINITY : x;
        else if (type == COLL_F64) ((double *)b->input)[i] = x;
        else ((uint16_t *)b->input)[i] = i % 509 == 0 ? (uint16_t)(state >> 48)
                                       : type == COLL_F16 ? coll_f32_to_f16(x) : coll_f32_to_bf16(x);
    }
}

static int check(bench *b, coll_type type, coll_type wire, coll_op op, size_t count)
{
    const size_t length = count * coll_type_size(type);
    coll_call call = { .kind = COLL_ALLREDUCE, .count = count, .type = type, .wire = wire, .op = op,
                       .flags = COLL_DETERMINISTIC };

    fill(b, type, count, coll_rank(b->comm));
    copy(b, b->send, b->input, length, true);
    call.send = b->input;
    call.recv = b->expected;
    if (coll_run(b->host, &call)) fail(b->host, "on the host");
    call.send = b->send;
    call.recv = b->recv;
    if (coll_run(b->comm, &call)) fail(b->comm, "on the device");
    copy(b, b->got, b->recv, length, false);
    if (!memcmp(b->got, b->expected, length)) return 0;
    printf("rank %d: %s over %s, %s of %zu: WRONG BITS\n", coll_rank(b->comm), coll_type_name(type), coll_type_name(wire),
           coll_op_name(op), count);
    return 1;
}

static int check_all(bench *b)
{
    static const coll_type types[][2] = { { COLL_F16, COLL_F16 }, { COLL_BF16, COLL_BF16 }, { COLL_F32, COLL_F16 },
                                          { COLL_F32, COLL_BF16 }, { COLL_F32, COLL_F32 }, { COLL_F64, COLL_F64 } };
    static const coll_op ops[] = { COLL_SUM, COLL_AVG, COLL_PROD, COLL_MIN, COLL_MAX };
    static const size_t counts[] = { 1, 7, 4096, 100003, 1 << 20 };
    int wrong = 0, calls = 0;

    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++, calls++)
                wrong += check(b, types[t][0], types[t][1], ops[o], counts[c]);
    if (coll_rank(b->comm) == 0) printf("bits: %d of %d results are those of the processor\n", calls - wrong, calls);
    return wrong;
}

/* ---- >>time ---- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double direct(bench *b, size_t count)
{
    const coll__gpu *gpu = b->nccl->gpu;
    coll__mark *mark = coll__mark_take(b->nccl->gpu);
    const int64_t began = coll__now();
    coll__nccl_result is = gpu->nccl.AllReduce(b->send, b->recv, count, COLL__NCCL_F32, COLL__NCCL_SUM, b->nccl->comm,
                                               b->nccl->stream);

    while (is == COLL__NCCL_IN_PROGRESS) if (gpu->nccl.CommGetAsyncError(b->nccl->comm, &is)) break;
    if (is || !mark || gpu->cuda.EventRecord(mark->event, b->nccl->stream)) fail(b->comm, "ncclAllReduce");
    while (gpu->cuda.EventQuery(mark->event) == COLL__CUDA_NOT_READY) coll__relax();
    coll__mark_drop(b->nccl->gpu, mark);
    return (double)(coll__now() - began) * 1e-3;
}

static double ours(bench *b, size_t count, coll_type type)
{
    const int64_t began = coll__now();
    if (coll_allreduce(b->comm, b->send, b->recv, count, type, COLL_SUM)) fail(b->comm, "coll_allreduce");
    return (double)(coll__now() - began) * 1e-3;
}

static void measure(bench *b)
{
    double times[3][ROUNDS];

    if (coll_rank(b->comm) == 0) printf("%12s %12s %12s %8s %14s   us\n", "bytes", "NCCL f32", "coll f32", "ratio", "coll bf16");
    for (size_t length = 8; length <= LONGEST; length *= 8) {
        for (int i = 0; i < ROUNDS; i++) {
            times[0][i] = direct(b, length / 4);
            times[1][i] = ours(b, length / 4, COLL_F32);
            times[2][i] = ours(b, length / 2, COLL_BF16);
        }
        for (int k = 0; k < 3; k++) qsort(times[k], ROUNDS, sizeof **times, by_size);
        const double a = times[0][ROUNDS / 2], c = times[1][ROUNDS / 2];
        if (coll_rank(b->comm) == 0) printf("%12zu %12.1f %12.1f %8.3f %14.1f\n", length, a, c, c / a, times[2][ROUNDS / 2]);
    }
}

int main(void)
{
    const char *device = getenv("COLL_DEVICE");
    coll__cuda_address send = 0, recv = 0;
    bench b = { NULL };

    if (coll_init(&b.host, NULL)) fail(NULL, "coll_init");
    if (coll_init_nccl(b.host, device ? atoi(device) : coll_local_rank(b.host), NULL, &b.comm)) {
        fprintf(stderr, "%s\n", coll_error(b.host));
        return NO_GPU;
    }
    b.nccl = coll__nccl_of(b.comm);
    const coll__cuda_calls *cuda = &b.nccl->gpu->cuda;
    void *host[3];
    if (!coll__gpu_enter(b.nccl->gpu) || cuda->MemAlloc_v2(&send, LONGEST) || cuda->MemAlloc_v2(&recv, LONGEST))
        fail(b.comm, "memory");
    for (int i = 0; i < 3; i++) if (cuda->MemAllocHost_v2(&host[i], LONGEST)) fail(b.comm, "memory");
    b.input = (unsigned char *)host[0];
    b.expected = (unsigned char *)host[1];
    b.got = (unsigned char *)host[2];
    b.send = (unsigned char *)(uintptr_t)send;
    b.recv = (unsigned char *)(uintptr_t)recv;
    const int wrong = check_all(&b);
    if (!wrong && !getenv("COLL_BENCH_BITS")) measure(&b);
    (void)cuda->MemFree_v2(send);
    (void)cuda->MemFree_v2(recv);
    for (int i = 0; i < 3; i++) (void)cuda->MemFreeHost(host[i]);
    coll__gpu_leave(b.nccl->gpu);
    coll_free(b.comm);
    coll_free(b.host);
    return wrong != 0;
}
