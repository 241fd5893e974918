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

/* Is the transport offered the collectives of a track? */
static inline bool coll__track_is_offered(const coll__track *track)
{
    return track->group || (!track->is_keyed && track->comm->trunk->offloads_all);
}

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
    return COLL_OK;
}

static void coll__hosts_free(struct coll__hosts *h);
static void coll__hosts_forget(struct coll__hosts *h);

/* Its groups are gone, or are nobody's business. */
static void coll__track_forget(coll__track *track)
{
    track->group = NULL;
    coll__hosts_forget(track->hosts);
}

static void coll__track_leave(coll__track *track)
{
    const coll__trunk *trunk = track->comm->trunk;

    if (track->group) trunk->transport->ungroup(trunk->context, track->group);
    track->group = NULL;
    coll__hosts_free(track->hosts);
    track->hosts = NULL;
    track->has_hosts = false;
    free(track->arena);
    track->arena = NULL;
    track->arena_length = 0;
    for (int i = 0; i < COLL__KEPT; i++) {
        if (track->kept[i]) free(track->kept[i]->memory);
        free(track->kept[i]);
        track->kept[i] = NULL;
    }
}

/* Everything of a request but the flow, which its start sets, and what its caller says of itself (is_blocking). */
static void coll__request_init(coll_request *r, coll_comm *comm)
{
    const bool is_message = coll__kind_is_message(r->call.kind);

    r->is_on_device = coll__is_on_device(comm);
    r->comm = comm;
    r->next = NULL;
    r->is_detached = r->is_started = r->is_prepared = r->is_known = false;
    r->awaited = NULL;
    r->sending = r->receiving = NULL;
    r->part_of = NULL;
    r->list = NULL;
    r->prepared = NULL;
    r->journey = NULL;
    r->way = NULL;
    r->graph_version = comm->graph_version;
    r->track = is_message && !r->is_on_device ? NULL : &comm->main;
    r->record = 0;
    r->got_source = r->got_tag = -1;
    r->got_count = 0;
    r->has_overflow = false;
}

/* Start a call that a device carries out: it goes into its stream at once, whatever is in front of it. */
static coll_status coll__device_launch(coll_request *r)
{
    coll_comm *comm = r->comm;
    coll__trunk *trunk = comm->trunk;
    coll_failure failure = { COLL_OK, -1, "" };

    const bool is_message = coll__kind_is_message(r->call.kind);
    r->status = COLL_PENDING;
    r->sequence = is_message ? 0 : r->prepared ? ++r->prepared->starts : ++comm->sequence;
    coll__head_of_call(r->head, &r->call, comm->size, coll__head_mark(comm, r->track->number), r->sequence);
    coll__record_begin(r);
    r->is_offloaded = false;
    r->task = (coll_task){ &r->call, r->head, &r->codec, NULL, { 0 }, 0 };
    coll_status status = comm->device->start(comm, r, &failure);
    if (status == COLL_PENDING) {
        r->is_offloaded = true;
        trunk->on_device++;
        coll__track_append(r->track, r);
        return COLL_OK;
    }
    if (status < 0) status = coll__comm_fail(comm, failure.status != COLL_OK ? &failure : NULL);
    coll__request_finish(r, status);
    return status;
}

/* Start a request whose call is checked: from here on it is pending, or has ended. */
static coll_status coll__launch(coll_request *r)
{
    coll_comm *comm = r->comm;
    coll__trunk *trunk = comm->trunk;
    coll__track *track = r->track;

    if (r->is_on_device) return coll__device_launch(r);
    r->status = COLL_PENDING;
    if (!track) {
        coll__head_of_call(r->head, &r->call, comm->size, coll__head_mark(comm, 0), 0);
        coll__record_begin(r);
        const coll_status status = coll__messages_start(r);
        return status < 0 ? status : coll__advance(trunk, 0);        /* on its way, also if nobody waits for it */
    }
    if (r->call.residual) coll__feedback_start(r);
    r->sequence = r->prepared ? ++r->prepared->starts : ++comm->sequence;
    coll__head_of_call(r->head, &r->call, comm->size, coll__head_mark(comm, track->number), r->sequence);
    if (r->part_of) coll__list_head(r->head, r->part_of);
    coll__record_begin(r);
    r->is_started = false;
    r->journey = NULL;
    r->is_offloaded = !r->call.algorithm && coll__track_is_offered(track);
    r->task = (coll_task){ &r->call, r->head, &r->codec, track->group, { 0 }, 0 };
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
    coll__head_of_call(r->head, &r->call, r->comm->size, coll__head_mark(r->comm, r->track->number), 0);      /* for sentences */
    coll__list_head(r->head, r);
    list->status = COLL_OK;
    list->left = list->count + 1;
    list->has_overflow = false;
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

/* Does the transport refuse a call, so that nobody is to carry it out? */
static coll_status coll__refused(coll_comm *comm, const coll_call *call)
{
    const coll__trunk *trunk = comm->trunk;
    char why[120] = "";

    if (call->algorithm || coll__kind_is_message(call->kind) || call->kind == COLL_ALLREDUCE_LIST
        || trunk->transport->can_offload(trunk->context, call, comm->size, why, sizeof why) >= 0) return COLL_OK;
    return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "%s", why);
}

/* Check the call in r->call and make the request ready to be launched. */
static coll_status coll__ready(coll_comm *comm, coll_request *r)
{
    coll__request_init(r, comm);
    r->offsets = NULL;
    coll_status status = coll__check(comm, &r->call, &r->codec, &r->offsets);
    if (r->is_on_device) {
        if (status == COLL_OK && (status = comm->device->check(comm, r)) < 0) free(r->offsets), r->offsets = NULL;
        return status;
    }
    if (status == COLL_OK && r->call.kind == COLL_ALLREDUCE_LIST) {
        status = coll__list_make(r);
        if (status == COLL_ERR_MEMORY) coll__explain_error(comm, &r->call, status, "no memory for the parts of the list");
        for (int i = 0; status == COLL_OK && comm->trunk->transport->can_offload && i < r->list->count; i++)
            status = coll__refused(comm, &r->list->parts[i].call);
        if (status < 0) coll__list_free(r->list);
    }
    if (status == COLL_OK && comm->trunk->transport->can_offload && (status = coll__refused(comm, &r->call)) < 0) {
        free(r->offsets);
        r->offsets = NULL;
    }
    return status == COLL_OK && r->call.residual ? coll__feedback_ready(r) : status;
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
    r->is_known = true;
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
