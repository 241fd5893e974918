/* coll_fast_path.h - blocking calls: executed at once if nothing runs before them, and the fast path for calls with a plan.
 *
 * A plain call of a simple kind uses the request of its plan (coll_plan.h).  If the plan fits, the call checks its arguments
 * and goes directly to a transport that executes whole collectives. */
#ifndef COLL_FAST_PATH_H
#define COLL_FAST_PATH_H

/* ---- >>at once ---- */

/* A call that was never queued has ended. */
static inline coll_status coll__done_at_once(coll_request *r)
{
    if (r->call.flags & COLL_DETECT_OVERFLOW) coll__look_for_overflow(r);
    return COLL_OK;
}

/* The transport did not complete a request at the first look.  Offer it again several times, because most tasks complete soon;
 * then queue it as it is. */
static __attribute__((noinline)) coll_status coll__run_on(coll_request *r, coll_status status, coll_failure *failure)
{
    coll_comm *comm = r->comm;
    coll__session *session = comm->session;
    int most = coll__spin_now(session) > 0 ? COLL__LOOKS_A_ROUND : 1;

    COLL__ASSERT(r->carrier->traits & COLL__AS_A_WHOLE, "%s was offered to the transport, and %s carries it",
                 coll_kind_name(r->call.kind), r->carrier->name);
    for (int looks = 0; status == COLL_PENDING && looks < most; looks++) {
        if (looks > 0 && !session->is_crowded) coll__relax();
        else if (looks > 0 && !coll__give_way(session)) most = 0;
        failure->status = COLL_OK;
        status = session->transport->offload(session->context, &r->task, failure);
    }
    if (status == COLL_OK) return coll__done_at_once(r);
    r->status = COLL_PENDING;
    r->is_started = status == COLL_PENDING;
    if (status == COLL_ERR_UNSUPPORTED) (void)coll__next_carrier(r);
    coll__record_begin(r);
    coll__order_append(r->order, r);
    if (r->is_started || status == COLL_ERR_UNSUPPORTED) return coll__wait(r);
    (void)coll__comm_fail(comm, failure->status != COLL_OK ? failure : NULL);
    return r->status;
}

/* What executes a checked call at once, if nothing runs before it; NULL: the call uses its order. */
static inline coll_offload_fn *coll__start_at_once(const coll_request *r)
{
    const bool is_whole = (r->carrier->traits & (COLL__AS_A_WHOLE | COLL__AT_CALL)) == COLL__AS_A_WHOLE;

    const bool is_plain = !r->call.residual && !r->strided && !coll__kind_is(r->call.kind, COLL__NEIGHBORS);
    return COLL__TAKES_WHOLE && is_whole && is_plain ? r->comm->session->transport->offload : NULL;
}

/* Execute a checked request: with `start` and `bound`, if `start` is not NULL and nothing runs before it. */
static coll_status coll__run_checked(coll_request *r, coll_offload_fn *start, void *bound)
{
    coll_comm *comm = r->comm;
    const coll__session *session = comm->session;
    coll_failure failure;
    coll_status status;

    if (COLL__TAKES_WHOLE && start && !session->orders) {
        failure.status = COLL_OK;
        coll__name_request(r, ++comm->sequence);
        status = start(bound, &r->task, &failure);
        status = status == COLL_OK ? coll__done_at_once(r) : coll__run_on(r, status, &failure);
    } else status = coll__launch(r) < 0 ? r->status : coll__wait(r);
    return status == COLL_PENDING ? session->failure.status : status;
}

/* May a call start?  Not after a failure, nor after coll_abort. */
static inline coll_status coll__look_alive(coll__session *session)
{
    if (__atomic_load_n(&session->abort_wanted, __ATOMIC_ACQUIRE)) (void)coll__abort_now(session);
    return session->failure.status;
}

/* Execute the call in r->call; its request is on the caller's stack.  The caller has entered the communicator. */
static coll_status coll__run_inside(coll_comm *comm, coll_request *r)
{
    coll_status status = coll__look_alive(comm->session);

    if (status != COLL_OK) return status;
    if ((status = coll__ready(comm, r, true)) < 0) return status;
    status = coll__run_checked(r, coll__start_at_once(r), comm->session->context);
    coll__release(r);
    return status;
}

/* The same with buffers in the memory of this process, even if the communicator is extended.  The caller stays inside: if
 * another thread ended the wait, this thread takes the session again. */
static coll_status coll__run_by_host(coll_comm *comm, coll_request *r)
{
    const bool was_holder = comm->is_holder;

    comm->is_by_host = true;
    const coll_status status = coll__run_inside(comm, r);
    comm->is_by_host = false;
    if (COLL__MANY_THREADS && was_holder && !comm->is_holder) coll__session_take(comm);
    return status;
}

/* The fields that most calls have. */
static inline coll_call coll__call_of(coll_kind kind, const void *send, void *recv, size_t count, coll_type type, coll_op op,
                                      int root)
{
    return (coll_call){ .kind = kind, .send = send, .recv = recv, .count = count, .type = type, .op = op, .root = root };
}

/* ---- >>plain calls of simple kinds: by their plan ---- */

/* Does this call have the type and operation of the plan? */
COLL__INLINE bool coll__is_planned(const coll__plan *plan, coll_type type, coll_op op)
{
    return type == plan->request.call.type && op == plan->request.call.op;
}

static inline void coll__call_set(coll_call *call, const void *send, void *recv, size_t count, int root)
{
    call->send = send;
    call->recv = recv;
    call->count = count;
    call->root = root;
}

/* Prepare the request of a plan for a call. */
static coll_status coll__plan_ready(coll_comm *comm, coll__plan *plan, coll_kind kind, const void *send, void *recv, size_t count,
                                    coll_type type, coll_op op, int root)
{
    const void *const from = coll__in_place_of(kind, send, recv);
    coll_request *const r = &plan->request;

    if (COLL__PLANS && plan->is_made && r->call.wire == type && coll__is_planned(plan, type, op)
        && coll__plan_suits(comm, plan, kind, from, recv, count, root)) {
        coll__call_set(&r->call, from, recv, count, root);
        return COLL_OK;
    }
    coll__plan_forget(plan);
    r->call = coll__call_of(kind, send, recv, count, type, op, root);
    return coll__ready(comm, r, true);
}

/* Execute a blocking call of a simple kind. */
static __attribute__((noinline)) coll_status coll__run_any(coll_comm *comm, coll_kind kind, const void *send, void *recv,
                                                           size_t count, coll_type type, coll_op op, int root)
{
    coll_status status = coll__enter(comm);

    if (status < 0) return status;
    if ((status = coll__look_alive(comm->session)) < 0) return coll__leave(comm, status);
    coll__plan *plan = coll__plan_at(comm, &comm->plans[coll__plan_place(kind)]);
    if (!plan) return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "no memory for the plan of a call"));
    if ((status = coll__plan_ready(comm, plan, kind, send, recv, count, type, op, root)) < 0) return coll__leave(comm, status);
    if (COLL__PLANS && plan->is_made) {
        if (plan->start) plan->request.carrier = plan->carrier;       /* it may decline one call and accept the next */
        return coll__leave(comm, coll__run_checked(&plan->request, plan->start, plan->bound));
    }
    status = coll__run_checked(&plan->request, coll__start_at_once(&plan->request), comm->session->context);
    coll__release(&plan->request);
    return coll__leave(comm, status);
}

/* The same with a kind that is a compile-time constant.  The fast path calls only the transport. */
COLL__INLINE coll_status coll__run_simple(coll_comm *comm, coll_kind kind, const void *send, void *recv, size_t count,
                                          coll_type type, coll_op op, int root)
{
    if (!COLL__PLANS || !comm || !*comm->guard || !coll__comm_lock_try(comm))
        return coll__run_any(comm, kind, send, recv, count, type, op, root);
    coll__plan *plan = comm->plans[coll__plan_place(kind)];
    const coll__session *session = comm->session;
    const bool may_start = !coll__is_shared(session) && session->failure.status == COLL_OK && plan && plan->start
        && coll__is_planned(plan, type, op) && !session->orders && !__atomic_load_n(&session->abort_wanted, __ATOMIC_RELAXED)
        && coll__plan_suits(comm, plan, kind, send, recv, count, root);
    if (!__builtin_expect(may_start, 1)) {        /* optimized for the likely case                            */
        coll__comm_lock_release(comm);
        return coll__run_any(comm, kind, send, recv, count, type, op, root);
    }
    coll_request *r = &plan->request;
    coll_failure failure;
    failure.status = COLL_OK;
    coll__call_set(&r->call, send, recv, count, root);
    memset(r->task.state, 0, sizeof r->task.state);
    r->sequence = ++comm->sequence;
    coll__head_set_next(r->head, r->sequence, root, count, 0);
    coll_status status = plan->start(plan->bound, &r->task, &failure);
    if (status != COLL_OK) {
        r->carrier = plan->carrier;
        status = coll__run_on(r, status, &failure);
        return coll__leave(comm, status == COLL_PENDING ? session->failure.status : status);
    }
    coll__comm_lock_release(comm);
    return COLL_OK;
}

#endif /* COLL_FAST_PATH_H */
