/* support_numbers.h - the tests' own knowledge of element types, and their own arithmetic, which does not use the library.
 * Used after coll.h, through support.h or alone. */
#ifndef SUPPORT_NUMBERS_H
#define SUPPORT_NUMBERS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SUPPORT static __attribute__((unused))

/* ---- >>numbers: the manual's paragraph on them, as plainly as it can be written ---- */

/* The test's own knowledge of the types, and its own arithmetic: nothing here calls the library. */
typedef struct support_type {
    coll_type   type;
    const char *name;
    size_t      size;
    bool        is_signed;
    int         exponent_bits, fraction_bits;     /* 0: an integer                                            */
} support_type;

static const support_type support_types[] = {
    { COLL_I8, "i8", 1, true, 0, 0 },   { COLL_I16, "i16", 2, true, 0, 0 },
    { COLL_I32, "i32", 4, true, 0, 0 }, { COLL_I64, "i64", 8, true, 0, 0 },
    { COLL_U8, "u8", 1, false, 0, 0 },  { COLL_U16, "u16", 2, false, 0, 0 },
    { COLL_U32, "u32", 4, false, 0, 0 }, { COLL_U64, "u64", 8, false, 0, 0 },
    { COLL_F16, "f16", 2, true, 5, 10 }, { COLL_BF16, "bf16", 2, true, 8, 7 },
    { COLL_F32, "f32", 4, true, 8, 23 }, { COLL_F64, "f64", 8, true, 11, 52 }
};
enum { SUPPORT_TYPE_COUNT = sizeof support_types / sizeof *support_types };

SUPPORT const support_type *support_type_of(coll_type type)
{
    for (int i = 0; i < SUPPORT_TYPE_COUNT; i++)
        if (support_types[i].type == type) return &support_types[i];
    return NULL;
}

/* An element as bits, and back. */
SUPPORT uint64_t support_load(const support_type *type, const void *from)
{
    uint8_t b;
    uint16_t h;
    uint32_t w;
    uint64_t d;

    switch (type->size) {
    case 1:  memcpy(&b, from, 1); return b;
    case 2:  memcpy(&h, from, 2); return h;
    case 4:  memcpy(&w, from, 4); return w;
    default: memcpy(&d, from, 8); return d;
    }
}

SUPPORT void support_store(const support_type *type, void *to, uint64_t bits)
{
    const uint8_t b = (uint8_t)bits;
    const uint16_t h = (uint16_t)bits;
    const uint32_t w = (uint32_t)bits;

    switch (type->size) {
    case 1:  memcpy(to, &b, 1); break;
    case 2:  memcpy(to, &h, 2); break;
    case 4:  memcpy(to, &w, 4); break;
    default: memcpy(to, &bits, 8); break;
    }
}

/* The value of a float's bits: fraction * 2^exponent, by the definition.  Every type here fits a double. */
SUPPORT double support_value(const support_type *type, uint64_t bits)
{
    const int fraction_bits = type->fraction_bits, top = (1 << type->exponent_bits) - 1, bias = top / 2;
    const int exponent = (int)(bits >> fraction_bits) & top;
    const uint64_t one = UINT64_C(1) << fraction_bits, fraction = bits & (one - 1);
    double value;

    if (type->type == COLL_F64) {
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (exponent == top) value = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0) value = ldexp((double)fraction, 1 - bias - fraction_bits);
    else value = ldexp((double)(one + fraction), exponent - bias - fraction_bits);
    return bits >> (fraction_bits + type->exponent_bits) & 1 ? -value : value;
}

/* The nearest float of a type, ties to even, too large ones infinite, NaN the canonical one.
 *
 * The value is measured in units in the last place of its binade, or of the lowest one.  The whole number of units,
 * implicit bit included, added to the exponent field below the binade's gives the bits, also when rounding carries. */
SUPPORT uint64_t support_bits(const support_type *type, double value)
{
    const int fraction_bits = type->fraction_bits, top = (1 << type->exponent_bits) - 1, lowest = 1 - top / 2;
    const uint64_t infinite = (uint64_t)top << fraction_bits;
    const uint64_t sign = (uint64_t)(signbit(value) != 0) << (fraction_bits + type->exponent_bits);
    const double magnitude = fabs(value);
    int exponent;

    if (isnan(value)) return infinite | UINT64_C(1) << (fraction_bits - 1);
    if (isinf(value)) return sign | infinite;
    if (magnitude == 0) return sign;
    (void)frexp(magnitude, &exponent);
    if (--exponent < lowest) exponent = lowest;

    const double scaled = ldexp(magnitude, fraction_bits - exponent);
    uint64_t units = (uint64_t)scaled;
    const double rest = scaled - (double)units;
    if (rest > 0.5 || (rest == 0.5 && units % 2)) units++;

    const uint64_t bits = ((uint64_t)(exponent - lowest) << fraction_bits) + units;
    return sign | (bits < infinite ? bits : infinite);
}

/* a op b; and the pairwise tree, whose left half is the largest power of two below n: ((0+1)+(2+3))+((4+5)+6). */
#define SUPPORT_ARITHMETIC(real)                                                                    \
    SUPPORT real support_combine_##real(coll_op op, real a, real b)                                 \
    {                                                                                               \
        if (isnan(a) || isnan(b)) return (real)NAN;                                                 \
        if (op == COLL_SUM || op == COLL_AVG) return a + b;                                         \
        if (op == COLL_PROD) return a * b;                                                          \
        const bool a_is_less = a < b || (a == b && signbit(a) && !signbit(b));                      \
        return a_is_less == (op == COLL_MIN) ? a : b;                                               \
    }                                                                                               \
    SUPPORT real support_tree_##real(coll_op op, const real *v, int n)                              \
    {                                                                                               \
        int left = 1;                                                                               \
        if (n == 1) return v[0];                                                                    \
        while (2 * left < n) left *= 2;                                                             \
        const real low = support_tree_##real(op, v, left);                                          \
        return support_combine_##real(op, low, support_tree_##real(op, v + left, n - left));        \
    }
SUPPORT_ARITHMETIC(float)
SUPPORT_ARITHMETIC(double)

/* An integer of a type with all the bits of 64. */
SUPPORT uint64_t support_extended(const support_type *type, uint64_t bits)
{
    const uint64_t above = type->size == 8 ? 0 : ~UINT64_C(0) << type->size * 8;
    return type->is_signed && bits >> (type->size * 8 - 1) ? bits | above : bits;
}

SUPPORT bool support_is_less(const support_type *type, uint64_t a, uint64_t b)
{
    const uint64_t x = support_extended(type, a), y = support_extended(type, b);
    return type->is_signed ? (int64_t)x < (int64_t)y : x < y;
}

/* The exact sum divided, truncated toward zero: of quotients, and of remainders, so that 64 bits are enough. */
SUPPORT uint64_t support_average(const support_type *type, const uint64_t *bits, int n)
{
    int64_t quotient = 0, rest = 0;
    uint64_t whole = 0, part = 0;

    for (int i = 0; i < n; i++) {
        const uint64_t value = support_extended(type, bits[i]);
        quotient += type->is_signed ? (int64_t)value / n : 0;
        rest += type->is_signed ? (int64_t)value % n : 0;
        whole += value / (uint64_t)n;
        part += value % (uint64_t)n;
    }
    if (!type->is_signed) return whole + part / (uint64_t)n;
    quotient += rest / n;
    rest %= n;
    return (uint64_t)(quotient + (quotient < 0 && rest > 0) - (quotient > 0 && rest < 0));
}

/* Integers wrap. */
SUPPORT uint64_t support_reduce_integers(const support_type *type, coll_op op, const uint64_t *bits, int n)
{
    uint64_t sum = 0, least = bits[0], most = least, product = 1;

    for (int i = 0; i < n; i++) {
        sum += bits[i];
        product *= bits[i];
        if (support_is_less(type, bits[i], least)) least = bits[i];
        if (support_is_less(type, most, bits[i])) most = bits[i];
    }
    const uint64_t results[] = { [COLL_SUM] = sum, [COLL_PROD] = product, [COLL_MIN] = least, [COLL_MAX] = most,
                                 [COLL_AVG] = support_average(type, bits, n) };
    return results[op] & ~UINT64_C(0) >> (64 - type->size * 8);
}

#endif /* SUPPORT_NUMBERS_H */
