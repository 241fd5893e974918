/* test_identity.c - two and three threads of each rank make communicators of one session at the same time, each out of a parent
 * of its own: by dup, split, split_host and create, out of the parent and out of what was made before.  The numbers of every
 * collective and message in them are compared bit by bit; each rank frees them in its own order.  And two communicators
 * with one id, which are planted, are an error with a sentence.
 *
 *     test_identity [WORLD,...]           COLL_TEST_SEED replays, COLL_TEST_SCALE: how many rounds */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

enum { SECONDS = 30, LANES_MOST = 3, RANKS_MOST = 5, ROUNDS = 80, POOL = 6, ELEMENTS_MOST = 3000 };

/* A thread of a rank, and the communicator from which it makes others. */
typedef struct lane {
    coll_comm *parent, *pool[POOL];
    int        number, me, wrong;
    uint64_t   seed;                              /* the same for this lane on every rank                     */
    char       what[300];                         /* the first thing that went wrong                          */
} lane;

typedef struct play { int ranks, lanes; } play;

static void complain(lane *l, int round, const char *made, const char *what, coll_comm *comm)
{
    if (!l->wrong++) snprintf(l->what, sizeof l->what, "round %d: %s, %s: %.200s", round, made, what, coll_error(comm));
}

/* The input of a rank of the world for a sum of a lane in a round. */
static uint64_t given(const lane *l, int round, int rank, int i)
{
    return support_mix(l->seed ^ (uint64_t)round << 32 ^ (uint64_t)rank << 16 ^ (uint64_t)i);
}

/* A sum over all members, and a message to the next one. */
static void use(lane *l, coll_comm *comm, int round, int count, const char *made)
{
    const int size = coll_size(comm), me = coll_rank(comm), next = (me + 1) % size, last = (me + size - 1) % size;
    uint64_t *x = support_need(malloc((size_t)count * sizeof *x)), got = 0;
    bool is_right = true;

    for (int i = 0; i < count; i++) x[i] = given(l, round, l->me, i);
    if (coll_allreduce(comm, x, x, (size_t)count, COLL_U64, COLL_SUM)) complain(l, round, made, "allreduce", comm);
    for (int i = 0; i < count && is_right; i++) {
        uint64_t sum = 0;
        for (int r = 0; r < size; r++) sum += given(l, round, coll_world_rank(comm, r), i);
        is_right = x[i] == sum;
    }
    if (!is_right) complain(l, round, made, "COLL_OK and a wrong sum", comm);
    x[0] = given(l, round, l->me, -1);
    if (coll_sendrecv(comm, x, 1, next, &got, 1, last, COLL_U64, 7)) complain(l, round, made, "sendrecv", comm);
    if (got != given(l, round, coll_world_rank(comm, last), -1)) complain(l, round, made, "COLL_OK and a wrong message", comm);
    free(x);
}

/* Derive a communicator, the same call on all ranks; NULL: this rank is not in it. */
static coll_comm *make(lane *l, coll_comm *from, uint64_t draw, int round, const char **made)
{
    const int size = coll_size(from), me = coll_rank(from);
    const uint64_t mixed = support_mix(draw);
    int ranks[RANKS_MOST], count = 0;
    coll_comm *out = NULL;
    coll_status status = COLL_OK;

    switch (draw % 5) {
    case 0: case 1: *made = "dup"; status = coll_dup(from, &out); break;
    case 2:
        *made = "split";
        status = coll_split(from, (int)((mixed >> 2 * coll_world_rank(from, me) & 3) % 3) - 1, -me, &out);
        break;
    case 3: *made = "split_host"; status = coll_split_host(from, &out); break;
    default:
        *made = "create";
        for (int i = size - 1; i >= 0; i--) if (mixed >> coll_world_rank(from, i) & 3) ranks[count++] = i;
        for (int i = 0; i < count; i++)
            if (ranks[i] == me) status = coll_create(from, ranks, count, (int)(mixed % 5), &out);
        break;
    }
    if (status) complain(l, round, *made, "is not made", from);
    return status ? NULL : out;
}

/* Free what is in the pool, on each rank in its own order. */
static void empty(lane *l, int round)
{
    uint64_t order = support_mix(l->seed + (uint64_t)round) + (uint64_t)l->me;

    for (int left = POOL; left > 0; left--) {
        const int i = (int)(support_random(&order) % (uint64_t)left);
        coll_free(l->pool[i]);
        l->pool[i] = l->pool[left - 1];
        l->pool[left - 1] = NULL;
    }
}

static void *run_lane(void *arg)
{
    lane *l = arg;
    const int rounds = (int)(ROUNDS * support_scale()) + 1;
    uint64_t state = l->seed;
    const char *made = "";

    for (int round = 0; round < rounds && !l->wrong; round++) {
        const int at = round % POOL;
        const uint64_t draw = support_random(&state), which = support_random(&state) % (POOL + 1);
        const int count = 1 + (int)(support_random(&state) % (draw % 8 ? 12 : ELEMENTS_MOST));
        coll_comm *const from = which < (uint64_t)at ? l->pool[which] : l->parent;
        l->pool[at] = from ? make(l, from, draw, round, &made) : NULL;
        if (l->pool[at] && !l->wrong) use(l, l->pool[at], round, count, made);
        const uint64_t old = support_random(&state) % POOL;
        if (old < (uint64_t)at && l->pool[old] && !l->wrong)
            use(l, l->pool[old], round + rounds, 1 + (int)(old * 5), "an older one");
        if (at == POOL - 1 || l->wrong) empty(l, round);
    }
    empty(l, rounds);
    return NULL;
}

static int overlap(coll_comm *comm, void *arg)
{
    const play *p = arg;
    lane lanes[LANES_MOST];
    pthread_t threads[LANES_MOST];
    const bool is_sim = !strcmp(world, "sim");    /* all ranks of which are one thread                        */

    for (int k = 0; k < p->lanes; k++) {
        lanes[k] = (lane){ .number = k, .me = coll_rank(comm), .seed = support_mix(support_seed() * 16 + (uint64_t)k) };
        CHECK(coll_dup(comm, &lanes[k].parent) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    }
    for (int k = 0; k < p->lanes; k++) {
        if (is_sim) run_lane(&lanes[k]);
        else if (pthread_create(&threads[k], NULL, run_lane, &lanes[k])) exit(1);
    }
    for (int k = 0; k < p->lanes; k++) {
        if (!is_sim) pthread_join(threads[k], NULL);
        CHECK(lanes[k].wrong == 0, "%s, seed %llu, rank %d, thread %d: %s", case_name, (unsigned long long)support_seed(),
              coll_rank(comm), k, lanes[k].what);
    }
    for (int k = 0; k < p->lanes; k++) coll_free(lanes[k].parent);
    return 0;
}

static void overlap_case(const void *arg)
{
    const play *p = arg;
    CHECK(support_run(world, p->ranks, overlap, (void *)(uintptr_t)p) == 0, "%s", case_name);
}

/* ---- >>planted ---- */

/* The rank that names the next communicator forgets that it has named one. */
static int plant(coll_comm *comm, void *arg)
{
    const bool is_create = arg != NULL;
    const int ranks[] = { 2, 0, 1 }, namer = is_create ? 2 : 0;
    coll_comm *first = NULL, *second = NULL;
    char expected[80];

    for (int i = 0; i < 2; i++) {
        if (i == 1 && coll_rank(comm) == namer) comm->session->named--;
        coll_comm **const out = i == 0 ? &first : &second;
        const coll_status status = is_create ? coll_create(comm, ranks, 3, 0, out) : coll_dup(comm, out);
        CHECK(status == (i == 0 ? COLL_OK : COLL_ERR_PROTOCOL), "%s: status %d: %s", case_name, (int)status, coll_error(comm));
    }
    snprintf(expected, sizeof expected, "has a communicator with the id %llx", (unsigned long long)first->id);
    CHECK(!second && strstr(coll_error(comm), expected), "%s: \"%s\" does not say \"%s\"", case_name, coll_error(comm), expected);
    coll_free(first);
    return 0;
}

static void plant_case(const void *arg)
{
    CHECK(support_run(world, 3, plant, (void *)(uintptr_t)arg) == 0, "%s", case_name);
}

/* Ids of many communicators differ, whichever rank names them, and so do the numbers of lists and tags. */
static void test_numbers(void)
{
    enum { LISTS = 4096 };
    static uint64_t numbers[LISTS];
    int count = 0, same = 0;

    for (int rank = 0; rank < 3; rank++) {
        coll__session session = { .rank = rank * 32767 };
        uint64_t last = 0;
        for (int i = 0; i < 1000; i++) {
            const uint64_t id = coll__name_comm(&session);
            CHECK(id > last && id >> 40 == (uint64_t)session.rank, "id %llx after %llx of rank %d", (unsigned long long)id,
                  (unsigned long long)last, session.rank);
            last = id;
        }
    }
    for (int a = 0; a < 16; a++)
        for (int b = 0; b < 16; b++)
            for (int tag = 0; tag < 16; tag++)
                numbers[count++] = coll__shm_handshake_of((const int[]){ a, b }, 1 + (a != b), tag);
    for (int i = 0; i < count; i++) for (int k = 0; k < i; k++) same += numbers[i] == numbers[k];
    CHECK(count == LISTS && same == 0, "%d of %d lists and tags have the number of another", same, count);
}

int main(int argc, char **argv)
{
    static const play plays[] = { { 2, 2 }, { 4, 2 }, { 3, 3 }, { 5, 3 } };
    const char *wanted = argc > 1 && strcmp(argv[1], "all") ? argv[1] : NULL;
    char name[80];

    cases_begin();
    printf("seed %llu\n", (unsigned long long)support_seed());
    for (int at = 0; (world = support_world_next(wanted, &at)) != NULL;)
        for (size_t i = 0; i < sizeof plays / sizeof *plays; i++) {
            snprintf(name, sizeof name, "%d ranks of %d threads", plays[i].ranks, plays[i].lanes);
            run_case_within(SECONDS, overlap_case, &plays[i], name);
            if (i == 0) run_case_within(SECONDS, plant_case, NULL, "an id twice, by dup");
            if (i == 1) run_case_within(SECONDS, plant_case, &plays[i], "an id twice, by create");
        }
    test_numbers();
    return CHECK_DONE();
}
