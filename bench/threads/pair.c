/* pair.c - coll.h and the hand-written references, in turns in one process: the ranks are threads.
 *
 *     pair RANKS BUDGET SIZES COLLECTIVE[,COLLECTIVE...] [SPOIL]
 *     pair 2 0.2 8,1K,64M allreduce,scan            0.2 s for each size of each collective; all: every collective
 *
 * Every contender's results are checked before it is timed, all elements, bit for bit; one that is wrong ends the program with
 * status 3.  SPOIL is the name of a contender whose result is made wrong, to see that this is so.  What is printed: timing.h. */
#include "../common/contest.h"

#include <pthread.h>

#include "../common/ours.h"
#include "reference.h"

typedef struct settings {
    int ranks;
    bench_contest contest;
    bench_shared *shared;
    reference *reference;
    ours ours[BENCH_RANKS];
} settings;

typedef struct rank {
    settings  *all;
    bench_team team;
    pthread_t  thread;
} rank;

/* Ours, and the references that have this collective. */
static int field(void *context, const bench_case *part, size_t bytes, bench_contender *contenders)
{
    rank *const me = context;
    settings *const all = me->all;
    int n = 0;

    all->ours[me->team.rank].part = part;
    contenders[n++] = (bench_contender){ .name = "ours", .op = ours_op(part->collective),
                                         .context = &all->ours[me->team.rank] };
    for (int v = 0; v < REFERENCE_VARIANTS; v++) {
        bench_op *const op = reference_op((reference_variant)v, part->collective, bytes);
        if (!op) continue;
        contenders[n++] = (bench_contender){ .name = reference_names[v], .op = op, .is_base = true,
                                             .context = reference_context(all->reference, me->team.rank) };
    }
    bench_barrier(&me->team);
    reference_enter(all->reference, part);
    return n;
}

/* ---- >>the ranks ---- */

static void *run(void *argument)
{
    rank *const me = argument;

    bench_pin(me->team.rank);
    bench_contest_run(&me->all->contest, &me->team, field, me);
    return NULL;
}

int main(int argc, char **argv)
{
    static settings all;
    static rank ranks[BENCH_RANKS];

    if (argc < 5 || (all.ranks = atoi(argv[1])) < 1 || all.ranks > BENCH_RANKS) {
        fprintf(stderr, "usage: pair RANKS BUDGET SIZES COLLECTIVE,... [SPOIL], with 1 to %d ranks\n", BENCH_RANKS);
        return 2;
    }
    all.contest = bench_contest_read(argv + 2, all.ranks);
    all.shared = bench_share(NULL);
    const bool is_crowded = all.ranks > bench_find_processors();
    all.reference = reference_open(all.ranks, is_crowded);
    ours_open(all.ranks, all.ours);
    for (int r = 0; r < all.ranks; r++) {
        const bench_team team = { .shared = all.shared, .rank = r, .ranks = all.ranks, .is_crowded = is_crowded };
        ranks[r] = (rank){ .all = &all, .team = team };
    }
    for (int r = 1; r < all.ranks; r++) {
        if (!pthread_create(&ranks[r].thread, NULL, run, &ranks[r])) continue;
        perror("pair: pthread_create");
        return 1;
    }
    run(&ranks[0]);
    for (int r = 1; r < all.ranks; r++) pthread_join(ranks[r].thread, NULL);
    ours_free(all.ranks, all.ours);
    reference_free(all.reference);
    return 0;
}
