/* pair.c - coll.h over TCP and hand-written sockets, in turns in the same processes, which are the ranks.
 *
 *     pair RANKS IO[,IO] BUDGET SIZES COLLECTIVE[,COLLECTIVE...] [SPOIL]
 *     pair 2 poll,uring 0.2 8,1K,64M allreduce      0.2 s for each size of each collective; all: every collective
 *     pair 2 uring =20 8 allreduce                  20 operations of ours and nothing else, to count system calls
 *
 * IO is what coll_config.io takes; "reference" is none of ours.  Ranks of one host are made to use TCP nevertheless.  Every
 * contender's results are checked before it is timed, all elements, bit for bit; one that is wrong ends the program with
 * status 3.  SPOIL is the name of a contender whose result is made wrong, to see that this is so.  What is printed: timing.h. */
#include "../common/contest.h"
#include "../common/processes.h"

#include "../common/ours.h"
#include "reference.h"

enum { WORLDS = 3 };

typedef struct world {
    char name[32], io[16], address[BENCH_ADDRESS_ROOM];
    ours ours;
} world;

typedef struct settings {
    int ranks, worlds, ends[2];
    bool is_crowded;
    world world[WORLDS];
    bench_contest contest;
    bench_shared *shared;
    reference *reference;
} settings;

/* Ours, and the references where there are two ranks. */
static int field(void *context, const bench_case *part, size_t bytes, bench_contender *contenders)
{
    settings *const all = context;
    int n = 0;

    for (int w = 0; w < all->worlds; w++) {
        world *const it = &all->world[w];
        if (!it->ours.comm) continue;
        it->ours.part = part;
        contenders[n++] = (bench_contender){ .name = it->name, .op = ours_op(part->collective), .context = &it->ours };
    }
    for (int v = 0; v < REFERENCE_VARIANTS && all->reference; v++) {
        bench_op *const op = reference_op((reference_variant)v, part->collective, bytes);
        if (op) contenders[n++] = (bench_contender){ .name = reference_names[v], .op = op, .context = all->reference,
                                                     .is_base = true };
    }
    if (all->reference) reference_enter(all->reference, part);
    if (all->contest.count == 0 || n == 0) return n;
    if (all->worlds == 0) contenders[0] = contenders[n - 1];
    return 1;
}

static int run(void *context, int rank)
{
    settings *const all = context;
    const bench_team team = { .shared = all->shared, .rank = rank, .ranks = all->ranks, .is_crowded = all->is_crowded };
    char why[1024];

    if (!all->is_crowded) bench_pin(rank);        /* as the peers are                                         */
    if (all->ranks == 2) all->reference = reference_open(all->ends, rank);
    for (int w = 0; w < all->worlds; w++) {
        world *const it = &all->world[w];
        if (ours_join(&it->ours, rank, all->ranks, it->address, it->io, why, sizeof why)) continue;
        if (strcmp(it->io, "uring")) {            /* only this one may be missing on a machine                 */
            fprintf(stderr, "%s: %s\n", it->name, why);
            return 1;
        }
        if (rank == 0) bench_line("none", "io", all->ranks, 0, it->name, (bench_figure){ 0 }, 0);
    }
    bench_contest_run(&all->contest, &team, field, all);
    for (int w = 0; w < all->worlds; w++) ours_free(1, &all->world[w].ours);
    reference_free(all->reference);
    return 0;
}

/* One of them is "ours"; several have different names. */
static void name_worlds(settings *all, const char *list)
{
    const bool is_one = !strchr(list, ',');

    for (const char *at = list; *at && strcmp(list, "reference") && all->worlds < WORLDS; ) {
        world *const it = &all->world[all->worlds++];
        const int length = (int)strcspn(at, ",");
        snprintf(it->io, sizeof it->io, "%.*s", length, at);
        snprintf(it->name, sizeof it->name, "ours%s%.*s", is_one ? "" : "-", is_one ? 0 : length, at);
        bench_hold_port(it->address);
        at += length + (at[length] == ',');
    }
}

int main(int argc, char **argv)
{
    static settings all;

    if (argc < 6 || (all.ranks = atoi(argv[1])) < 2 || all.ranks > BENCH_RANKS) {
        fprintf(stderr, "usage: pair RANKS IO,... BUDGET SIZES COLLECTIVE,... [SPOIL], with 2 to %d ranks\n", BENCH_RANKS);
        return 2;
    }
    name_worlds(&all, argv[2]);
    all.contest = bench_contest_read(argv + 3, all.ranks);
    all.shared = bench_share(NULL);
    all.is_crowded = all.ranks > bench_find_processors();
    if (all.ranks == 2 && !reference_connect(all.ends)) {
        perror("pair: loopback");
        return 1;
    }
    return bench_fork(all.ranks, run, &all);
}
