/* mpi_freed.c - one rank frees a communicator that others still use, over MPI: the cases of test_freed.c.
 *
 *     mpiexec -n 4 mpi_freed CASE KIND              what freed_comm.h calls them
 *
 * After such an error the library does not free MPI's communicators: so each case is a job of its own. */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/freed_comm.h"
#include "mpi_main.h"

static void one_frees(coll_comm *comm, const play *p)
{
    const int me = coll_rank(comm);
    coll_comm *derived = NULL, *freed, *kept, *beside[2 * BESIDE];
    coll_request *prepared = NULL;
    static int64_t x = 1, y = 0;                  /* MPI may use them after a failure                         */

    derive_beside(comm, p->kind, beside, 0, BESIDE);
    CHECK(derive(comm, p->kind, &derived) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    derive_beside(comm, p->kind, beside, BESIDE, BESIDE);
    freed = p->kind == WORLD ? comm : derived;
    kept = p->kind == WORLD ? derived : comm;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &x, .recv = &y, .count = 1, .type = COLL_I64 };
    if (p->usage == PREPARED) CHECK(coll_prepare(freed, &call, &prepared) == COLL_OK, "%s: %s", case_name, coll_error(freed));
    if (p->usage == USED_BEFORE) CHECK(coll_barrier(freed) == COLL_OK, "%s: %s", case_name, coll_error(freed));
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == FREER) coll_free(freed);
    if (me != FREER) check(freed, p, use(freed, p->usage, me, prepared));
    check(kept, p, coll_barrier(kept));
    coll_request_free(prepared);
    if (me != FREER || p->kind == WORLD) coll_free(derived);
    for (int i = 0; i < 2 * BESIDE; i++) coll_free(beside[i]);
    if (me != FREER || p->kind != WORLD) CHECK(coll_free(comm) == COLL_OK, "%s: coll_free", case_name);
}

int main(int argc, char **argv)
{
    coll_comm *comm = NULL;
    play p = { USAGES, DUP };

    if (!mpi_begin(&argc, &argv, &comm)) return 1;
    for (usage d = 0; d < USAGES; d++) if (argc > 1 && !strcmp(argv[1], usage_names[d])) p.usage = d;
    for (kind k = 0; k < KINDS; k++) if (argc > 2 && !strcmp(argv[2], kind_names[k])) p.kind = k;
    CHECK(p.usage < USAGES, "there is no case \"%s\"", argc > 1 ? argv[1] : "");
    snprintf(case_name, sizeof case_name, "mpi: %s on %s", usage_names[p.usage], kind_names[p.kind]);
    one_frees(comm, &p);
    return mpi_end(NULL);
}
