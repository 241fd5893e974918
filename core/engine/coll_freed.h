/* coll_freed.h - a rank that has freed a communicator does nothing in it any more: what others still want of it there will never
 * come, and is an error.
 *
 * Every rank publishes which communicators it has (coll_doing).  Whoever waits for long, or tests for long, asks the transport
 * whether those it waits for have freed the communicator of the call.  What they sent before they did must count: so we move
 * everything on once more before we believe it.  Peers that exchange messages by key tell one another at once
 * (coll_messages.h); over a transport that does not know, all members of a communicator do. */
#ifndef COLL_FREED_H
#define COLL_FREED_H

/* ---- >>what we have ---- */

static bool coll__has_comm(const coll__trunk *trunk, uint32_t id)
{
    const coll_comm *comm = trunk->comms;

    while (comm && comm->id != id) comm = comm->next;
    return comm != NULL;
}

/* Take down the number of a communicator; gives how many there have been. */
static int coll__doing_note(coll_doing_comms *out, int n, uint64_t number, bool is_map)
{
    const uint64_t back = out->below - 1 - number;

    if (is_map && back < COLL_DOING_COMMS * COLL_DOING_BITS)
        out->numbers[back / COLL_DOING_BITS] |= (uint64_t)1 << back % COLL_DOING_BITS;
    if (!is_map && n < COLL_DOING_COMMS) out->numbers[n] = number + 1;
    return n + 1;
}

/* Those that we have, and those that are freed while something sent in them is still to arrive; gives how many. */
static int coll__doing_list(coll__trunk *trunk, coll_doing_comms *out, bool is_map)
{
    int n = 0;

    *out = (coll_doing_comms){ .below = trunk->next_id };
    for (const coll_comm *comm = trunk->comms; comm; comm = comm->next) n = coll__doing_note(out, n, comm->id, is_map);
    trunk->lingers = false;
    for (const coll__message *m = trunk->messages ? trunk->messages->outgoing.first : NULL; m; m = m->next) {
        if (coll__has_comm(trunk, m->comm)) continue;
        trunk->lingers = true;
        n = coll__doing_note(out, n, m->comm, is_map);
    }
    return n;
}

/* Communicators have come or gone.  While some are being made, one that is not there may still come. */
static void coll__doing_comms(coll__trunk *trunk)
{
    coll_doing *d = &trunk->doing;
    coll_doing_comms now;
    const bool is_map = coll__doing_list(trunk, &now, false) > COLL_DOING_COMMS;

    if (is_map) coll__doing_list(trunk, &now, true), now.below |= COLL_DOING_MAP;
    if (trunk->deriving > 0) now.below = 0;
    (void)__atomic_add_fetch(&d->comms_turn, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < COLL_DOING_COMMS; i++) __atomic_store_n(&d->comms.numbers[i], now.numbers[i], __ATOMIC_SEQ_CST);
    __atomic_store_n(&d->comms.below, now.below, __ATOMIC_SEQ_CST);
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

/* Mark the ranks that a request waits for.  Of a call that the transport carries without saying for whom it waits, that is
 * whoever has freed the communicator before it began that call. */
static void coll__wanted_ranks(const coll_request *r, unsigned char *is_late)
{
    const coll_comm *comm = r->comm;
    const coll_request *head = r->track ? r->track->queue : NULL;

    if (coll__late_ranks(r, is_late) > 0 || !head || !head->is_offloaded || head->prepared) return;
    for (int i = 0; i < comm->size; i++) {
        const coll__gone *gone = coll__gone_of(comm->trunk, coll__world_rank(comm, i), comm->id);
        if (gone && gone->sequence < head->sequence) is_late[gone->peer] = 1;
    }
}

/* The same for any request: who is gone and wanted all the same. */
static int coll__hopeless(const coll_request *r, const unsigned char *is_gone, unsigned char *is_late)
{
    const coll__trunk *trunk = r->comm->trunk;

    if (coll__kind_is_message(r->call.kind)) return coll__message_hopeless(r, is_gone);
    memset(is_late, 0, (size_t)trunk->size);
    coll__wanted_ranks(r, is_late);
    for (int i = 0; i < trunk->size; i++) if (is_late[i] && is_gone[i]) return i;
    return -1;
}

/* Has this rank of the trunk freed the communicator of a request, by its own word or the transport's, or left? */
static bool coll__is_gone(const coll_request *r, int rank)
{
    const coll__trunk *trunk = r->comm->trunk;
    const coll_transport *t = trunk->transport;

    if (t->has_left && t->has_left(trunk->context, rank)) return true;
    return t->has_freed ? t->has_freed(trunk->context, rank, r->comm->id) : coll__gone_of(trunk, rank, r->comm->id) != NULL;
}

/* Does a request that runs wait for a rank that has freed its communicator?  Then it fails, and the trunk with it. */
static coll_status coll__check_freed(coll_request *r)
{
    const coll_comm *comm = r->comm;
    coll__trunk *trunk = comm->trunk;
    unsigned char *is_late = (unsigned char *)calloc((size_t)trunk->size, 2), *is_gone = is_late;
    coll_failure failure = { COLL_OK, -1, "" };
    int any = 0;

    if (!is_late) return COLL_PENDING;
    is_gone += trunk->size;
    if (coll__messages_hear(comm) < 0) return free(is_late), coll__trunk_fail(trunk, NULL);
    coll__wanted_ranks(r, is_late);
    for (int i = 0; i < trunk->size; i++) {
        if (!is_late[i] || i == trunk->rank) continue;
        is_gone[i] = coll__is_gone(r, i);
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
    if (trunk->transport->now || ++trunk->tests % COLL__LOOKS_A_CLOCK != 0) return;
    const int64_t now = coll__clock(trunk);
    if (now < trunk->freed_at) return;
    if (trunk->freed_at > 0) (void)coll__check_freed(r);
    trunk->freed_at = now + (int64_t)COLL__FREED_FIRST_MS * COLL__MS;
}

#endif /* COLL_FREED_H */
