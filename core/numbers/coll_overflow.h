/* coll_overflow.h: is there an infinity or a NaN among these numbers?  (COLL_DETECT_OVERFLOW)
 *
 * Both have an exponent of all ones, so a magnitude from the least such on; f8e4m3, which has no infinity, has one NaN. */
#ifndef COLL_OVERFLOW_H
#define COLL_OVERFLOW_H

#include "coll_types.h"

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/* Signed comparisons, which every vector unit has; the whole array, for it is rare that there is anything to find. */
#define COLL__BEYOND_IN(tier, bits)                                                               \
    COLL__IN_##tier static bool coll__beyond_##bits##_##tier(const void *at, size_t count, uint64_t least) \
    {                                                                                             \
        const coll__raw_i##bits *in = at;                                                         \
        const int##bits##_t most = (int##bits##_t)(least - 1);                                    \
        int##bits##_t found = 0;                                                                  \
        for (size_t i = 0; i < count; i++)                                                        \
            found = (int##bits##_t)(found | ((in[i] & INT##bits##_MAX) > most));                  \
        return found != 0;                                                                        \
    }
COLL__EACH_TIER(COLL__BEYOND_IN, 8)
COLL__EACH_TIER(COLL__BEYOND_IN, 16)
COLL__EACH_TIER(COLL__BEYOND_IN, 32)
COLL__EACH_TIER(COLL__BEYOND_IN, 64)

/* False for types that have neither. */
COLL__UNUSED static bool coll__overflows(const void *at, size_t count, coll_type type)
{
    const int tier = coll__tier();

    switch (type) {
    case COLL_F8E4M3: return COLL__PICK(coll__beyond_8, tier)(at, count, 0x7f);
    case COLL_F8E5M2: return COLL__PICK(coll__beyond_8, tier)(at, count, 0x7c);
    case COLL_F16:    return COLL__PICK(coll__beyond_16, tier)(at, count, 0x7c00);
    case COLL_BF16:   return COLL__PICK(coll__beyond_16, tier)(at, count, 0x7f80);
    case COLL_F32:    return COLL__PICK(coll__beyond_32, tier)(at, count, 0x7f800000);
    case COLL_C64:    return COLL__PICK(coll__beyond_32, tier)(at, 2 * count, 0x7f800000);
    case COLL_F64:    return COLL__PICK(coll__beyond_64, tier)(at, count, UINT64_C(0x7ff0000000000000));
    case COLL_C128:   return COLL__PICK(coll__beyond_64, tier)(at, 2 * count, UINT64_C(0x7ff0000000000000));
    default:          return false;
    }
}

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#endif /* COLL_OVERFLOW_H */
