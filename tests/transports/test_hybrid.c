/* test_hybrid.c - ranks that are threads of several processes: each case is a world of forked processes that bring one or more
 * ranks each.  (The other tests check every call in such a world, as world "hybrid".)
 *
 *     test_hybrid [PART,...]               PART: calls, sleep, deaths, start, spawn, leaks */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include <dirent.h>

enum { PROCESSES_MOST = 4, RANKS_MOST = 8, ELEMENTS = 3000, LONG_ELEMENTS = 200000, LIMIT_SECONDS = 60, NOTICE_MS = 8000 };

/* How many ranks each process brings. */
typedef struct layout {
    const char *name;
    int processes, counts[PROCESSES_MOST];
} layout;

static const layout layouts[] = {
    { "3 + 3", 2, { 3, 3 } },
    { "1 + 2 + 4", 3, { 1, 2, 4 } },
    { "1 + 1 + 1", 3, { 1, 1, 1 } },
    { "5 + 1", 2, { 5, 1 } },
};

/* The results of each rank, in memory that all processes share. */
typedef struct record {
    coll_status status;
    int         failed, wrong;                    /* the rank that its error names; number of failed checks */
    int64_t     knew_ms;
    char        sentence[512];
} record;

static struct shared {
    record ranks[RANKS_MOST];
    int    ready;
} *shared;

static int size_of(const layout *l)
{
    int size = 0;
    for (int i = 0; i < l->processes; i++) size += l->counts[i];
    return size;
}

static int first_of(const layout *l, int process)
{
    int first = 0;
    for (int i = 0; i < process; i++) first += l->counts[i];
    return first;
}

/* ---- >>processes ---- */

typedef int worker_fn(coll_comm *comm, void *arg);

typedef struct rank_thread { pthread_t thread; coll_comm *comm; worker_fn *worker; void *arg; } rank_thread;

static void *rank_main(void *at)
{
    rank_thread *r = at;
    record *own = &shared->ranks[coll_rank(r->comm)];

    own->wrong += r->worker(r->comm, r->arg) != 0;
    coll_free(r->comm);
    return NULL;
}

/* In a process: open the communicators of its ranks, and run the worker on each. */
static int process_main(const coll_config *config, int count, worker_fn *worker, void *arg)
{
    rank_thread ranks[RANKS_MOST];
    coll_comm *comms[RANKS_MOST] = { 0 };
    const coll_status status = coll_init_threads(count, comms, config);

    if (status) return fprintf(stderr, "%s: ranks from %d: %s\n", case_name, config->rank, coll_error(NULL)), 1;
    for (int i = 0; i < count; i++) {
        ranks[i] = (rank_thread){ .comm = comms[i], .worker = worker, .arg = arg };
        if (pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i])) return 1;
    }
    for (int i = 0; i < count; i++) pthread_join(ranks[i].thread, NULL);
    return 0;
}

/* Start the processes of a layout. */
static void start_world(const layout *l, const coll_config *base, const char *address, worker_fn *worker, void *arg, pid_t *pids)
{
    memset(shared, 0, sizeof *shared);
    for (int p = 0; p < l->processes; p++) {
        coll_config config = base ? *base : (coll_config){ 0 };
        config.rank = first_of(l, p);
        config.size = size_of(l);
        config.address = address;
        if (!config.start_timeout_ms) config.start_timeout_ms = 20000;
        if ((pids[p] = fork()) != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        exit(process_main(&config, l->counts[p], worker, arg));
    }
}

static void await_process(pid_t pid, int process)
{
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "%s: process %d ended with %d", case_name, process, status);
}

/* All ranks run the worker, which returns 0. */
static void run_world(const layout *l, const coll_config *base, worker_fn *worker, void *arg)
{
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    pid_t pids[PROCESSES_MOST];

    start_world(l, base, address, worker, arg, pids);
    for (int p = 0; p < l->processes; p++) await_process(pids[p], p);
    for (int i = 0; i < size_of(l); i++) CHECK(shared->ranks[i].wrong == 0, "%s: rank %d", case_name, i);
    close(port);
}

/* In a worker: one condition that must hold. */
#define MUST(condition)                                                                                                       \
    do {                                                                                                                      \
        if (!(condition)) return fprintf(stderr, "%s:%d: rank %d: %s: %s\n", __FILE__, __LINE__, coll_rank(comm), #condition, \
                                         coll_error(comm)), 1;                                                                \
    } while (0)

/* ---- >>calls ---- */

/* A sum of floats whose last bits depend on the grouping: equal on all ranks, and near the true one. */
static int check_floats(coll_comm *comm, size_t count)
{
    const int me = coll_rank(comm), size = coll_size(comm);
    float *in = support_need(calloc(count, sizeof *in)), *out = support_need(malloc(count * sizeof *out));
    uint64_t hash = 7, hashes[RANKS_MOST];
    double worst = 0;

    for (size_t i = 0; i < count; i++) in[i] = 1.0f / (float)(1 + (i * 7 + (size_t)me * 13) % 101);
    MUST(coll_allreduce(comm, in, out, count, COLL_F32, COLL_SUM) == COLL_OK);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        double sum = 0;
        memcpy(&bits, &out[i], sizeof bits);
        hash = support_mix(hash ^ bits);
        for (int r = 0; r < size; r++) sum += 1.0 / (double)(1 + (i * 7 + (size_t)r * 13) % 101);
        worst = fmax(worst, fabs(sum - (double)out[i]) / sum);
    }
    MUST(worst < 1e-6);
    MUST(coll_allgather(comm, &hash, hashes, 1, COLL_U64) == COLL_OK);
    for (int r = 0; r < size; r++) MUST(hashes[r] == hash);
    free(in);
    free(out);
    return 0;
}

/* Blocks that name both their ends, sent everywhere at once. */
static int check_exchange(coll_comm *comm, size_t count)
{
    const int me = coll_rank(comm), size = coll_size(comm);
    uint32_t *out = support_need(calloc((size_t)size * count, 4)), *in = support_need(malloc((size_t)size * count * 4));

    for (int to = 0; to < size; to++)
        for (size_t i = 0; i < count; i++) out[(size_t)to * count + i] = support_word(me, to, 1, i);
    MUST(coll_alltoall(comm, out, in, count, COLL_U32) == COLL_OK);
    for (int from = 0; from < size; from++)
        MUST(support_message_is_right(in + (size_t)from * count, from, me, 1, count));
    free(out);
    free(in);
    return 0;
}

/* Every rank sends to every other, and all receive from any rank. */
static int check_messages(coll_comm *comm)
{
    const int me = coll_rank(comm), size = coll_size(comm);
    coll_request *sends[RANKS_MOST] = { 0 };
    uint32_t *out[RANKS_MOST] = { 0 }, *in = support_need(malloc(ELEMENTS * sizeof *in));

    for (int to = 0; to < size; to++) {
        if (to == me) continue;
        out[to] = support_message_make(me, to, 5, ELEMENTS);
        MUST(coll_isend(comm, out[to], (to + me) % 2 ? ELEMENTS : 10, COLL_U32, to, 5, &sends[to]) == COLL_OK);
    }
    for (int i = 1; i < size; i++) {
        coll_request *r = NULL;
        int source = -1, tag = -1;
        size_t count = 0;
        MUST(coll_irecv(comm, in, ELEMENTS, COLL_U32, COLL_ANY_SOURCE, 5, &r) == COLL_OK && coll_wait(r) == COLL_OK);
        MUST(coll_received(r, &source, &tag, &count) == COLL_OK && count == ((source + me) % 2 ? ELEMENTS : 10));
        MUST(support_message_is_right(in, source, me, 5, count));
        coll_request_free(r);
    }
    for (int to = 0; to < size; to++) {
        MUST(coll_wait(sends[to]) == COLL_OK);
        coll_request_free(sends[to]);
        free(out[to]);
    }
    free(in);
    return 0;
}

/* Ranks of one process exchange through its memory, those of a host through shared memory, if they have it, all others through
 * messages. */
static int check_carrier(coll_comm *comm, const char *word, bool has_word)
{
    int32_t n = 0;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = &n, .count = 1, .type = COLL_I32 };
    char text[640];

    MUST(coll_explain(comm, &call, text, sizeof text) > 0 && (strstr(text, word) != NULL) == has_word);
    return 0;
}

static int prepared_and_pending(coll_comm *comm)
{
    const int size = coll_size(comm);
    coll_request *prepared = NULL, *second = NULL;
    int32_t a = 1, b = 2, sum_a = 0, sum_b = 0;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &a, .recv = &sum_a, .count = 1, .type = COLL_I32 };

    MUST(coll_prepare(comm, &call, &prepared) == COLL_OK);
    for (int i = 0; i < 5; i++) {
        a = i + 1;
        MUST(coll_restart(prepared) == COLL_OK && coll_iallreduce(comm, &b, &sum_b, 1, COLL_I32, COLL_SUM, &second) == COLL_OK);
        MUST(coll_wait(second) == COLL_OK && coll_wait(prepared) == COLL_OK && sum_a == size * a && sum_b == size * b);
        coll_request_free(second);
    }
    coll_request_free(prepared);
    return 0;
}

static int check_all(coll_comm *comm)
{
    const size_t counts[] = { 1, 17, ELEMENTS, LONG_ELEMENTS };
    int wrong = 0;

    for (size_t i = 0; i < sizeof counts / sizeof *counts && !wrong; i++) wrong = check_floats(comm, counts[i]);
    return wrong || check_exchange(comm, 1) || check_exchange(comm, ELEMENTS) || check_messages(comm)
        || prepared_and_pending(comm);
}

typedef struct calls { const layout *l; bool has_domain; } calls;     /* has_domain: all ranks share the memory of the host */

static int calls_worker(coll_comm *comm, void *arg)
{
    const calls *of = arg;
    const layout *l = of->l;
    const int me = coll_rank(comm), size = coll_size(comm);
    coll_comm *local = NULL, *odd = NULL, *host = NULL, *again = NULL;
    int process = 0, list[RANKS_MOST];

    while (me >= first_of(l, process) + l->counts[process]) process++;
    for (int i = 0; i < l->counts[process]; i++) list[i] = first_of(l, process) + i;
    MUST(size == size_of(l) && coll_local_size(comm) == size && coll_local_rank(comm) == me);
    MUST(check_carrier(comm, "own way", of->has_domain) == 0 && check_all(comm) == 0);
    MUST(coll_create(comm, list, l->counts[process], 3, &local) == COLL_OK && check_all(local) == 0);
    MUST(check_carrier(local, "own way", of->has_domain || l->counts[process] > 1) == 0);
    MUST(coll_split(comm, me % 2, -me, &odd) == COLL_OK && check_all(odd) == 0);
    MUST(coll_split_host(comm, &host) == COLL_OK && coll_size(host) == size && check_all(host) == 0);
    coll_free(me % 2 ? local : odd);              /* in different orders                                      */
    MUST(coll_dup(host, &again) == COLL_OK && check_floats(again, 100) == 0);
    coll_free(me % 2 ? odd : local);
    coll_free(host);
    MUST(coll_barrier(again) == COLL_OK && check_all(comm) == 0);
    coll_free(again);
    return 0;
}

/* All ranks with all, in each layout, by each way to wait. */
static void calls_case(const void *arg)
{
    const layout *l = arg;
    calls of = { l, false };

    for (int domain = COLL__HAS_DOMAIN ? 0 : -1; domain >= -1; domain--) {
        of.has_domain = domain == 0;
        case_step = "spinning and sleeping";
        run_world(l, &(coll_config){ .tcp = { .shm_collectives = domain } }, calls_worker, &of);
        case_step = "always sleeping, poll";
        run_world(l, &(coll_config){ .spin_us = -1, .tcp = { .io = "poll", .shm_collectives = domain } }, calls_worker, &of);
        case_step = "always spinning";
        run_world(l, &(coll_config){ .spin_us = 200, .tcp = { .shm_collectives = domain } }, calls_worker, &of);
    }
}

/* ---- >>sleep: a missed wake-up costs a second ---- */

enum { ROUNDS = 300 };

/* A token is passed round: through memory within a process, through sockets between them. */
static int token_worker(coll_comm *comm, void *arg)
{
    const int me = coll_rank(comm), size = coll_size(comm);
    const int64_t began = now_ms();
    coll_comm *all = NULL;
    int32_t token = 0;

    (void)arg;
    MUST(coll_dup(comm, &all) == COLL_OK);
    for (int i = 0; i < ROUNDS; i++) {
        const int from = i % 2 ? COLL_ANY_SOURCE : (me + size - 1) % size;
        if (me > 0 || i > 0) MUST(coll_recv(comm, &token, 1, COLL_I32, from, 1) == COLL_OK);
        MUST(token == i * size + (me > 0 ? me - 1 : -1) || (me == 0 && i == 0));
        token = i * size + me;
        MUST(coll_send(comm, &token, 1, COLL_I32, (me + 1) % size, 1) == COLL_OK);
        if (i % 10 == 0) MUST(coll_barrier(all) == COLL_OK);
    }
    if (me == 0) MUST(coll_recv(comm, &token, 1, COLL_I32, size - 1, 1) == COLL_OK);
    MUST(now_ms() - began < ROUNDS * 50);
    coll_free(all);
    return 0;
}

static void sleep_case(const void *arg)
{
    const layout *l = arg;

    run_world(l, &(coll_config){ .spin_us = -1 }, token_worker, NULL);
    run_world(l, &(coll_config){ .spin_us = -1, .tcp = { .shm_collectives = COLL_OFF } }, token_worker, NULL);
    run_world(l, &(coll_config){ .spin_us = -1, .tcp = { .io = "poll" } }, token_worker, NULL);
}

/* ---- >>deaths ---- */

typedef struct death { const layout *layout; int victim; bool is_busy; } death;

/* The remaining ranks go on: in their order, or, if the list was mixed, so that neighbours are not consecutive. */
static int go_on(coll_comm *comm, coll_comm *from, const death *d)
{
    const layout *l = d->layout;
    const int first = first_of(l, d->victim), behind = first + l->counts[d->victim], size = size_of(l) - l->counts[d->victim];
    const int me = coll_rank(comm);
    int32_t named[RANKS_MOST] = { 0 };
    coll_comm *left = NULL;
    int at = 0;

    if (coll_shrink(from, &left)) return fprintf(stderr, "rank %d: %s\n", me, coll_error(from)), 1;
    if (coll_size(left) != size || coll_allgather(left, &me, named, 1, COLL_I32))
        return fprintf(stderr, "rank %d is one of %d, not %d: %s\n", me, coll_size(left), size, coll_error(left)), 1;
    for (int i = 0; i < coll_size(from); i++) {
        const int rank = coll_world_rank(from, i);
        if (rank >= first && rank < behind) continue;
        if (named[at++] != rank)
            return fprintf(stderr, "rank %d: number %d is rank %d, not %d\n", me, at - 1, named[at - 1], rank), 1;
    }
    const int wrong = check_all(left);
    coll_free(left);
    return wrong;
}

/* Wait for the end of the world: in sums one after the other; or, not busy, half of the ranks of a process in a collective of
 * their own, without a dying rank, and the others in one with all.  Then go on with the remaining ranks. */
static int death_worker(coll_comm *comm, void *arg)
{
    const death *d = arg;
    const layout *l = d->layout;
    const int me = coll_rank(comm);
    record *own = &shared->ranks[me];
    coll_comm *local = NULL, *mixed = NULL;
    int process = 0, list[RANKS_MOST];
    int32_t n[1000] = { 1 };

    while (me >= first_of(l, process) + l->counts[process]) process++;
    for (int i = 0; i < l->counts[process]; i++) list[i] = first_of(l, process) + i;
    MUST(coll_create(comm, list, l->counts[process], 3, &local) == COLL_OK && coll_split(comm, 0, me % 2, &mixed) == COLL_OK
         && coll_barrier(comm) == COLL_OK);
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
    coll_comm *const where = !d->is_busy && me % 2 && l->counts[process] > 1 ? local : comm;
    do {
        own->status = coll_allreduce(where, n, n, d->is_busy ? 1000 : 1, COLL_I32, COLL_MAX);
    } while (own->status == COLL_OK && d->is_busy);
    own->knew_ms = now_ms();
    if (!coll_failed_ranks(comm, &own->failed, 1)) own->failed = -1;
    snprintf(own->sentence, sizeof own->sentence, "%s", coll_error(where));
    MUST(coll_barrier(comm) == own->status && coll_barrier(local) == own->status);
    MUST(go_on(comm, d->is_busy ? mixed : comm, d) == 0);
    coll_free(mixed);
    coll_free(local);
    return 0;
}

/* One process is killed: all ranks of the others name the same rank of it, and go on without it. */
static void death_case(const void *arg)
{
    death d = *(const death *)arg;
    const layout *l = d.layout;
    const int first = first_of(l, d.victim), behind = first + l->counts[d.victim], size = size_of(l), one = first ? 0 : behind;
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    pid_t pids[PROCESSES_MOST];
    int64_t slowest = 0;

    start_world(l, NULL, address, death_worker, &d, pids);
    while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < size) usleep(1000);
    const int64_t killed = now_ms();
    kill(pids[d.victim], SIGKILL);
    for (int p = 0; p < l->processes; p++) {
        if (p == d.victim) waitpid(pids[p], NULL, 0);
        else await_process(pids[p], p);
    }
    for (int i = 0; i < size; i++) {
        const record *r = &shared->ranks[i];
        if (i >= first && i < behind) continue;
        CHECK(r->wrong == 0 && r->status == COLL_ERR_PEER && r->failed >= first && r->failed < behind
              && r->failed == shared->ranks[one].failed && names_rank(r->sentence, r->failed),
              "%s: rank %d: %d, names %d: %s", case_name, i, (int)r->status, r->failed, r->sentence);
        if (r->knew_ms - killed > slowest) slowest = r->knew_ms - killed;
    }
    CHECK(slowest < support_scaled(NOTICE_MS), "%s: the slowest survivor knew after %d ms", case_name, (int)slowest);
    close(port);
}

static void run_deaths(void)
{
    static const layout three = { "2 + 3 + 2", 3, { 2, 3, 2 } };
    char name[80];

    for (int victim = 0; victim < 3; victim++)
        for (int is_busy = 0; is_busy < 2; is_busy++) {
            const death d = { &three, victim, is_busy };
            snprintf(name, sizeof name, "process %d of %s is killed, %s", victim, three.name, is_busy ? "busy" : "waiting");
            run_case_within(LIMIT_SECONDS, death_case, &d, name);
        }
}

/* One rank aborts: all others report it, those that wait in memory and those that wait in sockets. */
static int abort_worker(coll_comm *comm, void *arg)
{
    const int me = coll_rank(comm);

    (void)arg;
    const coll_status begun = coll_barrier(comm);     /* some may not have completed when rank 2 has          */
    MUST(begun == COLL_OK || (me != 2 && begun == COLL_ERR_ABORTED));
    if (me == 2) MUST(coll_abort(comm, "enough of it") == COLL_OK);
    if (me != 2) MUST(coll_barrier(comm) == COLL_ERR_ABORTED);
    MUST(coll_barrier(comm) == COLL_ERR_ABORTED && strstr(coll_error(comm), "rank 2 gave up: enough of it"));
    return 0;
}

static void abort_case(const void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) run_world(&layouts[i], NULL, abort_worker, NULL);
}

/* ---- >>start ---- */

/* A process does not start: the sentence reaches the thread that called, whichever thread of the process has detected it. */
static void missing_case(const void *arg)
{
    char address[64];
    const int port = support_reserve_port(address, sizeof address), first = *(const int *)arg;
    const coll_config config = { .rank = first, .size = 6, .address = address, .start_timeout_ms = 700 };
    coll_comm *comms[2] = { NULL, NULL };
    const coll_status status = coll_init_threads(2, comms, &config);

    const char *word = first ? "could not reach rank 0" : "2-5";
    CHECK(status == COLL_ERR_TIMEOUT && !comms[0] && !comms[1] && strstr(coll_error(NULL), word),
          "%s: %d: %s", case_name, (int)status, coll_error(NULL));
    close(port);
}

static int nothing_worker(coll_comm *comm, void *arg) { (void)comm, (void)arg; return 0; }

/* The result of a process: another has its rank; rank 3 is missing; or something else, which is printed. */
typedef enum fate { IS_TWICE = 10, RANK_3_IS_MISSING = 11, SOMETHING_ELSE = 12 } fate;

static fate overlap_fate(const char *address, int rank)
{
    const coll_config config = { .rank = rank, .size = 4, .address = address, .start_timeout_ms = 3000 };
    coll_comm *comms[2] = { NULL, NULL };
    const coll_status status = coll_init_threads(2, comms, &config);

    if (status == COLL_ERR_PROTOCOL && strstr(coll_error(NULL), "same rank")) return IS_TWICE;
    if (status == COLL_ERR_TIMEOUT && strstr(coll_error(NULL), "not come: 3")) return RANK_3_IS_MISSING;
    fprintf(stderr, "%s: rank %d: %d: %s\n", case_name, rank, (int)status, coll_error(NULL));
    return SOMETHING_ELSE;
}

/* Two processes that both bring rank 1: the second to connect gets the error, and no rank waits for ever. */
static void overlap_case(const void *arg)
{
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    const pid_t pid = fork();
    int status = -1;

    (void)arg;
    if (pid == 0) _exit(overlap_fate(address, 0));
    const fate ours = overlap_fate(address, 1);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "%s: the other process: %d", case_name, status);
    const int theirs = WEXITSTATUS(status);
    CHECK((ours == IS_TWICE && theirs == RANK_3_IS_MISSING) || (ours == RANK_3_IS_MISSING && theirs == IS_TWICE),
          "%s: %d and %d", case_name, (int)ours, theirs);
    close(port);
}

/* ---- >>spawn: the environment of launchers ---- */

static int spawned(coll_comm *comm, void *arg)
{
    int32_t sum = coll_rank(comm);

    (void)arg;
    MUST(coll_allreduce(comm, &sum, &sum, 1, COLL_I32, COLL_SUM) == COLL_OK);
    return coll_size(comm) == 6 && sum == 15 ? 0 : 1;
}

/* Three processes that spawn two ranks each, identified by ranks or by processes. */
static void spawn_case(const void *arg)
{
    const char *const *names = arg;
    const bool counts_ranks = !strcmp(names[0], "COLL_RANK");
    char address[64], number[16];
    const int port = support_reserve_port(address, sizeof address);
    pid_t pids[3];

    for (int p = 0; p < 3; p++) {
        if ((pids[p] = fork()) != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        clearenv();
        setenv("COLL_ADDR", address, 1);
        snprintf(number, sizeof number, "%d", counts_ranks ? 2 * p : p);
        setenv(names[0], number, 1);
        setenv(names[1], counts_ranks ? "6" : "3", 1);
        setenv("COLL_START_TIMEOUT_MS", "20000", 1);
        exit(coll_spawn(2, spawned, NULL, NULL) != 0);
    }
    for (int p = 0; p < 3; p++) await_process(pids[p], p);
    close(port);
}

/* ---- >>leaks ---- */

static int open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int count = 0;

    while (d && readdir(d)) count++;
    if (d) closedir(d);
    return count;
}

/* Nothing stays open, neither after a world nor after a failed start. */
static void leak_case(const void *arg)
{
    const int four = 4, before = open_descriptors();

    (void)arg;
    for (int i = 0; i < 3; i++) {
        CHECK(support_run("hybrid", 6, nothing_worker, NULL) == 0, "%s: a world", case_name);
        missing_case(&four);
        CHECK(open_descriptors() == before, "%s: %d descriptors, before %d", case_name, open_descriptors(), before);
    }
}

int main(int argc, char **argv)
{
    static const char *const launchers[][2] = { { "COLL_RANK", "COLL_SIZE" }, { "PMI_RANK", "PMI_SIZE" },
                                                { "RANK", "WORLD_SIZE" } };
    static const int firsts[] = { 0, 4 };
    const char *parts = argc > 1 ? argv[1] : NULL;

    cases_begin();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED || shared == MAP_FAILED) return perror("mmap"), 1;
    world = "hybrid";
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (support_listed(parts, "calls")) run_case_within(LIMIT_SECONDS, calls_case, &layouts[i], layouts[i].name);
        if (support_listed(parts, "sleep")) run_case_within(LIMIT_SECONDS, sleep_case, &layouts[i], "sleeping");
    }
    if (support_listed(parts, "deaths")) run_deaths();
    if (support_listed(parts, "deaths")) run_case_within(LIMIT_SECONDS, abort_case, NULL, "abort");
    for (int i = 0; i < 2 && support_listed(parts, "start"); i++)
        run_case_within(LIMIT_SECONDS, missing_case, &firsts[i], i ? "rank 0 is missing" : "four ranks are missing");
    if (support_listed(parts, "start")) run_case_within(LIMIT_SECONDS, overlap_case, NULL, "two processes with one rank");
    for (int i = 0; i < 3 && support_listed(parts, "spawn"); i++)
        run_case_within(LIMIT_SECONDS, spawn_case, launchers[i], launchers[i][0]);
    if (support_listed(parts, "leaks")) run_case_within(LIMIT_SECONDS, leak_case, NULL, "descriptors");
    return CHECK_DONE();
}
