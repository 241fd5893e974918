/* mpi_contract.c - the contract over MPI: what test_contract.c does in its worlds, on the ranks that mpiexec has started.
 *
 *     mpiexec -n N mpi_contract [PARTS]      PARTS: kinds,messages,cells,numbers,reproducible,algorithms,communicators; or all
 *
 * COLL_MPI says which way the calls go. */
#define main contract_main
#include "../collectives/test_contract.c"
#undef main

#include "mpi_main.h"

static int mpi_work(coll_comm *comm, const char *parts)
{
    int failures = 0;
    member m = { .comm = comm, .rank = coll_rank(comm), .size = coll_size(comm), .is_world = true, .where = "world",
                 .failures = &failures };

    if (support_listed(parts, "kinds") || support_listed(parts, "messages")) run_kinds(&m, m.size <= 3);
    if (support_listed(parts, "messages")) run_messages(&m);
    if (support_listed(parts, "cells")) run_cells(&m);
    if (support_listed(parts, "numbers")) run_numbers(&m);
    if (support_listed(parts, "reproducible")) run_reproducible(&m);
    if (support_listed(parts, "algorithms")) run_algorithms(&m);
    if (support_listed(parts, "communicators")) run_communicators(&m);
    return failures;
}

int main(int argc, char **argv)
{
    coll_comm *comm = NULL;

    if (!mpi_begin(&argc, &argv, &comm)) return 1;
    seen = support_need(calloc(1, sizeof *seen));
    snprintf(case_name, sizeof case_name, "%s, %d ranks", world, coll_size(comm));
    mpi_work(comm, argc > 1 ? argv[1] : NULL);
    return mpi_end(comm);
}
