/* star.h - a simple star, for comparison: every worker sends its part to rank 0 over its own socket, rank 0 adds the parts, one
 * rank after the other, and sends the sum back.  The ranks must have the same byte order. */
#ifndef STAR_H
#define STAR_H

#include "../../coll.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { STAR_MOST = 64 };

/* Of rank 0: fd[r] leads to rank r.  Of a worker: fd[0] leads to rank 0. */
typedef struct star { int rank, size, fd[STAR_MOST]; } star;

static inline bool star_send(int fd, const void *from, size_t length)
{
    for (const char *at = from; length > 0; ) {
        const ssize_t n = send(fd, at, length, MSG_NOSIGNAL);
        if (n <= 0) return false;
        at += n, length -= (size_t)n;
    }
    return true;
}

static inline bool star_recv(int fd, void *to, size_t length)
{
    for (char *at = to; length > 0; ) {
        const ssize_t n = recv(fd, at, length, 0);
        if (n <= 0) return false;
        at += n, length -= (size_t)n;
    }
    return true;
}

static inline void star_close(star *s)
{
    for (int r = 0; r < s->size; r++) if (s->fd[r] >= 0) close(s->fd[r]);
    s->size = 0;
}

/* Where rank 0 listens, sent to all: its host is that of COLL_ADDR, or this one. */
static inline bool star_listen(int *fd, struct sockaddr_in *address)
{
    const char *const given = getenv("COLL_ADDR");
    const char *const colon = given ? strrchr(given, ':') : NULL;
    char host[256] = "127.0.0.1";
    struct addrinfo *found, hint = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
    socklen_t length = sizeof *address;
    const struct timeval time_limit = { .tv_sec = 20 };       /* for a worker to connect                         */

    if (colon && colon != given && strncmp(given, "file:", 5) != 0)
        snprintf(host, sizeof host, "%.*s", (int)(colon - given), given);
    if (getaddrinfo(host, NULL, &hint, &found)) return false;
    memcpy(address, found->ai_addr, sizeof *address);
    freeaddrinfo(found);
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    return *fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &time_limit, sizeof time_limit) == 0
           && bind(*fd, (struct sockaddr *)address, sizeof *address) == 0 && listen(*fd, STAR_MOST) == 0
           && getsockname(*fd, (struct sockaddr *)address, &length) == 0;
}

/* Connect the ranks of `comm`; a broadcast sends the address of rank 0.  Called by all. */
static inline bool star_open(star *s, coll_comm *comm)
{
    const int on = 1;
    struct sockaddr_in address = { 0 };
    int comm_lock = -1, peer;
    bool ok = coll_size(comm) <= STAR_MOST;

    *s = (star){ .rank = coll_rank(comm), .size = ok ? coll_size(comm) : 0 };
    for (int r = 0; r < STAR_MOST; r++) s->fd[r] = -1;
    if (ok && s->rank == 0) ok = star_listen(&comm_lock, &address);
    if (!ok) address.sin_port = 0;
    if (coll_broadcast(comm, &address, sizeof address, COLL_U8, 0) || address.sin_port == 0) ok = false;
    if (ok && s->rank > 0) {
        s->fd[0] = socket(AF_INET, SOCK_STREAM, 0);
        ok = s->fd[0] >= 0 && connect(s->fd[0], (struct sockaddr *)&address, sizeof address) == 0
             && setsockopt(s->fd[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0
             && star_send(s->fd[0], &s->rank, sizeof s->rank);
    }
    for (int r = 1; ok && s->rank == 0 && r < s->size; r++) {
        const int fd = accept(comm_lock, NULL, NULL);
        ok = fd >= 0 && star_recv(fd, &peer, sizeof peer) && peer > 0 && peer < s->size && s->fd[peer] < 0
             && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0;
        if (ok) s->fd[peer] = fd;
        else if (fd >= 0) close(fd);
    }
    if (comm_lock >= 0) close(comm_lock);
    return ok;
}

/* x = the sum over all ranks; `room` is for as many. */
static inline bool star_sum(star *s, float *x, float *room, size_t count)
{
    if (s->rank > 0) return star_send(s->fd[0], x, count * sizeof *x) && star_recv(s->fd[0], x, count * sizeof *x);
    for (int r = 1; r < s->size; r++) {
        if (!star_recv(s->fd[r], room, count * sizeof *x)) return false;
        for (size_t i = 0; i < count; i++) x[i] += room[i];
    }
    for (int r = 1; r < s->size; r++) if (!star_send(s->fd[r], x, count * sizeof *x)) return false;
    return true;
}

/* What rank 0 has goes to all. */
static inline bool star_broadcast(star *s, void *what, size_t length)
{
    if (s->rank > 0) return star_recv(s->fd[0], what, length);
    for (int r = 1; r < s->size; r++) if (!star_send(s->fd[r], what, length)) return false;
    return true;
}

#endif /* STAR_H */
