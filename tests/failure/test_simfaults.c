/* test_simfaults.c - the fault matrix under the virtual clock: a fault at every transport call of the victim, from its first to
 * its last, in steps, while a program of blocking collectives runs.  Every rank ends, in bounded virtual time.  All failing ranks
 * report the same cause, and it is the right one.  Then the remaining ranks go on with coll_shrink, as often as it takes, and
 * complete the program: exactly if they have a quorum.
 *
 *     test_simfaults [SIZE]                             COLL_TEST_SEED=... replays the steps of a run
 */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"

enum { RANKS_MOST = 17, SEND_ROOM = 3000, BLOCK = 24, POSITIONS = 40, SHRINKS_MOST = 3 };

typedef enum fault { KILL, STOP, LOSE, CUT, LATE, TWICE, FAULT_COUNT } fault;
static const char *const fault_names[] = { "kill", "stop", "lose", "cut", "late", "two" };

/* One rank's buffers, and how it went. */
typedef struct rank_of {
    int32_t send[SEND_ROOM], recv[SEND_ROOM];
    coll_status status, later;
    int    calls, failed_count, failed;           /* calls that went well; coll_failed_ranks                  */
    bool   is_over, is_right, is_input_kept, is_later_same;
    double time;
    char   sentence[320];
    int    shrinks, new_rank, new_size;           /* coll_shrink: calls; what it was in the last world        */
    coll_status shrunk, again;                    /* its last result; that of the program after it            */
    bool   is_again_right;
    char   shrink_sentence[320];
} rank_of;

static rank_of ranks[RANKS_MOST];
static char case_name[120];

static void report_hang(void) { fprintf(stderr, "failed: %s: hangs\n", case_name); }

/* ---- >>the program ---- */

static int32_t input(int rank, size_t at) { return (int32_t)at % 1000 + 1000 * rank; }

static int64_t sum(int size, size_t at) { return (int64_t)size * ((int64_t)at % 1000) + 1000 * (int64_t)size * (size - 1) / 2; }

typedef enum result { NOTHING, OF_ROOT, SUM, MY_BLOCK, SUM_TO_ME, ALL_BLOCKS, EXCHANGE, OF_LAST } outcome;

/* The calls, in this order, and their results.  Roots: -1 is the last rank. */
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

static int root_of(int at, int size) { return (program[at].root + size) % size; }

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

/* Go on with the remaining ranks, until the program is complete or they are too few. */
static void go_on(coll_comm *comm, rank_of *r)
{
    coll_comm *before = NULL, *next = NULL;

    r->is_again_right = true;
    do {
        r->shrunk = coll_shrink(before ? before : comm, &next);
        r->shrinks++;
        if (r->shrunk < 0) snprintf(r->shrink_sentence, sizeof r->shrink_sentence, "%s", coll_error(before ? before : comm));
        coll_free(before);
        before = next;
        if (r->shrunk < 0) break;
        r->new_rank = coll_rank(next);
        r->new_size = coll_size(next);
        r->again = COLL_OK;
        for (size_t i = 0; i < SEND_ROOM; i++) r->send[i] = input(r->new_rank, i);
        for (int at = 0; at < PROGRAM_LENGTH && r->again == COLL_OK; at++) {
            r->again = call(next, r, at);
            if (r->again == COLL_OK && !is_result(at, r->recv, r->new_rank, r->new_size)) r->is_again_right = false;
        }
    } while (r->again < 0 && r->shrinks < SHRINKS_MOST);
    coll_free(before);
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
    if (r->status < 0) go_on(comm, r);
    r->is_over = true;
    return 0;
}

/* ---- >>checks ---- */

/* The sentence of every rank of a simulated world that fails begins with this. */
static const char *cause_of(const char *sentence, const char *words)
{
    const char *at = strstr(sentence, words);
    return at ? at : "(another cause)";
}

static void evaluate_failed(fault f, int rank, int victim, int size, const char **first)
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
    CHECK(!strcmp(cause, *first), "%s: rank %d has \"%s\", others \"%s\"", case_name, rank, r->sentence, *first);
    if (f != CUT) CHECK(strstr(r->sentence, name) != NULL, "%s: rank %d names another: %s", case_name, rank, r->sentence);
    if (f == KILL)
        CHECK(r->failed_count == 1 && r->failed == victim, "%s: rank %d has %d failed ranks (%d)", case_name, rank,
              r->failed_count, r->failed);
    CHECK(r->later == r->status && r->is_later_same, "%s: rank %d: the next call has %d", case_name, rank, (int)r->later);
}

/* Ranks that failed and are alive had to go on if they had a quorum: in a partitioned network, on each side.  Two faults may
 * split them twice: then the only condition is that no rank gave up in a part with a quorum. */
static void evaluate_shrunk(fault f, int victim, int last, int size)
{
    int left[2] = { 0, 0 }, numbered[2] = { 0, 0 }, is_first[2] = { 0, 0 };

    for (int i = 0; i < size; i++) {
        const int side = f == CUT && i >= victim && i <= last;
        if (ranks[i].shrinks == 0 || !ranks[i].is_over) continue;
        left[side]++;
        if (i == 0) is_first[side] = 1;
    }
    for (int i = 0; i < size; i++) {
        const rank_of *r = &ranks[i];
        const int side = f == CUT && i >= victim && i <= last;
        const bool is_enough = 2 * left[side] > size || (2 * left[side] == size && is_first[side]);
        int there = 0, of = 0;
        if (r->shrinks == 0 || !r->is_over) continue;
        const char *said = strstr(r->shrink_sentence, "only ");
        if (f == TWICE && r->shrunk < 0) {
            CHECK(r->shrunk == COLL_ERR_PEER && said && sscanf(said, "only %d of %d", &there, &of) == 2 && 2 * there <= of,
                  "%s: rank %d gives up: %d: %s", case_name, i, (int)r->shrunk, r->shrink_sentence);
            continue;
        }
        CHECK(r->shrunk == (is_enough || f == TWICE ? COLL_OK : COLL_ERR_PEER), "%s: rank %d, one of %d left: %d: %s", case_name,
              i, left[side], (int)r->shrunk, r->shrink_sentence);
        if (r->shrunk < 0) continue;
        CHECK(r->again == COLL_OK && r->is_again_right, "%s: rank %d: after coll_shrink: %d, results %s", case_name, i,
              (int)r->again, r->is_again_right ? "right" : "wrong");
        if (f != TWICE)
            CHECK(r->shrinks == 1 && r->new_size == left[side] && r->new_rank == numbered[side]++,
                  "%s: rank %d is rank %d of %d after %d, of %d left", case_name, i, r->new_rank, r->new_size, r->shrinks,
                  left[side]);
    }
}

/* Returns whether any rank has failed: if not, the fault came after the end. */
static bool evaluate(fault f, int victim, int size, double clean)
{
    const double bound = clean + 2e-3 + (f == LATE ? 1 : 0);      /* a dead rank is detected after 1 ms           */
    const char *first = NULL;
    bool has_failed = false;

    for (int i = 0; i < size; i++) {
        const rank_of *r = &ranks[i];
        const bool has_left = !r->is_over && (f == TWICE || (i == victim && (f == KILL || f == STOP)));
        if (has_left) has_failed = true;
        if (has_left) continue;
        CHECK(r->is_over, "%s: rank %d has not ended", case_name, i);
        CHECK(r->is_right, "%s: rank %d has wrong results of calls that succeeded, %d of them", case_name, i, r->calls);
        CHECK(r->is_input_kept, "%s: the input of rank %d has changed", case_name, i);
        CHECK(r->time <= bound, "%s: rank %d ends at %g s, not before %g", case_name, i, r->time, bound);
        if (r->status == COLL_OK) continue;
        has_failed = true;
        if (f == LATE) CHECK(false, "%s: rank %d: %d: %s", case_name, i, (int)r->status, r->sentence);
        else if (f != TWICE) evaluate_failed(f, i, victim, size, &first);
    }
    return has_failed;
}

/* ---- >>running ---- */

/* Run the program in a world that the environment describes, as a user would.  Returns when the last rank ended. */
static double run_world(int size, const char *faults, uint64_t seed)
{
    char text[200];
    double time = 0;

    memset(ranks, 0, sizeof ranks);
    snprintf(text, sizeof text, "seed=%u per_host=%d jitter=1us %s", (unsigned)(seed % 100000), 1 + (int)(seed % 3), faults);
    setenv("COLL_SIM", text, 1);
    const int result = coll_spawn(size, run_program, NULL, NULL);
    CHECK(result == 0, "%s: coll_spawn: %d: %s", case_name, result, coll_error(NULL));
    for (int i = 0; i < size; i++) time = fmax(time, ranks[i].time);
    return time;
}

/* The last rank of those that are cut off from the others. */
static int last_cut(int victim, int size, uint64_t number) { return victim + (int)(number % (uint64_t)(size - victim)); }

static void fault_text(fault f, int victim, int size, uint64_t number, double time, char *text, size_t room)
{
    const unsigned long long at = (unsigned long long)number, later = at + number * 37 % 190;

    switch (f) {
    case LOSE: snprintf(text, room, "lose=%d@%llu", victim, at); break;
    case LATE: snprintf(text, room, "late=%d@%llu+900ms", victim, at); break;
    case CUT: snprintf(text, room, "cut=%d-%d@%.9gs", victim, last_cut(victim, size, number), time); break;
    case TWICE: snprintf(text, room, "kill=%d@%llu kill=%d@%llu", victim, at, (victim + 1) % size, later); break;
    default: snprintf(text, room, "%s=%d@%llu", fault_names[f], victim, at);
    }
}

/* The same fault later and later, until it has no effect. */
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
        const bool has_failed = evaluate(f, victim, size, clean);
        evaluate_shrunk(f, victim, last_cut(victim, size, number), size);
        if ((f == KILL || f == TWICE) && number == 1) CHECK(has_failed, "%s: no rank has missed it", case_name);
        if (f == CUT) goes_on = positions < POSITIONS;
        else if (f == LATE) goes_on = positions < POSITIONS;
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

/* ---- >>derived communicators ---- */

enum { DERIVED_SIZE = 5, DERIVED_VICTIM = 1 };

/* A rank is killed during calls on derived communicators, and the derived ones are shrunk: the even ranks go on among
 * themselves, and the odd ones get COLL_ERR_UNSUPPORTED. */
static int derived_rank(coll_comm *comm, void *arg)
{
    const int rank = coll_rank(comm);
    coll_comm *twin = NULL, *half = NULL, *left = NULL;
    int one = 1, sum_of = 0;

    (void)arg;
    coll_status status = coll_dup(comm, &twin);
    if (status == COLL_OK) status = coll_split(comm, rank % 2, 0, &half);
    for (int i = 0; i < 1000 && status == COLL_OK; i++)
        status = coll_allreduce(i % 2 ? twin : half, &one, &sum_of, 1, COLL_I32, COLL_SUM);
    CHECK(status == COLL_ERR_PEER, "%s: rank %d: %d: %s", case_name, rank, (int)status, coll_error(comm));
    const coll_status shrunk = coll_shrink(half, &left);
    CHECK(shrunk == (rank % 2 ? COLL_ERR_UNSUPPORTED : COLL_OK), "%s: rank %d: coll_shrink: %d: %s", case_name, rank, (int)shrunk,
          coll_error(half));
    if (left) {
        CHECK(coll_size(left) == 3 && coll_rank(left) == rank / 2, "%s: rank %d is %d of %d", case_name, rank, coll_rank(left),
              coll_size(left));
        status = coll_allreduce(left, &one, &sum_of, 1, COLL_I32, COLL_SUM);
        CHECK(status == COLL_OK && sum_of == 3, "%s: rank %d: %d, %d", case_name, rank, (int)status, sum_of);
    }
    coll_free(left);
    coll_free(half);
    coll_free(twin);
    ranks[rank].is_over = true;
    return 0;
}

static void run_derived(void)
{
    memset(ranks, 0, sizeof ranks);
    snprintf(case_name, sizeof case_name, "derived communicators");
    setenv("COLL_SIM", "kill=1@90", 1);
    CHECK(coll_spawn(DERIVED_SIZE, derived_rank, NULL, NULL) == 0, "%s: %s", case_name, coll_error(NULL));
    for (int i = 0; i < DERIVED_SIZE; i++) CHECK(ranks[i].is_over == (i != DERIVED_VICTIM), "%s: rank %d", case_name, i);
}

/* ---- >>faults while the survivors decide ---- */

enum { MEANWHILE_SIZE = 5, MEANWHILE_TRIES = 6 };

static int meanwhile_rank(coll_comm *comm, void *arg)
{
    const int rank = coll_rank(comm);
    coll_comm *now = comm, *next = NULL;
    int one = 1, sum_of = 0;
    coll_status status = COLL_OK;

    (void)arg;
    while (status == COLL_OK) status = coll_allreduce(now, &one, &sum_of, 1, COLL_I32, COLL_SUM);
    for (int i = 0; i < MEANWHILE_TRIES && status < 0; i++) {
        ranks[rank].shrunk = status = coll_shrink(now, &next);
        if (status < 0) continue;
        if (now != comm) coll_free(now);
        now = next;
        status = coll_allreduce(now, &one, &sum_of, 1, COLL_I32, COLL_SUM);
        for (int k = 0; k < 100 && status == COLL_OK; k++)    /* until a later fault is known                   */
            status = coll_allreduce(now, &one, &sum_of, 1, COLL_I32, COLL_SUM);
    }
    ranks[rank].again = status;
    ranks[rank].new_size = coll_size(now);
    ranks[rank].is_again_right = sum_of == coll_size(now);
    ranks[rank].is_over = true;
    if (now != comm) coll_free(now);
    return 0;
}

/* Rank 3 is killed; then, at every moment of the decision, another one, or it stops, or is cut off.  The rest goes on. */
static void run_meanwhile(void)
{
    static const char *const kinds[] = { "kill=%d@%dus", "stop=%d@%dus", "cut=%d-%d@%dus" };

    for (int i = 0; i < 3 * 3 * 160; i++) {
        const int kind = i % 3, victim = i / 3 % 3 == 2 ? 4 : i / 3 % 3, at = 900 + i / 9 * 10;
        char text[100] = "kill=3@1 ";
        memset(ranks, 0, sizeof ranks);
        if (kind == 2) snprintf(text + strlen(text), 80, kinds[kind], victim, victim, at);
        else snprintf(text + strlen(text), 80, kinds[kind], victim, at);
        snprintf(case_name, sizeof case_name, "%s", text);
        setenv("COLL_SIM", text, 1);
        CHECK(coll_spawn(MEANWHILE_SIZE, meanwhile_rank, NULL, NULL) == 0, "%s: %s", case_name, coll_error(NULL));
        for (int r = 0; r < MEANWHILE_SIZE; r++) {
            if (r == 3 || (r == victim && !ranks[r].is_over)) continue;
            const rank_of *const one = &ranks[r == 1 || victim == 1 ? 2 : 1], *const me = &ranks[r];
            if ((r == victim || victim == 0) && kind == 2 && me->again < 0) continue;     /* rank 0 may name another */
            CHECK(me->is_over && me->again == COLL_OK && me->is_again_right && me->new_size == one->new_size && me->new_size >= 3,
                  "%s: rank %d ends with %d of %d ranks, shrink %d, and another has %d", case_name, r, (int)me->again,
                  me->new_size, (int)me->shrunk, one->new_size);
        }
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
    run_derived();
    run_meanwhile();
    for (int i = 0; i < 4; i++)
        if (argc < 2 || atoi(argv[1]) == sizes[i]) run_size(sizes[i], seed);
    return CHECK_DONE();
}
