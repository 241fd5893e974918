/* test_algorithms.c - the algorithms as pure functions: an interpreter runs all ranks of a world in one
 * thread, round by round, on symbols instead of numbers, and checks results, memory hazards, the promised costs and the
 * closed forms, on a clock.  Then the tuner.
 *
 *     cc -std=c11 -O1 -fsanitize=address,undefined tests/unit/test_algorithms.c -pthread && ./a.out [distance | thorough]
 */
#include "world.h"
#include "../support/check.h"
#include "../support/available.h"
#include "../support/floor.h"

/* ---- >>worlds ---- */

static const coll__link test_link = { 10e-6, 1e-6, 1e-9, 0.3e-9, 0 };
static long worlds_run;
static int order_of[1024];

static uint64_t seed = 20240607;

static int random_below(int end)
{
    seed = mixed(seed);
    return (int)(seed % (uint64_t)end);
}

static world world_of(const coll__algorithm *a, int size, int root, int radix, int many)
{
    world w = { .a = a, .size = size, .root = root, .radix = a->has_radix || size < 2 ? radix : size, .link = &test_link };
    w.blocks = coll__blocks_of(a, size, many);
    w.slots = 2 * size + w.blocks + 16 + (is_reduce_scatter(a->kind) ? size * size : 0);
    return w;
}

static void run(world *w)
{
    interpret(w);
    if (!*w->wrong) expect_results(w);
    if (!*w->wrong) expect_promises(w);
    CHECK(!*w->wrong, "%d \"%s\" on %d, root %d, radix %d, %d blocks, layout %d%s, round %d: %s", (int)w->a->kind, w->a->name,
          w->size,
          w->root, w->radix, w->blocks, (int)w->layout, w->order ? ", ordered" : "", w->rounds, w->wrong);
    worlds_run++;
}

/* All layouts of a world, and another order of ranks where there is one to choose. */
static void run_layouts(const coll__algorithm *a, int size, int root, int radix, int many)
{
    const bool has_order = !strcmp(a->name, "ring");
    const int layouts = is_reduce_scatter(a->kind) ? LAYOUTS : a->kind <= COLL_BROADCAST || is_alltoall(a->kind) ? 1 : 2;

    for (int l = 0; l < layouts; l++)
        for (int ordered = 0; ordered <= has_order; ordered++) {
            world w = world_of(a, size, root, radix, many);
            w.layout = (layout)l;
            for (int i = 0; i < size; i++) order_of[i] = i;
            for (int i = size - 1; i > 0; i--) {
                const int j = random_below(i + 1), t = order_of[i];
                order_of[i] = order_of[j], order_of[j] = t;
            }
            w.order = ordered ? order_of : NULL;
            run(&w);
        }
}

/* Radices: the small ones, some of the others, and the size itself. */
static void run_all_of(const coll__algorithm *a, int size, int root_step, int radix_step)
{
    const int many[] = { 1, 2, 3, 5, 8, coll__circulant_rounds(size, 2), 17 }, last = a->has_radix && size > 2 ? size : 2;

    for (int root = 0; root < (is_rooted(a->kind) ? size : 1); root += root_step)
        for (int radix = 2; radix <= last; radix = radix < last
            && radix + radix_step > last ? last : radix + (radix < 5 ? 1 : radix_step))
            for (int m = 0; m < (a->cut == COLL__CUT_MANY ? 7 : 1); m++)
                if (many[m] > 0) run_layouts(a, size, root, radix, many[m]);
}

static void test_worlds(bool is_thorough)
{
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        if (is_neighbor(a->kind)) continue;
        for (int size = 1; size <= 33; size++)
            if (is_thorough) run_all_of(a, size, 1, 1);
            else run_all_of(a, size, size <= 8 ? 1 : 1 + size / 2, size <= 10 ? 1 : 7);
        for (int size = 45; size <= 100; size += is_thorough ? 1 : 18) run_all_of(a, size, size - 1, 41);
    }
}

/* Larger worlds of the rows whose steps are few. */
static void test_large_worlds(void)
{
    const uint64_t start = seed;

    for (int n = 0; n < 100; n++) {
        const coll__algorithm *a = &coll__algorithms[random_below(COLL__ALGORITHM_COUNT)];
        const bool is_cut = a->cut == COLL__CUT_MANY || a->cut == COLL__CUT_TWO;
        const bool is_cheap = (a->has_radix || is_cut || !strcmp(a->name, "census")) && !is_scan(a->kind);
        const bool is_gathered = !strcmp(a->name, "gather") || (a->kind == COLL_ALLREDUCE && a->cut == COLL__CUT_PER_RANK);
        const bool has_all = is_allgather(a->kind) || is_alltoall(a->kind) || is_reduce_scatter(a->kind)
                          || a->kind == COLL_BARRIER || !strcmp(a->name, "scatter");
        const int size = 1 + random_below(!is_cheap || is_neighbor(a->kind) || is_gathered || has_all ? 160 : 1024);
        if (is_neighbor(a->kind)) continue;
        world w = world_of(a, size, is_rooted(a->kind) ? random_below(size) : 0, 2 + random_below(size < 8 ? size : 8),
            1 + random_below(40));
        if (w.radix > size) w.radix = size > 2 ? size : 2;
        run(&w);
        if (*w.wrong) fprintf(stderr, "seed %llu\n", (unsigned long long)start);
    }
}

/* ---- >>neighbors ---- */

enum { EDGES_MOST = 64 };

/* Random edges, some twice, some to the rank itself.  The lists are shuffled separately, but edges between the same two ranks
 * keep their order; the rest is filled with no rank.  `number` of an edge is its index among those between the same two. */
static void test_neighbors(const coll__algorithm *a, int size)
{
    static int source[32][2 * EDGES_MOST], destination[32][2 * EDGES_MOST], lists[32][2];
    coll__graph graphs[32];
    world w = world_of(a, size, 0, 2, 1);

    memset(lists, 0, sizeof lists);
    for (int e = random_below(EDGES_MOST); e > 0; e--) {
        const int from = random_below(size), to = random_below(size);
        if (!random_below(4)) destination[from][lists[from][1]++] = COLL_RANK_NONE;
        if (!random_below(4)) source[to][lists[to][0]++] = COLL_RANK_NONE;
        destination[from][lists[from][1]++] = to;
        source[to][lists[to][0]++] = from;
    }
    for (int v = 0; v < size; v++) graphs[v] = (coll__graph){ lists[v][0], lists[v][1], source[v], destination[v] };
    w.graphs = graphs, w.blocks = 2 * EDGES_MOST, w.slots = 2;
    interpret(&w);
    for (int v = 0; v < size && !*w.wrong; v++)
        for (int i = 0; i < lists[v][0] && !*w.wrong; i++) {
            int nth = 0, j = 0;
            const int from = source[v][i];
            const cell *c = cell_of(&w, v, COLL__RESULT, i);
            if (from == COLL_RANK_NONE) {
                if (c->state != NOTHING) fault(&w, "rank %d has received from no rank", v);
                continue;
            }
            for (int before = 0; before < i; before++) nth += source[v][before] == from;
            for (; destination[from][j] != v || nth-- > 0; j++) {}
            const bool is_one = a->kind == COLL_NEIGHBOR_ALLGATHER || a->kind == COLL_NEIGHBOR_ALLGATHERV;
            expect_leaf(&w, v, i, from, is_one ? 0 : j);
        }
    if (w.rounds != 1) fault(&w, "%d rounds", w.rounds);
    CHECK(!*w.wrong, "%d on %d: %s", (int)a->kind, size, w.wrong);
}

static void test_neighbor_worlds(void)
{
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++)
        for (int n = 0; is_neighbor(coll__algorithms[i].kind) && n < 60; n++) test_neighbors(&coll__algorithms[i], 1 + n % 9);
}

/* ---- >>tuner ---- */

static const coll__link nets[] = {                /* 1, 10 and 100 Gbit/s                                     */
    { 40e-6, 4e-6, 8e-9, 1e-10, 0 }, { 20e-6, 2e-6, 8e-10, 1e-10, 0 }, { 12e-6, 1.2e-6, 9e-11, 1e-10, 0 },
    { 12e-6, 12e-6, 9e-11, 1e-10, 0 },
};

/* Of blocks that only two ranks know, the choice gets no sizes. */
static coll__query query_of(coll_kind kind, int size, double bytes, const char *algorithm, const coll__link *link)
{
    if (is_private(kind)) bytes = 0;
    return (coll__query){ .kind = kind, .size = size, .bytes = bytes, .sum_bytes = bytes, .is_commutative = true,
                          .algorithm = algorithm, .link = link };
}

static coll__choice chosen(const coll__query *query)
{
    coll__choice choice = { .algorithm = NULL };
    const bool is_chosen = coll__choose(&choice, query);

    CHECK(is_chosen == (choice.algorithm != NULL), "kind %d on %d: an answer without a choice", (int)query->kind, query->size);
    return choice;
}

static bool is_refused(coll_kind kind, const char *name)
{
    const coll__query query = query_of(kind, 8, 4096, name, &nets[1]);
    return !chosen(&query).algorithm;
}

static void test_names(void)
{
    static const char *const unknown[] = { "", "rings", "Gather", "gather ", "gather:", "gather:1", "gather:x", "gather:4x",
        "gather:-2",
                                           "ring:2", "blocks", "direct2", "direc", ":4", "gather:99999999999999999999x" };
    char text[40];

    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        for (int size = 1; size < 70; size = size * 2 + 1)
            for (double bytes = 0; bytes < 1e8; bytes = bytes * 50 + 8) {
                coll__query query = query_of(a->kind, size, bytes, a->name, &nets[1]);
                query.is_exact = true;
                coll__choice c = chosen(&query);
                CHECK(c.algorithm == a && c.radix >= 2 && c.blocks >= 1 && c.slices >= 0, "%d \"%s\" was chosen",
                      (int)a->kind, a->name);
                CHECK(c.seconds >= 0 && c.seconds < 1e4, "%d \"%s\" takes %g s", (int)a->kind, a->name, c.seconds);
                CHECK((c.slices > 0) == a->is_pipelined && c.slices <= COLL__CUT_MOST && c.blocks <= COLL__CUT_MOST,
                      "%d \"%s\": %ld slices",
                      (int)a->kind, a->name, c.slices);
                snprintf(text, sizeof text, "%s:5", a->name);
                query.algorithm = text;
                c = chosen(&query);
                const bool has_number = a->has_radix || coll__has_cut(a);
                CHECK(has_number == (c.algorithm == a), "%d \"%s\"", (int)a->kind, text);
                if (!has_number) continue;
                const int radix = size > 5 ? 5 : size > 2 ? size : 2;
                CHECK(a->has_radix ? c.radix == radix : a->is_pipelined ? c.slices == 5 : c.blocks == 5,
                      "%d \"%s\": radix %d, %d blocks, %ld slices", (int)a->kind, text, c.radix, c.blocks, c.slices);
            }
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK(is_refused(COLL_ALLREDUCE, unknown[i]), "\"%s\" is no algorithm", unknown[i]);
    CHECK(is_refused(COLL_ALLREDUCE, "census"), "the census of inexact sums");
    for (int kind = COLL_ALLREDUCE_LIST; kind <= COLL_SENDRECV; kind++) CHECK(is_refused((coll_kind)kind, NULL), "kind %d", kind);
}

/* ---- >>model: times ---- */

/* Where every rank does the same, exactly; where messages of a round differ in length, and in trees, to some per cent. */
static void test_clock(bool is_printing)
{
    static const double sizes[] = { 8, 3e3, 1e5, 1e7 };
    static const coll__link links[] = { { 10e-6, 1e-6, 1e-9, 0.3e-9, 0 }, { 10e-6, 10e-6, 1e-9, 0.1e-9, 0 }, { 40e-6, 2e-6, 8e-9,
        0.1e-9, 0 } };

    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        const bool is_uneven = is_alltoall(a->kind);
        const bool is_tree = !strcmp(a->name, "tree") || !strcmp(a->name, "dbtree");
        const bool is_exact = !is_rooted(a->kind) && !is_scan(a->kind) && !is_tree;
        const bool is_blocks = a->cut == COLL__CUT_MANY;        /* few ranks need not wait for each other */
        double least = 1e9, most = 0;
        if (is_neighbor(a->kind)) continue;
        for (int size = 2; size <= 40; size += size < 10 ? 1 : 9)
            for (int radix = 2; radix <= (a->has_radix ? size : 2); radix += radix < 5 ? 1 : 9)
                for (int n = 0; n < 12; n++) {
                    world w = world_of(a, size, 0, radix, 1 + 3 * (n % 4));
                    const double bytes = a->kind == COLL_BARRIER ? 0 : sizes[n % 4] * size, sums = (n & 1) + 1;
                    const coll__shape shape = { size, w.radix, w.blocks, 1, bytes, bytes * sums, NULL };
                    w.link = &links[n / 4];
                    w.block_bytes = bytes / w.blocks, w.block_sum_bytes = sums * w.block_bytes;
                    interpret(&w);
                    const double ratio = coll__cost_of(a, w.link, &shape) / w.seconds;
                    least = ratio < least ? ratio : least, most = ratio > most ? ratio : most;
                    if (is_exact) CHECK(ratio > (is_uneven ? 0.98 : 0.999999) && ratio < 1.000001,
                                        "%d \"%s\" on %d, radix %d, %g bytes: %g s, not %g", (int)a->kind,
                                        a->name, size, radix, bytes, coll__cost_of(a, w.link, &shape), w.seconds);
                    else CHECK(ratio > 0.85 && ratio < (is_blocks ? 3.5 : 1.35),
                               "%d \"%s\" on %d, radix %d, %g bytes: %g s, not %g", (int)a->kind,
                               a->name, size, radix, bytes, coll__cost_of(a, w.link, &shape), w.seconds);
                }
        if (is_printing) printf("closed form / clock: kind %2d %-10s %.3f to %.3f\n", (int)a->kind, a->name, least, most);
    }
}

/* What the model of the reference picks for an allreduce: the radix of short ones, and where long ones begin. */
static void test_picks(void)
{
    static const int sizes[] = { 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64 }, radices[] = { 2, 3, 4, 6, 8, 12, 16, 6, 6, 8, 8 };
    static const double switches[3][11] = {
        { 1048576, 8192, 4096, 4096, 2048, 2048, 1024, 1024, 512, 512, 512 },
        { 524288, 65536, 32768, 16384, 8192, 8192, 4096, 4096, 4096, 2048, 2048 },
        { 262144, 131072, 65536, 32768, 32768, 16384, 16384, 8192, 8192, 8192, 4096 },
    };

    for (int net = 0; net < 3; net++)
        for (int i = 0; i < 11; i++) {
            coll__query query = query_of(COLL_ALLREDUCE, sizes[i], 8, NULL, &nets[net]);
            coll__choice c = chosen(&query);
            const bool is_near = (c.radix <= 2 * radices[i] && radices[i] <= 2 * c.radix) || (sizes[i] == 16 && c.radix == 4);
            CHECK(!strcmp(c.algorithm->name, "gather") && is_near, "8 bytes on %d: \"%s\", radix %d", sizes[i],
                  c.algorithm->name, c.radix);
            while (query.bytes < 1 << 30 && !strcmp(chosen(&query).algorithm->name, "gather")) query.sum_bytes = query.bytes *= 2;
            CHECK(query.bytes <= 2 * switches[net][i] && switches[net][i] <= 2 * query.bytes,
                  "net %d: gather on %d up to %g, not %g", net,
                  sizes[i], query.bytes, switches[net][i]);
            query.sum_bytes = query.bytes = 1 << 30;
            c = chosen(&query);
            CHECK(!strcmp(c.algorithm->name, "direct"), "1 GiB on %d: \"%s\"", sizes[i], c.algorithm->name);
        }
}

/* Invariants of every choice: all candidates sorted; the query's conditions kept; more bytes never take less time. */
static void test_conditions(void)
{
    coll__choice list[100], few[3];

    for (int kind = COLL_BARRIER; kind <= COLL_NEIGHBOR_ALLTOALLW; kind++)
        for (int size = 1; size <= 4096 && there_kind((coll_kind)kind); size = size < 9 ? size + 1 : size * 3 / 2)
            for (int flags = 0; flags < 8; flags++) {
                double before = 0;
                for (double bytes = 0; bytes <= 1 << 30; bytes = bytes * 4 + 8) {
                    coll__query query = query_of((coll_kind)kind, size, bytes, NULL, &nets[flags % 4]);
                    query.is_exact = flags & 1, query.must_be_canonical = flags & 2, query.is_commutative = flags & 4;
                    query.sum_bytes = bytes * (1 + (flags & 1));
                    const int count = coll__candidates(list, 100, &query), some = coll__candidates(few, 3, &query);
                    const coll__choice c = chosen(&query);
                    CHECK(count > 0 && count <= COLL__CANDIDATES_MOST && some == (count < 3 ? count : 3),
                          "kind %d: %d candidates", kind, count);
                    for (int i = 0; i < count; i++) {
                        const coll__algorithm *a = list[i].algorithm;
                        CHECK(i == 0 || coll__weighed_seconds(&list[i - 1]) <= coll__weighed_seconds(&list[i]),
                              "kind %d: candidate %d", kind, i);
                        CHECK(i >= some || few[i].seconds == list[i].seconds, "kind %d: fewer candidates are others", kind);
                        CHECK((a->keeps_order || query.is_commutative) && (!a->needs_exact || query.is_exact)
                              && (a->is_canonical || query.is_exact || !query.must_be_canonical),
                                  "kind %d: \"%s\" may not be used", kind, a->name);
                    }
                    CHECK(c.seconds <= 1.03 * list[0].seconds, "kind %d on %d: %g s, not %g", kind, size, c.seconds,
                          list[0].seconds);
                    CHECK(list[0].seconds >= before * 0.999999, "kind %d on %d: %g bytes take less time than fewer", kind, size,
                          bytes);
                    before = list[0].seconds;
                }
            }
}

/* The number of blocks and slices is the best one, or fewer that take little longer. */
static void test_cut(void)
{
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        if (!coll__has_cut(a)) continue;
        for (int size = 2; size <= 300; size = size * 2 + 1)
            for (double bytes = 8; bytes <= 1 << 30; bytes *= 5) {
                const coll__query query = query_of(a->kind, size, bytes, a->name, &nets[i % 3]);
                const coll__choice c = chosen(&query);
                for (int n = 1; n <= COLL__CUT_MOST && n * (double)COLL__CUT_LEAST_BYTES <= bytes; n += 1 + n / 50) {
                    const coll__shape shape = { size, 2, a->is_pipelined ? 1 : n, n, bytes, bytes, NULL };
                    CHECK(coll__cost_of(a, query.link, &shape) >= c.seconds / COLL__CUT_WORTH * 0.9999,
                          "\"%s\" of %g on %d: %d blocks, not %d or %ld", a->name, bytes, size, n, c.blocks, c.slices);
                }
            }
    }
}

/* No candidate is faster than the floor, and how far the best is from it. */
static void test_floor(bool is_printing)
{
    for (int kind = COLL_BARRIER; kind <= COLL_NEIGHBOR_ALLTOALLW; kind++) {
        double worst = 0, sum = 0, worst_bytes = 0;
        int worst_size = 0, count = 0;
        for (int net = 0; net < 4; net++)
            for (int size = 2; size <= 4096; size = size < 40 ? size + 1 : size * 5 / 4)
                for (double bytes = 8; bytes <= 1 << 30; bytes *= 4) {
                    coll__query query = query_of((coll_kind)kind, size, kind == COLL_BARRIER ? 0 : bytes, NULL, &nets[net]);
                    query.is_exact = true;
                    coll__choice c;
                    if (coll__candidates(&c, 1, &query) < 1) continue;
                    const double floor = floor_of(&query), ratio = c.seconds / floor;
                    CHECK(ratio >= 0.9999999, "net %d: kind %d of %g on %d: \"%s\" takes %g s, less than the floor, %g", net,
                          kind, bytes, size,
                          c.algorithm->name, c.seconds, floor);
                    sum += ratio, count++;
                    if (ratio > worst) worst = ratio, worst_size = size, worst_bytes = bytes;
                }
        if (is_printing) printf("best / floor: kind %2d mean %.3f worst %.3f (%d ranks, %g bytes)\n", kind, sum / count, worst,
            worst_size, worst_bytes);
    }
}

static void test_model(bool is_printing)
{
    test_clock(is_printing);
    test_picks();
    test_conditions();
    test_cut();
    test_floor(is_printing);
}

int main(int count, char **arguments)
{
    const bool is_printing = count > 1 && !strcmp(arguments[1], "distance");

    test_worlds(count > 1 && !strcmp(arguments[1], "thorough"));
    test_large_worlds();
    test_neighbor_worlds();
    test_names();
    test_model(is_printing);
    printf("%ld worlds\n", worlds_run);
    return CHECK_DONE();
}
