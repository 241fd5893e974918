/* test_threads.c - collectives between the threads of a process: every kind, in groups, in place, uneven, and with failures.
 *
 *     test_threads                                      COLL_TEST_SEED=... replays a seed, COLL_TEST_SCALE=... does more
 *
 * The transport's own functions are called, without a communicator.  A session has several lanes.  A lane is a group of ranks
 * and a sequence of collectives; each is a pure function of the lane's seed, so that every rank knows what the others give
 * and expect.  Each rank steps its lanes in a different order.
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"

enum { RANKS_MOST = 9, LANES_MOST = 5, TIME_LIMIT_S = 280, SLEEP_MS = 2, LOOKS = 200 };

static uint64_t the_seed;

/* ---- >>arithmetic: types and operations to test with, and expected results ---- */

typedef struct arithmetic { coll_type type, wire; coll_op op; } arithmetic;

#define BLOB24   COLL_BLOB(24)
#define BLOB6000 COLL_BLOB(6000)                  /* longer than the blocks in which the library combines      */

static const arithmetic arithmetics[] = {
    { COLL_I32, COLL_I32, COLL_SUM }, { COLL_F32, COLL_F32, COLL_SUM },   { COLL_BF16, COLL_BF16, COLL_SUM },
    { COLL_F32, COLL_BF16, COLL_SUM }, { COLL_I8, COLL_I8, COLL_SUM },    { BLOB24, BLOB24, COLL_USER },
    { COLL_F64, COLL_F64, COLL_MAX },  { COLL_F32, COLL_F32, COLL_AVG }, { COLL_I8, COLL_I8, COLL_AVG },
    { BLOB6000, BLOB6000, COLL_USER }
};
enum { ARITHMETIC_COUNT = sizeof arithmetics / sizeof *arithmetics, SCAN_COUNT = 6 };       /* scans take the first ones */

/* The user's operation: x -> a x + b after x -> c x + d, which is associative and not commutative.  Its context is the
 * thread that may call it. */
static void compose(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    const pthread_t *thread = context;
    const size_t triples = count * coll_type_size(type) / 24;
    CHECK(type == BLOB24 || type == BLOB6000, "the operation is given type %d", type);
    CHECK(pthread_equal(*thread, pthread_self()), "the operation runs in another rank's thread");
    CHECK((uintptr_t)in % 16 == 0 && (uintptr_t)inout % 16 == 0, "the operation is given crooked addresses");
    const uint64_t *low = in;
    uint64_t *high = inout;
    for (size_t i = 0; i < 3 * triples; i += 3) {
        high[i + 1] += high[i] * low[i + 1];
        high[i] *= low[i];
        high[i + 2] ^= low[i + 2];
    }
}

static float ordinary(uint64_t random) { return (float)(int32_t)(random >> 32) * 0x1p-31f * (float)(1 << (random & 7)); }

/* Element `at` of the input of a rank. */
static void put_input(const arithmetic *a, uint64_t salt, int rank, size_t at, void *to)
{
    uint64_t random[3];
    float value;
    uint16_t half;
    double wide;

    for (unsigned i = 0; i < 3; i++) random[i] = support_mix(salt ^ ((uint64_t)rank << 48) ^ (at << 2) ^ i);
    value = ordinary(random[0]);
    switch (a->type) {
    case COLL_F32:  memcpy(to, &value, 4); break;
    case COLL_BF16: half = coll_f32_to_bf16(value); memcpy(to, &half, 2); break;
    case COLL_F64:  wide = (double)value; memcpy(to, &wide, 8); break;
    case BLOB6000:
        for (unsigned i = 0; i < 750; i++) random[0] = support_mix(random[0]), memcpy((char *)to + 8 * i, random, 8);
        break;
    default:        memcpy(to, random, coll_type_size(a->type)); break;
    }
}

static unsigned char *make_input(const arithmetic *a, uint64_t salt, int rank, size_t first, size_t count)
{
    const size_t unit = coll_type_size(a->type);
    unsigned char *input = support_need(malloc(count * unit + 1));
    for (size_t i = 0; i < count; i++) put_input(a, salt, rank, first + i, input + i * unit);
    return input;
}

static coll_call call_of(const arithmetic *a, coll_kind kind, size_t count, pthread_t *self)
{
    return (coll_call){ .kind = kind, .count = count, .type = a->type, .wire = a->wire, .op = a->op,
                        .fn = a->op == COLL_USER ? compose : NULL, .fn_context = self };
}

static coll__codec codec_of(const coll_call *call, int size, bool reduces)
{
    coll__codec codec;
    char why[120] = "";

    if (reduces) CHECK(coll__codec_reduce(&codec, call, size, why, sizeof why), "%s", why);
    else coll__codec_move(&codec, call->type);
    return codec;
}

/* Elements first..first+count of all inputs, combined at once and on one thread. */
static unsigned char *make_sum(const arithmetic *a, uint64_t salt, int size, size_t first, size_t count)
{
    const size_t unit = coll_type_size(a->type);
    pthread_t self = pthread_self();
    const coll_call call = call_of(a, COLL_ALLREDUCE, count, &self);
    const coll__codec codec = codec_of(&call, size, true);
    coll__source sources[RANKS_MOST] = { { NULL, COLL__AS_USER, 0 } };
    unsigned char *parts[RANKS_MOST], *sum = support_need(malloc(count * unit + 1));
    void *const results[1] = { sum }, *const scratch = coll__allocate(NULL, coll__combine_scratch(&codec, size));

    for (int i = 0; i < size; i++) {
        parts[i] = make_input(a, salt, i, first, count);
        sources[i] = (coll__source){ parts[i], COLL__AS_USER, i };
    }
    coll__combine(&codec, &(coll__sum){ .sources = sources, .n = size, .results = results, .m = 1, .format = COLL__AS_USER,
                                        .count = count, .scratch = scratch });
    for (int i = 0; i < size; i++) free(parts[i]);
    coll__give(scratch);
    return sum;
}

/* One element of a scan over ranks 0..last, by the plainest loop. */
static void put_scan(const arithmetic *a, uint64_t salt, int last, size_t at, void *to)
{
    const size_t unit = coll_type_size(a->type);
    pthread_t self = pthread_self();
    uint64_t part[3], sum[3];
    uint32_t whole = 0;
    float wide = 0;

    for (int v = 0; v <= last; v++) {
        float value = 0;
        uint32_t word = 0;
        uint16_t half;
        put_input(a, salt, v, at, part);
        if (a->type == BLOB24) {
            if (v > 0) compose(sum, part, 1, BLOB24, &self);
            memcpy(sum, part, sizeof sum);
        } else if (a->type == COLL_BF16) {
            memcpy(&half, part, 2);
            value = coll_bf16_to_f32(half);
        } else if (a->type == COLL_F32) {
            memcpy(&value, part, 4);
            if (a->wire == COLL_BF16) value = coll_bf16_to_f32(coll_f32_to_bf16(value));
        } else {
            memcpy(&word, part, unit);
        }
        wide = v ? wide + value : value;
        whole += word;
    }
    const uint16_t half = coll_f32_to_bf16(wide);
    if (a->wire == COLL_BF16) wide = coll_bf16_to_f32(half);
    if (a->type == BLOB24) memcpy(to, sum, unit);
    else if (a->type == COLL_BF16) memcpy(to, &half, unit);
    else if (a->type == COLL_F32) memcpy(to, &wide, unit);
    else memcpy(to, &whole, unit);
}

/* ---- >>cases: one collective, the same on all ranks of a lane ---- */

typedef struct test_case {
    uint64_t   salt;
    coll_kind  kind;
    arithmetic a;
    size_t     count;
    int        size, root;
    unsigned   in_place;                          /* a bit for each rank                                      */
    bool       at_start;                          /* reduce_scatter in place: the result is at recv == send   */
} test_case;

static bool kind_combines(coll_kind kind)
{
    return kind == COLL_REDUCE || kind == COLL_ALLREDUCE || kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV ||
           kind == COLL_SCAN || kind == COLL_EXSCAN;
}

static bool has_root(coll_kind kind)
{
    return kind == COLL_BROADCAST || kind == COLL_REDUCE || kind == COLL_GATHER || kind == COLL_GATHERV ||
           kind == COLL_SCATTER || kind == COLL_SCATTERV;
}

static bool is_uneven(coll_kind kind)
{
    return kind == COLL_REDUCE_SCATTERV || kind == COLL_GATHERV || kind == COLL_SCATTERV || kind == COLL_ALLGATHERV ||
           kind == COLL_ALLTOALLV || kind == COLL_ALLTOALLW;
}

static test_case case_of(uint64_t salt, int size)
{
    static const size_t counts[] = { 0, 1, 2, 3, 5, 7, 8, 13, 21, 32, 64, 65, 100, 255, 333, 1025 };
    uint64_t state = salt;
    test_case c = { .salt = salt, .size = size };

    const uint64_t kind = support_random(&state);  /* the first at or behind it that is not left out           */
    for (uint64_t k = kind; c.kind == 0 || !there_kind(c.kind); k++)
        c.kind = (coll_kind)(COLL_BARRIER + (int)(k % (COLL_ALLTOALLW - COLL_BARRIER + 1)));
    const unsigned choices = c.kind == COLL_SCAN || c.kind == COLL_EXSCAN ? SCAN_COUNT : ARITHMETIC_COUNT;
    uint64_t i = support_random(&state);          /* likewise                                                 */
    while (!there_type(arithmetics[i % choices].type) || !there_type(arithmetics[i % choices].wire)) i++;
    c.a = arithmetics[i % choices];
    c.count = counts[support_random(&state) % (sizeof counts / sizeof *counts)];
    if (support_random(&state) % 40 == 0) c.count = 100000 / coll_type_size(c.a.type) + support_random(&state) % 50;
    if (c.a.type == BLOB6000) c.count %= 40;
    c.root = (int)(support_random(&state) % (unsigned)size);
    const uint64_t how = support_random(&state) % 3;
    c.in_place = how == 0 ? 0 : how == 1 ? ~0u : (unsigned)support_random(&state);
    c.at_start = support_random(&state) & 1;
    return c;
}

static bool is_in_place(const test_case *c, int rank) { return c->in_place >> rank & 1; }

/* Elements that go from one rank to another, or that a rank has.  In place the two directions of a pair are equal. */
static size_t pair_count(const test_case *c, int from, int to)
{
    const int low = from < to ? from : to, high = from < to ? to : from;
    uint64_t key = c->salt + 17;

    if (!is_uneven(c->kind)) return c->count;
    if (c->in_place && c->kind >= COLL_ALLTOALL) from = low, to = high;
    if (c->kind == COLL_GATHERV || c->kind == COLL_ALLGATHERV) to = 0;
    if (c->kind == COLL_SCATTERV || c->kind == COLL_REDUCE_SCATTERV) from = 0;
    key = support_mix(key + (uint64_t)(from * 64 + to));
    return key % 4 == 0 ? 0 : (key >> 8) % (c->count + 2);
}

static coll_type pair_type(const test_case *c, int from, int to)
{
    static const coll_type types[] = { COLL_I8, COLL_F32, BLOB24, COLL_F64 };

    if (c->kind != COLL_ALLTOALLW) return c->a.type;
    if (c->in_place && from > to) return pair_type(c, to, from);
    return types[support_mix(c->salt + 99 + (uint64_t)(from * 64 + to)) % 4];
}

static unsigned char byte_of(const test_case *c, int from, int to, size_t at)
{
    return (unsigned char)(c->salt + (unsigned)from * 131u + (unsigned)to * 17u + at * 7u + (at >> 8) * 13u);
}

static size_t pair_length(const test_case *c, int from, int to)
{
    return pair_count(c, from, to) * coll_type_size(pair_type(c, from, to));
}

/* ---- >>runs: a case on one rank ---- */

typedef struct run {
    test_case      c;
    int            me;
    support_buffer input, output;                 /* in place: all is in output                               */
    size_t         send_counts[RANKS_MOST], send_offsets[RANKS_MOST], recv_counts[RANKS_MOST], recv_offsets[RANKS_MOST];
    coll_type      send_types[RANKS_MOST], recv_types[RANKS_MOST];
    unsigned char  head[COLL_HEAD_LENGTH];
    coll_call      call;
    coll__codec    codec;
    coll_task      task;
    pthread_t      self;
} run;

/* Where blocks lie: with gaps, and backwards in every other case.  Offsets are in bytes first. */
static size_t lay_out(const test_case *c, int me, bool is_send, bool packed, size_t *counts, size_t *offsets, coll_type *types)
{
    size_t end = 0;

    for (int i = 0; i < c->size; i++) {
        const int k = !packed && c->salt & 4 ? c->size - 1 - i : i;
        const int from = is_send ? me : k, to = is_send ? k : me;
        counts[k] = pair_count(c, from, to);
        types[k] = pair_type(c, from, to);
        offsets[k] = end;
        end += pair_length(c, from, to);
        if (!packed) end += coll_type_size(c->a.type) * (support_mix(c->salt + (uint64_t)i) % 3);
    }
    return end;
}

static void fill_bytes(const test_case *c, int from, int to, unsigned char *at)
{
    const size_t length = pair_length(c, from, to);
    for (size_t i = 0; i < length; i++) at[i] = byte_of(c, from, to, i);
}

static void expect_bytes(run *r, int from, int to, size_t at)
{
    const size_t length = pair_length(&r->c, from, to);
    unsigned char *bytes = support_need(malloc(length + 1));

    fill_bytes(&r->c, from, to, bytes);
    support_expect(&r->output, at, bytes, length);
    free(bytes);
}

/* Buffers begin at any address that the type allows. */
static size_t skew(const run *r)
{
    const size_t unit = coll_type_size(r->c.a.type);
    return unit > 8 ? 8 : (r->c.salt >> 8 & 7) * unit;
}

/* A collective that moves: which blocks does this rank send, and which does it get? */
static void prepare_move(run *r)
{
    const test_case *c = &r->c;
    const coll_kind kind = c->kind;
    const bool is_root = r->me == c->root, packed = !is_uneven(kind);
    const bool to_many = kind == COLL_SCATTER || kind == COLL_SCATTERV || kind >= COLL_ALLTOALL;
    const bool from_many = kind == COLL_GATHER || kind == COLL_GATHERV || kind >= COLL_ALLGATHER;
    const bool sends = kind >= COLL_ALLGATHER || kind == COLL_GATHER || kind == COLL_GATHERV || is_root;
    const bool gets = kind >= COLL_ALLGATHER || kind == COLL_SCATTER || kind == COLL_SCATTERV || is_root;
    const int dest = kind == COLL_ALLGATHER || kind == COLL_ALLGATHERV ? 0 : c->root, source = c->root;
    bool in_place = is_in_place(c, r->me) && sends && gets;
    size_t send_length, recv_length;

    send_length = to_many ? lay_out(c, r->me, true, packed, r->send_counts, r->send_offsets, r->send_types)
                          : pair_length(c, r->me, dest);
    recv_length = from_many ? lay_out(c, r->me, false, packed, r->recv_counts, r->recv_offsets, r->recv_types)
                            : pair_length(c, source, r->me);
    if (!sends) send_length = 0;
    if (!gets) recv_length = 0;
    const bool in_send = in_place && !from_many;  /* scatter: recv is a block of send                         */
    r->output = support_buffer_make(in_send ? send_length : recv_length, skew(r));
    if (!in_place) r->input = support_buffer_make(send_length, skew(r));
    unsigned char *send = in_place ? r->output.data : r->input.data;
    if (in_place && !to_many) send += r->recv_offsets[r->me];
    unsigned char *recv = in_send ? r->output.data + r->send_offsets[r->me] : r->output.data;
    if (sends && !to_many) fill_bytes(c, r->me, dest, send);
    for (int i = 0; i < c->size && sends && to_many; i++) fill_bytes(c, r->me, i, send + r->send_offsets[i]);
    r->call.send = sends ? send : NULL;
    r->call.recv = gets ? recv : NULL;
    if (!to_many) r->call.count = pair_count(c, r->me, dest);
    if (kind == COLL_SCATTERV) r->call.recv_count = pair_count(c, source, r->me);
    support_seal(&r->output);
    if (!in_place) support_seal(&r->input);
    for (int i = 0; i < c->size && gets && from_many; i++)
        expect_bytes(r, i, to_many ? r->me : dest, r->recv_offsets[i]);
    if (gets && !from_many) expect_bytes(r, source, r->me, in_send ? r->send_offsets[r->me] : 0);
    const size_t unit = kind == COLL_ALLTOALLW ? 1 : coll_type_size(c->a.type);
    for (int i = 0; i < c->size; i++) r->send_offsets[i] /= unit, r->recv_offsets[i] /= unit;
}

static void prepare_broadcast(run *r)
{
    r->output = support_buffer_make(pair_length(&r->c, 0, 0), skew(r));
    if (r->me == r->c.root) fill_bytes(&r->c, 0, 0, r->output.data);
    r->call.recv = r->output.data;
    support_seal(&r->output);
    expect_bytes(r, 0, 0, 0);
}

/* A collective that combines: elements first..first+mine of the result are ours. */
static void prepare_combine(run *r)
{
    const test_case *c = &r->c;
    const coll_kind kind = c->kind;
    const size_t unit = coll_type_size(c->a.type);
    const bool scatters = kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV;
    const bool scans = kind == COLL_SCAN || kind == COLL_EXSCAN;
    size_t total = 0, first = 0;

    for (int i = 0; i < c->size; i++) {
        r->recv_counts[i] = pair_count(c, i, i);
        if (kind == COLL_REDUCE_SCATTERV) r->recv_counts[i] = pair_count(c, 0, i);
        if (i < r->me) first += r->recv_counts[i];
        total += r->recv_counts[i];
    }
    if (!scatters) total = c->count, first = 0;
    const bool gets = (kind != COLL_REDUCE || r->me == c->root) && (kind != COLL_EXSCAN || r->me > 0);
    const size_t mine = !gets ? 0 : scatters ? r->recv_counts[r->me] : c->count;
    const bool in_place = is_in_place(c, r->me) && (gets || kind == COLL_EXSCAN);
    const size_t at = in_place && scatters && !c->at_start ? first : 0;
    r->output = support_buffer_make((in_place ? total : mine) * unit, skew(r));
    if (!in_place) r->input = support_buffer_make(total * unit, skew(r));
    unsigned char *send = in_place ? r->output.data : r->input.data;
    unsigned char *input = make_input(&c->a, c->salt, r->me, 0, total);
    if (total) memcpy(send, input, total * unit);
    free(input);
    r->call.send = send;
    r->call.recv = gets || in_place ? r->output.data + at * unit : NULL;
    support_seal(&r->output);
    if (!in_place) support_seal(&r->input);
    if (!gets) return;
    unsigned char *result = scans ? support_need(malloc(mine * unit + 1)) : make_sum(&c->a, c->salt, c->size, first, mine);
    for (size_t i = 0; i < mine && scans; i++)
        put_scan(&c->a, c->salt, kind == COLL_SCAN ? r->me : r->me - 1, i, result + i * unit);
    support_expect(&r->output, at * unit, result, mine * unit);
    free(result);
}

static void run_begin(run *r, const test_case *c, int me, uint32_t number, void *group)
{
    *r = (run){ .c = *c, .me = me, .self = pthread_self() };
    r->call = call_of(&c->a, c->kind, c->count, &r->self);
    r->call.root = c->root;
    if (c->kind == COLL_BARRIER) r->call.count = 0;
    else if (c->kind == COLL_BROADCAST) prepare_broadcast(r);
    else if (kind_combines(c->kind)) prepare_combine(r);
    else prepare_move(r);
    r->call.send_counts = r->send_counts;
    r->call.send_offsets = r->send_offsets;
    r->call.recv_counts = r->recv_counts;
    r->call.recv_offsets = r->recv_offsets;
    r->call.send_types = r->send_types;
    r->call.recv_types = r->recv_types;
    r->codec = codec_of(&r->call, c->size, kind_combines(c->kind));
    coll__put16(r->head, COLL__MAGIC);
    coll__put32(r->head + 8, number);
    r->head[12] = (unsigned char)c->kind;
    coll__put32(r->head + 16, (uint32_t)c->a.type);
    coll__put32(r->head + 20, has_root(c->kind) ? (uint32_t)c->root : 0);
    coll__put64(r->head + 24, is_uneven(c->kind) ? 0 : r->call.count);
    r->task = (coll_task){ .call = &r->call, .head = r->head, .codec = &r->codec, .group = group };
}

static void run_end(run *r)
{
    const test_case *c = &r->c;
    ptrdiff_t at = 0;

    for (int k = 0; k < 2; k++) {
        support_buffer *buffer = k ? &r->input : &r->output;
        if (!buffer->block) continue;
        CHECK(support_as_expected(buffer, &at),
              "%s of %zu x %s (%s), rank %d of %d, root %d, in place %x%s: byte %td of %s; seed %llu", coll_kind_name(c->kind),
              c->count, coll_type_name(c->a.type), coll_op_name(c->a.op), r->me, c->size, c->root, c->in_place,
              c->at_start ? " at the start" : "", at, k ? "send" : "recv", (unsigned long long)the_seed);
        support_buffer_free(buffer);
    }
}

static void run_drop(run *r)
{
    support_buffer_free(&r->output);
    support_buffer_free(&r->input);
}

/* ---- >>worlds: threads that share memory ---- */

typedef struct lane {
    uint64_t id, seed;
    int      ranks[RANKS_MOST], count;
    int      lives, cases;                        /* how often it is made, and the collectives each time      */
    bool     is_all;                              /* the group of all ranks, which is not made                */
} lane;

typedef struct world world;
typedef struct member {
    world    *w;
    int       rank;
    void     *context;
    pthread_t thread;
    coll_status status;
    char      text[212];
} member;

struct world {
    int      size, lane_count;
    lane     lanes[LANES_MOST];
    uint64_t seed;
    const void *arg;
    member   members[RANKS_MOST];
};

static const coll_transport *const threads = &coll__threads_transport;

static void world_run(world *w, void *(*main_of)(void *member))
{
    coll__domain *domain = support_need(coll__domain_open(NULL, 0, w->size, w->size > coll__processors()));

    for (int i = 0; i < w->size; i++) {
        w->members[i] = (member){ .w = w, .rank = i, .context = support_need(coll__thread_open(NULL, domain, i)) };
        domain->holders++;
    }
    coll__domain_release(domain);
    for (int i = 0; i < w->size; i++) CHECK(!pthread_create(&w->members[i].thread, NULL, main_of, &w->members[i]), "no thread");
    for (int i = 0; i < w->size; i++) pthread_join(w->members[i].thread, NULL);
}

/* One step of a task.  A failure is reported to all and recorded. */
static coll_status look(member *m, coll_task *task)
{
    coll_failure failure = { COLL_OK, -1, "" };
    const coll_status status = threads->offload(m->context, task, &failure);

    if (status >= 0) return status;
    const coll_failure *agreed = threads->fail(m->context, failure.status ? &failure : NULL);
    m->status = agreed ? agreed->status : COLL_ERR_SYSTEM;
    snprintf(m->text, sizeof m->text, "%s", agreed ? agreed->text : "no failure is known");
    return m->status;
}

static coll_status advance(member *m, int wait_ms)
{
    if (threads->progress(m->context, wait_ms) >= 0) return COLL_OK;
    const coll_failure *agreed = threads->fail(m->context, NULL);
    m->status = agreed->status;
    snprintf(m->text, sizeof m->text, "%s", agreed->text);
    return m->status;
}

/* Until it is done: as the engine does, first step and then sleep. */
static coll_status finish(member *m, coll_task *task)
{
    for (int looks = 0;; looks++) {
        const coll_status status = look(m, task);
        if (status != COLL_PENDING) return status;
        if (advance(m, looks < LOOKS ? 0 : SLEEP_MS) < 0) return m->status;
        if (looks < LOOKS && looks % 8 == 0) sched_yield();
    }
}

/* ---- >>sessions ---- */

typedef struct progress_of { int me, life, done; void *group; bool is_running; run r; } progress_of;

/* One step of a lane; false: it is over. */
static bool lane_step(member *m, const lane *l, progress_of *p)
{
    if (p->life == l->lives) return false;
    if (p->done == 0 && !p->is_running && !l->is_all)
        p->group = support_need(threads->group(m->context, l->id, 0, l->ranks, l->count, p->me));
    if (!p->is_running) {
        const uint32_t number = (uint32_t)(p->life * l->cases + p->done + 1);
        const test_case c = case_of(support_mix(l->seed + number), l->count);
        run_begin(&p->r, &c, p->me, number, p->group);
        p->is_running = true;
    }
    if (look(m, &p->r.task) == COLL_PENDING) return true;
    CHECK(m->status == COLL_OK, "%s: seed %llu", m->text, (unsigned long long)the_seed);
    run_end(&p->r);
    p->is_running = false;
    if (++p->done < l->cases) return true;
    if (!l->is_all) threads->ungroup(m->context, p->group);
    p->done = 0;
    p->life++;
    return true;
}

static void *session_main(void *at)
{
    member *m = at;
    const world *w = m->w;
    progress_of *lanes = support_need(calloc(LANES_MOST, sizeof *lanes));
    uint64_t state = support_mix(w->seed + (uint64_t)m->rank);
    int open = 0;

    for (int k = 0; k < w->lane_count; k++) {
        lanes[k].me = -1;
        for (int i = 0; i < w->lanes[k].count; i++) if (w->lanes[k].ranks[i] == m->rank) lanes[k].me = i;
        if (lanes[k].me < 0) lanes[k].life = w->lanes[k].lives;
        else open++;
    }
    for (int looks = 0; open > 0 && m->status == COLL_OK; looks++) {
        const int k = (int)(support_random(&state) % (unsigned)w->lane_count), done = lanes[k].done, life = lanes[k].life;
        if (life < w->lanes[k].lives && lane_step(m, &w->lanes[k], &lanes[k]) && lanes[k].life == w->lanes[k].lives) open--;
        if (lanes[k].done != done || lanes[k].life != life) looks = 0;
        if (advance(m, looks < LOOKS ? 0 : SLEEP_MS) < 0) break;
        if (looks % 8 == 7) sched_yield();
    }
    CHECK(m->status == COLL_OK, "%s: seed %llu", m->text, (unsigned long long)the_seed);
    free(lanes);
    threads->close(m->context);
    return NULL;
}

/* All ranks together: every kind. */
static void test_all(int size, int cases, uint64_t seed)
{
    world w = { .size = size, .lane_count = 1, .seed = seed };

    w.lanes[0] = (lane){ .seed = seed, .count = size, .lives = 1, .cases = cases, .is_all = true };
    for (int i = 0; i < size; i++) w.lanes[0].ranks[i] = i;
    world_run(&w, session_main);
}

/* Groups with random members in random order; those that share no member have the same id. */
static void test_groups(int size, int cases, uint64_t seed)
{
    world w = { .size = size, .lane_count = LANES_MOST, .seed = seed };
    uint64_t state = seed;

    for (int k = 0; k < LANES_MOST; k++) {
        lane *l = &w.lanes[k];
        *l = (lane){ .id = 5, .seed = support_random(&state), .lives = 1 + k % 3, .cases = cases, .is_all = k == 0 };
        bool is_taken[RANKS_MOST] = { false };
        const int want = k == 0 ? size : 1 + (int)(support_random(&state) % (unsigned)size);
        while (l->count < want) {
            const int rank = k == 0 ? l->count : (int)(support_random(&state) % (unsigned)size);
            if (!is_taken[rank]) l->ranks[l->count++] = rank;
            is_taken[rank] = true;
        }
        for (int j = 1; j < k; j++)
            for (int i = 0; i < w.lanes[j].count; i++)
                if (is_taken[w.lanes[j].ranks[i]] && w.lanes[j].id >= l->id) l->id = w.lanes[j].id + 1;
    }
    world_run(&w, session_main);
}

/* Two groups with the same id at once, each half of the ranks, beside one that holds all. */
static void test_halves(uint64_t seed)
{
    world w = { .size = 4, .lane_count = 3, .seed = seed };

    w.lanes[0] = (lane){ .id = 1, .seed = seed + 1, .ranks = { 0, 2 }, .count = 2, .lives = 20, .cases = 3 };
    w.lanes[1] = (lane){ .id = 1, .seed = seed + 2, .ranks = { 3, 1 }, .count = 2, .lives = 20, .cases = 3 };
    w.lanes[2] = (lane){ .id = 2, .seed = seed + 3, .ranks = { 3, 2, 1, 0 }, .count = 4, .lives = 15, .cases = 4 };
    world_run(&w, session_main);
}

/* ---- >>disagreement: counts, types, calls ---- */

typedef struct dispute { coll_kind kind; const char *sentence; } dispute;

/* Ranks 2 and 0 of three are a group; 2 is the first there.  Rank 0 of the domain requests less than it is sent.  Kinds whose
 * counts are in the fingerprint, which is not compared here, have blocks that are too long to be sent eagerly. */
static void *dispute_main(void *at)
{
    member *m = at;
    const dispute *d = m->w->arg;
    static const int ranks[2] = { 2, 0 };
    const int me = m->rank == 2 ? 0 : 1;
    const size_t each = d->kind == COLL_ALLGATHERV || d->kind == COLL_REDUCE_SCATTERV ? 20000 : 1;
    float *const send = support_need(calloc(16 * each, sizeof *send));
    void *group = m->rank == 1 ? NULL : threads->group(m->context, 3, 0, ranks, 2, me);
    /* rank 2 gives 5 elements to all ranks, rank 0 expects 3 from rank 2; else all is 2 */
    size_t send_counts[2] = { 2, me == 0 ? 5 : 2 }, recv_counts[2] = { me == 1 ? 3 : 2, 2 };
    size_t send_offsets[2] = { 0, 2 }, recv_offsets[2] = { 0, 4 };
    const bool is_w = d->kind == COLL_ALLTOALLW;
    coll_type send_types[2] = { COLL_F32, COLL_F32 }, recv_types[2] = { me == 1 && is_w ? COLL_I32 : COLL_F32, COLL_F32 };
    unsigned char head[COLL_HEAD_LENGTH] = { 0 };

    if (is_w) send_counts[1] = recv_counts[0] = 2;
    if (is_w) send_offsets[1] = 8, recv_offsets[1] = 16;
    if (d->kind == COLL_REDUCE_SCATTERV) recv_counts[0] = me == 1 ? 3 : 5;
    for (int i = 0; i < 2; i++) recv_counts[i] *= each, recv_offsets[i] *= each;
    support_buffer recv = support_buffer_make(is_w ? 24 : 6 * each * sizeof(float), 0);
    coll_call call = { .kind = d->kind, .send = send, .recv = recv.data, .count = each * (me == 0 ? 5 : 2), .type = COLL_F32,
                       .wire = COLL_F32, .root = d->kind == COLL_SCATTERV ? 0 : 1, .recv_count = 3,
                       .send_counts = send_counts, .send_offsets = send_offsets, .recv_counts = recv_counts,
                       .recv_offsets = recv_offsets, .send_types = send_types, .recv_types = recv_types };
    if (d->kind == COLL_ALLTOALL) call.kind = me ? COLL_ALLTOALL : COLL_BARRIER;
    const coll__codec codec = codec_of(&call, 2, d->kind == COLL_REDUCE_SCATTERV);
    coll__put16(head, COLL__MAGIC);
    coll__put32(head + 8, 1);
    head[12] = (unsigned char)call.kind;
    coll_task task = { .call = &call, .head = head, .codec = &codec, .group = group };
    if (d->kind == COLL_SCATTERV && me == 0) call.recv_count = 2;
    support_seal(&recv);
    if (m->rank == 1) while (advance(m, SLEEP_MS) == COLL_OK) {}
    else (void)finish(m, &task);
    CHECK(m->status == COLL_ERR_MISMATCH && strstr(m->text, d->sentence), "%s, rank %d: status %d, \"%s\"",
          coll_kind_name(d->kind), m->rank, (int)m->status, m->text);
    support_guard(&recv, false);
    for (unsigned char *b = recv.block; b < recv.block + recv.block_length; b++)
        CHECK((b >= recv.data && b < recv.data + recv.length) || *b == SUPPORT_FILL, "a byte beyond recv is written");
    support_buffer_free(&recv);
    free(send);
    threads->close(m->context);
    return NULL;
}

static void test_disputes(void)
{
    static const dispute disputes[] = {
        { COLL_ALLTOALLV, "rank 2 sends 5 x f32 to rank 0, which expects 3 x f32" },
        { COLL_GATHERV, "rank 2 sends 5 x f32 to rank 0, which expects 3 x f32" },
        { COLL_SCATTERV, "rank 2 sends 5 x f32 to rank 0, which expects 3 x f32" },
        { COLL_ALLGATHERV, "rank 2 sends 100000 x f32 to rank" },
        { COLL_ALLTOALLW, "rank 2 sends 2 x f32 to rank 0, which expects 2 x i32" },
        { COLL_REDUCE_SCATTERV, "the block of rank 2 has" },
        { COLL_ALLTOALL, "barrier" }
    };

    for (size_t i = 0; i < sizeof disputes / sizeof *disputes; i++) {
        world w = { .size = 3, .arg = &disputes[i] };
        if (there_kind(disputes[i].kind)) world_run(&w, dispute_main);       /* other calls reach no transport   */
    }
}

/* ---- >>leaving, memory, late ranks, wake ---- */

typedef struct departure { bool leaves_domain, by_mail; } departure;

/* Rank 1 joins the group, takes part once, and leaves; the others call once more. */
static void *departure_main(void *at)
{
    member *m = at;
    const departure *d = m->w->arg;
    static const int ranks[3] = { 1, 0, 2 };
    const int me = m->rank == 1 ? 0 : m->rank == 0 ? 1 : 2;
    void *group = support_need(threads->group(m->context, 8, 0, ranks, 3, me));
    const test_case c = { .salt = 4, .kind = COLL_ALLREDUCE, .a = arithmetics[0], .count = d->by_mail ? 3 : 300, .size = 3 };

    for (uint32_t number = 1; number <= 2; number++) {
        run r;
        if (m->rank == 1 && number == 2) break;
        run_begin(&r, &c, me, number, group);
        const coll_status status = finish(m, &r.task);
        CHECK(status == COLL_ERR_PEER || (number == 1 && status == COLL_OK), "rank %d, call %u: %d", m->rank,
              number, (int)status);
        if (status == COLL_OK) {
            run_end(&r);
            continue;
        }
        CHECK(strstr(m->text, "rank 1 has left the communicator, and rank "), "%s", m->text);
        run_drop(&r);                             /* the end of another's second call may overtake our first  */
        break;
    }
    if (!d->leaves_domain || m->rank != 1) threads->ungroup(m->context, group);
    if (m->rank == 1 && !d->leaves_domain) while (advance(m, SLEEP_MS) == COLL_OK) {}
    threads->close(m->context);
    return NULL;
}

/* More memory than the system has, requested in the first step of an operation. */
static void *memory_main(void *at)
{
    member *m = at;
    float few[4] = { 0 };
    const size_t counts[2] = { m->rank == 0 ? SIZE_MAX / 16 : 1, 1 }, offsets[2] = { 0, 1 };
    unsigned char head[COLL_HEAD_LENGTH] = { 0 };
    const coll_call call = { .kind = COLL_ALLTOALLV, .send = few, .recv = few, .type = COLL_F32, .send_counts = counts,
                             .send_offsets = offsets, .recv_counts = counts, .recv_offsets = offsets };
    const coll__codec codec = codec_of(&call, 2, false);
    coll_task task = { .call = &call, .head = head, .codec = &codec };

    const coll_status status = finish(m, &task);
    CHECK(status == COLL_ERR_MEMORY && strstr(m->text, "rank 0 has no memory"), "rank %d: %d, \"%s\"", m->rank, (int)status,
          m->text);
    threads->close(m->context);
    return NULL;
}

/* Of a group {3, 1, 0}, seen from rank 3: which rank is late, and which calls are declined. */
static void test_late(void)
{
    static const int ranks[3] = { 3, 1, 0 };
    coll__domain *domain = support_need(coll__domain_open(NULL, 0, 4, 4 > coll__processors()));
    void *contexts[4], *groups[3];
    unsigned char is_late[4] = { 0 };
    run runs[3], extra;
    coll_failure failure = { COLL_OK, -1, "" };

    for (int i = 0; i < 4; i++) contexts[i] = support_need(coll__thread_open(NULL, domain, i)), domain->holders++;
    coll__domain_release(domain);
    for (int i = 0; i < 3; i++) groups[i] = support_need(threads->group(contexts[ranks[i]], 1, 0, ranks, 3, i));
    const test_case c = { .salt = 9, .kind = COLL_ALLREDUCE, .a = arithmetics[0], .count = 20000, .size = 3 };
    for (int i = 0; i < 3; i++) run_begin(&runs[i], &c, i, 1, groups[i]);
    for (int i = 0; i < 2; i++)
        CHECK(threads->offload(contexts[ranks[i]], &runs[i].task, &failure) == COLL_PENDING, "%s", failure.text);
    threads->mark_stragglers(contexts[3], &runs[0].task, is_late);
    CHECK(is_late[0] && !is_late[1] && !is_late[2] && !is_late[3], "%d %d %d %d", is_late[0], is_late[1], is_late[2], is_late[3]);
    CHECK(threads->offload(contexts[0], &runs[2].task, &failure) == COLL_PENDING, "%s", failure.text);
    memset(is_late, 0, sizeof is_late);
    threads->mark_stragglers(contexts[0], &runs[2].task, is_late);
    CHECK(!is_late[0] && is_late[1] && !is_late[2] && is_late[3], "%d %d %d %d", is_late[0], is_late[1], is_late[2], is_late[3]);
    for (int i = 0; i < 6; i++)
        if (threads->offload(contexts[ranks[i % 3]], &runs[i % 3].task, &failure) == COLL_OK && i >= 3) run_end(&runs[i % 3]);
    run_end(&runs[0]), run_end(&runs[1]), run_end(&runs[2]);
    run_begin(&extra, &c, 0, 2, groups[0]);
    for (int kind = COLL_NEIGHBOR_ALLGATHER; kind <= COLL_SENDRECV; kind++) {
        extra.call.kind = (coll_kind)kind;
        CHECK(threads->offload(contexts[3], &extra.task, &failure) == COLL_ERR_UNSUPPORTED && extra.task.state[0] == 0, "%s",
              coll_kind_name((coll_kind)kind));
    }
    run_drop(&extra);
    for (int i = 0; i < 4; i++) threads->close(contexts[i]);
}

static void *waker(void *context)
{
    usleep(30000);
    threads->wake(context);
    return NULL;
}

static void test_wake(void)
{
    coll__domain *domain = support_need(coll__domain_open(NULL, 0, 2, 2 > coll__processors()));
    void *context = support_need(coll__thread_open(NULL, domain, 0));
    pthread_t thread;
    const double began = support_seconds();

    CHECK(!pthread_create(&thread, NULL, waker, context), "no thread");
    (void)threads->progress(context, 60000);
    (void)threads->progress(context, 60000);
    const double took = support_seconds() - began;
    CHECK(took < 50, "progress slept on for %g s", took);          /* of 120 s                               */
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++) {                 /* groups that the other one never enters                   */
        void *group = support_need(threads->group(context, 1, 0, (const int[]){ 1, 0 }, 2, 1));
        if (i < 2) threads->ungroup(context, group);
    }
    domain->holders++;
    threads->close(context);
    coll__domain_release(domain);
}

static void test_departures(void)
{
    for (int i = 0; i < 4; i++) {
        const departure d = { i & 1, i >> 1 };
        world w = { .size = 3, .arg = &d };
        world_run(&w, departure_main);
    }
}

int main(void)
{
    const double scale = support_scale();

    the_seed = support_seed();
    printf("seed %llu\n", (unsigned long long)the_seed);
    support_limit(TIME_LIMIT_S, NULL);
    for (int size = 1; size <= RANKS_MOST; size++)
        test_all(size, (int)(scale * 800 / size) + 1, support_mix(the_seed + (unsigned)size));
    for (int i = 0; i < (int)(scale * 24) + 1; i++) test_groups(1 + i % 6, 20, support_mix(the_seed * 31 + (unsigned)i));
    test_halves(the_seed);
    test_disputes();
    test_departures();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    world w = { .size = 2 };                      /* the sanitizers end a process that requests too much      */
    if (there_kind(COLL_ALLTOALL)) world_run(&w, memory_main);
#else
    (void)memory_main;
#endif
    test_late();
    test_wake();
    return CHECK_DONE();
}
