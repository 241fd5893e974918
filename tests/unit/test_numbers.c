/* test_numbers.c - reductions against slow references that share no code with them.
 *
 * Random inputs come from a seeded generator; COLL_TEST_SEED=n repeats a run.  A check covers one
 * case, not one element.
 *   usage: test_numbers [matrix]       matrix: print which type has which operation, as tested */
#define COLL_STATIC                               /* so that unused functions are not compiled    */
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include "../support/check.h"
#include "numbers.h"
#include "../support/available.h"

/* ---- >>names ---- */

/* A C struct of each pair, to compare its layout with the library's. */
#define PAIR_SIZE(V, I) sizeof(struct { V value; I index; })

static void test_names(void)
{
    static const struct { coll_type type; size_t size; const char *name; } known[] = {
        { 1, 1, "i8" }, { 2, 2, "i16" }, { 3, 4, "i32" }, { 4, 8, "i64" }, { 5, 1, "u8" }, { 6, 2, "u16" },
        { 7, 4, "u32" }, { 8, 8, "u64" }, { 9, 1, "bool" }, { 10, 2, "f16" }, { 11, 2, "bf16" }, { 12, 1, "f8e4m3" },
        { 13, 1, "f8e5m2" }, { 14, 4, "f32" }, { 15, 8, "f64" }, { 16, 8, "c64" }, { 17, 16, "c128" },
        { 18, PAIR_SIZE(float, int32_t), "f32_i32" },   { 19, PAIR_SIZE(double, int32_t), "f64_i32" },
        { 20, PAIR_SIZE(double, int64_t), "f64_i64" },  { 21, PAIR_SIZE(int32_t, int32_t), "i32_i32" },
        { 22, PAIR_SIZE(int64_t, int32_t), "i64_i32" }, { 23, PAIR_SIZE(int64_t, int64_t), "i64_i64" },
        { COLL_BLOB(1), 1, "blob" }, { COLL_BLOB(24), 24, "blob" }, { COLL_BLOB((1 << 30) - 1), (1 << 30) - 1, "blob" },
        { 24, 0, "mxi8" }, { 25, 0, "mxf8e4m3" }, { 26, 0, "mxf8e5m2" },        /* on the wire only */
        { 0, 0, "?" }, { -1, 0, "?" }, { 27, 0, "?" }, { COLL_BLOB(0), 0, "?" }, { INT32_MIN, 0, "?" }
    };
    static const char *const ops[] = { "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor",
                                       "minloc", "maxloc", "user", "?" };

    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        CHECK(coll_type_size(known[k].type) == known[k].size && !strcmp(coll_type_name(known[k].type), known[k].name),
              "type %d: %s of %zu bytes", known[k].type, coll_type_name(known[k].type), coll_type_size(known[k].type));
    }
    for (int op = 0; op <= OPS; op++) CHECK(!strcmp(coll_op_name((coll_op)op), ops[op]), "op %d", op);
    CHECK(!strcmp(coll_op_name((coll_op)-1), "?"), "op %d", -1);
}

/* ---- >>combine: every cell, every tier, every format ---- */

static bool is_tested[TYPES + 1][OPS];            /* cells that have passed */
static unsigned user_calls, user_faults;
static char why[200];

/* The operation of the oracle, and all that the library promises about its arguments. */
static void user_op(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    const cell *const c = context;
    const size_t size = coll_type_size(type), length = count * size;
    const unsigned char *const a = in;
    unsigned char *const b = inout;

    user_calls++;
    user_faults += type != c->call.type || count < 1 || count > c->count || (uintptr_t)in % 16 || (uintptr_t)inout % 16;
    user_faults += a < b ? (size_t)(b - a) < length : (size_t)(a - b) < length;
    for (size_t i = 0; i < length; i++) b[i] = user_byte(a[i], b[i]);
}

/* Buffers of exactly the right length, so that a sanitizer sees any step beside them, at odd addresses. */
typedef struct odd { unsigned char *memory, *at; } odd;

static odd odd_make(size_t length)
{
    const size_t skew = random_bits() % 8;
    odd o = { malloc(length + skew + (length + skew == 0)), NULL };
    o.at = o.memory + skew;
    return o;
}

/* Does the call need a part that is left out of the library?  Then there is no codec, and the sentence names the switch. */
static bool is_left_out(const coll_call *call)
{
    there_lack lack = { .count = 0 };
    coll__codec codec;

    there_need_numbers(&lack, call, call->type);
    if (!lack.count) return false;
    why[0] = 0;
    const bool fits = coll__codec_reduce(&codec, call, 2, why, sizeof why);
    CHECK(!fits && there_refuses(&lack, COLL_ERR_UNSUPPORTED, why), "%s over %s, %s: \"%s\" without %s",
          coll_type_name(call->type), coll_type_name(call->wire), coll_op_name(call->op), why, lack.names[0]);
    return true;
}

static void combine(const coll__codec *codec, const coll__source *sources, int n, void *const *results, int m,
                    coll__format format, size_t count, void *scratch)
{
    coll__combine(codec, &(coll__sum){ .sources = sources, .n = n, .results = results, .m = m, .format = format, .count = count,
                                       .scratch = scratch });
}

/* A source in some format: as the user has it, as it would arrive, or as a partial result. */
static odd source_make(const coll__codec *codec, const void *from, coll__format format, size_t count, void *scratch)
{
    const coll__source user = { from, COLL__AS_USER, 0 };
    odd o = odd_make(count * (format == COLL__AS_USER ? codec->type_size
                              : format == COLL__AS_WIRE ? codec->wire_size : codec->acc_size));
    void *const result = o.at;

    if (format == COLL__AS_WIRE) coll__pack(codec, o.at, from, count, 0, 0);
    else if (format == COLL__AS_SUM) combine(codec, &user, 1, &result, 1, COLL__AS_SUM, count, scratch);
    else if (count) memcpy(o.at, from, count * codec->type_size);
    return o;
}

/* Is a result of this format the expected one? */
static bool is_expected(const cell *c, const coll__codec *codec, coll__format format, void *result, size_t count, void *scratch)
{
    const size_t length = count * codec->type_size;
    odd o = odd_make(length);
    void *const user = o.at;
    const coll__source sum = { result, COLL__AS_SUM, 0 };

    if (format == COLL__AS_WIRE) coll__unpack(codec, user, result, count);
    else if (format == COLL__AS_SUM) combine(codec, &sum, 1, &user, 1, COLL__AS_USER, count, scratch);
    else if (length) memcpy(user, result, length);
    const bool is_right = !length || !memcmp(user, c->expected, length);
    free(o.memory);
    return is_right;
}

/* One call; alias >= 0: the first result is that source.  Returns how many results are wrong. */
static int wrong_results(const cell *c, int m, size_t count, int tier, int alias)
{
    const coll__format format = random_bits() % 2 ? COLL__AS_USER : (coll__format)(random_bits() % 3);
    odd inputs[MOST], outputs[3];
    void *results[3] = { NULL, NULL, NULL };
    coll__source sources[MOST];
    coll__codec codec;
    int wrong = 0;

    if (!coll__codec_reduce_in(&codec, &c->call, c->n, tier, why, sizeof why)) return -1;
    void *const scratch = aligned_alloc(64, coll__combine_scratch(&codec, c->n));
    const uint64_t formats_drawn = random_bits();
    for (int k = 0; k < c->n; k++) {
        const uint64_t drawn = formats_drawn % 3 == 0 ? 0 : formats_drawn % 3 == 1 ? 1 : random_bits() % 3;
        const coll__format own = k == alias ? format : (coll__format)drawn;
        inputs[k] = source_make(&codec, c->sources[k], own, count, scratch);
        sources[k] = (coll__source){ inputs[k].at, own, k };
    }
    for (int j = 0; j < m; j++) {
        outputs[j] = odd_make(count * (format == COLL__AS_USER ? codec.type_size
                                       : format == COLL__AS_WIRE ? codec.wire_size : codec.acc_size));
        results[j] = j == 0 && alias >= 0 ? inputs[alias].at : outputs[j].at;
    }
    combine(&codec, sources, c->n, results, m, format, count, scratch);
    for (int j = 0; j < m; j++) wrong += !is_expected(c, &codec, format, results[j], count, scratch);
    for (int k = 0; k < c->n; k++) free(inputs[k].memory);
    for (int j = 0; j < m; j++) free(outputs[j].memory);
    free(scratch);
    return wrong;
}

/* The same in two stages: two partial results, then one out of both. */
static int wrong_in_stages(const cell *c, int split, size_t count, int tier)
{
    coll__codec codec;
    coll__source sources[MOST], partials[2];
    odd sums[2], result = odd_make(count * coll_type_size(c->call.type));
    void *const out = result.at;

    if (!coll__codec_reduce_in(&codec, &c->call, c->n, tier, why, sizeof why)) return -1;
    void *const scratch = aligned_alloc(64, coll__combine_scratch(&codec, c->n));
    for (int k = 0; k < c->n; k++) sources[k] = (coll__source){ c->sources[k], COLL__AS_USER, k };
    for (int part = 0; part < 2; part++) {
        sums[part] = odd_make(count * codec.acc_size);
        void *const sum = sums[part].at;
        combine(&codec, part ? sources + split : sources, part ? c->n - split : split, &sum, 1, COLL__AS_SUM, count, scratch);
        partials[part] = (coll__source){ sum, COLL__AS_SUM, 0 };
    }
    combine(&codec, partials, 2, &out, 1, COLL__AS_USER, count, scratch);
    const int wrong = !is_expected(c, &codec, COLL__AS_USER, out, count, scratch);
    for (int part = 0; part < 2; part++) free(sums[part].memory);
    free(result.memory);
    free(scratch);
    return wrong;
}

static void check_cell(cell *c)
{
    static const size_t counts[] = { 0, 1, 2, 3, 17, 255, 1025, COUNT };
    const coll_call *const call = &c->call;
    const int split = c->n > 1 ? 1 + (int)(random_bits() % (uint64_t)(c->n - 1)) : 0;
    const size_t few = c->count < 300 ? c->count : 300;
    coll__codec codec;
    int wrong = 0;

    if (is_left_out(call)) return;
    c->split = 0;
    oracle(c, c->count);
    for (int tier = 0; tier <= coll__tier(); tier++) {
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            if (counts[k] > c->count) continue;
            wrong += wrong_results(c, ((int)k + c->n) % 4, counts[k], tier, -1) != 0;
            wrong += wrong_results(c, 1 + c->n % 2, counts[k], tier, (int)k % c->n) != 0;
        }
        if (c->n > 1) wrong += wrong_in_stages(c, left_of(c->n), c->count, tier) != 0;
    }
    coll__codec_reduce(&codec, call, c->n, why, sizeof why);
    if (split) {                                  /* If every grouping is exact, the expected result is the same. */
        c->split = split;
        if (!codec.is_exact) oracle(c, few);
        for (int tier = 0; tier <= coll__tier(); tier++) wrong += wrong_in_stages(c, split, few, tier) != 0;
    }
    CHECK(wrong == 0, "%s over %s in %s, %s of %d, scale %g, flags %u", coll_type_name(call->type), coll_type_name(wire_of(c)),
          coll_type_name(call->accumulate), coll_op_name(call->op), c->n, call->scale, call->flags);
    if (wrong == 0 && call->type <= TYPES) is_tested[call->type][call->op] = true;
}

static void cell_fill(cell *c, coll_type type, size_t count)
{
    c->count = count;
    for (int k = 0; k < MOST; k++) {
        c->sources[k] = malloc(count * coll_type_size(type));
        fill(type, c->sources[k], count);
    }
    c->expected = malloc(count * coll_type_size(type));
}

static void cell_free(const cell *c)
{
    for (int k = 0; k < MOST; k++) free(c->sources[k]);
    free(c->expected);
}

static void test_cells(void)
{
    static const int sizes[] = { 1, 2, 3, 5, 8, MOST };
    static const size_t blobs[] = { 1, 3, 24, 5000 };

    for (coll_type t = 1; t <= TYPES + 4; t++) {
        const coll_type type = t <= TYPES ? t : COLL_BLOB(blobs[t - TYPES - 1]);
        cell c = { .n = 0 };
        cell_fill(&c, type, coll_type_size(type) > 100 ? 3 : COUNT);
        for (int op = 0; op < OPS; op++) {
            if (!is_cell(type, (coll_op)op)) continue;
            c.call = (coll_call){ .type = type, .op = (coll_op)op, .fn = user_op, .fn_context = &c, .not_commutative = true };
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                c.n = sizes[k];
                check_cell(&c);
            }
        }
        cell_free(&c);
    }
    CHECK(user_calls > 0 && user_faults == 0, "%u of %u calls of the user's operation have wrong arguments", user_faults,
          user_calls);
}

static void shuffle(cell *c)
{
    for (int k = c->n - 1; k > 0; k--) {
        const size_t other = (size_t)(random_bits() % (uint64_t)(k + 1));
        void *const last = c->sources[k];
        c->sources[k] = c->sources[other];
        c->sources[other] = last;
    }
}

/* The promises of the table of operations for each cell: if it is exact, other orders and groupings of the inputs give the same
 * bits; where it is commutative, two inputs that change places do. */
static void check_order(cell *c)
{
    const coll_type type = c->call.type, wire = c->call.wire ? c->call.wire : type;
    const char *const name = coll_op_name(c->call.op);
    coll__source sources[MOST];
    coll__codec codec;
    int wrong = 0;

    if (is_left_out(&c->call) || !coll__wire_fits(type, wire)) return;
    for (int n = 2; n <= MOST; n += 5) {
        c->n = n, c->split = 0;
        CHECK(coll__codec_reduce(&codec, &c->call, n, why, sizeof why), "%s", why);
        CHECK(codec.is_exact == coll__is_exact(type, c->call.op), "%s of %s", name, coll_type_name(type));
        if (!codec.is_exact && (!codec.is_commutative || n > 2)) break;
        void *const scratch = aligned_alloc(64, coll__combine_scratch(&codec, n));
        for (int k = 0; k < n; k++) sources[k] = (coll__source){ c->sources[k], COLL__AS_USER, k };
        combine(&codec, sources, n, &c->expected, 1, COLL__AS_USER, c->count, scratch);
        free(scratch);
        for (int k = 0; k < 8; k++) {
            shuffle(c);
            wrong += wrong_in_stages(c, 1 + (int)(random_bits() % (uint64_t)(n - 1)), c->count, coll__tier());
        }
    }
    CHECK(wrong == 0, "%s of %s over %s: %d of other orders differ", name, coll_type_name(type), coll_type_name(wire), wrong);
}

static void test_orders(void)
{
    for (coll_type type = 1; type <= TYPES; type++) {
        cell c = { .n = 0 };
        cell_fill(&c, type, 600);
        for (int op = 0; op < COLL_USER; op++) {
            for (coll_type wire = 0; wire <= COLL_MXF8E5M2 && is_cell(type, (coll_op)op); wire++) {
                c.call = (coll_call){ .type = type, .op = (coll_op)op, .wire = wire };
                if (!wire || (family_of(type) == FLOAT && (coll__is_mx(wire) || family_of(wire) == FLOAT))) check_order(&c);
            }
        }
        cell_free(&c);
    }
}

/* Every wire, accumulator, scale and flag that floats have. */
static void test_variants(void)
{
    static const coll_type wires[][2] = {
        { COLL_F32, COLL_F16 },    { COLL_F32, COLL_BF16 },    { COLL_F32, COLL_F8E4M3 },  { COLL_F32, COLL_F8E5M2 },
        { COLL_F16, COLL_F8E4M3 }, { COLL_F16, COLL_F8E5M2 },  { COLL_BF16, COLL_F8E4M3 }, { COLL_BF16, COLL_F8E5M2 },
        { COLL_F64, COLL_F32 },    { COLL_F16, 0 },            { COLL_BF16, COLL_BF16 },   { COLL_F8E4M3, 0 },
        { COLL_F8E5M2, 0 },        { COLL_F32, COLL_F32 },     { COLL_F64, 0 },            { COLL_C64, 0 },
        { COLL_C128, 0 },          { COLL_F16, COLL_BF16 },    { COLL_BF16, COLL_F16 },    { COLL_F8E4M3, COLL_F8E5M2 },
        { COLL_F8E5M2, COLL_F8E4M3 }, { COLL_F64, COLL_F16 },  { COLL_F64, COLL_BF16 },    { COLL_F64, COLL_F8E4M3 },
        { COLL_F64, COLL_F8E5M2 }
    };
    static const struct { coll_type accumulate; double scale; unsigned flags; } variants[] = {
        { 0, 0, 0 }, { COLL_F64, 1, COLL_SATURATE }, { 0, 0.37, COLL_SATURATE | COLL_DETERMINISTIC }, { COLL_F64, -3, 0 },
        { 0, 0x1p-3, 0 }
    };
    static const int sizes[] = { 1, 2, 7 };

    for (size_t w = 0; w < sizeof wires / sizeof *wires; w++) {
        const coll_type type = wires[w][0];
        cell c = { .n = 0 };
        cell_fill(&c, type, 1100);
        for (int op = 0; op < COLL_USER; op++) {
            for (size_t v = 0; v < sizeof variants / sizeof *variants && is_cell(type, (coll_op)op); v++) {
                if (variants[v].accumulate && family_of(type) == COMPLEX) continue;
                c.call = (coll_call){ .type = type, .wire = wires[w][1], .op = (coll_op)op, .scale = variants[v].scale,
                                      .accumulate = variants[v].accumulate, .flags = variants[v].flags };
                for (int k = 0; k < 3; k++) {
                    c.n = sizes[k];
                    check_cell(&c);
                }
            }
        }
        cell_free(&c);
    }
}

/* A deep tree, overflow to infinity, and a negative zero that is kept. */
static void test_many_sources(void)
{
    enum { N = 1000, FEW = 3 };
    float value_in[FEW] = { 0.1f, 3e38f, -0.0f }, result[FEW];
    const coll_call call = { .type = COLL_F32, .op = COLL_AVG };
    void *const results[1] = { result };
    const cell c = { .call = call };
    number x[N];
    coll__codec codec;

    if (is_left_out(&call)) return;
    coll__source *const sources = malloc(N * sizeof *sources);
    CHECK(coll__codec_reduce(&codec, &call, N, why, sizeof why), "%d ranks", N);
    void *const scratch = aligned_alloc(64, coll__combine_scratch(&codec, N));
    for (int k = 0; k < N; k++) {
        sources[k] = (coll__source){ value_in, COLL__AS_USER, k };
        x[k] = (number){ .re = (double)value_in[0] };
    }
    combine(&codec, sources, N, results, 1, COLL__AS_USER, FEW, scratch);
    const double expected = oracle_tree(&c, x, N).re / N;
    CHECK((double)result[0] == (double)(float)expected, "%g", (double)result[0]);
    CHECK(isinf(result[1]) && result[2] == 0 && signbit(result[2]), "%g %g", (double)result[1], (double)result[2]);
    CHECK(coll__combine_scratch(&codec, N) <= 14 * 4096, "%zu", coll__combine_scratch(&codec, N));
    free(sources);
    free(scratch);
}

/* ---- >>refusals ---- */

static bool is_refused(coll_call call, const char *sentence)
{
    coll__codec codec;

    why[0] = 0;
    if (coll__codec_reduce(&codec, &call, 2, why, sizeof why)) return false;
    if (!sentence || !strcmp(why, sentence)) return why[0] != 0;
    fprintf(stderr, "\"%s\"\n", why);
    return false;
}

static void test_undefined_cells(void)
{
    unsigned char in[16] = { 0 }, out[16] = { 0 };
    coll__codec codec;

    for (coll_type type = 1; type <= TYPES + 1; type++) {
        const coll_type t = type <= TYPES ? type : COLL_BLOB(8);
        for (int op = 0; op < OPS; op++) {
            const coll_call call = { .type = t, .op = (coll_op)op, .fn = user_op };
            const bool is_out = is_left_out(&call), is_defined = is_cell(t, (coll_op)op) && !is_out;
            char sentence[80];
            snprintf(sentence, sizeof sentence, "there is no %s of %s", coll_op_name((coll_op)op), coll_type_name(t));
            CHECK(coll__cell_is_defined(t, (coll_op)op) == is_defined, "%s", sentence);
            CHECK(is_defined ? coll__codec_reduce(&codec, &call, 2, why, sizeof why) : is_refused(call, is_out ? NULL : sentence),
                  "%s", sentence);
            if (is_defined) {
                const bool is_sum = op == COLL_SUM || op == COLL_PROD || op == COLL_AVG;
                const bool is_rounded = is_sum && (family_of(t) == FLOAT || family_of(t) == COMPLEX);
                CHECK(codec.is_exact == (op != COLL_USER && !is_rounded) && codec.is_commutative, "%s of %s",
                      coll_op_name((coll_op)op), coll_type_name(t));
            }
            const coll_status expected = is_defined && op != COLL_AVG && op != COLL_USER ? COLL_OK : COLL_ERR_UNSUPPORTED;
            CHECK(coll_reduce_local(out, in, 1, t, (coll_op)op) == expected, "local: %s", sentence);
        }
        CHECK(coll__codec_move(&codec, t) && codec.same && codec.type_size == coll_type_size(t)
              && codec.wire_size == codec.type_size && codec.acc_size == codec.type_size, "move of %s", coll_type_name(t));
    }
    for (coll_type type = 0; type <= TYPES + 1; type++) {
        for (int op = -1; op <= OPS; op += OPS + 1) {
            CHECK(!coll__is_exact(type <= TYPES ? type : COLL_BLOB(8), (coll_op)op) && !coll__is_commutative((coll_op)op),
                  "operation %d, which has no name", op);
        }
    }
    CHECK(!coll__cell_is_defined(0, COLL_USER) && !coll__cell_is_defined(COLL_F32, (coll_op)OPS)
          && !coll__cell_is_defined(24, COLL_SUM) && !coll__cell_is_defined(COLL_F32, (coll_op)-1), "%s", "beyond the table");
}

static void test_wires(void)
{
    for (coll_type type = 1; type <= TYPES; type++) {
        for (coll_type wire = 1; wire <= TYPES; wire++) {
            const bool narrow = wire >= COLL_F16 && wire <= COLL_F8E5M2, is_byte = narrow && wire >= COLL_F8E4M3;
            const bool is_half = type == COLL_F16 || type == COLL_BF16, is_byte_too = type == COLL_F8E4M3 || type == COLL_F8E5M2;
            const bool fits = wire == type || (type == COLL_F32 && narrow) || (type == COLL_F64 && (narrow || wire == COLL_F32))
                           || (is_half && narrow) || (is_byte_too && is_byte);
            const coll_op op = family_of(type) == PAIR ? COLL_MINLOC : type == COLL_BOOL ? COLL_LOR : COLL_SUM;
            const coll_call call = { .type = type, .wire = wire, .op = op };
            const coll_call user = { .type = type, .wire = wire, .op = COLL_USER, .fn = user_op };
            coll__codec codec;
            const bool is_there = fits && !is_left_out(&call);
            CHECK(is_there ? coll__codec_reduce(&codec, &call, 2, why, sizeof why) : is_refused(call, NULL), "%s over %s: %s",
                  coll_type_name(type), coll_type_name(wire), why);
            CHECK(!is_there || (codec.wire_size == coll_type_size(wire) && codec.same == (wire == type)), "%s over %s",
                  coll_type_name(type), coll_type_name(wire));
            CHECK(wire == type || is_refused(user, NULL), "user: %s over %s", coll_type_name(type), coll_type_name(wire));
        }
        for (coll_type sum = 1; sum <= TYPES; sum++) {
            const bool is_small = type >= COLL_F16 && type <= COLL_F8E5M2;
            const bool fits = is_small ? sum == COLL_F32 || sum == COLL_F64
                                       : sum == type || (type == COLL_F32 && sum == COLL_F64);
            const coll_call call = { .type = type, .accumulate = sum, .op = family_of(type) == PAIR ? COLL_MAXLOC
                                     : type == COLL_BOOL ? COLL_LAND : COLL_SUM };
            const bool is_there = fits && !is_left_out(&call);
            coll__codec codec;
            CHECK(is_there ? coll__codec_reduce(&codec, &call, 2, why, sizeof why) : is_refused(call, NULL), "%s in %s: %s",
                  coll_type_name(type), coll_type_name(sum), why);
        }
    }
}

static void test_refusals(void)
{
    coll__codec codec;
    const coll_call average = { .type = COLL_I32, .op = COLL_AVG };

#define REFUSED(sentence, ...)                                                                    \
    if (!is_left_out(&(coll_call){ __VA_ARGS__ })) CHECK(is_refused((coll_call){ __VA_ARGS__ }, sentence), "%s", sentence)
    REFUSED("there is no band of f32", .type = COLL_F32, .op = COLL_BAND);
    REFUSED("invalid type 99 (see coll_type)", .type = 99);
    REFUSED("invalid wire type 99 (see coll_type)", .type = COLL_F32, .wire = 99);
    REFUSED("invalid op 14 (see coll_op)", .type = COLL_F32, .op = (coll_op)14);
    REFUSED("invalid op -1 (see coll_op)", .type = COLL_F32, .op = (coll_op)-1);
    REFUSED("there is no sum of bf16 over a wire of f32", .type = COLL_BF16, .wire = COLL_F32);
    REFUSED("there is no sum of i64 over a wire of f32", .type = COLL_I64, .wire = COLL_F32);
    REFUSED("there is no sum of f64 in accumulators of f32", .type = COLL_F64, .accumulate = COLL_F32);
    REFUSED("there is no scale for sum of i32", .type = COLL_I32, .scale = 2);
    REFUSED("there is no scale for minloc of f32_i32", .type = COLL_F32_I32, .op = COLL_MINLOC, .scale = 2);
    REFUSED("there is no scale for user of f32", .type = COLL_F32, .op = COLL_USER, .fn = user_op, .scale = 0.5);
    REFUSED("scale nan is not finite in f64", .type = COLL_F64, .scale = (double)NAN);
    REFUSED("scale -inf is not finite in f32", .type = COLL_BF16, .scale = -(double)INFINITY);
    REFUSED("scale 1e+300 is not finite in c64", .type = COLL_C64, .scale = 1e300);
    REFUSED("op is COLL_USER, but fn is NULL: give the function", .type = COLL_BLOB(3), .op = COLL_USER);
#undef REFUSED
    CHECK(!coll__codec_reduce(&codec, &average, 0, why, sizeof why), "%d ranks", 0);
    CHECK(!coll__codec_move(&codec, 24) && !coll__codec_move(&codec, COLL_BLOB(0)), "move %d", 24);
    CHECK(coll__codec_reduce(&codec, &(coll_call){ .type = COLL_I32, .scale = 1 }, 2, why, sizeof why), "scale %d", 1);
    CHECK(!coll__codec_reduce(&codec, &(coll_call){ .type = 99 }, 2, NULL, 0), "no %s", "room");
}

static void test_pack(void)
{
    const uint32_t input[5] = { 0x3f800001, 0x7f800001, 0xffc12345, 0x80000000, 0x477ff000 };
    const coll_type wires[] = { COLL_F16, COLL_BF16, COLL_F32, COLL_F8E4M3, COLL_F8E5M2 };

    for (int w = 0; w < 5; w++) {
        const coll_call call = { .type = COLL_F32, .wire = wires[w] };
        unsigned char wire[20], user[20], expected_wire[20], expected_user[20];
        coll__codec codec;
        if (is_left_out(&call)) continue;
        CHECK(coll__codec_reduce(&codec, &call, 2, why, sizeof why), "wire %d", wires[w]);
        coll_convert(expected_wire, wires[w], input, COLL_F32, 5);
        coll_convert(expected_user, COLL_F32, expected_wire, wires[w], 5);
        coll__pack(&codec, wire, input, 5, 0, 0);
        coll__unpack(&codec, user, wire, 5);
        CHECK(!memcmp(wire, expected_wire, 5 * codec.wire_size), "pack to %s", coll_type_name(wires[w]));
        CHECK(!memcmp(user, expected_user, 5 * codec.type_size), "unpack from %s", coll_type_name(wires[w]));
        coll__pack(&codec, NULL, NULL, 0, 0, 0);
        coll__unpack(&codec, NULL, NULL, 0);
    }
}

/* A result is what its wire has, in the type; for other ranks it is converted back to the wire, where it must be the same
 * again, also where the type has rounded it. */
static void test_repack(void)
{
    static const coll_type pairs[][2] = { { COLL_F16, COLL_BF16 }, { COLL_BF16, COLL_F16 }, { COLL_F8E4M3, COLL_F8E5M2 },
                                          { COLL_F8E5M2, COLL_F8E4M3 }, { COLL_F64, COLL_F16 }, { COLL_F32, COLL_F8E4M3 } };

    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        for (unsigned flags = 0; flags <= COLL_STOCHASTIC; flags += 2) {
            const coll_call call = { .type = pairs[p][0], .wire = pairs[p][1], .flags = flags & ~(unsigned)COLL_REPRODUCIBLE };
            const unsigned count = coll_type_size(pairs[p][1]) == 1 ? 256 : 65536;
            unsigned wrong = 0;
            coll__codec codec;
            if (is_left_out(&call)) continue;
            CHECK(coll__codec_reduce(&codec, &call, 2, why, sizeof why), "%s", why);
            for (unsigned bits = 0; bits < count; bits++) {
                unsigned char result[8], again[8], wire[2] = { (unsigned char)bits, (unsigned char)(bits >> 8) };
                coll__unpack(&codec, result, wire, 1);
                coll__pack(&codec, wire, result, 1, bits, COLL__OF_RESULT);
                coll__unpack(&codec, again, wire, 1);
                const double value = reference_value(format_of(call.wire), bits);
                const bool is_beyond = (call.flags & COLL_SATURATE) && !(fabs(value) <= codec.limit);
                wrong += memcmp(result, again, codec.type_size) != 0 && !is_beyond;
            }
            CHECK(wrong == 0, "%s over %s, flags %u: %u results are others after the wire once more",
                  coll_type_name(call.type), coll_type_name(call.wire), call.flags, wrong);
        }
    }
}

/* ---- >>rules: said one by one, so that a failure says which ---- */

#define RULE(T, type, op, a, b, holds)                                                            \
    do {                                                                                          \
        const T in = a;                                                                           \
        T out = b;                                                                                \
        const coll_status status = coll_reduce_local(&out, &in, 1, type, op);                     \
        CHECK(there_type(type) ? !status && (holds) : status == COLL_ERR_UNSUPPORTED, "%s of %s", \
              coll_op_name(op), coll_type_name(type));                                            \
    } while (0)

/* Reduce n adjacent elements, each of one rank.  false: the call needs a part that is left out. */
static bool reduce_ranks(coll_call call, const void *elements, int n, void *result)
{
    coll__source sources[MOST];
    coll__codec codec;

    if (is_left_out(&call)) return false;
    CHECK(coll__codec_reduce(&codec, &call, n, why, sizeof why), "%s", why);
    void *const scratch = aligned_alloc(64, coll__combine_scratch(&codec, n));
    for (int k = 0; k < n; k++) {
        sources[k] = (coll__source){ (const char *)elements + (size_t)k * codec.type_size, COLL__AS_USER, k };
    }
    combine(&codec, sources, n, &result, 1, COLL__AS_USER, 1, scratch);
    free(scratch);
    return true;
}

static void test_rules_integer(void)
{
    RULE(int8_t, COLL_I8, COLL_SUM, 127, 1, out == -128);
    RULE(int8_t, COLL_I8, COLL_PROD, -128, -1, out == -128);
    RULE(uint16_t, COLL_U16, COLL_PROD, 65535, 65535, out == 1);
    RULE(int32_t, COLL_I32, COLL_SUM, INT32_MIN, -1, out == INT32_MAX);
    RULE(int64_t, COLL_I64, COLL_SUM, INT64_MAX, INT64_MAX, out == -2);
    RULE(int8_t, COLL_I8, COLL_MIN, -1, 1, out == -1);
    RULE(uint8_t, COLL_U8, COLL_MIN, 255, 1, out == 1);
    RULE(int16_t, COLL_I16, COLL_BXOR, -1, 1, out == -2);
    RULE(int32_t, COLL_I32, COLL_LAND, 2, 4, out == 1);
    RULE(uint64_t, COLL_U64, COLL_LXOR, 2, 4, out == 0);
    RULE(uint8_t, COLL_BOOL, COLL_BAND, 2, 4, out == 1);
    RULE(uint8_t, COLL_BOOL, COLL_BXOR, 2, 4, out == 0);
    RULE(uint8_t, COLL_BOOL, COLL_MAX, 0, 255, out == 1);

    /* An average neither wraps nor rounds away from zero. */
    const int64_t high[3] = { INT64_MAX, INT64_MAX, INT64_MAX - 1 };
    const int32_t low[3] = { -1, 0, -4 };
    const uint8_t five = 5;
    int64_t wide;
    int32_t narrow;
    uint8_t truth;
    if (reduce_ranks((coll_call){ .type = COLL_I64, .op = COLL_AVG }, high, 3, &wide))
        CHECK(wide == INT64_MAX - 1, "average %lld", (long long)wide);
    if (reduce_ranks((coll_call){ .type = COLL_I32, .op = COLL_AVG }, low, 3, &narrow))
        CHECK(narrow == -1, "average %d", narrow);
    if (reduce_ranks((coll_call){ .type = COLL_BOOL, .op = COLL_BOR }, &five, 1, &truth))
        CHECK(truth == 1, "one rank's %d", truth);
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
    RULE(uint8_t, COLL_F8E4M3, COLL_SUM, 0x7e, 0x7e, out == 0x7f);                     /* No infinity: NaN. */
    RULE(uint8_t, COLL_F8E5M2, COLL_SUM, 0xfb, 0xfb, out == 0xfc);
    RULE(float, COLL_F32, COLL_LAND, (float)NAN, -2.0f, out == 1.0f);
    RULE(float, COLL_F32, COLL_LOR, 0.0f, -0.0f, out == 0.0f && !signbit(out));
    RULE(uint16_t, COLL_F16, COLL_LXOR, 0x7e01, 0x0000, out == 0x3c00);

    /* 256 + 1 + 1: in bf16 each sum would round back to 256; in f32 the two ones count. */
    const uint16_t part[4] = { 0x4380, 0x3f80, 0x3f80, 0x0000 };
    uint16_t sum;
    if (reduce_ranks((coll_call){ .type = COLL_BF16 }, part, 4, &sum))
        CHECK(sum == 0x4381, "256 + 1 + 1 = %#x", sum);

    /* 2^24 + 1 + 1 + 0: lost in f32 if added one by one, kept in f64. */
    const float big[5] = { 0x1p24f, 1, 1, 0, 0 };
    float total;
    if (reduce_ranks((coll_call){ .type = COLL_F32, .accumulate = COLL_F64 }, big, 3, &total))
        CHECK(total == 0x1p24f + 2, "%g", (double)total);
    if (reduce_ranks((coll_call){ .type = COLL_F32, .op = COLL_AVG, .scale = 4 }, big + 1, 4, &total))
        CHECK(total == 2, "an average of 1, 1, 0, 0 times four: %g", (double)total);
}

static void test_rules_saturate(void)
{
    const coll_call e4m3 = { .type = COLL_F8E4M3, .flags = COLL_SATURATE }, f16 = { .type = COLL_F16, .flags = COLL_SATURATE };
    const coll_call bf16 = { .type = COLL_BF16, .flags = COLL_SATURATE };
    const coll_call mixed = { .type = COLL_F32, .wire = COLL_F8E4M3, .flags = COLL_SATURATE };
    const uint8_t bytes[2] = { 0xfe, 0xfe }, nan[2] = { 0x7f, 0x01 };
    const uint16_t infinite[2] = { 0x7c00, 0x3c00 }, opposite[2] = { 0x7c00, 0xfc00 }, large[2] = { 0x7f7f, 0x7f7f };
    const float beyond[2] = { 1e6f, -1e30f };
    uint8_t byte;
    uint16_t half;
    float single;

    if (reduce_ranks(e4m3, bytes, 2, &byte))
        CHECK(byte == 0xfe, "-448 - 448: %#x", byte);
    if (reduce_ranks(e4m3, nan, 2, &byte))
        CHECK(byte == 0x7f, "NaN + 2^-9: %#x", byte);
    if (reduce_ranks(f16, infinite, 2, &half))
        CHECK(half == 0x7bff, "infinity + 1: %#x", half);
    if (reduce_ranks(f16, opposite, 2, &half))
        CHECK(half == 0x7e00, "infinity - infinity: %#x", half);
    if (reduce_ranks(bf16, large, 2, &half))
        CHECK(half == 0x7f80, "bf16 takes no notice: %#x", half);
    if (reduce_ranks(mixed, beyond, 1, &single))
        CHECK(single == 448, "1e6 over f8e4m3: %g", (double)single);
    if (reduce_ranks(mixed, beyond, 2, &single))
        CHECK(single == 0, "1e6 - 1e30, each saturated on its way: %g", (double)single);
}

static void test_rules_complex_and_pairs(void)
{
    const float z[2][2] = { { 1, 2 }, { 3, -4 } }, inf[2][2] = { { INFINITY, 0 }, { 1, 0 } };
    float product[2];
    if (reduce_ranks((coll_call){ .type = COLL_C64, .op = COLL_PROD }, z, 2, product))
        CHECK(product[0] == 11 && product[1] == 2, "(1+2i)(3-4i) = %g %g", (double)product[0], (double)product[1]);
    if (reduce_ranks((coll_call){ .type = COLL_C64, .op = COLL_PROD }, inf, 2, product))
        CHECK(isinf(product[0]) && bits_at(product, 4, 1) == 0x7fc00000, "%g %g", (double)product[0], (double)product[1]);

    struct pair { double value; int32_t index, padding; } r;
    struct pair p[4] = { { 0.0, 1, 77 }, { -0.0, 9, 77 }, { -0.0, 5, 77 }, { 0.0, 0, 77 } };
    if (reduce_ranks((coll_call){ .type = COLL_F64_I32, .op = COLL_MINLOC }, p, 4, &r))
        CHECK(r.index == 5 && signbit(r.value) && r.padding == 0, "%g at %d, padding %d", r.value, r.index, r.padding);
    if (reduce_ranks((coll_call){ .type = COLL_F64_I32, .op = COLL_MAXLOC }, p, 4, &r))
        CHECK(r.index == 0 && !signbit(r.value) && r.padding == 0, "%g at %d", r.value, r.index);
    p[0].value = p[3].value = -(double)NAN;
    for (int op = COLL_MINLOC; op <= COLL_MAXLOC; op++) {
        if (reduce_ranks((coll_call){ .type = COLL_F64_I32, .op = (coll_op)op }, p, 4, &r))
            CHECK(r.index == 0 && bits_at(&r, 8, 0) == UINT64_C(0x7ff8000000000000), "%g at %d", r.value, r.index);
    }
    if (reduce_ranks((coll_call){ .type = COLL_F64_I32, .op = COLL_MINLOC }, &p[1], 1, &r))
        CHECK(r.index == 9 && r.padding == 0, "one rank's padding is %d", r.padding);
    const int64_t whole[3][2] = { { -5, 3 }, { -5, -3 }, { INT64_MAX, 0 } };
    int64_t least[2];
    if (reduce_ranks((coll_call){ .type = COLL_I64_I64, .op = COLL_MINLOC }, whole, 3, least))
        CHECK(least[0] == -5 && least[1] == -3, "%lld at %lld", (long long)least[0], (long long)least[1]);
}

/* Products of 2x2 matrices of integers, which do not commute but associate: any grouping is right. */
static void multiply(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    (void)type, (void)context;
    for (size_t i = 0; i < count; i++) {
        uint32_t a[4], b[4], c[4];
        memcpy(a, (const char *)in + i * 16, 16);
        memcpy(b, (char *)inout + i * 16, 16);
        for (int k = 0; k < 4; k++) c[k] = a[k & 2] * b[k & 1] + a[(k & 2) + 1] * b[2 + (k & 1)];
        memcpy((char *)inout + i * 16, c, 16);
    }
}

static void test_rules_user(void)
{
    uint32_t matrices[MOST][4], expected[4], got[4];
    const coll_call call = { .type = COLL_BLOB(16), .op = COLL_USER, .fn = multiply, .not_commutative = true };
    coll__codec codec;

    for (int k = 0; k < MOST; k++) fill(COLL_BLOB(16), matrices[k], 1);
    for (int n = 1; n <= MOST; n++) {
        memcpy(expected, matrices[n - 1], 16);
        for (int k = n - 2; k >= 0; k--) multiply(matrices[k], expected, 1, COLL_BLOB(16), NULL);
        if (reduce_ranks(call, matrices, n, got))
            CHECK(!memcmp(got, expected, 16), "the product of %d matrices", n);
    }
    CHECK(coll__codec_reduce(&codec, &call, 2, why, sizeof why) && !codec.is_commutative && !codec.is_exact, "%s", "flags");
    CHECK(coll__codec_reduce(&codec, &(coll_call){ .type = COLL_BLOB(1 << 20), .op = COLL_USER, .fn = multiply }, 2, why,
                             sizeof why) && codec.is_commutative && coll__combine_scratch(&codec, 2) == ((size_t)2 << 20) + 4096,
          "%zu", coll__combine_scratch(&codec, 2));
}

static void test_reduce_local(void)
{
    float in[5000], inout[5000];
    size_t wrong = 0;

    for (int i = 0; i < 5000; i++) {
        in[i] = (float)i;
        inout[i] = 0.5f;
    }
    CHECK(coll_reduce_local(inout, in, 4999, COLL_F32, COLL_SUM) == COLL_OK, "%s", "sum");
    for (int i = 0; i < 5000; i++) wrong += inout[i] != (i < 4999 ? (float)i + 0.5f : 0.5f);
    CHECK(wrong == 0, "%zu sums", wrong);
    CHECK(coll_reduce_local(in, in, 5000, COLL_F32, COLL_SUM) == COLL_OK && in[7] == 14, "itself %g", (double)in[7]);
    CHECK(coll_reduce_local(inout, in, 1, COLL_F32, (coll_op)14) == COLL_ERR_ARGUMENT, "op %d", 14);
    CHECK(coll_reduce_local(inout, in, 1, 24, COLL_AVG) == COLL_ERR_ARGUMENT, "avg of %d", 24);
    CHECK(coll_reduce_local(inout, in, 1, 24, COLL_SUM) == COLL_ERR_ARGUMENT, "type %d", 24);
    CHECK(coll_reduce_local(inout, NULL, 1, COLL_F32, COLL_SUM) == COLL_ERR_ARGUMENT, "no %s", "in");
    CHECK(coll_reduce_local(NULL, in, 1, COLL_F32, COLL_SUM) == COLL_ERR_ARGUMENT, "no %s", "inout");
    CHECK(coll_reduce_local(NULL, NULL, 0, COLL_F32, COLL_SUM) == COLL_OK, "no %s", "elements");
}

/* ---- >>matrix: which type has which operation, and both are tested ---- */

static void check_matrix(bool prints)
{
    if (prints) {
        printf("| type |");
        for (int op = 0; op < OPS; op++) printf(" %s |", coll_op_name((coll_op)op));
        printf("\n|---|");
        for (int op = 0; op < OPS; op++) printf("---|");
        printf("\n");
    }
    for (coll_type type = 1; type <= TYPES; type++) {
        if (prints) printf("| %s |", coll_type_name(type));
        for (int op = 0; op < OPS; op++) {
            const bool is_defined = coll__cell_is_defined(type, (coll_op)op);
            CHECK(is_tested[type][op] == is_defined, "%s of %s", coll_op_name((coll_op)op), coll_type_name(type));
            if (prints) printf(" %s |", is_defined && is_tested[type][op] ? "yes" : "-");
        }
        if (prints) printf("\n");
    }
}

int main(int argc, char **argv)
{
    const char *const seed = getenv("COLL_TEST_SEED");

    random_state = seed ? strtoull(seed, NULL, 0) : 1;
    printf("COLL_TEST_SEED=%llu, %d tiers\n", (unsigned long long)random_state, coll__tier() + 1);
    test_names();
    test_cells();
    test_orders();
    test_variants();
    test_many_sources();
    test_undefined_cells();
    test_wires();
    test_refusals();
    test_pack();
    test_repack();
    test_rules_integer();
    test_rules_float();
    test_rules_saturate();
    test_rules_complex_and_pairs();
    test_rules_user();
    test_reduce_local();
    check_matrix(argc > 1 && !strcmp(argv[1], "matrix"));
    return CHECK_DONE();
}
