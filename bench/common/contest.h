/* contest.h: all sizes of all collectives that a command line names, with all contenders. */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

#include "data.h"

typedef struct bench_contest {
    double budget_s;                              /* for all contenders of a test together                     */
    long   count;                                 /* > 0: each does so many operations, and no time is taken   */
    size_t size[BENCH_SIZES], room;               /* room: bytes that a buffer needs                           */
    int    sizes;
    bool   wants[BENCH_COLLECTIVES];
    const char *spoil;                            /* the contender whose result is to be wrong, or NULL        */
    bool   is_ours_alone;                         /* without the references                                    */
    bool   is_fresh;                              /* see below                                                 */
} bench_contest;

/* ---- >>fresh: as programs do, each operation has an input just written, and a result that is read ---- */

/* A contender for which that is set. */
typedef struct bench_fresh {
    bench_op *op;
    void     *context;
    const bench_case *part;
} bench_fresh;

/* Both are in the time of the operation: a cache line that comes from another processor costs time for every contender. */
static void bench_fresh_op(void *context, long i)
{
    const bench_fresh *const fresh = (const bench_fresh *)context;
    const bench_case *const c = fresh->part;
    const bench_collective kind = c->collective;
    const bool is_own = kind == BENCH_ALLREDUCE_IN_PLACE || kind == BENCH_BROADCAST;
    const size_t line = 64 / sizeof(float), sent = kind == BENCH_ALLGATHER || kind == BENCH_GATHER ? c->block : c->count;
    const size_t received = kind == BENCH_REDUCE_SCATTER || kind == BENCH_SCATTER ? c->block : c->count;
    volatile float *const input = is_own ? c->out : c->in;
    const volatile float *const result = c->out;

    for (size_t k = 0; k < sent; k += line) input[k] = input[k];
    fresh->op(fresh->context, i);
    for (size_t k = 0; k < received; k += line) (void)result[k];
}

/* The contenders of a test, on this rank; returns how many, 0 if none has this collective.  Called by all ranks. */
typedef int bench_field(void *context, const bench_case *part, size_t bytes, bench_contender *contenders);

/* The collectives of a list, as in "scan,allreduce"; all: every one. */
static void bench_choose(bench_contest *contest, const char *list)
{
    char name[64];

    for (const char *at = list; *at; ) {
        const size_t length = strcspn(at, ",");
        bool is_known = false;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        for (int c = 0; c < BENCH_COLLECTIVES; c++)
            if (!strcmp(name, "all") || !strcmp(name, bench_rows[c].name)) contest->wants[c] = is_known = true;
        if (!is_known) {
            fprintf(stderr, "no collective \"%s\"\n", name);
            exit(2);
        }
        at += length + (at[length] == ',');
    }
}

/* BUDGET SIZES COLLECTIVES [SPOIL], as they follow each other on every command line; argv ends with NULL.  A BUDGET of "=20" is
 * 20 operations, to count something other than time.  With BENCH_OURS_ALONE in the environment no reference is measured, to
 * compare ours with ours; with BENCH_FRESH all operations are fresh. */
static bench_contest bench_contest_read(char **argv, int ranks)
{
    bench_contest contest = { .budget_s = atof(argv[0]), .spoil = argv[3], .is_ours_alone = getenv("BENCH_OURS_ALONE"),
                              .is_fresh = getenv("BENCH_FRESH") };

    if (*argv[0] == '=') contest.count = atol(argv[0] + 1);
    contest.sizes = bench_sizes(argv[1], contest.size);
    bench_choose(&contest, argv[2]);
    for (int s = 0; s < contest.sizes; s++) if (contest.size[s] > contest.room) contest.room = contest.size[s];
    contest.room += sizeof(float) * (size_t)ranks;
    return contest;
}

/* Those that are divided by others; returns how many. */
static int bench_without_bases(bench_contender *contenders, int n)
{
    int kept = 0;

    for (int c = 0; c < n; c++) if (!contenders[c].is_base) contenders[kept++] = contenders[c];
    return kept;
}

static void bench_test(const bench_contest *contest, const bench_team *team, bench_case *part, size_t bytes, bench_field *field,
                       void *context)
{
    const struct bench_row *const row = &bench_rows[part->collective];
    const bench_plan plan = { .budget_s = contest->budget_s, .step = row->is_rooted ? team->ranks : 1,
                              .is_synced = row->is_synced };
    bench_contender contenders[BENCH_CONTENDERS];
    bench_fresh fresh[BENCH_CONTENDERS];

    bench_case_size(part, bytes);
    int n = field(context, part, bytes, contenders);
    if (contest->is_ours_alone) n = bench_without_bases(contenders, n);
    for (int c = 0; c < n; c++)
        bench_verify(team, &contenders[c], part, contest->spoil && !strcmp(contest->spoil, contenders[c].name));
    for (int c = 0; c < n && contest->is_fresh; c++) {
        fresh[c] = (bench_fresh){ contenders[c].op, contenders[c].context, part };
        contenders[c].op = bench_fresh_op;
        contenders[c].context = &fresh[c];
    }
    for (int c = 0; c < n; c++)
        for (long i = 0; i < contest->count; i++) contenders[c].op(contenders[c].context, contenders[c].next++);
    if (n == 0 || contest->count) return;
    const long sweeps = bench_measure(team, contenders, n, &plan);
    bench_report(team, contenders, n, sweeps, row->name, part->collective == BENCH_BARRIER ? 0 : bytes);
}

static void bench_contest_run(const bench_contest *contest, const bench_team *team, bench_field *field, void *context)
{
    bench_case part = { .rank = team->rank, .ranks = team->ranks };

    part.in = bench_alloc(contest->room);
    part.out = bench_alloc(contest->room);
    bench_barrier(team);
    for (int c = 0; c < BENCH_COLLECTIVES; c++)
        for (int s = 0; contest->wants[c] && s < contest->sizes && (s == 0 || c != BENCH_BARRIER); s++) {
            part.collective = (bench_collective)c;
            bench_test(contest, team, &part, contest->size[s], field, context);
        }
    bench_barrier(team);
    free(part.in);
    free(part.out);
}

#endif /* BENCH_CONTEST_H */
