/* coll_comm_lock.h - the lock of a communicator: one thread inside at a time, none in a forked child, none after the end.  A
 * biased lock.
 *
 * Mostly the same thread enters again.  An atomic read-modify-write here would drain its store buffer (about 20 ns).  So the
 * thread that was inside last, the owner, uses one plain store and one load.  Another thread claims the lock, and its
 * membarrier executes the barriers of both:
 *
 *     owner                                       other thread
 *         inside = 1                                  is_claimed = 1
 *         (barrier, executed by the other)            membarrier
 *         is_claimed, or no longer owner?             inside: return an error
 *             inside = 0, and claim the lock          else become owner; is_claimed = 0
 *
 * Either the claiming thread sees `inside`, or the owner sees the claim.  Each owner has its own word `inside`: a thread
 * suspended between its first load and its store must not set the word of the next owner.  If the owner changes too often, or
 * the kernel has no membarrier, all threads claim: under a mutex, without barriers. */
#ifndef COLL_COMM_LOCK_H
#define COLL_COMM_LOCK_H

#if COLL__HAS_OS

/* Is this thread in a function of the program that the library has called?  Such a function runs in the middle of a call and
 * must not change its state. */
static inline bool coll__is_called_back(const coll_comm *comm) { return (void)comm, coll__callbacks != 0; }

/* Its address identifies the thread, without a system or library call. */
static COLL__THREAD_LOCAL char coll__thread_mark;

static inline bool coll__comm_lock_is_mine(const coll__comm_lock *comm_lock)
{
    return __atomic_load_n(&comm_lock->owner, __ATOMIC_RELAXED) == &coll__thread_mark;
}

/* Enter without the fast path. false: another thread is inside. coll_abort is inside for a short time only; with `waits`, the
 * others wait for it. */
static __attribute__((noinline)) bool coll__comm_lock_claim(coll_comm *comm, bool waits)
{
    const coll__thread_id me = coll__thread_self();
    coll__session *const session = comm->session;
    coll__comm_lock *const comm_lock = &comm->comm_lock;
    bool is_free;

    if (coll__is_called_back(comm)) return false;
    coll__lock_take(&session->lock);
    for (;;) {
        __atomic_store_n(&comm_lock->is_claimed, 1, __ATOMIC_SEQ_CST);
        if (comm_lock->owner && !coll__comm_lock_is_mine(comm_lock)) coll__membarrier();
        is_free = !__atomic_load_n(&comm_lock->is_taken, __ATOMIC_ACQUIRE)
               && (!comm_lock->owner || !__atomic_load_n(&comm_lock->inside[comm_lock->hands], __ATOMIC_ACQUIRE));
        if (is_free || !waits || !__atomic_load_n(&session->abort_wanted, __ATOMIC_ACQUIRE)) break;
        coll__lock_drop(&session->lock);
        coll__yield();
        coll__lock_take(&session->lock);
    }
    if (is_free) {
        const bool is_other = !coll__thread_is(comm_lock->thread, me) && comm_lock->hands < COLL__HANDS_MOST;
        __atomic_store_n(&comm_lock->hands, comm_lock->hands + is_other, __ATOMIC_RELAXED);
        __atomic_store_n(&comm_lock->is_taken, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&comm_lock->thread, me, __ATOMIC_RELAXED);
        const bool is_owned = session->has_membarrier && comm_lock->hands < COLL__HANDS_MOST;
        __atomic_store_n(&comm_lock->owner, is_owned ? &coll__thread_mark : NULL, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&comm_lock->is_claimed, 0, __ATOMIC_RELEASE);
    coll__lock_drop(&session->lock);
    return is_free;
}

/* The fast path; false: this thread is not the owner. */
static inline bool coll__comm_lock_retake(coll_comm *comm)
{
    coll__comm_lock *const comm_lock = &comm->comm_lock;
    const int hands = __atomic_load_n(&comm_lock->hands, __ATOMIC_ACQUIRE); /* loaded first: belongs to the owner tested below */

    if (!coll__comm_lock_is_mine(comm_lock) || coll__is_called_back(comm)) return false;
    __atomic_store_n(&comm_lock->inside[hands], 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&comm_lock->is_claimed, __ATOMIC_ACQUIRE) && coll__comm_lock_is_mine(comm_lock)) return true;
    __atomic_store_n(&comm_lock->inside[hands], 0, __ATOMIC_RELEASE);
    return false;
}

static inline void coll__comm_lock_release_again(coll__comm_lock *comm_lock)
{
    __atomic_store_n(&comm_lock->inside[comm_lock->hands], 0, __ATOMIC_RELEASE);
}

static inline bool coll__comm_lock_take(coll_comm *comm)
{
    return coll__comm_lock_retake(comm) || coll__comm_lock_claim(comm, true);
}

/* Leave by the path of entry only: when either word is 0, another thread may have entered. */
static inline void coll__comm_lock_release(coll__comm_lock *comm_lock)
{
    const int hands = comm_lock->hands;           /* constant while a thread is inside                        */

    if (hands < COLL__HANDS_MOST && __atomic_load_n(&comm_lock->inside[hands], __ATOMIC_RELAXED))
        coll__comm_lock_release_again(comm_lock);
    else {
        COLL__ASSERT(comm_lock->is_taken, "a communicator is left that nobody is in");
        __atomic_store_n(&comm_lock->is_taken, 0, __ATOMIC_RELEASE);
    }
}

#else

/* An operation of the program runs in a call of this session. */
static inline bool coll__is_called_back(const coll_comm *comm) { return comm->session->runs_operation; }

/* A call in an interrupt may find the lock taken. */
static inline bool coll__comm_lock_retake(coll_comm *comm)
{
    return !coll__is_called_back(comm) && !coll__flag_set(&comm->comm_lock.is_taken);
}

static inline void coll__comm_lock_release_again(coll__comm_lock *comm_lock)
{
    __atomic_store_n(&comm_lock->is_taken, 0, __ATOMIC_RELEASE);
}
static inline void coll__comm_lock_release(coll__comm_lock *comm_lock) { coll__comm_lock_release_again(comm_lock); }

static inline bool coll__comm_lock_take(coll_comm *comm) { return coll__comm_lock_retake(comm); }
static inline bool coll__comm_lock_claim(coll_comm *comm, bool waits) { return (void)waits, coll__comm_lock_retake(comm); }

#endif

/* Explains why a thread may not enter. */
static __attribute__((noinline)) coll_status coll__stay_out(const coll_comm *comm)
{
    if (!comm) return coll__start_failed(COLL_ERR_ARGUMENT, "the communicator is NULL");
    if (!*comm->guard) return COLL_ERR_FORKED;
    coll__start_failed(COLL_ERR_ARGUMENT, "rank %d: %s", comm->rank, coll__is_called_back(comm)
                       ? "an operation or a log hook must not use communicators"
                       : "another thread is inside a call on this communicator");
    coll__sentence_is_ours(comm);
    return COLL_ERR_ARGUMENT;
}

static inline coll_status coll__enter(coll_comm *comm)
{
    if (!comm || !*comm->guard || !coll__comm_lock_take(comm)) return coll__stay_out(comm);
    if (coll__is_shared(comm->session)) coll__session_take(comm);
    return COLL_OK;
}

static inline coll_status coll__leave(coll_comm *comm, coll_status status)
{
    if (COLL__MANY_THREADS && comm->is_holder) coll__session_drop(comm);
    coll__comm_lock_release(&comm->comm_lock);
    return status;
}

/* Enter to start an operation; fails after the end of the session. */
static inline coll_status coll__enter_alive(coll_comm *comm)
{
    const coll_status status = coll__enter(comm);

    if (status < 0 || comm->session->failure.status == COLL_OK) return status;
    return coll__leave(comm, comm->session->failure.status);
}

#endif /* COLL_COMM_LOCK_H */
