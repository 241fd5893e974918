/* instructions - the same call again and again, for a program that counts what the processor does: see instructions.sh.
 *
 *     instructions threads|tcp|memory allreduce|broadcast|barrier BYTES CALLS
 *
 * Two ranks are two threads of this process: over the transport of threads, over TCP on the loopback, or over the memory that
 * processes of a host share.  Nobody spins and nobody works in the background, so that what is counted repeats. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2 };

static const char *kind;
static size_t count;
static long calls;
static char address[96];

static int work(coll_comm *comm)
{
    float *x = calloc(count + 1, sizeof *x);
    int status = x ? 0 : COLL_ERR_MEMORY;

    for (long i = 0; i < calls && !status; i++) {
        if (!strcmp(kind, "allreduce")) status = coll_allreduce(comm, x, x, count, COLL_F32, COLL_SUM);
        else if (!strcmp(kind, "broadcast")) status = coll_broadcast(comm, x, count, COLL_F32, (int)(i % RANKS));
        else status = coll_barrier(comm);
    }
    if (status) fprintf(stderr, "%s\n", coll_error(comm));
    free(x);
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

    if (argc != 5) return fprintf(stderr, "usage: instructions threads|tcp|memory KIND BYTES CALLS\n"), 2;
    kind = argv[2];
    count = strtoul(argv[3], NULL, 10) / sizeof(float);
    calls = strtol(argv[4], NULL, 10);
    const bool is_threads = !strcmp(argv[1], "threads");
    snprintf(address, sizeof address, "file:/tmp/coll-instructions.%ld", (long)getpid());
    config.address = address;
    config.tcp.share_memory = !strcmp(argv[1], "memory") ? 1 : -1;
    config.tcp.io = "poll";
    if (is_threads && coll_init_threads(RANKS, comms, &(coll_config){ .spin_us = -1 }) < 0)
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
