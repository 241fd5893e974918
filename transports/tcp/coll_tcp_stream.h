/* coll_tcp_stream.h - one connection to one peer for one channel: a queue of sends and one of receives.
 *
 * The lower of the two ranks connects when it first has a transfer; the higher rank waits for that.  push and pull move bytes
 * by calls that do not block.  A back end (coll_tcp_io.h) is used only for waiting, and may then move bytes too;
 * coll__stream_pushed and _pulled account for them. */
#ifndef COLL_TCP_STREAM_H
#define COLL_TCP_STREAM_H

typedef struct coll__chain { coll_xfer *first, **end; } coll__chain;

typedef enum coll__stream_state {
    COLL__STREAM_NONE, COLL__STREAM_DIALLING, COLL__STREAM_OPEN,
    COLL__STREAM_ENDED,                           /* closed, or failed to connect                             */
    COLL__STREAM_ASTRAY,                          /* an unexpected head arrived                               */
    COLL__STREAM_REFUSED                          /* the first data is a refusal                              */
} coll__stream_state;

enum {
    COLL__VECTOR_MOST = 32,                       /* buffers per call                                         */
    COLL__EAGER_MOST = 4096,                      /* shorter messages are copied next to their head: cheaper  */
    COLL__PULL_MOST   = 128 << 10                 /* body bytes per receive: then the sender's window opens   */
};

/* A short message, or several, during a call.  On the stack, for there is a stream for every peer. */
typedef struct coll__piece { unsigned char bytes[COLL_HEAD_LENGTH + COLL__EAGER_MOST]; } coll__piece;

/* What a back end does for a connection: a transfer, or a poll of the socket. */
enum { COLL__RING_PULL, COLL__RING_PUSH, COLL__RING_EVENTS, COLL__RING_KINDS };

/* A connection of a stream, as a back end sees it. */
typedef struct coll__connection {
    struct coll__stream *stream;
    struct coll__stripe *stripe;                  /* NULL: it is the only one                                 */
    coll__pipe   *pipe;
    bool          is_posted[COLL__RING_KINDS];    /* the back end has it in flight                            */
    struct msghdr push_message, pull_message;
} coll__connection;

typedef struct coll__stream {
    coll__pipe pipe;
    coll__connection link;
    int   peer, channel;
    int   tried;                                  /* connecting: index of the peer's address                  */
    coll__stream_state state;
    struct coll__stripe_set *stripe_set;          /* its lanes (coll_tcp_lanes.h); NULL: one connection       */
    struct coll__handshake *handshake;            /* while connecting                                         */
    int64_t dial_at;                              /* do not connect earlier, after a failed attempt           */
    int64_t dial_until;                           /* no answer is no error before; 0: not connecting          */
    bool  is_unanswered;                          /* an address has not answered                              */
    int   dial_pause_ms;
    int64_t refused_at;                           /* since when refused without proof of the key; 0: not      */
    bool  is_active;                              /* in the list of streams with transfers                    */
    bool  owes;                                   /* bytes that count as sent may be sent again               */
    uint64_t sent, received;                      /* bytes                                                    */
    coll__chain out, in;
    unsigned char expected[COLL_HEAD_LENGTH];     /* head of the first receive, which is overwritten          */
    unsigned char came[COLL_HEAD_LENGTH];         /* the head that arrived instead, if ASTRAY                 */
    struct iovec push_vector[COLL__VECTOR_MOST], pull_vector[2];
} coll__stream;

static void coll__chain_put(coll__chain *c, coll_xfer *x)
{
    x->next = NULL;
    *c->end = x;
    c->end = &x->next;
}

static COLL__UNUSED bool coll__chain_has(const coll__chain *c, const coll_xfer *x)
{
    const coll_xfer *at = c->first;

    while (at && at != x) at = at->next;
    return at != NULL;
}

/* Complete a transfer, which need not be the first.  Its owner may free it once the status is set. */
static inline void coll__chain_take(coll__chain *c, coll_xfer *x, coll_status status)
{
    coll_xfer **at = &c->first;

    COLL__ASSERT(coll__chain_has(c, x) && x->status == COLL_PENDING,
                 "a message with rank %d ends with %d, after %d, and is %squeued", x->peer, status, x->status,
                 coll__chain_has(c, x) ? "" : "not ");
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    if (!*at) c->end = at;
    x->status = status;
}

/* The parts of a head and a body that are still to be moved; returns their number, at most 2. */
static inline int coll__pieces(struct iovec *at, unsigned char *head, size_t head_length, void *body, size_t length, size_t moved)
{
    const size_t done = moved > head_length ? moved - head_length : 0;
    int n = 0;

    if (moved < head_length) at[n++] = (struct iovec){ head + moved, head_length - moved };
    if (done < length) at[n++] = (struct iovec){ (unsigned char *)body + done, length - done };
    return n;
}

static inline int coll__pieces_of(struct iovec *at, coll_xfer *x)
{
    return coll__pieces(at, x->head, COLL_HEAD_LENGTH, x->buffer, x->length, x->moved);
}

/* Poll events of the socket. */
static inline short coll__stream_query(const coll__stream *s)
{
    return (short)((s->in.first || s->owes ? POLLIN : 0) | (s->out.first ? POLLOUT : 0));
}

/* ---- >>sending ---- */

/* As many queued messages as fit in one call. */
static struct msghdr *coll__push_message(coll__stream *s)
{
    int n = 0;

    for (coll_xfer *x = s->out.first; x && n + 2 <= COLL__VECTOR_MOST; x = x->next) n += coll__pieces_of(s->push_vector + n, x);
    s->link.push_message = (struct msghdr){ .msg_iov = s->push_vector, .msg_iovlen = (size_t)n };
    return &s->link.push_message;
}

/* Add to a counter that other threads read. */
static inline void coll__tally(uint64_t *at, size_t more) { __atomic_store_n(at, *at + more, __ATOMIC_RELAXED); }

/* Account for `moved` bytes sent, and complete messages. */
static void coll__stream_pushed(coll__stream *s, size_t moved)
{
    coll__tally(&s->sent, moved);
    while (s->out.first) {
        coll_xfer *x = s->out.first;
        const size_t left = COLL_HEAD_LENGTH + x->length - x->moved, part = coll__least(left, moved);
        x->moved += part;
        moved -= part;
        if (part < left) return;
        coll__chain_take(&s->out, x, COLL_OK);
    }
    COLL__ASSERT(moved == 0, "%zu bytes more have gone to rank %d than were to go", moved, s->peer);
}

/* Send once: one short message, or as many messages as fit. */
static ssize_t coll__stream_send(coll__stream *s)
{
    const coll_xfer *x = s->out.first;
    coll__piece piece;

    if (x->next || x->moved > 0 || x->length == 0 || x->length > COLL__EAGER_MOST)
        return coll__pipe_send(&s->pipe, coll__push_message(s));
    memcpy(piece.bytes, x->head, COLL_HEAD_LENGTH);
    memcpy(piece.bytes + COLL_HEAD_LENGTH, x->buffer, x->length);
    return coll__pipe_write(&s->pipe, piece.bytes, COLL_HEAD_LENGTH + x->length);
}

/* Send as much as the socket takes.  Returns bytes; *error is set if the connection failed. */
static size_t coll__stream_push(coll__stream *s, int *error)
{
    size_t total = 0;

    while (s->out.first && s->state == COLL__STREAM_OPEN && !s->link.is_posted[COLL__RING_PUSH]) {
        const ssize_t n = coll__stream_send(s);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR) *error = errno;
            break;
        }
        total += (size_t)n;
        coll__stream_pushed(s, (size_t)n);
    }
    const int left = s->out.first ? 0 : coll__pipe_bring(&s->pipe);
    s->owes = left == EAGAIN;
    if (left && !s->owes) *error = left;
    return total;
}

static inline bool coll__stream_is_busy(const coll__stream *s) { return s->out.first || s->in.first || s->owes; }

/* ---- >>receiving ---- */

static struct msghdr *coll__pull_message(coll__stream *s)
{
    if (s->in.first->moved == 0) memcpy(s->expected, s->in.first->head, COLL_HEAD_LENGTH);
    s->link.pull_message = (struct msghdr){ .msg_iov = s->pull_vector };
    s->link.pull_message.msg_iovlen = (size_t)coll__pieces_of(s->pull_vector, s->in.first);
    return &s->link.pull_message;
}

/* Account for `moved` bytes of the first receive. */
static void coll__stream_pulled(coll__stream *s, size_t moved)
{
    coll_xfer *x = s->in.first;
    const bool had_head = x->moved >= COLL_HEAD_LENGTH;

    COLL__ASSERT(moved <= COLL_HEAD_LENGTH + x->length - x->moved,
                 "%zu bytes of rank %d come, of a message of %zu with %zu there", moved, s->peer, COLL_HEAD_LENGTH + x->length,
                 x->moved);
    coll__tally(&s->received, moved);
    x->moved += moved;
    if (!had_head && s->received == x->moved && x->moved >= COLL_HEAD_LENGTH && coll__begins_refusal(x->head)) {
        s->state = COLL__STREAM_REFUSED;
        return;
    }
    if (!had_head && x->moved >= COLL_HEAD_LENGTH && !x->any_head && memcmp(x->head, s->expected, COLL_HEAD_LENGTH)) {
        memcpy(s->came, x->head, COLL_HEAD_LENGTH);
        coll__chain_take(&s->in, x, COLL_ERR_MISMATCH);
        s->state = COLL__STREAM_ASTRAY;           /* the following bytes cannot be interpreted                */
        return;
    }
    if (x->moved == COLL_HEAD_LENGTH + x->length) coll__chain_take(&s->in, x, COLL_OK);
}

/* Receive once, for the first receive. */
static ssize_t coll__stream_recv(coll__stream *s)
{
    struct msghdr *m = coll__pull_message(s);
    struct iovec *body = &m->msg_iov[m->msg_iovlen - 1];

    body->iov_len = coll__least(body->iov_len, COLL__PULL_MOST);
    const ssize_t n = coll__pipe_recv(&s->pipe, m);
    if (n > 0) coll__stream_pulled(s, (size_t)n);
    return n;
}

/* Total length of the next receives that fit into a coll__piece; 0: none. */
static size_t coll__stream_awaits(const coll__stream *s)
{
    size_t room = sizeof(coll__piece);

    for (const coll_xfer *x = s->in.first; x && x->moved == 0 && COLL_HEAD_LENGTH + x->length <= room; x = x->next)
        room -= COLL_HEAD_LENGTH + x->length;
    return sizeof(coll__piece) - room;
}

/* Receive short messages by one call.  After an unexpected head the rest is dropped. */
static ssize_t coll__stream_recv_short(coll__stream *s, size_t length)
{
    coll__piece piece;
    const ssize_t n = coll__pipe_read(&s->pipe, piece.bytes, length);
    const unsigned char *at = piece.bytes, *const end = at + (n > 0 ? n : 0);

    while (at < end && s->state == COLL__STREAM_OPEN) {
        coll_xfer *x = s->in.first;
        const size_t part = coll__least(COLL_HEAD_LENGTH + x->length, (size_t)(end - at));
        const size_t head = coll__least(COLL_HEAD_LENGTH, part);
        memcpy(s->expected, x->head, COLL_HEAD_LENGTH);
        memcpy(x->head, at, head);
        if (part > head) memcpy(x->buffer, at + head, part - head);
        coll__stream_pulled(s, part);
        at += part;
    }
    return n;
}

/* Receive what the socket has.  Returns bytes; *error is an errno, or 0 at the end of the stream. */
static size_t coll__stream_pull(coll__stream *s, int *error)
{
    size_t total = 0;

    while (s->in.first && s->state == COLL__STREAM_OPEN && !s->link.is_posted[COLL__RING_PULL]) {
        const size_t length = coll__stream_awaits(s);
        const ssize_t n = length > 0 ? coll__stream_recv_short(s, length) : coll__stream_recv(s);
        if (n <= 0) {
            if (n == 0) *error = 0;
            else if (errno != EAGAIN && errno != EINTR) *error = errno;
            break;
        }
        total += (size_t)n;
    }
    return total;
}

#endif /* COLL_TCP_STREAM_H */
