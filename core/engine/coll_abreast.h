/* coll_abreast.h - collectives of one order that run at the same time: a call begins while those in front of it wait.
 *
 * To the program collectives of an order run one after the other: they end in the order in which they were started, and each
 * finds in its buffers what those in front of it have left there.  What shows is how long they take: many short ones that are
 * queued take about as long as one, and what they have for one peer leaves together.
 *
 * Messages between two ranks find their receivers by their order alone, so each rank must queue those for a peer, and those from
 * it, call after call.  No more is needed: ranks agree on nothing else, and need not begin the same calls at the same time.  So a
 * round of a call is queued as soon as no call in front of it has messages with the same peers in rounds that are still to come
 * (coll__carrier.later); where every round has other peers, as in most of those for short vectors, calls follow at the distance
 * of a round.
 *
 *     peers of the rounds: 1, 2, 4        call 0    1  2  4
 *                                         call 1       1  2  4
 *                                         call 2          1  2  4
 *
 * Each of them has a workspace of the order to itself, which the next one in the same place uses again. */
#ifndef COLL_ABREAST_H
#define COLL_ABREAST_H

/* A caller's own operation runs on the caller's own thread, whoever else moves things on. */
static inline bool coll__is_for_others(const coll_request *r)
{
    const coll__background *m = &r->comm->session->background;

    if (r->carrier->traits & COLL__OWNER_ONLY) return m->has_thread && coll__thread_is(m->thread, coll__thread_self());
    return r->call.op == COLL_USER
        && !coll__thread_is(__atomic_load_n(&r->comm->door.thread, __ATOMIC_RELAXED), coll__thread_self());
}

#if COLL_ABREAST > 1

enum { COLL__ABREAST_BYTES = 16 << 10 };          /* of a side: longer calls fill the wire by themselves      */

/* ---- >>which may run beside others ---- */

/* Does its carrier want the order to itself, or the transport?  What has rows is packed when all in front of it are over. */
static inline bool coll__runs_alone(const coll_request *r)
{
    return !r->carrier->later || r->strided
        || (r->carrier->traits & COLL__AS_A_WHOLE && !r->comm->session->transport->offload_ahead);
}

/* May it be offered to the transport, if that is its carrier?  Behind tasks that have begun, and not too many. */
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

static inline bool coll__do_meet(const coll__bounds *a, const coll__bounds *b)
{
    return coll__bounds_length(a) && coll__bounds_length(b) && a->from < b->end && b->from < a->end;
}

/* The bounds of both, with all between them, in place of the first. */
static inline void coll__bounds_add(coll__bounds *all, const coll__bounds *s)
{
    if (!coll__bounds_length(s)) return;
    if (!coll__bounds_length(all)) *all = *s;
    if (s->from < all->from) all->from = s->from;
    if (s->end > all->end) all->end = s->end;
}

/* Does either write what the other one reads or writes? */
static inline bool coll__is_after(const coll__touched *a, const coll__touched *b)
{
    return coll__do_meet(&a->writes, &b->writes) || coll__do_meet(&a->writes, &b->reads) || coll__do_meet(&a->reads, &b->writes);
}

/* Give it a workspace that is none of `taken`.  false: there is no memory for one. */
static bool coll__workspace_find(coll_request *r, uint64_t taken)
{
    const int i = __builtin_ctzll(~taken);

    if (i >= COLL__ABREAST || !coll__workspace_reserve(r->order, i)) return false;
    r->workspace = (unsigned char)i;
    return true;
}

/* Must it wait for what a call in front of it does in its buffers?  Mostly it touches nothing of what all of them touch. */
static bool coll__is_after_any(coll_request *r, const coll__touched *all)
{
    const coll__touched *t = coll__touched_by(r);

    if (!coll__is_after(t, all)) return false;
    for (coll_request *front = r->order->queue; front != r; front = front->next)
        if (coll__is_after(t, coll__touched_by(front))) return true;
    return false;
}

/* May a call begin while those in front of it run, which have these workspaces, and touch `all` of that?  Ranks
 * may decide differently. */
static bool coll__begins_abreast(coll_request *r, uint64_t taken, const coll__touched *all)
{
    const coll__touched *t = coll__touched_by(r);

    while (r->carrier->passes && r->carrier->passes(r)) (void)coll__next_carrier(r);
    if (coll__runs_alone(r) || !coll__may_offer(r) || r->call.op == COLL_USER || r->call.residual || coll__is_for_others(r)
        || coll__bounds_length(&t->reads) > COLL__ABREAST_BYTES
        || coll__bounds_length(&t->writes) > COLL__ABREAST_BYTES) return false;
    return !coll__is_after_any(r, all) && coll__workspace_find(r, taken);
}

/* ---- >>moving them on ---- */

/* Move on one that is not the first.  COLL_ERR_UNSUPPORTED: it has not begun, and nothing behind it may. */
static coll_status coll__carry_abreast(coll_request *r, uint64_t taken, const coll__touched *all)
{
    while (!r->is_started) {
        if (!coll__begins_abreast(r, taken, all)) return COLL_ERR_UNSUPPORTED;
        const coll_status status = r->carrier->start(r);
        if (status == COLL_ERR_UNSUPPORTED) {
            (void)coll__next_carrier(r);
            continue;
        }
        const bool has_no_memory = status == COLL_ERR_MEMORY && r->comm->session->failure.status == COLL_OK;
        if (has_no_memory) r->workspace = 0;      /* in its turn there may be more                            */
        if (has_no_memory || (r->carrier->traits & COLL__AS_A_WHOLE && status == COLL_PENDING && !r->task.state[0]))
            return COLL_ERR_UNSUPPORTED;
        if (status != COLL_PENDING) return status;
        r->is_started = true;
    }
    return r->carrier->advance(r);
}

/* Has it nothing to do before its turn comes?  So it is with what the transport has taken. */
static inline bool coll__waits_for_turn(const coll_request *r)
{
    return r->is_started && r->carrier->traits & COLL__AS_A_WHOLE;
}

/* The first one of an order waits: move on those behind it, and let more of them begin. */
static __attribute__((noinline)) coll_status coll__order_abreast(coll__order *order)
{
    coll__touched all = { .is_known = true };
    uint64_t ahead = 0, taken = 0;
    int place = 0;
    bool rests = true;

    for (coll_request *r = order->queue; r && place < COLL__ABREAST; r = r->next, place++) {
        if (r->is_over) continue;
        if (place > 0 && !coll__waits_for_turn(r)) {
            order->ahead = ahead;
            order->place = place;
            const coll_status status = coll__carry_abreast(r, taken, &all);
            if (status < 0 && status != COLL_ERR_UNSUPPORTED) return status;      /* the order may be gone    */
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
        coll__bounds_add(&all.reads, &coll__touched_by(r)->reads);
        coll__bounds_add(&all.writes, &coll__touched_by(r)->writes);
    }
    order->rests = rests;
    return COLL_PENDING;
}

#else

static inline coll_status coll__order_abreast(const coll__order *order) { return (void)order, COLL_PENDING; }

#endif
#endif /* COLL_ABREAST_H */
