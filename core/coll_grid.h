/* coll_grid.h: sums that are a function of their terms, whatever the order (COLL_REPRODUCIBLE).
 *
 * Per element.  Let every |x| be below 2^e, e from the largest of the n terms, and n <= 2^h.  Each term is rounded, to
 * nearest, to a whole number of g = 2^(e+h-52): that is what adding and subtracting M = 1.5 * 2^(e+h) does, for the last
 * place of every double from 2^(e+h) to 2^(e+h+1) is g.
 *
 *      M + x  =  1.1xxxxxx...xxx|      the bits behind the bar are rounded off
 *          - M  =      xxxxx...xxx|    what is left is on the grid, and exact
 *
 * No sum of them is 2^53 g or more, so each addition is exact and the order cannot show.  A term is off by g / 2 at most:
 * 2^-42 of the largest of 1,024 terms.  f16 loses nothing: from its largest number to its smallest there are 40 places, and
 * 12 are left for the 4,096 terms that they allow.
 *
 * Doubles have more places than one grid.  What the first leaves of x, x - ((x + M) - M), is exact, and goes to a second
 * one, h - 52 places further down; the result is the one rounding of the two exact sums, and a term is off by 2^-84 of the
 * largest of 1,024.  At the lower end of the exponents the last places of all doubles are the finest grid there is.  At
 * the upper end M would overflow, so terms from 2^960 on are taken 2^-64 times, and so are all they are added to; an
 * average of large numbers is therefore finite.
 *
 * Infinities and NaNs go through all this as they go through a plain sum.  A sum of zero is +0. */
#ifndef COLL_GRID_H
#define COLL_GRID_H

#if defined(__ASSOCIATIVE_MATH__) && __ASSOCIATIVE_MATH__
#error "coll.h rounds by adding and subtracting: compile its implementation without -fassociative-math."
#endif

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/* The loops of one tier, over the reals of a block.  Terms are floats where there is one grid, and doubles where there are
 * two.  `peak` holds the largest magnitude of each element so far, as such a number; `ruler` and `fine` the M of both grids. */
typedef struct coll__grid {
    void (*peak) (void *peak, const void *x, size_t count);
    void (*rule) (double *ruler, double *fine, const void *peak, size_t count, int h);
    void (*add)  (double *high, double *low, const void *x, const double *ruler, const double *fine, size_t count);
    bool is_double;                                                   /* there are two grids                      */
    /* Of doubles only: is an element huge?  Its terms 2^-64 times; what has become of them, as often; the two sums as one. */
    bool (*is_huge)(const double *peak, size_t count);
    void (*lower)(double *to, const void *x, const double *peak, size_t count);
    void (*raise)(void *at, const double *peak, size_t count);
    void (*join) (double *high, const double *low, size_t count);
} coll__grid;

/* From here on an element is huge, and this is the largest peak from which an M is made: that of terms which are not
 * finite does not matter, but it must be. */
#define COLL__GRID_HUGE 0x1p960
#define COLL__GRID_MOST 0x1p959

/* 1.5 * 2^(e+h): the exponent of the peak is one less than e. */
COLL__INLINE double coll__grid_ruler(double peak, int h)
{
    const uint64_t bits = coll__bits64(peak < COLL__GRID_MOST ? peak : COLL__GRID_MOST);
    return coll__float64((bits & UINT64_C(0x7ff0000000000000)) + ((uint64_t)(h + 1) << 52) + (UINT64_C(1) << 51));
}

COLL__INLINE double coll__grid_magnitude(double x) { return coll__float64(coll__bits64(x) & UINT64_C(0x7fffffffffffffff)); }

/* What a peak makes of its element. */
COLL__INLINE double coll__grid_down(double peak) { return peak < COLL__GRID_HUGE ? 1 : 0x1p-64; }

#define COLL__GRID_IN(tier, ...)                                                                                           \
    COLL__IN_##tier static void coll__grid_peak_f32_##tier(void *peak, const void *from, size_t count)                     \
    {                                                                                                                      \
        coll__raw_i32 *most = peak;                                                                                        \
        const coll__raw_i32 *in = from;                                                                                    \
        COLL__FREE for (size_t i = 0; i < count; i++) {                                                                    \
            const int32_t x = in[i] & INT32_MAX, old = most[i];                                                            \
            most[i] = x > old ? x : old;                                                                                   \
        }                                                                                                                  \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_rule_f32_##tier(double *ruler, double *fine, const void *peak, size_t count, int h)\
    {                                                                                                                      \
        const coll__raw_f32 *most = peak;                                                                                  \
        (void)fine;                                                                                                        \
        COLL__FREE for (size_t i = 0; i < count; i++) ruler[i] = coll__grid_ruler((double)most[i], h);                     \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_add_f32_##tier(double *high, double *low, const void *from, const double *ruler,\
                                                          const double *fine, size_t count)                                \
    {                                                                                                                      \
        const coll__raw_f32 *in = from;                                                                                    \
        (void)low, (void)fine;                                                                                             \
        COLL__FREE for (size_t i = 0; i < count; i++) {                                                                    \
            const double raised = (double)in[i] + ruler[i];                                                                \
            high[i] += raised - ruler[i];                                                                                  \
        }                                                                                                                  \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_peak_f64_##tier(void *peak, const void *from, size_t count)                     \
    {                                                                                                                      \
        coll__raw_f64 *most = peak;                                                                                        \
        const coll__raw_f64 *in = from;                                                                                    \
        COLL__FREE for (size_t i = 0; i < count; i++) {                                                                    \
            const double x = coll__grid_magnitude(in[i]), old = most[i];                                                   \
            most[i] = x > old ? x : old;                                                                                   \
        }                                                                                                                  \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_rule_f64_##tier(double *ruler, double *fine, const void *peak, size_t count, int h)\
    {                                                                                                                      \
        const double step = coll__float64((uint64_t)(1023 - 52 + h) << 52);                                                \
        const coll__raw_f64 *most = peak;                                                                                  \
        COLL__FREE for (size_t i = 0; i < count; i++) {                                                                    \
            const double first = coll__grid_ruler(most[i] < COLL__GRID_HUGE ? most[i] : most[i] * 0x1p-64, h);             \
            const double second = first * step;                                                                            \
            ruler[i] = first;                                                                                              \
            fine[i] = second > 0x1.8p-1022 ? second : 0x1.8p-1022;                                                         \
        }                                                                                                                  \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_add_f64_##tier(double *high, double *low, const void *from, const double *ruler,\
                                                          const double *fine, size_t count)                                \
    {                                                                                                                      \
        const coll__raw_f64 *in = from;                                                                                    \
        COLL__FREE for (size_t i = 0; i < count; i++) {                                                                    \
            const double raised = in[i] + ruler[i], part = raised - ruler[i];                                              \
            const double again = (in[i] - part) + fine[i];                                                                 \
            high[i] += part;                                                                                               \
            low[i] += again - fine[i];                                                                                     \
        }                                                                                                                  \
    }                                                                                                                      \
    COLL__IN_##tier static bool coll__grid_huge_##tier(const double *peak, size_t count)                                   \
    {                                                                                                                      \
        int64_t found = 0;                                                                                                 \
        for (size_t i = 0; i < count; i++) found |= peak[i] >= COLL__GRID_HUGE;                                            \
        return found != 0;                                                                                                 \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_lower_##tier(double *to, const void *from, const double *peak, size_t count)    \
    {                                                                                                                      \
        const coll__raw_f64 *in = from;                                                                                    \
        COLL__FREE for (size_t i = 0; i < count; i++) to[i] = in[i] * coll__grid_down(peak[i]);                            \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_raise_##tier(void *at, const double *peak, size_t count)                        \
    {                                                                                                                      \
        coll__raw_f64 *to = at;                                                                                            \
        COLL__FREE for (size_t i = 0; i < count; i++) to[i] = coll__canon64(to[i] / coll__grid_down(peak[i]));             \
    }                                                                                                                      \
    COLL__IN_##tier static void coll__grid_join_##tier(double *high, const double *low, size_t count)                      \
    {                                                                                                                      \
        COLL__FREE for (size_t i = 0; i < count; i++)                                                                      \
            high[i] = coll__grid_magnitude(high[i]) <= 0x1.fffffffffffffp1023 ? high[i] + low[i] : high[i];                \
    }
COLL__EACH_TIER(COLL__GRID_IN, 0)

/* Of floats, and of doubles. */
#define COLL__GRIDS(tier, unused)                                                                                          \
    static const coll__grid coll__grids_##tier[2] = {                                                                      \
    { coll__grid_peak_f32_##tier, coll__grid_rule_f32_##tier, coll__grid_add_f32_##tier, false, NULL, NULL, NULL, NULL },  \
    { coll__grid_peak_f64_##tier, coll__grid_rule_f64_##tier, coll__grid_add_f64_##tier, true, coll__grid_huge_##tier,     \
      coll__grid_lower_##tier, coll__grid_raise_##tier, coll__grid_join_##tier } };
COLL__EACH_TIER(COLL__GRIDS, 0)

/* Rows of memory that a block needs.  A block of doubles has at most COLL__GRID_REALS reals, one of floats twice as many, in
 * two rows where it has doubles of them. */
enum { COLL__GRID_ROWS = 6, COLL__GRID_REALS = 256 };

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

#endif /* COLL_GRID_H */
