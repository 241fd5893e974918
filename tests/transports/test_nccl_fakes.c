/* test_nccl_fakes.c - the fake GPUs alone: they do what a GPU does, and end a program that does what would hang, crash or race on
 * one.  The tests on these fakes rely on that. */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "nccl/gpu.h"
#include "nccl/fake.h"

enum { COUNT = 40, F32 = COLL__NCCL_F32, BF16 = COLL__NCCL_BF16, I32 = COLL__NCCL_I32 };

/* ---- >>ranks: threads with a device, a stream and a communicator ---- */

typedef struct rank {
    int                 rank, size, result;
    coll__nccl_id       id;
    bool                is_blocking;
    struct ncclComm    *comm;
    struct CUstream_st *stream;
    void               *a, *b;                    /* device memory of COUNT floats for each rank              */
    void              (*body)(struct rank *r);
    pthread_t           thread;
} rank;

static coll__nccl_result settle(struct ncclComm *comm, coll__nccl_result status)
{
    while (status == COLL__NCCL_IN_PROGRESS && !nccl.CommGetAsyncError(comm, &status)) sched_yield();
    return status;
}

static void *rank_main(void *arg)
{
    rank *r = arg;
    coll__nccl_config config = { sizeof config, (unsigned)COLL__NCCL_MAGIC, COLL__NCCL_CONFIG_VERSION, r->is_blocking };
    const size_t length = sizeof(float) * COUNT * (size_t)r->size;

    gpu_use(r->rank);
    r->stream = gpu_stream();
    r->a = gpu_alloc(length);
    r->b = gpu_alloc(length);
    const coll__nccl_result status = nccl.CommInitRankConfig(&r->comm, r->size, r->id, r->rank, &config);
    CHECK(settle(r->comm, status) == 0, "%s: CommInitRankConfig of rank %d", case_name, r->rank);
    r->body(r);
    return NULL;
}

static void with_ranks(int size, bool is_blocking, void (*body)(rank *r))
{
    rank ranks[8];
    coll__nccl_id id;

    gpu_load();
    nccl.GetUniqueId(&id);
    for (int i = 0; i < size; i++) {
        ranks[i] = (rank){ .rank = i, .size = size, .id = id, .body = body, .is_blocking = is_blocking };
        CHECK(!pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), "%s: no thread", case_name);
    }
    for (int i = 0; i < size; i++) pthread_join(ranks[i].thread, NULL);
}

static void fill(const rank *r, void *device, float first)
{
    float values[COUNT * 8];
    for (int i = 0; i < COUNT * r->size; i++) values[i] = first + (float)i;
    gpu_push(device, values, sizeof(float) * COUNT * (size_t)r->size);
}

static void await(const rank *r) { gpu_must(gpu.StreamSynchronize(r->stream), "cuStreamSynchronize"); }

/* ---- >>what ends a process ---- */

typedef struct ending { const char *name, *words; void (*body)(void); } ending;

/* Run the body in a process of its own, which must end with the fake's sentence. */
static void check_ending(const ending *e)
{
    char text[4096] = "";
    size_t at = 0;
    ssize_t got;
    int out[2], status = 0;

    snprintf(case_name, sizeof case_name, "%s", e->name);
    fflush(NULL);
    if (pipe(out)) exit(1);
    const pid_t child = fork();
    if (child == 0) {
        dup2(out[1], STDERR_FILENO);
        close(out[0]);
        close(out[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        e->body();
        exit(0);
    }
    close(out[1]);
    while (at < sizeof text - 1 && (got = read(out[0], text + at, sizeof text - 1 - at)) > 0) at += (size_t)got;
    close(out[0]);
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == FAKE_EXIT && strstr(text, e->words), "%s: status %x: %s", e->name, status,
          text);
}

static void freed_too_early(void)
{
    gpu_load();
    gpu_use(0);
    struct CUstream_st *stream = gpu_stream();
    void *a = gpu_alloc(100), *b = gpu_alloc(100);
    for (int i = 0; i < 100; i++) gpu.MemcpyDtoDAsync_v2(gpu_address(a), gpu_address(b), 100, stream);
    gpu_free(a);
    gpu.StreamSynchronize(stream);
}

static void beyond_the_end(void)
{
    gpu_load();
    gpu_use(0);
    gpu.MemsetD8Async(gpu_address(gpu_alloc(100)) + 60, 0, 41, NULL);
}

static void pageable_copy(void)
{
    char here[8] = "";
    gpu_load();
    gpu_use(0);
    gpu.MemcpyDtoHAsync_v2(here, gpu_address(gpu_alloc(8)), 8, NULL);
}

static void dead_event(void)
{
    struct CUevent_st *done = NULL;
    gpu_load();
    gpu_use(0);
    gpu.EventCreate(&done, 2);
    gpu.EventDestroy_v2(done);
    gpu.EventQuery(done);
}

static void other_calls(rank *r)
{
    if (r->rank) nccl.AllReduce(r->a, r->b, COUNT, F32, COLL__NCCL_SUM, r->comm, r->stream);
    else nccl.AllGather(r->a, r->b, COUNT, F32, r->comm, r->stream);
    await(r);
}

static void other_counts(rank *r)
{
    nccl.AllReduce(r->a, r->b, (size_t)(COUNT - r->rank), F32, COLL__NCCL_SUM, r->comm, r->stream);
    await(r);
}

/* Collectives that only differ in their order are of one kind: the roots differ. */
static void other_order(rank *r)
{
    nccl.Broadcast(r->a, r->b, COUNT, F32, r->rank, r->comm, r->stream);
    nccl.Broadcast(r->a, r->b, COUNT, F32, 1 - r->rank, r->comm, r->stream);
    await(r);
}

static void exchange_without_group(rank *r)
{
    nccl.Send(r->a, COUNT, F32, 1 - r->rank, r->comm, r->stream);
    nccl.Recv(r->b, COUNT, F32, 1 - r->rank, r->comm, r->stream);
    await(r);
}

static void message_to_itself(rank *r)
{
    nccl.Send(r->a, COUNT, F32, r->rank, r->comm, r->stream);
    await(r);
}

static void message_and_collective(rank *r)
{
    if (r->rank) nccl.Send(r->a, COUNT, F32, 0, r->comm, r->stream);
    else nccl.AllReduce(r->a, r->b, COUNT, F32, COLL__NCCL_SUM, r->comm, r->stream);
    await(r);
}

static void other_lengths(rank *r)
{
    if (r->rank) nccl.Send(r->a, COUNT, F32, 0, r->comm, r->stream);
    else nccl.Recv(r->a, COUNT - 1, F32, 1, r->comm, r->stream);
    await(r);
}

static void none_comes(rank *r)
{
    if (r->rank) pause();
    nccl.AllReduce(r->a, r->b, COUNT, F32, COLL__NCCL_SUM, r->comm, r->stream);
    await(r);
}

static void used_after_abort(rank *r)
{
    nccl.CommAbort(r->comm);
    nccl.AllReduce(r->a, r->b, COUNT, F32, COLL__NCCL_SUM, r->comm, r->stream);
}

static void *call_without_end(void *arg)
{
    const rank *r = arg;
    gpu_use(r->rank);
    for (;;) nccl.Broadcast(r->a, r->b, 0, F32, 0, r->comm, r->stream);
    return NULL;
}

static void two_threads(rank *r)
{
    pthread_t other;
    if (!pthread_create(&other, NULL, call_without_end, r)) call_without_end(r);
}

static void half_a_group(rank *r)
{
    pthread_t other;
    nccl.GroupStart();
    nccl.Broadcast(r->a, r->b, COUNT, F32, 0, r->comm, r->stream);
    if (!pthread_create(&other, NULL, call_without_end, r)) pthread_join(other, NULL);
}

static void results_overlap(rank *r)
{
    nccl.GroupStart();
    nccl.AllReduce(r->a, r->b, COUNT, F32, COLL__NCCL_SUM, r->comm, r->stream);
    nccl.AllReduce(r->a, r->b, 1, F32, COLL__NCCL_SUM, r->comm, r->stream);
    nccl.GroupEnd();
}

static void shifted_in_place(rank *r)
{
    nccl.AllReduce((char *)r->a + 4, r->a, COUNT, F32, COLL__NCCL_SUM, r->comm, r->stream);
}

/* Each as ranks that are threads. */
#define ENDING(ranks, name) static void name##_all(void) { with_ranks(ranks, true, name); }
ENDING(2, other_calls) ENDING(2, other_counts) ENDING(2, other_order) ENDING(2, exchange_without_group)
ENDING(2, message_to_itself) ENDING(2, message_and_collective) ENDING(2, other_lengths) ENDING(2, none_comes)
ENDING(2, used_after_abort) ENDING(1, two_threads) ENDING(1, half_a_group) ENDING(2, results_overlap)
ENDING(2, shifted_in_place)

static const ending endings[] = {
    { "memory freed too early", "has been freed", freed_too_early },
    { "beyond the end", "1 bytes beyond the end of an allocation of 100", beyond_the_end },
    { "pageable memory", "pageable memory", pageable_copy },
    { "a destroyed event", "destroyed", dead_event },
    { "other calls", "calls AllGather", other_calls_all },
    { "other counts", "count 39", other_counts_all },
    { "another order", "collective 0: rank 0 calls Broadcast", other_order_all },
    { "an exchange without a group", "hangs", exchange_without_group_all },
    { "a message of a rank to itself without a group", "hangs", message_to_itself_all },
    { "a message against a collective", "hangs", message_and_collective_all },
    { "messages of other lengths", "160 bytes are sent, 156 received", other_lengths_all },
    { "no other rank calls", "has waited for 300 ms in AllReduce; rank 0 is in AllReduce", none_comes_all },
    { "use after an abort", "destroyed or aborted", used_after_abort_all },
    { "two threads", "two threads are in calls", two_threads_all },
    { "two threads, one of them in a group", "two threads are in calls", half_a_group_all },
    { "results that overlap", "two results of one group overlap", results_overlap_all },
    { "shifted in place", "not as it may in place", shifted_in_place_all }
};

/* ---- >>what a GPU does ---- */

static void touch_case(const void *unused)
{
    (void)unused;
    gpu_load();
    gpu_use(0);
    const volatile char *at = gpu_alloc(10);
    const pid_t child = fork();
    if (!child) {
        fclose(stderr);                           /* a sanitizer would report it                              */
        _exit(*at ? 0 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status != 0, "%s: the host has read device memory", case_name);
}

static void be_refused(rank *r)
{
    float here[COUNT] = { 0 };
    coll__nccl_result status;
    const struct { const char *name; coll__nccl_result status; } cases[] = {
        { "type", nccl.AllReduce(r->a, r->b, 1, 12, 0, r->comm, r->stream) },
        { "fp8", nccl.AllReduce(r->a, r->b, 1, 10, 0, r->comm, r->stream) },
        { "operation", nccl.AllReduce(r->a, r->b, 1, F32, 5, r->comm, r->stream) },
        { "root", nccl.Broadcast(r->a, r->b, 1, F32, 2, r->comm, r->stream) },
        { "peer", nccl.Send(r->a, 1, F32, -1, r->comm, r->stream) },
        { "pageable", nccl.AllReduce(here, r->b, 1, F32, 0, r->comm, r->stream) }
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(cases[i].status == COLL__NCCL_INVALID_ARGUMENT, "%s: %s gives %u", case_name, cases[i].name, cases[i].status);
    gpu_use(r->rank + 2);
    struct CUstream_st *other = gpu_stream();
    void *elsewhere = gpu_alloc(4);
    status = nccl.AllReduce(r->a, r->b, 1, F32, 0, r->comm, other);
    CHECK(status == COLL__NCCL_INVALID_ARGUMENT, "%s: a stream of another device gives %u", case_name, status);
    status = nccl.AllReduce(elsewhere, r->b, 1, F32, 0, r->comm, r->stream);
    CHECK(status == COLL__NCCL_INVALID_ARGUMENT, "%s: memory of another device gives %u", case_name, status);
    gpu_use(r->rank);
    nccl.GroupStart();
    nccl.Send(r->a, 1, F32, -1, r->comm, r->stream);
    nccl.Broadcast(r->a, r->b, 1, F32, 0, r->comm, r->stream);
    CHECK(nccl.GroupEnd() == COLL__NCCL_INVALID_ARGUMENT, "%s: a group with an error in it", case_name);
    nccl.CommDestroy(r->comm);
}

static void refused_case(const void *unused) { (void)unused; with_ranks(2, true, be_refused); }

/* Everything once, on a communicator that may return InProgress. */
static void do_all(rank *r)
{
    const int n = r->size, me = r->rank;
    float got[COUNT * 8];

    fill(r, r->a, (float)me);
    CHECK(!settle(r->comm, nccl.AllReduce(r->a, r->b, COUNT, F32, COLL__NCCL_SUM, r->comm, r->stream)), "%s: AllReduce",
          case_name);
    await(r);
    gpu_pull(got, r->b, sizeof(float) * COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK((int)got[i] == n * i + n * (n - 1) / 2, "%s: AllReduce: element %d is %g", case_name, i, (double)got[i]);
    CHECK(!settle(r->comm, nccl.AllGather(r->a, r->b, COUNT, F32, r->comm, r->stream)), "%s: AllGather", case_name);
    await(r);
    gpu_pull(got, r->b, sizeof(float) * COUNT * (size_t)n);
    for (int q = 0; q < n; q++) CHECK((int)got[q * COUNT + 7] == q + 7, "%s: AllGather of rank %d", case_name, q);
    nccl.GroupStart();
    for (int q = 0; q < n; q++) {
        nccl.Send((float *)r->a + q * COUNT, COUNT, F32, q, r->comm, r->stream);
        nccl.Recv((float *)r->b + q * COUNT, COUNT, F32, q, r->comm, r->stream);
    }
    CHECK(!settle(r->comm, nccl.GroupEnd()), "%s: GroupEnd", case_name);
    await(r);
    gpu_pull(got, r->b, sizeof(float) * COUNT * (size_t)n);
    for (int q = 0; q < n; q++) CHECK((int)got[q * COUNT + 3] == q + me * COUNT + 3, "%s: received from rank %d", case_name, q);
    CHECK(!settle(r->comm, nccl.ReduceScatter(r->a, (float *)r->a + me * COUNT, COUNT, F32, COLL__NCCL_MAX, r->comm, r->stream)),
          "%s: ReduceScatter", case_name);
    await(r);
    gpu_pull(got, r->a, sizeof(float) * COUNT * (size_t)n);
    CHECK((int)got[me * COUNT + 1] == n - 1 + me * COUNT + 1, "%s: ReduceScatter in place", case_name);
    CHECK(!settle(r->comm, nccl.CommFinalize(r->comm)) && !nccl.CommDestroy(r->comm), "%s: the end", case_name);
}

static void all_case(const void *is_blocking) { with_ranks(3, *(const bool *)is_blocking, do_all); }

/* The work of a non-blocking call goes into the stream when CommGetAsyncError returns success, and not before. */
static void go_on_too_early(rank *r)
{
    struct CUevent_st *done = NULL;

    gpu.EventCreate(&done, 2);
    const coll__nccl_result status = nccl.AllReduce(r->a, r->b, COUNT, F32, COLL__NCCL_SUM, r->comm, r->stream);
    gpu.EventRecord(done, r->stream);
    await(r);
    CHECK(status == COLL__NCCL_IN_PROGRESS && !gpu.EventQuery(done), "%s: the event waited for the call", case_name);
    CHECK(nccl.AllReduce(r->a, r->b, COUNT, F32, 0, r->comm, r->stream) == COLL__NCCL_INVALID_ARGUMENT, "%s: a call too early",
          case_name);
    CHECK(!settle(r->comm, status), "%s: settled", case_name);
    await(r);
    nccl.CommAbort(r->comm);
}

static void early_case(const void *unused)
{
    (void)unused;
    setenv("FAKE_NCCL_FAULT", "*:progress:3", 1);
    with_ranks(2, false, go_on_too_early);
}

/* NCCL's arithmetic, which is not the library's: NaN is lost, 16 bits are rounded at every hop. */
static void reckon(rank *r)
{
    const float first = r->rank ? 1 : (float)NAN;
    const uint16_t small[2] = { r->rank ? 0x3b80 : 0x3f80, 0x3f80 };  /* 2^-8 of two ranks beside 1, in bf16          */
    uint16_t sum = 0;
    float least;

    gpu_push(r->a, &first, sizeof first);
    nccl.AllReduce(r->a, r->b, 1, F32, COLL__NCCL_MIN, r->comm, r->stream);
    await(r);
    gpu_pull(&least, r->b, sizeof least);
    CHECK(least >= 1 && least <= 1, "%s: the least of NaN and 1 is %g", case_name, (double)least);
    gpu_push(r->a, small, sizeof small);
    nccl.AllReduce(r->a, r->b, 1, BF16, COLL__NCCL_SUM, r->comm, r->stream);
    await(r);
    gpu_pull(&sum, r->b, sizeof sum);
    CHECK(sum == 0x3f80, "%s: 1 + 2^-8 + 2^-8 + 2^-8 is %04x", case_name, sum);
    nccl.CommDestroy(r->comm);
}

static void reckon_case(const void *unused) { (void)unused; with_ranks(4, true, reckon); }

/* A graph does again what was captured, and nothing meanwhile. */
static void capture(rank *r)
{
    struct CUgraph_st *graph = NULL;
    struct CUgraphExec_st *exec = NULL;
    struct CUevent_st *done = NULL;
    float got[COUNT];

    fill(r, r->a, 1);
    fill(r, r->b, 0);
    gpu.EventCreate(&done, 2);
    gpu_must(gpu.StreamBeginCapture_v2(r->stream, 1), "cuStreamBeginCapture");
    nccl.AllReduce(r->a, r->a, COUNT, F32, COLL__NCCL_SUM, r->comm, r->stream);
    gpu.EventRecord(done, r->stream);
    gpu_must(gpu.StreamEndCapture(r->stream, &graph), "cuStreamEndCapture");
    CHECK(gpu.EventQuery(done) == 907, "%s: an event of a capture can be queried", case_name);
    gpu_must(gpu.GraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
    await(r);
    gpu_pull(got, r->a, sizeof got);
    CHECK((int)got[0] == 1, "%s: a captured call has run", case_name);
    for (int i = 0; i < 3; i++) gpu_must(gpu.GraphLaunch(exec, r->stream), "cuGraphLaunch");
    await(r);
    gpu_pull(got, r->a, sizeof got);
    CHECK((int)got[0] == 8 && (int)got[1] == 16, "%s: after three launches %g", case_name, (double)got[0]);
    gpu_must(gpu.StreamBeginCapture_v2(r->stream, 1), "cuStreamBeginCapture");
    CHECK(gpu.MemAlloc_v2(&(coll__cuda_address){ 0 }, 8) == 900, "%s: memory is allocated during a capture", case_name);
    CHECK(gpu.StreamEndCapture(r->stream, &graph) == 901, "%s: the capture is not spoilt", case_name);
    gpu.GraphExecDestroy(exec);
    nccl.CommDestroy(r->comm);
}

static void capture_case(const void *unused) { (void)unused; with_ranks(2, true, capture); }

/* Ranks that are processes: the id goes through a pipe. */
static void process_case(const void *unused)
{
    coll__nccl_id id;
    int ways[2], status = 0;
    rank r = { .rank = 0, .size = 3, .body = do_all, .is_blocking = true };
    pid_t children[3];

    (void)unused;
    CHECK(!pipe(ways), "%s: no pipe", case_name);
    for (int i = 1; i < 3; i++) {
        if ((children[i] = fork()) != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        r.rank = i;
        gpu_load();
        if (read(ways[0], &r.id, sizeof r.id) != (ssize_t)sizeof r.id) _exit(1);
        rank_main(&r);
        _exit(check__failed != 0);
    }
    gpu_load();
    nccl.GetUniqueId(&id);
    for (int i = 1; i < 3; i++) CHECK(write(ways[1], &id, sizeof id) == (ssize_t)sizeof id, "%s: pipe", case_name);
    r.id = id;
    rank_main(&r);
    for (int i = 1; i < 3; i++) {
        waitpid(children[i], &status, 0);
        CHECK(!status, "%s: the process of rank %d ends with %x", case_name, i, status);
    }
}

int main(void)
{
    cases_begin();
    world = "the fakes";
    unsetenv("COLL_CUDA_LIB");
    unsetenv("COLL_NCCL_LIB");
    setenv("FAKE_HANG_MS", "300", 1);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) check_ending(&endings[i]);
    setenv("FAKE_HANG_MS", "20000", 1);
    run_case_within(60, touch_case, NULL, "device memory is not the host's");
    run_case_within(60, refused_case, NULL, "calls that NCCL refuses");
    run_case_within(60, all_case, &(bool){ true }, "everything, blocking");
    run_case_within(60, all_case, &(bool){ false }, "everything, non-blocking");
    run_case_within(60, early_case, NULL, "work before its time");
    run_case_within(60, reckon_case, NULL, "arithmetic");
    run_case_within(60, capture_case, NULL, "captures");
    run_case_within(60, process_case, NULL, "processes");
    return CHECK_DONE();
}
