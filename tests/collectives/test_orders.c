/* test_orders.c - prepared calls in orders that differ from rank to rank: the rules of the manual (see Waiting).
 *
 *     restarts first, then waits        each rank in any order of both: it always ends
 *     a wait between two restarts       ends if there is an order of all those calls that every rank keeps to, where a rank keeps
 *                                       to it that waits for no call before it has restarted all that come sooner; else a
 *                                       circle of ranks may wait for each other, and a time limit ends it */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

#include <sched.h>

enum { CALLS = 6, ROUNDS = 20, SECONDS = 40, LIMIT_MS = 1500 };

typedef struct prepared {
    coll_request *requests[CALLS];
    int64_t in[CALLS], out[CALLS];
} prepared;

static void prepare(coll_comm *comm, prepared *p, int timeout_ms)
{
    for (int i = 0; i < CALLS; i++) {
        const coll_call call = { .kind = COLL_ALLREDUCE, .send = &p->in[i], .recv = &p->out[i], .count = 1, .type = COLL_I64,
                                 .timeout_ms = timeout_ms };
        CHECK(coll_prepare(comm, &call, &p->requests[i]) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    }
}

static void check(coll_comm *comm, const prepared *p, int i)
{
    CHECK(p->out[i] == (int64_t)coll_size(comm) * i, "%s: call %d gives %lld", case_name, i, (long long)p->out[i]);
}

/* The k-th of an order that differs between ranks and rounds: steps of 1 or 5, from any beginning. */
static int turned(int k, int rank, int round) { return (k * (rank % 2 ? 5 : 1) + rank + round) % CALLS; }

/* All are restarted, in an order of this rank's own, and then waited for in another. */
static int all_then_wait(coll_comm *comm, void *arg)
{
    const int me = coll_rank(comm);
    prepared p = { .requests = { NULL } };

    (void)arg;
    prepare(comm, &p, 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < CALLS; k++) p.in[k] = k;
        for (int k = 0; k < CALLS; k++)
            CHECK(coll_restart(p.requests[turned(k, me, round)]) == COLL_OK, "%s: %s", case_name, coll_error(comm));
        for (int k = 0; k < CALLS; k++) {
            const int i = turned(k, me + 3, round + 1);
            CHECK(coll_wait(p.requests[i]) == COLL_OK, "%s: %s", case_name, coll_error(comm));
            check(comm, &p, i);
        }
    }
    for (int k = 0; k < CALLS; k++) coll_request_free(p.requests[k]);
    return 0;
}

/* Waits in between, but no rank waits for call i before it has restarted calls 0 to i: windows of each rank's own width, inside
 * which the restarts go backwards. */
static int in_one_order(coll_comm *comm, void *arg)
{
    const int me = coll_rank(comm), width = 1 + me % 3;
    prepared p = { .requests = { NULL } };

    (void)arg;
    prepare(comm, &p, 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int from = 0; from < CALLS; from += width) {
            const int end = from + width < CALLS ? from + width : CALLS;
            for (int i = end - 1; i >= from; i--) {
                p.in[i] = i;
                CHECK(coll_restart(p.requests[i]) == COLL_OK, "%s: %s", case_name, coll_error(comm));
            }
            for (int i = end - 1; i >= from; i--) {
                CHECK(coll_wait(p.requests[i]) == COLL_OK, "%s: %s", case_name, coll_error(comm));
                check(comm, &p, i);
            }
        }
    }
    for (int k = 0; k < CALLS; k++) coll_request_free(p.requests[k]);
    return 0;
}

/* Each waits for the first of its own before it restarts the first of the next rank: a circle.  With a time limit it ends. */
static int in_a_circle(coll_comm *comm, void *arg)
{
    const int me = coll_rank(comm), size = coll_size(comm);
    prepared p = { .requests = { NULL } };

    (void)arg;
    prepare(comm, &p, strcmp(world, "sim") ? LIMIT_MS : 0);
    CHECK(coll_restart(p.requests[me % CALLS]) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    const coll_status status = coll_wait(p.requests[me % CALLS]);
    CHECK(status == COLL_ERR_TIMEOUT || status == COLL_ERR_MISMATCH, "%s: rank %d of %d has %d: %s", case_name, me, size,
          (int)status, coll_error(comm));
    for (int k = 0; k < CALLS; k++) coll_request_free(p.requests[k]);
    return 0;
}

/* ---- >>which ---- */

typedef struct play { int (*worker)(coll_comm *comm, void *arg); int size; } play;

static void one_case(const void *arg)
{
    const play *p = arg;

    CHECK(support_run(world, p->size, p->worker, NULL) == 0, "%s", case_name);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; int (*worker)(coll_comm *comm, void *arg); } cases[] = {
        { "all restarts, then waits", all_then_wait }, { "waits in one order", in_one_order }, { "a circle", in_a_circle }
    };
    const char *wanted = argc > 1 ? argv[1] : NULL;
    char name[80];

    cases_begin();
    for (int at = 0; (world = support_world_next(wanted, &at)) != NULL;) {
        for (int c = 0; c < 3; c++)
            for (int size = 2; size <= 5; size++) {
                const play p = { cases[c].worker, size };
                snprintf(name, sizeof name, "%s, %d ranks", cases[c].name, size);
                run_case_within(SECONDS, one_case, &p, name);
            }
    }
    return CHECK_DONE();
}
