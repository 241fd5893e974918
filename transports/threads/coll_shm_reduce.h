/* coll_shm_reduce.h - what a rank does in an operation of kinds that combine elements: it combines a share of them for all
 * ranks.
 *
 * Within a process it stores its share of the result into the memory of all.  Between processes it stores into its own memory
 * only.  Once all shares are done, each rank copies those of the others:
 *
 *     share    element k of the result = sum of element k of all inputs, for each k of this rank's share
 *     done     every rank has computed its share
 *     pull     copies the shares of the others, from where they have computed them (coll__view.made)
 *     pulled   every rank has what it needs, and the memory may be reused
 *
 * One rank computes an element of a result, and the others copy it: so it has the same bits everywhere. */
#ifndef COLL_SHM_REDUCE_H
#define COLL_SHM_REDUCE_H

/* A rank's share of `count` elements: in whole cache lines, long ones in whole pages, and never a part of an element. */
static void coll__share_for(const coll__shm_op *t, int rank, size_t count, size_t *at, size_t *share)
{
    const size_t size = (size_t)t->m->count, even = (count + size - 1) / size;
    const bool is_long = t->unit < COLL__SHARE_UNIT && even * t->unit >= 16 * COLL__PAGE;
    const size_t unit = is_long ? COLL__PAGE : t->unit < COLL__SHARE_UNIT ? COLL__SHARE_UNIT : 1;
    const size_t each = coll__round_up(even, unit);

    *at = coll__least(each * (size_t)rank, count);
    *share = coll__least(each, count - *at);
}

/* This rank's share. */
static void coll__share_of(const coll__shm_op *t, size_t count, size_t *at, size_t *share)
{
    coll__share_for(t, t->m->rank, count, at, share);
}

static inline unsigned char *coll__output_of(const coll__shm_op *t, int rank, size_t at)
{
    unsigned char *const output = rank == t->m->rank && t->recv ? t->recv : coll__view_of(t, rank)->recv;
    return output + at * t->unit;
}

/* Elements that are combined at once: all, or as many as the memory for fetched inputs holds. */
static inline size_t coll__window(const coll__shm_op *t)
{
    if (__builtin_expect(!coll__is_apart(t->m), 1)) return SIZE_MAX;
    const size_t most = (t->m->thread->fetched_length / (size_t)t->m->count - COLL__LINE) / t->unit;
    return most > COLL__SHARE_UNIT ? most / COLL__SHARE_UNIT * COLL__SHARE_UNIT : most;
}

/* Memory for fetched inputs, if the user's elements are longer than any before. */
static coll_status coll__need_window(const coll__shm_op *t)
{
    coll__thread *thread = t->m->thread;

    if (!coll__is_apart(t->m)) return COLL_OK;
    return coll__lengthen(t, &thread->fetched, &thread->fetched_length, (size_t)t->m->count * (t->unit + COLL__LINE));
}

/* Memory for a window of an input that cannot be read in place. */
static inline unsigned char *coll__slot_of_window(const coll__shm_op *t, int slot, size_t count)
{
    return (unsigned char *)t->m->thread->fetched + coll__round_up(count * t->unit, COLL__LINE) * (size_t)slot;
}

/* Sets the sources of elements from..from+count, at most a window, of ranks 0..last: in place, or fetched. */
static inline coll_status coll__inputs_at(const coll__shm_op *t, int last, size_t from, size_t count)
{
    coll__thread *thread = t->m->thread;
    coll_status status = COLL_OK;

    for (int i = 0; i <= last && status == COLL_OK; i++) {
        const unsigned char *const there = coll__input_of(t, i) + from * t->unit;
        const void *at = coll__shm_access(t->m, i, there, count * t->unit);
        if (!at) {
            unsigned char *const room = coll__slot_of_window(t, i, count);
            status = coll__shm_access_read(t->m, i, room, there, count * t->unit);
            at = room;
        }
        thread->sources[i].at = at;
    }
    return status;
}

/* Whether this rank has a result in this call; whether that overwrites its input. */
static inline bool coll__has_result(const coll__shm_op *t)
{
    return coll__is_held(&coll__shape_in(t)->recv, t->m->rank, t->call->root);
}

static inline bool coll__is_overwritten(const coll__shm_op *t) { return t->call->send == t->call->recv && coll__has_result(t); }

/* Element `at` of the part of a result that this rank computes. */
static inline unsigned char *coll__made_at(const coll__shm_op *t, size_t at)
{
    return t->made ? t->made + at * t->unit : coll__output_of(t, t->m->rank, at);
}

/* Sets the destinations of element `at` of a result of ranks first..first+n; returns their number.  Between processes: the own
 * result, and where others read it. */
static inline int coll__outputs_at(const coll__shm_op *t, int first, int n, size_t at)
{
    const int me = t->m->rank;
    void **const results = t->m->thread->results;
    int m = 0;

    if (t->made) results[m++] = coll__made_at(t, at);
    if (coll__is_apart(t->m)) {
        if (me >= first && me < first + n && !(t->made && coll__is_overwritten(t))) results[m++] = coll__output_of(t, me, at);
    } else for (int i = first; i < first + n; i++) results[m++] = coll__output_of(t, i, at);
    return m;
}

/* Combines elements from..from+count of all inputs into the results of ranks first..first+n, from element `at` on. */
static coll_status coll__combine_for(const coll__shm_op *t, int first, int n, size_t at, size_t from, size_t count)
{
    coll__thread *thread = t->m->thread;
    const size_t window = coll__window(t);
    coll_status status = COLL_OK;

    for (size_t done = 0, length; done < count && status == COLL_OK; done += length) {
        length = coll__least(window, count - done);
        status = coll__inputs_at(t, t->m->count - 1, from + done, length);
        if (status != COLL_OK) break;
        const int m = coll__outputs_at(t, first, n, at + done);
        coll__combine(t->task->codec, &(coll__sum){ .sources = thread->sources, .n = t->m->count, .results = thread->results,
                                                    .m = m, .format = COLL__AS_USER, .count = length, .index = from + done,
                                                    .scratch = thread->scratch, .streams = t->streams });
    }
    return status;
}

/* Eager: the sources of the elements from `from` on, in the slots of ranks 0..last. */
static inline const coll__source *coll__read_inputs(const coll__shm_op *t, int last, size_t from)
{
    coll__source *const sources = t->m->thread->sources;
    const unsigned char *at = t->eager.first + from * t->unit;

    for (int i = 0; i <= last; i++, at += t->eager.step) sources[i].at = at;
    return sources;
}

static inline void coll__read_reduce(const coll__shm_op *t)
{
    void *const result = t->call->recv;

    if (t->form->eager_from != COLL__ALL_PEERS && t->m->rank != t->call->root) return;
    const coll__source *const sources = coll__read_inputs(t, t->m->count - 1, 0);
    coll__combine(t->task->codec, &(coll__sum){ .sources = sources, .n = t->m->count, .results = &result,
                                                .m = 1, .format = COLL__AS_USER, .count = t->call->count,
                                                .scratch = t->m->thread->scratch });
}

/* Returns whether each rank may compute its own block of a reduce_scatter: not if that overwrites an input that others still
 * read.  Rank 0 may, because its block is the first.  Same on every rank. */
static bool coll__may_make_own(const coll__shm_op *t)
{
    for (int i = 1; i < t->m->count; i++)
        if (coll__view_of(t, i)->send == coll__view_of(t, i)->recv) return false;
    return true;
}

/* Combines elements for all ranks; checks the own result for overflow while it is in the cache. */
static coll_status coll__combine_and_look(const coll__shm_op *t, size_t at, size_t count)
{
    const coll_status status = coll__combine_for(t, 0, t->m->count, at, at, count);

    if (t->call->flags & COLL_DETECT_OVERFLOW && coll__overflows(coll__made_at(t, at), count, t->call->type))
        t->m->group_slots[t->m->rank].overflowed = t->number;
    return status;
}

enum { COLL__LOOK_BYTES = 16 << 10 };             /* of results between two such checks                            */

COLL__FOR_SIZE

static coll_status coll__share_reduce(const coll__shm_op *t)
{
    const bool looks = t->call->flags & COLL_DETECT_OVERFLOW;
    coll_status status = COLL_OK;
    size_t at, count;

    coll__share_of(t, t->call->count, &at, &count);
    if (count == 0) return COLL_OK;
    if (t->call->kind == COLL_REDUCE) return coll__combine_for(t, t->call->root, 1, at, at, count);
    const size_t piece = looks ? coll__most(COLL__LOOK_BYTES / t->unit, 1) : count;
    for (size_t done = 0; done < count && status == COLL_OK; done += piece)
        status = coll__combine_and_look(t, at + done, coll__least(piece, count - done));
    return status;
}

/* Between processes: copies the shares of this rank's result from all ranks.  In place, its own share is elsewhere. */
static coll_status coll__pull_shares(const coll__shm_op *t)
{
    const int me = t->m->rank, size = t->m->count;
    coll_status status = COLL_OK;
    size_t at, count;

    if (t->call->kind == COLL_REDUCE && me != t->call->root) return COLL_OK;
    for (int i = 1; i < size && status == COLL_OK; i++) {
        const int from = coll__wrap(me + i, size);
        coll__share_for(t, from, t->call->count, &at, &count);
        const unsigned char *const there = coll__view_of(t, from)->made + at * t->unit;
        status = coll__pull_bytes(t, from, coll__output_of(t, me, at), there, count * t->unit);
    }
    coll__share_of(t, t->call->count, &at, &count);
    const unsigned char *const made = t->made && coll__is_overwritten(t) ? coll__made_at(t, at) : NULL;
    if (made) coll__move_bytes(t, coll__output_of(t, me, at), made, count * t->unit);
    return status;
}

/* Between processes: checks that elements from..from+count of all inputs can be read. */
static coll_status coll__probe_inputs(const coll__shm_op *t, size_t from, size_t count)
{
    coll_status status = COLL_OK;

    for (int i = 0; i < t->m->count && status == COLL_OK; i++)
        status = coll__shm_access_try(t->m, i, coll__input_of(t, i) + from * t->unit, count * t->unit);
    return status;
}

/* Also the shares that others will compute. */
static coll_status coll__probe_shares(const coll__shm_op *t)
{
    const bool pulls = t->call->kind != COLL_REDUCE || t->m->rank == t->call->root;
    size_t at, count;

    coll__share_of(t, t->call->count, &at, &count);
    coll_status status = coll__probe_inputs(t, at, count);
    for (int i = 0; i < t->m->count && pulls && status == COLL_OK; i++) {
        if (i == t->m->rank) continue;
        coll__share_for(t, i, t->call->count, &at, &count);
        status = coll__shm_access_try(t->m, i, coll__view_of(t, i)->made + at * t->unit, count * t->unit);
    }
    return status;
}

COLL__FOR_SPEED

/* COLL_DETECT_OVERFLOW of an allreduce: every rank has checked its share.  No rank begins a later share before this rank
 * publishes that operation.  So the slots have values of this one or older. */
static void coll__end_allreduce(const coll__shm_op *t, coll_task *task)
{
    bool overflows = false;

    if (t->call->kind != COLL_ALLREDUCE || !(t->call->flags & COLL_DETECT_OVERFLOW)) return;
    for (int i = 0; i < t->m->count; i++) overflows |= t->m->group_slots[i].overflowed == t->number;
    task->is_finite = overflows ? -1 : 1;
}

static inline void coll__read_broadcast(const coll__shm_op *t)
{
    if (t->m->rank != t->call->root) coll__read_block(t, t->call->root, 0);
}

COLL__FOR_SIZE

/* Each rank copies a share of the root's input to all.  Between processes each copies all of it. */
static coll_status coll__share_broadcast(const coll__shm_op *t)
{
    const int root = t->call->root, me = t->m->rank;
    size_t at, count;

    if (coll__is_apart(t->m)) {
        if (me == root) return COLL_OK;
        return coll__pull_bytes(t, root, coll__output_of(t, me, 0), coll__input_of(t, root), t->call->count * t->unit);
    }
    coll__share_of(t, t->call->count, &at, &count);
    const unsigned char *const from = coll__input_of(t, root) + at * t->unit;
    for (int i = 0; i < t->m->count && count; i++)
        if (i != root) coll__move_bytes(t, coll__output_of(t, i, at), from, count * t->unit);
    return COLL_OK;
}

COLL__FOR_SPEED

static void coll__read_reduce_scatter(const coll__shm_op *t)
{
    const size_t from = (size_t)t->m->rank * t->call->count;

    const coll__source *const sources = coll__read_inputs(t, t->m->count - 1, from);
    coll__combine(t->task->codec, &(coll__sum){ .sources = sources, .n = t->m->count, .results = &t->call->recv,
                                                .m = 1, .format = COLL__AS_USER, .count = t->call->count, .index = from,
                                                .scratch = t->m->thread->scratch });
}

/* Between processes: each rank computes its own block, whose input begins with element `before`, of `total`.  If that would
 * overwrite what others still read, it is computed in other memory and moved at the end.  In its own block it is safe, but
 * overwrites what another method would need. */
static coll_status coll__begin_own_block(const coll__shm_op *t, coll__view *view, size_t before, size_t count, size_t total)
{
    const uintptr_t send = (uintptr_t)view->send, recv = (uintptr_t)view->recv;
    const size_t length = count * t->unit;

    if (!length || recv + length <= send || recv >= send + total * t->unit) return COLL_OK;
    if (recv == send + before * t->unit) {
        t->m->staging.is_careful = true;
        return COLL_OK;
    }
    view->recv = (unsigned char *)coll__hold(t->m, length);
    return view->recv ? COLL_OK : coll__no_memory(t, length);
}

static void coll__end_own_block(const coll__shm_op *t, size_t count)
{
    coll__move_bytes(t, t->call->recv, coll__output_of(t, t->m->rank, 0), count * t->unit);
}

COLL__FOR_SIZE

static coll_status coll__begin_reduce_scatter(const coll__shm_op *t, coll__view *view)
{
    const size_t count = t->call->count;

    if (!coll__is_apart(t->m)) return COLL_OK;
    return coll__begin_own_block(t, view, (size_t)t->m->rank * count, count, (size_t)t->m->count * count);
}

static void coll__end_reduce_scatter(const coll__shm_op *t)
{
    if (coll__is_apart(t->m)) coll__end_own_block(t, t->call->count);
}

static coll_status coll__probe_reduce_scatter(const coll__shm_op *t)
{
    return coll__probe_inputs(t, (size_t)t->m->rank * t->call->count, t->call->count);
}

/* Each rank computes its own block; or, within a process, if that is not allowed, a share of all blocks.  Block 0 is the first: a
 * result in place may overwrite block 0 of its input.  The same rank reads and overwrites an element, because its share has the
 * same place in every block. */
static coll_status coll__share_reduce_scatter(const coll__shm_op *t)
{
    const int me = t->m->rank;
    coll_status status = COLL_OK;
    size_t at, count;

    if (coll__is_apart(t->m) || coll__may_make_own(t))
        return coll__combine_for(t, me, 1, 0, (size_t)me * t->call->count, t->call->count);
    coll__share_of(t, t->call->count, &at, &count);
    for (int i = 0; i < t->m->count && count && status == COLL_OK; i++)
        status = coll__combine_for(t, i, 1, at, (size_t)i * t->call->count + at, count);
    return status;
}

#if COLL__HAS_COUNTS

/* Elements of a reduce_scatterv before the block of a rank. */
static size_t coll__elements_before(const coll__shm_op *t, int rank)
{
    size_t before = 0;

    for (int i = 0; i < rank; i++) before += t->call->recv_counts[i];
    return before;
}

/* With uneven blocks a result at the start of its input would overwrite what others still read, even within a process.  In its
 * own block it is safe: only the rank that combines an element reads it. */
static coll_status coll__begin_reduce_scatterv(const coll__shm_op *t, coll__view *view)
{
    return coll__begin_own_block(t, view, coll__elements_before(t, t->m->rank), view->recv_counts[t->m->rank],
                                 coll__elements_before(t, t->m->count));
}

static void coll__end_reduce_scatterv(const coll__shm_op *t) { coll__end_own_block(t, t->call->recv_counts[t->m->rank]); }

/* Checks that all ranks have the same counts.  Each compares with all, because it may write into the memory of all. */
static coll_status coll__check_counts(const coll__shm_op *t)
{
    const size_t *const ours = t->call->recv_counts;
    const int count = t->m->count, me = coll__domain_rank(t, t->m->rank);

    for (int i = 0; i < count; i++) {
        const size_t *theirs = coll__view_of(t, i)->recv_counts;
        if (coll__is_apart(t->m) && i != t->m->rank) {
            size_t *const copy = (size_t *)t->m->thread->fetched;
            const coll_status status = coll__shm_access_read(t->m, i, copy, theirs, (size_t)count * sizeof *copy);
            if (status != COLL_OK) return status;
            theirs = copy;
        }
        if (theirs == ours || !memcmp(theirs, ours, (size_t)count * sizeof *ours)) continue;
        int k = 0;
        while (theirs[k] == ours[k]) k++;
        const int other = coll__domain_rank(t, i);
        return coll__set_failure(t->failure, COLL_ERR_MISMATCH, other,
                                 "the block of rank %d has %zu x %s on rank %d, but %zu on rank %d", coll__domain_rank(t, k),
                                     theirs[k],
                                 coll_type_name(t->call->type), other, ours[k], me);
    }
    return COLL_OK;
}

static coll_status coll__probe_reduce_scatterv(const coll__shm_op *t)
{
    const coll_status status = coll__check_counts(t);
    if (status != COLL_OK) return status;
    return coll__probe_inputs(t, coll__elements_before(t, t->m->rank), t->call->recv_counts[t->m->rank]);
}

/* The start of a share, `at` elements into a block of `count`, rounded up to a whole group. */
static inline size_t coll__group_at(const coll__shm_op *t, size_t at, size_t count)
{
    return coll__least(coll__round_up(at, (size_t)1 << t->task->codec->group_bits), count);
}

/* Within a process the share is one of the whole vector, because blocks may be short. */
static coll_status coll__share_reduce_scatterv(const coll__shm_op *t)
{
    const size_t *const counts = t->call->recv_counts;
    const int me = t->m->rank;
    coll_status status = coll__check_counts(t);
    size_t at, count, first = 0;

    if (status != COLL_OK) return status;
    if (coll__is_apart(t->m)) return coll__combine_for(t, me, 1, 0, coll__elements_before(t, me), counts[me]);
    coll__share_of(t, coll__elements_before(t, t->m->count), &at, &count);
    for (int i = 0; i < t->m->count && status == COLL_OK; first += counts[i++]) {
        const size_t from = coll__group_at(t, coll__most(at, first) - first, counts[i]);
        const size_t to = coll__group_at(t, coll__most(at + count, first) - first, counts[i]);
        if (from >= to) continue;
        status = coll__combine_for(t, i, 1, from, first + from, to - from);
    }
    return status;
}

#endif

/* ---- >>scans: strictly from left to right, each result rounded by itself ---- */

COLL__FOR_SPEED

/* Elements at..at+count, at most a block, for the results of ranks first..last; the window of sources and results begins with
 * element `from`.  The sum is in one accumulator and grows into the other.  Without rank v's part it is the exclusive result of
 * rank v, which in place overwrites that part.  An inclusive sum that needs no finish is a result, and grows from one result to
 * the next; if results use streaming stores, a copy of it is stored. */
static void coll__scan_piece(const coll__shm_op *t, size_t from, size_t at, size_t count, int first, int last)
{
    const coll__codec *codec = t->task->codec;
    const coll__thread *const thread = t->m->thread;
    unsigned char *const scratch = (unsigned char *)thread->scratch;
    unsigned char *const sums = scratch + coll__combine_scratch(codec, 2);
    const bool is_exclusive = t->call->kind == COLL_EXSCAN;
    const bool are_sums = codec->direct && !codec->finish && !codec->fn && !is_exclusive;
    const size_t skip = (at - from) * t->unit;
    void *sum = NULL;

    for (int v = 0; v <= last; v++) {
        void *to = v >= first ? (unsigned char *)thread->results[v] + skip : NULL;
        const bool is_result = are_sums && v >= first;
        void *const next = is_result && !t->streams ? to : sums + (v & 1 ? coll__scan_room(codec) : 0);
        const void *const part = coll__behind(thread->sources[v].at, skip);
        const coll__source both[2] = { { sum, COLL__AS_SUM, v }, { part, COLL__AS_USER, v } };
        coll__sum step = { .sources = sum ? both : &both[1], .n = sum ? 2 : 1, .results = &next, .m = 1,
                           .format = is_result ? COLL__AS_USER : COLL__AS_SUM, .count = count, .index = at, .scratch = scratch };
        if (!is_exclusive || v < last) coll__combine(codec, &step);
        const coll__source result = { is_exclusive ? sum : next, COLL__AS_SUM, v };
        if (is_result) coll__move_bytes(t, to, next, count * t->unit);
        else if (v >= first && result.at) {
            step = (coll__sum){ .sources = &result, .n = 1, .results = &to, .m = 1, .format = COLL__AS_USER, .count = count,
                                .index = at, .scratch = scratch, .streams = t->streams };
            coll__combine(codec, &step);
        }
        sum = next;
    }
}

/* A window of elements whose sources and results are set. */
static void coll__scan_window(const coll__shm_op *t, size_t at, size_t count, int first, int last)
{
    const size_t step = coll__block_count(t->task->codec);

    for (size_t done = 0; done < count; done += step)
        coll__scan_piece(t, at, at + done, coll__least(step, count - done), first, last);
}

static void coll__read_scan(const coll__shm_op *t)
{
    const int me = t->m->rank;

    (void)coll__read_inputs(t, me, 0);
    t->m->thread->results[me] = t->call->recv;
    coll__scan_window(t, 0, t->call->count, me, me);
}

COLL__FOR_SIZE

/* Between processes: offset of this rank's share of the result of rank v; one result is `share` elements. */
static inline size_t coll__scan_skip(const coll__shm_op *t, int v, size_t share)
{
    return coll__round_up(share * t->unit, COLL__LINE) * (size_t)v;
}

/* Destination of the share of rank v's result, from its element `done` on. */
static inline void *coll__scan_output(const coll__shm_op *t, int v, size_t at, size_t share, size_t done)
{
    if (t->made && (v != t->m->rank || coll__is_overwritten(t))) return t->made + coll__scan_skip(t, v, share) + done * t->unit;
    return coll__output_of(t, v, at + done);
}

/* An exclusive scan leaves the result of rank 0 unchanged. */
static coll_status coll__share_scan(const coll__shm_op *t)
{
    const int count = t->m->count;
    const size_t window = coll__window(t);
    coll_status status = COLL_OK;
    size_t at, share;

    coll__share_of(t, t->call->count, &at, &share);
    for (size_t done = 0, length; done < share && status == COLL_OK; done += length) {
        length = coll__least(window, share - done);
        if ((status = coll__inputs_at(t, count - 1, at + done, length)) != COLL_OK) break;
        for (int v = 0; v < count; v++) t->m->thread->results[v] = coll__scan_output(t, v, at, share, done);
        coll__scan_window(t, at + done, length, 0, count - 1);
    }
    return status;
}

/* Between processes: checks that the shares of this rank's result can be read. */
static coll_status coll__probe_scan(const coll__shm_op *t)
{
    const int me = t->m->rank;
    coll_status status = COLL_OK;

    for (int i = 0; i < t->m->count && status == COLL_OK; i++) {
        size_t at, count;
        coll__share_for(t, i, t->call->count, &at, &count);
        const unsigned char *const made = coll__view_of(t, i)->made + coll__scan_skip(t, me, count);
        if (i != me) status = coll__shm_access_try(t->m, i, made, count * t->unit);
    }
    return status;
}

/* Between processes: copies this rank's result from all ranks, each of which has computed a share. */
static coll_status coll__pull_scan(const coll__shm_op *t)
{
    const int me = t->m->rank, size = t->m->count;
    coll_status status = COLL_OK;

    if (t->call->kind == COLL_EXSCAN && me == 0) return COLL_OK;
    for (int i = 0; i < size && status == COLL_OK; i++) {
        const int from = coll__wrap(me + i, size);
        size_t at, count;
        coll__share_for(t, from, t->call->count, &at, &count);
        const unsigned char *const made = from == me ? t->made : coll__view_of(t, from)->made;
        if (from == me && !coll__is_overwritten(t)) continue;
        status = coll__pull_bytes(t, from, coll__output_of(t, me, at), made + coll__scan_skip(t, me, count), count * t->unit);
    }
    return status;
}

COLL__FOR_SPEED

#endif /* COLL_SHM_REDUCE_H */
