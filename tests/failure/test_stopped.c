/* test_stopped.c - processes of one host: a rank is stopped in the middle of a long call, dropped by the others, and continued
 * later.  It has no effect on them, and does not accept the later contents of their memory as a result.
 *
 *     test_stopped [KIND,...]
 *
 * Three ranks make one long call again and again.  One is stopped at a random moment.  The others detect it in time: by
 * liveness_timeout_ms, or by a coll_abort of one of them.  They shrink, fill the same buffers with other numbers, and make the
 * call in the new world.  Then the stopped rank is continued, and its call must fail or have the right result.  When it has
 * ended, the others compare their results and inputs once more with the expected ones, and go on.  COLL_TEST_SEED replays a run,
 * COLL_TEST_SCALE sets how many there are.
 *
 * Then, for each kind, one rank is held just before the kernel reads the memory of another one for it.  A third rank ends the
 * world by coll_abort, the others use their buffers for something else, and the read goes on: its result must not be accepted.
 */
#define _GNU_SOURCE 1
#include "../../coll.h"
#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/available.h"
#include "../support/each_kind.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { RANKS = 3, VICTIM = 2, ROOT = 0, LIVENESS_MS = 800, LIMIT_SECONDS = 60, GO_ON_MS = 300, GO_ON_CALLS = 5 };

typedef struct scenario {
    coll_kind kind;
    bool      has_buffers, is_in_place, aborts;
    size_t    count;
    int       stop_after_us;
} scenario;

/* Shared by the processes. */
static struct shared {
    int  calls[RANKS];                            /* that have ended well                                     */
    int  wrong[RANKS], called[RANKS];             /* results that were wrong; calls in the new world          */
    bool has_failed[RANKS], has_filled[RANKS], is_over[RANKS];
    coll_status status[RANKS];
    char sentence[RANKS][300];
    bool is_stopped, abort_now, end_now;
    int  liveness_ms;                             /* of all ranks of a run                                    */
    bool is_reading;                              /* the reader is held                                       */
} *shared;

/* ---- >>a rank ---- */

static void *abort_when_told(void *comm)
{
    while (!__atomic_load_n(&shared->abort_now, __ATOMIC_ACQUIRE) && !__atomic_load_n(&shared->end_now, __ATOMIC_ACQUIRE)) {
        const struct timespec delay = { 0, 1000000 };
        nanosleep(&delay, NULL);
    }
    if (shared->abort_now) coll_abort(comm, "one of us has enough");
    return NULL;
}

/* Call until the world fails.  If a call returns COLL_OK after a rank was stopped, its result must be right. */
static coll_status call_until_failure(each_call *b, int rank)
{
    coll_status status = COLL_OK;
    int *recv;

    each_lay_out(b);
    for (coll_call call = each_prepare(b, &recv); status == COLL_OK;) {
        if ((status = coll_run(b->comm, &call)) < 0) break;
        if (__atomic_load_n(&shared->is_stopped, __ATOMIC_ACQUIRE)) shared->wrong[rank] += each_count_wrong(b, &call, recv) != 0;
        __atomic_add_fetch(&shared->calls[rank], 1, __ATOMIC_RELEASE);
        if (b->is_in_place) call = each_prepare(b, &recv);
    }
    return status;
}

/* In the new world: a result stays right while the stopped rank goes on, until that rank has detected its end; then more
 * calls, until the signal to end. */
static coll_status call_on(each_call *b, int rank)
{
    const struct timespec delay = { 0, 1000000 };
    coll_status status = COLL_OK;
    int end = 0;

    each_lay_out(b);
    while (status == COLL_OK && !end) {
        int *recv;
        const coll_call call = each_prepare(b, &recv);
        if ((status = coll_run(b->comm, &call)) < 0) break;
        shared->wrong[rank] += each_count_wrong(b, &call, recv) != 0;
        if (__atomic_add_fetch(&shared->called[rank], 1, __ATOMIC_RELEASE) == 1) {
            __atomic_store_n(&shared->has_filled[rank], true, __ATOMIC_RELEASE);
            while (!__atomic_load_n(&shared->has_failed[VICTIM], __ATOMIC_ACQUIRE)) nanosleep(&delay, NULL);
        } else {
            sched_yield();
        }
        shared->wrong[rank] += each_count_wrong(b, &call, recv) != 0;
        const int wants = __atomic_load_n(&shared->end_now, __ATOMIC_ACQUIRE);
        status = coll_allreduce(b->comm, &wants, &end, 1, COLL_I32, COLL_MAX);
    }
    return status;
}

static int rank_main(coll_comm *comm, int rank, const scenario *s)
{
    const size_t room = each_room(s->kind, s->count, RANKS);
    each_call b = { .kind = s->kind, .is_in_place = s->is_in_place, .count = s->count, .comm = comm, .room = room };
    coll_comm *fresh = NULL;
    pthread_t thread;

    b.in = s->has_buffers ? coll_alloc(comm, room * sizeof(int)) : support_need(malloc(room * sizeof(int)));
    b.out = s->has_buffers ? coll_alloc(comm, room * sizeof(int)) : support_need(malloc(room * sizeof(int)));
    if (!b.in || !b.out) return fprintf(stderr, "%s: %s\n", case_name, coll_error(comm)), 1;
    if (rank == 0) pthread_create(&thread, NULL, abort_when_told, comm);
    shared->status[rank] = call_until_failure(&b, rank);
    snprintf(shared->sentence[rank], sizeof shared->sentence[rank], "%s", coll_error(comm));
    __atomic_store_n(&shared->has_failed[rank], true, __ATOMIC_RELEASE);
    if (rank == VICTIM) {
        if (!s->has_buffers) free(b.in), free(b.out);
        return 0;
    }
    if (coll_shrink(comm, &fresh) < 0) return fprintf(stderr, "%s: rank %d: %s\n", case_name, rank, coll_error(comm)), 1;
    b.comm = fresh;
    b.salt = 1;                                   /* other numbers                                            */
    const coll_status status = call_on(&b, rank);
    if (status < 0) return fprintf(stderr, "%s: rank %d in the new world: %s\n", case_name, rank, coll_error(fresh)), 1;
    if (rank == 0) pthread_join(thread, NULL);
    if (!s->has_buffers) free(b.in), free(b.out);
    coll_free(fresh);
    return 0;
}

static pid_t rank_start(int rank, const char *address, const scenario *s)
{
    coll_config config = { .rank = rank, .size = RANKS, .address = address, .log_level = COLL_LOG_NONE,
                           .start_timeout_ms = (int)support_scaled(20000), .liveness_timeout_ms = shared->liveness_ms };
    const pid_t pid = fork();
    coll_comm *comm = NULL;

    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (coll_init(&comm, &config) < 0) exit(fprintf(stderr, "%s: rank %d: %s\n", case_name, rank, coll_error(NULL)) != 0);
    const int wrong = rank_main(comm, rank, s);
    coll_free(comm);
    __atomic_store_n(&shared->is_over[rank], true, __ATOMIC_RELEASE);
    exit(wrong);
}

/* ---- >>a run ---- */

/* Wait until a flag of all survivors is set; false: one of them has ended. */
static bool await(const bool *flags, const pid_t *pids)
{
    for (int i = 0; i < VICTIM; i++)
        while (!__atomic_load_n(&flags[i], __ATOMIC_ACQUIRE)) {
            siginfo_t info = { .si_pid = 0 };
            const struct timespec delay = { 0, 1000000 };
            if (waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) return false;
            nanosleep(&delay, NULL);
        }
    return true;
}

static void stopped_case(const void *arg)
{
    const scenario *s = arg;
    const struct timespec moment = { 0, s->stop_after_us * 1000L }, delay = { 0, 1000000 };
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    pid_t pids[RANKS];

    memset(shared, 0, sizeof *shared);
    shared->liveness_ms = (int)support_scaled(LIVENESS_MS);
    for (int i = 0; i < RANKS; i++) pids[i] = rank_start(i, address, s);
    while (__atomic_load_n(&shared->calls[VICTIM], __ATOMIC_ACQUIRE) < 2) sched_yield();
    nanosleep(&moment, NULL);
    __atomic_store_n(&shared->is_stopped, true, __ATOMIC_RELEASE);
    kill(pids[VICTIM], SIGSTOP);
    const int64_t stopped = now_ms();
    if (s->aborts) __atomic_store_n(&shared->abort_now, true, __ATOMIC_RELEASE);
    const bool have_failed = await(shared->has_failed, pids);
    const int64_t known_ms = now_ms() - stopped, most_ms = (s->aborts ? 0 : shared->liveness_ms * 9 / 8) + support_scaled(1500);
    CHECK(known_ms <= most_ms, "%s: detected after %d ms", case_name, (int)known_ms);
    const bool have_filled = have_failed && await(shared->has_filled, pids);
    kill(pids[VICTIM], SIGCONT);
    const int64_t continued = now_ms();
    const int *const called = &shared->called[0];
    while (have_filled && (now_ms() - continued < GO_ON_MS || __atomic_load_n(called, __ATOMIC_ACQUIRE) < GO_ON_CALLS)
           && !__atomic_load_n(&shared->is_over[0], __ATOMIC_ACQUIRE)) nanosleep(&delay, NULL);
    __atomic_store_n(&shared->end_now, true, __ATOMIC_RELEASE);
    for (int i = 0; i < RANKS; i++) {
        int status = -1;
        const bool has_ended = waitpid(pids[i], &status, 0) == pids[i];
        CHECK(has_ended && status == 0, "%s: rank %d ended with %d", case_name, i, status);
        CHECK(shared->wrong[i] == 0, "%s: rank %d has %d wrong results", case_name, i, shared->wrong[i]);
        const coll_status is = shared->status[i];
        CHECK(is == COLL_ERR_PEER || is == COLL_ERR_ABORTED || is == COLL_ERR_TIMEOUT, "%s: rank %d: %d, %s", case_name, i,
              (int)is, shared->sentence[i]);
        if (i != VICTIM) CHECK(is == (s->aborts ? COLL_ERR_ABORTED : COLL_ERR_PEER), "%s: rank %d: %s", case_name, i,
                               shared->sentence[i]);
    }
    close(port);
}

/* ---- >>a late read ---- */

static bool is_reader;                            /* this process; its next read by the kernel is held        */

/* The library calls this for system calls without a function in libc.  It reads six arguments; the caller may have passed
 * fewer. */
__attribute__((no_sanitize_address)) long syscall(long number, ...)
{
    static long (*real)(long, ...);
    const struct timespec delay = { 0, 1000000 };
    long a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_process_vm_readv && is_reader) {
        is_reader = false;
        __atomic_store_n(&shared->is_reading, true, __ATOMIC_RELEASE);
        for (int i = 0; i < RANKS; i++)
            while (i != VICTIM && !__atomic_load_n(&shared->has_filled[i], __ATOMIC_ACQUIRE)) nanosleep(&delay, NULL);
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* In a reduce and a gather the root reads; what a root sends, all others read.  The victim is the rank that reads. */
static int late_number(coll_kind kind, int rank)
{
    const bool is_for_root = kind == COLL_REDUCE || kind == COLL_GATHER || kind == COLL_GATHERV;

    return is_for_root ? (rank + 1) % RANKS : rank;       /* the victim becomes rank 0                                */
}

static void *abort_when_held(void *comm)
{
    const struct timespec delay = { 0, 1000000 }, while_others_read = { 0, 200000000 };

    while (!__atomic_load_n(&shared->is_reading, __ATOMIC_ACQUIRE)) nanosleep(&delay, NULL);
    nanosleep(&while_others_read, NULL);          /* until they wait for nothing but the one that is held     */
    coll_abort(comm, "one of us has enough");
    return NULL;
}

/* The victim's first call is verified; of its second one the first read is held. */
static int late_main(coll_comm *comm, int who, const scenario *s)
{
    const size_t room = each_room(s->kind, s->count, RANKS);
    each_call b = { .kind = s->kind, .is_in_place = s->is_in_place, .count = s->count, .comm = comm, .room = room,
                    .in = support_need(malloc(room * sizeof(int))), .out = support_need(malloc(room * sizeof(int))) };
    coll_status status = COLL_OK;
    pthread_t thread;
    int *recv;

    each_lay_out(&b);
    if (who == 1) pthread_create(&thread, NULL, abort_when_held, comm);
    for (int i = 0; status == COLL_OK && !__atomic_load_n(&shared->is_reading, __ATOMIC_ACQUIRE); i++) {
        const coll_call call = each_prepare(&b, &recv);
        status = coll_barrier(comm);              /* all have their input before one is read                  */
        is_reader = status == COLL_OK && who == VICTIM && i == 1;
        if (status == COLL_OK) status = coll_run(comm, &call);
        if (status == COLL_OK) shared->wrong[who] += each_count_wrong(&b, &call, recv) != 0;
        if (i == 50) return fprintf(stderr, "%s: nothing is read by the kernel\n", case_name), 1;
    }
    while (status == COLL_OK) status = coll_barrier(comm);
    shared->status[who] = status;
    snprintf(shared->sentence[who], sizeof shared->sentence[who], "%s", coll_error(comm));
    for (size_t i = 0; i < room; i++) b.in[i] = b.out[i] = -7;
    __atomic_store_n(&shared->has_filled[who], true, __ATOMIC_RELEASE);
    while (who != VICTIM && !__atomic_load_n(&shared->has_filled[VICTIM], __ATOMIC_ACQUIRE)) sched_yield();
    if (who == 1) pthread_join(thread, NULL);
    free(b.in);
    free(b.out);
    return 0;
}

static void late_case(const void *arg)
{
    const scenario *s = arg;
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    pid_t pids[RANKS];

    memset(shared, 0, sizeof *shared);
    shared->liveness_ms = 60000;
    for (int i = 0; i < RANKS; i++) {
        if ((pids[i] = fork()) != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        coll_config config = { .rank = late_number(s->kind, i), .size = RANKS, .address = address, .log_level = COLL_LOG_NONE,
                               .start_timeout_ms = (int)support_scaled(20000), .liveness_timeout_ms = shared->liveness_ms };
        coll_comm *comm = NULL;
        if (coll_init(&comm, &config) < 0) exit(fprintf(stderr, "%s: %s\n", case_name, coll_error(NULL)) != 0);
        const int wrong = late_main(comm, i, s);
        coll_free(comm);
        exit(wrong);
    }
    for (int i = 0; i < RANKS; i++) {
        int status = -1;
        const bool has_ended = waitpid(pids[i], &status, 0) == pids[i];
        CHECK(has_ended && status == 0, "%s: rank %d ended with %d", case_name, i, status);
        CHECK(shared->wrong[i] == 0, "%s: rank %d has %d wrong results", case_name, i, shared->wrong[i]);
        const coll_status is = shared->status[i]; /* PEER: it first detects that the others have left         */
        CHECK(is == COLL_ERR_ABORTED || (i == VICTIM && is == COLL_ERR_PEER), "%s: rank %d: %d, %s", case_name, i, (int)is,
              shared->sentence[i]);
    }
    close(port);
}

enum { WAYS = 8 };

int main(int argc, char **argv)
{
    const int most = (int)(32 * support_scale());
    uint64_t seed = support_seed();
    int order[EACH_KINDS * WAYS];
    char name[120];

    cases_begin();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return perror("mmap"), 1;
    world = "stopped";
    for (int i = 0; i < EACH_KINDS * WAYS; i++) order[i] = i;
    for (int i = EACH_KINDS * WAYS - 1; i > 0; i--) {  /* in any order, so that a part of them is any part        */
        const int k = (int)(support_random(&seed) % (uint64_t)(i + 1)), other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
    for (int i = 0, run = 0; run < most && i < EACH_KINDS * WAYS; i++) {
        const int way = order[i] % WAYS;
        const coll_kind kind = each_kinds[order[i] / WAYS];
        if (argc > 1 && !support_listed(argv[1], coll_kind_name(kind))) continue;
        run++;
        scenario s = { .kind = kind, .has_buffers = way & 1, .is_in_place = way & 2 && kind != COLL_BROADCAST, .aborts = way & 4,
                       .stop_after_us = (int)(support_random(&seed) % 30000) };
        s.count = (each_room(kind, 1, RANKS) > 1 ? 1 : 3) * ((size_t)1 << 20) + 77;
        snprintf(name, sizeof name, "%s of %zu%s%s, %s, stopped after %d us", coll_kind_name(kind), s.count,
                 s.has_buffers ? " of coll_alloc" : "", s.is_in_place ? " in place" : "", s.aborts ? "abort" : "liveness",
                 s.stop_after_us);
        run_case_within(LIMIT_SECONDS, stopped_case, &s, name);
    }
    for (int i = 0; i < 2 * EACH_KINDS; i++) {
        scenario s = { .kind = each_kinds[i / 2], .is_in_place = i & 1 && each_kinds[i / 2] != COLL_BROADCAST };
        s.count = (each_room(s.kind, 1, RANKS) > 1 ? 1 : 3) * ((size_t)1 << 20) + 77;
        if (argc > 1 && !support_listed(argv[1], coll_kind_name(s.kind))) continue;
        snprintf(name, sizeof name, "%s of %zu%s, a late read", coll_kind_name(s.kind), s.count,
                 s.is_in_place ? " in place" : "");
        run_case_within(LIMIT_SECONDS, late_case, &s, name);
    }
    return CHECK_DONE();
}
