/* bare_size.c - a program for a board that calls what COLL_TINY has: barrier, broadcast, reduce, allreduce, allgather, messages.
 * tests/build/test_bare.sh looks at how large it is; it is not run, for its transport moves nothing. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"

static coll_status queue(void *context, coll_xfer *x) { return (void)context, (void)x, COLL_OK; }
static coll_status progress(void *context, int wait_ms) { return (void)context, (void)wait_ms, COLL_ERR_PEER; }
static void leave(void *context) { (void)context; }

static const coll_transport nowhere = { .name = "nowhere", .send = queue, .recv = queue, .progress = progress, .close = leave };

int main(void)
{
    static volatile int bad;
    static int32_t x[4];
    static float y[8];
    coll_comm *comm;

    if (coll_init_custom(&nowhere, NULL, 0, 2, &comm, NULL)) return 1;
    bad |= coll_barrier(comm);
    bad |= coll_broadcast(comm, x, 4, COLL_I32, 0);
    bad |= coll_reduce(comm, x, x, 4, COLL_I32, COLL_SUM, 0);
    bad |= coll_allreduce(comm, y, y, 4, COLL_F32, COLL_MAX);
    bad |= coll_allgather(comm, COLL_IN_PLACE, y, 4, COLL_F32);
    bad |= coll_send(comm, x, 4, COLL_I32, 1, 0);
    bad |= coll_recv(comm, x, 4, COLL_I32, 1, 0);
    bad |= coll_free(comm);
    return bad;
}
