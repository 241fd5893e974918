/* coll_progress_thread.h - a thread that progresses operations while the program computes.
 *
 * A collective consists of many messages and sums; the next messages depend on those received.  While a thread of the program is
 * inside a call, it progresses all operations.  Between calls the progress thread does.  Each session has one, if its transport
 * allows it.  The first non-blocking operation that is incomplete when its call returns creates it: programs with blocking calls
 * only have none.
 *
 *                      a start                            no call during a whole pause
 *     asleep until one  ------->  pauses, of 0.25 ms each  ------->  inside: progresses, sleeps in the transport
 *            ^                     |                   ^                  |
 *            +---------------------+                   +------------------+
 *              nothing is pending                        a thread enters, or nothing is pending
 *
 * It holds the session like any thread (coll_progress.h), with three differences.  It enters only if no thread is inside or
 * waits.  It leaves for every entering thread.  It does not progress a caller's private operations, or calls of extended
 * communicators (coll__is_for_others).
 *
 * Pauses avoid conflicts with programs that call often: calls within a pause progress operations.  A start ends its sleep; other
 * calls do not pay for it.  While it sleeps, and there is one communicator only, an entering thread need not take the
 * session. */
#ifndef COLL_PROGRESS_THREAD_H
#define COLL_PROGRESS_THREAD_H

#include <signal.h>

enum { COLL__PAUSE_US = 250, COLL__BACKGROUND_STACK = 512 * 1024 };

/* Default: off without heartbeats (liveness_timeout_ms < 0), otherwise on. */
static coll_status coll__background_settle(coll_config *c)
{
    if (!COLL__HAS_BACKGROUND && c->background > 0)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "background is on, but this program was compiled with " COLL__PROFILE);
    if (c->background == COLL_DEFAULT)
        c->background = COLL__HAS_BACKGROUND && c->liveness_timeout_ms >= 0 ? COLL_ON : COLL_OFF;
    return COLL_OK;
}

#if COLL__HAS_BACKGROUND

/* Returns whether operations are pending that the holder or the progress thread can progress. */
static bool coll__session_is_busy(const coll__session *session)
{
    for (const coll__order *order = session->orders; order; order = order->next)
        if (!(order->queue->carrier->traits & COLL__OWNER_ONLY)) return true;
    if (session->failure.status != COLL_OK) return false;
    return coll__messages_are_there(session);
}

/* ---- >>the thread ---- */

/* Holds the session until a thread enters or nothing is pending.  The last call lets the transport know that no thread sleeps in
 * it. */
static void coll__background_move(coll__session *session)
{
    coll_status status = coll__advance(session, 0);

    while (status >= 0 && coll__session_is_busy(session) && __atomic_load_n(&session->entrants, __ATOMIC_SEQ_CST) == 0)
        status = coll__advance(session, COLL__SLEEP_MOST_MS);
    if (session->failure.status == COLL_OK) (void)session->transport->progress(session->context, 0);
}

/* Sleeps for a while, or if nothing is pending until another thread starts an operation.  Returns true if operations are pending
 * and no thread has entered meanwhile. */
static bool coll__background_rest(coll__session *session)
{
    coll__background *m = &session->background;
    const unsigned visits = session->visits, starts = m->starts;
    const int64_t until = coll__now() + (int64_t)COLL__PAUSE_US * 1000;
    int error = 0;

    while (!m->is_stopping && error == 0) error = coll__cond_wait_until(&m->doorbell, &session->lock, until);
    if (m->is_stopping || session->is_held || session->entrants > 0 || session->followers > 0) return false;
    if (coll__session_is_busy(session)) return session->visits == visits;
    if (m->starts != starts) return false;
    __atomic_store_n(&session->is_shared, session->has_many, __ATOMIC_RELEASE);
    m->is_asleep = true;
    while (m->is_asleep && !m->is_stopping) coll__cond_wait(&m->doorbell, &session->lock);
    return false;
}

static void *coll__background_main(void *at)
{
    coll__session *session = (coll__session *)at;
    coll__background *m = &session->background;

    coll__lock_take(&session->lock);
    while (!m->is_stopping) {
        if (!coll__background_rest(session)) continue;
        session->is_held = true;
        coll__lock_drop(&session->lock);
        coll__background_move(session);
        coll__lock_take(&session->lock);
        session->is_held = false;
        coll__cond_wake(&session->changed);
    }
    coll__lock_drop(&session->lock);
    return NULL;
}

/* ---- >>called by the program's threads ---- */

/* A thread inside `comm` has started an operation that is incomplete.  From here on that thread must hold the session. */
static void coll__background_wake(coll_comm *comm)
{
    coll__session *session = comm->session;
    coll__background *m = &session->background;

    if (!m->is_wanted) return;
    coll__lock_take(&session->lock);
    if (!m->has_thread) {                         /* its first action is to take the lock                     */
        const int error = coll__thread_begin(&m->thread, COLL__BACKGROUND_STACK, coll__background_main, session);
        m->has_thread = m->is_wanted = error == 0;
        if (error)
            coll__say(&session->log, COLL_LOG_INFO, "no thread to move operations while the program computes: %s",
                      strerror(error));
    }
    if (m->has_thread) {
        __atomic_store_n(&session->is_shared, true, __ATOMIC_RELEASE);
        if (!comm->is_holder) coll__session_take_locked(comm);
        m->starts++;
        if (m->is_asleep) coll__cond_wake(&m->doorbell);
        m->is_asleep = false;
    }
    coll__lock_drop(&session->lock);
}

/* The last communicator is being freed, by a thread that holds the session or need not. */
static void coll__background_stop(coll__session *session)
{
    coll__background *m = &session->background;

    if (!m->has_thread) return;
    coll__lock_take(&session->lock);
    m->is_stopping = true;
    coll__cond_wake(&m->doorbell);
    coll__lock_drop(&session->lock);
    coll__thread_end(m->thread);
    m->has_thread = false;
}

/* Creates the progress thread, which makes the descriptor readable. */
COLL_API int coll_fd(coll_comm *comm)
{
    if (coll__enter(comm) < 0) return -1;
    coll__session *session = comm->session;
    coll__background_wake(comm);
    if (session->background.has_thread && session->doorbell.fd < 0 && !coll__doorbell_open(&session->doorbell))
        coll__fd_ring(session);                   /* for operations that have already ended                   */
    const int fd = session->background.has_thread ? session->doorbell.fd : -1;
    (void)coll__leave(comm, COLL_OK);
    return fd;
}

#else

static void coll__background_wake(coll_comm *comm) { (void)comm; }
static void coll__background_stop(coll__session *session) { (void)session; }

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

/* Starts a request and progresses it once; later errors are the request's. */
static void coll__start_request(coll_comm *comm, coll_request *r)
{
    const bool is_silent = r->carrier->traits & COLL__WAKES_NONE;
    coll_status begun = coll__launch(r);

    if (begun >= 0 && r->status == COLL_PENDING && !is_silent && !coll__leaves_with_others(r)) {
        begun = coll__advance(comm->session, 0);
        comm->session->started_at = coll__clock(comm->session);   /* the time between starts counts from here */
    }
    if (begun < 0 && r->status == COLL_PENDING) r->status = comm->session->failure.status;
    if (r->status == COLL_PENDING && !is_silent) coll__background_wake(comm);
}

/* Starts a request if it was created; then leaves. */
static coll_status coll__leave_started(coll_comm *comm, coll_status status, coll_request **made)
{
    if (status == COLL_OK) coll__start_request(comm, *made);
    return coll__leave(comm, status);
}

/* A non-blocking call of a simple kind. */
static coll_status coll__start_simple(coll_comm *comm, coll_kind kind, const void *send, void *recv, size_t count, coll_type type,
                                      coll_op op, int root, coll_request **out)
{
    if (out) *out = NULL;
    const coll_status status = coll__enter_alive(comm);
    if (status < 0) return status;
    const coll_call call = coll__call_of(kind, send, recv, count, type, op, root);
    return coll__leave_started(comm, coll__request_new(comm, &call, out), out);
}

#endif /* COLL_PROGRESS_THREAD_H */
