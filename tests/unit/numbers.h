/* numbers.h - what test_numbers.c compares with: float formats by their definition, and one element of a
 * reduction by the manual's words.  Nothing here shares code with the library.  Used after coll.h. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- >>random: splitmix64 ---- */

static uint64_t random_state;

static uint64_t random_bits(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* ---- >>reference: float formats by their definition, with exact arithmetic in double ---- */

typedef struct float_format {
    coll_type type;
    int exponent_bits, mantissa_bits;
    double largest;                               /* where COLL_SATURATE means something; else 0 */
} float_format;

static const float_format formats[] = {
    { COLL_F16, 5, 10, 65504 }, { COLL_BF16, 8, 7, 0 },   { COLL_F32, 8, 23, 0 },
    { COLL_F64, 11, 52, 0 },    { COLL_F8E4M3, 4, 3, 448 }, { COLL_F8E5M2, 5, 2, 57344 }
};
enum { FORMATS = sizeof formats / sizeof *formats };

static const float_format *format_of(coll_type type)
{
    for (size_t k = 0; k < FORMATS; k++) {
        if (formats[k].type == type) return &formats[k];
    }
    return NULL;
}

static uint64_t reference_nan(const float_format *f)
{
    if (f->type == COLL_F8E4M3) return 0x7f;
    return ((UINT64_C(2) << f->exponent_bits) - 1) << (f->mantissa_bits - 1);
}

/* The value of bits (f8e4m3: all ones are NaN, other large ones are numbers), for the formats that fit a double exactly. */
static double reference_value(const float_format *f, uint64_t bits)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const uint64_t mantissa = bits & ((UINT64_C(1) << f->mantissa_bits) - 1);
    const int exponent = (int)(bits >> f->mantissa_bits) & ((1 << f->exponent_bits) - 1);
    const bool negative = (bits >> (f->exponent_bits + f->mantissa_bits)) & 1u;
    double value;

    if (f->type == COLL_F8E4M3 && (bits & 0x7f) == 0x7f) value = (double)NAN;
    else if (f->type != COLL_F8E4M3 && exponent == (1 << f->exponent_bits) - 1)
        value = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0) value = ldexp((double)mantissa, 1 - bias - f->mantissa_bits);
    else value = ldexp((double)(mantissa + (UINT64_C(1) << f->mantissa_bits)),
                       exponent - bias - f->mantissa_bits);
    return negative ? -value : value;
}

/* The bits nearest to a double, ties to even: the value is counted in units of the last place. */
static uint64_t reference_round(const float_format *f, double value)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const bool has_infinity = f->type != COLL_F8E4M3;
    const uint64_t infinity = has_infinity ? ((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits : 0x7f;
    const uint64_t sign = signbit(value) ? UINT64_C(1) << (f->exponent_bits + f->mantissa_bits) : 0;
    int exponent;

    if (isnan(value)) return reference_nan(f);
    if (isinf(value)) return has_infinity ? sign | infinity : infinity;
    (void)frexp(value, &exponent);
    exponent--;                                             /* value = 1.xxx * 2^exponent */
    if (value == 0 || exponent < 1 - bias) exponent = 1 - bias;

    const double units = ldexp(fabs(value), f->mantissa_bits - exponent);
    uint64_t whole = (uint64_t)units;
    const double rest = units - (double)whole;
    if (rest > 0.5 || (rest == 0.5 && (whole & 1u))) whole++;

    /* A hidden one counts as one step of the exponent field, and so does a carry. */
    const uint64_t bits = ((uint64_t)(exponent + bias - 1) << f->mantissa_bits) + whole;
    return bits < infinity ? sign | bits : has_infinity ? sign | infinity : infinity;
}

static uint64_t bits_at(const void *memory, size_t size, size_t at)
{
    const char *const from = (const char *)memory + at * size;
    uint64_t bits = 0;

    switch (size) {                               /* with a constant length memcpy is not a call              */
    case 1: memcpy(&bits, from, 1); break;        /* The test runs on little-endian.                          */
    case 2: memcpy(&bits, from, 2); break;
    case 4: memcpy(&bits, from, 4); break;
    default: memcpy(&bits, from, size); break;
    }
    return bits;
}

/* ---- >>cells: which there are, by the manual ---- */

typedef enum family { INTEGER, BOOLEAN, FLOAT, COMPLEX, PAIR, BLOB } family;

enum { TYPES = COLL_I64_I64, OPS = COLL_USER + 1 };

static family family_of(coll_type type)
{
    return type <= COLL_U64 ? INTEGER : type == COLL_BOOL ? BOOLEAN : type <= COLL_F64 ? FLOAT
         : type <= COLL_C128 ? COMPLEX : type <= COLL_I64_I64 ? PAIR : BLOB;
}

static bool is_logical(coll_op op) { return op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR; }
static bool is_bitwise(coll_op op) { return op == COLL_BAND || op == COLL_BOR || op == COLL_BXOR; }
static bool is_extreme(coll_op op) { return op == COLL_MIN || op == COLL_MAX; }

static bool is_cell(coll_type type, coll_op op)
{
    const bool sums = op == COLL_SUM || op == COLL_PROD || op == COLL_AVG;

    if (op == COLL_USER) return true;
    switch (family_of(type)) {
    case INTEGER: return sums || is_extreme(op) || is_bitwise(op) || is_logical(op);
    case BOOLEAN: return is_extreme(op) || is_bitwise(op) || is_logical(op);
    case FLOAT:   return sums || is_extreme(op) || is_logical(op);
    case COMPLEX: return sums;
    case PAIR:    return op == COLL_MINLOC || op == COLL_MAXLOC;
    default:      return false;
    }
}

/* ---- >>values: an element of any type, and what two of them make ---- */

enum { MOST = 17, COUNT = 2100 };                 /* sources; elements of the longest case */

__extension__ typedef __int128 int128;

/* One reduction: the call, the ranks it is over, and their inputs. */
typedef struct cell {
    coll_call call;
    int n;
    int split;                                    /* 0: one tree; else two, of the first so many and of the rest */
    size_t count;
    void *sources[MOST];                          /* count elements each, in the user's type */
    void *expected;
} cell;

typedef struct number {
    double re, im;                                /* a float; of a pair: the value */
    int128 whole;                                 /* an integer; of a pair: the value */
    int64_t index;
} number;

static coll_type wire_of(const cell *c) { return c->call.wire ? c->call.wire : c->call.type; }

/* Are the sums in f32? */
static bool in_f32(const cell *c)
{
    const coll_type type = c->call.type;
    return type == COLL_C64 || (family_of(type) == FLOAT && type != COLL_F64 && c->call.accumulate != COLL_F64);
}

/* Volatile, because gcc 12 at -O2 leaves the rounding out where it turns re and im into one vector. */
static double settled(const cell *c, double x)
{
    const volatile float narrow = (float)x;
    return in_f32(c) ? (double)narrow : x;
}

static int128 integer_of(size_t size, bool is_signed, uint64_t bits)
{
    const int shift = 64 - 8 * (int)size;
    bits <<= shift;
    return is_signed ? (int128)((int64_t)bits >> shift) : (int128)(bits >> shift);
}

/* The largest number that a type and its wire both have, if one of them saturates; else 0. */
static double largest_of(const float_format *type, const float_format *wire)
{
    double x = type->largest > 0 && (type->largest < wire->largest || wire->largest <= 0) ? type->largest : wire->largest;

    for (; x > 0; x--)
        if (reference_value(type, reference_round(type, x)) == x && reference_value(wire, reference_round(wire, x)) == x) break;
    return x;
}

/* A number rounded to the wire, saturated if the call says so. */
static double rounded(const cell *c, double x)
{
    const float_format *const wire = format_of(wire_of(c));

    if (c->call.flags & COLL_SATURATE) {
        const double most = largest_of(format_of(c->call.type), wire);
        if (most > 0) x = x > most ? most : x < -most ? -most : x;
    }
    return reference_value(wire, reference_round(wire, x));
}

static number value_of(const cell *c, const unsigned char *at)
{
    static const struct { coll_type type; bool is_float; size_t value, index, index_at; } pairs[] = {
        { COLL_F32_I32, true, 4, 4, 4 },  { COLL_F64_I32, true, 8, 4, 8 },  { COLL_F64_I64, true, 8, 8, 8 },
        { COLL_I32_I32, false, 4, 4, 4 }, { COLL_I64_I32, false, 8, 4, 8 }, { COLL_I64_I64, false, 8, 8, 8 }
    };
    const coll_type type = c->call.type;
    const size_t size = coll_type_size(type);
    number v = { 0, 0, 0, 0 };

    switch (family_of(type)) {
    case INTEGER: v.whole = integer_of(size, type <= COLL_I64, bits_at(at, size, 0)); break;
    case BOOLEAN: v.whole = *at != 0; break;
    case FLOAT:
        v.re = reference_value(format_of(type), bits_at(at, size, 0));
        if (wire_of(c) != type) v.re = rounded(c, v.re);
        break;
    case COMPLEX:
        v.re = reference_value(format_of(type == COLL_C64 ? COLL_F32 : COLL_F64), bits_at(at, size / 2, 0));
        v.im = reference_value(format_of(type == COLL_C64 ? COLL_F32 : COLL_F64), bits_at(at, size / 2, 1));
        break;
    default:
        for (size_t k = 0; k < 6; k++) {
            if (pairs[k].type != type) continue;
            const uint64_t bits = bits_at(at, pairs[k].value, 0);
            if (!pairs[k].is_float) v.whole = integer_of(pairs[k].value, true, bits);
            else v.re = reference_value(format_of(pairs[k].value == 4 ? COLL_F32 : COLL_F64), bits);
            v.index = (int64_t)integer_of(pairs[k].index, true, bits_at(at + pairs[k].index_at, pairs[k].index, 0));
        }
    }
    return v;
}

/* -1, 0, 1: a is below, equal to, above b; -0 is below +0. */
static int order_of(double a, double b)
{
    if (a == b) return (int)(signbit(b) != 0) - (int)(signbit(a) != 0);
    return a < b ? -1 : 1;
}

static bool truth_of(coll_op op, bool a, bool b)
{
    return op == COLL_LAND || op == COLL_BAND || op == COLL_MIN ? a && b : op == COLL_LXOR || op == COLL_BXOR ? a != b : a || b;
}

static number combine_integers(const cell *c, number a, number b)
{
    const size_t size = coll_type_size(c->call.type);
    const uint64_t x = (uint64_t)a.whole, y = (uint64_t)b.whole;
    uint64_t bits;

    switch (c->call.op) {
    case COLL_AVG:  a.whole += b.whole; return a;
    case COLL_MIN:  return a.whole < b.whole ? a : b;
    case COLL_MAX:  return a.whole > b.whole ? a : b;
    case COLL_SUM:  bits = x + y; break;
    case COLL_PROD: bits = x * y; break;
    case COLL_BAND: bits = x & y; break;
    case COLL_BOR:  bits = x | y; break;
    case COLL_BXOR: bits = x ^ y; break;
    default:        bits = truth_of(c->call.op, x != 0, y != 0); break;
    }
    a.whole = integer_of(size, c->call.type <= COLL_I64, bits);
    return a;
}

static number combine_floats(const cell *c, number a, number b)
{
    number result = { 0, 0, 0, 0 };

    if (is_logical(c->call.op)) result.re = truth_of(c->call.op, a.re != 0, b.re != 0);
    else if (!is_extreme(c->call.op)) result.re = settled(c, c->call.op == COLL_PROD ? a.re * b.re : a.re + b.re);
    else if (isnan(a.re) || isnan(b.re)) result.re = (double)NAN;
    else return (order_of(a.re, b.re) < 0) == (c->call.op == COLL_MIN) ? a : b;
    return result;
}

/* Volatile: no compiler may contract these. */
static number combine_complex(const cell *c, number a, number b)
{
    number result = { settled(c, a.re + b.re), settled(c, a.im + b.im), 0, 0 };

    if (c->call.op == COLL_PROD) {
        volatile double rr = settled(c, a.re * b.re), ii = settled(c, a.im * b.im);
        volatile double ri = settled(c, a.re * b.im), ir = settled(c, a.im * b.re);
        result.re = settled(c, rr - ii);
        result.im = settled(c, ri + ir);
    }
    return result;
}

static number combine_pairs(const cell *c, number a, number b)
{
    int order = a.whole < b.whole ? -1 : a.whole > b.whole;

    if (a.whole == b.whole) {
        const bool is_a = isnan(a.re), is_b = isnan(b.re), is_least = c->call.op == COLL_MINLOC;
        order = is_a && is_b ? 0 : is_a || is_b ? (is_a == is_least ? -1 : 1) : order_of(a.re, b.re);
    }
    if (order == 0) return a.index <= b.index ? a : b;
    return (order < 0) == (c->call.op == COLL_MINLOC) ? a : b;
}

static number combine_values(const cell *c, number a, number b)
{
    switch (family_of(c->call.type)) {
    case INTEGER: return combine_integers(c, a, b);
    case BOOLEAN: a.whole = truth_of(c->call.op, a.whole != 0, b.whole != 0); return a;
    case FLOAT:   return combine_floats(c, a, b);
    case COMPLEX: return combine_complex(c, a, b);
    default:      return combine_pairs(c, a, b);
    }
}

/* ---- >>oracle: one element of a reduction, by definition ---- */

/* Sources in the left part of the tree: the largest power of two that leaves something. */
static int left_of(int n)
{
    int left = 1;
    while (2 * left < n) left *= 2;
    return left;
}

static number oracle_tree(const cell *c, const number *x, int n)
{
    if (n == 1) return x[0];
    return combine_values(c, oracle_tree(c, x, left_of(n)), oracle_tree(c, x + left_of(n), n - left_of(n)));
}

/* Division, scale, truth, and the one rounding. */
static void oracle_store(const cell *c, number v, unsigned char *to)
{
    const coll_type type = c->call.type;
    const size_t size = coll_type_size(type), half = size / 2;
    const float_format *const f = format_of(type == COLL_C64 ? COLL_F32 : type == COLL_C128 ? COLL_F64 : type);
    const double scale = c->call.scale == 0 ? 1 : c->call.scale, divisor = c->call.op == COLL_AVG ? c->n : 1;
    uint64_t bits[2] = { (uint64_t)v.whole, 0 };

    if (family_of(type) == INTEGER) {
        if (c->call.op == COLL_AVG) bits[0] = (uint64_t)(v.whole / c->n);
        if (is_logical(c->call.op)) bits[0] = v.whole != 0;
    } else if (family_of(type) == FLOAT) {
        if (is_logical(c->call.op)) v.re = v.re != 0;
        v.re = settled(c, settled(c, v.re / divisor) * (in_f32(c) ? (double)(float)scale : scale));
        bits[0] = reference_round(f, rounded(c, v.re));
    } else if (family_of(type) == COMPLEX) {
        const double factor = in_f32(c) ? (double)(float)scale : scale;
        bits[0] = reference_round(f, settled(c, settled(c, v.re / divisor) * factor));
        bits[1] = reference_round(f, settled(c, settled(c, v.im / divisor) * factor));
        memcpy(to, &bits[0], half);
        memcpy(to + half, &bits[1], half);
        return;
    } else if (family_of(type) == PAIR) {
        const bool is_short = type == COLL_F32_I32 || type == COLL_I32_I32;
        const bool has_short_index = is_short || type == COLL_F64_I32 || type == COLL_I64_I32;
        if (type <= COLL_F64_I64) bits[0] = reference_round(format_of(is_short ? COLL_F32 : COLL_F64), v.re);
        memset(to, 0, size);
        memcpy(to, &bits[0], is_short ? 4 : 8);
        memcpy(to + (is_short ? 4 : 8), &v.index, has_short_index ? 4 : 8);
        return;
    }
    memcpy(to, bits, size);
}

/* The user's operation of these tests, on one byte: neither commutative nor associative, so that a
 * result shows the whole tree. */
static unsigned char user_byte(unsigned char a, unsigned char b) { return (unsigned char)(31 * a + b + 7); }

static unsigned char user_tree(const cell *c, int first, int n, size_t at)
{
    if (n == 1) return ((const unsigned char *)c->sources[first])[at];
    return user_byte(user_tree(c, first, left_of(n), at), user_tree(c, first + left_of(n), n - left_of(n), at));
}

/* What is rounded on the wire counts as rounded wherever it is. */
static void oracle(const cell *c, size_t count)
{
    const size_t size = coll_type_size(c->call.type);
    unsigned char *const to = c->expected;
    number x[MOST];

    if (c->call.op == COLL_USER) {
        for (size_t i = 0; i < count * size; i++) {
            to[i] = c->split ? user_byte(user_tree(c, 0, c->split, i), user_tree(c, c->split, c->n - c->split, i))
                             : user_tree(c, 0, c->n, i);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < c->n; k++) x[k] = value_of(c, (const unsigned char *)c->sources[k] + i * size);
        const number v = !c->split ? oracle_tree(c, x, c->n)
                      : combine_values(c, oracle_tree(c, x, c->split), oracle_tree(c, x + c->split, c->n - c->split));
        oracle_store(c, v, to + i * size);
    }
}

/* ---- >>data ---- */

/* Half anything at all, and half moderate numbers, of which some sums tie. */
static uint64_t any_float(const float_format *f)
{
    const uint64_t bits = random_bits(), kind = bits % 16, few = (bits >> 8) % 7;

    if (kind >= 7) return reference_round(f, ((double)(bits >> 32) - 0x1p31) * 0x1p-29);
    if (kind == 6) return few << (f->exponent_bits + f->mantissa_bits - 1);
    return kind == 5 && f->largest > 0 ? reference_round(f, f->largest) : bits >> 16;
}

static void fill(coll_type type, void *memory, size_t count)
{
    const bool is_short = type == COLL_F32_I32 || type == COLL_I32_I32;
    const size_t size = coll_type_size(type), half = is_short ? 4 : 8;
    const float_format *const f = format_of(type);
    unsigned char *at = memory;

    for (size_t i = 0; i < count; i++, at += size) {
        const uint64_t bits = random_bits(), kind = bits % 16, few = (bits >> 8) % 7;
        uint64_t parts[2] = { kind < 4 ? few - 3 : bits >> 4 | bits << 60, kind < 12 ? few : random_bits() };
        if (f) parts[0] = any_float(f);
        if (type == COLL_BOOL) parts[0] = kind < 12 ? kind & 1 : bits >> 8;
        if (family_of(type) == COMPLEX) {
            const float_format *const part = format_of(type == COLL_C64 ? COLL_F32 : COLL_F64);
            const uint64_t re = any_float(part), im = any_float(part);
            memcpy(at, &re, size / 2);
            memcpy(at + size / 2, &im, size / 2);
        } else if (family_of(type) == PAIR) {       /* Few values and few indices, so that both tie. */
            if (type <= COLL_F64_I64) {
                const float_format *const part = format_of(is_short ? COLL_F32 : COLL_F64);
                parts[0] = kind < 12 ? reference_round(part, kind == 0 ? -0.0 : kind == 1 ? (double)NAN : (double)(kind % 3))
                                     : any_float(part);
            } else if (kind < 12) parts[0] = kind % 3 - 1;
            memcpy(at, &parts[0], half);
            memcpy(at + half, &parts[1], half);     /* padding is not written */
        } else if (family_of(type) == BLOB) {
            for (size_t b = 0; b < size; b++) at[b] = (unsigned char)random_bits();
        } else {
            memcpy(at, parts, size);
        }
    }
}

#endif /* NUMBERS_H */
