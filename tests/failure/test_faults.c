/* test_faults.c - ranks that do not connect, are not the expected ones, or die: the others' errors name them in time.
 *
 *     test_faults [WORLD,...] [PART,...]                WORLD: tcp-poll, tcp-uring
 *                                                       PART: setup, start, intruders, dead
 *
 * Every case runs in a process of its own with a time limit, so a hang or a crash is one failure with a name and the cases
 * behind it still run.  In the parts about the start, ranks are threads of that process; those that are killed are processes,
 * which report in shared memory.
 */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"

enum { RANKS_MOST = 5, CASE_SECONDS = 20, RANK_SECONDS = 9, LARGE = 1 << 20 };

/* ---- >>cases ---- */

/* What the process of a case and its ranks report. */
typedef struct report {
    coll_status status, later;                    /* of the call that had to fail, and of those behind it     */
    int         reached;                          /* how far this rank got; see the parts                     */
    int64_t     known_ms, later_ms, free_ms;      /* since the death; how long the rest took                  */
    char        sentence[512], after[512];
} report;

typedef struct board {
    int64_t death_ms;
    report  ranks[RANKS_MOST];
} board;

static board *shared;

static void run_case(void (*body)(const void *arg), const void *arg, const char *name)
{
    memset(shared, 0, sizeof *shared);
    run_case_within(CASE_SECONDS, body, arg, name);
}

/* ---- >>setup: configurations and environments ---- */

typedef struct setup {
    const char *name;
    const char *environment[8];                   /* "NAME=value"; nothing else is set                        */
    coll_config config;
    int         threads;                          /* > 0: coll_init_threads of so many; < 0: coll_spawn       */
    coll_status status;
    const char *words[3];
} setup;

#define HERE "127.0.0.1:9"                        /* never reached: these setups fail before                  */
#define TWO(this_rank, where) { .rank = this_rank, .size = 2, .address = where, .start_timeout_ms = 300 }

static const setup setups[] = {
    { "size -1", { 0 }, { .size = -1, .address = HERE }, 0, COLL_ERR_ARGUMENT, { "size", "-1" } },
    { "size 70000", { 0 }, { .size = 70000, .address = HERE }, 0, COLL_ERR_ARGUMENT, { "size", "70000" } },
    { "rank 2 of 2", { 0 }, TWO(2, HERE), 0, COLL_ERR_ARGUMENT, { "rank 2" } },
    { "rank -1 of 2", { 0 }, TWO(-1, HERE), 0, COLL_ERR_ARGUMENT, { "rank -1" } },
    { "rank 1 of 1", { 0 }, { .rank = 1, .size = 1 }, 0, COLL_ERR_ARGUMENT, { "rank 1" } },
    { "no address", { 0 }, { .rank = 1, .size = 2 }, 0, COLL_ERR_ARGUMENT, { "COLL_ADDR", "rank 1 of 2" } },
    { "an empty address", { 0 }, TWO(0, ""), 0, COLL_ERR_ARGUMENT, { "COLL_ADDR" } },
    { "transport udp", { 0 }, { .transport = "udp", .size = 2, .address = HERE }, 0, COLL_ERR_ARGUMENT,
      { "udp", "tcp", "threads" } },
    { "transport udp for one rank", { 0 }, { .transport = "udp", .size = 1 }, 0, COLL_ERR_ARGUMENT, { "udp", "tcp", "threads" } },
    { "transport threads for a rank of 2", { 0 }, { .transport = "threads", .size = 2, .address = HERE }, 0, COLL_ERR_ARGUMENT,
     { "coll_init_threads" } },
    { "transport udp for two threads", { "COLL_TRANSPORT=udp" }, { 0 }, 2, COLL_ERR_ARGUMENT,
      { "\"udp\"", "tcp, threads, sim, mpi" } },
    { "transport udp for two spawned", { "COLL_TRANSPORT=udp" }, { 0 }, -2, COLL_ERR_ARGUMENT, { "\"udp\"", "none of tcp" } },
    { "transport sim for a rank of 2", { 0 }, { .transport = "sim", .size = 2 }, 0, COLL_ERR_ARGUMENT,
      { "2 ranks (from the configuration)", "\"sim\"", "coll_init_threads" } },
    { "transport mpi, compiled without it", { "COLL_TRANSPORT=mpi" }, { .size = 1 }, 0, COLL_ERR_UNSUPPORTED,
      { "\"mpi\"", "COLL_WITH_MPI" } },
    { "17 lanes for one rank", { 0 }, { .tcp = { .lanes = 17 }, .size = 1 }, 0, COLL_ERR_ARGUMENT,
      { "tcp.lanes 17", "1 to 16" } },
    { "COLL_SHARE=2", { "COLL_SHARE=2" }, { .size = 1 }, 0, COLL_ERR_ARGUMENT, { "COLL_SHARE=2", "on, off, 1, 0" } },
    { "COLL_SHM_COLLECTIVES=-1", { "COLL_SHM_COLLECTIVES=-1" }, { .size = 1 }, 0, COLL_ERR_ARGUMENT,
      { "COLL_SHM_COLLECTIVES=-1", "on, off, 1, 0" } },
    { "COLL_LIVENESS_TIMEOUT_MS=-2", { "COLL_LIVENESS_TIMEOUT_MS=-2" }, { .size = 1 }, 0, COLL_ERR_ARGUMENT,
      { "COLL_LIVENESS_TIMEOUT_MS=-2", "or -1: never" } },
    { "COLL_LIVENESS_TIMEOUT_MS=0", { "COLL_LIVENESS_TIMEOUT_MS=0" }, { .size = 1 }, 0, COLL_ERR_ARGUMENT,
      { "invalid COLL_LIVENESS_TIMEOUT_MS=0: use 1 to 2147483647, or -1: never" } },
    { "COLL_LANES=-1", { "COLL_LANES=-1" }, { .size = 1 }, 0, COLL_ERR_ARGUMENT, { "invalid COLL_LANES=-1: use 1 to 16" } },
    { "COLL_BACKGROUND=yes", { "COLL_BACKGROUND=yes" }, { .size = 1 }, 0, COLL_ERR_ARGUMENT,
      { "COLL_BACKGROUND=yes", "on, off" } },
    { "io epoll", { 0 }, { .tcp = { .io = "epoll" }, .size = 2, .address = HERE }, 0, COLL_ERR_ARGUMENT,
      { "epoll", "uring", "poll" } },
    { "COLL_IO=epoll", { "COLL_IO=epoll" }, TWO(0, HERE), 0, COLL_ERR_ARGUMENT, { "epoll", "uring", "poll" } },
    { "COLL_DEBUG=loud", { "COLL_DEBUG=loud" }, TWO(0, HERE), 0, COLL_ERR_ARGUMENT, { "COLL_DEBUG", "loud", "warn" } },
    { "address nonsense, rank 0", { 0 }, TWO(0, "nonsense"), 0, COLL_ERR_ARGUMENT, { "nonsense", "host:port" } },
    { "address nonsense, rank 1", { 0 }, TWO(1, "nonsense"), 0, COLL_ERR_ARGUMENT, { "nonsense", "host:port" } },
    { "address 1:2:3, rank 0", { 0 }, TWO(0, "1:2:3"), 0, COLL_ERR_ARGUMENT, { "1:2:3", "host:port" } },
    { "address 1:2:3, rank 1", { 0 }, TWO(1, "1:2:3"), 0, COLL_ERR_ARGUMENT, { "1:2:3", "host:port" } },
    { "address host:, rank 0", { 0 }, TWO(0, "host:"), 0, COLL_ERR_ARGUMENT, { "host:", "host:port" } },
    { "address host:, rank 1", { 0 }, TWO(1, "host:"), 0, COLL_ERR_ARGUMENT, { "host:", "host:port" } },
    { "address :, rank 0", { 0 }, TWO(0, ":"), 0, COLL_ERR_ARGUMENT, { "host:port" } },
    { "address with port 99999, rank 0", { 0 }, TWO(0, "127.0.0.1:99999"), 0, COLL_ERR_ARGUMENT, { "99999" } },
    { "address with port abc, rank 1", { 0 }, TWO(1, "127.0.0.1:abc"), 0, COLL_ERR_ARGUMENT, { "abc" } },
    { "address [::1:5000, rank 1", { 0 }, TWO(1, "[::1:5000"), 0, COLL_ERR_ARGUMENT, { "[::1:5000" } },
    { "COLL_RANK alone", { "COLL_RANK=1" }, { 0 }, 0, COLL_ERR_ARGUMENT, { "COLL_RANK", "COLL_SIZE" } },
    { "COLL_SIZE alone", { "COLL_SIZE=4", "COLL_ADDR=" HERE }, { 0 }, 0, COLL_ERR_ARGUMENT, { "COLL_RANK", "COLL_SIZE" } },
    { "COLL_SIZE=abc", { "COLL_RANK=0", "COLL_SIZE=abc", "COLL_ADDR=" HERE }, { 0 }, 0, COLL_ERR_ARGUMENT,
      { "COLL_SIZE", "abc" } },
    { "COLL_SIZE=4x", { "COLL_RANK=0", "COLL_SIZE=4x", "COLL_ADDR=" HERE }, { 0 }, 0, COLL_ERR_ARGUMENT, { "COLL_SIZE", "4x" } },
    { "COLL_SIZE=0", { "COLL_RANK=0", "COLL_SIZE=0" }, { 0 }, 0, COLL_ERR_ARGUMENT, { "COLL_SIZE", "0" } },
    { "COLL_SIZE beyond long", { "COLL_RANK=0", "COLL_SIZE=99999999999999999999" }, { 0 }, 0, COLL_ERR_ARGUMENT, { "COLL_SIZE",
            "9999999999" } },
    { "COLL_RANK=5 of 4", { "COLL_RANK=5", "COLL_SIZE=4", "COLL_ADDR=" HERE }, { 0 }, 0, COLL_ERR_ARGUMENT,
      { "COLL_RANK", "5" } },
    { "COLL_RANK=-1", { "COLL_RANK=-1", "COLL_SIZE=4", "COLL_ADDR=" HERE }, { 0 }, 0, COLL_ERR_ARGUMENT, { "COLL_RANK", "-1" } },
    { "COLL_RANK and COLL_SIZE without an address", { "COLL_RANK=0", "COLL_SIZE=4" }, { 0 }, 0, COLL_ERR_ARGUMENT, { "COLL_ADDR",
            "of 4" } },
    { "COLL_LOCAL_RANK=7 of 2", { "COLL_RANK=0", "COLL_SIZE=2", "COLL_LOCAL_RANK=7", "COLL_ADDR=" HERE }, { 0 }, 0,
      COLL_ERR_ARGUMENT,
      { "COLL_LOCAL_RANK", "7" } },
    { "COLL_START_TIMEOUT_MS=soon", { "COLL_START_TIMEOUT_MS=soon" }, { .size = 2, .address = HERE }, 0, COLL_ERR_ARGUMENT,
      { "COLL_START_TIMEOUT_MS", "soon" } },
    { "COLL_STALL_TIMEOUT_MS=-5", { "COLL_STALL_TIMEOUT_MS=-5" }, TWO(0, HERE), 0, COLL_ERR_ARGUMENT,
      { "COLL_STALL_TIMEOUT_MS", "-5" } },
    { "COLL_STALL_TIMEOUT_MS=0", { "COLL_STALL_TIMEOUT_MS=0" }, { 0 }, 2, COLL_ERR_ARGUMENT,
      { "invalid COLL_STALL_TIMEOUT_MS=0: use 1 to 2147483647, or -1: never" } },
    { "COLL_START_TIMEOUT_MS=0", { "COLL_START_TIMEOUT_MS=0" }, { .size = 1 }, 0, COLL_ERR_ARGUMENT,
      { "invalid COLL_START_TIMEOUT_MS=0: use 1 to 2147483647, or -1: never" } },
    { "COLL_SPIN_US=0", { "COLL_SPIN_US=0" }, { .size = 1 }, 0, COLL_ERR_ARGUMENT,
      { "invalid COLL_SPIN_US=0: use 1 to 1000000, or -1: none" } },
    { "COLL_SPIN_US=much", { "COLL_SPIN_US=much" }, TWO(0, HERE), 0, COLL_ERR_ARGUMENT, { "COLL_SPIN_US", "much" } },
    { "two launchers", { "COLL_RANK=0", "COLL_SIZE=2", "RANK=0", "WORLD_SIZE=4", "COLL_ADDR=" HERE }, { 0 }, 0, COLL_ERR_ARGUMENT,
      { "2 ranks", "WORLD_SIZE=4" } },
    { "two launchers, one of one rank", { "COLL_RANK=0", "COLL_SIZE=1", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4" },
     { 0 }, 0, COLL_ERR_ARGUMENT,
      { "OMPI_COMM_WORLD_SIZE=4" } },
    { "Open MPI without an address", { "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4" }, { 0 }, 0, COLL_ERR_ARGUMENT,
      { "Open MPI",
            "COLL_ADDR", "rank 3 of 4" } },
    { "MPICH without an address", { "PMI_RANK=1", "PMI_SIZE=4" }, { 0 }, 0, COLL_ERR_ARGUMENT, { "MPICH", "COLL_ADDR" } },
    { "Slurm without an address", { "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4" }, { 0 }, 0, COLL_ERR_ARGUMENT,
      { "Slurm", "COLL_ADDR" } },
    { "torchrun without an address", { "RANK=1", "WORLD_SIZE=4" }, { 0 }, 0, COLL_ERR_ARGUMENT, { "torchrun", "COLL_ADDR" } },
    { "torchrun without a port", { "RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1" }, { 0 }, 0, COLL_ERR_ARGUMENT, { "torchrun",
            "COLL_ADDR" } },
    { "WORLD_SIZE=many", { "RANK=0", "WORLD_SIZE=many" }, { 0 }, 0, COLL_ERR_ARGUMENT, { "WORLD_SIZE", "many" } },
    { "MASTER_PORT=http", { "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=http" }, { 0 }, 0, COLL_ERR_ARGUMENT,
     { "MASTER_PORT", "http" } },
    { "two threads of a job of 4 at no address", { "COLL_SIZE=4", "COLL_RANK=0" }, { 0 }, 2, COLL_ERR_ARGUMENT, { "rank 0 of 4",
            "COLL_ADDR" } },
    { "two threads of a job of 4, transport threads", { 0 }, { .transport = "threads", .size = 4, .address = HERE }, 2,
      COLL_ERR_ARGUMENT, { "4 ranks", "the 2 of this process" } },
    { "two threads with a rank for one", { "COLL_SIZE=4", "COLL_RANK=3", "COLL_ADDR=" HERE }, { 0 }, 2, COLL_ERR_ARGUMENT,
      { "rank 3 of 4 (from COLL_RANK and COLL_SIZE)", "2 ranks" } },
    { "two threads with a rank for one, configured", { 0 }, { .rank = 3, .size = 4, .address = HERE }, 2, COLL_ERR_ARGUMENT,
      { "rank 3 of 4 (from the configuration)", "2 ranks" } },
    { "two spawned with a rank for one", { "COLL_SIZE=4", "COLL_RANK=3", "COLL_ADDR=" HERE }, { 0 }, -2, COLL_ERR_ARGUMENT,
      { "rank 3 of 4", "2 ranks" } },
    { "three threads of a job of 2", { "COLL_SIZE=2", "COLL_RANK=0", "COLL_ADDR=" HERE }, { 0 }, 3, COLL_ERR_ARGUMENT,
      { "rank 0 of 2", "3 ranks" } },
    { "four threads, rank 1 of 4", { "COLL_SIZE=4", "COLL_RANK=1", "COLL_ADDR=" HERE }, { 0 }, 4, COLL_ERR_ARGUMENT,
      { "rank 1 of 4", "4 ranks" } },
    { "two threads of each of 4 processes, at no address", { "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4" }, { 0 }, 2,
      COLL_ERR_ARGUMENT, { "Open MPI", "rank 6 of 8", "COLL_ADDR" } },
    { "four threads of each of 65536 processes", { "PMI_RANK=3", "PMI_SIZE=65536" }, { 0 }, 4, COLL_ERR_ARGUMENT,
      { "PMI_SIZE=65536", "4 ranks" } },
    { "two launchers that count differently, and disagree", { "COLL_RANK=0", "COLL_SIZE=4", "RANK=0", "WORLD_SIZE=4",
      "COLL_ADDR=" HERE }, { 0 }, 2, COLL_ERR_ARGUMENT, { "4 ranks", "WORLD_SIZE=4" } },
    { "two threads of abc", { "COLL_SIZE=abc", "COLL_RANK=0" }, { 0 }, 2, COLL_ERR_ARGUMENT, { "COLL_SIZE", "abc" } },
    { "nothing set", { 0 }, { 0 }, 0, COLL_OK, { 0 } },
    { "COLL_SIZE=1", { "COLL_SIZE=1", "COLL_RANK=0" }, { 0 }, 0, COLL_OK, { 0 } },
    { "variables that are empty", { "COLL_TRANSPORT=", "COLL_IO=", "COLL_LANES=", "COLL_SPIN_US=", "COLL_TUNING=",
      "COLL_BACKGROUND=" }, { 0 }, 0, COLL_OK, { 0 } },
    { "switches and times, none and never", { "COLL_SHARE=off", "COLL_SHM_COLLECTIVES=0", "COLL_BACKGROUND=1", "COLL_SPIN_US=-1",
      "COLL_START_TIMEOUT_MS=-1", "COLL_STALL_TIMEOUT_MS=-1", "COLL_LIVENESS_TIMEOUT_MS=-1" }, { .size = 1 }, 0, COLL_OK, { 0 } },
    { "fields that are empty", { "COLL_DUMP=/nowhere" }, { .transport = "", .dump = "", .tuning_file = "", .tcp = { .io = "" },
      .size = 1 }, 0, COLL_OK, { 0 } },
    { "two simulated ranks in a job of 4", { "COLL_TRANSPORT=sim", "COLL_SIZE=4", "COLL_RANK=3" }, { 0 }, 2, COLL_OK, { 0 } },
    { "two threads where MPI is requested", { "COLL_TRANSPORT=mpi" }, { 0 }, 2, COLL_OK, { 0 } },
    { "tcp for one rank", { 0 }, { .transport = "tcp", .size = 1 }, 0, COLL_OK, { 0 } },
    { "one rank at no address", { "COLL_ADDR=nonsense" }, { 0 }, 0, COLL_OK, { 0 } },
    { "a field that beats the environment", { "COLL_SIZE=4", "COLL_RANK=2", "COLL_ADDR=" HERE }, { .size = 1 }, 0, COLL_OK,
     { 0 } },
    { "four threads of a job of 1", { "COLL_SIZE=1", "COLL_RANK=0", "RANK=0", "WORLD_SIZE=1" }, { 0 }, 4, COLL_OK, { 0 } },
    { "four threads of one process", { "PMI_RANK=0", "PMI_SIZE=1" }, { 0 }, 4, COLL_OK, { 0 } },
    { "four threads of a job of 4, configured", { "COLL_SIZE=8", "COLL_RANK=1", "COLL_ADDR=" HERE }, { .size = 4 }, 4, COLL_OK,
      { 0 } },
    { "four threads of a job of 4", { "COLL_SIZE=4", "COLL_RANK=0", "COLL_ADDR=" HERE }, { 0 }, 4, COLL_OK, { 0 } },
};
enum { SETUP_COUNT = sizeof setups / sizeof *setups };

static int never(coll_comm *comm, void *arg) { (void)comm, (void)arg; return 1; }

static void setup_case(const void *arg)
{
    const setup *s = arg;
    coll_comm *comms[4] = { NULL, NULL, NULL, NULL };
    const int64_t began = now_ms();
    coll_status status;
    int32_t n = 7;

    clearenv(), putenv("COLL_DEBUG=none");
    for (int i = 0; s->environment[i]; i++) putenv((char *)(uintptr_t)s->environment[i]);
    if (s->threads < 0) status = (coll_status)coll_spawn(-s->threads, never, NULL, NULL);
    else if (s->threads > 0) status = coll_init_threads(s->threads, comms, &s->config);
    else status = coll_init(comms, s->config.size || s->config.address ? &s->config : NULL);
    CHECK(status == s->status && says(coll_error(NULL), s->words, 3), "%s: status %d, \"%s\"", case_name, (int)status,
          coll_error(NULL));
    CHECK(now_ms() - began < support_scaled(2000), "%s: took %d ms", case_name, (int)(now_ms() - began));
    CHECK((comms[0] != NULL) == (status == COLL_OK), "%s: %s communicator, with status %d", case_name, comms[0] ? "a" : "no",
          (int)status);
    if (status == COLL_OK && s->threads == 0)
        CHECK(coll_size(comms[0]) == 1 && coll_rank(comms[0]) == 0 && coll_allreduce(comms[0], &n, &n, 1, COLL_I32,
                                                                                     COLL_SUM) == COLL_OK &&
              n == 7 && coll_barrier(comms[0]) == COLL_OK, "%s: a world of one does not work: %s", case_name,
                  coll_error(comms[0]));
    for (int i = 0; i < 4; i++) coll_free(comms[i]);
}

/* ---- >>start: ranks are threads that call coll_init ---- */

/* Start a rank, with a log if there is a journal for it. */
static void joiner_start(joiner *g, int rank, int size, const char *address, int timeout_ms)
{
    g->config.rank = rank;
    g->config.size = size;
    g->config.address = address;
    g->config.start_timeout_ms = timeout_ms;
    g->config.tcp.io = !strcmp(world, "tcp-uring") ? "uring" : "poll";
    g->config.tcp.share_memory = !strcmp(world, "tcp-poll") ? -1 : 0;
    g->config.tcp.shm_collectives = COLL_OFF;     /* faults in shared memory are for test_shm_domain                 */
    if (g->config.log_context) g->config.log = journal_line;
    joiner_run(g);
}

static void expect_failure(const joiner *g, coll_status status, const char *word, const char *other, int most_ms)
{
    CHECK(g->status == status && g->comm == NULL && strstr(g->sentence, word) && strstr(g->sentence, other),
          "%s: rank %d: status %d (%d is expected), \"%s\" (with \"%s\" and \"%s\")", case_name, g->config.rank, (int)g->status,
          (int)status, g->sentence, word, other);
    CHECK(g->took_ms <= support_scaled(most_ms), "%s: rank %d took %d ms", case_name, g->config.rank, (int)g->took_ms);
}

static void port_in_use_case(const void *arg)
{
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    joiner zero = { 0 };

    (void)arg;
    CHECK(listen(port, 8) == 0, "%s: listen", case_name);
    joiner_start(&zero, 0, 2, address, 2000);
    joiner_join(&zero);
    expect_failure(&zero, COLL_ERR_SYSTEM, address, "use", 1000);
    close(port);
}

static void no_such_host_case(const void *arg)
{
    static const char host[] = "no-such-host.invalid:5000";
    joiner zero = { 0 }, one = { 0 };

    (void)arg;
    case_step = "rank 0";
    joiner_start(&zero, 0, 2, host, 300);
    joiner_join(&zero);
    CHECK(zero.status == COLL_ERR_ARGUMENT || zero.status == COLL_ERR_SYSTEM, "%s: rank 0 has %d", case_name, (int)zero.status);
    expect_failure(&zero, zero.status, host, "rank 0", 10000);
    case_step = "rank 1";
    joiner_start(&one, 1, 2, host, 300);
    joiner_join(&one);
    CHECK(one.status < 0, "%s: rank 1 has %d", case_name, (int)one.status);
    expect_failure(&one, one.status, host, "rank 1", 10000);
    CHECK(strlen(one.sentence) > strlen(host) + 30, "%s: no reason in \"%s\"", case_name, one.sentence);
}

static void missing_rank_case(const void *arg)
{
    const int missing = *(const int *)arg;
    joiner joiners[4] = { { 0 } };
    char address[64], word[24];
    const int port = support_reserve_port(address, sizeof address);

    snprintf(word, sizeof word, ": %d", missing);
    for (int i = 0; i < 4; i++)
        if (i != missing) joiner_start(&joiners[i], i, 4, address, 2500);
    for (int i = 0; i < 4; i++)
        if (i != missing) joiner_join(&joiners[i]);
    for (int i = 0; i < 4; i++) {
        if (i == missing) continue;
        if (missing == 0) expect_failure(&joiners[i], COLL_ERR_TIMEOUT, address, "refused", 4000);
        else expect_failure(&joiners[i], COLL_ERR_TIMEOUT, word, "come", 4000);
    }
    close(port);
}

static void same_rank_case(const void *arg)
{
    journal said = JOURNAL;
    joiner zero = { .config = { .log_context = &said } }, one = { 0 }, another = { 0 }, two = { 0 };
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    (void)arg;
    joiner_start(&zero, 0, 3, address, 10000);
    joiner_start(&one, 1, 3, address, 10000);
    joiner_start(&another, 1, 3, address, 10000);
    case_step = "one of two is refused";
    journal_await(&said, 1);
    joiner_start(&two, 2, 3, address, 10000);
    joiner_join(&zero);
    joiner_join(&one);
    joiner_join(&another);
    joiner_join(&two);
    expect_success(&zero);
    expect_success(&two);
    CHECK((one.status == COLL_OK) != (another.status == COLL_OK), "%s: the two have %d and %d", case_name, (int)one.status,
          (int)another.status);
    expect_success(one.status == COLL_OK ? &one : &another);
    joiner *const late = one.status == COLL_OK ? &another : &one;
    expect_failure(late, late->status, "same rank", address, 10000);
    CHECK(said.count == 1 && journal_count(&said, "same rank") == 1, "%s: %d lines, the first \"%s\"", case_name, said.count,
          said.lines[0]);
    close(port);
}

static void two_zeros_case(const void *arg)
{
    joiner zero = { 0 }, other = { 0 }, one = { 0 };
    journal said = JOURNAL;
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    (void)arg;
    zero.config.log_context = &said;
    zero.config.log_level = COLL_LOG_INFO;
    joiner_start(&zero, 0, 2, address, 10000);
    one.config.world = "the other job";           /* its refusal shows that rank 0 listens                    */
    joiner_start(&one, 1, 2, address, 10000);
    joiner_join(&one);
    joiner_start(&other, 0, 2, address, 10000);
    joiner_join(&other);
    expect_failure(&other, COLL_ERR_SYSTEM, address, "use", 2000);
    one = (joiner){ 0 };
    joiner_start(&one, 1, 2, address, 10000);
    joiner_join(&one);
    joiner_join(&zero);
    expect_success(&one);
    expect_success(&zero);
    close(port);
}

/* A rank of another world is refused, and the right one still connects. */
static void other_world_case(const void *arg)
{
    const bool by_size = arg != NULL;
    journal said = JOURNAL;
    joiner zero = { .config = { .log_context = &said } }, wrong = { 0 }, right = { 0 };
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    zero.config.world = right.config.world = "blue";
    wrong.config.world = by_size ? "blue" : "green";
    joiner_start(&zero, 0, 2, address, 10000);
    joiner_start(&wrong, 1, by_size ? 3 : 2, address, 10000);
    case_step = "the wrong one is refused";
    joiner_join(&wrong);
    expect_failure(&wrong, wrong.status, address, by_size ? "job size" : "COLL_WORLD", 3000);
    CHECK(wrong.status == COLL_ERR_PROTOCOL || wrong.status == COLL_ERR_MISMATCH || wrong.status == COLL_ERR_ARGUMENT,
          "%s: it has %d", case_name, (int)wrong.status);
    case_step = "the right one";
    joiner_start(&right, 1, 2, address, 10000);
    joiner_join(&right);
    joiner_join(&zero);
    expect_success(&zero);
    expect_success(&right);
    CHECK(said.count == 1 && journal_count(&said, "turned away") == 1, "%s: %d lines, the first \"%s\"", case_name, said.count,
          said.lines[0]);
    close(port);
}

/* torchrun's names, and nothing else, in two processes. */
static void torchrun_case(const void *arg)
{
    char address[64], number[80];
    const int port = support_reserve_port(address, sizeof address);
    pid_t pids[2];
    int status;

    (void)arg;
    snprintf(number, sizeof number, "MASTER_PORT=%s", strchr(address, ':') + 1);
    for (int rank = 0; rank < 2; rank++) {
        if ((pids[rank] = fork()) != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        coll_comm *comm = NULL;
        int32_t n = rank + 1;
        clearenv();
        putenv(rank ? "RANK=1" : "RANK=0");
        putenv("WORLD_SIZE=2");
        putenv("MASTER_ADDR=127.0.0.1");
        putenv(number);
        putenv("COLL_START_TIMEOUT_MS=10000");
        putenv(!strcmp(world, "tcp-uring") ? "COLL_IO=uring" : "COLL_IO=poll");
        shared->ranks[rank].status = coll_init(&comm, NULL);
        snprintf(shared->ranks[rank].sentence, sizeof shared->ranks[rank].sentence, "%s", coll_error(NULL));
        if (comm && coll_size(comm) == 2 && coll_rank(comm) == rank
            && coll_allreduce(comm, &n, &n, 1, COLL_I32, COLL_SUM) == COLL_OK && n == 3)
            shared->ranks[rank].reached = 1;
        coll_free(comm);
        _exit(0);
    }
    for (int rank = 0; rank < 2; rank++) {
        CHECK(waitpid(pids[rank], &status, 0) == pids[rank] && status == 0 && shared->ranks[rank].reached == 1,
              "%s: rank %d: %d: %s", case_name, rank, (int)shared->ranks[rank].status, shared->ranks[rank].sentence);
    }
    close(port);
}

/* ---- >>intruders: unauthenticated connections at rank 0's port ---- */

typedef enum manner { SAYS, SAYS_LITTLE, SAYS_NOTHING, RESETS } manner;

enum { HELLO = 128 };                             /* bytes that a rank sends first                            */

typedef struct intruder {
    const char *name;
    manner      manner;
    const char *bytes;
    size_t      length;
    const char *word;                             /* in its line on the log; NULL: no line is expected        */
} intruder;

#define HELLO_MAGIC "\x89" "COLL\r\n\x1a"
#define HELLO_START HELLO_MAGIC "\5\0\0\0\4\3\2\1"

static const char http[] =
    "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: a-scanner/1.0 (that looks at every port it can find)\r\n"
    "Accept: text/html, */*\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";

static const intruder intruders[] = {
    { "an HTTP request", SAYS, http, sizeof http - 1, "does not speak" },
    { "noise", SAYS, NULL, 1000, "does not speak" },
    { "a wrong magic", SAYS, "\x89" "COLL\r\n\x1b", 8, "does not speak" },
    { "another version", SAYS, HELLO_MAGIC "\1\0\0\0\4\3\2\1", 16, "version" },
    { "another byte order", SAYS, HELLO_MAGIC "\5\0\0\0\1\2\3\4", 16, "byte order" },
    { "another size", SAYS, HELLO_START, 16, "job size" },
    { "nothing, and waits", SAYS_NOTHING, "", 0, "did not say who" },
    { "half a hello, and waits", SAYS_LITTLE, HELLO_START, 16, "did not say who" },
    { "half a hello, and hangs up", RESETS, HELLO_START, 16, NULL },
    { "nothing, and hangs up", RESETS, "", 0, NULL },
};
enum { INTRUDER_COUNT = sizeof intruders / sizeof *intruders };

/* Connect to rank 0 as soon as it listens. */
static int dial(const char *address)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1)) };

    for (;;) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (!connect(fd, (struct sockaddr *)&to, sizeof to)) return fd;
        close(fd);
        sched_yield();
    }
}

/* Does it behave as announced?  Returns the socket if it stays open. */
static int intruder_comes(const intruder *s, const char *address)
{
    const struct linger at_once = { 1, 0 };
    char bytes[1024] = { 0 };
    uint64_t random = support_seed();
    const int fd = dial(address);
    size_t length = s->manner == SAYS && s->length < HELLO ? HELLO : s->length;

    if (s->bytes) memcpy(bytes, s->bytes, s->length);
    else for (size_t i = 0; i < s->length; i++) bytes[i] = (char)support_random(&random);
    if (length > 0) CHECK(send(fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length, "%s: %s cannot be sent", case_name, s->name);
    if (s->manner != RESETS) return fd;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    return -1;
}

/* Every log line.  If one host opens several equal connections, one after the other, only the first is a warning. */
static void intruders_case(const void *arg)
{
    journal said = JOURNAL;
    joiner zero = { .config = { .log_context = &said, .log_level = COLL_LOG_INFO } }, one = { 0 };
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    int fds[INTRUDER_COUNT], due = 0;

    (void)arg;
    joiner_start(&zero, 0, 2, address, 15000);
    case_step = "unauthenticated connections";
    for (int i = 0; i < INTRUDER_COUNT; i++) {
        fds[i] = intruder_comes(&intruders[i], address);
        due += intruders[i].word != NULL;
    }
    case_step = "a line for each unauthenticated connection";
    journal_await_text(&said, "turned away a connection from 127.0.0.1:", due);
    case_step = "the world";
    joiner_start(&one, 1, 2, address, 15000);
    joiner_join(&one);
    joiner_join(&zero);
    expect_success(&zero);
    expect_success(&one);
    CHECK(journal_count(&said, "turned away a connection from 127.0.0.1:") == due, "%s: %d lines, %d are due; the last: %s",
          case_name, said.count, due, said.count > 0 ? said.lines[said.count - 1] : "");
    for (int i = 0; i < INTRUDER_COUNT; i++) {
        int same = 0;
        for (int k = 0; k < INTRUDER_COUNT && intruders[i].word; k++)
            same += intruders[k].word && !strcmp(intruders[i].word, intruders[k].word);
        if (intruders[i].word)
            CHECK(journal_count(&said, intruders[i].word) == same, "%s: %s: %d lines with \"%s\", %d expected", case_name,
                  intruders[i].name, journal_count(&said, intruders[i].word), intruders[i].word, same);
        if (fds[i] >= 0) close(fds[i]);
    }
    close(port);
}

/* A connection that sends nothing stays open while the world forms, and more connections than fit into the queue open and
 * close. */
static void crowd_case(const void *arg)
{
    journal said = JOURNAL;
    joiner zero = { .config = { .log_context = &said } }, one = { 0 };
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    int fds[200];

    (void)arg;
    joiner_start(&zero, 0, 2, address, 15000);
    case_step = "a silent crowd";
    for (int i = 0; i < 200; i++) fds[i] = dial(address);
    case_step = "the world, in the crowd";
    for (int i = 8; i < 200; i++) close(fds[i]);
    joiner_start(&one, 1, 2, address, 15000);
    joiner_join(&one);
    joiner_join(&zero);
    expect_success(&zero);
    expect_success(&one);
    for (int i = 0; i < 8; i++) close(fds[i]);
    close(port);
}

/* ---- >>dead: ranks are processes, and one is killed ---- */

typedef enum moment { BEFORE_ALL, BEFORE, DURING, IN_RECV, ZERO_IS_BUSY, ZERO_HAS_LEFT } moment;

static const char *const moment_names[] = {
    "before anything was sent", "before a collective", "in the middle of a large allreduce", "while the others receive from it",
    "while one receives from it and rank 0 is elsewhere", "while one receives from it and rank 0 has left"
};

typedef struct death {
    moment moment;
    int    size, victim;
    char   address[64];
    int    ready[2], over[2];                     /* pipes: a byte for each waiting rank                      */
} death;

static void pipe_put(const int *ends) { (void)!write(ends[1], "x", 1); }

static void pipe_await(const int *ends, int count)
{
    char byte;
    while (count > 0 && read(ends[0], &byte, 1) == 1) count--;
}

static void die(void)
{
    shared->death_ms = now_ms();
    kill(getpid(), SIGKILL);
    _exit(9);
}

/* Die when a part of a large allreduce is on the wire. */
static void die_during(coll_comm *comm, float *x)
{
    uint64_t before = 0, sent = 0;
    coll_request *r = NULL;

    coll_traffic(comm, &before, NULL);
    if (coll_iallreduce(comm, x, x, LARGE, COLL_F32, COLL_SUM, &r)) return;
    while (coll_test(r) == COLL_PENDING) {
        coll_traffic(comm, &sent, NULL);
        if (sent > before + 100000) die();
    }
}

static void victim_main(const death *d, coll_comm *comm, float *x)
{
    const int waiting = d->moment == IN_RECV ? d->size - 1 : 1;

    if (d->moment == DURING) die_during(comm, x);
    else if (d->moment == IN_RECV || d->moment == ZERO_IS_BUSY || d->moment == ZERO_HAS_LEFT) pipe_await(d->ready, waiting);
    if (d->moment != DURING) die();
}

/* The call that must fail. */
static coll_status survivor_call(const death *d, coll_comm *comm, float *x)
{
    coll_request *r = NULL;
    coll_status status;

    if (d->moment == BEFORE_ALL || d->moment == BEFORE) return coll_allreduce(comm, x, x, 4, COLL_F32, COLL_SUM);
    if (d->moment == DURING) return coll_allreduce(comm, x, x, LARGE, COLL_F32, COLL_SUM);
    status = coll_irecv(comm, x, 4, COLL_F32, d->victim, 3, &r);
    pipe_put(d->ready);
    if (status == COLL_OK) status = coll_wait(r);
    coll_request_free(r);
    return status;
}

static void survivor_main(const death *d, coll_comm **at, float *x, report *r)
{
    coll_comm *comm = *at;
    int32_t n = 1;

    if (d->moment == ZERO_IS_BUSY && coll_rank(comm) == 0) pipe_await(d->over, 1);
    r->status = survivor_call(d, comm, x);
    const int64_t known = now_ms();
    r->known_ms = known - shared->death_ms;
    if (d->moment == ZERO_IS_BUSY && coll_rank(comm) == 1) pipe_put(d->over);
    snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm));
    r->later = coll_barrier(comm);
    if (r->later == r->status) r->later = coll_allreduce(comm, &n, &n, 1, COLL_I32, COLL_SUM);
    if (r->later == r->status) r->later = coll_recv(comm, &n, 1, COLL_I32, d->victim, 0);
    r->later_ms = now_ms() - known;
    snprintf(r->after, sizeof r->after, "%s", coll_error(comm));
    const int64_t began = now_ms();
    coll_free(comm);
    *at = NULL;
    r->free_ms = now_ms() - began;
    r->reached = 1;
}

static void dying_rank(const death *d, int rank)
{
    const coll_config config = { .rank = rank, .size = d->size, .address = d->address, .start_timeout_ms = 10000,
                                 .tcp = { .io = !strcmp(world, "tcp-uring") ? "uring" : "poll",
                                          .share_memory = !strcmp(world, "tcp-poll") ? -1 : 0, .shm_collectives = COLL_OFF } };
    report *r = &shared->ranks[rank];
    float *x = support_need(calloc(LARGE, sizeof *x)), token = 0;
    coll_comm *comm = NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, SIG_DFL);                     /* which ends the process                                   */
    alarm(RANK_SECONDS);
    const coll_status hybrid = coll_init(&comm, &config);
    snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(NULL));
    if (hybrid) _exit(2);
    if (d->moment != BEFORE_ALL) (void)coll_barrier(comm);
    if (d->moment == ZERO_IS_BUSY || d->moment == ZERO_HAS_LEFT) {        /* there is a stream for messages    */
        if (rank == 1) (void)coll_send(comm, &token, 1, COLL_F32, d->victim, 1);
        if (rank == d->victim) (void)coll_recv(comm, &token, 1, COLL_F32, 1, 1);
    }
    if (d->moment == ZERO_HAS_LEFT && rank == 0) {
        coll_free(comm);
        pipe_put(d->over);
        _exit(0);
    }
    if (d->moment == ZERO_HAS_LEFT && rank == 1) pipe_await(d->over, 1);
    if (rank == d->victim) victim_main(d, comm, x);
    else survivor_main(d, &comm, x, r);
    free(x);
    _exit(rank == d->victim ? 3 : 0);
}

static void check_survivor(const death *d, int rank, int ended)
{
    const report *r = &shared->ranks[rank];

    const bool is_over = WIFEXITED(ended) && WEXITSTATUS(ended) == 0 && r->reached == 1;

    CHECK(is_over, "%s: rank %d %s, %#x: \"%s\"", case_name, rank, WIFSIGNALED(ended) && WTERMSIG(ended) == SIGALRM
          ? "hangs" : "has failed", (unsigned)ended, r->sentence);
    if (!is_over) return;
    CHECK(r->status == COLL_ERR_PEER && names_rank(r->sentence, d->victim), "%s: rank %d has %d: \"%s\"", case_name, rank,
          (int)r->status, r->sentence);
    CHECK(r->known_ms < support_scaled(5000), "%s: rank %d got the error after %d ms", case_name, rank, (int)r->known_ms);
    CHECK(r->later == r->status && !strcmp(r->sentence, r->after) && r->later_ms < support_scaled(500),
          "%s: rank %d: later calls have %d after %d ms: \"%s\"", case_name, rank, (int)r->later, (int)r->later_ms, r->after);
    CHECK(r->free_ms < support_scaled(2500), "%s: rank %d: coll_free took %d ms", case_name, rank, (int)r->free_ms);
}

static int64_t slowest_ms;                        /* until a survivor knew                                    */

static void death_case(const void *arg)
{
    death d = *(const death *)arg;
    pid_t pids[RANKS_MOST];
    int ended[RANKS_MOST];
    const int port = support_reserve_port(d.address, sizeof d.address);

    CHECK(pipe(d.ready) == 0 && pipe(d.over) == 0, "%s: pipe", case_name);
    for (int i = 0; i < d.size; i++)
        if ((pids[i] = fork()) == 0) dying_rank(&d, i);
    case_step = "the ranks, which have a time limit of their own";
    for (int i = 0; i < d.size; i++) CHECK(waitpid(pids[i], &ended[i], 0) == pids[i], "%s: waitpid", case_name);
    CHECK(WIFSIGNALED(ended[d.victim]) && WTERMSIG(ended[d.victim]) == SIGKILL && shared->death_ms,
          "%s: the victim ended with %#x", case_name, (unsigned)ended[d.victim]);
    for (int i = d.moment == ZERO_HAS_LEFT ? 1 : 0; i < d.size; i++)
        if (i != d.victim) check_survivor(&d, i, ended[i]);
    close(port);
}

static void run_death(moment when, int size, int victim)
{
    death d = { .moment = when, .size = size, .victim = victim };
    char name[120];

    snprintf(name, sizeof name, "rank %d of %d dies %s", victim, size, moment_names[when]);
    run_case(death_case, &d, name);
    for (int i = 0; i < size; i++)
        if (shared->ranks[i].status == COLL_ERR_PEER && shared->ranks[i].known_ms > slowest_ms)
            slowest_ms = shared->ranks[i].known_ms;
}

static void run_deaths(void)
{
    static const int sizes[] = { 2, 3, RANKS_MOST };

    for (int i = 0; i < 3; i++)
        for (int victim = 0; victim < sizes[i]; victim += victim == 1 && sizes[i] > 3 ? sizes[i] - 2 : 1)
            for (moment m = BEFORE_ALL; m <= IN_RECV; m++) run_death(m, sizes[i], victim);
    run_death(ZERO_IS_BUSY, 3, 2);
    run_death(ZERO_HAS_LEFT, 3, 2);
    printf("%s: the slowest survivor knew after %d ms\n", world, (int)slowest_ms);
}

/* ---- >>all of it ---- */

static void run_here(const char *parts)
{
    static const int ranks[] = { 0, 1, 2, 3 };
    char name[64];

    if (support_listed(parts, "start")) {
        run_case(port_in_use_case, NULL, "a port in use");
        run_case(no_such_host_case, NULL, "no such host");
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "rank %d of 4 is missing", i);
            run_case(missing_rank_case, &ranks[i], name);
        }
        run_case(same_rank_case, NULL, "two ranks 1");
        run_case(two_zeros_case, NULL, "two ranks 0");
        run_case(other_world_case, NULL, "another COLL_WORLD");
        run_case(other_world_case, "by size", "another size");
        run_case(torchrun_case, NULL, "torchrun's names");
    }
    if (support_listed(parts, "intruders")) {
        run_case(crowd_case, NULL, "a crowd");
        run_case(intruders_case, NULL, "intruders");
    }
    if (support_listed(parts, "dead")) run_deaths();
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "tcp-poll", "tcp-uring" };
    const char *list = argc > 1 ? argv[1] : NULL, *parts = argc > 2 ? argv[2] : NULL;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cases_begin();
    if (shared == MAP_FAILED || tally == MAP_FAILED) return perror("mmap"), 1;
    for (int i = 0; i < SETUP_COUNT && support_listed(parts, "setup"); i++) run_case(setup_case, &setups[i], setups[i].name);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        if (!support_listed(list, worlds[i])) continue;
        const char *refusal = support_refusal(worlds[i]);
        if (refusal) printf("%s: skipped: %s\n", worlds[i], refusal);
        world = worlds[i];
        slowest_ms = 0;
        if (!refusal) run_here(parts);
    }
    return CHECK_DONE();
}
