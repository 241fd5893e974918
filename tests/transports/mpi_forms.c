/* mpi_forms.c - blocking and non-blocking calls of one collective over MPI: they meet, and MPI is called in its blocking form
 * where all ranks wait, and there alone.
 *
 *     mpiexec -n N mpi_forms SEED mixed|races          N >= 2, on one host
 *
 * The functions of MPI that the library calls are counted by its profiling interface.  mixed: every rank waits for a collective
 * or starts it, in place or not, as a random sequence says that all ranks know.  races: a rank comes to a collective as the time
 * of another one runs out. */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "mpi_main.h"

enum { MIXED_STEPS = 400, RACES = 40, COUNT = 5, LONG_COUNT = 9000, RANKS_MOST = 16 };

/* ---- >>calls of MPI ---- */

static struct { int blocking, others, in_place; } asked;

#if MPI_VERSION >= 4
typedef MPI_Count number;
#define COUNTED(name) MPI_##name##_c
#define INNER(name) PMPI_##name##_c
#else
typedef int number;
#define COUNTED(name) MPI_##name
#define INNER(name) PMPI_##name
#endif

int MPI_Barrier(MPI_Comm c) { asked.blocking++; return PMPI_Barrier(c); }
int MPI_Ibarrier(MPI_Comm c, MPI_Request *r) { asked.others++; return PMPI_Ibarrier(c, r); }

int COUNTED(Allreduce)(const void *s, void *r, number n, MPI_Datatype t, MPI_Op op, MPI_Comm c)
{
    asked.blocking++;
    asked.in_place += s == MPI_IN_PLACE;
    return INNER(Allreduce)(s, r, n, t, op, c);
}

int COUNTED(Iallreduce)(const void *s, void *r, number n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *q)
{
    asked.others++;
    return INNER(Iallreduce)(s, r, n, t, op, c, q);
}

int COUNTED(Reduce)(const void *s, void *r, number n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c)
{
    asked.blocking++;
    return INNER(Reduce)(s, r, n, t, op, root, c);
}

int COUNTED(Ireduce)(const void *s, void *r, number n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c, MPI_Request *q)
{
    asked.others++;
    return INNER(Ireduce)(s, r, n, t, op, root, c, q);
}

int COUNTED(Allgather)(const void *s, number n, MPI_Datatype t, void *r, number m, MPI_Datatype u, MPI_Comm c)
{
    asked.blocking++;
    asked.in_place += s == MPI_IN_PLACE;
    return INNER(Allgather)(s, n, t, r, m, u, c);
}

int COUNTED(Iallgather)(const void *s, number n, MPI_Datatype t, void *r, number m, MPI_Datatype u, MPI_Comm c, MPI_Request *q)
{
    asked.others++;
    return INNER(Iallgather)(s, n, t, r, m, u, c, q);
}

int COUNTED(Alltoall)(const void *s, number n, MPI_Datatype t, void *r, number m, MPI_Datatype u, MPI_Comm c)
{
    asked.blocking++;
    return INNER(Alltoall)(s, n, t, r, m, u, c);
}

int COUNTED(Ialltoall)(const void *s, number n, MPI_Datatype t, void *r, number m, MPI_Datatype u, MPI_Comm c, MPI_Request *q)
{
    asked.others++;
    return INNER(Ialltoall)(s, n, t, r, m, u, c, q);
}

/* ---- >>mixed ---- */

static int rank, size;
static uint64_t seed;

/* The same on all ranks. */
static unsigned draw(unsigned below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(seed >> 33) % below;
}

/* What each member does about the next collective of a communicator. */
typedef struct plan {
    coll_comm *comm;
    int        me, count;
    coll_kind  kind;
    bool       waits[RANKS_MOST], is_in_place[RANKS_MOST];
    coll_call  call;
    int        step;
} plan;

static int64_t input[LONG_COUNT], output[LONG_COUNT];

static int64_t value(int step, int from, int i) { return 1000 * step + 10 * from + i; }

/* Half of the time all wait, and half of the time all are in place. */
static void plan_draw(plan *p, coll_comm *comm, int step)
{
    static const coll_kind kinds[] = { COLL_ALLREDUCE, COLL_ALLGATHER, COLL_BARRIER, COLL_ALLTOALL, COLL_REDUCE };
    const bool all_wait = draw(2), all_in_place = draw(2);

    *p = (plan){ .comm = comm, .step = step, .kind = kinds[draw(5)], .me = coll_rank(comm), .count = coll_size(comm) };
    for (int i = 0; i < size; i++) {
        p->waits[i] = draw(2) || all_wait;
        p->is_in_place[i] = draw(2) || all_in_place;
    }
    const bool in_place = p->is_in_place[p->me] && (p->kind == COLL_ALLREDUCE || p->kind == COLL_ALLGATHER);
    const int count = p->kind == COLL_REDUCE && draw(2) ? LONG_COUNT : COUNT;
    int64_t *in = !in_place ? input : p->kind == COLL_ALLGATHER ? output + p->me * COUNT : output;
    for (int i = 0; i < count * (p->kind == COLL_ALLTOALL ? p->count : 1); i++) in[i] = value(step, p->me, i);
    p->call = (coll_call){ .kind = p->kind, .type = COLL_I64, .op = COLL_SUM };
    if (p->kind == COLL_BARRIER) return;
    p->call.send = in;
    p->call.recv = output;
    p->call.count = (size_t)count;
}

static int64_t expected(const plan *p, int i)
{
    int64_t sum = 0;

    if (p->kind == COLL_ALLGATHER) return value(p->step, i / COUNT, i % COUNT);
    if (p->kind == COLL_ALLTOALL) return value(p->step, i / COUNT, p->me * COUNT + i % COUNT);
    for (int from = 0; from < p->count; from++) sum += value(p->step, from, i);
    return sum;
}

static void plan_check(const plan *p)
{
    bool all_wait = true, all_in_place = p->kind == COLL_ALLREDUCE || p->kind == COLL_ALLGATHER, is_right = true;

    for (int i = 0; i < p->count; i++) all_wait = all_wait && p->waits[i], all_in_place = all_in_place && p->is_in_place[i];
    const bool is_sum = p->kind == COLL_ALLREDUCE || (p->kind == COLL_REDUCE && p->me == 0);
    const int n = is_sum ? (int)p->call.count : p->kind == COLL_BARRIER || p->kind == COLL_REDUCE ? 0 : COUNT * p->count;
    if (p->kind == COLL_REDUCE && p->call.count < LONG_COUNT) all_wait = false;         /* no rank queries MPI        */
    for (int i = 0; i < n; i++) is_right = is_right && output[i] == expected(p, i);
    CHECK(is_right, "step %d: %s of %d ranks is wrong", p->step, coll_kind_name(p->kind), p->count);
    CHECK(asked.blocking == all_wait && asked.others == !all_wait && asked.in_place == (all_wait && all_in_place),
          "step %d: %s of %d ranks: %d blocking calls, %d others, %d in place; all wait: %d, in place: %d", p->step,
          coll_kind_name(p->kind), p->count, asked.blocking, asked.others, asked.in_place, all_wait, all_in_place);
    memset(&asked, 0, sizeof asked);
}

/* One collective.  A rank that only starts it goes on to a message for the next rank, and that one waits for it before it
 * calls. */
static void play(plan *p)
{
    coll_request *request = NULL;
    const int next = (p->me + 1) % p->count, before = (p->me + p->count - 1) % p->count;
    int64_t word = p->step, got = -1;

    memset(&asked, 0, sizeof asked);
    if (!p->waits[p->me]) {
        CHECK(coll_start(p->comm, &p->call, &request) == COLL_OK, "%s", coll_error(p->comm));
        if (p->count > 1) CHECK(coll_send(p->comm, &word, 1, COLL_I64, next, 1) == COLL_OK, "%s", coll_error(p->comm));
    }
    if (p->count > 1 && !p->waits[before]) CHECK(coll_recv(p->comm, &got, 1, COLL_I64, before, 1) == COLL_OK && got == word,
                                                 "%s", coll_error(p->comm));
    if (request) CHECK(coll_wait(request) == COLL_OK, "%s", coll_error(p->comm));
    else CHECK(coll_run(p->comm, &p->call) == COLL_OK, "%s", coll_error(p->comm));
    plan_check(p);
}

/* On two communicators in two orders: rank 0 starts the one and waits in the other, and the others the other way round. */
static void cross(coll_comm *one, coll_comm *two, int step)
{
    coll_comm *const first = rank == 0 ? one : two, *const second = rank == 0 ? two : one;
    coll_request *request = NULL;
    int64_t x = step + rank, y = 0, z = 0;

    CHECK(coll_iallreduce(first, &x, &y, 1, COLL_I64, COLL_SUM, &request) == COLL_OK, "%s", coll_error(first));
    CHECK(coll_allreduce(second, &x, &z, 1, COLL_I64, COLL_SUM) == COLL_OK, "%s", coll_error(second));
    CHECK(coll_wait(request) == COLL_OK, "%s", coll_error(first));
    CHECK(y == z && y == (int64_t)size * step + size * (size - 1) / 2, "step %d: %lld and %lld", step, (long long)y,
          (long long)z);
}

static void mixed(coll_comm *comm)
{
    coll_comm *copy = NULL, *part = NULL;
    plan p;

    CHECK(coll_dup(comm, &copy) == COLL_OK && coll_split(comm, rank == 0 && size > 2, rank, &part) == COLL_OK, "%s",
          coll_error(comm));
    for (int step = 0; step < MIXED_STEPS && check__failed == 0; step++) {
        coll_comm *const on[] = { comm, copy, part };
        plan_draw(&p, on[draw(3)], step);
        if (p.count > 1) play(&p);
        if (draw(4) == 0) cross(comm, copy, step);
    }
    coll_free(part);
    coll_free(copy);
}

/* ---- >>races ---- */

static void pass_us(unsigned us)
{
    const double end = support_seconds() + us * 1e-6;
    while (support_seconds() < end) {}
}

/* Rank 0 calls when the others may have timed out.  All have the sum, or all get the error. */
static void race(int i)
{
    coll_comm *comm = NULL;
    int64_t x = rank + 1, y = 0;
    const unsigned late_us = draw(4000);
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &x, .recv = &y, .count = 1, .type = COLL_I64,
                             .timeout_ms = rank == 0 ? 0 : 1 };

    if (coll_wrap_mpi(MPI_COMM_WORLD, &comm)) {
        CHECK(false, "race %d: %s", i, coll_error(NULL));
        return;
    }
    if (rank == 0) pass_us(late_us);
    coll_status status = coll_run(comm, &call);
    int worst = (int)status, own = worst;
    CHECK(status == COLL_ERR_TIMEOUT || (status == COLL_OK && y == size * (size + 1) / 2), "race %d: status %d, %lld: %s", i,
          own, (long long)y, coll_error(comm));
    PMPI_Allreduce(&own, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    while (worst < 0 && status == COLL_OK) status = coll_progress(comm);        /* the error reaches all ranks        */
    coll_free(comm);
}

int main(int argc, char **argv)
{
    coll_comm *comm = NULL;

    if (!mpi_begin(&argc, &argv, &comm)) return 1;
    rank = coll_rank(comm);
    size = coll_size(comm);
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    const bool is_mixed = argc < 3 || !strcmp(argv[2], "mixed");
    snprintf(case_name, sizeof case_name, "%s, %d ranks, seed %llu", is_mixed ? "mixed" : "races", size,
             (unsigned long long)seed);
    if (is_mixed) mixed(comm);
    for (int i = 0; !is_mixed && i < RACES; i++) race(i);
    return mpi_end(comm);
}
