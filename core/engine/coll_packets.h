/* coll_packets.h - runs algorithms in packets (coll_tuner.h) for blocks whose length only sender and receiver know.
 *
 *     rounds of the algorithm      0 ======= 1 ======= 2 =======      a packet for each block, with its bytes if it is short
 *     the direct exchange            -------------------------        long blocks, from buffer to buffer
 *
 * INPUT and RESULT are the user's buffers.  A slot of WORK holds the description of a packet and the address of its bytes: in
 * the input, or in a received message.  So copies between slots move no bytes.  A block is copied once into each message, and
 * once out of the last one.
 *
 * Every received packet is checked against what this rank knows before a byte is used. */
#ifndef COLL_PACKETS_H
#define COLL_PACKETS_H

#if COLL__HAS_COUNTS && COLL__HAS_MESSAGES && COLL__HAS_CHOICE

/* A packet's description of its block: count and type (0 if empty).  `length`: bytes in the packet, all of the block or none. */
typedef struct coll__packet {
    uint64_t count;
    uint32_t type, length;
    const unsigned char *at;
} coll__packet;

/* A running call; at the front of its workspace's memory. */
typedef struct coll__packets {
    const coll__algorithm *straight;              /* algorithm for the long blocks of this kind               */
    size_t       each;                            /* bytes of a packet                                        */
    int          round;                           /* the current one                                          */
    bool         is_posted;                       /* its messages are posted                                  */
    int          xfer_count, finished;            /* messages of this round; completed ones, counted from the first */
    int          long_count, long_finished;       /* the same for long blocks                                 */
    int          steps;                           /* of this round                                            */
    coll__step  *list, *long_list;                /* long_list: the direct exchange, of long_steps steps      */
    int          long_steps;
    coll_xfer   *xfers, *longs;
    coll__packet *slots;                          /* WORK                                                     */
    unsigned char *messages;                      /* free memory for messages                                 */
} coll__packets;

static inline coll__packets *coll__packets_of(const coll_request *r) { return (coll__packets *)coll__workspace_of(r)->arena; }

/* ---- >>blocks ---- */

/* A block of the user's buffer: its address and length. */
static unsigned char *coll__block_at(const coll_request *r, coll__place place, int block, size_t *length)
{
    const coll__layout *l = coll__layout_at(r->execution, place);
    const coll__range range = coll__block_range(l, block);

    *length = range.count * r->codec.type_size;
    return coll__behind(l->base, range.at * r->codec.type_size);
}

/* Its packet. */
static coll__packet coll__packet_of(const coll_request *r, coll__place place, int block)
{
    const coll__layout *l = coll__layout_at(r->execution, place);
    const size_t count = coll__count_of_block(l, block);
    size_t length;
    const unsigned char *at = coll__block_at(r, place, block, &length);
    const coll_type type = l->types ? l->types[block] : r->call.type;

    return (coll__packet){ count, count > 0 ? (uint32_t)type : 0,
                           length <= (size_t)r->execution->choice.room ? (uint32_t)length : 0, at };
}

/* The packet of block or slot `i` of a span. */
static coll__packet coll__packet_at(const coll_request *r, const coll__span *span, int i)
{
    const int at = coll__span_at(span, i, coll__circle(r->execution, span));
    return span->place == COLL__INPUT ? coll__packet_of(r, COLL__INPUT, at) : coll__packets_of(r)->slots[at];
}

/* ---- >>received packets ---- */

/* A packet describes another block than this rank expects. */
static coll_status coll__packet_misfits(coll_request *r, const coll__packet *got, int block, int source)
{
    const coll__session *session = r->comm->session;
    const coll__layout *l = &r->execution->result;
    const int peer = coll__world_rank(r->comm, source);
    unsigned char ours[COLL_HEAD_LENGTH], theirs[COLL_HEAD_LENGTH];
    coll_failure failure = { COLL_OK, -1, "" };

    memcpy(ours, r->head, sizeof ours);
    memcpy(theirs, r->head, sizeof theirs);
    coll__head_set_block(ours, l, block);
    coll__head_set_count(theirs, got->count);
    if (l->types) coll__put32(theirs + 16, got->type);
    coll__failed_mismatch(&failure, ours, session->rank, theirs, peer);
    return coll__comm_fail(r->comm, &failure);
}

/* A packet that no correct peer sends. */
static coll_status coll__packet_wrong(coll_request *r, const coll__packet *got, int peer)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__set_failure(&failure, COLL_ERR_PROTOCOL, peer,
                      "rank %d got a packet from rank %d that makes no sense: %llu elements in %u "
                      "bytes", r->comm->session->rank, peer, (unsigned long long)got->count, (unsigned)got->length);
    return coll__comm_fail(r->comm, &failure);
}

/* Store a packet as block or slot `i` of a span.  In RESULT a block, or the description of a long one, is at its destination. */
static coll_status coll__packet_put(coll_request *r, const coll__span *span, int i, const coll__packet *got)
{
    const int block = coll__span_at(span, i, coll__circle(r->execution, span));
    size_t length;

    if (span->place != COLL__RESULT) {
        coll__packets_of(r)->slots[block] = *got;
        return COLL_OK;
    }
    const coll__packet want = coll__packet_of(r, COLL__RESULT, block);
    const int source = coll__kind_shape_of(r->call.kind)->recv.over == COLL__OVER_ONE ? r->call.root : block;
    if (got->count != want.count || got->type != want.type) return coll__packet_misfits(r, got, block, source);
    if (got->length != want.length) return coll__packet_wrong(r, got, coll__world_rank(r->comm, source));
    unsigned char *const to = coll__block_at(r, COLL__RESULT, block, &length);
    if (got->length) memcpy(to, got->at, got->length);
    return COLL_OK;
}

/* ---- >>messages ---- */

static coll_status coll__packets_post(coll_request *r, const coll__step *step)
{
    coll__packets *p = coll__packets_of(r);
    coll_xfer *x = &p->xfers[p->xfer_count++];

    coll__xfer_ready(r, x, p->round);
    x->peer = coll__world_rank(r->comm, step->peer);
    x->length = (size_t)step->span.blocks * p->each;
    x->buffer = p->messages;
    p->messages += x->length;
    for (int i = 0; step->verb == COLL__SEND && i < step->span.blocks; i++) {
        const coll__packet packet = coll__packet_at(r, &step->span, i);
        unsigned char *const at = (unsigned char *)x->buffer + (size_t)i * p->each, *const body = at + COLL__PACKET_HEAD;
        coll__put64(at, packet.count);
        coll__put32(at + 8, packet.type);
        coll__put32(at + 12, packet.length);
        if (packet.length) memcpy(body, packet.at, packet.length);
        memset(body + packet.length, 0, p->each - COLL__PACKET_HEAD - packet.length);
    }
    return coll__post(r, x, step->verb);
}

/* Between two ranks, packets of round 0 precede the long block. */
static coll_status coll__packets_begin_round(coll_request *r)
{
    coll__packets *p = coll__packets_of(r);
    coll__round now = coll__round_of(r, p->list, r->execution->steps);
    coll_status status = COLL_OK;

    r->execution->choice.algorithm->round(&now, p->round);
    p->steps = now.count;
    p->xfer_count = p->finished = 0;
    for (int s = 0; s < p->steps && status == COLL_OK; s++) {
        const coll__step *step = &p->list[s];
        for (int i = 0; step->verb == COLL__COPY && i < step->span.blocks && status == COLL_OK; i++) {
            if (step->span.place == COLL__RESULT && step->from.place == COLL__INPUT) continue;    /* see coll__longs_begin */
            const coll__packet packet = coll__packet_at(r, &step->from, i);
            status = coll__packet_put(r, &step->span, i, &packet);
        }
    }
    for (int s = 0; s < p->steps && status == COLL_OK; s++)
        if (p->list[s].verb != COLL__COPY) status = coll__packets_post(r, &p->list[s]);
    return status;
}

/* All messages of this round are done: take the packets out of the received ones. */
static coll_status coll__packets_end_round(coll_request *r)
{
    const coll__packets *p = coll__packets_of(r);
    const coll_xfer *x = p->xfers;
    coll_status status = COLL_OK;

    for (const coll__step *step = p->list; step < p->list + p->steps; x += step++->verb != COLL__COPY) {
        const unsigned char *at = (const unsigned char *)x->buffer;
        for (int i = 0; step->verb == COLL__RECV && i < step->span.blocks && status == COLL_OK; i++, at += p->each) {
            const coll__packet got = { coll__get64(at), coll__get32(at + 8), coll__get32(at + 12), at + COLL__PACKET_HEAD };
            if (got.length > (uint32_t)r->execution->choice.room) return coll__packet_wrong(r, &got, x->peer);
            status = coll__packet_put(r, &step->span, i, &got);
        }
    }
    return status;
}

/* ---- >>long blocks ---- */

/* The step in the heads of their messages; packets use other steps. */
static inline long coll__long_step(const coll_request *r) { return r->execution->rounds; }

static coll_status coll__long_post(coll_request *r, const coll__step *step)
{
    coll__packets *p = coll__packets_of(r);
    const int block = coll__span_at(&step->span, 0, coll__circle(r->execution, &step->span));
    size_t length;
    unsigned char *const at = coll__block_at(r, step->span.place, block, &length);

    if (length <= (size_t)r->execution->choice.room) return COLL_OK;
    coll_xfer *x = &p->longs[p->long_count++];
    coll__xfer_ready(r, x, coll__long_step(r));
    coll__head_set_block(x->head, coll__layout_at(r->execution, step->span.place), block);
    x->peer = coll__world_rank(r->comm, step->peer);
    x->buffer = at;
    x->length = length;
    return coll__post(r, x, step->verb);
}

/* The single round of the direct exchange: long blocks, and our own block of any length. */
static coll_status coll__longs_begin(coll_request *r)
{
    coll__packets *p = coll__packets_of(r);
    coll__round now = coll__round_of(r, p->long_list, p->long_steps);
    coll_status status = COLL_OK;

    now.radix = now.size;
    p->straight->round(&now, 0);
    for (int s = 0; s < now.count && status == COLL_OK; s++) {
        const coll__step *step = &now.steps[s];
        if (step->verb != COLL__COPY) {
            status = coll__long_post(r, step);
            continue;
        }
        size_t length;
        const unsigned char *const from = coll__block_at(r, COLL__INPUT, r->comm->rank, &length);
        unsigned char *const to = coll__block_at(r, COLL__RESULT, r->comm->rank, &length);
        if (length && to != from) memmove(to, from, length);
    }
    return status;
}

/* ---- >>progress ---- */

/* A message has failed.  Two ranks may disagree on whether a block is long; then one of them expects packets and receives the
 * block.  The report has the expected length. */
static coll_status coll__packets_failed(coll_request *r, const coll_xfer *x, bool is_long)
{
    const bool got_long = coll__get16(x->head + 2) == ((uint32_t)coll__long_step(r) & 0xffff);
    unsigned char expected[COLL_HEAD_LENGTH];

    memcpy(expected, r->head, sizeof expected);
    if (is_long || got_long) coll__head_set_block(expected, &r->execution->result, coll__rank_here(r->comm, x->peer));
    return coll__xfer_failed(r, x, expected);
}

/* Are these messages done? */
static coll_status coll__packets_check(coll_request *r, const coll_xfer *xfers, int count, int *finished, bool is_long)
{
    for (; *finished < count; ++*finished) {
        const coll_xfer *x = &xfers[*finished];
        if (x->status == COLL_PENDING) return COLL_PENDING;
        if (x->status < 0) return coll__packets_failed(r, x, is_long);
    }
    return COLL_OK;
}

static coll_status coll__packets_advance(coll_request *r)
{
    coll__packets *p = coll__packets_of(r);

    for (; p->round < r->execution->rounds; p->round++, p->is_posted = false) {
        coll_status status = p->is_posted ? COLL_OK : coll__packets_begin_round(r);
        if (status == COLL_OK && !p->is_posted && p->round == 0) status = coll__longs_begin(r);
        if (status < 0) return coll__session_broken(r->comm->session, status);
        p->is_posted = true;
        status = coll__packets_check(r, p->xfers, p->xfer_count, &p->finished, false);
        if (status == COLL_OK) status = coll__packets_end_round(r);
        if (status != COLL_OK) return status;
    }
    return coll__packets_check(r, p->longs, p->long_count, &p->long_finished, true);
}

static void coll__packets_late(const coll_request *r, unsigned char *is_late)
{
    const coll__packets *p = coll__packets_of(r);

    if (!r->is_started) return;
    for (int i = p->finished; p->is_posted && i < p->xfer_count; i++)
        if (p->xfers[i].status == COLL_PENDING) is_late[p->xfers[i].peer] = 1;
    for (int i = p->long_finished; i < p->long_count; i++)
        if (p->longs[i].status == COLL_PENDING) is_late[p->longs[i].peer] = 1;
}

/* ---- >>starting ---- */

/* Allocate a planned call: memory for the messages of all rounds, so that received bytes are not overwritten. */
static bool coll__packets_lay_out(coll_request *r, const coll__algorithm *straight, int longs)
{
    coll__execution *execution = r->execution;
    const size_t steps = (size_t)execution->steps, slots = (size_t)execution->slots[COLL__WORK];
    const size_t each = COLL__PACKET_HEAD + (size_t)execution->choice.room, all = steps + (size_t)longs;
    const size_t head = coll__round_up(sizeof(coll__packets), 64), list = coll__round_up(all * sizeof(coll__step), 64);
    const size_t tables = coll__round_up(all * sizeof(coll_xfer) + slots * sizeof(coll__packet), 64);
    const size_t copy = coll__copy_length(execution, r);

    if (!coll__workspace_memory(r, head + list + tables + copy + execution->moved_in_all * each)) return false;
    unsigned char *const at = (unsigned char *)coll__workspace_of(r)->arena;
    coll__packets *p = coll__packets_of(r);
    *p = (coll__packets){ .straight = straight, .each = each, .list = (coll__step *)(void *)(at + head),
                          .long_steps = longs, .xfers = (coll_xfer *)(void *)(at + head + list),
                          .messages = at + head + list + tables + copy };
    p->long_list = p->list + steps;
    p->longs = p->xfers + steps;
    p->slots = (coll__packet *)(void *)(p->xfers + all);
    if (copy) coll__make_copy(execution, r, at + head + list + tables);
    return true;
}

/* Plans again: the carrier of rounds has declined, or a prepared call starts again. */
static coll_status coll__packets_start(coll_request *r)
{
    const coll__algorithm *straight = coll__algorithms;

    while (straight->kind != r->call.kind || coll__in_packets(straight)) straight++;      /* the one without packets  */
    if (coll__execution_plan(r) < 0) return coll__has_no_memory(r->comm);
    coll__round direct = coll__round_of(r, NULL, 0);
    direct.radix = direct.size;
    straight->round(&direct, 0);
    if (!coll__packets_lay_out(r, straight, direct.count)) return coll__has_no_memory(r->comm);
    (void)coll__choice_cache(r);
    return COLL_PENDING;
}

#endif
#endif /* COLL_PACKETS_H */
