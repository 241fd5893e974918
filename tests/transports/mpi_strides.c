/* mpi_strides.c - blocks that are columns of a matrix (strides.h), over MPI.
 *
 *     mpiexec -n N mpi_strides [SEED] */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "mpi_main.h"
#include "../support/strides.h"

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    coll_comm *comm = NULL;

    if (!mpi_begin(&argc, &argv, &comm)) return 1;
    snprintf(case_name, sizeof case_name, "mpi");
    CHECK(strides_worker(comm, &seed) == 0, "it has run");
    return mpi_end(comm);
}
