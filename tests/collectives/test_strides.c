/* test_strides.c - blocks that are columns of a matrix: every kind that has them, against a model that moves one element after
 * the other, with rows and strides that differ from rank to rank; the bytes between rows are unchanged.
 *
 *     test_strides [WORLD,...]                 COLL_TEST_SCALE=TIMES as many cases */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/strides.h"

enum { SECONDS = 100 };

/* One rank has another count, in rows of its own. */
static int differing_worker(coll_comm *comm, void *arg)
{
    float x[64] = { 0 }, y[512] = { 0 };
    const int me = coll_rank(comm);
    const coll_call c = { .kind = COLL_ALLGATHER, .send = x, .recv = y, .count = me ? 12 : 8, .type = COLL_F32,
                          .row = me ? 3 : 4, .recv_stride = 70 };

    (void)arg;
    CHECK(coll_run(comm, &c) == COLL_ERR_MISMATCH && strstr(coll_error(comm), "12 x f32") && strstr(coll_error(comm), "8 x f32"),
          "%s: %s", case_name, coll_error(comm));
    return 0;
}

static void world_case(const void *arg)
{
    uint64_t seed = support_seed();

    CHECK(support_run(world, *(const int *)arg, strides_worker, &seed) == 0, "%s", case_name);
}

static void differing_case(const void *arg)
{
    (void)arg;
    CHECK(support_run(world, 3, differing_worker, NULL) == 0, "%s", case_name);
}

int main(int argc, char **argv)
{
    cases_begin();
    for (int at = 0; (world = support_world_next(argc > 1 ? argv[1] : NULL, &at)) != NULL;) {
        for (int size = 1; size <= RANKS_MOST; size++) {
            char name[40];
            snprintf(name, sizeof name, "%d ranks", size);
            run_case_within(SECONDS, world_case, &size, name);
        }
        run_case_within(SECONDS, differing_case, NULL, "counts that differ");
    }
    return CHECK_DONE();
}
