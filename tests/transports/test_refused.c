/* test_refused.c - io_uring is not permitted, or has no memory to lock: the automatic choice uses poll and logs one line, a
 * request for io_uring is an error with the reason, poll works as ever, and ranks with and without it connect.
 *
 * Every case runs in a process of its own, which restricts itself; its two ranks are threads, or a process each. */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/resource.h>

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"

enum { CASE_SECONDS = 20, URING_SETUP = 425, UNPRIVILEGED = 65534 };

/* ---- >>restrictions ---- */

typedef enum restriction { FREE, NOT_PERMITTED, NOT_THERE, LOCKED_64K, LOCKED_NONE, RESTRICTION_COUNT } restriction;

static const char *const restriction_names[] = {
    "no restriction", "EPERM for io_uring_setup", "ENOSYS for io_uring_setup", "64 KiB to lock", "nothing to lock"
};

/* From now on the system call returns this error, in this process and its children. */
static bool forbid(int system_call, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)system_call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof code / sizeof *code, code };

    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* The limit does not apply to root, so continue as another user. */
static bool limit_locked(rlim_t most)
{
    const struct rlimit limit = { most, most };
    return !setrlimit(RLIMIT_MEMLOCK, &limit) && (geteuid() != 0 || !setreuid(UNPRIVILEGED, UNPRIVILEGED));
}

static bool restrict_to(restriction r)
{
    switch (r) {
    case NOT_PERMITTED: return forbid(URING_SETUP, EPERM);
    case NOT_THERE: return forbid(URING_SETUP, ENOSYS);
    case LOCKED_64K: return limit_locked((rlim_t)64 * 1024);
    case LOCKED_NONE: return limit_locked(0);
    default: return true;
    }
}

/* ---- >>a world of two ---- */

static int lines_with(const journal *j, const char *word, const char *other)
{
    int found = 0;

    for (int i = 0; i < j->count; i++) found += strstr(j->lines[i], word) != NULL && strstr(j->lines[i], other) != NULL;
    return found;
}

static coll_status sum_up(joiner *g)
{
    int32_t x[1000], sum[1000];

    for (int i = 0; i < 1000; i++) x[i] = i + g->config.rank;
    const coll_status status = coll_allreduce(g->comm, x, sum, 1000, COLL_I32, COLL_SUM);
    return status || (sum[0] == 1 && sum[999] == 2 * 999 + 1) ? status : COLL_ERR_MISMATCH;
}

static void rank_set(joiner *g, int rank, const char *address, const char *io, journal *said)
{
    g->body = sum_up;
    g->config = (coll_config){ .rank = rank, .size = 2, .address = address, .tcp = { .io = io }, .start_timeout_ms = 10000,
                               .log = journal_line, .log_context = said, .log_level = COLL_LOG_INFO };
}

/* ---- >>cases ---- */

typedef struct trial { restriction restriction; const char *io; } trial;

static void check_refusal(const trial *t, const joiner *r, bool may_work)
{
    const bool is_memory = t->restriction >= LOCKED_64K;
#if !COLL__HAS_URING
    const char *const reason = "compiled without";
#else
    const char *const reason = is_memory ? "ulimit" : t->restriction == NOT_PERMITTED ? "not permitted" : "does not have";
#endif

    if (may_work && r->hybrid == COLL_OK) {
        CHECK(r->status == COLL_OK, "%s: rank %d: %d: %s", case_name, r->config.rank, (int)r->status, r->sentence);
        return;
    }
    CHECK(r->hybrid == COLL_ERR_UNSUPPORTED, "%s: rank %d has %d: %s", case_name, r->config.rank, (int)r->hybrid, r->sentence);
    CHECK(strstr(r->sentence, "io_uring") && strstr(r->sentence, reason), "%s: no reason in \"%s\"", case_name, r->sentence);
}

static void trial_case(const void *arg)
{
    const trial *t = arg;
    journal said = JOURNAL;
    joiner ranks[2] = { { .status = COLL_OK }, { .status = COLL_OK } };
    char address[64];
    const bool is_memory = t->restriction >= LOCKED_64K, is_refused = t->restriction != FREE;
    const int port = support_reserve_port(address, sizeof address);

    CHECK(restrict_to(t->restriction), "%s: the restriction cannot be had: %s", case_name, strerror(errno));
    for (int i = 0; i < 2; i++) rank_set(&ranks[i], i, address, t->io, &said);
    for (int i = 0; i < 2; i++) joiner_run(&ranks[i]);
    for (int i = 0; i < 2; i++) joiner_join(&ranks[i]);
    for (int i = 0; i < 2; i++) {
        const joiner *r = &ranks[i];
        if (!strcmp(t->io, "uring") && is_refused) check_refusal(t, r, is_memory);
        else CHECK(r->status == COLL_OK, "%s: rank %d: %d, %d: %s", case_name, i, (int)r->hybrid, (int)r->status,
                   r->sentence);
    }
    const int lines = lines_with(&said, "no io_uring", "poll");
    if (strcmp(t->io, "auto") || !is_refused) CHECK(lines == 0, "%s: %d lines speak of poll", case_name, lines);
    else if (is_memory) CHECK(lines == 0 || lines == 2, "%s: %d lines speak of poll", case_name, lines);
    else CHECK(lines == 2, "%s: %d lines speak of poll, one for each rank is due: %s", case_name, lines, said.lines[0]);
    close(port);
}

/* Rank 1 is in a container that has no io_uring. */
static void mixed_case(const void *arg)
{
    const trial *t = arg;
    journal said = JOURNAL;
    joiner zero = { .status = COLL_OK }, one = { .status = COLL_OK };
    char address[64];
    const int port = support_reserve_port(address, sizeof address);
    int status = -1;

    rank_set(&zero, 0, address, t->io, &said);
    rank_set(&one, 1, address, "auto", &said);
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!restrict_to(t->restriction)) _exit(2);
        (void)joiner_main(&one);
        _exit(one.status == COLL_OK && lines_with(&said, "no io_uring", "poll") == 1 ? 0 : 3);
    }
    (void)joiner_main(&zero);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "%s: rank 1 ends with %#x", case_name,
          (unsigned)status);
    CHECK(zero.status == COLL_OK && lines_with(&said, "no io_uring", "poll") == 0, "%s: rank 0: %d, %d: %s", case_name,
          (int)zero.hybrid, (int)zero.status, zero.sentence);
    close(port);
}

int main(void)
{
    static const char *const modes[] = { "auto", "uring", "poll" };
    const char *refusal = support_refusal("tcp-uring");
    char name[100];

    cases_begin();
    if (refusal) printf("without io_uring to begin with (%s), only its refusal is tested\n", refusal);
    for (int r = refusal ? NOT_PERMITTED : FREE; r < (refusal ? LOCKED_64K : RESTRICTION_COUNT); r++)
        for (int m = 0; m < 3; m++) {
            const trial t = { (restriction)r, modes[m] };
            snprintf(name, sizeof name, "io %s, %s", modes[m], restriction_names[r]);
            run_case_within(CASE_SECONDS, trial_case, &t, name);
        }
    for (int r = NOT_PERMITTED; r <= NOT_THERE && !refusal; r++) {
        const trial t = { (restriction)r, "uring" };
        snprintf(name, sizeof name, "rank 1 alone has %s", restriction_names[r]);
        run_case_within(CASE_SECONDS, mixed_case, &t, name);
    }
    return CHECK_DONE();
}
