/* coll_overflow.h - detects infinities and NaNs in an array (COLL_DETECT_OVERFLOW).
 *
 * Both have an exponent of all ones, so their magnitudes are at least a limit; f8e4m3 has one NaN and no infinity. */
#ifndef COLL_OVERFLOW_H
#define COLL_OVERFLOW_H

#include "coll_types.h"

/* Signed comparisons, which every vector unit has.  Scans the whole array, because overflows are rare. */
#define COLL__BEYOND_IN(tier, bits)                                                               \
    COLL__IN_##tier static bool coll__beyond_##bits##_##tier(const void *at, size_t count, uint64_t least) \
    {                                                                                             \
        const coll__raw_i##bits *in = at;                                                         \
        const int##bits##_t most = (int##bits##_t)(least - 1);                                    \
        int##bits##_t found = 0;                                                                  \
        COLL__LONG_IN_##tier(i, count, bits / 8, 1,                                               \
                             found |= coll__beyond_##bits##_base(in + whole, count - whole, least), \
                             found = (int##bits##_t)(found | ((in[i] & INT##bits##_MAX) > most));); \
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
#define COLL__CASE(TYPE, bits, times, least)                                                                       \
    case TYPE: return COLL__HAS(TYPE) && COLL__PICK(coll__beyond_##bits, tier)(at, (times) * count, UINT64_C(least));
    COLL__CASE(COLL_F8E4M3, 8, 1, 0x7f)
    COLL__CASE(COLL_F8E5M2, 8, 1, 0x7c)
    COLL__CASE(COLL_F16, 16, 1, 0x7c00)
    COLL__CASE(COLL_BF16, 16, 1, 0x7f80)
    COLL__CASE(COLL_F32, 32, 1, 0x7f800000)
    COLL__CASE(COLL_C64, 32, 2, 0x7f800000)
    COLL__CASE(COLL_F64, 64, 1, 0x7ff0000000000000)
    COLL__CASE(COLL_C128, 64, 2, 0x7ff0000000000000)
#undef COLL__CASE
    default: return false;
    }
}

#endif /* COLL_OVERFLOW_H */
