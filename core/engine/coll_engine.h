/* coll_engine.h - runs algorithms: posts the rounds of an execution, slice by slice, and folds received data.
 *
 * SLICES.  A long vector is cut into slices, each a part of every block.  The algorithm runs on each slice as on a whole
 * vector.  So one slice is folded while the next ones are in transit.  The schedule is fixed: for every k, tick t has round k
 * of slice t - k * lag.
 *
 *     lag 2      tick  0    1    2    3    4    5
 *     slice 0          k=0       k=1
 *     slice 1               k=0       k=1
 *     slice 2                    k=0       k=1
 *     slice 3                         k=0       k=1
 *
 * Every rank posts the ticks in order, so two ranks agree on the order of their messages without labels.  A tick needs the
 * results of tick t - lag and is posted after that.  So at most `lag` ticks are in progress.
 *
 * MESSAGES.  Each step is one message.  A step of several blocks (circulant with a small radix) is packed into one message if
 * it is short, else sent block by block.  If the wire type differs from the user's type, messages are packed and unpacked in
 * staging memory.
 *
 * ORDER.  Messages of a communicator's own collectives use COLL_CHANNEL_CALLS, in an order that all ranks share.  Those of
 * derived communicators and prepared calls, whose order may differ between ranks, are matched by key. */
#ifndef COLL_ENGINE_H
#define COLL_ENGINE_H

/* ---- >>posting a round ---- */

/* Set the head and the state of a message. */
static inline void coll__xfer_ready(const coll_request *r, coll_xfer *x, long tick)
{
    memcpy(x->head, r->head, COLL_HEAD_LENGTH);
    coll__head_set_step(x->head, tick);
    x->channel = COLL_CHANNEL_CALLS;
    x->any_head = false;
    x->status = COLL_PENDING;
}

/* Address of a span if it is contiguous as in the message, else NULL; *bytes: of the message. */
static unsigned char *coll__in_one_piece(const coll_request *r, const coll__stage *stage, const coll__span *span, long slice,
                                         size_t *bytes)
{
    unsigned char *first = NULL;
    bool is_one = coll__is_as_sent(r, span->place);
    coll__range elements;

    *bytes = 0;
    for (int i = 0; r->codec.wire_size > 0 && i < span->blocks; i++) {    /* a barrier has very many empty blocks */
        unsigned char *at = coll__locate(r, stage, span, i, slice, &elements);
        if (i == 0) first = at;
        is_one = is_one && (uintptr_t)at - (uintptr_t)first == *bytes;
        *bytes += coll__bytes_of(r, span->place, elements.count);
    }
    return is_one && *bytes > 0 ? first : NULL;
}

/* The rank of the elements, as coll__pack expects it. */
static inline int coll__whose(const coll_request *r, coll__place place)
{
    return place == COLL__INPUT ? r->comm->rank : COLL__OF_RESULT;
}

/* Copy a span's blocks to or from one packed message. */
static void coll__pack_span(const coll_request *r, coll__stage *stage, const coll__span *span, long slice,
                            unsigned char *message, bool is_outgoing)
{
    for (int i = 0; i < span->blocks; i++) {
        coll__range x;
        unsigned char *at = coll__locate(r, stage, span, i, slice, &x);
        if (x.count == 0) continue;
        const bool as_is = coll__is_as_sent(r, span->place);
        const size_t length = coll__bytes_of(r, span->place, x.count);
        if (as_is) memcpy(is_outgoing ? message : at, is_outgoing ? at : message, length);
        else if (is_outgoing) coll__pack(&r->codec, message, at, x.count, x.at, coll__whose(r, span->place));
        else coll__unpack(&r->codec, at, message, x.count);
        message += length;
    }
}

COLL__INLINE coll_status coll__post(coll_request *r, coll_xfer *x, coll__verb verb)
{
    const coll__session *session = r->comm->session;

    if (r->order->is_keyed) return COLL__BY_KEY(session, post, r->order, x, verb == COLL__SEND);
    return verb == COLL__SEND ? session->transport->send(session->context, x) : session->transport->recv(session->context, x);
}

/* Use staging memory for the last message.  A span sent to several peers is packed once. */
static void coll__stage_message(coll_request *r, coll__stage *stage, long slice)
{
    const int last = stage->xfer_count - 1;
    coll__cargo *cargo = &stage->cargo[last];
    coll_xfer *x = &stage->xfers[last];

    for (int j = last - 1; cargo->is_send && j >= 0 && j >= last - 2; j--) {      /* sends and receives may alternate */
        if (!stage->cargo[j].is_send) continue;
        if (stage->xfers[j].length == x->length && !memcmp(&stage->cargo[j].span, &cargo->span, sizeof cargo->span))
            x->buffer = stage->xfers[j].buffer;
        break;
    }
    if (x->buffer) return;
    x->buffer = stage->staging + stage->staged;
    stage->staged += coll__round_up(x->length, 64);
    cargo->is_packed = true;
    if (cargo->is_send) coll__pack_span(r, stage, &cargo->span, slice, (unsigned char *)x->buffer, true);
}

/* Elements of a block, as in the caller's counts. */
static inline size_t coll__count_of_block(const coll__layout *l, int block)
{
    return COLL__HAS_COUNTS && l->kind == COLL__LISTED ? l->counts[block] : l->count;
}

/* Only sender and receiver of a block know its length and type: both write them into the head.  An empty block has no type. */
static void coll__head_set_block(unsigned char *head, const coll__layout *l, int block)
{
    const size_t count = coll__count_of_block(l, block);

    coll__head_set_count(head, count);
    if (l->types) coll__put32(head + 16, count > 0 ? (uint32_t)l->types[block] : 0);
}

static void coll__head_set_pair(const coll_request *r, coll_xfer *x, const coll__span *span)
{
    const coll__layout *l = coll__layout_at(r->execution, span->place);

    coll__head_set_block(x->head, l, coll__span_at(span, 0, l->blocks));
}

/* Queue one message of `bytes`: directly from its place `at`; NULL: it is not contiguous there. */
static coll_status coll__post_span(coll_request *r, coll__stage *stage, const coll__step *step, const coll__span *span,
                                   unsigned char *at, size_t bytes, long slice, long tick)
{
    coll__cargo *cargo = &stage->cargo[stage->xfer_count];
    coll_xfer *x = &stage->xfers[stage->xfer_count++];

    COLL__ASSERT(step->peer >= 0 && step->peer < r->comm->size && step->peer != r->comm->rank, "rank %d of %d exchanges with %d",
                 r->comm->rank, r->comm->size, step->peer);
    *cargo = (coll__cargo){ step->verb == COLL__SEND, false, *span, COLL__ELSEWHERE };
    coll__xfer_ready(r, x, tick);
    x->peer = coll__world_rank(r->comm, step->peer);
    x->length = bytes;
    x->buffer = at;
    if (at) cargo->at = (size_t)((uintptr_t)at - (uintptr_t)stage->base[span->place]);
    else if (bytes > 0) coll__stage_message(r, stage, slice);
    if (coll__kind_is(r->call.kind, COLL__PAIRWISE)) coll__head_set_pair(r, x, span);
    return coll__post(r, x, step->verb);
}

/* Queue the message or messages of one send or receive.  Their number may depend only on what both ranks know: the number of
 * blocks and their bytes. */
static coll_status coll__post_step(coll_request *r, coll__stage *stage, const coll__step *step, long slice, long tick)
{
    const coll__span *span = &step->span;
    const int circle = coll__circle(r->execution, span);
    size_t bytes;
    unsigned char *at = coll__in_one_piece(r, stage, span, slice, &bytes);
    coll_status status = COLL_OK;

    if (span->blocks <= 1 || bytes <= COLL__PACK_MOST) return coll__post_span(r, stage, step, span, at, bytes, slice, tick);
    for (int i = 0; i < span->blocks && status == COLL_OK; i++) {
        const coll__span one = { .place = span->place, .first = coll__span_at(span, i, circle), .blocks = 1, .step = 1,
                                 .about = coll__span_about(span, i, circle) };
        at = coll__in_one_piece(r, stage, &one, slice, &bytes);
        status = coll__post_span(r, stage, step, &one, at, bytes, slice, tick);
    }
    return status;
}

/* Record what the copies, or the folds (`verb`), make and from what. */
static void coll__note_made(const coll_request *r, coll__stage *stage, const coll__round *now, coll__verb verb, long slice)
{
    const coll__step *const end = now->steps + now->count;
    coll__spot *spot = stage->spots + stage->copies;
    coll__range there, x = { 0, 0 };

    for (const coll__step *step = now->steps; step < end; step++) {
        for (int i = 0; step->verb == verb && i < step->span.blocks; i++) {
            const coll__spot *const first = spot;
            if (verb == COLL__COPY) *spot++ = coll__spot_of(r, stage, &step->from, i, slice, &x);
            for (const coll__step *from = step + 1; from < end && from->verb == COLL__FROM; from++)
                if (i < from->span.blocks) *spot++ = coll__spot_of(r, stage, &from->span, i, slice, &x);
            if (spot == first) continue;
            const coll__spot to = coll__spot_of(r, stage, &step->span, i, slice, &there);
            stage->made[stage->made_count++] = (coll__made){ to, x.count, x.at, (int)(spot - first) };
        }
    }
}

static void coll__do_copies(const coll_request *r, const coll__stage *stage)
{
    for (int i = 0; i < stage->copies; i++) {
        const coll__made *m = &stage->made[i];
        const coll__place source = stage->spots[i].place;
        const unsigned char *from = coll__spot_at(stage, stage->spots[i]);
        unsigned char *to = coll__spot_at(stage, m->to);
        const bool is_wire = m->to.place == COLL__WORK, was_wire = source == COLL__WORK;
        if (to == from || m->count == 0) continue;
        const bool is_recoded = is_wire != was_wire && !coll__is_same(&r->codec);
        if (is_recoded && is_wire) coll__pack(&r->codec, to, from, m->count, m->index, coll__whose(r, source));
        else if (is_recoded) coll__unpack(&r->codec, to, from, m->count);
        else memmove(to, from, is_wire ? coll__wire_bytes(&r->codec, m->count) : m->count * r->codec.type_size);
    }
}

static inline coll__stage *coll__stage_of(const coll__execution *execution, long slice, int k)
{
    if (COLL__CACHED_MOST > 0 && execution->is_cached) return &execution->stages[k];
    return &execution->stages[slice < execution->stage_count ? slice : slice % execution->stage_count];
}

/* Begin a round that an equal call has prepared: messages and made blocks are kept, buffers may differ. */
static coll_status coll__post_again(coll_request *r, coll__stage *stage, long tick)
{
    coll_status status = COLL_OK;

    coll__do_copies(r, stage);
    for (int i = 0; i < stage->xfer_count && status == COLL_OK; i++) {
        const coll__cargo *cargo = &stage->cargo[i];
        coll_xfer *x = &stage->xfers[i];
        coll__xfer_ready(r, x, tick);
        if (cargo->at != COLL__ELSEWHERE) x->buffer = coll__behind(stage->base[cargo->span.place], cargo->at);
        else if (cargo->is_packed && cargo->is_send)
            coll__pack_span(r, stage, &cargo->span, 0, (unsigned char *)x->buffer, true);
        status = coll__post(r, x, cargo->is_send ? COLL__SEND : COLL__RECV);
    }
    return status;
}

/* Begin round k of a slice. */
static coll_status coll__post_round(coll_request *r, long slice, int k, long tick)
{
    coll__execution *execution = r->execution;
    coll__stage *stage = coll__stage_of(execution, slice, k);
    coll_status status = COLL_OK;

    stage->base[COLL__INPUT] = execution->input.base;
    stage->base[COLL__RESULT] = execution->result.base;
    stage->finished = 0;
    if (COLL__CACHED_MOST > 0 && stage->is_kept) return coll__post_again(r, stage, tick);
    coll__round now = coll__round_of(r, execution->list, execution->steps);
    execution->choice.algorithm->round(&now, k);
    COLL__ASSERT(now.count <= execution->steps, "round %d of %s has %d steps, planned were %d", k,
                 execution->choice.algorithm->name, now.count, execution->steps);
    stage->xfer_count = stage->copies = stage->made_count = 0;
    stage->staged = 0;
    coll__note_made(r, stage, &now, COLL__COPY, slice);
    stage->copies = stage->made_count;
    coll__note_made(r, stage, &now, COLL__FOLD, slice);
    coll__do_copies(r, stage);
    for (int i = 0; i < now.count && status == COLL_OK; i++)
        if (now.steps[i].verb == COLL__SEND || now.steps[i].verb == COLL__RECV)
            status = coll__post_step(r, stage, &now.steps[i], slice, tick);
    COLL__ASSERT(stage->made_count <= execution->made, "round %d of %s makes %d blocks, planned were %d", k,
                 execution->choice.algorithm->name, stage->made_count, execution->made);
    stage->is_kept = execution->is_cached && status == COLL_OK;
    return status;
}

/* ---- >>finishing a round ---- */

/* A message has failed; its head should have been `expected`.  Report the failure and fail. */
static coll_status coll__xfer_failed(coll_request *r, const coll_xfer *x, const unsigned char *expected)
{
    coll_failure failure = { COLL_OK, -1, "" };
    unsigned char last[COLL_HEAD_LENGTH];

    if (x->status != COLL_ERR_MISMATCH) return coll__session_broken(r->comm->session, x->status);
    memcpy(last, r->comm->session->activity.last, sizeof last); /* a rank that only sends has already ended a call that differs */
    if (coll__heads_disagree(last, x->head)) expected = last;
    coll__failed_mismatch(&failure, expected, r->comm->session->rank, x->head, x->peer);
    return coll__comm_fail(r->comm, &failure);
}

/* The first unfinished message of a stage has failed. */
static __attribute__((noinline)) coll_status coll__message_failed(coll_request *r, const coll__stage *stage)
{
    coll_xfer expected;

    memcpy(expected.head, r->head, sizeof expected.head);
    if (coll__kind_is(r->call.kind, COLL__PAIRWISE)) coll__head_set_pair(r, &expected, &stage->cargo[stage->finished].span);
    return coll__xfer_failed(r, &stage->xfers[stage->finished], expected.head);
}

/* How places hold values. */
static const coll__format coll__formats[] = { COLL__AS_USER, COLL__AS_USER, COLL__AS_WIRE, COLL__AS_SUM, COLL__AS_SUM };

static inline void coll__combine_made(const coll_request *r, const coll__made *m, void *result, const int *numbers)
{
    (void)numbers;
    coll__combine(&r->codec, &(coll__sum){ .sources = r->execution->sources, .n = m->from, .results = &result, .m = 1,
                                           .format = coll__formats[m->to.place], .count = m->count, .index = m->index,
                                           .scratch = r->execution->scratch COLL__NUMBERS(numbers) });
}

/* Not inline: other folds would have to look for numbers. */
static __attribute__((noinline)) void coll__fold_nodes(const coll_request *r, const coll__made *m, void *result)
{
    if (m->count == 0) return;                    /* slots may have no length                                 */
    const size_t slot = m->to.place == COLL__PART ? m->to.at / r->execution->part_slot / (size_t)r->execution->result.blocks : 0;
    coll__combine_made(r, m, result, coll__leaf_numbers(COLL__LEAVES_OF(&r->codec), r->comm->rank, m->to.place == COLL__RESULT,
                                                        slot));
}

/* Fold, block by block. */
static void coll__do_folds(const coll_request *r, const coll__stage *stage)
{
    coll__session *const session = r->comm->session;
    const bool tells = session->transport->charge_reduce != NULL;
    const coll__spot *spot = stage->spots + stage->copies;
    coll__source *const sources = r->execution->sources;
    size_t folded = 0;

    if (!COLL__MANY_THREADS) session->runs_operation = r->codec.fn != NULL;
    for (int i = stage->copies; i < stage->made_count; i++) {
        const coll__made *m = &stage->made[i];
        void *const result = coll__spot_at(stage, m->to);
        for (int n = 0; n < m->from; n++, spot++) {
            sources[n] = (coll__source){ coll__spot_at(stage, *spot), coll__formats[spot->place], r->comm->rank };
            if (tells && n > 0) folded += coll__bytes_of(r, spot->place, m->count);
        }
        if (COLL__LEAVES_OF(&r->codec)) coll__fold_nodes(r, m, result);
        else coll__combine_made(r, m, result, NULL);
    }
    if (!COLL__MANY_THREADS) session->runs_operation = false;
    if (folded > 0) session->transport->charge_reduce(session->context, folded);
}

/* ---- >>ticks ---- */

typedef struct coll__rounds { long first, last; } coll__rounds;

/* The rounds of a tick: round k is of slice tick - k * lag. */
static inline coll__rounds coll__rounds_of(const coll__execution *execution, long tick)
{
    if (execution->slices == 1) return (coll__rounds){ tick, tick };
    return (coll__rounds){ tick < execution->slices ? 0 : (tick - execution->slices) / execution->lag + 1,
                           tick / execution->lag < execution->rounds - 1 ? tick / execution->lag : execution->rounds - 1 };
}

/* Finish the rounds of a tick, if all their messages are done. */
static coll_status coll__finish_tick(coll_request *r, long tick)
{
    const coll__rounds now = coll__rounds_of(r->execution, tick);

    for (long k = now.first; k <= now.last; k++) {
        coll__stage *stage = coll__stage_of(r->execution, tick - k * r->execution->lag, (int)k);
        for (; stage->finished < stage->xfer_count; stage->finished++) {
            const coll_status status = stage->xfers[stage->finished].status;
            if (status == COLL_PENDING) return COLL_PENDING;
            if (status < 0) return coll__message_failed(r, stage);
        }
    }
    for (long k = now.first; k <= now.last; k++) {
        const long slice = tick - k * r->execution->lag;
        coll__stage *stage = coll__stage_of(r->execution, slice, (int)k);
        for (int i = 0; stage->staged > 0 && i < stage->xfer_count; i++) {
            const coll__cargo *cargo = &stage->cargo[i];
            if (cargo->is_packed && !cargo->is_send)
                coll__pack_span(r, stage, &cargo->span, slice, (unsigned char *)stage->xfers[i].buffer, false);
        }
        coll__do_folds(r, stage);
    }
    return COLL_OK;
}

/* The peers of all rounds: a bit for each direction of each peer (some share a bit).  NULL: unknown. */
static const uint64_t *coll__execution_peers(const coll_request *r)
{
    coll__execution *execution = r->execution;
    uint64_t behind = 0;

    if (!execution->peers || execution->has_peers) return execution->peers;
    for (int k = execution->rounds - 1; k >= 0; k--) {
        coll__round now = coll__round_of(r, execution->list, execution->steps);
        uint64_t peers = 0;
        execution->choice.algorithm->round(&now, k);
        for (const coll__step *step = now.steps; step < now.steps + now.count; step++)
            if (step->verb == COLL__SEND || step->verb == COLL__RECV)
                peers |= (uint64_t)1 << (2 * (unsigned)step->peer + (step->verb == COLL__SEND)) % 64;
        execution->peers[k] = peers;
        execution->peers[execution->rounds + k] = behind;
        behind |= peers;
    }
    execution->has_peers = true;
    return execution->peers;
}

/* Peers of the rounds that have not begun. */
static COLL__UNUSED uint64_t coll__execution_later(const coll_request *r)
{
    const coll__execution *execution = r->execution;
    const long begun = execution->posted;

    if (begun == execution->ticks) return 0;
    const uint64_t *peers = coll__execution_peers(r);
    return !peers ? ~(uint64_t)0 : begun ? peers[execution->rounds + begun - 1] : peers[0] | peers[execution->rounds];
}

/* Do earlier calls of its order still have to queue messages with the peers of its next round? */
static __attribute__((noinline)) bool coll__execution_is_held_up(const coll_request *r)
{
    const uint64_t *peers = coll__execution_peers(r);
    return !peers || peers[r->execution->posted] & r->order->ahead;
}

/* Advance an execution as far as possible without waiting. */
static coll_status coll__execution_advance(coll_request *r)
{
    coll__execution *execution = r->execution;

    if (execution->rounds == 0) return COLL_OK;
    COLL__ASSERT(execution->done < execution->ticks && execution->done <= execution->posted
                 && execution->posted <= execution->ticks, "%ld of %ld ticks are done, %ld begun", execution->done,
                 execution->ticks, execution->posted);
    for (;;) {
        while (execution->posted < execution->ticks && execution->posted - execution->done < execution->lag) {
            if (COLL__OVERLAP > 1 && r->order->ahead && coll__execution_is_held_up(r)) break;
            const long tick = execution->posted++;
            const coll__rounds now = coll__rounds_of(execution, tick);
            for (long k = now.first; k <= now.last; k++) {
                const coll_status posted = coll__post_round(r, tick - k * execution->lag, (int)k, tick);
                if (posted < 0) return coll__session_broken(r->comm->session, posted);
            }
        }
        if (COLL__OVERLAP > 1 && execution->posted == execution->done) return COLL_PENDING;
        const coll_status status = coll__finish_tick(r, execution->done);
        if (status != COLL_OK) return status;
        if (++execution->done == execution->ticks) break;
    }
    if (coll__copies_result(&r->call) && execution->result.count)
        memcpy(r->call.recv, execution->result.base, execution->result.count * r->codec.type_size);
    return COLL_OK;
}

/* Mark the ranks whose messages an execution waits for. */
static void coll__execution_late(const coll_request *r, unsigned char *is_late)
{
    const coll__execution *execution = r->execution;

    for (int s = 0; r->is_started && execution->rounds > 0 && s < execution->stage_count; s++)
        for (int i = execution->stages[s].finished; i < execution->stages[s].xfer_count; i++)
            if (execution->stages[s].xfers[i].status == COLL_PENDING) is_late[execution->stages[s].xfers[i].peer] = 1;
}

#endif /* COLL_ENGINE_H */
