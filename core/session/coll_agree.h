/* coll_agree.h - all ranks that have not failed agree on flags, and on who has failed.
 *
 * Without a failure two collectives of all ranks decide: an allreduce of the flags, and a barrier.  A rank that completes the
 * first has accepted its result; one that completes the second knows that all have.  That is round 0 of the consensus
 * (core/membership/coll_consensus.h).  If either fails, or the session has failed before, the transport continues with
 * round 1 (coll_transport.h: shrink).  A rank that knows a result tells it there to those that do not. */
#ifndef COLL_AGREE_H
#define COLL_AGREE_H

/* What the ranks of this communicator have decided.  NULL: no memory. */
static coll__decided *coll__decided_by(const coll_comm *comm)
{
    coll__session *session = comm->session;
    const size_t size = (size_t)comm->size;
    coll__decided *c = session->decided;

    for (; c; c = c->next) {
        bool is_same = c->count == comm->size;
        for (int i = 0; is_same && i < comm->size; i++) is_same = c->ranks[i] == coll__world_rank(comm, i);
        if (is_same) return c;
    }
    if (!session->survival)                       /* another thread may read it (coll_failed_ranks)           */
        __atomic_store_n(&session->survival, coll__take_zeros(coll__like(session), (size_t)session->size, 2), __ATOMIC_RELEASE);
    c = (coll__decided *)coll__take_zeros(coll__like(session), 1, sizeof *c + size * (2 * sizeof *c->ranks + 1));
    if (!c || !session->survival) {
        coll__give(c);
        return NULL;
    }
    c->count = comm->size;
    c->ranks = (int *)(void *)(c + 1);
    for (int i = 0; i < comm->size; i++) c->ranks[i] = coll__world_rank(comm, i);
    c->known.failed = (unsigned char *)(c->ranks + 2 * size);
    c->next = session->decided;
    return session->decided = c;
}

/* May this rank decide with the others who is left? */
static coll_status coll__may_survive(coll_comm *comm, const char *what)
{
    const coll__cause *why = &comm->session->failure;

    if (why->status == COLL_OK && !comm->session->is_succeeded)
        return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "%s: nothing has failed", what);
    if (!comm->session->transport->shrink)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "%s: after a failure the transport \"%s\" cannot: %s", what,
                                   comm->session->transport->name, why->text);
    if (why->rank == comm->session->rank && (why->status == COLL_ERR_PEER || why->status == COLL_ERR_TIMEOUT))
        return coll__explain_error(comm, NULL, COLL_ERR_PEER, "%s: the others have given this rank up: %s", what, why->text);
    return COLL_OK;
}

/* What has become of a rank; another thread may read it. */
static inline void coll__survival_set(const coll__session *session, int rank, coll__survival is)
{
    __atomic_store_n(&session->survival[rank], (unsigned char)is, __ATOMIC_RELAXED);
}

/* They decide. */
static coll_status coll__survive(coll_comm *comm, const char *what, coll__decided *c, coll_survivors *who)
{
    coll__session *session = comm->session;
    coll_failure failure = { COLL_OK, -1, "" };

    who->ranks = c->ranks + c->count;             /* owned by the session: a simulated rank may be killed here */
    who->known = &c->known;
    const coll_status status = session->transport->shrink(session->context, c->ranks, c->count, session->start_timeout_ms, who,
                                                          &failure);
    if (status < 0) return coll__explain_error(comm, NULL, status, "%s: %s", what, failure.text);
    unsigned char *const is_left = session->survival + session->size;
    memset(is_left, 0, (size_t)session->size);
    for (int i = 0; i < who->count; i++) is_left[who->ranks[i]] = true;
    for (int i = 0; i < c->count; i++)
        coll__survival_set(session, c->ranks[i],
                           !is_left[c->ranks[i]] ? COLL__LOST : who->is_agree ? COLL__AGREED : COLL__GOES_ON);
    return COLL_OK;
}

/* Round 0.  If an earlier call of this communicator has failed behind the first collective, its result stands. */
static coll_status coll__agree_all(coll_comm *comm, coll__decided *c, uint64_t *flags)
{
    const bool is_first = c->of != comm->id + 1;
    uint64_t all = is_first ? *flags : c->known.next;
    coll_status status = COLL_OK;
    coll_request r;

    if (is_first) {
        r.call = (coll_call){ .kind = COLL_ALLREDUCE, .send = &all, .recv = &all, .count = 1, .type = COLL_U64,
                              .op = COLL_BAND, .name = "agree" };
        status = coll__run_by_host(comm, &r);
        if (status != COLL_OK) return status;
        c->of = comm->id + 1;
        c->known.next = all;
        c->known.has_next = true;
    }
    r.call = (coll_call){ .kind = COLL_BARRIER, .name = "agree" };
    status = coll__run_by_host(comm, &r);
    if (status == COLL_OK) *flags = all;
    return status;
}

/* The rounds of those that have not failed. */
static coll_status coll__agree_left(coll_comm *comm, coll__decided *c, uint64_t *flags)
{
    coll__session *session = comm->session;
    coll_survivors who = { .is_agree = true, .flags = *flags };
    coll_status status = coll__may_survive(comm, "agree");

    if (status == COLL_OK) status = coll__survive(comm, "agree", c, &who);
    if (status < 0) return status;
    for (int i = 0; i < c->count; i++) c->known.failed[i] = session->survival[c->ranks[i]] == COLL__LOST;
    *flags = who.flags;
    __atomic_store_n(&session->has_agreed, true, __ATOMIC_RELAXED);
    return COLL_OK;
}

static coll_status coll__agree_inside(coll_comm *comm, uint64_t *flags)
{
    const coll__session *session = comm->session;
    coll__decided *const c = COLL__HAS_SHRINK ? coll__decided_by(comm) : NULL;
    uint64_t all = *flags;

    if (!COLL__HAS_SHRINK)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "agree: this program was compiled with COLL_NO_SHRINK");
    if (!c) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "agree: no memory for %d ranks", comm->size);
    coll_status status = coll__look_alive(comm->session);
    if (status == COLL_OK) status = coll__agree_all(comm, c, &all);
    if (status < 0 && session->failure.status != COLL_OK) status = coll__agree_left(comm, c, &all);
    if (status < 0) return status;
    *flags = c->known.last = all;
    c->known.count++;
    if (c->of == comm->id + 1 || session->failure.status != COLL_OK) c->known.has_next = false, c->of = 0;
    return COLL_OK;
}

COLL_API coll_status coll_agree(coll_comm *comm, uint64_t *flags)
{
    const coll_status status = coll__enter(comm);

    if (status < 0) return status;
    return coll__leave(comm, flags ? coll__agree_inside(comm, flags)
                             : coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "agree: flags is NULL"));
}

#endif /* COLL_AGREE_H */
