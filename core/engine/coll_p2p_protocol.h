/* coll_p2p_protocol.h - messages by key (coll_p2p.h): the notes, and sending: short ones eagerly, long ones by
 * rendezvous (coll__must_ask). */
#ifndef COLL_P2P_PROTOCOL_H
#define COLL_P2P_PROTOCOL_H

/* For each peer a rank keeps at most COLL__CREDIT of unexpected messages (1 MiB; 2.5 MiB with their bookkeeping).  Each message
 * beyond that takes less than a kilobyte, and its sender waits.  COLL__CREDIT is more than four times the cost of the longest
 * short message (coll_p2p.h). */
_Static_assert(COLL__CREDIT > 4 * (COLL__SHORT_MOST + COLL__COST), "credit for five of the longest short messages");

typedef enum coll__note {
    COLL__NOTE_SHORT = 1, COLL__NOTE_LONG, COLL__NOTE_GO, COLL__NOTE_BODY, COLL__NOTE_CREDIT,
    COLL__NOTE_GONE                               /* the sender has freed this communicator                   */
} coll__note;

enum { COLL__NOTE_MAGIC = 0xc012 };

/* ---- >>reuse of messages ---- */

/* A message with memory for a short body of `room` bytes; 0: none. */
static coll__message *coll__message_take(coll__messages *all, size_t room)
{
    coll__message **from = &all->spare[room > 0], *m = *from;

    if (m) *from = m->next;
    else m = (coll__message *)coll__allocate(coll__like(all), sizeof *m);
    if (!m) return NULL;
    unsigned char *kept = m->kept;
    size_t had = m->room;
    if (had < room) {
        coll__give(kept);
        had = coll__round_up(room, 512);
        kept = (unsigned char *)coll__take(coll__like(all), had);
    }
    memset(m, 0, sizeof *m);
    m->kept = kept;
    m->room = kept ? had : 0;
    if (room == 0 || kept) return m;
    coll__give(m);
    return NULL;
}

/* Free a message for reuse.  It keeps its memory up to COLL__COPY_MOST. */
static void coll__message_spare(coll__messages *all, coll__message *m)
{
    coll__bin_leave(m);
    coll__message_unlink(m);
    if (m->room > COLL__COPY_MOST) {
        coll__give(m->kept);
        m->kept = NULL;
        m->room = 0;
    }
    m->next = all->spare[m->room > 0];
    all->spare[m->room > 0] = m;
}

/* ---- >>notes ----
 *
 *      0 u16 magic    2 note    3 space, and COLL__NOTE_IS_BODY    4 u64 communicator    12 id    16 u32 type    20 u32 tag
 *     24 u64 count
 *
 * For a collective, type and tag are replaced by the u64 number of its order. */

enum { COLL__NOTE_IS_BODY = 0x80 };               /* marks the head of a body                                 */

static void coll__note_write(unsigned char *head, coll__note note, const coll__message *m)
{
    memset(head, 0, COLL_HEAD_LENGTH);
    coll__put16(head, COLL__NOTE_MAGIC);
    head[2] = (unsigned char)note;
    head[3] = (unsigned char)m->space;
    coll__put64(head + 4, m->comm);
    coll__put32(head + 12, m->id);
    if (m->space == COLL__SPACE_USER) coll__put64(head + 16, (uint32_t)m->type | (uint64_t)m->tag << 32);
    else coll__put64(head + 16, (uint64_t)m->tag);
    coll__put64(head + 24, m->count);
}

static void coll__xfer_set(coll_xfer *x, int peer, void *buffer, size_t length, bool any_head)
{
    x->peer = peer;
    x->channel = COLL_CHANNEL_MESSAGES;
    x->buffer = buffer;
    x->length = length;
    x->any_head = any_head;
    x->status = COLL_PENDING;
}

static coll_status coll__note_send(coll__session *session, coll__message *m, coll__note note)
{
    coll_xfer *x = note == COLL__NOTE_BODY ? &m->go_ahead : &m->note;

    coll__note_write(x->head, note, m);
    coll__xfer_set(x, m->peer, NULL, 0, note == COLL__NOTE_GO || note == COLL__NOTE_CREDIT || note == COLL__NOTE_GONE);
    if (!m->is_queued) coll__queue_put(&session->messages->peers[m->peer].sending, m);
    m->is_queued = true;
    return session->transport->send(session->context, x);
}

/* Does a body follow the note that announces this message? */
static bool coll__is_followed(const coll__message *m)
{
    return m->space != COLL__SPACE_USER || (!m->is_long && m->length > 0);
}

/* Send or receive a body.  Its head is the fingerprint of a collective, or else its note with COLL__NOTE_IS_BODY. */
static coll_status coll__body_post(coll__session *session, coll__message *m, coll_xfer *x, const unsigned char *head,
                                   void *buffer, size_t length, bool is_send)
{
    const bool is_user = m->space == COLL__SPACE_USER;

    memcpy(x->head, head, COLL_HEAD_LENGTH);
    if (is_user) x->head[3] |= COLL__NOTE_IS_BODY;
    coll__xfer_set(x, m->peer, buffer, length, !is_user);
    m->is_moving = x == &m->body;
    return is_send ? session->transport->send(session->context, x) : session->transport->recv(session->context, x);
}

static coll_status coll__reply(coll__session *session, coll__note note, const coll__message *about)
{
    coll__message *m = coll__message_take(session->messages, 0);

    if (!m) return COLL_ERR_MEMORY;
    m->peer = about->peer;
    m->space = about->space;
    m->comm = about->comm;
    m->id = about->id;
    m->tag = about->tag;
    m->count = about->count;
    coll__message_append(&session->messages->replies, m);
    return coll__note_send(session, m, note);
}

static coll_status coll__listen(coll__session *session, int peer)
{
    coll_xfer *x = &session->messages->peers[peer].listen;

    coll__xfer_set(x, peer, NULL, 0, true);
    return session->transport->recv(session->context, x);
}

/* Prepare to exchange messages with a peer. */
static coll_status coll__peer_open(coll__session *session, int peer)
{
    coll__messages *all = session->messages;

    if (!all) {
        const size_t length = sizeof *all + (size_t)session->size * sizeof *all->peers;
        all = session->messages = (coll__messages *)coll__allocate(coll__like(session), length);
        if (!all) return COLL_ERR_MEMORY;
        all->peers = (coll__peer *)(all + 1);
    }
    coll__peer *p = &all->peers[peer];
    if (p->is_open || peer == session->rank) return COLL_OK;
    p->is_open = true;
    p->credit = COLL__CREDIT;
    p->open_next = all->open;
    all->open = p;
    return coll__listen(session, peer);
}

/* ---- >>sending ---- */

static inline size_t coll__cost_of_message(size_t length) { return length + COLL__COST; }

/* Is a message sent as a long one? */
static inline bool coll__must_ask(const coll__session *session, const coll__peer *p, size_t length)
{
    return session->is_synchronous || length > COLL__SHORT_MOST || coll__cost_of_message(length) > p->credit;
}

/* Does a message have to wait for credit? */
static inline bool coll__must_hold(const coll__session *session, const coll__peer *p, size_t length)
{
    return !session->is_synchronous && length <= COLL__SHORT_MOST && coll__cost_of_message(length) > p->credit && !p->is_full;
}

/* The bytes of an outgoing message. */
static inline void *coll__message_bytes(const coll__message *m)
{
    return m->xfer ? m->xfer->buffer : m->request ? coll__behind(m->request->call.send, 0) : m->kept;
}

/* Send a message now. */
static coll_status coll__message_go(coll__session *session, coll__message *m)
{
    coll__peer *p = &session->messages->peers[m->peer];
    void *bytes = m->is_copied ? m->kept : coll__message_bytes(m);
    unsigned char head[COLL_HEAD_LENGTH];

    m->is_long = coll__must_ask(session, p, m->length);
    COLL__ASSERT(m->list == &session->messages->outgoing, "a message to %d leaves that is not among the outgoing", m->peer);
    if (!m->is_long) p->credit -= coll__cost_of_message(m->length);
    else coll__bin_put(coll__bin_by_number(session->messages, m->peer, m->id), m);
    coll__note_write(m->note.head, m->is_long ? COLL__NOTE_LONG : COLL__NOTE_SHORT, m);
    memcpy(head, m->xfer ? m->xfer->head : m->note.head, sizeof head);
    if (m->is_copied) {
        if (m->xfer) m->xfer->status = COLL_OK;
        m->xfer = NULL;
        m->request = NULL;
    }
    const coll_status status = coll__note_send(session, m, (coll__note)m->note.head[2]);
    if (status < 0 || !coll__is_followed(m)) return status;
    return coll__body_post(session, m, m->is_long ? &m->finger : &m->body, head, bytes, m->is_long ? 0 : m->length, true);
}

/* Send a message; all but its number is set.  A copied one is complete for its caller. */
static coll_status coll__message_send(coll__session *session, coll__message *m)
{
    coll__peer *p = &session->messages->peers[m->peer];

    m->id = ++session->messages->next_id;
    if (m->is_copied && m->length) memcpy(m->kept, coll__message_bytes(m), m->length);
    coll__message_append(&session->messages->outgoing, m);
    if (!p->held.first && !coll__must_hold(session, p, m->length)) return coll__message_go(session, m);
    coll__queue_put(&p->held, m);
    return COLL_OK;
}

/* A new message of `length` bytes to or from a peer.  It is copied if it is sent at once and short, or to this rank itself. */
static coll__message *coll__message_new(coll__session *session, int peer, size_t length, bool is_send)
{
    const bool is_self = peer == session->rank;
    const coll__peer *p = is_send ? &session->messages->peers[peer] : NULL;
    const bool goes = is_send && !is_self && !p->held.first && !coll__must_ask(session, p, length);
    const bool is_copied = (is_send && is_self) || (goes && length <= COLL__COPY_MOST);
    coll__message *m = coll__message_take(session->messages, is_copied ? length : 0);

    if (!m) return NULL;
    m->peer = peer;
    m->length = length;
    m->is_copied = is_copied;
    return m;
}

#endif /* COLL_P2P_PROTOCOL_H */
