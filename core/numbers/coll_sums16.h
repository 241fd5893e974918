/* coll_sums16.h - sums of f16 and bf16 in f32, with fewer steps than through conversions.  `load` converts elements to
 * accumulators, `pair` adds two elements, `onto` adds an element to a sum, `whole` adds and rounds.  `through` rounds an f32 to
 * 16 bits and back, as another rank receives it. */
#ifndef COLL_SUMS16_H
#define COLL_SUMS16_H

#include "coll_reduce_ops.h"
#include "coll_simd.h"

/* ---- >>halves: f16, and common parts ---- */

#if !defined(__aarch64__)
#define COLL__SUM_F16 coll__wide_f16(a) + coll__wide_f16(b)
COLL__MAP_IN(base, coll__load_f16, coll__raw_f32, coll__raw_u16, coll__wide_f16(x))
COLL__MAP_IN(base, coll__load_bf16, coll__raw_f32, coll__raw_u16, coll__wide_bf16(x))
COLL__MAP_IN(base, coll__through_f16, coll__raw_f32, coll__raw_f32, coll__wide_f16(coll__narrow_f16(x)))
COLL__FOLD_IN(base, coll__pair_f16, coll__raw_f32, coll__raw_u16, COLL__SUM_F16)
COLL__FOLD_IN(base, coll__whole_f16, coll__raw_u16, coll__raw_u16, (uint16_t)coll__narrow_f16(COLL__SUM_F16))

#define COLL__ONTO_IN(tier, name, WIDE)                                                           \
    COLL__IN_##tier static void name##_##tier(void *to, const void *sums, const void *from, size_t count) \
    {                                                                                             \
        coll__raw_f32 *out = to;                                                                  \
        const coll__raw_f32 *sum = sums;                                                          \
        const coll__raw_u16 *in = from;                                                           \
        COLL__EACH_IN_##tier(i, count, 4, 1, , out[i] = coll__canon32(sum[i] + WIDE(in[i])););     \
    }
COLL__ONTO_IN(base, coll__onto_f16, coll__wide_f16)
COLL__ONTO_IN(base, coll__onto_bf16, coll__wide_bf16)
#endif

#define COLL__HALVES_IN(tier, unused)                                                             \
    COLL__GROUP_MAP_IN(tier, coll__load_f16_##tier, coll__keep_f32_##tier, coll__raw_f32,         \
                       coll__raw_u16, coll__get_f16_##tier(at))                                   \
    COLL__GROUP_MAP_IN(tier, coll__load_bf16_##tier, coll__keep_f32_##tier, coll__raw_f32,        \
                       coll__raw_u16, coll__get_bf16_##tier(at))                                  \
    COLL__GROUP_MAP_IN(tier, coll__through_f16_##tier, coll__keep_f32_##tier, coll__raw_f32,      \
                       coll__raw_f32, coll__through_##tier(coll__get_f32_##tier(at)))             \
    COLL__GROUP_SUM_IN(tier, coll__onto_f16_##tier, coll__put_f32_##tier, coll__raw_f32,          \
                       coll__raw_f32, coll__get_f32_##tier, coll__raw_u16, coll__get_f16_##tier)  \
    COLL__GROUP_SUM_IN(tier, coll__onto_bf16_##tier, coll__put_f32_##tier, coll__raw_f32,         \
                       coll__raw_f32, coll__get_f32_##tier, coll__raw_u16, coll__get_bf16_##tier) \
    COLL__GROUP_SUM_IN(tier, coll__pair_f16_##tier, coll__keep_f32_##tier, coll__raw_f32,         \
                       coll__raw_u16, coll__get_f16_##tier, coll__raw_u16, coll__get_f16_##tier)  \
    COLL__GROUP_SUM_IN(tier, coll__whole_f16_##tier, coll__put_f16_##tier, coll__raw_u16,         \
                       coll__raw_u16, coll__get_f16_##tier, coll__raw_u16, coll__get_f16_##tier)
COLL__EACH_VECTOR(COLL__HALVES_IN, )
COLL__EACH_WIDE(COLL__MAP_IN, coll__through_bf16, coll__raw_f32, coll__raw_f32, coll__wide_bf16(coll__narrow_bf16(x)))

/* ---- >>brains: bf16, two at once ---- */

/* Two adjacent bf16 are processed within their 32 bits: the lower one is shifted, the upper one is masked, and no vector lane
 * moves.  It does not matter which comes first in memory. */
#define COLL__LOWER_BF16(w) coll__float32((w) << 16)
#define COLL__UPPER_BF16(w) coll__float32((w) & 0xffff0000u)

COLL__INLINE uint32_t coll__join_bf16(float lower, float upper)
{
    return coll__narrow_bf16(upper) << 16 | coll__narrow_bf16(lower);
}

/* The accumulators of a block of bf16 are in another order: first those of all lower halves, then those of all upper ones.  An
 * odd last element counts as a lower half. */
typedef coll__raw_f32 *coll__sums_at;
typedef const coll__raw_f32 *coll__terms_at;
typedef const coll__raw_u32 *coll__pairs_at;

#define COLL__BF16_PAIRS_IN(tier, name)                                                           \
    COLL__IN_##tier static void name##_load_pairs_##tier(coll__sums_at lower, coll__sums_at upper, coll__pairs_at in, \
                                                         size_t count)                            \
    {                                                                                             \
        COLL__EACH_IN_##tier(i, count, 4, 1,                                                       \
                             name##_load_pairs_base(lower + whole, upper + whole, in + whole, count - whole), \
                             lower[i] = COLL__LOWER_BF16(in[i]);                                  \
                             upper[i] = COLL__UPPER_BF16(in[i]););                                \
    }                                                                                             \
    COLL__IN_##tier static void name##_pair_pairs_##tier(coll__sums_at lower, coll__sums_at upper, coll__pairs_at left, \
                                                         coll__pairs_at right, size_t count)      \
    {                                                                                             \
        COLL__EACH_IN_##tier(i, count, 4, 1,                                                       \
                             name##_pair_pairs_base(lower + whole, upper + whole, left + whole, right + whole, count - whole), \
                             lower[i] = COLL__LOWER_BF16(left[i]) + COLL__LOWER_BF16(right[i]);   \
                             upper[i] = COLL__UPPER_BF16(left[i]) + COLL__UPPER_BF16(right[i]);); \
    }                                                                                             \
    COLL__IN_##tier static void name##_onto_pairs_##tier(coll__sums_at lower, coll__sums_at upper, coll__terms_at left, \
                                                         coll__terms_at right, coll__pairs_at in, size_t count) \
    {                                                                                             \
        COLL__EACH_IN_##tier(i, count, 4, 1,                                                       \
                             name##_onto_pairs_base(lower + whole, upper + whole, left + whole, right + whole, in + whole, \
                                                    count - whole),                               \
                             lower[i] = coll__canon32(left[i] + COLL__LOWER_BF16(in[i]));         \
                             upper[i] = coll__canon32(right[i] + COLL__UPPER_BF16(in[i])););      \
    }                                                                                             \
    COLL__IN_##tier static void name##_whole_pairs_##tier(coll__raw_u32 *out, coll__pairs_at left, coll__pairs_at right, \
                                                          size_t count)                           \
    {                                                                                             \
        COLL__EACH_IN_##tier(i, count, 4, 1,                                                       \
                             name##_whole_pairs_base(out + whole, left + whole, right + whole, count - whole), \
                             out[i] = coll__join_bf16(                                            \
                                 COLL__LOWER_BF16(left[i]) + COLL__LOWER_BF16(right[i]),          \
                                 COLL__UPPER_BF16(left[i]) + COLL__UPPER_BF16(right[i])););       \
    }                                                                                             \
    COLL__IN_##tier static void name##_store_pairs_##tier(coll__raw_u32 *out, coll__terms_at lower, coll__terms_at upper, \
                                                          size_t count)                           \
    {                                                                                             \
        COLL__EACH_IN_##tier(i, count, 4, 1,                                                       \
                             name##_store_pairs_base(out + whole, lower + whole, upper + whole, count - whole), \
                             out[i] = coll__join_bf16(lower[i], upper[i]););                      \
    }
COLL__EACH_WIDE(COLL__BF16_PAIRS_IN, coll__bf16)

#define COLL__LAST_BF16(from) coll__wide_bf16(((const coll__raw_u16 *)(from))[count - 1])
#define COLL__BF16_IN(tier, name)                                                                 \
    COLL__IN_##tier static void name##_load_##tier(void *to, const void *from, size_t count)      \
    {                                                                                             \
        const coll__sums_at lower = to;                                                           \
        name##_load_pairs_##tier(lower, lower + (count - count / 2), from, count / 2);            \
        if (count % 2) lower[count / 2] = COLL__LAST_BF16(from);                                  \
    }                                                                                             \
    COLL__IN_##tier static void name##_pair_##tier(void *to, const void *a, const void *b, size_t count) \
    {                                                                                             \
        const coll__sums_at lower = to;                                                           \
        name##_pair_pairs_##tier(lower, lower + (count - count / 2), a, b, count / 2);            \
        if (count % 2) lower[count / 2] = COLL__LAST_BF16(a) + COLL__LAST_BF16(b);                \
    }                                                                                             \
    COLL__IN_##tier static void name##_onto_##tier(void *to, const void *sums, const void *from, size_t count) \
    {                                                                                             \
        const coll__sums_at lower = to;                                                           \
        const coll__terms_at left = sums;                                                         \
        name##_onto_pairs_##tier(lower, lower + (count - count / 2), left, left + (count - count / 2), from, count / 2); \
        if (count % 2) lower[count / 2] = coll__canon32(left[count / 2] + COLL__LAST_BF16(from)); \
    }                                                                                             \
    COLL__IN_##tier static void name##_whole_##tier(void *to, const void *a, const void *b, size_t count) \
    {                                                                                             \
        name##_whole_pairs_##tier(to, a, b, count / 2);                                           \
        if (count % 2)                                                                            \
            ((coll__raw_u16 *)to)[count - 1] = (uint16_t)coll__narrow_bf16(COLL__LAST_BF16(a) + COLL__LAST_BF16(b)); \
    }                                                                                             \
    COLL__IN_##tier static void name##_store_##tier(void *to, const void *from, size_t count)     \
    {                                                                                             \
        const coll__terms_at lower = from;                                                        \
        name##_store_pairs_##tier(to, lower, lower + (count - count / 2), count / 2);             \
        if (count % 2) ((coll__raw_u16 *)to)[count - 1] = (uint16_t)coll__narrow_bf16(lower[count / 2]); \
    }
COLL__EACH_WIDE(COLL__BF16_IN, coll__bf16)

#endif /* COLL_SUMS16_H */
