/* coll_tcp_system.h - system calls for TCP beyond POSIX: close-on-exec sockets, timeouts, and connection state.  One half is for
 * Linux, the other for any POSIX system (COLL_PORTABLE, coll_system.h), where some of this is not available. */
#ifndef COLL_TCP_SYSTEM_H
#define COLL_TCP_SYSTEM_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0                            /* SO_NOSIGPIPE replaces it                                 */
#endif

static void coll__socket_number(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

/* Probe after `idle` seconds without traffic, then every `interval`; that many without an answer end the connection. */
static void coll__keep_alive(int fd, int idle, int interval, int probes)
{
#if defined(TCP_KEEPIDLE)
    coll__socket_number(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
#elif defined(TCP_KEEPALIVE)
    coll__socket_number(fd, IPPROTO_TCP, TCP_KEEPALIVE, idle);                    /* the name on macOS        */
#endif
#if defined(TCP_KEEPINTVL) && defined(TCP_KEEPCNT)
    coll__socket_number(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
    coll__socket_number(fd, IPPROTO_TCP, TCP_KEEPCNT, probes);
#endif
    (void)fd, (void)idle, (void)interval, (void)probes;
}

/* Limit the unsent bytes in the kernel's buffer. */
static COLL__UNUSED void coll__limit_unsent(int fd, int bytes)
{
#if defined(TCP_NOTSENT_LOWAT)
    coll__socket_number(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes);
#endif
    (void)fd, (void)bytes;
}

/* Bytes sent and not acknowledged by the peer's kernel.  Where this fails, a leaving rank does not wait for acknowledgments. */
static int coll__unacknowledged(int fd)
{
    int count = 0;
    return ioctl(fd, TIOCOUTQ, &count) ? 0 : count;
}

/* Two hosts may have one name, and even one address behind different routers; both at once they do not have. */
static void coll__host_names(char *text, size_t room)
{
    struct ifaddrs *all = NULL;
    char name[64] = "", at[64];

    (void)gethostname(name, sizeof name - 1);
    coll__print(text, room, "%s", name);
    if (getifaddrs(&all)) return;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)one->ifa_addr;
        if (inet_ntop(AF_INET, &v4->sin_addr, at, sizeof at)) coll__append(text, room, " %s", at);
    }
    freeifaddrs(all);
}

#if !defined(COLL_PORTABLE)

/* ---- >>Linux ---- */

/* Non-blocking calls use MSG_DONTWAIT; connect and accept block unless the socket does not. */
static int coll__socket(int family, int kind, bool waits)
{
    return coll__fd_above(socket(family, kind | SOCK_CLOEXEC | (waits ? 0 : SOCK_NONBLOCK), 0));
}

static int coll__accept(int listener)
{
    return coll__fd_above((int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC));
}

/* End the connection if sent data is not acknowledged within `ms`; 0: the kernel's default. */
static void coll__user_timeout(int fd, int ms) { coll__socket_number(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms); }

/* Limit the interval of retransmissions. */
static void coll__ask_again_within(int fd, int ms)
{
    enum { RTO_MAX_MS = 44 };                     /* TCP_RTO_MAX_MS of Linux 6.15; older kernels ignore it    */
    coll__socket_number(fd, IPPROTO_TCP, RTO_MAX_MS, ms);
}

/* The start of the kernel's struct tcp_info, which musl declares for _GNU_SOURCE only. */
typedef struct coll__tcp_info {
    uint8_t  state, ca_state, retransmits, probes, others[4];
    uint32_t rto, ato, snd_mss, rcv_mss, unacked, sacked, lost, retrans, fackets;
    uint32_t last_data_sent, last_ack_sent, last_data_recv, last_ack_recv;
} coll__tcp_info;

/* For how long, in ms, has the peer's kernel not answered a retransmission?  -1: no answer is due.  A slow reader or a
 * suspended process does not count, for its kernel answers. */
static int64_t coll__unanswered_ms(int fd)
{
    coll__tcp_info info;
    socklen_t length = sizeof info;

    memset(&info, 0, sizeof info);
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) || info.state != TCP_ESTABLISHED) return -1;
    return info.probes > 0 || (info.unacked > 0 && info.retransmits > 0) ? (int64_t)info.last_ack_recv : -1;
}

/* The process at the other end of a local socket; 0: unknown. */
static int coll__process_behind(int fd)
{
    int who[3] = { 0, 0, 0 };                     /* struct ucred, declared for _GNU_SOURCE only              */
    socklen_t length = sizeof who;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &length) || who[0] <= 0 ? 0 : who[0];
}

/* A text that identifies the host and its network.  Without /proc: its names. */
static void coll__host_text(char *text, size_t room)
{
    char line[64] = "";
    struct stat s;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (f) {
        if (!fgets(line, sizeof line, f)) line[0] = '\0';
        fclose(f);
    }
    if (!*line) {
        coll__host_names(text, room);
        return;
    }
    const bool has_network = !stat("/proc/thread-self/ns/net", &s) || !stat("/proc/self/ns/net", &s);
    const unsigned long long inode = has_network ? (unsigned long long)s.st_ino : 0;
    coll__print(text, room, "%s %llu", line, inode);
}

#else

/* ---- >>any POSIX system ---- */

/* A fork between the two calls would inherit the descriptor. */
static int coll__socket_kept(int made, bool waits)
{
    const int fd = coll__fd_above(made);

    if (fd < 0) return fd;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd, F_SETFL, waits ? fcntl(fd, F_GETFL) & ~O_NONBLOCK : fcntl(fd, F_GETFL) | O_NONBLOCK);
#if defined(SO_NOSIGPIPE)
    coll__socket_number(fd, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
    return fd;
}

static int coll__socket(int family, int kind, bool waits) { return coll__socket_kept(socket(family, kind, 0), waits); }
static int coll__accept(int listener) { return coll__socket_kept(accept(listener, NULL, NULL), true); }

static void coll__user_timeout(int fd, int ms) { (void)fd, (void)ms; }
static void coll__ask_again_within(int fd, int ms) { (void)fd, (void)ms; }
static int64_t coll__unanswered_ms(int fd) { return (void)fd, -1; }
static int coll__process_behind(int fd) { return (void)fd, 0; }

static void coll__host_text(char *text, size_t room) { coll__host_names(text, room); }

#endif
#endif /* COLL_TCP_SYSTEM_H */
