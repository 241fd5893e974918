/* test_allocations.c - the caller may provide the allocator: each allocation in turn fails.  The call must return an error with a
 * sentence; nothing is leaked, and no rank waits for ever.
 *
 *     test_allocations [WORLD,...]                  of alone, threads, sim, tcp, joined; with all of them where none is named */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/counting_allocator.h"

/* ---- >>steps of a rank: each returns a status ---- */

enum { N = 700, RANKS_MOST = 4 };

typedef struct work {
    coll_comm *comm;
    int   rank, size;
    bool  is_known;                               /* a failure has its sentence, elsewhere than in comm       */
    const coll_allocator *allocator;              /* the one that counts and refuses allocations              */
    float in[RANKS_MOST * N], out[RANKS_MOST * N];
} work;

#define TRY(call) do { const coll_status s_ = (call); if (s_ != COLL_OK) return s_; } while (0)

static coll_status finish(coll_request *r)
{
    const coll_status status = coll_wait(r);

    coll_request_free(r);
    return status;
}

/* A call that is compiled out returns COLL_ERR_UNSUPPORTED, unless it fails for lack of memory first. */
static coll_status if_there(coll_kind kind, coll_status status)
{
    if (there_kind(kind)) return status;
    return status == COLL_ERR_UNSUPPORTED ? COLL_OK : status == COLL_OK ? COLL_ERR_ARGUMENT : status;
}

/* The call; if it is compiled out, it must fail with that error. */
static coll_status run_there(work *w, const coll_call *call)
{
    const there_lack lack = there_call(call);
    const coll_status status = coll_run(w->comm, call);

    if (lack.count == 0 || status != COLL_ERR_UNSUPPORTED) return status == COLL_OK && lack.count ? COLL_ERR_ARGUMENT : status;
    CHECK(there_refuses(&lack, status, coll_error(w->comm)), "%s", coll_error(w->comm));
    return COLL_OK;
}

static coll_status step_blocking(work *w)
{
    coll_comm *const c = w->comm;

    TRY(coll_barrier(c));
    TRY(if_there(COLL_BROADCAST, coll_broadcast(c, w->in, N, COLL_F32, 0)));
    TRY(if_there(COLL_REDUCE, coll_reduce(c, w->in, w->out, N, COLL_F32, COLL_SUM, 0)));
    TRY(coll_allreduce(c, w->in, w->out, N, COLL_F32, COLL_SUM));
    TRY(if_there(COLL_REDUCE_SCATTER, coll_reduce_scatter(c, w->in, w->out, N, COLL_F32, COLL_SUM)));
    TRY(if_there(COLL_SCAN, coll_scan(c, w->in, w->out, N, COLL_F32, COLL_SUM)));
    TRY(if_there(COLL_GATHER, coll_gather(c, w->in, w->out, N, COLL_F32, 0)));
    TRY(if_there(COLL_SCATTER, coll_scatter(c, w->in, w->out, N, COLL_F32, 0)));
    TRY(coll_allgather(c, w->in, w->out, N, COLL_F32));
    return if_there(COLL_ALLTOALL, coll_alltoall(c, w->in, w->out, N, COLL_F32));
}

static coll_status step_requests(work *w)
{
    coll_request *r[2] = { NULL, NULL };

    TRY(coll_iallreduce(w->comm, w->in, w->out, N, COLL_F32, COLL_MAX, &r[0]));
    const coll_status status = coll_ibarrier(w->comm, &r[1]);
    if (status == COLL_OK) (void)coll_wait_all(2, r);
    const coll_status first = finish(r[0]), second = status == COLL_OK ? finish(r[1]) : status;
    return first != COLL_OK ? first : second;
}

static coll_status step_prepared(work *w)
{
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = w->in, .recv = w->out, .count = N, .type = COLL_F32,
                             .op = COLL_SUM };
    coll_request *r;

    TRY(coll_prepare(w->comm, &call, &r));
    coll_status status = COLL_OK;
    for (int i = 0; i < 2 && status == COLL_OK; i++)
        if ((status = coll_restart(r)) == COLL_OK) status = coll_wait(r);
    coll_request_free(r);
    return status;
}

static coll_status step_messages(work *w)
{
    const int next = (w->rank + 1) % w->size, last = (w->rank + w->size - 1) % w->size;

    for (int tag = 0; tag < 3; tag++) TRY(coll_sendrecv(w->comm, w->in, N, next, w->out, N, last, COLL_F32, tag));
    return COLL_OK;
}

static coll_status step_neighbors(work *w)
{
    const int next = (w->rank + 1) % w->size, last = (w->rank + w->size - 1) % w->size;

    TRY(if_there(COLL_NEIGHBOR_ALLGATHER, coll_neighbors(w->comm, &last, 1, &next, 1)));
    return if_there(COLL_NEIGHBOR_ALLGATHER, coll_neighbor_allgather(w->comm, w->in, w->out, N, COLL_F32));
}

/* The sentence of its own failures is there. */
static coll_status sum_on(coll_comm *comm, work *w)
{
    const coll_status status = coll_allreduce(comm, w->in, w->out, N, COLL_F32, COLL_SUM);

    if (status < 0) CHECK(*coll_error(comm), "a derived communicator: an error without a sentence");
    w->is_known = status < 0;
    return status;
}

static coll_status step_derived(work *w)
{
    coll_comm *half = NULL, *same = NULL;
    coll_status status = coll_split(w->comm, w->rank % 2, 0, &half);

    if (status == COLL_OK) status = sum_on(half, w);
    if (half) coll_free(half);
    if (status == COLL_OK && (status = coll_dup(w->comm, &same)) == COLL_OK) status = sum_on(same, w);
    if (same) coll_free(same);
    return status;
}

static coll_status step_list(work *w)
{
    const coll_list_item list[2] = { { .send = w->in, .recv = w->out, .count = N, .type = COLL_F32 },
                                  { .send = w->in + N, .recv = w->out + N, .count = 7, .type = COLL_F32 } };
    const coll_call call = { .kind = COLL_ALLREDUCE_LIST, .list = list, .list_count = 2, .op = COLL_SUM };

    return if_there(COLL_ALLREDUCE_LIST, coll_run(w->comm, &call));
}

/* Blocks of different lengths: i + 1 and more elements from rank i or for rank i. */
static coll_status step_listed(work *w)
{
    size_t each[RANKS_MOST], same[RANKS_MOST], places[RANKS_MOST];
    coll_type types[RANKS_MOST];
    coll_call call = { .send = w->in, .recv = w->out, .type = COLL_F32, .op = COLL_SUM };

    for (int i = 0; i < w->size; i++) each[i] = 20 * (size_t)(i + 1), same[i] = 30, types[i] = COLL_F32;
    for (int i = 0; i < w->size; i++) places[i] = 120 * (size_t)i;
    call.count = each[w->rank], call.recv_counts = each, call.kind = COLL_GATHERV;
    TRY(run_there(w, &call));
    call.kind = COLL_ALLGATHERV;
    TRY(run_there(w, &call));
    call.count = 0, call.kind = COLL_REDUCE_SCATTERV;
    TRY(run_there(w, &call));
    call.recv_counts = NULL, call.send_counts = each, call.recv_count = each[w->rank], call.kind = COLL_SCATTERV;
    TRY(run_there(w, &call));
    call.recv_count = 0, call.send_counts = call.recv_counts = same, call.kind = COLL_ALLTOALLV;
    TRY(run_there(w, &call));
    call.send_types = call.recv_types = types, call.send_offsets = call.recv_offsets = places, call.type = 0;
    call.kind = COLL_ALLTOALLW;
    return run_there(w, &call);
}

/* Sums with special settings: reproducible, grouped with 8-bit floats and error feedback, stochastic rounding, long elements. */
static coll_status step_numbers(work *w)
{
    coll_call call = { .kind = COLL_ALLREDUCE, .send = w->in, .recv = w->out, .count = N, .type = COLL_F32, .op = COLL_SUM };

    call.flags = COLL_REPRODUCIBLE;
    TRY(run_there(w, &call));
    call.flags = COLL_DETERMINISTIC;
    TRY(run_there(w, &call));
    call.flags = 0, call.wire = COLL_MXF8E4M3, call.residual = w->out + N;
    memset(call.residual, 0, N * sizeof *call.residual);
    TRY(run_there(w, &call));
    call.residual = NULL, call.wire = COLL_BF16, call.flags = COLL_STOCHASTIC;
    TRY(run_there(w, &call));
    return if_there(COLL_REDUCE_SCATTER, coll_reduce_scatter(w->comm, w->in, w->out, N, COLL_F32, COLL_AVG));
}

/* Communicators of some ranks, and of the ranks of a host. */
static coll_status step_created(work *w)
{
    const int ranks[2] = { w->size - 1, 0 };
    coll_comm *host = NULL, *two = NULL;
    coll_status status = coll_split_host(w->comm, &host);

    if (status == COLL_OK) status = sum_on(host, w);
    if (host) coll_free(host);
    if (status < 0 || w->size == 1 || (w->rank > 0 && w->rank < w->size - 1)) return status;
    if ((status = coll_create(w->comm, ranks, 2, 5, &two)) == COLL_OK) status = sum_on(two, w);
    if (two) coll_free(two);
    return status;
}

/* Many requests, of this communicator and of an independent coll_init. */
static coll_status step_any(work *w)
{
    enum { MANY = 24 };
    coll_config config = { .size = 1, .allocator = w->allocator, .log_level = COLL_LOG_NONE };
    coll_request *all[MANY + 1] = { NULL };
    coll_comm *alone = NULL;
    coll_status status = COLL_OK;
    int made = 0, index = 0;

    for (; made < MANY && status == COLL_OK; made += status == COLL_OK)
        status = coll_iallreduce(w->comm, w->in + made * 8, w->out + made * 8, 8, COLL_F32, COLL_SUM, &all[made]);
    if (status == COLL_OK && (status = coll_init(&alone, &config)) == COLL_OK) {
        if ((status = coll_ibarrier(alone, &all[MANY])) == COLL_OK) made++;
    }
    for (int i = 0; i < made && status == COLL_OK; i++) status = coll_wait_any(made, all, &index);
    w->is_known = status < 0 && (*coll_error(NULL) || (alone && *coll_error(alone)));
    for (int i = 0; i < made; i++) (void)coll_wait(all[i]);       /* their buffers are about to be freed      */
    for (int i = 0; i < made; i++) coll_request_free(all[i]);
    if (alone) coll_free(alone);
    return status;
}

static coll_status step_explained(work *w)
{
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = w->in, .recv = w->out, .count = N, .type = COLL_F32,
                             .op = COLL_SUM };
    char text[400];

    const int length = coll_explain(w->comm, &call, text, sizeof text);
    return length < 0 ? (coll_status)length : coll_run(w->comm, &call);
}

/* The last rank leaves, and the others go on without it. */
static coll_status step_shrunk(work *w)
{
    coll_comm *fewer = NULL;

    TRY(coll_barrier(w->comm));
    if (w->size == 1 || w->rank == w->size - 1) return COLL_OK;
    coll_status status = COLL_OK;
    for (int i = 0; i < 100 && status == COLL_OK; i++) status = coll_allreduce(w->comm, w->in, w->out, N, COLL_F32, COLL_SUM);
    if (status != COLL_ERR_PEER) return status;
    status = coll_shrink(w->comm, &fewer);
    if (!COLL__HAS_SHRINK) return status == COLL_ERR_UNSUPPORTED ? COLL_OK : COLL_ERR_ARGUMENT;
    if (status == COLL_OK) status = sum_on(fewer, w);
    if (fewer) coll_free(fewer);
    return status;
}

/* Columns of a matrix, twice at once. */
static coll_status step_strided(work *w)
{
    const size_t wide = 2 * (size_t)w->size + 1;
    const coll_call call = { .kind = COLL_ALLGATHER, .send = w->in, .recv = w->out, .count = 6, .type = COLL_F32, .row = 2,
                             .recv_stride = wide };
    coll_call other = call;
    coll_request *r = NULL;

    const coll_status status = coll_run(w->comm, &call);
    if (!COLL__IS_WHOLE) return status == COLL_ERR_UNSUPPORTED ? COLL_OK : COLL_ERR_ARGUMENT;
    TRY(status);
    other.recv = w->out + 3 * wide;
    TRY(coll_start(w->comm, &other, &r));
    TRY(finish(r));
    return coll_run(w->comm, &call);
}

typedef coll_status step(work *w);

static const struct { const char *name; step *run; } steps[] = {
    { "blocking", step_blocking }, { "requests", step_requests }, { "prepared", step_prepared }, { "messages", step_messages },
    { "neighbors", step_neighbors }, { "derived", step_derived }, { "list", step_list }, { "listed", step_listed },
    { "numbers", step_numbers }, { "created", step_created }, { "any", step_any }, { "explained", step_explained },
    { "strided", step_strided }, { "shrunk", step_shrunk },
};

enum { STEPS = sizeof steps / sizeof *steps };

typedef struct trial {
    const char *world;
    int         step;
    const coll_allocator *allocator;
    counter       counter;
    int         arms;                             /* the rank that has the n-th from here on refused; -1: none */
    long        later;
    coll_status worst[RANKS_MOST];
} trial;

static int worker(coll_comm *comm, void *arg)
{
    trial *const t = (trial *)arg;
    work *const w = (work *)support_need(calloc(1, sizeof *w));

    *w = (work){ .comm = comm, .rank = coll_rank(comm), .size = coll_size(comm), .allocator = t->allocator };
    for (int i = 0; i < RANKS_MOST * N; i++) w->in[i] = (float)(i % 10);
    if (w->rank == t->arms)
        __atomic_store_n(&t->counter.refused_at, __atomic_load_n(&t->counter.taken, __ATOMIC_RELAXED) + t->later,
                         __ATOMIC_RELAXED);
    const coll_status status = steps[t->step].run(w);
    t->worst[w->rank] = status;
    if (status < 0 && !w->is_known)
        CHECK(*coll_error(comm), "%s, %s, allocation %ld: an error without a sentence", t->world, steps[t->step].name,
              t->counter.refused_at);
    free(w);
    return 0;
}

/* ---- >>worlds ---- */

typedef struct tcp_rank { trial *t; coll_config config; } tcp_rank;

static void *tcp_main(void *at)
{
    tcp_rank *const r = (tcp_rank *)at;
    coll_comm *comm = NULL;
    const coll_status status = coll_init(&comm, &r->config);

    r->t->worst[r->config.rank] = status;
    if (status == COLL_OK) (void)worker(comm, r->t), coll_free(comm);
    return NULL;
}

typedef struct member { pthread_t thread; coll_comm *comm; trial *t; } member;

static void *member_main(void *at)
{
    const member *const m = (const member *)at;

    (void)worker(m->comm, m->t);
    coll_free(m->comm);
    return NULL;
}

/* In the place of a process: two ranks that are threads. */
static void *joined_main(void *at)
{
    tcp_rank *const r = (tcp_rank *)at;
    coll_comm *comms[2] = { NULL, NULL };
    member members[2];
    const coll_status status = coll_init_threads(2, comms, &r->config);

    r->t->worst[r->config.rank] = status;
    if (status < 0) CHECK(*coll_error(NULL), "joined: an error without a sentence");
    for (int i = 0; status == COLL_OK && i < 2; i++) {
        members[i] = (member){ .comm = comms[i], .t = r->t };
        CHECK(!pthread_create(&members[i].thread, NULL, member_main, &members[i]), "no thread");
    }
    for (int i = 0; status == COLL_OK && i < 2; i++) pthread_join(members[i].thread, NULL);
    return NULL;
}

/* Two over TCP, one with the counted allocator: ranks, or groups of two ranks each in the place of a process.  The other waits
 * for one that cannot start, until start_timeout_ms are over: so only the first steps refuse the allocations of opening. */
static void run_two(trial *t, const coll_allocator *allocator, int each)
{
    tcp_rank ranks[2];
    pthread_t threads[2];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    for (int i = 0; i < 2; i++) {
        ranks[i] = (tcp_rank){ t, { .transport = each > 1 ? NULL : "tcp", .rank = each * i, .size = 2 * each, .address = address,
                                    .start_timeout_ms = 1000, .log_level = COLL_LOG_NONE, .tcp = { .io = "poll" } } };
        if (i == t->step % 2) ranks[i].config.allocator = allocator;
        CHECK(!pthread_create(&threads[i], NULL, each > 1 ? joined_main : tcp_main, &ranks[i]), "no thread");
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    close(port);
}

static void run_trial(trial *t)
{
    const coll_allocator allocator = { counter_allocate, counter_free, &t->counter };
    const bool is_alone = !strcmp(t->world, "alone");
    const coll_config config = { .transport = strcmp(t->world, "sim") ? "threads" : "sim", .allocator = &allocator,
                                 .log_level = COLL_LOG_NONE, .start_timeout_ms = 1000 };

    t->allocator = &allocator;
    if (!strcmp(t->world, "tcp")) run_two(t, &allocator, 1);
    else if (!strcmp(t->world, "hybrid")) run_two(t, &allocator, 2);
    else {
        const int result = coll_spawn(is_alone ? 1 : 3, worker, t, &config);
        if (result < 0) t->worst[0] = result;
    }
}

/* Refuse the first allocation, the second, and so on, until a run needs fewer. */
static void refuse_each(const char *world, int number)
{
    trial t = { .world = world, .step = number };
    long at = 0, survived = 0;
    coll_status status;

    do {
        const bool is_hybrid = !strcmp(world, "hybrid"), has_wire = is_hybrid || !strcmp(world, "tcp");
        const bool is_open = (!strcmp(world, "tcp") && number > 1 && at > 0) || (is_hybrid && number > 0 && at > 0);
        t.arms = is_open ? number % 2 * (is_hybrid ? 2 : 1) : -1;
        t.later = at;
        t.counter = (counter){ .refused_at = is_open ? 0 : at };
        at++;
        memset(t.worst, 0, sizeof t.worst);
        run_trial(&t);
        status = COLL_OK;
        for (int i = 0; i < RANKS_MOST; i++) {
            const coll_status s = t.worst[i];
            if (s != COLL_OK) status = s;
            CHECK(s == COLL_OK || s == COLL_ERR_MEMORY || s == COLL_ERR_PEER || s == COLL_ERR_ABORTED || s == COLL_ERR_TIMEOUT
                  || (s == COLL_ERR_SYSTEM && has_wire), "%s, %s, allocation %ld: rank %d got %s", world,
                  steps[number].name, at - 1, i, coll_status_text(s));
        }
        CHECK(t.counter.blocks == 0 && t.counter.bytes == 0, "%s, %s, allocation %ld: %ld blocks of %ld bytes are lost", world,
              steps[number].name, at - 1, t.counter.blocks, t.counter.bytes);
        CHECK(!t.counter.is_wrong, "%s, %s: an alignment that is none", world, steps[number].name);
        if (at == 1) CHECK(status == COLL_OK && t.counter.taken > 3, "%s, %s with all memory: %s; %ld allocations", world,
                           steps[number].name, coll_status_text(status), t.counter.taken);
        survived += status == COLL_OK && t.counter.was_refused;
    } while (at == 1 || t.counter.was_refused);
    CHECK(status == COLL_OK, "%s, %s with all memory again: %s", world, steps[number].name, coll_status_text(status));
    printf("%s - %s over %s: %ld allocations, of which it can do without %ld\n", check__failed ? "FAILED" : "ok",
           steps[number].name, world, at - 2, survived);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "alone", "threads", "sim", "tcp", "hybrid" };

    support_limit(900, NULL);
    for (int i = 0; i < 5; i++) {
        if ((argc > 1 && !support_listed(argv[1], worlds[i])) || !support_has_world(worlds[i])) continue;
        for (int k = 0; k < STEPS; k++) refuse_each(worlds[i], k);
    }
    return CHECK_DONE();
}
