/* test_shm_domain.c - processes of one host: whole collectives through shared memory, memory that is read in place, calls that
 * the kernel refuses, and processes that are killed.
 *
 *     test_shm_domain [PART,...]                               PART: calls, buffers, refused, lost, deaths, start
 *
 * Each rank is a process.  It writes its results into memory that all share.
 */
#define _GNU_SOURCE 1
#include "../../coll.h"
#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/available.h"
#include "../support/each_kind.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { RANKS_MOST = 17, LIMIT_SECONDS = 120 };

typedef struct record {
    int  wrong;
    bool is_ready;
    coll_status status;
    char sentence[300];
} record;

static struct shared { record ranks[RANKS_MOST]; } *shared;

typedef int rank_fn(coll_comm *comm, const void *arg);

/* In a worker: one condition that must hold. */
#define MUST(condition)                                                                                                       \
    do {                                                                                                                      \
        if (!(condition)) return fprintf(stderr, "%s:%d: %s: rank %d: %s: %s\n", __FILE__, __LINE__, case_name,                  \
                                         coll_rank(comm), #condition, coll_error(comm)), 1;                                  \
    } while (0)

/* ---- >>worlds ---- */

static pid_t rank_start(int rank, int size, const char *address, const coll_config *base, rank_fn *fn, const void *arg)
{
    coll_config config = base ? *base : (coll_config){ 0 };
    const pid_t pid = fork();
    coll_comm *comm = NULL;

    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    config.rank = rank;
    config.size = size;
    config.address = address;
    config.start_timeout_ms = (int)support_scaled(20000);
    if (coll_init(&comm, &config) < 0) exit(fprintf(stderr, "%s: rank %d: %s\n", case_name, rank, coll_error(NULL)) != 0);
    shared->ranks[rank].wrong = fn(comm, arg);
    coll_free(comm);
    if (getppid() == 1) _exit(0);                 /* in a PID namespace of its own: sanitizers do not find its threads there */
    exit(0);
}

static void world_start(int size, const coll_config *base, const char *address, rank_fn *fn, const void *arg, pid_t *pids)
{
    memset(shared, 0, sizeof *shared);
    for (int i = 0; i < size; i++) pids[i] = rank_start(i, size, address, base, fn, arg);
}

/* All ranks run it, and exit with 0; except one that is to be killed (-1: none is). */
static void world_await(int size, int victim, const pid_t *pids)
{
    for (int i = 0; i < size; i++) {
        int status = -1;
        const bool has_ended = waitpid(pids[i], &status, 0) == pids[i];
        if (i == victim) CHECK(has_ended && WIFSIGNALED(status), "%s: rank %d was to be killed: %d", case_name, i, status);
        else CHECK(has_ended && status == 0 && !shared->ranks[i].wrong, "%s: rank %d of %d ended with %d", case_name, i, size,
                   status);
    }
}

static void world_run(int size, const coll_config *base, rank_fn *fn, const void *arg)
{
    pid_t pids[RANKS_MOST];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    world_start(size, base, address, fn, arg, pids);
    world_await(size, -1, pids);
    close(port);
}

/* ---- >>calls ---- */

/* What rank `rank` has at place i: whole numbers, whose sums are exact. */
static float value(int rank, size_t i) { return (float)((i * 7 + (size_t)rank * 13) % 101); }

static float sum_at(int size, size_t i)
{
    float sum = 0;
    for (int r = 0; r < size; r++) sum += value(r, i);
    return sum;
}

static int check_allreduce(coll_comm *comm, float *in, float *out, size_t count)
{
    const int me = coll_rank(comm), size = coll_size(comm);

    for (size_t i = 0; i < count; i++) in[i] = value(me, i);
    MUST(coll_allreduce(comm, in, out, count, COLL_F32, COLL_SUM) == COLL_OK);
    for (size_t i = 0; i < count; i++)
        if (out[i] != sum_at(size, i)) return fprintf(stderr, "%s: rank %d: allreduce of %zu: %g at %zu is not %g\n", case_name,
                                                      me, count, (double)out[i], i, (double)sum_at(size, i)), 1;
    return 0;
}

/* Blocks of unequal length from all to all: rank r has (r + q) % 3 x `unit` for rank q. */
static int check_alltoallv(coll_comm *comm, float *in, float *out, size_t unit)
{
    const int me = coll_rank(comm), size = coll_size(comm);
    size_t counts[RANKS_MOST], offsets[RANKS_MOST], at = 0;

    for (int q = 0; q < size; q++) {
        counts[q] = (size_t)((me + q) % 3) * unit;
        offsets[q] = at;
        for (size_t i = 0; i < counts[q]; i++) in[at + i] = value(me * size + q, i);
        at += counts[q];
    }
    MUST(coll_alltoallv(comm, in, counts, offsets, out, counts, offsets, COLL_F32) == COLL_OK);
    for (int q = 0; q < size; q++)
        for (size_t i = 0; i < counts[q]; i++) MUST(out[offsets[q] + i] == value(q * size + me, i));
    return 0;
}

static int check_broadcast(coll_comm *comm, float *at, size_t count, int root)
{
    for (size_t i = 0; i < count; i++) at[i] = coll_rank(comm) == root ? value(root, i) : -1;
    MUST(coll_broadcast(comm, at, count, COLL_F32, root) == COLL_OK);
    for (size_t i = 0; i < count; i++) MUST(at[i] == value(root, i));
    return 0;
}

/* The other sums: a rank's part is copied for the others, and in place it is the same memory. */
static int check_sums(coll_comm *comm, float *in, float *out, size_t count)
{
    const int me = coll_rank(comm), size = coll_size(comm);

    for (size_t i = 0; i < count; i++) in[i] = value(me, i), out[i] = -1;
    MUST(coll_reduce(comm, in, out, count, COLL_F32, COLL_SUM, size - 1) == COLL_OK);
    for (size_t i = 0; i < count; i++) MUST(out[i] == (me == size - 1 ? sum_at(size, i) : -1));
    for (size_t i = 0; i < count; i++) out[i] = -1;
    MUST(coll_exscan(comm, in, out, count, COLL_F32, COLL_SUM) == COLL_OK);
    for (size_t i = 0; i < count; i++) MUST(out[i] == (me ? sum_at(me, i) : -1));
    MUST(coll_scan(comm, in, in, count, COLL_F32, COLL_SUM) == COLL_OK);
    for (size_t i = 0; i < count; i++) MUST(in[i] == sum_at(me + 1, i));
    return 0;
}

static int check_reduce_scatter(coll_comm *comm, float *in, float *out, size_t count)
{
    const int me = coll_rank(comm), size = coll_size(comm);
    const size_t first = (size_t)me * count, all = (size_t)size * count;

    for (size_t i = 0; i < all; i++) in[i] = value(me, i);
    MUST(coll_reduce_scatter(comm, in, out, count, COLL_F32, COLL_SUM) == COLL_OK);
    for (size_t i = 0; i < count; i++) MUST(out[i] == sum_at(size, first + i));
    MUST(coll_reduce_scatter(comm, in, in + first, count, COLL_F32, COLL_SUM) == COLL_OK);
    for (size_t i = 0; i < count; i++) MUST(in[first + i] == sum_at(size, first + i));
    for (int way = 0; way < 3; way++) {           /* the result at the start of the input: on all, on some, on one */
        float *const result = way == 0 || (way == 1 ? me % 2 : me == size - 1) ? in : out;
        for (size_t i = 0; i < all; i++) in[i] = value(me, i);
        MUST(coll_reduce_scatter(comm, in, result, count, COLL_F32, COLL_SUM) == COLL_OK);
        for (size_t i = 0; i < count; i++) MUST(result[i] == sum_at(size, first + i));
        for (size_t i = result == in ? count : 0; i < all; i++) MUST(in[i] == value(me, i));
    }
    return 0;
}

/* Two communicators at once, which share one segment for copies. */
static int check_two(coll_comm *comm, float *in, float *out, size_t count)
{
    const int me = coll_rank(comm), size = coll_size(comm);
    coll_comm *both[2] = { comm };
    coll_request *requests[2];

    MUST(coll_dup(comm, &both[1]) == COLL_OK);
    for (int turn = 0; turn < 4; turn++) {
        for (size_t i = 0; i < 2 * count; i++) in[i] = value(me, i);
        for (int k = 0; k < 2; k++) {
            const size_t at = (size_t)((k + turn) % 2) * count;
            MUST(coll_iallreduce(both[(k + turn) % 2], in + at, out + at, count, COLL_F32, COLL_SUM, &requests[k]) == COLL_OK);
        }
        MUST(coll_wait_all(2, requests) == COLL_OK);
        for (int k = 0; k < 2; k++) coll_request_free(requests[k]);
        for (size_t i = 0; i < 2 * count; i++) MUST(out[i] == sum_at(size, i));
    }
    coll_free(both[1]);
    return 0;
}

static const size_t counts[] = { 1, 63, 1000, 5000, 33333, 300001, 1100000 };

enum { COUNTS = sizeof counts / sizeof *counts, ROOM = RANKS_MOST * 2 * 33333 };

static int check_calls(coll_comm *comm, float *in, float *out)
{
    int wrong = 0;

    for (int i = 0; i < COUNTS && !wrong; i++) {
        if (counts[i] > 1000000 && coll_size(comm) > 4) break;
        wrong = check_allreduce(comm, in, out, counts[i]) || check_allreduce(comm, in, in, counts[i])
             || check_allreduce(comm, in, coll_rank(comm) % 2 ? in : out, counts[i])
             || check_broadcast(comm, out, counts[i], coll_size(comm) - 1) || check_sums(comm, in, out, counts[i]);
        if (wrong || counts[i] >= 40000) continue;
        wrong = check_alltoallv(comm, in, out, counts[i]) || check_reduce_scatter(comm, in, out, counts[i])
             || check_two(comm, in, out, counts[i]);
    }
    return wrong;
}

/* Does shared memory carry this call? */
static bool is_in_domain(coll_comm *comm, size_t count, char *text, size_t room)
{
    static float any[2];
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = any, .recv = any, .count = count, .type = COLL_F32 };

    return coll_explain(comm, &call, text, room) > 0 && strstr(text, "own way");
}

static int calls_rank(coll_comm *comm, const void *arg)
{
    const bool has_domain = *(const bool *)arg;
    float *in = support_need(malloc(ROOM * sizeof *in)), *out = support_need(malloc(ROOM * sizeof *out));
    coll_comm *odd = NULL;
    char text[800];

    MUST(is_in_domain(comm, 1, text, sizeof text) == has_domain && is_in_domain(comm, 100000, text, sizeof text) == has_domain);
    MUST(check_calls(comm, in, out) == 0);
    MUST(coll_split(comm, coll_rank(comm) % 2, 0, &odd) == COLL_OK && check_calls(odd, in, out) == 0);
    coll_free(odd);
    free(in);
    free(out);
    return 0;
}

static void calls_case(const void *arg)
{
    const int size = *(const int *)arg;
    const bool with = COLL__HAS_DOMAIN, without = false;

    world_run(size, NULL, calls_rank, &with);
    world_run(size, &(coll_config){ .spin_us = -1 }, calls_rank, &with);
    world_run(size, &(coll_config){ .tcp = { .shm_collectives = COLL_OFF } }, calls_rank, &without);
}

/* ---- >>buffers: memory that is read in place, on all ranks or on some ---- */

static int buffers_rank(coll_comm *comm, const void *arg)
{
    const int which = *(const int *)arg, me = coll_rank(comm);
    float *shares[2], *plain[2];
    void *again;

    for (int i = 0; i < 2; i++) {
        MUST((shares[i] = coll_alloc(comm, ROOM * sizeof(float))) != NULL && (uintptr_t)shares[i] % 64 == 0);
        plain[i] = support_need(malloc(ROOM * sizeof(float)));
    }
    float *const in = which & 1 || me % 2 ? shares[0] : plain[0], *const out = which & 2 || me % 3 == 0 ? shares[1] : plain[1];
    MUST(check_calls(comm, in, out) == 0);
    coll_dealloc(comm, shares[0]);
    MUST((again = coll_alloc(comm, ROOM * sizeof(float))) == (void *)shares[0] || !COLL__HAS_DOMAIN); /* it is used again   */
    MUST(check_calls(comm, again, out) == 0);
    coll_dealloc(comm, again);
    coll_dealloc(comm, shares[1]);
    coll_dealloc(comm, NULL);
    MUST(coll_alloc(comm, SIZE_MAX / 4) == NULL && strstr(coll_error(comm), "coll_alloc: no memory for "));
    MUST((again = coll_alloc(comm, 0)) != NULL);
    coll_dealloc(comm, again);
    for (int i = 0; i < 2; i++) free(plain[i]);
    return 0;
}

static void buffers_case(const void *arg)
{
    for (int which = 0; which < 4; which++) world_run(*(const int *)arg, NULL, buffers_rank, &which);
}

/* ---- >>refused: a kernel that does not let a process access the memory of another one ---- */

/* From here on these calls return EPERM in this process. */
static int forbid_copies(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof rules / sizeof *rules, rules };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int refused_rank(coll_comm *comm, const void *arg)
{
    float *in = support_need(malloc(ROOM * sizeof *in)), *out = support_need(malloc(ROOM * sizeof *out));
    char text[800];

    (void)arg;
    MUST(is_in_domain(comm, 1, text, sizeof text) && !is_in_domain(comm, 100000, text, sizeof text));
    MUST(strstr(text, "may not read the memory of another"));
    MUST(check_calls(comm, in, out) == 0);
    free(in);
    free(out);
    return 0;
}

/* One of them is enough. */
static void refused_case(const void *arg)
{
    const int size = 5, who = *(const int *)arg;
    pid_t pids[RANKS_MOST];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    memset(shared, 0, sizeof *shared);
    for (int i = 0; i < size; i++) {
        if (i != who) {
            pids[i] = rank_start(i, size, address, NULL, refused_rank, NULL);
        } else if ((pids[i] = fork()) == 0) {
            if (forbid_copies()) exit(2);
            int status = -1;
            const pid_t pid = rank_start(i, size, address, NULL, refused_rank, NULL);
            exit(waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1);
        }
    }
    world_await(size, -1, pids);
    close(port);
}

/* ---- >>lost: a process loses a right after the start; memory that the kernel does not copy ---- */

typedef struct loss {
    const char *what;
    int  who;                                     /* the rank that loses the right; -1: all                   */
    bool has_buffers;
} loss;

/* Memory that only this process can read.  NULL: the kernel has none. */
static void *secret_memory(size_t length)
{
#if defined(SYS_memfd_secret)
    const int fd = (int)syscall(SYS_memfd_secret, 0);
    const bool is_there = fd >= 0 && !ftruncate(fd, (off_t)length);
    void *at = is_there ? mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0) close(fd);
    return at == MAP_FAILED ? NULL : at;
#else
    return (void)length, NULL;
#endif
}

/* Every kind, blocking, started and prepared, in place and not, on all ranks or between those of a part of them. */
static int every_kind(coll_comm *comm, int *in, int *out, size_t count)
{
    for (int i = 0; i < EACH_KINDS; i++)
        for (int way = 0; way < 6; way++) {
            each_call b = { .kind = each_kinds[i], .is_in_place = way & 1 && each_kinds[i] != COLL_BROADCAST, .count = count,
                            .comm = comm, .in = in, .out = out, .salt = way,
                            .room = each_room(each_kinds[i], count, coll_size(comm)) };
            coll_request *r = NULL;
            int *recv;
            each_lay_out(&b);
            const coll_call call = each_prepare(&b, &recv);
            if (way / 2 == 0) MUST(coll_run(comm, &call) == COLL_OK);
            if (way / 2 == 1) MUST(coll_start(comm, &call, &r) == COLL_OK && coll_wait(r) == COLL_OK);
            if (way / 2 == 2) MUST(coll_prepare(comm, &call, &r) == COLL_OK && coll_restart(r) == COLL_OK);
            if (way / 2 == 2) MUST(coll_wait(r) == COLL_OK);
            if (r) coll_request_free(r);
            if (each_count_wrong(&b, &call, recv))
                return fprintf(stderr, "%s: rank %d: %s, way %d: %zu wrong\n", case_name, coll_rank(comm),
                               coll_kind_name(b.kind), way, each_count_wrong(&b, &call, recv)), 1;
        }
    return 0;
}

typedef struct loss_job { coll_comm *comm; const loss *l; int *in, *out; int wrong; } loss_job;

enum { LOST_COUNT = 50000, LOST_ROOM = LOST_COUNT * 3 };

static int lost_calls(const loss_job *j)
{
    coll_comm *comm = j->comm, *odd = NULL;

    for (int round = 0; round < 2; round++)       /* by the plan of a call, too                               */
        MUST(check_allreduce(comm, (float *)(void *)j->in, (float *)(void *)j->out, LOST_ROOM) == 0);
    MUST(every_kind(comm, j->in, j->out, LOST_COUNT) == 0);
    MUST(coll_split(comm, coll_rank(comm) > 0, 0, &odd) == COLL_OK && every_kind(odd, j->in, j->out, LOST_COUNT) == 0);
    coll_free(odd);
    return 0;
}

/* Has the first thread ended?  It stays as a zombie, and AddressSanitizer's pthread_join does not know it. */
static bool first_has_ended(void)
{
    FILE *const f = fopen("/proc/self/stat", "re");
    char state = 0;

    const bool is_read = f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
    if (f) fclose(f);
    return is_read && state == 'Z';
}

/* The work of a rank whose first thread ends. */
static void *lost_main(void *at)
{
    loss_job *j = at;

    while (!first_has_ended()) poll(NULL, 0, 1);
    j->wrong = lost_calls(j);
    coll_free(j->comm);
    _exit(j->wrong);
}

static int lost_rank(coll_comm *comm, const void *arg)
{
    static loss_job job;
    const loss *l = arg;
    const bool is_who = l->who < 0 || l->who == coll_rank(comm), is_secret = !strcmp(l->what, "memfd_secret");
    const size_t length = LOST_ROOM * sizeof(int);
    pthread_t thread;
    char text[800];

    job = (loss_job){ .comm = comm, .l = l };
    job.in = is_secret && is_who ? secret_memory(length) : l->has_buffers ? coll_alloc(comm, length) : malloc(length);
    job.out = is_secret && is_who ? secret_memory(length) : l->has_buffers ? coll_alloc(comm, length) : malloc(length);
    MUST(job.in && job.out && is_in_domain(comm, 100000, text, sizeof text));
    if (l->has_buffers) MUST(check_allreduce(comm, (float *)(void *)job.in, (float *)(void *)job.out, LOST_ROOM) == 0);
    MUST(coll_barrier(comm) == COLL_OK);
    if (is_who && !strcmp(l->what, "seteuid")) MUST(setegid(65534) == 0 && seteuid(65534) == 0);
    if (is_who && !strcmp(l->what, "PR_SET_DUMPABLE")) MUST(prctl(PR_SET_DUMPABLE, 0) == 0);
    if (is_who && !strcmp(l->what, "pthread_exit")) {
        MUST(pthread_create(&thread, NULL, lost_main, &job) == 0);
        pthread_exit(NULL);
    }
    const int wrong = lost_calls(&job);
    MUST(!is_who || strcmp(l->what, "seteuid") || (seteuid(0) == 0 && setegid(0) == 0));
    prctl(PR_SET_DUMPABLE, 1);                    /* a sanitizer inspects this process when it ends           */
    return wrong;
}

static void lost_case(const void *arg)
{
    const loss *l = arg;

    if (!strcmp(l->what, "PR_SET_DUMPABLE") && geteuid() == 0) {      /* root may read it nevertheless            */
        if (setgid(65534) || setuid(65534)) exit(2);
        prctl(PR_SET_DUMPABLE, 1);
    }
    world_run(3, NULL, lost_rank, l);
}

static void run_losses(void)
{
    static const char *const what[] = { "seteuid", "PR_SET_DUMPABLE", "memfd_secret", "pthread_exit" };
    char name[120];

    for (int i = 0; i < 4; i++) {
        void *const secret = i == 2 ? secret_memory(4096) : NULL;
        if (secret) munmap(secret, 4096);
        if (i == 2 && !secret) {
            printf("memfd_secret: skipped: this kernel has none\n");
            continue;
        }
        if (i == 0 && geteuid() != 0) {
            printf("seteuid: skipped: only root may call it\n");
            continue;
        }
        for (int k = 0; k < 6; k++) {
            const loss l = { what[i], k % 3 - 1, k >= 3 };
            if (i == 2 && l.has_buffers) continue;                    /* it is either of the two                  */
            snprintf(name, sizeof name, "%s of rank %d%s", l.what, l.who, l.has_buffers ? ", buffers of coll_alloc" : "");
            run_case_within(LIMIT_SECONDS, lost_case, &l, name);
        }
    }
}

/* ---- >>deaths: a rank is killed in the middle of a long call, or while the others wait for it ---- */

typedef struct death { int size, victim; size_t count; bool has_buffers; } death;

/* How many files of the library are in /dev/shm?  There must be none.  Benchmarks, which other suites run, have some. */
static int files_left(void)
{
    FILE *list = popen("ls /dev/shm 2>/dev/null | grep coll | grep -cv bench", "r");
    int count = -1;

    if (list && fscanf(list, "%d", &count) != 1) count = -1;
    if (list) pclose(list);
    return count;
}

static int dying_rank(coll_comm *comm, const void *arg)
{
    const death *d = arg;
    const int me = coll_rank(comm);
    record *r = &shared->ranks[me];
    float *in = d->has_buffers ? coll_alloc(comm, d->count * sizeof *in) : malloc(d->count * sizeof *in);
    float *out = d->has_buffers ? coll_alloc(comm, d->count * sizeof *out) : malloc(d->count * sizeof *out);
    coll_comm *fresh = NULL;
    char text[800];

    MUST(in && out && is_in_domain(comm, d->count, text, sizeof text));
    for (size_t i = 0; i < d->count; i++) in[i] = 1;
    while (coll_allreduce(comm, in, out, d->count, COLL_F32, COLL_SUM) == COLL_OK)
        __atomic_store_n(&r->is_ready, true, __ATOMIC_RELEASE);
    char name[40];
    snprintf(name, sizeof name, "rank %d", d->victim);
    MUST(strstr(coll_error(comm), name));
    MUST(coll_shrink(comm, &fresh) == COLL_OK && coll_size(fresh) == d->size - 1);
    MUST(is_in_domain(fresh, d->count, text, sizeof text));
    for (int k = 0; k < 20; k++) MUST(check_allreduce(fresh, in, out, d->count) == 0);
    if (d->has_buffers) {
        coll_dealloc(comm, in);
        coll_dealloc(comm, out);
    } else {
        free(in);
        free(out);
    }
    coll_free(fresh);
    return 0;
}

static void death_case(const void *arg)
{
    const death *d = arg;
    pid_t pids[RANKS_MOST];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    const coll_config config = { .start_timeout_ms = 0, .log_level = COLL_LOG_NONE };

    world_start(d->size, &config, address, dying_rank, d, pids);
    for (int i = 0; i < d->size; i++) while (!__atomic_load_n(&shared->ranks[i].is_ready, __ATOMIC_ACQUIRE)) sched_yield();
    kill(pids[d->victim], SIGKILL);
    world_await(d->size, d->victim, pids);
    CHECK(files_left() == 0, "%s: %d files are left in /dev/shm", case_name, files_left());
    close(port);
}

static void run_deaths(uint64_t seed)
{
    for (int i = 0; i < 12; i++) {
        const int size = 2 + (int)(support_random(&seed) % 4) + 1;
        const death d = { size, (int)(support_random(&seed) % (uint64_t)size), i % 3 == 0 ? 2 : i % 3 == 1 ? 3000 : 500000,
                          i % 2 != 0 };
        char name[100];
        snprintf(name, sizeof name, "rank %d of %d is killed, %zu elements%s", d.victim, size, d.count,
                 d.has_buffers ? " of coll_alloc" : "");
        run_case_within(LIMIT_SECONDS, death_case, &d, name);
    }
}

/* ---- >>start: a process with a limit on file length, or little memory to map ---- */

static int start_rank(coll_comm *comm, const void *arg)
{
    float in[100], out[100];
    char text[800];

    MUST(is_in_domain(comm, 1, text, sizeof text) == *(const bool *)arg);
    return check_allreduce(comm, in, out, 100);
}

static void limited_case(const void *arg)
{
    const int resource = *(const int *)arg;
    const struct rlimit few = { (rlim_t)1 << 30, (rlim_t)1 << 30 }, none = { (rlim_t)1 << 20, (rlim_t)1 << 20 };
    const bool with = COLL__HAS_DOMAIN, without = false;
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        if (setrlimit(resource, &few)) exit(2);
        world_run(3, NULL, start_rank, &with);
        if (resource == RLIMIT_FSIZE && setrlimit(resource, &none)) exit(2);
        if (resource == RLIMIT_FSIZE) world_run(3, NULL, start_rank, &without);
        exit(check__failed != 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "%s: %d", case_name, status);
}

/* Each rank is process 1 of a PID namespace, as in containers that share a network: a process finds only itself there. */
static void space_case(const void *arg)
{
    const bool without = false;
    pid_t pids[2];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    (void)arg;
    memset(shared, 0, sizeof *shared);
    for (int i = 0; i < 2; i++) {
        if ((pids[i] = fork()) != 0) continue;
        int status = -1;
        if (unshare(CLONE_NEWPID | CLONE_NEWNS)) _exit(2);
        const pid_t first = fork();
        if (first == 0) {
            if (getpid() != 1 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)
                || mount("proc", "/proc", "proc", 0, NULL)) _exit(3);
            const pid_t pid = rank_start(i, 2, address, NULL, start_rank, &without);
            _exit(waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1);
        }
        _exit(waitpid(first, &status, 0) == first && status == 0 ? 0 : 1);
    }
    const int64_t began = now_ms();
    world_await(2, -1, pids);
    CHECK(now_ms() - began < support_scaled(5000), "%s: it took %d ms", case_name, (int)(now_ms() - began));
    close(port);
}

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;
    static const int sizes[] = { 2, 3, 4, 7, 17 };         /* coll_alloc: without the last, which takes the longest */
    char name[80];

    cases_begin();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return perror("mmap"), 1;
    world = "domain";
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
        snprintf(name, sizeof name, "%d processes", sizes[i]);
        if (support_listed(parts, "calls")) run_case_within(LIMIT_SECONDS, calls_case, &sizes[i], name);
        snprintf(name, sizeof name, "%d processes, buffers of coll_alloc", sizes[i]);
        if (i < 4 && support_listed(parts, "buffers")) run_case_within(LIMIT_SECONDS, buffers_case, &sizes[i], name);
    }
    for (int who = 0; who < 5 && COLL__HAS_DOMAIN && support_listed(parts, "refused"); who += 2) {
        snprintf(name, sizeof name, "rank %d may not copy", who);
        run_case_within(LIMIT_SECONDS, refused_case, &who, name);
    }
    if (COLL__HAS_DOMAIN && support_listed(parts, "lost")) run_losses();
    if (COLL__HAS_DOMAIN && support_listed(parts, "deaths")) run_deaths(support_seed());
    for (int i = 0; i < 2 && support_listed(parts, "start"); i++) {
        const int resource = i ? RLIMIT_AS : RLIMIT_FSIZE;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        if (i) break;                             /* sanitizers need terabytes of addresses                   */
#endif
        run_case_within(LIMIT_SECONDS, limited_case, &resource, i ? "little memory to map" : "no long files");
    }
    if (geteuid() == 0 && support_listed(parts, "start")) run_case_within(LIMIT_SECONDS, space_case, NULL, "spaces of their own");
    else if (support_listed(parts, "start")) printf("spaces of their own: skipped: only root may make them\n");
    return CHECK_DONE();
}
