/* coll_tcp_pipe.h - a connection, independent of how its bytes are carried.
 *
 * A pipe is a connected socket that carries bytes in clear.  If it has a kind, the kind's functions carry them, and the socket
 * only shows when to look again.  Pipes never block; one thread at a time uses a pipe. */
#ifndef COLL_TCP_PIPE_H
#define COLL_TCP_PIPE_H

struct coll__pipe;

/* Another carrier of bytes.  If send fails with EAGAIN, it may have taken some bytes: repeat it with the same bytes first;
 * they count as sent when it says so.  EBADMSG: received bytes were modified. */
typedef struct coll__pipe_kind {
    const char *name;
    ssize_t (*send)(struct coll__pipe *p, const struct iovec *pieces, int count);     /* as sendmsg and recvmsg with   */
    ssize_t (*recv)(struct coll__pipe *p, const struct iovec *pieces, int count);     /* MSG_DONTWAIT                  */
    short   (*await)(struct coll__pipe *p, short want);                               /* see coll__pipe_await          */
    void    (*close)(struct coll__pipe *p);                                           /* all but the socket            */
    void    (*flush)(struct coll__pipe *p, int64_t deadline);         /* may be NULL: before the socket is closed      */
    int     (*bring)(struct coll__pipe *p);                           /* may be NULL: see coll__pipe_bring             */
} coll__pipe_kind;

typedef struct coll__pipe {
    int fd;                                       /* -1: there is none                                        */
    const coll__pipe_kind *kind;                  /* NULL: in clear over the socket                           */
    void *state;                                  /* of the kind                                              */
} coll__pipe;

/* A descriptor of -1: the pipe has a new owner, or is closed. */
static void coll__pipe_close(coll__pipe *p)
{
    if (p->kind) p->kind->close(p);
    coll__close_fd(&p->fd);
    p->kind = NULL;
    p->state = NULL;
}

/* Move a pipe to a new owner.  Never copy one otherwise: descriptor, kind and state have one owner. */
static inline coll__pipe coll__pipe_take(coll__pipe *from)
{
    const coll__pipe pipe = *from;

    *from = (coll__pipe){ .fd = -1 };
    return pipe;
}

/* May a back end use the socket directly? */
static inline bool coll__pipe_is_plain(const coll__pipe *p) { return !p->kind; }

/* Returns bytes sent, or -1 with errno; EAGAIN: none now. */
static inline ssize_t coll__pipe_send(coll__pipe *p, const struct msghdr *m)
{
    return p->kind ? p->kind->send(p, m->msg_iov, (int)m->msg_iovlen) : sendmsg(p->fd, m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The same for receiving; 0: end of stream. */
static inline ssize_t coll__pipe_recv(coll__pipe *p, struct msghdr *m)
{
    return p->kind ? p->kind->recv(p, m->msg_iov, (int)m->msg_iovlen) : recvmsg(p->fd, m, MSG_DONTWAIT);
}

/* Continue with bytes that count as sent and may have to be sent again.  0: none; EAGAIN: call again; or another errno. */
static inline int coll__pipe_bring(coll__pipe *p) { return p->kind && p->kind->bring ? p->kind->bring(p) : 0; }

/* Before sleeping until `want`: what to poll the socket for.  0: do not sleep, it is ready. */
static inline short coll__pipe_await(coll__pipe *p, short want) { return p->kind ? p->kind->await(p, want) : want; }

/* The same for one buffer. */
static inline ssize_t coll__pipe_write(coll__pipe *p, const void *bytes, size_t length)
{
    const struct iovec piece = { coll__behind(bytes, 0), length };
    return p->kind ? p->kind->send(p, &piece, 1) : send(p->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static inline ssize_t coll__pipe_read(coll__pipe *p, void *bytes, size_t length)
{
    const struct iovec piece = { bytes, length };
    return p->kind ? p->kind->recv(p, &piece, 1) : recv(p->fd, bytes, length, MSG_DONTWAIT);
}

/* Read or write.  Returns bytes, or a negative errno: -EAGAIN; -ECONNRESET at the end of the stream. */
static ssize_t coll__pipe_move(coll__pipe *p, unsigned char *bytes, size_t length, bool is_write)
{
    const ssize_t n = is_write ? coll__pipe_write(p, bytes, length) : coll__pipe_read(p, bytes, length);

    if (n > 0) return n;
    return n == 0 ? -ECONNRESET : errno == EINTR ? -EAGAIN : -errno;
}

/* Move all bytes before the deadline.  Returns 0 or an errno: ETIMEDOUT, ECONNRESET at the end of the stream, ... */
static int coll__pipe_transfer(coll__pipe *p, unsigned char *bytes, size_t length, bool is_write, int64_t deadline)
{
    while (length > 0) {
        const ssize_t n = coll__pipe_move(p, bytes, length, is_write);
        if (n > 0) {
            bytes += n;
            length -= (size_t)n;
            continue;
        }
        if (n != -EAGAIN) return (int)-n;
        const int ms = coll__ms_until(deadline, 60000);
        struct pollfd at = { .fd = p->fd, .events = coll__pipe_await(p, is_write ? POLLOUT : POLLIN) };
        if (ms == 0) return ETIMEDOUT;
        if (at.events) (void)poll(&at, 1, ms);
    }
    return 0;
}

#endif /* COLL_TCP_PIPE_H */
