/* test_shm_handshake.c - ranks of one host find rank 0 by address, by a list of hosts or by a file.  If some ranks are missing,
 * the errors name them and what was tried.  Cases: a rank is late, dies, connects twice, sends nothing or belongs to another job;
 * a range of ports is too small or taken.
 *
 *     test_shm_handshake
 *
 * Every case runs in a process of its own with a time limit.  Ranks are threads of that process.
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"
#include "starting_ranks.h"

enum { CASE_SECONDS = 25 };

#define NONCE "0123456789abcdef0123456789abcdef"

/* ---- >>home: processors of this host, and pacing of connections within it ---- */

/* Bind this thread to one processor. */
static void settle_on(const joining *g)
{
    const int processor = *(const int *)g->place;
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "%s: processor %d: %s", case_name, processor, strerror(errno));
}

/* Ranks of a host that are bound to one processor each share a processor only if it is the same one; if the system reports it. */
static void bound_case(const void *arg)
{
    const bool is_alone = arg != NULL;
    joining joining_ranks[2];
    cpu_set_t all;
    int first = 0, second;
    char address[64];

    CHECK(sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) > 1, "%s: needs two processors", case_name);
    while (!CPU_ISSET((size_t)first, &all)) first++;
    for (second = first + 1; !CPU_ISSET((size_t)second, &all);) second++;
    const int held = support_reserve_port(address, sizeof address);
    joining_make(joining_ranks, 2, address);
    for (int i = 0; i < 2; i++) {
        joining_ranks[i].settle = settle_on;
        joining_ranks[i].place = i && is_alone ? &second : &first;
        joining_start(&joining_ranks[i]);
    }
    expect_world(joining_ranks, 2);
    for (int i = 0; i < 2; i++)
        CHECK(joining_ranks[i].is_crowded == (!is_alone && !SUPPORT_IS_PORTABLE), "%s: rank %d has the opposite", case_name, i);
    close(held);
}

/* Connections within the host are never paced, not even before they are connected.  If a congestion control that paces is
 * replaced, the connection keeps its pacing. */
static void unpaced_case(const void *unused)
{
    const unsigned char loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
    const coll__address any = coll__address_with(loopback, 0);
    const int listener = coll__listen_at(&any);
    const coll__address at = coll__name_of(listener, false);
    const int dialled = coll__dial(&at);
    struct pollfd come = { .fd = listener, .events = POLLIN };
    const int accepted = poll(&come, 1, 10000) == 1 ? coll__accept(listener) : -1;

    (void)unused;
    CHECK(is_congested_by(dialled, "reno"), "%s: the dialled end is paced", case_name);
    CHECK(is_congested_by(accepted, "reno"), "%s: the accepted end starts paced", case_name);
    close(accepted), close(dialled), close(listener);
}

/* ---- >>places: addresses, lists of hosts, ports ---- */

static int port_of(const char *address) { return atoi(strrchr(address, ':') + 1); }

/* Each rank uses its own address for the same rank 0: its text, with the port for the %d. */
typedef struct by_address { const char *name, *addresses[4]; bool needs_v6; } by_address;

static const by_address addresses[] = {
    { "IPv4", { "127.0.0.1:%d", "127.0.0.1:%d", "127.0.0.1:%d" }, false },
    { "IPv6", { "[::1]:%d", "[::1]:%d", "[::1]:%d" }, true },
    { "a name", { "localhost:%d", "localhost:%d", "localhost:%d" }, false },
    { "wide, by both families", { ":%d", "127.0.0.1:%d", "[::1]:%d", ":%d" }, true },
    { "wide by its number", { "0.0.0.0:%d", "127.0.0.1:%d", "localhost:%d" }, false },
};

static void address_case(const void *arg)
{
    const by_address *b = arg;
    joining joining_ranks[4];
    char where[64], texts[4][64];
    const int held = support_reserve_port(where, sizeof where);
    int size = 0;

    joining_make(joining_ranks, 4, NULL);
    while (size < 4 && b->addresses[size]) size++;
    for (int i = 0; i < size; i++) {
        snprintf(texts[i], sizeof texts[i], b->addresses[i], port_of(where));
        joining_ranks[i].config.address = texts[i];
        joining_ranks[i].config.size = size;
        joining_ranks[i].config.tcp.shm_collectives = COLL_OFF; /* so that ranks connect to one another                     */
    }
    close(held);                                  /* one family, one address: rank 0 may need more */
    for (int i = size - 1; i >= 0; i--) joining_start(&joining_ranks[i]);
    expect_world(joining_ranks, size);
}

static void tell(void *context, const char *address)
{
    joining *joining_ranks = context;

    for (int i = 1; i < 3; i++) {
        snprintf(joining_ranks[i].address, sizeof joining_ranks[i].address, "%s", address);
        joining_ranks[i].config.address = joining_ranks[i].address;
        joining_start(&joining_ranks[i]);
    }
}

static void listening_case(const void *arg)
{
    joining joining_ranks[3];

    joining_make(joining_ranks, 3, arg);
    joining_ranks[0].config.tcp.listening = tell;
    joining_ranks[0].config.tcp.listening_context = joining_ranks;
    joining_start(&joining_ranks[0]);
    expect_world(joining_ranks, 3);
    joining_make(joining_ranks, 1, arg);
    joining_ranks[0].config.size = 2;
    joining_start(&joining_ranks[0]);
    expect_failure(&joining_ranks[0], COLL_ERR_ARGUMENT, 1000, "port 0", "listening");
}

static void hosts_case(const void *arg)
{
    joining joining_ranks[3];
    char hosts[200], where[3][64];
    int held[3];

    (void)arg;
    for (int i = 0; i < 3; i++) held[i] = support_reserve_port(where[i], sizeof where[i]);
    snprintf(hosts, sizeof hosts, "%s, %s,%s", where[0], where[1], where[2]);
    joining_make(joining_ranks, 3, NULL);
    for (int i = 0; i < 3; i++) {
        joining_ranks[i].config.tcp.hosts = hosts;
        joining_start(&joining_ranks[i]);
    }
    expect_world(joining_ranks, 3);
    for (int i = 0; i < 3; i++) {
        CHECK(!strcmp(joining_ranks[i].address, where[i]), "%s: rank %d listens at %s, not %s", case_name, i,
              joining_ranks[i].address,
              where[i]);
        close(held[i]);
    }
}

/* Ports: enough of them, and one too few. */
static void ports_case(const void *arg)
{
    const bool is_enough = !strcmp(arg, "enough");
    joining joining_ranks[4];
    char where[64], range[40];
    const int held = support_reserve_port(where, sizeof where);
    /* three consecutive ports that are free now; another process may take one before the ranks do, so the range is larger */
    const int first = 10000 + (int)(support_mix((uint64_t)getpid()) % 9000), last = is_enough ? first + 40 : first;

    snprintf(range, sizeof range, "%d-%d", first, last);
    joining_make(joining_ranks, 4, where);
    for (int i = 0; i < 4; i++) {
        joining_ranks[i].config.tcp.ports = range;
        joining_ranks[i].config.start_timeout_ms = is_enough ? START_MS : 1000;
        joining_start(&joining_ranks[i]);
    }
    if (is_enough) {
        expect_world(joining_ranks, 4);
        for (int i = 1; i < 4; i++)
            CHECK(joining_ranks[i].port >= first && joining_ranks[i].port <= last, "%s: rank %d listens at %d",
                                          case_name, i, joining_ranks[i].port);
    } else {
        int without = 0;
        for (int i = 0; i < 4; i++) {
            pthread_join(joining_ranks[i].thread, NULL);
            without += strstr(joining_ranks[i].sentence, range) == NULL && strstr(joining_ranks[i].sentence, "is free") != NULL;
            CHECK(joining_ranks[i].status < 0, "%s: rank %d has come", case_name, i);
        }
        CHECK(without >= 2, "%s: %d ranks report that no port is free; one of them: %s", case_name, without,
              joining_ranks[3].sentence);
    }
    close(held);
}

static void in_use_case(const void *arg)
{
    joining joining_ranks[2];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    CHECK(listen(held, 4) == 0, "%s: listen", case_name);
    joining_make(joining_ranks, 2, where);
    joining_start(&joining_ranks[0]);
    expect_failure(&joining_ranks[0], COLL_ERR_SYSTEM, 2000, where, "ss -ltnp");
    close(held);
}

/* ---- >>missing: a rank is late, dies, sends nothing, or belongs to another job ---- */

static void missing_case(const void *arg)
{
    joining joining_ranks[6];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joining_make(joining_ranks, 6, where);
    for (int i = 0; i < 6; i++) joining_ranks[i].config.start_timeout_ms = 2700;
    joining_start(&joining_ranks[0]);
    joining_start(&joining_ranks[4]);
    expect_failure(&joining_ranks[4], COLL_ERR_TIMEOUT, 4500, "have not come: 1-3, 5", "2.7 s");
    expect_failure(&joining_ranks[0], COLL_ERR_TIMEOUT, 4500, "have not come: 1-3, 5", where);
    close(held);
}

static bool has_said(joining *g, const char *words) { return journal_count(&g->said, words) > 0; }

static const char *last_said(const joining *g) { return g->said.count > 0 ? g->said.lines[g->said.count - 1] : ""; }

/* If a rank times out before rank 0, its error names the missing ranks, too. */
static void impatient_case(const void *arg)
{
    joining joining_ranks[4];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joining_make(joining_ranks, 4, where);
    joining_ranks[0].config.start_timeout_ms = 7000;
    joining_ranks[2].config.start_timeout_ms = 2000;
    joining_start(&joining_ranks[0]);
    joining_start(&joining_ranks[2]);
    expect_failure(&joining_ranks[2], COLL_ERR_TIMEOUT, 3500, "it waited for 1, 3", where);
    expect_failure(&joining_ranks[0], COLL_ERR_TIMEOUT, 8500, "have not come: 1-3", where);
    CHECK(has_said(&joining_ranks[0], "waits at") && has_said(&joining_ranks[0], "3 of 4 ranks: 1-3"),
          "%s: its last log line: %s",
          case_name, last_said(&joining_ranks[0]));
    close(held);
}

static void unreachable_case(const void *arg)
{
    joining joining_ranks[2];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joining_make(joining_ranks, 2, where);
    joining_ranks[1].config.start_timeout_ms = 400;
    joining_start(&joining_ranks[1]);
    expect_failure(&joining_ranks[1], COLL_ERR_TIMEOUT, 2000, where, "Connection refused");
    CHECK(strstr(joining_ranks[1].sentence, "0.4 s"), "%s: %s", case_name, joining_ranks[1].sentence);
    close(held);
}

static void late_case(const void *arg)
{
    joining joining_ranks[3];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joining_make(joining_ranks, 3, where);
    joining_start(&joining_ranks[1]);
    joining_start(&joining_ranks[2]);
    (void)poll(NULL, 0, 400);                     /* no rank can tell when its connection attempts failed      */
    joining_start(&joining_ranks[0]);
    expect_world(joining_ranks, 3);
    CHECK(joining_ranks[0].took_ms < support_scaled(1500), "%s: rank 0 waited %d ms for those that had been waiting", case_name,
          (int)joining_ranks[0].took_ms);
    close(held);
}

/* A process that connects as this rank, until it is killed. */
static pid_t joiner_process(const joining *g)
{
    const pid_t pid = fork();
    coll_comm *comm = NULL;

    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)coll_init(&comm, &g->config);
    _exit(0);
}

/* One rank connects, and dies while another is still missing.  All connected ranks get an error long before start_timeout_ms,
 * unless the dead rank is started again at once. */
static void died_case(const void *arg)
{
    joining joining_ranks[4];
    char where[64];
    const bool is_replaced = arg != NULL;
    const int held = support_reserve_port(where, sizeof where);

    joining_make(joining_ranks, 4, where);
    for (int i = 0; i < 4; i++) joining_ranks[i].config.liveness_timeout_ms = is_replaced ? 10000 : 1000;
    const pid_t died = joiner_process(&joining_ranks[2]);
    joining_start(&joining_ranks[1]);
    joining_start(&joining_ranks[0]);
    journal_await_text(&joining_ranks[0].said, "for 1 of 4 ranks: 3", 1);
    kill(died, SIGKILL);
    (void)waitpid(died, NULL, 0);
    if (is_replaced) {
        joining_start(&joining_ranks[2]);
        joining_start(&joining_ranks[3]);
        expect_world(joining_ranks, 4);
    } else {
        for (int i = 0; i < 2; i++)
            expect_failure(&joining_ranks[i], COLL_ERR_PEER, START_MS - 5000, "rank 2 came to rank 0",
                           "has not come back for 1.");
    }
    close(held);
}

static void duplicate_case(const void *arg)
{
    joining joining_ranks[3], twin;
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joining_make(joining_ranks, 3, where);
    joining_make(&twin, 1, where);
    twin.config.rank = 1, twin.config.size = 3;
    joining_start(&joining_ranks[0]);
    joining_start(&joining_ranks[1]);
    joining_start(&twin);
    journal_await_text(&joining_ranks[0].said, "same rank, 1, from 127.0.0.1:", 1);
    joining_start(&joining_ranks[2]);
    pthread_join(joining_ranks[1].thread, NULL);
    pthread_join(twin.thread, NULL);
    joining *loser = joining_ranks[1].is_good ? &twin : &joining_ranks[1];
    CHECK(joining_ranks[1].is_good != twin.is_good && strstr(loser->sentence, "same rank, 1"), "%s: %s", case_name,
          loser->sentence);
    pthread_join(joining_ranks[0].thread, NULL);
    pthread_join(joining_ranks[2].thread, NULL);
    CHECK(joining_ranks[0].is_good && joining_ranks[2].is_good, "%s: %s; %s", case_name, joining_ranks[0].sentence,
          joining_ranks[2].sentence);
    close(held);
}

/* Unauthenticated connections that send nothing, and are still open when the world has formed. */
static void silent_case(const void *arg)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    joining joining_ranks[3];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);
    int silent[5];

    (void)arg;
    joining_make(joining_ranks, 3, where);
    joining_start(&joining_ranks[0]);
    to.sin_port = htons((uint16_t)port_of(where));
    for (int i = 0; i < 5; i++) {
        silent[i] = -1;
        while (silent[i] < 0) {
            silent[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (!connect(silent[i], (struct sockaddr *)&to, sizeof to)) continue;
            close(silent[i]);
            silent[i] = -1;
            sched_yield();
        }
    }
    joining_start(&joining_ranks[1]);
    joining_start(&joining_ranks[2]);
    expect_world(joining_ranks, 3);
    CHECK(joining_ranks[0].took_ms < support_scaled(3000), "%s: it took %d ms", case_name, (int)joining_ranks[0].took_ms);
    for (int i = 0; i < 5; i++) close(silent[i]);
    close(held);
}

/* To which job a rank belongs. */
static void other_world_case(const void *arg)
{
    joining joining_ranks[2], intruder;
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joining_make(joining_ranks, 2, where);
    joining_make(&intruder, 1, where);
    intruder.config.rank = 1, intruder.config.size = 2;
    intruder.config.world = "another";
    joining_start(&joining_ranks[0]);
    joining_start(&intruder);
    expect_failure(&intruder, COLL_ERR_PROTOCOL, 5000, "another job", where);
    intruder.config.world = NULL;
    intruder.config.size = 3;
    joining_start(&intruder);
    expect_failure(&intruder, COLL_ERR_PROTOCOL, 5000, "job size 3 at rank 1, and 2 at rank 0", where);
    joining_start(&joining_ranks[1]);
    expect_world(joining_ranks, 2);
    close(held);
}

/* ---- >>networks ---- */

static void network_case(const void *arg)
{
    joining joining_ranks[2];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joining_make(joining_ranks, 2, where);
    joining_ranks[0].config.tcp.network = "eth-none*";
    joining_start(&joining_ranks[0]);
    expect_failure(&joining_ranks[0], COLL_ERR_ARGUMENT, 1000, "\"eth-none*\" names no address", "lo 127.0.0.1");
    joining_make(joining_ranks, 2, where);
    joining_ranks[0].config.tcp.ports = "many";
    joining_start(&joining_ranks[0]);
    expect_failure(&joining_ranks[0], COLL_ERR_ARGUMENT, 1000, "\"many\"", "5000-5099");
    joining_make(joining_ranks, 2, where);
    joining_ranks[0].config.tcp.network = joining_ranks[1].config.tcp.network = "127.0.0.1";
    for (int i = 0; i < 2; i++) joining_start(&joining_ranks[i]);
    expect_world(joining_ranks, 2);
    joining_make(joining_ranks, 2, where);
    setenv("NCCL_SOCKET_IFNAME", "eth-none", 1);
    for (int i = 0; i < 2; i++) joining_start(&joining_ranks[i]);
    expect_world(joining_ranks, 2);
    CHECK(has_said(&joining_ranks[0], "NCCL_SOCKET_IFNAME names no address"), "%s: its last log line: %s", case_name,
          last_said(&joining_ranks[0]));
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    joining_make(joining_ranks, 2, where);
    for (int i = 0; i < 2; i++) joining_start(&joining_ranks[i]);
    expect_world(joining_ranks, 2);
    CHECK(has_said(&joining_ranks[1], "NCCL_SOCKET_IFNAME=lo"), "%s: its last log line: %s", case_name,
          last_said(&joining_ranks[1]));
    close(held);
}

/* ---- >>files: rank 0 writes its address to a file ---- */

/* The content of the file before. */
typedef enum old_file { NO_FILE, NO_SENSE, REFUSED, OTHER_WORLD, OLD_COUNT } old_file;

static void file_case(const void *arg)
{
    static const char *const olds[] = { "nothing", "nonsense", "a port without a listener", "a rank of another world" };
    const old_file old = *(const old_file *)arg;
    char directory[] = "/tmp/test_shm_handshake.XXXXXX", path[64], address[80], where[64], text[200];
    joining joining_ranks[3], other[2];
    const int held = support_reserve_port(where, sizeof where);

    CHECK(mkdtemp(directory) != NULL, "%s: no directory", case_name);
    snprintf(path, sizeof path, "%s/rendezvous", directory);
    snprintf(address, sizeof address, "file:%s", path);
    snprintf(text, sizeof text, "coll rendezvous 1\n" NONCE "\n%s\nend\n", old == OTHER_WORLD ? where : "127.0.0.1:1");
    FILE *file = old == NO_FILE ? NULL : fopen(path, "w");
    if (file) CHECK(fputs(old == NO_SENSE ? "what is this?" : text, file) >= 0 && !fclose(file), "%s: %s", case_name, path);
    joining_make(other, 2, where);
    other[0].config.world = "another";
    other[0].config.start_timeout_ms = 1500;
    if (old == OTHER_WORLD) joining_start(&other[0]);
    joining_make(joining_ranks, 3, address);
    for (int i = 0; i < 3; i++) joining_ranks[i].config.tcp.network = "127.0.0.1";
    joining_start(&joining_ranks[1]);
    joining_start(&joining_ranks[2]);
    if (old != NO_FILE) (void)poll(NULL, 0, 100);                    /* let the other ranks read the old file */
    joining_start(&joining_ranks[0]);
    expect_world(joining_ranks, 3);
    CHECK(access(path, F_OK) && rmdir(directory) == 0, "%s: after %s something is left in %s", case_name, olds[old], directory);
    if (old == OTHER_WORLD) pthread_join(other[0].thread, NULL);
    close(held);
}

static void file_failure_case(const void *arg)
{
    joining joining_ranks[2];

    (void)arg;
    joining_make(joining_ranks, 2, "file:/nowhere/at/all");
    for (int i = 0; i < 2; i++) {
        joining_ranks[i].config.start_timeout_ms = 300;
        joining_start(&joining_ranks[i]);
    }
    expect_failure(&joining_ranks[0], COLL_ERR_SYSTEM, 1000, "file:/nowhere/at/all", "No such file");
    expect_failure(&joining_ranks[1], COLL_ERR_TIMEOUT, 1500, "file:/nowhere/at/all", "not written it yet");
}

/* Rank 1 was started with another size.  Rank 0 reports it, and fails long before rank 1, whose error still contains the
 * refusal. */
static void gone_root_case(const void *arg)
{
    char directory[] = "/tmp/test_shm_handshake.XXXXXX", address[80];
    joining joining_ranks[2];

    (void)arg;
    CHECK(mkdtemp(directory) != NULL, "%s: no directory", case_name);
    snprintf(address, sizeof address, "file:%s/rendezvous", directory);
    joining_make(joining_ranks, 2, address);
    joining_ranks[1].config.size = 3;
    for (int i = 0; i < 2; i++) {
        joining_ranks[i].config.start_timeout_ms = i == 0 ? 2500 : 4000;
        joining_start(&joining_ranks[i]);
    }
    expect_failure(&joining_ranks[0], COLL_ERR_TIMEOUT, 4000, "have not come: 1", "");
    expect_failure(&joining_ranks[1], COLL_ERR_TIMEOUT, 5500, "rank 1 could not reach rank 0", "job size");
    CHECK(rmdir(directory) == 0, "%s: something is left in %s", case_name, directory);
}

/* ---- >>main ---- */

typedef struct meet_case { const char *name; void (*body)(const void *arg); const void *arg; } meet_case;

static const old_file olds[] = { NO_FILE, NO_SENSE, REFUSED, OTHER_WORLD };

static const meet_case cases[] = {
    { "listening at any port", listening_case, "127.0.0.1:0" },
    { "listening widely at any port", listening_case, ":0" },
    { "a list of hosts", hosts_case, NULL },
    { "a range of ports", ports_case, "enough" },
    { "a range that is too small", ports_case, "too few" },
    { "a port in use", in_use_case, NULL },
    { "missing ranks", missing_case, NULL },
    { "an impatient rank", impatient_case, NULL },
    { "no listener", unreachable_case, NULL },
    { "rank 0 is late", late_case, NULL },
    { "one connects and dies", died_case, NULL },
    { "one connects, dies, and connects again", died_case, "again" },
    { "two of one rank", duplicate_case, NULL },
    { "five silent connections", silent_case, NULL },
    { "another world", other_world_case, NULL },
    { "networks", network_case, NULL },
    { "a file", file_case, &olds[0] },
    { "a file that is nonsense", file_case, &olds[1] },
    { "an old file that leads nowhere", file_case, &olds[2] },
    { "an old file that leads to another world", file_case, &olds[3] },
    { "a file that cannot be", file_failure_case, NULL },
    { "a rank 0 that has refused and left", gone_root_case, NULL },
    { "never paced at home", unpaced_case, NULL },
    { "on a processor each", bound_case, "alone" },
    { "on one processor", bound_case, NULL },
};

int main(void)
{
    const int v6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const coll__address one = coll__address_with((const unsigned char[16]){ [15] = 1 }, 0);
    const bool has_v6 = v6 >= 0 && coll__bind(v6, &one);

    joining_begin();
    world = "meet";
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (has_v6 || !addresses[i].needs_v6) run_case_within(CASE_SECONDS, address_case, &addresses[i], addresses[i].name);
    if (v6 >= 0) close(v6);
    if (!has_v6) printf("this machine has no IPv6 loopback: cases with ::1 are left out\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case_within(CASE_SECONDS, cases[i].body, cases[i].arg, cases[i].name);
    return CHECK_DONE();
}
