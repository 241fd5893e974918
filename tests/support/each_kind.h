/* each_kind.h - one call of any kind, with known inputs and its expected result.  Used after coll.h and support.h. */
#ifndef EACH_KIND_H
#define EACH_KIND_H

enum { EACH_RANKS = 8, EACH_ROOT = 0 };           /* ranks at most                                            */

static const coll_kind each_kinds[] = {
    COLL_ALLREDUCE, COLL_REDUCE, COLL_REDUCE_SCATTER, COLL_REDUCE_SCATTERV, COLL_SCAN, COLL_EXSCAN, COLL_BROADCAST, COLL_GATHER,
    COLL_GATHERV, COLL_SCATTER, COLL_SCATTERV, COLL_ALLGATHER, COLL_ALLGATHERV, COLL_ALLTOALL, COLL_ALLTOALLV, COLL_ALLTOALLW
};

enum { EACH_KINDS = sizeof each_kinds / sizeof *each_kinds };

typedef struct each_call {
    coll_kind  kind;
    bool       is_in_place;
    size_t     count;
    coll_comm *comm;
    int       *in, *out;
    size_t     room;                              /* elements of both                                         */
    int        salt;                              /* of the numbers of a world                                */
    size_t     counts[EACH_RANKS], offsets[EACH_RANKS];     /* of blocks, in elements                                   */
    size_t     bytes[EACH_RANKS];
    coll_type  types[EACH_RANKS];
} each_call;

SUPPORT int each_value(const each_call *b, int rank, size_t i) 
{
    return (int)((i * 7 + (size_t)(rank * 13 + b->salt * 29)) & 1023);
}

SUPPORT int each_sum_of(const each_call *b, int from, int to, size_t i)
{
    int sum = 0;
    for (int r = from; r < to; r++) sum += each_value(b, r, i);
    return sum;
}

/* Has the input a block for each rank?  Has the result? */
SUPPORT bool each_is_blocky(coll_kind kind)
{
    return kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV || kind == COLL_SCATTER || kind == COLL_SCATTERV
        || kind == COLL_ALLTOALL || kind == COLL_ALLTOALLV || kind == COLL_ALLTOALLW;
}

SUPPORT bool each_has_many(coll_kind kind)
{
    return kind == COLL_GATHER || kind == COLL_GATHERV || kind == COLL_ALLGATHER || kind == COLL_ALLGATHERV
        || kind == COLL_ALLTOALL || kind == COLL_ALLTOALLV || kind == COLL_ALLTOALLW;
}

/* Element j of block k of the result of rank `me`; false: it is not written. */
SUPPORT bool each_expected(const each_call *b, int me, int size, int k, size_t j, int *is)
{
    switch (b->kind) {
    case COLL_ALLREDUCE: *is = each_sum_of(b, 0, size, j); return true;
    case COLL_REDUCE:    *is = each_sum_of(b, 0, size, j); return me == EACH_ROOT;
    case COLL_SCAN:      *is = each_sum_of(b, 0, me + 1, j); return true;
    case COLL_EXSCAN:    *is = each_sum_of(b, 0, me, j); return me > 0;
    case COLL_REDUCE_SCATTER: case COLL_REDUCE_SCATTERV: *is = each_sum_of(b, 0, size, b->offsets[me] + j); return true;
    case COLL_BROADCAST: *is = each_value(b, EACH_ROOT, j); return true;
    case COLL_GATHER: case COLL_GATHERV: *is = each_value(b, k, j); return me == EACH_ROOT;
    case COLL_SCATTER: case COLL_SCATTERV: *is = each_value(b, EACH_ROOT, b->offsets[me] + j); return true;
    case COLL_ALLGATHER: case COLL_ALLGATHERV: *is = each_value(b, k, j); return true;
    default: *is = each_value(b, k, b->offsets[me] + j); return true;      /* alltoall, v, w                           */
    }
}

/* Blocks: of one length, or, for the kinds with lists, of different ones. */
SUPPORT void each_lay_out(each_call *b)
{
    const int size = coll_size(b->comm);
    const bool is_listed = b->kind == COLL_REDUCE_SCATTERV || b->kind == COLL_GATHERV || b->kind == COLL_SCATTERV
                        || b->kind == COLL_ALLGATHERV;
    size_t at = 0;

    for (int i = 0; i < size; i++) {
        b->counts[i] = b->count - (is_listed ? (size_t)i * 33 : 0);
        b->offsets[i] = at;
        b->bytes[i] = at * sizeof(int);
        b->types[i] = COLL_I32;
        at += b->counts[i];
    }
}

/* The call, with this rank's input where it belongs.  *recv: where its result will be. */
SUPPORT coll_call each_prepare(each_call *b, int **recv)
{
    const int me = coll_rank(b->comm), size = coll_size(b->comm);
    const bool is_gather = b->kind == COLL_GATHER || b->kind == COLL_GATHERV;
    const bool is_scatter = b->kind == COLL_SCATTER || b->kind == COLL_SCATTERV;
    const bool is_allgather = b->kind == COLL_ALLGATHER || b->kind == COLL_ALLGATHERV;
    int *out = b->is_in_place ? b->in : b->out, *in = b->in;
    const size_t block = b->counts[me], length = each_is_blocky(b->kind) ? b->offsets[size - 1] + b->counts[size - 1] : block;

    if (b->is_in_place && (is_allgather || (is_gather && me == EACH_ROOT))) in = b->in + b->offsets[me];
    if (b->is_in_place && is_scatter) out = me == EACH_ROOT ? b->in + b->offsets[me] : b->out;
    for (size_t i = 0; i < length; i++) in[i] = each_value(b, me, i);
    for (size_t i = 0; i < b->room && out == b->out; i++) out[i] = -1;
    *recv = out;
    coll_call call = { .kind = b->kind, .send = in, .recv = out, .count = b->count, .type = COLL_I32, .op = COLL_SUM,
                       .root = EACH_ROOT };
    if (b->kind == COLL_BROADCAST) call.recv = *recv = in;
    if (b->kind == COLL_REDUCE_SCATTERV) call.recv_counts = b->counts, call.count = 0;
    if (b->kind == COLL_GATHERV || b->kind == COLL_ALLGATHERV)
        call.recv_counts = b->counts, call.recv_offsets = b->offsets, call.count = block;
    if (b->kind == COLL_SCATTERV)
        call.send_counts = b->counts, call.send_offsets = b->offsets, call.recv_count = block, call.count = 0;
    if (b->kind == COLL_ALLTOALLV || b->kind == COLL_ALLTOALLW) {
        const bool is_typed = b->kind == COLL_ALLTOALLW;
        call.send_counts = call.recv_counts = b->counts;
        call.send_offsets = call.recv_offsets = is_typed ? b->bytes : b->offsets;
        if (is_typed) call.send_types = call.recv_types = b->types;
        call.count = 0;
    }
    return call;
}

/* Elements of the result, and of the input if it is apart, that are wrong. */
SUPPORT size_t each_count_wrong(const each_call *b, const coll_call *call, const int *recv)
{
    const int me = coll_rank(b->comm), size = coll_size(b->comm), blocks = each_has_many(b->kind) ? size : 1;
    const bool is_apart = !b->is_in_place && b->kind != COLL_BROADCAST;
    size_t wrong = 0;
    int is;

    for (int k = 0; k < blocks; k++) {
        const size_t length = b->counts[blocks > 1 ? k : me], at = blocks > 1 ? b->offsets[k] : 0;
        for (size_t j = 0; j < length; j++) if (each_expected(b, me, size, k, j, &is)) wrong += recv[at + j] != is;
    }
    const size_t length = each_is_blocky(b->kind) ? b->offsets[size - 1] + b->counts[size - 1] : b->counts[me];
    for (size_t i = 0; i < length && is_apart; i++) wrong += ((const int *)call->send)[i] != each_value(b, me, i);
    return wrong;
}

/* Elements of either buffer at most. */
SUPPORT size_t each_room(coll_kind kind, size_t count, int size)
{
    return (each_is_blocky(kind) || each_has_many(kind) ? (size_t)size : 1) * count;
}

#endif /* EACH_KIND_H */
