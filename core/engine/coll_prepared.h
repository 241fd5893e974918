/* coll_prepared.h - prepares, starts and restarts requests.
 *
 * A prepared call has its own order (coll__order).  Its key is the call's number, equal on all ranks, because all ranks prepare
 * calls in the same order.  So its starts follow one another, whatever else runs. */
#ifndef COLL_PREPARED_H
#define COLL_PREPARED_H

struct coll__prepared {
    coll__order   order;
    coll_request *request;
    uint32_t      starts;                         /* used instead of the communicator's sequence              */
    coll__prepared *next;                         /* in the communicator's list                               */
};

static inline uint32_t coll__next_number(const coll_request *r)
{
    return r->prepared ? ++r->prepared->starts : ++r->comm->sequence;
}

/* Start a checked request.  On return it is pending or has ended. */
static coll_status coll__launch(coll_request *r)
{
    coll__order *order = r->order;

    r->status = COLL_PENDING;
    r->is_started = false;
    r->tested_at = 0;
    if (r->carrier->traits & COLL__AT_CALL) return r->carrier->start(r);
    if (r->call.residual) coll__feedback_start(r);
    coll__begin_request(r, coll__next_number(r));
    const bool is_first = order->queue == NULL;
    coll__order_append(order, r);
    return is_first ? coll__order_advance(order) : COLL_OK;
}

/* Set the error sentence if the transport refuses a call. */
static coll_status coll__refused(coll_comm *comm, const coll_call *call)
{
    char why[120] = "";

    return coll__is_refused(comm, call, why, sizeof why) ? coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "%s", why)
                                                         : COLL_OK;
}

/* Free what checking a call has allocated. */
static void coll__unready(coll_request *r)
{
    coll__give(r->offsets);
    coll__give(r->changed);
    r->offsets = NULL;
    r->changed = NULL;
    if (r->strided) coll__strides_give(r);
    r->strided = NULL;
}

/* Check the call in r->call and prepare the request for its launch. */
static coll_status coll__ready(coll_comm *comm, coll_request *r, bool is_blocking)
{
    coll__request_init(r, comm);
    r->is_blocking = is_blocking;
    const bool is_extended = coll__is_extended(comm);
    coll_status status = coll__has_strides(&r->call) ? coll__strides_ready(comm, r) : COLL_OK;
    if (status == COLL_OK) status = coll__check(comm, &r->call, &r->codec, &r->offsets);
    if (status == COLL_OK && !is_extended) status = coll__refused(comm, &r->call);
    if (status == COLL_OK) r->carrier = coll__carrier_of(r);
    if (status == COLL_OK && r->carrier->bind) status = r->carrier->bind(r);
    if (status == COLL_OK && r->call.residual && !is_extended) status = coll__feedback_ready(r);
    if (status < 0) coll__unready(r);
    return status;
}

/* Prepare a request from the fitting plan: copies only what a start does not set.  false: no plan fits the call. */
static bool coll__ready_by_plan(coll_comm *comm, coll_request *r)
{
    const bool may = !coll__is_extended(comm) && (unsigned)r->call.kind < COLL__KIND_COUNT && !coll__has_strides(&r->call);
    const coll__plan *const plan = may ? coll__check_by_plan(comm, &r->call) : NULL;

    if (!plan || plan->carrier->bind) return false;
    if (!coll__kind_has_root(r->call.kind)) r->call.root = 0;     /* as in the fingerprint                    */
    coll__request_init(r, comm);
    coll__copy_struct(&r->codec, &plan->request.codec, sizeof r->codec);
    coll__copy_struct(r->head, plan->request.head, sizeof r->head);
    r->has_head = true;
    r->history = plan->request.history;
    r->ends_early = plan->request.ends_early;
    coll__task_init(r);
    r->carrier = plan->carrier;
    return true;
}

/* A checked request with its own memory; called inside the communicator. */
static coll_status coll__request_new(coll_comm *comm, const coll_call *call, coll_request **out)
{
    if (!out) return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "out is NULL");
    coll_request *r = coll__request_take(comm);

    *out = r;
    if (!r) return coll__explain_error(comm, call, COLL_ERR_MEMORY, "no memory for a request");
    r->call = *call;
    if (coll__ready_by_plan(comm, r)) return COLL_OK;
    memset(r, 0, offsetof(coll_request, pool));
    r->call = *call;
    const coll_status status = coll__ready(comm, r, false);
    if (status == COLL_OK) return COLL_OK;
    *out = NULL;
    coll__request_give(r);
    return status;
}

/* Free what was allocated for a request. */
static void coll__release(coll_request *r)
{
    if (r->carrier->unbind) r->carrier->unbind(r);
    coll__unready(r);
}

/* Give a checked request its own order. */
static coll_status coll__prepare(coll_comm *comm, coll_request *r)
{
    coll__prepared *p = (coll__prepared *)coll__allocate(coll__like(comm), sizeof *p);

    if (!p) return COLL_ERR_MEMORY;
    coll__order_init(&p->order, comm, COLL__SPACE_CALLS, ++comm->prepare_count, true);
    if (r->order && coll__order_join(&p->order) < 0) {
        coll__give(p);
        return COLL_ERR_MEMORY;
    }
    p->request = r;
    p->next = comm->prepared;
    comm->prepared = p;
    r->prepared = p;
    if (r->order) r->order = &p->order;
    r->carrier = coll__carrier_of(r);             /* depends on the order                                     */
    r->is_prepared = true;
    r->has_head = false;                          /* it must get the new number                               */
    r->status = COLL_OK;                          /* like an ended one: it may be started                     */
    r->is_known = true;
    return COLL_OK;
}

/* Free a request that does not run; a prepared one leaves its communicator. */
static void coll__request_free(coll_request *r)
{
    coll__prepared *const p = r->prepared, **at;

    if (p && r->comm) {
        for (at = &r->comm->prepared; *at != p;) at = &(*at)->next;
        *at = p->next;
        coll__order_leave(&p->order);
    }
    coll__give(p);
    coll__release(r);
    coll__request_give(r);
}

/* Ended, after its owner has freed it while it ran. */
static void coll__detached_done(coll_request *whole, coll_request *r, coll_status status)
{
    (void)whole, (void)status;
    coll__request_free(r);
}

#endif /* COLL_PREPARED_H */
