/* coll_threads_eagerness.h - eagerly or directly: which way a call goes whose input is neither short nor long.
 *
 * Eagerly a rank copies its input to where the others read it, and goes on.  Directly it says where its buffers are, and waits
 * until the others are through with them.  Which is quicker depends on what the program does between two calls.  Where an input
 * is written and a result is read each time, as programs do, the eager way takes about half the time of the direct one; where
 * nobody touches them, up to 3 times as long.  Nothing in a call shows it.  So it is learned, for each kind and each class of
 * lengths: the first member times runs of calls, from the beginning of the first to that of the one behind the last, so that
 * what a way costs between two calls is in it, too.
 *
 * All ranks must go the same way in a turn.  So a new way holds from a turn that is `abreast` behind the one that the first
 * member is about to publish: who is there has seen what was written before that (coll__turn_before()).  For those who are not
 * there yet, the word says the way before, too; so it is not changed again until all are.
 *
 * Where ranks share processors nothing is learned: there a wait saved is worth more than all the rest. */
#ifndef COLL_THREADS_EAGERNESS_H
#define COLL_THREADS_EAGERNESS_H

enum {
    COLL__EAGERNESS_LEAST_BITS = 10,              /* the first class begins behind 2^this bytes               */
    COLL__EAGERNESS_RUN = COLL__TURNS_ABREAST,    /* calls of a run: at its end all ranks are on its way      */
    COLL__EAGERNESS_WARM = 2,                     /* calls before it, which find the caches as the other way has left them */
    COLL__EAGERNESS_RUNS = 3,                     /* of each way; the fastest counts                          */
    COLL__EAGERNESS_AGAIN = 8192                  /* calls from one choice to the next                        */
};

static inline bool coll__eagerness_in(uint64_t word, uint64_t turn) { return (turn >= word >> 2 ? word : word >> 1) & 1; }

static coll__eagerness *coll__eagerness_of(const coll__member *m, coll_kind kind, size_t length)
{
    const int at = 63 - __builtin_clzll(length - 1) - COLL__EAGERNESS_LEAST_BITS, last = COLL__EAGERNESS_CLASSES - 1;
    return &m->group->eagerness[kind][at < 0 ? 0 : at < last ? at : last];
}

/* A run is over: what it has taken, and the way from now on. */
static void coll__eagerness_next(const coll__member *m, coll__eagerness *e, uint64_t turn)
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
    COLL__ASSERT(turn >= (e->word >> 2) + m->abreast, "turn %llu is not behind all that go as before", (unsigned long long)turn);
    __atomic_store_n(&e->word, (turn + m->abreast) << 2 | (uint64_t)way << 1 | next, __ATOMIC_RELAXED);
}

/* The first member begins one more call of a kind and a class. */
static void coll__eagerness_note(const coll__member *m, coll__eagerness *e, uint64_t turn, size_t length)
{
    if (turn < e->word >> 2) return;
    if (e->rest > 0) {
        e->rest--;
    } else if (e->calls == COLL__EAGERNESS_RUN) {
        coll__eagerness_next(m, e, turn);
    } else {
        if (e->calls++ == 0) {
            e->began = coll__now();
            e->bytes = 0;
        }
        e->bytes += length;
    }
}

/* Can an input not go eagerly?  There is no room for it, or its elements are so long that their sums need memory of their own. */
static bool coll__is_too_long(const coll__member *m, const coll_call *call, size_t unit, size_t length)
{
    return length > coll__eager_most(m, coll__form_of(call->kind)) || (unit > COLL__BLOCK && coll__kind_reduces(call->kind));
}

/* Does our next turn go directly, whose input is not so short that it goes eagerly anyway?  Asked once there is room for the
 * turn: only then do all get one answer. */
static __attribute__((noinline)) bool coll__goes_directly(const coll__member *m, const coll_task *task, size_t length)
{
    const uint64_t turn = m->turn + 1;

    if (coll__is_too_long(m, task->call, task->codec->type_size, length)) return true;
    if (length <= m->learned_from) return false;
    coll__eagerness *const e = coll__eagerness_of(m, task->call->kind, length);
    if (m->rank == 0 && task->ahead) e->calls = 0;                  /* such a call asks again and again                 */
    else if (m->rank == 0) coll__eagerness_note(m, e, turn, length);
    return coll__eagerness_in(__atomic_load_n(&e->word, __ATOMIC_RELAXED), turn);
}

#endif /* COLL_THREADS_EAGERNESS_H */
