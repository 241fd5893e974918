/* waiting.h - requirements of waits for one of several requests, on any communicator: return every end exactly once, whichever
 * call completed it, and sleep meanwhile.  Used after coll.h, check.h, support.h and cases.h. */
#ifndef TESTS_WAITING_H
#define TESTS_WAITING_H

#include <sched.h>
#include <sys/resource.h>
#include <time.h>

enum { MANY = 100 };

/* How requests are completed. */
typedef enum way { BY_ANY, BY_ANY_AND_FREED, BEHIND_A_BARRIER, BY_SOME, BY_TEST_ANY, HALF_BY_WAIT, HALF_BY_TEST,
                   ALL_BY_TEST, WAYS } way;

static const char *const way_names[WAYS] = {
    "coll_wait_any", "coll_wait_any, each freed", "coll_wait_any behind a barrier", "coll_wait_some", "coll_test_any",
    "every other by coll_wait", "every other by coll_test", "coll_test_all"
};

/* A hundred requests of all sorts, and how often each has been handed out. */
typedef struct crowd {
    coll_comm    *comm;
    coll_request *requests[MANY];
    int64_t       sent[MANY], got[MANY];
    int           times[MANY];
} crowd;

static bool is_prepared(int i) { return i % 5 == 3; }
static bool is_message(int i) { return i % 5 == 1 || i % 5 == 2; }

/* In each five: an allreduce, a receive, its send, a prepared allreduce, a barrier. */
static coll_status crowd_start_one(crowd *f, int i)
{
    const int rank = coll_rank(f->comm), size = coll_size(f->comm);
    coll_request **r = &f->requests[i];
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &f->sent[i], .recv = &f->got[i], .count = 1, .type = COLL_I64 };

    f->sent[i] = 1000 * i + rank;
    switch (i % 5) {
    case 0:  return coll_start(f->comm, &call, r);
    case 1:  return coll_irecv(f->comm, &f->got[i], 1, COLL_I64, (rank + size - 1) % size, i, r);
    case 2:  return coll_isend(f->comm, &f->sent[i], 1, COLL_I64, (rank + 1) % size, i - 1, r);
    case 3:  return coll_prepare(f->comm, &call, r);
    default: return coll_ibarrier(f->comm, r);
    }
}

static int64_t crowd_expects(const crowd *f, int i)
{
    const int rank = coll_rank(f->comm), size = coll_size(f->comm);

    if (is_message(i)) return i % 5 == 1 ? 1000 * (i + 1) + (rank + size - 1) % size : 0;
    return i % 5 == 4 ? 0 : (int64_t)size * 1000 * i + (int64_t)size * (size - 1) / 2;
}

/* One that is prepared is nothing to wait for until it is started. */
static void crowd_start(crowd *f)
{
    int index = 9;

    for (int i = 0; i < MANY; i++) {
        const coll_status status = crowd_start_one(f, i);
        CHECK(status == COLL_OK, "%s: request %d: %s", case_name, i, coll_error(f->comm));
    }
    for (int i = 0; i < MANY; i++) {
        if (!is_prepared(i)) continue;
        CHECK(coll_test_any(1, &f->requests[i], &index) == COLL_OK && index == -1, "%s: prepared, handed out", case_name);
        CHECK(coll_restart(f->requests[i]) == COLL_OK, "%s: restart %d: %s", case_name, i, coll_error(f->comm));
    }
}

static void crowd_took(crowd *f, int i, way how)
{
    if (i < 0 || i >= MANY || !f->requests[i]) {
        CHECK(false, "%s: request %d was handed out", case_name, i);
        return;
    }
    f->times[i]++;
    CHECK(coll_test(f->requests[i]) == COLL_OK, "%s: request %d was handed out and has %d", case_name, i,
          (int)coll_test(f->requests[i]));
    if (how != BY_ANY_AND_FREED || is_prepared(i)) return;
    coll_request_free(f->requests[i]);
    f->requests[i] = NULL;
}

/* Until nothing is left, and then twice more. */
static void crowd_collect(crowd *f, way how)
{
    int indices[MANY], index, count;

    for (int ends = 0, calls = 0; ends < 3 && calls < 1000000; calls++) {
        coll_status status;
        index = -2, count = 0;
        if (how == BY_SOME) status = coll_wait_some(MANY, f->requests, indices, &count);
        else if (how == BY_TEST_ANY) status = coll_test_any(MANY, f->requests, &index);
        else status = coll_wait_any(MANY, f->requests, &index);
        const bool is_pending = how == BY_TEST_ANY && status == COLL_PENDING;
        if (is_pending) sched_yield();
        CHECK(status == COLL_OK || (is_pending && index == -1), "%s: %s gives %d: %s", case_name, way_names[how], (int)status,
              coll_error(f->comm));
        if (status < 0) return;
        for (int k = 0; k < count; k++) crowd_took(f, indices[k], how);
        if (how != BY_SOME && index != -1) crowd_took(f, index, how);
        ends += !is_pending && count == 0 && (how == BY_SOME || index == -1);
    }
}

/* Every second one is waited for, or tested, by itself: so its end is already reported. */
static void crowd_take_half(crowd *f, way how)
{
    for (int i = 0; i < MANY; i += 2) {
        coll_status status = COLL_PENDING;
        if (how == HALF_BY_WAIT) status = coll_wait(f->requests[i]);
        while (how == HALF_BY_TEST && (status = coll_test(f->requests[i])) == COLL_PENDING) sched_yield();
        CHECK(status == COLL_OK, "%s: request %d: %d", case_name, i, (int)status);
    }
}

/* Until all are finished, none is reported. */
static void crowd_take_all(crowd *f)
{
    coll_status status;

    while ((status = coll_test_all(MANY, f->requests)) == COLL_PENDING) sched_yield();
    CHECK(status == COLL_OK, "%s: coll_test_all: %d: %s", case_name, (int)status, coll_error(f->comm));
    for (int i = 0; i < MANY; i++) CHECK(coll_test(f->requests[i]) == COLL_OK, "%s: request %d is not finished", case_name, i);
}

static void crowd_check(crowd *f, way how, const char *when)
{
    const bool is_half = how == HALF_BY_WAIT || how == HALF_BY_TEST;
    int wrong = 0, lost = 0, twice = 0;

    for (int i = 0; i < MANY; i++) {
        const int wanted = how == ALL_BY_TEST || (is_half && i % 2 == 0) ? 0 : 1;
        lost += f->times[i] < wanted;
        twice += f->times[i] > wanted;
        wrong += f->got[i] != crowd_expects(f, i);
    }
    CHECK(lost == 0 && twice == 0 && wrong == 0, "%s, %s: %s: %d of %d were never handed out, %d too often; %d are wrong",
          case_name, when, way_names[how], lost, MANY, twice, wrong);
}

static void crowd_play(coll_comm *comm, way how)
{
    crowd *f = support_need(calloc(1, sizeof *f));

    f->comm = comm;
    crowd_start(f);
    if (how == BEHIND_A_BARRIER) CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    if (how == HALF_BY_WAIT || how == HALF_BY_TEST) crowd_take_half(f, how);
    if (how == ALL_BY_TEST) crowd_take_all(f);
    crowd_collect(f, how);
    crowd_check(f, how, "started");
    for (int i = 0; i < MANY; i++) {              /* the prepared ones once more, backwards                   */
        f->times[MANY - 1 - i] = !is_prepared(MANY - 1 - i);
        if (is_prepared(MANY - 1 - i)) CHECK(coll_restart(f->requests[MANY - 1 - i]) == COLL_OK, "%s", coll_error(comm));
    }
    crowd_collect(f, BY_ANY);
    for (int i = 0; i < MANY; i++) f->got[i] = crowd_expects(f, i);
    crowd_check(f, BY_ANY, "restarted");
    for (int i = 0; i < MANY; i++) coll_request_free(f->requests[i]);
    free(f);
}

/* ---- >>sleeping ---- */

static double processor_seconds(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* Wait for rank 0, which is a second late.  Returns the processor time of this process meanwhile, in seconds. */
static double wait_for_the_late(coll_comm *comm, int how)
{
    const struct timespec late = { 1, 0 };
    coll_request *r[3] = { NULL, NULL, NULL };
    int64_t x[3] = { 1, 1, 1 };
    int index = 0, indices[3], count = 1;
    const int rank = coll_rank(comm);

    CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    const double before = processor_seconds();
    if (rank == 0) {
        nanosleep(&late, NULL);
        for (int i = 1; i < coll_size(comm); i++) CHECK(coll_send(comm, x, 1, COLL_I64, i, 1) == COLL_OK, "%s", coll_error(comm));
    }
    CHECK(coll_iallreduce(comm, x, x + 1, 1, COLL_I64, COLL_SUM, &r[1]) == COLL_OK, "%s", coll_error(comm));
    if (rank > 0) CHECK(coll_irecv(comm, x + 2, 1, COLL_I64, 0, 1, &r[2]) == COLL_OK, "%s", coll_error(comm));
    for (int ends = 0; ends < 1;) {
        coll_status status = COLL_OK;
        if (how == 0) status = coll_wait_all(3, r), ends = 1;
        if (how == 1) status = coll_wait_any(3, r, &index), ends = index == -1;
        if (how == 2) status = coll_wait_some(3, r, indices, &count), ends = count == 0;
        CHECK(status == COLL_OK, "%s: %s", case_name, coll_error(comm));
        if (status < 0) break;
    }
    const double used = processor_seconds() - before;
    coll_request_free(r[1]);
    coll_request_free(r[2]);
    return used;
}

/* A quarter of a processor for each rank that waits, unless coll_wait itself takes more there.  A wait that spins takes a whole
 * one; what sleeping and looking costs depends on how cold the caches are, so on what else runs. */
static void sleep_play(coll_comm *comm, int ranks_here)
{
    const double plain = wait_for_the_late(comm, 0), least = 0.25 * ranks_here;
    const double most = least > plain * 1.2 ? least : plain * 1.2;

    for (int how = 1; how <= 2; how++) {
        const double used = wait_for_the_late(comm, how);
        CHECK(coll_rank(comm) == 0 || used <= most, "%s: %s for 1 s takes %.3f s of processors, coll_wait %.3f s", case_name,
              how == 1 ? "coll_wait_any" : "coll_wait_some", used, plain);
    }
}

#endif /* TESTS_WAITING_H */
