/* test_shortages.c - ranks that reach the limit of open files, as they start, dial, and accept: each reports its own limit, soon,
 * and goes on as soon as it may open files again.  Ranks that can start no thread for heartbeats.
 *
 *     test_shortages
 *
 * Every case runs in a process of its own with a time limit.  Ranks are threads of that process; a rank whose files are counted
 * separately is a process.
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"
#include "starting_ranks.h"

#include <dlfcn.h>
#include <sys/resource.h>

enum { CASE_SECONDS = 25 };

/* ---- >>files: how many more this process may open ---- */

/* Let this process open so many more files, whichever it has inherited.  Returns the limit before. */
static rlim_t files_allow(rlim_t more)
{
    struct rlimit limit;
    rlim_t most = 0;

    for (; fcntl((int)most, F_GETFD) >= 0 || more > 0; most++) more -= fcntl((int)most, F_GETFD) < 0;
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = most;
    setrlimit(RLIMIT_NOFILE, &limit);
    return before;
}

static void files_restore(rlim_t before)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- >>threads: none can be started ---- */

static bool has_no_threads;

typedef int thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *arg);

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*main)(void *),
                   void *restrict arg)
{
    void *const create = dlsym(RTLD_NEXT, "pthread_create");

    return has_no_threads ? EAGAIN : (*(thread_create *const *)&create)(thread, attributes, main, arg);
}

/* ---- >>cases ---- */

/* Rank 0 can accept some of the ranks, and no more: it reports that long before start_timeout_ms, and so do the ranks to which
 * it can send the error. */
static void short_start_case(const void *arg)
{
    joining joining_ranks[6];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);
    int told = 0, status = -1;

    (void)arg;
    joining_make(joining_ranks, 6, where);
    const pid_t root = fork();
    if (root == 0) {
        coll_comm *comm = NULL;
        files_allow(6);
        const coll_status s = coll_init(&comm, &joining_ranks[0].config);
        const char *const sentence = coll_error(NULL);
        const bool is_right = s == COLL_ERR_SYSTEM && strstr(sentence, "have not come: ") && strstr(sentence, "ulimit -n is ");
        if (!is_right) fprintf(stderr, "%s: rank 0: status %d, %s\n", case_name, (int)s, sentence);
        _exit(!is_right);
    }
    for (int i = 1; i < 6; i++) {
        joining_ranks[i].config.start_timeout_ms = 4500;
        joining_start(&joining_ranks[i]);
    }
    for (int i = 1; i < 6; i++) {
        pthread_join(joining_ranks[i].thread, NULL);
        const bool is_known = strstr(joining_ranks[i].sentence,
                                     "nothing left for another connection: Too many open files") != NULL;
        told += is_known;
        CHECK(joining_ranks[i].status == (is_known ? COLL_ERR_SYSTEM : COLL_ERR_TIMEOUT), "%s: rank %d: status %d, %s", case_name,
              i,
              (int)joining_ranks[i].status, joining_ranks[i].sentence);
        CHECK(!is_known || joining_ranks[i].took_ms < support_scaled(3500), "%s: rank %d took %d ms", case_name, i,
              (int)joining_ranks[i].took_ms);
    }
    CHECK(told > 0 && told < 5, "%s: %d ranks got the error: rank 0 had room for none, or for all", case_name, told);
    CHECK(waitpid(root, &status, 0) == root && status == 0, "%s: rank 0: exit status %d", case_name, status);
    close(held);
}

typedef struct short_rank { joining *joining; pthread_barrier_t *barrier; } short_rank;

static void *short_main(void *at)
{
    const short_rank *r = at;
    joining *g = r->joining;
    int32_t one = 1, sum = 0;

    g->status = coll_init(&g->comm, &g->config);
    pthread_barrier_wait(r->barrier);             /* the world has formed                                     */
    pthread_barrier_wait(r->barrier);             /* no more files                                            */
    if (g->status == COLL_OK) g->status = coll_allreduce(g->comm, &one, &sum, 1, COLL_I32, COLL_SUM);
    snprintf(g->sentence, sizeof g->sentence, "%s", g->comm ? coll_error(g->comm) : coll_error(NULL));
    pthread_barrier_wait(r->barrier);
    if (g->comm) coll_free(g->comm);
    return NULL;
}

/* If a rank has no descriptor to connect to another, the error names that rank, not the other. */
static void short_call_case(const void *arg)
{
    joining joining_ranks[3];
    short_rank ranks[3];
    pthread_barrier_t barrier;
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joining_make(joining_ranks, 3, where);
    for (int i = 0; i < 3; i++) joining_ranks[i].config.tcp.shm_collectives = COLL_OFF;  /* shared memory needs no connections    
                                                                                                              */
    pthread_barrier_init(&barrier, NULL, 4);
    for (int i = 0; i < 3; i++) {
        ranks[i] = (short_rank){ &joining_ranks[i], &barrier };
        CHECK(pthread_create(&joining_ranks[i].thread, NULL, short_main, &ranks[i]) == 0, "%s: no thread", case_name);
    }
    pthread_barrier_wait(&barrier);
    const rlim_t before = files_allow(0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    files_restore(before);
    for (int i = 0; i < 3; i++) {
        pthread_join(joining_ranks[i].thread, NULL);
        const char *const cause = strstr(joining_ranks[i].sentence, "): ");
        CHECK(joining_ranks[i].status == COLL_ERR_SYSTEM
              && strstr(joining_ranks[i].sentence, "has nothing left for a connection to rank ")
              && strstr(joining_ranks[i].sentence, "Too many open files (ulimit -n is "), "%s: rank %d: status %d, %s",
                  case_name, i,
              (int)joining_ranks[i].status, joining_ranks[i].sentence);
        CHECK(cause && strstr(joining_ranks[0].sentence, cause), "%s: rank %d says %s, and rank 0 %s", case_name, i,
              joining_ranks[i].sentence, joining_ranks[0].sentence);
    }
    close(held);
}

static rlim_t files_before;

static void more_files(void *context, coll_log_level level, const char *line)
{
    (void)context, (void)level;
    if (strstr(line, "cannot accept connections") && strstr(line, "Too many open files")) files_restore(files_before);
}

/* If a rank has no descriptors left to accept others in a call, it logs that, and goes on as soon as it has some. */
static void short_lock_case(const void *arg)
{
    joining joining_ranks[2];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);
    int status = -1;

    (void)arg;
    joining_make(joining_ranks, 2, where);
    joining_ranks[0].config.tcp.shm_collectives = joining_ranks[1].config.tcp.shm_collectives = COLL_OFF;
    joining_ranks[1].config.log = more_files, joining_ranks[1].config.liveness_timeout_ms = -1; /* connected to in calls only */
    const pid_t other = fork();
    if (other == 0) {
        coll_comm *comm = NULL;
        int32_t from[2] = { 100, 101 }, to[2], sum = 1;
        bool is_good = coll_init(&comm, &joining_ranks[1].config) == COLL_OK;
        files_before = files_allow(0);
        is_good = is_good && coll_alltoall(comm, from, to, 1, COLL_I32) == COLL_OK && to[0] == 1 && to[1] == 101;
        is_good = is_good && coll_alltoall(comm, from, to, 1, COLL_I32) == COLL_OK;
        is_good = is_good && coll_allreduce(comm, &sum, &sum, 1, COLL_I32, COLL_SUM) == COLL_OK && sum == 2;
        _exit(!is_good || files_allow(0) != files_before || coll_free(comm) != COLL_OK);
    }
    joining_start(&joining_ranks[0]);
    expect_world(joining_ranks, 1);
    CHECK(waitpid(other, &status, 0) == other && status == 0, "%s: rank 1: exit status %d", case_name, status);
    close(held);
}

/* One that may open so many more files as coll_shrink begins: it goes on, or says what it lacks. */
static void short_shrink_case(const void *arg)
{
    joining joining_ranks[3];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);
    pid_t pids[3];
    int status = -1;

    joining_make(joining_ranks, 3, where);
    for (int i = 0; i < 3; i++) {
        joining_ranks[i].config.log = NULL, joining_ranks[i].config.log_level = COLL_LOG_NONE;
        joining_ranks[i].config.tcp.shm_collectives = -1, joining_ranks[i].config.start_timeout_ms = 4000;
        if ((pids[i] = fork()) != 0) continue;
        coll_comm *comm = NULL, *fresh = NULL;
        const bool is_good = coll_init(&comm, &joining_ranks[i].config) == COLL_OK;
        if (i == 2) _exit(!is_good);              /* it dies, and the barrier of the others fails             */
        while (is_good && coll_barrier(comm) == COLL_OK) continue;
        const rlim_t more = *(const rlim_t *)arg;
        if (i == 1) files_allow(more);
        const coll_status shrunk = coll_shrink(comm, &fresh);
        const char *const sentence = shrunk ? coll_error(comm) : "";
        const bool is_said = shrunk == COLL_OK || i == 0
            || strstr(sentence, "Too many open files") != NULL;
        if (!is_said) fprintf(stderr, "%s: status %d, \"%s\"\n", case_name, (int)shrunk, sentence);
        _exit(!is_good || !is_said);
    }
    for (int i = 0; i < 3; i++)
        CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "%s: rank %d: exit status %d", case_name, i, status);
    close(held);
}

/* Rank 1 of 4 can start no thread for heartbeats, as it starts, or in coll_shrink after rank 3 has died.  It reports that, and
 * the others go on without it, sooner than they would take it for silent. */
static void no_thread_case(const void *arg)
{
    const bool is_late = *(const bool *)arg;
    joining joining_ranks[4];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);
    pid_t pids[4];
    int status = -1;

    joining_make(joining_ranks, 4, where);
    for (int i = 0; i < 4; i++) {
        joining_ranks[i].config.log = NULL, joining_ranks[i].config.log_level = COLL_LOG_NONE;
        joining_ranks[i].config.liveness_timeout_ms = 8000;
        if ((pids[i] = fork()) != 0) continue;
        coll_comm *comm = NULL, *next = NULL;
        has_no_threads = i == 1 && !is_late;
        coll_status s = coll_init(&comm, &joining_ranks[i].config);
        bool is_good = (s == COLL_OK) == !has_no_threads;
        if (s == COLL_OK && i == 3) _exit(0);     /* it dies                                                  */
        has_no_threads = i == 1;
        while (s == COLL_OK) {
            while ((s = coll_barrier(comm)) == COLL_OK && coll_size(comm) > 2) continue;
            if (s == COLL_OK) break;              /* ranks 0 and 2 are left                                   */
            next = NULL;
            s = coll_shrink(comm, &next);
            if (s == COLL_OK) coll_free(comm), comm = next;
        }
        const char *const sentence = s == COLL_OK ? "" : coll_error(comm);
        is_good = is_good && (i == 1 ? s == COLL_ERR_SYSTEM && strstr(sentence, "no thread for heartbeats: ") : s == COLL_OK);
        if (i == 1 && comm) is_good = is_good && coll_shrink(comm, &next) < 0;     /* the others have gone on         */
        if (!is_good) fprintf(stderr, "%s: rank %d: status %d, \"%s\"\n", case_name, i, (int)s, sentence);
        if (comm) coll_free(comm);                /* if it ended without, rank 2 might lose rank 0            */
        _exit(!is_good);
    }
    const int64_t began = coll__now();
    for (int i = 0; i < 4; i++)
        CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "%s: rank %d: exit status %d", case_name, i, status);
    const int took_ms = (int)((coll__now() - began) / COLL__MS);
    CHECK(took_ms < support_scaled(7000), "%s: took %d ms", case_name, took_ms);
    close(held);
}

/* ---- >>main ---- */

int main(void)
{
    joining_begin();
    world = "shortages";
    run_case_within(CASE_SECONDS, short_start_case, NULL, "too few files to start");
    run_case_within(CASE_SECONDS, short_call_case, NULL, "too few files to connect");
    run_case_within(CASE_SECONDS, short_lock_case, NULL, "too few files to be connected to");
    for (rlim_t more = 0; more < 10; more++) {
        char name[60];
        snprintf(name, sizeof name, "%d files to shrink", (int)more);
        run_case_within(CASE_SECONDS, short_shrink_case, &more, name);
    }
    for (int is_late = 0; is_late < 2; is_late++) {
        const bool arg = is_late;
        run_case_within(CASE_SECONDS, no_thread_case, &arg, is_late ? "no thread to shrink" : "no thread to start");
    }
    return CHECK_DONE();
}
