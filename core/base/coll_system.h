/* coll_system.h - what the library asks of the system, in one vocabulary: clock, threads, waiting for a word, bells, random
 * bytes, processors, memory, forks.  What sockets take beyond that is in transports/tcp/coll_tcp_system.h and coll_tcp_watch.h.
 * Where there is no system (COLL_NO_OS), coll_bare.h stands in its place.
 *
 * There are two halves.  The first is for Linux, and uses what only Linux has: futex, membarrier, eventfd, pages that the kernel
 * wipes in a fork.  The second uses what POSIX has, and is taken where __linux__ is not defined, and with
 * COLL_PORTABLE.  There a sleeping thread is woken through a mutex and a condition, a bell is a pipe, and a message between
 * threads takes a full barrier on both sides.  Processes of one host meet over TCP (COLL_NO_SHM), and TCP runs on poll
 * (COLL_NO_URING).
 *
 * It uses nothing else of the library, so that the launcher can have it, too. */
#ifndef COLL_SYSTEM_H
#define COLL_SYSTEM_H

#if !defined(__linux__) && !defined(COLL_PORTABLE)
#define COLL_PORTABLE 1
#endif

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/random.h>
#endif

#define COLL__UNUSED __attribute__((unused))
#define COLL__THREAD_LOCAL __thread

enum { COLL__LINE = 128 };                        /* bytes that two cores never share: a pair of cache lines  */

enum { COLL__SECOND = 1000000000 };               /* in nanoseconds                                           */

/* ---- >>clock: monotonic, in nanoseconds ---- */

enum { COLL__HAS_CLOCK = 1 };

static inline int64_t coll__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * COLL__SECOND + t.tv_nsec;
}

static COLL__UNUSED void coll__nap(long us)
{
    const struct timespec time = { us / 1000000, us % 1000000 * 1000 };
    (void)nanosleep(&time, NULL);
}

/* ---- >>threads ---- */

typedef pthread_t       coll__thread_id;
typedef pthread_mutex_t coll__lock;
typedef pthread_cond_t  coll__cond;

enum { COLL__MANY_THREADS = 1 };                  /* a program may have others than this one                */

/* In how many functions of the program that the library has called this thread is: operations, log hooks. */
static COLL__THREAD_LOCAL COLL__UNUSED int coll__callbacks;

static inline void coll__callback_begin(void) { coll__callbacks++; }
static inline void coll__callback_end(void) { coll__callbacks--; }

/* Set a flag.  Returns what it was. */
static inline int coll__flag_set(int *flag) { return __atomic_exchange_n(flag, 1, __ATOMIC_ACQ_REL); }

static inline coll__thread_id coll__thread_self(void) { return pthread_self(); }
static inline bool coll__thread_is(coll__thread_id a, coll__thread_id b) { return pthread_equal(a, b); }
static inline void coll__thread_end(coll__thread_id thread) { pthread_join(thread, NULL); }
static inline void coll__yield(void) { sched_yield(); }

/* None of these can fail with default attributes. */
static inline void coll__lock_init(coll__lock *lock) { pthread_mutex_init(lock, NULL); }
static inline void coll__lock_free(coll__lock *lock) { pthread_mutex_destroy(lock); }
static inline void coll__lock_take(coll__lock *lock) { pthread_mutex_lock(lock); }
static inline void coll__lock_drop(coll__lock *lock) { pthread_mutex_unlock(lock); }

static inline void coll__cond_free(coll__cond *cond) { pthread_cond_destroy(cond); }
static inline void coll__cond_wake(coll__cond *cond) { pthread_cond_broadcast(cond); }
static inline void coll__cond_wait(coll__cond *cond, coll__lock *lock) { pthread_cond_wait(cond, lock); }

#if !defined(_POSIX_CLOCK_SELECTION) || _POSIX_CLOCK_SELECTION <= 0

/* A condition that knows the clock on the wall only, as on macOS: a wait while that is set is longer or shorter by as much. */
static COLL__UNUSED void coll__cond_init(pthread_cond_t *cond) { pthread_cond_init(cond, NULL); }

static COLL__UNUSED int coll__cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    const int64_t at = (int64_t)wall.tv_sec * COLL__SECOND + wall.tv_nsec + until - coll__now();
    wall = (struct timespec){ (time_t)(at / COLL__SECOND), (long)(at % COLL__SECOND) };
    return pthread_cond_timedwait(cond, lock, &wall);
}

#else

/* A condition that keeps the time of coll__now. */
static COLL__UNUSED void coll__cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Gives 0, or ETIMEDOUT. */
static COLL__UNUSED int coll__cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until)
{
    const struct timespec at = { (time_t)(until / COLL__SECOND), (long)(until % COLL__SECOND) };
    return pthread_cond_timedwait(cond, lock, &at);
}

#endif

/* ---- >>threads: begun ---- */

/* Begin one of the program's; 0, or an errno. */
static COLL__UNUSED int coll__worker_begin(coll__thread_id *thread, void *(*main)(void *), void *arg)
{
    return pthread_create(thread, NULL, main, arg);
}

/* Begin one of the library's own, that takes no signals, with a small stack; 0, or an errno.  Thread-local variables of the
 * program may lie on that stack, so that where it is too small the system's usual one is taken. */
static COLL__UNUSED int coll__thread_begin(coll__thread_id *thread, size_t stack, void *(*main)(void *), void *arg)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int error = pthread_attr_init(&attributes);

    if (error) return error;
    (void)pthread_attr_setstacksize(&attributes, stack);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attributes, main, arg);
    if (error == EINVAL) error = pthread_create(thread, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* ---- >>memory and files ---- */

/* Zeroed memory of whole pages that nobody has touched yet, or NULL: each comes to lie near the processor that is the first to
 * write to it. */
static COLL__UNUSED void *coll__reserve(size_t length)
{
    void *at = mmap(NULL, length ? length : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static COLL__UNUSED void coll__unreserve(void *at, size_t length)
{
    if (at) munmap(at, length ? length : 1);
}

/* A descriptor that was just made, or -1.  It is moved above 0 to 2: where the program has closed one of these, what it writes to
 * standard output or error must not go into a connection.  -1 with errno: there is none left. */
static COLL__UNUSED int coll__fd_above(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    const int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error;
    return above;
}

static COLL__UNUSED void coll__close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Bytes that cannot be predicted.  false: the system has none. */
static COLL__UNUSED bool coll__random(unsigned char *out, size_t length)
{
    for (size_t n; length > 0; out += n, length -= n) {
        n = length < 256 ? length : 256;          /* getentropy gives no more at once                         */
        if (getentropy(out, n)) return false;
    }
    return true;
}

/* ---- >>signals that writing raises ---- */

/* Writing to a pipe without a reader raises SIGPIPE, and to a file at its limit SIGXFSZ.  Neither may end the program for a line
 * of ours: they are blocked, and what our own writing has raised is taken. */
static COLL__UNUSED void coll__signals_hold(sigset_t *before, sigset_t *pending)
{
    sigset_t raised;

    sigemptyset(&raised);
    sigaddset(&raised, SIGPIPE);
    sigaddset(&raised, SIGXFSZ);
    sigpending(pending);
    pthread_sigmask(SIG_BLOCK, &raised, before);
}

static COLL__UNUSED void coll__signals_drop(const sigset_t *before, const sigset_t *pending)
{
    static const int raised[] = { SIGPIPE, SIGXFSZ };
    sigset_t now, one;
    int number;

    sigpending(&now);
    for (size_t i = 0; i < sizeof raised / sizeof *raised; i++) {
        if (!sigismember(&now, raised[i]) || sigismember(pending, raised[i])) continue;
        sigemptyset(&one);
        sigaddset(&one, raised[i]);
        sigwait(&one, &number);
    }
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* ---- >>bell: a descriptor that can be read from once somebody has rung; by any thread, and in a signal handler ---- */

typedef struct coll__bell {
    int fd;                                       /* readable when it has rung; -1: there is none             */
    int rope;                                     /* what a ring is written to; on Linux the same one         */
} coll__bell;

static const coll__bell coll__no_bell = { -1, -1 };

static COLL__UNUSED void coll__bell_ring(const coll__bell *bell)
{
    const uint64_t once = 1;
    (void)!write(bell->rope, &once, sizeof once);
}

/* It is silent then, until it is rung again. */
static COLL__UNUSED void coll__bell_hear(const coll__bell *bell)
{
    uint64_t rung[8];
    while (read(bell->fd, rung, sizeof rung) == (ssize_t)sizeof rung) continue;
}

static COLL__UNUSED void coll__bell_close(coll__bell *bell)
{
    if (bell->fd >= 0) close(bell->fd);
    if (bell->rope >= 0 && bell->rope != bell->fd) close(bell->rope);
    *bell = coll__no_bell;
}

/* The same bell for somebody else, who closes it himself.  coll__no_bell: no descriptor is left. */
static COLL__UNUSED coll__bell coll__bell_share(const coll__bell *bell)
{
    coll__bell shared = { fcntl(bell->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), -1 };

    if (shared.fd < 0) return coll__no_bell;
    shared.rope = bell->rope == bell->fd ? shared.fd : fcntl(bell->rope, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (shared.rope < 0) coll__bell_close(&shared);
    return shared;
}

/* One that is a pipe, which other processes can open, too.  0, or an errno. */
static COLL__UNUSED int coll__bell_open_pipe(coll__bell *bell)
{
    int ends[2];

    *bell = coll__no_bell;
    if (pipe(ends)) return errno;
    for (int i = 0; i < 2; i++) ends[i] = coll__fd_above(ends[i]);
    if (ends[0] < 0 || ends[1] < 0) {
        const int error = errno;
        for (int i = 0; i < 2; i++) coll__close_fd(&ends[i]);
        return error;
    }
    for (int i = 0; i < 2; i++) {
        (void)fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        (void)fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    *bell = (coll__bell){ ends[0], ends[1] };
    return 0;
}

#if !defined(COLL_PORTABLE)

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

/* ---- >>Linux ---- */

/* 0, or an errno. */
static COLL__UNUSED int coll__bell_open(coll__bell *bell)
{
    bell->fd = bell->rope = coll__fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return bell->fd < 0 ? errno : 0;
}

static inline void coll__futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
    (void)syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/* Sleep until somebody changes the word and wakes us, unless it has changed already; for so long, or less for no reason. */
static COLL__UNUSED void coll__word_wait(uint32_t *word, uint32_t value, int wait_ms)
{
    const struct timespec t = { wait_ms / 1000, (long)(wait_ms % 1000) * 1000000 };
    coll__futex(word, FUTEX_WAIT, value, &t);
}

/* Wake all who sleep on a word that has changed. */
static COLL__UNUSED void coll__word_wake(uint32_t *word) { coll__futex(word, FUTEX_WAKE, INT_MAX, NULL); }

/* The same in a signal handler. */
static COLL__UNUSED void coll__word_alarm(uint32_t *word) { coll__word_wake(word); }

/* Have every thread of this process that runs execute a full barrier, so that the threads in a hurry need none of their own.
 * false: the kernel cannot. */
static COLL__UNUSED bool coll__membarrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static COLL__UNUSED void coll__membarrier(void) { (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }

/* The processors that this process may use, a bit for each.  Gives the words that were written, 0: it is not known. */
static COLL__UNUSED size_t coll__processor_mask(uint64_t *mask, size_t words)
{
    const long got = syscall(SYS_sched_getaffinity, 0, words * sizeof *mask, mask);
    return got > 0 ? ((size_t)got + sizeof *mask - 1) / sizeof *mask : 0;
}

/* Memory for many stacks, of which only what is touched is taken; NULL: there is none. */
static COLL__UNUSED void *coll__reserve_stacks(size_t length)
{
    void *all = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

    if (all == MAP_FAILED) return NULL;
    (void)madvise(all, length, MADV_NOHUGEPAGE);
    return all;
}

/* A byte that reads 1, and 0 in a forked child, whose copy of the page the kernel wipes.  NULL: no memory. */
static COLL__UNUSED unsigned char *coll__fork_guard(void)
{
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) return NULL;
#if defined(MADV_WIPEONFORK)
    (void)madvise(page, 1, MADV_WIPEONFORK);      /* kernels before 4.14 lack it: then a fork goes unnoticed    */
#endif
    *(unsigned char *)page = 1;
    return (unsigned char *)page;
}

static COLL__UNUSED void coll__fork_guard_free(unsigned char *guard)
{
    if (guard) munmap(guard, 1);
}

#else

/* ---- >>any POSIX system ---- */

static COLL__UNUSED int coll__bell_open(coll__bell *bell) { return coll__bell_open_pipe(bell); }

/* Who sleeps on a word does so on the condition of its place in a table; others there wake up for no reason.  A sleep has an end,
 * for a signal handler can wake nobody: it may take no lock. */
enum { COLL__BEDS = 16, COLL__SLEEP_PORTABLE_MS = 50 };

typedef struct coll__bed {
    pthread_mutex_t lock;
    pthread_cond_t  woken;
} coll__bed;

static struct coll__dormitory {
    pthread_once_t once;
    coll__bed beds[COLL__BEDS];
} coll__dormitory = { .once = PTHREAD_ONCE_INIT };

static void coll__beds_make(void)
{
    for (int i = 0; i < COLL__BEDS; i++) {
        pthread_mutex_init(&coll__dormitory.beds[i].lock, NULL);
        coll__cond_init(&coll__dormitory.beds[i].woken);
    }
}

static coll__bed *coll__bed_of(const uint32_t *word)
{
    const uint32_t number = (uint32_t)((uintptr_t)word >> 6);

    (void)pthread_once(&coll__dormitory.once, coll__beds_make);
    return &coll__dormitory.beds[(number * 2654435769u) >> 28];
}

static COLL__UNUSED void coll__word_wait(uint32_t *word, uint32_t value, int wait_ms)
{
    coll__bed *bed = coll__bed_of(word);
    const int ms = wait_ms < COLL__SLEEP_PORTABLE_MS ? wait_ms : COLL__SLEEP_PORTABLE_MS;
    const int64_t until = coll__now() + (int64_t)ms * 1000000;

    pthread_mutex_lock(&bed->lock);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value) (void)coll__cond_wait_until(&bed->woken, &bed->lock, until);
    pthread_mutex_unlock(&bed->lock);
}

/* Whoever has seen the old value under the lock sleeps by the time we have it. */
static COLL__UNUSED void coll__word_wake(uint32_t *word)
{
    coll__bed *bed = coll__bed_of(word);

    pthread_mutex_lock(&bed->lock);
    pthread_cond_broadcast(&bed->woken);
    pthread_mutex_unlock(&bed->lock);
}

static COLL__UNUSED void coll__word_alarm(uint32_t *word) { (void)word; }

static COLL__UNUSED bool coll__membarrier_register(void) { return false; }
static COLL__UNUSED void coll__membarrier(void) {}

/* Those of the machine: POSIX does not tell to which of them a process is bound. */
static COLL__UNUSED size_t coll__processor_mask(uint64_t *mask, size_t words)
{
    const long there = sysconf(_SC_NPROCESSORS_ONLN);

    memset(mask, 0, words * sizeof *mask);
    for (size_t i = 0; there > 0 && i < (size_t)there && i < 64 * words; i++) mask[i / 64] |= UINT64_C(1) << i % 64;
    return there > 0 ? words : 0;
}

static COLL__UNUSED void *coll__reserve_stacks(size_t length)
{
    void *all = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return all == MAP_FAILED ? NULL : all;
}

/* A byte for each generation of processes: a function that fork runs in the child clears that of its parent.  It also makes the
 * beds anew, because a thread that the child does not have may hold their locks.  Forks of forks beyond so many go unnoticed. */
enum { COLL__FORKS_MOST = 1024 };

static struct coll__forks {
    pthread_once_t once;
    int            error, generation;
    unsigned char  is_ours[COLL__FORKS_MOST];
} coll__forks = { .once = PTHREAD_ONCE_INIT, .is_ours = { 1 } };

static void coll__forks_in_child(void)
{
    coll__forks.is_ours[coll__forks.generation] = 0;
    if (coll__forks.generation + 1 < COLL__FORKS_MOST) coll__forks.generation++;
    coll__forks.is_ours[coll__forks.generation] = 1;
    coll__beds_make();
}

static void coll__forks_make(void) { coll__forks.error = pthread_atfork(NULL, NULL, coll__forks_in_child); }

static COLL__UNUSED unsigned char *coll__fork_guard(void)
{
    (void)pthread_once(&coll__forks.once, coll__forks_make);
    return coll__forks.error ? NULL : &coll__forks.is_ours[coll__forks.generation];
}

static COLL__UNUSED void coll__fork_guard_free(unsigned char *guard) { (void)guard; }

#endif
#endif /* COLL_SYSTEM_H */
