/* matrix.h - what the ranks of test_matrix.c do: reach the phase of the fault, go on, and record their results in shared memory.
 * Included after coll.h, support.h, cases.h, net.h and process_sockets.h. */
#ifndef TESTS_MATRIX_H
#define TESTS_MATRIX_H

#include <limits.h>
#include <poll.h>

enum {
    RANKS_MOST = NET_HOSTS_MOST,
    LIVENESS_MS = 700, START_MS = 2000, SHRINK_MS = 5000, SLACK_MS = 1000, FREE_MS = 2000, GATE_MS = 6000,
    RANK_SECONDS = 9, CELL_SECONDS = 14,
    FEW = 16, LARGE = 1 << 20, WIDE = 64,         /* elements: of a block, of the large call, of a broadcast  */
    HEAD = 32, HEAD_PART = 16, CALLS = 3, CALLS_OF_START = 50
};

typedef enum fault { KILL, STOP, LINK, DROP, RESET, HALF_CLOSE, GARBAGE, SLOW, READER, INTRUDERS, FAULT_COUNT } fault;
typedef enum phase { MEET, TABLE, CONNECT, HEADER, ROUND, PAYLOAD, IDLE, LEAVE, PHASE_COUNT } phase;

static const char *const fault_names[] = {
    "kill", "stop", "link", "drop", "reset", "half-close", "garbage", "slow", "reader", "intruders"
};
static const char *const phase_names[] = { "meet", "table", "connect", "header", "round", "payload", "idle", "leave" };

/* The progress of a rank. */
typedef enum step { NOTHING, JOINING, WORKING, AFTER, SHRINKING, LEAVING, OVER } step;
static const char *const step_names[] = {
    "start", "coll_init", "its calls", "a call after the failure", "coll_shrink", "coll_free", "end"
};

/* The results of one rank. */
typedef struct report {
    step        reached;
    coll_status hybrid, status, later, shrunk;
    int64_t     began_ms, ended_ms, free_ms, shrink_ms;   /* first two: the clock; then: how long it took      */
    int         failed_count, failed, calls;
    bool        is_input_kept, is_right, is_later_same, is_small_right;
    char        sentence[512], why_not[256];
} report;

/* Of one cell, in memory shared by its processes. */
typedef struct board {
    int     hold;                                 /* 1: the victim has reached the phase                      */
    int     passed, failed;                       /* checks                                                   */
    int64_t fault_ms, go_on_ms, worst_ms;         /* the fault; a stopped rank is continued; the longest time to detect */
    report  ranks[RANKS_MOST];
} board;

typedef struct cell {
    fault fault;
    phase phase;
    int   size, victim, partner;                  /* partner: the other end of the connection with the fault */
    bool  dials;                                  /* CONNECT: the victim dials, otherwise it accepts          */
    const char *io, *security;
    uint64_t seed;
    int   port, number;
    const net *net;
    board *board;
    pid_t pids[RANKS_MOST];
    bool  is_waiting[RANKS_MOST];                 /* at a gate, as the referee has seen                       */
    int   up[RANKS_MOST][2], down[RANKS_MOST][2]; /* pipes of the gates                                       */
    char  name[100];
} cell;

/* The whole victim fails; one connection fails; nothing is lost. */
static bool has_left(fault f) { return f <= DROP; }
static bool is_of_connection(fault f) { return f >= RESET && f <= GARBAGE; }
static bool is_harmless(fault f) { return f >= SLOW; }
static bool is_of_start(phase p) { return p <= TABLE; }

static bool is_keyed(const cell *c) { return strncmp(c->security, "open", 4) != 0; }

/* The world may form nevertheless: a rank that loses the connection to rank 0 early enough dials again, and so does a rank
 * that loses any connection before both ends have proved the key. */
static bool may_recover(const cell *c)
{
    return is_of_connection(c->fault) && (is_of_start(c->phase) || (c->phase == CONNECT && is_keyed(c)));
}

/* ---- >>gates: a rank reports that it has arrived, and waits ---- */

static void tell(const cell *c, int rank) { if (write(c->up[rank][1], "x", 1) != 1) _exit(4); }

static void gate(const cell *c, int rank)
{
    char byte;

    tell(c, rank);
    if (read(c->down[rank][0], &byte, 1) != 1) _exit(4);
}

/* ---- >>calls ---- */

typedef struct work { float *send, *recv; } work;

static void fill(const work *w, int rank)
{
    for (size_t i = 0; i < LARGE; i++) w->send[i] = (float)(rank + 1 + (int)(i & 15));
}

static bool is_filled(const work *w, int rank)
{
    for (size_t i = 0; i < LARGE; i++)
        if (w->send[i] != (float)(rank + 1 + (int)(i & 15))) return false;
    return true;
}

/* The first call is the phase's, those behind it touch every connection. */
static coll_call call_of(const cell *c, const work *w, int number)
{
    coll_call call = { .kind = COLL_ALLREDUCE, .send = w->send, .recv = w->recv, .count = FEW, .type = COLL_F32 };

    if (number > 0 ? number % 2 : c->phase == CONNECT) {
        call.kind = COLL_ALLTOALL;
        call.algorithm = "direct";
    } else if (number == 0 && c->phase == PAYLOAD) {
        call.count = LARGE;
    } else if (number == 0 && c->phase == ROUND) {
        call = (coll_call){ .kind = COLL_BARRIER };
    } else if (number == 0 && c->phase == HEADER) {
        call = (coll_call){ .kind = COLL_BROADCAST, .recv = w->recv, .count = WIDE, .type = COLL_F32, .root = c->victim };
    }
    return call;
}

static bool is_result(const coll_call *call, const float *recv, int rank, int size)
{
    for (size_t i = 0; i < call->count; i++) {
        const int n = (int)(i & 15);
        if (call->kind == COLL_ALLREDUCE && recv[i] != (float)(size * (size + 1) / 2 + size * n)) return false;
        if (call->kind == COLL_BROADCAST && recv[i] != (float)(call->root + 1 + n)) return false;
    }
    for (int from = 0; call->kind == COLL_ALLTOALL && from < size; from++)
        for (int i = 0; i < FEW; i++)
            if (recv[from * FEW + i] != (float)(from + 1 + ((rank * FEW + i) & 15))) return false;
    return true;
}

/* Is the victim, in the middle of its call, at the point of the fault?  By the bytes that it has moved. */
static bool is_there(const cell *c, coll_comm *comm, uint64_t sent_before, uint64_t moved_before)
{
    const uint64_t part = (uint64_t)LARGE * sizeof(float) / 8;
    uint64_t sent = 0, received = 0;

    if (c->phase == CONNECT) return __atomic_load_n(&c->board->hold, __ATOMIC_ACQUIRE) != 0;
    coll_traffic(comm, &sent, &received);
    if (c->phase == PAYLOAD) return sent + received > moved_before + part + c->seed % 4 * part / 2;
    return sent > sent_before;
}

/* Begin the call, stop within it, and go on at a signal. */
static coll_status run_halting(const cell *c, coll_comm *comm, const coll_call *call, int rank)
{
    coll_request *r = NULL;
    uint64_t sent = 0, received = 0;

    coll_traffic(comm, &sent, &received);
    coll_status status = coll_start(comm, call, &r);
    while (status >= 0 && !is_there(c, comm, sent, sent + received)) {
        const coll_status now = coll_test(r);
        if (now < 0 || (now == COLL_OK && c->phase == PAYLOAD)) break;
        if (now == COLL_OK) (void)coll_progress(comm);
    }
    gate(c, rank);
    if (status >= 0) status = coll_wait(r);
    coll_request_free(r);
    return status;
}

static bool halts(const cell *c, int rank)
{
    return rank == c->victim && (c->phase == CONNECT ? c->dials : c->phase >= HEADER && c->phase <= PAYLOAD);
}

/* How many calls at most?  Until one fails, where one must. */
static int most_calls(const cell *c) { return is_harmless(c->fault) ? CALLS : may_recover(c) ? CALLS_OF_START : INT_MAX; }

static void make_calls(const cell *c, coll_comm *comm, const work *w, int rank)
{
    report *r = &c->board->ranks[rank];

    r->is_right = true;
    for (r->calls = 0; r->status >= 0 && r->calls < most_calls(c); r->calls++) {
        const coll_call call = call_of(c, w, r->calls);
        if (call.kind == COLL_BROADCAST && rank == c->victim) memcpy(w->recv, w->send, WIDE * sizeof(float));
        r->status = r->calls == 0 && halts(c, rank) ? run_halting(c, comm, &call, rank) : coll_run(comm, &call);
        if (r->status == COLL_OK && !is_result(&call, w->recv, rank, c->size)) r->is_right = false;
    }
    r->ended_ms = now_ms();
    snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm));
    r->is_input_kept = is_filled(w, rank);
    r->failed_count = coll_failed_ranks(comm, &r->failed, 1);
}

static void try_later(coll_comm *comm, report *r)
{
    r->reached = AFTER;
    r->later = coll_barrier(comm);
    r->is_later_same = !strcmp(coll_error(comm), r->sentence) && now_ms() - r->ended_ms < support_scaled(SLACK_MS);
}

/* The survivors go on without the victim. */
static void shrink(const cell *c, coll_comm *comm, report *r)
{
    const int rank = coll_rank(comm), place = rank - (rank > c->victim);
    const int64_t began = now_ms();
    coll_comm *small = NULL;
    int32_t sum = 0;

    r->reached = SHRINKING;
    r->shrunk = coll_shrink(comm, &small);
    r->shrink_ms = now_ms() - began;
    snprintf(r->why_not, sizeof r->why_not, "%s", coll_error(comm));
    if (r->shrunk == COLL_OK && coll_size(small) == c->size - 1 && coll_rank(small) == place) {
        const int32_t mine = rank + 1;
        r->is_small_right = coll_allreduce(small, &mine, &sum, 1, COLL_I32, COLL_SUM) == COLL_OK
            && sum == c->size * (c->size + 1) / 2 - (c->victim + 1) && coll_barrier(small) == COLL_OK;
        if (!r->is_small_right) snprintf(r->why_not, sizeof r->why_not, "%s", coll_error(small));
    }
    coll_free(small);
}

/* ---- >>a rank ---- */

static int withheld(const cell *c) { return is_of_start(c->phase) ? c->size - 1 : -1; }

static void leave(const cell *c, coll_comm *comm, int rank)
{
    report *r = &c->board->ranks[rank];
    const int64_t began = now_ms();

    r->reached = LEAVING;
    coll_free(comm);
    r->free_ms = now_ms() - began;
    r->reached = OVER;
    tell(c, rank);
}

static void rank_main(const cell *c, int rank)
{
    char address[40], host[20];
    report *r = &c->board->ranks[rank];
    work w = { support_need(malloc(LARGE * sizeof(float))), support_need(calloc(LARGE, sizeof(float))) };
    coll_comm *comm = NULL;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGALRM, SIG_DFL);               /* which ends the process                                   */
    alarm(RANK_SECONDS);
    if (!net_enter(c->net, rank)) _exit(5);
    snprintf(address, sizeof address, "%s:%d", net_address(0, host, sizeof host), c->port);
    const coll_config config = { .rank = rank, .size = c->size, .address = address, .tcp.io = c->io, .tcp.security = c->security,
                                 .tcp.key = is_keyed(c) ? "the key of all the ranks of a cell" : NULL,
                                 .start_timeout_ms = is_of_start(c->phase) ? START_MS : SHRINK_MS,
                                 .liveness_timeout_ms = LIVENESS_MS, .log_level = COLL_LOG_ERROR };
    fill(&w, rank);
    if (rank == withheld(c)) gate(c, rank);
    r->reached = JOINING;
    r->hybrid = coll_init(&comm, &config);
    r->ended_ms = now_ms();
    snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(NULL));
    if (r->hybrid == COLL_OK) {
        r->reached = WORKING;
        if (c->phase > CONNECT)
            for (int i = 1; i < 4; i++) if (coll_run(comm, &(coll_call[]){ call_of(c, &w, i) }[0])) _exit(6);
        if (!is_of_start(c->phase)) gate(c, rank);
        r->began_ms = now_ms();
        if (c->phase != LEAVE) {
            make_calls(c, comm, &w, rank);
            if (r->status < 0) try_later(comm, r);
            if (has_left(c->fault) && rank != c->victim) shrink(c, comm, r);
        }
    }
    leave(c, comm, rank);
    _exit(0);
}

#endif /* TESTS_MATRIX_H */
