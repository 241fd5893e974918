/* test_simfaults.c - the fault matrix under the virtual clock: a fault at every call of the transport that the victim makes, from
 * its first to its last, in steps, while a program of blocking collectives runs.  Every rank ends, in virtual time that has a
 * bound; whoever fails gives the same cause, and it is the right one.
 *
 *     test_simfaults [SIZE]                             COLL_TEST_SEED=... replays the steps of a run
 */
#define _DEFAULT_SOURCE 1
#include "../coll.h"

#include "check.h"
#include "support.h"

enum { RANKS_MOST = 17, SEND_ROOM = 3000, BLOCK = 24, POSITIONS = 40 };

typedef enum fault { KILL, STOP, LOSE, CUT, LATE, PIECES, FAULT_COUNT } fault;
static const char *const fault_names[] = { "kill", "stop", "lose", "cut", "late", "pieces" };

/* One rank's buffers, and how it went. */
typedef struct rank_of {
    int32_t send[SEND_ROOM], recv[SEND_ROOM];
    coll_status status, later;
    int    calls, failed_count, failed;           /* calls that went well; coll_failed_ranks                  */
    bool   is_over, is_right, is_input_kept, is_later_same;
    double time;
    char   sentence[320];
} rank_of;

static rank_of ranks[RANKS_MOST];
static char case_name[120];

static void report_hang(void) { fprintf(stderr, "failed: %s: hangs\n", case_name); }

/* ---- >>the program ---- */

static int32_t input(int rank, size_t at) { return (int32_t)at % 1000 + 1000 * rank; }

static int64_t sum(int size, size_t at) { return (int64_t)size * ((int64_t)at % 1000) + 1000 * (int64_t)size * (size - 1) / 2; }

typedef enum result { NOTHING, OF_ROOT, SUM, MY_BLOCK, SUM_TO_ME, ALL_BLOCKS, EXCHANGE, OF_LAST } outcome;

/* What is called, in this order, and what comes of it.  Roots: -1 is the last rank. */
static const struct {
    coll_kind kind;
    size_t    count;
    int       root;
    const char *algorithm;
    outcome   result;
} program[] = {
    { COLL_BARRIER, 0, 0, NULL, NOTHING },            { COLL_BROADCAST, 40, 1, NULL, OF_ROOT },
    { COLL_ALLREDUCE, 10, 0, NULL, SUM },             { COLL_ALLREDUCE, SEND_ROOM, 0, NULL, SUM },
    { COLL_REDUCE_SCATTER, BLOCK, 0, NULL, MY_BLOCK }, { COLL_ALLGATHER, BLOCK, 0, NULL, ALL_BLOCKS },
    { COLL_ALLTOALL, BLOCK, 0, NULL, EXCHANGE },      { COLL_SCAN, 50, 0, NULL, SUM_TO_ME },
    { COLL_GATHER, BLOCK, 0, NULL, ALL_BLOCKS },      { COLL_SCATTER, BLOCK, -1, NULL, MY_BLOCK },
    { COLL_REDUCE, 500, 1, NULL, SUM },               { COLL_SENDRECV, 60, 0, NULL, OF_LAST },
    { COLL_ALLREDUCE, 400, 0, "ring", SUM },          { COLL_BROADCAST, 2000, -1, "blocks:5", OF_ROOT },
};
enum { PROGRAM_LENGTH = sizeof program / sizeof *program };

static int root_of(int at, int size) { return program[at].root < 0 ? size - 1 : program[at].root; }

/* Element i of the result on this rank. */
static int64_t expected(int at, int rank, int size, size_t i)
{
    const size_t block = i / BLOCK, within = i % BLOCK, mine = (size_t)rank * BLOCK + i;

    switch (program[at].result) {
    case OF_ROOT: return input(root_of(at, size), i);
    case SUM: return sum(size, i);
    case SUM_TO_ME: return sum(rank + 1, i);
    case MY_BLOCK: return program[at].kind == COLL_SCATTER ? input(root_of(at, size), mine) : sum(size, mine);
    case ALL_BLOCKS: return input((int)block, within);
    case EXCHANGE: return input((int)block, (size_t)rank * BLOCK + within);
    default: return input((rank + size - 1) % size, i);
    }
}

static bool is_result(int at, const int32_t *recv, int rank, int size)
{
    const coll_kind kind = program[at].kind;
    const bool is_rooted = kind == COLL_GATHER || kind == COLL_REDUCE;
    const size_t blocks = program[at].result == ALL_BLOCKS || program[at].result == EXCHANGE ? (size_t)size : 1;

    if (program[at].result == NOTHING || (is_rooted && rank != root_of(at, size))) return true;
    for (size_t i = 0; i < program[at].count * blocks; i++)
        if (recv[i] != (int32_t)expected(at, rank, size, i)) return false;
    return true;
}

static coll_status call(coll_comm *comm, rank_of *r, int at)
{
    const int rank = coll_rank(comm), size = coll_size(comm), next = (rank + 1) % size, last = (rank + size - 1) % size;
    coll_call c = { .kind = program[at].kind, .send = r->send, .recv = r->recv, .count = program[at].count, .type = COLL_I32,
                    .root = root_of(at, size), .algorithm = program[at].algorithm };

    if (c.kind == COLL_BARRIER) return coll_barrier(comm);
    if (c.kind == COLL_SENDRECV) return coll_sendrecv(comm, r->send, c.count, next, r->recv, c.count, last, COLL_I32, 5);
    if (c.kind == COLL_BROADCAST) {
        c.send = NULL;
        for (size_t i = 0; i < c.count; i++) r->recv[i] = rank == c.root ? input(rank, i) : -1;
    }
    return coll_run(comm, &c);
}

static int run_program(coll_comm *comm, void *arg)
{
    const int rank = coll_rank(comm), size = coll_size(comm);
    rank_of *r = &ranks[rank];

    (void)arg;
    for (size_t i = 0; i < SEND_ROOM; i++) r->send[i] = input(rank, i);
    r->is_right = r->is_input_kept = r->is_later_same = true;
    for (int at = 0; at < PROGRAM_LENGTH && r->status == COLL_OK; at++) {
        r->status = call(comm, r, at);
        if (r->status == COLL_OK && !is_result(at, r->recv, rank, size)) r->is_right = false;
        r->calls += r->status == COLL_OK;
    }
    r->time = coll_sim_time(comm);
    for (size_t i = 0; i < SEND_ROOM; i++) r->is_input_kept = r->is_input_kept && r->send[i] == input(rank, i);
    snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm));
    r->failed_count = coll_failed_ranks(comm, &r->failed, 1);
    r->later = r->status < 0 ? coll_barrier(comm) : COLL_OK;
    if (r->status < 0) r->is_later_same = !strcmp(r->sentence, coll_error(comm));
    r->is_over = true;
    return 0;
}

/* ---- >>judging ---- */

/* What every rank of a simulated world that fails says of it: it begins here. */
static const char *cause_of(const char *sentence, const char *words)
{
    const char *at = strstr(sentence, words);
    return at ? at : "(another cause)";
}

static void judge_failed(fault f, int rank, int victim, int size, const char **first)
{
    static const char *const words[] = { "was killed at", "was stopped", "a message from rank", "cut off" };
    static const coll_status statuses[] = { COLL_ERR_PEER, COLL_ERR_TIMEOUT, COLL_ERR_TIMEOUT, COLL_ERR_TIMEOUT };
    const rank_of *r = &ranks[rank];
    const char *cause = cause_of(r->sentence, f == KILL ? words[f] : "nothing can move");
    char name[24];

    snprintf(name, sizeof name, "rank %d ", victim);
    if (!*first) *first = cause;
    CHECK(r->status == statuses[f] && strstr(r->sentence, words[f]), "%s: rank %d of %d: %d: %s", case_name, rank, size,
          (int)r->status, r->sentence);
    CHECK(!strcmp(cause, *first), "%s: rank %d says \"%s\", others \"%s\"", case_name, rank, r->sentence, *first);
    if (f != CUT) CHECK(strstr(r->sentence, name) != NULL, "%s: rank %d names another: %s", case_name, rank, r->sentence);
    if (f == KILL)
        CHECK(r->failed_count == 1 && r->failed == victim, "%s: rank %d has %d failed ranks (%d)", case_name, rank,
              r->failed_count, r->failed);
    CHECK(r->later == r->status && r->is_later_same, "%s: rank %d: the next call has %d", case_name, rank, (int)r->later);
}

/* Gives whether anyone has failed: if not, the fault came after the end. */
static bool judge(fault f, int victim, int size, double clean)
{
    const double bound = clean + 2e-3 + (f == LATE ? 1 : 0);      /* the time to miss a dead rank is 1 ms         */
    const char *first = NULL;
    bool has_failed = false;

    for (int i = 0; i < size; i++) {
        const rank_of *r = &ranks[i];
        const bool is_gone = i == victim && (f == KILL || f == STOP) && !r->is_over;
        if (is_gone) has_failed = true;
        if (is_gone) continue;
        CHECK(r->is_over, "%s: rank %d has vanished", case_name, i);
        CHECK(r->is_right, "%s: rank %d has wrong results of calls that went well, %d of them", case_name, i, r->calls);
        CHECK(r->is_input_kept, "%s: the input of rank %d has changed", case_name, i);
        CHECK(r->time <= bound, "%s: rank %d ends at %g s, not before %g", case_name, i, r->time, bound);
        if (r->status == COLL_OK) continue;
        has_failed = true;
        if (f >= LATE) CHECK(false, "%s: rank %d: %d: %s", case_name, i, (int)r->status, r->sentence);
        else judge_failed(f, i, victim, size, &first);
    }
    return has_failed;
}

/* ---- >>running ---- */

/* Run the program in a world that the environment describes, as a user would.  Gives when the last rank was done. */
static double run_world(int size, const char *faults, uint64_t seed)
{
    char text[200];
    double time = 0;

    memset(ranks, 0, sizeof ranks);
    snprintf(text, sizeof text, "seed=%u per_host=%d jitter=1us %s", (unsigned)(seed % 100000), 1 + (int)(seed % 3), faults);
    setenv("COLL_SIM", text, 1);
    const int result = coll_spawn(size, run_program, NULL);
    CHECK(result == 0, "%s: coll_spawn: %d: %s", case_name, result, coll_error(NULL));
    for (int i = 0; i < size; i++) time = fmax(time, ranks[i].time);
    return time;
}

static void fault_text(fault f, int victim, int size, uint64_t number, double time, char *text, size_t room)
{
    const unsigned long long at = (unsigned long long)number;

    switch (f) {
    case LOSE: snprintf(text, room, "lose=%d@%llu", victim, at); break;
    case LATE: snprintf(text, room, "late=%d@%llu+900ms", victim, at); break;
    case PIECES: snprintf(text, room, "pieces=%d", victim); break;
    case CUT: snprintf(text, room, "cut=%d-%d@%.9gs", victim, victim + (int)(number % (uint64_t)(size - victim)), time); break;
    default: snprintf(text, room, "%s=%d@%llu", fault_names[f], victim, at);
    }
}

/* The same fault ever later, until it comes too late to matter. */
static int run_fault(fault f, int size, int victim, uint64_t seed)
{
    char text[100];
    uint64_t number = 1, step = 1 + support_mix(seed) % 3;
    int positions = 0;

    snprintf(case_name, sizeof case_name, "%d ranks, no fault", size);
    const double clean = run_world(size, "", seed);
    for (bool goes_on = true; goes_on; positions++) {
        const double time = clean * (double)positions / POSITIONS;
        fault_text(f, victim, size, number, time, text, sizeof text);
        snprintf(case_name, sizeof case_name, "%d ranks, %s, seed %llu", size, text, (unsigned long long)seed);
        run_world(size, text, seed);
        const bool has_failed = judge(f, victim, size, clean);
        if (f == KILL && number == 1) CHECK(has_failed, "%s: no rank has missed it", case_name);
        if (f == CUT) goes_on = positions < POSITIONS;
        else if (f == LATE || f == PIECES) goes_on = f == LATE && positions < POSITIONS;
        else goes_on = has_failed;
        number += step;
        if (positions % 16 == 15) step++;         /* the last calls are like the first ones                   */
    }
    return positions;
}

static void run_size(int size, uint64_t seed)
{
    for (int f = 0; f < FAULT_COUNT; f++) {
        const double began = support_seconds();
        const int before = check__failed, other = 1 + (int)(support_mix(seed + (uint64_t)size) % (uint64_t)(size - 1));
        int positions = run_fault((fault)f, size, 0, seed);
        positions += run_fault((fault)f, size, other, seed + 1);
        printf("%-8s %3d ranks  %5d positions  %-4s %6.2f s\n", fault_names[f], size, positions,
               check__failed == before ? "ok" : "FAIL", support_seconds() - began);
    }
}

int main(int argc, char **argv)
{
    static const int sizes[] = { 2, 4, 8, 17 };
    const uint64_t seed = support_seed();

    setvbuf(stdout, NULL, _IOLBF, 0);
    support_limit(300, report_hang);
    setenv("COLL_TRANSPORT", "sim", 1);
    setenv("COLL_DEBUG", "error", 1);
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 4; i++)
        if (argc < 2 || atoi(argv[1]) == sizes[i]) run_size(sizes[i], seed);
    return CHECK_DONE();
}
