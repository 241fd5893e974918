/* coll_freed.h - a rank that has freed a communicator does nothing in it any more: what others still want of it there will never
 * come, and is an error.
 *
 * Every rank publishes which communicators it has (coll_doing).  Whoever waits for long, or tests for long, asks the transport
 * whether those it waits for have freed the communicator of the call.  What they sent before they did must count: so we move
 * everything on once more before we believe it.  Peers that exchange messages by key tell one another at once
 * (coll_messages.h). */
#ifndef COLL_FREED_H
#define COLL_FREED_H

/* ---- >>what we have ---- */

static bool coll__has_comm(const coll__trunk *trunk, uint32_t id)
{
    const coll_comm *comm = trunk->comms;

    while (comm && comm->id != id) comm = comm->next;
    return comm != NULL;
}

/* Communicators have come or gone.  While some are being made, one that is not there may still come. */
static void coll__doing_comms(coll__trunk *trunk)
{
    coll_doing *d = &trunk->doing;
    uint64_t below = trunk->deriving > 0 ? 0 : trunk->next_id;
    const coll__message *m = trunk->messages ? trunk->messages->outgoing.first : NULL;
    int n = 0;

    trunk->lingers = false;
    (void)__atomic_add_fetch(&d->comms_turn, 1, __ATOMIC_SEQ_CST);
    for (const coll_comm *comm = trunk->comms; comm; comm = comm->next) {
        if (n == COLL_DOING_COMMS) below = 0;
        else __atomic_store_n(&d->comms.numbers[n++], (uint64_t)comm->id + 1, __ATOMIC_SEQ_CST);
    }
    for (; m; m = m->next) {                      /* what has been sent in one is still to arrive             */
        if (coll__has_comm(trunk, m->comm)) continue;
        trunk->lingers = true;
        if (n == COLL_DOING_COMMS) below = 0;
        else __atomic_store_n(&d->comms.numbers[n++], (uint64_t)m->comm + 1, __ATOMIC_SEQ_CST);
    }
    while (n < COLL_DOING_COMMS) __atomic_store_n(&d->comms.numbers[n++], 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&d->comms.below, below, __ATOMIC_SEQ_CST);
    (void)__atomic_add_fetch(&d->comms_turn, 1, __ATOMIC_SEQ_CST);
}

/* ---- >>what others have ---- */

/* Is there no hope for a message, with these ranks gone?  Gives one of them, or -1. */
static int coll__message_hopeless(const coll_request *r, const unsigned char *is_gone)
{
    const coll_comm *comm = r->comm;
    int gone = -1;

    if (r->sending && is_gone[r->sending->peer]) return r->sending->peer;
    if (!r->receiving) return -1;
    if (r->receiving->peer != COLL__ANY) return is_gone[r->receiving->peer] ? r->receiving->peer : -1;
    for (int i = 0; i < comm->size; i++) {
        const int world = coll__world_rank(comm, i);
        if (world == comm->trunk->rank) continue;
        if (!is_gone[world]) return -1;
        gone = world;
    }
    return gone;
}

/* The same for any request: who is gone and wanted all the same. */
static int coll__hopeless(const coll_request *r, const unsigned char *is_gone, unsigned char *is_late)
{
    const coll__trunk *trunk = r->comm->trunk;

    if (coll__kind_is_message(r->call.kind)) return coll__message_hopeless(r, is_gone);
    memset(is_late, 0, (size_t)trunk->size);
    coll__late_ranks(r, is_late);
    for (int i = 0; i < trunk->size; i++) if (is_late[i] && is_gone[i]) return i;
    return -1;
}

/* Does a request that runs wait for a rank that has freed its communicator?  Then it fails, and the trunk with it. */
static coll_status coll__check_freed(coll_request *r)
{
    const coll_comm *comm = r->comm;
    coll__trunk *trunk = comm->trunk;
    const coll_transport *t = trunk->transport;
    unsigned char *is_late = t->has_freed ? (unsigned char *)calloc((size_t)trunk->size, 2) : NULL, *is_gone = is_late;
    coll_failure failure = { COLL_OK, -1, "" };
    int any = 0;

    if (!is_late) return COLL_PENDING;
    is_gone += trunk->size;
    coll__late_ranks(r, is_late);
    for (int i = 0; i < trunk->size; i++) {
        if (!is_late[i] || i == trunk->rank) continue;
        is_gone[i] = t->has_freed(trunk->context, i, comm->id) || (t->has_left && t->has_left(trunk->context, i));
        any += is_gone[i];
    }
    coll_status status = any > 0 ? coll__advance(trunk, 0) : COLL_PENDING;
    const int gone = any > 0 && status >= 0 && coll__is_pending(r) ? coll__hopeless(r, is_gone, is_late) : -1;
    free(is_late);
    if (gone < 0) return status < 0 ? status : COLL_PENDING;
    coll__blame(&failure, COLL_ERR_PEER, gone, "rank %d has left the communicator, and rank %d still waits for it", gone,
                trunk->rank);
    return coll__trunk_fail(trunk, &failure);
}

/* A test has found that `r` still runs: a program that polls may wait for ever, too. */
static void coll__test_freed(coll_request *r)
{
    coll__trunk *trunk = r->comm->trunk;

    if (trunk->transport->now && coll__may_be_freed(trunk)) (void)coll__check_freed(r);
    if (!trunk->transport->has_freed || trunk->transport->now || ++trunk->tests % COLL__LOOKS_A_CLOCK != 0) return;
    const int64_t now = coll__clock(trunk);
    if (now < trunk->freed_at) return;
    if (trunk->freed_at > 0) (void)coll__check_freed(r);
    trunk->freed_at = now + (int64_t)COLL__FREED_FIRST_MS * COLL__MS;
}

#endif /* COLL_FREED_H */
