/* leaving_ranks.h - worlds like those of support.h, but their ranks may leave at any time, and checks of the effects.  Used
 * after coll.h, check.h, support.h and cases.h. */
#ifndef DEPARTURES_H
#define DEPARTURES_H

enum { RANKS_MOST = 5, FREE_MS = 2500, AT_ONCE_MS = 500 };

typedef struct member {
    pthread_t   thread;
    coll_config config;
    coll_comm  *comm;                             /* a worker that frees it sets it to NULL                   */
    coll_status hybrid;
    char        sentence[320];
    int         brings;                           /* ranks of its process, if it is the first of them         */
    void      (*worker)(coll_comm **comm, void *arg);
    void       *arg;
} member;

static void *member_join(void *at)
{
    member *m = at;
    coll_comm *comms[RANKS_MOST] = { 0 };

    m->hybrid = m->brings ? coll_init_threads(m->brings, comms, &m->config) : coll_init(&m->comm, &m->config);
    for (int i = 0; i < m->brings; i++) m[i].comm = comms[i], m[i].hybrid = m->hybrid;
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
    const int port = support_reserve_port(address, sizeof address), each = !strcmp(world, "hybrid") ? (size + 1) / 2 : 0;
    for (int i = 0; i < size; i++) {
        coll_config *c = &members[i].config;
        c->rank = i;
        c->size = size;
        c->address = address;
        c->tcp.io = !strcmp(world, "tcp-uring") ? "uring" : "poll";
        c->tcp.share_memory = !strcmp(world, "tcp-poll") ? -1 : 0;
    }
    for (int i = 0; i < size; i += each ? each : 1) {
        members[i].brings = each && i + each > size ? size - i : each;
        pthread_create(&members[i].thread, NULL, member_join, &members[i]);
    }
    for (int i = 0; i < size; i += each ? each : 1) pthread_join(members[i].thread, NULL);
    for (int i = 0; i < size; i++) {
        CHECK(members[i].hybrid == COLL_OK, "%s: coll_init of rank %d: %s", case_name, i, members[i].sentence);
        if (members[i].hybrid != COLL_OK) is_good = false;
    }
    if (port >= 0) close(port);
    for (int i = 0; i < size && !is_good; i++) coll_free(members[i].comm);
    return is_good;
}

/* Run a worker on every rank, each a thread, and free the communicators that the workers have not freed. */
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

/* The same by a list, which is a call without a number: the error of the next waiting rank names it as the last completed one. */
static void check_lists_work(coll_comm *comm, const char *after)
{
    const int size = coll_size(comm);
    int32_t x[2] = { coll_rank(comm) + 1, 1 };
    const coll_list_item list[] = { { &x[0], &x[0], 1, COLL_I32 }, { &x[1], &x[1], 1, COLL_I32 } };
    const coll_status status = coll_allreduce_list(comm, list, 2, COLL_SUM);

    CHECK(status == COLL_OK && x[0] == size * (size + 1) / 2 && x[1] == size,
          "%s: rank %d, after %s: allreduce_list gives %d and %d, status %d: %s", case_name, coll_rank(comm), after, x[0], x[1],
          (int)status, coll_error(comm));
}

/* The communicator has ended with `status`: every later call returns it at once. */
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
    CHECK(now_ms() - began < support_scaled(AT_ONCE_MS), "%s: rank %d, after %s: later calls took %d ms", case_name,
          coll_rank(comm), after, (int)(now_ms() - began));
}

static void timed_free(coll_comm **comm, const char *after)
{
    const int64_t began = now_ms();
    const int rank = coll_rank(*comm);
    const coll_status status = coll_free(*comm);

    *comm = NULL;
    CHECK(status == COLL_OK && now_ms() - began < support_scaled(FREE_MS),
          "%s: rank %d, after %s: coll_free gives %d after %d ms", case_name, rank, after, (int)status, (int)(now_ms() - began));
}

#endif /* DEPARTURES_H */
