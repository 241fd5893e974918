/* test_stacks.c - how much stack a rank needs: every call, in threads whose stacks are painted before, and checked afterwards.
 *
 *     test_stacks                          prints the stack of each world */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include <sys/mman.h>

enum { RANKS = 4, STACK = 64 << 10, ROOM = 48 << 10, COUNT = 3000, PAINT = 0xa5, LIMIT_SECONDS = 120 };

typedef struct rank {
    pthread_t      thread;
    unsigned char *stack;                         /* RANK's own, above a guard page                           */
    coll_config    config;
    coll_comm     *comm;                          /* NULL: it joins by itself                                 */
    float         *in, *out;
    int            wrong;
} rank;

static void reductions(rank *r)
{
    static const coll_type types[] = { COLL_I8, COLL_I64, COLL_F16, COLL_BF16, COLL_F8E4M3, COLL_F32, COLL_F64, COLL_C64 };
    static const coll_kind kinds[] = { COLL_ALLREDUCE, COLL_REDUCE, COLL_REDUCE_SCATTER, COLL_SCAN, COLL_EXSCAN };
    static const unsigned flags[] = { 0, COLL_DETERMINISTIC, COLL_REPRODUCIBLE, COLL_SATURATE | COLL_DETECT_OVERFLOW };
    coll_call call;

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
                memset(&call, 0, sizeof call);
                call.kind = kinds[k], call.send = r->in, call.recv = r->out, call.count = COUNT / RANKS, call.type = types[t];
                call.flags = flags[f], call.op = f == 3 && k < 3 ? COLL_AVG : COLL_SUM;
                const coll_status status = coll_run(r->comm, &call);
                r->wrong += status != COLL_OK && status != COLL_ERR_UNSUPPORTED;
            }
}

/* Wires of fewer bits, with error feedback, at random, in groups; lists. */
static void wires(rank *r)
{
    static const coll_type wires[] = { COLL_F16, COLL_BF16, COLL_F8E5M2, COLL_MXI8, COLL_MXF8E4M3 };
    const coll_list_item list[] = { { .send = r->in, .recv = r->out, .count = COUNT / 2, .type = COLL_F32 },
                                 { .send = r->in, .recv = r->out + COUNT, .count = COUNT / 3, .type = COLL_F32 } };
    coll_call call;

    for (size_t w = 0; w < sizeof wires / sizeof *wires; w++)
        for (int is_random = 0; is_random < 2; is_random++) {
            memset(&call, 0, sizeof call);
            call.kind = COLL_ALLREDUCE, call.send = r->in, call.recv = r->out, call.count = COUNT, call.type = COLL_F32;
            call.wire = wires[w], call.flags = is_random ? COLL_STOCHASTIC : 0, call.residual = r->out + 2 * COUNT;
            const coll_status status = coll_run(r->comm, &call);
            r->wrong += status != COLL_OK && status != COLL_ERR_UNSUPPORTED;
        }
    r->wrong += coll_allreduce_list(r->comm, list, 2, COLL_SUM) != COLL_OK;
}

static void moves(rank *r)
{
    coll_comm *const c = r->comm;
    const int me = coll_rank(c), next = (me + 1) % RANKS, last = (me + RANKS - 1) % RANKS;
    const size_t counts[RANKS] = { 100, 0, 30, 7 }, evens[RANKS] = { 50, 50, 50, 50 }, n = counts[me];
    coll_comm *other = NULL;
    coll_request *request = NULL;
    char text[400];

    r->wrong += coll_barrier(c) != COLL_OK;
    r->wrong += coll_broadcast(c, r->out, COUNT, COLL_F32, 1) != COLL_OK;
    r->wrong += coll_gather(c, r->in, r->out, 500, COLL_F32, 1) != COLL_OK;
    r->wrong += coll_gatherv(c, r->in, n, r->out, counts, NULL, COLL_F32, 2) != COLL_OK;
    r->wrong += coll_scatter(c, r->in, r->out, 500, COLL_F32, 1) != COLL_OK;
    r->wrong += coll_scatterv(c, r->in, counts, NULL, r->out, n, COLL_F32, 2) != COLL_OK;
    r->wrong += coll_allgather(c, r->in, r->out, 500, COLL_F32) != COLL_OK;
    r->wrong += coll_allgatherv(c, r->in, n, r->out, counts, NULL, COLL_F32) != COLL_OK;
    r->wrong += coll_reduce_scatterv(c, r->in, r->out, counts, COLL_F32, COLL_SUM) != COLL_OK;
    r->wrong += coll_alltoall(c, r->in, r->out, 500, COLL_F32) != COLL_OK;
    r->wrong += coll_alltoallv(c, r->in, evens, NULL, r->out, evens, NULL, COLL_F32) != COLL_OK;
    r->wrong += coll_sendrecv(c, r->in, COUNT, next, r->out, COUNT, last, COLL_F32, 5) != COLL_OK;
    r->wrong += coll_dup(c, &other) != COLL_OK || coll_neighbors(other, &last, 1, &next, 1) != COLL_OK;
    r->wrong += coll_neighbor_allgather(other, r->in, r->out, 100, COLL_F32) != COLL_OK;
    r->wrong += coll_free(other) != COLL_OK;
    r->wrong += coll_split(c, me % 2, 0, &other) != COLL_OK;
    r->wrong += coll_iallreduce(other, r->in, r->out, COUNT, COLL_F32, COLL_SUM, &request) != COLL_OK;
    r->wrong += coll_wait(request) != COLL_OK;
    coll_request_free(request);
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = r->in, .recv = r->out, .count = 9, .type = COLL_F32 };
    r->wrong += coll_explain(c, &call, text, sizeof text) <= 0 || coll_link_text(c, text, sizeof text) <= 0;
    r->wrong += coll_free(other) != COLL_OK;
    r->wrong += coll_convert_stochastic(r->out, COLL_F16, r->in, COLL_F32, COUNT, 1, 2) != COLL_OK;
    r->wrong += coll_reduce_local(r->out, r->in, COUNT, COLL_F32, COLL_SUM) != COLL_OK;
}

static void *rank_main(void *arg)
{
    rank *r = arg;

    if (!r->comm && coll_init(&r->comm, &r->config)) {
        fprintf(stderr, "%s\n", coll_error(NULL));
        r->wrong = 1000;
        return NULL;
    }
    reductions(r);
    wires(r);
    moves(r);
    if (r->wrong) fprintf(stderr, "%s\n", coll_error(r->comm));
    (void)coll_barrier(r->comm);                  /* from here on a rank may have given up                     */
    (void)coll_abort(r->comm, "what an abort needs");
    (void)coll_barrier(r->comm);
    coll_free(r->comm);
    return NULL;
}

static size_t used(const rank *r)
{
    size_t left = 0;
    while (left < STACK && r->stack[left] == PAINT) left++;
    return STACK - left;
}

static void begin(rank *r)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *const at = mmap(NULL, STACK + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;

    r->in = support_need(calloc(3 * COUNT, sizeof *r->in));
    r->out = support_need(calloc(3 * COUNT, sizeof *r->out));
    if (at == MAP_FAILED || mprotect(at, page, PROT_NONE)) exit(1);
    r->stack = at + page;
    memset(r->stack, PAINT, STACK);
    pthread_attr_init(&attributes);
    CHECK(!pthread_attr_setstack(&attributes, r->stack, STACK)
              && !pthread_create(&r->thread, &attributes, rank_main, r), "no thread with such a stack");
    pthread_attr_destroy(&attributes);
}

static void test_world(const char *name)
{
    rank ranks[RANKS] = { { 0 } };
    coll_comm *comms[RANKS];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    size_t most = 0;

    if (!strcmp(name, "threads") && coll_init_threads(RANKS, comms, NULL)) exit(1);
    for (int i = 0; i < RANKS; i++) {
        if (!strcmp(name, "threads")) ranks[i].comm = comms[i];
        ranks[i].config = (coll_config){ .transport = "tcp", .rank = i, .size = RANKS, .address = address,
                                         .tcp = { .io = !strcmp(name, "tcp-uring") ? "uring" : "poll" },
                                         .log_level = COLL_LOG_ERROR };
        begin(&ranks[i]);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(ranks[i].thread, NULL);
        CHECK(ranks[i].wrong == 0, "%s: rank %d: %d calls are wrong", name, i, ranks[i].wrong);
        most = used(&ranks[i]) > most ? used(&ranks[i]) : most;
        free(ranks[i].in);
        free(ranks[i].out);
    }
    close(port);
    printf("%s: %zu bytes of stack\n", name, most);
    CHECK(most <= ROOM, "%s: %zu bytes of stack are in use, and %d may be", name, most, (int)ROOM);
}

int main(void)
{
    static const char *const worlds[] = { "threads", "tcp-poll", "tcp-uring" };

    support_limit(LIMIT_SECONDS, NULL);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        if (!support_refusal(worlds[i])) test_world(worlds[i]);
    return CHECK_DONE();
}
