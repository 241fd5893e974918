/* test_sim_elastic.c - ranks that join a simulated job: of coll_spawn with `elastic`, under a virtual clock.
 *
 *     test_sim_elastic [KILLS [RUNS]]   KILLS: how many in a run (default: 100); RUNS: how many seeds (default: 10)
 *
 * Eight ranks are killed at any time, the first one too, and replaced; sometimes two at once, or one that joins.  After each the
 * sums are right and the others have their ranks.  A run with the same seed is the same run.  COLL_TEST_SEED: other seeds. */
#define _GNU_SOURCE
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/counting_allocator.h"

enum { RANKS = 8, SPARES = 256, KILLS_MOST = 100, FAULTS_MOST = 2 * KILLS_MOST, COUNT = 300, PLACES = RANKS + SPARES,
       EVERY_US = 6000, CASE_SECONDS = 300 };

/* What a run has: ranks are numbered as they begin. */
typedef struct run {
    int      started, finished, wrong, refused;
    int      size_at_end, sizes_at_end;           /* of the ranks that finish: the sum, too                   */
    int      spares;                              /* what rank 0 sees at first                                */
    double   until;                               /* virtual time                                             */
    int      wanted;                              /* without replacing: grow until there are so many          */
    uint64_t digest;                              /* of the worlds, and when                                  */
    char     sentence[300];
} run;

static uint64_t seed;
static int kills_wanted = KILLS_MOST, runs_wanted = 10;

static void note(run *r, uint64_t what) { r->digest = support_mix(r->digest ^ what); }

/* One step of all ranks. */
static coll_status step(coll_comm *comm, run *r, int id, int number)
{
    int32_t ids[PLACES], x[COUNT];
    float sum[COUNT];
    int total = 0;
    const int size = coll_size(comm), root = number % size;
    coll_status status = coll_allgather(comm, &id, ids, 1, COLL_I32);

    for (int i = 0; status == COLL_OK && i < size; i++) total += ids[i];
    for (int i = 0; i < COUNT; i++) sum[i] = (float)(id + i), x[i] = id * COUNT + i;
    if (status == COLL_OK) status = coll_allreduce(comm, COLL_IN_PLACE, sum, COUNT, COLL_F32, COLL_SUM);
    if (status == COLL_OK) status = coll_broadcast(comm, x, COUNT, COLL_I32, root);
    for (int i = 0; status == COLL_OK && i < COUNT; i++)
        r->wrong += sum[i] != (float)(total + size * i) || x[i] != ids[root] * COUNT + i;
    return status;
}

/* Those that were there keep their ranks if the size is the same. */
static void compare(run *r, coll_comm *before, coll_comm *after)
{
    bool is_kept = coll_size(after) == coll_size(before) && coll_rank(after) == coll_rank(before);

    if (coll_size(after) != coll_size(before)) return;
    for (int i = 0; is_kept && i < coll_size(after); i++)
        is_kept = coll_former_rank(after, i) == i || coll_former_rank(after, i) == COLL_RANK_NONE;
    r->wrong += !is_kept;
}

static int worker(coll_comm *comm, void *arg)
{
    run *const r = arg;
    const int id = r->started++;
    coll_status status = COLL_OK;
    int32_t number = 0, over = 0;

    if (coll_rank(comm) == 0 && !(coll_sim_time(comm) > 0)) r->spares = coll_waiting(comm);
    while (status == COLL_OK && !over) {
        coll_comm *next = NULL;
        number = 0;
        note(r, (uint64_t)id << 32 | (uint64_t)coll_rank(comm) << 16 | (uint64_t)coll_size(comm));
        note(r, (uint64_t)(coll_sim_time(comm) * 1e9));
        while (status == COLL_OK && !over) {
            over = r->wanted ? coll_size(comm) >= r->wanted : coll_sim_time(comm) > r->until;
            status = step(comm, r, id, number++);
            if (status == COLL_OK) status = coll_broadcast(comm, &over, 1, COLL_I32, 0);
            if (status == COLL_OK && r->wanted && !over) break;
        }
        if (status == COLL_OK && over) break;
        if (status == COLL_OK) status = coll_grow(comm, &next);
        for (int tries = 0; status == COLL_ERR_PEER && tries < 5; tries++) status = coll_replace(comm, &next);
        if (status == COLL_OK && next) compare(r, comm, next);
        if (status == COLL_OK && next) coll_free(comm), comm = next;
        else if (status == COLL_OK) over = 1;                     /* no rank waits                            */
    }
    if (status < 0) snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm)), r->refused++;
    r->finished++;
    r->size_at_end = coll_size(comm);
    r->sizes_at_end += coll_size(comm);
    coll_free(comm);
    return 0;
}

static void spawn(run *r, int count, int spares, const coll_sim_fault *faults, int fault_count)
{
    const coll_sim machine = { .faults = faults, .fault_count = fault_count, .seed = 1 + seed };
    const coll_config config = { .transport = "sim", .sim = &machine, .elastic = spares, .log_level = COLL_LOG_NONE };

    CHECK(coll_spawn(count, worker, r, &config) == 0, "%s: coll_spawn: %s", case_name, coll_error(NULL));
    CHECK(r->wrong == 0, "%s: %d wrong values", case_name, r->wrong);
    CHECK(r->spares == spares, "%s: %d ranks wait at first", case_name, r->spares);
}

/* ---- >>killed and replaced ---- */

/* Which places are in the job, and the next one to join it. */
typedef struct model { int members[RANKS], next, count; coll_sim_fault faults[FAULTS_MOST]; uint64_t random; } model;

static void kill_place(model *m, int place, double at)
{
    m->faults[m->count++] = (coll_sim_fault){ .kind = COLL_SIM_KILL, .rank = place, .time = at };
}

static void kill_member(model *m, int which, double at)
{
    kill_place(m, m->members[which], at);
    m->members[which] = m->next++;
}

/* Every fourth time the one that has come for rank 0, if no two have died at once. */
static void plan_kills(model *m, int kills)
{
    enum { TWO = 6, JOINING = 7, KINDS = 8 };

    for (int i = 0; i < RANKS; i++) m->members[i] = i;
    m->next = RANKS;
    for (int n = 0; m->count < kills && m->next + 3 < PLACES; n++) {
        const double at = EVERY_US * 1e-6 * (n + 1), soon = (double)(support_random(&m->random) % 2000) * 1e-6;
        const uint64_t kind = support_random(&m->random) % KINDS;
        const int which = n % 4 ? (int)(support_random(&m->random) % RANKS) : 0;
        if (kind == JOINING) kill_place(m, m->next++, at + soon);
        if (kind == TWO) kill_member(m, (which + 1) % RANKS, at + soon);
        kill_member(m, which, at);
    }
}

static uint64_t run_kills_once(int kills)
{
    static model m;
    run r = { .until = 0 };

    m = (model){ .random = seed };
    plan_kills(&m, kills);
    r.until = EVERY_US * 1e-6 * (m.count + 2);
    spawn(&r, RANKS, SPARES, m.faults, m.count);
    CHECK(r.refused == 0 && r.finished == RANKS && r.size_at_end == RANKS && r.sizes_at_end == RANKS * RANKS,
          "%s: %d of %d ranks at the end, of %d, and %d with an error: %s", case_name, r.finished, r.started, r.size_at_end,
          r.refused, r.sentence);
    CHECK(r.started >= RANKS + m.count * 3 / 4, "%s: %d ranks began, and %d were killed", case_name, r.started, m.count);
    if (getenv("COLL_TEST_LOG")) fprintf(stderr, "%s: %d faults, %d ranks began\n", case_name, m.count, r.started);
    return r.digest;
}

static void run_kills(const void *at)
{
    seed = *(const uint64_t *)at;
    const uint64_t one = run_kills_once(kills_wanted), two = run_kills_once(kills_wanted);
    CHECK(one == two, "%s: two runs with seed %llu are %#llx and %#llx", case_name, (unsigned long long)seed,
          (unsigned long long)one, (unsigned long long)two);
}

/* ---- >>plain ---- */

static void run_grow(const void *at)
{
    run r = { .wanted = 5 };

    (void)at;
    spawn(&r, 2, 3, NULL, 0);
    CHECK(r.refused == 0 && r.started == 5 && r.finished == 5 && r.sizes_at_end == 25, "%s: %d began, %d ended, %d: %s",
          case_name, r.started, r.finished, r.sizes_at_end, r.sentence);
    r = (run){ .wanted = 5 };
    spawn(&r, 2, 0, NULL, 0);                     /* none waits: it goes on as it is                          */
    CHECK(r.refused == 0 && r.started == 2 && r.sizes_at_end == 4, "%s: %d began, %d: %s", case_name, r.started, r.sizes_at_end,
          r.sentence);
}

/* Two of five are killed, and only one waits. */
static void run_few(const void *at)
{
    const coll_sim_fault faults[] = { { .kind = COLL_SIM_KILL, .rank = 0, .time = 5e-3 },
                                      { .kind = COLL_SIM_KILL, .rank = 3, .time = 5e-3 } };
    run r = { .until = 40e-3 };

    (void)at;
    spawn(&r, 5, 1, faults, 2);
    CHECK(r.refused == 0 && r.started == 6 && r.finished == 4 && r.sizes_at_end == 16, "%s: %d began, %d ended, %d: %s",
          case_name, r.started, r.finished, r.sizes_at_end, r.sentence);
}

/* Each allocation is refused in turn, until there are no more: every run ends, and keeps no memory. */
static void run_refused(const void *at)
{
    static counter memory;
    const coll_allocator counting = { counter_allocate, counter_free, &memory };
    const coll_sim machine = { .seed = 1 };
    const coll_config config = { .transport = "sim", .sim = &machine, .elastic = 2, .allocator = &counting,
                                 .log_level = COLL_LOG_NONE };
    int whole = 0;

    (void)at;
    memory.was_refused = 1;
    for (long k = 1; memory.was_refused; k++) {
        run r = { .wanted = 4 };
        memory = (counter){ .refused_at = k };
        const int result = coll_spawn(2, worker, &r, &config);
        whole += result == 0 && r.finished == 4 && r.refused == 0;
        CHECK(memory.blocks == 0, "%s: %ld: %ld blocks are left", case_name, k, memory.blocks);
        CHECK(r.wrong == 0 && !memory.is_wrong, "%s: %ld: %d wrong values", case_name, k, r.wrong);
        CHECK(memory.was_refused || r.sizes_at_end == 16, "%s: %d, of %d", case_name, r.finished, r.size_at_end);
    }
    CHECK(whole > 0, "%s: no run has succeeded", case_name);
    printf("%s: %d runs as a whole\n", case_name, whole);
}

int main(int argc, char **argv)
{
    cases_begin();
    if (argc > 1 && atoi(argv[1]) > 0) kills_wanted = atoi(argv[1]) < KILLS_MOST ? atoi(argv[1]) : KILLS_MOST;
    if (argc > 2 && atoi(argv[2]) > 0) runs_wanted = atoi(argv[2]);
    run_case_within(CASE_SECONDS, run_grow, NULL, "grow");
    run_case_within(CASE_SECONDS, run_few, NULL, "fewer wait than are lost");
    run_case_within(CASE_SECONDS, run_refused, NULL, "refused allocations");
    for (int i = 0; i < runs_wanted; i++) {
        char name[60];
        const uint64_t one = support_mix(support_seed() * 1000 + (uint64_t)i) >> 8;
        snprintf(name, sizeof name, "%d kills, seed %llu", kills_wanted, (unsigned long long)one);
        run_case_within(CASE_SECONDS, run_kills, &one, name);
    }
    return CHECK_DONE();
}
