/* coll_communicators.h - communicators: created from a transport, derived from one another, and freed. */
#ifndef COLL_COMMUNICATORS_H
#define COLL_COMMUNICATORS_H

/* ---- >>session ---- */

/* A forked child does not destroy the locks: threads that it does not have may hold or await them. */
static void coll__session_free(coll__session *session)
{
    if (session->messages) COLL__BY_KEY(session, free, session);
    session->deriving = 0;                        /* a simulated rank killed in a derivation leaves it set    */
    coll__peer_left_sweep(session);
    coll__pool_close(session->pool);
    coll__fd_close(session);
    coll__give(session->survival);
    coll__give(session->former);
    for (coll__decided *c; (c = session->decided);) {
        session->decided = c->next;
        coll__give(c->known.kept);
        coll__give(c);
    }
    if (*session->guard) {
        coll__lock_free(&session->comms_lock);
        coll__cond_free(&session->changed);
        coll__cond_free(&session->background.doorbell);
        coll__lock_free(&session->lock);
    }
    coll__fork_guard_free(session->guard);
    coll__give(session);
}

/* Creates what all communicators over an open transport share.  Owns the transport.  NULL: no memory; the transport is closed. */
static coll__session *coll__session_new(const coll__opened *o, const coll__settings *s)
{
    const coll_transport *const transport = o->transport;
    const bool is_full_host = !transport->now && o->local_size == o->size && o->processors < o->size;
    coll__session *session = (coll__session *)coll__allocate(s->config.allocator, sizeof *session);

    if (session) session->guard = coll__fork_guard();
    if (!session || !session->guard) {
        coll__give(session);
        transport->close(o->context);
        return NULL;
    }
    coll__lock_init(&session->lock);
    coll__lock_init(&session->comms_lock);
    coll__cond_init(&session->changed);
    coll__cond_init(&session->background.doorbell);
    session->rank = o->rank;
    session->size = o->size;
    session->local_rank = o->local_rank;
    session->local_size = o->local_size;
    session->transport = transport;
    session->carriers = coll__carriers;
    session->carrier_count = COLL__CARRIER_COUNT;
    session->context = o->context;
    session->stall_timeout_ms = s->config.stall_timeout_ms;
    coll__print(session->dump, sizeof session->dump, "%s", s->config.dump ? s->config.dump : "");
    session->start_timeout_ms = s->config.start_timeout_ms;
    session->log = coll__log_of(&s->config);
    memcpy(session->forced_text, s->forced_text, sizeof session->forced_text);
    memcpy(session->forced_at, s->forced_at, sizeof session->forced_at);
    session->failure.rank = -1;
    session->doorbell = coll__no_doorbell;
    session->processors = o->processors;
    session->share = !COLL__HAS_CHOICE ? 1 : o->share > 0 ? o->share : is_full_host ? (double)o->processors / o->size : 1;
    session->is_crowded = o->is_crowded;
    session->offloads_all = o->offloads_all;
    session->is_synchronous = o->is_synchronous;
    session->internals = o->internals;
    session->background.is_wanted = s->config.background > 0 && transport->in_background && transport->wake && !transport->now;
    if (session->internals->watch) session->internals->watch(o->context, session);
    session->extension = s->extension;
    if (session->extension->opened) session->extension->opened(session);
    session->spin_us = !COLL__HAS_CLOCK && !transport->now ? 0            /* without a clock, spinning would not end */
                   : o->spin_us > 0 ? o->spin_us : o->spin_us < 0 ? 0
                   : session->is_crowded ? COLL__SPIN_CROWDED_US : COLL__SPIN_US;
    return session;
}

/* ---- >>communicators ---- */

/* Creates a communicator of `size` ranks, which are `members` of the session (NULL: the same numbers); owns the list.  `numbers`
 * belong to a communicator in which they are `ranks` (NULL: the same). */
static coll_comm *coll__comm_of(coll__session *session, int *members, int rank, int size, uint64_t id,
                                const coll__numbers *numbers, const int *ranks)
{
    coll_comm *comm = (coll_comm *)coll__allocate(coll__like(session), sizeof *comm);

    if (!comm) return NULL;
    comm->session = session;
    comm->guard = session->guard;
    comm->members = members;
    comm->rank = rank;
    comm->size = size;
    comm->id = id;
    comm->numbers = *numbers;
    if (COLL__HAS_CHOICE && ranks) coll__numbers_inherit(comm, numbers, ranks);
    else if (COLL__HAS_CHOICE) coll__numbers_divide(comm);
    comm->recorder = coll__recorder_new(session);
    coll__order_init(&comm->main, comm, COLL__SPACE_CALLS, 0, id != 0);
    coll__comms_hold(session);
    comm->next = session->comms;
    session->comms = comm;
    coll__comms_release(session);
    return comm;
}

static void coll__comm_unlink(coll_comm *comm)
{
    coll_comm **at = &comm->session->comms;

    coll__comms_hold(comm->session);
    while (*at != comm) at = &(*at)->next;
    *at = comm->next;
    coll__comms_release(comm->session);
}

/* Creates a communicator over an open transport.  Owns the transport.  NULL: no memory; the transport is closed. */
static coll_comm *coll__comm_new(const coll__opened *o, const coll__settings *s)
{
    coll__session *session = coll__session_new(o, s);
    coll_comm *comm = session ? coll__comm_of(session, NULL, o->rank, o->size, 0, &o->numbers, NULL) : NULL;

    if (comm) return comm;
    if (session) {
        o->transport->close(o->context);
        coll__session_free(session);
    }
    coll__start_failed(COLL_ERR_MEMORY, "no memory for rank %d of %d", o->rank, o->size);
    return NULL;
}

/* ---- >>deriving ----
 *
 * The first rank of a communicator assigns its id: its rank in the session, and a counter.  So ids are unique in a session, even
 * if other threads derive at the same time.  Members receive the id in a collective: no rank has a communicator before all
 * members have begun to create it. */

enum { COLL__NAMES_BITS = 40 };                  /* of an id: the counter of the assigning rank               */

/* Returns an id that no communicator of the session has had. */
static uint64_t coll__name_comm(coll__session *session)
{
    return (uint64_t)session->rank << COLL__NAMES_BITS | ++session->named;
}

/* Extends a new communicator; frees it on error. */
static coll_status coll__derive_extension(coll_comm *parent, coll_comm **out)
{
    coll_comm *const comm = *out;

    comm->is_holder = parent->is_holder;          /* this thread is inside both communicators                 */
    const coll_status status = parent->extension->derive(parent, comm);
    parent->is_holder = comm->is_holder;
    comm->is_holder = false;
    if (status == COLL_OK) return COLL_OK;
    coll__comm_unlink(comm);
    coll__comm_free(comm);
    *out = NULL;
    return status;
}

/* Two communicators with one id would receive each other's messages. */
static coll_status coll__check_id(coll__session *session, uint64_t id)
{
    coll_failure failure = { COLL_OK, -1, "" };

    if (!coll__comm_find(session, id)) return COLL_OK;
    coll__set_failure(&failure, COLL_ERR_PROTOCOL, session->rank, "rank %d has a communicator with the id %llx, and cannot make "
                      "another one with the same id: free that one first", session->rank, (unsigned long long)id);
    return coll__session_fail(session, &failure);
}

/* Creates communicator `id` of `count` ranks of `parent`, listed in `ranks`; this rank is number `me`. */
static coll_status coll__derive(coll_comm *parent, const int *ranks, int count, int me, uint64_t id, coll_comm **out)
{
    coll__session *session = parent->session;
    coll__messages_use(parent);
    if (coll__check_id(session, id) < 0) return session->failure.status;
    int *members = (int *)coll__take(coll__like(parent), (size_t)count * sizeof *members);

    for (int i = 0; members && i < count; i++) members[i] = coll__world_rank(parent, ranks[i]);
    coll_comm *comm = members ? coll__comm_of(session, members, me, count, id, &parent->numbers, ranks) : NULL;
    if (comm) comm->mark = coll__mark_of(id);
    if (comm && coll__order_join(&comm->main) == COLL_OK
        && (comm->main.group || !session->transport->group || session->transport->progress(session->context, 0) >= 0)
        && coll__messages_hear(comm) == COLL_OK) {
        session->has_many = true;
        __atomic_store_n(&session->is_shared, true, __ATOMIC_RELEASE);
        *out = comm;
        return parent->extension ? coll__derive_extension(parent, out) : COLL_OK;
    }
    if (comm) coll__comm_unlink(comm), coll__comm_free(comm);
    else coll__give(members);
    coll_failure failure = { COLL_OK, -1, "" };   /* all ranks fail, because they depend on this one          */
    coll__set_failure(&failure, COLL_ERR_MEMORY, session->rank, "rank %d has no memory for a communicator", session->rank);
    return coll__session_fail(session, &failure);
}

/* A call that creates communicators begins (by 1), or ends (by -1). */
static void coll__deriving(coll__session *session, int by)
{
    coll__comms_hold(session);
    session->deriving += by;
    coll__comms_release(session);
    coll__peer_left_sweep(session);
}

/* A rank's contribution to a split; `id`: for the communicator of which it is the first rank. */
typedef struct coll__ballot { int32_t color, key; uint64_t id; } coll__ballot;

/* Writes the ranks of this rank's color, by key and then by rank, and this rank's place.  Returns their number. */
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
    coll__ballot *ballots = (coll__ballot *)coll__take(coll__like(comm), size * sizeof *ballots);
    int *ranks = (int *)coll__take(coll__like(comm), size * sizeof *ranks), me = 0;
    coll_status status = COLL_ERR_MEMORY;

    coll__deriving(comm->session, 1);
    if (ballots && ranks) {
        coll_request r;
        ballots[comm->rank] = (coll__ballot){ color, key, coll__name_comm(comm->session) };
        r.call = (coll_call){ .kind = COLL_ALLGATHER, .send = COLL_IN_PLACE, .recv = ballots, .count = 1,
                              .type = COLL_BLOB(sizeof *ballots), .name = "split" };
        status = coll__run_by_host(comm, &r);
    } else {
        coll__explain_error(comm, NULL, status, "no memory to split %d ranks", comm->size);
    }
    if (status == COLL_OK && color != COLL_COLOR_NONE) {
        const int count = coll__count_ballots(ballots, comm->size, comm->rank, ranks, &me);
        status = coll__derive(comm, ranks, count, me, ballots[ranks[0]].id, out);
    }
    coll__deriving(comm->session, -1);
    coll__give(ballots);
    coll__give(ranks);
    return status;
}

/* A number for a list of ranks and a tag, the same on all ranks that pass them: it identifies one coll_create. */
static uint64_t coll__shm_handshake_of(const int *ranks, int count, int tag)
{
    uint64_t hash = coll__mix64((uint64_t)(unsigned)tag << 32 | (unsigned)count);

    for (int i = 0; i < count; i++) hash = coll__mix64(hash ^ ((uint64_t)(unsigned)ranks[i] + 1));
    return hash;
}

/* An allreduce among the members alone, in a separate space; all but the first contribute 0. */
static coll_status coll__create_inside(coll_comm *comm, const int *ranks, int count, int me, int tag, coll_comm **out)
{
    if (!COLL__HAS_MESSAGES)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "create: this program was compiled with " COLL__PROFILE ", "
                                   "and has no messages by which the members find one another: use coll_split");
    int *members = (int *)coll__take(coll__like(comm), (size_t)count * sizeof *members);
    uint64_t id = me == 0 ? coll__name_comm(comm->session) : 0;
    coll_request r;

    coll__messages_use(comm);
    for (int i = 0; members && i < count; i++) members[i] = coll__world_rank(comm, ranks[i]);
    coll_comm *handshake = members ? coll__comm_of(comm->session, members, me, count, comm->id, &comm->numbers, ranks) : NULL;
    if (!handshake) {
        coll__give(members);
        return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "no memory for a communicator of %d ranks", count);
    }
    coll__order_init(&handshake->main, handshake, COLL__SPACE_CREATE, coll__shm_handshake_of(ranks, count, tag), true);
    handshake->mark = coll__mark_of(handshake->main.number);
    r.call = (coll_call){ .kind = COLL_ALLREDUCE, .send = &id, .recv = &id, .count = 1, .type = COLL_U64, .op = COLL_MAX,
                          .name = "create" };
    handshake->is_holder = comm->is_holder;       /* this thread is inside both communicators                 */
    coll__deriving(comm->session, 1);
    coll_status status = coll__run_by_host(handshake, &r);
    comm->is_holder = handshake->is_holder;
    if (status < 0) coll__sentence_copy(comm, handshake);
    coll__comm_unlink(handshake);
    coll__comm_free(handshake);
    if (status == COLL_OK) status = coll__derive(comm, ranks, count, me, id, out);
    coll__deriving(comm->session, -1);
    return status;
}

/* Checks a list of ranks: each once, this one included.  Returns this rank's place, or a negative status. */
static int coll__place_among(coll_comm *comm, const int *ranks, int count, int tag)
{
    if (!ranks || count < 1 || tag < 0)
        return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, !ranks ? "create: the list of ranks is NULL" : count < 1
                                   ? "create: count %d is out of range: 1 or more"
                                   : "create: tag %d is out of range: 0 or more", count < 1 ? count : tag);
    unsigned char *is_there = (unsigned char *)coll__take_zeros(coll__like(comm), (size_t)comm->size, 1);
    int me = -1, wrong = -1;

    if (!is_there) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "create: no memory for %d ranks", comm->size);
    for (int i = 0; i < count && wrong < 0; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size || is_there[ranks[i]]) wrong = i;
        else is_there[ranks[i]] = 1;
        if (ranks[i] == comm->rank) me = i;
    }
    coll__give(is_there);
    if (wrong >= 0)
        return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "create: rank %d, at %d of the list, %s", ranks[wrong], wrong,
                                   ranks[wrong] < 0 || ranks[wrong] >= comm->size ? "is out of range" : "is named twice");
    if (me >= 0) return me;
    return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "create: this rank is not in the list, and is not to call "
                               "coll_create with it");
}

/* ---- >>freeing ---- */

enum {
    COLL__DELIVER_MS = 600,                       /* with a decision and a flush, coll_free takes < 2 s       */
    COLL__DELIVER_SHORT_MS = 10000                /* for completed sends that are not delivered yet           */
};

/* Returns whether operations of this communicator are incomplete. */
static bool coll__comm_is_running(const coll_comm *comm)
{
    if (comm->main.queue) return true;
    for (const coll__prepared *p = comm->prepared; p; p = p->next) if (p->order.queue) return true;
    return false;
}

/* Drops groups without notice: the transport is closing and frees them, or a forked child must not notify peers. */
static void coll__comm_forget(coll_comm *comm)
{
    coll__order_forget(&comm->main);
    for (coll__prepared *p = comm->prepared; p; p = p->next) coll__order_forget(&p->order);
}

/* Checks, without waiting, whether other ranks have made other collectives in a communicator that this rank frees. */
static coll_status coll__comm_part(const coll_comm *comm, bool is_last, coll_failure *failure)
{
    coll__session *session = comm->session;
    void *const context = session->context, *const group = comm->main.group;
    coll__part_fn *const part = session->internals->part;
    unsigned char made[COLL_HEAD_LENGTH];

    if (COLL__TAKES_WHOLE && comm->size == session->size) {           /* in any order of such communicators   */
        session->made_calls += comm->sequence;
        session->made_history += coll__mix64(comm->main.history ^ coll__mix64((uint64_t)comm->mark << 32 | comm->sequence));
    }
    if (!is_last && session->messages && COLL__BY_KEY(session, unmatched, comm, failure) < 0) return failure->status;
    if (!COLL__TAKES_WHOLE || !part) return COLL_OK;
    coll__head_of_made(made, session);
    if (group && part(context, group, made, failure) < 0) return failure->status;
    return is_last ? part(context, NULL, made, failure) : COLL_OK;
}

/* Leaves: delivers what peers wait for, then fails the session if operations are still incomplete. */
static coll_status coll__comm_leave(coll_comm *comm, bool is_last)
{
    coll_status status = COLL_OK;
    coll__session *session = comm->session;
    const int64_t began = coll__clock(session);
    const bool had_failed = session->failure.status != COLL_OK;
    coll_failure failure = { COLL_OK, -1, "" };

    while (session->failure.status == COLL_OK) {
        const coll__undelivered left = session->messages ? COLL__BY_KEY(session, undelivered, comm) : COLL__UNDELIVERED_NONE;
        const int ms = left == COLL__UNDELIVERED_SHORT ? COLL__DELIVER_SHORT_MS : COLL__DELIVER_MS;
        if (left == COLL__UNDELIVERED_NONE && !(comm->extension && coll__comm_is_running(comm))) break;
        if (coll__clock(session) >= began + ms * (int64_t)COLL__MS || coll__advance(session, comm->extension ? 1 : 10) < 0) break;
    }
    if (!had_failed && session->failure.status != COLL_OK)                /* no call has returned this failure */
        status = coll__start_failed(session->failure.status, "coll_free: %s", session->failure.text);
    comm->is_leaving = true;                      /* what ends from here on is aborted                        */
    const bool are_moving = !is_last && session->messages && COLL__BY_KEY(session, are_moving, comm);
    if (session->failure.status == COLL_OK && (coll__comm_is_running(comm) || are_moving)) {
        coll__set_failure(&failure, COLL_ERR_PEER, session->rank,
                          "rank %d has left the communicator in the middle of an operation",
                          session->rank);
        coll__session_fail(session, &failure);
    }
    if (session->failure.status == COLL_OK && coll__comm_part(comm, is_last, &failure) < 0) {
        coll__say(&session->log, COLL_LOG_ERROR, "coll_free of rank %d: %s", session->rank, failure.text);
        if (!is_last) coll__session_fail(session, &failure);
        status = coll__start_failed(failure.status, "coll_free: %s", failure.text);
    }
    const bool lingers = COLL__IS_WHOLE && coll__messages_undelivered(comm) != COLL__UNDELIVERED_NONE;
    coll__comms_hold(session);
    session->lingers |= lingers;
    coll__comms_release(session);
    if (!is_last && session->failure.status == COLL_OK && (!COLL__ON_DEMAND || session->messages))
        COLL__BY_KEY(session, close, comm, COLL_ERR_ABORTED);
    if (comm->extension) comm->extension->close(comm);
    if (!is_last) return status;
    coll__comm_forget(comm);
    session->transport->close(session->context);
    coll__session_end(session, COLL_ERR_ABORTED);
    return status;
}

/* Requests that outlive their communicator must not refer to it. */
static void coll__prepared_orphan(coll_comm *comm)
{
    while (comm->prepared) {
        coll__prepared *p = comm->prepared;
        comm->prepared = p->next;
        coll__order_leave(&p->order);
        p->request->comm = NULL;
        p->request->prepared = NULL;
        coll__give(p);
    }
}

/* Closes a communicator on this rank, and with the last one the transport. */
static coll_status coll__comm_close(coll_comm *comm)
{
    coll__session *session = comm->session;
    const bool is_forked = !*comm->guard;
    coll_status status = COLL_OK;

    if (!is_forked && coll__is_shared(session)) coll__session_take(comm);
    const bool is_last = session->comms == comm && !comm->next;
    coll_comm *const successor = is_last ? session->successor : NULL;
    if (!is_forked && is_last) coll__background_stop(session);
    if (is_forked) coll__comm_forget(comm);
    else status = coll__comm_leave(comm, is_last);
    coll__prepared_orphan(comm);
    coll__order_leave(&comm->main);               /* while the session is held: groups belong to the transport */
    coll__comm_unlink(comm);
    coll__peer_left_sweep(session);
    if (COLL__MANY_THREADS && comm->is_holder) coll__session_drop(comm);
    if (comm->owner) *comm->owner = NULL;
    coll__comm_free(comm);
    if (is_last) coll__session_free(session);
    if (successor) (void)coll__comm_close(successor);
    return status;
}

#endif /* COLL_COMMUNICATORS_H */
