/* timing.h: how the programs of these folders take time.
 *
 * The ranks, threads or processes, map the same memory; the barrier and the figures lie in it, so that no library's own
 * barrier is timed.  What is compared is a set of contenders.  They take turns: one sweep is a batch of each, in an order that
 * changes from sweep to sweep, and a ratio is formed from two batches of one sweep, some hundred microseconds apart.  A
 * noisy machine usually slows both of them, and the median over the sweeps drops the rest.
 *
 * A batch is K operations back to back, K such that they last 200 us or more; it follows some that are not timed, so that each
 * contender finds the caches as it leaves them itself (but not where one takes 30 ms or more).  Of each batch the slowest rank's
 * figure counts.
 *
 * The processor time of other programs is printed beside the figures, so that those with other load can be marked.
 *
 * Include this before any system header. */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1                             /* the processors that a thread may use */
#endif

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef CPU_COUNT
#error "include timing.h before any system header"
#endif

#define BENCH_UNUSED __attribute__((unused))

enum { BENCH_RANKS = 64, BENCH_CONTENDERS = 16, BENCH_BATCHES = 512, BENCH_SIZES = 32 };
enum { BENCH_WRONG = 3, BENCH_ALONE = 5 };        /* exit statuses: a wrong result; the other ranks ended    */

/* Operation number i of a contender, for this rank. */
typedef void bench_op(void *context, long i);

typedef struct bench_contender {
    const char *name;
    bench_op   *op;
    void       *context;
    long        next;                             /* the number of its next operation                         */
    long        batch;                            /* operations in a batch                                    */
    double      batch_s;                          /* what it takes, about                                     */
    bool        is_long;                          /* one of them overruns every cache                         */
    bool        is_base;                          /* the others are divided by it                             */
    bool        is_loose;                         /* may write into `out` beside its result                   */
} bench_contender;

typedef struct bench_plan {
    double budget_s;                              /* for all contenders together                              */
    int    step;                                  /* a batch is a multiple of it: the ranks, where roots rotate */
    bool   is_synced;                             /* a barrier before each operation, outside its time        */
} bench_plan;

typedef struct bench_shared {
    _Alignas(128) int arrived;
    _Alignas(128) int epoch;
    _Alignas(128) int goes_on;
    double seconds[BENCH_CONTENDERS][BENCH_BATCHES][BENCH_RANKS];      /* for one operation                  */
    double used[BENCH_RANKS];                     /* processor seconds of each rank's process                 */
    double others;                                /* processors that others used in the last measurement      */
} bench_shared;

typedef struct bench_team {
    bench_shared *shared;
    int rank, ranks;
    bool is_crowded;                              /* more ranks than processors: waits yield at once          */
} bench_team;

static double bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- >>processors ---- */

/* To be read before anything is pinned. */
static cpu_set_t bench_processors;

static int bench_find_processors(void)
{
    if (!CPU_COUNT(&bench_processors)) sched_getaffinity(0, sizeof bench_processors, &bench_processors);
    return CPU_COUNT(&bench_processors);
}

/* Bind the calling thread to the one processor that is its turn, round robin. */
BENCH_UNUSED static void bench_pin(int rank)
{
    const int turn = rank % bench_find_processors();
    cpu_set_t one;
    size_t processor = 0;

    for (int left = turn; left || !CPU_ISSET(processor, &bench_processors); processor++)
        if (CPU_ISSET(processor, &bench_processors)) left--;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* ---- >>the team ---- */

/* What the ranks share: fresh memory for the threads of one process (path NULL), or a file that all of them name. */
BENCH_UNUSED static bench_shared *bench_share(const char *path)
{
    const int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    bench_shared *shared;

    if (path && (file < 0 || ftruncate(file, sizeof *shared))) {
        perror(path);
        exit(1);
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, path ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, file, 0);
    if (file >= 0) close(file);
    if (shared == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return shared;
}

static void bench_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void bench_barrier(const bench_team *team)
{
    enum { SPINS = 2000, CLOCKED = 4096 };
    bench_shared *const s = team->shared;
    const int epoch = __atomic_load_n(&s->epoch, __ATOMIC_ACQUIRE);
    double since = 0;

    if (__atomic_add_fetch(&s->arrived, 1, __ATOMIC_ACQ_REL) == team->ranks) {
        __atomic_store_n(&s->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&s->epoch, epoch + 1, __ATOMIC_RELEASE);
        return;
    }
    for (unsigned turn = 1; __atomic_load_n(&s->epoch, __ATOMIC_ACQUIRE) == epoch; turn++) {
        if (turn % CLOCKED == 0) {
            const double now = bench_now();
            if (since == 0) since = now;
            if (now - since > 60) {
                fprintf(stderr, "rank %d has waited 60 s for the others\n", team->rank);
                _exit(BENCH_ALONE);
            }
        }
        if (team->is_crowded || turn > SPINS) sched_yield();
        else bench_relax();
    }
}

/* ---- >>others: processor time of other programs ---- */

/* Processor seconds of all programs of this machine; interrupts are not theirs. */
static double bench_busy(void)
{
    FILE *const stat = fopen("/proc/stat", "r");
    double user = 0, nice = 0, system = 0;

    if (!stat) return 0;
    if (fscanf(stat, "cpu %lf %lf %lf", &user, &nice, &system) != 3) user = nice = system = 0;
    fclose(stat);
    return (user + nice + system) / (double)sysconf(_SC_CLK_TCK);
}

/* What those of this job have had of them: a process counts once, by its first thread. */
static void bench_note_used(const bench_team *team)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    team->shared->used[team->rank] = syscall(SYS_gettid) == getpid() ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec : 0;
}

/* The seconds that others have had up to now, on rank 0; called by all ranks.  The machine counts in ticks, so that a difference
 * of two is true within some hundredths. */
static double bench_of_others(const bench_team *team)
{
    double others = 0;

    bench_note_used(team);
    bench_barrier(team);
    if (team->rank == 0) {
        others = bench_busy();
        for (int r = 0; r < team->ranks; r++) others -= team->shared->used[r];
    }
    bench_barrier(team);
    return others;
}

/* ---- >>measuring ---- */

/* The slowest rank's seconds for an operation of a batch. */
static double bench_slowest(const bench_team *team, int contender, long batch)
{
    const double *const seconds = team->shared->seconds[contender][batch];
    double slowest = 0;

    for (int r = 0; r < team->ranks; r++) if (seconds[r] > slowest) slowest = seconds[r];
    return slowest;
}

/* `count` operations; this rank's time for one of them goes where the others find it. */
static void bench_batch(const bench_team *team, bench_contender *c, int contender, long batch, long count, bool is_synced)
{
    double spent = 0;

    for (long done = 0; done < count; ) {
        const long stretch = is_synced ? 1 : count;
        bench_barrier(team);
        const double start = bench_now();
        for (long i = 0; i < stretch; i++) c->op(c->context, c->next++);
        spent += bench_now() - start;
        done += stretch;
    }
    team->shared->seconds[contender][batch][team->rank] = spent / (double)count;
    bench_barrier(team);
}

/* How many operations last as long as a batch should.  All ranks find the same, from the same figures.  The better of two, for
 * a rank that lost its processor for a while would make all batches too short. */
static void bench_pace(const bench_team *team, bench_contender *c, int contender, const bench_plan *plan)
{
    const double least_s = 200e-6, warm_s = 2e-3, long_s = 30e-3;
    const long most = plan->is_synced ? 64 : 100000;
    double one = 0;

    for (long count = plan->step; ; count *= 4) {
        for (int attempt = 0; attempt < 2; attempt++) {
            bench_batch(team, c, contender, 0, count, plan->is_synced);
            const double seconds = bench_slowest(team, contender, 0);
            one = attempt && one < seconds ? one : seconds;
            bench_barrier(team);
        }
        if (one * (double)count >= warm_s || count >= most) break;
    }
    c->batch = one > 0 ? (long)(least_s / one) + 1 : most;
    if (c->batch > most) c->batch = most;
    c->batch = (c->batch + plan->step - 1) / plan->step * plan->step;
    c->batch_s = one * (double)c->batch;
    c->is_long = one > long_s;
}

/* Measure `n` contenders in turns until the budget is spent; called by all ranks.  Returns the number of sweeps; the figures
 * are where bench_slowest finds them, until the next call. */
BENCH_UNUSED static long bench_measure(const bench_team *team, bench_contender *contenders, int n, const bench_plan *plan)
{
    double sweep_s = 0;
    long sweep = 0;

    for (int c = 0; c < n; c++) {
        bench_pace(team, &contenders[c], c, plan);
        sweep_s += contenders[c].batch_s;
    }
    const long least = sweep_s < 20e-3 ? 11 : 5;
    const double others = bench_of_others(team), start = bench_now();
    for (bool goes_on = true; goes_on && sweep < BENCH_BATCHES; sweep++) {
        for (int k = 0; k < n; k++) {
            const int turn = (int)((k + sweep / 2) % n), c = sweep % 2 ? n - 1 - turn : turn;
            bench_contender *const it = &contenders[c];
            for (int i = 0; i < plan->step && !it->is_long; i++) it->op(it->context, it->next++);
            bench_batch(team, it, c, sweep, it->batch, plan->is_synced);
        }
        if (team->rank == 0) team->shared->goes_on = sweep + 1 < least || bench_now() - start < plan->budget_s;
        bench_barrier(team);
        goes_on = team->shared->goes_on;
        bench_barrier(team);
    }
    const double ticks_s = 0.04, lasted = bench_now() - start, had = bench_of_others(team) - others - ticks_s;
    if (team->rank == 0) team->shared->others = had > 0 ? had / lasted : 0;
    return sweep;
}

/* ---- >>figures ---- */

typedef struct bench_figure { double p10, median, p90; } bench_figure;

static int bench_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bench_figure bench_figures(double *values, long count)
{
    qsort(values, (size_t)count, sizeof *values, bench_order);
    const double median = count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
    return (bench_figure){ .p10 = values[count / 10], .median = median, .p90 = values[count * 9 / 10] };
}

/* Microseconds of an operation. */
static bench_figure bench_time(const bench_team *team, int contender, long sweeps)
{
    double values[BENCH_BATCHES];

    for (long b = 0; b < sweeps; b++) values[b] = 1e6 * bench_slowest(team, contender, b);
    return bench_figures(values, sweeps);
}

/* Time over time, sweep by sweep. */
static bench_figure bench_ratio(const bench_team *team, int contender, int base, long sweeps)
{
    double values[BENCH_BATCHES];

    for (long b = 0; b < sweeps; b++) values[b] = bench_slowest(team, contender, b) / bench_slowest(team, base, b);
    return bench_figures(values, sweeps);
}

/* ---- >>lines: what compare.py reads, columns separated by tabs ---- */

/* kind table ranks column row p10 median p90 sweeps; a ratio names its base behind the row: "ours/ref-plain" */
static void bench_line(const char *kind, const char *table, int ranks, size_t column, const char *row, bench_figure f,
                       long sweeps)
{
    printf("%s\t%s\t%d\t%zu\t%s\t%.6g\t%.6g\t%.6g\t%ld\n", kind, table, ranks, column, row, f.p10, f.median, f.p90, sweeps);
    fflush(stdout);
}

/* The times of all contenders, the ratios between those that are no base and those that are, and what others used. */
BENCH_UNUSED static void bench_report(const bench_team *team, const bench_contender *contenders, int n, long sweeps,
                                      const char *table, size_t column)
{
    char row[128];

    for (int c = 0; c < n && team->rank == 0; c++)
        bench_line("time", table, team->ranks, column, contenders[c].name, bench_time(team, c, sweeps), sweeps);
    for (int above = 0; above < n && team->rank == 0; above++)
        for (int below = 0; below < n && !contenders[above].is_base; below++) {
            if (!contenders[below].is_base) continue;
            snprintf(row, sizeof row, "%s/%s", contenders[above].name, contenders[below].name);
            bench_line("ratio", table, team->ranks, column, row, bench_ratio(team, above, below, sweeps), sweeps);
        }
    if (team->rank == 0) {
        const double used = team->shared->others;
        bench_line("others", table, team->ranks, column, "-", (bench_figure){ used, used, used }, sweeps);
    }
    bench_barrier(team);
}

/* ---- >>arguments ---- */

/* "8,1K,64M" as numbers; returns how many. */
BENCH_UNUSED static int bench_sizes(const char *text, size_t *sizes)
{
    const char *const whole = text;
    int n = 0;

    while (*text && n < BENCH_SIZES) {
        char *end;
        size_t size = strtoull(text, &end, 10);
        if (end == text) break;
        if (*end == 'K') size <<= 10, end++;
        else if (*end == 'M') size <<= 20, end++;
        sizes[n++] = size;
        text = *end == ',' ? end + 1 : end;
    }
    if (n && !*text) return n;
    fprintf(stderr, "\"%s\" is no list of sizes, as in 8,1K,64M\n", whole);
    exit(2);
}

/* Page-aligned zeros. */
BENCH_UNUSED static void *bench_alloc(size_t bytes)
{
    const size_t page = 4096, whole = (bytes + page) / page * page;
    void *const at = aligned_alloc(page, whole);

    if (!at) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memset(at, 0, whole);
}

#endif /* BENCH_TIMING_H */
