/* test_eager.c - inputs around the limit between the eager and the direct protocol: every kind, each call checked element by
 * element; some ranks are late.  The same with several calls under way at once.  Every kind of sum has the same bits in both
 * protocols.  And elements so long that their sums need memory of their own.
 *
 *     test_eager [WORLD,...] */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "rounds.h"

enum { SECONDS = 100, CALLS = 60, OVERLAPPING = 6 };

typedef struct eager_case { int size; coll_kind kind; coll_type type; coll_op op; unsigned flags; } eager_case;

/* The last operation of this rank that was direct. */
static uint64_t last_direct(const coll_comm *comm)
{
    return __atomic_load_n(&side_of(comm)->all.own->done, __ATOMIC_RELAXED);
}

/* Now and then a rank is late. */
static void be_late(uint64_t *state)
{
    if (support_random(state) % 8) return;
    for (unsigned long i = support_random(state) % 20000; i > 0; i--) coll__relax();
}

/* Elements of a result whose input is the longest eager one, or a little longer. */
static size_t length_of(const coll_comm *comm, coll_kind kind, bool is_long)
{
    const coll__member *const m = &side_of(comm)->all;
    const size_t n = (size_t)coll_size(comm), most = coll__bounce_most(m, coll__form_of(kind)) / sizeof(float);
    const size_t input = is_long ? most + 2 * n : most - 2 * n;

    switch (kind) {
    case COLL_REDUCE_SCATTER:              return input / n;
    case COLL_ALLGATHER: case COLL_GATHER: return (input - 1) * n;
    default:                               return input;
    }
}

static int kinds_worker(coll_comm *comm, void *arg)
{
    const eager_case *const c = (const eager_case *)arg;
    const int me = coll_rank(comm);
    uint64_t late = support_seed() + (uint64_t)me;

    for (int is_long = 0; is_long < 2; is_long++) {
        const round_shape shape = round_shape_of(c->kind, me, c->size, length_of(comm, c->kind, is_long));
        float *const x = (float *)support_need(malloc((shape.in + shape.out) * sizeof *x)), *const y = x + shape.in;
        for (int round = 0; round < CALLS; round++) {
            const coll_call call = round_begin(&shape, x, y, round);
            const uint64_t before = last_direct(comm);
            be_late(&late);
            CHECK(coll_run(comm, &call) == COLL_OK, "%s: %s", case_name, coll_error(comm));
            CHECK((last_direct(comm) > before) == is_long, "%s: an input for %zu elements took the other way", case_name,
                  shape.count);
            const size_t wrong = round_wrong(&shape, y, round);
            CHECK(wrong == 0, "%s: call %d of %zu: %zu elements of rank %d are wrong", case_name, round, shape.count, wrong, me);
        }
        free(x);
    }
    return 0;
}

/* Calls of all kinds under way at once; some queued behind others are begun before their turn, and some are blocking. */
static int overlapping_worker(coll_comm *comm, void *arg)
{
    const eager_case *const c = (const eager_case *)arg;
    const int me = coll_rank(comm);
    uint64_t state = support_seed(), late = state + (uint64_t)me;
    round_shape shapes[OVERLAPPING];
    float *x[OVERLAPPING];

    for (int i = 0; i < OVERLAPPING; i++) x[i] = (float *)support_need(malloc((4u << 17) * (size_t)c->size));
    for (int round = 0; round < CALLS; round++) {
        coll_request *requests[OVERLAPPING];
        const int many = round % 3 ? 1 + (int)(support_random(&state) % OVERLAPPING) : 1;
        for (int i = 0; i < many; i++) {
            const coll_kind kind = round_kinds[support_random(&state) % (sizeof round_kinds / sizeof *round_kinds)];
            shapes[i] = round_shape_of(kind, me, c->size, length_of(comm, kind, support_random(&state) % 2));
            const coll_call call = round_begin(&shapes[i], x[i], x[i] + shapes[i].in, round + i);
            be_late(&late);
            CHECK(coll_start(comm, &call, &requests[i]) == COLL_OK, "%s: %s", case_name, coll_error(comm));
        }
        CHECK(coll_wait_all(many, requests) == COLL_OK, "%s: %s", case_name, coll_error(comm));
        for (int i = 0; i < many; i++) {
            const size_t wrong = round_wrong(&shapes[i], x[i] + shapes[i].in, round + i);
            CHECK(wrong == 0, "%s: round %d: %s: %zu elements of rank %d are wrong", case_name, round,
                  coll_kind_name(shapes[i].kind), wrong, me);
            coll_request_free(requests[i]);
        }
    }
    for (int i = 0; i < OVERLAPPING; i++) free(x[i]);
    return 0;
}

/* ---- >>bits: what is added up as it is, in another type, divided, compared ---- */

static const eager_case sums[] = {
    { 3, COLL_ALLREDUCE, COLL_F16, COLL_SUM, 0 },
    { 3, COLL_ALLREDUCE, COLL_F64, COLL_AVG, 0 },
    { 3, COLL_ALLREDUCE, COLL_F32, COLL_SUM, COLL_REPRODUCIBLE },
    { 3, COLL_ALLREDUCE, COLL_F32, COLL_SUM, COLL_DETECT_OVERFLOW },
    { 3, COLL_ALLREDUCE, COLL_F32_I32, COLL_MINLOC, 0 },
    { 3, COLL_REDUCE, COLL_F8E4M3, COLL_SUM, 0 },
    { 3, COLL_REDUCE, COLL_C64, COLL_PROD, 0 },
    { 3, COLL_REDUCE_SCATTER, COLL_BF16, COLL_AVG, 0 },
    { 3, COLL_SCAN, COLL_BF16, COLL_SUM, 0 },
    { 3, COLL_SCAN, COLL_F32, COLL_SUM, COLL_REPRODUCIBLE },
    { 3, COLL_EXSCAN, COLL_F16, COLL_SUM, 0 },
};

/* The same call, eager and direct; bytes at random, some of them no numbers. */
static int bits_worker(coll_comm *comm, void *arg)
{
    const eager_case *const c = (const eager_case *)arg;
    const int me = coll_rank(comm), size = coll_size(comm);
    coll__member *const m = &side_of(comm)->all;
    const size_t n = (size_t)size, unit = coll_type_size(c->type), most = m->bounce_length;
    const size_t count = (most - 100) / unit / (c->kind == COLL_REDUCE_SCATTER ? n : 1), all = count * unit;
    unsigned char *const in = (unsigned char *)support_need(malloc(n * all));
    unsigned char *const out = (unsigned char *)support_need(calloc(2, all));
    uint64_t state = support_seed() + (uint64_t)me;

    for (size_t i = 0; i < n * all; i++) in[i] = (unsigned char)(support_random(&state) >> 32);
    for (int round = 0; round < 2; round++) {
        const uint64_t before = last_direct(comm);
        const coll_call call = { .kind = c->kind, .send = in, .recv = out, .count = count, .type = c->type, .op = c->op,
                                 .flags = c->flags };
        m->bounce_length = round ? COLL__EAGER_SHORT : most;
        const coll_status status = coll_run(comm, &call);
        CHECK(status >= 0, "%s: %s", case_name, coll_error(comm));
        CHECK((last_direct(comm) > before) == round, "%s: call %d took the other way", case_name, round);
        if (round == 0) memcpy(out + all, out, all);
        CHECK(!memcmp(out + all, out, all), "%s: rank %d: the direct call has other bits", case_name, me);
    }
    free(in);
    free(out);
    return 0;
}

/* ---- >>long elements ---- */

static void add_bytes(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    const unsigned char *const from = (const unsigned char *)in;
    unsigned char *const to = (unsigned char *)inout;

    (void)context;
    for (size_t i = 0; i < count * coll_type_size(type); i++) to[i] = (unsigned char)(to[i] + from[i]);
}

static int elements_worker(coll_comm *comm, void *arg)
{
    static const int lengths[] = { 1000, COLL__BLOCK, COLL__BLOCK + 1, 9001, 16384, 30000, 70000 };
    static const coll_kind kinds[] = { COLL_ALLREDUCE, COLL_REDUCE, COLL_SCAN, COLL_REDUCE_SCATTER };
    const int me = coll_rank(comm), size = coll_size(comm);

    (void)arg;
    for (int k = 0; k < 4 * 7; k++) {
        const coll_kind kind = kinds[k % 4];
        const size_t unit = (size_t)lengths[k / 4], in = unit * (kind == COLL_REDUCE_SCATTER ? (size_t)size : 1);
        const int last = kind == COLL_SCAN ? me : size - 1;
        unsigned char *const x = (unsigned char *)support_need(malloc(in));
        unsigned char *const y = (unsigned char *)support_need(malloc(unit));
        const coll_call call = { .kind = kind, .send = x, .recv = y, .count = 1, .type = COLL_BLOB((int)unit), .op = COLL_USER,
                                 .fn = add_bytes };
        for (int round = 0; round < 3; round++) {
            size_t wrong = 0;
            for (size_t i = 0; i < in; i++) x[i] = (unsigned char)(i + (size_t)(me * 5 + round));
            CHECK(coll_run(comm, &call) == COLL_OK, "%s: %s", case_name, coll_error(comm));
            for (size_t i = 0; i < unit && (kind != COLL_REDUCE || me == 0); i++) {
                unsigned sum = 0;
                for (int r = 0; r <= last; r++)
                    sum += (unsigned)(i + (kind == COLL_REDUCE_SCATTER ? (size_t)me * unit : 0) + (size_t)(r * 5 + round));
                wrong += y[i] != (unsigned char)sum;
            }
            CHECK(wrong == 0, "%s: %s of an element of %zu bytes: %zu of rank %d are wrong", case_name, coll_kind_name(kind),
                  unit, wrong, me);
        }
        free(x);
        free(y);
    }
    return 0;
}

/* ---- >>cases ---- */

typedef int eager_worker(coll_comm *comm, void *arg);
typedef struct eager_run { eager_case c; eager_worker *worker; } eager_run;

static void run_worker(const void *arg)
{
    eager_run run = *(const eager_run *)arg;
    CHECK(support_run(world, run.c.size, run.worker, &run.c) == 0, "%s", case_name);
}

static void start(eager_worker *worker, eager_case c, const char *what)
{
    const eager_run run = { c, worker };
    char name[120];

    snprintf(name, sizeof name, "%s of %d ranks, %s, %s, flags %u", coll_kind_name(c.kind), c.size, what, coll_type_name(c.type),
             c.flags);
    run_case_within(SECONDS, run_worker, &run, name);
}

int main(int argc, char **argv)
{
    static const int sizes[] = { 2, 3, 5 };

    cases_begin();
    for (int at = 0; (world = support_world_next(argc > 1 ? argv[1] : "threads,tcp-domain", &at)) != NULL;) {
        for (int s = 0; s < 3; s++) {
            for (size_t k = 0; k < sizeof round_kinds / sizeof *round_kinds; k++)
                start(kinds_worker, (eager_case){ sizes[s], round_kinds[k], COLL_F32, COLL_SUM, 0 }, "one by one");
            start(overlapping_worker, (eager_case){ sizes[s], COLL_ALLREDUCE, COLL_F32, COLL_SUM, 0 }, "overlapping");
            start(elements_worker, (eager_case){ sizes[s], COLL_ALLREDUCE, COLL_F32, COLL_SUM, 0 }, "long elements");
        }
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) start(bits_worker, sums[i], "the same bits");
    }
    return CHECK_DONE();
}
