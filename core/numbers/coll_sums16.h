/* coll_sums16.h: the sums of f16 and bf16 in f32, with fewer steps than by the conversions alone.  `load` makes accumulators of
 * elements, `pair` of the sum of two, `onto` adds elements to some that are there, `whole` rounds the sum of two at once, and
 * `through` is what another rank sees of an f32 that crosses the wire in 16 bits. */
#ifndef COLL_SUMS16_H
#define COLL_SUMS16_H

#include "coll_folds.h"
#include "coll_vectors.h"

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/* ---- >>halves: f16, and what both kinds have ---- */

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
        COLL__EACH_IN_##tier(i, count, 4, , out[i] = coll__canon32(sum[i] + WIDE(in[i]));); \
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
    COLL__GROUP_ONTO_IN(tier, coll__onto_f16_##tier, coll__raw_u16, coll__get_f16_##tier)         \
    COLL__GROUP_ONTO_IN(tier, coll__onto_bf16_##tier, coll__raw_u16, coll__get_bf16_##tier)       \
    COLL__GROUP_SUM_IN(tier, coll__pair_f16_##tier, coll__keep_f32_##tier, coll__raw_f32,         \
                       coll__raw_u16, coll__get_f16_##tier)                                       \
    COLL__GROUP_SUM_IN(tier, coll__whole_f16_##tier, coll__put_f16_##tier, coll__raw_u16,         \
                       coll__raw_u16, coll__get_f16_##tier)
COLL__EACH_VECTOR(COLL__HALVES_IN, )
COLL__EACH_WIDE(COLL__MAP_IN, coll__through_bf16, coll__raw_f32, coll__raw_f32, coll__wide_bf16(coll__narrow_bf16(x)))

/* ---- >>brains: bf16, two of which are worked on at once ---- */

/* Two bf16 that lie together are worked on where they lie, within their 32 bits: the lower moves
 * up, the upper needs only a mask, and no lane of a vector changes place.  Which of the two comes
 * first in memory does not matter. */
#define COLL__LOWER_BF16(w) coll__float32((w) << 16)
#define COLL__UPPER_BF16(w) coll__float32((w) & 0xffff0000u)

COLL__INLINE uint32_t coll__join_bf16(float lower, float upper)
{
    return coll__narrow_bf16(upper) << 16 | coll__narrow_bf16(lower);
}

/* The accumulators of a block of bf16 are in an order of their own, first those of all lower
 * halves and then those of all upper ones.  An odd last element counts as a lower half. */
#define COLL__BF16_IN(tier, name)                                                                 \
    COLL__IN_##tier static void name##_load_##tier(void *to, const void *from, size_t count)      \
    {                                                                                             \
        const coll__raw_u32 *in = from;                                                           \
        coll__raw_f32 *lower = to, *upper = lower + (count - count / 2);                          \
        COLL__EACH_IN_##tier(i, count / 2, 4, ,                                                   \
                             lower[i] = COLL__LOWER_BF16(in[i]);                                  \
                             upper[i] = COLL__UPPER_BF16(in[i]););                                \
        if (count % 2) {                                                                          \
            lower[count / 2] = coll__wide_bf16(((const coll__raw_u16 *)from)[count - 1]);         \
        }                                                                                         \
    }                                                                                             \
    COLL__IN_##tier static void name##_pair_##tier(void *to, const void *a, const void *b,        \
                                                   size_t count)                                  \
    {                                                                                             \
        const coll__raw_u32 *left = a, *right = b;                                                \
        coll__raw_f32 *lower = to, *upper = lower + (count - count / 2);                          \
        COLL__EACH_IN_##tier(i, count / 2, 4, ,                                                   \
                             lower[i] = COLL__LOWER_BF16(left[i]) + COLL__LOWER_BF16(right[i]);   \
                             upper[i] = COLL__UPPER_BF16(left[i]) + COLL__UPPER_BF16(right[i]);); \
        if (count % 2) {                                                                          \
            lower[count / 2] = coll__wide_bf16(((const coll__raw_u16 *)a)[count - 1]) +           \
                               coll__wide_bf16(((const coll__raw_u16 *)b)[count - 1]);            \
        }                                                                                         \
    }                                                                                             \
    COLL__IN_##tier static void name##_onto_##tier(void *to, const void *sums, const void *from,  \
                                                   size_t count)                                  \
    {                                                                                             \
        const coll__raw_u32 *in = from;                                                           \
        const coll__raw_f32 *left = sums, *right = left + (count - count / 2);                    \
        coll__raw_f32 *lower = to, *upper = lower + (count - count / 2);                          \
        COLL__EACH_IN_##tier(i, count / 2, 4, ,                                                   \
                             lower[i] = coll__canon32(left[i] + COLL__LOWER_BF16(in[i]));         \
                             upper[i] = coll__canon32(right[i] + COLL__UPPER_BF16(in[i])););      \
        if (count % 2) {                                                                          \
            lower[count / 2] = coll__canon32(left[count / 2] +                                    \
                                             coll__wide_bf16(((const coll__raw_u16 *)from)[count - 1])); \
        }                                                                                         \
    }                                                                                             \
    COLL__IN_##tier static void name##_whole_##tier(void *to, const void *a, const void *b,       \
                                                    size_t count)                                 \
    {                                                                                             \
        const coll__raw_u32 *left = a, *right = b;                                                \
        coll__raw_u32 *out = to;                                                                  \
        COLL__EACH_IN_##tier(i, count / 2, 4, ,                                                   \
                             out[i] = coll__join_bf16(                                            \
                                 COLL__LOWER_BF16(left[i]) + COLL__LOWER_BF16(right[i]),          \
                                 COLL__UPPER_BF16(left[i]) + COLL__UPPER_BF16(right[i])););       \
        if (count % 2) {                                                                          \
            ((coll__raw_u16 *)to)[count - 1] = (uint16_t)coll__narrow_bf16(                       \
                coll__wide_bf16(((const coll__raw_u16 *)a)[count - 1]) +                          \
                coll__wide_bf16(((const coll__raw_u16 *)b)[count - 1]));                          \
        }                                                                                         \
    }                                                                                             \
    COLL__IN_##tier static void name##_store_##tier(void *to, const void *from, size_t count)     \
    {                                                                                             \
        const coll__raw_f32 *lower = from, *upper = lower + (count - count / 2);                  \
        coll__raw_u32 *out = to;                                                                  \
        COLL__EACH_IN_##tier(i, count / 2, 4, ,                                                   \
                             out[i] = coll__join_bf16(lower[i], upper[i]););                      \
        if (count % 2) {                                                                          \
            ((coll__raw_u16 *)to)[count - 1] = (uint16_t)coll__narrow_bf16(lower[count / 2]);     \
        }                                                                                         \
    }
COLL__EACH_WIDE(COLL__BF16_IN, coll__bf16)

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#endif /* COLL_SUMS16_H */
