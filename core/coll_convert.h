/* coll_convert.h: conversions of whole buffers, every float type to every other. */
#ifndef COLL_CONVERT_H
#define COLL_CONVERT_H

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/* ---- >>convert: every pair of float types, and the copies that make NaNs canonical ---- */

/* Every type but f64 widens to f32 exactly, so f32 is on the way from each to each. */
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

#define COLL__CONVERSIONS(X)                                                                        \
    COLL__TO_F8E5M2(X, f8e4m3, u8) COLL__TO_F16(X, f8e4m3, u8)    COLL__TO_BF16(X, f8e4m3, u8)      \
    COLL__TO_F32(X, f8e4m3, u8)    COLL__TO_F64(X, f8e4m3, u8)                                      \
    COLL__TO_F8E4M3(X, f8e5m2, u8) COLL__TO_F16(X, f8e5m2, u8)    COLL__TO_BF16(X, f8e5m2, u8)      \
    COLL__TO_F32(X, f8e5m2, u8)    COLL__TO_F64(X, f8e5m2, u8)                                      \
    COLL__TO_F8E4M3(X, f16, u16)   COLL__TO_F8E5M2(X, f16, u16)   COLL__TO_BF16(X, f16, u16)        \
    COLL__TO_F64(X, f16, u16)                                                                       \
    COLL__TO_F8E4M3(X, bf16, u16)  COLL__TO_F8E5M2(X, bf16, u16)  COLL__TO_F16(X, bf16, u16)        \
    COLL__TO_F32(X, bf16, u16)     COLL__TO_F64(X, bf16, u16)                                       \
    COLL__TO_F8E4M3(X, f32, f32)   COLL__TO_F8E5M2(X, f32, f32)   COLL__TO_BF16(X, f32, f32)        \
    COLL__TO_F32(X, f32, f32)      COLL__TO_F64(X, f32, f32)                                        \
    X(f64, f8e4m3, u8, f64, (uint8_t)COLL__NARROW_F64_F8E4M3(x))                                    \
    X(f64, f8e5m2, u8, f64, (uint8_t)COLL__NARROW_F64_F8E5M2(x))                                    \
    X(f64, f16, u16, f64, (uint16_t)COLL__NARROW_F64_F16(x))                                        \
    X(f64, bf16, u16, f64, (uint16_t)COLL__NARROW_F64_BF16(x))                                      \
    X(f64, f32, f32, f64, coll__canon32((float)x))                                                  \
    X(f64, f64, f64, f64, coll__canon64(x))

/* The two that x86-64 has instructions for. */
#define COLL__CONVERSIONS_F16C(X) COLL__TO_F32(X, f16, u16) COLL__TO_F16(X, f32, f32)

#define COLL__DEFINE(from, to, out, in, VALUE)                                                    \
    COLL__MAP(coll__##from##_to_##to, coll__raw_##out, coll__raw_##in, VALUE)
COLL__CONVERSIONS(COLL__DEFINE)
#undef COLL__DEFINE
#define COLL__DEFINE(from, to, out, in, VALUE)                                                    \
    COLL__MAP_IN(base, coll__##from##_to_##to, coll__raw_##out, coll__raw_##in, VALUE)
COLL__CONVERSIONS_F16C(COLL__DEFINE)
#undef COLL__DEFINE

#if defined(__x86_64__)

typedef float   coll__eight      __attribute__((vector_size(32)));
typedef int32_t coll__eight_bits __attribute__((vector_size(32)));
typedef short   coll__eight_half __attribute__((vector_size(16)));

#define COLL__INLINE_F16C COLL__INLINE __attribute__((target("avx2,f16c")))

COLL__INLINE_F16C coll__eight coll__eight_load(const void *from)
{
    coll__eight x;
    memcpy(&x, from, sizeof x);
    return x;
}

COLL__INLINE_F16C coll__eight coll__eight_wide(const void *from)
{
    coll__eight_half half;
    memcpy(&half, from, sizeof half);
    return __builtin_ia32_vcvtph2ps256(half);
}

COLL__INLINE_F16C coll__eight coll__eight_canon(coll__eight x)
{
    const coll__eight_bits is_nan = x != x;
    return (coll__eight)((is_nan & (int32_t)COLL__NAN_F32) | (~is_nan & (coll__eight_bits)x));
}

COLL__INLINE_F16C coll__eight_half coll__eight_narrow(coll__eight x)
{
    return (coll__eight_half)__builtin_ia32_vcvtps2ph256(coll__eight_canon(x), 0);
}

/* A map whose loop takes eight elements at a time; VALUE, for the last few, gives the same bits. */
#define COLL__MAP_F16C(name, TO, FROM, EIGHT_TYPE, EIGHT, VALUE)                                  \
    COLL__UNUSED COLL__IN_avx2 static void name##_avx2(void *to, const void *from, size_t count)  \
    {                                                                                             \
        TO *out = to;                                                                             \
        const FROM *in = from;                                                                    \
        size_t i = 0;                                                                             \
        for (; i + 8 <= count; i += 8) {                                                          \
            const EIGHT_TYPE eight = EIGHT;                                                       \
            memcpy(out + i, &eight, sizeof eight);                                                \
        }                                                                                         \
        for (; i < count; i++) {                                                                  \
            const FROM x = in[i];                                                                 \
            out[i] = VALUE;                                                                       \
        }                                                                                         \
    }
COLL__MAP_F16C(coll__f16_to_f32, coll__raw_f32, coll__raw_u16, coll__eight,
               coll__eight_canon(coll__eight_wide(in + i)), coll__canon32(coll__wide_f16(x)))
COLL__MAP_F16C(coll__f32_to_f16, coll__raw_u16, coll__raw_f32, coll__eight_half,
               coll__eight_narrow(coll__eight_load(in + i)), (uint16_t)coll__narrow_f16(x))

#endif

/* NULL if either is not a float type, or if they are the same type of 8 or 16 bits. */
COLL__UNUSED static coll__map *coll__conversion(coll_type to, coll_type from, int tier)
{
#define COLL__FROM_f8e4m3 COLL_F8E4M3
#define COLL__FROM_f8e5m2 COLL_F8E5M2
#define COLL__FROM_f16    COLL_F16
#define COLL__FROM_bf16   COLL_BF16
#define COLL__FROM_f32    COLL_F32
#define COLL__FROM_f64    COLL_F64
#define COLL__CASE(from, to, out, in, VALUE)                                                      \
    case COLL__FROM_##from * 16 + COLL__FROM_##to: return COLL__PICK(coll__##from##_to_##to, tier);
    if (!coll__is_float(from) || !coll__is_float(to)) return NULL;
    switch (from * 16 + to) {
        COLL__CONVERSIONS(COLL__CASE)
        COLL__CONVERSIONS_F16C(COLL__CASE)
    default: return NULL;
    }
#undef COLL__CASE
}

/* As coll_convert says, with the kernels of one tier. */
static coll_status coll__convert(void *dst, coll_type dst_type, const void *src,
                                 coll_type src_type, size_t count, int tier)
{
    const size_t size = coll_type_size(src_type);

    if (!size || !coll_type_size(dst_type)) return COLL_ERR_ARGUMENT;
    if (count && (!dst || !src)) return COLL_ERR_ARGUMENT;
    if (dst_type == src_type) {
        if (count > SIZE_MAX / size) return COLL_ERR_ARGUMENT;
        if (count && dst != src) memmove(dst, src, count * size);
        return COLL_OK;
    }
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

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#endif /* COLL_CONVERT_H */
