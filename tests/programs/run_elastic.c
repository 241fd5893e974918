/* run_elastic - a rank of an elastic job, for test_run_elastic.sh.  In each step all ranks add up numbers of which each has a
 * part: the sum is the same for any number of ranks.
 *
 *     run_elastic kills SEED COUNT RANKS   one rank after the other is killed, at any moment of the steps that follow, also while
 *                                          the job grows; the next one when there are RANKS again.  Of the processes that join,
 *                                          one in four is killed near the moment at which it joins.  Ends after COUNT kills
 *     run_elastic until FILE [RANKS]       ends when there is the file, and RANKS ranks
 *     run_elastic never FILE               the same; no process can join
 *
 * Each process writes its number, and rank 0 the step and the number of ranks whenever that has changed.  After SIGTERM a process
 * leaves after the step, and dies of that signal. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../coll.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { NUMBERS = 1000, QUIET_STEPS = 20, KILL_US = 4000, JOIN_US = 20000 };

typedef struct model { int64_t step, kills, armed_at, is_armed, total; } model;

static volatile sig_atomic_t is_to_leave;
static uint64_t seed;

static void on_term(int signal)
{
    (void)signal;
    is_to_leave = 1;
}

static void on_alarm(int signal)
{
    (void)signal;
    kill(getpid(), SIGKILL);
}

static uint64_t chance(uint64_t what)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + what * 0xbf58476d1ce4e5b9u;

    x = (x ^ x >> 31) * 0x94d049bb133111ebu;
    return x ^ x >> 29;
}

/* This process is killed within so many microseconds. */
static void die_within(uint64_t what, int64_t most)
{
    const struct itimerval at = { .it_value = { .tv_usec = 1 + (suseconds_t)(chance(what) % (uint64_t)most) } };

    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &at, NULL);
}

/* One in four of the processes that join dies near that moment. */
static void come(bool has_kills)
{
    struct stat all;

    printf("pid %d\n", (int)getpid());
    fflush(stdout);
    const int fd = open("starts", O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || write(fd, "x", 1) != 1 || fstat(fd, &all)) perror("starts"), exit(1);
    close(fd);
    if (has_kills && getenv("COLL_JOIN") && chance(1000000 + (uint64_t)all.st_size) % 4 == 0)
        die_within(2000000 + (uint64_t)all.st_size, JOIN_US);
}

static coll_status step(coll_comm *comm, model *m)
{
    int64_t sum[2] = { 0, is_to_leave }, expected = 0;

    for (int64_t i = 0; i < NUMBERS; i++) {
        expected += i * m->step;
        if (i % coll_size(comm) == coll_rank(comm)) sum[0] += i * m->step;
    }
    const coll_status status = coll_allreduce(comm, COLL_IN_PLACE, sum, 2, COLL_I64, COLL_SUM);
    if (status) return status;
    if (sum[0] != expected) printf("WRONG: step %d\n", (int)m->step), fflush(stdout), exit(9);
    m->step++;
    m->total += sum[0];
    return COLL_OK;
}

/* The model of a job that has taken all steps in order. */
static bool is_right(const model *m)
{
    int64_t total = 0;

    for (int64_t k = 0; k < m->step; k++) total += k * NUMBERS * (NUMBERS - 1) / 2;
    return total == m->total;
}

/* With all ranks there, arm the next one that is to die. */
static void kill_next(coll_comm *comm, model *m, int count, int ranks)
{
    if (m->kills >= count || m->is_armed || coll_size(comm) < ranks || m->step < m->armed_at + QUIET_STEPS) return;
    m->armed_at = m->step;
    m->is_armed = 1;
    if (coll_rank(comm) == (int)(chance((uint64_t)m->kills) % (uint64_t)coll_size(comm)))
        die_within(3000000 + (uint64_t)m->kills, KILL_US);
    m->kills++;
}

/* All ranks agree, for rank 0 looks. */
static coll_status is_over(coll_comm *comm, const char *file, int ranks, bool *over)
{
    int32_t there = coll_rank(comm) == 0 && access(file, F_OK) == 0 && coll_size(comm) >= ranks;
    const coll_status status = coll_broadcast(comm, &there, 1, COLL_I32, 0);

    *over = there;
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3) return fprintf(stderr, "usage: run_elastic kills SEED COUNT RANKS | until FILE [RANKS] | never FILE\n"), 2;
    const bool has_kills = !strcmp(argv[1], "kills") && argc == 5, grows = strcmp(argv[1], "never");
    const int count = has_kills ? atoi(argv[3]) : 0, ranks = has_kills ? atoi(argv[4]) : argc > 3 ? atoi(argv[3]) : 1;
    model m = { 0 };
    coll_comm *comm = NULL, *next;
    const struct itimerval none = { .it_value = { .tv_usec = 0 } };
    bool over = false, has_joined = false;

    seed = has_kills ? strtoull(argv[2], NULL, 10) : 0;
    signal(SIGTERM, on_term);
    come(has_kills);
    coll_status status = coll_init(&comm, NULL);
    for (bool is_new = true; status == COLL_OK && !over && !is_to_leave; is_new = next) {
        if (is_new) status = coll_broadcast(comm, &m, sizeof m, COLL_U8, 0);
        if (is_new && status == COLL_OK) m.is_armed = 0;
        if (is_new && status == COLL_OK && getenv("COLL_JOIN") && !has_joined)
            has_joined = true, setitimer(ITIMER_REAL, &none, NULL);
        if (is_new && status == COLL_OK && coll_rank(comm) == 0)
            printf("step %d: %d ranks\n", (int)m.step, coll_size(comm)), fflush(stdout);
        if (status == COLL_OK && has_kills) kill_next(comm, &m, count, ranks);
        if (status == COLL_OK) status = step(comm, &m);
        next = NULL;
        if (status == COLL_OK && grows && m.step % 3 == 0) status = coll_grow(comm, &next);
        if (status == COLL_OK && !next) {
            if (!has_kills) status = is_over(comm, argv[2], ranks, &over);
            else over = m.kills == count && !m.is_armed && coll_size(comm) >= ranks && m.step >= m.armed_at + 10 * QUIET_STEPS;
        }
        if (status == COLL_ERR_PEER) status = coll_shrink(comm, &next);
        if (next) coll_free(comm), comm = next;
    }
    if (status) return fprintf(stderr, "run_elastic: %s\n", coll_error(comm)), 1;
    if (!is_right(&m)) return printf("WRONG: the total\n"), 9;
    if (over) printf("rank %d of %d ends at step %d, kill %d\n", coll_rank(comm), coll_size(comm), (int)m.step, (int)m.kills);
    fflush(stdout);
    coll_free(comm);
    if (!over) signal(SIGTERM, SIG_DFL), raise(SIGTERM);
    return 0;
}
