/* test_disagree.c - one rank makes another call than the others: another root, count, type, operation, algorithm or kind.  A rank
 * must get an error, from that call, from the next one, or from coll_free.  If all agree, no rank gets one.  No rank completes a
 * call with COLL_OK if it begins it after others have abandoned it.
 *
 *     test_disagree [WORLD,...] [CASES] [list]           CASES: so many at random in each world (default 40; 0: all of them)
 *                                                        list: print each case in which no rank gets an error
 *
 * Every case is a world of its own.  COLL_TEST_SEED repeats a run. */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/available.h"
#include "../support/support.h"

#include <stdatomic.h>

enum { RANKS_MOST = 8, COUNT_MOST = 40000, CALLS_MOST = 3, CASE_SECONDS = 20, STALL_MS = 15000 };

/* ---- >>cases ---- */

typedef enum wrong { NOTHING, ROOT, COUNT, TYPE, OP, ALGORITHM, KIND, WRONGS } wrong;
static const char *const wrong_names[] = { "nothing", "root", "count", "type", "op", "algorithm", "kind" };

/* What follows the call in which one rank errs: nothing, the same call again (the rank errs again), a barrier, or calls without
 * an error: the same ones, and then a barrier. */
typedef enum then { FREE, AGAIN, BARRIER, RIGHT, RIGHT_2, RIGHT_5, THENS } then;
static const char *const then_names[] = { "coll_free", "the same again", "a barrier", "the same rightly",
                                          "the same rightly twice", "the same rightly 5 times" };
static const int rights[] = { 0, 0, 0, 1, 2, 5 };

static const coll_kind kinds[] = {
    COLL_BROADCAST, COLL_REDUCE, COLL_GATHER, COLL_SCATTER, COLL_GATHERV, COLL_SCATTERV, COLL_SCAN, COLL_EXSCAN, COLL_ALLREDUCE,
    COLL_ALLGATHER, COLL_ALLTOALL, COLL_REDUCE_SCATTER, COLL_BARRIER
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const int sizes[] = { 2, 3, 4, 5, 8 };
static const size_t counts[] = { 1, 100, 3000, COUNT_MOST };                      /* in a slot, eager, a few KiB, long  */

/* Algorithms that a broadcast and a reduce may have; NULL: what the tuner or the transport chooses. */
static const char *const algorithms[][8] = {
    [COLL_BROADCAST] = { NULL, "tree:2", "tree:4", "scatter:2", "blocks:3", "dbtree:4", NULL },
    [COLL_REDUCE] = { NULL, "gather:2", "direct", "tree:2", "blocks:3", "dbtree:4", NULL },
};

/* The algorithm of a rank that alone names one.  It uses messages, and the others may share memory. */
static const char *const other_algorithms[] = {
    [COLL_BROADCAST] = "tree:3", [COLL_REDUCE] = "tree:3", [COLL_GATHER] = "tree", [COLL_SCATTER] = "tree",
    [COLL_GATHERV] = "tree", [COLL_SCATTERV] = "tree", [COLL_SCAN] = "gather", [COLL_EXSCAN] = "chain", [COLL_ALLREDUCE] = "ring",
    [COLL_ALLGATHER] = "ring", [COLL_ALLTOALL] = "direct", [COLL_REDUCE_SCATTER] = "tree", [COLL_BARRIER] = "tree"
};

typedef struct scenario {
    const char *world;
    coll_kind kind;
    wrong     what;
    then      next;
    int       size, odd, root, other_root;        /* odd: the rank that errs                                  */
    size_t    count;
    const char *algorithm;
    bool      is_derived;                         /* in a communicator that was made by coll_dup              */
    bool      polls;                              /* the rank that errs tests, where the others wait          */
    int       late, late_us;                      /* the delay of this rank                                   */
} scenario;

static bool is_rooted(coll_kind kind)
{
    return kind == COLL_BROADCAST || kind == COLL_REDUCE || kind == COLL_GATHER || kind == COLL_SCATTER || kind == COLL_GATHERV
        || kind == COLL_SCATTERV;
}

static bool reduces(coll_kind kind)
{
    return kind == COLL_REDUCE || kind == COLL_ALLREDUCE || kind == COLL_REDUCE_SCATTER || kind == COLL_SCAN
        || kind == COLL_EXSCAN;
}

/* Does one rank err in this way in this call, so that others could detect it? */
static bool is_a_case(const scenario *s)
{
    const bool is_v = s->kind == COLL_GATHERV || s->kind == COLL_SCATTERV;

    if (s->what == ROOT && !is_rooted(s->kind)) return false;
    if (s->what == OP && !reduces(s->kind)) return false;
    if ((s->what == COUNT || s->what == TYPE) && s->kind == COLL_BARRIER) return false;
    if (s->what == COUNT && is_v && s->odd == s->root) return false;         /* the others have theirs right, each          */
    if (rights[s->next] > 0 && s->what == NOTHING) return false;
    if (s->algorithm && s->what == KIND) return false;
    return true;
}

/* ---- >>a rank ---- */

static const scenario *now;
static atomic_int told[RANKS_MOST][4];            /* by rank: the status of the call, of the next one, of coll_free of a derived
                                                     communicator, and of coll_free                           */
static unsigned char sent[RANKS_MOST][RANKS_MOST * COUNT_MOST * 4], got[RANKS_MOST][RANKS_MOST * COUNT_MOST * 4];

static void freed(int rank, coll_status status) { told[rank][3] = status; }

static coll_status call(coll_comm *comm, bool errs)
{
    const scenario *s = now;
    const int rank = coll_rank(comm);
    const wrong what = errs && rank == s->odd ? s->what : NOTHING;
    const bool is_v = s->kind == COLL_GATHERV || s->kind == COLL_SCATTERV;
    size_t each[RANKS_MOST];
    coll_call c = { .kind = s->kind, .send = sent[rank], .recv = got[rank], .type = COLL_F32, .count = s->count, .root = s->root,
                    .op = COLL_SUM, .algorithm = s->algorithm };

    if (what == ROOT) c.root = s->other_root;
    if (what == COUNT) c.count = s->count > 1 ? s->count - 1 : 2;
    if (what == TYPE) c.type = COLL_I32;
    if (what == OP) c.op = COLL_MAX;
    const bool is_to_meet = s->other_root % 2 || s->kind == COLL_ALLGATHER;
    if (what == KIND) c.kind = s->kind == COLL_BARRIER ? COLL_ALLREDUCE : is_to_meet ? COLL_BARRIER : COLL_ALLGATHER;
    if (!reduces(c.kind)) c.op = COLL_SUM;
    if (is_v && c.kind == s->kind) {
        for (int i = 0; i < RANKS_MOST; i++) each[i] = s->count;
        each[s->odd] = s->count;
        c.recv_count = c.count;
        c.send_counts = c.recv_counts = each;
        if (s->kind == COLL_GATHERV) c.send_counts = NULL;
        else c.recv_counts = NULL;
    }
    if (c.kind == COLL_BARRIER) c = (coll_call){ .kind = COLL_BARRIER };
    if (what == ALGORITHM) c.algorithm = s->algorithm ? NULL : other_algorithms[s->kind];
    if (!s->polls || rank != s->odd) return coll_run(comm, &c);
    coll_request *request;
    coll_status status = coll_start(comm, &c, &request);
    if (status < 0) return status;
    while ((status = coll_test(request)) == COLL_PENDING) if (strcmp(s->world, "sim")) sched_yield();
    coll_request_free(request);
    return status;
}

static int worker(coll_comm *comm, void *arg)
{
    const scenario *s = now;
    const int rank = coll_rank(comm);
    coll_comm *other = NULL;

    (void)arg;
    if (s->is_derived && coll_dup(comm, &other)) return 1;
    coll_comm *const in = other ? other : comm;
    if (rank == s->late && strcmp(s->world, "sim")) usleep((useconds_t)s->late_us);
    told[rank][0] = call(in, true);
    if (told[rank][0] == COLL_OK && s->next == AGAIN) told[rank][1] = call(in, true);
    for (int i = 0; i < rights[s->next] && told[rank][0] == COLL_OK && told[rank][1] == COLL_OK; i++)
        told[rank][1] = call(in, false);
    if (told[rank][0] == COLL_OK && told[rank][1] == COLL_OK && s->next >= BARRIER) told[rank][1] = coll_barrier(in);
    if (other) told[rank][2] = coll_free(other);
    if (!strcmp(s->world, "sim")) told[rank][3] = coll_free(comm);
    return 0;
}

/* ---- >>trials ---- */

static int tried, untold;
static bool lists;

static const char *describe(const scenario *s)
{
    static char text[300];

    snprintf(text, sizeof text, "%s: %d ranks, %s of %zu%s%s%s root %d, rank %d%s has another %s (%d), then %s; rank %d is "
             "%d us late", s->world, s->size, coll_kind_name(s->kind), s->count, s->algorithm ? " by " : "",
             s->algorithm ? s->algorithm : "",
             s->is_derived ? " in a derived communicator," : "", s->root, s->odd, s->polls ? ", which tests," : "",
             wrong_names[s->what], s->other_root, then_names[s->next], s->late, s->late_us);
    return text;
}

static void report(void) { fprintf(stderr, "failed: hangs: %s\n", describe(now)); }

static void try(const scenario *s)
{
    const coll_config config = { .stall_timeout_ms = STALL_MS, .log_level = COLL_LOG_NONE, .liveness_timeout_ms = 2000 };
    char statuses[RANKS_MOST * 16 + 1] = "";
    int errors = 0, odd_errors = 0;

    now = s;
    memset(told, 0, sizeof told);
    support_limit(CASE_SECONDS, report);
    support_on_free = freed;
    const int failed = support_run_config(s->world, s->size, &config, worker, NULL);
    for (int i = 0; i < s->size; i++) {
        const size_t at = strlen(statuses);
        bool is_odd = false;
        int first = 0;
        for (int k = 0; k < 4 && !first; k++) first = told[i][k];
        /* rank 0, which compares the waiting calls, has left */
        const bool is_silent = !told[0][0] && !told[0][1] && !told[0][2] && !told[0][3];
        const bool is_still = first == COLL_ERR_TIMEOUT && i > 0 && is_silent && strcmp(s->world, "sim");
        is_odd = first != COLL_OK && !is_still && first != COLL_ERR_MISMATCH && first != COLL_ERR_PEER
              && first != COLL_ERR_UNSUPPORTED;
        errors += first != COLL_OK;
        odd_errors += is_odd;
        snprintf(statuses + at, sizeof statuses - at, " %d/%d/%d/%d", told[i][0], told[i][1], told[i][2], told[i][3]);
    }
    tried++;
    if (s->what == NOTHING) CHECK(errors == 0 && failed == 0, "%s:%s", describe(s), statuses);
    else {
        untold += errors == 0;
        if (lists && errors == 0) printf("%s:%s\n", describe(s), statuses);
        if (!lists) CHECK(errors > 0, "no rank gets an error: %s:%s", describe(s), statuses);
        CHECK(odd_errors == 0, "%s:%s", describe(s), statuses);
    }
}

/* Cases in which no rank got an error, each tried so many times. */
static void try_known(const char *world)
{
    static const struct { scenario s; int times; } known[] = {
        { { .kind = COLL_SCATTERV, .what = ROOT, .next = AGAIN, .size = 2, .odd = 1, .other_root = 1, .count = 1,
            .is_derived = true }, 100 },          /* coll_free first detects that the other rank has left     */
        { { .kind = COLL_BROADCAST, .what = ROOT, .next = AGAIN, .size = 8, .odd = 4, .root = 7, .other_root = 4, .count = 1,
            .algorithm = "tree:2", .is_derived = true }, 5 },         /* no rank waits for another in messages    */
        { { .kind = COLL_BROADCAST, .what = ROOT, .next = BARRIER, .size = 8, .odd = 5, .root = 4, .other_root = 6, .count = 100,
            .algorithm = "tree:4", .is_derived = true, .late = 4, .late_us = 517 }, 2 },      /* one waits in the call before */
        { { .kind = COLL_ALLREDUCE, .what = ALGORITHM, .next = BARRIER, .size = 3, .odd = 1, .count = 100, .polls = true }, 2 },
        { { .kind = COLL_BROADCAST, .what = ALGORITHM, .next = BARRIER, .size = 3, .odd = 2, .count = 1, .polls = true }, 2 },
        { { .kind = COLL_BROADCAST, .what = ALGORITHM, .next = BARRIER, .size = 3, .odd = 2, .count = 1 }, 2 },
        /* the others end two or more calls behind the one in which it waits */
        { { .kind = COLL_REDUCE, .what = ROOT, .next = RIGHT_2, .size = 4, .odd = 3, .root = 3, .other_root = 2, .count = 100,
            .algorithm = "gather:2" }, 1 },
        { { .kind = COLL_REDUCE, .what = ROOT, .next = RIGHT_5, .size = 4, .odd = 3, .root = 3, .other_root = 2, .count = 100,
            .algorithm = "gather:2", .is_derived = true, .polls = true }, 1 },
        { { .kind = COLL_BROADCAST, .what = ROOT, .next = RIGHT_5, .size = 5, .odd = 4, .other_root = 2, .count = 40000,
            .algorithm = "tree:2" }, 1 },
        { { .kind = COLL_SCAN, .what = ALGORITHM, .next = RIGHT_5, .size = 4, .odd = 3, .count = 100, .polls = true }, 1 },
    };

    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        for (int i = 0; i < known[k].times; i++) {
            scenario s = known[k].s;
            s.world = world;
            try(&s);
        }
}

/* ---- >>a rank that calls when the others have given up ---- */

enum { LATE_LIMIT_MS = 300, ARRIVES_MS = 50 };

static atomic_int over;                           /* ranks whose call is over                                 */

static int late_worker(coll_comm *comm, void *arg)
{
    const scenario *s = now;
    const int rank = coll_rank(comm);
    static float in[RANKS_MOST][RANKS_MOST * 100], out[RANKS_MOST][RANKS_MOST * 100];
    const coll_call c = { .kind = s->kind, .send = in[rank], .recv = out[rank], .count = s->kind == COLL_BARRIER ? 0 : s->count,
                          .type = s->kind == COLL_BARRIER ? 0 : COLL_F32, .root = s->root,
                          .timeout_ms = rank == s->late ? 0 : LATE_LIMIT_MS };

    (void)arg;
    if (coll_barrier(comm)) return 1;             /* connections are there                                    */
    for (int ms = 0; rank == s->late && atomic_load(&over) < s->size - 1 && ms < 1000 * CASE_SECONDS; ms++) usleep(1000);
    if (rank == s->late) usleep(1000 * (useconds_t)support_scaled(ARRIVES_MS));           /* the message about it arrives  */
    told[rank][0] = coll_run(comm, &c);
    atomic_fetch_add(&over, 1);
    while (rank != s->late && atomic_load(&over) < s->size) usleep(1000);          /* no rank leaves before           */
    return 0;
}

static void try_late(const char *world)
{
    static const coll_kind all[] = { COLL_BARRIER, COLL_ALLREDUCE, COLL_ALLGATHER, COLL_ALLTOALL, COLL_BROADCAST, COLL_REDUCE,
                                     COLL_GATHER, COLL_SCATTER, COLL_SCAN };
    const coll_config config = { .log_level = COLL_LOG_NONE };

    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (int at_root = 0; at_root < 2; at_root++) {
            const scenario s = { .world = world, .kind = all[k], .size = 3, .count = at_root ? 1 : 100, .root = 1,
                                 .late = at_root ? 1 : 2 };
            int failed = 0;
            if (at_root && !is_rooted(s.kind)) continue;
            now = &s;
            memset(told, 0, sizeof told);
            atomic_store(&over, 0);
            support_limit(3 * CASE_SECONDS, report);
            support_on_free = NULL;
            CHECK(support_run_config(world, s.size, &config, late_worker, NULL) == 0, "%s", describe(&s));
            for (int i = 0; i < s.size; i++) failed += i != s.late && told[i][0] == COLL_ERR_TIMEOUT;
            CHECK(failed == 0 || told[s.late][0] == COLL_ERR_TIMEOUT, "%s: %s: %d ranks failed, and the late rank %d "
                  "has %d", world, coll_kind_name(s.kind), failed, s.late, told[s.late][0]);
        }
}

/* ---- >>more prepared calls than a fingerprint has numbers for ---- */

static int many_worker(coll_comm *comm, void *arg)
{
    enum { NUMBERS = 4096 };
    static float in[RANKS_MOST][2], out[RANKS_MOST][2][2];
    const int rank = coll_rank(comm);
    coll_request *both[2] = { NULL, NULL };

    (void)arg;
    for (int i = 0; i < NUMBERS; i++) {           /* those that are kept have the last number, and differ     */
        const coll_call c = { .kind = COLL_ALLREDUCE, .send = in[rank], .recv = out[rank][i % 2], .count = 1 + (size_t)i % 2,
                              .type = COLL_F32, .op = COLL_SUM, .algorithm = "ring" };
        coll_request_free(both[i % 2]);
        if (coll_prepare(comm, &c, &both[i % 2]) || (i % 32 == 0 && coll_barrier(comm))) return 1;
    }
    if (rank == 2) usleep(1000 * (useconds_t)LATE_LIMIT_MS);      /* the others wait, each in another call            */
    for (int i = 0; i < 2; i++) if (coll_restart(both[(i + rank) % 2])) return 1;
    for (int i = 0; i < 2; i++) told[rank][i] = coll_wait(both[(i + rank) % 2]);
    CHECK(!told[rank][0] && !told[rank][1], "prepared calls in another order: rank %d: %s", rank, coll_error(comm));
    for (int i = 0; i < 2; i++) coll_request_free(both[i]);
    return 0;
}

static void try_many(const char *world)
{
    const coll_config config = { .log_level = COLL_LOG_NONE };

    support_limit(3 * CASE_SECONDS, NULL);
    support_on_free = NULL;
    CHECK(support_run_config(world, 3, &config, many_worker, NULL) == 0, "%s: prepared calls in another order", world);
}

static uint64_t state;

static unsigned drawn(unsigned below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((state >> 33) % below);
}

/* Not enumerated: these cases are drawn at random. */
static void draw_rest(scenario *s)
{
    s->odd = (int)drawn((unsigned)s->size);
    s->root = (int)drawn((unsigned)s->size);
    s->other_root = (s->root + 1 + (int)drawn((unsigned)s->size - 1)) % s->size;
    if (drawn(2)) s->other_root = s->odd == s->root ? s->other_root : s->odd;             /* it acts as the root */
    s->late = (int)drawn((unsigned)s->size);
    s->late_us = drawn(3) ? 0 : (int)drawn(3000);
    s->is_derived = drawn(3) == 0;
    s->polls = drawn(3) == 0;
    const size_t has = sizeof algorithms / sizeof *algorithms;
    int n = 1;
    if ((size_t)s->kind < has && drawn(2)) {
        while (n < 8 && algorithms[s->kind][n]) n++;
        s->algorithm = algorithms[s->kind][drawn((unsigned)n)];
    }
}

static void try_all(const char *world)
{
    for (int k = 0; k < KINDS; k++)
        for (int what = NOTHING; what < WRONGS; what++)
            for (int next = FREE; next < THENS; next++)
                for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
                    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                        scenario s = { .world = world, .kind = kinds[k], .what = (wrong)what, .next = (then)next,
                                       .size = sizes[n], .count = counts[c] };
                        draw_rest(&s);
                        if (is_a_case(&s)) try(&s);
                    }
}

static void try_some(const char *world, int cases)
{
    while (cases > 0) {
        scenario s = { .world = world, .kind = kinds[drawn(KINDS)], .what = (wrong)drawn(WRONGS), .next = (then)drawn(THENS),
                       .size = sizes[drawn(sizeof sizes / sizeof *sizes)], .count = counts[drawn(4)] };
        if (drawn(2)) s.what = ROOT, s.kind = kinds[drawn(6)];        /* most mistakes that a rank could overlook        */
        draw_rest(&s);
        if (!is_a_case(&s)) continue;
        try(&s);
        cases--;
    }
}

int main(int argc, char **argv)
{
    const char *const seed = getenv("COLL_TEST_SEED"), *worlds = argc > 1 ? argv[1] : NULL, *world;
    const int cases = argc > 2 ? atoi(argv[2]) : 40;
    int at = 0;

    state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    lists = argc > 3 && !strcmp(argv[3], "list");
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("COLL_TEST_SEED=%llu\n", (unsigned long long)state);
    setenv("COLL_DEBUG", "none", 1);              /* each mistake is a line on the log                        */
    while ((world = support_world_next(worlds, &at)) != NULL) {
        tried = untold = 0;
        try_known(world);
        if (strcmp(world, "sim")) try_late(world), try_many(world);
        if (cases > 0) try_some(world, cases);
        else try_all(world);
        printf("%s: %d cases, no rank gets an error in %d\n", world, tried, untold);
    }
    return CHECK_DONE();
}
