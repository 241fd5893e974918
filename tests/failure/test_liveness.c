/* test_liveness.c - the failure detector: a rank is reported never before liveness_timeout_ms of silence, and always by that plus
 * one heartbeat interval.  Silence begins with the last heartbeat.  On a busy machine that one may be up to two intervals older
 * than the event, because the next one was late; test_members checks the limit exactly, in simulated time.
 *
 *     test_liveness [PART,...]          PART: short, long, frozen, forked, links
 *
 *     short       a rank is stopped for less than the limit, again and again: no failure
 *     long        a rank is stopped for good: all others detect it in time, and not before; the same after rank 0 has left
 *     frozen      all are stopped at once, for several times the limit: no failure, for pending input is read first
 *     forked      a rank is killed, and a child that it forked holds its connections: the silence is detected, and without
 *                 heartbeats the end of the child
 *     links       packets between two hosts, or to one of them, are dropped (net.h): both ends report the link
 */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/net.h"

#include <poll.h>
#include <stdarg.h>

enum { CASE_SECONDS = 60, RANKS_MOST = 4, LIVENESS_MS = 1000, BEAT_MS = LIVENESS_MS / 8, SHORT_MS = LIVENESS_MS * 4 / 5,
       TIMES = 5, SLACK_MS = 500, PORT = 20000 };

typedef struct scene {
    const char *key, *io;
    int   size, victim, other;                    /* other: the other end of the link; -1: all links           */
    bool  is_orphaned;                            /* rank 0 leaves first                                      */
    bool  is_idle;                                /* the two ends of the link wait for another                */
    bool  has_child;                              /* the victim forks a child, which lives on                 */
    int   liveness_ms;                            /* 0: LIVENESS_MS                                           */
    char  address[64];
    const net *net;
} scene;

typedef struct report { bool done; coll_status status; int64_t known_at; char cause[300]; } report;

static struct board {
    int64_t event_at;
    int32_t is_over;
    int     ready;
    pid_t   pids[RANKS_MOST], child;
    report  ranks[RANKS_MOST];
} *board;

/* ---- >>ranks ---- */

static void await_ready(int count)
{
    while (__atomic_load_n(&board->ready, __ATOMIC_ACQUIRE) < count) (void)poll(NULL, 0, 1);
}

/* Make calls and compute in turn until the referee ends the case. */
static coll_status work(coll_comm *comm)
{
    coll_status status = COLL_OK;
    int32_t is_over = 0, sum;

    while (!status && !is_over) {
        const int32_t own = __atomic_load_n(&board->is_over, __ATOMIC_ACQUIRE);
        int32_t one = 1;
        status = coll_allreduce(comm, &own, &is_over, 1, COLL_I32, COLL_MAX);
        if (!status) status = coll_allreduce(comm, &one, &sum, 1, COLL_I32, COLL_SUM);
        CHECK(status || sum == coll_size(comm), "%s: rank %d: the sum is %d", case_name, coll_rank(comm), (int)sum);
        (void)poll(NULL, 0, 5);
    }
    return status;
}

/* It has all descriptors of its parent, and is killed by the referee. */
static void have_child(void)
{
    const pid_t child = fork();

    if (child == 0) {
        alarm(CASE_SECONDS);
        for (;;) (void)pause();
    }
    board->child = child;
}

static void rank_main(const scene *s, int rank)
{
    report *r = &board->ranks[rank];
    const coll_config config = { .rank = rank, .size = s->size, .address = s->address,
                                 .tcp = { .key = s->key, .io = s->io, .security = s->key ? "key" : NULL, .share_memory = -1 },
                                 .liveness_timeout_ms = s->liveness_ms ? s->liveness_ms : LIVENESS_MS,
                                 .log_level = COLL_LOG_ERROR };
    coll_comm *comm, *part = NULL;
    int32_t n = 0;

    if (s->net && !net_enter(s->net, rank)) _exit(3);
    r->status = coll_init(&comm, &config);
    if (!r->status) r->status = coll_split(comm, s->is_orphaned && rank == 0, rank, &part);
    if (!r->status) r->status = coll_alltoall(part, NULL, NULL, 0, COLL_I32);
    if (!r->status && !(s->is_orphaned && rank == 0)) {
        for (int i = 0; i < coll_size(part) && !r->status; i++)       /* a connection to each, both ways      */
            if (i != coll_rank(part)) r->status = coll_sendrecv(part, &rank, 1, i, &n, 1, i, COLL_I32, 3);
        if (s->has_child && rank == s->victim) have_child();
        (void)__atomic_add_fetch(&board->ready, 1, __ATOMIC_RELEASE);
        if (!r->status && s->is_idle) r->status = coll_recv(part, &n, 1, COLL_I32, COLL_ANY_SOURCE, 5);
        else if (!r->status) r->status = work(part);
        r->known_at = now_ms();
        snprintf(r->cause, sizeof r->cause, "%s", coll_error(part));
    }
    coll_free(part);
    coll_free(comm);
    r->done = true;
    _exit(check__failed > 0);
}

static void start(scene *s)
{
    int port = -1;

    memset(board, 0, sizeof *board);
    if (s->net) snprintf(s->address, sizeof s->address, "10.77.0.1:%d", PORT);
    else port = support_reserve_port(s->address, sizeof s->address);
    for (int i = 0; i < s->size; i++) {
        const pid_t child = fork();               /* the board is shared: only this process writes there      */
        if (child) board->pids[i] = child;
        if (child) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        support_limit(CASE_SECONDS - 5, report_hang);
        rank_main(s, i);
    }
    case_step = "start";
    if (s->is_orphaned) (void)waitpid(board->pids[0], NULL, 0);
    await_ready(s->size - (s->is_orphaned ? 1 : 0));
    if (port >= 0) close(port);
    for (int i = 0; i < 3 * BEAT_MS; i += 5) (void)poll(NULL, 0, 5);  /* heartbeats have come                 */
}

static void finish(const scene *s, int but)
{
    int status = 0;

    case_step = "the ranks end";
    for (int i = s->is_orphaned ? 1 : 0; i < s->size; i++) {
        if (i == but) continue;
        CHECK(waitpid(board->pids[i], &status, 0) == board->pids[i] && !status, "%s: rank %d ended with %d", case_name, i,
              status);
    }
}

static void rest(int ms)
{
    const int64_t until = now_ms() + ms;
    while (now_ms() < until) (void)poll(NULL, 0, (int)(until - now_ms()));
}

/* ---- >>short, frozen: no rank is dead ---- */

static void short_case(const void *arg)
{
    scene s = *(const scene *)arg;
    const bool is_all = s.victim < 0;

    start(&s);
    case_step = "it is stopped for a while";
    for (int k = 0; k < (is_all ? 2 : TIMES); k++) {
        for (int i = 0; i < s.size; i++) if (is_all || i == s.victim) kill(board->pids[i], SIGSTOP);
        rest(is_all ? 3 * LIVENESS_MS : SHORT_MS);
        for (int i = s.size - 1; i >= 0; i--) if (is_all || i == s.victim) kill(board->pids[i], SIGCONT);
        rest(2 * BEAT_MS);
    }
    __atomic_store_n(&board->is_over, 1, __ATOMIC_RELEASE);
    finish(&s, -1);
    for (int i = s.is_orphaned ? 1 : 0; i < s.size; i++)
        CHECK(board->ranks[i].status == COLL_OK, "%s: rank %d: \"%s\"", case_name, i, board->ranks[i].cause);
}

/* ---- >>long: all detect it in time ---- */

static void long_case(const void *arg)
{
    scene s = *(const scene *)arg;
    char name[40];

    start(&s);
    board->event_at = now_ms();
    kill(board->pids[s.victim], SIGSTOP);
    finish(&s, s.victim);
    snprintf(name, sizeof name, "rank %d (", s.victim);
    for (int i = s.is_orphaned ? 1 : 0; i < s.size; i++) {
        const report *r = &board->ranks[i];
        const int after = (int)(r->known_at - board->event_at);
        if (i == s.victim) continue;
        CHECK(r->status == COLL_ERR_PEER && strstr(r->cause, name) && strstr(r->cause, "no heartbeat"),
              "%s: rank %d: %d \"%s\"", case_name, i, (int)r->status, r->cause);
        CHECK(after >= LIVENESS_MS - BEAT_MS, "%s: rank %d failed after %d ms", case_name, i, after);
        CHECK(after <= support_scaled(LIVENESS_MS + BEAT_MS + SLACK_MS), "%s: rank %d failed after %d ms", case_name, i, after);
    }
    kill(board->pids[s.victim], SIGKILL);
    (void)waitpid(board->pids[s.victim], NULL, 0);
}

/* ---- >>forked: a child holds the connections of a killed rank ---- */

static void forked_case(const void *arg)
{
    scene s = *(const scene *)arg;
    char name[40];

    start(&s);
    CHECK(board->child > 0, "%s: no child", case_name);
    kill(board->pids[s.victim], SIGKILL);
    (void)waitpid(board->pids[s.victim], NULL, 0);
    if (s.liveness_ms < 0) {                      /* no rank knows it while the child lives                   */
        rest(2 * LIVENESS_MS);
        for (int i = 0; i < s.size; i++) CHECK(!board->ranks[i].known_at, "%s: \"%s\"", case_name, board->ranks[i].cause);
        kill(board->child, SIGKILL);
    }
    finish(&s, s.victim);
    if (s.liveness_ms >= 0) kill(board->child, SIGKILL);
    snprintf(name, sizeof name, "rank %d (", s.victim);
    for (int i = 0; i < s.size; i++) {
        const report *r = &board->ranks[i];
        if (i == s.victim) continue;
        CHECK(r->status == COLL_ERR_PEER && strstr(r->cause, name)
              && (strstr(r->cause, "no heartbeat") != NULL) == (s.liveness_ms >= 0), "%s: rank %d: %d \"%s\"", case_name, i,
              (int)r->status, r->cause);
    }
}

/* ---- >>links ---- */

/* From now on packets between these hosts are dropped silently. */
static bool cut(const net *n, int a, int b)
{
    char lines[160], from[20];
    bool is_done = true;

    for (int k = 0; k < 2; k++) {
        snprintf(lines, sizeof lines, "table inet t {\n chain i { type filter hook input priority 0; ip saddr %s drop; }\n}\n",
                 net_address(k ? a : b, from, sizeof from));
        is_done = is_done && !net_run(n, k ? b : a, "nft", lines);
    }
    return is_done;
}

static void link_case(const void *arg)
{
    scene s = *(const scene *)arg;
    net n;
    char one[20], two[20];
    const int a = s.other < 0 ? 0 : s.victim < s.other ? s.victim : s.other, b = s.victim + s.other - a + (s.other < 0);

    if (!net_become_root() || !net_make(&n)) {
        CHECK(geteuid() != 0 || n.is_refused, "%s: no network, for root: %s", case_name, n.why);
        printf("%s: skipped: no network\n", case_name);
        return;
    }
    s.net = &n;
    start(&s);
    board->event_at = now_ms();
    if (s.other < 0) CHECK(net_enter(&n, NET_SWITCH) && net_plug(s.victim, false), "%s: the cable stays in", case_name);
    else CHECK(cut(&n, s.victim, s.other), "%s: nft", case_name);
    finish(&s, -1);
    snprintf(one, sizeof one, "rank %d (", a);
    snprintf(two, sizeof two, "rank %d (", b);
    for (int i = s.is_orphaned ? 1 : 0; i < s.size; i++) {
        const report *r = &board->ranks[i];
        const int after = (int)(r->known_at - board->event_at);
        CHECK(r->status == COLL_ERR_PEER && strstr(r->cause, "the link between ") && strstr(r->cause, one)
              && strstr(r->cause, two), "%s: rank %d: %d \"%s\"", case_name, i, (int)r->status, r->cause);
        CHECK(after >= LIVENESS_MS - BEAT_MS, "%s: rank %d got the error after %d ms", case_name, i, after);
        CHECK(after <= support_scaled(LIVENESS_MS + 2 * BEAT_MS + (s.is_idle ? 1000 : 0) + SLACK_MS + (a > 0 ? 200 : 0)),
              "%s: rank %d got the error after %d ms", case_name, i, after);
    }
    net_end(&n);
}

/* ---- >>all of it ---- */

static void run(void (*body)(const void *arg), scene s, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void run(void (*body)(const void *arg), scene s, const char *format, ...)
{
    char what[100], name[150];
    va_list list;

    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    snprintf(name, sizeof name, "%s, %s", what, s.io);
    run_case_within(CASE_SECONDS, body, &s, name);
}

int main(int argc, char **argv)
{
    const char *const ios[] = { "poll", support_refusal("tcp-uring") ? "poll" : "uring" };
    const char *parts = argc > 1 ? argv[1] : NULL;

    unsetenv("COLL_KEY");
    unsetenv("COLL_SECURITY");
    cases_begin();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED || board == MAP_FAILED) return perror("mmap"), 1;
    world = "liveness";
    for (int k = 0; k < 2; k++) {
        const scene s = { .size = 3, .io = ios[k],
                          .key = k ? "a key of all ranks, 0123456789" : NULL, .victim = -1, .other = -1 };
        for (int victim = 0; victim < 3; victim += 2) {
            scene one = s;
            one.victim = victim;
            if (support_listed(parts, "short")) run(short_case, one, "rank %d is stopped for less than the limit", victim);
            if (support_listed(parts, "long")) run(long_case, one, "rank %d is stopped for good", victim);
        }
        scene left = s;
        left.size = 4;
        left.victim = 2;
        left.is_orphaned = true;
        if (support_listed(parts, "short")) run(short_case, left, "rank 0 has left, rank 2 is stopped for less than the limit");
        if (support_listed(parts, "long")) run(long_case, left, "rank 0 has left, rank 2 is stopped for good");
        if (support_listed(parts, "frozen")) run(short_case, s, "all are stopped");
        scene forked = s;
        forked.has_child = true;
        for (forked.victim = 0; forked.victim < 3; forked.victim += 2) {
            forked.liveness_ms = 0;
            if (support_listed(parts, "forked")) run(forked_case, forked, "rank %d is killed, its child lives", forked.victim);
            forked.liveness_ms = -1;
            if (support_listed(parts, "forked"))
                run(forked_case, forked, "rank %d is killed, its child lives, no heartbeats", forked.victim);
        }
        scene link = s;
        link.victim = 2;
        if (support_listed(parts, "links")) run(link_case, link, "the cable of host 2");
        link.other = 0;
        if (support_listed(parts, "links")) run(link_case, link, "the link of hosts 0 and 2");
        link.other = 1;
        if (support_listed(parts, "links")) run(link_case, link, "the link of hosts 1 and 2");
        link.is_idle = true;
        if (support_listed(parts, "links")) run(link_case, link, "the idle link of hosts 1 and 2");
        link.size = 4, link.is_orphaned = true, link.is_idle = false;
        if (support_listed(parts, "links")) run(link_case, link, "rank 0 has left; the link of hosts 1 and 2");
    }
    return CHECK_DONE();
}
