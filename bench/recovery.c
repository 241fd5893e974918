/* recovery - how long a job over TCP takes to go on with a spare process in the place of a lost one, and to grow.
 *
 *     make bench-recovery [RUNS=9] [RANKS=8] [JOB=64]
 *
 * Prints medians of RUNS runs, each of a new job on the loopback:
 *  - killed, stopped: from SIGKILL or SIGSTOP of a rank to the end of the next allreduce of all ranks (coll_replace; the spare
 *    one has waited), in ms and as a multiple of liveness_timeout_ms; of rank 0, and of another one
 *  - join: a coll_grow that takes one process which has waited, at JOB ranks, to the end of the next allreduce */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MOST = 128, RUNS_MOST = 99, LIVENESS_MS = 1000, STEPS = 20 };

/* What the processes of a job tell each other. */
typedef struct board {
    int    is_ready;                              /* all ranks have worked, and one process waits             */
    int    finished;                              /* of them, ranks of the last world                         */
    double began, ended;                          /* seconds: before the signal or coll_grow; the last rank   */
} board;

static board *shared;
static int ports[RANKS_MOST + 1];

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A free port, held by a socket that does not listen. */
static int hold_port(int *fd)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof name;
    const int one = 1;

    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) || bind(*fd, (struct sockaddr *)&name, length)
        || getsockname(*fd, (struct sockaddr *)&name, &length)) perror("no port"), exit(1);
    return ntohs(name.sin_port);
}

static coll_status allreduce(coll_comm *comm)
{
    int32_t x = 1;
    const coll_status status = coll_allreduce(comm, COLL_IN_PLACE, &x, 1, COLL_I32, COLL_SUM);

    if (status == COLL_OK && x != coll_size(comm)) fprintf(stderr, "a wrong sum: %d\n", (int)x), exit(1);
    return status;
}

/* The last rank of the new world ends the time. */
static void finish(coll_comm *comm)
{
    if (allreduce(comm)) fprintf(stderr, "%s\n", coll_error(comm)), exit(1);
    const double now = seconds();
    if (__atomic_add_fetch(&shared->finished, 1, __ATOMIC_SEQ_CST) == coll_size(comm)) shared->ended = now;
    while (coll_barrier(comm) == COLL_OK && __atomic_load_n(&shared->finished, __ATOMIC_SEQ_CST) < coll_size(comm)) continue;
    coll_free(comm);
    exit(0);
}

/* Grow when one process waits. */
static void grow(coll_comm *comm)
{
    coll_comm *more = NULL;

    while (coll_rank(comm) == 0 && coll_waiting(comm) == 0) usleep(100);
    if (coll_barrier(comm)) exit(1);
    if (coll_rank(comm) == 0) shared->began = seconds();
    if (coll_grow(comm, &more) || !more) fprintf(stderr, "%s\n", coll_error(comm)), exit(1);
    finish(more);
}

/* Work until a rank is lost. */
static void replace(coll_comm *comm)
{
    coll_comm *whole = NULL;
    coll_status status = COLL_OK;

    for (int i = 0; status == COLL_OK; i++) {
        status = allreduce(comm);
        if (i == STEPS && coll_rank(comm) == 0) {
            while (coll_waiting(comm) == 0) usleep(100);
            __atomic_store_n(&shared->is_ready, 1, __ATOMIC_SEQ_CST);
        }
    }
    for (int tries = 0; status == COLL_ERR_PEER && tries < 5; tries++) status = coll_replace(comm, &whole);
    if (status) fprintf(stderr, "%s\n", coll_error(comm)), exit(1);
    finish(whole);
}

static pid_t start(int rank, int size, bool grows)
{
    char address[24], list[100], port[8];
    coll_config config = { .transport = "tcp", .rank = rank, .size = size, .address = address, .elastic = 4,
                           .start_timeout_ms = 60000, .liveness_timeout_ms = LIVENESS_MS, .log_level = COLL_LOG_NONE,
                           .tcp = { .ports = rank ? port : NULL } };
    const pid_t child = fork();
    coll_comm *comm;

    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(address, sizeof address, "127.0.0.1:%d", ports[0]);
    snprintf(port, sizeof port, "%d", ports[rank]);
    snprintf(list, sizeof list, "127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", ports[0], ports[1], ports[size - 1]);
    if (rank == size) config.address = list;
    if (rank == size ? coll_join(&comm, &config) : coll_init(&comm, &config)) fprintf(stderr, "%s\n", coll_error(NULL)), exit(1);
    if (rank == size) finish(comm);
    if (grows) grow(comm);
    replace(comm);
    exit(1);
}

/* One job; `signal` goes to rank `victim`, 0: the job grows.  Returns milliseconds. */
static double run(int size, int signal, int victim)
{
    pid_t pids[RANKS_MOST + 1];
    int fds[RANKS_MOST + 1], status, wrong = 0;

    memset(shared, 0, sizeof *shared);
    for (int i = 0; i <= size; i++) ports[i] = hold_port(&fds[i]);
    for (int i = 0; i <= size; i++) pids[i] = start(i, size, signal == 0);
    if (signal) {
        while (!__atomic_load_n(&shared->is_ready, __ATOMIC_SEQ_CST)) usleep(100);
        shared->began = seconds();
        kill(pids[victim], signal);
    }
    for (int i = 0; i <= size; i++) {
        if (signal && i == victim) continue;
        wrong |= waitpid(pids[i], &status, 0) != pids[i] || status != 0;
    }
    if (signal) kill(pids[victim], SIGKILL), waitpid(pids[victim], &status, 0);
    for (int i = 0; i <= size; i++) close(fds[i]);
    if (wrong) fprintf(stderr, "a process has failed\n"), exit(1);
    return 1e3 * (shared->ended - shared->began);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, int runs, int size, int signal, int victim)
{
    double ms[RUNS_MOST];

    for (int i = 0; i < runs; i++) ms[i] = run(size, signal, victim);
    qsort(ms, (size_t)runs, sizeof *ms, by_size);
    printf("| %s | %d | %.0f | %.0f | %.0f |", name, size, ms[0], ms[runs / 2], ms[runs - 1]);
    if (signal) printf(" %.2f |\n", ms[runs / 2] / LIVENESS_MS);
    else printf(" |\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int runs = argc > 1 ? atoi(argv[1]) : 9, ranks = argc > 2 ? atoi(argv[2]) : 8, job = argc > 3 ? atoi(argv[3]) : 64;

    if (runs < 1 || runs > RUNS_MOST || ranks < 3 || ranks > RANKS_MOST || job < 2 || job > RANKS_MOST)
        return fprintf(stderr, "usage: recovery [RUNS [RANKS [JOB]]]\n"), 2;
    shared = (board *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return perror("mmap"), 1;
    printf("| liveness_timeout_ms = %d | ranks | least ms | median | most | of the timeout |\n|---|---:|---:|---:|---:|---:|\n",
           LIVENESS_MS);
    fflush(stdout);
    report("rank 0 killed", runs, ranks, SIGKILL, 0);
    report("rank 2 killed", runs, ranks, SIGKILL, 2);
    report("rank 0 stopped", runs, ranks, SIGSTOP, 0);
    report("rank 2 stopped", runs, ranks, SIGSTOP, 2);
    report("a process joins", runs, job, 0, 0);
    return 0;
}
