/* coll_request.h - requests: initialization, fingerprints, queues, ends; and the first failure, which ends all of them. */
#ifndef COLL_REQUEST_H
#define COLL_REQUEST_H

/* ---- >>begin ---- */

/* Initialize all fields except the execution, which the start sets. */
static void coll__request_init(coll_request *r, coll_comm *comm)
{
    const bool is_message = coll__kind_is_message(r->call.kind);

    memset((unsigned char *)r + offsetof(coll_request, next), 0, offsetof(coll_request, call) - offsetof(coll_request, next));
    r->comm = comm;
    r->graph_version = comm->graph_version;
    r->order = is_message && !coll__is_extended(comm) ? NULL : &comm->main;
    r->got_source = r->got_tag = -1;
}

/* The task of a request, not offered yet.  Field by field: see coll__copy_struct. */
static inline void coll__task_init(coll_request *r)
{
    coll_task *const task = &r->task;

    task->call = &r->call;
    task->head = r->head;
    task->codec = &r->codec;
    task->group = r->order ? r->order->group : NULL;
    memset(task->state, 0, sizeof task->state);
    task->ahead = 0;
    task->is_finite = 0;
    task->is_blocking = r->is_blocking;
}

/* Make the fingerprint for the first time.  Calls that the transport executes have no history, because it compares all
 * fingerprints; nor have prepared calls, which are equal.  ends_early: a rank can end the call before its fingerprint was
 * compared, through others, with those of all ranks: the root of a broadcast can, and the other ranks of a reduce. */
static void coll__name_first(coll_request *r, uint32_t sequence)
{
    static const uint64_t none = 0;
    coll_comm *comm = r->comm;
    const coll__order *order = r->order;
    const coll_kind kind = r->call.kind;
    const bool has_history = COLL__HAS_HISTORY && order == &comm->main && !(r->carrier->traits & COLL__AS_A_WHOLE);
    const uint32_t number = !order ? 0 : order->number < COLL__PREPARED_MOST ? (uint32_t)order->number : COLL__PREPARED_MOST;

    r->history = has_history ? &comm->main.history : &none;
    r->ends_early = has_history
                 && (coll__kind_is(kind, COLL__ROOTED | COLL__NEIGHBORS) || (COLL__HAS_SCAN && coll__kind_scans(kind)));
    coll__head_of_call(r->head, &r->call, comm->size, (comm->mark & ~(uint32_t)COLL__PREPARED_MOST) | number, sequence);
    if (COLL__HAS_HISTORY) coll__put64(r->head + 24, coll__get64(r->head + 24) | *r->history << 48);
    if (r->whole) {                               /* a part has the kind and root of its whole, and its own options */
        r->head[12] = r->whole->head[12];
        memcpy(r->head + 20, r->whole->head + 20, coll__head_options(r->head) & COLL__HASHED ? 2 : 4);
    }
    coll__task_init(r);
}

/* Set number (0: none), fingerprint and task of a request that starts.  After an equal call only the differences are set. */
static inline void coll__name_request(coll_request *r, uint32_t sequence)
{
    r->sequence = sequence;
    if (r->has_head) {
        coll__head_set_next(r->head, sequence, r->call.root, r->call.count, COLL__HAS_HISTORY ? *r->history : 0);
        memset(r->task.state, 0, sizeof r->task.state);
    } else coll__name_first(r, sequence);
    if (COLL__HAS_HISTORY && r->ends_early) r->order->history = coll__history_with(r->order->history, r->head);
}

/* The same, and record it. */
static inline void coll__begin_request(coll_request *r, uint32_t sequence)
{
    coll__name_request(r, sequence);
    coll__record_begin(r);
}

/* ---- >>end ---- */

/* COLL_DETECT_OVERFLOW, for a successful call: check this rank's result, unless its carrier has done so.  A list takes the
 * results of its parts, and counts once. */
static void coll__look_for_overflow(coll_request *r)
{
    const coll_call *c = &r->call;

    if (!coll__kind_reduces(c->kind)) return;
    if (c->kind != COLL_ALLREDUCE_LIST) {
        const int seen = r->task.is_finite;
        r->has_overflow = seen ? seen < 0 : coll__overflows(c->recv, coll__result_count(r->comm, c), c->type);
    }
    if (r->has_overflow && !r->whole) coll__overflows_count(r->comm);
}

#if COLL__HAS_BACKGROUND

/* Make the descriptor of coll_fd readable. */
static inline void coll__fd_ring(coll__session *session)
{
    if (session->doorbell.fd < 0 || __atomic_exchange_n(&session->is_fd_rung, 1, __ATOMIC_ACQ_REL)) return;
    coll__doorbell_ring(&session->doorbell);
}

/* Clear the descriptor of coll_fd. */
static inline void coll__fd_hear(coll__session *session)
{
    if (session->doorbell.fd < 0 || !__atomic_load_n(&session->is_fd_rung, __ATOMIC_ACQUIRE)) return;
    coll__doorbell_clear(&session->doorbell);
    __atomic_store_n(&session->is_fd_rung, 0, __ATOMIC_RELEASE);
}

static inline void coll__fd_close(coll__session *session) { coll__doorbell_close(&session->doorbell); }

#else

static inline void coll__fd_ring(coll__session *session) { (void)session; }
static inline void coll__fd_hear(coll__session *session) { (void)session; }
static inline void coll__fd_close(coll__session *session) { (void)session; }

#endif

/* Another thread may wait for the request, and free it as soon as the status is written. */
static void coll__request_finish(coll_request *r, coll_status status)
{
    void (*const done)(coll_request *whole, coll_request *part, coll_status status) = r->done;
    coll_request *const whole = r->whole;
    coll_status *const awaited = r->awaited;
    coll__session *const session = r->comm->session;

    COLL__ASSERT(r->status == COLL_PENDING && status != COLL_PENDING, "%s %u ends with %d, after %d",
                 coll_kind_name(r->call.kind), r->sequence, (int)status, (int)r->status);
    if (status < 0 && r->comm->is_leaving) status = COLL_ERR_ABORTED;
    if (COLL__IS_WHOLE && status == COLL_OK && r->strided) coll__columns_move(&r->strided->recv, false);
    if (status == COLL_OK && r->call.flags & COLL_DETECT_OVERFLOW) {
        if (!COLL__ON_DEMAND) coll__look_for_overflow(r);
        else session->by_key->look_for_overflow(r);
    }
    session->finished++;
    if (r->is_started && r->carrier->traits & COLL__WAKES_NONE) session->silent--;
    coll__record_end(r, status);
    /* A list has no number, its parts have.  A call of a carrier at the call has the number of the first call that the host makes
     * for it, and another fingerprint. */
    if (r->sequence && !(r->carrier->traits & COLL__AT_CALL)) coll__activity_set(session, session->activity.last, r->head);
    __atomic_store_n(&r->status, status, __ATOMIC_RELEASE);
    if (awaited) __atomic_store_n(awaited, COLL_OK, __ATOMIC_RELEASE);
    if (done) done(whole, r, status);
    coll__fd_ring(session);
}

static inline coll_status coll__status_of(const coll_request *r) { return __atomic_load_n(&r->status, __ATOMIC_ACQUIRE); }
static inline bool coll__is_pending(const coll_request *r) { return coll__status_of(r) == COLL_PENDING; }

/* ---- >>orders: the first request of a queue runs ---- */

static void coll__order_append(coll__order *order, coll_request *r)
{
    coll__session *session = order->comm->session;

    COLL__ASSERT(r->status == COLL_PENDING, "%s %u is queued with status %d", coll_kind_name(r->call.kind), r->sequence,
                 (int)r->status);
    COLL__ASSERT(!order->queue == (order->queue_end == &order->queue), "order %u has lost its end", (unsigned)order->number);
    r->next = NULL;
    r->is_over = r->touched.is_known = false;
    r->workspace = 0;
    *order->queue_end = r;
    order->queue_end = &r->next;
    order->rests = false;
    if (order->is_active) return;
    order->is_active = true;
    order->next = session->orders;
    session->orders = order;
}

static void coll__order_rest(coll__order *order)
{
    coll__order **at = &order->comm->session->orders;

    COLL__ASSERT(order->is_active && !order->queue, "order %u rests, and is %s", (unsigned)order->number,
                 order->queue ? "not empty" : "not among the active");
    while (*at != order) at = &(*at)->next;
    *at = order->next;
    order->is_active = false;
}

/* ---- >>end of everything ---- */

/* End every operation of all communicators with `status`. */
static void coll__session_end(coll__session *session, coll_status status)
{
    while (session->orders) {
        coll__order *order = session->orders;
        session->orders = order->next;
        order->is_active = false;
        for (coll_request *first = order->queue; first; first = order->queue) {
            order->queue = first->next;
            if (!order->queue) order->queue_end = &order->queue;
            const bool is_last = !order->queue;
            coll__request_finish(first, status);  /* may free the order                                       */
            if (is_last) break;
        }
    }
    for (int i = 0; i < session->carrier_count; i++)
        if (session->carriers[i].end) session->carriers[i].end(session, status);
    if (COLL__ON_DEMAND && session->by_key) session->by_key->carrier->end(session, status);
}

/* End all communicators of the session because of *cause (NULL: the transport's).  Notifies the other ranks, takes the cause on
 * which all agree, and ends every operation with it. */
static coll_status coll__session_fail(coll__session *session, const coll_failure *cause)
{
    if (session->failure.status != COLL_OK) return session->failure.status;

    coll_failure unknown = { COLL_OK, -1, "" };
    const coll_failure *agreed = session->transport->fail ? session->transport->fail(session->context, cause) : cause;
    if (!agreed) {
        coll__set_failure(&unknown, COLL_ERR_SYSTEM, -1, "the transport \"%s\" failed", session->transport->name);
        agreed = &unknown;
    }
    session->failure.rank = agreed->rank;
    memcpy(session->failure.text, agreed->text, sizeof session->failure.text);
    session->failure.text[sizeof session->failure.text - 1] = '\0';
    __atomic_store_n(&session->failure.status, agreed->status, __ATOMIC_RELEASE);  /* last, because other threads read it */
    for (coll_comm *comm = session->comms; comm; comm = comm->next) coll__print_failure(comm);
    if (session->comms) coll__say(&session->log, COLL_LOG_WARN, "%s", session->comms->ending);
    coll__dump_failure(session);
    for (coll_comm *comm = session->comms; comm; comm = comm->next) if (comm->extension) comm->extension->end(comm);
    coll__session_end(session, session->failure.status);
    return session->failure.status;
}

static coll_status coll__comm_fail(coll_comm *comm, const coll_failure *cause)
{
    return coll__session_fail(comm->session, cause);
}

/* End the session with the status of a step that failed.  COLL_ERR_MEMORY is this rank's failure; for any other the transport
 * knows the cause, if it has `fail`. */
static __attribute__((noinline)) coll_status coll__session_broken(coll__session *session, coll_status status)
{
    coll_failure failure = { COLL_OK, -1, "" };

    if (status == COLL_ERR_MEMORY)
        coll__set_failure(&failure, status, session->rank, "rank %d has no memory for the operation", session->rank);
    else if (!session->transport->fail)
        coll__set_failure(&failure, status, -1, "the transport \"%s\" failed: %s", session->transport->name,
                          coll_status_text(status));
    return coll__session_fail(session, failure.status != COLL_OK ? &failure : NULL);
}

static coll_status coll__has_no_memory(coll_comm *comm) { return coll__session_broken(comm->session, COLL_ERR_MEMORY); }

#endif /* COLL_REQUEST_H */
