/* bare_floor.c - the least that a board's program takes: one allreduce over a transport of its own.  test_bare.sh looks at
 * how large it is; it is not run, for its transport moves nothing. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#if defined(FLOOR_I32)
typedef int32_t number;
enum { NUMBER = COLL_I32 };
#else
typedef float number;
enum { NUMBER = COLL_F32 };
#endif

static coll_status queue(void *context, coll_xfer *x) { return (void)context, (void)x, COLL_OK; }
static coll_status progress(void *context, int wait_ms) { return (void)context, (void)wait_ms, COLL_ERR_PEER; }
static void leave(void *context) { (void)context; }

static const coll_transport nowhere = { .name = "nowhere", .send = queue, .recv = queue, .progress = progress, .close = leave };

int main(void)
{
    static number x[8];
    coll_comm *comm;

    if (coll_init_custom(&nowhere, NULL, 0, 2, &comm, NULL)) return 1;
    const coll_status status = coll_allreduce(comm, x, x, 8, NUMBER, COLL_SUM);
    return coll_free(comm) != COLL_OK || status != COLL_OK;
}
