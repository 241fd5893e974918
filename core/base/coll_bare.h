/* coll_bare.h - a machine without an operating system (COLL_NO_OS): what the library asks of one, where there is none.
 *
 * There is one thread, so nobody is kept out, woken or waited for.  There are no processes, files, signals and variables of an
 * environment.  Time is the transport's (coll_transport.now); where that has none, no time passes, and no call comes to its
 * limit. */
#ifndef COLL_BARE_H
#define COLL_BARE_H

#include "../../coll.h"

#include <errno.h>

#define COLL__UNUSED __attribute__((unused))
#define COLL__THREAD_LOCAL

enum { COLL__LINE = 8 };                          /* as aligned as anything need be                           */

/* ---- >>time: none passes ---- */

static inline int64_t coll__now(void) { return 0; }
static inline void coll__nap(long us) { (void)us; }

/* ---- >>processors: there is one ---- */

static inline size_t coll__processor_mask(uint64_t *mask, size_t words) { return (void)words, *mask = 1, 1; }
static inline bool coll__membarrier_register(void) { return true; }
static inline void coll__membarrier(void) { }

/* ---- >>threads: there is one ---- */

enum { COLL__MANY_THREADS = 0 };

typedef int coll__thread_id;
typedef char coll__lock, coll__cond;

static inline coll__thread_id coll__thread_self(void) { return 0; }
static inline bool coll__thread_is(coll__thread_id a, coll__thread_id b) { return (void)a, (void)b, true; }
static inline void coll__thread_end(coll__thread_id thread) { (void)thread; }
static inline void coll__yield(void) { }
static inline int coll__thread_begin(coll__thread_id *thread, size_t stack, void *(*main)(void *), void *arg)
{
    return (void)thread, (void)stack, (void)main, (void)arg, EAGAIN;
}

static inline int coll__worker_begin(coll__thread_id *thread, void *(*main)(void *), void *arg)
{
    return (void)thread, (void)main, (void)arg, EAGAIN;
}

static inline void coll__lock_init(coll__lock *lock) { (void)lock; }
static inline void coll__lock_free(coll__lock *lock) { (void)lock; }
static inline void coll__lock_take(coll__lock *lock) { (void)lock; }
static inline void coll__lock_drop(coll__lock *lock) { (void)lock; }

static inline void coll__cond_init(coll__cond *cond) { (void)cond; }
static inline void coll__cond_free(coll__cond *cond) { (void)cond; }
static inline void coll__cond_wake(coll__cond *cond) { (void)cond; }
static inline void coll__cond_wait(coll__cond *cond, coll__lock *lock) { (void)cond, (void)lock; }
static inline int coll__cond_wait_until(coll__cond *cond, coll__lock *lock, int64_t until)
{
    return (void)cond, (void)lock, (void)until, ETIMEDOUT;
}

/* ---- >>bells: nobody looks at a descriptor ---- */

typedef struct coll__bell { int fd; } coll__bell;

static const coll__bell coll__no_bell = { -1 };

/* ---- >>processes: nobody forks ---- */

static inline unsigned char *coll__fork_guard(void)
{
    static unsigned char guard = 1;
    return &guard;
}

static inline void coll__fork_guard_free(unsigned char *guard) { (void)guard; }

#endif /* COLL_BARE_H */
