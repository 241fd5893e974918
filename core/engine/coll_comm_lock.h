/* coll_comm_lock.h - the lock of a communicator: one thread inside at a time, none in a forked child, none after the end. */
#ifndef COLL_COMM_LOCK_H
#define COLL_COMM_LOCK_H

/* Is this thread in a function of the program that the library has called?  Such a function runs in the middle of a call and
 * must not change its state.  Without an operating system: does an operation of the program run in a call of this session? */
#if COLL__HAS_OS
static inline bool coll__is_called_back(const coll_comm *comm) { return (void)comm, coll__callbacks != 0; }
#else
static inline bool coll__is_called_back(const coll_comm *comm) { return comm->session->runs_operation; }
#endif

/* false: another thread is inside.  A call in a signal handler or an interrupt may find the lock taken, too. */
static inline bool coll__comm_lock_try(coll_comm *comm)
{
    if (coll__is_called_back(comm) || coll__flag_set(&comm->is_taken)) return false;
    __atomic_store_n(&comm->thread, &coll__thread_mark, __ATOMIC_RELAXED);
    return true;
}

/* The same, but waits for coll_abort, which is inside for a short time only.  Without an operating system this may be an
 * interrupt of coll_abort, which must not wait for it. */
static inline bool coll__comm_lock_take(coll_comm *comm)
{
    while (!coll__comm_lock_try(comm)) {
        if (!COLL__HAS_OS || coll__is_called_back(comm)) return false;
        if (!__atomic_load_n(&comm->session->abort_wanted, __ATOMIC_ACQUIRE)) return false;
        coll__yield();
    }
    return true;
}

static inline void coll__comm_lock_release(coll_comm *comm)
{
    COLL__ASSERT(__atomic_load_n(&comm->is_taken, __ATOMIC_RELAXED), "a thread leaves a communicator in which no thread is");
    __atomic_store_n(&comm->is_taken, 0, __ATOMIC_RELEASE);
}

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
    if (COLL__HAS_SHRINK) __atomic_store_n(&comm->session->has_agreed, false, __ATOMIC_RELAXED);
    if (coll__is_shared(comm->session)) coll__session_take(comm);
    return COLL_OK;
}

static inline coll_status coll__leave(coll_comm *comm, coll_status status)
{
    if (COLL__MANY_THREADS && comm->is_holder) coll__session_drop(comm);
    coll__comm_lock_release(comm);
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
