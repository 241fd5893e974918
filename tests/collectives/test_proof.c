/* test_proof - every algorithm of the table, by the real engine on simulated worlds: the right data, exactly the messages and
 * bytes of the formula, no standstill where messages find no room on the way, and the time of the closed form.
 *
 *     test_proof [thorough | times | sizes | large | 65536]              COLL_TEST_SEED=... replays a seed
 *
 * By default cases are drawn: sizes up to 64, of every row and every radix at these some of the roots, counts and kinds of
 * data, 20 larger sizes, and a barrier and a broadcast of 65,536 ranks.  thorough takes all, 100 larger sizes, and a scan of
 * 65,536 ranks; a part that is named goes as far as it does there, but draws its cases.
 * Rows in which all ranks write to all others go up to 200 ranks, those that take memory or rounds
 * in proportion to the ranks on every rank up to 1,024, the others up to 4,096. */
#include "../support/inside.h"

#include <sys/resource.h>

#include "../support/check.h"
#include "../support/support.h"
#include "../support/stage.h"
#include "forms.h"

/* ---- >>cases ---- */

enum { INTS, FLOATS, ORDERED, DATA_KINDS };        /* kinds of inputs                                          */

typedef struct proof_case {
    const coll__algorithm *a;
    int    root;
    char   algorithm[32];
    size_t count;
    int    data;
} proof_case;

static proof_case *cases;
static size_t case_count, case_room;
static uint64_t seed_now;

/* The case that is being played: its world, its buffers and lists. */
static struct {
    const proof_case *c;
    int     size;
    coll__choice choice;
    long    slices;
    size_t  unit;
    size_t *in_at, *out_at;                       /* elements before each rank's input and result             */
    size_t *counts, *pairs, *back;                /* of blocks; from a rank to all; to a rank from all        */
    size_t *pairs_at, *back_at;                   /* and where these begin, in bytes                          */
    coll_type *types;
    unsigned char *input, *result;
    size_t  input_room, result_room, list_room, pair_room;
    uint64_t *sums;
    size_t  sums_room;
} now;

static bool is_reduction(coll_kind kind) { return kind >= COLL_REDUCE && kind <= COLL_EXSCAN; }
static bool is_scan(coll_kind kind) { return kind == COLL_SCAN || kind == COLL_EXSCAN; }
static bool is_neighbor(coll_kind kind) { return coll__kind_is(kind, COLL__NEIGHBORS); }

static bool is_listed(coll_kind kind)
{
    return kind == COLL_REDUCE_SCATTERV || kind == COLL_GATHERV || kind == COLL_SCATTERV || kind == COLL_ALLGATHERV
        || kind == COLL_NEIGHBOR_ALLGATHERV;
}

static bool is_paired(coll_kind kind)
{
    return kind == COLL_ALLTOALLV || kind == COLL_ALLTOALLW || kind == COLL_NEIGHBOR_ALLTOALLV || kind == COLL_NEIGHBOR_ALLTOALLW;
}

/* Blocks of `count` elements, one for each rank. */
static bool is_per_rank(coll_kind kind)
{
    return kind == COLL_REDUCE_SCATTER || kind == COLL_ALLGATHER || kind == COLL_ALLTOALL || kind == COLL_GATHER
        || kind == COLL_SCATTER;
}

/* Neighbors: to the next rank and the third one, from the same on the other side; in small worlds also itself, and one rank
 * twice. */
enum { EDGES = 2 };
static int edge_to(int rank, int j) { return form_mod(rank + 1 + 2 * j, now.size); }
static int edge_from(int rank, int j) { return form_mod(rank - 1 - 2 * j, now.size); }

static int fans(void) { return is_neighbor(now.c->a->kind) ? EDGES : now.size; }

/* Uneven lengths, some of them 0. */
static size_t listed_count(int block) { return (now.c->count + 3 * (size_t)block) % (now.c->count + 2); }
static size_t pair_count(int from, int nth) { return (now.c->count + 3 * (size_t)from + 5 * (size_t)nth) % (now.c->count + 2); }

static size_t sum_of(const size_t *list, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += list[i];
    return sum;
}

static const size_t *pairs_of(int rank) { return now.pairs + (size_t)rank * (size_t)fans(); }
static const size_t *back_of(int rank) { return now.back + (size_t)rank * (size_t)fans(); }

/* Elements of a rank's input, and of its expected result; the buffer of a broadcast is a result. */
static size_t input_length(int rank)
{
    const coll_kind kind = now.c->a->kind;
    const size_t count = now.c->count, size = (size_t)now.size;
    const bool is_root = rank == now.c->root;

    switch (kind) {
    case COLL_BARRIER: case COLL_BROADCAST: return 0;
    case COLL_REDUCE_SCATTER: case COLL_ALLTOALL: return count * size;
    case COLL_REDUCE_SCATTERV: return sum_of(now.counts, now.size);
    case COLL_SCATTER: return is_root ? count * size : 0;
    case COLL_SCATTERV: return is_root ? sum_of(now.counts, now.size) : 0;
    case COLL_GATHERV: case COLL_ALLGATHERV: case COLL_NEIGHBOR_ALLGATHERV: return now.counts[rank];
    case COLL_NEIGHBOR_ALLTOALL: return count * EDGES;
    default: return is_paired(kind) ? sum_of(pairs_of(rank), fans()) : count;
    }
}

static size_t result_length(int rank)
{
    const coll_kind kind = now.c->a->kind;
    const size_t count = now.c->count, size = (size_t)now.size;
    const bool is_root = rank == now.c->root;

    switch (kind) {
    case COLL_BARRIER: return 0;
    case COLL_REDUCE_SCATTERV: case COLL_SCATTERV: return now.counts[rank];
    case COLL_REDUCE: return is_root ? count : 0;
    case COLL_GATHER: return is_root ? count * size : 0;
    case COLL_GATHERV: return is_root ? sum_of(now.counts, now.size) : 0;
    case COLL_ALLGATHER: case COLL_ALLTOALL: return count * size;
    case COLL_ALLGATHERV: return sum_of(now.counts, now.size);
    case COLL_NEIGHBOR_ALLGATHER: case COLL_NEIGHBOR_ALLTOALL: return count * EDGES;
    default: return is_paired(kind) || kind == COLL_NEIGHBOR_ALLGATHERV ? sum_of(back_of(rank), fans()) : count;
    }
}

static unsigned char *input_of(int rank) { return now.input + now.in_at[rank] * now.unit; }
static unsigned char *result_of(int rank) { return now.result + now.out_at[rank] * now.unit; }

/* ---- >>data ---- */

typedef struct affine { uint32_t factor, term; } affine;          /* x -> factor x + term: one after the other, in order */

static affine composed(affine first, affine then)
{
    return (affine){ first.factor * then.factor, first.term * then.factor + then.term };
}

static void compose(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    const affine *first = in;
    affine *then = inout;

    for (size_t i = 0; i < count; i++) then[i] = composed(first[i], then[i]);
    (void)type, (void)context;
}

static void fill(unsigned char *to, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t x = support_random(state);
        const affine pair = { (uint32_t)x | 1, (uint32_t)(x >> 32) };
        const float real = (float)(int32_t)x / (float)(1 << (x >> 60));
        if (now.c->data == FLOATS) memcpy(to + i * 4, &real, 4);
        else memcpy(to + i * now.unit, &pair, now.unit);
    }
}

/* a op b, in the lowest bits. */
static uint64_t combined(uint64_t a, uint64_t b)
{
    affine one, other;
    float x, y;

    if (now.c->data == INTS) return (uint32_t)(a + b);
    if (now.c->data == FLOATS) {
        memcpy(&x, &a, 4), memcpy(&y, &b, 4);
        x += y;
        a = 0;
        memcpy(&a, &x, 4);
        return a;
    }
    memcpy(&one, &a, 8), memcpy(&other, &b, 8);
    one = composed(one, other);
    memcpy(&a, &one, 8);
    return a;
}

static uint64_t load(const unsigned char *from, size_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, from + i * now.unit, now.unit);
    return bits;
}

static size_t first_difference(const unsigned char *at, const uint64_t *want, size_t count)
{
    size_t i = 0;
    while (i < count && load(at, i) == want[i]) i++;
    return i;
}

/* Prefixes from left to right; floats only where that is what the row promises. */
static int check_scan(size_t count)
{
    const bool is_exclusive = now.c->a->kind == COLL_EXSCAN, is_near = now.c->data == FLOATS && !now.c->a->is_canonical;

    if (is_near) return -1;
    for (int v = 0; v < now.size; v++) {
        if (is_exclusive && v > 0 && first_difference(result_of(v), now.sums, count) < count) return v;
        for (size_t i = 0; i < count; i++)
            now.sums[i] = v ? combined(now.sums[i], load(input_of(v), i)) : load(input_of(0), i);
        if (!is_exclusive && first_difference(result_of(v), now.sums, count) < count) return v;
    }
    return -1;
}

/* The canonical order of floats is the pairwise tree; otherwise what counts is that all ranks have the same. */
static void sum_floats(size_t count)
{
    float *terms = support_need(malloc((size_t)now.size * sizeof *terms)), sum;

    for (size_t i = 0; i < count; i++) {
        for (int v = 0; v < now.size; v++) memcpy(&terms[v], input_of(v) + i * 4, 4);
        sum = support_tree_float(COLL_SUM, terms, now.size);
        now.sums[i] = 0;
        memcpy(&now.sums[i], &sum, 4);
    }
    free(terms);
    if (!now.c->a->is_canonical && now.c->a->kind == COLL_ALLREDUCE)
        for (size_t i = 0; i < count; i++) now.sums[i] = load(result_of(0), i);
}

/* The rank whose result of a reduction is wrong, -1: none. */
static int check_reduction(void)
{
    const coll_kind kind = now.c->a->kind;
    const size_t count = input_length(0);
    size_t at = 0;

    if (count > now.sums_room) now.sums = support_need(realloc(now.sums, (now.sums_room = count) * sizeof *now.sums));
    if (is_scan(kind)) return check_scan(count);
    if (now.c->data == FLOATS) sum_floats(count);
    for (int v = 0; v < now.size && now.c->data != FLOATS; v++)
        for (size_t i = 0; i < count; i++) now.sums[i] = v ? combined(now.sums[i], load(input_of(v), i)) : load(input_of(0), i);
    if (now.c->data == FLOATS && !now.c->a->is_canonical && kind != COLL_ALLREDUCE) return -1;
    for (int v = 0; v < now.size; v++) {
        const size_t length = result_length(v);
        const bool is_block = kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV;
        if (first_difference(result_of(v), now.sums + (is_block ? at : 0), length) < length) return v;
        at += length;
    }
    return -1;
}

/* Is a part of a rank's result the input of another one? */
static bool is_copy(int rank, size_t at, int from, size_t from_at, size_t count)
{
    return !memcmp(result_of(rank) + at * now.unit, input_of(from) + from_at * now.unit, count * now.unit);
}

static size_t block_at(int block) { return is_listed(now.c->a->kind) ? sum_of(now.counts, block) : (size_t)block * now.c->count; }

/* Neighbors and all-to-all: block i of the result is block j of its source. */
static bool check_exchange(int v)
{
    const coll_kind kind = now.c->a->kind;
    const bool is_gather = kind == COLL_NEIGHBOR_ALLGATHER || kind == COLL_NEIGHBOR_ALLGATHERV;
    size_t at = 0;

    for (int i = 0; i < fans(); i++) {
        const int from = is_neighbor(kind) ? edge_from(v, i) : i, nth = is_neighbor(kind) ? i : v;
        const size_t count = is_paired(kind) || kind == COLL_NEIGHBOR_ALLGATHERV ? back_of(v)[i] : now.c->count;
        const size_t from_at = is_gather ? 0 : is_paired(kind) ? sum_of(pairs_of(from), nth) : (size_t)nth * now.c->count;
        if (!is_copy(v, at, from, from_at, count)) return false;
        at += count;
    }
    return true;
}

/* The rank whose result is wrong, -1: none. */
static int check_data(void)
{
    const coll_kind kind = now.c->a->kind;
    const size_t all = now.in_at[now.size - 1] + input_length(now.size - 1);

    if (kind == COLL_BARRIER) return -1;
    if (is_reduction(kind)) return check_reduction();
    for (int v = 0; v < now.size; v++) {
        bool is_right = true;
        if (kind == COLL_BROADCAST) is_right = !memcmp(result_of(v), result_of(now.c->root), now.c->count * now.unit);
        else if (kind == COLL_SCATTER || kind == COLL_SCATTERV)
            is_right = is_copy(v, 0, now.c->root, block_at(v), result_length(v));
        else if (kind <= COLL_ALLGATHERV) is_right = result_length(v) == 0 || is_copy(v, 0, 0, 0, all);
        else is_right = check_exchange(v);
        if (!is_right) return v;
    }
    return -1;
}

/* ---- >>expected choices and messages of the library ---- */

static coll__query query_of(const proof_case *c, int size, const coll__link *link)
{
    const coll_kind kind = c->a->kind;
    const size_t unit = c->data == ORDERED ? 8 : 4;
    double bytes = (double)(c->count * unit);

    if (is_per_rank(kind)) bytes *= size;
    if (coll__kind_is(kind, COLL__SUMMED)) bytes = (double)(sum_of(now.counts, size) * unit);
    if (kind == COLL_BARRIER || coll__kind_is(kind, COLL__PAIRWISE)) bytes = 0;
    return (coll__query){ .kind = kind, .size = size, .bytes = bytes, .sum_bytes = bytes,
                          .is_exact = !is_reduction(kind) || c->data == INTS, .is_commutative = c->data != ORDERED,
                          .algorithm = c->algorithm, .link = link };
}

static int circle_of_case(void)
{
    return coll__blocks_of(now.c->a, now.size, now.choice.blocks);
}

/* The longest block, and into how many slices it goes: 128 KiB, or less where many ranks write at once, 16 KiB at least.  What a
 * root gathers or scatters in one round goes whole. */
static void settle_slices(void)
{
    const coll_kind kind = now.c->a->kind;
    const size_t size = (size_t)now.size, room = (1 << 20) / size, some = room < 128 << 10 ? room : 128 << 10;
    const size_t each = (some > 16 << 10 ? some : 16 << 10) / now.unit;
    size_t longest = now.c->count;

    if (kind == COLL_BROADCAST || (is_reduction(kind) && !is_per_rank(kind)))
        longest = form_part(longest, (size_t)circle_of_case(), 0);
    if (is_listed(kind)) longest = 0;
    for (int i = 0; is_listed(kind) && i < now.size; i++) if (now.counts[i] > longest) longest = now.counts[i];
    now.slices = now.choice.slices ? now.choice.slices : (long)((longest + each - 1) / each);
    if (now.slices > (long)longest) now.slices = (long)longest;
    const bool is_one_round = !now.choice.algorithm->has_radix || now.choice.radix >= now.size;
    const bool is_straight = is_one_round && (kind == COLL_GATHER || kind == COLL_SCATTER);
    if (now.slices < 1 || is_straight || coll__kind_is(kind, COLL__PAIRWISE | COLL__NEIGHBORS)) now.slices = 1;
}

static form form_of_case(int rank)
{
    const coll_kind kind = now.c->a->kind;
    const bool is_cut = kind == COLL_BROADCAST || (is_reduction(kind) && !is_per_rank(kind) && !is_listed(kind));

    return (form){ .kind = kind, .name = now.c->a->name, .size = now.size, .radix = now.choice.radix, .root = now.c->root,
                   .circle = circle_of_case(), .slices = now.slices, .unit = now.unit,
                   .count = kind == COLL_BARRIER ? 0 : now.c->count, .is_cut = is_cut,
                   .counts = is_listed(kind) ? now.counts : NULL,
                   .pairs = is_paired(kind) && !is_neighbor(kind) ? pairs_of(rank) : NULL,
                   .room = (size_t)now.choice.room };
}

/* To each neighbor but itself one message. */
static sums neighbor_sums(int rank)
{
    const coll_kind kind = now.c->a->kind;
    sums s = { 0, 0 };

    for (int j = 0; j < EDGES; j++) {
        if (edge_to(rank, j) == rank) continue;
        s.messages++;
        s.bytes += 32 + now.unit * (is_paired(kind) ? pairs_of(rank)[j] : kind == COLL_NEIGHBOR_ALLGATHERV ? now.counts[rank]
                                                                                                         : now.c->count);
    }
    return s;
}

/* ---- >>playing ---- */

static const coll__link *link_now;
static void (*after_case)(const stage *s);

static void make_room(int size)
{
    const size_t n = (size_t)size, pairs = n * n;

    if (n > now.list_room) {
        now.list_room = n;
        now.in_at = support_need(realloc(now.in_at, n * sizeof *now.in_at));
        now.out_at = support_need(realloc(now.out_at, n * sizeof *now.out_at));
        now.counts = support_need(realloc(now.counts, n * sizeof *now.counts));
        now.types = support_need(realloc(now.types, n * sizeof *now.types));
        for (size_t i = 0; i < n; i++) now.types[i] = COLL_I32;
    }
    if (pairs > now.pair_room && (is_paired(now.c->a->kind) || now.c->a->kind == COLL_NEIGHBOR_ALLGATHERV)) {
        now.pair_room = pairs;
        now.pairs = support_need(realloc(now.pairs, pairs * sizeof *now.pairs));
        now.back = support_need(realloc(now.back, pairs * sizeof *now.back));
        now.pairs_at = support_need(realloc(now.pairs_at, pairs * sizeof *now.pairs_at));
        now.back_at = support_need(realloc(now.back_at, pairs * sizeof *now.back_at));
    }
}

static void make_lists(void)
{
    const coll_kind kind = now.c->a->kind;

    for (int v = 0; is_listed(kind) && v < now.size; v++) now.counts[v] = listed_count(v);
    for (int v = 0; v < now.size; v++)
        for (int i = 0; i < fans(); i++) {
            const size_t at = (size_t)v * (size_t)fans() + (size_t)i;
            const int from = is_neighbor(kind) ? edge_from(v, i) : i;
            if (kind == COLL_NEIGHBOR_ALLGATHERV) now.back[at] = listed_count(from);
            if (!is_paired(kind)) continue;
            now.pairs[at] = pair_count(v, i);
            now.back[at] = pair_count(from, is_neighbor(kind) ? i : v);
            now.pairs_at[at] = i ? now.pairs_at[at - 1] + 4 * now.pairs[at - 1] : 0;
            now.back_at[at] = i ? now.back_at[at - 1] + 4 * now.back[at - 1] : 0;
        }
}

/* Lists, inputs, an empty result, and the choice that is to be made. */
static void prepare(const proof_case *c, int size, size_t number)
{
    uint64_t state = seed_now + number;
    size_t in = 0, out = 0;

    now.c = c;
    now.size = size;
    now.unit = c->data == ORDERED ? 8 : 4;
    make_room(size);
    if (is_listed(c->a->kind) || is_paired(c->a->kind)) make_lists();
    for (int v = 0; v < size; v++) {
        now.in_at[v] = in, now.out_at[v] = out;
        in += input_length(v), out += result_length(v);
    }
    if ((in + 1) * 8 > now.input_room) now.input = support_need(realloc(now.input, now.input_room = (in + 1) * 8));
    if ((out + 1) * 8 > now.result_room) now.result = support_need(realloc(now.result, now.result_room = (out + 1) * 8));
    fill(now.input, in, &state);
    memset(now.result, 0xee, out * now.unit);
    if (c->a->kind == COLL_BROADCAST) fill(result_of(c->root), c->count, &state);
    const coll__query query = query_of(c, size, link_now);
    CHECK(coll__choose(&now.choice, &query) && now.choice.algorithm == c->a, "kind %d: no \"%s\"", (int)c->a->kind, c->algorithm);
    settle_slices();
}

static coll_status play(stage *s, coll_comm *comm)
{
    static const coll_type types[DATA_KINDS] = { COLL_I32, COLL_F32, COLL_BLOB(8) };
    const int rank = coll_rank(comm);
    const coll_kind kind = now.c->a->kind;
    coll_call call = { .kind = kind, .send = input_of(rank), .recv = result_of(rank), .count = now.c->count,
                       .type = types[now.c->data], .op = now.c->data == ORDERED ? COLL_USER : COLL_SUM, .root = now.c->root,
                       .algorithm = now.c->algorithm };

    if (now.c->data == ORDERED) call.fn = compose, call.not_commutative = true;
    if (is_listed(kind)) {
        call.count = now.counts[rank];
        call.recv_count = now.counts[rank];
        call.send_counts = now.counts;
        call.recv_counts = kind == COLL_NEIGHBOR_ALLGATHERV ? back_of(rank) : now.counts;
    }
    if (is_paired(kind)) {
        call.send_counts = pairs_of(rank), call.recv_counts = back_of(rank);
        if (kind != COLL_ALLTOALLW && kind != COLL_NEIGHBOR_ALLTOALLW) return coll_run(comm, &call);
        call.send_types = call.recv_types = now.types;
        call.send_offsets = now.pairs_at + (size_t)rank * (size_t)fans();
        call.recv_offsets = now.back_at + (size_t)rank * (size_t)fans();
    }
    (void)s;
    return coll_run(comm, &call);
}

/* After a case: data, messages, bytes. */
static void check_case(const stage *s)
{
    const proof_case *c = now.c;
    const bool is_received = c->a->kind == COLL_BROADCAST && c->a->cut == COLL__CUT_MANY;
    const int wrong = check_data();
    uint64_t sent = 0, received = 0, messages = 0, expected = 0;

    CHECK(wrong < 0, "seed %llu: %s \"%s\" of %zu on %d, root %d, data %d: rank %d has a wrong result",
          (unsigned long long)seed_now, coll_kind_name(c->a->kind), c->algorithm, c->count, s->size, c->root, c->data, wrong);
    for (int v = 0; v < s->size; v++) {
        const form f = form_of_case(v);
        const sums want = is_neighbor(c->a->kind) ? neighbor_sums(v) : form_sent(&f, v);
        const uint64_t bytes = is_received ? s->records[v].received : s->records[v].sent;
        if (bytes != want.bytes || (!is_received && s->records[v].messages != want.messages)) {
            CHECK(false, "seed %llu: %s \"%s\" of %zu on %d, root %d: rank %d sends %llu messages, %llu bytes, not %llu, %llu",
                  (unsigned long long)seed_now, coll_kind_name(c->a->kind), c->algorithm, c->count, s->size, c->root, v,
                  (unsigned long long)s->records[v].messages, (unsigned long long)bytes, (unsigned long long)want.messages,
                  (unsigned long long)want.bytes);
            break;
        }
        sent += s->records[v].sent, received += s->records[v].received;
        messages += s->records[v].messages, expected += want.messages;
    }
    CHECK(sent == received && messages == expected, "%s \"%s\" of %zu on %d: %llu bytes sent, %llu received, %llu messages",
          coll_kind_name(c->a->kind), c->algorithm, c->count, s->size, (unsigned long long)sent, (unsigned long long)received,
          (unsigned long long)messages);
}

static bool next_case(stage *s)
{
    if (s->played > 0 && after_case) after_case(s);
    if ((size_t)s->played >= case_count) return false;
    prepare(&cases[s->played], s->size, (size_t)s->played);
    return true;
}

static coll_status make_neighbors(stage *s, coll_comm *comm)
{
    int from[EDGES], to[EDGES];

    now.size = s->size;
    for (int j = 0; j < EDGES; j++) from[j] = edge_from(coll_rank(comm), j), to[j] = edge_to(coll_rank(comm), j);
    return coll_neighbors(comm, from, EDGES, to, EDGES);
}

static void run_cases(int size, const coll_sim *sim, void (*after)(const stage *s))
{
    bool has_neighbors = false;
    for (size_t i = 0; i < case_count; i++) has_neighbors |= is_neighbor(cases[i].a->kind);
    const coll__link link = { sim->latency, sim->overhead, sim->seconds_per_byte, sim->seconds_per_byte_reduced, 0 };
    stage s = { .sim = sim, .size = size, .enter = has_neighbors ? make_neighbors : NULL, .next = next_case, .play = play };

    link_now = &link;
    after_case = after;
    const bool is_done = case_count == 0 || stage_run(&s);
    const proof_case *c = now.c;
    CHECK(is_done, "seed %llu: capacity %d, %s \"%s\" of %zu on %d, root %d: %s", (unsigned long long)seed_now, sim->capacity,
          c ? coll_kind_name(c->a->kind) : "", c ? c->algorithm : "", c ? c->count : 0, size, c ? c->root : 0, s.error);
}

/* ---- >>drawing cases ---- */

static uint64_t draws;

static int below(int end) { return (int)(support_random(&draws) % (uint64_t)end); }

static void add_case(const coll__algorithm *a, int number, int root, size_t count, int data)
{
    if (case_count == case_room) cases = support_need(realloc(cases, (case_room = 2 * case_room + 64) * sizeof *cases));
    proof_case *c = &cases[case_count++];
    *c = (proof_case){ .a = a, .root = root, .count = a->kind == COLL_BARRIER ? 0 : count, .data = data };
    if (number) snprintf(c->algorithm, sizeof c->algorithm, "%s:%d", a->name, number);
    else snprintf(c->algorithm, sizeof c->algorithm, "%s", a->name);
}

static bool is_data_of(const coll__algorithm *a, int data)
{
    if (data == INTS) return true;
    return is_reduction(a->kind) && (data == FLOATS ? !a->needs_exact : a->keeps_order);
}

/* Radices, or numbers of blocks or slices; 0: as the library likes. */
static int numbers_of(const coll__algorithm *a, int size, int *numbers)
{
    static const int radices[] = { 0, 2, 3, 5, 8 }, cuts[] = { 0, 1, 5, 17 };
    int count = 0;

    if (a->has_radix) {
        for (int i = 0; i < 5 && (radices[i] < size || radices[i] <= 2); i++) numbers[count++] = radices[i];
        if (size > 2 && size <= 64) numbers[count++] = size;
    } else if (coll__has_cut(a)) {
        for (int i = 0; i < 4; i++) numbers[count++] = cuts[i];
    } else {
        numbers[count++] = 0;
    }
    return count;
}

/* Long enough for several slices where the world is small, and for several messages in the place of one. */
static size_t long_count(coll_kind kind, int size)
{
    const bool is_vector = kind <= COLL_ALLREDUCE || is_scan(kind);

    if (kind == COLL_BARRIER) return 0;
    if (is_vector) return size <= 9 ? 90001 : 6000;
    return size <= 4 ? 40000 : (size_t)(20000 / size);
}

/* One of several worlds of a size: every row, with every number; all roots, counts and kinds of data, or, where not all are
 * wanted, one of each drawn, in all of the worlds or (is_thin) in one of them. */
static void draw_cases(int size, bool is_thorough, bool is_thin)
{
    case_count = 0;
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        const size_t counts[] = { 0, 1, 7, (size_t)size + 3, long_count(a->kind, size) };
        const int roots[] = { 0, size - 1, below(size) }, root_count = coll__kind_has_root(a->kind) ? 3 : 1;
        int numbers[8];
        const int number_count = numbers_of(a, size, numbers);
        for (int n = 0; n < number_count; n++) {
            for (int k = 0; is_thorough && k < root_count * 5 * DATA_KINDS; k++)
                if (is_data_of(a, k % DATA_KINDS))
                    add_case(a, numbers[n], roots[k / DATA_KINDS / 5], counts[k / DATA_KINDS % 5], k % DATA_KINDS);
            if (is_thorough || (is_thin && (number_count == 1 ? below(2) : below(4)))) continue;
            int data = below(DATA_KINDS);
            while (!is_data_of(a, data)) data--;
            add_case(a, numbers[n], roots[below(root_count)], counts[below(is_thin && below(4) ? 4 : 5)], data);
        }
    }
}

static double began_at;
static clock_t worked_at;                         /* the same moment, in time of processors                   */

static void say(const char *what, long count)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    printf("%s: %ld cases, %.1f s, at most %ld MiB so far\n", what, count, support_seconds() - began_at, used.ru_maxrss / 1024);
    fflush(stdout);
    began_at = support_seconds();
    worked_at = clock();
}

static void test_sizes(bool is_thorough, bool is_thin)
{
    static const int capacities[] = { 0, -1, 1 };
    long count = 0;

    for (int size = 2; size <= 64; size += is_thin && size > 16 ? 1 + below(7) : 1)
        for (int i = 0; i < 3; i++) {
            const coll_sim sim = { .latency = 10e-6, .overhead = 1e-6, .seconds_per_byte = 1e-9,
                                   .seconds_per_byte_reduced = 0.3e-9, .seed = seed_now + (uint64_t)size,
                                   .capacity = capacities[i] };
            draw_cases(size, is_thorough, size > 16);
            run_cases(size, &sim, check_case);
            count += (long)case_count;
        }
    say("2 to 64 ranks, any room, none, one message", count);
}

/* ---- >>time: the closed form against the virtual clock ---- */

/* Closed form / simulated time: of short vectors, one slice and no message cut in pieces; of long ones. */
static struct row_times { double least[2], most[2]; long runs; } times[COLL__ALGORITHM_COUNT];
static bool is_long;

static void time_case(const stage *s)
{
    const coll__algorithm *a = now.c->a;
    struct row_times *t = &times[a - coll__algorithms];
    const size_t elements = now.c->count * (is_per_rank(a->kind) ? (size_t)s->size : 1);
    const double bytes = a->kind == COLL_BARRIER ? 0 : (double)(elements * now.unit);
    const long slices = now.choice.slices ? now.choice.slices : 1;
    const coll__shape shape = { s->size, now.choice.radix, circle_of_case(), (double)slices, bytes, bytes, NULL };
    const double predicted = coll__sliced_cost(a, link_now, &shape, a->is_pipelined ? 1 : (double)now.slices);
    const double ratio = predicted / s->seconds;

    check_case(s);
    if (t->runs++ == 0) *t = (struct row_times){ { 1e9, 1e9 }, { 0, 0 }, 1 };
    if (ratio < t->least[is_long]) t->least[is_long] = ratio;
    if (ratio > t->most[is_long]) t->most[is_long] = ratio;
}

/* Lengths that every cut divides, so that all blocks are equal, as the closed forms have them. */
static void draw_timed(int size)
{
    static const int cuts[] = { 1, 5, 17 };

    case_count = 0;
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        const bool is_many = coll__has_cut(a), is_block = is_per_rank(a->kind);
        int numbers[8];
        if (is_listed(a->kind) || is_paired(a->kind) || is_neighbor(a->kind)) continue;
        const int number_count = is_many ? 3 : numbers_of(a, size, numbers);
        for (int n = 0; n < number_count; n++)
            for (int k = 0; k < 2; k++) {
                const size_t p = (size_t)size, some = 16000 / p / p;
                const size_t whole = is_long ? (k ? 60000 : 20000) / p : k && some ? some : 1;
                const size_t count = is_many ? 85 * (is_long ? k ? 500 : 100 : k ? 40 : 1) : is_block ? whole : whole * p;
                add_case(a, is_many ? cuts[n] : numbers[n], 0, count, INTS);
            }
    }
}

/* Where every rank does the same in a round, and all messages of it are as long, the closed form is the time.  It is not where
 * it takes the longest path through a tree for that of the last rank (gather, reduce, up the tree and down, dbtree), sees one
 * half of an algorithm begin when all of the other has ended (scatter and allgather), counts a fold that an exclusive scan
 * leaves out, or lets a rank wait in rounds without data for it (blocks); nor, by a little, where messages of a round differ
 * in length (circulant alltoall), or ranks in what they have to fold (census of a scan). */
static bool is_timed_exactly(const coll__algorithm *a)
{
    if (!strcmp(a->name, "blocks") || !strcmp(a->name, "dbtree")) return false;
    if (!strcmp(a->name, "tree")) return a->kind == COLL_BROADCAST;
    if (a->kind == COLL_BROADCAST) return false;
    if (a->kind == COLL_REDUCE || a->kind == COLL_GATHER) return !strcmp(a->name, "direct");
    if (!strcmp(a->name, "census")) return a->kind == COLL_ALLREDUCE;
    return a->kind != COLL_EXSCAN && (a->kind != COLL_ALLTOALL || !a->has_radix);
}

/* Thin: of the largest three sizes one. */
static void test_times(bool is_thin)
{
    static const int sizes[] = { 2, 3, 4, 5, 7, 8, 12, 16, 23 };
    static const coll_sim sims[] = {
        { .latency = 10e-6, .overhead = 1e-6, .seconds_per_byte = 1e-9, .seconds_per_byte_reduced = 0.3e-9 },
        { .latency = 10e-6, .overhead = 10e-6, .seconds_per_byte = 1e-9, .seconds_per_byte_reduced = 0.1e-9 },
        { .latency = 40e-6, .overhead = 4e-6, .seconds_per_byte = 8e-9, .seconds_per_byte_reduced = 0.1e-9 },
    };
    const size_t drawn = 6 + (size_t)below(3);
    long count = 0;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = 0; k < 4 && (!is_thin || i < 6 || i == drawn); k++) {
            is_long = k == 3;
            draw_timed(sizes[i]);
            run_cases(sizes[i], &sims[k % 3], time_case);
            count += (long)case_count;
        }
    printf("\n| closed form / simulated time | short vectors | several slices, or messages beyond 64 KiB |\n"
           "| --- | --- | --- |\n");
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        const struct row_times *t = &times[i];
        if (t->runs == 0) continue;
        const bool is_equal = t->least[0] > 1 - 1e-9 && t->most[0] < 1 + 1e-9;
        CHECK(is_equal || !is_timed_exactly(a), "%s \"%s\": the closed form is %.12g to %.12g of the time",
              coll_kind_name(a->kind), a->name, t->least[0], t->most[0]);
        printf("| %s %s | ", coll_kind_name(a->kind), a->name);
        if (is_equal) printf("equal");
        else printf("%.3f to %.3f", t->least[0], t->most[0]);
        printf(" | %.3f to %.3f |\n", t->least[1], t->most[1]);
    }
    say("\ntimes", count);
}

/* ---- >>many ranks ---- */

/* Up to how many: where all write to all, where every rank keeps or folds something of all, the rest. */
static int most_ranks(const coll__algorithm *a)
{
    const bool is_to_root = a->kind == COLL_GATHER || a->kind == COLL_GATHERV || a->kind == COLL_SCATTER
                          || a->kind == COLL_SCATTERV;
    const bool is_direct = !strcmp(a->name, "direct") || !strcmp(a->name, "ring") || !strcmp(a->name, "transposed");

    if (is_neighbor(a->kind) || (is_direct && !is_to_root)) return 200;
    if (coll__in_packets(a) && !is_to_root) return 400;
    if (a->kind >= COLL_REDUCE_SCATTER && !strcmp(a->name, "gather")) return 300; /* each has every block of every rank     */
    if (!strcmp(a->name, "census")) return 4096;
    if (!strcmp(a->name, "chain")) return 1024;
    return a->kind <= COLL_REDUCE || is_to_root ? 4096 : 1024;
}

/* Short vectors; long ones only where few have them. */
static void draw_large(int size, bool is_thorough)
{
    case_count = 0;
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        const bool is_small = is_per_rank(a->kind) || is_listed(a->kind) || is_paired(a->kind) || !strcmp(a->name, "gather");
        const size_t counts[] = { 0, 1, 2, 7, (size_t)size + 3 };
        int numbers[8];
        if (size > most_ranks(a) || (!is_thorough && below(size > 400 ? 12 : 4))) continue;
        const int number = numbers[below(numbers_of(a, size, numbers))], root = coll__kind_has_root(a->kind) ? below(size) : 0;
        int data = below(DATA_KINDS);
        while (!is_data_of(a, data)) data--;
        add_case(a, number, root, counts[below(is_small ? size > 500 ? 2 : 3 : 5)], data);
    }
}

static void test_large(bool is_thorough, int sizes)
{
    char text[60];
    long count = 0;

    for (int i = 0; i < sizes; i++) {
        const double step = (double)below(1000) / 1000;
        const int size = i == sizes - 1 ? 4096 : (int)(65 * pow(63, step));
        const coll_sim sim = { .latency = 10e-6, .overhead = 1e-6, .seconds_per_byte = 1e-9, .seconds_per_byte_reduced = 0.3e-9,
                               .seed = seed_now + (uint64_t)i, .capacity = i % 3 - 1 };
        draw_large(size, is_thorough);
        run_cases(size, &sim, check_case);
        count += (long)case_count;
    }
    snprintf(text, sizeof text, "%d sizes up to 4,096 ranks", sizes);
    say(text, count);
}

enum { HUGE_SIZE = 65536, HUGE_SECONDS = 60 };

/* The first case's time is that of making the world, too. */
static void check_huge(const stage *s)
{
    char text[120];
    const double seconds = (double)(clock() - worked_at) / CLOCKS_PER_SEC;          /* whatever else the machine does */

    CHECK(seconds < HUGE_SECONDS, "65,536 ranks: %s takes %g s of a processor", coll_kind_name(now.c->a->kind), seconds);
    check_case(s);
    snprintf(text, sizeof text, "65,536 ranks, %s \"%s\" in %.4g virtual us", coll_kind_name(now.c->a->kind), now.c->algorithm,
             1e6 * s->seconds);
    say(text, 1);
}

/* 65,536 ranks, one world: a barrier of the least messages, a broadcast and a scan of 8 bytes, a barrier as the library likes. */
static void test_65536(bool is_thorough)
{
    static const struct { coll_kind kind; const char *name; int number; size_t count; int data; } rows[] = {
        { COLL_BARRIER, "circulant", 2, 0, INTS }, { COLL_BROADCAST, "tree", 0, 2, INTS },
        { COLL_SCAN, "census", 0, 1, ORDERED }, { COLL_BARRIER, "circulant", 0, 0, INTS },
    };
    const coll_sim sim = { .latency = 10e-6, .overhead = 1e-6, .seconds_per_byte = 1e-9, .seconds_per_byte_reduced = 0.3e-9 };

    case_count = 0;
    for (size_t row = 0; row < (is_thorough ? 4 : 2); row++)
        for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
            const coll__algorithm *a = &coll__algorithms[i];
            if (a->kind != rows[row].kind || strcmp(a->name, rows[row].name)) continue;
            add_case(a, rows[row].number, a->kind == COLL_BROADCAST ? below(HUGE_SIZE) : 0, rows[row].count, rows[row].data);
        }
    CHECK(case_count == (is_thorough ? 4 : 2), "%zu cases", case_count);
    run_cases(HUGE_SIZE, &sim, check_huge);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    const bool is_thorough = !strcmp(part, "thorough"), is_thin = !*part, has_all = is_thorough || is_thin;

    seed_now = draws = support_seed();
    began_at = support_seconds();
    worked_at = clock();
    printf("seed %llu\n", (unsigned long long)seed_now);
    if (has_all || !strcmp(part, "times")) test_times(is_thin);
    if (has_all || !strcmp(part, "sizes")) test_sizes(is_thorough, is_thin);
    if (has_all || !strcmp(part, "large")) test_large(is_thorough, is_thin ? 20 : 100);
    if (has_all || !strcmp(part, "65536")) test_65536(!is_thin);
    return CHECK_DONE();
}
