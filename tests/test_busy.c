/* test_busy.c - a machine on which others compute: who finds that a yield gives away a turn of the scheduler spins no more for a
 * while, and longer each time; and spins again when that is over.  sched_yield of this program says who computes. */
#include "inside.h"

#include "check.h"
#include "support.h"
#include "cases.h"

enum { TURN_MS = 2, LEAST_MS = 20, MOST_MS = 1280 };

static int others_compute, turns;                 /* a yield takes their turn; how many have been over        */
static int calm;                                  /* ranks that are through with what came before             */

int sched_yield(void)
{
    if (__atomic_load_n(&others_compute, __ATOMIC_ACQUIRE)) {
        coll__nap(1000 * TURN_MS);
        __atomic_add_fetch(&turns, 1, __ATOMIC_RELEASE);
    }
    return 0;
}

/* Wait until what was found is over, and a moment more. */
static void await_calm(const coll__session *session)
{
    while (coll__now() <= session->busy_until) coll__nap(1000);
}

static int busy_worker(coll_comm *comm, void *arg)
{
    coll__session *const session = comm->session;

    (void)arg;
    CHECK(coll__spin_now(session, true) == session->spin_us && session->spin_us > 0, "%s: it does not spin at first", case_name);
    coll__give_way(session);
    CHECK(coll__spin_now(session, true) > 0, "%s: a short yield counts", case_name);
    CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    __atomic_store_n(&others_compute, 1, __ATOMIC_RELEASE);
    for (int ms = LEAST_MS; ms <= 4 * LEAST_MS; ms *= 2) {
        coll__give_way(session);
        CHECK(coll__spin_now(session, true) == 0, "%s: it spins though others compute", case_name);
        CHECK(coll__spin_now(session, false) == COLL__SPIN_BUSY_US, "%s: it does not spin for a moment", case_name);
        for (int i = 0; i < COLL__SPIN_MISSES; i++) coll__spin_note(session, true);
        for (int i = 1; i < COLL__SPIN_TRIES; i++)
            CHECK(coll__spin_now(session, false) == 0, "%s: it spins in vain", case_name);
        CHECK(coll__spin_now(session, false) == COLL__SPIN_BUSY_US, "%s: it does not try again", case_name);
        coll__spin_note(session, false);
        CHECK(coll__spin_now(session, false) == COLL__SPIN_BUSY_US, "%s: it does not spin once that has paid", case_name);
        CHECK(session->busy_ms == ms, "%s: %d ms, and %d are due", case_name, session->busy_ms, ms);
        await_calm(session);
        CHECK(coll__spin_now(session, true) > 0, "%s: it does not spin again", case_name);
    }
    session->busy_ms = MOST_MS;
    coll__give_way(session);
    CHECK(session->busy_ms == MOST_MS, "%s: %d ms", case_name, session->busy_ms);
    session->busy_until = coll__now() - 5 * MOST_MS * (int64_t)COLL__MS;
    coll__give_way(session);
    CHECK(session->busy_ms == LEAST_MS, "%s: after a calm time %d ms", case_name, session->busy_ms);
    return 0;
}

/* Wait until rank 0 has given way so often. */
static void await_turns(int count)
{
    while (__atomic_load_n(&turns, __ATOMIC_ACQUIRE) < count) coll__nap(1000);
}

/* A wait finds it by itself. */
static int waiting_worker(coll_comm *comm, void *arg)
{
    coll__session *const session = comm->session;
    const int me = coll_rank(comm);

    (void)arg;
    session->spin_us = 1000000;
    __atomic_store_n(&others_compute, 1, __ATOMIC_RELEASE);
    if (me == 1) await_turns(1);
    CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    CHECK(me == 1 || session->busy_until > 0, "%s: rank 0 has not found that others compute", case_name);
    for (int i = 0; i < 100; i++) CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    return 0;
}

/* Ranks that share a processor: while they move a long vector a late yield tells nothing, otherwise it does. */
static int moving_worker(coll_comm *comm, void *arg)
{
    enum { COUNT = 1 << 20 };
    coll__session *const session = comm->session;
    const int me = coll_rank(comm);
    float *const x = (float *)calloc(COUNT, sizeof *x);

    (void)arg;
    session->spin_us = 1000000;
    session->is_crowded = true;
    session->share = 1.0 / 64;
    CHECK(x != NULL, "%s: no memory", case_name);
    CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    if (__atomic_add_fetch(&calm, 1, __ATOMIC_ACQ_REL) == 2) __atomic_store_n(&others_compute, 1, __ATOMIC_RELEASE);
    if (me == 1) await_turns(2 * COLL__LOOKS_A_ROUND);              /* it looks so often before it waits             */
    CHECK(coll_allreduce(comm, x, x, COUNT, COLL_F32, COLL_SUM) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    CHECK(session->busy_until == 0, "%s: rank %d takes the other one for a program that computes", case_name, me);
    coll__give_way(session);
    CHECK(session->busy_until > 0, "%s: rank %d has not found that others compute", case_name, me);
    free(x);
    return 0;
}

static void busy_case(const void *arg)
{
    (void)arg;
    CHECK(support_run(world, 1, busy_worker, NULL) == 0, "%s", case_name);
}

static void waiting_case(const void *arg)
{
    (void)arg;
    CHECK(support_run(world, 2, waiting_worker, NULL) == 0, "%s", case_name);
}

static void moving_case(const void *arg)
{
    (void)arg;
    CHECK(support_run(world, 2, moving_worker, NULL) == 0, "%s", case_name);
}

int main(int argc, char **argv)
{
    cases_begin();
    for (int at = 0; (world = support_world_next(argc > 1 ? argv[1] : "threads,tcp-poll,tcp-uring,tcp-hub", &at)) != NULL;) {
        run_case_within(60, busy_case, NULL, "found, over, found again");
        run_case_within(60, waiting_case, NULL, "found by waiting");
        run_case_within(60, moving_case, NULL, "ranks that move a long vector");
    }
    return CHECK_DONE();
}
