/* elastic - trains on while ranks die, and while processes join.
 *
 *     cc examples/elastic.c -o elastic -pthread
 *     export COLL_ADDR=127.0.0.1:4711 COLL_SIZE=3 COLL_ELASTIC=8
 *     for rank in 0 1 2; do COLL_RANK=$rank ./elastic & done
 *     kill -9 %2                at any time: the others train on
 *     ./elastic join            as often as you like: it is taken after at most 10 steps
 *
 * Or coll-run starts all of them, and others for those that die: coll-run -n 3 --elastic 2:3 ./elastic
 */
#define COLL_IMPLEMENTATION
#include "../coll.h"
#include <stdio.h>

enum { POINTS = 100000, STEPS = 20000, GROW_EVERY = 10 };

typedef struct model { int64_t step; double a, b; } model;

/* A step of gradient descent: y = a x + b for points of y = 3 x + 1, of which each rank has a part. */
static coll_status train(coll_comm *comm, model *m)
{
    double sums[2] = { 0, 0 };
    for (int i = coll_rank(comm); i < POINTS; i += coll_size(comm)) {
        const double x = (double)i / POINTS, error = m->a * x + m->b - (3 * x + 1);
        sums[0] += error * x / POINTS;
        sums[1] += error / POINTS;
    }
    const coll_status status = coll_allreduce(comm, COLL_IN_PLACE, sums, 2, COLL_F64, COLL_SUM);
    if (status == COLL_OK) m->step++, m->a -= sums[0], m->b -= sums[1];
    return status;
}

int main(int argc, char **argv)
{
    model m = { 0, 0, 0 };
    coll_comm *comm = NULL, *next;
    coll_status status = argc > 1 && !strcmp(argv[1], "join") ? coll_join(&comm, NULL) : coll_init(&comm, NULL);

    for (bool is_new = true; status == COLL_OK && m.step < STEPS; is_new = next) {
        /* After a failure some ranks have done one step more, and ranks that have joined none: all take those of rank 0. */
        if (is_new) status = coll_broadcast(comm, &m, sizeof m, COLL_U8, 0);
        if (is_new && coll_rank(comm) == 0) printf("step %d: %d ranks\n", (int)m.step, coll_size(comm)), fflush(stdout);
        if (status == COLL_OK) status = train(comm, &m);
        next = NULL;
        if (status == COLL_OK && m.step % GROW_EVERY == 0) status = coll_grow(comm, &next);
        if (status == COLL_ERR_PEER) status = coll_shrink(comm, &next);
        if (next) coll_free(comm), comm = next;
    }
    if (status) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
    printf("rank %d of %d: y = %.3f x + %.3f\n", coll_rank(comm), coll_size(comm), m.a, m.b);
    coll_free(comm);
    return 0;
}
