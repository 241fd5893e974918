/* coll_system.h - what the library asks of the operating system: time, processors, memory, threads, files.  Where there is none
 * (COLL_NO_OS), coll_bare.h stands in its place. */
#ifndef COLL_SYSTEM_H
#define COLL_SYSTEM_H

#include "../../coll.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#if !defined(COLL_NO_STDIO)
#include <stdio.h>
#endif
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COLL__THREAD_LOCAL __thread

enum { COLL__LINE = 128 };                        /* bytes that two cores never share: a pair of cache lines  */

/* ---- >>clock: monotonic, in nanoseconds ---- */

static inline int64_t coll__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Sleep. */
static inline void coll__nap(long us)
{
    const struct timespec time = { us / 1000000, us % 1000000 * 1000 };
    (void)nanosleep(&time, NULL);
}

/* ---- >>processors ---- */

/* Have every thread of this process that runs execute a full barrier, so that the threads in a hurry need none of their own.
 * false: the kernel cannot. */
static inline bool coll__membarrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static inline void coll__membarrier(void) { (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }

/* The processors that this process may use, a bit for each, and their number; those beyond 64 share the bits of the first. */
static inline uint64_t coll__processor_set(int *count)
{
    uint64_t mask[1024 / 64] = { 0 }, set = 0;
    const long got = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);

    *count = 0;
    for (long i = 0; 8 * i < got; i++) {
        *count += __builtin_popcountll(mask[i]);
        set |= mask[i];
    }
    if (*count > 0) return set;
    *count = 1;
    return 1;
}

static inline int coll__processors(void)
{
    int count;

    (void)coll__processor_set(&count);
    return count;
}

/* How many processors there are in the sets of several processes of one host together; `most` and `sum` of their numbers.  Beyond
 * 64 the sets do not tell: either all processes have the same ones, or each is bound to some of its own. */
static inline int coll__processors_together(uint64_t set, int most, int sum)
{
    const int several = __builtin_popcountll(set);

    if (several < 64) return several > most ? several : most;
    return most < 64 ? sum : most;
}

#if !defined(COLL_NO_STDIO)

/* Bytes of the largest cache that a processor reaches; what it usually is where the system does not say. */
static inline size_t coll__cache_length(void)
{
    size_t longest = 0;

    for (int i = 0; i < 8; i++) {
        char path[80], unit = 0;
        size_t length = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *file = fopen(path, "re");
        if (!file) break;
        if (fscanf(file, "%zu%c", &length, &unit) < 1) length = 0;
        fclose(file);
        length *= unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1;
        if (length > longest) longest = length;
    }
    return longest ? longest : (size_t)16 << 20;
}

#else

static inline size_t coll__cache_length(void) { return (size_t)16 << 20; }

#endif

/* ---- >>memory ---- */

/* Zeroed memory of whole pages that nobody has touched yet, or NULL: each comes to lie near the processor that is the first to
 * write to it. */
static inline void *coll__reserve(size_t length)
{
    void *at = mmap(NULL, length ? length : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static inline void coll__unreserve(void *at, size_t length)
{
    if (at) munmap(at, length ? length : 1);
}

/* A word that reads 1, and 0 in a forked child, whose copy of the page the kernel wipes.  NULL: no memory. */
static inline unsigned char *coll__fork_guard(void)
{
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) return NULL;
#if defined(MADV_WIPEONFORK)
    (void)madvise(page, 1, MADV_WIPEONFORK);      /* kernels before 4.14 lack it: then a fork goes unnoticed    */
#endif
    *(unsigned char *)page = 1;
    return (unsigned char *)page;
}

static inline void coll__fork_guard_free(unsigned char *guard)
{
    if (guard) munmap(guard, 1);
}

/* ---- >>threads ---- */

typedef pthread_t       coll__thread_id;
typedef pthread_mutex_t coll__lock;
typedef pthread_cond_t  coll__bell;               /* its times are those of coll__now                         */

static inline coll__thread_id coll__thread_self(void) { return pthread_self(); }
static inline bool coll__thread_is(coll__thread_id a, coll__thread_id b) { return pthread_equal(a, b); }
static inline void coll__thread_end(coll__thread_id thread) { pthread_join(thread, NULL); }
static inline void coll__yield(void) { sched_yield(); }

/* None of these can fail with Linux and default attributes. */
static inline void coll__lock_init(coll__lock *lock) { pthread_mutex_init(lock, NULL); }
static inline void coll__lock_free(coll__lock *lock) { pthread_mutex_destroy(lock); }
static inline void coll__lock_take(coll__lock *lock) { pthread_mutex_lock(lock); }
static inline void coll__lock_drop(coll__lock *lock) { pthread_mutex_unlock(lock); }

static inline void coll__bell_init(coll__bell *bell)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(bell, &attributes);
    pthread_condattr_destroy(&attributes);
}

static inline void coll__bell_free(coll__bell *bell) { pthread_cond_destroy(bell); }
static inline void coll__bell_ring(coll__bell *bell) { pthread_cond_broadcast(bell); }
static inline void coll__bell_wait(coll__bell *bell, coll__lock *lock) { pthread_cond_wait(bell, lock); }

/* Until a moment; 0, or an errno. */
static inline int coll__bell_wait_until(coll__bell *bell, coll__lock *lock, int64_t until)
{
    const struct timespec at = { (time_t)(until / 1000000000), (long)(until % 1000000000) };
    return pthread_cond_timedwait(bell, lock, &at);
}

/* Begin one of the program's; 0, or an errno. */
static inline int coll__worker_begin(coll__thread_id *thread, void *(*main)(void *), void *arg)
{
    return pthread_create(thread, NULL, main, arg);
}

/* Begin one of the library's own, that takes no signals, with a small stack; 0, or an errno.  Thread-local variables of the
 * program may lie on that stack, so that where it is too small the system's usual one is taken. */
static inline int coll__thread_begin(coll__thread_id *thread, size_t stack, void *(*main)(void *), void *arg)
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

/* ---- >>files ---- */

static inline void coll__close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

#endif /* COLL_SYSTEM_H */
