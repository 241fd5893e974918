/* test_agree.c - coll_agree while ranks die, stop, leave and abort: on all ranks that get COLL_OK of an agreement the flags are
 * the same, the AND of those of all ranks that have not failed, and so are the failed ranks, which only grow.  They agree until
 * all know that nothing more happens.  Then they shrink a communicator that has failed, and agree there.
 *
 *     test_agree [WORLD,...] [PART,...]         WORLD: poll, uring, hybrid, threads, sim
 *                                               PART: pairs, late, quiet, kills, sends, stops, chance
 *     test_agree PLAN [TIMES]                   PLAN: as a failure prints it, from "poll, 5 ranks" on
 *
 * COLL_TEST_SEED=... replays `chance`; COLL_TEST_SCALE says how much of it there is. */
#define _GNU_SOURCE
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

#include <sys/syscall.h>

enum { RANKS_MOST = 8, CALLS_MOST = 400, TRIES_MOST = 4, LIVENESS_MS = 1000, START_MS = 6000, RANK_SECONDS = 40,
       CASE_SECONDS = 600, QUIET_CALLS = 6, OVER = 1 };

/* What happens to the first rank of a process, in its call `call` of coll_agree. */
typedef enum fate_kind { LIVES, DIES_AFTER, DIES_AT_SEND, STOPS_AT_SEND, ABORTS, LEAVES } fate_kind;

/* number: us after the begin of the call, or its send. */
typedef struct fate { fate_kind kind; int call, number; } fate;

typedef struct plan {
    int  size, each;                              /* each: ranks of a process                                 */
    int  hold_ms;                                 /* how long a stopped process stops                         */
    fate outcomes[RANKS_MOST];                       /* by process                                               */
} plan;

typedef struct result { uint64_t flags; unsigned failed; } result;

typedef struct report {
    bool        is_done;
    int         calls, errors, slowest_ms;        /* calls: with COLL_OK                                      */
    coll_status last, shrunk, again;              /* of coll_agree; coll_shrink; coll_agree after it          */
    unsigned    members, lost;                    /* of the new world; coll_failed_ranks after coll_shrink    */
    uint64_t    flags_again;
    result      results[CALLS_MOST];
    char        sentence[400];
} report;

static struct board { int open; report ranks[RANKS_MOST]; } *board;

/* `open`: outcomes that are still to come.  The flags that a rank brings to a call: */
static uint64_t flags_of(int rank, int call)
{
    const uint64_t a = support_mix((uint64_t)rank * 1000 + (uint64_t)call), b = support_mix(a);
    return (a | b | support_mix(b)) & ~(uint64_t)OVER;
}

/* ---- >>outcomes ---- */

static __thread const fate *armed;
static __thread int sends;

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
    const bool is_time = armed && armed->kind >= DIES_AT_SEND && armed->kind <= STOPS_AT_SEND && ++sends == armed->number;

    if (is_time) kill(getpid(), armed->kind == STOPS_AT_SEND ? SIGSTOP : SIGKILL);
    return syscall(SYS_sendto, fd, bytes, length, flags, NULL, 0);
}

static void *killer_main(void *at)
{
    const int us = ((const fate *)at)->number;
    nanosleep(&(const struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* ---- >>ranks ---- */

static unsigned failed_of(coll_comm *comm)
{
    int ranks[RANKS_MOST];
    const int count = coll_failed_ranks(comm, ranks, RANKS_MOST);
    unsigned failed = 0;

    for (int i = 0; i < count; i++) failed |= 1u << ranks[i];
    return failed;
}

static bool is_over(coll_comm *comm, int call)
{
    if (!strcmp(world, "sim")) return coll_sim_time(comm) > 5e-3;
    if (!strcmp(world, "threads")) return call > QUIET_CALLS;
    return __atomic_load_n(&board->open, __ATOMIC_SEQ_CST) == 0 && call > QUIET_CALLS;
}

/* Agree until all know that it is over.  Between the calls a communicator that has not failed is used. */
static void agree_all(coll_comm *comm, int me, const fate *mine, report *r)
{
    uint64_t flags = 0;
    coll_status used = COLL_OK;

    for (int call = 1; call < CALLS_MOST && !(flags & OVER); call++) {
        const bool is_time = mine && mine->kind && call == mine->call;
        pthread_t killer;
        int tries = 0;
        if (is_time && mine->kind == LEAVES) return;
        if (is_time && mine->kind == ABORTS) (void)coll_abort(comm, "enough");
        if (is_time && mine->kind == DIES_AFTER && !pthread_create(&killer, NULL, killer_main, (void *)(uintptr_t)mine))
            pthread_detach(killer);
        armed = is_time ? mine : NULL;
        do {
            const int64_t began = now_ms();
            flags = flags_of(me, call) | is_over(comm, call);
            r->last = coll_agree(comm, &flags);
            if (now_ms() - began > r->slowest_ms) r->slowest_ms = (int)(now_ms() - began);
            r->errors += r->last < 0;
        } while (r->last == COLL_ERR_PEER && ++tries < TRIES_MOST);
        armed = NULL;
        if (is_time && mine->kind >= DIES_AT_SEND && sends < mine->number) __atomic_sub_fetch(&board->open, 1, __ATOMIC_SEQ_CST);
        if (r->last < 0) {
            snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm));
            break;
        }
        r->results[r->calls++] = (result){ flags & ~(uint64_t)OVER, failed_of(comm) };
        int32_t one = 1, sum = 0;
        const bool is_used = used == COLL_OK;
        if (is_used) used = coll_allreduce(comm, &one, &sum, 1, COLL_I32, COLL_SUM);
        CHECK(!is_used || used != COLL_ERR_PEER || failed_of(comm), "%s: rank %d: no rank has failed: %s", case_name, me,
              coll_error(comm));
        CHECK(used || sum == coll_size(comm), "%s: rank %d: the sum is %d", case_name, me, (int)sum);
    }
}

static int rank_main(coll_comm *comm, void *arg)
{
    const fate *mine = arg;
    const int me = coll_rank(comm);
    report *r = &board->ranks[me];
    coll_comm *next = NULL;

    agree_all(comm, me, mine, r);
    r->shrunk = r->again = COLL_ERR_ARGUMENT;
    if (r->last == COLL_OK && coll_barrier(comm) < 0 && !(mine && mine->kind == LEAVES)) {
        r->shrunk = coll_shrink(comm, &next);
        if (r->shrunk < 0) snprintf(r->sentence, sizeof r->sentence, "%s", coll_error(comm));
        r->lost = failed_of(comm);
    }
    if (next) {
        int32_t ids[RANKS_MOST], id = me;
        r->flags_again = flags_of(me, 0);
        r->again = coll_agree(next, &r->flags_again);
        if (r->again == COLL_OK && coll_allgather(next, &id, ids, 1, COLL_I32) == COLL_OK)
            for (int i = 0; i < coll_size(next); i++) r->members |= 1u << ids[i];
        coll_free(next);
    }
    r->is_done = true;
    return 0;
}

typedef struct part { pthread_t thread; coll_comm *comm; const fate *fate; } part;

static void *part_main(void *at)
{
    part *own = at;

    (void)rank_main(own->comm, (void *)(uintptr_t)own->fate);
    coll_free(own->comm);
    return NULL;
}

static int process_main(const plan *p, int process, const char *address)
{
    part parts[RANKS_MOST];
    coll_comm *comms[RANKS_MOST] = { 0 };
    const int first = process * p->each, count = first + p->each > p->size ? p->size - first : p->each;
    const coll_config config = { .rank = first, .size = p->size, .address = address, .start_timeout_ms = START_MS,
                                 .liveness_timeout_ms = LIVENESS_MS, .log_level = COLL_LOG_ERROR,
                                 .tcp = { .io = !strcmp(world, "uring") ? "uring" : "poll", .security = "open",
                                          .share_memory = p->each > 1 ? COLL_DEFAULT : COLL_OFF } };
    const coll_status status = p->each > 1 ? coll_init_threads(count, comms, &config) : coll_init(&comms[0], &config);

    if (status) return fprintf(stderr, "%s: ranks from %d: %s\n", case_name, first, coll_error(NULL)), 1;
    for (int i = 0; i < count; i++) {
        parts[i] = (part){ .comm = comms[i], .fate = i == 0 ? &p->outcomes[process] : NULL };
        if (pthread_create(&parts[i].thread, NULL, part_main, &parts[i])) return 1;
    }
    for (int i = 0; i < count; i++) pthread_join(parts[i].thread, NULL);
    return check__failed > 0;
}

/* ---- >>checks ---- */

static const char *const fate_names[] = { "", "after us ", "at send ", "stops at send ", "aborts ", "leaves " };

static int processes_of(const plan *p) { return (p->size + p->each - 1) / p->each; }

static const char *plan_text(const plan *p)
{
    static char text[300];

    snprintf(text, sizeof text, "%s, %d ranks, %d each, %d ms:", world, p->size, p->each, p->hold_ms);
    for (int i = 0; i < processes_of(p); i++)
        if (p->outcomes[i].kind != LIVES)
            snprintf(text + strlen(text), sizeof text - strlen(text), " process %d in call %d %s%d;", i, p->outcomes[i].call,
                     fate_names[p->outcomes[i].kind], p->outcomes[i].number);
    return text;
}

/* The plan that such a text describes.  false: none. */
static bool plan_read(const char *text, plan *p)
{
    static char name[16];

    memset(p, 0, sizeof *p);
    if (sscanf(text, "%15[a-z], %d ranks, %d each, %d ms", name, &p->size, &p->each, &p->hold_ms) != 4) return false;
    world = name;
    for (const char *at = text; (at = strstr(at, " process ")); at++) {
        int process, call, used = 0;
        if (sscanf(at, " process %d in call %d %n", &process, &call, &used) != 2 || process < 0 || process >= RANKS_MOST)
            return false;
        for (int kind = DIES_AFTER; kind <= LEAVES; kind++)
            if (!strncmp(at + used, fate_names[kind], strlen(fate_names[kind])))
                p->outcomes[process] = (fate){ (fate_kind)kind, call, atoi(at + used + strlen(fate_names[kind])) };
    }
    return p->size > 0 && p->size <= RANKS_MOST && p->each > 0;
}

/* `gone`: ranks that were killed or given up, or have left. */
static void evaluate(const plan *p, unsigned gone)
{
    const unsigned all = (1u << p->size) - 1, left = all & ~gone;
    const int count = __builtin_popcount(left);
    const bool is_enough = 2 * count > p->size || (2 * count == p->size && (left & 1));
    const report *longest = &board->ranks[0], *shrunk = NULL;

    for (int i = 0; i < p->size; i++) if (board->ranks[i].calls > longest->calls) longest = &board->ranks[i];
    for (int k = 0; k < longest->calls; k++) {
        const result *const one = &longest->results[k];
        uint64_t flags = ~(uint64_t)OVER;
        for (int i = 0; i < p->size; i++) if (!(one->failed >> i & 1)) flags &= flags_of(i, k + 1);
        CHECK(one->flags == flags, "%s: call %d: %#llx, not %#llx, without %#x", case_name, k + 1, (unsigned long long)one->flags,
              (unsigned long long)flags, one->failed);
        CHECK(!(one->failed & ~gone), "%s: call %d: %#x have failed, and only %#x are gone", case_name, k + 1, one->failed, gone);
        CHECK(k == 0 || !(longest->results[k - 1].failed & ~one->failed), "%s: call %d: %#x have failed, before %#x", case_name,
              k + 1, one->failed, longest->results[k - 1].failed);
        for (int i = 0; i < p->size; i++) {
            const report *r = &board->ranks[i];
            CHECK(r->calls <= k || (r->results[k].flags == one->flags && r->results[k].failed == one->failed),
                  "%s: call %d: rank %d has %#llx without %#x, another one %#llx without %#x", case_name, k + 1, i,
                  (unsigned long long)r->results[k].flags, r->results[k].failed, (unsigned long long)one->flags, one->failed);
        }
    }
    for (int i = 0; i < p->size; i++) {
        const report *r = &board->ranks[i];
        if (gone >> i & 1) continue;
        CHECK(r->is_done, "%s: rank %d has not ended", case_name, i);
        CHECK(!is_enough || (r->last == COLL_OK && r->calls == longest->calls), "%s: rank %d, one of %d left, has %d of %d "
              "calls: %d: %s", case_name, i, count, r->calls, longest->calls, (int)r->last, r->sentence);
        CHECK(is_enough || r->last == COLL_OK || r->last == COLL_ERR_PEER, "%s: rank %d: %d: %s", case_name, i, (int)r->last,
              r->sentence);
        CHECK(r->last < 0 || !gone || !is_enough || r->shrunk == COLL_OK, "%s: rank %d: coll_shrink: %d: %s", case_name, i,
              (int)r->shrunk, r->sentence);
        if (r->last < 0 || r->shrunk != COLL_OK) continue;
        if (!shrunk) shrunk = r;
        uint64_t flags = UINT64_MAX;
        for (int k = 0; k < p->size; k++) if (r->members >> k & 1) flags &= flags_of(k, 0);
        CHECK(r->members == shrunk->members && !(r->members & longest->results[longest->calls - 1].failed)
              && r->lost == (all & ~r->members), "%s: rank %d: members %#x, lost %#x, and %#x had failed", case_name, i,
              r->members, r->lost, longest->results[longest->calls - 1].failed);
        CHECK(r->again == COLL_OK && r->flags_again == flags, "%s: rank %d: coll_agree after coll_shrink: %d: %#llx, not %#llx",
              case_name, i, (int)r->again, (unsigned long long)r->flags_again, (unsigned long long)flags);
        CHECK(r->slowest_ms < support_scaled(6 * LIVENESS_MS), "%s: rank %d: coll_agree took %d ms", case_name, i, r->slowest_ms);
    }
}

static unsigned ranks_of(const plan *p, int process)
{
    return ((1u << p->each) - 1) << (process * p->each) & ((1u << p->size) - 1);
}

/* Run processes.  Returns whether each one got its fate. */
static bool run_plan(const plan *p)
{
    char address[64] = "";
    const int processes = processes_of(p), port = support_reserve_port(address, sizeof address);
    pid_t pids[RANKS_MOST] = { 0 };
    unsigned gone = 0, fated = 0, planned = 0;
    int running = 0;

    snprintf(case_name, sizeof case_name, "%.*s", (int)sizeof case_name - 1, plan_text(p));
    memset(board, 0, sizeof *board);
    for (int i = 0; i < processes; i++) if (p->outcomes[i].kind != LIVES) planned |= 1u << i;
    board->open = __builtin_popcount(planned);
    fflush(NULL);
    for (int i = 0; i < processes; i++) {
        if ((pids[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            signal(SIGALRM, SIG_DFL);
            alarm((unsigned)(support_scaled(RANK_SECONDS * 1000) / 1000));
            exit(process_main(p, i, address));
        }
        running += pids[i] > 0;
    }
    CHECK(running == processes, "%s: fork", case_name);
    while (running > 0) {
        int status = 0, i = 0;
        const pid_t pid = waitpid(-1, &status, WUNTRACED);
        while (i < processes && pids[i] != pid) i++;
        if (i == processes) break;
        const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (WIFSTOPPED(status)) {
            nanosleep(&(const struct timespec){ p->hold_ms / 1000, p->hold_ms % 1000 * 1000000L }, NULL);
            kill(pids[i], SIGCONT);
            if (p->hold_ms > LIVENESS_MS) gone |= ranks_of(p, i);
        } else {
            if (is_killed) gone |= ranks_of(p, i);
            CHECK(is_killed || status == 0, "%s: process %d ends with %#x", case_name, i, (unsigned)status);
            running--;
        }
        if (!is_killed && !WIFSTOPPED(status)) continue;
        if (!(fated >> i & 1)) __atomic_sub_fetch(&board->open, 1, __ATOMIC_SEQ_CST);
        fated |= 1u << i;
    }
    evaluate(p, gone);
    close(port);
    return (fated & planned) == planned;
}

/* ---- >>parts ---- */

static int each_of(void) { return !strcmp(world, "hybrid") ? 2 : 1; }

static plan plan_for(int size) { return (plan){ .size = size, .each = each_of() }; }

static void quiet_case(const void *arg)
{
    (void)arg;
    for (int size = 1; size <= RANKS_MOST; size++) {
        const plan p = plan_for(size);
        run_plan(&p);
        for (int i = 0; i < size; i++)
            CHECK(board->ranks[i].shrunk == COLL_ERR_ARGUMENT && board->ranks[i].errors == 0, "%s: rank %d: a healthy "
                  "communicator has failed: %d: %s", case_name, i, (int)board->ranks[i].last, board->ranks[i].sentence);
    }
}

/* Two threads of each rank agree at the same time, on two communicators of the same ranks.  Then the last rank leaves; the
 * others agree in one thread, and in the other one read who has failed. */
typedef struct pair { coll_comm *comm; int me, size, first, is_over; } pair;

static void *pair_agree(void *at)
{
    const pair *own = at;

    for (int call = own->first; call < CALLS_MOST; call += 2) {
        uint64_t flags = flags_of(own->me, call), all = UINT64_MAX;
        for (int i = 0; i < own->size; i++) all &= flags_of(i, call);
        const coll_status status = coll_agree(own->comm, &flags);
        CHECK(status == COLL_OK && flags == all, "%s: rank %d: call %d: %d: %#llx, not %#llx: %s", case_name, own->me, call,
              (int)status, (unsigned long long)flags, (unsigned long long)all, coll_error(own->comm));
        if (status != COLL_OK) break;
    }
    return NULL;
}

static void *pair_look(void *at)
{
    const pair *own = at;
    const unsigned last = 1u << (own->size - 1);

    while (!__atomic_load_n(&own->is_over, __ATOMIC_SEQ_CST)) {
        const unsigned failed = failed_of(own->comm);
        CHECK(failed == last, "%s: rank %d: %#x have failed", case_name, own->me, failed);
        sched_yield();
    }
    return NULL;
}

static int pair_main(coll_comm *comm, void *arg)
{
    pair first = { comm, coll_rank(comm), coll_size(comm), 0, 0 }, second = first;
    pthread_t other;

    (void)arg;
    second.first = 1;
    if (coll_dup(comm, &second.comm) || pthread_create(&other, NULL, pair_agree, &second)) return 1;
    (void)pair_agree(&first);
    pthread_join(other, NULL);
    if (first.me < first.size - 1) {
        while (coll_barrier(comm) == COLL_OK) continue;
        if (pthread_create(&other, NULL, pair_look, &second)) return 1;
        for (int call = 0; call < CALLS_MOST; call++) {
            uint64_t flags = flags_of(first.me, call), all = UINT64_MAX;
            for (int i = 0; i < first.size - 1; i++) all &= flags_of(i, call);
            const coll_status status = coll_agree(comm, &flags);
            CHECK(status == COLL_OK && flags == all, "%s: rank %d: call %d without one: %d: %#llx, not %#llx: %s", case_name,
                  first.me, call, (int)status, (unsigned long long)flags, (unsigned long long)all, coll_error(comm));
        }
        __atomic_store_n(&second.is_over, 1, __ATOMIC_SEQ_CST);
        pthread_join(other, NULL);
    }
    (void)coll_free(second.comm);
    return 0;
}

static void pairs_case(const void *arg)
{
    const coll_config config = { .log_level = COLL_LOG_ERROR };

    snprintf(case_name, sizeof case_name, "%s: two threads of each rank", (const char *)arg);
    for (int size = 2; size <= 4; size++)
        CHECK(support_run_config(arg, size, &config, pair_main, NULL) == 0, "%s: %d ranks", case_name, size);
}

static void kills_case(const void *arg)
{
    static const int delays[] = { 0, 100, 200, 400, 800 };

    (void)arg;
    for (int size = 3; size <= RANKS_MOST; size += 2)
        for (int k = 0; k < 5; k++) {
            plan p = plan_for(size);
            const int last = processes_of(&p) - 1;
            p.outcomes[k % 2 ? 0 : last] = (fate){ DIES_AFTER, 2 + k, delays[k] };
            if (last > 2) p.outcomes[last / 2] = (fate){ DIES_AFTER, 2 + k, 2 * delays[4 - k] };
            run_plan(&p);
        }
}

/* One is killed before each of its sends in a call; with the first one dead, another one in the rounds behind it. */
static void sends_case(const void *arg)
{
    static const struct { int size, first, second; } who[] = { { 5, -1, 0 }, { 4, -1, 3 }, { 5, 4, 0 }, { 5, 0, 1 } };

    (void)arg;
    for (size_t k = 0; k < sizeof who / sizeof *who; k++) {
        bool has_died = true;
        for (int number = 1; number < 40 && has_died; number++) {
            plan p = plan_for(who[k].size * each_of());
            if (p.size > RANKS_MOST) p.size = RANKS_MOST;
            if (who[k].first >= processes_of(&p) || who[k].second >= processes_of(&p)) break;
            if (who[k].first >= 0) p.outcomes[who[k].first] = (fate){ DIES_AFTER, 2, 0 };
            p.outcomes[who[k].second] = (fate){ DIES_AT_SEND, 3, number };
            p.hold_ms = 0;
            has_died = run_plan(&p);
        }
    }
}

static void stops_case(const void *arg)
{
    (void)arg;
    for (int k = 0; k < 6; k++) {
        plan p = plan_for(5);
        p.hold_ms = k < 2 ? LIVENESS_MS / 3 : 4 * LIVENESS_MS;
        p.outcomes[k % 2 ? 0 : processes_of(&p) - 1] = (fate){ STOPS_AT_SEND, 2, 1 + k / 2 };
        run_plan(&p);
    }
}

static void chance_case(const void *arg)
{
    uint64_t state = *(const uint64_t *)arg;
    plan p = plan_for(2 + (int)(support_mix(state++) % (RANKS_MOST - 1)));

    for (int i = 0; i < processes_of(&p); i++) {
        const uint64_t draw = support_mix(state++);
        if (draw % 3) continue;
        p.outcomes[i] = draw >> 8 & 1 ? (fate){ DIES_AFTER, 1 + (int)(draw >> 16 & 3), (int)(draw >> 24 & 2047) }
                                   : (fate){ DIES_AT_SEND, 1 + (int)(draw >> 16 & 3), 1 + (int)(draw >> 24 & 7) };
    }
    run_plan(&p);
}

/* Threads that abort or leave, at any of the first calls. */
static void threads_case(const void *arg)
{
    (void)arg;
    setenv("COLL_TRANSPORT", "threads", 1);
    for (int size = 1; size <= RANKS_MOST; size++)
        for (int k = 0; k < 3 * size; k++) {
            plan p = { .size = size, .each = 1 };
            part parts[RANKS_MOST];
            coll_comm *comms[RANKS_MOST];
            const fate_kind kind = k % 3 == 0 ? LIVES : k % 3 == 1 ? ABORTS : LEAVES;
            p.outcomes[k / 3] = (fate){ kind, 1 + k % 5, 0 };
            snprintf(case_name, sizeof case_name, "%.*s", (int)sizeof case_name - 1, plan_text(&p));
            memset(board, 0, sizeof *board);
            const coll_config config = { .start_timeout_ms = START_MS, .log_level = COLL_LOG_ERROR };
            if (coll_init_threads(size, comms, &config)) {
                CHECK(false, "%s: %s", case_name, coll_error(NULL));
                continue;
            }
            for (int i = 0; i < size; i++) {
                parts[i] = (part){ .comm = comms[i], .fate = &p.outcomes[i] };
                pthread_create(&parts[i].thread, NULL, part_main, &parts[i]);
            }
            for (int i = 0; i < size; i++) pthread_join(parts[i].thread, NULL);
            evaluate(&p, kind == LEAVES ? 1u << k / 3 : 0);
        }
}

/* The last rank is too late, and given up.  It keeps its communicator: the others do not wait for it any more.  The time of the
 * rank before it is over first.  By messages that one may wait for another, which is not late itself: then no rank is named. */
enum { LATE_MS = 500 };

typedef struct late { const char *world, *algorithm; int left; } late;        /* left: ranks that have not agreed */

static int late_main(coll_comm *comm, void *arg)
{
    const int me = coll_rank(comm), last = coll_size(comm) - 1;
    late *const own = arg;
    int *const left = &own->left;
    const bool is_named = !strcmp(own->world, "threads") && !own->algorithm, is_virtual = !strcmp(own->world, "sim");
    const int64_t began = now_ms();
    const coll_call barrier = { .kind = COLL_BARRIER, .algorithm = own->algorithm,
                                .timeout_ms = (int)support_scaled(me == last - 1 ? LATE_MS : 3 * LATE_MS) };
    uint64_t flags = flags_of(me, 0), all = UINT64_MAX;
    coll_request *never = NULL;

    if (coll_barrier(comm)) return 1;             /* connections are there                                    */
    if (me == last && is_virtual && coll_irecv(comm, &flags, 1, COLL_U64, 0, 1, &never)) return 1;
    while (me == last && (is_virtual ? coll_test(never) == COLL_PENDING : __atomic_load_n(left, __ATOMIC_SEQ_CST) > 0))
        sched_yield();
    CHECK(coll_run(comm, &barrier) == COLL_ERR_TIMEOUT, "%s: rank %d: %s", case_name, me, coll_error(comm));
    CHECK(!(failed_of(comm) & ~(1u << last)), "%s: rank %d: %#x have failed: %s", case_name, me, failed_of(comm),
          coll_error(comm));
    CHECK(!is_named || failed_of(comm), "%s: rank %d: no rank is named: %s", case_name, me, coll_error(comm));
    coll_request_free(never);
    if (is_virtual) return 0;
    const coll_status status = coll_agree(comm, &flags);
    for (int i = 0; i < last; i++) all &= flags_of(i, 0);
    CHECK(status == (me == last ? COLL_ERR_PEER : COLL_OK) && (me == last || (flags == all && failed_of(comm) == 1u << last)),
          "%s: rank %d: %d: %#llx without %#x: %s", case_name, me, (int)status, (unsigned long long)flags, failed_of(comm),
          coll_error(comm));
    CHECK(me == last || !is_named || now_ms() - began < support_scaled(START_MS / 2), "%s: rank %d: it took %d ms", case_name,
          me, (int)(now_ms() - began));
    __atomic_sub_fetch(left, me != last, __ATOMIC_SEQ_CST);
    return 0;
}

static void late_case(const void *arg)
{
    static const char *const algorithms[] = { NULL, "circulant:2", "tree:2", "tree:4" };

    for (int size = 4; size <= 5; size++)
        for (int k = 0; k < 4; k++) {
            late own = { arg, algorithms[k], size - 1 };
            const coll_config config = { .start_timeout_ms = k || strcmp(own.world, "threads") ? START_MS : 10 * START_MS,
                                         .log_level = COLL_LOG_NONE, .liveness_timeout_ms = LIVENESS_MS };
            snprintf(case_name, sizeof case_name, "%s: %d ranks, one too late, %s", own.world, size, k ? algorithms[k] : "");
            CHECK(support_run_config(arg, size, &config, late_main, &own) == 0, "%s", case_name);
        }
}

static void sim_case(const void *arg)
{
    const int first = *(const int *)arg;
    const plan p = { .size = 6, .each = 1 };
    char text[100];

    setenv("COLL_TRANSPORT", "sim", 1);
    setenv("COLL_DEBUG", "error", 1);
    for (int second = 0; second < 6; second++)
        for (int at = 0; at <= 2000; at += 40)
            for (int kind = 0; kind < 2; kind++) {
                snprintf(text, sizeof text, "latency=40us kill=%d@1ms %s=%d@%dus", first, kind ? "stop" : "kill", second,
                         at + 500);
                snprintf(case_name, sizeof case_name, "sim, %s", text);
                setenv("COLL_SIM", text, 1);
                memset(board, 0, sizeof *board);
                (void)coll_spawn(p.size, rank_main, NULL, NULL);
                evaluate(&p, 1u << first | 1u << second);
            }
}

static void replay_case(const void *arg) { run_plan(arg); }

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "poll", "uring", "hybrid" }, *const paired[] = { "threads", "hybrid", "tcp-poll" };
    const char *wanted = argc > 1 ? argv[1] : NULL, *parts = argc > 2 ? argv[2] : NULL;

    cases_begin();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (wanted && strchr(wanted, ' ')) {
        plan replay;
        if (!plan_read(wanted, &replay)) return fprintf(stderr, "no plan: %s\n", wanted), 2;
        for (int i = 0; i < (parts ? atoi(parts) : 1); i++) run_case_within(CASE_SECONDS, replay_case, &replay, "replay");
        return CHECK_DONE();
    }
    world = "sim";
    for (int first = 0; first < 6 && support_listed(wanted, world); first++)
        run_case_within(CASE_SECONDS, sim_case, &first, "two die");
    if (support_listed(wanted, world)) run_case_within(CASE_SECONDS, late_case, world, "one is too late");
    world = "threads";
    if (support_listed(wanted, world)) run_case_within(CASE_SECONDS, threads_case, NULL, "abort and leave");
    for (size_t i = 0; i < sizeof paired / sizeof *paired; i++) {
        world = paired[i] + 4 * (i > 1);
        if (support_listed(wanted, world) && support_listed(parts, "pairs"))
            run_case_within(CASE_SECONDS, pairs_case, paired[i], "two threads agree");
        if (support_listed(wanted, world) && support_listed(parts, "late"))
            run_case_within(CASE_SECONDS, late_case, paired[i], "one is too late");
    }
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        world = worlds[i];
        if (!support_listed(wanted, world)) continue;
        if (!strcmp(world, "uring") && support_refusal("tcp-uring")) continue;
        if (support_listed(parts, "quiet")) run_case_within(CASE_SECONDS, quiet_case, NULL, "nothing happens");
        if (support_listed(parts, "kills")) run_case_within(CASE_SECONDS, kills_case, NULL, "one or two die");
        if (support_listed(parts, "sends")) run_case_within(CASE_SECONDS, sends_case, NULL, "one dies at every send");
        if (support_listed(parts, "stops") && each_of() == 1) run_case_within(CASE_SECONDS, stops_case, NULL, "one stops");
        for (int k = 0; k < (int)(8 * support_scale()) && support_listed(parts, "chance"); k++) {
            const uint64_t seed = support_mix(support_seed() * 1000 + (uint64_t)k);
            run_case_within(CASE_SECONDS, chance_case, &seed, "chance");
        }
    }
    return CHECK_DONE();
}
