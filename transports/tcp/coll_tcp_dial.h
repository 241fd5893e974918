/* coll_tcp_dial.h - connecting to a rank: the connect and the handshake, without blocking.
 *
 * Data connections, liveness probes and agreements all connect so.  The caller decides which address is next, and when. */
#ifndef COLL_TCP_DIAL_H
#define COLL_TCP_DIAL_H

/* Begin to connect.  Poll for `want` of the result before each advance.  NULL: errno. */
static coll__handshake *coll__dial_begin(const coll__identity *us, const coll__address *to, coll__hello hello, int64_t deadline)
{
    const int fd = coll__dial(to);
    coll__handshake *const g = fd < 0 ? NULL : (coll__handshake *)coll__take(us->memory, sizeof *g);

    if (g) coll__handshake_call(g, us, fd, hello, deadline);
    if (fd >= 0 && !g) {
        close(fd);
        errno = ENOMEM;
    }
    return g;
}

/* COLL_OK: the other host has accepted the connection.  COLL_ERR_PEER: *error is the errno of the connect, otherwise 0. */
static coll_status coll__dial_reach(coll__handshake *g, int *error)
{
    struct pollfd at = { .fd = g->pipe.fd, .events = POLLOUT };

    *error = 0;
    if (g->is_reached) return COLL_OK;
    if (poll(&at, 1, 0) <= 0) return COLL_PENDING;
    *error = coll__dial_result(at.fd);
    g->is_reached = !*error;
    return *error ? COLL_ERR_PEER : COLL_OK;
}

/* COLL_OK: the pipe is ready.  An error: *error as above; if it is 0, see coll__handshake_advance. */
static coll_status coll__dial_advance(coll__handshake *g, const coll__identity *us, int *error)
{
    const coll_status status = coll__dial_reach(g, error);

    return status == COLL_OK ? coll__handshake_advance(g, us) : status;
}

/* End an attempt; closes the pipe unless it was taken. */
static void coll__dial_end(coll__handshake **g)
{
    if (*g) coll__pipe_close(&(*g)->pipe);
    coll__give(*g);
    *g = NULL;
}

#endif /* COLL_TCP_DIAL_H */
