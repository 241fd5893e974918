/* mpi.c - the collectives of cases.h by MPI, between processes: built once with Open MPI's compiler and once with MPICH's.
 *
 *     mpiexec -n 2 mpi NAME FILE BUDGET SIZES COLLECTIVE[,COLLECTIVE...]
 *
 * FILE lies in memory (/dev/shm), is fresh for every run, and is what the ranks share to take the time.  Results are checked
 * before they are timed, and what is printed is what pair prints. */
#include "data.h"

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

static bench_op *const ops[BENCH_COLLECTIVES] = {
    [BENCH_ALLREDUCE] = allreduce, [BENCH_ALLREDUCE_IN_PLACE] = allreduce_in_place, [BENCH_BROADCAST] = broadcast,
    [BENCH_REDUCE] = reduce, [BENCH_ALLGATHER] = allgather, [BENCH_REDUCE_SCATTER] = reduce_scatter,
    [BENCH_ALLTOALL] = alltoall, [BENCH_GATHER] = gather, [BENCH_SCATTER] = scatter, [BENCH_SCAN] = scan,
    [BENCH_BARRIER] = barrier,
};

static void measure(const bench_team *team, const char *name, bench_case *part, double budget_s, size_t bytes)
{
    const struct bench_row *const row = &bench_rows[part->collective];
    const bench_plan plan = { .budget_s = budget_s, .step = row->is_rooted ? team->ranks : 1, .is_synced = row->is_synced };
    bench_contender c = { .name = name, .op = ops[part->collective], .context = part };

    bench_case_size(part, bytes);
    bench_verify(team, &c, part, false);
    const long sweeps = bench_measure(team, &c, 1, &plan);
    bench_report(team, &c, 1, sweeps, row->name, part->collective == BENCH_BARRIER ? 0 : bytes, false);
}

static bool is_wanted(const char *list, const char *name)
{
    const size_t length = strlen(name);

    if (!strcmp(list, "all")) return true;
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length])) return true;
    return false;
}

int main(int argc, char **argv)
{
    size_t size[BENCH_SIZES], most = 0;
    bench_case part = { 0 };
    bench_team team = { 0 };

    MPI_Init(&argc, &argv);
    if (argc < 6) {
        fprintf(stderr, "usage: mpi NAME FILE BUDGET SIZES COLLECTIVE,...\n");
        MPI_Abort(WORLD, 2);
    }
    MPI_Comm_rank(WORLD, &team.rank);
    MPI_Comm_size(WORLD, &team.ranks);
    team.shared = bench_share(argv[2]);
    team.is_crowded = team.ranks > (int)sysconf(_SC_NPROCESSORS_ONLN);
    const double budget_s = atof(argv[3]);
    const int sizes = bench_sizes(argv[4], size);
    for (int s = 0; s < sizes; s++) if (size[s] > most) most = size[s];
    most += sizeof(float) * (size_t)team.ranks;
    part = (bench_case){ .rank = team.rank, .ranks = team.ranks, .in = bench_alloc(most), .out = bench_alloc(most) };
    for (int c = 0; c < BENCH_COLLECTIVES; c++) {
        if (!is_wanted(argv[5], bench_rows[c].name)) continue;
        part.collective = (bench_collective)c;
        for (int s = 0; s < sizes && (s == 0 || c != BENCH_BARRIER); s++) measure(&team, argv[1], &part, budget_s, size[s]);
    }
    free(part.in);
    free(part.out);
    MPI_Finalize();
    return 0;
}
