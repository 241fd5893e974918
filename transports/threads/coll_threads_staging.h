/* coll_threads_staging.h - a rank's staging area: a part of its room in which others reach what lies in no room.
 *
 * Before it publishes a turn a rank copies there what others will read of its input, and at the end from there what they have
 * written of its result, where elements are combined.  These copies stay in the caches, where the kernel (process_vm_readv)
 * takes half a microsecond for each page; but their lines go from one processor to the other each time, and some processors are
 * far from one another.  So the quicker way is learned, as with stores past the caches (coll_threads_stores.h).  What is longer
 * than the area goes by the kernel, and so do blocks that only move: it copies them once, and not twice. */
#ifndef COLL_THREADS_STAGING_H
#define COLL_THREADS_STAGING_H

#if COLL__HAS_HUB

enum { COLL__STAGING_LEAST_BITS = 14 };           /* of both buffers together: what is shorter goes eagerly   */

/* Where ours is; NULL: we have none. */
static inline unsigned char *coll__staging_of(const coll__member *m)
{
    return (unsigned char *)(uintptr_t)m->thread->desk->staging;
}

/* Copy a buffer of so many bytes: of each block, what others read or write.  Our own share nobody else touches, but where each
 * may make its own result: there, that of our own block. */
static void coll__staging_copy(const coll__turn *t, unsigned char *to, const unsigned char *from, size_t length)
{
    const size_t block = t->call->count * t->unit, own = block * (size_t)t->m->rank;
    const bool has_shares = t->form->staged == COLL__STAGED_BOTH;
    size_t at, share;

    coll__share_of(t, t->call->count, &at, &share);
    for (size_t begin = 0; begin < length; begin += block) {
        const size_t behind = begin + (has_shares || begin == own ? (at + share) * t->unit : 0);
        if (behind > begin) memcpy(to + begin, from + begin, at * t->unit);
        memcpy(to + behind, from + behind, begin + block - behind);
    }
}

/* Is a buffer of ours to be staged?  Gives its bytes; 0: it is not, or need not be. */
static size_t coll__staging_bytes(const coll__turn *t, const coll__side_shape *shape, const void *buffer)
{
    const coll__member *const m = t->m;
    const size_t length = coll__is_held(shape, m->rank, t->call->root) ? coll__extent(t, shape, NULL) : 0;

    return buffer && length <= COLL__STAGING_EACH && !coll__is_in_room(m, m->rank, buffer) ? length : 0;
}

/* Before a turn is published: of what is staged, others see the copy. */
static void coll__staging_begin(const coll__turn *t, coll__view *view)
{
    coll__staging *const staging = &t->m->thread->staging;
    unsigned char *const at = coll__staging_of(t->m);
    const coll__kind_shape *const shape = coll__shape_in(t);

    if (t->form->staged == COLL__STAGED_NOTHING || !at || staging->member) return;
    const bool has_shares = t->form->staged == COLL__STAGED_BOTH;
    const size_t send = coll__staging_bytes(t, &shape->send, view->send);
    const size_t recv = has_shares ? coll__staging_bytes(t, &shape->recv, view->recv) : 0;
    if (!send && !recv) return;
    coll__trial *const copies = coll__trial_of(t->m->copies, send + recv, COLL__STAGING_LEAST_BITS);
    const bool is_by_kernel = coll__trial_other(copies, false);
    *staging = (coll__staging){ .member = t->m, .turn = t->m->turn + 1, .copies = copies, .length = send + recv,
                                .began = copies->counts ? coll__now() : 0 };
    if (is_by_kernel) return;
    if (send) {
        staging->send = view->send;
        coll__staging_copy(t, at, view->send, send);
        view->send = at;
    }
    if (recv) {
        staging->recv = view->recv;
        view->recv = at + COLL__STAGING_EACH;
    }
}

/* Is this turn's input staged, or its result?  This rank itself takes them where they are. */
static inline void coll__staging_recall(coll__turn *t)
{
    const coll__staging *const staging = &t->m->thread->staging;

    if (staging->member != t->m || staging->turn != t->number) return;
    t->send = staging->send;
    t->recv = staging->recv;
}

/* All are done: the result comes from the area, which is free again. */
static void coll__staging_end(const coll__turn *t)
{
    coll__staging *const staging = &t->m->thread->staging;

    if (staging->member != t->m || staging->turn != t->number) return;
    if (staging->recv)
        coll__staging_copy(t, staging->recv, coll__view_of(t, t->m->rank)->recv, coll__extent(t, &coll__shape_in(t)->recv, NULL));
    const bool is_by_kernel = !staging->send && !staging->recv;
    if (staging->began) coll__trial_note(staging->copies, is_by_kernel, coll__now() - staging->began, staging->length);
    staging->member = NULL;
}

#else

static inline void coll__staging_begin(const coll__turn *t, const coll__view *view) { (void)t, (void)view; }
static inline void coll__staging_recall(const coll__turn *t) { (void)t; }
static inline void coll__staging_end(const coll__turn *t) { (void)t; }

#endif
#endif /* COLL_THREADS_STAGING_H */
