/* test_sites.c - hosts at several sites: their description in a tuning file, and its effect on collectives.  How sites are
 * found is for test_tuning; what leaves a site, and how long it takes, for test_hosts; that results are right for
 * test_contract in the world "sim-sites", and over real sockets for test_rails. */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/parts.h"

static char file[] = "/tmp/coll_sites_XXXXXX";

static const char *sites_in(const char *text)
{
    const char *const at = strstr(text, " site=");
    return at ? at : "";
}

static void write_file(const char *text)
{
    FILE *const out = fopen(file, "w");
    CHECK(out && fputs(text, out) >= 0 && fclose(out) == 0, "cannot write %s", file);
}

/* The stages of a hierarchical call have the numbers of their links: far between sites, near within one. */
static int stages_worker(coll_comm *comm, void *arg)
{
    const char *const sites = arg;
    char text[COLL__TUNING_ROOM];
    float x = 1;

    CHECK(coll_allreduce(comm, COLL_IN_PLACE, &x, 1, COLL_F32, COLL_SUM) == COLL_OK && x == 8, "%g", (double)x);
    const coll__order *const order = &comm->main;
    CHECK(order->intra && order->inter && order->intra->main.intra, "no stages, or none of those");
    const double near = order->intra->numbers.link.latency, far = order->inter->numbers.link.latency;
    CHECK(fabs(near - 20e-6) < 1e-12 && fabs(far - 300e-6) < 1e-12, "latencies %g and %g", near, far);
    const coll__numbers *const inside = &order->intra->main.inter->numbers;
    CHECK(inside->link.latency == near && inside->origin == COLL__BY_FILE, "%g within a site", inside->link.latency);
    (void)coll_link_text(comm, text, sizeof text);
    CHECK(strstr(text, " far_latency=300us far_gbit=0.5") && !strcmp(sites_in(text), sites), "\"%s\"", text);
    return 0;
}

static void test_stages(void)
{
    const coll_config config = { .transport = "sim", .tuning_file = file };
    static const char *const texts[] = { "latency=20us far_latency=300us far_gbit=0.5",
                                         "latency=20us far_latency=300us far_gbit=0.5 site=4" };

    setenv("COLL_SIM", "per_host=2 sites=2 far_latency=500us", 1);
    for (int i = 0; i < 2; i++) {
        write_file(texts[i]);
        CHECK(coll_spawn(8, stages_worker, (void *)(uintptr_t)(i ? " site=4" : ""), &config) == 0, "%s", coll_error(NULL));
    }
    unsetenv("COLL_SIM");
}

/* ---- >>files ---- */

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
    CHECK(coll_spawn(7, told_worker, (void *)(uintptr_t)"by sites: 2 sites of 3 to 4 ranks, 3 rails", &simulated) == 0, "%s",
          coll_error(NULL));
    CHECK(support_run_config("tcp-poll", 7, &tcp, told_worker, (void *)(uintptr_t)"by sites: 2 sites of 3 to 4 ranks, 3 rails")
          == 0, "%s", coll_error(NULL));
}

/* Of eight ranks the second is killed: the second site begins with the fourth survivor. */
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
    CHECK(coll_spawn(8, shrunk_worker, NULL, &config) == 0, "%s", coll_error(NULL));
    unsetenv("COLL_SIM");
}

int main(void)
{
    const int fd = mkstemp(file);

    CHECK(fd >= 0 && close(fd) == 0, "no file");
    test_stages();
    test_files();
    test_shrunk();
    unlink(file);
    return CHECK_DONE();
}
