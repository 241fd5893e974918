/* instructions - the same call again and again, for a program that counts instructions: see instructions.sh.
 *
 *     instructions threads|tcp|memory|domain KIND BYTES CALLS
 *     instructions threads|tcp|memory|domain KIND BYTES shortest
 *
 * KIND is allreduce, broadcast, reduce, allgather, alltoall, reduce_scatter or barrier; BYTES are those of a block, where there
 * are many.
 *
 * Two ranks are two threads of this process: over the transport of threads, over TCP on the loopback, or over the memory that
 * processes of a host share.  No rank spins and no thread works in the background, so that the counts repeat.
 *
 * `shortest` prints the instructions of the shortest of some calls of rank 1: of one that finds all it needs, for rank 0, which
 * spins, is in its call long before.  Another process steps through them, one at a time; a system call counts as one. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

enum { RANKS = 2, STEPPED_CALLS = 64 };

static coll_kind what;
static size_t count;
static long calls;
static char address[96];
static bool is_stepped;

/* If yields are slow, a rank sleeps.  Here only the counting would make them slow. */
int sched_yield(void) { return 0; }

/* Where the tracer begins and ends to count. */
static inline void mark(bool is_traced)
{
#if defined(__x86_64__) || defined(__i386__)
    if (is_traced) __asm__ volatile("int3" ::: "memory");
#else
    (void)is_traced;                              /* there is no trap that goes on behind itself              */
#endif
}

/* Step through what rank 1 of the process `pid` does between its marks, two around nothing() and two around a call; the
 * fewest instructions of a call, beyond those of nothing(). */
static long count_steps(pid_t pid)
{
    long fewest = 0, steps = 0, idle = -1;
    bool is_counting = false;
    int status = 0;

    for (pid_t who; (who = waitpid(-1, &status, __WALL)) > 0;) {
        siginfo_t info = { 0 };
        if (!WIFSTOPPED(status)) {
            if (who == pid) break;
            continue;
        }
        const bool is_trap = WSTOPSIG(status) == SIGTRAP && !ptrace(PTRACE_GETSIGINFO, who, 0, &info);
        if (is_trap && info.si_code == SI_KERNEL) {
            if (is_counting && idle < 0) idle = steps;
            else if (is_counting && steps > idle && (!fewest || steps < fewest)) fewest = steps;
            is_counting = !is_counting;
            steps = 0;
        } else if (is_trap) steps++;
        if (ptrace(is_counting ? PTRACE_SINGLESTEP : PTRACE_CONT, who, 0, is_trap ? 0 : WSTOPSIG(status))) break;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && fewest) return fewest - idle;
    fprintf(stderr, "instructions: it has failed under the tracer\n");
    return 0;
}

/* What it takes to call a function, and to look at what it returns. */
static __attribute__((noinline)) coll_status nothing(coll_comm *comm, const void *send, void *recv, size_t length, coll_type type,
                                                     coll_op op)
{
    __asm__ volatile("" :: "r"(comm), "r"(send), "r"(recv), "r"(length), "r"(type), "r"(op));
    return COLL_OK;
}

static int work(coll_comm *comm)
{
    float *x = calloc(RANKS * count + 1, sizeof *x), *y = calloc(RANKS * count + 1, sizeof *y);
    int status = x && y ? 0 : COLL_ERR_MEMORY;
    const bool is_traced = is_stepped && coll_rank(comm) == 1;

    if (is_traced && ptrace(PTRACE_TRACEME, 0, 0, 0)) status = COLL_ERR_SYSTEM;
    for (long i = 0; i < calls && !status; i++) {
        mark(is_traced);
        status = nothing(comm, x, x, count, COLL_F32, COLL_SUM);
        mark(is_traced);
        if (status) break;
        mark(is_traced);
        switch (what) {
        case COLL_ALLREDUCE:      status = coll_allreduce(comm, x, x, count, COLL_F32, COLL_SUM); break;
        case COLL_BROADCAST:      status = coll_broadcast(comm, x, count, COLL_F32, (int)(i % RANKS)); break;
        case COLL_REDUCE:         status = coll_reduce(comm, x, y, count, COLL_F32, COLL_SUM, (int)(i % RANKS)); break;
        case COLL_ALLGATHER:      status = coll_allgather(comm, x, y, count, COLL_F32); break;
        case COLL_ALLTOALL:       status = coll_alltoall(comm, x, y, count, COLL_F32); break;
        case COLL_REDUCE_SCATTER: status = coll_reduce_scatter(comm, x, y, count, COLL_F32, COLL_SUM); break;
        default:                  status = coll_barrier(comm);
        }
        mark(is_traced);
    }
    if (status) fprintf(stderr, "%s\n", coll_error(comm));
    free(x);
    free(y);
    coll_free(comm);
    return status;
}

static void *thread_main(void *at) { return work(at) ? at : NULL; }

static void *process_main(void *at)
{
    coll_comm *comm = NULL;

    if (coll_init(&comm, at) == COLL_OK) return work(comm) ? at : NULL;
    fprintf(stderr, "%s\n", coll_error(NULL));
    return at;
}

int main(int argc, char **argv)
{
    pthread_t threads[RANKS];
    coll_comm *comms[RANKS];
    coll_config configs[RANKS];
    coll_config config = { .size = RANKS, .spin_us = -1, .background = -1, .liveness_timeout_ms = -1,
                           .tcp = { .network = "127.0.0.1" } };
    bool has_failed = false;

    if (argc != 5) return fprintf(stderr, "usage: instructions threads|tcp|memory|domain KIND BYTES CALLS|shortest\n"), 2;
    for (what = COLL_BARRIER; what <= COLL_ALLTOALL && strcmp(argv[2], coll_kind_name(what)); what = (coll_kind)(what + 1)) { }
    if (what > COLL_ALLTOALL) return fprintf(stderr, "instructions: no kind %s\n", argv[2]), 2;
    count = strtoul(argv[3], NULL, 10) / sizeof(float);
    is_stepped = !strcmp(argv[4], "shortest");
    calls = is_stepped ? STEPPED_CALLS : strtol(argv[4], NULL, 10);
    if (is_stepped) {
        const pid_t pid = fork();
        if (pid < 0) return perror("fork"), 1;
        if (pid > 0) {
            const long steps = count_steps(pid);
            printf("%ld\n", steps);
            return steps == 0;
        }
        config.spin_us = 1000000;
    }
    const bool is_threads = !strcmp(argv[1], "threads");
    snprintf(address, sizeof address, "file:/tmp/coll-instructions.%ld", (long)getpid());
    config.address = address;
    config.tcp.share_memory = !strcmp(argv[1], "memory") || !strcmp(argv[1], "domain") ? 1 : -1;
    config.tcp.shm_collectives = !strcmp(argv[1], "domain") ? 1 : -1;
    config.tcp.io = "poll";
    if (is_threads && coll_init_threads(RANKS, comms, &(coll_config){ .spin_us = config.spin_us }) < 0)
        return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
    for (int i = 0; i < RANKS; i++) {
        configs[i] = config;
        configs[i].rank = i;
        if (pthread_create(&threads[i], NULL, is_threads ? thread_main : process_main,
                           is_threads ? (void *)comms[i] : (void *)&configs[i])) return 1;
    }
    for (int i = 0; i < RANKS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        has_failed = has_failed || result;
    }
    return has_failed;
}
