/* hello - four ranks, one allreduce.
 *
 *     cc examples/hello.c -o hello -pthread
 *     ./hello                   four ranks, threads of this process
 *     coll-run -n 4 ./hello     four ranks, processes that talk TCP; with an argument also under
 *                               torchrun, mpirun and srun
 *     COLL_TRANSPORT=sim COLL_SIM="latency=50us gbit=10" ./hello      four ranks of a simulated machine
 */
#define COLL_IMPLEMENTATION
#include "../coll.h"
#include <stdio.h>

static int worker(coll_comm *comm, void *arg)
{
    float x[2] = { (float)coll_rank(comm), 1 };
    (void)arg;
    if (coll_allreduce(comm, x, x, 2, COLL_F32, COLL_SUM))
        return fprintf(stderr, "%s\n", coll_error(comm)), 1;
    printf("rank %d of %d: %g %g\n", coll_rank(comm), coll_size(comm), x[0], x[1]);
    return 0;
}

int main(int argc, char **argv)
{
    coll_comm *comm;
    (void)argv;
    if (argc == 1 && !getenv("COLL_SIZE")) {
        return coll_spawn(4, worker, NULL, NULL) != 0;
    }
    if (coll_init(&comm, NULL)) return 1;
    const int result = worker(comm, NULL);
    coll_free(comm);
    return result;
}
