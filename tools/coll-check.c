/* coll-check - measure latency, bandwidth and path between every two ranks.
 *
 *     cc -O2 tools/coll-check.c coll.c -o coll-check -pthread
 *     coll-run -H a:1,b:1,c:1 --check              or under any other launcher: coll-run -n 4 ./coll-check
 *
 * Each pair is measured alone: messages of 8 bytes in both directions, of which half the median is the latency; then long
 * messages for some hundredths of a second in each direction.  Up to 8 ranks, one pair runs at a time.  Beyond that, pairs run
 * concurrently: in each of size - 1 rounds every rank has one partner (circle method), so 64 ranks take seconds.
 *
 * The paths are those in use.  Every rank lists the two ends of its sockets, and its shared memory; the entries that two ranks
 * have in common connect them.  The library's internals are not read.
 *
 * Rank 0 prints a line for every pair (up to 12 ranks) or for every rank.  Then it prints the slowest pairs, and a summary.
 *
 * With --tuning FILE rank 0 writes a tuning file (coll_config.tuning_file, COLL_TUNING) for jobs on the same hosts.
 * check_tuning.h computes its content. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../coll.h"

#include "check_tuning.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PAIRS_MOST = 12,                /* up to here every pair has a line                       */
    ALONE_MOST = 8,                 /* up to here one pair is measured at a time              */
    SIZE_MOST = 4096, PINGS = 1000, WARM = 20,
    CHUNK_LEAST = 16 << 10, CHUNK_MOST = 1 << 20, FLIGHT = 4,
    TRIPS = 5, AT_ONCE = 8, EXCHANGES = 6, ADDITIONS = 64, FLOATS = 4096,
    NAME = 64, TRANSPORT = 160
};

static const double ping_seconds = 0.02, stream_seconds = 0.04, across_seconds = 0.3, chunk_seconds = 0.004;
static const double stream_latencies = 20;

/* Connects two processes: a socket, with its two ends, or shared memory. */
typedef struct way {
    uint8_t  local[16], remote[16];         /* IPv4 as ::ffff:a.b.c.d; all 0 for memory      */
    uint16_t local_port, remote_port;
    uint32_t device;
    uint64_t inode;                         /* of memory                                      */
} way;

/* Published by every rank. */
typedef struct card {
    char     host[NAME], transport[TRANSPORT];
    uint64_t ways, processors;
} card;

typedef struct check {
    coll_comm *comm;
    int        rank, size;
    double    *row;                         /* this rank's: latency (s) to each rank, then bytes/s to each */
    char      *chunks;                      /* FLIGHT long messages                           */
    double     pings[PINGS];
    bool       failed;

    card      *cards;                       /* of all ranks                                   */
    double    *rows;                        /* on rank 0                                      */
    way       *ways;
    size_t    *way_offsets;
} check;

/* A test measures simulated machines by simulated time. */
#if !defined(CHECK_NOW)
#define CHECK_NOW(c) now()

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif

/* Report the first error; later calls do nothing. */
static bool good(check *c, coll_status status)
{
    if (status < 0 && !c->failed) fprintf(stderr, "coll-check: %s\n", coll_error(c->comm));
    if (status < 0) c->failed = true;
    return !c->failed;
}

/* ---- >>measuring ---- */

static double median(double *values, size_t count)
{
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

/* Exchange short messages until the leader marks one as the last.  Both get the median of half a round trip, in seconds. */
static double ping(check *c, int peer, bool leads)
{
    const double end = CHECK_NOW(c) + ping_seconds;
    int count = 0;
    uint64_t more = 1;

    for (int i = 0; more && !c->failed; i++) {
        const double began = CHECK_NOW(c);
        if (leads) {
            more = i < WARM || (count < PINGS - 1 && began < end);
            if (!good(c, coll_send(c->comm, &more, 1, COLL_U64, peer, 1))) break;
            if (!good(c, coll_recv(c->comm, &more, 1, COLL_U64, peer, 1))) break;
            if (i >= WARM) c->pings[count++] = (CHECK_NOW(c) - began) / 2;
        } else {
            if (!good(c, coll_recv(c->comm, &more, 1, COLL_U64, peer, 1))) break;
            if (!good(c, coll_send(c->comm, &more, 1, COLL_U64, peer, 1))) break;
        }
    }
    double half = median(c->pings, (size_t)count);
    if (leads) good(c, coll_send(c->comm, &half, 1, COLL_F64, peer, 1));
    else good(c, coll_recv(c->comm, &half, 1, COLL_F64, peer, 1));
    return half;
}

/* Start of a long message.  FLIGHT - 1 dummy messages follow the LAST, for receives already posted. */
typedef struct head { uint64_t place, length; } head;

enum { GROWING, LONGEST, LAST };

static bool finish(check *c, coll_request **request)
{
    const bool ok = good(c, coll_wait(*request));

    coll_request_free(*request);
    *request = NULL;
    return ok;
}

/* Send long messages, up to FLIGHT at a time.  They grow until one takes chunk_seconds, so that a slow link is not overloaded.
 * Returns bytes/s, as measured by the receiver.  A long latency extends the time, for connections start slowly. */
static double stream_out(check *c, int peer, double seconds)
{
    const double least = stream_latencies * c->row[peer];
    const double end = CHECK_NOW(c) + (least > seconds ? least : seconds);
    coll_request *sends[FLIGHT] = { NULL };
    head next = { GROWING, CHUNK_LEAST };
    double rate = 0;

    for (int i = 0, after = 0; after < FLIGHT && !c->failed; i++) {
        char *const chunk = c->chunks + (size_t)(i % FLIGHT) * CHUNK_MOST;
        if (!finish(c, &sends[i % FLIGHT])) break;
        const double before = CHECK_NOW(c);
        if (before >= end) next.place = LAST;
        memcpy(chunk, &next, sizeof next);
        const size_t length = after ? sizeof next : (size_t)next.length;
        if (!good(c, coll_isend(c->comm, chunk, length, COLL_U8, peer, 2, &sends[i % FLIGHT]))) break;
        if (next.place == LAST) after++;
        if (next.place != GROWING) continue;
        finish(c, &sends[i % FLIGHT]);
        if (next.length == CHUNK_MOST || CHECK_NOW(c) - before > chunk_seconds) next.place = LONGEST;
        else next.length *= 2;
    }
    for (int i = 0; i < FLIGHT; i++) finish(c, &sends[i]);
    if (!c->failed) good(c, coll_recv(c->comm, &rate, 1, COLL_F64, peer, 2));
    return rate;
}

/* Receive, and measure from the first of the longest messages on, or, if there is none, from the first message. */
static void stream_in(check *c, int peer)
{
    coll_request *receives[FLIGHT] = { NULL };
    double began = CHECK_NOW(c), bytes = 0, rate = 0;
    uint64_t before = LAST;

    for (int i = -FLIGHT, after = 0; after < FLIGHT && !c->failed; i++) {
        const int slot = (i + FLIGHT) % FLIGHT;
        char *const chunk = c->chunks + (size_t)slot * CHUNK_MOST;
        head next = { GROWING, 0 };
        if (!finish(c, &receives[slot])) break;
        const double at = CHECK_NOW(c);
        if (i >= 0) memcpy(&next, chunk, sizeof next);
        if (i >= 0 && after == 0) {
            bytes += (double)next.length;
            if (at > began) rate = bytes / (at - began);
            if (before == LAST || (before == GROWING && next.place == LONGEST)) began = at, bytes = 0;
            before = next.place;
        }
        if (next.place == LAST) after++;
        else good(c, coll_irecv(c->comm, chunk, CHUNK_MOST, COLL_U8, peer, 2, &receives[slot]));
    }
    for (int i = 0; i < FLIGHT; i++) finish(c, &receives[i]);
    if (!c->failed) good(c, coll_send(c->comm, &rate, 1, COLL_F64, peer, 2));
}

/* One direction after the other.  Returns the rate of what this rank sent. */
static double stream(check *c, int peer, double seconds)
{
    double rate = 0;

    if (c->rank < peer) rate = stream_out(c, peer, seconds);
    stream_in(c, peer);
    if (c->rank > peer) rate = stream_out(c, peer, seconds);
    return rate;
}

static void measure(check *c, int peer)
{
    c->row[peer] = ping(c, peer, c->rank < peer);
    c->row[c->size + peer] = stream(c, peer, stream_seconds);
}

/* Measure all pairs of some ranks, in ascending order; the other ranks wait. */
static void measure_all(check *c, const int *ranks, int count)
{
    const int places = count + count % 2;
    int own = 0;

    while (own < count && ranks[own] != c->rank) own++;
    for (int round = 0; round < places - 1; round++) {
        const int other = own < count ? partner(own, round, places) : count;
        const int first = own < other ? own : other;
        if (count > ALONE_MOST) {
            if (other < count) measure(c, ranks[other]);
            if (!good(c, coll_barrier(c->comm))) return;
            continue;
        }
        for (int turn = 0; turn < count; turn++) {
            if (turn == first && other < count) measure(c, ranks[other]);
            if (!good(c, coll_barrier(c->comm))) return;
        }
    }
}

/* ---- >>ways ---- */

static void pack_address(const struct sockaddr_storage *address, uint8_t out[16], uint16_t *port)
{
    memset(out, 0, 16);
    if (address->ss_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
        *port = ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    } else {
        out[10] = out[11] = 0xff;
        memcpy(out + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
        *port = ntohs(((const struct sockaddr_in *)address)->sin_port);
    }
}

/* The two ends of a connected socket.  Returns false for any other descriptor. */
static bool way_of_socket(int fd, way *out)
{
    struct sockaddr_storage ours = { 0 }, theirs = { 0 };
    socklen_t our_length = sizeof ours, their_length = sizeof theirs;

    if (getsockname(fd, (struct sockaddr *)&ours, &our_length)) return false;
    if (getpeername(fd, (struct sockaddr *)&theirs, &their_length)) return false;
    if (ours.ss_family != AF_INET && ours.ss_family != AF_INET6) return false;
    *out = (way){ 0 };
    pack_address(&ours, out->local, &out->local_port);
    pack_address(&theirs, out->remote, &out->remote_port);
    return true;
}

static way *add_way(way *list, size_t *count, const way *one)
{
    list = must(realloc(list, (*count + 1) * sizeof *list));
    list[(*count)++] = *one;
    return list;
}

/* Sockets and shared memory of this process. */
static way *list_ways(size_t *count)
{
    DIR *files = opendir("/proc/self/fd");
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    way one, *list = NULL;

    *count = 0;
    for (struct dirent *entry; files && (entry = readdir(files)) != NULL;) {
        if (entry->d_name[0] != '.' && way_of_socket(atoi(entry->d_name), &one)) list = add_way(list, count, &one);
    }
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned major, minor;
        unsigned long inode;
        if (!strstr(line, "memfd:") && !strstr(line, "/dev/shm/")) continue;
        if (sscanf(line, "%*s %*s %*s %x:%x %lu", &major, &minor, &inode) != 3) continue;
        one = (way){ .device = major << 20 | minor, .inode = inode };
        list = add_way(list, count, &one);
    }
    if (files) closedir(files);
    if (maps) fclose(maps);
    return list;
}

/* Are these the two ends of one connection? */
static bool meets(const way *a, const way *b)
{
    if (a->inode || b->inode) return a->inode == b->inode && a->device == b->device;
    return a->local_port == b->remote_port && a->remote_port == b->local_port && !memcmp(a->local, b->remote, 16)
        && !memcmp(a->remote, b->local, 16);
}

/* The first rank's end of the path between two ranks, memory before sockets; NULL: none. */
static const way *find_way(const check *c, int a, int b)
{
    const way *found = NULL;

    for (size_t i = c->way_offsets[a]; i < c->way_offsets[a + 1]; i++) {
        for (size_t k = c->way_offsets[b]; k < c->way_offsets[b + 1]; k++) {
            if (meets(&c->ways[i], &c->ways[k]) && (!found || c->ways[i].inode)) found = &c->ways[i];
        }
    }
    return found;
}

static const char *address_text(const uint8_t address[16], char text[INET6_ADDRSTRLEN])
{
    const bool is_four = !memcmp(address, "\0\0\0\0\0\0\0\0\0\0\377\377", 12);

    if (!inet_ntop(is_four ? AF_INET : AF_INET6, is_four ? address + 12 : address, text, INET6_ADDRSTRLEN)) strcpy(text, "?");
    return text;
}

/* "tcp 10.0.0.1 - 10.0.0.2", "memory". */
static void way_text(const check *c, int a, int b, char *text, size_t room)
{
    char here[INET6_ADDRSTRLEN], there[INET6_ADDRSTRLEN];
    const way *found = find_way(c, a, b);

    if (!found) snprintf(text, room, "not known");
    else if (found->inode) snprintf(text, room, "memory");
    else snprintf(text, room, "tcp %s - %s", address_text(found->local, here), address_text(found->remote, there));
}

/* ---- >>collecting ---- */

/* "tcp (io_uring)", from the library's description of a call. */
static void transport_text(check *c, char text[TRANSPORT])
{
    const coll_call call = { .kind = COLL_BARRIER };
    char all[1024];

    snprintf(text, TRANSPORT, "?");
    if (coll_explain(c->comm, &call, all, sizeof all) < 0) return;
    const char *begin = strstr(all, " over "), *end = begin ? strstr(begin, "): ") : NULL;
    if (begin && end) snprintf(text, TRANSPORT, "%.*s", (int)(end + 1 - begin - 6), begin + 6);
}

/* Gather all measurements on rank 0. */
static bool gather_rows(check *c)
{
    const size_t each = 2 * (size_t)c->size;

    if (!c->rows) c->rows = must(calloc(each * (size_t)c->size, sizeof *c->rows));
    return good(c, coll_gather(c->comm, c->row, c->rows, each, COLL_F64, 0));
}

static bool collect(check *c)
{
    const size_t size = (size_t)c->size;
    size_t count, *bytes = must(calloc(size, sizeof *bytes)), *offsets = must(calloc(size, sizeof *offsets));
    way *ours = list_ways(&count);
    card own = { .ways = count };
    cpu_set_t processors;
    bool ok;

    if (gethostname(own.host, sizeof own.host - 1)) snprintf(own.host, sizeof own.host, "?");
    transport_text(c, own.transport);
    own.processors = sched_getaffinity(0, sizeof processors, &processors) == 0 ? (uint64_t)CPU_COUNT(&processors) : 0;
    c->cards = must(calloc(size, sizeof *c->cards));
    c->way_offsets = must(calloc(size + 1, sizeof *c->way_offsets));
    ok = good(c, coll_allgather(c->comm, &own, c->cards, sizeof own, COLL_U8))
      && gather_rows(c);
    for (size_t i = 0; ok && i < size; i++) {
        offsets[i] = c->way_offsets[i] * sizeof(way);
        bytes[i] = (size_t)c->cards[i].ways * sizeof(way);
        c->way_offsets[i + 1] = c->way_offsets[i] + (size_t)c->cards[i].ways;
    }
    if (ok && c->rank == 0) c->ways = must(malloc(c->way_offsets[size] * sizeof(way) + 1));
    ok = ok && good(c, coll_gatherv(c->comm, ours, count * sizeof(way), c->ways, bytes, offsets, COLL_U8, 0));
    free(ours);
    free(bytes);
    free(offsets);
    return ok;
}

/* ---- >>printing ---- */

static double latency_of(const check *c, int a, int b)          /* us */
{
    return 1e6 * c->rows[(size_t)(a < b ? a : b) * 2 * (size_t)c->size + (size_t)(a < b ? b : a)];
}

static double rate_of(const check *c, int a, int b)             /* MiB/s, from a to b */
{
    return c->rows[(size_t)a * 2 * (size_t)c->size + (size_t)(c->size + b)] / 1048576;
}

static void print_pairs(const check *c)
{
    printf("%-9s %-31s %-42s %10s %10s %10s\n", "ranks", "hosts", "way", "latency us", "MiB/s ->", "MiB/s <-");
    for (int a = 0; a < c->size; a++) {
        for (int b = a + 1; b < c->size; b++) {
            char ranks[32], by[2 * INET6_ADDRSTRLEN + 16];
            snprintf(ranks, sizeof ranks, "%d - %d", a, b);
            way_text(c, a, b, by, sizeof by);
            printf("%-9s %-15.15s %-15.15s %-42s %10.1f %10.1f %10.1f\n", ranks, c->cards[a].host, c->cards[b].host, by,
                   latency_of(c, a, b), rate_of(c, a, b), rate_of(c, b, a));
        }
    }
}

/* Print the addresses at which others reached a rank, with the number of these ranks. */
static void print_ways(const check *c, int rank)
{
    const way *seen[8];
    int counts[8] = { 0 }, memory = 0, count = 0;

    for (int b = 0; b < c->size; b++) {
        const way *found = b == rank ? NULL : find_way(c, rank, b);
        int i = 0;
        if (found && found->inode) memory++;
        if (!found || found->inode) continue;
        while (i < count && memcmp(seen[i]->local, found->local, 16) != 0) i++;
        if (i == count && count < 8) seen[count++] = found;
        if (i < count) counts[i]++;
    }
    for (int i = 0; i < count; i++) {
        char text[INET6_ADDRSTRLEN];
        printf("%s%s to %d", i ? ", " : "", address_text(seen[i]->local, text), counts[i]);
    }
    if (memory) printf("%smemory to %d", count ? ", " : "", memory);
}

static void print_ranks(const check *c)
{
    double *latencies = must(calloc((size_t)c->size, sizeof *latencies)), *rates = must(calloc((size_t)c->size, sizeof *rates));

    printf("%-5s %-16s %21s %21s   %s\n", "", "", "latency us", "MiB/s to others", "");
    printf("%-5s %-16s %10s %10s %10s %10s   %s\n", "rank", "host", "median", "most", "median", "least", "ways");
    for (int a = 0; a < c->size; a++) {
        size_t count = 0;
        for (int b = 0; b < c->size; b++) {
            if (b == a) continue;
            latencies[count] = latency_of(c, a, b);
            rates[count++] = rate_of(c, a, b);
        }
        const double latency = median(latencies, count), rate = median(rates, count);
        printf("%-5d %-16.16s %10.1f %10.1f %10.1f %10.1f   ", a, c->cards[a].host, latency, latencies[count - 1], rate,
               rates[0]);
        print_ways(c, a);
        putchar('\n');
    }
    free(latencies);
    free(rates);
}

/* Print the worst pair within hosts or between them.  Returns its factor to the median of its kind; 0: there are no such
 * pairs. */
static double print_worst(const check *c, bool is_within, bool is_rate)
{
    const size_t room = (size_t)c->size * (size_t)c->size;
    double *values = must(calloc(room, sizeof *values)), worst = 0, usual = 0;
    int from = -1, to = -1;
    size_t count = 0;

    for (int a = 0; a < c->size; a++) {
        for (int b = 0; b < c->size; b++) {
            if (a == b || (!is_rate && b < a)) continue;
            if ((strcmp(c->cards[a].host, c->cards[b].host) == 0) != is_within) continue;
            const double value = is_rate ? rate_of(c, a, b) : latency_of(c, a, b);
            values[count++] = value;
            if (from < 0 || (is_rate ? value < worst : value > worst)) worst = value, from = a, to = b;
        }
    }
    if (count > 0) usual = median(values, count);
    free(values);
    if (count == 0) return 0;
    printf("slowest %s by %s: %d %s %d (%s, %s), %.1f %s; the median is %.1f\n", is_within ? "within a host" : "between hosts",
           is_rate ? "bandwidth" : "latency", from, is_rate ? "to" : "and", to, c->cards[from].host, c->cards[to].host, worst,
           is_rate ? "MiB/s" : "us", usual);
    return is_rate ? usual / (worst > 0 ? worst : 1e-9) : worst / (usual > 0 ? usual : 1e-9);
}

/* If ranks share processors, latencies include waiting for a processor. */
static void print_crowds(const check *c)
{
    for (int a = 0; a < c->size; a++) {
        uint64_t count = 0;
        bool is_first = true;
        for (int b = 0; b < c->size; b++) {
            const bool is_same = strcmp(c->cards[a].host, c->cards[b].host) == 0;
            count += is_same;
            is_first = is_first && !(is_same && b < a);
        }
        if (is_first && count > c->cards[a].processors) {
            printf("%s has %d processors for %d ranks: they wait for these, too\n", c->cards[a].host, (int)c->cards[a].processors,
                   (int)count);
        }
    }
}

static void print_summary(const check *c)
{
    double factor = 0;
    int different = 0;

    for (int kind = 0; kind < 4; kind++) {
        const double worse = print_worst(c, kind < 2, kind % 2 == 1);
        if (worse > factor) factor = worse;
    }
    for (int i = 1; i < c->size; i++) different += strcmp(c->cards[i].transport, c->cards[0].transport) != 0;
    print_crowds(c);
    printf("summary: %d ranks over %s", c->size, c->cards[0].transport);
    if (different) printf(", %d of them over something else", different);
    if (c->size < 3) printf("; there is no other pair to compare with\n");
    else if (factor < 2) printf("; all pairs of a kind are within a factor of %.1f of their median\n", factor < 1 ? 1 : factor);
    else printf("; one pair is %.1f times slower than the median of its kind: look at the slowest ones above\n", factor);
}

/* ---- >>tuning ---- */

/* Which ranks share a host, according to the library. */
static bool find_hosts(check *c, links *l)
{
    int32_t first = c->rank, *const firsts = must(calloc((size_t)c->size, sizeof *firsts));
    coll_comm *host = NULL;

    bool ok = good(c, coll_split_host(c->comm, &host));
    if (ok && coll_broadcast(host, &first, 1, COLL_I32, 0) < 0) {
        fprintf(stderr, "coll-check: %s\n", coll_error(host));
        c->failed = true;
    }
    coll_free(host);
    ok = ok && good(c, coll_allgather(c->comm, &first, firsts, 1, COLL_I32));
    if (ok) number_hosts(l, firsts, c->size);
    free(firsts);
    return ok;
}

/* Measure the links between sites, two sites at a time, with all hosts of both exchanging.  It takes longer, for messages of
 * hosts that share a link arrive in bursts. */
static bool measure_across(check *c, const links *l, tuning *t)
{
    const int host = l->host_of[c->rank], places = t->sites + t->sites % 2;
    double *const rates = must(calloc((size_t)c->size, sizeof *rates));
    double *const most = must(calloc((size_t)t->sites, sizeof *most));
    bool ok = true;

    for (int round = 0; round < places - 1 && ok; round++) {
        const int other = l->first[host] == c->rank ? partner_across(t, l->hosts, host, round) : -1;
        double rate = 0;
        ok = good(c, coll_barrier(c->comm));
        if (ok && other >= 0) rate = stream(c, l->first[other], across_seconds);
        ok = ok && good(c, coll_gather(c->comm, &rate, rates, 1, COLL_F64, 0));
        for (int a = 0; a < l->hosts && c->rank == 0; a++) rates[a] = rates[l->first[a]];         /* first[a] >= a    */
        if (ok && c->rank == 0) add_across(t, l->hosts, round, rates, most);
    }
    if (ok && c->rank == 0) t->far_rate = least_across(t, most);
    free(rates);
    free(most);
    return ok;
}

/* The shortest time of these calls, in s: the mean of AT_ONCE times, because ranks do not begin together. */
static double shortest_of(check *c, coll_comm *comm, const coll_call *calls, int count)
{
    double shortest = 0;

    for (int trip = -1; trip < TRIPS && !c->failed; trip++) {     /* the first may connect                    */
        const double began = CHECK_NOW(c);
        for (int i = 0; i < AT_ONCE * count && !c->failed; i++) {
            if (coll_run(comm, &calls[i % count]) == COLL_OK) continue;
            fprintf(stderr, "coll-check: %s\n", coll_error(comm));
            c->failed = true;
        }
        const double took = (CHECK_NOW(c) - began) / AT_ONCE;
        if (trip <= 0 || took < shortest) shortest = took;
    }
    return shortest;
}

/* Latency and overhead of messages in these algorithms.  A barrier has a latency in each round.  From rank 0 to all others at
 * once, and back, are two latencies, and an overhead for each message but one.  Algorithms are named, so that these are messages
 * in shared memory, too. */
static void measure_messages(check *c, coll_comm *comm, near_link *near)
{
    const int size = coll_size(comm);
    char *const bytes = must(calloc((size_t)size, 1)), own = 0;
    const coll_call barrier = { .kind = COLL_BARRIER, .algorithm = "circulant:2" };
    const coll_call star[2] = {
        { .kind = COLL_SCATTER, .send = bytes, .recv = &own, .count = 1, .type = COLL_U8, .algorithm = "direct" },
        { .kind = COLL_GATHER, .send = &own, .recv = bytes, .count = 1, .type = COLL_U8, .algorithm = "direct" } };
    int rounds = 1;

    while (size > 1 << rounds) rounds++;
    near->latency = shortest_of(c, comm, &barrier, 1) / rounds;
    const double all = shortest_of(c, comm, star, 2);
    const double each = size > 2 ? (all - 2 * near->latency) / (size - 2) : near->latency / 3;    /* 1/3: as built in */
    near->overhead = each < 1e-9 ? 1e-9 : each > 10 * near->latency ? 10 * near->latency : each;
    free(bytes);
}

/* Bytes/s in each direction, while two ranks send one another long messages. */
static double exchange(check *c, int peer, double latency)
{
    double shortest = 0;

    for (int i = 0; i < EXCHANGES && !c->failed; i++) {
        const double began = CHECK_NOW(c);
        coll_request *in = NULL;
        good(c, coll_irecv(c->comm, c->chunks, CHUNK_MOST, COLL_U8, peer, 4, &in));
        good(c, coll_send(c->comm, c->chunks + CHUNK_MOST, CHUNK_MOST, COLL_U8, peer, 4));
        finish(c, &in);
        const double took = CHECK_NOW(c) - began;
        if (i == 0 || took < shortest) shortest = took;
    }
    return shortest > latency ? CHUNK_MOST / (shortest - latency) : 0;
}

/* Bytes/s that this rank adds to others in its cache; 0: the clock does not say it. */
static double additions(check *c)
{
    float *const a = (float *)c->chunks, *const b = a + FLOATS;
    double shortest = 0;

    memset(a, 0, 2 * FLOATS * sizeof *a);
    for (int i = 0; i < TRIPS; i++) {
        const double began = CHECK_NOW(c);
        for (int k = 0; k < ADDITIONS; k++) good(c, coll_reduce_local(a, b, FLOATS, COLL_F32, COLL_SUM));
        const double took = CHECK_NOW(c) - began;
        if (i == 0 || took < shortest) shortest = took;
    }
    return shortest > 0 ? (double)FLOATS * sizeof *a * ADDITIONS / shortest : 0;
}

/* What the cost model needs: among all ranks; with several ranks on a host, or several sites, among one rank per host of the
 * first site. */
static bool measure_near(check *c, const links *l, const tuning *t, near_link *near)
{
    const int host = l->host_of[c->rank];
    const int color = l->first[host] == c->rank && t->site[host] == 0 ? 0 : COLL_COLOR_NONE;
    const bool are_all = l->hosts == 1 || (l->hosts == c->size && t->sites < 2);
    coll_comm *site = NULL;

    if (!are_all && !good(c, coll_split(c->comm, color, 0, &site))) return false;
    if (are_all || site) measure_messages(c, site ? site : c->comm, near);
    coll_free(site);
    if (l->hosts == 1 && c->rank == 0) near->rate = exchange(c, c->size - 1, near->latency);
    else if (l->hosts == 1 && c->rank == c->size - 1) exchange(c, 0, near->latency);
    if (c->rank == 0) near->reduce = additions(c);
    return !c->failed;
}

static bool write_file(const char *path, const char *text, const char *notes)
{
    FILE *const file = fopen(path, "we");
    int error = file ? 0 : errno;

    if (file) {
        fprintf(file, "# by coll-check %d.%d.%d\n", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
        for (const char *line = notes; *line; line += strcspn(line, "\n") + 1)
            fprintf(file, "# %.*s\n", (int)strcspn(line, "\n"), line);
        fputs(text, file);
        if (ferror(file)) error = errno ? errno : EIO;
        if (fclose(file) && !error) error = errno;
    }
    if (error) fprintf(stderr, "coll-check: cannot write the tuning file %s: %s\n", path, strerror(error));
    return !error;
}

/* Measure what is missing, and write the tuning file. */
static void tune(check *c, const char *path)
{
    links l = { 0 };
    tuning t = { 0 };
    near_link near = { 0 };
    char text[TUNING_ROOM], notes[TUNING_ROOM];
    bool ok = find_hosts(c, &l);

    if (ok && l.hosts < c->size && c->size > ALONE_MOST) {        /* the pairs shared the hosts' links */
        measure_all(c, l.first, l.hosts);
        ok = !c->failed && gather_rows(c);
    }
    if (ok && c->rank == 0) {
        join_pairs(&l, c->rows);
        find_sites(&l, &t);
    }
    if (ok) {
        if (c->rank > 0) t.site = must(calloc((size_t)l.hosts, sizeof *t.site));
        ok = good(c, coll_broadcast(c->comm, &t.sites, 1, COLL_I32, 0))
          && good(c, coll_broadcast(c->comm, t.site, (size_t)l.hosts, COLL_I32, 0));
    }
    if (ok && t.sites > 1) ok = measure_across(c, &l, &t);
    ok = ok && measure_near(c, &l, &t, &near);
    if (ok && c->rank == 0) {
        find_rates(&l, &t);
        tuning_text(&l, &t, &near, text, notes);
        c->failed = !write_file(path, text, notes);
        if (!c->failed) printf("%stuning file %s:\n%s", notes, path, text);
    }
    tuning_free(&l, &t);
}

static const char help_text[] =
    "usage: coll-check [--tuning FILE]\n"
    "       coll-run -n RANKS coll-check [--tuning FILE]\n"
    "       coll-run -H HOST:RANKS,HOST:RANKS coll-check [--tuning FILE]\n"
    "       coll-run -H HOST:RANKS,HOST:RANKS --check\n"
    "\n"
    "Measure the connection of every two ranks of a job: latency, bandwidth in both directions, and how\n"
    "it is made (shared memory, address).  coll-run or another launcher starts it as the ranks of a job.\n"
    "\n"
    "      --tuning FILE    rank 0 writes a tuning file for jobs on the same hosts (COLL_TUNING=FILE)\n"
    "  -h, --help           print this text\n"
    "      --version        print the version\n"
    "\n"
    "Each pair is measured alone: messages of 8 bytes in both directions, of which half the median is the\n"
    "latency; then long messages for some hundredths of a second in each direction.\n"
    "Rank 0 prints a line for each pair, or with more than 12 ranks for each rank, and the slowest.\n"
    "\n"
    "The tuning file contains the latency and the overhead of messages, the rate of additions, and the rate\n"
    "of the slowest host's link.  faster= lists ranks whose hosts have faster links; rates that differ\n"
    "by less than 1.25 are considered equal.  If some latencies between hosts are at least 3 times the\n"
    "others, and 20 us longer, site= says where another site begins, and far_latency= and far_gbit= describe\n"
    "the link between sites.  A host that is faster than all others is not detected, nor is a host that is\n"
    "alone at its site.  Ranks of one host are not compared with each other.\n"
    "The file is valid for ranks on the same hosts in the same order.\n"
    "\n"
    "Environment: the variables of coll_init (COLL_RANK, COLL_SIZE, COLL_ADDR, COLL_NETWORK, ...).\n"
    "\n"
    "Exit status: 0 if every pair was measured and the file, if any, was written; 1 if not, with the reason;\n"
    "2: bad usage.\n";

/* The tuning file, or NULL.  Exits after --help, --version and for unknown options. */
static const char *take_options(int argc, char **argv)
{
    const char *path = NULL;

    for (int i = 1; i < argc; i++) {
        const char *const word = argv[i];
        if (!strcmp(word, "-h") || !strcmp(word, "--help")) exit(fputs(help_text, stdout) < 0);
        if (!strcmp(word, "--version"))
            exit(printf("coll-check %d.%d.%d\n", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH) < 0);
        if (!strncmp(word, "--tuning=", 9)) path = word + 9;
        else if (!strcmp(word, "--tuning")) path = i + 1 < argc ? argv[++i] : "";
        else exit((fprintf(stderr, "coll-check: it takes no '%s' (--help says more)\n", word), 2));
        if (!*path) exit((fprintf(stderr, "coll-check: --tuning needs the name of a file (--help says more)\n"), 2));
    }
    return path;
}

int main(int argc, char **argv)
{
    const char *const tuning_path = take_options(argc, argv);
    static check c;
    int *everyone;

    if (coll_init(&c.comm, NULL) < 0) return 1;   /* it has logged why */
    c.rank = coll_rank(c.comm);
    c.size = coll_size(c.comm);
    if (c.size > SIZE_MOST) {
        fprintf(stderr, "coll-check: %d ranks: the most is %d\n", c.size, SIZE_MOST);
        return 1;
    }
    c.row = must(calloc(2 * (size_t)c.size, sizeof *c.row));
    c.chunks = must(calloc(FLIGHT, CHUNK_MOST));
    everyone = must(calloc((size_t)c.size, sizeof *everyone));
    for (int i = 0; i < c.size; i++) everyone[i] = i;
    measure_all(&c, everyone, c.size);
    if (!c.failed && collect(&c) && c.rank == 0) {
        if (c.size == 1) printf("rank 0 on %s is alone: there is nothing to measure\n", c.cards[0].host);
        else if (c.size <= PAIRS_MOST) print_pairs(&c);
        else print_ranks(&c);
        if (c.size > 1) print_summary(&c);
        fflush(stdout);
    }
    if (tuning_path && c.size == 1) {
        fprintf(stderr, "coll-check: a job of 1 rank has no link: no tuning file is written; start 2 ranks or more\n");
        c.failed = true;
    } else if (tuning_path && !c.failed) {
        tune(&c, tuning_path);
    }
    coll_free(c.comm);
    free(everyone);
    free(c.row);
    free(c.chunks);
    free(c.cards);
    free(c.rows);
    free(c.ways);
    free(c.way_offsets);
    return c.failed;
}
