/* test_manual.c - what the manual says about the edges of calls: the rest of a buffer in place, COLL_SATURATE of infinities,
 * neighbors that are named twice, conversions that overlap.
 *
 *     test_manual [worlds]
 */
#define _GNU_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"

enum { SECONDS = 240 };

static const char *world = "";

/* ---- >>in place: reduce_scatter leaves what is beyond the result as it was ---- */

typedef struct rest { size_t count; const char *algorithm; unsigned flags; coll_type wire; bool is_v; } rest;

static int rest_worker(coll_comm *comm, void *arg)
{
    const rest *r = arg;
    const int size = coll_size(comm), rank = coll_rank(comm);
    size_t counts[16], total = 0, before = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = r->is_v ? r->count * (size_t)(i % 3) : r->count;
        if (i < rank) before += counts[i];
        total += counts[i];
    }
    float *x = support_need(malloc((total + 8) * sizeof *x));

    for (int place = 0; place < 3; place++) {
        coll_call call = { .kind = r->is_v ? COLL_REDUCE_SCATTERV : COLL_REDUCE_SCATTER, .type = COLL_F32, .wire = r->wire,
                           .count = r->is_v ? 0 : r->count, .recv_counts = r->is_v ? counts : NULL, .algorithm = r->algorithm,
                           .flags = r->flags };
        const size_t at = place == 2 ? before : 0;
        call.recv = x + at;
        call.send = place == 0 ? COLL_IN_PLACE : x;
        for (size_t i = 0; i < total + 8; i++) x[i] = (float)((size_t)rank + i % 50);
        const coll_status status = coll_run(comm, &call);
        if (status == COLL_ERR_UNSUPPORTED) break;
        CHECK(status == COLL_OK, "%s: %s: %s", world, r->algorithm ? r->algorithm : "its choice", coll_error(comm));
        if (status < 0) break;
        size_t wrong = 0, touched = 0;
        for (size_t i = 0; i < total + 8; i++) {
            const bool is_result = i >= at && i < at + counts[rank];
            const float want = is_result ? (float)(size * (size - 1) / 2) + (float)size * (float)((before + i - at) % 50)
                                         : (float)((size_t)rank + i % 50);
            if (x[i] < want || x[i] > want) is_result ? wrong++ : touched++;
        }
        CHECK(wrong == 0 && touched == 0, "%s: rank %d of %d, %s%zu, %s, flags %u, wire %d, place %d: %zu wrong, %zu touched",
              world, rank, size, r->is_v ? "v " : "", r->count, r->algorithm ? r->algorithm : "its choice", r->flags, r->wire,
              place, wrong, touched);
    }
    free(x);
    return coll_barrier(comm);
}

static void run(int size, int (*worker)(coll_comm *comm, void *arg), const void *arg)
{
    const int result = support_run(world, size, worker, (void *)(uintptr_t)arg);

    CHECK(result == 0, "%s of %d: %d", world, size, result);
}

static void test_rest(void)
{
    static const char *const algorithms[] = { NULL, "gather", "tree", "direct", "circulant", "circulant:3", "ring" };
    static const size_t counts[] = { 1, 3, 100, 30000 };

    for (int size = 1; size <= 5; size++)
        for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++)
            for (int i = 0; i < 8; i++) {
                const rest r = { counts[i / 2], algorithms[a], a == 0 && i % 4 == 0 ? COLL_DETERMINISTIC : 0,
                                 a == 0 && i % 4 == 1 ? COLL_BF16 : 0, i % 2 };
                if ((size == 2 || size == 4) || i % 3 == 0) run(size, rest_worker, &r);
            }
}

/* ---- >>COLL_SATURATE: an infinity among the inputs ---- */

enum { LONG = 70 };                               /* elements: more than a kernel takes at once               */

typedef struct infinite { coll_type type, wire; double most; } infinite;        /* most: what it becomes; 0: NaN      */

static const infinite infinities[] = {
    { COLL_F16, 0, 65504 }, { COLL_F8E5M2, 0, 57344 }, { COLL_F8E4M3, 0, 0 }, { COLL_BF16, 0, (double)INFINITY },
    { COLL_F32, 0, (double)INFINITY }, { COLL_F64, 0, (double)INFINITY }, { COLL_F32, COLL_F16, 65504 },
    { COLL_F32, COLL_F8E4M3, 448 }, { COLL_F32, COLL_F8E5M2, 57344 }, { COLL_F64, COLL_F16, 65504 },
    { COLL_F16, COLL_F8E5M2, 57344 }, { COLL_BF16, COLL_F16, 65280 }, { COLL_F16, COLL_BF16, 65280 },
    { COLL_F32, COLL_BF16, (double)INFINITY },
};

/* Element 3 is +infinity on one rank, element 66 -infinity on all, element 5 NaN; everything else is 1. */
static int infinite_worker(coll_comm *comm, void *arg)
{
    static const coll_kind kinds[] = { COLL_ALLREDUCE, COLL_SCAN, COLL_REDUCE_SCATTER };
    static const coll_op ops[] = { COLL_SUM, COLL_PROD, COLL_MIN, COLL_MAX };
    const infinite *f = arg;
    const int size = coll_size(comm);
    double *in = support_need(malloc((size_t)size * LONG * sizeof *in)), out[LONG];
    void *a = support_need(malloc((size_t)size * LONG * 8)), *b = support_need(malloc(LONG * 8));

    for (int k = 0; k < 3 * 4; k++) {
        const coll_kind kind = kinds[k / 4];
        const coll_op op = ops[k % 4];
        const int blocks = kind == COLL_REDUCE_SCATTER ? size : 1;
        for (int i = 0; i < blocks * LONG; i++)
            in[i] = i % LONG == 3 && (coll_rank(comm) == 0 || op == COLL_MIN) ? (double)INFINITY : i % LONG == 66
                ? -(double)INFINITY : i % LONG == 5 ? (double)NAN : 1;
        /* the product of several of them is positive or not: one will do */
        for (int i = 0; i < blocks; i++) if (op == COLL_PROD && coll_rank(comm) > 0) in[i * LONG + 66] = 1;
        CHECK(coll_convert(a, f->type, in, COLL_F64, (size_t)blocks * LONG) == COLL_OK, "%s: type %d", world, f->type);
        const coll_call call = { .kind = kind, .send = a, .recv = b, .count = LONG, .type = f->type, .wire = f->wire, .op = op,
                                 .flags = COLL_SATURATE };
        CHECK(coll_run(comm, &call) == COLL_OK && coll_convert(out, COLL_F64, b, f->type, LONG) == COLL_OK, "%s: %s", world,
              coll_error(comm));
        for (int at = 3; at <= 66; at += 63) {
            const double want = at == 3 ? f->most : -f->most;
            const bool is_right = f->most > 0 ? !(out[at] < want) && !(out[at] > want) && out[at] == out[at] : out[at] != out[at];
            CHECK(is_right, "%s: rank %d of %d: %s (%s) of %s over %s: %g, not %g", world, coll_rank(comm), size,
                  coll_kind_name(kind), coll_op_name(op), coll_type_name(f->type), coll_type_name(f->wire), out[at], want);
        }
        CHECK(out[5] != out[5], "%s: NaN becomes %g", world, out[5]);
    }
    free(in);
    free(a);
    free(b);
    return coll_barrier(comm);
}

/* ---- >>neighbors that are named several times ---- */

/* Rank r names all ranks twice, and the one behind it three times, as destinations in falling and as sources in rising order. */
static int neighbor_worker(coll_comm *comm, void *arg)
{
    const int size = coll_size(comm), me = coll_rank(comm), next = (me + 1) % size, before = (me + size - 1) % size;
    int to[40], from[40], n = 0, m = 0;
    int32_t out[40], in[40];
    size_t ones[40], bytes[40];
    coll_type types[40];

    (void)arg;
    for (int turn = 0; turn < 2; turn++) for (int r = size; r-- > 0;) to[n++] = r;
    to[n++] = next;
    from[m++] = before;
    for (int turn = 0; turn < 2; turn++) for (int r = 0; r < size; r++) from[m++] = r;
    CHECK(coll_neighbors(comm, from, m, to, n) == COLL_OK, "%s: %s", world, coll_error(comm));
    for (int form = 0; form < 3; form++) {
        for (int i = 0, seen[16] = { 0 }; i < n; i++) out[i] = me * 100 + seen[to[i]]++;
        for (int i = 0; i < m; i++) ones[i] = 1, bytes[i] = (size_t)i * 4, types[i] = COLL_I32, in[i] = -1;
        const coll_status status = form == 0 ? coll_neighbor_alltoall(comm, out, in, 1, COLL_I32)
            : form == 1 ? coll_neighbor_alltoallv(comm, out, ones, NULL, in, ones, NULL, COLL_I32)
            : coll_neighbor_alltoallw(comm, out, ones, bytes, types, in, ones, bytes, types);
        CHECK(status == COLL_OK, "%s: %s", world, coll_error(comm));
        for (int i = 0, seen[16] = { 0 }; i < m; i++) {
            const int32_t want = from[i] * 100 + seen[from[i]]++;
            CHECK(in[i] == want, "%s: rank %d of %d, form %d: from place %d comes %d, not %d", world, me, size, form, i,
                  (int)in[i], (int)want);
        }
    }
    return coll_barrier(comm);
}

/* ---- >>conversions that overlap ---- */

static void test_overlaps(void)
{
    enum { MOST = 1500 };
    static const coll_type types[] = { COLL_F8E4M3, COLL_F8E5M2, COLL_F16, COLL_BF16, COLL_F32, COLL_F64 };
    static double memory[2 * MOST];
    double start[MOST];
    static unsigned char apart[MOST * 8];
    unsigned char *const at = (unsigned char *)memory + MOST * 4;

    world = "no world";
    for (int i = 0; i < MOST; i++) start[i] = (i % 17) * 0.25 - 2;
    for (int k = 0; k < 6 * 6 * 2; k++) {
        const coll_type from = types[k / 2 / 6], to = types[k / 2 % 6];
        const size_t size = coll_type_size(from), own = coll_type_size(to);
        const bool is_drawn = k % 2;
        for (size_t count = 1; count <= MOST; count = count * 5 + 7) {
            const ptrdiff_t shifts[] = { 0, (ptrdiff_t)(count * size), -(ptrdiff_t)(count * own), 8, -8 };
            for (int s = 0; s < 5; s++) {
                unsigned char *const dst = at + shifts[s];
                const bool is_apart = shifts[s] >= (ptrdiff_t)(count * size) || -shifts[s] >= (ptrdiff_t)(count * own);
                const bool is_fine = from == to || is_apart || (shifts[s] == 0 && size == own);
                if (shifts[s] < -(ptrdiff_t)MOST * 4 || shifts[s] + (ptrdiff_t)(count * own) > MOST * 12) continue;
                CHECK(coll_convert(at, from, start, COLL_F64, count) == COLL_OK, "%d elements", (int)count);
                static unsigned char before[sizeof memory];
                memcpy(before, memory, sizeof memory);
                coll_status whole, status;
                if (is_drawn) {
                    whole = coll_convert_stochastic(apart, to, before + (at - (unsigned char *)memory), from, count, 7, 3);
                    status = coll_convert_stochastic(dst, to, at, from, count, 7, 3);
                } else {
                    whole = coll_convert(apart, to, before + (at - (unsigned char *)memory), from, count);
                    status = coll_convert(dst, to, at, from, count);
                }
                CHECK(whole == COLL_OK && status == (is_fine ? COLL_OK : COLL_ERR_ARGUMENT), "%s to %s, %d elements, %d bytes "
                      "off: %d", coll_type_name(from), coll_type_name(to), (int)count, (int)shifts[s], (int)status);
                CHECK(is_fine ? !memcmp(dst, apart, count * own) : !memcmp(before, memory, sizeof memory),
                      "%s to %s, %d elements, %d bytes off: other bits", coll_type_name(from), coll_type_name(to), (int)count,
                      (int)shifts[s]);
            }
        }
    }
    float x[20] = { 1, 2, 3 }, y[3] = { 1, 2, 3 };
    CHECK(coll_reduce_local(x + 1, x, 3, COLL_F32, COLL_SUM) == COLL_ERR_ARGUMENT, "sums that overlap");
    CHECK(coll_reduce_local(x, x, 3, COLL_F32, COLL_SUM) == COLL_OK && x[2] > 5, "%g", (double)x[2]);
    CHECK(coll_reduce_local(x + 3, y, 3, COLL_F32, COLL_SUM) == COLL_OK, "sums apart");
}

int main(int argc, char **argv)
{
    setenv("COLL_SIM", "hosts=2", 1);
    support_limit(SECONDS, NULL);
    for (int at = 0; (world = support_world_next(argc > 1 ? argv[1] : NULL, &at)) != NULL;) {
        test_rest();
        for (int size = 1; size <= 4; size++) {
            for (size_t k = 0; k < sizeof infinities / sizeof *infinities; k++) run(size, infinite_worker, &infinities[k]);
            run(size, neighbor_worker, NULL);
        }
    }
    test_overlaps();
    return CHECK_DONE();
}
