/* coll_simd.h - sixteen elements at a time, on machines with instructions for halves: from types of 8, 16 or 32 bits to a
 * group of sixteen floats, and back with one rounding.  A tier's `get` and `put` are the basis of conversions and of sums of
 * halves; rules and bits are those of coll_types.h.
 *
 * A loaded group may contain any NaN; `put` makes it canonical, `keep` does not. */
#ifndef COLL_SIMD_H
#define COLL_SIMD_H

#include "coll_types.h"

#if COLL__HAS_TIERS
#include <immintrin.h>

/* Without optimization gcc's intrinsics are macros with masks of -1. */
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

#define COLL__INLINE_avx2 COLL__INLINE COLL__TARGET_avx2
#define COLL__INLINE_avx512 COLL__INLINE COLL__TARGET_avx512

/* ---- >>bytes: 8-bit floats through halves, for both tiers ---- */

/* f8e5m2 is the upper half of an f16. */
COLL__INLINE_avx2 __m256i coll__halves_of_f8e5m2(const void *from)
{
    return _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(from)), 8);
}

/* With its exponent shifted to that of an f16, an f8e4m3 is multiplied by 2^-8, subnormals too.  Its NaN, all ones, would
 * become a number. */
COLL__INLINE_avx2 __m256i coll__halves_of_f8e4m3(const void *from)
{
    const __m256i upper = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(from)), 8);
    const __m256i number = _mm256_andnot_si256(_mm256_set1_epi16(0x4000), _mm256_srai_epi16(upper, 1));
    const __m256i magnitude = _mm256_and_si256(number, _mm256_set1_epi16(0x7fff));
    return _mm256_or_si256(number, _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3f80)));
}

COLL__INLINE_avx2 void coll__put_bytes(void *to, __m256i words)
{
    const __m128i upper = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128(to, _mm_packus_epi16(_mm256_castsi256_si128(words), upper));
}

/* These take truncated halves, with the last bit set if anything was lost.  Such a number is never in the middle between two
 * bytes, so there is only one rounding. */
COLL__INLINE_avx2 void coll__put_halves_f8e5m2(void *to, __m256i half)
{
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(half, 8), _mm256_set1_epi16(1));
    const __m256i byte = _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(half, _mm256_set1_epi16(0x7f)), odd), 8);
    const __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff));
    const __m256i is_nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00));
    coll__put_bytes(to, _mm256_blendv_epi8(byte, _mm256_set1_epi16((short)COLL__NAN_F8E5M2), is_nan));
}

/* Takes 2^-8 of the number.  Too large numbers and NaNs become NaN. */
COLL__INLINE_avx2 void coll__put_halves_f8e4m3(void *to, __m256i half)
{
    const __m256i nan = _mm256_set1_epi16((short)COLL__NAN_F8E4M3);
    const __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(half, 7), _mm256_set1_epi16(1));
    const __m256i sum = _mm256_add_epi16(_mm256_add_epi16(magnitude, _mm256_set1_epi16(0x3f)), odd);
    const __m256i byte = _mm256_min_epu16(_mm256_srli_epi16(sum, 7), nan);
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi16(half, 8), _mm256_set1_epi16(0x80));
    coll__put_bytes(to, _mm256_or_si256(byte, _mm256_andnot_si256(_mm256_cmpeq_epi16(byte, nan), sign)));
}

/* ---- >>avx2: two vectors of eight ---- */

typedef struct coll__group_avx2 { __m256 lower, upper; } coll__group_avx2;

#define COLL__BESIDE(at, bytes) ((void *)((unsigned char *)(at) + (bytes)))
#define COLL__BEHIND(at, bytes) ((const void *)((const unsigned char *)(at) + (bytes)))

COLL__INLINE_avx2 coll__group_avx2 coll__get_f32_avx2(const void *from)
{
    return (coll__group_avx2){ _mm256_loadu_ps(from), _mm256_loadu_ps(COLL__BEHIND(from, 32)) };
}

COLL__INLINE_avx2 __m256 coll__eight_of_bf16(const void *from)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), 16));
}

COLL__INLINE_avx2 coll__group_avx2 coll__get_bf16_avx2(const void *from)
{
    return (coll__group_avx2){ coll__eight_of_bf16(from), coll__eight_of_bf16(COLL__BEHIND(from, 16)) };
}

COLL__INLINE_avx2 coll__group_avx2 coll__get_f16_avx2(const void *from)
{
    return (coll__group_avx2){ _mm256_cvtph_ps(_mm_loadu_si128(from)),
                               _mm256_cvtph_ps(_mm_loadu_si128(COLL__BEHIND(from, 16))) };
}

COLL__INLINE_avx2 coll__group_avx2 coll__widen_avx2(__m256i half)
{
    return (coll__group_avx2){ _mm256_cvtph_ps(_mm256_castsi256_si128(half)),
                               _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)) };
}

COLL__INLINE_avx2 coll__group_avx2 coll__times_avx2(coll__group_avx2 x, float factor)
{
    const __m256 by = _mm256_set1_ps(factor);
    return (coll__group_avx2){ _mm256_mul_ps(x.lower, by), _mm256_mul_ps(x.upper, by) };
}

COLL__INLINE_avx2 coll__group_avx2 coll__plus_avx2(coll__group_avx2 x, coll__group_avx2 y)
{
    return (coll__group_avx2){ _mm256_add_ps(x.lower, y.lower), _mm256_add_ps(x.upper, y.upper) };
}

COLL__INLINE_avx2 __m256 coll__eight_canon(__m256 x)
{
    return _mm256_blendv_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32((int)COLL__NAN_F32)), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* Groups with a NaN are rare; one comparison finds it in either half. */
COLL__INLINE_avx2 coll__group_avx2 coll__canon_avx2(coll__group_avx2 x)
{
    if (__builtin_expect(!_mm256_movemask_ps(_mm256_cmp_ps(x.lower, x.upper, _CMP_UNORD_Q)), 1)) return x;
    return (coll__group_avx2){ coll__eight_canon(x.lower), coll__eight_canon(x.upper) };
}

COLL__INLINE_avx2 void coll__keep_f32_avx2(void *to, coll__group_avx2 x)
{
    _mm256_storeu_ps(to, x.lower);
    _mm256_storeu_ps(COLL__BESIDE(to, 32), x.upper);
}

COLL__INLINE_avx2 void coll__put_f16_avx2(void *to, coll__group_avx2 x)
{
    const coll__group_avx2 y = coll__canon_avx2(x);
    _mm_storeu_si128(to, _mm256_cvtps_ph(y.lower, 0));
    _mm_storeu_si128(COLL__BESIDE(to, 16), _mm256_cvtps_ph(y.upper, 0));
}

/* Rounding does not change the canonical NaN. */
COLL__INLINE_avx2 __m256i coll__eight_to_bf16(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
}

COLL__INLINE_avx2 void coll__put_bf16_avx2(void *to, coll__group_avx2 x)
{
    const coll__group_avx2 y = coll__canon_avx2(x);
    const __m256i words = _mm256_packus_epi32(coll__eight_to_bf16(y.lower), coll__eight_to_bf16(y.upper));
    _mm256_storeu_si256(to, _mm256_permute4x64_epi64(words, 0xd8));
}

/* Truncated halves, odd if anything was lost. */
COLL__INLINE_avx2 __m256i coll__cut_avx2(coll__group_avx2 x)
{
    const __m128i halves[2] = { _mm256_cvtps_ph(x.lower, _MM_FROUND_TO_ZERO), _mm256_cvtps_ph(x.upper, _MM_FROUND_TO_ZERO) };
    const __m256i half = _mm256_inserti128_si256(_mm256_castsi128_si256(halves[0]), halves[1], 1);
    const coll__group_avx2 back = { _mm256_cvtph_ps(halves[0]), _mm256_cvtph_ps(halves[1]) };
    const __m256i lower = _mm256_castps_si256(_mm256_cmp_ps(back.lower, x.lower, _CMP_NEQ_UQ));
    const __m256i upper = _mm256_castps_si256(_mm256_cmp_ps(back.upper, x.upper, _CMP_NEQ_UQ));
    const __m256i is_less = _mm256_permute4x64_epi64(_mm256_packs_epi32(lower, upper), 0xd8);
    return _mm256_or_si256(half, _mm256_srli_epi16(is_less, 15));
}

/* ---- >>avx512: one vector ---- */

typedef __m512 coll__group_avx512;

COLL__INLINE_avx512 coll__group_avx512 coll__get_f32_avx512(const void *from) { return _mm512_loadu_ps(from); }

COLL__INLINE_avx512 coll__group_avx512 coll__get_bf16_avx512(const void *from)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), 16));
}

COLL__INLINE_avx512 coll__group_avx512 coll__get_f16_avx512(const void *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(from));
}

COLL__INLINE_avx512 coll__group_avx512 coll__widen_avx512(__m256i half) { return _mm512_cvtph_ps(half); }

COLL__INLINE_avx512 coll__group_avx512 coll__times_avx512(coll__group_avx512 x, float factor)
{
    return _mm512_mul_ps(x, _mm512_set1_ps(factor));
}

COLL__INLINE_avx512 coll__group_avx512 coll__plus_avx512(coll__group_avx512 x, coll__group_avx512 y)
{
    return _mm512_add_ps(x, y);
}

COLL__INLINE_avx512 coll__group_avx512 coll__canon_avx512(coll__group_avx512 x)
{
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)COLL__NAN_F32));
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
}

COLL__INLINE_avx512 void coll__keep_f32_avx512(void *to, coll__group_avx512 x) { _mm512_storeu_ps(to, x); }

COLL__INLINE_avx512 void coll__put_f16_avx512(void *to, coll__group_avx512 x)
{
    _mm256_storeu_si256(to, _mm512_cvtps_ph(coll__canon_avx512(x), 0));
}

COLL__INLINE_avx512 void coll__put_bf16_avx512(void *to, coll__group_avx512 x)
{
    const __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i number = _mm512_mask_mov_epi32(sum, is_nan, _mm512_set1_epi32((int)COLL__NAN_F32));
    _mm256_storeu_si256(to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(number, 16)));
}

COLL__INLINE_avx512 __m256i coll__cut_avx512(coll__group_avx512 x)
{
    const __m256i half = _mm512_cvtps_ph(x, _MM_FROUND_TO_ZERO);
    const __mmask16 is_less = _mm512_cmp_ps_mask(_mm512_cvtph_ps(half), x, _CMP_NEQ_UQ);
    return _mm256_or_si256(half, _mm256_maskz_set1_epi16(is_less, 1));
}

/* The instruction flushes subnormals and keeps the payloads of NaNs, so the few groups that have one use the other path (0x81:
 * NaNs, 0x20: subnormals).  In assembly, because compilers disagree about its type. */
#if COLL__HAS_AVX512BF16
COLL__INLINE_avx512 void coll__put_bf16_avx512bf16(void *to, coll__group_avx512 x)
{
    __m256i half;

    if (__builtin_expect(_mm512_fpclass_ps_mask(x, 0xa1) != 0, 0)) {
        coll__put_bf16_avx512(to, x);
        return;
    }
    __asm__("vcvtneps2bf16 {%1, %0|%0, %1}" : "=v"(half) : "v"(x));
    _mm256_storeu_si256(to, half);
}
#endif

/* ---- >>group: common to both tiers of x86-64 ---- */

#define COLL__GROUP_IN(tier, unused)                                                                                  \
    COLL__INLINE_##tier coll__group_##tier coll__get_f8e5m2_##tier(const void *from)                                  \
    {                                                                                                                 \
        return coll__widen_##tier(coll__halves_of_f8e5m2(from));                                                      \
    }                                                                                                                 \
    COLL__INLINE_##tier coll__group_##tier coll__get_f8e4m3_##tier(const void *from)                                  \
    {                                                                                                                 \
        return coll__times_##tier(coll__widen_##tier(coll__halves_of_f8e4m3(from)), 0x1p8f);                          \
    }                                                                                                                 \
    COLL__INLINE_##tier void coll__put_f8e5m2_##tier(void *to, coll__group_##tier x)                                  \
    {                                                                                                                 \
        coll__put_halves_f8e5m2(to, coll__cut_##tier(x));                                                             \
    }                                                                                                                 \
    COLL__INLINE_##tier void coll__put_f8e4m3_##tier(void *to, coll__group_##tier x)                                  \
    {                                                                                                                 \
        coll__put_halves_f8e4m3(to, coll__cut_##tier(coll__times_##tier(x, 0x1p-8f)));                                \
    }                                                                                                                 \
    COLL__INLINE_##tier void coll__put_f32_##tier(void *to, coll__group_##tier x)                                     \
    {                                                                                                                 \
        coll__keep_f32_##tier(to, coll__canon_##tier(x));                                                             \
    }
COLL__EACH_VECTOR(COLL__GROUP_IN, )

COLL__INLINE_avx2 coll__group_avx2 coll__through_avx2(coll__group_avx2 x)
{
    const coll__group_avx2 y = coll__canon_avx2(x);
    return (coll__group_avx2){ _mm256_cvtph_ps(_mm256_cvtps_ph(y.lower, 0)), _mm256_cvtph_ps(_mm256_cvtps_ph(y.upper, 0)) };
}

COLL__INLINE_avx512 coll__group_avx512 coll__through_avx512(coll__group_avx512 x)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(coll__canon_avx512(x), 0));
}
#endif

/* ---- >>neon: four vectors of four, in the base tier of aarch64 ---- */

#if defined(__aarch64__)
/* There are no groups of bytes, because truncating conversions, as used above, do not exist here. */

typedef float    coll__four      __attribute__((vector_size(16)));
typedef uint32_t coll__four_bits __attribute__((vector_size(16)));
typedef uint16_t coll__four_half __attribute__((vector_size(8)));

typedef struct coll__group_base { coll__four a, b, c, d; } coll__group_base;

#define COLL__INLINE_base COLL__INLINE
#define COLL__FOURS(from, get, bytes) (coll__group_base){                                                              \
    get(from), get((from) + (bytes)), get((from) + 2 * (bytes)), get((from) + 3 * (bytes)) }

COLL__INLINE coll__four_half coll__half_get(const unsigned char *from)
{
    coll__four_half half;
    memcpy(&half, from, sizeof half);
    return half;
}

COLL__INLINE coll__four coll__four_get(const unsigned char *from)
{
    coll__four x;
    memcpy(&x, from, sizeof x);
    return x;
}

COLL__INLINE coll__four coll__four_widen(coll__four_half half)
{
    coll__four x;
    __asm__("fcvtl %0.4s, %1.4h" : "=w"(x) : "w"(half));
    return x;
}

COLL__INLINE coll__four coll__four_of_f16(const unsigned char *from) { return coll__four_widen(coll__half_get(from)); }

COLL__INLINE coll__four coll__four_of_bf16(const unsigned char *from)
{
    coll__four x;
    __asm__("shll %0.4s, %1.4h, #16" : "=w"(x) : "w"(coll__half_get(from)));
    return x;
}

COLL__INLINE coll__four coll__four_choose(coll__four_bits is_number, coll__four_bits x)
{
    return (coll__four)((x & is_number) | (~is_number & COLL__NAN_F32));
}

COLL__INLINE coll__four coll__four_canon(coll__four x)
{
    return coll__four_choose((coll__four_bits)(x == x), (coll__four_bits)x);
}

COLL__INLINE coll__four_half coll__four_to_f16(coll__four x)
{
    coll__four_half half;
    __asm__("fcvtn %0.4h, %1.4s" : "=w"(half) : "w"(coll__four_canon(x)));
    return half;
}

COLL__INLINE coll__four coll__four_through(coll__four x) { return coll__four_widen(coll__four_to_f16(x)); }

COLL__INLINE coll__four_half coll__four_to_bf16(coll__four x)
{
    const coll__four_bits bits = (coll__four_bits)x, sum = bits + 0x7fffu + ((bits >> 16) & 1u);
    coll__four_half half;
    __asm__("shrn %0.4h, %1.4s, #16" : "=w"(half) : "w"(coll__four_choose((coll__four_bits)(x == x), sum)));
    return half;
}

COLL__INLINE coll__group_base coll__get_f32_base(const unsigned char *from) { return COLL__FOURS(from, coll__four_get, 16); }
COLL__INLINE coll__group_base coll__get_f16_base(const unsigned char *from) { return COLL__FOURS(from, coll__four_of_f16, 8); }
COLL__INLINE coll__group_base coll__get_bf16_base(const unsigned char *from) { return COLL__FOURS(from, coll__four_of_bf16, 8); }

COLL__INLINE coll__group_base coll__plus_base(coll__group_base x, coll__group_base y)
{
    return (coll__group_base){ x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d };
}

COLL__INLINE coll__group_base coll__through_base(coll__group_base x)
{
    return (coll__group_base){ coll__four_through(x.a), coll__four_through(x.b), coll__four_through(x.c),
                               coll__four_through(x.d) };
}

COLL__INLINE void coll__keep_f32_base(unsigned char *to, coll__group_base x)
{
    memcpy(to, &x.a, 16);
    memcpy(to + 16, &x.b, 16);
    memcpy(to + 32, &x.c, 16);
    memcpy(to + 48, &x.d, 16);
}

COLL__INLINE void coll__put_f32_base(unsigned char *to, coll__group_base x)
{
    coll__keep_f32_base(to, (coll__group_base){ coll__four_canon(x.a), coll__four_canon(x.b), coll__four_canon(x.c),
                                                coll__four_canon(x.d) });
}

#define COLL__PUT_HALVES(name, narrow)                                                                                \
    COLL__INLINE void name(unsigned char *to, coll__group_base x)                                                     \
    {                                                                                                                 \
        const coll__four_half a = narrow(x.a), b = narrow(x.b), c = narrow(x.c), d = narrow(x.d);                     \
        memcpy(to, &a, 8);                                                                                            \
        memcpy(to + 8, &b, 8);                                                                                        \
        memcpy(to + 16, &c, 8);                                                                                       \
        memcpy(to + 24, &d, 8);                                                                                       \
    }
COLL__PUT_HALVES(coll__put_f16_base, coll__four_to_f16)
COLL__PUT_HALVES(coll__put_bf16_base, coll__four_to_bf16)
#endif

/* ---- >>maps: groups over whole buffers ---- */

/* The last few elements, of at most four bytes, go through temporary memory, by the same kernel. */
COLL__ONE_TEXT static void coll__map_rest(coll__map *map, void *to, size_t size, const void *from, size_t from_size, size_t count)
{
    unsigned char last[64] = { 0 }, done[64];

    memcpy(last, from, count * from_size);
    map(done, last, 16);
    memcpy(to, done, count * size);
}

COLL__ONE_TEXT static void coll__fold_rest(void (*fold)(void *, const void *, const void *, size_t), void *to, size_t size,
                                           const void *a, size_t a_size, const void *b, size_t b_size, size_t count)
{
    unsigned char last[2][64] = { { 0 } }, done[64];

    memcpy(last[0], a, count * a_size);
    memcpy(last[1], b, count * b_size);
    fold(done, last[0], last[1], 16);
    memcpy(to, done, count * size);
}

/* GROUP loads a group from `at`, PUT stores it. */
#define COLL__GROUP_MAP_IN(tier, name, PUT, TO, FROM, GROUP)                                                          \
    COLL__UNUSED COLL__IN_##tier static void name(void *to, const void *from, size_t count)                           \
    {                                                                                                                 \
        const unsigned char *at = from;                                                                               \
        unsigned char *out = to;                                                                                      \
        for (; count >= 16; count -= 16, at += 16 * sizeof(FROM), out += 16 * sizeof(TO)) PUT(out, GROUP);            \
        if (!count) return;                                                                                           \
        COLL__REST_OF_##tier;                                                                                         \
        coll__map_rest(name, out, sizeof(TO), at, sizeof(FROM), count);                                               \
    }

/* Adds A of one source to B of the other. */
#define COLL__GROUP_SUM_IN(tier, name, PUT, TO, A, GET_A, B, GET_B)                                                   \
    COLL__UNUSED COLL__IN_##tier static void name(void *to, const void *a, const void *b, size_t count)               \
    {                                                                                                                 \
        const unsigned char *left = a, *right = b;                                                                    \
        unsigned char *out = to;                                                                                      \
        for (; count >= 16; count -= 16) {                                                                            \
            PUT(out, coll__plus_##tier(GET_A(left), GET_B(right)));                                                   \
            left += 16 * sizeof(A), right += 16 * sizeof(B), out += 16 * sizeof(TO);                                  \
        }                                                                                                             \
        if (!count) return;                                                                                           \
        COLL__REST_OF_##tier;                                                                                         \
        coll__fold_rest(name, out, sizeof(TO), left, sizeof(A), right, sizeof(B), count);                             \
    }

#if COLL__HAS_TIERS && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif /* COLL_SIMD_H */
