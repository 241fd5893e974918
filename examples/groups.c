/* groups - ranks as a grid: communicators for its rows and columns, and what can be done on them.
 *
 *     cc examples/groups.c -o groups -pthread
 *     ./groups                                  six ranks, threads of this process; ./groups 12: twelve
 *     coll-run -n 6 ./groups                    six ranks, processes that talk TCP
 *     COLL_TRANSPORT=sim ./groups 600           600 ranks in one thread, under a virtual clock
 *
 * Each rank checks every result, and prints one line. */
#define COLL_IMPLEMENTATION
#include "../coll.h"
#include <stdio.h>
#include <string.h>

/* Where a rank is in the grid, and the communicators of its row and its column. */
typedef struct grid {
    int        rows, width;
    coll_comm *row, *column;
} grid;

/* As square as it goes: the most rows that divide the ranks and are no more than the columns. */
static coll_status grid_make(grid *g, coll_comm *world)
{
    const int rank = coll_rank(world), size = coll_size(world);

    g->rows = 1;
    for (int i = 1; i * i <= size; i++) if (size % i == 0) g->rows = i;
    g->width = size / g->rows;
    const coll_status status = coll_split(world, rank / g->width, rank % g->width, &g->row);
    return status ? status : coll_split(world, rank % g->width, rank / g->width, &g->column);
}

/* In a row, number a sends a + 2 b + 1 elements to number b: each rank knows what it sends and what it will get, and no rank
 * knows all.  Without offsets the blocks are adjacent. */
static int exchange(coll_comm *row)
{
    const int me = coll_rank(row), size = coll_size(row), most = size * 3 * size;
    size_t *out = malloc((size_t)size * 2 * sizeof *out), *in = out + size, at = 0;
    int *send = malloc((size_t)most * 2 * sizeof *send), *recv = send + most, wrong = 0;

    for (int i = 0; i < size; i++) {
        out[i] = (size_t)(me + 2 * i + 1);
        in[i] = (size_t)(i + 2 * me + 1);
        for (size_t k = 0; k < out[i]; k++) send[at++] = 1000 * me + i;
    }
    if (coll_alltoallv(row, send, out, NULL, recv, in, NULL, COLL_I32)) wrong = 1;
    at = 0;
    for (int i = 0; i < size && !wrong; i++)
        for (size_t k = 0; k < in[i]; k++) wrong |= recv[at++] != 1000 * i + me;
    free(out);
    free(send);
    return wrong;
}

/* A step that is the same every time is checked and planned once, and then started again and again. */
static int iterate(coll_comm *column)
{
    enum { COUNT = 1000 };
    const int me = coll_rank(column), size = coll_size(column);
    double x[COUNT];
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = COUNT, .type = COLL_F64, .op = COLL_SUM,
                             .name = "column" };
    coll_request *step;
    int wrong = 0;

    if (coll_prepare(column, &call, &step)) return 1;
    for (int turn = 0; turn < 3 && !wrong; turn++) {
        for (int i = 0; i < COUNT; i++) x[i] = me + turn * i;
        if (coll_restart(step) || coll_wait(step)) wrong = 1;
        for (int i = 0; i < COUNT && !wrong; i++) wrong |= x[i] != size * (size - 1) / 2 + size * turn * i;
    }
    coll_request_free(step);
    return wrong;
}

/* The product of 2 x 2 matrices, associative but not commutative: `in` holds the part of the lower ranks. */
typedef struct matrix { uint32_t m[4]; } matrix;

static void multiply(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    const matrix *a = in;
    matrix *b = inout;

    (void)type, (void)context;
    for (size_t i = 0; i < count; i++)
        b[i] = (matrix){ { a[i].m[0] * b[i].m[0] + a[i].m[1] * b[i].m[2], a[i].m[0] * b[i].m[1] + a[i].m[1] * b[i].m[3],
                           a[i].m[2] * b[i].m[0] + a[i].m[3] * b[i].m[2], a[i].m[2] * b[i].m[1] + a[i].m[3] * b[i].m[3] } };
}

static matrix matrix_of(int rank) { return (matrix){ { (uint32_t)rank + 1, 2, 3, (uint32_t)rank + 5 } }; }

/* The product over all ranks, in their order. */
static int combine(coll_comm *world)
{
    const matrix mine = matrix_of(coll_rank(world));
    matrix all, right = matrix_of(coll_size(world) - 1);
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &mine, .recv = &all, .count = 1, .type = COLL_BLOB(sizeof all),
                             .op = COLL_USER, .fn = multiply, .not_commutative = true };

    for (int i = coll_size(world) - 2; i >= 0; i--) {
        const matrix left = matrix_of(i);
        multiply(&left, &right, 1, call.type, NULL);
    }
    return coll_run(world, &call) || memcmp(&all, &right, sizeof all) != 0;
}

static int worker(coll_comm *world, void *arg)
{
    grid g = { 0 };

    (void)arg;
    const char *wrong = grid_make(&g, world) ? "split" : exchange(g.row) ? "alltoallv of a row"
                      : iterate(g.column) ? "allreduce of a column" : combine(world) ? "product of matrices" : NULL;
    if (wrong) fprintf(stderr, "rank %d: %s is wrong. %s\n", coll_rank(world), wrong, coll_error(world));
    else printf("rank %d of %d: row %d, column %d of %d x %d: right\n", coll_rank(world), coll_size(world),
                coll_rank(world) / g.width, coll_rank(world) % g.width, g.rows, g.width);
    coll_free(g.row);
    coll_free(g.column);
    return wrong != NULL;
}

int main(int argc, char **argv)
{
    coll_comm *comm;

    if (!getenv("COLL_SIZE")) {
        return coll_spawn(argc > 1 ? atoi(argv[1]) : 6, worker, NULL, NULL) != 0;
    }
    if (coll_init(&comm, NULL)) return 1;
    const int result = worker(comm, NULL);
    coll_free(comm);
    return result;
}
