/* strides.h - blocks that are columns of a matrix, on one communicator: against a model that moves one element after the other.
 * Used after coll.h, check.h, support.h and cases.h. */
#ifndef STRIDES_H
#define STRIDES_H

enum { CASES = 60, RANKS_MOST = 17, UNIT_MOST = 16, COUNT_MOST = 210, ROOM = 3 * COUNT_MOST * (RANKS_MOST + 3) };

static const coll_kind kinds[] = { COLL_BROADCAST, COLL_GATHER, COLL_SCATTER, COLL_ALLGATHER, COLL_ALLTOALL };
static const coll_type types[] = { COLL_U8, COLL_F32, COLL_F64, COLL_C128 };
static const size_t counts[] = { 0, 1, 5, 6, 12, 30, 35, COUNT_MOST };

/* A call, the same on all ranks; and how one of them has it. */
typedef struct one { uint64_t seed; int size, root; coll_kind kind; coll_type type; size_t count, unit; } one;
typedef struct shape { size_t row, send_stride, recv_stride; bool is_in_place, is_marked; } shape;

/* Buffers begin here, in elements, between areas that must not be written. */
enum { FRONT = 5 };

typedef struct buffers { unsigned char *send, *recv, *sent, *expected; } buffers;

static uint64_t drawn(uint64_t seed, int i) { return support_mix(seed * 977 + (uint64_t)i); }

static one one_of(uint64_t seed, int size)
{
    one c = { .seed = seed, .size = size, .root = (int)(drawn(seed, 0) % (uint64_t)size) };

    c.kind = kinds[drawn(seed, 1) % 5];
    c.type = types[drawn(seed, 2) % 4];
    c.count = counts[drawn(seed, 3) % (sizeof counts / sizeof *counts)];
    c.unit = coll_type_size(c.type);
    return c;
}

static bool sends_many(const one *c) { return c->kind == COLL_SCATTER || c->kind == COLL_ALLTOALL; }
static bool receives_many(const one *c) { return c->kind != COLL_SCATTER && c->kind != COLL_BROADCAST; }

static size_t stride_of(uint64_t draw, size_t least)
{
    return draw % 4 == 0 ? 0 : least + (draw % 4 == 1 ? 0 : draw / 4 % (least < COUNT_MOST ? least + 9 : 9));
}

static shape shape_of(const one *c, int rank)
{
    const uint64_t seed = support_mix(c->seed ^ (uint64_t)(rank + 1) << 40);
    const size_t size = (size_t)c->size;
    shape s = { .row = c->count ? drawn(seed, 0) % c->count + 1 : 3 };

    while (c->count % s.row) s.row--;
    if (c->kind != COLL_BROADCAST) s.send_stride = stride_of(drawn(seed, 1), s.row * (sends_many(c) ? size : 1));
    s.recv_stride = stride_of(drawn(seed, 2), s.row * (receives_many(c) ? size : 1));
    const bool may = c->kind == COLL_ALLGATHER || c->kind == COLL_ALLTOALL || (c->kind != COLL_BROADCAST && rank == c->root);
    s.is_in_place = may && drawn(seed, 3) % 3 == 0;
    s.is_marked = drawn(seed, 4) % 2;
    if (s.is_in_place && c->kind == COLL_SCATTER) s.recv_stride = s.send_stride;
    else if (s.is_in_place) s.send_stride = s.recv_stride;
    return s;
}

/* Where element k of block b is, in elements. */
static size_t place_of(const one *c, size_t row, size_t stride, int b, size_t k)
{
    if (!stride) return (size_t)b * c->count + k;
    return k / row * stride + (size_t)b * row + k % row;
}

/* Bytes with which the memory of a rank begins. */
static unsigned char byte_of(const one *c, int rank, bool is_recv, size_t i)
{
    return (unsigned char)support_mix(c->seed ^ (uint64_t)rank << 48 ^ (uint64_t)is_recv << 47 ^ i);
}

/* Element k of what `rank` has for rank `to`. */
static void input_of(const one *c, int rank, int to, size_t k, unsigned char *out)
{
    const shape s = shape_of(c, rank);
    const bool is_recv = c->kind == COLL_BROADCAST || (s.is_in_place && c->kind != COLL_SCATTER);
    const int block = sends_many(c) ? to : is_recv && c->kind != COLL_BROADCAST ? rank : 0;
    const size_t at = FRONT + place_of(c, s.row, is_recv ? s.recv_stride : s.send_stride, block, k);

    for (size_t i = 0; i < c->unit; i++) out[i] = byte_of(c, rank, is_recv, at * c->unit + i);
}

/* What the memory of a rank is to be: as it was, but for the elements that it receives. */
static void expect(const one *c, int me, const buffers *b)
{
    const shape s = shape_of(c, me);
    const bool receives = c->kind != COLL_GATHER || me == c->root;

    for (size_t i = 0; i < (size_t)ROOM * c->unit; i++) {
        b->send[i] = b->sent[i] = byte_of(c, me, false, i);
        b->recv[i] = b->expected[i] = byte_of(c, me, true, i);
    }
    if (!receives || (c->kind == COLL_SCATTER && s.is_in_place)) return;
    for (int from = 0; from < (receives_many(c) ? c->size : 1); from++)
        for (size_t k = 0; k < c->count; k++) {
            const int source = receives_many(c) ? from : c->root;
            const size_t at = FRONT + place_of(c, s.row, s.recv_stride, from, k);
            input_of(c, source, me, k, b->expected + at * c->unit);
        }
}

static coll_call call_of(const one *c, int me, const buffers *b)
{
    const shape s = shape_of(c, me);
    const size_t skip = place_of(c, s.row, s.recv_stride, me, 0) * c->unit;
    const bool is_scatter = c->kind == COLL_SCATTER, is_swapped = c->kind == COLL_ALLTOALL;
    coll_call call = { .kind = c->kind, .type = c->type, .count = c->count, .root = c->root, .row = s.row,
                       .send_stride = s.send_stride, .recv_stride = s.recv_stride };

    call.send = b->send + FRONT * c->unit;
    call.recv = b->recv + FRONT * c->unit;
    if (c->kind == COLL_BROADCAST) call.send = NULL;
    if (!s.is_in_place) return call;
    if (is_scatter) call.recv = s.is_marked ? COLL_IN_PLACE : b->send + FRONT * c->unit + skip;
    else call.send = s.is_marked ? COLL_IN_PLACE : (unsigned char *)call.recv + (is_swapped ? 0 : skip);
    return call;
}

static coll_status run(coll_comm *comm, const coll_call *call, int how)
{
    coll_request *r = NULL;
    coll_status status;

    if (how == 0) return coll_run(comm, call);
    status = how == 1 ? coll_start(comm, call, &r) : coll_prepare(comm, call, &r);
    if (status == COLL_OK && how == 2) status = coll_restart(r);
    if (status == COLL_OK) status = coll_wait(r);
    coll_request_free(r);
    return status;
}

static void compare(coll_comm *comm, uint64_t seed, const buffers *b)
{
    const one c = one_of(seed, coll_size(comm));
    const int me = coll_rank(comm);

    expect(&c, me, b);
    const coll_call call = call_of(&c, me, b);
    const coll_status status = run(comm, &call, (int)(drawn(seed, 7) % 3));
    CHECK(status == COLL_OK, "%s: seed %llu, %s: %s", case_name, (unsigned long long)seed, coll_kind_name(c.kind),
          coll_error(comm));
    const size_t length = (size_t)ROOM * c.unit;
    CHECK(!memcmp(b->recv, b->expected, length) && !memcmp(b->send, b->sent, length),
          "%s: seed %llu, %s of %zu on rank %d: %s is not right", case_name, (unsigned long long)seed, coll_kind_name(c.kind),
          c.count, me, memcmp(b->recv, b->expected, length) ? "recv" : "send");
}

/* ---- >>what programs do ---- */

/* A matrix that is spread by rows becomes one that is spread by columns, and back; and a result is beside its input. */
static void transpose(coll_comm *comm)
{
    enum { ROWS = 3, COLUMNS = 2 };               /* of each rank                                             */
    const int size = coll_size(comm), me = coll_rank(comm), wide = COLUMNS * size;
    float *by_rows = calloc((size_t)(ROWS * wide), sizeof *by_rows), *back = calloc((size_t)(ROWS * wide), sizeof *back);
    float *by_columns = calloc((size_t)(ROWS * wide), sizeof *by_columns);
    bool is_right = true;

    for (int i = 0; i < ROWS * wide; i++) by_rows[i] = (float)(me * ROWS * wide + i);
    const coll_call there = { .kind = COLL_ALLTOALL, .send = by_rows, .recv = by_columns, .count = ROWS * COLUMNS,
                              .type = COLL_F32, .row = COLUMNS, .send_stride = (size_t)wide };
    const coll_call again = { .kind = COLL_ALLTOALL, .send = by_columns, .recv = back, .count = ROWS * COLUMNS, .type = COLL_F32,
                              .row = COLUMNS, .recv_stride = (size_t)wide };
    CHECK(!coll_run(comm, &there) && !coll_run(comm, &again), "%s: %s", case_name, coll_error(comm));
    for (int i = 0; i < ROWS * size; i++)
        for (int k = 0; k < COLUMNS; k++) is_right &= by_columns[i * COLUMNS + k] == (float)(i * wide + me * COLUMNS + k);
    CHECK(is_right && !memcmp(by_rows, back, (size_t)(ROWS * wide) * sizeof *back), "%s: a transposition", case_name);
    free(by_rows);
    free(by_columns);
    free(back);
}

static void beside(coll_comm *comm)
{
    const int size = coll_size(comm), me = coll_rank(comm), wide = size + 1;
    int32_t *m = calloc((size_t)(2 * wide), sizeof *m);
    const coll_call c = { .kind = COLL_ALLGATHER, .send = m + size, .recv = m, .count = 2, .type = COLL_I32, .row = 1,
                          .send_stride = (size_t)wide, .recv_stride = (size_t)wide };
    bool is_right = true;

    m[size] = me, m[wide + size] = 100 + me;
    CHECK(!coll_run(comm, &c), "%s: %s", case_name, coll_error(comm));
    for (int i = 0; i < size; i++) is_right &= m[i] == i && m[wide + i] == 100 + i;
    CHECK(is_right && m[size] == me && m[wide + size] == 100 + me, "%s: a column beside the others", case_name);
    free(m);
}

/* ---- >>mistakes ---- */

typedef struct mistake { coll_call call; const char *words[4]; } mistake;

static void mistakes(coll_comm *comm)
{
    static float x[400], y[400];
    const size_t size = (size_t)coll_size(comm);
#define ALLGATHER .kind = COLL_ALLGATHER, .send = x, .recv = y, .type = COLL_F32
    const mistake all[] = {
        { { ALLGATHER, .count = 6, .recv_stride = 40 }, { "recv_stride is 40", "row is 0" } },
        { { ALLGATHER, .count = 7, .row = 3, .recv_stride = 60 }, { "count is 7", "rows of 3" } },
        { { ALLGATHER, .count = 6, .row = 3, .recv_stride = 3 * size - 1 }, { "recv_stride", "too short", "or more" } },
        { { ALLGATHER, .count = 6, .row = 3, .send_stride = 2 }, { "send_stride 2", "shorter than a row of 3" } },
        { { ALLGATHER, .count = 6, .row = 3, .send_stride = SIZE_MAX / 4 }, { "send_stride", "more than memory" } },
        { { .kind = COLL_ALLGATHER, .send = y + 1, .recv = y, .type = COLL_F32, .count = 6, .row = 3, .recv_stride = 60 },
          { "overlap" } },
        { { .kind = COLL_ALLGATHER, .send = x, .type = COLL_F32, .count = 6, .row = 3, .recv_stride = 60 }, { "recv is NULL" } },
        { { .kind = COLL_BROADCAST, .recv = y, .type = COLL_F32, .count = 6, .row = 3, .send_stride = 9 },
          { "give recv_stride" } },
        { { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .type = COLL_F32, .op = COLL_SUM, .count = 6, .row = 3 },
          { "mean nothing", "alltoall" } },
        { { .kind = COLL_BARRIER, .row = 1 }, { "mean nothing" } },
        { { ALLGATHER, .count = SIZE_MAX / 8, .row = 1, .recv_stride = 60 }, { "more than memory" } },
        { { .kind = COLL_ALLGATHER, .send = x, .recv = y, .type = (coll_type)77, .count = 6, .row = 3, .recv_stride = 60 },
          { "invalid type 77" } },
    };
#undef ALLGATHER
    if (size < 2) return;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        coll_request *r = NULL;
        const bool is_refused = coll_run(comm, &all[i].call) == COLL_ERR_ARGUMENT
                             && coll_start(comm, &all[i].call, &r) == COLL_ERR_ARGUMENT && !r;
        CHECK(is_refused && says(coll_error(comm), all[i].words, 4), "%s: mistake %zu: %s", case_name, i, coll_error(comm));
    }
    transpose(comm);
}

/* ---- >>all of it ---- */

static int strides_worker(coll_comm *comm, void *arg)
{
    const uint64_t seed = *(const uint64_t *)arg;
    const int cases = (int)(CASES * support_scale());
    unsigned char *memory = calloc(4, (size_t)ROOM * UNIT_MOST);
    const size_t each = (size_t)ROOM * UNIT_MOST;
    const buffers b = { memory, memory + each, memory + 2 * each, memory + 3 * each };

    for (int i = 0; i < cases && memory; i++) compare(comm, seed * 1000 + (uint64_t)i, &b);
    transpose(comm);
    beside(comm);
    mistakes(comm);
    free(memory);
    return 0;
}

#endif /* STRIDES_H */
