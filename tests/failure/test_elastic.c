/* test_elastic.c - processes that join: coll_grow and coll_join, over TCP on the loopback.  After each, all ranks of the new
 * communicator are those that live, in order, and their sums have the right bits.
 *
 *     test_elastic [PART,...]           PART: join, several, threads, hosts, wrong, many, replace, deaths, table,
 *                                         decisions, cuts, example
 *
 * COLL_TEST_SCALE says how many moments of a death are tried. */
#define _GNU_SOURCE
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/counting_allocator.h"
#include "../support/net.h"

#include <dirent.h>
#include <poll.h>
#include <sys/time.h>

enum { MOST = 12, LIVENESS_MS = 1000, START_MS = 20000, JOIN_MS = 5000, CUT_MS = 7000, HEAL_MS = 3000, CASE_SECONDS = 240,
       CYCLES = 20 };

static const struct mode { const char *name, *security, *key; bool is_tls; } modes[] = {
    { "open", "open", NULL, false },
    { "key", "key", "a key of sixteen bytes", false },
    { "tls", "tls", "a key of sixteen bytes", true },
};
enum { MODE_COUNT = sizeof modes / sizeof *modes };

/* What a process was given; processes have numbers: the members', then the newcomers'. */
typedef struct report {
    coll_status status;                           /* of the last coll_grow, coll_shrink or coll_join           */
    int  is_done, size, rank;
    bool is_shared;                               /* whole collectives in shared memory                       */
    unsigned members;                             /* processes in the last communicator                       */
    char sentence[400];
} report;

typedef struct plan {
    int members, newcomers, mode;
    int dies, at_send;                            /* the process that dies, and at which send in the call     */
    int at_decision;                              /* rank 0 dies instead of sending this one                  */
    bool tells_all;                               /* no: behind that one, and those after it                  */
    bool within_table;                            /* process `dies` has sent a part of the first one          */
    unsigned cut;                                 /* at that send the network is cut between these processes and the rest */
    bool is_one_way;                              /* only from the rest to these                              */
    int heal_ms;                                  /* 0: it stays so                                           */
    bool replaces;                                /* rank 0 dies, and the others call coll_replace            */
    bool has_hosts;                               /* not all processes are on one host                        */
} plan;

static struct board {
    unsigned dead;                                /* processes that have been killed                          */
    int      is_cutting, is_cut;                  /* the send has come; the network is cut                    */
    int      byes, byes_most;                     /* that the one that dies at a decision has sent, and waits for */
    int      cycles, descriptors[CYCLES];
    long     bytes[CYCLES];
    report   of[MOST];
} *board;
static char where[64];
static char hosts[40 * MOST];                     /* where each member listens; "": they have no list         */
static int members_at_first;
static net network;                               /* of the plans that cut it: process i is on host i         */

/* ---- >>a death at a send ---- */

static __thread int sends_left;
static bool dies_within_table;
static int decisions, dies_at_decision;           /* how many this process has sent; 0: it does not die there */
static int decisions_all;                         /* it sends so many before it dies                          */

static __thread bool cuts_network;                /* instead of dying                                         */

/* Now the network is to be cut. */
static void await_cut(void)
{
    cuts_network = false;
    __atomic_store_n(&board->is_cutting, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&board->is_cut, __ATOMIC_SEQ_CST)) poll(NULL, 0, 1);
}

/* Is this a control message of this kind (coll_tcp_wire.h)? */
static bool is_control(const unsigned char *bytes, size_t length, int note)
{
    return length >= 256 && bytes[0] == 0x13 && bytes[1] == 0xc0 && bytes[2] == note && bytes[3] == 0;
}

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
    enum { BYE = 5, MEMBERS = 12, TAKEN = 13, DECIDED = 4 };      /* coll_tcp_wire.h, coll_decision.h         */
    const unsigned char *const at = bytes;
    const bool is_table = dies_within_table && length > 300 && is_control(at, length, TAKEN);

    if (sends_left > 0 && --sends_left == 0 && !cuts_network) kill(getpid(), SIGKILL);
    else if (cuts_network && sends_left == 0) await_cut();
    const bool is_decision = dies_at_decision && is_control(at, length, MEMBERS) && at[32] == DECIDED;
    if (is_decision && __atomic_add_fetch(&decisions, 1, __ATOMIC_SEQ_CST) == dies_at_decision) {
        const int64_t until = now_ms() + LIVENESS_MS;
        while (__atomic_load_n(&board->byes, __ATOMIC_SEQ_CST) < board->byes_most && now_ms() < until) poll(NULL, 0, 1);
        if (!decisions_all) kill(getpid(), SIGKILL);
    }
    if (decisions_all && !is_decision && __atomic_load_n(&decisions, __ATOMIC_SEQ_CST) == decisions_all) kill(getpid(), SIGKILL);
    const ssize_t sent = syscall(SYS_sendto, fd, bytes, is_table ? 300 : length, flags, NULL, 0);
    if (is_table) kill(getpid(), SIGKILL);
    if (dies_at_decision && sent >= 256 && is_control(at, length, BYE)) __atomic_add_fetch(&board->byes, 1, __ATOMIC_SEQ_CST);
    return sent;
}

/* ---- >>processes ---- */

static void log_line(void *context, coll_log_level level, const char *line)
{
    (void)context;
    if (getenv("COLL_TEST_LOG")) fprintf(stderr, "%d %d: %s\n", (int)now_ms() % 100000, (int)level, line);
}

static coll_config config_of(const plan *p)
{
    return (coll_config){ .address = where, .start_timeout_ms = START_MS, .liveness_timeout_ms = LIVENESS_MS, .elastic = MOST,
                          .tcp = { .io = "poll", .security = modes[p->mode].security, .key = modes[p->mode].key,
                                   .hosts = *hosts ? hosts : NULL }, .log = log_line };
}

/* A long sum, in memory that other processes may read. */
static coll_status work_on_long(coll_comm *comm, int process, const report *r, int *wrong)
{
    enum { LONG = 50000 };
    uint32_t *const x = coll_alloc(comm, LONG * sizeof *x);

    if (!x) return COLL_ERR_MEMORY;
    for (uint32_t i = 0; i < LONG; i++) x[i] = (i + 1) << process;
    const coll_status status = coll_allreduce(comm, x, x, LONG, COLL_U32, COLL_SUM);
    for (uint32_t i = 0; status == COLL_OK && i < LONG; i++) *wrong += x[i] != (i + 1) * r->members;
    coll_dealloc(comm, x);
    return status;
}

/* Who is here, in the order of ranks, and a sum whose bits depend on it. */
static coll_status work(coll_comm *comm, int process, report *r)
{
    int32_t ids[MOST], id = process;
    float x[1000], sum[1000];
    int wrong = 0;
    coll_status status = coll_allgather(comm, &id, ids, 1, COLL_I32);

    r->size = coll_size(comm);
    r->rank = coll_rank(comm);
    for (int i = 0; i < 1000; i++) x[i] = 1.0f / (float)(1 + i + 1000 * process);
    if (status == COLL_OK) status = coll_reduce(comm, x, sum, 1000, COLL_F32, COLL_SUM, 0);
    if (status == COLL_OK) status = coll_allreduce(comm, x, sum, 1000, COLL_F32, COLL_MAX);
    r->members = 0;
    for (int i = 0; status == COLL_OK && i < r->size; i++) r->members |= 1u << ids[i];
    for (int i = 0; status == COLL_OK && i < 1000; i++) {
        float most = 0;
        for (int k = 0; k < r->size; k++) {
            const float one = 1.0f / (float)(1 + i + 1000 * ids[k]);
            if (one > most) most = one;
        }
        wrong += memcmp(&most, &sum[i], sizeof most) != 0;
    }
    for (int i = 1; status == COLL_OK && i < r->size; i++) wrong += ids[i] < members_at_first && ids[i] <= ids[i - 1];
    if (status == COLL_OK) {
        double mine = 1.0 / (3 + process), all = 0, expected = 0;
        const coll_call call = { .kind = COLL_ALLREDUCE, .send = &mine, .recv = &all, .count = 1, .type = COLL_F64,
                                 .op = COLL_SUM, .flags = COLL_REPRODUCIBLE };
        double again[MOST];
        status = coll_run(comm, &call);
        if (status == COLL_OK) status = coll_allgather(comm, &all, again, 1, COLL_F64);
        for (int i = 0; status == COLL_OK && i < r->size; i++) {
            expected += 1.0 / (3 + ids[i]);
            wrong += memcmp(&again[i], &all, sizeof all) != 0;
        }
        wrong += status == COLL_OK && (all > expected * (1 + 1e-12) || all < expected * (1 - 1e-12));
    }
    if (status == COLL_OK) status = work_on_long(comm, process, r, &wrong);
    if (wrong) fprintf(stderr, "%s: process %d: %d wrong values\n", case_name, process, wrong);
    return wrong ? COLL_ERR_SYSTEM : status;
}

static void settle(report *r, coll_comm *comm, int process)
{
    static float any[2];
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = any, .recv = any, .count = 1, .type = COLL_F32 };
    char text[400];

    if (r->status == COLL_OK) r->status = work(comm, process, r);
    if (r->status == COLL_OK) r->is_shared = coll_explain(comm, &call, text, sizeof text) > 0 && strstr(text, "own way");
    if (r->status < 0 && comm) snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm));
    r->is_done = 1;
}

/* Again while the network may heal. */
static coll_status shrink(coll_comm *comm, coll_comm **next, const plan *p)
{
    const int64_t until = now_ms() + 2 * CUT_MS;
    coll_status status;

    do status = coll_shrink(comm, next);
    while (status == COLL_ERR_PEER && p->heal_ms && now_ms() < until && !strstr(coll_error(comm), "given this rank up"));
    return status;
}

/* Where the network is cut: go on until those that are not in this world have ended.  They may still ask. */
static coll_status await_others(coll_comm *comm, const plan *p, const report *r)
{
    coll_status status = COLL_OK;

    for (int is_over = p->cut == 0; status == COLL_OK && !is_over; poll(NULL, 0, 5)) {
        is_over = 1;
        for (int i = 0; i < p->members + p->newcomers; i++)
            is_over &= r->members >> i & 1 || __atomic_load_n(&board->of[i].is_done, __ATOMIC_SEQ_CST);
        status = coll_allreduce(comm, COLL_IN_PLACE, &is_over, 1, COLL_I32, COLL_MAX);
    }
    return status;
}

/* Work, without those that die. */
static void go_on(coll_comm **comm, int process, const plan *p, report *r)
{
    while (r->status == COLL_OK && (work(*comm, process, r) == COLL_ERR_PEER || await_others(*comm, p, r) == COLL_ERR_PEER)) {
        coll_comm *next = NULL;
        r->status = shrink(*comm, &next, p);
        if (r->status == COLL_OK) coll_free(*comm), *comm = next;
    }
    settle(r, *comm, process);
}

/* Grow until it has, or fails; then shrink. */
static coll_status grow(coll_comm **comm, const plan *p)
{
    coll_comm *next = NULL;
    coll_status status = COLL_OK;

    while (coll_rank(*comm) == 0 && coll_waiting(*comm)
           < p->newcomers - __builtin_popcount(__atomic_load_n(&board->dead, __ATOMIC_SEQ_CST) >> p->members)) poll(NULL, 0, 1);
    status = coll_grow(*comm, &next);
    if (cuts_network) await_cut();                /* it has needed fewer sends                                */
    sends_left = 0;
    if (status == COLL_ERR_PEER) status = shrink(*comm, &next, p);
    if (status < 0 || !next) return status;
    coll_free(*comm);
    *comm = next;
    return status;
}

/* Replace rank 0; again if more die meanwhile. */
static coll_status replace(coll_comm **comm, int rank, const plan *p)
{
    const int64_t until = now_ms() + 2 * CUT_MS;
    coll_comm *next = NULL;
    coll_status status = COLL_OK;

    if (rank == 0) kill(getpid(), SIGKILL);
    while (status == COLL_OK) status = coll_barrier(*comm);
    if (p->dies == rank) sends_left = p->at_send, dies_within_table = p->within_table;
    do status = coll_replace(*comm, &next);
    while (status == COLL_ERR_PEER && now_ms() < until && !strstr(coll_error(*comm), "given this rank up"));
    sends_left = 0;
    if (status < 0) return status;
    coll_free(*comm);
    *comm = next;
    return status;
}

static int member_main(const plan *p, int rank)
{
    report *const r = &board->of[rank];
    coll_config config = config_of(p);
    coll_comm *comm;

    config.rank = rank, config.size = p->members;
    if (p->cut) config.start_timeout_ms = CUT_MS;
    if (p->dies == rank) dies_at_decision = p->at_decision;           /* before there are threads             */
    if (p->tells_all) decisions_all = 2 * (p->members - 1) + p->newcomers;
    if ((r->status = coll_init(&comm, &config)) < 0) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
    const coll_status status = coll_barrier(comm);
    cuts_network = p->cut && p->dies == rank;
    if (p->dies == rank && !p->replaces) sends_left = p->at_send;
    r->status = status < 0 && status != COLL_ERR_PEER ? status : p->replaces ? replace(&comm, rank, p) : grow(&comm, p);
    go_on(&comm, rank, p, r);
    coll_free(comm);
    return 0;
}

static int newcomer_main(const plan *p, int process)
{
    report *const r = &board->of[process];
    coll_config config = config_of(p);
    coll_comm *comm = NULL;

    config.start_timeout_ms = JOIN_MS;
    if (p->replaces) config.address = hosts, config.start_timeout_ms = JOIN_MS / 2;       /* one is not taken  */
    if (p->dies == process) sends_left = p->at_send;
    r->status = coll_join(&comm, &config);
    sends_left = 0;
    if (r->status < 0) snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(NULL));
    if (comm) go_on(&comm, process, p, r);
    r->is_done = 1;
    if (comm) coll_free(comm);
    return 0;
}

static pid_t start(int (*body)(const plan *p, int process), const plan *p, int process)
{
    const pid_t child = fork();

    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(CASE_SECONDS / 2);
    if (p->cut) snprintf(where, sizeof where, "%s:4711", process > 0 ? "10.77.0.1" : "");
    if (p->cut && !net_enter(&network, process)) exit(4);
    exit(body(p, process));
}

/* Each host of `to` receives nothing from those of `from`. */
static void cut(unsigned to, unsigned from)
{
    char list[200] = "", lines[400];

    for (int i = 0; i < NET_HOSTS_MOST; i++)
        if (from >> i & 1) snprintf(list + strlen(list), sizeof list - strlen(list), "%s10.77.0.%d", *list ? ", " : "", i + 1);
    snprintf(lines, sizeof lines, "table inet t {\n chain i { type filter hook input priority 0; ip saddr { %s } drop; }\n}\n",
             list);
    for (int i = 0; i < NET_HOSTS_MOST; i++)
        if (to >> i & 1) CHECK(net_run(&network, i, "nft", lines) == 0, "%s: host %d is not cut off", case_name, i);
}

static void heal(void)
{
    for (int i = 0; i < NET_HOSTS_MOST; i++)
        CHECK(net_run(&network, i, "nft", "flush ruleset\n") == 0, "%s: host %d is not healed", case_name, i);
}

/* Cut the network when rank 0 has come that far, and heal it. */
static void run_cut(const plan *p)
{
    const unsigned all = (1u << (p->members + p->newcomers)) - 1;

    while (!__atomic_load_n(&board->is_cutting, __ATOMIC_SEQ_CST)) poll(NULL, 0, 1);
    cut(p->cut, all & ~p->cut);
    if (!p->is_one_way) cut(all & ~p->cut, p->cut);
    __atomic_store_n(&board->is_cut, 1, __ATOMIC_SEQ_CST);
    if (p->heal_ms) poll(NULL, 0, p->heal_ms), heal();
}

/* A port for each member, the list of them, and where rank 0 listens. */
static void reserve_hosts(int members, int *ports)
{
    char one[sizeof where];

    *hosts = '\0';
    for (int i = 0; i < members; i++) {
        ports[i] = support_reserve_port(one, sizeof one);
        if (i == 0) memcpy(where, one, sizeof where);
        snprintf(hosts + strlen(hosts), sizeof hosts - strlen(hosts), "%s%s", i ? "," : "", one);
    }
}

/* Run all of a plan's processes.  Returns those that were killed.  Of a death at a decision of the second world: those that
 * have it leave that world, and rank 0 tells all others so before it dies. */
static unsigned run_plan(const plan *p)
{
    const int count = p->members + p->newcomers;
    const int ports_most = p->replaces ? p->members : 1;
    pid_t pids[MOST];
    unsigned gone = 0;
    int ports[MOST];

    const int knowing = p->at_decision - p->members;                  /* of the second world                  */

    memset(board, 0, sizeof *board);
    board->byes_most = knowing > 0 ? knowing * (count - 1 - knowing) : 0;
    members_at_first = p->replaces ? 0 : p->members;
    reserve_hosts(ports_most, ports);
    if (!p->replaces) *hosts = '\0';
    fflush(NULL);
    for (int i = 0; i < count; i++) pids[i] = start(i < p->members ? member_main : newcomer_main, p, i);
    if (p->cut) run_cut(p);
    for (int n = 0; n < count; n++) {
        int status = 0, i = 0;
        const pid_t ended = waitpid(-1, &status, 0);
        while (i < count && pids[i] != ended) i++;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) gone |= 1u << i;
        __atomic_store_n(&board->dead, gone, __ATOMIC_SEQ_CST);
        if (!(gone >> i & 1)) CHECK(status == 0, "%s: process %d ended with %#x", case_name, i, (unsigned)status);
    }
    if (p->cut) heal();
    for (int i = 0; i < ports_most; i++) if (ports[i] >= 0) close(ports[i]);
    return gone;
}

/* All that live have one communicator. */
static void evaluate(const plan *p, unsigned gone)
{
    const unsigned all = ((1u << (p->members + p->newcomers)) - 1) & ~gone, old = (1u << p->members) - 1;
    const int left = __builtin_popcount(all & old);
    const bool is_enough = !p->cut && (2 * left > p->members || (2 * left == p->members && (all & 1)));
    unsigned last = 0;

    for (int i = 0; i < p->members + p->newcomers; i++) {
        const report *r = &board->of[i];
        if (gone >> i & 1) continue;
        CHECK(r->is_done, "%s: process %d has not ended", case_name, i);
        if (i < p->members)
            CHECK(!is_enough || r->status == COLL_OK, "%s: process %d: %d: %s", case_name, i, (int)r->status, r->sentence);
        if (r->status < 0) continue;
        CHECK(last == 0 || last == r->members, "%s: process %d is with %#x, and another one with %#x", case_name, i, r->members,
              last);
        CHECK(r->members >> i & 1 && !(r->members & gone), "%s: process %d is with %#x", case_name, i, r->members);
        CHECK((gone && !p->within_table) || p->cut || r->members == all, "%s: process %d is with %#x of %#x", case_name, i,
              r->members, all);
        CHECK(r->is_shared || !COLL__HAS_DOMAIN || r->size == 1 || modes[p->mode].is_tls || p->cut || p->has_hosts,
              "%s: process %d shares no memory with the others of its host", case_name, i);
        last = r->members;
    }
    CHECK(last || !p->heal_ms, "%s: no process goes on", case_name);
    for (int i = 0; i < p->members + p->newcomers; i++)
        CHECK(!(last >> i & 1) || board->of[i].status == COLL_OK, "%s: process %d of the world %#x: %d: %s",
              case_name, i, last, (int)board->of[i].status, board->of[i].sentence);
}

static void run_one(const void *at)
{
    const plan *p = at;

    const int64_t began = now_ms();
    evaluate(p, run_plan(p));
    if (getenv("COLL_TEST_LOG")) fprintf(stderr, "%s: %d ms\n", case_name, (int)(now_ms() - began));
}

static void name_plan(char *name, size_t room, const plan *p)
{
    snprintf(name, room, "%s, %d members, %d newcomers%s", modes[p->mode].name, p->members, p->newcomers,
             p->replaces ? ", rank 0 is replaced" : "");
    if (p->cut)
        snprintf(name + strlen(name), room - strlen(name), ", %#x cut off%s at send %d, healed after %d ms", p->cut,
                 p->is_one_way ? " one way" : "", p->at_send, p->heal_ms);
    else if (p->dies >= 0)
        snprintf(name + strlen(name), room - strlen(name), ", process %d dies at %s %d", p->dies, p->within_table ? "table"
                 : p->at_send ? "send" : p->tells_all ? "the last of the decisions from" : "decision",
                 p->at_send + p->at_decision + p->within_table);
}

static void run(plan p)
{
    char name[120];

    name_plan(name, sizeof name, &p);
    run_case_within(CASE_SECONDS, run_one, &p, name);
}

static bool is_there(int mode)
{
#if defined(COLL_WITH_OPENSSL)
    return mode >= 0;
#else
    return !modes[mode].is_tls;
#endif
}

/* ---- >>parts ---- */

static void part_join(void)
{
    for (int members = 1; members <= 4; members++) run((plan){ .members = members, .newcomers = 1, .dies = -1 });
}

static void part_several(void)
{
    for (int mode = 0; mode < MODE_COUNT; mode++)
        if (is_there(mode)) run((plan){ .members = 3, .newcomers = 3, .mode = mode, .dies = -1 });
    run((plan){ .members = 1, .newcomers = 5, .dies = -1 });
}

/* A process joins by loopback on the host of rank 0, and a rank of another host must reach it; or the process is the one on
 * another host, which cannot reach a job that began at a loopback address. */
typedef struct placed { const char *name, *addresses[3]; int away, members; } placed;

static void run_hosts(const void *at)
{
    const placed *const l = at;
    const plan p = { .members = l->members, .newcomers = 1, .dies = -1, .has_hosts = true };
    const int count = p.members + p.newcomers;
    pid_t pids[3];
    net n;

    if (!net_become_root() || !net_make(&n)) {
        CHECK(geteuid() != 0 || n.is_refused, "%s: no network, for root: %s", case_name, n.why);
        printf("%s: skipped: no network\n", case_name);
        return;
    }
    memset(board, 0, sizeof *board);
    members_at_first = p.members;
    for (int i = 0; i < count; i++) {
        snprintf(where, sizeof where, "%s", l->addresses[i]);
        if ((pids[i] = fork()) != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(CASE_SECONDS / 2);
        exit(net_enter(&n, i == l->away) ? (i < p.members ? member_main : newcomer_main)(&p, i) : 4);
    }
    for (int i = count - 1, status = 0; i >= 0; i--) {
        CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "%s: process %d ended with %#x", case_name, i,
              (unsigned)status);
        if (board->of[i].status < 0) __atomic_fetch_or(&board->dead, 1u << i, __ATOMIC_SEQ_CST);
    }
    if (l->members > 1) evaluate(&p, 0);
    else CHECK(board->of[1].status == COLL_ERR_TIMEOUT && strstr(board->of[1].sentence, "began at a loopback address"),
               "%s: %d \"%s\"", case_name, board->of[1].status, board->of[1].sentence);
    net_end(&n);
}

static void part_hosts(void)
{
    static const placed all[] = {
        { "hosts", { ":4711", "10.77.0.1:4711", "127.0.0.1:4711" }, 1, 2 },
        { "hosts, the newcomer's is another", { ":4711", "127.0.0.1:4711", "10.77.0.1:4711" }, 2, 2 },
        { "hosts, the job's is loopback", { "127.0.0.1:4711", "10.77.0.1:4711" }, 1, 1 },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) run_case_within(CASE_SECONDS, run_hosts, &all[i], all[i].name);
}

static void run_refusals(const void *at)
{
    static const struct { const char *name, *key, *world, *says; int elastic; coll_status status; } cases[] = {
        { "wrong key", "another key of 16 bytes", "", "COLL_KEY", MOST, COLL_ERR_DENIED },
        { "no key", NULL, "", "key", MOST, COLL_ERR_DENIED },
        { "another job", "a key of sixteen bytes", "other", "COLL_WORLD", MOST, COLL_ERR_PROTOCOL },
        { "not elastic", "a key of sixteen bytes", "", "COLL_ELASTIC", 0, COLL_ERR_PROTOCOL },
        { "never taken", "a key of sixteen bytes", "", "not taken", MOST, COLL_ERR_TIMEOUT },
    };
    const int port = support_reserve_port(where, sizeof where);
    plan p = { .members = 1, .newcomers = 1, .mode = 1, .dies = -1 };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {       /* whether the job makes calls, or computes */
        const bool is_idle = i % 2 != (size_t)(*(const int *)at);
        int status = 0, ends[2];
        coll_config config = config_of(&p);
        coll_comm *comm = NULL;
        char byte = 0;
        CHECK(!pipe(ends), "pipe");
        fflush(NULL);
        pid_t children[2];
        for (int rank = 0; rank < 2; rank++) {    /* a job that never grows                                   */
            if ((children[rank] = fork()) != 0) continue;
            config.rank = rank, config.size = 2;
            config.elastic = cases[i].elastic ? cases[i].elastic : -1;
            if (coll_init(&comm, &config)) exit(2);
            if (rank == 0) (void)!write(ends[1], "", 1);
            while (poll(NULL, 0, is_idle ? -1 : 5) == 0) if (coll_barrier(comm)) exit(3);
        }
        config.start_timeout_ms = 1500;
        config.tcp.key = cases[i].key;
        config.tcp.security = cases[i].key ? "key" : "open";
        config.world = cases[i].world;
        CHECK(read(ends[0], &byte, 1) == 1, "%s: the job has begun", cases[i].name);
        const coll_status joined = coll_join(&comm, &config);
        CHECK(joined == cases[i].status && strstr(coll_error(NULL), cases[i].says), "%s: %d: %s", cases[i].name, (int)joined,
              coll_error(NULL));
        CHECK(!comm, "%s: a communicator", cases[i].name);
        for (int rank = 0; rank < 2; rank++) {
            kill(children[rank], SIGKILL);
            (void)waitpid(children[rank], &status, 0);
        }
        close(ends[0]);
        close(ends[1]);
    }
    if (port >= 0) close(port);
}

/* What a process that may not join gets. */
static void part_wrong(void)
{
    for (int first = 0; first < 2; first++)
        run_case_within(CASE_SECONDS, run_refusals, &first, first ? "wrong, even cases compute" : "wrong, odd cases compute");
}

/* ---- >>processes of several ranks ---- */

enum { EACH = 2, PARTS = 3 };                     /* ranks of a process; processes                            */

typedef struct thread_part { pthread_t thread; coll_comm *comm; plan plan; int number; } thread_part;

/* A rank that is a thread of its process: grow until all are there. */
static void *thread_main(void *at)
{
    thread_part *const p = at;
    report *const r = &board->of[p->number];
    const coll_config config = config_of(&p->plan);
    coll_comm *next = NULL;

    if (!p->comm) r->status = coll_join(&p->comm, &config);
    while (r->status == COLL_OK && coll_size(p->comm) < EACH * PARTS) {
        r->status = coll_grow(p->comm, &next);
        if (r->status == COLL_OK && next) coll_free(p->comm), p->comm = next;
    }
    settle(r, p->comm, p->number);
    if (p->comm) coll_free(p->comm);
    return NULL;
}

static int threads_process(int process)
{
    thread_part parts[EACH];
    coll_comm *comms[EACH] = { NULL };
    coll_config config = config_of(&(plan){ .mode = 0 });

    config.size = EACH;
    const coll_status status = process ? COLL_OK : coll_init_threads(EACH, comms, &config);
    if (status < 0) return fprintf(stderr, "%s: %s\n", case_name, coll_error(NULL)), 1;
    for (int i = 0; i < EACH; i++) {
        parts[i] = (thread_part){ .comm = comms[i], .plan = { .mode = 0 }, .number = process * EACH + i };
        if (pthread_create(&parts[i].thread, NULL, thread_main, &parts[i])) return 2;
    }
    for (int i = 0; i < EACH; i++) pthread_join(parts[i].thread, NULL);
    return 0;
}

static int takes_none(coll_comm *comm, void *arg)
{
    coll_comm *next = NULL;

    (void)arg;
    return coll_waiting(comm) != 0 || coll_grow(comm, &next) != COLL_ERR_UNSUPPORTED || next
           || !strstr(coll_error(comm), "no process can join over the transport \"threads\"");
}

/* All ranks are in one process at first. */
static void run_threads(const void *at)
{
    const int port = support_reserve_port(where, sizeof where);
    const coll_config spawned = { .elastic = MOST };
    pid_t children[PARTS];
    int status = 0;

    (void)at;
    memset(board, 0, sizeof *board);
    *hosts = '\0';
    CHECK(coll_spawn(2, takes_none, NULL, &spawned) == 0, "%s: coll_spawn grows", case_name);
    fflush(NULL);
    for (int i = 0; i < PARTS; i++) if ((children[i] = fork()) == 0) exit(threads_process(i));
    for (int i = 0; i < PARTS; i++)
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0, "%s: process %d ends with %#x", case_name, i,
              (unsigned)status);
    for (int i = 0; i < EACH * PARTS; i++) {
        const report *const r = &board->of[i];
        CHECK(r->status == COLL_OK && r->members == (1u << EACH * PARTS) - 1, "%s: rank %d is with %#x: %d: %s", case_name, i,
              r->members, (int)r->status, r->sentence);
        CHECK(r->is_shared || !COLL__HAS_DOMAIN, "%s: rank %d shares no memory with the others", case_name, i);
    }
    if (port >= 0) close(port);
}

static void part_threads(void) { run_case_within(CASE_SECONDS, run_threads, NULL, "threads of three processes"); }

/* A death at each send of a grow, of rank 0, another member, and a newcomer; and when rank 0 is replaced, of the first member,
 * another one, and a newcomer. */
static void part_deaths(void)
{
    const int most = support_scale() < 1 ? 12 : 40, by = support_scale() < 1 ? 4 : 1;

    for (int process = 0; process < 5; process += 2)
        for (int at = 1; at <= most; at += by)
            run((plan){ .members = 3, .newcomers = 2, .mode = is_there(at % MODE_COUNT) ? at % MODE_COUNT : 0, .dies = process,
                        .at_send = at });
    for (int process = 1; process < 6; process += 2)
        for (int at = 1; at <= most; at += 6 * by)
            run((plan){ .members = 5, .newcomers = 2, .dies = process, .at_send = at, .replaces = true });
}

/* Rank 0 is replaced, and the next one dies when it has sent a newcomer a part of the table: that one waits again. */
static void part_table(void)
{
    run((plan){ .members = 5, .newcomers = 2, .dies = 1, .within_table = true, .replaces = true });
}

/* Rank 0 dies when some have its decision: on the second world, with the newcomers in it, or on the third one.  Or when all
 * have it, and rank 1 had left the second world when the others got it. */
static void part_decisions(void)
{
    for (int at = 1; at <= 6; at++) run((plan){ .members = 3, .newcomers = 2, .at_decision = at });
    run((plan){ .members = 3, .newcomers = 2, .at_decision = 4, .tells_all = true });
}

/* The network is cut while rank 0 takes newcomers: there is one world at most, and one when it has healed. */
static void part_cuts(void)
{
    static const struct { int members, newcomers; unsigned cut; bool is_one_way; } all[] = {
        { 3, 2, 0x03, false }, { 3, 2, 0x1c, true }, { 3, 2, 0x09, false }, { 3, 2, 0x01, true },
        { 4, 1, 0x03, false }, { 4, 1, 0x0c, true }, { 2, 2, 0x05, false }, { 2, 2, 0x03, false },
    };
    const int count = sizeof all / sizeof *all;

    if (!net_become_root() || !net_make(&network)) {
        CHECK(geteuid() != 0 || network.is_refused, "cuts: no network, for root: %s", network.why);
        printf("cuts: skipped: no network\n");
        return;
    }
    for (int i = 0; i < count; i++)
        run((plan){ .members = all[i].members, .newcomers = all[i].newcomers, .at_send = 3 + 4 * i, .cut = all[i].cut,
                    .is_one_way = all[i].is_one_way, .heal_ms = i % 3 ? HEAL_MS : 0 });
    net_end(&network);
}

/* ---- >>many grows: nothing is left of those that were there ---- */

static int descriptors_open(void)
{
    DIR *const all = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(all)) count++;
    closedir(all);
    return count;
}

static int cycling_member(const plan *p, int rank)
{
    static counter own;
    static const coll_allocator counting = { counter_allocate, counter_free, &own };
    report *const r = &board->of[rank];
    coll_config config = config_of(p);
    coll_comm *comm, *next;

    config.allocator = &counting;
    config.rank = rank, config.size = p->members;
    if ((r->status = coll_init(&comm, &config)) < 0) return 1;
    for (int i = 0; i < CYCLES && r->status == COLL_OK; i++) {
        while (rank == 0 && coll_waiting(comm) == 0) poll(NULL, 0, 1);
        r->status = coll_grow(comm, &next);
        if (r->status < 0 || !next) break;
        coll_free(comm);
        comm = next;
        while (work(comm, rank, r) == COLL_OK) continue;          /* until the newcomer dies                  */
        r->status = coll_shrink(comm, &next);
        if (r->status < 0) break;
        coll_free(comm);
        comm = next;
        r->status = work(comm, rank, r);
        if (rank > 0) continue;
        board->descriptors[i] = descriptors_open();
        board->bytes[i] = __atomic_load_n(&own.bytes, __ATOMIC_RELAXED);
        __atomic_store_n(&board->cycles, i + 1, __ATOMIC_SEQ_CST);
    }
    settle(r, comm, rank);
    coll_free(comm);
    return own.blocks == 0 ? 0 : 3;
}

static int cycling_newcomer(const plan *p, int process)
{
    coll_config config = config_of(p);
    coll_comm *comm = NULL;
    report own;

    if (coll_join(&comm, &config) || work(comm, process, &own)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
    return kill(getpid(), SIGKILL);
}

static void run_many(const void *at)
{
    const plan *p = at;
    const int port = support_reserve_port(where, sizeof where);
    pid_t pids[MOST];
    int status;

    memset(board, 0, sizeof *board);
    members_at_first = p->members;
    for (int i = 0; i < p->members; i++) pids[i] = start(cycling_member, p, i);
    for (int i = 0; i < CYCLES; i++) {
        (void)waitpid(start(cycling_newcomer, p, MOST - 1), &status, 0);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s: newcomer %d ended with %#x", case_name, i,
              (unsigned)status);
        while (__atomic_load_n(&board->cycles, __ATOMIC_SEQ_CST) == i && !kill(pids[0], 0)) poll(NULL, 0, 1);
    }
    for (int i = 0; i < p->members; i++) {
        (void)waitpid(pids[i], &status, 0);
        CHECK(status == 0 && board->of[i].status == COLL_OK, "%s: member %d ended with %#x: %s", case_name, i, (unsigned)status,
              board->of[i].sentence);
    }
    for (int i = CYCLES / 2; i < CYCLES; i++)     /* the last decisions are kept (coll_tcp_shrink.h)          */
        CHECK(board->descriptors[i] == board->descriptors[i - 1] && board->bytes[i] == board->bytes[i - 1],
              "%s: after %d grows %d descriptors and %ld bytes, then %d and %ld", case_name, i, board->descriptors[i - 1],
              board->bytes[i - 1], board->descriptors[i], board->bytes[i]);
    if (port >= 0) close(port);
}

static void part_many(void)
{
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        const plan p = { .members = 2, .newcomers = 1, .mode = mode, .dies = -1 };
        char name[120];
        name_plan(name, sizeof name, &p);
        if (is_there(mode)) run_case_within(CASE_SECONDS, run_many, &p, name);
    }
}

/* ---- >>coll_replace: rank after rank dies, 0 among them, and a process that waits takes its place ---- */

enum { REPLACED = 3, REPLACES = 12,               /* ranks that die in turn; how often                        */
       HAS_FEWER = 100, HAS_ONE_PLACE, HAS_LATER, STALL_MS = 1500 };  /* instead of `at_send`                     */

static bool keeps_ranks(coll_comm *before, coll_comm *after, unsigned died)
{
    bool is_kept = coll_rank(after) == coll_rank(before) && coll_size(after) == coll_size(before);

    for (int i = 0; is_kept && i < coll_size(after); i++)
        is_kept = coll_former_rank(after, i) == (died >> i & 1 ? COLL_RANK_NONE : i);
    return is_kept;
}

/* Works, and dies in turn, or has another one replaced.  `own`: of a process that lives. */
static coll_status replace_in_turn(coll_comm **comm, int process, const counter *own)
{
    report r;
    coll_comm *next;
    coll_status status;

    for (int32_t cycle = 0;; cycle++) {
        status = coll_allreduce(*comm, COLL_IN_PLACE, &cycle, 1, COLL_I32, COLL_MAX);         /* one may be new */
        if (status == COLL_OK) status = work(*comm, process, &r);
        for (int look = 0; own && cycle > 0 && look < 20; look++, poll(NULL, 0, 2)) {         /* least: some may call */
            const int descriptors = descriptors_open();
            const long bytes = __atomic_load_n(&own->bytes, __ATOMIC_RELAXED);
            if (look == 0 || descriptors < board->descriptors[cycle - 1]) board->descriptors[cycle - 1] = descriptors;
            if (look == 0 || bytes < board->bytes[cycle - 1]) board->bytes[cycle - 1] = bytes;
        }
        if (status < 0 || cycle == REPLACES) return status;
        status = coll_barrier(*comm);
        const int victim = cycle % REPLACED;
        if (coll_rank(*comm) == victim) kill(getpid(), SIGKILL);
        while (status == COLL_OK) status = coll_barrier(*comm);
        if ((status = coll_replace(*comm, &next)) < 0) return status;
        if (!keeps_ranks(*comm, next, 1u << victim))
            return fprintf(stderr, "%s: process %d: rank %d of %d was %d of %d\n", case_name, process, coll_rank(next),
                           coll_size(next), coll_rank(*comm), coll_size(*comm)), COLL_ERR_SYSTEM;
        coll_free(*comm);
        *comm = next;
    }
}

/* Ranks 0 and 2 of five die, and one process takes the place of rank 0: those behind rank 2 move up. */
static coll_status replace_some(coll_comm **comm, int process)
{
    static const int former[] = { COLL_RANK_NONE, 1, 3, 4 };
    const bool is_new = process >= 5;
    coll_comm *next = *comm;
    report r;
    coll_status status = COLL_OK;
    int32_t ids[MOST], id = process, wrong = 0;

    if (process == 0 || process == 2) kill(getpid(), SIGKILL);
    while (!is_new && status == COLL_OK) status = coll_barrier(*comm);
    if (!is_new && (status = coll_replace(*comm, &next)) < 0) return status;
    if (!is_new) coll_free(*comm), *comm = next;
    status = work(next, process, &r);
    if (status == COLL_OK) status = coll_allgather(next, &id, ids, 1, COLL_I32);
    for (int i = 0; status == COLL_OK && i < 4; i++)
        wrong += ids[i] != (i == 0 ? 5 : former[i]) || coll_former_rank(next, i) != (is_new ? COLL_RANK_NONE : former[i]);
    return wrong || r.size != 4 ? COLL_ERR_SYSTEM : status;
}

static void die(int number) { (void)number, kill(getpid(), SIGKILL); }

/* Rank 1 of five dies.  While the others replace it, process `dies` does, too; only then processes come, for both. */
static coll_status replace_later(coll_comm **comm, int process, const plan *p)
{
    const struct itimerval moment = { .it_value = { .tv_usec = p->heal_ms * 1000 } };
    coll_comm *next = *comm;
    report r;
    coll_status status = COLL_OK;

    if (process == 1) die(0);
    if (process >= p->members) return work(next, process, &r);
    while (status == COLL_OK) status = coll_barrier(*comm);
    if (process == p->dies) (void)signal(SIGALRM, die), (void)setitimer(ITIMER_REAL, &moment, NULL);
    do status = coll_replace(*comm, &next);
    while (status == COLL_ERR_PEER);
    if (status < 0) return status;
    if (!keeps_ranks(*comm, next, 1u << 1 | 1u << p->dies))
        return fprintf(stderr, "%s: rank %d of %d was %d of %d\n", case_name, coll_rank(next), coll_size(next),
                       coll_rank(*comm), coll_size(*comm)), COLL_ERR_SYSTEM;
    coll_free(*comm);
    *comm = next;
    return work(next, process, &r);
}

static int replacing_main(const plan *p, int process)
{
    static counter own;
    static const coll_allocator counting = { counter_allocate, counter_free, &own };
    const bool is_last = process == p->members - 1, is_new = process >= p->members;
    const bool has_fewer = p->at_send == HAS_FEWER || p->at_send == HAS_ONE_PLACE;
    coll_config config = config_of(p);
    coll_comm *comm = NULL;

    config.allocator = &counting;
    config.rank = process, config.size = p->members;
    if (is_new) config.address = hosts;
    if (has_fewer && !is_new) config.start_timeout_ms = JOIN_MS / 2, config.stall_timeout_ms = STALL_MS;
    if (p->at_send == HAS_ONE_PLACE) config.elastic = 1, config.start_timeout_ms = CASE_SECONDS * 1000;
    coll_status status = is_new ? coll_join(&comm, &config) : coll_init(&comm, &config);
    if (status == COLL_OK)
        status = p->at_send == HAS_LATER ? replace_later(&comm, process, p)
               : has_fewer ? replace_some(&comm, process)
               : replace_in_turn(&comm, process, is_last ? &own : NULL);
    if (status < 0) fprintf(stderr, "%s: process %d: %d: %s\n", case_name, process, (int)status, coll_error(comm));
    if (comm) coll_free(comm);
    return status < 0 ? 1 : own.blocks == 0 ? 0 : 3;
}

/* Each process that dies has the next one wait. */
static void run_replace(const void *at)
{
    const plan *p = at;
    const bool comes_later = p->at_send == HAS_LATER;
    int ports[MOST], started = 0, killed = 0;

    memset(board, 0, sizeof *board);
    members_at_first = 0;                         /* the order of numbers is another one                      */
    reserve_hosts(p->members, ports);
    while (started < p->members + !comes_later) (void)start(replacing_main, p, started++);
    for (int ended = 0, status; ended < started; ended++) {
        CHECK(wait(&status) > 0, "%s: no process is left", case_name);
        const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        killed += is_killed;
        CHECK(is_killed || status == 0, "%s: a process ended with %#x", case_name, (unsigned)status);
        const int more = !comes_later ? 1 : killed == 2 ? p->newcomers : 0;
        for (int i = 0; is_killed && i < more && started < p->members + p->newcomers; i++)
            (void)start(replacing_main, p, started++);
    }
    CHECK(killed == (p->at_send >= HAS_FEWER ? 2 : p->newcomers), "%s: %d processes were killed", case_name, killed);
    const int half = REPLACES / 2 - 1, last = REPLACES - 1;           /* at the last one none calls           */
    CHECK(board->descriptors[last] <= board->descriptors[half] && board->bytes[last] <= board->bytes[half],
          "%s: after %d replacements %d descriptors and %ld bytes, then %d and %ld", case_name, half + 1,
          board->descriptors[half], board->bytes[half], board->descriptors[last], board->bytes[last]);
    for (int i = 0; i < p->members; i++) if (ports[i] >= 0) close(ports[i]);
}

static void part_replace(void)
{
    static const plan fewer[] = { { .members = 5, .newcomers = 1, .at_send = HAS_FEWER },
                                  { .members = 5, .newcomers = 1, .at_send = HAS_ONE_PLACE } };
    char name[120];

    run_case_within(CASE_SECONDS, run_replace, &fewer[0], "two of five are replaced by one, which takes longer than a stall");
    run_case_within(CASE_SECONDS, run_replace, &fewer[1], "two of five are replaced by one, and only one may wait");
    for (int dies = 0; dies < 5; dies++)
        for (int ms = 1; dies != 1 && ms < 1000; ms *= 9) {
            const plan p = { .members = 5, .newcomers = 2, .at_send = HAS_LATER, .dies = dies, .heal_ms = ms };
            snprintf(name, sizeof name, "rank 1 of five is replaced, and rank %d dies %d ms later", dies, ms);
            run_case_within(CASE_SECONDS, run_replace, &p, name);
        }
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        const plan p = { .members = 4, .newcomers = REPLACES, .mode = mode, .dies = -1 };
        snprintf(name, sizeof name, "%s, %d replacements", modes[mode].name, REPLACES);
        if (is_there(mode)) run_case_within(CASE_SECONDS, run_replace, &p, name);
    }
}

/* ---- >>examples/elastic.c ---- */

/* The line of rank 0 with this in it, or the end of what is written. */
static void await_line(FILE *from, const char *part)
{
    char line[200] = "";

    while (!strstr(line, part)) {
        if (fgets(line, sizeof line, from)) continue;
        CHECK(false, "%s: no line \"%s\"", case_name, part);
        return;
    }
}

/* A rank, or a process that joins. */
static pid_t start_example(const char *program, const char *rank, int out)
{
    const pid_t child = fork();

    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(CASE_SECONDS / 2);
    setenv("COLL_ADDR", where, 1);
    setenv("COLL_SIZE", "3", 1);
    setenv("COLL_RANK", rank, 1);
    setenv("COLL_ELASTIC", "8", 1);
    (void)dup2(out, 1);
    execl(program, program, *rank ? NULL : "join", (char *)NULL);
    exit(127);
}

/* One of three ranks is killed, and a process joins the others: they train on. */
static void run_example(const void *at)
{
    static const char *const ranks[] = { "0", "1", "2", "" };
    char program[300] = "/";
    pid_t pids[4];
    int ends[2], status;
    const int port = support_reserve_port(where, sizeof where);

    (void)at;
    CHECK(readlink("/proc/self/exe", program, sizeof program - 10) > 0, "%s: no path", case_name);
    snprintf(strrchr(program, '/'), 10, "/elastic");
    CHECK(!pipe(ends), "%s: no pipe", case_name);
    for (int i = 0; i < 3; i++) pids[i] = start_example(program, ranks[i], i == 0 ? ends[1] : 2);
    FILE *const lines = support_need(fdopen(ends[0], "r"));
    close(ends[1]);
    await_line(lines, ": 3 ranks");
    kill(pids[1], SIGKILL);
    await_line(lines, ": 2 ranks");
    pids[3] = start_example(program, ranks[3], 2);
    await_line(lines, ": 3 ranks");
    await_line(lines, "rank 0 of 3: y = 3.000 x + 1.000");
    for (int i = 0; i < 4; i++)
        CHECK(waitpid(pids[i], &status, 0) == pids[i] && (i == 1 || status == 0), "%s: process %d ended with %#x", case_name, i,
              (unsigned)status);
    (void)fclose(lines);
    if (port >= 0) close(port);
}

static void part_example(void) { run_case_within(CASE_SECONDS, run_example, NULL, "examples/elastic.c"); }

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } parts[] = {
        { "join", part_join }, { "several", part_several }, { "threads", part_threads }, { "hosts", part_hosts },
        { "wrong", part_wrong }, { "many", part_many }, { "replace", part_replace }, { "deaths", part_deaths },
        { "table", part_table }, { "decisions", part_decisions }, { "cuts", part_cuts }, { "example", part_example },
    };

    cases_begin_without_key();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc < 2 || strstr(argv[1], parts[i].name)) parts[i].run();
    return CHECK_DONE();
}
