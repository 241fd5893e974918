/* coll_threads_kinds.h - what a rank does in a turn, for each kind of collective, once those whose word it needs have
 * published.  The table at the end says who needs whom.
 *
 * Two families.  Where elements move, each move has two ends: a place in the sender's memory and one in the receiver's,
 * described alike (coll__end).  Where elements are combined, each rank takes a share of them, for all ranks; in this way
 * every input line is read once and every output line written once, which is the least there is. */
#ifndef COLL_THREADS_KINDS_H
#define COLL_THREADS_KINDS_H

enum { COLL__SHARE_UNIT = 64, COLL__PAGE = 4096 };

/* A turn, as its kind sees it. */
typedef struct coll__turn {
    coll__member    *m;
    coll_task       *task;
    const coll_call *call;
    const struct coll__form *form;
    coll_failure    *failure;
    uint64_t         number;
    const coll__source *eager;                    /* the inputs of all ranks; NULL: they are read where they lie */
    bool             streams;                     /* the buffers of all are longer than the caches            */
    size_t           unit;                        /* bytes of an element                                      */
} coll__turn;

/* Whom a rank waits for: nobody; everybody; the root, unless it is itself; on the root everybody and elsewhere nobody; the
 * ranks up to its own. */
typedef enum coll__whom { COLL__NOBODY, COLL__EVERYBODY, COLL__THE_ROOT, COLL__ON_ROOT, COLL__LOWER } coll__whom;

/* How long an eager input is: this kind never has one; 0; `count` elements; so many for each rank. */
typedef enum coll__eager { COLL__EAGER_NEVER, COLL__EAGER_EMPTY, COLL__EAGER_ONE, COLL__EAGER_EACH } coll__eager;

/* How a kind is carried out; what it is about is in its row (coll_shape.h). */
typedef struct coll__form {
    coll__eager   eager;
    coll__whom   eager_from;                      /* eagerly: whose input this rank needs                     */
    coll__whom   from, until;                     /* directly: who must have published, who must be done      */
    void        (*read) (const coll__turn *t);    /* eagerly: take what this rank needs out of the seats      */
    coll_status (*share)(const coll__turn *t);    /* directly: this rank's share of the work                  */
    coll_status (*begin)(const coll__turn *t, coll__view *view);      /* directly, may be NULL: before publishing */
    void        (*end)  (const coll__turn *t);    /* directly, may be NULL: when all are done                 */
} coll__form;

static inline bool coll__waits_for(const coll__turn *t, coll__whom whom, int rank)
{
    const int root = t->call->root, me = t->m->rank;

    switch (whom) {
    case COLL__EVERYBODY: return true;
    case COLL__THE_ROOT:  return rank == root && me != root;
    case COLL__ON_ROOT:   return me == root;
    case COLL__LOWER:     return rank <= me;
    default:              return false;
    }
}

static inline int coll__hub_rank(const coll__turn *t, int rank) { return t->m->group->ranks[rank]; }

static inline coll__slot *coll__slot_in(const coll__member *m, int rank, uint64_t turn)
{
    return &m->seats[rank].slots[turn % COLL__TURN_SLOTS];
}

static inline const coll__view *coll__view_of(const coll__turn *t, int rank)
{
    return &coll__slot_in(t->m, rank, t->number)->is.view;
}

/* The input of a rank: in its seat, or where it lies. */
static inline const unsigned char *coll__input_of(const coll__turn *t, int rank)
{
    return t->eager ? (const unsigned char *)t->eager[rank].at : coll__view_of(t, rank)->send;
}

/* ---- >>memory: what a turn needs beyond the user's ---- */

static coll_status coll__no_memory(const coll__turn *t, size_t length)
{
    const int me = t->m->thread->rank;
    return coll__blame(t->failure, COLL_ERR_MEMORY, me, "rank %d has no memory for the operation: %zu bytes", me, length);
}

/* Memory of ours for others to use in this turn.  NULL: there is none. */
static void *coll__hold(coll__member *m, size_t length)
{
    if (length <= m->held_length) return m->held;
    coll__give(m->held);
    m->held_length = 0;
    m->held = length < SIZE_MAX - COLL__LINE ? coll__take_lines(coll__like(m->thread), coll__round_up(length, COLL__LINE)) : NULL;
    if (m->held) m->held_length = length;
    return m->held;
}

/* A scan keeps two accumulators, each of one block. */
static size_t coll__scan_room(const coll__codec *codec)
{
    return coll__round_up(coll__block_count(codec) * codec->acc_size, 64);
}

/* Scratch memory for the arithmetic of this call, if the user's elements are longer than any we have met.  There is enough
 * for those of which a block has room from the start. */
static coll_status coll__need_scratch(const coll__turn *t)
{
    coll__thread *thread = t->m->thread;
    const coll__codec *codec = t->task->codec;
    const size_t length = coll__kind_scans(t->call->kind) ? coll__combine_scratch(codec, 2) + 2 * coll__scan_room(codec)
                                         : coll__combine_scratch(codec, t->m->count);

    if (length <= thread->scratch_length) return COLL_OK;
    void *longer = coll__allocate(coll__like(thread), length);
    if (!longer) return coll__no_memory(t, length);
    coll__give(thread->scratch);
    thread->scratch = longer;
    thread->scratch_length = length;
    return COLL_OK;
}

/* ---- >>moving: from one rank's memory into another's ---- */

typedef struct coll__end {
    unsigned char *at;
    size_t         count;
    coll_type      type;
} coll__end;

static inline const coll__kind_shape *coll__shape_in(const coll__turn *t) { return &coll__kinds[t->call->kind]; }

/* The block of rank `i` in a buffer of this shape; `count` is that of the whole buffer, where it is one block. */
static inline coll__end coll__end_at(const coll__turn *t, const coll__side_shape *shape, const unsigned char *base, size_t count,
                                     const size_t *counts, const size_t *offsets, const coll_type *types, int i)
{
    coll__end end = { (unsigned char *)(uintptr_t)base, count, t->call->type };
    size_t skip = 0;

    if (shape->over == COLL__OVER_ONE) return end;
    if (shape->from == COLL__FROM_COUNT) {
        end.count = t->call->count;
        skip = (size_t)i * end.count * t->unit;
    } else {
        const bool is_typed = shape->from == COLL__FROM_TYPED;
        end.count = counts[i];
        skip = is_typed ? offsets[i] : offsets[i] * t->unit;
        if (is_typed) end.type = types[i];
    }
    if (end.count) end.at += skip;                /* an empty block may have no memory at all                 */
    return end;
}

static inline coll__end coll__sending_end(const coll__turn *t, int from, int to)
{
    const coll__side_shape *shape = &coll__shape_in(t)->send;

    if (t->eager) return coll__end_at(t, shape, coll__input_of(t, from), t->call->count, NULL, NULL, NULL, to);
    const coll__view *v = coll__view_of(t, from);
    return coll__end_at(t, shape, v->send, v->count, v->send_counts, v->send_offsets, v->send_types, to);
}

/* Eagerly only the receiver itself asks. */
static inline coll__end coll__receiving_end(const coll__turn *t, int to, int from)
{
    const coll_call *c = t->call;
    const coll__side_shape *shape = &coll__shape_in(t)->recv;

    if (t->eager) return coll__end_at(t, shape, (unsigned char *)c->recv, c->count, NULL, NULL, NULL, from);
    const coll__view *v = coll__view_of(t, to);
    const size_t count = shape->from == COLL__FROM_RECV_COUNT ? v->recv_count : v->count;
    return coll__end_at(t, shape, v->recv, count, v->recv_counts, v->recv_offsets, v->recv_types, from);
}

/* memcpy that takes NULL where there is nothing to copy, and a place that has the bytes already. */
static inline void coll__move_bytes(const coll__turn *t, void *to, const void *from, size_t length)
{
    if (!length || to == from) return;
    if (t->streams) coll__copy_uncached(to, from, length);
    else memcpy(to, from, length);
}

/* Bytes that a rank sends to all, or receives from all. */
static size_t coll__extent(const coll__turn *t, const coll__side_shape *shape, const size_t *counts)
{
    const int count = t->m->count;
    size_t total = 0;

    if (shape->over == COLL__OVER_ONE) return t->call->count * t->unit;
    if (shape->from == COLL__FROM_COUNT) return t->call->count * t->unit * (size_t)count;
    for (int i = 0; counts && i < count; i++) total += counts[i];
    return total * t->unit;
}

/* Are the buffers of all ranks, as far as one rank can tell from its own, longer than the caches, and the results apart from
 * the inputs?  Ranks may differ in this: it shows in the time only.  (In place there is nothing to gain: the lines are in the
 * cache, because they have just been read, and streaming to them would be slower by far.)  Of an input that is
 * combined only as much counts as there is of the result. */
static bool coll__is_beyond_caches(const coll__turn *t)
{
    const coll_call *c = t->call;
    const coll__kind_shape *shape = coll__shape_in(t);

    if (c->send == c->recv || c->kind == COLL_BARRIER) return false;
    const size_t sent = coll__extent(t, shape->traits & COLL__REDUCES ? &shape->recv : &shape->send, c->send_counts);
    return sent + coll__extent(t, &shape->recv, c->recv_counts) > t->m->cache_share;
}

static inline void coll__move(const coll__turn *t, int from, int to)
{
    const coll__end source = coll__sending_end(t, from, to), target = coll__receiving_end(t, to, from);
    const size_t unit = coll__shape_in(t)->send.from == COLL__FROM_TYPED ? coll_type_size(source.type) : t->unit;

    coll__move_bytes(t, target.at, source.at, source.count * unit);
}

/* Do the two ends of a move agree?  Asked before the first byte of it is written. */
static coll_status coll__check_ends(const coll__turn *t, int from, int to)
{
    const coll__end source = coll__sending_end(t, from, to), target = coll__receiving_end(t, to, from);
    const int sender = coll__hub_rank(t, from), receiver = coll__hub_rank(t, to);

    if (source.count == target.count && (source.type == target.type || source.count == 0)) return COLL_OK;
    return coll__blame(t->failure, COLL_ERR_MISMATCH, sender, "rank %d sends %zu x %s to rank %d, which expects %zu x %s", sender,
                       source.count, coll_type_name(source.type), receiver, target.count, coll_type_name(target.type));
}

/* Fetch from every rank what it has for this one.  Each rank begins with another one, so that they do not crowd at one
 * memory; its own block comes last. */
static void coll__fetch_all(const coll__turn *t)
{
    const int me = t->m->rank, count = t->m->count;

    for (int i = 1; i <= count; i++) coll__move(t, coll__wrap(me + i, count), me);
}

static coll_status coll__share_fetch(const coll__turn *t)
{
    coll_status status = COLL_OK;

    for (int i = 0; i < t->m->count && status == COLL_OK; i++) status = coll__check_ends(t, i, t->m->rank);
    if (status == COLL_OK) coll__fetch_all(t);
    return status;
}

/* gather: eagerly the root fetches all, directly every rank puts its own block where the root wants it. */
static void coll__read_gather(const coll__turn *t)
{
    if (t->m->rank == t->call->root) coll__fetch_all(t);
}

static coll_status coll__share_gather(const coll__turn *t)
{
    const coll_status status = coll__check_ends(t, t->m->rank, t->call->root);
    if (status == COLL_OK) coll__move(t, t->m->rank, t->call->root);
    return status;
}

/* scatter: every rank fetches its own block from the root. */
static void coll__read_scatter(const coll__turn *t) { coll__move(t, t->call->root, t->m->rank); }

static coll_status coll__share_scatter(const coll__turn *t)
{
    const coll_status status = coll__check_ends(t, t->call->root, t->m->rank);
    if (status == COLL_OK) coll__move(t, t->call->root, t->m->rank);
    return status;
}

/* alltoall in place: others fetch from this rank's buffer while it is overwritten, so they get a copy to fetch from.  Its
 * blocks lie one after the other; where the caller has offsets, the copy has offsets of its own in front. */
static coll_status coll__begin_alltoall(const coll__turn *t, coll__view *view)
{
    const coll__side_shape *shape = &coll__shape_in(t)->send;
    const int count = t->m->count;
    const bool has_offsets = shape->from != COLL__FROM_COUNT, is_typed = shape->from == COLL__FROM_TYPED;
    const size_t table = has_offsets ? coll__round_up((size_t)count * sizeof(size_t), COLL__LINE) : 0;
    size_t length = table;

    if (!view->send || view->send != view->recv) return COLL_OK;
    for (int pass = 0; pass < 2; pass++) {        /* first measure, then copy                                 */
        unsigned char *const to = pass ? (unsigned char *)t->m->held : NULL;
        size_t at = table;
        for (int i = 0; i < count; i++) {
            const coll__end e = coll__end_at(t, shape, view->send, 0, view->send_counts, view->send_offsets,
                                             view->send_types, i);
            const size_t unit = is_typed ? coll_type_size(e.type) : t->unit;
            if (pass && has_offsets) ((size_t *)(void *)to)[i] = is_typed ? at - table : (at - table) / t->unit;
            if (pass) coll__move_bytes(t, to + at, e.at, e.count * unit);
            at += e.count * unit;
        }
        length = at;
        if (!pass && !coll__hold(t->m, length)) return coll__no_memory(t, length);
    }
    view->send = (const unsigned char *)t->m->held + table;
    if (has_offsets) view->send_offsets = (const size_t *)t->m->held;
    return COLL_OK;
}

/* ---- >>combining ---- */

/* This rank's share of `count` elements: in whole cache lines, long ones in whole pages, and never a part of an element. */
static void coll__share_of(const coll__turn *t, size_t count, size_t *at, size_t *share)
{
    const size_t size = (size_t)t->m->count, even = (count + size - 1) / size;
    const bool is_long = t->unit < COLL__SHARE_UNIT && even * t->unit >= 16 * COLL__PAGE;
    const size_t unit = is_long ? COLL__PAGE : t->unit < COLL__SHARE_UNIT ? COLL__SHARE_UNIT : 1;
    const size_t each = coll__round_up(even, unit);

    *at = coll__least(each * (size_t)t->m->rank, count);
    *share = coll__least(each, count - *at);
}

static inline unsigned char *coll__output_of(const coll__turn *t, int rank, size_t at)
{
    return coll__view_of(t, rank)->recv + at * t->unit;
}

/* Combine elements from..from+count of all inputs into the first `m` results. */
static void coll__combine_inputs(const coll__turn *t, size_t from, int m, size_t count)
{
    coll__thread *thread = t->m->thread;

    for (int i = 0; i < t->m->count; i++)
        thread->sources[i] = (coll__source){ coll__input_of(t, i) + from * t->unit, COLL__AS_USER, i };
    coll__combine(t->task->codec, &(coll__sum){ .sources = thread->sources, .n = t->m->count, .results = thread->results, .m = m,
                                                .format = COLL__AS_USER, .count = count, .index = from,
                                                .scratch = thread->scratch, .streams = t->streams });
}

static inline void coll__read_reduce(const coll__turn *t)
{
    void *const result = t->call->recv;

    if (t->form->eager_from != COLL__EVERYBODY && t->m->rank != t->call->root) return;
    coll__combine(t->task->codec, &(coll__sum){ .sources = t->eager, .n = t->m->count, .results = &result,
                                                .m = 1, .format = COLL__AS_USER, .count = t->call->count,
                                                .scratch = t->m->thread->scratch });
}

/* The results of some elements for all ranks; our own is looked at while it is in the cache. */
static void coll__combine_for_all(const coll__turn *t, size_t at, size_t count)
{
    for (int i = 0; i < t->m->count; i++) t->m->thread->results[i] = coll__output_of(t, i, at);
    coll__combine_inputs(t, at, t->m->count, count);
    if (t->call->flags & COLL_DETECT_OVERFLOW && coll__overflows(coll__output_of(t, t->m->rank, at), count, t->call->type))
        t->m->seats[t->m->rank].overflowed = t->number;
}

enum { COLL__LOOK_BYTES = 16 << 10 };             /* of results between two looks at them                     */

static coll_status coll__share_reduce(const coll__turn *t)
{
    const bool looks = t->call->flags & COLL_DETECT_OVERFLOW;
    size_t at, count;

    coll__share_of(t, t->call->count, &at, &count);
    if (count == 0) return COLL_OK;
    if (t->call->kind == COLL_ALLREDUCE) {
        const size_t piece = looks ? coll__most(COLL__LOOK_BYTES / t->unit, 1) : count;
        for (size_t done = 0; done < count; done += piece) coll__combine_for_all(t, at + done, coll__least(piece, count - done));
        return COLL_OK;
    }
    t->m->thread->results[0] = coll__output_of(t, t->call->root, at);
    coll__combine_inputs(t, at, 1, count);
    return COLL_OK;
}

/* COLL_DETECT_OVERFLOW of an allreduce: every rank has looked at its share.  Nobody begins the share of another turn before
 * we publish it, so what stands in the seats is of this one or older. */
static void coll__end_allreduce(const coll__turn *t, coll_task *task)
{
    bool overflows = false;

    if (t->call->kind != COLL_ALLREDUCE || !(t->call->flags & COLL_DETECT_OVERFLOW)) return;
    for (int i = 0; i < t->m->count; i++) overflows |= t->m->seats[i].overflowed == t->number;
    task->is_finite = overflows ? -1 : 1;
}

static inline void coll__read_broadcast(const coll__turn *t)
{
    if (t->m->rank != t->call->root)
        coll__move_bytes(t, t->call->recv, coll__input_of(t, t->call->root), t->call->count * t->unit);
}

static coll_status coll__share_broadcast(const coll__turn *t)
{
    size_t at, count;

    coll__share_of(t, t->call->count, &at, &count);
    for (int i = 0; i < t->m->count && count; i++)
        coll__move_bytes(t, coll__output_of(t, i, at), coll__input_of(t, t->call->root) + at * t->unit, count * t->unit);
    return COLL_OK;
}

static void coll__read_reduce_scatter(const coll__turn *t)
{
    t->m->thread->results[0] = t->call->recv;
    coll__combine_inputs(t, (size_t)t->m->rank * t->call->count, 1, t->call->count);
}

/* Block 0 first: a result in place may overwrite block 0 of its input, and it is the same rank that has read and that
 * overwrites an element, because its share is at the same place in every block. */
static coll_status coll__share_reduce_scatter(const coll__turn *t)
{
    size_t at, count;

    coll__share_of(t, t->call->count, &at, &count);
    for (int i = 0; i < t->m->count && count; i++) {
        t->m->thread->results[0] = coll__output_of(t, i, at);
        coll__combine_inputs(t, (size_t)i * t->call->count + at, 1, count);
    }
    return COLL_OK;
}

#if COLL__HAS_COUNTS

/* reduce_scatterv: with uneven blocks a result at the start of its input would overwrite what other ranks have yet to read.
 * It is made beside, and moved there at the end.  A result in its own block is safe: whoever combines an element is the only
 * one who reads it. */
static coll_status coll__begin_reduce_scatterv(const coll__turn *t, coll__view *view)
{
    size_t before = 0, total = 0;

    for (int i = 0; i < t->m->count; i++) {
        if (i < t->m->rank) before += view->recv_counts[i];
        total += view->recv_counts[i];
    }
    const uintptr_t send = (uintptr_t)view->send, recv = (uintptr_t)view->recv;
    const size_t length = view->recv_counts[t->m->rank] * t->unit;
    if (!length || recv == send + before * t->unit || recv + length <= send || recv >= send + total * t->unit) return COLL_OK;
    view->recv = (unsigned char *)coll__hold(t->m, length);
    return view->recv ? COLL_OK : coll__no_memory(t, length);
}

static void coll__end_reduce_scatterv(const coll__turn *t)
{
    const size_t length = t->call->recv_counts[t->m->rank] * t->unit;
    coll__move_bytes(t, t->call->recv, coll__view_of(t, t->m->rank)->recv, length);
}

/* Do all ranks have the same counts?  Each compares with all: it is about to write into the memory of all. */
static coll_status coll__check_counts(const coll__turn *t)
{
    const size_t *const ours = t->call->recv_counts;
    const int count = t->m->count, me = coll__hub_rank(t, t->m->rank);

    for (int i = 0; i < count; i++) {
        const size_t *const theirs = coll__view_of(t, i)->recv_counts;
        if (theirs == ours || !memcmp(theirs, ours, (size_t)count * sizeof *ours)) continue;
        int k = 0;
        while (theirs[k] == ours[k]) k++;
        const int other = coll__hub_rank(t, i);
        return coll__blame(t->failure, COLL_ERR_MISMATCH, other,
                           "the block of rank %d has %zu x %s on rank %d, but %zu on rank %d", coll__hub_rank(t, k), theirs[k],
                           coll_type_name(t->call->type), other, ours[k], me);
    }
    return COLL_OK;
}

/* Where a share that begins `at` elements into a block of `count` really begins: not within a group. */
static inline size_t coll__group_at(const coll__turn *t, size_t at, size_t count)
{
    return coll__least(coll__round_up(at, (size_t)1 << t->task->codec->group_bits), count);
}

/* The share is one of the whole vector, because blocks may be short. */
static coll_status coll__share_reduce_scatterv(const coll__turn *t)
{
    const size_t *const counts = t->call->recv_counts;
    const coll_status status = coll__check_counts(t);
    size_t total = 0, at, count, first = 0;

    if (status != COLL_OK) return status;
    for (int i = 0; i < t->m->count; i++) total += counts[i];
    coll__share_of(t, total, &at, &count);
    for (int i = 0; i < t->m->count; first += counts[i++]) {
        const size_t from = coll__group_at(t, coll__most(at, first) - first, counts[i]);
        const size_t to = coll__group_at(t, coll__most(at + count, first) - first, counts[i]);
        if (from >= to) continue;
        t->m->thread->results[0] = coll__output_of(t, i, from);
        coll__combine_inputs(t, first + from, 1, to - from);
    }
    return COLL_OK;
}

#endif

/* ---- >>scans: strictly from left to right, each result rounded by itself ---- */

/* Elements at..at+count, at most a block, for the results of ranks first..last.  The sum so far is in one accumulator and
 * grows into the other: without rank v's part it is the exclusive result of rank v, which in place overwrites that part.  An
 * inclusive sum that needs no finish is a result as it is, and grows from one result to the next. */
static void coll__scan_piece(const coll__turn *t, size_t at, size_t count, int first, int last)
{
    const coll__codec *codec = t->task->codec;
    unsigned char *const scratch = (unsigned char *)t->m->thread->scratch;
    unsigned char *const sums = scratch + coll__combine_scratch(codec, 2);
    const bool is_exclusive = t->call->kind == COLL_EXSCAN;
    const bool are_sums = codec->direct && !codec->finish && !codec->fn && !is_exclusive && !t->streams;
    void *sum = NULL;

    for (int v = 0; v <= last; v++) {
        void *to = t->eager ? (unsigned char *)t->call->recv + at * t->unit : coll__output_of(t, v, at);
        const bool is_result = are_sums && v >= first;
        void *const next = is_result ? to : sums + (v & 1 ? coll__scan_room(codec) : 0);
        const coll__source part = { coll__input_of(t, v) + at * t->unit, COLL__AS_USER, v };
        const coll__source both[2] = { { sum, COLL__AS_SUM, v }, part };
        coll__sum step = { .sources = sum ? both : &part, .n = sum ? 2 : 1, .results = &next, .m = 1,
                           .format = is_result ? COLL__AS_USER : COLL__AS_SUM, .count = count, .index = at, .scratch = scratch };
        if (!is_exclusive || v < last) coll__combine(codec, &step);
        const coll__source result = { is_exclusive ? sum : next, COLL__AS_SUM, v };
        if (v >= first && result.at && !is_result) {
            step = (coll__sum){ .sources = &result, .n = 1, .results = &to, .m = 1, .format = COLL__AS_USER, .count = count,
                                .index = at, .scratch = scratch, .streams = t->streams };
            coll__combine(codec, &step);
        }
        sum = next;
    }
}

static void coll__scan(const coll__turn *t, size_t at, size_t count, int first, int last)
{
    const size_t step = coll__block_count(t->task->codec);

    for (size_t done = 0; done < count; done += step)
        coll__scan_piece(t, at + done, coll__least(step, count - done), first, last);
}

static void coll__read_scan(const coll__turn *t) { coll__scan(t, 0, t->call->count, t->m->rank, t->m->rank); }

static coll_status coll__share_scan(const coll__turn *t)
{
    size_t at, count;

    coll__share_of(t, t->call->count, &at, &count);
    coll__scan(t, at, count, 0, t->m->count - 1);
    return COLL_OK;
}

static void coll__read_nothing(const coll__turn *t) { (void)t; }

/* ---- >>table ---- */

/* Kinds whose work is directly everybody's in everybody's memory, and kinds where only the root's memory matters. */
#define COLL__AMONG_ALL  .from = COLL__EVERYBODY, .until = COLL__EVERYBODY
#define COLL__WITH_ROOT  .from = COLL__THE_ROOT, .until = COLL__ON_ROOT

static const coll__form coll__forms[] = {
#if COLL__HAS_BARRIER
    [COLL_BARRIER] = { .eager = COLL__EAGER_EMPTY, .eager_from = COLL__EVERYBODY, .read = coll__read_nothing },
#endif
#if COLL__HAS_BROADCAST
    [COLL_BROADCAST] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__THE_ROOT, COLL__AMONG_ALL,
                         .read = coll__read_broadcast, .share = coll__share_broadcast },
#endif
#if COLL__HAS_REDUCE
    [COLL_REDUCE] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__ON_ROOT, COLL__AMONG_ALL,
                      .read = coll__read_reduce, .share = coll__share_reduce },
#endif
#if COLL__HAS_ALLREDUCE
    [COLL_ALLREDUCE] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__EVERYBODY, COLL__AMONG_ALL,
                         .read = coll__read_reduce, .share = coll__share_reduce },
#endif
#if COLL__HAS_REDUCE_SCATTER
    [COLL_REDUCE_SCATTER] = { .eager = COLL__EAGER_EACH, .eager_from = COLL__EVERYBODY, COLL__AMONG_ALL,
                              .read = coll__read_reduce_scatter, .share = coll__share_reduce_scatter },
#if COLL__HAS_COUNTS
    [COLL_REDUCE_SCATTERV] = { COLL__AMONG_ALL, .share = coll__share_reduce_scatterv,
                               .begin = coll__begin_reduce_scatterv, .end = coll__end_reduce_scatterv },
#endif
#endif
#if COLL__HAS_SCAN
    [COLL_SCAN] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__LOWER, COLL__AMONG_ALL,
                    .read = coll__read_scan, .share = coll__share_scan },
    [COLL_EXSCAN] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__LOWER, COLL__AMONG_ALL,
                      .read = coll__read_scan, .share = coll__share_scan },
#endif
#if COLL__HAS_GATHER
    [COLL_GATHER] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__ON_ROOT, COLL__WITH_ROOT,
                      .read = coll__read_gather, .share = coll__share_gather },
    [COLL_GATHERV] = { COLL__WITH_ROOT, .share = coll__share_gather },
#endif
#if COLL__HAS_SCATTER
    [COLL_SCATTER] = { .eager = COLL__EAGER_EACH, .eager_from = COLL__THE_ROOT, COLL__WITH_ROOT,
                       .read = coll__read_scatter, .share = coll__share_scatter },
    [COLL_SCATTERV] = { COLL__WITH_ROOT, .share = coll__share_scatter },
#endif
#if COLL__HAS_ALLGATHER
    [COLL_ALLGATHER] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__EVERYBODY, COLL__AMONG_ALL,
                         .read = coll__fetch_all, .share = coll__share_fetch },
    [COLL_ALLGATHERV] = { COLL__AMONG_ALL, .share = coll__share_fetch },
#endif
#if COLL__HAS_ALLTOALL
    [COLL_ALLTOALL] = { .eager = COLL__EAGER_EACH, .eager_from = COLL__EVERYBODY, COLL__AMONG_ALL,
                        .read = coll__fetch_all, .share = coll__share_fetch, .begin = coll__begin_alltoall },
    [COLL_ALLTOALLV] = { COLL__AMONG_ALL, .share = coll__share_fetch, .begin = coll__begin_alltoall },
    [COLL_ALLTOALLW] = { COLL__AMONG_ALL, .share = coll__share_fetch, .begin = coll__begin_alltoall },
#endif
};

#undef COLL__AMONG_ALL
#undef COLL__WITH_ROOT

/* NULL: not done here. */
static inline const coll__form *coll__form_of(coll_kind kind)
{
    const coll__form *form = (size_t)kind < sizeof coll__forms / sizeof *coll__forms ? &coll__forms[kind] : NULL;
    return form && (form->read || form->share) ? form : NULL;
}

#endif /* COLL_THREADS_KINDS_H */
