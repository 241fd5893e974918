/* link.c - one host of several that are joined by links of a given rate: the allreduce of coll.h, as f32 and over bf16; and as
 * f32 where a tuning file says that some links are faster, or ranks say at which site they are.
 *
 *     link FILE BUDGET SIZES TABLE HOST HOSTS THREADS ADDRESS OWN NEXT INTERFACE [tuned|sites WHAT ADDRESS]
 *
 * HOST of 0 to HOSTS - 1 has THREADS ranks, threads of this process where there are more than one.  Rank 0 listens at ADDRESS;
 * OWN is this host's address and NEXT that of the next host.  All ranks make a second job at the second ADDRESS: WHAT is a tuning
 * file, or the site of this host.
 * FILE as in solo.c: the hosts are network namespaces of one machine.
 * If each host is one rank, the capacity of the links is printed, too: "raw" sends as many bytes as a host
 * has to, 2 (H - 1) / H of the vector, to the next one, while it receives as many, over one connection each way.
 * What left through INTERFACE is counted, too.  The library is in ours.o. */
#include "../common/data.h"

#include "../../coll.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

enum { THREADS_MOST = 8, ROOM = 256 << 10 };

typedef struct rank {
    struct host *host;
    coll_comm   *comm, *told;                     /* told: of the second job; NULL: there is none             */
    bench_team   team;
    bench_case   part;
    pthread_t    thread;
} rank;

typedef struct host {
    int    number, hosts, threads, sizes, to, from;           /* to, from: sockets of "raw"                   */
    size_t size[BENCH_SIZES], room;
    double budget_s;
    const char *table, *own, *next, *interface, *told;        /* told: "tuned" or "sites"                     */
    char   away[ROOM];
    rank   ranks[THREADS_MOST];
} host;

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "link: %s: %s\n", what, why);
    exit(1);
}

/* ---- >>contenders ---- */

static void f32(void *context, long i)
{
    rank *const me = context;

    (void)i;
    if (coll_allreduce(me->comm, me->part.in, me->part.out, me->part.count, COLL_F32, COLL_SUM))
        fail("f32", coll_error(me->comm));
}

static void told(void *context, long i)
{
    rank *const me = context;

    (void)i;
    if (coll_allreduce(me->told, me->part.in, me->part.out, me->part.count, COLL_F32, COLL_SUM))
        fail(me->host->told, coll_error(me->told));
}

static void bf16(void *context, long i)
{
    rank *const me = context;

    (void)i;
    if (coll_allreduce_mixed(me->comm, me->part.in, me->part.out, me->part.count, COLL_F32, COLL_BF16, COLL_SUM))
        fail("bf16", coll_error(me->comm));
}

/* Send all that is in the buffers, and drop all that is received. */
static void raw(void *context, long i)
{
    rank *const me = context;
    host *const h = me->host;
    const size_t whole = me->part.count * sizeof(float), bytes = 2 * (size_t)(h->hosts - 1) * (whole / (size_t)h->hosts);
    size_t sent = 0, got = 0;

    (void)i;
    while (sent < bytes || got < bytes) {
        struct pollfd on[2] = { { .fd = sent < bytes ? h->to : -1, .events = POLLOUT },
                                { .fd = got < bytes ? h->from : -1, .events = POLLIN } };
        if (poll(on, 2, -1) < 0) fail("raw", strerror(errno));
        if (on[0].revents) {
            const size_t left = bytes - sent, at = sent % whole, most = left < whole - at ? left : whole - at;
            const ssize_t n = send(h->to, (const char *)me->part.in + at, most, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN) fail("raw", strerror(errno));
            if (n > 0) sent += (size_t)n;
        }
        if (on[1].revents) {
            const ssize_t n = recv(h->from, h->away, bytes - got < ROOM ? bytes - got : ROOM, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN)) fail("raw", n ? strerror(errno) : "the host before has ended");
            if (n > 0) got += (size_t)n;
        }
    }
}

/* ---- >>the ring of raw: each host dials the next ---- */

static struct sockaddr_in address_of(const char *text, int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

    if (inet_pton(AF_INET, text, &at.sin_addr) != 1) fail(text, "is no address");
    return at;
}

/* Write the ports to the file of the figures. */
static void join_ring(rank *me)
{
    host *const h = me->host;
    double *const ports = me->team.shared->seconds[0][0];
    struct sockaddr_in at = address_of(h->own, 0);
    socklen_t length = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    h->to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || h->to < 0 || bind(listener, (struct sockaddr *)&at, length) || listen(listener, 1)
        || getsockname(listener, (struct sockaddr *)&at, &length)) fail("raw", strerror(errno));
    ports[h->number] = ntohs(at.sin_port);
    bench_barrier(&me->team);
    at = address_of(h->next, (int)ports[(h->number + 1) % h->hosts]);
    if (connect(h->to, (struct sockaddr *)&at, length) || (h->from = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
        fail("raw", strerror(errno));
    close(listener);
    bench_barrier(&me->team);
}

/* ---- >>one size ---- */

/* Sums of few bits, which bf16 holds: a power of two times the rank's number. */
static float value(size_t i) { return (float)(1 << i % 1013 % 3); }

static void verify(rank *me, bench_contender *it)
{
    const int n = me->team.ranks;

    for (size_t i = 0; i < me->part.count; i++) me->part.in[i] = (float)(me->team.rank + 1) * value(i), me->part.out[i] = -7;
    it->op(it->context, it->next++);
    for (size_t i = 0; i < me->part.count && it->op != raw; i++) {
        if (me->part.out[i] == (float)(n * (n + 1) / 2) * value(i)) continue;
        fprintf(stderr, "link: %s of %zu floats: rank %d has %g at %zu\n", it->name, me->part.count, me->team.rank,
                (double)me->part.out[i], i);
        exit(BENCH_WRONG);
    }
    memset(me->part.in, 0, me->part.count * sizeof(float));
    bench_barrier(&me->team);
}

/* Bytes that have left through the interface. */
static double egress(const host *h)
{
    char path[128];
    double bytes = 0;

    snprintf(path, sizeof path, "/sys/class/net/%s/statistics/tx_bytes", h->interface);
    FILE *const file = fopen(path, "r");
    if (!file || fscanf(file, "%lf", &bytes) != 1) fail(path, "cannot be read");
    fclose(file);
    return bytes;
}

/* What an operation sends from a host, with all headers: the most of all hosts. */
static void count_egress(rank *me, bench_contender *it)
{
    enum { TIMES = 2 };
    host *const h = me->host;
    const bool counts = me == &h->ranks[0];
    double *const of_hosts = me->team.shared->seconds[0][0];

    bench_barrier(&me->team);
    const double before = counts ? egress(h) : 0;
    bench_barrier(&me->team);
    for (int i = 0; i < TIMES; i++) it->op(it->context, it->next++);
    bench_barrier(&me->team);
    if (counts) of_hosts[h->number] = (egress(h) - before) / TIMES;
    bench_barrier(&me->team);
    if (me->team.rank == 0) {
        double most = 0;
        for (int n = 0; n < h->hosts; n++) if (of_hosts[n] > most) most = of_hosts[n];
        bench_line("egress", h->table, me->team.ranks, me->part.count * sizeof(float), it->name,
                   (bench_figure){ most, most, most }, TIMES);
    }
    bench_barrier(&me->team);
}

static void *run(void *argument)
{
    rank *const me = argument;
    host *const h = me->host;
    const bench_plan plan = { .budget_s = h->budget_s, .step = 1 };

    me->part = (bench_case){ .rank = me->team.rank, .ranks = me->team.ranks, .in = bench_alloc(h->room),
                             .out = bench_alloc(h->room) };
    bench_barrier(&me->team);
    if (h->threads == 1) join_ring(me);
    for (int s = 0; s < h->sizes; s++) {
        bench_contender contenders[4] = {
            { .name = "ours-bf16", .op = bf16, .context = me },
            { .name = "ours", .op = f32, .context = me, .is_base = true },
        };
        int n = 2;
        if (h->threads == 1) contenders[n++] = (bench_contender){ .name = "raw", .op = raw, .context = me, .is_base = true };
        if (me->told)
            contenders[n++] = (bench_contender){ .name = strcmp(h->told, "sites") ? "ours-tuned" : "ours-sites", .op = told,
                                                 .context = me };
        bench_case_size(&me->part, h->size[s]);
        for (int c = 0; c < n; c++) verify(me, &contenders[c]);
        const long sweeps = bench_measure(&me->team, contenders, n, &plan);
        bench_report(&me->team, contenders, n, sweeps, h->table, h->size[s]);
        for (int c = 0; c < n; c++) count_egress(me, &contenders[c]);
    }
    coll_free(me->told);
    free(me->part.in);
    free(me->part.out);
    return NULL;
}

/* ---- >>the ranks of this host ---- */

static bool join(host *h, const char *address, const char *site, const char *tuning, coll_comm **comms)
{
    const coll_config config = { .transport = "tcp", .rank = h->number * h->threads, .size = h->hosts * h->threads,
                                 .address = address, .site = site, .tuning_file = tuning };
    const coll_status status = h->threads > 1 ? coll_init_threads(h->threads, comms, &config) : coll_init(&comms[0], &config);

    if (status == COLL_ERR_UNSUPPORTED && h->threads > 1) {
        if (h->number == 0) bench_line("none", h->table, config.size, 0, "ours", (bench_figure){ 0 }, 0);
        return false;
    }
    if (status) fail("joining", coll_error(NULL));
    return true;
}

int main(int argc, char **argv)
{
    static host all;
    host *const h = &all;
    coll_comm *comms[THREADS_MOST] = { NULL }, *second[THREADS_MOST] = { NULL };

    if ((argc != 12 && argc != 15) || (h->threads = atoi(argv[7])) < 1 || h->threads > THREADS_MOST
        || (h->hosts = atoi(argv[6])) * h->threads > BENCH_RANKS) {
        fprintf(stderr, "usage: link FILE BUDGET SIZES TABLE HOST HOSTS THREADS ADDRESS OWN NEXT INTERFACE "
                "[tuned|sites WHAT ADDRESS]\n");
        return 2;
    }
    h->number = atoi(argv[5]);
    h->budget_s = atof(argv[2]);
    h->sizes = bench_sizes(argv[3], h->size);
    for (int s = 0; s < h->sizes; s++) if (h->size[s] > h->room) h->room = h->size[s];
    h->table = argv[4];
    h->own = argv[9];
    h->next = argv[10];
    h->interface = argv[11];
    if (!join(h, argv[8], NULL, NULL, comms)) return 0;
    h->told = argc == 15 ? argv[12] : "";
    if (!strcmp(h->told, "tuned") && !join(h, argv[14], NULL, argv[13], second)) return 0;
    if (!strcmp(h->told, "sites") && !join(h, argv[14], argv[13], NULL, second)) return 0;
    bench_shared *const shared = bench_share(argv[1]);
    for (int t = 0; t < h->threads; t++)
        h->ranks[t] = (rank){ .host = h, .comm = comms[t], .told = second[t],
                              .team = { .shared = shared, .rank = h->number * h->threads + t, .ranks = h->hosts * h->threads,
                                        .is_crowded = h->hosts * h->threads >= bench_find_processors() } };
    for (int t = 1; t < h->threads; t++)
        if (pthread_create(&h->ranks[t].thread, NULL, run, &h->ranks[t])) fail("pthread_create", "no thread");
    run(&h->ranks[0]);
    for (int t = 1; t < h->threads; t++) pthread_join(h->ranks[t].thread, NULL);
    for (int t = 0; t < h->threads; t++) coll_free(h->ranks[t].comm);
    return 0;
}
