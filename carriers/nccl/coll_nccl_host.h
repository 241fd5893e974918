/* coll_nccl_host.h - calls by the host: the input is copied to pinned memory, the engine carries the call out on the same
 * communicator, and the result is copied back.  This waits for the stream, and for the other ranks. */
#ifndef COLL_NCCL_HOST_H
#define COLL_NCCL_HOST_H

/* Merges two images that overlap or may be the same. */
static bool coll__images_join(coll__image *a, coll__image *b)
{
    const uintptr_t a_begin = (uintptr_t)a->at, a_end = a_begin + a->length;
    const uintptr_t b_begin = (uintptr_t)b->at, b_end = b_begin + b->length;

    if (!a->length || !b->length || a_begin >= b_end || b_begin >= a_end) return false;
    const uintptr_t begin = a_begin < b_begin ? a_begin : b_begin, end = a_end > b_end ? a_end : b_end;
    *a = *b = (coll__image){ (const unsigned char *)begin, end - begin, NULL };
    return true;
}

/* Where a pointer into the range is on the host. */
static void *coll__imaged(const coll__image *image, const void *at)
{
    if (!at || !image->host) return NULL;
    return (void *)((uintptr_t)image->host + ((uintptr_t)at - (uintptr_t)image->at));
}

static void coll__image_copy(coll__nccl *me, const coll__image *image, const coll__side *side, size_t unit, bool to_host)
{
    for (int i = 0; side->is_used && i < side->blocks; i++) {
        size_t at;
        const size_t length = coll__side_block(side, unit, i, &at);
        const unsigned char *const there = coll__behind(side->at, at);
        if (length && to_host)
            COLL__CUDA_DO(me, MemcpyDtoHAsync_v2, coll__imaged(image, there), coll__cuda_at(there), length, me->stream);
        else if (length)
            COLL__CUDA_DO(me, MemcpyHtoDAsync_v2, coll__cuda_at(there), coll__imaged(image, there), length, me->stream);
    }
}

/* Pinned memory, once earlier operations on it are complete. */
static unsigned char *coll__nccl_pinned(coll__nccl *me, size_t length)
{
    if (me->pinned_until) coll__nccl_await(me, me->pinned_until->event, "an earlier copy");
    coll__mark_drop(me->gpu, me->pinned_until);
    me->pinned_until = NULL;
    void *const at = me->now.status == COLL_OK ? coll__gpu_memory_have(me->gpu, &me->pinned, length, true) : NULL;
    if (!at) coll__nccl_have_no_memory(me);
    return (unsigned char *)at;
}

/* Carries out the call on its images.  The first one has the number of the original call, to detect a rank that waits in another
 * call of that number. */
static void coll__nccl_run_by_host(coll__nccl *me, const coll_call *call, const coll__image *send, const coll__image *recv,
                                   const coll__image *residual, bool has_number)
{
    coll_comm *comm = me->owner;
    const int rank = comm->session->rank;
    coll_request r;

    r.call = *call;
    r.call.send = coll__imaged(send, call->send);
    r.call.recv = coll__imaged(recv, call->recv);
    r.call.residual = (float *)coll__imaged(residual, call->residual);
    if (has_number && me->now.uses_number) comm->sequence--;
    me->now.uses_number = false;
    coll__gpu_leave(me->gpu);
    const coll_status status = coll__run_by_host(comm, &r);
    me->now.is_inside = coll__gpu_enter(me->gpu);
    if (status == COLL_OK) return;
    if (comm->session->failure.status == COLL_OK)
        (void)coll__set_failure(me->now.failure, status, rank, "rank %d, by the host: %.150s", rank,
                                coll__sentence_of(comm));
    (void)coll__nccl_fails(me, status);
}

static void coll__nccl_by_host(coll__nccl *me, const coll_call *call, bool has_number)
{
    const size_t unit = coll_type_size(call->type);
    coll__side send, recv, rest = { .is_used = call->residual != NULL, .blocks = 1, .count = call->count };

    coll__sides_of(me->owner, call, &send, &recv);
    coll__image images[3] = { coll__image_of(&send, unit), coll__image_of(&recv, unit) };
    if (rest.is_used) {
        rest.at = (const unsigned char *)call->residual;
        rest.count = coll__input_extent(me->owner, call);
        images[2] = coll__image_of(&rest, sizeof(float));
    }
    const bool is_one = coll__images_join(&images[0], &images[1]);
    size_t at[3], total = 0;
    for (int i = 0; i < 3; i++) {
        at[i] = total;
        if (!is_one || i != 0) total += coll__round_up(images[i].length, COLL__NCCL_LINE);
    }
    if (is_one) at[0] = at[1];
    unsigned char *const pinned = coll__nccl_pinned(me, total + 1);
    if (!pinned) return;
    for (int i = 0; i < 3; i++) images[i].host = pinned + at[i];
    coll__image_copy(me, &images[0], &send, unit, true);
    coll__image_copy(me, &images[2], &rest, sizeof(float), true);
    coll__mark *mark = coll__nccl_mark(me, NULL);
    if (mark) coll__nccl_await(me, mark->event, "the stream");
    coll__mark_drop(me->gpu, mark);
    if (me->now.status == COLL_OK) coll__nccl_run_by_host(me, call, &images[0], &images[1], &images[2], has_number);
    coll__image_copy(me, &images[1], &recv, unit, false);
    coll__image_copy(me, &images[2], &rest, sizeof(float), false);
    if (me->now.status == COLL_OK) me->pinned_until = coll__nccl_mark(me, NULL);
}

#endif /* COLL_NCCL_HOST_H */
