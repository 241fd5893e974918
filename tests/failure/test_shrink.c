/* test_shrink.c - coll_shrink when ranks die while it runs.  Ranks are processes, or threads of processes, that are killed or
 * stopped at every moment of it.  Soon all remaining ranks are in one new world, or all get the error that they are too few.
 *
 *     test_shrink [WORLD,...] [PART,...]                WORLD: poll, uring, joined, sim
 *                                                       PART: modes, pairs, sends, visits, rooms, late, chance, stops
 *     test_shrink PLAN [TIMES]                          PLAN: as a failure prints it, from "poll, 5 ranks" on
 *
 * COLL_TEST_SEED=... replays `chance`; COLL_TEST_SCALE says how much of it there is. */
#define _GNU_SOURCE
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/pauses.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { RANKS_MOST = 8, LIVENESS_MS = 1000, KILLED_LIVENESS_MS = 5000, SLACK_MS = 1000, START_MS = 20000,
       STOPPED_START_MS = 8000,                   /* two of four remaining processes wait so long, a dozen times */
       LATE_MS = 2500, VISIT_MS = 100, RANK_SECONDS = 30, CASE_SECONDS = 600, PLAYS_MOST = 5 };

/* What happens to a process. */
typedef enum fate_kind { LIVES, DIES_FIRST, DIES_AT_SEND, DIES_AFTER, STOPS_AT_SEND, COMES_LATE, DIES_VISITING, SLEEPS,
                         HAS_NO_ROOM } fate_kind;

/* number: the send, or the visit, within coll_shrink; or us after its start, or after the first visit; or ms. */
typedef struct fate { fate_kind kind; int number; } fate;

static const struct mode { const char *name, *security, *key; bool is_tls; } modes[] = {
    { "open", "open", NULL, false },
    { "open+check", "open+check", NULL, false },
    { "key", "key", "a key of sixteen bytes", false },
    { "key+check", "key+check", "a key of sixteen bytes", false },
    { "tls", "tls", "a key of sixteen bytes", true },
};
enum { MODE_COUNT = sizeof modes / sizeof *modes };

typedef struct plan {
    int  size, each, mode;                        /* each: ranks of a process                                 */
    bool keeps_old;                               /* the old communicators are freed after the new one        */
    fate outcomes[RANKS_MOST];                    /* by process                                               */
} plan;

typedef struct report {
    coll_status shrunk;
    int  is_done, shrinks, size;
    bool had_domain, has_domain;                  /* in the first world, in the last one                      */
    unsigned members;                             /* of the last world, by their numbers in the first one */
    int64_t slowest_ms;                           /* coll_shrink                                              */
    char sentence[512];
} report;

static struct board { unsigned settled; report ranks[RANKS_MOST]; int64_t paused_ms[RANKS_MOST]; } *board;

/* ---- >>outcomes ---- */

/* Counts the sends of a thread within coll_shrink, and the processes whose memory it opens: fstat is its last call before it
 * reads that memory, and its first fstat is for its own memory. */

static __thread const fate *armed;
static __thread int sends, visits;

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
    const bool is_time = armed && (armed->kind == DIES_AT_SEND || armed->kind == STOPS_AT_SEND) && ++sends == armed->number;

    if (is_time) kill(getpid(), armed->kind == STOPS_AT_SEND ? SIGSTOP : SIGKILL);
    return syscall(SYS_sendto, fd, bytes, length, flags, NULL, 0);
}

static void pause_us(int us)
{
    const struct timespec t = { us / 1000000, us % 1000000 * 1000 };
    nanosleep(&t, NULL);
}

static void *killer_main(void *at)
{
    pause_us(((const fate *)at)->number);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void dies_after(const fate *mine)
{
    pthread_t killer;
    const int error = pthread_create(&killer, NULL, killer_main, (void *)(uintptr_t)mine);

    if (error) fprintf(stderr, "%s: no thread: %s\n", case_name, strerror(error));
    else pthread_detach(killer);
}

int fstat(int fd, struct stat *s)
{
    if (armed && armed->kind == DIES_VISITING && ++visits == 2) dies_after(armed);
    if (armed && armed->kind == SLEEPS && ++visits > armed->number + 1) pause_us(1000 * VISIT_MS);
    return (int)syscall(SYS_fstat, fd, s);
}

/* ---- >>ranks ---- */

typedef struct part { pthread_t thread; coll_comm *comm; const plan *plan; int process; bool is_first; } part;

static int processes_of(const plan *p) { return (p->size + p->each - 1) / p->each; }

static bool lives_on(fate_kind kind) { return kind == LIVES || kind == COMES_LATE || kind >= SLEEPS; }

static unsigned planned(const plan *p)
{
    unsigned mask = 0;
    for (int i = 0; i < processes_of(p); i++) if (!lives_on(p->outcomes[i].kind)) mask |= 1u << i;
    return mask;
}

/* Work until a rank is lost, or all know that no other rank will be. */
static coll_status work(coll_comm *comm, const plan *p, int me, report *r)
{
    coll_status status = COLL_OK;
    int32_t is_over = 0, ids[RANKS_MOST], id = me;

    while (status == COLL_OK && !is_over) {
        is_over = (__atomic_load_n(&board->settled, __ATOMIC_SEQ_CST) & planned(p)) == planned(p);
        status = coll_allreduce(comm, COLL_IN_PLACE, &is_over, 1, COLL_I32, COLL_MIN);
        if (status == COLL_OK) status = coll_allgather(comm, &id, ids, 1, COLL_I32);
    }
    r->size = coll_size(comm);
    r->members = 0;
    for (int i = 0; status == COLL_OK && i < r->size; i++) r->members |= 1u << ids[i];
    return status;
}

static bool shares_memory(coll_comm *comm)
{
    const coll_call call = { .kind = COLL_BARRIER };
    char text[2000];
    return coll_explain(comm, &call, text, sizeof text) > 0 && strstr(text, "in one memory");
}

static void go_on(coll_comm *comm, const part *own, int me, report *r)
{
    const fate *mine = own->is_first ? &own->plan->outcomes[own->process] : NULL;
    coll_comm *olds[RANKS_MOST + 1] = { comm }, *next = NULL;
    int count = 1;
    coll_status status = COLL_ERR_PEER;

    r->had_domain = shares_memory(comm);
    if (mine && mine->kind == DIES_AFTER) dies_after(mine);
    if (mine && mine->kind == HAS_NO_ROOM) (void)setrlimit(RLIMIT_FSIZE, &(const struct rlimit){ 1 << 20, 1 << 20 });
    if (own->plan->outcomes[own->process].kind == COMES_LATE) pause_us(1000 * own->plan->outcomes[own->process].number);
    while (status < 0 && count <= RANKS_MOST) {
        const int64_t began = now_ms();
        armed = mine && mine->kind > DIES_FIRST ? mine : NULL;
        r->shrunk = coll_shrink(olds[count - 1], &next);
        armed = NULL;
        r->shrinks++;
        if (now_ms() - began > r->slowest_ms) r->slowest_ms = now_ms() - began;
        snprintf(r->sentence, sizeof r->sentence, "%s", r->shrunk ? coll_error(olds[count - 1]) : "");
        if (mine && mine->kind != DIES_AFTER && mine->kind != DIES_VISITING)
            __atomic_fetch_or(&board->settled, 1u << own->process, __ATOMIC_SEQ_CST);
        mine = NULL;
        if (r->shrunk < 0) break;
        if (!own->plan->keeps_old) coll_free(olds[--count]);
        olds[count++] = next;
        status = work(next, own->plan, me, r);
    }
    if (status < 0 && r->shrunk == COLL_OK)
        snprintf(r->sentence, sizeof r->sentence, "%d shrinks, then: %s", r->shrinks, coll_error(next));
    if (status < 0) r->members = 0;
    r->has_domain = status == COLL_OK && shares_memory(next);
    while (count > 0) coll_free(olds[--count]);
}

static void *part_main(void *at)
{
    part *own = at;
    const fate *mine = &own->plan->outcomes[own->process];
    const int me = coll_rank(own->comm);
    report *r = &board->ranks[me];
    coll_status status = coll_barrier(own->comm);

    if (mine->kind == DIES_FIRST) {
        if (mine->number > 0) pause_us(mine->number);
        kill(getpid(), SIGKILL);
    }
    while (status == COLL_OK) status = coll_barrier(own->comm);
    go_on(own->comm, own, me, r);
    r->is_done = 1;
    return NULL;
}

static void log_line(void *context, coll_log_level level, const char *line)
{
    (void)context;
    if (getenv("COLL_TEST_LOG")) fprintf(stderr, "%d %d: %s\n", (int)now_ms() % 100000, (int)level, line);
}

static bool has_fate(const plan *p, fate_kind kind)
{
    for (int i = 0; i < processes_of(p); i++) if (p->outcomes[i].kind == kind) return true;
    return false;
}

/* A killed process is seen by its connections.  Where nothing else is to be seen, the limit is longer than a busy machine
 * lets a process wait for a processor; the bounds of `evaluate` do not change with it. */
static int liveness_of(const plan *p)
{
    return has_fate(p, STOPS_AT_SEND) || has_fate(p, COMES_LATE) ? LIVENESS_MS : KILLED_LIVENESS_MS;
}

static int start_of(const plan *p) { return has_fate(p, STOPS_AT_SEND) ? STOPPED_START_MS : START_MS; }

static int process_main(const plan *p, int process, const char *address)
{
    part parts[RANKS_MOST];
    coll_comm *comms[RANKS_MOST] = { 0 };
    const int first = process * p->each, count = first + p->each > p->size ? p->size - first : p->each;
    const coll_config config = { .rank = first, .size = p->size, .address = address, .start_timeout_ms = start_of(p),
                                 .liveness_timeout_ms = liveness_of(p),
                                 .tcp = { .io = !strcmp(world, "uring") ? "uring" : "poll", .security = modes[p->mode].security,
                                          .key = modes[p->mode].key }, .log = log_line };
    if (!pauses_record(&board->paused_ms[process])) return fprintf(stderr, "%s: no thread\n", case_name), 1;
    const coll_status status = p->each > 1 ? coll_init_threads(count, comms, &config) : coll_init(&comms[0], &config);

    if (status) return fprintf(stderr, "%s: ranks from %d: %s\n", case_name, first, coll_error(NULL)), 1;
    for (int i = 0; i < count; i++) {
        parts[i] = (part){ .comm = comms[i], .plan = p, .process = process, .is_first = i == 0 };
        if (pthread_create(&parts[i].thread, NULL, part_main, &parts[i])) return 1;
    }
    for (int i = 0; i < count; i++) pthread_join(parts[i].thread, NULL);
    return 0;
}

/* ---- >>checks ---- */

static const char *const fate_names[] = { "", "first+", "at send ", "after us ", "stops at send ", "late by ms ",
                                          "visiting us ", "sleeps from visit ", "lacks room " };

static const char *plan_text(const plan *p)
{
    static char text[300];

    snprintf(text, sizeof text, "%s, %d ranks, %d each, %s%s:", world, p->size, p->each, modes[p->mode].name,
             p->keeps_old ? ", old kept" : "");
    for (int i = 0; i < processes_of(p); i++)
        if (p->outcomes[i].kind != LIVES)
            snprintf(text + strlen(text), sizeof text - strlen(text), " process %d %s%d;", i, fate_names[p->outcomes[i].kind],
                     p->outcomes[i].number);
    return text;
}

/* The plan that such a text describes.  false: none. */
static bool plan_read(const char *text, plan *p)
{
    static char name[16];
    char mode[16] = "";

    memset(p, 0, sizeof *p);
    if (sscanf(text, "%15[a-z], %d ranks, %d each, %15[a-z+]", name, &p->size, &p->each, mode) != 4) return false;
    world = name;
    while (p->mode < MODE_COUNT && strcmp(mode, modes[p->mode].name)) p->mode++;
    p->keeps_old = strstr(text, "old kept");
    for (const char *at = text; (at = strstr(at, " process ")); at++) {
        const int process = atoi(at + 9);
        if (process < 0 || process >= RANKS_MOST || !(at = strchr(at + 9, ' '))) return false;
        for (int kind = DIES_FIRST; kind <= HAS_NO_ROOM; kind++) {
            const size_t length = strlen(fate_names[kind]);
            if (!strncmp(at + 1, fate_names[kind], length))
                p->outcomes[process] = (fate){ (fate_kind)kind, atoi(at + 1 + length) };
        }
    }
    return p->size > 0 && p->size <= RANKS_MOST && p->each > 0 && p->mode < MODE_COUNT;
}

/* How many liveness limits the remaining ranks wait for stopped ones: one for all together, and two for each stopped rank whose
 * number is below all of theirs: its proposal may be the next world, and then it is waited for there, too. */
static int waits_of(const plan *p, unsigned left)
{
    int hosts = 0, stops = 0;

    for (int i = 0; i < processes_of(p); i++) {
        if (p->outcomes[i].kind != STOPS_AT_SEND) continue;
        stops++;
        hosts += left >> (i * p->each) << (i * p->each) == left;
    }
    return hosts > 0 ? 2 * hosts + (stops > hosts) : stops > 0;
}

/* `gone`: by process.  If the remaining ranks have a quorum, all are in the new world; if not, either all are, or none.
 * Without rank 0, which receives all heartbeats, a stopped rank looks like one that computes.  Then ranks without a quorum
 * wait for it for up to start_timeout_ms. */
static void evaluate(const plan *p, unsigned gone, bool has_tally, int stops)
{
    unsigned left = 0;
    int count = 0, agreed = 0, late_ms = 0;
    bool may_share = true;

    for (int i = 0; i < p->size; i++) {
        if (gone >> (i / p->each) & 1) continue;
        left |= 1u << i;
        count++;
        agreed += board->ranks[i].shrunk == COLL_OK;
    }
    const bool is_enough = 2 * count > p->size || (2 * count == p->size && (left & 1));
    const bool may_compute = !is_enough && stops > 0 && !(left & 1);
    for (int i = 0; i < processes_of(p); i++) may_share = may_share && p->outcomes[i].kind != HAS_NO_ROOM;
    for (int i = 0; i < processes_of(p); i++)
        late_ms += p->outcomes[i].kind == COMES_LATE ? p->outcomes[i].number : p->outcomes[i].kind == SLEEPS
                   ? 2 * p->size * VISIT_MS : 0;
    const int bound = SLACK_MS + late_ms + (may_compute ? start_of(p) : LIVENESS_MS + waits_of(p, left) * 2 * LIVENESS_MS);
    for (int i = 0; i < p->size; i++) {
        const report *r = &board->ranks[i];
        char tally_text[64];
        if (!(left >> i & 1)) continue;
        snprintf(tally_text, sizeof tally_text, "only %d of %d ranks are left", count, p->size);
        CHECK(r->is_done, "%s: rank %d has not ended", case_name, i);
        CHECK(!is_enough || r->shrunk == COLL_OK, "%s: rank %d, one of %d left: %d: %s", case_name, i, count, (int)r->shrunk,
              r->sentence);
        CHECK(agreed == 0 || (r->shrunk == COLL_OK && r->members == left && r->size == count),
              "%s: rank %d: %d, members %#x of %#x: %s", case_name, i, (int)r->shrunk, r->members, left, r->sentence);
        CHECK(r->shrunk == COLL_OK || r->shrunk == COLL_ERR_PEER, "%s: rank %d: %d: %s", case_name, i, (int)r->shrunk,
              r->sentence);
        CHECK(!has_tally || is_enough || strstr(r->sentence, tally_text), "%s: rank %d counts otherwise: %s", case_name, i,
              r->sentence);
        CHECK(!r->had_domain || r->shrunk < 0 || count < 2 || r->has_domain == may_share, "%s: rank %d has %s shared memory",
              case_name, i, may_share ? "no" : "some");
        CHECK(r->slowest_ms < support_scaled(bound), "%s: rank %d: coll_shrink took %d ms", case_name, i, (int)r->slowest_ms);
        CHECK(p->outcomes[i / p->each].kind != COMES_LATE || r->slowest_ms < support_scaled(SLACK_MS / 4),
              "%s: rank %d, for which all others have waited, took another %d ms", case_name, i, (int)r->slowest_ms);
    }
}

/* The longest time for which one of the processes that remain did not run. */
static int paused_ms(const plan *p, unsigned gone)
{
    int64_t most = 0;

    for (int i = 0; i < processes_of(p); i++)
        if (!(gone >> i & 1) && board->paused_ms[i] > most) most = board->paused_ms[i];
    return (int)most;
}

typedef enum result { REACHED, NOT_REACHED, PAUSED } result;

/* REACHED: each process except LIVES got its fate.  PAUSED: a process that was to go on did not run for half the liveness limit,
 * so nothing was evaluated. */
static result play_plan(const plan *p, bool may_pause)
{
    char address[64] = "";
    const int processes = processes_of(p), port = support_reserve_port(address, sizeof address);
    pid_t pids[RANKS_MOST] = { 0 };
    unsigned gone = 0, stopped = 0;
    int stops = 0, running = 0;
    bool has_tally = true;

    memset(board, 0, sizeof *board);
    fflush(NULL);
    for (int i = 0; i < processes; i++) {
        if ((pids[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            signal(SIGALRM, SIG_DFL);
            alarm((unsigned)(support_scaled(RANK_SECONDS * 1000) / 1000));
            exit(process_main(p, i, address));
        }
        running += pids[i] > 0;
        stops += p->outcomes[i].kind == STOPS_AT_SEND;
        if (p->outcomes[i].kind > DIES_FIRST && p->outcomes[i].kind != COMES_LATE) has_tally = false;
    }
    CHECK(running == processes, "%s: fork", case_name);
    while (running > 0) {
        int status = 0, i = 0;
        const pid_t pid = waitpid(-1, &status, WUNTRACED);
        while (i < processes && pids[i] != pid) i++;
        if (i == processes) break;
        const bool is_stopped = WIFSTOPPED(status), is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (is_stopped) stopped |= 1u << i;
        if (is_killed || is_stopped) gone |= 1u << i;
        CHECK(is_killed || is_stopped || status == 0, "%s: process %d ends with %#x", case_name, i, (unsigned)status);
        __atomic_fetch_or(&board->settled, 1u << i, __ATOMIC_SEQ_CST);
        running--;
    }
    const bool is_paused = !may_pause && paused_ms(p, gone) > LIVENESS_MS / 2;
    if (!is_paused) evaluate(p, gone, has_tally, stops);
    const int64_t began = now_ms();               /* they go on alone                                         */
    for (int i = 0; i < processes; i++) if (stopped >> i & 1) kill(pids[i], is_paused ? SIGKILL : SIGCONT);
    for (int i = 0; i < processes; i++) {
        int status = 0;
        if (!(stopped >> i & 1)) continue;
        const bool has_ended = waitpid(pids[i], &status, 0) == pids[i];
        if (is_paused) continue;
        CHECK(has_ended && status == 0, "%s: process %d ends with %#x", case_name, i, (unsigned)status);
        const report *r = &board->ranks[i * p->each];
        const int64_t took = now_ms() - began;
        CHECK(r->shrunk == COLL_ERR_PEER && took < support_scaled(8 * LIVENESS_MS + SLACK_MS),
              "%s: rank %d was stopped, and goes on: %d after %d ms: %s", case_name, i * p->each, (int)r->shrunk, (int)took,
              r->sentence);
    }
    close(port);
    return is_paused ? PAUSED : (gone & planned(p)) == planned(p) ? REACHED : NOT_REACHED;
}

/* Returns whether each process except LIVES got its fate. */
static bool run_plan(const plan *p)
{
    result ended = PAUSED;

    snprintf(case_name, sizeof case_name, "%.*s", (int)sizeof case_name - 1, plan_text(p));
    for (int play = 1; ended == PAUSED && play <= PLAYS_MOST; play++) {
        ended = play_plan(p, play == PLAYS_MOST);
        if (ended == PAUSED) printf("%s: a process did not run for %d ms: again\n", case_name, paused_ms(p, planned(p)));
    }
    return ended == REACHED;
}

/* ---- >>parts ---- */

static int each_of(void) { return !strcmp(world, "hybrid") ? 2 : 1; }

static bool has_mode(int mode)
{
#if defined(COLL_WITH_OPENSSL)
    (void)mode;
    return true;
#else
    return !modes[mode].is_tls;
#endif
}

/* Every kind of connection is taken over, once, twice and three times. */
static void modes_case(const void *arg)
{
    (void)arg;
    for (int mode = 0; mode < MODE_COUNT; mode++)
        for (int k = 0; k < 8 && has_mode(mode); k++) {
            plan p = { .size = k & 1 ? 7 : 5, .each = each_of(), .mode = mode, .keeps_old = k & 2 };
            const int last = processes_of(&p) - 1;
            p.outcomes[k & 4 ? 0 : last] = (fate){ DIES_FIRST, 0 };
            if (last > 2) p.outcomes[k & 4 ? last : 0] = (fate){ DIES_AFTER, 5000 };
            if (p.size == 7 && last > 4) p.outcomes[2] = (fate){ DIES_AFTER, 15000 };
            run_plan(&p);
        }
}

/* Two die almost together. */
static void pairs_case(const void *arg)
{
    static const int delays[] = { 0, 300, 1000, 2000, 5000 };

    (void)arg;
    for (int size = 3; size <= 8; size++)
        for (int other = 1; other < (size + each_of() - 1) / each_of(); other++)
            for (size_t k = 0; k < sizeof delays / sizeof *delays; k++) {
                plan p = { .size = size, .each = each_of(), .mode = (size + other + (int)k) % (MODE_COUNT - 1) };
                p.outcomes[0] = (fate){ DIES_FIRST, 0 };
                p.outcomes[other] = (fate){ DIES_FIRST, delays[k] };
                run_plan(&p);
            }
}

/* One is killed first, another one before each of the sends that it makes in coll_shrink. */
static void sends_case(const void *arg)
{
    static const struct { int size, first, second; } who[] = { { 5, 0, 1 }, { 5, 4, 0 }, { 5, 4, 2 }, { 4, 3, 0 }, { 6, 0, 5 } };
    const fate_kind kind = *(const fate_kind *)arg;

    for (size_t k = 0; k < sizeof who / sizeof *who; k++) {
        plan p = { .size = who[k].size * each_of(), .each = each_of(), .mode = (int)k % MODE_COUNT };
        if (p.size > RANKS_MOST) p.size = RANKS_MOST;
        if (!has_mode(p.mode)) p.mode = 0;
        const int last = processes_of(&p) - 1, first = who[k].first < last ? who[k].first : last;
        const int second = who[k].second < last ? who[k].second : last;
        p.outcomes[first] = (fate){ DIES_FIRST, 0 };
        if (first == second) continue;
        int most = kind == STOPS_AT_SEND ? 12 : 60, number = 1;
        for (bool goes_on = true; goes_on && number < most; number += kind == STOPS_AT_SEND ? 3 : 1) {
            p.outcomes[second] = (fate){ kind, number };
            goes_on = run_plan(&p);
        }
        CHECK(number > 2, "%s: has not met its fate", case_name);
    }
}

/* One dies when all but the first have joined the shared memory of the new world, and the first is slow to see that: some have
 * detected the death before they agree on the memory.  Either all ranks use the memory of the next world, or none. */
static void visits_case(const void *arg)
{
    (void)arg;
    for (int size = 5; size <= 6; size++)
        for (int visit = 1; visit <= 5; visit++)
            for (int us = 0; us <= 100000; us = us * 3 + 10000) {
                plan p = { .size = size * each_of(), .each = each_of(), .mode = visit % 2 ? 0 : 2 };
                if (p.size > RANKS_MOST) p.size = RANKS_MOST;
                const int last = processes_of(&p) - 1;
                p.outcomes[0] = (fate){ DIES_FIRST, 0 };
                p.outcomes[1] = (fate){ SLEEPS, visit };
                p.outcomes[last] = (fate){ DIES_VISITING, us };
                run_plan(&p);
            }
}

/* If a rank can no longer share memory with the others of its host, it reports that, and no rank waits for it. */
static void rooms_case(const void *arg)
{
    (void)arg;
    for (int size = 3; size <= 5; size++)
        for (int lacks = 0; lacks < size; lacks++)
            for (int more = 0; more < 2; more++) {
                plan p = { .size = size * each_of(), .each = each_of(), .mode = more ? 2 : 0 };
                if (p.size > RANKS_MOST) p.size = RANKS_MOST;
                const int last = processes_of(&p) - 1, who = lacks <= last ? lacks : last, dies = who == last ? 0 : last;
                p.outcomes[who] = (fate){ HAS_NO_ROOM, 0 };
                p.outcomes[dies] = (fate){ DIES_FIRST, 0 };
                if (more && size == 5) p.outcomes[who == 1 ? 2 : 1] = (fate){ DIES_AFTER, 5000 };
                run_plan(&p);
            }
}

/* Two stop, each at another send: one has answered rank 0, the other has not. */
static void stops_case(const void *arg)
{
    static const struct { int size, first, one, two; } who[] = { { 7, 6, 4, 5 }, { 8, 0, 5, 7 }, { 7, 6, 0, 5 } };

    (void)arg;
    for (size_t k = 0; k < sizeof who / sizeof *who; k++)
        for (int number = 2; number <= 4; number++) {
            plan p = { .size = who[k].size, .each = 1, .mode = (int)k % MODE_COUNT };
            p.outcomes[who[k].first] = (fate){ DIES_FIRST, 0 };
            p.outcomes[who[k].one] = (fate){ STOPS_AT_SEND, number };
            p.outcomes[who[k].two] = (fate){ STOPS_AT_SEND, number == 4 ? 3 : number + 1 };
            run_plan(&p);
        }
}

/* Without a rank that calls coll_shrink later than the others wait for it, they are too few.  They go on with it, whether it
 * is the first of them, which they dial, or a later one. */
static void late_case(const void *arg)
{
    static const struct { int size, late; unsigned dead; } who[] = {
        { 3, 1, 1 }, { 3, 2, 1 }, { 5, 1, 1 | 16 }, { 5, 2, 1 | 2 }, { 7, 2, 1 | 2 | 64 }, { 7, 3, 1 | 2 | 64 }, { 6, 2, 1 | 2 },
        { 8, 2, 1 | 2 | 128 }, { 8, 3, 1 | 2 | 4 },
    };

    (void)arg;
    for (size_t k = 0; k < sizeof who / sizeof *who; k++) {
        plan p = { .size = who[k].size * each_of(), .each = each_of(), .mode = (int)k % MODE_COUNT };
        if (p.size > RANKS_MOST) continue;
        if (!has_mode(p.mode)) p.mode = 0;
        for (int i = 0; i < who[k].size; i++) if (who[k].dead >> i & 1) p.outcomes[i] = (fate){ DIES_FIRST, 0 };
        p.outcomes[who[k].late] = (fate){ COMES_LATE, LATE_MS };
        run_plan(&p);
    }
}

/* Any number of ranks, at any time. */
static void chance_case(const void *arg)
{
    uint64_t seed = *(const uint64_t *)arg;

    for (int i = 0; i < 10; i++) {
        plan p = { .size = 3 + (int)(support_random(&seed) % 6), .each = each_of(),
                   .mode = (int)(support_random(&seed) % MODE_COUNT), .keeps_old = support_random(&seed) % 2 };
        if (!has_mode(p.mode)) p.mode = 1;
        const int processes = processes_of(&p), first = (int)(support_random(&seed) % (uint64_t)processes);
        p.outcomes[first] = (fate){ DIES_FIRST, 0 };
        for (int more = (int)(support_random(&seed) % 3); more > 0; more--) {
            const int who = (int)(support_random(&seed) % (uint64_t)processes);
            const fate_kind kind = (fate_kind)(DIES_FIRST + (int)(support_random(&seed) % 3));
            const int number = (int)(support_random(&seed) % (kind == DIES_AT_SEND ? 24 : 6000));
            if (who != first) p.outcomes[who] = (fate){ kind, number + (kind == DIES_AT_SEND) };
        }
        run_plan(&p);
    }
}

struct replay { plan plan; int times; };

static void replay_case(const void *arg)
{
    const struct replay *r = arg;
    for (int i = 0; i < r->times; i++) run_plan(&r->plan);
}

/* ---- >>simulated: two faults at any two times ---- */

enum { SIM_RANKS = 6 };

static int sim_rank(coll_comm *comm, void *arg)
{
    report *r = &board->ranks[coll_rank(comm)];
    coll_comm *now = comm, *next = NULL;
    coll_status status = COLL_OK;

    (void)arg;
    while (status == COLL_OK && coll_sim_time(comm) < 7e-3) status = coll_barrier(comm);
    while (status < 0 && r->shrinks < RANKS_MOST) {
        r->shrunk = coll_shrink(now, &next);
        r->shrinks++;
        if (now != comm) coll_free(now);
        now = next;
        if (r->shrunk < 0) break;
        r->size = coll_size(now);
        while ((status = coll_barrier(now)) == COLL_OK && coll_sim_time(now) < 9e-3) continue;
    }
    if (now != comm) coll_free(now);
    r->is_done = 1;
    return 0;
}

static void sim_case(const void *arg)
{
    static const char *const kinds[] = { "kill", "stop" };
    const int first = *(const int *)arg;
    char text[100];

    setenv("COLL_TRANSPORT", "sim", 1);
    for (int second = 0; second < SIM_RANKS; second++)
        for (int at = 0; at <= 5000; at += 250)
            for (int kind = 0; kind < 2; kind++) {
                int done = 0, agreed = 0;
                snprintf(text, sizeof text, "latency=40us kill=%d@1ms %s=%d@%dus", first, kinds[kind], second, at);
                snprintf(case_name, sizeof case_name, "sim, %s", text);
                setenv("COLL_SIM", text, 1);
                memset(board, 0, sizeof *board);
                (void)coll_spawn(SIM_RANKS, sim_rank, NULL, NULL);
                for (int i = 0; i < SIM_RANKS; i++) {
                    done += board->ranks[i].is_done;
                    agreed += board->ranks[i].is_done && board->ranks[i].shrunk == COLL_OK;
                    CHECK(board->ranks[i].is_done || i == first || i == second, "%s: rank %d has not ended", case_name, i);
                }
                CHECK(done == agreed && done >= SIM_RANKS - 2, "%s: %d have ended, %d have a new world", case_name, done, agreed);
                for (int i = 0; i < SIM_RANKS; i++)
                    CHECK(!board->ranks[i].is_done || board->ranks[i].size == 0 || board->ranks[i].size == done,
                          "%s: rank %d is one of %d, not %d", case_name, i, board->ranks[i].size, done);
            }
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "poll", "uring", "hybrid" };
    static const fate_kind dies = DIES_AT_SEND, stops = STOPS_AT_SEND;
    const char *wanted = argc > 1 ? argv[1] : NULL, *parts = argc > 2 ? argv[2] : NULL;

    cases_begin();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (wanted && strchr(wanted, ' ')) {
        struct replay replay = { .times = parts ? atoi(parts) : 1 };
        if (!plan_read(wanted, &replay.plan)) return fprintf(stderr, "no plan: %s\n", wanted), 2;
        run_case_within(CASE_SECONDS, replay_case, &replay, "replay");
        return CHECK_DONE();
    }
    world = "sim";
    for (int first = 0; first < SIM_RANKS && support_listed(wanted, world); first++)
        run_case_within(CASE_SECONDS, sim_case, &first, "two die");
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        world = worlds[i];
        if (!support_listed(wanted, world)) continue;
        if (!strcmp(world, "uring") && support_refusal("tcp-uring")) continue;
        if (support_listed(parts, "modes")) run_case_within(CASE_SECONDS, modes_case, NULL, "every security");
        if (support_listed(parts, "pairs")) run_case_within(CASE_SECONDS, pairs_case, NULL, "two die");
        if (support_listed(parts, "sends")) run_case_within(CASE_SECONDS, sends_case, &dies, "one dies at every send");
        if (support_listed(parts, "visits")) run_case_within(CASE_SECONDS, visits_case, NULL, "one dies in shared memory");
        if (support_listed(parts, "rooms")) run_case_within(CASE_SECONDS, rooms_case, NULL, "one has no room");
        if (support_listed(parts, "late")) run_case_within(CASE_SECONDS, late_case, NULL, "one comes late");
        if (support_listed(parts, "stops")) run_case_within(CASE_SECONDS, sends_case, &stops, "one stops at a send");
        if (support_listed(parts, "stops") && each_of() == 1) run_case_within(CASE_SECONDS, stops_case, NULL, "two stop");
        for (int k = 0; k < (int)(8 * support_scale()) && support_listed(parts, "chance"); k++) {
            const uint64_t seed = support_mix(support_seed() * 1000 + (uint64_t)k);
            run_case_within(CASE_SECONDS, chance_case, &seed, "chance");
        }
    }
    return CHECK_DONE();
}
