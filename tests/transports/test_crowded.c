/* test_crowded.c - a rank sends a message, and leaves at once; the queue of the receiver's listener is full of unauthenticated
 * connections.  The message arrives nevertheless.
 *
 *     test_crowded
 *
 * Built with COLL_WITH_OPENSSL where there is OpenSSL; otherwise TLS is left out, and the first line says so.
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"

#define KEY "a key of all ranks, 0123456789"

enum { CASE_SECONDS = 60, RANKS = 3, INTRUDERS = 600, WORDS = 40 };

typedef enum crowd { CROWD_SILENT, CROWD_RAVES, CROWD_KNOWS, CROWD_FILLS } crowd;

static const char *const crowd_names[] = { "silent connections", "invalid ones that close", "ones with a valid hello",
                                           "a full backlog" };

typedef struct street {
    crowd       crowd;
    int         sender;
    coll_config config;
    event       met, crowded, sent, freed, over;
    int         port, count, fds[INTRUDERS];
} street;

static int32_t word_of(int i) { return (int32_t)support_mix((uint64_t)i); }

/* Connect the crowd to the port. */
static void crowd_comes(street *s)
{
    static const char noise[] = "GET / HTTP/1.1\r\n\r\n";
    const struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                    .sin_port = htons((uint16_t)s->port) };
    unsigned char bytes[COLL__HELLO_LENGTH];
    coll__tcp_settings settings = { .config = { .rank = 0, .size = RANKS, .world = "" }, .key = KEY };
    coll__identity us = { .rank = 0 };
    coll__hello hello = { .purpose = COLL__PURPOSE_PROBE, .to = RANKS - 1 };
    struct pollfd p[8];
    int connected = 0;

    if (s->config.tcp.key) settings.auth = !strcmp(s->config.tcp.security, "tls") ? COLL__AUTH_TLS : COLL__AUTH_KEY;
    CHECK(coll__identify(&us, &settings), "no identity");
    coll__hello_as(&hello, &us);
    coll__hello_write(bytes, &hello);
    s->count = s->crowd == CROWD_FILLS ? 8 : INTRUDERS;
    for (int i = 0; i < s->count; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (s->crowd == CROWD_FILLS ? SOCK_NONBLOCK : 0), 0);
        const bool is_there = !connect(fd, (const struct sockaddr *)&to, sizeof to);
        CHECK(is_there || errno == EINPROGRESS, "%s: connection %d: %s", case_name, i, strerror(errno));
        s->fds[i] = fd;
        if (s->crowd == CROWD_FILLS) p[i] = (struct pollfd){ .fd = fd, .events = POLLOUT };
        if (s->crowd == CROWD_RAVES) (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL);
        if (s->crowd == CROWD_RAVES) shutdown(fd, SHUT_WR);
        if (s->crowd == CROWD_KNOWS) (void)!send(fd, bytes, s->config.tcp.key ? sizeof bytes : sizeof bytes - 1, MSG_NOSIGNAL);
    }
    while (s->crowd == CROWD_FILLS && connected < 2) {            /* a backlog of one takes two                */
        (void)poll(p, 8, -1);
        connected = 0;
        for (int i = 0; i < 8; i++) connected += (p[i].revents & POLLOUT) != 0;
    }
    coll__tls_free(us.tls);
}

static coll_status send_and_leave(joiner *g, street *s)
{
    int32_t x[WORDS];

    for (int i = 0; i < WORDS; i++) x[i] = word_of(i);
    event_await(&s->crowded, 1);
    const coll_status status = coll_send(g->comm, x, WORDS, COLL_I32, RANKS - 1, 7);
    memset(x, 0, sizeof x);
    event_raise(&s->sent);
    coll_free(g->comm);
    g->comm = NULL;
    event_raise(&s->freed);
    return status;
}

static coll_status receive_late(joiner *g, street *s)
{
    coll__tcp *tcp = inside_tcp(g->comm);
    int32_t x[WORDS];
    int departed = 0;

    s->port = coll__name_of(tcp->listener, false).port;
    if (s->crowd == CROWD_FILLS) CHECK(!listen(tcp->listener, 1), "no listener");
    crowd_comes(s);
    event_raise(&s->crowded);
    event_await(&s->sent, 1);
    while (!s->config.tcp.key && s->crowd != CROWD_FILLS && !departed) {      /* until the sender is known to have left */
        event_await(&s->freed, 1);
        pthread_mutex_lock(&tcp->heartbeat.lock);
        departed = tcp->heartbeat.detector.left.count;
        pthread_mutex_unlock(&tcp->heartbeat.lock);
    }
    const coll_status status = coll_recv(g->comm, x, WORDS, COLL_I32, s->sender, 7);
    for (int i = 0; i < WORDS && !status; i++) CHECK(x[i] == word_of(i), "%s: word %d is another one", case_name, i);
    return status;
}

static coll_status walk(joiner *g)
{
    street *s = g->arg;
    const int me = coll_rank(g->comm);
    coll_status status = COLL_OK;

    event_raise(&s->met);
    event_await(&s->met, RANKS);
    if (me == s->sender) return send_and_leave(g, s);
    if (me == RANKS - 1) status = receive_late(g, s);
    if (me == RANKS - 1) event_raise(&s->over);
    event_await(&s->over, 1);
    return status;
}

static void street_case(const void *arg)
{
    street *s = support_need(malloc(sizeof *s));
    joiner joiners[RANKS];
    journal said = JOURNAL;
    char address[64];
    const int held = support_reserve_port(address, sizeof address);

    memcpy(s, arg, sizeof *s);
    s->met = s->crowded = s->sent = s->freed = s->over = (event)EVENT_INIT;
    for (int i = 0; i < RANKS; i++) {
        joiners[i] = (joiner){ .config = s->config, .body = walk, .arg = s };
        joiners[i].config.transport = "tcp";
        joiners[i].config.rank = i;
        joiners[i].config.size = RANKS;
        joiners[i].config.address = address;
        joiners[i].config.tcp.share_memory = COLL_OFF;
        joiners[i].config.start_timeout_ms = 20000;
        joiners[i].config.log = journal_line;
        joiners[i].config.log_context = &said;
        joiner_run(&joiners[i]);
    }
    for (int i = 0; i < RANKS; i++) joiner_join(&joiners[i]);
    for (int i = 0; i < RANKS; i++) expect_success(&joiners[i]);
    for (int i = 0; i < s->count; i++) close(s->fds[i]);
    close(held);
    free(s);
}

int main(int argc, char **argv)
{
    static const coll_config configs[] = {
        { .tcp = { .security = NULL } }, { .tcp = { .security = "check" } }, { .tcp = { .key = KEY, .security = "key" } },
        { .tcp = { .key = KEY, .security = "key+check" } },
#if defined(COLL_WITH_OPENSSL)
        { .tcp = { .key = KEY, .security = "tls" } },
#endif
    };
    static const char *const ios[] = { "poll", "uring" };

    (void)argc, (void)argv;
    cases_begin_without_key();
    world = "crowded";
    for (int io = 0; io < 2; io++) {
        const char *refusal = support_refusal(io ? "tcp-uring" : "tcp-poll");
        if (refusal) printf("%s: skipped: %s\n", ios[io], refusal);
        for (size_t k = 0; !refusal && k < sizeof configs / sizeof *configs; k++)
            for (int crowd_of = 0; crowd_of <= CROWD_FILLS; crowd_of++)
                for (int sender = 0; sender < 2; sender++) {
                    street s = { .crowd = (crowd)crowd_of, .sender = sender, .config = configs[k] };
                    char name[120];
                    s.config.tcp.io = ios[io];
                    snprintf(name, sizeof name, "%s, security %s, %s, sent by rank %d", ios[io],
                             s.config.tcp.security ? s.config.tcp.security : "none", crowd_names[crowd_of], sender);
                    run_case_within(CASE_SECONDS, street_case, &s, name);
                }
    }
    return CHECK_DONE();
}
