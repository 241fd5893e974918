/* reference.c - see reference.h.  To be compiled with all that the compiler and the processor have: -O3 -march=native. */
#define _GNU_SOURCE 1
#include "reference.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A call of the socket moves no more than SEND_MOST or STAGED bytes, so that both directions and the sum have their turn; what
 * is staged stays in the second cache until it is added. */
enum { SEND_MOST = 512 << 10, STAGED = 128 << 10, HALVES_LEAST = 8 << 10, SWAP_MOST = 4 << 20, PAUSES = 30, SPIN_US = 100 };

struct reference {
    int fd, rank;
    const bench_case *part;
    struct timespec since;                        /* the first look of this wait                               */
    unsigned looks;
    size_t waiting;                               /* bytes of the buffer that are not added yet: part of a number */
    _Alignas(64) char staged[STAGED + sizeof(float)];
};

/* ---- >>the socket ---- */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The bytes that a socket call moved; 0 if it would block; any other error ends the program. */
static size_t moved(ssize_t result)
{
    if (result > 0) return (size_t)result;
    if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    fprintf(stderr, "reference: %s\n", result ? strerror(errno) : "the other rank has left");
    _exit(1);
}

static size_t give(const reference *me, const void *from, size_t bytes)
{
    return moved(send(me->fd, from, least(bytes, SEND_MOST), MSG_DONTWAIT | MSG_NOSIGNAL));
}

static size_t take(const reference *me, void *to, size_t bytes)
{
    return moved(recv(me->fd, to, bytes, MSG_DONTWAIT));
}

/* Nothing moved: look again soon, for a look takes the lock that the incoming bytes need; when that has lasted, sleep. */
static void wait_a_little(reference *me, bool has_to_send)
{
    struct timespec now;

    for (int i = 0; i < PAUSES; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
    if (me->looks++ % 16) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (me->looks == 1) me->since = now;
    const double us = 1e6 * (double)(now.tv_sec - me->since.tv_sec) + 1e-3 * (double)(now.tv_nsec - me->since.tv_nsec);
    if (us < SPIN_US) return;
    struct pollfd on = { .fd = me->fd, .events = (short)(POLLIN | (has_to_send ? POLLOUT : 0)) };
    poll(&on, 1, -1);
}

/* ---- >>sum of received data ---- */

static void add(float *to, const float *mine, const float *theirs, size_t n)
{
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (size_t i = 0; i < n; i++) to[i] = mine[i] + theirs[i];
}

/* Receive available bytes of the next `bytes` and add them.  Returns the bytes received; `waiting` of them are not added yet. */
static size_t take_and_add(reference *me, float *to, const float *mine, size_t bytes)
{
    const size_t got = take(me, me->staged + me->waiting, least(bytes, STAGED - me->waiting));
    const size_t whole = (me->waiting + got) / sizeof *to, rest = (me->waiting + got) % sizeof *to;

    if (got == 0) return 0;
    add(to, mine, (const float *)(const void *)me->staged, whole);
    if (rest) memmove(me->staged, me->staged + whole * sizeof *to, rest);
    me->waiting = rest;
    return got;
}

/* ---- >>the two ways ---- */

/* In place a sum lands where raw bytes lie, so no more is taken than has been sent: the two ranks cannot wait for each other, as
 * the one that has sent less can always be read by the one that has sent more. */
static void swap(reference *me, const float *in, float *out)
{
    const size_t bytes = me->part->count * sizeof *in;
    size_t sent = 0, got = 0;

    while (sent < bytes || got < bytes) {
        size_t now = 0;
        if (sent < bytes) sent += now = give(me, (const char *)in + sent, bytes - sent);
        const size_t most = in == out ? sent : bytes, done = (got - me->waiting) / sizeof *in;
        if (got < most) {
            const size_t came = take_and_add(me, out + done, in + done, most - got);
            got += came;
            now += came;
        }
        if (now) me->looks = 0;
        else wait_a_little(me, sent < bytes);
    }
}

/* The sums of the other half that come depend on the raw bytes that have left from there: in place nothing is overwritten too
 * early. */
static void halves(reference *me, const float *in, float *out)
{
    const size_t count = me->part->count, half = count / 2, first = me->rank ? half : 0, other = me->rank ? 0 : half;
    const size_t raw = (me->rank ? half : count - half) * sizeof *in, sums = count * sizeof *in - raw;
    size_t sent = 0, got = 0;                     /* of the raw half, then of the sums                         */

    while (sent < raw + sums || got < sums + raw) {
        const size_t done = got < sums ? (got - me->waiting) / sizeof *in : sums / sizeof *in;
        size_t now = 0;
        if (sent < raw) now = give(me, (const char *)(in + other) + sent, raw - sent);
        else if (sent - raw < done * sizeof *in)
            now = give(me, (const char *)(out + first) + (sent - raw), done * sizeof *in - (sent - raw));
        sent += now;
        size_t came = 0;
        if (got < sums) came = take_and_add(me, out + first + done, in + first + done, sums - got);
        else if (got < sums + raw) came = take(me, (char *)(out + other) + (got - sums), sums + raw - got);
        got += came;
        if (now + came) me->looks = 0;
        else wait_a_little(me, sent < raw || sent - raw < done * sizeof *in);
    }
}

#define OP(name, way, from)                                                                         \
    static void name(void *context, long i)                                                         \
    {                                                                                               \
        reference *const me = context;                                                              \
                                                                                                    \
        (void)i;                                                                                    \
        way(me, me->part->from, me->part->out);                                                     \
    }

OP(swap_apart, swap, in)
OP(swap_in_place, swap, out)
OP(halves_apart, halves, in)
OP(halves_in_place, halves, out)

void (*reference_op(reference_variant variant, bench_collective collective, size_t bytes))(void *, long)
{
    const bool is_in_place = collective == BENCH_ALLREDUCE_IN_PLACE;

    if (collective != BENCH_ALLREDUCE && !is_in_place) return NULL;
    if (variant == REFERENCE_SWAP ? bytes > SWAP_MOST : bytes < HALVES_LEAST) return NULL;
    if (variant == REFERENCE_SWAP) return is_in_place ? swap_in_place : swap_apart;
    return is_in_place ? halves_in_place : halves_apart;
}

/* ---- >>opening ---- */

bool reference_connect(int ends[2])
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sockaddr *const address = (struct sockaddr *)&at;
    socklen_t length = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || ends[0] < 0 || bind(listener, address, length) || getsockname(listener, address, &length)
        || listen(listener, 1) || connect(ends[0], address, length)
        || (ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0) return false;
    for (int e = 0; e < 2; e++) setsockopt(ends[e], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    close(listener);
    return true;
}

reference *reference_open(const int ends[2], int rank)
{
    reference *const me = aligned_alloc(64, (sizeof *me + 63) / 64 * 64);

    if (!me) abort();
    memset(me, 0, sizeof *me);
    me->fd = ends[rank];
    me->rank = rank;
    close(ends[!rank]);                           /* so that the other rank's end is seen                      */
    return me;
}

void reference_free(reference *me)
{
    if (me) close(me->fd);
    free(me);
}

void reference_enter(reference *me, const bench_case *part)
{
    me->part = part;
}
