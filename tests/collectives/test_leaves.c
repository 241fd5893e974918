/* test_leaves.c - sums over leaves have the same bits for every number of ranks, and however the leaves are divided among them.
 *
 *     test_leaves                    COLL_TEST_SEED=n repeats a run; COLL_TEST_SCALE=n: n times as many random cases
 *     test_leaves sim 40 3/8         all splits of up to 40 leaves into up to 6 runs, of which this is part 3 of 8
 *
 * The oracle is leaves.h: a tree by recursion over the leaves, with its own rounding and its own average.  First the sums of one
 * rank alone: every run of up to 40 leaves, every rule, on every tier. */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/model.h"
#include "../support/leaves.h"

enum { FEW = 40, COUNT = 37, LONG = 2600, LIMIT_SECONDS = 240 };

static uint64_t state;                            /* of the draws of this file                                */

/* ---- >>alone: the nodes of a run ---- */

/* Do the nodes have these bits?  Where both are NaN, the payload does not matter: it is lost in the result. */
static bool are_nodes(const leaves_rule *r, const void *got, const void *expected, size_t reals)
{
    const unsigned char *const a = got, *const b = expected;
    const size_t size = leaves_in_doubles(r) ? 8 : sizeof(float);
    double x[2];
    float y[2];

    if (model_type_of(r->type).class == MODEL_INTEGER) return !memcmp(a, b, reals * model_type_of(r->type).size);
    for (size_t i = 0; i < reals * size; i += size) {
        if (!memcmp(a + i, b + i, size)) continue;
        memcpy(&x[0], a + i, size), memcpy(&x[1], b + i, size);
        memcpy(&y[0], a + i, sizeof y[0]), memcpy(&y[1], b + i, sizeof y[1]);
        if (size == 8 ? !isnan(x[0]) || !isnan(x[1]) : !isnan(y[0]) || !isnan(y[1])) return false;
    }
    return true;
}

/* All leaves from `first` on, on one tier.  After each leaf the nodes are compared.  In place: leaves are written to their
 * place, if there is one. */
static void check_run(const leaves_rule *r, uint64_t seed, uint64_t first, uint64_t end, size_t count, int tier, bool in_place)
{
    const model_type t = model_type_of(r->type);
    const size_t reals = count * leaves_reals(r);
    unsigned char *const expected = support_need(malloc(16 * count * 16));
    support_buffer leaf = support_buffer_make(count * t.size, (first & 1) * 8);
    coll_call call = { .kind = COLL_ALLREDUCE };
    coll_sum *s = NULL;
    int wrong = 0;

    CHECK(coll_sum_begin(&s, 0, count, r->type, NULL) == COLL_OK, "%s", coll_error(NULL));
    if (!s) return;
    (void)coll__run_codec_in(&s->codec, r->type, tier, NULL, 0);
    s->three = coll__run_three(r->type, tier);
    s->streams = first & 1;
    CHECK(coll_sum_add(s, leaf.data) == COLL_OK && coll_sum_restart(s, (int64_t)first) == COLL_OK, "%s", coll_error(NULL));
    for (uint64_t i = first; i < end; i++) {
        void *const place = in_place ? coll_sum_place(s) : NULL, *const at = place ? place : leaf.data;
        wrong += in_place && !place != (s->stride != count * t.size);
        leaves_fill(r, seed, i, count, at);
        wrong += coll_sum_add(s, at) != COLL_OK;
        memset(leaf.data, 0xd7, leaf.length);
        const int made = leaves_nodes(r, seed, first, i + 1, count, expected);
        wrong += coll_sum_end(s, &call) != COLL_OK || call.first_leaf != (int64_t)first || call.count != count;
        wrong += made != s->depth || call.leaves != (int64_t)(i + 1 - first) || call.type != r->type;
        wrong += !are_nodes(r, call.send, expected, reals * (size_t)made);
    }
    CHECK(wrong == 0, "%s, tier %d, leaves %d to %d, %zu elements: %d wrong", t.name, tier, (int)first, (int)end, count, wrong);
    coll_sum_free(s);
    support_buffer_free(&leaf);
    free(expected);
}

static void test_alone(void)
{
    for (int rule = 0; rule < LEAVES_RULES; rule++) {
        const leaves_rule *const r = &leaves_rules[rule];
        const uint64_t seed = support_random(&state);
        for (int tier = 0; tier <= coll__tier() && !r->wire && !r->accumulate && !r->scale && !r->flags && r->op == COLL_SUM;
             tier++) {
            for (uint64_t first = 0; first < FEW; first++) check_run(r, seed, first, FEW, COUNT, tier, first % 4 > 1);
            for (uint64_t first = 0; first < 4; first++) check_run(r, seed, first, 8, LONG, tier, first > 1);
        }
    }
}

/* An arena that is too short: the leaf is added when there is memory again. */
static void test_memory(void)
{
    enum { TAKEN = 20 << 10 };
    static unsigned char block[32 << 10];
    const coll_allocator *const arena = coll_arena_begin(block, sizeof block);
    void *const taken = arena->allocate(arena->context, TAKEN, 16);
    const float leaf[256] = { 1, 2, 3 };
    coll_sum *s = NULL;
    int added = 0;

    CHECK(taken && !coll_sum_begin(&s, 0, 256, COLL_F32, arena), "%s", coll_error(NULL));
    while (coll_sum_add(s, leaf) == COLL_OK) added++;
    CHECK(added == 30 && strstr(coll_error(NULL), "coll_sum_add: no memory for 1024 bytes"), "%d leaves, \"%s\"", added,
          coll_error(NULL));
    arena->free(arena->context, taken, TAKEN);
    CHECK(!coll_sum_add(s, leaf) && s->next == 31, "%s", coll_error(NULL));
    coll_sum_free(s);
    CHECK(coll_arena_used(arena) == 0 && coll_arena_end(arena) == COLL_OK, "%zu bytes are left", coll_arena_used(arena));
}

/* ---- >>words ---- */

static void says(coll_status got, coll_status expected, const char *sentence)
{
    CHECK(got == expected && strstr(coll_error(NULL), sentence), "%s: \"%s\", not \"%s\"", coll_status_text(got),
          coll_error(NULL), sentence);
}

static void test_words(void)
{
    float leaf[4] = { 1, 2, 3, 4 };
    coll_call call = { .kind = COLL_ALLREDUCE };
    coll_sum *s = NULL;

    says(coll_sum_begin(NULL, 0, 4, COLL_F32, NULL), COLL_ERR_ARGUMENT, "coll_sum_begin: out is NULL");
    says(coll_sum_begin(&s, -1, 4, COLL_F32, NULL), COLL_ERR_ARGUMENT, "first leaf -1 is out of range: 0 or more");
    says(coll_sum_begin(&s, 0, 4, COLL_F32_I32, NULL), COLL_ERR_UNSUPPORTED, "there is no sum of f32_i32");
    says(coll_sum_begin(&s, 0, 4, 99, NULL), COLL_ERR_UNSUPPORTED, "invalid type 99");
    says(coll_sum_begin(&s, 0, SIZE_MAX / 4, COLL_F32, NULL), COLL_ERR_ARGUMENT, "exceeds the memory");
    CHECK(!s && !coll_sum_begin(&s, 5, 4, COLL_F32, NULL), "%s", coll_error(NULL));
    says(coll_sum_restart(NULL, 0), COLL_ERR_ARGUMENT, "coll_sum_restart: sum is NULL");
    says(coll_sum_restart(s, -2), COLL_ERR_ARGUMENT, "first leaf -2 is out of range");
    says(coll_sum_add(NULL, leaf), COLL_ERR_ARGUMENT, "coll_sum_add: sum is NULL");
    says(coll_sum_add(s, NULL), COLL_ERR_ARGUMENT, "coll_sum_add: leaf is NULL");
    CHECK(coll_sum_place(s) && !coll_sum_place(NULL), "%s", coll_error(NULL));
    says(coll_sum_add(s, (char *)coll_sum_place(s) + 4), COLL_ERR_ARGUMENT, "leaf overlaps the memory of the sum");
    says(coll_sum_end(NULL, &call), COLL_ERR_ARGUMENT, "coll_sum_end: sum is NULL");
    says(coll_sum_end(s, NULL), COLL_ERR_ARGUMENT, "coll_sum_end: call is NULL");
    CHECK(!coll_sum_end(s, &call) && call.leaves == -1 && call.first_leaf == 5, "no leaves: %lld", (long long)call.leaves);
    CHECK(!coll_sum_add(s, leaf) && !coll_sum_end(s, &call) && call.leaves == 1, "%s", coll_error(NULL));
    call.flags = COLL_REPRODUCIBLE;
    says(coll_sum_end(s, &call), COLL_ERR_ARGUMENT, "COLL_REPRODUCIBLE needs the leaves themselves");
    call.flags = 0, call.accumulate = COLL_F64;
    says(coll_sum_end(s, &call), COLL_ERR_ARGUMENT, "accumulate is f64, and the leaves are f32");
    CHECK(!coll_sum_restart(s, INT64_MAX), "%s", coll_error(NULL));
    says(coll_sum_add(s, leaf), COLL_ERR_ARGUMENT, "there are 2^63 - 1 leaves already");
    coll_sum_free(s);
    coll_sum_free(NULL);
    call.accumulate = 0;
    CHECK(!coll_sum_begin(&s, 0, 0, COLL_F32, NULL) && !coll_sum_add(s, NULL) && !coll_sum_add(s, NULL)
          && !coll_sum_end(s, &call), "no elements: %s", coll_error(NULL));
    coll_sum_free(s);
}

/* ---- >>worlds: all splits of up to FEW leaves into runs ---- */

enum { RANKS_MOST = 6, FAILURES_MOST = 10 };

/* Leaves and results of a rule, made once for all ranks. */
typedef struct prepared {
    unsigned char *leaves[FEW], *results[FEW + 1];
} prepared;

static prepared all_rules[LEAVES_FLOATS];

static void prepare_rules(uint64_t seed)
{
    for (int rule = 0; rule < LEAVES_FLOATS; rule++) {
        const leaves_rule *const r = &leaves_rules[rule];
        const size_t length = COUNT * model_type_of(r->type).size;
        for (int i = 0; i < FEW; i++) {
            all_rules[rule].leaves[i] = support_need(malloc(length));
            all_rules[rule].results[i + 1] = support_need(malloc(length));
            leaves_fill(r, seed, (uint64_t)i, COUNT, all_rules[rule].leaves[i]);
            leaves_expect(r, seed, (uint64_t)i + 1, COUNT, all_rules[rule].results[i + 1]);
        }
    }
}

static void free_rules(void)
{
    for (int rule = 0; rule < LEAVES_FLOATS; rule++)
        for (int i = 0; i < FEW; i++) free(all_rules[rule].leaves[i]), free(all_rules[rule].results[i + 1]);
}

/* The splits of `total` leaves into `ranks` runs: rank i has leaves [cuts[i], cuts[i + 1]). */
static void first_split(int *cuts, int ranks, int total)
{
    for (int i = 0; i < ranks; i++) cuts[i] = i;
    cuts[ranks] = total;
}

static bool next_split(int *cuts, int ranks, int total)
{
    for (int i = ranks - 1; i > 0; i--) {
        if (cuts[i] + 1 > total - (ranks - i)) continue;
        cuts[i]++;
        for (int k = i + 1; k < ranks; k++) cuts[k] = cuts[k - 1] + 1;
        return true;
    }
    return false;
}

typedef struct plan {
    const char *world;
    uint64_t    seed;
    int         most;                             /* leaves                                                   */
    int         part, parts;                      /* of the splits; part 1 is the first                       */
    long        splits;                           /* tried so far, by rank 0                                  */
} plan;

/* Tell of a wrong result. */
static void check_result(coll_comm *comm, const char *name, const leaves_rule *r, const int *cuts, size_t count,
                         const char *wrong)
{
    char text[400] = "";

    for (int i = 0; wrong && i < coll_size(comm); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d", cuts[i + 1] - cuts[i]);
    CHECK(!wrong, "%s, rank %d: %zu x %s, %s over %s in %s, flags %u, runs of%s leaves: %s", name, coll_rank(comm), count,
          coll_type_name(r->type), coll_op_name(r->op), coll_type_name(r->wire), coll_type_name(r->accumulate), r->flags, text,
          wrong);
}

/* One rank's part in one split: coll_sum_... makes the nodes, or the oracle if the sum has another type than they would. */
static bool is_split_right(coll_comm *comm, const plan *p, int rule, const int *cuts, int total, bool is_reported)
{
    const leaves_rule *const r = &leaves_rules[rule];
    const size_t length = COUNT * model_type_of(r->type).size;
    const int me = coll_rank(comm), first = cuts[me], end = cuts[me + 1];
    const bool is_given = r->accumulate || r->flags & COLL_REPRODUCIBLE;
    _Alignas(16) unsigned char recv[COUNT * 16], nodes[COUNT * 8 * FEW];
    coll_call call = leaves_call(r);
    coll_sum *sum = NULL;
    coll_status status = COLL_OK;

    call.recv = recv;
    if (is_given) {
        (void)leaves_nodes(r, p->seed, (uint64_t)first, (uint64_t)end, COUNT, nodes);
        call.send = nodes, call.count = COUNT, call.first_leaf = first, call.leaves = end - first;
    } else {
        status = coll_sum_begin(&sum, first, COUNT, r->type, NULL);
        for (int i = first; i < end && !status; i++) status = coll_sum_add(sum, all_rules[rule].leaves[i]);
        if (!status) status = coll_sum_end(sum, &call);
        if (status) check_result(comm, p->world, r, cuts, COUNT, coll_error(NULL));
    }
    status = coll_run(comm, &call);
    coll_sum_free(sum);
    const bool is_right = !status && !memcmp(recv, all_rules[rule].results[total], length);
    if (is_reported || is_right)
        check_result(comm, p->world, r, cuts, COUNT, status ? coll_error(comm) : is_right ? NULL : "other bits");
    return is_right;
}

static int run_splits(coll_comm *comm, void *arg)
{
    plan *const p = arg;
    const int ranks = coll_size(comm);
    int cuts[RANKS_MOST + 1], wrong = 0;
    uint64_t number = 0;
    long tried = 0;

    for (int total = ranks; total <= p->most; total++) {
        first_split(cuts, ranks, total);
        do {
            const int rule = (int)(support_mix(p->seed + number) % LEAVES_FLOATS);
            if ((int)(number++ % (unsigned)p->parts) != p->part - 1) continue;
            wrong += !is_split_right(comm, p, rule, cuts, total, wrong < FAILURES_MOST);
            tried++;
        } while (next_split(cuts, ranks, total));
    }
    if (coll_rank(comm) == 0) p->splits += tried;
    return wrong != 0;
}

/* All splits of up to `most` leaves into runs of up to RANKS_MOST ranks, each with a rule drawn for it; or a part of them. */
static void test_splits(const char *world, int most, int part, int parts)
{
    plan p = { .world = world, .seed = support_random(&state), .most = most, .part = part, .parts = parts };

    prepare_rules(p.seed);
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++) CHECK(support_run(world, ranks, run_splits, &p) == 0, "%s", world);
    printf("%s: %ld splits of up to %d leaves into up to %d runs\n", world, p.splits, most, RANKS_MOST);
    free_rules();
}

/* ---- >>random: more ranks and leaves, every form of a call ---- */

enum { MANY_RANKS = 64, SAMPLES = 24, WORK_MOST = 60000 };

typedef enum style { STYLE_RUN, STYLE_START, STYLE_PREPARED, STYLES } style;

/* A case: cuts of the leaves, and some reals of the result. */
typedef struct random_case {
    const leaves_rule *rule;
    uint64_t seed;
    int      ranks, total, cuts[MANY_RANKS + 1];
    size_t   count, at[SAMPLES];
    uint64_t expected[SAMPLES];
    style    style;
    bool     in_place;
} random_case;

typedef struct random_plan { const char *world; const random_case *cases; int count; } random_plan;

static int compare_ints(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Runs: equal ones, powers of two in falling order and the rest, or any, of which some are empty. */
static void draw_cuts(random_case *c)
{
    const int way = (int)(support_random(&state) % 4), ranks = c->ranks;
    int left = c->total;

    c->cuts[0] = 0, c->cuts[ranks] = c->total;
    for (int i = 1; i < ranks; i++) {
        int part = 1;
        while (way == 1 && 2 * part * (ranks - i + 1) <= 2 * left) part *= 2;
        left -= part < left ? part : left;
        c->cuts[i] = way == 0 ? c->total * i / ranks : way == 1 ? c->total - left
                   : (int)(support_random(&state) % (unsigned)(c->total + 1));
    }
    qsort(c->cuts, (size_t)ranks + 1, sizeof *c->cuts, compare_ints);
}

/* Some reals of the result of a case. */
static void expect_result(random_case *c)
{
    const size_t reals = c->count * leaves_reals(c->rule);
    const model_type t = model_type_of(c->rule->type);

    for (int k = 0; k < SAMPLES && reals; k++) {
        double values[LEAVES_MOST];
        c->at[k] = k == 0 ? reals - 1 : support_random(&state) % reals;
        for (int i = 0; i < c->total; i++)
            values[i] = model_value(&t.part, leaves_real(c->rule, c->seed, (uint64_t)i, c->at[k]));
        c->expected[k] = leaves_finish(c->rule, leaves_sum(c->rule, values, (uint64_t)c->total), (uint64_t)c->total);
    }
}

static void draw_case(random_case *c, int ranks)
{
    static const size_t counts[] = { 1, 2, 33, 500, 3001, 20000 };
    const uint64_t random = support_random(&state);

    *c = (random_case){ .rule = &leaves_rules[random % LEAVES_FLOATS], .seed = support_random(&state), .ranks = ranks,
                        .style = (style)(random >> 16) % STYLES, .in_place = random >> 24 & 1 };
    c->total = 1 + (int)((random >> 32) % (random >> 20 & 3 ? 60 : 1000));
    c->count = counts[(random >> 8) % (sizeof counts / sizeof *counts)];
    while (c->count * (size_t)c->total > WORK_MOST) c->count = c->count / 2 + 1, c->total -= c->count <= 2 ? c->total / 2 : 0;
    draw_cuts(c);
    expect_result(c);
}

/* The nodes of a run, by coll_sum_... or the oracle; the memory of the latter is returned. */
static coll_status bring(const random_case *c, int first, int end, coll_sum **sum, coll_call *call, unsigned char **memory)
{
    const size_t bytes = c->count * model_type_of(c->rule->type).size;
    coll_status status = COLL_OK;

    const bool is_given = c->rule->accumulate || c->rule->flags & COLL_REPRODUCIBLE;

    *memory = support_need(malloc(is_given ? c->count * 8 * (size_t)(end - first + 24) : bytes));
    if (is_given) {
        (void)leaves_nodes(c->rule, c->seed, (uint64_t)first, (uint64_t)end, c->count, *memory);
        call->send = *memory, call->count = c->count, call->first_leaf = first, call->leaves = end > first ? end - first : -1;
        return COLL_OK;
    }
    status = coll_sum_begin(sum, first, c->count, c->rule->type, NULL);
    for (int i = first; i < end && !status; i++) {
        leaves_fill(c->rule, c->seed, (uint64_t)i, c->count, *memory);
        status = coll_sum_add(*sum, *memory);
    }
    return status ? status : coll_sum_end(*sum, call);
}

static coll_status carry_out(coll_comm *comm, const coll_call *call, style how, bool is_again)
{
    coll_request *request = NULL;
    coll_status status;

    if (how == STYLE_RUN) return coll_run(comm, call);
    status = how == STYLE_START ? coll_start(comm, call, &request) : coll_prepare(comm, call, &request);
    if (!status && how == STYLE_PREPARED) status = coll_restart(request);
    if (!status) status = coll_wait(request);
    if (!status && how == STYLE_PREPARED && is_again && !(status = coll_restart(request))) status = coll_wait(request);
    coll_request_free(request);
    return status;
}

static int run_cases(coll_comm *comm, void *arg)
{
    const random_plan *const p = arg;
    const int me = coll_rank(comm);
    int wrong = 0;

    for (int i = 0; i < p->count; i++) {
        const random_case *const c = &p->cases[i];
        const model_type t = model_type_of(c->rule->type);
        coll_call call = leaves_call(c->rule);
        unsigned char *memory = NULL, *const recv = support_need(malloc(c->count * t.size));
        coll_sum *sum = NULL;
        int off = 0;
        coll_status status = bring(c, c->cuts[me], c->cuts[me + 1], &sum, &call, &memory);
        if (status) CHECK(!status, "%s", coll_error(NULL));
        call.recv = recv;
        if (c->in_place && sum && sum->codec.direct && call.leaves > 0) call.recv = (void *)(uintptr_t)call.send;
        status = carry_out(comm, &call, c->style, !c->in_place);
        for (int k = 0; k < SAMPLES && !status; k++)
            off += support_load(&t.part, (unsigned char *)call.recv + c->at[k] * t.part.size) != c->expected[k];
        if (off || status) wrong++;
        check_result(comm, p->world, c->rule, c->cuts, c->count, status ? coll_error(comm) : off ? "other bits" : NULL);
        coll_sum_free(sum);
        free(recv);
        free(memory);
    }
    return wrong != 0;
}

static void test_random(const char *world, int ranks, int count)
{
    random_case *const cases = support_need(malloc((size_t)count * sizeof *cases));
    random_plan p = { world, cases, count };

    for (int i = 0; i < count; i++) draw_case(&cases[i], ranks);
    CHECK(support_run(world, ranks, run_cases, &p) == 0, "%s, %d ranks", world, ranks);
    free(cases);
}

/* ---- >>lists: small buffers are packed, a part for each type ---- */

enum { ITEMS_MOST = 20 };

/* The buffers of a list: the same leaves and rule, except for their types. */
typedef struct list_case { int count; random_case items[ITEMS_MOST]; } list_case;

typedef struct list_plan { const char *world; const list_case *lists; int count; } list_plan;

static bool have_equal_sums(const leaves_rule *a, const leaves_rule *b)
{
    return a->wire == b->wire && a->accumulate == b->accumulate && a->op == b->op && a->scale == b->scale && a->flags == b->flags;
}

static void draw_list(list_case *l, int ranks)
{
    static const size_t counts[] = { 0, 1, 2, 33, 500, 3001, 16000, 20000 };

    draw_case(&l->items[0], ranks);
    l->count = 1 + (int)(support_random(&state) % ITEMS_MOST);
    for (random_case *c = l->items + 1; c < l->items + l->count; c++) {
        *c = l->items[0];
        c->seed = support_random(&state), c->in_place = support_random(&state) & 1;
        c->count = counts[support_random(&state) % (sizeof counts / sizeof *counts)];
        while (c->count * (size_t)c->total > WORK_MOST) c->count /= 2;
        do c->rule = &leaves_rules[support_random(&state) % LEAVES_FLOATS]; while (!have_equal_sums(c->rule, l->items[0].rule));
        expect_result(c);
    }
}

/* The parts of a list of small buffers: one for each type; 0: it has long ones, or many. */
static int parts_of(const list_case *l)
{
    uint64_t types = 0;
    size_t bytes = 0;
    int parts = 0;

    for (const random_case *c = l->items; c < l->items + l->count; c++) {
        const size_t length = c->count * model_type_of(c->rule->type).size;
        if (length > 64 << 10 || (bytes += length) > 1 << 20) return 0;
        parts += !(types >> c->rule->type & 1);
        types |= UINT64_C(1) << c->rule->type;
    }
    return parts;
}

static int run_list(coll_comm *comm, const char *world, const list_case *l)
{
    const int me = coll_rank(comm);
    unsigned char *memory[ITEMS_MOST], *recv[ITEMS_MOST];
    coll_list_item items[ITEMS_MOST];
    coll_sum *sums[ITEMS_MOST] = { NULL };
    coll_call call = leaves_call(l->items[0].rule);
    coll_request *request = NULL;
    int wrong = 0;

    for (int i = 0; i < l->count; i++) {
        const random_case *const c = &l->items[i];
        coll_call one = leaves_call(c->rule);
        const coll_status status = bring(c, c->cuts[me], c->cuts[me + 1], &sums[i], &one, &memory[i]);
        CHECK(!status, "%s", coll_error(NULL));
        recv[i] = support_need(malloc(c->count * model_type_of(c->rule->type).size + 1));
        items[i] = (coll_list_item){ one.send, recv[i], one.count, one.type };
        if (c->in_place && sums[i] && sums[i]->codec.direct && one.leaves > 0) {
            items[i].recv = (void *)(uintptr_t)one.send;
            if (i & 1) items[i].send = COLL_IN_PLACE;
        }
        call.first_leaf = one.first_leaf, call.leaves = one.leaves;
    }
    call.kind = COLL_ALLREDUCE_LIST, call.type = 0, call.list = items, call.list_count = l->count;
    CHECK(!coll_prepare(comm, &call, &request), "%s", coll_error(comm));
    const int parts = request ? coll__list_of(request)->count : 0;
    CHECK(!parts_of(l) || parts == parts_of(l), "%s: %d buffers are %d parts and not %d", world, l->count, parts, parts_of(l));
    coll_request_free(request);
    const coll_status status = carry_out(comm, &call, l->items[0].style, false);
    for (int i = 0; i < l->count; i++) {
        const random_case *const c = &l->items[i];
        const model_type t = model_type_of(c->rule->type);
        int off = 0;
        for (int k = 0; k < SAMPLES && !status && c->count; k++)
            off += support_load(&t.part, (unsigned char *)items[i].recv + c->at[k] * t.part.size) != c->expected[k];
        wrong += off || status;
        check_result(comm, world, c->rule, c->cuts, c->count, status ? coll_error(comm) : off ? "other bits in a list" : NULL);
        coll_sum_free(sums[i]);
        free(recv[i]);
        free(memory[i]);
    }
    return wrong;
}

static int run_lists(coll_comm *comm, void *arg)
{
    const list_plan *const p = arg;
    int wrong = 0;

    for (int i = 0; i < p->count; i++) wrong += run_list(comm, p->world, &p->lists[i]);
    return wrong != 0;
}

static void test_lists(const char *world, int ranks, int count)
{
    list_case *const lists = support_need(malloc((size_t)count * sizeof *lists));
    list_plan p = { world, lists, count };

    for (int i = 0; i < count; i++) draw_list(&lists[i], ranks);
    CHECK(support_run(world, ranks, run_lists, &p) == 0, "%s, %d ranks", world, ranks);
    free(lists);
}

/* ---- >>long vectors, where ranks share memory ---- */

enum { TIMES = 12, LONG_COUNT = 300000 };         /* a call tries two kinds of stores five times each         */

/* A sum over several nodes of a rank sends no more than the plain sum does. */
static int run_long(coll_comm *comm, void *arg)
{
    const random_plan *const p = arg;
    const size_t count = p->cases[0].count;
    float *const x = support_need(calloc(count, sizeof *x));
    uint64_t sent[3], received;

    coll_traffic(comm, &sent[0], &received);
    int wrong = coll_allreduce(comm, COLL_IN_PLACE, x, count, COLL_F32, COLL_SUM) != COLL_OK;
    coll_traffic(comm, &sent[1], &received);
    free(x);
    wrong += run_cases(comm, arg);
    coll_traffic(comm, &sent[2], &received);
    const uint64_t plain = sent[1] - sent[0], leaves = sent[2] - sent[1];
    CHECK(leaves <= TIMES * plain + count, "%s, rank %d: %d sums over leaves sent %llu bytes, a plain one %llu", p->world,
          coll_rank(comm), TIMES, (unsigned long long)leaves, (unsigned long long)plain);
    return wrong != 0;
}

static void test_long(const char *world)
{
    random_case cases[TIMES] = { { .rule = &leaves_rules[0], .seed = support_random(&state), .ranks = 3, .total = 7,
                                   .cuts = { 0, 3, 6, 7 }, .count = LONG_COUNT } };
    random_plan p = { world, cases, TIMES };

    expect_result(&cases[0]);
    for (int i = 1; i < TIMES; i++) cases[i] = cases[0];
    CHECK(support_run(world, 3, run_long, &p) == 0, "%s: %d elements", world, LONG_COUNT);
}

int main(int argc, char **argv)
{
    const char *const list = argc > 1 ? argv[1] : NULL;
    static const int sizes[] = { 1, 2, 3, 5, 7, 9, 17, 33, MANY_RANKS };
    const int most = argc > 2 ? atoi(argv[2]) : 12, cases = (int)(12 * support_scale());
    int at = 0, part = 1, parts = 1;

    if (argc > 3 && (sscanf(argv[3], "%d/%d", &part, &parts) != 2 || part < 1 || part > parts)) return 2;

    state = support_seed();
    printf("seed %llu\n", (unsigned long long)state);
    support_limit(most > 16 || cases > 12 ? 10 * LIMIT_SECONDS : LIMIT_SECONDS, NULL);
    if (support_listed(list, "alone")) {
        test_words();
        test_memory();
        test_alone();
    }
    for (const char *world; (world = support_world_next(list, &at));) {
        test_splits(world, most, part, parts);
        if (part == 1 && (!strcmp(world, "threads") || !strcmp(world, "tcp-domain"))) test_long(world);
        for (size_t i = 0; part == 1 && i < sizeof sizes / sizeof *sizes; i++)
            if (strncmp(world, "tcp", 3) || sizes[i] <= 9) {
                test_random(world, sizes[i], cases);
                test_lists(world, sizes[i], sizes[i] > 9 ? 2 : cases / 2);
            }
    }
    return CHECK_DONE();
}
