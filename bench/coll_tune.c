/* coll_tune - how good the library's choice of algorithm is: against the best candidate by the closed forms, against the floor
 * that no algorithm can be faster than, and against the best candidate when all are run on a simulated machine.
 *
 *     coll_tune [forms | runs]                   without an argument: both; Markdown tables on stdout */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../tests/support/floor.h"
#include "../tests/support/stage.h"

typedef struct ratio { double worst, sum; long count, beyond; int size, wire; double bytes; } ratio;

static const struct { const char *name; coll__link link; } wires[] = {
    { "1",   { 40e-6, 4e-6,   8e-9,    1e-10, 0 } },
    { "10",  { 20e-6, 2e-6,   0.8e-9,  1e-10, 0 } },
    { "25",  { 15e-6, 1.5e-6, 0.32e-9, 1e-10, 0 } },
    { "100", { 12e-6, 1.2e-6, 0.08e-9, 1e-10, 0 } },
};
enum { WIRES = sizeof wires / sizeof *wires, LIMIT_PERCENT = 5 };

static void note(ratio *r, double value, int size, double bytes, int wire)
{
    r->sum += value;
    r->count++;
    r->beyond += value > 1 + LIMIT_PERCENT / 100.0;
    if (value <= r->worst) return;
    r->worst = value, r->size = size, r->bytes = bytes, r->wire = wire;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int rows_of(coll_kind kind)
{
    int rows = 0;
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++)
        if (coll__algorithms[i].kind == kind) rows += 1 + coll__algorithms[i].has_radix;
    return rows;
}

/* Sums whose grouping shows, as those of floats, or that of integers. */
static coll__query query_of(coll_kind kind, int size, double bytes, bool is_exact, const coll__link *link)
{
    const double length = kind == COLL_BARRIER ? 0 : bytes;
    return (coll__query){ .kind = kind, .size = size, .bytes = length, .sum_bytes = length, .is_exact = is_exact,
                          .is_commutative = true, .link = link };
}

static bool is_reduction(coll_kind kind) { return kind >= COLL_REDUCE && kind <= COLL_EXSCAN; }

/* ---- >>forms ---- */

static void by_forms(coll_kind kind, bool is_exact)
{
    static const int sizes[] = { 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024, 2048, 4096 };
    ratio best = { 0 }, floor = { 0 };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (double bytes = 8; bytes <= 1 << 30; bytes *= 4)
            for (int wire = 0; wire < WIRES; wire++) {
                const coll__query query = query_of(kind, sizes[i], bytes, is_exact, &wires[wire].link);
                coll__choice choice, list[1];
                if (!coll__choose(&choice, &query) || coll__candidates(list, 1, &query) < 1) continue;
                note(&best, choice.seconds / list[0].seconds, sizes[i], bytes, wire);
                note(&floor, list[0].seconds / floor_of(&query), sizes[i], bytes, wire);
            }
    printf("| %s%s | %.3f | %.4f | %.2f (%d ranks, %.0f B, %s Gbit/s) | %.3f |\n", coll_kind_name(kind),
           !is_reduction(kind) ? "" : is_exact ? ", integers" : ", floats", best.worst,
           best.sum / (double)best.count, floor.worst, floor.size, floor.bytes,
           wires[floor.wire].name, floor.sum / (double)floor.count);
}

/* ---- >>runs: every candidate, rank by rank, under the virtual clock ---- */

enum { LIST_MOST = 80 };

static struct {
    coll_kind kind;
    bool      is_exact;
    size_t    count;                              /* elements of the call                                     */
    char     *input, *result;
    coll__choice list[LIST_MOST];
    double    seconds[LIST_MOST];
    char      algorithm[LIST_MOST][32];
    int       candidates;
} run;

static coll_status play(stage *s, coll_comm *comm)
{
    /* All ranks share the memory, because the results are not read. */
    coll_call call = { .kind = run.kind, .send = run.input, .recv = run.result, .count = run.count,
                       .type = run.is_exact ? COLL_I32 : COLL_F32, .op = COLL_SUM, .algorithm = run.algorithm[s->played] };
    size_t *counts = NULL;

    if (run.kind == COLL_REDUCE_SCATTERV || run.kind == COLL_ALLGATHERV) {
        counts = malloc((size_t)s->size * sizeof *counts);
        for (int i = 0; counts && i < s->size; i++) counts[i] = run.count;
        if (!counts) return COLL_ERR_MEMORY;
        call.recv_counts = counts;
    }
    const coll_status status = coll_run(comm, &call);
    free(counts);
    return status;
}

static bool next(stage *s)
{
    if (s->played > 0) run.seconds[s->played - 1] = s->seconds;
    return s->played < run.candidates;
}

/* The name under which a candidate is forced. */
static void name_candidate(int i)
{
    const coll__choice *c = &run.list[i];
    const bool has_number = c->algorithm->has_radix || coll__has_cut(c->algorithm);
    const long number = c->algorithm->has_radix ? c->radix : c->algorithm->is_pipelined ? c->slices : c->blocks;

    snprintf(run.algorithm[i], sizeof run.algorithm[i], has_number ? "%s:%ld" : "%s", c->algorithm->name, number);
}

/* Run all candidates of a query.  Returns the chosen one's time over the best one's, 0 on failure. */
static double run_all(const coll__query *query, int *chosen, int *best)
{
    const coll_sim sim = { .latency = query->link->latency, .overhead = query->link->overhead,
                           .seconds_per_byte = query->link->per_byte, .seconds_per_byte_reduced = query->link->per_byte_reduced };
    stage s = { .sim = &sim, .size = query->size, .next = next, .play = play };
    coll__choice choice;

    run.candidates = coll__candidates(run.list, LIST_MOST, query);
    if (!coll__choose(&choice, query)) return 0;
    *chosen = *best = 0;
    for (int i = 0; i < run.candidates; i++) {
        const coll__choice *c = &run.list[i];
        name_candidate(i);
        if (c->algorithm == choice.algorithm && c->radix == choice.radix && c->blocks == choice.blocks) *chosen = i;
    }
    if (!stage_run(&s)) {
        fprintf(stderr, "coll_tune: %s on %d ranks: %s\n", coll_kind_name(query->kind), query->size, s.error);
        return 0;
    }
    for (int i = 0; i < run.candidates; i++) if (run.seconds[i] < run.seconds[*best]) *best = i;
    return run.seconds[*chosen] / run.seconds[*best];
}

static void by_runs(coll_kind kind, bool is_exact, FILE *points)
{
    static const int sizes[] = { 2, 3, 4, 6, 8, 12, 16, 24, 32, 64 };
    const coll__link *link = &wires[1].link;
    ratio found = { 0 };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (double bytes = 8; bytes <= 1 << 20; bytes *= 8) {
            const int size = sizes[i];
            const bool is_block = kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV
                               || (kind >= COLL_GATHER && kind <= COLL_ALLTOALL);
            run.kind = kind, run.is_exact = is_exact;
            run.count = kind == COLL_BARRIER ? 0 : (size_t)(is_block ? bytes / size / 4 : bytes / 4);
            const double whole = (double)run.count * 4 * (is_block ? size : 1);
            if ((run.count == 0 && kind != COLL_BARRIER) || (kind == COLL_BARRIER && bytes > 8)) continue;
            if (size > 24 && bytes > 1 << 17 && rows_of(kind) > 2) continue;      /* many candidates, much to move    */
            const coll__query query = query_of(kind, size, whole, is_exact, link);
            int chosen, best;
            const double value = run_all(&query, &chosen, &best);
            if (value <= 0) continue;
            note(&found, value, size, whole, 1);
            if (value > 1 + LIMIT_PERCENT / 100.0)
                fprintf(points, "| %s%s | %d | %.0f | %s, %.1f us | %.1f us | %s, %.1f us | %.1f us | %.3f |\n",
                        coll_kind_name(kind),
                        !is_reduction(kind) ? "" : is_exact ? ", integers" : ", floats", size, whole, run.algorithm[chosen],
                        run.seconds[chosen] * 1e6, run.list[chosen].seconds * 1e6, run.algorithm[best], run.seconds[best] * 1e6,
                        run.list[best].seconds * 1e6, value);
        }
    printf("| %s%s | %ld | %.3f | %.4f | %ld |\n", coll_kind_name(kind),
           !is_reduction(kind) ? "" : is_exact ? ", integers" : ", floats", found.count, found.worst,
           found.sum / (double)(found.count ? found.count : 1), found.beyond);
    fflush(stdout);
}

/* Call `each` for every kind that has a choice, reductions twice. */
static void for_all(bool has_runs, FILE *points)
{
    for (int kind = COLL_BARRIER; kind <= COLL_ALLTOALL; kind++) {
        if (rows_of((coll_kind)kind) < 2) continue;
        for (int exact = !is_reduction((coll_kind)kind); exact <= 1; exact++) {
            if (has_runs) by_runs((coll_kind)kind, exact, points);
            else by_forms((coll_kind)kind, exact);
        }
    }
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    const double began = seconds_now();
    FILE *points = tmpfile();
    char line[400];

    run.input = calloc(1, (4 << 20) + 4096), run.result = calloc(1, (4 << 20) + 4096);
    if (!points || !run.input || !run.result) return fprintf(stderr, "coll_tune: no memory\n"), 1;
    if (strcmp(part, "runs")) {
        printf("| by closed forms | chosen / best, worst | mean | best / floor, worst | mean |\n"
               "| --- | --- | --- | --- | --- |\n");
        for_all(false, points);
    }
    if (strcmp(part, "forms")) {
        printf("\n| by simulated runs, %s Gbit/s | points | chosen / best, worst | mean | beyond %d %% |\n"
               "| --- | --- | --- | --- | --- |\n",
               wires[1].name, LIMIT_PERCENT);
        for_all(true, points);
        printf("\n| beyond %d %% | ranks | bytes | chosen, run | form | best, run | form | ratio |\n"
               "| --- | --- | --- | --- | --- | --- | --- | --- |\n", LIMIT_PERCENT);
        rewind(points);
        while (fgets(line, sizeof line, points)) fputs(line, stdout);
    }
    printf("\n%.1f s\n", seconds_now() - began);
    fclose(points), free(run.input), free(run.result);
    return 0;
}
