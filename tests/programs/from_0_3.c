/* from_0_3.c - a program for coll.h 0.3, which tools/from_0_3.sed turns into one for this version: test_pages.sh compiles and
 * runs the result.  Its names and orders are those of 0.3, on purpose. */
#define COLL_IMPLEMENTATION
#include "coll.h"
#include <stdlib.h>

#define WANT(condition) do { if (!(condition)) return fprintf(stderr, "line %d: %s\n", __LINE__, coll_error(comm)), 1; } while (0)

static int names(coll_comm *comm)
{
    const int rank = coll_rank(comm), size = coll_size(comm);
    float x[2] = { 1, (float)rank }, y[2] = { 3, 4 };
    const coll_buffer list[] = { { x, x, 1, COLL_F32 }, { COLL_IN_PLACE, &x[1], 1, COLL_F32 } };
    coll_comm *half;
    float *memory;

    WANT(coll_allreduce_list(comm, list, 2, COLL_SUM) == COLL_OK && x[0] == (float)size);
    WANT(coll_split(comm, rank == 0 ? COLL_NO_COLOR : 0, 0, &half) == COLL_OK && !half == (rank == 0));
    WANT(!half || coll_parent_rank(half, 0) == 1);
    WANT(coll_parent_rank(comm, size) == COLL_NO_RANK);
    coll_free(half);
    WANT((memory = (float *)coll_alloc(comm, sizeof x)) != NULL);
    memory[0] = 1, memory[1] = 2;
    WANT(coll_reduce_local(memory, y, 2, COLL_F32, COLL_SUM) == COLL_OK && y[0] == 4 && y[1] == 6 && memory[1] == 2);
    WANT(coll_reduce_local((memory + (size_t)1), &y[(0)], 1, COLL_F32, COLL_PROD) == COLL_OK && y[0] == 8);
    coll_alloc_free(comm, memory);
    return 0;
}

static int messages(coll_comm *comm)
{
    const int rank = coll_rank(comm), size = coll_size(comm), next = (rank + 1) % size, last = (rank + size - 1) % size;
    int out = rank, in = -1;
    const coll_call give = { .kind = COLL_SEND, .send = &out, .count = 1, .type = COLL_I32, .root = next, .tag = 4 };
    const coll_call take = { .kind = COLL_RECV, .recv = &in, .count = 1, .type = COLL_I32, .tag = 4,
                             .root = last };
    const coll_call both = {
        .kind = COLL_SENDRECV, .send = &out, .recv = &in, .count = 1, .recv_count = 1, .type = COLL_I32,
        .root = next, .source = last
    };
    const coll_call spread = { .kind = COLL_BROADCAST, .recv = &in, .count = 1, .type = COLL_I32, .root = size - 1 };
    coll_request *request;

    WANT(coll_start(comm, &give, &request) == COLL_OK && coll_run(comm, &take) == COLL_OK && in == last);
    WANT(coll_wait(request) == COLL_OK);
    coll_request_free(request);
    in = -1;
    WANT(coll_run(comm, &both) == COLL_OK && in == last);
    in = rank;
    WANT(coll_run(comm, &spread) == COLL_OK && in == size - 1);
    return 0;
}

static int worker(coll_comm *comm, void *arg)
{
    (void)arg;
    return names(comm) || messages(comm);
}

int main(void)
{
    const coll_config config = { .log_level = COLL_LOG_ERROR };
    const int sizes[] = { 3, 4 };

    if (setenv("COLL_SPIN_US", "0", 1) || setenv("COLL_SHARE", "0", 1)) return 1;
    if (coll_spawn(sizes[0], worker, NULL) || coll_spawn((int)(sizeof sizes / sizeof *sizes) * (sizes[1] - (1)),
                                                         worker,
                                                         (void *)(&sizes[COLL_NO_RANK + (1)]))) return 1;
    return coll_spawn_with(3, worker, NULL, &config);
}
