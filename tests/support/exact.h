/* exact.h - sums of doubles without rounding, and what the manual says of COLL_REPRODUCIBLE, in whole numbers: every double is
 * a whole number of 2^-1074, and one of 2,304 bits holds every sum of them.  Nothing here adds or rounds a double. */
#ifndef EXACT_H
#define EXACT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define EXACT static __attribute__((unused))

enum { EXACT_LIMBS = 36, EXACT_UNIT = -1074 };

typedef struct exact_number { uint64_t limb[EXACT_LIMBS]; } exact_number;       /* two's complement, lowest first     */

typedef struct exact_term { bool is_negative; uint64_t mantissa; int shift; } exact_term;      /* mantissa * 2^shift   */

EXACT exact_term exact_term_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    const int field = (int)(bits >> 52 & 0x7ff);
    const uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    return (exact_term){ bits >> 63, field ? fraction | (uint64_t)1 << 52 : fraction, field ? field - 1 : 0 };
}

EXACT void exact_add(exact_number *to, exact_term t)
{
    const uint64_t part[2] = { t.mantissa << t.shift % 64, t.shift % 64 ? t.mantissa >> (64 - t.shift % 64) : 0 };
    bool carry = false;

    for (int i = t.shift / 64, k = 0; i < EXACT_LIMBS; i++, k++) {
        const uint64_t add = k < 2 ? part[k] : 0, old = to->limb[i];
        to->limb[i] = t.is_negative ? old - add - carry : old + add + carry;
        carry = t.is_negative ? old < add || (carry && old == add) : to->limb[i] < old || (carry && add == UINT64_MAX);
    }
}

/* The double nearest to a number times 2^by, ties to even. */
EXACT double exact_nearest(const exact_number *x, int by)
{
    exact_number a = *x;
    const bool is_negative = a.limb[EXACT_LIMBS - 1] >> 63;
    int top = EXACT_LIMBS * 64 - 1;
    bool carry = true, rest = false;

    for (int i = 0; is_negative && i < EXACT_LIMBS; i++) {
        a.limb[i] = ~a.limb[i] + carry;
        carry = carry && a.limb[i] == 0;
    }
    while (top >= 0 && !(a.limb[top / 64] >> top % 64 & 1)) top--;
    const int low = top < 53 ? 0 : top - 52;
    uint64_t whole = 0;
    for (int i = top; i >= low; i--) whole = whole << 1 | (a.limb[i / 64] >> i % 64 & 1);
    for (int i = 0; i < low - 1; i++) rest |= a.limb[i / 64] >> i % 64 & 1;
    if (low > 0 && (a.limb[(low - 1) / 64] >> (low - 1) % 64 & 1) && (rest || whole & 1)) whole++;
    const double size = ldexp((double)whole, low + EXACT_UNIT + by);
    return is_negative ? -size : size;
}

/* To the nearest whole number of 2^k, ties to even; *rest is the remainder. */
EXACT exact_term exact_on_grid(exact_term x, int k, exact_term *rest)
{
    const int drop = k - x.shift;

    *rest = (exact_term){ false, 0, 0 };
    if (drop <= 0) return x;
    *rest = x;
    if (drop > 54) return (exact_term){ false, 0, 0 };
    const uint64_t half = (uint64_t)1 << (drop - 1), left = x.mantissa & (2 * half - 1);
    uint64_t whole = x.mantissa >> drop;
    if (left > half || (left == half && whole & 1)) whole++;
    const uint64_t kept = whole << drop;
    *rest = kept > x.mantissa ? (exact_term){ !x.is_negative, kept - x.mantissa, x.shift }
                              : (exact_term){ x.is_negative, x.mantissa - kept, x.shift };
    return (exact_term){ x.is_negative, whole, k };
}

/* e + 1074, with every |x| below 2^e; but no less than the lowest normal number needs. */
EXACT int exact_top(const double *x, int n)
{
    int top = -1022 - EXACT_UNIT;

    for (int i = 0; i < n; i++) {
        const exact_term t = exact_term_of(x[i]);
        int length = t.shift;
        for (uint64_t m = t.mantissa; m; m >>= 1) length++;
        if (t.mantissa && length > top) top = length;
    }
    return top;
}

EXACT int exact_headroom(int n)
{
    int h = 1;
    while (((long)1 << h) < n) h++;
    return h;
}

/* The place of the last grid. */
EXACT int exact_finest(const double *x, int n, bool is_double)
{
    const int h = exact_headroom(n), first = exact_top(x, n) + h - 52, second = first + h - 52;
    return !is_double ? first : second > 0 ? second : 0;
}

/* The sum of all, after each has been rounded to the grid, or to two of them. */
EXACT exact_number exact_sum(const double *x, int n, bool is_double)
{
    const int first = exact_top(x, n) + exact_headroom(n) - 52, second = exact_finest(x, n, true);
    exact_number sum = { { 0 } };
    exact_term rest, nothing;

    for (int i = 0; i < n; i++) {
        exact_add(&sum, exact_on_grid(exact_term_of(x[i]), first, &rest));
        if (is_double) exact_add(&sum, exact_on_grid(rest, second, &nothing));
    }
    return sum;
}

/* What a reproducible sum of n values is before it is rounded to its type: terms from 2^960 on are taken 2^-64 times until
 * it has been divided and scaled. */
EXACT double exact_result(const double *x, int n, bool is_double, double divisor, double scale)
{
    bool is_nan = false, is_up = false, is_down = false, is_huge = false;

    for (int i = 0; i < n; i++) {
        is_nan |= isnan(x[i]) != 0;
        is_up |= isinf(x[i]) && x[i] > 0;
        is_down |= isinf(x[i]) && x[i] < 0;
        is_huge |= is_double && fabs(x[i]) >= 0x1p960;
    }
    if (is_nan || (is_up && is_down)) return (double)NAN;
    if (is_up || is_down) return (is_up ? (double)INFINITY : -(double)INFINITY) / divisor * scale;
    const exact_number sum = exact_sum(x, n, is_double);
    const double value = exact_nearest(&sum, is_huge ? -64 : 0) / divisor * scale;
    return is_huge ? ldexp(value, 64) : value;
}

#endif /* EXACT_H */
