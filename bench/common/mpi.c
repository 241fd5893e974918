/* mpi.c - see library.h: MPI, built once with Open MPI's compiler and once with MPICH's. */
#include "library.h"

#include <stddef.h>

#include <mpi.h>

#define T MPI_FLOAT
#define WORLD MPI_COMM_WORLD

/* Operation i as one call of MPI.  An error ends the job, as MPI has it. */
#define MPI_OP(name, call)                                                                          \
    static void name(void *context, long i)                                                         \
    {                                                                                               \
        const bench_case *const p = context;                                                        \
        const int n = (int)p->count, b = (int)p->block, root = (int)(i % p->ranks);                 \
                                                                                                    \
        (void)n, (void)b, (void)root;                                                               \
        call;                                                                                       \
    }

MPI_OP(allreduce, MPI_Allreduce(p->in, p->out, n, T, MPI_SUM, WORLD))
MPI_OP(allreduce_in_place, MPI_Allreduce(MPI_IN_PLACE, p->out, n, T, MPI_SUM, WORLD))
MPI_OP(broadcast, MPI_Bcast(p->out, n, T, root, WORLD))
MPI_OP(reduce, MPI_Reduce(p->in, p->out, n, T, MPI_SUM, root, WORLD))
MPI_OP(allgather, MPI_Allgather(p->in, b, T, p->out, b, T, WORLD))
MPI_OP(reduce_scatter, MPI_Reduce_scatter_block(p->in, p->out, b, T, MPI_SUM, WORLD))
MPI_OP(alltoall, MPI_Alltoall(p->in, b, T, p->out, b, T, WORLD))
MPI_OP(gather, MPI_Gather(p->in, b, T, p->out, b, T, root, WORLD))
MPI_OP(scatter, MPI_Scatter(p->in, b, T, p->out, b, T, root, WORLD))
MPI_OP(scan, MPI_Scan(p->in, p->out, n, T, MPI_SUM, WORLD))
MPI_OP(barrier, MPI_Barrier(WORLD))

static void (*const ops[BENCH_COLLECTIVES])(void *, long) = {
    [BENCH_ALLREDUCE] = allreduce, [BENCH_ALLREDUCE_IN_PLACE] = allreduce_in_place, [BENCH_BROADCAST] = broadcast,
    [BENCH_REDUCE] = reduce, [BENCH_ALLGATHER] = allgather, [BENCH_REDUCE_SCATTER] = reduce_scatter,
    [BENCH_ALLTOALL] = alltoall, [BENCH_GATHER] = gather, [BENCH_SCATTER] = scatter, [BENCH_SCAN] = scan,
    [BENCH_BARRIER] = barrier,
};

void library_open(int *argc, char ***argv, int *rank, int *ranks)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(WORLD, rank);
    MPI_Comm_size(WORLD, ranks);
}

int library_ways(const bench_case *part, library_way *ways)
{
    ways[0] = (library_way){ .op = ops[part->collective], .context = (void *)part };
    return 1;
}

void library_close(void)
{
    MPI_Finalize();
}
