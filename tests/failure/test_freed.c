/* test_freed.c - one rank frees a communicator that others still use.  A rank that waits for it there gets an error, the same in
 * every world, also while that rank is outside the library.  No other rank fails.
 *
 *     test_freed [WORLD,...] [CASE,...] */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/freed_comm.h"

#include <sched.h>

enum { SECONDS = 40, LIVENESS_MS = 600 };

static event is_ready = EVENT_INIT, has_freed = EVENT_INIT, is_over = EVENT_INIT;

/* In a simulated world no rank may wait for an event. */
static void await(event *e, int count, coll_comm *comm)
{
    int raised = 0;

    if (!strcmp(world, "sim")) return;
    while (comm && raised < count) {              /* messages that others wait for must still be sent         */
        (void)coll_progress(comm);
        sched_yield();
        pthread_mutex_lock(&e->lock);
        raised = e->count;
        pthread_mutex_unlock(&e->lock);
    }
    event_await(e, count);
}

static int one_frees(coll_comm *comm, void *arg)
{
    const play *p = arg;
    const int me = coll_rank(comm);
    const bool is_sim = !strcmp(world, "sim");
    coll_comm *derived = NULL, *freed, *kept, *beside[2 * BESIDE];
    coll_request *prepared = NULL;
    int64_t x = 1, y = 0;

    derive_beside(comm, p->kind, beside, 0, BESIDE);
    CHECK(derive(comm, p->kind, &derived) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    derive_beside(comm, p->kind, beside, BESIDE, BESIDE);
    freed = p->kind == WORLD ? comm : derived;
    kept = p->kind == WORLD ? derived : comm;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &x, .recv = &y, .count = 1, .type = COLL_I64 };
    if (p->usage == PREPARED) CHECK(coll_prepare(freed, &call, &prepared) == COLL_OK, "%s: %s", case_name, coll_error(freed));
    if (p->usage == USED_BEFORE) CHECK(coll_barrier(freed) == COLL_OK, "%s: %s", case_name, coll_error(freed));
    CHECK(coll_barrier(kept) == COLL_OK, "%s: %s", case_name, coll_error(kept));
    event_raise(&is_ready);
    if (me == FREER) {
        await(&is_ready, SIZE, kept);
        coll_free(freed);
        event_raise(&has_freed);
        await(&is_over, SIZE - 1, NULL);
        const coll_status status = coll_barrier(kept);
        check(kept, p, status);
    } else {
        await(&has_freed, 1, kept);
        check(freed, p, use(freed, p->usage, me, prepared));
        event_raise(&is_over);
        check(kept, p, coll_barrier(kept));
        if (p->usage >= ANY_SOURCE && !is_sim) CHECK(coll_barrier(kept) == COLL_OK, "%s: %s", case_name, coll_error(kept));
    }
    if (me == FREER && p->usage >= ANY_SOURCE && !is_sim)
        CHECK(coll_barrier(kept) == COLL_OK, "%s: %s", case_name, coll_error(kept));
    coll_request_free(prepared);
    if (me != FREER || p->kind == WORLD) coll_free(derived);
    for (int i = 0; i < 2 * BESIDE; i++) coll_free(beside[i]);
    if (me == FREER && p->kind == WORLD) pthread_exit(NULL);      /* or it would be freed again                 */
    return 0;
}

/* Each rank frees all of its own, in a different order. */
static int all_free(coll_comm *comm, void *arg)
{
    enum { MANY = 12 };
    coll_comm *comms[MANY] = { NULL };
    const int me = coll_rank(comm);

    (void)arg;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < MANY; i++) {
            int64_t x = 1, y = 0;
            CHECK(derive(i < 4 ? comm : comms[i - 4], i % 2 ? DUP : SPLIT, &comms[i]) == COLL_OK, "%s: %s", case_name,
                  coll_error(comm));
            if (i % 3) CHECK(coll_allreduce(comms[i], &x, &y, 1, COLL_I64, COLL_SUM) == COLL_OK && y == SIZE, "%s: %s", case_name,
                             coll_error(comms[i]));
        }
        for (int i = 0; i < MANY; i++) coll_free(comms[(i * 5 + me * 3 + round) % MANY]);
        CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    }
    CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    return 0;
}

/* ---- >>which ---- */

/* A rank that frees the communicator of its thread ends the thread, which counts as a failure. */
static void in_world(int (*worker)(coll_comm *comm, void *arg), const play *p)
{
    const int ended = p && p->kind == WORLD;
    const coll_config config = { .liveness_timeout_ms = LIVENESS_MS };

    CHECK(support_run_config(world, SIZE, &config, worker, (void *)(uintptr_t)p) == ended, "%s", case_name);
}

/* The last rank has left before rank 0 posts receives from all of them, one of which rank 1 then matches. */
static int one_has_left(coll_comm *comm, void *arg)
{
    const int me = coll_rank(comm);
    int64_t x = 7, y = 0;
    coll_request *r;

    (void)arg;
    if (me == SIZE - 1) {
        coll_free(comm);
        event_raise(&has_freed);
        pthread_exit(NULL);                       /* or it would be freed again                 */
    }
    if (me == 0) {
        event_await(&has_freed, 1);
        CHECK(coll_irecv(comm, &y, 1, COLL_I64, COLL_ANY_SOURCE, 3, &r) == COLL_OK, "%s: %s", case_name, coll_error(comm));
        for (int looks = 0; looks < 1000; looks++) {
            CHECK(coll_test(r) == COLL_PENDING, "%s: %s", case_name, coll_error(comm));
            sched_yield();
        }
        event_raise(&is_ready);
        CHECK(coll_wait(r) == COLL_OK && y == 7, "%s: %s", case_name, coll_error(comm));
        coll_request_free(r);
    }
    if (me == 1) {
        event_await(&is_ready, 1);
        CHECK(coll_send(comm, &x, 1, COLL_I64, 0, 3) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    }
    return 0;
}

static void left_case(const void *arg)
{
    const play p = { .kind = WORLD };

    (void)arg;
    in_world(one_has_left, &p);
}


static void one_case(const void *arg) { in_world(one_frees, arg); }
static void all_case(const void *arg) { (void)arg; in_world(all_free, NULL); }

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 && strcmp(argv[1], "all") ? argv[1] : NULL, *cases = argc > 2 ? argv[2] : NULL;
    char name[80];

    cases_begin();
    for (int at = 0; (world = support_world_next(wanted, &at)) != NULL;) {
        for (usage d = 0; d < USAGES; d++)
            for (kind k = 0; k < KINDS && support_listed(cases, usage_names[d]); k++) {
                const play p = { d, k };
                if (k == WORLD && !strcmp(world, "sim")) continue;        /* coll_spawn frees it                  */
                snprintf(name, sizeof name, "%s on %s", usage_names[d], kind_names[k]);
                run_case_within(SECONDS, one_case, &p, name);
            }
        if (support_listed(cases, "left") && strcmp(world, "sim"))
            run_case_within(SECONDS, left_case, NULL, "a rank that has left, and a message from any");
        if (support_listed(cases, "all")) run_case_within(SECONDS, all_case, NULL, "all free, in orders of their own");
    }
    return CHECK_DONE();
}
