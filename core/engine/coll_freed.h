/* coll_freed.h - a rank that has freed a communicator does nothing in it any more: what others still want of it there will never
 * come, and is an error.
 *
 * Every rank publishes which communicators it has (coll_doing.h).  Whoever waits for long, or tests for long, asks the transport
 * whether those it waits for have freed the communicator of the call.  What they sent before they did must count: so we move
 * everything on once more before we believe it.  Peers that exchange messages by key tell one another at once
 * (coll_messages.h); over a transport that does not know, all members of a communicator do. */
#ifndef COLL_FREED_H
#define COLL_FREED_H

#if !defined(COLL_NO_WATCH)

enum { COLL__FREED_FIRST_MS = 250, COLL__FREED_MOST_MS = 5000 };

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
        if (world == comm->session->rank) continue;
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
    const coll_request *head = r->order ? r->order->queue : NULL;

    if (coll__late_ranks(r, is_late) > 0 || !head || !(head->carrier->traits & COLL__AS_A_WHOLE) || head->prepared) return;
    for (int i = 0; i < comm->size; i++) {
        const coll__gone *gone = coll__gone_of(comm->session, coll__world_rank(comm, i), comm->id);
        if (gone && gone->sequence < head->sequence) is_late[gone->peer] = 1;
    }
}

/* The same for any request: who is gone and wanted all the same. */
static int coll__hopeless(const coll_request *r, const unsigned char *is_gone, unsigned char *is_late)
{
    const coll__session *session = r->comm->session;

    if (coll__kind_is_message(r->call.kind)) return coll__message_hopeless(r, is_gone);
    memset(is_late, 0, (size_t)session->size);
    coll__wanted_ranks(r, is_late);
    for (int i = 0; i < session->size; i++) if (is_late[i] && is_gone[i]) return i;
    return -1;
}

/* Has this rank of the session freed the communicator of a request, by its own word or the transport's, or left? */
static bool coll__is_gone(const coll_request *r, int rank)
{
    const coll__session *session = r->comm->session;
    const coll_transport *t = session->transport;

    if (t->has_left && t->has_left(session->context, rank)) return true;
    return t->has_freed ? t->has_freed(session->context, rank, r->comm->id) : coll__gone_of(session, rank, r->comm->id) != NULL;
}

/* Does a request that runs wait for a rank that has freed its communicator?  Then it fails, and the session with it. */
static coll_status coll__check_freed(coll_request *r)
{
    const coll_comm *comm = r->comm;
    coll__session *session = comm->session;
    unsigned char *is_late = (unsigned char *)coll__take_zeros(coll__like(session), (size_t)session->size, 2), *is_gone = is_late;
    coll_failure failure = { COLL_OK, -1, "" };
    int any = 0;

    if (!is_late) return COLL_PENDING;
    is_gone += session->size;
    coll_status status = coll__messages_hear(comm);
    if (status < 0) return coll__give(is_late), coll__session_broken(session, status);
    coll__wanted_ranks(r, is_late);
    for (int i = 0; i < session->size; i++) {
        if (!is_late[i] || i == session->rank) continue;
        is_gone[i] = coll__is_gone(r, i);
        any += is_gone[i];
    }
    status = any > 0 ? coll__advance(session, 0) : COLL_PENDING;
    const int gone = any > 0 && status >= 0 && coll__is_pending(r) ? coll__hopeless(r, is_gone, is_late) : -1;
    coll__give(is_late);
    if (gone < 0) return status < 0 ? status : COLL_PENDING;
    coll__blame(&failure, COLL_ERR_PEER, gone, "rank %d has left the communicator, and rank %d still waits for it", gone,
                session->rank);
    return coll__session_fail(session, &failure);
}

/* In a virtual world: is it time to ask? */
static bool coll__may_be_freed(const coll__session *session)
{
    return session->transport->has_freed && session->transport->has_freed(session->context, -1, 0);
}

/* A test has found that `r` still runs: a program that polls may wait for ever, too. */
static void coll__test_freed(coll_request *r)
{
    coll__session *session = r->comm->session;

    if (session->transport->now && coll__may_be_freed(session)) (void)coll__check_freed(r);
    if (session->transport->now || ++session->tests % COLL__LOOKS_A_CLOCK != 0) return;
    const int64_t now = coll__clock(session);
    if (now < session->freed_at) return;
    if (session->freed_at > 0) (void)coll__check_freed(r);
    session->freed_at = now + (int64_t)COLL__FREED_FIRST_MS * COLL__MS;
}

#else

/* A time limit ends the wait for those who have. */
static inline void coll__test_freed(const coll_request *r) { (void)r; }

#endif
#endif /* COLL_FREED_H */
