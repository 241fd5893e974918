/* coll_messages.h - send, recv and sendrecv: matching by (source, tag), over any transport.
 *
 * Between two ranks runs one stream of notes on COLL_CHANNEL_MESSAGES, each a head without a body; a body follows as the
 * next message where the note says so.  A receiver always listens for the next note, so nothing on the stream can be in the
 * way of anything else.
 *
 *     short    sender: NOTE_SHORT, body                              the sender copies it and is done at once
 *     long     sender: NOTE_LONG    receiver: NOTE_GO    sender: NOTE_BODY, body      straight from buffer to buffer
 *
 * Short messages that are not asked for yet are kept by the receiver.  A sender may have COLL__SHORT_CREDIT of them kept at
 * each peer; the receiver hands credit back with NOTE_CREDIT.  Beyond that, messages go the long way. */
#ifndef COLL_MESSAGES_H
#define COLL_MESSAGES_H

enum { COLL__SHORT_MOST = 8 << 10, COLL__SHORT_CREDIT = 64 };

typedef enum coll__note { COLL__NOTE_SHORT = 1, COLL__NOTE_LONG, COLL__NOTE_GO, COLL__NOTE_BODY, COLL__NOTE_CREDIT } coll__note;

enum { COLL__NOTE_MAGIC = 0xc012 };

/* A message on its way out, or in. */
typedef struct coll__message {
    struct coll__message *next;
    coll_request *request;                        /* NULL: nobody waits for it (any more)                     */
    int       peer, tag;
    coll_type type;
    uint64_t  count;
    size_t    length;                             /* bytes                                                    */
    uint32_t  id;                                 /* the sender's number of a long message                    */
    bool      is_long, is_moving, is_complete;    /* moving: its body is queued at the transport              */
    coll_xfer note, go_ahead, body;               /* go_ahead: the note before the body of a long one         */
    unsigned char *kept;                          /* memory of a short one, or NULL                           */
} coll__message;

typedef struct coll__peer {
    bool      is_open, has_body;                  /* body: the one behind the last note is being received     */
    int       credit;                             /* short messages that we may still send                    */
    int       owed;                               /* that are done with here, and not handed back yet         */
    int       taken;                              /* short messages for which we have not handed credit back  */
    coll_xfer listen;
    coll__message *incoming;                      /* whose body it is                                         */
} coll__peer;

typedef struct coll__messages {
    coll__peer    *peers;
    coll__message *outgoing;                      /* to be delivered                                          */
    coll__message *wanted;                        /* receives without a message, in order                     */
    coll__message *arrived;                       /* messages without a receive, in order                     */
    coll__message *moving;                        /* long ones being received                                 */
    coll__message *replies;                       /* GO and CREDIT notes being sent                           */
    uint32_t       next_id;
    int            open_count;
} coll__messages;

/* ---- >>lists ---- */

static void coll__message_append(coll__message **list, coll__message *m)
{
    while (*list) list = &(*list)->next;
    m->next = NULL;
    *list = m;
}

static bool coll__message_unlink(coll__message **list, coll__message *m)
{
    while (*list && *list != m) list = &(*list)->next;
    if (!*list) return false;
    *list = m->next;
    return true;
}

static void coll__message_free(coll__message *m)
{
    if (m) free(m->kept);
    free(m);
}

static void coll__message_free_all(coll__message **list)
{
    while (*list) {
        coll__message *m = *list;
        *list = m->next;
        coll__message_free(m);
    }
}

/* ---- >>notes ----
 *
 *      0 magic    2 body follows    4 communicator    8 id    12 note    13 zero    16 type    20 tag    24 count */

static void coll__note_write(unsigned char *head, coll__note note, const coll__message *m)
{
    memset(head, 0, COLL_HEAD_LENGTH);
    coll__put16(head, COLL__NOTE_MAGIC);
    coll__put32(head + 8, m->id);
    head[12] = (unsigned char)note;
    coll__put32(head + 16, (uint32_t)m->type);
    coll__put32(head + 20, (uint32_t)m->tag);
    coll__put64(head + 24, m->count);
}

static coll_status coll__note_send(coll_comm *comm, coll__message *m, coll__note note)
{
    coll_xfer *x = note == COLL__NOTE_BODY ? &m->go_ahead : &m->note;

    coll__note_write(x->head, note, m);
    x->peer = m->peer;
    x->channel = COLL_CHANNEL_MESSAGES;
    x->length = 0;
    x->status = COLL_PENDING;
    return comm->transport->send(comm->context, x);
}

/* Queue the body behind a note; its head is the note's, marked as the body. */
static coll_status coll__body_post(coll_comm *comm, coll__message *m, const unsigned char *note, void *buffer, bool is_send)
{
    coll_xfer *x = &m->body;

    memcpy(x->head, note, COLL_HEAD_LENGTH);
    coll__put16(x->head + 2, 1);
    x->peer = m->peer;
    x->channel = COLL_CHANNEL_MESSAGES;
    x->buffer = buffer;
    x->length = m->length;
    x->any_head = false;
    x->status = COLL_PENDING;
    m->is_moving = true;
    return is_send ? comm->transport->send(comm->context, x) : comm->transport->recv(comm->context, x);
}

static coll_status coll__reply(coll_comm *comm, coll__note note, const coll__message *about)
{
    coll__message *m = (coll__message *)coll__allocate(sizeof *m);

    if (!m) return COLL_ERR_MEMORY;
    m->peer = about->peer;
    m->id = about->id;
    m->count = about->count;
    m->type = about->type;
    m->tag = about->tag;
    coll__message_append(&comm->messages->replies, m);
    return coll__note_send(comm, m, note);
}

static coll_status coll__listen(coll_comm *comm, int peer)
{
    coll_xfer *x = &comm->messages->peers[peer].listen;

    x->peer = peer;
    x->channel = COLL_CHANNEL_MESSAGES;
    x->buffer = NULL;
    x->length = 0;
    x->any_head = true;
    x->status = COLL_PENDING;
    return comm->transport->recv(comm->context, x);
}

/* Make ready to exchange messages with a peer. */
static coll_status coll__peer_open(coll_comm *comm, int peer)
{
    if (!comm->messages) {
        comm->messages = (coll__messages *)coll__allocate(sizeof *comm->messages);
        if (!comm->messages) return COLL_ERR_MEMORY;
        comm->messages->peers = (coll__peer *)coll__allocate((size_t)comm->size * sizeof(coll__peer));
        if (!comm->messages->peers) return COLL_ERR_MEMORY;
    }
    coll__peer *p = &comm->messages->peers[peer];
    if (p->is_open || peer == comm->rank) return COLL_OK;
    p->is_open = true;
    p->credit = COLL__SHORT_CREDIT;
    comm->messages->open_count++;
    return coll__listen(comm, peer);
}

/* ---- >>matching ---- */

/* The part of a request that this message was is done. */
static void coll__message_done(coll__message *m)
{
    coll_request *r = m->request;

    if (!r) return;
    if (r->sending == m) r->sending = NULL;
    if (r->receiving == m) {
        r->receiving = NULL;
        r->got_source = m->peer;
        r->got_tag = m->tag;
        r->got_count = (size_t)m->count;
    }
    m->request = NULL;
    if (r->sending || r->receiving) return;
    r->status = COLL_OK;
    coll__request_drop(r);
}

/* This message cannot land in that receive.  Both go back to where the end of all messages finds them. */
static coll_status coll__message_misfit(coll_comm *comm, coll__message *want, coll__message *m)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__message_append(&comm->messages->wanted, want);
    coll__message_append(&comm->messages->arrived, m);
    coll__blame(&failure, COLL_ERR_MISMATCH, m->peer,
                "rank %d receives at most %llu x %s from rank %d with tag %d, but rank %d sends %llu x %s", comm->rank,
                (unsigned long long)want->count, coll_type_name(want->type), m->peer, m->tag, m->peer,
                (unsigned long long)m->count, coll_type_name(m->type));
    return coll__comm_fail(comm, &failure);
}

static coll__message *coll__find(coll__message *list, int peer, int tag)
{
    while (list && (list->peer != peer || list->tag != tag)) list = list->next;
    return list;
}

/* One more short message of this peer is out of our hands: hand credit back, half of it at a time. */
static coll_status coll__credit_back(coll_comm *comm, const coll__message *m)
{
    coll__peer *p = &comm->messages->peers[m->peer];

    if (++p->owed < COLL__SHORT_CREDIT / 2) return COLL_OK;
    p->owed = 0;
    p->taken -= COLL__SHORT_CREDIT / 2;
    return coll__reply(comm, COLL__NOTE_CREDIT, m);
}

/* A receive has met its message: `want` takes over what is known of it. */
static coll_status coll__message_join(coll_comm *comm, coll__message *want, coll__message *m)
{
    coll_status status = COLL_OK;

    if (want->type != m->type || m->count > want->count) return coll__message_misfit(comm, want, m);
    want->count = m->count;
    want->length = m->length;
    want->id = m->id;
    if (m->is_long) {
        coll__message_append(&comm->messages->moving, want);
        status = coll__reply(comm, COLL__NOTE_GO, want);
        coll__message_free(m);
        return status;
    }
    if (!m->is_complete) {                        /* its body is arriving in m->kept: finish there            */
        m->request = want->request;
        m->request->receiving = m;
        coll__message_free(want);
        return COLL_OK;
    }
    coll_request *r = want->request;
    if (m->length) memcpy(r->call.recv, m->kept, m->length);
    if (m->peer != comm->rank) status = coll__credit_back(comm, m);
    coll__message_done(want);
    coll__message_free(want);
    coll__message_free(m);
    return status;
}

/* ---- >>notes that arrive ---- */

static coll_status coll__note_wrong(coll_comm *comm, int peer, const unsigned char *head)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__blame(&failure, COLL_ERR_PROTOCOL, peer, "rank %d got a message note from rank %d that makes no sense (%02x%02x %u)",
                comm->rank, peer, head[1], head[0], head[12]);
    return coll__comm_fail(comm, &failure);
}

/* The body behind the note has to be received before the next note. */
static coll_status coll__body_receive(coll_comm *comm, coll__message *m, const unsigned char *note, void *buffer)
{
    coll__peer *p = &comm->messages->peers[m->peer];
    unsigned char head[COLL_HEAD_LENGTH];

    memcpy(head, note, sizeof head);
    p->has_body = true;
    p->incoming = m;
    return coll__body_post(comm, m, head, buffer, false);
}

/* A new message: into the buffer that waits for it, or kept until one does. */
static coll_status coll__note_message(coll_comm *comm, int peer, const unsigned char *head)
{
    coll__messages *all = comm->messages;
    const coll_type type = (coll_type)coll__get32(head + 16);
    const int tag = (int)coll__get32(head + 20);
    const uint64_t count = coll__get64(head + 24);
    const bool is_long = head[12] == COLL__NOTE_LONG;
    const size_t unit = coll_type_size(type);

    if (!unit || tag < 0 || count > SIZE_MAX / unit || (!is_long && count * unit > COLL__SHORT_MOST))
        return coll__note_wrong(comm, peer, head);
    if (!is_long && ++all->peers[peer].taken > COLL__SHORT_CREDIT) return coll__note_wrong(comm, peer, head);
    coll__message *m = (coll__message *)coll__allocate(sizeof *m);
    if (!m) return COLL_ERR_MEMORY;
    *m = (coll__message){ .peer = peer, .tag = tag, .type = type, .count = count, .length = (size_t)count * unit,
                          .id = coll__get32(head + 8), .is_long = is_long };
    coll__message *want = coll__find(all->wanted, peer, tag);
    if (!is_long && m->length) {
        if (!(m->kept = (unsigned char *)malloc(m->length))) return coll__message_free(m), COLL_ERR_MEMORY;
    } else if (!is_long) {
        m->is_complete = true;
    }
    if (!want) {
        coll__message_append(&all->arrived, m);
    } else {
        coll__message_unlink(&all->wanted, want);
        const bool stays = !is_long && !m->is_complete;
        const coll_status status = coll__message_join(comm, want, m);
        if (status < 0 || !stays) return status;
    }
    return m->kept ? coll__body_receive(comm, m, head, m->kept) : COLL_OK;
}

static coll_status coll__note_arrived(coll_comm *comm, int peer, const unsigned char *head)
{
    coll__messages *all = comm->messages;
    const uint32_t id = coll__get32(head + 8);
    coll__message *m;

    if (coll__get16(head) != COLL__NOTE_MAGIC || coll__get16(head + 2) != 0) return coll__note_wrong(comm, peer, head);
    switch (head[12]) {
    case COLL__NOTE_SHORT: case COLL__NOTE_LONG:
        return coll__note_message(comm, peer, head);
    case COLL__NOTE_GO:
        for (m = all->outgoing; m; m = m->next) if (m->is_long && m->peer == peer && m->id == id && !m->is_moving) break;
        if (!m) return coll__note_wrong(comm, peer, head);
        if (coll__note_send(comm, m, COLL__NOTE_BODY) < 0) return COLL_ERR_SYSTEM;
        return coll__body_post(comm, m, m->go_ahead.head, (void *)(uintptr_t)m->request->call.send, true);
    case COLL__NOTE_BODY:
        for (m = all->moving; m; m = m->next) if (m->peer == peer && m->id == id && !m->is_moving) break;
        if (!m) return coll__note_wrong(comm, peer, head);
        return coll__body_receive(comm, m, head, m->request->call.recv);
    case COLL__NOTE_CREDIT:
        if (all->peers[peer].credit > COLL__SHORT_CREDIT / 2) return coll__note_wrong(comm, peer, head);
        all->peers[peer].credit += COLL__SHORT_CREDIT / 2;
        return COLL_OK;
    default:
        return coll__note_wrong(comm, peer, head);
    }
}

/* The body that was being received is here. */
static coll_status coll__body_arrived(coll_comm *comm, coll__message *m)
{
    if (coll__message_unlink(&comm->messages->moving, m)) {
        coll__message_done(m);
        coll__message_free(m);
        return COLL_OK;
    }
    m->is_complete = true;
    if (!m->request) return COLL_OK;              /* kept until somebody asks: it is in the list of arrived   */
    memcpy(m->request->call.recv, m->kept, m->length);
    const coll_status status = coll__credit_back(comm, m);
    coll__message_done(m);
    coll__message_free(m);
    return status;
}

/* ---- >>progress ---- */

static coll_status coll__xfer_trouble(coll_comm *comm, const coll_xfer *x)
{
    if (x->status == COLL_ERR_MISMATCH) return coll__note_wrong(comm, x->peer, x->head);
    return coll__comm_fail(comm, NULL);
}

/* Notes and bodies of one peer, as far as they have come. */
static coll_status coll__peer_advance(coll_comm *comm, int peer)
{
    coll__peer *p = &comm->messages->peers[peer];

    for (;;) {
        const coll_xfer *x = p->has_body ? &p->incoming->body : &p->listen;
        coll_status status = COLL_OK;
        if (x->status == COLL_PENDING) return COLL_OK;
        if (x->status < 0) return coll__xfer_trouble(comm, x);
        if (p->has_body) {
            coll__message *m = p->incoming;
            p->has_body = false;
            p->incoming = NULL;
            status = coll__body_arrived(comm, m);
        } else {
            status = coll__note_arrived(comm, peer, x->head);
        }
        if (status == COLL_OK && !p->has_body) status = coll__listen(comm, peer);
        if (status < 0) return comm->failure.status != COLL_OK ? comm->failure.status : coll__comm_fail(comm, NULL);
    }
}

/* Drop what has been delivered from a list of outgoing things. */
static coll_status coll__outgoing_advance(coll_comm *comm, coll__message **list)
{
    while (*list) {
        coll__message *m = *list;
        const coll_xfer *last = m->is_moving ? &m->body : &m->note;
        if (last->status < 0) return coll__xfer_trouble(comm, last);
        if (last->status == COLL_PENDING || m->note.status == COLL_PENDING || (m->is_long && !m->is_moving)
            || (m->is_long && m->go_ahead.status == COLL_PENDING)) {
            list = &m->next;
            continue;
        }
        *list = m->next;
        coll__message_done(m);
        coll__message_free(m);
    }
    return COLL_OK;
}

/* A message that waits for a rank which has left will never be done. */
static coll_status coll__messages_check_left(coll_comm *comm)
{
    coll__messages *all = comm->messages;
    coll__message *const lists[] = { all->wanted, all->outgoing, all->moving };
    coll_failure failure = { COLL_OK, -1, "" };

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const coll__message *m = lists[i]; m; m = m->next) {
            if (m->peer == comm->rank || !m->request || !comm->transport->has_left(comm->context, m->peer)) continue;
            coll__blame(&failure, COLL_ERR_PEER, m->peer,
                        "rank %d has left the communicator or is gone, and rank %d still waits for a message %s it",
                        m->peer, comm->rank, lists[i] == all->outgoing ? "to" : "from");
            return coll__comm_fail(comm, &failure);
        }
    return COLL_OK;
}

/* Move all messages on without waiting. */
static coll_status coll__messages_advance(coll_comm *comm)
{
    coll__messages *all = comm->messages;
    coll_status status = COLL_OK;

    if (!all || comm->failure.status != COLL_OK) return comm->failure.status;
    for (int peer = 0, open = all->open_count; open > 0 && status == COLL_OK; peer++)
        if (all->peers[peer].is_open) open--, status = coll__peer_advance(comm, peer);
    if (status == COLL_OK) status = coll__outgoing_advance(comm, &all->outgoing);
    if (status == COLL_OK) status = coll__outgoing_advance(comm, &all->replies);
    if (status == COLL_OK && comm->transport->has_left && comm->transport->has_left(comm->context, -1))
        status = coll__messages_check_left(comm);
    return status;
}

/* ---- >>starting ---- */

static coll__message *coll__message_new(coll_request *r, int peer, uint64_t count)
{
    coll__message *m = (coll__message *)coll__allocate(sizeof *m);

    if (!m) return NULL;
    m->request = r;
    m->peer = peer;
    m->tag = r->call.tag;
    m->type = r->call.type;
    m->count = count;
    m->length = (size_t)count * coll_type_size(r->call.type);
    return m;
}

/* A message to ourselves is kept like one that has arrived. */
static coll_status coll__send_to_self(coll_comm *comm, coll_request *r, coll__message *m)
{
    m->request = NULL;
    m->is_complete = true;
    if (m->length) {
        if (!(m->kept = (unsigned char *)malloc(m->length))) return coll__message_free(m), COLL_ERR_MEMORY;
        memcpy(m->kept, r->call.send, m->length);
    }
    coll__message *want = coll__find(comm->messages->wanted, m->peer, m->tag);
    if (!want) return coll__message_append(&comm->messages->arrived, m), COLL_OK;
    coll__message_unlink(&comm->messages->wanted, want);
    return coll__message_join(comm, want, m);
}

static coll_status coll__message_send(coll_request *r, int peer)
{
    coll_comm *comm = r->comm;
    coll_status status = coll__peer_open(comm, peer);

    if (status < 0) return status;
    coll__message *m = coll__message_new(r, peer, r->call.count);
    if (!m) return COLL_ERR_MEMORY;
    if (peer == comm->rank) return coll__send_to_self(comm, r, m);
    coll__peer *p = &comm->messages->peers[peer];
    m->is_long = m->length > COLL__SHORT_MOST || p->credit == 0;
    m->id = ++comm->messages->next_id;
    if (!m->is_long && m->length) {
        if (!(m->kept = (unsigned char *)malloc(m->length))) return coll__message_free(m), COLL_ERR_MEMORY;
        memcpy(m->kept, r->call.send, m->length);
    }
    coll__message_append(&comm->messages->outgoing, m);
    if (m->is_long) {
        r->sending = m;
        return coll__note_send(comm, m, COLL__NOTE_LONG);
    }
    m->request = NULL;
    p->credit--;
    status = coll__note_send(comm, m, COLL__NOTE_SHORT);
    return status == COLL_OK && m->length ? coll__body_post(comm, m, m->note.head, m->kept, true) : status;
}

static coll_status coll__message_recv(coll_request *r, int peer, size_t room)
{
    coll_comm *comm = r->comm;
    const coll_status status = coll__peer_open(comm, peer);

    if (status < 0) return status;
    coll__message *want = coll__message_new(r, peer, room);
    if (!want) return COLL_ERR_MEMORY;
    r->receiving = want;
    coll__message *m = coll__find(comm->messages->arrived, peer, r->call.tag);
    if (!m) return coll__message_append(&comm->messages->wanted, want), COLL_OK;
    coll__message_unlink(&comm->messages->arrived, m);
    return coll__message_join(comm, want, m);
}

/* Start a send, recv or sendrecv.  The request may be finished when this returns. */
static coll_status coll__messages_start(coll_request *r)
{
    const coll_call *call = &r->call;
    coll_status status = COLL_OK;

    if (call->kind == COLL_RECV) status = coll__message_recv(r, call->root, call->count);
    if (call->kind == COLL_SENDRECV) status = coll__message_recv(r, call->source, call->recv_count);
    if (status == COLL_OK && call->kind != COLL_RECV) status = coll__message_send(r, call->root);
    if (status < 0) return r->comm->failure.status != COLL_OK ? r->comm->failure.status : coll__comm_fail(r->comm, NULL);
    if (!r->sending && !r->receiving) r->status = COLL_OK;
    return COLL_OK;
}

/* ---- >>ending ---- */

static void coll__request_end(coll_request *r, coll_status status)
{
    if (!r) return;
    r->sending = r->receiving = NULL;
    if (r->status != COLL_PENDING) return;
    r->status = status;
    coll__request_drop(r);
}

/* A sendrecv has two messages: both must forget the request before it ends. */
static void coll__message_give_up(coll__message *m, coll_status status)
{
    coll_request *r = m->request;

    m->request = NULL;
    if (!r) return;
    if (r->sending) r->sending->request = NULL;
    if (r->receiving) r->receiving->request = NULL;
    coll__request_end(r, status);
}

/* End every message with `status`.  The transport has let go of all transfers before. */
static void coll__messages_end_all(coll_comm *comm, coll_status status)
{
    coll__messages *all = comm->messages;

    if (!all) return;
    coll__message *const lists[] = { all->outgoing, all->wanted, all->arrived, all->moving };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (coll__message *m = lists[i]; m; m = m->next) coll__message_give_up(m, status);
    for (int peer = 0; all->peers && peer < comm->size; peer++)
        if (all->peers[peer].incoming) coll__message_give_up(all->peers[peer].incoming, status);
}

static void coll__messages_free(coll_comm *comm)
{
    coll__messages *all = comm->messages;

    if (!all) return;
    for (int peer = 0; all->peers && peer < comm->size; peer++) {
        coll__message *m = all->peers[peer].incoming;     /* may also be in a list: free it once */
        if (m && !coll__message_unlink(&all->moving, m)) coll__message_unlink(&all->arrived, m);
        coll__message_free(m);
    }
    coll__message_free_all(&all->outgoing);
    coll__message_free_all(&all->wanted);
    coll__message_free_all(&all->arrived);
    coll__message_free_all(&all->moving);
    coll__message_free_all(&all->replies);
    free(all->peers);
    free(all);
    comm->messages = NULL;
}

/* Has everything been sent that somebody is there to receive? */
static bool coll__messages_delivered(const coll_comm *comm)
{
    if (!comm->messages) return true;
    for (const coll__message *m = comm->messages->outgoing; m; m = m->next)
        if (!comm->transport->has_left || !comm->transport->has_left(comm->context, m->peer)) return false;
    return true;
}

/* Mark the ranks that a message request is waiting for. */
static void coll__messages_late(const coll_request *r, unsigned char *is_late)
{
    if (r->sending) is_late[r->sending->peer] = 1;
    if (r->receiving) is_late[r->receiving->peer] = 1;
}

#endif /* COLL_MESSAGES_H */
