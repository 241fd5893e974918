/* coll_system_none.h - replaces coll_system.h on a machine without an operating system (COLL_NO_OS).
 *
 * A session belongs to one task on one core.  So locks, wakes and waits do nothing.  Other tasks and cores use other sessions,
 * which share no data with it.  There are no processes, files, signals or environment variables.  The transport supplies the
 * time (coll_transport.now).  Without it time stands still: calls never time out, coll_free waits until its messages are
 * delivered or progress fails, and each wait sleeps in progress at once. */
#ifndef COLL_SYSTEM_NONE_H
#define COLL_SYSTEM_NONE_H

#include "../../coll.h"

#include <errno.h>

#define COLL__UNUSED __attribute__((unused))
#define COLL__THREAD_LOCAL

enum { COLL__LINE = 8 };                          /* the largest alignment of any type                        */

/* ---- >>time: always 0 ---- */

enum { COLL__HAS_CLOCK = 0 };

static inline int64_t coll__now(void) { return 0; }
static inline void coll__delay(long us) { (void)us; }

/* ---- >>processors: there is one ---- */

static inline size_t coll__processor_mask(uint64_t *mask, size_t words) { return (void)words, *mask = 1, 1; }
static inline bool coll__membarrier_register(void) { return true; }
static inline void coll__membarrier(void) { }

/* ---- >>threads: there is one ---- */

enum { COLL__MANY_THREADS = 0 };

/* Sessions have their own mark (coll__session.runs_operation): tasks and cores share none. */
static inline void coll__callback_begin(void) { }
static inline void coll__callback_end(void) { }

/* Set a flag; returns its old value.  Only an interrupt can come between load and store.  It ends before the store and has
 * cleared what it set.  So no atomic exchange is needed, which Cortex-M0 and RISC-V without the A extension lack. */
static inline int coll__flag_set(int *flag)
{
    const int was = __atomic_load_n(flag, __ATOMIC_RELAXED);

    __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return was;
}

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

/* ---- >>doorbells: none ---- */

typedef struct coll__doorbell { int fd; } coll__doorbell;

static const coll__doorbell coll__no_doorbell = { -1 };

/* ---- >>processes: no forks ---- */

static inline unsigned char *coll__fork_guard(void)
{
    static unsigned char guard = 1;
    return &guard;
}

static inline void coll__fork_guard_free(unsigned char *guard) { (void)guard; }

#endif /* COLL_SYSTEM_NONE_H */
