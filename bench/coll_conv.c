/* coll_conv.c - how fast one core converts and adds halves and bytes, compared with the possible maximum.
 *
 *     cc -O2 -pthread bench/coll_conv.c -o coll_conv
 *     ./coll_conv [BYTES...]                                       16K 256K 64M unless said otherwise
 *
 * Each line is a kernel of the library beside memcpy, which moves as many bytes (half of them read, half written), and beside
 * a loop of its own that is as good as we could write it for avx2, and is compiled from plain text elsewhere.  The three take
 * turns; times are medians, and the ratios medians of the ratios within a turn: above 1 the library is faster.  Results are
 * compared bit for bit before anything is timed. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 31, SOURCES = 4 };                /* of long ones fewer: see measure */

typedef void kernel(void *to, const void *const *from, size_t count);

/* ---- >>library: as a program calls it, and as calls do ---- */

#define LIBRARY(name, to_type, from_type)                                                                             \
    static void name(void *to, const void *const *from, size_t count)                                                 \
    {                                                                                                                 \
        coll_convert(to, to_type, from[0], from_type, count);                                                         \
    }
LIBRARY(lib_f16_to_f32, COLL_F32, COLL_F16)
LIBRARY(lib_bf16_to_f32, COLL_F32, COLL_BF16)
LIBRARY(lib_f8e4m3_to_f32, COLL_F32, COLL_F8E4M3)
LIBRARY(lib_f8e5m2_to_f32, COLL_F32, COLL_F8E5M2)
LIBRARY(lib_f32_to_f16, COLL_F16, COLL_F32)
LIBRARY(lib_f32_to_bf16, COLL_BF16, COLL_F32)
LIBRARY(lib_f32_to_f8e4m3, COLL_F8E4M3, COLL_F32)
LIBRARY(lib_f32_to_f8e5m2, COLL_F8E5M2, COLL_F32)

static void combine(coll_type type, coll_op op, void *to, const void *const *from, int n, coll__format first, coll__format result,
                    size_t count)
{
    static _Alignas(64) unsigned char scratch[16 * COLL__BLOCK];
    const coll_call call = { .type = type, .op = op };
    coll__source sources[SOURCES];
    coll__codec codec;
    char why[100];

    coll__codec_reduce(&codec, &call, n, why, sizeof why);
    for (int k = 0; k < n; k++) sources[k] = (coll__source){ from[k], k ? COLL__AS_USER : first, k };
    coll__combine(&codec, &(coll__sum){ .sources = sources, .n = n, .results = &to, .m = 1, .format = result, .count = count,
                                        .scratch = scratch });
}

#define SUM(name, type, op, n, first, result)                                                                         \
    static void name(void *to, const void *const *from, size_t count)                                                 \
    {                                                                                                                 \
        combine(type, op, to, from, n, first, result, count);                                                         \
    }
SUM(lib_sum2_f16, COLL_F16, COLL_SUM, 2, COLL__AS_USER, COLL__AS_USER)
SUM(lib_sum2_bf16, COLL_BF16, COLL_SUM, 2, COLL__AS_USER, COLL__AS_USER)
SUM(lib_avg2_f16, COLL_F16, COLL_AVG, 2, COLL__AS_USER, COLL__AS_USER)
SUM(lib_sum4_f16, COLL_F16, COLL_SUM, 4, COLL__AS_USER, COLL__AS_USER)
SUM(lib_sum4_bf16, COLL_BF16, COLL_SUM, 4, COLL__AS_USER, COLL__AS_USER)
SUM(lib_onto_f16, COLL_F16, COLL_SUM, 2, COLL__AS_SUM, COLL__AS_SUM)

/* ---- >>rivals: one loop for one thing ---- */

/* One element at a time, for any machine and for the last few. */
#define PLAIN(name, TO, VALUE)                                                                                        \
    static void name##_plain(void *to, const void *const *from, size_t first, size_t count)                           \
    {                                                                                                                 \
        TO *const out = to;                                                                                           \
        const uint16_t *const h = from[0], *const h1 = from[1], *const h2 = from[2], *const h3 = from[3];             \
        const uint8_t *const b = from[0];                                                                             \
        const float *const f = from[0];                                                                               \
        (void)h, (void)h1, (void)h2, (void)h3, (void)b, (void)f;                                                      \
        for (size_t i = first; i < count; i++) out[i] = VALUE;                                                        \
    }
#define F16(x) coll_f16_to_f32(x)
#define BF16(x) coll_bf16_to_f32(x)
PLAIN(f16_to_f32, float, F16(h[i]))
PLAIN(bf16_to_f32, float, BF16(h[i]))
PLAIN(f8e4m3_to_f32, float, coll_f8e4m3_to_f32(b[i]))
PLAIN(f8e5m2_to_f32, float, coll_f8e5m2_to_f32(b[i]))
PLAIN(f32_to_f16, uint16_t, coll_f32_to_f16(f[i]))
PLAIN(f32_to_bf16, uint16_t, coll_f32_to_bf16(f[i]))
PLAIN(f32_to_f8e4m3, uint8_t, coll_f32_to_f8e4m3(f[i]))
PLAIN(f32_to_f8e5m2, uint8_t, coll_f32_to_f8e5m2(f[i]))
PLAIN(sum2_f16, uint16_t, coll_f32_to_f16(F16(h[i]) + F16(h1[i])))
PLAIN(sum2_bf16, uint16_t, coll_f32_to_bf16(BF16(h[i]) + BF16(h1[i])))
PLAIN(avg2_f16, uint16_t, coll_f32_to_f16((F16(h[i]) + F16(h1[i])) / 2))
PLAIN(sum4_f16, uint16_t, coll_f32_to_f16((F16(h[i]) + F16(h1[i])) + (F16(h2[i]) + F16(h3[i]))))
PLAIN(sum4_bf16, uint16_t, coll_f32_to_bf16((BF16(h[i]) + BF16(h1[i])) + (BF16(h2[i]) + BF16(h3[i]))))
PLAIN(onto_f16, float, coll__canon32(f[i] + F16(h1[i])))

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,f16c")))
#define RIVAL_INLINE static inline __attribute__((always_inline)) AVX2

RIVAL_INLINE __m256 canon(__m256 x)
{
    return _mm256_blendv_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

RIVAL_INLINE __m256 half(const void *const *from, int k, size_t i)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)((const uint16_t *)from[k] + i)));
}

RIVAL_INLINE __m256 bfloat(const void *const *from, int k, size_t i)
{
    const __m128i x = _mm_loadu_si128((const void *)((const uint16_t *)from[k] + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

RIVAL_INLINE __m256 single(const void *const *from, int k, size_t i) { return _mm256_loadu_ps((const float *)from[k] + i); }

/* By a table of all bytes. */
RIVAL_INLINE __m256 looked_up(const float *table, const void *const *from, size_t i)
{
    const __m256i at = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)((const uint8_t *)from[0] + i)));
    return _mm256_i32gather_ps(table, at, 4);
}

RIVAL_INLINE void put_half(void *to, size_t i, __m256 x)
{
    _mm_storeu_si128((void *)((uint16_t *)to + i), _mm256_cvtps_ph(canon(x), 0));
}

RIVAL_INLINE void put_single(void *to, size_t i, __m256 x) { _mm256_storeu_ps((float *)to + i, x); }

RIVAL_INLINE void put_bfloat(void *to, size_t i, __m256 x)
{
    const __m256i bits = _mm256_castps_si256(canon(x)), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff)), 16);
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    _mm_storeu_si128((void *)((uint16_t *)to + i), words);
}

/* Bytes by integers: the rounding of normal numbers by an addition, that of subnormal ones by the adder of floats. */
RIVAL_INLINE void put_byte(void *to, size_t i, __m256 x, int drop, int bias, float magic, int beyond, int nan)
{
    const __m256i bits = _mm256_castps_si256(x), magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, drop), _mm256_set1_epi32(1));
    const __m256i half_less = _mm256_set1_epi32((1 << (drop - 1)) - 1 - (int)((unsigned)bias << 23));
    const __m256i sum = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(magnitude, odd), half_less), drop);
    const __m256 raised = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(magic));
    const __m256i small = _mm256_sub_epi32(_mm256_castps_si256(raised), _mm256_castps_si256(_mm256_set1_ps(magic)));
    const __m256i is_normal = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((int)((unsigned)(bias + 1) << 23) - 1));
    __m256i byte = _mm256_blendv_epi8(small, _mm256_min_epu32(sum, _mm256_set1_epi32(beyond)), is_normal);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    if (beyond == nan) is_nan = _mm256_or_si256(is_nan, _mm256_cmpeq_epi32(byte, _mm256_set1_epi32(nan)));
    byte = _mm256_or_si256(byte, _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
    byte = _mm256_blendv_epi8(byte, _mm256_set1_epi32(nan), is_nan);
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(byte), _mm256_extracti128_si256(byte, 1));
    _mm_storel_epi64((void *)((uint8_t *)to + i), _mm_packus_epi16(words, words));
}

/* Four vectors a turn. */
#define RIVAL(name, PUT)                                                                                              \
    AVX2 static void rival_##name(void *to, const void *const *from, size_t count)                                    \
    {                                                                                                                 \
        size_t at = 0;                                                                                                \
        if (coll__tier() >= COLL__TIER_AVX2) {                                                                        \
            for (; at + 32 <= count; at += 32) {                                                                      \
                { const size_t i = at; PUT; }                                                                         \
                { const size_t i = at + 8; PUT; }                                                                     \
                { const size_t i = at + 16; PUT; }                                                                    \
                { const size_t i = at + 24; PUT; }                                                                    \
            }                                                                                                         \
        }                                                                                                             \
        name##_plain(to, from, at, count);                                                                            \
    }
#else
#define RIVAL(name, PUT)                                                                                              \
    static void rival_##name(void *to, const void *const *from, size_t count) { name##_plain(to, from, 0, count); }
#endif

static float all_f8e4m3[256], all_f8e5m2[256];

RIVAL(f16_to_f32, put_single(to, i, canon(half(from, 0, i))))
RIVAL(bf16_to_f32, put_single(to, i, canon(bfloat(from, 0, i))))
RIVAL(f8e4m3_to_f32, put_single(to, i, looked_up(all_f8e4m3, from, i)))
RIVAL(f8e5m2_to_f32, put_single(to, i, looked_up(all_f8e5m2, from, i)))
RIVAL(f32_to_f16, put_half(to, i, single(from, 0, i)))
RIVAL(f32_to_bf16, put_bfloat(to, i, single(from, 0, i)))
RIVAL(f32_to_f8e4m3, put_byte(to, i, single(from, 0, i), 20, 120, 0x1p14f, 0x7f, 0x7f))
RIVAL(f32_to_f8e5m2, put_byte(to, i, single(from, 0, i), 21, 112, 0x1p7f, 0x7c, 0x7e))
RIVAL(sum2_f16, put_half(to, i, _mm256_add_ps(half(from, 0, i), half(from, 1, i))))
RIVAL(sum2_bf16, put_bfloat(to, i, _mm256_add_ps(bfloat(from, 0, i), bfloat(from, 1, i))))
RIVAL(avg2_f16, put_half(to, i, _mm256_div_ps(_mm256_add_ps(half(from, 0, i), half(from, 1, i)), _mm256_set1_ps(2))))
RIVAL(sum4_f16, put_half(to, i, _mm256_add_ps(_mm256_add_ps(half(from, 0, i), half(from, 1, i)),
                                              _mm256_add_ps(half(from, 2, i), half(from, 3, i)))))
RIVAL(sum4_bf16, put_bfloat(to, i, _mm256_add_ps(_mm256_add_ps(bfloat(from, 0, i), bfloat(from, 1, i)),
                                                _mm256_add_ps(bfloat(from, 2, i), bfloat(from, 3, i)))))
RIVAL(onto_f16, put_single(to, i, canon(_mm256_add_ps(single(from, 0, i), half(from, 1, i)))))

/* ---- >>rows, and the run ---- */

static const struct row {
    const char *name;
    kernel *library, *rival;
    size_t from[SOURCES], to;                     /* bytes of an element                              */
    coll_type type;                               /* of the first source, for its values              */
} rows[] = {
#define ROW(name, type, to, ...) { #name, lib_##name, rival_##name, { __VA_ARGS__ }, to, type }
    ROW(f16_to_f32, COLL_F16, 4, 2),       ROW(bf16_to_f32, COLL_BF16, 4, 2),     ROW(f8e4m3_to_f32, COLL_F8E4M3, 4, 1),
    ROW(f8e5m2_to_f32, COLL_F8E5M2, 4, 1), ROW(f32_to_f16, COLL_F32, 2, 4),       ROW(f32_to_bf16, COLL_F32, 2, 4),
    ROW(f32_to_f8e4m3, COLL_F32, 1, 4),    ROW(f32_to_f8e5m2, COLL_F32, 1, 4),    ROW(sum2_f16, COLL_F16, 2, 2, 2),
    ROW(sum2_bf16, COLL_BF16, 2, 2, 2),    ROW(avg2_f16, COLL_F16, 2, 2, 2),      ROW(sum4_f16, COLL_F16, 2, 2, 2, 2, 2),
    ROW(sum4_bf16, COLL_BF16, 2, 2, 2, 2, 2), ROW(onto_f16, COLL_F32, 4, 4, 2),
};
enum { ROWS = sizeof rows / sizeof *rows };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int turns)
{
    qsort(values, (size_t)turns, sizeof *values, by_size);
    return values[turns / 2];
}

/* Any bits but those of NaN (of sums, of which the sign may differ before it is dropped, too), and few very large numbers. */
static void fill(void *at, coll_type type, size_t length, uint32_t seed)
{
    const size_t size = coll_type_size(type);
    unsigned char *const bytes = at;

    for (size_t i = 0; i < length / size; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float x = ((float)(int32_t)seed) * (seed & 0x4000 ? 0x1p-30f : 0x1p-34f);
        coll_convert(bytes + i * size, type, &x, COLL_F32, 1);
        if (type == COLL_F32) memcpy(bytes + i * size, &x, size);
    }
}

typedef struct work {
    const struct row *row;
    void *to, *other;
    const void *from[SOURCES];
    size_t count, copied;
} work;

/* Seconds of one run of the library (0), its rival (1) or memcpy (2), of `times` in a row. */
static double timed(const work *w, int which, int times)
{
    const double start = now();

    for (int k = 0; k < times; k++) {
        if (which == 0) w->row->library(w->to, w->from, w->count);
        if (which == 1) w->row->rival(w->to, w->from, w->count);
        if (which == 2) memcpy(w->to, w->other, w->copied);
        __asm__ volatile("" : : "r"(w->to) : "memory");
    }
    return (now() - start) / times;
}

/* One line; false if the results differ. */
static bool measure(const work *w, size_t bytes)
{
    static double times[3][TURNS], to_copy[TURNS], to_rival[TURNS];
    const size_t length = w->count * w->row->to;

    w->row->rival(w->other, w->from, w->count);
    memset(w->to, 0x5a, length);
    w->row->library(w->to, w->from, w->count);
    if (memcmp(w->to, w->other, length)) {
        printf("%-15s %10zu  wrong\n", w->row->name, bytes);
        return false;
    }
    const double once = timed(w, 0, 3);
    const int batch = once > 50e-6 ? 1 : (int)(50e-6 / once) + 1;
    const int turns = once > 5e-3 ? 9 : TURNS;
    for (int turn = 0; turn < turns; turn++) {
        for (int k = 0; k < 3; k++) {             /* each of them first in its turn */
            const int which = (k + turn) % 3;
            times[which][turn] = timed(w, which, batch) * 1e6;
        }
        to_rival[turn] = times[1][turn] / times[0][turn];
        to_copy[turn] = times[2][turn] / times[0][turn];
    }
    const double us = median(times[0], turns);
    printf("%-15s %10zu %10.2f %8.2f %8.2f %8.2f\n", w->row->name, bytes, us, (double)bytes * 1e-3 / us, median(to_copy, turns),
           median(to_rival, turns));
    fflush(stdout);
    return true;
}

static size_t size_of(const char *text)
{
    char *end;
    const size_t number = strtoull(text, &end, 0);
    return *end == 'K' ? number << 10 : *end == 'M' ? number << 20 : *end == 'G' ? number << 30 : number;
}

/* `bytes` are all that a run reads and writes. */
static bool run_row(const struct row *row, size_t bytes)
{
    size_t each = row->to;
    work w = { .row = row };
    bool is_right;

    for (int k = 0; k < SOURCES; k++) each += row->from[k];
    w.count = bytes / each;
    w.copied = w.count * each / 2;
    w.to = aligned_alloc(4096, (bytes + 8191) / 4096 * 4096);
    w.other = aligned_alloc(4096, (bytes + 8191) / 4096 * 4096);
    for (int k = 0; k < SOURCES; k++) {
        const size_t length = w.count * row->from[k];
        void *const from = aligned_alloc(4096, (length + 8191) / 4096 * 4096);
        fill(from, k && row->from[k] == 2 && row->type == COLL_F32 ? COLL_F16 : row->type, length, (uint32_t)k + 1);
        w.from[k] = from;
    }
    memset(w.to, 1, bytes);
    memset(w.other, 1, bytes);
    is_right = measure(&w, w.count * each);
    for (int k = 0; k < SOURCES; k++) free((void *)(uintptr_t)w.from[k]);
    free(w.to);
    free(w.other);
    return is_right;
}

int main(int argc, char **argv)
{
    static char *sizes[] = { NULL, "16K", "256K", "64M" };
    static const char *const tiers[] = { "base", "avx2", "avx512", "avx512bf16" };
    bool is_right = true;

    if (argc < 2) argc = 4, argv = sizes;
    for (int i = 0; i < 256; i++) {
        all_f8e4m3[i] = coll_f8e4m3_to_f32((uint8_t)i);
        all_f8e5m2[i] = coll_f8e5m2_to_f32((uint8_t)i);
    }
    printf("# tier %s; ratios above 1: the library is faster\n", tiers[coll__tier()]);
    printf("%-15s %10s %10s %8s %8s %8s\n", "# kernel", "bytes", "us", "GB/s", "to copy", "to rival");
    for (int s = 1; s < argc; s++) {
        for (int k = 0; k < ROWS; k++) is_right &= run_row(&rows[k], size_of(argv[s]));
    }
    return !is_right;
}
