/* reference.c - see reference.h.  To be compiled with all that the compiler and the processor have: -O3 -march=native. */
#define _GNU_SOURCE 1
#include "reference.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* A result is the memory of a source or apart from all of them: no element of a loop needs another. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* What is the same in every operation of a test is a constant in its function. */
#define INLINE static inline __attribute__((always_inline))

enum { RANKS_MOST = 64, LINE = 128, BLOCK = 1024, MAIL_BYTES = 64 << 10, NT_LEAST = 256 << 10 };

/* The flag shares its line with the first numbers, so that a short message is there in one miss. */
typedef struct box {
    _Alignas(LINE) int flag;
    int   unused[3];
    float data[MAIL_BYTES / sizeof(float) + RANKS_MOST + LINE / sizeof(float)];
} box;

/* How the share of a thread is written: with ordinary stores, or past the caches. */
typedef struct kernels {
    void (*copy)(float *to, const float *from, size_t n);
    void (*sum)(const float *const *sources, int n, float *const *results, int m, size_t count);
    void (*fence)(void);
} kernels;

/* Each in its own cache line: a rank reads its slot while its neighbor writes. */
typedef struct group_slot {
    _Alignas(LINE) reference *all;
    const bench_case *part;
    int rank;
} group_slot;

struct reference {
    int  n;
    bool is_crowded;
    struct { _Alignas(LINE) int value; } flags[RANKS_MOST];
    group_slot  group_slots[RANKS_MOST];
    float *in[RANKS_MOST], *out[RANKS_MOST];
    box   *boxes[RANKS_MOST][2];
};

/* ---- >>waiting ---- */

static void wait_a_little(const reference *all)
{
    if (all->is_crowded) {
        sched_yield();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A cache line for each thread, which only this thread writes: no atomic read-modify-write. */
static void meet(reference *all, int rank)
{
    const int turn = all->flags[rank].value + 1;

    __atomic_store_n(&all->flags[rank].value, turn, __ATOMIC_RELEASE);
    for (int r = 0; r < all->n; r++)
        while (__atomic_load_n(&all->flags[r].value, __ATOMIC_ACQUIRE) - turn < 0) wait_a_little(all);
}

/* ---- >>kernels: several sources into several results ---- */

static void add(const float *a, const float *b, float *x, size_t n)
{
    INDEPENDENT
    for (size_t i = 0; i < n; i++) x[i] = a[i] + b[i];
}

static void add_into_2(const float *a, const float *b, float *x, float *y, size_t n)
{
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        const float sum = a[i] + b[i];
        x[i] = sum;
        y[i] = sum;
    }
}

static void add_4(const float *const *s, float *x, size_t n)
{
    const float *const a = s[0], *const b = s[1], *const c = s[2], *const d = s[3];

    INDEPENDENT
    for (size_t i = 0; i < n; i++) x[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

static void add_4_into_4(const float *const *s, float *const *to, size_t n)
{
    const float *const a = s[0], *const b = s[1], *const c = s[2], *const d = s[3];
    float *const x = to[0], *const y = to[1], *const z = to[2], *const w = to[3];

    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        const float sum = (a[i] + b[i]) + (c[i] + d[i]);
        x[i] = sum;
        y[i] = sum;
        z[i] = sum;
        w[i] = sum;
    }
}

static void copy_plain(float *to, const float *from, size_t n)
{
    if (to != from && n) memcpy(to, from, n * sizeof *to);
}

/* A block of the sum of all sources, in the first-level cache. */
static void sum_block(const float *const *sources, int n, size_t from, float *sum, size_t count)
{
    if (n == 1) memcpy(sum, sources[0] + from, count * sizeof *sum);
    else add(sources[0] + from, sources[1] + from, sum, count);
    for (int r = 2; r < n; r++) add(sum, sources[r] + from, sum, count);
}

/* Apart, for its frame costs short sums time. */
static __attribute__((noinline)) void sum_by_blocks(const float *const *sources, int n, float *const *results, int m,
                                                    size_t count)
{
    _Alignas(64) float block[BLOCK];

    for (size_t from = 0; from < count; from += BLOCK) {
        const size_t length = count - from < BLOCK ? count - from : BLOCK;
        sum_block(sources, n, from, block, length);
        for (int r = 0; r < m; r++) memcpy(results[r] + from, block, length * sizeof *block);
    }
}

static void sum_plain(const float *const *sources, int n, float *const *results, int m, size_t count)
{
    if (n == 2 && m == 1) add(sources[0], sources[1], results[0], count);
    else if (n == 2 && m == 2) add_into_2(sources[0], sources[1], results[0], results[1], count);
    else if (n == 4 && m == 1) add_4(sources, results[0], count);
    else if (n == 4 && m == 4) add_4_into_4(sources, results, count);
    else sum_by_blocks(sources, n, results, m, count);
}

static void fence_plain(void) { }

static const kernels plain = { copy_plain, sum_plain, fence_plain };

#if defined(__SSE2__)
#if defined(__AVX512F__)
enum { WIDE = 16 };
typedef __m512 wide;
static wide wide_load(const float *at) { return _mm512_loadu_ps(at); }
static wide wide_add(wide a, wide b) { return _mm512_add_ps(a, b); }
static void wide_stream(float *at, wide v) { _mm512_stream_ps(at, v); }
#elif defined(__AVX__)
enum { WIDE = 8 };
typedef __m256 wide;
static wide wide_load(const float *at) { return _mm256_loadu_ps(at); }
static wide wide_add(wide a, wide b) { return _mm256_add_ps(a, b); }
static void wide_stream(float *at, wide v) { _mm256_stream_ps(at, v); }
#else
enum { WIDE = 4 };
typedef __m128 wide;
static wide wide_load(const float *at) { return _mm_loadu_ps(at); }
static wide wide_add(wide a, wide b) { return _mm_add_ps(a, b); }
static void wide_stream(float *at, wide v) { _mm_stream_ps(at, v); }
#endif

static bool is_aligned(const float *at) { return (uintptr_t)at % (WIDE * sizeof *at) == 0; }

static void copy_nt(float *to, const float *from, size_t n)
{
    size_t i = 0;

    if (to == from) return;
    for (; i < n && !is_aligned(to + i); i++) to[i] = from[i];
    for (; i + WIDE <= n; i += WIDE) wide_stream(to + i, wide_load(from + i));
    for (; i < n; i++) to[i] = from[i];
}

/* Two or four sources as one expression; more of them through a block.  All results have the same alignment. */
static void sum_nt(const float *const *sources, int n, float *const *results, int m, size_t count)
{
    _Alignas(64) float block[BLOCK];
    size_t i = 0;

    if (n == 2 || n == 4) {
        const float *const a = sources[0], *const b = sources[1], *const c = sources[n - 2], *const d = sources[n - 1];
        for (; i < count && !is_aligned(results[0] + i); i++)
            for (int r = 0; r < m; r++) results[r][i] = n == 2 ? a[i] + b[i] : (a[i] + b[i]) + (c[i] + d[i]);
        for (; i + WIDE <= count; i += WIDE) {
            wide sum = wide_add(wide_load(a + i), wide_load(b + i));
            if (n == 4) sum = wide_add(sum, wide_add(wide_load(c + i), wide_load(d + i)));
            for (int r = 0; r < m; r++) wide_stream(results[r] + i, sum);
        }
    }
    for (; i < count; i += BLOCK) {
        const size_t length = count - i < BLOCK ? count - i : BLOCK;
        sum_block(sources, n, i, block, length);
        for (int r = 0; r < m; r++) copy_nt(results[r] + i, block, length);
    }
}

static void fence_nt(void) { _mm_sfence(); }

static const kernels past_caches = { copy_nt, sum_nt, fence_nt };
#endif

/* ---- >>shares: the work of each thread between the two barriers ---- */

/* This thread's part of the buffer, in whole cache lines. */
static size_t share(const group_slot *me, size_t *from)
{
    const size_t n = (size_t)me->all->n, count = me->part->count, unit = 16;
    const size_t each = ((count + n - 1) / n + unit - 1) / unit * unit;
    const size_t first = each * (size_t)me->rank < count ? each * (size_t)me->rank : count;

    *from = first;
    return count - first < each ? count - first : each;
}

/* The sum of `count` elements of all `sources` from element `from` on, to element `to` on of m results. */
INLINE void sum_of_all(const group_slot *me, const kernels *how, float *const *in, size_t from, float *const *out, int m,
                       size_t to, size_t count)
{
    const float *sources[RANKS_MOST];
    float *results[RANKS_MOST];

    for (int r = 0; r < me->all->n; r++) sources[r] = in[r] + from;
    for (int r = 0; r < m; r++) results[r] = out[r] + to;
    how->sum(sources, me->all->n, results, m, count);
}

static void share_of_scan(const group_slot *me, const kernels *how, size_t from, size_t count)
{
    reference *const all = me->all;

    for (size_t at = from; at < from + count; at += BLOCK) {
        const size_t length = from + count - at < BLOCK ? from + count - at : BLOCK;
        how->copy(all->out[0] + at, all->in[0] + at, length);
        for (int r = 1; r < all->n; r++) add(all->out[r - 1] + at, all->in[r] + at, all->out[r] + at, length);
    }
}

INLINE void share_of(const group_slot *me, const kernels *how, bench_collective collective, int root)
{
    reference *const all = me->all;
    const int n = all->n, rank = me->rank;
    const size_t block = me->part->block, mine = (size_t)rank * block;
    size_t from;
    const size_t count = share(me, &from);

    switch (collective) {
    case BENCH_ALLREDUCE:          sum_of_all(me, how, all->in, from, all->out, n, from, count); break;
    case BENCH_ALLREDUCE_IN_PLACE: sum_of_all(me, how, all->out, from, all->out, n, from, count); break;
    case BENCH_REDUCE:             sum_of_all(me, how, all->in, from, &all->out[root], 1, from, count); break;
    case BENCH_REDUCE_SCATTER:     sum_of_all(me, how, all->in, mine, &all->out[rank], 1, 0, block); break;
    case BENCH_SCAN:               share_of_scan(me, how, from, count); break;
    case BENCH_GATHER:             how->copy(all->out[root] + mine, all->in[rank], block); break;
    case BENCH_SCATTER:            how->copy(all->out[rank], all->in[root] + mine, block); break;
    case BENCH_BROADCAST:
        for (int r = 0; r < n; r++) if (r != root) how->copy(all->out[r] + from, all->out[root] + from, count);
        break;
    case BENCH_ALLGATHER: case BENCH_ALLTOALL:
        for (int k = 0; k < n; k++) {
            const int r = (rank + k) % n;
            const size_t where = collective == BENCH_ALLTOALL ? mine : 0;
            how->copy(all->out[rank] + (size_t)r * block, all->in[r] + where, block);
        }
        break;
    default: break;
    }
}

INLINE int root_of(const group_slot *me, bench_collective collective, long i)
{
    return bench_rows[collective].is_rooted ? (int)(i % me->all->n) : 0;
}

INLINE void in_shares(void *context, long i, bench_collective collective, const kernels *how)
{
    const group_slot *const me = context;

    meet(me->all, me->rank);
    share_of(me, how, collective, root_of(me, collective, i));
    how->fence();
    meet(me->all, me->rank);
}

static void op_barrier(void *context, long i)
{
    const group_slot *const me = context;

    (void)i;
    meet(me->all, me->rank);
}

/* ---- >>mail ---- */

/* What a rank has to give in operation i: its input, or nothing. */
INLINE size_t posted(const bench_case *part, bench_collective collective, int root, const float **what)
{
    const bool is_root = part->rank == root;

    *what = part->in;
    switch (collective) {
    case BENCH_ALLREDUCE_IN_PLACE: *what = part->out; return part->count;
    case BENCH_BROADCAST:          *what = part->out; return is_root ? part->count : 0;
    case BENCH_SCATTER:            return is_root ? part->count : 0;
    case BENCH_GATHER:             return is_root ? 0 : part->block;
    case BENCH_ALLGATHER:          return part->block;
    default:                       return part->count;
    }
}

INLINE void take(const group_slot *me, bench_collective collective, int root, float **boxes)
{
    const bench_case *const part = me->part;
    const int n = me->all->n, rank = me->rank;
    const size_t block = part->block, mine = (size_t)rank * block;
    const bool is_root = rank == root;
    float *out = part->out;

    switch (collective) {
    case BENCH_ALLREDUCE: case BENCH_ALLREDUCE_IN_PLACE: sum_of_all(me, &plain, boxes, 0, &out, 1, 0, part->count); break;
    case BENCH_REDUCE: if (is_root) sum_of_all(me, &plain, boxes, 0, &out, 1, 0, part->count); break;
    case BENCH_REDUCE_SCATTER: sum_of_all(me, &plain, boxes, mine, &out, 1, 0, block); break;
    case BENCH_BROADCAST: if (!is_root) copy_plain(out, boxes[root], part->count); break;
    case BENCH_SCATTER: copy_plain(out, is_root ? part->in + mine : boxes[root] + mine, block); break;
    case BENCH_GATHER:
        for (int r = 0; is_root && r < n; r++) copy_plain(out + (size_t)r * block, r == rank ? part->in : boxes[r], block);
        break;
    case BENCH_ALLGATHER:
        for (int r = 0; r < n; r++) copy_plain(out + (size_t)r * block, boxes[r], block);
        break;
    case BENCH_ALLTOALL:
        for (int r = 0; r < n; r++) copy_plain(out + (size_t)r * block, boxes[r] + mine, block);
        break;
    case BENCH_SCAN:
        copy_plain(out, boxes[0], part->count);
        for (int r = 1; r <= rank; r++) add(out, boxes[r], out, part->count);
        break;
    default: break;
    }
}

/* Two boxes in turns.  When a rank ends operation i + 1, all ranks have posted it, and so have finished reading operation i; its
 * box is free for operation i + 2. */
INLINE void by_mail(void *context, long i, bench_collective collective)
{
    const group_slot *const me = context;
    reference *const all = me->all;
    const int n = all->n, root = root_of(me, collective, i), turn = (int)i + 1, side = (int)(i % 2);
    box *const own = all->boxes[me->rank][side];
    float *boxes[RANKS_MOST];
    const float *what;
    const size_t count = posted(me->part, collective, root, &what);

    copy_plain(own->data, what, count);
    __atomic_store_n(&own->flag, turn, __ATOMIC_RELEASE);
    for (int r = 0; r < n; r++) {
        while (__atomic_load_n(&all->boxes[r][side]->flag, __ATOMIC_ACQUIRE) != turn) wait_a_little(all);
        boxes[r] = all->boxes[r][side]->data;
    }
    take(me, collective, root, boxes);
}

/* ---- >>public functions ---- */

#if defined(__SSE2__)
#define OPS(name, collective)                                                                       \
    static void plain_##name(void *context, long i) { in_shares(context, i, collective, &plain); }  \
    static void nt_##name(void *context, long i) { in_shares(context, i, collective, &past_caches); } \
    static void mail_##name(void *context, long i) { by_mail(context, i, collective); }
#define ROW(name) { plain_##name, nt_##name, mail_##name }
#else
#define OPS(name, collective)                                                                       \
    static void plain_##name(void *context, long i) { in_shares(context, i, collective, &plain); }  \
    static void mail_##name(void *context, long i) { by_mail(context, i, collective); }
#define ROW(name) { plain_##name, NULL, mail_##name }
#endif

OPS(allreduce, BENCH_ALLREDUCE)
OPS(in_place, BENCH_ALLREDUCE_IN_PLACE)
OPS(broadcast, BENCH_BROADCAST)
OPS(reduce, BENCH_REDUCE)
OPS(allgather, BENCH_ALLGATHER)
OPS(reduce_scatter, BENCH_REDUCE_SCATTER)
OPS(alltoall, BENCH_ALLTOALL)
OPS(gather, BENCH_GATHER)
OPS(scatter, BENCH_SCATTER)
OPS(scan, BENCH_SCAN)

void (*reference_op(reference_variant variant, bench_collective collective, size_t bytes))(void *context, long i)
{
    static void (*const ops[BENCH_COLLECTIVES][REFERENCE_VARIANTS])(void *, long) = {
        [BENCH_ALLREDUCE] = ROW(allreduce), [BENCH_ALLREDUCE_IN_PLACE] = ROW(in_place), [BENCH_BROADCAST] = ROW(broadcast),
        [BENCH_REDUCE] = ROW(reduce), [BENCH_ALLGATHER] = ROW(allgather), [BENCH_REDUCE_SCATTER] = ROW(reduce_scatter),
        [BENCH_ALLTOALL] = ROW(alltoall), [BENCH_GATHER] = ROW(gather), [BENCH_SCATTER] = ROW(scatter), [BENCH_SCAN] = ROW(scan),
        [BENCH_BARRIER] = { op_barrier, NULL, NULL },
    };
    const bool is_apt = variant == REFERENCE_MAIL ? bytes <= MAIL_BYTES : variant != REFERENCE_NT || bytes >= NT_LEAST;

    return is_apt ? ops[collective][variant] : NULL;
}

void *reference_context(reference *all, int rank) { return &all->group_slots[rank]; }

void reference_enter(reference *all, const bench_case *part)
{
    const int r = part->rank;

    all->group_slots[r] = (group_slot){ .all = all, .part = part, .rank = r };
    all->in[r] = part->in;
    all->out[r] = part->out;
    for (int side = 0; side < 2; side++) all->boxes[r][side]->flag = 0;
}

reference *reference_open(int ranks, bool is_crowded)
{
    reference *const all = aligned_alloc(LINE, sizeof *all);

    if (!all || ranks > RANKS_MOST) abort();
    memset(all, 0, sizeof *all);
    all->n = ranks;
    all->is_crowded = is_crowded;
    for (int r = 0; r < ranks; r++)
        for (int side = 0; side < 2; side++) {
            box *const it = aligned_alloc(LINE, sizeof *it);
            if (!it) abort();
            all->boxes[r][side] = memset(it, 0, sizeof *it);
        }
    return all;
}

void reference_free(reference *all)
{
    for (int r = 0; r < all->n; r++) for (int side = 0; side < 2; side++) free(all->boxes[r][side]);
    free(all);
}
