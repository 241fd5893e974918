/* test_segments.c - memory that processes of a host share, across failures: memory of coll_alloc from before coll_shrink is read
 * in place after it; a rank that opens a segment late finds the right one, or none; a process is stopped while it holds the lock
 * of the shared memory; how much of the shared memory a process may access.
 *
 *     test_segments [PART,...]                          PART: exported, late, lock, limits
 */
#define _GNU_SOURCE 1
#include "../../core/base/coll_features.h"

#if COLL__HAS_DOMAIN

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

/* The library under test calls these instead. */
static int hook_unlock(pthread_mutex_t *lock, const char *text);
static int hook_lock(pthread_mutex_t *lock, const char *text);
static int hook_trylock(pthread_mutex_t *lock, const char *text);
static void hook_open(const char *text);

#define pthread_mutex_unlock(lock) hook_unlock(lock, #lock)
#define pthread_mutex_lock(lock) hook_lock(lock, #lock)
#define pthread_mutex_trylock(lock) hook_trylock(lock, #lock)
#define readlink(...) (hook_open(#__VA_ARGS__), (readlink)(__VA_ARGS__))
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../../coll.h"
#undef pthread_mutex_unlock
#undef pthread_mutex_lock
#undef pthread_mutex_trylock
#undef readlink

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/available.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { RANKS_MOST = 6, LIMIT_SECONDS = 120, COUNT = 300001, LIVENESS_MS = 1500 };

static struct board {
    int is_held, is_opening, has_failed, has_next;        /* events                                               */
    int done[RANKS_MOST];
    uint64_t ids[2 * RANKS_MOST];                 /* segments of the first world                              */
} *board;

static __thread int me = -1;                      /* this rank, while it is to be stopped                     */
static int victim = -1;
static bool stops_at_unlock, stops_at_open;

static bool is_of_domain(const char *text) { return !strcmp(text, "&domain->lock"); }

static void await_event(const int *what) { while (!__atomic_load_n(what, __ATOMIC_ACQUIRE)) sched_yield(); }
static void tell_event(int *what) { __atomic_store_n(what, 1, __ATOMIC_RELEASE); }

static void stop_once(int *what)
{
    me = -1;
    tell_event(what);
    raise(SIGSTOP);
}

static int hook_unlock(pthread_mutex_t *lock, const char *text)
{
    if (stops_at_unlock && me == victim && me >= 0 && is_of_domain(text)) {   /* a few instructions earlier       */
        coll__domain *const domain = (coll__domain *)(void *)((char *)lock - offsetof(coll__domain, lock));
        domain->locked_by = victim + 1;
        stop_once(&board->is_held);
        domain->locked_by = 0;
    }
    return pthread_mutex_unlock(lock);
}

/* The others go on when it is stopped. */
static void hook_before(const char *text)
{
    if (stops_at_unlock && me >= 0 && me != victim && is_of_domain(text)) await_event(&board->is_held);
}

static int hook_lock(pthread_mutex_t *lock, const char *text)
{
    hook_before(text);
    return pthread_mutex_lock(lock);
}

static int hook_trylock(pthread_mutex_t *lock, const char *text)
{
    hook_before(text);
    return pthread_mutex_trylock(lock);
}

/* Of a segment. */
static void hook_open(const char *text)
{
    if (strstr(text, "path, link") && stops_at_open && me == victim && me >= 0) stop_once(&board->is_opening);
}

/* In a rank: one condition that must hold. */
#define MUST(condition)                                                                                                       \
    do {                                                                                                                      \
        if (!(condition)) return fprintf(stderr, "%s:%d: %s: %s: rank %d: %s\n", __FILE__, __LINE__, case_name, #condition,      \
                                         coll_rank(comm), coll_error(comm)), 1;                                               \
    } while (0)

/* ---- >>worlds ---- */

typedef int rank_fn(coll_comm *comm, const void *arg);
typedef struct rank_thread { pthread_t thread; coll_comm *comm; rank_fn *fn; const void *arg; int wrong; } rank_thread;

static void *rank_main(void *at)
{
    rank_thread *const r = (rank_thread *)at;

    r->wrong = r->fn(r->comm, r->arg);
    return NULL;
}

static coll_config config_of(const char *address)
{
    return (coll_config){ .address = address, .liveness_timeout_ms = LIVENESS_MS, .log_level = COLL_LOG_NONE,
                          .start_timeout_ms = (int)support_scaled(20000) };
}

/* A process with ranks first .. first + each - 1.  Each frees its communicators itself. */
static pid_t process_start(int first, int each, int size, const coll_config *base, rank_fn *fn, const void *arg)
{
    coll_comm *comms[RANKS_MOST] = { NULL };
    rank_thread ranks[RANKS_MOST];
    coll_config config = *base;
    const pid_t pid = fork();
    int wrong = 0;

    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    config.rank = first;
    config.size = size;
    const coll_status status = each > 1 ? coll_init_threads(each, comms, &config) : coll_init(&comms[0], &config);
    if (status < 0) exit(fprintf(stderr, "%s: rank %d: %s\n", case_name, first, coll_error(NULL)) != 0);
    for (int i = 0; i < each; i++) {
        ranks[i] = (rank_thread){ .comm = comms[i], .fn = fn, .arg = arg };
        if (pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i])) exit(1);
    }
    for (int i = 0; i < each; i++) {
        pthread_join(ranks[i].thread, NULL);
        wrong += ranks[i].wrong;
    }
    exit(wrong != 0);
}

static void process_await(pid_t pid, int i)
{
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "%s: process %d ended with %#x", case_name, i, (unsigned)status);
}

/* Does this use the memory of the host? */
static bool is_in_domain(coll_comm *comm, size_t count)
{
    static float any[2];
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = any, .recv = any, .count = count, .type = COLL_F32 };
    char text[800];

    return coll_explain(comm, &call, text, sizeof text) > 0 && strstr(text, "own way");
}

/* ---- >>what is mapped ---- */

/* Bytes of shared memory of the library that this process has mapped with this access ("r--s"); "": with any. */
static size_t mapped(const char *access)
{
    FILE *const maps = support_need(fopen("/proc/self/maps", "r"));
    char line[600];
    size_t all = 0;

    while (fgets(line, sizeof line, maps)) {
        unsigned long long from, to;
        char rights[8];
        if (!strstr(line, "/memfd:coll") || sscanf(line, "%llx-%llx %7s", &from, &to, rights) != 3) continue;
        if (!*access || !strcmp(access, rights)) all += (size_t)(to - from);
    }
    fclose(maps);
    return all;
}

/* How many segments are mapped that are not of the first world? */
static int strange(void)
{
    FILE *const maps = support_need(fopen("/proc/self/maps", "r"));
    char line[600];
    int count = 0;

    while (fgets(line, sizeof line, maps)) {
        unsigned long long id = 0;
        bool is_known = false;
        if (!strstr(line, "/memfd:coll") || sscanf(line, "%*s %*s %*s %*s %llu", &id) != 1) continue;
        for (int i = 0; i < 2 * RANKS_MOST; i++) is_known |= board->ids[i] == id;
        count += !is_known;
    }
    fclose(maps);
    return count;
}

/* ---- >>exported: exported memory from before a failure ---- */

/* From here on a copy by the kernel ends this process. */
static int end_at_copies(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof rules / sizeof *rules, rules };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

typedef struct dying { int processes, each, deaths; bool keeps_old; } dying;

/* Sums of what this rank had in the first world, of which `members` are left. */
static int check_sums(coll_comm *comm, int was, unsigned members, float *in, float *out)
{
    float sum = 0;

    for (int i = 0; i < RANKS_MOST; i++) if (members >> i & 1) sum += (float)(i + 1);
    for (int way = 0; way < 2; way++) {
        float *const to = way ? in : out;
        for (size_t i = 0; i < COUNT; i++) in[i] = (float)(was + 1) * (float)(i % 64), out[i] = -1;
        MUST(coll_allreduce(comm, in, to, COUNT, COLL_F32, COLL_SUM) == COLL_OK);
        for (size_t i = 0; i < COUNT; i++) MUST(to[i] == sum * (float)(i % 64));
    }
    return 0;
}

/* One process after the other dies, the last first; the others use the memory of the first world all the time. */
static int exported_rank(coll_comm *comm, const void *arg)
{
    const dying *l = (const dying *)arg;
    const int size = coll_size(comm), was = coll_rank(comm);
    float *in = coll_alloc(comm, COUNT * sizeof *in), *out = coll_alloc(comm, COUNT * sizeof *out), *late;
    coll_comm *olds[RANKS_MOST], *first = comm;
    unsigned members = (1u << size) - 1;
    int old = 0;

    MUST(in && out && is_in_domain(comm, COUNT) && check_sums(comm, was, members, in, out) == 0);
    MUST(mapped("r--s") > 0);
    for (int k = 1; k <= l->deaths; k++) {
        coll_comm *fresh = NULL;
        (void)coll_barrier(comm);                 /* which fails where the victim's death is known before its end */
        if (was / l->each == l->processes - k) kill(getpid(), SIGKILL);
        while (coll_barrier(comm) == COLL_OK) continue;
        for (int i = 0; i < l->each; i++) members &= ~(1u << ((l->processes - k) * l->each + i));
        MUST(coll_shrink(comm, &fresh) == COLL_OK && is_in_domain(fresh, COUNT));
        if (l->keeps_old) olds[old++] = comm;
        else coll_free(comm);
        comm = fresh;
        MUST(coll_size(comm) == (l->processes - k) * l->each);
        if (k == l->deaths && was % l->each == 0) MUST(end_at_copies() == 0);
        MUST(coll_barrier(comm) == COLL_OK);
        MUST(check_sums(comm, was, members, in, out) == 0);
    }
    MUST((late = coll_alloc(l->keeps_old ? first : comm, COUNT * sizeof *late)) != NULL);
    MUST(check_sums(comm, was, members, in, late) == 0);
    coll_dealloc(comm, in);
    MUST((in = coll_alloc(comm, COUNT * sizeof *in)) != NULL && check_sums(comm, was, members, in, late) == 0);
    coll_dealloc(l->keeps_old ? first : comm, late);
    while (old > 0) coll_free(olds[--old]);
    MUST(check_sums(comm, was, members, in, out) == 0);
    coll_dealloc(comm, out);
    coll_dealloc(comm, in);
    coll_free(comm);
    if (l->each == 1 && mapped("") != 0) return fprintf(stderr, "%s: %zu bytes stay mapped\n", case_name, mapped("")), 1;
    return 0;
}

static void exported_case(const void *arg)
{
    const dying *l = (const dying *)arg;
    pid_t pids[RANKS_MOST];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    const coll_config config = config_of(address);

    for (int i = 0; i < l->processes; i++)
        pids[i] = process_start(i * l->each, l->each, l->processes * l->each, &config, exported_rank, l);
    for (int i = 0; i < l->processes; i++) {
        int status = 0;
        if (i < l->processes - l->deaths) process_await(pids[i], i);
        else CHECK(waitpid(pids[i], &status, 0) == pids[i] && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                   "%s: process %d was to be killed: %#x", case_name, i, (unsigned)status);
    }
    close(port);
}

/* ---- >>late: a rank is stopped before it opens a segment, and continued when another one has its number ---- */

static int late_rank(coll_comm *comm, const void *arg)
{
    const int was = coll_rank(comm);
    float *in = coll_alloc(comm, COUNT * sizeof *in), *out = coll_alloc(comm, COUNT * sizeof *out);
    coll_comm *fresh = NULL;
    coll_status status;
    const unsigned left = 7u & ~(1u << victim);

    (void)arg;
    MUST(in && out && is_in_domain(comm, COUNT));
    for (size_t i = 0; i < COUNT; i++) in[i] = 1;
    const coll__hybrid *const hybrid = coll__hybrid_of(comm->session->context);
    board->ids[2 * was] = hybrid->tcp->segment.id;
    board->ids[2 * was + 1] = hybrid->exported->segment.id;
    MUST(coll_barrier(comm) == COLL_OK && strange() == 0);
    me = was;
    status = coll_allreduce(comm, in, out, COUNT, COLL_F32, COLL_SUM);
    me = -1;
    if (was != victim) {
        MUST(status == COLL_ERR_PEER && coll_shrink(comm, &fresh) == COLL_OK);
        coll_dealloc(comm, in);
        coll_dealloc(comm, out);
        coll_free(comm);                          /* and the segment that coll_alloc made                     */
        comm = fresh;
        MUST((in = coll_alloc(comm, COUNT * sizeof *in)) != NULL && (out = coll_alloc(comm, COUNT * sizeof *out)) != NULL);
        MUST(check_sums(comm, was, left, in, out) == 0);
        for (size_t i = 0; i < COUNT; i++) in[i] = out[i] = (float)i;
        MUST(coll_barrier(comm) == COLL_OK);
        tell_event(&board->has_next);
        await_event(&board->done[victim]);
        for (size_t i = 0; i < COUNT; i++) MUST(in[i] == (float)i && out[i] == (float)i);
        MUST(check_sums(comm, was, left, in, out) == 0);
    } else {
        while (status == COLL_OK) status = coll_barrier(comm);
        MUST(__atomic_load_n(&board->has_next, __ATOMIC_ACQUIRE) && strange() == 0);
        tell_event(&board->done[victim]);
    }
    coll_free(comm);
    return 0;
}

static void late_case(const void *arg)
{
    pid_t pids[3];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    const coll_config config = config_of(address);

    memset(board, 0, sizeof *board);
    victim = *(const int *)arg;
    stops_at_open = true;
    for (int i = 0; i < 3; i++) pids[i] = process_start(i, 1, 3, &config, late_rank, NULL);
    await_event(&board->has_next);
    kill(pids[victim], SIGCONT);
    for (int i = 0; i < 3; i++) process_await(pids[i], i);
    close(port);
}

/* The same without processes: another segment has the number. */
static void number_case(const void *arg)
{
    const size_t length = 1 << 20;
    uint64_t other = 0;
    size_t is_long = 0;
    int fd = coll__segment_make(length), next = coll__segment_make(length);
    coll__mapping right = { .region = { coll__fd_id(fd), 4096, length - 8192, 8192, (uint32_t)fd } }, wrong = right;

    (void)arg;
    CHECK(fd >= 0 && next >= 0 && coll__fd_id(fd) != coll__fd_id(next), "two segments are one");
    coll__mapping_open(&right, (uint32_t)getpid(), false);
    CHECK(right.at && !right.is_refused && right.opened == length - 8192, "it exists, and is refused");
    CHECK(dup2(next, fd) == fd, "dup2");
    coll__mapping_open(&wrong, (uint32_t)getpid(), false);
    CHECK(!wrong.at && wrong.is_refused, "another segment has the number, and is taken");
    wrong = (coll__mapping){ .region = { coll__fd_id(next), 4096, length, 4096, (uint32_t)next } };
    coll__mapping_open(&wrong, (uint32_t)getpid(), false);
    CHECK(!wrong.at && wrong.is_refused, "a region beyond the end of its segment");
    wrong.region.offset = UINT64_MAX - 4095;
    coll__mapping_open(&wrong, (uint32_t)getpid(), false);
    CHECK(!wrong.at && wrong.is_refused, "a region whose end is beyond all numbers");
    coll__segment_unmap((void *)(uintptr_t)right.at, length - 8192);
    for (int can_write = 0; can_write < 2; can_write++) {
        const int again = coll__segment_open((uint32_t)getpid(), (uint32_t)next, can_write, &other, &is_long);
        void *const at = coll__segment_map_part(again, 0, length, PROT_READ | PROT_WRITE);
        CHECK(again >= 0 && other == coll__fd_id(next) && is_long == length && (at != NULL) == can_write,
              "opened %s: %s", can_write ? "to write" : "to read", at ? "may be written" : "may not be written");
        if (at) coll__segment_unmap(at, length);
        if (again >= 0) close(again);
    }
    close(fd);
    close(next);
}

/* The kernel seals a segment against being executed, too, where vm.memfd_noexec says so. */
static void noexec_case(const void *arg)
{
    enum { NOEXEC_SEAL = 8 };
    uint64_t id = 0;
    size_t length = 0;
    int fd = (int)syscall(SYS_memfd_create, "coll", MFD_CLOEXEC | NOEXEC_SEAL);

    (void)arg;
    if (fd < 0) {
        puts("left out: this kernel has no MFD_NOEXEC_SEAL");
        return;
    }
    CHECK(!ftruncate(fd, 4096) && !fcntl(fd, F_ADD_SEALS, COLL__SEGMENT_SEALS), "a segment that is not executable");
    const int again = coll__segment_open((uint32_t)getpid(), (uint32_t)fd, true, &id, &length);
    CHECK(again >= 0 && length == 4096, "a segment that is not executable is not opened");
    if (again >= 0) close(again);
    CHECK(!fcntl(fd = (int)syscall(SYS_memfd_create, "coll", MFD_CLOEXEC | MFD_ALLOW_SEALING), F_ADD_SEALS, F_SEAL_SEAL)
          && coll__segment_open((uint32_t)getpid(), (uint32_t)fd, true, &id, &length) < 0, "one without seals is opened");
}

#if defined(__SANITIZE_ADDRESS__)
extern void __lsan_do_leak_check(void);           /* at the end it needs /proc                                */
#else
static void __lsan_do_leak_check(void) { }
#endif

/* Without /proc a host is known by its name and addresses. */
static void no_proc_case(const void *arg)
{
    char folder[] = "/tmp/coll-no-proc-XXXXXX", name[64] = "", text[256];

    (void)arg;
    CHECK(mkdtemp(folder) != NULL && !gethostname(name, sizeof name - 1), "a folder");
    __lsan_do_leak_check();
    const bool is_out = !chroot(folder);
    if (!is_out) {
        (void)rmdir(folder);
        puts("left out: no right to chroot");
        return;
    }
    coll__host_text(text, sizeof text);
    CHECK(*name && !strncmp(text, name, strlen(name)), "a host without /proc is \"%s\"", text);
}

/* ---- >>lock: a process is stopped while it holds the lock of the shared memory ---- */

typedef enum lock_what { SPLITS, FREES, WAITS } lock_what;
typedef struct held { lock_what what; int liveness_ms; const char *says; } held;

/* Meanwhile the others must get an error that names the rank, within a bound. */
static int others_go_on(coll_comm *comm, coll_comm *part, const held *h)
{
    const int64_t began = now_ms(), bound = h->liveness_ms + h->liveness_ms / 8 + 12500;
    coll_comm *more = NULL;
    const coll_call limited = { .kind = COLL_BARRIER, .timeout_ms = 1000 };
    coll_status status = COLL_OK;

    if (h->what == SPLITS) status = coll_split(comm, 0, 0, &more);
    if (h->what == FREES) coll_free(part);
    if (h->what == WAITS) {
        await_event(&board->is_held);
        status = coll_run(comm, &limited);
    }
    const int64_t took = now_ms() - began;
    if (getenv("COLL_TEST_LOG")) fprintf(stderr, "%s: rank %d: %d ms\n", case_name, coll_rank(comm), (int)took);
    if (took > support_scaled(bound)) return fprintf(stderr, "%s: it took %d ms\n", case_name, (int)took), 1;
    if (h->what == FREES) return 0;
    MUST(status == (h->what == SPLITS ? COLL_ERR_PEER : COLL_ERR_TIMEOUT) && there_says(coll_error(comm), h->says)
         && there_says(coll_error(comm), "rank 2"));
    return 0;
}

static int lock_rank(coll_comm *comm, const void *arg)
{
    const held *h = (const held *)arg;
    const int was = coll_rank(comm);
    coll_comm *part = NULL, *more = NULL;

    MUST(is_in_domain(comm, 1) && coll_dup(comm, &part) == COLL_OK && coll_barrier(part) == COLL_OK);
    me = was;
    if (was != victim) {
        const int wrong = others_go_on(comm, part, h);
        me = -1;
        tell_event(&board->done[was]);
        if (wrong) return wrong;
    } else {
        if (h->what == SPLITS) (void)coll_split(comm, 0, 0, &more);
        else coll_free(part);
        me = -1;
        if (more) coll_free(more);
    }
    if (h->what == SPLITS || (h->what == WAITS && was != victim)) coll_free(part);
    coll_free(comm);
    return 0;
}

static void lock_case(const void *arg)
{
    const held *h = (const held *)arg;
    pid_t pids[3];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    coll_config config = config_of(address);

    memset(board, 0, sizeof *board);
    config.liveness_timeout_ms = h->liveness_ms;
    victim = 2;
    stops_at_unlock = true;
    for (int i = 0; i < 3; i++) pids[i] = process_start(i, 1, 3, &config, lock_rank, h);
    for (int i = 0; i < 2; i++) await_event(&board->done[i]);
    kill(pids[victim], SIGCONT);
    for (int i = 0; i < 3; i++) process_await(pids[i], i);
    close(port);
}

/* ---- >>limits: what a process maps of it ---- */

enum { BUFFER = 40 << 20, ACCESSIBLE_MOST = 700 << 20 };

/* mlockall locks all memory that may be accessed; the remaining addresses are for the program. */
static int limits_rank(coll_comm *comm, const void *arg)
{
    const bool is_limited = *(const bool *)arg;
    char *at = (char *)coll_alloc(comm, BUFFER), *more = (char *)coll_alloc(comm, COUNT), *end;

    MUST(at && more && is_in_domain(comm, COUNT));
    memset(at, 1, BUFFER);
    for (int way = 0; way < 3; way++) {           /* whatever is opened meanwhile, others read all of it      */
        float *const in = (float *)(void *)at, *const out = (float *)(void *)(at + BUFFER / 2);
        for (size_t i = 0; i < COUNT; i++) in[i] = 1;
        MUST(coll_allreduce(comm, in, out, COUNT, COLL_F32, COLL_SUM) == COLL_OK && out[0] == (float)coll_size(comm)
             && out[COUNT - 1] == out[0]);
        MUST((end = (char *)coll_alloc(comm, BUFFER)) != NULL);
        memset(end, 1, BUFFER);
        coll_dealloc(comm, at);
        at = end;
    }
    const size_t accessible = mapped("") - mapped("---s");
    if (accessible > ACCESSIBLE_MOST) return fprintf(stderr, "%s: %zu bytes may be accessed\n", case_name, accessible), 1;
    for (int i = 0; is_limited && i < 4; i++) {
        void *const own = malloc((size_t)512 << 20);
        MUST(own != NULL);
    }
    coll_dealloc(comm, at);
    coll_dealloc(comm, more);
    MUST((at = (char *)coll_alloc(comm, (size_t)900 << 20)) != NULL);     /* more than can be shared              */
    coll_dealloc(comm, at);
    coll_free(comm);
    return 0;
}

/* Rank 0 prepares more calls than have room, though it frees them: the others have not prepared them yet. */
static int crowded_rank(coll_comm *comm, const void *arg)
{
    const coll_call call = { .kind = COLL_BARRIER };
    coll_status status = COLL_OK;
    coll_request *r;

    (void)arg;
    for (int i = 0; coll_rank(comm) == 0 && i < 100000 && status == COLL_OK; i++) {
        status = coll_prepare(comm, &call, &r);
        coll_request_free(r);
    }
    if (status == COLL_OK) status = coll_barrier(comm);
    MUST(status == COLL_ERR_MEMORY && there_says(coll_error(comm), "rank 0 has no room for more communicators and prepared calls")
         && there_says(coll_error(comm), "COLL_SHM_COLLECTIVES=off"));
    coll_free(comm);
    return 0;
}

static void crowded_case(const void *arg)
{
    pid_t pids[2];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    const coll_config config = config_of(address);

    for (int i = 0; i < 2; i++) pids[i] = process_start(i, 1, 2, &config, crowded_rank, arg);
    for (int i = 0; i < 2; i++) process_await(pids[i], i);
    close(port);
}

static void limits_case(const void *arg)
{
    const bool is_limited = *(const bool *)arg;
    const struct rlimit few = { (rlim_t)6 << 30, (rlim_t)6 << 30 };
    pid_t pids[3];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    const coll_config config = config_of(address);

    if (is_limited && setrlimit(RLIMIT_AS, &few)) exit(2);
    for (int i = 0; i < 3; i++) pids[i] = process_start(i, 1, 3, &config, limits_rank, arg);
    for (int i = 0; i < 3; i++) process_await(pids[i], i);
    close(port);
}

/* Files may not be longer than this: no signal, and the same results. */
static int short_rank(coll_comm *comm, const void *arg)
{
    float *in = (float *)coll_alloc(comm, COUNT * sizeof *in), *out = (float *)coll_alloc(comm, COUNT * sizeof *out);

    MUST(in && out && is_in_domain(comm, 1) == *(const bool *)arg && check_sums(comm, coll_rank(comm), 7, in, out) == 0);
    coll_dealloc(comm, in);
    coll_dealloc(comm, out);
    coll_free(comm);
    return 0;
}

static void short_case(const void *arg)
{
    const rlim_t most = *(const rlim_t *)arg;
    const bool has_domain = most >= COLL__SEGMENT_LENGTH;
    pid_t pids[3];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    const coll_config config = config_of(address);

    if (setrlimit(RLIMIT_FSIZE, &(const struct rlimit){ most, most })) exit(2);
    for (int i = 0; i < 3; i++) pids[i] = process_start(i, 1, 3, &config, short_rank, &has_domain);
    for (int i = 0; i < 3; i++) process_await(pids[i], i);
    close(port);
}

static void run_exported(void)
{
    static const dying all[] = { { 3, 1, 1, false }, { 3, 1, 1, true }, { 5, 1, 2, false }, { 5, 1, 2, true }, { 3, 2, 1, false },
                                { 3, 2, 1, true } };
    char name[100];

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        snprintf(name, sizeof name, "%d processes of %d, %d killed, old communicators freed %s", all[i].processes, all[i].each,
                 all[i].deaths, all[i].keeps_old ? "last" : "first");
        run_case_within(LIMIT_SECONDS, exported_case, &all[i], name);
    }
}

static void run_limits(void)
{
    static const rlim_t most[] = { 4096, 64 << 10, 1 << 20, (64 << 20) - 4096, 64 << 20, 100 << 20 };
    const bool with = true, without = false;
    char name[60];

    run_case_within(LIMIT_SECONDS, limits_case, &without, "what may be accessed");
    run_case_within(LIMIT_SECONDS, crowded_case, NULL, "no room for a prepared call");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)    /* sanitizers need terabytes of addresses  */
    run_case_within(LIMIT_SECONDS, limits_case, &with, "few addresses");
#else
    (void)with;
#endif
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        snprintf(name, sizeof name, "files of %d bytes", (int)most[i]);
        run_case_within(LIMIT_SECONDS, short_case, &most[i], name);
    }
}

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;
    static const int who[] = { 0, 1, 2 };
    static const held helds[] = { { SPLITS, LIVENESS_MS, "" }, { SPLITS, 60000, "has had the lock of the memory" },
                                  { FREES, LIVENESS_MS, "" }, { WAITS, 60000, "" } };
    static const char *const names[] = { "coll_split", "coll_split, before the heartbeat tells", "coll_free", "a barrier" };
    char name[100];

    cases_begin();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return perror("mmap"), 1;
    world = "segments";
    if (support_listed(parts, "exported")) run_exported();
    if (support_listed(parts, "late")) run_case_within(LIMIT_SECONDS, number_case, NULL, "another segment under a number");
    if (support_listed(parts, "late")) run_case_within(LIMIT_SECONDS, noexec_case, NULL, "vm.memfd_noexec");
    if (support_listed(parts, "late")) run_case_within(LIMIT_SECONDS, no_proc_case, NULL, "no /proc");
    for (int i = 0; i < 3 && support_listed(parts, "late"); i++) {
        snprintf(name, sizeof name, "rank %d opens late", who[i]);
        run_case_within(LIMIT_SECONDS, late_case, &who[i], name);
    }
    for (int i = 0; i < 4 && support_listed(parts, "lock"); i++) {
        snprintf(name, sizeof name, "stopped with the lock: the others are in %s", names[i]);
        run_case_within(LIMIT_SECONDS, lock_case, &helds[i], name);
    }
    if (support_listed(parts, "limits")) run_limits();
    return CHECK_DONE();
}

#else

#include <stdio.h>

int main(void) { return puts("segments: skipped: this library shares no memory between processes") < 0; }

#endif
