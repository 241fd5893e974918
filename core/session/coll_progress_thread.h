/* coll_progress_thread.h - a thread that progresses operations while the program computes.
 *
 * A collective consists of many messages and sums; the next messages depend on those received.  While a thread of the program is
 * inside a call, it progresses all operations.  Between calls the progress thread does.  Each session has one, if its transport
 * allows it.  The first non-blocking operation that is incomplete when its call returns creates it: programs with blocking calls
 * only have none.
 *
 *                      a start                            no call during a whole nap
 *     asleep until one  ------->  a nap, of 0.1 ms and more  ------->  inside: progresses, sleeps in the transport
 *            ^                     |                   ^                  |
 *            +---------------------+                   +------------------+
 *              nothing is pending                        a thread enters, or nothing is pending
 *
 * It holds the session like any thread (coll_progress.h), with three differences.  It enters only if no thread is inside or
 * waits.  It leaves for every entering thread.  It does not progress a caller's private operations, or calls of extended
 * communicators (coll__is_for_others).
 *
 * Naps avoid conflicts with programs that call often.  If calls come within a nap, they progress operations, and naps grow, up to
 * 1 ms.  Naps also grow if a thread enters soon after the progress thread.  If a thread is inside at the end of a nap, it wakes
 * the progress thread when it leaves with operations pending.  A start wakes it from its sleep; other calls do not pay for it.
 * While it sleeps, and there is one communicator only, an entering thread need not take the session. */
#ifndef COLL_PROGRESS_THREAD_H
#define COLL_PROGRESS_THREAD_H

#include <signal.h>

enum { COLL__DELAY_LEAST_US = 100, COLL__DELAY_MOST_US = 1000, COLL__BACKGROUND_STACK = 512 * 1024 };

#if COLL__HAS_BACKGROUND

/* Default: off without heartbeats (liveness_timeout_ms < 0), otherwise on. */
static inline coll_status coll__background_settle(coll_config *c)
{
    if (c->background == COLL_DEFAULT) c->background = c->liveness_timeout_ms < 0 ? COLL_OFF : COLL_ON;
    return COLL_OK;
}

/* Returns whether operations are pending that the holder or the progress thread can progress. */
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

/* Holds the session until a thread enters or nothing is pending.  The last call lets the transport know that no thread sleeps in
 * it. */
static void coll__background_move(coll__session *session)
{
    coll_status status = coll__advance(session, 0);

    while (status >= 0 && coll__session_is_busy(session) && !coll__background_must_leave(session))
        status = coll__advance(session, COLL__SLEEP_MOST_MS);
    if (session->failure.status == COLL_OK) (void)session->transport->progress(session->context, 0);
}

/* Sleeps until the nap is over or the thread must end. */
static void coll__background_delay(coll__session *session)
{
    const int64_t until = coll__now() + session->background.delay;
    int error = 0;

    while (!session->background.is_stopping && error == 0)
        error = coll__cond_wait_until(&session->background.doorbell, &session->lock, until);
}

/* Sleeps until another thread starts the next nap. */
static void coll__background_sleep(coll__session *session, coll__background_wait what)
{
    coll__background *m = &session->background;

    if (what == COLL__FOR_A_START) __atomic_store_n(&session->is_shared, session->has_many, __ATOMIC_RELEASE);
    m->waits = what;
    while (m->waits != COLL__FOR_A_DELAY && !m->is_stopping) coll__cond_wait(&m->doorbell, &session->lock);
}

/* Other threads progress operations: nap for longer. */
static void coll__background_back_off(coll__background *m)
{
    if (m->delay < (int64_t)COLL__DELAY_MOST_US * 1000) m->delay *= 2;
}

/* Sleeps for a while.  Returns true if operations are pending and no thread has entered meanwhile. */
static bool coll__background_rest(coll__session *session)
{
    coll__background *m = &session->background;
    const unsigned visits = session->visits, starts = m->starts;

    coll__background_delay(session);
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
        const bool is_welcome = session->entrants == 0 || coll__now() - began > (int64_t)COLL__DELAY_MOST_US * 1000;
        if (is_welcome) m->delay = (int64_t)COLL__DELAY_LEAST_US * 1000;
        else coll__background_back_off(m);
    }
    coll__lock_drop(&session->lock);
    return NULL;
}

/* ---- >>called by the program's threads ---- */

/* The caller holds the lock, which the new thread takes first. */
static void coll__background_begin(coll__session *session)
{
    coll__background *m = &session->background;
    const int error = coll__thread_begin(&m->thread, COLL__BACKGROUND_STACK, coll__background_main, session);

    m->has_thread = error == 0;
    if (m->has_thread) return;
    m->is_wanted = false;
    coll__say(&session->log, COLL_LOG_INFO, "no thread to move operations while the program computes: %s", strerror(error));
}

/* The holder leaves.  If the progress thread waits for that, it naps if operations are pending, or waits for a start. */
static void coll__background_pass(coll__session *session)
{
    coll__background *m = &session->background;

    if (m->waits != COLL__FOR_A_DROP) return;
    m->waits = coll__session_is_busy(session) ? COLL__FOR_A_DELAY : COLL__FOR_A_START;
    if (m->waits == COLL__FOR_A_DELAY) coll__cond_wake(&m->doorbell);
    else __atomic_store_n(&session->is_shared, session->has_many, __ATOMIC_RELEASE);
}

/* A thread inside `comm` has started an operation that is incomplete.  From here on that thread must hold the session. */
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
            m->waits = COLL__FOR_A_DELAY;
            coll__cond_wake(&m->doorbell);
        }
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

static void coll__background_pass(coll__session *session) { (void)session; }
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

/* Starts a request and progresses it once; later errors are the request's. */
static void coll__start_request(coll_comm *comm, coll_request *r)
{
    const bool is_silent = r->carrier->traits & COLL__WAKES_NONE;
    coll_status begun = coll__launch(r);

    if (begun >= 0 && r->status == COLL_PENDING && !is_silent && !coll__leaves_with_others(r))
        begun = coll__move_started(comm->session);
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
