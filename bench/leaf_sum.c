/* leaf_sum - coll_sum_add beside a loop a[i] += b[i], on leaves that are read from memory.
 *
 *     leaf_sum [LEAVES [KIB...]]                   24 leaves of 64 KiB to 64 MiB unless said otherwise
 *
 * Each line is a length of a leaf.  In a turn, both add up leaves, one after the other; they take turns.  The leaves are
 * consecutive parts of a pool of 512 MiB, which no cache holds; each way has its own, so that it does not find those of the other
 * in a cache.  The loop adds all of them to one vector; coll_sum_add makes the nodes of their tree.  Times are those of the
 * processor, so that other programs only share the memory.  Printed are the median of the loop, in GB of leaves a second; the
 * median and the quartiles of the ratios within a turn, and the ratio of the fastest turns: above 1 coll_sum_add is faster.  The
 * nodes are compared bit for bit with those of a recursion first. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POOL = 512 << 20, TURNS_MOST = 101, TURNS_LEAST = 9 };

static unsigned char *pool;
static size_t next_at;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The next leaf of the pool. */
static const float *leaf(size_t bytes)
{
    next_at = next_at + 2 * bytes <= POOL ? next_at + bytes : 0;
    return (const float *)(const void *)(pool + next_at);
}

/* The best that the compiler makes of it. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
__attribute__((noinline, optimize("O3"), target_clones("avx512f", "avx2", "default")))
#else
__attribute__((noinline))
#endif
static void loop(float *restrict a, const float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++) a[i] += b[i];
}

/* An element of the node of leaves [first, first + n), n a power of two. */
static float node(const float *leaves, size_t count, int first, int n, size_t i)
{
    if (n == 1) return leaves[(size_t)first * count + i];
    return node(leaves, count, first, n / 2, i) + node(leaves, count, first + n / 2, n / 2, i);
}

static int is_right(coll_sum *sum, size_t count, int leaves)
{
    const float *const from = (const float *)(const void *)pool;
    coll_call call = { .kind = COLL_ALLREDUCE };

    coll_sum_restart(sum, 0);
    for (int i = 0; i < leaves; i++)
        if (coll_sum_add(sum, from + (size_t)i * count)) return 0;
    coll_sum_end(sum, &call);
    const float *at = call.send;
    for (int first = 0, n; first < leaves; first += n, at += count) {
        for (n = 1; 2 * n <= leaves - first && first % (2 * n) == 0;) n *= 2;
        for (size_t i = 0; i < count; i += 1 + count / 1000)
            if (memcmp(&at[i], &(float){ node(from, count, first, n, i) }, sizeof *at)) return 0;
    }
    return 1;
}

static int is_less(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(size_t bytes, int leaves)
{
    const size_t count = bytes / sizeof(float), all = bytes * (size_t)leaves;
    const size_t wanted = ((size_t)4 << 30) / all;
    const int turns = wanted > TURNS_MOST ? TURNS_MOST : wanted < TURNS_LEAST ? TURNS_LEAST : (int)wanted;
    double loop_s[TURNS_MOST], sum_s[TURNS_MOST], ratios[TURNS_MOST];
    float *const a = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    coll_sum *sum;

    if (!a || coll_sum_begin(&sum, 0, count, COLL_F32, NULL)) return fprintf(stderr, "out of memory\n"), 1;
    memset(a, 0, bytes);
    const int most = (int)(POOL / bytes) < leaves ? (int)(POOL / bytes) : leaves;
    if (!is_right(sum, count, most)) return fprintf(stderr, "%zu bytes: other bits\n", bytes), 1;
    for (int turn = -1; turn < turns; turn++) {
        double times[2] = { 0, 0 };
        for (int way = 0; way < 2; way++) {
            const int is_sum = way ^ (turn & 1);
            coll_sum_restart(sum, 0);
            const double began = now_s();
            for (int i = 0; i < leaves; i++) {
                if (is_sum) coll_sum_add(sum, leaf(bytes));
                else loop(a, leaf(bytes), count);
            }
            times[is_sum] = now_s() - began;
        }
        if (turn >= 0) loop_s[turn] = times[0], sum_s[turn] = times[1], ratios[turn] = times[0] / times[1];
    }
    qsort(loop_s, (size_t)turns, sizeof *loop_s, is_less);
    qsort(sum_s, (size_t)turns, sizeof *sum_s, is_less);
    qsort(ratios, (size_t)turns, sizeof *ratios, is_less);
    printf("%8zu KiB   a += b %6.2f GB/s   coll_sum_add / a += b %.3f  (%.3f to %.3f), fastest %.3f\n", bytes >> 10,
           (double)all / loop_s[turns / 2] * 1e-9, ratios[turns / 2], ratios[turns / 4], ratios[turns * 3 / 4],
           loop_s[0] / sum_s[0]);
    coll_sum_free(sum);
    free(a);
    return 0;
}

int main(int argc, char **argv)
{
    const int leaves = argc > 1 ? atoi(argv[1]) : 24;
    int status = 0;

    pool = aligned_alloc(4096, POOL);
    if (!pool || leaves < 1) return fprintf(stderr, "usage: leaf_sum [LEAVES [KIB...]]\n"), 2;
    float *const all = (float *)(void *)pool;
    for (size_t i = 0; i < POOL / sizeof *all; i++) all[i] = (float)(i * 2654435761u % 4093) * 0.37f - 700;
    printf("%d leaves of f32\n", leaves);
    for (int i = 2; i < argc && !status; i++) status = measure((size_t)atoi(argv[i]) << 10, leaves);
    for (size_t bytes = 64 << 10; argc < 3 && !status && bytes <= 64 << 20; bytes *= 2) status = measure(bytes, leaves);
    free(pool);
    return status;
}
