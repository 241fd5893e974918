/* test_bykey - messages by key: what a derived communicator or a prepared call costs, beside the communicator of coll_init; many
 * messages at a time; matching against a model that looks at every message; storms beyond the credit.
 *     test_bykey [PART,...]          PART: match, forms, many, storm; large: forms of 256 ranks, for minutes
 *     COLL_TEST_SEED=... replays a seed */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "steps.h"

static int run_sim(int count, int (*fn)(coll_comm *comm, void *arg), void *arg)
{
    const coll_sim machine = { .seed = 1 };
    const coll_config config = { .transport = "sim", .sim = &machine };
    return coll__spawn(&coll__this_program, count, fn, arg, &config);
}


#define STEP(call)                                                                                          \
    do {                                                                                                    \
        if ((call) != COLL_OK) {                                                                            \
            CHECK(false, "%s: %s", #call, coll_error(comm));                                                \
            return 1;                                                                                       \
        }                                                                                                   \
    } while (0)

/* ---- >>match: the first that fits, found by looking at all ---- */

enum { MATCH_STEPS = 20000, MATCH_MANY = 5, MATCH_PEERS = 2 * MATCH_MANY };

static coll__message *of_list(const coll__message_list *list, const coll__message *m, bool is_want)
{
    for (coll__message *other = list->first; other; other = other->next) {
        const coll__message *want = is_want ? m : other, *sent = is_want ? other : m;
        if (want->space == sent->space && want->comm == sent->comm && (want->peer == COLL__ANY || want->peer == sent->peer)
            && (want->tag == sent->tag || (want->space == COLL__SPACE_USER && want->tag == COLL_ANY_TAG))) return other;
    }
    return NULL;
}

static bool match_step(coll__messages *all, uint64_t *state, uint64_t order)
{
    coll__message *m = support_need(calloc(1, sizeof *m));
    const bool is_want = support_random(state) % 2;
    const unsigned few = 1 + (unsigned)(order / 1000 % MATCH_MANY);

    m->space = (coll__space)(support_random(state) % 4 ? COLL__SPACE_USER : COLL__SPACE_CALLS);
    m->comm = (uint32_t)(support_random(state) % few);
    m->tag = (int)(support_random(state) % (3 * few));
    m->peer = (int)(support_random(state) % (2 * few));
    m->order = order;
    if (is_want && m->space == COLL__SPACE_USER && support_random(state) % 3 == 0) m->peer = COLL__ANY;
    if (is_want && m->space == COLL__SPACE_USER && support_random(state) % 3 == 0) m->tag = COLL_ANY_TAG;
    coll__message *found = is_want ? coll__find_message(all, m) : coll__find_want(all, m);
    const bool is_right = found == of_list(is_want ? &all->arrived : &all->wanted, m, is_want);
    if (found) {
        coll__bin_leave(found);
        coll__message_unlink(found);
        free(found);
        free(m);
        return is_right;
    }
    coll__message_append(is_want ? &all->wanted : &all->arrived, m);
    coll__bin_put(coll__bin_of(all, m, is_want), m);
    return is_right;
}

static void test_match(uint64_t seed)
{
    coll__peer peers[MATCH_PEERS] = { { .is_open = false } };
    coll__messages all = { .peers = peers };
    coll__message_list *const both[] = { &all.wanted, &all.arrived };
    uint64_t state = seed;
    int wrong = 0;

    for (uint64_t i = 1; i <= MATCH_STEPS; i++) wrong += !match_step(&all, &state, i);
    CHECK(wrong == 0, "seed %llu: %d of %d messages and receives met another", (unsigned long long)seed, wrong, MATCH_STEPS);
    for (int i = 0; i < 2; i++)
        while (both[i]->first) {
            coll__message *m = both[i]->first;
            coll__bin_leave(m);
            coll__message_unlink(m);
            free(m);
        }
    for (int i = 0; i < COLL_BINS; i++) CHECK(!all.bins[0][i].first && !all.bins[1][i].first, "bin %d is not empty", i);
    CHECK(!all.open_bin.first, "the bin of open receives is not empty");
    for (int i = 0; i < MATCH_PEERS; i++)
        CHECK(!peers[i].bins[0].first && !peers[i].bins[1].first, "the bins of peer %d are not empty", i);
}

/* ---- >>forms: world, derived, prepared ---- */

enum { FORMS = 3, SIZE_MOST = 256, SHORT_WORK = 3, LONG_WORK = 4 };

static const char *const form_names[FORMS] = { "world", "derived", "prepared" };

typedef struct measure { uint64_t messages, steps; double begin, end; } measure;

typedef struct trial {
    coll_call call;
    size_t    counts[SIZE_MOST], offsets[SIZE_MOST], elements;
    measure   of[FORMS];
} trial;

/* Messages that this rank of a simulated world has sent. */
static uint64_t messages_of(const coll_comm *comm) { return ((const coll__sim_rank *)comm->session->context)->messages; }

static int measure_form(coll_comm *world, coll_comm *comm, coll_request *prepared, const coll_call *call, measure *m)
{
    STEP(coll_barrier(world));
    const uint64_t before = messages_of(world);
    const double began = coll_sim_time(world);
    const uint64_t steps = steps_taken();
    if (began > m->begin) m->begin = began;
    for (int i = 0; i < (coll_size(world) > 100 ? 1 : 2); i++) {
        if (!prepared) STEP(coll_run(comm, call));
        if (prepared) STEP(coll_restart(prepared));
        if (prepared) STEP(coll_wait(prepared));
    }
    m->messages += messages_of(world) - before;
    if (coll_sim_time(world) > m->end) m->end = coll_sim_time(world);
    STEP(coll_barrier(world));
    if (coll_rank(world) == 0) m->steps = steps_taken() - steps;
    return 0;
}

static int forms_worker(coll_comm *comm, void *arg)
{
    trial *t = arg;
    coll_comm *derived = NULL;
    coll_request *prepared = NULL;
    coll_call call = t->call;
    int32_t *x = support_need(calloc(2 * t->elements + 2, sizeof *x)), *y = x + t->elements + 1;

    call.send = x;
    call.recv = call.kind == COLL_BROADCAST ? x : y;
    STEP(coll_dup(comm, &derived));
    STEP(coll_prepare(comm, &call, &prepared));
    int failed = measure_form(comm, comm, NULL, &call, &t->of[0]);
    if (!failed) failed = measure_form(comm, derived, NULL, &call, &t->of[1]);
    if (!failed) failed = measure_form(comm, comm, prepared, &call, &t->of[2]);
    coll_request_free(prepared);
    coll_free(derived);
    free(x);
    return failed;
}

static double most_time, most_work[2];            /* ratios, for the eye; of messages sent unasked, and of others */

/* Every message is a note and a body, and there is a little credit; no more, in messages nor in time.  A message beyond what is
 * sent unasked is five, of which its bytes show most. */
static void check_forms(const coll__algorithm *a, const char *name, int size, size_t count)
{
    trial *t = support_need(calloc(1, sizeof *t));

    t->elements = count * (size_t)size;
    for (int i = 0; i < size; i++) t->counts[i] = count, t->offsets[i] = count * (size_t)i;
    t->call = (coll_call){ .kind = a->kind, .count = count, .recv_count = count, .type = COLL_I32, .op = COLL_SUM,
                           .algorithm = name };
    const bool has_lists = coll__kind_is(a->kind, COLL__SUMMED | COLL__PAIRWISE);
    if (has_lists) t->call.send_counts = t->call.recv_counts = t->counts;
    if (has_lists) t->call.send_offsets = t->call.recv_offsets = t->offsets;
    if (a->kind == COLL_REDUCE_SCATTERV) t->call.send_offsets = t->call.recv_offsets = NULL;
    CHECK(run_sim(size, forms_worker, t) == 0, "%s %s on %d", coll_kind_name(a->kind), name, size);
    const measure *w = &t->of[0];
    const double world_s = w->end - w->begin;
    for (int i = 1; i < FORMS; i++) {
        const measure *m = &t->of[i];
        const double s = m->end - m->begin;
        const double credit = (double)(4 * count + COLL__COST) / (COLL__CREDIT / 4);
        const bool is_short = 4 * count <= COLL__SHORT_MOST;
        const double most = is_short ? 2.02 + credit : 5.05;
        CHECK((double)m->messages <= most * (double)w->messages + size, "%s %s of %zu on %d: %llu messages %s, %llu world",
              coll_kind_name(a->kind), name, count, size, (unsigned long long)m->messages, form_names[i],
              (unsigned long long)w->messages);
        /* a long block may have to follow another one, depending on the order of simultaneous events: the seed draws it */
        CHECK(s <= (is_short ? 2.02 : 2.25) * world_s, "%s %s of %zu on %d: %.4g ms %s, %.4g ms world", coll_kind_name(a->kind),
              name, count, size, s * 1e3, form_names[i], world_s * 1e3);
        const double work = (double)m->steps / (double)w->steps;
        CHECK(work <= (is_short ? SHORT_WORK : LONG_WORK), "%s %s of %zu on %d: %llu steps %s, %llu world",
              coll_kind_name(a->kind), name, count, size, (unsigned long long)m->steps, form_names[i],
              (unsigned long long)w->steps);
        if (work > most_work[!is_short]) most_work[!is_short] = work;
        if (s / world_s > most_time) most_time = s / world_s;
    }
    free(t);
}

static bool is_tried(coll_kind kind) { return !coll__kind_is(kind, COLL__NEIGHBORS) && kind != COLL_ALLTOALLW; }

/* 17 elements a block, of which a step of few rounds makes a message each; one element on more ranks; longer ones, beyond what is
 * copied, and beyond what is sent unasked. */
static void test_forms(int first, int last)
{
    static const struct { int size; size_t count; } shapes[] = { { 64, 17 }, { 12, 5000 }, { 5, 40000 }, { 256, 1 } };
    char name[32];

    for (size_t i = 0; i < sizeof coll__algorithms / sizeof *coll__algorithms; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        for (int k = first; k <= last && is_tried(a->kind); k++) {
            check_forms(a, a->name, shapes[k].size, shapes[k].count);
            snprintf(name, sizeof name, "%s:4", a->name);
            if (a->has_radix && k == 0) check_forms(a, name, shapes[k].size, shapes[k].count);
        }
    }
    printf("most, beside the world: %.3g of the time, %.3g of the work, %.3g of messages that are received\n", most_time,
           most_work[0], most_work[1]);
}

/* ---- >>many: the work for a message hardly depends on how many there are ----
 *
 * Unless a receive leaves something open, and is for none of the first messages that arrived. */

typedef enum many_order { REVERSED, POSTED_FIRST, FROM_ANY, ANYTHING, MANY_ORDERS } many_order;

static const char *const many_names[MANY_ORDERS] = { "received in reverse order", "awaited in reverse order",
                                                     "from any rank, in reverse order", "whatever comes" };

typedef struct many { many_order order; int count; uint64_t steps; size_t kept_most; } many;

static int many_send(coll_comm *comm, const many *m, coll_request **requests, int *values)
{
    for (int i = 0; i < m->count; i++) {
        values[i] = coll_rank(comm) * 1000000 + i;
        STEP(coll_isend(comm, &values[i], 1, COLL_I32, 0, i, &requests[i]));
    }
    if (m->order == POSTED_FIRST) STEP(coll_barrier(comm));
    STEP(coll_wait_all(m->count, requests));
    return 0;
}

/* What is kept without a receive is within its credit, whatever the senders send. */
static void see_what_is_kept(coll_comm *comm, many *m)
{
    for (int i = 1; i < coll_size(comm); i++) {
        const coll__peer *p = &comm->session->messages->peers[i];
        if (p->kept > m->kept_most) m->kept_most = p->kept;
        CHECK(p->taken <= COLL__CREDIT && p->kept + p->owed <= p->taken, "%zu kept, %zu owed, %zu taken", p->kept, p->owed,
              p->taken);
    }
}

/* Rank 0 receives all messages of the others. */
static int many_receive(coll_comm *comm, many *m, coll_request **requests, int *values)
{
    const int senders = coll_size(comm) - 1, count = m->count * senders;
    bool is_right = true;

    for (int i = 0; i < count; i++) {
        const int tag = m->count - 1 - i / senders, source = 1 + i % senders;
        const bool is_open = m->order == FROM_ANY || m->order == ANYTHING;
        STEP(coll_irecv(comm, &values[i], 1, COLL_I32, is_open ? COLL_ANY_SOURCE : source,
                        m->order == ANYTHING ? COLL_ANY_TAG : tag, &requests[i]));
        if (i % 1000 == 0) see_what_is_kept(comm, m);
    }
    if (m->order == POSTED_FIRST) STEP(coll_barrier(comm));
    STEP(coll_wait_all(count, requests));
    see_what_is_kept(comm, m);
    for (int i = 0; i < count; i++) {
        int source = -1, tag = -1;
        size_t got = 0;
        STEP(coll_received(requests[i], &source, &tag, &got));
        is_right = is_right && got == 1 && values[i] == source * 1000000 + tag;
        if (m->order != ANYTHING) is_right = is_right && tag == m->count - 1 - i / senders;
        coll_request_free(requests[i]);
    }
    CHECK(is_right, "%d messages, %s: wrong ones", count, many_names[m->order]);
    return 0;
}

static int many_worker(coll_comm *comm, void *arg)
{
    many *m = arg;
    const int rank = coll_rank(comm), size = coll_size(comm);
    const size_t room = (size_t)m->count * (size_t)size;
    coll_request **requests = support_need(calloc(room, sizeof *requests));
    int *values = support_need(calloc(room, sizeof *values));

    STEP(coll_barrier(comm));
    const uint64_t began = steps_taken();
    const int failed = rank == 0 ? many_receive(comm, m, requests, values) : many_send(comm, m, requests, values);
    STEP(coll_barrier(comm));
    if (rank == 0) m->steps = steps_taken() - began;
    for (int i = 0; i < m->count && rank > 0; i++) coll_request_free(requests[i]);
    free(requests);
    free(values);
    return failed;
}

static double work_of_many(many_order order, int size, int count)
{
    many m = { .order = order, .count = count };

    CHECK(run_sim(size, many_worker, &m) == 0, "%d messages to each of %d ranks, %s", count, size, many_names[order]);
    return (double)m.steps;
}

/* The simulator sorts what is in flight: its work grows a little faster.  What grew with the square would be sixteen times. */
static void test_many(void)
{
    const int most = (int)(1500 * support_scale()) + 100;

    for (many_order order = REVERSED; order < MANY_ORDERS; order++)
        for (int size = 2; size <= 9; size += 7) {
            const int count = order == FROM_ANY ? most / 2 : most, each = size == 2 ? count : count / 8;
            const double once = work_of_many(order, size, each), more = work_of_many(order, size, 4 * each);
            const double of_one = once / each / (size - 1);
            printf("%d senders, %s: %.0f steps a message of %d each, %.0f of %d\n", size - 1, many_names[order], of_one, each,
                   more / 4 / each / (size - 1), 4 * each);
            CHECK(order == FROM_ANY || more <= 6 * once,
                  "%d senders, %s: %d messages each take %.4g steps, four times as many %.4g", size - 1, many_names[order], each,
                  once, more);
        }
}

/* ---- >>storm: lengths of all protocols, in an order that the sender does not know ---- */

enum { STORM_MOST = 70000 };

typedef struct storm { uint64_t seed; int count; bool goes_back; } storm;

static size_t storm_length(const storm *s, int from, int to, int i)
{
    uint64_t state = s->seed + (uint64_t)i * 4099 + (uint64_t)(from * 64 + to) * 1000003;
    const uint64_t kind = support_random(&state) % 8;
    return (size_t)(support_random(&state) % (kind == 0 ? STORM_MOST : kind < 3 ? 9000 : 100));
}

static unsigned char storm_byte(int from, int i) { return (unsigned char)(from * 31 + i * 7 + 1); }

/* Every rank sends all its messages, and takes those of each other rank one at a time, in its own order. */
static int storm_worker(coll_comm *comm, void *arg)
{
    const storm *s = arg;
    const int rank = coll_rank(comm), size = coll_size(comm), all = s->count * size;
    coll_request **requests = support_need(calloc((size_t)all, sizeof *requests));
    unsigned char **sent = support_need(calloc((size_t)all, sizeof *sent)), *got = support_need(malloc(STORM_MOST));
    int *order = support_need(calloc((size_t)all, sizeof *order)), wrong = 0;
    uint64_t state = s->seed * 77 + (uint64_t)rank;

    for (int i = 0; i < all; i++) {
        const int to = i % size;
        const size_t length = storm_length(s, rank, to, i / size);
        sent[i] = support_need(malloc(length + 1));
        memset(sent[i], storm_byte(rank, i / size), length);
        STEP(coll_isend(comm, sent[i], length, COLL_U8, to, i / size, &requests[i]));
        order[i] = i;
    }
    for (int i = all - 1; i > 0; i--) {
        const int k = (int)(support_random(&state) % (uint64_t)(i + 1)), was = order[i];
        if (!s->goes_back) order[i] = order[k], order[k] = was;
    }
    for (int i = 0; i < all; i++) {
        const int at = order[s->goes_back ? all - 1 - i : i], from = at % size;
        const size_t length = storm_length(s, from, rank, at / size);
        STEP(coll_recv(comm, got, length, COLL_U8, from, at / size));
        for (size_t b = 0; b < length; b++) wrong += got[b] != storm_byte(from, at / size);
    }
    STEP(coll_wait_all(all, requests));
    STEP(coll_barrier(comm));
    CHECK(wrong == 0, "seed %llu: rank %d got %d wrong bytes", (unsigned long long)s->seed, rank, wrong);
    for (int i = 0; i < all; i++) {
        coll_request_free(requests[i]);
        free(sent[i]);
    }
    free(requests);
    free(sent);
    free(got);
    free(order);
    return 0;
}

static void test_storm(uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        storm s = { .seed = seed + (uint64_t)i, .count = (int)(1500 * support_scale()) + 100, .goes_back = i % 2 };
        const int size = 2 + i / 2;
        CHECK(run_sim(size, storm_worker, &s) == 0, "seed %llu, %d simulated ranks", (unsigned long long)s.seed, size);
        CHECK(coll_spawn(size, storm_worker, &s, NULL) == 0, "seed %llu, %d threads", (unsigned long long)s.seed, size);
    }
}

int main(int count, char **arguments)
{
    const char *parts = count > 1 ? arguments[1] : "match,forms,many,storm";
    const uint64_t seed = support_seed();

    if (strstr(parts, "match")) for (uint64_t i = 0; i < 10; i++) test_match(seed + i);
    if (strstr(parts, "forms")) test_forms(0, 2);
    if (strstr(parts, "large")) test_forms(3, 3);
    if (strstr(parts, "many")) test_many();
    if (strstr(parts, "storm")) test_storm(seed);
    return CHECK_DONE();
}
