/* test_unused - arguments that a rank does not need are not read: the buffer, the counts and the offsets that only the root has
 * may be any pointer on other ranks, in every world. */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"

enum { RANKS = 3, EACH = 400000, MOST = RANKS * EACH };   /* up to what is long enough for stores past the caches         */

typedef struct buffers { float in[MOST], out[MOST]; } buffers;

static void *const nowhere = (void *)(uintptr_t)8;

static void fill(float *x, int from, size_t count)
{
    for (size_t i = 0; i < count; i++) x[i] = (float)(from * 10000 + (int)(i % 9973));
}

/* Gather and scatter, with counts and without, by every root. */
static int rooted(coll_comm *comm, void *arg)
{
    static const size_t sizes[] = { 0, 3, 300, EACH };
    buffers *const b = (buffers *)support_need(malloc(sizeof *b));
    const int rank = coll_rank(comm), ranks = coll_size(comm);

    for (int root = 0; root < ranks; root++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int how = 0; how < 4; how++) {
                const bool is_root = rank == root, is_gather = how % 2 == 0, has_counts = how > 1;
                size_t counts[RANKS], offsets[RANKS], n = sizes[s];
                for (int i = 0; i < ranks; i++) counts[i] = n, offsets[i] = (size_t)i * n;
                coll_call call = { .kind = is_gather ? has_counts ? COLL_GATHERV : COLL_GATHER
                                                     : has_counts ? COLL_SCATTERV : COLL_SCATTER,
                                   .send = b->in, .recv = b->out, .count = n, .recv_count = n, .type = COLL_F32, .root = root };
                fill(b->in, is_gather ? rank : root, is_gather ? n : n * (size_t)ranks);
                fill(b->out, 77, MOST);
                if (is_gather && !is_root) call.recv = nowhere;
                if (!is_gather && !is_root) call.send = nowhere;
                const size_t *const list = is_root ? counts : nowhere, *const places = is_root ? offsets : nowhere;
                if (is_gather && has_counts) call.recv_counts = list, call.recv_offsets = places;
                if (!is_gather && has_counts) call.send_counts = list, call.send_offsets = places;
                const there_lack lack = there_call(&call);
                const coll_status status = coll_run(comm, &call);
                if (lack.count) {
                    CHECK(there_refuses(&lack, status, coll_error(comm)), "%s: %s", (const char *)arg, coll_error(comm));
                    continue;
                }
                CHECK(status == COLL_OK, "%s: %s of %zu, root %d: %s", (const char *)arg, coll_kind_name(call.kind), n, root,
                      coll_error(comm));
                for (int from = 0; is_gather && is_root && from < ranks; from++)
                    for (size_t i = 0; i < n; i++)
                        if (b->out[(size_t)from * n + i] != (float)(from * 10000 + (int)(i % 9973))) {
                            CHECK(false, "%s: %s of %zu, root %d: wrong at %zu of rank %d", (const char *)arg,
                                  coll_kind_name(call.kind), n, root, i, from);
                            break;
                        }
                for (size_t i = 0; !is_gather && i < n; i++)
                    if (b->out[i] != (float)(root * 10000 + (int)(((size_t)rank * n + i) % 9973))) {
                        CHECK(false, "%s: %s of %zu, root %d: wrong at %zu", (const char *)arg, coll_kind_name(call.kind), n,
                              root, i);
                        break;
                    }
            }
    free(b);
    return 0;
}

/* Reduce and broadcast, in place and not: a rank that is not the root has no result, and no input of a broadcast. */
static int reduced(coll_comm *comm, void *arg)
{
    static const size_t sizes[] = { 1, 300, EACH };
    buffers *const b = (buffers *)support_need(malloc(sizeof *b));
    const int rank = coll_rank(comm);

    for (int root = 0; root < coll_size(comm); root++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const size_t n = sizes[s];
            for (size_t i = 0; i < n; i++) b->in[i] = (float)(rank + 1), b->out[i] = -1;
            const coll_call call = { .kind = COLL_REDUCE, .send = b->in, .recv = rank == root ? (void *)b->out : nowhere,
                                     .count = n, .type = COLL_F32, .op = COLL_SUM, .root = root };
            CHECK(coll_run(comm, &call) == COLL_OK, "%s: reduce: %s", (const char *)arg, coll_error(comm));
            const float sum = (float)(coll_size(comm) * (coll_size(comm) + 1) / 2);
            CHECK(rank != root || (b->out[0] == sum && b->out[n - 1] == sum), "%s: reduce of %zu", (const char *)arg, n);
            const coll_call one = { .kind = COLL_BROADCAST, .send = nowhere, .recv = b->in, .count = n, .type = COLL_F32,
                                    .root = root };
            CHECK(coll_run(comm, &one) == COLL_OK, "%s: broadcast: %s", (const char *)arg, coll_error(comm));
            CHECK(b->in[n - 1] == (float)(root + 1), "%s: broadcast of %zu", (const char *)arg, n);
        }
    free(b);
    return 0;
}

int main(void)
{
    static const char *const worlds[] = { "threads", "tcp-poll", "tcp-uring", "tcp-domain", "hybrid", "sim" };

    support_limit(300, NULL);
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        for (int ranks = 1; ranks <= RANKS; ranks++) {
            if (!support_has_world(worlds[w])) continue;
            CHECK(support_run(worlds[w], ranks, rooted, (void *)(uintptr_t)worlds[w]) == 0, "%s, %d ranks", worlds[w], ranks);
            CHECK(support_run(worlds[w], ranks, reduced, (void *)(uintptr_t)worlds[w]) == 0, "%s, %d ranks", worlds[w], ranks);
        }
    return CHECK_DONE();
}
