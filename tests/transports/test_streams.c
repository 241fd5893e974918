/* test_streams.c - the library does not touch the program's standard input, output and error: if the program has closed some
 * of them, no descriptor of the library gets their numbers; and if standard error cannot be written to, no log line ends the
 * program. */
#define _GNU_SOURCE
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { RANKS = 3, COUNT = 1 << 18 };

/* The end of a child, and its expected exit status. */
static void await(pid_t child, const char *what)
{
    int status = -1;

    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s, %s: %s %d", case_name, what,
          WIFSIGNALED(status) ? "signal" : "exit status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* ---- >>closed ones ---- */

static bool are_closed(int mask)
{
    for (int fd = 0; fd < 3; fd++) if (mask >> fd & 1 && fcntl(fd, F_GETFD) >= 0) return false;
    return true;
}

/* Calls, a derived communicator, and messages: each of them may open descriptors. */
static int work(coll_comm *comm, void *arg)
{
    const int mask = *(const int *)arg, next = (coll_rank(comm) + 1) % coll_size(comm);
    const int before = (coll_rank(comm) + coll_size(comm) - 1) % coll_size(comm);
    int *const x = support_need(malloc(COUNT * sizeof *x)), got = -1, wrong = 0;
    coll_comm *other = NULL;

    for (int i = 0; i < COUNT; i++) x[i] = i;
    wrong += coll_allreduce(comm, x, x, COUNT, COLL_I32, COLL_SUM) != COLL_OK;
    for (int i = 0; i < COUNT; i++) wrong += x[i] != i * coll_size(comm);
    wrong += coll_dup(comm, &other) != COLL_OK;
    wrong += coll_sendrecv(other, &next, 1, next, &got, 1, before, COLL_I32, 0) != COLL_OK || got != coll_rank(comm);
    wrong += !are_closed(mask);
    coll_free(other);
    free(x);
    return wrong;
}

/* One process of a world that has closed these. */
static int close_and_work(int mask, int rank, const char *address)
{
    const bool has_domain = strcmp(world, "tcp-domain") == 0;
    const coll_config config = { .transport = "tcp", .rank = rank, .size = RANKS, .address = address,
                                 .tcp = { .io = strcmp(world, "tcp-uring") == 0 ? "uring" : "poll",
                                          .shm_collectives = has_domain ? COLL_ON : COLL_OFF,
                                                             .share_memory = has_domain ? COLL_ON : COLL_OFF } };
    coll_comm *comm = NULL;

    for (int fd = 0; fd < 3; fd++) if (mask >> fd & 1) close(fd);
    if (strcmp(world, "threads") == 0) return coll_spawn(RANKS, work, &mask, NULL) != 0 || !are_closed(mask);
    if (coll_init(&comm, &config) != COLL_OK) return 2;
    const int wrong = work(comm, &mask);
    coll_free(comm);
    return wrong != 0 || !are_closed(mask);
}

static void closed_case(const void *arg)
{
    const int processes = strcmp(world, "threads") == 0 ? 1 : RANKS;

    (void)arg;
    for (int mask = 1; mask < 8; mask++) {
        char what[40], address[64];
        const int port = support_reserve_port(address, sizeof address);
        pid_t children[RANKS];
        fflush(NULL);
        for (int i = 0; i < processes; i++)
            if ((children[i] = fork()) == 0) _exit(close_and_work(mask, i, address));
        snprintf(what, sizeof what, "closed: %s%s%s", mask & 1 ? "0" : "", mask & 2 ? "1" : "", mask & 4 ? "2" : "");
        for (int i = 0; i < processes; i++) await(children[i], what);
        close(port);
    }
}

/* ---- >>one that cannot be written to ---- */

/* Standard error is a pipe without a reader, or a file that is as long as it may be. */
static void spoil_stderr(bool is_file)
{
    const struct rlimit none = { 0, 0 };
    char name[] = "/tmp/coll-streams.XXXXXX";
    int ends[2];

    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    if (is_file ? (ends[1] = mkstemp(name)) < 0 || unlink(name) || setrlimit(RLIMIT_FSIZE, &none) : pipe(ends) || close(ends[0]))
        _exit(2);
    if (dup2(ends[1], STDERR_FILENO) < 0) _exit(3);
}

static bool is_pending(int number)
{
    sigset_t pending;

    sigemptyset(&pending);
    return sigpending(&pending) == 0 && sigismember(&pending, number);
}

/* A log line, and the file with the report of a failure. */
static int fail(coll_comm *comm, void *arg)
{
    int x = 0;

    (void)arg;
    if (coll_rank(comm) == 0) coll_abort(comm, "to make it write");
    while (coll_allreduce(comm, &x, &x, 1, COLL_I32, COLL_SUM) == COLL_OK) continue;
    return 0;
}

static void unwritable_case(const void *arg)
{
    const bool is_file = *(const bool *)arg;
    char folder[] = "/tmp/coll-streams.XXXXXX", file[60];

    CHECK(mkdtemp(folder), "%s: no folder", case_name);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        sigset_t none;
        coll_comm *comm = NULL;
        const coll_config wrong = { .rank = 3, .size = 2 };
        const coll_config config = { .log_level = COLL_LOG_INFO, .dump = folder };
        sigemptyset(&none);
        spoil_stderr(is_file);
        if (coll_init(&comm, &wrong) >= 0) _exit(4);
        coll_status status = coll_spawn(RANKS, fail, NULL, &config);
        if (status != COLL_OK) _exit(5);
        if (is_pending(SIGPIPE) || is_pending(SIGXFSZ)) _exit(6);
        /* The program's signals are unchanged. */
        raise(is_file ? SIGXFSZ : SIGPIPE);
        _exit(7);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == (is_file ? SIGXFSZ : SIGPIPE),
          "%s: status %x", case_name, status);
    for (int i = 0; i < RANKS; i++) {
        snprintf(file, sizeof file, "%s/coll-%d.json", folder, i);
        CHECK((remove(file) != 0) == is_file, "%s: %s", case_name, file);
    }
    CHECK(remove(folder) == 0, "%s: something is left in %s", case_name, folder);
}

int main(void)
{
    cases_begin();
    for (int at = 0; (world = support_world_next("threads,tcp-poll,tcp-uring,tcp-domain", &at)) != NULL;)
        run_case_within(120, closed_case, NULL, "closed streams");
    world = "none";
    run_case_within(60, unwritable_case, &(bool){ false }, "standard error is a pipe without a reader");
    run_case_within(60, unwritable_case, &(bool){ true }, "standard error is a file at its limit");
    return CHECK_DONE();
}
