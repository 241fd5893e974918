/* model_numbers.h - every element type and operation, in the tests' own arithmetic: which cells there are, what each rank
 * brings, and what the elements of some ranks reduce to.  Nothing here calls the library.  Used through model.h. */
#ifndef MODEL_NUMBERS_H
#define MODEL_NUMBERS_H

#include "exact.h"

enum { MODEL_RANKS_MOST = 17, MODEL_ELEMENT_MOST = 128, MODEL_PERIOD = 1021 };

/* ---- >>types ---- */

typedef enum model_class { MODEL_INTEGER, MODEL_BOOL, MODEL_FLOAT, MODEL_COMPLEX, MODEL_PAIR, MODEL_BLOB } model_class;

typedef struct model_type {
    coll_type    type;
    const char  *name;
    model_class  class;
    size_t       size, align;
    support_type part;                            /* the element, a component of it, the value of a pair      */
    support_type index;                           /* of a pair                                                */
    size_t       second;                          /* where the second component, or the index, begins         */
} model_type;

#define MODEL_P_I8   { COLL_I8, "i8", 1, true, 0, 0 }
#define MODEL_P_I16  { COLL_I16, "i16", 2, true, 0, 0 }
#define MODEL_P_I32  { COLL_I32, "i32", 4, true, 0, 0 }
#define MODEL_P_I64  { COLL_I64, "i64", 8, true, 0, 0 }
#define MODEL_P_U8   { COLL_U8, "u8", 1, false, 0, 0 }
#define MODEL_P_U16  { COLL_U16, "u16", 2, false, 0, 0 }
#define MODEL_P_U32  { COLL_U32, "u32", 4, false, 0, 0 }
#define MODEL_P_U64  { COLL_U64, "u64", 8, false, 0, 0 }
#define MODEL_P_F16  { COLL_F16, "f16", 2, true, 5, 10 }
#define MODEL_P_BF16 { COLL_BF16, "bf16", 2, true, 8, 7 }
#define MODEL_P_E4M3 { COLL_F8E4M3, "f8e4m3", 1, true, 4, 3 }
#define MODEL_P_E5M2 { COLL_F8E5M2, "f8e5m2", 1, true, 5, 2 }
#define MODEL_P_F32  { COLL_F32, "f32", 4, true, 8, 23 }
#define MODEL_P_F64  { COLL_F64, "f64", 8, true, 11, 52 }

static const model_type model_types[] = {
    { COLL_I8, "i8", MODEL_INTEGER, 1, 1, MODEL_P_I8, MODEL_P_I8, 0 },
    { COLL_I16, "i16", MODEL_INTEGER, 2, 2, MODEL_P_I16, MODEL_P_I8, 0 },
    { COLL_I32, "i32", MODEL_INTEGER, 4, 4, MODEL_P_I32, MODEL_P_I8, 0 },
    { COLL_I64, "i64", MODEL_INTEGER, 8, 8, MODEL_P_I64, MODEL_P_I8, 0 },
    { COLL_U8, "u8", MODEL_INTEGER, 1, 1, MODEL_P_U8, MODEL_P_I8, 0 },
    { COLL_U16, "u16", MODEL_INTEGER, 2, 2, MODEL_P_U16, MODEL_P_I8, 0 },
    { COLL_U32, "u32", MODEL_INTEGER, 4, 4, MODEL_P_U32, MODEL_P_I8, 0 },
    { COLL_U64, "u64", MODEL_INTEGER, 8, 8, MODEL_P_U64, MODEL_P_I8, 0 },
    { COLL_BOOL, "bool", MODEL_BOOL, 1, 1, MODEL_P_U8, MODEL_P_I8, 0 },
    { COLL_F16, "f16", MODEL_FLOAT, 2, 2, MODEL_P_F16, MODEL_P_I8, 0 },
    { COLL_BF16, "bf16", MODEL_FLOAT, 2, 2, MODEL_P_BF16, MODEL_P_I8, 0 },
    { COLL_F8E4M3, "f8e4m3", MODEL_FLOAT, 1, 1, MODEL_P_E4M3, MODEL_P_I8, 0 },
    { COLL_F8E5M2, "f8e5m2", MODEL_FLOAT, 1, 1, MODEL_P_E5M2, MODEL_P_I8, 0 },
    { COLL_F32, "f32", MODEL_FLOAT, 4, 4, MODEL_P_F32, MODEL_P_I8, 0 },
    { COLL_F64, "f64", MODEL_FLOAT, 8, 8, MODEL_P_F64, MODEL_P_I8, 0 },
    { COLL_C64, "c64", MODEL_COMPLEX, 8, 4, MODEL_P_F32, MODEL_P_I8, 4 },
    { COLL_C128, "c128", MODEL_COMPLEX, 16, 8, MODEL_P_F64, MODEL_P_I8, 8 },
    { COLL_F32_I32, "f32_i32", MODEL_PAIR, 8, 4, MODEL_P_F32, MODEL_P_I32, 4 },
    { COLL_F64_I32, "f64_i32", MODEL_PAIR, 16, 8, MODEL_P_F64, MODEL_P_I32, 8 },
    { COLL_F64_I64, "f64_i64", MODEL_PAIR, 16, 8, MODEL_P_F64, MODEL_P_I64, 8 },
    { COLL_I32_I32, "i32_i32", MODEL_PAIR, 8, 4, MODEL_P_I32, MODEL_P_I32, 4 },
    { COLL_I64_I32, "i64_i32", MODEL_PAIR, 16, 8, MODEL_P_I64, MODEL_P_I32, 8 },
    { COLL_I64_I64, "i64_i64", MODEL_PAIR, 16, 8, MODEL_P_I64, MODEL_P_I64, 8 }
};
enum { MODEL_TYPE_COUNT = sizeof model_types / sizeof *model_types };

/* Every type there is, opaque elements included. */
SUPPORT model_type model_type_of(coll_type type)
{
    const size_t bytes = (size_t)((unsigned)type & 0x3fffffffu);

    for (int i = 0; i < MODEL_TYPE_COUNT; i++)
        if (model_types[i].type == type) return model_types[i];
    return (model_type){ .type = type, .name = "blob", .class = MODEL_BLOB, .size = bytes, .align = 1, .part = MODEL_P_U8 };
}

/* ---- >>cells: which operation a type has ---- */

/* OPEN: the manual leaves it to the library; then it may be refused or not, the same everywhere. */
typedef enum model_cell { MODEL_NO, MODEL_YES, MODEL_OPEN } model_cell;

SUPPORT bool model_is_bitwise(coll_op op) { return op == COLL_BAND || op == COLL_BOR || op == COLL_BXOR; }
SUPPORT bool model_is_logical(coll_op op) { return op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR; }
SUPPORT bool model_is_sum(coll_op op) { return op == COLL_SUM || op == COLL_AVG; }

SUPPORT model_cell model_cell_of(coll_type type, coll_op op)
{
    const bool is_loc = op == COLL_MINLOC || op == COLL_MAXLOC;

    if (op == COLL_USER) return MODEL_YES;
    switch (model_type_of(type).class) {
    case MODEL_INTEGER: return is_loc ? MODEL_NO : MODEL_YES;
    case MODEL_BOOL:    return model_is_logical(op) ? MODEL_YES : is_loc ? MODEL_NO : MODEL_OPEN;
    case MODEL_FLOAT:   return is_loc || model_is_bitwise(op) ? MODEL_NO : MODEL_YES;
    case MODEL_PAIR:    return is_loc ? MODEL_YES : MODEL_NO;
    case MODEL_BLOB:    return MODEL_NO;
    default:            break;
    }
    if (model_is_logical(op)) return MODEL_OPEN;
    return model_is_sum(op) || op == COLL_PROD ? MODEL_YES : MODEL_NO;
}

/* ---- >>floats: 8 bits, too ---- */

SUPPORT double model_value(const support_type *type, uint64_t bits)
{
    if (type->type != COLL_F8E4M3 || (bits & 0x78) != 0x78) return support_value(type, bits);
    if ((bits & 0x7f) == 0x7f) return (double)NAN;
    return (bits & 0x80 ? -1.0 : 1.0) * ldexp((double)(8 + (bits & 7)), 5);
}

/* Round once, to nearest even.  f8e4m3 has no infinity and uses its highest exponent: 448 is the largest, and what would
 * round beyond it is NaN.  `saturates`: the largest finite value instead. */
SUPPORT uint64_t model_bits(const support_type *type, double value, bool saturates)
{
    const bool is_small = type->size == 1 || type->type == COLL_F16;
    const int fraction_bits = type->fraction_bits, top = (1 << type->exponent_bits) - 1;
    const uint64_t sign = (uint64_t)(signbit(value) != 0) << (fraction_bits + type->exponent_bits);

    if (type->type == COLL_F8E4M3) {
        const double magnitude = fabs(value);
        if (isnan(value)) return 0x7f;
        if (magnitude > 464 || isinf(value)) return saturates ? sign | 0x7e : 0x7f;
        if (magnitude < 256) return support_bits(type, value);
        const double units = nearbyint(magnitude / 32);
        return units >= 15 ? sign | 0x7e : sign | (0x78 + ((uint64_t)units - 8));
    }
    const uint64_t bits = support_bits(type, value), infinite = (uint64_t)top << fraction_bits;
    return saturates && is_small && !isnan(value) && (bits & ~sign) == infinite ? bits - 1 : bits;
}

/* ---- >>user-defined operations: on nibbles, so that elements of every size can be used ---- */

enum { MODEL_MAGIC = 0x5eed };

typedef struct model_user {
    unsigned  magic;
    unsigned  add;                                /* of the commutative one                                   */
    coll_type type;
    pthread_t owner;                              /* the only thread that may run it                          */
    int       wrong;                              /* times it was called as it must not be                    */
} model_user;

/* Commutative: sums and a constant.  Not commutative: each byte is a map x -> m x + c of numbers modulo 16. */
SUPPORT unsigned char model_user_byte(bool commutes, unsigned add, unsigned char in, unsigned char inout)
{
    const unsigned m = (unsigned)(in >> 4) * (unsigned)(inout >> 4), c = (unsigned)(inout >> 4) * (in & 15u) + (inout & 15u);

    if (commutes) return (unsigned char)(in + inout + add);
    return (unsigned char)((m & 15u) << 4 | (c & 15u));
}

SUPPORT void model_user_run(bool commutes, const void *in, void *inout, size_t count, coll_type type, void *context)
{
    model_user *user = context;
    const size_t length = count * model_type_of(type).size;
    const unsigned char *from = in;
    unsigned char *to = inout;

    if (user->magic != MODEL_MAGIC) abort();
    const bool is_good = type == user->type && ((uintptr_t)in | (uintptr_t)inout) % 16 == 0 && count > 0 &&
                         pthread_equal(user->owner, pthread_self());
    if (!is_good) user->wrong++;
    for (size_t i = 0; i < length; i++) to[i] = model_user_byte(commutes, user->add, from[i], to[i]);
}

SUPPORT void model_user_sum(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    model_user_run(true, in, inout, count, type, context);
}

SUPPORT void model_user_map(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    model_user_run(false, in, inout, count, type, context);
}

/* ---- >>arithmetic: what elements reduce to ---- */

/* EXACT: any grouping gives the same bits.  RANDOM: only a fixed grouping does.  SPECIAL: infinities, NaNs and the like. */
typedef enum model_data { MODEL_EXACT, MODEL_RANDOM, MODEL_SPECIAL, MODEL_BITS } model_data;

/* How elements are combined. */
typedef struct model_rule {
    coll_op   op;
    coll_type wire;                               /* 0: none                                                  */
    double    scale;                              /* 0: 1                                                     */
    bool      saturates, is_scan, commutes;
    bool      is_reproducible;
    unsigned  add;                                /* of COLL_USER                                             */
} model_rule;

SUPPORT uint64_t model_reduce_integers(const support_type *part, coll_op op, const uint64_t *bits, int n)
{
    uint64_t result = bits[0];

    if (op <= COLL_AVG) return support_reduce_integers(part, op, bits, n);
    if (model_is_logical(op)) result = result != 0;
    for (int i = 1; i < n; i++) {
        const uint64_t truth = bits[i] != 0;
        if (op == COLL_BAND) result &= bits[i];
        if (op == COLL_BOR) result |= bits[i];
        if (op == COLL_BXOR) result ^= bits[i];
        if (op == COLL_LAND) result &= truth;
        if (op == COLL_LOR) result |= truth;
        if (op == COLL_LXOR) result ^= truth;
    }
    return result;
}

/* What an input is after it has been rounded to the wire type. */
SUPPORT double model_wired(const support_type *part, coll_type wire, uint64_t bits)
{
    const double value = model_value(part, bits);
    const model_type w = model_type_of(wire);
    return wire ? model_value(&w.part, model_bits(&w.part, value, false)) : value;
}

SUPPORT uint64_t model_reduce_floats(const support_type *part, const model_rule *rule, const uint64_t *bits, int n)
{
    const coll_op op = rule->op;
    const model_type wire = model_type_of(rule->wire ? rule->wire : part->type);
    const double scale = rule->scale != 0 ? rule->scale : 1;
    double doubles[MODEL_RANKS_MOST] = { 0 }, result;
    float floats[MODEL_RANKS_MOST] = { 0 };

    if (model_is_logical(op)) {
        uint64_t truths[MODEL_RANKS_MOST];
        for (int i = 0; i < n; i++) truths[i] = model_value(part, bits[i]) != 0;
        return model_bits(part, (double)model_reduce_integers(part, op, truths, n), false);
    }
    for (int i = 0; i < n; i++) {
        doubles[i] = model_wired(part, rule->wire, bits[i]);
        floats[i] = (float)doubles[i];
    }
    if (rule->is_reproducible && !rule->is_scan && model_is_sum(op)) {
        result = exact_result(doubles, n, wire.type == COLL_F64, op == COLL_AVG ? n : 1, scale);
    } else if (part->type == COLL_F64) {
        result = doubles[0];
        for (int i = 1; i < n && rule->is_scan; i++) result = support_combine_double(op, result, doubles[i]);
        if (!rule->is_scan) result = support_tree_double(op, doubles, n);
        if (op == COLL_AVG) result /= (double)n;
        if (model_is_sum(op)) result *= scale;
    } else {
        float single = floats[0];
        for (int i = 1; i < n && rule->is_scan; i++) single = support_combine_float(op, single, floats[i]);
        if (!rule->is_scan) single = support_tree_float(op, floats, n);
        if (op == COLL_AVG) single /= (float)n;
        if (model_is_sum(op)) single *= (float)scale;
        result = (double)single;
    }
    const uint64_t rounded = model_bits(&wire.part, result, rule->saturates);
    return rule->wire ? model_bits(part, model_value(&wire.part, rounded), false) : rounded;
}

/* The product of small whole complex numbers is exact, so its formula does not matter. */
SUPPORT void model_multiply(const support_type *part, const uint64_t *re, const uint64_t *im, int n, uint64_t *out)
{
    double a = model_value(part, re[0]), b = model_value(part, im[0]);

    for (int i = 1; i < n; i++) {
        const double c = model_value(part, re[i]), d = model_value(part, im[i]), sum = a * c - b * d;
        b = a * d + b * c;
        a = sum;
    }
    out[0] = model_bits(part, a + 0.0, false);
    out[1] = model_bits(part, b + 0.0, false);
}

/* Is the first pair the one that MINLOC (MAXLOC) keeps? */
SUPPORT bool model_pair_wins(const model_type *t, coll_op op, const unsigned char *a, const unsigned char *b)
{
    const uint64_t x = support_load(&t->part, a), y = support_load(&t->part, b);
    const uint64_t i = support_load(&t->index, a + t->second), j = support_load(&t->index, b + t->second);
    bool less, same;

    if (t->part.fraction_bits) {
        const double u = model_value(&t->part, x), v = model_value(&t->part, y);
        less = u < v, same = u <= v && u >= v;
    } else {
        less = support_is_less(&t->part, x, y), same = x == y;
    }
    return same ? !support_is_less(&t->index, j, i) : less == (op == COLL_MINLOC);
}

typedef unsigned char model_element_bytes[MODEL_ELEMENT_MOST];

/* out = in[0] op in[1] op ... in[n - 1], each one element. */
SUPPORT void model_reduce(const model_type *t, const model_rule *rule, model_element_bytes *in, int n, unsigned char *out)
{
    uint64_t first[MODEL_RANKS_MOST], second[MODEL_RANKS_MOST], product[2];

    if (rule->op == COLL_USER || t->class == MODEL_PAIR) {
        memcpy(out, in[0], t->size);
        for (int i = 1; i < n; i++) {
            if (rule->op != COLL_USER && !model_pair_wins(t, rule->op, out, in[i])) memcpy(out, in[i], t->size);
            for (size_t at = 0; at < t->size && rule->op == COLL_USER; at++)
                out[at] = model_user_byte(rule->commutes, rule->add, out[at], in[i][at]);
        }
        return;
    }
    for (int i = 0; i < n; i++) {
        first[i] = support_load(&t->part, in[i]);
        second[i] = t->class == MODEL_COMPLEX ? support_load(&t->part, in[i] + t->second) : 0;
    }
    if (t->class == MODEL_INTEGER || t->class == MODEL_BOOL) {
        support_store(&t->part, out, model_reduce_integers(&t->part, rule->op, first, n));
        return;
    }
    if (t->class == MODEL_COMPLEX && rule->op == COLL_PROD) {
        model_multiply(&t->part, first, second, n, product);
        support_store(&t->part, out, product[0]);
        support_store(&t->part, out + t->second, product[1]);
        return;
    }
    support_store(&t->part, out, model_reduce_floats(&t->part, rule, first, n));
    if (t->class == MODEL_COMPLEX) support_store(&t->part, out + t->second, model_reduce_floats(&t->part, rule, second, n));
}

/* Is this component within what some order of additions, and one rounding at the end, can give? */
SUPPORT bool model_is_close(const support_type *part, const model_rule *rule, const uint64_t *bits, int n, uint64_t got)
{
    const model_type wire = model_type_of(rule->wire ? rule->wire : part->type);
    const int digits = part->type == COLL_F64 ? 52 : 23;
    const int places = part->fraction_bits < wire.part.fraction_bits ? part->fraction_bits : wire.part.fraction_bits;
    const int range = part->exponent_bits < wire.part.exponent_bits ? part->exponent_bits : wire.part.exponent_bits;
    const double scale = (rule->scale != 0 ? rule->scale : 1) / (rule->op == COLL_AVG ? n : 1);
    long double sum = 0, size = 0, product = 1;

    for (int i = 0; i < n; i++) {
        const long double x = (long double)model_wired(part, rule->wire, bits[i]);
        sum += x, size += fabsl(x), product *= x;
    }
    const bool is_product = rule->op == COLL_PROD;
    const long double exact = is_product ? product : sum * (long double)scale;
    const long double weight = is_product ? fabsl(product) : size * fabsl((long double)scale);
    const int half = 1 << (range - 1);
    const long double slack = weight * ldexpl((long double)(n + 2), -digits) +
                              fabsl(exact) * ldexpl(1, -places) + ldexpl(1, 2 - half - places);
    const long double value = (long double)model_value(part, got);
    return isfinite((double)value) ? fabsl(value - exact) <= slack : fabsl(exact) > ldexpl(1, half - 2);
}

/* ---- >>data: the input of a rank ---- */

/* A component of a sum, product or comparison. */
SUPPORT uint64_t model_component(const support_type *part, coll_op op, model_data data, uint64_t common, uint64_t random)
{
    const uint64_t mask = ~UINT64_C(0) >> (64 - part->size * 8);

    if (data == MODEL_BITS) return random & mask;
    if (!part->fraction_bits) {
        if (data == MODEL_SPECIAL) return support_special_integer(part, random) & mask;
        if (data == MODEL_RANDOM) return random & mask;
        return (random % 17 - (part->is_signed ? 8 : 0)) & mask;
    }
    if (data == MODEL_SPECIAL) return support_special_float(part, common % 8, random);
    if (data == MODEL_RANDOM) return support_ordinary_float(part, random);
    if (op == COLL_PROD) return model_bits(part, ldexp(random & 1 ? -1 : 1, (int)(random >> 8) % 3 - 1), false);
    return model_bits(part, (double)(random % 17) - 8, false);
}

/* Element `at` of block `key` of the input of a rank.  It repeats, so that results of long vectors are cheap to calculate. */
SUPPORT void model_element(const model_type *t, coll_op op, model_data data, uint64_t seed, int rank, uint64_t key, size_t at,
                           unsigned char *to)
{
    const uint64_t place = key * UINT64_C(0x8cb92ba72f3d8dd7) + at % MODEL_PERIOD * UINT64_C(0xd1342543de82ef95);
    const uint64_t common = support_mix(seed + place);
    const uint64_t random = support_mix(common ^ ((uint64_t)rank + 1) * UINT64_C(0xaf251af3b0f025b5));
    const uint64_t other = support_mix(random);

    memset(to, 0, t->size);
    if (t->class == MODEL_BLOB || op == COLL_USER) {
        for (size_t i = 0; i < t->size; i++) to[i] = (unsigned char)(support_mix(random + i / 8) >> i % 8 * 8);
        return;
    }
    if (t->class == MODEL_BOOL) {
        to[0] = (unsigned char)(random & 3 ? random >> 8 : 0);
        return;
    }
    if (t->class == MODEL_COMPLEX && op == COLL_PROD && data != MODEL_BITS) {      /* 1, -1, i, -i, 1 + i, ...  */
        const int turn = (int)(random >> 3) % 4, is_sum = (random & 7) == 0;
        support_store(&t->part, to, model_bits(&t->part, turn == 0 || is_sum ? 1 : turn == 1 ? -1 : 0, false));
        support_store(&t->part, to + t->second, model_bits(&t->part, turn == 2 || is_sum ? 1 : turn == 3 ? -1 : 0, false));
        return;
    }
    if (t->class == MODEL_PAIR && data != MODEL_BITS) {
        support_store(&t->part, to, model_component(&t->part, op, MODEL_EXACT, common, random % 5));
        support_store(&t->index, to + t->second, model_component(&t->index, op, MODEL_BITS, common, other));
        return;
    }
    support_store(&t->part, to, model_component(&t->part, op, data, common, random));
    if (t->class == MODEL_COMPLEX) support_store(&t->part, to + t->second, model_component(&t->part, op, data, common, other));
    if (t->class == MODEL_PAIR) support_store(&t->index, to + t->second, other);
}

#endif /* MODEL_NUMBERS_H */
