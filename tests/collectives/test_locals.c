/* test_locals.c - a program with many thread-local variables, which lie on the stacks of its threads and of the library's.
 *
 *     test_locals */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"

enum { RANKS = 3, COUNT = 400000, LIMIT_SECONDS = 60 };

static __thread volatile unsigned char many[2 << 20];

/* Both threads of the library run: the one of the heartbeats, and the one of background progress. */
static int worker(coll_comm *comm, void *arg)
{
    float *const x = support_need(calloc(COUNT, sizeof *x));
    coll_request *request = NULL;
    int fd;

    (void)arg;
    for (int i = 0; i < COUNT; i++) x[i] = (float)coll_rank(comm);
    many[sizeof many - 1] = 1;
    CHECK(!coll_iallreduce(comm, x, x, COUNT, COLL_F32, COLL_SUM, &request), "%s", coll_error(comm));
    fd = coll_fd(comm);
    CHECK(fd >= 0, "nothing moves while the program computes");
    CHECK(!coll_wait(request) && x[COUNT - 1] > 2.5f && x[COUNT - 1] < 3.5f, "%s", coll_error(comm));
    coll_request_free(request);
    free(x);
    return 0;
}

int main(void)
{
    const coll_config config = { .log_level = COLL_LOG_ERROR };

    support_limit(LIMIT_SECONDS, NULL);
    CHECK(support_run_config("tcp-poll", RANKS, &config, worker, NULL) == 0, "a rank did not come through");
    return CHECK_DONE();
}
