/* coll_overlap.h - collectives of one order that overlap: a call begins while the calls before it wait.
 *
 * For the program, collectives of an order run one after the other.  They end in the order in which they were started, and each
 * finds the results of the calls before it.  Overlap only saves time: many short calls take about as long as one, and their
 * messages to a peer are sent together.
 *
 * Messages between two ranks match by order alone.  So each rank must queue the messages to a peer, and those from it, call
 * after call.  Ranks agree on nothing else and need not begin the same calls at the same time.  A round of a call is queued as
 * soon as no earlier call has later rounds with the same peers (coll__carrier.later).  If every round has other peers, as in
 * most algorithms for short vectors, calls follow one round apart.
 *
 *     peers of the rounds: 1, 2, 4        call 0    1  2  4
 *                                         call 1       1  2  4
 *                                         call 2          1  2  4
 *
 * Each running call has a workspace of the order; later calls reuse it. */
#ifndef COLL_OVERLAP_H
#define COLL_OVERLAP_H

/* Must another thread advance this request?  Operations of the caller (COLL_USER) run on the caller's thread only. */
static inline bool coll__is_for_others(const coll_request *r)
{
    const coll__background *m = &r->comm->session->background;

    if (r->carrier->traits & COLL__OWNER_ONLY) return m->has_thread && coll__thread_is(m->thread, coll__thread_self());
    return r->call.op == COLL_USER && __atomic_load_n(&r->comm->thread, __ATOMIC_RELAXED) != &coll__thread_mark;
}

#if COLL_OVERLAP > 1

enum { COLL__OVERLAP_BYTES = 16 << 10 };          /* of a buffer: longer calls use the whole bandwidth alone  */

/* ---- >>which calls may overlap ---- */

/* Must a call have the order, or the transport, to itself?  Calls with strides are packed after all calls before them have
 * ended. */
static inline bool coll__runs_alone(const coll_request *r)
{
    return !r->carrier->later || r->strided
        || (r->carrier->traits & COLL__AS_A_WHOLE && !r->comm->session->transport->offload_ahead);
}

/* May the call be offered to the transport?  Only after tasks that have begun, up to offload_ahead of them. */
static inline bool coll__may_offer(const coll_request *r)
{
    return !(r->carrier->traits & COLL__AS_A_WHOLE)
        || (!r->order->ahead && r->order->place <= r->comm->session->transport->offload_ahead);
}

static const coll__touched *coll__touched_by(coll_request *r)
{
    coll__touched *t = &r->touched;
    coll__side send, recv;

    if (t->is_known) return t;
    coll__sides_of(r->comm, &r->call, &send, &recv);
    t->is_known = true;
    t->reads.from = (uintptr_t)send.at;
    t->reads.end = t->reads.from + coll__side_extent(&send, r->codec.type_size);
    t->writes.from = (uintptr_t)recv.at;
    t->writes.end = t->writes.from + coll__side_extent(&recv, r->codec.type_size);
    return t;
}

static inline size_t coll__bounds_length(const coll__bounds *s) { return s->end - s->from; }

static inline bool coll__do_overlap(const coll__bounds *a, const coll__bounds *b)
{
    return coll__bounds_length(a) && coll__bounds_length(b) && a->from < b->end && b->from < a->end;
}

/* Does one write what the other reads or writes? */
static inline bool coll__is_after(const coll__touched *a, const coll__touched *b)
{
    return coll__do_overlap(&a->writes, &b->writes) || coll__do_overlap(&a->writes, &b->reads)
           || coll__do_overlap(&a->reads, &b->writes);
}

/* May a call begin while earlier calls run, which use the workspaces `taken`?  Ranks may decide differently. */
static bool coll__begins_overlap(coll_request *r, uint64_t taken)
{
    const coll__touched *t = coll__touched_by(r);
    const int own = __builtin_ctzll(~taken);

    while (r->carrier->passes && r->carrier->passes(r)) (void)coll__next_carrier(r);
    if (coll__runs_alone(r) || !coll__may_offer(r) || r->call.op == COLL_USER || r->call.residual || coll__is_for_others(r)
        || coll__bounds_length(&t->reads) > COLL__OVERLAP_BYTES
        || coll__bounds_length(&t->writes) > COLL__OVERLAP_BYTES) return false;
    for (coll_request *front = r->order->queue; front != r; front = front->next)
        if (!front->is_over && coll__is_after(t, coll__touched_by(front))) return false;
    if (own >= COLL__OVERLAP || !coll__workspace_reserve(r->order, own)) return false;
    r->workspace = (unsigned char)own;
    return true;
}

/* ---- >>advancing ---- */

/* Advance a call that is not the first.  COLL_ERR_UNSUPPORTED: it did not begin, and no later call may. */
static coll_status coll__carry_overlap(coll_request *r, uint64_t taken)
{
    while (!r->is_started) {
        if (!coll__begins_overlap(r, taken)) return COLL_ERR_UNSUPPORTED;
        const coll_status status = r->carrier->start(r);
        if (status == COLL_ERR_UNSUPPORTED) {
            (void)coll__next_carrier(r);
            continue;
        }
        const bool has_no_memory = status == COLL_ERR_MEMORY && r->comm->session->failure.status == COLL_OK;
        if (has_no_memory) r->workspace = 0;      /* try again when it is the first                           */
        if (has_no_memory || (r->carrier->traits & COLL__AS_A_WHOLE && status == COLL_PENDING && !r->task.state[0]))
            return COLL_ERR_UNSUPPORTED;
        if (status != COLL_PENDING) return status;
        r->is_started = true;
    }
    return r->carrier->advance(r);
}

/* Is a call with the transport, and so has nothing to do until it is the first? */
static inline bool coll__waits_for_turn(const coll_request *r)
{
    return r->is_started && r->carrier->traits & COLL__AS_A_WHOLE;
}

/* The first call of an order waits: advance the later ones, and start more of them. */
static __attribute__((noinline)) coll_status coll__order_overlap(coll__order *order)
{
    uint64_t ahead = 0, taken = 0;
    int place = 0;
    bool rests = true;

    for (coll_request *r = order->queue; r && place < COLL__OVERLAP; r = r->next, place++) {
        if (r->is_over) continue;
        if (place > 0 && !coll__waits_for_turn(r)) {
            order->ahead = ahead;
            order->place = place;
            const coll_status status = coll__carry_overlap(r, taken);
            if (status < 0 && status != COLL_ERR_UNSUPPORTED) return status;      /* the order may be freed   */
            if (!coll__waits_for_turn(r) && (ahead || coll__may_offer(r))) rests = false;
            order->ahead = 0;
            order->place = 0;
            r->is_over = status == COLL_OK;
            if (status == COLL_ERR_UNSUPPORTED) break;
        }
        if (r->is_over) continue;
        if (coll__runs_alone(r)) break;
        ahead |= r->carrier->later(r);
        taken |= (uint64_t)1 << r->workspace;
    }
    order->rests = rests;
    return COLL_PENDING;
}

#else

static inline coll_status coll__order_overlap(const coll__order *order) { return (void)order, COLL_PENDING; }

#endif
#endif /* COLL_OVERLAP_H */
