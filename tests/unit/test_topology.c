/* test_topology.c - which ranks share a host: the lists of coll_topology.h against their definitions, each looked for again by
 * comparing every pair; rings that go by them; and how much work they are.
 *     COLL_TEST_SEED=... replays a seed */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"

enum { SIZE_MOST = 40, MANY = 1 << 17 };

/* ---- >>models: each by its own definition, in O(p^2) ---- */

/* Host of a rank: as many hosts have a first rank before that of its own. */
static int host_of(const int *homes, int rank)
{
    int first = 0, before = 0;

    while (homes[first] != homes[rank]) first++;
    for (int i = 0; i < first; i++) {
        bool is_first = true;
        for (int k = 0; k < i; k++) is_first = is_first && homes[k] != homes[i];
        before += is_first;
    }
    return before;
}

static int place_of(const int *homes, int rank)
{
    int before = 0;
    for (int i = 0; i < rank; i++) before += homes[i] == homes[rank];
    return before;
}

static int live_with(const int *homes, int size, int rank)
{
    int count = 0;
    for (int i = 0; i < size; i++) count += homes[i] == homes[rank];
    return count;
}

/* One check for a world as this rank sees it: every field, and every rank found again at its place. */
static void check_world(const int *homes, int size, int me, const char *what)
{
    coll__topology *t = coll__topology_of(NULL, homes, size, me);
    int count = 0, least = size, most = 0, wrong = 0;
    bool is_ordered = true;

    for (int i = 0; i < size; i++) {
        const int here = live_with(homes, size, i), host = host_of(homes, i);
        if (host >= count) count = host + 1;
        if (here < least) least = here;
        if (here > most) most = here;
        if (i > 0 && host < host_of(homes, i - 1)) is_ordered = false;
    }
    CHECK(t, "no memory");
    if (!t) return;
    const bool are_fields = t->count == count && t->least == least && t->most == most && t->is_ordered == is_ordered
                         && t->host == host_of(homes, me) && t->place == place_of(homes, me) && t->first[0] == 0
                         && t->first[count] == size;
    for (int i = 0; i < size && are_fields; i++) {
        const int host = host_of(homes, i), place = place_of(homes, i);
        int there = -1;
        wrong += coll__host_size(t, host) != live_with(homes, size, i) || coll__rank_at(t, host, place) != i
              || coll__rank_at(t, host, live_with(homes, size, i)) != COLL_RANK_NONE
              || coll__place_of_rank(t, i, &there) != place || there != host;
    }
    CHECK(are_fields && wrong == 0, "%s, %d ranks, as rank %d sees it: %d hosts of %d to %d ranks, ordered %d; is host %d place "
          "%d; %d ranks are elsewhere", what, size, me, t->count, t->least, t->most, t->is_ordered, t->host, t->place, wrong);
    coll__give(t);
}

/* ---- >>shapes, and chance ---- */

static void check_shapes(void)
{
    int homes[SIZE_MOST];

    for (int size = 1; size <= SIZE_MOST; size += size < 9 ? 1 : 13)
        for (int per_host = 1; per_host <= 8; per_host = 2 * per_host + (per_host == 1 ? 0 : 1)) {
            for (int i = 0; i < size; i++) homes[i] = i / per_host;
            check_world(homes, size, size - 1, "host by host");
            for (int i = 0; i < size; i++) homes[i] = -(i / per_host);
            check_world(homes, size, 0, "numbered downwards");
            for (int i = 0; i < size; i++) homes[i] = i % per_host * 1000;
            check_world(homes, size, size / 2, "in turn");
        }
    for (int i = 0; i < SIZE_MOST; i++) homes[i] = i % 2 ? INT_MAX - i / 2 : INT_MIN + i / 2;
    check_world(homes, SIZE_MOST, 3, "numbers at both ends");
}

static void check_random(uint64_t seed)
{
    uint64_t state = seed;
    int homes[SIZE_MOST];

    for (int trial = 0; trial < 150; trial++) {
        const int size = 1 + (int)(support_random(&state) % SIZE_MOST);
        const int hosts = 1 + (int)(support_random(&state) % (uint64_t)size);
        for (int i = 0; i < size; i++) homes[i] = (int)(support_random(&state) % (uint64_t)hosts) * 77 - 500;
        check_world(homes, size, (int)(support_random(&state) % (uint64_t)size), "at random");
    }
}

/* ---- >>work ---- */

/* Seconds of the processor: what else runs here does not count. */
static double seconds_used(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* 131,072 ranks are sorted in some hundredths of a second; their pairs are 17 billion. */
static void check_work(void)
{
    int *homes = support_need(malloc(MANY * sizeof *homes));

    for (int shape = 0; shape < 3; shape++) {
        for (int i = 0; i < MANY; i++) homes[i] = shape == 0 ? i : shape == 1 ? MANY - i : i % 257;
        const double began = seconds_used();
        coll__topology *t = coll__topology_of(NULL, homes, MANY, 5);
        const double took = seconds_used() - began;
        CHECK(t && t->count == (shape == 2 ? 257 : MANY) && t->first[t->count] == MANY, "shape %d: %d hosts", shape,
              t ? t->count : -1);
        CHECK(took < 2, "shape %d: %.3f s for %d ranks", shape, took, MANY);
        coll__give(t);
    }
    free(homes);
}

/* ---- >>in communicators ---- */

enum { PER_HOST = 3, RANKS = 7 };

/* The topology of a communicator, and whether results over rings are right with it; ranks of a derived one are numbered so
 * that those of a host do not follow each other. */
static int comm_worker(coll_comm *comm, void *arg)
{
    const int me = coll_rank(comm), size = coll_size(comm);
    static const int homes[RANKS] = { 0, 1, 2, 0, 1, 0, 1 };  /* of the ranks of `turned`                     */
    coll_comm *turned = NULL;
    int32_t in = me, all[RANKS];

    (void)arg;
    CHECK(coll__comm_topology(comm) == COLL_OK && comm->topology && comm->topology->is_ordered && comm->topology->count == 3,
          "rank %d: a world whose hosts follow one another", me);
    CHECK(coll_split(comm, 0, me % PER_HOST * size + me, &turned) == COLL_OK, "%s", coll_error(comm));
    if (!turned) return 1;
    CHECK(coll__comm_topology(turned) == COLL_OK && turned->topology && !turned->topology->is_ordered,
          "rank %d: hosts in turn", me);
    in = coll_rank(turned);
    coll_call call = { .kind = COLL_ALLGATHER, .send = &in, .recv = all, .count = 1, .type = COLL_I32, .algorithm = "ring" };
    CHECK(coll_run(turned, &call) == COLL_OK, "%s", coll_error(turned));
    int wrong = 0, away = 0;
    for (int i = 0; i < size; i++) wrong += all[i] != i;
    CHECK(wrong == 0, "rank %d: %d blocks of a ring are not where they belong", me, wrong);
    for (int i = 0; i < size; i++) {              /* whose successor in the ring lives elsewhere              */
        const int *const order = turned->topology->ranks;
        away += homes[order[i]] != homes[order[(i + 1) % size]];
    }
    CHECK(away == 3, "rank %d: a ring leaves a host %d times", me, away);
    coll_comm *host = NULL;
    CHECK(coll_split_host(comm, &host) == COLL_OK && coll__comm_topology(host) == COLL_OK && !host->topology
          && host->has_topology, "rank %d: on one host there is nothing to know", me);
    coll_free(host);
    coll_free(turned);
    return 0;
}

int main(void)
{
    check_shapes();
    check_random(support_seed());
    check_work();
    setenv("COLL_TRANSPORT", "sim", 1);
    setenv("COLL_SIM", "per_host=3", 1);
    CHECK(coll_spawn(RANKS, comm_worker, NULL, NULL) == 0, "%s", coll_error(NULL));
    return CHECK_DONE();
}
