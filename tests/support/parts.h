/* parts.h - vectors so long that one part of them is on the rails while hosts work on others (coll_hierarchical.h): allreduce,
 * reduce and broadcast, of every width, compared with the expected results. */
#ifndef TESTS_PARTS_H
#define TESTS_PARTS_H

#include "check.h"
#include "support.h"

enum { LONG = (3 << 20) / 2 + 77 };               /* elements: 3 parts of 16 bits, 6 of 32, and 8 of 64       */

/* The input of `rank`: small whole numbers, so that every sum is exact in every type. */
SUPPORT int brought(size_t i, int rank) { return (int)(i * 7 + i / 1000 + (size_t)rank * 3) % 5; }

SUPPORT int parts_worker(coll_comm *comm, void *arg)
{
    static const coll_type types[] = { COLL_F32, COLL_BF16, COLL_F64, COLL_I32 };
    const int size = coll_size(comm), me = coll_rank(comm), root = size - 1;
    float *const x = support_need(malloc(LONG * sizeof *x));
    unsigned char *const in = support_need(malloc(8 * LONG)), *const out = support_need(malloc(8 * LONG));
    unsigned char *const sum = support_need(malloc(8 * LONG)), *const roots = support_need(malloc(8 * LONG));

    (void)arg;
    for (int t = 0; t < (support_scale() < 1 ? 2 : 4); t++) {
        const coll_type type = types[t];
        const size_t unit = coll_type_size(type), length = LONG * unit;
        for (size_t i = 0; i < LONG; i++) x[i] = 0;
        for (int r = 0; r < size; r++)
            for (size_t i = 0; i < LONG; i++) x[i] += (float)brought(i, r);
        const bool is_int = type == COLL_I32;
        for (size_t i = 0; i < LONG && is_int; i++) ((int32_t *)(void *)sum)[i] = (int32_t)x[i];
        if (!is_int) coll_convert(sum, type, x, COLL_F32, LONG);
        for (int side = 0; side < 2; side++) {    /* our own input, and the root's                            */
            unsigned char *const to = side ? roots : in;
            for (size_t i = 0; i < LONG; i++) x[i] = (float)brought(i, side ? root : me);
            for (size_t i = 0; i < LONG && is_int; i++) ((int32_t *)(void *)to)[i] = (int32_t)x[i];
            if (!is_int) coll_convert(to, type, x, COLL_F32, LONG);
        }
        CHECK(!coll_allreduce(comm, in, out, LONG, type, COLL_SUM) && !memcmp(out, sum, length),
              "allreduce of %s, rank %d of %d: %s",
              coll_type_name(type), me, size, coll_error(comm));
        memcpy(out, in, length);
        CHECK(!coll_allreduce(comm, out, out, LONG, type, COLL_SUM) && !memcmp(out, sum, length),
              "allreduce of %s in place, rank %d of %d: %s", coll_type_name(type), me, size, coll_error(comm));
        memset(out, 7, length);
        CHECK(!coll_reduce(comm, in, out, LONG, type, COLL_SUM, root) && (me != root || !memcmp(out, sum, length)),
              "reduce of %s, rank %d of %d", coll_type_name(type), me, size);
        for (size_t i = 0; i < length && me != root; i++)
            if (out[i] != 7) {
                CHECK(false, "reduce of %s: rank %d of %d has byte %zu overwritten", coll_type_name(type), me, size, i);
                break;
            }
        if (me == root) memcpy(out, in, length);
        CHECK(!coll_broadcast(comm, out, LONG, type, root) && !memcmp(out, roots, length), "broadcast of %s, rank %d of %d: %s",
              coll_type_name(type), me, size, coll_error(comm));
        if (type != COLL_F32) continue;
        CHECK(!coll_allreduce_mixed(comm, in, out, LONG, type, COLL_BF16, COLL_SUM) && !memcmp(out, sum, length),
              "allreduce of f32 over bf16, rank %d of %d: %s", me, size, coll_error(comm));
    }
    free(x);
    free(in);
    free(out);
    free(sum);
    free(roots);
    return 0;
}

#endif /* TESTS_PARTS_H */
