/* coll_again.h - blocking calls: at once where nothing is in front of them, and at a glance where they are like the last one.
 *
 * Most programs make the same few calls again and again, on other buffers.  A plain call of a simple kind leaves behind what its
 * check has found: its arithmetic, its fingerprint, its task.  The next one of that kind needs no more than a look at its
 * arguments, and goes straight to a transport that takes whole collectives. */
#ifndef COLL_AGAIN_H
#define COLL_AGAIN_H

typedef struct coll__again {
    coll_type   type;
    coll_op     op;
    size_t      most;                             /* elements that do not go beyond memory                    */
    bool        is_offered;                       /* to the transport, as a whole; or it goes through the engine */
    coll_request request;                         /* checked, with its arithmetic, fingerprint and task       */
} coll__again;

/* ---- >>at once ---- */

/* Offer a task to the transport, and again for a moment, because most of them do not have to wait for long. */
static inline coll_status coll__offer(const coll__trunk *trunk, coll_task *task, coll_failure *failure)
{
    const int most = trunk->spin_us > 0 ? COLL__LOOKS_A_ROUND : 1;

    failure->status = COLL_OK;
    for (int looks = 1; ; looks++) {
        const coll_status status = trunk->transport->offload(trunk->context, task, failure);
        if (status != COLL_PENDING || looks >= most) return status;
        if (trunk->is_crowded) sched_yield();
        else coll__relax();
    }
}

/* A request that was offered without being queued, and is not done: it takes its place after all, as it stands. */
static coll_status coll__run_on(coll_comm *comm, coll_request *r, coll_status status, const coll_failure *failure)
{
    r->status = COLL_PENDING;
    r->is_started = false;
    r->is_offloaded = status != COLL_ERR_UNSUPPORTED;
    coll__record_begin(r);
    coll__track_append(r->track, r);
    if (status >= 0 || status == COLL_ERR_UNSUPPORTED) return coll__wait(r);
    (void)coll__comm_fail(comm, failure->status != COLL_OK ? failure : NULL);
    return r->status;
}

/* Is a plain collective of this communicator one for the transport? */
static inline bool coll__offers(const coll_comm *comm)
{
    return coll__track_is_offered(&comm->main);
}

/* May a transport that takes whole collectives carry this one out here and now, with nothing in front of it? */
static inline bool coll__can_run_at_once(const coll_comm *comm, const coll_call *call)
{
    return !comm->device && coll__offers(comm) && !comm->trunk->tracks && !call->algorithm && !call->residual
        && call->kind < COLL_NEIGHBOR_ALLGATHER;
}

/* The fields that most calls have.  Field by field: compilers clear a whole struct with an instruction that takes longer
 * than the rest of a short call. */
static inline coll_call coll__call_of(coll_kind kind, const void *send, void *recv, size_t count, coll_type type, coll_op op,
                                      int root)
{
    coll_call call;

    call.kind = kind;
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.send_counts = call.send_offsets = call.recv_counts = call.recv_offsets = NULL;
    call.send_types = call.recv_types = NULL;
    call.recv_count = 0;
    call.type = type;
    call.wire = call.accumulate = 0;
    call.op = op;
    call.fn = NULL;
    call.fn_context = NULL;
    call.not_commutative = false;
    call.scale = 0;
    call.flags = 0;
    call.seed = 0;
    call.residual = NULL;
    call.list = NULL;
    call.list_count = 0;
    call.root = root;
    call.tag = call.source = 0;
    call.timeout_ms = 0;
    call.algorithm = call.name = NULL;
    return call;
}

/* How long the buffers of a simple kind are, in blocks of `count` elements (COLL__OF_ALL: one for each rank), and whether only
 * the root has them. */
enum { COLL__OF_ALL = -1 };

typedef struct coll__buffers { int send, recv; bool root_sends, root_receives; } coll__buffers;

static const coll__buffers coll__buffers_of[COLL_ALLTOALL + 1] = {
    [COLL_BROADCAST] = { 0, 1, false, false },                  [COLL_REDUCE] = { 1, 1, false, true },
    [COLL_ALLREDUCE] = { 1, 1, false, false },                  [COLL_REDUCE_SCATTER] = { COLL__OF_ALL, 1, false, false },
    [COLL_SCAN] = { 1, 1, false, false },                       [COLL_EXSCAN] = { 1, 1, false, false },
    [COLL_GATHER] = { 1, COLL__OF_ALL, false, true },           [COLL_SCATTER] = { COLL__OF_ALL, 1, true, false },
    [COLL_ALLGATHER] = { 1, COLL__OF_ALL, false, false },       [COLL_ALLTOALL] = { COLL__OF_ALL, COLL__OF_ALL, false, false },
};

static inline bool coll__is_repeatable(coll_kind kind)
{
    return kind == COLL_BARRIER || (kind <= COLL_ALLTOALL && coll__buffers_of[kind].recv != 0);
}

/* Remember a plain call that has been checked.  Without memory for it the next one is checked again. */
static void coll__remember(coll_comm *comm, const coll_request *r)
{
    const coll_call *call = &r->call;
    const size_t unit = r->codec.type_size;

    if (comm->device || comm->trunk->is_elsewhere) return;    /* each buffer is to be looked at                  */
    if (!coll__is_repeatable(call->kind) || call->op == COLL_USER || call->wire != call->type
        || call->timeout_ms || call->name || call->scale != 0 || call->accumulate || call->flags || call->residual
        || call->algorithm) return;
    coll__again *again = comm->again[call->kind];
    if (!again) again = comm->again[call->kind] = (coll__again *)coll__allocate(sizeof *again);
    if (!again) return;
    again->type = call->type;
    again->op = call->op;
    again->most = SIZE_MAX / 8 / (unit ? unit : 1) / (size_t)comm->size;
    again->is_offered = coll__offers(comm);
    coll_request *own = &again->request;
    own->call = *call;
    own->codec = r->codec;
    own->offsets = NULL;
    own->is_blocking = true;
    own->is_offloaded = false;
    coll__request_init(own, comm);
    own->task = (coll_task){ .call = &own->call, .head = own->head, .codec = &own->codec, .group = comm->main.group };
    memcpy(own->head, r->head, COLL_HEAD_LENGTH);
}

/* Carry out a checked call that nothing is in front of. */
static coll_status coll__run_at_once(coll_comm *comm, coll_request *r)
{
    coll_failure failure;

    r->sequence = ++comm->sequence;
    coll__head_of_call(r->head, &r->call, comm->size, coll__head_mark(comm, 0), r->sequence);
    r->task = (coll_task){ .call = &r->call, .head = r->head, .codec = &r->codec, .group = comm->main.group };
    coll__remember(comm, r);
    const coll_status status = coll__offer(comm->trunk, &r->task, &failure);
    if (status != COLL_OK) return coll__run_on(comm, r, status, &failure);
    r->is_offloaded = true;
    if (r->call.flags & COLL_DETECT_OVERFLOW) coll__look_for_overflow(r);
    return COLL_OK;
}

/* Carry out the call in r->call, on this rank's stack, inside a call on the communicator. */
static coll_status coll__run_inside(coll_comm *comm, coll_request *r)
{
    if (__atomic_load_n(&comm->trunk->abort_wanted, __ATOMIC_ACQUIRE)) (void)coll__abort_now(comm->trunk);
    if (comm->trunk->failure.status != COLL_OK) return comm->trunk->failure.status;
    r->is_blocking = true;
    coll_status status = coll__ready(comm, r);
    if (status < 0) return status;
    const bool is_plain = !r->list && !coll__kind_is_message(r->call.kind);
    if (is_plain && coll__can_run_at_once(comm, &r->call)) status = coll__run_at_once(comm, r);
    else status = coll__begin(r) < 0 ? r->status : coll__wait(r);
    if (is_plain && status == COLL_OK && !coll__offers(comm)) coll__remember(comm, r);
    if (r->list) coll__list_free(r->list);
    if (r->offsets) free(r->offsets);
    return status == COLL_PENDING ? comm->trunk->failure.status : status;
}

/* The same with buffers in the memory of this process, whatever the communicator's own are in. */
static coll_status coll__run_by_host(coll_comm *comm, coll_request *r)
{
    comm->is_by_host = true;
    const coll_status status = coll__run_inside(comm, r);
    comm->is_by_host = false;
    return status;
}

/* The same with a call of its own; not inlined, for it takes much stack. */
static __attribute__((noinline)) coll_status coll__run_anew(coll_comm *comm, coll_call call)
{
    coll_request r;

    r.call = call;
    return coll__run_inside(comm, &r);
}

/* ---- >>again ---- */

/* Neither NULL nor COLL_IN_PLACE. */
static inline bool coll__is_buffer(const void *at) { return (uintptr_t)at - 1 < UINTPTR_MAX - 1; }

/* Are buffers of this many elements a block where a call of this kind has them, apart or the same? */
static inline bool coll__are_buffers(const coll_comm *comm, const coll__buffers *shape, const void *send, const void *recv,
                                     size_t length, int root)
{
    const uintptr_t from = (uintptr_t)send, to = (uintptr_t)recv;
    const bool is_root = root == comm->rank;
    const bool sends = shape->send && (is_root || !shape->root_sends);
    const bool receives = shape->recv && (is_root || !shape->root_receives);

    if ((sends && !coll__is_buffer(send)) || (receives && !coll__is_buffer(recv))) return false;
    if (!sends || !receives || (from == to && shape->send == 1 && shape->recv == 1)) return true;
    const size_t all = length * (size_t)comm->size;
    return to - from >= (shape->send == 1 ? length : all) && from - to >= (shape->recv == 1 ? length : all);
}

/* The last call again, through the engine, in whose tracks there is nothing. */
static coll_status coll__again_by_engine(coll_comm *comm, coll_request *r)
{
    r->status = COLL_PENDING;
    r->is_started = false;
    r->journey = NULL;
    r->sequence = ++comm->sequence;
    coll__head_set_next(r->head, r->sequence, r->call.root, r->call.count);
    coll__record_begin(r);
    coll__track_append(&comm->main, r);
    const coll_status status = coll__track_advance(&comm->main) < 0 ? r->status : coll__wait(r);
    return status == COLL_PENDING ? comm->trunk->failure.status : status;
}

/* The last call again, offered to the transport. */
static coll_status coll__again_by_transport(coll_comm *comm, coll_request *r)
{
    coll_failure failure;

    memset(r->task.state, 0, sizeof r->task.state);
    r->sequence = ++comm->sequence;
    coll__head_set_next(r->head, r->sequence, r->call.root, r->call.count);
    const coll_status offered = coll__offer(comm->trunk, &r->task, &failure);
    if (offered == COLL_OK) return COLL_OK;
    coll__request_init(r, comm);
    const coll_status status = coll__run_on(comm, r, offered, &failure);
    return status == COLL_PENDING ? comm->trunk->failure.status : status;
}

/* Carry out a blocking call of a simple kind. */
static coll_status coll__run_simple(coll_comm *comm, coll_kind kind, const void *send, void *recv, size_t count, coll_type type,
                                    coll_op op, int root)
{
    const coll_status status = coll__enter_alive(comm);

    if (status < 0) return status;
    coll__again *again = comm->again[kind];
    if (!again || type != again->type || op != again->op || count > again->most || (unsigned)root >= (unsigned)comm->size
        || comm->trunk->tracks || __atomic_load_n(&comm->trunk->abort_wanted, __ATOMIC_RELAXED)
        || !coll__are_buffers(comm, &coll__buffers_of[kind], send, recv, count * again->request.codec.type_size, root))
        return coll__leave(comm, coll__run_anew(comm, coll__call_of(kind, send, recv, count, type, op, root)));
    coll_request *r = &again->request;
    r->call.send = send;
    r->call.recv = recv;
    r->call.count = count;
    r->call.root = root;
    return coll__leave(comm, again->is_offered ? coll__again_by_transport(comm, r) : coll__again_by_engine(comm, r));
}

#endif /* COLL_AGAIN_H */
