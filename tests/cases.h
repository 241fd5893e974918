/* cases.h - cases that run in a process of their own, with a time limit, and worlds whose ranks may leave when they like.
 * Used after coll.h, check.h and support.h. */
#ifndef CASES_H
#define CASES_H

/* ---- >>cases ---- */

static const char *world = "none";                /* in which the case runs                                   */
static char case_name[160];
static const char *case_step = "";                /* where in the case, for the report of a hang              */
static struct { int passed, failed; } *tally;     /* of a case, in memory shared with its process             */

static void report_hang(void) { fprintf(stderr, "failed: %s: hangs, at: %s\n", case_name, case_step); }

/* Run body(arg) in a process of its own. */
static void run_case_within(unsigned seconds, void (*body)(const void *arg), const void *arg, const char *name)
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

static void run_case(void (*body)(const void *arg), const void *arg, const char *name) { run_case_within(CASE_SECONDS, body,
        arg, name); }

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A number that threads raise and wait for. */
typedef struct event {
    pthread_mutex_t lock;
    pthread_cond_t  raised;
    int             count;
} event;

#define EVENT_INIT { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 }

static void event_raise(event *e)
{
    pthread_mutex_lock(&e->lock);
    e->count++;
    pthread_cond_broadcast(&e->raised);
    pthread_mutex_unlock(&e->lock);
}

static void event_await(event *e, int count)
{
    pthread_mutex_lock(&e->lock);
    while (e->count < count) pthread_cond_wait(&e->raised, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

/* Does the sentence hold all these words?  NULL ends them. */
static bool says(const char *sentence, const char *const *words, int count)
{
    for (int i = 0; i < count && words[i]; i++)
        if (!strstr(sentence, words[i])) return false;
    return true;
}

/* Does the sentence speak of this rank, behind the "rank 1 of 3: " with which every sentence begins? */
static bool names_rank(const char *sentence, int rank)
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

/* ---- >>worlds: like those of support.h, but their ranks may leave when they like ---- */

typedef struct member {
    pthread_t   thread;
    coll_config config;
    coll_comm  *comm;                             /* a worker that frees it sets it to NULL                   */
    coll_status joined;
    char        sentence[320];
    void      (*worker)(coll_comm **comm, void *arg);
    void       *arg;
} member;

static void *member_join(void *at)
{
    member *m = at;

    m->joined = coll_init(&m->comm, &m->config);
    snprintf(m->sentence, sizeof m->sentence, "%s", coll_error(NULL));
    return NULL;
}

static void *member_work(void *at)
{
    member *m = at;

    m->worker(&m->comm, m->arg);
    coll_free(m->comm);
    return NULL;
}

/* Open a world of `size`; false when there is none, which counts as a failure. */
static bool open_world(int size, const coll_config *base, member *members)
{
    coll_comm *comms[RANKS_MOST] = { 0 };
    char address[64] = "";
    const bool is_threads = !strcmp(world, "threads");
    bool is_good = true;

    for (int i = 0; i < size; i++) members[i] = (member){ .config = base ? *base : (coll_config){ 0 } };
    if (is_threads) {
        const coll_status status = coll_init_threads(size, comms, &members[0].config);
        CHECK(status == COLL_OK, "%s: coll_init_threads: %s", case_name, coll_error(NULL));
        for (int i = 0; i < size; i++) members[i].comm = comms[i];
        return status == COLL_OK;
    }
    const int port = support_reserve_port(address, sizeof address);
    for (int i = 0; i < size; i++) {
        coll_config *c = &members[i].config;
        c->rank = i;
        c->size = size;
        c->address = address;
        c->io = !strcmp(world, "tcp-uring") ? "uring" : "poll";
        pthread_create(&members[i].thread, NULL, member_join, &members[i]);
    }
    for (int i = 0; i < size; i++) pthread_join(members[i].thread, NULL);
    for (int i = 0; i < size; i++) {
        CHECK(members[i].joined == COLL_OK, "%s: coll_init of rank %d: %s", case_name, i, members[i].sentence);
        if (members[i].joined != COLL_OK) is_good = false;
    }
    if (port >= 0) close(port);
    for (int i = 0; i < size && !is_good; i++) coll_free(members[i].comm);
    return is_good;
}

/* Run a worker on every rank, each a thread, and free what the workers have left. */
static void work_and_close(int size, member *members, void (*worker)(coll_comm **comm, void *arg), void *arg)
{
    for (int i = 0; i < size; i++) {
        members[i].worker = worker;
        members[i].arg = arg;
        CHECK(pthread_create(&members[i].thread, NULL, member_work, &members[i]) == 0, "%s: no thread", case_name);
    }
    for (int i = 0; i < size; i++) pthread_join(members[i].thread, NULL);
}

static void run_world(int size, const coll_config *base, void (*worker)(coll_comm **comm, void *arg), void *arg)
{
    member members[RANKS_MOST];

    if (open_world(size, base, members)) work_and_close(size, members, worker, arg);
}

/* All ranks call this: does the communicator work? */
static void check_works(coll_comm *comm, const char *after)
{
    const int size = coll_size(comm);
    int32_t x = coll_rank(comm) + 1;
    const coll_status status = coll_allreduce(comm, &x, &x, 1, COLL_I32, COLL_SUM);

    CHECK(status == COLL_OK && x == size * (size + 1) / 2, "%s: rank %d, after %s: allreduce gives %d (%s), status %d: %s",
          case_name, coll_rank(comm), after, x, "the sum of the ranks is expected", (int)status, coll_error(comm));
}

/* The communicator has ended with `status`: every later call says so at once. */
static void check_ended(coll_comm *comm, coll_status status, const char *after)
{
    const int64_t began = now_ms();
    char before[512];
    int32_t x = 1;
    coll_request *r = NULL;

    snprintf(before, sizeof before, "%s", coll_error(comm));
    CHECK(coll_barrier(comm) == status && coll_allreduce(comm, &x, &x, 1, COLL_I32, COLL_SUM) == status &&
          coll_send(comm, &x, 1, COLL_I32, 0, 0) == status && coll_recv(comm, &x, 1, COLL_I32, 0, 0) == status &&
          coll_ibarrier(comm, &r) == status && r == NULL && coll_progress(comm) == status,
          "%s: rank %d, after %s: later calls do not all return %d", case_name, coll_rank(comm), after, (int)status);
    CHECK(!strcmp(before, coll_error(comm)), "%s: rank %d, after %s: the sentence \"%s\" has become \"%s\"", case_name,
          coll_rank(comm), after, before, coll_error(comm));
    CHECK(now_ms() - began < AT_ONCE_MS, "%s: rank %d, after %s: later calls took %d ms", case_name, coll_rank(comm), after,
          (int)(now_ms() - began));
}

static void timed_free(coll_comm **comm, const char *after)
{
    const int64_t began = now_ms();
    const int rank = coll_rank(*comm);
    const coll_status status = coll_free(*comm);

    *comm = NULL;
    CHECK(status == COLL_OK && now_ms() - began < FREE_MS, "%s: rank %d, after %s: coll_free gives %d after %d ms", case_name,
          rank, after, (int)status, (int)(now_ms() - began));
}

#endif /* CASES_H */
