/* test_steady.c - a program that repeats the same calls allocates nothing for them after the first ones.
 * Not held to it: the simulator, which keeps what is under way; and messages and prepared calls with messages of more than 8 KiB
 * and up to 64 KiB, which are buffered if they arrive early.
 *
 *     test_steady [WORLD,...]                       of threads, sim, tcp; with all of them where none is named */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/counting_allocator.h"

enum { MOST = 20000, RANKS = 2, WARM = 4, AGAIN = 24, TURNS = 10 };

typedef enum form_of_call { BLOCKING, REQUEST, RESTARTED, FORMS } form_of_call;
static const char *const form_names[] = { "blocking", "by request", "prepared" };

static const coll_kind kinds[] = {
    COLL_BARRIER, COLL_BROADCAST, COLL_REDUCE, COLL_ALLREDUCE, COLL_REDUCE_SCATTER, COLL_SCAN, COLL_GATHER, COLL_SCATTER,
    COLL_ALLGATHER, COLL_ALLTOALL, COLL_SENDRECV,
};
static const coll_type types[] = { COLL_F32, COLL_F64, COLL_BF16, COLL_I32 };
static const size_t counts[] = { 1, 300, MOST };

typedef struct trial { const char *world; counter counter; long checked, turns; } trial;
typedef struct buffers { double in[RANKS * MOST], out[RANKS * MOST]; } buffers;

/* The call once, in this form. */
static coll_status call_once(coll_comm *comm, const coll_call *call, form_of_call form, coll_request *prepared)
{
    coll_request *r = prepared;
    coll_status status;

    if (form == BLOCKING) return coll_run(comm, call);
    if ((status = form == REQUEST ? coll_start(comm, call, &r) : coll_restart(r)) < 0) return status;
    status = coll_wait(r);
    if (form == REQUEST) coll_request_free(r);
    return status;
}

/* Messages with keys allocate memory if more of them are in flight at once than ever before: a rank that only sends may be any
 * number of calls ahead.  So no rank runs ahead of the others. */
static coll_status call_in_step(coll_comm *comm, const coll_call *call, form_of_call form, coll_request *prepared)
{
    const coll_status status = call_once(comm, call, form, prepared);

    return status == COLL_OK && (call->kind == COLL_SENDRECV || form == RESTARTED) ? coll_barrier(comm) : status;
}

/* The ranks share one counting allocator: no rank continues while its counts are read. */
static long taken(coll_comm *comm, const trial *t)
{
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    const long n = __atomic_load_n(&t->counter.taken, __ATOMIC_RELAXED);
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    return n;
}

/* Has the call allocated nothing this time?  If requests are not cached, each allocates its own.  Rank 0 reports for all. */
static bool is_steady(coll_comm *comm, const trial *t, const coll_call *call, form_of_call form, coll_request *prepared,
                      long *took)
{
    coll_status status = COLL_OK;
    int32_t is = 0;

    const long before = taken(comm, t);
    for (int i = 0; i < AGAIN && status == COLL_OK; i++) status = call_in_step(comm, call, form, prepared);
    *took = taken(comm, t) - before;
    if (status == COLL_OK) {
        is = *took <= (form == REQUEST && !COLL_REQUESTS ? AGAIN * RANKS : 0);
        status = coll_broadcast(comm, &is, 1, COLL_I32, 0);
    }
    CHECK(status == COLL_OK, "%s: %s", t->world, coll_error(comm));
    return is || status < 0;
}

/* What is under way at once, and for how long a rank waits, is chance: a table may grow late.  But it ends. */
static void repeat(coll_comm *comm, trial *t, const coll_call *call, form_of_call form)
{
    coll_request *prepared = NULL;
    coll_status status = form == RESTARTED ? coll_prepare(comm, call, &prepared) : COLL_OK;
    long took = 0;
    int turns = 0;

    for (int i = 0; i < WARM && status == COLL_OK; i++) status = call_in_step(comm, call, form, prepared);
    CHECK(status == COLL_OK, "%s: %s", t->world, coll_error(comm));
    while (turns < TURNS && !is_steady(comm, t, call, form, prepared, &took)) turns++;
    coll_request_free(prepared);
    if (coll_rank(comm) > 0) return;
    CHECK(turns < TURNS, "%s, %s %s of %zu x %s: %ld allocations in %d calls, and some in each turn before that", t->world,
          coll_kind_name(call->kind), form_names[form], call->count, coll_type_name(call->type), took, AGAIN);
    t->checked++;
    t->turns += turns;
}

static bool is_refused(coll_comm *comm, const coll_call *call, const there_lack *lack)
{
    const coll_status status = coll_run(comm, call);
    return there_refuses(lack, status, coll_error(comm));
}

static int worker(coll_comm *comm, void *arg)
{
    trial *const t = (trial *)arg;
    buffers *const b = (buffers *)support_need(calloc(1, sizeof *b));
    const int other = 1 - coll_rank(comm);

    for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++)
        for (int n = 0; n < 3; n++)
            for (int y = 0; y < 4; y++)
                for (int w = 0; w < FORMS; w++) {
                    coll_call call = { .kind = kinds[k], .send = b->in, .recv = b->out, .count = counts[n], .type = types[y],
                                       .op = COLL_SUM };
                    const size_t bytes = counts[n] * coll_type_size(types[y]);
                    if (!strcmp(t->world, "sim") && n > 0) continue;
                    const bool has_keys = kinds[k] == COLL_SENDRECV || w == RESTARTED;      /* in blocks of a half, perhaps */
                    if (has_keys && bytes > 8 << 10 && bytes <= 128 << 10) continue;
                    if (kinds[k] == COLL_SENDRECV) call.recv_count = counts[n], call.peer = call.source = other;
                    if (kinds[k] == COLL_BARRIER) call = (coll_call){ .kind = COLL_BARRIER };
                    const there_lack lack = there_call(&call);
                    if (!lack.count) repeat(comm, t, &call, (form_of_call)w);
                    else CHECK(is_refused(comm, &call, &lack), "%s: %s", t->world,
                               coll_error(comm));
                }
    free(b);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "threads", "sim", "tcp-poll" };

    support_limit(300, NULL);
    for (int i = 0; i < 3; i++) {
        trial t = { .world = worlds[i] };
        const coll_allocator allocator = { counter_allocate, counter_free, &t.counter };
        coll_config config = { .transport = i == 1 ? "sim" : NULL, .allocator = &allocator };
        if ((argc > 1 && !support_listed(argv[1], worlds[i])) || !support_has_world(worlds[i])) continue;
        const int failed = check__failed;
        const int result = i == 2 ? support_run_config(worlds[i], RANKS, &config, worker, &t)
                                  : coll_spawn(RANKS, worker, &t, &config);
        CHECK(result == 0, "%s: %d", worlds[i], result);
        CHECK(t.counter.blocks == 0, "%s: %ld blocks are lost", worlds[i], t.counter.blocks);
        printf("%s - %s: %ld kinds of calls, %ld allocations in all, %ld turns to become steady\n",
               check__failed > failed ? "FAILED" : "ok", worlds[i], t.checked, t.counter.taken, t.turns);
    }
    return CHECK_DONE();
}
