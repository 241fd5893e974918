/* coll_check.h - catches the caller's mistakes before any byte moves, and takes the defaults out of a call. */
#ifndef COLL_CHECK_H
#define COLL_CHECK_H

#define COLL__REFUSE(...) coll__explain_error(comm, call, COLL_ERR_ARGUMENT, __VA_ARGS__)

/* Do two stretches of memory share a byte? */
static bool coll__overlap(const void *a, size_t a_length, const void *b, size_t b_length)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < a_length && b_length > 0 : x - y < b_length && a_length > 0;
}

/* Bytes that this rank reads at send and writes at recv. */
static void coll__extents(const coll_comm *comm, const coll_call *call, size_t *send, size_t *recv)
{
    const size_t unit = coll_type_size(call->type), one = call->count * unit, all = one * (size_t)comm->size;

    *send = call->kind == COLL_REDUCE_SCATTER ? all : call->kind == COLL_RECV ? 0 : one;
    *recv = call->kind == COLL_ALLGATHER ? all : call->kind == COLL_SENDRECV ? call->recv_count * unit
          : call->kind == COLL_SEND || (call->kind == COLL_REDUCE && comm->rank != call->root) ? 0 : one;
}

/* Would `count` elements from every rank be more than an address space holds? */
static bool coll__is_beyond_memory(size_t count, size_t unit, int size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, unit * (size_t)size, &bytes) || bytes > SIZE_MAX / 4;
}

static coll_status coll__check_numbers(coll_comm *comm, coll_call *call)
{
    const size_t unit = coll_type_size(call->type);

    if (call->kind == COLL_BARRIER) return COLL_OK;
    if (!unit) return COLL__REFUSE("%d is no coll_type", call->type);
    if (coll__is_beyond_memory(call->count, unit, comm->size) || coll__is_beyond_memory(call->recv_count, unit, comm->size))
        return COLL__REFUSE("%zu x %s on %d ranks is more than memory can hold",
                            coll__most(call->count, call->recv_count), coll_type_name(call->type), comm->size);
    if ((coll__kind_has_root(call->kind) || coll__kind_is_message(call->kind)) && (call->root < 0 || call->root >= comm->size))
        return COLL__REFUSE("%s %d is not within 0 to %d", coll__kind_has_root(call->kind) ? "root" : "rank", call->root,
                            comm->size - 1);
    if (call->kind == COLL_SENDRECV && (call->source < 0 || call->source >= comm->size))
        return COLL__REFUSE("source %d is not within 0 to %d", call->source, comm->size - 1);
    if (coll__kind_is_message(call->kind) && call->tag < 0) return COLL__REFUSE("tag %d is negative", call->tag);
    return COLL_OK;
}

/* The arithmetic of the call, or why there is none. */
static coll_status coll__check_arithmetic(coll_comm *comm, coll_call *call, coll__codec *codec)
{
    if (call->kind == COLL_BARRIER) {
        memset(codec, 0, sizeof *codec);
        codec->same = true;
        return COLL_OK;
    }
    if (call->wire == 0 || !coll__kind_reduces(call->kind)) call->wire = call->type;
    if (!coll__kind_reduces(call->kind)) return coll__codec_move(codec, call->type), COLL_OK;
    if (call->type == comm->last.type && call->wire == comm->last.wire && call->op == comm->last.op) {
        *codec = comm->last.codec;
        return COLL_OK;
    }
    if ((int)call->op < COLL_SUM || call->op > COLL_AVG) return COLL__REFUSE("%d is no coll_op", (int)call->op);
    if (!coll_type_size(call->wire)) return COLL__REFUSE("%d is no coll_type for the wire", call->wire);
    if (coll__codec_reduce(codec, call->type, call->wire, call->op, comm->size)) {
        comm->last.type = call->type;
        comm->last.wire = call->wire;
        comm->last.op = call->op;
        comm->last.codec = *codec;
        return COLL_OK;
    }
    return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "there is no %s of %s over a wire of %s", coll_op_name(call->op),
                               coll_type_name(call->type), coll_type_name(call->wire));
}

/* Pointers: there where they are needed, and overlapping only where that has a meaning. */
static coll_status coll__check_buffers(coll_comm *comm, coll_call *call)
{
    const size_t block = call->count * coll_type_size(call->type), mine = block * (size_t)comm->rank;
    size_t send_length, recv_length;
    const unsigned char *const recv = (const unsigned char *)call->recv;

    if (call->kind == COLL_BARRIER) return COLL_OK;
    if (recv == COLL_IN_PLACE) return COLL__REFUSE("COLL_IN_PLACE stands for send, not for recv");
    coll__extents(comm, call, &send_length, &recv_length);
    if (call->send == COLL_IN_PLACE) {
        if (coll__kind_is_message(call->kind)) return COLL__REFUSE("COLL_IN_PLACE has no meaning here");
        if (call->count && !recv) return COLL__REFUSE("COLL_IN_PLACE, but recv is NULL");
        call->send = call->kind == COLL_ALLGATHER && recv ? recv + mine : recv;
    }
    if (call->kind == COLL_BROADCAST) call->send = recv;
    if (call->kind == COLL_BROADCAST && send_length && !recv)
        return COLL__REFUSE("the buffer is NULL, with %zu elements", call->count);
    if (send_length && !call->send) return COLL__REFUSE("send is NULL, with %zu elements", call->count);
    if (recv_length && !recv)
        return COLL__REFUSE("recv is NULL, with %zu elements", call->kind == COLL_SENDRECV ? call->recv_count : call->count);
    if (!send_length || !recv_length || !coll__overlap(call->send, send_length, recv, recv_length)) return COLL_OK;
    const unsigned char *const send = (const unsigned char *)call->send;
    const bool is_in_place = call->kind == COLL_ALLGATHER ? send == recv + mine
                           : call->kind == COLL_REDUCE_SCATTER ? recv == send || recv == send + mine
                           : call->kind != COLL_SENDRECV && send == recv;
    if (is_in_place) return COLL_OK;
    return COLL__REFUSE("send and recv overlap, but not as an operation in place would");
}

static coll_status coll__check_algorithm(coll_comm *comm, const coll_call *call)
{
    coll__choice choice;
    char known[120] = "";

    if (!call->algorithm || coll__kind_is_message(call->kind) || coll__choose(&choice, comm, call)) return COLL_OK;
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++)
        if (coll__algorithms[i].kind == call->kind)
            coll__append(known, sizeof known, "%s%s", *known ? ", " : "", coll__algorithms[i].name);
    return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "no algorithm \"%.32s\" here, there is: %s", call->algorithm,
                               known);
}

/* Check a call and settle what it leaves open, in place. */
static coll_status coll__check(coll_comm *comm, coll_call *call, coll__codec *codec)
{
    coll_status status;

    if ((int)call->kind < COLL_BARRIER || call->kind > COLL_SENDRECV) {
        const coll_call *const none = NULL;
        return coll__explain_error(comm, none, COLL_ERR_ARGUMENT, "%d is no coll_kind", (int)call->kind);
    }
    if ((status = coll__check_numbers(comm, call)) < 0) return status;
    if ((status = coll__check_arithmetic(comm, call, codec)) < 0) return status;
    if ((status = coll__check_buffers(comm, call)) < 0) return status;
    return coll__check_algorithm(comm, call);
}

#undef COLL__REFUSE

#endif /* COLL_CHECK_H */
