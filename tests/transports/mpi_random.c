/* mpi_random.c - random programs over MPI: those of test_random.c, on the ranks that mpiexec has started.
 *
 *     mpiexec -n N mpi_random [SEED [PROGRAMS [STEPS]]]
 *
 * What the ranks of an operation share lies in memory that MPI lets them share.  COLL_MPI says which way the calls go. */
#define main random_main
#include "../collectives/test_random.c"
#undef main

#include "mpi_main.h"

static void mpi_run(coll_comm *comm, uint64_t seed, int steps)
{
    program p = { .world = "mpi", .size = coll_size(comm), .steps = steps, .seed = seed };
    const size_t length = (size_t)(steps * OPERATIONS_A_STEP * p.size) * sizeof *p.handshakes;
    MPI_Win window;
    MPI_Aint ignored;
    int unit;
    void *base;

    MPI_Win_allocate_shared(coll_rank(comm) == 0 ? (MPI_Aint)length : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    MPI_Win_shared_query(window, 0, &ignored, &unit, &base);
    if (coll_rank(comm) == 0) memset(base, 0, length);
    MPI_Barrier(MPI_COMM_WORLD);
    p.handshakes = base;
    now.p = &p;
    snprintf(case_name, sizeof case_name, "mpi, %d ranks, seed %llu, %d steps", p.size, (unsigned long long)seed, steps);
    act(comm, &p);
    CHECK(!p.failed, "mpiexec -n %d mpi_random %llu 1 %d", p.size, (unsigned long long)seed, steps);
    now.p = NULL;
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    coll_comm *comm = NULL;

    if (!mpi_begin(&argc, &argv, &comm)) return 1;
    support_limit_report = report_ranks;
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : support_seed();
    const int programs = argc > 2 ? atoi(argv[2]) : 1, steps = argc > 3 ? atoi(argv[3]) : STEPS_USUAL;
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (coll_rank(comm) == 0) printf("seeds from %llu\n", (unsigned long long)seed);
    for (int i = 0; i < programs && check__failed == 0; i++) mpi_run(comm, seed + (uint64_t)i, steps);
    return mpi_end(comm);
}
