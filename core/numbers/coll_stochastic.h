/* coll_stochastic.h - stochastic rounding to floats of 8 and 16 bits.
 *
 * A number x between two numbers a < b of the destination type is rounded up with probability (x - a) / (b - a), truncated to
 * 13 to 32 bits (below).  So the mean of many roundings of x is x.  Numbers that the destination type represents are kept.
 * Beyond its largest finite number rounding is to nearest: to that number, or where coll_convert overflows to infinity (f8e4m3:
 * NaN), never random.
 *
 * The random bits of element i depend only on the seed and on first + i, by integer arithmetic.  So they are the same on every
 * machine and tier, and for any pieces of a buffer. */
#ifndef COLL_STOCHASTIC_H
#define COLL_STOCHASTIC_H

#include "coll_convert.h"

/* ---- >>random: 32 bits of a seed and a number ---- */

/* The upper half of the number and the seed make two keys. */
COLL__INLINE uint64_t coll__stochastic_keys(uint64_t seed, uint64_t upper)
{
    return coll__mix64(coll__mix64(seed + UINT64_C(0x9e3779b97f4a7c15)) + upper);
}

/* The lower half is mixed by two rounds of xorshift and multiplication.  The constants have the least bias of a search (Wellons
 * and others, hash-prospector).  A changed bit of the number changes each result bit with probability 1/2; a test checks that.
 * The second key is added between the rounds, so that sequences of two seeds are not shifted copies.  All arithmetic has 32
 * bits, which every vector unit multiplies. */
COLL__INLINE uint32_t coll__stochastic_bits(uint32_t lower, uint32_t key, uint32_t other)
{
    uint32_t x = lower + key;
    x = (x ^ (x >> 16)) * UINT32_C(0x21f0aaad) + other;
    x = (x ^ (x >> 15)) * UINT32_C(0xd35a2d97);
    return x ^ (x >> 15);
}

/* ---- >>rounding of one number ---- */

/* Parameters of the types.  As coll__narrow_8, with random bits instead of a half.  A number that is normal in the destination
 * type, from `least` on, loses `drop` bits there; as many random bits are used (for a double 32).  Others are counted in units
 * of 2^-places of the last place, with `places` random bits.  `bias`: difference of the exponent biases, in the source's bits;
 * `largest`: bits of the largest finite number; from `beyond` on it overflows to `over`. */
typedef struct coll__draw_f32 {
    int width, drop, places;
    uint32_t bias, least;
    float units;
    uint32_t largest, beyond, over, nan;
} coll__draw_f32;

typedef struct coll__draw_f64 {
    int width, drop, places;
    uint64_t bias, least;
    double units;
    uint64_t largest, beyond;
    uint32_t over, nan;
} coll__draw_f64;

COLL__INLINE uint32_t coll__drawn_f32(const coll__draw_f32 *by, float value, uint32_t random)
{
    const uint32_t bits = coll__bits32(value), whole = bits & 0x7fffffffu;
    const uint32_t magnitude = (int32_t)whole < (int32_t)by->largest ? whole : by->largest;
    const uint32_t normal = (magnitude - by->bias + (random >> (32 - by->drop))) >> by->drop;
    const float little = coll__float32((int32_t)magnitude < (int32_t)by->least ? magnitude : by->least);
    const uint32_t small = ((uint32_t)(int32_t)(little * by->units) + (random >> (32 - by->places))) >> by->places;
    const uint32_t finite = (int32_t)magnitude < (int32_t)by->least ? small : normal;
    const uint32_t unsign = (int32_t)whole < (int32_t)by->beyond ? finite : by->over;
    const uint32_t number = unsign == by->nan ? by->nan : unsign | ((bits >> (32 - by->width)) & (1u << (by->width - 1)));
    return value == value ? number : by->nan;
}

/* The same for doubles. */
COLL__INLINE uint32_t coll__drawn_f64(const coll__draw_f64 *by, double value, uint32_t random)
{
    const uint64_t bits = coll__bits64(value), whole = bits & UINT64_C(0x7fffffffffffffff);
    const uint64_t magnitude = (int64_t)whole < (int64_t)by->largest ? whole : by->largest;
    const uint32_t normal = (uint32_t)((magnitude - by->bias + ((uint64_t)random << (by->drop - 32))) >> by->drop);
    const double little = coll__float64((int64_t)magnitude < (int64_t)by->least ? magnitude : by->least);
    const uint32_t small = ((uint32_t)(int32_t)(little * by->units) + (random >> (32 - by->places))) >> by->places;
    const uint32_t finite = (int64_t)magnitude < (int64_t)by->least ? small : normal;
    const uint32_t unsign = (int64_t)whole < (int64_t)by->beyond ? finite : by->over;
    const uint32_t number = unsign == by->nan ? by->nan : unsign | (uint32_t)(bits >> 63) << (by->width - 1);
    return value == value ? number : by->nan;
}

/* To f16, bf16, f8e4m3, f8e5m2.  bf16 has the exponents of f32, so `least` is 0. */
#define COLL__DRAW_TO(type) ((type) == COLL_F16 ? 0 : (type) == COLL_BF16 ? 1 : (type) == COLL_F8E4M3 ? 2 : 3)
static const coll__draw_f32 coll__draws_f32[4] = {
    { 16, 13, 20, 112u << 23, 113u << 23, 0x1p44f, 0x477fe000u, 0x477ff000u, 0x7c00u, 0x7e00u },
    { 16, 16, 16, 0, 0, 0, 0x7f7f0000u, 0x7f7f8000u, 0x7f80u, 0x7fc0u },
    { 8, 20, 27, 120u << 23, 121u << 23, 0x1p36f, 0x43e00000u, 0x43e80001u, 0x7fu, 0x7fu },
    { 8, 21, 28, 112u << 23, 113u << 23, 0x1p44f, 0x47600000u, 0x47700000u, 0x7cu, 0x7eu },
};

/* The same numbers for doubles. */
#define COLL__DOUBLE(exponent, fraction) ((UINT64_C(1023) + (exponent)) << 52 | UINT64_C(fraction))
static const coll__draw_f64 coll__draws_f64[4] = {
    { 16, 42, 20, UINT64_C(1008) << 52, UINT64_C(1009) << 52, 0x1p44,
      COLL__DOUBLE(15, 0xffc0000000000), COLL__DOUBLE(15, 0xffe0000000000), 0x7c00u, 0x7e00u },
    { 16, 45, 23, UINT64_C(896) << 52, UINT64_C(897) << 52, 0x1p156,
      COLL__DOUBLE(127, 0xfe00000000000), COLL__DOUBLE(127, 0xff00000000000), 0x7f80u, 0x7fc0u },
    { 8, 49, 27, UINT64_C(1016) << 52, UINT64_C(1017) << 52, 0x1p36,
      COLL__DOUBLE(8, 0xc000000000000), COLL__DOUBLE(8, 0xd000000000001), 0x7fu, 0x7fu },
    { 8, 50, 28, UINT64_C(1008) << 52, UINT64_C(1009) << 52, 0x1p44,
      COLL__DOUBLE(15, 0xc000000000000), COLL__DOUBLE(15, 0xe000000000000), 0x7cu, 0x7eu },
};
#undef COLL__DOUBLE

/* ---- >>rounding of buffers ---- */

/* Element i of a buffer has index first + i.  The buffers do not overlap.  `draw`: the parameters, of the type of the source. */
typedef void coll__stochastic_fn(void *to, const void *from, size_t count, uint64_t seed, uint64_t first, const void *draw);

/* NULL: none. */
typedef struct coll__stochastic { coll__stochastic_fn *round; const void *draw; } coll__stochastic;

/* Elements that a vector tier rounds at once; the base tier rounds exactly `n`. */
enum { COLL__DRAWN = 32 };
#define COLL__DRAWN_base(n) (n)
#define COLL__DRAWN_avx2(n) COLL__DRAWN

/* One version for all destinations.  The upper half of the index is constant within a piece.  Results stay 32 bits wide and are
 * narrowed at once at the end.  The last few elements go through temporary memory. */
#define COLL__DRAWING_IN(tier, name, FROM)                                                                                 \
    COLL__ONE_TEXT COLL__IN_##tier static void coll__drawing_##name##_##tier(void *to, const void *from, size_t count,     \
                                                                             uint64_t seed, uint64_t first,                \
                                                                             const void *draw)                             \
    {                                                                                                                      \
        const coll__draw_##name by = *(const coll__draw_##name *)draw;                                                     \
        const size_t size = (size_t)by.width / 8;                                                                          \
        unsigned char *out = to;                                                                                           \
        const FROM *in = from;                                                                                             \
        uint64_t keys = coll__stochastic_keys(seed, first >> 32);                                                          \
        for (size_t n; count > 0; count -= n, in += n, out += n * size, first += n) {                                      \
            if (!(first & UINT32_MAX)) keys = coll__stochastic_keys(seed, first >> 32);                                    \
            const uint64_t left = (UINT64_C(1) << 32) - (first & UINT32_MAX);                                              \
            const uint32_t lower = (uint32_t)first, key = (uint32_t)keys, other = (uint32_t)(keys >> 32);                  \
            const size_t most = left < COLL__DRAWN ? (size_t)left : COLL__DRAWN;                                           \
            FROM last[COLL__DRAWN];                                                                                        \
            unsigned char done[2 * COLL__DRAWN];                                                                           \
            uint32_t drawn[COLL__DRAWN];                                                                                   \
            n = count < most ? count : most;                                                                               \
            if (n < COLL__DRAWN) memset(last, 0, sizeof last), memcpy(last, in, n * sizeof *in);                           \
            const FROM *const at = n < COLL__DRAWN ? last : in;                                                            \
            unsigned char *const made = n < COLL__DRAWN ? done : out;                                                      \
            COLL__FREE_##tier COLL__ROLLED for (uint32_t i = 0; i < (uint32_t)COLL__DRAWN_##tier(n); i++)                  \
                drawn[i] = coll__drawn_##name(&by, at[i], coll__stochastic_bits(lower + i, key, other));                   \
            if (size == 1) {                                                                                               \
                COLL__FREE_##tier COLL__ROLLED for (size_t i = 0; i < COLL__DRAWN_##tier(n); i++)                          \
                    ((coll__raw_u8 *)made)[i] = (uint8_t)drawn[i];                                                         \
            } else {                                                                                                       \
                COLL__FREE_##tier COLL__ROLLED for (size_t i = 0; i < COLL__DRAWN_##tier(n); i++)                          \
                    ((coll__raw_u16 *)made)[i] = (uint16_t)drawn[i];                                                       \
            }                                                                                                              \
            if (n < COLL__DRAWN) memcpy(out, done, n * size);                                                              \
        }                                                                                                                  \
    }
COLL__EACH_TIER(COLL__DRAWING_IN, f32, coll__raw_f32)
COLL__DRAWING_IN(base, f64, coll__raw_f64)            /* one version for all tiers */

/* None unless `from` is f32 or f64 and `to` is a float of 8 or 16 bits. */
COLL__UNUSED static coll__stochastic coll__stochastic_row(coll_type to, coll_type from, int tier)
{
    const coll__stochastic none = { NULL, NULL };

    if (!COLL__HAS_STOCHASTIC || !coll__is_float(to) || coll_type_size(to) > 2) return none;
    if (coll__lacks_type(from) || coll__lacks_type(to)) return none;
    if (COLL__HAS(COLL_F64) && from == COLL_F64)
        return (coll__stochastic){ coll__drawing_f64_base, &coll__draws_f64[COLL__DRAW_TO(to)] };
    if (from != COLL_F32) return none;
    return (coll__stochastic){ COLL__PICK(coll__drawing_f32, tier), &coll__draws_f32[COLL__DRAW_TO(to)] };
}

/* coll_convert_stochastic with the kernels of one tier.  Source types without a kernel widen to f32 exactly. */
static coll_status coll__convert_stochastic(void *dst, coll_type dst_type, const void *src, coll_type src_type, size_t count,
                                            uint64_t seed, uint64_t first, int tier)
{
    float block[1024];
    const coll__stochastic at_once = coll__stochastic_row(dst_type, src_type, tier);
    const coll__stochastic by = coll__stochastic_row(dst_type, COLL_F32, tier);
    const bool is_drawn = dst_type != src_type && coll__is_float(src_type) && by.round;

    if (!COLL__IS_WHOLE) return COLL_ERR_UNSUPPORTED;
    if (!is_drawn) return coll__convert(dst, dst_type, src, src_type, count, tier);
    const size_t size = coll_type_size(src_type), dst_size = coll_type_size(dst_type);
    if (count > SIZE_MAX / (size > dst_size ? size : dst_size) || (count && (!dst || !src))
        || !coll__may_convert_there(dst, dst_size, src, size, count)) return COLL_ERR_ARGUMENT;
    if (at_once.round) {
        at_once.round(dst, src, count, seed, first, at_once.draw);
        return COLL_OK;
    }
    coll__map *const widen = coll__conversion(COLL_F32, src_type, tier);
    for (size_t at = 0, length; at < count; at += length) {
        length = count - at < 1024 ? count - at : 1024;
        widen(block, (const unsigned char *)src + at * coll_type_size(src_type), length);
        by.round((unsigned char *)dst + at * coll_type_size(dst_type), block, length, seed, first + at, by.draw);
    }
    return COLL_OK;
}

COLL_API coll_status coll_convert_stochastic(void *dst, coll_type dst_type, const void *src, coll_type src_type, size_t count,
                                             uint64_t seed, uint64_t first)
{
    return coll__convert_stochastic(dst, dst_type, src, src_type, count, seed, first, coll__tier());
}

#endif /* COLL_STOCHASTIC_H */
