/* coll_shrink.h - after a failure: a communicator of the surviving ranks.
 *
 * The transport determines them (coll_transport.h: shrink).  An allreduce then confirms that all of them have the new world.  If
 * a rank fails meanwhile, it fails, and the survivors shrink the new world.  If that fails, the new world is kept, because the
 * old one has only one successor: the next coll_shrink continues there.  A world with newcomers is shrunk at once (coll_grow.h).
 *
 * Some ranks may have returned from that allreduce, and call coll_replace after the next failure, while others still shrink.  So
 * it also says how many ranks there shall be: the most that one of them wants.  0: as many as are left. */
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

/* `first`: of the call, whose ranks the new communicator knows. */
static coll_status coll__shrink_once(const coll_comm *first, coll_comm *comm, coll_comm **out)
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
    coll__opened opened = coll__opened_after(comm, &who);
    const coll__elastic *const elastic = session->internals->elastic;
    coll_status entered = COLL_OK;
    const bool is_first = elastic && elastic->enter(who.context, &opened, &entered);
    *out = coll__comm_new(&opened, &settings);
    int *const former = *out ? (int *)coll__take(coll__like(session), (size_t)opened.size * sizeof *former) : NULL;
    if (*out) (*out)->session->former = former;
    for (int i = 0; former && i < opened.size; i++) {
        const int rank = i < who.count ? who.ranks[i] : COLL_RANK_NONE;
        former[i] = rank < 0 ? rank : comm != first ? session->former[rank] : session->has_newcomers ? i
                    : coll__rank_here(comm, rank);
    }
    if (!former || entered < 0) {
        if (*out) coll__comm_close(*out);
        *out = NULL;
        return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "shrink: no memory for a communicator");
    }
    (*out)->session->generation = session->generation + 1;
    (*out)->session->has_newcomers = is_first;
    return COLL_OK;
}

/* Ranks lost in a further attempt, in `before`, are lost to the first communicator, too. */
static void coll__shrink_count(const coll_comm *first, const coll__session *before)
{
    for (int i = 0; before->survival && i < before->size; i++)
        if (before->survival[i] == COLL__LOST && before->former[i] >= 0)
            coll__survival_set(first->session, coll__world_rank(first, before->former[i]), COLL__LOST);
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
        if (session->survival[c->ranks[i]] != COLL__LOST) coll__survival_set(session, c->ranks[i], COLL__GOES_ON);
    return successor;
}

/* Wait for all ranks of a new world.  *wanted: the most of all. */
static coll_status coll__shrink_confirm(coll_comm *fresh, int timeout_ms, int32_t *wanted)
{
    coll_request r;

    r.call = (coll_call){ .kind = COLL_BARRIER, .timeout_ms = timeout_ms, .name = "shrink" };
    if (COLL__HAS(COLL_I32))
        r.call = (coll_call){ .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = wanted, .count = 1, .type = COLL_I32,
                              .op = COLL_MAX, .timeout_ms = timeout_ms, .name = "shrink" };
    return coll__run_inside(fresh, &r);
}

/* `first`: of the call; `comm` is that one, or comes from it.  *wanted: how many ranks there shall be; then the most of all. */
static coll_status coll__shrink_all(coll_comm *first, coll_comm *comm, int32_t *wanted, coll_comm **out)
{
    coll__session *session = comm->session;
    coll_comm *fresh = coll__shrink_resume(comm), *before = NULL;

    if (session->successor)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "shrink: a coll_shrink of other ranks of this job has led "
                                   "to a new world, and failed since: call it again, on the communicator that it was called on");
    bool has_failed = fresh && fresh->session->failure.status != COLL_OK;
    coll_status status = fresh ? COLL_OK : coll__shrink_once(first, comm, &fresh);
    int32_t agreed = 0;
    while (status == COLL_OK) {
        agreed = *wanted;
        status = fresh->session->has_newcomers ? COLL_ERR_PEER
                 : coll__shrink_confirm(fresh, session->start_timeout_ms, &agreed);
        if (status == COLL_OK) break;
        before = fresh;
        fresh = NULL;
        status = status == COLL_ERR_PEER || has_failed ? coll__shrink_once(first, before, &fresh) : status;
        has_failed = false;
        if (status < 0) coll__explain_error(comm, NULL, status, "shrink: %.300s", coll__sentence_of(before));
        coll__shrink_count(first, before->session);
        if (status < 0) session->successor = before;
        else coll__comm_close(before);
    }
    if (status == COLL_OK && comm->extension && (status = comm->extension->derive(comm, fresh)) < 0) {
        coll__explain_error(comm, NULL, status, "shrink: %.300s", coll__sentence_of(fresh));
        coll__comm_close(fresh);
        fresh = NULL;
    }
    for (int i = 0; status < 0 && session->survival && i < session->size; i++)       /* survivors may have been lost since */
        if (session->survival[i] == COLL__GOES_ON) coll__survival_set(session, i, COLL__NOT_LISTED);
    *out = fresh;
    *wanted = agreed;
    return status;
}

/* Enter, and let `make` give the next world of all ranks.  NULL: COLL_NO_SHRINK. */
static coll_status coll__next_world(coll_comm *comm, coll_comm **out, const char *what,
                                    coll_status (*make)(coll_comm *comm, coll_comm **out))
{
    if (out) *out = NULL;
    const char *const wrong = !out ? "out is NULL" : make ? NULL : "this program was compiled with COLL_NO_SHRINK";
    const coll_status status = coll__enter(comm);
    if (status < 0) return status;
    return coll__leave(comm, !wrong ? make(comm, out) : coll__explain_error(
                                 comm, NULL, out ? COLL_ERR_UNSUPPORTED : COLL_ERR_ARGUMENT, "%s: %s", what, wrong));
}

/* ---- >>failed ranks ---- */

/* The rank that caused the failure, those known to the transport, and those lost in a shrink. */
static int coll__failed_ranks(const coll_comm *comm, int *ranks, int capacity)
{
    const coll__session *session = comm->session;
    const bool has_failed = __atomic_load_n(&session->failure.status, __ATOMIC_ACQUIRE) != COLL_OK;
    unsigned char *is_failed = has_failed ? (unsigned char *)coll__take_zeros(coll__like(session), (size_t)session->size, 1)
                                          : NULL;
    const unsigned char *const survival = __atomic_load_n(&session->survival, __ATOMIC_ACQUIRE);
    const bool has_agreed = __atomic_load_n(&session->has_agreed, __ATOMIC_RELAXED);
    int count = 0;

    if (!is_failed) return 0;
    const coll__cause *why = &session->failure;
    if (why->rank >= 0 && (why->status == COLL_ERR_PEER || why->status == COLL_ERR_TIMEOUT)) is_failed[why->rank] = 1;
    if (session->transport->failed) session->transport->failed(session->context, is_failed);
    for (int i = 0; survival && i < session->size; i++) {
        const coll__survival is = (coll__survival)__atomic_load_n(&survival[i], __ATOMIC_RELAXED);
        if (is == COLL__LOST || is == COLL__GOES_ON || (is == COLL__AGREED && has_agreed)) is_failed[i] = is == COLL__LOST;
    }
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

COLL_API int coll_failed_ranks(const coll_comm *comm, int *ranks, int capacity)
{
    return comm && *comm->guard ? coll__failed_ranks(comm, ranks, capacity) : 0;
}

#endif /* COLL_SHRINK_H */
