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
 * unpacked through staging memory.
 *
 * ORDER.  The messages of a communicator's own collectives go by COLL_CHANNEL_CALLS, in an order that all ranks share.  Those
 * of a derived communicator or a prepared call, whose order other ranks may not share, find each other by key. */
#ifndef COLL_ENGINE_H
#define COLL_ENGINE_H

enum {
    COLL__PACK_MOST     = 64 << 10,               /* bytes up to which several blocks share a message         */
    COLL__KEPT_MOST     = 32 << 10                /* bytes of the tables of a flow that is kept               */
};

#define COLL__ELSEWHERE SIZE_MAX                  /* not in a buffer of the user's                            */

/* ---- >>geometry: where a block's slice lies ---- */

typedef struct coll__range { size_t at, count; } coll__range;

/* Part `i` of `parts` of `total` elements, in whole groups of 2^bits; the first ones are longer by one group where it does not
 * divide. */
static inline coll__range coll__part(size_t total, int bits, size_t parts, size_t i)
{
    if (parts == 1) return (coll__range){ 0, total };
    const size_t groups = (total + ((size_t)1 << bits) - 1) >> bits, each = groups / parts, longer = groups % parts;
    const size_t at = coll__least((each * i + coll__least(i, longer)) << bits, total);
    return (coll__range){ at, coll__least((each + (i < longer)) << bits, total - at) };
}

/* Block `block` of a buffer, in elements; with types of its own, in bytes. */
static coll__range coll__block_range(const coll__layout *l, int block)
{
    switch (l->kind) {
    case COLL__ONE: return (coll__range){ 0, l->count };
    case COLL__EQUAL: return (coll__range){ (size_t)block * l->count, l->count };
    case COLL__CUT: return coll__part(l->count, l->group_bits, (size_t)l->blocks, (size_t)block);
    default: return (coll__range){ l->offsets[block], l->counts[block] * (l->types ? coll_type_size(l->types[block]) : 1) };
    }
}

/* The same, cut to slice `slice`. */
static inline coll__range coll__slice_of(const coll__layout *l, const coll__flow *flow, int block, long slice)
{
    const coll__range whole = coll__block_range(l, block);
    if (flow->slices == 1) return whole;
    const coll__range cut = coll__part(whole.count, l->group_bits, (size_t)flow->slices, (size_t)slice);
    return (coll__range){ whole.at + cut.at, cut.count };
}

static inline bool coll__is_slot(coll__place place) { return place == COLL__WORK || place == COLL__PART; }

/* The circle on which the blocks of a span are numbered. */
static inline int coll__circle(const coll__flow *flow, const coll__span *span)
{
    return coll__is_slot(span->place) ? flow->vector->blocks
         : span->place == COLL__INPUT ? flow->input.blocks : flow->result.blocks;
}

/* Memory of block `i` of a span, and which elements are there, of the vector or of its own buffer. */
static unsigned char *coll__locate(const coll_request *r, const coll__stage *stage, const coll__span *span, int i, long slice,
                                   coll__range *elements)
{
    const coll__flow *flow = r->flow;
    const int circle = coll__circle(flow, span), at = coll__span_at(span, i, circle);

    if (coll__is_slot(span->place)) {
        *elements = coll__slice_of(flow->vector, flow, coll__span_about(span, i, circle), slice);
        return stage->base[span->place] + (size_t)at * (span->place == COLL__WORK ? flow->work_slot : flow->part_slot);
    }
    const coll__layout *l = span->place == COLL__INPUT ? &flow->input : &flow->result;
    *elements = coll__slice_of(l, flow, at, slice);
    return coll__behind(l->base, elements->at * r->codec.type_size);
}

static inline unsigned char *coll__spot_at(const coll__stage *stage, coll__spot spot)
{
    return coll__behind(stage->base[spot.place], spot.at);
}

/* Where block `i` of a span is, to be found again when the user's buffers are others. */
static coll__spot coll__spot_of(const coll_request *r, const coll__stage *stage, const coll__span *span, int i, long slice,
                                coll__range *elements)
{
    const unsigned char *at = coll__locate(r, stage, span, i, slice, elements);
    return (coll__spot){ span->place, (size_t)((uintptr_t)at - (uintptr_t)stage->base[span->place]) };
}

/* Bytes of so many elements of a place when they travel. */
static inline size_t coll__bytes_of(const coll_request *r, coll__place place, size_t count)
{
    return place == COLL__PART ? count * r->codec.acc_size : coll__wire_bytes(&r->codec, count);
}

/* ---- >>layouts: what the buffers of each kind are ---- */

static coll__layout coll__layout_of(coll__shape_kind kind, const void *base, int blocks, size_t count)
{
    return (coll__layout){ .kind = kind, .base = coll__behind(base, 0), .blocks = blocks, .count = count };
}

static coll__layout coll__listed(const void *base, int blocks, const size_t *counts, const size_t *offsets,
                                 const coll_type *types)
{
    return (coll__layout){ .kind = COLL__LISTED, .base = coll__behind(base, 0), .blocks = blocks, .counts = counts,
                           .offsets = offsets, .types = types };
}

/* Input and result of a settled call; `cut` blocks where the vector is cut. */
static void coll__flow_layouts(coll__flow *flow, const coll_request *r, int cut)
{
    const coll_call *c = &r->call;
    const coll__graph *graph = &r->comm->graph;
    const int size = r->comm->size;
    const int in = coll__kind_is(c->kind, COLL__NEIGHBORS) ? graph->destinations : size;
    const int out = coll__kind_is(c->kind, COLL__NEIGHBORS) ? graph->sources : size;

    flow->input = coll__layout_of(COLL__ONE, c->send, size, c->count);
    flow->result = coll__layout_of(COLL__ONE, c->recv, size, c->count);
    flow->vector = &flow->input;
    switch (c->kind) {
    case COLL_BARRIER: case COLL_BROADCAST: case COLL_REDUCE: case COLL_ALLREDUCE: case COLL_SCAN: case COLL_EXSCAN:
        flow->input = coll__layout_of(COLL__CUT, c->send, cut, c->count);
        flow->result = coll__layout_of(COLL__CUT, c->recv, cut, c->count);
        break;
    case COLL_REDUCE_SCATTER: case COLL_SCATTER:
        flow->input = coll__layout_of(COLL__EQUAL, c->send, size, c->count);
        break;
    case COLL_REDUCE_SCATTERV:
        flow->input = coll__listed(c->send, size, c->recv_counts, c->send_offsets, NULL);
        flow->result.count = c->recv_counts[r->comm->rank];
        break;
    case COLL_SCATTERV:
        if (r->comm->rank == c->root) flow->input = coll__listed(c->send, size, c->send_counts, c->send_offsets, NULL);
        flow->result.count = c->recv_count;
        break;
    case COLL_GATHERV:
        if (r->comm->rank == c->root) flow->result = coll__listed(c->recv, size, c->recv_counts, c->recv_offsets, NULL);
        flow->vector = &flow->result;
        break;
    case COLL_GATHER: case COLL_ALLGATHER: case COLL_NEIGHBOR_ALLGATHER:
        flow->result = coll__layout_of(COLL__EQUAL, c->recv, out, c->count);
        flow->vector = &flow->result;
        break;
    case COLL_ALLGATHERV: case COLL_NEIGHBOR_ALLGATHERV:
        flow->result = coll__listed(c->recv, out, c->recv_counts, c->recv_offsets, NULL);
        flow->vector = &flow->result;
        break;
    case COLL_ALLTOALL: case COLL_NEIGHBOR_ALLTOALL:
        flow->input = coll__layout_of(COLL__EQUAL, c->send, in, c->count);
        flow->result = coll__layout_of(COLL__EQUAL, c->recv, out, c->count);
        break;
    default:                                      /* alltoallv, alltoallw and those of neighbours             */
        flow->input = coll__listed(c->send, in, c->send_counts, c->send_offsets, c->send_types);
        flow->result = coll__listed(c->recv, out, c->recv_counts, c->recv_offsets, c->recv_types);
        break;
    }
    flow->input.group_bits = flow->result.group_bits = r->codec.group_bits;
}

/* ---- >>planning ---- */

/* Elements in all blocks. */
static size_t coll__layout_total(const coll__layout *l, size_t *longest)
{
    size_t total = 0;

    *longest = 0;
    if (l->kind != COLL__LISTED) {
        *longest = l->kind == COLL__CUT ? coll__part(l->count, l->group_bits, (size_t)l->blocks, 0).count : l->count;
        return l->kind == COLL__EQUAL ? l->count * (size_t)l->blocks : l->count;
    }
    for (int i = 0; i < l->blocks; i++) {
        const size_t count = coll__block_range(l, i).count;
        total += count;
        *longest = coll__most(*longest, count);
    }
    return total;
}

/* Cut the vector: how many slices, how far apart their rounds. */
static void coll__flow_cut(coll__flow *flow, const coll_request *r)
{
    const size_t most = (size_t)coll__slice_bytes(r->comm->size);
    const size_t each = coll__most(1, r->codec.wire_size ? most / r->codec.wire_size : most);

    flow->slices = flow->choice.slices ? flow->choice.slices : (long)((flow->longest + each - 1) / each);
    const size_t groups = (flow->longest + ((size_t)1 << r->codec.group_bits) - 1) >> r->codec.group_bits;
    if (flow->slices > (long)groups) flow->slices = (long)groups;
    if (flow->slices < 1 || coll__goes_whole(r->call.kind, flow->rounds)) flow->slices = 1;
    const long lag = coll__lag(&r->track->numbers->link, r->comm->size);
    flow->lag = flow->slices < lag ? flow->slices : lag;
    flow->ticks = flow->slices + (flow->rounds - 1) * flow->lag;
}

static coll__round coll__round_of(const coll_request *r, coll__step *steps, int capacity)
{
    const coll_comm *comm = r->comm;
    const coll__choice *choice = &r->flow->choice;

    return (coll__round){ .rank = comm->rank, .size = comm->size, .root = coll__kind_has_root(r->call.kind) ? r->call.root : 0,
                          .radix = choice->radix, .blocks = r->flow->input.blocks, .graph = &comm->graph,
                          .order = comm->order, .is_exclusive = r->call.kind == COLL_EXSCAN, .steps = steps,
                          .capacity = capacity };
}

/* The order of our ranks in a ring or chain: the ranks of one host after those of another, so that as few neighbours as can be
 * are on different hosts.  The same on every rank. */
static coll_status coll__comm_order(coll_comm *comm)
{
    const coll__trunk *trunk = comm->trunk;
    const size_t size = (size_t)comm->size;
    int count = 0;

    if (comm->has_order || !trunk->transport->host) return COLL_OK;
    int *hosts = (int *)malloc(2 * size * sizeof *hosts), *order = hosts ? hosts + size : NULL;
    if (!hosts) return COLL_ERR_MEMORY;
    for (int i = 0; i < comm->size; i++) hosts[i] = trunk->transport->host(trunk->context, coll__world_rank(comm, i));
    for (int i = 0; i < comm->size; i++) {        /* every host at its first rank, with all that follow there */
        if (i > 0 && hosts[i] == hosts[i - 1]) continue;
        bool is_first = true;
        for (int k = 0; k < i && is_first; k++) is_first = hosts[k] != hosts[i];
        for (int k = i; k < comm->size && is_first; k++) if (hosts[k] == hosts[i]) order[count++] = k;
    }
    bool is_plain = true;
    for (int i = 0; i < comm->size; i++) is_plain = is_plain && order[i] == i;
    comm->order = is_plain ? NULL : (int *)malloc(size * sizeof *order);
    if (comm->order) memcpy(comm->order, order, size * sizeof *order);
    comm->has_order = is_plain || comm->order;
    free(hosts);
    return comm->has_order ? COLL_OK : COLL_ERR_MEMORY;
}

static int coll__blocks_of(const coll__choice *choice, int size)
{
    return choice->algorithm->cut == COLL__CUT_PER_RANK ? size : choice->algorithm->cut == COLL__CUT_MANY ? choice->blocks : 1;
}

/* Choose the algorithm of a checked call, walk through its rounds once to see what they need, and cut the vector. */
static coll_status coll__flow_plan(coll_request *r)
{
    coll__flow *flow = r->flow = &r->own_flow;

    memset(flow, 0, sizeof *flow);
    if (r->way) flow->choice = *r->way;
    else (void)coll__choose_for(&flow->choice, r->comm, r->track->numbers, &r->call, &r->codec);
    if (flow->choice.algorithm->has_order && coll__comm_order(r->comm) < 0) return COLL_ERR_MEMORY;
    coll__flow_layouts(flow, r, coll__blocks_of(&flow->choice, r->comm->size));
    (void)coll__layout_total(flow->vector, &flow->longest);
    for (;; flow->rounds++) {
        coll__round dry = coll__round_of(r, NULL, 0);
        if (!flow->choice.algorithm->round(&dry, flow->rounds)) break;
        if (dry.count > flow->steps) flow->steps = dry.count;
        if (dry.moved > flow->moved) flow->moved = dry.moved;
        if (dry.made > flow->made) flow->made = dry.made;
        if (dry.from > flow->from) flow->from = dry.from;
        for (int place = 0; place < COLL__PLACES; place++)
            if (dry.slots[place] > flow->slots[place]) flow->slots[place] = dry.slots[place];
    }
    if (flow->rounds > 0) coll__flow_cut(flow, r);
    return COLL_OK;
}

/* ---- >>memory ---- */

/* An exchange in place sends what it is about to overwrite: it works on a copy of the input, block after block. */
static bool coll__copies_input(const coll_call *call)
{
    return (call->kind == COLL_ALLTOALL || call->kind == COLL_ALLTOALLV || call->kind == COLL_ALLTOALLW)
        && call->send == call->recv;
}

/* A result that is to lie over other blocks of the input is made elsewhere. */
static bool coll__copies_result(const coll_call *call)
{
    return call->kind == COLL_REDUCE_SCATTERV && call->send == call->recv;
}

/* Bytes for either copy. */
static size_t coll__copy_length(const coll__flow *flow, const coll_request *r)
{
    size_t ignored;

    if (coll__copies_result(&r->call)) return coll__round_up(flow->result.count * r->codec.type_size, 64);
    if (!coll__copies_input(&r->call)) return 0;
    return coll__round_up((size_t)flow->input.blocks * sizeof(size_t), 64)
         + coll__round_up(coll__layout_total(&flow->input, &ignored) * r->codec.type_size, 64);
}

static void coll__make_copy(coll__flow *flow, const coll_request *r, unsigned char *to)
{
    size_t *offsets = (size_t *)(void *)to, at = 0;

    if (coll__copies_result(&r->call)) {
        flow->result.base = to;
        return;
    }
    to += coll__round_up((size_t)flow->input.blocks * sizeof *offsets, 64);
    for (int i = 0; i < flow->input.blocks; i++) {
        const coll__range range = coll__block_range(&flow->input, i);
        const size_t length = range.count * r->codec.type_size;
        if (length) memcpy(to + at, coll__behind(flow->input.base, range.at * r->codec.type_size), length);
        offsets[i] = at / r->codec.type_size;
        at += length;
    }
    if (flow->input.kind == COLL__LISTED) flow->input.offsets = offsets;
    flow->input.base = to;
}

/* Memory of a track for what it runs now: what lay there before is lost.  false: there is not so much. */
static bool coll__arena_reserve(coll__track *track, size_t length)
{
    if (length <= track->arena_length) return true;
    free(track->arena);
    track->arenas++;
    track->arena = coll__allocate(length);
    track->arena_length = track->arena ? length : 0;
    return track->arena != NULL;
}

/* May the next call like this one have the same flow?  Not where counts are listed, nor where the input is copied first. */
static inline bool coll__flow_is_repeatable(const coll_request *r)
{
    const coll_call *c = &r->call;
    return !r->way && !c->fn && !coll__kind_is(c->kind, COLL__SUMMED | COLL__PAIRWISE | COLL__NEIGHBORS)
        && !coll__copies_input(c) && (!c->algorithm || strlen(c->algorithm) < COLL__NAME_KEPT);
}

/* Memory for a flow that is to be kept, in the place of the oldest one; NULL: there is none. */
static void *coll__kept_reserve(coll__track *track, size_t length)
{
    coll__kept **at = &track->kept[track->kept_next % COLL__KEPT];

    if (!*at) *at = (coll__kept *)calloc(1, sizeof **at);
    if (!*at) return NULL;
    (*at)->call.kind = 0;                         /* no call                                                  */
    if ((*at)->length < length) {
        free((*at)->memory);
        (*at)->memory = coll__allocate(length);
        (*at)->length = (*at)->memory ? length : 0;
    }
    return (*at)->memory;
}

/* What the parts of a flow need, in bytes. */
typedef struct coll__needs {
    size_t sums, lists, copy;                     /* once: scratch; sources and steps; a copy of the input    */
    size_t xfers, table;                          /* of a stage: messages; with cargo and what is made        */
    size_t work, part, staging, slice;            /* of a slice; together                                     */
} coll__needs;

static coll__needs coll__flow_needs(coll__flow *flow, const coll_request *r)
{
    const size_t longest = coll__part(flow->longest, r->codec.group_bits, (size_t)flow->slices, 0).count;
    const size_t wider = coll__most(r->codec.wire_size, r->codec.acc_size), moved = (size_t)flow->moved;
    const bool is_packed = longest == 0 || wider == 0 || moved <= COLL__PACK_MOST / wider / longest;      /* every span */
    const size_t steps = (size_t)flow->steps;
    coll__needs n;

    flow->work_slot = coll__round_up(coll__wire_bytes(&r->codec, longest), 64);
    flow->part_slot = coll__round_up(longest * r->codec.acc_size, 64);
    n.xfers = steps + (is_packed ? 0 : moved);
    n.table = coll__round_up(n.xfers * (sizeof(coll_xfer) + sizeof(coll__cargo)) + (size_t)flow->made * sizeof(coll__made)
                             + (size_t)flow->from * sizeof(coll__spot), 64);
    n.work = (size_t)flow->slots[COLL__WORK] * flow->work_slot;
    n.part = (size_t)flow->slots[COLL__PART] * flow->part_slot;
    const size_t widest = coll__most(flow->work_slot, flow->slots[COLL__PART] ? flow->part_slot : 0);
    const size_t packed = moved * widest + steps * 64;
    n.staging = r->codec.same ? coll__least(packed, steps * (COLL__PACK_MOST + 64)) : packed;
    n.sums = coll__kind_reduces(r->call.kind) ? coll__round_up(coll__combine_scratch(&r->codec, flow->steps + 1), 64) : 0;
    n.lists = coll__round_up(steps * (sizeof(coll__source) + sizeof(coll__step)), 64);
    n.copy = coll__copy_length(flow, r);
    n.slice = coll__round_up(n.work + n.part + n.staging, 64);
    return n;
}

/* Lay the stages out.  Values lie in the arena of the track, which grows to the largest need and is then reused; so do the
 * tables, unless the flow can be kept: then these have memory of their own, with a stage for each round. */
static coll_status coll__flow_lay_out(coll__flow *flow, coll_request *r)
{
    const coll__needs n = coll__flow_needs(flow, r);
    const size_t rounds = (size_t)flow->rounds, stages = coll__least((size_t)flow->slices, (size_t)flow->lag * rounds);
    const size_t kept_length = n.lists + coll__round_up(rounds * sizeof(coll__stage), 64) + rounds * n.table;
    const bool may_be_kept = flow->slices == 1 && kept_length <= COLL__KEPT_MOST && coll__flow_is_repeatable(r);
    unsigned char *at = may_be_kept ? (unsigned char *)coll__kept_reserve(r->track, kept_length) : NULL;

    flow->is_kept = at != NULL;
    flow->stage_count = flow->is_kept ? flow->rounds : (int)stages;
    const size_t heads = coll__round_up((size_t)flow->stage_count * sizeof(coll__stage), 64);
    const size_t values = n.sums + (flow->is_kept ? 1 : stages) * n.slice;
    const size_t tables = flow->is_kept ? 0 : n.lists + n.copy + heads + stages * n.table;
    if (!coll__arena_reserve(r->track, values + tables)) return COLL_ERR_MEMORY;
    flow->scratch = r->track->arena;
    if (!at) at = (unsigned char *)r->track->arena + values;
    flow->sources = (coll__source *)(void *)at;
    flow->list = (coll__step *)(void *)(flow->sources + flow->steps);
    if (n.copy) coll__make_copy(flow, r, at + n.lists);
    flow->stages = (coll__stage *)(void *)(at + n.lists + n.copy);
    at += n.lists + n.copy + heads;
    for (int i = 0; i < flow->stage_count; i++, at += n.table) {
        coll__stage *stage = &flow->stages[i];
        unsigned char *slice = (unsigned char *)r->track->arena + n.sums + (flow->is_kept ? 0 : (size_t)i * n.slice);
        *stage = (coll__stage){ .base = { [COLL__WORK] = slice, [COLL__PART] = slice + n.work },
                                .staging = slice + n.work + n.part };
        stage->xfers = (coll_xfer *)(void *)at;
        stage->cargo = (coll__cargo *)(void *)(stage->xfers + n.xfers);
        stage->made = (coll__made *)(void *)(stage->cargo + n.xfers);
        stage->spots = (coll__spot *)(void *)(stage->made + flow->made);
    }
    return COLL_OK;
}

/* ---- >>kept: the next call like one of the last begins with its flow ---- */

/* Is `a` a call like `b`, but for its buffers? */
static inline bool coll__is_alike(const coll_call *a, const coll_call *b)
{
    return a->kind == b->kind && a->count == b->count && a->type == b->type && a->op == b->op && a->root == b->root
        && a->wire == b->wire && a->accumulate == b->accumulate && a->flags == b->flags && a->scale == b->scale
        && a->not_commutative == b->not_commutative;
}

/* Does it name that algorithm, or none? */
static inline bool coll__names_same(const coll_call *call, const char *name)
{
    return call->algorithm ? !strcmp(call->algorithm, name) : !*name;
}

static inline coll__kept *coll__kept_like(const coll_request *r)
{
    const coll__track *track = r->track;

    for (unsigned i = 1; i <= COLL__KEPT; i++) {  /* the youngest first                                       */
        coll__kept *kept = track->kept[(track->kept_next - i) % COLL__KEPT];
        if (kept && coll__is_alike(&r->call, &kept->call) && coll__names_same(&r->call, kept->algorithm)
            && kept->version == track->numbers->version && kept->arenas == track->arenas)
            return coll__flow_is_repeatable(r) ? kept : NULL;
    }
    return NULL;
}

/* Begin with a flow that was kept.  One at a time runs in a track, so it is used where it lies. */
static inline void coll__flow_again(coll_request *r, coll__kept *kept)
{
    coll__flow *flow = r->flow = &kept->flow;

    flow->input.base = coll__behind(r->call.send, 0);
    flow->result.base = coll__behind(r->call.recv, 0);
    flow->posted = flow->done = 0;
}

/* Make a new flow for a checked call. */
static coll_status coll__flow_start(coll_request *r)
{
    coll__track *track = r->track;
    coll__flow *flow = &r->own_flow;

    if (coll__flow_plan(r) < 0) return COLL_ERR_MEMORY;
    if (flow->rounds == 0) return COLL_OK;        /* e.g. a barrier of one                                    */
    if (coll__flow_lay_out(flow, r) < 0) return COLL_ERR_MEMORY;
    if (!flow->is_kept) return COLL_OK;
    coll__kept *kept = track->kept[track->kept_next++ % COLL__KEPT];
    kept->call = r->call;
    kept->version = track->numbers->version;
    kept->arenas = track->arenas;
    coll__print(kept->algorithm, sizeof kept->algorithm, "%s", r->call.algorithm ? r->call.algorithm : "");
    kept->flow = *flow;
    kept->flow.vector = flow->vector == &flow->result ? &kept->flow.result : &kept->flow.input;
    r->flow = &kept->flow;
    return COLL_OK;
}

/* ---- >>posting a round ---- */

/* The name of a message, and that it is still to be moved. */
static inline void coll__xfer_ready(const coll_request *r, coll_xfer *x, long tick)
{
    memcpy(x->head, r->head, COLL_HEAD_LENGTH);
    coll__head_set_step(x->head, tick);
    x->channel = COLL_CHANNEL_CALLS;
    x->any_head = false;
    x->status = COLL_PENDING;
}

static coll_xfer *coll__new_xfer(coll_request *r, coll__stage *stage, const coll__step *step, const coll__span *span, long tick)
{
    const int i = stage->xfer_count++;
    coll_xfer *x = &stage->xfers[i];

    stage->cargo[i] = (coll__cargo){ step->verb == COLL__SEND, false, *span, COLL__ELSEWHERE };
    coll__xfer_ready(r, x, tick);
    x->buffer = NULL;
    x->length = 0;
    x->peer = coll__world_rank(r->comm, step->peer);
    return x;
}

static size_t coll__span_bytes(const coll_request *r, const coll__stage *stage, const coll__span *span, long slice)
{
    coll__range elements;
    size_t bytes = 0;

    for (int i = 0; r->codec.wire_size > 0 && i < span->blocks; i++) {    /* a barrier has very many blocks of nothing */
        (void)coll__locate(r, stage, span, i, slice, &elements);
        bytes += coll__bytes_of(r, span->place, elements.count);
    }
    return bytes;
}

/* Where a span lies, if it lies in one piece as it travels; NULL otherwise. */
static unsigned char *coll__in_one_piece(const coll_request *r, const coll__stage *stage, const coll__span *span, long slice)
{
    unsigned char *first = NULL, *end = NULL;
    coll__range elements;

    for (int i = 0; i < span->blocks; i++) {
        unsigned char *at = coll__locate(r, stage, span, i, slice, &elements);
        if (i == 0) first = at;
        else if (at != end) return NULL;
        end = at + coll__bytes_of(r, span->place, elements.count);
    }
    return first;
}

/* Whose elements lie there, as coll__pack asks. */
static inline int coll__whose(const coll_request *r, coll__place place)
{
    return place == COLL__INPUT ? r->comm->rank : COLL__OF_RESULT;
}

/* Move a span's blocks between their places and one packed message. */
static void coll__pack_span(const coll_request *r, coll__stage *stage, const coll__span *span, long slice,
                            unsigned char *message, bool is_outgoing)
{
    for (int i = 0; i < span->blocks; i++) {
        coll__range x;
        unsigned char *at = coll__locate(r, stage, span, i, slice, &x);
        if (x.count == 0) continue;
        const bool as_is = coll__is_slot(span->place) || r->codec.same;
        const size_t length = coll__bytes_of(r, span->place, x.count);
        if (as_is) memcpy(is_outgoing ? message : at, is_outgoing ? at : message, length);
        else if (is_outgoing) coll__pack(&r->codec, message, at, x.count, x.at, coll__whose(r, span->place));
        else coll__unpack(&r->codec, at, message, x.count);
        message += length;
    }
}

COLL__INLINE coll_status coll__post(coll_request *r, coll_xfer *x, coll__verb verb)
{
    const coll__trunk *trunk = r->comm->trunk;

    if (r->track->is_keyed) return coll__key_post(r->track, x, verb == COLL__SEND);
    return verb == COLL__SEND ? trunk->transport->send(trunk->context, x) : trunk->transport->recv(trunk->context, x);
}

/* The last message goes through staging memory.  The same span sent to several peers is packed once. */
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

/* Only the two ends of this message know its length and type: both write them into its head.  No elements have no type. */
static void coll__head_set_pair(const coll_request *r, coll_xfer *x, const coll__span *span)
{
    const coll__flow *flow = r->flow;
    const coll__layout *l = span->place == COLL__INPUT ? &flow->input : &flow->result;
    const int block = coll__span_at(span, 0, l->blocks);

    const size_t count = l->kind == COLL__LISTED ? l->counts[block] : l->count;

    coll__put64(x->head + 24, count);
    if (l->types) coll__put32(x->head + 16, count > 0 ? (uint32_t)l->types[block] : 0);
}

/* Block `i` of a span, by itself. */
static coll__span coll__span_of_one(const coll_request *r, const coll__span *span, int i)
{
    const int circle = coll__circle(r->flow, span);

    return (coll__span){ .place = span->place, .first = coll__span_at(span, i, circle), .blocks = 1, .step = 1,
                         .about = coll__span_about(span, i, circle) };
}

/* Queue one message: from where it lies, if it lies there as it travels. */
static coll_status coll__post_span(coll_request *r, coll__stage *stage, const coll__step *step, const coll__span *span,
                                   size_t bytes, long slice, long tick)
{
    const bool as_is = coll__is_slot(span->place) || r->codec.same;
    coll_xfer *x = coll__new_xfer(r, stage, step, span, tick);

    x->length = bytes;
    if (as_is && bytes > 0) x->buffer = coll__in_one_piece(r, stage, span, slice);
    if (x->buffer)
        stage->cargo[stage->xfer_count - 1].at = (size_t)((uintptr_t)x->buffer - (uintptr_t)stage->base[span->place]);
    if (!x->buffer && bytes > 0) coll__stage_message(r, stage, slice);
    if (coll__kind_is(r->call.kind, COLL__PAIRWISE)) coll__head_set_pair(r, x, span);
    return coll__post(r, x, step->verb);
}

/* Queue the message or messages of one send or receive.  How many there are must depend on nothing but what both ends know
 * alike: the number of blocks, and their bytes. */
static coll_status coll__post_step(coll_request *r, coll__stage *stage, const coll__step *step, long slice, long tick)
{
    const coll__span *span = &step->span;
    const size_t bytes = coll__span_bytes(r, stage, span, slice);
    coll_status status = COLL_OK;

    if (span->blocks <= 1 || bytes <= COLL__PACK_MOST) return coll__post_span(r, stage, step, span, bytes, slice, tick);
    for (int i = 0; i < span->blocks && status == COLL_OK; i++) {
        const coll__span one = coll__span_of_one(r, span, i);
        status = coll__post_span(r, stage, step, &one, coll__span_bytes(r, stage, &one, slice), slice, tick);
    }
    return status;
}

/* What copies and folds make, and of what; `verb`: which of them. */
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
        if (is_wire && !was_wire && !r->codec.same) coll__pack(&r->codec, to, from, m->count, m->index, coll__whose(r, source));
        else if (was_wire && !is_wire && !r->codec.same) coll__unpack(&r->codec, to, from, m->count);
        else memmove(to, from, is_wire ? coll__wire_bytes(&r->codec, m->count) : m->count * r->codec.type_size);
    }
}

static inline coll__stage *coll__stage_of(const coll__flow *flow, long slice, int k)
{
    if (flow->is_kept) return &flow->stages[k];
    return &flow->stages[slice < flow->stage_count ? slice : slice % flow->stage_count];
}

/* A round is about to begin. */
static inline void coll__stage_begin(const coll_request *r, coll__stage *stage)
{
    stage->base[COLL__INPUT] = r->flow->input.base;
    stage->base[COLL__RESULT] = r->flow->result.base;
    stage->finished = 0;
}

/* Begin a round of a call like one before: its messages are there still, and what it makes; its buffers may be others. */
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
    coll__flow *flow = r->flow;
    coll__stage *stage = coll__stage_of(flow, slice, k);
    coll_status status = COLL_OK;

    coll__stage_begin(r, stage);
    if (stage->is_kept) return coll__post_again(r, stage, tick);
    coll__round now = coll__round_of(r, flow->list, flow->steps);
    flow->choice.algorithm->round(&now, k);
    stage->xfer_count = stage->copies = stage->made_count = 0;
    stage->staged = 0;
    coll__note_made(r, stage, &now, COLL__COPY, slice);
    stage->copies = stage->made_count;
    coll__note_made(r, stage, &now, COLL__FOLD, slice);
    coll__do_copies(r, stage);
    for (int i = 0; i < now.count && status == COLL_OK; i++)
        if (now.steps[i].verb == COLL__SEND || now.steps[i].verb == COLL__RECV)
            status = coll__post_step(r, stage, &now.steps[i], slice, tick);
    stage->is_kept = flow->is_kept && status == COLL_OK;
    return status;
}

/* ---- >>finishing a round ---- */

/* The message that a stage has come to has failed: what is to be said of it, and what comes of that. */
static __attribute__((noinline)) coll_status coll__message_failed(coll_request *r, const coll__stage *stage)
{
    const coll_xfer *x = &stage->xfers[stage->finished];
    coll_failure failure = { COLL_OK, -1, "" };
    coll_xfer expected;

    if (x->status != COLL_ERR_MISMATCH) return coll__comm_fail(r->comm, NULL);
    memcpy(expected.head, r->head, sizeof expected.head);
    if (coll__kind_is(r->call.kind, COLL__PAIRWISE)) coll__head_set_pair(r, &expected, &stage->cargo[stage->finished].span);
    unsigned char last[COLL_HEAD_LENGTH];
    memcpy(last, r->comm->trunk->doing.last, sizeof last);    /* who only had to send is through with a call that differs */
    if (coll__heads_disagree(last, x->head)) memcpy(expected.head, last, sizeof last);
    coll__blame_mismatch(&failure, expected.head, r->comm->trunk->rank, x->head, x->peer);
    return coll__comm_fail(r->comm, &failure);
}

/* Combine, block by block. */
static void coll__do_folds(const coll_request *r, const coll__stage *stage)
{
    static const coll__format formats[COLL__PLACES] = { COLL__AS_USER, COLL__AS_USER, COLL__AS_WIRE, COLL__AS_SUM };
    const coll__trunk *trunk = r->comm->trunk;
    const bool tells = trunk->transport->charge_reduce != NULL;
    const coll__spot *spot = stage->spots + stage->copies;
    coll__source *const sources = r->flow->sources;
    size_t folded = 0;

    for (int i = stage->copies; i < stage->made_count; i++) {
        const coll__made *m = &stage->made[i];
        void *const result = coll__spot_at(stage, m->to);
        for (int n = 0; n < m->from; n++, spot++) {
            sources[n] = (coll__source){ coll__spot_at(stage, *spot), formats[spot->place], r->comm->rank };
            if (tells && n > 0) folded += coll__bytes_of(r, spot->place, m->count);
        }
        coll__combine(&r->codec, &(coll__sum){ .sources = sources, .n = m->from, .results = &result, .m = 1,
                                               .format = formats[m->to.place], .count = m->count, .index = m->index,
                                               .scratch = r->flow->scratch });
    }
    if (folded > 0) trunk->transport->charge_reduce(trunk->context, folded);
}

/* Are the messages of a round done? */
static coll_status coll__check_round(coll_request *r, long slice, int k)
{
    coll__stage *stage = coll__stage_of(r->flow, slice, k);

    for (; stage->finished < stage->xfer_count; stage->finished++) {
        const coll_status status = stage->xfers[stage->finished].status;
        if (status == COLL_PENDING) return COLL_PENDING;
        if (status < 0) return coll__message_failed(r, stage);
    }
    return COLL_OK;
}

static void coll__complete_round(coll_request *r, long slice, int k)
{
    coll__stage *stage = coll__stage_of(r->flow, slice, k);

    for (int i = 0; stage->staged > 0 && i < stage->xfer_count; i++) {
        const coll__cargo *cargo = &stage->cargo[i];
        if (cargo->is_packed && !cargo->is_send)
            coll__pack_span(r, stage, &cargo->span, slice, (unsigned char *)stage->xfers[i].buffer, false);
    }
    coll__do_folds(r, stage);
}

/* ---- >>ticks ---- */

typedef struct coll__rounds { long first, last; } coll__rounds;

/* The rounds of a tick: round k is that of slice tick - k * lag. */
static inline coll__rounds coll__rounds_of(const coll__flow *flow, long tick)
{
    if (flow->slices == 1) return (coll__rounds){ tick, tick };
    return (coll__rounds){ tick < flow->slices ? 0 : (tick - flow->slices) / flow->lag + 1,
                           tick / flow->lag < flow->rounds - 1 ? tick / flow->lag : flow->rounds - 1 };
}

static coll_status coll__post_tick(coll_request *r, long tick)
{
    const coll__rounds now = coll__rounds_of(r->flow, tick);
    coll_status status = COLL_OK;

    for (long k = now.first; k <= now.last && status == COLL_OK; k++)
        status = coll__post_round(r, tick - k * r->flow->lag, (int)k, tick);
    return status;
}

/* Finish the rounds of a tick, if all their messages are done. */
static coll_status coll__finish_tick(coll_request *r, long tick)
{
    const coll__rounds now = coll__rounds_of(r->flow, tick);

    for (long k = now.first; k <= now.last; k++) {
        const coll_status status = coll__check_round(r, tick - k * r->flow->lag, (int)k);
        if (status != COLL_OK) return status;
    }
    for (long k = now.first; k <= now.last; k++) coll__complete_round(r, tick - k * r->flow->lag, (int)k);
    return COLL_OK;
}

/* Move a flow on as far as it goes without waiting. */
static coll_status coll__flow_advance(coll_request *r)
{
    coll__flow *flow = r->flow;

    if (flow->rounds == 0) return COLL_OK;
    for (;;) {
        while (flow->posted < flow->ticks && flow->posted - flow->done < flow->lag)
            if (coll__post_tick(r, flow->posted++) < 0) return coll__comm_fail(r->comm, NULL);
        const coll_status status = coll__finish_tick(r, flow->done);
        if (status != COLL_OK) return status;
        if (++flow->done == flow->ticks) break;
    }
    if (coll__copies_result(&r->call) && flow->result.count)
        memcpy(r->call.recv, flow->result.base, flow->result.count * r->codec.type_size);
    return COLL_OK;
}

/* Mark the ranks whose messages a flow is waiting for. */
static void coll__flow_late(const coll_request *r, unsigned char *is_late)
{
    const coll__flow *flow = r->flow;

    for (int s = 0; flow->rounds > 0 && s < flow->stage_count; s++)
        for (int i = flow->stages[s].finished; i < flow->stages[s].xfer_count; i++)
            if (flow->stages[s].xfers[i].status == COLL_PENDING) is_late[flow->stages[s].xfers[i].peer] = 1;
}

#endif /* COLL_ENGINE_H */
