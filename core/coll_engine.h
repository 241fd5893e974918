/* coll_engine.h - runs algorithms: cuts vectors into slices, posts rounds, folds what has arrived, waits.
 *
 * SLICES.  A long vector is cut into slices, each a share of every block, and the algorithm runs on each slice as on a
 * vector of its own, so that one slice is being folded while the next ones are on their way.  Which round of which slice
 * comes when is fixed: tick t holds round k of slice t - k * lag, for every k.
 *
 *     lag 2      tick  0    1    2    3    4    5
 *     slice 0          k=0       k=1
 *     slice 1               k=0       k=1
 *     slice 2                    k=0       k=1
 *     slice 3                         k=0       k=1
 *
 * Every rank posts the ticks in order, so two ranks agree on the order of the messages between them without any labels.  A
 * tick is posted when tick t - lag is done, whose results it needs; so `lag` ticks are on their way at any time.
 *
 * MESSAGES.  One message a step; a step of several blocks (circulant with a small radix) is packed into one message while it
 * is short, and otherwise sent block by block.  Where the wire type differs from the user's, messages are packed and
 * unpacked through staging memory. */
#ifndef COLL_ENGINE_H
#define COLL_ENGINE_H

enum {
    COLL__PACK_MOST     = 64 << 10,               /* bytes up to which several blocks share a message         */
    COLL__SLICE_MOST    = 128 << 10,              /* bytes of a block's slice: stays in cache until folded    */
    COLL__SLICE_LEAST   = 16 << 10,
    COLL__LANDING_MOST  = 1 << 20,                /* bytes that may be on their way to a rank in one round    */
    COLL__LAG           = 3
};

/* ---- >>geometry: where a block's slice lies ---- */

typedef struct coll__range { size_t at, count; } coll__range;

/* Part `i` of `parts` of `total` elements; the first ones are longer by one where it does not divide. */
static inline coll__range coll__part(size_t total, size_t parts, size_t i)
{
    const size_t each = total / parts, longer = total % parts;
    return (coll__range){ each * i + coll__least(i, longer), each + (i < longer) };
}

/* Block `block` of the vector, cut to slice `slice`. */
static coll__range coll__slice_of(const coll__flow *flow, int block, long slice)
{
    const coll__range whole = coll__part(flow->total, (size_t)flow->blocks, (size_t)block);
    const coll__range cut = coll__part(whole.count, (size_t)flow->slices, (size_t)slice);
    return (coll__range){ whole.at + cut.at, cut.count };
}

/* The block that this rank folds, and that every work slot is as long as. */
static inline int coll__folded_block(const coll_request *r) { return r->flow.blocks > 1 ? r->comm->rank : 0; }

/* `length` bytes behind a pointer that may be NULL when there are no elements.  It drops the const of inputs, which the
 * engine keeps in deed: it never writes to them. */
static inline unsigned char *coll__behind(const void *at, size_t length) { return (unsigned char *)((uintptr_t)at + length); }

/* Memory and length of one block of a span; in the user's type unless it is a work slot. */
static unsigned char *coll__locate(const coll_request *r, coll__stage *stage, coll__place place, int block, long slice,
                                   size_t *count)
{
    const coll__flow *flow = &r->flow;
    const bool is_slot = place == COLL__WORK || place == COLL__MINE;
    const coll__range range = coll__slice_of(flow, is_slot ? coll__folded_block(r) : block, slice);

    *count = range.count;
    switch (place) {
    case COLL__WORK: return stage->work + (size_t)block * flow->slot_length;
    case COLL__MINE: return stage->mine;
    case COLL__INPUT: return coll__behind(r->call.send, (range.at - flow->input_origin) * r->codec.type_size);
    default: return coll__behind(r->call.recv, (range.at - flow->result_origin) * r->codec.type_size);
    }
}

/* ---- >>set-up ---- */

/* Cut the vector: how many slices, how far apart their rounds. */
static void coll__flow_cut(coll__flow *flow, const coll_request *r)
{
    const size_t longest = coll__part(flow->total, (size_t)flow->blocks, 0).count;
    const size_t room = COLL__LANDING_MOST / (size_t)r->comm->size;
    const size_t most = coll__most(COLL__SLICE_LEAST, coll__least(COLL__SLICE_MOST, room));
    const size_t each = coll__most(1, r->codec.wire_size ? most / r->codec.wire_size : most);

    flow->slices = (long)coll__most(1, (longest + each - 1) / each);
    flow->lag = flow->slices < COLL__LAG ? flow->slices : COLL__LAG;
    flow->ticks = flow->slices + (flow->rounds - 1) * flow->lag;
}

/* Lay the stages out in the communicator's arena, which grows to the largest need and is then reused. */
static coll_status coll__flow_lay_out(coll__flow *flow, coll_request *r)
{
    coll_comm *comm = r->comm;
    const size_t size = (size_t)comm->size, steps = 2 * size + 2;
    const size_t longest = coll__part(coll__part(flow->total, (size_t)flow->blocks, 0).count, (size_t)flow->slices, 0).count;
    const size_t user = coll__round_up(longest * r->codec.type_size, 64);
    const size_t wire = coll__round_up(longest * r->codec.wire_size, 64);
    const size_t packed = 2 * (size - 1) * wire;
    const size_t staging = r->codec.same ? coll__least(packed, 2 * (size_t)flow->radix * COLL__PACK_MOST) : packed;
    const size_t work = flow->algorithm->folds ? size * wire + user : 0;
    const size_t table = coll__round_up(steps * (sizeof(coll_xfer) + sizeof(coll__step) + sizeof(coll__step *)), 64);

    flow->slot_length = wire;
    flow->stage_count = (int)coll__least((size_t)flow->slices, (size_t)(flow->lag * flow->rounds));
    const size_t heads = coll__round_up((size_t)flow->stage_count * sizeof(coll__stage), 64);
    const size_t each = table + work + staging;
    const size_t scratch = coll__combine_scratch(comm->size) + size * sizeof(coll__source);
    const size_t length = scratch + heads + (size_t)flow->stage_count * each + 64;
    if (length > comm->arena_length) {
        free(comm->arena);
        comm->arena = coll__allocate(length);
        comm->arena_length = comm->arena ? length : 0;
        if (!comm->arena) return COLL_ERR_MEMORY;
    }
    unsigned char *at = (unsigned char *)comm->arena + coll__round_up(scratch, 64);
    flow->stages = (coll__stage *)(void *)at;
    at += heads;
    for (int i = 0; i < flow->stage_count; i++, at += each) {
        coll__stage *stage = &flow->stages[i];
        *stage = (coll__stage){ 0 };
        stage->work = at;
        stage->mine = at + size * wire;
        stage->staging = at + work;
        stage->xfers = (coll_xfer *)(void *)(at + work + staging);
        stage->steps = (coll__step *)(void *)(stage->xfers + steps);
        stage->origin = (coll__step **)(void *)(stage->steps + steps);
    }
    return COLL_OK;
}

static coll__round coll__round_of(const coll_request *r, coll__step *steps)
{
    const coll_comm *comm = r->comm;
    return (coll__round){ comm->rank, comm->size, r->call.root, r->flow.radix, steps, 0, 2 * comm->size + 2 };
}

/* Choose the algorithm of a checked call, count its rounds and cut the vector.  Takes no memory. */
static void coll__flow_plan(coll_request *r)
{
    coll__flow *flow = &r->flow;
    coll__choice choice = { 0 };

    (void)coll__choose(&choice, r->comm, &r->call);
    *flow = (coll__flow){ .algorithm = choice.algorithm, .radix = choice.radix, .seconds = choice.seconds };
    flow->total = coll__vector_count(&r->call, r->comm->size);
    flow->blocks = choice.algorithm->by_block ? r->comm->size : 1;
    if (r->call.kind == COLL_ALLGATHER) flow->input_origin = r->call.count * (size_t)r->comm->rank;
    if (r->call.kind == COLL_REDUCE_SCATTER) flow->result_origin = r->call.count * (size_t)r->comm->rank;

    coll__round dry = coll__round_of(r, NULL);
    while (flow->algorithm->round(&dry, flow->rounds)) flow->rounds++;
    if (flow->rounds > 0) coll__flow_cut(flow, r);
}

/* Make the flow of a checked call ready. */
static coll_status coll__flow_start(coll_request *r)
{
    coll__flow_plan(r);
    return r->flow.rounds > 0 ? coll__flow_lay_out(&r->flow, r) : COLL_OK;    /* 0: e.g. a barrier of one     */
}

/* ---- >>posting a round ---- */

static coll_xfer *coll__new_xfer(coll_request *r, coll__stage *stage, coll__step *step, long tick)
{
    const int i = stage->xfer_count++;
    coll_xfer *x = &stage->xfers[i];

    stage->origin[i] = step;
    memcpy(x->head, r->head, COLL_HEAD_LENGTH);
    coll__head_set_step(x->head, tick);
    x->buffer = NULL;
    x->length = 0;
    x->peer = step->peer;
    x->channel = COLL_CHANNEL_CALLS;
    x->any_head = false;
    x->status = COLL_PENDING;
    return x;
}

static size_t coll__span_bytes(const coll_request *r, coll__stage *stage, const coll__span *span, long slice)
{
    size_t bytes = 0, count;

    for (int b = 0; b < span->blocks; b++) {
        (void)coll__locate(r, stage, span->place, coll__wrap(span->first + b, r->comm->size), slice, &count);
        bytes += count * r->codec.wire_size;
    }
    return bytes;
}

/* Move a span's blocks between their places and one packed message. */
static void coll__pack_span(const coll_request *r, coll__stage *stage, const coll__span *span, long slice,
                            unsigned char *message, bool is_outgoing)
{
    for (int b = 0; b < span->blocks; b++) {
        size_t count;
        unsigned char *at = coll__locate(r, stage, span->place, coll__wrap(span->first + b, r->comm->size), slice, &count);
        const size_t length = count * r->codec.wire_size;
        if (length == 0) continue;
        if (span->place == COLL__WORK || r->codec.same) memcpy(is_outgoing ? message : at, is_outgoing ? at : message, length);
        else if (is_outgoing) coll__pack(&r->codec, message, at, count);
        else coll__unpack(&r->codec, at, message, count);
        message += length;
    }
}

static coll_status coll__post(coll_request *r, coll_xfer *x, coll__verb verb)
{
    const coll_comm *comm = r->comm;
    return verb == COLL__SEND ? comm->transport->send(comm->context, x) : comm->transport->recv(comm->context, x);
}

/* A message through staging memory.  The same span sent to several peers is packed once. */
static void coll__stage_message(coll_request *r, coll__stage *stage, coll_xfer *x, coll__step *step, long slice, size_t bytes)
{
    const int i = stage->xfer_count - 1;
    const coll__step *before = i > 0 ? stage->origin[i - 1] : NULL;

    x->length = bytes;
    for (int j = i - 1; before && j >= 0; j--) {  /* sends and receives alternate: look back over a few */
        before = stage->origin[j];
        if (step->verb == COLL__SEND && before->verb == COLL__SEND) {
            if (!memcmp(&before->span, &step->span, sizeof step->span)) x->buffer = stage->xfers[j].buffer;
            break;
        }
    }
    if (x->buffer) return;
    x->buffer = stage->staging + stage->staged;
    stage->staged += coll__round_up(bytes, 64);
    if (step->verb == COLL__SEND) coll__pack_span(r, stage, &step->span, slice, (unsigned char *)x->buffer, true);
}

/* Queue the message or messages of one send or receive. */
static coll_status coll__post_step(coll_request *r, coll__stage *stage, coll__step *step, long slice, long tick)
{
    const size_t bytes = coll__span_bytes(r, stage, &step->span, slice);
    const bool as_is = step->span.place == COLL__WORK || r->codec.same;
    coll_status status = COLL_OK;

    if (!as_is || (step->span.blocks > 1 && bytes <= COLL__PACK_MOST)) {
        coll_xfer *x = coll__new_xfer(r, stage, step, tick);
        coll__stage_message(r, stage, x, step, slice, bytes);
        return coll__post(r, x, step->verb);
    }
    for (int b = 0; b < step->span.blocks && status == COLL_OK; b++) {
        coll_xfer *x = coll__new_xfer(r, stage, step, tick);
        size_t count;
        x->buffer = coll__locate(r, stage, step->span.place, coll__wrap(step->span.first + b, r->comm->size), slice, &count);
        x->length = count * r->codec.wire_size;
        status = coll__post(r, x, step->verb);
    }
    return status;
}

static void coll__copy_step(coll_request *r, coll__stage *stage, const coll__step *step, long slice)
{
    size_t count;
    unsigned char *to = coll__locate(r, stage, step->span.place, step->span.first, slice, &count);
    const unsigned char *from = coll__locate(r, stage, step->from.place, step->from.first, slice, &count);

    if (to == from || count == 0) return;
    if (step->span.place == COLL__WORK && !r->codec.same) coll__pack(&r->codec, to, from, count);
    else memmove(to, from, count * r->codec.type_size);
}

/* Combine all contributions of this slice into its block. */
static void coll__fold_step(coll_request *r, coll__stage *stage, const coll__step *step, long slice)
{
    const int size = r->comm->size;
    unsigned char *scratch = (unsigned char *)r->comm->arena;
    coll__source *sources = (coll__source *)(void *)(scratch + coll__combine_scratch(size));
    size_t count;

    for (int i = 0; i < size; i++)
        sources[i] = (coll__source){ coll__locate(r, stage, COLL__WORK, i, slice, &count), true };
    sources[r->comm->rank] = (coll__source){ coll__locate(r, stage, COLL__INPUT, coll__folded_block(r), slice, &count), false };
    void *const result = coll__locate(r, stage, step->span.place, step->span.first, slice, &count);
    coll__combine(&r->codec, sources, size, &result, 1, count, scratch);
}

static inline coll__stage *coll__stage_of(const coll__flow *flow, long slice) { return &flow->stages[slice % flow->stage_count]; }

/* Begin round k of a slice. */
static coll_status coll__post_round(coll_request *r, long slice, int k, long tick)
{
    coll__stage *stage = coll__stage_of(&r->flow, slice);
    coll__round now = coll__round_of(r, stage->steps);
    coll_status status = COLL_OK;

    r->flow.algorithm->round(&now, k);
    stage->step_count = now.count;
    stage->xfer_count = stage->finished = 0;
    stage->staged = 0;
    for (int i = 0; i < now.count; i++)
        if (now.steps[i].verb == COLL__COPY) coll__copy_step(r, stage, &now.steps[i], slice);
    for (int i = 0; i < now.count && status == COLL_OK; i++)
        if (now.steps[i].verb == COLL__SEND || now.steps[i].verb == COLL__RECV)
            status = coll__post_step(r, stage, &now.steps[i], slice, tick);
    return status;
}

/* ---- >>finishing a round ---- */

/* What became of a stage's messages: COLL_OK when all are done. */
static coll_status coll__stage_status(coll_request *r, coll__stage *stage, coll_failure *failure)
{
    while (stage->finished < stage->xfer_count) {
        const coll_xfer *x = &stage->xfers[stage->finished];
        if (x->status == COLL_PENDING) return COLL_PENDING;
        if (x->status == COLL_ERR_MISMATCH) return coll__blame_mismatch(failure, r->head, r->comm->rank, x->head, x->peer);
        if (x->status < 0) return x->status;
        stage->finished++;
    }
    return COLL_OK;
}

static void coll__finish_round(coll_request *r, long slice)
{
    coll__stage *stage = coll__stage_of(&r->flow, slice);
    const unsigned char *low = stage->staging, *high = stage->staging + stage->staged;

    for (int i = 0; i < stage->xfer_count; i++) {
        const coll__step *step = stage->origin[i];
        unsigned char *at = (unsigned char *)stage->xfers[i].buffer;
        if (step->verb == COLL__RECV && at >= low && at < high) coll__pack_span(r, stage, &step->span, slice, at, false);
    }
    for (int i = 0; i < stage->step_count; i++)
        if (stage->steps[i].verb == COLL__FOLD) coll__fold_step(r, stage, &stage->steps[i], slice);
}

/* Call `act` for every (slice, round) of a tick, until one is not done. */
static coll_status coll__each_of_tick(coll_request *r, long tick,
                                      coll_status (*act)(coll_request *, long slice, int k, long tick))
{
    const coll__flow *flow = &r->flow;
    coll_status status = COLL_OK;

    for (int k = 0; k < flow->rounds && status == COLL_OK; k++) {
        const long slice = tick - k * flow->lag;
        if (slice >= 0 && slice < flow->slices) status = act(r, slice, k, tick);
    }
    return status;
}

static coll_status coll__check_round(coll_request *r, long slice, int k, long tick)
{
    coll_failure failure = { COLL_OK, -1, "" };
    const coll_status status = coll__stage_status(r, coll__stage_of(&r->flow, slice), &failure);

    (void)k, (void)tick;
    if (status < 0) return coll__comm_fail(r->comm, failure.status != COLL_OK ? &failure : NULL);
    return status;
}

static coll_status coll__complete_round(coll_request *r, long slice, int k, long tick)
{
    (void)k, (void)tick;
    coll__finish_round(r, slice);
    return COLL_OK;
}

/* Move a flow on as far as it goes without waiting. */
static coll_status coll__flow_advance(coll_request *r)
{
    coll__flow *flow = &r->flow;

    if (flow->rounds == 0) return COLL_OK;
    for (;;) {
        while (flow->posted < flow->ticks && flow->posted - flow->done < flow->lag) {
            const coll_status status = coll__each_of_tick(r, flow->posted++, coll__post_round);
            if (status < 0) return coll__comm_fail(r->comm, NULL);
        }
        const coll_status status = coll__each_of_tick(r, flow->done, coll__check_round);
        if (status != COLL_OK) return status;
        coll__each_of_tick(r, flow->done, coll__complete_round);
        if (++flow->done == flow->ticks) return COLL_OK;
    }
}

/* Mark the ranks whose messages a flow is waiting for. */
static void coll__flow_late(const coll_request *r, unsigned char *is_late)
{
    const coll__flow *flow = &r->flow;

    for (int s = 0; flow->rounds > 0 && s < flow->stage_count; s++)
        for (int i = flow->stages[s].finished; i < flow->stages[s].xfer_count; i++)
            if (flow->stages[s].xfers[i].status == COLL_PENDING) is_late[flow->stages[s].xfers[i].peer] = 1;
}

#endif /* COLL_ENGINE_H */
