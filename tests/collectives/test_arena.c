/* test_arena.c - memory in one block of the program: an arena allocates and frees as its model does, for one thread and for
 * many, and communicators live in one.
 *
 *     test_arena [PART,...]                         of parts, most, crowd, enough; all of them where none is named */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"

/* ---- >>parts: at random, against a list of what is out ---- */

enum { PARTS = 200, TURNS = 40000, BLOCK = 1 << 20 };

typedef struct part { unsigned char *at; size_t length; unsigned char mark; } part;

static uint32_t chance = 1;

static uint32_t draw(void) { return chance ^= chance << 13, chance ^= chance >> 17, chance ^= chance << 5; }

static bool is_marked(const part *p)
{
    for (size_t i = 0; i < p->length; i++) if (p->at[i] != p->mark) return false;
    return true;
}

/* Allocate and free at random, with marks in allocated blocks; returns how many were refused. */
static long churn(const coll_allocator *a, uint32_t seed, long turns)
{
    static part out[PARTS];
    size_t expected = 0;
    long refused = 0;

    chance = seed;
    memset(out, 0, sizeof out);
    for (long t = 0; t < turns; t++) {
        part *const p = &out[draw() % PARTS];
        if (p->at) {
            CHECK(is_marked(p), "turn %ld: %zu bytes were written over", t, p->length);
            a->free(a->context, p->at, p->length);
            expected -= coll__part_length(p->length);
            p->at = NULL;
        } else {
            const size_t unit = (size_t)1 << draw() % 8;
            p->length = draw() % (draw() % 8 ? 900 : 30000);
            p->mark = (unsigned char)draw();
            p->at = (unsigned char *)a->allocate(a->context, p->length, unit);
            if (!p->at) { refused++; continue; }
            CHECK((uintptr_t)p->at % unit == 0, "turn %ld: not at a multiple of %zu", t, unit);
            memset(p->at, p->mark, p->length);
            expected += coll__part_length(p->length);
        }
        CHECK(coll_arena_used(a) == expected, "turn %ld: %zu bytes are out, and %zu are said", t, expected, coll_arena_used(a));
        if (expected > 0 && t % 100 == 0) CHECK(coll_arena_end(a) == COLL_ERR_ARGUMENT, "an arena in use was ended");
    }
    for (int i = 0; i < PARTS; i++) {
        if (!out[i].at) continue;
        CHECK(is_marked(&out[i]), "the end: written over");
        a->free(a->context, out[i].at, out[i].length);
    }
    return refused;
}

/* Is all of it one hole again? */
static void check_whole(const coll_allocator *a, const char *when)
{
    const coll__hole *const first = coll__arena_of(a)->holes;

    CHECK(coll_arena_used(a) == 0, "%s: %zu bytes are out", when, coll_arena_used(a));
    CHECK(first && !first->next, "%s: not one hole", when);
    if (!first) return;
    const size_t length = first->length;
    void *const all = a->allocate(a->context, length, 1);
    CHECK(all != NULL, "%s: all %zu bytes cannot be had", when, length);
    CHECK(!a->allocate(a->context, 1, 1), "%s: more than all could be had", when);
    if (all) a->free(a->context, all, length);
}

static void test_parts(void)
{
    unsigned char *const block = (unsigned char *)support_need(malloc(BLOCK + 64));

    for (size_t shift = 0; shift < 40; shift += 13)
        for (size_t length = 4096; length <= BLOCK; length *= 16) {
            const coll_allocator *const a = coll_arena_begin(block + shift, length);
            const long refused = churn(a, (uint32_t)(length + shift + 1), TURNS);
            CHECK((refused > 0) == (length < BLOCK), "%zu bytes: %ld refused", length, refused);
            CHECK(coll_arena_most(a) <= length + 2 * COLL__LINE, "more than there is: %zu", coll_arena_most(a));
            check_whole(a, "parts");
            CHECK(coll_arena_end(a) == COLL_OK, "it does not end");
        }
    const coll_allocator *a = coll_arena_begin(block, BLOCK);
    CHECK(!a->allocate(a->context, SIZE_MAX, 1) && !a->allocate(a->context, SIZE_MAX - 20, 64)
          && !a->allocate(a->context, 16, (size_t)1 << 63), "more than there can be");
    void *const none = a->allocate(a->context, 0, 1);
    CHECK(none != NULL, "0 bytes are an address");
    a->free(a->context, none, 0);
    check_whole(a, "odd lengths");
    for (size_t length = 0; length < 400; length++) {            /* shorter than its own records: no allocation    */
        memset(block, 0x5a, 512);
        a = coll_arena_begin(block + 1, length);
        void *const at = a->allocate(a->context, 1, 1);
        CHECK(a != NULL && (at || length < 300), "%zu bytes are enough", length);
        if (at) a->free(a->context, at, 1);
        for (size_t i = length; i < 500; i++) CHECK(block[1 + i] == 0x5a, "%zu bytes: written at %zu", length, i);
        CHECK(coll_arena_end(a) == COLL_OK, "%zu bytes: it does not end", length);
    }
    CHECK(coll_arena_begin(NULL, 1000)->allocate(NULL, 1, 1) == NULL, "no memory gives some");
    CHECK(coll_arena_end(NULL) == COLL_ERR_ARGUMENT && coll_arena_used(NULL) == 0 && coll_arena_most(NULL) == 0, "no arena");
    free(block);
}

/* ---- >>most: its result is enough for the same calls again, and much less is not ---- */

static void test_most(void)
{
    unsigned char *const block = (unsigned char *)support_need(malloc(BLOCK + 64));

    for (uint32_t seed = 1; seed < 20; seed++) {
        const coll_allocator *a = coll_arena_begin(block, BLOCK);
        CHECK(churn(a, seed, 4000) == 0, "%d bytes are too few", BLOCK);
        const size_t most = coll_arena_most(a);
        a = coll_arena_begin(block + seed, most);
        CHECK(churn(a, seed, 4000) == 0, "%zu bytes, where so many were used, are too few", most);
        a = coll_arena_begin(block + seed, most - 2 * COLL__LINE);
        CHECK(churn(a, seed, 4000) > 0, "%zu bytes are enough, and 128 more were said", most);
    }
    free(block);
}

/* ---- >>crowd: threads, each with parts of its own ---- */

static void *crowd_main(void *at)
{
    const coll_allocator *const a = (const coll_allocator *)at;
    part out[20] = { { 0 } };
    uint32_t x = (uint32_t)(uintptr_t)out | 1;

    for (int t = 0; t < 4000; t++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        part *const p = &out[x % 20];
        if (p->at) {
            CHECK(is_marked(p), "written over by another thread");
            a->free(a->context, p->at, p->length);
            p->at = NULL;
        } else if ((p->length = x >> 8 & 511, p->at = (unsigned char *)a->allocate(a->context, p->length, 8))) {
            memset(p->at, p->mark = (unsigned char)x, p->length);
        }
    }
    for (int i = 0; i < 20; i++) if (out[i].at) a->free(a->context, out[i].at, out[i].length);
    return NULL;
}

static void test_crowd(void)
{
    static unsigned char block[64 << 10];
    const coll_allocator *const a = coll_arena_begin(block, sizeof block);
    pthread_t threads[6];

    for (int i = 0; i < 6; i++) CHECK(!pthread_create(&threads[i], NULL, crowd_main, (void *)(uintptr_t)a), "no thread");
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    check_whole(a, "crowd");
    CHECK(coll_arena_end(a) == COLL_OK, "it does not end");
}

/* ---- >>enough: with what coll_arena_most says the calls succeed, with far fewer bytes they fail, and nothing is lost ---- */

enum { N = 3000, SIZES = 9, LARGE = 24 };

typedef struct needs {
    const char *world;
    int   size;
    long  arena_of;                               /* the rank that has the arena; -1: all are in it           */
    coll_config config;
    const coll_transport *transport;              /* of custom worlds, and what each rank has of it           */
    void *context[LARGE];
    coll_status worst[LARGE];
} needs;

static const coll_call every[] = {
    { .kind = COLL_BARRIER },
    { .kind = COLL_BROADCAST, .count = N, .type = COLL_F32 },
    { .kind = COLL_REDUCE, .count = N, .type = COLL_F32, .op = COLL_SUM },
    { .kind = COLL_ALLREDUCE, .count = N, .type = COLL_F32, .op = COLL_SUM },
    { .kind = COLL_ALLREDUCE, .count = 3, .type = COLL_F64, .op = COLL_MAX },
    { .kind = COLL_ALLREDUCE, .count = N, .type = COLL_F32, .op = COLL_SUM, .wire = COLL_BF16 },
    { .kind = COLL_ALLREDUCE, .count = N, .type = COLL_F32, .op = COLL_SUM, .flags = COLL_DETERMINISTIC },
    { .kind = COLL_ALLREDUCE, .count = N, .type = COLL_F32, .op = COLL_SUM, .flags = COLL_REPRODUCIBLE },
    { .kind = COLL_REDUCE_SCATTER, .count = 50, .type = COLL_F32, .op = COLL_SUM },
    { .kind = COLL_SCAN, .count = N, .type = COLL_I32, .op = COLL_SUM },
    { .kind = COLL_GATHER, .count = 50, .type = COLL_F32 },
    { .kind = COLL_SCATTER, .count = 50, .type = COLL_F32 },
    { .kind = COLL_ALLGATHER, .count = 50, .type = COLL_F32 },
#if COLL__IS_WHOLE
    { .kind = COLL_ALLGATHER, .count = 12, .type = COLL_F32, .row = 2, .recv_stride = 50 },
#endif
    { .kind = COLL_ALLTOALL, .count = 50, .type = COLL_F32 },
};
enum { EVERY = sizeof every / sizeof *every };

/* Those of them that are in this build. */
static coll_call listed[EVERY];
static int       listed_count;

static int needs_worker(coll_comm *comm, void *arg)
{
    needs *const n = (needs *)arg;
    float *const in = (float *)support_need(calloc(2 * N, sizeof *in)), *const out = in + N;
    coll_status status = COLL_OK;

    for (int again = 0; again < 4 && status == COLL_OK; again++) {
        coll_request *requests[EVERY] = { NULL };
        for (int i = 0; i < listed_count && status == COLL_OK; i++) {
            coll_call call = listed[i];
            call.send = in, call.recv = out;
            if (again % 2 == 0) status = coll_run(comm, &call);
            else if ((status = coll_start(comm, &call, &requests[i])) == COLL_OK) status = coll_wait(requests[i]);
        }
        for (int i = 0; i < listed_count; i++) coll_request_free(requests[i]);
    }
    if (status < 0) CHECK(*coll_error(comm), "%s, %d ranks: an error without a sentence", n->world, n->size);
    n->worst[coll_rank(comm)] = status;
    free(in);
    return 0;
}

typedef struct one_rank { int rank; needs *needs; } one_rank;

static void *needs_rank(void *at)
{
    const int rank = ((const one_rank *)at)->rank;
    needs *const n = ((const one_rank *)at)->needs;
    coll_config config = n->config;
    coll_comm *comm = NULL;

    config.rank = rank;
    if (rank != n->arena_of) config.allocator = NULL;
    n->worst[rank] = n->transport ? coll_init_custom(n->transport, n->context[rank], rank, n->size, &comm, &config)
                                  : coll_init(&comm, &config);
    if (n->worst[rank] < 0) CHECK(*coll_error(NULL), "%s, %d ranks: no sentence", n->world, n->size);
    else (void)needs_worker(comm, n), coll_free(comm);
    return NULL;
}

static void needs_threads(needs *n)
{
    one_rank all[LARGE];
    pthread_t threads[LARGE];

    for (int i = 0; i < n->size; i++) {
        all[i] = (one_rank){ i, n };
        CHECK(!pthread_create(&threads[i], NULL, needs_rank, &all[i]), "no thread");
    }
    for (int i = 0; i < n->size; i++) pthread_join(threads[i], NULL);
}

/* Threads that exchange messages through a transport that runs no collectives itself: for core it is the program's own. */
static coll_transport own_transport;

static void needs_own(needs *n)
{
    coll__domain *const domain = coll__domain_open(NULL, 0, n->size, false);

    own_transport = coll__threads_transport;
    own_transport.offload = NULL, own_transport.bind = NULL, own_transport.can_offload = NULL;
    own_transport.group = NULL, own_transport.ungroup = NULL, own_transport.mark_stragglers = NULL;
    n->transport = &own_transport;
    for (int i = 0; i < n->size; i++) n->context[i] = support_need(coll__thread_open(NULL, domain, i)), domain->holders++;
    coll__domain_release(domain);
    needs_threads(n);
}

/* Run all with an arena of `length` bytes; the worst that became of it. */
static coll_status needs_run(needs *n, unsigned char *block, size_t length, size_t *most)
{
    const coll_allocator *const arena = coll_arena_begin(block, length);
    coll_status worst = COLL_OK;
    char address[64];
    int port = -1;

    memset(n->worst, 0, sizeof n->worst);
    n->config.allocator = arena;
    if (!strcmp(n->world, "tcp")) {
        port = support_reserve_port(address, sizeof address);
        n->config.address = address;
        needs_threads(n);
        close(port);
    } else if (!strcmp(n->world, "custom")) needs_own(n);
    else {
        const int result = coll_spawn(n->size, needs_worker, n, &n->config);
        if (result < 0) n->worst[0] = result;
    }
    for (int i = 0; i < n->size; i++)
        if (n->worst[i] < 0 && (worst == COLL_OK || n->worst[i] == COLL_ERR_MEMORY)) worst = n->worst[i];
    *most = coll_arena_most(arena);
    if (length > 1000) check_whole(arena, n->world);
    CHECK(coll_arena_end(arena) == COLL_OK, "%s: the arena does not end", n->world);
    return worst;
}

/* A first run measures the memory of the calls.  Other runs may interleave them differently, so the block of the second is a
 * quarter longer. */
static void needs_of(const char *world, int size, int rank)
{
    enum { AMPLE = 64 << 20 };
    const bool is_custom = !strcmp(world, "custom");
    needs n = { .world = world, .size = size, .arena_of = rank };
    size_t most = 0, ignored;

    n.config = (coll_config){ .transport = is_custom ? NULL : world, .size = size, .rank = rank, .log_level = COLL_LOG_NONE,
                              .start_timeout_ms = 20000, .tcp = { .io = "poll" } };
    unsigned char *const block = (unsigned char *)support_need(malloc(AMPLE));
    coll_status status = needs_run(&n, block, AMPLE, &most);
    CHECK(status == COLL_OK, "%s, rank %d of %d in %d bytes: %s", world, rank, size, AMPLE, coll_status_text(status));
    status = needs_run(&n, block, most + most / 4, &ignored);
    CHECK(status == COLL_OK, "%s, rank %d of %d: %zu bytes were used, and %zu are too few: %s", world, rank, size, most,
          most + most / 4, coll_status_text(status));
    n.config.start_timeout_ms = 500;
    for (size_t few = 100; few < most / 2; few *= 8) {
        const coll_status refused = needs_run(&n, block, few, &ignored);
        CHECK(refused == COLL_ERR_MEMORY, "%s, rank %d of %d in %zu bytes: %s", world, rank, size, few,
              coll_status_text(refused));
        if (!strcmp(world, "tcp") && few > 100) break;            /* the others wait for the one               */
    }
    free(block);
}

static void test_enough(void)
{
    static const char *const worlds[] = { "threads", "sim", "custom", "tcp" };

    for (int i = 0; i < EVERY; i++)
        if (there_call(&every[i]).count == 0) listed[listed_count++] = every[i];
    for (int w = 0; w < 4; w++)
        for (int size = 1; size <= SIZES && (w == 2 || support_has_world(worlds[w])); size++) {
            const int n = size < SIZES ? size : w < 3 ? LARGE : 12;
            needs_of(worlds[w], n, w < 2 ? 0 : n / 2);
        }
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } all[] = {
        { "parts", test_parts }, { "most", test_most }, { "crowd", test_crowd },
        { "enough", test_enough },
    };

    support_limit(400, NULL);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (argc > 1 && !support_listed(argv[1], all[i].name)) continue;
        const int failed = check__failed;
        all[i].run();
        printf("%s - %s\n", check__failed > failed ? "FAILED" : "ok", all[i].name);
        fflush(stdout);
    }
    return CHECK_DONE();
}
