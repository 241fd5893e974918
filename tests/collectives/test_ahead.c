/* test_ahead.c - queues of collectives of all kinds and lengths: each has the results of single calls, however far ranks are
 * ahead of each other.  Where ranks share memory, short inputs go ahead in slots, longer ones in bounce buffers, of which there
 * are fewer, and the longest are read in place (transports/threads/coll_shm_op.h); so the queues mix all three.
 *
 *     test_ahead [WORLD,...]         of threads, tcp-domain, joined; COLL_TEST_SEED=...: other calls, other pauses */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"

enum { QUEUED_MOST = 70, LONGEST = 1700, QUEUES = 40, RANKS_MOST = 18, LIMIT_SECONDS = 240 };

typedef struct queued {
    coll_kind kind;
    size_t    count;
    int       root;
    coll_request *request;
    int32_t  *in, *out;
} queued;

static uint64_t seed;

/* Element i of the input of a rank to call n of this turn. */
static int32_t element(int turn, int n, int rank, size_t i)
{
    return (int32_t)((unsigned)turn * 193u + (unsigned)n * 7919u + (unsigned)rank * 104729u + (unsigned)i * 31u) & 0xffffff;
}

/* What the call is, the same on all ranks. */
static void choose(queued *q, uint64_t *state, int size)
{
    static const coll_kind kinds[] = { COLL_ALLREDUCE, COLL_BROADCAST, COLL_ALLGATHER, COLL_REDUCE, COLL_SCAN, COLL_BARRIER };
    static const size_t counts[] = { 1, 2, 64, 65, 200, 1000, LONGEST };

    q->kind = kinds[support_random(state) % 6];
    q->count = q->kind == COLL_BARRIER ? 0 : counts[support_random(state) % (support_random(state) % 2 ? 7 : 3)];
    q->root = (int)(support_random(state) % (unsigned)size);
}

static coll_status start(coll_comm *comm, queued *q)
{
    switch (q->kind) {
    case COLL_ALLREDUCE: return coll_iallreduce(comm, q->in, q->out, q->count, COLL_I32, COLL_SUM, &q->request);
    case COLL_BROADCAST: return coll_ibroadcast(comm, coll_rank(comm) == q->root ? q->in : q->out, q->count, COLL_I32, q->root,
                                                &q->request);
    case COLL_ALLGATHER: return coll_iallgather(comm, q->in, q->out, q->count, COLL_I32, &q->request);
    case COLL_REDUCE:    return coll_ireduce(comm, q->in, q->out, q->count, COLL_I32, COLL_SUM, q->root, &q->request);
    case COLL_SCAN:      return coll_iscan(comm, q->in, q->out, q->count, COLL_I32, COLL_SUM, &q->request);
    default:             return coll_ibarrier(comm, &q->request);
    }
}

/* Element i of the result on a rank. */
static int32_t expected(const queued *q, int turn, int n, int rank, int size, size_t i)
{
    int64_t sum = 0;

    if (q->kind == COLL_BROADCAST) return element(turn, n, q->root, i);
    if (q->kind == COLL_ALLGATHER) return element(turn, n, (int)(i / q->count), i % q->count);
    for (int r = 0; r <= (q->kind == COLL_SCAN ? rank : size - 1); r++) sum += element(turn, n, r, i);
    return (int32_t)(uint32_t)sum;
}

static void look(coll_comm *comm, const queued *q, int turn, int n)
{
    const int rank = coll_rank(comm), size = coll_size(comm);
    const bool has_none = (q->kind == COLL_REDUCE && rank != q->root) || (q->kind == COLL_BROADCAST && rank == q->root);
    const size_t count = has_none ? 0 : q->count * (q->kind == COLL_ALLGATHER ? (size_t)size : 1);
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++) wrong += q->out[i] != expected(q, turn, n, rank, size, i);
    CHECK(wrong == 0, "turn %d, call %d, %s of %zu: %zu elements are wrong on rank %d of %d", turn, n, coll_kind_name(q->kind),
          q->count, wrong, rank, size);
}

/* Give the others time to go ahead, or none. */
static void pause_for(uint64_t *state)
{
    if (support_random(state) % 8) return;
    for (int n = (int)(support_random(state) % 200); n > 0; n--) sched_yield();
}

static int worker(coll_comm *comm, void *arg)
{
    const int size = coll_size(comm), rank = coll_rank(comm);
    queued *const all = support_need(calloc(QUEUED_MOST, sizeof *all));
    uint64_t calls = seed, own = seed + 1 + (uint64_t)rank;

    (void)arg;
    for (int n = 0; n < QUEUED_MOST; n++) {
        all[n].in = support_need(calloc(LONGEST, sizeof *all[n].in));
        all[n].out = support_need(calloc(LONGEST * (size_t)size, sizeof *all[n].out));
    }
    for (int turn = 0; turn < QUEUES; turn++) {
        const int count = 1 + (int)(support_random(&calls) % QUEUED_MOST);
        for (int n = 0; n < count; n++) {
            queued *const q = &all[n];
            choose(q, &calls, size);
            for (size_t i = 0; i < q->count; i++) q->in[i] = element(turn, n, rank, i);
            CHECK(start(comm, q) == COLL_OK, "%s", coll_error(comm));
            pause_for(&own);
        }
        for (int n = 0; n < count; n++) {
            CHECK(coll_wait(all[n].request) == COLL_OK, "%s", coll_error(comm));
            coll_request_free(all[n].request);
            look(comm, &all[n], turn, n);
            pause_for(&own);
        }
    }
    for (int n = 0; n < QUEUED_MOST; n++) free(all[n].in), free(all[n].out);
    free(all);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "threads", "tcp-domain", "hybrid" };
    static const int sizes[] = { 2, 3, 5, RANKS_MOST };

    seed = support_seed();
    support_limit(LIMIT_SECONDS, NULL);
    for (int w = 0; w < 3; w++) {
        if ((argc > 1 && !support_listed(argv[1], worlds[w])) || !support_has_world(worlds[w])) continue;
        const int failed = check__failed;
        for (int s = 0; s < 4; s++) {
            const int result = support_run(worlds[w], sizes[s], worker, NULL);
            CHECK(result == 0, "%s, %d ranks: %d", worlds[w], sizes[s], result);
        }
        printf("%s - %s\n", check__failed > failed ? "FAILED" : "ok", worlds[w]);
    }
    return CHECK_DONE();
}
