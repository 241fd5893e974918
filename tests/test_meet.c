/* test_meet.c - ranks that find one another, or say who is missing and what was tried.
 *
 *     test_meet [PART,...]          PART: meetings, spaces
 *
 * Every case runs in a process of its own with a time limit.  Ranks are threads of that process.  In the part "spaces" each of
 * them lives in the network namespace of its host, and sees that host's /etc/hosts; this needs root.
 */
#define COLL__ONE_TIER 1
#include "inside.h"

#include "check.h"
#include "support.h"
#include "cases.h"

#include <sys/mount.h>
#include <sys/resource.h>

enum { RANKS_MOST = 6, HOSTS_MOST = 2, CASE_SECONDS = 25, START_MS = 15000 };

#define NONCE "0123456789abcdef0123456789abcdef"

/* ---- >>joiners: ranks that meet ---- */

typedef struct journal {
    pthread_mutex_t lock;
    char            text[4000];                   /* all lines                                                */
} journal;

typedef struct joiner {
    pthread_t   thread;
    coll_config config;
    int         network;                          /* namespace to live in, 0: where we are                    */
    int         processor;                        /* 1 + the only one to run on, 0: any                       */
    bool        is_crowded;                       /* it thinks that ranks share processors                    */
    const char *names;                            /* what is in its /etc/hosts, NULL: what is there           */
    coll_comm  *comm;
    coll_status status;
    int64_t     took_ms;
    char        sentence[512];
    journal     said;
    int         port, address_count;              /* where it listens, as rank 0 has told it                  */
    char        address[COLL__ADDRESS_TEXT];
    bool        is_good;
} joiner;

static void joiner_line(void *context, coll_log_level level, const char *line)
{
    journal *j = context;

    (void)level;
    pthread_mutex_lock(&j->lock);
    coll__append(j->text, sizeof j->text, "%s\n", line);
    pthread_mutex_unlock(&j->lock);
}

/* Put `text` in the place of /etc/hosts, for this thread. */
static bool see_names(const char *text)
{
    char path[] = "/tmp/test_meet.XXXXXX";
    const int fd = mkstemp(path);
    const bool is_done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, 0644) == 0
        && !unshare(CLONE_NEWNS)
                         && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) && !mount(path, "/etc/hosts", NULL, MS_BIND,
                                                                                           NULL);

    if (fd >= 0) close(fd), unlink(path);
    return is_done;
}

/* Bind this thread to one processor. */
static void run_on(int processor)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "%s: processor %d: %s", case_name, processor, strerror(errno));
}

static bool is_congested_by(int fd, const char *name)
{
    char has[32] = "";
    socklen_t length = sizeof has - 1;

    return !getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, has, &length) && !strcmp(has, name);
}

/* What stays within one kernel is not paced; what leaves it goes as this system will have it. */
static void expect_pace(const joiner *g, coll__tcp *tcp)
{
    const int fresh = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char usual[32] = "";
    socklen_t length = sizeof usual - 1;

    CHECK(fresh >= 0 && !getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, usual, &length), "%s: no socket", case_name);
    if (fresh >= 0) close(fresh);
    CHECK(is_congested_by(tcp->listener, "reno"), "%s: who is accepted by rank %d is paced", case_name, g->config.rank);
    for (int peer = 0; peer < tcp->size; peer++) {
        const coll__stream *s = coll__stream_to(tcp, peer, COLL_CHANNEL_CALLS);
        if (s->state != COLL__STREAM_OPEN || (g->network > 0 && coll__is_of_this_host(tcp, peer))) continue;
        CHECK(is_congested_by(s->pipe.fd, g->network > 0 ? usual : "reno"), "%s: rank %d, %s rank %d: another congestion control",
              case_name, g->config.rank, g->network > 0 ? "far from" : "at home with", peer);
    }
}

/* Nor was it ever: a control that paces leaves that behind on a connection, when another takes its place. */
static void unpaced_case(const void *unused)
{
    const unsigned char loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
    const coll__address any = coll__address_unpack(loopback, 0);
    const int listener = coll__listen_at(&any);
    const coll__address at = coll__name_of(listener, false);
    const int dialled = coll__dial(&at);
    struct pollfd come = { .fd = listener, .events = POLLIN };
    const int accepted = poll(&come, 1, 10000) == 1 ? coll__accept(listener) : -1;

    (void)unused;
    CHECK(is_congested_by(dialled, "reno"), "%s: who dials is paced", case_name);
    CHECK(is_congested_by(accepted, "reno"), "%s: who is accepted starts paced", case_name);
    close(accepted), close(dialled), close(listener);
}

static void *joiner_main(void *at)
{
    joiner *g = at;
    int32_t data[3];

    if (g->network > 0) CHECK(setns(g->network, CLONE_NEWNET) == 0, "%s: setns", case_name);
    if (g->names) CHECK(see_names(g->names), "%s: /etc/hosts: %s", case_name, strerror(errno));
    if (g->processor > 0) run_on(g->processor - 1);
    const int64_t began = now_ms();
    g->status = coll_init(&g->comm, &g->config);
    g->took_ms = now_ms() - began;
    snprintf(g->sentence, sizeof g->sentence, "%s", coll_error(NULL));
    if (g->status != COLL_OK) return NULL;
    const coll__tcp *tcp = inside_tcp(g->comm);
    const coll__address a = coll__endpoint_address(tcp, g->config.rank, 0);
    coll__address_text(&a, g->address, sizeof g->address);
    g->port = tcp->endpoints[g->config.rank].port;
    g->address_count = tcp->endpoints[g->config.rank].count;
    g->is_crowded = g->comm->session->is_crowded;
    g->is_good = true;
    for (int root = 0; root < g->config.size && g->is_good; root++) {         /* a message between any two            */
        int32_t all[RANKS_MOST], back[RANKS_MOST];
        for (int i = 0; i < g->config.size; i++) all[i] = g->config.rank * 100 + i;
        g->is_good = coll_alltoall(g->comm, all, back, 1, COLL_I32) == COLL_OK;
        for (int i = 0; i < g->config.size; i++) g->is_good = g->is_good && back[i] == i * 100 + g->config.rank;
    }
    data[0] = 1;
    g->is_good = g->is_good && coll_allreduce(g->comm, data, data, 1, COLL_I32, COLL_SUM) == COLL_OK && data[0] == g->config.size;
    expect_pace(g, inside_tcp(g->comm));
    if (!g->is_good) snprintf(g->sentence, sizeof g->sentence, "%s", coll_error(g->comm));
    coll_free(g->comm);
    return NULL;
}

/* `size` joiners, not started yet. */
static void joiners_make(joiner *joiners, int size, const char *address)
{
    for (int i = 0; i < size; i++) {
        memset(&joiners[i], 0, sizeof joiners[i]);
        pthread_mutex_init(&joiners[i].said.lock, NULL);
        joiners[i].config = (coll_config){ .rank = i, .size = size, .address = address, .start_timeout_ms = START_MS,
                                           .tcp = { .io = "poll" },
                                           .log = joiner_line, .log_context = &joiners[i].said, .log_level = COLL_LOG_INFO };
    }
}

static void joiner_start(joiner *g) { CHECK(pthread_create(&g->thread, NULL, joiner_main, g) == 0, "%s: no thread", case_name); }

static void expect_world(joiner *joiners, int size)
{
    for (int i = 0; i < size; i++) {
        pthread_join(joiners[i].thread, NULL);
        CHECK(joiners[i].is_good, "%s: rank %d: status %d, %s", case_name, i, (int)joiners[i].status, joiners[i].sentence);
    }
}

static void expect_failure(joiner *g, coll_status status, int most_ms, const char *word, const char *other)
{
    pthread_join(g->thread, NULL);
    CHECK(g->status == status && strstr(g->sentence, word) && strstr(g->sentence, other),
          "%s: rank %d: status %d, \"%s\" (with \"%s\" and \"%s\")", case_name,
          g->config.rank, (int)g->status, g->sentence, word, other);
    CHECK(g->took_ms <= support_patience(most_ms), "%s: rank %d took %d ms", case_name, g->config.rank, (int)g->took_ms);
}

static int port_of(const char *address) { return atoi(strrchr(address, ':') + 1); }

/* ---- >>meetings: on this host ---- */

/* The ranks of a host that are bound to one processor each share it only where it is the same one; where the system tells. */
static void bound_case(const void *arg)
{
    const bool is_alone = arg != NULL;
    joiner joiners[2];
    cpu_set_t all;
    int first = 0, second;
    char address[64];

    CHECK(sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) > 1, "%s: needs two processors", case_name);
    while (!CPU_ISSET((size_t)first, &all)) first++;
    for (second = first + 1; !CPU_ISSET((size_t)second, &all);) second++;
    const int held = support_reserve_port(address, sizeof address);
    joiners_make(joiners, 2, address);
    joiners[0].processor = 1 + first;
    joiners[1].processor = 1 + (is_alone ? second : first);
    for (int i = 0; i < 2; i++) joiner_start(&joiners[i]);
    expect_world(joiners, 2);
    for (int i = 0; i < 2; i++)
        CHECK(joiners[i].is_crowded == (!is_alone && !SUPPORT_IS_PORTABLE), "%s: rank %d thinks otherwise", case_name, i);
    close(held);
}

/* Each rank has an address of its own for the same rank 0: its text, with the port for the %d. */
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
    joiner joiners[4];
    char where[64], texts[4][64];
    const int held = support_reserve_port(where, sizeof where);
    int size = 0;

    joiners_make(joiners, 4, NULL);
    while (size < 4 && b->addresses[size]) size++;
    for (int i = 0; i < size; i++) {
        snprintf(texts[i], sizeof texts[i], b->addresses[i], port_of(where));
        joiners[i].config.address = texts[i];
        joiners[i].config.size = size;
        joiners[i].config.tcp.hub = -1;           /* so that ranks connect to one another                     */
    }
    close(held);                                  /* it is of one family and one address: rank 0 may want more */
    for (int i = size - 1; i >= 0; i--) joiner_start(&joiners[i]);
    expect_world(joiners, size);
}

static void tell(void *context, const char *address)
{
    joiner *joiners = context;

    for (int i = 1; i < 3; i++) {
        snprintf(joiners[i].address, sizeof joiners[i].address, "%s", address);
        joiners[i].config.address = joiners[i].address;
        joiner_start(&joiners[i]);
    }
}

static void listening_case(const void *arg)
{
    joiner joiners[3];

    joiners_make(joiners, 3, arg);
    joiners[0].config.tcp.listening = tell;
    joiners[0].config.tcp.listening_context = joiners;
    joiner_start(&joiners[0]);
    expect_world(joiners, 3);
    joiners_make(joiners, 1, arg);
    joiners[0].config.size = 2;
    joiner_start(&joiners[0]);
    expect_failure(&joiners[0], COLL_ERR_ARGUMENT, 1000, "port 0", "listening");
}

static void hosts_case(const void *arg)
{
    joiner joiners[3];
    char hosts[200], where[3][64];
    int held[3];

    (void)arg;
    for (int i = 0; i < 3; i++) held[i] = support_reserve_port(where[i], sizeof where[i]);
    snprintf(hosts, sizeof hosts, "%s, %s,%s", where[0], where[1], where[2]);
    joiners_make(joiners, 3, NULL);
    for (int i = 0; i < 3; i++) {
        joiners[i].config.tcp.hosts = hosts;
        joiner_start(&joiners[i]);
    }
    expect_world(joiners, 3);
    for (int i = 0; i < 3; i++) {
        CHECK(!strcmp(joiners[i].address, where[i]), "%s: rank %d listens at %s, not %s", case_name, i, joiners[i].address,
              where[i]);
        close(held[i]);
    }
}

/* Ports: enough of them, and one too few. */
static void ports_case(const void *arg)
{
    const bool is_enough = !strcmp(arg, "enough");
    joiner joiners[4];
    char where[64], range[40];
    const int held = support_reserve_port(where, sizeof where);
    /* three ports in a row that are free now; somebody else may take one before the ranks do, so the range goes further */
    const int first = 10000 + (int)(support_mix((uint64_t)getpid()) % 9000), last = is_enough ? first + 40 : first;

    snprintf(range, sizeof range, "%d-%d", first, last);
    joiners_make(joiners, 4, where);
    for (int i = 0; i < 4; i++) {
        joiners[i].config.tcp.ports = range;
        joiners[i].config.start_timeout_ms = is_enough ? START_MS : 1000;
        joiner_start(&joiners[i]);
    }
    if (is_enough) {
        expect_world(joiners, 4);
        for (int i = 1; i < 4; i++) CHECK(joiners[i].port >= first && joiners[i].port <= last, "%s: rank %d listens at %d",
                                          case_name, i, joiners[i].port);
    } else {
        int without = 0;
        for (int i = 0; i < 4; i++) {
            pthread_join(joiners[i].thread, NULL);
            without += strstr(joiners[i].sentence, range) == NULL && strstr(joiners[i].sentence, "is free") != NULL;
            CHECK(joiners[i].status < 0, "%s: rank %d has come", case_name, i);
        }
        CHECK(without >= 2, "%s: %d ranks say that no port is free; one says: %s", case_name, without, joiners[3].sentence);
    }
    close(held);
}

static void in_use_case(const void *arg)
{
    joiner joiners[2];
    char where[64], holder[40];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    CHECK(listen(held, 4) == 0, "%s: listen", case_name);
    if (SUPPORT_IS_PORTABLE) snprintf(holder, sizeof holder, "does another job use this port?");
    else snprintf(holder, sizeof holder, "held by process %d", (int)getpid());
    joiners_make(joiners, 2, where);
    joiner_start(&joiners[0]);
    expect_failure(&joiners[0], COLL_ERR_SYSTEM, 2000, where, holder);
    close(held);
}

static void missing_case(const void *arg)
{
    joiner joiners[6];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joiners_make(joiners, 6, where);
    for (int i = 0; i < 6; i++) joiners[i].config.start_timeout_ms = 700;
    joiner_start(&joiners[0]);
    joiner_start(&joiners[4]);
    expect_failure(&joiners[4], COLL_ERR_TIMEOUT, 2500, "have not come: 1-3, 5", "0.7 s");
    expect_failure(&joiners[0], COLL_ERR_TIMEOUT, 2500, "have not come: 1-3, 5", where);
    close(held);
}

/* A rank whose time is up before that of rank 0 knows who is missing, too. */
static void impatient_case(const void *arg)
{
    joiner joiners[4];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joiners_make(joiners, 4, where);
    joiners[0].config.start_timeout_ms = 7000;
    joiners[2].config.start_timeout_ms = 2000;
    joiner_start(&joiners[0]);
    joiner_start(&joiners[2]);
    expect_failure(&joiners[2], COLL_ERR_TIMEOUT, 3500, "it waited for 1, 3", where);
    expect_failure(&joiners[0], COLL_ERR_TIMEOUT, 8500, "have not come: 1-3", where);
    CHECK(strstr(joiners[0].said.text, "waits at") && strstr(joiners[0].said.text, "3 of 4 ranks: 1-3"), "%s: %s", case_name,
          joiners[0].said.text);
    close(held);
}

static void unreachable_case(const void *arg)
{
    joiner joiners[2];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joiners_make(joiners, 2, where);
    joiners[1].config.start_timeout_ms = 400;
    joiner_start(&joiners[1]);
    expect_failure(&joiners[1], COLL_ERR_TIMEOUT, 2000, where, "Connection refused");
    CHECK(strstr(joiners[1].sentence, "0.4 s"), "%s: %s", case_name, joiners[1].sentence);
    close(held);
}

static void late_case(const void *arg)
{
    joiner joiners[3];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joiners_make(joiners, 3, where);
    joiner_start(&joiners[1]);
    joiner_start(&joiners[2]);
    (void)poll(NULL, 0, 400);                     /* nobody can tell when they have knocked in vain            */
    joiner_start(&joiners[0]);
    expect_world(joiners, 3);
    CHECK(joiners[0].took_ms < support_patience(1500), "%s: rank 0 waited %d ms for those that had been waiting", case_name,
          (int)joiners[0].took_ms);
    close(held);
}

static bool has_said(joiner *g, const char *words)
{
    pthread_mutex_lock(&g->said.lock);
    const bool has = strstr(g->said.text, words) != NULL;
    pthread_mutex_unlock(&g->said.lock);
    return has;
}

/* A process that joins as this rank, until it is killed. */
static pid_t joiner_process(const joiner *g)
{
    const pid_t pid = fork();
    coll_comm *comm = NULL;

    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)coll_init(&comm, &g->config);
    _exit(0);
}

/* One rank comes, and dies while another is still awaited: all who are there know soon, long before the time for the start is
 * over; unless it is started again at once. */
static void died_case(const void *arg)
{
    joiner joiners[4];
    char where[64];
    const bool is_replaced = arg != NULL;
    const int held = support_reserve_port(where, sizeof where);

    joiners_make(joiners, 4, where);
    for (int i = 0; i < 4; i++) joiners[i].config.liveness_timeout_ms = is_replaced ? 10000 : 1000;
    const pid_t died = joiner_process(&joiners[2]);
    joiner_start(&joiners[1]);
    joiner_start(&joiners[0]);
    while (!has_said(&joiners[0], "for 1 of 4 ranks: 3")) (void)poll(NULL, 0, 5);
    kill(died, SIGKILL);
    (void)waitpid(died, NULL, 0);
    if (is_replaced) {
        joiner_start(&joiners[2]);
        joiner_start(&joiners[3]);
        expect_world(joiners, 4);
    } else {
        for (int i = 0; i < 2; i++)
            expect_failure(&joiners[i], COLL_ERR_PEER, START_MS - 5000, "rank 2 came to rank 0", "has not come back for 1.");
    }
    close(held);
}

static void duplicate_case(const void *arg)
{
    joiner joiners[3], twin;
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joiners_make(joiners, 3, where);
    joiners_make(&twin, 1, where);
    twin.config.rank = 1, twin.config.size = 3;
    joiner_start(&joiners[0]);
    joiner_start(&joiners[1]);
    joiner_start(&twin);
    for (bool has_shown = false; !has_shown; (void)sched_yield()) {
        pthread_mutex_lock(&joiners[0].said.lock);
        has_shown = strstr(joiners[0].said.text, "same rank, 1, from 127.0.0.1:") != NULL;
        pthread_mutex_unlock(&joiners[0].said.lock);
    }
    joiner_start(&joiners[2]);
    pthread_join(joiners[1].thread, NULL);
    pthread_join(twin.thread, NULL);
    joiner *loser = joiners[1].is_good ? &twin : &joiners[1];
    CHECK(joiners[1].is_good != twin.is_good && strstr(loser->sentence, "same rank, 1"), "%s: %s", case_name, loser->sentence);
    pthread_join(joiners[0].thread, NULL);
    pthread_join(joiners[2].thread, NULL);
    CHECK(joiners[0].is_good && joiners[2].is_good, "%s: %s; %s", case_name, joiners[0].sentence, joiners[2].sentence);
    close(held);
}

/* Others say nothing, and are still there when the world has met. */
static void silent_case(const void *arg)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    joiner joiners[3];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);
    int silent[5];

    (void)arg;
    joiners_make(joiners, 3, where);
    joiner_start(&joiners[0]);
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
    joiner_start(&joiners[1]);
    joiner_start(&joiners[2]);
    expect_world(joiners, 3);
    CHECK(joiners[0].took_ms < support_patience(3000), "%s: it took %d ms", case_name, (int)joiners[0].took_ms);
    for (int i = 0; i < 5; i++) close(silent[i]);
    close(held);
}

/* Which world a rank belongs to. */
static void other_world_case(const void *arg)
{
    joiner joiners[2], stranger;
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joiners_make(joiners, 2, where);
    joiners_make(&stranger, 1, where);
    stranger.config.rank = 1, stranger.config.size = 2;
    stranger.config.world = "another";
    joiner_start(&joiners[0]);
    joiner_start(&stranger);
    expect_failure(&stranger, COLL_ERR_PROTOCOL, 5000, "another job", where);
    stranger.config.world = NULL;
    stranger.config.size = 3;
    joiner_start(&stranger);
    expect_failure(&stranger, COLL_ERR_PROTOCOL, 5000, "another number of ranks", where);
    joiner_start(&joiners[1]);
    expect_world(joiners, 2);
    close(held);
}

static void network_case(const void *arg)
{
    joiner joiners[2];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joiners_make(joiners, 2, where);
    joiners[0].config.tcp.network = "eth-none*";
    joiner_start(&joiners[0]);
    expect_failure(&joiners[0], COLL_ERR_ARGUMENT, 1000, "\"eth-none*\" names no address", "lo 127.0.0.1");
    joiners_make(joiners, 2, where);
    joiners[0].config.tcp.ports = "many";
    joiner_start(&joiners[0]);
    expect_failure(&joiners[0], COLL_ERR_ARGUMENT, 1000, "\"many\"", "5000-5099");
    joiners_make(joiners, 2, where);
    joiners[0].config.tcp.network = joiners[1].config.tcp.network = "127.0.0.1";
    for (int i = 0; i < 2; i++) joiner_start(&joiners[i]);
    expect_world(joiners, 2);
    joiners_make(joiners, 2, where);
    setenv("NCCL_SOCKET_IFNAME", "eth-none", 1);
    for (int i = 0; i < 2; i++) joiner_start(&joiners[i]);
    expect_world(joiners, 2);
    CHECK(strstr(joiners[0].said.text, "NCCL_SOCKET_IFNAME names no address"), "%s: %s", case_name, joiners[0].said.text);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    joiners_make(joiners, 2, where);
    for (int i = 0; i < 2; i++) joiner_start(&joiners[i]);
    expect_world(joiners, 2);
    CHECK(strstr(joiners[1].said.text, "NCCL_SOCKET_IFNAME=lo"), "%s: %s", case_name, joiners[1].said.text);
    close(held);
}

/* ---- >>meetings by file ---- */

/* What is at the path before. */
typedef enum old_file { NO_FILE, NO_SENSE, REFUSED, OTHER_WORLD, OLD_COUNT } old_file;

static void file_case(const void *arg)
{
    static const char *const olds[] = { "nothing", "nonsense", "a port that nobody has", "a rank of another world" };
    const old_file old = *(const old_file *)arg;
    char directory[] = "/tmp/test_meet.XXXXXX", path[64], address[80], where[64], text[200];
    joiner joiners[3], other[2];
    const int held = support_reserve_port(where, sizeof where);

    CHECK(mkdtemp(directory) != NULL, "%s: no directory", case_name);
    snprintf(path, sizeof path, "%s/rendezvous", directory);
    snprintf(address, sizeof address, "file:%s", path);
    snprintf(text, sizeof text, "coll rendezvous 1\n" NONCE "\n%s\nend\n", old == OTHER_WORLD ? where : "127.0.0.1:1");
    FILE *file = old == NO_FILE ? NULL : fopen(path, "w");
    if (file) CHECK(fputs(old == NO_SENSE ? "what is this?" : text, file) >= 0 && !fclose(file), "%s: %s", case_name, path);
    joiners_make(other, 2, where);
    other[0].config.world = "another";
    other[0].config.start_timeout_ms = 1500;
    if (old == OTHER_WORLD) joiner_start(&other[0]);
    joiners_make(joiners, 3, address);
    for (int i = 0; i < 3; i++) joiners[i].config.tcp.network = "127.0.0.1";
    joiner_start(&joiners[1]);
    joiner_start(&joiners[2]);
    if (old != NO_FILE) (void)poll(NULL, 0, 100);                    /* let them look at the old one          */
    joiner_start(&joiners[0]);
    expect_world(joiners, 3);
    CHECK(access(path, F_OK) && rmdir(directory) == 0, "%s: after %s something is left in %s", case_name, olds[old], directory);
    if (old == OTHER_WORLD) pthread_join(other[0].thread, NULL);
    close(held);
}

static void file_failure_case(const void *arg)
{
    joiner joiners[2];

    (void)arg;
    joiners_make(joiners, 2, "file:/nowhere/at/all");
    for (int i = 0; i < 2; i++) {
        joiners[i].config.start_timeout_ms = 300;
        joiner_start(&joiners[i]);
    }
    expect_failure(&joiners[0], COLL_ERR_SYSTEM, 1000, "file:/nowhere/at/all", "No such file");
    expect_failure(&joiners[1], COLL_ERR_TIMEOUT, 1500, "file:/nowhere/at/all", "not written it yet");
}

/* Rank 1 believes in another size.  Rank 0 says so, and gives up long before rank 1 does, which still knows what it was told. */
static void gone_root_case(const void *arg)
{
    char directory[] = "/tmp/test_meet.XXXXXX", address[80];
    joiner joiners[2];

    (void)arg;
    CHECK(mkdtemp(directory) != NULL, "%s: no directory", case_name);
    snprintf(address, sizeof address, "file:%s/rendezvous", directory);
    joiners_make(joiners, 2, address);
    joiners[1].config.size = 3;
    for (int i = 0; i < 2; i++) {
        joiners[i].config.start_timeout_ms = i == 0 ? 500 : 1500;
        joiner_start(&joiners[i]);
    }
    expect_failure(&joiners[0], COLL_ERR_TIMEOUT, 1500, "have not come: 1", "");
    expect_failure(&joiners[1], COLL_ERR_TIMEOUT, 2500, "rank 1 could not reach rank 0", "another number of ranks");
    CHECK(rmdir(directory) == 0, "%s: something is left in %s", case_name, directory);
}

/* ---- >>spaces: hosts that are network namespaces ---- */

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

/* Wait until host 0 is refused at a port of this address on host 1, where nobody listens: packets pass, and are answered. */
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

static void joiner_lives(joiner *g, int host, const char *address)
{
    g->network = host_spaces[host];
    if (address) g->config.address = address;
}

/* Ranks 0, 2 on one host, which reach rank 0 by loopback; 1, 3 on the other: 1 dials 2, and 2 dials 3. */
static void loopback_case(const void *arg)
{
    joiner joiners[4];

    (void)arg;
    hosts_make(1, true);
    joiners_make(joiners, 4, "127.0.0.1:7000");
    joiner_lives(&joiners[0], 0, ":7000");
    joiner_lives(&joiners[2], 0, NULL);
    joiner_lives(&joiners[1], 1, "10.7.0.1:7000");
    joiner_lives(&joiners[3], 1, "10.7.0.1:7000");
    for (int i = 0; i < 4; i++) joiner_start(&joiners[i]);
    expect_world(joiners, 4);
    CHECK(!strncmp(joiners[2].address, "10.7.0.1:", 9), "%s: rank 2 is told to be at %s", case_name, joiners[2].address);
}

/* Both hosts have the same address on a wire of their own, and meet by a file, in which it may stand first. */
static void docker_case(const void *arg)
{
    char directory[] = "/tmp/test_meet.XXXXXX", address[80];
    joiner joiners[4];

    (void)arg;
    hosts_make(1, true);
    CHECK(mkdtemp(directory) != NULL, "%s: no directory", case_name);
    snprintf(address, sizeof address, "file:%s/rendezvous", directory);
    joiners_make(joiners, 4, address);
    for (int i = 0; i < 2; i++) {
        on_host(i,
                "ip link add docker0 type veth peer name none0 && ip link set none0 up && ip link set docker0 up");
        on_host(i, "ip addr add 172.17.0.1/16 dev docker0");
        on_host(i, "ip route add default dev docker0");
    }
    for (int i = 0; i < 4; i++) {
        joiner_lives(&joiners[i], i % 2, NULL);
        joiner_start(&joiners[i]);
    }
    expect_world(joiners, 4);
    CHECK(!strncmp(joiners[1].address, "10.7.0.2:", 9), "%s: rank 1 listens at %s", case_name, joiners[1].address);
    rmdir(directory);
}

/* Rank 0's name has two addresses, of which nothing leads to the first. */
static void dead_wire_case(const void *arg)
{
    static const char names[] = "127.0.0.1 localhost\nfd07:9::1 server\n10.7.1.1 server\n";
    joiner joiners[4];

    (void)arg;
    hosts_make(2, true);
    for (int i = 0; i < 2; i++) {
        on_host(i, "ip link add lost type veth peer name none0 && ip link set none0 up && ip link set lost up");
        on_host(i, "ip -6 route add fd07:9::/64 dev lost");
    }
    joiners_make(joiners, 4, "server:7000");
    for (int i = 0; i < 4; i++) {
        joiner_lives(&joiners[i], i % 2, NULL);
        joiners[i].names = names;
        joiner_start(&joiners[i]);
    }
    expect_world(joiners, 4);
    CHECK(joiners[1].took_ms < support_patience(3000), "%s: it took %d ms", case_name, (int)joiners[1].took_ms);
    CHECK(!strncmp(joiners[1].address, "10.7.1.2:", 9), "%s: rank 1 listens at %s", case_name, joiners[1].address);
    joiners_make(joiners, 2, "server:7000");      /* nobody is there: both addresses are in the sentence       */
    joiner_lives(&joiners[1], 1, NULL);
    joiners[1].names = names;
    joiners[1].config.start_timeout_ms = 800;
    joiner_start(&joiners[1]);
    expect_failure(&joiners[1], COLL_ERR_TIMEOUT, 2500, "[fd07:9::1]:7000: ", "10.7.1.1:7000: Connection refused");
}

/* A host that knows its own name as 127.0.1.1, as Debian has it. */
static void debian_case(const void *arg)
{
    joiner joiners[3];

    (void)arg;
    hosts_make(1, true);
    joiners_make(joiners, 3, "server:7000");
    for (int i = 0; i < 3; i++) {
        joiner_lives(&joiners[i], i % 2, NULL);
        joiners[i].names = i % 2 ? "10.7.0.1 server\n" : "127.0.0.1 localhost\n127.0.1.1 server\n";
        joiner_start(&joiners[i]);
    }
    expect_world(joiners, 3);
}

/* No IPv4 anywhere. */
static void v6_case(const void *arg)
{
    char directory[] = "/tmp/test_meet.XXXXXX", address[80];
    joiner joiners[3];

    (void)arg;
    hosts_make(1, false);
    CHECK(mkdtemp(directory) != NULL, "%s: no directory", case_name);
    snprintf(address, sizeof address, "file:%s/rendezvous", directory);
    for (int way = 0; way < 2; way++) {
        joiners_make(joiners, 3, way ? "[fd07:0::1]:7000" : address);
        for (int i = 0; i < 3; i++) {
            joiner_lives(&joiners[i], i % 2, NULL);
            joiner_start(&joiners[i]);
        }
        expect_world(joiners, 3);
        CHECK(!strncmp(joiners[1].address, "[fd07::2]:", 10), "%s: rank 1 listens at %s", case_name, joiners[1].address);
    }
    rmdir(directory);
}

/* A link-local address, with its interface, does for ranks of one wire. */
static void link_case(const void *arg)
{
    joiner joiners[3];

    (void)arg;
    hosts_make(1, false);
    on_host(0, "ip addr add fe80::77/64 dev v0 nodad");
    on_host(1, "ip addr add fe80::78/64 dev v0 nodad");
    joiners_make(joiners, 3, "[fe80::77%v0]:7000");
    for (int i = 0; i < 3; i++) {
        joiner_lives(&joiners[i], i ? 1 : 0, NULL);
        joiner_start(&joiners[i]);
    }
    expect_world(joiners, 3);
    joiners_make(joiners, 2, "[fe80::77]:7000");
    joiner_lives(&joiners[1], 1, NULL);
    joiners[1].config.start_timeout_ms = 300;
    joiner_start(&joiners[1]);
    expect_failure(&joiners[1], COLL_ERR_ARGUMENT, 1500, "link-local", "%eth0");
}

/* Two wires: the network decides which one is used, also by ranks that would not need to. */
static void choice_case(const void *arg)
{
    static const char *const words[] = { "v1", "10.7.1.0/24", "^v0,fd07::/16", "fd07:1::/64" };
    joiner joiners[3];

    (void)arg;
    hosts_make(2, true);
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        const bool is_v6 = w == 3;
        joiners_make(joiners, 3, is_v6 ? "[fd07:1::1]:7000" : "10.7.1.1:7000");
        for (int i = 0; i < 3; i++) {
            joiner_lives(&joiners[i], i % 2, i == 0 ? ":7000" : NULL);
            joiners[i].config.tcp.network = words[w];
            joiner_start(&joiners[i]);
        }
        expect_world(joiners, 3);
        const char *const want = is_v6 ? "[fd07:1::2]:" : "10.7.1.2:";
        CHECK(!strncmp(joiners[1].address, want, strlen(want)), "%s, %s: rank 1 listens at %s", case_name, words[w],
              joiners[1].address);
    }
}

/* Rank 0 is not where everybody looks for it. */
static void elsewhere_case(const void *arg)
{
    joiner joiners[2];

    (void)arg;
    hosts_make(1, true);
    joiners_make(joiners, 2, "10.7.0.2:7000");
    for (int i = 0; i < 2; i++) {
        joiner_lives(&joiners[i], 0, NULL);
        joiners[i].config.start_timeout_ms = 600;
        joiner_start(&joiners[i]);
    }
    expect_failure(&joiners[0], COLL_ERR_TIMEOUT, 2000, "no address of its host", "have not come: 1");
    expect_failure(&joiners[1], COLL_ERR_TIMEOUT, 2000, "10.7.0.2:7000", "refused");
}

/* ---- >>shortages: a process that may open no more files ---- */

/* Let this process open so many more, and no others.  Gives what it was allowed before. */
static rlim_t files_allow(rlim_t more)
{
    const int next = dup(STDERR_FILENO);
    struct rlimit limit;

    close(next);
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = (rlim_t)next + more;
    setrlimit(RLIMIT_NOFILE, &limit);
    return before;
}

static void files_restore(rlim_t before)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Rank 0 can take in some of the ranks, and no more: it says so, long before the time for the start is over, and so do those whom
 * it can tell. */
static void short_start_case(const void *arg)
{
    joiner joiners[6];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);
    int told = 0, status = -1;

    (void)arg;
    joiners_make(joiners, 6, where);
    const pid_t root = fork();
    if (root == 0) {
        coll_comm *comm = NULL;
        files_allow(6);
        const coll_status s = coll_init(&comm, &joiners[0].config);
        const char *const sentence = coll_error(NULL);
        const bool is_right = s == COLL_ERR_SYSTEM && strstr(sentence, "have not come: ") && strstr(sentence, "ulimit -n is ");
        if (!is_right) fprintf(stderr, "%s: rank 0: status %d, %s\n", case_name, (int)s, sentence);
        _exit(!is_right);
    }
    for (int i = 1; i < 6; i++) {
        joiners[i].config.start_timeout_ms = 4500;
        joiner_start(&joiners[i]);
    }
    for (int i = 1; i < 6; i++) {
        pthread_join(joiners[i].thread, NULL);
        const bool is_told = strstr(joiners[i].sentence, "nothing left for another connection: Too many open files") != NULL;
        told += is_told;
        CHECK(joiners[i].status == (is_told ? COLL_ERR_SYSTEM : COLL_ERR_TIMEOUT), "%s: rank %d: status %d, %s", case_name, i,
              (int)joiners[i].status, joiners[i].sentence);
        CHECK(!is_told || joiners[i].took_ms < support_patience(3500), "%s: rank %d took %d ms", case_name, i,
              (int)joiners[i].took_ms);
    }
    CHECK(told > 0 && told < 5, "%s: %d ranks have been told: rank 0 had room for none, or for all", case_name, told);
    CHECK(waitpid(root, &status, 0) == root && status == 0, "%s: rank 0: exit status %d", case_name, status);
    close(held);
}

typedef struct short_rank { joiner *joiner; pthread_barrier_t *barrier; } short_rank;

static void *short_main(void *at)
{
    const short_rank *r = at;
    joiner *g = r->joiner;
    int32_t one = 1, sum = 0;

    g->status = coll_init(&g->comm, &g->config);
    pthread_barrier_wait(r->barrier);             /* all have met                                             */
    pthread_barrier_wait(r->barrier);             /* no more files                                            */
    if (g->status == COLL_OK) g->status = coll_allreduce(g->comm, &one, &sum, 1, COLL_I32, COLL_SUM);
    snprintf(g->sentence, sizeof g->sentence, "%s", g->comm ? coll_error(g->comm) : coll_error(NULL));
    pthread_barrier_wait(r->barrier);
    if (g->comm) coll_free(g->comm);
    return NULL;
}

/* A rank that cannot connect to another for want of files says that of itself, not of the other. */
static void short_call_case(const void *arg)
{
    joiner joiners[3];
    short_rank ranks[3];
    pthread_barrier_t barrier;
    char where[64];
    const int held = support_reserve_port(where, sizeof where);

    (void)arg;
    joiners_make(joiners, 3, where);
    for (int i = 0; i < 3; i++) joiners[i].config.tcp.hub = -1;       /* a hub needs no connections                       */
    pthread_barrier_init(&barrier, NULL, 4);
    for (int i = 0; i < 3; i++) {
        ranks[i] = (short_rank){ &joiners[i], &barrier };
        CHECK(pthread_create(&joiners[i].thread, NULL, short_main, &ranks[i]) == 0, "%s: no thread", case_name);
    }
    pthread_barrier_wait(&barrier);
    const rlim_t before = files_allow(0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    files_restore(before);
    for (int i = 0; i < 3; i++) {
        pthread_join(joiners[i].thread, NULL);
        const char *const cause = strstr(joiners[i].sentence, "): ");
        CHECK(joiners[i].status == COLL_ERR_SYSTEM && strstr(joiners[i].sentence, "has nothing left for a connection to rank ")
              && strstr(joiners[i].sentence, "Too many open files (ulimit -n is "), "%s: rank %d: status %d, %s", case_name, i,
              (int)joiners[i].status, joiners[i].sentence);
        CHECK(cause && strstr(joiners[0].sentence, cause), "%s: rank %d says %s, and rank 0 %s", case_name, i,
              joiners[i].sentence, joiners[0].sentence);
    }
    close(held);
}

static rlim_t files_before;

static void more_files(void *context, coll_log_level level, const char *line)
{
    (void)context, (void)level;
    if (strstr(line, "cannot let anybody in") && strstr(line, "Too many open files")) files_restore(files_before);
}

/* One to whom others connect in a call, and who has no files left, says so on the log, and goes on as soon as it has some. */
static void short_door_case(const void *arg)
{
    joiner joiners[2];
    char where[64];
    const int held = support_reserve_port(where, sizeof where);
    int status = -1;

    (void)arg;
    joiners_make(joiners, 2, where);
    joiners[0].config.tcp.hub = joiners[1].config.tcp.hub = -1;
    joiners[1].config.log = more_files, joiners[1].config.liveness_timeout_ms = -1;     /* connected to in calls only */
    const pid_t other = fork();
    if (other == 0) {
        coll_comm *comm = NULL;
        int32_t from[2] = { 100, 101 }, to[2], sum = 1;
        bool is_good = coll_init(&comm, &joiners[1].config) == COLL_OK;
        files_before = files_allow(0);
        is_good = is_good && coll_alltoall(comm, from, to, 1, COLL_I32) == COLL_OK && to[0] == 1 && to[1] == 101;
        is_good = is_good && coll_alltoall(comm, from, to, 1, COLL_I32) == COLL_OK;
        is_good = is_good && coll_allreduce(comm, &sum, &sum, 1, COLL_I32, COLL_SUM) == COLL_OK && sum == 2;
        _exit(!is_good || files_allow(0) != files_before || coll_free(comm) != COLL_OK);
    }
    joiner_start(&joiners[0]);
    expect_world(joiners, 1);
    CHECK(waitpid(other, &status, 0) == other && status == 0, "%s: rank 1: exit status %d", case_name, status);
    close(held);
}

/* ---- >>main ---- */

typedef struct part_case { const char *part, *name; void (*body)(const void *arg); const void *arg; } part_case;

static const old_file olds[] = { NO_FILE, NO_SENSE, REFUSED, OTHER_WORLD };

static const part_case cases[] = {
    { "meetings", "listening at any port", listening_case, "127.0.0.1:0" },
    { "meetings", "listening widely at any port", listening_case, ":0" },
    { "meetings", "a list of hosts", hosts_case, NULL },
    { "meetings", "a range of ports", ports_case, "enough" },
    { "meetings", "a range that is too small", ports_case, "too few" },
    { "meetings", "a port in use", in_use_case, NULL },
    { "meetings", "missing ranks", missing_case, NULL },
    { "meetings", "an impatient rank", impatient_case, NULL },
    { "meetings", "nobody there", unreachable_case, NULL },
    { "meetings", "rank 0 is late", late_case, NULL },
    { "meetings", "one comes and dies", died_case, NULL },
    { "meetings", "one comes, dies, and comes again", died_case, "again" },
    { "meetings", "two of one rank", duplicate_case, NULL },
    { "meetings", "five that say nothing", silent_case, NULL },
    { "meetings", "another world", other_world_case, NULL },
    { "meetings", "networks", network_case, NULL },
    { "meetings", "a file", file_case, &olds[0] },
    { "meetings", "a file that is nonsense", file_case, &olds[1] },
    { "meetings", "an old file that leads nowhere", file_case, &olds[2] },
    { "meetings", "an old file that leads to another world", file_case, &olds[3] },
    { "meetings", "a file that cannot be", file_failure_case, NULL },
    { "meetings", "a rank 0 that has refused and is gone", gone_root_case, NULL },
    { "meetings", "never paced at home", unpaced_case, NULL },
    { "meetings", "on a processor each", bound_case, "alone" },
    { "meetings", "on one processor", bound_case, NULL },
    { "meetings", "too few files to start", short_start_case, NULL },
    { "meetings", "too few files to connect", short_call_case, NULL },
    { "meetings", "too few files to be connected to", short_door_case, NULL },
    { "spaces", "by loopback and from outside", loopback_case, NULL },
    { "spaces", "an address that both hosts have", docker_case, NULL },
    { "spaces", "a name with a dead address", dead_wire_case, NULL },
    { "spaces", "a name that is loopback at home", debian_case, NULL },
    { "spaces", "IPv6 only", v6_case, NULL },
    { "spaces", "link-local addresses", link_case, NULL },
    { "spaces", "a choice of networks", choice_case, NULL },
    { "spaces", "rank 0 is elsewhere", elsewhere_case, NULL },
};

static void run_part(const char *part)
{
    world = part;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].part, part)) run_case_within(CASE_SECONDS, cases[i].body, cases[i].arg, cases[i].name);
}

/* Can a namespace be had?  Where it cannot, the part is missing from the proof. */
static bool has_spaces(void)
{
    int status = 1;
    const pid_t child = fork();

    if (child == 0) _exit(unshare(CLONE_NEWNET | CLONE_NEWNS) || system("ip link set lo up > /dev/null 2>&1"));
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;

    tally = support_need(mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    clearenv();
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    world = "meetings";
    const int v6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const coll__address one = coll__address_unpack((const unsigned char[16]){ [15] = 1 }, 0);
    const bool has_v6 = v6 >= 0 && !bind(v6, (const struct sockaddr *)&one.at, one.length);
    for (size_t i = 0; support_listed(parts, "meetings") && i < sizeof addresses / sizeof *addresses; i++)
        if (has_v6 || !addresses[i].needs_v6) run_case_within(CASE_SECONDS, address_case, &addresses[i], addresses[i].name);
    if (v6 >= 0) close(v6);
    if (!has_v6) printf("this machine has no IPv6 loopback: meetings by ::1 are left out\n");
    if (support_listed(parts, "meetings")) run_part("meetings");
    if (support_listed(parts, "spaces")) {
        CHECK(has_spaces(), "no network namespaces: this needs root, and the command ip");
        if (has_spaces()) run_part("spaces");
    }
    return CHECK_DONE();
}
