/* cases.h - cases that run in their own process, with a time limit: a hang or a crash is one failure with a name, and the
 * cases behind it still run.  Used after coll.h, check.h and support.h. */
#ifndef CASES_H
#define CASES_H

#include <pthread.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

/* ---- >>cases ---- */

static const char *world = "none";                /* in which the case runs                                   */
static char case_name[160];
static const char *case_step = "";                /* where in the case, for the report of a hang              */
static struct { int passed, failed; } *tally;     /* of a case, in memory shared with its process             */

SUPPORT void report_hang(void) { fprintf(stderr, "failed: %s: hangs, at: %s\n", case_name, case_step); }

/* Before the first case. */
SUPPORT void cases_begin(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally != MAP_FAILED) return;
    perror("mmap");
    exit(1);
}

/* The same for cases that set keys themselves. */
SUPPORT void cases_begin_without_key(void)
{
    unsetenv("COLL_KEY");
    unsetenv("COLL_KEY_FILE");
    unsetenv("COLL_SECURITY");
    cases_begin();
}

/* Run body(arg) in its own process. */
SUPPORT void run_case_within(unsigned seconds, void (*body)(const void *arg), const void *arg, const char *name)
{
    int status = 0;

    snprintf(case_name, sizeof case_name, "%s, %s", world, name);
    fflush(NULL);
    tally->passed = tally->failed = 0;
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        check__passed = check__failed = 0;
        support_limit(seconds, report_hang);
        body(arg);
        tally->passed = check__passed;
        tally->failed = check__failed;
        exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "%s: its process ended with %s %d", case_name,
          WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    check__passed += tally->passed;
    check__failed += tally->failed;
}

SUPPORT int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Does the sentence hold all these words?  NULL ends them. */
SUPPORT bool says(const char *sentence, const char *const *words, int count)
{
    for (int i = 0; i < count && words[i]; i++)
        if (!strstr(sentence, words[i])) return false;
    return true;
}

/* Does the sentence speak of this rank, behind the "rank 1 of 3: " with which every sentence begins? */
SUPPORT bool names_rank(const char *sentence, int rank)
{
    const char *at = strchr(sentence, ':');
    char name[24];

    snprintf(name, sizeof name, "rank %d", rank);
    while (at && (at = strstr(at, name)) != NULL) {
        at += strlen(name);
        if (*at < '0' || *at > '9') return true;
    }
    return false;
}

/* ---- >>events: where one thread waits for another ---- */

/* A number that threads raise and wait for. */
typedef struct event {
    pthread_mutex_t lock;
    pthread_cond_t  raised;
    int             count;
} event;

#define EVENT_INIT { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 }

static __attribute__((unused)) void event_raise(event *e)
{
    pthread_mutex_lock(&e->lock);
    e->count++;
    pthread_cond_broadcast(&e->raised);
    pthread_mutex_unlock(&e->lock);
}

static __attribute__((unused)) void event_await(event *e, int count)
{
    pthread_mutex_lock(&e->lock);
    while (e->count < count) pthread_cond_wait(&e->raised, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

#endif /* CASES_H */
