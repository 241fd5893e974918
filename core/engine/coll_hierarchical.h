/* coll_hierarchical.h - hierarchical collectives as scripts (coll_subcalls.h): a stage among the ranks of a host (intra), one
 * among one rank of each host (inter), and another one on each host.
 *
 *            host 0        host 1        host 2
 *            0   1   2     3   4   5     6   7
 *            |   +---------|---+---------|---+       rail 1: the second rank of every host
 *            +-------------+-------------+           rail 0: the first
 *
 * There are as many rails as the smallest host has ranks.  A vector is cut into one slice for each rail.  All rails run at the
 * same time:
 *
 *                      intra                         inter                     intra
 *     allreduce        reduce_scatter                allreduce                 allgather
 *     reduce           reduce_scatter                reduce                    gather on the root's host
 *     broadcast        scatter on the root's host    broadcast                 allgather
 *     allgather        allgather                     allgather                 allgather, for each other host
 *     reduce_scatter   one for each host             reduce_scatter            blocks for ranks without a rail
 *     scan             reduce_scatter, and a scan    exscan                    allgather, and a fold
 *     barrier          barrier                       barrier on rail 0         barrier
 *
 * A host sends as many bytes as if it were one rank: 2 (H - 1) / H of the vector for an allreduce over H hosts.  A short vector
 * has one slice, and so one message to each host.
 *
 * PARTS.  A long vector that is reduced or broadcast is cut into parts.  While one part is on the rails, hosts distribute the
 * part before it and sum the part after it, here part 1 of allreduce:
 *
 *     intra   sum 0   sum 1           share 0   sum 2           share 1   sum 3  ...
 *     inter           part 0 ......   part 1 ...............    part 2 ...
 *
 * SUMS.  If the accumulator type differs from the type in memory or on the wire, stages carry sums in the accumulator type.  So
 * a result is rounded once.  16-bit floats are f32 on the rails while they are summed, and 16-bit while results are
 * distributed: 1.5 times the bytes of one rank per host.  COLL_ROUND_TWICE also rounds sums before the rails. */
#ifndef COLL_HIERARCHICAL_H
#define COLL_HIERARCHICAL_H
#if COLL__HAS_HIERARCHY

/* ---- >>hierarchy: the state of a hierarchical call ---- */

/* Kinds without parts have one stage for all steps. */
enum { COLL__INTRA_FIRST, COLL__INTER, COLL__INTRA_LAST };

struct coll__hierarchy {
    const coll__topology *hosts;
    coll_comm    *intra, *inter;                  /* the ranks of our host; those of our rail, NULL: on no rail */
    const coll_request *whole;
    const coll__script *script;
    bool          is_wide;                        /* stages carry sums in another type                        */
    coll_type     sum_type;
    size_t        unit, sum_unit, wire_unit;      /* bytes of an element in memory, of a sum, and of a result on rails */
    int           parts, slices;                  /* slices: of a part                                        */
    int           part;                           /* the part to which the current step belongs               */
    size_t       *counts, *offsets;               /* of the slices of our host's ranks, from the part's start */
    size_t       *rail_counts, *rail_offsets;     /* of the pieces of our rail's hosts                        */
    size_t        result_length;                  /* bytes of a part's results                                */
    size_t        sums_length, results_length, extra_length;      /* bytes of the scratch memory, set by `needs` */
    unsigned char *sums, *results, *extra;        /* scratch: input as sums; results as on the wire; other    */
};

/* The elements of the current part. */
static inline coll__range coll__part_now(const coll__hierarchy *h)
{
    return coll__part(h->whole->call.count, 0, (size_t)h->parts, (size_t)h->part);
}

static inline coll__range coll__slice_at(const coll__hierarchy *h, int slice)
{
    const coll__range part = coll__part_now(h);

    if (slice >= h->slices) return (coll__range){ part.at + part.count, 0 };
    const coll__range own = coll__part(part.count, 0, (size_t)h->slices, (size_t)slice);
    return (coll__range){ part.at + own.at, own.count };
}

static inline coll__range coll__own_slice(const coll__hierarchy *h) { return coll__slice_at(h, h->hosts->place); }

/* Elements of the longest slice of the longest part. */
static inline size_t coll__longest_slice(const coll__hierarchy *h)
{
    const size_t part = coll__part(h->whole->call.count, 0, (size_t)h->parts, 0).count;
    return coll__part(part, 0, (size_t)h->slices, 0).count;
}

/* Where the current part begins in a vector of the user's. */
static inline unsigned char *coll__at_part(const coll__hierarchy *h, const void *vector)
{
    return coll__behind(vector, coll__part_now(h).at * h->unit);
}

/* Is this rank on a rail? */
static inline bool coll__is_on_rail(const coll__hierarchy *h) { return h->hosts->place < h->slices; }

static inline int coll__ranks_here(const coll__hierarchy *h) { return coll__host_size(h->hosts, h->hosts->host); }

/* Set h->counts and h->offsets to the slices of the part. */
static void coll__count_slices(coll__hierarchy *h)
{
    for (int s = 0; s < coll__ranks_here(h); s++) h->counts[s] = coll__slice_at(h, s).count;
    coll__offsets_fill(h->offsets, h->counts, coll__ranks_here(h));
}

/* ---- >>calls ---- */

static coll__sub_kind coll__sub_call(const coll__hierarchy *h, coll__sub *out, coll_comm *on, const coll_call *call)
{
    COLL__ASSERT(on && on != h->whole->comm, "%s %u has a step, %s, on %s", coll_kind_name(h->whole->call.kind),
                 h->whole->sequence, coll_kind_name(call->kind), on ? "its own communicator" : "no communicator");
    out->on = on;
    out->call = *call;
    out->call.timeout_ms = 0;
    return COLL__SUB_CALL;
}

/* A call that moves elements; counts and offsets of both sides, or NULL. */
static coll_call coll__moving(coll_kind kind, const void *send, void *recv, size_t count, coll_type type, const size_t *counts,
                              const size_t *offsets)
{
    return (coll_call){ .kind = kind, .send = send, .recv = recv, .count = count, .recv_count = count, .type = type,
                        .send_counts = counts, .send_offsets = offsets, .recv_counts = counts, .recv_offsets = offsets };
}

/* A call that reduces sums of h->sum_type, or elements as in the whole call.  The last one (`finishes`) divides and scales. */
static coll_call coll__reducing(const coll__hierarchy *h, coll_kind kind, const void *send, void *recv, size_t count,
                                bool finishes)
{
    coll_call call = h->whole->call;

    call.kind = kind;
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.send_counts = call.send_offsets = call.recv_counts = call.recv_offsets = NULL;
    call.flags &= ~(unsigned)(COLL_DETECT_OVERFLOW | COLL_ROUND_TWICE);
    call.residual = NULL;
    call.name = NULL;
    call.algorithm = NULL;
    call.root = 0;
    if (h->is_wide) {
        call.type = call.wire = call.accumulate = h->sum_type;
        call.flags &= ~(unsigned)COLL_SATURATE;
    }
    if (!finishes) {
        call.scale = 0;
        if (call.op == COLL_AVG) call.op = COLL_SUM;
    }
    return call;
}

/* The sum over our host; each rank gets its slice. */
static coll__sub_kind coll__sum_on_host(const coll__hierarchy *h, const void *in, void *result, coll__sub *out)
{
    coll_call call = coll__reducing(h, COLL_REDUCE_SCATTERV, in, result, h->counts[h->hosts->place], false);

    call.recv_counts = h->counts;
    call.send_offsets = h->offsets;
    return coll__sub_call(h, out, h->intra, &call);
}

/* Move slices to or from the ranks of our host. */
static coll__sub_kind coll__move_on_host(const coll__hierarchy *h, coll_kind kind, const void *send, void *recv, int root,
                                         coll__sub *out)
{
    coll_call call = coll__moving(kind, send, recv, h->counts[h->hosts->place], h->whole->call.type, h->counts, h->offsets);

    call.root = root;
    return coll__sub_call(h, out, h->intra, &call);
}

/* Every rank of our host gets all slices of the result. */
static coll__sub_kind coll__share_on_host(const coll__hierarchy *h, coll__sub *out)
{
    return coll__move_on_host(h, COLL_ALLGATHERV, COLL_IN_PLACE, coll__at_part(h, h->whole->call.recv), 0, out);
}

/* Wide sums of our slice over the rail; each host gets its piece, in place. */
static coll__sub_kind coll__sum_on_rail(const coll__hierarchy *h, unsigned char *slice, coll__sub *out)
{
    const int mine = h->hosts->host;
    unsigned char *const piece = slice + h->rail_offsets[mine] * h->sum_unit;
    coll_call call = coll__reducing(h, COLL_REDUCE_SCATTERV, slice, piece, h->rail_counts[mine], true);

    call.recv_counts = h->rail_counts;
    call.send_offsets = h->rail_offsets;
    return coll__sub_call(h, out, h->inter, &call);
}

/* ---- >>work between the calls ---- */

/* The input as sums: rounded to the wire type like every input, then widened. */
static void coll__widen_input(const coll__hierarchy *h, unsigned char *to, const unsigned char *from, size_t count)
{
    _Alignas(64) unsigned char wire[COLL__BLOCK];
    const coll_request *r = h->whole;
    const coll_type by = r->call.wire;
    coll__map *const widen = coll__conversion(h->sum_type, by, coll__tier());
    const size_t most = COLL__BLOCK / sizeof(double);

    for (size_t at = 0, length; at < count; at += length) {
        length = coll__least(count - at, most);
        const void *in = from + at * h->unit;
        if (!coll__is_same(&r->codec)) coll__pack(&r->codec, wire, in, length, at, r->comm->rank), in = wire;
        if (by == h->sum_type) memcpy(to + at * h->sum_unit, in, length * h->sum_unit);
        else widen(to + at * h->sum_unit, in, length);
    }
}

/* The only rounding: finished sums to the wire type. */
static void coll__round_sums(const coll__hierarchy *h, unsigned char *to, unsigned char *from, size_t count)
{
    const coll__codec *codec = &h->whole->codec;
    const coll_type wire = h->whole->call.wire;

    if (codec->clamp) codec->clamp(from, from, count, 1, codec->limit);
    if (wire == h->sum_type) memcpy(to, from, count * h->sum_unit);
    else coll__conversion(wire, h->sum_type, coll__tier())(to, from, count);
}

/* ---- >>in parts: barrier, broadcast, reduce, allreduce ---- */

enum { COLL__STAGE_STEPS = 3 };                   /* of a stage: a wait, and two of its kind                  */

/* The steps of kinds with parts.  Lane 0 is intra; for 4 parts it runs these stages:
 *
 *     first 0, first 1, last 0, first 2, last 1, first 3, last 2, last 3
 *
 * Lane 1 is inter.  It starts a part after the part's first stage; the last stage starts after it. */
static coll__sub_kind coll__next_in_parts(coll__hierarchy *h, int lane, int k, coll__sub *out)
{
    const int number = k / COLL__STAGE_STEPS, step = k % COLL__STAGE_STEPS, end = lane ? h->parts : 2 * h->parts;
    const bool is_first = number == 0 || (number % 2 == 1 && number < end - 1);
    const int stage = lane ? COLL__INTER : is_first ? COLL__INTRA_FIRST : COLL__INTRA_LAST;

    if (number >= end) return COLL__SUB_END;
    h->part = lane ? number : is_first ? (number + 1) / 2 : number == end - 1 ? h->parts - 1 : number / 2 - 1;
    COLL__ASSERT(h->part >= 0 && h->part < h->parts, "step %d of lane %d is of part %d of %d", k, lane, h->part, h->parts);
    if (step == 0) {
        if (lane) out->until = COLL__STAGE_STEPS * (number == 0 ? 1 : 2 * number);
        else out->until = is_first ? 0 : COLL__STAGE_STEPS * (h->part + 1);
        return COLL__SUB_WAIT;
    }
    if (lane) {                                   /* the pieces of our slice: each host's while the rail distributes results */
        const size_t hosts = (size_t)h->hosts->count;
        for (size_t g = 0; g < hosts; g++) h->rail_counts[g] = coll__part(coll__own_slice(h).count, 0, hosts, g).count;
        coll__offsets_fill(h->rail_offsets, h->rail_counts, h->hosts->count);
    } else coll__count_slices(h);
    return h->script->step(h, stage, step - 1, out);
}

static coll__sub_kind coll__barrier_step(coll__hierarchy *h, int stage, int k, coll__sub *out)
{
    const coll_call call = coll__moving(COLL_BARRIER, NULL, NULL, 0, 0, NULL, NULL);

    if (k > 0 || (stage == COLL__INTER && h->hosts->place > 0)) return COLL__SUB_WORK;
    return coll__sub_call(h, out, stage == COLL__INTER ? h->inter : h->intra, &call);
}

static coll__sub_kind coll__broadcast_step(coll__hierarchy *h, int stage, int k, coll__sub *out)
{
    const coll_call *c = &h->whole->call;
    const coll__range own = coll__own_slice(h);
    unsigned char *const slice = coll__behind(c->recv, own.at * h->unit);
    int host;
    const int place = coll__place_of_rank(h->hosts, c->root, &host);

    if (k > 0) return COLL__SUB_WORK;
    if (stage == COLL__INTRA_LAST) return coll__share_on_host(h, out);
    if (stage == COLL__INTER && coll__is_on_rail(h)) {
        coll_call call = coll__moving(COLL_BROADCAST, NULL, slice, own.count, c->type, NULL, NULL);
        call.root = host;
        return coll__sub_call(h, out, h->inter, &call);
    }
    if (stage == COLL__INTER || host != h->hosts->host) return COLL__SUB_WORK;
    void *const to = c->root == h->whole->comm->rank ? COLL_IN_PLACE : slice;
    return coll__move_on_host(h, COLL_SCATTERV, coll__at_part(h, c->recv), to, place, out);
}

/* Reduce and allreduce begin with the sum over our host. */
static coll__sub_kind coll__sum_first(coll__hierarchy *h, int k, void *sums, coll__sub *out)
{
    const unsigned char *const in = coll__at_part(h, h->whole->call.send);
    const coll__range part = coll__part_now(h);
    unsigned char *const wide = coll__behind(h->sums, part.at * h->sum_unit);

    if (k > 0) return coll__sum_on_host(h, h->is_wide ? wide : in, sums, out);
    if (h->is_wide) coll__widen_input(h, wide, in, part.count);
    return COLL__SUB_WORK;
}

/* Then the sum over the rail, for host `root` or all hosts.  Wide sums are rounded between the two steps, each host its piece. */
static coll__sub_kind coll__sum_inter(coll__hierarchy *h, int k, int root, unsigned char *sums, unsigned char *results,
                                      coll__sub *out)
{
    const coll_kind kind = h->whole->call.kind;
    coll_call call = coll__reducing(h, kind, sums, sums, coll__own_slice(h).count, true);

    if (!coll__is_on_rail(h) || (k > 0 && !h->is_wide)) return COLL__SUB_WORK;
    if (k == 0 && h->is_wide) return coll__sum_on_rail(h, sums, out);
    if (k > 0) {
        const size_t at = h->rail_offsets[h->hosts->host], count = h->rail_counts[h->hosts->host];
        unsigned char *const own = results + at * h->wire_unit;
        coll__round_sums(h, own, sums + at * h->sum_unit, count);
        call = coll__moving(kind == COLL_REDUCE ? COLL_GATHERV : COLL_ALLGATHERV, own, results, count, h->whole->call.wire,
                            h->rail_counts, h->rail_offsets);
    }
    call.root = root;
    return coll__sub_call(h, out, h->inter, &call);
}

/* Results have memory for each part if their wire type differs from memory; and in a reduce, whose root alone has memory for
 * them. */
static void coll__reduce_needs(coll__hierarchy *h)
{
    const coll_call *c = &h->whole->call;
    const bool has_root = c->kind == COLL_REDUCE, is_other_wire = h->is_wide && c->wire != c->type;
    const size_t slice = coll__longest_slice(h);

    h->result_length = has_root || is_other_wire ? coll__round_up(slice * coll__most(h->wire_unit, h->unit), 64) : 0;
    h->sums_length = h->is_wide ? c->count * h->sum_unit : 0;
    h->results_length = (size_t)h->parts * h->result_length;
    h->extra_length = has_root && is_other_wire ? slice * h->unit : 0;
}

/* Reduce and allreduce.  `slice`: our slice of the result, as in memory; `results`: as on the wire. */
static coll__sub_kind coll__reduce_step(coll__hierarchy *h, int stage, int k, coll__sub *out)
{
    const coll_call *c = &h->whole->call;
    const bool has_root = c->kind == COLL_REDUCE;
    const coll__range own = coll__own_slice(h);
    unsigned char *const in_result = has_root ? h->extra : coll__behind(c->recv, own.at * h->unit);
    unsigned char *const results = h->results ? h->results + (size_t)h->part * h->result_length : in_result;
    unsigned char *const slice = in_result ? in_result : results;
    unsigned char *const sums = h->is_wide ? h->sums + own.at * h->sum_unit : results;
    int host = h->hosts->host;
    const int place = has_root ? coll__place_of_rank(h->hosts, c->root, &host) : 0;

    if (stage == COLL__INTRA_FIRST) return coll__sum_first(h, k, sums, out);
    if (stage == COLL__INTER) return coll__sum_inter(h, k, has_root ? host : 0, sums, results, out);
    if (host != h->hosts->host) return COLL__SUB_WORK;
    if (k > 0) return has_root ? coll__move_on_host(h, COLL_GATHERV, slice, coll__at_part(h, c->recv), place, out)
                               : coll__share_on_host(h, out);
    if (results != slice) coll__unpack(&h->whole->codec, slice, results, own.count);
    return COLL__SUB_WORK;
}

/* ---- >>blocks: calls with a block for each rank.  Rail s serves places s, s + rails, ... of every host ---- */

static inline size_t coll__block_count_of(const coll__hierarchy *h, int rank)
{
    const coll_call *c = &h->whole->call;
    return rank == COLL_RANK_NONE ? 0 : coll__kind_is(c->kind, COLL__SUMMED) ? c->recv_counts[rank] : c->count;
}

/* Offset in the input of a reduce_scatter, or in the result of an allgather. */
static inline size_t coll__block_offset_of(const coll__hierarchy *h, int rank)
{
    const coll_call *c = &h->whole->call;
    const size_t *offsets = c->kind == COLL_REDUCE_SCATTERV ? c->send_offsets : c->recv_offsets;

    if (rank == COLL_RANK_NONE) return 0;
    return coll__kind_is(c->kind, COLL__SUMMED) ? offsets[rank] : (size_t)rank * c->count;
}

/* Turns that the rails need for the largest host. */
static inline int coll__turns_of(const coll__topology *t) { return (t->most + t->least - 1) / t->least; }

/* Set h->counts and h->offsets: the blocks of host `host` in turn `turn` that our host's ranks have; from_all: all blocks of
 * our host. */
static void coll__count_on_host(coll__hierarchy *h, int host, int turn, bool from_all)
{
    const coll__topology *t = h->hosts;

    for (int s = 0; s < coll__ranks_here(h); s++) {
        const int rank = from_all ? coll__rank_at(t, host, s)
                       : s < t->least ? coll__rank_at(t, host, turn * t->least + s) : COLL_RANK_NONE;
        h->counts[s] = coll__block_count_of(h, rank);
        h->offsets[s] = coll__block_offset_of(h, rank);
    }
}

/* Set h->rail_counts and h->rail_offsets: the block of each host on our rail in turn `turn`. */
static void coll__count_on_rail(coll__hierarchy *h, int turn)
{
    const coll__topology *t = h->hosts;

    for (int g = 0; g < t->count; g++) {
        const int rank = coll__rank_at(t, g, turn * t->least + t->place);
        h->rail_counts[g] = coll__block_count_of(h, rank);
        h->rail_offsets[g] = coll__block_offset_of(h, rank);
    }
}

static coll__sub_kind coll__next_of_allgather(coll__hierarchy *h, int lane, int k, coll__sub *out)
{
    const coll__topology *t = h->hosts;
    const coll_call *c = &h->whole->call;
    const int turns = coll__turns_of(t), behind = k - 1 - turns;
    const bool is_inter = k > 0 && k <= turns;
    const size_t *const counts = is_inter ? h->rail_counts : h->counts, *const offsets = is_inter ? h->rail_offsets : h->offsets;

    (void)lane;
    if (behind >= turns * t->count) return COLL__SUB_END;
    if (is_inter && !h->inter) return COLL__SUB_WORK;
    if (behind >= 0 && behind / turns == t->host) return COLL__SUB_WORK;
    if (is_inter) coll__count_on_rail(h, k - 1);
    else coll__count_on_host(h, k == 0 ? t->host : behind / turns, k == 0 ? 0 : behind % turns, k == 0);
    const coll_call call = coll__moving(COLL_ALLGATHERV, k == 0 ? c->send : COLL_IN_PLACE, c->recv,
                                        counts[is_inter ? t->host : t->place], c->type, counts, offsets);
    return coll__sub_call(h, out, is_inter ? h->inter : h->intra, &call);
}

/* Elements of all blocks before that of `rank`. */
static size_t coll__blocks_before(const coll__hierarchy *h, int rank)
{
    size_t before = 0;
    for (int i = 0; i < rank; i++) before += coll__block_count_of(h, i);
    return before;
}

/* Elements on our rail before turn `turn`, plus those of the hosts before `host` in that turn.  Counts one host only if `only`
 * is not negative. */
static size_t coll__in_hand_before(const coll__hierarchy *h, int turn, int host, int only)
{
    const coll__topology *t = h->hosts;
    size_t before = 0;

    for (int q = 0; q <= turn; q++)
        for (int g = 0; g < (q < turn ? t->count : host); g++)
            if (only < 0 || g == only) before += coll__block_count_of(h, coll__rank_at(t, g, q * t->least + t->place));
    return before;
}

/* Memory for the input in one piece, unless it is; for the sums of all turns; for blocks of other ranks of our host. */
static void coll__reduce_scatter_needs(coll__hierarchy *h)
{
    const int size = h->whole->comm->size, turns = coll__turns_of(h->hosts);
    bool is_in_one_piece = true;

    for (int r = 0; r < size; r++)
        is_in_one_piece = is_in_one_piece && coll__block_offset_of(h, r) == coll__blocks_before(h, r);
    h->sums_length = h->is_wide || !is_in_one_piece ? coll__blocks_before(h, size) * h->sum_unit : 0;
    h->results_length = coll__in_hand_before(h, turns, 0, -1) * h->sum_unit;
    h->extra_length = coll__in_hand_before(h, turns, 0, h->hosts->host) * h->unit;
}

/* Copy the input to one piece, block after block, widened if necessary. */
static void coll__line_up(const coll__hierarchy *h)
{
    const coll_call *c = &h->whole->call;
    size_t at = 0;

    for (int r = 0; r < h->whole->comm->size; r++) {
        const size_t count = coll__block_count_of(h, r);
        const unsigned char *const from = coll__behind(c->send, coll__block_offset_of(h, r) * h->unit);
        if (h->is_wide) coll__widen_input(h, h->sums + at * h->sum_unit, from, count);
        else if (count) memcpy(h->sums + at * h->unit, from, count * h->unit);
        at += count;
    }
}

/* Sum the blocks of host `host` for turn `turn`; each rank of a rail gets one. */
static coll__sub_kind coll__sum_blocks_on_host(coll__hierarchy *h, int host, int turn, coll__sub *out)
{
    const coll__topology *t = h->hosts;
    const unsigned char *const in = h->sums ? h->sums : (const unsigned char *)h->whole->call.send;
    unsigned char *const result = h->results + coll__in_hand_before(h, turn, host, -1) * h->sum_unit;

    if (turn * t->least >= coll__host_size(t, host)) return COLL__SUB_WORK;
    const size_t before = coll__blocks_before(h, t->first[host] + turn * t->least);
    coll__count_on_host(h, host, turn, false);
    coll__offsets_fill(h->offsets, h->counts, coll__ranks_here(h));
    return coll__sum_on_host(h, in + before * h->sum_unit, result, out);
}

/* Store the received block of turn `turn`, rounded if it is wide: in turn 0 our own, then one of another rank of our host. */
static void coll__take_block(const coll__hierarchy *h, int turn)
{
    const coll__topology *t = h->hosts;
    const size_t count = coll__block_count_of(h, coll__rank_at(t, t->host, turn * t->least + t->place));
    unsigned char *const from = h->results + coll__in_hand_before(h, turn, t->host, -1) * h->sum_unit;
    const size_t others = coll__in_hand_before(h, turn, 0, t->host) - coll__in_hand_before(h, turn > 0, 0, t->host);
    unsigned char *const to = turn == 0 ? (unsigned char *)h->whole->call.recv : h->extra + others * h->unit;

    if (count == 0) return;
    if (!h->is_wide) {
        memcpy(to, from, count * h->unit);
        return;
    }
    coll__round_sums(h, from, from, count);       /* no element moves to a higher address                     */
    coll__unpack(&h->whole->codec, to, from, count);
}

/* Send the blocks of ranks that have no rail to those ranks. */
static coll__sub_kind coll__hand_over(coll__hierarchy *h, coll__sub *out)
{
    const coll__topology *t = h->hosts;
    const coll_call *c = &h->whole->call;
    const int here = coll__ranks_here(h), bringer = t->place % t->least;
    coll_call call = coll__moving(COLL_ALLTOALLV, h->extra, c->recv, 0, c->type, h->counts, h->offsets);

    if (here <= t->least) return COLL__SUB_WORK;
    for (int k = 0; k < here; k++) {
        const bool is_ours = k >= t->least && k % t->least == t->place, is_from = t->place >= t->least && k == bringer;
        h->counts[k] = is_ours ? coll__block_count_of(h, coll__rank_at(t, t->host, k)) : 0;
        h->rail_counts[k] = is_from ? coll__block_count_of(h, h->whole->comm->rank) : 0;
        h->rail_offsets[k] = 0;
    }
    coll__offsets_fill(h->offsets, h->counts, here);
    call.recv_counts = h->rail_counts;
    call.recv_offsets = h->rail_offsets;
    return coll__sub_call(h, out, h->intra, &call);
}

static coll__sub_kind coll__next_of_reduce_scatter(coll__hierarchy *h, int lane, int k, coll__sub *out)
{
    const int turns = coll__turns_of(h->hosts), inter = k - 1 - turns * h->hosts->count, last = inter - turns;

    (void)lane;
    if (last > 0) return COLL__SUB_END;
    if (k == 0 && h->sums) coll__line_up(h);
    if (k == 0) return COLL__SUB_WORK;
    if (inter < 0) return coll__sum_blocks_on_host(h, (k - 1) / turns, (k - 1) % turns, out);
    if (inter > 0 && h->inter) coll__take_block(h, inter - 1);
    if (last == 0) return coll__hand_over(h, out);
    if (!h->inter) return COLL__SUB_WORK;
    coll__count_on_rail(h, inter);
    coll__offsets_fill(h->rail_offsets, h->rail_counts, h->hosts->count);
    return coll__sum_on_rail(h, h->results + coll__in_hand_before(h, inter, 0, -1) * h->sum_unit, out);
}

/* ---- >>scans ---- */

/* Memory for the sums of all hosts before ours, for the sum of our slice, and for folding both. */
static void coll__scan_needs(coll__hierarchy *h)
{
    h->sums_length = h->whole->call.count * h->unit;
    h->results_length = coll__longest_slice(h) * h->unit;
    h->extra_length = coll__combine_scratch(&h->whole->codec, 2);
}

/* Fold the sums of all hosts before ours into the result. */
static void coll__put_before(const coll__hierarchy *h)
{
    const coll_request *r = h->whole;
    const coll_call *c = &r->call;
    void *const result = c->recv;
    const coll__source sources[2] = { { h->sums, COLL__AS_USER, 0 }, { (const unsigned char *)c->recv, COLL__AS_USER, 1 } };

    if (c->kind == COLL_EXSCAN && h->hosts->place == 0) {
        if (c->count) memcpy(c->recv, h->sums, c->count * h->unit);
        return;
    }
    coll__combine(&r->codec, &(coll__sum){ .sources = sources, .n = 2, .results = &result, .m = 1, .format = COLL__AS_USER,
                                           .count = c->count, .scratch = h->extra });
}

static coll__sub_kind coll__next_of_scan(coll__hierarchy *h, int lane, int k, coll__sub *out)
{
    const coll_call *c = &h->whole->call;
    coll_call call;

    (void)lane;
    coll__count_slices(h);
    switch (k) {
    case 0: return coll__sum_on_host(h, c->send, h->results, out);
    case 1:
        call = coll__reducing(h, c->kind, c->send, c->recv, c->count, true);
        return coll__sub_call(h, out, h->intra, &call);
    case 2:
        if (!coll__is_on_rail(h)) return COLL__SUB_WORK;
        call = coll__reducing(h, COLL_EXSCAN, h->results, h->results, coll__own_slice(h).count, true);
        return coll__sub_call(h, out, h->inter, &call);
    case 3:
        if (h->hosts->host == 0) return COLL__SUB_END;
        return coll__move_on_host(h, COLL_ALLGATHERV, h->results, h->sums, 0, out);
    case 4: coll__put_before(h); return COLL__SUB_WORK;
    default: return COLL__SUB_END;
    }
}

/* ---- >>the scripts ---- */

static const coll__script coll__scripts[COLL_ALLGATHERV + 1] = {
    [COLL_BARRIER]         = { 2, coll__next_in_parts, coll__barrier_step, NULL },
    [COLL_BROADCAST]       = { 2, coll__next_in_parts, coll__broadcast_step, NULL },
    [COLL_REDUCE]          = { 2, coll__next_in_parts, coll__reduce_step, coll__reduce_needs },
    [COLL_ALLREDUCE]       = { 2, coll__next_in_parts, coll__reduce_step, coll__reduce_needs },
    [COLL_REDUCE_SCATTER]  = { 1, coll__next_of_reduce_scatter, NULL, coll__reduce_scatter_needs },
    [COLL_REDUCE_SCATTERV] = { 1, coll__next_of_reduce_scatter, NULL, coll__reduce_scatter_needs },
    [COLL_SCAN]            = { 1, coll__next_of_scan, NULL, coll__scan_needs },
    [COLL_EXSCAN]          = { 1, coll__next_of_scan, NULL, coll__scan_needs },
    [COLL_ALLGATHER]       = { 1, coll__next_of_allgather, NULL, NULL },
    [COLL_ALLGATHERV]      = { 1, coll__next_of_allgather, NULL, NULL },
};

/* The script of a kind; NULL: it has none. */
static const coll__script *coll__script_of(coll_kind kind)
{
    return (unsigned)kind <= COLL_ALLGATHERV && coll__scripts[kind].lanes ? &coll__scripts[kind] : NULL;
}

#endif /* COLL__HAS_HIERARCHY */
#endif /* COLL_HIERARCHICAL_H */
