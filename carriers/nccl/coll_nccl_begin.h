/* coll_nccl_begin.h - calls are enqueued in the stream, and polled until their mark is complete. */
#ifndef COLL_NCCL_BEGIN_H
#define COLL_NCCL_BEGIN_H

/* ---- >>starting calls ---- */

/* The parts of a call, one after the other; sums by NCCL in one group. */
static void coll__nccl_carry_all(coll__nccl *me, const coll_request *r, coll__mark *mark)
{
    const bool is_list = r->call.kind == COLL_ALLREDUCE_LIST, looks = mark && r->call.flags & COLL_DETECT_OVERFLOW;
    const int parts = is_list ? r->call.list_count : 1;
    coll__codec codec;
    coll_call one;
    const char *why;

    if (!is_list && !coll__kind_reduces(r->call.kind)) {
        coll__nccl_move(me, &r->call);
        return;
    }
    if (is_list) coll__nccl_group(me);
    for (int i = 0; i < parts; i++) {
        if (coll__nccl_part(me->owner, r, i, &one, &codec, &why) != COLL__BY_NCCL) continue;
        const coll__sums s = coll__sums_of(me->owner, &one);
        coll__nccl_reduce(me, &one, &s);
    }
    if (is_list) coll__nccl_ungroup(me);
    for (int i = 0; i < parts; i++) {
        const coll__nccl_way way = coll__nccl_part(me->owner, r, i, &one, &codec, &why);
        const coll__sums s = coll__sums_of(me->owner, &one);
        if (way == COLL__BY_NCCL) coll__nccl_finish(me, &one, &s);
        if (way == COLL__BY_KERNELS) coll__nccl_sum(me, &one, &s);
        if (way == COLL__BY_HOST) coll__nccl_by_host(me, &one, !is_list && !r->prepared);
        if (looks) coll__nccl_look_for_overflow(me, &one, mark);
    }
}

/* task->state of a request: its mark, or 0 if it is deferred; the next deferred message. */
enum { COLL__NCCL_MARK, COLL__NCCL_NEXT };

static coll__mark *coll__nccl_mark_of(const coll_request *r) { return (coll__mark *)(uintptr_t)r->task.state[COLL__NCCL_MARK]; }

/* Enqueues the deferred messages, in one group. */
static void coll__nccl_flush(coll__nccl *me)
{
    coll_request *const first = me->messages;

    me->messages = me->messages_last = NULL;
    if (!first) return;
    coll__nccl_group(me);
    for (coll_request *r = first; r; r = (coll_request *)(uintptr_t)r->task.state[COLL__NCCL_NEXT]) {
        coll__side send, recv;
        coll__sides_of(me->owner, &r->call, &send, &recv);
        coll__nccl_post(me, &r->call, &send, &recv);
    }
    coll__nccl_ungroup(me);
    coll__mark *const mark = coll__nccl_mark(me, NULL);
    for (coll_request *r = first; mark && r; r = (coll_request *)(uintptr_t)r->task.state[COLL__NCCL_NEXT]) {
        r->task.state[COLL__NCCL_MARK] = (uintptr_t)mark;
        if (r != first) mark->holders++;
    }
}

/* Communicators share a stream, so messages deferred in another one go first: they were started first. */
static coll_status coll__nccl_flush_others(const coll_comm *comm, int limit_ms, coll_failure *failure)
{
    coll_status status = COLL_OK;

    for (coll_comm *other = comm->session->comms; other && status >= 0; other = other->next) {
        if (other == comm || other->extension != comm->extension || !coll__nccl_of(other)->messages) continue;
        coll__nccl *const it = coll__nccl_of(other);
        const coll__nccl_now before = coll__nccl_enter(it, limit_ms, failure);
        coll__nccl_follow(it);
        coll__nccl_flush(it);
        status = coll__nccl_leave(it, before);
    }
    return status;
}

static coll_status coll__nccl_begin(coll_comm *comm, coll_request *r, coll_failure *failure)
{
    coll__nccl *me = coll__nccl_of(comm);
    const int limit_ms = r->call.timeout_ms != 0 ? r->call.timeout_ms : comm->session->stall_timeout_ms;
    const bool is_message = coll__kind_is_message(r->call.kind);
    const coll_status earlier = coll__nccl_flush_others(comm, limit_ms, failure);
    const coll__nccl_now before = coll__nccl_enter(me, limit_ms, failure);
    coll__mark *mark = NULL;

    if (earlier < 0) (void)coll__nccl_fails(me, earlier);
    if (is_message && !r->is_blocking && !me->now.is_captured && me->now.status == COLL_OK) {
        if (me->messages) me->messages_last->task.state[COLL__NCCL_NEXT] = (uintptr_t)r;
        else me->messages = r;
        me->messages_last = r;
        (void)coll__nccl_leave(me, before);
        return COLL_PENDING;
    }
    coll__nccl_follow(me);
    coll__nccl_flush(me);
    const bool is_waited_for = !me->now.is_captured && !(me->is_ordered && r->is_blocking);
    if (!me->now.is_captured && !(mark = coll__mark_take(me->gpu))) coll__nccl_have_no_memory(me);
    if (me->now.status == COLL_OK) coll__nccl_carry_all(me, r, mark);
    if (mark) {
        mark = coll__nccl_mark(me, mark);
        if (is_waited_for) r->task.state[COLL__NCCL_MARK] = (uintptr_t)mark;
        else coll__mark_drop(me->gpu, mark);
    }
    const coll_status status = coll__nccl_leave(me, before);
    return status < 0 ? status : is_waited_for ? COLL_PENDING : COLL_OK;
}

/* Enqueues a call at once, even if earlier ones are incomplete. */
static coll_status coll__nccl_start(coll_request *r)
{
    coll_comm *comm = r->comm;
    coll_failure failure = { COLL_OK, -1, "" };

    coll__begin_request(r, coll__kind_is_message(r->call.kind) ? 0 : coll__next_number(r));
    r->task.is_finite = 1;                        /* the host cannot check the result                         */
    coll_status status = coll__nccl_begin(comm, r, &failure);
    if (status == COLL_PENDING) {
        r->is_started = true;
        comm->session->silent++;
        coll__order_append(r->order, r);
        return COLL_OK;
    }
    if (status < 0) status = coll__comm_fail(comm, failure.status != COLL_OK ? &failure : NULL);
    coll__request_finish(r, status);
    return status;
}

/* ---- >>polling calls ---- */

/* While the stream is captured nothing is queried: a query would invalidate the capture. */
static coll_status coll__nccl_advance(coll_request *r)
{
    coll_comm *comm = r->comm;
    coll_failure failure = { COLL_OK, -1, "" };
    coll__nccl *me = coll__nccl_of(comm);
    const coll__nccl_now before = coll__nccl_enter(me, comm->session->stall_timeout_ms, &failure);
    bool is_over = false;

    me->now.is_looking = true;
    if (me->now.status == COLL_OK && me->messages && !coll__nccl_mark_of(r)) {
        coll__nccl_follow(me);
        coll__nccl_flush(me);
    }
    coll__mark *const mark = coll__nccl_mark_of(r);           /* none: it is being started                    */
    if (me->now.status == COLL_OK && mark && !me->now.is_captured && coll__nccl_look(me) == COLL_OK) {
        const coll__cuda_result is = me->gpu->cuda.EventQuery(mark->event);
        is_over = is == COLL__CUDA_SUCCESS;
        if (is != COLL__CUDA_NOT_READY) coll__nccl_said_cuda(me, "cuEventQuery", is);
    }
    if (is_over) {
        if (r->call.flags & COLL_DETECT_OVERFLOW) r->task.is_finite = *mark->found ? -1 : 1;
        r->task.state[COLL__NCCL_MARK] = 0;
        coll__mark_drop(me->gpu, mark);
        if (r->call.kind == COLL_RECV || r->call.kind == COLL_SENDRECV) {
            r->got_source = r->call.kind == COLL_RECV ? r->call.peer : r->call.source;
            r->got_tag = r->call.tag;
            r->got_count = r->call.kind == COLL_RECV ? r->call.count : r->call.recv_count;
        }
    }
    const coll_status status = coll__nccl_leave(me, before);
    if (status < 0) return coll__comm_fail(comm, failure.status != COLL_OK ? &failure : NULL);
    return is_over ? COLL_OK : COLL_PENDING;
}

static bool coll__nccl_explain(coll_request *r, char *text, size_t room)
{
    const coll_comm *comm = r->comm;
    const coll__nccl *me = coll__nccl_of(comm);
    const char *why = NULL;
    char version[32];
    size_t need;
    const coll__nccl_way way = coll__nccl_way_of_all(comm, r, &why, &need);

    (void)coll__nccl_version_text(me->gpu->nccl.version, version, sizeof version);
    if (coll__kind_is_message(r->call.kind)) coll__append(text, room, "by NCCL %s, one message", version);
    else if (way == COLL__BY_HOST) coll__append(text, room, "by the host, over %s (%s)", comm->session->transport->name, why);
    else if (way == COLL__BY_NCCL) coll__append(text, room, "by NCCL %s (%s)", version, why);
    else if (r->call.kind == COLL_ALLREDUCE_LIST) coll__append(text, room, "by NCCL %s and kernels (%s)", version, why);
    else {
        const coll__sums s = coll__sums_of(comm, &r->call);
        const coll__sum_plan plan = coll__sum_plan_of(comm, &r->call, &s);
        coll__append(text, room, "by NCCL %s and kernels, %s (%s)", version,
                     plan.is_at_once ? "all inputs at once" : "by shards", why);
    }
    return true;
}

#endif /* COLL_NCCL_BEGIN_H */
