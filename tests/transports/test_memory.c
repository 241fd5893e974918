/* test_memory.c - the pipe through memory (transports/tcp/coll_tcp_shm_pipe.h), end to end over a pair of real sockets: both use
 * it, one has it disabled, the dialling end leaves before the answer, the other side writes invalid data into it.
 *
 *     test_memory                     COLL_TEST_SEED=...: other pieces, other pauses */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include <poll.h>

enum { RING = 64 << 10, LIMIT_SECONDS = 60, STREAM_BYTES = 8 << 20 };

static const unsigned char world[COLL__WORLD_LENGTH] = "a world of tests";
static const unsigned char other_world[COLL__WORLD_LENGTH] = "another one 1234";

/* Two connected sockets over the loopback. */
static void connect_pair(coll__pipe *ends)
{
    char address[64];
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int reserved = support_reserve_port(address, sizeof address), listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    name.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    CHECK(!bind(listener, (struct sockaddr *)&name, sizeof name) && !listen(listener, 1)
          && !connect(fd, (struct sockaddr *)&name, sizeof name), "no connection: %s", strerror(errno));
    ends[0] = (coll__pipe){ .fd = fd };
    ends[1] = (coll__pipe){ .fd = accept(listener, NULL, NULL) };
    for (int i = 0; i < 2; i++) setsockopt(ends[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(listener);
    close(reserved);
}

/* The same after the handshake of both: rings of these lengths. */
static void open_pair(coll__pipe *ends, size_t caller, size_t called)
{
    connect_pair(ends);
    CHECK(coll__memory_begin(NULL, &ends[0], world, 0, 1, 0, caller, true)
          && coll__memory_begin(NULL, &ends[1], world, 0, 1, 0, called, false), "no memory");
}

/* The accepting end accepts the offered memory.  No other bytes have come. */
static bool take_up(coll__pipe *p)
{
    struct pollfd fd = { .fd = p->fd, .events = POLLIN };
    unsigned char byte;

    return poll(&fd, 1, 1000) == 1 && coll__pipe_move(p, &byte, 1, false) == -EAGAIN;
}

static void close_pair(coll__pipe *ends)
{
    coll__pipe_close(&ends[0]);
    coll__pipe_close(&ends[1]);
}

static unsigned char byte_at(int side, size_t at) { return (unsigned char)support_mix((uint64_t)at / 8 * 2 + (uint64_t)side); }

/* Write as much as fits, up to `length`. */
static size_t write_some(coll__pipe *p, int side, size_t from, size_t length)
{
    unsigned char bytes[4096];
    size_t done = 0;

    while (done < length) {
        const size_t n = coll__least(length - done, sizeof bytes);
        for (size_t i = 0; i < n; i++) bytes[i] = byte_at(side, from + done + i);
        const ssize_t moved = coll__pipe_move(p, bytes, n, true);
        if (moved < 0) return done;
        done += (size_t)moved;
        if ((size_t)moved < n) return done;
    }
    return done;
}

/* Read `length` bytes of the other side, which must arrive within a second each; then returns 0, or the result of
 * coll__pipe_move. */
static ssize_t read_all(coll__pipe *p, int from_side, size_t length)
{
    unsigned char bytes[5000];

    for (size_t at = 0; at < length;) {
        const ssize_t n = coll__pipe_move(p, bytes, coll__least(length - at, sizeof bytes), false);
        for (ssize_t i = 0; i < n; i++) if (bytes[i] != byte_at(from_side, at + (size_t)i)) return -EILSEQ;
        if (n > 0) at += (size_t)n;
        if (n > 0) continue;
        struct pollfd fd = { .fd = p->fd, .events = coll__pipe_await(p, POLLIN) };
        if (n != -EAGAIN || (fd.events && poll(&fd, 1, 1000) <= 0)) return n;
    }
    return 0;
}

/* ---- >>streams: both directions at once, with pauses ---- */

typedef struct end { coll__pipe *pipe; int side; uint64_t seed; bool is_late, sleeps; int error; } end;

/* Send all bytes of our side and receive all of the other, in pieces of any length; sleep where possible. */
static void *end_main(void *arg)
{
    end *e = arg;
    uint64_t random = e->seed;
    size_t out = 0, in = 0;

    while (out < STREAM_BYTES || in < STREAM_BYTES) {
        unsigned char bytes[3][7001];
        struct iovec pieces[3];
        size_t at = 0;
        ssize_t moved = 0;
        for (int i = 0; i < 3 && out < STREAM_BYTES; i++) {
            const size_t n = coll__least(support_random(&random) % sizeof bytes[0], STREAM_BYTES - out - at);
            for (size_t k = 0; k < n; k++) bytes[i][k] = byte_at(e->side, out + at + k);
            pieces[i] = (struct iovec){ bytes[i], n };
            at += n;
        }
        if (at > 0) {
            const struct msghdr m = { .msg_iov = pieces, .msg_iovlen = 3 };
            const ssize_t n = coll__pipe_send(e->pipe, &m);
            if (n < 0 && errno != EAGAIN) return e->error = errno, NULL;
            if (n > 0) out += (size_t)n, moved += n;
        }
        const size_t want = coll__least(1 + support_random(&random) % sizeof bytes[0], STREAM_BYTES - in);
        const ssize_t n = want ? coll__pipe_move(e->pipe, bytes[0], want, false) : 0;
        if (n < 0 && n != -EAGAIN) return e->error = (int)-n, NULL;
        for (ssize_t i = 0; i < n; i++) if (bytes[0][i] != byte_at(!e->side, in + (size_t)i)) return e->error = EILSEQ, NULL;
        if (n > 0) in += (size_t)n, moved += n;
        if (moved > 0 || !e->sleeps) continue;
        const short query = (short)((in < STREAM_BYTES ? POLLIN : 0) | (out < STREAM_BYTES ? POLLOUT : 0));
        struct pollfd fd = { .fd = e->pipe->fd, .events = coll__pipe_await(e->pipe, query) };
        if (fd.events && poll(&fd, 1, 5000) == 0) return e->error = ETIMEDOUT, NULL;
        if (e->is_late && support_random(&random) % 16 == 0) usleep(200);
    }
    return NULL;
}

static void test_streams(size_t caller, size_t called, bool is_shared, bool sleeps)
{
    coll__pipe ends[2];
    pthread_t thread;

    for (int late = 0; late < 2; late++) {
        open_pair(ends, caller, called);
        end both[2] = { { &ends[0], 0, support_seed(), late == 0, sleeps, 0 },
                        { &ends[1], 1, support_seed() + 1, late == 1, sleeps, 0 } };
        CHECK(!pthread_create(&thread, NULL, end_main, &both[0]), "no thread");
        end_main(&both[1]);
        pthread_join(thread, NULL);
        for (int i = 0; i < 2; i++)
            CHECK(both[i].error == 0, "rings %zu and %zu, side %d: %s", caller, called, i, strerror(both[i].error));
        CHECK(!ends[0].kind == !is_shared && !ends[1].kind == !is_shared, "rings %zu and %zu: %s, %s", caller, called,
              ends[0].kind ? "memory" : "socket", ends[1].kind ? "memory" : "socket");
        close_pair(ends);
    }
}

/* ---- >>ends ---- */

/* The dialling end writes and leaves: the other side gets all bytes and then the end, at any later time. */
static void test_leaving(size_t called, bool is_answered, size_t length)
{
    coll__pipe ends[2];

    open_pair(ends, RING, called);
    if (is_answered) CHECK(take_up(&ends[1]), "there is something to read");
    const size_t written = write_some(&ends[0], 0, 0, length);
    CHECK(written == length, "%zu of %zu bytes", written, length);
    if (ends[0].kind) ends[0].kind->flush(&ends[0], coll__deadline(2000));
    shutdown(ends[0].fd, SHUT_RDWR);
    coll__pipe_close(&ends[0]);
    const ssize_t got = read_all(&ends[1], 0, length), behind = read_all(&ends[1], 0, 1);
    CHECK(got == 0 && behind == -ECONNRESET, "%zu bytes, %s: %zd, then %zd", length, is_answered ? "answered" : "not answered",
          got, behind);
    coll__pipe_close(&ends[1]);
}

/* A sender to an end that has left gets an error, also while it sleeps for room. */
static void test_dead_receiver(void)
{
    coll__pipe ends[2];
    ssize_t n = 0;
    unsigned char bytes[4096] = { 0 };

    open_pair(ends, RING, RING);
    CHECK(take_up(&ends[1]) && write_some(&ends[0], 0, 0, 2 * RING) == RING, "the ring has no end");
    CHECK(coll__pipe_await(&ends[0], POLLOUT) == POLLIN, "there is room in a full ring");
    coll__pipe_close(&ends[1]);
    struct pollfd fd = { .fd = ends[0].fd, .events = POLLIN };
    CHECK(poll(&fd, 1, 5000) == 1 && (n = coll__pipe_move(&ends[0], bytes, sizeof bytes, true)) == -EPIPE, "%zd", n);
    coll__pipe_close(&ends[0]);
}

/* ---- >>nonsense: invalid data ---- */

/* Impossible counters: the bytes end there, and no memory outside the ring is touched. */
static void test_counters(void)
{
    static const uint32_t wrong[] = { RING + 1, 1u << 31, UINT32_MAX, UINT32_MAX - RING };
    unsigned char bytes[100] = { 0 };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        coll__pipe ends[2];
        open_pair(ends, RING, RING);
        CHECK(take_up(&ends[1]) && coll__pipe_move(&ends[0], bytes, sizeof bytes, true) == sizeof bytes
              && coll__pipe_move(&ends[1], bytes, sizeof bytes, false) == sizeof bytes, "it does not work");
        coll__memory *m = ends[0].state;
        __atomic_store_n(m->out.told, m->out.own + wrong[i], __ATOMIC_SEQ_CST);
        CHECK(coll__pipe_move(&ends[1], bytes, sizeof bytes, false) == -EPROTO, "put %u", (unsigned)wrong[i]);
        coll__memory *other = ends[1].state;
        __atomic_store_n(other->in.told, m->out.own + wrong[i], __ATOMIC_SEQ_CST);
        ssize_t n;
        for (int most = 2 * RING; (n = coll__pipe_move(&ends[0], bytes, sizeof bytes, true)) > 0 && most > 0; most -= (int)n)
            continue;
        CHECK(n == (wrong[i] == UINT32_MAX ? -EAGAIN : -EPROTO), "taken %u: %zd", (unsigned)wrong[i], n);
        close_pair(ends);
    }
}

/* Counters wrap at 2^32, in the middle of the data. */
static void test_counters_wrap(void)
{
    const uint32_t before = UINT32_MAX / RING * RING - RING / 2;         /* a byte lies where it would be anyway */
    coll__pipe ends[2];

    open_pair(ends, RING, RING);
    CHECK(take_up(&ends[1]) && write_some(&ends[0], 0, 0, 8) == 8 && !read_all(&ends[1], 0, 8), "it does not work");
    coll__memory *m = ends[0].state, *other = ends[1].state;
    *m->out.told = *m->out.heard = m->out.own = m->out.told_last = before;
    m->out.theirs = before + RING;
    other->in.own = other->in.told_last = other->in.theirs = before;
    for (size_t at = 0; at < 4 * RING; at += RING / 4)
        CHECK(write_some(&ends[0], 0, 0, RING / 4) == RING / 4 && !read_all(&ends[1], 0, RING / 4),
              "at %zu bytes, put %u", at, (unsigned)m->out.own);
    CHECK(m->out.own < before && write_some(&ends[0], 0, 0, 2 * RING) == RING, "no wrap, or no end");
    close_pair(ends);
}

/* An invalid offer: the answer is no, or an end. */
static void test_offers(void)
{
    const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    const struct { uint32_t magic, pid, number; bool is_end; } offers[] = {
        { COLL__MEMORY_MAGIC, (uint32_t)getpid(), (uint32_t)file, false },
        { COLL__MEMORY_MAGIC, (uint32_t)getpid(), 1u << 30, false }, { COLL__MEMORY_MAGIC, 1u << 31, 0, false },
        { COLL__MEMORY_MAGIC, UINT32_MAX, UINT32_MAX, false }, { 77, (uint32_t)getpid(), 3, true }
    };

    for (size_t i = 0; i < sizeof offers / sizeof *offers; i++) {
        coll__pipe ends[2];
        const coll__memory_offer offer = { offers[i].magic, offers[i].pid, offers[i].number, 0 };
        unsigned char answer = 0;
        connect_pair(ends);
        CHECK(coll__memory_begin(NULL, &ends[1], world, 0, 1, 0, RING, false), "no memory");
        for (size_t at = 0; at < sizeof offer; at++) {        /* byte by byte                                 */
            CHECK(coll__pipe_move(&ends[1], &answer, 1, false) == -EAGAIN, "offer %zu, byte %zu", i, at);
            CHECK(send(ends[0].fd, (const unsigned char *)&offer + at, 1, 0) == 1, "%s", strerror(errno));
            struct pollfd fd = { .fd = ends[1].fd, .events = POLLIN };
            (void)poll(&fd, 1, 1000);
        }
        const ssize_t n = coll__pipe_move(&ends[1], &answer, 1, false);
        CHECK(n == (offers[i].is_end ? -EPROTO : -EAGAIN), "offer %zu: %zd", i, n);
        CHECK(offers[i].is_end || (recv(ends[0].fd, &answer, 1, 0) == 1 && answer == coll__memory_no), "offer %zu: %d", i,
              answer);
        close_pair(ends);
    }
    close(file);
}

/* Memory of another world, or between other ranks, or of another length, is not taken; the bytes go over the socket. */
static void test_intruders(void)
{
    for (int i = 0; i < 5; i++) {
        coll__pipe ends[2];
        connect_pair(ends);
        CHECK(coll__memory_begin(NULL, &ends[0], world, 0, 1, 0, RING, true)
              && coll__memory_begin(NULL, &ends[1], i == 0 ? other_world : world, i == 1 ? 2 : 0, i == 2 ? 3 : 1, i == 3,
                                    i == 4 ? 2 * RING : RING, false), "no memory");
        CHECK(write_some(&ends[0], 0, 0, 5000) == 5000 && take_up(&ends[1]) && !ends[1].kind, "case %d", i);
        CHECK(write_some(&ends[0], 0, 5000, 5000) == 5000 && !ends[0].kind && read_all(&ends[1], 0, 10000) == 0,
              "case %d: bytes", i);
        close_pair(ends);
    }
}

/* A control record that refuses the dialling end is left for the stream to read. */
static void test_refusal(void)
{
    static const unsigned char note[3] = { 0x13, 0xc0, 3 };
    unsigned char bytes[8] = { 0 };
    coll__pipe ends[2];

    connect_pair(ends);
    CHECK(coll__memory_begin(NULL, &ends[0], world, 0, 1, 0, RING, true), "no memory");
    CHECK(write_some(&ends[0], 0, 0, 100) == 100 && send(ends[1].fd, note, sizeof note, 0) == sizeof note, "%s", strerror(errno));
    struct pollfd fd = { .fd = ends[0].fd, .events = POLLIN };
    CHECK(poll(&fd, 1, 1000) == 1 && coll__pipe_move(&ends[0], bytes, sizeof bytes, false) == sizeof note
          && !memcmp(bytes, note, sizeof note) && !ends[0].kind, "%02x %02x %02x", bytes[0], bytes[1], bytes[2]);
    close_pair(ends);
}

int main(void)
{
    printf("test_memory: COLL_TEST_SEED=%llu\n", (unsigned long long)support_seed());
    support_limit(LIMIT_SECONDS, NULL);
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        test_streams(RING, RING, true, sleeps);
        test_streams(RING, 2 * RING, false, sleeps);
    }
    for (int i = 0; i < 4; i++) {
        test_leaving(i & 1 ? RING : 2 * RING, i >> 1, 1);
        test_leaving(i & 1 ? RING : 2 * RING, i >> 1, RING);
    }
    test_dead_receiver();
    test_counters();
    test_counters_wrap();
    test_offers();
    test_intruders();
    test_refusal();
    return CHECK_DONE();
}
