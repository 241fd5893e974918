/* bare_calls.c - the collectives of COLL_TINY, and messages, over the lines of examples/bare: on every rank right to the bit.
 * tests/build/test_bare.sh runs it on boards and, by examples/bare/run.sh, as threads. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include <string.h>

enum { LONGEST = 150, MOST = 4 };                 /* elements: ten pieces; ranks                              */

typedef struct job {
    int32_t  i[LONGEST], j[LONGEST * MOST];
    float    x[LONGEST], y[LONGEST * MOST];
    uint32_t hash;                                /* of the results that are the same on all ranks            */
    int      wrong;                               /* the line of the first that is wrong, 0: none             */
} job;

#include "../../examples/bare/ranks.h"

static const size_t counts[] = { 0, 1, 7, LONGEST };

#define CHECK(what) do { if (!(what) && !j->wrong) j->wrong = __LINE__; } while (0)

static int32_t whole(int rank, size_t i) { return (int32_t)((uint32_t)rank * 40503u + (uint32_t)i * 2654435761u); }

/* Numbers whose sums are rounded, so that the order of them shows. */
static float broken(int rank, size_t i) { return (float)(whole(rank, i) >> 8) * 0x1p-20f; }

static void fill(coll_comm *comm, job *j)
{
    for (size_t i = 0; i < LONGEST; i++) j->i[i] = whole(coll_rank(comm), i), j->x[i] = broken(coll_rank(comm), i);
    memset(j->j, 0x55, sizeof j->j);
    memset(j->y, 0x55, sizeof j->y);
}

static void add_hash(job *j, const void *bytes, size_t count)
{
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t i = 0; i < count; i++) j->hash = (j->hash ^ p[i]) * 16777619u;
}

/* Is this the sum, the largest, or what a rank gave? */
static bool is_sum(const int32_t *x, int size, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < size; r++) sum += (uint32_t)whole(r, i);
        if ((uint32_t)x[i] != sum) return false;
    }
    return true;
}

static bool is_largest(const float *x, int size, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float most = broken(0, i);
        for (int r = 1; r < size; r++) most = broken(r, i) > most ? broken(r, i) : most;
        if (x[i] != most) return false;
    }
    return true;
}

/* COLL_DETERMINISTIC: neighbors first, then pairs of pairs. */
static bool is_tree_sum(const float *x, int size, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float part[MOST];
        for (int r = 0; r < size; r++) part[r] = broken(r, i);
        for (int step = 1; step < size; step *= 2)
            for (int r = 0; r + step < size; r += 2 * step) part[r] += part[r + step];
        if (memcmp(&x[i], &part[0], sizeof x[i])) return false;
    }
    return true;
}

static bool is_of(const int32_t *x, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++) if (x[i] != whole(rank, i)) return false;
    return true;
}

static void reductions(coll_comm *comm, job *j, size_t count)
{
    const int rank = coll_rank(comm), size = coll_size(comm);
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = j->x, .recv = j->y, .count = count, .type = COLL_F32,
                             .op = COLL_SUM, .flags = COLL_DETERMINISTIC };

    fill(comm, j);
    CHECK(coll_run(comm, &call) == COLL_OK && is_tree_sum(j->y, size, count));
    add_hash(j, j->y, count * sizeof *j->y);
    CHECK(coll_allreduce(comm, j->x, j->x, count, COLL_F32, COLL_MAX) == COLL_OK && is_largest(j->x, size, count));
    CHECK(coll_allreduce(comm, j->i, j->j, count, COLL_I32, COLL_SUM) == COLL_OK && is_sum(j->j, size, count));
    add_hash(j, j->j, count * sizeof *j->j);
    for (int root = 0; root < size; root++) {
        fill(comm, j);
        CHECK(coll_reduce(comm, j->i, j->j, count, COLL_I32, COLL_SUM, root) == COLL_OK);
        CHECK(rank != root || is_sum(j->j, size, count));
        CHECK(coll_reduce(comm, j->x, j->y, count, COLL_F32, COLL_MAX, root) == COLL_OK);
        CHECK(rank != root || is_largest(j->y, size, count));
    }
}

static void moves(coll_comm *comm, job *j, size_t count)
{
    const int size = coll_size(comm);

    for (int root = 0; root < size; root++) {
        fill(comm, j);
        CHECK(coll_broadcast(comm, j->i, count, COLL_I32, root) == COLL_OK && is_of(j->i, root, count));
        CHECK(coll_barrier(comm) == COLL_OK);
    }
    fill(comm, j);
    CHECK(coll_allgather(comm, j->i, j->j, count, COLL_I32) == COLL_OK);
    for (int r = 0; r < size; r++) CHECK(is_of(j->j + (size_t)r * count, r, count));
    add_hash(j, j->j, (size_t)size * count * sizeof *j->j);
}

/* Round the ring; and two to the same rank, which takes the later one first. */
static void messages(coll_comm *comm, job *j, size_t count)
{
    const int rank = coll_rank(comm), size = coll_size(comm), next = (rank + 1) % size, before = (rank + size - 1) % size;
    coll_request *one = NULL, *two = NULL;

    fill(comm, j);
    CHECK(coll_sendrecv(comm, j->i, count, next, j->j, count, before, COLL_I32, 3) == COLL_OK && is_of(j->j, before, count));
    fill(comm, j);
    CHECK(coll_isend(comm, j->i, count, COLL_I32, next, 1, &one) == COLL_OK);
    CHECK(coll_isend(comm, j->x, count, COLL_F32, next, 2, &two) == COLL_OK);
    CHECK(coll_recv(comm, j->y, count, COLL_F32, before, 2) == COLL_OK);
    CHECK(coll_recv(comm, j->j, count, COLL_I32, COLL_ANY_SOURCE, 1) == COLL_OK && is_of(j->j, before, count));
    for (size_t i = 0; i < count; i++) CHECK(j->y[i] == broken(before, i));
    CHECK(coll_wait(one) == COLL_OK && coll_wait(two) == COLL_OK);
    coll_request_free(one);
    coll_request_free(two);
}

/* Groups of their own, and what is refused with nothing sent. */
static void groups(coll_comm *comm, job *j)
{
    const int rank = coll_rank(comm), size = coll_size(comm);
    int32_t ones = 1;
    coll_comm *half;

    CHECK(coll_split(comm, rank % 2, 0, &half) == COLL_OK);
    CHECK(coll_allreduce(half, &ones, &ones, 1, COLL_I32, COLL_SUM) == COLL_OK && ones == (size + 1 - rank % 2) / 2);
    CHECK(coll_free(half) == COLL_OK);
    CHECK(coll_broadcast(comm, &ones, 1, COLL_I32, size) == COLL_ERR_ARGUMENT);
    CHECK(coll_barrier(comm) == COLL_OK);
}

static int work(coll_comm *comm, job *j)
{
    j->hash = 2166136261u;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        reductions(comm, j, counts[i]);
        moves(comm, j, counts[i]);
        messages(comm, j, counts[i]);
    }
    groups(comm, j);
    if (j->wrong) printf("line %d is wrong: %s\n", j->wrong, coll_error(comm));
    printf("rank %d of %d: calls %08lx\n", coll_rank(comm), coll_size(comm), (unsigned long)j->hash);
    return j->wrong != 0;
}
