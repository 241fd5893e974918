/* coll_nccl_state.h - a communicator of NCCL that extends one of the library: its operations, and how it ends.
 *
 * The steps of a call use COLL__NCCL_DO and COLL__CUDA_DO.  The first step that fails is recorded in `now`, and the later ones
 * are skipped.  So a call is written as if no step failed, and checked at its end.
 *
 * A communicator created here does not block: NCCL returns ncclInProgress, and is polled until it has a result.  Meanwhile the
 * connections between hosts are progressed, so that a lost rank ends the wait. */
#ifndef COLL_NCCL_STATE_H
#define COLL_NCCL_STATE_H

/* The call that is being started. */
typedef struct coll__nccl_now {
    coll_status   status;
    coll_failure *failure;
    int64_t       deadline;
    bool          is_captured;                    /* the stream is being captured: do not wait                */
    bool          is_inside, is_in_group;         /* the device; a group of NCCL                              */
    bool          is_looking;                     /* it was started: the engine works on its queue            */
    bool          uses_number;                    /* a call by the host has not used the call's number yet    */
} coll__nccl_now;

typedef struct coll__nccl {
    coll_comm *owner;
    coll__gpu *gpu;
    struct ncclComm *comm;                        /* NULL: it has ended                                       */
    bool is_own;                                  /* created here, and not by the caller                      */
    bool is_ordered;                              /* blocking calls return once they are enqueued             */
    struct CUstream_st *stream;
    coll__mark *last;                             /* of the last operation                                    */
    coll__gpu_memory  scratch, pinned;            /* of the device; of the host, for calls by the host        */
    coll__mark *pinned_until;                     /* a copy out of it is pending; NULL: it is free            */
    coll_request *messages, *messages_last;       /* started, and not enqueued yet                            */
    coll__nccl_now now;
} coll__nccl;

static coll__nccl *coll__nccl_of(const coll_comm *comm) { return (coll__nccl *)comm->extended; }

/* ---- >>failures ---- */

static coll_status coll__nccl_fails(coll__nccl *me, coll_status status)
{
    if (me->now.status == COLL_OK) me->now.status = status;
    return status;
}

static coll_status coll__nccl_failed(coll__nccl *me, const char *what, coll__nccl_result is)
{
    const coll__nccl_calls *nccl = &me->gpu->nccl;
    const int rank = me->owner->session->rank;
    const char *more = nccl->GetLastError(me->comm);
    const coll_status status = is == COLL__NCCL_REMOTE ? COLL_ERR_PEER : COLL_ERR_SYSTEM;

    if (me->now.status != COLL_OK) return me->now.status;
    (void)coll__set_failure(me->now.failure, status, -1, "rank %d: %s: %.70s%s%.90s", rank, what, nccl->GetErrorString(is),
                            more && *more ? ": " : "", more ? more : "");
    return coll__nccl_fails(me, status);
}

static void coll__nccl_said_cuda(coll__nccl *me, const char *what, coll__cuda_result is)
{
    if (is == COLL__CUDA_SUCCESS || me->now.status != COLL_OK) return;
    const int rank = me->owner->session->rank;
    (void)coll__nccl_fails(me, coll__set_failure(me->now.failure, COLL_ERR_SYSTEM, rank, "rank %d: %s: %s (CUDA error %u)", rank,
                                                 what, coll__cuda_text(me->gpu, is), is));
}

/* ---- >>waiting, if a call must block ---- */

enum { COLL__NCCL_LOOKS = 1000 };

/* The state of the communicator.  COLL_PENDING: NCCL works on it. */
static coll_status coll__nccl_look(coll__nccl *me)
{
    if (!me->comm) return coll__nccl_fails(me, me->owner->session->failure.status);
    const coll__nccl_result is = coll__nccl_state(me->gpu, me->comm);
    if (is == COLL__NCCL_IN_PROGRESS) return COLL_PENDING;
    return is == COLL__NCCL_SUCCESS ? COLL_OK : coll__nccl_failed(me, "NCCL", is);
}

/* Waits until NCCL has a result, and `event`, if there is one, is complete. */
static void coll__nccl_await(coll__nccl *me, struct CUevent_st *event, const char *what)
{
    const struct timespec delay = { 0, 20000 };
    coll__session *session = me->owner->session;
    coll_status status;

    for (int looks = 1; me->now.status == COLL_OK; looks++) {
        if ((status = coll__nccl_look(me)) < 0) return;
        const coll__cuda_result is = status == COLL_OK && event ? me->gpu->cuda.EventQuery(event) : COLL__CUDA_SUCCESS;
        if (is != COLL__CUDA_NOT_READY) coll__nccl_said_cuda(me, "cuEventQuery", is);
        if (me->now.status != COLL_OK || (status == COLL_OK && is == COLL__CUDA_SUCCESS)) return;
        status = me->now.is_captured ? COLL_OK : me->now.is_looking ? session->transport->progress(session->context, 0)
               : coll__advance(session, 0);
        if (status < 0) {
            if (me->now.is_looking) *me->now.failure = (coll_failure){ COLL_OK, -1, "" };     /* the transport has it */
            (void)coll__nccl_fails(me, status);
            return;
        }
        if (looks > COLL__NCCL_LOOKS) (void)nanosleep(&delay, NULL);
        else sched_yield();
        if (looks % COLL__LOOKS_A_ROUND != 0 || coll__now() < me->now.deadline) continue;
        (void)coll__nccl_fails(me,
                               coll__set_failure(me->now.failure, COLL_ERR_TIMEOUT, -1, "rank %d: no end of %s within the time "
                                                     "limit", session->rank, what));
    }
}

/* Handles the result of a function of NCCL. */
static void coll__nccl_said(coll__nccl *me, const char *what, coll__nccl_result is)
{
    if (is == COLL__NCCL_SUCCESS || me->now.status != COLL_OK) return;
    if (is != COLL__NCCL_IN_PROGRESS) (void)coll__nccl_failed(me, what, is);
    else if (!me->now.is_in_group) coll__nccl_await(me, NULL, what);
}

#define COLL__NCCL_DO(me, name, ...) \
    ((me)->now.status == COLL_OK ? coll__nccl_said(me, "nccl" #name, (me)->gpu->nccl.name(__VA_ARGS__)) : (void)0)
#define COLL__CUDA_DO(me, name, ...) \
    ((me)->now.status == COLL_OK ? coll__nccl_said_cuda(me, "cu" #name, (me)->gpu->cuda.name(__VA_ARGS__)) : (void)0)

/* Sends and receives in between form a group, and so do broadcasts and reductions. */
static void coll__nccl_group(coll__nccl *me)
{
    if (me->now.status == COLL_OK) coll__nccl_said(me, "ncclGroupStart", me->gpu->nccl.GroupStart());
    me->now.is_in_group = me->now.status == COLL_OK;
}

static void coll__nccl_ungroup(coll__nccl *me)
{
    if (!me->now.is_in_group) return;
    me->now.is_in_group = false;
    const coll__nccl_result is = me->gpu->nccl.GroupEnd();    /* also after a failure: it belongs to the thread */
    coll__nccl_said(me, "ncclGroupEnd", is);
}

/* ---- >>start and end of a call ---- */

static bool coll__nccl_is_captured(const coll__nccl *me)
{
    unsigned status = COLL__CUDA_CAPTURE_NONE;
    return me->gpu->cuda.StreamIsCapturing(me->stream, &status) == COLL__CUDA_SUCCESS && status != COLL__CUDA_CAPTURE_NONE;
}

/* Enters the device.  limit_ms 0: none.  Returns what coll__nccl_leave needs: a call may start while another waits. */
static coll__nccl_now coll__nccl_enter(coll__nccl *me, int limit_ms, coll_failure *failure)
{
    const coll__nccl_now before = me->now;
    const int rank = me->owner->session->rank;

    me->now = (coll__nccl_now){ .status = COLL_OK, .failure = failure, .uses_number = true };
    me->now.deadline = coll__deadline(limit_ms);
    if (!me->comm) (void)coll__nccl_fails(me, coll__set_failure(failure, COLL_ERR_ABORTED, -1, "NCCL has been given up"));
    me->now.is_inside = coll__gpu_enter(me->gpu);
    if (!me->now.is_inside)
        (void)coll__nccl_fails(me, coll__set_failure(failure, COLL_ERR_SYSTEM, rank, "rank %d cannot enter its device", rank));
    else me->now.is_captured = coll__nccl_is_captured(me);
    return before;
}

static coll_status coll__nccl_leave(coll__nccl *me, coll__nccl_now before)
{
    const coll_status status = me->now.status;

    if (me->now.is_inside) coll__gpu_leave(me->gpu);
    me->now = before;
    return status;
}

static void coll__nccl_have_no_memory(coll__nccl *me)
{
    const int rank = me->owner->session->rank;
    (void)coll__nccl_fails(me,
                           coll__set_failure(me->now.failure, COLL_ERR_MEMORY, rank, "rank %d has no memory for the operation",
                                                 rank));
}

/* A mark at the end of the stream, held as the last one, and once more by the caller.  NULL: it has failed. */
static coll__mark *coll__nccl_mark(coll__nccl *me, coll__mark *mark)
{
    if (!mark && !(mark = coll__mark_take(me->gpu))) coll__nccl_have_no_memory(me);
    if (!mark) return NULL;
    mark->stream = me->stream;
    COLL__CUDA_DO(me, EventRecord, mark->event, me->stream);
    coll__mark_drop(me->gpu, me->last);
    me->last = mark;
    mark->holders++;
    return mark;
}

/* Orders what is begun now after what was begun before, also in another stream. */
static void coll__nccl_follow(coll__nccl *me)
{
    if (me->last && me->last->stream != me->stream && !me->now.is_captured)
        COLL__CUDA_DO(me, StreamWaitEvent, me->stream, me->last->event, 0);
}

/* Memory of the device for this call; earlier calls have used it. */
static unsigned char *coll__nccl_scratch(coll__nccl *me, size_t length)
{
    if (me->now.status != COLL_OK) return NULL;
    const bool may = me->scratch.length >= length || !me->now.is_captured;
    void *const at = may ? coll__gpu_memory_have(me->gpu, &me->scratch, length, false) : NULL;
    if (!at) coll__nccl_have_no_memory(me);
    return (unsigned char *)at;
}

/* ---- >>moving bytes ---- */

static void coll__nccl_copy(coll__nccl *me, void *to, const void *from, size_t length)
{
    if (length && to != from) COLL__CUDA_DO(me, MemcpyDtoDAsync_v2, coll__cuda_at(to), coll__cuda_at(from), length, me->stream);
}

static void coll__nccl_send(coll__nccl *me, const void *from, size_t length, int peer)
{
    if (length) COLL__NCCL_DO(me, Send, from, length, COLL__NCCL_U8, peer, me->comm, me->stream);
}

static void coll__nccl_recv(coll__nccl *me, void *to, size_t length, int peer)
{
    if (length) COLL__NCCL_DO(me, Recv, to, length, COLL__NCCL_U8, peer, me->comm, me->stream);
}

#endif /* COLL_NCCL_STATE_H */
