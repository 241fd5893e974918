/* coll_threads_sums.h - what a rank does in a turn, for kinds of which elements are combined: it takes a share of them, for all
 * ranks. */
#ifndef COLL_THREADS_SUMS_H
#define COLL_THREADS_SUMS_H

/* A rank's share of `count` elements: in whole cache lines, long ones in whole pages, and never a part of an element. */
static void coll__share_for(const coll__turn *t, int rank, size_t count, size_t *at, size_t *share)
{
    const size_t size = (size_t)t->m->count, even = (count + size - 1) / size;
    const bool is_long = t->unit < COLL__SHARE_UNIT && even * t->unit >= 16 * COLL__PAGE;
    const size_t unit = is_long ? COLL__PAGE : t->unit < COLL__SHARE_UNIT ? COLL__SHARE_UNIT : 1;
    const size_t each = coll__round_up(even, unit);

    *at = coll__least(each * (size_t)rank, count);
    *share = coll__least(each, count - *at);
}

/* Ours. */
static void coll__share_of(const coll__turn *t, size_t count, size_t *at, size_t *share)
{
    coll__share_for(t, t->m->rank, count, at, share);
}

static inline unsigned char *coll__output_of(const coll__turn *t, int rank, size_t at)
{
    unsigned char *const output = rank == t->m->rank && t->recv ? t->recv : coll__view_of(t, rank)->recv;
    return output + at * t->unit;
}

/* Slots in the room for what is fetched: the inputs of all ranks, and their results. */
static inline size_t coll__window_slots(const coll__turn *t) { return 2 * (size_t)t->m->count; }

/* Elements that are combined at once: all, or as many as there is room for those that come from other processes. */
static inline size_t coll__window(const coll__turn *t)
{
    if (__builtin_expect(!coll__is_apart(t->m), 1)) return SIZE_MAX;
    const size_t most = (t->m->thread->fetched_length / coll__window_slots(t) - COLL__LINE) / t->unit;
    return most > COLL__SHARE_UNIT ? most / COLL__SHARE_UNIT * COLL__SHARE_UNIT : most;
}

/* Room for what is fetched, if the user's elements are longer than any we have met. */
static coll_status coll__need_window(const coll__turn *t)
{
    coll__thread *thread = t->m->thread;

    if (!coll__is_apart(t->m)) return COLL_OK;
    return coll__lengthen(t, &thread->fetched, &thread->fetched_length, coll__window_slots(t) * (t->unit + COLL__LINE));
}

/* Room for a window of what cannot be reached: slot i for the input of rank i, those that follow for results. */
static inline unsigned char *coll__slot_of_window(const coll__turn *t, int slot, size_t count)
{
    return (unsigned char *)t->m->thread->fetched + coll__round_up(count * t->unit, COLL__LINE) * (size_t)slot;
}

/* The sources of elements from..from+count, at most a window, of ranks 0..last: where they lie, or fetched. */
static inline coll_status coll__inputs_at(const coll__turn *t, int last, size_t from, size_t count)
{
    coll__thread *thread = t->m->thread;
    coll_status status = COLL_OK;

    for (int i = 0; i <= last && status == COLL_OK; i++) {
        const unsigned char *const there = coll__input_of(t, i) + from * t->unit;
        const void *at = coll__reach(t->m, i, there);
        if (!at) {
            unsigned char *const room = coll__slot_of_window(t, i, count);
            status = coll__reach_read(t->m, i, room, there, count * t->unit, t->failure);
            at = room;
        }
        thread->sources[i].at = at;
    }
    return status;
}

/* The places for a result that all ranks first..first+n get at element `at`: gives how many, of which the first is to be sent
 * to those that cannot be reached. */
static inline int coll__outputs_at(const coll__turn *t, int first, int n, size_t at, size_t count)
{
    void **const results = t->m->thread->results;
    int m = 0;

    for (int i = first; i < first + n; i++) {
        void *const to = coll__reach(t->m, i, coll__output_of(t, i, at));
        if (to) results[m++] = to;
    }
    if (m == 0) results[m++] = coll__slot_of_window(t, t->m->count, count);
    return m;
}

/* Send a result to those of the ranks first..first+n that cannot be reached. */
static coll_status coll__outputs_send(const coll__turn *t, int first, int n, size_t at, const void *result, size_t count)
{
    coll_status status = COLL_OK;

    for (int i = first; i < first + n && status == COLL_OK; i++) {
        unsigned char *const to = coll__output_of(t, i, at);
        if (!coll__reach(t->m, i, to)) status = coll__reach_write(t->m, i, to, result, count * t->unit, t->failure);
    }
    return status;
}

/* Combine elements from..from+count of all inputs into the elements from `at` on of the results of ranks first..first+n. */
static coll_status coll__combine_for(const coll__turn *t, int first, int n, size_t at, size_t from, size_t count)
{
    coll__thread *thread = t->m->thread;
    const size_t window = coll__window(t);
    coll_status status = COLL_OK;

    for (size_t done = 0, length; done < count && status == COLL_OK; done += length) {
        length = coll__least(window, count - done);
        status = coll__inputs_at(t, t->m->count - 1, from + done, length);
        if (status != COLL_OK) break;
        const int m = coll__outputs_at(t, first, n, at + done, length);
        coll__combine(t->task->codec, &(coll__sum){ .sources = thread->sources, .n = t->m->count, .results = thread->results,
                                                    .m = m, .format = COLL__AS_USER, .count = length, .index = from + done,
                                                    .scratch = thread->scratch, .streams = t->streams });
        if (coll__is_apart(t->m)) status = coll__outputs_send(t, first, n, at + done, thread->results[0], length);
    }
    return status;
}

/* Eagerly: the sources of the elements from `from` on, in the seats of ranks 0..last. */
static inline const coll__source *coll__read_inputs(const coll__turn *t, int last, size_t from)
{
    coll__source *const sources = t->m->thread->sources;
    const unsigned char *at = t->eager.first + from * t->unit;

    for (int i = 0; i <= last; i++, at += t->eager.step) sources[i].at = at;
    return sources;
}

static inline void coll__read_reduce(const coll__turn *t)
{
    void *const result = t->call->recv;

    if (t->form->eager_from != COLL__EVERYBODY && t->m->rank != t->call->root) return;
    const coll__source *const sources = coll__read_inputs(t, t->m->count - 1, 0);
    coll__combine(t->task->codec, &(coll__sum){ .sources = sources, .n = t->m->count, .results = &result,
                                                .m = 1, .format = COLL__AS_USER, .count = t->call->count,
                                                .scratch = t->m->thread->scratch });
}

/* May each rank make its own result?  Not where that overwrites an input which others still read.  In a reduce_scatter rank 0
 * may, whose own block is the first.  All ask, and get one answer. */
static bool coll__may_make_own(const coll__turn *t)
{
    for (int i = t->call->kind == COLL_REDUCE_SCATTER; i < t->m->count; i++)
        if (coll__view_of(t, i)->send == coll__view_of(t, i)->recv) return false;
    return true;
}

enum { COLL__OWN_MOST = 8 << 10 };               /* bytes that a rank reads of others rather than to write to them */

/* Does each rank make its own sum of all?  Lines of a share go to all ranks and are fetched from there when they use the result,
 * so that short inputs are rather read by all.  Processes exchange those eagerly. */
static inline bool coll__makes_own_sum(const coll__turn *t)
{
    const size_t length = t->call->count * t->unit * (size_t)(t->m->count - 1);
    return t->call->kind == COLL_ALLREDUCE && length <= COLL__OWN_MOST && !coll__is_apart(t->m) && coll__may_make_own(t);
}

/* The results of some elements for ranks first..first+n; our own is looked at while it is in the cache. */
static coll_status coll__combine_and_look(const coll__turn *t, int first, int n, size_t at, size_t count)
{
    const coll_status status = coll__combine_for(t, first, n, at, at, count);

    if (t->call->flags & COLL_DETECT_OVERFLOW && coll__overflows(coll__output_of(t, t->m->rank, at), count, t->call->type))
        t->m->seats[t->m->rank].overflowed = t->number;
    return status;
}

enum { COLL__LOOK_BYTES = 16 << 10 };             /* of results between two looks at them                     */

static coll_status coll__share_reduce(const coll__turn *t)
{
    const bool looks = t->call->flags & COLL_DETECT_OVERFLOW;
    coll_status status = COLL_OK;
    size_t at, count;

    if (coll__makes_own_sum(t)) return coll__combine_and_look(t, t->m->rank, 1, 0, t->call->count);
    coll__share_of(t, t->call->count, &at, &count);
    if (count == 0) return COLL_OK;
    if (t->call->kind == COLL_REDUCE) return coll__combine_for(t, t->call->root, 1, at, at, count);
    const size_t piece = looks ? coll__most(COLL__LOOK_BYTES / t->unit, 1) : count;
    for (size_t done = 0; done < count && status == COLL_OK; done += piece)
        status = coll__combine_and_look(t, 0, t->m->count, at + done, coll__least(piece, count - done));
    return status;
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
    if (t->m->rank != t->call->root) coll__read_block(t, t->call->root, 0);
}

/* Is it for all ranks to write the result of a rank in a broadcast?  All ask, and get one answer. */
static inline bool coll__is_spread_to(const coll__turn *t, int rank)
{
    const int root = t->call->root;

    if (!coll__is_apart(t->m)) return true;
    return coll__is_in_room(t->m, root, coll__input_of(t, root)) && coll__is_in_room(t->m, rank, coll__output_of(t, rank, 0));
}

/* Where not all can write the result of a rank, the root sends a share to it, and it fetches the rest: both are at work. */
static coll_status coll__broadcast_apart(const coll__turn *t)
{
    const coll__member *const m = t->m;
    const int root = t->call->root;
    const unsigned char *const input = coll__input_of(t, root);
    coll_status status = COLL_OK;
    size_t at, count;

    coll__share_for(t, root, t->call->count, &at, &count);
    const size_t begin = at * t->unit, length = count * t->unit, end = begin + length, all = t->call->count * t->unit;
    if (m->rank == root) {
        for (int i = 0; i < m->count && length && status == COLL_OK; i++)
            if (i != root && !coll__is_spread_to(t, i))
                status = coll__reach_write(m, i, coll__output_of(t, i, at), input + begin, length, t->failure);
    } else if (!coll__is_spread_to(t, m->rank)) {
        unsigned char *const output = coll__output_of(t, m->rank, 0);
        if (begin) status = coll__reach_read(m, root, output, input, begin, t->failure);
        if (status == COLL_OK && end < all)
            status = coll__reach_read(m, root, output + end, input + end, all - end, t->failure);
    }
    return status;
}

/* Each rank spreads a share of what the root has. */
static coll_status coll__share_broadcast(const coll__turn *t)
{
    const coll__member *const m = t->m;
    const int root = t->call->root;
    coll_status status = COLL_OK;
    size_t at, count;

    coll__share_of(t, t->call->count, &at, &count);
    const unsigned char *const there = coll__input_of(t, root) + at * t->unit, *from = NULL;
    for (int i = 0; i < m->count && status == COLL_OK; i++) {
        if (i == root || !count || !coll__is_spread_to(t, i)) continue;
        unsigned char *const output = coll__output_of(t, i, at);
        void *const to = coll__reach(m, i, output);
        if (!from) from = (const unsigned char *)coll__reach(m, root, there);
        if (!to || !from) status = coll__reach_failed(m, to ? root : i, ENOMEM, t->failure);
        else coll__move_bytes(t, to, from, count * t->unit);
    }
    return status == COLL_OK && coll__is_apart(m) ? coll__broadcast_apart(t) : status;
}

static void coll__read_reduce_scatter(const coll__turn *t)
{
    const size_t from = (size_t)t->m->rank * t->call->count;

    const coll__source *const sources = coll__read_inputs(t, t->m->count - 1, from);
    coll__combine(t->task->codec, &(coll__sum){ .sources = sources, .n = t->m->count, .results = &t->call->recv,
                                                .m = 1, .format = COLL__AS_USER, .count = t->call->count, .index = from,
                                                .scratch = t->m->thread->scratch });
}

/* Each rank its own block; or, where that may not be, a share of all blocks.
 * Block 0 first: a result in place may overwrite block 0 of its input, and it is the same rank that has read and that
 * overwrites an element, because its share is at the same place in every block. */
static coll_status coll__share_reduce_scatter(const coll__turn *t)
{
    const int me = t->m->rank;
    coll_status status = COLL_OK;
    size_t at, count;

    if (coll__may_make_own(t)) return coll__combine_for(t, me, 1, 0, (size_t)me * t->call->count, t->call->count);
    coll__share_of(t, t->call->count, &at, &count);
    for (int i = 0; i < t->m->count && count && status == COLL_OK; i++)
        status = coll__combine_for(t, i, 1, at, (size_t)i * t->call->count + at, count);
    return status;
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
        const size_t *theirs = coll__view_of(t, i)->recv_counts;
        if (coll__is_apart(t->m) && i != t->m->rank) {
            size_t *const copy = (size_t *)t->m->thread->fetched;
            const coll_status status = coll__reach_read(t->m, i, copy, theirs, (size_t)count * sizeof *copy, t->failure);
            if (status != COLL_OK) return status;
            theirs = copy;
        }
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
    coll_status status = coll__check_counts(t);
    size_t total = 0, at, count, first = 0;

    if (status != COLL_OK) return status;
    for (int i = 0; i < t->m->count; i++) total += counts[i];
    coll__share_of(t, total, &at, &count);
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

/* Elements at..at+count, at most a block, for the results of ranks first..last; the window of sources and results begins with
 * element `from`.  The sum so far is in one accumulator and grows into the other: without rank v's part it is the exclusive
 * result of rank v, which in place overwrites that part.  An inclusive sum that needs no finish is a result as it is, and grows
 * from one result to the next; past the caches goes a copy of it. */
static void coll__scan_piece(const coll__turn *t, size_t from, size_t at, size_t count, int first, int last)
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

/* A window of elements, of which the sources and results are known. */
static void coll__scan_window(const coll__turn *t, size_t at, size_t count, int first, int last)
{
    const size_t step = coll__block_count(t->task->codec);

    for (size_t done = 0; done < count; done += step)
        coll__scan_piece(t, at, at + done, coll__least(step, count - done), first, last);
}

static void coll__read_scan(const coll__turn *t)
{
    const int me = t->m->rank;

    (void)coll__read_inputs(t, me, 0);
    t->m->thread->results[me] = t->call->recv;
    coll__scan_window(t, 0, t->call->count, me, me);
}

/* An exclusive scan leaves the result of rank 0 as it was. */
static coll_status coll__share_scan(const coll__turn *t)
{
    const int count = t->m->count, first = t->call->kind == COLL_EXSCAN;
    const size_t window = coll__window(t);
    void **const results = t->m->thread->results;
    coll_status status = COLL_OK;
    size_t at, share;

    coll__share_of(t, t->call->count, &at, &share);
    for (size_t done = 0, length; done < share && status == COLL_OK; done += length) {
        length = coll__least(window, share - done);
        if ((status = coll__inputs_at(t, count - 1, at + done, length)) != COLL_OK) break;
        for (int v = 0; v < count; v++) {
            results[v] = coll__reach(t->m, v, coll__output_of(t, v, at + done));
            if (!results[v]) results[v] = coll__slot_of_window(t, count + v, length);
        }
        coll__scan_window(t, at + done, length, 0, count - 1);
        for (int v = first; v < count && coll__is_apart(t->m) && status == COLL_OK; v++)
            status = coll__outputs_send(t, v, 1, at + done, results[v], length);
    }
    return status;
}

#endif /* COLL_THREADS_SUMS_H */
