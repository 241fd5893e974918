/* rounds.h - a call made again and again, each time with other numbers: its input and its expected result.  Included behind
 * inside.h. */
#ifndef COLL_TESTS_ROUNDS_H
#define COLL_TESTS_ROUNDS_H

static const coll_kind round_kinds[] = { COLL_ALLREDUCE, COLL_REDUCE, COLL_REDUCE_SCATTER, COLL_SCAN, COLL_EXSCAN, COLL_BROADCAST,
                                         COLL_ALLGATHER, COLL_GATHER, COLL_SCATTER, COLL_ALLTOALL };

/* Element `at` of the input of a rank: sums of a few are exact. */
static float input_at(int rank, size_t at, int round) { return (float)((at * 7 + (size_t)round) % 1009) + (float)rank; }

/* Element `at` of the result of rank `me`; the blocks have `count` elements. */
static float result_at(coll_kind kind, int me, int size, size_t count, size_t at, int round)
{
    const int block = (int)(at / count), last = kind == COLL_SCAN ? me : kind == COLL_EXSCAN ? me - 1 : size - 1;
    float sum = 0;

    switch (kind) {
    case COLL_BROADCAST:                    return input_at(0, at, round);
    case COLL_ALLGATHER: case COLL_GATHER:  return input_at(block, at % count, round);
    case COLL_SCATTER:                      return input_at(0, (size_t)me * count + at, round);
    case COLL_ALLTOALL:                     return input_at(block, (size_t)me * count + at % count, round);
    default:
        for (int i = 0; i <= last; i++) sum += input_at(i, kind == COLL_REDUCE_SCATTER ? (size_t)me * count + at : at, round);
        return sum;
    }
}

/* A rank's state in the shared memory of its host. */
static coll__thread *side_of(const coll_comm *comm)
{
    coll__session *const session = comm->session;

    if (!strcmp(session->transport->name, "threads")) return (coll__thread *)session->context;
    return coll__hybrid_of(session->context)->domains[COLL__DOMAIN_OF_HOST];
}

/* The input and the result of a rank in such a call: elements of f32, the root is rank 0. */
typedef struct round_shape {
    coll_kind kind;
    int       me, size;
    size_t    count, in, out;                     /* of the call, of its input, of its result                 */
    bool      has_result;
} round_shape;

/* Of a call with about this many elements in its result. */
static round_shape round_shape_of(coll_kind kind, int me, int size, size_t length)
{
    const coll__kind_shape *shape = coll__kind_shape_of(kind);
    const bool sends_all = shape->send.over == COLL__OVER_RANKS, gets_all = shape->recv.over == COLL__OVER_RANKS;
    const bool is_cut = (sends_all || gets_all) && kind != COLL_REDUCE_SCATTER;     /* whose result is one block  */
    const size_t n = (size_t)size, count = is_cut ? length / n + 1 : length;

    return (round_shape){ .kind = kind, .me = me, .size = size, .count = count, .in = sends_all ? n * count : count,
                          .out = gets_all ? n * count : count,
                          .has_result = shape->recv.who == COLL__WHO_ALL || (shape->recv.who == COLL__WHO_ROOT && me == 0)
                                     || (shape->recv.who == COLL__WHO_LATER && me > 0) };
}

/* The call of a round from x to y; its input is written. */
static coll_call round_begin(const round_shape *s, float *x, float *y, int round)
{
    const bool is_broadcast = s->kind == COLL_BROADCAST;
    float *const input = is_broadcast ? y : x;

    for (size_t i = 0; i < s->in; i++) input[i] = input_at(s->me, i, round);
    return (coll_call){ .kind = s->kind, .send = is_broadcast ? NULL : x, .recv = y, .count = s->count, .type = COLL_F32,
                        .op = COLL_SUM };
}

/* Returns how many elements of the result are wrong. */
static size_t round_wrong(const round_shape *s, const float *y, int round)
{
    size_t wrong = 0;

    for (size_t i = 0; s->has_result && i < s->out; i++) wrong += y[i] != result_at(s->kind, s->me, s->size, s->count, i, round);
    return wrong;
}

#endif
