/* test_sites.c - hosts at several sites: that coll_measure finds them and what is between them, and none where there are none;
 * what a file says of it, and that this decides how a collective goes.  What leaves a site, and how long it takes, is for
 * test_hosts; that results are right for test_contract in the world "sim-sites", and over real sockets for test_rails. */
#define COLL__ONE_TIER 1
#include "inside.h"

#include "check.h"
#include "support.h"
#include "parts.h"

static char file[] = "/tmp/coll_sites_XXXXXX";

/* ---- >>measured ---- */

/* The sites of all ranks, of the even ones, and what is between sites, at most and at least. */
typedef struct found { const char *sites, *evens; double latency, gbit; } found;

static const char *sites_in(const char *text)
{
    const char *const at = strstr(text, " site=");
    return at ? at : "";
}

static void check_link(const char *text, const char *name, double wanted, double slack)
{
    const char *const at = strstr(text, name);
    const double value = at ? strtod(at + strlen(name), NULL) : 0;

    CHECK(value >= wanted / slack && value <= wanted * slack, "\"%s\", and not%s%g", text, name, wanted);
}

static int found_worker(coll_comm *comm, void *arg)
{
    const found *const f = (const found *)arg;
    char text[COLL__TUNING_ROOM];
    coll_comm *half = NULL;

    CHECK(coll_measure(comm) == COLL_OK, "%s", coll_error(comm));
    (void)coll_link_text(comm, text, sizeof text);
    CHECK(!strcmp(sites_in(text), f->sites), "\"%s\" is measured, and not \"%s\"", text, f->sites);
    if (f->latency > 0) {
        check_link(text, "latency=", 12, 1.3);
        check_link(text, " overhead=", 4, 1.3);
        check_link(text, " far_latency=", f->latency, 1.1);
        check_link(text, " far_gbit=", f->gbit, 1.6);
    } else CHECK(!strstr(text, " far"), "\"%s\" is measured where all are near", text);
    CHECK(coll_split(comm, coll_rank(comm) % 2, 0, &half) == COLL_OK, "%s", coll_error(comm));
    if (coll_rank(comm) % 2 == 0) {
        (void)coll_link_text(half, text, sizeof text);
        CHECK(!strcmp(sites_in(text), f->evens), "the even ranks have \"%s\", and not \"%s\"", text, f->evens);
    }
    coll_free(half);
    return 0;
}

/* Where ranks of several sites take turns none of them is a row: nothing is said of sites, and what is between them is found. */
static int turns_worker(coll_comm *comm, void *arg)
{
    char text[COLL__TUNING_ROOM];
    coll_comm *turns = NULL;

    (void)arg;
    CHECK(coll_measure(comm) == COLL_OK, "%s", coll_error(comm));
    CHECK(coll_split(comm, 0, coll_rank(comm) % 4 * 2 + coll_rank(comm) / 4, &turns) == COLL_OK, "%s", coll_error(comm));
    for (int pass = 0; pass < 2; pass++) {
        (void)coll_link_text(turns, text, sizeof text);
        CHECK(!*sites_in(text), "\"%s\" is %s where ranks of two sites take turns", text, pass ? "measured" : "inherited");
        check_link(text, " far_latency=", 500, 1.1);
        CHECK(pass || coll_measure(turns) == COLL_OK, "%s", coll_error(turns));
    }
    coll_free(turns);
    return 0;
}

/* What a hierarchical call has made before belongs to the numbers of before: it gets the new ones. */
static int stages_worker(coll_comm *comm, void *arg)
{
    float x = 1;

    (void)arg;
    CHECK(coll_allreduce(comm, COLL_IN_PLACE, &x, 1, COLL_F32, COLL_SUM) == COLL_OK && x == 8, "%g", (double)x);
    const coll__order *const order = &comm->main;
    CHECK(order->intra && order->inter && order->intra->main.intra, "no stages, or none of those");
    const double before = order->inter->numbers.link.latency;
    CHECK(coll_measure(comm) == COLL_OK, "%s", coll_error(comm));
    const double near = order->intra->numbers.link.latency, far = order->inter->numbers.link.latency;
    CHECK(before == 12e-6 && near < 15e-6 && far > 450e-6 && far < 550e-6, "latencies %g, then %g and %g", before, near, far);
    const coll__numbers *const inside = &order->intra->main.inter->numbers;
    CHECK(inside->link.latency == near && inside->origin == COLL__BY_MEASURING, "%g within a site", inside->link.latency);
    CHECK(coll_allreduce(comm, COLL_IN_PLACE, &x, 1, COLL_F32, COLL_SUM) == COLL_OK && x == 64, "%g", (double)x);
    return 0;
}

static void test_stages(void)
{
    const coll_config config = { .transport = "sim", .tuning_file = file };
    FILE *const out = fopen(file, "w");

    CHECK(out && fputs("latency=12us", out) >= 0 && fclose(out) == 0, "cannot write %s", file);
    setenv("COLL_SIM", "per_host=2 sites=2 far_latency=500us", 1);
    CHECK(coll_spawn_with(8, stages_worker, NULL, &config) == 0, "%s", coll_error(NULL));
    unsetenv("COLL_SIM");
}

static void check_found(const char *machine, int size, const found *f)
{
    CHECK(support_run_machine(machine, size, found_worker, f) == 0, "%d ranks, %s", size, machine);
}

static void test_measured(void)
{
    check_found("gbit=10", 64, &(found){ "", "", 0, 0 });
    check_found("gbit=10 jitter=4us", 16, &(found){ "", "", 0, 0 });
    check_found("gbit=10 per_host=4", 16, &(found){ "", "", 0, 0 });
    check_found("gbit=1 slow=3:0.5", 8, &(found){ "", "", 0, 0 });
    check_found("gbit=10 sites=2 far_latency=500us", 6, &(found){ " site=3", " site=2", 500, 10 });
    check_found("gbit=10 sites=2 far_latency=500us", 64, &(found){ " site=32", " site=16", 500, 10 });
    check_found("gbit=10 sites=4 far_latency=100us far=0.3125GB/s", 64,
                &(found){ " site=16 site=32 site=48", " site=8 site=16 site=24", 100, 2.5 });
    check_found("gbit=10 per_host=2 sites=4 far_latency=100us far=0.3125GB/s", 64,
                &(found){ " site=16 site=32 site=48", " site=8 site=16 site=24", 100, 2.5 });
    check_found("gbit=10 sites=3 far_latency=2ms far=0.125GB/s slow=3:0.5", 12,
                &(found){ " site=4 site=8", " site=2 site=4", 2000, 1 });
    CHECK(support_run_machine("gbit=10 sites=2 far_latency=500us", 8, turns_worker, NULL) == 0, "ranks that take turns");
    check_found("gbit=10 sites=16 far_latency=1ms", 32, &(found){ "", "", 1000, 10 });    /* more than there is room for     */
}

/* ---- >>files ---- */

static void write_file(const char *text)
{
    FILE *const out = fopen(file, "w");
    CHECK(out && fputs(text, out) >= 0 && fclose(out) == 0, "cannot write %s", file);
}

static void refused(const char *text, const char *words)
{
    const coll_config config = { .tuning_file = file };
    coll_comm *comm = NULL;

    write_file(text);
    CHECK(coll_init(&comm, &config) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), words), "%s: %s", text, coll_error(NULL));
}

/* Calls go by sites, and those of a communicator within one do not. */
static int told_worker(coll_comm *comm, void *arg)
{
    float x[1000] = { 1 };
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = 1000, .type = COLL_F32 };
    char text[600];
    coll_comm *part = NULL;

    CHECK(coll_explain(comm, &call, text, sizeof text) > 0 && strstr(text, (const char *)arg), "\"%s\" is not \"%s\"", text,
          (const char *)arg);
    CHECK(strstr(text, " far_latency=5000us far_gbit=1 site=4"), "\"%s\" does not say what is between", text);
    CHECK(coll_split(comm, coll_rank(comm) < 4, 0, &part) == COLL_OK, "%s", coll_error(comm));
    CHECK(coll_explain(part, &call, text, sizeof text) > 0 && !strstr(text, "by sites") && !strstr(text, " site="), "\"%s\"",
          text);
    coll_free(part);
    return parts_worker(comm, NULL);
}

static void test_files(void)
{
    static const char *const wrong[] = { "site=", "site=0", "site=-1", "site=x", "site=4 site=4", "site=4 site=3", "site=1e99",
                                         "site=1 site=2 site=3 site=4 site=5 site=6 site=7 site=8 site=9" };
    const coll_config simulated = { .transport = "sim", .tuning_file = file }, tcp = { .tuning_file = file };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(wrong[i], "makes no sense: site is the first rank of another site than the first, in rising order");
    refused("site=1", "site= names ranks beyond the 1 that there are");
    write_file("far_latency=5ms far_gbit=1 site=4");
    CHECK(coll_spawn_with(7, told_worker, (void *)(uintptr_t)"by sites: 2 sites of 3 to 4 ranks, 3 rails", &simulated) == 0, "%s",
          coll_error(NULL));
    CHECK(support_run_config("tcp-poll", 7, &tcp, told_worker, (void *)(uintptr_t)"by sites: 2 sites of 3 to 4 ranks, 3 rails")
          == 0, "%s", coll_error(NULL));
}

/* Of eight ranks the second is killed: the second site begins with the fourth of those who are left. */
static int shrunk_worker(coll_comm *comm, void *arg)
{
    float x[1000] = { 1 };
    char text[COLL__TUNING_ROOM];
    coll_comm *left = NULL;
    coll_status status = COLL_OK;

    (void)arg;
    while (status == COLL_OK) status = coll_allreduce(comm, COLL_IN_PLACE, x, 1000, COLL_F32, COLL_MAX);
    CHECK(coll_shrink(comm, &left) == COLL_OK, "%s", coll_error(comm));
    (void)coll_link_text(left, text, sizeof text);
    CHECK(coll_size(left) == 7 && !strcmp(sites_in(text), " site=3"), "\"%s\"", text);
    CHECK(coll_allreduce(left, COLL_IN_PLACE, x, 1000, COLL_F32, COLL_MAX) == COLL_OK, "%s", coll_error(left));
    coll_free(left);
    return 0;
}

static void test_shrunk(void)
{
    const coll_config config = { .transport = "sim", .tuning_file = file };

    write_file("site=4");
    setenv("COLL_SIM", "kill=1@2ms", 1);
    CHECK(coll_spawn_with(8, shrunk_worker, NULL, &config) == 0, "%s", coll_error(NULL));
    unsetenv("COLL_SIM");
}

int main(void)
{
    const int fd = mkstemp(file);

    CHECK(fd >= 0 && close(fd) == 0, "no file");
    test_measured();
    test_stages();
    test_files();
    test_shrunk();
    unlink(file);
    return CHECK_DONE();
}
