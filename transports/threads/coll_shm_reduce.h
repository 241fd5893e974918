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

static inline unsigned char *coll__output_of(const coll__shm_op *t, int rank, size_t at)
{
    return (rank == t->m->rank ? t->m->staging.recv : coll__view_of(t, rank)->recv.at) + at * t->unit;
}

/* Elements that are combined at once: all, or as many as the memory for fetched inputs holds. */
static inline size_t coll__window(const coll__shm_op *t)
{
    if (__builtin_expect(!coll__is_apart(t->m), 1)) return SIZE_MAX;
    const size_t each = t->m->thread->fetched_length / (size_t)coll__input_count(t);
    const size_t most = (each - COLL__LINE) / coll__input_unit(t);
    return most > COLL__SHARE_UNIT ? most / COLL__SHARE_UNIT * COLL__SHARE_UNIT : most;
}

/* The sources: of each rank, or of nodes, in the scratch (coll__need_scratch). */
static inline coll__source *coll__sources_of(const coll__shm_op *t)
{
    const coll__codec *const codec = t->task->codec;
    if (!COLL__LEAVES_OF(codec)) return t->m->thread->sources;
    return (coll__source *)(void *)coll__behind(t->m->thread->scratch, coll__combine_scratch(codec, INT_MAX));
}

/* Sets the sources of elements from..from+count, at most a window, of all inputs: in place, or fetched. */
static inline coll_status coll__inputs_at(const coll__shm_op *t, size_t from, size_t count)
{
    const coll__leaves *const tree = COLL__LEAVES_OF(t->task->codec);
    const size_t length = count * coll__input_unit(t);
    const int n = coll__input_count(t);
    coll__source *const sources = coll__sources_of(t);
    coll_status status = COLL_OK;

    for (int i = 0, rank; i < n && status == COLL_OK; i++) {
        const unsigned char *const there = coll__input_at(t, i, from, &rank);
        unsigned char *const room = (unsigned char *)t->m->thread->fetched + coll__round_up(length, COLL__LINE) * (size_t)i;
        const void *const at = coll__shm_access(t->m, rank, there, length);
        if (!at) status = coll__shm_access_read(t->m, rank, room, there, length);
        if (tree) sources[i] = (coll__source){ NULL, tree->are_sums ? COLL__AS_SUM : COLL__AS_USER, rank };
        sources[i].at = at ? at : room;
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
    unsigned char *const made = t->m->staging.made;
    return made ? made + at * t->unit : coll__output_of(t, t->m->rank, at);
}

/* Sets the destinations of element `at` of a result of ranks first..first+n; returns their number.  Between processes: the own
 * result, and where others read it. */
static inline int coll__outputs_at(const coll__shm_op *t, int first, int n, size_t at)
{
    const int me = t->m->rank;
    const bool has_made = t->m->staging.made != NULL;
    void **const results = t->m->thread->results;
    int m = 0;

    if (has_made) results[m++] = coll__made_at(t, at);
    if (coll__is_apart(t->m)) {
        if (me >= first && me < first + n && !(has_made && coll__is_overwritten(t))) results[m++] = coll__output_of(t, me, at);
    } else for (int i = first; i < first + n; i++) results[m++] = coll__output_of(t, i, at);
    return m;
}

/* Combines elements from..from+count of all inputs into the results of ranks first..first+n, from element `at` on. */
static coll_status coll__combine_for(const coll__shm_op *t, int first, int n, size_t at, size_t from, size_t count)
{
    const coll__thread *const thread = t->m->thread;
    const coll__leaves *const tree = COLL__LEAVES_OF(t->task->codec);
    const size_t window = coll__window(t);
    coll_status status = COLL_OK;

    for (size_t done = 0, length; done < count && status == COLL_OK; done += length) {
        length = coll__least(window, count - done);
        status = coll__inputs_at(t, from + done, length);
        if (status != COLL_OK) break;
        const int m = coll__outputs_at(t, first, n, at + done);
        coll__combine(t->task->codec, &(coll__sum){ .sources = coll__sources_of(t), .n = tree ? tree->nodes : t->m->count,
                                                    .results = thread->results, .m = m, .format = COLL__AS_USER, .count = length,
                                                    .index = from + done, .scratch = thread->scratch, .streams = t->streams
                                                    COLL__NUMBERS(tree ? tree->node_number : NULL) });
    }
    return status;
}

/* Returns whether the blocks have different lengths. */
static inline bool coll__is_uneven(const coll__shm_op *t) { return COLL__HAS_COUNTS && t->call->kind == COLL_REDUCE_SCATTERV; }

/* Elements in the block of a rank. */
static inline size_t coll__block_of(const coll__shm_op *t, int rank)
{
    return coll__is_uneven(t) ? t->call->recv_counts[rank] : t->call->count;
}

/* Elements before that. */
static size_t coll__elements_before(const coll__shm_op *t, int rank)
{
    size_t before = coll__is_uneven(t) ? 0 : (size_t)rank * t->call->count;

    for (int i = 0; coll__is_uneven(t) && i < rank; i++) before += t->call->recv_counts[i];
    return before;
}

/* Eager: the sources of the elements from `from` on, in the slots of ranks 0..last. */
static inline const coll__source *coll__read_inputs(const coll__shm_op *t, int last, size_t from)
{
    coll__source *const sources = t->m->thread->sources;
    const unsigned char *at = t->eager.first + from * t->unit;

    for (int i = 0; i <= last; i++, at += t->eager.step) sources[i].at = at;
    return sources;
}

/* The result, or this rank's block of it. */
static inline __attribute__((always_inline)) void coll__read_sum(const coll__shm_op *t)
{
    const size_t from = t->form->eager == COLL__EAGER_ONE ? 0 : coll__elements_before(t, t->m->rank);
    const coll__source *const sources = coll__read_inputs(t, t->m->count - 1, from);
    void *const result = t->call->recv;

    coll__combine(t->task->codec, &(coll__sum){ .sources = sources, .n = t->m->count, .results = &result,
                                                .m = 1, .format = COLL__AS_USER, .count = coll__block_of(t, t->m->rank),
                                                .index = from, .scratch = t->m->thread->scratch });
}

/* Returns whether each rank may compute its own block of a reduce_scatter: not if that overwrites an input that others still
 * read.  Rank 0 may, because its block is the first.  Same on every rank. */
static bool coll__may_make_own(const coll__shm_op *t)
{
    for (int i = 1; i < t->m->count; i++)
        if (coll__view_of(t, i)->send.at == coll__view_of(t, i)->recv.at) return false;
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

    coll__share_for(t, t->m->rank, t->call->count, &at, &count);
    if (count == 0) return COLL_OK;
    if (t->call->kind == COLL_REDUCE) return coll__combine_for(t, t->call->root, 1, at, at, count);
    const size_t piece = looks ? coll__most(COLL__LOOK_BYTES / t->unit, 1) : count;
    for (size_t done = 0; done < count && status == COLL_OK; done += piece)
        status = coll__combine_and_look(t, at + done, coll__least(piece, count - done));
    return status;
}

COLL__FOR_SPEED

/* COLL_DETECT_OVERFLOW of an allreduce: every rank has checked its share.  No rank begins a later share before this rank
 * publishes that operation.  So the slots have values of this one or older. */
static void coll__end_allreduce(const coll__shm_op *t)
{
    bool overflows = false;

    for (int i = 0; i < t->m->count; i++) overflows |= t->m->group_slots[i].overflowed == t->number;
    if (t->call->flags & COLL_DETECT_OVERFLOW) t->task->is_finite = overflows ? -1 : 1;
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
    coll__share_for(t, t->m->rank, t->call->count, &at, &count);
    const unsigned char *const from = coll__input_of(t, root) + at * t->unit;
    for (int i = 0; i < t->m->count && count; i++)
        if (i != root) coll__move_bytes(t, coll__output_of(t, i, at), from, count * t->unit);
    return COLL_OK;
}

/* ---- >>reduce_scatter: blocks of equal or different lengths ---- */

/* If a result would overwrite what others still read, it is computed in other memory and moved at the end.  In its own block it
 * is safe, because only the rank that combines an element reads it; but it overwrites what another method would need.  Within a
 * process equal blocks need no other memory (coll__share_reduce_scatter). */
static coll_status coll__begin_reduce_scatter(const coll__shm_op *t, coll__view *view)
{
    const uintptr_t send = (uintptr_t)view->send.at, recv = (uintptr_t)view->recv.at;
    const size_t length = coll__block_of(t, t->m->rank) * t->unit;

    if (!coll__is_apart(t->m) && !coll__is_uneven(t)) return COLL_OK;
    if (!length || recv + length <= send || recv >= send + coll__elements_before(t, t->m->count) * t->unit) return COLL_OK;
    if (recv == send + coll__elements_before(t, t->m->rank) * t->unit) {
        t->m->staging.is_careful = true;
        return COLL_OK;
    }
    const coll_status status = coll__hold(t, length);
    view->recv.at = (unsigned char *)t->m->held;
    return status;
}

static void coll__end_reduce_scatter(const coll__shm_op *t)
{
    const int me = t->m->rank;
    coll__move_bytes(t, t->call->recv, coll__output_of(t, me, 0), coll__block_of(t, me) * t->unit);
}

/* Within a process, where a rank may write into the memory of all: checks that all have the same counts. */
static coll_status coll__check_counts(const coll__shm_op *t)
{
    const size_t *const ours = t->call->recv_counts;
    const int count = t->m->count, me = t->m->ranks[t->m->rank];

    for (int i = 0; i < count && coll__is_uneven(t) && !coll__is_apart(t->m); i++) {
        const size_t *const theirs = coll__view_of(t, i)->recv.counts;
        if (theirs == ours || !memcmp(theirs, ours, (size_t)count * sizeof *ours)) continue;
        int k = 0;
        while (theirs[k] == ours[k]) k++;
        const int other = t->m->ranks[i];
        return coll__set_failure(t->failure, COLL_ERR_MISMATCH, other,
                                 "the block of rank %d has %zu x %s on rank %d, but %zu on rank %d", t->m->ranks[k], theirs[k],
                                 coll_type_name(t->call->type), other, ours[k], me);
    }
    return COLL_OK;
}

/* The start of a share, `at` elements into a block of `count`, rounded up to a whole group. */
static inline size_t coll__group_at(const coll__shm_op *t, size_t at, size_t count)
{
    return coll__least(coll__round_up(at, (size_t)1 << t->task->codec->group_bits), count);
}

/* Each rank computes its own block; or, within a process, if that is not allowed, a share of all blocks.  Block 0 is the first: a
 * result in place may overwrite block 0 of its input.  The same rank reads and overwrites an element, because its share has the
 * same place in every block.  Of uneven blocks, which may be short, the share is one of the whole vector. */
static coll_status coll__share_reduce_scatter(const coll__shm_op *t)
{
    const int me = t->m->rank;
    const bool is_uneven = coll__is_uneven(t);
    coll_status status = coll__check_counts(t);
    size_t at, count, first = 0;

    if (coll__is_apart(t->m) || (!is_uneven && coll__may_make_own(t)))
        return coll__combine_for(t, me, 1, 0, coll__elements_before(t, me), coll__block_of(t, me));
    coll__share_for(t, t->m->rank, is_uneven ? coll__elements_before(t, t->m->count) : t->call->count, &at, &count);
    for (int i = 0; i < t->m->count && status == COLL_OK; first += coll__block_of(t, i++)) {
        const size_t skip = is_uneven ? first : 0, block = coll__block_of(t, i);
        const size_t from = coll__group_at(t, coll__most(at, skip) - skip, block);
        const size_t to = coll__group_at(t, coll__most(at + count, skip) - skip, block);
        if (from < to) status = coll__combine_for(t, i, 1, from, first + from, to - from);
    }
    return status;
}

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
    unsigned char *const made = t->m->staging.made;
    if (made && (v != t->m->rank || coll__is_overwritten(t))) return made + coll__scan_skip(t, v, share) + done * t->unit;
    return coll__output_of(t, v, at + done);
}

/* An exclusive scan leaves the result of rank 0 unchanged. */
static coll_status coll__share_scan(const coll__shm_op *t)
{
    const int count = t->m->count;
    const size_t window = coll__window(t);
    coll_status status = COLL_OK;
    size_t at, share;

    coll__share_for(t, t->m->rank, t->call->count, &at, &share);
    for (size_t done = 0, length; done < share && status == COLL_OK; done += length) {
        length = coll__least(window, share - done);
        if ((status = coll__inputs_at(t, at + done, length)) != COLL_OK) break;
        for (int v = 0; v < count; v++) t->m->thread->results[v] = coll__scan_output(t, v, at, share, done);
        coll__scan_window(t, at + done, length, 0, count - 1);
    }
    return status;
}

/* ---- >>several processes: what others have computed ---- */

/* Where a rank computes a share of this rank's result: elements at..at+count. */
static const unsigned char *coll__made_by(const coll__shm_op *t, int rank, size_t *at, size_t *count)
{
    coll__share_for(t, rank, t->call->count, at, count);
    return coll__view_of(t, rank)->made
           + (t->form->staged == COLL__STAGED_ALL ? coll__scan_skip(t, t->m->rank, *count) : *at * t->unit);
}

/* Copies the shares of this rank's result from all ranks.  In place, its own share is elsewhere. */
static coll_status coll__pull(const coll__shm_op *t)
{
    const int me = t->m->rank, size = t->m->count;
    coll_status status = COLL_OK;

    for (int i = 0; i < size && status == COLL_OK && coll__has_result(t); i++) {
        const int from = coll__wrap(me + i, size);
        size_t at, count;
        const unsigned char *const made = coll__made_by(t, from, &at, &count);
        if (from != me || coll__is_overwritten(t))
            status = coll__pull_bytes(t, from, coll__output_of(t, me, at), made, count * t->unit);
    }
    return status;
}

/* The elements of all inputs that this rank combines. */
static void coll__inputs_of(const coll__shm_op *t, size_t *at, size_t *count)
{
    coll__share_for(t, t->m->rank, t->call->count, at, count);
    if (coll__shape_in(t)->send.over == COLL__OVER_ONE) return;
    *at = coll__elements_before(t, t->m->rank);
    *count = coll__block_of(t, t->m->rank);
}

/* Checks that all inputs can be read, and the shares that others will compute. */
static coll_status coll__probe_parts(const coll__shm_op *t)
{
    const bool pulls = coll__pulls(t->form) && coll__has_result(t);
    const int n = coll__input_count(t);
    coll_status status = coll__check_counts(t);
    size_t at, count;

    coll__inputs_of(t, &at, &count);
    for (int i = 0, rank; i < n && status == COLL_OK; i++) {
        const unsigned char *const there = coll__input_at(t, i, at, &rank);
        status = coll__shm_access_try(t->m, rank, there, count * coll__input_unit(t));
    }
    for (int i = 0; pulls && i < t->m->count && status == COLL_OK; i++) {
        if (i == t->m->rank) continue;
        const unsigned char *const made = coll__made_by(t, i, &at, &count);
        status = coll__shm_access_try(t->m, i, made, count * t->unit);
    }
    return status;
}

COLL__FOR_SPEED

#endif /* COLL_SHM_REDUCE_H */
