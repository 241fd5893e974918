/* overlap.c - an allreduce under computation: two ranks, which are processes of this machine, over a loopback of limited rate.
 *
 *     overlap BUDGET BYTES COMPUTE_MS IO[,IO]
 *
 * In turns: the computation alone, which is a fixed amount of arithmetic in the first cache; the allreduce alone; and both, the
 * allreduce started, the computation done, the allreduce waited for.  For each IO (coll_config.io) in two ways: "apart" never
 * calls the library between start and wait, "calls" calls coll_progress every 2 ms; and each of them again as "alone", without
 * the thread of the library that moves operations on meanwhile (coll_config.background).  The ratio is both over the longer
 * one, formed sweep by sweep.  The library is in ours.o. */
#include "../common/data.h"
#include "../common/processes.h"

#include "../../coll.h"

enum { IOS = 2, WAYS = 2, WORLDS = IOS * WAYS, NUMBERS = 2048 };

typedef struct world {
    char io[32], name[40], both[2][48], address[BENCH_ADDRESS_ROOM];
    int  background;
    coll_comm *comm;
    struct settings *all;
    bench_case *part;
} world;

typedef struct settings {
    double budget_s, compute_s;
    size_t bytes;
    int    worlds;
    long   turns;                                 /* of work: COMPUTE_MS                                       */
    world  world[WORLDS];
    bench_shared *shared;
    float  numbers[NUMBERS];
} settings;

/* ---- >>computation ---- */

static void work(settings *all, long turns)
{
    for (long t = 0; t < turns; t++)
        for (int i = 0; i < NUMBERS; i++) all->numbers[i] = all->numbers[i] * 0.999f + 0.5f;
    __asm__ volatile("" : : "r"(all->numbers) : "memory");
}

/* How many turns last that long on an undisturbed processor: by the fastest of some attempts. */
static long turns_for(settings *all, double seconds)
{
    enum { PROBE = 500, ATTEMPTS = 20 };
    double best = 1e9;

    for (int a = 0; a < ATTEMPTS; a++) {
        const double start = bench_now();
        work(all, PROBE);
        const double took = bench_now() - start;
        if (took < best) best = took;
    }
    return (long)(seconds / best * PROBE) + 1;
}

/* ---- >>contenders ---- */

static _Noreturn void fail(const world *w)
{
    fprintf(stderr, "overlap, %s: %s\n", w->name, coll_error(w->comm));
    exit(1);
}

static void compute(void *context, long i)
{
    settings *const all = context;

    (void)i;
    work(all, all->turns);
}

static void transfer(void *context, long i)
{
    world *const w = context;

    (void)i;
    if (coll_allreduce(w->comm, w->part->in, w->part->out, w->part->count, COLL_F32, COLL_SUM)) fail(w);
}

static void both(world *w, int slices)
{
    settings *const all = w->all;
    coll_request *request;

    if (coll_iallreduce(w->comm, w->part->in, w->part->out, w->part->count, COLL_F32, COLL_SUM, &request)) fail(w);
    for (int s = 0; s < slices; s++) {
        work(all, all->turns / slices);
        if (slices > 1 && coll_progress(w->comm) < 0) fail(w);
    }
    if (coll_wait(request)) fail(w);
    coll_request_free(request);
}

static void both_apart(void *context, long i)
{
    (void)i;
    both(context, 1);
}

static void both_calls(void *context, long i)
{
    world *const w = context;
    const int slices = (int)(w->all->compute_s / 2e-3);

    (void)i;
    both(w, slices > 2 ? slices : 2);
}

/* ---- >>a rank ---- */

/* Both over the longer one, sweep by sweep. */
static bench_figure over_longer(const bench_team *team, int both_at, int compute_at, int transfer_at, long sweeps)
{
    double values[BENCH_BATCHES];

    for (long b = 0; b < sweeps; b++) {
        const double one = bench_slowest(team, compute_at, b), other = bench_slowest(team, transfer_at, b);
        values[b] = bench_slowest(team, both_at, b) / (one > other ? one : other);
    }
    return bench_figures(values, sweeps);
}

static void measure(settings *all, const bench_team *team, bench_case *part)
{
    const bench_plan plan = { .budget_s = all->budget_s, .step = 1 };
    bench_contender contenders[1 + (1 + 2 * WAYS) * IOS] = { { .name = "compute", .op = compute, .context = all } };
    int n = 1, both_of[WORLDS], transfer_of[WORLDS];

    for (int w = 0; w < all->worlds; w++) {
        world *const it = &all->world[w];
        both_of[w] = 0;
        if (!it->comm) continue;
        it->part = part;
        transfer_of[w] = w % WAYS ? transfer_of[w - 1] : n;
        if (w % WAYS == 0) contenders[n++] = (bench_contender){ .name = it->name, .op = transfer, .context = it };
        both_of[w] = n;
        contenders[n++] = (bench_contender){ .name = it->both[0], .op = both_apart, .context = it };
        contenders[n++] = (bench_contender){ .name = it->both[1], .op = both_calls, .context = it };
    }
    for (int c = 1; c < n; c++) bench_verify(team, &contenders[c], part, false);
    const long sweeps = bench_measure(team, contenders, n, &plan);
    bench_report(team, contenders, n, sweeps, "overlap", all->bytes);
    for (int w = 0; w < all->worlds && team->rank == 0; w++)
        for (int b = both_of[w]; b > 0 && b < both_of[w] + 2; b++) {
            char row[64];
            snprintf(row, sizeof row, "%s/longer", contenders[b].name);
            bench_line("ratio", "overlap", team->ranks, all->bytes, row, over_longer(team, b, 0, transfer_of[w], sweeps), sweeps);
        }
}

static int run(void *context, int rank)
{
    settings *const all = context;
    const bench_team team = { .shared = all->shared, .rank = rank, .ranks = 2 };
    bench_case part = { .rank = rank, .ranks = 2, .in = bench_alloc(all->bytes), .out = bench_alloc(all->bytes) };

    bench_pin(rank);
    for (int w = 0; w < all->worlds; w++) {
        world *const it = &all->world[w];
        const coll_config config = { .transport = "tcp", .rank = rank, .size = 2, .address = it->address,
                                     .tcp = { .io = it->io, .share_memory = -1 }, .background = it->background };
        it->all = all;
        if (!coll_init(&it->comm, &config)) continue;
        if (strcmp(it->io, "uring")) {          /* only this one may be missing on a machine                 */
            fprintf(stderr, "overlap, %s: %s\n", it->name, coll_error(NULL));
            return 1;
        }
        if (rank == 0) bench_line("none", "overlap", 2, all->bytes, it->name, (bench_figure){ 0 }, 0);
    }
    bench_case_size(&part, all->bytes);
    bench_barrier(&team);
    all->turns = turns_for(all, all->compute_s);
    bench_barrier(&team);
    measure(all, &team, &part);
    for (int w = 0; w < all->worlds; w++) coll_free(all->world[w].comm);
    free(part.in);
    free(part.out);
    return 0;
}

int main(int argc, char **argv)
{
    static settings all;

    if (argc != 5) {
        fprintf(stderr, "usage: overlap BUDGET BYTES COMPUTE_MS IO,...\n");
        return 2;
    }
    size_t size[BENCH_SIZES];
    if (bench_sizes(argv[2], size) != 1) return 2;
    all.budget_s = atof(argv[1]);
    all.bytes = size[0];
    all.compute_s = atof(argv[3]) * 1e-3;
    for (const char *at = argv[4]; *at && all.worlds < WORLDS; ) {
        const size_t length = strcspn(at, ",");
        for (int way = 0; way < WAYS; way++) {
            world *const it = &all.world[all.worlds++];
            snprintf(it->io, sizeof it->io, "%.*s", (int)length, at);
            const char *const alone = way ? "-alone" : "";
            snprintf(it->name, sizeof it->name, "%.*s%s", (int)length, at, alone);
            snprintf(it->both[0], sizeof it->both[0], "%.*s%s-apart", (int)length, at, alone);
            snprintf(it->both[1], sizeof it->both[1], "%.*s%s-calls", (int)length, at, alone);
            it->background = way ? -1 : 1;
            bench_hold_port(it->address);
        }
        at += length + (at[length] == ',');
    }
    bench_find_processors();
    all.shared = bench_share(NULL);
    return bench_fork(2, run, &all);
}
