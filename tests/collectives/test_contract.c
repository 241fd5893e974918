/* test_contract.c - the cells of the contract, one by one: every collective in every world, style and form, at every number of
 * ranks; every type with every operation; every algorithm by name; every kind of communicator.
 *
 *     test_contract [WORLD,...] [SIZE] [matrix]          COLL_TEST_VERBOSE: print the time after every size
 *
 * test_nccl_contract.c is this test with only the world "nccl", which has some sizes and no receive of more than is sent.
 *
 * Each call is checked against the model, guards and inputs included.  What has been tested is written into a table; a cell
 * of it that nothing has tested fails.  `matrix` prints the tables as docs/reference.md has them.
 */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/model.h"
#include "../support/model_calls.h"
#include "../support/cases.h"

#include <sched.h>

enum { SIZES_MOST = MODEL_RANKS_MOST, TCP_MOST = 9, SIZE_SECONDS = 240, FAILURES_MOST = 6, MESSAGES = 3,
       ROWS = MODEL_KIND_COUNT + MESSAGES, STALL_TIMEOUT_MS = 60000 };

/* ---- >>record: what has been tested, in memory shared by the processes of the cases ---- */

typedef enum column { THREADS, TCP, SIM, SPLIT, COLUMN_COUNT } column;     /* nccl: where threads would be      */
typedef enum mark { MARK_B = 1, MARK_N = 2, MARK_P = 4, MARK_I = 8 } mark;
typedef enum answer { ANSWER_YES = 1, ANSWER_NO = 2 } answer;

typedef struct record {
    unsigned rows[ROWS][COLUMN_COUNT];            /* marks                                                    */
    unsigned cells[MODEL_TYPE_COUNT + 1][COLL_USER + 1];      /* answers; the last type is COLL_BLOB          */
    unsigned algorithms[MODEL_KIND_COUNT][8];     /* worlds in which it has run, as bits                      */
    unsigned long calls;
} record;

static record *seen;
static const coll_kind message_kinds[MESSAGES] = { COLL_SEND, COLL_RECV, COLL_SENDRECV };

static void set(unsigned *at, unsigned bits) { __atomic_fetch_or(at, bits, __ATOMIC_RELAXED); }

static column column_of_world(void)
{
    return !strcmp(world, "threads") || model_is_gpu(world) ? THREADS : model_is_simulated(world) ? SIM : TCP;
}

static int row_of(coll_kind kind)
{
    for (int i = 0; i < MESSAGES; i++)
        if (message_kinds[i] == kind) return MODEL_KIND_COUNT + i;
    return (int)(model_kind_of(kind) - model_kinds);
}

static mark mark_of(model_style style)
{
    if (style == MODEL_PREPARED) return MARK_P;
    return style == MODEL_BLOCKING || style == MODEL_RUN ? MARK_B : MARK_N;
}

/* ---- >>ranks ---- */

/* One rank, in one communicator. */
typedef struct member {
    coll_comm  *comm;
    int         rank, size;
    bool        is_world;                         /* the communicator of coll_init                            */
    const char *where;                            /* which communicator                                       */
    model_graph graph;
    uint64_t    number;                           /* of the call, the same on all ranks                       */
    int        *failures;                         /* of this rank                                             */
} member;

static bool is_over(const member *m) { return *m->failures >= FAILURES_MOST; }

/* Count a call.  Failures are printed; after some, or when the communicator has ended, this rank stops. */
static void note(const member *m, coll_kind kind, const char *what, const char *why, unsigned marks)
{
    __atomic_add_fetch(&seen->calls, 1, __ATOMIC_RELAXED);
    CHECK(!*why, "%s, rank %d of %d, %s, call %llu: %s: %s", case_name, m->rank, m->size, m->where, (unsigned long long)m->number,
          what, why);
    if (*why) {
        *m->failures += coll_progress(m->comm) < 0 ? FAILURES_MOST : 1;
        return;
    }
    if (m->is_world) set(&seen->rows[row_of(kind)][column_of_world()], marks);
    else set(&seen->rows[row_of(kind)][SPLIT], marks);
}

/* Finish a request in one of the ways there are. */
static coll_status finish(coll_request *request, uint64_t how)
{
    coll_request *requests[2] = { request, NULL };
    coll_status status = COLL_OK;
    int index = -1;

    if (!request || how % 4 == 0) return coll_wait(request);
    if (how % 4 == 1) return coll_wait_all(2, requests);
    if (how % 4 == 2) status = coll_wait_any(2, requests, &index);
    while (how % 4 == 3 && (status = coll_test(request)) == COLL_PENDING) sched_yield();
    return status;
}

/* What is wrong with a status: "" where it is good, or must or (`may_refuse`) may be a refusal. */
static void evaluate_status(const member *m, const coll_call *call, coll_status status, bool may_refuse, char *why, size_t room)
{
    const there_lack lack = there_call(call);
    const bool is_refused = status == COLL_ERR_UNSUPPORTED;

    if (lack.count && !there_refuses(&lack, status, coll_error(m->comm)))
        snprintf(why, room, "left out by %s: %s: %.440s", lack.names[0], coll_status_text(status), coll_error(m->comm));
    else if (status && !lack.count && !(is_refused && may_refuse))
        snprintf(why, room, "%s: %.440s", coll_status_text(status), coll_error(m->comm));
}

/* Make one call and check it.  Returns the status. */
static coll_status run_call(member *m, const model_call *c, model_style style, model_form form, bool may_refuse)
{
    model_part *p = support_need(calloc(1, sizeof *p));
    coll_request *request = NULL;
    char what[400], name[300], why[600] = "";
    const unsigned in_place = form == MODEL_SAME || form == MODEL_IN_PLACE || form == MODEL_BLOCK ? MARK_I : 0;

    m->number++;
    model_part_make(p, c, m->rank, form);
    coll_status status = model_begin(m->comm, &p->call, style, &request);
    if (!status) status = finish(request, m->number);
    if (!status) model_part_evaluate(p, why, sizeof why);
    if (!status && !*why && style == MODEL_PREPARED) {            /* again, with other data                  */
        p->c.data_seed = support_mix(p->c.data_seed);
        model_part_fill(p);
        status = coll_restart(request);
        if (!status) status = finish(request, m->number + 1);
        if (!status) model_part_evaluate(p, why, sizeof why);
    }
    if (!*why) evaluate_status(m, &p->call, status, may_refuse, why, sizeof why);
    model_part_name(p, name, sizeof name);
    snprintf(what, sizeof what, "%s, asked for %s, %s", name, model_form_names[form], model_style_names[style]);
    note(m, c->kind, what, why, status ? 0 : (unsigned)mark_of(style) | in_place);
    coll_request_free(request);
    if (status >= 0 || status == COLL_ERR_UNSUPPORTED) {
        model_part_free(p);
        free(p);
    }
    return status;
}

/* The same, of a call that must be possible, where nothing of it is left out. */
static void run_defined(member *m, const model_call *c, model_style style, model_form form)
{
    (void)run_call(m, c, style, form, false);
}

/* ---- >>grid: collectives x counts x roots x styles x forms ---- */

static bool kind_has_form(const model_call *c, model_form form)
{
    for (int r = 0; r < c->size; r++)
        if (model_has_form(c, r, form)) return true;
    return false;
}

/* Types and operations go round with the calls; the full product of these two has its own part. */
static model_call call_of(const member *m, coll_kind kind, size_t count, int root, uint64_t variety)
{
    static const coll_op ops[] = { COLL_SUM, COLL_MAX, COLL_PROD, COLL_BXOR, COLL_MINLOC, COLL_USER, COLL_AVG, COLL_LOR };
    const model_kind *k = model_kind_of(kind);
    model_call c = { .kind = kind, .size = m->size, .root = root, .count = count, .graph = m->graph, .is_symmetric = true,
                     .list_count = 1 + (int)(variety % 7) };

    c.seed = c.data_seed = support_mix(support_seed() ^ support_mix(variety << 20 ^ (uint64_t)kind << 8 ^ (uint64_t)m->size));
    c.commutes = c.seed & 1;
    c.type = model_types[variety % MODEL_TYPE_COUNT].type;
    for (uint64_t i = variety; k->is_reducing && !there_type(c.type); i++) c.type = model_types[i % MODEL_TYPE_COUNT].type;
    for (uint64_t i = variety; k->is_reducing; i++) {
        c.op = ops[i % 8];
        const bool is_left = (c.op == COLL_USER && kind == COLL_ALLREDUCE_LIST) ||
                             (c.op == COLL_AVG && (kind == COLL_SCAN || kind == COLL_EXSCAN));
        if (!is_left && (kind == COLL_ALLREDUCE_LIST || model_cell_of(c.type, c.op) == MODEL_YES)) break;
    }
    if (!k->is_reducing && variety % 5 == 0) c.type = COLL_BLOB(13);
    return c;
}

static void run_kind(member *m, const model_kind *k, const size_t *counts, int count_count, bool all_roots)
{
    static const model_style styles[] = { MODEL_BLOCKING, MODEL_REQUEST, MODEL_PREPARED, MODEL_RUN, MODEL_START };
    const int last = m->size - 1, step = all_roots || last == 0 ? 1 : last;
    uint64_t variety = support_mix((uint64_t)k->kind) % 1000;

    for (int i = 0; i < count_count; i++) {
        for (int root = 0; root < (k->is_rooted ? m->size : 1); root += step) {
            for (int s = 0; s < 5; s++) {
                for (model_form form = MODEL_OUT; form < MODEL_FORM_COUNT; form++) {
                    const model_call c = call_of(m, k->kind, counts[i], root, variety++);
                    if (is_over(m)) return;
                    if (kind_has_form(&c, form)) run_defined(m, &c, styles[s], form);
                }
            }
        }
    }
}

static void run_kinds(member *m, bool is_full)
{
    const size_t n = (size_t)m->size * 5 + 1, all[] = { 0, 1, 3, 17, n }, few[] = { 3, n };

    m->graph = model_graph_make((uint64_t)m->size + 5, m->size);
    const coll_status status = model_graph_set(m->comm, &m->graph, m->rank);
    const bool is_right = COLL__HAS_NEIGHBOR ? status == COLL_OK
                        : status == COLL_ERR_UNSUPPORTED && there_says(coll_error(m->comm), THERE_NO_NEIGHBORS);
    note(m, COLL_NEIGHBOR_ALLGATHER, "coll_neighbors", is_right ? "" : coll_error(m->comm), 0);
    for (int k = 0; k < MODEL_KIND_COUNT; k++) {
        if (is_full) run_kind(m, &model_kinds[k], all, 5, m->size <= 5);
        else run_kind(m, &model_kinds[k], few, 2, false);
    }
}

/* ---- >>messages ---- */

/* One message round the ring; the first rank sends first, so that blocking calls match.  Returns an error text. */
static coll_status send_round(const member *m, model_style style, const coll_call *out, const coll_call *in)
{
    const coll_call *first = m->rank ? in : out, *second = m->rank ? out : in;
    coll_request *requests[2] = { NULL, NULL };
    coll_status status = model_begin(m->comm, first, style, &requests[0]);

    if (!status) status = model_begin(m->comm, second, style, &requests[1]);
    if (!status) status = coll_wait_all(2, requests);
    for (int again = 0; !status && style == MODEL_PREPARED && again < 2; again++) {
        status = coll_restart(requests[again]);
        if (!status) status = coll_restart(requests[1 - again]);
        if (!status) status = coll_wait_all(2, requests);
    }
    coll_request_free(requests[0]);
    coll_request_free(requests[1]);
    return status;
}

static coll_status both_at_once(const member *m, model_style style, const coll_call *both)
{
    coll_request *request = NULL;
    coll_status status = model_begin(m->comm, both, style, &request);

    if (!status) status = coll_wait(request);
    if (!status && style == MODEL_PREPARED) status = coll_restart(request);
    if (!status) status = coll_wait(request);
    coll_request_free(request);
    return status;
}

static void run_message(member *m, size_t count, model_style style, bool at_once)
{
    const int right = (m->rank + 1) % m->size, left = (m->rank + m->size - 1) % m->size, tag = (int)(++m->number % 1000);
    const size_t room = count + (model_is_gpu(world) ? 0 : 2);
    uint32_t *sent = support_message_make(m->rank, right, tag, count);
    uint32_t *expected = support_message_make(left, m->rank, tag, count);
    support_buffer send = support_buffer_make(count * sizeof *sent, 8), recv = support_buffer_make(room * sizeof *sent, 4);
    void *const from = support_place(send.data), *const to = support_place(recv.data);
    const coll_call out = { .kind = COLL_SEND, .send = from, .count = count, .type = COLL_U32, .peer = right, .tag = tag };
    const coll_call in = { .kind = COLL_RECV, .recv = to, .count = room, .type = COLL_U32, .peer = left, .tag = tag };
    const coll_call both = { .kind = COLL_SENDRECV, .send = from, .recv = to, .count = count, .recv_count = room,
                             .type = COLL_U32, .peer = right, .source = left, .tag = tag };
    ptrdiff_t at = 0;
    const char *why = "";

    memcpy(send.data, sent, count * sizeof *sent);
    support_seal(&send);
    support_seal(&recv);
    const coll_status status = at_once ? both_at_once(m, style, &both) : send_round(m, style, &out, &in);
    support_expect(&recv, 0, expected, count * sizeof *expected);
    if (status) why = coll_error(m->comm);
    else if (!support_as_expected(&recv, &at)) why = "what came is wrong";
    else if (!support_as_expected(&send, &at)) why = "what was sent has changed";
    note(m, at_once ? COLL_SENDRECV : COLL_SEND, model_style_names[style], why, status ? 0 : (unsigned)mark_of(style));
    if (!at_once) note(m, COLL_RECV, model_style_names[style], why, status ? 0 : (unsigned)mark_of(style));
    support_buffer_free(&send);
    support_buffer_free(&recv);
    free(sent);
    free(expected);
}

static void run_messages(member *m)
{
    const size_t counts[] = { 0, 1, 17, 30011 };

    for (int i = 0; i < 4; i++) {
        for (model_style style = MODEL_BLOCKING; style < MODEL_STYLE_COUNT; style++) {
            const bool is_long = counts[i] > 1000 || model_is_gpu(world);
            const bool waits = m->size == 1 && is_long && (style == MODEL_BLOCKING || style == MODEL_RUN);
            if (!is_over(m) && !waits) run_message(m, counts[i], style, false);   /* to itself, a long one waits  */
            if (!is_over(m)) run_message(m, counts[i], style, true);
        }
    }
}

/* ---- >>cells: types x operations, and what else a reduction has ---- */

static void run_cell(member *m, coll_kind kind, int t, coll_op op)
{
    const coll_type type = t < MODEL_TYPE_COUNT ? model_types[t].type : COLL_BLOB(7);
    const bool is_scan_average = op == COLL_AVG && (kind == COLL_SCAN || kind == COLL_EXSCAN);
    const model_cell cell = is_scan_average ? MODEL_OPEN : model_cell_of(type, op);
    model_call c = { .kind = kind, .size = m->size, .count = 5, .type = type, .op = op, .is_symmetric = true };
    char why[600] = "", name[300];

    c.seed = c.data_seed = support_mix(++m->number ^ support_seed() << 32);
    c.commutes = m->number & 1;
    if (cell == MODEL_YES && model_types[t % MODEL_TYPE_COUNT].class == MODEL_FLOAT && m->number & 2) {
        c.data = MODEL_RANDOM;
        c.flags = COLL_DETERMINISTIC;
    }
    if (cell == MODEL_YES) {
        run_defined(m, &c, (model_style)(m->number % MODEL_STYLE_COUNT), MODEL_OUT);
        set(&seen->cells[t][op], ANSWER_YES);     /* or what the switches say                                 */
        return;
    }
    model_part *p = support_need(calloc(1, sizeof *p));
    model_part_make(p, &c, m->rank, MODEL_OUT);
    const coll_status status = coll_run(m->comm, &p->call);
    const there_lack lack = there_call(&p->call);
    if (cell == MODEL_NO && status != COLL_ERR_UNSUPPORTED) snprintf(why, sizeof why, "status %d, not UNSUPPORTED", (int)status);
    else if (status && status != COLL_ERR_UNSUPPORTED) snprintf(why, sizeof why, "status %d", (int)status);
    else if (status && !there_says(coll_error(m->comm), coll_op_name(op)) && !there_refuses(&lack, status, coll_error(m->comm)))
        snprintf(why, sizeof why, "the sentence does not name the operation: %s", coll_error(m->comm));
    if (!is_scan_average) set(&seen->cells[t][op], status ? ANSWER_NO : ANSWER_YES);
    model_part_name(p, name, sizeof name);
    note(m, kind, name, why, 0);
    model_part_free(p);
    free(p);
}

static void run_cells(member *m)
{
    for (int k = 0; k < MODEL_KIND_COUNT; k++) {
        if (!model_kinds[k].is_reducing || model_kinds[k].kind == COLL_ALLREDUCE_LIST) continue;
        for (int t = 0; t <= MODEL_TYPE_COUNT; t++)
            for (coll_op op = COLL_SUM; op <= COLL_USER && !is_over(m); op++) run_cell(m, model_kinds[k].kind, t, op);
    }
}

/* Wire types, scale, flags: with every kind that reduces, special values included. */
static void run_numbers(member *m)
{
    static const coll_type wires[] = { 0, COLL_F16, COLL_BF16 }, small[] = { COLL_F16, COLL_BF16, COLL_F8E4M3, COLL_F8E5M2 };

    for (int k = 0; k < MODEL_KIND_COUNT; k++) {
        if (!model_kinds[k].is_reducing || model_kinds[k].kind == COLL_ALLREDUCE_LIST) continue;
        for (int i = 0; i < 24 && !is_over(m); i++) {
            model_call c = { .kind = model_kinds[k].kind, .size = m->size, .count = 40 };
            c.type = i % 2 ? small[i / 2 % 4] : COLL_F32;
            c.seed = c.data_seed = support_mix(++m->number ^ support_seed() << 32);
            c.op = i % 3 == 0 ? COLL_SUM : i % 3 == 1 ? COLL_PROD : COLL_MIN;
            c.flags = COLL_DETERMINISTIC | (i % 4 == 3 && c.type != COLL_BF16 ? COLL_SATURATE : 0);
            c.data = c.flags & COLL_SATURATE ? MODEL_RANDOM : (model_data)(i / 3 % 3);
            c.wire = c.type == COLL_F32 ? wires[i / 4 % 3] : 0;
            if (c.op == COLL_SUM && c.data != MODEL_SPECIAL) c.scale = i % 5 == 0 ? 0.5 : -2;
            run_defined(m, &c, (model_style)(i % MODEL_STYLE_COUNT), MODEL_OUT);
        }
    }
}

/* Sums that do not depend on the order, of all types that can be summed, without a wire and over each wire. */
static void run_reproducible(member *m)
{
    static const coll_type types[][2] = { { COLL_F32, 0 }, { COLL_F64, 0 }, { COLL_BF16, 0 }, { COLL_F16, 0 }, { COLL_C64, 0 },
        { COLL_C128, 0 }, { COLL_F8E4M3, 0 }, { COLL_F8E5M2, 0 }, { COLL_F32, COLL_BF16 }, { COLL_F64, COLL_F32 },
        { COLL_F64, COLL_F16 }, { COLL_F16, COLL_BF16 }, { COLL_BF16, COLL_F16 }, { COLL_F8E4M3, COLL_F8E5M2 }, { COLL_I32, 0 } };

    for (int k = 0; k < MODEL_KIND_COUNT; k++) {
        const coll_kind kind = model_kinds[k].kind;
        if (!model_kinds[k].is_reducing || kind == COLL_ALLREDUCE_LIST) continue;
        for (int i = 0; i < 30 && !is_over(m); i++) {
            model_call c = { .kind = kind, .size = m->size, .count = i % 7 == 0 ? 1100 : 33, .type = types[i % 15][0],
                             .wire = types[i % 15][1], .flags = COLL_REPRODUCIBLE | COLL_DETECT_OVERFLOW };
            const bool is_complex = c.type == COLL_C64 || c.type == COLL_C128;
            c.seed = c.data_seed = support_mix(++m->number ^ support_seed() << 32);
            c.op = i % 2 && kind != COLL_SCAN && kind != COLL_EXSCAN ? COLL_AVG : COLL_SUM;
            c.data = is_complex || i % 4 == 0 ? MODEL_RANDOM : MODEL_SPECIAL;
            if (c.type != COLL_I32 && i % 5 == 0) c.scale = -0.375;
            run_defined(m, &c, (model_style)(i % MODEL_STYLE_COUNT), i % 3 ? MODEL_OUT : MODEL_IN_PLACE);
        }
    }
}

/* A call after another of its kind that calculates differently: nothing cached of that one is used for this one. */
static void run_alternating(member *m)
{
    static const struct { coll_type type, wire; coll_op op; unsigned flags; double scale; } ways[] = {
        { COLL_F32, 0, COLL_SUM, COLL_DETERMINISTIC, 0 }, { COLL_F32, 0, COLL_SUM, COLL_REPRODUCIBLE, 0 },
        { COLL_F32, COLL_BF16, COLL_SUM, COLL_DETERMINISTIC, 0 }, { COLL_F32, 0, COLL_SUM, COLL_DETERMINISTIC, 0.375 },
        { COLL_F32, 0, COLL_PROD, COLL_DETERMINISTIC, 0 }, { COLL_F16, 0, COLL_PROD, COLL_DETERMINISTIC, 0 },
        { COLL_F16, 0, COLL_PROD, COLL_DETERMINISTIC | COLL_SATURATE, 0 }, { COLL_F32, 0, COLL_MAX, 0, 0 },
        { COLL_I32, 0, COLL_SUM, 0, 0 }, { COLL_F16, 0, COLL_SUM, COLL_REPRODUCIBLE, 0 },
    };
    enum { WAYS = sizeof ways / sizeof *ways };

    for (int k = 0; k < MODEL_KIND_COUNT; k++) {
        if (!model_kinds[k].is_reducing || model_kinds[k].kind == COLL_ALLREDUCE_LIST) continue;
        for (int i = 0; i < 2 * WAYS * WAYS && !is_over(m); i++) {
            const int way = i % 2 ? i / 2 / WAYS : i / 2 % WAYS;          /* each before each                         */
            model_call c = { .kind = model_kinds[k].kind, .size = m->size, .count = 70, .type = ways[way].type,
                             .wire = ways[way].wire, .op = ways[way].op, .flags = ways[way].flags, .scale = ways[way].scale };
            c.data = c.flags & COLL_SATURATE || c.scale != 0 ? MODEL_RANDOM : MODEL_SPECIAL;
            c.seed = c.data_seed = support_mix(++m->number ^ support_seed() << 32);
            run_defined(m, &c, i % 3 ? MODEL_RUN : MODEL_BLOCKING, MODEL_OUT);
        }
    }
}

/* ---- >>algorithms: each by name; one that does not fit is refused on all ranks ---- */

static void run_algorithms(member *m)
{
    static const char *const numbers[] = { "", ":2", ":3", ":8" };
    const size_t counts[] = { 0, 1, 17, (size_t)m->size * 5 + 1, 2003 };
    static const unsigned bits[] = { 1, 2, 4 };

    for (int k = 0; k < MODEL_KIND_COUNT; k++) {
        for (int i = 0; i < 8 && model_kinds[k].algorithms[i]; i++) {
            for (int j = 0; j < 20 && !is_over(m); j++) {
                char name[40];
                model_call c = call_of(m, model_kinds[k].kind, counts[j % 5], j % m->size, m->number);
                snprintf(name, sizeof name, "%s%s", model_kinds[k].algorithms[i], numbers[j / 5]);
                c.algorithm = name;
                const model_form form = j % 3 ? MODEL_OUT : MODEL_IN_PLACE;
                const coll_status status = run_call(m, &c, (model_style)(j % MODEL_STYLE_COUNT), form, true);
                if (!status) set(&seen->algorithms[k][i], bits[column_of_world()]);
            }
        }
    }
}

/* ---- >>communicators ---- */

/* What coll_split, coll_dup or coll_create makes of this one, and its calls. */
static void run_derived(member *m, coll_comm *comm, const char *where)
{
    if (!comm) return;
    member d = { .comm = comm, .rank = coll_rank(comm), .size = coll_size(comm), .where = where, .number = m->number,
                 .failures = m->failures };
    run_kinds(&d, d.size <= 3);
    run_messages(&d);
    const coll_status status = coll_free(comm);
    CHECK(status == COLL_OK, "%s, %s: coll_free gives %d", case_name, where, (int)status);
}

static void check_made(member *m, coll_status status, const char *what)
{
    note(m, COLL_BARRIER, what, status ? coll_error(m->comm) : "", 0);
}

static void run_communicators(member *m)
{
    int ranks[SIZES_MOST], n = 0;
    coll_comm *copy = NULL, *half = NULL, *some = NULL, *inner = NULL;
    const int odd = m->rank % 2;

    check_made(m, coll_dup(m->comm, &copy), "coll_dup");
    if (is_over(m)) return;
    check_made(m, coll_split(copy, odd && m->rank == 3 ? COLL_COLOR_NONE : odd, -m->rank, &half), "coll_split");
    for (int r = m->size - 1; r >= 0; r--)
        if (r != 1 || m->size < 3) ranks[n++] = r;
    if (m->rank != 1 || m->size < 3) check_made(m, coll_create(copy, ranks, n, 7, &some), "coll_create");
    if (is_over(m)) return;
    if (some) CHECK(coll_size(some) == n && coll_world_rank(some, 0) == m->size - 1, "%s: other ranks in it", case_name);
    if (half) check_made(m, coll_dup(half, &inner), "coll_dup of a split");
    run_derived(m, half, "split");
    run_derived(m, copy, "dup");
    run_derived(m, inner, "dup of a split");
    run_derived(m, some, "create, in another order");
}

/* ---- >>worlds ---- */

static int work(coll_comm *comm, void *arg)
{
    int failures = 0;
    member m = { .comm = comm, .rank = coll_rank(comm), .size = coll_size(comm), .is_world = true, .where = "world",
                 .failures = &failures };

    (void)arg;
    run_kinds(&m, model_is_gpu(world) ? m.size == 2 : m.size <= 5
              || (column_of_world() == THREADS && (m.size <= TCP_MOST || m.size == SIZES_MOST)));
    run_messages(&m);
    if (m.size <= 3 || m.size == 5) run_cells(&m);
    if (m.size <= 9) run_numbers(&m);
    if (m.size <= 9) run_reproducible(&m);
    if (m.size <= 3 || m.size == 5) run_alternating(&m);
    if (m.size <= 9) run_algorithms(&m);
    if (m.size <= 9 || m.size == SIZES_MOST) run_communicators(&m);
    return failures;
}

static void size_case(const void *arg)
{
    const coll_config config = { .stall_timeout_ms = STALL_TIMEOUT_MS };
    const int size = *(const int *)arg, failed = model_run(world, size, &config, work, NULL);

    CHECK(failed == 0, "%s: ranks gave up", case_name);
}

static void run_here(int only_size)
{
    const int most = column_of_world() == TCP ? TCP_MOST : model_is_gpu(world) ? 5 : SIZES_MOST;

    for (int size = 1; size <= most; size++) {
        const double begin = support_seconds();
        char name[40];
        if (only_size && size != only_size) continue;
        if (model_is_gpu(world) && size == 4) continue;
        snprintf(name, sizeof name, "%d ranks", size);
        run_case_within(SIZE_SECONDS, size_case, &size, name);
        if (getenv("COLL_TEST_VERBOSE")) printf("  %s, %s: %.1f s\n", world, name, support_seconds() - begin);
    }
}

/* ---- >>tables ---- */

/* What a cell of the first table must hold. */
static unsigned marks_due(int row)
{
    const unsigned always = MARK_B | MARK_N | MARK_P;
    const model_call c = { .kind = row < MODEL_KIND_COUNT ? model_kinds[row].kind : COLL_SEND, .size = 2, .is_symmetric = true };

    if (row >= MODEL_KIND_COUNT) return always;
    if (!there_kind(c.kind)) return 0;
    for (model_form form = MODEL_SAME; form <= MODEL_BLOCK; form++)
        if (kind_has_form(&c, form)) return always | MARK_I;
    return always;
}

static void print_rows(bool prints, const char *const *refusals)
{
    const char *const heads[COLUMN_COUNT] = { model_is_gpu(*model_worlds) ? "nccl" : "threads", "tcp", "sim",
                                              "split communicator" };
    static const char letters[] = "BNPI";

    if (prints) printf("\n| collective | threads | tcp | sim | split communicator |\n| --- | --- | --- | --- | --- |\n");
    for (int row = 0; row < ROWS; row++) {
        const char *name = coll_kind_name(row < MODEL_KIND_COUNT ? model_kinds[row].kind : message_kinds[row - MODEL_KIND_COUNT]);
        if (prints) printf("| %s |", name);
        for (int i = 0; i < COLUMN_COUNT; i++) {
            const unsigned due = marks_due(row), has = seen->rows[row][i] & due;
            CHECK(refusals[i] || has == due, "%s, %s: not everything was tested: %x of %x", name, heads[i], has, due);
            if (!prints) continue;
            if (refusals[i]) printf(" %s", refusals[i]);
            for (int k = 0; k < 4 && !refusals[i]; k++)
                if (due >> k & 1) printf(" %c", has >> k & 1 ? letters[k] : '-');
            printf(" |");
        }
        if (prints) printf("\n");
    }
    if (prints) printf("\nB blocking, N non-blocking, P prepared, I in place.\n");
}

static void print_cells(bool prints)
{
    if (prints) printf("\n| type |");
    for (coll_op op = COLL_SUM; op <= COLL_USER && prints; op++) printf(" %s |", coll_op_name(op));
    if (prints) printf("\n| --- |");
    for (coll_op op = COLL_SUM; op <= COLL_USER && prints; op++) printf(" - |");
    for (int t = 0; t <= MODEL_TYPE_COUNT; t++) {
        const coll_type type = t < MODEL_TYPE_COUNT ? model_types[t].type : COLL_BLOB(7);
        if (prints) printf("\n| %s |", model_type_of(type).name);
        for (coll_op op = COLL_SUM; op <= COLL_USER; op++) {
            const unsigned got = seen->cells[t][op];
            CHECK(got == ANSWER_YES || got == ANSWER_NO, "%s %s: %s", model_type_of(type).name, coll_op_name(op),
                  got ? "is refused by some collectives, not by all" : "was not tested");
            if (prints) printf(" %s |", got == ANSWER_YES ? "x" : got == ANSWER_NO ? "" : "?");
        }
    }
    if (prints) printf("\n");
}

static void check_algorithms(unsigned worlds)
{
    for (int k = 0; k < MODEL_KIND_COUNT; k++)
        for (int i = 0; i < 8 && model_kinds[k].algorithms[i]; i++)
            CHECK(seen->algorithms[k][i] == (there_kind(model_kinds[k].kind) ? worlds : 0),
                  "algorithm %s of %s has run in the worlds %x of %x (threads 1, tcp 2, sim 4)", model_kinds[k].algorithms[i],
                  coll_kind_name(model_kinds[k].kind), seen->algorithms[k][i], worlds);
}

/* Names, sizes, and the model's own table agree with the library's. */
static void check_types(void)
{
    for (int i = 0; i < MODEL_TYPE_COUNT; i++)
        CHECK(coll_type_size(model_types[i].type) == model_types[i].size &&
              !strcmp(coll_type_name(model_types[i].type), model_types[i].name), "%s is called %s and has %zu bytes",
              model_types[i].name, coll_type_name(model_types[i].type), coll_type_size(model_types[i].type));
    CHECK(coll_type_size(COLL_BLOB(7)) == 7 && coll_type_size(COLL_BLOB(0)) == 0 && coll_type_size(0) == 0 &&
          coll_type_size(COLL_I64_I64 + 1) == 0, "sizes of BLOBs and of no types");
}

int main(int argc, char **argv)
{
    const bool prints = argc > 1 && !strcmp(argv[argc - 1], "matrix");
    const int given = argc - prints;
    const char *list = given > 1 ? argv[1] : NULL, *refusals[COLUMN_COUNT] = { "not run", "not run", "not run", NULL };
    const int size = given > 2 ? atoi(argv[2]) : 0;
    unsigned ran = 0;

    cases_begin();
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) return perror("mmap"), 1;
    check_types();
    for (int w = 0; w < MODEL_WORLD_COUNT; w++) {
        if (!support_listed(list, model_worlds[w])) continue;
        const char *refusal = model_refusal(model_worlds[w]);
        world = model_worlds[w];
        if (refusal) printf("%s: skipped: %s\n", world, refusal);
        if (refusal) continue;
        refusals[column_of_world()] = NULL;
        ran |= 1u << column_of_world();
        run_here(size);
    }
    if (!size) print_rows(prints, refusals);
    if (!size) print_cells(prints);
    if (!size) check_algorithms(ran);
    printf("test_contract: %lu calls x ranks\n", seen->calls);
    return CHECK_DONE();
}
