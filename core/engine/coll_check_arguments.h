/* coll_check_arguments.h - checks the caller's arguments before any byte is sent, and fills in defaults: offsets, pointers in
 * place, wire type, arithmetic. */
#ifndef COLL_CHECK_ARGUMENTS_H
#define COLL_CHECK_ARGUMENTS_H

#define COLL__REFUSE(...) coll__explain_error(comm, call, COLL_ERR_ARGUMENT, __VA_ARGS__)

COLL__FOR_SIZE

/* ---- >>numbers ---- */

static coll_status coll__refuse_type(coll_comm *comm, const coll_call *call, coll_type type)
{
    if (coll__is_mx(type)) return COLL__REFUSE("%s is a type for the wire only (coll_call.wire)", coll_type_name(type));
    return COLL__REFUSE("invalid type %d (see coll_type)", (int)type);
}

/* Are `count` elements from every rank more than an address space holds? */
static bool coll__is_beyond_memory(size_t count, size_t unit, int size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, unit * (size_t)size, &bytes) || bytes > SIZE_MAX / 4;
}

static coll_status coll__check_list_of(coll_comm *comm, const coll_call *call, const coll__side *side, size_t unit)
{
    size_t total = 0;

    if (!side->is_used || !coll__is_listed(side) || side->blocks == 0) return COLL_OK;
    const char *const name = coll__kind_shape_of(call->kind)->send.from == COLL__FROM_RECV_LIST ? "recv" : side->name;
    if (!side->counts) return COLL__REFUSE("the %s counts are NULL: give %d, one for each block", name, side->blocks);
    if (coll__has_types(side) && (!side->types || !side->offsets))
        return COLL__REFUSE("the %s %s are NULL: give %d, one for each block", side->name, side->types ? "offsets" : "types",
                            side->blocks);
    for (int i = 0; i < side->blocks; i++) {
        const size_t own = coll__has_types(side) ? coll_type_size(side->types[i]) : unit;
        if (!own && coll__is_mx(side->types[i]))
            return COLL__REFUSE("block %d of %s: %s is a type for the wire only", i, side->name, coll_type_name(side->types[i]));
        if (!own) return COLL__REFUSE("block %d of %s: invalid type %d (see coll_type)", i, side->name,
                                      (int)side->types[i]);
        const size_t offset = side->offsets ? side->offsets[i] : 0;
        if (coll__is_beyond_memory(side->counts[i], own, 1) || coll__is_beyond_memory(offset, own, 1)
            || (total += side->counts[i] * own) > SIZE_MAX / 4)
            return COLL__REFUSE("block %d of %s: %zu elements at %zu, with those before it, are more than memory can hold", i,
                                side->name, side->counts[i], offset);
    }
    return COLL_OK;
}

static coll_status coll__check_ranks(coll_comm *comm, const coll_call *call)
{
    const bool is_message = coll__kind_is_message(call->kind), is_recv = call->kind == COLL_RECV;
    const int rank = is_message ? call->peer : call->root;

    if (is_message && call->root != 0) return COLL__REFUSE("root is %d, but messages have a peer: set peer", call->root);
    if (is_recv && rank == COLL_ANY_SOURCE) return COLL_OK;
    if ((coll__kind_has_root(call->kind) || is_message) && (rank < 0 || rank >= comm->size))
        return COLL__REFUSE("%s %d is out of range for %d ranks", !is_message ? "root" : is_recv ? "source" : "destination",
                            rank, comm->size);
    if (call->kind == COLL_SENDRECV && call->source != COLL_ANY_SOURCE && (call->source < 0 || call->source >= comm->size))
        return COLL__REFUSE("source %d is out of range for %d ranks", call->source, comm->size);
    return COLL_OK;
}

static coll_status coll__check_numbers(coll_comm *comm, const coll_call *call, const coll__side *send, const coll__side *recv)
{
    const size_t unit = coll_type_size(call->type);
    coll_status status = coll__check_ranks(comm, call);

    if (status < 0 || call->kind == COLL_BARRIER) return status;
    if (!unit && !coll__has_types(send)) return coll__refuse_type(comm, call, call->type);
    if (coll__is_beyond_memory(call->count, unit, comm->size) || coll__is_beyond_memory(call->recv_count, unit, comm->size))
        return COLL__REFUSE("%zu x %s on %d ranks is more than memory can hold",
                            coll__most(call->count, call->recv_count), coll_type_name(call->type), comm->size);
    const bool any_tag = call->kind == COLL_RECV && call->tag == COLL_ANY_TAG;
    if (coll__kind_is_message(call->kind) && call->tag < 0 && !any_tag)
        return COLL__REFUSE("tag %d is out of range: 0 or more%s", call->tag,
                            call->kind == COLL_RECV ? ", or COLL_ANY_TAG" : "");
    if (coll__kind_is(call->kind, COLL__NEIGHBORS) && !comm->graph_lists)
        return COLL__REFUSE("there are no neighbours yet: call coll_neighbors first");
    if ((status = coll__check_list_of(comm, call, send, unit)) < 0) return status;
    return coll__check_list_of(comm, call, recv, unit);
}

/* ---- >>arithmetic ---- */

/* Set the arithmetic of the call, or explain why there is none. */
static coll_status coll__check_arithmetic(coll_comm *comm, coll_call *call, coll__codec *codec)
{
    char why[120] = "";

    if (call->kind == COLL_BARRIER) {
        memset(codec, 0, sizeof *codec);
        codec->same = true;
        return COLL_OK;
    }
    if (call->wire == 0 || !coll__kind_reduces(call->kind)) call->wire = call->type;
    if (!coll__kind_reduces(call->kind)) {
        coll__codec_move(codec, call->type ? call->type : COLL_U8);       /* alltoallw: lengths are in bytes  */
        return COLL_OK;
    }
    if (!coll__is_op(call->op)) return COLL__REFUSE("invalid op %d (see coll_op)", (int)call->op);
    if (call->op == COLL_USER && !call->fn) return COLL__REFUSE("op is COLL_USER, but fn is NULL: give the function");
    if (!coll_type_size(call->wire) && !coll__is_mx(call->wire))
        return COLL__REFUSE("invalid wire type %d (see coll_type)", (int)call->wire);
    if (coll__is_mx(call->accumulate)) return coll__refuse_type(comm, call, call->accumulate);
    if (call->accumulate && !coll_type_size(call->accumulate))
        return COLL__REFUSE("invalid type %d to accumulate in (see coll_type)", (int)call->accumulate);
    if (call->op == COLL_AVG && coll__kind_scans(call->kind))
        return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "avg is not defined for scans: ranks would divide by "
                                   "different numbers");
    if (call->flags & ~(unsigned)COLL__FLAGS)
        return COLL__REFUSE("unknown flags 0x%x (see COLL_DETERMINISTIC and those below it)",
                            call->flags & ~(unsigned)COLL__FLAGS);
    if (!coll__codec_reduce(codec, call, comm->size, why, sizeof why))
        return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "%s", why);
    return COLL_OK;
}

/* ---- >>defaults: omitted offsets and buffers ---- */

static void coll__offsets_fill(size_t *offsets, const size_t *counts, int blocks)
{
    size_t at = 0;
    for (int i = 0; i < blocks; at += counts[i++]) offsets[i] = at;
}

static bool coll__lacks_offsets(const coll__side *side) { return side->is_used && coll__is_listed(side) && !side->offsets; }

/* Fill in missing offsets: one block after the other.  The request owns them. */
static coll_status coll__settle_offsets(coll_comm *comm, coll_call *call, coll__side *send, coll__side *recv, size_t **own)
{
    coll__side *const sides[2] = { send, recv };
    size_t room = 0, *at = NULL;

    for (int i = 0; i < 2; i++) room += coll__lacks_offsets(sides[i]) ? (size_t)sides[i]->blocks : 0;
    if (room == 0) return COLL_OK;
    *own = at = (size_t *)coll__take(coll__like(comm), room * sizeof **own);
    if (!at) return coll__explain_error(comm, call, COLL_ERR_MEMORY, "no memory for %zu offsets", room);
    for (int i = 0; i < 2; i++) {
        if (!coll__lacks_offsets(sides[i])) continue;
        coll__offsets_fill(at, sides[i]->counts, sides[i]->blocks);
        sides[i]->offsets = at;
        at += sides[i]->blocks;
    }
    call->send_offsets = send->offsets;
    call->recv_offsets = recv->offsets;
    return COLL_OK;
}

/* In place, an exchange ignores the send arguments. */
static void coll__settle_exchange(coll_call *call, coll__side *send, const coll__side *recv)
{
    call->send = call->recv;
    call->send_counts = call->recv_counts;
    call->send_offsets = call->recv_offsets;
    call->send_types = call->recv_types;
    *send = *recv;
    send->name = "send";
}

/* Replace COLL_IN_PLACE by a pointer.  A block in place has the length of the block that contains it. */
static coll_status coll__settle_in_place(coll_comm *comm, coll_call *call, coll__side *send, coll__side *recv)
{
    const size_t unit = coll_type_size(call->type);
    const coll__kind_shape *shape = coll__kind_shape_of(call->kind);
    const bool is_block = shape->in_place == COLL__IN_PLACE_BLOCK, is_scatter = is_block && shape->recv.over == COLL__OVER_ONE;
    size_t at;

    if (call->recv == COLL_IN_PLACE) {
        if (!is_scatter || !send->is_used)
            return COLL__REFUSE("%s is COLL_IN_PLACE, which stands for send%s: give the buffer",
                                coll__kind_has_one_buffer(call->kind) ? "the buffer" : "recv",
                                is_scatter ? ", and for recv at the root" : "");
        recv->count = coll__side_block(send, unit, comm->rank, &at) / unit;
        if (shape->recv.from == COLL__FROM_RECV_COUNT) call->recv_count = recv->count;
        call->recv = coll__behind(call->send, at);
        return COLL_OK;
    }
    if (call->send != COLL_IN_PLACE) return COLL_OK;
    if (shape->in_place == COLL__IN_PLACE_NEVER || is_scatter || (is_block && !recv->is_used))
        return COLL__REFUSE("send is COLL_IN_PLACE: %s", is_scatter && send->is_used
                            ? "at the root give the buffer, and COLL_IN_PLACE for recv"
                            : is_scatter ? "only the root sends, give NULL"
                            : is_block ? "only the root may be in place, give the buffer"
                            : "there is no form in place, give the buffer");
    if (!call->recv && call->count) return COLL__REFUSE("send is COLL_IN_PLACE, but recv is NULL: give the buffer as recv");
    call->send = call->recv;
    if (is_block) {
        send->count = call->count = coll__side_block(recv, unit, comm->rank, &at) / unit;
        call->send = coll__behind(call->recv, at);
    }
    return COLL_OK;
}

/* ---- >>memory: buffers are present if needed, and overlap only where that is defined ---- */

typedef struct coll__interval { uintptr_t begin, end; bool is_recv; } coll__interval;

static int coll__interval_order(const void *a, const void *b)
{
    const coll__interval *x = (const coll__interval *)a, *y = (const coll__interval *)b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* List the blocks of a side that are not empty. */
static int coll__intervals_of(const coll__side *side, size_t unit, bool is_recv, coll__interval *list)
{
    int n = 0;

    for (int i = 0; side->is_used && i < side->blocks; i++) {
        size_t at;
        const size_t length = coll__side_block(side, unit, i, &at);
        const uintptr_t begin = (uintptr_t)side->at + at;
        if (length) list[n++] = (coll__interval){ begin, begin + length, is_recv };
    }
    return n;
}

/* Does a written block share a byte with any other block?  Sorts the list. */
static bool coll__intervals_clash(coll__interval *list, int n)
{
    uintptr_t read_end = 0, write_end = 0;

    qsort(list, (size_t)n, sizeof *list, coll__interval_order);
    for (int i = 0; i < n; i++) {
        if (list[i].begin < write_end || (list[i].is_recv && list[i].begin < read_end)) return true;
        uintptr_t *end = list[i].is_recv ? &write_end : &read_end;
        if (list[i].end > *end) *end = list[i].end;
    }
    return false;
}

/* Is this overlap the in-place form of the operation? */
static bool coll__is_in_place(const coll_comm *comm, const coll_call *call, const coll__side *send, const coll__side *recv)
{
    const coll__kind_shape *shape = coll__kind_shape_of(call->kind);
    const coll__side *one = shape->send.over == COLL__OVER_ONE ? send : recv, *many = one == send ? recv : send;
    size_t at;

    switch (shape->in_place) {
    case COLL__IN_PLACE_NEVER: return false;
    case COLL__IN_PLACE_START:
        if (send->at == recv->at) return true;
        /* fall through */
    case COLL__IN_PLACE_BLOCK:
        (void)coll__side_block(many, coll_type_size(call->type), comm->rank, &at);
        return one->at == many->at + at;
    default: return send->at == recv->at;
    }
}

static coll_status coll__refuse_overlap(coll_comm *comm, const coll_call *call)
{
    return COLL__REFUSE("send and recv overlap, but not as an operation in place would: give the same buffer, or two apart");
}

/* Check sides with lists of blocks. */
static coll_status coll__check_blocks(coll_comm *comm, const coll_call *call, const coll__side *send, const coll__side *recv,
                                      bool is_in_place)
{
    const size_t unit = coll_type_size(call->type);
    coll__interval few[16], *list = few;
    const int room = send->blocks + recv->blocks;
    if (room > 16 && !(list = (coll__interval *)coll__take(coll__like(comm), (size_t)room * sizeof *list)))
        return coll__explain_error(comm, call, COLL_ERR_MEMORY, "no memory for %d blocks", room);
    int n = 0;
    if (!is_in_place) {
        n = coll__intervals_of(send, unit, false, list);
        n += coll__intervals_of(recv, unit, true, list + n);
    } else if (coll__is_listed(recv)) {           /* the input is one of these blocks, or all of them         */
        n = coll__intervals_of(recv, unit, true, list);
    }
    const bool clash = coll__intervals_clash(list, n);
    if (list != few) coll__give(list);
    if (!clash) return COLL_OK;
    if (send->is_used && !is_in_place && !coll__is_listed(recv)) return coll__refuse_overlap(comm, call);
    const int place = coll__kind_shape_of(call->kind)->in_place;
    const char *const here = is_in_place || place == COLL__IN_PLACE_NEVER ? "" : place == COLL__IN_PLACE_BLOCK
                             ? "; in place, send is COLL_IN_PLACE or this rank's block of recv"
                             : "; in place, send is COLL_IN_PLACE";
    return COLL__REFUSE("blocks that are received overlap one another, or what is sent: keep them apart%s", here);
}

static coll_status coll__check_overlap(coll_comm *comm, const coll_call *call, const coll__side *send, const coll__side *recv)
{
    const size_t unit = coll_type_size(call->type), sent = coll__side_length(send, unit);
    const size_t received = coll__side_length(recv, unit);
    const uintptr_t from = (uintptr_t)send->at, to = (uintptr_t)recv->at;
    const bool is_listed = coll__is_listed(send) || coll__is_listed(recv);

    if (!is_listed && (!sent || !received || from + sent <= to || to + received <= from)) return COLL_OK;     /* apart  */
    const bool is_in_place = send->is_used && recv->is_used && coll__is_in_place(comm, call, send, recv);
    if (is_listed) return coll__check_blocks(comm, call, send, recv, is_in_place);
    return is_in_place ? COLL_OK : coll__refuse_overlap(comm, call);
}

/* This rank's own block must have the same length on both sides. */
static coll_status coll__check_own_block(coll_comm *comm, const coll_call *call, const coll__side *send, const coll__side *recv)
{
    const size_t unit = coll_type_size(call->type);
    const int i = comm->rank;
    char types[2][40];
    size_t at;

    if (!send->is_used || !recv->is_used || coll__kind_is(call->kind, COLL__NEIGHBORS | COLL__MESSAGE)
        || (!coll__is_listed(send) && !coll__is_listed(recv))) return COLL_OK;
    const size_t out = coll__side_block(send, unit, coll__is_listed(send) ? i : 0, &at);
    const size_t in = coll__side_block(recv, unit, coll__is_listed(recv) ? i : 0, &at);
    const coll_type from = coll__has_types(send) ? send->types[i] : call->type;
    const coll_type to = coll__has_types(recv) ? recv->types[i] : call->type;
    if (out == in && (out == 0 || from == to)) return COLL_OK;
    return COLL__REFUSE("this rank's own block has %zu x %s in send, but %zu x %s in recv: make them the same",
                        out / coll_type_size(from), coll__type_text(from, types[0], sizeof types[0]), in / coll_type_size(to),
                        coll__type_text(to, types[1], sizeof types[1]));
}

/* The first byte of each side must be readable by this process. */
static coll_status coll__check_memory(coll_comm *comm, const coll_call *call, const coll__side *const sides[2], size_t unit)
{
    const coll__session *session = comm->session;

    for (int i = 0; i < 2; i++) {
        const char *why = coll__side_length(sides[i], unit) ? session->inspect(session, sides[i]->at) : NULL;
        if (why) return COLL__REFUSE("%s is %s", sides[i]->name, why);
    }
    return COLL_OK;
}

static coll_status coll__check_buffers(coll_comm *comm, coll_call *call, coll__side *send, coll__side *recv)
{
    const size_t unit = coll_type_size(call->type);
    const bool has_one_buffer = coll__kind_has_one_buffer(call->kind);

    if (has_one_buffer) call->send = call->recv;
    send->at = (const unsigned char *)call->send;
    recv->at = (const unsigned char *)call->recv;
    if (has_one_buffer && call->count && !recv->at)
        return COLL__REFUSE("the buffer is NULL, with %zu elements: give their address", call->count);
    const coll__side *const sides[2] = { send, recv };
    for (int i = 0; i < 2; i++) {
        const coll__side *side = sides[i];
        const size_t length = side->at ? 0 : coll__side_length(side, unit);
        if (length)
            return COLL__REFUSE("%s is NULL, with %zu %s: give their address", side->name,
                                coll__has_types(side) ? length : length / unit, coll__has_types(side) ? "bytes" : "elements");
    }
    if (comm->session->inspect && !coll__is_extended(comm)) {
        const coll_status here = coll__check_memory(comm, call, sides, unit);
        if (here < 0) return here;
    }
    const coll_status status = coll__check_own_block(comm, call, send, recv);
    return status < 0 ? status : coll__check_overlap(comm, call, send, recv);
}

/* ---- >>residual ---- */

/* Without 8-bit and 16-bit types no wire type drops bits: every residual is refused. */
#define COLL__HAS_FEEDBACK COLL__HAS_ANY(COLL__TYPES_MIXED)

static coll_status coll__check_feedback(coll_comm *comm, const coll_call *call)
{
    const coll_type type = call->type;

    if (!coll__kind_reduces(call->kind)) return COLL__REFUSE("there is a residual, but nothing is rounded: leave it NULL");
    if (type != COLL_F32 && type != COLL_F16 && type != COLL_BF16)
        return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "there is no residual of %s, only of f32, f16 and bf16",
                                  coll_type_name(type));
    if (!COLL__HAS_FEEDBACK || call->wire == type)
        return COLL__REFUSE("there is a residual, but the wire has the type of the buffers, and leaves nothing out: set wire, or "
                            "leave residual NULL");
    return COLL_OK;
}

static coll_status coll__check_residual(coll_comm *comm, const coll_call *call, const coll__side *recv)
{
    const size_t unit = coll_type_size(call->type), extent = coll__input_extent(comm, call);
    const uintptr_t residual = (uintptr_t)call->residual, end = residual + extent * sizeof *call->residual;
    const uintptr_t send = (uintptr_t)call->send, to = (uintptr_t)call->recv;
    const size_t written = coll__side_length(recv, unit);

    if (extent > 0 && residual < send + extent * unit && send < end)
        return COLL__REFUSE("residual and send overlap: keep them apart");
    if (written > 0 && extent > 0 && residual < to + written && to < end)
        return COLL__REFUSE("residual and recv overlap: keep them apart");
    return COLL_OK;
}

/* ---- >>leaves ---- */

/* Bytes of an element of the input, and of all of it; in an allreduce. */
static inline size_t coll__leaf_unit(const coll_call *call, const coll__codec *codec)
{
    return coll__wants_reproducible(call) ? codec->type_size : codec->acc_size;
}

static inline size_t coll__sent_length(const coll_call *call, const coll__codec *codec)
{
    if (!COLL__HAS_LEAVES || !call->leaves) return call->count * codec->type_size;
    return (size_t)coll__leaf_vectors(call->first_leaf, call->leaves, !coll__wants_reproducible(call)) * call->count
         * coll__leaf_unit(call, codec);
}

#if COLL__HAS_LEAVES

/* Check a run of leaves, and set the length of `send` to that of its vectors. */
static coll_status coll__check_leaves(coll_comm *comm, const coll_call *call, const coll__codec *codec, coll__side *send)
{
    const size_t unit = coll__leaf_unit(call, codec);
    const bool is_sum = coll__kind_reduces(call->kind) && coll__is_floating(call->type)
        && (call->op == COLL_SUM || call->op == COLL_AVG);
    size_t bytes;

    if (call->leaves == 0) return COLL__REFUSE("first_leaf is %lld, but leaves is 0: set it to the number of leaves, or to -1",
                                               (long long)call->first_leaf);
    if (call->leaves < -1 || call->leaves > INT_MAX || call->first_leaf < 0 || call->first_leaf > INT_MAX)
        return COLL__REFUSE("%lld leaves from %lld on are out of range: 1 to %d leaves, or -1 for none, from 0 or more on",
                            (long long)call->leaves, (long long)call->first_leaf, INT_MAX);
    if (call->kind != COLL_ALLREDUCE || !is_sum || coll__is_mx(call->wire) || call->flags & COLL_STOCHASTIC || call->residual
        || call->algorithm || coll__is_extended(comm))
        return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "leaves are for sums and averages of floats and complex "
                                   "numbers in an allreduce, without COLL_STOCHASTIC, mx wire, residual and algorithm");
    const int64_t vectors = coll__leaf_vectors(call->first_leaf, call->leaves, !coll__wants_reproducible(call));
    if (call->count && __builtin_mul_overflow((size_t)vectors, call->count * unit, &bytes))
        return COLL__REFUSE("%lld vectors of %zu x %s are more than memory can hold", (long long)vectors, call->count,
                            coll_type_name(call->type));
    if (vectors && unit > codec->type_size && (call->send == COLL_IN_PLACE || call->send == call->recv) && call->count)
        return COLL__REFUSE("in place, but elements of nodes have %zu bytes and those of the result %zu: give two buffers", unit,
                            codec->type_size);
    send->count = coll__sent_length(call, codec) / codec->type_size;
    return COLL_OK;
}

#endif

/* ---- >>algorithm ---- */

/* The tuner's query for a checked call. */
static coll__query coll__query_of(const coll_comm *comm, const coll_call *call, const coll__codec *codec)
{
    const coll__numbers *const numbers = &comm->numbers;
    const bool reduces = coll__kind_reduces(call->kind);
    const double count = coll__call_elements(call, comm->size);
    const double each = (double)codec->wire_size + (double)codec->group_head / (double)((size_t)1 << codec->group_bits);
    return (coll__query){
        .kind = call->kind, .size = comm->size,
        .bytes = count * each, .sum_bytes = count * (reduces ? (double)codec->acc_size : each),
        .is_exact = !reduces || codec->is_exact, .is_commutative = !reduces || codec->is_commutative,
        .must_be_canonical = reduces && !codec->is_exact && (call->flags & (COLL_DETERMINISTIC | COLL_REPRODUCIBLE)),
        .algorithm = call->algorithm, .link = &numbers->link,
        .shares = numbers->shares.count ? &numbers->shares : NULL,
        .share = comm->session->share, .counts = comm->counts };
}

static coll_status coll__check_algorithm(coll_comm *comm, coll_call *call, const coll__codec *codec)
{
    char known[120] = "";

    if (coll__kind_is_message(call->kind) || (!COLL__HAS_CHOICE && !call->algorithm)) return COLL_OK;
    if (!COLL__HAS_CHOICE)
        return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "algorithm \"%.32s\", but this program was compiled with "
                                   "COLL_NO_CHOICE", call->algorithm);
    const bool is_named = call->algorithm != NULL;
    if (!is_named && !coll__is_extended(comm)) call->algorithm = coll__forced(comm->session, call->kind);
    if (!call->algorithm) return COLL_OK;
    const coll__query query = coll__query_of(comm, call, codec);
    const char *const why = coll__why_not(&query);
    if (!why) return COLL_OK;
    if (!is_named) {                              /* a forced one is used if possible                         */
        call->algorithm = NULL;
        return COLL_OK;
    }
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++)
        if (coll__may_be_used(&coll__algorithms[i], &query))
            coll__append(known, sizeof known, "%s%s", *known ? ", " : "", coll__algorithms[i].name);
    return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "no algorithm \"%.32s\" for this call%s%s; use %s",
                               call->algorithm, *why ? ": " : "", why, known);
}

/* ---- >>kinds ---- */

/* The switch that left out a kind of call; NULL: not left out. */
static inline const char *coll__kind_switch(coll_kind kind)
{
    static const struct { coll_kind last; bool is_here; } families[] = {
        { COLL_BARRIER, true }, { COLL_BROADCAST, COLL__HAS_BROADCAST }, { COLL_REDUCE, COLL__HAS_REDUCE },
        { COLL_ALLREDUCE, true }, { COLL_REDUCE_SCATTERV, COLL__HAS_REDUCE_SCATTER }, { COLL_EXSCAN, COLL__HAS_SCAN },
        { COLL_GATHERV, COLL__HAS_GATHER }, { COLL_SCATTERV, COLL__HAS_SCATTER }, { COLL_ALLGATHERV, true },
        { COLL_ALLTOALLW, COLL__HAS_ALLTOALL }, { COLL_NEIGHBOR_ALLTOALLW, COLL__HAS_NEIGHBOR }
    };
    int i = 0;

    if (kind == COLL_ALLREDUCE_LIST) return COLL__IS_WHOLE ? NULL : COLL__PROFILE;
    if (coll__kind_is_message(kind)) return COLL__HAS_MESSAGES ? NULL : COLL__PROFILE;
    if (!COLL__HAS_COUNTS && (coll__kind_has(kind, COLL__SUMMED | COLL__PAIRWISE) || kind >= COLL_NEIGHBOR_ALLGATHER))
        return "COLL_NO_COUNTS";
    while (families[i].last < kind) i++;
    return families[i].is_here ? NULL : "COLL_ONLY_KINDS";
}

COLL__FOR_SPEED

/* ---- >>the whole check ---- */

/* The most frequent case: a call like the last one of its kind.  Returns its plan; NULL: the call needs the full check. */
static inline const coll__plan *coll__check_by_plan(coll_comm *comm, coll_call *call)
{
    const coll__plan *plan = coll__plan_like(comm, call);
    const void *const send = coll__in_place_of(call->kind, call->send, call->recv);

    if (!plan || call->algorithm || call->residual || coll__forced(comm->session, call->kind)
        || !coll__plan_suits(comm, plan, call->kind, send, call->recv, call->count, call->root)) return NULL;
    call->send = coll__kind_has_one_buffer(call->kind) ? call->recv : send;
    call->wire = plan->request.call.wire;
    return plan;
}

static coll_status coll__check_call(coll_comm *comm, coll_call *call, coll__codec *codec, size_t **own)
{
    coll__side send, recv;
    coll_status status;

    const coll__plan *const plan = coll__check_by_plan(comm, call);
    if (plan) {
        *codec = plan->request.codec;
        return COLL_OK;
    }
    coll__sides_of(comm, call, &send, &recv);
    if (coll__has_types(&send)) call->type = 0;   /* alltoallw: blocks have types, lengths are in bytes       */
    const bool exchanges = coll__kind_exchanges(call->kind);
    if (exchanges && (call->send == COLL_IN_PLACE || call->send == call->recv)) coll__settle_exchange(call, &send, &recv);
    if ((status = coll__check_numbers(comm, call, &send, &recv)) < 0) return status;
    if ((status = coll__check_arithmetic(comm, call, codec)) < 0) return status;
    if (call->residual && (status = coll__check_feedback(comm, call)) < 0) return status;
#if COLL__HAS_LEAVES
    if ((call->leaves || call->first_leaf) && (status = coll__check_leaves(comm, call, codec, &send)) < 0) return status;
#endif
    if (call->kind == COLL_BARRIER) {
        coll__plan_make(comm, call, codec);
        return COLL_OK;
    }
    if ((status = coll__settle_offsets(comm, call, &send, &recv, own)) < 0) return status;
    if ((status = coll__settle_in_place(comm, call, &send, &recv)) < 0) return status;
    if ((status = coll__check_buffers(comm, call, &send, &recv)) < 0) return status;
    if (COLL__HAS_FEEDBACK && call->residual) return coll__check_residual(comm, call, &recv);
    if (!own || !*own) coll__plan_make(comm, call, codec);
    return COLL_OK;
}

/* Check every buffer of a list as an allreduce; they must not overlap one another. */
static coll_status coll__check_list(coll_comm *comm, const coll_call *call)
{
    coll__codec codec;
    coll_status status = COLL_OK;
    int n = 0;

    if (call->list_count < 0) return COLL__REFUSE("a list of %d buffers is out of range: 0 or more", call->list_count);
    if (call->list_count > 0 && !call->list) return COLL__REFUSE("the list of %d buffers is NULL", call->list_count);
    if (call->residual) return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "there is no residual of a list");
    coll__interval *list = (coll__interval *)coll__take(coll__like(comm), (2 * (size_t)call->list_count + 1) * sizeof *list);
    if (!list) return coll__explain_error(comm, call, COLL_ERR_MEMORY, "no memory for %d buffers", call->list_count);
    for (int i = 0; i < call->list_count && status == COLL_OK; i++) {
        const coll_list_item *b = &call->list[i];
        coll_call one = *call;
        one.kind = COLL_ALLREDUCE;
        one.send = b->send;
        one.recv = b->recv;
        one.count = b->count;
        one.type = b->type;
        status = coll__check_call(comm, &one, &codec, NULL);
        if (status < 0) {
            char why[sizeof comm->error];
            const char *said = strstr(comm->error, "allreduce");      /* after the name of the rank           */
            coll__print(why, sizeof why, "%s", said ? said : comm->error);
            (void)coll__explain_error(comm, call, status, "buffer %d, as an %s", i, why);
        }
        const size_t length = b->count * coll_type_size(b->type);
        const size_t sent = status == COLL_OK ? coll__sent_length(&one, &codec) : length;
        const uintptr_t from = (uintptr_t)one.send, to = (uintptr_t)b->recv;
        if (length) list[n++] = (coll__interval){ to, to + length, true };
        if (sent && from != to) list[n++] = (coll__interval){ from, from + sent, false };
        else if (from == to && sent > length) list[n++] = (coll__interval){ from + length, from + sent, false };
    }
    const bool clash = status == COLL_OK && coll__intervals_clash(list, n);
    coll__give(list);
    return clash ? COLL__REFUSE("buffers of the list overlap one another: keep them apart") : status;
}

/* The reserved member that is not 0; -1: none.  Without leaves their members are reserved, which precede the others. */
static inline int coll__descriptor_set(const coll_call *call)
{
    return COLL__HAS_LEAVES ? COLL__RESERVED_SET(call)
                            : coll__reserved_set((const uint64_t *)(const void *)&call->first_leaf, 2 * sizeof call->reserved);
}

/* Check that a call was passed, and that its reserved members are 0. */
static coll_status coll__check_descriptor(coll_comm *comm, const coll_call *call)
{
    const coll_call *const none = NULL;           /* nothing of it may be read                                */

    if (!call) return coll__explain_error(comm, none, COLL_ERR_ARGUMENT, "the call is NULL");
    const int set = coll__descriptor_set(call);
    return set < 0 ? COLL_OK : coll__explain_error(comm, none, COLL_ERR_ARGUMENT, "reserved[%d] of the coll_call is not 0: "
                                                   "set all members that you do not use to 0", set);
}

/* Check a call and fill in defaults. *own: memory that the call needs, or NULL. */
static coll_status coll__check(coll_comm *comm, coll_call *call, coll__codec *codec, size_t **own)
{
    coll_status status;

    *own = NULL;
    if ((int)call->kind < COLL_BARRIER || (int)call->kind >= COLL__KIND_COUNT) {
        const coll_call *const none = NULL;
        return coll__explain_error(comm, none, COLL_ERR_ARGUMENT, "invalid kind %d (see coll_kind)", (int)call->kind);
    }
    const char *const left_out = coll__kind_switch(call->kind);
    if (left_out)
        return coll__explain_error(comm, call, COLL_ERR_UNSUPPORTED, "this program was compiled without it (%s)", left_out);
    if (COLL__IS_WHOLE && call->kind == COLL_ALLREDUCE_LIST) {
        if ((status = coll__check_list(comm, call)) < 0) return status;
    } else if ((status = coll__check_call(comm, call, codec, own)) < 0
               || (status = coll__check_algorithm(comm, call, codec)) < 0) {
        coll__give(*own);
        *own = NULL;
    }
    return status;
}

#undef COLL__REFUSE

#endif /* COLL_CHECK_ARGUMENTS_H */
