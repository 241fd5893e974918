/* coll_tcp_shm_pipe.h - a pipe between two processes of one host, through shared memory.
 *
 * Ranks of one host use it if the endpoints of both say that they share memory.  The caller creates a memfd, sealed against
 * resizing, and sends its path, /proc/PID/fd/N, as the first bytes of the connection.  Only processes of the same user can open
 * that, and these can read each other's memory anyway.  So with TLS or checksums, which ask for more, shared memory is not used:
 * a pipe that already has a kind keeps it.  The called side opens and checks the memory, and takes it; or it refuses, for any
 * reason, and the bytes go over the socket:
 *
 *     caller                               called side
 *     OFFER: magic, PID, N
 *     puts bytes into the memory           opens it
 *                                              state OFFERED -> TAKEN, a doorbell:  both use it from here on
 *         state OFFERED -> WITHDRAWN  <-       or NO: it reads the socket from here on
 *         the bytes in the memory go over the socket, and all that follow
 *
 * The caller does not wait for an answer.  The state is a word in the memory, changed by compare and swap.  So a caller that
 * leaves early (coll__memory_flush) withdraws its offer, and no bytes are lost.
 *
 * Each direction is a ring of bytes with two counters: bytes put in, and bytes taken out.  Each side keeps its own counter
 * privately, publishes it, and checks the other's: no value in the memory is used as an index or a length before it is
 * checked.
 *
 * The socket serves as a doorbell, and shows a close.  A side that sleeps sets a word in the memory, executes a full barrier,
 * and looks again.  A side that finds this word set, after a full barrier, clears it and sends one byte; the byte only means
 * "look". */
#ifndef COLL_TCP_SHM_PIPE_H
#define COLL_TCP_SHM_PIPE_H

#if COLL__HAS_SHM

enum {
    COLL__MEMORY_MAGIC = 0x4d4c4f43,
    COLL__MEMORY_RING = 256 << 10,                /* bytes; two rings fit most L2 caches                      */
    COLL__MEMORY_RING_LEAST = 64 << 10, COLL__MEMORY_MANY = 8,            /* if more ranks than that          */
    COLL__MEMORY_PIECE = 16 << 10,                /* bytes published at once: the other side copies meanwhile */
    COLL__MEMORY_HEAD = 4096,                     /* bytes before the rings                                   */
    COLL__MEMORY_LOOKS = 256                      /* futile looks before reading the socket                   */
};

static const unsigned char coll__memory_no = 'N', coll__memory_doorbell = 'B';

enum { COLL__MEMORY_OFFERED, COLL__MEMORY_TAKEN, COLL__MEMORY_WITHDRAWN };

/* One direction.  Each word has its own cache line: the sleep words are read often and rarely change.  The counters wrap: a
 * 32-bit machine may lack wider atomics, and a ring is much shorter. */
typedef struct coll__memory_way {
    __attribute__((aligned(COLL__LINE))) uint32_t put;        /* bytes, by the sender                         */
    __attribute__((aligned(COLL__LINE))) uint32_t taken;      /* by the receiver                              */
    __attribute__((aligned(COLL__LINE))) uint32_t receiver_sleeps;
    __attribute__((aligned(COLL__LINE))) uint32_t sender_sleeps;
} coll__memory_way;

/* At the start of the memory. */
typedef struct coll__memory_head {
    uint32_t magic, from, to, channel;
    unsigned char world[COLL__WORLD_LENGTH];
    __attribute__((aligned(COLL__LINE))) uint32_t state;
    coll__memory_way ways[2];                     /* from the caller, and to it                               */
} coll__memory_head;

/* The first bytes of a connection.  PID 0: no memory. */
typedef struct coll__memory_offer { uint32_t magic, pid, number, zero; } coll__memory_offer;

typedef enum coll__memory_phase {
    COLL__MEMORY_OFFERING, COLL__MEMORY_SPILLING, /* caller                                                   */
    COLL__MEMORY_HEARING,                         /* called side: waiting for the offer                       */
    COLL__MEMORY_SHARED
} coll__memory_phase;

/* One direction, as this side sees it.  At most theirs - own bytes can be moved. */
typedef struct coll__memory_end {
    unsigned char *ring;
    uint32_t *told, *heard, *sleeps, *peer_sleeps;            /* in the memory: own counter, the peer's; who sleeps */
    uint32_t own, told_last, theirs;              /* counters: own, as published, the peer's as last read     */
    uint32_t lead;                                /* added to the peer's: a sender may be a ring ahead        */
} coll__memory_end;

typedef struct coll__memory {
    coll__memory_phase phase;
    coll__memory_head *head;
    size_t   length;                              /* bytes of a ring                                          */
    coll__memory_end out, in;
    uint32_t spilled;                             /* bytes put in that were sent over the socket              */
    int      fd;                                  /* the memfd, until it is taken                             */
    unsigned looks;
    bool     has_slept, has_ended;                /* has_ended: the socket is closed                          */
    coll__memory_head expected;                   /* except `state`                                           */
} coll__memory;

/* ---- >>memory ---- */

static size_t coll__memory_size(const coll__memory *m) { return COLL__MEMORY_HEAD + 2 * m->length; }

static bool coll__memory_map(coll__memory *m, int fd, bool is_caller)
{
    void *const at = coll__segment_map(fd, coll__memory_size(m));

    if (!at) return false;
    coll__memory_head *const head = m->head = (coll__memory_head *)at;
    coll__memory_way *const out = &head->ways[!is_caller], *const in = &head->ways[is_caller];
    unsigned char *const ring = (unsigned char *)at + COLL__MEMORY_HEAD;
    m->out = (coll__memory_end){ .ring = is_caller ? ring : ring + m->length, .told = &out->put, .heard = &out->taken,
                                 .sleeps = &out->sender_sleeps, .peer_sleeps = &out->receiver_sleeps,
                                 .theirs = (uint32_t)m->length, .lead = (uint32_t)m->length };
    m->in = (coll__memory_end){ .ring = is_caller ? ring + m->length : ring, .told = &in->taken, .heard = &in->put,
                                .sleeps = &in->receiver_sleeps, .peer_sleeps = &in->sender_sleeps };
    return true;
}

/* false: not available. */
static bool coll__memory_make(coll__memory *m)
{
    m->fd = coll__segment_make(coll__memory_size(m));
    if (m->fd < 0 || !coll__memory_map(m, m->fd, true)) return false;
    *m->head = m->expected;
    return true;
}

static bool coll__memory_open(coll__memory *m, uint32_t pid, uint32_t number)
{
    uint64_t id;
    size_t length = 0;
    int fd = coll__segment_open(pid, number, true, &id, &length);
    const bool is_good = fd >= 0 && length == coll__memory_size(m) && coll__memory_map(m, fd, false);

    coll__close_fd(&fd);
    return is_good && !memcmp(m->head, &m->expected, offsetof(coll__memory_head, state));
}

static void coll__memory_close(coll__pipe *p)
{
    coll__memory *m = (coll__memory *)p->state;

    coll__segment_unmap(m->head, coll__memory_size(m));
    coll__close_fd(&m->fd);
    coll__give(m);
}

/* Use the socket from now on. */
static void coll__memory_give_up(coll__pipe *p)
{
    coll__memory_close(p);
    p->kind = NULL;
    p->state = NULL;
}

static bool coll__memory_change(coll__memory *m, uint32_t to)
{
    uint32_t offered = COLL__MEMORY_OFFERED;
    return __atomic_compare_exchange_n(&m->head->state, &offered, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* ---- >>rings ---- */

/* A full barrier.  The thread sanitizer does not understand a fence, so it gets an exchange. */
static inline void coll__barrier_all(void)
{
#if defined(__SANITIZE_THREAD__)
    uint32_t word = 0;
    (void)__atomic_exchange_n(&word, 1, __ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Ring the doorbell if the other side sleeps.  If the byte does not fit, others are unread, and suffice. */
static void coll__memory_wake(const coll__pipe *p, uint32_t *sleeps)
{
    coll__barrier_all();
    if (__atomic_load_n(sleeps, __ATOMIC_RELAXED) && __atomic_exchange_n(sleeps, 0, __ATOMIC_SEQ_CST))
        (void)!send(p->fd, &coll__memory_doorbell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Publish the own counter. */
static void coll__memory_tell(const coll__pipe *p, coll__memory_end *e)
{
    if (e->told_last == e->own) return;
    __atomic_store_n(e->told, e->told_last = e->own, __ATOMIC_RELEASE);
    coll__memory_wake(p, e->peer_sleeps);
}

/* Bytes that can be put in, or taken out; rereads the peer's counter if fewer than `wanted` are known.  SIZE_MAX: that counter
 * is invalid. */
static size_t coll__memory_can(const coll__memory *m, coll__memory_end *e, size_t wanted)
{
    if ((size_t)(e->theirs - e->own) < wanted) {
        const uint32_t theirs = __atomic_load_n(e->heard, __ATOMIC_ACQUIRE) + e->lead;
        if (theirs - e->own > m->length) return SIZE_MAX;
        e->theirs = theirs;
    }
    return (size_t)(e->theirs - e->own);
}

/* Put in, or take out, as much as possible.  Returns bytes, or -1 with EPROTO. */
static ssize_t coll__memory_move(const coll__pipe *p, coll__memory *m, const struct iovec *pieces, int count, bool is_put)
{
    coll__memory_end *const e = is_put ? &m->out : &m->in;
    size_t moved = 0;                             /* a counter wraps at 4 GiB                                 */

    for (int i = 0; i < count; i++)
        for (size_t at = 0; at < pieces[i].iov_len;) {
            const size_t left = pieces[i].iov_len - at, place = (size_t)e->own & (m->length - 1);
            const size_t can = coll__memory_can(m, e, left);
            const size_t n = coll__least(coll__least(left, can), coll__least(m->length - place, COLL__MEMORY_PIECE));
            if (can == SIZE_MAX) return errno = EPROTO, -1;
            if (n == 0) goto done;
            if (is_put) memcpy(e->ring + place, (const unsigned char *)pieces[i].iov_base + at, n);
            else memcpy((unsigned char *)pieces[i].iov_base + at, e->ring + place, n);
            e->own += (uint32_t)n;
            at += n;
            moved += n;
            if (e->own - e->told_last >= COLL__MEMORY_PIECE) coll__memory_tell(p, e);
        }
done:
    coll__memory_tell(p, e);
    return (ssize_t)moved;
}

/* ---- >>socket ---- */

/* Read the doorbell bytes.  true: the socket is closed; all bytes put in before are visible then. */
static bool coll__memory_drain(const coll__pipe *p, coll__memory *m)
{
    unsigned char doorbells[64];
    ssize_t n;

    m->has_slept = false;
    while ((n = recv(p->fd, doorbells, sizeof doorbells, MSG_DONTWAIT)) == (ssize_t)sizeof doorbells) continue;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) m->has_ended = true;
    return m->has_ended;
}

/* After a futile look: is the socket closed?  It is not read each time. */
static bool coll__memory_ends(const coll__pipe *p, coll__memory *m)
{
    return (m->has_slept || ++m->looks % COLL__MEMORY_LOOKS == 0) && coll__memory_drain(p, m);
}

/* ---- >>offer and answer ---- */

/* The offer is withdrawn: send the ring's bytes first.  0: all are sent, and the pipe is plain; or an errno. */
static int coll__memory_spill(coll__pipe *p)
{
    coll__memory *m = (coll__memory *)p->state;

    while (m->spilled != m->out.own) {
        const size_t place = (size_t)m->spilled & (m->length - 1);
        const size_t left = coll__least((size_t)(m->out.own - m->spilled), m->length - place);
        const ssize_t n = send(p->fd, m->out.ring + place, left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) return errno == EINTR ? EAGAIN : errno;
        m->spilled += (uint32_t)n;
    }
    coll__memory_give_up(p);
    return 0;
}

/* The caller: read the answer.  0: taken, or the pipe is plain; or an errno, EAGAIN: no answer yet.  Other data is a refusal
 * of the connection, and is left for the stream. */
static int coll__memory_hear_answer(coll__pipe *p)
{
    coll__memory *m = (coll__memory *)p->state;
    unsigned char first;

    if (__atomic_load_n(&m->head->state, __ATOMIC_ACQUIRE) == COLL__MEMORY_TAKEN) {
        m->phase = COLL__MEMORY_SHARED;
        coll__close_fd(&m->fd);
        return 0;
    }
    const ssize_t n = recv(p->fd, &first, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0) return errno == EINTR ? EAGAIN : errno;
    if (n == 0) return ECONNRESET;
    if (first == coll__memory_doorbell) return EAGAIN;        /* just taken                                   */
    if (first == coll__memory_no) {
        (void)!recv(p->fd, &first, 1, MSG_DONTWAIT);
        if (!coll__memory_change(m, COLL__MEMORY_WITHDRAWN)) return EPROTO;
        m->phase = COLL__MEMORY_SPILLING;
        return coll__memory_spill(p);
    }
    coll__memory_give_up(p);
    return 0;
}

/* The called side: read the offer.  Returns as above. */
static int coll__memory_hear_offer(coll__pipe *p)
{
    coll__memory *m = (coll__memory *)p->state;
    coll__memory_offer offer;

    const ssize_t came = recv(p->fd, &offer, sizeof offer, MSG_DONTWAIT | MSG_PEEK);
    if (came < 0) return errno == EINTR ? EAGAIN : errno;
    if (came == 0) return ECONNRESET;
    if (came < (ssize_t)sizeof offer) return EAGAIN;
    (void)!recv(p->fd, &offer, sizeof offer, MSG_DONTWAIT);
    if (offer.magic != COLL__MEMORY_MAGIC) return EPROTO;
    if (offer.pid != 0 && coll__memory_open(m, offer.pid, offer.number) && coll__memory_change(m, COLL__MEMORY_TAKEN)) {
        m->phase = COLL__MEMORY_SHARED;
        (void)!send(p->fd, &coll__memory_doorbell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        return 0;
    }
    const ssize_t n = offer.pid != 0 ? send(p->fd, &coll__memory_no, 1, MSG_DONTWAIT | MSG_NOSIGNAL) : 1;
    if (n != 1) return EPIPE;                     /* should be the first byte sent                            */
    coll__memory_give_up(p);
    return 0;
}

/* 0: shared or plain; or an errno. */
static int coll__memory_settle(coll__pipe *p)
{
    switch (((coll__memory *)p->state)->phase) {
    case COLL__MEMORY_OFFERING: return coll__memory_hear_answer(p);
    case COLL__MEMORY_SPILLING: return coll__memory_spill(p);
    case COLL__MEMORY_HEARING: return coll__memory_hear_offer(p);
    default: return 0;
    }
}

/* ---- >>the kind ---- */

static ssize_t coll__memory_send(coll__pipe *p, const struct iovec *pieces, int count)
{
    coll__memory *m = (coll__memory *)p->state;
    const struct msghdr all = { .msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = (size_t)count };
    const int error = m->phase == COLL__MEMORY_SHARED ? 0 : coll__memory_settle(p);
    ssize_t n = 0;

    if (!p->kind) return coll__pipe_send(p, &all);
    if (error && (error != EAGAIN || m->phase != COLL__MEMORY_OFFERING)) return errno = error, -1;
    if (!m->has_ended) n = coll__memory_move(p, m, pieces, count, true);
    if (n != 0) return n;
    errno = m->has_ended || (m->phase == COLL__MEMORY_SHARED && coll__memory_ends(p, m)) ? EPIPE : EAGAIN;
    return -1;
}

static ssize_t coll__memory_recv(coll__pipe *p, const struct iovec *pieces, int count)
{
    coll__memory *m = (coll__memory *)p->state;
    struct msghdr all = { .msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = (size_t)count };
    const int error = m->phase == COLL__MEMORY_SHARED ? 0 : coll__memory_settle(p);

    if (!p->kind) return coll__pipe_recv(p, &all);
    if (error) return errno = error, -1;
    for (;;) {
        const bool had_ended = m->has_ended;
        const ssize_t n = coll__memory_move(p, m, pieces, count, false);
        if (n != 0 || had_ended) return n;
        if (!coll__memory_ends(p, m)) return errno = EAGAIN, -1;
    }
}

static short coll__memory_await(coll__pipe *p, short want)
{
    coll__memory *m = (coll__memory *)p->state;

    if (m->phase == COLL__MEMORY_SPILLING) return POLLIN | POLLOUT;
    if (m->phase == COLL__MEMORY_HEARING) return POLLIN;
    if (m->phase == COLL__MEMORY_OFFERING)
        return __atomic_load_n(&m->head->state, __ATOMIC_ACQUIRE) == COLL__MEMORY_OFFERED ? POLLIN : 0;
    if (coll__memory_drain(p, m)) return 0;
    m->has_slept = true;
    if (want & POLLIN) __atomic_store_n(m->in.sleeps, 1, __ATOMIC_RELAXED);
    if (want & POLLOUT) __atomic_store_n(m->out.sleeps, 1, __ATOMIC_RELAXED);
    coll__barrier_all();
    const bool has_come = (want & POLLIN) && coll__memory_can(m, &m->in, 1) > 0;
    return has_come || ((want & POLLOUT) && coll__memory_can(m, &m->out, 1) > 0) ? 0 : POLLIN;
}

/* Withdraw an offer that was not answered, so that the bytes reach the peer. */
static void coll__memory_flush(coll__pipe *p, int64_t deadline)
{
    coll__memory *m = (coll__memory *)p->state;
    int error = 0;

    if (m->phase == COLL__MEMORY_OFFERING && coll__memory_change(m, COLL__MEMORY_WITHDRAWN)) m->phase = COLL__MEMORY_SPILLING;
    while (p->kind && m->phase == COLL__MEMORY_SPILLING && (error = coll__memory_spill(p)) == EAGAIN) {
        const int ms = coll__ms_until(deadline, 1000);
        struct pollfd at = { .fd = p->fd, .events = POLLOUT };
        if (ms == 0 || poll(&at, 1, ms) < 0) return;
    }
}

/* Bytes in the memory may have to be sent again if the offer is refused: read the answer. */
static int coll__memory_bring(coll__pipe *p)
{
    const coll__memory *m = (const coll__memory *)p->state;
    return m->out.own > 0 && m->phase != COLL__MEMORY_SHARED ? coll__memory_settle(p) : 0;
}

static const coll__pipe_kind coll__memory_kind = {
    .name = "memory",
    .send = coll__memory_send,
    .recv = coll__memory_recv,
    .await = coll__memory_await,
    .close = coll__memory_close,
    .flush = coll__memory_flush,
    .bring = coll__memory_bring,
};

/* Begin, on a new connection between two ranks of one host that both share memory; `from` is the caller.  length: of a ring.
 * false: out of memory. */
static bool coll__memory_begin(const coll_allocator *memory, coll__pipe *p, const unsigned char *world, int from, int to,
                               int channel, size_t length, bool is_caller)
{
    coll__memory *m = (coll__memory *)coll__allocate(memory, sizeof *m);
    coll__memory_offer offer = { .magic = COLL__MEMORY_MAGIC };

    if (!m) return false;
    m->fd = -1;
    m->length = length;
    m->expected = (coll__memory_head){ .magic = COLL__MEMORY_MAGIC, .from = (uint32_t)from, .to = (uint32_t)to,
                                       .channel = (uint32_t)channel };
    memcpy(m->expected.world, world, COLL__WORLD_LENGTH);
    p->kind = &coll__memory_kind;
    p->state = m;
    m->phase = is_caller ? COLL__MEMORY_OFFERING : COLL__MEMORY_HEARING;
    if (!is_caller) return true;
    const bool is_made = coll__memory_make(m);
    if (is_made) offer.pid = (uint32_t)getpid(), offer.number = (uint32_t)m->fd;
    /* a new socket accepts 16 bytes; otherwise it is broken, and the stream detects that */
    if (send(p->fd, &offer, sizeof offer, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof offer) shutdown(p->fd, SHUT_RDWR);
    if (!is_made) coll__memory_give_up(p);
    return true;
}

/* May bytes go through memory? */
static inline bool coll__pipe_is_memory(const coll__pipe *p) { return p->kind == &coll__memory_kind; }

#else

enum { COLL__MEMORY_RING = 0, COLL__MEMORY_RING_LEAST = 0, COLL__MEMORY_MANY = 0 };

static inline bool coll__memory_begin(const coll_allocator *memory, coll__pipe *p, const unsigned char *world, int from, int to,
                                      int channel, size_t length, bool is_caller)
{
    (void)memory, (void)p, (void)world, (void)from, (void)to, (void)channel, (void)length, (void)is_caller;
    return false;
}

static inline bool coll__pipe_is_memory(const coll__pipe *p) { return (void)p, false; }

#endif
#endif /* COLL_TCP_SHM_PIPE_H */
