/* test_failure.c - failures of a job: ranks are processes that are killed, stopped or cut off, in every phase.  All
 * survivors report the same rank with the same sentence within liveness_timeout_ms and a little, leave within 2 s, and go on
 * without it (coll_shrink).
 *
 *     test_failure [WORLD,...] [PART,...]               WORLD: tcp-poll, tcp-uring, tcp-domain, threads
 *                                                       PART: ends, alive, orphans, abort, shrink, paths, astray, dump, stall
 *
 * Every case runs in a process of its own with a time limit; its ranks report in shared memory.
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

enum { RANKS_MOST = 8, CASE_SECONDS = 40, RANK_SECONDS = 25, LARGE = 1 << 20, LIVENESS_MS = 600, SLACK_MS = 1400 };

typedef enum phase { HANDSHAKE, IDLE, WAITING, ASKING, HEADER, PAYLOAD, BETWEEN, TEARDOWN, PHASE_COUNT } phase;

static const char *const phase_names[] = {
    "during the start", "while the others compute", "while the others wait",
    "while the others wait for its message", "at the first byte of an allreduce",
    "in the middle of an allreduce", "between two calls", "while the others leave"
};

typedef struct report {
    coll_status status, later, shrunk, again;     /* of the call that must fail; the next; of coll_shrink; of its calls */
    int         rank, size, failed[RANKS_MOST], failed_count, lost_count, wrong;
    int         done;                             /* this rank has ended                                      */
    int64_t     known_ms, free_ms;
    char        sentence[512], cause[256];
} report;

typedef struct board {
    int64_t event_ms;                             /* when the victim was killed or stopped                    */
    pid_t   pids[RANKS_MOST];
    int     ports[2];                             /* of the listeners of ranks 1 and 2                        */
    report  ranks[RANKS_MOST];
    char    lines[2048];                          /* the text of the log                                      */
} board;

static board *shared;

typedef struct scene {
    int   size, victim, signal;
    phase phase;
    int   rounds;                                 /* shrink: so often                                         */
    bool  is_silent;                              /* liveness_timeout_ms < 0                                  */
    bool  is_on_the_wire;                         /* ranks of a host do not share memory                      */
    bool  is_orphaned;                            /* rank 0 has left before                                   */
    const char *key;
    char  address[64];
    int   ready[2], go[2];                        /* pipes: a byte from each waiting rank; one for each that may go on */
} scene;

static void pipe_put(const int *ends) { (void)!write(ends[1], "x", 1); }

static void pipe_await(const int *ends, int count)
{
    char byte;
    while (count > 0 && read(ends[0], &byte, 1) == 1) count--;
}

static void log_line(void *context, coll_log_level level, const char *line)
{
    (void)context, (void)level;
    const size_t used = strlen(shared->lines);
    snprintf(shared->lines + used, sizeof shared->lines - used, "%s\n", line);
}

static coll_config config_of(const scene *s, int rank)
{
    return (coll_config){ .rank = rank, .size = s->size, .tcp = { .share_memory = s->is_on_the_wire ? -1 : 0, .key = s->key,
                                                                  .io = !strcmp(world, "tcp-uring") ? "uring" : "poll",
                                                                  .shm_collectives = strcmp(world, "tcp-domain") ? -1 : 0 },
                                                                  .address = s->address, .start_timeout_ms = 10000,
                                                                  .liveness_timeout_ms = s->is_silent ? -1 : LIVENESS_MS,
                                                                  .log = log_line };
}

static coll_comm *join(const scene *s, int rank, report *r)
{
    const coll_config config = config_of(s, rank);
    coll_comm *comm = NULL;

    r->status = coll_init(&comm, &config);
    r->rank = rank;
    if (r->status) snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(NULL));
    return comm;
}

/* The error of the communicator that has ended. */
static void note_failure(coll_comm *comm, report *r, coll_status status)
{
    r->status = status;
    r->known_ms = now_ms() - shared->event_ms;
    snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm));
    snprintf(r->cause, sizeof r->cause, "%s", comm->session->failure.text);
    r->later = coll_barrier(comm);
    r->failed_count = coll_failed_ranks(comm, r->failed, RANKS_MOST);
}

static void leave(coll_comm *comm, report *r)
{
    const int64_t began = now_ms();

    coll_free(comm);
    r->free_ms = now_ms() - began;
    r->done = 1;
}

/* ---- >>ends: killed, stopped ---- */

static void meet_fate(const scene *s)
{
    shared->event_ms = now_ms();
    kill(getpid(), s->signal);
}

/* An allreduce in which the victim ends as soon as it has sent so many bytes. */
static void end_within(const scene *s, coll_comm *comm, const float *in, float *out, uint64_t most)
{
    uint64_t before = 0, sent = 0;
    coll_request *r = NULL;

    coll_traffic(comm, &before, NULL);
    if (coll_iallreduce(comm, in, out, LARGE, COLL_F32, COLL_SUM, &r)) return;
    while (coll_test(r) == COLL_PENDING) {
        coll_traffic(comm, &sent, NULL);
        if (sent <= before + most) continue;
        meet_fate(s);
        break;
    }
    (void)coll_wait(r);                           /* of a rank that was stopped, and goes on                   */
    coll_request_free(r);
}

static void victim_main(const scene *s, coll_comm *comm, const float *in, float *out, report *r)
{
    if (s->phase == WAITING || s->phase == ASKING || s->phase == IDLE) pipe_await(s->ready, s->size - 1);
    if (s->phase == HEADER) end_within(s, comm, in, out, 0);
    else if (s->phase == PAYLOAD) end_within(s, comm, in, out, 100000);
    else meet_fate(s);
    coll_status status = COLL_OK;                 /* only a rank that was stopped gets here                   */
    while (status == COLL_OK) status = coll_barrier(comm);        /* data sent by the others may complete it for one  */
    note_failure(comm, r, status);
    leave(comm, r);
}

static void survivor_main(const scene *s, coll_comm *comm, const float *in, float *out, report *r)
{
    coll_status status = COLL_OK;

    if (s->phase == TEARDOWN) {
        leave(comm, r);
        return;
    }
    if (s->phase == WAITING || s->phase == ASKING || s->phase == IDLE) pipe_put(s->ready);
    if (s->phase == IDLE) pipe_await(s->go, 1);   /* as long as detection of the victim takes                 */
    if (s->phase == ASKING) status = coll_recv(comm, out, 1, COLL_F32, s->victim, 0);
    if (s->phase == HEADER || s->phase == PAYLOAD) status = coll_allreduce(comm, in, out, LARGE, COLL_F32, COLL_SUM);
    while (status == COLL_OK) status = coll_barrier(comm);
    note_failure(comm, r, status);
    for (int i = 0; i < LARGE; i++) r->wrong += in[i] < 1 || in[i] > 1;
    leave(comm, r);
}

static void rank_main(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    float *in = support_need(malloc(LARGE * sizeof *in)), *out = support_need(malloc(LARGE * sizeof *out));

    for (int i = 0; i < LARGE; i++) in[i] = 1;
    coll_comm *comm = join(s, rank, r);
    if (comm && s->phase == HANDSHAKE) {
        coll_status status = COLL_OK;
        while (status == COLL_OK) status = coll_barrier(comm);
        note_failure(comm, r, status);
    }
    if (!comm || s->phase == HANDSHAKE) {
        leave(comm, r);
        return;
    }
    (void)coll_barrier(comm);
    if (rank == s->victim) victim_main(s, comm, in, out, r);
    else survivor_main(s, comm, in, out, r);
}

static void open_scene(scene *s)
{
    memset(shared, 0, sizeof *shared);
    const int port = support_reserve_port(s->address, sizeof s->address);
    CHECK(port >= 0 && pipe(s->ready) == 0 && pipe(s->go) == 0, "%s: a port and pipes", case_name);
}

static void start_rank(const scene *s, int rank, void (*body)(const scene *s, int rank))
{
    fflush(NULL);
    const pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGALRM, SIG_DFL);                 /* which ends the process                                   */
        alarm(RANK_SECONDS);
        body(s, rank);
        exit(0);
    }
    CHECK(pid > 0, "%s: fork", case_name);
    shared->pids[rank] = pid;
}

static void check_survivor(const scene *s, int rank, int other)
{
    const report *r = &shared->ranks[rank], *o = &shared->ranks[other];

    CHECK(r->done, "%s: rank %d hangs or has died", case_name, rank);
    if (!r->done) return;
    CHECK(r->free_ms < support_scaled(2000), "%s: rank %d: coll_free took %d ms", case_name, rank, (int)r->free_ms);
    if (s->phase == TEARDOWN) return;
    CHECK(r->status == COLL_ERR_PEER && names_rank(r->sentence, s->victim), "%s: rank %d has %d: \"%s\"", case_name, rank,
          (int)r->status, r->sentence);
    CHECK(!strcmp(r->cause, o->cause), "%s: rank %d has \"%s\", rank %d \"%s\"", case_name, rank, r->cause, other, o->cause);
    CHECK(strstr(r->cause, "pid ") && strstr(r->cause, "127.0.0.1:"), "%s: no process and address in \"%s\"", case_name,
          r->cause);
    CHECK(r->failed_count >= 1 && r->failed[0] == s->victim, "%s: rank %d: %d failed ranks, the first is %d", case_name, rank,
          r->failed_count, r->failed[0]);
    CHECK(r->later == r->status && r->wrong == 0, "%s: rank %d: later %d, %d inputs changed", case_name, rank, (int)r->later,
          r->wrong);
    if (s->phase != IDLE)
        CHECK(r->known_ms < support_scaled(LIVENESS_MS + SLACK_MS), "%s: rank %d got the error after %d ms", case_name, rank,
              (int)r->known_ms);
}

/* All ranks but a stopped victim. */
static void await_ranks(const scene *s, bool with_victim)
{
    case_step = "the ranks, which have a time limit of their own";
    for (int i = 0, status; i < s->size; i++) {
        if (shared->pids[i] <= 0 || (!with_victim && i == s->victim)) continue;
        CHECK(waitpid(shared->pids[i], &status, 0) > 0 && status == 0, "%s: rank %d ended with %#x", case_name, i,
              (unsigned)status);
    }
}

static void end_case(const void *arg)
{
    scene s = *(const scene *)arg;
    const int other = s.victim == 0 ? 1 : 0;

    open_scene(&s);
    for (int i = 0; i < s.size; i++)
        start_rank(&s, i, rank_main);
    case_step = "the end of the victim";
    CHECK(waitpid(shared->pids[s.victim], NULL, WUNTRACED) == shared->pids[s.victim], "%s: waitpid", case_name);
    if (s.phase == IDLE) {                        /* another thread than the caller's must detect it          */
        case_step = "the survivors compute";
        (void)poll(NULL, 0, s.signal == SIGSTOP ? LIVENESS_MS + SLACK_MS / 2 : 100);
        for (int i = 1; i < s.size; i++) pipe_put(s.go);
    }
    await_ranks(&s, false);
    for (int i = 0; i < s.size; i++) if (i != s.victim) check_survivor(&s, i, other);
    if (s.signal != SIGSTOP) return;
    kill(shared->pids[s.victim], SIGCONT);
    case_step = "the victim that goes on";
    (void)waitpid(shared->pids[s.victim], NULL, 0);
    const report *r = &shared->ranks[s.victim];
    CHECK(r->done && r->free_ms < support_scaled(2000), "%s: the victim, which goes on, hangs: %d ms", case_name,
          (int)r->free_ms);
    if (s.phase != TEARDOWN)
        CHECK(r->status < 0 && !strcmp(r->cause, shared->ranks[other].cause), "%s: the victim has %d: \"%s\"", case_name,
              (int)r->status, r->cause);
}

/* Rank 1 of 3 ends at a random time while the others connect. */
static void handshake_case(const void *arg)
{
    scene s = *(const scene *)arg;

    open_scene(&s);
    for (int i = 0; i < 2; i++) start_rank(&s, i, rank_main);
    (void)poll(NULL, 0, 60);                      /* before or after it connected: either is reported         */
    kill(shared->pids[1], s.signal);
    shared->event_ms = now_ms();
    if (s.signal == SIGKILL) (void)waitpid(shared->pids[1], NULL, 0);
    start_rank(&s, 2, rank_main);
    if (s.signal == SIGKILL) {                    /* a rank that has died may be started again                */
        case_step = "it connects again";
        start_rank(&s, 1, rank_main);
        while (!__atomic_load_n(&shared->lines[0], __ATOMIC_RELAXED) && shared->ranks[2].done == 0 && shared->ranks[0].rank == 0
               && waitpid(shared->pids[1], NULL, WNOHANG) == 0 && now_ms() - shared->event_ms < 1500) sched_yield();
        kill(shared->pids[1], SIGKILL);
    }
    await_ranks(&s, false);
    for (int i = 0; i < 3; i += 2) {
        const report *r = &shared->ranks[i];
        CHECK(r->done && (r->status == COLL_ERR_PEER || r->status == COLL_ERR_TIMEOUT) && strstr(r->sentence, "1"),
              "%s: rank %d has %d: \"%s\"", case_name, i, (int)r->status, r->sentence);
    }
    kill(shared->pids[1], SIGKILL);
}

static void run_ends(void)
{
    static const int victims[] = { 0, 2 };
    char name[160];

    const bool is_all = strcmp(world, "tcp-uring") != 0;          /* io_uring: phases with requests in the ring */

    for (int stops = 0; stops < 2; stops++) {
        for (int p = IDLE; p < PHASE_COUNT; p++) {
            if (!is_all && p != WAITING && p != ASKING && p != PAYLOAD) continue;
            if (!strcmp(world, "tcp-domain") && (p == HEADER || p == PAYLOAD)) continue;  /* only messages have them */
            for (int v = 0; v < 2; v++) {
                const scene s = { .size = 4, .victim = victims[v], .signal = stops ? SIGSTOP : SIGKILL, .phase = (phase)p };
                snprintf(name, sizeof name, "rank %d of 4 is %s %s", s.victim, stops ? "stopped" : "killed", phase_names[p]);
                run_case_within(CASE_SECONDS, end_case, &s, name);
            }
        }
        const scene s = { .size = 3, .victim = 1, .signal = stops ? SIGSTOP : SIGKILL, .phase = HANDSHAKE };
        snprintf(name, sizeof name, "rank 1 of 3 is %s %s", stops ? "stopped" : "killed", phase_names[HANDSHAKE]);
        if (is_all) run_case_within(CASE_SECONDS, handshake_case, &s, name);
    }
}

/* ---- >>alive: what is no failure ---- */

static void alive_rank(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    coll_comm *comm, *part = NULL;
    int32_t n = 1;

    comm = join(s, rank, r);
    if (!comm) _exit(1);
    if (rank == 1) {                              /* computes, and makes no call                              */
        const int64_t until = now_ms() + 3 * LIVENESS_MS;
        while (now_ms() < until) n = 1;
    }
    r->status = coll_allreduce(comm, &n, &n, 1, COLL_I32, COLL_SUM);
    if (r->status == COLL_OK) r->status = coll_split(comm, rank == 1, 0, &part);
    if (rank != 1) {                              /* rank 1 has left normally before these go on              */
        if (r->status == COLL_OK) r->status = coll_barrier(part);
        pipe_await(s->go, 1);
        if (r->status == COLL_OK) r->status = coll_barrier(part);
    }
    snprintf(r->sentence, sizeof r->sentence, "%s", rank == 1 ? "" : coll_error(part ? part : comm));
    coll_free(part);
    leave(comm, r);
    if (rank == 1) for (int i = 0; i < 2; i++) pipe_put(s->go);
}

static void alive_case(const void *arg)
{
    scene s = { .size = 3, .is_silent = arg != NULL };

    open_scene(&s);
    for (int i = 0; i < 3; i++)
        start_rank(&s, i, alive_rank);
    await_ranks(&s, true);
    for (int i = 0; i < 3; i++)
        CHECK(shared->ranks[i].done && shared->ranks[i].status == COLL_OK && shared->ranks[i].free_ms < support_scaled(2000),
              "%s: rank %d has %d after %d ms: \"%s\"",
              case_name, i, (int)shared->ranks[i].status, (int)shared->ranks[i].free_ms, shared->ranks[i].sentence);
}

/* ---- >>orphans: rank 0 has left normally, and no longer detects failures ---- */

/* What an orphan does while the victim is stopped, or computes. */
static coll_status orphan_waits(const scene *s, int rank, coll_comm *comm, coll_comm *part, float *out)
{
    const bool is_large = s->phase == PAYLOAD;

    if (s->phase == WAITING) return coll_barrier(part);
    if (is_large) return coll_allreduce(part, COLL_IN_PLACE, out, LARGE, COLL_F32, COLL_SUM);
    if (rank == s->victim) return coll_send(comm, out, 1, COLL_F32, rank + 1, 7);
    const coll_status status = coll_recv(comm, out, 1, COLL_F32, rank - 1, 7);        /* a chain behind the victim  */
    return status == COLL_OK && rank + 1 < s->size ? coll_send(comm, out, 1, COLL_F32, rank + 1, 7) : status;
}

static void orphans_rank(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    float *out = support_need(calloc(LARGE, sizeof *out));
    coll_comm *comm = join(s, rank, r), *part = NULL;
    coll_status status = comm ? coll_split(comm, rank > 0, 0, &part) : COLL_ERR_PEER;

    if (!comm) exit(1);
    if (status == COLL_OK && s->phase == PAYLOAD) status = orphan_waits(s, rank, comm, part, out);
    if (rank > 0) {
        pipe_put(s->ready);
        pipe_await(s->go, 1);
        if (rank == s->victim && s->signal) meet_fate(s);
        for (const int64_t until = now_ms() + 3 * LIVENESS_MS; rank == s->victim && now_ms() < until;) out[0] = 1;
        if (status == COLL_OK) status = orphan_waits(s, rank, comm, part, out);
        while (status == COLL_OK && s->signal) status = coll_barrier(part);
        if (status) note_failure(comm, r, status);
    }
    coll_free(part);
    leave(comm, r);
    free(out);
}

static void orphans_case(const void *arg)
{
    scene s = *(const scene *)arg;

    open_scene(&s);
    for (int i = 0; i < s.size; i++) start_rank(&s, i, orphans_rank);
    pipe_await(s.ready, s.size - 1);
    case_step = "rank 0 leaves";
    (void)waitpid(shared->pids[0], NULL, 0);
    shared->pids[0] = 0;
    for (int i = 1; i < s.size; i++) pipe_put(s.go);
    await_ranks(&s, !s.signal);
    for (int i = 1; i < s.size; i++) {
        const report *r = &shared->ranks[i];
        if (s.signal && i != s.victim) check_survivor(&s, i, s.size - 1);
        if (!s.signal)
            CHECK(r->done && r->status == COLL_OK, "%s: rank %d has %d: \"%s\"", case_name, i, (int)r->status, r->sentence);
    }
    if (!s.signal) return;
    CHECK(strstr(shared->ranks[s.size - 1].cause, "no heartbeat"), "%s: \"%s\"", case_name, shared->ranks[s.size - 1].cause);
    kill(shared->pids[s.victim], SIGCONT);
    case_step = "the victim that goes on, after all others may have left";
    (void)waitpid(shared->pids[s.victim], NULL, 0);
    const report *r = &shared->ranks[s.victim];
    CHECK(r->done && r->status < 0, "%s: the victim has %d: \"%s\"", case_name, (int)r->status, r->cause);
}

static void run_orphans(void)
{
    static const char *const keys[] = { NULL, "a secret of the orphans" };
    static const phase phases[] = { WAITING, ASKING, PAYLOAD };
    char name[160];

    const bool is_all = strcmp(world, "tcp-uring") != 0;

    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++)
            for (int signal = 0; signal <= SIGSTOP; signal += SIGSTOP) {
                const scene s = { .size = 4, .victim = i == 1 ? 1 : 2, .signal = signal, .phase = phases[i], .key = keys[k],
                                  .is_on_the_wire = k == 1 };
                if (k == 1 ? s.phase != WAITING || !is_all : s.phase != PAYLOAD && !is_all) continue;
                snprintf(name, sizeof name, "rank 0 has left, and rank %d of 4 %s %s%s", s.victim,
                         signal ? "is stopped" : "computes", phase_names[s.phase], k ? ", with a key" : "");
                run_case_within(CASE_SECONDS, orphans_case, &s, name);
            }
}

/* ---- >>abort: from a signal handler ---- */

static coll_comm *handler_comm;

static void on_signal(int number)
{
    const int error = errno;

    (void)number;
    errno = 77;
    (void)coll_abort(handler_comm, "the user pressed ^C");
    if (errno != 77) _exit(7);
    errno = error;
}

/* Rank 0 has left; ranks 1 and 2 wait for each other, and rank 1 is sent a signal. */
static void orphan_rank(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    coll_comm *comm = handler_comm = join(s, rank, r);
    int32_t n = rank, got;

    if (!comm) _exit(1);
    signal(SIGUSR1, on_signal);
    if (rank > 0) r->wrong = coll_sendrecv(comm, &n, 1, 3 - rank, &got, 1, 3 - rank, COLL_I32, 1) != COLL_OK;
    if (rank > 0) pipe_put(s->ready);
    if (rank > 0) note_failure(comm, r, coll_recv(comm, &n, 1, COLL_I32, 3 - rank, 7));
    leave(comm, r);
}

static void orphan_case(const void *arg)
{
    scene s = { .size = 3, .victim = 1 };
    const report *one = &shared->ranks[1], *two = &shared->ranks[2];

    (void)arg;
    open_scene(&s);
    for (int i = 0; i < 3; i++) start_rank(&s, i, orphan_rank);
    pipe_await(s.ready, 2);
    case_step = "rank 0 leaves";
    (void)waitpid(shared->pids[0], NULL, 0);
    shared->event_ms = now_ms();
    kill(shared->pids[1], SIGUSR1);
    case_step = "the others";
    for (int i = 1; i < 3; i++) (void)waitpid(shared->pids[i], NULL, 0);
    CHECK(one->done && !one->wrong && one->status == COLL_ERR_ABORTED
          && strstr(one->sentence, "rank 1 gave up: the user pressed ^C"), "%s: rank 1 has %d: \"%s\"", case_name,
          (int)one->status, one->sentence);
    const bool is_known = two->status == COLL_ERR_ABORTED && strstr(two->sentence, "rank 1 gave up: the user pressed ^C");
    const bool is_alone = two->status == COLL_ERR_PEER && names_rank(two->sentence, 1);       /* it had not sent its query yet */
    CHECK(two->done && !two->wrong && (is_known || is_alone), "%s: rank 2 has %d: \"%s\"", case_name, (int)two->status,
          two->sentence);
    CHECK(one->known_ms < support_scaled(SLACK_MS) && two->known_ms < support_scaled(2 * SLACK_MS),
          "%s: they got the error after %d and %d ms", case_name, (int)one->known_ms, (int)two->known_ms);
}

/* Ranks 0 and 1 wait in a barrier, and `caller` gets a signal.  Rank 2 computes; unless it is the caller, it is stopped, too,
 * and has no report when it goes on.  It may then finish this one barrier, which all have entered, and no other. */
static void abort_rank(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    coll_comm *comm;

    comm = handler_comm = join(s, rank, r);
    if (!comm) _exit(1);
    signal(SIGUSR1, on_signal);
    (void)coll_barrier(comm);
    pipe_put(s->ready);
    if (rank == 2) pipe_await(s->go, 1);
    coll_status status = coll_barrier(comm);
    if (rank == 2 && s->victim != 2 && status == COLL_OK) status = coll_barrier(comm);
    note_failure(comm, r, status);
    leave(comm, r);
}

static void abort_case(const void *arg)
{
    const int caller = *(const int *)arg;
    scene s = { .size = 3, .victim = caller };

    open_scene(&s);
    for (int i = 0; i < 3; i++)
        start_rank(&s, i, abort_rank);
    case_step = "all are ready";
    pipe_await(s.ready, 3);
    (void)poll(NULL, 0, 200);                     /* now they sleep; awake ranks would abort as well          */
    shared->event_ms = now_ms();
    if (caller != 2) kill(shared->pids[2], SIGSTOP);
    kill(shared->pids[caller], SIGUSR1);
    case_step = "the ranks that wait";
    for (int i = 0; i < 2; i++) (void)waitpid(shared->pids[i], NULL, 0);
    pipe_put(s.go);
    kill(shared->pids[2], SIGCONT);
    case_step = "rank 2";
    (void)waitpid(shared->pids[2], NULL, 0);
    for (int i = 0; i < 3; i++) {
        const report *r = &shared->ranks[i];
        char word[40];
        snprintf(word, sizeof word, "rank %d gave up: the user pressed ^C", caller);
        CHECK(r->done && r->status == COLL_ERR_ABORTED && strstr(r->sentence, word), "%s: rank %d has %d: \"%s\"", case_name, i,
              (int)r->status, r->sentence);
        CHECK(i == 2 || r->known_ms < support_scaled(SLACK_MS), "%s: rank %d got the error after %d ms", case_name, i,
              (int)r->known_ms);
    }
}

/* ---- >>shrink ---- */

/* Calls every collective.  Returns how many had a wrong result. */
static int try_all(coll_comm *comm)
{
    enum { COUNT = 1000 };
    const int me = coll_rank(comm), n = coll_size(comm), sum = n * (n - 1) / 2;
    int32_t a[COUNT], b[RANKS_MOST * COUNT], c[RANKS_MOST * COUNT];
    coll_comm *part = NULL;
    int wrong = 0;

    for (int i = 0; i < COUNT; i++) a[i] = me;
    wrong += coll_barrier(comm) != 0;
    wrong += coll_allreduce(comm, a, b, COUNT, COLL_I32, COLL_SUM) || b[COUNT - 1] != sum;
    for (int i = 0; i < COUNT; i++) b[i] = me;
    wrong += coll_broadcast(comm, b, COUNT, COLL_I32, n - 1) || b[COUNT - 1] != n - 1;
    wrong += coll_reduce(comm, a, b, COUNT, COLL_I32, COLL_SUM, 0) || (me == 0 && b[7] != sum);
    wrong += coll_allgather(comm, a, b, COUNT, COLL_I32) || b[(n - 1) * COUNT] != n - 1;
    wrong += coll_gather(comm, a, c, COUNT, COLL_I32, 0) || (me == 0 && c[(n - 1) * COUNT] != n - 1);
    wrong += coll_scatter(comm, b, c, COUNT, COLL_I32, 0) || c[0] != me;
    wrong += coll_alltoall(comm, b, c, COUNT, COLL_I32) || c[(n - 1) * COUNT] != me;
    wrong += coll_reduce_scatter(comm, b, c, COUNT, COLL_I32, COLL_SUM) || c[0] != n * me;
    wrong += coll_scan(comm, a, b, COUNT, COLL_I32, COLL_SUM) || b[0] != me * (me + 1) / 2;
    wrong += coll_exscan(comm, a, b, COUNT, COLL_I32, COLL_SUM) || (me > 0 && b[0] != me * (me - 1) / 2);
    wrong += coll_sendrecv(comm, a, COUNT, (me + 1) % n, b, COUNT, (me + n - 1) % n, COLL_I32, 3) || b[1] != (me + n - 1) % n;
    wrong += coll_split(comm, me % 2, 0, &part) || coll_allreduce(part, a, b, COUNT, COLL_I32, COLL_MAX);
    coll_free(part);
    return wrong;
}

/* Round after round the last but one of the remaining ranks is killed or stopped, in the first round the victim. */
static void shrink_rank(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    coll_comm *comm, *next;

    comm = join(s, rank, r);
    if (!comm) _exit(1);
    for (int round = 0; round < s->rounds; round++) {
        coll_status status = coll_barrier(comm);
        const int victim = round == 0 ? s->victim : round % 2 ? 0 : coll_size(comm) - 2;
        if (coll_rank(comm) == victim) meet_fate(s);
        while (status == COLL_OK) status = coll_barrier(comm);
        note_failure(comm, r, status);
        r->shrunk = coll_shrink(comm, &next);
        r->lost_count = coll_failed_ranks(comm, NULL, 0);
        snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm));
        if (r->shrunk) break;
        coll_free(comm);
        comm = next;
        r->wrong += try_all(comm);
        if (r->wrong) snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm));
        r->rank = coll_rank(comm);
        r->size = coll_size(comm);
    }
    leave(comm, r);
}

static void shrink_case(const void *arg)
{
    scene s = *(const scene *)arg;
    int expected = 0, survivors = 0;
    const bool may = s.size > 2 || s.victim != 0; /* of two halves, the one with rank 0 goes on               */

    open_scene(&s);
    const int64_t began = now_ms();
    for (int i = 0; i < s.size; i++)
        start_rank(&s, i, shrink_rank);
    case_step = "the ranks";
    for (int left = s.size; left > 0; left--) {
        int status;
        const pid_t pid = waitpid(-1, &status, WUNTRACED);
        if (pid > 0 && WIFEXITED(status)) survivors++;
        if (pid <= 0) break;
    }
    CHECK(survivors == s.size - s.rounds, "%s: %d ranks ended", case_name, survivors);
    for (int i = 0; i < s.size; i++) {
        const report *r = &shared->ranks[i];
        if (!r->done) continue;
        if (!may) {
            CHECK(r->shrunk == COLL_ERR_PEER && strstr(r->sentence, "1 of 2"), "%s: %d: \"%s\"", case_name, (int)r->shrunk,
                  r->sentence);
            continue;
        }
        CHECK(r->shrunk == COLL_OK && r->size == s.size - s.rounds && r->rank == expected && r->wrong == 0 && r->lost_count == 1,
              "%s: rank %d became %d of %d, lost %d, %d calls wrong, %d: \"%s\"", case_name, i, r->rank, r->size, r->lost_count,
              r->wrong, (int)r->shrunk, r->sentence);
        CHECK(r->free_ms < support_scaled(2000), "%s: rank %d: coll_free took %d ms", case_name, i, (int)r->free_ms);
        expected++;
    }
    const int most = s.rounds * (s.signal == SIGSTOP ? 5 * LIVENESS_MS : 2 * LIVENESS_MS) + 3000;
    CHECK(now_ms() - began < support_scaled(most), "%s: took %d ms", case_name, (int)(now_ms() - began));
    for (int i = 0; i < s.size; i++) if (!shared->ranks[i].done && shared->pids[i] > 0) kill(shared->pids[i], SIGKILL);
}

/* Between threads: one leaves in the middle, and the others go on. */
static int thread_worker(coll_comm *comm, void *arg)
{
    const int victim = *(const int *)arg, me = coll_rank(comm), size = coll_size(comm);
    coll_comm *next = NULL;
    coll_status status = coll_barrier(comm);

    if (me == victim) return 0;                   /* and its communicator is freed                            */
    while (status == COLL_OK) status = coll_barrier(comm);
    CHECK(status == COLL_ERR_PEER && coll_failed_ranks(comm, NULL, 0) == 1, "%s: rank %d has %d: %s", case_name, me, (int)status,
          coll_error(comm));
    status = coll_shrink(comm, &next);
    if (size == 2 && victim == 0) {
        CHECK(status == COLL_ERR_PEER && strstr(coll_error(comm), "1 of 2"), "%s: %d: %s", case_name, (int)status,
              coll_error(comm));
        return 0;
    }
    CHECK(status == COLL_OK && coll_size(next) == size - 1 && coll_rank(next) == me - (me > victim) && try_all(next) == 0,
          "%s: rank %d has %d, %d of %d: %s", case_name, me, (int)status, coll_rank(next), coll_size(next), coll_error(comm));
    coll_free(next);
    return 0;
}

static void thread_case(const void *arg)
{
    for (int size = 2; size <= 8; size++)
        for (int victim = 0; victim < size; victim++) {
            int who = victim;
            CHECK(coll_spawn(size, thread_worker, &who, NULL) == 0, "%s: %d ranks", case_name, size);
        }
    (void)arg;
}

static void run_shrink(void)
{
    char name[120];

    const int step = !strcmp(world, "tcp-uring") ? 3 : 1;

    for (int size = 2; size <= 8; size += step)
        for (int k = 0; k < (size == 2 ? 2 : 3); k++) {
            const scene s = { .size = size, .victim = k == 0 ? 0 : k == 1 ? size - 1 : 1, .signal = SIGKILL, .rounds = 1 };
            snprintf(name, sizeof name, "%d ranks shrink without rank %d", size, s.victim);
            run_case_within(CASE_SECONDS, shrink_case, &s, name);
        }
    for (int k = 0; k < 2; k++) {
        const scene s = { .size = 5, .victim = k ? 3 : 0, .signal = SIGSTOP, .rounds = 1 };
        snprintf(name, sizeof name, "5 ranks shrink without rank %d, which is stopped", s.victim);
        run_case_within(CASE_SECONDS, shrink_case, &s, name);
    }
    const scene s = { .size = 8, .victim = 0, .signal = SIGKILL, .rounds = 4 };
    run_case_within(CASE_SECONDS, shrink_case, &s, "8 ranks shrink four times");
}

/* ---- >>dump: the current call of a rank ---- */

static void put_line(void *file, const char *line) { fprintf(file, "%s\n", line); }

static void dump_rank(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    coll_comm *comm = join(s, rank, r), *part = NULL;
    char text[4096] = "";
    int32_t n = 1;

    if (!comm) exit(1);
    for (int i = 0; i < 300; i++) (void)coll_barrier(comm);
    (void)coll_dup(comm, &part);
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = &n, .count = 1, .type = COLL_I32,
                             .op = COLL_SUM, .name = "loss \"\x81\\" };
    (void)coll_run(comm, &call);
    FILE *file = fmemopen(text, sizeof text, "w");
    coll_dump(part, put_line, support_need(file));
    fclose(file);
    r->wrong += !strstr(text, "rank ") || strstr(text, "barrier") != NULL;
    file = support_need(tmpfile());
    coll_dump(comm, put_line, file);
    rewind(file);
    int lines = 0;
    while (fgets(text, sizeof text, file)) lines++;
    fclose(file);
    r->wrong += lines != 257 || !strstr(text, "allreduce #") || !strstr(text, "loss") || !strstr(text, "done after");
    pipe_put(s->ready);
    if (rank == 1) {
        pipe_await(s->ready, 3);
        meet_fate(s);
    }
    note_failure(comm, r, coll_run(comm, &call));
    coll_free(part);
    leave(comm, r);
}

static void dump_case(const void *arg)
{
    scene s = { .size = 3, .victim = 1, .signal = SIGKILL };
    char directory[] = "/tmp/coll-dump-XXXXXX", path[80], command[300];

    (void)arg;
    CHECK(mkdtemp(directory) && setenv("COLL_DUMP", directory, 1) == 0, "%s: a directory", case_name);
    open_scene(&s);
    for (int i = 0; i < 3; i++) start_rank(&s, i, dump_rank);
    await_ranks(&s, false);
    for (int i = 0; i < 3; i++) {
        if (i == 1) continue;
        CHECK(shared->ranks[i].done && shared->ranks[i].wrong == 0, "%s: rank %d: %d things wrong", case_name, i,
              shared->ranks[i].wrong);
        snprintf(path, sizeof path, "%s/coll-%d.json", directory, i);
        snprintf(command, sizeof command,
                 "python3 -c 'import json; d = json.load(open(\"%s\")); o = d[\"communicators\"][-1][\"operations\"]; "
                 "assert d[\"failed_rank\"] == 1 and d[\"rank\"] == %d and len(o) == 256 and "
                 "o[-1][\"name\"] == \"loss \\\"\\u0081\\\\\", d'", path, i);
        CHECK(system(command) == 0, "%s: %s is not what it should be", case_name, path);
        unlink(path);
    }
    CHECK(rmdir(directory) == 0, "%s: there is more in %s", case_name, directory);
}

/* ---- >>paths: two ranks cannot reach each other, and rank 0 reaches both ---- */

static bool shell(const char *command, int port)
{
    char line[200];
    snprintf(line, sizeof line, command, port);
    return system(line) == 0;
}

/* A network for this case only, without a route out. */
static bool own_network(void)
{
    struct ifreq lo = { .ifr_name = "lo" };
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || unshare(CLONE_NEWNET)) return false;
    close(fd);
    const int inside = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    lo.ifr_flags = IFF_UP;
    const bool is_up = inside >= 0 && ioctl(inside, SIOCSIFFLAGS, &lo) == 0;
    close(inside);
    return is_up && shell("nft add table inet t", 0)
        && shell("nft 'add chain inet t i { type filter hook input priority 0; }'", 0);
}

/* Wait for a message until this rank, which rank 0 has left, has a connection to its peer. */
static void await_line(coll_comm *comm, int peer)
{
    coll__heartbeat *p = &inside_tcp(comm)->heartbeat;
    coll_request *request = NULL;
    int32_t n;
    bool is_met = false;

    CHECK(coll_irecv(comm, &n, 1, COLL_I32, peer, 8, &request) == COLL_OK, "%s: irecv", case_name);
    while (!is_met && coll_test(request) == COLL_PENDING) {
        pthread_mutex_lock(&p->lock);
        is_met = p->detector.lines[peer].is_met;
        pthread_mutex_unlock(&p->lock);
        sched_yield();
    }
    coll_request_free(request);
}

static void path_rank(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    coll_comm *comm = join(s, rank, r);
    int32_t n = rank, got;
    coll_status status = COLL_OK;

    if (!comm) exit(1);
    if (rank > 0) shared->ports[rank - 1] = inside_tcp(comm)->endpoints[rank].port;
    if (rank > 0) status = coll_sendrecv(comm, &n, 1, 3 - rank, &got, 1, 3 - rank, COLL_I32, 1);
    if (s->is_orphaned && rank == 0) {
        leave(comm, r);
        return;
    }
    if (s->phase == ASKING) await_line(comm, 3 - rank);
    pipe_put(s->ready);
    pipe_await(s->go, 1);
    if (s->phase == PAYLOAD && rank > 0)          /* both send; otherwise they only wait */
        status = coll_sendrecv(comm, &n, 1, 3 - rank, &got, 1, 3 - rank, COLL_I32, 1);
    else if (rank > 0) status = coll_recv(comm, &n, 1, COLL_I32, 3 - rank, 7);
    else while (status == COLL_OK) status = coll_recv(comm, &n, 1, COLL_I32, 1, 7);
    note_failure(comm, r, status);
    leave(comm, r);
}

/* What happens to the path: both wait, both send, both wait and rank 0 has left, the same when they are connected already. */
static const scene paths[] = {
    { .size = 3, .victim = -1, .phase = WAITING, .is_on_the_wire = true },
    { .size = 3, .victim = -1, .phase = PAYLOAD, .is_on_the_wire = true },
    { .size = 3, .victim = -1, .phase = WAITING, .is_on_the_wire = true, .is_orphaned = true },
    { .size = 3, .victim = -1, .phase = ASKING, .is_on_the_wire = true, .is_orphaned = true }
};

static void path_case(const void *arg)
{
    scene s = *(const scene *)arg;
    const int first = s.is_orphaned ? 1 : 0, ports = s.phase == ASKING ? 2 : 1;
    const char *const what = "the link between rank 1 (";

    if (!own_network()) {
        CHECK(geteuid() != 0, "%s: no network of its own, for root", case_name);
        printf("%s: not root: skipped\n", case_name);
        return;
    }
    open_scene(&s);
    for (int i = 0; i < 3; i++) start_rank(&s, i, path_rank);
    pipe_await(s.ready, 3 - first);
    case_step = "rank 0 leaves";
    if (s.is_orphaned) (void)waitpid(shared->pids[0], NULL, 0);
    if (s.is_orphaned) shared->pids[0] = 0;
    for (int i = 2 - ports; i < 2; i++)
        CHECK(shell("nft add rule inet t i tcp dport %d drop", shared->ports[i])
              && shell("nft add rule inet t i tcp sport %d drop", shared->ports[i]), "%s: nft", case_name);
    shared->event_ms = now_ms();
    for (int i = first; i < 3; i++) pipe_put(s.go);
    await_ranks(&s, true);
    for (int i = first; i < 3; i++) {
        const report *r = &shared->ranks[i];
        CHECK(r->done && r->status == COLL_ERR_PEER && (first || !strcmp(r->cause, shared->ranks[0].cause))
              && strstr(r->cause, what) && names_rank(r->sentence, 1) && names_rank(r->sentence, 2),
              "%s: rank %d has %d: \"%s\"", case_name, i,
              (int)r->status, r->sentence);
        CHECK(r->known_ms < support_scaled(LIVENESS_MS + SLACK_MS + 1000), "%s: rank %d failed after %d ms", case_name, i,
              (int)r->known_ms);
    }
}

/* ---- >>astray: a received message does not fit, and no call looks at it ---- */

/* Rank 0 expects something else than what rank 1 sends, and has a long message for it.  Its transport makes progress, but the
 * receive is not polled, as if an engine waited for another request first: the world must end nevertheless. */
static void astray_rank(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    coll_comm *comm = join(s, rank, r);
    coll_xfer in = { .peer = 1 - rank, .status = COLL_PENDING }, out = in;

    if (!comm) exit(1);
    r->status = coll_barrier(comm);
    void *context = inside_tcp(comm);
    in.length = 64;
    out.length = rank == 0 ? 64 << 20 : 64;
    in.buffer = support_need(calloc(1, in.length));
    out.buffer = support_need(calloc(1, out.length));
    coll__head_of_call(out.head, &(coll_call){ .kind = COLL_GATHER, .count = 16, .type = COLL_F32 }, 2, 0, 7);
    coll__head_of_call(in.head, &(coll_call){ .kind = COLL_GATHER, .count = 16, .type = rank ? COLL_F32 : COLL_I32 }, 2, 0, 7);
    if (rank == 0) coll__tcp_recv(context, &in);
    coll__tcp_send(context, &out);
    const int64_t limit = now_ms() + support_scaled(5000);
    while (r->status == COLL_OK && now_ms() < limit) r->status = coll__tcp_progress(context, 100);
    snprintf(r->sentence, sizeof r->sentence, "%s", ((coll__tcp *)context)->failure.text);
    leave(comm, r);
}

static void astray_case(const void *arg)
{
    scene s = { .size = 2, .victim = -1, .is_on_the_wire = arg != NULL };

    open_scene(&s);
    for (int i = 0; i < 2; i++) start_rank(&s, i, astray_rank);
    await_ranks(&s, true);
    for (int i = 0; i < 2; i++) {
        const report *r = &shared->ranks[i];
        CHECK(r->done && r->status == COLL_ERR_MISMATCH && strstr(r->sentence, "gather #7") && strstr(r->sentence, "i32")
              && strstr(r->sentence, "f32"), "%s: rank %d has %d: \"%s\"", case_name, i, (int)r->status, r->sentence);
    }
}

/* ---- >>stall: the error names a late rank, with its current call ---- */

static void stall_rank(const scene *s, int rank)
{
    report *r = &shared->ranks[rank];
    coll_comm *comm = join(s, rank, r);
    const coll_call call = { .kind = COLL_BARRIER, .name = "epoch" };

    if (!comm) exit(1);
    r->status = coll_barrier(comm);
    if (rank == 1) pipe_await(s->go, 1);          /* outside the library                                      */
    if (r->status == COLL_OK) r->status = coll_run(comm, &call);
    leave(comm, r);
}

/* It takes as long as the default timeout of the library, 10 s. */
static void stall_case(const void *arg)
{
    scene s = { .size = 3 };

    (void)arg;
    open_scene(&s);
    for (int i = 0; i < 3; i++) start_rank(&s, i, stall_rank);
    case_step = "two lines on the log";
    const int64_t began = now_ms();
    while (now_ms() - began < 15000) {
        const char *first = strstr(shared->lines, "has been waiting");
        if (first && strstr(first + 1, "has been waiting")) break;
        (void)poll(NULL, 0, 20);
    }
    pipe_put(s.go);
    await_ranks(&s, true);
    CHECK(strstr(shared->lines, "barrier #2 \"epoch\" has been waiting 10.")
          && strstr(shared->lines, "rank 1: outside the library for ")
          && strstr(shared->lines, "last finished barrier #1"), "%s: \"%s\"", case_name, shared->lines);
    for (int i = 0; i < 3; i++) CHECK(shared->ranks[i].done && shared->ranks[i].status == COLL_OK, "%s: rank %d", case_name, i);
}

/* ---- >>main ---- */

static void *shared_memory(size_t length)
{
    void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return support_need(at == MAP_FAILED ? NULL : at);
}

/* The slow case runs beside the others. */
static pid_t start_stall(void)
{
    fflush(NULL);
    const pid_t pid = fork();

    if (pid != 0) return pid;
    shared = shared_memory(sizeof *shared);
    tally = shared_memory(sizeof *tally);
    world = "tcp-poll";
    run_case_within(CASE_SECONDS, stall_case, NULL, "a rank that is late");
    exit(check__failed > 0);
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "tcp-poll", "tcp-uring", "tcp-domain" };
    const char *wanted = argc > 1 ? argv[1] : NULL, *parts = argc > 2 ? argv[2] : NULL;

    const pid_t stall = support_listed(wanted, "tcp-poll") && support_listed(parts, "stall") ? start_stall() : 0;
    int status = 0;

    shared = shared_memory(sizeof *shared);
    tally = shared_memory(sizeof *tally);
    world = "threads";
    if (support_listed(wanted, world) && support_listed(parts, "shrink"))
        run_case_within(CASE_SECONDS, thread_case, NULL, "one leaves");
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        static const int callers[] = { 0, 1, 2 };
        world = worlds[i];
        if (!support_listed(wanted, world) || !support_has_world(world)) continue;
#if !COLL__HAS_URING
        if (i == 1) continue;
#endif
        if (support_listed(parts, "ends")) run_ends();
        if (support_listed(parts, "alive"))
            run_case_within(CASE_SECONDS, alive_case, NULL, "a rank that computes, and leaves early");
        if (support_listed(parts, "alive")) run_case_within(CASE_SECONDS, alive_case, world, "the same, unwatched");
        if (support_listed(parts, "orphans")) run_orphans();
        for (int k = 0; k < 3 && support_listed(parts, "abort"); k++)
            run_case_within(CASE_SECONDS, abort_case, &callers[k], "coll_abort in a signal handler");
        if (support_listed(parts, "shrink")) run_shrink();
        const bool records_all = strcmp(world, "tcp-domain") != 0;    /* a call that is done at once is not recorded          */
        if (records_all && support_listed(parts, "dump")) run_case_within(CASE_SECONDS, dump_case, NULL, "what a rank was doing");
        if (support_listed(parts, "abort")) run_case_within(CASE_SECONDS, orphan_case, NULL, "coll_abort after rank 0 has left");
        for (int k = 0; k < 2 && support_listed(parts, "astray"); k++)
            run_case_within(CASE_SECONDS, astray_case, k ? world : NULL, k ? "astray on the wire" : "astray in memory");
        for (int k = 0; k < 4 && support_listed(parts, "paths"); k++)
            run_case_within(CASE_SECONDS, path_case, &paths[k], k == 0 ? "nothing passes between ranks 1 and 2, which wait"
                            : k == 1 ? "nothing passes between ranks 1 and 2, which send"
                            : k == 2 ? "the same, and rank 0 has left" : "the same, and they have lines");
    }
    if (stall) CHECK(waitpid(stall, &status, 0) == stall && status == 0, "a rank that is late: see above");
    return CHECK_DONE();
}
