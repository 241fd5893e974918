/* coll_groups.h - communicators: made from a transport, derived from one another, and freed. */
#ifndef COLL_GROUPS_H
#define COLL_GROUPS_H

/* ---- >>trunk ---- */

/* In a forked child the locks stay as they are: threads that it does not have may have been waiting. */
static void coll__trunk_free(coll__trunk *trunk)
{
    coll__messages_free(trunk);
    coll__close_fd(&trunk->fd);
    free(trunk->survival);
    free(trunk->listed);
    if (*trunk->guard) {
        pthread_cond_destroy(&trunk->changed);
        pthread_cond_destroy(&trunk->mover.bell);
        pthread_mutex_destroy(&trunk->lock);
    }
    coll__fork_guard_free(trunk->guard);
    free(trunk);
}

static void coll__trunk_locks(coll__trunk *trunk)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&trunk->lock, NULL);       /* none of these can fail with Linux and default attributes */
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&trunk->changed, &attributes);
    pthread_cond_init(&trunk->mover.bell, &attributes);
    pthread_condattr_destroy(&attributes);
}

#if defined(COLL_WITH_NCCL)
static void coll__watch_memory(coll__trunk *trunk);
#else
static void coll__watch_memory(coll__trunk *trunk) { (void)trunk; }
#endif

/* What all communicators over an open transport will share, which it takes over.  NULL: no memory; the transport is closed. */
static coll__trunk *coll__trunk_new(const coll_transport *transport, void *context, int rank, int size, const coll__settings *s)
{
    coll__trunk *trunk = (coll__trunk *)coll__allocate(sizeof *trunk);

    if (trunk) trunk->guard = coll__fork_guard();
    if (!trunk || !trunk->guard) {
        free(trunk);
        transport->close(context);
        coll__start_failed(COLL_ERR_MEMORY, "no memory for a communicator");
        return NULL;
    }
    coll__trunk_locks(trunk);
    trunk->rank = rank;
    trunk->size = size;
    trunk->local_rank = s->local_rank;
    trunk->local_size = s->local_size;
    trunk->transport = transport;
    trunk->context = context;
    trunk->stall_timeout_ms = s->config.stall_timeout_ms;
    coll__print(trunk->dump, sizeof trunk->dump, "%s", s->config.dump ? s->config.dump : "");
    trunk->start_timeout_ms = s->config.start_timeout_ms;
    trunk->log = (coll__log){ s->config.log_level, s->config.log, s->config.log_context };
    memcpy(trunk->forced_text, s->forced_text, sizeof trunk->forced_text);
    for (int kind = 0; kind <= COLL_SENDRECV; kind++)
        if (s->forced_at[kind]) trunk->forced[kind] = trunk->forced_text + s->forced_at[kind] - 1;
    trunk->failure.rank = trunk->fd = -1;
    trunk->next_id = 1;
    trunk->processors = s->processors;
    const bool is_one_host = !transport->now && s->local_size == size;
    trunk->share = s->share > 0 ? s->share : is_one_host && s->processors < size ? (double)s->processors / size : 1;
    trunk->is_crowded = s->local_size > s->processors;
    trunk->offloads_all = transport->offload != NULL;
    trunk->mover.is_wanted = s->config.background > 0 && transport->in_background && transport->wake && !transport->now;
    trunk->mover.nap = (int64_t)COLL__NAP_LEAST_US * 1000;
    trunk->has_membarrier = coll__membarrier_register();
    if (transport->watch) transport->watch(context, &trunk->doing);
    coll__watch_memory(trunk);
    trunk->spin_us = s->config.spin_us > 0 ? s->config.spin_us : s->config.spin_us < 0 ? 0
                   : trunk->is_crowded ? COLL__SPIN_CROWDED_US : COLL__SPIN_US;
    return trunk;
}

/* ---- >>communicators ---- */

/* A number for (tag, ranks), equal on all who give the same. */
static uint32_t coll__hash_ranks(const int *ranks, int count, int tag)
{
    uint64_t hash = 1469598103934665603u ^ (uint64_t)(unsigned)tag;
    for (int i = 0; i < count; i++) hash = (hash ^ (uint64_t)(unsigned)ranks[i]) * 1099511628211u;
    return (uint32_t)(hash ^ hash >> 32) & 0x7fffffff;
}

/* `size` ranks of a trunk, which are called `members` there (NULL: the same); takes the list over.  The numbers are inherited. */
static coll_comm *coll__comm_of(coll__trunk *trunk, int *members, int rank, int size, uint32_t id, const coll__numbers *numbers)
{
    coll_comm *comm = (coll_comm *)coll__allocate(sizeof *comm);

    if (!comm) return NULL;
    comm->trunk = trunk;
    comm->guard = trunk->guard;
    comm->members = members;
    comm->rank = rank;
    comm->size = size;
    comm->id = id;
    comm->mark = members ? coll__hash_ranks(members, size, (int)id) : 0;
    comm->numbers = *numbers;
    comm->sentence = comm->error;
    if (coll__is_recorded(trunk)) comm->recorder = (coll__recorder *)calloc(1, sizeof *comm->recorder);
    coll__track_init(&comm->main, comm, COLL__SPACE_CALLS, 0, id != 0);
    comm->next = trunk->comms;
    trunk->comms = comm;
    coll__doing_comms(trunk);
    return comm;
}

static void coll__comm_unlink(coll_comm *comm)
{
    coll_comm **at = &comm->trunk->comms;

    while (*at != comm) at = &(*at)->next;
    *at = comm->next;
}

static void coll__comm_free(coll_comm *comm)
{
    coll__track_leave(&comm->main);
    free(comm->members);
    free(comm->order);
    free(comm->graph_lists);
    free(comm->gauge);
    free(comm->recorder);
    free(comm->counts);
    for (int kind = 0; kind <= COLL_ALLTOALL; kind++) free(comm->again[kind]);
    free(comm);
}

/* A communicator over an open transport, which it takes over. */
static coll_comm *coll__comm_new(const coll_transport *transport, void *context, int rank, int size, const coll__settings *s)
{
    coll__trunk *trunk = coll__trunk_new(transport, context, rank, size, s);
    coll_comm *comm = trunk ? coll__comm_of(trunk, NULL, rank, size, 0, &s->numbers) : NULL;

    if (comm || !trunk) return comm;
    transport->close(context);
    coll__trunk_free(trunk);
    coll__start_failed(COLL_ERR_MEMORY, "no memory for a communicator");
    return NULL;
}

/* ---- >>deriving ---- */

/* The device of a communicator that has just been made.  Where it cannot be, that is a failure of all. */
static coll_status coll__derive_device(coll_comm *parent, coll_comm **out)
{
    coll_comm *const comm = *out;

    comm->is_holder = parent->is_holder;          /* the thread inside `parent` is inside this one too        */
    const coll_status status = parent->device->derive(parent, comm);
    parent->is_holder = comm->is_holder;
    comm->is_holder = false;
    if (status == COLL_OK) return COLL_OK;
    coll__comm_unlink(comm);
    coll__comm_free(comm);
    *out = NULL;
    return status;
}

/* Make the communicator `id` of `count` ranks of `parent`, listed in `ranks`, of which we are number `me`. */
static coll_status coll__derive(coll_comm *parent, const int *ranks, int count, int me, uint32_t id, coll_comm **out)
{
    coll__trunk *trunk = parent->trunk;
    int *members = (int *)malloc((size_t)count * sizeof *members);

    for (int i = 0; members && i < count; i++) members[i] = coll__world_rank(parent, ranks[i]);
    coll_comm *comm = members ? coll__comm_of(trunk, members, me, count, id, &parent->numbers) : NULL;
    if (comm && coll__track_join(&comm->main) == COLL_OK && coll__messages_hear(comm) == COLL_OK) {
        if (trunk->next_id <= id) trunk->next_id = id + 1;
        trunk->has_many = true;
        __atomic_store_n(&trunk->is_shared, true, __ATOMIC_RELEASE);
        *out = comm;
        return parent->device ? coll__derive_device(parent, out) : COLL_OK;
    }
    if (comm) coll__comm_unlink(comm), coll__comm_free(comm);
    else free(members);
    coll_failure failure = { COLL_OK, -1, "" };   /* the others count on us: this is the end of all           */
    coll__blame(&failure, COLL_ERR_MEMORY, trunk->rank, "rank %d has no memory for a communicator", trunk->rank);
    return coll__trunk_fail(trunk, &failure);
}

/* A call that makes communicators begins. */
static void coll__deriving(coll__trunk *trunk)
{
    trunk->deriving++;
    coll__doing_comms(trunk);
}

/* It is over. */
static void coll__derived(coll__trunk *trunk)
{
    trunk->deriving--;
    coll__doing_comms(trunk);
    coll__gone_sweep(trunk);
}

/* What a rank says in a split. */
typedef struct coll__ballot { int32_t color, key; uint32_t next_id; } coll__ballot;

/* Our communicator, once all ballots are in: those of our color, by key and then by rank.  Writes their ranks. */
static int coll__count_ballots(const coll__ballot *ballots, int size, int rank, int *ranks, int *me)
{
    int count = 0;

    for (int i = 0; i < size; i++) {
        if (ballots[i].color != ballots[rank].color) continue;
        int at = count++;
        for (; at > 0 && ballots[ranks[at - 1]].key > ballots[i].key; at--) ranks[at] = ranks[at - 1];
        ranks[at] = i;
    }
    for (int i = 0; i < count; i++) if (ranks[i] == rank) *me = i;
    return count;
}

static coll_status coll__split_inside(coll_comm *comm, int color, int key, coll_comm **out)
{
    const size_t size = (size_t)comm->size;
    coll__ballot *ballots = (coll__ballot *)malloc(size * sizeof *ballots);
    int *ranks = (int *)malloc(size * sizeof *ranks), me = 0;
    coll_status status = COLL_ERR_MEMORY;
    uint32_t id = 0;

    coll__deriving(comm->trunk);
    if (ballots && ranks) {
        coll_request r;
        ballots[comm->rank] = (coll__ballot){ color, key, comm->trunk->next_id };
        r.call = (coll_call){ .kind = COLL_ALLGATHER, .send = COLL_IN_PLACE, .recv = ballots, .count = 1,
                              .type = COLL_BLOB(sizeof *ballots), .name = "split" };
        status = coll__run_by_host(comm, &r);
    } else {
        coll__explain_error(comm, NULL, status, "no memory to split %d ranks", comm->size);
    }
    for (int i = 0; status == COLL_OK && i < comm->size; i++) if (ballots[i].next_id > id) id = ballots[i].next_id;
    if (status == COLL_OK && comm->trunk->next_id <= id) comm->trunk->next_id = id + 1;
    if (status == COLL_OK && color != COLL_NO_COLOR) {
        const int count = coll__count_ballots(ballots, comm->size, comm->rank, ranks, &me);
        status = coll__derive(comm, ranks, count, me, id, out);
    }
    coll__derived(comm->trunk);
    free(ballots);
    free(ranks);
    return status;
}

/* The members, and only they, agree on an id: an allreduce among them, in a space of its own. */
static coll_status coll__create_inside(coll_comm *comm, const int *ranks, int count, int me, int tag, coll_comm **out)
{
    int *members = (int *)malloc((size_t)count * sizeof *members);
    uint64_t id = comm->trunk->next_id;
    coll_request r;

    for (int i = 0; members && i < count; i++) members[i] = coll__world_rank(comm, ranks[i]);
    coll_comm *meeting = members ? coll__comm_of(comm->trunk, members, me, count, comm->id, &comm->numbers) : NULL;
    if (!meeting) {
        free(members);
        return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "no memory for a communicator of %d ranks", count);
    }
    coll__track_init(&meeting->main, meeting, COLL__SPACE_CREATE, coll__hash_ranks(ranks, count, tag), true);
    r.call = (coll_call){ .kind = COLL_ALLREDUCE, .send = &id, .recv = &id, .count = 1, .type = COLL_U64, .op = COLL_MAX,
                          .name = "create" };
    meeting->is_holder = comm->is_holder;         /* the thread inside `comm` is inside this one too          */
    coll__deriving(comm->trunk);
    coll_status status = coll__run_inside(meeting, &r);
    comm->is_holder = meeting->is_holder;
    if (status < 0) coll__sentence_copy(comm, meeting);
    coll__comm_unlink(meeting);
    coll__comm_free(meeting);
    if (status == COLL_OK) status = coll__derive(comm, ranks, count, me, (uint32_t)id, out);
    coll__derived(comm->trunk);
    return status;
}

/* A list of ranks of `comm`, each at most once and this one among them: gives our place, or -1 with the sentence. */
static int coll__place_among(coll_comm *comm, const int *ranks, int count, int tag)
{
    if (!ranks || count < 1 || tag < 0) {
        coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, !ranks ? "create: the list of ranks is NULL" : count < 1
                            ? "create: count %d is out of range: 1 or more" : "create: tag %d is out of range: 0 or more",
                            count < 1 ? count : tag);
        return -1;
    }
    unsigned char *is_there = (unsigned char *)calloc((size_t)comm->size, 1);
    int me = -1, wrong = -1;

    for (int i = 0; is_there && i < count && wrong < 0; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size || is_there[ranks[i]]) wrong = i;
        else is_there[ranks[i]] = 1;
        if (ranks[i] == comm->rank) me = i;
    }
    free(is_there);
    if (wrong >= 0)
        coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "create: rank %d, at %d of the list, %s", ranks[wrong], wrong,
                            ranks[wrong] < 0 || ranks[wrong] >= comm->size ? "is out of range" : "is named twice");
    else if (me < 0)
        coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "create: this rank is not in the list, and is not to "
                            "call coll_create with it");
    return wrong < 0 ? me : -1;
}

/* ---- >>graph ---- */

/* A list of neighbours that can be one: `count` ranks, or COLL_NO_RANK. */
static coll_status coll__check_neighbors(coll_comm *comm, const char *name, const int *ranks, int count)
{
    if (count < 0)
        return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "neighbors: %d %ss are out of range: 0 or more", count, name);
    if (count > 0 && !ranks)
        return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "neighbors: the list of %d %ss is NULL", count, name);
    for (int i = 0; i < count; i++)
        if (ranks[i] != COLL_NO_RANK && (ranks[i] < 0 || ranks[i] >= comm->size))
            return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "neighbors: %s %d, at %d of the list, is out of range for "
                                       "%d ranks", name, ranks[i], i, comm->size);
    return COLL_OK;
}

/* Every edge must be known at both its ends, as often there as here: tell each rank how many edges lead to it, and hear how
 * many it thinks lead to us. */
static coll_status coll__check_edges(coll_comm *comm, const coll__graph *graph)
{
    const size_t size = (size_t)comm->size;
    uint32_t *out = (uint32_t *)coll__allocate(2 * size * sizeof *out), *in = out ? out + size : NULL;
    coll_failure failure = { COLL_OK, -1, "" };
    coll_request r;

    if (!out) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "no memory for the neighbours of %d ranks", comm->size);
    for (int i = 0; i < graph->destinations; i++) if (graph->destination[i] != COLL_NO_RANK) out[graph->destination[i]]++;
    r.call = (coll_call){ .kind = COLL_ALLTOALL, .send = out, .recv = in, .count = 1, .type = COLL_U32, .name = "neighbors" };
    coll_status status = coll__run_by_host(comm, &r);
    for (int i = 0; status == COLL_OK && i < graph->sources; i++) if (graph->source[i] != COLL_NO_RANK) in[graph->source[i]]--;
    for (int i = 0; status == COLL_OK && i < comm->size; i++) {
        if (in[i] == 0) continue;
        coll__blame(&failure, COLL_ERR_MISMATCH, coll__world_rank(comm, i),
                    "neighbors: rank %d names rank %d as a destination %s often than rank %d names it as a source", i, comm->rank,
                    in[i] < (uint32_t)INT32_MAX ? "more" : "less", comm->rank);
        status = coll__comm_fail(comm, &failure);
    }
    free(out);
    return status;
}

static coll_status coll__neighbors_inside(coll_comm *comm, const coll__graph *wanted)
{
    const size_t sources = (size_t)wanted->sources, destinations = (size_t)wanted->destinations;
    int *lists = (int *)malloc((sources + destinations + 1) * sizeof *lists);

    if (!lists) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "no memory for %zu neighbours", sources + destinations);
    if (sources) memcpy(lists, wanted->source, sources * sizeof *lists);
    if (destinations) memcpy(lists + sources, wanted->destination, destinations * sizeof *lists);
    const coll_status status = coll__check_edges(comm, wanted);
    if (status < 0) {
        free(lists);
        return status;
    }
    free(comm->graph_lists);
    comm->graph_lists = lists;
    comm->graph_version++;
    comm->graph = (coll__graph){ wanted->sources, wanted->destinations, lists, lists + sources };
    return COLL_OK;
}

/* ---- >>freeing ---- */

enum {
    COLL__DELIVER_MS = 600,                       /* with a verdict and a flush, coll_free stays under 2 s    */
    COLL__DELIVER_SHORT_MS = 10000                /* for what counts as sent, where strangers are in its way  */
};

/* Does anything of this communicator still run? */
static bool coll__comm_is_running(const coll_comm *comm)
{
    if (comm->main.queue) return true;
    for (const coll__prepared *p = comm->prepared; p; p = p->next) if (p->track.queue) return true;
    return false;
}

/* Groups of a transport that is about to close, which drops them itself; or in a forked child, where nothing may be told to
 * anybody. */
static void coll__comm_forget(coll_comm *comm)
{
    coll__track_forget(&comm->main);
    for (coll__prepared *p = comm->prepared; p; p = p->next) coll__track_forget(&p->track);
}

/* Leave: what others await is delivered first; what is still running then is given up, which ends the trunk, if others of its
 * communicators live on. */
static void coll__comm_leave(coll_comm *comm, bool is_last)
{
    coll__trunk *trunk = comm->trunk;
    const int64_t began = coll__clock(trunk);
    coll_failure failure = { COLL_OK, -1, "" };

    while (trunk->failure.status == COLL_OK) {
        const coll__undelivered left = coll__messages_undelivered(comm);
        const int ms = left == COLL__UNDELIVERED_SHORT ? COLL__DELIVER_SHORT_MS : COLL__DELIVER_MS;
        if (left == COLL__UNDELIVERED_NONE && !(comm->device && coll__comm_is_running(comm))) break;
        if (coll__clock(trunk) >= began + ms * (int64_t)COLL__MS || coll__advance(trunk, comm->device ? 1 : 10) < 0) break;
    }
    comm->is_leaving = true;                      /* what ends from here on has been aborted                  */
    if (trunk->failure.status == COLL_OK && (coll__comm_is_running(comm) || (!is_last && coll__messages_are_moving(comm)))) {
        coll__blame(&failure, COLL_ERR_PEER, trunk->rank, "rank %d has left the communicator in the middle of an operation",
                    trunk->rank);
        coll__trunk_fail(trunk, &failure);
    }
    if (!is_last && trunk->failure.status == COLL_OK) coll__messages_close(comm, COLL_ERR_ABORTED);
    if (comm->device) comm->device->close(comm);
    if (!is_last) return;
    coll__comm_forget(comm);
    trunk->transport->close(trunk->context);
    coll__trunk_end(trunk, COLL_ERR_ABORTED);
}

/* Requests that outlive their communicator must not find it. */
static void coll__prepared_orphan(coll_comm *comm)
{
    while (comm->prepared) {
        coll__prepared *p = comm->prepared;
        comm->prepared = p->next;
        coll__track_leave(&p->track);
        p->request->comm = NULL;
        p->request->prepared = NULL;
        free(p);
    }
}

#endif /* COLL_GROUPS_H */
