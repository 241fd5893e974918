/* test_busy.c - waiting where other programs compute: a session whose yields are slow sleeps at once in every wait, for a while,
 * and then spins again.  What it decides is proven on a clock of the test.  That waits obey is proven with a sched_yield of the
 * test, which takes long where others compute; each rank awaits what the other one does, so no time limit decides. */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

#include <sys/syscall.h>

/* ---- >>what is decided, on a clock of the test ---- */

enum { APART = 64 };

static const int64_t slow_ns = 1000000, sleep_ns = 500 * (int64_t)COLL__MS, first_sleep_ns = 30 * (int64_t)COLL__MS;

/* `count` waits that begin at `now`, all of which may spin and yield. */
static void spin_on(coll__yields *y, int64_t now, unsigned count)
{
    for (unsigned i = 0; i < count; i++) CHECK(coll__may_yield(y, now), "%s: a wait sleeps at once", case_name);
}

/* `first` is how many waits there have been: near its end the counter starts again. */
static coll__yields fresh_after(unsigned first)
{
    coll__yields y = { 0 };

    y.waits = first;
    return y;
}

/* From `now` on no wait spins for `ns`, and then they do. */
static void sleep_until(coll__yields *y, int64_t now, int64_t ns)
{
    const unsigned waits = y->waits;

    CHECK(y->sleep_until == now + ns, "%s: it sleeps for %lld ns", case_name, (long long)(y->sleep_until - now));
    for (int64_t at = now; at < now + ns; at += ns / 1000)
        CHECK(!coll__may_yield(y, at), "%s: a wait spins after %lld ns", case_name, (long long)(at - now));
    CHECK(!coll__may_yield(y, now + ns - 1) && y->waits == waits, "%s: a wait spins too early", case_name);
    spin_on(y, now + ns, APART);
    CHECK(y->sleep_until == 0, "%s: it still reads the clock", case_name);
}

/* A session that has slept until `at` meets two slow yields, and sleeps for `ns` again. */
static void sleep_on(coll__yields *y, int64_t *at, int64_t ns)
{
    coll__yield_note(y, *at, slow_ns);
    CHECK(y->sleep_until == 0, "%s: one slow yield is enough to sleep on", case_name);
    spin_on(y, *at, APART);
    coll__yield_note(y, *at, slow_ns);
    sleep_until(y, *at, ns);
    *at += ns;
}

static void decide_from(unsigned first)
{
    const int64_t now = 1000 * sleep_ns;
    coll__yields y = fresh_after(first);

    for (int i = 0; i < 5; i++) coll__yield_note(&y, now, slow_ns - 1);
    CHECK(y.sleep_until == 0, "%s: fast yields count", case_name);
    for (int i = 0; i < 5; i++) {
        coll__yield_note(&y, now, slow_ns);
        spin_on(&y, now, APART + 1);
    }
    CHECK(y.sleep_until == 0, "%s: slow yields count that are far apart", case_name);

    y = fresh_after(first);
    spin_on(&y, now, 2 * APART);
    coll__yield_note(&y, now, slow_ns);
    spin_on(&y, now, APART);
    coll__yield_note(&y, now, slow_ns);
    CHECK(y.sleep_until == 0, "%s: two slow yields are enough", case_name);
    spin_on(&y, now, APART);
    coll__yield_note(&y, now, 1);
    coll__yield_note(&y, now, 16 * slow_ns);
    sleep_until(&y, now, first_sleep_ns);

    int64_t at = now + first_sleep_ns;            /* two slow yields are enough to sleep on, each time for longer */
    for (int64_t last = first_sleep_ns, next; last < sleep_ns; last = next) {
        next = 2 * last < sleep_ns ? 2 * last : sleep_ns;
        sleep_on(&y, &at, next);
    }
    sleep_on(&y, &at, sleep_ns);
    sleep_on(&y, &at, sleep_ns);

    spin_on(&y, at, APART + 1);                   /* after a long sleep it takes three, and starts again      */
    for (int i = 0; i < 2; i++) coll__yield_note(&y, at, slow_ns);
    CHECK(y.sleep_until == 0, "%s: it takes two slow yields long after it has slept", case_name);
    coll__yield_note(&y, at, slow_ns);
    sleep_until(&y, at, first_sleep_ns);
}

static void decide_case(const void *arg)
{
    (void)arg;
    decide_from(0);
    decide_from(7);
    for (unsigned before = 0; before < 5 * APART; before++) decide_from(UINT_MAX - before);
}

/* ---- >>that waits obey ---- */

typedef enum way { BLOCKING, BY_WAIT, BY_WAIT_ANY, WAYS } way;

static const char *const way_names[WAYS] = { "blocking", "coll_wait", "coll_wait_any" };

static __thread bool is_watched;                  /* this thread is rank 0                                    */
static int others_compute, yields;                /* a yield takes long; how often rank 0 has yielded         */
static int rounds;                                /* waits of rank 0 that have begun, with these two set      */
static int sleeper;                               /* rank 0, as the kernel names it                           */

int sched_yield(void)
{
    if (!is_watched) return 0;
    if (__atomic_load_n(&others_compute, __ATOMIC_SEQ_CST)) coll__delay(2000);
    __atomic_add_fetch(&yields, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static bool is_asleep(void)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", __atomic_load_n(&sleeper, __ATOMIC_SEQ_CST));
    FILE *const file = fopen(path, "r");

    if (!file) return false;
    const bool has_line = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    const char *const state = strrchr(text, ')');
    return has_line && state && state[1] == ' ' && state[2] == 'S';
}

/* Wait until rank 0 has yielded so often, and then sleeps, if expected.  A lock that is taken causes short sleeps, too, so
 * several polls in a row must see it. */
static void await_rank_0(int least, bool sleeps)
{
    enum { IN_A_ROW = 20 };

    while (__atomic_load_n(&yields, __ATOMIC_SEQ_CST) < least) coll__delay(100);
    for (int found = 0; sleeps && found < IN_A_ROW; coll__delay(100)) found = is_asleep() ? found + 1 : 0;
}

static coll_status meet(coll_comm *comm, way how)
{
    coll_request *r = NULL;
    int index = -1;

    if (how == BLOCKING) return coll_barrier(comm);
    coll_status status = coll_ibarrier(comm, &r);
    if (status == COLL_OK) status = how == BY_WAIT ? coll_wait(r) : coll_wait_any(1, &r, &index);
    coll_request_free(r);
    return status;
}

/* One wait, which rank 1 ends when rank 0 has yielded so often in it, and sleeps, if expected.  `from` is the count of yields
 * when it begins.  Returns how often rank 0 has yielded. */
static int wait_until(coll_comm *comm, way how, coll__yields from, bool is_slow, int least, bool sleeps)
{
    const int round = __atomic_load_n(&rounds, __ATOMIC_SEQ_CST);

    CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    if (is_watched) {
        comm->session->yields = from;
        __atomic_store_n(&others_compute, is_slow, __ATOMIC_SEQ_CST);
        __atomic_store_n(&yields, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&rounds, round + 1, __ATOMIC_SEQ_CST);
    } else {
        while (__atomic_load_n(&rounds, __ATOMIC_SEQ_CST) == round) coll__delay(100);
        await_rank_0(least, sleeps);
    }
    CHECK(meet(comm, how) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    const int yielded = __atomic_load_n(&yields, __ATOMIC_SEQ_CST);
    if (is_watched) __atomic_store_n(&others_compute, 0, __ATOMIC_SEQ_CST);
    return yielded;
}

static void obey(coll_comm *comm, way how)
{
    enum { ENOUGH = 3, AGAIN = 2 };
    const coll__yields fresh = { 0 }, asleep = { .sleep_until = coll__never };
    coll__yields over = { .slow = ENOUGH - AGAIN };
    const coll__yields *const y = &comm->session->yields;
    const char *const name = way_names[how];

    int yielded = wait_until(comm, how, fresh, true, ENOUGH, true);
    if (is_watched) CHECK(yielded == ENOUGH && y->sleep_until > 0, "%s, %s: %d slow yields", case_name, name, yielded);

    yielded = wait_until(comm, how, asleep, true, 0, true);
    if (is_watched) CHECK(yielded == 0, "%s, %s: a wait that is to sleep at once yields %d times", case_name, name, yielded);

    over.sleep_until = coll__now();
    (void)wait_until(comm, how, over, false, 1, false);

    over.sleep_until = coll__now();
    yielded = wait_until(comm, how, over, true, AGAIN, true);
    if (is_watched) CHECK(yielded == AGAIN && y->sleep_until > 0, "%s, %s: %d slow yields again", case_name, name, yielded);
}

static int obey_worker(coll_comm *comm, void *arg)
{
    (void)arg;
    is_watched = coll_rank(comm) == 0;
    if (is_watched) __atomic_store_n(&sleeper, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    comm->session->spin_us = 600 * 1000000;
    for (int crowded = 0; crowded < 2; crowded++) {
        comm->session->is_crowded = crowded;
        for (way how = 0; how < WAYS; how++) obey(comm, how);
    }
    return 0;
}

static void obey_case(const void *arg)
{
    (void)arg;
    CHECK(support_run(world, 2, obey_worker, NULL) == 0, "%s", case_name);
}

int main(int argc, char **argv)
{
    cases_begin();
    world = "none";
    run_case_within(60, decide_case, NULL, "what is decided");
    for (int at = 0; (world = support_world_next(argc > 1 ? argv[1] : "threads,tcp-poll,tcp-uring,tcp-domain", &at)) != NULL;)
        run_case_within(120, obey_case, NULL, "waits obey");
    return CHECK_DONE();
}
