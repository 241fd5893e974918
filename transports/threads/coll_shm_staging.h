/* coll_shm_staging.h - what a rank exposes to other processes in a direct operation: its input, and its results for them.
 *
 *     input              in place, read directly (coll_alloc) or by the kernel; or a copy in the staging area
 *     results            in its result buffer, read likewise; or in the staging area or private memory
 *
 * The staging area is a part of the rank's segment, which the peers have mapped.  Copies there stay in the caches, where the
 * kernel (process_vm_readv) takes 0.5 us per page.  Inputs longer than the area use the kernel, and so do blocks that only move:
 * the kernel copies them once instead of twice. */
#ifndef COLL_SHM_STAGING_H
#define COLL_SHM_STAGING_H

/* This rank's staging area; NULL: none. */
static inline unsigned char *coll__staging_of(const coll__member *m)
{
    return (unsigned char *)(uintptr_t)m->thread->rank_slot->regions[COLL__REGION_STAGING].base;
}

/* Copies what peers read of this rank's input. */
static void coll__staging_copy(const coll__shm_op *t, unsigned char *to, const unsigned char *from, size_t length)
{
    size_t at = 0, count = 0;

    if (!COLL__LEAVES_OF(t->task->codec)) coll__inputs_of(t, &at, &count);
    const size_t begin = at * t->unit, end = begin + count * t->unit;
    COLL__ASSERT(begin <= length && end <= length, "bytes %zu to %zu of %zu are ours", begin, end, length);
    memcpy(to, from, begin);
    memcpy(to + end, from + end, length - end);
}

/* Bytes of this rank's results for others. */
static size_t coll__made_bytes(const coll__shm_op *t)
{
    const bool is_for_all = t->form->staged == COLL__STAGED_ALL;
    size_t at, share;

    if (!is_for_all && t->form->staged != COLL__STAGED_SHARE) return 0;
    coll__share_for(t, t->m->rank, t->call->count, &at, &share);
    return is_for_all ? coll__scan_skip(t, t->m->count, share) : share * t->unit;
}

/* Before an operation is published: chooses what peers see.  Results for others may lie outside the result buffer, unless peers
 * read that in place, or no peer reads them. */
static coll_status coll__staging_begin(const coll__shm_op *t, coll__view *view)
{
    coll__staging *const s = &t->m->staging;
    unsigned char *const area = coll__staging_of(t->m);
    const int me = t->m->rank;
    const size_t input = t->form->staged && !coll__is_in_room(t->m, me, s->send)
                         ? coll__extent(t, &coll__shape_in(t)->send, NULL) : 0, send = input <= COLL__STAGING_EACH ? input : 0;
    const size_t made = coll__made_bytes(t);
    const bool must = t->form->staged == COLL__STAGED_ALL || !coll__has_result(t);
    const bool is_read = t->call->kind != COLL_REDUCE || coll__is_overwritten(t);
    const bool may = must || (is_read && t->call->count * t->unit <= COLL__STAGING_EACH && !coll__is_in_room(t->m, me, s->recv));
    const size_t beside = may && made <= COLL__STAGING_EACH ? made : 0;
    void *place = NULL;
    size_t at, share;

    if (send + beside > 0 && area && !t->m->thread->stager) t->m->thread->stager = t->m;
    if (t->m->thread->stager == t->m) {           /* the operation uses the area until it ends                */
        if (send) coll__staging_copy(t, area, s->send, send);
        if (send) view->send.at = area;
        if (beside) place = area + COLL__STAGING_EACH;
    }
    if (made && must && !place) {
        const coll_status status = coll__hold(t, made);
        if (status != COLL_OK) return status;
        place = t->m->held;
    }
    coll__share_for(t, t->m->rank, t->call->count, &at, &share);
    if (place) s->made = (unsigned char *)place - (t->form->staged == COLL__STAGED_ALL ? 0 : at * t->unit);
    view->made = s->made ? s->made : s->recv;
    if (made && !s->made && coll__is_overwritten(t)) s->is_careful = true;
    return COLL_OK;
}

#endif /* COLL_SHM_STAGING_H */
