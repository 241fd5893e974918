/* coll_mx.h - microscaled numbers of the OCP Microscaling Formats Specification 1.0: 32 elements of 8 bits with a common power
 * of two.
 *
 *     scale | element 0 | element 1 | ... | element 31         the next group
 *      e8m0                                                    1 + 32 bytes; the last of a span is shorter
 *
 * The scale is 2^(floor(log2 m) - e), where m is the largest magnitude of the group and e the exponent of the largest number of
 * the element type: 0 for mxi8, whose elements are -127 to 127 times 2^-6, 8 for e4m3 and 15 for e5m2.  Elements are rounded to
 * nearest even; beyond the largest they become the largest.  A group with an infinity or a NaN is NaN as a whole: scale 0xff,
 * and zeros.  The smallest scale is 2^-127, also for a group of zeros.
 *
 * Packing unpacked numbers again does not change them: the largest keeps its exponent, because nothing rounds up beyond the
 * largest element.  So the scale is the same, and all are whole elements of it.  (With the smallest scale, they may have become
 * smaller than it can represent, and it stays.)  So an algorithm may pack a vector any number of times.
 *
 * Two passes: the largest magnitude as an integer, then scale and round.  The factor of a scale is applied as two powers of
 * two, each a normal float, because one factor could be subnormal. */
#ifndef COLL_MX_H
#define COLL_MX_H

#include "coll_convert.h"

enum { COLL__MX_BITS = 5, COLL__MX_GROUP = 1 << COLL__MX_BITS, COLL__MX_NAN = 0xff };

/* ---- >>groups: scales and elements ---- */

/* Exponent of the largest element, and that element in units of rounding. */
#define COLL__MX_EXPONENT(type) ((type) == COLL_MXI8 ? 0 : (type) == COLL_MXF8E4M3 ? 8 : 15)
#define COLL__MX_LARGEST(type)  ((type) == COLL_MXI8 ? 127.0f : (type) == COLL_MXF8E4M3 ? 448.0f : 57344.0f)
#define COLL__MX_UNITS(type)    ((type) == COLL_MXI8 ? 64.0f : 1.0f)

COLL__INLINE uint32_t coll__mx_largest(const coll__raw_u32 *in)
{
    int32_t largest = 0;

    for (int i = 0; i < COLL__MX_GROUP; i++) {
        const int32_t magnitude = (int32_t)(in[i] & 0x7fffffffu);
        largest = magnitude > largest ? magnitude : largest;
    }
    return (uint32_t)largest;
}

/* The exponent field of the largest float determines it: subnormal ones get the smallest scale. */
COLL__INLINE uint32_t coll__mx_scale(uint32_t largest, uint32_t exponent)
{
    const uint32_t field = largest >> 23;
    return field == 255 ? COLL__MX_NAN : field > exponent ? field - exponent : 0;
}

/* Round a float in units of an element's last place.  After adding 1.5 * 2^23 the integer is in the lowest bits, in two's
 * complement. */
COLL__INLINE uint32_t coll__mx_narrow(coll_type type, float x)
{
    const float most = COLL__MX_LARGEST(type), below = x > most ? most : x, within = below < -most ? -most : below;

    if (type == COLL_MXI8) return coll__bits32(within + 0x1.8p23f) & 0xffu;
    return type == COLL_MXF8E4M3 ? coll__narrow_f8e4m3(within) : coll__narrow_f8e5m2(within);
}

COLL__INLINE float coll__mx_wide(coll_type type, uint32_t byte)
{
    if (type == COLL_MXI8) return (float)((int32_t)(byte << 24) >> 24);
    return type == COLL_MXF8E4M3 ? coll__wide_f8e4m3(byte) : coll__wide_f8e5m2(byte);
}

/* The divisor and the multiplier of a scale, in two factors; a NaN in the second makes the whole group NaN. */
typedef struct coll__mx_factors { float one, other; } coll__mx_factors;

COLL__INLINE coll__mx_factors coll__mx_down(coll_type type, uint32_t scale)
{
    const uint32_t half = scale >> 1;
    return (coll__mx_factors){ coll__float32((190 - half) << 23),
                               coll__float32((191 - (scale - half)) << 23) * COLL__MX_UNITS(type) };
}

COLL__INLINE coll__mx_factors coll__mx_up(coll_type type, uint32_t scale)
{
    const uint32_t half = scale >> 1;
    const float one = coll__float32((half + 64) << 23) / COLL__MX_UNITS(type);
    return (coll__mx_factors){ one, coll__float32(scale == COLL__MX_NAN ? COLL__NAN_F32 : (scale - half + 63) << 23) };
}

COLL__INLINE COLL__KERNEL void coll__mx_pack_group_base(coll_type type, coll__raw_u8 *out, const coll__raw_u32 *in)
{
    const uint32_t scale = coll__mx_scale(coll__mx_largest(in), COLL__MX_EXPONENT(type));
    const uint32_t kept = scale == COLL__MX_NAN ? 0 : ~UINT32_C(0);
    const coll__mx_factors by = coll__mx_down(type, scale);

    out[0] = (uint8_t)scale;
    COLL__FREE COLL__ROLLED for (int i = 0; i < COLL__MX_GROUP; i++)
        out[1 + i] = (uint8_t)coll__mx_narrow(type, coll__float32(in[i] & kept) * by.one * by.other);
}

COLL__INLINE COLL__KERNEL void coll__mx_unpack_group_base(coll_type type, coll__raw_f32 *out, const coll__raw_u8 *in)
{
    const coll__mx_factors by = coll__mx_up(type, in[0]);

    COLL__FREE COLL__ROLLED for (int i = 0; i < COLL__MX_GROUP; i++)
        out[i] = coll__canon32(coll__mx_wide(type, in[1 + i]) * by.one * by.other);
}

/* ---- >>vectors of sixteen elements, two for each group ---- */

#if COLL__HAS_TIERS
COLL__INLINE_avx2 void coll__mx_put_avx2(coll_type type, void *to, coll__group_avx2 x)
{
    const __m256 most = _mm256_set1_ps(COLL__MX_LARGEST(type)), least = _mm256_set1_ps(-COLL__MX_LARGEST(type));
    const coll__group_avx2 within = { _mm256_max_ps(_mm256_min_ps(x.lower, most), least),
                                      _mm256_max_ps(_mm256_min_ps(x.upper, most), least) };
    if (type == COLL_MXF8E4M3) {
        coll__put_f8e4m3_avx2(to, within);
    } else if (type == COLL_MXF8E5M2) {
        coll__put_f8e5m2_avx2(to, within);
    } else {
        const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(within.lower), _mm256_cvtps_epi32(within.upper));
        coll__put_bytes(to, _mm256_and_si256(_mm256_permute4x64_epi64(words, 0xd8), _mm256_set1_epi16(0xff)));
    }
}

COLL__INLINE_avx2 coll__group_avx2 coll__mx_get_avx2(coll_type type, const void *from)
{
    const __m128i bytes = _mm_loadu_si128(from);

    if (type == COLL_MXF8E4M3) return coll__get_f8e4m3_avx2(from);
    if (type == COLL_MXF8E5M2) return coll__get_f8e5m2_avx2(from);
    return (coll__group_avx2){ _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                               _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))) };
}

COLL__INLINE_avx2 uint32_t coll__mx_largest_avx2(const coll__raw_u32 *in)
{
    __m256i most = _mm256_setzero_si256();
    int32_t all[8], largest = 0;

    for (int i = 0; i < COLL__MX_GROUP; i += 8)
        most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_loadu_si256((const void *)(in + i)), _mm256_set1_epi32(INT32_MAX)));
    most = _mm256_max_epi32(most, _mm256_permute2x128_si256(most, most, 1));
    most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0x4e));
    _mm256_storeu_si256((void *)all, _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0xb1)));
    memcpy(&largest, all, sizeof largest);
    return (uint32_t)largest;
}

COLL__INLINE_avx2 void coll__mx_pack_group_avx2(coll_type type, coll__raw_u8 *out, const coll__raw_u32 *in)
{
    const uint32_t scale = coll__mx_scale(coll__mx_largest_avx2(in), COLL__MX_EXPONENT(type));
    const coll__mx_factors by = coll__mx_down(type, scale);

    out[0] = (uint8_t)scale;
    if (scale == COLL__MX_NAN) memset(out + 1, 0, COLL__MX_GROUP);
    else COLL__ROLLED for (int i = 0; i < COLL__MX_GROUP; i += 16)
        coll__mx_put_avx2(type, out + 1 + i, coll__times_avx2(coll__times_avx2(coll__get_f32_avx2(in + i), by.one), by.other));
}

COLL__INLINE_avx2 void coll__mx_unpack_group_avx2(coll_type type, coll__raw_f32 *out, const coll__raw_u8 *in)
{
    const coll__mx_factors by = coll__mx_up(type, in[0]);

    COLL__ROLLED for (int i = 0; i < COLL__MX_GROUP; i += 16)
        coll__put_f32_avx2(out + i, coll__times_avx2(coll__times_avx2(coll__mx_get_avx2(type, in + 1 + i), by.one), by.other));
}
#endif

/* ---- >>spans: whole groups, and a last one padded with zeros ---- */

/* The last group of a span goes through temporary memory, by the same function. */
#define COLL__MX_SPANS_IN(tier, name, TYPE)                                                                     \
    COLL__IN_##tier static void coll__f32_to_##name##_##tier(void *to, const void *from, size_t count)          \
    {                                                                                                           \
        coll__raw_u8 *out = to;                                                                                 \
        const coll__raw_u32 *in = from;                                                                         \
        for (; count >= COLL__MX_GROUP; count -= COLL__MX_GROUP, in += COLL__MX_GROUP, out += 1 + COLL__MX_GROUP) \
            coll__mx_pack_group_##tier(TYPE, out, in);                                                          \
        if (!count) return;                                                                                     \
        uint32_t rest[COLL__MX_GROUP] = { 0 };                                                                  \
        uint8_t group[1 + COLL__MX_GROUP];                                                                      \
        memcpy(rest, in, 4 * count);                                                                            \
        coll__f32_to_##name##_##tier(group, rest, COLL__MX_GROUP);                                              \
        memcpy(out, group, 1 + count);                                                                          \
    }                                                                                                           \
    COLL__IN_##tier static void coll__##name##_to_f32_##tier(void *to, const void *from, size_t count)          \
    {                                                                                                           \
        coll__raw_f32 *out = to;                                                                                \
        const coll__raw_u8 *in = from;                                                                          \
        for (; count >= COLL__MX_GROUP; count -= COLL__MX_GROUP, in += 1 + COLL__MX_GROUP, out += COLL__MX_GROUP) \
            coll__mx_unpack_group_##tier(TYPE, out, in);                                                        \
        if (!count) return;                                                                                     \
        uint8_t group[1 + COLL__MX_GROUP] = { 0 };                                                              \
        float rest[COLL__MX_GROUP];                                                                             \
        memcpy(group, in, 1 + count);                                                                           \
        coll__##name##_to_f32_##tier(rest, group, COLL__MX_GROUP);                                              \
        memcpy(out, rest, 4 * count);                                                                           \
    }

/* ---- >>doubles: through floats rounded to odd, so that elements are rounded once ---- */

/* Of the two floats around a double, the one with an odd last bit, unless the double is a float.  Beyond the range of floats:
 * infinity. */
COLL__INLINE float coll__f64_to_odd(double x)
{
    const float near = (float)x;
    const double back = (double)near;
    const uint32_t bits = coll__bits32(near), is_beyond = (back < 0 ? -back : back) > (x < 0 ? -x : x);
    const uint32_t odd = (bits - is_beyond) | (back != x);

    return coll__float32((bits & 0x7fffffffu) == 0x7f800000u ? bits : odd);
}
COLL__MAP(coll__mx_odd, coll__raw_f32, coll__raw_f64, coll__f64_to_odd(x))

/* Pack and unpack, several groups at a time: what another rank receives of a group. */
#define COLL__MX_MAPS_IN(tier, name, TYPE)                                                                      \
    COLL__MX_SPANS_IN(tier, name, TYPE)                                                                         \
    static void coll__through_##name##_##tier(void *to, const void *from, size_t count)                         \
    {                                                                                                           \
        coll__convert_by(to, 32 * 4, coll__##name##_to_f32_##tier, from, 32 * 4, coll__f32_to_##name##_##tier, count); \
    }                                                                                                           \
    static void coll__f64_to_##name##_##tier(void *to, const void *from, size_t count)                          \
    {                                                                                                           \
        coll__convert_by(to, 1 + 32, coll__f32_to_##name##_##tier, from, 32 * 8, coll__mx_odd_##tier, count);   \
    }                                                                                                           \
    static void coll__##name##_to_f64_##tier(void *to, const void *from, size_t count)                          \
    {                                                                                                           \
        coll__convert_by(to, 32 * 8, coll__f32_to_f64_##tier, from, 1 + 32, coll__##name##_to_f32_##tier, count); \
    }
COLL__EACH_TIER(COLL__MX_MAPS_IN, mxi8, COLL_MXI8)
COLL__EACH_TIER(COLL__MX_MAPS_IN, mxf8e4m3, COLL_MXF8E4M3)
COLL__EACH_TIER(COLL__MX_MAPS_IN, mxf8e5m2, COLL_MXF8E5M2)

/* ---- >>halves: f16 has a smaller range than a group ---- */

/* Convert to f16.  A group with a number beyond f16 becomes NaN as a whole: a single infinity would make it NaN when it is
 * packed again.  No number becomes -0, which mxi8 lacks. */
static void coll__mx_to_f16(void *to, const void *from, size_t count)
{
    coll__raw_u16 *out = to;
    const coll__raw_f32 *in = from;

    for (size_t n; count > 0; count -= n) {
        bool is_within = true;
        n = count < COLL__MX_GROUP ? count : COLL__MX_GROUP;
        for (size_t i = 0; i < n; i++) is_within = is_within && in[i] < 65520.0f && in[i] > -65520.0f;
        for (size_t i = 0; i < n; i++) {
            const uint32_t half = coll__narrow_f16(in[i]), near = half == 0x8000 && in[i] < 0 ? 0 : half;
            out[i] = (uint16_t)(is_within ? near : COLL__NAN_F16);
        }
        in += n;
        out += n;
    }
}

/* ---- >>table ---- */

/* To or from f32 or f64, or through the format and back to f32; NULL: no such map. */
COLL__UNUSED static coll__map *coll__mx_map(coll_type to, coll_type from, int tier)
{
#define COLL__CASE(name, TYPE)                                                                                  \
    if (COLL__HAS(TYPE) && (to == TYPE || from == TYPE)) {                                                      \
        if (from == COLL_F32) return COLL__PICK(coll__f32_to_##name, tier);                                     \
        if (from == TYPE && to == TYPE) return COLL__PICK(coll__through_##name, tier);                          \
        if (to == COLL_F32) return COLL__PICK(coll__##name##_to_f32, tier);                                     \
        if (from == COLL_F64) return COLL__IF(COLL_F64, COLL__PICK(coll__f64_to_##name, tier));                 \
        if (to == COLL_F64) return COLL__IF(COLL_F64, COLL__PICK(coll__##name##_to_f64, tier));                 \
    }
    COLL__CASE(mxi8, COLL_MXI8)
    COLL__CASE(mxf8e4m3, COLL_MXF8E4M3)
    COLL__CASE(mxf8e5m2, COLL_MXF8E5M2)
#undef COLL__CASE
    return NULL;
}

#endif /* COLL_MX_H */
