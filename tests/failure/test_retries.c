/* test_retries.c - coll_shrink that is called again after an error, and ranks that are stopped in it and go on: a world has at
 * most one successor, and each living rank in the table that was agreed on is in it.
 *
 *     test_retries [PART,...]          PART: notes, returns, unwatched, chance
 *
 *     notes       a rank is stopped as it sends a note of each kind, while others call late; they call coll_shrink again, on the
 *                 communicator or on a copy of it, with the first one freed
 *     returns     a rank is stopped until rank 0 drops it, and returns with what it has accepted: it is not lost
 *     unwatched   a rank is stopped in it without a liveness timeout: coll_shrink ends in start_timeout_ms all the same
 *     chance      two ranks are stopped, at any notes and for any time
 *
 * COLL_TEST_SEED=... replays `chance`; COLL_TEST_SCALE says how much of it there is. */
#define _GNU_SOURCE
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

#include <poll.h>
#include <sys/syscall.h>

enum { RANKS_MOST = 5, LIVENESS_MS = 1000, GRACE_MS = 2 * LIVENESS_MS, START_MS = 3000, TRIES_MOST = 16, ROUNDS = 30,
       SLACK_MS = 1500, AT_ONCE = 8, CASE_SECONDS = 150, NOTE_LENGTH = 256 };

/* The notes of an agreement, by their numbers on the wire. */
enum { WELCOME = 1, TABLE = 2, MISSING = 9, HOLD = 12, AGREED = 13 };

/* When a rank that is stopped goes on: after so many ms, or once another rank's coll_shrink has failed, or once no other rank
 * calls it any more. */
enum { AFTER_ERROR = -1, AFTER_ALL = -2 };

/* The rank is stopped before it sends this note for the n-th time; has_ballot: one with a proposal. */
typedef struct stop { int note; bool has_ballot; int nth, hold; } stop;

typedef struct plan {
    int  size;
    stop stops[RANKS_MOST];                       /* note 0: it is not stopped                                */
    unsigned late;                                /* they come once another rank's coll_shrink has failed     */
    unsigned dead;                                /* they are killed; otherwise rank 0 aborts                 */
    bool is_unwatched;                            /* liveness_timeout_ms < 0                                  */
    bool by_copy;                                 /* shrink a duplicate the second time, and free the first   */
    unsigned expected;                            /* the world that there is in the end; 0: any one           */
} plan;

typedef enum rank_state { TRIES, IS_IN, IS_OUT } rank_state;

typedef struct report { int state, tries, slowest_ms; unsigned members, rounds; char sentence[400]; } report;

static struct board {
    int      is_over, errors;
    unsigned decided, is_stopped;                 /* decided: the table that a rank has announced             */
    report   ranks[RANKS_MOST];
} *board;

static const plan *now_plan;
static int me = -1;
static __thread bool is_armed;                    /* this thread is in coll_shrink                            */

/* ---- >>what a rank sends ---- */

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
    static int seen;
    static __thread bool is_table;
    const unsigned char *p = bytes;
    const stop *s = is_armed ? &now_plan->stops[me] : NULL;
    const bool is_note = s && length == NOTE_LENGTH && p[0] == 0x13 && p[1] == 0xc0;

    if (s && is_table && length == (size_t)now_plan->size) {
        unsigned mask = 0;
        for (int i = 0; i < now_plan->size; i++) mask |= (unsigned)p[i] << i;
        __atomic_store_n(&board->decided, mask, __ATOMIC_SEQ_CST);
    }
    is_table = is_note && p[2] == AGREED && !__atomic_load_n(&board->decided, __ATOMIC_SEQ_CST);
    if (is_note && p[2] == s->note && (!s->has_ballot || p[32 + 4] || p[32 + 6]) && ++seen == s->nth) kill(getpid(), SIGSTOP);
    return syscall(SYS_sendto, fd, bytes, length, flags, NULL, 0);
}

/* ---- >>ranks ---- */

static void rest(int ms) { (void)poll(NULL, 0, ms); }

static bool is_over(void) { return __atomic_load_n(&board->is_over, __ATOMIC_SEQ_CST); }

/* Work in a new world.  COLL_OK: the referee has ended the case. */
static coll_status work(coll_comm *comm, report *r)
{
    int32_t ids[RANKS_MOST], id = me;
    coll_status status = coll_allgather(comm, &id, ids, 1, COLL_I32);
    const int size = coll_size(comm);
    int32_t wanted = 0, ends = 0;
    unsigned members = 0;

    for (int i = 0; i < size && !status; i++) members |= 1u << ids[i], wanted += 1 << ids[i];
    while (!status && !ends) {
        int32_t own = is_over(), sum = 1 << me;
        status = coll_allreduce(comm, &own, &ends, 1, COLL_I32, COLL_MIN);
        if (!status) status = coll_allreduce(comm, COLL_IN_PLACE, &sum, 1, COLL_I32, COLL_SUM);
        CHECK(status || sum == wanted, "%s: rank %d: the sum is %#x, not %#x", case_name, me, (unsigned)sum, (unsigned)wanted);
        if (!status) {
            r->members = members;
            r->rounds++;
            __atomic_store_n(&r->state, IS_IN, __ATOMIC_SEQ_CST);
        }
        rest(5);
    }
    if (status) __atomic_store_n(&r->state, TRIES, __ATOMIC_SEQ_CST);
    return status;
}

static bool is_late_over(void)
{
    bool is_open = false;

    for (int i = 0; i < now_plan->size; i++)
        if (!(now_plan->late >> i & 1) && !(now_plan->dead >> i & 1) && !(board->is_stopped >> i & 1))
            is_open = is_open || __atomic_load_n(&board->ranks[i].state, __ATOMIC_SEQ_CST) == TRIES;
    return !is_open || __atomic_load_n(&board->errors, __ATOMIC_SEQ_CST) > 0;
}

static void log_line(void *context, coll_log_level level, const char *line)
{
    (void)context;
    if (getenv("COLL_TEST_LOG")) fprintf(stderr, "%d %d: %s\n", (int)now_ms() % 100000, (int)level, line);
}

static void rank_main(const plan *p, const char *address)
{
    report *r = &board->ranks[me];
    const coll_config config = { .rank = me, .size = p->size, .address = address, .start_timeout_ms = START_MS,
                                 .liveness_timeout_ms = p->is_unwatched ? -1 : LIVENESS_MS, .log = log_line,
                                 .tcp = { .io = "poll", .security = "open", .share_memory = COLL_OFF,
                                          .shm_collectives = COLL_OFF } };
    coll_comm *comm = NULL, *copy = NULL, *next = NULL;
    coll_status status = coll_init(&comm, &config);

    if (!status) status = coll_dup(comm, &copy);
    CHECK(!status, "%s: rank %d: %s", case_name, me, coll_error(comm));
    if (!status) status = coll_barrier(comm);     /* which may already fail when another rank has completed it */
    if (p->dead >> me & 1) kill(getpid(), SIGKILL);
    if (me == 0) (void)coll_abort(comm, "it gives up");
    while (!status) status = coll_barrier(comm);
    while ((p->late >> me & 1) && !is_late_over()) rest(5);
    for (bool is_in = false; !is_in && r->state == TRIES && !is_over();) {
        coll_comm *const from = copy ? copy : comm;
        const int64_t began = now_ms();
        is_armed = true;
        status = coll_shrink(p->by_copy && comm && copy && r->tries == 0 ? comm : from, &next);
        is_armed = false;
        if (now_ms() - began > r->slowest_ms) r->slowest_ms = (int)(now_ms() - began);
        snprintf(r->sentence, sizeof r->sentence, "%s", status ? coll_error(from) : "");
        if (status) {
            (void)__atomic_add_fetch(&board->errors, 1, __ATOMIC_SEQ_CST);
            if (p->by_copy && r->tries == 0) coll_free(comm), comm = NULL;
        }
        is_in = !status && !work(next, r);
        if (!status && !is_in) {                  /* the new world has failed in turn                         */
            snprintf(r->sentence, sizeof r->sentence, "the new world: %s", coll_error(next));
            if (comm) coll_free(comm);
            if (copy) coll_free(copy);
            comm = next, copy = NULL;
        }
        if (strstr(r->sentence, "given this rank up") || ++r->tries == TRIES_MOST)
            __atomic_store_n(&r->state, IS_OUT, __ATOMIC_SEQ_CST);
    }
    if (r->state == IS_IN) coll_free(next);
    if (copy) coll_free(copy);
    if (comm) coll_free(comm);
    exit(check__failed > 0);
}

/* ---- >>the referee ---- */

static bool is_settled(const plan *p, unsigned but)
{
    for (int i = 0; i < p->size; i++)
        if (!((p->dead | but) >> i & 1) && __atomic_load_n(&board->ranks[i].state, __ATOMIC_SEQ_CST) == TRIES) return false;
    return true;
}

/* Have all worlds been at work for a while, with nothing new? */
static bool is_steady(const plan *p)
{
    unsigned rounds[RANKS_MOST];
    bool is_enough;

    for (int i = 0; i < p->size; i++) rounds[i] = __atomic_load_n(&board->ranks[i].rounds, __ATOMIC_SEQ_CST);
    do {
        is_enough = true;
        rest(5);
        if (!is_settled(p, 0)) return false;
        for (int i = 0; i < p->size; i++)
            if (board->ranks[i].state == IS_IN && __atomic_load_n(&board->ranks[i].rounds, __ATOMIC_SEQ_CST) < rounds[i] + ROUNDS)
                is_enough = false;
    } while (!is_enough);
    return true;
}

static void evaluate(const plan *p)
{
    unsigned in = 0, stopped = 0;

    for (int i = 0; i < p->size; i++) {
        if (p->dead >> i & 1) continue;
        if (board->ranks[i].state == IS_IN) in |= 1u << i;
        if (p->stops[i].note) stopped |= 1u << i;
    }
    const unsigned lost = board->decided & ~p->dead & ~stopped & ~in;
    CHECK(in, "%s: there is no world", case_name);
    CHECK(!p->expected || in == p->expected, "%s: the world is %#x, not %#x", case_name, in, p->expected);
    CHECK(!lost, "%s: the table %#x was agreed on, and of it %#x are lost", case_name, board->decided, lost);
    for (int i = 0; i < p->size; i++) {
        const report *r = &board->ranks[i];
        CHECK(r->state != IS_IN || r->members == in, "%s: rank %d is in the world %#x, and all those are in one: %#x", case_name,
              i, r->members, in);
        CHECK(!p->is_unwatched || p->stops[i].note || r->slowest_ms < support_scaled(START_MS + SLACK_MS),
              "%s: rank %d: coll_shrink took %d ms", case_name, i, r->slowest_ms);
        if (check__failed) fprintf(stderr, "    rank %d: %s after %d tries: %s\n", i, r->state == IS_IN ? "in" : "out", r->tries,
                                   r->sentence);
    }
}

static void plan_case(const void *arg)
{
    const plan *p = now_plan = arg;
    char address[64] = "";
    const int port = support_reserve_port(address, sizeof address);
    pid_t pids[RANKS_MOST] = { 0 };
    int64_t since[RANKS_MOST] = { 0 };
    int running = 0, status = 0;

    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < p->size; i++) {
        if ((pids[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            me = i;
            rank_main(p, address);
        }
        running += pids[i] > 0;
    }
    case_step = "the ranks settle";
    while (running > 0) {
        const pid_t pid = waitpid(-1, &status, WUNTRACED | WNOHANG);
        int which = 0;
        while (which < p->size && pids[which] != pid) which++;
        if (pid > 0 && WIFSTOPPED(status)) {
            board->is_stopped |= 1u << which;
            since[which] = now_ms();
        } else if (pid > 0) {
            const bool is_dead = p->dead >> which & 1;
            CHECK(is_dead ? WIFSIGNALED(status) : status == 0, "%s: rank %d ends with %#x", case_name, which, (unsigned)status);
            running--;
            continue;
        }
        for (int i = 0; i < p->size; i++) {
            const int hold = p->stops[i].hold;
            if (!(board->is_stopped >> i & 1)) continue;
            const bool is_time = hold >= 0 ? now_ms() >= since[i] + hold
                               : is_settled(p, board->is_stopped) || (hold == AFTER_ERROR && board->errors > 0)
                                 || board->errors >= 3 * p->size;
            if (!is_time) continue;
            board->is_stopped &= ~(1u << i);
            kill(pids[i], SIGCONT);
        }
        if (!board->is_over && !board->is_stopped && is_settled(p, 0) && is_steady(p)) board->is_over = 1;
        rest(5);
    }
    evaluate(p);
    if (port >= 0) close(port);
}

/* ---- >>plans, several at once ---- */

static plan plans[1000];
static int plan_count;

static void plan_text(const plan *p, char *text, size_t room)
{
    int n = snprintf(text, room, "%d ranks, late %#x, dead %#x%s;", p->size, p->late, p->dead, p->by_copy ? ", by a copy" : "");
    for (int i = 0; i < p->size; i++)
        if (p->stops[i].note)
            n += snprintf(text + n, room - (size_t)n, " rank %d stops at note %d%s #%d for %d;", i, p->stops[i].note,
                          p->stops[i].has_ballot ? "b" : "", p->stops[i].nth, p->stops[i].hold);
}

static void run_plans(void)
{
    pid_t running[AT_ONCE] = { 0 };
    char text[150];

    for (int at = 0, left = 0; at < plan_count || left > 0;) {
        int k = 0, status = 0;
        while (k < AT_ONCE && running[k]) k++;
        if (k < AT_ONCE && at < plan_count) {
            fflush(NULL);
            plan_text(&plans[at], text, sizeof text);
            snprintf(case_name, sizeof case_name, "%s", text);
            if ((running[k] = fork()) == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                check__failed = 0;
                support_limit(CASE_SECONDS, report_hang);
                plan_case(&plans[at]);
                exit(check__failed > 0);
            }
            at++;
            left++;
            continue;
        }
        const pid_t pid = waitpid(-1, &status, 0);
        for (k = 0; k < AT_ONCE && running[k] != pid;) k++;
        if (k == AT_ONCE) continue;
        running[k] = 0;
        left--;
        CHECK(status == 0, "a plan has failed (see above)");
    }
    plan_count = 0;
}

static void plan_add(plan p) { if (plan_count < (int)(sizeof plans / sizeof *plans)) plans[plan_count++] = p; }

static void notes_part(void)
{
    static const struct { int who, note; bool has_ballot; } kinds[] = {
        { 0, WELCOME, false }, { 0, MISSING, false }, { 0, TABLE, false }, { 0, AGREED, false }, { 1, HOLD, false },
        { 1, HOLD, true },
    };
    static const int holds[] = { GRACE_MS + GRACE_MS / 2, AFTER_ERROR, AFTER_ALL };

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int form = 0; form < 24; form++) {
            plan p = { .size = form & 1 ? 5 : 3, .by_copy = form & 2 };
            const int hold = holds[form / 4 % 3];
            p.late = form < 12 ? 0 : p.size == 3 ? 4 : 24;
            p.stops[kinds[k].who] = (stop){ kinds[k].note, kinds[k].has_ballot, 1, hold };
            if ((form + (int)k) % (support_scale() < 1 ? 3 : 1) == 0) plan_add(p);
        }
    run_plans();
}

static void returns_part(void)
{
    for (int k = 0; k < (int)(16 * support_scale()) + 2; k++) {
        plan p = { .size = k & 1 ? 5 : 3, .dead = k & 1 ? 1 | 16 : 1, .expected = k & 1 ? 14 : 6 };
        p.stops[k & 1 ? 3 : 2] = (stop){ HOLD, k & 2, 1 + (k & 4 ? 1 : 0), GRACE_MS + 300 };
        plan_add(p);
    }
    run_plans();
}

static void unwatched_part(void)
{
    for (int k = 0; k < 4; k++) {
        plan p = { .size = k & 1 ? 5 : 3, .dead = 1, .is_unwatched = true, .expected = k & 1 ? 14 : 6 };
        p.stops[k & 1 ? 4 : 2] = (stop){ HOLD, k & 2, 1, k & 1 ? AFTER_ALL : AFTER_ERROR };
        plan_add(p);
    }
    run_plans();
}

static void chance_part(void)
{
    static const int notes[] = { WELCOME, TABLE, MISSING, HOLD, AGREED };
    uint64_t seed = support_mix(support_seed());

    for (int k = 0; k < (int)(64 * support_scale()); k++) {
        plan p = { .size = support_random(&seed) % 2 ? 5 : 3, .by_copy = support_random(&seed) % 2 };
        for (int more = 0; more < 2; more++) {
            const int who = (int)(support_random(&seed) % (uint64_t)p.size), held = (int)(support_random(&seed) % 5000);
            p.stops[who] = (stop){ notes[support_random(&seed) % 5], support_random(&seed) % 2,
                                   1 + (int)(support_random(&seed) % 3),
                                   support_random(&seed) % 3 ? held : support_random(&seed) % 2 ? AFTER_ERROR : AFTER_ALL };
        }
        if (support_random(&seed) % 2) p.late = 1u << (p.size - 1);
        plan_add(p);
    }
    run_plans();
}

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;

    cases_begin();
    world = "poll";
    if (support_listed(parts, "returns")) returns_part();
    if (support_listed(parts, "notes")) notes_part();
    if (support_listed(parts, "unwatched")) unwatched_part();
    if (support_listed(parts, "chance")) chance_part();
    return CHECK_DONE();
}
