/* test_shared.c - communicators of one coll_init used from several threads at once: each thread gets its results, none waits
 * forever for another, and a user-defined operation runs on the thread that called. And one communicator from
 * several: never are two inside.
 *
 *     test_shared [WORLD]           COLL_TEST_SCALE=0.1: a tenth of the calls */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES = 3, ELEMENTS = 64, CALLS = 300, LONG_ELEMENTS = 20000 };

/* One communicator of a rank, and the thread that uses it. */
typedef struct side {
    coll_comm *comm;
    int        number, wrong;
    pthread_t  thread;
    char       what[300];                         /* the first thing that went wrong                          */
} side;

static const char *world;
static int calls = CALLS;

static void add_here(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    side *s = context;
    const int32_t *lower = in;
    int32_t *sum = inout;

    (void)type;
    if (!pthread_equal(s->thread, pthread_self()) && !s->wrong++) snprintf(s->what, sizeof s->what, "fn runs on another thread");
    for (size_t i = 0; i < count; i++) sum[i] += lower[i];
}

static void note(side *s, coll_status status, const char *call)
{
    if (status && !s->wrong++) snprintf(s->what, sizeof s->what, "%s: %.200s", call, coll_error(s->comm));
}

static void compare(side *s, const int32_t *got, const int32_t *from, size_t count, const char *call)
{
    const int size = coll_size(s->comm);

    for (size_t i = 0; i < count; i++)
        if (got[i] != size * from[i] && !s->wrong++)
            snprintf(s->what, sizeof s->what, "%s: element %zu is %d, not %d", call, i, (int)got[i], (int)(size * from[i]));
}

/* Sums of all kinds, blocking and not, short and sometimes long; every tenth time a barrier. */
static void *side_main(void *at)
{
    side *s = at;
    int32_t *from = support_need(malloc(LONG_ELEMENTS * sizeof *from)), *to = support_need(malloc(LONG_ELEMENTS * sizeof *to));

    s->thread = pthread_self();
    for (int i = 0; i < calls && !s->wrong; i++) {
        const size_t count = i % 50 == 49 ? LONG_ELEMENTS : ELEMENTS;
        coll_request *request = NULL;
        for (size_t k = 0; k < count; k++) from[k] = (int32_t)k + i + s->number * 1000;
        const coll_call own = { .kind = COLL_ALLREDUCE, .send = from, .recv = to, .count = count, .type = COLL_I32,
                                .op = COLL_USER, .fn = add_here, .fn_context = s };
        note(s, coll_run(s->comm, &own), "a sum of one's own");
        compare(s, to, from, count, "a sum of one's own");
        note(s, coll_iallreduce(s->comm, from, to, count, COLL_I32, COLL_SUM, &request), "iallreduce");
        while (request && coll_test(request) == COLL_PENDING && i % 2) sched_yield();
        note(s, coll_wait(request), "wait");
        coll_request_free(request);
        if (!s->wrong) compare(s, to, from, count, "iallreduce");
        if (i % 10 == 9) note(s, coll_barrier(s->comm), "barrier");
    }
    free(from);
    free(to);
    return NULL;
}

static int worker(coll_comm *comm, void *arg)
{
    side sides[SIDES];
    pthread_t threads[SIDES];
    int wrong = 0;

    (void)arg;
    memset(sides, 0, sizeof sides);
    sides[0].comm = comm;
    for (int i = 1; i < SIDES; i++) if (coll_dup(comm, &sides[i].comm)) return 1;
    for (int i = 0; i < SIDES; i++) {
        sides[i].number = i;
        if (pthread_create(&threads[i], NULL, side_main, &sides[i])) return 1;
    }
    for (int i = 0; i < SIDES; i++) {
        pthread_join(threads[i], NULL);
        CHECK(!sides[i].wrong, "%s, %d ranks, rank %d, communicator %d: %s", world, coll_size(comm), coll_rank(comm), i,
              sides[i].what);
        wrong += sides[i].wrong;
    }
    for (int i = 1; i < SIDES; i++) CHECK(coll_free(sides[i].comm) == COLL_OK, "coll_free");
    return wrong;
}

/* ---- >>lock: one communicator, several threads, one at a time ---- */

static atomic_int inside, overlaps, entered, refused, others;

static coll_status no_message(void *context, coll_xfer *x) { (void)context, (void)x; return COLL_ERR_SYSTEM; }
static void no_close(void *context) { (void)context; }

/* Runs inside every coll_progress. */
static coll_status progress_inside(void *context, int wait_ms)
{
    (void)wait_ms;
    if (atomic_fetch_add(&inside, 1) != 0) atomic_fetch_add(&overlaps, 1);
    ++*(unsigned long *)context;                  /* a race, if two were here: the thread sanitizer sees it   */
    atomic_fetch_sub(&inside, 1);
    return COLL_OK;
}

static const coll_transport lone = { .name = "lone", .send = no_message, .recv = no_message, .progress = progress_inside,
                                     .close = no_close };

typedef struct crowd {
    coll_comm *comm;
    int        number, rounds;
    bool       by_turns;
    atomic_int *turn;
} crowd;

static void *crowd_main(void *arg)
{
    const crowd *c = arg;

    for (int i = 0; i < c->rounds; i++) {
        while (c->by_turns && atomic_load(c->turn) % SIDES != c->number) sched_yield();
        const coll_status status = coll_progress(c->comm);
        atomic_fetch_add(status == COLL_OK ? &entered : status == COLL_ERR_ARGUMENT ? &refused : &others, 1);
        if (c->by_turns) atomic_fetch_add(c->turn, 1);
        else if (c->number == 0 && i % 16 == 0) sched_yield();      /* the others get the lock, too           */
    }
    return NULL;
}

/* Threads that take turns all get the lock; of other threads, two never have it at the same time. */
static void test_lock(bool by_turns, int rounds)
{
    pthread_t threads[SIDES];
    crowd crowds[SIDES];
    unsigned long count = 0;
    atomic_int turn = 0;
    coll_comm *comm;

    entered = refused = others = overlaps = 0;
    CHECK(coll_init_custom(&lone, &count, 0, 1, &comm, NULL) == COLL_OK, "%s", coll_error(NULL));
    for (int i = 0; i < SIDES; i++) {
        crowds[i] = (crowd){ comm, i, rounds, by_turns, &turn };
        if (pthread_create(&threads[i], NULL, crowd_main, &crowds[i])) exit(1);
    }
    for (int i = 0; i < SIDES; i++) pthread_join(threads[i], NULL);
    CHECK(overlaps == 0 && others == 0 && entered + refused == SIDES * rounds && entered > 0,
          "%d times two were inside, %d came in, %d were refused, %d of %d got something else", overlaps, entered, refused,
          others, SIDES * rounds);
    CHECK(count == (unsigned long)entered, "%lu times inside, but %d came in", count, entered);
    if (by_turns) CHECK(refused == 0, "%d were refused though it was their turn", refused);
    CHECK(coll_progress(comm) == COLL_OK && coll_free(comm) == COLL_OK, "it is usable afterwards: %s", coll_error(NULL));
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "threads", "tcp-poll", "tcp-uring", "hybrid" };
    const char *scale = getenv("COLL_TEST_SCALE");

    if (scale) calls = (int)(CALLS * atof(scale));
    test_lock(true, 200);
    for (int i = 0; i < 20; i++) test_lock(false, 2000);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        world = worlds[i];
        if (argc > 1 && strcmp(argv[1], world)) continue;
        const char *refusal = support_refusal(world);
        if (refusal) printf("skipped %s: %s\n", world, refusal);
        for (int size = 1; size <= 3 && !refusal; size++) {
            const int failed = support_run(world, size, worker, NULL);
            CHECK(failed == 0, "%s, %d ranks: %d ranks did not come through", world, size, failed);
        }
    }
    return CHECK_DONE();
}
