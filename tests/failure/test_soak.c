/* test_soak - long-lived processes that make world after world over TCP, lose ranks, shrink and go on, while another process
 * opens unauthenticated connections.
 *
 *     test_soak [SECONDS [SECURITY]]     5 seconds in each mode of security, or so many in one (tls, key+check, ...)
 *                                        COLL_TEST_SEED=... replays the plans; COLL_TEST_TALK=1 prints events with their times
 *
 * Eight processes make a world, numbered anew each time, and call collectives whose results are checked.  By a seeded plan up
 * to three of them die: before a call, at any moment, inside coll_shrink, or stopped for good.  The survivors must detect it
 * within a bound, shrink to a world with every living rank, and go on.  A rank may also be stopped at any moment and continued
 * when the others have dropped it: its calls must then fail, and the others go on while it is stopped, and keep what they had
 * received.  Five of the processes never die, so that a leak in them would grow with the number of worlds: their heap, files
 * and threads must not grow.  Another process opens unauthenticated connections: idle ones, floods, random bytes, and ranks
 * with another key. */
#define _GNU_SOURCE
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

#include <dirent.h>
#include <malloc.h>
#include <poll.h>

enum {
    SLOTS = 8, MORTALS = 3, OPS = 40, COUNT_MOST = 1 << 14, KEPT = 50000, BACK_MOST_MS = 1500,
    LIVENESS_MS = 1500, KILLED_MS = 2500, STOPPED_MS = LIVENESS_MS + LIVENESS_MS / 2 + 2500, SHRINK_MS = 3 * LIVENESS_MS + 3000,
    WORLD_SECONDS = 60, HEAP_GROWTH = 256 << 10, WARM_WORLDS = 4
};

typedef enum fate { LIVES, DIES_BEFORE_CALL, DIES_AT_TIME, DIES_IN_SHRINK, STOPS, COMES_BACK, FATE_COUNT } fate;

static const char *const fate_names[FATE_COUNT] = {
    "lives", "dies before a call", "dies at a moment", "dies in coll_shrink", "stops", "is stopped at a moment, and continued"
};

/* The plan of one process in a world; all processes know all plans. */
typedef struct role { int slot; fate fate; int call; unsigned moment_us; } role;
typedef struct plan { uint64_t number; role roles[SLOTS]; } plan;         /* by rank                           */

/* In memory that all processes share. */
typedef struct board {
    int64_t died_at[SLOTS];                       /* ms, by slot, in the present world; 0: lives              */
    int64_t given_up_at[SLOTS], back_at[SLOTS];   /* a rank that is stopped and continued                     */
    int     has_ended[SLOTS];
    pid_t   pids[SLOTS];
    char    address[96];
    int     is_over, intruders, attempts;
    uint64_t number;                              /* of the present world                                     */
} board;

/* A process reports this when a world is over. */
typedef struct report {
    int  failures, calls, shrinks, files, threads;
    long detected_ms, shrunk_ms;                  /* the longest                                              */
    long heap;                                    /* bytes in use, with what malloc keeps at hand for each thread */
} report;

/* A process in a world. */
typedef struct life {
    const plan *plan;
    int     rank;                                 /* in the first communicator                                */
    coll_comm *comm;
    int     call;
    int     members[SLOTS];                       /* first ranks, by present ones                             */
    bool    is_doomed;                            /* a thread will kill or stop us                            */
    pthread_t doom;
    report  report;
    uint32_t *send, *recv, *kept;                 /* kept: received right after a failure                     */
    bool    has_kept;
    int     kept_call, kept_size;
} life;

static board *shared;
static uint64_t seed;
static const char *security;
static const char *talk;                          /* COLL_TEST_TALK: print events with their times            */
static int my_rank;
static char last_lines[4][256];
static int line_count;

static void remember_line(void *context, coll_log_level level, const char *line)
{
    (void)context, (void)level;
    if (talk) fprintf(stderr, "%7.3f rank %d: %s\n", (double)(now_ms() % 1000000) * 1e-3, my_rank, line);
    snprintf(last_lines[__atomic_fetch_add(&line_count, 1, __ATOMIC_RELAXED) % 4], sizeof *last_lines, "%s", line);
}

/* ---- >>plans ---- */

static plan plan_of(uint64_t number)
{
    uint64_t state = support_mix(seed ^ support_mix(number));
    plan p = { .number = number };

    for (int i = 0; i < SLOTS; i++) {
        const int j = (int)(support_random(&state) % (unsigned)(i + 1));
        p.roles[i] = p.roles[j];
        p.roles[j] = (role){ .slot = i };
    }
    for (int i = 0; i < SLOTS; i++) {
        role *r = &p.roles[i];
        const uint64_t dice = support_random(&state) % 16;
        if (r->slot < SLOTS - MORTALS) continue;
        r->fate = dice < 4 ? LIVES : dice < 8 ? DIES_BEFORE_CALL : dice < 11 ? DIES_AT_TIME : dice < 14 ? DIES_IN_SHRINK
                : dice < 15 ? STOPS : COMES_BACK;
        r->call = (int)(support_random(&state) % OPS);
        r->moment_us = (unsigned)(support_random(&state) % (r->fate == DIES_IN_SHRINK ? 20000 : 60000));
    }
    return p;
}

/* ---- >>deaths ---- */

static void die(int slot, int signal)
{
    __atomic_store_n(&shared->died_at[slot], now_ms(), __ATOMIC_SEQ_CST);
    if (talk) fprintf(stderr, "%7.3f rank %d dies\n", (double)(now_ms() % 1000000) * 1e-3, my_rank);
    raise(signal);
}

static void *doom(void *at)
{
    const role *r = at;
    const struct timespec span = { 0, (long)r->moment_us * 1000 };

    nanosleep(&span, NULL);
    die(r->slot, r->fate == COMES_BACK ? SIGSTOP : SIGKILL);
    __atomic_store_n(&shared->back_at[r->slot], now_ms(), __ATOMIC_SEQ_CST);
    return NULL;
}

static void be_doomed(life *l)
{
    if (l->is_doomed) return;
    l->is_doomed = pthread_create(&l->doom, NULL, doom, (void *)(uintptr_t)&l->plan->roles[l->rank]) == 0;
}

static int64_t death_of(const life *l, int rank)
{
    return __atomic_load_n(&shared->died_at[l->plan->roles[rank].slot], __ATOMIC_SEQ_CST);
}

/* ---- >>calls ---- */

#define SAY(...)                                                                                                         \
    do {                                                                                                                 \
        char line[400];                                                                                                  \
        snprintf(line, sizeof line, __VA_ARGS__);                                                                        \
        if (talk) remember_line(NULL, COLL_LOG_INFO, line);                                                              \
    } while (0)

#define EXPECT(l, condition, ...)                                                                                        \
    do {                                                                                                                 \
        if (!(condition)) {                                                                                              \
            (l)->report.failures++;                                                                                      \
            char what[400];                                                                                              \
            snprintf(what, sizeof what, __VA_ARGS__);                                                                    \
            fprintf(stderr, "failed: seed %llu, %s, world %llu, rank %d, call %d: %s\n", (unsigned long long)seed,       \
                    security, (unsigned long long)(l)->plan->number, (l)->rank, (l)->call, what);                        \
        }                                                                                                                \
    } while (0)

static uint32_t value(int call, int rank, size_t at)
{
    return (uint32_t)(((unsigned)call * 5 + (unsigned)rank * 7 + at * 3) % 16);
}

static uint32_t sum(const life *l, int size, size_t at)
{
    uint32_t all = 0;
    for (int r = 0; r < size; r++) all += value(l->call, l->members[r], at);
    return all;
}

static coll_status call_sum(life *l, size_t count, coll_type wire)
{
    const int size = coll_size(l->comm);
    float *send = (float *)(void *)l->send, *recv = (float *)(void *)l->recv;
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++) send[i] = (float)value(l->call, l->rank, i);
    const coll_status status = coll_allreduce_mixed(l->comm, send, recv, count, COLL_F32, wire, COLL_SUM);
    for (size_t i = 0; status == COLL_OK && i < count; i++) wrong += recv[i] != (float)sum(l, size, i);
    EXPECT(l, wrong == 0, "allreduce of %zu: %zu elements are wrong", count, wrong);
    return status;
}

static coll_status call_scatter(life *l, size_t count)
{
    const int size = coll_size(l->comm), me = coll_rank(l->comm);
    size_t wrong = 0;

    for (size_t i = 0; i < count * (size_t)size; i++) l->send[i] = value(l->call, l->rank, i);
    const coll_status status = coll_reduce_scatter(l->comm, l->send, l->recv, count, COLL_U32, COLL_SUM);
    for (size_t i = 0; status == COLL_OK && i < count; i++) wrong += l->recv[i] != sum(l, size, (size_t)me * count + i);
    EXPECT(l, wrong == 0, "reduce_scatter of %zu: %zu elements are wrong", count, wrong);
    return status;
}

static coll_status call_exchange(life *l, size_t count)
{
    const int size = coll_size(l->comm), me = coll_rank(l->comm);
    size_t wrong = 0;

    for (size_t i = 0; i < count * (size_t)size; i++) l->send[i] = value(l->call, l->rank, i);
    const coll_status status = coll_alltoall(l->comm, l->send, l->recv, count, COLL_U32);
    for (size_t i = 0; status == COLL_OK && i < count * (size_t)size; i++)
        wrong += l->recv[i] != value(l->call, l->members[i / count], (size_t)me * count + i % count);
    EXPECT(l, wrong == 0, "alltoall of %zu: %zu elements are wrong", count, wrong);
    return status;
}

static coll_status call_gather(life *l, size_t count)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++) l->send[i] = value(l->call, l->rank, i);
    const coll_status status = coll_allgather(l->comm, l->send, l->recv, count, COLL_U32);
    for (size_t i = 0; status == COLL_OK && i < count * (size_t)coll_size(l->comm); i++)
        wrong += l->recv[i] != value(l->call, l->members[i / count], i % count);
    EXPECT(l, wrong == 0, "allgather of %zu: %zu elements are wrong", count, wrong);
    return status;
}

static coll_status call_broadcast(life *l, size_t count)
{
    const int root = l->call % coll_size(l->comm);
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++) l->recv[i] = coll_rank(l->comm) == root ? value(l->call, l->rank, i) : 99;
    const coll_status status = coll_broadcast(l->comm, l->recv, count, COLL_U32, root);
    for (size_t i = 0; status == COLL_OK && i < count; i++) wrong += l->recv[i] != value(l->call, l->members[root], i);
    EXPECT(l, wrong == 0, "broadcast of %zu: %zu elements are wrong", count, wrong);
    return status;
}

static coll_status call_ring(life *l, size_t count)
{
    const int size = coll_size(l->comm), me = coll_rank(l->comm), from = (me + size - 1) % size;
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++) l->send[i] = value(l->call, l->rank, i);
    const coll_status status = coll_sendrecv(l->comm, l->send, count, (me + 1) % size, l->recv, count, from, COLL_U32, 3);
    for (size_t i = 0; status == COLL_OK && i < count; i++) wrong += l->recv[i] != value(l->call, l->members[from], i);
    EXPECT(l, wrong == 0, "sendrecv of %zu: %zu elements are wrong", count, wrong);
    return status;
}

/* Three at a time, on a communicator made for them. */
static coll_status call_requests(life *l, size_t count)
{
    const int size = coll_size(l->comm);
    coll_request *requests[3] = { NULL, NULL, NULL };
    coll_comm *other = NULL;
    size_t wrong = 0;
    coll_status status = coll_dup(l->comm, &other), over = COLL_OK;

    for (size_t i = 0; i < count; i++) l->recv[i] = value(l->call, l->rank, i);
    const size_t cuts[] = { 0, count / 3, count / 2, count };
    for (int i = 0; i < 3 && status == COLL_OK; i++)
        status = coll_iallreduce(other, l->recv + cuts[i], l->recv + cuts[i], cuts[i + 1] - cuts[i], COLL_U32, COLL_SUM,
                                 &requests[i]);
    if (status == COLL_OK) over = coll_wait_all(3, requests);
    for (int i = 0; i < 3; i++) coll_request_free(requests[i]);
    if (status == COLL_OK) status = over;
    for (size_t i = 0; status == COLL_OK && i < count; i++) wrong += l->recv[i] != sum(l, size, i);
    EXPECT(l, wrong == 0, "three allreduces of %zu: %zu elements are wrong", count, wrong);
    if (other) coll_free(other);
    return status;
}

static coll_status one_call(life *l)
{
    uint64_t state = support_mix(seed ^ l->plan->number * 1000003 ^ (unsigned)l->call);
    const size_t most = (size_t)1 << support_random(&state) % 15;
    const size_t count = 1 + support_random(&state) % most;

    l->report.calls++;
    switch (support_random(&state) % 9) {
    case 0: return call_sum(l, count, COLL_F32);
    case 1: return call_sum(l, count, COLL_BF16);
    case 2: return call_scatter(l, count);
    case 3: return call_exchange(l, count);
    case 4: return call_gather(l, count);
    case 5: return call_broadcast(l, count);
    case 6: return call_ring(l, count);
    case 7: return call_requests(l, count);
    default: return coll_barrier(l->comm);
    }
}

/* ---- >>a rank that is stopped and continued ---- */

/* Was this rank stopped, and continued? */
static bool is_back(const life *l)
{
    return __atomic_load_n(&shared->back_at[l->plan->roles[l->rank].slot], __ATOMIC_SEQ_CST) != 0;
}

/* Is a rank stopped that will be continued, or was it continued less time ago than it was stopped for? */
static int wants_more(const life *l)
{
    for (int r = 0; r < SLOTS; r++) {
        const role *o = &l->plan->roles[r];
        const int64_t died = death_of(l, r), back = __atomic_load_n(&shared->back_at[o->slot], __ATOMIC_SEQ_CST);
        if (o->fate != COMES_BACK || !died || r == l->rank) continue;
        if (!back || !__atomic_load_n(&shared->has_ended[o->slot], __ATOMIC_SEQ_CST) || now_ms() - back < back - died) return 1;
    }
    return 0;
}

/* Receive something that no later call touches. */
static coll_status keep(life *l)
{
    const uint32_t mine = (uint32_t)l->rank;

    for (size_t i = 0; i < KEPT; i++) l->kept[i] = value(l->call, l->rank, i) + mine;
    l->kept_call = l->call;
    l->kept_size = coll_size(l->comm);
    const coll_status status = coll_allreduce(l->comm, l->kept, l->kept, KEPT, COLL_U32, COLL_MAX);
    l->has_kept = status == COLL_OK;
    return status;
}

static void check_kept(life *l)
{
    size_t wrong = 0;

    for (size_t i = 0; l->has_kept && i < KEPT; i++) {
        uint32_t most = 0;
        for (int r = 0; r < l->kept_size; r++) {
            const uint32_t one = value(l->kept_call, l->members[r], i) + (uint32_t)l->members[r];
            if (one > most) most = one;
        }
        wrong += l->kept[i] != most;
    }
    l->has_kept = false;
    EXPECT(l, wrong == 0, "%zu elements received after a failure have changed", wrong);
}

/* ---- >>a process in a world ---- */

/* Calls until the last one, or until one fails.  A rank whose plan is to die, and that lives at the end, dies then. */
static coll_status calls(life *l)
{
    const role *me = &l->plan->roles[l->rank];
    coll_status status = COLL_OK;

    while (status == COLL_OK && l->call < OPS) {
        if (me->fate == DIES_BEFORE_CALL && l->call >= me->call) die(me->slot, SIGKILL);
        if (me->fate == STOPS && l->call >= me->call) {
            die(me->slot, SIGSTOP);
            _exit(1);                             /* continued only to be ended                               */
        }
        if (me->fate == DIES_AT_TIME || me->fate == COMES_BACK) be_doomed(l);
        status = one_call(l);
        l->call++;
    }
    if (status == COLL_OK && me->fate != LIVES && me->fate != COMES_BACK) die(me->slot, SIGKILL);
    for (int more = 1; status == COLL_OK && more; l->call++) {
        more = wants_more(l);
        status = coll_allreduce(l->comm, &more, &more, 1, COLL_I32, COLL_MAX);
        if (status == COLL_OK && more) status = one_call(l);
    }
    if (status == COLL_OK) check_kept(l);
    return status == COLL_OK ? coll_barrier(l->comm) : status;
}

/* A call has failed: another rank must have died, and not long ago. */
static void evaluate_failure(life *l, coll_status status)
{
    const int64_t now = now_ms();
    int64_t first = 0;
    bool is_stop = false;

    for (int r = 0; r < coll_size(l->comm); r++) {
        const fate f = l->plan->roles[l->members[r]].fate;
        const int64_t at = death_of(l, l->members[r]);
        if (at && (!first || at < first)) first = at, is_stop = f == STOPS || f == COMES_BACK;
    }
    if (death_of(l, l->rank)) return;             /* dropped by the others, without its knowledge             */
    EXPECT(l, first != 0, "no rank has died, but: %s", coll_error(l->comm));
    EXPECT(l, status == COLL_ERR_PEER, "status %d: %s", (int)status, coll_error(l->comm));
    if (!first) return;
    const long took = (long)(now - first);
    EXPECT(l, took <= support_scaled(is_stop ? STOPPED_MS : KILLED_MS), "it took %ld ms to detect it: %s", took,
           coll_error(l->comm));
    if (took > l->report.detected_ms && !is_stop) l->report.detected_ms = took;
}

/* All ranks that were alive after coll_shrink had returned must be in the new world.  false: it failed. */
static bool shrink(life *l)
{
    const int64_t began = now_ms();
    const bool was_back = is_back(l);             /* continued before, not meanwhile                          */
    int32_t before[SLOTS], size = coll_size(l->comm);
    bool was_dead[SLOTS];
    coll_comm *next = NULL;

    for (int r = 0; r < size; r++) before[r] = l->members[r], was_dead[r] = death_of(l, before[r]) != 0;
    if (l->plan->roles[l->rank].fate == DIES_IN_SHRINK) be_doomed(l);
    const coll_status status = coll_shrink(l->comm, &next);
    const long took = (long)(now_ms() - began);
    check_kept(l);
    EXPECT(l, was_back ? status == COLL_ERR_PEER : status == COLL_OK || death_of(l, l->rank), "coll_shrink%s: %d, %s",
           was_back ? " of a rank that was given up" : "", (int)status, coll_error(l->comm));
    EXPECT(l, took <= support_scaled(SHRINK_MS), "coll_shrink took %ld ms", took);
    if (took > l->report.shrunk_ms) l->report.shrunk_ms = took;
    l->report.shrinks++;
    int at = 0, lost = 0;
    for (int r = 0; status == COLL_OK && r < size; r++) {
        int failed[SLOTS];
        const int count = coll_failed_ranks(l->comm, failed, SLOTS);
        bool is_failed = false;
        for (int i = 0; i < count && i < SLOTS; i++) is_failed = is_failed || failed[i] == r;
        const int slot = l->plan->roles[before[r]].slot;
        if (is_failed) __atomic_store_n(&shared->given_up_at[slot], now_ms(), __ATOMIC_SEQ_CST);
        if (is_failed) lost += death_of(l, before[r]) == 0;
        else l->members[at++] = before[r];
        EXPECT(l, is_failed || !was_dead[r], "rank %d was dead and is a member", before[r]);
    }
    EXPECT(l, status || (at == coll_size(next) && lost == 0), "coll_shrink gives %d ranks, %d have not failed, %d lost ones live",
           coll_size(next), at, lost);
    coll_free(l->comm);
    l->comm = next;
    return status == COLL_OK;
}

/* After a shrink some ranks are one call ahead of others: go on with the last one that any rank has begun. */
static coll_status agree(life *l)
{
    int32_t call = l->call;
    const coll_status status = coll_allreduce(l->comm, &call, &call, 1, COLL_I32, COLL_MAX);

    if (status == COLL_OK) l->call = call;
    return status;
}

static void play(life *l)
{
    uint64_t state = support_mix(seed ^ l->plan->number << 8 ^ (unsigned)l->rank);
    const bool is_keyed = strncmp(security, "open", 4) != 0;
    const coll_config config = {
        .transport = "tcp", .rank = l->rank, .size = SLOTS, .address = shared->address,
        .tcp = { .security = security, .network = "127.0.0.1", .key = is_keyed ? "the key of the soak test, 32 bytes" : NULL,
                 .io = support_random(&state) % 2 ? "auto" : "poll", .share_memory = (int)(l->plan->number % 2) - 1 },
                 .liveness_timeout_ms = LIVENESS_MS,
        .log_level = talk ? COLL_LOG_INFO : COLL_LOG_WARN, .log = remember_line
    };

    for (int i = 0; i < SLOTS; i++) l->members[i] = i;
    coll_status status = coll_init(&l->comm, &config);
    EXPECT(l, status == COLL_OK, "coll_init: %s", coll_error(NULL));
    if (status < 0) return;
    status = coll_barrier(l->comm);               /* the fastest may have finished, and be dead               */
    if (status == COLL_OK) status = calls(l);
    while (status != COLL_OK) {
        SAY("call %d: %s", l->call, coll_error(l->comm));
        evaluate_failure(l, status);
        const bool is_good = shrink(l);
        SAY("coll_shrink: %d, rank %d of %d", is_good, coll_rank(l->comm), coll_size(l->comm));
        if (!is_good) break;
        status = agree(l);
        if (status == COLL_OK) status = keep(l);
        if (status == COLL_OK) status = calls(l);
    }
    coll_free(l->comm);
    if (l->is_doomed) pthread_join(l->doom, NULL);
    __atomic_store_n(&shared->has_ended[l->plan->roles[l->rank].slot], 1, __ATOMIC_SEQ_CST);
}

/* ---- >>processes ---- */

static int entries(const char *folder)
{
    DIR *d = opendir(folder);
    int count = 0;

    while (d && readdir(d)) count++;
    if (d) closedir(d);
    return count;
}

static void process_main(int slot, int line)
{
    uint64_t number;
    life l = { .send = support_need(malloc(SLOTS * COUNT_MOST * 4)), .recv = support_need(malloc(SLOTS * COUNT_MOST * 4)),
               .kept = support_need(malloc(KEPT * 4)) };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(line, &number, sizeof number) == (ssize_t)sizeof number && number) {
        const plan p = plan_of(number);
        l = (life){ .plan = &p, .send = l.send, .recv = l.recv, .kept = l.kept };
        while (p.roles[l.rank].slot != slot) l.rank++;
        my_rank = l.rank;
        play(&l);
        l.report.heap = (long)mallinfo2().uordblks;
        l.report.files = entries("/proc/self/fd");
        l.report.threads = entries("/proc/self/task");
        if (l.report.failures)
            for (int i = 0; i < 4; i++) if (*last_lines[i]) fprintf(stderr, "  rank %d's log: %s\n", l.rank, last_lines[i]);
        if (write(line, &l.report, sizeof l.report) != (ssize_t)sizeof l.report) break;
    }
    free(l.send);
    free(l.recv);
    free(l.kept);
    exit(0);
}

/* ---- >>unauthenticated connections ---- */

/* A port at which process `pid` listens on the loopback; 0: none is found. */
static int listening_port(pid_t pid)
{
    char path[64], target[64], line[256];
    unsigned long inodes[64], inode;
    unsigned port, state;
    int count = 0, found = 0;
    struct dirent *entry;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    while (d && (entry = readdir(d)) != NULL && count < 64) {
        const ssize_t n = readlinkat(dirfd(d), entry->d_name, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = 0;
        if (sscanf(target, "socket:[%lu]", &inodes[count]) == 1) count++;
    }
    if (d) closedir(d);
    FILE *f = fopen("/proc/net/tcp", "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        if (sscanf(line, " %*d: 0100007F:%x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &port, &state, &inode) != 3 || state != 0x0a)
            continue;
        for (int i = 0; i < count; i++) if (inodes[i] == inode) found = (int)port;
    }
    if (f) fclose(f);
    return found;
}

static int dial(int port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((in_port_t)port), .sin_addr = { htonl(INADDR_LOOPBACK) }
    };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0) (void)!connect(fd, (const struct sockaddr *)&to, sizeof to);
    return fd;
}

/* A rank of this very world, but with another key: it must be refused.  It is not rank 0, which would write the rendezvous
 * file. */
static void intrude(uint64_t *state)
{
    coll_comm *comm = NULL;
    const coll_config config = {
        .transport = "tcp", .rank = 1 + (int)(support_random(state) % (SLOTS - 1)), .size = SLOTS, .address = shared->address,
        .tcp = { .key = "another key that is no good here", .security = security }, .start_timeout_ms = 300, .log = remember_line,
        .liveness_timeout_ms = LIVENESS_MS
    };

    if (!strncmp(security, "open", 4)) return;
    if (coll_init(&comm, &config) == COLL_OK) __atomic_add_fetch(&shared->intruders, 1, __ATOMIC_SEQ_CST);
    coll_free(comm);
}

static void intruders_main(void)
{
    enum { HELD = 96 };
    uint64_t state = support_mix(seed ^ 77);
    unsigned char noise[512];
    int held[HELD];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < HELD; i++) held[i] = -1;
    while (!__atomic_load_n(&shared->is_over, __ATOMIC_SEQ_CST)) {
        const int port = listening_port(shared->pids[support_random(&state) % SLOTS]);
        const int flood = support_random(&state) % 16 == 0 ? HELD : 1;
        for (int i = 0; port && i < flood; i++) {
            int *const fd = &held[support_random(&state) % HELD];
            if (*fd >= 0) close(*fd);
            *fd = dial(port);
            __atomic_add_fetch(&shared->attempts, 1, __ATOMIC_RELAXED);
            if (*fd < 0 || support_random(&state) % 2) continue;
            for (size_t k = 0; k < sizeof noise; k++) noise[k] = (unsigned char)support_random(&state);
            (void)!send(*fd, noise, 1 + support_random(&state) % sizeof noise, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        if (support_random(&state) % 64 == 0) intrude(&state);
        (void)poll(NULL, 0, 5);                   /* the interval between connections                         */
    }
    exit(0);
}

/* ---- >>the whole test ---- */

typedef struct crowd {
    int    lines[SLOTS];
    report first[SLOTS], last[SLOTS];             /* of processes that live: after the warm worlds, and now   */
    int    worlds, deaths, returns;
    long   calls, shrinks, detected_ms, shrunk_ms;
} crowd;

static void start_process(crowd *c, int slot)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) exit(1);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < SLOTS; i++) if (c->lines[i] > 0) close(c->lines[i]);
        close(ends[0]);
        process_main(slot, ends[1]);
    }
    if (child < 0) exit(1);                       /* another process could get its number                     */
    close(ends[1]);
    c->lines[slot] = ends[0];
    shared->pids[slot] = child;
}

/* Some time later, continue the ranks that the others have dropped, and those that no rank waits for any more. */
static void continue_stopped(const plan *p, const bool *is_over)
{
    bool is_awaited = false;

    for (int i = 0; i < SLOTS; i++) {
        const role *o = &p->roles[i];
        is_awaited = is_awaited || (!is_over[o->slot] && (o->fate != COMES_BACK || !shared->died_at[o->slot]));
    }
    for (int i = 0; i < SLOTS; i++) {
        const role *o = &p->roles[i];
        const int64_t at = __atomic_load_n(&shared->given_up_at[o->slot], __ATOMIC_SEQ_CST);
        if (o->fate != COMES_BACK || is_over[o->slot] || !shared->died_at[o->slot]) continue;
        if (!is_awaited || (at && now_ms() >= at + (int64_t)(support_mix(p->number) % BACK_MOST_MS)))
            kill(shared->pids[o->slot], SIGCONT);
    }
}

/* Await the reports of the processes.  false: the world hangs. */
static bool hear(crowd *c)
{
    const plan p = plan_of(shared->number);
    const int64_t until = now_ms() + support_scaled(WORLD_SECONDS * 1000);
    bool is_over[SLOTS] = { false };
    report r;

    for (int open = SLOTS; open > 0;) {
        struct pollfd fds[SLOTS];
        for (int i = 0; i < SLOTS; i++) fds[i] = (struct pollfd){ is_over[i] ? -1 : c->lines[i], POLLIN, 0 };
        const int64_t left = until - now_ms();
        const int ready = poll(fds, SLOTS, left > 20 ? 20 : left > 0 ? (int)left : 0);
        continue_stopped(&p, is_over);
        if (ready < 0 || (ready == 0 && left <= 0)) return false;
        for (int i = 0; i < SLOTS; i++) {
            if (!fds[i].revents) continue;
            is_over[i] = true;
            open--;
            const ssize_t n = read(c->lines[i], &r, sizeof r);
            CHECK(n == (ssize_t)sizeof r || shared->died_at[i], "%s, world %llu: the process of slot %d ended by itself",
                  security, (unsigned long long)shared->number, i);
            if (n != (ssize_t)sizeof r) continue;
            CHECK(r.failures == 0, "%s, world %llu: %d failures in slot %d", security, (unsigned long long)shared->number,
                  r.failures, i);
            c->calls += r.calls;
            c->shrinks += r.shrinks;
            if (r.detected_ms > c->detected_ms) c->detected_ms = r.detected_ms;
            if (r.shrunk_ms > c->shrunk_ms) c->shrunk_ms = r.shrunk_ms;
            if (c->worlds == WARM_WORLDS) c->first[i] = r;
            c->last[i] = r;
        }
        for (int i = 0; i < SLOTS; i++) {         /* a stopped process sends no report: wait for the others */
            const int slot = p.roles[i].slot;
            if (p.roles[i].fate == STOPS && shared->died_at[slot] && !is_over[slot]) is_over[slot] = true, open--;
        }
    }
    return true;
}

static void say_plan(const plan *p)
{
    for (int r = 0; r < SLOTS; r++)
        fprintf(stderr, "  rank %d, slot %d: %s, call %d, %u us\n", r, p->roles[r].slot, fate_names[p->roles[r].fate],
                p->roles[r].call, p->roles[r].moment_us);
}

/* One world, and new processes for those that died in it. */
static bool world_of(crowd *c)
{
    const plan p = plan_of(++shared->number);

    memset(shared->died_at, 0, sizeof shared->died_at);
    memset(shared->given_up_at, 0, sizeof shared->given_up_at);
    memset(shared->back_at, 0, sizeof shared->back_at);
    memset(shared->has_ended, 0, sizeof shared->has_ended);
    snprintf(shared->address, sizeof shared->address, "file:/tmp/coll-soak.%d.%llu", (int)getpid(),
             (unsigned long long)shared->number);
    for (int i = 0; i < SLOTS; i++) if (write(c->lines[i], &p.number, sizeof p.number) < 0) return false;
    const bool is_good = hear(c);
    CHECK(is_good, "seed %llu, %s, world %llu hangs", (unsigned long long)seed, security, (unsigned long long)p.number);
    if (!is_good) say_plan(&p);
    for (int i = 0; i < SLOTS && is_good; i++) {
        if (!shared->died_at[i]) continue;
        kill(shared->pids[i], SIGKILL);
        waitpid(shared->pids[i], NULL, 0);
        close(c->lines[i]);
        c->lines[i] = -1;
        c->deaths++;
        c->returns += shared->back_at[i] != 0;
        start_process(c, i);
    }
    unlink(shared->address + 5);
    c->worlds++;
    return is_good;
}

static void soak(double seconds)
{
    crowd c = { .worlds = 0 };
    bool is_good = true;
    const int64_t began = now_ms(), until = began + (int64_t)(seconds * 1e3);

    shared->is_over = 0;
    fflush(NULL);
    const pid_t intruders = fork();
    if (intruders == 0) intruders_main();
    for (int i = 0; i < SLOTS; i++) start_process(&c, i);
    while (is_good && (now_ms() < until || c.worlds <= WARM_WORLDS + 1)) is_good = world_of(&c);
    shared->is_over = 1;
    for (int i = 0; i < SLOTS; i++) {
        close(c.lines[i]);
        if (!is_good) kill(shared->pids[i], SIGKILL);
        int status = 0;
        waitpid(shared->pids[i], &status, 0);
        CHECK(!is_good || status == 0, "%s: the process of slot %d ended with %d", security, i, status);
        if (i >= SLOTS - MORTALS) continue;
        const report *first = &c.first[i], *last = &c.last[i];
        CHECK(last->files == first->files && last->threads == first->threads && last->heap - first->heap <= HEAP_GROWTH,
              "%s: slot %d after %d worlds: %d files, %d threads, %ld bytes of heap; after %d: %d, %d, %ld", security, i,
              WARM_WORLDS + 1, first->files, first->threads, first->heap, c.worlds, last->files, last->threads, last->heap);
    }
    waitpid(intruders, NULL, 0);
    CHECK(shared->intruders == 0, "%s: %d ranks with another key were accepted", security, shared->intruders);
    printf("%-10s %4d worlds, %d deaths, of which %d were stopped and continued, %ld calls, %ld shrinks, "
           "%d unauthenticated connections in %.0f s; a death is detected within %ld ms, coll_shrink takes up to %ld ms; "
           "heap %ld -> %ld KiB\n", security, c.worlds,
           c.deaths, c.returns, c.calls, c.shrinks, shared->attempts, (double)(now_ms() - began) / 1e3, c.detected_ms,
           c.shrunk_ms, c.first[0].heap >> 10, c.last[0].heap >> 10);
}

int main(int argc, char **argv)
{
    static const char *const modes[] = { "open", "open+check", "key", "key+check", "tls" };
    const double seconds = argc > 1 ? strtod(argv[1], NULL) : 5 * support_scale();

    seed = support_seed();
    talk = getenv("COLL_TEST_TALK");
    signal(SIGPIPE, SIG_IGN);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    printf("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        security = modes[i];
        if (argc > 2 ? strcmp(argv[2], security) : 0) continue;
#if !defined(COLL_WITH_OPENSSL)
        if (!strcmp(security, "tls")) continue;
#endif
        soak(seconds);
    }
    return CHECK_DONE();
}
