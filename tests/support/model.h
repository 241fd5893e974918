/* model.h - what any call must leave on any rank, from the inputs of all ranks, which are functions of (seed, rank, element);
 * one rank's buffers in such a call, its arguments in every style, and the comparison afterwards.  Used after coll.h.
 *
 * A call is described once, equally on all ranks, by a model_call.  Each rank derives its part: its input blocks and
 * those that it must find, each block being some elements of one rank, or reduced over some ranks.  That is all there is to
 * every collective; how the blocks lie in memory, and whether in place, is each rank's own business. */
#ifndef MODEL_H
#define MODEL_H

#include "support.h"

#include "model_numbers.h"

enum { MODEL_BLOCKS_MOST = 56, MODEL_EDGES_MOST = 48, MODEL_LIST_MOST = 9, MODEL_REDUCED = -1, MODEL_NONE = -2 };

/* The neighbors of a communicator: edges in one common order.  An end that is COLL_RANK_NONE is a slot without a partner. */
typedef struct model_graph {
    int count, from[MODEL_EDGES_MOST], to[MODEL_EDGES_MOST];
} model_graph;

typedef struct model_call {
    coll_kind   kind;
    int         size, root;
    uint64_t    seed;                             /* of counts, types and layouts                             */
    uint64_t    data_seed;                        /* of the elements; differs between the runs of a prepared call */
    coll_type   type, wire;
    coll_op     op;
    model_data  data;
    size_t      count;                            /* of a block; v and w: about so many                       */
    double      scale;
    unsigned    flags;
    bool        commutes;                         /* COLL_USER                                                */
    bool        is_symmetric;                     /* v, w: both ends of a pair send as much, so in place is possible */
    int         list_count;
    const char *algorithm;
    model_graph graph;
} model_call;

typedef enum model_form { MODEL_OUT, MODEL_SAME, MODEL_IN_PLACE, MODEL_BLOCK, MODEL_UNUSED_NULL, MODEL_FORM_COUNT } model_form;

static const char *const model_form_names[] = {
    "out of place", "send == recv", "COLL_IN_PLACE", "in its block", "NULL if unused"
};

/* Elements [first, first + count) of block `key` of rank `peer`, or reduced over ranks 0 .. last, at byte `at` of a buffer. */
typedef struct model_block {
    int       peer, last;
    uint64_t  key;
    size_t    first, count;
    coll_type type;
    size_t    at;
} model_block;

/* One rank's part. */
typedef struct model_part {
    model_call     c;
    int            rank;
    model_form     form;
    model_block    out[MODEL_BLOCKS_MOST], in[MODEL_BLOCKS_MOST];
    int            outs, ins;
    support_buffer send, recv;                    /* in place: all is in one of them                          */
    coll_call      call;
    size_t         send_counts[MODEL_BLOCKS_MOST], send_offsets[MODEL_BLOCKS_MOST];
    size_t         recv_counts[MODEL_BLOCKS_MOST], recv_offsets[MODEL_BLOCKS_MOST];
    coll_type      send_types[MODEL_BLOCKS_MOST], recv_types[MODEL_BLOCKS_MOST];
    coll_list_item    list[MODEL_LIST_MOST];
    model_user     user;
    unsigned      *entered;                       /* barriers count themselves here; may be NULL              */
    uint64_t      *agreed;                        /* where ranks compare inexact results; may be NULL         */
} model_part;

/* ---- >>kinds ---- */

typedef struct model_kind {
    coll_kind   kind;
    bool        is_reducing, is_rooted, is_v, is_w, is_neighbor;
    const char *algorithms[8];
} model_kind;

static const model_kind model_kinds[] = {
    { COLL_BARRIER, 0, 0, 0, 0, 0, { "circulant", "tree" } },
    { COLL_BROADCAST, 0, 1, 0, 0, 0, { "tree", "scatter", "blocks", "dbtree" } },
    { COLL_REDUCE, 1, 1, 0, 0, 0, { "gather", "direct", "tree", "blocks", "dbtree" } },
    { COLL_ALLREDUCE, 1, 0, 0, 0, 0, { "gather", "direct", "shares", "circulant", "ring", "tree", "dbtree", "census" } },
    { COLL_REDUCE_SCATTER, 1, 0, 0, 0, 0, { "gather", "tree", "direct", "circulant", "ring" } },
    { COLL_REDUCE_SCATTERV, 1, 0, 1, 0, 0, { "gather", "tree", "direct", "circulant", "ring" } },
    { COLL_SCAN, 1, 0, 0, 0, 0, { "gather", "transposed", "census", "chain" } },
    { COLL_EXSCAN, 1, 0, 0, 0, 0, { "gather", "transposed", "census", "chain" } },
    { COLL_GATHER, 0, 1, 0, 0, 0, { "tree", "direct" } },
    { COLL_GATHERV, 0, 1, 1, 0, 0, { "tree", "direct" } },
    { COLL_SCATTER, 0, 1, 0, 0, 0, { "tree", "direct" } },
    { COLL_SCATTERV, 0, 1, 1, 0, 0, { "tree", "direct" } },
    { COLL_ALLGATHER, 0, 0, 0, 0, 0, { "circulant", "ring", "tree" } },
    { COLL_ALLGATHERV, 0, 0, 1, 0, 0, { "circulant", "ring", "tree" } },
    { COLL_ALLTOALL, 0, 0, 0, 0, 0, { "circulant", "direct" } },
    { COLL_ALLTOALLV, 0, 0, 1, 0, 0, { "circulant", "direct" } },
    { COLL_ALLTOALLW, 0, 0, 1, 1, 0, { "circulant", "direct" } },
    { COLL_NEIGHBOR_ALLGATHER, 0, 0, 0, 0, 1, { NULL } },
    { COLL_NEIGHBOR_ALLGATHERV, 0, 0, 1, 0, 1, { NULL } },
    { COLL_NEIGHBOR_ALLTOALL, 0, 0, 0, 0, 1, { NULL } },
    { COLL_NEIGHBOR_ALLTOALLV, 0, 0, 1, 0, 1, { NULL } },
    { COLL_NEIGHBOR_ALLTOALLW, 0, 0, 1, 1, 1, { NULL } },
    { COLL_ALLREDUCE_LIST, 1, 0, 0, 0, 0, { NULL } }
};
enum { MODEL_KIND_COUNT = sizeof model_kinds / sizeof *model_kinds };

SUPPORT const model_kind *model_kind_of(coll_kind kind)
{
    for (int i = 0; i < MODEL_KIND_COUNT; i++)
        if (model_kinds[i].kind == kind) return &model_kinds[i];
    return NULL;
}

/* May this rank ask for the form?  A kind has the form if one of its ranks may. */
SUPPORT bool model_has_form(const model_call *c, int rank, model_form form)
{
    switch (c->kind) {
    case COLL_REDUCE:
        return form == MODEL_UNUSED_NULL ? rank != c->root : form != MODEL_BLOCK;
    case COLL_ALLREDUCE: case COLL_SCAN: case COLL_EXSCAN: case COLL_ALLREDUCE_LIST:
        return form <= MODEL_IN_PLACE;
    case COLL_REDUCE_SCATTER: case COLL_REDUCE_SCATTERV:
        return form <= MODEL_BLOCK;
    case COLL_GATHER: case COLL_GATHERV:
        if (rank != c->root) return form == MODEL_OUT || form == MODEL_UNUSED_NULL;
        return form == MODEL_OUT || form == MODEL_IN_PLACE || form == MODEL_BLOCK;
    case COLL_SCATTER: case COLL_SCATTERV:
        if (rank != c->root) return form == MODEL_OUT || form == MODEL_UNUSED_NULL;
        return form == MODEL_OUT || form == MODEL_IN_PLACE;
    case COLL_ALLGATHER: case COLL_ALLGATHERV:
        return form == MODEL_OUT || form == MODEL_IN_PLACE || form == MODEL_BLOCK;
    case COLL_ALLTOALL:
        return form <= MODEL_IN_PLACE;
    case COLL_ALLTOALLV: case COLL_ALLTOALLW:
        return form == MODEL_OUT || (c->is_symmetric && form <= MODEL_IN_PLACE);
    default:
        return form == MODEL_OUT;
    }
}

/* Does the contract fix every bit of the result? */
SUPPORT bool model_is_fixed(const model_call *c)
{
    if (!model_kind_of(c->kind)->is_reducing || c->op == COLL_USER || c->flags & COLL_DETERMINISTIC) return true;
    if (c->flags & COLL_REPRODUCIBLE) return true;
    return c->data == MODEL_EXACT || !(model_is_sum(c->op) || c->op == COLL_PROD);
}

/* ---- >>graphs ---- */

/* Edges between any ranks, repeated ones and loops included, and slots without a partner. */
SUPPORT model_graph model_graph_make(uint64_t seed, int size)
{
    const uint64_t most = (uint64_t)(2 * size + 2);
    model_graph g = { .count = (int)(support_mix(seed) % (most + 1)) };

    for (int i = 0; i < g.count; i++) {
        const uint64_t random = support_mix(seed + (uint64_t)i + 1);
        g.from[i] = (int)(random % (uint64_t)size);
        g.to[i] = (int)((random >> 20) % (uint64_t)size);
        if ((random >> 40) % 8 == 0) g.from[i] = COLL_RANK_NONE;
        else if ((random >> 40) % 8 == 1) g.to[i] = COLL_RANK_NONE;
    }
    return g;
}

SUPPORT coll_status model_graph_set(coll_comm *comm, const model_graph *g, int rank)
{
    int sources[MODEL_EDGES_MOST], destinations[MODEL_EDGES_MOST], n = 0, m = 0;

    for (int i = 0; i < g->count; i++) {
        if (g->to[i] == rank) sources[n++] = g->from[i];
        if (g->from[i] == rank) destinations[m++] = g->to[i];
    }
    return coll_neighbors(comm, sources, n, destinations, m);
}

/* ---- >>blocks: the input of a rank, and its expected result ---- */

/* The number of elements from p to q. */
SUPPORT size_t model_pair_count(const model_call *c, int p, int q)
{
    const int low = p < q ? p : q, high = p < q ? q : p;
    const int a = c->is_symmetric ? low : p, b = c->is_symmetric ? high : q;
    const uint64_t random = support_mix(c->seed ^ (uint64_t)(a * 64 + b + 1) * UINT64_C(0x9e3779b97f4a7c15));

    if (!model_kind_of(c->kind)->is_v) return c->count;
    return random % 5 ? (size_t)(random >> 8) % (2 * c->count + 1) : 0;
}

SUPPORT coll_type model_pair_type(const model_call *c, int p, int q)
{
    const int low = p < q ? p : q, high = p < q ? q : p;
    const int a = c->is_symmetric ? low : p, b = c->is_symmetric ? high : q;

    if (!model_kind_of(c->kind)->is_w) return c->type;
    return model_types[support_mix(c->seed + (uint64_t)(a * 64 + b)) % (uint64_t)MODEL_TYPE_COUNT].type;
}

SUPPORT void model_add(model_block *blocks, int *n, int peer, uint64_t key, size_t count, coll_type type)
{
    blocks[(*n)++] = (model_block){ .peer = peer, .key = key, .count = count, .type = type };
}

/* The type of a list's buffer: any that has the operation, of those that are there if one of them has. */
SUPPORT coll_type model_list_type(const model_call *c, int i)
{
    const uint64_t first = support_mix(c->seed + (uint64_t)i) % (uint64_t)MODEL_TYPE_COUNT;

    for (uint64_t draw = first;; draw++) {
        const coll_type type = model_types[draw % (uint64_t)MODEL_TYPE_COUNT].type;
        const bool is_usable = there_type(type) || draw - first >= (uint64_t)MODEL_TYPE_COUNT;
        if (model_cell_of(type, c->op) == MODEL_YES && is_usable) return type;
    }
}

SUPPORT size_t model_list_count(const model_call *c, int i)
{
    return (size_t)(support_mix(c->seed ^ (uint64_t)(i + 77)) % (2 * c->count + 1));
}

/* Of the kinds that reduce. */
SUPPORT void model_reduced_blocks(model_part *p)
{
    const model_call *c = &p->c;
    const bool is_scattered = c->kind == COLL_REDUCE_SCATTER || c->kind == COLL_REDUCE_SCATTERV;
    const bool has_result = c->kind == COLL_REDUCE ? p->rank == c->root : c->kind != COLL_EXSCAN || p->rank > 0;
    const int last = c->kind == COLL_SCAN ? p->rank : c->kind == COLL_EXSCAN ? p->rank - 1 : c->size - 1;
    size_t first = 0;

    for (int i = 0; c->kind == COLL_ALLREDUCE_LIST && i < c->list_count; i++) {
        model_add(p->out, &p->outs, p->rank, (uint64_t)i, model_list_count(c, i), model_list_type(c, i));
        model_add(p->in, &p->ins, MODEL_REDUCED, (uint64_t)i, model_list_count(c, i), model_list_type(c, i));
    }
    for (int q = 0; is_scattered && q < c->size; q++) {
        const size_t count = model_pair_count(c, q, q);
        model_add(p->out, &p->outs, p->rank, 0, count, c->type);
        p->out[q].first = first;
        if (q == p->rank) model_add(p->in, &p->ins, MODEL_REDUCED, 0, count, c->type);
        if (q == p->rank) p->in[0].first = first;
        first += count;
    }
    if (!is_scattered && c->kind != COLL_ALLREDUCE_LIST) {
        model_add(p->out, &p->outs, p->rank, 0, c->count, c->type);
        model_add(p->in, &p->ins, has_result ? MODEL_REDUCED : MODEL_NONE, 0, c->count, c->type);
    }
    for (int i = 0; i < p->ins; i++) p->in[i].last = last;
}

/* Of the neighbor calls. */
SUPPORT void model_neighbor_blocks(model_part *p)
{
    const model_call *c = &p->c;
    const bool is_gather = c->kind == COLL_NEIGHBOR_ALLGATHER || c->kind == COLL_NEIGHBOR_ALLGATHERV;

    if (is_gather) model_add(p->out, &p->outs, p->rank, 0, model_pair_count(c, p->rank, p->rank), c->type);
    for (int e = 0; e < c->graph.count; e++) {
        const int from = c->graph.from[e], to = c->graph.to[e];
        const size_t count = is_gather && from >= 0 ? model_pair_count(c, from, from) : model_pair_count(c, e, 63);
        const uint64_t key = is_gather ? 0 : (uint64_t)e;
        if (from == p->rank && !is_gather) model_add(p->out, &p->outs, p->rank, key, count, model_pair_type(c, e, 63));
        if (to == p->rank) model_add(p->in, &p->ins, from >= 0 ? from : MODEL_NONE, key, count, model_pair_type(c, e, 63));
    }
}

/* Of the others, which move. */
SUPPORT void model_moved_blocks(model_part *p)
{
    const model_call *c = &p->c;
    const bool is_root = p->rank == c->root;
    const int me = p->rank;

    switch (c->kind) {
    case COLL_BARRIER:
        break;
    case COLL_BROADCAST:
        if (is_root) model_add(p->out, &p->outs, me, 0, c->count, c->type);
        model_add(p->in, &p->ins, c->root, 0, c->count, c->type);
        break;
    case COLL_GATHER: case COLL_GATHERV: case COLL_ALLGATHER: case COLL_ALLGATHERV:
        model_add(p->out, &p->outs, me, 0, model_pair_count(c, me, me), c->type);
        for (int q = 0; q < c->size && (is_root || c->kind >= COLL_ALLGATHER); q++)
            model_add(p->in, &p->ins, q, 0, model_pair_count(c, q, q), c->type);
        break;
    case COLL_SCATTER: case COLL_SCATTERV:
        for (int q = 0; q < c->size && is_root; q++)
            model_add(p->out, &p->outs, me, (uint64_t)q, model_pair_count(c, q, q), c->type);
        model_add(p->in, &p->ins, c->root, (uint64_t)me, model_pair_count(c, me, me), c->type);
        break;
    default:                                      /* alltoall                                                 */
        for (int q = 0; q < c->size; q++) {
            model_add(p->out, &p->outs, me, (uint64_t)q, model_pair_count(c, me, q), model_pair_type(c, me, q));
            model_add(p->in, &p->ins, q, (uint64_t)me, model_pair_count(c, q, me), model_pair_type(c, q, me));
        }
        break;
    }
}

/* ---- >>layout: where the blocks lie ---- */

/* Place blocks one after the other, or, where offsets can say so, in another order and with gaps.  Returns the bytes used. */
SUPPORT size_t model_layout(model_block *blocks, int n, bool has_gaps, uint64_t random)
{
    const bool is_reversed = has_gaps && random & 1;
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        model_block *b = &blocks[is_reversed ? n - 1 - i : i];
        const model_type t = model_type_of(b->type);
        if (has_gaps) at += (size_t)(random >> (8 + i) & 3) * t.size;
        if (has_gaps) at = (at + t.size - 1) / t.size * t.size;    /* offsets count elements, or keep the alignment */
        b->at = at;
        at += b->count * t.size;
    }
    return at;
}

/* Where the first byte of a buffer may lie: as badly aligned as the types allow. */
SUPPORT size_t model_shift(const model_block *blocks, int n, uint64_t random)
{
    size_t align = 1;

    for (int i = 0; i < n; i++) {
        const size_t own = model_type_of(blocks[i].type).align;
        if (own > align) align = own;
    }
    return random % 8 * align;
}

SUPPORT void model_arrays(const model_block *blocks, int n, bool in_bytes, size_t *counts, size_t *offsets, coll_type *types)
{
    for (int i = 0; i < n; i++) {
        counts[i] = blocks[i].count;
        offsets[i] = in_bytes ? blocks[i].at : blocks[i].at / model_type_of(blocks[i].type).size;
        types[i] = blocks[i].type;
    }
}

/* v kinds with one input block. */
SUPPORT bool model_has_one_out(coll_kind kind)
{
    return kind == COLL_GATHERV || kind == COLL_ALLGATHERV || kind == COLL_NEIGHBOR_ALLGATHERV;
}

/* The descriptor's arrays, for the kinds that have them. */
SUPPORT void model_describe_arrays(model_part *p, bool send_has_gaps, bool recv_has_gaps)
{
    const model_kind *k = model_kind_of(p->c.kind);
    const bool one_out = model_has_one_out(p->c.kind);
    coll_call *d = &p->call;

    if (p->c.kind == COLL_REDUCE_SCATTERV) {
        model_arrays(p->out, p->outs, false, p->recv_counts, p->recv_offsets, p->recv_types);
        d->recv_counts = p->recv_counts;
        return;
    }
    model_arrays(p->out, p->outs, k->is_w, p->send_counts, p->send_offsets, p->send_types);
    model_arrays(p->in, p->ins, k->is_w, p->recv_counts, p->recv_offsets, p->recv_types);
    if (one_out) d->count = p->out[0].count;
    else if (p->outs || p->c.kind != COLL_SCATTERV) d->send_counts = p->send_counts;
    if (!one_out && send_has_gaps) d->send_offsets = p->send_offsets;
    if (p->c.kind == COLL_SCATTERV) {
        d->recv_count = p->in[0].count;
        return;
    }
    if (p->ins || p->c.kind != COLL_GATHERV) d->recv_counts = p->recv_counts;
    if (recv_has_gaps) d->recv_offsets = p->recv_offsets;
    if (k->is_w) d->send_types = p->send_types, d->recv_types = p->recv_types;
}

/* Is the input of out-block i in the recv buffer (or, for scatter, the result in the send buffer)? */
SUPPORT bool model_in_recv(const model_part *p, int i)
{
    if (p->c.kind == COLL_SCATTER || p->c.kind == COLL_SCATTERV) return false;
    if (p->c.kind == COLL_BROADCAST) return true;
    if (p->c.kind == COLL_ALLREDUCE_LIST) return (int)p->form != MODEL_OUT && (p->form == MODEL_IN_PLACE || i % 2);
    return p->form != MODEL_OUT && p->form != MODEL_UNUSED_NULL;
}

/* Where the blocks of a call in place lie in the one buffer, which is recv; of a scatter it is send. */
SUPPORT size_t model_layout_in_place(model_part *p, size_t ins_length)
{
    const bool is_scattered = p->c.kind == COLL_REDUCE_SCATTER || p->c.kind == COLL_REDUCE_SCATTERV;

    switch (p->c.kind) {
    case COLL_GATHER: case COLL_GATHERV: case COLL_ALLGATHER: case COLL_ALLGATHERV:
        p->out[0].at = p->in[p->rank].at;
        return ins_length;
    default:
        break;
    }
    if (is_scattered) {
        const size_t length = model_layout(p->out, p->outs, false, 0);
        p->in[0].at = p->form == MODEL_BLOCK ? p->out[p->rank].at : 0;
        return length;
    }
    for (int i = 0; i < p->outs && i < p->ins; i++) p->out[i].at = p->in[i].at;
    return ins_length;
}

/* The pointers of a list. */
SUPPORT void model_describe_list(model_part *p)
{
    for (int i = 0; i < p->outs; i++) {
        const bool in_recv = model_in_recv(p, i);
        unsigned char *recv = p->recv.data + p->in[i].at;
        p->list[i] = (coll_list_item){ .send = support_place(in_recv ? recv : p->send.data + p->out[i].at),
                                    .recv = support_place(recv), .count = p->in[i].count, .type = p->in[i].type };
        if (in_recv && i % 3 == 0) p->list[i].send = COLL_IN_PLACE;
    }
    p->call.list = p->list;
    p->call.list_count = p->outs;
}

/* The pointers of anything else. */
SUPPORT void model_describe_pointers(model_part *p)
{
    const coll_kind kind = p->c.kind;
    const bool is_scatter = kind == COLL_SCATTER || kind == COLL_SCATTERV;
    coll_call *d = &p->call;

    d->send = p->send.data;
    d->recv = p->recv.data;
    if (kind == COLL_BROADCAST) d->send = NULL;
    if (is_scatter && !p->outs) d->send = NULL;
    if ((kind == COLL_GATHER || kind == COLL_GATHERV || kind == COLL_REDUCE) && p->form == MODEL_UNUSED_NULL) d->recv = NULL;
    if (p->form == MODEL_IN_PLACE && is_scatter) d->recv = COLL_IN_PLACE;
    else if (p->form == MODEL_IN_PLACE) d->send = COLL_IN_PLACE;
    else if (p->form == MODEL_SAME) d->send = d->recv;
    else if (p->form == MODEL_BLOCK && p->outs == 1) d->send = p->recv.data + p->out[0].at;
    else if (p->form == MODEL_BLOCK) d->send = p->recv.data, d->recv = p->recv.data + p->in[0].at;
    d->send = support_place(d->send);
    d->recv = support_place(d->recv);
}

/* ---- >>parts ---- */

/* Lay the blocks out and allocate. */
SUPPORT void model_part_allocate(model_part *p, uint64_t random)
{
    const model_kind *k = model_kind_of(p->c.kind);
    const bool is_list = p->c.kind == COLL_ALLREDUCE_LIST, has_offsets = k->is_v && p->c.kind != COLL_REDUCE_SCATTERV;
    const bool send_has_offsets = has_offsets && !model_has_one_out(p->c.kind);
    const bool recv_has_offsets = has_offsets && p->c.kind != COLL_SCATTERV;
    const bool send_has_gaps = k->is_w || (send_has_offsets && random & 1);
    const bool recv_has_gaps = k->is_w || (recv_has_offsets && random & 2);
    const bool is_scatter = p->c.kind == COLL_SCATTER || p->c.kind == COLL_SCATTERV;
    const bool is_apart = p->form == MODEL_OUT || p->form == MODEL_UNUSED_NULL;
    const bool root_in_place = is_scatter && !is_apart;
    size_t outs = model_layout(p->out, p->outs, send_has_gaps || is_list, random >> 4);
    size_t ins = model_layout(p->in, p->ins, recv_has_gaps || is_list, random >> 24);

    if (!is_apart && !is_list && !is_scatter) ins = model_layout_in_place(p, ins), outs = 0;
    if (p->c.kind == COLL_BROADCAST && p->outs) p->out[0].at = p->in[0].at, outs = 0;
    for (int i = 0; is_list && i < p->outs; i++)
        if (model_in_recv(p, i)) p->out[i].at = p->in[i].at;
    if (root_in_place) p->in[0].at = p->out[p->rank].at, ins = 0;
    p->send = support_buffer_make(outs, model_shift(p->out, p->outs, random >> 44));
    p->recv = support_buffer_make(ins, model_shift(is_apart || is_list ? p->in : p->out, is_apart || is_list ? p->ins : p->outs,
                                                   random >> 48));
    if (has_offsets || p->c.kind == COLL_REDUCE_SCATTERV) model_describe_arrays(p, send_has_gaps, recv_has_gaps);
    if (is_list) model_describe_list(p);
    else if (p->c.kind != COLL_BARRIER) model_describe_pointers(p);
}

/* Put this rank's elements, of the call's data seed, where the call expects them, and seal both buffers. */
SUPPORT void model_part_fill(model_part *p)
{
    const model_data data = model_kind_of(p->c.kind)->is_reducing ? p->c.data : MODEL_BITS;

    support_guard(&p->send, false);
    support_guard(&p->recv, false);
    memset(p->send.block, SUPPORT_FILL, p->send.block_length);
    memset(p->recv.block, SUPPORT_FILL, p->recv.block_length);
    for (int i = 0; i < p->outs; i++) {
        const model_block *b = &p->out[i];
        const model_type t = model_type_of(b->type);
        unsigned char *to = (model_in_recv(p, i) ? p->recv.data : p->send.data) + b->at;
        for (size_t at = 0; at < b->count; at++) {
            if (at < MODEL_PERIOD)
                model_element(&t, p->c.op, data, p->c.data_seed, p->rank, b->key, b->first + at, to + at * t.size);
            else memcpy(to + at * t.size, to + (at - MODEL_PERIOD) * t.size, t.size);
        }
    }
    support_seal(&p->send);
    support_seal(&p->recv);
}

/* This rank's part of a call, ready to be made.  The part must not move in memory. */
SUPPORT void model_part_make(model_part *p, const model_call *c, int rank, model_form form)
{
    const model_kind *k = model_kind_of(c->kind);
    const uint64_t random = support_mix(c->seed ^ support_mix((uint64_t)rank + 9000));

    *p = (model_part){ .c = *c, .rank = rank, .form = model_has_form(c, rank, form) ? form : MODEL_OUT };
    p->call = (coll_call){ .kind = c->kind, .type = k->is_w ? 0 : c->type, .count = k->is_v ? 0 : c->count, .wire = c->wire,
                           .op = c->op, .scale = c->scale, .flags = c->flags, .seed = c->seed, .root = c->root,
                           .algorithm = c->algorithm, .name = "a tested call" };
    if (c->kind == COLL_BARRIER) p->call.type = 0, p->call.count = 0;
    if (c->kind == COLL_ALLREDUCE_LIST) p->call.type = 0, p->call.count = 0;
    if (c->op == COLL_USER) {
        p->user = (model_user){ .magic = MODEL_MAGIC, .add = (unsigned)c->seed & 255, .type = c->type, .owner = pthread_self() };
        p->call.fn = c->commutes ? model_user_sum : model_user_map;
        p->call.fn_context = &p->user;
        p->call.not_commutative = !c->commutes;
    }
    if (k->is_reducing) model_reduced_blocks(p);
    else if (k->is_neighbor) model_neighbor_blocks(p);
    else model_moved_blocks(p);
    model_part_allocate(p, random);
    model_part_fill(p);
}

SUPPORT void model_part_free(model_part *p)
{
    support_buffer_free(&p->send);
    support_buffer_free(&p->recv);
}

/* ---- >>judgement ---- */

SUPPORT model_rule model_rule_of(const model_call *c, bool is_scan)
{
    return (model_rule){ .op = c->op, .wire = c->wire, .scale = c->scale, .saturates = (c->flags & COLL_SATURATE) != 0,
                         .is_reproducible = (c->flags & COLL_REPRODUCIBLE) != 0,
                         .is_scan = is_scan, .commutes = c->commutes, .add = (unsigned)c->seed & 255 };
}

/* What may have any value: the bytes of a pair that belong to neither component; the sign of a zero in a complex product. */
SUPPORT void model_mask(const model_type *t, bool is_product, unsigned char *expected, const unsigned char *got)
{
    const size_t used = t->second + t->index.size;

    if (t->class == MODEL_PAIR && used < t->size) memcpy(expected + used, got + used, t->size - used);
    for (size_t at = 0; t->class == MODEL_COMPLEX && is_product && at < t->size; at += t->part.size) {
        const double a = model_value(&t->part, support_load(&t->part, expected + at));
        const double b = model_value(&t->part, support_load(&t->part, got + at));
        if (fabs(a) <= 0 && fabs(b) <= 0) memcpy(expected + at, got + at, t->part.size);
    }
}

/* An element whose bits are not fixed: is it close enough?  Then it is the expected one. */
SUPPORT bool model_accept(const model_type *t, const model_rule *rule, model_element_bytes *in, int n, const unsigned char *got,
                          unsigned char *expected)
{
    uint64_t bits[MODEL_RANKS_MOST];

    if (t->class != MODEL_FLOAT && t->class != MODEL_COMPLEX) return false;
    for (size_t half = 0; half < (t->class == MODEL_COMPLEX ? 2u : 1u); half++) {
        for (int i = 0; i < n; i++) bits[i] = support_load(&t->part, in[i] + half * t->second);
        if (!model_is_close(&t->part, rule, bits, n, support_load(&t->part, got + half * t->second))) return false;
    }
    memcpy(expected, got, t->size);
    return true;
}

/* Put what block b must hold into the image of its buffer. */
SUPPORT void model_expect_block(model_part *p, const model_block *b, support_buffer *buffer)
{
    const model_call *c = &p->c;
    const bool is_scan = c->kind == COLL_SCAN || c->kind == COLL_EXSCAN;
    const model_rule rule = model_rule_of(c, is_scan);
    const model_type t = model_type_of(b->type);
    const int n = b->peer == MODEL_REDUCED ? b->last + 1 : 1;
    const model_data data = model_kind_of(c->kind)->is_reducing ? c->data : MODEL_BITS;
    const bool is_product = b->peer == MODEL_REDUCED && c->op == COLL_PROD;
    unsigned char *image = buffer->image + (buffer->data - buffer->block) + b->at;
    const unsigned char *got = buffer->data + b->at;
    model_element_bytes in[MODEL_RANKS_MOST], expected;

    for (size_t at = 0; at < b->count; at++, image += t.size, got += t.size) {
        if (at >= MODEL_PERIOD && model_is_fixed(c)) {
            memcpy(image, image - MODEL_PERIOD * t.size, t.size);
            model_mask(&t, is_product, image, got);
            continue;
        }
        for (int i = 0; i < n; i++)
            model_element(&t, c->op, data, c->data_seed, n > 1 || b->peer < 0 ? i : b->peer, b->key, b->first + at, in[i]);
        if (b->peer >= 0) memcpy(expected, in[0], t.size);
        else model_reduce(&t, &rule, in, n, expected);
        model_mask(&t, is_product, expected, got);
        if (!model_is_fixed(c) && memcmp(expected, got, t.size)) (void)model_accept(&t, &rule, in, n, got, expected);
        memcpy(image, expected, t.size);
    }
}

/* Which buffer the in-blocks are in. */
SUPPORT support_buffer *model_result_buffer(model_part *p)
{
    const bool is_scatter = p->c.kind == COLL_SCATTER || p->c.kind == COLL_SCATTERV;
    return is_scatter && p->form == MODEL_IN_PLACE ? &p->send : &p->recv;
}

/* Ranks that must have equal bits compare a hash of them. */
SUPPORT bool model_agrees(model_part *p)
{
    const bool is_common = p->c.kind == COLL_ALLREDUCE || p->c.kind == COLL_ALLREDUCE_LIST;
    uint64_t hash = 1469598103934665603u, none = 0;

    if (!p->agreed || !is_common || (model_is_fixed(&p->c) && p->c.op != COLL_PROD)) return true;
    for (int i = 0; i < p->ins; i++) {
        const size_t length = p->in[i].count * model_type_of(p->in[i].type).size;
        for (size_t at = 0; at < length; at++) hash = (hash ^ p->recv.data[p->in[i].at + at]) * UINT64_C(1099511628211);
    }
    hash |= 1;
    return __atomic_compare_exchange_n(p->agreed, &none, hash, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || none == hash;
}

/* Which element of which block is wrong. */
SUPPORT void model_tell(const model_part *p, const char *side, const support_buffer *buffer, ptrdiff_t at, bool is_result,
                        char *text, size_t length)
{
    const unsigned char got = *(buffer->data + at), expected = *support_expected(buffer, at);

    for (int i = 0; i < p->ins && is_result; i++) {
        const model_block *b = &p->in[i];
        const model_type t = model_type_of(b->type);
        if (at < (ptrdiff_t)b->at || at >= (ptrdiff_t)(b->at + b->count * t.size)) continue;
        snprintf(text, length, "%s, block %d (of rank %d), element %zu of %zu %s, byte %zu: got 0x%02x, expected 0x%02x", side, i,
                 b->peer, ((size_t)at - b->at) / t.size, b->count, t.name, ((size_t)at - b->at) % t.size, got, expected);
        return;
    }
    snprintf(text, length, "%s, byte %td of %zu, which is not of the result: got 0x%02x, expected 0x%02x", side, at,
             buffer->length, got, expected);
}

/* After the call: is everything as it must be?  The empty text says so. */
SUPPORT void model_part_evaluate(model_part *p, char *text, size_t length)
{
    support_buffer *result = model_result_buffer(p);
    ptrdiff_t at;

    *text = 0;
    support_fetch(&p->send);
    support_fetch(&p->recv);
    if (p->c.kind == COLL_BARRIER && p->entered && __atomic_load_n(p->entered, __ATOMIC_RELAXED) < (unsigned)p->c.size)
        snprintf(text, length, "left the barrier when %u of %d ranks had come", *p->entered, p->c.size);
    for (int i = 0; i < p->ins; i++)
        if (p->in[i].peer != MODEL_NONE) model_expect_block(p, &p->in[i], result);
    if (!support_as_expected(&p->recv, &at)) model_tell(p, "recv", &p->recv, at, result == &p->recv, text, length);
    else if (!support_as_expected(&p->send, &at)) model_tell(p, "send", &p->send, at, result == &p->send, text, length);
    else if (!model_agrees(p)) snprintf(text, length, "the bits differ from those of another rank");
    else if (p->user.wrong) snprintf(text, length, "the operation was called %d times as it must not be", p->user.wrong);
}

/* A sentence about the call. */
SUPPORT void model_part_name(const model_part *p, char *text, size_t length)
{
    const model_call *c = &p->c;

    snprintf(text, length, "%s of %zu %s%s%s (%zu bytes) %s%s, root %d, %s, algorithm %s, flags %u, scale %g, data %d, list %d",
             coll_kind_name(c->kind), c->count, model_type_of(c->type).name, c->wire ? " over " : "",
             c->wire ? model_type_of(c->wire).name : "", model_type_of(c->type).size, coll_op_name(c->op),
             c->op == COLL_USER && !c->commutes ? " (ordered)" : "", c->root, model_form_names[p->form],
             c->algorithm ? c->algorithm : "-", c->flags, c->scale, (int)c->data, c->list_count);
}

#endif /* MODEL_H */
