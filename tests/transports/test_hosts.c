/* test_hosts.c - ranks that share hosts, and hosts that share sites: how many bytes leave a host, or a site, how long that takes
 * if the link of a site is slow, how often a sum is rounded, and the text of coll_explain.  That the results are right, of every
 * kind, type and form, is for test_contract in the worlds "sim-hosts" and "sim-sites". */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/parts.h"

enum { HOSTS_MOST = 5, COUNT = 576 << 10 };

static uint64_t left[HOSTS_MOST];                 /* bytes that have left each host, without heads; all ranks are one thread */
static int (*where)(void *context, int rank);     /* which host that is, or which site                        */
static coll_transport counting;

static coll_status counting_send(void *context, coll_xfer *x)
{
    const int from = where(context, ((coll__sim_rank *)context)->rank);
    if (where(context, x->peer) != from) left[from] += x->length;
    return coll__sim_transport.send(context, x);
}

/* ---- >>bytes ---- */

/* A call, and the bytes that it must send from a host, as a multiple of (H - 1) / H of a vector of `unit` bytes an element. */
typedef struct priced { const char *name; coll_call call; double times; size_t unit; } priced;

static const priced prices[] = {
    { "allreduce f32", { .kind = COLL_ALLREDUCE, .type = COLL_F32 }, 2, 4 },
    { "allreduce f64 max", { .kind = COLL_ALLREDUCE, .type = COLL_F64, .op = COLL_MAX }, 2, 8 },
    { "allreduce f16", { .kind = COLL_ALLREDUCE, .type = COLL_F16 }, 3, 2 },
    { "allreduce bf16, rounded twice", { .kind = COLL_ALLREDUCE, .type = COLL_BF16, .flags = COLL_ROUND_TWICE }, 2, 2 },
    { "allreduce f32 over bf16", { .kind = COLL_ALLREDUCE, .type = COLL_F32, .wire = COLL_BF16 }, 3, 2 },
    { "allreduce f32 over bf16, rounded twice",
      { .kind = COLL_ALLREDUCE, .type = COLL_F32, .wire = COLL_BF16, .flags = COLL_ROUND_TWICE }, 2, 2 },
    { "reduce_scatter f32", { .kind = COLL_REDUCE_SCATTER, .type = COLL_F32 }, 1, 4 },
    { "allgather f32", { .kind = COLL_ALLGATHER, .type = COLL_F32 }, 1, 4 },
};
enum { PRICES = sizeof prices / sizeof *prices };

/* hosts_per_site > 0: `hosts` counts the sites, and all limits for hosts apply to sites. */
typedef struct world_shape { int size, per_host, hosts, hosts_per_site; } world_shape;

static const world_shape shapes[] = {
    { 4, 2, 2, 0 }, { 6, 3, 2, 0 }, { 6, 2, 3, 0 }, { 12, 4, 3, 0 }, { 12, 3, 4, 0 }, { 7, 3, 3, 0 }, { 5, 4, 2, 0 },
    { 6, 1, 2, 3 }, { 8, 2, 2, 2 }, { 12, 2, 3, 2 }, { 12, 3, 2, 2 }, { 7, 1, 3, 3 }
};

static int price_worker(coll_comm *comm, void *arg)
{
    const world_shape *w = arg;
    const int me = coll_rank(comm), each = w->per_host * (w->hosts_per_site ? w->hosts_per_site : 1);
    const char *const what = w->hosts_per_site ? "site" : "host";
    unsigned char *in = support_need(calloc(COUNT, 8)), *out = support_need(calloc(COUNT, 8));

    comm->session->transport = &counting;
    for (int i = 0; i < PRICES; i++) {
        coll_call call = prices[i].call;
        const bool has_blocks = call.kind == COLL_REDUCE_SCATTER || call.kind == COLL_ALLGATHER;
        call.send = in;
        call.recv = out;
        call.count = has_blocks ? COUNT / (size_t)w->size : COUNT;
        coll_barrier(comm);
        coll_barrier(comm);                       /* no rank is in the first one any more                     */
        if (me == 0) memset(left, 0, sizeof left);
        coll_barrier(comm);
        CHECK(coll_run(comm, &call) == COLL_OK, "%s: %s", prices[i].name, coll_error(comm));
        coll_barrier(comm);
        const double all = (double)(has_blocks ? call.count * (size_t)w->size : COUNT) * (double)prices[i].unit;
        double sum = 0;
        for (int h = 0; h < w->hosts; h++) sum += (double)left[h];
        const double expected = prices[i].times * (w->hosts - 1) * all;
        if (me == 0)
            CHECK(sum <= expected * 1.001 + 64 && sum >= expected * 0.999 - 64, "%s, %d ranks on %d %ss: %.0f bytes leave "
                  "the %ss, not %.0f", prices[i].name, w->size, w->hosts, what, sum, what, expected);
        for (int h = 0; h < w->hosts && me == 0 && w->size % each == 0 && call.kind == COLL_ALLREDUCE; h++)
            CHECK((double)left[h] <= 1.01 * expected / w->hosts + 64, "%s, %d ranks on %d %ss: %.0f bytes leave %s %d, not "
                  "%.0f", prices[i].name, w->size, w->hosts, what, (double)left[h], what, h, expected / w->hosts);
    }
    free(in);
    free(out);
    return 0;
}

static void run_shape(const world_shape *w, int (*worker)(coll_comm *, void *), const void *arg)
{
    char text[60];

    where = w->hosts_per_site ? coll__sim_transport.site : coll__sim_transport.host;
    snprintf(text, sizeof text, "per_host=%d%s", w->per_host, w->hosts_per_site ? " sites=" : "");
    if (w->hosts_per_site) snprintf(text + strlen(text), 12, "%d", w->hosts);
    CHECK(support_run_machine(text, w->size, worker, arg) == 0, "%d ranks, %s: %s", w->size, text, coll_error(NULL));
}

/* ---- >>rounding: sums that f32 has exactly, and f16 does not ---- */

enum { SHORT = 1000 };

static int rounding_worker(coll_comm *comm, void *arg)
{
    static const coll_type types[] = { COLL_F16, COLL_BF16, COLL_F8E5M2 };
    static const coll_op ops[] = { COLL_SUM, COLL_AVG };
    float in[SHORT], sum[SHORT], once[SHORT];
    unsigned char input[2 * SHORT], result[2 * SHORT], expected[2 * SHORT];
    const int size = coll_size(comm);

    (void)arg;
    for (int t = 0; t < 3; t++)
        for (int o = 0; o < 2; o++) {
            for (int i = 0; i < SHORT; i++) sum[i] = 0;
            for (int r = 0; r < size; r++)
                for (int i = 0; i < SHORT; i++) {
                    const float x = (float)((r * 7 + i) % 4) + (r == 0 ? (float)(1 << (i % 9)) : 0);
                    coll_convert(&input, types[t], &x, COLL_F32, 1);
                    coll_convert(&once[i], COLL_F32, input, types[t], 1);
                    if (r == coll_rank(comm)) in[i] = x;
                    sum[i] += once[i];
                }
            for (int i = 0; i < SHORT; i++) if (ops[o] == COLL_AVG) sum[i] /= (float)size;
            coll_convert(input, types[t], in, COLL_F32, SHORT);
            coll_convert(expected, types[t], sum, COLL_F32, SHORT);
            const coll_status status = coll_allreduce(comm, input, result, SHORT, types[t], ops[o]);
            CHECK(status == COLL_OK && !memcmp(result, expected, SHORT * coll_type_size(types[t])),
                  "%s of %s on rank %d of %d is not the sum rounded once", coll_op_name(ops[o]), coll_type_name(types[t]),
                  coll_rank(comm), size);
        }
    return 0;
}

/* ---- >>explain ---- */

static int explain_worker(coll_comm *comm, void *arg)
{
    char text[600];
    static float x[COUNT];

    (void)arg;
    if (coll_rank(comm)) return 0;
    coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = COUNT, .type = COLL_F32 };
    coll_explain(comm, &call, text, sizeof text);
    CHECK(strstr(text, "by hosts: 3 hosts of 1 to 3 ranks, 1 rail, in 2 parts"), "\"%s\"", text);
    call.flags = COLL_DETERMINISTIC;
    coll_explain(comm, &call, text, sizeof text);
    CHECK(!strstr(text, "by hosts"), "\"%s\" by hosts, which would show in the bits", text);
    return 0;
}

static int explain_sites_worker(coll_comm *comm, void *arg)
{
    char text[600];
    static float x[COUNT];

    (void)arg;
    if (coll_rank(comm)) return 0;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = COUNT, .type = COLL_F32 };
    coll_explain(comm, &call, text, sizeof text);
    CHECK(strstr(text, "by sites: 2 sites of 6 ranks, 6 rails, in 2 parts; within this one by hosts: 3 hosts of 2 ranks, 2 "
                       "rails"), "\"%s\"", text);
    return 0;
}

/* ---- >>time: sites whose links are slower than those of their hosts ---- */

enum { SITE_COUNT = 1 << 20 };

/* The slow link is always busy with data that must cross it, and everything else is done meanwhile; no algorithm without
 * knowledge of sites is nearly as fast. */
static int time_worker(coll_comm *comm, void *arg)
{
    static const char *const flat[] = { NULL, "ring", "circulant", "direct" };
    float *const x = support_need(calloc(SITE_COUNT, sizeof *x));
    double times[4];

    (void)arg;
    for (int i = 0; i < 4; i++) {
        const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = SITE_COUNT, .type = COLL_F32,
                                 .algorithm = flat[i] };
        CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
        const double began = coll_sim_time(comm);
        CHECK(coll_run(comm, &call) == COLL_OK, "%s", coll_error(comm));
        times[i] = coll_sim_time(comm) - began;
        CHECK(coll_allreduce(comm, COLL_IN_PLACE, &times[i], 1, COLL_F64, COLL_MAX) == COLL_OK, "%s", coll_error(comm));
    }
    const double bound = SITE_COUNT * sizeof *x / 0.125e9 + 1e-3;
    if (coll_rank(comm) == 0) {
        CHECK(times[0] < 1.1 * bound, "%.1f ms, and %.1f ms is the least possible", times[0] * 1e3, bound * 1e3);
        for (int i = 1; i < 4; i++)
            CHECK(times[0] < 0.6 * times[i], "%.1f ms, and %s takes %.1f ms", times[0] * 1e3, flat[i], times[i] * 1e3);
    }
    free(x);
    return 0;
}

static void test_time(void)
{
    static const char machine[] = "latency=12us overhead=1us gbit=10 reduce=10GB/s sites=2 far=0.125GB/s far_latency=1ms";
    CHECK(support_run_machine(machine, 16, time_worker, NULL) == 0, "%s", coll_error(NULL));
}

int main(void)
{
    counting = coll__sim_transport;
    counting.send = counting_send;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        run_shape(&shapes[i], price_worker, &shapes[i]);
        run_shape(&shapes[i], rounding_worker, NULL);
        if (shapes[i].size < 8) run_shape(&shapes[i], parts_worker, NULL);
    }
    run_shape(&(world_shape){ 7, 3, 3, 0 }, explain_worker, NULL);
    run_shape(&(world_shape){ 12, 2, 2, 3 }, explain_sites_worker, NULL);
    test_time();
    return CHECK_DONE();
}
