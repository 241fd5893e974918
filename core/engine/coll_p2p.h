/* coll_p2p.h - messages matched by key, over any transport: send, recv and sendrecv, and the collectives of derived
 * communicators and prepared calls, whose order may differ between ranks.
 *
 * Two ranks exchange notes on COLL_CHANNEL_MESSAGES.  A note is a head without a body; some notes are followed by a body in the
 * next message.  A receiver always listens for the next note, so no message can block another one.
 *
 *     short    sender: NOTE_SHORT, body                              the sender copies up to 8 KiB and is done at once
 *     long     sender: NOTE_LONG    receiver: NOTE_GO    sender: NOTE_BODY, body      from buffer to buffer
 *
 * The body of a short message goes to the buffer of its receive if that is posted; otherwise the receiver keeps it.  Credit
 * bounds what it keeps: COLL__CREDIT bytes for each peer, of which a short message takes its length and COLL__COST.  The
 * receiver returns credit of finished messages with NOTE_CREDIT, a quarter at a time.
 *
 * A sender without credit holds its messages back, in order.  If the receiver takes messages in that order, it returns credit
 * while others are in transit.  If it takes them in another order, it could wait for a message that is held back, and never
 * return credit.  So NOTE_CREDIT also reports when messages without a receive take half of the credit.  Then the sender holds
 * nothing back; messages beyond the credit are sent as long ones.  While less than half is taken, the receiver will return more
 * than a quarter, so the sender can wait.
 *
 * A key is a space, a communicator and a tag.  With equal keys, messages of one sender match in the order sent.  In the space
 * of users the note has all information.  A message of a collective also carries its fingerprint, so that mismatches can be
 * reported: in the head of a short body, or of an empty body after NOTE_LONG.
 *
 * coll_p2p_protocol.h has the notes and sends messages; coll_p2p_match.h matches messages and receives. */
#ifndef COLL_P2P_H
#define COLL_P2P_H

/* ---- >>ends of a message ---- */

/* Finish the part of a request, or the transfer, that this message was. */
static void coll__message_done(coll__message *m, coll_status status)
{
    coll_request *r = m->request;

    if (m->xfer) m->xfer->status = status;
    m->xfer = NULL;
    m->request = NULL;
    if (!r) return;
    if (r->sending == m) r->sending = NULL;
    if (r->receiving == m) {
        const int asked = r->call.kind == COLL_RECV ? r->call.peer : r->call.source;
        r->receiving = NULL;
        if (status == COLL_OK) r->got_source = asked == COLL_ANY_SOURCE ? coll__rank_here(r->comm, m->peer) : asked;
        r->got_tag = (int)m->tag;
        r->got_count = (size_t)m->count;
    }
    if (!r->sending && !r->receiving) coll__request_finish(r, status);
}

/* Message and receive do not fit.  Both go to lists, where coll__messages_end_all finds them. */
static coll_status coll__message_misfit(coll__session *session, coll__message *want, coll__message *m)
{
    coll_failure failure = { COLL_OK, -1, "" };
    char wanted[40], sent[40];

    if (!want->list) coll__message_append(&session->messages->wanted, want);
    if (!m->list) coll__message_append(&session->messages->arrived, m);
    coll__set_failure(&failure, COLL_ERR_MISMATCH, m->peer,
                      "rank %d receives at most %llu x %s from rank %d with tag %d, but rank %d sends %llu x %s", session->rank,
                      (unsigned long long)want->count, coll__type_text(want->type, wanted, sizeof wanted), m->peer, (int)m->tag,
                      m->peer, (unsigned long long)m->count, coll__type_text(m->type, sent, sizeof sent));
    return coll__session_fail(session, &failure);
}

/* ---- >>credit ---- */

/* Return credit if enough is due; report if messages without a receive take half of it.  Send the note last: a simulated rank
 * may end in it. */
static coll_status coll__credit_tell(coll__session *session, int peer)
{
    coll__peer *p = &session->messages->peers[peer];
    const bool is_full = p->kept >= COLL__CREDIT / 2;

    if (p->owed < COLL__CREDIT / 4 && (!is_full || p->has_told)) return COLL_OK;
    const coll__message about = { .peer = peer, .count = p->owed, .tag = is_full };
    COLL__ASSERT(p->taken >= p->owed, "rank %d is owed %zu bytes of credit, and has taken %zu", peer, p->owed, p->taken);
    p->taken -= p->owed;
    p->owed = 0;
    p->has_told = is_full;
    return coll__reply(session, COLL__NOTE_CREDIT, &about);
}

/* A received message is finished. */
static coll_status coll__message_dismiss(coll__session *session, coll__message *m)
{
    coll__peer *p = &session->messages->peers[m->peer];
    const int peer = m->peer;
    const bool is_due = peer != session->rank && !m->is_long;
    const size_t cost = coll__cost_of_message(m->length);

    COLL__ASSERT(!is_due || m->list != &session->messages->arrived || p->kept >= cost, "%zu bytes of rank %d are kept, %zu go",
                 p->kept, peer, cost);
    if (is_due && m->list == &session->messages->arrived) p->kept -= cost;
    if (is_due) p->owed += cost;
    coll__message_spare(session->messages, m);
    return is_due ? coll__credit_tell(session, peer) : COLL_OK;
}

/* ---- >>matching ---- */

/* A receive has its message, but not all of the body. */
static void coll__want_moves(coll__messages *all, coll__message *want)
{
    coll__bin_leave(want);
    coll__message_unlink(want);
    coll__message_append(&all->moving, want);
}

/* Does a received message of a collective differ from the expected one?  Then the engine reports the mismatch. */
static bool coll__is_other_call(coll_xfer *x, const unsigned char *head, size_t length)
{
    if (!memcmp(x->head, head, COLL_HEAD_LENGTH) && x->length == length) return false;
    memcpy(x->head, head, COLL_HEAD_LENGTH);
    return true;
}

/* Match a receive with a message: `want` takes over the message's data. */
static coll_status coll__message_join(coll__session *session, coll__message *want, coll__message *m)
{
    coll__messages *all = session->messages;
    coll_xfer *x = want->xfer;
    coll_status outcome = COLL_OK;

    if (x && coll__is_other_call(x, m->body.head, m->length)) outcome = COLL_ERR_MISMATCH;
    else if (!x && (want->type != m->type || m->count > want->count)) return coll__message_misfit(session, want, m);
    want->peer = m->peer;
    want->tag = m->tag;
    want->count = m->count;
    want->length = m->length;
    want->id = m->id;
    want->is_long = m->is_long;
    if (m->is_long && outcome == COLL_OK) {
        coll__want_moves(all, want);
        coll__message_spare(all, m);
        coll__bin_put(coll__bin_by_number(all, want->peer, want->id), want);
        return coll__reply(session, COLL__NOTE_GO, want);
    }
    if (m->length && outcome == COLL_OK) memcpy(x ? x->buffer : want->request->call.recv, m->kept, m->length);
    coll__message_done(want, outcome);
    coll__message_spare(all, want);
    return coll__message_dismiss(session, m);
}

/* All of a long message's note, or all of a short message, has arrived.  Keep it if it has no receive yet. */
static coll_status coll__message_announced(coll__session *session, coll__message *m)
{
    coll__messages *all = session->messages;
    coll__message *want = coll__find_want(all, m);

    if (want) return coll__message_join(session, want, m);
    coll__message_append(&all->arrived, m);
    coll__bin_put(coll__bin_of(all, m, false), m);
    if (m->is_long || m->peer == session->rank) return COLL_OK;
    all->peers[m->peer].kept += coll__cost_of_message(m->length);
    return coll__credit_tell(session, m->peer);
}

/* Post a receive. */
static coll_status coll__message_want(coll__session *session, coll__message *want)
{
    coll__messages *all = session->messages;
    coll__message *m = coll__find_message(all, want);

    if (m) return coll__message_join(session, want, m);
    want->order = ++all->orders;
    coll__message_append(&all->wanted, want);
    coll__bin_put(coll__bin_of(all, want, true), want);
    return COLL_OK;
}

/* ---- >>received notes ---- */

static coll_status coll__note_wrong(coll__session *session, int peer, const unsigned char *head)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__set_failure(&failure, COLL_ERR_PROTOCOL, peer,
                      "rank %d got a message note from rank %d that makes no sense (%02x%02x %u)",
                      session->rank, peer, head[1], head[0], head[2]);
    return coll__session_fail(session, &failure);
}

/* Receive a body before the next note. */
static coll_status coll__body_receive(coll__session *session, coll__message *m, const unsigned char *head, void *buffer,
                                      size_t length)
{
    unsigned char copy[COLL_HEAD_LENGTH];

    memcpy(copy, head, sizeof copy);              /* `head` may be in the message that is written here        */
    session->messages->peers[m->peer].incoming = m;
    return coll__body_post(session, m, &m->body, copy, buffer, length, false);
}

/* A body has arrived in the buffer of its receive.  The head of a short body may show another call. */
static coll_status coll__want_fulfilled(coll__session *session, coll__message *want)
{
    const bool is_other = want->xfer && !want->is_long && coll__is_other_call(want->xfer, want->body.head, want->length);

    coll__message_done(want, is_other ? COLL_ERR_MISMATCH : COLL_OK);
    return coll__message_dismiss(session, want);
}

/* The receive that matches a short message, if the message fits; it takes over the message's data.  NULL: none. */
static coll__message *coll__note_want(coll__messages *all, const coll__message *m)
{
    coll__message *want = m->is_long ? NULL : coll__find_want(all, m);

    if (!want || (want->xfer ? want->xfer->length != m->length : want->type != m->type || m->count > want->count)) return NULL;
    coll__want_moves(all, want);
    want->peer = m->peer;
    want->tag = m->tag;
    want->count = m->count;
    want->length = m->length;
    return want;
}

/* A new message: receive it into the buffer of its receive, or keep it. */
static coll_status coll__note_message(coll__session *session, int peer, const unsigned char *head)
{
    coll__messages *all = session->messages;
    const uint64_t count = coll__get64(head + 24);
    const bool is_user = head[3] == COLL__SPACE_USER;
    coll__message m = { .peer = peer, .space = (coll__space)head[3], .comm = coll__get64(head + 4),
                        .tag = is_user ? (int)coll__get32(head + 20) : (int64_t)coll__get64(head + 16),
                        .type = is_user ? (coll_type)coll__get32(head + 16) : 0, .count = count,
                        .id = coll__get32(head + 12), .is_long = head[2] == COLL__NOTE_LONG };
    const size_t unit = is_user ? coll_type_size(m.type) : 1;

    if (m.space > COLL__SPACE_CREATE || !unit || (is_user && m.tag < 0) || count > SIZE_MAX / unit
        || (!m.is_long && count * unit > COLL__SHORT_MOST))
        return coll__note_wrong(session, peer, head);
    m.length = (size_t)count * unit;
    if (!m.is_long && (all->peers[peer].taken += coll__cost_of_message(m.length)) > COLL__CREDIT)
        return coll__note_wrong(session, peer, head);
    coll__message *to = coll__note_want(all, &m);
    if (!to && !(to = coll__message_take(all, m.is_long ? 0 : m.length))) return COLL_ERR_MEMORY;
    const bool is_wanted = to->list != NULL;
    if (!is_wanted) {
        m.kept = to->kept;
        m.room = to->room;
        *to = m;
    }
    if (!coll__is_followed(&m)) return is_wanted ? coll__want_fulfilled(session, to) : coll__message_announced(session, to);
    void *buffer = !is_wanted ? to->kept : to->xfer ? to->xfer->buffer : to->request->call.recv;
    return coll__body_receive(session, to, head, buffer, m.is_long ? 0 : m.length);
}

/* More credit, or a report that the receiver gives none at present. */
static coll_status coll__note_credit(coll__session *session, int peer, const unsigned char *head)
{
    coll__peer *p = &session->messages->peers[peer];
    const uint64_t count = coll__get64(head + 24);
    const uint32_t is_full = coll__get32(head + 20);
    coll_status status = COLL_OK;

    if (count > COLL__CREDIT - p->credit || is_full > 1 || (count == 0 && !is_full)) return coll__note_wrong(session, peer, head);
    p->credit += (size_t)count;
    p->is_full = is_full;
    while (p->held.first && status == COLL_OK && !coll__must_hold(session, p, p->held.first->length))
        status = coll__message_go(session, coll__queue_take(&p->held));
    return status;
}

static coll_status coll__note_arrived(coll__session *session, int peer, const unsigned char *head)
{
    coll__messages *all = session->messages;
    const uint32_t id = coll__get32(head + 12);
    coll_status status;
    coll__message *m;

    if (coll__get16(head) != COLL__NOTE_MAGIC || head[3] & COLL__NOTE_IS_BODY) return coll__note_wrong(session, peer, head);
    switch (head[2]) {
    case COLL__NOTE_SHORT: case COLL__NOTE_LONG:
        return coll__note_message(session, peer, head);
    case COLL__NOTE_GO:
        if (!(m = coll__take_number(all, &all->outgoing, peer, id))) return coll__note_wrong(session, peer, head);
        if ((status = coll__note_send(session, m, COLL__NOTE_BODY)) < 0) return status;
        return coll__body_post(session, m, &m->body, m->xfer ? m->xfer->head : m->go_ahead.head, coll__message_bytes(m),
                               m->length, true);
    case COLL__NOTE_BODY:
        if (!(m = coll__take_number(all, &all->moving, peer, id))) return coll__note_wrong(session, peer, head);
        return coll__body_receive(session, m, head, m->xfer ? m->xfer->buffer : m->request->call.recv, m->length);
    case COLL__NOTE_CREDIT:
        return coll__note_credit(session, peer, head);
    case COLL__NOTE_GONE:
        return coll__peer_left_note(session, peer, coll__get64(head + 4), (uint32_t)coll__get64(head + 24), false);
    default:
        return coll__note_wrong(session, peer, head);
    }
}

/* ---- >>progress ---- */

static coll_status coll__xfer_trouble(coll__session *session, const coll_xfer *x)
{
    if (x->status == COLL_ERR_MISMATCH) return coll__note_wrong(session, x->peer, x->head);
    return coll__session_broken(session, x->status);
}

/* Process the notes and bodies of a peer that have arrived. */
static coll_status coll__peer_advance(coll__session *session, int peer)
{
    coll__peer *p = &session->messages->peers[peer];

    for (;;) {
        coll__message *m = p->incoming;
        const coll_xfer *x = m ? &m->body : &p->listen;
        coll_status status = COLL_OK;
        if (x->status == COLL_PENDING) return COLL_OK;
        if (x->status < 0) return coll__xfer_trouble(session, x);
        p->incoming = NULL;
        status = !m ? coll__note_arrived(session, peer, x->head)
               : m->list == &session->messages->moving ? coll__want_fulfilled(session, m) : coll__message_announced(session, m);
        if (status == COLL_OK && !p->incoming) status = coll__listen(session, peer);
        if (status < 0) return coll__session_broken(session, status);
    }
}

/* Remove what was delivered to a peer.  A long message is delivered with its body; until NOTE_GO it is found by number. */
static coll_status coll__peer_sent(coll__session *session, coll__peer *p)
{
    for (coll__message *m; (m = p->sending.first) != NULL;) {
        const coll_xfer *const parts[] = { &m->note, &m->finger, &m->go_ahead, &m->body };      /* unused ones are COLL_OK */
        for (int i = 0; i < 4; i++) {
            if (parts[i]->status < 0) return coll__xfer_trouble(session, parts[i]);
            if (parts[i]->status == COLL_PENDING) return COLL_OK;
        }
        (void)coll__queue_take(&p->sending);
        m->is_queued = false;
        if (m->is_long && !m->is_moving) continue;
        coll__message_done(m, COLL_OK);
        coll__message_spare(session->messages, m);
    }
    return COLL_OK;
}

/* Has this peer left, or freed the communicator of this message?  If the peer only freed it, the message may already be with
 * the transport. */
static bool coll__peer_has_left(const coll__session *session, int peer, const coll__message *m)
{
    const coll__peer_left *gone = coll__peer_left_of(session, peer, m->comm);
    return coll__has_left(session, peer) || (gone && (gone->is_sure || !m->is_queued));
}

/* A peer that has left, if no remaining peer can complete this message; else -1. */
static int coll__none_left(const coll__session *session, const coll__message *m)
{
    const coll_comm *comm = m->request ? m->request->comm : NULL;
    int gone = -1;

    if (!m->request && !m->xfer) return -1;
    if (m->peer != COLL__ANY) return m->peer != session->rank && coll__peer_has_left(session, m->peer, m) ? m->peer : -1;
    for (int i = 0; comm && i < comm->size; i++) {
        const int world = coll__world_rank(comm, i);
        if (world == session->rank) continue;
        if (!coll__peer_has_left(session, world, m)) return -1;
        gone = world;
    }
    return gone;
}

/* Fail if a message waits for a rank that has left. */
static coll_status coll__messages_check_left(coll__session *session)
{
    coll__messages *all = session->messages;
    const coll__message_list *const lists[] = { &all->wanted, &all->outgoing, &all->moving };
    coll_failure failure = { COLL_OK, -1, "" };

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const coll__message *m = lists[i]->first; m; m = m->next) {
            const int gone = coll__none_left(session, m);
            if (gone < 0) continue;
            coll__set_failure(&failure, COLL_ERR_PEER, gone,
                              "rank %d has left the communicator or is gone, and rank %d still waits for a message %s it",
                              gone, session->rank, lists[i] == &all->outgoing ? "to" : "from");
            return coll__session_fail(session, &failure);
        }
    return COLL_OK;
}

/* Advance all messages without waiting. */
static coll_status coll__messages_advance(coll__session *session)
{
    coll__messages *all = session->messages;
    coll_status status = COLL_OK;

    if (!all || session->failure.status != COLL_OK) return session->failure.status;
    for (coll__peer *p = all->open; p && status == COLL_OK; p = p->open_next) {
        status = coll__peer_advance(session, (int)(p - all->peers));
        if (status == COLL_OK) status = coll__peer_sent(session, p);
    }
    if (status == COLL_OK && ((COLL__IS_WHOLE && session->gone) || coll__has_left(session, -1)))
        status = coll__messages_check_left(session);
    return status;
}

/* ---- >>starting ---- */

/* Send or receive a transfer of a collective, by the key of its order.  A send that the transport completed at once is finished
 * here, because the caller may sleep next. */
static coll_status coll__messages_post(const coll__order *order, coll_xfer *x, bool is_send)
{
    coll__session *session = order->comm->session;
    const coll_status status = coll__peer_open(session, x->peer);

    if (status < 0) return status;
    coll__message *m = coll__message_new(session, x->peer, x->length, is_send);
    if (!m) return COLL_ERR_MEMORY;
    m->xfer = x;
    m->space = order->space;
    m->comm = order->comm->id;
    m->tag = (int64_t)order->number;
    m->count = x->length;
    if (!is_send) return coll__message_want(session, m);
    const coll_status sent = coll__message_send(session, m);
    return sent == COLL_OK ? coll__peer_sent(session, &session->messages->peers[x->peer]) : sent;
}

/* One side of a user's request. */
static coll_status coll__user_post(coll_request *r, int rank, uint64_t count, bool is_send)
{
    coll_comm *comm = r->comm;
    coll__session *session = comm->session;
    const int peer = rank == COLL_ANY_SOURCE ? COLL__ANY : coll__world_rank(comm, rank);
    coll_status status = COLL_OK;

    if (peer != COLL__ANY) status = coll__peer_open(session, peer);
    for (int i = 0; peer == COLL__ANY && !comm->hears_all && i < comm->size && status == COLL_OK; i++)
        status = coll__peer_open(session, coll__world_rank(comm, i));
    if (status < 0) return status;
    if (peer == COLL__ANY) comm->hears_all = true;
    coll__message *m = coll__message_new(session, peer, (size_t)count * coll_type_size(r->call.type), is_send);
    if (!m) return COLL_ERR_MEMORY;
    m->request = r;
    m->space = COLL__SPACE_USER;
    m->comm = comm->id;
    m->tag = r->call.tag;
    m->type = r->call.type;
    m->count = count;
    if (!is_send) {
        r->receiving = m;
        return coll__message_want(session, m);
    }
    if (peer == session->rank) {                  /* handled like one that has arrived                        */
        if (m->length) memcpy(m->kept, r->call.send, m->length);
        m->request = NULL;
        return coll__message_announced(session, m);
    }
    if (!m->is_copied) r->sending = m;
    return coll__message_send(session, m);
}

/* Start a send, recv or sendrecv.  The request may be finished on return.  The receive is last: it may match at once and finish
 * the request. */
static coll_status coll__messages_start(coll_request *r)
{
    const coll_call *call = &r->call;
    coll_status status = COLL_OK;

    if (call->kind != COLL_RECV) status = coll__user_post(r, call->peer, call->count, true);
    if (status == COLL_OK && call->kind == COLL_RECV) status = coll__user_post(r, call->peer, call->count, false);
    if (status == COLL_OK && call->kind == COLL_SENDRECV) status = coll__user_post(r, call->source, call->recv_count, false);
    if (status < 0) return coll__session_broken(r->comm->session, status);
    if (!r->sending && !r->receiving && r->status == COLL_PENDING) coll__request_finish(r, COLL_OK);
    return COLL_OK;
}

/* ---- >>ending ---- */

/* End every message with `status`.  The transport has released all transfers. */
static void coll__messages_end_all(coll__session *session, coll_status status)
{
    coll__messages *all = session->messages;

    if (!all) return;
    const coll__message_list *const lists[] = { &all->outgoing, &all->wanted, &all->arrived, &all->moving };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (coll__message *m = lists[i]->first; m; m = m->next) coll__message_done(m, status);
    for (int peer = 0; peer < session->size; peer++)
        if (all->peers[peer].incoming) coll__message_done(all->peers[peer].incoming, status);
}

static void coll__messages_free(coll__session *session)
{
    coll__messages *all = session->messages;

    if (!all) return;
    for (int peer = 0; peer < session->size; peer++) {
        coll__message *m = all->peers[peer].incoming;     /* may also be in a list; free it once              */
        if (m) coll__message_spare(all, m);
    }
    coll__message *const lists[] = { all->outgoing.first, all->wanted.first, all->arrived.first, all->moving.first,
                                     all->replies.first, all->spare[0], all->spare[1] };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (coll__message *m = lists[i], *next; m; m = next) {
            next = m->next;
            coll__give(m->kept);
            coll__give(m);
        }
    coll__give(all);
    session->messages = NULL;
}

static coll__undelivered coll__messages_undelivered(const coll_comm *comm)
{
    const coll__session *session = comm->session;
    coll__undelivered most = COLL__UNDELIVERED_NONE;

    for (const coll__message *m = session->messages ? session->messages->outgoing.first : NULL; m; m = m->next) {
        if (m->comm != comm->id || coll__peer_has_left(session, m->peer, m)) continue;
        if (!m->is_long) return COLL__UNDELIVERED_SHORT;
        most = COLL__UNDELIVERED_LONG;
    }
    return most;
}

/* Does a message of this communicator still use memory of the caller? */
static bool coll__messages_are_moving(const coll_comm *comm)
{
    const coll__messages *all = comm->session->messages;
    const coll__message *const lists[] = { all ? all->outgoing.first : NULL, all ? all->moving.first : NULL };

    for (int i = 0; i < 2; i++)
        for (const coll__message *m = lists[i]; m; m = m->next)
            if (m->comm == comm->id && (m->request || m->xfer)) return true;
    return false;
}

/* A message of a finished collective was never received: its sender made another call. */
static coll_status coll__messages_unmatched(const coll_comm *comm, coll_failure *failure)
{
    const coll__session *session = comm->session;
    char call[COLL__CALL_ROOM];

    for (const coll__message *m = session->messages ? session->messages->arrived.first : NULL; m; m = m->next) {
        const bool is_collective = m->comm == comm->id && m->space != COLL__SPACE_USER && m->tag == 0;
        if (!is_collective || coll__get32(m->body.head + 8) > comm->sequence) continue;
        coll__head_describe(m->body.head, call, sizeof call);
        return coll__set_failure(failure, COLL_ERR_MISMATCH, m->peer, "rank %d called %s, but rank %d called something else",
                                 m->peer, call, session->rank);
    }
    return COLL_OK;
}

/* If the transport does not know which ranks freed a communicator, its members listen for NOTE_GONE: in derived communicators
 * from the start, in that of coll_init after a long wait. */
static coll_status coll__messages_hear(const coll_comm *comm)
{
    coll__session *session = comm->session;
    coll_status status = COLL_OK;

    for (int i = 0; i < comm->size && COLL__IS_WHOLE && !session->internals->has_freed && status == COLL_OK; i++)
        status = coll__peer_open(session, coll__world_rank(comm, i));
    return status;
}

/* A communicator is freed and the session goes on.  Its receives end, its arrived messages are dropped, and peers with which it
 * exchanged messages get NOTE_GONE. */
static void coll__messages_close(coll_comm *comm, coll_status status)
{
    coll__session *session = comm->session;
    coll_status said = coll__messages_hear(comm);
    coll__messages *all = session->messages;

    if (!all) return;
    for (coll__message *m = all->wanted.first, *next; m; m = next) {
        next = m->next;
        if (m->comm != comm->id) continue;
        coll__message_done(m, status);
        coll__message_spare(all, m);
    }
    for (coll__message *m = all->arrived.first, *next; m; m = next) {
        next = m->next;
        if (m->comm != comm->id) continue;
        (void)coll__message_dismiss(session, m);
    }
    for (int i = 0; i < comm->size && said == COLL_OK; i++) {
        const coll__message about = { .peer = coll__world_rank(comm, i), .comm = comm->id, .count = comm->sequence };
        if (about.peer != session->rank && all->peers[about.peer].is_open) said = coll__reply(session, COLL__NOTE_GONE, &about);
    }
}

/* Is any message in transit or awaited? */
static bool coll__messages_are_there(const coll__session *session)
{
    const coll__messages *all = session->messages;

    return all && (all->outgoing.first || all->wanted.first || all->moving.first || all->replies.first);
}

/* Mark the ranks of the session that a message request waits for. */
static void coll__messages_late(const coll_request *r, unsigned char *is_late)
{
    if (r->sending) is_late[r->sending->peer] = 1;
    if (!r->receiving) return;
    if (r->receiving->peer != COLL__ANY) is_late[r->receiving->peer] = 1;
    for (int i = 0; r->receiving->peer == COLL__ANY && i < r->comm->size; i++) is_late[coll__world_rank(r->comm, i)] = 1;
}

#endif /* COLL_P2P_H */
