/* test_background.c - operations that move while the program computes: ranks start them and then call nothing that could move
 * them, until they are done all the same.  That they are done shows in coll_overflows, for their results hold an infinity; of
 * receives in coll_received; and of failures in coll_error: none of these moves anything.
 *
 *     test_background [WORLD [TEST]]     COLL_TEST_SCALE=0.1: a tenth of the rounds   COLL_TEST_SEED=...: of the stress */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { LONG = 300000, LIMIT_S = 60, SIZES = 3 };

static const size_t counts[SIZES] = { 1, 5000, LONG };
static const char *world;

/* ---- >>computing ---- */

/* Some arithmetic, and a yield. */
static void compute(void)
{
    static _Thread_local volatile double x = 1;

    for (int i = 0; i < 2000; i++) x = x * 0.999 + 0.5;
    sched_yield();
}

static bool has_overflowed(coll_comm *comm, uint64_t count) { return coll_overflows(comm) >= count; }

static bool await_overflows(coll_comm *comm, uint64_t count)
{
    const double end = support_seconds() + LIMIT_S;

    while (!has_overflowed(comm, count) && support_seconds() < end) compute();
    CHECK(has_overflowed(comm, count), "%s, rank %d of %d: %d of %d operations were done in the background", world,
          coll_rank(comm), coll_size(comm), (int)coll_overflows(comm), (int)count);
    return has_overflowed(comm, count);
}

/* ---- >>sums that can be watched ---- */

typedef struct sum { float *from, *to; size_t count; coll_request *request; } sum;

static sum sum_new(size_t count)
{
    return (sum){ support_need(malloc(count * sizeof(float))), support_need(malloc(count * sizeof(float))), count, NULL };
}

static void sum_free(sum *s)
{
    coll_request_free(s->request);
    free(s->from);
    free(s->to);
}

/* The call; its last element is infinite. */
static coll_call sum_call(sum *s, const coll_comm *comm, int salt)
{
    for (size_t i = 0; i < s->count; i++) s->from[i] = (float)((int)(i % 1000) + salt + coll_rank(comm));
    s->from[s->count - 1] = INFINITY;
    memset(s->to, 0, s->count * sizeof *s->to);
    return (coll_call){ .kind = COLL_ALLREDUCE, .send = s->from, .recv = s->to, .count = s->count, .type = COLL_F32,
                        .op = COLL_SUM, .flags = COLL_DETECT_OVERFLOW };
}

static void sum_start(sum *s, coll_comm *comm, int salt)
{
    const coll_call call = sum_call(s, comm, salt);

    if (coll_start(comm, &call, &s->request)) CHECK(false, "%s: coll_start: %s", world, coll_error(comm));
}

/* It has ended; check the result. */
static void sum_check(sum *s, coll_comm *comm, int salt)
{
    const int size = coll_size(comm);
    size_t wrong = 0;

    CHECK(coll_wait(s->request) == COLL_OK, "%s, rank %d of %d: %s", world, coll_rank(comm), size, coll_error(comm));
    for (size_t i = 0; i + 1 < s->count; i++)
        wrong += s->to[i] != (float)(size * ((int)(i % 1000) + salt) + size * (size - 1) / 2);
    wrong += !isinf(s->to[s->count - 1]);
    CHECK(wrong == 0, "%s, rank %d of %d: %zu of %zu elements are wrong", world, coll_rank(comm), size, wrong, s->count);
}

/* ---- >>tests: each is a rank ---- */

/* Several operations in a row. */
static int collectives(coll_comm *comm, void *arg)
{
    const int size = coll_size(comm), rank = coll_rank(comm);
    sum sums[SIZES];
    coll_request *barrier, *exchange;
    int *out = support_need(malloc(2 * (size_t)size * sizeof *out)), *in = out + size;

    (void)arg;
    for (int i = 0; i < size; i++) out[i] = rank * 100 + i;
    for (int i = 0; i < SIZES; i++) sums[i] = sum_new(counts[i]);
    sum_start(&sums[2], comm, 1);
    CHECK(coll_ibarrier(comm, &barrier) == COLL_OK, "%s", coll_error(comm));
    sum_start(&sums[1], comm, 2);
    CHECK(coll_ialltoall(comm, out, in, 1, COLL_I32, &exchange) == COLL_OK, "%s", coll_error(comm));
    sum_start(&sums[0], comm, 3);
    const bool is_done = await_overflows(comm, SIZES);
    for (int i = 0; i < SIZES; i++) sum_check(&sums[i], comm, SIZES - i);
    CHECK(coll_wait(barrier) == COLL_OK && coll_wait(exchange) == COLL_OK, "%s", coll_error(comm));
    for (int i = 0; i < size; i++) CHECK(in[i] == i * 100 + rank, "%s: alltoall: %d from rank %d", world, in[i], i);
    coll_request_free(barrier);
    coll_request_free(exchange);
    for (int i = 0; i < SIZES; i++) sum_free(&sums[i]);
    free(out);
    return !is_done;
}

/* Prepared calls, restarted in an order of each rank's own. */
static int prepared(coll_comm *comm, void *arg)
{
    sum sums[SIZES];

    (void)arg;
    for (int i = 0; i < SIZES; i++) {
        sums[i] = sum_new(counts[i]);
        const coll_call call = sum_call(&sums[i], comm, i);
        CHECK(coll_prepare(comm, &call, &sums[i].request) == COLL_OK, "%s", coll_error(comm));
    }
    for (int turn = 1; turn <= 3; turn++) {
        for (int i = 0; i < SIZES; i++)
            CHECK(coll_restart(sums[(i + turn + coll_rank(comm)) % SIZES].request) == COLL_OK, "%s", coll_error(comm));
        if (!await_overflows(comm, (uint64_t)(turn * SIZES))) return 1;
        for (int i = 0; i < SIZES; i++) sum_check(&sums[i], comm, i);
    }
    for (int i = 0; i < SIZES; i++) sum_free(&sums[i]);
    return 0;
}

/* On communicators that were made of this one, at the same time. */
static int derived(coll_comm *comm, void *arg)
{
    coll_comm *comms[3] = { comm, NULL, NULL };
    sum sums[3];
    bool are_done = true;

    (void)arg;
    CHECK(coll_dup(comm, &comms[1]) == COLL_OK, "%s", coll_error(comm));
    CHECK(coll_split(comm, coll_rank(comm) % 2, 0, &comms[2]) == COLL_OK, "%s", coll_error(comm));
    for (int i = 0; i < 3; i++) sums[i] = sum_new(LONG / 3);
    for (int i = 0; i < 3; i++) sum_start(&sums[i], comms[i], i);
    for (int i = 2; i >= 0; i--) are_done = are_done && await_overflows(comms[i], 1);
    for (int i = 0; i < 3; i++) sum_check(&sums[i], comms[i], i), sum_free(&sums[i]);
    if (are_done) CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    coll_free(comms[2]);
    coll_free(comms[1]);
    return !are_done;
}

/* Messages round the ring, short and long; receives are started first. */
static int messages(coll_comm *comm, void *arg)
{
    const int size = coll_size(comm), next = (coll_rank(comm) + 1) % size, prev = (coll_rank(comm) + size - 1) % size;
    const double end = support_seconds() + LIMIT_S;
    coll_request *requests[4];
    int tag = -1;

    (void)arg;
    for (int i = 0; i < 2; i++) {
        const size_t count = i ? LONG : 10;
        uint32_t *out = support_message_make(coll_rank(comm), next, i, count), *in = support_need(calloc(count, sizeof *in));
        CHECK(coll_irecv(comm, in, count, COLL_U32, prev, i, &requests[0]) == COLL_OK, "%s", coll_error(comm));
        CHECK(coll_isend(comm, out, count, COLL_U32, next, i, &requests[1]) == COLL_OK, "%s", coll_error(comm));
        while (coll_received(requests[0], NULL, &tag, NULL) && support_seconds() < end) compute();
        CHECK(tag == i, "%s, rank %d of %d: message %d has not come in the background", world, coll_rank(comm), size, i);
        CHECK(coll_wait_all(2, requests) == COLL_OK, "%s", coll_error(comm));
        CHECK(support_message_is_right(in, prev, coll_rank(comm), i, count), "%s: message %d is another", world, i);
        for (int k = 0; k < 2; k++) coll_request_free(requests[k]);
        free(out);
        free(in);
    }
    return tag != 1;
}

/* An operation of the caller's own, which waits for the caller's thread. */
typedef struct own { pthread_t thread; atomic_int calls, intruders; } own;

static void add_here(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    own *o = context;
    const int32_t *lower = in;
    int32_t *all = inout;

    (void)type;
    atomic_fetch_add(&o->calls, 1);
    if (!pthread_equal(o->thread, pthread_self())) atomic_fetch_add(&o->intruders, 1);
    for (size_t i = 0; i < count; i++) all[i] += lower[i];
}

static int user(coll_comm *comm, void *arg)
{
    own mine = { .thread = pthread_self() };
    int32_t *numbers = support_need(malloc(LONG * sizeof *numbers));
    coll_request *request;
    coll_comm *other;
    sum s = sum_new(LONG);
    size_t wrong = 0;

    (void)arg;
    for (size_t i = 0; i < LONG; i++) numbers[i] = (int32_t)i;
    CHECK(coll_dup(comm, &other) == COLL_OK, "%s", coll_error(comm));
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = numbers, .count = LONG, .type = COLL_I32,
                             .op = COLL_USER, .fn = add_here, .fn_context = &mine, .algorithm = "ring" };
    CHECK(coll_start(comm, &call, &request) == COLL_OK, "%s", coll_error(comm));
    sum_start(&s, other, 5);
    const bool is_done = await_overflows(other, 1);
    sum_check(&s, other, 5);
    CHECK(coll_wait(request) == COLL_OK, "%s", coll_error(comm));
    for (size_t i = 0; i < LONG; i++) wrong += numbers[i] != coll_size(comm) * (int32_t)i;
    CHECK(wrong == 0 && mine.calls > 0 && mine.intruders == 0, "%s: %zu elements are wrong; fn ran %d times, %d on other threads",
          world, wrong, mine.calls, mine.intruders);
    coll_request_free(request);
    sum_free(&s);
    coll_free(other);
    free(numbers);
    return !is_done;
}

/* An event loop: nothing is called but when the descriptor says so, and all ends, the caller's own operation too. */
static int loop(coll_comm *comm, void *arg)
{
    own mine = { .thread = pthread_self() };
    int32_t numbers[1000], all[1000];
    coll_request *request;
    sum s[SIZES];
    int left = SIZES + 1;
    struct pollfd at = { .fd = coll_fd(comm), .events = POLLIN };

    (void)arg;
    CHECK(at.fd >= 0 && coll_fd(comm) == at.fd, "%s: coll_fd gives %d, then %d", world, at.fd, coll_fd(comm));
    for (int i = 0; i < 1000; i++) numbers[i] = i;
    for (int i = 0; i < SIZES; i++) {
        s[i] = sum_new(counts[i]);
        sum_start(&s[i], comm, i);
    }
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = numbers, .recv = all, .count = 1000, .type = COLL_I32,
                             .op = COLL_USER, .fn = add_here, .fn_context = &mine, .algorithm = "ring" };
    CHECK(coll_start(comm, &call, &request) == COLL_OK, "%s", coll_error(comm));
    while (left > 0 && poll(&at, 1, LIMIT_S * 1000) > 0) {
        CHECK(coll_progress(comm) == COLL_OK, "%s", coll_error(comm));
        left = coll_test(request) == COLL_PENDING;
        for (int i = 0; i < SIZES; i++) left += coll_test(s[i].request) == COLL_PENDING;
    }
    CHECK(left == 0, "%s: the descriptor is not readable, and %d operations are pending", world, left);
    CHECK(mine.intruders == 0 && all[999] == 999 * coll_size(comm), "%s: %d foreign calls, %d", world, mine.intruders, all[999]);
    for (int i = 0; i < SIZES; i++) {
        sum_check(&s[i], comm, i);
        sum_free(&s[i]);
    }
    coll_request_free(request);
    return left;
}

/* One thread starts and ends, another one finds it done. */
static void *starter(void *arg)
{
    sum *s = ((void **)arg)[0];
    sum_start(s, ((void **)arg)[1], 9);
    return NULL;
}

static int hands(coll_comm *comm, void *arg)
{
    sum s = sum_new(LONG);
    void *both[] = { &s, comm };
    pthread_t thread;

    (void)arg;
    if (pthread_create(&thread, NULL, starter, both)) return 1;
    pthread_join(thread, NULL);
    const bool is_done = await_overflows(comm, 1);
    sum_check(&s, comm, 9);
    sum_free(&s);
    return !is_done;
}

/* Starts, blocking calls, tests and computation of all lengths, mixed: the same calls on all ranks, at times of their own. */
static int stress(coll_comm *comm, void *arg)
{
    uint64_t shared = support_seed(), own_state = support_mix(shared + (uint64_t)coll_rank(comm));
    const int rounds = (int)(150 * support_scale()), size = coll_size(comm);
    sum sums[2] = { sum_new(2000), sum_new(70000) };

    (void)arg;
    for (int i = 0; i < rounds; i++) {
        const uint64_t draw = support_random(&shared);
        sum *s = &sums[draw % 8 == 0];
        int32_t one = i, all = 0;
        sum_start(s, comm, i % 500);
        for (uint64_t k = support_random(&own_state) % 60; k > 0; k--) {
            compute();
            if (support_random(&own_state) % 16 == 0) (void)coll_test(s->request);
            if (support_random(&own_state) % 16 == 0) CHECK(coll_progress(comm) == COLL_OK, "%s", coll_error(comm));
        }
        if (draw >> 8 & 1) {
            CHECK(coll_allreduce(comm, &one, &all, 1, COLL_I32, COLL_SUM) == COLL_OK, "%s", coll_error(comm));
            CHECK(all == size * i, "%s: blocking allreduce %d: %d", world, i, all);
        }
        sum_check(s, comm, i % 500);
        coll_request_free(s->request);
        s->request = NULL;
    }
    for (int i = 0; i < 2; i++) sum_free(&sums[i]);
    return 0;
}

/* The last rank leaves, or fails, when the others have started and compute: their request ends, and the sentence says why. */
static int broken(coll_comm *comm, atomic_int *started, bool aborts)
{
    const double end = support_seconds() + LIMIT_S;
    const coll_status due = aborts ? COLL_ERR_ABORTED : COLL_ERR_PEER;
    char cause[32];
    sum s;

    if (coll_rank(comm) == coll_size(comm) - 1) {
        while (atomic_load(started) < coll_size(comm) - 1 && support_seconds() < end) compute();
        if (aborts) CHECK(coll_abort(comm, "enough") == COLL_OK && coll_progress(comm) == due, "%s", coll_error(comm));
        return 0;
    }
    s = sum_new(LONG);
    sum_start(&s, comm, 0);
    atomic_fetch_add(started, 1);
    while (!*coll_error(comm) && support_seconds() < end) compute();
    snprintf(cause, sizeof cause, "rank %d", coll_size(comm) - 1);
    CHECK(strstr(coll_error(comm), aborts ? "enough" : cause), "%s, rank %d: the failure is not known in the background: %s",
          world, coll_rank(comm), coll_error(comm));
    CHECK(coll_wait(s.request) == due, "%s: %s", world, coll_error(comm));
    sum_free(&s);
    return 0;
}

static int leaving(coll_comm *comm, void *arg) { return broken(comm, arg, false); }
static int aborted(coll_comm *comm, void *arg) { return broken(comm, arg, true); }

/* Freed with a receive that no send matches, after the progress thread has been inside, and asleep in there. */
static int pending(coll_comm *comm, void *arg)
{
    sum s = sum_new(LONG);
    static int nothing[SUPPORT_RANKS_MAX];
    coll_request *request;

    (void)arg;
    CHECK(coll_irecv(comm, &nothing[coll_rank(comm)], 1, COLL_I32, COLL_ANY_SOURCE, 99, &request) == COLL_OK, "%s",
          coll_error(comm));
    sum_start(&s, comm, 0);
    const bool is_done = await_overflows(comm, 1);
    sum_check(&s, comm, 0);
    coll_request_free(request);
    sum_free(&s);
    return !is_done;
}

/* A forked child has no progress thread, and can free the communicators that it has inherited. */
static int forked(coll_comm *comm, void *arg)
{
    sum s = sum_new(LONG);
    int status = -1;

    (void)arg;
    sum_start(&s, comm, 4);
    const bool is_done = await_overflows(comm, 1);
    const pid_t child = fork();
    if (child == 0) {
        alarm(LIMIT_S);
        coll_free(comm);
        _exit(coll_progress(NULL) == COLL_ERR_ARGUMENT ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "%s: the child has ended with %x", world,
          (unsigned)status);
    sum_check(&s, comm, 4);
    sum_free(&s);
    return !is_done;
}

/* Switched off: an operation of several rounds does not progress until a call. */
static int off(coll_comm *comm, void *arg)
{
    const double end = support_seconds() + 0.05;
    sum s = sum_new(LONG);
    coll_call call = sum_call(&s, comm, 6);

    (void)arg;
    CHECK(coll_fd(comm) == -1, "%s: coll_fd gives %d, where nothing moves", world, coll_fd(comm));
    call.algorithm = "ring";
    CHECK(coll_start(comm, &call, &s.request) == COLL_OK, "%s", coll_error(comm));
    while (support_seconds() < end) compute();
    CHECK(coll_overflows(comm) == 0, "%s: it has progressed without a call", world);
    sum_check(&s, comm, 6);
    sum_free(&s);
    return 0;
}

/* ---- >>a transport of one's own: only if it says so ---- */

typedef struct still { atomic_int intruders; pthread_t thread; } still;

static coll_status still_queue(void *context, coll_xfer *x) { (void)context, (void)x; return COLL_OK; }
static void still_close(void *context) { (void)context; }
static void still_wake(void *context) { (void)context; }

/* Nothing ever arrives. */
static coll_status still_progress(void *context, int wait_ms)
{
    still *s = context;

    if (!pthread_equal(s->thread, pthread_self())) atomic_fetch_add(&s->intruders, 1);
    if (wait_ms > 0) usleep(1000);
    return COLL_OK;
}

static void test_custom(bool in_background)
{
    const coll_transport transport = { .name = "still", .send = still_queue, .recv = still_queue, .progress = still_progress,
                                       .close = still_close, .wake = still_wake, .in_background = in_background };
    const double end = support_seconds() + (in_background ? LIMIT_S : 0.05);
    still s = { .thread = pthread_self() };
    coll_request *request;
    coll_comm *comm;
    int number;

    CHECK(coll_init_custom(&transport, &s, 0, 2, &comm, NULL) == COLL_OK, "%s", coll_error(NULL));
    CHECK(coll_irecv(comm, &number, 1, COLL_I32, 1, 0, &request) == COLL_OK, "%s", coll_error(comm));
    while (support_seconds() < end && s.intruders == 0) compute();
    CHECK((s.intruders > 0) == in_background, "%d calls came from another thread", s.intruders);
    coll_free(comm);
    CHECK(coll_test(request) == COLL_ERR_ABORTED, "a receive that was pending: %d", (int)coll_test(request));
    coll_request_free(request);
}

static void test_settings(void)
{
    const coll_config config = { .transport = "tcp", .rank = 0, .size = 1 };
    coll_comm *comm;

    setenv("COLL_BACKGROUND", "perhaps", 1);
    CHECK(coll_init(&comm, &config) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "COLL_BACKGROUND=perhaps"), "%s",
          coll_error(NULL));
    setenv("COLL_BACKGROUND", "off", 1);
    CHECK(coll_init(&comm, &config) == COLL_OK, "%s", coll_error(NULL));
    coll_free(comm);
}

/* ---- >>all ---- */

typedef struct test { const char *name; int (*worker)(coll_comm *comm, void *arg); } test;

static void run(const test *t, int size)
{
    atomic_int started = 0;
    const int failed = support_run(world, size, t->worker, &started);
    CHECK(failed == 0, "%s, %s, %d ranks: %d did not come through", world, t->name, size, failed);
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "tcp-poll", "tcp-uring", "tcp-domain", "hybrid" };
    static const test tests[] = {
        { "collectives", collectives }, { "prepared", prepared }, { "derived", derived }, { "messages", messages },
        { "user", user }, { "loop", loop }, { "hands", hands }, { "stress", stress },
        { "leaving", leaving }, { "aborted", aborted },
        { "pending", pending }, { "forked", forked }
    };
    static const test alone = { "off", off };

    printf("seed %llu\n", (unsigned long long)support_seed());
    support_limit(600, NULL);
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        world = worlds[w];
        if (argc > 1 && strcmp(argv[1], world)) continue;
        const char *refusal = support_refusal(world);
        if (refusal) printf("skipped %s: %s\n", world, refusal);
        for (size_t t = 0; t < sizeof tests / sizeof *tests && !refusal; t++)
            for (int size = 2; size <= 3; size++)
                if (argc <= 2 || support_listed(argv[2], tests[t].name)) run(&tests[t], size);
        setenv("COLL_BACKGROUND", "off", 1);
        if (!refusal && (argc <= 2 || support_listed(argv[2], alone.name))) run(&alone, 2);
        unsetenv("COLL_BACKGROUND");
    }
    test_custom(false);
    test_custom(true);
    test_settings();
    return CHECK_DONE();
}
