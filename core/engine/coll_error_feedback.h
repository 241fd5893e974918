/* coll_error_feedback.h - error feedback: what a narrow wire type drops is kept in a residual and added to the next call.
 *
 *     t = input + residual         q = what the wire carries of t         residual = t - q         the call runs on q
 *
 * Over many calls nothing is lost except the last residual.  This is done once, at the start of a call.  Then the input is
 * exactly representable on the wire, so packing it again loses nothing.  The difference is exact in f32.  If it is not finite,
 * the residual is 0, so that one overflow does not persist. */
#ifndef COLL_ERROR_FEEDBACK_H
#define COLL_ERROR_FEEDBACK_H

#if COLL__HAS_FEEDBACK

#define COLL__LEFT_OUT(a, b) ((a) - (b) - ((a) - (b)) == 0 ? (a) - (b) : 0)
COLL__FOLD(coll__left_out, coll__raw_f32, coll__raw_f32, COLL__LEFT_OUT(a, b))
#undef COLL__LEFT_OUT

/* Choose the memory of q: recv, if it holds as much as the input; then the call runs in place.  Or memory of the request. */
static coll_status coll__feedback_ready(coll_request *r)
{
    coll_call *call = &r->call;
    const coll__kind_shape *shape = coll__kind_shape_of(call->kind);
    const bool is_in_place = shape->in_place == COLL__IN_PLACE_SAME && coll__is_held(&shape->recv, r->comm->rank, call->root);
    const size_t length = coll__input_extent(r->comm, call) * r->codec.type_size;

    r->input = call->send;
    if (is_in_place || length == 0) {
        if (length > 0) call->send = call->recv;
        return COLL_OK;
    }
    call->send = r->changed = coll__take(coll__like(r->comm), length);
    return call->send ? COLL_OK : coll__explain_error(r->comm, call, COLL_ERR_MEMORY, "no memory for %zu bytes of input with its "
                                                      "residual", length);
}

/* Elements at..at+count; `at` is the start of a group. */
static void coll__feed(const coll_request *r, const coll__codec *wide, size_t at, size_t count)
{
    enum { PIECE = 1024 };                        /* whole groups; stacks may be small                        */
    _Alignas(64) unsigned char t[PIECE], q[PIECE], wire[PIECE];
    const int tier = coll__tier();
    const size_t most = PIECE / sizeof(float), unit = r->codec.type_size;
    coll__map *const widen = coll__conversion(COLL_F32, r->call.type, tier);
    coll__map *const narrow = r->codec.narrow ? r->codec.narrow : coll__conversion(r->call.type, COLL_F32, tier);
    coll__fold_fn *const add = coll__fold_of(COLL_F32, COLL_SUM, tier), *const subtract = COLL__PICK(coll__left_out, tier);

    for (size_t length; count > 0; at += length, count -= length) {
        unsigned char *const out = coll__behind(r->call.send, at * unit);
        length = coll__least(count, most);
        widen(t, coll__behind(r->input, at * unit), length);
        add(t, t, r->call.residual + at, length);
        coll__pack(wide, wire, t, length, at, r->comm->rank);
        coll__unpack(wide, q, wire, length);
        narrow(out, q, length);
        widen(q, out, length);
        subtract(r->call.residual + at, t, q, length);
    }
}

/* Make q from the input, block by block, because groups start with blocks. */
static void coll__feedback_start(const coll_request *r)
{
    coll_call as_f32 = r->call;
    coll__side send, recv;
    coll__codec wide;
    char why[120];

    as_f32.type = COLL_F32;
    if (!coll__codec_reduce(&wide, &as_f32, r->comm->size, why, sizeof why)) return;      /* never fails: f32 has them, too */
    coll__sides_of(r->comm, &r->call, &send, &recv);
    for (int i = 0; i < send.blocks; i++) {
        size_t at;
        const size_t count = coll__side_block(&send, 1, i, &at);
        coll__feed(r, &wide, at, count);
    }
}

#else

static inline coll_status coll__feedback_ready(const coll_request *r) { return (void)r, COLL_OK; }
static inline void coll__feedback_start(const coll_request *r) { (void)r; }

#endif
#endif /* COLL_ERROR_FEEDBACK_H */
