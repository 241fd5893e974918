/* test_exact.c - COLL_REPRODUCIBLE, COLL_STOCHASTIC and COLL_DETECT_OVERFLOW.
 *
 *     test_exact                     COLL_TEST_SEED=n repeats a run
 *
 * Sums in which the order does not show: against whole numbers (exact.h), for every type and wire, every order of up to 6
 * terms and some of up to 64, on every tier; then in worlds, with the inputs handed to other ranks.  Rounding at random:
 * every rank's bits are foreseen, term by term, and are the same in every world, by every algorithm.  Overflow: counted on
 * the ranks that have it, once a call. */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/model.h"
#include "../support/model_calls.h"

enum { TERMS_MOST = 64, FEW = 40, LIMIT_SECONDS = 240 };

static uint64_t state;                            /* of the draws of this file                                */

/* A sum: what is summed, and how. */
typedef struct sum {
    coll_type type, wire;
    coll_op   op;
    double    scale;
    unsigned  flags;
} sum;

/* ---- >>terms ---- */

/* Component `i` of term `k`: one theme for all terms, so that they cancel, overflow or are lost together. */
static uint64_t term(const support_type *part, size_t i, int k, uint64_t seed)
{
    const uint64_t random = support_mix(seed ^ (uint64_t)(k + 1) * UINT64_C(0xaf251af3b0f025b5) ^ support_mix(i));
    const uint64_t pair = support_mix(seed ^ (uint64_t)(k / 2 + 1) * UINT64_C(0xd1342543de82ef95) ^ support_mix(i));
    const int width = (int)part->size * 8, places = part->fraction_bits;
    const uint64_t fields = (UINT64_C(1) << part->exponent_bits) - 1, sign = UINT64_C(1) << (width - 1);
    const uint64_t fraction = random & ((UINT64_C(1) << places) - 1);

    switch (i % 12) {
    case 8:  return (pair & (sign - 1)) % (fields << places) | (k & 1 ? sign : 0);     /* in pairs, nothing is left */
    case 9:  return (random >> 60 == 0 ? support_ordinary_float(part, pair) : pair & (sign - 1)) ^ (k & 1 ? sign : 0);
    case 10: return (random & sign) | (random >> 16) % fields << places | fraction;    /* finite, of any size   */
    case 11: return (random & sign) | (fields / 2 + (random >> 8) % 2 * (uint64_t)(places + 1)) << places | fraction % 2;
    default: return support_special_float(part, i % 12, random);
    }
}

/* Elements first.. of a vector of term k. */
static void fill_terms(const model_type *t, unsigned char *to, size_t count, int k, uint64_t seed)
{
    for (size_t i = 0; i < count; i++, to += t->size) {
        support_store(&t->part, to, term(&t->part, i, k, seed));
        if (t->class == MODEL_COMPLEX) support_store(&t->part, to + t->second, term(&t->part, i + 5, k, seed + 1));
    }
}

/* A component of the result, by the manual: each term as its wire has it, the sum in whole numbers, one rounding. */
static uint64_t expected_part(const support_type *part, const sum *s, const uint64_t *bits, int n)
{
    const model_type wire = model_type_of(s->wire ? s->wire : part->type);
    double x[TERMS_MOST];

    for (int k = 0; k < n; k++) x[k] = model_wired(part, s->wire, bits[k]);
    const double scale = s->scale < 0 || s->scale > 0 ? s->scale : 1;
    const double value = exact_result(x, n, wire.type == COLL_F64, s->op == COLL_AVG ? n : 1, scale);
    const uint64_t rounded = model_bits(&wire.part, value, (s->flags & COLL_SATURATE) != 0);
    return s->wire ? model_bits(part, model_value(&wire.part, rounded), false) : rounded;
}

static void expect_terms(const model_type *t, const sum *s, unsigned char *const *terms, int n, size_t count, unsigned char *to)
{
    uint64_t bits[TERMS_MOST];

    for (size_t i = 0; i < count; i++)
        for (size_t half = 0; half < (t->class == MODEL_COMPLEX ? 2u : 1u); half++) {
            const size_t at = i * t->size + half * t->second;
            for (int k = 0; k < n; k++) bits[k] = support_load(&t->part, terms[k] + at);
            support_store(&t->part, to + at, expected_part(&t->part, s, bits, n));
        }
}

/* ---- >>orders ---- */

static const sum sums[] = {
    { COLL_F32, 0, COLL_SUM, 0, 0 },          { COLL_F64, 0, COLL_SUM, 0, 0 },          { COLL_F16, 0, COLL_SUM, 0, 0 },
    { COLL_BF16, 0, COLL_SUM, 0, 0 },         { COLL_F8E4M3, 0, COLL_SUM, 0, 0 },       { COLL_F8E5M2, 0, COLL_SUM, 0, 0 },
    { COLL_C64, 0, COLL_SUM, 0, 0 },          { COLL_C128, 0, COLL_SUM, 0, 0 },         { COLL_F32, 0, COLL_AVG, 0, 0 },
    { COLL_F64, 0, COLL_AVG, 0, 0 },          { COLL_C128, 0, COLL_AVG, 0.3, 0 },       { COLL_C64, 0, COLL_AVG, -7, 0 },
    { COLL_F64, 0, COLL_SUM, 1e-300, 0 },     { COLL_F64, 0, COLL_AVG, -0.7, 0 },       { COLL_BF16, 0, COLL_AVG, 0.1, 0 },
    { COLL_F32, COLL_BF16, COLL_SUM, 0, 0 },  { COLL_F32, COLL_F16, COLL_AVG, 0, 0 },
    { COLL_F64, COLL_F32, COLL_SUM, 0, 0 },   { COLL_F64, COLL_BF16, COLL_SUM, 3, 0 },
    { COLL_F16, COLL_BF16, COLL_SUM, 0, 0 },  { COLL_BF16, COLL_F16, COLL_SUM, 0, 0 },
    { COLL_F8E5M2, COLL_F8E4M3, COLL_AVG, 0, 0 }, { COLL_F16, 0, COLL_SUM, 0, COLL_SATURATE }
};
enum { SUMS = sizeof sums / sizeof *sums };

static coll_call call_of(const sum *s)
{
    return (coll_call){ .kind = COLL_ALLREDUCE, .type = s->type, .wire = s->wire, .op = s->op, .scale = s->scale,
                        .flags = s->flags | COLL_REPRODUCIBLE };
}

/* Are these the bits in this order, in two results at once?  The first one may lie over a term. */
static bool is_right_in(const coll__codec *codec, unsigned char *const *terms, const int *order, int n, size_t count,
                        const unsigned char *expected)
{
    const size_t length = count * codec->type_size;
    unsigned char *const memory = support_need(malloc((size_t)n * length + 2 * length + 64));
    unsigned char *const inputs = memory + 1, *const other = inputs + (size_t)n * length;    /* at odd addresses      */
    void *const results[2] = { inputs + (size_t)(n - 1) * length, other };
    void *const scratch = support_need(aligned_alloc(64, coll__combine_scratch(codec, n)));
    coll__source sources[TERMS_MOST];

    for (int k = 0; k < n; k++) {
        memcpy(inputs + (size_t)k * length, terms[order[k]], length);
        sources[k] = (coll__source){ inputs + (size_t)k * length, COLL__AS_USER, order[k] };
    }
    coll__combine(codec, &(coll__sum){ .sources = sources, .n = n, .results = results, .m = 2, .format = COLL__AS_USER,
                                       .count = count, .scratch = scratch });
    const bool is_right = !memcmp(results[0], expected, length) && !memcmp(results[1], expected, length);
    free(scratch);
    free(memory);
    return is_right;
}

/* The next order of n numbers; false: that was the last. */
static bool next_order(int *order, int n)
{
    int i = n - 2, j = n - 1;

    while (i >= 0 && order[i] > order[i + 1]) i--;
    if (i < 0) return false;
    while (order[j] < order[i]) j--;
    for (int swap = order[i]; order[i] == swap;) order[i] = order[j], order[j] = swap;
    for (int a = i + 1, b = n - 1; a < b; a++, b--) {
        const int swap = order[a];
        order[a] = order[b];
        order[b] = swap;
    }
    return true;
}

static void shuffle(int *order, int n)
{
    for (int i = n - 1; i > 0; i--) {
        const int j = (int)(support_random(&state) % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

/* `shuffles` 0: every order there is. */
static void check_orders(const sum *s, int n, size_t count, int shuffles, int tier)
{
    const model_type t = model_type_of(s->type);
    const coll_call call = call_of(s);
    const uint64_t seed = support_random(&state);
    unsigned char *terms[TERMS_MOST], *const expected = support_need(malloc(count * t.size + 1));
    int order[TERMS_MOST], wrong = 0, tried = 0;
    coll__codec codec;
    char why[120];

    CHECK(coll__codec_reduce_in(&codec, &call, n, tier, why, sizeof why) && codec.reproducible, "%s", why);
    for (int k = 0; k < n; k++) {
        terms[k] = support_need(malloc(count * t.size + 1));
        fill_terms(&t, terms[k], count, k, seed);
        order[k] = k;
    }
    expect_terms(&t, s, terms, n, count, expected);
    do {
        wrong += !is_right_in(&codec, terms, order, n, count, expected);
        tried++;
        if (shuffles) shuffle(order, n);
    } while (shuffles ? tried < shuffles : next_order(order, n));
    CHECK(wrong == 0, "%s of %s over %s, scale %g, flags %u, %d terms, tier %d: %d of %d orders are wrong", coll_op_name(s->op),
          t.name, coll_type_name(s->wire), s->scale, s->flags, n, tier, wrong, tried);
    for (int k = 0; k < n; k++) free(terms[k]);
    free(expected);
}

static void test_orders(void)
{
    static const int counts[] = { 7, 8, 9, 16, 33, 63, 64 };

    for (int tier = 0; tier <= coll__tier(); tier++)
        for (int s = 0; s < SUMS; s++) {
            for (int n = 1; n <= 6; n++) check_orders(&sums[s], n, FEW, 0, tier);
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) check_orders(&sums[s], counts[k], FEW, 4, tier);
            check_orders(&sums[s], 5, 1537, 3, tier);         /* several blocks, and a rest                   */
        }
}

/* ---- >>errors: how far a sum is off ---- */

/* The grid is that of the manual: the exact sum of the terms differs by at most half of its unit for each. */
static void test_bound(void)
{
    for (int round = 0; round < 2000; round++) {
        const bool is_double = round & 1;
        const int n = 1 + (int)(support_random(&state) % TERMS_MOST);
        const model_type t = model_type_of(is_double ? COLL_F64 : COLL_F32);
        const uint64_t seed = support_random(&state);
        exact_number difference;
        double x[TERMS_MOST], most = 0;
        int finite = 0;
        for (int k = 0; k < n; k++) {
            const double value = model_value(&t.part, term(&t.part, (size_t)round / 2, k, seed));
            if (!isfinite(value)) continue;
            x[finite++] = value;
            most = fmax(most, fabs(value));
        }
        if (finite == 0) continue;
        difference = exact_sum(x, finite, is_double);
        for (int k = 0; k < finite; k++) {
            exact_term minus = exact_term_of(x[k]);
            minus.is_negative = !minus.is_negative;
            exact_add(&difference, minus);
        }
        const double off = fabs(exact_nearest(&difference, 0)), unit = ldexp(1, exact_finest(x, finite, is_double) + EXACT_UNIT);
        CHECK(off <= finite * unit / 2 && off <= finite * fmax(most * (is_double ? 0x1p-84 : 0x1p-42), 0x1p-1074),
              "%d terms up to %g are off by %g", finite, most, off);
    }
}

/* f16 loses nothing up to 4,096 terms: the sum in whole numbers of 2^-24, and correctly rounded. */
static void test_halves(void)
{
    enum { TERMS = 4096, COUNT = 48 };
    const model_type t = model_type_of(COLL_F16);
    const coll_call call = { .type = COLL_F16, .flags = COLL_REPRODUCIBLE };
    uint16_t *const terms = support_need(malloc((size_t)TERMS * COUNT * sizeof *terms)), result[COUNT];
    coll__source *const sources = support_need(malloc(TERMS * sizeof *sources));
    void *const results[1] = { result };
    coll__codec codec;
    int wrong = 0;

    CHECK(coll__codec_reduce(&codec, &call, TERMS, NULL, 0), "%d ranks", TERMS);
    void *const scratch = support_need(aligned_alloc(64, coll__combine_scratch(&codec, TERMS)));
    for (int n = TERMS; n > 100; n = n * 2 / 3) {
        int64_t exact[COUNT] = { 0 };
        for (int k = 0; k < n; k++) {
            for (size_t i = 0; i < COUNT; i++) {
                const uint64_t random = support_random(&state), bits = random & 0xffff;
                const bool is_finite = (bits & 0x7c00) != 0x7c00;
                terms[(size_t)k * COUNT + i] = (uint16_t)(is_finite ? bits >> (i % 4 == 3 ? 3 : 0) : random % 3);
                exact[i] += (int64_t)ldexp(model_value(&t.part, terms[(size_t)k * COUNT + i]), 24);
            }
            sources[k] = (coll__source){ &terms[(size_t)k * COUNT], COLL__AS_USER, k };
        }
        coll__combine(&codec, &(coll__sum){ .sources = sources, .n = n, .results = results, .m = 1, .format = COLL__AS_USER,
                                            .count = COUNT, .scratch = scratch });
        for (size_t i = 0; i < COUNT; i++) wrong += result[i] != model_bits(&t.part, ldexp((double)exact[i], -24), false);
    }
    CHECK(wrong == 0, "%d sums of f16 are not correctly rounded", wrong);
    free(scratch);
    free(sources);
    free(terms);
}

/* What is said in words. */
static void test_words(void)
{
    const double huge[3] = { 0x1.8p1023, 0x1.8p1023, -0x1.8p1023 }, least[3] = { 0x1p-1074, 0x1p-1074, -0x1p-1074 };
    const double minus[2] = { -0.0, -0.0 };
    const struct { const double *x; int n; coll_op op; double result; } cases[] = {
        { huge, 3, COLL_SUM, 0x1.8p1023 }, { huge, 2, COLL_SUM, (double)INFINITY }, { huge, 2, COLL_AVG, 0x1.8p1023 },
        { least, 3, COLL_SUM, 0x1p-1074 }, { least, 2, COLL_SUM, 0x1p-1073 },       { minus, 2, COLL_SUM, 0.0 },
        { minus, 1, COLL_SUM, 0.0 }
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const coll_call call = { .type = COLL_F64, .op = cases[i].op, .flags = COLL_REPRODUCIBLE };
        coll__source sources[3];
        double result = 7;
        void *const results[1] = { &result };
        _Alignas(64) unsigned char scratch[4 * 4096 + COLL__GRID_BYTES];
        coll__codec codec;
        (void)coll__codec_reduce(&codec, &call, cases[i].n, NULL, 0);
        for (int k = 0; k < cases[i].n; k++) sources[k] = (coll__source){ &cases[i].x[k], COLL__AS_USER, k };
        coll__combine(&codec, &(coll__sum){ .sources = sources, .n = cases[i].n, .results = results, .m = 1,
                                            .format = COLL__AS_USER, .count = 1, .scratch = scratch });
        CHECK(!memcmp(&result, &cases[i].result, sizeof result), "case %zu gives %a, not %a", i, result, cases[i].result);
    }
}

/* ---- >>algorithms: if the order must not matter, one fold adds all terms of an element, unchanged ---- */

static void check_folds(const coll__algorithm *a, int size, int radix, int rank)
{
    static coll__step steps[4096];
    const int blocks = coll__blocks_of(a, size, 3);
    int wrong = 0;

    for (int k = 0;; k++) {
        coll__round now = { .rank = rank, .size = size, .root = size / 2, .radix = radix, .blocks = blocks, .steps = steps,
                            .capacity = 4096 };
        if (!a->round(&now, k)) break;
        for (int i = 0; i < now.count; i++) {
            int terms = 0;
            wrong += steps[i].span.place == COLL__PART;
            for (int j = i + 1; steps[i].verb == COLL__FOLD && j < now.count && steps[j].verb == COLL__FROM; j++) terms++;
            wrong += steps[i].verb == COLL__FOLD && terms != size;
        }
    }
    CHECK(wrong == 0, "%s %s:%d on %d ranks: %d folds of a part", coll_kind_name(a->kind), a->name, radix, size, wrong);
}

static void test_folds(void)
{
    int count = 0;

    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        const coll__query query = { .kind = a->kind, .is_commutative = true, .must_be_canonical = true };
        if (a->kind < COLL_REDUCE || a->kind > COLL_REDUCE_SCATTERV || !coll__may_be_used(a, &query)) continue;
        count++;
        for (int size = 1; size <= 13; size++)
            for (int radix = 2; radix <= (a->has_radix ? 5 : 2); radix++)
                for (int rank = 0; rank < size; rank++) check_folds(a, size, radix, rank);
    }
    CHECK(count == 12, "%d algorithms may serve a sum in which the order must not show", count);
}

/* ---- >>worlds ---- */

enum { RANKS = 5, LONG = 700 };

/* What all ranks of a world do. */
typedef struct plan {
    coll_call call;
    size_t    count;                              /* of the whole vector                                      */
    int       shift;                              /* rank r has term (r + shift) % RANKS                      */
    uint64_t  seed;
    const unsigned char *expected;                /* the whole vector; of a list: buffers one after the other */
    const char *world;
} plan;

static size_t block_of(const plan *p) { return p->count / RANKS; }

/* Make the call on one rank, with its own input, and compare with the expected result. */
static int run_plan(coll_comm *comm, void *arg)
{
    const plan *p = arg;
    const model_type t = model_type_of(p->call.type);
    const int me = coll_rank(comm);
    const size_t length = p->count * t.size;
    unsigned char *const send = support_need(malloc(length + 1)), *const recv = support_need(malloc(length + 1));
    size_t counts[RANKS], first = 0, have = p->count;
    coll_call call = p->call;

    fill_terms(&t, send, p->count, (me + p->shift) % RANKS, p->seed);
    call.send = send;
    call.recv = recv;
    call.count = p->count;
    for (int i = 0; i < RANKS; i++) counts[i] = block_of(p) + (i == 1 ? 3 : 0) - (i == 4 ? 3 : 0);
    if (call.kind == COLL_REDUCE) have = me == call.root ? have : 0;
    if (call.kind == COLL_REDUCE_SCATTER) call.count = have = block_of(p), first = (size_t)me * have;
    if (call.kind == COLL_REDUCE_SCATTERV) {
        for (int i = 0; i < me; i++) first += counts[i];
        have = counts[me];
        call.recv_counts = counts;
        call.count = 0;
    }
    const coll_status status = coll_run(comm, &call);
    const bool is_right = !status && !memcmp(recv, p->expected + first * t.size, have * t.size);
    CHECK(is_right, "%s, rank %d, %s of %s over %s, flags %u, algorithm %s, shift %d: %s", p->world, me,
          coll_kind_name(call.kind), t.name, coll_type_name(call.wire), call.flags, call.algorithm ? call.algorithm : "-",
          p->shift, status ? coll_error(comm) : "other bits");
    free(send);
    free(recv);
    return !is_right;
}

static const char *const used_worlds[] = { "threads", "sim", "tcp-poll" };
enum { WORLDS = sizeof used_worlds / sizeof *used_worlds };

static const struct { coll_kind kind; const char *names[8]; } ways[] = {
    { COLL_ALLREDUCE, { NULL, "gather:2", "gather:5", "direct:2", "direct:3", "tree:2", "tree:4" } },
    { COLL_REDUCE, { NULL, "gather:3", "direct" } },
    { COLL_REDUCE_SCATTER, { NULL, "direct", "gather:2", "gather:3", "tree:2", "tree:3" } },
    { COLL_REDUCE_SCATTERV, { NULL, "direct", "gather:2", "gather:5", "tree:3" } }
};

/* Every kind and algorithm, in every world: the same bits, however the terms are handed out. */
static void everywhere(plan *p, int shifts)
{
    for (int w = 0; w < WORLDS; w++) {
        p->world = used_worlds[w];
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
            for (int i = 0; i == 0 || (i < 8 && ways[k].names[i]); i++) {
                p->call.kind = ways[k].kind;
                p->call.algorithm = ways[k].names[i];
                p->call.root = 3;
                p->shift = shifts ? (i + w) % shifts : 0;
                CHECK(model_run(p->world, RANKS, NULL, run_plan, p) == 0, "%s of %s", p->world, coll_type_name(p->call.type));
            }
    }
}

static void test_worlds(void)
{
    static const int picked[] = { 0, 1, 2, 3, 6, 9, 15, 17, 19, 20, 21 };

    for (size_t i = 0; i < sizeof picked / sizeof *picked; i++) {
        const sum *s = &sums[picked[i]];
        const model_type t = model_type_of(s->type);
        plan p = { .call = call_of(s), .count = LONG, .seed = support_random(&state) };
        unsigned char *terms[RANKS], *const expected = support_need(malloc(LONG * t.size));
        for (int k = 0; k < RANKS; k++) {
            terms[k] = support_need(malloc(LONG * t.size));
            fill_terms(&t, terms[k], LONG, k, p.seed);
        }
        expect_terms(&t, s, terms, RANKS, LONG, expected);
        p.expected = expected;
        everywhere(&p, RANKS);
        for (int k = 0; k < RANKS; k++) free(terms[k]);
        free(expected);
    }
}

/* bf16 over f16: the wire has 65472 and the type has not.  What one rank rounds to 2^16, which is no f16, is what all get. */
static int run_edge(coll_comm *comm, void *arg)
{
    static const uint16_t brought[4] = { 0x477f, 0x4300, 0x4280, 0 };           /* 65280 + 128 + 64               */
    static const unsigned flags[] = { 0, COLL_DETERMINISTIC, COLL_REPRODUCIBLE, COLL_STOCHASTIC };
    static const char *const names[] = { NULL, "gather", "direct", "circulant", "ring", "tree" };
    const int me = coll_rank(comm);
    uint16_t send[40], recv[40];
    int wrong = 0;

    (void)arg;
    for (int i = 0; i < 40; i++) send[i] = (uint16_t)(brought[me] | (brought[me] && i % 2 ? 0x8000 : 0));
    for (int f = 0; f < 4; f++)
        for (int i = 0; i < 6; i++) {
            const coll_call call = { .kind = COLL_ALLREDUCE, .send = send, .recv = recv, .count = 40, .type = COLL_BF16,
                                     .wire = COLL_F16, .flags = flags[f], .algorithm = names[i] };
            const coll_status status = coll_run(comm, &call);
            if (status == COLL_ERR_UNSUPPORTED && i > 2) continue;
            for (int k = 0; k < 40; k++) wrong += recv[k] != (k % 2 ? 0xc780 : 0x4780);
            CHECK(status == COLL_OK && !wrong, "rank %d, flags %u, %s: %d elements are not 2^16", me, flags[f],
                  names[i] ? names[i] : "-", wrong);
        }
    return wrong != 0;
}

static void test_edge(void)
{
    for (int w = 0; w < WORLDS; w++) CHECK(model_run(used_worlds[w], 4, NULL, run_edge, NULL) == 0, "%s", used_worlds[w]);
}

/* ---- >>refusals and reports ---- */

static void user_op(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    (void)in, (void)inout, (void)count, (void)type, (void)context;
}

static int run_refusals(coll_comm *comm, void *arg)
{
    float x[4] = { 1, 2, 3, 4 }, y[4];
    const coll_call base = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 4, .type = COLL_F32,
                             .flags = COLL_REPRODUCIBLE };
    coll_call product = base, ring = base, scan = base, integers = base;
    char text[640];

    (void)arg;
    product.op = COLL_PROD;
    ring.algorithm = "ring";
    scan.kind = COLL_SCAN;
    scan.op = COLL_PROD;
    integers.type = COLL_I32;
    integers.op = COLL_PROD;
    CHECK(coll_run(comm, &product) == COLL_ERR_UNSUPPORTED
          && strstr(coll_error(comm), "there is no reproducible prod of f32: the order of the ranks shows in it"), "%s",
          coll_error(comm));
    CHECK(coll_run(comm, &ring) == COLL_ERR_UNSUPPORTED && strstr(coll_error(comm), "no algorithm \"ring\""), "%s",
          coll_error(comm));
    CHECK(coll_run(comm, &scan) == COLL_OK && coll_run(comm, &integers) == COLL_OK, "%s", coll_error(comm));
    coll_call seeded = base;
    seeded.flags = 0;
    seeded.seed = (uint64_t)coll_rank(comm);
    CHECK(coll_run(comm, &seeded) == COLL_OK, "without COLL_STOCHASTIC a seed is nothing: %s", coll_error(comm));
    coll_call mine = base;
    mine.op = COLL_USER;
    mine.fn = user_op;
    CHECK(coll_run(comm, &mine) == COLL_ERR_UNSUPPORTED
          && strstr(coll_error(comm), "the order of the ranks may show in it"), "%s", coll_error(comm));
    CHECK(coll_explain(comm, &base, text, sizeof text) > 0 && strstr(text, "reproducible, "), "%s", text);
    CHECK(coll_explain(comm, &scan, text, sizeof text) > 0 && !strstr(text, "reproducible"), "%s", text);
    return 0;
}

static void test_refusals(void)
{
    for (int w = 0; w < WORLDS; w++)
        CHECK(model_run(used_worlds[w], 3, NULL, run_refusals, NULL) == 0, "%s", used_worlds[w]);
}

/* ---- >>rounding at random ---- */

/* One number drawn, by the function that the library has for whole buffers. */
static double drawn(coll_type to, coll_type from, double x, uint64_t seed, size_t index)
{
    const model_type t = model_type_of(to);
    const float single = (float)x;
    unsigned char bits[8];

    const coll__stochastic by = coll__stochastic_row(to, from, 0);
    by.round(bits, from == COLL_F32 ? (const void *)&single : (const void *)&x, 1, seed, index, by.draw);
    return model_value(&t.part, support_load(&t.part, bits));
}

typedef struct draw { coll_type type, wire; double scale; coll_op op; unsigned flags; } draw;

static const draw draws[] = {
    { COLL_BF16, 0, 0, COLL_SUM, 0 },         { COLL_F16, 0, 0, COLL_AVG, 0 },           { COLL_F8E4M3, 0, 0, COLL_SUM, 0 },
    { COLL_F8E5M2, 0, 0, COLL_AVG, 0 },       { COLL_F32, COLL_BF16, 0, COLL_SUM, 0 },   { COLL_F32, COLL_F16, 0.7, COLL_AVG, 0 },
    { COLL_F32, COLL_F8E5M2, 0, COLL_SUM, 0 }, { COLL_F64, COLL_BF16, 0, COLL_SUM, 0 },
    { COLL_BF16, COLL_F8E4M3, 0, COLL_AVG, 0 },
    { COLL_F16, COLL_BF16, 0, COLL_SUM, 0 },  { COLL_F32, COLL_F8E4M3, 0, COLL_SUM, COLL_SATURATE },
    { COLL_F32, COLL_BF16, 0, COLL_SUM, COLL_REPRODUCIBLE }, { COLL_BF16, 0, 0, COLL_AVG, COLL_REPRODUCIBLE },
    { COLL_F32, 0, 0, COLL_SUM, 0 },          { COLL_F64, COLL_F32, 0, COLL_SUM, 0 }
};

static double clamped(double x, double most) { return x > most ? most : x < -most ? -most : x; }

/* The result of an element by the manual: rounded at random by each rank to a wire of another type, summed as the tree of the
 * ranks, drawn once more at the end. */
static uint64_t expected_draw(const draw *d, const double *brought, uint64_t seed, size_t index)
{
    const model_type t = model_type_of(d->type), wire = model_type_of(d->wire ? d->wire : d->type);
    const bool draws_at_all = wire.type < COLL_F32, is_wide = d->type == COLL_F64 || d->flags & COLL_REPRODUCIBLE;
    const double most = d->flags & COLL_SATURATE ? 448 : (double)INFINITY, scale = d->scale > 0 ? d->scale : 1;
    double x[RANKS], result;
    float narrow[RANKS];

    for (int k = 0; k < RANKS; k++) {
        const double value = clamped(brought[k], most);
        x[k] = value;
        if (d->wire && draws_at_all)
            x[k] = drawn(wire.type, d->type == COLL_F64 ? COLL_F64 : COLL_F32, value, coll__seed_of(seed, (uint64_t)k), index);
        else if (d->wire) x[k] = model_value(&wire.part, model_bits(&wire.part, value, false));
        narrow[k] = (float)x[k];
    }
    if (d->flags & COLL_REPRODUCIBLE) result = exact_result(x, RANKS, false, d->op == COLL_AVG ? RANKS : 1, scale);
    else if (is_wide) result = support_tree_double(COLL_SUM, x, RANKS) / (d->op == COLL_AVG ? RANKS : 1) * scale;
    else {
        float single = support_tree_float(COLL_SUM, narrow, RANKS);
        if (d->op == COLL_AVG) single /= (float)RANKS;
        single *= (float)scale;
        result = (double)single;
    }
    result = clamped(result, most);
    const double last = draws_at_all ? drawn(wire.type, is_wide ? COLL_F64 : COLL_F32, result, seed, index)
                                     : model_value(&wire.part, model_bits(&wire.part, result, false));
    return model_bits(&t.part, last, false);
}

/* Elements first.. of the terms, as a vector of their own. */
static void expect_draws(const draw *d, const plan *p, uint64_t seed, size_t first, size_t count, unsigned char *to)
{
    const model_type t = model_type_of(d->type);

    for (size_t i = 0; i < count; i++) {
        double brought[RANKS];
        for (int k = 0; k < RANKS; k++) brought[k] = model_value(&t.part, term(&t.part, first + i, k, p->seed));
        support_store(&t.part, to + i * t.size, expected_draw(d, brought, seed, i));
    }
}

static void test_draws(void)
{
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        const draw *d = &draws[i];
        const model_type t = model_type_of(d->type);
        unsigned char *const expected = support_need(malloc(LONG * t.size));
        plan p = { .count = LONG, .seed = support_random(&state), .expected = expected };
        p.call = (coll_call){ .type = d->type, .wire = d->wire, .op = d->op, .scale = d->scale, .seed = support_random(&state),
                              .flags = COLL_STOCHASTIC | COLL_DETERMINISTIC | d->flags };
        expect_draws(d, &p, p.call.seed, 0, LONG, expected);
        everywhere(&p, 0);
        free(expected);
    }
}

/* A list: each buffer counts from 0, and has its own seed, in a list and alone. */
static int run_list(coll_comm *comm, void *arg)
{
    static const size_t counts[4] = { 3, 0, 200, 3 };
    const plan *p = arg;
    const model_type t = model_type_of(p->call.type);
    const int me = coll_rank(comm);
    unsigned char *const send = support_need(malloc(p->count * t.size)), *const recv = support_need(malloc(p->count * t.size));
    coll_list_item list[4];
    coll_call call = p->call;
    size_t at = 0;

    fill_terms(&t, send, p->count, me, p->seed);
    for (int i = 0; i < 4; at += counts[i++])
        list[i] = (coll_list_item){ send + at * t.size, recv + at * t.size, counts[i], p->call.type };
    call.list = list;
    call.list_count = 4;
    const coll_status status = coll_run(comm, &call);
    const bool is_right = !status && !memcmp(recv, p->expected, p->count * t.size);
    CHECK(is_right, "%s, rank %d: a list: %s", p->world, me, status ? coll_error(comm) : "other bits");
    free(send);
    free(recv);
    return !is_right;
}

static void test_lists(void)
{
    static const size_t counts[4] = { 3, 0, 200, 3 };

    for (int i = 0; i < 5; i += 4) {
        const draw *d = &draws[i];
        const model_type t = model_type_of(d->type);
        unsigned char *const expected = support_need(malloc(206 * t.size));
        plan p = { .count = 206, .seed = support_random(&state), .expected = expected };
        p.call = (coll_call){ .kind = COLL_ALLREDUCE_LIST, .wire = d->wire, .op = d->op, .seed = support_random(&state),
                              .flags = COLL_STOCHASTIC | COLL_DETERMINISTIC, .type = d->type };
        size_t at = 0;
        for (int k = 0; k < 4; at += counts[k++])
            expect_draws(d, &p, coll__seed_of(~p.call.seed, (uint64_t)k), at, counts[k], expected + at * t.size);
        for (int w = 0; w < WORLDS; w++) {
            p.world = used_worlds[w];
            CHECK(model_run(p.world, RANKS, NULL, run_list, &p) == 0, "%s", p.world);
        }
        free(expected);
    }
}

/* The mean of many is the sum; and another seed draws otherwise. */
static int run_mean(coll_comm *comm, void *arg)
{
    enum { COUNT = 20000 };
    const int me = coll_rank(comm);
    float *const send = support_need(malloc(COUNT * sizeof *send)), *const recv = support_need(malloc(COUNT * sizeof *recv));
    double mean = 0, exact = 0, spread = 0;
    float *const before = support_need(calloc(COUNT, sizeof *before));
    bool differs = false;

    (void)arg;
    for (int i = 0; i < COUNT; i++) send[i] = 1.001f + (float)me * 0.0101f;
    for (int i = 0; i < coll_size(comm); i++) exact += (double)(1.001f + (float)i * 0.0101f);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        const coll_call call = { .kind = COLL_ALLREDUCE, .send = send, .recv = recv, .count = COUNT, .type = COLL_F32,
                                 .wire = COLL_BF16, .flags = COLL_STOCHASTIC, .seed = seed };
        CHECK(coll_run(comm, &call) == COLL_OK, "%s", coll_error(comm));
        differs |= seed > 1 && memcmp(before, recv, COUNT * sizeof *recv);
        memcpy(before, recv, COUNT * sizeof *recv);
        for (int i = 0; i < COUNT; i++) {
            mean += (double)recv[i];
            spread += ((double)recv[i] - exact) * ((double)recv[i] - exact);
        }
    }
    mean /= 5 * COUNT;
    spread = sqrt(spread / (5 * COUNT));
    CHECK(fabs(mean - exact) < 5 * spread / sqrt(5.0 * COUNT) && spread > 0.004 && differs, "mean %.7g, exact %.7g, spread %.3g",
          mean, exact, spread);
    free(before);
    free(send);
    free(recv);
    return 0;
}

static void test_mean(void) { CHECK(model_run("threads", 4, NULL, run_mean, NULL) == 0, "%s", "threads"); }

/* ---- >>overflow ---- */

enum { SPOT_MOST = 3000 };

/* A call in which element `spot` of the sum overflows (-1: none does), and the rank that has it. */
static void count_overflow(coll_comm *comm, coll_kind kind, coll_type type, size_t count, long spot, bool in_place,
                           uint64_t *total)
{
    const model_type t = model_type_of(type);
    const int me = coll_rank(comm), size = coll_size(comm);
    const size_t all = kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV ? count * (size_t)size : count;
    unsigned char *const send = support_need(calloc(all + 1, t.size)), *const recv = support_need(calloc(all + 1, t.size));
    size_t counts[16];
    coll_call call = { .kind = kind, .send = in_place ? recv : send, .recv = recv, .count = count, .type = type, .root = 1,
                       .flags = COLL_DETECT_OVERFLOW, .recv_counts = counts };
    const bool has_result = (kind != COLL_REDUCE || me == 1) && (kind != COLL_EXSCAN || me > 0);
    const bool is_scattered = kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV;

    for (int i = 0; i < size; i++) counts[i] = count;
    if (kind == COLL_REDUCE_SCATTERV) call.count = 0;
    if (spot >= 0 && me == 0) {                   /* rank 0 has it, so that every prefix has it               */
        unsigned char *const at = (in_place ? recv : send) + (size_t)spot * t.size;
        const uint64_t bits = t.class == MODEL_INTEGER ? ~UINT64_C(0)
                            : model_bits(&t.part, spot % 2 ? (double)NAN : (double)INFINITY, false);
        support_store(&t.part, at + (spot % 3 ? t.second : 0), bits);
    }
    CHECK(coll_run(comm, &call) == COLL_OK, "%s", coll_error(comm));
    const bool is_mine = !is_scattered || (spot >= (long)(count * (size_t)me) && spot < (long)(count * (size_t)(me + 1)));
    *total += t.class != MODEL_INTEGER && spot >= 0 && has_result && is_mine;
    CHECK(coll_overflows(comm) == *total, "rank %d, %s of %zu %s, spot %ld%s: %d counted, not %d", me, coll_kind_name(kind),
          count, t.name, spot, in_place ? ", in place" : "", (int)coll_overflows(comm), (int)*total);
    *total = coll_overflows(comm);
    free(send);
    free(recv);
}

/* A list counts once, whatever its buffers; without the flag nothing counts; a prepared call counts each time. */
static void count_others(coll_comm *comm, uint64_t *total)
{
    float a[3] = { 1, INFINITY, 0 }, b[2] = { NAN, 1 }, c[2] = { 0, 0 }, *big = support_need(calloc(40000, sizeof *big));
    const coll_list_item list[4] = { { COLL_IN_PLACE, a, 3, COLL_F32 }, { COLL_IN_PLACE, b, 2, COLL_F32 },
                                  { COLL_IN_PLACE, c, 2, COLL_F32 }, { COLL_IN_PLACE, big, 40000, COLL_F32 } };
    coll_call call = { .kind = COLL_ALLREDUCE_LIST, .list = list, .list_count = 4, .flags = COLL_DETECT_OVERFLOW };
    coll_request *request = NULL;

    for (int round = 0; round < 3; round++) {
        if (round == 1) a[0] = a[1] = a[2] = b[0] = 1, big[39999] = INFINITY;
        if (round == 2) big[39999] = 1;
        CHECK(coll_run(comm, &call) == COLL_OK && coll_overflows(comm) == (*total += round < 2), "a list, round %d: %llu", round,
              (unsigned long long)coll_overflows(comm));
    }
    a[0] = INFINITY;
    CHECK(coll_allreduce(comm, COLL_IN_PLACE, a, 3, COLL_F32, COLL_SUM) == COLL_OK && coll_overflows(comm) == *total, "%s",
          "no flag");
    call = (coll_call){ .kind = COLL_ALLGATHER, .send = b, .recv = big, .count = 2, .type = COLL_F32,
                        .flags = COLL_DETECT_OVERFLOW };
    b[0] = NAN;
    CHECK(coll_run(comm, &call) == COLL_OK && coll_overflows(comm) == *total, "%s", "an allgather only moves");
    call = (coll_call){ .kind = COLL_ALLREDUCE, .send = a, .recv = a, .count = 3, .type = COLL_F32,
                        .flags = COLL_DETECT_OVERFLOW };
    CHECK(coll_prepare(comm, &call, &request) == COLL_OK, "%s", coll_error(comm));
    for (int round = 0; round < 3; round++)
        CHECK(coll_restart(request) == COLL_OK && coll_wait(request) == COLL_OK && coll_overflows(comm) == ++*total, "round %d",
              round);
    coll_request_free(request);
    free(big);
}

static int run_overflows(coll_comm *comm, void *arg)
{
    static const coll_kind kinds[] = { COLL_ALLREDUCE, COLL_REDUCE, COLL_REDUCE_SCATTER, COLL_REDUCE_SCATTERV, COLL_SCAN,
                                       COLL_EXSCAN };
    static const coll_type types[] = { COLL_F32, COLL_F64, COLL_F16, COLL_BF16, COLL_F8E4M3, COLL_F8E5M2, COLL_C64, COLL_C128,
                                       COLL_I32 };
    static const size_t counts[] = { 1, 5, 40, 200, SPOT_MOST };
    uint64_t total = 0, draws_state = 5, mine = (uint64_t)coll_rank(comm) + 77;

    (void)arg;
    CHECK(coll_overflows(comm) == 0 && coll_overflows(NULL) == 0, "%s", "at first");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (int i = 0; i < 10; i++) {
                const bool is_scattered = kinds[k] == COLL_REDUCE_SCATTER || kinds[k] == COLL_REDUCE_SCATTERV;
                const size_t count = counts[i % 5], all = is_scattered ? count * (size_t)coll_size(comm) : count;
                const uint64_t random = support_random(&draws_state);
                const long spot = random % 3 ? (long)(random / 4 % all) : -1;
                count_overflow(comm, kinds[k], types[t], count, spot, support_random(&mine) % 2, &total);
            }
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    uint64_t others = coll_overflows(comm);
    count_others(comm, &others);
    return 0;
}

static void test_overflows(void)
{
    for (int w = 0; w < WORLDS; w++)
        for (int size = 2; size <= 5; size += 3)
            CHECK(model_run(used_worlds[w], size, NULL, run_overflows, NULL) == 0, "%s of %d", used_worlds[w], size);
}

int main(void)
{
    state = support_seed();
    printf("COLL_TEST_SEED=%llu, %d tiers\n", (unsigned long long)state, coll__tier() + 1);
    support_limit(LIMIT_SECONDS, NULL);
    test_orders();
    test_bound();
    test_halves();
    test_words();
    test_folds();
    test_worlds();
    test_edge();
    test_refusals();
    test_draws();
    test_lists();
    test_mean();
    test_overflows();
    return CHECK_DONE();
}
