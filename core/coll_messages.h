/* coll_messages.h - messages that find their receivers by key, over any transport: send, recv and sendrecv, and the
 * collectives of derived communicators and prepared calls, whose order other ranks may not share.
 *
 * Between two ranks runs one stream of notes on COLL_CHANNEL_MESSAGES, each a head without a body; a body follows as the
 * next message where the note says so.  A receiver always listens for the next note, so nothing on the stream can be in the
 * way of anything else.
 *
 *     short    sender: NOTE_SHORT, body                              the sender copies it and is done at once
 *     long     sender: NOTE_LONG    receiver: NOTE_GO    sender: NOTE_BODY, body      straight from buffer to buffer
 *
 * Short messages that are not asked for yet are kept by the receiver.  A sender may have COLL__SHORT_CREDIT of them kept at
 * each peer; the receiver hands credit back with NOTE_CREDIT.  Beyond that, messages go the long way.
 *
 * A key is a space, a communicator and a tag; within a key, messages of one sender match in the order sent.  In the space of
 * users the note says all there is to know.  A message of a collective also brings its fingerprint, as the head of the body
 * of a short one, or of an empty body behind NOTE_LONG, so that ranks that disagree can be told what each other called. */
#ifndef COLL_MESSAGES_H
#define COLL_MESSAGES_H

enum { COLL__SHORT_MOST = 8 << 10, COLL__SHORT_CREDIT = 64 };

typedef enum coll__note {
    COLL__NOTE_SHORT = 1, COLL__NOTE_LONG, COLL__NOTE_GO, COLL__NOTE_BODY, COLL__NOTE_CREDIT,
    COLL__NOTE_GONE                               /* the sender has freed this communicator                   */
} coll__note;

enum { COLL__NOTE_MAGIC = 0xc012, COLL__ANY = -2 };

/* A message on its way out, or in. */
typedef struct coll__message {
    struct coll__message *next;
    coll_request *request;                        /* a user's; NULL: nobody waits for it (any more)           */
    coll_xfer    *xfer;                           /* a collective's; NULL likewise                            */
    int       peer;                               /* in the trunk; wanted from COLL__ANY                      */
    coll__space space;
    uint32_t  comm;
    int       tag;
    coll_type type;
    uint64_t  count;                              /* elements; of a collective's: bytes                       */
    size_t    length;                             /* bytes                                                    */
    uint32_t  id;                                 /* the sender's number of a long message                    */
    bool      is_long, is_moving;                 /* moving: its body is queued at the transport              */
    coll_xfer note, finger, go_ahead, body;       /* finger: the fingerprint of a long one; go_ahead: the note before its body */
    unsigned char *kept;                          /* memory of a short one, or NULL                           */
    size_t    room;                               /* of it                                                    */
} coll__message;

typedef struct coll__message_list { coll__message *first, **end; } coll__message_list;

typedef struct coll__peer {
    bool      is_open;
    int       credit;                             /* short messages that we may still send                    */
    int       owed;                               /* that are done with here, and not handed back yet         */
    int       taken;                              /* short messages for which we have not handed credit back  */
    coll_xfer listen;
    coll__message *incoming;                      /* whose body is being received; NULL: we listen            */
} coll__peer;

/* A communicator that a peer has freed. */
typedef struct coll__gone { struct coll__gone *next; int peer; uint32_t comm; } coll__gone;

typedef struct coll__messages {
    coll__peer    *peers;
    coll__message_list outgoing;                  /* to be delivered                                          */
    coll__message_list wanted;                    /* receives without a message, in order                     */
    coll__message_list arrived;                   /* messages without a receive, in order                     */
    coll__message_list moving;                    /* long ones being received                                 */
    coll__message_list replies;                   /* other notes being sent                                   */
    coll__message *spare;                         /* to be used again                                         */
    coll__gone    *gone;
    uint32_t       next_id;
    int            open_count;
} coll__messages;

/* ---- >>lists ---- */

static void coll__message_append(coll__message_list *list, coll__message *m)
{
    m->next = NULL;
    *list->end = m;
    list->end = &m->next;
}

static bool coll__message_unlink(coll__message_list *list, coll__message *m)
{
    coll__message **at = &list->first;

    while (*at && *at != m) at = &(*at)->next;
    if (!*at) return false;
    *at = m->next;
    if (!*at) list->end = at;
    return true;
}

/* A message with memory for a short body of `room` bytes. */
static coll__message *coll__message_take(coll__messages *all, size_t room)
{
    coll__message *m = all->spare;

    if (m) all->spare = m->next;
    else m = (coll__message *)coll__allocate(sizeof *m);
    if (!m) return NULL;
    unsigned char *kept = m->kept;
    size_t had = m->room;
    if (had < room) {
        free(kept);
        had = coll__round_up(room, 512);
        kept = (unsigned char *)malloc(had);
    }
    memset(m, 0, sizeof *m);
    m->kept = kept;
    m->room = kept ? had : 0;
    if (room == 0 || kept) return m;
    free(m);
    return NULL;
}

static void coll__message_spare(coll__messages *all, coll__message *m)
{
    if (!m) return;
    m->next = all->spare;
    all->spare = m;
}

static void coll__message_free_all(coll__message *m)
{
    while (m) {
        coll__message *next = m->next;
        free(m->kept);
        free(m);
        m = next;
    }
}

/* ---- >>notes ----
 *
 *      0 magic    2 body follows    4 communicator    8 id    12 note    13 space    14 zero    16 type    20 tag    24 count */

static void coll__note_write(unsigned char *head, coll__note note, const coll__message *m)
{
    memset(head, 0, COLL_HEAD_LENGTH);
    coll__put16(head, COLL__NOTE_MAGIC);
    coll__put32(head + 4, m->comm);
    coll__put32(head + 8, m->id);
    head[12] = (unsigned char)note;
    head[13] = (unsigned char)m->space;
    coll__put32(head + 16, (uint32_t)m->type);
    coll__put32(head + 20, (uint32_t)m->tag);
    coll__put64(head + 24, m->count);
}

static coll_status coll__note_send(coll__trunk *trunk, coll__message *m, coll__note note)
{
    coll_xfer *x = note == COLL__NOTE_BODY ? &m->go_ahead : &m->note;

    coll__note_write(x->head, note, m);
    x->peer = m->peer;
    x->channel = COLL_CHANNEL_MESSAGES;
    x->length = 0;
    x->any_head = note == COLL__NOTE_GO || note == COLL__NOTE_CREDIT || note == COLL__NOTE_GONE;      /* answers */
    x->status = COLL_PENDING;
    return trunk->transport->send(trunk->context, x);
}

/* Does a body come right behind the note that announces this message? */
static bool coll__is_followed(const coll__message *m)
{
    return m->space != COLL__SPACE_USER || (!m->is_long && m->length > 0);
}

/* Queue a body to be sent or received.  Its head is the fingerprint of a collective, otherwise its note, marked as the body. */
static coll_status coll__body_post(coll__trunk *trunk, coll__message *m, coll_xfer *x, const unsigned char *head, void *buffer,
                                   size_t length, bool is_send)
{
    const bool is_user = m->space == COLL__SPACE_USER;

    memcpy(x->head, head, COLL_HEAD_LENGTH);
    if (is_user) coll__put16(x->head + 2, 1);
    x->peer = m->peer;
    x->channel = COLL_CHANNEL_MESSAGES;
    x->buffer = buffer;
    x->length = length;
    x->any_head = !is_user;
    x->status = COLL_PENDING;
    m->is_moving = x == &m->body;
    return is_send ? trunk->transport->send(trunk->context, x) : trunk->transport->recv(trunk->context, x);
}

static coll_status coll__reply(coll__trunk *trunk, coll__note note, const coll__message *about)
{
    coll__message *m = coll__message_take(trunk->messages, 0);

    if (!m) return COLL_ERR_MEMORY;
    m->peer = about->peer;
    m->space = about->space;
    m->comm = about->comm;
    m->id = about->id;
    coll__message_append(&trunk->messages->replies, m);
    return coll__note_send(trunk, m, note);
}

static coll_status coll__listen(coll__trunk *trunk, int peer)
{
    coll_xfer *x = &trunk->messages->peers[peer].listen;

    x->peer = peer;
    x->channel = COLL_CHANNEL_MESSAGES;
    x->buffer = NULL;
    x->length = 0;
    x->any_head = true;
    x->status = COLL_PENDING;
    return trunk->transport->recv(trunk->context, x);
}

/* Make ready to exchange messages with a peer, or, COLL__ANY, with all members of a communicator. */
static coll_status coll__peer_open(coll__trunk *trunk, int peer)
{
    coll__messages *all = trunk->messages;

    if (!all) {
        all = trunk->messages = (coll__messages *)coll__allocate(sizeof *all);
        if (!all) return COLL_ERR_MEMORY;
        coll__message_list *const lists[] = { &all->outgoing, &all->wanted, &all->arrived, &all->moving, &all->replies };
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) lists[i]->end = &lists[i]->first;
    }
    if (!all->peers) all->peers = (coll__peer *)coll__allocate((size_t)trunk->size * sizeof(coll__peer));
    if (!all->peers) return COLL_ERR_MEMORY;
    coll__peer *p = &all->peers[peer];
    if (p->is_open || peer == trunk->rank) return COLL_OK;
    p->is_open = true;
    p->credit = COLL__SHORT_CREDIT;
    all->open_count++;
    return coll__listen(trunk, peer);
}

/* ---- >>matching ---- */

/* May this message go into that receive? */
static bool coll__is_match(const coll__message *want, const coll__message *m)
{
    return want->space == m->space && want->comm == m->comm && (want->peer == COLL__ANY || want->peer == m->peer)
        && (want->tag == m->tag || (want->space == COLL__SPACE_USER && want->tag == COLL_ANY_TAG));
}

static coll__message *coll__find_want(const coll__messages *all, const coll__message *m)
{
    coll__message *want = all->wanted.first;
    while (want && !coll__is_match(want, m)) want = want->next;
    return want;
}

static coll__message *coll__find_arrived(const coll__messages *all, const coll__message *want)
{
    coll__message *m = all->arrived.first;
    while (m && !coll__is_match(want, m)) m = m->next;
    return m;
}

/* The part of a request, or the transfer, that this message was is done. */
static void coll__message_done(coll__message *m, coll_status status)
{
    coll_request *r = m->request;

    if (m->xfer) m->xfer->status = status;
    m->xfer = NULL;
    m->request = NULL;
    if (!r) return;
    if (r->sending == m) r->sending = NULL;
    if (r->receiving == m) {
        r->receiving = NULL;
        r->got_source = coll__rank_here(r->comm, m->peer);
        r->got_tag = m->tag;
        r->got_count = (size_t)m->count;
    }
    if (!r->sending && !r->receiving) coll__request_finish(r, status);
}

/* This message cannot land in that receive.  Both go back to where the end of all messages finds them. */
static coll_status coll__message_misfit(coll__trunk *trunk, coll__message *want, coll__message *m)
{
    coll_failure failure = { COLL_OK, -1, "" };
    char wanted[40], sent[40];

    coll__message_append(&trunk->messages->wanted, want);
    coll__message_append(&trunk->messages->arrived, m);
    coll__blame(&failure, COLL_ERR_MISMATCH, m->peer,
                "rank %d receives at most %llu x %s from rank %d with tag %d, but rank %d sends %llu x %s", trunk->rank,
                (unsigned long long)want->count, coll__type_text(want->type, wanted, sizeof wanted), m->peer, m->tag, m->peer,
                (unsigned long long)m->count, coll__type_text(m->type, sent, sizeof sent));
    return coll__trunk_fail(trunk, &failure);
}

/* A message that has come is done with.  If it was a short one, hand credit back, half of it at a time.  The note goes last, for
 * a simulated rank may end in it. */
static coll_status coll__message_dismiss(coll__trunk *trunk, coll__message *m)
{
    coll__peer *p = &trunk->messages->peers[m->peer];

    if (m->peer == trunk->rank || m->is_long || ++p->owed < COLL__SHORT_CREDIT / 2)
        return coll__message_spare(trunk->messages, m), COLL_OK;
    const coll__message about = *m;
    coll__message_spare(trunk->messages, m);
    p->owed = 0;
    p->taken -= COLL__SHORT_CREDIT / 2;
    return coll__reply(trunk, COLL__NOTE_CREDIT, &about);
}

/* A receive has met its message: `want` takes over what is known of it. */
static coll_status coll__message_join(coll__trunk *trunk, coll__message *want, coll__message *m)
{
    coll__messages *all = trunk->messages;
    coll_xfer *x = want->xfer;
    coll_status outcome = COLL_OK;

    if (x && (memcmp(x->head, m->body.head, COLL_HEAD_LENGTH) || x->length != m->length)) {
        memcpy(x->head, m->body.head, COLL_HEAD_LENGTH);       /* the engine says what is wrong               */
        outcome = COLL_ERR_MISMATCH;
    } else if (!x && (want->type != m->type || m->count > want->count)) {
        return coll__message_misfit(trunk, want, m);
    }
    want->peer = m->peer;
    want->tag = m->tag;
    want->count = m->count;
    want->length = m->length;
    want->id = m->id;
    if (m->is_long && outcome == COLL_OK) {
        coll__message_append(&all->moving, want);
        coll__message_spare(all, m);
        return coll__reply(trunk, COLL__NOTE_GO, want);
    }
    if (m->length && outcome == COLL_OK) memcpy(x ? x->buffer : want->request->call.recv, m->kept, m->length);
    coll__message_done(want, outcome);
    coll__message_spare(all, want);
    return coll__message_dismiss(trunk, m);
}

/* A message is known in full, and if it is short, it is here. */
static coll_status coll__message_announced(coll__trunk *trunk, coll__message *m)
{
    coll__message *want = coll__find_want(trunk->messages, m);

    if (!want) return coll__message_append(&trunk->messages->arrived, m), COLL_OK;
    coll__message_unlink(&trunk->messages->wanted, want);
    return coll__message_join(trunk, want, m);
}

/* A receive is wanted. */
static coll_status coll__message_want(coll__trunk *trunk, coll__message *want)
{
    coll__message *m = coll__find_arrived(trunk->messages, want);

    if (!m) return coll__message_append(&trunk->messages->wanted, want), COLL_OK;
    coll__message_unlink(&trunk->messages->arrived, m);
    return coll__message_join(trunk, want, m);
}

/* ---- >>notes that arrive ---- */

static coll_status coll__note_wrong(coll__trunk *trunk, int peer, const unsigned char *head)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__blame(&failure, COLL_ERR_PROTOCOL, peer, "rank %d got a message note from rank %d that makes no sense (%02x%02x %u)",
                trunk->rank, peer, head[1], head[0], head[12]);
    return coll__trunk_fail(trunk, &failure);
}

/* A body has to be received before the next note. */
static coll_status coll__body_receive(coll__trunk *trunk, coll__message *m, const unsigned char *head, void *buffer,
                                      size_t length)
{
    unsigned char copy[COLL_HEAD_LENGTH];

    memcpy(copy, head, sizeof copy);              /* `head` may be the one we are about to write              */
    trunk->messages->peers[m->peer].incoming = m;
    return coll__body_post(trunk, m, &m->body, copy, buffer, length, false);
}

/* A new message: into the buffer that waits for it, or kept until one does. */
static coll_status coll__note_message(coll__trunk *trunk, int peer, const unsigned char *head)
{
    const coll__space space = (coll__space)head[13];
    const coll_type type = (coll_type)coll__get32(head + 16);
    const int tag = (int)coll__get32(head + 20);
    const uint64_t count = coll__get64(head + 24);
    const bool is_long = head[12] == COLL__NOTE_LONG;
    const size_t unit = space == COLL__SPACE_USER ? coll_type_size(type) : 1;

    if (space > COLL__SPACE_CREATE || !unit || (space == COLL__SPACE_USER && tag < 0) || count > SIZE_MAX / unit
        || (!is_long && count * unit > COLL__SHORT_MOST))
        return coll__note_wrong(trunk, peer, head);
    if (!is_long && ++trunk->messages->peers[peer].taken > COLL__SHORT_CREDIT) return coll__note_wrong(trunk, peer, head);
    const size_t length = (size_t)count * unit;
    coll__message *m = coll__message_take(trunk->messages, is_long ? 0 : length);
    if (!m) return COLL_ERR_MEMORY;
    m->peer = peer;
    m->space = space;
    m->comm = coll__get32(head + 4);
    m->tag = tag;
    m->type = type;
    m->count = count;
    m->length = length;
    m->id = coll__get32(head + 8);
    m->is_long = is_long;
    if (coll__is_followed(m)) return coll__body_receive(trunk, m, head, m->kept, is_long ? 0 : length);
    return coll__message_announced(trunk, m);
}

/* Forget who has freed communicators that this rank has freed too.  One that is not there may still come, while some are being
 * made; the others are over, for numbers are given in rising order. */
static void coll__gone_sweep(coll__trunk *trunk)
{
    coll__gone **at = trunk->messages ? &trunk->messages->gone : NULL;

    while (at && *at && trunk->deriving == 0) {
        coll__gone *g = *at;
        const coll_comm *comm = trunk->comms;
        while (comm && comm->id != g->comm) comm = comm->next;
        if (comm || g->comm >= trunk->next_id) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        free(g);
    }
}

static coll_status coll__note_gone(coll__trunk *trunk, int peer, uint32_t comm)
{
    coll__gone *gone = (coll__gone *)calloc(1, sizeof *gone);

    if (!gone) return COLL_ERR_MEMORY;
    gone->peer = peer;
    gone->comm = comm;
    gone->next = trunk->messages->gone;
    trunk->messages->gone = gone;
    coll__gone_sweep(trunk);
    return COLL_OK;
}

static coll_status coll__note_arrived(coll__trunk *trunk, int peer, const unsigned char *head)
{
    coll__messages *all = trunk->messages;
    const uint32_t id = coll__get32(head + 8);
    coll__message *m;

    if (coll__get16(head) != COLL__NOTE_MAGIC || coll__get16(head + 2) != 0) return coll__note_wrong(trunk, peer, head);
    switch (head[12]) {
    case COLL__NOTE_SHORT: case COLL__NOTE_LONG:
        return coll__note_message(trunk, peer, head);
    case COLL__NOTE_GO:
        for (m = all->outgoing.first; m; m = m->next)
            if (m->is_long && m->peer == peer && m->id == id && !m->is_moving) break;
        if (!m) return coll__note_wrong(trunk, peer, head);
        if (coll__note_send(trunk, m, COLL__NOTE_BODY) < 0) return COLL_ERR_SYSTEM;
        return coll__body_post(trunk, m, &m->body, m->xfer ? m->xfer->head : m->go_ahead.head,
                               m->xfer ? m->xfer->buffer : coll__behind(m->request->call.send, 0), m->length, true);
    case COLL__NOTE_BODY:
        for (m = all->moving.first; m; m = m->next) if (m->peer == peer && m->id == id && !m->is_moving) break;
        if (!m) return coll__note_wrong(trunk, peer, head);
        return coll__body_receive(trunk, m, head, m->xfer ? m->xfer->buffer : m->request->call.recv, m->length);
    case COLL__NOTE_CREDIT:
        if (all->peers[peer].credit > COLL__SHORT_CREDIT / 2) return coll__note_wrong(trunk, peer, head);
        all->peers[peer].credit += COLL__SHORT_CREDIT / 2;
        return COLL_OK;
    case COLL__NOTE_GONE:
        return coll__note_gone(trunk, peer, coll__get32(head + 4));
    default:
        return coll__note_wrong(trunk, peer, head);
    }
}

/* The body that was being received is here. */
static coll_status coll__body_arrived(coll__trunk *trunk, coll__message *m)
{
    if (!coll__message_unlink(&trunk->messages->moving, m)) return coll__message_announced(trunk, m);
    coll__message_done(m, COLL_OK);
    coll__message_spare(trunk->messages, m);
    return COLL_OK;
}

/* ---- >>progress ---- */

static coll_status coll__xfer_trouble(coll__trunk *trunk, const coll_xfer *x)
{
    if (x->status == COLL_ERR_MISMATCH) return coll__note_wrong(trunk, x->peer, x->head);
    return coll__trunk_fail(trunk, NULL);
}

/* Notes and bodies of one peer, as far as they have come. */
static coll_status coll__peer_advance(coll__trunk *trunk, int peer)
{
    coll__peer *p = &trunk->messages->peers[peer];

    for (;;) {
        coll__message *m = p->incoming;
        const coll_xfer *x = m ? &m->body : &p->listen;
        coll_status status = COLL_OK;
        if (x->status == COLL_PENDING) return COLL_OK;
        if (x->status < 0) return coll__xfer_trouble(trunk, x);
        p->incoming = NULL;
        status = m ? coll__body_arrived(trunk, m) : coll__note_arrived(trunk, peer, x->head);
        if (status == COLL_OK && !p->incoming) status = coll__listen(trunk, peer);
        if (status < 0) return coll__trunk_fail(trunk, NULL);
    }
}

/* Drop what has been delivered from a list of outgoing things.  A long message is delivered with its body. */
static coll_status coll__outgoing_advance(coll__trunk *trunk, coll__message_list *list)
{
    for (coll__message *m = list->first, *next; m; m = next) {
        next = m->next;
        const coll_xfer *const parts[] = { &m->note, &m->finger, &m->go_ahead, &m->body };      /* unused ones are COLL_OK */
        bool is_pending = m->is_long && !m->is_moving;
        for (int i = 0; i < 4; i++) {
            if (parts[i]->status < 0) return coll__xfer_trouble(trunk, parts[i]);
            if (parts[i]->status == COLL_PENDING) is_pending = true;
        }
        if (is_pending) continue;
        coll__message_unlink(list, m);
        coll__message_done(m, COLL_OK);
        coll__message_spare(trunk->messages, m);
    }
    return COLL_OK;
}

/* Has this peer left, or freed the communicator of this message? */
static bool coll__peer_is_gone(const coll__trunk *trunk, int peer, uint32_t comm)
{
    if (trunk->transport->has_left && trunk->transport->has_left(trunk->context, peer)) return true;
    for (const coll__gone *g = trunk->messages->gone; g; g = g->next) if (g->peer == peer && g->comm == comm) return true;
    return false;
}

/* Whoever could still end this message's waiting is gone; gives one of them, or -1. */
static int coll__nobody_left(const coll__trunk *trunk, const coll__message *m)
{
    const coll_comm *comm = m->request ? m->request->comm : NULL;
    int gone = -1;

    if (!m->request && !m->xfer) return -1;
    if (m->peer != COLL__ANY) return m->peer != trunk->rank && coll__peer_is_gone(trunk, m->peer, m->comm) ? m->peer : -1;
    for (int i = 0; comm && i < comm->size; i++) {
        const int world = coll__world_rank(comm, i);
        if (world == trunk->rank) continue;
        if (!coll__peer_is_gone(trunk, world, m->comm)) return -1;
        gone = world;
    }
    return gone;
}

/* A message that waits for a rank which has left will never be done. */
static coll_status coll__messages_check_left(coll__trunk *trunk)
{
    coll__messages *all = trunk->messages;
    const coll__message_list *const lists[] = { &all->wanted, &all->outgoing, &all->moving };
    coll_failure failure = { COLL_OK, -1, "" };

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const coll__message *m = lists[i]->first; m; m = m->next) {
            const int gone = coll__nobody_left(trunk, m);
            if (gone < 0) continue;
            coll__blame(&failure, COLL_ERR_PEER, gone,
                        "rank %d has left the communicator or is gone, and rank %d still waits for a message %s it",
                        gone, trunk->rank, lists[i] == &all->outgoing ? "to" : "from");
            return coll__trunk_fail(trunk, &failure);
        }
    return COLL_OK;
}

/* Move all messages on without waiting. */
static coll_status coll__messages_advance(coll__trunk *trunk)
{
    coll__messages *all = trunk->messages;
    coll_status status = COLL_OK;

    if (!all || trunk->failure.status != COLL_OK) return trunk->failure.status;
    for (int peer = 0, open = all->open_count; open > 0 && status == COLL_OK; peer++)
        if (all->peers[peer].is_open) open--, status = coll__peer_advance(trunk, peer);
    if (status == COLL_OK) status = coll__outgoing_advance(trunk, &all->outgoing);
    if (status == COLL_OK) status = coll__outgoing_advance(trunk, &all->replies);
    if (status == COLL_OK && (all->gone || (trunk->transport->has_left && trunk->transport->has_left(trunk->context, -1))))
        status = coll__messages_check_left(trunk);
    return status;
}

/* ---- >>starting ---- */

/* Send a message that is filled in but for its number; `from` is its bytes.  Whoever waits for a short one need not. */
static coll_status coll__message_send(coll__trunk *trunk, coll__message *m, const void *from)
{
    coll__peer *p = &trunk->messages->peers[m->peer];
    coll_xfer *x = m->xfer;
    unsigned char head[COLL_HEAD_LENGTH];

    m->id = ++trunk->messages->next_id;
    if (!m->is_long) {
        p->credit--;
        if (m->length) memcpy(m->kept, from, m->length);
    }
    coll__message_append(&trunk->messages->outgoing, m);
    coll_status status = coll__note_send(trunk, m, m->is_long ? COLL__NOTE_LONG : COLL__NOTE_SHORT);
    if (status < 0 || !coll__is_followed(m)) return status;
    memcpy(head, x ? x->head : m->note.head, sizeof head);
    status = coll__body_post(trunk, m, m->is_long ? &m->finger : &m->body, head, m->kept, m->is_long ? 0 : m->length, true);
    if (x && !m->is_long) {
        m->xfer = NULL;
        x->status = COLL_OK;
    }
    return status;
}

/* A message of `length` bytes to or from a peer, short if it can be. */
static coll__message *coll__message_new(coll__trunk *trunk, int peer, size_t length, bool is_send)
{
    const bool is_self = peer == trunk->rank;
    const bool is_long = is_send && !is_self && (length > COLL__SHORT_MOST || trunk->is_synchronous
                                                 || trunk->messages->peers[peer].credit == 0);
    coll__message *m = coll__message_take(trunk->messages, is_send && !is_long ? length : 0);

    if (!m) return NULL;
    m->peer = peer;
    m->length = length;
    m->is_long = is_long;
    return m;
}

/* Send or receive a transfer of a collective by the key of its track. */
static coll_status coll__key_post(const coll__track *track, coll_xfer *x, bool is_send)
{
    coll__trunk *trunk = track->comm->trunk;
    const coll_status status = coll__peer_open(trunk, x->peer);

    if (status < 0) return status;
    coll__message *m = coll__message_new(trunk, x->peer, x->length, is_send);
    if (!m) return COLL_ERR_MEMORY;
    m->xfer = x;
    m->space = track->space;
    m->comm = track->comm->id;
    m->tag = (int)track->number;
    m->count = x->length;
    return is_send ? coll__message_send(trunk, m, x->buffer) : coll__message_want(trunk, m);
}

/* One side of a user's request. */
static coll_status coll__user_post(coll_request *r, int rank, uint64_t count, bool is_send)
{
    const coll_comm *comm = r->comm;
    coll__trunk *trunk = comm->trunk;
    const int peer = rank == COLL_ANY_SOURCE ? COLL__ANY : coll__world_rank(comm, rank);
    coll_status status = COLL_OK;

    if (peer != COLL__ANY) status = coll__peer_open(trunk, peer);
    for (int i = 0; peer == COLL__ANY && i < comm->size && status == COLL_OK; i++)
        status = coll__peer_open(trunk, coll__world_rank(comm, i));
    if (status < 0) return status;
    coll__message *m = coll__message_new(trunk, peer, (size_t)count * coll_type_size(r->call.type), is_send);
    if (!m) return COLL_ERR_MEMORY;
    m->request = r;
    m->space = COLL__SPACE_USER;
    m->comm = comm->id;
    m->tag = r->call.tag;
    m->type = r->call.type;
    m->count = count;
    if (!is_send) {
        r->receiving = m;
        return coll__message_want(trunk, m);
    }
    if (m->is_long) r->sending = m;
    else m->request = NULL;                       /* copied                                                   */
    if (peer != trunk->rank) return coll__message_send(trunk, m, r->call.send);
    if (m->length) memcpy(m->kept, r->call.send, m->length);
    return coll__message_announced(trunk, m);     /* to ourselves: kept like one that has arrived             */
}

/* Start a send, recv or sendrecv.  The request may be finished when this returns.  The receive comes last: it may find its
 * message at once, and then ends the request if no send holds it. */
static coll_status coll__messages_start(coll_request *r)
{
    const coll_call *call = &r->call;
    coll_status status = COLL_OK;

    if (call->kind != COLL_RECV) status = coll__user_post(r, call->root, call->count, true);
    if (status == COLL_OK && call->kind == COLL_RECV) status = coll__user_post(r, call->root, call->count, false);
    if (status == COLL_OK && call->kind == COLL_SENDRECV) status = coll__user_post(r, call->source, call->recv_count, false);
    if (status < 0) return coll__comm_fail(r->comm, NULL);
    if (!r->sending && !r->receiving && r->status == COLL_PENDING) coll__request_finish(r, COLL_OK);
    return COLL_OK;
}

/* ---- >>ending ---- */

/* A sendrecv has two messages: both must forget the request before it ends. */
static void coll__message_give_up(coll__message *m, coll_status status)
{
    coll_request *r = m->request;

    m->request = NULL;
    if (m->xfer) m->xfer->status = status;
    m->xfer = NULL;
    if (!r) return;
    if (r->sending) r->sending->request = NULL;
    if (r->receiving) r->receiving->request = NULL;
    r->sending = r->receiving = NULL;
    if (r->status == COLL_PENDING) coll__request_finish(r, status);
}

/* End every message with `status`.  The transport has let go of all transfers before. */
static void coll__messages_end_all(coll__trunk *trunk, coll_status status)
{
    coll__messages *all = trunk->messages;

    if (!all) return;
    const coll__message_list *const lists[] = { &all->outgoing, &all->wanted, &all->arrived, &all->moving };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (coll__message *m = lists[i]->first; m; m = m->next) coll__message_give_up(m, status);
    for (int peer = 0; all->peers && peer < trunk->size; peer++)
        if (all->peers[peer].incoming) coll__message_give_up(all->peers[peer].incoming, status);
}

static void coll__messages_free(coll__trunk *trunk)
{
    coll__messages *all = trunk->messages;

    if (!all) return;
    for (int peer = 0; all->peers && peer < trunk->size; peer++) {
        coll__message *m = all->peers[peer].incoming;     /* may also be in a list: free it once              */
        if (!m) continue;
        coll__message_unlink(&all->moving, m);
        coll__message_spare(all, m);
    }
    coll__message_free_all(all->outgoing.first);
    coll__message_free_all(all->wanted.first);
    coll__message_free_all(all->arrived.first);
    coll__message_free_all(all->moving.first);
    coll__message_free_all(all->replies.first);
    coll__message_free_all(all->spare);
    for (coll__gone *g = all->gone, *next; g; g = next) {
        next = g->next;
        free(g);
    }
    free(all->peers);
    free(all);
    trunk->messages = NULL;
}

/* What of this communicator has not been sent yet that somebody is there to receive.  Short: the sender was told that it is
 * done, and counts on it. */
typedef enum coll__undelivered { COLL__UNDELIVERED_NONE, COLL__UNDELIVERED_LONG, COLL__UNDELIVERED_SHORT } coll__undelivered;

static coll__undelivered coll__messages_undelivered(const coll_comm *comm)
{
    const coll__trunk *trunk = comm->trunk;
    coll__undelivered most = COLL__UNDELIVERED_NONE;

    for (const coll__message *m = trunk->messages ? trunk->messages->outgoing.first : NULL; m; m = m->next) {
        if (m->comm != comm->id || coll__peer_is_gone(trunk, m->peer, m->comm)) continue;
        if (!m->is_long) return COLL__UNDELIVERED_SHORT;
        most = COLL__UNDELIVERED_LONG;
    }
    return most;
}

/* Does a message of this communicator still use memory of the caller? */
static bool coll__messages_are_moving(const coll_comm *comm)
{
    const coll__messages *all = comm->trunk->messages;
    const coll__message *const lists[] = { all ? all->outgoing.first : NULL, all ? all->moving.first : NULL };

    for (int i = 0; i < 2; i++)
        for (const coll__message *m = lists[i]; m; m = m->next)
            if (m->comm == comm->id && (m->request || m->xfer)) return true;
    return false;
}

/* A communicator is freed while the trunk lives on: what it was to receive ends, what has come for it is dropped, and those
 * with whom it exchanged messages are told. */
static void coll__messages_close(coll_comm *comm, coll_status status)
{
    coll__trunk *trunk = comm->trunk;
    coll__messages *all = trunk->messages;
    coll_status said = COLL_OK;

    if (!all) return;
    for (coll__message *m = all->wanted.first, *next; m; m = next) {
        next = m->next;
        if (m->comm != comm->id) continue;
        coll__message_unlink(&all->wanted, m);
        coll__message_give_up(m, status);
        coll__message_spare(all, m);
    }
    for (coll__message *m = all->arrived.first, *next; m; m = next) {
        next = m->next;
        if (m->comm != comm->id) continue;
        coll__message_unlink(&all->arrived, m);
        (void)coll__message_dismiss(trunk, m);
    }
    for (coll__gone **at = &all->gone; *at;) {
        coll__gone *g = *at;
        if (g->comm != comm->id) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        free(g);
    }
    for (int i = 0; i < comm->size && said == COLL_OK; i++) {
        const coll__message about = { .peer = coll__world_rank(comm, i), .comm = comm->id };
        if (about.peer != trunk->rank && all->peers[about.peer].is_open) said = coll__reply(trunk, COLL__NOTE_GONE, &about);
    }
}

/* Mark the ranks of the trunk that a message request is waiting for. */
static void coll__messages_late(const coll_request *r, unsigned char *is_late)
{
    if (r->sending) is_late[r->sending->peer] = 1;
    if (!r->receiving) return;
    if (r->receiving->peer != COLL__ANY) is_late[r->receiving->peer] = 1;
    for (int i = 0; r->receiving->peer == COLL__ANY && i < r->comm->size; i++) is_late[coll__world_rank(r->comm, i)] = 1;
}

#endif /* COLL_MESSAGES_H */
