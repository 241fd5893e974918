/* test_collectives.c - every collective, type, operation and form against an oracle of the test's own, bit for bit.
 *
 *     test_collectives [WORLD,...] [SIZE] [CASE]           COLL_TEST_SEED: other cases; COLL_TEST_SCALE: more or fewer;
 *                                                          COLL_TEST_VERBOSE: print the time after every size
 *
 * The data of a case is a function of (seed, size, case, rank, index), so each rank can calculate all inputs, and
 * the oracle computes from that what the manual promises: the pairwise tree over the rank numbers, one rounding,
 * canonical NaNs.  Every rank compares its whole buffers, guards and inputs included, with the one expected image.
 * Equal bits on all ranks, on all transports and for all algorithms follow from that.
 *
 * Cases are numbered through the full product of a world and a size; where the product is too large, a seeded sample
 * is run.  The number does not depend on the sample, so a single failing case can be run again.
 */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"

#include <sched.h>

enum { SIZE_MAX_TESTED = 17, FAILURES_MAX = 5, BATCH_MAX = 8, STALL_TIMEOUT_MS = 60000, LIMIT_SECONDS = 900,
       SLOW_ALLOWED = 30 };

#define SLOW_SECONDS 0.9

#include "oracle.h"

/* ---- >>calls: the same case in every style ---- */

static coll_status call_plain(const test_rank *r, const trial *t)
{
    const test_case *c = &t->c;
    const coll_type type = c->type->type;

    switch (c->kind) {
    case COLL_BARRIER:        return coll_barrier(r->comm);
    case COLL_BROADCAST:      return coll_broadcast(r->comm, t->recv_at, c->count, type, c->root);
    case COLL_REDUCE:         return coll_reduce(r->comm, t->send_at, t->recv_at, c->count, type, c->op, c->root);
    case COLL_REDUCE_SCATTER: return coll_reduce_scatter(r->comm, t->send_at, t->recv_at, c->count, type, c->op);
    case COLL_ALLGATHER:      return coll_allgather(r->comm, t->send_at, t->recv_at, c->count, type);
    case COLL_SENDRECV:
        return coll_sendrecv(r->comm, t->send_at, c->count, dest_of(r, c), t->recv_at, t->room, source_of(r, c), type,
                             tag_of(c));
    default:
        if (!c->wire) return coll_allreduce(r->comm, t->send_at, t->recv_at, c->count, type, c->op);
        return coll_allreduce_mixed(r->comm, t->send_at, t->recv_at, c->count, type, c->wire->type, c->op);
    }
}

static coll_status call_request(const test_rank *r, trial *t)
{
    const test_case *c = &t->c;
    const coll_type type = c->type->type;
    coll_request **out = &t->requests[0];

    switch (c->kind) {
    case COLL_BARRIER:        return coll_ibarrier(r->comm, out);
    case COLL_BROADCAST:      return coll_ibroadcast(r->comm, t->recv_at, c->count, type, c->root, out);
    case COLL_REDUCE:         return coll_ireduce(r->comm, t->send_at, t->recv_at, c->count, type, c->op, c->root, out);
    case COLL_REDUCE_SCATTER: return coll_ireduce_scatter(r->comm, t->send_at, t->recv_at, c->count, type, c->op, out);
    case COLL_ALLGATHER:      return coll_iallgather(r->comm, t->send_at, t->recv_at, c->count, type, out);
    case COLL_SENDRECV:
        return coll_isendrecv(r->comm, t->send_at, c->count, dest_of(r, c), t->recv_at, t->room, source_of(r, c), type,
                              tag_of(c), out);
    default:
        if (!c->wire) return coll_iallreduce(r->comm, t->send_at, t->recv_at, c->count, type, c->op, out);
        return coll_iallreduce_mixed(r->comm, t->send_at, t->recv_at, c->count, type, c->wire->type, c->op, out);
    }
}

/* A message as two requests. */
static coll_status call_pair(const test_rank *r, trial *t)
{
    const test_case *c = &t->c;
    const coll_type type = c->type->type;
    const int tag = tag_of(c);
    const coll_status status = coll_irecv(r->comm, t->recv_at, t->room, type, source_of(r, c), tag, &t->requests[0]);

    return status ? status : coll_isend(r->comm, t->send_at, c->count, type, dest_of(r, c), tag, &t->requests[1]);
}

static coll_call descriptor_of(const test_rank *r, const trial *t)
{
    const test_case *c = &t->c;
    coll_call call = {
        .kind = c->kind, .send = t->send_at, .recv = t->recv_at, .count = c->count, .type = c->type->type, .op = c->op,
        .wire = c->wire ? c->wire->type : 0, .root = c->root, .algorithm = algorithm_of(c), .name = "a tested call",
        .flags = c->row->is_reducing ? COLL_DETERMINISTIC : 0
    };

    if (c->kind == COLL_BARRIER) return (coll_call){ .kind = c->kind, .algorithm = call.algorithm };
    if (c->kind == COLL_BROADCAST) call.send = NULL;
    if (c->kind == COLL_SENDRECV) {
        call.root = 0;
        call.peer = dest_of(r, c);
        call.source = source_of(r, c);
        call.recv_count = t->room;
        call.tag = tag_of(c);
    }
    return call;
}

/* The short calls cannot request the canonical order of additions: if that matters, coll_run replaces them. */
static style style_of(const test_case *c)
{
    const bool rounds = c->row->is_reducing && c->type->fraction_bits && c->op != COLL_MIN && c->op != COLL_MAX;

    if (!rounds || (c->style != STYLE_PLAIN && c->style != STYLE_REQUEST)) return c->style;
    return c->style == STYLE_PLAIN ? STYLE_RUN : STYLE_START;
}

/* Begin; a blocking style is over afterwards. */
static void trial_start(test_rank *r, trial *t)
{
    const coll_call call = descriptor_of(r, t);
    const there_lack lack = there_call(&call);

    t->lacks = lack.count > 0;
    if (t->c.kind == COLL_BARRIER) {
        if (r->rank == t->c.root) sched_yield();
        t->barrier = r->barriers++;
        __atomic_add_fetch(&r->world->entered, 1, __ATOMIC_RELAXED);
    }
    switch (style_of(&t->c)) {
    case STYLE_PLAIN:   t->status = call_plain(r, t); break;
    case STYLE_REQUEST: t->status = call_request(r, t); break;
    case STYLE_PAIR:    t->status = call_pair(r, t); break;
    case STYLE_RUN:     t->status = coll_run(r->comm, &call); break;
    case STYLE_START:   t->status = coll_start(r->comm, &call, &t->requests[0]); break;
    }
    t->is_known = t->lacks && there_refuses(&lack, t->status, coll_error(r->comm));
}

static void note_status(trial *t, coll_status status)
{
    if (status && !t->status) t->status = status;
}

/* Finish the requests of a single trial. */
static void trial_wait(trial *t)
{
    for (int i = 0; i < 2; i++) {
        coll_status status = COLL_OK;
        if (!t->requests[i]) continue;
        if (t->c.style == STYLE_START) {
            while ((status = coll_test(t->requests[i])) == COLL_PENDING) sched_yield();
        } else {
            status = coll_wait(t->requests[i]);
        }
        note_status(t, status);
    }
}

/* ---- >>judgement: one check per case and rank ---- */

/* All that is needed to understand and to repeat a failing case; `what` went wrong. */
static void describe(const test_rank *r, const test_case *c, const char *what, char *text, size_t length)
{
    const test_world *w = r->world;

    snprintf(text, length,
             "%s, rank %d of %d: %s %s%s%s %s, count %zu, root %d, form %s, style %s, algorithm %s, data %s: %s\n"
             "    replay: COLL_TEST_SEED=%llu test_collectives %s %d %llu",
             w->name, r->rank, r->size, coll_kind_name(c->kind), c->type->name, c->wire ? " over " : "",
             c->wire ? c->wire->name : "", coll_op_name(c->op), c->count, c->root, form_names[c->form],
             style_names[c->style], c->algorithm == NO_ALGORITHM ? "-" : algorithm_of(c), data_names[c->data], what,
             (unsigned long long)w->seed, w->name, w->size, (unsigned long long)c->number);
}

/* Which element of which buffer is wrong, and the inputs of all ranks for it. */
static void describe_difference(const test_rank *r, const trial *t, const char *side, const support_buffer *buffer,
                                ptrdiff_t at, char *text, size_t length)
{
    const test_case *c = &t->c;
    const ptrdiff_t bytes = (ptrdiff_t)c->type->size, place = at / bytes * bytes;
    size_t used;

    if (at < 0 || at >= (ptrdiff_t)buffer->length) {
        snprintf(text, length, "byte %td was written, outside %s of %zu bytes", at, side, buffer->length);
        return;
    }
    const uint64_t got = support_load(c->type, buffer->data + place);
    const uint64_t expected = support_load(c->type, support_expected(buffer, place));
    const size_t i = (size_t)(place / bytes) - t->result_at;
    const bool is_result = buffer == &t->recv && (size_t)(place / bytes) >= t->result_at && i < t->result_count;
    used = (size_t)snprintf(text, length, "%s %s, element %td: got 0x%llx, expected 0x%llx", side,
                            is_result ? "(the result)" : "(not the result)", place / bytes, (unsigned long long)got,
                            (unsigned long long)expected);
    if (!is_result || !c->row->is_reducing) return;
    used += (size_t)snprintf(text + used, length - used, ", of");
    for (int rank = 0; rank < r->size && used < length; rank++)
        used += (size_t)snprintf(text + used, length - used, " 0x%llx",
                                 (unsigned long long)element(c, rank, t->result_from + i));
}

/* Did a finished receive say truthfully what it got? */
static bool received_is_right(const test_rank *r, const trial *t)
{
    int source = -1, tag = -1;
    size_t count = SIZE_MAX;

    if (t->c.kind != COLL_SENDRECV || !t->requests[0]) return true;
    return coll_received(t->requests[0], &source, &tag, &count) == COLL_OK && source == source_of(r, &t->c) &&
           tag == tag_of(&t->c) && count == t->c.count && coll_received(t->requests[0], NULL, NULL, NULL) == COLL_OK;
}

/* An algorithm that does not fit the kind may be refused, and what is left out of the library must be, with a sentence; then
 * nothing must have happened. */
static bool is_refused(const test_rank *r, const trial *t)
{
    if (t->lacks) return t->is_known;
    return t->c.algorithm != NO_ALGORITHM && t->status == COLL_ERR_UNSUPPORTED && *coll_error(r->comm);
}

/* Put the expected result into the image. */
static void trial_expect(const test_rank *r, trial *t)
{
    const size_t length = t->c.type->size;

    if (!t->result_count) return;
    const unsigned char *bytes = oracle_take(r->world, &t->c);
    support_expect(&t->recv, t->result_at * length, bytes + t->result_from * length, t->result_count * length);
    oracle_release(r->world, &t->c);
}

/* Compare everything; the empty string says that all is well. */
static void trial_evaluate(const test_rank *r, trial *t, char *text, size_t length)
{
    const unsigned entered = __atomic_load_n(&r->world->entered, __ATOMIC_RELAXED), size = (unsigned)r->size;
    const bool refused = is_refused(r, t);
    ptrdiff_t at;

    *text = 0;
    if ((t->status || t->lacks) && !refused) {
        snprintf(text, length, "%s: %s", coll_status_text(t->status), coll_error(r->comm));
        return;
    }
    if (t->c.kind == COLL_BARRIER) {
        if (!refused && entered < (t->barrier + 1) * size)
            snprintf(text, length, "left barrier %u when only %u of %u ranks had come to it", t->barrier,
                     entered - t->barrier * size, size);
        return;
    }
    if (!refused) trial_expect(r, t);
    if (!support_as_expected(&t->recv, &at)) describe_difference(r, t, "recv", &t->recv, at, text, length);
    else if (t->send.block && !support_as_expected(&t->send, &at))
        describe_difference(r, t, "send", &t->send, at, text, length);
    else if (!received_is_right(r, t)) snprintf(text, length, "coll_received is wrong about source, tag or count");
}

/* The status of the communicator for a failure that has none. */
static const char *trouble_of(const test_rank *r)
{
    return coll_progress(r->comm) < 0 ? coll_error(r->comm) : "the communicator is well";
}

/* Count a failure; after some, or when the communicator has ended, this rank stops. */
static void note_failure(test_rank *r, coll_status status)
{
    const bool is_usable = status == COLL_OK || status == COLL_ERR_ARGUMENT || status == COLL_ERR_UNSUPPORTED;
    if (++r->failures >= FAILURES_MAX || !is_usable) r->is_over = true;
}

static void trial_finish(test_rank *r, trial *t)
{
    char what[1024], text[2048] = "";

    trial_evaluate(r, t, what, sizeof what);
    if (*what) describe(r, &t->c, what, text, sizeof text);
    CHECK(!*what, "%s", text);
    if (*what) note_failure(r, t->status);
    if (!*what && !t->status && t->c.algorithm != NO_ALGORITHM)
        __atomic_store_n(&r->world->applied[t->c.row - kind_rows][t->c.algorithm], true, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) coll_request_free(t->requests[i]);
    support_buffer_free(&t->send);
    support_buffer_free(&t->recv);
    __atomic_add_fetch(&r->world->ran, 1, __ATOMIC_RELAXED);
}

/* ---- >>where: the current call of every rank, printed on a timeout ---- */

static struct { const char *world; int size; uint64_t number[SIZE_MAX_TESTED]; } now;

static void report_where(void)
{
    fprintf(stderr, "world %s of %d ranks; the ranks are in the cases", now.world, now.size);
    for (int i = 0; i < now.size; i++)
        fprintf(stderr, " %llu", (unsigned long long)__atomic_load_n(&now.number[i], __ATOMIC_RELAXED));
    fputc('\n', stderr);
}

/* ---- >>grid: the full product of a kind, or a sample of it ---- */

/* Go on to the next case number.  Is it to be run?  The answer is the same on every rank. */
static bool next_case(test_rank *r, double likelihood)
{
    const uint64_t number = ++r->number;
    const uint64_t draw = support_mix(r->world->seed ^ support_mix((uint64_t)r->size << 48 ^ number));

    if (r->is_over) return false;
    if (r->world->only >= 0 && number != (uint64_t)r->world->only) return false;
    if (r->world->only < 0 && (double)(draw >> 11) * 0x1p-53 >= likelihood) return false;
    __atomic_store_n(&now.number[r->rank], number, __ATOMIC_RELAXED);
    return true;
}

/* The seed of part `part` of the current case. */
static uint64_t case_seed(const test_rank *r, uint64_t part)
{
    return support_mix(support_mix(r->world->seed) ^ support_mix((uint64_t)r->size << 56 ^ part << 48 ^ r->number));
}

/* A call of this many elements is short.  If many are not, a rank sleeps instead of working; a few may be due to the
 * machine. */
static void note_time(test_rank *r, size_t count, double took)
{
    if (count <= 5000 && took > SLOW_SECONDS && took * 1e3 > (double)support_scaled((int64_t)(SLOW_SECONDS * 1e3)))
        __atomic_add_fetch(&r->world->slow, 1, __ATOMIC_RELAXED);
}

static void run_alone(test_rank *r, const test_case *c)
{
    trial t;

    trial_prepare(r, &t, c);
    const double begin = support_seconds();
    trial_start(r, &t);
    trial_wait(&t);
    note_time(r, c->count, support_seconds() - begin);
    trial_finish(r, &t);
}

/* A style that can express the case. */
static style draw_style(const test_case *c, uint64_t random)
{
    const bool only_descriptor = c->algorithm != NO_ALGORITHM || (c->wire && c->kind != COLL_ALLREDUCE);

    if (only_descriptor) return random % 2 ? STYLE_RUN : STYLE_START;
    return (style)(random % (c->kind == COLL_SENDRECV ? 5 : 4));
}

static const coll_type wires[] = { COLL_F16, COLL_BF16, COLL_F32 };
enum { WIRE_COUNT = sizeof wires / sizeof *wires };

typedef struct grid {
    coll_kind kind;
    bool      is_mixed;                           /* f32 over each of `wires`                                 */
    algorithm algorithm;                          /* NO_ALGORITHM: the library's choice                       */
} grid;

/* Types x operations x forms x roots of a kind at one count: all of them, or about `quota`. */
static void run_grid(test_rank *r, grid g, size_t count, double quota)
{
    const kind_row *row = kind_row_of(g.kind);
    const int types = g.kind == COLL_BARRIER ? 1 : g.is_mixed ? WIRE_COUNT : SUPPORT_TYPE_COUNT;
    const int ops = row->is_reducing ? OP_COUNT : 1;
    const int forms = row->form_count, roots = row->is_rooted ? r->size : 1;
    const int total = types * ops * forms * roots;

    for (int i = 0; i < total; i++) {
        if (!next_case(r, quota / total)) continue;
        const uint64_t seed = case_seed(r, 0), random = support_mix(seed);
        test_case c = {
            .number = r->number, .seed = seed, .row = row, .kind = g.kind, .count = count, .algorithm = g.algorithm,
            .type = g.is_mixed ? support_type_of(COLL_F32) : &support_types[i % types],
            .wire = g.is_mixed ? support_type_of(wires[i % types]) : NULL, .op = (coll_op)(i / types % ops),
            .form = row->forms[i / (types * ops) % forms], .root = i / (types * ops * forms), .data = (data)(random % 3)
        };
        c.style = draw_style(&c, random >> 32);
        run_alone(r, &c);
    }
}

/* The counts to test, without repetition; returns how many. */
static int counts_for(int size, size_t *counts)
{
    const size_t n = (size_t)size, all[] = { 0, 1, 2, n - 1, n, n + 1, 7, 64, 1000, 1025, 4099, 70001 };
    int used = 0;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool is_new = true;
        for (int j = 0; j < used; j++) is_new = is_new && counts[j] != all[i];
        if (is_new) counts[used++] = all[i];
    }
    return used;
}

/* How many cases of a grid are to be run: all where that is cheap. */
static double quota_for(const test_rank *r, size_t count)
{
    const double base = r->size <= 2 ? 600 : r->size == 3 ? 300 : r->size <= 5 ? 120 : r->size <= 9 ? 40 : 10;
    const double effort = count <= 64 ? 1 : count <= 5000 ? 0.1 : 3.0 / (double)r->size / 300;
    return base * effort * r->world->scale * (strcmp(r->world->name, "threads") ? 0.4 : 1);
}

static void run_grids(test_rank *r)
{
    size_t counts[16];
    const int used = counts_for(r->size, counts);

    run_grid(r, (grid){ COLL_BARRIER, false, NO_ALGORITHM }, 0, quota_for(r, 0));
    for (int i = 0; i < used; i++) {
        const double quota = quota_for(r, counts[i]);
        for (int k = 1; k < KIND_COUNT; k++) {
            const kind_row *row = &kind_rows[k];
            run_grid(r, (grid){ row->kind, false, NO_ALGORITHM }, counts[i], quota);
            if (row->is_reducing) run_grid(r, (grid){ row->kind, true, NO_ALGORITHM }, counts[i], quota / 6);
        }
    }
}

/* Every algorithm by name, also where it does not apply: between threads this is how the messages are used at all. */
static void run_algorithms(test_rank *r)
{
    size_t counts[16];
    const int used = counts_for(r->size, counts);

    for (algorithm a = DIRECT; a < ALGORITHM_COUNT; a++) {
        for (int k = 0; k < KIND_COUNT; k++) {
            const coll_kind kind = kind_rows[k].kind;
            if (kind == COLL_SENDRECV) continue;
            for (int i = 0; i < (kind == COLL_BARRIER ? 1 : used); i++) {
                const double quota = quota_for(r, counts[i]) / 10 + (kind == COLL_BARRIER ? r->size : 0);
                run_grid(r, (grid){ kind, false, a }, counts[i], quota);
                if (kind_rows[k].is_reducing) run_grid(r, (grid){ kind, true, a }, counts[i], quota / 6);
            }
        }
    }
}

/* A few long vectors, which cross many slices. */
static void run_large(test_rank *r)
{
    const size_t count = 1500001;
    const double quota = 0.6 * r->world->scale;

    for (int k = 1; k < KIND_COUNT; k++) {
        const coll_kind kind = kind_rows[k].kind;
        const bool per_rank = kind == COLL_REDUCE_SCATTER || kind == COLL_ALLGATHER;
        const size_t own = per_rank ? count / (size_t)r->size : count;
        const double likely = r->size == 2 || r->size == 3 ? quota : r->size == 5 ? quota / 4 : 0;
        run_grid(r, (grid){ kind, false, NO_ALGORITHM }, own, likely);
        if (kind_rows[k].is_reducing) run_grid(r, (grid){ kind, true, NO_ALGORITHM }, own, likely / 2);
    }
}

/* ---- >>batches: several operations in flight ---- */

typedef enum finish {
    FINISH_IN_ANY_ORDER, FINISH_ALL, FINISH_ANY, FINISH_BY_TESTS, FINISH_DETACHED, FINISH_COUNT
} finish;

static const char *const finish_names[] = {
    "waiting in random order", "coll_wait_all", "coll_wait_any", "coll_test", "freeing, then a barrier"
};

/* One that applies to this kind. */
static algorithm draw_algorithm(coll_kind kind, uint64_t random)
{
    int i = (int)(random % REQUIRED_COUNT);
    while (required[i].kind != kind) i = (i + 1) % REQUIRED_COUNT;
    return required[i].algorithm;
}

/* Any case that can be started without waiting, half of them with a named algorithm.  Messages are not freed while
 * running: a barrier says nothing about them. */
static test_case draw_case(const test_rank *r, uint64_t part, finish how)
{
    static const size_t counts[] = { 0, 1, 2, 7, 17, 64, 64, 64, 1000, 1000, 1000, 1025, 1025, 4099, 4099, 70001 };
    const uint64_t seed = case_seed(r, part + 1);
    uint64_t state = seed;
    test_case c = { .number = r->number, .seed = seed, .algorithm = NO_ALGORITHM };

    c.count = counts[support_random(&state) % 16];
    if (c.count > 5000 && r->size > 3) c.count /= (size_t)r->size;
    c.row = &kind_rows[support_random(&state) % (uint64_t)(KIND_COUNT - (how == FINISH_DETACHED))];
    c.kind = c.row->kind;
    c.type = &support_types[support_random(&state) % SUPPORT_TYPE_COUNT];
    c.op = c.row->is_reducing ? (coll_op)(support_random(&state) % OP_COUNT) : COLL_SUM;
    c.form = c.row->forms[support_random(&state) % (uint64_t)c.row->form_count];
    c.root = c.row->is_rooted ? (int)(support_random(&state) % (uint64_t)r->size) : 0;
    c.data = (data)(support_random(&state) % 3);
    c.style = support_random(&state) % 2 ? STYLE_REQUEST : STYLE_START;
    if (c.kind == COLL_SENDRECV && support_random(&state) % 2) c.style = STYLE_PAIR;
    if (c.style == STYLE_START && c.kind != COLL_SENDRECV) c.algorithm = draw_algorithm(c.kind, support_random(&state));
    if (c.row->is_reducing && c.type->type == COLL_F32 && c.style == STYLE_START)
        c.wire = support_type_of(wires[support_random(&state) % WIRE_COUNT]);
    return c;
}

/* All requests of a batch, with the trial that each belongs to. */
typedef struct flight {
    coll_request *requests[2 * BATCH_MAX + 1];    /* the last is NULL                                         */
    trial        *owners[2 * BATCH_MAX + 1];
    int           count;                          /* the NULL included                                        */
} flight;

static void finish_in_any_order(const test_rank *r, flight *f)
{
    uint64_t state = case_seed(r, 0) ^ (uint64_t)r->rank;
    int order[2 * BATCH_MAX + 1];

    for (int i = 0; i < f->count; i++) {
        const int j = (int)(support_random(&state) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < f->count; i++) {
        const coll_status status = coll_wait(f->requests[order[i]]);
        if (f->owners[order[i]]) note_status(f->owners[order[i]], status);
    }
}

static void finish_by_tests(const test_rank *r, flight *f)
{
    int left;

    do {
        left = 0;
        for (int i = 0; i < f->count; i++) left += coll_test(f->requests[i]) == COLL_PENDING;
        if (left && case_seed(r, 0) % 2) coll_progress(r->comm);
        if (left) sched_yield();
    } while (left);
}

/* coll_wait_any returns each request at most once, finished, and then -1. */
static bool finish_any(flight *f)
{
    bool seen[2 * BATCH_MAX + 1] = { false };

    for (int round = 0; round <= f->count; round++) {
        int index = -2;
        if (coll_wait_any(f->count, f->requests, &index) != COLL_OK) return false;
        if (index == -1) return true;
        if (index < 0 || index >= f->count || seen[index] || !f->requests[index]) return false;
        if (coll_test(f->requests[index]) == COLL_PENDING) return false;
        seen[index] = true;
    }
    return false;
}

/* Bring all to an end.  false: the way of waiting itself went wrong. */
static bool finish_batch(const test_rank *r, flight *f, finish how)
{
    bool good = true;

    if (how == FINISH_DETACHED) {
        for (int i = 0; i < f->count; i++) {
            coll_request_free(f->requests[i]);
            if (f->owners[i]) f->owners[i]->requests[0] = NULL;
        }
        return coll_barrier(r->comm) == COLL_OK;
    }
    if (how == FINISH_IN_ANY_ORDER) finish_in_any_order(r, f);
    if (how == FINISH_ALL) good = coll_wait_all(f->count, f->requests) == COLL_OK;
    if (how == FINISH_ANY) good = finish_any(f);
    if (how == FINISH_BY_TESTS) finish_by_tests(r, f);
    for (int i = 0; i < f->count; i++) {
        const coll_status status = coll_test(f->requests[i]);
        if (f->owners[i]) note_status(f->owners[i], status);
        good = good && coll_wait(f->requests[i]) == status;
    }
    return good;
}

static void run_batch(test_rank *r)
{
    const uint64_t random = support_mix(case_seed(r, 0));
    const int count = 2 + (int)(random % (BATCH_MAX - 1));
    const finish how = (finish)((random >> 32) % FINISH_COUNT);
    trial trials[BATCH_MAX];
    flight f = { .count = 0 };

    for (int i = 0; i < count; i++) {
        const test_case c = draw_case(r, (uint64_t)i, how);
        trial_prepare(r, &trials[i], &c);
    }
    for (int i = 0; i < count; i++) {
        trial_start(r, &trials[i]);
        for (int j = 0; j < 2; j++) {
            if (!trials[i].requests[j]) continue;
            f.owners[f.count] = &trials[i];
            f.requests[f.count++] = trials[i].requests[j];
        }
    }
    f.count++;
    const double begin = support_seconds();
    const bool good = finish_batch(r, &f, how);
    note_time(r, 0, support_seconds() - begin);
    CHECK(good, "%s, rank %d of %d: %s of %d requests: %s, seed %llu, case %llu", r->world->name, r->rank, r->size,
          finish_names[how], f.count, trouble_of(r), (unsigned long long)r->world->seed, (unsigned long long)r->number);
    for (int i = 0; i < count; i++) trial_finish(r, &trials[i]);
    if (!good) note_failure(r, coll_progress(r->comm));
}

/* ---- >>patterns: exchanges that naive code does not survive ---- */

/* Everyone sends 8 MB to the right and receives as much from the left, at once. */
static bool pattern_ring(const test_rank *r)
{
    const size_t count = 2000003;
    const int right = (r->rank + 1) % r->size, left = (r->rank + r->size - 1) % r->size;
    uint32_t *send = support_message_make(r->rank, right, 3, count), *recv = support_need(malloc(count * sizeof *recv));
    bool good = coll_sendrecv(r->comm, send, count, right, recv, count, left, COLL_U32, 3) == COLL_OK;

    good = good && support_message_is_right(recv, left, r->rank, 3, count);
    good = good && support_message_is_right(send, r->rank, right, 3, count);
    free(send);
    free(recv);
    return good;
}

enum { TAGS = 6, EXCHANGE_MOST = 30001 };

/* Also long ones, empty ones, and those about the size at which messages usually begin to wait for the receiver. */
static size_t exchange_count(int source, int tag)
{
    const size_t counts[TAGS] = { (size_t)source * 7, EXCHANGE_MOST, 0, 2048, 1023 + (size_t)source, 16384 };
    return counts[tag];
}

/* All ranks send to all ranks, also to themselves, with several tags; messages are received in the reverse order of tags. */
static bool pattern_exchange(const test_rank *r)
{
    coll_request *requests[SIZE_MAX_TESTED * TAGS];
    uint32_t *sent[SIZE_MAX_TESTED * TAGS], *recv = support_need(malloc(EXCHANGE_MOST * sizeof *recv));
    bool good = true;
    int n = 0;

    for (int tag = 0; tag < TAGS; tag++) {
        for (int peer = 0; peer < r->size; peer++, n++) {
            const size_t count = exchange_count(r->rank, tag);
            sent[n] = support_message_make(r->rank, peer, tag, count);
            good = coll_isend(r->comm, sent[n], count, COLL_U32, peer, tag, &requests[n]) == COLL_OK && good;
        }
    }
    for (int tag = TAGS - 1; tag >= 0; tag--) {
        for (int peer = r->size - 1; peer >= 0; peer--) {
            const size_t count = exchange_count(peer, tag);
            good = coll_recv(r->comm, recv, count, COLL_U32, peer, tag) == COLL_OK && good;
            good = support_message_is_right(recv, peer, r->rank, tag, count) && good;
        }
    }
    good = coll_wait_all(n, requests) == COLL_OK && good;
    for (int i = 0; i < n; i++) {
        coll_request_free(requests[i]);
        free(sent[i]);
    }
    free(recv);
    return good;
}

/* To itself: a short blocking send that is received later, a long one that is not blocking, and both ways at once. */
static bool pattern_self(const test_rank *r)
{
    const size_t counts[] = { 0, 1, 9, 200003 };
    const int me = r->rank;
    bool good = true;

    for (int i = 0; i < 4 && good; i++) {
        const size_t count = counts[i];
        uint32_t *send = support_message_make(me, me, i, count), *recv = support_need(calloc(count + 1, sizeof *recv));
        coll_request *request = NULL;
        if (i < 3) good = coll_send(r->comm, send, count, COLL_U32, me, i) == COLL_OK;
        else good = coll_isend(r->comm, send, count, COLL_U32, me, i, &request) == COLL_OK;
        good = good && coll_recv(r->comm, recv, count, COLL_U32, me, i) == COLL_OK && coll_wait(request) == COLL_OK;
        good = good && support_message_is_right(recv, me, me, i, count);
        memset(recv, 0, count * sizeof *recv);
        good = good && coll_sendrecv(r->comm, send, count, me, recv, count, me, COLL_U32, i) == COLL_OK;
        good = good && support_message_is_right(recv, me, me, i, count);
        coll_request_free(request);
        free(send);
        free(recv);
    }
    return good;
}

/* Short blocking sends return before the receives start; many more are not blocking.  All have one tag and must keep their
 * order; the buffer is larger than the message, whose length is returned; the rest is not written. */
static bool pattern_order(const test_rank *r)
{
    enum { BLOCKING = 8, MESSAGES = 150, ROOM = 12 };
    const int right = (r->rank + 1) % r->size, left = (r->rank + r->size - 1) % r->size;
    coll_request *requests[MESSAGES] = { 0 };
    uint32_t *sent[MESSAGES];
    bool good = true;

    for (int i = 0; i < MESSAGES; i++) {
        const size_t count = (size_t)(i % ROOM);
        sent[i] = support_message_make(r->rank, right, i, count);
        if (i < BLOCKING) good = coll_send(r->comm, sent[i], count, COLL_U32, right, 5) == COLL_OK && good;
        else good = coll_isend(r->comm, sent[i], count, COLL_U32, right, 5, &requests[i]) == COLL_OK && good;
    }
    for (int i = 0; i < MESSAGES && good; i++) {
        support_buffer recv = support_buffer_make(ROOM * sizeof(uint32_t), 0);
        uint32_t *expected = support_message_make(left, r->rank, i, (size_t)(i % ROOM));
        coll_request *request = NULL;
        int source = -1, tag = -1;
        size_t count = SIZE_MAX;
        ptrdiff_t at;

        support_seal(&recv);
        good = coll_irecv(r->comm, recv.data, ROOM, COLL_U32, left, 5, &request) == COLL_OK;
        good = coll_wait(request) == COLL_OK && coll_received(request, &source, &tag, &count) == COLL_OK && good;
        good = source == left && tag == 5 && count == (size_t)(i % ROOM) && good;
        support_expect(&recv, 0, expected, (size_t)(i % ROOM) * sizeof *expected);
        good = support_as_expected(&recv, &at) && good;
        coll_request_free(request);
        free(expected);
        support_buffer_free(&recv);
    }
    good = coll_wait_all(MESSAGES, requests) == COLL_OK && good;
    for (int i = 0; i < MESSAGES; i++) {
        coll_request_free(requests[i]);
        free(sent[i]);
    }
    return good;
}

/* Receives are posted before their messages, in the reverse order of the sends; collectives run in between. */
static bool pattern_posted(const test_rank *r)
{
    enum { MESSAGES = 6 };
    const size_t count = 20011;
    const int right = (r->rank + 1) % r->size, left = (r->rank + r->size - 1) % r->size;
    coll_request *requests[2 * MESSAGES] = { 0 };
    uint32_t *buffers[2 * MESSAGES];
    int32_t one = 1, sum = 0;
    bool good = true;

    for (int i = 0; i < MESSAGES; i++) {
        buffers[i] = support_need(calloc(count, sizeof *buffers[i]));
        good = coll_irecv(r->comm, buffers[i], count, COLL_U32, left, MESSAGES - i, &requests[i]) == COLL_OK && good;
    }
    good = coll_allreduce(r->comm, &one, &sum, 1, COLL_I32, COLL_SUM) == COLL_OK && sum == r->size && good;
    for (int i = MESSAGES; i < 2 * MESSAGES; i++) {
        const int tag = i - MESSAGES + 1;
        buffers[i] = support_message_make(r->rank, right, tag, count);
        good = coll_isend(r->comm, buffers[i], count, COLL_U32, right, tag, &requests[i]) == COLL_OK && good;
        good = coll_allreduce(r->comm, &one, &sum, 1, COLL_I32, COLL_SUM) == COLL_OK && sum == r->size && good;
    }
    good = coll_wait_all(2 * MESSAGES, requests) == COLL_OK && good;
    for (int i = 0; i < 2 * MESSAGES; i++) {
        good = (i >= MESSAGES || support_message_is_right(buffers[i], left, r->rank, MESSAGES - i, count)) && good;
        coll_request_free(requests[i]);
        free(buffers[i]);
    }
    return good;
}

/* A wait for a message that has arrived does not sleep.  A sleep would be so long that a loaded machine does not look like
 * one. */
static bool pattern_prompt(const test_rank *r)
{
    enum { ROUNDS = 40, OPERATIONS = 3, SECONDS = 10 };
    const double begin = support_seconds();
    bool good = true;

    for (int i = 0; i < ROUNDS && good; i++) {
        coll_request *requests[OPERATIONS] = { 0 };
        int32_t x[OPERATIONS] = { 0 }, all[SIZE_MAX_TESTED];
        for (int j = 0; j < OPERATIONS; j++)
            good = coll_iallreduce(r->comm, &x[j], &x[j], 1, COLL_I32, COLL_SUM, &requests[j]) == COLL_OK && good;
        for (int j = 0; j < OPERATIONS; j++) good = coll_wait(requests[j]) == COLL_OK && good;
        for (int j = 0; j < OPERATIONS; j++) coll_request_free(requests[j]);
        x[0] = support_seconds() - begin > SECONDS;
        good = coll_allgather(r->comm, x, all, 1, COLL_I32) == COLL_OK && good;
        for (int j = 0; j < r->size; j++) good = good && !all[j];
    }
    return good;
}

/* NULL is a finished request, and waiting for nothing is no waiting. */
static bool pattern_nothing(const test_rank *r)
{
    coll_request *none[3] = { 0 };
    int index = 7;

    (void)r;
    coll_request_free(NULL);
    return coll_test(NULL) == COLL_OK && coll_wait(NULL) == COLL_OK && coll_wait_all(3, none) == COLL_OK &&
           coll_wait_all(0, NULL) == COLL_OK && coll_wait_any(3, none, &index) == COLL_OK && index == -1;
}

static void run_pattern(test_rank *r, const char *name, bool (*pattern)(const test_rank *r))
{
    if (!next_case(r, 1)) return;
    const bool good = pattern(r);
    CHECK(good, "%s, rank %d of %d: %s: %s, case %llu", r->world->name, r->rank, r->size, name, trouble_of(r),
          (unsigned long long)r->number);
    if (!good) note_failure(r, coll_progress(r->comm));
    __atomic_add_fetch(&r->world->ran, 1, __ATOMIC_RELAXED);
}

static void run_patterns(test_rank *r)
{
    run_pattern(r, "waiting for nothing", pattern_nothing);
    run_pattern(r, "messages to itself", pattern_self);
    run_pattern(r, "short blocking sends round the ring", pattern_order);
    run_pattern(r, "everyone to everyone, tags reversed", pattern_exchange);
    run_pattern(r, "receives posted first", pattern_posted);
    if (r->size <= 5) run_pattern(r, "8 MB round the ring", pattern_ring);
}

/* ---- >>worlds ---- */

static int worker(coll_comm *comm, void *arg)
{
    test_world *world = arg;
    test_rank r = { .world = world, .comm = comm, .rank = coll_rank(comm), .size = coll_size(comm) };
    const int batches = (int)((r.size <= 5 ? 80 : r.size <= 9 ? 30 : 5) * world->scale) + 1;

    const bool is_sane = r.size == world->size && r.rank >= 0 && r.rank < r.size;
    CHECK(is_sane, "%s: rank %d of %d, not of %d", world->name, r.rank, r.size, world->size);
    if (!is_sane) return 1;
    run_pattern(&r, "waiting no longer than needed", pattern_prompt);
    if (r.failures) return 1;                     /* the rest would take very long */
    run_grids(&r);
    run_algorithms(&r);
    run_patterns(&r);
    run_large(&r);
    for (int i = 0; i < batches; i++)
        if (next_case(&r, 1)) run_batch(&r);
    return r.is_over;
}

static void check_algorithms(const test_world *world)
{
    for (int i = 0; i < REQUIRED_COUNT; i++) {
        const kind_row *row = kind_row_of(required[i].kind);
        if (!there_kind(required[i].kind) || !COLL__HAS_CHOICE) continue;   /* no call can name one */
        CHECK(world->applied[row - kind_rows][required[i].algorithm], "%s: algorithm %s of %s was never used",
              world->name, algorithm_names[required[i].algorithm], coll_kind_name(required[i].kind));
    }
}

/* All sizes of a world; or one size, or one case of it. */
static void run_world(const char *name, int only_size, int64_t only_case)
{
    static const int sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, SIZE_MAX_TESTED };
    const coll_config config = { .stall_timeout_ms = STALL_TIMEOUT_MS };
    const bool is_verbose = getenv("COLL_TEST_VERBOSE") != NULL;
    const double begin = support_seconds();
    int failed = 0;
    test_world world = { .name = name, .seed = support_seed(), .scale = support_scale(), .only = only_case };

    pthread_mutex_init(&world.oracle_lock, NULL);
    now.world = name;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !failed; i++) {
        if (only_size && sizes[i] != only_size) continue;
        world.size = now.size = sizes[i];
        world.entered = 0;
        failed = support_run_config(name, world.size, &config, worker, &world);
        CHECK(failed == 0, "%s: %d of %d ranks gave up", name, failed, world.size);
        oracle_clear(&world);
        if (is_verbose) printf("  %s, %d ranks: until %.1f s\n", name, world.size, support_seconds() - begin);
    }
    pthread_mutex_destroy(&world.oracle_lock);
    if (!only_size && !failed) check_algorithms(&world);
    CHECK(world.slow <= SLOW_ALLOWED, "%s: %ld calls took longer than %g s", name, world.slow, SLOW_SECONDS);
    printf("%s: %ld cases x ranks, %.1f s\n", name, world.ran, support_seconds() - begin);
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "threads", "tcp-poll", "tcp-uring", "tcp-domain", "hybrid" };
    const char *list = argc > 1 ? argv[1] : NULL;
    const int size = argc > 2 ? atoi(argv[2]) : 0;
    const int64_t only = argc > 3 ? (int64_t)strtoll(argv[3], NULL, 10) : -1;

    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("test_collectives: COLL_TEST_SEED=%llu COLL_TEST_SCALE=%g\n", (unsigned long long)support_seed(),
           support_scale());
    support_limit(LIMIT_SECONDS, report_where);
    for (int i = 0; i < SUPPORT_TYPE_COUNT; i++)
        CHECK(coll_type_size(support_types[i].type) == support_types[i].size &&
              !strcmp(coll_type_name(support_types[i].type), support_types[i].name), "the size or the name of %s",
              support_types[i].name);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        if (support_listed(list, worlds[i]) && support_has_world(worlds[i])) run_world(worlds[i], size, only);
    }
    return CHECK_DONE();
}
