/* test_numbers.c - conversions and reductions against slow references that share no code with them.
 *
 * Random inputs come from a seeded generator; COLL_TEST_SEED=n repeats a run.  A check covers one
 * case, not one element. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include "check.h"
#include <float.h>
#include <math.h>
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

typedef struct format {
    coll_type type;
    int exponent_bits, mantissa_bits;
} format;

static const format formats[] = {
    { COLL_F16, 5, 10 }, { COLL_BF16, 8, 7 }, { COLL_F32, 8, 23 }, { COLL_F64, 11, 52 }
};

static const format *format_of(coll_type type)
{
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        if (formats[k].type == type) return &formats[k];
    }
    return NULL;
}

static uint64_t reference_nan(const format *f)
{
    return ((UINT64_C(2) << f->exponent_bits) - 1) << (f->mantissa_bits - 1);
}

/* The value of bits, for the formats that fit a double exactly. */
static double reference_value(const format *f, uint64_t bits)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const uint64_t mantissa = bits & ((UINT64_C(1) << f->mantissa_bits) - 1);
    const int exponent = (int)(bits >> f->mantissa_bits) & ((1 << f->exponent_bits) - 1);
    const bool negative = (bits >> (f->exponent_bits + f->mantissa_bits)) & 1u;
    double value;

    if (exponent == (1 << f->exponent_bits) - 1) value = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0) value = ldexp((double)mantissa, 1 - bias - f->mantissa_bits);
    else value = ldexp((double)(mantissa + (UINT64_C(1) << f->mantissa_bits)),
                       exponent - bias - f->mantissa_bits);
    return negative ? -value : value;
}

/* The bits nearest to a double, ties to even: the value is counted in units of the last place. */
static uint64_t reference_round(const format *f, double value)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    const uint64_t infinity = ((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits;
    const uint64_t sign = signbit(value) ? UINT64_C(1) << (f->exponent_bits + f->mantissa_bits) : 0;
    int exponent;

    if (isnan(value)) return reference_nan(f);
    if (isinf(value)) return sign | infinity;
    (void)frexp(value, &exponent);
    exponent--;                                             /* value = 1.xxx * 2^exponent */
    if (value == 0 || exponent < 1 - bias) exponent = 1 - bias;

    const double units = ldexp(fabs(value), f->mantissa_bits - exponent);
    uint64_t whole = (uint64_t)units;
    const double rest = units - (double)whole;
    if (rest > 0.5 || (rest == 0.5 && (whole & 1u))) whole++;

    /* A hidden one counts as one step of the exponent field, and so does a carry. */
    const uint64_t bits = ((uint64_t)(exponent + bias - 1) << f->mantissa_bits) + whole;
    return sign | (bits < infinity ? bits : infinity);
}

static uint64_t bits_at(const void *memory, size_t size, size_t at)
{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)memory + at * size, size);  /* The test runs on little-endian. */
    return bits;
}

static double value_at(coll_type type, const void *memory, size_t at)
{
    return reference_value(format_of(type), bits_at(memory, coll_type_size(type), at));
}

/* ---- >>conversions ---- */

/* How many of the `count` elements convert otherwise than the reference says, on the given tier. */
static size_t wrong_conversions(coll_type to, coll_type from, const void *input, size_t count,
                                int tier)
{
    const size_t size = coll_type_size(to);
    char *const memory = malloc(count * size + 1), *const output = memory + 1;
    size_t wrong = 0;

    if (coll__convert(output, to, input, from, count, tier) != COLL_OK) wrong = count;
    for (size_t i = 0; i < count && !wrong; i++) {
        const uint64_t expected = reference_round(format_of(to), value_at(from, input, i));
        const uint64_t got = bits_at(output, size, i);
        if (got == expected) continue;
        fprintf(stderr, "%s %#llx to %s: %#llx, expected %#llx\n", coll_type_name(from),
                (unsigned long long)bits_at(input, coll_type_size(from), i), coll_type_name(to),
                (unsigned long long)got, (unsigned long long)expected);
        wrong++;
    }
    free(memory);
    return wrong;
}

static void check_conversions_of(coll_type from, const void *input, size_t count, const char *what)
{
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        if (formats[k].type == from) continue;
        for (int tier = 0; tier <= coll__tier(); tier++) {
            CHECK(!wrong_conversions(formats[k].type, from, input, count, tier),
                  "%s: %s to %s, tier %d", what, coll_type_name(from),
                  coll_type_name(formats[k].type), tier);
        }
    }
}

/* Every half there is: to each other type, there and back, and through the functions for one. */
static void test_halves(void)
{
    enum { ALL = 65536 };
    uint16_t *const halves = malloc(ALL * sizeof *halves);
    uint64_t *const wide = malloc(ALL * sizeof *wide);
    uint16_t *const back = malloc(ALL * sizeof *back);

    for (int i = 0; i < ALL; i++) halves[i] = (uint16_t)i;
    for (int k = 0; k < 2; k++) {
        const format *const f = &formats[k];
        const coll_type wider[2] = { COLL_F32, COLL_F64 };
        size_t wrong = 0;

        check_conversions_of(f->type, halves, ALL, "all halves");
        for (int w = 0; w < 2; w++) {
            coll_convert(wide, wider[w], halves, f->type, ALL);
            coll_convert(back, f->type, wide, wider[w], ALL);
            for (int i = 0; i < ALL; i++) {
                const bool is_nan = isnan(reference_value(f, (uint64_t)i));
                wrong += back[i] != (is_nan ? reference_nan(f) : (uint64_t)i);
            }
        }
        CHECK(wrong == 0, "%zu of %s do not come back", wrong, coll_type_name(f->type));

        for (int i = 0; i < ALL; i++) {
            const float one = k ? coll_bf16_to_f32(halves[i]) : coll_f16_to_f32(halves[i]);
            const uint16_t again = k ? coll_f32_to_bf16(one) : coll_f32_to_f16(one);
            const double value = reference_value(f, (uint64_t)i);
            wrong += bits_at(&one, 4, 0) != reference_round(&formats[2], value);
            wrong += again != reference_round(f, value);
        }
        CHECK(wrong == 0, "%zu of %s differ one by one", wrong, coll_type_name(f->type));
    }
    free(halves);
    free(wide);
    free(back);
}

/* Every upper half of an f32, with lower halves on, just beside, and far from every tie. */
static void test_from_f32(void)
{
    static const uint32_t lower[] = { 0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001,
                                      0x7fff, 0x8000, 0x8001, 0xffff };
    enum { EACH = sizeof lower / sizeof *lower + 1 };
    const size_t count = (size_t)65536 * EACH;
    uint32_t *const input = malloc(count * sizeof *input);

    for (uint32_t i = 0; i < 65536; i++) {
        for (uint32_t k = 0; k < EACH; k++) {
            const uint32_t any = (uint32_t)random_bits() & 0xffff;
            input[i * EACH + k] = i << 16 | (k < EACH - 1 ? lower[k] : any);
        }
    }
    check_conversions_of(COLL_F32, input, count, "f32 on and beside ties");

    /* Ties of the subnormal f16: (k + 1/2) * 2^-24, and their neighbours. */
    for (size_t k = 0; k < 3 * 1025; k++) {
        const float tie = (float)ldexp((double)(k / 3) + 0.5, -24);
        uint32_t bits;
        memcpy(&bits, &tie, sizeof bits);
        input[k] = (bits + (uint32_t)(k % 3) - 1) | (uint32_t)(random_bits() & 1) << 31;
    }
    check_conversions_of(COLL_F32, input, 3 * 1025, "f32 about the ties of subnormal f16");
    free(input);
}

/* The middle between any two neighbouring halves, and the doubles beside it: a conversion by way of
 * f32 would take those for the middle. */
static void test_from_f64(void)
{
    const size_t count = 6 * 65536;
    uint64_t *const input = malloc(count * sizeof *input);

    for (int k = 0; k < 2; k++) {
        const format *const f = &formats[k];
        const uint64_t infinity = reference_round(f, (double)INFINITY);
        for (uint64_t i = 0; i < 65536; i++) {
            uint64_t *const at = &input[6 * i];
            const uint64_t magnitude = i & 0x7fff;
            const double low = reference_value(f, magnitude);
            double middle = low;
            if (magnitude < infinity - 1) {
                middle += (reference_value(f, magnitude + 1) - low) / 2;
            } else if (magnitude == infinity - 1) {         /* Halfway to what would come next. */
                middle += (low - reference_value(f, magnitude - 1)) / 2;
            }
            memcpy(at, &middle, sizeof middle);
            at[1] = at[0] + 1;
            at[2] = at[0] - 1;
            at[3] = at[0] + (random_bits() & 0xfffff);
            at[4] = random_bits();
            at[5] = (random_bits() >> 12) | (UINT64_C(1023) - 160 + random_bits() % 320) << 52;
            for (int n = 0; n < 6; n++) at[n] ^= (i >> 15) << 63;
        }
        check_conversions_of(COLL_F64, input, count, "f64 about every middle");
    }
    free(input);
}

static void test_convert_refusals(void)
{
    static const coll_type types[] = { COLL_I8, COLL_I16, COLL_I32, COLL_I64, COLL_U8, COLL_U16,
                                       COLL_U32, COLL_U64, COLL_F16, COLL_BF16, COLL_F32,
                                       COLL_F64 };
    enum { TYPES = sizeof types / sizeof *types };
    uint64_t from[4] = { UINT64_C(0xfff7dead7fa1beef), 2, 3, 4 }, to[4];

    for (int a = 0; a < TYPES; a++) {
        for (int b = 0; b < TYPES; b++) {
            const bool floats = format_of(types[a]) && format_of(types[b]);
            const coll_status expected = a == b || floats ? COLL_OK : COLL_ERR_UNSUPPORTED;
            const coll_status status = coll_convert(to, types[b], from, types[a], 3);
            CHECK(status == expected, "%s to %s: %d", coll_type_name(types[a]),
                  coll_type_name(types[b]), status);
        }
        CHECK(coll_convert(to, types[a], from, types[a], 4) == COLL_OK
              && !memcmp(to, from, 4 * coll_type_size(types[a])),
              "%s copies", coll_type_name(types[a]));
    }
    CHECK(coll_convert(NULL, COLL_F32, from, COLL_F16, 1) == COLL_ERR_ARGUMENT, "no %s", "target");
    CHECK(coll_convert(to, COLL_F32, NULL, COLL_F16, 1) == COLL_ERR_ARGUMENT, "no %s", "source");
    CHECK(coll_convert(NULL, COLL_F32, NULL, COLL_F16, 0) == COLL_OK, "no %s", "elements");
    CHECK(coll_convert(NULL, COLL_F32, NULL, COLL_F32, 0) == COLL_OK, "no %s", "f32 to copy");
    CHECK(coll_convert(to, COLL_F32, from, 0, 1) == COLL_ERR_ARGUMENT, "type %d", 0);
    CHECK(coll_convert(to, 99, from, 99, 1) == COLL_ERR_ARGUMENT, "type %d", 99);
    CHECK(coll_convert(to, COLL_F64, from, COLL_F64, SIZE_MAX / 4) == COLL_ERR_ARGUMENT,
          "count %zu", SIZE_MAX / 4);
}

static void test_names(void)
{
    CHECK(coll_type_size(COLL_I8) == 1 && coll_type_size(COLL_BF16) == 2
          && coll_type_size(COLL_U32) == 4 && coll_type_size(COLL_F64) == 8, "%s", "sizes");
    for (int type = -1; type < 18; type++) {
        const bool known = type > 0 && type <= COLL_F64 && type != 9 && type != 12 && type != 13;
        CHECK((coll_type_size(type) > 0) == known
              && (strcmp(coll_type_name(type), "?") != 0) == known, "type %d", type);
    }
    CHECK(!strcmp(coll_type_name(COLL_F32), "f32") && !strcmp(coll_type_name(COLL_BF16), "bf16"),
          "%s", "types");
    CHECK(!strcmp(coll_op_name(COLL_SUM), "sum") && !strcmp(coll_op_name(COLL_AVG), "avg")
          && !strcmp(coll_op_name((coll_op)17), "?"), "%s", "ops");
}

/* ---- >>oracle: one element of a reduction, by definition ---- */

enum { MOST = 17, COUNT = 5000 };                 /* sources; elements of the longest case */

__extension__ typedef __int128 int128;

static int128 integer_at(coll_type type, const void *memory, size_t at)
{
    const uint64_t bits = bits_at(memory, coll_type_size(type), at);
    switch (type) {
    case COLL_I8:  return (int8_t)bits;
    case COLL_I16: return (int16_t)bits;
    case COLL_I32: return (int32_t)bits;
    case COLL_I64: return (int64_t)bits;
    default:       return (int128)bits;
    }
}

static uint64_t oracle_integer(coll_op op, int n, const int128 *x)
{
    int128 best = x[0], sum = 0;
    uint64_t product = 1;

    for (int k = 0; k < n; k++) {
        if (op == COLL_MIN ? x[k] < best : x[k] > best) best = x[k];
        sum += x[k];
        product *= (uint64_t)x[k];
    }
    return op == COLL_SUM ? (uint64_t)sum : op == COLL_PROD ? product
         : op == COLL_AVG ? (uint64_t)(sum / n) : (uint64_t)best;
}

static double oracle_pair(coll_op op, bool in_f32, double a, double b)
{
    if (op == COLL_MIN || op == COLL_MAX) {
        if (isnan(a) || isnan(b)) return (double)NAN;
        const bool a_below = a < b || (a == b && signbit(a) && !signbit(b));
        return (op == COLL_MIN) == a_below ? a : b;
    }
    /* One operation on two floats, done in double, rounds to float as if done exactly. */
    const double result = op == COLL_PROD ? a * b : a + b;
    return in_f32 ? (double)(float)result : result;
}

/* The left-complete tree: the left part is the largest power of two that leaves something. */
static double oracle_tree(coll_op op, bool in_f32, int n, const double *x)
{
    int left = 1;

    if (n == 1) return x[0];
    while (2 * left < n) left *= 2;
    return oracle_pair(op, in_f32, oracle_tree(op, in_f32, left, x),
                       oracle_tree(op, in_f32, n - left, x + left));
}

/* ---- >>combine ---- */

typedef struct cell {
    coll_type type, wire;
    coll_op op;
    int n;
    void *sources[MOST];                          /* COUNT elements each, in the user's type */
    void *expected;
} cell;

/* What is rounded on the wire counts as rounded wherever it is. */
static void oracle(const cell *c)
{
    const size_t size = coll_type_size(c->type);
    const format *const user = format_of(c->type), *const wire = format_of(c->wire);
    const bool in_f32 = c->type != COLL_F64;
    double x[MOST];
    int128 whole[MOST];

    for (size_t i = 0; i < COUNT; i++) {
        uint64_t bits;
        for (int k = 0; k < c->n; k++) {
            if (!user) whole[k] = integer_at(c->type, c->sources[k], i);
            else x[k] = value_at(c->type, c->sources[k], i);
            if (user != wire) x[k] = reference_value(wire, reference_round(wire, x[k]));
        }
        if (user) {
            double result = oracle_tree(c->op, in_f32, c->n, x);
            if (c->op == COLL_AVG) result = result / c->n;
            if (c->op == COLL_AVG && in_f32) result = (double)(float)result;
            if (user != wire) result = reference_value(wire, reference_round(wire, result));
            bits = reference_round(user, result);
        } else {
            bits = oracle_integer(c->op, c->n, whole);
        }
        memcpy((char *)c->expected + i * size, &bits, size);
    }
}

/* Half anything at all, and half moderate numbers, of which some sums tie. */
static void fill(coll_type type, void *memory, size_t count)
{
    const size_t size = coll_type_size(type);
    const format *const f = format_of(type);

    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_bits();
        const uint64_t kind = bits % 16, few = (bits >> 8) % 7;
        if (f && kind >= 7) bits = reference_round(f, ((double)(bits >> 32) - 0x1p31) * 0x1p-29);
        else if (f && kind == 6) bits = few << (f->exponent_bits + f->mantissa_bits - 1);
        else if (kind < 4) bits = few - 3;
        memcpy((char *)memory + i * size, &bits, size);
    }
}

/* One call with buffers of exactly the right length, so that a sanitizer sees any step beside them,
 * at odd addresses; some sources are as they would arrive.  alias >= 0: the first result is that
 * source.  Returns how many results are wrong. */
static int wrong_results(const cell *c, int m, size_t count, int tier, int alias)
{
    const size_t size = coll_type_size(c->type);
    const uint64_t shape = random_bits();
    void *memory[MOST], *outputs[3], *results[3] = { NULL, NULL, NULL };
    coll__source sources[MOST];
    coll__codec codec;
    int wrong = 0;

    if (!coll__codec_reduce_in(&codec, c->type, c->wire, c->op, c->n, tier)) return -1;
    void *const scratch = aligned_alloc(64, coll__combine_scratch(c->n));
    for (int k = 0; k < c->n; k++) {
        const size_t skew = (shape >> k) % 8;
        const bool is_wire = k != alias && (shape >> (k + 20) & 1u);
        memory[k] = malloc(count * size + skew + 1);
        sources[k].at = (char *)memory[k] + skew;
        sources[k].is_wire = is_wire;
        if (is_wire) coll__pack(&codec, (char *)memory[k] + skew, c->sources[k], count);
        else if (count) memcpy((char *)memory[k] + skew, c->sources[k], count * size);
    }
    for (int j = 0; j < m; j++) {
        const size_t skew = (shape >> (j + 40)) % 8;
        outputs[j] = malloc(count * size + skew + 1);
        results[j] = (char *)outputs[j] + skew;
        if (j == 0 && alias >= 0) results[j] = (char *)memory[alias] + (shape >> alias) % 8;
    }
    coll__combine(&codec, sources, c->n, results, m, count, scratch);
    for (int j = 0; j < m; j++) wrong += memcmp(results[j], c->expected, count * size) != 0;
    for (int k = 0; k < c->n; k++) free(memory[k]);
    for (int j = 0; j < m; j++) free(outputs[j]);
    free(scratch);
    return wrong;
}

static void check_cell(const cell *c)
{
    static const size_t counts[] = { 0, 1, 2, 3, 17, 1023, 1025, COUNT };

    oracle(c);
    for (int tier = 0; tier <= coll__tier(); tier++) {
        int wrong = 0;
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            for (int m = 0; m <= 3; m++) {
                if (counts[k] != 17 && counts[k] != 1025 && m != ((int)k + c->n) % 4) continue;
                wrong += wrong_results(c, m, counts[k], tier, -1);
            }
            wrong += wrong_results(c, 1 + c->n % 2, counts[k], tier, (int)k % c->n);
        }
        CHECK(wrong == 0, "%s over %s, %s of %d, tier %d", coll_type_name(c->type),
              coll_type_name(c->wire), coll_op_name(c->op), c->n, tier);
    }
}

static void test_combine(void)
{
    static const coll_type types[][2] = {
        { COLL_I8, COLL_I8 },   { COLL_I16, COLL_I16 },   { COLL_I32, COLL_I32 },
        { COLL_I64, COLL_I64 }, { COLL_U8, COLL_U8 },     { COLL_U16, COLL_U16 },
        { COLL_U32, COLL_U32 }, { COLL_U64, COLL_U64 },   { COLL_F16, COLL_F16 },
        { COLL_F64, COLL_F64 }, { COLL_BF16, COLL_BF16 }, { COLL_F32, COLL_F32 },
        { COLL_F32, COLL_F16 }, { COLL_F32, COLL_BF16 }
    };
    static const int sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, MOST };
    cell c;

    for (int k = 0; k < MOST; k++) c.sources[k] = malloc(COUNT * 8);
    c.expected = malloc(COUNT * 8);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        c.type = types[t][0];
        c.wire = types[t][1];
        for (int k = 0; k < MOST; k++) fill(c.type, c.sources[k], COUNT);
        for (int op = COLL_SUM; op <= COLL_AVG; op++) {
            c.op = (coll_op)op;
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                c.n = sizes[k];
                check_cell(&c);
            }
        }
    }
    for (int k = 0; k < MOST; k++) free(c.sources[k]);
    free(c.expected);
}

/* A deep tree, overflow to infinity, and a negative zero that stays one. */
static void test_many_sources(void)
{
    enum { N = 1000, FEW = 3 };
    float value[FEW] = { 0.1f, 3e38f, -0.0f }, result[FEW];
    coll__source *const sources = malloc(N * sizeof *sources);
    void *const results[1] = { result };
    void *const scratch = aligned_alloc(64, coll__combine_scratch(N));
    double x[N];
    coll__codec codec;

    CHECK(coll__codec_reduce(&codec, COLL_F32, COLL_F32, COLL_AVG, N), "%d ranks", N);
    for (int k = 0; k < N; k++) {
        sources[k] = (coll__source){ value, false };
        x[k] = (double)value[0];
    }
    coll__combine(&codec, sources, N, results, 1, FEW, scratch);
    const double expected = oracle_tree(COLL_SUM, true, N, x) / N;
    CHECK((double)result[0] == (double)(float)expected, "%g", (double)result[0]);
    CHECK(isinf(result[1]) && result[2] == 0 && signbit(result[2]), "%g %g", (double)result[1],
          (double)result[2]);
    CHECK(coll__combine_scratch(N) <= 13 * 4096, "%zu", coll__combine_scratch(N));
    free(sources);
    free(scratch);
}

static void test_codec_refusals(void)
{
    coll__codec codec;

    CHECK(!coll__codec_reduce(&codec, 9, 9, COLL_SUM, 2), "type %d", 9);
    CHECK(!coll__codec_reduce(&codec, COLL_F32, COLL_F64, COLL_SUM, 2), "wire %s", "f64");
    CHECK(!coll__codec_reduce(&codec, COLL_F64, COLL_F16, COLL_SUM, 2), "f64 over %s", "f16");
    CHECK(!coll__codec_reduce(&codec, COLL_F16, COLL_BF16, COLL_SUM, 2), "f16 over %s", "bf16");
    CHECK(!coll__codec_reduce(&codec, COLL_F32, 0, COLL_SUM, 2), "wire %d", 0);
    CHECK(!coll__codec_reduce(&codec, COLL_F32, COLL_F32, (coll_op)5, 2), "op %d", 5);
    CHECK(!coll__codec_reduce(&codec, COLL_F32, COLL_F32, (coll_op)-1, 2), "op %d", -1);
    CHECK(!coll__codec_reduce(&codec, COLL_I32, COLL_I32, COLL_AVG, 0), "%d ranks", 0);
    CHECK(!coll__codec_move(&codec, 13) && coll__codec_move(&codec, COLL_I16), "move %d", 13);
    CHECK(codec.same && codec.type_size == 2 && codec.wire_size == 2, "move of %zu bytes",
          codec.type_size);
    CHECK(coll__codec_reduce(&codec, COLL_F32, COLL_BF16, COLL_AVG, 3) && !codec.same
          && codec.wire_size == 2 && codec.type_size == 4, "f32 over %s", "bf16");
}

static void test_pack(void)
{
    const uint32_t input[5] = { 0x3f800001, 0x7f800001, 0xffc12345, 0x80000000, 0x477ff000 };
    const coll_type wires[3] = { COLL_F16, COLL_BF16, COLL_F32 };

    for (int w = 0; w < 3; w++) {
        unsigned char wire[20], user[20], expected_wire[20], expected_user[20];
        coll__codec codec;
        CHECK(coll__codec_reduce(&codec, COLL_F32, wires[w], COLL_SUM, 2), "wire %d", wires[w]);
        coll_convert(expected_wire, wires[w], input, COLL_F32, 5);
        coll_convert(expected_user, COLL_F32, expected_wire, wires[w], 5);
        coll__pack(&codec, wire, input, 5);
        coll__unpack(&codec, user, wire, 5);
        CHECK(!memcmp(wire, expected_wire, 5 * codec.wire_size), "pack to %s",
              coll_type_name(wires[w]));
        CHECK(!memcmp(user, expected_user, 5 * codec.type_size), "unpack from %s",
              coll_type_name(wires[w]));
        coll__pack(&codec, NULL, NULL, 0);
        coll__unpack(&codec, NULL, NULL, 0);
    }
}

/* ---- >>rules: said one by one, so that a failure says which ---- */

#define RULE(T, type, op, a, b, holds)                                                            \
    do {                                                                                          \
        const T in = a;                                                                           \
        T out = b;                                                                                \
        const coll_status status = coll_reduce_local(&in, &out, 1, type, op);                     \
        CHECK(!status && (holds), "%s of %s", coll_op_name(op), coll_type_name(type));            \
    } while (0)

static void test_rules_integer(void)
{
    RULE(int8_t, COLL_I8, COLL_SUM, 127, 1, out == -128);
    RULE(int8_t, COLL_I8, COLL_PROD, -128, -1, out == -128);
    RULE(uint16_t, COLL_U16, COLL_PROD, 65535, 65535, out == 1);
    RULE(int32_t, COLL_I32, COLL_SUM, INT32_MIN, -1, out == INT32_MAX);
    RULE(int64_t, COLL_I64, COLL_SUM, INT64_MAX, INT64_MAX, out == -2);
    RULE(int8_t, COLL_I8, COLL_MIN, -1, 1, out == -1);
    RULE(uint8_t, COLL_U8, COLL_MIN, 255, 1, out == 1);

    /* An average neither wraps nor rounds away from zero. */
    const int64_t high[3] = { INT64_MAX, INT64_MAX, INT64_MAX - 1 };
    const int32_t low[3] = { -1, 0, -4 };
    int64_t wide;
    int32_t narrow;
    void *const wides[1] = { &wide }, *const narrows[1] = { &narrow };
    _Alignas(64) unsigned char scratch[4 * 4096];
    coll__codec codec;
    const coll__source highs[3] = { { &high[0], false }, { &high[1], true }, { &high[2], false } };
    const coll__source lows[3] = { { &low[0], false }, { &low[1], true }, { &low[2], false } };
    coll__codec_reduce(&codec, COLL_I64, COLL_I64, COLL_AVG, 3);
    coll__combine(&codec, highs, 3, wides, 1, 1, scratch);
    CHECK(wide == INT64_MAX - 1, "average %lld", (long long)wide);
    coll__codec_reduce(&codec, COLL_I32, COLL_I32, COLL_AVG, 3);
    coll__combine(&codec, lows, 3, narrows, 1, 1, scratch);
    CHECK(narrow == -1, "average %d", narrow);
}

static void test_rules_float(void)
{
    RULE(float, COLL_F32, COLL_MIN, 0.0f, -0.0f, signbit(out));
    RULE(float, COLL_F32, COLL_MIN, -0.0f, 0.0f, signbit(out));
    RULE(double, COLL_F64, COLL_MAX, -0.0, 0.0, !signbit(out));
    RULE(double, COLL_F64, COLL_MAX, 0.0, -0.0, !signbit(out));
    RULE(uint32_t, COLL_F32, COLL_MAX, 0xffc00001u, 0x3f800000u, out == 0x7fc00000u);
    RULE(uint32_t, COLL_F32, COLL_SUM, 0x7f800000u, 0xff800000u, out == 0x7fc00000u);
    RULE(uint16_t, COLL_F16, COLL_SUM, 0x7bff, 0x7bff, out == 0x7c00);
    RULE(uint16_t, COLL_BF16, COLL_MIN, 0xffff, 0x3f80, out == 0x7fc0);
    RULE(uint16_t, COLL_F16, COLL_SUM, 0x0001, 0x0001, out == 0x0002);

    /* 256 + 1 + 1: in bf16 each sum would round back to 256; in f32 the two ones count. */
    const uint16_t part[4] = { 0x4380, 0x3f80, 0x3f80, 0x0000 };
    const coll__source sources[4] = { { &part[0], false }, { &part[1], true },
                                      { &part[2], true }, { &part[3], true } };
    uint16_t sum;
    void *const results[1] = { &sum };
    _Alignas(64) unsigned char scratch[4 * 4096];
    coll__codec codec;
    coll__codec_reduce(&codec, COLL_BF16, COLL_BF16, COLL_SUM, 4);
    coll__combine(&codec, sources, 4, results, 1, 1, scratch);
    CHECK(sum == 0x4381, "256 + 1 + 1 = %#x", sum);
}

static void test_reduce_local(void)
{
    float in[5000], inout[5000];
    size_t wrong = 0;

    for (int i = 0; i < 5000; i++) {
        in[i] = (float)i;
        inout[i] = 0.5f;
    }
    CHECK(coll_reduce_local(in, inout, 4999, COLL_F32, COLL_SUM) == COLL_OK, "%s", "sum");
    for (int i = 0; i < 5000; i++) wrong += inout[i] != (i < 4999 ? (float)i + 0.5f : 0.5f);
    CHECK(wrong == 0, "%zu sums", wrong);
    CHECK(coll_reduce_local(in, in, 5000, COLL_F32, COLL_SUM) == COLL_OK && in[7] == 14,
          "itself %g", (double)in[7]);
    CHECK(coll_reduce_local(in, inout, 1, COLL_F32, COLL_AVG) == COLL_ERR_UNSUPPORTED, "%s", "avg");
    CHECK(coll_reduce_local(in, inout, 1, COLL_F32, (coll_op)9) == COLL_ERR_ARGUMENT, "op %d", 9);
    CHECK(coll_reduce_local(in, inout, 1, 12, COLL_AVG) == COLL_ERR_ARGUMENT, "avg of %d", 12);
    CHECK(coll_reduce_local(in, inout, 1, 12, COLL_SUM) == COLL_ERR_ARGUMENT, "type %d", 12);
    CHECK(coll_reduce_local(NULL, inout, 1, COLL_F32, COLL_SUM) == COLL_ERR_ARGUMENT, "no %s",
          "in");
    CHECK(coll_reduce_local(in, NULL, 1, COLL_F32, COLL_SUM) == COLL_ERR_ARGUMENT, "no %s",
          "inout");
    CHECK(coll_reduce_local(NULL, NULL, 0, COLL_F32, COLL_SUM) == COLL_OK, "no %s", "elements");
}

int main(void)
{
    const char *const seed = getenv("COLL_TEST_SEED");

    random_state = seed ? strtoull(seed, NULL, 0) : 1;
    printf("COLL_TEST_SEED=%llu, %d tiers\n", (unsigned long long)random_state, coll__tier() + 1);
    test_names();
    test_halves();
    test_from_f32();
    test_from_f64();
    test_convert_refusals();
    test_combine();
    test_many_sources();
    test_codec_refusals();
    test_pack();
    test_rules_integer();
    test_rules_float();
    test_reduce_local();
    return CHECK_DONE();
}
