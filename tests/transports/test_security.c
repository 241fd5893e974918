/* test_security.c - which connections are accepted, which are refused and with which error; and bytes that are changed between
 * ranks.  The handshake itself is in test_handshakes.c.
 *
 *     test_security [PART,...]          PART: settings, handshakes, crowds, places, calls, changes
 *
 * Built with COLL_WITH_OPENSSL where there is OpenSSL; otherwise TLS is left out, and the first line says so.
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include <sys/stat.h>

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"

#define KEY "a key of all ranks, 0123456789"
#define OTHER_KEY "another key, 0123456789abcdef"

enum { CASE_SECONDS = 30, RANKS_MOST = 4 };

#if defined(COLL_WITH_OPENSSL)
#define HAS_TLS true
#else
#define HAS_TLS false
#endif

static uint64_t seed;

/* ---- >>settings ---- */

typedef struct setting {
    const char *key, *security;                   /* of the configuration                                     */
    const char *environment[3];
    const char *file;                             /* what COLL_KEY_FILE holds                                 */
    int         mode;                             /* of the file                                              */
    coll_status status;
    int         auth;
    const char *words[2];
} setting;

enum { TLS = COLL__AUTH_TLS, CHECKED = COLL__AUTH_CHECK, BY_KEY = COLL__AUTH_KEY, DEFAULT = HAS_TLS ? COLL__AUTH_TLS
       : COLL__AUTH_KEY };

static const setting settings[] = {
    { 0 },
    { .security = "open" },
    { .security = "check", .auth = CHECKED },
    { .security = "open+check", .auth = CHECKED },
    { .key = KEY, .auth = DEFAULT },
    { .key = KEY, .security = "key", .auth = BY_KEY },
    { .key = KEY, .security = "check", .auth = BY_KEY | CHECKED },
    { .key = KEY, .security = "key+check", .auth = BY_KEY | CHECKED },
    { .key = "exactly16bytes..", .security = "key", .auth = BY_KEY },
    { .environment = { "COLL_KEY=" KEY, "COLL_SECURITY=key" }, .auth = BY_KEY },
    { .key = KEY, .environment = { "COLL_KEY=short" }, .security = "key", .auth = BY_KEY },
    { .file = KEY "\n", .mode = 0600, .security = "key", .auth = BY_KEY },
    { .file = KEY "\r\nand more", .mode = 0600, .security = "key", .auth = BY_KEY },
    { .file = KEY, .mode = 0400, .security = "key", .auth = BY_KEY },
    { .file = KEY "\n", .mode = 0644, .status = COLL_ERR_ARGUMENT, .words = { "COLL_KEY_FILE", "may use it: chmod 6" } },
    { .file = "\n" KEY, .mode = 0600, .status = COLL_ERR_ARGUMENT, .words = { "COLL_KEY_FILE", "shorter" } },
    { .environment = { "COLL_KEY_FILE=/nowhere/at/all" }, .status = COLL_ERR_ARGUMENT,
      .words = { "/nowhere/at/all", "No such file" } },
    { .key = "fifteen bytes..", .status = COLL_ERR_ARGUMENT, .words = { "key is shorter than 16" } },
    { .environment = { "COLL_KEY=" }, .status = COLL_ERR_ARGUMENT, .words = { "COLL_KEY is shorter than 16" } },
    { .key = KEY, .security = "open", .status = COLL_ERR_ARGUMENT, .words = { "open", "which one" } },
    { .security = "key", .status = COLL_ERR_ARGUMENT, .words = { "no key", "COLL_KEY" } },
    { .key = KEY, .security = "keys", .status = COLL_ERR_ARGUMENT, .words = { "keys", "none of" } },
    { .key = KEY, .security = "key+tls", .status = COLL_ERR_ARGUMENT, .words = { "key+tls", "none of" } },
    { .security = "open+key", .status = COLL_ERR_ARGUMENT, .words = { "open+key", "none of" } },
#if defined(COLL_WITH_OPENSSL)
    { .key = KEY, .security = "tls", .auth = TLS },
    { .key = KEY, .security = "tls+check", .auth = TLS },
    { .security = "tls", .status = COLL_ERR_ARGUMENT, .words = { "tls", "no key" } },
#else
    { .key = KEY, .security = "tls", .status = COLL_ERR_UNSUPPORTED, .words = { "tls", "COLL_WITH_OPENSSL" } },
#endif
};

static void setting_case(const void *arg)
{
    const setting *w = arg;
    char path[] = "/tmp/test_security_key_XXXXXX", variable[80];
    const coll_config config = { .rank = 1, .size = 2, .address = "127.0.0.1:9",
                                 .tcp = { .key = w->key, .security = w->security } };
    coll__settings general;
    coll__tcp_settings s;

    clearenv();
    for (int i = 0; i < 3 && w->environment[i]; i++) putenv((char *)(uintptr_t)w->environment[i]);
    if (w->file) {
        const int fd = mkstemp(path);
        CHECK(write(fd, w->file, strlen(w->file)) == (ssize_t)strlen(w->file) && !fchmod(fd, (mode_t)w->mode) && !close(fd),
              "no file");
        snprintf(variable, sizeof variable, "COLL_KEY_FILE=%s", path);
        putenv(variable);
    }
    coll_status status = inside_settle(&general, &config, 1);
    if (status == COLL_OK) status = coll__tcp_configure(&s, &general);
    CHECK(status == w->status && (status || s.auth == w->auth), "%s: status %d, auth %d, \"%s\"", case_name, (int)status, s.auth,
          coll__start_error);
    CHECK(!status || (says(coll__start_error, w->words, 2) && !strstr(coll__start_error, KEY)), "%s: \"%s\"", case_name,
          coll__start_error);
    CHECK(status || !(w->auth & COLL__AUTH_KIND) || !strncmp(s.key, w->key ? w->key : KEY, strlen(w->key ? w->key : KEY)),
          "%s: the key has changed", case_name);
    if (w->file) unlink(path);
}

static void test_settings(void)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char name[80];
        snprintf(name, sizeof name, "setting %zu: key %.20s, security %s", i, settings[i].key ? settings[i].key : "(none)",
                 settings[i].security ? settings[i].security : "(none)");
        run_case_within(CASE_SECONDS, setting_case, &settings[i], name);
    }
}

/* ---- >>worlds ---- */

static void joiner_start(joiner *g, int rank, int size, const char *address, journal *j)
{
    g->config.rank = rank;
    g->config.size = size;
    if (address) g->config.address = address;
    g->config.tcp.io = "poll";
    g->config.tcp.share_memory = COLL_OFF;            /* what is tested here happens on the wire              */
    if (!g->config.start_timeout_ms) g->config.start_timeout_ms = 20000;
    g->config.log = journal_line;
    g->config.log_context = j;
    joiner_run(g);
}

/* ---- >>handshakes: one connection is refused; the others wait, and the world forms ---- */

typedef struct handshake {
    const char *name;
    coll_config ours, wrong;
    int         size;                             /* of the wrong one                                         */
    coll_status status;
    const char *words, *line;                     /* in its sentence, and on rank 0's log                     */
} handshake;

#define OPEN { 0 }
#define WITH(k, s) { .tcp = { .key = k, .security = s } }

static const handshake handshakes[] = {
    { "another key", WITH(KEY, "key"), WITH(OTHER_KEY, "key"), 2, COLL_ERR_DENIED, "another one", "another one" },
    { "no key", WITH(KEY, "key"), OPEN, 2, COLL_ERR_DENIED, "it has no key", "it has no key" },
    { "a key where there is none", OPEN, { .tcp = { .key = KEY, .security = "key" }, .start_timeout_ms = 1500 }, 2,
      COLL_ERR_DENIED,
      "an unauthenticated peer says", "it has a key" },
    { "sums where there are none", OPEN, { .tcp = { .security = "open+check" } }, 2, COLL_ERR_DENIED,
      "uses \"open+check\", and here it is \"open\"",
      "open+check" },
    { "no sums where there are", WITH(KEY, "key+check"), WITH(KEY, "key"), 2, COLL_ERR_DENIED,
      "uses \"key\", and here it is \"key+check\"",
      "key+check" },
    { "another job, no sums", { .tcp = { .security = "check" } }, { .tcp = { .security = "check" }, .world = "x" }, 2,
      COLL_ERR_PROTOCOL,
      "COLL_WORLD", "COLL_WORLD" },
    { "another job", WITH(KEY, "key"), { .tcp = { .key = KEY, .security = "key" }, .world = "another" }, 2, COLL_ERR_PROTOCOL,
      "COLL_WORLD", "COLL_WORLD" },
    { "another size", WITH(KEY, "key"), WITH(KEY, "key"), 3, COLL_ERR_PROTOCOL, "job size", "job size" },
#if defined(COLL_WITH_OPENSSL)
    { "another key, TLS", WITH(KEY, "tls"), WITH(OTHER_KEY, "tls"), 2, COLL_ERR_DENIED, "another one", "another one" },
    { "TLS where there is none", WITH(KEY, "key"), WITH(KEY, "tls"), 2, COLL_ERR_DENIED, "\"tls\"", "\"tls\"" },
    { "no TLS where there is", WITH(KEY, "tls"), WITH(KEY, "key"), 2, COLL_ERR_DENIED, "\"tls\"", "\"tls\"" },
    { "no key where there is TLS", WITH(KEY, NULL), OPEN, 2, COLL_ERR_DENIED, "it has no key", "it has no key" },
#endif
};

static void handshake_case(const void *arg)
{
    const handshake *m = arg;
    journal ours = JOURNAL, theirs = JOURNAL;
    joiner zero = { .config = m->ours }, one = { .config = m->ours }, wrong = { .config = m->wrong };
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    joiner_start(&zero, 0, 2, address, &ours);
    case_step = "the wrong one";
    joiner_start(&wrong, 1, m->size, address, &theirs);
    joiner_join(&wrong);
    CHECK(wrong.status == m->status && strstr(wrong.sentence, m->words), "%s: the wrong one has %d, \"%s\"", case_name,
          (int)wrong.status, wrong.sentence);
    CHECK(wrong.took_ms < support_scaled(3000), "%s: the refused one got its error after %d ms", case_name, (int)wrong.took_ms);
    journal_await(&ours, 1);
    const bool is_known = m->wrong.start_timeout_ms ? journal_count(&ours, m->line) >= 1 : journal_count(&ours, m->line) == 1;
    CHECK(is_known, "%s: rank 0 has no single log line \"%s\": %s", case_name, m->line, ours.lines[0]);
    case_step = "the right one";
    joiner_start(&one, 1, 2, address, &ours);
    joiner_join(&one);
    joiner_join(&zero);
    expect_success(&zero);
    expect_success(&one);
    CHECK(!journal_count(&ours, KEY) && !journal_count(&theirs, KEY) && !journal_count(&ours, OTHER_KEY)
          && !strstr(wrong.sentence, KEY)
          && !strstr(wrong.sentence, OTHER_KEY), "%s: a key has been told", case_name);
    close(port);
}

static void test_handshakes(void)
{
    for (size_t i = 0; i < sizeof handshakes / sizeof *handshakes; i++)
        run_case_within(CASE_SECONDS, handshake_case, &handshakes[i], handshakes[i].name);
}

/* ---- >>crowds: connections that send nothing, send slowly, or send another protocol ---- */

static int dial(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons((uint16_t)port) };

    for (;;) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (!connect(fd, (struct sockaddr *)&to, sizeof to)) return fd;
        close(fd);
        sched_yield();
    }
}

typedef struct crowd {
    pthread_t thread;
    int       port;
    int       fds[240];
    int       over;
} crowd;

/* A byte of a good hello at a time, until the world has formed. */
static void *crowd_talks_slowly(void *at)
{
    crowd *c = at;
    unsigned char bytes[COLL__HELLO_LENGTH];
    const coll__hello hello = { .rank = 1, .size = 3, .purpose = COLL__PURPOSE_JOIN };

    coll__hello_write(bytes, &hello);
    for (int n = 0; !__atomic_load_n(&c->over, __ATOMIC_ACQUIRE); n++) {
        for (int i = 230; i < 240; i++) (void)!send(c->fds[i], bytes + n % 16, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)poll(NULL, 0, 1);
    }
    return NULL;
}

static void crowd_comes(crowd *c, int port)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: scanner\r\n\r\n";
    unsigned char noise[600];
    uint64_t random = seed;

    c->port = port;
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)support_random(&random);
    for (int i = 0; i < 240; i++) {
        c->fds[i] = dial(port);
        if (i >= 200 && i < 215) (void)!send(c->fds[i], http, sizeof http - 1, MSG_NOSIGNAL);
        if (i >= 215 && i < 230) (void)!send(c->fds[i], noise, sizeof noise, MSG_NOSIGNAL);
    }
    CHECK(!pthread_create(&c->thread, NULL, crowd_talks_slowly, c), "no thread");
}

static void crowd_goes(crowd *c)
{
    __atomic_store_n(&c->over, 1, __ATOMIC_RELEASE);
    pthread_join(c->thread, NULL);
    for (int i = 0; i < 240; i++) close(c->fds[i]);
}

static const coll_config secured[] = {
    { .tcp = { .security = NULL } }, { .tcp = { .security = "check" } }, { .tcp = { .key = KEY, .security = "key" } },
    { .tcp = { .key = KEY, .security = "key+check" } },
#if defined(COLL_WITH_OPENSSL)
    { .tcp = { .key = KEY, .security = "tls" } },
#endif
};
enum { SECURED = sizeof secured / sizeof *secured };

static const char *secured_name(const coll_config *c) { return c->tcp.security ? c->tcp.security : "none"; }

/* At rank 0, before the other ranks connect. */
static void crowd_case(const void *arg)
{
    journal said = JOURNAL;
    joiner joiners[3];
    crowd c = { .over = 0 };
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    for (int i = 0; i < 3; i++) joiners[i] = (joiner){ .config = *(const coll_config *)arg };
    joiner_start(&joiners[0], 0, 3, address, &said);
    case_step = "the crowd";
    crowd_comes(&c, atoi(strchr(address, ':') + 1));
    case_step = "the world, in the crowd";
    for (int i = 1; i < 3; i++) joiner_start(&joiners[i], i, 3, address, &said);
    for (int i = 0; i < 3; i++) joiner_join(&joiners[i]);
    for (int i = 0; i < 3; i++) expect_success(&joiners[i]);
    CHECK(joiners[1].took_ms < support_scaled(4000) && joiners[2].took_ms < support_scaled(4000),
          "%s: the ranks connected after %d and %d ms", case_name, (int)joiners[1].took_ms, (int)joiners[2].took_ms);
    CHECK(journal_count(&said, "does not speak this protocol") >= 1, "%s: no connection is refused", case_name);
    crowd_goes(&c);
    close(port);
}

/* At a rank's listener, when the world has formed and no rank has dialled it yet. */
typedef struct square { event met, go; int port; } square;

static coll_status meet_in_the_square(joiner *g)
{
    square *s = g->arg;

    if (coll_rank(g->comm) == 2) {
        const coll__tcp *tcp = inside_tcp(g->comm);
        s->port = coll__name_of(tcp->listener, false).port;
    }
    event_raise(&s->met);
    event_await(&s->go, 1);
    for (int i = 0; i < 20; i++) {
        const coll_status status = joiner_adds_up(g);
        if (status) return status;
    }
    return COLL_OK;
}

static void square_case(const void *arg)
{
    journal said = JOURNAL;
    square s = { EVENT_INIT, EVENT_INIT, 0 };
    joiner joiners[3];
    crowd c = { .over = 0 };
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    for (int i = 0; i < 3; i++) {
        joiners[i] = (joiner){ .config = *(const coll_config *)arg, .body = meet_in_the_square, .arg = &s };
        joiner_start(&joiners[i], i, 3, address, &said);
    }
    event_await(&s.met, 3);
    case_step = "the crowd";
    crowd_comes(&c, s.port);
    case_step = "the first call, in the crowd";
    event_raise(&s.go);
    for (int i = 0; i < 3; i++) joiner_join(&joiners[i]);
    for (int i = 0; i < 3; i++) expect_success(&joiners[i]);
    crowd_goes(&c);
    close(port);
}

/* Does this rank have no connection, accepted or pending? */
static bool is_lock_untouched(coll__tcp *tcp)
{
    pthread_mutex_lock(&tcp->accept_lock);
    const bool is_untouched = tcp->handshake_count == 0
                              && coll__stream_to(tcp, 0, COLL_CHANNEL_CALLS)->state == COLL__STREAM_NONE;
    pthread_mutex_unlock(&tcp->accept_lock);
    return is_untouched;
}

/* Let the time limit of all open handshakes pass. */
static void let_time_run_out(coll__tcp *tcp)
{
    pthread_mutex_lock(&tcp->accept_lock);
    for (int i = 0; i < tcp->handshake_count; i++) tcp->handshakes[i].deadline = coll__now();
    pthread_mutex_unlock(&tcp->accept_lock);
}

/* Rank 0 begins when `go` is set, and sends its hello when `met` is set. */
static coll_status dial_and_be_away(joiner *g)
{
    square *s = g->arg;
    int32_t n = 1;
    coll_request *r = NULL;

    event_await(&s->go, 1);
    inside_tcp(g->comm)->looks = 1;               /* no events at the first look: the hello waits             */
    coll_status status = coll_iallreduce(g->comm, &n, &n, 1, COLL_I32, COLL_SUM, &r);
    event_await(&s->met, 1);
    if (status >= 0) status = coll_wait(r);
    coll_request_free(r);
    return status ? status : n == 2 ? COLL_OK : COLL_ERR_PROTOCOL;
}

/* Rank 0 dials, computes for longer than the limit for an unauthenticated connection, and goes on. */
static coll_status lose_timeout(joiner *g)
{
    square *s = g->arg;
    int32_t n = 1;
    coll_request *r = NULL;

    if (coll_rank(g->comm) == 0) return dial_and_be_away(g);
    coll__tcp *tcp = inside_tcp(g->comm);
    coll_status status = coll_iallreduce(g->comm, &n, &n, 1, COLL_I32, COLL_SUM, &r);
    event_raise(&s->go);
    while (status >= 0 && is_lock_untouched(tcp) && coll_test(r) == COLL_PENDING) (void)coll_progress(g->comm);
    let_time_run_out(tcp);
    for (int i = 0; i < 100; i++) (void)coll_progress(g->comm);
    event_raise(&s->met);
    if (status >= 0) status = coll_wait(r);
    coll_request_free(r);
    return status ? status : n == 2 ? COLL_OK : COLL_ERR_PROTOCOL;
}

/* Two ranks without a background thread, so that each makes progress only inside a call. */
static void two_meet(const coll_config *config, coll_status (*body)(joiner *g))
{
    coll_config alone = *config;
    journal said = JOURNAL;
    square s = { EVENT_INIT, EVENT_INIT, 0 };
    joiner joiners[2];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    alone.background = COLL_OFF;
    for (int i = 0; i < 2; i++) {
        joiners[i] = (joiner){ .config = alone, .body = body, .arg = &s };
        joiner_start(&joiners[i], i, 2, address, &said);
    }
    for (int i = 0; i < 2; i++) joiner_join(&joiners[i]);
    for (int i = 0; i < 2; i++) expect_success(&joiners[i]);
    close(port);
}

static void timeout_case(const void *arg) { two_meet(arg, lose_timeout); }

/* The hello of rank 0 lies unread in the socket when the time limit has passed. */
static coll_status hear_at_the_last_moment(joiner *g)
{
    square *s = g->arg;

    if (coll_rank(g->comm) == 0) return dial_and_be_away(g);
    coll__tcp *tcp = inside_tcp(g->comm);
    struct pollfd listener = { .fd = tcp->listener, .events = POLLIN }, hello = { .events = POLLIN };
    pthread_mutex_lock(&tcp->accept_lock);
    event_raise(&s->go);
    while (tcp->handshake_count == 0) {
        (void)poll(&listener, 1, -1);
        (void)coll__accept_all(tcp);
    }
    event_raise(&s->met);
    hello.fd = tcp->handshakes[0].pipe.fd;
    (void)poll(&hello, 1, -1);
    tcp->handshakes[0].deadline = coll__now();
    coll__handshakes_expire(tcp);
    pthread_mutex_unlock(&tcp->accept_lock);
    return joiner_adds_up(g);
}

static void last_moment_case(const void *arg) { two_meet(arg, hear_at_the_last_moment); }

/* Rank 0 has dialled, and returns when the other side may have closed the connection: it dials again, and logs nothing before. */
static coll_status say_too_late(joiner *g)
{
    square *s = g->arg;
    int32_t n = 1;
    coll_request *r = NULL;

    if (coll_rank(g->comm) == 1) {
        event_await(&s->go, 1);
        return joiner_adds_up(g);
    }
    coll__tcp *tcp = inside_tcp(g->comm);
    coll__stream *calls = coll__stream_to(tcp, 1, COLL_CHANNEL_CALLS);
    tcp->looks = 1;                               /* no events at the first look: the hello waits             */
    coll_status status = coll_iallreduce(g->comm, &n, &n, 1, COLL_I32, COLL_SUM, &r);
    const bool is_silent = calls->state == COLL__STREAM_DIALLING && calls->handshake->step == COLL__HANDSHAKE_SAY;
    CHECK(is_silent, "%s: the hello is out already", case_name);
    if (is_silent) {
        calls->handshake->deadline -= (COLL__HANDSHAKE_MS / 2 + 1) * (int64_t)COLL__MS;
        coll__stream_dialled(tcp, calls);
        CHECK(calls->state == COLL__STREAM_NONE && calls->dial_pause_ms > 0, "%s: a late hello was sent", case_name);
    }
    event_raise(&s->go);
    if (status >= 0) status = coll_wait(r);
    coll_request_free(r);
    return status ? status : n == 2 ? COLL_OK : COLL_ERR_PROTOCOL;
}

static void too_late_case(const void *arg) { two_meet(arg, say_too_late); }

static void test_crowds(void)
{
    for (size_t i = 0; i < SECURED; i += 2) {
        char name[80];
        snprintf(name, sizeof name, "a crowd at rank 0, security %s", secured_name(&secured[i]));
        run_case_within(CASE_SECONDS, crowd_case, &secured[i], name);
        snprintf(name, sizeof name, "a crowd at rank 2, security %s", secured_name(&secured[i]));
        run_case_within(CASE_SECONDS, square_case, &secured[i], name);
        snprintf(name, sizeof name, "a rank that computes while it dials, security %s", secured_name(&secured[i]));
        run_case_within(CASE_SECONDS, timeout_case, &secured[i], name);
        snprintf(name, sizeof name, "a hello read at the last moment, security %s", secured_name(&secured[i]));
        run_case_within(CASE_SECONDS, last_moment_case, &secured[i], name);
        snprintf(name, sizeof name, "a hello that would be late, security %s", secured_name(&secured[i]));
        run_case_within(CASE_SECONDS, too_late_case, &secured[i], name);
    }
}

/* ---- >>places: without a key, no public address ---- */

static void test_private(void)
{
    static const struct { const char *text; bool is_private; } all[] = {
        { "127.0.0.1", true }, { "10.1.2.3", true }, { "172.16.0.1", true }, { "172.31.255.255", true }, { "192.168.7.7", true },
        { "169.254.9.9", true }, { "100.64.0.1", true }, { "100.127.255.1", true }, { "::1", true }, { "fc00::1", true },
        { "fdff::1", true }, { "fe80::1", true }, { "febf::1", true },
        { "9.255.255.255", false }, { "11.0.0.1", false }, { "172.15.0.1", false }, { "172.32.0.1", false }, { "192.167.1.1",
                                                                                                               false },
        { "192.169.1.1", false }, { "100.63.0.1", false }, { "100.128.0.1", false }, { "169.253.0.1", false }, { "8.8.8.8",
                                                                                                                 false },
        { "203.0.113.7", true }, { "192.0.2.2", true }, { "11.0.113.7", false }, { "2001:db8::1", false }, { "fec0::1", false },
        { "fe00::1", false }, { "::2", false },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        unsigned char bytes[16];
        memcpy(bytes, coll__v4_prefix, 12);
        CHECK(inet_pton(strchr(all[i].text, ':') ? AF_INET6 : AF_INET, all[i].text, strchr(all[i].text, ':') ? bytes
                        : bytes + 12) == 1,
              "%s is no address", all[i].text);
        CHECK(coll__is_private(bytes) == all[i].is_private, "%s is %sprivate", all[i].text, all[i].is_private ? "not " : "");
    }
}

/* A network of our own with a public address.  NULL: in it. */
static const char *go_public(void)
{
    struct ifreq lo = { .ifr_flags = IFF_UP }, alias = { .ifr_flags = 0 };
    struct sockaddr_in address = { .sin_family = AF_INET };

    if (syscall(SYS_unshare, 0x40000000)) return strerror(errno);         /* CLONE_NEWNET                      */
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(lo.ifr_name, sizeof lo.ifr_name, "lo");
    snprintf(alias.ifr_name, sizeof alias.ifr_name, "lo:1");
    inet_pton(AF_INET, "11.0.113.7", &address.sin_addr);
    memcpy(&alias.ifr_addr, &address, sizeof address);
    const bool is_up = !ioctl(fd, SIOCSIFFLAGS, &lo) && !ioctl(fd, SIOCSIFADDR, &alias);
    const int error = errno;
    close(fd);
    return is_up ? NULL : strerror(error);
}

static void public_case(const void *arg)
{
    static const char *const addresses[] = { "11.0.113.7:4711", ":4711", "0.0.0.0:4711", "[::]:4711" };
    journal said = JOURNAL;
    const char *const problem = go_public();

    (void)arg;
    CHECK(!problem, "%s: no network with a public address (this needs root): %s", case_name, problem);
    for (int i = 0; !problem && i < 4; i++) {
        joiner zero = { .config = { .start_timeout_ms = 300 } };
        joiner_start(&zero, 0, 2, addresses[i], &said);
        joiner_join(&zero);
        CHECK(zero.status == COLL_ERR_ARGUMENT && strstr(zero.sentence, "11.0.113.7")
              && strstr(zero.sentence, "COLL_SECURITY=open"),
              "%s: %s: %d, \"%s\"", case_name, addresses[i], (int)zero.status, zero.sentence);
    }
    for (int i = 0; !problem && i < 2; i++) {     /* with a key, or if it is requested, it goes on             */
        joiner zero = { .config = { .tcp = { .security = i ? "open" : "key", .key = i ? NULL : KEY } } }, one = zero;
        joiner_start(&zero, 0, 2, addresses[0], &said);
        joiner_start(&one, 1, 2, addresses[0], &said);
        joiner_join(&one);
        joiner_join(&zero);
        expect_success(&zero);
        expect_success(&one);
    }
}

static coll_status do_nothing(joiner *g) { return g->comm ? COLL_OK : COLL_ERR_ARGUMENT; }

/* Ranks that report other hosts: one warning, and none if there is a key or it is requested. */
static void warning_case(const void *arg)
{
    const coll_config *c = arg;
    journal said = JOURNAL;
    joiner zero = { .config = *c, .body = do_nothing };
    coll__tcp_settings s = { .config = *c };
    coll__handshake greets[3];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    joiner_start(&zero, 0, 4, address, &said);
    for (int rank = 1; rank < 4; rank++) {
        coll__identity us = { .auth = 0 };
        unsigned char note[COLL__CONTROL_LENGTH];
        s.config.rank = rank;
        s.config.size = 4;
        s.config.world = "";
        CHECK(coll__identify(&us, &s), "no identity");
        memset(us.host, rank, sizeof us.host);
        coll__handshake_call(&greets[rank - 1], &us, dial(atoi(strchr(address, ':') + 1)),
                             (coll__hello){ .purpose = COLL__PURPOSE_JOIN },
                             coll__deadline(5000));
        CHECK(coll__handshake_finish(&greets[rank - 1], &us) == COLL_OK, "rank %d: %s", rank, greets[rank - 1].why);
        CHECK(!coll__pipe_transfer(&greets[rank - 1].pipe, note, sizeof note, false, coll__deadline(5000))
              && coll__get16(note + 2) == COLL__CONTROL_WELCOME, "rank %d is not welcome", rank);
        coll__endpoint place = { .count = 1, .port = 9 };
        memcpy(place.addresses[0], coll__v4_prefix, sizeof coll__v4_prefix);
        memcpy(place.addresses[0] + 12, (unsigned char[4]){ 10, 0, 0, (unsigned char)rank }, 4);
        CHECK(!coll__endpoint_send(&greets[rank - 1].pipe, COLL__CONTROL_ENDPOINT, &place, coll__deadline(5000)), "no place");
    }
    joiner_join(&zero);
    expect_success(&zero);
    const int due = !c->tcp.security;
    const int warnings = journal_count(&said, "any process that reaches this port may join");
    CHECK(warnings == due, "%s: %d warnings", case_name, warnings);
    for (int i = 0; i < 3; i++) coll__pipe_close(&greets[i].pipe);
    close(port);
}

static void test_places(void)
{
    static const coll_config open = { .tcp = { .security = "open" } }, none = { .tcp = { .security = NULL } };

    test_private();
    run_case_within(CASE_SECONDS, public_case, NULL, "a public address");
    run_case_within(CASE_SECONDS, warning_case, &none, "other hosts, no key");
    run_case_within(CASE_SECONDS, warning_case, &open, "other hosts, and it is meant");
}

/* ---- >>calls: every collective gives the same through every kind of connection as between threads ---- */

enum { CALL_KINDS = 24, CALL_COUNTS = 4, CALL_RANKS = 3 };

static uint64_t call_results[CALL_KINDS][CALL_COUNTS][CALL_RANKS];

static uint64_t hash_of(const int32_t *at, size_t count)
{
    uint64_t h = count;
    for (size_t i = 0; i < count; i++) h = support_mix(h ^ (uint32_t)at[i]);
    return h;
}

/* One call of each kind; what is left in recv, as a number. */
static uint64_t call_one(coll_comm *comm, int kind, size_t count)
{
    const int n = coll_size(comm), me = coll_rank(comm), next = (me + 1) % n, before = (me + n - 1) % n;
    const size_t room = (count + 4) * (size_t)n * 2;
    int32_t *send = support_need(malloc(room * 4)), *recv = support_need(calloc(room, 4));
    size_t counts[CALL_RANKS], mine[CALL_RANKS], bytes[CALL_RANKS], at = 0, c = count;
    coll_type types[CALL_RANKS];
    coll_status s = COLL_OK;
    const coll_type T = COLL_I32;

    for (size_t i = 0; i < room; i++) send[i] = (int32_t)support_mix((uint64_t)me << 32 | i);
    for (int i = 0; i < n; i++) {
        counts[i] = c + (size_t)i;
        mine[i] = c + (size_t)((me + i) % 3);     /* the same at both ends of a pair                          */
        bytes[i] = at;
        types[i] = T;
        at += 4 * mine[i];
    }
    coll_list_item list[2] = { { send, recv, c, T }, { send + c, recv + c, c / 2 + 1, T } };
    switch (kind) {
    case 0: s = coll_barrier(comm); break;
    case 1: memcpy(recv, send, c * 4); s = coll_broadcast(comm, recv, c, T, n - 1); break;
    case 2: s = coll_reduce(comm, send, recv, c, T, COLL_SUM, 1); break;
    case 3: s = coll_allreduce(comm, send, recv, c, T, COLL_SUM); break;
    case 4: s = coll_reduce_scatter(comm, send, recv, c, T, COLL_MAX); break;
    case 5: s = coll_reduce_scatterv(comm, send, recv, counts, T, COLL_SUM); break;
    case 6: s = coll_scan(comm, send, recv, c, T, COLL_SUM); break;
    case 7: s = coll_exscan(comm, send, recv, c, T, COLL_SUM); break;
    case 8: s = coll_gather(comm, send, recv, c, T, 0); break;
    case 9: s = coll_gatherv(comm, send, counts[me], recv, counts, NULL, T, 2); break;
    case 10: s = coll_scatter(comm, send, recv, c, T, 1); break;
    case 11: s = coll_scatterv(comm, send, counts, NULL, recv, counts[me], T, 0); break;
    case 12: s = coll_allgather(comm, send, recv, c, T); break;
    case 13: s = coll_allgatherv(comm, send, counts[me], recv, counts, NULL, T); break;
    case 14: s = coll_alltoall(comm, send, recv, c, T); break;
    case 15: s = coll_alltoallv(comm, send, mine, NULL, recv, mine, NULL, T); break;
    case 16: s = coll_alltoallw(comm, send, mine, bytes, types, recv, mine, bytes, types); break;
    case 17: if (!(s = coll_neighbors(comm, &before, 1, &next, 1))) s = coll_neighbor_allgather(comm, send, recv, c, T); break;
    case 18: s = coll_neighbor_alltoall(comm, send, recv, c, T); break;
    case 19: s = coll_allreduce_list(comm, list, 2, COLL_SUM); break;
    case 20: s = coll_sendrecv(comm, send, c, next, recv, c, before, 3, T); break;
    case 21: s = me == 0 ? coll_send(comm, send, c, T, 1, 5) : me == 1 ? coll_recv(comm, recv, c, T, 0, 5) : COLL_OK; break;
    case 22: s = coll_allreduce_mixed(comm, send, recv, 0, COLL_F32, COLL_BF16, COLL_SUM); break;
    default: s = coll_allreduce(comm, send, recv, c, T, COLL_BXOR); break;
    }
    CHECK(s == COLL_OK, "%s: call %d of %zu: %s", case_name, kind, count, coll_error(comm));
    const uint64_t result = hash_of(recv, room);
    free(send);
    free(recv);
    return result;
}

/* coll_explain names the security in force, and says if a key does not encrypt. */
static void check_named(coll_comm *comm, const char *security)
{
    const coll_call call = { .kind = COLL_BARRIER };
    const bool is_key = security && !strncmp(security, "key", 3);
    char text[900], wanted[80];

    snprintf(wanted, sizeof wanted, ", security %s%s", !security ? "open" : !strcmp(security, "check") ? "open+check" : security,
             is_key ? " (not encrypted)" : "");
    CHECK(coll_explain(comm, &call, text, sizeof text) > 0 && strstr(text, wanted), "%s: \"%s\" has not \"%s\"", case_name, text,
          wanted);
}

static const char *security_asked;                /* of the world in which call_all runs                      */

static int call_all(coll_comm *comm, void *arg)
{
    static const size_t counts[CALL_COUNTS] = { 0, 1, 1000, 30000 };
    const bool is_model = arg;

    if (!is_model) check_named(comm, security_asked);
    for (int k = 0; k < CALL_KINDS; k++)
        for (int c = 0; c < CALL_COUNTS; c++) {
            uint64_t *expected = &call_results[k][c][coll_rank(comm)];
            const uint64_t result = call_one(comm, k, counts[c]);
            if (is_model) *expected = result;
            else CHECK(result == *expected, "%s: call %d of %zu on rank %d differs", case_name, k, counts[c], coll_rank(comm));
        }
    return 0;
}

typedef struct calls { const char *world; const coll_config *config; } calls;

static void calls_case(const void *arg)
{
    const calls *w = arg;
    int yes = 1;

    CHECK(support_run("threads", CALL_RANKS, call_all, &yes) == 0, "%s: between threads", case_name);
    case_step = w->world;
    security_asked = w->config->tcp.security;
    CHECK(support_run_config(w->world, CALL_RANKS, w->config, call_all, NULL) == 0, "%s", case_name);
}

static void test_calls(void)
{
    static const char *const worlds[] = { "tcp-poll", "tcp-uring" };

    for (int n = 0; n < 2; n++) {
        const char *refusal = support_refusal(worlds[n]);
        if (refusal) printf("%s: skipped: %s\n", worlds[n], refusal);
        for (size_t i = 1; i < SECURED && !refusal; i++) {
            const calls w = { worlds[n], &secured[i] };
            char name[80];
            snprintf(name, sizeof name, "all calls, %s, security %s", worlds[n], secured_name(&secured[i]));
            run_case_within(CASE_SECONDS * 2, calls_case, &w, name);
        }
    }
}

/* ---- >>changes: changed bytes between two ranks end the communicator, on both, and the error names one of them ---- */

typedef struct meddler {
    pthread_t thread;
    event     ready, go;
    int       fds[2][2];                          /* for each rank: in the place of its socket; ours          */
    size_t    change_at;                          /* which byte of what rank 0 sends is changed               */
    bool      has_changed;
} meddler;

static void *meddle(void *at)
{
    meddler *m = at;
    struct pollfd p[2] = { { .fd = m->fds[0][1], .events = POLLIN }, { .fd = m->fds[1][1], .events = POLLIN } };
    unsigned char bytes[16384];
    size_t passed = 0;

    for (;;) {
        (void)poll(p, 2, -1);
        for (int i = 0; i < 2; i++) {
            if (!(p[i].revents & (POLLIN | POLLHUP))) continue;
            const ssize_t n = read(p[i].fd, bytes, sizeof bytes);
            if (n <= 0) return shutdown(m->fds[!i][1], SHUT_RDWR), NULL;
            if (i == 0 && m->change_at >= passed && m->change_at < passed + (size_t)n) {
                bytes[m->change_at - passed] ^= 0x40;
                m->has_changed = true;
            }
            if (i == 0) passed += (size_t)n;
            for (ssize_t out = 0, k; out < n; out += k)
                if ((k = send(m->fds[!i][1], bytes + out, (size_t)(n - out), MSG_NOSIGNAL)) <= 0) return NULL;
        }
    }
}

static coll_status be_meddled_with(joiner *g)
{
    enum { COUNT = 60000 };
    meddler *m = g->arg;
    coll__tcp *tcp = inside_tcp(g->comm);
    const int me = coll_rank(g->comm);
    int32_t *x = support_need(calloc(COUNT, 4));
    coll_status status = joiner_adds_up(g);
    bool is_right = true;

    coll__stream *s = coll__stream_to(tcp, !me, COLL_CHANNEL_CALLS);
    event_raise(&m->ready);
    event_await(&m->ready, 2);                    /* both have returned from the call, and no bytes are in flight */
    if (dup2(m->fds[me][0], s->pipe.fd) < 0) status = COLL_ERR_SYSTEM;
    event_raise(&m->go);
    event_await(&m->go, 2);
    for (int i = 0; i < COUNT; i++) x[i] = i;
    if (!status) status = coll_allreduce(g->comm, x, x, COUNT, COLL_I32, COLL_SUM);
    if (!status) status = coll_barrier(g->comm);
    for (int i = 0; i < COUNT; i++) is_right = is_right && x[i] == 2 * i;
    free(x);
    if (status || is_right) return status;
    return COLL_ERR_MISMATCH;                     /* a wrong result without an error                           */
}

static void changes_case(const void *arg)
{
    const coll_config *c = arg;
    uint64_t random = seed;
    const bool is_plain = !c->tcp.security;

    for (int n = 0; n < 12; n++) {
        journal said = JOURNAL;
        meddler m = { .ready = EVENT_INIT, .go = EVENT_INIT, .change_at = n < 6 && !is_plain ? (size_t)n * 5
                      : 100 + support_random(&random) % 50000 };
        joiner joiners[2];
        char address[64];
        const int port = support_reserve_port(address, sizeof address);
        for (int i = 0; i < 2; i++) CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m.fds[i]), "no sockets");
        CHECK(!pthread_create(&m.thread, NULL, meddle, &m), "no thread");
        for (int i = 0; i < 2; i++) {
            joiners[i] = (joiner){ .config = *c, .body = be_meddled_with, .arg = &m };
            joiners[i].config.stall_timeout_ms = 3000;
            joiner_start(&joiners[i], i, 2, address, &said);
        }
        for (int i = 0; i < 2; i++) joiner_join(&joiners[i]);
        for (int i = 0; i < 2; i++) close(m.fds[i][0]);
        pthread_join(m.thread, NULL);
        for (int i = 0; i < 2; i++) close(m.fds[i][1]);
        CHECK(m.has_changed, "%s: byte %zu was never sent", case_name, m.change_at);
        for (int i = 0; i < 2 && !is_plain; i++) {
            /* a changed TLS length may wait for the bytes that it announces */
            const bool is_late = c->tcp.security && !strcmp(c->tcp.security,
                                                        "tls") && joiners[i].status == COLL_ERR_TIMEOUT && m.change_at < 5;
            CHECK((joiners[i].status == COLL_ERR_PROTOCOL && strstr(joiners[i].sentence, "is not what it sent")) || is_late,
                  "%s: byte %zu changed: rank %d has %d, \"%s\"", case_name, m.change_at, i, (int)joiners[i].status,
                  joiners[i].sentence);
            CHECK(names_rank(joiners[i].sentence, 0) || names_rank(joiners[i].sentence, 1), "%s: no rank is named: \"%s\"",
                  case_name,
                  joiners[i].sentence);
        }
        if (is_plain)                             /* proves that bytes are really changed                     */
            CHECK(joiners[0].status == COLL_ERR_MISMATCH || joiners[1].status == COLL_ERR_MISMATCH,
                  "%s: byte %zu changed, and nothing is wrong",
                  case_name, m.change_at);
        close(port);
    }
}

static void test_changes(void)
{
    for (size_t i = 0; i < SECURED; i++) {
        if (i == 2) continue;                     /* a key alone does not check bytes                         */
        char name[80];
        snprintf(name, sizeof name, "changed on the way, security %s", secured_name(&secured[i]));
        run_case_within(CASE_SECONDS * 2, changes_case, &secured[i], name);
    }
}

/* ---- >>all of it ---- */

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;

    seed = support_seed();
    cases_begin_without_key();
    printf("COLL_TEST_SEED=%llu, %s\n", (unsigned long long)seed, HAS_TLS ? "with TLS" : "without TLS: not compiled in");
    world = "security";
    if (support_listed(parts, "settings")) test_settings();
    if (support_listed(parts, "handshakes")) test_handshakes();
    if (support_listed(parts, "crowds")) test_crowds();
    if (support_listed(parts, "places")) test_places();
    if (support_listed(parts, "calls")) test_calls();
    if (support_listed(parts, "changes")) test_changes();
    return CHECK_DONE();
}
