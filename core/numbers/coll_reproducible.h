/* coll_reproducible.h: sums that do not depend on the order of their terms (COLL_REPRODUCIBLE).
 *
 * Per element.  Let every |x| be below 2^e, e from the largest of the n terms, and n <= 2^h.  Each term is rounded, to nearest,
 * to a multiple of g = 2^(e+h-52), by adding and subtracting M = 1.5 * 2^(e+h): the last place of every double from 2^(e+h) to
 * 2^(e+h+1) is g.
 *
 *      M + x  =  1.1xxxxxx...xxx|      the bits behind the bar are rounded off
 *          - M  =      xxxxx...xxx|    the rest is on the grid, and exact
 *
 * No sum of them is 2^53 g or more, so each addition is exact and the order does not matter.  The error of a term is at most g
 * / 2: 2^-42 of the largest of 1,024 terms.  f16 and the 8-bit floats need no grid: from the largest number of f16 to its
 * smallest there are 40 places, and 13 are left for the sums of 8,192 terms, which f64 adds exactly.
 *
 * Doubles need two grids.  The remainder of the first one, x - ((x + M) - M), is exact and goes to a second grid, h - 52 places
 * lower.  The result is the two exact sums rounded once, and the error of a term is 2^-84 of the largest of 1,024.  For the
 * smallest exponents the last place of a double is the finest grid.  For the largest ones M would overflow: terms from 2^960
 * on, and all other terms of that element, are multiplied by 2^-64.  So an average of large numbers is finite.
 *
 * Infinities and NaNs behave as in a plain sum.  A sum of zero is +0. */
#ifndef COLL_REPRODUCIBLE_H
#define COLL_REPRODUCIBLE_H

#include "coll_overflow.h"

#if defined(__ASSOCIATIVE_MATH__) && __ASSOCIATIVE_MATH__
#error "coll.h rounds by adding and subtracting: compile its implementation without -fassociative-math."
#endif

/* The loops of one tier, over the reals of a block.  They take two sources at a time, because memory limits them.  Terms are
 * floats with one grid or none, doubles with two.  `peak`: the largest magnitude of each element so far, in the type of the
 * terms.  `factor` is 1.5 * 2^(h+1), the M of an element whose peak is from 1 to 2. */
typedef struct coll__grid {
    void (*peak)(void *peak, const void *x, const void *y, size_t count);                         /* NULL: f64 is exact */
    void (*add) (double *high, double *low, const void *x, const void *y, const void *peak, double factor, size_t count);
    bool is_double;                                                   /* two grids                            */
    /* For doubles only: is an element huge?  Multiply its terms by 2^-64; undo it in the result; add the two sums. */
    bool (*is_beyond)(const void *peak, size_t count, uint64_t least);
    void (*lower)(double *to, const void *x, const double *peak, size_t count);
    void (*raise)(void *at, const double *peak, size_t count);
    void (*join) (double *high, const double *low, size_t count);
} coll__grid;

/* Elements are huge from here on; and the largest peak for M.  Terms that are not finite do not matter, but M must be finite. */
#define COLL__GRID_HUGE 0x1p960
#define COLL__GRID_HUGE_BITS ((UINT64_C(1023) + 960) << 52)
#define COLL__GRID_MOST 0x1p959

/* M: the exponent of the peak is e - 1.  For a subnormal float it is 0, and f64 is exact; for a subnormal double it is that of
 * the smallest normal one. */
COLL__INLINE double coll__grid_ruler_f32(int32_t peak, double factor)
{
    const int32_t power = peak & 0x7f800000;
    return (double)coll__float32(power < 0x7f000000 ? (uint32_t)power : 0x7f000000u) * factor;
}

COLL__INLINE double coll__grid_ruler_f64(double peak, double factor)
{
    const double power = coll__float64(coll__bits64(peak) & UINT64_C(0x7ff0000000000000));
    const double least = power > 0x1p-1022 ? power : 0x1p-1022;
    return (least < COLL__GRID_MOST ? least : COLL__GRID_MOST) * factor;
}

COLL__INLINE double coll__grid_magnitude(double x) { return coll__float64(coll__bits64(x) & UINT64_C(0x7fffffffffffffff)); }

/* The factor of an element with this peak. */
COLL__INLINE double coll__grid_down(double peak) { return peak < COLL__GRID_HUGE ? 1 : 0x1p-64; }

#define COLL__GRID_IN(tier, ...)                                                                                           \
    COLL__IN_##tier static void coll__grid_peak_f32_##tier(void *peak, const void *x, const void *y, size_t count)         \
    {                                                                                                                      \
        coll__raw_i32 *most = peak;                                                                                        \
        const coll__raw_i32 *one = x, *two = y;                                                                            \
        COLL__EACH_IN_##tier(i, count, 4, 1,                                                                               \
                             coll__grid_peak_f32_base(most + whole, one + whole, two + whole, count - whole),              \
            const int32_t a = one[i] & INT32_MAX, b = two[i] & INT32_MAX, larger = a > b ? a : b;                          \
            most[i] = larger > most[i] ? larger : most[i];);                                                               \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_add_f32_##tier(double *high, double *low, const void *x, const void *y,         \
                                                          const void *peak, double factor, size_t count)                   \
    {                                                                                                                      \
        const coll__raw_f32 *one = x, *two = y;                                                                            \
        const coll__raw_i32 *most = peak;                                                                                  \
        (void)low;                                                                                                         \
        COLL__EACH_IN_##tier(i, count, 4, 1,                                                                               \
                             coll__grid_add_f32_base(high + whole, low, one + whole, two + whole, most + whole, factor,    \
                                                     count - whole),                                                       \
            const double ruler = coll__grid_ruler_f32(most[i], factor);                                                    \
            const double a = (double)one[i] + ruler, b = (double)two[i] + ruler;                                           \
            high[i] = high[i] + ((a - ruler) + (b - ruler)););                                                             \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_add_exact_##tier(double *high, double *low, const void *x, const void *y,       \
                                                            const void *peak, double factor, size_t count)                 \
    {                                                                                                                      \
        const coll__raw_f32 *one = x, *two = y;                                                                            \
        (void)low, (void)peak, (void)factor;                                                                               \
        COLL__EACH_IN_##tier(i, count, 4, 1,                                                                               \
                             coll__grid_add_exact_base(high + whole, low, one + whole, two + whole, peak, factor,          \
                                                       count - whole),                                                     \
            high[i] = high[i] + ((double)one[i] + (double)two[i]););                                                       \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_peak_f64_##tier(void *peak, const void *x, const void *y, size_t count)         \
    {                                                                                                                      \
        coll__raw_f64 *most = peak;                                                                                        \
        const coll__raw_f64 *one = x, *two = y;                                                                            \
        COLL__EACH_IN_##tier(i, count, 8, 1,                                                                               \
                             coll__grid_peak_f64_base(most + whole, one + whole, two + whole, count - whole),              \
            const double a = coll__grid_magnitude(one[i]), b = coll__grid_magnitude(two[i]), larger = a > b ? a : b;       \
            most[i] = larger > most[i] ? larger : most[i];);                                                               \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_add_f64_##tier(double *high, double *low, const void *x, const void *y,         \
                                                          const void *peak, double factor, size_t count)                   \
    {                                                                                                                      \
        const coll__raw_f64 *one = x, *two = y, *most = peak;                                                              \
        const double apart = factor / 1.5 * 0x1p-53;                                                                   \
        COLL__EACH_IN_##tier(i, count, 8, 1,                                                                               \
                             coll__grid_add_f64_base(high + whole, low + whole, one + whole, two + whole, most + whole,    \
                                                     factor, count - whole),                                               \
            const double ruler = coll__grid_ruler_f64(most[i], factor), second = ruler * apart;                        \
            const double fine = second > 0x1.8p-1022 ? second : 0x1.8p-1022;                                               \
            const double a = (one[i] + ruler) - ruler, b = (two[i] + ruler) - ruler;                                       \
            high[i] = high[i] + (a + b);                                                                                   \
            low[i] = low[i] + ((((one[i] - a) + fine) - fine) + (((two[i] - b) + fine) - fine)););                         \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_join_##tier(double *high, const double *low, size_t count)                      \
    {                                                                                                                      \
        COLL__EACH_IN_##tier(i, count, 8, 1, coll__grid_join_base(high + whole, low + whole, count - whole),               \
            high[i] = coll__grid_magnitude(high[i]) <= 0x1.fffffffffffffp1023 ? high[i] + low[i] : high[i];);              \
    }
COLL__EACH_TIER(COLL__GRID_IN, 0)

/* Huge elements are rare: one version for all tiers. */
COLL__IN_base static void coll__grid_lower(double *to, const void *from, const double *peak, size_t count)
{
    const coll__raw_f64 *in = from;
    COLL__FREE_base for (size_t i = 0; i < count; i++) to[i] = in[i] * coll__grid_down(peak[i]);
}

COLL__IN_base static void coll__grid_raise(void *at, const double *peak, size_t count)
{
    coll__raw_f64 *to = at;
    COLL__FREE_base for (size_t i = 0; i < count; i++) to[i] = coll__canon64(to[i] / coll__grid_down(peak[i]));
}

/* For terms that f64 adds exactly, for floats, for doubles. */
enum { COLL__GRID_OF_NONE, COLL__GRID_OF_FLOATS, COLL__GRID_OF_DOUBLES };

#define COLL__GRIDS(tier, unused)                                                                                          \
    static const coll__grid coll__grids_##tier[3] = {                                                                      \
        { NULL, coll__grid_add_exact_##tier, false, NULL, NULL, NULL, NULL },                                              \
        { coll__grid_peak_f32_##tier, coll__grid_add_f32_##tier, false, NULL, NULL, NULL, NULL },                          \
        { coll__grid_peak_f64_##tier, coll__grid_add_f64_##tier, true, coll__beyond_64_##tier, coll__grid_lower,            \
          coll__grid_raise, coll__grid_join_##tier } };
COLL__EACH_TIER(COLL__GRIDS, 0)

/* Rows of memory for a block.  A block of doubles has at most COLL__GRID_REALS reals; one of floats has twice as many, in two
 * rows if they become doubles. */
enum { COLL__GRID_ROWS = 6, COLL__GRID_REALS = 256, COLL__GRID_BYTES = COLL__GRID_ROWS * COLL__GRID_REALS * 8 };

#endif /* COLL_REPRODUCIBLE_H */
