/* mpi_waiting.c - waits for one of several requests over MPI: what test_waiting.c does in its worlds.
 *
 *     mpiexec -n N mpi_waiting */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/waiting.h"
#include "mpi_main.h"

int main(int argc, char **argv)
{
    coll_comm *comm = NULL;

    if (!mpi_begin(&argc, &argv, &comm)) return 1;
    snprintf(case_name, sizeof case_name, "%s, %d ranks", world, coll_size(comm));
    for (way how = 0; how < WAYS; how++) crowd_play(comm, how);
    sleep_play(comm, 1);
    return mpi_end(comm);
}
