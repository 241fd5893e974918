/* solo.c - the collectives of cases.h by one library whose ranks are processes: linked with ours.c, mpi.c or gloo.cc.
 *
 *     mpiexec -n 2 solo NAME FILE BUDGET SIZES COLLECTIVE[,COLLECTIVE...] [SPOIL]
 *
 * With BENCH_PIN in the environment each rank stays on one processor, as with launchers that bind ranks.
 *
 * FILE is in memory (/dev/shm) and new for every run; the ranks share it to take the time.  Results are checked before they are
 * timed.  The output is that of pair, under NAME. */
#include "contest.h"

#include "library.h"

static int field(void *context, const bench_case *part, size_t bytes, bench_contender *contenders)
{
    static char names[LIBRARY_WAYS][64];
    library_way ways[LIBRARY_WAYS] = { 0 };
    const int n = library_ways(part, ways);

    (void)bytes;
    for (int w = 0; w < n; w++) {
        snprintf(names[w], sizeof names[w], "%s%s%s", (const char *)context, ways[w].name ? "-" : "",
                 ways[w].name ? ways[w].name : "");
        contenders[w] = (bench_contender){ .name = names[w], .op = ways[w].op, .context = ways[w].context,
                                           .is_loose = ways[w].is_loose, .is_base = ways[w].is_base };
    }
    return n;
}

int main(int argc, char **argv)
{
    bench_team team = { 0 };

    if (argc < 6) {
        fprintf(stderr, "usage: solo NAME FILE BUDGET SIZES COLLECTIVE,... [SPOIL]\n");
        return 2;
    }
    library_open(&argc, &argv, &team.rank, &team.ranks);
    if (getenv("BENCH_PIN")) bench_pin(team.rank);
    team.shared = bench_share(argv[2]);
    team.is_crowded = team.ranks > (int)sysconf(_SC_NPROCESSORS_ONLN);
    const bench_contest contest = bench_contest_read(argv + 3, team.ranks);
    bench_contest_run(&contest, &team, field, argv[1]);
    library_close();
    return 0;
}
