/* coll_wait_any.h - tests, waits (one, any, some, all) and frees of started requests.
 *
 * is_known: the end of a request was reported to the program, by coll_test, coll_wait or a wait for one of several.  So each
 * end is reported once, no matter which call completed it.  A restart clears the flag.
 *
 * A wait for one of several enters all communicators of its pending requests.  Their end is written to its status (awaited), so
 * that it need not poll each request.
 *     one session     uses the wait loop (coll_wait_loop.h)
 *     several         no sleep is woken by all of them: it polls them in turn, sleeping up to a millisecond in each */
#ifndef COLL_WAIT_ANY_H
#define COLL_WAIT_ANY_H

/* ---- >>one ---- */

/* Report the status of a request to the program. */
static coll_status coll__tell(coll_request *r)
{
    const coll_status status = coll__status_of(r);

    if (status != COLL_PENDING) r->is_known = true;
    return status;
}

COLL__INLINE coll_status coll__test_or_wait(coll_request *request, bool waits)
{
    if (!request) return COLL_OK;
    if (!coll__is_pending(request)) return coll__tell(request);
    coll_comm *comm = request->comm;
    const coll_status status = coll__enter(comm);
    if (status < 0) return status;
    if (waits) (void)coll__wait(request);
    else {
        (void)coll__advance(comm->session, 0);
        coll__test_again(request);
    }
    return coll__leave(comm, coll__tell(request));
}

COLL_API coll_status coll_test(coll_request *request) { return coll__test_or_wait(request, false); }
COLL_API coll_status coll_wait(coll_request *request) { return coll__test_or_wait(request, true); }

static coll_status coll__check_requests(const char *call, int count, coll_request **requests)
{
    if (count == 0 || (count > 0 && requests)) return COLL_OK;
    return coll__start_failed(COLL_ERR_ARGUMENT, count < 0 ? "%s: count %d is out of range: 0 or more"
                              : "%s: the list of %d requests is NULL", call, count);
}

/* The end of all, one after the other; the first error. */
static coll_status coll__wait_each(int count, coll_request **requests)
{
    coll_status first = COLL_OK;

    for (int i = 0; i < count; i++) {
        const coll_status status = coll_wait(requests[i]);
        if (first == COLL_OK) first = status;
    }
    return first;
}

COLL_API coll_status coll_wait_all(int count, coll_request **requests)
{
    const coll_status status = coll__check_requests("coll_wait_all", count, requests);
    return status < 0 ? status : coll__wait_each(count, requests);
}

/* ---- >>one of several: entering their communicators ---- */

typedef struct coll__watch {
    int           count;
    coll_request **requests;
    coll_status   status;                         /* COLL_PENDING until one of them has ended                 */
    coll_comm    *comms;                          /* of pending requests; each is entered once                */
    bool          has_sessions;                   /* `comms` belong to several sessions                       */
} coll__watch;

static void coll__watch_leave(coll__watch *w)
{
    while (w->comms) {
        coll_comm *comm = w->comms;
        w->comms = comm->beside;
        __atomic_store_n(&comm->watch, NULL, __ATOMIC_RELAXED);
        coll__comm_lock_release(comm);
    }
}

/* Other calls inside (a concurrent call, which is an error, or coll_abort) have another watch, or none. */
static coll_status coll__watch_enter(coll__watch *w)
{
    for (int i = 0; i < w->count; i++) {
        coll_comm *comm = w->requests[i] && coll__is_pending(w->requests[i]) ? w->requests[i]->comm : NULL;
        if (!comm || __atomic_load_n(&comm->watch, __ATOMIC_RELAXED) == w) continue;
        if (!*comm->guard || !coll__comm_lock_take(comm)) {
            coll__watch_leave(w);
            return coll__stay_out(comm);
        }
        __atomic_store_n(&comm->watch, w, __ATOMIC_RELAXED);
        w->has_sessions |= w->comms && w->comms->session != comm->session;
        comm->beside = w->comms;
        w->comms = comm;
    }
    return COLL_OK;
}

/* ---- >>one of several: waiting ---- */

static void coll__watch_take(coll_comm *first)
{
    if (coll__is_shared(first->session) && !first->is_holder) coll__session_take(first);
}

/* All pending requests are of one coll_init: wait until one of them has ended.  `first` holds it.  The goal uses the request
 * with the shortest time limit.  If a request has ended already, the goal is reached. */
static void coll__watch_one(coll__watch *w, coll_comm *first)
{
    coll__goal goal = { first, NULL, &w->status, false, false };

    coll__watch_take(first);
    for (int i = 0; i < w->count; i++) {
        coll_request *r = w->requests[i];
        if (!r || r->is_known) continue;
        if (!coll__is_pending(r)) __atomic_store_n(&w->status, COLL_OK, __ATOMIC_RELAXED);
        else {
            r->awaited = &w->status;
            if (!goal.request || coll__limit_ms(r) < coll__limit_ms(goal.request)) goal.request = r;
            if (r->order && r->call.op == COLL_USER) goal.has_user_op = true;
            if (r->carrier->traits & COLL__WAKES_NONE) goal.is_silent = true;
        }
    }
    if (!coll__is_reached(&goal)) coll__wait_for(&goal);
    coll__watch_take(first);                      /* the thread that has reached the goal may hold it         */
    for (int i = 0; i < w->count; i++)
        if (w->requests[i] && w->requests[i]->awaited == &w->status) w->requests[i]->awaited = NULL;
    if (first->is_holder) coll__session_drop(first);
}

/* Advance a session, and sleep up to wait_ms in the transport, unless an end would not wake it. */
static void coll__watch_look(const coll__watch *w, coll_comm *comm, int wait_ms)
{
    coll__session *session = comm->session;

    coll__watch_take(comm);
    if (session->transport->now) wait_ms = 0;     /* a virtual clock only advances in progress                */
    if (wait_ms > 0 && session->silent > 0) wait_ms = 0, coll__delay(20);
    (void)coll__advance(session, wait_ms);
    for (int i = 0; i < w->count; i++) {
        coll_request *r = w->requests[i];
        if (r && coll__is_pending(r) && r->comm->session == session) coll__test_again(r);
    }
    if (comm->is_holder) coll__session_drop(comm);
}

/* Wait until one has ended.  With several sessions: advance each, and sleep in each after many `looks`. looks < 0: advance
 * only.  Communicators of one session are neighbors in the list, or it is advanced again, which does no harm. */
static coll_status coll__watch_all(int count, coll_request **requests, int looks)
{
    coll__watch w = { count, requests, COLL_PENDING, NULL, false };
    const coll_status status = coll__watch_enter(&w);

    if (status < 0) return status;
    if (looks >= 0 && w.comms && !w.has_sessions) coll__watch_one(&w, w.comms);
    else
        for (coll_comm *comm = w.comms; comm; comm = comm->beside)
            if (!comm->beside || comm->beside->session != comm->session)
                coll__watch_look(&w, comm, looks > COLL__LOOKS_A_CLOCK);
    coll__watch_leave(&w);
    return COLL_OK;
}

/* ---- >>one of several: what has ended ---- */

/* Report up to `most` ended requests: writes their indices, returns their number. *status: the first error. *is_left: others
 * are pending. */
static int coll__tell_ended(int count, coll_request **requests, int *indices, int most, coll_status *status, bool *is_left)
{
    int found = 0;

    *status = COLL_OK;
    *is_left = false;
    for (int i = 0; i < count && found < most; i++) {
        coll_request *r = requests[i];
        if (!r || r->is_known) continue;
        const coll_status ended = coll__tell(r);
        if (ended == COLL_PENDING) *is_left = true;
        else indices[found++] = i;
        if (*status == COLL_OK && ended < 0) *status = ended;
    }
    return found;
}

/* The same, for coll_wait_any and its like: looks until there is one, or once. */
static coll_status coll__some(const char *call, int count, coll_request **requests, int *indices, int most, int *done, bool waits)
{
    coll_status status = coll__check_requests(call, count, requests), watched;
    bool is_left;

    if (status < 0) return status;
    for (int looks = waits ? 0 : -1;; looks += looks < INT_MAX) {
        *done = coll__tell_ended(count, requests, indices, most, &status, &is_left);
        if (*done > 0 || !is_left) return status;
        if (!waits && looks >= 0) return COLL_PENDING;
        if ((watched = coll__watch_all(count, requests, looks)) < 0) return watched;
    }
}

static coll_status coll__any(const char *call, int count, coll_request **requests, int *index, bool waits)
{
    int found;

    if (!index) return coll__start_failed(COLL_ERR_ARGUMENT, "%s: index is NULL", call);
    *index = -1;
    return coll__some(call, count, requests, index, 1, &found, waits);
}

COLL_API coll_status coll_wait_any(int count, coll_request **requests, int *index)
{
    return coll__any("coll_wait_any", count, requests, index, true);
}

COLL_API coll_status coll_test_any(int count, coll_request **requests, int *index)
{
    return coll__any("coll_test_any", count, requests, index, false);
}

COLL_API coll_status coll_wait_some(int count, coll_request **requests, int *indices, int *done)
{
    if (done) *done = 0;
    if (!done || (count > 0 && !indices))
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_wait_some: %s is NULL", done ? "indices" : "done");
    return coll__some("coll_wait_some", count, requests, indices, count, done, true);
}

static bool coll__any_pending(int count, coll_request **requests)
{
    for (int i = 0; i < count; i++)
        if (requests[i] && coll__is_pending(requests[i])) return true;
    return false;
}

COLL_API coll_status coll_test_all(int count, coll_request **requests)
{
    coll_status status = coll__check_requests("coll_test_all", count, requests);

    if (status < 0) return status;
    if (coll__any_pending(count, requests)) {
        if ((status = coll__watch_all(count, requests, -1)) < 0) return status;
        if (coll__any_pending(count, requests)) return COLL_PENDING;
    }
    return coll__wait_each(count, requests);
}

/* ---- >>other calls on requests ---- */

COLL_API coll_status coll_received(const coll_request *request, int *source, int *tag, size_t *count)
{
    if (!request || coll__is_pending(request) || request->got_source < 0)
        return coll__start_failed(COLL_ERR_ARGUMENT, request && coll__is_pending(request) ? "coll_received: the request is still "
                                  "running: wait for it first" : "coll_received: the request is no receive that has succeeded");
    if (source) *source = request->got_source;
    if (tag) *tag = request->got_tag;
    if (count) *count = request->got_count;
    return COLL_OK;
}

COLL_API void coll_request_free(coll_request *request)
{
    if (!request) return;
    coll_comm *comm = request->comm;              /* NULL: prepared, and its communicator was freed           */
    const bool is_ours = !comm || (!coll__is_pending(request) && !request->is_prepared);      /* no other thread uses it */
    if (!is_ours && coll__enter(comm) < 0) return;
    if (!is_ours && coll__is_pending(request)) request->done = coll__detached_done;
    else coll__request_free(request);
    if (!is_ours) (void)coll__leave(comm, COLL_OK);
}

COLL_API coll_status coll_progress(coll_comm *comm)
{
    const coll_status status = coll__enter(comm);
    if (status < 0) return status;
    coll__fd_hear(comm->session);
    const coll_status moved = coll__advance(comm->session, 0);
    return coll__leave(comm, moved < 0 ? moved : COLL_OK);
}

#endif /* COLL_WAIT_ANY_H */
