/* coll_shrink.h - after a failure: a communicator of the surviving ranks.
 *
 * The transport determines them (coll_transport.h: shrink).  A barrier then confirms that all of them have the new world.  If a
 * rank fails meanwhile, the barrier fails, and the survivors shrink the new world.  If that fails, the new world is kept, because
 * the old one has only one successor: the next coll_shrink continues there. */
#ifndef COLL_SHRINK_H
#define COLL_SHRINK_H

/* The settings of a communicator, for its successor. */
static void coll__settings_of(const coll_comm *comm, coll__settings *s)
{
    const coll__session *session = comm->session;

    memset(s, 0, sizeof *s);
    s->extension = session->extension;
    s->config.stall_timeout_ms = session->stall_timeout_ms;
    s->config.start_timeout_ms = session->start_timeout_ms;
    s->config.dump = session->dump;
    s->config.background = session->background.is_wanted ? COLL_ON : COLL_OFF;
    s->config.log_level = session->log.level;
    s->config.log = session->log.hook;
    s->config.log_context = session->log.context;
    memcpy(s->forced_text, session->forced_text, sizeof s->forced_text);
    memcpy(s->forced_at, session->forced_at, sizeof s->forced_at);
}

/* This rank's number among the survivors, its local rank and local size. */
static coll__opened coll__opened_after(const coll_comm *comm, const coll_survivors *who)
{
    const coll__session *session = comm->session;
    const coll_transport *t = session->transport;
    const int here = t->host ? t->host(session->context, session->rank) : session->rank;
    coll__opened o = { .transport = t, .context = who->context, .rank = who->rank, .size = who->count,
                       .processors = session->processors, .share = session->share, .numbers = comm->numbers,
                       .spin_us = session->spin_us > 0 ? session->spin_us : -1, .offloads_all = session->offloads_all,
                       .is_synchronous = session->is_synchronous, .internals = session->internals };
    int local_rank = 0, local_size = 0;

    for (int i = 0; i < who->count; i++) {
        const int host = t->host ? t->host(session->context, who->ranks[i]) : who->ranks[i];
        if (host != here) continue;
        local_size++;
        if (i < who->rank) local_rank++;
    }
    if (comm->members) o.numbers.shares.count = o.numbers.sites.count = 0;
    else coll__numbers_of_some(&o.numbers, &comm->numbers, who->ranks, who->count);
    coll__opened_at(&o, local_rank, local_size);
    return o;
}

static coll_status coll__shrink_once(coll_comm *comm, coll_comm **out)
{
    coll__session *session = comm->session;
    coll_survivors who = { .rank = 0 };
    coll__settings settings;

    session->shrunk = coll__decided_by(comm);
    if (!session->shrunk) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "shrink: no memory for %d ranks", comm->size);
    const coll_status status = coll__survive(comm, "shrink", session->shrunk, &who);
    if (status < 0) return status;
    coll__settings_of(comm, &settings);
    settings.config.allocator = coll__like(session);
    const coll__opened opened = coll__opened_after(comm, &who);
    *out = coll__comm_new(&opened, &settings);
    if (!*out) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "shrink: no memory for a communicator");
    (*out)->session->generation = session->generation + 1;
    return COLL_OK;
}

/* Ranks lost in a further attempt are lost to the first communicator, too; `before`: its ranks without those lost earlier. */
static void coll__shrink_count(const coll_comm *comm, const coll_comm *before)
{
    const unsigned char *later = before->session->survival;

    for (int i = 0, at = 0; later && i < comm->size; i++) {
        unsigned char *first = &comm->session->survival[coll__world_rank(comm, i)];
        if (*first == COLL__GOES_ON && later[at++] == COLL__LOST) *first = COLL__LOST;
    }
}

/* The world of an earlier call for the same ranks; NULL: none. */
static coll_comm *coll__shrink_resume(const coll_comm *comm)
{
    coll__session *session = comm->session;
    const coll__decided *const c = session->shrunk;
    coll_comm *const successor = session->successor;

    if (!successor || c != coll__decided_by(comm)) return NULL;
    session->successor = NULL;
    for (int i = 0; i < c->count; i++)
        if (session->survival[c->ranks[i]] != COLL__LOST) session->survival[c->ranks[i]] = COLL__GOES_ON;
    return successor;
}

static coll_status coll__shrink_inside(coll_comm *comm, coll_comm **out)
{
    coll__session *session = comm->session;
    coll_comm *fresh = NULL, *before = NULL;

    if (!COLL__HAS_SHRINK)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "shrink: this program was compiled with COLL_NO_SHRINK");
    coll_status status = coll__may_survive(comm, "shrink");
    if (status < 0) return status;
    fresh = coll__shrink_resume(comm);
    if (session->successor)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "shrink: a coll_shrink of other ranks of this job has led "
                                   "to a new world, and failed since: call it again, on the communicator that it was called on");
    bool has_failed = fresh && fresh->session->failure.status != COLL_OK;
    status = fresh ? COLL_OK : coll__shrink_once(comm, &fresh);
    while (status == COLL_OK) {
        coll_request r;
        r.call = (coll_call){ .kind = COLL_BARRIER, .timeout_ms = session->start_timeout_ms, .name = "shrink" };
        status = coll__run_inside(fresh, &r);
        if (status == COLL_OK) break;
        before = fresh;
        fresh = NULL;
        status = status == COLL_ERR_PEER || has_failed ? coll__shrink_once(before, &fresh) : status;
        has_failed = false;
        if (status < 0) coll__explain_error(comm, NULL, status, "shrink: %.300s", coll__sentence_of(before));
        coll__shrink_count(comm, before);
        if (status < 0) session->successor = before;
        else coll__comm_close(before);
    }
    if (status == COLL_OK && comm->extension && (status = comm->extension->derive(comm, fresh)) < 0) {
        coll__explain_error(comm, NULL, status, "shrink: %.300s", coll__sentence_of(fresh));
        coll__comm_close(fresh);
        fresh = NULL;
    }
    for (int i = 0; status < 0 && session->survival && i < session->size; i++)       /* survivors may have been lost since */
        if (session->survival[i] == COLL__GOES_ON) session->survival[i] = COLL__NOT_LISTED;
    *out = fresh;
    return status;
}

/* ---- >>failed ranks ---- */

/* The rank that caused the failure, those known to the transport, and those lost in a shrink. */
static int coll__failed_ranks(const coll_comm *comm, int *ranks, int capacity)
{
    const coll__session *session = comm->session;
    const bool has_failed = __atomic_load_n(&session->failure.status, __ATOMIC_ACQUIRE) != COLL_OK;
    unsigned char *is_failed = has_failed ? (unsigned char *)coll__take_zeros(coll__like(session), (size_t)session->size, 1)
                                          : NULL;
    int count = 0;

    if (!is_failed) return 0;
    const coll__cause *why = &session->failure;
    if (why->rank >= 0 && (why->status == COLL_ERR_PEER || why->status == COLL_ERR_TIMEOUT)) is_failed[why->rank] = 1;
    if (session->transport->failed) session->transport->failed(session->context, is_failed);
    for (int i = 0; session->survival && i < session->size; i++)
        if (session->survival[i] != COLL__NOT_LISTED) is_failed[i] = session->survival[i] == COLL__LOST;
    for (int pass = 0; pass < 2; pass++)          /* first the rank that caused the failure                   */
        for (int i = 0; i < comm->size; i++) {
            const int rank = coll__world_rank(comm, i);
            if (!is_failed[rank] || (rank == why->rank) != (pass == 0)) continue;
            if (ranks && count < capacity) ranks[count] = i;
            count++;
        }
    coll__give(is_failed);
    return count;
}

#endif /* COLL_SHRINK_H */
