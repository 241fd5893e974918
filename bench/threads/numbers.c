/* numbers.c - what element types cost, and what a call's flags cost: allreduce by coll.h between threads.
 *
 *     numbers RANKS BUDGET ELEMENTS[,ELEMENTS...] [TABLE]
 *     numbers 2 0.3 16K,16M                          0.3 s for each table and count
 *     numbers 2 0.3 16K "levels of f32"              that table alone
 *
 * Two kinds of tables, their contenders in turns in one process:
 *     types      the same number of elements of each type; a ratio is the time of f32 over that of the type
 *     levels     of one type, what each flag or wire type costs over the call without it
 * A call that the library does not have is a line "none".  Results are checked before they are timed, all elements, exactly. */
#include "../common/timing.h"

#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include <pthread.h>

/* What one allreduce differs in from another; zero as in coll_call. */
typedef struct variant {
    const char *name;
    coll_type type, wire;
    unsigned flags;
} variant;

static const variant types[] = {
    { "f32", COLL_F32, 0, 0 },       { "bf16", COLL_BF16, 0, 0 },     { "f16", COLL_F16, 0, 0 },
    { "f8e4m3", COLL_F8E4M3, 0, 0 }, { "f8e5m2", COLL_F8E5M2, 0, 0 }, { "f64", COLL_F64, 0, 0 },
};

/* The type is that of the table. */
static const variant levels[] = {
    { "default", 0, 0, 0 },
    { "deterministic", 0, 0, COLL_DETERMINISTIC },
    { "reproducible", 0, 0, COLL_REPRODUCIBLE },
    { "detect overflow", 0, 0, COLL_DETECT_OVERFLOW },
    { "stochastic", 0, 0, COLL_STOCHASTIC },
    { "wire f32", 0, COLL_F32, 0 },
    { "wire bf16", 0, COLL_BF16, 0 },
    { "wire f16", 0, COLL_F16, 0 },
    { "wire mxf8e4m3", 0, COLL_MXF8E4M3, 0 },
    { "wire mxi8", 0, COLL_MXI8, 0 },
};

enum { RANKS_MOST = 4, TYPES = sizeof types / sizeof *types, LEVELS = sizeof levels / sizeof *levels };

typedef struct rank {
    coll_comm *comm;
    bench_team team;
    double     budget_s;
    const char *only;                             /* the one table that is measured, or NULL                  */
    int        sizes;
    size_t     size[BENCH_SIZES], most;
    void      *send, *recv;
    float     *plain;                             /* the input, or the result, as f32                         */
    pthread_t  thread;
} rank;

typedef struct context {
    rank     *me;
    coll_call call;
} context;

/* ---- >>one call ---- */

static _Noreturn void fail(const rank *me, const variant *v, const char *why)
{
    fprintf(stderr, "numbers: %s, rank %d: %s\n", v->name, me->team.rank, why);
    exit(BENCH_WRONG);
}

static void run_call(void *argument, long i)
{
    context *const c = argument;

    (void)i;
    if (coll_run(c->me->comm, &c->call) == COLL_OK) return;
    fprintf(stderr, "numbers: %s\n", coll_error(c->me->comm));
    exit(1);
}

/* Few bits, so that inputs and sums are exact in every type: a power of two times the rank's number.  With more than four ranks
 * the sums would have more bits than f8e5m2. */
static float value(size_t i) { return (float)(1 << i % 1013 % 3); }

/* Does this call exist?  If so, is it right?  All ranks get the same answer to the first question. */
static bool is_there(context *c, const variant *v)
{
    rank *const me = c->me;
    const int n = me->team.ranks;
    const size_t count = c->call.count;
    void *const send = c->call.send == c->call.recv ? c->call.recv : me->send;

    for (size_t i = 0; i < count; i++) me->plain[i] = (float)(me->team.rank + 1) * value(i);
    if (coll_convert(send, c->call.type, me->plain, COLL_F32, count)) fail(me, v, "the input cannot be converted");
    const coll_status status = coll_run(me->comm, &c->call);
    if (status == COLL_ERR_UNSUPPORTED || status == COLL_ERR_ARGUMENT) return false;
    if (status) fail(me, v, coll_error(me->comm));
    if (coll_convert(me->plain, COLL_F32, me->recv, c->call.type, count)) fail(me, v, "the result cannot be converted");
    for (size_t i = 0; i < count; i++)
        if (me->plain[i] != (float)(n * (n + 1) / 2) * value(i)) fail(me, v, "a wrong sum");
    memset(me->send, 0, count * coll_type_size(c->call.type));
    memset(me->recv, 0, count * coll_type_size(c->call.type));
    return true;
}

/* ---- >>a table at one count ---- */

static void measure(rank *me, const char *table, const variant *variants, int n, coll_type type, size_t count, bool is_in_place)
{
    const bench_plan plan = { .budget_s = me->budget_s, .step = 1 };
    context contexts[BENCH_CONTENDERS];
    bench_contender contenders[BENCH_CONTENDERS];
    int found = 0;

    if (me->only && strcmp(me->only, table)) return;
    for (int v = 0; v < n; v++) {
        context *const c = &contexts[found];
        *c = (context){ .me = me, .call = { .kind = COLL_ALLREDUCE, .send = is_in_place ? me->recv : me->send, .recv = me->recv,
                                            .count = count, .type = type ? type : variants[v].type, .wire = variants[v].wire,
                                            .flags = variants[v].flags, .op = COLL_SUM, .seed = 1 } };
        if (is_there(c, &variants[v])) {
            contenders[found] = (bench_contender){ .name = variants[v].name, .op = run_call, .context = c,
                                                   .is_base = type ? found == 0 : found > 0 };
            found++;
        } else if (me->team.rank == 0) {
            bench_line("none", table, me->team.ranks, count, variants[v].name, (bench_figure){ 0 }, 0);
        }
    }
    bench_barrier(&me->team);
    const long sweeps = bench_measure(&me->team, contenders, found, &plan);
    bench_report(&me->team, contenders, found, sweeps, table, count);
}

/* Types are compared with the first of them, f32; levels with the first level, of the same type. */
static void *run(void *argument)
{
    static const coll_type of[] = { COLL_F32, COLL_BF16, COLL_F16, COLL_F64 };
    rank *const me = argument;
    char table[64];

    bench_pin(me->team.rank);
    me->send = bench_alloc(me->most * sizeof(double));
    me->recv = bench_alloc(me->most * sizeof(double));
    me->plain = bench_alloc(me->most * sizeof(float));
    for (int s = 0; s < me->sizes; s++) measure(me, "types, out of place", types, TYPES, 0, me->size[s], false);
    for (int s = 0; s < me->sizes; s++) measure(me, "types, in place", types, TYPES, 0, me->size[s], true);
    for (size_t t = 0; t < sizeof of / sizeof *of; t++)
        for (int s = 0; s < me->sizes; s++) {
            snprintf(table, sizeof table, "levels of %s", coll_type_name(of[t]));
            measure(me, table, levels, LEVELS, of[t], me->size[s], false);
        }
    free(me->send);
    free(me->recv);
    free(me->plain);
    return NULL;
}

int main(int argc, char **argv)
{
    static rank ranks[BENCH_RANKS];
    static coll_comm *comms[BENCH_RANKS];
    const int n = argc == 4 || argc == 5 ? atoi(argv[1]) : 0;

    if (n < 1 || n > RANKS_MOST) {
        fprintf(stderr, "usage: numbers RANKS BUDGET ELEMENTS,... [TABLE], with 1 to %d ranks\n", RANKS_MOST);
        return 2;
    }
    if (coll_init_threads(n, comms, NULL)) {
        fprintf(stderr, "numbers: %s\n", coll_error(NULL));
        return 1;
    }
    bench_shared *const shared = bench_share(NULL);
    const bool is_crowded = n > bench_find_processors();
    for (int r = 0; r < n; r++) {
        rank *const me = &ranks[r];
        *me = (rank){ .comm = comms[r], .team = { .shared = shared, .rank = r, .ranks = n, .is_crowded = is_crowded },
                      .budget_s = atof(argv[2]), .only = argv[4] };
        me->sizes = bench_sizes(argv[3], me->size);
        for (int s = 0; s < me->sizes; s++) if (me->size[s] > me->most) me->most = me->size[s];
    }
    for (int r = 1; r < n; r++) {
        if (!pthread_create(&ranks[r].thread, NULL, run, &ranks[r])) continue;
        perror("numbers: pthread_create");
        return 1;
    }
    run(&ranks[0]);
    for (int r = 1; r < n; r++) pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < n; r++) coll_free(comms[r]);
    return 0;
}
