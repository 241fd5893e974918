/* coll_tcp_dial.h - connecting to a rank: the connect and the handshake, without blocking.
 *
 * Data connections decide themselves which address is next, and when; all others have a dialler. */
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

/* An address of a rank; link-local ones get the interface of this rank's connection to rank 0. */
static coll__address coll__endpoint_address(const coll__endpoint *to, int which, unsigned scope)
{
    coll__address a = coll__address_with(to->addresses[which], to->port);

    if (coll__is_link_local(a.bytes)) a.scope = scope;
    return a;
}

/* Attempts to connect to a rank, one after the other, each to its next address. */
typedef struct coll__dialler {
    coll__handshake *handshake;                   /* of the attempt under way; NULL: none                     */
    int     calls, refusals;                      /* attempts; refused connects, in a row                     */
    int64_t call_at;                              /* the caller begins none earlier                           */
} coll__dialler;

/* Begin an attempt, or continue it.  COLL_OK: take the pipe of its handshake.  An error: as above.  The caller ends it. */
static coll_status coll__dialler_advance(coll__dialler *d, const coll__identity *us, const coll__endpoint *to, unsigned scope,
                                         coll__hello hello, int *error)
{
    const coll__address a = coll__endpoint_address(to, d->handshake ? 0 : d->calls++ % to->count, scope);

    if (!d->handshake) d->handshake = coll__dial_begin(us, &a, hello, coll__never);
    *error = d->handshake ? 0 : errno;
    const coll_status status = *error ? COLL_ERR_PEER : coll__dial_advance(d->handshake, us, error);
    if (*error || d->handshake->is_reached) d->refusals = *error == ECONNREFUSED ? d->refusals + 1 : 0;
    return status;
}

#endif /* COLL_TCP_DIAL_H */
