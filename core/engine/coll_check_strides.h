/* coll_check_strides.h - checks the strides of a call and replaces them by packed buffers. */
#ifndef COLL_CHECK_STRIDES_H
#define COLL_CHECK_STRIDES_H

COLL__FOR_SIZE

#define COLL__REFUSE(...) coll__explain_error(comm, call, COLL_ERR_ARGUMENT, __VA_ARGS__)

/* Check rows and strides, except against buffers. */
static coll_status coll__check_rows(coll_comm *comm, const coll_call *call)
{
    const coll_kind kind = call->kind;

    if (coll__is_extended(comm))
        return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "rows with a stride are for buffers in the memory of this "
                                   "process, not for those of %s: give blocks in one piece", comm->extension->name);
    if (kind != COLL_BROADCAST && kind != COLL_GATHER && kind != COLL_SCATTER && kind != COLL_ALLGATHER && kind != COLL_ALLTOALL)
        return COLL__REFUSE("row, send_stride and recv_stride mean nothing here: they are for broadcast, gather, scatter, "
                            "allgather and alltoall");
    if (call->row == 0)
        return COLL__REFUSE("%s is %zu, but row is 0: give the elements of a row",
                            call->send_stride ? "send_stride" : "recv_stride",
                            call->send_stride ? call->send_stride : call->recv_stride);
    if (call->count % call->row)
        return COLL__REFUSE("count is %zu, which is no whole number of rows of %zu elements", call->count, call->row);
    if (kind == COLL_BROADCAST && call->send_stride)
        return COLL__REFUSE("send_stride is %zu, but the buffer of a broadcast is recv: give recv_stride", call->send_stride);
    return COLL_OK;
}

/* Check that a stride is long enough for the blocks of a side and fits in memory. */
static coll_status coll__check_stride(coll_comm *comm, const coll_call *call, const coll__side *side, size_t stride)
{
    const size_t rows = call->count / call->row, unit = coll_type_size(call->type);
    size_t least, bytes;

    if (!side->is_used || !stride || rows < 2) return COLL_OK;
    if (__builtin_mul_overflow(call->row, (size_t)side->blocks, &least)) least = SIZE_MAX;
    if (stride < least && side->blocks > 1)
        return COLL__REFUSE("%s_stride %zu is too short for %d blocks with rows of %zu elements, side by side: give %zu or more",
                            side->name, stride, side->blocks, call->row, least);
    if (stride < least)
        return COLL__REFUSE("%s_stride %zu is shorter than a row of %zu elements: rows would overlap", side->name, stride,
                            call->row);
    if (__builtin_mul_overflow(rows, stride, &bytes) || coll__is_beyond_memory(bytes, unit, 1))
        return COLL__REFUSE("%s_stride %zu, with %zu rows, is more than memory can hold", side->name, stride, rows);
    return COLL_OK;
}

static coll__columns coll__columns_of(const coll_call *call, const coll__side *side, size_t stride)
{
    const size_t unit = coll_type_size(call->type), rows = call->count / call->row;
    const bool is_apart = side->is_used && coll__is_buffer(side->at) && stride && rows > 1 && stride != call->row;

    return (coll__columns){ .at = coll__behind(side->at, 0), .row = call->row * unit, .rows = rows,
                            .stride = (stride ? stride : call->row) * unit, .blocks = side->blocks,
                            .length = is_apart ? (size_t)side->blocks * call->count * unit : 0 };
}

/* Do two different matrices share a byte?  Rows of equal strides may interleave. */
static bool coll__columns_overlap(const coll__columns *a, const coll__columns *b)
{
    const size_t wide_a = a->row * (size_t)a->blocks, wide_b = b->row * (size_t)b->blocks;
    const uintptr_t from = (uintptr_t)a->at, to = (uintptr_t)b->at;
    const size_t long_a = a->length ? (a->rows - 1) * a->stride + wide_a : a->rows * wide_a;
    const size_t long_b = b->length ? (b->rows - 1) * b->stride + wide_b : b->rows * wide_b;

    if (from + long_a <= to || to + long_b <= from) return false;
    if (!a->length || !b->length || a->stride != b->stride) return true;
    const size_t between = to >= from ? (to - from) % a->stride : (a->stride - (from - to) % a->stride) % a->stride;
    return between < wide_a || between + wide_b > a->stride;
}

/* ---- >>replacing ---- */

/* Is it in place?  Then send, or at the root of a scatter recv, is a part of the other side; `skip`: where it begins there. */
static bool coll__is_strided_in_place(const coll_call *call, const coll__side *send, const coll__side *recv, size_t skip)
{
    const bool is_same = send->is_used && recv->is_used && coll__is_buffer(send->at) && coll__is_buffer(recv->at)
                       && call->send_stride == call->recv_stride;

    switch (call->kind) {
    case COLL_ALLTOALL: return call->send == COLL_IN_PLACE || call->send == call->recv;
    case COLL_SCATTER:  return call->recv == COLL_IN_PLACE || (is_same && recv->at == send->at + skip);
    default:            return call->send == COLL_IN_PLACE || (is_same && send->at == recv->at + skip);
    }
}

/* Allocate the state, with the packed blocks after it.  Blocking calls, one at a time, reuse the last one. */
static unsigned char *coll__strides_take(const coll_request *r, size_t length)
{
    coll__strided *const spare = r->is_blocking ? r->comm->spare : NULL;

    if (!spare || length > coll__prefix_of(spare)->length) return (unsigned char *)coll__take_lines(coll__like(r->comm), length);
    r->comm->spare = NULL;
    return (unsigned char *)spare;
}

static void coll__strides_give(const coll_request *r)
{
    if (!COLL__IS_WHOLE) return;
    coll__give(r->is_blocking ? r->comm->spare : r->strided);
    if (r->is_blocking) r->comm->spare = r->strided;
}

/* Replace the strides of a call: afterwards its blocks are contiguous. */
static coll_status coll__strides_ready(coll_comm *comm, coll_request *r)
{
    coll_call *const call = &r->call;
    coll__side send, recv;
    coll_status status = COLL_ERR_UNSUPPORTED;

    if (!COLL__IS_WHOLE)
        return coll__explain_error(comm, call, status, "rows with a stride, but this program was compiled with " COLL__PROFILE);
    status = coll__check_rows(comm, call);
    if (status < 0) return status;
    coll__sides_of(comm, call, &send, &recv);
    const bool is_scatter = call->kind == COLL_SCATTER;
    const size_t unit = coll_type_size(call->type);
    const size_t skip = call->kind == COLL_ALLTOALL ? 0 : (size_t)comm->rank * call->row * unit;
    const bool is_in_place = coll__is_strided_in_place(call, &send, &recv, skip);
    coll__side *const whole = is_scatter ? &send : &recv, *const part = is_scatter ? &recv : &send;
    size_t send_stride = is_in_place && !is_scatter ? 0 : call->send_stride;
    size_t recv_stride = is_in_place && is_scatter ? 0 : call->recv_stride;
    if ((status = coll__check_stride(comm, call, &send, send_stride)) < 0
        || (status = coll__check_stride(comm, call, &recv, recv_stride)) < 0) return status;
    if (is_in_place && whole->is_used && coll__is_buffer(whole->at)) {
        part->at = whole->at + skip;
        send_stride = recv_stride = is_scatter ? send_stride : recv_stride;
    }
    if (call->kind == COLL_BROADCAST && comm->rank == call->root) {       /* it sends what others receive     */
        send = recv;
        send_stride = recv_stride;
        recv.is_used = false;
    }
    coll__strided s = { .send = coll__columns_of(call, &send, send_stride), .recv = coll__columns_of(call, &recv, recv_stride) };
    const size_t front = coll__round_up(sizeof s, 64), both = coll__round_up(s.send.length, 64) + s.recv.length;
    call->row = call->send_stride = call->recv_stride = 0;
    if (both == 0) return COLL_OK;
    const coll__side *const sides[2] = { &send, &recv };
    if (comm->session->inspect && (status = coll__check_memory(comm, call, sides, unit)) < 0) return status;
    if (!is_in_place && send.is_used && recv.is_used && coll__is_buffer(send.at) && coll__is_buffer(recv.at)
        && coll__columns_overlap(&s.send, &s.recv)) return coll__refuse_overlap(comm, call);
    unsigned char *const memory = coll__strides_take(r, front + both);
    if (!memory) return coll__explain_error(comm, call, COLL_ERR_MEMORY, "no memory for %zu bytes of rows", both);
    if (s.send.length) call->send = s.send.packed = memory + front;
    if (s.recv.length) call->recv = s.recv.packed = memory + front + both - s.recv.length;
    if (call->kind == COLL_BROADCAST && s.send.packed) call->recv = s.send.packed;
    r->strided = (coll__strided *)(void *)memory;
    *r->strided = s;
    return COLL_OK;
}

#undef COLL__REFUSE

COLL__FOR_SPEED

#endif /* COLL_CHECK_STRIDES_H */
