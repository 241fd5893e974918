/* coll_nccl_calls.h - calls carried out by NCCL: moves of data, and reductions with the results of the library. */
#ifndef COLL_NCCL_CALLS_H
#define COLL_NCCL_CALLS_H

/* A range of the device, and its copy on the host. */
typedef struct coll__image {
    const unsigned char *at;
    size_t length;
    unsigned char *host;
} coll__image;

/* From the first used byte of a side to the last. */
static coll__image coll__image_of(const coll__side *side, size_t unit)
{
    uintptr_t begin = UINTPTR_MAX, end = 0;

    for (int i = 0; side->is_used && i < side->blocks; i++) {
        size_t at;
        const size_t length = coll__side_block(side, unit, i, &at);
        if (length == 0) continue;
        begin = (uintptr_t)side->at + at < begin ? (uintptr_t)side->at + at : begin;
        end = (uintptr_t)side->at + at + length > end ? (uintptr_t)side->at + at + length : end;
    }
    return (coll__image){ end ? (const unsigned char *)begin : side->at, end ? end - begin : 0, NULL };
}

/* ---- >>exchanges: blocks from some ranks to some others, in one group ---- */

/* The peer of block `i` of a side; COLL_RANK_NONE: none.  A single block is sent to the root, received from it, or sent to all
 * neighbors. */
static int coll__nccl_peer(const coll_comm *comm, const coll_call *call, bool is_send, int i)
{
    const coll__kind_shape *shape = coll__kind_shape_of(call->kind);

    switch ((is_send ? &shape->send : &shape->recv)->over) {
    case COLL__OVER_RANKS:        return i;
    case COLL__OVER_SOURCES:      return comm->graph.source[i];
    case COLL__OVER_DESTINATIONS: return comm->graph.destination[i];
    default: break;
    }
    if (call->kind == COLL_SENDRECV && !is_send) return call->source;
    if (coll__kind_is_message(call->kind)) return call->peer;
    return shape->traits & COLL__NEIGHBORS ? comm->graph.destination[i] : call->root;
}

/* For an exchange in place: copies its input, and moves the side there. */
static void coll__nccl_aside(coll__nccl *me, coll__side *send, size_t unit)
{
    const coll__image image = coll__image_of(send, unit);
    unsigned char *const aside = coll__nccl_scratch(me, image.length);
    const uintptr_t moved = (uintptr_t)aside - (uintptr_t)image.at;

    for (int i = 0; aside && i < send->blocks; i++) {
        size_t at;
        const size_t length = coll__side_block(send, unit, i, &at);
        const unsigned char *const from = coll__behind(send->at, at);
        coll__nccl_copy(me, (void *)((uintptr_t)from + moved), from, length);
    }
    send->at = (const unsigned char *)((uintptr_t)send->at + moved);
}

/* The sends and receives of a call, inside a group.  A block for the rank itself is copied, unless there may be several. */
static void coll__nccl_post(coll__nccl *me, const coll_call *call, const coll__side *send, const coll__side *recv)
{
    const coll_comm *comm = me->owner;
    const size_t unit = coll_type_size(call->type);
    const bool is_many = coll__kind_is(call->kind, COLL__NEIGHBORS | COLL__MESSAGE);
    const bool is_one = coll__kind_is(call->kind, COLL__NEIGHBORS)
        && coll__kind_shape_of(call->kind)->send.over == COLL__OVER_ONE;      /* the same for all neighbors     */
    const int sends = !send->is_used ? 0 : is_one ? comm->graph.destinations : send->blocks;
    size_t at;

    for (int i = 0; i < sends; i++) {
        const int peer = coll__nccl_peer(comm, call, true, i);
        const size_t length = coll__side_block(send, unit, is_one ? 0 : i, &at);
        if (peer != COLL_RANK_NONE && (is_many || peer != comm->rank))
            coll__nccl_send(me, coll__behind(send->at, at), length, peer);
    }
    for (int i = 0; recv->is_used && i < recv->blocks; i++) {
        const int peer = coll__nccl_peer(comm, call, false, i);
        const size_t length = coll__side_block(recv, unit, i, &at);
        if (peer != COLL_RANK_NONE && (is_many || peer != comm->rank))
            coll__nccl_recv(me, coll__behind(recv->at, at), length, peer);
    }
}

/* Copies a rank's block for itself. */
static void coll__nccl_own_block(coll__nccl *me, const coll_call *call, const coll__side *send, const coll__side *recv)
{
    const size_t unit = coll_type_size(call->type);
    const int rank = me->owner->rank;
    size_t from, to;

    if (!send->is_used || !recv->is_used) return;
    const size_t length = coll__side_block(send, unit, send->blocks > 1 ? rank : 0, &from);
    (void)coll__side_block(recv, unit, recv->blocks > 1 ? rank : 0, &to);
    coll__nccl_copy(me, coll__behind(recv->at, to), send->at + from, length);
}

static void coll__nccl_exchange(coll__nccl *me, const coll_call *call)
{
    const coll_comm *comm = me->owner;
    const bool is_in_place = coll__kind_exchanges(call->kind) && call->send == call->recv;
    const bool is_many = coll__kind_is(call->kind, COLL__NEIGHBORS | COLL__MESSAGE);
    coll__side send, recv;

    coll__sides_of(comm, call, &send, &recv);
    if (is_in_place) coll__nccl_aside(me, &send, coll_type_size(call->type));
    if (!is_many && !is_in_place) coll__nccl_own_block(me, call, &send, &recv);
    coll__nccl_group(me);
    coll__nccl_post(me, call, &send, &recv);
    coll__nccl_ungroup(me);
}

/* ---- >>other kinds ---- */

static void coll__nccl_allgatherv(coll__nccl *me, const coll_call *call)
{
    const size_t unit = coll_type_size(call->type);

    coll__nccl_group(me);
    for (int i = 0; i < me->owner->size; i++) {
        unsigned char *const to = coll__behind(call->recv, call->recv_offsets[i] * unit);
        const size_t length = call->recv_counts[i] * unit;
        const void *const from = i == me->owner->rank ? call->send : to;
        if (length) COLL__NCCL_DO(me, Broadcast, from, to, length, COLL__NCCL_U8, i, me->comm, me->stream);
    }
    coll__nccl_ungroup(me);
}

/* Moves of data; and a barrier: an allreduce of a word, which completes after all ranks have reached it. */
static void coll__nccl_move(coll__nccl *me, const coll_call *call)
{
    const size_t length = call->count * coll_type_size(call->type);
    void *word = NULL;

    switch (call->kind) {
    case COLL_BARRIER:
        if ((word = coll__nccl_scratch(me, sizeof(int))) != NULL)
            COLL__NCCL_DO(me, AllReduce, word, word, 1, COLL__NCCL_I32, COLL__NCCL_SUM, me->comm, me->stream);
        break;
    case COLL_BROADCAST:
        if (length)
            COLL__NCCL_DO(me, Broadcast, call->recv, call->recv, length, COLL__NCCL_U8, call->root, me->comm, me->stream);
        break;
    case COLL_ALLGATHER:
        if (length) COLL__NCCL_DO(me, AllGather, call->send, call->recv, length, COLL__NCCL_U8, me->comm, me->stream);
        break;
    case COLL_ALLGATHERV:
        coll__nccl_allgatherv(me, call);
        break;
    default:
        coll__nccl_exchange(me, call);
    }
}

/* ---- >>reductions ---- */

/* A reduction into parts, all of them in a group.  A result that would overlap the input is computed in scratch memory. */
static void coll__nccl_reduce_parts(coll__nccl *me, const coll_call *call, const coll__sums *s, unsigned type, unsigned op)
{
    const int rank = me->owner->rank, size = me->owner->size;
    const size_t unit = s->unit * s->times, own = coll__result_count(me->owner, call);
    const bool is_list = call->kind == COLL_REDUCE_SCATTERV;
    const size_t before = is_list ? call->send_offsets[rank] : (size_t)rank * call->count;
    const unsigned char *const send = (const unsigned char *)call->send, *const block = coll__behind(send, before * unit);
    void *to = call->recv == call->send && block != send ? coll__nccl_scratch(me, own * unit) : call->recv;
    if (!is_list) {
        if (own) COLL__NCCL_DO(me, ReduceScatter, send, to, own * s->times, type, op, me->comm, me->stream);
    } else {
        coll__nccl_group(me);
        for (int i = 0; i < size; i++) {
            const unsigned char *const from = coll__behind(send, call->send_offsets[i] * unit);
            const size_t count = call->recv_counts[i] * s->times;
            if (count) COLL__NCCL_DO(me, Reduce, from, i == rank ? to : NULL, count, type, op, i, me->comm, me->stream);
        }
        coll__nccl_ungroup(me);
    }
    coll__nccl_copy(me, call->recv, to, own * unit);
}

/* The sum alone; a kernel finishes it. */
static void coll__nccl_reduce(coll__nccl *me, const coll_call *call, const coll__sums *s)
{
    const unsigned type = coll__nccl_type(s->type), op = coll__nccl_op(s->op);
    const size_t count = call->count * s->times;
    const bool is_root = me->owner->rank == call->root;

    if (call->kind == COLL_REDUCE_SCATTER || call->kind == COLL_REDUCE_SCATTERV)
        coll__nccl_reduce_parts(me, call, s, type, op);
    else if (count == 0) return;
    else if (call->kind == COLL_REDUCE)
        COLL__NCCL_DO(me, Reduce, call->send, is_root ? call->recv : NULL, count, type, op, call->root, me->comm, me->stream);
    else COLL__NCCL_DO(me, AllReduce, call->send, call->recv, count, type, op, me->comm, me->stream);
}

#endif /* COLL_NCCL_CALLS_H */
