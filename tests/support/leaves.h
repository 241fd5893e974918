/* leaves.h - what a sum over leaves must be, whatever ranks have them: its own tree, by recursion, its own rounding and its own
 * average.  Nothing here calls the library.  Used after model.h. */
#ifndef LEAVES_H
#define LEAVES_H

enum { LEAVES_MOST = 1024 };

/* How leaves are summed. */
typedef struct leaves_rule {
    coll_type type, wire, accumulate;             /* wire, accumulate: 0: the usual one                       */
    coll_op   op;
    double    scale;
    unsigned  flags;
} leaves_rule;

static const leaves_rule leaves_rules[] = {
    { COLL_F32, 0, 0, COLL_SUM, 0, 0 },                  { COLL_F64, 0, 0, COLL_SUM, 0, 0 },
    { COLL_BF16, 0, 0, COLL_SUM, 0, 0 },                 { COLL_F16, 0, 0, COLL_SUM, 0, 0 },
    { COLL_C64, 0, 0, COLL_SUM, 0, 0 },                  { COLL_C128, 0, 0, COLL_AVG, 0, 0 },
    { COLL_F8E4M3, 0, 0, COLL_SUM, 0, 0 },               { COLL_F8E5M2, 0, 0, COLL_AVG, 0, 0 },
    { COLL_F32, 0, 0, COLL_AVG, 0, 0 },                  { COLL_F64, 0, 0, COLL_AVG, 0.3, 0 },
    { COLL_BF16, 0, 0, COLL_AVG, 0, 0 },                 { COLL_F16, 0, 0, COLL_AVG, 0.3, COLL_SATURATE },
    { COLL_F32, 0, 0, COLL_SUM, -7, 0 },                 { COLL_F32, COLL_BF16, 0, COLL_SUM, 0, 0 },
    { COLL_F32, COLL_F16, 0, COLL_AVG, 0, 0 },           { COLL_F32, COLL_F8E5M2, 0, COLL_SUM, 0, 0 },
    { COLL_F64, COLL_F32, 0, COLL_SUM, 0, 0 },           { COLL_F64, COLL_BF16, 0, COLL_AVG, 0, 0 },
    { COLL_F16, COLL_BF16, 0, COLL_SUM, 0, 0 },          { COLL_BF16, COLL_F8E4M3, 0, COLL_SUM, 0, 0 },
    { COLL_F32, 0, COLL_F64, COLL_SUM, 0, 0 },           { COLL_BF16, 0, COLL_F64, COLL_AVG, 0, 0 },
    { COLL_F32, 0, 0, COLL_AVG, 0, COLL_REPRODUCIBLE },  { COLL_F64, 0, 0, COLL_SUM, 0, COLL_REPRODUCIBLE },
    { COLL_BF16, 0, 0, COLL_SUM, 0, COLL_REPRODUCIBLE }, { COLL_F16, 0, 0, COLL_AVG, 0.3, COLL_REPRODUCIBLE },
    { COLL_I32, 0, 0, COLL_SUM, 0, 0 },                  { COLL_U8, 0, 0, COLL_SUM, 0, 0 }
};
/* Integers are last: the library adds them up, but has no calls with leaves of them. */
enum { LEAVES_RULES = sizeof leaves_rules / sizeof *leaves_rules, LEAVES_FLOATS = LEAVES_RULES - 2 };

SUPPORT bool leaves_in_doubles(const leaves_rule *r)
{
    return r->type == COLL_F64 || r->type == COLL_C128 || r->accumulate == COLL_F64;
}

/* Real numbers in an element. */
SUPPORT size_t leaves_reals(const leaves_rule *r) { return r->type == COLL_C64 || r->type == COLL_C128 ? 2 : 1; }

SUPPORT coll_call leaves_call(const leaves_rule *r)
{
    return (coll_call){ .kind = COLL_ALLREDUCE, .type = r->type, .wire = r->wire, .accumulate = r->accumulate, .op = r->op,
                        .scale = r->scale, .flags = r->flags | COLL_DETERMINISTIC };
}

/* ---- >>leaves ---- */

/* Real `i` of a leaf.  Its magnitudes are far apart, so that another order of additions shows; some cancel, some are special. */
SUPPORT uint64_t leaves_real(const leaves_rule *r, uint64_t seed, uint64_t leaf, size_t i)
{
    const model_type t = model_type_of(r->type);
    const support_type *part = &t.part;
    const uint64_t common = support_mix(seed + i * UINT64_C(0xd1342543de82ef95));
    const uint64_t random = support_mix(common ^ (leaf + 1) * UINT64_C(0xaf251af3b0f025b5));
    const uint64_t pair = support_mix(common ^ (leaf / 2 + 1) * UINT64_C(0x8cb92ba72f3d8dd7));
    const int width = (int)part->size * 8, places = part->fraction_bits, bias = (1 << part->exponent_bits) / 2 - 1;

    if (!places) return random & ~UINT64_C(0) >> (64 - width);
    const int spread = 2 * (places < bias / 2 ? places : bias / 2);             /* exponents                            */
    const uint64_t exponent = (uint64_t)(bias - spread / 2 + (int)((random >> 8) % (uint64_t)(spread + 1)));
    const uint64_t sign = UINT64_C(1) << (width - 1), fraction = (random >> 20) & ((UINT64_C(1) << places) - 1);
    const uint64_t plain = (random & 1 ? sign : 0) | exponent << places | fraction;
    if (i % 16 == 11) return support_special_float(part, common % 8, random);
    if (i % 16 == 12) return pair % 3 ? (leaf & 1 ? sign : 0) | ((plain ^ pair) & 1) | (exponent / 2 * 2) << places : plain;
    return plain;
}

SUPPORT void leaves_fill(const leaves_rule *r, uint64_t seed, uint64_t leaf, size_t count, void *to)
{
    const model_type t = model_type_of(r->type);
    const size_t reals = count * leaves_reals(r);

    for (size_t i = 0; i < reals; i++)
        support_store(&t.part, (unsigned char *)to + i * t.part.size, leaves_real(r, seed, leaf, i));
}

/* ---- >>sums ---- */

/* Node [k 2^level, (k + 1) 2^level) over `total` leaves: the sum of its halves; what is beyond the end is absent. */
SUPPORT double leaves_node(const double *x, uint64_t total, int level, uint64_t k, bool in_doubles)
{
    if (level == 0) return x[k];
    const double low = leaves_node(x, total, level - 1, 2 * k, in_doubles);
    if ((2 * k + 1) << (level - 1) >= total) return low;
    const double high = leaves_node(x, total, level - 1, 2 * k + 1, in_doubles);
    return in_doubles ? low + high : (double)((float)low + (float)high);
}

/* The level of the node of all leaves. */
SUPPORT int leaves_top(uint64_t total)
{
    int level = 0;
    while ((UINT64_C(1) << level) < total) level++;
    return level;
}

/* values[i][leaf]: real i of each leaf.  Leaves are not rounded to the wire. */
SUPPORT void leaves_values(const leaves_rule *r, uint64_t seed, uint64_t total, size_t reals, double *values)
{
    const model_type t = model_type_of(r->type);

    for (uint64_t leaf = 0; leaf < total; leaf++)
        for (size_t i = 0; i < reals; i++) values[i * total + leaf] = model_value(&t.part, leaves_real(r, seed, leaf, i));
}

/* A real of the result from the sum of all: divided and scaled in the type of the sum, rounded once, to the wire. */
SUPPORT uint64_t leaves_finish(const leaves_rule *r, double sum, uint64_t total)
{
    const model_type t = model_type_of(r->type), wire = model_type_of(r->wire ? r->wire : r->type);
    const bool in_doubles = leaves_in_doubles(r), saturates = (r->flags & COLL_SATURATE) != 0;

    if (r->flags & COLL_REPRODUCIBLE) return model_bits(&t.part, sum, saturates);
    if (r->op == COLL_AVG) sum = in_doubles ? sum / (double)total : (double)((float)sum / (float)total);
    if (r->scale != 0) sum = in_doubles ? sum * r->scale : (double)((float)sum * (float)r->scale);
    const uint64_t rounded = model_bits(&wire.part, sum, saturates);
    return r->wire ? model_bits(&t.part, model_value(&wire.part, rounded), saturates) : rounded;
}

/* The sum of all leaves of a real: by the tree, or on the grid of COLL_REPRODUCIBLE, where it is divided and scaled in f64. */
SUPPORT double leaves_sum(const leaves_rule *r, const double *x, uint64_t total)
{
    if (!(r->flags & COLL_REPRODUCIBLE)) return leaves_node(x, total, leaves_top(total), 0, leaves_in_doubles(r));
    return exact_result(x, (int)total, r->type == COLL_F64, r->op == COLL_AVG ? (double)total : 1, r->scale != 0 ? r->scale : 1);
}

/* What the ranks must find. */
SUPPORT void leaves_expect(const leaves_rule *r, uint64_t seed, uint64_t total, size_t count, void *to)
{
    const model_type t = model_type_of(r->type);
    const size_t reals = count * leaves_reals(r);
    double *const values = support_need(malloc(reals * total * sizeof *values));

    if (t.class != MODEL_INTEGER) leaves_values(r, seed, total, reals, values);
    for (size_t i = 0; i < reals; i++) {
        uint64_t bits = 0;
        for (uint64_t leaf = 0; t.class == MODEL_INTEGER && leaf < total; leaf++) bits += leaves_real(r, seed, leaf, i);
        if (t.class != MODEL_INTEGER)
            bits = leaves_finish(r, leaves_sum(r, values + i * total, total), total);
        support_store(&t.part, (unsigned char *)to + i * t.part.size, bits);
    }
    free(values);
}

/* The nodes of leaves [first, end), one behind the other, as vectors of the type of the sum; returns how many.  With
 * COLL_REPRODUCIBLE the leaves themselves. */
SUPPORT int leaves_nodes(const leaves_rule *r, uint64_t seed, uint64_t first, uint64_t end, size_t count, void *to)
{
    const model_type t = model_type_of(r->type);
    const size_t reals = count * leaves_reals(r);
    const bool in_doubles = leaves_in_doubles(r), is_integer = t.class == MODEL_INTEGER;
    double *const values = support_need(malloc(reals * end * sizeof *values + 1));
    unsigned char *at = to;
    int made = 0;

    for (uint64_t leaf = first; r->flags & COLL_REPRODUCIBLE && leaf < end; leaf++, made++)
        leaves_fill(r, seed, leaf, count, at + (size_t)made * count * t.size);
    if (made) first = end;
    if (!is_integer) leaves_values(r, seed, end, reals, values);
    for (; first < end; made++) {
        int level = 0;
        while (!(first >> level & 1) && (UINT64_C(2) << level) <= end - first) level++;
        for (size_t i = 0; i < reals; i++) {
            const double sum = is_integer ? 0 : leaves_node(values + i * end, end, level, first >> level, in_doubles);
            const float single = (float)sum;
            uint64_t whole = 0;
            for (uint64_t leaf = first; is_integer && leaf < first + (UINT64_C(1) << level); leaf++)
                whole += leaves_real(r, seed, leaf, i);
            if (is_integer) support_store(&t.part, at, whole), at += t.size;
            else if (in_doubles) memcpy(at, &sum, 8), at += 8;
            else memcpy(at, &single, 4), at += 4;
        }
        first += UINT64_C(1) << level;
    }
    free(values);
    return made;
}

#endif /* LEAVES_H */
