/* process_sockets.h - the TCP sockets of another process, through copies of its descriptors: an operation on such a copy acts on
 * the connection, and the process that owns it sees the effect only through the kernel.  Needs the right to trace it. */
#ifndef TESTS_REACH_H
#define TESTS_REACH_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REACH static __attribute__((unused))

enum { REACH_MOST = 64, REACH_PIDFD_OPEN = 434, REACH_PIDFD_GETFD = 438, REACH_ESTABLISHED = 1, REACH_LISTEN = 10 };

typedef struct reached {
    int fd;                                       /* ours                                                     */
    int state;                                    /* REACH_ESTABLISHED, ...                                   */
    struct sockaddr_in here, there;
    uint64_t acknowledged;                        /* bytes that the other side's kernel has                   */
    unsigned queued;                              /* listening: connections that were not accepted yet        */
    int unread;                                   /* received bytes that were not read                        */
} reached;

typedef struct reach { int count; reached at[REACH_MOST]; } reach;

/* The front of the kernel's struct tcp_info, of which C libraries declare only a part. */
typedef struct reach_info {
    uint8_t  state, others[7];
    uint32_t words[24];
    uint64_t pacing, most_pacing, acknowledged, received;
} reach_info;

/* IPv4, also if it is mapped into IPv6. */
REACH void reach_name(int fd, bool of_peer, struct sockaddr_in *out)
{
    struct sockaddr_in6 a;
    socklen_t length = sizeof a;

    memset(&a, 0, sizeof a);
    memset(out, 0, sizeof *out);
    if (of_peer ? getpeername(fd, (struct sockaddr *)&a, &length) : getsockname(fd, (struct sockaddr *)&a, &length)) return;
    out->sin_family = AF_INET;
    out->sin_port = a.sin6_port;                  /* in the same place                                        */
    if (a.sin6_family == AF_INET) memcpy(&out->sin_addr, (unsigned char *)&a + 4, 4);
    else memcpy(&out->sin_addr, (unsigned char *)&a.sin6_addr + 12, 4);
}

/* Is it TCP?  Then learn about it. */
REACH bool reach_learn(int fd, reached *r)
{
    reach_info info;
    socklen_t length = sizeof info;

    memset(r, 0, sizeof *r);
    memset(&info, 0, sizeof info);
    r->fd = fd;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length)) return false;
    reach_name(fd, false, &r->here);
    reach_name(fd, true, &r->there);
    r->state = info.state;
    r->acknowledged = info.acknowledged;
    r->queued = info.state == REACH_LISTEN ? info.words[4] : 0;
    if (info.state != REACH_LISTEN && ioctl(fd, FIONREAD, &r->unread)) r->unread = 0;
    return true;
}

REACH void reach_end(reach *all)
{
    for (int i = 0; i < all->count; i++) close(all->at[i].fd);
    all->count = 0;
}

/* All TCP sockets that this process has open now.  Returns how many. */
REACH int reach_into(pid_t pid, reach *all)
{
    char path[40];
    const int process = (int)syscall(REACH_PIDFD_OPEN, pid, 0);
    const struct dirent *entry;

    all->count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *list = process < 0 ? NULL : opendir(path);
    while (list && all->count < REACH_MOST && (entry = readdir(list)) != NULL) {
        char name[300], what[40] = "";
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        const ssize_t length = readlink(name, what, sizeof what - 1);
        if (length < 7 || strncmp(what, "socket:", 7)) continue;
        const int fd = (int)syscall(REACH_PIDFD_GETFD, process, atoi(entry->d_name), 0);
        if (fd < 0) continue;
        if (reach_learn(fd, &all->at[all->count])) all->count++;
        else close(fd);
    }
    if (list) closedir(list);
    if (process >= 0) close(process);
    return all->count;
}

/* ---- >>faults of a connection ---- */

/* Both ends see it reset. */
REACH bool reach_reset(const reached *r)
{
    struct sockaddr none;

    memset(&none, 0, sizeof none);
    none.sa_family = AF_UNSPEC;
    return !connect(r->fd, &none, sizeof none);
}

/* This end sends no more. */
REACH bool reach_half_close(const reached *r) { return !shutdown(r->fd, SHUT_WR); }

/* Bytes that the owner never sent.  false: there is no room for a single one. */
REACH bool reach_say(const reached *r, const void *bytes, size_t length)
{
    return send(r->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

#endif /* TESTS_REACH_H */
