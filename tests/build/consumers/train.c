/* train.c - a program that takes the library in, one way or another: four ranks, threads of this process, sum up. */
#include <coll.h>
#include <stdio.h>

static int worker(coll_comm *comm, void *arg)
{
    float x = (float)coll_rank(comm);

    (void)arg;
    if (coll_allreduce(comm, &x, &x, 1, COLL_F32, COLL_SUM)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
    return x == 6 ? 0 : 1;
}

int main(void)
{
    if (coll_spawn(4, worker, NULL, NULL)) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
    printf("taken in: %d.%d.%d\n", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
    return 0;
}
