/* coll_shrink.h - after a failure: a communicator of those who are left.
 *
 * The transport brings them together (coll_transport.h: shrink).  A barrier then shows that all of them have the new world; when
 * somebody is lost in the meantime it fails, and those who are left shrink the new world in turn. */
#ifndef COLL_SHRINK_H
#define COLL_SHRINK_H

/* The configuration of a communicator, for one that takes its place. */
static void coll__settings_of(const coll_comm *comm, coll__settings *s)
{
    const coll__trunk *trunk = comm->trunk;

    memset(s, 0, sizeof *s);
    s->config.stall_timeout_ms = trunk->stall_timeout_ms;
    s->config.start_timeout_ms = trunk->start_timeout_ms;
    s->config.dump = trunk->dump;
    s->config.background = trunk->mover.is_wanted ? 1 : -1;
    s->config.spin_us = trunk->spin_us > 0 ? trunk->spin_us : -1;
    s->processors = trunk->processors;
    s->share = trunk->share;
    s->config.log_level = trunk->log.level;
    s->config.log = trunk->log.hook;
    s->config.log_context = trunk->log.context;
    s->numbers = comm->numbers;
    memcpy(s->forced_text, trunk->forced_text, sizeof s->forced_text);
    for (int kind = 0; kind <= COLL_SENDRECV; kind++)
        if (trunk->forced[kind]) s->forced_at[kind] = 1 + (int)(trunk->forced[kind] - trunk->forced_text);
}

/* How many of the new ranks live where this one does, and which of them it is. */
static void coll__count_survivors(const coll__trunk *trunk, const coll_survivors *who, coll__settings *s)
{
    const coll_transport *t = trunk->transport;
    const int here = t->host ? t->host(trunk->context, trunk->rank) : trunk->rank;

    for (int i = 0; i < who->count; i++) {
        const int host = t->host ? t->host(trunk->context, who->ranks[i]) : who->ranks[i];
        if (host != here) continue;
        s->local_size++;
        if (i < who->rank) s->local_rank++;
    }
}

/* One attempt. */
static coll_status coll__shrink_once(coll_comm *comm, coll_comm **out)
{
    coll__trunk *trunk = comm->trunk;
    const size_t size = (size_t)trunk->size;
    coll_failure failure = { COLL_OK, -1, "" };
    coll__settings settings;

    if (!trunk->survival) trunk->survival = (unsigned char *)calloc(size, 1);
    if (!trunk->listed) trunk->listed = (int *)malloc(2 * size * sizeof *trunk->listed);
    if (!trunk->listed || !trunk->survival)
        return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "shrink: no memory for %d ranks", comm->size);
    int *const ranks = trunk->listed;             /* of the trunk: a simulated rank may die in here           */
    coll_survivors who = { .ranks = ranks + size };
    for (int i = 0; i < comm->size; i++) ranks[i] = coll__world_rank(comm, i);
    const coll_status status = trunk->transport->shrink(trunk->context, ranks, comm->size, trunk->start_timeout_ms, &who,
                                                        &failure);
    if (status < 0) return coll__explain_error(comm, NULL, status, "shrink: %s", failure.text);
    for (int i = 0; i < comm->size; i++) trunk->survival[ranks[i]] = COLL__LOST;
    for (int i = 0; i < who.count; i++) trunk->survival[who.ranks[i]] = COLL__GOES_ON;
    coll__settings_of(comm, &settings);
    coll__count_survivors(trunk, &who, &settings);
    *out = coll__comm_new(trunk->transport, who.context, who.rank, who.count, &settings);
    if (!*out) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "shrink: no memory for a communicator");
    (*out)->trunk->generation = trunk->generation + 1;
    (*out)->trunk->is_synchronous = trunk->is_synchronous;
    (*out)->trunk->offloads_all = trunk->offloads_all;
    return COLL_OK;
}

/* Who was lost in a further attempt is lost to the communicator of the first one, too: `before` are its ranks but the lost. */
static void coll__shrink_count(const coll_comm *comm, const coll_comm *before)
{
    const unsigned char *later = before->trunk->survival;

    for (int i = 0, at = 0; later && i < comm->size; i++) {
        unsigned char *first = &comm->trunk->survival[coll__world_rank(comm, i)];
        if (*first == COLL__GOES_ON && later[at++] == COLL__LOST) *first = COLL__LOST;
    }
}

/* It has come to nothing: who was to go on may be lost by now. */
static void coll__shrink_undo(coll__trunk *trunk)
{
    for (int i = 0; trunk->survival && i < trunk->size; i++)
        if (trunk->survival[i] == COLL__GOES_ON) trunk->survival[i] = COLL__NOT_LISTED;
}

static coll_status coll__shrink_inside(coll_comm *comm, coll_comm **out)
{
    const coll__trunk *trunk = comm->trunk;
    const coll_failure *why = &trunk->failure;
    coll_comm *fresh = NULL, *before = NULL;

    if (why->status == COLL_OK) return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "shrink: nothing has failed");
    if (!trunk->transport->shrink)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "shrink: the transport \"%s\" cannot",
                                   trunk->transport->name);
    if (why->rank == trunk->rank && (why->status == COLL_ERR_PEER || why->status == COLL_ERR_TIMEOUT))
        return coll__explain_error(comm, NULL, COLL_ERR_PEER, "shrink: the others have given this rank up: %s", why->text);
    coll_status status = coll__shrink_once(comm, &fresh);
    while (status == COLL_OK) {
        coll_request r;
        r.call = (coll_call){ .kind = COLL_BARRIER, .timeout_ms = trunk->start_timeout_ms, .name = "shrink" };
        status = coll__run_inside(fresh, &r);
        if (status == COLL_OK) break;
        before = fresh;
        fresh = NULL;
        status = status == COLL_ERR_PEER ? coll__shrink_once(before, &fresh) : status;
        if (status < 0) coll__explain_error(comm, NULL, status, "shrink: %.300s", coll__sentence_of(before));
        coll__shrink_count(comm, before);
        coll_free(before);
    }
    if (status == COLL_OK && comm->device && (status = comm->device->derive(comm, fresh)) < 0) {
        coll__explain_error(comm, NULL, status, "shrink: %.300s", coll__sentence_of(fresh));
        coll_free(fresh);
        fresh = NULL;
    }
    if (status < 0) coll__shrink_undo(comm->trunk);
    *out = fresh;
    return status;
}

#endif /* COLL_SHRINK_H */
