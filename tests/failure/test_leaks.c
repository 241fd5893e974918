/* test_leaks.c - making and freeing something ten thousand times leaks no descriptors, threads, mappings or memory.
 *
 *     test_leaks [PART,...]                             PART: one, threads, tcp, refused, groups, requests
 */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include <dirent.h>
#include <poll.h>
#include <malloc.h>

#include "../support/check.h"
#include "../support/support.h"

enum { KIBI = 1024, WARM_UP = 20, MAPPINGS_MOST = 8, HEAP_MOST = 48 * KIBI, RSS_MOST_KIB = 4096 };

static const char *io = "poll";
static char part_name[60] = "start";

static void report_hang(void) { fprintf(stderr, "failed: %s: hangs\n", part_name); }

/* ---- >>counting ---- */

/* The resources of the process. */
typedef struct holding {
    int    descriptors, threads, mappings;
    size_t heap;                                  /* bytes allocated and not freed; 0: unknown                */
    long   rss_kib;
} holding;

static int count_entries(const char *path)
{
    DIR *list = opendir(path);
    int count = 0;

    while (list && readdir(list)) count++;
    if (list) closedir(list);
    return count;
}

static holding hold(void)
{
    holding h = { .descriptors = count_entries("/proc/self/fd"), .threads = count_entries("/proc/self/task") };
    FILE *maps = fopen("/proc/self/maps", "re"), *pages = fopen("/proc/self/statm", "re");
    long resident = 0;

    for (int c; maps && (c = getc(maps)) != EOF;) h.mappings += c == '\n';
    if (pages && fscanf(pages, "%*d %ld", &resident) == 1) h.rss_kib = resident * (sysconf(_SC_PAGESIZE) / KIBI);
    if (maps) fclose(maps);
    if (pages) fclose(pages);
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    h.heap = mallinfo2().uordblks;
#endif
    return h;
}

/* The kernel may list a thread for a moment after it was joined: wait for the kernel. */
static holding settle(int threads)
{
    holding h = hold();

    for (int i = 0; i < 2000 && h.threads > threads; i++) {
        (void)poll(NULL, 0, 1);
        h = hold();
    }
    return h;
}

static void check_growth(const holding *before, const holding *after)
{
    CHECK(after->descriptors <= before->descriptors, "%s: %d descriptors, %d before", part_name, after->descriptors,
          before->descriptors);
    CHECK(after->threads <= before->threads, "%s: %d threads, %d before", part_name, after->threads, before->threads);
    CHECK(after->mappings <= before->mappings + MAPPINGS_MOST, "%s: %d mappings, %d before", part_name, after->mappings,
          before->mappings);
    CHECK(after->heap <= before->heap + HEAP_MOST, "%s: %zu bytes of heap, %zu before", part_name, after->heap, before->heap);
    CHECK(after->rss_kib <= before->rss_kib + RSS_MOST_KIB, "%s: %ld KiB, %ld before", part_name, after->rss_kib,
          before->rss_kib);
}

/* Repeat a few times, so that one-time allocations are made; then many times, after which there must be no more. */
static void repeat(const char *name, int cycles, bool (*body)(int cycle))
{
    const double began = support_seconds();
    int good = 0;

    snprintf(part_name, sizeof part_name, "%s, %s", name, io);
    for (int i = 0; i < WARM_UP; i++) good += body(i);
    const holding before = hold();
    for (int i = 0; i < cycles; i++) good += body(i);
    const holding after = settle(before.threads);
    CHECK(good == cycles + WARM_UP, "%s: %d of %d cycles succeeded; %s", part_name, good, cycles + WARM_UP, coll_error(NULL));
    check_growth(&before, &after);
    printf("%-24s %6d cycles  %5.1f s  heap %+ld bytes, resident %+ld KiB\n", part_name, cycles, support_seconds() - began,
           (long)after.heap - (long)before.heap, after.rss_kib - before.rss_kib);
}

/* ---- >>what is repeated ---- */

static int adds(coll_comm *comm, void *arg)
{
    int32_t one = 1, sum = 0;
    (void)arg;
    return coll_allreduce(comm, &one, &sum, 1, COLL_I32, COLL_SUM) != COLL_OK || sum != coll_size(comm);
}

static bool world_of_one(int cycle)
{
    const coll_config config = { .size = 1 };
    coll_comm *comm = NULL;

    (void)cycle;
    return coll_init(&comm, &config) == COLL_OK && adds(comm, NULL) == 0 && coll_free(comm) == COLL_OK;
}

static bool world_of_threads(int cycle) { (void)cycle; return coll_spawn(2, adds, NULL, NULL) == 0; }

static int does_nothing(coll_comm *comm, void *arg) { (void)comm, (void)arg; return 0; }

static bool world_of_tcp(int cycle)
{
    const char *world = !strcmp(io, "uring") ? "tcp-uring" : "tcp-poll";
    return support_run(world, 2, cycle % 8 == 0 ? adds : does_nothing, NULL) == 0;
}

/* A start that fails: no other rank connects, or the address is invalid. */
static bool refused_start(int cycle)
{
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    const coll_config config = { .rank = cycle % 2, .size = 2, .address = cycle % 3 ? address : "nonsense", .tcp = { .io = io },
                                 .start_timeout_ms = 1, .log_level = COLL_LOG_ERROR };
    coll_comm *comm = NULL;
    const coll_status status = coll_init(&comm, &config);

    close(port);
    return status < 0 && !comm && coll_free(comm) == COLL_OK;
}

static int group_cycles;

static int groups(coll_comm *comm, void *arg)
{
    const int rank = coll_rank(comm), both[2] = { 1, 0 };
    const holding *before = NULL;
    holding first;

    (void)arg;
    for (int i = -WARM_UP; i < group_cycles; i++) {
        coll_comm *split = NULL, *dup = NULL, *made = NULL;
        if (i == 0 && rank == 0) first = hold(), before = &first;
        if (coll_split(comm, 0, -rank, &split) || coll_dup(split, &dup) || coll_create(comm, both, 2, 3, &made)) return 1;
        if (i % 16 == 0 && (adds(split, NULL) || adds(dup, NULL) || adds(made, NULL))) return 2;
        coll_free(dup);
        coll_free(made);
        coll_free(split);
    }
    if (coll_barrier(comm)) return 3;
    if (!before) return 0;
    const holding after = hold();
    check_growth(before, &after);
    return 0;
}

/* Communicators are made and freed while the world stays. */
static void repeat_groups(const char *world, int cycles)
{
    const double began = support_seconds();

    snprintf(part_name, sizeof part_name, "groups, %s", world);
    group_cycles = cycles;
    CHECK(support_run(world, 2, groups, NULL) == 0, "%s: it fails", part_name);
    printf("%-24s %6d cycles  %5.1f s\n", part_name, cycles, support_seconds() - began);
}

static coll_comm *alone;

/* Requests of every kind, one of them persistent, one freed while it runs. */
static bool requests(int cycle)
{
    int32_t x = 1, y = 0, z = 0;
    coll_request *r = NULL, *p = NULL, *in = NULL;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &x, .recv = &y, .count = 1, .type = COLL_I32 };
    bool good = coll_iallreduce(alone, &x, &y, 1, COLL_I32, COLL_SUM, &r) == COLL_OK && coll_wait(r) == COLL_OK;

    (void)cycle;
    coll_request_free(r);
    good = good && coll_prepare(alone, &call, &p) == COLL_OK && coll_restart(p) == COLL_OK && coll_wait(p) == COLL_OK;
    coll_request_free(p);
    good = good && coll_irecv(alone, &z, 1, COLL_I32, 0, 4, &in) == COLL_OK && coll_send(alone, &x, 1, COLL_I32, 0, 4) == COLL_OK
        && coll_wait(in) == COLL_OK && z == 1;
    coll_request_free(in);
    return good;
}

/* ---- >>all of it ---- */

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;
    const bool has_uring = !support_refusal("tcp-uring");
    const double scale = support_scale();
    const int many = (int)(10000 * scale), some = (int)(600 * scale);

    setvbuf(stdout, NULL, _IOLBF, 0);
    support_limit(400, report_hang);
    if (support_listed(parts, "one")) repeat("a world of one", many, world_of_one);
    if (support_listed(parts, "requests") && coll_init(&alone, &(coll_config){ .size = 1 }) == COLL_OK) {
        repeat("requests", many, requests);
        coll_free(alone);
    }
    if (support_listed(parts, "threads")) repeat("two threads", many, world_of_threads);
    for (int i = 0; i < 1 + has_uring; i++) {
        io = i ? "uring" : "poll";
        if (support_listed(parts, "tcp")) repeat("two ranks", some, world_of_tcp);
        if (support_listed(parts, "refused")) repeat("a start that fails", some, refused_start);
        if (support_listed(parts, "groups")) repeat_groups(i ? "tcp-uring" : "tcp-poll", many);
    }
    if (support_listed(parts, "groups")) repeat_groups("threads", many);
    return CHECK_DONE();
}
