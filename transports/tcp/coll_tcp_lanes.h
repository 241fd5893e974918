/* coll_tcp_lanes.h - a stream over several connections (lanes), for links that one connection does not saturate.
 *
 * A short message uses lane 0 only.  Of a long message, with a body of more than COLL__CHUNK_LEAST bytes, lane 0 sends the
 * head.  The body is cut into chunks; each lane that can send takes the next chunk, so slow lanes take fewer.  Both ends know
 * the length of a message, hence its kind.
 *
 *     lane 0    head  chunk 0  chunk 3  end | head  chunk 0 ...
 *     lane 1          chunk 1           | chunk 2 ...
 *     lane 2          chunk 2     | chunk 1 ...
 *
 * A chunk has a head (coll__chunk).  Length 0 is an end mark: on lane 0 it ends that lane's part of the message; on other lanes
 * it ends the lane, when the sender leaves.  A lane that closes without an end mark was cut, which ends the stream.
 *
 * Once all chunks of a long message are assigned, those of the next one follow, even if some are in flight.  The receiver
 * accepts COLL__LONG_MOST messages at once.  It leaves a chunk unread until the head of its message has arrived.  This cannot
 * deadlock: the data behind such a chunk is always later than the head that it waits for. */
#ifndef COLL_TCP_LANES_H
#define COLL_TCP_LANES_H

#ifndef COLL__CHUNK_LEAST
#define COLL__CHUNK_LEAST (64 << 10)              /* shorter bodies do not gain                               */
#endif

enum {
    COLL__CHUNK_MOST  = 8 * COLL__CHUNK_LEAST,
    COLL__CHUNK_HEAD  = 16,                       /* bytes of its head                                        */
    COLL__CHUNKS_LANE = 8,                        /* chunks of a long body per lane, so that all end together */
    COLL__LONG_MOST   = 8,                        /* long messages received at the same time                  */
    COLL__UNSENT_MOST = 4 * COLL__CHUNK_LEAST     /* unsent bytes that a lane may buffer                      */
};

/* The head of a chunk: the number of its message among the long ones of its direction, and the place in the body. */
typedef struct coll__chunk { uint32_t number, length; uint64_t offset; } coll__chunk;

/* What a lane is sending: a message or a chunk; the first chunk on lane 0 follows the head of its message. */
typedef struct coll__outgoing {
    coll_xfer *xfer;
    unsigned char bytes[COLL__CHUNK_HEAD + COLL_HEAD_LENGTH + COLL__CHUNK_HEAD];
    unsigned char *body;
    size_t head, length, moved;                   /* of `bytes`; of the body; sent of both                    */
} coll__outgoing;

/* What a lane reads next. */
typedef enum coll__landing_step {
    COLL__LAND_CHUNK,                             /* a chunk's head                                           */
    COLL__LAND_HEAD,                              /* lane 0: a message's head                                 */
    COLL__LAND_BODY,                              /* `left` bytes of the message `xfer`, or of a chunk of it  */
    COLL__LAND_HELD,                              /* nothing until the chunk's message has begun              */
    COLL__LAND_OVER,                              /* nothing more                                             */
    COLL__LAND_WRONG                              /* nothing more: invalid data arrived                       */
} coll__landing_step;

typedef struct coll__stripe {
    coll__connection link;
    int   index;
    coll__pipe own;                               /* lane 0 uses the stream's pipe                            */
    bool  has_heard;                              /* a head has arrived                                       */
    coll__outgoing out;
    coll__landing_step step;
    unsigned char bytes[COLL__CHUNK_HEAD];        /* head of the arriving chunk, `got` bytes of it            */
    size_t got, left;
    unsigned char *body;
    coll_xfer *xfer;
    struct iovec push_vector[2], pull_vector[2];
} coll__stripe;

/* A long message being received. */
typedef struct coll__inbound {
    coll_xfer *xfer;                              /* NULL: unused                                             */
    uint32_t   number;
    size_t     announced;                         /* bytes of all chunks whose heads have arrived             */
} coll__inbound;

/* The lanes of a stream. */
typedef struct coll__stripe_set {
    int        count, open;                       /* open: connected lanes                                    */
    uint32_t   out_number, in_number;             /* of the last long message begun                           */
    coll_xfer *cutting;                           /* the message being cut; NULL: none                        */
    size_t     cut, chunk;                        /* bytes of it assigned; bytes of a chunk                   */
    bool       owes_end;                          /* lane 0 must still send its end mark                      */
    int        inbound_count;
    coll__inbound inbound[COLL__LONG_MOST];       /* by number                                                */
    coll__stripe *refuser;                        /* the lane that received a refusal                         */
    coll__stripe stripes[];
} coll__stripe_set;

/* NULL: the stream is one connection. */
static inline coll__stripe *coll__stripe_of(const coll__connection *link) { return COLL__IS_WHOLE ? link->stripe : NULL; }
static inline coll__stripe_set *coll__stripe_set_of(const coll__stream *s) { return COLL__IS_WHOLE ? s->stripe_set : NULL; }

static inline bool coll__is_long(const coll_xfer *x) { return x->length > COLL__CHUNK_LEAST; }

/* The lanes of a stream, not connected.  NULL: out of memory. */
static coll__stripe_set *coll__stripe_set_new(const coll_allocator *memory, coll__stream *s, int count)
{
    coll__stripe_set *b = !COLL__IS_WHOLE ? NULL
                        : (coll__stripe_set *)coll__allocate(memory, sizeof *b + (size_t)count * sizeof *b->stripes);

    if (!b) return NULL;
    b->count = count;
    for (int k = 0; k < count; k++) {
        coll__stripe *l = &b->stripes[k];
        l->index = k;
        l->own.fd = -1;
        l->link = (coll__connection){ .stream = s, .stripe = l, .pipe = k == 0 ? &s->pipe : &l->own };
        l->step = k == 0 ? COLL__LAND_HEAD : COLL__LAND_CHUNK;
    }
    return b;
}

static void coll__stripe_set_free(coll__stripe_set *b)
{
    if (!COLL__IS_WHOLE) return;
    for (int k = 1; b && k < b->count; k++) coll__pipe_close(&b->stripes[k].own);
    coll__give(b);
}

static inline int coll__lane_count(const coll__stream *s) { return coll__stripe_set_of(s) ? coll__stripe_set_of(s)->count : 1; }

/* A lane, or the only connection. */
static inline coll__connection *coll__stream_link(coll__stream *s, int lane)
{
    return coll__stripe_set_of(s) ? &s->stripe_set->stripes[lane].link : &s->link;
}

static inline coll__pipe *coll__stream_lane(coll__stream *s, int lane) { return coll__stream_link(s, lane)->pipe; }

/* Store a lane's connection.  true: all are connected. */
static bool coll__stream_joined(coll__stream *s, int lane, coll__pipe *from)
{
    coll__pipe *const pipe = coll__stream_lane(s, lane);

    *pipe = coll__pipe_take(from);
    if (!coll__stripe_set_of(s)) return true;
    coll__limit_unsent(pipe->fd, COLL__UNSENT_MOST);  /* or a slow lane would buffer megabytes                */
    COLL__ASSERT(s->stripe_set->open < s->stripe_set->count, "lane %d to rank %d is connected, and %d of %d are", lane, s->peer,
                 s->stripe_set->open, s->stripe_set->count);
    return ++s->stripe_set->open == s->stripe_set->count;
}

/* ---- >>sending ---- */

static inline bool coll__outgoing_is_due(const coll__outgoing *p) { return p->moved < p->head + p->length; }

static void coll__outgoing_say(coll__outgoing *p, uint32_t number, size_t length, size_t offset)
{
    COLL__ASSERT(p->head + COLL__CHUNK_HEAD <= sizeof p->bytes,
                 "the heads of chunk %u, %zu bytes at %zu, have no room behind %zu", (unsigned)number, length, offset, p->head);
    memcpy(p->bytes + p->head, &(coll__chunk){ number, (uint32_t)length, offset }, COLL__CHUNK_HEAD);
    p->head += COLL__CHUNK_HEAD;
}

/* The next chunk of the message that is being cut. */
static void coll__outgoing_cut(coll__stripe_set *b, coll__outgoing *p)
{
    coll_xfer *x = b->cutting;

    p->xfer = x;
    p->length = coll__least(b->chunk, x->length - b->cut);
    p->body = (unsigned char *)x->buffer + b->cut;
    coll__outgoing_say(p, b->out_number, p->length, b->cut);
    b->cut += p->length;
    if (b->cut == x->length) b->cutting = NULL;
}

/* Assign the next piece to a lane.  false: there is none. */
static bool coll__stripe_take(coll__stripe_set *b, coll__stripe *l)
{
    coll__outgoing *p = &l->out;
    coll_xfer *x = l->link.stream->out.first;

    p->head = p->length = p->moved = 0;
    if (b->cutting) {
        coll__outgoing_cut(b, p);
        return true;
    }
    while (x && x->moved > 0) x = x->next;
    if (l->index > 0 || !x) return false;
    if (b->owes_end) coll__outgoing_say(p, b->out_number, 0, 0);
    b->owes_end = coll__is_long(x);
    memcpy(p->bytes + p->head, x->head, COLL_HEAD_LENGTH);
    p->head += COLL_HEAD_LENGTH;
    x->moved = COLL_HEAD_LENGTH;
    if (b->owes_end) {
        const size_t share = x->length / ((size_t)b->count * COLL__CHUNKS_LANE);
        b->chunk = coll__least(coll__most(share, COLL__CHUNK_LEAST), COLL__CHUNK_MOST);
        b->cutting = x;
        b->cut = 0;
        b->out_number++;
        coll__outgoing_cut(b, p);
    } else {
        p->xfer = x;
        p->body = (unsigned char *)x->buffer;
        p->length = x->length;
    }
    return true;
}

static struct msghdr *coll__stripe_push_message(coll__stripe *l)
{
    coll__outgoing *p = &l->out;
    const int n = coll__pieces(l->push_vector, p->bytes, p->head, p->body, p->length, p->moved);

    l->link.push_message = (struct msghdr){ .msg_iov = l->push_vector, .msg_iovlen = (size_t)n };
    return &l->link.push_message;
}

static void coll__stripe_pushed(coll__stripe *l, size_t moved)
{
    coll__outgoing *p = &l->out;
    coll_xfer *x = p->xfer;

    coll__tally(&l->link.stream->sent, moved);
    p->moved += moved;
    COLL__ASSERT(p->moved <= p->head + p->length, "lane %d to rank %d has sent %zu bytes of %zu", l->index, l->link.stream->peer,
                 p->moved, p->head + p->length);
    if (coll__outgoing_is_due(p)) return;
    x->moved += p->length;
    if (x->moved == COLL_HEAD_LENGTH + x->length) coll__chain_take(&l->link.stream->out, x, COLL_OK);
}

/* As coll__stream_push; one call per lane in turn. */
static size_t coll__stripe_set_push(coll__stream *s, int *error)
{
    coll__stripe_set *b = coll__stripe_set_of(s);
    size_t total = 0, before;

    do {
        before = total;
        for (int k = 0; k < b->count && s->out.first; k++) {
            coll__stripe *l = &b->stripes[k];
            if (l->link.is_posted[COLL__RING_PUSH] || (!coll__outgoing_is_due(&l->out) && !coll__stripe_take(b, l))) continue;
            const ssize_t n = coll__pipe_send(l->link.pipe, coll__stripe_push_message(l));
            if (n < 0 && errno != EAGAIN && errno != EINTR) {
                *error = errno;
                return total;
            }
            if (n <= 0) continue;
            total += (size_t)n;
            coll__stripe_pushed(l, (size_t)n);
        }
    } while (total > before);
    return total;
}

/* ---- >>receiving ---- */

/* The receive whose head is next on lane 0.  NULL: none, or all long slots are in use. */
static coll_xfer *coll__stripe_set_next(const coll__stripe_set *b, const coll__stream *s)
{
    coll_xfer *x = s->in.first;

    while (x && x->moved >= COLL_HEAD_LENGTH) x = x->next;
    return x && coll__is_long(x) && b->inbound[(b->in_number + 1) % COLL__LONG_MOST].xfer ? NULL : x;
}

/* Where to read to; NULL: nothing to read.  A short item that follows is read in the same call, unless the kernel waits for
 * all bytes.  Nothing else is read with the first head, for it may be a refusal. */
static struct msghdr *coll__stripe_pull_message(coll__stripe *l, bool is_posted)
{
    coll__stream *s = l->link.stream;
    coll_xfer *x = l->step == COLL__LAND_HEAD ? coll__stripe_set_next(s->stripe_set, s) : NULL;
    const struct iovec head = { l->bytes + l->got, COLL__CHUNK_HEAD - l->got };
    int n = 0;

    if (!s->in.first) return NULL;
    if (x) {
        if (x->moved == 0) memcpy(s->expected, x->head, COLL_HEAD_LENGTH);
        l->pull_vector[n++] = (struct iovec){ x->head + x->moved, COLL_HEAD_LENGTH - x->moved };
        if (coll__is_long(x) && l->has_heard) l->pull_vector[n++] = head;
        else if (!coll__is_long(x) && x->length > 0) l->pull_vector[n++] = (struct iovec){ x->buffer, x->length };
    } else if (l->step == COLL__LAND_CHUNK) {
        l->pull_vector[n++] = head;
    } else if (l->step == COLL__LAND_BODY) {
        l->pull_vector[n++] = (struct iovec){ l->body, l->left };
        if (!is_posted && coll__is_long(l->xfer)) l->pull_vector[n++] = head;
    }
    l->link.pull_message = (struct msghdr){ .msg_iov = l->pull_vector, .msg_iovlen = (size_t)n };
    return n > 0 ? &l->link.pull_message : NULL;
}

static void coll__stripe_land(coll__stripe *l, coll_xfer *x, size_t offset, size_t length)
{
    l->xfer = x;
    l->body = (unsigned char *)x->buffer + offset;
    l->left = length;
    l->step = COLL__LAND_BODY;
}

/* A message's head has arrived.  false: it is not the expected one. */
static bool coll__stripe_head(coll__stripe *l, coll_xfer *x)
{
    coll__stream *s = l->link.stream;
    coll__stripe_set *b = coll__stripe_set_of(s);

    if (!l->has_heard && coll__begins_refusal(x->head)) {
        s->state = COLL__STREAM_REFUSED;
        return false;
    }
    l->has_heard = true;
    if (!x->any_head && memcmp(x->head, s->expected, COLL_HEAD_LENGTH)) {
        memcpy(s->came, x->head, COLL_HEAD_LENGTH);
        coll__chain_take(&s->in, x, COLL_ERR_MISMATCH);
        s->state = COLL__STREAM_ASTRAY;
        return false;
    }
    if (coll__is_long(x)) {
        b->in_number++;
        b->inbound[b->in_number % COLL__LONG_MOST] = (coll__inbound){ .xfer = x, .number = b->in_number };
        b->inbound_count++;
        l->step = COLL__LAND_CHUNK;
    } else if (x->length > 0) {
        coll__stripe_land(l, x, 0, x->length);
    } else {
        coll__chain_take(&s->in, x, COLL_OK);
    }
    return true;
}

/* A chunk's head has arrived. */
static void coll__stripe_chunk(coll__stripe *l)
{
    coll__stripe_set *b = l->link.stream->stripe_set;
    coll__chunk c;

    memcpy(&c, l->bytes, sizeof c);
    coll__inbound *const a = &b->inbound[c.number % COLL__LONG_MOST];
    const size_t most = a->xfer && a->number == c.number ? a->xfer->length : 0;
    if (!l->has_heard && coll__begins_refusal(l->bytes) && c.length > COLL__CHUNK_MOST) {
        b->refuser = l;
        l->link.stream->state = COLL__STREAM_REFUSED;
        return;
    }
    l->has_heard = true;
    if (c.length == 0) {
        l->got = 0;
        l->step = l->index == 0 ? COLL__LAND_HEAD : COLL__LAND_OVER;
    } else if ((int32_t)(c.number - b->in_number) > 0 && l->index > 0) {
        l->step = COLL__LAND_HELD;
    } else if (most == 0 || c.length > COLL__CHUNK_MOST || c.offset > most || c.length > most - c.offset
               || c.length > most - a->announced) {
        l->step = COLL__LAND_WRONG;
    } else {
        l->got = 0;
        a->announced += c.length;
        coll__stripe_land(l, a->xfer, (size_t)c.offset, c.length);
    }
}

/* The assigned body bytes of a lane have all arrived. */
static void coll__stripe_landed(coll__stripe *l)
{
    coll__stream *s = l->link.stream;
    coll__stripe_set *b = coll__stripe_set_of(s);
    coll_xfer *x = l->xfer;

    l->step = coll__is_long(x) ? COLL__LAND_CHUNK : COLL__LAND_HEAD;
    l->xfer = NULL;
    if (x->moved < COLL_HEAD_LENGTH + x->length) return;
    COLL__ASSERT(x->moved == COLL_HEAD_LENGTH + x->length && b->inbound_count >= coll__is_long(x),
                 "%zu bytes of a message of %zu from rank %d are here, one of %d long ones", x->moved,
                 COLL_HEAD_LENGTH + x->length, s->peer, b->inbound_count);
    for (int i = 0; i < COLL__LONG_MOST; i++)
        if (b->inbound[i].xfer == x) b->inbound[i].xfer = NULL, b->inbound_count--;
    coll__chain_take(&s->in, x, COLL_OK);
}

/* Account for `moved` bytes, stored as coll__stripe_pull_message said. */
static void coll__stripe_pulled(coll__stripe *l, size_t moved)
{
    coll__stream *s = l->link.stream;

    coll__tally(&s->received, moved);
    while (moved > 0 && l->step != COLL__LAND_WRONG && s->state == COLL__STREAM_OPEN) {
        coll_xfer *x = l->step == COLL__LAND_HEAD ? coll__stripe_set_next(s->stripe_set, s) : l->xfer;
        const size_t left = l->step == COLL__LAND_HEAD ? COLL_HEAD_LENGTH - x->moved
                          : l->step == COLL__LAND_CHUNK ? COLL__CHUNK_HEAD - l->got : l->left;
        const size_t part = coll__least(left, moved);
        moved -= part;
        if (l->step == COLL__LAND_CHUNK) {
            l->got += part;
            if (part == left) coll__stripe_chunk(l);
            continue;
        }
        x->moved += part;
        if (l->step == COLL__LAND_HEAD) {
            if (part == left && !coll__stripe_head(l, x) && s->state == COLL__STREAM_REFUSED) x->moved += moved;
            continue;
        }
        l->body += part;
        l->left -= part;
        if (part == left) coll__stripe_landed(l);
    }
}

/* A lane is closed.  Is the stream closed?  Not if only lane 0 is, after its last data, and chunks are still arriving. */
static bool coll__stripe_closed(coll__stripe *l)
{
    const coll__stripe_set *b = l->link.stream->stripe_set;
    const coll_xfer *x = coll__stripe_set_next(b, l->link.stream);

    if (l->index > 0 || l->step != COLL__LAND_HEAD || b->inbound_count == 0 || (x && x->moved > 0)) return true;
    l->step = COLL__LAND_OVER;
    return false;
}

/* Read once from a lane; returns the bytes.  *error as in coll__stream_pull; EBADMSG: invalid data. */
static size_t coll__stripe_pull(coll__stripe *l, int *error)
{
    if (l->link.is_posted[COLL__RING_PULL]) return 0;
    if (l->step == COLL__LAND_HELD) coll__stripe_chunk(l);
    struct msghdr *m = coll__stripe_pull_message(l, false);
    const ssize_t n = m ? coll__pipe_recv(l->link.pipe, m) : 0;
    if (n < 0 && errno != EAGAIN && errno != EINTR) *error = errno;
    if (m && n == 0 && coll__stripe_closed(l)) *error = 0;
    if (n > 0) coll__stripe_pulled(l, (size_t)n);
    if (l->step == COLL__LAND_WRONG) *error = EBADMSG;
    return n > 0 ? (size_t)n : 0;
}

/* As coll__stream_pull. */
static size_t coll__stripe_set_pull(coll__stream *s, int *error)
{
    coll__stripe_set *b = coll__stripe_set_of(s);
    size_t total = 0, before;

    do {
        before = total;
        for (int k = 0; k < b->count && s->state == COLL__STREAM_OPEN && *error < 0; k++)
            total += coll__stripe_pull(&b->stripes[k], error);
    } while (total > before && *error < 0);
    if (*error < 0 && b->stripes[0].step == COLL__LAND_OVER && b->inbound_count == 0) *error = 0;
    return total;
}

/* ---- >>waiting and leaving ---- */

/* Poll events of a lane. */
static short coll__stripe_query(coll__stripe *l)
{
    return (short)((coll__stripe_pull_message(l, true) ? POLLIN : 0) | (coll__outgoing_is_due(&l->out) ? POLLOUT : 0));
}

/* Send an end mark on every lane, so that a close is not taken for a cut. */
static void coll__stripe_set_leave(coll__stream *s, int64_t deadline)
{
    coll__stripe_set *b = coll__stripe_set_of(s);
    unsigned char end[COLL__CHUNK_HEAD] = { 0 };

    for (int k = 0; k < b->count; k++) {
        coll__stripe *l = &b->stripes[k];
        if (!coll__outgoing_is_due(&l->out) && (k > 0 || b->owes_end))
            (void)coll__pipe_transfer(l->link.pipe, end, sizeof end, true, deadline);
    }
}

#endif /* COLL_TCP_LANES_H */
