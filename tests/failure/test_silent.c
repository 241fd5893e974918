/* test_silent.c - a rank is lost, and another one 0.1 s later: each of them is killed or stopped.  The others, whatever they do,
 * detect both within a liveness_timeout_ms, a heartbeat interval and a little, and go on without them.
 *
 *     test_silent [PART,...]          PART: call, abort, behind
 *
 *     call        the others are in collectives through shared memory, or through messages
 *     abort       one of them calls coll_abort, as one is stopped
 *     behind      a stopped rank is continued when the others have gone on without it, freed the communicator, and compute,
 *                 except one that was stopped meanwhile: it learns from those that compute that it is given up
 */
#define _GNU_SOURCE
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

#include <poll.h>

enum { RANKS = 5, SLACK_MS = 1000, SECOND_MS = 100, COUNT = 1 << 21, CASE_SECONDS = 60, VICTIMS = 2 };

typedef struct scene {
    int  liveness_ms, signals[VICTIMS], victims[VICTIMS];         /* signal 0: there is no second one         */
    int  lost;                                    /* how many there are                                       */
    unsigned gone;                                /* which rank                                               */
    bool has_domain, aborts;
} scene;

static struct board {
    int     ready, is_struck;
    int64_t struck_at;
    struct { coll_status shrunk; int known_ms, whole_ms, size; unsigned failed; char sentence[300]; } ranks[RANKS];
} *board;

static void rank_main(const scene *s, int rank, const char *address)
{
    const coll_config config = { .rank = rank, .size = RANKS, .address = address, .liveness_timeout_ms = s->liveness_ms,
                                 .start_timeout_ms = 20000, .log_level = COLL_LOG_ERROR,
                                 .tcp = { .shm_collectives = s->has_domain ? COLL_DEFAULT : COLL_OFF } };
    float *const x = support_need(calloc(COUNT, sizeof *x));
    coll_comm *comm = NULL, *left = NULL;
    int lost[RANKS];
    coll_status status = coll_init(&comm, &config);

    CHECK(!status, "%s: rank %d: %s", case_name, rank, coll_error(comm));
    for (bool has_aborted = false, is_ready = false; !status;) {
        status = coll_allreduce(comm, COLL_IN_PLACE, x, COUNT, COLL_F32, COLL_SUM);
        if (!is_ready) (void)__atomic_add_fetch(&board->ready, 1, __ATOMIC_SEQ_CST), is_ready = true;
        if (!s->aborts || rank != 0 || has_aborted || !__atomic_load_n(&board->is_struck, __ATOMIC_SEQ_CST)) continue;
        status = coll_abort(comm, "it gives up");
        has_aborted = true;
    }
    while (!status) status = coll_barrier(comm);
    board->ranks[rank].known_ms = (int)(now_ms() - board->struck_at);
    snprintf(board->ranks[rank].sentence, sizeof board->ranks[rank].sentence, "%s", coll_error(comm));
    const int64_t until = board->struck_at + support_scaled(SECOND_MS + s->liveness_ms * 9 / 8 + SLACK_MS);
    for (unsigned failed = 0; failed != s->gone && now_ms() < until; (void)poll(NULL, 0, 5)) {
        const int count = coll_failed_ranks(comm, lost, RANKS);
        failed = 0;
        for (int i = 0; i < count; i++) failed |= 1u << lost[i];
        board->ranks[rank].failed = failed;
    }
    while (status) {                              /* where the second one reaches a first new world, which fails in turn */
        status = board->ranks[rank].shrunk = coll_shrink(comm, &left);
        if (status) break;
        coll_free(comm);
        comm = left;
        board->ranks[rank].size = coll_size(comm);
        while (!status && coll_size(comm) > RANKS - s->lost) status = coll_barrier(comm);
    }
    board->ranks[rank].whole_ms = (int)(now_ms() - board->struck_at);
    if (!status) CHECK(coll_barrier(comm) == COLL_OK, "%s: rank %d: %s", case_name, rank, coll_error(comm));
    coll_free(comm);
    free(x);
    exit(check__failed > 0);
}

static void scene_case(const void *arg)
{
    const scene *s = arg;
    char address[64] = "";
    const int port = support_reserve_port(address, sizeof address);
    pid_t pids[RANKS];
    unsigned gone = 0;
    int left = RANKS, status = 0;

    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < RANKS; i++) {
        if ((pids[i] = fork())) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rank_main(s, i, address);
    }
    case_step = "start";
    while (__atomic_load_n(&board->ready, __ATOMIC_SEQ_CST) < RANKS) (void)poll(NULL, 0, 1);
    (void)poll(NULL, 0, s->liveness_ms / 2);      /* heartbeats have come                                     */
    for (int i = 0; i < VICTIMS; i++) {
        if (!s->signals[i]) continue;
        if (i > 0) (void)poll(NULL, 0, SECOND_MS);
        else board->struck_at = now_ms();
        kill(pids[s->victims[i]], s->signals[i]);
        gone |= 1u << s->victims[i];
        left--;
        __atomic_store_n(&board->is_struck, 1, __ATOMIC_SEQ_CST);
    }
    case_step = "the others end";
    for (int i = 0; i < RANKS; i++) {
        if (gone >> i & 1) continue;
        CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "%s: rank %d ends with %#x", case_name, i,
              (unsigned)status);
    }
    /* in coll_shrink a stopped rank is lost after two limits, once for those that it blocks and once for all */
    const int known = s->liveness_ms * 9 / 8 + SLACK_MS, whole = 2 * known + SECOND_MS + 4 * s->liveness_ms;
    for (int i = 0; i < RANKS; i++) {
        if (gone >> i & 1) continue;
        CHECK(board->ranks[i].known_ms < support_scaled(known), "%s: rank %d got the error after %d ms: %s", case_name, i,
              board->ranks[i].known_ms, board->ranks[i].sentence);
        CHECK(board->ranks[i].failed == gone, "%s: rank %d: those that have failed are %#x, not %#x", case_name, i,
              board->ranks[i].failed, gone);
        CHECK(board->ranks[i].shrunk == COLL_OK && board->ranks[i].size == left, "%s: rank %d: coll_shrink gives %d, %d ranks",
              case_name, i, (int)board->ranks[i].shrunk, board->ranks[i].size);
        CHECK(board->ranks[i].whole_ms < support_scaled(whole), "%s: rank %d goes on after %d ms", case_name, i,
              board->ranks[i].whole_ms);
    }
    for (int i = 0; i < VICTIMS; i++) if (s->signals[i]) kill(pids[s->victims[i]], SIGKILL);
    for (int i = 0; i < VICTIMS; i++) if (s->signals[i]) (void)waitpid(pids[s->victims[i]], &status, 0);
    close(port);
}

/* ---- >>behind ---- */

enum { BEHIND = 4, KILLED = 1, STOPS_LATER = 3, BEHIND_LIVENESS_MS = 1000, BEHIND_START_MS = 20000 };

static void behind_main(int rank, const char *address)
{
    const coll_config config = { .rank = rank, .size = RANKS, .address = address, .liveness_timeout_ms = BEHIND_LIVENESS_MS,
                                 .start_timeout_ms = BEHIND_START_MS, .log_level = COLL_LOG_ERROR,
                                 .tcp = { .shm_collectives = COLL_OFF, .share_memory = COLL_OFF } };
    coll_comm *comm = NULL, *left = NULL;
    coll_status status = coll_init(&comm, &config);

    CHECK(!status, "%s: rank %d: %s", case_name, rank, coll_error(comm));
    for (bool is_ready = false; !status; is_ready = true) {
        status = coll_barrier(comm);
        if (!is_ready) (void)__atomic_add_fetch(&board->ready, 1, __ATOMIC_SEQ_CST);
    }
    const int64_t began = now_ms();
    status = board->ranks[rank].shrunk = coll_shrink(comm, &left);
    board->ranks[rank].whole_ms = (int)(now_ms() - began);
    board->ranks[rank].size = left ? coll_size(left) : 0;
    snprintf(board->ranks[rank].sentence, sizeof board->ranks[rank].sentence, "%s", coll_error(comm));
    if (rank == STOPS_LATER) raise(SIGSTOP);
    while (rank == 0 && !__atomic_load_n(&board->is_struck, __ATOMIC_SEQ_CST)) (void)poll(NULL, 0, 5);
    if (rank == 0) (void)poll(NULL, 0, BEHIND_LIVENESS_MS / 4);   /* it reports that others have left first               */
    coll_free(comm);
    (void)__atomic_add_fetch(&board->is_struck, 1, __ATOMIC_SEQ_CST);
    while (rank != BEHIND && __atomic_load_n(&board->is_struck, __ATOMIC_SEQ_CST) < RANKS - 2)
        (void)poll(NULL, 0, 5);                   /* it computes                                              */
    coll_free(left);
    exit(check__failed > 0);
}

static void behind_case(const void *arg)
{
    char address[64] = "";
    const int port = support_reserve_port(address, sizeof address);
    pid_t pids[RANKS];
    int status = 0;

    (void)arg;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < RANKS; i++) {
        if ((pids[i] = fork())) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        behind_main(i, address);
    }
    case_step = "start";
    while (__atomic_load_n(&board->ready, __ATOMIC_SEQ_CST) < RANKS) (void)poll(NULL, 0, 1);
    kill(pids[BEHIND], SIGSTOP);
    (void)poll(NULL, 0, BEHIND_LIVENESS_MS / 10);
    kill(pids[KILLED], SIGKILL);
    case_step = "the others go on";
    CHECK(waitpid(pids[STOPS_LATER], &status, WUNTRACED) == pids[STOPS_LATER] && WIFSTOPPED(status), "%s: %#x", case_name,
          (unsigned)status);
    while (__atomic_load_n(&board->is_struck, __ATOMIC_SEQ_CST) < RANKS - 3) (void)poll(NULL, 0, 1);
    kill(pids[BEHIND], SIGCONT);
    case_step = "the one behind ends";
    CHECK(waitpid(pids[BEHIND], &status, 0) == pids[BEHIND] && status == 0, "%s: %#x", case_name, (unsigned)status);
    for (int i = 0; i < RANKS; i++) {
        const bool is_out = i == BEHIND;
        if (i == KILLED) continue;
        CHECK(board->ranks[i].shrunk == (is_out ? COLL_ERR_PEER : COLL_OK) && board->ranks[i].size == (is_out ? 0 : RANKS - 2),
              "%s: rank %d: %d, %d ranks: %s", case_name, i, (int)board->ranks[i].shrunk, board->ranks[i].size,
              board->ranks[i].sentence);
        CHECK(!is_out || board->ranks[i].whole_ms < support_scaled(SLACK_MS), "%s: it got the error after %d ms: %s", case_name,
              board->ranks[i].whole_ms, board->ranks[i].sentence);
    }
    for (int i = 0; i < RANKS; i++) if (i != BEHIND) kill(pids[i], SIGKILL), (void)waitpid(pids[i], &status, 0);
    close(port);
}

static void run(scene s)
{
    char text[120];

    s.lost = 1 + (s.signals[1] != 0);
    s.gone = 1u << s.victims[0] | (s.signals[1] ? 1u << s.victims[1] : 0u);
    snprintf(text, sizeof text, "%s, limit %d ms, %s %d, then %s %d%s", s.has_domain ? "shared memory" : "messages",
             s.liveness_ms, s.signals[0] == SIGSTOP ? "stop" : "kill", s.victims[0],
             !s.signals[1] ? "nothing" : s.signals[1] == SIGSTOP ? "stop" : "kill", s.victims[1], s.aborts ? ", coll_abort" : "");
    run_case_within(CASE_SECONDS, scene_case, &s, text);
}

int main(int argc, char **argv)
{
    static const int pairs[][VICTIMS] = { { 3, 2 }, { 2, 4 } };
    const char *parts = argc > 1 ? argv[1] : NULL;

    cases_begin();
    world = "processes";
    for (int liveness = 1000; liveness <= 2000; liveness += 1000)
        for (int k = 0; k < 8; k++) {
            const int *pair = pairs[k / 4 % 2];
            scene s = { .liveness_ms = liveness, .victims = { pair[0], pair[1] }, .has_domain = k % 4 < 3 };
            s.signals[0] = k % 2 ? SIGKILL : SIGSTOP;
            s.signals[1] = k % 4 < 2 ? SIGSTOP : SIGKILL;
            if (s.signals[0] == SIGKILL && s.signals[1] == SIGKILL) s.signals[0] = SIGSTOP;
            if (support_listed(parts, "call")) run(s);
            s.signals[0] = SIGSTOP;
            s.signals[1] = k % 2 ? SIGKILL : 0;
            s.aborts = true;
            if (support_listed(parts, "abort")) run(s);
        }
    if (support_listed(parts, "behind")) run_case_within(CASE_SECONDS, behind_case, NULL, "behind");
    return CHECK_DONE();
}
