/* coll_background.h - a thread that moves operations on while the program computes.
 *
 * A collective is many messages, with sums in between, and somebody has to make the next ones out of those that have come.
 * While a thread of the program is inside a call it sees to that for all operations; between calls the progress thread does.
 * Each session has one, over a transport that allows it, made by the first non-blocking operation that is not done when the call
 * that starts it returns: who makes only blocking calls has none.
 *
 *                       a start                            left alone for a whole nap
 *     asleep until one  ------->  a nap, of 0.1 ms and more  ------->  inside: moves on, sleeps in the transport
 *            ^                     |                   ^                  |
 *            +---------------------+                   +------------------+
 *              nothing is pending                        an entrant, or nothing is pending
 *
 * It is a holder of the session like any other (coll_progress.h), with three differences.  It comes in only when nobody is inside
 * or waits; it leaves for every entrant; and it leaves the caller's own operations, and calls of extended communicators, alone
 * (coll__is_for_others).
 *
 * Naps keep it out of the way of programs that call often.  As long as calls come within a nap it leaves things to them, and its
 * naps grow, up to 1 ms; so do they when an entrant soon turns it out again.  Somebody who is inside at the end of a nap wakes it
 * up when he leaves, if anything is pending then, and a start does when it sleeps for good: no other call pays for it.  While it
 * sleeps for good, and there is but one communicator, who enters need not take the session. */
#ifndef COLL_BACKGROUND_H
#define COLL_BACKGROUND_H

#include <signal.h>

enum { COLL__NAP_LEAST_US = 100, COLL__NAP_MOST_US = 1000, COLL__BACKGROUND_STACK = 512 * 1024 };

#if COLL__HAS_BACKGROUND

/* What nobody says: who wants no thread for the heartbeats wants none that moves operations on. */
static inline coll_status coll__background_settle(coll_config *c)
{
    if (c->background == COLL_DEFAULT) c->background = c->liveness_timeout_ms < 0 ? COLL_OFF : COLL_ON;
    return COLL_OK;
}

/* Is there anything to move?  By whoever is inside, or while nobody is. */
static bool coll__session_is_busy(const coll__session *session)
{
    for (const coll__order *order = session->orders; order; order = order->next)
        if (!(order->queue->carrier->traits & COLL__OWNER_ONLY)) return true;
    if (session->failure.status != COLL_OK) return false;
    return coll__messages_are_there(session);
}

/* ---- >>the thread ---- */

static inline bool coll__background_must_leave(const coll__session *session)
{
    return __atomic_load_n(&session->entrants, __ATOMIC_SEQ_CST) > 0;
}

/* Hold the session until somebody else wants it, or there is nothing left to move.  The last look lets the transport know that
 * nobody sleeps in it. */
static void coll__background_move(coll__session *session)
{
    coll_status status = coll__advance(session, 0);

    while (status >= 0 && coll__session_is_busy(session) && !coll__background_must_leave(session))
        status = coll__advance(session, COLL__SLEEP_MOST_MS);
    if (session->failure.status == COLL_OK) (void)session->transport->progress(session->context, 0);
}

/* Sleep until a nap is over, or the progress thread is to end. */
static void coll__background_nap(coll__session *session)
{
    const int64_t until = coll__now() + session->background.nap;
    int error = 0;

    while (!session->background.is_stopping && error == 0)
        error = coll__cond_wait_until(&session->background.bell, &session->lock, until);
}

/* Sleep until somebody sees to it that it naps again. */
static void coll__background_sleep(coll__session *session, coll__background_wait what)
{
    coll__background *m = &session->background;

    if (what == COLL__FOR_A_START) __atomic_store_n(&session->is_shared, session->has_many, __ATOMIC_RELEASE);
    m->waits = what;
    while (m->waits != COLL__FOR_A_NAP && !m->is_stopping) coll__cond_wait(&m->bell, &session->lock);
}

/* Others are at work: keep away for longer. */
static void coll__background_back_off(coll__background *m)
{
    if (m->nap < (int64_t)COLL__NAP_MOST_US * 1000) m->nap *= 2;
}

/* Sleep for a while.  true: something is pending that has been left alone all the time. */
static bool coll__background_rest(coll__session *session)
{
    coll__background *m = &session->background;
    const unsigned visits = session->visits, starts = m->starts;

    coll__background_nap(session);
    if (m->is_stopping || session->entrants > 0 || session->followers > 0) return false;
    const bool was_alone = !session->is_held && session->visits == visits;
    if (!was_alone) coll__background_back_off(m);
    if (session->is_held) coll__background_sleep(session, COLL__FOR_A_DROP);
    else if (coll__session_is_busy(session)) return was_alone;
    else if (m->starts == starts) coll__background_sleep(session, COLL__FOR_A_START);
    return false;
}

static void *coll__background_main(void *at)
{
    coll__session *session = (coll__session *)at;
    coll__background *m = &session->background;

    coll__lock_take(&session->lock);
    while (!m->is_stopping) {
        if (!coll__background_rest(session)) continue;
        const int64_t began = coll__now();
        session->is_held = true;
        coll__lock_drop(&session->lock);
        coll__background_move(session);
        coll__lock_take(&session->lock);
        session->is_held = false;
        coll__cond_wake(&session->changed);
        const bool is_welcome = session->entrants == 0 || coll__now() - began > (int64_t)COLL__NAP_MOST_US * 1000;
        if (is_welcome) m->nap = (int64_t)COLL__NAP_LEAST_US * 1000;
        else coll__background_back_off(m);
    }
    coll__lock_drop(&session->lock);
    return NULL;
}

/* ---- >>from the program's threads ---- */

/* The lock is held, so the thread comes no further than that. */
static void coll__background_begin(coll__session *session)
{
    coll__background *m = &session->background;
    const int error = coll__thread_begin(&m->thread, COLL__BACKGROUND_STACK, coll__background_main, session);

    m->has_thread = error == 0;
    if (m->has_thread) return;
    m->is_wanted = false;
    coll__say(&session->log, COLL_LOG_INFO, "no thread to move operations while the program computes: %s", strerror(error));
}

/* The holder leaves.  If the progress thread sleeps for that, it is its turn, unless there is nothing to move. */
static void coll__background_turn(coll__session *session)
{
    coll__background *m = &session->background;

    if (m->waits != COLL__FOR_A_DROP) return;
    m->waits = coll__session_is_busy(session) ? COLL__FOR_A_NAP : COLL__FOR_A_START;
    if (m->waits == COLL__FOR_A_NAP) coll__cond_wake(&m->bell);
    else __atomic_store_n(&session->is_shared, session->has_many, __ATOMIC_RELEASE);
}

/* Something has been started by a thread inside `comm` that is not done.  From here on that thread must hold the session. */
static void coll__background_wake(coll_comm *comm)
{
    coll__session *session = comm->session;
    coll__background *m = &session->background;

    if (!m->is_wanted) return;
    coll__lock_take(&session->lock);
    if (!m->has_thread) coll__background_begin(session);
    if (m->has_thread) {
        __atomic_store_n(&session->is_shared, true, __ATOMIC_RELEASE);
        if (!comm->is_holder) coll__session_take_locked(comm);
        m->starts++;
        if (m->waits == COLL__FOR_A_START) {
            m->waits = COLL__FOR_A_NAP;
            coll__cond_wake(&m->bell);
        }
    }
    coll__lock_drop(&session->lock);
}

/* The last communicator is being freed, by a thread that holds the session, or need not. */
static void coll__background_stop(coll__session *session)
{
    coll__background *m = &session->background;

    if (!m->has_thread) return;
    coll__lock_take(&session->lock);
    m->is_stopping = true;
    coll__cond_wake(&m->bell);
    coll__lock_drop(&session->lock);
    coll__thread_end(m->thread);
    m->has_thread = false;
}

/* From here on there is a thread that moves things on, and makes it readable. */
COLL_API int coll_fd(coll_comm *comm)
{
    if (coll__enter(comm) < 0) return -1;
    coll__session *session = comm->session;
    coll__background_wake(comm);
    if (session->background.has_thread && session->bell.fd < 0 && !coll__bell_open(&session->bell))
        coll__fd_ring(session);                   /* for what has ended already                               */
    const int fd = session->background.has_thread ? session->bell.fd : -1;
    (void)coll__leave(comm, COLL_OK);
    return fd;
}

#else

static void coll__background_turn(coll__session *session) { (void)session; }
static void coll__background_wake(coll_comm *comm) { (void)comm; }
static void coll__background_stop(coll__session *session) { (void)session; }

static coll_status coll__background_settle(coll_config *c)
{
    if (c->background > 0)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "background is on, but this program was compiled with "
                                  COLL__PROFILE);
    c->background = COLL_OFF;
    return COLL_OK;
}

COLL_API int coll_fd(coll_comm *comm)
{
    if (coll__enter(comm) < 0) return -1;
    (void)coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "coll_fd: nothing moves by itself, for this program was "
                              "compiled with " COLL__PROFILE);
    (void)coll__leave(comm, COLL_OK);
    return -1;
}

#endif

/* ---- >>starts ---- */

/* Start a request and see how far it comes; errors from here on are the request's. */
static void coll__start_request(coll_comm *comm, coll_request *r)
{
    const bool is_silent = r->carrier->traits & COLL__WAKES_NOBODY;
    coll_status begun = coll__launch(r);

    if (begun >= 0 && r->status == COLL_PENDING && !is_silent && !coll__leaves_with_others(r))
        begun = coll__move_started(comm->session);
    if (begun < 0 && r->status == COLL_PENDING) r->status = comm->session->failure.status;
    if (r->status == COLL_PENDING && !is_silent) coll__background_wake(comm);
}

/* Start a request that has been made, or not; then leave. */
static coll_status coll__leave_started(coll_comm *comm, coll_status status, coll_request **made)
{
    if (status == COLL_OK) coll__start_request(comm, *made);
    return coll__leave(comm, status);
}

/* A call of a simple kind that is not blocking. */
static coll_status coll__start_simple(coll_comm *comm, coll_kind kind, const void *send, void *recv, size_t count, coll_type type,
                                      coll_op op, int root, coll_request **out)
{
    if (out) *out = NULL;
    const coll_status status = coll__enter_alive(comm);
    if (status < 0) return status;
    return coll__leave_started(comm, coll__request_simple(comm, kind, send, recv, count, type, op, root, out), out);
}

#endif /* COLL_BACKGROUND_H */
