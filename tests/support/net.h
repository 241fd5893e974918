/* net.h - a network of its own for a test: hosts that are network namespaces, joined by a switch that is another one.
 *
 *     host 0   10.77.0.1 --+
 *     host 1   10.77.0.2 --+-- switch (a bridge), 10.77.0.250
 *     ...                --+
 *
 * Each namespace is held by a child process and has no other name, so nothing is left behind however the test ends.  Needs
 * root, or leave to make user namespaces, and the programs ip (iproute2) and nft (nftables). */
#ifndef TESTS_NET_H
#define TESTS_NET_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NET static __attribute__((unused))

enum { NET_HOSTS_MOST = 8, NET_SWITCH = NET_HOSTS_MOST, NET_NEWUSER = 0x10000000, NET_NEWNET = 0x40000000 };

typedef struct net {
    pid_t holders[NET_HOSTS_MOST + 1];            /* the last one holds the switch                            */
    char  why[160];                               /* why there is no network                                  */
    bool  is_refused;                             /* because this machine does not permit it                  */
} net;

/* The address of a host, as text; the switch's too. */
NET const char *net_address(int host, char *text, size_t room)
{
    snprintf(text, room, "10.77.0.%d", host == NET_SWITCH ? 250 : host + 1);
    return text;
}

/* Which host has this address?  -1: none. */
NET int net_host_of(const struct sockaddr_in *a)
{
    const uint32_t last = ntohl(a->sin_addr.s_addr) - 0x0a4d0001u;
    return a->sin_family == AF_INET && last < NET_HOSTS_MOST ? (int)last : -1;
}

/* The calling process, which has one thread, moves to this host, or to the switch. */
NET bool net_enter(const net *n, int host)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)n->holders[host]);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool is_there = fd >= 0 && !syscall(SYS_setns, fd, NET_NEWNET);
    if (fd >= 0) close(fd);
    return is_there;
}

/* Run "ip -batch -", "tc -batch -" or "nft -f -" on a host, with these lines.  Returns the status of waitpid. */
NET int net_run(const net *n, int host, const char *program, const char *lines)
{
    int ends[2], status = -1;

    if (pipe(ends)) return -1;
    const pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[0], 0);
        close(ends[0]);
        close(ends[1]);
        if (!net_enter(n, host) || setenv("PATH", "/usr/sbin:/sbin:/usr/bin:/bin", 1)) _exit(126);
        execlp(program, program, strcmp(program, "nft") ? "-batch" : "-f", "-", (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    if (write(ends[1], lines, strlen(lines)) < 0) status = -1;
    close(ends[1]);
    if (child > 0) (void)waitpid(child, &status, 0);
    return status;
}

NET void net_end(net *n)
{
    for (int i = 0; i <= NET_SWITCH; i++) {
        if (n->holders[i] <= 0) continue;
        (void)kill(n->holders[i], SIGKILL);
        (void)waitpid(n->holders[i], NULL, 0);
        n->holders[i] = 0;
    }
}

/* A process that does nothing but stay in its own namespace.  0, or -1 with errno. */
NET pid_t net_hold(void)
{
    int ends[2], error = 0;

    if (pipe(ends)) return -1;
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        if (syscall(SYS_unshare, NET_NEWNET)) error = errno;
        (void)!write(ends[1], &error, sizeof error);
        close(ends[1]);
        for (;;) (void)pause();
    }
    close(ends[1]);
    if (child > 0 && read(ends[0], &error, sizeof error) != (ssize_t)sizeof error) error = EIO;
    close(ends[0]);
    if (child < 0 || !error) return child;
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    errno = error;
    return -1;
}

NET bool net_fail(net *n, bool is_refused, const char *what, const char *why)
{
    snprintf(n->why, sizeof n->why, "%s: %s", what, why);
    n->is_refused = is_refused;
    net_end(n);
    return false;
}

/* Become root of a user namespace, where the process is not root already.  To be called once, before the first network. */
NET bool net_become_root(void)
{
    const unsigned uid = (unsigned)geteuid();
    char line[40];

    if (uid == 0) return true;
    if (syscall(SYS_unshare, NET_NEWUSER)) return false;
    snprintf(line, sizeof line, "0 %u 1\n", uid);
    const int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    const bool is_mapped = fd >= 0 && write(fd, line, strlen(line)) > 0;
    if (fd >= 0) close(fd);
    return is_mapped;
}

/* false: the reason is in n->why. */
NET bool net_make(net *n)
{
    char lines[4000] = "link add br0 type bridge\nlink set br0 up\nlink set lo up\naddr add 10.77.0.250/24 dev br0\n", mine[200];
    size_t at = strlen(lines);

    memset(n, 0, sizeof *n);
    for (int i = 0; i <= NET_SWITCH; i++)
        if ((n->holders[i] = net_hold()) < 0) return net_fail(n, errno == EPERM, "a network namespace", strerror(errno));
    for (int i = 0; i < NET_HOSTS_MOST; i++)
        at += (size_t)snprintf(lines + at, sizeof lines - at, "link add v%d type veth peer name e0 netns %d\n"
                               "link set v%d master br0 up\n", i, (int)n->holders[i], i);
    const int status = net_run(n, NET_SWITCH, "ip", lines);
    if (status == 127 << 8) return net_fail(n, false, "ip", "not found (package iproute2)");
    if (status) return net_fail(n, false, "ip", "no bridge, or no pair of interfaces");
    for (int i = 0; i < NET_HOSTS_MOST; i++) {
        snprintf(mine, sizeof mine, "link set lo up\naddr add 10.77.0.%d/24 dev e0\nlink set e0 up\n", i + 1);
        if (net_run(n, i, "ip", mine)) return net_fail(n, false, "ip", "no address for a host");
    }
    const int filter = net_run(n, NET_SWITCH, "nft", "add table inet probe\ndelete table inet probe\n");
    if (filter == 127 << 8) return net_fail(n, false, "nft", "not found (package nftables)");
    return filter ? net_fail(n, true, "nft", "this kernel has no nf_tables") : true;
}

/* Plug the cable of a host in or out, at the switch.  The calling process has to be there (net_enter(n, NET_SWITCH)). */
NET bool net_plug(int host, bool in)
{
    struct ifreq request;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, sizeof request.ifr_name, "v%d", host);
    bool is_done = fd >= 0 && !ioctl(fd, SIOCGIFFLAGS, &request);
    request.ifr_flags = (short)(in ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    is_done = is_done && !ioctl(fd, SIOCSIFFLAGS, &request);
    if (fd >= 0) close(fd);
    return is_done;
}

/* From now on no packet enters or leaves this host, and no error is reported. */
NET bool net_drop(const net *n, int host)
{
    return !net_run(n, host, "nft", "table inet t {\n chain i { type filter hook input priority 0; policy drop; }\n"
                                    " chain o { type filter hook output priority 0; policy drop; }\n}\n");
}

/* Undo what has been done to a host. */
NET bool net_mend(const net *n, int host)
{
    return net_plug(host, true) && !net_run(n, host, "nft", "flush ruleset\n") && !net_run(n, host, "ip", "neigh flush all\n");
}

#endif /* TESTS_NET_H */
