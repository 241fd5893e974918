/* test_waiting.c - waits for one of several requests: every end is returned once, and waits sleep meanwhile.
 *
 *     test_waiting [WORLD,...] [PART,...]  PART: loop, sleep, threads, sessions, crowd, ends */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/waiting.h"

#include <sys/wait.h>

enum { SECONDS = 60, ROUNDS = 20, THREADS = 3 };

static int loop_worker(coll_comm *comm, void *arg)
{
    const double scale = support_scale();

    (void)arg;
    for (way how = 0; how < WAYS; how++) crowd_play(comm, how);
    for (int more = 0; more < (int)(3 * scale); more++) crowd_play(comm, BY_ANY);
    return 0;
}

static int sleep_worker(coll_comm *comm, void *arg)
{
    (void)arg;
    sleep_play(comm, coll_size(comm));
    return 0;
}

/* ---- >>threads: several on one coll_init, each with communicators of its own ---- */

typedef struct helper { pthread_t thread; coll_comm *comms[2]; } helper;

static void *helper_main(void *arg)
{
    helper *h = arg;

    for (int round = 0; round < ROUNDS; round++) {
        const int rank = coll_rank(h->comms[0]), size = coll_size(h->comms[0]);
        coll_request *r[6] = { NULL };
        int64_t x[6] = { 1, 1, 5, 0, 0, 0 };
        int index = 0, times = 0;
        for (int i = 0; i < 2; i++)
            CHECK(!coll_iallreduce(h->comms[i], &x[i], &x[i + 4], 1, COLL_I64, COLL_SUM, &r[i]), "start");
        CHECK(!coll_irecv(h->comms[1], &x[3], 1, COLL_I64, (rank + 1) % size, 3, &r[2]), "start");
        CHECK(!coll_isend(h->comms[1], &x[2], 1, COLL_I64, (rank + size - 1) % size, 3, &r[3]), "start");
        while (coll_wait_any(6, r, &index) == COLL_OK && index >= 0) times++;
        CHECK(index == -1 && times == 4 && x[4] == size && x[5] == size && x[3] == 5, "%s: %d of 4, then %d: %s", case_name,
              times, index, coll_error(h->comms[0]));
        for (int i = 0; i < 6; i++) coll_request_free(r[i]);
    }
    return NULL;
}

static int threads_worker(coll_comm *comm, void *arg)
{
    helper helpers[THREADS] = { 0 };

    (void)arg;
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < 2; k++) CHECK(coll_dup(comm, &helpers[i].comms[k]) == COLL_OK, "%s", coll_error(comm));
    for (int i = 0; i < THREADS; i++) pthread_create(&helpers[i].thread, NULL, helper_main, &helpers[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(helpers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) for (int k = 0; k < 2; k++) coll_free(helpers[i].comms[k]);
    return coll_barrier(comm);
}

/* ---- >>sessions: communicators of two coll_init at once ---- */

static void both_round(coll_comm *const *comms, bool is_late)
{
    const struct timespec late = { 1, 0 };
    const int rank = coll_rank(comms[0]), size = coll_size(comms[0]);
    coll_request *r[4] = { NULL };
    int64_t x[4] = { 1, 1, 0, 0 };
    int index = 0, times = 0;

    if (is_late && rank == 0) nanosleep(&late, NULL);
    for (int i = 0; i < 2; i++) CHECK(!coll_iallreduce(comms[i], &x[i], &x[i + 2], 1, COLL_I64, COLL_SUM, &r[i]), "start");
    while (coll_wait_any(4, r, &index) == COLL_OK && index >= 0) times++;
    CHECK(index == -1 && times == 2 && x[2] == size && x[3] == size, "%s: %d of 2, then %d: %s %s", case_name, times, index,
          coll_error(comms[0]), coll_error(comms[1]));
    for (int i = 0; i < 4; i++) coll_request_free(r[i]);
}

static int sessions_worker(coll_comm *comm, void *arg)
{
    coll_comm *comms[2] = { comm, NULL };
    const coll_config config = { .transport = "tcp", .rank = coll_rank(comm), .size = coll_size(comm), .address = arg };
    const coll_status status = coll_init(&comms[1], &config);
    CHECK(status == COLL_OK, "%s: %s", case_name, coll_error(NULL));
    if (status < 0) return 1;
    for (int round = 0; round < ROUNDS; round++) both_round(comms, false);
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    const double before = processor_seconds();
    both_round(comms, true);
    const double used = processor_seconds() - before;
    CHECK(used < 0.25 * coll_size(comm), "%s: 1 s takes %.3f s of processors", case_name, used);
    coll_free(comms[1]);
    return 0;
}

/* ---- >>crowd: one thread has all ranks, each of which has its own context ---- */

static void crowd_case(const void *arg)
{
    const coll_config config = { .transport = arg };
    coll_comm *comms[5];
    int index = 0;

    CHECK(coll_init_threads(5, comms, &config) == COLL_OK, "%s", coll_error(NULL));
    for (int round = 0; round < ROUNDS; round++) {
        coll_request *r[10];
        int64_t x[5], sum[5];
        int times[10] = { 0 }, good = 0;
        for (int i = 0; i < 5; i++) {
            x[i] = i;
            CHECK(!coll_iallreduce(comms[i], &x[i], &sum[i], 1, COLL_I64, COLL_SUM, &r[i]), "%s", coll_error(comms[i]));
            CHECK(!coll_ibarrier(comms[i], &r[5 + i]), "%s", coll_error(comms[i]));
        }
        while (coll_wait_any(10, r, &index) == COLL_OK && index >= 0) times[index]++;
        for (int i = 0; i < 10; i++) good += times[i] == 1 && sum[i % 5] == 10;
        CHECK(good == 10 && index == -1, "%s: %d of 10 are right, then %d: %s", case_name, good, index, coll_error(comms[0]));
        for (int i = 0; i < 10; i++) coll_request_free(r[i]);
    }
    for (int i = 0; i < 5; i++) coll_free(comms[i]);
}

/* ---- >>ends: that are errors ---- */

/* A receive with a time limit ends all that runs; each end is handed out with its own status. */
static int limit_worker(coll_comm *comm, void *arg)
{
    const int next = (coll_rank(comm) + 1) % coll_size(comm);
    int64_t x[2];
    const coll_call patient = { .kind = COLL_RECV, .recv = &x[0], .count = 1, .type = COLL_I64, .peer = next, .tag = 1 };
    coll_call limited = patient;
    coll_request *r[4] = { NULL };
    int index = 0, indices[4], count = 0;

    (void)arg;
    limited.recv = &x[1];
    if (coll_rank(comm) == 1) limited.timeout_ms = 300;
    CHECK(!coll_start(comm, &patient, &r[1]) && !(coll_rank(comm) != 1 && coll_start(comm, &limited, &r[3])), "%s",
          coll_error(comm));
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));     /* the others have started both         */
    CHECK(coll_rank(comm) != 1 || !coll_start(comm, &limited, &r[3]), "%s", coll_error(comm));
    const int64_t began = now_ms();
    CHECK(coll_wait_any(4, r, &index) == COLL_ERR_TIMEOUT && (index == 1 || index == 3), "%s: %d: %s", case_name, index,
          coll_error(comm));
    CHECK(coll_rank(comm) != 1 || now_ms() - began >= 300, "%s: after %d ms", case_name, (int)(now_ms() - began));
    CHECK(coll_wait_some(4, r, indices, &count) == COLL_ERR_TIMEOUT && count == 1 && indices[0] == 4 - index, "%s: %d more",
          case_name, count);
    CHECK(coll_wait_some(4, r, indices, &count) == COLL_OK && count == 0, "%s: %d at the end", case_name, count);
    CHECK(coll_test_any(4, r, &index) == COLL_OK && index == -1, "%s: %d at the end", case_name, index);
    for (int i = 0; i < 4; i++) coll_request_free(r[i]);
    return 0;
}

/* A forked child may wait for nothing; requests that coll_free drops are returned. */
static int left_worker(coll_comm *comm, void *arg)
{
    coll_comm *own = NULL;
    coll_request *r[2] = { NULL, NULL };
    int64_t x[2];
    int index = 0, indices[2], count = 0;

    (void)arg;
    CHECK(coll_dup(comm, &own) == COLL_OK, "%s", coll_error(comm));
    for (int i = 0; i < 2 && coll_rank(comm) == 0; i++)
        CHECK(!coll_irecv(own, &x[i], 1, COLL_I64, 1, i, &r[i]), "%s", coll_error(own));
    if (coll_rank(comm) > 0) {
        CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
        coll_free(own);
        return coll_barrier(comm);
    }
#if !defined(__SANITIZE_THREAD__)
    int status = 1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const bool good = coll_wait_any(2, r, &index) == COLL_ERR_FORKED && index == -1
            && coll_wait_some(2, r, indices, &count) == COLL_ERR_FORKED && count == 0
            && coll_test_any(2, r, &index) == COLL_ERR_FORKED && index == -1 && coll_test_all(2, r) == COLL_ERR_FORKED;
        _exit(good ? 0 : 7);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%s: the child: %d", case_name, status);
#endif
    CHECK(coll_test_any(2, r, &index) == COLL_PENDING && index == -1, "%s: running, but %d", case_name, index);
    CHECK(coll_test_all(2, r) == COLL_PENDING, "%s: coll_test_all: not running", case_name);
    coll_free(own);
    CHECK(coll_wait_any(2, r, &index) == COLL_ERR_ABORTED && index == 0, "%s: freed, and %d", case_name, index);
    CHECK(coll_wait_some(2, r, indices, &count) == COLL_ERR_ABORTED && count == 1 && indices[0] == 1, "%s: freed", case_name);
    CHECK(coll_wait_any(2, r, &index) == COLL_OK && index == -1, "%s: freed, and then %d", case_name, index);
    CHECK(coll_test_all(2, r) == COLL_ERR_ABORTED, "%s: coll_test_all after the end", case_name);
    for (int i = 0; i < 2; i++) coll_request_free(r[i]);
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    return coll_barrier(comm);
}

/* While one of them runs, coll_test_all reports none, not even one that is finished. */
static int some_worker(coll_comm *comm, void *arg)
{
    coll_request *r[3] = { NULL, NULL, NULL };
    int64_t x[3] = { 1, 0, 0 };
    int index = 9;

    (void)arg;
    if (coll_rank(comm) == 0) {
        CHECK(!coll_isend(comm, x, 1, COLL_I64, 1, 1, &r[0]) && !coll_irecv(comm, &x[1], 1, COLL_I64, 1, 2, &r[2]), "start");
        CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
        for (int i = 0; i < 100; i++) CHECK(coll_test_all(3, r) == COLL_PENDING, "%s: all are finished", case_name);
        CHECK(coll_wait_any(3, r, &index) == COLL_OK && index == 0, "%s: %d, not the message that was sent", case_name, index);
        CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
        coll_status status;
        while ((status = coll_test_all(3, r)) == COLL_PENDING) sched_yield();
        CHECK(status == COLL_OK && x[1] == 7, "%s: %d: %s", case_name, (int)status, coll_error(comm));
        CHECK(coll_wait_any(3, r, &index) == COLL_OK && index == -1, "%s: reported twice: %d", case_name, index);
        coll_request_free(r[0]), coll_request_free(r[2]);
        return 0;
    }
    CHECK(coll_recv(comm, &x[1], 1, COLL_I64, 0, 1) == COLL_OK && coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    x[2] = 7;
    CHECK(coll_barrier(comm) == COLL_OK && coll_send(comm, &x[2], 1, COLL_I64, 0, 2) == COLL_OK, "%s", coll_error(comm));
    return 0;
}

/* coll_test_all ends what has waited for its time limit. */
static int test_limit_worker(coll_comm *comm, void *arg)
{
    int64_t x[2] = { 1, 1 };
    const coll_call limited = { .kind = COLL_ALLREDUCE, .send = x, .recv = &x[1], .count = 1, .type = COLL_I64,
                                .timeout_ms = 200 };
    coll_request *r = NULL;
    coll_status status;

    (void)arg;
    if (coll_rank(comm) != 0) {
        status = coll_recv(comm, x, 1, COLL_I64, 0, 1);           /* which rank 0 never sends                 */
        CHECK(status == COLL_ERR_TIMEOUT, "%s: %d: %s", case_name, (int)status, coll_error(comm));
        return 0;
    }
    CHECK(!coll_start(comm, &limited, &r), "%s", coll_error(comm));
    while ((status = coll_test_all(1, &r)) == COLL_PENDING) sched_yield();
    CHECK(status == COLL_ERR_TIMEOUT, "%s: %d: %s", case_name, (int)status, coll_error(comm));
    coll_request_free(r);
    return 0;
}

/* A test that finds the call ended returns its status, also behind the time limit. */
static int test_ended_worker(coll_comm *comm, void *arg)
{
    enum { LIMIT_MS = 20 };
    static int is_over;                           /* rank 1 has its result, to which rank 0 has nothing to add */
    const int rank = coll_rank(comm);
    int64_t x = 1, sum = 0;
    const coll_call limited = { .kind = COLL_ALLREDUCE, .send = &x, .recv = &sum, .count = 1, .type = COLL_I64,
                                .timeout_ms = rank == 0 ? LIMIT_MS : 0 };
    coll_request *r = NULL;

    (void)arg;
    if (rank != 0) {
        CHECK(!coll_recv(comm, &x, 1, COLL_I64, 0, 1) && !coll_run(comm, &limited), "%s", coll_error(comm));
        __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
        return coll_barrier(comm);
    }
    __atomic_store_n(&is_over, 0, __ATOMIC_SEQ_CST);
    CHECK(!coll_start(comm, &limited, &r) && coll_test(r) == COLL_PENDING, "%s", coll_error(comm));
    CHECK(!coll_send(comm, &x, 1, COLL_I64, 1, 1), "%s", coll_error(comm));
    usleep(2 * LIMIT_MS * 1000);                  /* the time limit is over                                   */
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) sched_yield();
    CHECK(coll_test(r) == COLL_OK && sum == 2, "%s: %s", case_name, coll_error(comm));
    coll_request_free(r);
    return coll_barrier(comm);
}

static void nonsense_case(const void *arg)
{
    coll_request *none[2] = { NULL, NULL };
    int index = 5, indices[2], count = 5;

    (void)arg;
    CHECK(coll_wait_some(2, none, indices, &count) == COLL_OK && count == 0, "NULLs: %d", count);
    CHECK(coll_wait_some(0, NULL, NULL, &count) == COLL_OK && count == 0, "nothing: %d", count);
    CHECK(coll_test_any(2, none, &index) == COLL_OK && index == -1, "NULLs: %d", index);
    CHECK(coll_test_any(0, NULL, &index) == COLL_OK && index == -1, "nothing: %d", index);
    CHECK(coll_wait_some(-1, none, indices, &count) == COLL_ERR_ARGUMENT && coll_wait_some(2, NULL, indices, &count)
          == COLL_ERR_ARGUMENT && coll_wait_some(2, none, NULL, &count) == COLL_ERR_ARGUMENT && count == 0
          && coll_wait_some(2, none, indices, NULL) == COLL_ERR_ARGUMENT, "coll_wait_some: %s", coll_error(NULL));
    CHECK(coll_test_any(-1, none, &index) == COLL_ERR_ARGUMENT && coll_test_any(2, NULL, &index) == COLL_ERR_ARGUMENT
          && coll_test_any(2, none, NULL) == COLL_ERR_ARGUMENT, "coll_test_any: %s", coll_error(NULL));
    CHECK(coll_test_all(2, none) == COLL_OK && coll_test_all(0, NULL) == COLL_OK, "coll_test_all: nothing is not finished");
    CHECK(coll_test_all(-1, none) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "coll_test_all: count -1"),
          "coll_test_all: %s", coll_error(NULL));
    CHECK(coll_test_all(2, NULL) == COLL_ERR_ARGUMENT, "coll_test_all: %s", coll_error(NULL));
}

/* ---- >>which ---- */

typedef struct play { int (*worker)(coll_comm *comm, void *arg); int size; } play;

static void world_case(const void *arg)
{
    const play *p = arg;
    char address[64];
    const int port = support_reserve_port(address, sizeof address);       /* of another coll_init             */

    CHECK(support_run(world, p->size, p->worker, address) == 0, "%s", case_name);
    if (port >= 0) close(port);
}

static void run(int (*worker)(coll_comm *comm, void *arg), int size, const char *name)
{
    const play p = { worker, size };
    char text[80];

    snprintf(text, sizeof text, "%s, %d ranks", name, size);
    run_case_within(SECONDS, world_case, &p, text);
}

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 && strcmp(argv[1], "all") ? argv[1] : NULL, *parts = argc > 2 ? argv[2] : NULL;

    cases_begin();
    for (int at = 0; (world = support_world_next(wanted, &at)) != NULL;) {
        const bool is_sim = !strcmp(world, "sim"), is_tcp = !strncmp(world, "tcp", 3);
        for (int size = 1; size <= 5 && support_listed(parts, "loop"); size++) run(loop_worker, size, "loop");
        for (int size = 2; size <= 5 && !is_sim && support_listed(parts, "sleep"); size++) run(sleep_worker, size, "sleep");
        for (int size = 2; size <= 3 && !is_sim; size++) {
            if (support_listed(parts, "threads")) run(threads_worker, size, "threads");
            if (support_listed(parts, "sessions")) run(sessions_worker, size, "sessions");
        }
        if ((is_sim || !strcmp(world, "threads")) && support_listed(parts, "crowd"))
            run_case_within(SECONDS, crowd_case, world, "crowd");
        if (!is_sim && support_listed(parts, "ends")) run(limit_worker, 3, "a time limit");
        if (support_listed(parts, "ends")) run(some_worker, 2, "coll_test_all: some are finished");
        if (!is_sim && support_listed(parts, "ends")) run(test_limit_worker, 2, "coll_test_all: a time limit");
        if (!strcmp(world, "threads") && support_listed(parts, "ends")) run(test_ended_worker, 2, "coll_test: ended");
        if (is_tcp && support_listed(parts, "ends")) run(left_worker, 2, "forked and freed");
        if (!strcmp(world, "threads") && support_listed(parts, "ends")) run(left_worker, 3, "forked and freed");
    }
    world = "none";
    if (support_listed(wanted, "threads") && support_listed(parts, "ends"))
        run_case_within(SECONDS, nonsense_case, NULL, "nonsense");
    return CHECK_DONE();
}
