/* test_nccl.c - communicators on GPUs: what is loaded, what is refused, the order of the stream, the bits, failures.
 *
 *     test_nccl [CASE,...]
 *
 * On the fakes of nccl/; with COLL_CUDA_LIB and COLL_NCCL_LIB set, the cases that need no fault run on what these name. */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "nccl/gpu.h"
#include "nccl/fake.h"

enum { COUNT = 1000, BYTES = COUNT * 4, STALL_MS = 20000 };

/* ---- >>ranks: threads, each with a host's communicator, a device, a stream ---- */

typedef struct rank {
    int                 rank, size;
    coll_comm          *host, *comm;
    struct CUstream_st *stream;
    float              *a, *b, *c;                /* device memory of COUNT floats                            */
} rank;

typedef struct job { void (*body)(rank *r); coll_status expected; } job;

static int rank_main(coll_comm *host, void *arg)
{
    const job *j = arg;
    rank r = { .rank = coll_rank(host), .size = coll_size(host), .host = host };

    gpu_use(r.rank);
    r.stream = gpu_stream();
    r.a = gpu_alloc(BYTES);
    r.b = gpu_alloc(BYTES);
    r.c = gpu_alloc(BYTES);
    const coll_status status = coll_init_nccl(host, r.rank, r.stream, &r.comm);
    CHECK(status == COLL_OK, "%s: coll_init_nccl: %s", case_name, coll_error(host));
    if (status) return 1;
    j->body(&r);
    CHECK(coll_free(r.comm) == COLL_OK, "%s: coll_free", case_name);
    gpu_must(gpu.StreamDestroy_v2(r.stream), "cuStreamDestroy");
    return 0;
}

static void on_ranks(int size, void (*body)(rank *r))
{
    const coll_config config = { .stall_timeout_ms = STALL_MS };
    job j = { .body = body };

    gpu_load();
    CHECK(!support_run_config("threads", size, &config, rank_main, &j), "%s: a rank gave up", case_name);
}

static void put(const rank *r, float *to, float first)
{
    float values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = first + (float)(r->rank * (i % 7));
    gpu_push(to, values, BYTES);
}

/* What a sum over the ranks of put(first), `times` over, must be. */
static bool is_sum(const rank *r, const float *at, float first, float times)
{
    float values[COUNT];

    gpu_pull(values, at, BYTES);
    for (int i = 0; i < COUNT; i++) {
        const float expected = times * ((float)r->size * first + (float)(r->size * (r->size - 1) / 2 * (i % 7)));
        if (memcmp(&values[i], &expected, sizeof expected)) return false;
    }
    return true;
}

static void await_stream(const rank *r) { gpu_must(gpu.StreamSynchronize(r->stream), "cuStreamSynchronize"); }

#define MUST(r, call) CHECK((call) == COLL_OK, "%s, rank %d: %s: %s", case_name, (r)->rank, #call, coll_error((r)->comm))

/* ---- >>loading: a missing library or function is reported, on all ranks ---- */

typedef struct absence {
    const char *name, *variable, *value;
    int         device;
    coll_status status;
    const char *words;
} absence;

static const absence absences[] = {
    { "no driver", "COLL_CUDA_LIB", "/nowhere/libcuda.so.1", 0, COLL_ERR_UNSUPPORTED, "/nowhere/libcuda.so.1" },
    { "no NCCL", "COLL_NCCL_LIB", "/nowhere/libnccl.so.2", 0, COLL_ERR_UNSUPPORTED, "/nowhere/libnccl.so.2" },
    { "not NCCL", "COLL_NCCL_LIB", "fake_cuda.so", 0, COLL_ERR_UNSUPPORTED, "nccl" },
    { "too old", "COLL_NCCL_LIB", "fake_nccl_21703.so", 0, COLL_ERR_UNSUPPORTED, "2.17" },
    { "no GPU", "FAKE_CUDA_DEVICES", "0", 0, COLL_ERR_UNSUPPORTED, "no GPU" },
    { "no such GPU", "FAKE_CUDA_DEVICES", "3", 3, COLL_ERR_UNSUPPORTED, "3" },
    { "one rank's NCCL fails", "FAKE_NCCL_FAULT", "1:init", 0, 0, "rank 1: NCCL: unhandled cuda error: CUDA driver" }
};

/* If the real NCCL is installed, without a GPU: it is loaded, and reports that itself. */
static const absence real = { "the real NCCL without a GPU", "COLL_NCCL_LIB", "/usr/local/cuda/lib64/libnccl.so.2", 0, 0,
                              "ncclCommInitRankConfig" };

static int be_without(coll_comm *host, void *arg)
{
    const absence *a = arg;
    coll_comm *comm = NULL;
    int sum = 1;

    const coll_status status = coll_init_nccl(host, a->device + coll_rank(host), NULL, &comm);
    CHECK(status < 0 && (!a->status || status == a->status) && !comm, "%s: status %d", a->name, (int)status);
    CHECK(strstr(coll_error(host), a->words) != NULL, "%s: \"%s\" is not in: %s", a->name, a->words, coll_error(host));
    if (a->status) CHECK(!coll_allreduce(host, &sum, &sum, 1, COLL_I32, COLL_SUM) && sum == coll_size(host),
                         "%s: the host's communicator has ended: %s", a->name, coll_error(host));
    return 0;
}

static void absent_case(const void *arg)
{
    absence a = *(const absence *)arg;
    const coll_config config = { .stall_timeout_ms = STALL_MS };
    char path[PATH_MAX + 32], *slash;

    gpu_name_fakes(0);
    snprintf(path, sizeof path, "%s", getenv("COLL_CUDA_LIB"));
    slash = strrchr(path, '/');
    if (!strncmp(a.value, "fake_", 5) && slash) snprintf(slash + 1, 32, "%s", a.value), a.value = path;
    setenv(a.variable, a.value, 1);
    CHECK(!support_run_config("threads", 2, &config, be_without, &a), "%s: a rank gave up", a.name);
}

/* ---- >>bad input ---- */

static void check_refused(const rank *r, const coll_comm *comm, coll_status status, const char *what, const char *words)
{
    CHECK(status == COLL_ERR_ARGUMENT && strstr(coll_error(comm), words), "%s, rank %d: %s gives %d: %s", case_name, r->rank,
          what, (int)status, coll_error(comm));
}

static void be_refused(rank *r)
{
    float here[COUNT] = { 0 };

    gpu_use(r->rank + r->size);
    float *elsewhere = gpu_alloc(BYTES);
    struct CUstream_st *other = gpu_stream();
    gpu_use(r->rank);
    coll_status status = coll_allreduce(r->comm, here, r->b, COUNT, COLL_F32, COLL_SUM);
    check_refused(r, r->comm, status, "a host's send", "send is memory of");
    status = coll_allreduce(r->comm, r->a, here, COUNT, COLL_F32, COLL_SUM);
    check_refused(r, r->comm, status, "a host's recv", "recv is memory of");
    check_refused(r, r->comm, coll_broadcast(r->comm, elsewhere, COUNT, COLL_F32, 0), "memory of another device", "device");
    check_refused(r, r->comm, coll_set_stream(r->comm, other), "a stream of another device", "stream");
    status = coll_allreduce(r->host, r->a, r->b, COUNT, COLL_F32, COLL_SUM);
    check_refused(r, r->host, status, "device memory for the host", "GPU");
    coll_comm *comm = NULL;
    status = coll_init_nccl(r->host, r->rank, other, &comm);
    CHECK(status < 0 && strstr(coll_error(r->host), "stream"), "%s: %s", case_name, coll_error(r->host));
    put(r, r->a, 2);
    MUST(r, coll_allreduce(r->comm, r->a, r->b, COUNT, COLL_F32, COLL_SUM));
    CHECK(is_sum(r, r->b, 2, 1), "%s: after the refusals", case_name);
}

static void refused_case(const void *unused) { (void)unused; on_ranks(2, be_refused); }

/* ---- >>order: work in the stream before and behind a call, without a waiting host ---- */

/* NCCL carries out sums of f32, kernels those of bf16, the host those of `named`. */
static void in_order(rank *r)
{
    enum { ROUNDS = 40 };
    coll_request *requests[ROUNDS] = { NULL };
    coll_comm *copy = NULL;
    void *pinned = NULL;

    MUST(r, coll_dup(r->comm, &copy));
    gpu_must(gpu.MemAllocHost_v2(&pinned, BYTES), "cuMemAllocHost");
    for (int i = 0; i < COUNT; i++) ((float *)pinned)[i] = (float)(r->rank * (i % 7));
    for (int k = 0; k < ROUNDS; k++) {            /* a = ours; b = sum of a; a = nothing; c = b, then the sum of c   */
        gpu_must(gpu.MemcpyHtoDAsync_v2(gpu_address(r->a), pinned, BYTES, r->stream), "copy");
        coll_comm *const comm = k % 2 ? copy : r->comm;
        CHECK(!coll_iallreduce(comm, r->a, r->b, COUNT, COLL_F32, COLL_SUM, &requests[k]), "%s: %s", case_name, coll_error(comm));
        gpu_must(gpu.MemsetD8Async(gpu_address(r->a), 0x7f, BYTES, r->stream), "memset");
        gpu_must(gpu.MemcpyDtoDAsync_v2(gpu_address(r->c), gpu_address(r->b), BYTES, r->stream), "copy");
        coll_request *second = NULL;
        MUST(r, coll_iallreduce(r->comm, COLL_IN_PLACE, r->c, COUNT, COLL_F32, COLL_SUM, &second));
        if (k % 3) coll_request_free(second);     /* released: it goes on                                     */
        else MUST(r, coll_wait(second));
        if (k % 3 == 0) coll_request_free(second);
    }
    for (int k = ROUNDS - 1; k >= 0; k--) CHECK(!coll_wait(requests[k]), "%s: request %d", case_name, k);
    await_stream(r);
    CHECK(is_sum(r, r->b, 0, 1) && is_sum(r, r->c, 0, (float)r->size), "%s, rank %d: the last sums", case_name, r->rank);
    for (int k = 0; k < ROUNDS; k++) coll_request_free(requests[k]);
    MUST(r, coll_barrier(r->comm));
    CHECK(!coll_free(copy), "%s: coll_free of a copy", case_name);
    gpu_must(gpu.MemFreeHost(pinned), "cuMemFreeHost");
}

static void order_case(const void *unused) { (void)unused; on_ranks(3, in_order); }

/* Another stream waits for a request, and a communicator goes to another stream. */
static void between_streams(rank *r)
{
    struct CUstream_st *other = gpu_stream();
    coll_request *request = NULL;

    for (int k = 1; k < 20; k++) {
        put(r, r->a, (float)k);
        MUST(r, coll_iallreduce(r->comm, r->a, r->b, COUNT, COLL_F32, COLL_SUM, &request));
        MUST(r, coll_stream_wait(other, request));
        gpu_must(gpu.MemcpyDtoDAsync_v2(gpu_address(r->c), gpu_address(r->b), BYTES, other), "copy");
        gpu_must(gpu.StreamSynchronize(other), "cuStreamSynchronize");
        CHECK(is_sum(r, r->c, (float)k, 1), "%s, rank %d: round %d", case_name, r->rank, k);
        MUST(r, coll_wait(request));
        coll_request_free(request);
        MUST(r, coll_set_stream(r->comm, k % 2 ? other : r->stream));
        put(r, r->a, 3);
        MUST(r, coll_allreduce(r->comm, r->a, r->c, COUNT, COLL_F32, COLL_SUM));
        CHECK(is_sum(r, r->c, 3, 1), "%s, rank %d: on the other stream", case_name, r->rank);
        MUST(r, coll_set_stream(r->comm, r->stream));
    }
    MUST(r, coll_set_stream_ordered(r->comm, true));
    put(r, r->a, 4);
    for (int k = 0; k < 10; k++) MUST(r, coll_allreduce(r->comm, r->a, r->b, COUNT, COLL_F32, COLL_SUM));
    await_stream(r);
    CHECK(is_sum(r, r->b, 4, 1), "%s, rank %d: stream ordered", case_name, r->rank);
    gpu_must(gpu.StreamDestroy_v2(other), "cuStreamDestroy");
}

static void streams_case(const void *unused) { (void)unused; on_ranks(3, between_streams); }

static void add_up(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    (void)type, (void)context;
    for (size_t i = 0; i < count; i++) ((float *)inout)[i] += ((const float *)in)[i];
}

/* A graph of two calls does them again at each launch. */
static void in_a_graph(rank *r)
{
    const coll_call by_host = { .kind = COLL_ALLREDUCE, .send = r->a, .recv = r->b, .count = COUNT, .type = COLL_F32,
                                .op = COLL_USER, .fn = add_up };
    struct CUgraph_st *graph = NULL;
    struct CUgraphExec_st *exec = NULL;

    put(r, r->a, 1);
    MUST(r, coll_allreduce(r->comm, r->a, r->b, COUNT, COLL_F32, COLL_SUM));
    MUST(r, coll_allreduce(r->comm, r->b, r->c, COUNT, COLL_F32, COLL_MAX));
    MUST(r, coll_barrier(r->host));               /* no rank is in a call while others capture                */
    gpu_must(gpu.StreamBeginCapture_v2(r->stream, 1), "cuStreamBeginCapture");
    MUST(r, coll_allreduce(r->comm, r->a, r->b, COUNT, COLL_F32, COLL_SUM));
    CHECK(coll_run(r->comm, &by_host) == COLL_ERR_UNSUPPORTED, "%s: by the host: %s", case_name, coll_error(r->comm));
    MUST(r, coll_allreduce(r->comm, r->b, r->c, COUNT, COLL_F32, COLL_MAX));
    gpu_must(gpu.StreamEndCapture(r->stream, &graph), "cuStreamEndCapture");
    gpu_must(gpu.GraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
    for (int k = 5; k < 8; k++) {
        put(r, r->a, (float)k);
        gpu_must(gpu.GraphLaunch(exec, r->stream), "cuGraphLaunch");
        await_stream(r);
        CHECK(is_sum(r, r->c, (float)k, 1), "%s, rank %d: launch %d", case_name, r->rank, k);
    }
    put(r, r->a, 9);
    MUST(r, coll_allreduce(r->comm, r->a, r->b, COUNT, COLL_F32, COLL_SUM));
    CHECK(is_sum(r, r->b, 9, 1), "%s, rank %d: a call behind the graph", case_name, r->rank);
    gpu_must(gpu.GraphExecDestroy(exec), "cuGraphExecDestroy");
    gpu_must(gpu.GraphDestroy(graph), "cuGraphDestroy");
}

/* Calls by the host, and a rank that is late: the others wait, compare their calls, and find no difference. */
static void with_a_late_rank(rank *r)
{
    coll_call call = { .send = r->a, .recv = r->b, .count = COUNT, .type = COLL_F32, .op = COLL_USER, .fn = add_up };

    for (int k = 0; k < 6; k++) {                 /* rank 0 only sends in a scan, and waits in the next call  */
        put(r, r->a, 1);
        if (r->rank == 1 && k % 2 == 0) usleep(300000);
        call.kind = k % 2 ? COLL_ALLREDUCE : COLL_SCAN;
        MUST(r, coll_run(r->comm, &call));
    }
}

static void graph_case(const void *unused) { (void)unused; on_ranks(2, in_a_graph); }

/* ---- >>bits: those of the threads, where the library promises that ---- */

typedef struct sum { coll_type type, wire; coll_op op; unsigned flags; double scale; } sum;

static const sum sums[] = {
    { COLL_BF16, 0, COLL_SUM, 0, 0 }, { COLL_F16, 0, COLL_SUM, 0, 0 }, { COLL_BF16, 0, COLL_AVG, 0, 0 },
    { COLL_F16, 0, COLL_AVG, COLL_DETERMINISTIC, 0 }, { COLL_F32, COLL_BF16, COLL_SUM, 0, 0 },
    { COLL_F32, COLL_F16, COLL_AVG, 0, 0 }, { COLL_F32, COLL_BF16, COLL_SUM, COLL_DETERMINISTIC, 0.3 },
    { COLL_F32, 0, COLL_SUM, COLL_DETERMINISTIC, 0 }, { COLL_F64, 0, COLL_SUM, COLL_DETERMINISTIC, 0 },
    { COLL_F32, 0, COLL_AVG, COLL_DETERMINISTIC, 0 }, { COLL_F16, 0, COLL_PROD, 0, 0 }, { COLL_F32, 0, COLL_MIN, 0, 0 },
    { COLL_F64, 0, COLL_MAX, 0, 0 }, { COLL_BF16, 0, COLL_SUM, 0, -1.7 }
};

/* The same call between the hosts and between the devices, on numbers of any kind. */
static void compare(rank *r, const sum *s, coll_kind kind, size_t count, uint64_t seed)
{
    const support_type *t = support_type_of(s->type);
    const size_t parts = kind == COLL_REDUCE_SCATTER ? (size_t)r->size : 1, length = count * t->size;
    unsigned char *in = support_need(malloc(parts * length + 1)), *host = support_need(malloc(length + 1)),
                  *device = support_need(malloc(length + 1));
    void *from = gpu_alloc(parts * length), *to = gpu_alloc(length);
    uint64_t random = support_mix(seed) ^ (uint64_t)r->rank;
    coll_call call = { .kind = kind, .send = in, .recv = host, .count = count, .type = s->type, .wire = s->wire, .op = s->op,
                       .flags = s->flags, .scale = s->scale };
    size_t at = 0;

    for (size_t i = 0; i < parts * count; i++) {
        const uint64_t draw = support_random(&random);
        support_store(t, in + i * t->size, i % 5 ? support_ordinary_float(t, draw) : support_special_float(t, i / 5 % 8, draw));
    }
    gpu_push(from, in, parts * length);
    CHECK(!coll_run(r->host, &call), "%s: %s", case_name, coll_error(r->host));
    call.send = from;
    call.recv = to;
    MUST(r, coll_run(r->comm, &call));
    gpu_pull(device, to, length);
    while (at < length && host[at] == device[at]) at++;
    CHECK(at == length, "%s, rank %d of %d, seed %llu: %s of %zu %s over %s, op %s, flags %u: byte %zu is %02x, between hosts "
          "%02x", case_name, r->rank, r->size, (unsigned long long)support_seed(), coll_kind_name(kind), count, t->name,
          s->wire ? coll_type_name(s->wire) : "itself", coll_op_name(s->op), s->flags, at, device[at], host[at]);
    gpu_free(from);
    gpu_free(to);
    free(in);
    free(host);
    free(device);
}

static void compare_all(rank *r)
{
    static const size_t counts[] = { 1, 7, 250, 4099, 60001 };

    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        for (size_t k = 0; k < 5; k++) compare(r, &sums[i], COLL_ALLREDUCE, counts[k], support_seed() + i * 10 + k);
        compare(r, &sums[i], COLL_REDUCE_SCATTER, 333, support_seed() + i * 10 + 7);
        if (sums[i].op != COLL_AVG) compare(r, &sums[i], COLL_SCAN, 90, support_seed() + i * 10 + 8);
    }
}

static void bits_case(const void *size) { on_ranks(*(const int *)size, compare_all); }

/* ---- >>failures ---- */

typedef struct trouble {
    const char *name, *fault;
    coll_status status;                           /* 0: any error                                             */
    int         timeout_ms;
    const char *words;
} trouble;

static const trouble troubles[] = {
    { "a launch is lost", "1:lost:1", COLL_ERR_TIMEOUT, 500, "allreduce" },
    { "NCCL reports a remote error", "0:remote:1", 0, 0, "remote" },
    { "a call of NCCL fails", "2:call:2", 0, 0, "ncclAllReduce" },
    { "a rank is missing", "", COLL_ERR_TIMEOUT, 500, "no word from the others" },
    { "a rank aborts", NULL, COLL_ERR_ABORTED, 0, "enough" }
};

static const trouble *now_in;

static void be_in_trouble(rank *r)
{
    coll_call call = { .kind = COLL_ALLREDUCE, .send = r->a, .recv = r->b, .count = COUNT, .type = COLL_F32, .op = COLL_SUM,
                       .timeout_ms = now_in->timeout_ms };
    const bool stays_away = now_in->fault ? !*now_in->fault && r->rank == 1 : r->rank == 1;
    coll_status status = COLL_OK;

    put(r, r->a, 1);
    for (int k = 0; k < 6 && !status; k++) {
        if (k == 3 && stays_away && !now_in->fault) status = coll_abort(r->comm, "it is enough");
        if (k == 3 && stays_away) while (!(status = coll_progress(r->comm))) sched_yield();
        else status = coll_run(r->comm, &call);
    }
    CHECK(status < 0 && (!now_in->status || status == now_in->status), "%s, rank %d: status %d: %s", case_name, r->rank,
          (int)status, coll_error(r->comm));
    CHECK(strstr(coll_error(r->comm), now_in->words) != NULL, "%s, rank %d: \"%s\" is not in: %s", case_name, r->rank,
          now_in->words, coll_error(r->comm));
    CHECK(coll_barrier(r->comm) == status, "%s, rank %d: another error the second time", case_name, r->rank);
}

static void trouble_case(const void *arg)
{
    const int64_t began = now_ms();

    now_in = arg;
    if (now_in->fault) setenv("FAKE_NCCL_FAULT", now_in->fault, 1);
    setenv("FAKE_HANG_MS", "0", 1);
    on_ranks(3, be_in_trouble);
    CHECK(now_ms() - began < STALL_MS, "%s: took %lld ms", case_name, (long long)(now_ms() - began));
}

/* ---- >>other ways to a communicator ---- */

static void use_it(const rank *r)
{
    uint16_t halves[COUNT];
    const coll_call by_host = { .kind = COLL_ALLREDUCE, .send = r->a, .recv = r->c, .count = COUNT, .type = COLL_F32,
                                .op = COLL_USER, .fn = add_up };

    put(r, r->a, 1);
    MUST(r, coll_allreduce(r->comm, r->a, r->b, COUNT, COLL_F32, COLL_SUM));
    CHECK(is_sum(r, r->b, 1, 1), "%s: by NCCL", case_name);
    MUST(r, coll_run(r->comm, &by_host));
    CHECK(is_sum(r, r->c, 1, 1), "%s: by the host", case_name);
    for (int i = 0; i < COUNT; i++) halves[i] = 0x3f80;
    gpu_push(r->a, halves, sizeof halves);
    MUST(r, coll_allreduce(r->comm, COLL_IN_PLACE, r->a, COUNT, COLL_BF16, COLL_SUM));
    gpu_pull(halves, r->a, sizeof halves);
    CHECK(halves[COUNT - 1] == coll_f32_to_bf16((float)r->size), "%s: by kernels", case_name);
}

/* A communicator of NCCL's, made by the program. */
static void *wrap_main(void *arg)
{
    rank *r = ((void **)arg)[0];
    coll__nccl_config config = { sizeof config, (unsigned)COLL__NCCL_MAGIC, COLL__NCCL_CONFIG_VERSION, 1 };
    struct ncclComm *theirs = NULL;

    gpu_use(r->rank);
    r->a = gpu_alloc(BYTES);
    r->b = gpu_alloc(BYTES);
    r->c = gpu_alloc(BYTES);
    const coll__nccl_id *id = ((void **)arg)[1];
    CHECK(!nccl.CommInitRankConfig(&theirs, r->size, *id, r->rank, &config), "%s: CommInitRankConfig", case_name);
    const coll_status status = coll_wrap_nccl(theirs, NULL, &r->comm);
    CHECK(!status, "%s, rank %d: coll_wrap_nccl: %s", case_name, r->rank, coll_error(NULL));
    if (status) return NULL;
    CHECK(coll_rank(r->comm) == r->rank && coll_size(r->comm) == r->size, "%s: another rank", case_name);
    use_it(r);
    CHECK(!coll_free(r->comm), "%s: coll_free", case_name);
    nccl.CommDestroy(theirs);
    return NULL;
}

static void wrap_case(const void *unused)
{
    enum { SIZE = 3 };
    rank ranks[SIZE];
    pthread_t threads[SIZE];
    void *arguments[SIZE][2];
    coll__nccl_id id;

    (void)unused;
    gpu_load();
    nccl.GetUniqueId(&id);
    for (int i = 0; i < SIZE; i++) {
        ranks[i] = (rank){ .rank = i, .size = SIZE };
        arguments[i][0] = &ranks[i];
        arguments[i][1] = &id;
        CHECK(!pthread_create(&threads[i], NULL, wrap_main, arguments[i]), "%s: no thread", case_name);
    }
    for (int i = 0; i < SIZE; i++) pthread_join(threads[i], NULL);
}

/* Ranks that are processes, joined by TCP. */
static void on_processes(void (*body)(rank *r), int share)
{
    enum { SIZE = 3 };
    char address[64] = "";
    const int port = support_reserve_port(address, sizeof address);
    pid_t children[SIZE];

    for (int i = 0; i < SIZE; i++) {
        if ((children[i] = fork()) != 0) continue;
        const coll_config config = { .transport = "tcp", .rank = i, .size = SIZE, .address = address,
                                     .stall_timeout_ms = STALL_MS, .tcp.share_memory = share };
        job j = { .body = NULL };
        coll_comm *host = NULL;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        gpu_load();
        CHECK(!coll_init(&host, &config), "%s: coll_init: %s", case_name, coll_error(NULL));
        j.body = body;
        if (!host || rank_main(host, &j)) _exit(1);
        coll_free(host);
        _exit(check__failed != 0);
    }
    for (int i = 0; i < SIZE; i++) {
        int status = 0;
        waitpid(children[i], &status, 0);
        CHECK(!status, "%s: the process of rank %d ends with %x", case_name, i, status);
    }
    close(port);
}

static void process_case(const void *unused) { (void)unused; on_processes(in_order, COLL_DEFAULT); }

static void late_thread_case(const void *unused) { (void)unused; on_ranks(3, with_a_late_rank); }
static void late_process_case(const void *unused) { (void)unused; on_processes(with_a_late_rank, COLL_OFF); }

/* A device of which a part is missing: the others go on without it. */
static void split_up(rank *r)
{
    coll_comm *half = NULL;
    rank inner = *r;

    MUST(r, coll_split(r->comm, r->rank % 2, r->rank, &half));
    inner.comm = half;
    inner.rank = coll_rank(half);
    inner.size = coll_size(half);
    use_it(&inner);
    CHECK(!coll_free(half), "%s: coll_free", case_name);
    use_it(r);
}

static void split_case(const void *unused) { (void)unused; on_ranks(4, split_up); }

/* ---- >>cases ---- */

static void run(const char *list, const char *group, void (*body)(const void *arg), const void *arg, const char *name)
{
    char text[120];

    if (!support_listed(list, group)) return;
    snprintf(text, sizeof text, "%s%s%s", group, *name ? ": " : "", name);
    run_case_within(60, body, arg, text);
}

int main(int argc, char **argv)
{
    const char *list = argc > 1 ? argv[1] : NULL;

    cases_begin();
    world = "nccl";
    for (size_t i = 0; i < sizeof absences / sizeof *absences; i++)
        run(list, "loading", absent_case, &absences[i], absences[i].name);
    if (access(real.value, R_OK)) printf("skipped: %s: there is no %s\n", real.name, real.value);
    else run(list, "loading", absent_case, &real, real.name);
    run(list, "refusals", refused_case, NULL, "");
    run(list, "order", order_case, NULL, "");
    run(list, "streams", streams_case, NULL, "");
    run(list, "graphs", graph_case, NULL, "");
    run(list, "late", late_thread_case, NULL, "threads");
    run(list, "late", late_process_case, NULL, "processes");
    for (int size = 1; size <= 5; size++) run(list, "bits", bits_case, &size, (char[]){ (char)('0' + size), 0 });
    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++)
        run(list, "failures", trouble_case, &troubles[i], troubles[i].name);
    run(list, "wrap", wrap_case, NULL, "");
    run(list, "processes", process_case, NULL, "");
    run(list, "splits", split_case, NULL, "");
    CHECK(check__passed + check__failed > 0, "no such case");
    return CHECK_DONE();
}
