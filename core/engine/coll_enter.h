/* coll_enter.h: one thread at a time in a communicator, none in a forked child, none after the end.  The door is a biased lock.
 *
 * Nearly always it is the same thread that comes again, and a locked instruction at its door would make it wait until all it
 * has published has arrived at the other ranks.  So the thread that was inside last needs no more than a plain store and a
 * look; whoever else comes claims the door, and executes, by membarrier, the barriers for both:
 *
 *     the last one                                another
 *         inside = 1                                  is_claimed = 1
 *         (barrier: executed by the other)            membarrier
 *         is_claimed, or not mine any more?           inside: it is an error
 *             inside = 0, and claim it too            otherwise it is mine now; is_claimed = 0
 *
 * Either the claimer sees that somebody is inside, or that one sees the claim.  Each owner has a word `inside` of its own: one
 * that was kept from running between its first look and its stores must not speak for the next owner.  A door that changes
 * hands too often, or a kernel without membarrier: every thread takes the way of the claimer, under the lock and with no barriers
 * to execute. */
#ifndef COLL_ENTER_H
#define COLL_ENTER_H

#if COLL__HAS_OS

/* Is this thread in a function of the program's that the library has called?  It comes from the midst of a call, whose state
 * would change under its feet. */
static inline bool coll__is_called_back(const coll_comm *comm) { return (void)comm, coll__callbacks != 0; }

/* Its address says which thread this is, with no call of a function. */
static COLL__THREAD_LOCAL char coll__thread_mark;

static inline bool coll__door_is_mine(const coll__door *door)
{
    return __atomic_load_n(&door->owner, __ATOMIC_RELAXED) == &coll__thread_mark;
}

/* Not by the owner's short way.  false: another thread is inside.  coll_abort may be inside at any time, and is out soon: the
 * others wait for it (`waits`). */
static __attribute__((noinline)) bool coll__door_claim(coll_comm *comm, bool waits)
{
    const coll__thread_id me = coll__thread_self();
    coll__session *const session = comm->session;
    coll__door *const door = &comm->door;
    bool is_free;

    if (coll__is_called_back(comm)) return false;
    coll__lock_take(&session->lock);
    for (;;) {
        __atomic_store_n(&door->is_claimed, 1, __ATOMIC_SEQ_CST);
        if (door->owner && !coll__door_is_mine(door)) coll__membarrier();
        is_free = !__atomic_load_n(&door->is_taken, __ATOMIC_ACQUIRE)
               && (!door->owner || !__atomic_load_n(&door->inside[door->hands], __ATOMIC_ACQUIRE));
        if (is_free || !waits || !__atomic_load_n(&session->abort_wanted, __ATOMIC_ACQUIRE)) break;
        coll__lock_drop(&session->lock);
        coll__yield();
        coll__lock_take(&session->lock);
    }
    if (is_free) {
        const bool is_other = !coll__thread_is(door->thread, me) && door->hands < COLL__HANDS_MOST;
        __atomic_store_n(&door->hands, door->hands + is_other, __ATOMIC_RELAXED);
        __atomic_store_n(&door->is_taken, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&door->thread, me, __ATOMIC_RELAXED);
        const bool is_owned = session->has_membarrier && door->hands < COLL__HANDS_MOST;
        __atomic_store_n(&door->owner, is_owned ? &coll__thread_mark : NULL, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&door->is_claimed, 0, __ATOMIC_RELEASE);
    coll__lock_drop(&session->lock);
    return is_free;
}

/* By the short way; false: this thread is not the one that was inside last. */
static inline bool coll__door_enter_again(coll_comm *comm)
{
    coll__door *const door = &comm->door;
    const int hands = __atomic_load_n(&door->hands, __ATOMIC_ACQUIRE);    /* before the first look: it is ours, if the door is */

    if (!coll__door_is_mine(door) || coll__is_called_back(comm)) return false;
    __atomic_store_n(&door->inside[hands], 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&door->is_claimed, __ATOMIC_ACQUIRE) && coll__door_is_mine(door)) return true;
    __atomic_store_n(&door->inside[hands], 0, __ATOMIC_RELEASE);
    return false;
}

static inline void coll__door_leave_again(coll__door *door) { __atomic_store_n(&door->inside[door->hands], 0, __ATOMIC_RELEASE); }

/* false: another thread is inside. */
static inline bool coll__door_enter(coll_comm *comm) { return coll__door_enter_again(comm) || coll__door_claim(comm, true); }

/* By the way one came in, and no other: once either word says that nobody is inside, the next one may have taken the door. */
static inline void coll__door_leave(coll__door *door)
{
    const int hands = door->hands;                /* stays while we are inside                                */

    if (hands < COLL__HANDS_MOST && __atomic_load_n(&door->inside[hands], __ATOMIC_RELAXED)) coll__door_leave_again(door);
    else {
        COLL__ASSERT(door->is_taken, "a communicator is left that nobody is in");
        __atomic_store_n(&door->is_taken, 0, __ATOMIC_RELEASE);
    }
}

#else

/* The same: an operation of the program's runs in a call of this session. */
static inline bool coll__is_called_back(const coll_comm *comm) { return comm->session->runs_operation; }

/* Who calls in an interrupt may find that somebody is inside. */
static inline bool coll__door_enter_again(coll_comm *comm)
{
    return !coll__is_called_back(comm) && !coll__flag_set(&comm->door.is_taken);
}

static inline void coll__door_leave_again(coll__door *door) { __atomic_store_n(&door->is_taken, 0, __ATOMIC_RELEASE); }
static inline void coll__door_leave(coll__door *door) { coll__door_leave_again(door); }

static inline bool coll__door_enter(coll_comm *comm) { return coll__door_enter_again(comm); }
static inline bool coll__door_claim(coll_comm *comm, bool waits) { return (void)waits, coll__door_enter_again(comm); }

#endif

/* Why nobody may enter. */
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
    if (!comm || !*comm->guard || !coll__door_enter(comm)) return coll__stay_out(comm);
    if (coll__is_shared(comm->session)) coll__session_take(comm);
    return COLL_OK;
}

static inline coll_status coll__leave(coll_comm *comm, coll_status status)
{
    if (COLL__MANY_THREADS && comm->is_holder) coll__session_drop(comm);
    coll__door_leave(&comm->door);
    return status;
}

/* Enter to start something: not after the end. */
static inline coll_status coll__enter_alive(coll_comm *comm)
{
    const coll_status status = coll__enter(comm);

    if (status < 0 || comm->session->failure.status == COLL_OK) return status;
    return coll__leave(comm, comm->session->failure.status);
}

#endif /* COLL_ENTER_H */
