/* test_arena.c - memory in one block of the program's: an arena gives and takes back as a model of it says, to one thread and to
 * many, and communicators live in one.
 *
 *     test_arena [PART,...]                         of parts, most, crowd, worlds; all of them where none is named */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../coll.h"

#include "check.h"
#include "support.h"

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

/* Give and take back at random, with marks in what is out; how many were refused. */
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
    for (size_t length = 0; length < 400; length++) {            /* shorter than its own records: it gives nothing */
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

/* ---- >>most: what it says is enough for the same again, and much less is not ---- */

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

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } all[] = {
        { "parts", test_parts }, { "most", test_most }, { "crowd", test_crowd },
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
