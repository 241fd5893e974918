/* mpi_main.h - the beginning and the end of a test that mpiexec starts: each rank counts its checks, and rank 0 prints the sum.
 * Used after coll.h, check.h, support.h and cases.h. */
#ifndef MPI_MAIN_H
#define MPI_MAIN_H

enum { MPI_TEST_SECONDS = 120 };

static void mpi_hangs(void)
{
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "failed: rank %d hangs: %s, at: %s\n", rank, case_name, case_step);
}

/* A communicator of all ranks.  false: there is none, and the reason was printed. */
SUPPORT bool mpi_begin(int *argc, char ***argv, coll_comm **comm)
{
    int level = 0;

    MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level);
    setvbuf(stdout, NULL, _IOLBF, 0);
    support_limit(MPI_TEST_SECONDS, mpi_hangs);
    world = "mpi";
    const coll_status status = coll_wrap_mpi(MPI_COMM_WORLD, comm);
    if (status) {
        fprintf(stderr, "coll_wrap_mpi: %s\n", coll_error(NULL));
        MPI_Barrier(MPI_COMM_WORLD);              /* the first rank to end may end the others with it         */
    }
    return status == COLL_OK;
}

/* Leave; rank 0 prints what all have counted. */
SUPPORT int mpi_end(coll_comm *comm)
{
    int counts[2] = { 0, 0 }, rank = 0;

    CHECK(coll_free(comm) == COLL_OK, "coll_free");
    const int own[2] = { check__passed, check__failed };
    MPI_Reduce(own, counts, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) printf("%d passed, %d failed\n", counts[0], counts[1]);
    MPI_Finalize();
    return rank == 0 && counts[1] != 0;
}

#endif /* MPI_MAIN_H */
