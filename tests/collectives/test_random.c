/* test_random.c - random programs: thousands of calls of every kind, interleaved on many communicators, against the model.
 *
 *     test_random [--world NAME] [--ranks N] [--seed S] [--steps N] [--minutes M] [--verbose]
 *
 * A program is a function of its seed.  Every rank derives the same steps from it; what the contract leaves to each rank - in
 * place or not, blocking or not, when and how it waits - each rank draws for itself.  Several programs run, in all worlds,
 * until the time is up (20 seconds, or --minutes); with a seed only that one.  COLL_TEST_SEED: the first seed.
 *
 * On a GPU (test_nccl_random.c) the contract leaves less to each rank: restarts have one order, and messages a known source and
 * the room that they need.
 *
 * Why no program can hang: all ranks start all operations in one order, so the rank that is furthest behind waits only for
 * operations that all ranks have started, and pending operations progress inside any call that waits.
 */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/model.h"
#include "../support/model_calls.h"
#include "../support/cases.h"

#include <sched.h>

enum { RANKS_MOST = 9, LINES = 6, FLYING_MOST = 24, PREPARED_MOST = 5, CLOSED_MOST = 32, OPERATIONS_A_STEP = 8,
       PROGRAM_SECONDS = 100, STALL_TIMEOUT_MS = 60000, STEPS_USUAL = 250, WHAT_LENGTH = 320 };

/* ---- >>programs ---- */

/* Shared by the ranks of one operation: the number that have finished it, and the bits that they agree on. */
typedef struct handshake {
    unsigned entered;
    uint64_t agreed;
} handshake;

typedef struct program {
    const char *world;
    int         size, steps;
    uint64_t    seed;
    handshake    *handshakes;                     /* of operation i in the group whose first rank is r: [i * size + r] */
    int         failed;
} program;

/* A message, or both ways of a sendrecv.  A side without a buffer's block is not there. */
typedef struct message {
    uint64_t       seed;
    coll_type      type;
    size_t         base;                          /* messages have up to twice as many elements               */
    int            dest, source, tag;             /* source: the argument of the call                         */
    int            real_source, real_tag;         /* which message it is to be; source MODEL_NONE: any        */
    bool           sends, receives;
    size_t         room;
    support_buffer send, recv;
} message;

/* One operation of one rank, from its start to its judgement. */
typedef struct task {
    bool          is_message;
    model_part    part;
    message       message;
    model_style   style;
    coll_request *request;
    int           line, step;
} task;

/* A communicator, as one of its ranks sees it; a line can be several groups that know nothing of each other. */
typedef struct line {
    bool        exists;                           /* on any rank                                              */
    coll_comm  *comm;                             /* NULL: this rank is in none of its groups                 */
    int         ranks[RANKS_MOST], count, me;     /* ranks of the world                                       */
    model_graph graph;
    bool        has_graph;
} line;

typedef struct actor {
    program   *p;
    int        rank, step, operation;
    uint64_t   own;                               /* state of this rank's own draws                           */
    line       lines[LINES];                      /* line 0 is the world                                      */
    task      *flying[FLYING_MOST];
    int        flights;
    task      *detached[FLYING_MOST];
    int        detachments;
    task      *prepared[PREPARED_MOST];
    coll_comm *closed[CLOSED_MOST];
    int        closed_count;
    bool       is_over;
} actor;

/* What each rank is doing, should the time run out. */
static struct { program *p; int step[RANKS_MOST]; char what[RANKS_MOST][WHAT_LENGTH]; } now;

static void report_ranks(void)
{
    const program *p = now.p;

    fprintf(stderr, "%s hangs\n", case_name);
    for (int i = 0; p && i < p->size; i++) fprintf(stderr, "    rank %d: step %d: %s\n", i, now.step[i], now.what[i]);
    if (p) fprintf(stderr, "    replay: test_random --world %s --ranks %d --seed %llu --steps %d\n", p->world, p->size,
                   (unsigned long long)p->seed, p->steps);
}

/* Draw number i of a step, the same on all ranks. */
static uint64_t drawn(const actor *a, int i)
{
    return support_mix(support_mix(a->p->seed ^ (uint64_t)a->p->size << 48) ^ ((uint64_t)a->step << 8 | (uint64_t)i));
}

static uint64_t own(actor *a, uint64_t limit) { return support_random(&a->own) % limit; }

static void say(actor *a, const char *what) { snprintf(now.what[a->rank], WHAT_LENGTH, "%s", what); }

/* The first failure is printed, with the command that repeats it; the world is ended, and later failures are not printed. */
static void fail(actor *a, int step, const char *what, const char *why)
{
    program *p = a->p;
    const bool is_first = !__atomic_exchange_n(&p->failed, 1, __ATOMIC_ACQ_REL);

    a->is_over = true;
    if (!is_first) return;
    CHECK(false, "%s, rank %d of %d, seed %llu, step %d (in step %d): %s: %s\n    replay: test_random --world %s --ranks %d "
          "--seed %llu --steps %d", p->world, a->rank, p->size, (unsigned long long)p->seed, step, a->step, what, why, p->world,
          p->size, (unsigned long long)p->seed, p->steps);
    coll_abort(a->lines[0].comm, "a test has failed");
}

static void fail_call(actor *a, const line *l, const char *what, coll_status status)
{
    char why[512];

    snprintf(why, sizeof why, "%s: %s", coll_status_text(status), coll_error(l->comm));
    fail(a, a->step, what, why);
}

static handshake *handshake_of(actor *a, const line *l)
{
    int leader = l->ranks[0];

    for (int i = 1; i < l->count; i++)
        if (l->ranks[i] < leader) leader = l->ranks[i];
    return &a->p->handshakes[(a->operation % (a->p->steps * OPERATIONS_A_STEP)) * a->p->size + leader];
}

/* ---- >>messages: expected ones ---- */

static size_t message_count(const message *t, int source)
{
    return (size_t)(support_mix(t->seed + (uint64_t)source) % (2 * t->base + 1));
}

static void message_write(const message *t, int source, unsigned char *to, size_t count)
{
    const model_type type = model_type_of(t->type);

    for (size_t i = 0; i < count; i++)
        model_element(&type, COLL_SUM, MODEL_BITS, t->seed, source, 5, i, to + i * type.size);
}

static void message_prepare(message *t, int me)
{
    const model_type type = model_type_of(t->type);

    if (t->sends) {
        const size_t count = message_count(t, me);
        t->send = support_buffer_make(count * type.size, support_mix(t->seed) % 4 * type.align);
        message_write(t, me, t->send.data, count);
        support_seal(&t->send);
    }
    if (!t->receives) return;
    t->room = t->real_source >= 0 ? message_count(t, t->real_source) + (size_t)(t->seed % 3) : 2 * t->base;
    if (model_is_gpu(world)) t->room = message_count(t, t->real_source);
    t->recv = support_buffer_make(t->room * type.size, support_mix(t->seed + 1) % 4 * type.align);
    support_seal(&t->recv);
}

static coll_call message_call(const message *t, int me)
{
    coll_call d = { .type = t->type, .tag = t->tag, .name = "a tested message" };

    d.kind = t->sends && t->receives ? COLL_SENDRECV : t->sends ? COLL_SEND : COLL_RECV;
    d.send = t->sends ? support_place(t->send.data) : NULL;
    d.recv = t->receives ? support_place(t->recv.data) : NULL;
    d.count = t->sends ? message_count(t, me) : t->room;
    d.recv_count = t->sends ? t->room : 0;
    d.peer = t->sends ? t->dest : t->source;
    d.source = t->source;
    return d;
}

/* The buffers after the message, and what the request says of it. */
static void message_evaluate(message *t, coll_request *request, char *why, size_t length)
{
    const model_type type = model_type_of(t->type);
    int source = t->real_source, tag = -9;
    size_t count = SIZE_MAX;
    ptrdiff_t at;

    *why = 0;
    if (t->receives && request) {
        const coll_status status = coll_received(request, &source, &tag, &count);
        if (status || source < 0 || (t->real_source >= 0 && source != t->real_source) || tag != t->real_tag ||
            count != message_count(t, source)) {
            snprintf(why, length, "coll_received: status %d, source %d, tag %d, count %zu; expected source %d, tag %d",
                     (int)status, source, tag, count, t->real_source, t->real_tag);
            return;
        }
    }
    if (t->receives && source >= 0) {
        support_guard(&t->recv, false);
        count = message_count(t, source);
        message_write(t, source, t->recv.image + (t->recv.data - t->recv.block), count);
        if (!support_as_expected(&t->recv, &at))
            snprintf(why, length, "received from %d: byte %td of %zu %s is wrong", source, at, count, type.name);
    }
    if (t->sends && !support_as_expected(&t->send, &at)) snprintf(why, length, "byte %td of what was sent has changed", at);
}

/* ---- >>tasks ---- */

static void task_name(const task *t, char *text, size_t length)
{
    if (!t->is_message) {
        model_part_name(&t->part, text, length);
        return;
    }
    const char *kind = t->message.sends && t->message.receives ? "sendrecv" : t->message.sends ? "send" : "recv";
    snprintf(text, length, "%s of about %zu %s, to %d, from %d, tag %d", kind, t->message.base,
             model_type_of(t->message.type).name, t->message.dest, t->message.source, t->message.tag);
}

static void task_free(task *t)
{
    coll_request_free(t->request);
    model_part_free(&t->part);
    support_buffer_free(&t->message.send);
    support_buffer_free(&t->message.recv);
    free(t);
}

static void task_fail(actor *a, const task *t, const char *why)
{
    char name[WHAT_LENGTH], what[2 * WHAT_LENGTH];

    task_name(t, name, sizeof name);
    snprintf(what, sizeof what, "line %d (rank %d of %d), %s: %s", t->line, a->lines[t->line].me, a->lines[t->line].count,
             model_style_names[t->style], name);
    fail(a, t->step, what, why);
}

/* The operation is over with this status: is all as it must be? */
static void task_evaluate(actor *a, task *t, coll_status status)
{
    const line *l = &a->lines[t->line];
    char why[512];

    if (status) snprintf(why, sizeof why, "%s: %s", coll_status_text(status), coll_error(l->comm));
    else if (t->is_message) message_evaluate(&t->message, t->request, why, sizeof why);
    else model_part_evaluate(&t->part, why, sizeof why);
    if (*why) task_fail(a, t, why);
}

static void fly(actor *a, task *t) { a->flying[a->flights++] = t; }

static void land(actor *a, int i)
{
    task *t = a->flying[i];

    task_evaluate(a, t, coll_test(t->request));
    task_free(t);
    a->flying[i] = a->flying[--a->flights];
}

/* Wait for one of those in flight, in some way; or free it. */
static void land_one(actor *a)
{
    coll_request *requests[FLYING_MOST + 1] = { NULL };
    const int pick = (int)own(a, (uint64_t)a->flights), how = (int)own(a, 5);
    task *t = a->flying[pick];
    int index = pick;
    coll_status status = COLL_OK;

    say(a, how == 4 ? "letting one go" : "waiting for one of many");
    if (how == 4 && !t->is_message && a->detachments < FLYING_MOST) {
        coll_request_free(t->request);
        t->request = NULL;
        a->detached[a->detachments++] = t;
        a->flying[pick] = a->flying[--a->flights];
        return;
    }
    for (int i = 0; i < a->flights; i++)
        if (i == pick || own(a, 2)) requests[i] = a->flying[i]->request;
    if (how == 0) while ((status = coll_test(t->request)) == COLL_PENDING) sched_yield();
    else if (how == 1) status = coll_wait_all(a->flights + 1, requests);
    else if (how == 2) status = coll_wait_any(a->flights + 1, requests, &index);
    else status = coll_wait(t->request);
    if (status < 0) task_evaluate(a, t, status);
    else if (index < 0 || index > a->flights || !requests[index]) index = pick;      /* all had finished before   */
    if (coll_wait(a->flying[index]->request) < 0 && status >= 0) status = coll_test(a->flying[index]->request);
    land(a, index);
}

static void land_all(actor *a, int of_line)
{
    for (int i = a->flights - 1; i >= 0 && !a->is_over; i--) {
        if (of_line >= 0 && a->flying[i]->line != of_line) continue;
        (void)coll_wait(a->flying[i]->request);
        land(a, i);
    }
}

/* After a barrier, freed requests have ended. */
static void quiet(actor *a, int of_line)
{
    line *l = &a->lines[of_line];

    say(a, "a barrier, to know what is over");
    if (!l->comm || a->is_over) return;
    const coll_status status = coll_barrier(l->comm);
    if (status) fail_call(a, l, "barrier of a quiet step", status);
    for (int i = a->detachments - 1; i >= 0 && !status; i--) {
        task *t = a->detached[i];
        if (t->line != of_line) continue;
        task_evaluate(a, t, COLL_OK);
        task_free(t);
        a->detached[i] = a->detached[--a->detachments];
    }
}

/* Does the call need a part that is left out of the library?  Then it was refused, with the switch's name, and has ended. */
static bool is_left_out(actor *a, task *t, const coll_call *call, coll_status status)
{
    const there_lack lack = there_call(call);
    char why[512];

    if (!lack.count) return false;
    snprintf(why, sizeof why, "left out by %s, but: %s: %.400s", lack.names[0], coll_status_text(status),
             coll_error(a->lines[t->line].comm));
    if (!there_refuses(&lack, status, coll_error(a->lines[t->line].comm))) task_fail(a, t, why);
    task_free(t);
    return true;
}

/* Start it, and check it at once if that was all. */
static void task_begin(actor *a, task *t)
{
    line *l = &a->lines[t->line];
    coll_call d = t->is_message ? message_call(&t->message, l->me) : t->part.call;
    coll_status status;

    task_name(t, now.what[a->rank], WHAT_LENGTH);
    if (!t->is_message && own(a, 16) == 0) d.timeout_ms = STALL_TIMEOUT_MS;
    if (t->part.entered) __atomic_add_fetch(t->part.entered, 1, __ATOMIC_RELAXED);
    status = model_begin(l->comm, &d, t->style, &t->request);
    if (is_left_out(a, t, &d, status)) return;
    if (status == COLL_ERR_UNSUPPORTED && d.algorithm) {           /* the same on every rank                   */
        d.algorithm = t->part.call.algorithm = NULL;
        status = model_begin(l->comm, &d, t->style, &t->request);
    }
    if (!t->request || status) {
        task_evaluate(a, t, status);
        task_free(t);
        return;
    }
    fly(a, t);
    while (a->flights == FLYING_MOST && !a->is_over) land_one(a);
}

static task *task_make(actor *a, int of_line)
{
    task *t = support_need(calloc(1, sizeof *t));

    t->line = of_line;
    t->step = a->step;
    return t;
}

/* ---- >>draws: any collective ---- */

static void draw_cell(model_call *c, uint64_t random)
{
    static const coll_type blobs[] = { COLL_BLOB(1), COLL_BLOB(3), COLL_BLOB(24), COLL_BLOB(100) };

    for (uint64_t i = random;; i = support_mix(i)) {
        const uint64_t pick = i % (MODEL_TYPE_COUNT + 2);
        c->type = pick < MODEL_TYPE_COUNT ? model_types[pick].type : blobs[(i >> 32) % 4];
        c->op = (coll_op)((i >> 40) % (COLL_USER + 1));
        if (c->kind == COLL_ALLREDUCE_LIST && c->op == COLL_USER) continue;
        if (c->op == COLL_AVG && (c->kind == COLL_SCAN || c->kind == COLL_EXSCAN)) continue;
        if (!there_type(c->type) && (i >> 50) % 8) continue;      /* to be refused, but not most of them      */
        if (model_cell_of(c->type, c->op) == MODEL_YES) break;
    }
}

/* Flags whose results the model can calculate: if no bit is lost, nothing is rounded at random. */
static void draw_flags(model_call *c, uint64_t random)
{
    const model_class class = model_type_of(c->type).class;
    const bool is_scan = c->kind == COLL_SCAN || c->kind == COLL_EXSCAN, is_list = c->kind == COLL_ALLREDUCE_LIST;
    const coll_type narrow = c->wire ? c->wire : c->type;
    const bool is_rounded = (class == MODEL_FLOAT && narrow < COLL_F32 && c->op == COLL_AVG) || narrow == COLL_F8E4M3
                         || narrow == COLL_F8E5M2 || (c->data != MODEL_EXACT && narrow < COLL_F32 && class == MODEL_FLOAT);

    if (random % 4 == 0) c->flags |= COLL_DETECT_OVERFLOW;
    if ((random >> 4) % 4 == 0 && !is_rounded && !is_list) c->flags |= COLL_STOCHASTIC;
    if ((random >> 8) % 3 == 0 && c->op != COLL_USER && (c->op != COLL_PROD || is_scan)) c->flags |= COLL_REPRODUCIBLE;
}

/* Rounding, flags, wire: what only some cells have. */
static void draw_numbers(model_call *c, uint64_t random)
{
    static const double scales[] = { 0.5, 2, 0.25, -1 };
    static const coll_type wires[] = { COLL_F16, COLL_BF16, COLL_F8E4M3, COLL_F8E5M2, COLL_F32 };
    const model_class class = model_type_of(c->type).class;
    const bool is_float = class == MODEL_FLOAT && c->kind != COLL_ALLREDUCE_LIST;
    const bool has_largest = c->type == COLL_F16 || c->type == COLL_F8E4M3 || c->type == COLL_F8E5M2;

    c->data = (model_data)(random % 3);
    c->commutes = random >> 8 & 1;
    if (random >> 9 & 1) c->flags |= COLL_DETERMINISTIC;
    if (c->data == MODEL_SPECIAL && (class == MODEL_COMPLEX || model_is_logical(c->op))) c->data = MODEL_EXACT;
    if (c->data == MODEL_RANDOM && (class == MODEL_COMPLEX && c->op == COLL_PROD)) c->data = MODEL_EXACT;
    const bool can_scale = is_float && c->data != MODEL_SPECIAL && model_is_sum(c->op);
    if (can_scale && (random >> 12) % 4 == 0) c->scale = scales[(random >> 16) % 4];
    const coll_type wire = wires[(random >> 24) % 5];
    const bool fits = is_float && model_type_of(wire).size <= model_type_of(c->type).size;
    if (fits && c->op <= COLL_AVG && (random >> 20) % 3 == 0) c->wire = wire;
    if (c->data != MODEL_EXACT && c->wire && c->wire != COLL_F16 && c->wire != COLL_BF16) c->flags |= COLL_DETERMINISTIC;
    if (is_float && has_largest && !c->wire && c->data == MODEL_RANDOM && (random >> 28) % 3 == 0) c->flags |= COLL_SATURATE;
    if (c->flags & COLL_SATURATE) c->flags |= COLL_DETERMINISTIC;
    if (c->kind == COLL_ALLREDUCE_LIST && c->data == MODEL_SPECIAL) c->data = MODEL_EXACT;
    if (c->kind == COLL_ALLREDUCE_LIST) c->data = MODEL_EXACT, c->flags = 0;
    if (c->data == MODEL_SPECIAL) c->flags |= COLL_DETERMINISTIC;
    draw_flags(c, random >> 32);
}

static size_t draw_count(uint64_t random, bool is_big)
{
    static const size_t counts[] = { 0, 1, 2, 3, 5, 7, 16, 17, 33, 64, 100, 255, 1000, 1025, 3001, 100003 };
    const size_t count = counts[random % 16];
    return count > 1100 && (!is_big || (random >> 32) % 4) ? 19 : count;
}

/* A call of the group that this rank has in the line; draws do not depend on the group, so that all lines stay in step. */
static model_call draw_call(const actor *a, const line *l, int at)
{
    const model_kind *k = &model_kinds[drawn(a, at) % MODEL_KIND_COUNT];
    const uint64_t random = drawn(a, at + 1), name = drawn(a, at + 2);
    model_call c = { .size = l->count, .seed = drawn(a, at + 3), .list_count = 1 + (int)(random % MODEL_LIST_MOST) };
    int names = 0;

    if (k->is_neighbor && !l->has_graph && COLL__HAS_NEIGHBOR) k = model_kind_of(COLL_ALLTOALLV);
    c.kind = k->kind;
    c.data_seed = c.seed;
    c.root = (int)(random % (uint64_t)l->count);
    c.is_symmetric = random >> 40 & 1;
    c.graph = l->graph;
    c.count = draw_count(random >> 8, !k->is_v && !k->is_neighbor && k->kind != COLL_ALLTOALL);
    c.commutes = true;
    draw_cell(&c, drawn(a, at + 4));
    if (k->is_reducing) draw_numbers(&c, drawn(a, at + 5));
    else c.op = COLL_SUM;
    if (model_type_of(c.type).size > 16 && c.count > 5000) c.count = 501;
    if (!model_is_fixed(&c) && c.count > 5000) c.flags |= COLL_DETERMINISTIC;
    while (names < 8 && k->algorithms[names]) names++;
    if (names && name % 3 == 0) c.algorithm = k->algorithms[(name >> 8) % (uint64_t)names];
    return c;
}

/* Some algorithms have a number; the text must live as long as the call. */
static const char *numbered(const char *algorithm, uint64_t random)
{
    static const char *const names[] = { "circulant:2", "circulant:3", "circulant:5", "tree:2", "tree:4", "blocks:3", "blocks:16",
                                         "chain:4", "chain:9", "scatter:3", "far:3" };
    const size_t length = algorithm ? strlen(algorithm) : 0;

    if (!algorithm || random % 2) return algorithm;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t at = (i + random / 2) % (sizeof names / sizeof *names);
        if (!strncmp(names[at], algorithm, length) && names[at][length] == ':') return names[at];
    }
    return algorithm;
}

static model_form draw_form(actor *a, const model_call *c, int me)
{
    const model_form form = (model_form)own(a, MODEL_FORM_COUNT);
    return model_has_form(c, me, form) ? form : MODEL_OUT;
}

static void collective_step(actor *a, int of_line, int at)
{
    line *l = &a->lines[of_line];

    a->operation++;
    if (!l->comm || a->is_over) return;
    model_call c = draw_call(a, l, at);
    task *t = task_make(a, of_line);
    handshake *m = handshake_of(a, l);

    c.algorithm = numbered(c.algorithm, drawn(a, at + 6));
    t->style = (model_style)own(a, MODEL_STYLE_COUNT);
    if (t->style == MODEL_PREPARED) t->style = MODEL_START;        /* that choice is not each rank's own       */
    model_part_make(&t->part, &c, l->me, draw_form(a, &c, l->me));
    t->part.agreed = &m->agreed;
    if (c.kind == COLL_BARRIER) t->part.entered = &m->entered;
    task_begin(a, t);
}

/* ---- >>messages: sources and destinations ---- */

static task *message_make(actor *a, int of_line, int base_draw)
{
    task *t = task_make(a, of_line);
    const uint64_t random = drawn(a, base_draw);
    const uint64_t pick = random % (MODEL_TYPE_COUNT + 1);

    t->is_message = true;
    t->message = (message){ .seed = drawn(a, base_draw + 1), .tag = a->step, .real_tag = a->step, .real_source = MODEL_NONE };
    t->message.type = pick < MODEL_TYPE_COUNT ? model_types[pick].type : COLL_BLOB(37);
    t->message.base = draw_count(random >> 8, false);
    if ((random >> 50) % 16 == 0) t->message.base = 20011;
    return t;
}

static void message_begin(actor *a, task *t, model_style style)
{
    t->style = style;
    message_prepare(&t->message, a->lines[t->line].me);
    task_begin(a, t);
}

static model_style message_style(actor *a)
{
    static const model_style styles[] = { MODEL_BLOCKING, MODEL_REQUEST, MODEL_RUN, MODEL_START };
    return styles[own(a, 4)];
}

/* From one rank to another, perhaps itself, which then starts the send first and does not wait for it. */
static void pair_step(actor *a, int of_line)
{
    line *l = &a->lines[of_line];

    if (!l->comm) return;
    const int source = (int)(drawn(a, 20) % (uint64_t)l->count), dest = (int)(drawn(a, 21) % (uint64_t)l->count);
    if (model_is_gpu(world) && source == dest && l->me == dest) {      /* there, the two are one call               */
        task *t = message_make(a, of_line, 22);
        t->message.sends = t->message.receives = true;
        t->message.dest = t->message.source = t->message.real_source = dest;
        message_begin(a, t, message_style(a));
        return;
    }
    if (l->me == source) {
        task *t = message_make(a, of_line, 22);
        t->message.sends = true;
        t->message.dest = dest;
        message_begin(a, t, source == dest ? MODEL_REQUEST : message_style(a));
    }
    if (l->me == dest && !a->is_over) {
        task *t = message_make(a, of_line, 22);
        t->message.receives = true;
        t->message.source = own(a, 3) || model_is_gpu(world) ? source : COLL_ANY_SOURCE;
        t->message.real_source = source;
        if (t->message.source == source && !model_is_gpu(world) && own(a, 3) == 0) t->message.tag = COLL_ANY_TAG;
        message_begin(a, t, message_style(a));
    }
}

/* All ranks send to one rank, which receives from any source.  No other step uses the tag. */
static void fan_step(actor *a, int of_line, bool any_tag)
{
    line *l = &a->lines[of_line];

    if (!l->comm) return;
    const int root = (int)(drawn(a, 20) % (uint64_t)l->count);
    if (l->me != root) {
        task *t = message_make(a, of_line, 22);
        t->message.sends = true;
        t->message.dest = root;
        message_begin(a, t, message_style(a));
        return;
    }
    for (int i = 1; i < l->count && !a->is_over; i++) {
        task *t = message_make(a, of_line, 22);
        t->message.receives = true;
        t->message.source = COLL_ANY_SOURCE;
        if (model_is_gpu(world)) t->message.source = t->message.real_source = (root + i) % l->count;
        if (any_tag && !model_is_gpu(world)) t->message.tag = COLL_ANY_TAG;
        message_begin(a, t, own(a, 2) ? MODEL_REQUEST : MODEL_BLOCKING);
    }
}

/* Everyone sends to the one `distance` further on, and receives from the one before, at once. */
static void ring_step(actor *a, int of_line)
{
    line *l = &a->lines[of_line];

    if (!l->comm) return;
    const int distance = (int)(drawn(a, 20) % (uint64_t)l->count);
    task *t = message_make(a, of_line, 22);
    t->message.sends = t->message.receives = true;
    t->message.dest = (l->me + distance) % l->count;
    t->message.source = t->message.real_source = (l->me - distance + l->count) % l->count;
    message_begin(a, t, message_style(a));
}

/* ---- >>prepared calls ---- */

static void prepared_discard(actor *a, int slot)
{
    task *t = a->prepared[slot];

    a->prepared[slot] = NULL;
    if (t) task_free(t);
}

static void prepare_step(actor *a, int of_line)
{
    const int slot = (int)(drawn(a, 20) % PREPARED_MOST);
    line *l = &a->lines[of_line];

    prepared_discard(a, slot);
    if (!l->comm) return;
    const model_call c = draw_call(a, l, 21);
    task *t = task_make(a, of_line);
    t->style = MODEL_PREPARED;
    model_part_make(&t->part, &c, l->me, draw_form(a, &c, l->me));
    task_name(t, now.what[a->rank], WHAT_LENGTH);
    coll_status status = coll_prepare(l->comm, &t->part.call, &t->request);
    if (is_left_out(a, t, &t->part.call, status)) return;
    if (status == COLL_ERR_UNSUPPORTED && c.algorithm) {
        t->part.call.algorithm = NULL;
        status = coll_prepare(l->comm, &t->part.call, &t->request);
    }
    if (status) {
        task_evaluate(a, t, status);
        task_free(t);
        return;
    }
    a->prepared[slot] = t;
}

/* Start those that the step names, each rank in its own order; do something else; wait for them. */
static void restart_step(actor *a, int of_line)
{
    const uint64_t mask = drawn(a, 20);
    task *running[PREPARED_MOST];
    int n = 0;

    for (int i = 0; i < PREPARED_MOST; i++) {
        a->operation++;
        task *t = a->prepared[i];
        if (!t || !(mask >> i & 1)) continue;
        handshake *m = handshake_of(a, &a->lines[t->line]);
        t->step = a->step;
        t->part.agreed = &m->agreed;
        t->part.entered = t->part.c.kind == COLL_BARRIER ? &m->entered : NULL;
        t->part.c.data_seed = drawn(a, 21 + i);
        model_part_fill(&t->part);
        const int j = model_is_gpu(world) ? n : (int)own(a, (uint64_t)n + 1);
        running[n++] = running[j];
        running[j] = t;
    }
    for (int i = 0; i < n && !a->is_over; i++) {
        task_name(running[i], now.what[a->rank], WHAT_LENGTH);
        if (running[i]->part.entered) __atomic_add_fetch(running[i]->part.entered, 1, __ATOMIC_RELAXED);
        const coll_status status = coll_restart(running[i]->request);
        if (status) task_evaluate(a, running[i], status);
    }
    if (mask >> 20 & 1) collective_step(a, of_line, 40);
    while (n && !a->is_over) {
        const int pick = (int)own(a, (uint64_t)n);
        task_name(running[pick], now.what[a->rank], WHAT_LENGTH);
        task_evaluate(a, running[pick], coll_wait(running[pick]->request));
        running[pick] = running[--n];
    }
}

/* ---- >>communicators ---- */

static void free_closed(actor *a, bool all)
{
    while (a->closed_count && (all || a->closed_count == CLOSED_MOST || own(a, 3) == 0)) {
        const int pick = (int)own(a, (uint64_t)a->closed_count);
        coll_comm *comm = a->closed[pick];
        a->closed[pick] = a->closed[--a->closed_count];
        say(a, "coll_free");
        const coll_status status = coll_free(comm);
        if (status) fail(a, a->step, "coll_free", coll_status_text(status));
    }
}

/* Make room for another line: what is still going on there ends first. */
static void line_end(actor *a, int i)
{
    line *l = &a->lines[i];

    if (!l->exists) return;
    if (l->comm) {
        for (int k = 0; k < PREPARED_MOST; k++)
            if (a->prepared[k] && a->prepared[k]->line == i) prepared_discard(a, k);
        land_all(a, i);
        quiet(a, i);
        if (a->is_over) return;
        a->closed[a->closed_count++] = l->comm;
    }
    *l = (line){ .exists = false };
    free_closed(a, false);
}

/* Is the new communicator the expected one?  Ranks, and their ranks in the world. */
static void line_check(actor *a, const line *l, const char *what)
{
    bool is_right = l->comm && coll_size(l->comm) == l->count && coll_rank(l->comm) == l->me;

    for (int i = 0; is_right && i < l->count; i++) is_right = coll_world_rank(l->comm, i) == l->ranks[i];
    is_right = is_right && coll_world_rank(l->comm, l->count) == COLL_RANK_NONE && coll_world_rank(l->comm, -1) == COLL_RANK_NONE;
    if (!is_right) fail(a, a->step, what, "the new communicator has other ranks");
}

static int split_color(uint64_t random) { return (random >> 20) % 4 == 0 ? COLL_COLOR_NONE : (random >> 20) % 4 == 1 ? 0 : 1; }

/* The group that this rank gets from a split by colors and keys that all ranks can draw. */
static void split_draw(const actor *a, const line *from, line *to, int *color, int *key)
{
    int keys[RANKS_MOST];

    for (int r = 0; r < from->count; r++) {
        const uint64_t random = support_mix(drawn(a, 21) + (uint64_t)from->ranks[r]);
        keys[r] = (int)(random % 5) - 2;
        if (r == from->me) *color = split_color(random), *key = keys[r];
    }
    *to = (line){ .exists = true };
    for (int k = -2; k <= 2; k++) {
        for (int r = 0; r < from->count; r++) {
            const uint64_t random = support_mix(drawn(a, 21) + (uint64_t)from->ranks[r]);
            if (keys[r] != k || split_color(random) != *color) continue;
            if (r == from->me) to->me = to->count;
            to->ranks[to->count++] = from->ranks[r];
        }
    }
}

static void split_step(actor *a, const line *from, line *to)
{
    int color = 0, key = 0;

    split_draw(a, from, to, &color, &key);
    const coll_status status = coll_split(from->comm, color, key, &to->comm);
    if (status) fail_call(a, from, "coll_split", status);
    else if (color != COLL_COLOR_NONE) line_check(a, to, "coll_split");
    else if (to->comm) fail(a, a->step, "coll_split", "COLL_COLOR_NONE gives a communicator");
}

/* Some ranks, in another order; the others do not call. */
static void create_step(actor *a, const line *from, line *to)
{
    int list[RANKS_MOST], n = 0;

    *to = (line){ .exists = true, .me = -1 };
    for (int r = 0; r < from->count; r++) {
        const uint64_t random = support_mix(drawn(a, 21) + (uint64_t)from->ranks[r]);
        if (random % 4 == 0) continue;
        const int at = (int)((random >> 8) % (uint64_t)(n + 1));
        list[n++] = list[at];
        list[at] = r;
    }
    for (int i = 0; i < n; i++) {
        if (list[i] == from->me) to->me = i;
        to->ranks[i] = from->ranks[list[i]];
    }
    to->count = n;
    if (to->me < 0) return;
    const coll_status status = coll_create(from->comm, list, n, a->step, &to->comm);
    if (status) fail_call(a, from, "coll_create", status);
    else line_check(a, to, "coll_create");
}

/* Which ranks share a host is not known here; but all of such a group must agree, and it must work. */
static void host_step(actor *a, int of_line)
{
    const line *from = &a->lines[of_line];
    coll_comm *host = NULL;
    int32_t sum = 1;
    int me = -1;

    if (!from->comm || model_is_gpu(world)) return;             /* the sum below is in host memory          */
    const coll_status split = coll_split_host(from->comm, &host);
    if (split) {
        fail_call(a, from, "coll_split_host", split);
        return;
    }
    for (int i = 0; i < coll_size(host); i++)
        if (coll_world_rank(host, i) == a->rank) me = i;
    const coll_status status = coll_allreduce(host, &sum, &sum, 1, COLL_I32, COLL_SUM);
    const bool has_hosts = model_is_simulated(a->p->world) || !strcmp(a->p->world, "rails");
    const bool shares_all = has_hosts || coll_size(host) == from->count;
    if (status || sum != coll_size(host) || me != coll_rank(host) || !shares_all)
        fail(a, a->step, "coll_split_host", status ? coll_error(host) : "the group is not the ranks of this host");
    if (coll_free(host)) fail(a, a->step, "coll_split_host", "coll_free");
}

/* Messages of any tag from any source, on their own communicator, so that they match no others. */
static void wild_step(actor *a, int of_line)
{
    line *l = &a->lines[of_line];
    coll_comm *const original = l->comm;

    if (!original) return;
    land_all(a, of_line);
    const coll_status status = a->is_over ? COLL_ERR_ABORTED : coll_dup(original, &l->comm);
    if (status) {
        l->comm = original;
        fail_call(a, l, "coll_dup", status);
        return;
    }
    fan_step(a, of_line, true);
    land_all(a, of_line);
    if (!a->is_over && coll_barrier(l->comm)) fail(a, a->step, "barrier of a copy", coll_error(l->comm));
    if (coll_free(l->comm)) fail(a, a->step, "a copy", "coll_free");
    l->comm = original;
}

static void communicator_step(actor *a, int of_line)
{
    const int target = 1 + (int)(drawn(a, 20) % (LINES - 1)), how = (int)(drawn(a, 22) % 4);
    line made = { .exists = true };

    if (target == of_line) return;
    line_end(a, target);
    const line *from = &a->lines[of_line];
    if (a->is_over) return;
    say(a, "making a communicator");
    if (!from->comm) {
        a->lines[target] = made;
        return;
    }
    if (how == 0) {
        made = *from;
        made.has_graph = false;
        made.graph.count = 0;
        const coll_status status = coll_dup(from->comm, &made.comm);
        if (status) fail_call(a, from, "coll_dup", status);
        else line_check(a, &made, "coll_dup");
    } else if (how == 1) {
        create_step(a, from, &made);
    } else {
        split_step(a, from, &made);
    }
    a->lines[target] = made;
}

static void graph_step(actor *a, int of_line)
{
    line *l = &a->lines[of_line];

    if (!l->comm) return;
    say(a, "coll_neighbors");
    for (int i = 0; i < PREPARED_MOST; i++) {     /* a prepared call is planned for the neighbors it was made with */
        const task *t = a->prepared[i];
        if (t && t->line == of_line && model_kind_of(t->part.c.kind)->is_neighbor) prepared_discard(a, i);
    }
    l->graph = model_graph_make(drawn(a, 20), l->count);
    l->has_graph = true;
    const coll_status status = model_graph_set(l->comm, &l->graph, l->me), due = COLL__HAS_NEIGHBOR ? COLL_OK
                                                                                                : COLL_ERR_UNSUPPORTED;
    if (status != due) fail_call(a, l, "coll_neighbors", status);
}

/* ---- >>steps ---- */

static void take_step(actor *a)
{
    const uint64_t kind = drawn(a, 0) % 100;
    int of_line = (int)(drawn(a, 1) % (LINES + 2));

    if (of_line >= LINES || !a->lines[of_line].exists) of_line = 0;
    if (kind < 50) collective_step(a, of_line, 2);
    else if (kind < 60) pair_step(a, of_line);
    else if (kind < 65) fan_step(a, of_line, false);
    else if (kind < 70) ring_step(a, of_line);
    else if (kind < 75) prepare_step(a, of_line);
    else if (kind < 84) restart_step(a, of_line);
    else if (kind < 92) communicator_step(a, of_line);
    else if (kind < 95) graph_step(a, of_line);
    else if (kind < 96) host_step(a, of_line);
    else if (kind < 97) wild_step(a, of_line);
    else quiet(a, of_line);
    for (int n = (int)own(a, 3); n && a->flights && !a->is_over; n--) land_one(a);
    if (own(a, 8) == 0 && !a->is_over && coll_progress(a->lines[0].comm) < 0)
        fail_call(a, &a->lines[0], "coll_progress", COLL_ERR_SYSTEM);
}

/* Finish and free everything.  After a failure nothing is freed: operations in flight still use their buffers. */
static void wind_up(actor *a)
{
    land_all(a, -1);
    if (a->is_over) return;
    for (int i = 0; i < PREPARED_MOST; i++) prepared_discard(a, i);
    for (int i = 0; i < LINES; i++) quiet(a, i);
    if (!a->is_over && a->detachments) fail(a, a->step, "winding up", "what was let go of has no line any more");
    for (int i = 1; i < LINES; i++)
        if (a->lines[i].comm) a->closed[a->closed_count++] = a->lines[i].comm;
    free_closed(a, true);
}

static int act(coll_comm *comm, void *arg)
{
    program *p = arg;
    actor *a = support_need(calloc(1, sizeof *a));

    *a = (actor){ .p = p, .rank = coll_rank(comm), .own = support_mix(p->seed + (uint64_t)coll_rank(comm) + 77) };
    a->lines[0] = (line){ .exists = true, .comm = comm, .count = p->size, .me = a->rank };
    for (int i = 0; i < p->size; i++) a->lines[0].ranks[i] = i;
    for (; a->step < p->steps && !a->is_over; a->step++) {
        now.step[a->rank] = a->step;
        a->operation = a->step * OPERATIONS_A_STEP;
        take_step(a);
        if (__atomic_load_n(&p->failed, __ATOMIC_ACQUIRE)) a->is_over = true;
    }
    wind_up(a);
    free(a);
    return 0;
}

/* ---- >>running ---- */

static void program_case(const void *arg)
{
    program p = *(const program *)arg;
    const coll_config config = { .stall_timeout_ms = STALL_TIMEOUT_MS };

    now.p = &p;
    support_limit_report = report_ranks;
    p.handshakes = support_need(calloc((size_t)(p.steps * OPERATIONS_A_STEP * p.size), sizeof *p.handshakes));
    const int failed = model_run(p.world, p.size, &config, act, &p);
    CHECK(failed == 0 && !__atomic_load_n(&p.failed, __ATOMIC_ACQUIRE), "%s, %d ranks, seed %llu, %d steps: %s", p.world,
          p.size, (unsigned long long)p.seed, p.steps, failed ? "the world could not be run" : "failed as told above");
    free(p.handshakes);
}

typedef struct options {
    const char *world;
    int         ranks, steps;
    uint64_t    seed;
    bool        one_seed, is_verbose;
    double      seconds;
} options;

static int read_options(int argc, char **argv, options *o)
{
    bool has_minutes = false;

    *o = (options){ .steps = STEPS_USUAL, .seed = support_seed(), .seconds = 20 * support_scale() };
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(name, "--verbose")) {
            o->is_verbose = true;
            continue;
        }
        if (!strcmp(name, "--world")) o->world = value;
        else if (!strcmp(name, "--ranks")) o->ranks = atoi(value);
        else if (!strcmp(name, "--steps")) o->steps = atoi(value);
        else if (!strcmp(name, "--seed")) o->seed = strtoull(value, NULL, 0), o->one_seed = true;
        else if (!strcmp(name, "--minutes")) o->seconds = 60 * strtod(value, NULL), has_minutes = true;
        else return fprintf(stderr, "unknown option %s\n", name), 2;
        i++;
    }
    if (has_minutes) o->one_seed = false;         /* then the seed is the first of many                       */
    if (o->steps < 1 || o->ranks < 0 || o->ranks > RANKS_MOST) return fprintf(stderr, "1 to %d ranks\n", RANKS_MOST), 2;
    return 0;
}

static void run_program(const options *o, const char *name, int size, uint64_t seed)
{
    const program p = { .world = name, .size = size, .steps = o->steps, .seed = seed };
    const double begin = support_seconds();
    char text[120];

    world = name;
    snprintf(text, sizeof text, "%d ranks, seed %llu, %d steps", size, (unsigned long long)seed, o->steps);
    run_case_within(PROGRAM_SECONDS, program_case, &p, text);
    if (o->is_verbose) printf("%s, %s: %.2f s\n", name, text, support_seconds() - begin);
}

int main(int argc, char **argv)
{
    static const int sizes[] = { 3, 2, 5, 4, 9, 7, 6, 8 };
    const double begin = support_seconds();
    bool usable[MODEL_WORLD_COUNT];
    options o;
    int programs = 0;

    if (read_options(argc, argv, &o)) return 2;
    cases_begin();
    for (int w = 0; w < MODEL_WORLD_COUNT; w++) {
        const bool is_wanted = support_listed(o.world, model_worlds[w]);
        const char *refusal = is_wanted ? model_refusal(model_worlds[w]) : NULL;
        if (refusal) printf("%s: skipped: %s\n", model_worlds[w], refusal);
        usable[w] = is_wanted && !refusal;
    }
    for (int i = 0; i == 0 || (!o.one_seed && support_seconds() - begin < o.seconds); i++) {
        for (int w = 0; w < MODEL_WORLD_COUNT; w++) {
            const int size = o.ranks ? o.ranks : sizes[(i + w) % 8];
            if (i && support_seconds() - begin >= o.seconds) break;
            if (usable[w]) run_program(&o, model_worlds[w], size, o.seed + (uint64_t)i), programs++;
        }
    }
    printf("test_random: %d programs of %d steps, seeds from %llu, %.1f s\n", programs, o.steps, (unsigned long long)o.seed,
           support_seconds() - begin);
    CHECK(check__passed + check__failed > 0 && programs > 0, "nothing was run");
    return CHECK_DONE();
}
