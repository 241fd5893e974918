/* test_packets.c - blocks whose length only their two ends know: lengths around the size of a packet, in every world, by every
 * algorithm and radix; ranks that disagree on a length; packets that have been changed in flight; and what it takes, by the
 * simulator's clock.
 *
 *     test_packets [WORLD,...] [SIZE] */
#define _GNU_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/model.h"
#include "../support/model_calls.h"
#include "../support/loopback.h"
#include "../support/available.h"

enum { RANKS_MOST = 17, HUGE = 100003 };

static const char *world;

/* ---- >>data ---- */

/* One call on one rank: its lists and buffers. */
typedef struct job {
    coll_call call;
    int       rank, size;
    size_t    room;                               /* of a packet, in bytes                                    */
    unsigned  seed;
    size_t    send_counts[RANKS_MOST], recv_counts[RANKS_MOST], send_at[RANKS_MOST], recv_at[RANKS_MOST];
    coll_type send_types[RANKS_MOST], recv_types[RANKS_MOST];
    unsigned char *send, *recv;
    size_t    sent, received;                     /* bytes                                                    */
} job;

static const coll_type typed[] = { COLL_U8, COLL_U16, COLL_F64, COLL_BLOB(5) };

static unsigned mixed_of(const job *j, int from, int to)
{
    unsigned x = j->seed * 2654435761u + (unsigned)from * 40503u + (unsigned)to * 9176u + 1;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u;
    return x ^ x >> 16;
}

static coll_type type_of(const job *j, int from, int to)
{
    return j->call.kind == COLL_ALLTOALLW ? typed[mixed_of(j, to, from) % 4] : COLL_U8;
}

/* Of a block: nothing, a few elements, as many bytes as a packet has room for, or one element more or less, or very many. */
static size_t count_of(const job *j, int from, int to)
{
    const size_t whole = j->room / coll_type_size(type_of(j, from, to));
    const size_t counts[] = { 0, 1, 7, whole - 1, whole, whole + 1, 2 * whole + 1 };
    const bool is_used = j->call.kind == COLL_GATHERV ? to == j->call.root
                       : j->call.kind == COLL_SCATTERV ? from == j->call.root : true;

    if (!is_used) return 0;
    return j->seed % 5 == 0 && from == 0 && to == j->size - 1 ? HUGE : counts[mixed_of(j, from, to) % 7];
}

static unsigned char byte_of(int from, int to, size_t at) { return (unsigned char)(from * 131 + to * 17 + (int)(at % 251)); }

static void *need(size_t bytes)
{
    void *at = malloc(bytes ? bytes : 1);
    if (!at) exit(2);
    return at;
}

/* Lists and buffers for a call; blocks lie one behind the other, with 3 bytes between them where a type does not forbid it. */
static void make(job *j)
{
    const bool is_typed = j->call.kind == COLL_ALLTOALLW;

    j->sent = j->received = 0;
    for (int i = 0; i < j->size; i++) {
        const coll_type out = type_of(j, j->rank, i), in = type_of(j, i, j->rank);
        j->send_types[i] = out, j->recv_types[i] = in;
        j->send_counts[i] = count_of(j, j->rank, i), j->recv_counts[i] = count_of(j, i, j->rank);
        j->send_at[i] = j->sent, j->recv_at[i] = j->received;
        j->sent += j->send_counts[i] * coll_type_size(out) + 3;
        j->received += j->recv_counts[i] * coll_type_size(in) + 3;
    }
    j->send = (unsigned char *)need(j->sent), j->recv = (unsigned char *)need(j->received);
    memset(j->send, 0x11, j->sent), memset(j->recv, 0xee, j->received);
    for (int i = 0; i < j->size; i++)
        for (size_t k = 0; k < j->send_counts[i] * coll_type_size(j->send_types[i]); k++)
            j->send[j->send_at[i] + k] = byte_of(j->rank, i, k);
    j->call.type = is_typed ? 0 : COLL_U8;
    j->call.send_counts = j->send_counts, j->call.recv_counts = j->recv_counts;
    j->call.send_offsets = j->send_at, j->call.recv_offsets = j->recv_at;
    if (is_typed) j->call.send_types = j->send_types, j->call.recv_types = j->recv_types;
    j->call.send = j->send, j->call.recv = j->recv;
    if (j->call.kind == COLL_GATHERV) {
        j->call.send = j->send + j->send_at[j->call.root];
        j->call.count = j->send_counts[j->call.root];
    } else if (j->call.kind == COLL_SCATTERV) {
        j->call.recv = j->recv + j->recv_at[j->call.root];
        j->call.recv_count = j->recv_counts[j->call.root];
    }
}

static void drop(job *j) { free(j->send), free(j->recv); }

/* The first byte that is not as it should be, between the blocks too; received: all are right. */
static size_t wrong_of(const job *j)
{
    size_t at = 0;

    for (int i = 0; i < j->size; i++) {
        const size_t length = j->recv_counts[i] * coll_type_size(j->recv_types[i]);
        for (size_t k = 0; k < length + 3; k++, at++)
            if (j->recv[at] != (k < length ? byte_of(i, j->rank, k) : 0xee)) return at;
    }
    return at;
}

/* ---- >>oracle ---- */

static const coll_kind kinds[] = { COLL_ALLTOALLV, COLL_ALLTOALLW, COLL_GATHERV, COLL_SCATTERV };

static bool is_tree(coll_kind kind) { return kind == COLL_GATHERV || kind == COLL_SCATTERV; }

/* As coll_explain prints it; 0: none. */
static size_t room_of(coll_comm *comm, coll_call *call)
{
    char why[512] = "";
    size_t room = 0;

    (void)coll_explain(comm, call, why, sizeof why);
    const char *at = strstr(why, "blocks of up to ");
    if (at) room = (size_t)strtoul(at + 16, NULL, 10);
    CHECK(room >= 64 && room <= 4096, "%s: \"%s\" tells of no room", world, why);
    return room >= 64 ? room : 64;
}

/* One kind by one radix; a second time, as a prepared call that is started twice. */
static int check_kind(coll_comm *comm, coll_kind kind, const char *name, int root, unsigned seed)
{
    job j = { .call = { .kind = kind, .root = root, .algorithm = name }, .rank = coll_rank(comm), .size = coll_size(comm),
              .seed = seed };
    coll_request *prepared = NULL;
    static const size_t none[RANKS_MOST];
    coll_call plain = { .kind = kind, .root = root, .algorithm = name, .send_counts = none, .recv_counts = none,
                        .send_offsets = none, .recv_offsets = none, .type = COLL_U8 };
    if (kind == COLL_ALLTOALLW) {
        for (int i = 0; i < j.size; i++) j.send_types[i] = COLL_U8;
        plain.send_types = plain.recv_types = j.send_types;
    }
    j.room = room_of(comm, &plain);
    make(&j);
    coll_status status = coll_run(comm, &j.call);
    CHECK(status == COLL_OK, "%s: %s \"%s\" on %d: %s", world, coll_kind_name(kind), name, j.size, coll_error(comm));
    CHECK(wrong_of(&j) == j.received, "%s: %s \"%s\" on %d, root %d, seed %u: rank %d, byte %zu", world, coll_kind_name(kind),
          name, j.size, root, seed, j.rank, wrong_of(&j));
    if (status == COLL_OK) status = coll_prepare(comm, &j.call, &prepared);
    for (int i = 0; i < 2 && status == COLL_OK; i++) {
        memset(j.recv, 0xee, j.received);
        status = coll_restart(prepared);
        if (status >= 0) status = coll_wait(prepared);
        CHECK(status == COLL_OK && wrong_of(&j) == j.received, "%s: prepared %s \"%s\" on %d, start %d, seed %u: rank %d, byte "
              "%zu", world, coll_kind_name(kind), name, j.size, i, seed, j.rank, wrong_of(&j));
    }
    if (prepared) coll_request_free(prepared);
    drop(&j);
    return status;
}

/* The first kind in place: the block to a rank is as long as the block from it, and in the same place. */
static int check_in_place(coll_comm *comm, const char *name, unsigned seed)
{
    job j = { .call = { .kind = COLL_ALLTOALLV, .algorithm = name }, .rank = coll_rank(comm), .size = coll_size(comm),
              .seed = seed, .room = 256 };
    size_t counts[RANKS_MOST], at = 0;

    make(&j);
    for (int i = 0; i < j.size; i++) counts[i] = i < j.rank ? count_of(&j, i, j.rank) : count_of(&j, j.rank, i);
    free(j.recv);
    for (int i = 0; i < j.size; i++) j.recv_at[i] = at, at += counts[i];
    j.recv = (unsigned char *)need(at);
    for (int i = 0; i < j.size; i++)
        for (size_t k = 0; k < counts[i]; k++) j.recv[j.recv_at[i] + k] = byte_of(j.rank, i, k);
    j.call.send = COLL_IN_PLACE, j.call.recv = j.recv;
    j.call.send_counts = j.call.recv_counts = counts, j.call.send_offsets = j.call.recv_offsets = j.recv_at;
    const coll_status status = coll_run(comm, &j.call);
    bool is_right = status == COLL_OK;
    for (int i = 0; i < j.size; i++)
        for (size_t k = 0; k < counts[i]; k++) is_right = is_right && j.recv[j.recv_at[i] + k] == byte_of(i, j.rank, k);
    CHECK(is_right, "%s: in place by \"%s\" on %d, seed %u, rank %d: %s", world, name, j.size, seed, j.rank, coll_error(comm));
    drop(&j);
    return status;
}

static int oracle_worker(coll_comm *comm, void *arg)
{
    const int size = coll_size(comm), radices[] = { 2, 3, 5, size > 2 ? size : 2 };
    unsigned seed = (unsigned)size;
    char name[24];

    (void)arg;
    for (int r = 0; r < 4; r++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            if (!there_kind(kinds[k])) continue;
            snprintf(name, sizeof name, "%s:%d", is_tree(kinds[k]) ? "tree" : "circulant", radices[r]);
            const int roots[] = { 0, size - 1, size / 2 };
            for (int n = 0; n < (is_tree(kinds[k]) ? 3 : 2); n++)
                if (check_kind(comm, kinds[k], name, is_tree(kinds[k]) ? roots[n] : 0, seed++)) return 1;
            if (kinds[k] == COLL_ALLTOALLV && check_in_place(comm, name, seed++)) return 1;
        }
    return 0;
}

/* ---- >>ranks that disagree ---- */

/* What rank 1 sends to rank 0, and what that one expects. */
static const struct disagreement { const char *name; size_t sent, expected; const char *words[2]; } disagreements[] = {
    { "both are short", 5, 4, { "5", "4" } },
    { "both are long", 9000, 9001, { "9000", "9001" } },
    { "sent as long, expected as short", 9000, 4, { "9000", "4" } },
    { "sent as short, expected as long", 4, 9000, { "9000", NULL } },
    { "nothing is sent", 0, 4, { "4", NULL } },
    { "nothing is expected", 4, 0, { "4", NULL } },
};

typedef struct conflict { const struct disagreement *row; coll_kind kind; } conflict;

static int conflict_worker(coll_comm *comm, void *arg)
{
    static unsigned char some[RANKS_MOST * 10000], other[RANKS_MOST][RANKS_MOST * 10000];
    const conflict *q = (const conflict *)arg;
    const int rank = coll_rank(comm), size = coll_size(comm);
    size_t out[RANKS_MOST], in[RANKS_MOST], at[RANKS_MOST];
    coll_call call = { .kind = q->kind, .algorithm = is_tree(q->kind) ? "tree" : "circulant", .type = COLL_U8, .send = some,
                       .recv = other[rank], .root = q->kind == COLL_SCATTERV ? 1 : 0, .send_counts = out, .recv_counts = in,
                       .send_offsets = at, .recv_offsets = at };

    for (int i = 0; i < size; i++) out[i] = in[i] = 3, at[i] = (size_t)i * 10000;
    if (rank == 1) out[0] = q->row->sent;
    if (rank == 0) in[1] = q->row->expected;
    call.count = out[0], call.recv_count = in[1];
    coll_status status = coll_run(comm, &call);
    while (status == COLL_OK) status = coll_barrier(comm);        /* ranks whose part was done                */
    CHECK(status == COLL_ERR_MISMATCH, "%s: %s, %s, rank %d: status %d: %s", world, coll_kind_name(q->kind), q->row->name, rank,
          (int)status, coll_error(comm));
    for (int i = 0; i < 2 && q->row->words[i]; i++)
        CHECK(strstr(coll_error(comm), q->row->words[i]), "%s: %s, %s, rank %d: \"%s\" is not in \"%s\"", world,
              coll_kind_name(q->kind), q->row->name, rank, q->row->words[i], coll_error(comm));
    return 0;
}

static void test_conflicts(int size)
{
    static const coll_kind of[] = { COLL_ALLTOALLV, COLL_GATHERV, COLL_SCATTERV };

    for (int k = 0; k < 3; k++)
        for (size_t i = 0; there_kind(of[k]) && i < sizeof disagreements / sizeof *disagreements; i++) {
            conflict q = { &disagreements[i], of[k] };
            CHECK(model_run(world, size, NULL, conflict_worker, &q) == 0, "%s: the world could not be run", world);
        }
}

/* ---- >>packets that have been changed in flight ---- */

static struct tampering { int message, at; unsigned char bits; } tampering;      /* which message, which byte of it          */

static coll_status tamper_send(void *context, coll_xfer *x)
{
    if (x->channel == COLL_CHANNEL_CALLS && x->length > 64 && tampering.message-- == 0 && (size_t)tampering.at < x->length)
        ((unsigned char *)x->buffer)[tampering.at] ^= tampering.bits;
    return loop_send(context, x);
}

/* Every byte of the head of a packet, in each message of the call: either it is refused, or only the bytes of the block
 * differ.  The buffers are exactly as long as needed, so that a sanitizer finds writes behind them. */
static void test_tampering(void)
{
    coll_transport transport = loop_transport;
    long refused = 0;

    transport.send = tamper_send;
    for (int message = 0; message < 12; message++)
        for (int at = 0; at < 18; at++)
            for (int bit = 0; bit < 8; bit += 3) {
                static loop_world w;
                static job jobs[4];
                coll_call calls[4];
                CHECK(loop_open(&w, 4, &transport), "no world of 4");
                for (int i = 0; i < 4; i++) {
                    jobs[i] = (job){ .call = { .kind = COLL_ALLTOALLV, .algorithm = "circulant:2" }, .rank = i, .size = 4,
                                     .room = 64, .seed = 3 };
                    make(&jobs[i]);
                    calls[i] = jobs[i].call;
                }
                tampering = (struct tampering){ message, at, (unsigned char)(1 << bit) };
                const coll_status status = loop_run(&w, calls);
                CHECK(status == COLL_OK || status == COLL_ERR_PROTOCOL || status == COLL_ERR_MISMATCH, "message %d, byte %d: %d",
                      message, at, (int)status);
                CHECK(message >= 8 || at >= 16 || status < 0, "message %d, byte %d, bit %d: it was accepted", message, at, bit);
                refused += status < 0;
                loop_free(&w);
                for (int i = 0; i < 4; i++) drop(&jobs[i]);
            }
    CHECK(refused > 0, "nothing was refused");
}

/* ---- >>time, by the simulator's clock ---- */

#if COLL__HAS_SIM && COLL__HAS_CHOICE

typedef struct trial { size_t each; const char *algorithm; double seconds; } trial;

static int trial_worker(coll_comm *comm, void *arg)
{
    trial *t = (trial *)arg;
    const int size = coll_size(comm);
    size_t *counts = (size_t *)need((size_t)size * sizeof *counts);
    unsigned char *memory = (unsigned char *)need(2 * t->each * (size_t)size);

    for (int i = 0; i < size; i++) counts[i] = t->each;
    memset(memory, 1, 2 * t->each * (size_t)size);
    const coll_call call = { .kind = COLL_ALLTOALLV, .send = memory, .recv = memory + t->each * (size_t)size, .type = COLL_U8,
                             .send_counts = counts, .recv_counts = counts, .algorithm = t->algorithm };
    int wrong = coll_barrier(comm);
    const double began = coll_sim_time(comm);
    wrong |= coll_run(comm, &call);
    const double seconds = coll_sim_time(comm) - began;
    if (seconds > t->seconds) t->seconds = seconds;
    free(counts), free(memory);
    return wrong;
}

static double seconds_of(int size, size_t each, const char *algorithm, const coll_sim *machine)
{
    const coll_config config = { .transport = "sim", .sim = machine };
    trial t = { each, algorithm, 0 };

    CHECK(coll_spawn(size, trial_worker, &t, &config) == 0, "%d ranks, %zu bytes: not run", size, each);
    return t.seconds;
}

/* Where a message costs a rank as much work as it takes to arrive, 32 ranks are three times as fast; by the built-in numbers,
 * with which messages of nothing in the fewest rounds take 52 us of 132, more than twice.  Few ranks send straight, and what is
 * long pays little for packets. */
static void test_times(void)
{
    const coll_sim usual = { .seed = 1 }, busy = { .overhead = 12e-6 };

    if (!there_kind(COLL_ALLTOALLV)) return;
    CHECK(seconds_of(32, 64, "direct", &busy) > 3 * seconds_of(32, 64, NULL, &busy), "32 busy ranks");
    CHECK(seconds_of(32, 64, "direct", &usual) > 2.2 * seconds_of(32, 64, NULL, &usual), "32 ranks");
    CHECK(seconds_of(128, 64, "direct", &usual) > 5 * seconds_of(128, 64, NULL, &usual), "128 ranks");
    for (int size = 1; size <= 8; size++)
        CHECK(seconds_of(size, 64, NULL, &usual) <= seconds_of(size, 64, "direct", &usual), "%d ranks", size);
    CHECK(seconds_of(32, 64 << 10, NULL, &usual) < 1.05 * seconds_of(32, 64 << 10, "direct", &usual), "32 ranks, 64 KiB");
    CHECK(seconds_of(32, 1 << 20, NULL, &usual) < 1.004 * seconds_of(32, 1 << 20, "direct", &usual), "32 ranks, 1 MiB");
}

#else
static void test_times(void) { }
#endif

/* ---- >>main ---- */

int main(int count, char **words)
{
    const char *const only = count > 1 ? words[1] : "all";
    const int size_of_all = count > 2 ? atoi(words[2]) : 0;

    if (!COLL__HAS_CHOICE || !COLL__HAS_COUNTS) return CHECK_DONE();      /* there are no packets       */
    for (int i = 0; i < MODEL_WORLD_COUNT; i++) {
        world = model_worlds[i];
        if (strcmp(only, "all") && !strstr(only, world)) continue;
        const char *const why = model_refusal(world);
        if (why) {
            printf("%s: %s\n", world, why);
            continue;
        }
        const bool is_slow = !model_is_simulated(world) && strcmp(world, "threads");
        for (int size = 1; size <= RANKS_MOST; size += is_slow && size > 3 ? 6 : 1)
            if (!size_of_all || size == size_of_all)
                CHECK(model_run(world, size, NULL, oracle_worker, NULL) == 0, "%s: %d ranks could not be run", world, size);
        test_conflicts(4);
    }
    world = "loop";
    if (there_kind(COLL_ALLTOALLV)) test_tampering();
    test_times();
    return CHECK_DONE();
}
