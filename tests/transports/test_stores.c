/* test_stores.c - long results, which are written with streaming stores, each checked element by element; the bytes before and
 * behind a result stay as they were.  Processes use streaming stores only for results that no other process copies.  Of every
 * kind of codec the results have the same bits as those of a shorter call, which are written through the caches.
 *
 *     test_stores [WORLD,...] */
#define COLL__STREAMED ((size_t)2 << 20)
#define _GNU_SOURCE 1
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "rounds.h"

enum { SECONDS = 100, CALLS = 3, LONG = (2 << 20) / 4 + 77, SHIFT = 12 };

/* Does this rank use streaming stores in a call? */
static bool streams(const coll_comm *comm, const coll_call *call)
{
    const coll__codec codec = { .type_size = coll_type_size(call->type) };
    coll_task task = { .call = call, .codec = &codec };
    const coll__shm_op op = { .m = &side_of(comm)->all, .call = call, .task = &task, .form = coll__form_of(call->kind),
                              .unit = coll_type_size(call->type) };
    return coll__shm_op_streams(&op);
}

/* How many bytes around a buffer have changed. */
static int bytes_beyond(const support_buffer *b)
{
    int changed = 0;

    for (const unsigned char *at = b->block; at < b->block + b->block_length; at++)
        changed += (at < b->data || at >= b->data + b->length) && *at != SUPPORT_FILL;
    return changed;
}

typedef struct stores_case { int size; coll_kind kind; bool is_allocated; } stores_case;

/* A buffer, in memory of coll_alloc() on request. */
static support_buffer stores_buffer(coll_comm *comm, const stores_case *c, size_t length)
{
    support_buffer buffer = support_buffer_make(length, SHIFT);

    if (!c->is_allocated) return buffer;
    const size_t before = (size_t)(buffer.data - buffer.block);
    free(buffer.block);
    buffer.block = (unsigned char *)support_need(coll_alloc(comm, buffer.block_length));
    buffer.data = buffer.block + before;
    memset(buffer.block, SUPPORT_FILL, buffer.block_length);
    return buffer;
}

static void stores_buffer_free(coll_comm *comm, const stores_case *c, support_buffer *buffer)
{
    if (c->is_allocated) coll_dealloc(comm, buffer->block);
    if (c->is_allocated) buffer->block = NULL;
    support_buffer_free(buffer);
}

static int stores_worker(coll_comm *comm, void *arg)
{
    const stores_case *const c = (const stores_case *)arg;
    const coll_kind kind = c->kind;
    const bool is_pulled = kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_SCAN || kind == COLL_EXSCAN;
    const bool expected = !is_pulled || !strcmp(world, "threads") || coll_size(comm) == 1;    /* others copy it at once       */
    const int me = coll_rank(comm), size = coll_size(comm);
    const round_shape shape = round_shape_of(kind, me, size, LONG);
    const size_t in = shape.in, out = shape.out;
    support_buffer send = stores_buffer(comm, c, in * sizeof(float)), recv = stores_buffer(comm, c, out * sizeof(float));
    float *const x = (float *)(void *)send.data, *const y = (float *)(void *)recv.data;

    for (int round = 0; round < CALLS; round++) {
        const coll_call call = round_begin(&shape, x, y, round);
        CHECK(coll_run(comm, &call) == COLL_OK, "%s: %s", case_name, coll_error(comm));
        CHECK(streams(comm, &call) == expected, "%s: rank %d uses %s stores", case_name, me, expected ? "ordinary" : "streaming");
        size_t wrong = round_wrong(&shape, y, round);
        CHECK(wrong == 0, "%s: call %d: %zu elements of rank %d are wrong", case_name, round, wrong, me);
        for (size_t i = 0; kind != COLL_BROADCAST && i < in; i++) wrong += x[i] != input_at(me, i, round);
        CHECK(wrong == 0, "%s: call %d: the input of rank %d has changed", case_name, round, me);
    }
    CHECK(bytes_beyond(&recv) == 0, "%s: rank %d: %d bytes beyond the result have changed", case_name, me, bytes_beyond(&recv));
    stores_buffer_free(comm, c, &send);
    stores_buffer_free(comm, c, &recv);
    return 0;
}

/* ---- >>codecs: what is added up as it is, in another type, divided, compared ---- */

typedef struct stores_sum { coll_kind kind; coll_type type; coll_op op; unsigned flags; } stores_sum;

static const stores_sum sums[] = {
    { COLL_ALLREDUCE, COLL_I8, COLL_MAX, 0 },
    { COLL_ALLREDUCE, COLL_BOOL, COLL_LOR, 0 },
    { COLL_ALLREDUCE, COLL_F16, COLL_SUM, 0 },
    { COLL_ALLREDUCE, COLL_F16, COLL_SUM, COLL_SATURATE },
    { COLL_ALLREDUCE, COLL_F64, COLL_AVG, 0 },
    { COLL_ALLREDUCE, COLL_F32, COLL_SUM, COLL_REPRODUCIBLE },
    { COLL_ALLREDUCE, COLL_F32, COLL_SUM, COLL_DETECT_OVERFLOW },
    { COLL_ALLREDUCE, COLL_F32_I32, COLL_MINLOC, 0 },
    { COLL_REDUCE, COLL_F8E4M3, COLL_SUM, 0 },
    { COLL_REDUCE, COLL_C64, COLL_PROD, 0 },
    { COLL_REDUCE_SCATTER, COLL_BF16, COLL_AVG, 0 },
    { COLL_REDUCE_SCATTER, COLL_I64, COLL_PROD, 0 },
    { COLL_SCAN, COLL_I16, COLL_SUM, 0 },
    { COLL_SCAN, COLL_BF16, COLL_SUM, 0 },
    { COLL_SCAN, COLL_F64, COLL_MIN, 0 },
    { COLL_SCAN, COLL_F32, COLL_SUM, COLL_REPRODUCIBLE },
    { COLL_EXSCAN, COLL_F16, COLL_SUM, 0 },
    { COLL_EXSCAN, COLL_U8, COLL_BXOR, 0 },
};

/* A call, and one of an eighth of its elements, which is written through the caches; bytes at random, some of them no numbers. */
static int sums_worker(coll_comm *comm, void *arg)
{
    const stores_sum *const c = (const stores_sum *)arg;
    const int me = coll_rank(comm), blocks = c->kind == COLL_REDUCE_SCATTER ? coll_size(comm) : 1;
    const size_t unit = coll_type_size(c->type), few = COLL__STREAMED / 16 / unit + 77, count = 8 * few;
    support_buffer send = support_buffer_make((size_t)blocks * count * unit, SHIFT);
    support_buffer some = support_buffer_make((size_t)blocks * few * unit, SHIFT);
    support_buffer recv = support_buffer_make(count * unit, SHIFT), out = support_buffer_make(few * unit, SHIFT);
    uint64_t state = 0x9e3779b97f4a7c15u + (uint64_t)me;

    for (size_t i = 0; i < (size_t)blocks * count * unit; i++) send.data[i] = (unsigned char)(support_random(&state) >> 32);
    for (size_t i = 0; i < (size_t)blocks; i++)
        memcpy(some.data + i * few * unit, send.data + i * count * unit, few * unit);
    coll_call call = { .kind = c->kind, .send = send.data, .recv = recv.data, .count = count, .type = c->type, .op = c->op,
                       .flags = c->flags };
    CHECK(coll_run(comm, &call) == COLL_OK && streams(comm, &call), "%s: %s", case_name, coll_error(comm));
    call.send = some.data, call.recv = out.data, call.count = few;
    CHECK(coll_run(comm, &call) == COLL_OK && !streams(comm, &call), "%s: %s", case_name, coll_error(comm));
    const bool has_result = (c->kind != COLL_REDUCE && c->kind != COLL_EXSCAN) || (me == 0) == (c->kind == COLL_REDUCE);
    CHECK(!has_result || !memcmp(recv.data, out.data, few * unit), "%s: rank %d: streaming stores write other bits", case_name,
          me);
    CHECK(bytes_beyond(&recv) == 0, "%s: rank %d: %d bytes beyond the result have changed", case_name, me, bytes_beyond(&recv));
    support_buffer_free(&send);
    support_buffer_free(&recv);
    support_buffer_free(&some);
    support_buffer_free(&out);
    return 0;
}

static void sums_run(const void *arg)
{
    stores_sum c = *(const stores_sum *)arg;
    CHECK(support_run(world, 3, sums_worker, &c) == 0, "%s", case_name);
}

static void sums_of_threads(void)
{
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s of %s (%s), flags %u", coll_kind_name(sums[i].kind), coll_type_name(sums[i].type),
                 coll_op_name(sums[i].op), sums[i].flags);
        run_case_within(SECONDS, sums_run, &sums[i], name);
    }
}

static void stores_run(const void *arg)
{
    stores_case c = *(const stores_case *)arg;
    CHECK(support_run(world, c.size, stores_worker, &c) == 0, "%s", case_name);
}

/* Every kind, on some numbers of ranks. */
static void stores_of_world(bool is_allocated)
{
    static const int sizes[] = { 1, 2, 3, 5 };

    for (size_t k = 0; k < sizeof round_kinds / sizeof *round_kinds; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const stores_case c = { sizes[s], round_kinds[k], is_allocated };
            char name[80];
            snprintf(name, sizeof name, "%s of %d ranks%s", coll_kind_name(c.kind), c.size, is_allocated ? ", coll_alloc" : "");
            run_case_within(SECONDS, stores_run, &c, name);
        }
}

int main(int argc, char **argv)
{
    cases_begin();
    for (int at = 0; (world = support_world_next(argc > 1 ? argv[1] : "threads,tcp-domain", &at)) != NULL;) {
        stores_of_world(false);
        if (strcmp(world, "threads")) stores_of_world(true);
        else sums_of_threads();
    }
    return CHECK_DONE();
}
