/* naive.c - the usual first ways to sum gradients, compared with the library.
 *
 *     build/release/coll-run -n 4 build/release/gpt/naive --way master
 *     build/release/coll-run -n 4 build/release/gpt/naive --way ring
 *
 * All of them train the model, and at the end each one sums a gradient --repeat times, so that their costs can be compared:
 * the time, and the bytes that the busiest rank sends (over TCP; between threads the library uses memory).
 *
 *     master       every rank sends its gradient to rank 0, which adds them up and sends the sum to all.  p - 1 gradients go
 *                  through the network card of one rank, in and out, while the others look on
 *     ring         the ring as it first became known in deep learning: the gradient in p chunks; p - 1 times each rank sends a
 *                  chunk to the right and adds the one from the left; p - 1 times it passes finished chunks on.  2 (p - 1)/p
 *                  gradients a rank, the least there can be, but 2 (p - 1) steps of which each waits for a neighbor, and in 16
 *                  bits every one of them would round
 *     library-ring the same idea in the library (coll_call.algorithm), in slices that overlap with the additions
 *     library      what the library chooses
 *
 * The first two are written here with its blocking calls, the ring with coll_sendrecv. */
#include "trainer.h"

enum { MASTER, RING, LIBRARY_RING, LIBRARY, WAYS };

static const char *const WAY_NAMES[] = { "master", "ring", "library-ring", "library" };

typedef struct queries { int way, repeat; } queries;

typedef struct learner { gpt_trainer *t; gpt_replica r; float *room; } learner;

/* Rank 0 adds the gradients in the order of the ranks; it needs memory for all of them. */
static coll_status sum_at_master(learner *l)
{
    gpt_trainer *const t = l->t;
    float *const sum = l->r.gradient;
    const coll_status status = coll_gather(t->comm, sum, l->room, t->count, COLL_F32, 0);

    for (int r = 1; r < t->size && !t->rank && !status; r++)
        for (size_t i = 0; i < t->count; i++) sum[i] += l->room[(size_t)r * t->count + i];
    return status ? status : coll_broadcast(t->comm, sum, t->count, COLL_F32, 0);
}

/* Pass chunk `give` on to the right; take chunk `take` from the left, to `into`. */
static coll_status pass(learner *l, int give, int take, float *into)
{
    const int p = l->t->size, count = (int)l->t->count;
    const gpt_part out = gpt_part_of(count, (give + p) % p, p), in = gpt_part_of(count, (take + p) % p, p);

    return coll_sendrecv(l->t->comm, l->r.gradient + out.begin, (size_t)(out.end - out.begin), (l->t->rank + 1) % p, into,
                         (size_t)(in.end - in.begin), (l->t->rank + p - 1) % p, COLL_F32, 0);
}

static coll_status sum_in_ring(learner *l)
{
    const int p = l->t->size, me = l->t->rank;

    for (int k = 0; k < p - 1; k++) {
        const gpt_part part = gpt_part_of((int)l->t->count, (me - k - 1 + p) % p, p);
        const coll_status status = pass(l, me - k, me - k - 1, l->room);

        if (status) return status;
        for (int i = part.begin; i < part.end; i++) l->r.gradient[i] += l->room[i - part.begin];
    }
    for (int k = 0; k < p - 1; k++) {
        const gpt_part part = gpt_part_of((int)l->t->count, (me - k + p) % p, p);
        const coll_status status = pass(l, me + 1 - k, me - k, l->r.gradient + part.begin);

        if (status) return status;
    }
    return COLL_OK;
}

static coll_status sum(learner *l, int way)
{
    if (way == MASTER) return sum_at_master(l);
    if (way == RING) return sum_in_ring(l);
    return coll_run(l->t->comm, &(coll_call){ .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = l->r.gradient,
                                              .count = l->t->count, .type = COLL_F32, .op = COLL_SUM, .name = "gradient",
                                              .algorithm = way == LIBRARY_RING && l->t->size > 1 ? "ring" : NULL });
}

static coll_status step(learner *l, int at)
{
    gpt_trainer *const t = l->t;
    const gpt_part part = gpt_part_of(gpt_batch(t, at), t->rank, t->size);
    const double share = gpt_replica_learn(t, &l->r, at, part, NULL, NULL);

    gpt_clock(t, GPT_COMMUNICATE);
    const coll_status status = sum(l, ((const queries *)t->own)->way);
    gpt_clock(t, GPT_COMPUTE);
    if (status) return status;
    gpt_replica_update(t, &l->r, at);
    return gpt_step(t, at, share);
}

/* Received data: on the master all gradients at once, in the ring a chunk. */
static bool make_room(learner *l, int way)
{
    const size_t size = (size_t)l->t->size, chunk = (l->t->count + size - 1) / size;

    gpt_release(l->t, l->room);
    l->room = gpt_floats(l->t, GPT_GRADIENTS, way == RING ? chunk : way == MASTER && !l->t->rank ? size * l->t->count : 0);
    return l->room;
}

/* One way, --repeat times: the seconds of the slowest rank and the bytes of the busiest. */
static coll_status measure(learner *l, int way, int repeat, double *seconds, uint64_t *bytes)
{
    gpt_trainer *const t = l->t;
    coll_status status = coll_barrier(t->comm);
    uint64_t before, after;

    coll_traffic(t->comm, &before, NULL);
    const double began_s = gpt_now_s();
    for (int i = 0; i < repeat && !status; i++) {
        memset(l->r.gradient, 0, t->count * sizeof *l->r.gradient);
        status = sum(l, way);
    }
    *seconds = (gpt_now_s() - began_s) / repeat;
    coll_traffic(t->comm, &after, NULL);
    *bytes = (after - before) / (uint64_t)repeat;
    if (!status) status = coll_allreduce(t->comm, seconds, seconds, 1, COLL_F64, COLL_MAX);
    return status ? status : coll_allreduce(t->comm, bytes, bytes, 1, COLL_U64, COLL_MAX);
}

/* All ways, side by side. */
static coll_status compare(learner *l, int repeat)
{
    const gpt_trainer *const t = l->t;
    const bool is_known = !t->rank && !t->with->is_json;

    if (is_known) printf("\na sum of %zu floats on %d ranks\n", t->count, t->size);
    for (int way = 0; way < WAYS; way++) {
        double seconds;
        uint64_t bytes;
        const coll_status status = make_room(l, way) ? measure(l, way, repeat, &seconds, &bytes) : COLL_ERR_MEMORY;

        if (status) return status;
        if (is_known)
            printf("  %-14s %9.3f ms %12" PRIu64 " bytes from the busiest rank\n", WAY_NAMES[way], 1e3 * seconds, bytes);
    }
    return COLL_OK;
}

static int train(gpt_trainer *t)
{
    const queries *const with = t->own;
    learner l = { .t = t };

    if (t->count > INT32_MAX) return gpt_refuse(t, "%zu parameters are more than this page can count", t->count);
    if (!gpt_replica_make(t, &l.r, (t->with->batch + t->size - 1) / t->size)) return gpt_failed(t);
    if (!make_room(&l, with->way) || gpt_begin(t)) return gpt_failed(t);
    for (int at = 0; at < t->with->steps; at++) {
        const int code = step(&l, at) ? gpt_failed(t) : gpt_check(t, at, l.r.weights);

        if (code) return code;
    }
    const int code = gpt_end(t, l.r.weights);
    if (code || !with->repeat) return code;
    return compare(&l, with->repeat) ? gpt_failed(t) : 0;
}

int main(int argc, char **argv)
{
    queries own = { .way = LIBRARY, .repeat = 20 };
    const gpt_row rows[] = {
        { "way", "to sum gradients while training", &own.way, 0, 0, "master ring library-ring library", NULL, NULL },
        { "repeat", "sums of each way at the end", &own.repeat, 0, 1e6, NULL, NULL, NULL },
    };

    return gpt_main(argc, argv, &(gpt_page){ "naive", "gradients summed in the ways that come to mind first", train, rows, 2,
                                             &own });
}
