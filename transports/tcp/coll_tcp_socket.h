/* coll_tcp_socket.h - sockets: names and addresses, listening, dialling. */
#ifndef COLL_TCP_SOCKET_H
#define COLL_TCP_SOCKET_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

typedef struct coll__address {
    struct sockaddr_storage at;
    socklen_t length;
} coll__address;

enum { COLL__ADDRESS_TEXT = 80 };

/* "127.0.0.1:5000" or "[::1]:5000" */
static const char *coll__address_text(const coll__address *a, char *text, size_t room)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (a->at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&a->at;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        coll__print(text, room, "[%s]:%d", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&a->at;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        coll__print(text, room, "%s:%d", host, ntohs(v4->sin_port));
    }
    return text;
}

static const unsigned char coll__v4_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

/* To and from the sixteen bytes and the port that travel. */
static void coll__address_pack(const coll__address *a, unsigned char *bytes, int *port)
{
    if (a->at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&a->at;
        memcpy(bytes, &v6->sin6_addr, 16);
        *port = ntohs(v6->sin6_port);
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&a->at;
        memcpy(bytes, coll__v4_prefix, 12);
        memcpy(bytes + 12, &v4->sin_addr, 4);
        *port = ntohs(v4->sin_port);
    }
}

static coll__address coll__address_unpack(const unsigned char *bytes, int port)
{
    coll__address a = { .length = sizeof(struct sockaddr_in6) };

    if (!memcmp(bytes, coll__v4_prefix, 12)) {
        struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
        memcpy(&v4.sin_addr, bytes + 12, 4);
        memcpy(&a.at, &v4, sizeof v4);
        a.length = sizeof v4;
    } else {
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
        memcpy(&v6.sin6_addr, bytes, 16);
        memcpy(&a.at, &v6, sizeof v6);
    }
    return a;
}

static bool coll__is_loopback(const unsigned char *bytes)
{
    static const unsigned char v6[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 };
    return !memcmp(bytes, v6, 16) || (!memcmp(bytes, coll__v4_prefix, 12) && bytes[12] == 127);
}

/* The first address of "host:port".  NULL: found; otherwise why not. */
static const char *coll__resolve(const char *text, bool is_to_listen, coll__address *out, bool *may_come)
{
    char host[256], service[16];
    int port = 0;
    struct addrinfo want = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | (is_to_listen ? AI_PASSIVE : 0) }, *list;

    *may_come = false;
    if (!coll__address_split(text, host, sizeof host, &port) || port == 0) return "it is not of the form host:port";
    coll__print(service, sizeof service, "%d", port);
    const int error = getaddrinfo(*host ? host : NULL, service, &want, &list);
    *may_come = error == EAI_AGAIN || error == EAI_NONAME;    /* names of hosts that start late               */
    if (error) return error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error);
    memcpy(&out->at, list->ai_addr, list->ai_addrlen);
    out->length = list->ai_addrlen;
    freeaddrinfo(list);
    return NULL;
}

/* The same address with another port. */
static coll__address coll__with_port(coll__address a, int port)
{
    if (a.at.ss_family == AF_INET6) ((struct sockaddr_in6 *)(void *)&a.at)->sin6_port = htons((uint16_t)port);
    else ((struct sockaddr_in *)(void *)&a.at)->sin_port = htons((uint16_t)port);
    return a;
}

static void coll__close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* What every connection of ours is set to: no delay, and dead hosts noticed in about 25 s. */
static void coll__tune_socket(int fd)
{
    const int one = 1, idle = 10, interval = 5, probes = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* A listening socket, or -1 with errno.  SO_REUSEADDR, for ports of jobs that ended a moment ago; never SO_REUSEPORT,
 * which would let two jobs share one. */
static int coll__listen_at(const coll__address *a)
{
    const int one = 1, fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(fd, (const struct sockaddr *)&a->at, a->length) && !listen(fd, 4096)) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static coll__address coll__name_of(int fd, bool of_peer)
{
    coll__address a = { .length = sizeof a.at };
    if (of_peer ? getpeername(fd, (struct sockaddr *)&a.at, &a.length) : getsockname(fd, (struct sockaddr *)&a.at, &a.length))
        a.length = 0;
    return a;
}

/* Begin to connect; the socket is writable when that is decided.  -1: errno. */
static int coll__dial(const coll__address *a)
{
    const int fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) return -1;
    coll__tune_socket(fd);
    if (!connect(fd, (const struct sockaddr *)&a->at, a->length) || errno == EINPROGRESS) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* How a connect has ended: 0 or an errno.  A socket that reached itself, by both ends picking one port, was refused. */
static int coll__dial_result(int fd)
{
    int error = 0;
    socklen_t length = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length)) return errno;
    if (error) return error;
    const coll__address here = coll__name_of(fd, false), there = coll__name_of(fd, true);
    if (there.length == 0) return ENOTCONN;
    if (here.length == there.length && !memcmp(&here.at, &there.at, here.length)) return ECONNREFUSED;
    return 0;
}

/* Calls say themselves when they must not block; both back ends then use the same socket. */
static void coll__make_blocking(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

static int coll__accept(int listener)
{
    return (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
}

/* Ended by the other side, whatever the kernel calls it; or of no use any more, for its bytes were changed on the way. */
static const char *coll__ending_text(int error)
{
    if (error == EBADMSG) return "what came from it is not what it sent";
    const bool is_closed = error == 0 || error == EPIPE || error == ECONNRESET || error == ENOTCONN;
    return is_closed ? "connection closed" : strerror(error);
}

static coll_status coll__ending_status(int error) { return error == EBADMSG ? COLL_ERR_PROTOCOL : COLL_ERR_PEER; }

#endif /* COLL_TCP_SOCKET_H */
