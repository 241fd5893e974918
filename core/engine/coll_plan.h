/* coll_plan.h - plans: the checked parts of a plain call, for later calls of its kind.
 *
 * Most programs repeat a few calls with other buffers.  A plain call of a simple kind leaves a plan: its arithmetic,
 * fingerprint and carrier, and what the transport has bound for it.  The next call of that kind, type and operation checks only
 * count, root and buffers (coll__plan_suits).  A blocking one starts from the plan's request (coll_fast_path.h).  The order
 * caches what depends on the count (coll_execution.h).  Flags, accumulators, scales, time limits, user operations and lists of
 * counts are in no plan. */
#ifndef COLL_PLAN_H
#define COLL_PLAN_H

/* ---- >>matching a plan ---- */

/* Do kind, type, wire and operation describe the arithmetic of a call? */
static inline bool coll__calculates_plainly(const coll_call *call)
{
    return !call->accumulate && !call->flags && call->scale == 0 && !call->not_commutative && !(COLL__HAS_LEAVES && call->leaves);
}

/* The plan for a call's arithmetic; or NULL. */
static inline coll__plan *coll__plan_like(const coll_comm *comm, const coll_call *call)
{
    coll__plan *plan = COLL__PLANS && coll__calculates_plainly(call) ? comm->plans[coll__plan_place(call->kind)] : NULL;
    if (!plan || !plan->is_made || call->type != plan->request.call.type) return NULL;
    const coll_call *own = &plan->request.call;
    const bool is_like = call->op == own->op && (call->wire ? call->wire : call->type) == own->wire;

    return is_like || !coll__kind_reduces(call->kind) ? plan : NULL;
}

/* Neither NULL nor COLL_IN_PLACE. */
static inline bool coll__is_buffer(const void *at) { return (uintptr_t)at - 1 < UINTPTR_MAX - 1; }

/* Are these valid buffers for a call of this shape, with blocks of this many bytes: apart, or the same in place? */
COLL__INLINE bool coll__are_buffers(const coll_comm *comm, const coll__kind_shape *shape, const void *send, const void *recv,
                                    size_t length, int root)
{
    const uintptr_t from = (uintptr_t)send, to = (uintptr_t)recv;
    const bool sends = coll__is_held(&shape->send, comm->rank, root), receives = coll__is_held(&shape->recv, comm->rank, root);

    if ((sends && !coll__is_buffer(send)) || (receives && !coll__is_buffer(recv))) return false;
    if (!sends || !receives || (from == to && shape->in_place == COLL__IN_PLACE_SAME)) return true;
    const size_t all = length * (size_t)comm->size;
    return to - from >= (shape->send.over == COLL__OVER_ONE ? length : all)
        && from - to >= (shape->recv.over == COLL__OVER_ONE ? length : all);
}

/* Are count, root and buffers valid for a call that otherwise fits a plan? */
COLL__INLINE bool coll__plan_suits(const coll_comm *comm, const coll__plan *plan, coll_kind kind, const void *send,
                                   const void *recv, size_t count, int root)
{
    const coll__kind_shape *shape = &coll__kinds[kind];

    return count <= plan->most && (!(shape->traits & COLL__ROOTED) || (unsigned)root < (unsigned)comm->size)
        && coll__are_buffers(comm, shape, send, recv, count * plan->request.codec.type_size, root);
}

/* Replace COLL_IN_PLACE if it stands for the other buffer. */
static inline const void *coll__in_place_of(coll_kind kind, const void *send, const void *recv)
{
    return send == COLL_IN_PLACE && coll__kinds[kind].in_place == COLL__IN_PLACE_SAME ? recv : send;
}

/* ---- >>making a plan ---- */

/* The plan at `place`, allocated if missing; NULL: no memory. */
static inline coll__plan *coll__plan_at(const coll_comm *comm, coll__plan **place)
{
    if (!*place) *place = (coll__plan *)coll__allocate(coll__like(comm), sizeof **place);
    return *place;
}

static inline void coll__plan_forget(coll__plan *plan)
{
    plan->is_made = false;
    plan->start = NULL;
}

static inline void coll__plans_forget(coll_comm *comm)
{
    for (int i = 0; i < COLL__PLAN_PLACES; i++)
        if (comm->plans[i]) coll__plan_forget(comm->plans[i]);
}

/* Does the transport refuse a checked call?  Then no carrier may execute it; `why` gets the reason. */
static bool coll__is_refused(const coll_comm *comm, const coll_call *call, char *why, size_t room)
{
    const coll_transport *t = comm->session->transport;

    return COLL__TAKES_WHOLE && t->can_offload && !call->algorithm && !coll__kind_is_message(call->kind)
        && call->kind != COLL_ALLREDUCE_LIST && t->can_offload(comm->session->context, call, comm->size, why, room) < 0;
}

/* Plan the calls like this checked one.  None is made if the next call must be checked again: without memory for it, if buffers
 * are inspected, COLL_ALGORITHM is set, or the transport refuses. */
static void coll__plan_make(coll_comm *comm, const coll_call *call, const coll__codec *codec)
{
    const coll__session *session = comm->session;
    const coll__kind_shape *shape = coll__kind_shape_of(call->kind);
    const bool is_by_count = shape->send.from == COLL__FROM_COUNT && shape->recv.from == COLL__FROM_COUNT;
    const size_t unit = codec->type_size;
    char why[120];

    if (!COLL__PLANS || comm->extension || session->inspect || coll__forced(session, call->kind) || call->residual
        || call->algorithm || call->op == COLL_USER || !coll__calculates_plainly(call) || !is_by_count
        || call->kind == COLL_ALLREDUCE_LIST || shape->traits & (COLL__MESSAGE | COLL__NEIGHBORS) || coll__plan_like(comm, call)
        || coll__is_refused(comm, call, why, sizeof why)) return;
    coll__plan *plan = coll__plan_at(comm, &comm->plans[coll__plan_place(call->kind)]);
    if (!plan) return;
    coll_request *own = &plan->request;
    own->call = *call;                            /* may be the plan's own                                    */
    own->codec = *codec;
    own->call.name = NULL;
    own->call.timeout_ms = 0;
    if (!coll__kind_has_root(call->kind)) own->call.root = 0;
    coll__request_init(own, comm);
    own->is_blocking = true;
    own->carrier = plan->carrier = coll__carrier_of(own);
    coll__name_first(own, 0);
    own->has_head = true;
    plan->most = SIZE_MAX / 8 / (unit ? unit : 1) / (size_t)comm->size;
    plan->is_made = true;
    plan->start = NULL;
    if (call->wire != call->type || !(own->carrier->traits & COLL__AS_A_WHOLE)) return;
    if (session->transport->bind) plan->start = session->transport->bind(session->context, &own->task, &plan->bound);
    if (plan->start) return;
    plan->start = session->transport->offload;
    plan->bound = session->context;
}

#endif /* COLL_PLAN_H */
