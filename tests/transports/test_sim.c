/* test_sim - the simulated world: the right data in every order of events, time by the formula, faults and standstills reported
 * in sentences, user programs of blocking calls and of polls.
 *     COLL_TEST_SEED=... replays a seed */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"

static uint64_t seed_now;

static int run_sim(int count, int (*fn)(coll_comm *comm, void *arg), void *arg, const coll_sim *sim)
{
    const coll_config config = { .transport = "sim", .sim = sim };
    return coll_spawn(count, fn, arg, &config);
}

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b) + 1e-18; }

/* ---- >>data: every collective, on worlds drawn from the seed ---- */

#define STEP(call)                                                                                          \
    do {                                                                                                    \
        const coll_status step_status = (call);                                                             \
        if (step_status) {                                                                                  \
            CHECK(false, "seed %llu: %s: %s", (unsigned long long)seed_now, #call, coll_error(comm));       \
            return 1;                                                                                       \
        }                                                                                                   \
    } while (0)

static int64_t value_of(int rank, size_t at) { return (int64_t)rank * 1000003 + (int64_t)at * 7 + 1; }

static int64_t sum_of(int size, size_t at)
{
    return (int64_t)size * (size - 1) / 2 * 1000003 + (int64_t)size * ((int64_t)at * 7 + 1);
}

static bool check_reductions(coll_comm *comm, int64_t *x, int64_t *y, size_t count, int root)
{
    const int rank = coll_rank(comm), size = coll_size(comm);
    bool right = true;

    for (size_t i = 0; i < count * (size_t)size; i++) x[i] = value_of(rank, i);
    STEP(coll_allreduce(comm, x, y, count, COLL_I64, COLL_SUM));
    for (size_t i = 0; i < count; i++) right = right && y[i] == sum_of(size, i);
    STEP(coll_reduce(comm, x, y, count, COLL_I64, COLL_MAX, root));
    for (size_t i = 0; i < count && rank == root; i++) right = right && y[i] == value_of(size - 1, i);
    STEP(coll_reduce_scatter(comm, x, y, count, COLL_I64, COLL_SUM));
    for (size_t i = 0; i < count; i++) right = right && y[i] == sum_of(size, (size_t)rank * count + i);
    return !right;
}

static int collectives(coll_comm *comm, void *arg)
{
    const int rank = coll_rank(comm), size = coll_size(comm), next = (rank + 1) % size, last = (rank + size - 1) % size;
    const size_t count = *(const size_t *)arg;
    int64_t *x = support_need(calloc(2 * count * (size_t)size + 2, sizeof *x)), *y = x + count * (size_t)size + 1;
    const int root = (int)(count % (size_t)size);
    bool wrong = check_reductions(comm, x, y, count, root);

    for (size_t i = 0; i < count; i++) x[i] = rank == root ? value_of(root, i) : 0;
    STEP(coll_broadcast(comm, x, count, COLL_I64, root));
    for (size_t i = 0; i < count; i++) wrong |= x[i] != value_of(root, i), x[i] = value_of(rank, i);
    STEP(coll_allgather(comm, x, y, count, COLL_I64));
    for (size_t i = 0; i < count * (size_t)size; i++) wrong |= y[i] != value_of((int)(i / count), i % count);
    STEP(coll_barrier(comm));
    STEP(coll_sendrecv(comm, x, count, next, y, count, last, COLL_I64, 5));
    for (size_t i = 0; i < count; i++) wrong |= y[i] != value_of(last, i);
    if (size > 1 && rank < 2) {                   /* and one that is sent before its receive is posted         */
        if (rank == 0) STEP(coll_send(comm, x, count, COLL_I64, 1, 9));
        else STEP(coll_recv(comm, y, count, COLL_I64, 0, 9));
        for (size_t i = 0; i < count && rank == 1; i++) wrong |= y[i] != value_of(0, i);
    }
    CHECK(!wrong, "seed %llu: wrong data, rank %d of %d, count %zu", (unsigned long long)seed_now, rank, size, count);
    free(x);
    return 0;
}

static void test_data(uint64_t seed)
{
    static const int large[] = { 31, 64, 100, 200 };
    const double scale = support_scale();

    for (int i = 0; i < (int)(40 * scale) + 4; i++) {
        uint64_t state = seed_now = seed + (uint64_t)i;
        const int n = i % 10 == 9 ? large[i / 10 % 4] : 1 + i % 17;
        const size_t most = n > 32 ? 40 : 4000;
        size_t count = support_random(&state) % 4 ? support_random(&state) % 50 : support_random(&state) % most;
        const coll_sim sim = { .seed = seed_now, .jitter = support_random(&state) % 2 ? 20e-6 : 0,
                               .ranks_per_host = 1 + (int)(support_random(&state) % 4),
                               .capacity = (int)(support_random(&state) % 4) - 1 };
        const int result = run_sim(n, collectives, &count, &sim);
        CHECK(result == 0, "seed %llu: %d ranks, count %zu, capacity %d", (unsigned long long)seed_now, n, count, sim.capacity);
    }
}

/* ---- >>time: equal to the formula ---- */

typedef struct timed { coll_call call; double times[256]; uint64_t messages; } timed;

static int timed_worker(coll_comm *comm, void *arg)
{
    timed *t = arg;
    static double x[1 << 16], y[1 << 16];
    coll_call call = t->call;

    call.send = x;
    call.recv = call.kind == COLL_BROADCAST ? x : y;
    STEP(coll_run(comm, &call));
    t->times[coll_rank(comm)] = coll_sim_time(comm);
    __atomic_add_fetch(&t->messages, ((const coll__sim_rank *)comm->session->context)->messages, __ATOMIC_RELAXED);
    return 0;
}

/* When the last of n ranks has completed a call. */
static double time_of(int n, const coll_call *call, const coll_sim *sim, uint64_t *messages)
{
    timed t = { .call = *call };
    double last = 0;

    CHECK(run_sim(n, timed_worker, &t, sim) == 0, "%s on %d ranks", coll_kind_name(call->kind), n);
    for (int i = 0; i < n; i++) last = t.times[i] > last ? t.times[i] : last;
    if (messages) *messages = t.messages;
    return last;
}

/* What the engine chooses on a wire, computed independently. */
static coll__choice choice_on(const coll__link *link, coll_kind kind, int n, double bytes, const char *algorithm)
{
    const coll__query query = { .kind = kind, .size = n, .bytes = bytes, .sum_bytes = bytes, .is_commutative = true,
                                .algorithm = algorithm, .link = link };
    coll__choice choice = { .radix = 0 };

    CHECK(coll__choose(&choice, &query), "kind %d on %d: nothing to choose", (int)kind, n);
    return choice;
}

/* Messages that a rank sends in the circulant: for each distance one per multiple of the next one that is shorter than it. */
static int circulant_messages(int n, int radix)
{
    int messages = 0;
    for (int far = n, near; far > 1; far = near) {
        near = (far - 1) / radix + 1;
        messages += (far - 1) / near;
    }
    return messages;
}

static void test_barrier_time(void)
{
    const coll_sim sim = { .latency = 10e-6, .overhead = 1e-6 };
    const coll__link link = { 10e-6, 1e-6, 0.5e-9, 0.1e-9, 0 };
    const coll_call call = { .kind = COLL_BARRIER };

    for (int n = 1; n <= 70; n += n < 20 ? 1 : 7) {
        const int radix = choice_on(&link, COLL_BARRIER, n, 0, NULL).radix, rounds = coll__circulant_rounds(n, radix);
        const int sends = circulant_messages(n, radix);
        uint64_t messages = 0;
        const double t = time_of(n, &call, &sim, &messages), want = rounds * 10e-6 + (sends - rounds) * 1e-6;
        CHECK(is_near(t, want), "barrier of %d: %.12g us, not %.12g", n, t * 1e6, want * 1e6);
        CHECK(messages == (uint64_t)n * (uint64_t)sends, "barrier of %d: %llu messages", n, (unsigned long long)messages);
    }
}

static void test_broadcast_time(void)
{
    const coll_sim sim = { .latency = 10e-6, .overhead = 9.5e-6, .seconds_per_byte = 0.8e-9 };
    const coll__link link = { 10e-6, 9.5e-6, 0.8e-9, 0.1e-9, 0 };

    for (int rounds = 1; rounds <= 6; rounds++)
        for (size_t count = 1; count <= 1000; count *= 10) {
            coll_call call = { .kind = COLL_BROADCAST, .count = count, .type = COLL_F64, .algorithm = "tree:2", .root = 1 };
            const double t = time_of(1 << rounds, &call, &sim, NULL), want = rounds * (10e-6 + (double)count * 8 * 0.8e-9);
            CHECK(is_near(t, want), "broadcast on %d: %.12g us, not %.12g", 1 << rounds, t * 1e6, want * 1e6);
            call.algorithm = "tree";              /* the radix is chosen, and so is no worse                  */
            const coll__choice choice = choice_on(&link, COLL_BROADCAST, 1 << rounds, (double)count * 8, "tree");
            const double free_time = time_of(1 << rounds, &call, &sim, NULL);
            CHECK(is_near(free_time, choice.seconds) && free_time <= t * 1.000001,
                  "broadcast on %d, radix %d: %.12g us, not %.12g", 1 << rounds, choice.radix, free_time * 1e6,
                  choice.seconds * 1e6);
        }
}

static void test_exchange_time(void)
{
    const double latency = 10e-6, overhead = 1e-6, wire = 0.8e-9, sum = 0.25e-9;
    const coll_sim sim = { .latency = latency, .overhead = overhead, .seconds_per_byte = wire, .seconds_per_byte_reduced = sum };

    for (int n = 2; n <= 20; n += 3)
        for (size_t count = 1; count <= 2000; count = count * 5 + 3) {
            const coll_call call = { .kind = COLL_REDUCE_SCATTER, .count = count, .type = COLL_F64, .algorithm = "direct" };
            const double bytes = (double)count * 8, each = fmax(overhead, bytes * wire);
            const double want = latency + (n - 2) * each + bytes * wire + (n - 1) * bytes * sum;
            const double t = time_of(n, &call, &sim, NULL);
            CHECK(is_near(t, want), "direct exchange of %zu on %d: %.12g us, not %.12g", count, n, t * 1e6, want * 1e6);
        }
}

static int send_first(coll_comm *comm, void *arg)
{
    timed *t = arg;
    static float x[20000], y[20000];
    const int rank = coll_rank(comm), half = coll_size(comm) / 2;

    if (rank < half) STEP(coll_send(comm, x, t->call.count, COLL_F32, rank + half, 0));
    else STEP(coll_recv(comm, y, t->call.count, COLL_F32, rank - half, 0));
    t->times[rank] = coll_sim_time(comm);
    return 0;
}

/* A note is sent before the body; a long message takes: note, go, note and body. */
static void test_message_time(void)
{
    const coll_sim sim = { .latency = 10e-6, .overhead = 2e-6, .seconds_per_byte = 1e-9, .local_latency = 1e-6,
                           .local_seconds_per_byte = 0.25e-9 };
    coll_sim shared = sim;
    timed t = { .call.count = 100 };

    CHECK(run_sim(2, send_first, &t, &sim) == 0, "short");
    CHECK(is_near(t.times[1], 12e-6 + 400e-9), "short message: %.12g us", t.times[1] * 1e6);
    CHECK(is_near(t.times[0], 2e-6), "a short message is sent after %.12g us", t.times[0] * 1e6);
    t.call.count = 20000;
    CHECK(run_sim(2, send_first, &t, &sim) == 0, "long");
    CHECK(is_near(t.times[1], 32e-6 + 80000e-9), "long message: %.12g us", t.times[1] * 1e6);

    shared.ranks_per_host = 2;                    /* two senders share a NIC, and two receivers               */
    t.call.count = 1000;
    CHECK(run_sim(4, send_first, &t, &shared) == 0, "shared NIC");
    const double first = fmin(t.times[2], t.times[3]), second = fmax(t.times[2], t.times[3]);
    CHECK(is_near(first, 12e-6 + 4e-6) && is_near(second, 12e-6 + 8e-6), "shared NIC: %g and %g us", first * 1e6, second * 1e6);
    CHECK(run_sim(2, send_first, &t, &shared) == 0, "one host");
    CHECK(is_near(t.times[1], 3e-6 + 1e-6), "one host: %.12g us", t.times[1] * 1e6);
}

/* ---- >>transport: capacity, many ranks ---- */

static coll__sim *sim_world;
static int raw_sends;
static coll_status raw_status[4];

static coll_status raw_wait(coll__sim_rank *r, const coll_xfer *x)
{
    while (x->status == COLL_PENDING) {
        const coll_status status = coll__sim_transport.progress(r, INT_MAX);
        if (status < 0) return status;
    }
    return x->status;
}

/* Both ranks send `raw_sends` messages, each when the one before is sent, and only then receive. */
static void raw_send_first(void *arg, coll__sim_rank *r)
{
    const int rank = r->place;
    coll_status status = COLL_OK;
    int sum = 0, in[8] = { 0 };

    for (int i = 0; i < raw_sends && status == COLL_OK; i++) {
        int number = 100 * rank + i;
        coll_xfer x = { .buffer = &number, .length = sizeof number, .peer = 1 - rank, .status = COLL_PENDING };
        coll__sim_transport.send(r, &x);
        status = raw_wait(r, &x);
        number = -1;                              /* it is ours again                                         */
    }
    for (int i = 0; i < raw_sends && status == COLL_OK; i++) {
        coll_xfer x = { .buffer = &in[i], .length = sizeof in[i], .peer = 1 - rank, .status = COLL_PENDING };
        coll__sim_transport.recv(r, &x);
        status = raw_wait(r, &x);
        sum += in[i] == 100 * (1 - rank) + i;
    }
    raw_status[rank] = status == COLL_OK && sum != raw_sends ? COLL_ERR_PROTOCOL : status;
    (void)arg;
    coll__sim_transport.close(r);
}

static void raw_run(int n, const coll_sim *given, void (*body)(void *arg, coll__sim_rank *r), void *arg)
{
    coll__sim_settings s;

    CHECK(coll__sim_settle(&s, given, n) == COLL_OK, "%s", coll__start_error);
    sim_world = support_need(coll__sim_open(NULL, n, 0, &s.config));
    sim_world->holders += n;
    CHECK(coll__sim_run(sim_world, body, arg) == COLL_OK, "no memory for %d fibers", n);
}

static void raw_end(void)
{
    coll__sim_run_end(sim_world);
    coll__sim_release(sim_world);
}

static void test_capacity(void)
{
    for (int capacity = -1; capacity <= 3; capacity++)
        for (raw_sends = 1; raw_sends <= 4; raw_sends++) {
            const coll_sim sim = { .capacity = capacity };
            const bool fits = capacity == 0 || raw_sends <= capacity;
            raw_run(2, &sim, raw_send_first, NULL);
            CHECK(raw_status[0] == (fits ? COLL_OK : COLL_ERR_TIMEOUT) && raw_status[1] == raw_status[0],
                  "capacity %d, %d messages: %d and %d", capacity, raw_sends, raw_status[0], raw_status[1]);
            CHECK(fits || strstr(sim_world->failure.text, "nothing can move any more"), "%s", sim_world->failure.text);
            raw_end();
        }
}

/* Dissemination barrier, then 8 bytes down a tree, by the transport alone. */
static void raw_many(void *arg, coll__sim_rank *r)
{
    const int rank = r->place;
    const int n = sim_world->size;
    int64_t value = rank == 0 ? 77 : 0;
    int low = 1, sends = 0;
    coll_xfer x[20];

    for (int skip = 1; skip < n; skip *= 2) {
        coll_xfer out = { .peer = (rank + skip) % n, .status = COLL_PENDING };
        coll_xfer in = { .peer = (rank - skip + n) % n, .status = COLL_PENDING };
        coll__sim_transport.send(r, &out);
        coll__sim_transport.recv(r, &in);
        if (raw_wait(r, &in) < 0) break;
    }
    while (low < n && !(rank & low)) low <<= 1;
    x[0] = (coll_xfer){ .buffer = &value, .length = 8, .peer = rank - low, .status = COLL_PENDING };
    if (rank > 0) coll__sim_transport.recv(r, x), raw_wait(r, x);
    for (int unit = low >> 1; unit > 0; unit >>= 1) {
        if (rank + unit >= n) continue;
        x[sends] = (coll_xfer){ .buffer = &value, .length = 8, .peer = rank + unit, .status = COLL_PENDING };
        coll__sim_transport.send(r, &x[sends++]);
    }
    if (value != 77) ++*(int *)arg;
    coll__sim_transport.close(r);
}

static void test_many(int n)
{
    const double began = support_seconds();
    int wrong = 0;
    double last = 0;
    size_t left = 0;

    raw_run(n, NULL, raw_many, &wrong);
    for (int i = 0; i < n; i++) last = fmax(last, sim_world->ranks[i].clock);
    CHECK(wrong == 0 && sim_world->failure.status == COLL_OK, "%d ranks: %d wrong; %s", n, wrong, sim_world->failure.text);
    for (size_t i = 0; i < sim_world->table_length; i++) left += sim_world->table[i] != NULL;
    CHECK(last > 12e-6 && left == 0, "%d ranks: %g us, %zu lanes left", n, last * 1e6, left);
    raw_end();
    printf("%d ranks: barrier and broadcast in %.1f us of virtual time, %.2f s of ours\n", n, last * 1e6,
           support_seconds() - began);
}

/* ---- >>standstills and leaving: sentences ---- */

typedef struct outcome { coll_status status[64]; char text[64][520]; double time[64]; } outcome;

static void note(outcome *o, coll_comm *comm, coll_status status)
{
    const unsigned rank = (unsigned)coll_rank(comm) % 64;
    o->status[rank] = status;
    o->time[rank] = coll_sim_time(comm);
    snprintf(o->text[rank], sizeof o->text[rank], "%s", coll_error(comm));
}

static void expect(const outcome *o, int rank, coll_status status, const char *words, const char *what)
{
    CHECK(o->status[rank] == status && strstr(o->text[rank], words), "%s: rank %d: %s: \"%s\"", what, rank,
          coll_status_text(o->status[rank]), o->text[rank]);
}

static int both_send_first(coll_comm *comm, void *arg)
{
    static float x[20000], y[20000];
    const int peer = 1 - coll_rank(comm);
    coll_status status = coll_send(comm, x, 20000, COLL_F32, peer, 0);
    if (status == COLL_OK) status = coll_recv(comm, y, 20000, COLL_F32, peer, 0);
    note(arg, comm, status);
    return 0;
}

static int both_send_few(coll_comm *comm, void *arg)
{
    const int peer = 1 - coll_rank(comm), mine = 5 + peer;
    int other = 0;
    coll_status status = coll_send(comm, &mine, 1, COLL_I32, peer, 0);
    if (status == COLL_OK) status = coll_recv(comm, &other, 1, COLL_I32, peer, 0);
    if (status == COLL_OK && other != 6 - peer) status = COLL_ERR_PROTOCOL;
    note(arg, comm, status);
    return 0;
}

static int barriers(coll_comm *comm, void *arg)
{
    coll_status status = COLL_OK;
    for (int i = 0; i < 50 && status == COLL_OK; i++) status = coll_barrier(comm);
    note(arg, comm, status);
    return 0;
}

static int leaves_early(coll_comm *comm, void *arg)
{
    note(arg, comm, coll_rank(comm) == 2 ? COLL_OK : coll_barrier(comm));
    return 0;
}

static int different_calls(coll_comm *comm, void *arg)
{
    float x = 1, y = 0;
    if (coll_rank(comm) == 0) note(arg, comm, coll_recv(comm, &y, 1, COLL_F32, 1, 3));
    else note(arg, comm, coll_allreduce(comm, &x, &y, 1, COLL_F32, COLL_SUM));
    return 0;
}

static int waits_in_circles(coll_comm *comm, void *arg)
{
    float x[4] = { 0 };
    if (coll_rank(comm) == 0) note(arg, comm, coll_reduce(comm, x, x, 4, COLL_F32, COLL_SUM, 0));
    else note(arg, comm, coll_broadcast(comm, x, 2, COLL_F32, 0));
    return 0;
}

static int two_limits(coll_comm *comm, void *arg)
{
    float x;
    coll_call call = { .kind = COLL_RECV, .recv = &x, .count = 1, .type = COLL_F32, .peer = 1 - coll_rank(comm) };
    call.timeout_ms = coll_rank(comm) == 0 ? 2500 : 0;
    note(arg, comm, coll_run(comm, &call));
    return 0;
}

static int polls_for_ever(coll_comm *comm, void *arg)
{
    coll_request *request = NULL;
    float x = 0;
    coll_status status = coll_irecv(comm, &x, 1, COLL_F32, 1 - coll_rank(comm), 0, &request);
    while (status >= 0 && (status = coll_test(request)) == COLL_PENDING) continue;
    note(arg, comm, status);
    coll_request_free(request);
    return 0;
}

static void test_sentences(void)
{
    static outcome o;
    struct rusage before, after;

    getrusage(RUSAGE_SELF, &before);
    CHECK(run_sim(2, both_send_first, &o, NULL) == 0, "both send first");
    for (int i = 0; i < 2; i++)
        expect(&o, i, COLL_ERR_TIMEOUT, "ranks 0, 1 wait (rank 0 in send of 20000 x f32", "both send first");
    CHECK(run_sim(2, both_send_few, &o, NULL) == 0, "both send few");
    for (int i = 0; i < 2; i++) expect(&o, i, COLL_OK, "", "both send few");
    CHECK(run_sim(2, both_send_few, &o, &(coll_sim){ .capacity = -1 }) == 0, "both send few, no buffers");
    for (int i = 0; i < 2; i++) expect(&o, i, COLL_ERR_TIMEOUT, "ranks 0, 1 wait (rank 0 in send of 1 x i32", "no buffers");
    CHECK(run_sim(4, leaves_early, &o, NULL) == 0, "a rank leaves early");
    for (int i = 0; i < 4; i++) if (i != 2) expect(&o, i, COLL_ERR_PEER, "rank 2 has left", "a rank leaves early");
    CHECK(run_sim(2, different_calls, &o, NULL) == 0, "different calls");
    for (int i = 0; i < 2; i++) expect(&o, i, COLL_ERR_TIMEOUT, "nothing can move any more at 12", "different calls");
    CHECK(run_sim(2, waits_in_circles, &o, NULL) == 0, "mismatch");
    for (int i = 0; i < 2; i++) expect(&o, i, COLL_ERR_MISMATCH, "rank 0 called reduce #1", "mismatch");
    CHECK(run_sim(2, two_limits, &o, NULL) == 0, "a limit");
    for (int i = 0; i < 2; i++) expect(&o, i, COLL_ERR_TIMEOUT, "no word from rank 1 in 2.5 s", "a limit");
    CHECK(o.time[0] >= 2.5 && o.time[0] < 2.51, "the limit came after %g s", o.time[0]);
    CHECK(run_sim(2, polls_for_ever, &o, NULL) == 0, "polls for ever");
    for (int i = 0; i < 2; i++) expect(&o, i, COLL_ERR_TIMEOUT, "nothing can move any more", "polls for ever");
    getrusage(RUSAGE_SELF, &after);               /* nothing sleeps, however long the limits are              */
    CHECK(after.ru_nvcsw - before.ru_nvcsw < 20, "%ld sleeps in real time", after.ru_nvcsw - before.ru_nvcsw);
}

/* ---- >>faults ---- */

static void run_faulty(const char *what, int n, coll_sim_fault fault, outcome *o)
{
    const coll_sim sim = { .faults = &fault, .fault_count = 1 };
    memset(o, 0, sizeof *o);
    for (int i = 0; i < n; i++) o->status[i] = COLL_PENDING;
    CHECK(run_sim(n, barriers, o, &sim) == 0, "%s", what);
}

static void test_faults(void)
{
    static outcome o, plain;

    run_faulty("none", 5, (coll_sim_fault){ .kind = COLL_SIM_KILL, .rank = 4, .time = 1e9 }, &plain);
    for (int i = 0; i < 5; i++) expect(&plain, i, COLL_OK, "", "none");
    for (uint64_t number = 1; number < 40; number += 3) {
        run_faulty("kill at a call", 5, (coll_sim_fault){ .kind = COLL_SIM_KILL, .rank = 3, .number = number }, &o);
        for (int i = 0; i < 5; i++) if (i != 3) expect(&o, i, COLL_ERR_PEER, "rank 3 was killed at", "kill at a call");
        CHECK(o.status[3] == COLL_PENDING, "a killed rank went on");
    }
    run_faulty("kill at a time", 5, (coll_sim_fault){ .kind = COLL_SIM_KILL, .rank = 0, .time = 30e-6 }, &o);
    for (int i = 1; i < 5; i++) expect(&o, i, COLL_ERR_PEER, "rank 0 was killed at 30 us", "kill at a time");
    CHECK(is_near(o.time[1], 30e-6 + 1e-3), "noticed at %g s", o.time[1]);
    run_faulty("stop", 5, (coll_sim_fault){ .kind = COLL_SIM_STOP, .rank = 2, .number = 9 }, &o);
    for (int i = 0; i < 5; i++) if (i != 2) expect(&o, i, COLL_ERR_TIMEOUT, "rank 2 was stopped", "stop");
    run_faulty("cut", 6, (coll_sim_fault){ .kind = COLL_SIM_CUT, .rank = 1, .peer = 2, .time = 40e-6 }, &o);
    for (int i = 0; i < 6; i++) expect(&o, i, COLL_ERR_TIMEOUT, "ranks 1 to 2 were cut off", "cut");
    for (int i = 0; i < 6; i++) CHECK(!strcmp(strstr(o.text[i], "nothing"), strstr(o.text[0], "nothing")), "%s", o.text[i]);
    run_faulty("lose", 5, (coll_sim_fault){ .kind = COLL_SIM_LOSE, .rank = 2, .peer = -1, .number = 7 }, &o);
    for (int i = 0; i < 5; i++) expect(&o, i, COLL_ERR_TIMEOUT, "a message from rank 2 to rank", "lose");
    if (getenv("COLL_TEST_TALK")) printf("%s\n", o.text[4]);
    run_faulty("late", 5, (coll_sim_fault){ .kind = COLL_SIM_LATE, .rank = 2, .peer = -1, .number = 7, .amount = 1 }, &o);
    for (int i = 0; i < 5; i++) expect(&o, i, COLL_OK, "", "late");
    CHECK(o.time[0] > 1 && o.time[0] < 1 + plain.time[0], "late by a second: %g s", o.time[0]);
}

/* Limits hold under the virtual clock while other ranks still make progress. */
static void test_stall_limit(void)
{
    static outcome o;
    const coll_sim_fault fault = { .kind = COLL_SIM_STOP, .rank = 1, .number = 5 };
    const coll_sim sim = { .faults = &fault, .fault_count = 1 };
    const coll_config config = { .transport = "sim", .sim = &sim, .stall_timeout_ms = 500 };

    CHECK(coll_spawn(3, barriers, &o, &config) == 0, "stall limit");
    for (int i = 0; i < 3; i += 2) expect(&o, i, COLL_ERR_TIMEOUT, "in 0.5 s", "stall limit");
}

/* -1 in a call is no limit, whatever the communicator has. */
static int limited(coll_comm *comm, void *arg)
{
    const coll_status expected = *(const int *)arg < 0 ? COLL_OK : COLL_ERR_TIMEOUT;
    float x = 1;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &x, .recv = &x, .count = 1, .type = COLL_F32,
                             .timeout_ms = *(const int *)arg };
    const coll_status status = coll_run(comm, &call);
    return coll_rank(comm) == 0 && status != expected;            /* rank 1 gets what it needs in time            */
}

static void test_no_limit(void)
{
    const coll_sim_fault fault = { .kind = COLL_SIM_LATE, .rank = 1, .peer = -1, .amount = 1 };
    const coll_sim sim = { .faults = &fault, .fault_count = 1 };
    const coll_config short_limit = { .transport = "sim", .sim = &sim, .stall_timeout_ms = 500 };
    const coll_config no_limit = { .transport = "sim", .sim = &sim, .stall_timeout_ms = -1 };

    CHECK(coll_spawn(2, limited, &(int){ 0 }, &short_limit) == 0, "the limit of the communicator");
    CHECK(coll_spawn(2, limited, &(int){ 500 }, &no_limit) == 0, "the limit of the call");
    CHECK(coll_spawn(2, limited, &(int){ -1 }, &short_limit) == 0, "no limit of the call");
    CHECK(coll_spawn(2, limited, &(int){ -1 }, &no_limit) == 0, "no limit at all");
}

/* The results of the survivors of a drawn fault. */
typedef struct survivors {
    char text[64][220];
    coll_status   status[64];
    coll_request *requests[64][2];                /* here, so that those of a killed rank can be freed        */
} survivors;

static int mixed(coll_comm *comm, void *arg)
{
    survivors *all = arg;
    const unsigned rank = (unsigned)coll_rank(comm) % 64;
    const int size = coll_size(comm), next = ((int)rank + 1) % size, last = ((int)rank + size - 1) % size;
    int32_t x[3000], y[3000];
    coll_status status = COLL_OK;

    memset(x, 1, sizeof x);
    for (int i = 0; i < 6 && status == COLL_OK; i++) {
        coll_request **requests = all->requests[rank];
        const size_t count = i % 2 ? 20 : 2500;
        status = coll_allreduce(comm, x, y, count, COLL_I32, COLL_MAX);
        if (status == COLL_OK) status = coll_isend(comm, x, count, COLL_I32, next, i, &requests[0]);
        if (status == COLL_OK) status = coll_irecv(comm, y, count, COLL_I32, last, i, &requests[1]);
        if (status == COLL_OK && i > 3) while (coll_test(requests[1]) == COLL_PENDING) continue;
        if (status == COLL_OK) status = coll_wait_all(2, requests);
        for (int k = 0; k < 2; k++) coll_request_free(requests[k]), requests[k] = NULL;
        if (status == COLL_OK) status = coll_broadcast(comm, x, count, COLL_I32, i % size);
    }
    all->status[rank] = status;
    if (status) snprintf(all->text[rank], sizeof all->text[rank], "%s", comm->session->failure.text);
    return 0;
}

/* No fault, drawn from the seed, hangs or crashes a world, and all ranks that fail report the same cause. */
static void test_drawn_faults(uint64_t seed)
{
    static survivors all;

    for (int i = 0; i < (int)(100 * support_scale()) + 20; i++) {
        uint64_t state = seed_now = seed + (uint64_t)i;
        const int n = 2 + (int)(support_random(&state) % 12);
        coll_sim_fault faults[3] = { { .rank = 0 } };
        const char *first = NULL;
        for (int k = 0; k < 3; k++) {
            coll_sim_fault *f = &faults[k];
            f->kind = (coll_sim_fault_kind)(1 + support_random(&state) % 6);
            f->rank = (int)(support_random(&state) % (uint64_t)n);
            f->peer = f->kind == COLL_SIM_CUT ? n - 1 : (int)(support_random(&state) % (uint64_t)n) - 1;
            f->number = f->kind == COLL_SIM_CUT || support_random(&state) % 3 == 0 ? 0 : 1 + support_random(&state) % 90;
            f->time = (double)(support_random(&state) % 1000) * 1e-6;
            f->amount = (double)(support_random(&state) % 1000) * 1e-6;
        }
        const coll_sim sim = { .seed = seed_now, .faults = faults, .fault_count = 1 + (int)(support_random(&state) % 3),
                               .ranks_per_host = 1 + i % 3, .capacity = (int)(support_random(&state) % 4) - 1, .jitter = 1e-6 };
        memset(&all, 0, sizeof all);
        CHECK(run_sim(n, mixed, &all, &sim) == 0, "seed %llu", (unsigned long long)seed_now);
        for (int r = 0; r < n; r++) {
            for (int k = 0; k < 2; k++) {         /* pending: killed before the library knew of it            */
                coll_request *request = all.requests[r][k];
                if (request && request->status == COLL_PENDING) coll__request_give(request);
                else coll_request_free(request);
            }
            if (all.status[r] == COLL_OK) continue;
            if (!first) first = all.text[r];
            CHECK(!strcmp(first, all.text[r]), "seed %llu: \"%s\" and \"%s\"", (unsigned long long)seed_now, first, all.text[r]);
        }
    }
}

/* ---- >>seeds ---- */

typedef struct run_of_seed { double time[64]; uint64_t order; } run_of_seed;

static int seeded(coll_comm *comm, void *arg)
{
    run_of_seed *run = arg;
    const int result = collectives(comm, &(size_t){ 100 });

    run->time[coll_rank(comm)] = coll_sim_time(comm);
    run->order = ((const coll__sim_rank *)comm->session->context)->world->order;
    return result;
}

static void test_seeds(uint64_t seed)
{
    uint64_t orders = 0;

    for (int i = 0; i < 6; i++) {
        run_of_seed one = { .order = 0 }, other = { .order = 0 };
        const coll_sim sim = { .seed = seed_now = seed + (uint64_t)i, .jitter = 5e-6, .ranks_per_host = 2 };
        CHECK(run_sim(13, seeded, &one, &sim) == 0 && run_sim(13, seeded, &other, &sim) == 0, "seed %llu",
              (unsigned long long)seed_now);
        CHECK(!memcmp(&one, &other, sizeof one), "seed %llu: two runs differ", (unsigned long long)seed_now);
        CHECK(one.order != orders, "two seeds, one order");
        orders = one.order;
    }
}

/* ---- >>programs: of blocking calls on many ranks, of polls, from the environment ---- */

static int deep(int n)
{
    volatile char room[200];
    room[0] = (char)n;
    return n == 0 ? room[0] : deep(n - 1) + room[0] - (char)n;
}

static int dives(coll_comm *comm, void *arg)
{
    (void)arg;
    return deep(10000) || coll_barrier(comm);     /* 2 MB and more of frames                                  */
}

static int ring(coll_comm *comm, void *arg)
{
    const int rank = coll_rank(comm), size = coll_size(comm);
    int token = 0, rounds = 0;
    int64_t sum = rank;

    if (rank == 0) {
        STEP(coll_send(comm, &token, 1, COLL_I32, 1, 0));
        STEP(coll_recv(comm, &token, 1, COLL_I32, size - 1, 0));
        CHECK(token == size - 1, "the token returns as %d", token);
    } else {
        STEP(coll_recv(comm, &token, 1, COLL_I32, rank - 1, 0));
        token++;
        STEP(coll_send(comm, &token, 1, COLL_I32, (rank + 1) % size, 0));
    }
    coll_request *request = NULL;
    STEP(coll_iallreduce(comm, &sum, &sum, 1, COLL_I64, COLL_SUM, &request));
    while (coll_test(request) == COLL_PENDING) rounds++;
    coll_request_free(request);
    if (sum != (int64_t)size * (size - 1) / 2 || deep(100)) ++*(int *)arg;
    return coll_barrier(comm);
}

static void test_programs(void)
{
    int wrong = 0;

    CHECK(run_sim(5, dives, NULL, &(coll_sim){ .stack = 8 << 20 }) == 0, "deep stacks");
    setenv("COLL_TRANSPORT", "sim", 1);
    setenv("COLL_SIM", "latency=12us overhead=1.2us gbit=10 reduce=4GB/s hosts=8 capacity=any seed=7 kill=3@1e+9s", 1);
    CHECK(coll_spawn(16, ring, &wrong, NULL) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "capacity=any"), "%s",
          coll_error(NULL));
    setenv("COLL_SIM", "latency=12us overhead=1.2us gbit=10 reduce=4GB/s hosts=8 seed=7 kill=3@900000s", 1);
    CHECK(coll_spawn(16, ring, &wrong, NULL) == 0 && wrong == 0, "%d wrong; %s", wrong, coll_error(NULL));
    setenv("COLL_SIM", "latency=12us,kill=3@5", 1);
    CHECK(coll_spawn(3, ring, &wrong, NULL) == COLL_ERR_ARGUMENT, "a rank that does not exist is killed");
    unsetenv("COLL_SIM");
    const int many = support_scale() < 1 ? 200 : 1000;
    CHECK(coll_spawn(many, ring, &wrong, NULL) == 0 && wrong == 0, "%d ranks: %d wrong; %s", many, wrong, coll_error(NULL));
    coll_comm *comm = NULL;
    CHECK(coll_init(&comm, &(coll_config){ .size = 2, .rank = 0, .address = "127.0.0.1:1" }) == COLL_ERR_ARGUMENT, "two of sim");
    CHECK(coll_init(&comm, NULL) == COLL_OK && coll_barrier(comm) == COLL_OK, "one of sim");
    coll_free(comm);
    unsetenv("COLL_TRANSPORT");
}

static void test_text(void)
{
    static const char *const wrong[] = { "latency", "latency=", "latency=x", "latency=1kg", "speed=3", "kill=4", "kill=1@",
                                         "cut=1-9", "late=1>2", "lose=1>", "=3", "gbit=-1", "seed=1seed=2", "slow=1",
                                         "slow=9:0.5", "slow=1:", "slow=1:0.5@" };
    static const struct { const char *text, *sentence; } says[] = {
        { "hosts=2 speed=3", "COLL_SIM for 4 ranks, and 32 faults at most: \"speed=3\" begins with an unknown name; there is: "
          "latency, overhead, local_latency, far_latency, jitter, detection, wire, reduce, local, far, gbit, hosts, per_host, "
          "sites, capacity, seed, stack, kill, stop, cut, lose, late, slow" },
        { "kill=4@1", "COLL_SIM for 4 ranks, and 32 faults at most: \"kill=4@1\" makes no sense: kill is a rank and its call or "
          "a time, like 3@120 or 3@1.5ms" },
        { "gbit=fast", "COLL_SIM for 4 ranks, and 32 faults at most: \"gbit=fast\" makes no sense: gbit is a number of Gbit/s, "
          "like 10" },
    };
    coll__sim_settings s;

    unsetenv("COLL_SIM");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("COLL_SIM", wrong[i], 1);
        CHECK(coll__sim_settle(&s, NULL, 4) == COLL_ERR_ARGUMENT && strstr(coll__start_error, wrong[i]), "\"%s\"", wrong[i]);
    }
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        setenv("COLL_SIM", says[i].text, 1);
        CHECK(coll__sim_settle(&s, NULL, 4) == COLL_ERR_ARGUMENT && !strcmp(coll__start_error, says[i].sentence), "\"%s\": %s",
              says[i].text, coll__start_error);
    }
    setenv("COLL_SIM", "latency=0 overhead=3ns,wire=2GB/s local=8Gbit/s per_host=3 stack=128KiB late=2>1@5+3ms "
           " cut=1-2@1.5ms", 1);
    CHECK(coll__sim_settle(&s, NULL, 4) == COLL_OK, "%s", coll__start_error);
    const coll_sim *c = &s.config;
    CHECK(c->latency <= 0 && is_near(c->overhead, 3e-9) && is_near(c->seconds_per_byte, 0.5e-9)
          && is_near(c->local_seconds_per_byte, 1e-9) && c->ranks_per_host == 3 && c->stack == 128 << 10, "numbers of a text");
    CHECK(c->fault_count == 2 && c->faults[0].kind == COLL_SIM_LATE && c->faults[0].rank == 2 && c->faults[0].peer == 1
          && c->faults[0].number == 5 && is_near(c->faults[0].amount, 3e-3), "a late message of a text");
    CHECK(c->faults[1].kind == COLL_SIM_CUT && c->faults[1].peer == 2 && is_near(c->faults[1].time, 1.5e-3), "a cut of a text");
    unsetenv("COLL_SIM");
}

/* One thread starts the same on all ranks and polls them until all are done. */
static void poll_all(int n, coll_request **requests)
{
    for (int pending = 1; pending;) {
        pending = 0;
        for (int i = 0; i < n; i++) pending |= coll_test(requests[i]) == COLL_PENDING;
    }
}

static void test_polling(int n)
{
    coll_comm *comms[64];
    coll_request *requests[64];
    int64_t x[64];
    const coll_sim sim = { .latency = 10e-6, .overhead = 1e-6 };
    const coll__link link = { 10e-6, 1e-6, 0.5e-9, 0.1e-9, 0 };
    const int radix = choice_on(&link, COLL_BARRIER, n, 0, NULL).radix, rounds = coll__circulant_rounds(n, radix);

    CHECK(coll_init_threads(n, comms, &(coll_config){ .transport = "sim", .sim = &sim }) == COLL_OK, "%s", coll_error(NULL));
    for (int i = 0; i < n; i++) CHECK(coll_ibarrier(comms[i], &requests[i]) == COLL_OK, "%s", coll_error(comms[i]));
    poll_all(n, requests);
    double last = 0;
    for (int i = 0; i < n; i++) last = fmax(last, coll_sim_time(comms[i]));
    const double want = rounds * 10e-6 + (circulant_messages(n, radix) - rounds) * 1e-6;
    CHECK(is_near(last, want), "polled barrier of %d: %.12g us, not %.12g", n, last * 1e6, want * 1e6);
    for (int i = 0; i < n; i++) {
        coll_request_free(requests[i]);
        x[i] = i;
        CHECK(coll_iallreduce(comms[i], &x[i], &x[i], 1, COLL_I64, COLL_SUM, &requests[i]) == COLL_OK, "%s",
              coll_error(comms[i]));
    }
    poll_all(n, requests);
    for (int i = 0; i < n; i++) {
        CHECK(x[i] == n * (n - 1) / 2, "polled sum of %d: %lld", n, (long long)x[i]);
        coll_request_free(requests[i]);
    }
    if (n > 1) {                                  /* blocking here is a standstill: no other thread moves the other ranks */
        CHECK(coll_barrier(comms[0]) == COLL_ERR_TIMEOUT, "a blocking call among polls");
        CHECK(strstr(coll_error(comms[0]), "nothing can move any more"), "%s", coll_error(comms[0]));
    }
    for (int i = 0; i < n; i++) coll_free(comms[i]);
}

/* A rank is killed between polls: it gets the error, and the others get theirs as ever. */
static void test_polling_fault(void)
{
    coll_comm *comms[4];
    coll_request *requests[4];
    const coll_sim_fault fault = { .kind = COLL_SIM_KILL, .rank = 1, .number = 6 };
    const coll_sim sim = { .faults = &fault, .fault_count = 1 };
    coll_status status[4] = { COLL_OK };

    CHECK(coll_init_threads(4, comms, &(coll_config){ .transport = "sim", .sim = &sim }) == COLL_OK, "%s", coll_error(NULL));
    for (int round = 0; round < 20 && status[0] == COLL_OK; round++) {
        for (int i = 0; i < 4; i++) {
            requests[i] = NULL;
            (void)coll_ibarrier(comms[i], &requests[i]);
        }
        poll_all(4, requests);
        for (int i = 0; i < 4; i++) {
            if (requests[i]) status[i] = coll_test(requests[i]);
            coll_request_free(requests[i]);
        }
    }
    for (int i = 0; i < 4; i++)
        CHECK(status[i] == (i == 1 ? COLL_ERR_ABORTED : COLL_ERR_PEER), "rank %d: %s", i, coll_error(comms[i]));
    CHECK(strstr(coll_error(comms[1]), "rank 1 was killed, as"), "%s", coll_error(comms[1]));
    CHECK(strstr(coll_error(comms[0]), "rank 1 was killed at"), "%s", coll_error(comms[0]));
    for (int i = 0; i < 4; i++) coll_free(comms[i]);
}

static void report(void) { fprintf(stderr, "at seed %llu\n", (unsigned long long)seed_now); }

int main(int argc, char **argv)
{
    const uint64_t seed = support_seed();

    support_limit(200, report);
    printf("seed %llu\n", (unsigned long long)seed);
    test_text();
    test_barrier_time();
    test_broadcast_time();
    test_exchange_time();
    test_message_time();
    test_capacity();
    test_sentences();
    test_faults();
    test_stall_limit();
    test_no_limit();
    test_drawn_faults(seed);
    test_seeds(seed);
    test_data(seed);
    for (int n = 1; n <= 33; n = n * 2 + 1) test_polling(n);
    test_polling_fault();
    test_programs();
    test_many(argc > 1 ? atoi(argv[1]) : 5000);
    return CHECK_DONE();
}
