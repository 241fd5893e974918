/* coll_shm_eagerness.h - selects the eager or the direct protocol for inputs that are neither short nor long.
 *
 * Eager: a rank copies its input to where peers read it, and continues.  Direct: it publishes its buffers, and waits until its
 * peers are done with them.  Which one is faster depends on what the program does between two calls.  If it writes an input and
 * reads a result each time, eager takes about half the time of direct; if it touches neither, up to 3 times as long.  A call does
 * not show this.  So it is measured, for each kind and length class: the first member times runs of calls, from the start of the
 * first to the start of the one after the last.  This includes the costs of a protocol between two calls.
 *
 * All ranks must use the same protocol in an operation.  So a new one holds from an operation `overlap` after the one that the
 * first member is about to publish: a rank in it has seen what was written before that (coll__shm_op_before()).  The word also
 * has the previous protocol, for ranks that are not there yet; so it does not change again until all are.
 *
 * If ranks share processors nothing is measured: a saved wait outweighs all else. */
#ifndef COLL_SHM_EAGERNESS_H
#define COLL_SHM_EAGERNESS_H

enum {
    COLL__EAGERNESS_LEAST_BITS = 10,              /* the first class begins above 2^this bytes                */
    COLL__EAGERNESS_RUN = COLL__SHM_OPS_OVERLAP,  /* calls of a run: at its end all ranks use its protocol    */
    COLL__EAGERNESS_WARM = 2,                     /* calls before it: the caches are as the other protocol has left them */
    COLL__EAGERNESS_RUNS = 3,                     /* of each protocol; the fastest counts                     */
    COLL__EAGERNESS_AGAIN = 8192                  /* calls from one selection to the next                     */
};

static inline bool coll__eagerness_in(uint64_t word, uint64_t op_number)
{
    return (op_number >= word >> 2 ? word : word >> 1) & 1;
}

static coll__eagerness *coll__eagerness_of(const coll__member *m, coll_kind kind, size_t length)
{
    const int at = 63 - __builtin_clzll(length - 1) - COLL__EAGERNESS_LEAST_BITS, last = COLL__EAGERNESS_CLASSES - 1;
    return &m->group->eagerness[kind][at < 0 ? 0 : at < last ? at : last];
}

/* A run is complete: records its time, and selects the next protocol. */
static void coll__eagerness_next(const coll__member *m, coll__eagerness *e, uint64_t op_number)
{
    const bool way = e->word & 1;
    const float each = (float)(coll__now() - e->began) / (float)e->bytes;
    bool next = !way;

    if (e->best[way] == 0 || each < e->best[way]) e->best[way] = each;
    e->calls = 0;
    e->rest = COLL__EAGERNESS_WARM;
    if (++e->runs == 2 * COLL__EAGERNESS_RUNS) {
        next = e->best[1] < e->best[0] * 0.95f;
        e->runs = 0;
        e->rest = COLL__EAGERNESS_AGAIN;
        e->best[0] = e->best[1] = 0;
    }
    if (next == way) return;
    COLL__ASSERT(op_number >= (e->word >> 2) + m->overlap, "operation %llu is not behind all that go as before",
                 (unsigned long long)op_number);
    __atomic_store_n(&e->word, (op_number + m->overlap) << 2 | (uint64_t)way << 1 | next, __ATOMIC_RELAXED);
}

/* The first member begins a call of this kind and class. */
static void coll__eagerness_note(const coll__member *m, coll__eagerness *e, uint64_t op_number, size_t length)
{
    if (op_number < e->word >> 2) return;
    if (e->rest > 0) {
        e->rest--;
    } else if (e->calls == COLL__EAGERNESS_RUN) {
        coll__eagerness_next(m, e, op_number);
    } else {
        if (e->calls++ == 0) {
            e->began = coll__now();
            e->bytes = 0;
        }
        e->bytes += length;
    }
}

/* Returns whether an input cannot be eager: no buffer is long enough, or the sums of its elements need extra memory. */
static bool coll__is_too_long(const coll__member *m, const coll_call *call, size_t unit, size_t length)
{
    return length > coll__eager_most(m, coll__form_of(call->kind)) || (unit > COLL__BLOCK && coll__kind_reduces(call->kind));
}

/* Returns whether the next operation is direct, if its input is not always eager.  Its slot must be free: only then is the result
 * the same on all ranks. */
static __attribute__((noinline)) bool coll__goes_directly(const coll__member *m, const coll_task *task, size_t length)
{
    const uint64_t op_number = m->op_number + 1;

    if (coll__is_too_long(m, task->call, task->codec->type_size, length)) return true;
    if (length <= m->learned_from) return false;
    coll__eagerness *const e = coll__eagerness_of(m, task->call->kind, length);
    if (m->rank == 0 && task->ahead) e->calls = 0;                  /* such a call is offered repeatedly      */
    else if (m->rank == 0) coll__eagerness_note(m, e, op_number, length);
    return coll__eagerness_in(__atomic_load_n(&e->word, __ATOMIC_RELAXED), op_number);
}

#endif /* COLL_SHM_EAGERNESS_H */
