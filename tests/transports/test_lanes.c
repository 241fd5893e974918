/* test_lanes.c - streams of several connections: all data arrives, whichever lanes it takes; numbers of lanes that differ; a
 * lane that is cut, one that is slow, invalid chunks, and leaving while data is in flight; long links.
 *
 *     test_lanes [PART,...]             PART: settings, calls, lies, leaving, cuts, slow, long, shaped
 *
 * Bodies use all lanes from a KiB on, so that most messages here are long ones. */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#define COLL__CHUNK_LEAST 1024
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"
#include "../support/net.h"

enum { CASE_SECONDS = 60, RANKS_MOST = 4, WORDS_MOST = 300000, SLOW_WORDS = 2000000 };

static uint64_t seed;
static int      start_ms = 20000;

static void ignore_line(void *context, coll_log_level level, const char *line) { (void)context, (void)level, (void)line; }

/* Run body(joiner) on `size` ranks; `lanes` of each rank. */
static void joiners_run(joiner *joiners, int size, const char *io, const int *lanes, coll_status (*body)(joiner *g), void *arg)
{
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    for (int i = 0; i < size; i++) {
        joiners[i] = (joiner){ .body = body, .arg = arg, .config = { .transport = "tcp", .tcp = { .io = io, .lanes = lanes[i],
            .share_memory = COLL_OFF }, .rank = i, .size = size,
                               .address = address,
                                     .start_timeout_ms = start_ms, .stall_timeout_ms = 20000,
                               .log = ignore_line } };
        joiner_run(&joiners[i]);
    }
    for (int i = 0; i < size; i++) joiner_join(&joiners[i]);
    close(port);
}

static void expect_all(const joiner *joiners, int size)
{
    for (int i = 0; i < size; i++) expect_success(&joiners[i]);
}

static coll__stream *stream_of(const joiner *g, int peer, int channel)
{
    return coll__stream_to(g->comm->session->context, peer, channel);
}

/* ---- >>settings ---- */

static coll_status do_nothing(joiner *g) { return coll_barrier(g->comm); }

static void settings_case(const void *arg)
{
    static const char *const wrong[] = { "0", "17", "-2", "two", "1.5" };
    static const int numbers[] = { -1, 17 };
    coll_config c = { .rank = 0, .size = 1 };
    coll_comm *comm;
    joiner joiners[2];

    (void)arg;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("COLL_LANES", wrong[i], 1);
        CHECK(coll_init(&comm, &c) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "COLL_LANES"), "COLL_LANES=%s: \"%s\"",
              wrong[i], coll_error(NULL));
    }
    unsetenv("COLL_LANES");
    for (int i = 0; i < 2; i++) {
        c.tcp.lanes = numbers[i];
        CHECK(coll_init(&comm, &c) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "lanes"), "lanes %d", numbers[i]);
    }
    for (int i = 0; i < 3; i++) {                 /* the error of rank 1 names the setting                    */
        const int lanes[3][2] = { { 1, 2 }, { 2, 1 }, { 16, 3 } };
        int ms = 700;
        do {                                      /* rank 0 waits to the end of this time: short where it can be */
            start_ms = ms;
            joiners_run(joiners, 2, "poll", lanes[i], do_nothing, NULL);
            ms *= 2;
        } while (joiners[1].status == COLL_ERR_TIMEOUT && ms < 40000);
        start_ms = 20000;
        CHECK(joiners[1].status == COLL_ERR_PROTOCOL && strstr(joiners[1].sentence, "COLL_LANES"), "%d and %d lanes: %s: %s",
              lanes[i][0], lanes[i][1], coll_status_text(joiners[1].status), joiners[1].sentence);
        CHECK(joiners[0].status != COLL_OK, "%d and %d lanes: rank 0 has joined", lanes[i][0], lanes[i][1]);
    }
}

/* ---- >>calls ---- */

static uint32_t word_of(int from, int to, int k, size_t i) { return support_word(from, to, k, i); }

/* A message to the next rank and one from the previous one, of any length, several at once. */
static coll_status pass_on(joiner *g, uint64_t *random, uint32_t *in, uint32_t *out)
{
    enum { AT_ONCE = 6 };
    const int me = coll_rank(g->comm), size = coll_size(g->comm), next = (me + 1) % size, last = (me + size - 1) % size;
    size_t counts[AT_ONCE], at = 0;
    coll_request *requests[2 * AT_ONCE] = { NULL };
    coll_status status = COLL_OK;

    for (int k = 0; k < AT_ONCE; k++)
        counts[k] = support_random(random) % (support_random(random) & 1 ? 200 : WORDS_MOST / AT_ONCE);
    for (int k = 0; k < AT_ONCE && status >= 0; at += counts[k++]) {
        for (size_t i = 0; i < counts[k]; i++) out[at + i] = word_of(me, next, k, i);
        const coll_call receive = { .kind = COLL_RECV, .recv = in + at, .count = counts[k], .type = COLL_U32, .peer = last,
                .tag = k };
        const coll_call give = { .kind = COLL_SEND, .send = out + at, .count = counts[k], .type = COLL_U32, .peer = next,
                .tag = k };
        status = coll_start(g->comm, &receive, &requests[2 * k]);
        if (status >= 0) status = coll_start(g->comm, &give, &requests[2 * k + 1]);
    }
    if (status >= 0) status = coll_wait_all(2 * AT_ONCE, requests);
    for (int k = 0; k < 2 * AT_ONCE; k++) coll_request_free(requests[k]);
    at = 0;
    for (int k = 0; k < AT_ONCE && !status; at += counts[k++])
        for (size_t i = 0; i < counts[k]; i++)
            if (in[at + i] != word_of(last, me, k, i)) return COLL_ERR_MISMATCH;
    return status;
}

static coll_status add_up(joiner *g, uint64_t *random, uint32_t *in, uint32_t *out)
{
    const int me = coll_rank(g->comm), size = coll_size(g->comm);
    const size_t count = support_random(random) % WORDS_MOST;

    for (size_t i = 0; i < count; i++) out[i] = word_of(me, 0, 7, i);
    const coll_status status = coll_allreduce(g->comm, out, in, count, COLL_U32, COLL_SUM);
    for (size_t i = 0; i < count && !status; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < size; r++) sum += word_of(r, 0, 7, i);
        if (in[i] != sum) return COLL_ERR_MISMATCH;
    }
    return status;
}

static coll_status exchange(joiner *g, uint64_t *random, uint32_t *in, uint32_t *out)
{
    const int me = coll_rank(g->comm), size = coll_size(g->comm);
    const size_t count = support_random(random) % (WORDS_MOST / RANKS_MOST);

    for (int r = 0; r < size; r++) for (size_t i = 0; i < count; i++) out[(size_t)r * count + i] = word_of(me, r, 8, i);
    const coll_status status = coll_alltoall(g->comm, out, in, count, COLL_U32);
    for (int r = 0; r < size && !status; r++)
        for (size_t i = 0; i < count; i++) if (in[(size_t)r * count + i] != word_of(r, me, 8, i)) return COLL_ERR_MISMATCH;
    return status;
}

static coll_status talk(joiner *g)
{
    uint64_t random = seed;
    uint32_t *in = support_need(malloc(WORDS_MOST * sizeof *in)), *out = support_need(malloc(WORDS_MOST * sizeof *out));
    coll_status status = COLL_OK;
    int heard = 0;

    for (int n = 0; n < 12 && !status; n++)
        status = (n % 3 == 0 ? pass_on : n % 3 == 1 ? add_up : exchange)(g, &random, in, out);
    free(in);
    free(out);
    const coll__stream *s = stream_of(g, (coll_rank(g->comm) + 1) % coll_size(g->comm), COLL_CHANNEL_CALLS);
    for (int k = 0; s->stripe_set && k < s->stripe_set->count; k++) heard += s->stripe_set->stripes[k].has_heard;
    return status ? status : heard == (s->stripe_set ? g->config.tcp.lanes : 0) ? COLL_OK : COLL_ERR_UNSUPPORTED;
}

typedef struct plan { const char *io; int size, lanes; const char *key, *security; } plan;

static void calls_case(const void *arg)
{
    const plan *p = arg;
    const int lanes[RANKS_MOST] = { p->lanes, p->lanes, p->lanes, p->lanes };
    joiner joiners[RANKS_MOST];

    if (p->security) setenv("COLL_SECURITY", p->security, 1);
    if (p->key) setenv("COLL_KEY", p->key, 1);
    joiners_run(joiners, p->size, p->io, lanes, talk, NULL);
    expect_all(joiners, p->size);
}

static void test_calls(void)
{
    static const struct { const char *key, *security; } secured[] = { { NULL, NULL }, { "a key of all ranks, 0123456789", "key" },
        { "a key of all ranks, 0123456789", "key+check" },
#if defined(COLL_WITH_OPENSSL)
        { "a key of all ranks, 0123456789", "tls" },
#endif
    };
    static const int lanes[] = { 1, 2, 4, 16 };
    char name[80];

    for (size_t i = 0; i < sizeof secured / sizeof *secured; i++)
        for (int n = 0; n < 8; n++) {
            const plan p = { n & 1 ? "uring" : "poll", n < 4 ? 2 : RANKS_MOST, lanes[n / 2], secured[i].key,
                    secured[i].security };
            if (n & 1 && support_refusal("tcp-uring")) continue;
            if (i > 0 && n > 5) continue;
            snprintf(name, sizeof name, "%s, %d ranks, %d lanes, security %s", p.io, p.size, p.lanes,
                    p.security ? p.security : "none");
            run_case_within(CASE_SECONDS, calls_case, &p, name);
        }
}

/* ---- >>leaving: data sent before arrives ---- */

static coll_status send_and_leave(joiner *g)
{
    const int *k = g->arg;
    const size_t count = (size_t)(*k * 977);
    uint32_t *words = support_need(malloc((count + 1) * sizeof *words));
    coll_status status;

    for (size_t i = 0; i < count; i++) words[i] = word_of(0, 1, *k, i);
    if (coll_rank(g->comm) == 0) {
        status = coll_broadcast(g->comm, words, count, COLL_U32, 0);
    } else {
        memset(words, 0, count * sizeof *words);
        status = coll_broadcast(g->comm, words, count, COLL_U32, 0);
        for (size_t i = 0; i < count && !status; i++) if (words[i] != word_of(0, 1, *k, i)) status = COLL_ERR_MISMATCH;
    }
    free(words);
    return status;
}

static void leaving_case(const void *arg)
{
    static const int lanes[] = { 3, 3, 3 };
    joiner joiners[3];

    for (int k = 1; k < 400; k = k * 3 + 1) {
        joiners_run(joiners, 3, arg, lanes, send_and_leave, &k);
        expect_all(joiners, 3);
    }
}

/* ---- >>cuts: if any lane ends, both get an error that names the peer, at once ---- */

typedef struct cut { event ready; int lane; bool is_amid; } cut;

/* Rank 1 waits for rank 0, which only makes progress; or both are in the middle of a call. */
static coll_status be_cut(joiner *g)
{
    cut *c = g->arg;
    uint32_t *words = support_need(calloc(WORDS_MOST, sizeof *words));
    coll_status status = coll_allreduce(g->comm, words, words, WORDS_MOST, COLL_U32, COLL_SUM);
    coll_request *r = NULL;

    event_raise(&c->ready);
    event_await(&c->ready, 2);
    if (coll_rank(g->comm) == 0) {
        if (!status && c->is_amid) status = coll_iallreduce(g->comm, words, words, WORDS_MOST, COLL_U32, COLL_SUM, &r);
        if (status >= 0) shutdown(coll__stream_lane(stream_of(g, 1, COLL_CHANNEL_CALLS), c->lane)->fd, SHUT_RDWR);
        event_raise(&c->ready);
        while (!status && !c->is_amid && coll_progress(g->comm) >= 0) {}
        if (r) status = coll_wait(r);
        coll_request_free(r);
    } else {
        event_await(&c->ready, 3);
    }
    for (int n = 0; n < 3 && !status; n++) status = coll_allreduce(g->comm, words, words, WORDS_MOST, COLL_U32, COLL_SUM);
    free(words);
    event_raise(&c->ready);
    return status;
}

static void cuts_case(const void *arg)
{
    static const int lanes[] = { 3, 3 };
    joiner joiners[2];

    for (int n = 0; n < 6; n++) {
        cut c = { EVENT_INIT, n % 3, n < 3 };
        joiners_run(joiners, 2, arg, lanes, be_cut, &c);
        for (int i = 0; i < 2; i++)
            CHECK(joiners[i].status == COLL_ERR_PEER && (names_rank(joiners[i].sentence, 0) || names_rank(joiners[i].sentence, 1))
                  && joiners[i].body_ms < support_scaled(3000), "%s: lane %d cut: rank %d: %s after %d ms: %s", case_name,
                  n % 3, i, coll_status_text(joiners[i].status), (int)joiners[i].body_ms, joiners[i].sentence);
    }
}

/* ---- >>slow: each lane carries what its link can ---- */

typedef struct relay {
    pthread_t thread;
    event     ready;
    int       fds[2][2];                          /* for each rank: in the place of its socket; ours          */
    size_t    passed;                             /* bytes from rank 0 to rank 1                              */
} relay;

/* Forward what comes, 4 KiB from rank 0 at a time with a pause behind them: 0.4 MB/s, a small part of the rate of the others. */
static void *relay_main(void *at)
{
    relay *m = at;
    struct pollfd p[2] = { { .fd = m->fds[0][1], .events = POLLIN }, { .fd = m->fds[1][1], .events = POLLIN } };
    char bytes[4096];

    for (;;) {
        (void)poll(p, 2, -1);
        for (int i = 0; i < 2; i++) {
            if (!(p[i].revents & (POLLIN | POLLHUP))) continue;
            const ssize_t n = read(p[i].fd, bytes, sizeof bytes);
            if (n <= 0) return shutdown(m->fds[!i][1], SHUT_RDWR), NULL;
            if (i == 0) m->passed += (size_t)n;
            if (i == 0) nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
            if (send(m->fds[!i][1], bytes, (size_t)n, MSG_NOSIGNAL) != n) return NULL;
        }
    }
}

static coll_status be_slow(joiner *g)
{
    relay *m = g->arg;
    const int me = coll_rank(g->comm);
    uint32_t *words = support_need(calloc(SLOW_WORDS, sizeof *words));
    coll_status status = coll_barrier(g->comm);

    event_raise(&m->ready);
    event_await(&m->ready, 2);
    if (dup2(m->fds[me][0], coll__stream_lane(stream_of(g, !me, COLL_CHANNEL_CALLS), 1)->fd) < 0) status = COLL_ERR_SYSTEM;
    event_raise(&m->ready);
    event_await(&m->ready, 4);
    for (size_t i = 0; i < SLOW_WORDS && me == 0; i++) words[i] = word_of(0, 1, 3, i);
    if (!status) status = coll_broadcast(g->comm, words, SLOW_WORDS, COLL_U32, 0);
    for (size_t i = 0; i < SLOW_WORDS && !status; i++) if (words[i] != word_of(0, 1, 3, i)) status = COLL_ERR_MISMATCH;
    free(words);
    event_raise(&m->ready);                       /* no rank leaves before both have seen                     */
    event_await(&m->ready, 6);
    return status;
}

static void slow_case(const void *arg)
{
    static const int lanes[] = { 3, 3 };
    relay m = { .ready = EVENT_INIT };
    joiner joiners[2];
    const int small = 16384;

    for (int i = 0; i < 2; i++) {
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m.fds[i]), "no sockets");
        for (int k = 0; k < 2; k++) (void)setsockopt(m.fds[i][k], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    }
    CHECK(!pthread_create(&m.thread, NULL, relay_main, &m), "no thread");
    joiners_run(joiners, 2, arg, lanes, be_slow, &m);
    for (int i = 0; i < 2; i++) close(m.fds[i][0]);
    pthread_join(m.thread, NULL);
    for (int i = 0; i < 2; i++) close(m.fds[i][1]);
    expect_all(joiners, 2);
    CHECK(m.passed > 0 && m.passed < sizeof(uint32_t) * SLOW_WORDS / 9, "%s: the slow lane carried %zu of %zu bytes",
            case_name, m.passed,
          sizeof(uint32_t) * (size_t)SLOW_WORDS);
}

/* ---- >>lies: invalid chunks end the stream, and write nothing out of bounds ---- */

typedef struct lie { int lane; uint32_t number, length; uint64_t offset; bool is_true; } lie;

static void lies_case(const void *arg)
{
    enum { LENGTH = 5000 };
    static const lie lies[] = {
        { 0, 1, 1000, 0, true }, { 1, 1, 1000, 4000, true }, { 1, 1, LENGTH, 0, true },
        { 0, 1, 1, LENGTH, false }, { 1, 1, 1000, 4001, false }, { 1, 1, LENGTH + 1, 0, false }, { 0, 0, 10, 0, false },
        { 0, 2, 10, 0, false }, { 1, 0, 10, 0, false }, { 1, 0xffffffff, 10, 0, false }, { 1, 0xfffffff9, 10, 0, false },
        { 0, 1, 100, UINT64_MAX, false }, { 0, 1, 0xffffffff, 0, false }, { 1, 1, 100, (uint64_t)1 << 32, false },
        { 1, 1, COLL__CHUNK_MOST + 1, 0, false }
    };

    (void)arg;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        const lie *l = &lies[i];
        unsigned char *body = support_need(malloc(LENGTH)), bytes[COLL__CHUNK_HEAD];
        coll_xfer x = { .buffer = body, .length = LENGTH, .peer = 1, .status = COLL_PENDING };
        coll__stream s = { .pipe = { .fd = -1 }, .peer = 1, .state = COLL__STREAM_OPEN };
        int fds[2][2], error = -1;
        s.in.end = &s.in.first;
        s.out.end = &s.out.first;
        s.stripe_set = support_need(coll__stripe_set_new(NULL, &s, 2));
        for (int k = 0; k < 2; k++) {
            CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds[k]), "no sockets");
            (void)coll__stream_joined(&s, k, &(coll__pipe){ .fd = fds[k][0] });
        }
        coll__chain_put(&s.in, &x);
        CHECK(send(fds[0][1], x.head, sizeof x.head, 0) == sizeof x.head, "no head");
        coll__put32(bytes, l->number);
        coll__put32(bytes + 4, l->length);
        coll__put32(bytes + 8, (uint32_t)l->offset);
        coll__put32(bytes + 12, (uint32_t)(l->offset >> 32));
        CHECK(send(fds[l->lane][1], bytes, sizeof bytes, 0) == sizeof bytes, "no chunk");
        (void)coll__stripe_set_pull(&s, &error);
        CHECK(error == (l->is_true ? -1 : EBADMSG) && x.status == COLL_PENDING, "lie %zu: error %d", i, error);
        CHECK(!l->is_true || s.stripe_set->stripes[l->lane].left == l->length, "valid chunk %zu is refused", i);
        for (int k = 0; k < 2; k++) close(fds[k][1]);
        coll__dial_end(&s.handshake);
        coll__pipe_close(&s.pipe);
        coll__stripe_set_free(s.stripe_set);
        free(body);
    }
}

/* ---- >>long: the data in flight grows with the latency, and the bits stay the same ---- */

enum { LONG_COUNT = 3 << 20 };

typedef struct trip { float *sum; double seconds; } trip;

static int travel(coll_comm *comm, void *arg)
{
    trip *t = arg;
    float *x = support_need(malloc(LONG_COUNT * sizeof *x));
    uint64_t random = seed + (uint64_t)coll_rank(comm);

    for (size_t i = 0; i < LONG_COUNT; i++) x[i] = (float)(support_random(&random) % 20000) * 1e-3f - 10.0f;
    coll_status status = coll_barrier(comm);
    const double began = coll_sim_time(comm);
    if (!status) status = coll_allreduce(comm, x, coll_rank(comm) == 0 ? t->sum : x, LONG_COUNT, COLL_F32, COLL_SUM);
    if (coll_rank(comm) == 0) t->seconds = coll_sim_time(comm) - began;
    free(x);
    return status;
}

/* Of the ring it is known which bits it makes, and how long it takes at least. */
static void long_case(const void *arg)
{
    static const char *const links[] = { "latency=12us overhead=1us gbit=1", "latency=5ms overhead=1us gbit=1",
                                         "latency=20ms overhead=1us gbit=4" };
    const int *size = arg;
    float *first = support_need(malloc(LONG_COUNT * sizeof *first)), *other = support_need(malloc(LONG_COUNT * sizeof *other));
    const coll__link near = coll__link_default, far = { 20e-3, 1e-6, 8e-9, 0.1e-9, 0.25e-9 };

    setenv("COLL_TRANSPORT", "sim", 1);
    setenv("COLL_ALGORITHM", "allreduce=ring", 1);
    for (int i = 0; i < 3; i++) {
        trip t = { i ? other : first, 0 };
        setenv("COLL_SIM", links[i], 1);
        CHECK(!coll_spawn(*size, travel, &t, NULL), "%s: %s", case_name, links[i]);
        CHECK(!i || !memcmp(first, other, LONG_COUNT * sizeof *first), "%s: other bits with %s", case_name, links[i]);
        const double bytes = LONG_COUNT * 4.0 * 2 * (*size - 1) / *size, rate = i == 2 ? 5e8 : 1.25e8;
        const double ramp = 2 * (*size - 1) * (i == 0 ? 12e-6 : i == 1 ? 5e-3 : 20e-3);
        CHECK(t.seconds < 1.25 * (bytes / rate + ramp), "%s: %s: %g s", case_name, links[i], t.seconds);
    }
    for (int n = 2; n < 5000; n = n * 3 / 2) {    /* nothing changes for the existing links                   */
        const long least = coll__lag(&near, coll__slice_bytes(n)), most = coll__lag(&far, coll__slice_bytes(n));
        CHECK(least == COLL__LAG_LEAST, "the default link has a lag of %ld with %d ranks", least, n);
        CHECK(most >= 20 && most <= COLL__LAG_MOST, "a long link has a lag of %ld", most);
    }
    free(first);
    free(other);
}

/* ---- >>shaped: a link that a token bucket limits, between two hosts ---- */

enum { SHAPED_MBIT = 200, SHAPED_WORDS = 1 << 20 };

static coll_status cross(joiner *g)
{
    uint32_t *words = support_need(calloc(SHAPED_WORDS, sizeof *words));
    coll_status status = coll_allreduce(g->comm, words, words, SHAPED_WORDS, COLL_U32, COLL_SUM);
    const int64_t began = now_ms();

    for (int n = 0; n < 3 && !status; n++) status = coll_allreduce(g->comm, words, words, SHAPED_WORDS, COLL_U32, COLL_SUM);
    *(int64_t *)g->arg = now_ms() - began;
    free(words);
    return status;
}

/* Rank `rank` at its host.  Exits with 0 if the link was fully used. */
static void shaped_rank(const net *n, int rank, const char *io)
{
    char address[40];
    int64_t took_ms = 0;
    joiner g = { .body = cross, .arg = &took_ms, .config = { .transport = "tcp", .tcp = { .io = io, .lanes = 2,
        .security = "open" }, .rank = rank, .size = 2, .address = address, .start_timeout_ms = 20000, .log = ignore_line } };

    net_address(0, address, sizeof address);
    strcat(address, ":7177");                     /* of a network of our own: no other process has it         */
    if (!net_enter(n, rank)) _exit(2);
    (void)joiner_main(&g);
    const double best_ms = SHAPED_WORDS * 4.0 * 8 * 3 / (SHAPED_MBIT * 1e3);
    const bool is_late = took_ms > support_scaled((int64_t)(1.35 * best_ms));
    if (g.status) fprintf(stderr, "shaped: rank %d: %s\n", rank, g.sentence);
    else if (is_late) fprintf(stderr, "shaped: rank %d: %d ms, at best %.0f ms\n", rank, (int)took_ms, best_ms);
    _exit(g.status ? 3 : is_late ? 4 : 0);
}

static void shaped_case(const void *arg)
{
    net n = { .is_refused = true };
    const bool is_made = net_become_root() && net_make(&n);

    if (!is_made && n.is_refused) printf("shaped: skipped: %s\n", n.why);
    CHECK(is_made || n.is_refused, "no network: %s", n.why);
    if (!is_made) return;
    for (int i = 0; i < 2; i++)
        CHECK(!net_run(&n, i, "tc", "qdisc add dev e0 root tbf rate 200mbit burst 256k latency 50ms\n"), "no token bucket");
    pid_t ranks[2];
    for (int i = 0; i < 2; i++) if (!(ranks[i] = fork())) shaped_rank(&n, i, arg);
    for (int i = 0; i < 2; i++) {
        int status = -1;
        CHECK(waitpid(ranks[i], &status, 0) == ranks[i] && status == 0, "%s: rank %d: status %d", case_name, i,
                WEXITSTATUS(status));
    }
    net_end(&n);
}

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;

    seed = support_seed();
    cases_begin();
    printf("COLL_TEST_SEED=%llu\n", (unsigned long long)seed);
    world = "lanes";
    if (support_listed(parts, "settings")) run_case_within(CASE_SECONDS, settings_case, NULL, "settings");
    if (support_listed(parts, "calls")) test_calls();
    if (support_listed(parts, "lies")) run_case_within(CASE_SECONDS, lies_case, NULL, "lies");
    for (int size = 2; size <= 4 && support_listed(parts, "long"); size++) run_case_within(CASE_SECONDS, long_case, &size,
            "long links");
    for (int i = 0; i < 2; i++) {
        const char *const io = i ? "uring" : "poll";
        if (i && support_refusal("tcp-uring")) printf("uring: skipped: %s\n", support_refusal("tcp-uring"));
        if (i && support_refusal("tcp-uring")) break;
        if (support_listed(parts, "leaving")) run_case_within(CASE_SECONDS, leaving_case, io, io);
        if (support_listed(parts, "cuts")) run_case_within(CASE_SECONDS, cuts_case, io, io);
        if (support_listed(parts, "slow")) run_case_within(CASE_SECONDS, slow_case, io, io);
        if (support_listed(parts, "shaped")) run_case_within(CASE_SECONDS, shaped_case, io, io);
    }
    return CHECK_DONE();
}
