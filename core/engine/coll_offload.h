/* coll_offload.h - calls that the transport executes as a whole. */
#ifndef COLL_OFFLOAD_H
#define COLL_OFFLOAD_H

#if !COLL__IS_TINY                                /* COLL__TAKES_WHOLE                                        */

/* A call that names an algorithm is for the engine; one over nodes names what the engine does if the transport declines it. */
static bool coll__offload_takes(const coll_request *r)
{
    return (!r->call.algorithm || COLL__LEAVES_OF(&r->codec)) && coll__order_is_offered(r->order);
}

static coll_status coll__offload_advance(coll_request *r)
{
    const coll__session *session = r->comm->session;
    coll_failure failure;

    failure.status = COLL_OK;
    r->task.ahead = r->order->place;
    const coll_status status = session->transport->offload(session->context, &r->task, &failure);
    r->task.ahead = 0;
    if (status >= 0 || status == COLL_ERR_UNSUPPORTED) return status;
    return coll__comm_fail(r->comm, failure.status != COLL_OK ? &failure : NULL);
}

/* Offer a task again that has begun.  If the transport declines it, it declines on all ranks; then the next carrier begins. */
static coll_status coll__offload_again(coll_request *r)
{
    const coll_status status = coll__offload_advance(r);

    if (status != COLL_ERR_UNSUPPORTED) return status;
    r->is_started = false;
    (void)coll__next_carrier(r);
    return coll__carry_on(r);
}

/* The next task may begin as soon as this one has begun. */
static COLL__UNUSED uint64_t coll__offload_later(const coll_request *r) { return r->task.state[0] ? 0 : ~(uint64_t)0; }

static void coll__offload_late(const coll_request *r, unsigned char *is_late)
{
    const coll__session *session = r->comm->session;
    if (session->transport->mark_stragglers) session->transport->mark_stragglers(session->context, &r->task, is_late);
}

static bool coll__offload_explain(coll_request *r, char *text, size_t room)
{
    const coll__session *session = r->comm->session;
    const coll_transport *t = session->transport;
    char why[120];

    if (t->can_offload && t->can_offload(session->context, &r->call, r->comm->size, why, sizeof why) < 1) return false;
    coll__append(text, room, "the transport's own way");
    return true;
}

#endif
#endif /* COLL_OFFLOAD_H */
