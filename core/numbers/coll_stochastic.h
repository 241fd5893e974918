/* coll_stochastic.h: rounding up or down at random, to floats of 8 and 16 bits.
 *
 * A number between two neighbours of the destination goes up with a probability that is its distance from the lower one, in
 * units of theirs, cut off after 13 to 32 bits (below): the mean of many roundings of x is x.  Numbers that the destination
 * has are kept.  Beyond its largest finite number there is no upper neighbour, and what is there is rounded to nearest: to that
 * number, or where coll_convert overflows to infinity (f8e4m3: NaN), never at random.
 *
 * The random bits of element i depend on the seed and on first + i alone: by integer arithmetic, so on every machine and tier
 * the same, and in whatever pieces a buffer is converted. */
#ifndef COLL_STOCHASTIC_H
#define COLL_STOCHASTIC_H

#include "coll_convert.h"

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/* ---- >>random: 32 bits of a seed and a number ---- */

/* The upper half of the number and the seed make two keys, by the finaliser of splitmix64 (Steele, Lea, Flood 2014). */
COLL__INLINE uint64_t coll__mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

COLL__INLINE uint64_t coll__stochastic_keys(uint64_t seed, uint64_t upper)
{
    return coll__mix64(coll__mix64(seed + UINT64_C(0x9e3779b97f4a7c15)) + upper);
}

/* The lower half is mixed by two rounds of xorshift and multiplication, with the constants of least bias that a search found
 * (Wellons and others, hash-prospector): a bit of the number that changes, changes each of these with a probability of 1/2, as
 * a test sees.  The second key comes between the rounds, so that two seeds do not have one sequence with a shift.  All of it
 * is within 32 bits, which every vector unit multiplies. */
COLL__INLINE uint32_t coll__stochastic_bits(uint32_t lower, uint32_t key, uint32_t other)
{
    uint32_t x = lower + key;
    x = (x ^ (x >> 16)) * UINT32_C(0x21f0aaad) + other;
    x = (x ^ (x >> 15)) * UINT32_C(0xd35a2d97);
    return x ^ (x >> 15);
}

/* ---- >>draw: one number ---- */

/* As coll__narrow_8, with random bits in the place of a half.  A number that is normal in the destination has `drop` bits less
 * there, and as many bits are drawn; one that is not is counted in units of 2^-places of its last place, so that `places` are
 * drawn.  `largest` is the largest finite number's bits in f32; from `beyond` on it overflows to `over`. */
COLL__INLINE uint32_t coll__stochastic_f32(float value, uint32_t random, int width, int drop, uint32_t bias, int places,
                                           float units, uint32_t largest, uint32_t beyond, uint32_t over, uint32_t nan)
{
    const uint32_t bits = coll__bits32(value), whole = bits & 0x7fffffffu;
    const uint32_t magnitude = (int32_t)whole < (int32_t)largest ? whole : largest;
    const uint32_t normal = (magnitude - (bias << 23) + (random >> (32 - drop))) >> drop;
    const uint32_t least = (bias + 1) << 23;
    const float little = coll__float32((int32_t)magnitude < (int32_t)least ? magnitude : least);
    const uint32_t small = ((uint32_t)(int32_t)(little * units) + (random >> (32 - places))) >> places;
    const uint32_t finite = bias && (int32_t)magnitude < (int32_t)least ? small : normal;
    const uint32_t unsign = (int32_t)whole < (int32_t)beyond ? finite : over;
    const uint32_t number = unsign == nan ? nan : unsign | ((bits >> (32 - width)) & (1u << (width - 1)));
    return value == value ? number : nan;
}

/* From a double at once, with 32 bits drawn; `small` as above. */
COLL__INLINE uint32_t coll__stochastic_f64(double value, uint32_t random, int width, int drop, uint64_t bias, int places,
                                           double units, uint64_t largest, uint64_t beyond, uint32_t over, uint32_t nan)
{
    const uint64_t bits = coll__bits64(value), whole = bits & UINT64_C(0x7fffffffffffffff);
    const uint64_t magnitude = (int64_t)whole < (int64_t)largest ? whole : largest;
    const uint32_t normal = (uint32_t)((magnitude - (bias << 52) + ((uint64_t)random << (drop - 32))) >> drop);
    const uint64_t least = (bias + 1) << 52;
    const double little = coll__float64((int64_t)magnitude < (int64_t)least ? magnitude : least);
    const uint32_t small = ((uint32_t)(int32_t)(little * units) + (random >> (32 - places))) >> places;
    const uint32_t finite = (int64_t)magnitude < (int64_t)least ? small : normal;
    const uint32_t unsign = (int64_t)whole < (int64_t)beyond ? finite : over;
    const uint32_t number = unsign == nan ? nan : unsign | (uint32_t)(bits >> 63) << (width - 1);
    return value == value ? number : nan;
}

#define COLL__STOCHASTIC_F32_F8E4M3(x, r) \
    coll__stochastic_f32(x, r, 8, 20, 120, 27, 0x1p36f, 0x43e00000u, 0x43e80001u, 0x7fu, 0x7fu)
#define COLL__STOCHASTIC_F32_F8E5M2(x, r) \
    coll__stochastic_f32(x, r, 8, 21, 112, 28, 0x1p44f, 0x47600000u, 0x47700000u, 0x7cu, 0x7eu)
#define COLL__STOCHASTIC_F32_F16(x, r) \
    coll__stochastic_f32(x, r, 16, 13, 112, 20, 0x1p44f, 0x477fe000u, 0x477ff000u, 0x7c00u, 0x7e00u)
#define COLL__STOCHASTIC_F32_BF16(x, r) \
    coll__stochastic_f32(x, r, 16, 16, 0, 16, 0, 0x7f7f0000u, 0x7f7f8000u, 0x7f80u, 0x7fc0u)

/* The same numbers as doubles. */
#define COLL__DOUBLE(exponent, fraction) ((UINT64_C(1023) + (exponent)) << 52 | UINT64_C(fraction))
#define COLL__STOCHASTIC_F64_F8E4M3(x, r)                                                                                  \
    coll__stochastic_f64(x, r, 8, 49, 1016, 27, 0x1p36, COLL__DOUBLE(8, 0xc000000000000), COLL__DOUBLE(8, 0xd000000000001), \
                   0x7fu, 0x7fu)
#define COLL__STOCHASTIC_F64_F8E5M2(x, r)                                                                                  \
    coll__stochastic_f64(x, r, 8, 50, 1008, 28, 0x1p44, COLL__DOUBLE(15, 0xc000000000000), COLL__DOUBLE(15, 0xe000000000000), \
                   0x7cu, 0x7eu)
#define COLL__STOCHASTIC_F64_F16(x, r)                                                                                     \
    coll__stochastic_f64(x, r, 16, 42, 1008, 20, 0x1p44, COLL__DOUBLE(15, 0xffc0000000000), COLL__DOUBLE(15, 0xffe0000000000), \
                   0x7c00u, 0x7e00u)
#define COLL__STOCHASTIC_F64_BF16(x, r)                                                                                    \
    coll__stochastic_f64(x, r, 16, 45, 896, 23, 0x1p156, COLL__DOUBLE(127, 0xfe00000000000), COLL__DOUBLE(127, 0xff00000000000), \
                   0x7f80u, 0x7fc0u)

/* ---- >>drawing: whole buffers ---- */

/* Element i of a buffer is number first + i.  The buffers do not overlap. */
typedef void coll__stochastic_fn(void *to, const void *from, size_t count, uint64_t seed, uint64_t first);

/* As many as a tier draws at once, whatever is asked of it; one that has no vectors draws what is asked. */
enum { COLL__DRAWN = 32 };
#define COLL__DRAWN_base(n) (n)
#define COLL__DRAWN_avx2(n) COLL__DRAWN

/* The upper half of the number is the same within a piece.  What is drawn is 32 bits long until it is all there: vectors are
 * narrowed once then.  The last few elements go through memory of the right length, by the same text. */
#define COLL__STOCHASTIC_IN(tier, name, TO, FROM, DRAW)                                                                    \
    COLL__UNUSED COLL__IN_##tier static void name##_##tier(void *to, const void *from, size_t count, uint64_t seed,        \
                                                           uint64_t first)                                                 \
    {                                                                                                                      \
        TO *out = to;                                                                                                      \
        const FROM *in = from;                                                                                             \
        uint64_t keys = coll__stochastic_keys(seed, first >> 32);                                                          \
        for (size_t n; count > 0; count -= n, in += n, out += n, first += n) {                                             \
            if (!(first & UINT32_MAX)) keys = coll__stochastic_keys(seed, first >> 32);                                    \
            const uint64_t left = (UINT64_C(1) << 32) - (first & UINT32_MAX);                                              \
            const uint32_t lower = (uint32_t)first, key = (uint32_t)keys, other = (uint32_t)(keys >> 32);                  \
            const size_t most = left < COLL__DRAWN ? (size_t)left : COLL__DRAWN;                                           \
            FROM last[COLL__DRAWN];                                                                                        \
            TO done[COLL__DRAWN];                                                                                          \
            uint32_t drawn[COLL__DRAWN];                                                                                   \
            n = count < most ? count : most;                                                                               \
            if (n < COLL__DRAWN) memset(last, 0, sizeof last), memcpy(last, in, n * sizeof *in);                           \
            const FROM *const at = n < COLL__DRAWN ? last : in;                                                            \
            TO *const made = n < COLL__DRAWN ? done : out;                                                                 \
            COLL__FREE for (uint32_t i = 0; i < (uint32_t)COLL__DRAWN_##tier(n); i++)                                      \
                drawn[i] = DRAW(at[i], coll__stochastic_bits(lower + i, key, other));                                      \
            COLL__FREE COLL__ROLLED for (size_t i = 0; i < COLL__DRAWN_##tier(n); i++) made[i] = (TO)drawn[i];             \
            if (n < COLL__DRAWN) memcpy(out, done, n * sizeof *out);                                                       \
        }                                                                                                                  \
    }
#define COLL__STOCHASTIC_ROWS(X)                                                                                     \
    X(f32, f8e4m3, f32, u8, COLL__STOCHASTIC_F32_F8E4M3) X(f32, f8e5m2, f32, u8, COLL__STOCHASTIC_F32_F8E5M2)        \
    X(f32, f16, f32, u16, COLL__STOCHASTIC_F32_F16)      X(f32, bf16, f32, u16, COLL__STOCHASTIC_F32_BF16)
/* Of doubles: one text serves all tiers. */
#define COLL__STOCHASTIC_DOUBLES(X)                                                                                  \
    X(f64, f8e4m3, f64, u8, COLL__STOCHASTIC_F64_F8E4M3) X(f64, f8e5m2, f64, u8, COLL__STOCHASTIC_F64_F8E5M2)        \
    X(f64, f16, f64, u16, COLL__STOCHASTIC_F64_F16)      X(f64, bf16, f64, u16, COLL__STOCHASTIC_F64_BF16)

#define COLL__DEFINE(from, to, in, out, DRAW)                                                                        \
    COLL__EACH_TIER(COLL__STOCHASTIC_IN, coll__stochastic_##from##_to_##to, coll__raw_##out, coll__raw_##in, DRAW)
#define COLL__DEFINE_ONCE(from, to, in, out, DRAW)                                                                   \
    COLL__STOCHASTIC_IN(base, coll__stochastic_##from##_to_##to, coll__raw_##out, coll__raw_##in, DRAW)
COLL__STOCHASTIC_ROWS(COLL__DEFINE)
COLL__STOCHASTIC_DOUBLES(COLL__DEFINE_ONCE)
#undef COLL__DEFINE_ONCE
#undef COLL__DEFINE

/* NULL unless `from` is f32 or f64 and `to` is a float of 8 or 16 bits. */
COLL__UNUSED static coll__stochastic_fn *coll__stochastic_row(coll_type to, coll_type from, int tier)
{
#define COLL__IF_BOTH(from, to, what)                                                                                \
    (COLL__HAS_STOCHASTIC && COLL__HAS(COLL_F16 + COLL__AT_##from) && COLL__HAS(COLL_F16 + COLL__AT_##to) ? (what) : NULL)
#define COLL__CASE(from, to, in, out, DRAW)                                                                          \
    case COLL__AT_##from + (COLL__AT_##to) * COLL__FLOATS:                                                           \
        return COLL__IF_BOTH(from, to, COLL__PICK(coll__stochastic_##from##_to_##to, tier));
#define COLL__CASE_ONCE(from, to, in, out, DRAW)                                                                     \
    case COLL__AT_##from + (COLL__AT_##to) * COLL__FLOATS:                                                           \
        return COLL__IF_BOTH(from, to, coll__stochastic_##from##_to_##to##_base);
    if (!COLL__HAS_STOCHASTIC || !coll__is_float(from) || !coll__is_float(to)) return NULL;
    switch (from - COLL_F16 + (to - COLL_F16) * COLL__FLOATS) {
        COLL__STOCHASTIC_ROWS(COLL__CASE)
        COLL__STOCHASTIC_DOUBLES(COLL__CASE_ONCE)
    default: return NULL;
    }
#undef COLL__CASE_ONCE
#undef COLL__IF_BOTH
#undef COLL__CASE
}

/* As coll_convert_stochastic says, with the kernels of one tier.  What has no kernel of its own has fewer bits than f32, into
 * which it widens exactly. */
static coll_status coll__convert_stochastic(void *dst, coll_type dst_type, const void *src, coll_type src_type, size_t count,
                                            uint64_t seed, uint64_t first, int tier)
{
    float block[1024];
    const bool is_drawn = dst_type != src_type && coll__is_float(src_type) && coll__stochastic_row(dst_type, COLL_F32, tier);
    coll__stochastic_fn *const at_once = coll__stochastic_row(dst_type, src_type, tier);

    if (!COLL__ALLOWS_STOCHASTIC) return COLL_ERR_UNSUPPORTED;
    if (!is_drawn) return coll__convert(dst, dst_type, src, src_type, count, tier);
    const size_t size = coll_type_size(src_type), dst_size = coll_type_size(dst_type);
    if (count > SIZE_MAX / (size > dst_size ? size : dst_size) || (count && (!dst || !src))
        || !coll__may_convert_there(dst, dst_size, src, size, count)) return COLL_ERR_ARGUMENT;
    if (at_once) {
        at_once(dst, src, count, seed, first);
        return COLL_OK;
    }
    coll__map *const widen = coll__conversion(COLL_F32, src_type, tier);
    coll__stochastic_fn *const draw = coll__stochastic_row(dst_type, COLL_F32, tier);
    for (size_t at = 0, length; at < count; at += length) {
        length = count - at < 1024 ? count - at : 1024;
        widen(block, (const unsigned char *)src + at * coll_type_size(src_type), length);
        draw((unsigned char *)dst + at * coll_type_size(dst_type), block, length, seed, first + at);
    }
    return COLL_OK;
}

COLL_API coll_status coll_convert_stochastic(void *dst, coll_type dst_type, const void *src, coll_type src_type, size_t count,
                                             uint64_t seed, uint64_t first)
{
    return coll__convert_stochastic(dst, dst_type, src, src_type, count, seed, first, coll__tier());
}

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#endif /* COLL_STOCHASTIC_H */
