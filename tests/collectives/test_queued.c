/* test_queued.c - queued collectives of one communicator have the results of the same calls one after the other, also if a call
 * reads the result of an earlier one; they end in their order; and they take less time.
 *
 *     test_queued [WORLD,...]                  TIMES as long with COLL_TEST_SCALE=TIMES */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

enum { SECONDS = 100, CALLS = 60, VECTORS = 12, LONGEST = 700, PLAYS = 12, RANKS_MOST = 17 };

static const coll_kind kinds[] = { COLL_BARRIER, COLL_BROADCAST, COLL_REDUCE, COLL_ALLREDUCE, COLL_REDUCE_SCATTER, COLL_SCAN,
                                   COLL_EXSCAN, COLL_GATHER, COLL_SCATTER, COLL_ALLGATHER, COLL_ALLTOALL };

/* Memory of a rank: vectors, each with room for LONGEST elements of every rank. */
typedef struct memory { uint64_t *at; size_t each; } memory;

/* A program is a function of its seed, the same on all ranks. */
typedef struct program { uint64_t seed; int size, calls; size_t longest; } program;

static uint64_t drawn(const program *p, int call, int i)
{
    return support_mix(support_mix(p->seed + (uint64_t)call * 64) ^ (uint64_t)i);
}

/* Call number `i`, on vectors that other calls use as well. */
static coll_call call_of(const program *p, const memory *m, int i)
{
    const int from = (int)(drawn(p, i, 0) % VECTORS), to = (from + 1 + (int)(drawn(p, i, 1) % (VECTORS - 1))) % VECTORS;
    coll_call c = { .kind = kinds[drawn(p, i, 2) % (sizeof kinds / sizeof *kinds)], .type = COLL_U64, .op = COLL_SUM };

    c.count = drawn(p, i, 3) % (drawn(p, i, 4) % 4 ? 9 : p->longest);
    c.root = (int)(drawn(p, i, 5) % (uint64_t)p->size);
    c.recv = m->at + (size_t)to * m->each + drawn(p, i, 6) % 7;
    c.send = m->at + (size_t)from * m->each + drawn(p, i, 7) % 7;
    const bool may_be_in_place = c.kind == COLL_ALLREDUCE || c.kind == COLL_SCAN || c.kind == COLL_ALLTOALL;
    if (may_be_in_place && drawn(p, i, 8) % 3 == 0) c.send = COLL_IN_PLACE;
    const bool may_have_rows = c.kind == COLL_BROADCAST || (c.kind >= COLL_GATHER && c.kind <= COLL_ALLTOALL);
    if (may_have_rows && drawn(p, i, 10) % 3 == 0 && c.count % 3 == 0 && c.count > 0) {
        c.row = c.count / 3;
        c.recv_stride = c.row * (size_t)p->size + drawn(p, i, 11) % 5;
    }
    if (drawn(p, i, 9) % 16 == 0 && c.kind == COLL_ALLREDUCE) c.flags = COLL_DETERMINISTIC;
    return c;
}

static void fill(const memory *m, uint64_t seed, int rank)
{
    for (size_t i = 0; i < m->each * VECTORS; i++) m->at[i] = support_mix(seed ^ (uint64_t)rank << 32 ^ i);
}

/* Nothing ends before what was started before it. */
static void check_order(coll_request **requests, int count)
{
    coll_status status[CALLS];

    for (int i = count - 1; i >= 0; i--) status[i] = requests[i] ? coll_test(requests[i]) : COLL_OK;
    for (int i = count - 1, is_over = 0; i >= 0; i--) {
        CHECK(status[i] == COLL_OK || (status[i] == COLL_PENDING && !is_over), "%s: call %d of %d is %d", case_name, i, count,
              status[i]);
        if (status[i] == COLL_OK && requests[i]) is_over = 1;
    }
}

/* Run a program, some calls of it blocking and others not, as this rank likes; all of them blocking with own NULL. */
static coll_status play(coll_comm *comm, const program *p, const memory *m, uint64_t *own)
{
    coll_request *requests[CALLS] = { NULL };
    coll_status status = COLL_OK;

    for (int i = 0; i < p->calls && status == COLL_OK; i++) {
        const coll_call c = call_of(p, m, i);
        if (!own || support_random(own) % 16 == 0) status = coll_run(comm, &c);
        else status = coll_start(comm, &c, &requests[i]);
        if (own && support_random(own) % 24 == 0) check_order(requests, i + 1);
        if (own && support_random(own) % 24 == 0) {
            const int which = (int)(support_random(own) % (uint64_t)(i + 1));
            if (status == COLL_OK) status = coll_wait(requests[which]);
        }
    }
    if (status == COLL_OK) status = coll_wait_all(p->calls, requests);
    for (int i = 0; i < p->calls; i++) coll_request_free(requests[i]);
    return status;
}

/* The same program both ways leaves the same memory. */
static void compare(coll_comm *comm, uint64_t seed, memory *m, memory *expected)
{
    const program p = { seed, coll_size(comm), CALLS, LONGEST };
    uint64_t own = support_mix(seed * 31 + (uint64_t)coll_rank(comm));

    fill(m, seed, coll_rank(comm));
    fill(expected, seed, coll_rank(comm));
    CHECK(play(comm, &p, expected, NULL) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    CHECK(play(comm, &p, m, &own) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    CHECK(!memcmp(m->at, expected->at, m->each * VECTORS * sizeof *m->at), "%s: seed %llu: rank %d has other results", case_name,
          (unsigned long long)seed, coll_rank(comm));
}

/* In virtual time, which counts what each message costs its sender and the latency: many at once have the latency once. */
static void compare_times(coll_comm *comm, memory *m)
{
    coll_request *requests[32];
    double began = coll_sim_time(comm), blocking, queued;

    for (int i = 0; i < 32; i++)
        CHECK(!coll_allgather(comm, m->at, m->at + m->each + i * 2 * coll_size(comm), 2, COLL_U64), "%s", coll_error(comm));
    blocking = coll_sim_time(comm) - began;
    began = coll_sim_time(comm);
    for (int i = 0; i < 32; i++)
        CHECK(!coll_iallgather(comm, m->at, m->at + m->each + i * 2 * coll_size(comm), 2, COLL_U64, &requests[i]), "%s",
              coll_error(comm));
    CHECK(!coll_wait_all(32, requests), "%s", coll_error(comm));
    queued = coll_sim_time(comm) - began;
    for (int i = 0; i < 32; i++) coll_request_free(requests[i]);
    CHECK(queued > 0 && queued < blocking * 0.75, "%s: queued %g s, blocking %g s", case_name, queued, blocking);
}

static int worker(coll_comm *comm, void *arg)
{
    const uint64_t seed = *(const uint64_t *)arg;
    const int plays = (int)(PLAYS * support_scale()), size = coll_size(comm);
    memory m = { NULL, 0 }, expected;
    coll_comm *twin = NULL;

    m.each = (size_t)(LONGEST + 24) * (size_t)size;
    expected = m;
    m.at = calloc(m.each * VECTORS, sizeof *m.at);
    expected.at = calloc(m.each * VECTORS, sizeof *m.at);
    CHECK(m.at && expected.at && !coll_dup(comm, &twin), "%s: %s", case_name, coll_error(comm));
    for (int i = 0; i < plays || i < 2; i++) compare(i % 3 == 2 ? twin : comm, seed + (uint64_t)i * 1000, &m, &expected);
    if (!strcmp(world, "sim") && size > 1) compare_times(comm, &m);
    coll_free(twin);
    free(m.at);
    free(expected.at);
    return 0;
}

static void world_case(const void *arg)
{
    uint64_t seed = support_seed();

    CHECK(support_run(world, *(const int *)arg, worker, &seed) == 0, "%s", case_name);
}

int main(int argc, char **argv)
{
    cases_begin();
    for (int at = 0; (world = support_world_next(argc > 1 ? argv[1] : NULL, &at)) != NULL;)
        for (int size = 1; size <= RANKS_MOST; size += size < 5 ? 1 : 4) {
            char name[40];
            snprintf(name, sizeof name, "%d ranks", size);
            run_case_within(SECONDS, world_case, &size, name);
        }
    return CHECK_DONE();
}
