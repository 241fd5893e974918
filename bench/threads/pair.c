/* pair.c - coll.h and the hand-written references, by turns in one process: the ranks are threads.
 *
 *     pair RANKS BUDGET SIZES COLLECTIVE[,COLLECTIVE...] [SPOIL]
 *     pair 2 0.2 8,1K,64M allreduce,scan            0.2 s for each size of each collective; all: every collective
 *
 * Every contender's results are checked before it is timed, all elements, bit for bit; one that is wrong ends the program with
 * status 3.  SPOIL is the name of a contender whose result is made wrong, to see that this is so.  What is printed: timing.h. */
#include "data.h"

#include <pthread.h>

#include "ours.h"
#include "reference.h"

typedef struct settings {
    int    ranks, sizes;
    double budget_s;
    size_t size[BENCH_SIZES];
    bool   wants[BENCH_COLLECTIVES];
    const char *spoil;
    bench_shared *shared;
    reference *reference;
    ours ours[BENCH_RANKS];
} settings;

typedef struct rank {
    settings  *all;
    bench_team team;
    bench_case part;
    pthread_t  thread;
} rank;

/* ---- >>one size of one collective ---- */

static void measure(rank *me, bench_collective collective, size_t bytes)
{
    settings *const all = me->all;
    const struct bench_row *const row = &bench_rows[collective];
    const bench_plan plan = { .budget_s = all->budget_s, .step = row->is_rooted ? all->ranks : 1, .is_synced = row->is_synced };
    bench_contender contenders[1 + REFERENCE_VARIANTS];
    int n = 0;

    me->part.collective = collective;
    bench_case_size(&me->part, bytes);
    all->ours[me->team.rank].part = &me->part;
    contenders[n++] = (bench_contender){ .name = "ours", .op = ours_op(collective), .context = &all->ours[me->team.rank] };
    for (int v = 0; v < REFERENCE_VARIANTS; v++) {
        bench_op *const op = reference_op((reference_variant)v, collective, bytes);
        if (!op) continue;
        contenders[n++] = (bench_contender){ .name = reference_names[v], .op = op,
                                             .context = reference_context(all->reference, me->team.rank) };
    }
    bench_barrier(&me->team);
    reference_enter(all->reference, &me->part);
    for (int c = 0; c < n; c++)
        bench_verify(&me->team, &contenders[c], &me->part, all->spoil && !strcmp(all->spoil, contenders[c].name));
    const long sweeps = bench_measure(&me->team, contenders, n, &plan);
    bench_report(&me->team, contenders, n, sweeps, row->name, collective == BENCH_BARRIER ? 0 : bytes, false);
}

/* ---- >>the ranks ---- */

static void *run(void *argument)
{
    rank *const me = argument;
    settings *const all = me->all;
    size_t most = 0;

    bench_pin(me->team.rank);
    for (int s = 0; s < all->sizes; s++) if (all->size[s] > most) most = all->size[s];
    most += sizeof(float) * (size_t)all->ranks;
    me->part = (bench_case){ .rank = me->team.rank, .ranks = all->ranks, .in = bench_alloc(most), .out = bench_alloc(most) };
    bench_barrier(&me->team);
    for (int c = 0; c < BENCH_COLLECTIVES; c++)
        for (int s = 0; all->wants[c] && s < all->sizes && (s == 0 || c != BENCH_BARRIER); s++)
            measure(me, (bench_collective)c, all->size[s]);
    bench_barrier(&me->team);
    free(me->part.in);
    free(me->part.out);
    return NULL;
}

static void choose(settings *all, const char *list)
{
    char name[64];

    for (const char *at = list; *at; ) {
        const size_t length = strcspn(at, ",");
        bool is_known = false;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        for (int c = 0; c < BENCH_COLLECTIVES; c++)
            if (!strcmp(name, "all") || !strcmp(name, bench_rows[c].name)) all->wants[c] = is_known = true;
        if (!is_known) {
            fprintf(stderr, "pair: no collective \"%s\"\n", name);
            exit(2);
        }
        at += length + (at[length] == ',');
    }
}

int main(int argc, char **argv)
{
    static settings all;
    static rank ranks[BENCH_RANKS];

    if (argc < 5 || (all.ranks = atoi(argv[1])) < 1 || all.ranks > BENCH_RANKS) {
        fprintf(stderr, "usage: pair RANKS BUDGET SIZES COLLECTIVE,... [SPOIL], with 1 to %d ranks\n", BENCH_RANKS);
        return 2;
    }
    all.budget_s = atof(argv[2]);
    all.sizes = bench_sizes(argv[3], all.size);
    choose(&all, argv[4]);
    all.spoil = argc > 5 ? argv[5] : NULL;
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
