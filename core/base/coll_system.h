/* coll_system.h - the interface to the system: clock, threads, waiting for a word, doorbells, random bytes, processors, memory,
 * forks.  For sockets see transports/tcp/coll_tcp_system.h and coll_tcp_watch.h.  Without a system (COLL_NO_OS)
 * coll_system_none.h replaces it.
 *
 * The Linux part uses futex, membarrier, eventfd, and pages that are wiped in a fork.  The POSIX part is used if __linux__ is
 * not defined, or with COLL_PORTABLE.  There, threads are woken through a mutex and a condition, and a doorbell is a pipe.  A
 * message between threads takes a full barrier on both sides.  Processes of one host use TCP (COLL_NO_SHM), and TCP uses poll
 * (COLL_NO_URING).
 *
 * It uses nothing else of the library: the launcher includes it, too. */
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

enum { COLL__LINE = 128 };                        /* bytes that two cores never share: two cache lines        */

enum { COLL__SECOND = 1000000000 };               /* in nanoseconds                                           */

/* ---- >>clock: monotonic, in nanoseconds ---- */

enum { COLL__HAS_CLOCK = 1 };

static inline int64_t coll__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * COLL__SECOND + t.tv_nsec;
}

static COLL__UNUSED void coll__delay(long us)
{
    const struct timespec time = { us / 1000000, us % 1000000 * 1000 };
    (void)nanosleep(&time, NULL);
}

/* ---- >>threads ---- */

typedef pthread_t       coll__thread_id;
typedef pthread_mutex_t coll__lock;
typedef pthread_cond_t  coll__cond;

enum { COLL__MANY_THREADS = 1 };                  /* a program may have several threads                     */

/* Number of functions of the program (operations, log hooks) that this thread is in, called by the library. */
static COLL__THREAD_LOCAL COLL__UNUSED int coll__callbacks;

static inline void coll__callback_begin(void) { coll__callbacks++; }
static inline void coll__callback_end(void) { coll__callbacks--; }

/* Set a flag; returns its old value. */
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

/* A condition with the wall clock only, as on macOS: if that is set during a wait, the wait is longer or shorter by as much. */
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

/* A condition with the clock of coll__now. */
static COLL__UNUSED void coll__cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Returns 0 or ETIMEDOUT. */
static COLL__UNUSED int coll__cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until)
{
    const struct timespec at = { (time_t)(until / COLL__SECOND), (long)(until % COLL__SECOND) };
    return pthread_cond_timedwait(cond, lock, &at);
}

#endif

/* ---- >>starting threads ---- */

/* Start a thread for the program.  Returns 0 or an errno. */
static COLL__UNUSED int coll__worker_begin(coll__thread_id *thread, void *(*main)(void *), void *arg)
{
    return pthread_create(thread, NULL, main, arg);
}

#if !defined(COLL_PORTABLE)

#include <link.h>

/* What only _GNU_SOURCE declares: struct dl_phdr_info, as far as it is looked at, and dl_iterate_phdr. */
typedef struct coll__module { ElfW(Addr) at; const char *name; const ElfW(Phdr) *parts; ElfW(Half) count; } coll__module;
extern int coll__each_module(int (*look)(coll__module *module, size_t length, void *sum), void *sum) __asm__("dl_iterate_phdr");

static int coll__add_locals(coll__module *module, size_t length, void *sum)
{
    for (int i = 0; i < module->count; i++)
        if (module->parts[i].p_type == PT_TLS) *(size_t *)sum += module->parts[i].p_memsz + module->parts[i].p_align;
    return (void)length, 0;
}

/* Bytes of the thread-local variables of the program and its libraries.  glibc takes them from the stack of each thread. */
static COLL__UNUSED size_t coll__locals(void)
{
    size_t sum = 0;

    (void)coll__each_module(coll__add_locals, &sum);
    return sum;
}

#else

static COLL__UNUSED size_t coll__locals(void) { return 0; }

#endif

/* Start a thread of the library, with all signals blocked and a small stack beside the thread-local variables.  Returns 0 or an
 * errno.  If the stack is too small for the system, the default size is used. */
static COLL__UNUSED int coll__thread_begin(coll__thread_id *thread, size_t stack, void *(*main)(void *), void *arg)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int error = pthread_attr_init(&attributes);

    if (error) return error;
    (void)pthread_attr_setstacksize(&attributes, stack + coll__locals());
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attributes, main, arg);
    if (error == EINVAL) error = pthread_create(thread, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* ---- >>memory and files ---- */

/* Zeroed, untouched pages; NULL: no memory.  Each page is placed near the processor that writes to it first. */
static COLL__UNUSED void *coll__reserve(size_t length)
{
    void *at = mmap(NULL, length ? length : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static COLL__UNUSED void coll__unreserve(void *at, size_t length)
{
    if (at) munmap(at, length ? length : 1);
}

/* Move a new descriptor (or -1) above 0 to 2: if the program has closed these, its output must not go into a connection. -1
 * with errno: none left. */
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

/* Unpredictable bytes. false: the system has none. */
static COLL__UNUSED bool coll__random(unsigned char *out, size_t length)
{
    for (size_t n; length > 0; out += n, length -= n) {
        n = length < 256 ? length : 256;          /* limit of getentropy                                      */
        if (getentropy(out, n)) return false;
    }
    return true;
}

/* ---- >>signals raised by writing ---- */

/* Writing to a pipe without a reader raises SIGPIPE, to a file at its limit SIGXFSZ.  Neither may end the program: both are
 * blocked, and those raised by our own writes are consumed. */
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

/* ---- >>doorbell: a descriptor that becomes readable when any thread, or a signal handler, rings it ---- */

typedef struct coll__doorbell {
    int fd;                                       /* readable after a ring; -1: none                          */
    int write_fd;                                 /* written by a ring; on Linux the same one                 */
} coll__doorbell;

static const coll__doorbell coll__no_doorbell = { -1, -1 };

static COLL__UNUSED void coll__doorbell_ring(const coll__doorbell *doorbell)
{
    const uint64_t once = 1;
    (void)!write(doorbell->write_fd, &once, sizeof once);
}

/* Clear it until the next ring. */
static COLL__UNUSED void coll__doorbell_clear(const coll__doorbell *doorbell)
{
    uint64_t rung[8];
    while (read(doorbell->fd, rung, sizeof rung) == (ssize_t)sizeof rung) continue;
}

static COLL__UNUSED void coll__doorbell_close(coll__doorbell *doorbell)
{
    if (doorbell->fd >= 0) close(doorbell->fd);
    if (doorbell->write_fd >= 0 && doorbell->write_fd != doorbell->fd) close(doorbell->write_fd);
    *doorbell = coll__no_doorbell;
}

/* A duplicate with its own descriptors, which its user closes. coll__no_doorbell: no descriptor is left. */
static COLL__UNUSED coll__doorbell coll__doorbell_share(const coll__doorbell *doorbell)
{
    coll__doorbell shared = { fcntl(doorbell->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), -1 };

    if (shared.fd < 0) return coll__no_doorbell;
    shared.write_fd = doorbell->write_fd == doorbell->fd ? shared.fd
                      : fcntl(doorbell->write_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (shared.write_fd < 0) coll__doorbell_close(&shared);
    return shared;
}

/* A doorbell that is a pipe, which other processes can open.  Returns 0 or an errno. */
static COLL__UNUSED int coll__doorbell_open_pipe(coll__doorbell *doorbell)
{
    int ends[2];

    *doorbell = coll__no_doorbell;
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
    *doorbell = (coll__doorbell){ ends[0], ends[1] };
    return 0;
}

#if !defined(COLL_PORTABLE)

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

/* ---- >>Linux ---- */

/* Returns 0 or an errno. */
static COLL__UNUSED int coll__doorbell_open(coll__doorbell *doorbell)
{
    doorbell->fd = doorbell->write_fd = coll__fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return doorbell->fd < 0 ? errno : 0;
}

static inline void coll__futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
    (void)syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/* Sleep while *word == value, until it is woken or wait_ms have passed.  May wake spuriously. */
static COLL__UNUSED void coll__word_wait(uint32_t *word, uint32_t value, int wait_ms)
{
    const struct timespec t = { wait_ms / 1000, (long)(wait_ms % 1000) * 1000000 };
    coll__futex(word, FUTEX_WAIT, value, &t);
}

/* Wake all threads that sleep on a word. */
static COLL__UNUSED void coll__word_wake(uint32_t *word) { coll__futex(word, FUTEX_WAKE, INT_MAX, NULL); }

/* The same in a signal handler. */
static COLL__UNUSED void coll__word_alarm(uint32_t *word) { coll__word_wake(word); }

/* Enable membarrier: it makes all running threads of this process execute a full barrier, so that fast paths need none. false:
 * not supported. */
static COLL__UNUSED bool coll__membarrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static COLL__UNUSED void coll__membarrier(void) { (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }

/* The processors usable by this process, one bit each.  Returns the words written, 0: unknown. */
static COLL__UNUSED size_t coll__processor_mask(uint64_t *mask, size_t words)
{
    const long got = syscall(SYS_sched_getaffinity, 0, words * sizeof *mask, mask);
    return got > 0 ? ((size_t)got + sizeof *mask - 1) / sizeof *mask : 0;
}

/* Memory for many stacks; untouched pages take none.  NULL: no memory. */
static COLL__UNUSED void *coll__reserve_stacks(size_t length)
{
    void *all = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

    if (all == MAP_FAILED) return NULL;
    (void)madvise(all, length, MADV_NOHUGEPAGE);
    return all;
}

/* A byte that is 1, and 0 in a forked child, where the kernel wipes the page.  NULL: no memory. */
static COLL__UNUSED unsigned char *coll__fork_guard(void)
{
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) return NULL;
#if defined(MADV_WIPEONFORK)
    (void)madvise(page, 1, MADV_WIPEONFORK);      /* before Linux 4.14 forks are not detected                 */
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

static COLL__UNUSED int coll__doorbell_open(coll__doorbell *doorbell) { return coll__doorbell_open_pipe(doorbell); }

/* A thread that sleeps on a word uses the condition of its entry in a table; others there wake spuriously.  Sleeps are short,
 * because a signal handler cannot wake a thread: it may take no lock. */
enum { COLL__WAIT_SLOTS = 16, COLL__SLEEP_PORTABLE_MS = 50 };

typedef struct coll__wait_slot {
    pthread_mutex_t lock;
    pthread_cond_t  woken;
} coll__wait_slot;

static struct coll__wait_table {
    pthread_once_t once;
    coll__wait_slot wait_slots[COLL__WAIT_SLOTS];
} coll__wait_table = { .once = PTHREAD_ONCE_INIT };

static void coll__wait_slots_make(void)
{
    for (int i = 0; i < COLL__WAIT_SLOTS; i++) {
        pthread_mutex_init(&coll__wait_table.wait_slots[i].lock, NULL);
        coll__cond_init(&coll__wait_table.wait_slots[i].woken);
    }
}

static coll__wait_slot *coll__wait_slot_of(const uint32_t *word)
{
    const uint32_t number = (uint32_t)((uintptr_t)word >> 6);

    (void)pthread_once(&coll__wait_table.once, coll__wait_slots_make);
    return &coll__wait_table.wait_slots[(number * 2654435769u) >> 28];
}

static COLL__UNUSED void coll__word_wait(uint32_t *word, uint32_t value, int wait_ms)
{
    coll__wait_slot *wait_slot = coll__wait_slot_of(word);
    const int ms = wait_ms < COLL__SLEEP_PORTABLE_MS ? wait_ms : COLL__SLEEP_PORTABLE_MS;
    const int64_t until = coll__now() + (int64_t)ms * 1000000;

    pthread_mutex_lock(&wait_slot->lock);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value) (void)coll__cond_wait_until(&wait_slot->woken, &wait_slot->lock, until);
    pthread_mutex_unlock(&wait_slot->lock);
}

/* A thread that saw the old value under the lock sleeps before we get the lock. */
static COLL__UNUSED void coll__word_wake(uint32_t *word)
{
    coll__wait_slot *wait_slot = coll__wait_slot_of(word);

    pthread_mutex_lock(&wait_slot->lock);
    pthread_cond_broadcast(&wait_slot->woken);
    pthread_mutex_unlock(&wait_slot->lock);
}

static COLL__UNUSED void coll__word_alarm(uint32_t *word) { (void)word; }

static COLL__UNUSED bool coll__membarrier_register(void) { return false; }
static COLL__UNUSED void coll__membarrier(void) {}

/* All processors: POSIX has no affinity. */
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

/* One byte for each generation of processes: a fork handler clears the parent's byte in the child.  It also initializes the
 * table again, because threads that the child lacks may hold its locks.  More generations than this are not detected. */
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
    coll__wait_slots_make();
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
