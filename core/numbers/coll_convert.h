/* coll_convert.h - conversion of whole buffers between all float types. */
#ifndef COLL_CONVERT_H
#define COLL_CONVERT_H

#include "coll_simd.h"

/* ---- >>convert: every pair of float types, and the copies that make NaNs canonical ---- */

/* Every type except f64 widens to f32 exactly, so conversions go through f32. */
#define COLL__WIDE_f8e4m3(x) coll__wide_f8e4m3(x)
#define COLL__WIDE_f8e5m2(x) coll__wide_f8e5m2(x)
#define COLL__WIDE_f16(x)    coll__wide_f16(x)
#define COLL__WIDE_bf16(x)   coll__wide_bf16(x)
#define COLL__WIDE_f32(x)    (x)

#define COLL__TO_F8E4M3(X, from, in) X(from, f8e4m3, u8, in, (uint8_t)coll__narrow_f8e4m3(COLL__WIDE_##from(x)))
#define COLL__TO_F8E5M2(X, from, in) X(from, f8e5m2, u8, in, (uint8_t)coll__narrow_f8e5m2(COLL__WIDE_##from(x)))
#define COLL__TO_F16(X, from, in)    X(from, f16, u16, in, (uint16_t)coll__narrow_f16(COLL__WIDE_##from(x)))
#define COLL__TO_BF16(X, from, in)   X(from, bf16, u16, in, (uint16_t)coll__narrow_bf16(COLL__WIDE_##from(x)))
#define COLL__TO_F32(X, from, in)    X(from, f32, f32, in, coll__canon32(COLL__WIDE_##from(x)))
#define COLL__TO_F64(X, from, in)    X(from, f64, f64, in, coll__canon64((double)COLL__WIDE_##from(x)))

/* Between 8 or 16 bits and f32, among 16 bits, and with f64. */
#define COLL__CONVERSIONS_8(X)                                                                      \
    COLL__TO_F32(X, f8e4m3, u8)    COLL__TO_F32(X, f8e5m2, u8)                                      \
    COLL__TO_F8E4M3(X, f32, f32)   COLL__TO_F8E5M2(X, f32, f32)
#define COLL__CONVERSIONS_16(X)                                                                     \
    COLL__TO_F32(X, f16, u16)      COLL__TO_F32(X, bf16, u16)                                       \
    COLL__TO_F16(X, f32, f32)      COLL__TO_BF16(X, f32, f32)
#define COLL__CONVERSIONS_AMONG_16(X)                                                               \
    COLL__TO_BF16(X, f16, u16)     COLL__TO_F16(X, bf16, u16)     COLL__TO_F32(X, f32, f32)
#define COLL__CONVERSIONS_64(X)                                                                     \
    X(f64, f64, f64, f64, coll__canon64(x)) COLL__CONVERSIONS_OF_F64(X)
/* Through f32: from and to 8 bits, into f64, and out of it. */
#define COLL__CONVERSIONS_THROUGH_F32(X)                                                            \
    X(f8e4m3, f8e5m2, u8, u8, 0)   X(f8e4m3, f16, u16, u8, 0)     X(f8e4m3, bf16, u16, u8, 0)       \
    X(f8e5m2, f8e4m3, u8, u8, 0)   X(f8e5m2, f16, u16, u8, 0)     X(f8e5m2, bf16, u16, u8, 0)       \
    X(f16, f8e4m3, u8, u16, 0)     X(f16, f8e5m2, u8, u16, 0)                                       \
    X(bf16, f8e4m3, u8, u16, 0)    X(bf16, f8e5m2, u8, u16, 0)                                      \
    X(f8e4m3, f64, f64, u8, 0)     X(f8e5m2, f64, f64, u8, 0)                                       \
    X(f16, f64, f64, u16, 0)       X(bf16, f64, f64, u16, 0)
#define COLL__CONVERSIONS_OUT_OF_F64(X)                                                             \
    X(f64, f8e4m3, u8, f64, 0)     X(f64, f8e5m2, u8, f64, 0)                                       \
    X(f64, f16, u16, f64, 0)       X(f64, bf16, u16, f64, 0)
#define COLL__CONVERSIONS_BY_F32(X) COLL__CONVERSIONS_THROUGH_F32(X) COLL__CONVERSIONS_OUT_OF_F64(X)
#define COLL__CONVERSIONS_OF_F64(X)                                                                 \
    COLL__TO_F64(X, f32, f32)                                                                       \
    X(f64, f32, f32, f64, coll__canon32((float)x))

/* Loops over single elements, and over groups of sixteen, in a tier. */
#define COLL__ONE_base(from, to, out, in, VALUE)                                                    \
    COLL__MAP_IN(base, coll__##from##_to_##to, coll__raw_##out, coll__raw_##in, VALUE)
#define COLL__ONE_avx2(from, to, out, in, VALUE)                                                    \
    COLL__MAP_IN(avx2, coll__##from##_to_##to, coll__raw_##out, coll__raw_##in, VALUE)
#define COLL__ONE_avx512(from, to, out, in, VALUE)                                                  \
    COLL__MAP_IN(avx512, coll__##from##_to_##to, coll__raw_##out, coll__raw_##in, VALUE)
#define COLL__GROUP_OF(tier, from, to, out, in)                                                     \
    COLL__GROUP_MAP_IN(tier, coll__##from##_to_##to##_##tier, coll__put_##to##_##tier,              \
                       coll__raw_##out, coll__raw_##in, coll__get_##from##_##tier(at))
#define COLL__SIXTEEN_base(from, to, out, in, VALUE) COLL__GROUP_OF(base, from, to, out, in)
#define COLL__SIXTEEN_avx2(from, to, out, in, VALUE) COLL__GROUP_OF(avx2, from, to, out, in)
#define COLL__SIXTEEN_avx512(from, to, out, in, VALUE) COLL__GROUP_OF(avx512, from, to, out, in)

COLL__CONVERSIONS_8(COLL__ONE_base)
COLL__CONVERSIONS_64(COLL__ONE_base)
#if defined(__aarch64__)
COLL__CONVERSIONS_16(COLL__SIXTEEN_base)
COLL__CONVERSIONS_AMONG_16(COLL__SIXTEEN_base)
#else
COLL__CONVERSIONS_16(COLL__ONE_base)
COLL__CONVERSIONS_AMONG_16(COLL__ONE_base)
#endif

#if COLL__HAS_TIERS
COLL__CONVERSIONS_8(COLL__SIXTEEN_avx2)
COLL__CONVERSIONS_16(COLL__SIXTEEN_avx2)
COLL__CONVERSIONS_AMONG_16(COLL__SIXTEEN_avx2)
COLL__CONVERSIONS_64(COLL__ONE_avx2)
COLL__CONVERSIONS_8(COLL__SIXTEEN_avx512)
COLL__CONVERSIONS_16(COLL__SIXTEEN_avx512)
COLL__CONVERSIONS_OF_F64(COLL__ONE_avx512)
#if COLL__HAS_AVX512BF16
COLL__GROUP_MAP_IN(avx512, coll__f32_to_bf16_avx512bf16, coll__put_bf16_avx512bf16, coll__raw_u16,
                   coll__raw_f32, coll__get_f32_avx512(at))
#endif
#endif

/* ---- >>blocks: conversion through floats, a block at a time ---- */

/* `bytes`: for 32 elements; a group with a common exponent has one byte more (coll_mx.h). */
enum { COLL__BY_F32_MOST = 512 };

static COLL__UNUSED void coll__convert_by(void *to, size_t to_bytes, coll__map *second, const void *from, size_t bytes,
                                          coll__map *first, size_t count)
{
    unsigned char *out = to;
    const unsigned char *in = from;

    for (size_t n; count > 0; count -= n, in += n / 32 * bytes, out += n / 32 * to_bytes) {
        float block[COLL__BY_F32_MOST];
        n = count < COLL__BY_F32_MOST ? count : COLL__BY_F32_MOST;
        first(block, in, n);
        second(out, block, n);
    }
}

/* Doubles to floats, rounded to odd, and from there with the kernel of the same tier. */
COLL__MAP(coll__odd_floats, coll__raw_f32, coll__raw_f64, coll__odd_f32(x))

#define COLL__OUT_OF_F64_IN(tier, to, out)                                                          \
    static void coll__f64_to_##to##_##tier(void *dst, const void *src, size_t count)                \
    {                                                                                               \
        coll__convert_by(dst, 32 * sizeof(coll__raw_##out), coll__f32_to_##to##_##tier, src, 32 * 8, \
                         coll__odd_floats_##tier, count);                                           \
    }
#define COLL__THROUGH_F32_IN(tier, from, to, out, in)                                                \
    static void coll__##from##_to_##to##_##tier(void *dst, const void *src, size_t count)           \
    {                                                                                               \
        coll__convert_by(dst, 32 * sizeof(coll__raw_##out), coll__f32_to_##to##_##tier, src,        \
                         32 * sizeof(coll__raw_##in), coll__##from##_to_f32_##tier, count);         \
    }
#define COLL__OUT_OF_F64(from, to, out, in, VALUE) COLL__EACH_TIER(COLL__OUT_OF_F64_IN, to, out)
#define COLL__THROUGH_F32(from, to, out, in, VALUE) COLL__EACH_TIER(COLL__THROUGH_F32_IN, from, to, out, in)
COLL__CONVERSIONS_OUT_OF_F64(COLL__OUT_OF_F64)
COLL__CONVERSIONS_THROUGH_F32(COLL__THROUGH_F32)

COLL__FOR_SIZE

/* Index of a float type. */
#define COLL__AT_f8e4m3 COLL_F8E4M3 - COLL_F16
#define COLL__AT_f8e5m2 COLL_F8E5M2 - COLL_F16
#define COLL__AT_f16    COLL_F16 - COLL_F16
#define COLL__AT_bf16   COLL_BF16 - COLL_F16
#define COLL__AT_f32    COLL_F32 - COLL_F16
#define COLL__AT_f64    COLL_F64 - COLL_F16

enum { COLL__FLOATS = COLL_F64 - COLL_F16 + 1 };

#define COLL__CASE_BY(PICK, from, to)                                                               \
    case COLL__AT_##from + (COLL__AT_##to) * COLL__FLOATS:                                          \
        return COLL__HAS(COLL_F16 + COLL__AT_##from) && COLL__HAS(COLL_F16 + COLL__AT_##to)         \
             ? PICK(coll__##from##_to_##to, tier) : NULL;
#define COLL__CASE(from, to, out, in, VALUE) COLL__CASE_BY(COLL__PICK, from, to)
#define COLL__CASE_WIDE(from, to, out, in, VALUE) COLL__CASE_BY(COLL__PICK_WIDE, from, to)

/* NULL if either is not a float type or was left out, or if both are the same type of 8 or 16 bits. */
COLL__UNUSED static coll__map *coll__conversion(coll_type to, coll_type from, int tier)
{
    if (!coll__is_float(from) || !coll__is_float(to)) return NULL;
#if COLL__HAS_TIERS && COLL__HAS_AVX512BF16
    if (COLL__HAS(COLL_BF16) && tier >= COLL__TIER_AVX512BF16 && from == COLL_F32 && to == COLL_BF16)
        return coll__f32_to_bf16_avx512bf16;
#endif
    switch (from - COLL_F16 + (to - COLL_F16) * COLL__FLOATS) {
    COLL__CONVERSIONS_8(COLL__CASE_WIDE)
    COLL__CONVERSIONS_16(COLL__CASE_WIDE)
    COLL__CONVERSIONS_OF_F64(COLL__CASE_WIDE)
    COLL__CONVERSIONS_AMONG_16(COLL__CASE)
    COLL__CONVERSIONS_BY_F32(COLL__CASE)
    case (COLL__AT_f64) * (1 + COLL__FLOATS): return COLL__IF(COLL_F64, COLL__PICK(coll__f64_to_f64, tier));
    default: return NULL;
    }
}
#undef COLL__CASE_WIDE
#undef COLL__CASE
#undef COLL__CASE_BY

COLL__FOR_SPEED

/* Kernels read and write several elements at once: arrays may overlap only if each element is at the place of its result. */
COLL__UNUSED static bool coll__may_convert_there(const void *dst, size_t dst_size, const void *src, size_t size, size_t count)
{
    return (dst == src && dst_size == size) || !coll__arrays_overlap(dst, dst_size, src, size, count);
}

/* coll_convert with the kernels of one tier. */
static coll_status coll__convert(void *dst, coll_type dst_type, const void *src,
                                 coll_type src_type, size_t count, int tier)
{
    const size_t size = coll_type_size(src_type), dst_size = coll_type_size(dst_type);

    if (!size || !dst_size || count > SIZE_MAX / (size > dst_size ? size : dst_size)) return COLL_ERR_ARGUMENT;
    if (count && (!dst || !src)) return COLL_ERR_ARGUMENT;
    if (dst_type == src_type) {
        if (count && dst != src) memmove(dst, src, count * size);
        return COLL_OK;
    }
    if (!coll__may_convert_there(dst, dst_size, src, size, count)) return COLL_ERR_ARGUMENT;
    coll__map *const convert = coll__conversion(dst_type, src_type, tier);
    if (!convert) return COLL_ERR_UNSUPPORTED;
    convert(dst, src, count);
    return COLL_OK;
}

COLL_API coll_status coll_convert(void *dst, coll_type dst_type, const void *src,
                                  coll_type src_type, size_t count)
{
    return coll__convert(dst, dst_type, src, src_type, count, coll__tier());
}

#endif /* COLL_CONVERT_H */
