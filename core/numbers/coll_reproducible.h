/* coll_reproducible.h: sums that are a function of their terms, whatever the order (COLL_REPRODUCIBLE).
 *
 * Per element.  Let every |x| be below 2^e, e from the largest of the n terms, and n <= 2^h.  Each term is rounded, to
 * nearest, to a whole number of g = 2^(e+h-52): that is what adding and subtracting M = 1.5 * 2^(e+h) does, for the last
 * place of every double from 2^(e+h) to 2^(e+h+1) is g.
 *
 *      M + x  =  1.1xxxxxx...xxx|      the bits behind the bar are rounded off
 *          - M  =      xxxxx...xxx|    what is left is on the grid, and exact
 *
 * No sum of them is 2^53 g or more, so each addition is exact and the order cannot show.  A term is off by g / 2 at most:
 * 2^-42 of the largest of 1,024 terms.  f16 and the 8-bit floats need no grid: from the largest number of f16 to its smallest
 * there are 40 places, and 13 are left for the sums of 8,192 terms, which f64 adds exactly.
 *
 * Doubles have more places than one grid.  What the first leaves of x, x - ((x + M) - M), is exact, and goes to a second
 * one, h - 52 places further down; the result is the one rounding of the two exact sums, and a term is off by 2^-84 of the
 * largest of 1,024.  At the lower end of the exponents the last places of all doubles are the finest grid there is.  At
 * the upper end M would overflow, so terms from 2^960 on are taken 2^-64 times, and so are all they are added to; an
 * average of large numbers is therefore finite.
 *
 * Infinities and NaNs go through all this as they go through a plain sum.  A sum of zero is +0. */
#ifndef COLL_REPRODUCIBLE_H
#define COLL_REPRODUCIBLE_H

#include "coll_overflow.h"

#if defined(__ASSOCIATIVE_MATH__) && __ASSOCIATIVE_MATH__
#error "coll.h rounds by adding and subtracting: compile its implementation without -fassociative-math."
#endif

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/* The loops of one tier, over the reals of a block.  They take two sources at a time, for memory is what they wait for.  Terms
 * are floats where there is one grid, or none, and doubles where there are two.  `peak` holds the largest magnitude of each
 * element so far, as such a number; `factor` is 1.5 * 2^(h+1), the M of an element whose peak is from 1 to 2. */
typedef struct coll__grid {
    void (*peak)(void *peak, const void *x, const void *y, size_t count);                         /* NULL: f64 is exact */
    void (*add) (double *high, double *low, const void *x, const void *y, const void *peak, double factor, size_t count);
    bool is_double;                                                   /* there are two grids                      */
    /* Of doubles only: is an element huge?  Its terms 2^-64 times; what has become of them, as often; the two sums as one. */
    bool (*is_beyond)(const void *peak, size_t count, uint64_t least);
    void (*lower)(double *to, const void *x, const double *peak, size_t count);
    void (*raise)(void *at, const double *peak, size_t count);
    void (*join) (double *high, const double *low, size_t count);
} coll__grid;

/* From here on an element is huge, and this is the largest peak from which an M is made: that of terms which are not
 * finite does not matter, but it must be. */
#define COLL__GRID_HUGE 0x1p960
#define COLL__GRID_HUGE_BITS ((UINT64_C(1023) + 960) << 52)
#define COLL__GRID_MOST 0x1p959

/* M: the exponent of the peak is one less than e.  Of a subnormal float it is 0, and then f64 is exact; of a subnormal double it
 * is that of the least normal one. */
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

/* What a peak makes of its element. */
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

/* Huge elements are rare: one text serves all tiers. */
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

/* Of numbers that f64 adds exactly, of floats, and of doubles. */
enum { COLL__GRID_OF_NONE, COLL__GRID_OF_FLOATS, COLL__GRID_OF_DOUBLES };

#define COLL__GRIDS(tier, unused)                                                                                          \
    static const coll__grid coll__grids_##tier[3] = {                                                                      \
        { NULL, coll__grid_add_exact_##tier, false, NULL, NULL, NULL, NULL },                                              \
        { coll__grid_peak_f32_##tier, coll__grid_add_f32_##tier, false, NULL, NULL, NULL, NULL },                          \
        { coll__grid_peak_f64_##tier, coll__grid_add_f64_##tier, true, coll__beyond_64_##tier, coll__grid_lower,            \
          coll__grid_raise, coll__grid_join_##tier } };
COLL__EACH_TIER(COLL__GRIDS, 0)

/* Rows of memory that a block needs.  A block of doubles has at most COLL__GRID_REALS reals, one of floats twice as many, in
 * two rows where it has doubles of them. */
enum { COLL__GRID_ROWS = 6, COLL__GRID_REALS = 256, COLL__GRID_BYTES = COLL__GRID_ROWS * COLL__GRID_REALS * 8 };

/* The least h with n <= 2^h; 1 for one term, which must not reach M / 2 either. */
static int coll__grid_headroom(int n)
{
    int h = 1;

    while ((n - 1) >> h) h++;
    return h;
}

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#endif /* COLL_REPRODUCIBLE_H */
