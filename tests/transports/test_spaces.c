/* test_spaces.c - ranks of two hosts find rank 0: each host is a network namespace with an /etc/hosts of its own, and there are
 * one or two wires between them.  Addresses that are unreachable, local, or the same on both hosts; names; IPv6 alone.
 *
 *     test_spaces
 *
 * Every case runs in a process of its own with a time limit.  Ranks are threads of that process, each in the namespace of its
 * host.  This needs root, and the command ip.
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"
#include "starting_ranks.h"

#include <sys/mount.h>

enum { HOSTS_MOST = 2, CASE_SECONDS = 25 };

/* ---- >>hosts ---- */

static int host_spaces[HOSTS_MOST];

/* Run a command in the namespace of a host. */
static void on_host(int host, const char *format, ...)
{
    char command[300];
    va_list list;

    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    CHECK(setns(host_spaces[host], CLONE_NEWNET) == 0 && system(command) == 0, "%s: on host %d: %s", case_name, host, command);
}

/* Wait until host 0 gets "connection refused" from a port of this address on host 1 without a listener: the route works. */
static void wire_await(const char *address)
{
    const struct timeval most = { 0, 50000 };
    struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM }, *at = NULL;
    bool is_there = false;

    CHECK(setns(host_spaces[0], CLONE_NEWNET) == 0 && !getaddrinfo(address, "9", &hints, &at), "%s: %s", case_name, address);
    for (int i = 0; at && i < 200 && !is_there; i++) {
        const int fd = socket(at->ai_family, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        is_there = connect(fd, at->ai_addr, at->ai_addrlen) && errno == ECONNREFUSED;
        close(fd);
    }
    CHECK(is_there, "%s: nothing passes to %s", case_name, address);
    freeaddrinfo(at);
}

/* Two hosts with `wires` wires between them: 10.7.<wire>.1 and .2, fd07:<wire>::1 and ::2. */
static void hosts_make(int wires, bool has_v4)
{
    for (int i = 0; i < HOSTS_MOST; i++) {
        CHECK(unshare(CLONE_NEWNET) == 0, "%s: no namespace", case_name);
        host_spaces[i] = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        on_host(i, "ip link set lo up");
    }
    for (int w = 0; w < wires; w++) {
        on_host(0, "ip link add v%d type veth peer name v%d netns /proc/%d/fd/%d", w, w, (int)getpid(), host_spaces[1]);
        for (int i = 0; i < HOSTS_MOST; i++) {
            if (has_v4) on_host(i, "ip addr add 10.7.%d.%d/24 dev v%d", w, i + 1, w);
            on_host(i, "ip addr add fd07:%d::%d/64 dev v%d nodad && ip link set v%d up", w, i + 1, w, w);
        }
    }
    for (int w = 0; w < wires; w++) {
        char address[40];
        snprintf(address, sizeof address, "10.7.%d.2", w);
        if (has_v4) wire_await(address);
        snprintf(address, sizeof address, "fd07:%d::2", w);
        wire_await(address);
    }
}

/* Replace /etc/hosts by `text`, for this thread. */
static bool see_names(const char *text)
{
    char path[] = "/tmp/test_spaces.XXXXXX";
    const int fd = mkstemp(path);
    const bool is_done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, 0644) == 0
                      && !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)
                      && !mount(path, "/etc/hosts", NULL, MS_BIND, NULL);

    if (fd >= 0) close(fd), unlink(path);
    return is_done;
}

/* Move this thread to its host, where /etc/hosts is the text of its place; without a text it is the system's. */
static void settle_there(const joining *g)
{
    CHECK(setns(g->network, CLONE_NEWNET) == 0, "%s: setns", case_name);
    if (g->place) CHECK(see_names(g->place), "%s: /etc/hosts: %s", case_name, strerror(errno));
}

static void joiner_lives(joining *g, int host, const char *address)
{
    g->network = host_spaces[host];
    g->settle = settle_there;
    if (address) g->config.address = address;
}

/* ---- >>cases ---- */

/* Ranks 0, 2 on one host, which reach rank 0 by loopback; 1, 3 on the other: 1 dials 2, and 2 dials 3. */
static void loopback_case(const void *arg)
{
    joining joining_ranks[4];

    (void)arg;
    hosts_make(1, true);
    joining_make(joining_ranks, 4, "127.0.0.1:7000");
    joiner_lives(&joining_ranks[0], 0, ":7000");
    joiner_lives(&joining_ranks[2], 0, NULL);
    joiner_lives(&joining_ranks[1], 1, "10.7.0.1:7000");
    joiner_lives(&joining_ranks[3], 1, "10.7.0.1:7000");
    for (int i = 0; i < 4; i++) joining_start(&joining_ranks[i]);
    expect_world(joining_ranks, 4);
    CHECK(!strncmp(joining_ranks[2].address, "10.7.0.1:", 9), "%s: rank 2 has the address %s", case_name,
          joining_ranks[2].address);
}

/* A file in a directory of its own, as rendezvous file. */
static void rendezvous_in(char *directory, char *address, size_t room)
{
    CHECK(mkdtemp(directory) != NULL, "%s: no directory", case_name);
    snprintf(address, room, "file:%s/rendezvous", directory);
}

/* All ranks start, alternating between the two hosts, and the world forms. */
static void expect_world_of_two(joining *joining_ranks, int size)
{
    for (int i = 0; i < size; i++) {
        joiner_lives(&joining_ranks[i], i % 2, NULL);
        joining_start(&joining_ranks[i]);
    }
    expect_world(joining_ranks, size);
}

/* Both hosts have the same address on a wire of their own.  They use a rendezvous file, in which it may stand first. */
static void docker_case(const void *arg)
{
    char directory[] = "/tmp/test_spaces.XXXXXX", address[80];
    joining joining_ranks[4];

    (void)arg;
    hosts_make(1, true);
    rendezvous_in(directory, address, sizeof address);
    joining_make(joining_ranks, 4, address);
    for (int i = 0; i < 2; i++) {
        on_host(i,
                "ip link add docker0 type veth peer name none0 && ip link set none0 up && ip link set docker0 up");
        on_host(i, "ip addr add 172.17.0.1/16 dev docker0");
        on_host(i, "ip route add default dev docker0");
    }
    expect_world_of_two(joining_ranks, 4);
    CHECK(!strncmp(joining_ranks[1].address, "10.7.0.2:", 9), "%s: rank 1 listens at %s", case_name, joining_ranks[1].address);
    rmdir(directory);
}

/* Rank 0's name has two addresses, and the first is unreachable. */
static void dead_wire_case(const void *arg)
{
    static const char names[] = "127.0.0.1 localhost\nfd07:9::1 server\n10.7.1.1 server\n";
    joining joining_ranks[4];

    (void)arg;
    hosts_make(2, true);
    for (int i = 0; i < 2; i++) {
        on_host(i, "ip link add lost type veth peer name none0 && ip link set none0 up && ip link set lost up");
        on_host(i, "ip -6 route add fd07:9::/64 dev lost");
    }
    joining_make(joining_ranks, 4, "server:7000");
    for (int i = 0; i < 4; i++) {
        joiner_lives(&joining_ranks[i], i % 2, NULL);
        joining_ranks[i].place = names;
        joining_start(&joining_ranks[i]);
    }
    expect_world(joining_ranks, 4);
    CHECK(joining_ranks[1].took_ms < support_scaled(3000), "%s: it took %d ms", case_name, (int)joining_ranks[1].took_ms);
    CHECK(!strncmp(joining_ranks[1].address, "10.7.1.2:", 9), "%s: rank 1 listens at %s", case_name, joining_ranks[1].address);
    joining_make(joining_ranks, 2, "server:7000"); /* no listener: both addresses are in the sentence           */
    joiner_lives(&joining_ranks[1], 1, NULL);
    joining_ranks[1].place = names;
    joining_ranks[1].config.start_timeout_ms = 2500;
    joining_start(&joining_ranks[1]);
    expect_failure(&joining_ranks[1], COLL_ERR_TIMEOUT, 4500, "[fd07:9::1]:7000: ", "10.7.1.1:7000: Connection refused");
}

/* A host whose name resolves to 127.0.1.1 on itself, as on Debian. */
static void debian_case(const void *arg)
{
    joining joining_ranks[3];

    (void)arg;
    hosts_make(1, true);
    joining_make(joining_ranks, 3, "server:7000");
    for (int i = 0; i < 3; i++) {
        joiner_lives(&joining_ranks[i], i % 2, NULL);
        joining_ranks[i].place = i % 2 ? "10.7.0.1 server\n" : "127.0.0.1 localhost\n127.0.1.1 server\n";
        joining_start(&joining_ranks[i]);
    }
    expect_world(joining_ranks, 3);
}

/* No IPv4 anywhere. */
static void v6_case(const void *arg)
{
    char directory[] = "/tmp/test_spaces.XXXXXX", address[80];
    joining joining_ranks[3];

    (void)arg;
    hosts_make(1, false);
    rendezvous_in(directory, address, sizeof address);
    for (int way = 0; way < 2; way++) {
        joining_make(joining_ranks, 3, way ? "[fd07:0::1]:7000" : address);
        expect_world_of_two(joining_ranks, 3);
        CHECK(!strncmp(joining_ranks[1].address, "[fd07::2]:", 10), "%s: rank 1 listens at %s", case_name,
              joining_ranks[1].address);
    }
    rmdir(directory);
}

/* A link-local address, with its interface, works for ranks on one wire. */
static void link_case(const void *arg)
{
    joining joining_ranks[3];

    (void)arg;
    hosts_make(1, false);
    on_host(0, "ip addr add fe80::77/64 dev v0 nodad");
    on_host(1, "ip addr add fe80::78/64 dev v0 nodad");
    joining_make(joining_ranks, 3, "[fe80::77%v0]:7000");
    for (int i = 0; i < 3; i++) {
        joiner_lives(&joining_ranks[i], i ? 1 : 0, NULL);
        joining_start(&joining_ranks[i]);
    }
    expect_world(joining_ranks, 3);
    joining_make(joining_ranks, 2, "[fe80::77]:7000");
    joiner_lives(&joining_ranks[1], 1, NULL);
    joining_ranks[1].config.start_timeout_ms = 300;
    joining_start(&joining_ranks[1]);
    expect_failure(&joining_ranks[1], COLL_ERR_ARGUMENT, 1500, "link-local", "%eth0");
}

/* Two wires: the network setting selects the one that is used, also for ranks that would not need to. */
static void choice_case(const void *arg)
{
    static const char *const words[] = { "v1", "10.7.1.0/24", "^v0,fd07::/16", "fd07:1::/64" };
    joining joining_ranks[3];

    (void)arg;
    hosts_make(2, true);
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        const bool is_v6 = w == 3;
        joining_make(joining_ranks, 3, is_v6 ? "[fd07:1::1]:7000" : "10.7.1.1:7000");
        for (int i = 0; i < 3; i++) {
            joiner_lives(&joining_ranks[i], i % 2, i == 0 ? ":7000" : NULL);
            joining_ranks[i].config.tcp.network = words[w];
            joining_start(&joining_ranks[i]);
        }
        expect_world(joining_ranks, 3);
        const char *const want = is_v6 ? "[fd07:1::2]:" : "10.7.1.2:";
        CHECK(!strncmp(joining_ranks[1].address, want, strlen(want)), "%s, %s: rank 1 listens at %s", case_name, words[w],
              joining_ranks[1].address);
    }
}

/* Rank 0 is not at the address that all ranks dial. */
static void elsewhere_case(const void *arg)
{
    joining joining_ranks[2];

    (void)arg;
    hosts_make(1, true);
    joining_make(joining_ranks, 2, "10.7.0.2:7000");
    for (int i = 0; i < 2; i++) {
        joiner_lives(&joining_ranks[i], 0, NULL);
        joining_ranks[i].config.start_timeout_ms = 600;
        joining_start(&joining_ranks[i]);
    }
    expect_failure(&joining_ranks[0], COLL_ERR_TIMEOUT, 2000, "no address of its host", "have not come: 1");
    expect_failure(&joining_ranks[1], COLL_ERR_TIMEOUT, 2000, "10.7.0.2:7000", "refused");
}

/* ---- >>main ---- */

/* Can a namespace be created?  If not, none of this is tested. */
static bool has_spaces(void)
{
    int status = 1;
    const pid_t child = fork();

    if (child == 0) _exit(unshare(CLONE_NEWNET | CLONE_NEWNS) || system("ip link set lo up > /dev/null 2>&1"));
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    joining_begin();
    world = "spaces";
    CHECK(has_spaces(), "no network namespaces: this needs root, and the command ip");
    if (!has_spaces()) return CHECK_DONE();
    run_case_within(CASE_SECONDS, loopback_case, NULL, "by loopback and from outside");
    run_case_within(CASE_SECONDS, docker_case, NULL, "an address that both hosts have");
    run_case_within(CASE_SECONDS, dead_wire_case, NULL, "a name with a dead address");
    run_case_within(CASE_SECONDS, debian_case, NULL, "a name that is loopback at home");
    run_case_within(CASE_SECONDS, v6_case, NULL, "IPv6 only");
    run_case_within(CASE_SECONDS, link_case, NULL, "link-local addresses");
    run_case_within(CASE_SECONDS, choice_case, NULL, "a choice of networks");
    run_case_within(CASE_SECONDS, elsewhere_case, NULL, "rank 0 is elsewhere");
    return CHECK_DONE();
}
