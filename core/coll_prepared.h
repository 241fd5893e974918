/* coll_prepared.h - requests: made ready, started, and started again.
 *
 * A prepared call has a track of its own, keyed by its number, which is the same on all ranks because all prepare in the same
 * order; so its starts keep an order of their own, whatever else runs in between. */
#ifndef COLL_PREPARED_H
#define COLL_PREPARED_H

typedef struct coll__prepared {
    coll__track   track;
    coll__numbers numbers;                        /* of now: restarts keep no order with coll_measure, and all ranks must
                                                     choose alike                                             */
    coll_request *request;
    uint32_t      starts;                         /* so far, in place of the communicator's sequence          */
    struct coll__prepared *next;                  /* in the communicator's list                               */
} coll__prepared;

static void coll__track_init(coll__track *track, coll_comm *comm, coll__space space, uint32_t number, bool is_keyed)
{
    *track = (coll__track){ .comm = comm, .space = space, .number = number, .is_keyed = is_keyed, .numbers = &comm->numbers };
    track->queue_end = &track->queue;
}

/* An id that no two tracks share which have a rank in common: its communicator's, and its number. */
static inline uint64_t coll__track_id(const coll__track *track) { return (uint64_t)track->comm->id << 32 | track->number; }

/* The group of the transport for a keyed track, where the transport takes whole collectives. */
static coll_status coll__track_join(coll__track *track)
{
    const coll_comm *comm = track->comm;
    const coll__trunk *trunk = comm->trunk;
    int *everyone = NULL;

    if (!trunk->transport->offload || !trunk->transport->group) return COLL_OK;
    if (!comm->members) {
        everyone = (int *)malloc((size_t)comm->size * sizeof *everyone);
        if (!everyone) return COLL_ERR_MEMORY;
        for (int i = 0; i < comm->size; i++) everyone[i] = i;
    }
    track->group = trunk->transport->group(trunk->context, coll__track_id(track), everyone ? everyone : comm->members, comm->size,
                                           comm->rank);
    free(everyone);
    return track->group ? COLL_OK : COLL_ERR_MEMORY;
}

static void coll__track_leave(coll__track *track)
{
    const coll__trunk *trunk = track->comm->trunk;

    if (track->group) trunk->transport->ungroup(trunk->context, track->group);
    track->group = NULL;
    free(track->arena);
    track->arena = NULL;
    track->arena_length = 0;
}

/* Everything of a request but the flow, which its start sets. */
static void coll__request_init(coll_request *r, coll_comm *comm)
{
    r->comm = comm;
    r->next = NULL;
    r->is_detached = r->is_started = r->is_prepared = false;
    r->sending = r->receiving = NULL;
    r->part_of = NULL;
    r->list = NULL;
    r->prepared = NULL;
    r->way = NULL;
    r->graph_version = comm->graph_version;
    r->track = coll__kind_is_message(r->call.kind) ? NULL : &comm->main;
    r->got_source = r->got_tag = -1;
    r->got_count = 0;
}

/* Start a request whose call is checked: from here on it is pending, or has ended. */
static coll_status coll__launch(coll_request *r)
{
    coll_comm *comm = r->comm;
    coll__trunk *trunk = comm->trunk;
    coll__track *track = r->track;

    r->status = COLL_PENDING;
    if (!track) {
        coll__head_of_call(r->head, &r->call, comm->size, comm->mark, 0);
        const coll_status status = coll__messages_start(r);
        return status < 0 ? status : coll__advance(trunk, 0);        /* on its way, also if nobody waits for it */
    }
    r->sequence = r->prepared ? ++r->prepared->starts : ++comm->sequence;
    coll__head_of_call(r->head, &r->call, comm->size, comm->mark ^ track->number * 2654435761u, r->sequence);
    if (r->part_of) coll__list_head(r->head, r->part_of);
    r->is_started = false;
    r->is_offloaded = trunk->transport->offload && !r->call.algorithm && (!track->is_keyed || track->group);
    r->task = (coll_task){ &r->call, r->head, &r->codec, track->group, { 0 } };
    const bool is_first = track->queue == NULL;
    coll__track_append(track, r);
    return is_first ? coll__track_advance(track) : COLL_OK;
}

/* Start all parts of a list; it is pending until the last has ended. */
static coll_status coll__launch_list(coll_request *r)
{
    coll__list *list = r->list;
    coll_status status = COLL_OK;

    r->status = COLL_PENDING;
    coll__head_of_call(r->head, &r->call, r->comm->size, r->comm->mark, 0);       /* for sentences: it is never sent */
    coll__list_head(r->head, r);
    list->status = COLL_OK;
    list->left = list->count + 1;
    coll__list_copy(&r->call, list, true);
    for (int k = 0; k < list->count; k++) {
        coll_request *part = &list->parts[k];
        coll__track *const track = r->track;
        coll__request_init(part, r->comm);
        part->part_of = r;
        part->track = track;
        part->prepared = r->prepared;
        part->offsets = NULL;
        if (status >= 0) status = coll__launch(part);
        else coll__list_part_done(r, part, status);
    }
    coll__list_part_done(r, NULL, COLL_OK);       /* ours: with no parts at all it ends here                  */
    return status;
}

static coll_status coll__begin(coll_request *r) { return r->list ? coll__launch_list(r) : coll__launch(r); }

/* Check the call in r->call and make the request ready to be launched. */
static coll_status coll__ready(coll_comm *comm, coll_request *r)
{
    coll__request_init(r, comm);
    r->offsets = NULL;
    coll_status status = coll__check(comm, &r->call, &r->codec, &r->offsets);
    if (status == COLL_OK && r->call.kind == COLL_ALLREDUCE_LIST) {
        status = coll__list_make(r);
        if (status == COLL_ERR_MEMORY) coll__explain_error(comm, &r->call, status, "no memory for the parts of the list");
        if (status < 0) coll__list_free(r->list);
    }
    return status;
}

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
    coll__track_append(r->track, r);
    if (status >= 0 || status == COLL_ERR_UNSUPPORTED) return coll__wait(r);
    (void)coll__comm_fail(comm, failure->status != COLL_OK ? failure : NULL);
    return r->status;
}

/* May a transport that takes whole collectives carry this one out here and now, with nothing in front of it? */
static inline bool coll__can_run_at_once(const coll_comm *comm, const coll_call *call)
{
    const coll__trunk *trunk = comm->trunk;
    return trunk->transport->offload && !trunk->tracks && !call->algorithm && call->kind < COLL_NEIGHBOR_ALLGATHER
        && (!comm->main.is_keyed || comm->main.group);
}

/* Remember a plain allreduce, so that the next one like it needs no more than a glance. */
static void coll__remember(coll_comm *comm, const coll_request *r)
{
    const coll_call *call = &r->call;
    const size_t unit = comm->last.codec.type_size;
    const bool is_plain = call->kind == COLL_ALLREDUCE && call->op != COLL_USER && call->wire == call->type && !call->timeout_ms
        && !call->name && call->scale == 0 && !call->accumulate && !call->flags && !call->residual;

    if (!is_plain || comm->last.type != call->type || comm->last.op != call->op || comm->last.wire != call->wire) return;
    comm->again.type = call->type;
    comm->again.op = call->op;
    comm->again.most = SIZE_MAX / 8 / unit / (size_t)comm->size;
    comm->again.call = *call;
    comm->again.task = (coll_task){ &comm->again.call, comm->again.head, &comm->last.codec, comm->main.group, { 0 } };
    memcpy(comm->again.head, r->head, COLL_HEAD_LENGTH);
}

/* Carry out a checked call that nothing is in front of. */
static coll_status coll__run_at_once(coll_comm *comm, coll_request *r)
{
    coll_failure failure;

    r->sequence = ++comm->sequence;
    coll__head_of_call(r->head, &r->call, comm->size, comm->mark, r->sequence);
    r->task = (coll_task){ &r->call, r->head, &r->codec, comm->main.group, { 0 } };
    if (r->call.kind == COLL_ALLREDUCE) coll__remember(comm, r);
    const coll_status status = coll__offer(comm->trunk, &r->task, &failure);
    return status == COLL_OK ? COLL_OK : coll__run_on(comm, r, status, &failure);
}

/* The last allreduce again, which is not done yet: as a request. */
static coll_status coll__again_on(coll_comm *comm, coll_status status, const coll_failure *failure)
{
    coll_request r;

    coll__request_init(&r, comm);
    r.offsets = NULL;
    r.call = comm->again.call;
    r.codec = comm->last.codec;
    r.task = comm->again.task;
    r.sequence = comm->sequence;
    memcpy(r.head, comm->again.head, COLL_HEAD_LENGTH);
    r.task.call = &r.call;
    r.task.head = r.head;
    r.task.codec = &r.codec;
    const coll_status ended = coll__run_on(comm, &r, status, failure);
    return ended == COLL_PENDING ? comm->trunk->failure.status : ended;
}

/* Is this the last allreduce again, on buffers that are apart or the same, with nothing in front of it? */
static inline bool coll__is_again(const coll_comm *comm, const void *send, const void *recv, size_t count, coll_type type,
                                  coll_op op)
{
    const uintptr_t from = (uintptr_t)send, to = (uintptr_t)recv;

    if (type != comm->again.type || op != comm->again.op || count > comm->again.most || type == 0) return false;
    if (from - 1 >= UINTPTR_MAX - 1 || to - 1 >= UINTPTR_MAX - 1 || comm->trunk->tracks) return false;    /* NULL, in place */
    const size_t length = count * comm->last.codec.type_size;
    return from == to || (from - to >= length && to - from >= length);
}

/* Carry it out, inside a call on the communicator. */
static inline coll_status coll__run_again(coll_comm *comm, const void *send, void *recv, size_t count)
{
    coll_failure failure;

    comm->again.call.send = send;
    comm->again.call.recv = recv;
    comm->again.call.count = count;
    memset(comm->again.task.state, 0, sizeof comm->again.task.state);
    coll__head_set_next(comm->again.head, ++comm->sequence, count);
    const coll_status status = coll__offer(comm->trunk, &comm->again.task, &failure);
    return status == COLL_OK ? COLL_OK : coll__again_on(comm, status, &failure);
}

/* Carry out the call in r->call, on this rank's stack, inside a call on the communicator. */
static coll_status coll__run_inside(coll_comm *comm, coll_request *r)
{
    if (comm->trunk->failure.status != COLL_OK) return comm->trunk->failure.status;
    coll_status status = coll__ready(comm, r);
    if (status < 0) return status;
    const bool is_plain = !r->list && !coll__kind_is_message(r->call.kind);
    if (is_plain && coll__can_run_at_once(comm, &r->call)) status = coll__run_at_once(comm, r);
    else status = coll__begin(r) < 0 ? r->status : coll__wait(r);
    if (r->list) coll__list_free(r->list);
    if (r->offsets) free(r->offsets);
    return status == COLL_PENDING ? comm->trunk->failure.status : status;
}

/* The same with a call of its own; not inlined, for it takes much stack. */
static __attribute__((noinline)) coll_status coll__run_anew(coll_comm *comm, coll_call call)
{
    coll_request r;

    r.call = call;
    return coll__run_inside(comm, &r);
}

/* Give a checked request a track of its own. */
static coll_status coll__prepare(coll_comm *comm, coll_request *r)
{
    coll__prepared *p = (coll__prepared *)coll__allocate(sizeof *p);

    if (!p) return COLL_ERR_MEMORY;
    coll__track_init(&p->track, comm, COLL__SPACE_CALLS, ++comm->prepare_count, true);
    if (r->track && coll__track_join(&p->track) < 0) {
        free(p);
        return COLL_ERR_MEMORY;
    }
    p->numbers = comm->numbers;
    p->track.numbers = &p->numbers;
    p->request = r;
    p->next = comm->prepared;
    comm->prepared = p;
    r->prepared = p;
    if (r->track) r->track = &p->track;
    r->is_prepared = true;
    r->status = COLL_OK;                          /* as one that has ended: it may be started                 */
    return COLL_OK;
}

/* Take a prepared request, which is not running, from its communicator. */
static void coll__prepared_free(coll_request *r)
{
    coll__prepared *p = r->prepared, **at;

    if (r->comm) {
        for (at = &r->comm->prepared; *at != p;) at = &(*at)->next;
        *at = p->next;
        coll__track_leave(&p->track);
    }
    free(p);
}

#endif /* COLL_PREPARED_H */
