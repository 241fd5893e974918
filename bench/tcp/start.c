/* start.c - from the launch to the end of the first allreduce, and the memory that peers take: linked with ours.c, mpi.c or
 * gloo.cc.
 *
 *     BENCH_T0=... coll-run -n 64 start NAME FILE
 *
 * BENCH_T0 is the monotonic clock's seconds when the launcher was started; FILE as in solo.c.  The time is that of the last
 * rank.  Then all ranks send to all ranks, in blocks so long that no algorithm forwards them, so that all connections are
 * open, and each rank reads its resident memory; the size of the blocks does not depend on the number of ranks. */
#include "../common/data.h"

#include "../common/library.h"

/* Resident memory of this process in bytes; 0 if the kernel does not report it. */
static double resident(void)
{
    FILE *const file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double kilobytes = 0;

    while (file && fgets(line, sizeof line, file)) if (sscanf(line, "Rss: %lf kB", &kilobytes) == 1) break;
    if (file) fclose(file);
    return kilobytes * 1024;
}

/* One operation, with its result checked. */
static void run(const char *name, bench_case *part, bench_collective collective, size_t count)
{
    library_way ways[LIBRARY_WAYS] = { 0 };

    part->collective = collective;
    bench_case_size(part, count * sizeof(float));
    bench_fill(part);
    if (library_ways(part, ways) < 1) return;
    ways[0].op(ways[0].context, 0);
    const size_t at = bench_check(part, 0, ways[0].is_loose);
    if (at < part->count) bench_wrong(part, name, 0, at);
}

int main(int argc, char **argv)
{
    enum { BLOCK = 8 << 10, FLOATS = BENCH_RANKS * BLOCK };
    const char *const since = getenv("BENCH_T0");
    static float in[FLOATS], out[FLOATS];
    bench_case part = { .in = in, .out = out };
    bench_team team = { .is_crowded = true };

    if (argc < 3 || !since) {
        fprintf(stderr, "usage: BENCH_T0=SECONDS start NAME FILE\n");
        return 2;
    }
    library_open(&argc, &argv, &team.rank, &team.ranks);
    part.rank = team.rank;
    part.ranks = team.ranks;
    run(argv[1], &part, BENCH_ALLREDUCE, 2);
    team.shared = bench_share(argv[2]);
    bench_barrier(&team);
    const double ms = 1e3 * (bench_now() - atof(since));
    for (int i = 0; i < FLOATS; i++) in[i] = out[i] = 1;          /* resident from here on, on any number of ranks    */
    run(argv[1], &part, BENCH_ALLTOALL, (size_t)team.ranks * BLOCK);
    team.shared->seconds[0][0][team.rank] = resident();
    bench_barrier(&team);
    if (team.rank == 0) {
        bench_line("start", "start", team.ranks, 0, argv[1], (bench_figure){ ms, ms, ms }, 1);
        bench_line("memory", "start", team.ranks, 0, argv[1], bench_figures(team.shared->seconds[0][0], team.ranks), 1);
    }
    library_close();
    return 0;
}
