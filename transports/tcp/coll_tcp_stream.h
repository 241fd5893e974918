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

typedef struct coll__stream {
    coll__pipe pipe;
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
    bool  is_push_posted, is_pull_posted;         /* the back end has a transfer in flight                    */
    bool  is_watched;                             /* the back end polls the socket                            */
    uint64_t sent, received;                      /* bytes                                                    */
    coll__chain out, in;
    unsigned char expected[COLL_HEAD_LENGTH];     /* head of the first receive, which is overwritten          */
    unsigned char came[COLL_HEAD_LENGTH];         /* the head that arrived instead, if ASTRAY                 */
    struct iovec  push_vector[COLL__VECTOR_MOST], pull_vector[2];
    struct msghdr push_message, pull_message;
} coll__stream;

static void coll__chain_put(coll__chain *c, coll_xfer *x)
{
    x->next = NULL;
    *c->end = x;
    c->end = &x->next;
}

/* Complete the first transfer.  Its owner may free it once the status is set. */
static void coll__chain_finish(coll__chain *c, coll_status status)
{
    coll_xfer *x = c->first;

    COLL__ASSERT(x && x->status == COLL_PENDING, "a message with rank %d ends with %d, after %d", x ? x->peer : -1, status,
                 x ? x->status : 0);
    c->first = x->next;
    if (!c->first) c->end = &c->first;
    x->status = status;
}

/* The parts of a message still to be moved, head first; returns their number, at most 2. */
static int coll__pieces(coll_xfer *x, struct iovec *at)
{
    int n = 0;

    if (x->moved < COLL_HEAD_LENGTH) at[n++] = (struct iovec){ x->head + x->moved, COLL_HEAD_LENGTH - x->moved };
    const size_t body = x->moved > COLL_HEAD_LENGTH ? x->moved - COLL_HEAD_LENGTH : 0;
    if (body < x->length) at[n++] = (struct iovec){ (unsigned char *)x->buffer + body, x->length - body };
    return n;
}

/* Poll events of the socket. */
static inline short coll__stream_query(const coll__stream *s)
{
    return (short)((s->in.first || s->owes ? POLLIN : 0) | (s->out.first ? POLLOUT : 0));
}

static void coll__stream_close(coll__stream *s)
{
    if (s->handshake) coll__pipe_close(&s->handshake->pipe);
    coll__give(s->handshake);
    s->handshake = NULL;
    coll__pipe_close(&s->pipe);
}

/* ---- >>sending ---- */

/* As many queued messages as fit in one call. */
static struct msghdr *coll__push_message(coll__stream *s)
{
    int n = 0;

    for (coll_xfer *x = s->out.first; x && n + 2 <= COLL__VECTOR_MOST; x = x->next) n += coll__pieces(x, s->push_vector + n);
    s->push_message = (struct msghdr){ .msg_iov = s->push_vector, .msg_iovlen = (size_t)n };
    return &s->push_message;
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
        coll__chain_finish(&s->out, COLL_OK);
    }
    COLL__ASSERT(moved == 0, "%zu bytes more have gone to rank %d than were to go", moved, s->peer);
}

/* Is the message moved by one copy? */
static inline bool coll__is_eager(const coll_xfer *x)
{
    return x->moved == 0 && x->length > 0 && x->length <= COLL__EAGER_MOST;
}

/* Send once: one short message, or as many messages as fit. */
static ssize_t coll__stream_send(coll__stream *s)
{
    const coll_xfer *x = s->out.first;
    coll__piece piece;

    if (x->next || !coll__is_eager(x)) return coll__pipe_send(&s->pipe, coll__push_message(s));
    memcpy(piece.bytes, x->head, COLL_HEAD_LENGTH);
    memcpy(piece.bytes + COLL_HEAD_LENGTH, x->buffer, x->length);
    return coll__pipe_write(&s->pipe, piece.bytes, COLL_HEAD_LENGTH + x->length);
}

/* Send as much as the socket takes.  Returns bytes; *error is set if the connection failed. */
static size_t coll__stream_push(coll__stream *s, int *error)
{
    size_t total = 0;

    while (s->out.first && s->state == COLL__STREAM_OPEN && !s->is_push_posted) {
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
    s->pull_message = (struct msghdr){ .msg_iov = s->pull_vector };
    s->pull_message.msg_iovlen = (size_t)coll__pieces(s->in.first, s->pull_vector);
    return &s->pull_message;
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
        coll__chain_finish(&s->in, COLL_ERR_MISMATCH);
        s->state = COLL__STREAM_ASTRAY;           /* the following bytes cannot be interpreted                */
        return;
    }
    if (x->moved == COLL_HEAD_LENGTH + x->length) coll__chain_finish(&s->in, COLL_OK);
}

/* Receive once, for the first receive. */
static ssize_t coll__stream_recv(coll__stream *s)
{
    coll_xfer *x = s->in.first;
    coll__piece piece;

    if (!coll__is_eager(x)) {
        struct msghdr *m = coll__pull_message(s);
        struct iovec *body = &m->msg_iov[m->msg_iovlen - 1];
        body->iov_len = coll__least(body->iov_len, COLL__PULL_MOST);
        return coll__pipe_recv(&s->pipe, m);
    }
    const ssize_t n = coll__pipe_read(&s->pipe, piece.bytes, COLL_HEAD_LENGTH + x->length);
    if (n <= 0) return n;
    memcpy(s->expected, x->head, COLL_HEAD_LENGTH);
    if (n <= COLL_HEAD_LENGTH) {
        memcpy(x->head, piece.bytes, (size_t)n);
        return n;
    }
    memcpy(x->head, piece.bytes, COLL_HEAD_LENGTH);
    memcpy(x->buffer, piece.bytes + COLL_HEAD_LENGTH, (size_t)n - COLL_HEAD_LENGTH);
    return n;
}

/* Total length of the next receives that fit into a coll__piece; 0: fewer than two. */
static size_t coll__stream_awaits(const coll__stream *s)
{
    size_t room = sizeof(coll__piece), length = 0;
    int count = 0;

    for (const coll_xfer *x = s->in.first; x && x->moved == 0 && COLL_HEAD_LENGTH + x->length <= room; x = x->next, count++) {
        length += COLL_HEAD_LENGTH + x->length;
        room -= COLL_HEAD_LENGTH + x->length;
    }
    return count > 1 ? length : 0;
}

/* Receive several short messages by one call.  After an unexpected head the rest is dropped. */
static ssize_t coll__stream_recv_several(coll__stream *s, size_t length)
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

    while (s->in.first && s->state == COLL__STREAM_OPEN && !s->is_pull_posted) {
        const size_t several = s->in.first->next ? coll__stream_awaits(s) : 0;
        const ssize_t n = several ? coll__stream_recv_several(s, several) : coll__stream_recv(s);
        if (n <= 0) {
            if (n == 0) *error = 0;
            else if (errno != EAGAIN && errno != EINTR) *error = errno;
            break;
        }
        total += (size_t)n;
        if (!several) coll__stream_pulled(s, (size_t)n);
    }
    return total;
}

#endif /* COLL_TCP_STREAM_H */
