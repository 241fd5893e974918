/* test_requests.c - the memory of requests: a new request gets that of a freed one (core/engine/coll_request_pool.h).  They may
 * be freed by any thread, while others are started, and after their communicator; and nothing is lost, nor kept without bound. */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/counting_allocator.h"

#include <pthread.h>

enum { RANKS = 2, MANY = 1000, ROUNDS = 300, AT_ONCE = 40, LIMIT_SECONDS = 120 };

/* The allocator of the communicators. */
static counter counter_of_all;

/* Requests that one thread hands to another, which frees them. */
typedef struct chute {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    coll_request   *requests[AT_ONCE];
    int  count;
    bool is_closed;
} chute;

#define CHUTE { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, { NULL }, 0, false }

static void chute_put(chute *c, coll_request *r)
{
    pthread_mutex_lock(&c->lock);
    while (c->count == AT_ONCE) pthread_cond_wait(&c->changed, &c->lock);
    c->requests[c->count++] = r;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void chute_close(chute *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_closed = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* Frees requests until there are no more. */
static void *free_all(void *at)
{
    chute *c = at;

    for (;;) {
        pthread_mutex_lock(&c->lock);
        while (!c->count && !c->is_closed) pthread_cond_wait(&c->changed, &c->lock);
        coll_request *const r = c->count ? c->requests[--c->count] : NULL;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
        if (!r) return NULL;
        coll_request_free(r);
    }
}

/* Start `n` sums of one number, and wait for them. */
static void start(coll_comm *comm, coll_request **requests, int64_t *numbers, int n)
{
    for (int i = 0; i < n; i++) {
        numbers[i] = i;
        CHECK(coll_iallreduce(comm, COLL_IN_PLACE, &numbers[i], 1, COLL_I64, COLL_SUM, &requests[i]) == COLL_OK, "%s",
              coll_error(comm));
    }
    CHECK(coll_wait_all(n, requests) == COLL_OK, "%s", coll_error(comm));
    for (int i = 0; i < n; i++) CHECK(numbers[i] == i * RANKS, "number %d is %lld", i, (long long)numbers[i]);
}

/* ---- >>a crowd of them ---- */

static int crowd_rank(coll_comm *comm, void *arg)
{
    coll_request **const requests = support_need(calloc(MANY, sizeof *requests));
    int64_t *const numbers = support_need(calloc(MANY, sizeof *numbers));
    const long size = (long)(sizeof(coll_request) + sizeof(coll_request) / 4);    /* and what an allocation costs  */

    (void)arg;
    start(comm, requests, numbers, 1);
    coll_request_free(requests[0]);
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    const long before = __atomic_load_n(&counter_of_all.bytes, __ATOMIC_RELAXED);
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    start(comm, requests, numbers, MANY);
    for (int i = 0; i < MANY; i++) coll_request_free(requests[i]);
    start(comm, requests, numbers, 1);
    coll_request_free(requests[0]);
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    const long kept = __atomic_load_n(&counter_of_all.bytes, __ATOMIC_RELAXED) - before;
    CHECK(kept <= RANKS * (COLL_REQUESTS + COLL_OVERLAP) * size, "%ld bytes are kept of %d requests", kept, MANY);
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    free(requests);
    free(numbers);
    return 0;
}

/* ---- >>freed by another thread, to the very end ---- */

static int handing_rank(coll_comm *comm, void *arg)
{
    chute *const c = (chute *)arg + coll_rank(comm);
    coll_request *requests[AT_ONCE];
    int64_t numbers[AT_ONCE];

    for (int round = 0; round < ROUNDS; round++) {
        const int n = 1 + round % AT_ONCE;
        start(comm, requests, numbers, n);
        for (int i = 0; i < n; i++) chute_put(c, requests[i]);
    }
    chute_close(c);                               /* the last of them are freed while the communicator is         */
    return 0;
}

static void handing_case(const coll_config *config)
{
    static chute chutes[RANKS] = { CHUTE, CHUTE };
    pthread_t threads[RANKS];

    for (int i = 0; i < RANKS; i++) CHECK(!pthread_create(&threads[i], NULL, free_all, &chutes[i]), "no thread");
    CHECK(coll_spawn(RANKS, handing_rank, chutes, config) == 0, "%s", coll_error(NULL));
    for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
}

/* ---- >>after their communicator ---- */

static coll_request *later[RANKS][AT_ONCE];

static int leaving_rank(coll_comm *comm, void *arg)
{
    int64_t numbers[AT_ONCE];

    (void)arg;
    start(comm, later[coll_rank(comm)], numbers, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i += 3) {        /* some now, some later                                     */
        coll_request_free(later[coll_rank(comm)][i]);
        later[coll_rank(comm)][i] = NULL;
    }
    return 0;
}

static void leaving_case(const coll_config *config)
{
    CHECK(coll_spawn(RANKS, leaving_rank, NULL, config) == 0, "%s", coll_error(NULL));
    CHECK(counter_of_all.blocks > 0, "requests that are not freed have no memory");
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < AT_ONCE; i++) {
            CHECK(!later[r][i] || coll_test(later[r][i]) == COLL_OK, "a request that had ended has changed");
            coll_request_free(later[r][i]);
        }
}

/* ---- >>one that was wrong ---- */

static int wrong_rank(coll_comm *comm, void *arg)
{
    coll_request *r = NULL;
    int64_t number = 1;

    (void)arg;
    for (int i = 0; i < 3; i++) {
        CHECK(coll_ibroadcast(comm, &number, 1, COLL_I64, RANKS + i, &r) == COLL_ERR_ARGUMENT && !r, "root %d is taken",
              RANKS + i);
        start(comm, &r, &number, 1);
        coll_request_free(r);
    }
    return 0;
}

int main(void)
{
    const coll_allocator allocator = { counter_allocate, counter_free, &counter_of_all };
    const coll_config config = { .allocator = &allocator };
    const struct {
        const char *name;
        int  (*work)(coll_comm *comm, void *arg);
        void (*body)(const coll_config *config);
    } cases[] = {
        { "a crowd", crowd_rank, NULL }, { "freed by another thread", NULL, handing_case },
        { "after their communicator", NULL, leaving_case }, { "one that was wrong", wrong_rank, NULL },
    };

    support_limit(LIMIT_SECONDS, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int failed = check__failed;
        if (cases[i].body) cases[i].body(&config);
        else CHECK(coll_spawn(RANKS, cases[i].work, NULL, &config) == 0, "%s", coll_error(NULL));
        CHECK(counter_of_all.blocks == 0, "%s: %ld blocks are lost", cases[i].name, counter_of_all.blocks);
        printf("%s - %s\n", check__failed > failed ? "FAILED" : "ok", cases[i].name);
    }
    return CHECK_DONE();
}
