/* busy.c - what a program pays for waiting where its ranks share processors with programs that compute.
 *
 *     busy calibrate                                     prints the steps of computing that take a microsecond here
 *     busy neighbor                                      computes until it is ended
 *     busy SIDE RANKS STEPS SECONDS US,... BYTES,...     for each US and BYTES: SECONDS of "compute US microseconds, then an
 *                                                        allgather of BYTES"; a further word makes a result wrong, to see that it
 *                                                        is noticed
 *
 * SIDE: threads; processes, which share memory; tcp, processes that share nothing; sockets, processes with a blocking connection
 * between each two, and no library: the bar.  Rank 0 prints US, BYTES, the mean and the median time of a repetition in us, and
 * the number of repetitions.  Results are checked before they are timed, and after it.  busy.py runs all sides in turns. */
#include "common/timing.h"
#include "common/processes.h"

#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <netinet/tcp.h>

enum { MOST_RANKS = 16, KEPT = 1 << 20, SHAPES = 16, SOCKETS_MOST = 64 << 10 };

/* Shared by the ranks, and not measured: the number of the last repetition, once rank 0 has it. */
typedef struct board { long last; } board;

typedef struct bench {
    const char *side;
    int     ranks;
    double  steps, seconds;
    bool    is_spoilt;
    size_t  us[SHAPES], bytes[SHAPES];
    int     us_count, bytes_count;
    board  *shared;
    char    address[BENCH_ADDRESS_ROOM];
    int     sockets[MOST_RANKS][MOST_RANKS];      /* [a][b]: a's end of its connection with b                 */
} bench;

typedef struct rank_state {
    const bench *b;
    int        rank;
    coll_comm *comm;                              /* NULL: sockets                                            */
    unsigned char *send, *recv;
    long       turn;                              /* repetitions so far                                       */
    float     *kept;                              /* what each took, in us, on rank 0                         */
} rank_state;

/* ---- >>computing ---- */

static volatile double sink;

static void compute(double steps)
{
    double sum = 0;

    for (long i = 0; i < (long)steps; i++) sum += (double)i * 0.5;
    sink = sum;
}

/* The best of many short tries, for which no neighbor has taken the processor. */
static double steps_a_us(void)
{
    enum { STEPS = 50000, TRIES = 400 };
    double best = 1e9;

    for (int i = 0; i < TRIES; i++) {
        const double start = bench_now();
        compute(STEPS);
        const double took = bench_now() - start;
        if (took < best) best = took;
    }
    return STEPS / (1e6 * best);
}

/* ---- >>sockets: the bar ---- */

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void all_connect(bench *b)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1, room = 2 * SOCKETS_MOST;

    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1)
        || getsockname(listener, (struct sockaddr *)&at, &length)) fail("a listener");
    for (int i = 0; i < b->ranks; i++)
        for (int k = 0; k < i; k++) {
            b->sockets[i][k] = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(b->sockets[i][k], (struct sockaddr *)&at, sizeof at)) fail("connect");
            if ((b->sockets[k][i] = accept(listener, NULL, NULL)) < 0) fail("accept");
            for (int end = 0; end < 2; end++) {
                const int fd = end ? b->sockets[i][k] : b->sockets[k][i];
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
            }
        }
    close(listener);
}

static void send_all(int fd, const unsigned char *at, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0) fail("send");
        at += n;
        bytes -= (size_t)n;
    }
}

static void recv_all(int fd, unsigned char *at, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = recv(fd, at, bytes, 0);
        if (n <= 0) fail("recv");
        at += n;
        bytes -= (size_t)n;
    }
}

/* ---- >>one repetition ---- */

static void exchange(rank_state *me, size_t bytes)
{
    const int *const sockets = me->b->sockets[me->rank];

    if (me->comm) {
        if (coll_allgather(me->comm, me->send, me->recv, bytes, COLL_U8) == COLL_OK) return;
        fprintf(stderr, "%s\n", coll_error(me->comm));
        exit(1);
    }
    for (int r = 0; r < me->b->ranks; r++) if (r != me->rank) send_all(sockets[r], me->send, bytes);
    memcpy(me->recv + (size_t)me->rank * bytes, me->send, bytes);
    for (int r = 0; r < me->b->ranks; r++) if (r != me->rank) recv_all(sockets[r], me->recv + (size_t)r * bytes, bytes);
}

static unsigned char value(int rank, size_t i, long turn)
{
    return (unsigned char)(31 * rank + (int)(i % 251) + (int)(turn % 199));
}

static void verify(rank_state *me, size_t bytes)
{
    me->turn++;
    for (size_t i = 0; i < bytes; i++) me->send[i] = value(me->rank, i, me->turn);
    exchange(me, bytes);
    me->recv[bytes - 1] ^= me->b->is_spoilt;
    for (int r = 0; r < me->b->ranks; r++)
        for (size_t i = 0; i < bytes; i++) {
            if (me->recv[(size_t)r * bytes + i] == value(r, i, me->turn)) continue;
            fprintf(stderr, "%s: rank %d has a wrong byte %zu of rank %d\n", me->b->side, me->rank, i, r);
            exit(BENCH_WRONG);
        }
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Rank 0 writes the number of the last repetition before it starts it, so that all others have it afterwards. */
static void measure(rank_state *me, double us, size_t bytes)
{
    const bench *const b = me->b;
    const double steps = us * b->steps;
    long count = 0;

    for (int i = 0; i < 3; i++) verify(me, bytes);
    const double start = bench_now();
    double before = start;
    for (bool is_last = false; !is_last;) {
        me->turn++;
        compute(steps);
        if (me->rank == 0 && before - start > b->seconds) __atomic_store_n(&b->shared->last, me->turn, __ATOMIC_SEQ_CST);
        exchange(me, bytes);
        is_last = __atomic_load_n(&b->shared->last, __ATOMIC_SEQ_CST) == me->turn;
        const double now = bench_now();
        if (me->rank == 0) me->kept[count < KEPT ? count : KEPT - 1] = (float)(1e6 * (now - before));
        before = now;
        count++;
    }
    verify(me, bytes);
    if (me->rank > 0) return;
    const long kept = count < KEPT ? count : KEPT;
    qsort(me->kept, (size_t)kept, sizeof *me->kept, by_size);
    printf("%.0f\t%zu\t%.2f\t%.2f\t%ld\n", us, bytes, 1e6 * (before - start) / (double)count, me->kept[kept / 2], count);
    fflush(stdout);
}

static int measure_all(const bench *b, int rank, coll_comm *comm)
{
    size_t most = 1;

    for (int i = 0; i < b->bytes_count; i++) if (b->bytes[i] > most) most = b->bytes[i];
    rank_state me = { .b = b, .rank = rank, .comm = comm, .send = bench_alloc(most), .recv = bench_alloc(most * (size_t)b->ranks),
                      .kept = rank == 0 ? bench_alloc(KEPT * sizeof(float)) : NULL };
    for (int u = 0; u < b->us_count; u++)
        for (int i = 0; i < b->bytes_count; i++) measure(&me, (double)b->us[u], b->bytes[i]);
    free(me.send);
    free(me.recv);
    free(me.kept);
    return 0;
}

/* ---- >>ranks ---- */

static int thread_main(coll_comm *comm, void *arg) { return measure_all(arg, coll_rank(comm), comm); }

static int process_main(void *context, int rank)
{
    const bench *const b = context;
    const coll_config config = { .transport = "tcp", .rank = rank, .size = b->ranks, .address = b->address };
    coll_comm *comm = NULL;

    if (strcmp(b->side, "sockets") == 0) return measure_all(b, rank, NULL);
    if (coll_init(&comm, &config) < 0) {
        fprintf(stderr, "%s\n", coll_error(NULL));
        return 1;
    }
    const int result = measure_all(b, rank, comm);
    coll_free(comm);
    return result;
}

static int usage(void)
{
    fprintf(stderr, "usage: busy calibrate | busy neighbor\n       busy threads|processes|tcp|sockets RANKS STEPS SECONDS US,... "
            "BYTES,... [spoilt]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static bench b;

    if (argc == 2 && strcmp(argv[1], "calibrate") == 0) return printf("%.3f\n", steps_a_us()) < 0;
    if (argc == 2 && strcmp(argv[1], "neighbor") == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) compute(1e6);
    }
    if (argc != 7 && argc != 8) return usage();
    b.side = argv[1];
    b.ranks = atoi(argv[2]);
    b.steps = atof(argv[3]);
    b.seconds = atof(argv[4]);
    b.is_spoilt = argc == 8;
    b.us_count = bench_sizes(argv[5], b.us);
    b.bytes_count = bench_sizes(argv[6], b.bytes);
    for (int i = 0; i < b.bytes_count; i++) if (b.bytes[i] == 0) return usage();
    if (b.ranks < 2 || b.ranks > MOST_RANKS || b.steps <= 0 || b.us_count > SHAPES || b.bytes_count > SHAPES) return usage();
    b.shared = mmap(NULL, sizeof *b.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b.shared == MAP_FAILED) fail("mmap");
    if (strcmp(b.side, "threads") == 0) return coll_spawn(b.ranks, thread_main, &b, NULL);
    if (strcmp(b.side, "sockets") == 0) {
        for (int i = 0; i < b.bytes_count; i++) {
            if (b.bytes[i] <= SOCKETS_MOST) continue;
            fprintf(stderr, "sockets: %zu bytes are too many: at most %d, for each rank sends all before it receives\n",
                    b.bytes[i], SOCKETS_MOST);
            return 2;
        }
        all_connect(&b);
    } else if (strcmp(b.side, "tcp") == 0) {
        setenv("COLL_SHM_COLLECTIVES", "0", 1);
        setenv("COLL_SHARE", "0", 1);
    } else if (strcmp(b.side, "processes") != 0) return usage();
    bench_hold_port(b.address);
    return bench_fork(b.ranks, process_main, &b);
}
