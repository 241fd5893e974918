/* coll_tcp_socket.h - sockets: listening, and connecting to one or several addresses. */
#ifndef COLL_TCP_SOCKET_H
#define COLL_TCP_SOCKET_H

/* Options of all connections: no delay, and keepalive probes after 10 s without traffic.  Without heartbeats, these detect a
 * vanished host after 25 s.  If data was in flight, the kernel takes 15 minutes. */
static void coll__tune_socket(int fd)
{
    enum { IDLE = 10, INTERVAL = 5, PROBES = 3 };

    coll__socket_number(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    coll__socket_number(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    coll__keep_alive(fd, IDLE, INTERVAL, PROBES);
}

/* A connection within one kernel has no congestion.  bbr, the default of many systems, paces it nevertheless, and so does any
 * other algorithm set after bbr.  reno does not, and needs no privilege.  So it is set before the connect; failure is ignored. */
static void coll__congest_unpaced(int fd)
{
#if defined(TCP_CONGESTION)
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
#endif
    (void)fd;
}

/* Restore the system's default, unless a route has set another one. */
static void coll__congest_as_usual(int fd)
{
#if defined(TCP_CONGESTION)
    char usual[16] = "", has[16] = "";
    socklen_t length = sizeof usual, has_length = sizeof has;
    const int fresh = coll__socket(AF_INET, SOCK_STREAM, true);

    (void)getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, has, &has_length);
    if (fresh >= 0 && !strncmp(has, "reno", sizeof has) && !getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, usual, &length))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, usual, length);
    if (fresh >= 0) close(fresh);
#endif
    (void)fd;
}

/* Close it, and keep errno.  Returns -1. */
static int coll__socket_failed(int fd)
{
    const int error = errno;

    close(fd);
    errno = error;
    return -1;
}

/* A listening socket, or -1 with errno.  SO_REUSEADDR allows ports of jobs that ended recently; SO_REUSEPORT is not set, for
 * two jobs could share a port.  The IPv6 wildcard address includes IPv4, and without IPv6 it is that of IPv4. */
static int coll__listen_at(const coll__address *a)
{
    const bool is_v4 = coll__is_v4(a->bytes);
    const int fd = coll__socket(coll__family_of(a), SOCK_STREAM, false);

    if (fd >= 0) {
        coll__socket_number(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        if (!is_v4) coll__socket_number(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        coll__congest_unpaced(fd);                /* inherited by accepted sockets                            */
        if (coll__bind(fd, a) && !listen(fd, 4096)) return fd;
        (void)coll__socket_failed(fd);
    }
    if (is_v4 || !coll__is_wide(a->bytes) || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL && errno != EINVAL)) return -1;
    coll__address only = { .port = a->port };
    memcpy(only.bytes, coll__v4_prefix, sizeof coll__v4_prefix);
    return coll__listen_at(&only);
}

/* Is the address local? */
static bool coll__is_ours(coll__address a)
{
    const int fd = coll__socket(coll__family_of(&a), SOCK_STREAM, true);

    a.port = 0;
    const bool is_ours = fd >= 0 && coll__bind(fd, &a);
    if (fd >= 0) close(fd);
    return is_ours;
}

/* Listen at `a`; if its port is 0, at a port of the configured range, where `start` spreads the ranks. */
static int coll__listen_within(const coll__network *network, coll__address a, int start)
{
    const int count = a.port == 0 && network->port_first > 0 ? network->port_last - network->port_first + 1 : 0;
    int fd = count == 0 ? coll__listen_at(&a) : -1;

    for (int i = 0; i < count && fd < 0; i++) {
        a.port = network->port_first + (start + i) % count;
        fd = coll__listen_at(&a);
        if (fd < 0 && errno != EADDRINUSE && errno != EACCES) return -1;
    }
    return fd;
}

/* Begin to connect, from `from` if not NULL; the socket becomes writable when the connect ends.  -1: errno. */
static int coll__dial_from(const coll__address *a, const coll__address *from)
{
    const int fd = coll__socket(coll__family_of(a), SOCK_STREAM, false);

    if (fd < 0) return -1;
    coll__tune_socket(fd);
    if (coll__is_ours(*a)) coll__congest_unpaced(fd);
    if (from && !coll__bind(fd, from)) return coll__socket_failed(fd);
    return coll__connect(fd, a) || errno == EINPROGRESS ? fd : coll__socket_failed(fd);
}

static int coll__dial(const coll__address *a) { return coll__dial_from(a, NULL); }

/* Restore the default for an accepted connection from another host. */
static void coll__congest_accepted(int fd)
{
    const coll__address here = coll__name_of(fd, false), there = coll__name_of(fd, true);

    if (memcmp(here.bytes, there.bytes, sizeof here.bytes)) coll__congest_as_usual(fd);
}

/* Result of a connect: 0 or an errno.  A socket connected to itself, with the same port at both ends, counts as refused. */
static int coll__dial_result(int fd)
{
    int error = 0;
    socklen_t length = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length)) return errno;
    if (error) return error;
    const coll__address here = coll__name_of(fd, false), there = coll__name_of(fd, true);
    if (there.port == 0) return ENOTCONN;
    return coll__is_same_address(&here, &there) ? ECONNREFUSED : 0;
}

/* ---- >>ways: connecting to one of several addresses ---- */

enum { COLL__WAYS_MOST = 2 * COLL__ADDRESSES_MOST, COLL__STAGGER_MS = 250 };

typedef struct coll__way {
    coll__address to, from;                       /* from: zeros for any local address                        */
    int  fd;                                      /* while connecting                                         */
    bool is_begun;
    char why[200];                                /* result                                                   */
} coll__way;

typedef struct coll__ways {
    coll__way way[COLL__WAYS_MOST];
    int count;
} coll__ways;

/* Combine each address with the configured local addresses of its family. */
static void coll__ways_make(coll__ways *ways, const coll__address *list, int count, const coll__network *network)
{
    ways->count = 0;
    for (int i = 0; i < count; i++) {
        int bound = 0;
        for (int k = 0; k < network->count && !coll__is_loopback(list[i].bytes); k++) {
            const coll__address from = coll__address_with(network->addresses[k], 0);
            if (coll__family_of(&from) != coll__family_of(&list[i]) || coll__is_loopback(from.bytes)
                || ways->count == COLL__WAYS_MOST) continue;
            ways->way[ways->count++] = (coll__way){ .to = list[i], .from = from, .fd = -1 };
            bound++;
        }
        if (bound == 0 && ways->count < COLL__WAYS_MOST) ways->way[ways->count++] = (coll__way){ .to = list[i], .fd = -1 };
    }
}

static void coll__way_ends(coll__way *way, const char *why)
{
    coll__close_fd(&way->fd);
    coll__print(way->why, sizeof way->why, "%s", why);
}

/* Wait at most `ms`.  Returns a connected way, or -1. */
static int coll__ways_look(coll__ways *ways, int ms)
{
    struct pollfd fds[COLL__WAYS_MOST];

    for (int i = 0; i < ways->count; i++) fds[i] = (struct pollfd){ .fd = ways->way[i].fd, .events = POLLOUT };
    if (poll(fds, (nfds_t)ways->count, ms) <= 0) return -1;
    for (int i = 0; i < ways->count; i++) {
        if (ways->way[i].fd < 0 || !fds[i].revents) continue;
        const int error = coll__dial_result(ways->way[i].fd);
        if (!error) return i;
        coll__way_ends(&ways->way[i], strerror(error));
    }
    return -1;
}

/* Start the connects in turn: the next one once the earlier ones have failed or COLL__STAGGER_MS have passed.  Returns the
 * first that connects; the caller owns its socket.  Ways that have ended are skipped.  -1: none before `limit`; each `why` says
 * why. */
static int coll__ways_connect(coll__ways *ways, int64_t limit)
{
    int64_t next = 0;

    for (;;) {
        int open = 0, waiting = -1;
        for (int i = 0; i < ways->count; i++) open += ways->way[i].fd >= 0;
        for (int i = ways->count - 1; i >= 0; i--) if (!ways->way[i].is_begun) waiting = i;
        const int64_t now = coll__now();
        if ((open == 0 && waiting < 0) || now >= limit) break;
        if (waiting >= 0 && (open == 0 || now >= next)) {
            coll__way *const way = &ways->way[waiting];
            way->is_begun = true;
            way->fd = coll__dial_from(&way->to, coll__is_wide(way->from.bytes) ? NULL : &way->from);
            if (way->fd < 0) coll__way_ends(way, strerror(errno));
            next = now + (int64_t)COLL__STAGGER_MS * COLL__MS;
        }
        const int found = coll__ways_look(ways, coll__ms_until(waiting >= 0 && next < limit ? next : limit, 1000));
        if (found >= 0) return found;
    }
    for (int i = 0; i < ways->count; i++) if (ways->way[i].fd >= 0) coll__way_ends(&ways->way[i], "no answer");
    return -1;
}

/* Cancel the connects in progress; they may be started again. */
static void coll__ways_rest(coll__ways *ways)
{
    for (int i = 0; i < ways->count; i++) {
        if (ways->way[i].fd >= 0) ways->way[i].is_begun = false;
        coll__close_fd(&ways->way[i].fd);
    }
}

/* "10.0.0.1:5000: Connection refused; [fd00::1]:5000: Network is unreachable" */
static void coll__ways_text(const coll__ways *ways, char *text, size_t room)
{
    char to[COLL__ADDRESS_TEXT], from[COLL__ADDRESS_TEXT];

    *text = '\0';
    for (int i = 0; i < ways->count; i++) {
        const coll__way *way = &ways->way[i];
        coll__append(text, room, "%s%s", *text ? "; " : "", coll__address_text(&way->to, to, sizeof to));
        if (!coll__is_wide(way->from.bytes))
            coll__append(text, room, " from %s", coll__address_text(&way->from, from, sizeof from));
        coll__append(text, room, ": %s", *way->why ? way->why : "not tried");
    }
}

/* Text for a closed connection, whatever its errno, or for modified bytes. */
static const char *coll__ending_text(int error)
{
    if (error == EBADMSG) return "what came from it is not what it sent";
    const bool is_closed = error == 0 || error == EPIPE || error == ECONNRESET || error == ENOTCONN;
    return is_closed ? "connection closed" : strerror(error);
}

/* Text about a peer whose connection ended.  If it only stopped answering, the link may have failed. */
static const char *coll__lost_text(int error, int rank, int peer, char *text, size_t room)
{
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
        coll__print(text, room, "gives no answer (%s): its host is gone, or the link between rank %d and rank %d",
                    strerror(error), rank < peer ? rank : peer, rank < peer ? peer : rank);
    else coll__print(text, room, "is gone: %s", coll__ending_text(error));
    return text;
}

static coll_status coll__ending_status(int error) { return error == EBADMSG ? COLL_ERR_PROTOCOL : COLL_ERR_PEER; }

#endif /* COLL_TCP_SOCKET_H */
