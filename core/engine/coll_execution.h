/* coll_execution.h - plans how an algorithm executes a call: layout of the buffers, slices of the vector, memory of the rounds.
 * It caches the result for equal calls. coll_engine.h runs it. */
#ifndef COLL_EXECUTION_H
#define COLL_EXECUTION_H

#define COLL__ELSEWHERE SIZE_MAX                  /* not in a buffer of the user's                            */

enum { COLL__ROUNDS_OVERLAP = 64 };               /* most rounds of a call that overlaps others (coll_overlap.h) */

/* ---- >>geometry: where a block's slice lies ---- */

typedef struct coll__range { size_t at, count; } coll__range;

/* Part `i` of `parts` of `total` elements, in whole groups of 2^bits.  If it does not divide, the first parts are one group
 * longer. */
static inline coll__range coll__part(size_t total, int bits, size_t parts, size_t i)
{
    if (parts == 1) return (coll__range){ 0, total };
    const size_t groups = (total + ((size_t)1 << bits) - 1) >> bits, each = groups / parts, longer = groups % parts;
    const size_t at = coll__least((each * i + coll__least(i, longer)) << bits, total);
    return (coll__range){ at, coll__least((each + (i < longer)) << bits, total - at) };
}

/* Block `block` of a vector with uneven shares, in whole groups. */
static inline coll__range coll__share_range(const coll__layout *l, int block)
{
    const size_t groups = (l->count + ((size_t)1 << l->group_bits) - 1) >> l->group_bits;
    const size_t at = coll__least(coll__share_begin(l->shares, groups, block) << l->group_bits, l->count);
    const size_t end = coll__least(coll__share_begin(l->shares, groups, block + 1) << l->group_bits, l->count);

    return (coll__range){ at, end - at };
}

/* Block `block` of a buffer, in elements; in bytes if blocks have types. */
static coll__range coll__block_range(const coll__layout *l, int block)
{
    switch (l->kind) {
    case COLL__ONE: return (coll__range){ 0, l->count };
    case COLL__EQUAL: return (coll__range){ (size_t)block * l->count, l->count };
    case COLL__CUT: return COLL__HAS_CHOICE && l->shares ? coll__share_range(l, block)
                         : coll__part(l->count, l->group_bits, (size_t)l->blocks, (size_t)block);
#if COLL__HAS_LEAVES
    case COLL__VECTORS: {
        const coll__range part = coll__part(l->count, l->group_bits, (size_t)l->parts, (size_t)(block % l->parts));
        return (coll__range){ (size_t)(block / l->parts) * l->count + part.at, part.count };
    }
#endif
    default: break;
    }
    if (!COLL__HAS_COUNTS) return (coll__range){ 0, 0 };
    return (coll__range){ l->offsets[block], l->counts[block] * (l->types ? coll_type_size(l->types[block]) : 1) };
}

/* The same, cut to slice `slice`. */
static inline coll__range coll__slice_of(const coll__layout *l, const coll__execution *execution, int block, long slice)
{
    const coll__range whole = coll__block_range(l, block);
    if (execution->slices == 1) return whole;
    const coll__range cut = coll__part(whole.count, l->group_bits, (size_t)execution->slices, (size_t)slice);
    return (coll__range){ whole.at + cut.at, cut.count };
}

static inline bool coll__is_slot(coll__place place) { return place == COLL__WORK || place == COLL__PART; }

/* Does the place have partial results? */
static inline bool coll__is_sum(coll__place place) { return place == COLL__PART || (COLL__HAS_LEAVES && place == COLL__NODES); }

/* Has it the bytes of messages? */
static inline bool coll__is_as_sent(const coll_request *r, coll__place place)
{
    return place == COLL__WORK || coll__is_sum(place) || coll__is_same(&r->codec);
}

/* The layout of the blocks of a place. */
static inline const coll__layout *coll__layout_at(const coll__execution *execution, coll__place place)
{
    return coll__is_slot(place) ? execution->vector : place == COLL__RESULT ? &execution->result : &execution->input;
}

/* Number of blocks; block numbers of the span are modulo this. */
static inline int coll__circle(const coll__execution *execution, const coll__span *span)
{
    return coll__layout_at(execution, span->place)->blocks;
}

/* Address of block `i` of a span; *elements: which elements of the vector or of its own buffer it holds. */
static unsigned char *coll__locate(const coll_request *r, const coll__stage *stage, const coll__span *span, int i, long slice,
                                   coll__range *elements)
{
    const coll__execution *execution = r->execution;
    const int circle = coll__circle(execution, span), at = coll__span_at(span, i, circle);

    if (coll__is_slot(span->place)) {
        *elements = coll__slice_of(execution->vector, execution, coll__span_about(span, i, circle), slice);
        return stage->base[span->place] + (size_t)at * (span->place == COLL__WORK ? execution->work_slot : execution->part_slot);
    }
    const coll__layout *l = coll__layout_at(execution, span->place);
    *elements = coll__slice_of(l, execution, at, slice);
    return coll__behind(l->base, elements->at * (coll__is_sum(span->place) ? r->codec.acc_size : r->codec.type_size));
}

static inline unsigned char *coll__spot_at(const coll__stage *stage, coll__spot spot)
{
    return coll__behind(stage->base[spot.place], spot.at);
}

/* The same, relative to the user's buffers, so that it stays valid for others. */
static coll__spot coll__spot_of(const coll_request *r, const coll__stage *stage, const coll__span *span, int i, long slice,
                                coll__range *elements)
{
    const unsigned char *at = coll__locate(r, stage, span, i, slice, elements);
    return (coll__spot){ span->place, (size_t)((uintptr_t)at - (uintptr_t)stage->base[span->place]) };
}

/* Bytes of `count` elements of a place in messages. */
static inline size_t coll__bytes_of(const coll_request *r, coll__place place, size_t count)
{
    return coll__is_sum(place) ? count * r->codec.acc_size : coll__wire_bytes(&r->codec, count);
}

/* ---- >>layouts ---- */

/* A side of a checked call: blocks; or a vector in `cut` parts, if that is not 0. */
static coll__layout coll__layout_of(const coll_request *r, const coll__side_shape *shape, const coll__side *side, int cut)
{
    coll__layout l = { .kind = cut ? COLL__CUT : COLL__ONE, .base = coll__behind(side->at, 0), .count = side->count,
                       .blocks = cut ? cut : r->comm->size, .group_bits = r->codec.group_bits };

    if (coll__is_listed(side)) {
        l.kind = COLL__LISTED;
        l.counts = side->counts;
        l.offsets = side->offsets;
        l.types = coll__has_types(side) ? side->types : NULL;
    } else if (shape->over != COLL__OVER_ONE && shape->from == COLL__FROM_COUNT) l.kind = COLL__EQUAL;
    if (l.kind == COLL__LISTED || l.kind == COLL__EQUAL) l.blocks = side->blocks;
    return l;
}

/* Input and result of a checked call; a vector is cut into `cut` blocks. */
static void coll__execution_layouts(coll__execution *execution, const coll_request *r, int cut)
{
    const coll__kind_shape *shape = coll__kind_shape_of(r->call.kind);
    const bool sends_one = shape->send.over == COLL__OVER_ONE, receives_one = shape->recv.over == COLL__OVER_ONE;
    coll__side send, recv;

    coll__sides_of(r->comm, &r->call, &send, &recv);
    execution->input = coll__layout_of(r, &shape->send, &send, sends_one && receives_one ? cut : 0);
    execution->result = coll__layout_of(r, &shape->recv, &recv, sends_one && receives_one ? cut : 0);
    execution->vector = sends_one && !receives_one ? &execution->result : &execution->input;
#if COLL__HAS_LEAVES
    if (r->codec.leaves) {
        execution->vector = &execution->result;
        execution->input.kind = COLL__VECTORS;
        execution->input.parts = execution->result.blocks;
        execution->input.blocks *= COLL__LEAVES_OF(&r->codec)->vectors;
    }
#endif
    if (COLL__HAS_CHOICE && execution->choice.algorithm->cut == COLL__CUT_SHARES && r->order->comm->numbers.shares.count > 0)
        execution->input.shares = execution->result.shares = &r->order->comm->numbers.shares;
}

/* ---- >>planning ---- */

/* Elements in all blocks. */
static size_t coll__layout_total(const coll__layout *l, size_t *longest)
{
    const bool is_uneven = (COLL__HAS_COUNTS && l->kind == COLL__LISTED) || (COLL__HAS_CHOICE && l->shares);
    size_t total = 0;

    *longest = is_uneven ? 0 : coll__block_range(l, 0).count;
    if (!is_uneven) return l->kind == COLL__EQUAL ? l->count * (size_t)l->blocks : l->count;
    for (int i = 0; i < l->blocks; i++) {
        const size_t count = coll__block_range(l, i).count;
        total += count;
        *longest = coll__most(*longest, count);
    }
    return total;
}

/* Set the number of slices and the distance of their rounds. */
static void coll__execution_cut(coll__execution *execution, const coll_request *r)
{
    const size_t most = (size_t)coll__slice_bytes(r->comm->size);
    const size_t each = coll__most(1, r->codec.wire_size ? most / r->codec.wire_size : most);

    execution->slices = execution->choice.slices ? execution->choice.slices : (long)((execution->longest + each - 1) / each);
    const size_t groups = (execution->longest + ((size_t)1 << r->codec.group_bits) - 1) >> r->codec.group_bits;
    if (execution->slices > (long)groups) execution->slices = (long)groups;
    if (execution->slices < 1 || coll__kind_is(r->call.kind, COLL__PAIRWISE | COLL__NEIGHBORS)
        || coll__goes_whole(r->call.kind, execution->rounds)) execution->slices = 1;
    const double whole = (double)coll__wire_bytes(&r->codec, execution->longest);
    const double slice = execution->choice.slices ? whole / (double)execution->slices : (double)most;
    const long lag = coll__lag(&r->order->comm->numbers.link, slice);
    execution->lag = execution->slices < lag ? execution->slices : lag;
    execution->ticks = execution->slices + (execution->rounds - 1) * execution->lag;
}

/* A ring goes host by host, in the same order on every rank, so that few neighbors are on different hosts. */
static coll__round coll__round_of(const coll_request *r, coll__step *steps, int capacity)
{
    const coll_comm *comm = r->comm;
    const coll__choice *choice = &r->execution->choice;

    coll__round now = { .rank = comm->rank, .size = comm->size, .root = coll__kind_has_root(r->call.kind) ? r->call.root : 0,
                        .radix = choice->radix, .blocks = r->execution->input.blocks, .graph = &comm->graph,
                        .order = comm->topology && !comm->topology->is_ordered ? comm->topology->ranks : NULL,
                        .is_exclusive = r->call.kind == COLL_EXSCAN, .steps = steps, .capacity = capacity };
#if COLL__HAS_LEAVES
    if (r->codec.leaves) now.leaves = r->codec.leaves, now.blocks = r->execution->result.blocks;
#endif
    return now;
}

/* Source of the location of ranks. */
enum { COLL__SITE_BY_NAME, COLL__SITE_BY_FILE, COLL__HOST };

/* Find which ranks share a site; if that divides nothing, a host.  Done once. */
static coll_status coll__comm_topology(coll_comm *comm)
{
    const coll_transport *t = comm->session->transport;
    const coll__sites *sites = &comm->numbers.sites;
    const bool is_known[] = { t->site != NULL, COLL__HAS_CHOICE && sites->count > 0, t->host != NULL };

    for (int by = 0; by <= COLL__HOST && !comm->has_topology && !comm->topology && comm->size > 2; by++) {
        if (!is_known[by]) continue;
        int (*const where)(void *context, int rank) = by == COLL__HOST ? t->host : t->site;
        int *const places = (int *)coll__take(coll__like(comm), (size_t)comm->size * sizeof *places);
        for (int i = 0; places && i < comm->size; i++)
            places[i] = by == COLL__SITE_BY_FILE ? coll__site_in(sites, i)
                                                 : where(comm->session->context, coll__world_rank(comm, i));
        coll__topology *const divided = places ? coll__topology_of(coll__like(comm), places, comm->size, comm->rank) : NULL;
        coll__give(places);
        if (!divided) return COLL_ERR_MEMORY;
        divided->is_by_site = by != COLL__HOST;
        if (divided->count > 1 && divided->most > 1) comm->topology = divided;
        else coll__give(divided);
    }
    comm->has_topology = true;
    return COLL_OK;
}

/* An exchange in place would overwrite its input before sending it: it uses a copy of the input, block after block. */
static bool coll__copies_input(const coll_call *call)
{
    return coll__kind_exchanges(call->kind) && call->send == call->recv;
}

/* ---- >>cache: equal calls reuse choices and executions ---- */

/* Would the tuner give the same choice, if the numbers of elements are equal?  It does not see blocks that only two ranks
 * know. */
static inline bool coll__is_like_cached(const coll_request *r, const coll__cached *c)
{
    const coll_call *a = &r->call, *b = &c->call;

    return a->kind == b->kind && (a->count == b->count || coll__kind_is(a->kind, COLL__PAIRWISE)) && a->type == b->type
        && a->op == b->op && a->wire == b->wire && a->accumulate == b->accumulate && a->flags == b->flags
        && a->not_commutative == b->not_commutative && (a->algorithm ? !strcmp(a->algorithm, c->algorithm) : !*c->algorithm);
}

/* Entry `i` of a workspace's cache, the newest first; NULL: empty. */
static inline coll__cached *coll__cached_at(const coll__workspace *w, unsigned i)
{
    return !w ? NULL : w->cached[(w->cached_next - 1 - i) % COLL__CACHED];
}

/* Is there room for the name of its algorithm? */
static inline bool coll__is_cacheable(const coll_call *c)
{
    return COLL__CACHED_MOST > 0 && (!c->algorithm || strlen(c->algorithm) < COLL__NAME_CACHED);
}

/* May an equal call reuse the execution?  Not with lists of counts, a copy of the input, or a tree over leaves. */
static inline bool coll__execution_is_repeatable(const coll_request *r)
{
    const coll_call *c = &r->call;
    return !COLL__LEAVES_OF(&r->codec) && !c->fn && !coll__copies_input(c) && coll__is_cacheable(c)
        && !coll__kind_is(c->kind, COLL__SUMMED | COLL__PAIRWISE | COLL__NEIGHBORS);
}

/* A cached execution for this call; or NULL. */
static inline coll__cached *coll__cached_execution(const coll_request *r)
{
    const coll__workspace *w = coll__workspace_of(r);
    coll__cached *c;

    for (unsigned i = 0; COLL__CACHED_MOST > 0 && i < COLL__CACHED && (c = coll__cached_at(w, i)) != NULL; i++)
        if (c->has_execution && c->call.root == r->call.root && c->call.scale == r->call.scale && c->arenas == w->arenas
            && coll__is_like_cached(r, c)) return coll__execution_is_repeatable(r) ? c : NULL;
    return NULL;
}

/* Replace the oldest entry, with `length` bytes of memory; NULL: no memory. */
static coll__cached *coll__cached_reserve(const coll_request *r, size_t length)
{
    coll__workspace *w = coll__workspace_of(r);
    coll__cached **at = &w->cached[w->cached_next % COLL__CACHED];

    if (!*at) *at = (coll__cached *)coll__take_zeros(coll__like(r->comm), 1, sizeof **at);
    if (!*at) return NULL;
    (*at)->call.kind = 0;
    (*at)->has_execution = false;
    if (length > 0) (void)coll__make_room(r->comm, &(*at)->memory, length);
    return length > 0 && !(*at)->memory ? NULL : *at;
}

/* The choice for a checked call; *is_cached: taken from the cache. */
static coll__choice coll__choice_of(const coll_request *r, bool *is_cached)
{
    coll_comm *comm = r->comm;

    *is_cached = true;
    if (!COLL__HAS_CHOICE) return coll__only_choice(r->call.kind, comm->size);
    coll__query query = coll__query_of(comm, &r->call, &r->codec);
    const double elements = coll__call_elements(&r->call, comm->size);
    coll__choice choice = { 0 };
    const coll__cached *c;
    for (unsigned i = 0; i < COLL__CACHED && (c = coll__cached_at(coll__workspace_of(r), i)) != NULL; i++)
        if (c->elements == elements && coll__is_like_cached(r, c)) return c->choice;
    *is_cached = false;
    if (!query.counts && coll__is_crowd(&query))
        query.counts = comm->counts
            = (coll__counts *)coll__allocate(coll__like(comm), COLL__ALGORITHM_COUNT * sizeof *comm->counts);
    (void)coll__choose(&choice, &query);
    return choice;
}

/* ---- >>planning ---- */

/* Fill r->execution: choose the algorithm of a checked call, run through its rounds to count what they need, cut the vector. */
static coll_status coll__execution_plan(coll_request *r)
{
    coll__execution *execution = r->execution;

    memset(execution, 0, sizeof *execution);
    execution->choice = coll__choice_of(r, &execution->is_chosen_before);
    if (COLL__HAS_CHOICE && execution->choice.algorithm->has_order && coll__comm_topology(r->comm) < 0) return COLL_ERR_MEMORY;
    coll__execution_layouts(execution, r, execution->choice.blocks);
    (void)coll__layout_total(execution->vector, &execution->longest);
    for (;; execution->rounds++) {
        coll__round dry = coll__round_of(r, NULL, 0);
        if (!execution->choice.algorithm->round(&dry, execution->rounds)) break;
        if (dry.count > execution->steps) execution->steps = dry.count;
        if (dry.moved > execution->moved) execution->moved = dry.moved;
        execution->moved_in_all += (size_t)dry.moved;
        if (dry.made > execution->made) execution->made = dry.made;
        if (dry.from > execution->from) execution->from = dry.from;
        for (int place = 0; place < COLL__PLACES; place++)
            if (dry.slots[place] > execution->slots[place]) execution->slots[place] = dry.slots[place];
    }
    if (execution->rounds > 0) coll__execution_cut(execution, r);
    return COLL_OK;
}

/* ---- >>memory ---- */

/* A result that would overwrite other blocks of the input goes to a copy first. */
static bool coll__copies_result(const coll_call *call)
{
    return COLL__HAS_COUNTS && call->kind == COLL_REDUCE_SCATTERV && call->send == call->recv;
}

/* Bytes of the copy. */
static size_t coll__copy_length(const coll__execution *execution, const coll_request *r)
{
    size_t ignored;

    if (coll__copies_result(&r->call)) return coll__round_up(execution->result.count * r->codec.type_size, 64);
    if (!coll__copies_input(&r->call)) return 0;
    return coll__round_up((size_t)execution->input.blocks * sizeof(size_t), 64)
         + coll__round_up(coll__layout_total(&execution->input, &ignored) * r->codec.type_size, 64);
}

static void coll__make_copy(coll__execution *execution, const coll_request *r, unsigned char *to)
{
    size_t *offsets = (size_t *)(void *)to, at = 0;

    if (coll__copies_result(&r->call)) {
        execution->result.base = to;
        return;
    }
    to += coll__round_up((size_t)execution->input.blocks * sizeof *offsets, 64);
    for (int i = 0; i < execution->input.blocks; i++) {
        const coll__range range = coll__block_range(&execution->input, i);
        const size_t length = range.count * r->codec.type_size;
        if (length) memcpy(to + at, coll__behind(execution->input.base, range.at * r->codec.type_size), length);
        offsets[i] = at / r->codec.type_size;
        at += length;
    }
    if (execution->input.kind == COLL__LISTED) execution->input.offsets = offsets;
    execution->input.base = to;
}

/* Allocate the stages.  Values are in the arena of the workspace, which grows to the largest need and is reused.  So are the
 * tables, unless the execution can be cached: then they have their own memory, with a stage for each round. */
static coll_status coll__execution_lay_out(coll__execution *execution, coll_request *r)
{
    const size_t rounds = (size_t)execution->rounds, steps = (size_t)execution->steps, moved = (size_t)execution->moved;
    const size_t longest = coll__part(execution->longest, r->codec.group_bits, (size_t)execution->slices, 0).count;
    const size_t wider = coll__most(r->codec.wire_size, r->codec.acc_size);
    const bool is_packed = longest == 0 || wider == 0 || moved <= COLL__PACK_MOST / wider / longest;      /* every span */
    const bool has_peers = COLL__OVERLAP > 1 && execution->slices == 1 && execution->rounds <= COLL__ROUNDS_OVERLAP;

    execution->work_slot = coll__round_up(coll__wire_bytes(&r->codec, longest), 64);
    execution->part_slot = coll__round_up(longest * r->codec.acc_size, 64);
    /* once: scratch; peers, sources and steps; copy of the input */
    const int sources = execution->input.kind == COLL__VECTORS ? INT_MAX : execution->steps + 1;
    const size_t scratch = coll__kind_reduces(r->call.kind) ? coll__combine_scratch(&r->codec, sources) : 0;
    const size_t sums = coll__round_up(scratch, 64);
    const size_t peers = has_peers ? 2 * rounds * sizeof(uint64_t) : 0;
    const size_t lists = coll__round_up(peers + steps * (sizeof(coll__source) + sizeof(coll__step)), 64);
    const size_t copy = coll__copy_length(execution, r);
    /* of a stage: messages with cargo, and made blocks */
    const size_t xfers = steps + (is_packed ? 0 : moved);
    const size_t table = coll__round_up(xfers * (sizeof(coll_xfer) + sizeof(coll__cargo))
                                        + (size_t)execution->made * sizeof(coll__made)
                                        + (size_t)execution->from * sizeof(coll__spot), 64);
    /* of a slice: the slots, and staging memory */
    const size_t work = (size_t)execution->slots[COLL__WORK] * execution->work_slot;
    const size_t part = (size_t)execution->slots[COLL__PART] * execution->part_slot;
    const size_t widest = coll__most(execution->work_slot, execution->slots[COLL__PART] ? execution->part_slot : 0);
    const size_t packed = moved * widest + steps * 64;
    const size_t staging = coll__is_same(&r->codec) ? coll__least(packed, steps * (COLL__PACK_MOST + 64)) : packed;
    const size_t slice = coll__round_up(work + part + staging, 64);

    const size_t cached_length = lists + coll__round_up(rounds * sizeof(coll__stage), 64) + rounds * table;
    const bool can_return = COLL__CACHED_MOST > 0 && execution->slices == 1 && cached_length <= COLL__CACHED_MOST
                         && coll__execution_is_repeatable(r);
    coll__cached *cached = can_return ? coll__cached_reserve(r, cached_length) : NULL;
    const size_t stages = cached ? rounds : coll__least((size_t)execution->slices, (size_t)execution->lag * rounds);
    const size_t heads = coll__round_up(stages * sizeof(coll__stage), 64), values = sums + (cached ? 1 : stages) * slice;
    unsigned char *const arena = coll__workspace_memory(r, values + (cached ? 0 : lists + copy + heads + stages * table));
    if (!arena) return COLL_ERR_MEMORY;
    unsigned char *at = cached ? (unsigned char *)cached->memory : arena + values;
    execution->is_cached = cached != NULL;
    execution->stage_count = (int)stages;
    execution->scratch = arena;
    execution->peers = has_peers ? (uint64_t *)(void *)at : NULL;
    execution->sources = (coll__source *)(void *)(at + peers);
    execution->list = (coll__step *)(void *)(execution->sources + steps);
    if ((COLL__HAS_COUNTS || COLL__HAS_ALLTOALL) && copy) coll__make_copy(execution, r, at + lists);
    execution->stages = (coll__stage *)(void *)(at + lists + copy);
    at += lists + copy + heads;
    for (size_t i = 0; i < stages; i++, at += table) {
        coll__stage *stage = &execution->stages[i];
        unsigned char *value = arena + sums + (cached ? 0 : i * slice);
        *stage = (coll__stage){ .base = { [COLL__WORK] = value, [COLL__PART] = value + work }, .staging = value + work + part };
        stage->xfers = (coll_xfer *)(void *)at;
        stage->cargo = (coll__cargo *)(void *)(stage->xfers + xfers);
        stage->made = (coll__made *)(void *)(stage->cargo + xfers);
        stage->spots = (coll__spot *)(void *)(stage->made + execution->made);
    }
    return COLL_OK;
}

/* ---- >>starting ---- */

/* Cache the choice for a call; NULL: it is cached already, or cannot be. */
static coll__cached *coll__choice_cache(const coll_request *r)
{
    const coll__execution *execution = r->execution;

    if (!coll__is_cacheable(&r->call) || (execution->is_chosen_before && !execution->is_cached)) return NULL;
    coll__cached *cached = coll__cached_reserve(r, 0);
    if (!cached) return NULL;
    cached->call = r->call;
    cached->elements = coll__call_elements(&r->call, r->comm->size);
    coll__keep_text(cached->algorithm, sizeof cached->algorithm, r->call.algorithm ? r->call.algorithm : "");
    cached->choice = execution->choice;
    coll__workspace_of(r)->cached_next++;
    return cached;
}

/* Make a new execution for a checked call and cache it.  COLL_ERR_UNSUPPORTED: planned, but packets must run it. */
static coll_status coll__execution_start(coll_request *r)
{
    coll__workspace *const w = coll__workspace_reserve(r->order, r->workspace);

    if (!w) return COLL_ERR_MEMORY;
    coll__execution *const execution = r->execution = &w->execution;
    if (coll__execution_plan(r) < 0) return COLL_ERR_MEMORY;
    if (execution->choice.room > 0) return COLL_ERR_UNSUPPORTED;
    if (execution->rounds == 0) return COLL_OK;   /* e.g. a barrier of one                                    */
    if (coll__execution_lay_out(execution, r) < 0) return COLL_ERR_MEMORY;
    coll__cached *cached = coll__choice_cache(r);
    if (!cached || !execution->is_cached) return COLL_OK;
    cached->has_execution = true;
    cached->arenas = w->arenas;
    cached->execution = *execution;
    cached->execution.vector = execution->vector == &execution->result ? &cached->execution.result : &cached->execution.input;
    r->execution = &cached->execution;
    return COLL_OK;
}

#endif /* COLL_EXECUTION_H */
