/* queued - many small collectives of one communicator at once, compared with the same ones one after the other.
 *
 *     queued threads|tcp|memory allreduce|allgather|barrier BYTES RANKS CALLS [pairs PAIRS]
 *     queued ... only blocking|queued TIMES           nothing but these, for a program that counts: valgrind, strace -f -c
 *
 * Blocking: CALLS blocking calls.  Queued: CALLS non-blocking ones, and one coll_wait_all.  Both in turns, PAIRS times (default
 * 301); printed is the median of each for one call, in microseconds of rank 0, and the median of the ratios of the pairs with
 * their quartiles.  Ranks are threads of this process: over the transport of threads, over TCP on the loopback, or over the
 * memory that processes of a host share. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 64, CALLS_MOST = 1024, PAIRS_MOST = 10000 };

typedef enum kind { ALLREDUCE, ALLGATHER, BARRIER } kind;

static kind what;
static size_t count;
static int ranks, calls, pairs = 301, times;
static bool is_queued_only, is_only;
static double blocking_us[PAIRS_MOST], queued_us[PAIRS_MOST], ratios[PAIRS_MOST];

typedef struct rank_state { coll_config config; coll_comm *comm; float *send, *recv; coll_request *requests[CALLS_MOST];
                            } rank_state;

static coll_status one(rank_state *s, int i, coll_request **out)
{
    float *const send = s->send + (size_t)i * count, *const recv = s->recv + (size_t)i * count * (size_t)ranks;

    switch (what) {
    case ALLREDUCE: return out ? coll_iallreduce(s->comm, send, recv, count, COLL_F32, COLL_SUM, out)
                               : coll_allreduce(s->comm, send, recv, count, COLL_F32, COLL_SUM);
    case ALLGATHER: return out ? coll_iallgather(s->comm, send, recv, count, COLL_F32, out)
                               : coll_allgather(s->comm, send, recv, count, COLL_F32);
    default:        return out ? coll_ibarrier(s->comm, out) : coll_barrier(s->comm);
    }
}

/* All calls, in one way.  Microseconds; below 0: it has failed. */
static double run(rank_state *s, bool is_queued)
{
    coll_status status = coll_barrier(s->comm);
    const int64_t began = coll__now();

    for (int i = 0; i < calls && status == COLL_OK; i++) status = one(s, i, is_queued ? &s->requests[i] : NULL);
    if (is_queued && status == COLL_OK) status = coll_wait_all(calls, s->requests);
    for (int i = 0; is_queued && i < calls; i++) coll_request_free(s->requests[i]);
    return status == COLL_OK ? (double)(coll__now() - began) * 1e-3 : -1;
}

static void *work(void *at)
{
    rank_state *s = at;
    const size_t room = (size_t)calls * (count + 1) * (size_t)ranks;
    bool is_good = s->comm || coll_init(&s->comm, &s->config) == COLL_OK;

    if (!is_good) fprintf(stderr, "%s\n", coll_error(NULL));
    s->send = calloc(room, sizeof *s->send);
    s->recv = calloc(room, sizeof *s->recv);
    is_good = is_good && s->send && s->recv;
    for (int i = 0; is_only && i < times && is_good; i++) is_good = run(s, is_queued_only) >= 0;
    for (int i = -20; !is_only && i < pairs && is_good; i++) {        /* the first ones are not counted       */
        const bool is_first = i & 1;
        const double first = run(s, is_first), second = run(s, !is_first);
        is_good = first >= 0 && second >= 0;
        if (i < 0 || !is_good || coll_rank(s->comm)) continue;
        queued_us[i] = is_first ? first : second;
        blocking_us[i] = is_first ? second : first;
        ratios[i] = blocking_us[i] / queued_us[i];
    }
    if (!is_good && s->comm) fprintf(stderr, "%s\n", coll_error(s->comm));
    free(s->send);
    free(s->recv);
    coll_free(s->comm);
    return is_good ? NULL : at;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *x, int quarter) { return x[(size_t)pairs * (size_t)quarter / 4]; }

int main(int argc, char **argv)
{
    static rank_state ranks_of[RANKS_MOST];
    pthread_t threads[RANKS_MOST];
    coll_comm *comms[RANKS_MOST] = { NULL };
    char address[96];
    bool has_failed = false;

    is_only = argc == 9 && !strcmp(argv[6], "only");
    if (argc < 6 || (argc > 6 && argc != 8 && !is_only))
        return fprintf(stderr, "usage: queued threads|tcp|memory KIND BYTES RANKS CALLS [pairs N | only WAY TIMES]\n"), 2;
    what = !strcmp(argv[2], "allreduce") ? ALLREDUCE : !strcmp(argv[2], "allgather") ? ALLGATHER : BARRIER;
    count = strtoul(argv[3], NULL, 10) / sizeof(float);
    ranks = atoi(argv[4]);
    calls = atoi(argv[5]);
    if (is_only) times = atoi(argv[8]), is_queued_only = !strcmp(argv[7], "queued");
    else if (argc == 8) pairs = atoi(argv[7]);
    if (ranks < 1 || ranks > RANKS_MOST || calls < 1 || calls > CALLS_MOST || pairs < 1 || pairs > PAIRS_MOST)
        return fprintf(stderr, "queued: out of range\n"), 2;
    const bool is_threads = !strcmp(argv[1], "threads");
    if (is_threads && coll_init_threads(ranks, comms, NULL) < 0) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
    snprintf(address, sizeof address, "file:/tmp/coll-queued.%ld", (long)getpid());
    for (int i = 0; i < ranks; i++) {
        ranks_of[i].comm = comms[i];
        ranks_of[i].config = (coll_config){ .rank = i, .size = ranks, .background = -1, .address = address,
                                               .tcp = { .network = "127.0.0.1",
                                                        .share_memory = !strcmp(argv[1], "memory") ? 1 : -1 } };
        if (pthread_create(&threads[i], NULL, work, &ranks_of[i])) return 1;
    }
    for (int i = 0; i < ranks; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        has_failed = has_failed || result;
    }
    if (has_failed || is_only) return has_failed;
    qsort(blocking_us, (size_t)pairs, sizeof *blocking_us, by_size);
    qsort(queued_us, (size_t)pairs, sizeof *queued_us, by_size);
    qsort(ratios, (size_t)pairs, sizeof *ratios, by_size);
    printf("%-8s %-10s %6s B %3d ranks %4d calls: blocking %8.2f us, queued %8.2f us a call; blocking/queued %.2f (%.2f-%.2f)\n",
           argv[1], argv[2], argv[3], ranks, calls, quantile(blocking_us, 2) / calls, quantile(queued_us, 2) / calls,
           quantile(ratios, 2), quantile(ratios, 1), quantile(ratios, 3));
    return 0;
}
