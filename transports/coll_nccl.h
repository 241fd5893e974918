/* coll_nccl.h - buffers in the memory of GPUs: calls go into a stream, carried out by NCCL.
 *
 *   nccl/coll_nccl_abi.h     what is called in NCCL and in the driver, declared by itself
 *   nccl/coll_nccl_ptx.h     the kernels, from coll_nccl_kernels.cu
 *   nccl/coll_nccl_load.h    both libraries, loaded at run time
 *   nccl/coll_nccl_gpu.h     the device: its context, kernels, memory, events
 *   nccl/coll_nccl_state.h   a communicator of NCCL under one of ours; its failures
 *   nccl/coll_nccl_ways.h    which way a call goes, and why
 *   nccl/coll_nccl_calls.h   by NCCL alone
 *   nccl/coll_nccl_sums.h    by NCCL and kernels
 *   nccl/coll_nccl_host.h    by the host
 *   this file                calls are begun and looked at; communicators are made, derived and ended; the public functions
 *
 * This is no transport but a device (coll_comm.h): it sits on a communicator whose ranks are connected by some transport already.
 * That one tells everybody of a failure, finds ranks that wait in different calls, splits and shrinks.  A call has its number and
 * its fingerprint like any other, and is in the queue of its track until its event has come.
 *
 * A derived communicator gets one of NCCL's of its own: its rank 0 makes an id, which goes round by the host. */
#ifndef COLL_NCCL_H
#define COLL_NCCL_H

#include "nccl/coll_nccl_abi.h"
#include "nccl/coll_nccl_ptx.h"
#include "nccl/coll_nccl_load.h"
#include "nccl/coll_nccl_gpu.h"
#include "nccl/coll_nccl_state.h"
#include "nccl/coll_nccl_ways.h"
#include "nccl/coll_nccl_calls.h"
#include "nccl/coll_nccl_sums.h"
#include "nccl/coll_nccl_host.h"

/* ---- >>checks ---- */

/* Can the device see this memory? */
static coll_status coll__nccl_check_memory(coll_comm *comm, const coll_call *call, const char *name, const void *at)
{
    const coll__nccl *me = coll__nccl_of(comm);
    const coll__cuda_calls *cuda = &me->gpu->cuda;
    unsigned kind = 0, is_managed = 0;
    int ordinal = me->gpu->ordinal;

    if (cuda->PointerGetAttribute(&kind, COLL__CUDA_POINTER_MEMORY_TYPE, coll__cuda_at(at)) != COLL__CUDA_SUCCESS)
        return coll__explain_error(comm, call, COLL_ERR_ARGUMENT, "%s is memory of the host that device %d does not see: this "
                                   "communicator is for the memory of a GPU", name, me->gpu->ordinal);
    if (kind != COLL__CUDA_MEMORY_DEVICE) return COLL_OK;
    if (cuda->PointerGetAttribute(&ordinal, COLL__CUDA_POINTER_DEVICE_ORDINAL, coll__cuda_at(at)) != COLL__CUDA_SUCCESS
        || ordinal == me->gpu->ordinal) return COLL_OK;
    (void)cuda->PointerGetAttribute(&is_managed, COLL__CUDA_POINTER_IS_MANAGED, coll__cuda_at(at));
    if (is_managed) return COLL_OK;
    return coll__explain_error(comm, call, COLL_ERR_ARGUMENT, "%s is memory of device %d, but this communicator is for device %d",
                               name, ordinal, me->gpu->ordinal);
}

static coll_status coll__nccl_check_side(coll_comm *comm, const coll_call *call, const coll__side *side)
{
    const coll__image used = coll__image_of(side, coll_type_size(call->type));
    return used.length ? coll__nccl_check_memory(comm, call, side->name, used.at) : COLL_OK;
}

static coll_status coll__nccl_check_buffers(coll_comm *comm, const coll_call *call)
{
    coll__side send, recv;
    coll_status status = COLL_OK;

    for (int i = 0; call->kind == COLL_ALLREDUCE_LIST && i < call->list_count && status == COLL_OK; i++) {
        const coll_buffer *b = &call->list[i];
        if (b->count == 0) continue;
        if (b->send != COLL_IN_PLACE) status = coll__nccl_check_memory(comm, call, "send of a buffer", b->send);
        if (status == COLL_OK) status = coll__nccl_check_memory(comm, call, "recv of a buffer", b->recv);
    }
    if (call->kind == COLL_ALLREDUCE_LIST || call->kind == COLL_BARRIER || status < 0) return status;
    coll__nccl_sides(comm, call, &send, &recv);
    status = coll__nccl_check_side(comm, call, &send);
    if (status == COLL_OK) status = coll__nccl_check_side(comm, call, &recv);
    if (status == COLL_OK && call->residual && call->count)
        status = coll__nccl_check_memory(comm, call, "residual", call->residual);
    return status;
}

/* NCCL matches messages by their order alone, and one to oneself within a group only. */
static coll_status coll__nccl_check_message(coll_comm *comm, const coll_request *r)
{
    const coll_call *c = &r->call;
    const bool sends = c->kind != COLL_RECV, receives = c->kind != COLL_SEND;
    const int source = c->kind == COLL_SENDRECV ? c->source : c->root;

    if (receives && (source == COLL_ANY_SOURCE || (c->kind == COLL_RECV && c->tag == COLL_ANY_TAG)))
        return coll__explain_error(comm, c, COLL_ERR_UNSUPPORTED, "between GPUs a receive has to name its source and tag");
    const bool is_lone = (sends && c->root == comm->rank) != (receives && source == comm->rank);
    if (is_lone && r->is_blocking)
        return coll__explain_error(comm, c, COLL_ERR_UNSUPPORTED, "between GPUs a message to oneself takes coll_sendrecv, or "
                                   "coll_isend and coll_irecv");
    return COLL_OK;
}

/* The parts of a list, as calls. */
static coll_call coll__nccl_list_part(const coll_call *call, int i)
{
    const coll_buffer *b = &call->list[i];
    coll_call one = *call;

    one.kind = COLL_ALLREDUCE;
    one.send = b->send == COLL_IN_PLACE ? b->recv : b->send;
    one.recv = b->recv;
    one.count = b->count;
    one.type = b->type;
    one.wire = call->wire ? call->wire : b->type;
    one.seed = coll__seed_of(~call->seed, (uint64_t)i);
    one.list = NULL;
    one.list_count = 0;
    return one;
}

/* The worst way of a call, with its reason: of a list that of the part that goes by the host, if there is one. */
static coll__nccl_way coll__nccl_way_of_all(const coll_comm *comm, const coll_request *r, const char **why)
{
    coll__nccl_way worst = COLL__BY_NCCL;

    if (r->call.kind != COLL_ALLREDUCE_LIST) return coll__nccl_way_of(comm, &r->call, &r->codec, why);
    *why = "an empty list";
    for (int i = 0; i < r->call.list_count; i++) {
        const coll_call one = coll__nccl_list_part(&r->call, i);
        const char *reason = NULL;
        coll__codec codec;
        (void)coll__codec_reduce(&codec, &one, comm->size, NULL, 0);
        const coll__nccl_way way = coll__nccl_way_of(comm, &one, &codec, &reason);
        if (way >= worst) worst = way, *why = reason;
    }
    return worst;
}

/* Memory of the device that a call needs beside its buffers. */
static size_t coll__nccl_need(const coll_comm *comm, const coll_call *call, coll__nccl_way way)
{
    const size_t unit = coll_type_size(call->type);
    coll__side send, recv;

    if (way == COLL__BY_KERNELS) {
        const coll__sums s = coll__sums_of(comm, call);
        return coll__sum_plan_of(comm, call, &s).length;
    }
    if (call->kind == COLL_BARRIER || call->send != call->recv) return 0;
    if (coll__kind_reduces(call->kind)) return coll__result_count(comm, call) * unit;
    if (!coll__kind_exchanges(call->kind)) return 0;
    coll__nccl_sides(comm, call, &send, &recv);
    return coll__side_length(&send, unit);
}

/* What a captured stream cannot have: memory that is not there, and the host. */
static coll_status coll__nccl_check_capture(coll_comm *comm, const coll_request *r)
{
    const coll__nccl *me = coll__nccl_of(comm);
    const char *why = NULL;
    const coll__nccl_way way = coll__nccl_way_of_all(comm, r, &why);

    if (way == COLL__BY_HOST)
        return coll__explain_error(comm, &r->call, COLL_ERR_UNSUPPORTED, "the stream is being captured, and this call goes by "
                                   "the host (%s)", why);
    size_t need = r->call.kind == COLL_ALLREDUCE_LIST ? 0 : coll__nccl_need(comm, &r->call, way);
    for (int i = 0; r->call.kind == COLL_ALLREDUCE_LIST && i < r->call.list_count; i++) {
        const coll_call one = coll__nccl_list_part(&r->call, i);
        coll__codec codec;
        (void)coll__codec_reduce(&codec, &one, comm->size, NULL, 0);
        need = coll__most(need, coll__nccl_need(comm, &one, coll__nccl_way_of(comm, &one, &codec, &why)));
    }
    if (need <= me->scratch.length) return COLL_OK;
    return coll__explain_error(comm, &r->call, COLL_ERR_UNSUPPORTED, "the stream is being captured, and %zu bytes of memory are "
                               "needed: make such a call before", need);
}

static coll_status coll__nccl_check(coll_comm *comm, const coll_request *r)
{
    coll__nccl *me = coll__nccl_of(comm);
    coll_status status = COLL_OK;

    if (coll__kind_is_message(r->call.kind) && (status = coll__nccl_check_message(comm, r)) < 0) return status;
    if (!coll__gpu_enter(me->gpu))
        return coll__explain_error(comm, &r->call, COLL_ERR_SYSTEM, "the device cannot be entered");
    status = coll__nccl_check_buffers(comm, &r->call);
    const bool is_captured = coll__nccl_is_captured(me);
    if (status == COLL_OK && is_captured) status = coll__nccl_check_capture(comm, r);
    coll__gpu_leave(me->gpu);
    const bool is_unseen = is_captured || (me->is_ordered && r->is_blocking);
    if (status == COLL_OK && is_unseen && r->call.flags & COLL_DETECT_OVERFLOW)
        return coll__explain_error(comm, &r->call, COLL_ERR_UNSUPPORTED, "COLL_DETECT_OVERFLOW looks at a result when it is "
                                   "there, and this call does not wait for it");
    return status;
}

/* ---- >>calls are begun ---- */

/* A call that is no list. */
static void coll__nccl_carry(coll__nccl *me, const coll_call *call, const coll__codec *codec, bool has_number)
{
    const char *why;
    const coll__nccl_way way = coll__nccl_way_of(me->owner, call, codec, &why);

    if (!coll__kind_reduces(call->kind)) {
        coll__nccl_move(me, call);
        return;
    }
    const coll__sums s = coll__sums_of(me->owner, call);
    if (way == COLL__BY_KERNELS) coll__nccl_sum(me, call, &s);
    if (way == COLL__BY_HOST) coll__nccl_by_host(me, call, has_number);
    if (way != COLL__BY_NCCL) return;
    coll__nccl_reduce(me, call, &s);
    coll__nccl_finish(me, call, &s);
}

/* Every buffer of a list, one after the other; those that go by NCCL alone in one group. */
static void coll__nccl_carry_list(coll__nccl *me, const coll_call *call, coll__mark *mark)
{
    coll__codec codec;
    const char *why;

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 0) coll__nccl_group(me);
        for (int i = 0; i < call->list_count; i++) {
            const coll_call one = coll__nccl_list_part(call, i);
            (void)coll__codec_reduce(&codec, &one, me->owner->size, NULL, 0);
            const coll__sums s = coll__sums_of(me->owner, &one);
            const bool is_plain = coll__nccl_way_of(me->owner, &one, &codec, &why) == COLL__BY_NCCL;
            if (pass == 0 && is_plain) coll__nccl_reduce(me, &one, &s);
            if (pass == 1 && is_plain) coll__nccl_finish(me, &one, &s);
            if (pass == 1 && !is_plain) coll__nccl_carry(me, &one, &codec, false);
            if (pass == 1 && mark && call->flags & COLL_DETECT_OVERFLOW) coll__nccl_look_for_overflow(me, &one, mark);
        }
        if (pass == 0) coll__nccl_ungroup(me);
    }
}

/* A request keeps its mark in its task, and whether it has one: 0 it waits for others to go with it. */
enum { COLL__NCCL_MARK, COLL__NCCL_NEXT };

static coll__mark *coll__nccl_mark_of(const coll_request *r) { return (coll__mark *)(uintptr_t)r->task.state[COLL__NCCL_MARK]; }

/* Put the messages that have been waiting for one another into the stream. */
static void coll__nccl_flush(coll__nccl *me)
{
    coll_request *const first = me->messages;

    me->messages = me->messages_last = NULL;
    if (!first) return;
    coll__nccl_group(me);
    for (coll_request *r = first; r; r = (coll_request *)(uintptr_t)r->task.state[COLL__NCCL_NEXT]) {
        coll__side send, recv;
        coll__nccl_sides(me->owner, &r->call, &send, &recv);
        coll__nccl_post(me, &r->call, &send, &recv, NULL, NULL);
    }
    coll__nccl_ungroup(me);
    coll__mark *const mark = coll__nccl_mark(me, NULL);
    for (coll_request *r = first; mark && r; r = (coll_request *)(uintptr_t)r->task.state[COLL__NCCL_NEXT]) {
        r->task.state[COLL__NCCL_MARK] = (uintptr_t)mark;
        if (r != first) mark->holders++;
    }
}

static void coll__nccl_put_off(coll__nccl *me, coll_request *r)
{
    if (me->messages) me->messages_last->task.state[COLL__NCCL_NEXT] = (uintptr_t)r;
    else me->messages = r;
    me->messages_last = r;
}

/* Communicators share a stream, so what has been put off in another one goes first, as it was started first. */
static coll_status coll__nccl_flush_others(const coll_comm *comm, int limit_ms, coll_failure *failure)
{
    coll_status status = COLL_OK;

    for (coll_comm *other = comm->trunk->comms; other && status >= 0; other = other->next) {
        if (other == comm || other->device != comm->device || !coll__nccl_of(other)->messages) continue;
        coll__nccl *const it = coll__nccl_of(other);
        const coll__nccl_now before = coll__nccl_enter(it, limit_ms, failure);
        coll__nccl_follow(it);
        coll__nccl_flush(it);
        status = coll__nccl_leave(it, before);
    }
    return status;
}

static coll_status coll__nccl_start(coll_comm *comm, coll_request *r, coll_failure *failure)
{
    coll__nccl *me = coll__nccl_of(comm);
    const int limit_ms = r->call.timeout_ms > 0 ? r->call.timeout_ms : comm->trunk->stall_timeout_ms;
    const bool is_message = coll__kind_is_message(r->call.kind);
    const coll_status earlier = coll__nccl_flush_others(comm, limit_ms, failure);
    const coll__nccl_now before = coll__nccl_enter(me, limit_ms, failure);
    coll__mark *mark = NULL;

    if (earlier < 0) (void)coll__nccl_fails(me, earlier);

    if (is_message && !r->is_blocking && !me->now.is_captured && me->now.status == COLL_OK) {
        coll__nccl_put_off(me, r);
        (void)coll__nccl_leave(me, before);
        return COLL_PENDING;
    }
    coll__nccl_follow(me);
    coll__nccl_flush(me);
    const bool is_waited_for = !me->now.is_captured && !(me->is_ordered && r->is_blocking);
    if (!me->now.is_captured && !(mark = coll__mark_take(me->gpu))) coll__nccl_have_no_memory(me);
    if (me->now.status == COLL_OK && r->call.kind == COLL_ALLREDUCE_LIST) coll__nccl_carry_list(me, &r->call, mark);
    else if (me->now.status == COLL_OK) coll__nccl_carry(me, &r->call, &r->codec, !r->prepared);
    if (mark && r->call.kind != COLL_ALLREDUCE_LIST && r->call.flags & COLL_DETECT_OVERFLOW && coll__kind_reduces(r->call.kind))
        coll__nccl_look_for_overflow(me, &r->call, mark);
    if (mark) {
        mark = coll__nccl_mark(me, mark);
        if (is_waited_for) r->task.state[COLL__NCCL_MARK] = (uintptr_t)mark;
        else coll__mark_drop(me->gpu, mark);
    }
    const coll_status status = coll__nccl_leave(me, before);
    return status < 0 ? status : is_waited_for ? COLL_PENDING : COLL_OK;
}

/* ---- >>calls are looked at ---- */

/* Nothing is asked while the stream is captured: asking would spoil it. */
static coll_status coll__nccl_test(coll_comm *comm, coll_request *r, coll_failure *failure)
{
    coll__nccl *me = coll__nccl_of(comm);
    const coll__nccl_now before = coll__nccl_enter(me, comm->trunk->stall_timeout_ms, failure);
    bool is_over = false;

    me->now.is_looking = true;
    if (me->now.status == COLL_OK && me->messages && !coll__nccl_mark_of(r)) {
        coll__nccl_follow(me);
        coll__nccl_flush(me);
    }
    coll__mark *const mark = coll__nccl_mark_of(r);           /* none: it is just being begun                     */
    if (me->now.status == COLL_OK && mark && !me->now.is_captured && coll__nccl_look(me) == COLL_OK) {
        const coll__cuda_result is = me->gpu->cuda.EventQuery(mark->event);
        is_over = is == COLL__CUDA_SUCCESS;
        if (is != COLL__CUDA_NOT_READY) coll__nccl_said_cuda(me, "cuEventQuery", is);
    }
    if (is_over) {
        if (r->call.flags & COLL_DETECT_OVERFLOW) r->task.is_finite = *mark->found ? -1 : 1;
        r->task.state[COLL__NCCL_MARK] = 0;
        coll__mark_drop(me->gpu, mark);
        if (r->call.kind == COLL_RECV || r->call.kind == COLL_SENDRECV) {
            r->got_source = r->call.kind == COLL_RECV ? r->call.root : r->call.source;
            r->got_tag = r->call.tag;
            r->got_count = r->call.kind == COLL_RECV ? r->call.count : r->call.recv_count;
        }
    }
    const coll_status status = coll__nccl_leave(me, before);
    return status < 0 ? status : is_over ? COLL_OK : COLL_PENDING;
}

static void coll__nccl_explain(coll_comm *comm, const coll_request *r, char *text, size_t room)
{
    const coll__nccl *me = coll__nccl_of(comm);
    const char *why = NULL;
    char version[32];
    const coll__nccl_way way = coll__nccl_way_of_all(comm, r, &why);

    (void)coll__nccl_version_text(me->gpu->nccl.version, version, sizeof version);
    if (coll__kind_is_message(r->call.kind)) coll__append(text, room, "by NCCL %s, one message", version);
    else if (way == COLL__BY_HOST) coll__append(text, room, "by the host, over %s (%s)", comm->trunk->transport->name, why);
    else if (way == COLL__BY_NCCL) coll__append(text, room, "by NCCL %s (%s)", version, why);
    else if (r->call.kind == COLL_ALLREDUCE_LIST) coll__append(text, room, "by NCCL %s and kernels (%s)", version, why);
    else {
        const coll__sums s = coll__sums_of(comm, &r->call);
        const coll__sum_plan plan = coll__sum_plan_of(comm, &r->call, &s);
        coll__append(text, room, "by NCCL %s and kernels, %s (%s)", version,
                     plan.is_at_once ? "all inputs at once" : "by shards", why);
    }
}

/* ---- >>communicators ---- */

/* The trunk has failed: kernels that wait for others would wait for ever. */
static void coll__nccl_end(coll_comm *comm)
{
    coll__nccl *me = coll__nccl_of(comm);
    struct ncclComm *const nccl = me->comm;

    me->comm = NULL;
    me->messages = me->messages_last = NULL;
    if (!nccl || !me->is_own || !coll__gpu_enter(me->gpu)) return;
    (void)me->gpu->nccl.CommAbort(nccl);
    coll__gpu_leave(me->gpu);
}

/* Has all that was begun come to its end?  It is waited for a little. */
static bool coll__nccl_is_idle(const coll__nccl *me)
{
    const int64_t until = coll__now() + (int64_t)COLL__DELIVER_MS * COLL__MS;
    const struct timespec nap = { 0, 20000 };

    if (!me->last) return true;
    for (;;) {
        if (me->gpu->cuda.EventQuery(me->last->event) != COLL__CUDA_NOT_READY) return true;
        if (coll__now() > until) return false;
        (void)nanosleep(&nap, NULL);
    }
}

/* In good order: what is begun is finished first. */
static void coll__nccl_finalize(coll__nccl *me)
{
    const coll__nccl_calls *nccl = &me->gpu->nccl;
    const int64_t until = coll__now() + (int64_t)COLL__DELIVER_MS * COLL__MS;
    const struct timespec nap = { 0, 20000 };
    coll__nccl_result is = nccl->CommFinalize(me->comm);

    while (is == COLL__NCCL_SUCCESS || is == COLL__NCCL_IN_PROGRESS) {
        coll__nccl_result now = COLL__NCCL_SUCCESS;
        is = nccl->CommGetAsyncError(me->comm, &now);
        if (is == COLL__NCCL_SUCCESS && now == COLL__NCCL_SUCCESS) break;
        if (is == COLL__NCCL_SUCCESS && now != COLL__NCCL_IN_PROGRESS) is = now;
        if (coll__now() > until) is = COLL__NCCL_SYSTEM;
        (void)nanosleep(&nap, NULL);
    }
    if (is == COLL__NCCL_SUCCESS) (void)nccl->CommDestroy(me->comm);
    else (void)nccl->CommAbort(me->comm);
    me->comm = NULL;
}

static void coll__nccl_close(coll_comm *comm)
{
    coll__nccl *me = coll__nccl_of(comm);
    coll__gpu *gpu = me->gpu;
    const bool is_inside = coll__gpu_enter(gpu);

    bool is_idle = coll__nccl_is_idle(me);
    if (me->comm && me->is_own && is_idle) coll__nccl_finalize(me);
    else if (me->comm && me->is_own) {
        (void)gpu->nccl.CommAbort(me->comm);
        is_idle = coll__nccl_is_idle(me);
    }
    coll__mark_drop(gpu, me->last);
    coll__mark_drop(gpu, me->pinned_until);
    coll__room_free(gpu, &me->scratch, false, is_idle);
    coll__room_free(gpu, &me->pinned, true, is_idle);
    if (is_inside) coll__gpu_leave(gpu);
    if (--gpu->holders == 0) coll__gpu_free(gpu, is_idle);
    free(me);
    comm->device = NULL;
    comm->device_context = NULL;
}

static coll_status coll__nccl_derive(coll_comm *parent, coll_comm *child);

static const coll__device coll__nccl_device = {
    .name = "nccl",
    .check = coll__nccl_check,
    .start = coll__nccl_start,
    .test = coll__nccl_test,
    .derive = coll__nccl_derive,
    .end = coll__nccl_end,
    .close = coll__nccl_close,
    .explain = coll__nccl_explain,
};

/* Give `comm` a device: memory that every call needs is there from now on.  Takes over a hold on the device.  NULL: no memory. */
static coll__nccl *coll__nccl_attach(coll_comm *comm, coll__gpu *gpu, struct CUstream_st *stream)
{
    coll__nccl *me = (coll__nccl *)coll__allocate(sizeof *me);
    void *room = NULL;

    if (me && coll__gpu_enter(gpu)) {
        room = coll__room_have(gpu, &me->scratch, 1, false);
        coll__gpu_leave(gpu);
    }
    if (!room) {
        free(me);
        if (--gpu->holders == 0) coll__gpu_free(gpu, true);
        return NULL;
    }
    me->owner = comm;
    me->gpu = gpu;
    me->stream = stream;
    me->is_own = true;
    comm->device = &coll__nccl_device;
    comm->device_context = me;
    if (!comm->trunk->is_elsewhere) coll__watch_memory(comm->trunk);
    return me;
}

/* Make the communicator of NCCL's: rank 0's id goes round by the host. */
static coll_status coll__nccl_join(coll_comm *comm)
{
    coll__nccl *me = coll__nccl_of(comm);
    coll__nccl_config config = { sizeof config, (unsigned)COLL__NCCL_MAGIC, COLL__NCCL_CONFIG_VERSION, 0 };
    coll_failure failure = { COLL_OK, -1, "" };
    struct { coll__nccl_id id; coll__nccl_result is; } note;
    coll_request r;

    memset(&note, 0, sizeof note);
    if (comm->rank == 0) note.is = me->gpu->nccl.GetUniqueId(&note.id);
    r.call = (coll_call){ .kind = COLL_BROADCAST, .recv = &note, .count = 1, .type = COLL_BLOB(sizeof note), .name = "NCCL's id",
                          .timeout_ms = comm->trunk->start_timeout_ms };
    coll_status status = coll__run_by_host(comm, &r);
    if (status < 0) return status;
    me->comm = NULL;
    const coll__nccl_now before = coll__nccl_enter(me, comm->trunk->start_timeout_ms, &failure);
    me->now.status = COLL_OK;                     /* there is no communicator yet, which is no mistake        */
    if (note.is != COLL__NCCL_SUCCESS) (void)coll__nccl_blame(me, "ncclGetUniqueId", note.is);
    if (me->now.status == COLL_OK) {
        me->now.is_in_group = true;               /* in progress is to be asked about below, when it is known */
        const coll__nccl_result is = me->gpu->nccl.CommInitRankConfig(&me->comm, comm->size, note.id, comm->rank, &config);
        coll__nccl_said(me, "ncclCommInitRankConfig", is);
        me->now.is_in_group = false;
        if (me->comm) coll__nccl_await(me, NULL, "ncclCommInitRankConfig");
    }
    status = coll__nccl_leave(me, before);
    return status < 0 ? coll__comm_fail(comm, &failure) : COLL_OK;
}

static coll_status coll__nccl_derive(coll_comm *parent, coll_comm *child)
{
    const coll__nccl *from = coll__nccl_of(parent);
    coll_failure failure = { COLL_OK, -1, "" };
    const int rank = child->trunk->rank;

    from->gpu->holders++;
    coll__nccl *me = coll__nccl_attach(child, from->gpu, from->stream);
    if (!me) {
        coll__blame(&failure, COLL_ERR_MEMORY, rank, "rank %d has no memory on its device", rank);
        return coll__comm_fail(child, &failure);
    }
    me->is_ordered = from->is_ordered;
    const coll_status status = coll__nccl_join(child);
    if (status < 0) coll__nccl_close(child);
    return status;
}

/* ---- >>communicators for the memory of the host ---- */

static bool coll__is_of_gpu(void (*ask)(void), const void *at)
{
    coll__cuda_result (*attribute)(void *value, unsigned which, coll__cuda_address address);
    unsigned kind = 0, is_managed = 0;

    memcpy(&attribute, &ask, sizeof attribute);
    if (attribute(&kind, COLL__CUDA_POINTER_MEMORY_TYPE, coll__cuda_at(at)) != COLL__CUDA_SUCCESS) return false;
    (void)attribute(&is_managed, COLL__CUDA_POINTER_IS_MANAGED, coll__cuda_at(at));
    return kind == COLL__CUDA_MEMORY_DEVICE && !is_managed;
}

/* In a program that has loaded the driver, buffers in the memory of a GPU are found out before they are read. */
static void coll__watch_memory(coll__trunk *trunk)
{
    const char *asked = getenv("COLL_CUDA_LIB");
    void *const driver = dlopen(asked && *asked ? asked : "libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    if (!driver) return;
    if (coll__library_find(driver, "cuPointerGetAttribute", &trunk->ask)) trunk->is_elsewhere = coll__is_of_gpu;
    dlclose(driver);                              /* its owner keeps it, and so do GPUs                       */
    for (coll_comm *comm = trunk->comms; comm && trunk->is_elsewhere; comm = comm->next)
        for (int kind = 0; kind <= COLL_ALLTOALL; kind++) {   /* what was not looked at is to be, from now on     */
            free(comm->again[kind]);
            comm->again[kind] = NULL;
        }
}

/* ---- >>making ---- */

/* The device of another communicator of the trunk, or opened; held by the caller. */
static coll__gpu *coll__nccl_gpu(const coll__trunk *trunk, int ordinal, char *why, size_t room)
{
    for (const coll_comm *comm = trunk->comms; comm; comm = comm->next) {
        coll__gpu *const gpu = comm->device == &coll__nccl_device ? coll__nccl_of(comm)->gpu : NULL;
        if (!gpu || gpu->ordinal != ordinal) continue;
        gpu->holders++;
        return gpu;
    }
    return coll__gpu_open(ordinal, why, room);
}

/* Is the stream one of the device's?  NULL is one of every device. */
static bool coll__nccl_has_stream(const coll__gpu *gpu, struct CUstream_st *stream)
{
    struct CUctx_st *context = NULL;
    bool is_ours = true;

    if (!stream || !coll__gpu_enter(gpu)) return true;
    is_ours = gpu->cuda.StreamGetCtx(stream, &context) == COLL__CUDA_SUCCESS && context == gpu->context;
    coll__gpu_leave(gpu);
    return is_ours;
}

/* What a rank says before anything is made. */
typedef struct coll__nccl_word { int32_t status; char why[220]; } coll__nccl_word;

/* All ranks tell whether they have what it takes; where one has not, all say which. */
static coll_status coll__nccl_agree(coll_comm *comm, const coll__nccl_word *mine, coll_comm *tell)
{
    coll__nccl_word *all = (coll__nccl_word *)calloc((size_t)comm->size, sizeof *all);
    coll_request r;

    if (!all) return coll__explain_error(tell, NULL, COLL_ERR_MEMORY, "no memory for %d ranks", comm->size);
    r.call = (coll_call){ .kind = COLL_ALLGATHER, .send = mine, .recv = all, .count = 1, .type = COLL_BLOB(sizeof *all),
                          .name = "init_nccl" };
    coll_status status = coll__run_by_host(comm, &r);
    if (status < 0) coll__print(tell->error, sizeof tell->error, "%s", comm->error);
    for (int i = 0; status == COLL_OK && i < comm->size; i++) {
        all[i].why[sizeof all[i].why - 1] = '\0';
        if (all[i].status == COLL_OK) continue;
        status = coll__explain_error(tell, NULL, (coll_status)all[i].status < 0 ? (coll_status)all[i].status : COLL_ERR_PROTOCOL,
                                     "nccl: rank %d: %s", i, all[i].why);
    }
    free(all);
    return status;
}

/* Inside a call on `host`: the same ranks again, with a device. */
static coll_status coll__init_nccl_inside(coll_comm *host, int device, struct CUstream_st *stream, struct ncclComm *given,
                                          coll_comm **out)
{
    coll__nccl_word word = { COLL_OK, "" };
    coll_comm *comm = NULL;
    coll__nccl *me = NULL;

    coll_status status = coll__split_inside(host, 0, 0, &comm);
    if (status < 0) return status;
    comm->is_holder = host->is_holder;
    coll__gpu *gpu = coll__nccl_gpu(host->trunk, device, word.why, sizeof word.why);
    if (!gpu) word.status = COLL_ERR_UNSUPPORTED;
    else if (!coll__nccl_has_stream(gpu, stream)) {
        word.status = COLL_ERR_ARGUMENT;
        coll__print(word.why, sizeof word.why, "the stream is none of device %d", device);
        if (--gpu->holders == 0) coll__gpu_free(gpu, true);
    } else if (!(me = coll__nccl_attach(comm, gpu, stream))) {
        word.status = COLL_ERR_MEMORY;
        coll__print(word.why, sizeof word.why, "no memory on device %d", device);
    }
    status = coll__nccl_agree(comm, &word, host);
    if (status == COLL_OK && given) me->comm = given, me->is_own = false;
    else if (status == COLL_OK && (status = coll__nccl_join(comm)) < 0)
        coll__print(host->error, sizeof host->error, "%s", comm->error);
    host->is_holder = comm->is_holder;
    comm->is_holder = false;
    if (status == COLL_OK) {
        *out = comm;
        return COLL_OK;
    }
    if (comm->device) coll__nccl_close(comm);
    coll__comm_unlink(comm);
    coll__comm_free(comm);
    return status;
}

COLL_API coll_status coll_init_nccl(coll_comm *host, int device, struct CUstream_st *stream, coll_comm **out)
{
    if (out) *out = NULL;
    const coll_status status = coll__enter_alive(host);

    if (status < 0) return status;
    if (!out) return coll__leave(host, coll__explain_error(host, NULL, COLL_ERR_ARGUMENT, "init_nccl: out is NULL"));
    if (host->device)
        return coll__leave(host, coll__explain_error(host, NULL, COLL_ERR_ARGUMENT, "init_nccl: this communicator is for the "
                                                     "memory of a GPU already: take the one that it was made from"));
    return coll__leave(host, coll__init_nccl_inside(host, device, stream, NULL, out));
}

/* ---- >>wrapping: the ranks join over TCP, and rank 0 says where by NCCL ---- */

enum { COLL__NCCL_MEETING_MS = 60000 };

/* What rank 0 says. */
typedef struct coll__nccl_notice { char address[128], key[72]; } coll__nccl_notice;

typedef struct coll__nccl_meeting {
    coll__gpu *gpu;
    struct ncclComm *comm;
    struct CUstream_st *stream;
    int  rank;
    bool is_told;
    coll__nccl_notice notice;
} coll__nccl_meeting;

/* Broadcast the notice from rank 0, and wait for it, for a minute at most.  After a failure the copy, which may still come,
 * keeps its memory. */
static bool coll__nccl_tell(coll__nccl_meeting *m)
{
    const coll__gpu *gpu = m->gpu;
    const coll__nccl_calls *nccl = &gpu->nccl;
    const coll__cuda_calls *cuda = &gpu->cuda;
    const int64_t until = coll__now() + (int64_t)COLL__NCCL_MEETING_MS * COLL__MS;
    const struct timespec nap = { 0, 20000 };
    struct CUevent_st *event = NULL;
    coll__cuda_address at = 0;
    void *host = NULL;
    coll__nccl_result is = COLL__NCCL_SUCCESS;

    m->is_told = true;
    if (!coll__gpu_enter(gpu)) return false;
    bool is_well = cuda->MemAlloc_v2(&at, sizeof m->notice) == 0 && cuda->MemAllocHost_v2(&host, sizeof m->notice) == 0
                && cuda->EventCreate(&event, COLL__CUDA_EVENT_DISABLE_TIMING) == 0;
    void *const there = (void *)(uintptr_t)at;
    if (is_well) {
        memcpy(host, &m->notice, sizeof m->notice);
        is_well = cuda->MemcpyHtoDAsync_v2(at, host, sizeof m->notice, m->stream) == 0;
        is = nccl->Broadcast(there, there, sizeof m->notice, COLL__NCCL_U8, 0, m->comm, m->stream);
        while (is == COLL__NCCL_IN_PROGRESS && coll__now() < until)
            if (nccl->CommGetAsyncError(m->comm, &is) != COLL__NCCL_SUCCESS) break;
        is_well = is_well && is == COLL__NCCL_SUCCESS && cuda->MemcpyDtoHAsync_v2(host, at, sizeof m->notice, m->stream) == 0
               && cuda->EventRecord(event, m->stream) == 0;
    }
    while (is_well) {
        const coll__cuda_result now = cuda->EventQuery(event);
        if (now == COLL__CUDA_SUCCESS) break;
        if (nccl->CommGetAsyncError(m->comm, &is) != COLL__NCCL_SUCCESS || is != COLL__NCCL_SUCCESS) is_well = false;
        if (now != COLL__CUDA_NOT_READY || coll__now() > until) is_well = false;
        (void)nanosleep(&nap, NULL);
    }
    if (is_well) {
        memcpy(&m->notice, host, sizeof m->notice);
        (void)cuda->EventDestroy_v2(event);
        (void)cuda->MemFreeHost(host);
        (void)cuda->MemFree_v2(at);
    }
    coll__gpu_leave(gpu);
    return is_well;
}

static void coll__nccl_listening(void *context, const char *address)
{
    coll__nccl_meeting *m = (coll__nccl_meeting *)context;

    coll__print(m->notice.address, sizeof m->notice.address, "%s", address);
    (void)coll__nccl_tell(m);
}

/* A key of 64 hexadecimal digits. */
static bool coll__nccl_key(char *key, size_t room)
{
    unsigned char bytes[32];

    if (!coll__nonce(bytes, sizeof bytes)) return false;
    key[0] = '\0';
    for (size_t i = 0; i < sizeof bytes; i++) coll__append(key, room, "%02x", bytes[i]);
    return true;
}

/* The ranks of NCCL's communicator as one over TCP. */
static coll_status coll__nccl_meet(coll__nccl_meeting *m, int size, coll_comm **out)
{
    coll_config config = { .rank = m->rank, .size = size, .transport = "tcp", .world = "nccl", .security = "key" };
    coll_status status = COLL_OK;

    if (size == 1) config.transport = "threads", config.security = NULL;
    else if (m->rank == 0) {
        if (!coll__nccl_key(m->notice.key, sizeof m->notice.key))
            status = coll__start_failed(COLL_ERR_SYSTEM, "wrap_nccl: no random numbers");
        config.address = ":0";
        config.listening = coll__nccl_listening;
        config.listening_context = m;
    } else if (!coll__nccl_tell(m)) status = coll__start_failed(COLL_ERR_SYSTEM, "wrap_nccl: rank 0 has not said where it is");
    else if (!*m->notice.address) status = coll__start_failed(COLL_ERR_PEER, "wrap_nccl: rank 0 cannot listen");
    else config.address = m->notice.address;
    m->notice.address[sizeof m->notice.address - 1] = m->notice.key[sizeof m->notice.key - 1] = '\0';
    if (size > 1) config.key = m->notice.key;
    if (status == COLL_OK) status = coll_init(out, &config);
    if (m->rank == 0 && size > 1 && !m->is_told) {
        memset(&m->notice, 0, sizeof m->notice);  /* the others must not wait                                 */
        (void)coll__nccl_tell(m);
    }
    coll__wipe(&m->notice, sizeof m->notice);
    return status;
}

COLL_API coll_status coll_wrap_nccl(struct ncclComm *nccl, struct CUstream_st *stream, coll_comm **out)
{
    coll__nccl_meeting meeting = { .comm = nccl, .stream = stream };
    coll_comm *host = NULL;
    coll__nccl_calls calls;
    int size = 0, device = 0;
    char why[220] = "";

    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "wrap_nccl: out is NULL");
    *out = NULL;
    if (!nccl) return coll__start_failed(COLL_ERR_ARGUMENT, "wrap_nccl: the communicator is NULL");
    if (!coll__nccl_load(&calls, why, sizeof why)) return coll__start_failed(COLL_ERR_UNSUPPORTED, "wrap_nccl: %s", why);
    const bool is_known = calls.CommCount(nccl, &size) == COLL__NCCL_SUCCESS && calls.CommCuDevice(nccl, &device) == 0
                       && calls.CommUserRank(nccl, &meeting.rank) == COLL__NCCL_SUCCESS;
    dlclose(calls.library);
    if (!is_known) return coll__start_failed(COLL_ERR_ARGUMENT, "wrap_nccl: NCCL does not know the communicator");
    meeting.gpu = coll__gpu_open(device, why, sizeof why);
    if (!meeting.gpu) return coll__start_failed(COLL_ERR_UNSUPPORTED, "wrap_nccl: %s", why);
    coll_status status = coll__nccl_has_stream(meeting.gpu, stream) ? COLL_OK
                       : coll__start_failed(COLL_ERR_ARGUMENT, "wrap_nccl: the stream is none of device %d", device);
    if (status == COLL_OK) status = coll__nccl_meet(&meeting, size, &host);
    if (status == COLL_OK) {
        status = coll__init_nccl_inside(host, device, stream, nccl, out);
        if (status < 0) (void)coll__start_failed(status, "%s", host->error);
        (void)coll_free(host);
    }
    coll__gpu_free(meeting.gpu, true);
    return status;
}

/* ---- >>streams ---- */

/* Enter a communicator that has a device. */
static coll_status coll__nccl_enter_comm(coll_comm *comm, const char *what)
{
    const coll_status status = coll__enter_alive(comm);

    if (status < 0 || comm->device == &coll__nccl_device) return status;
    return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "%s: this communicator has no device", what));
}

/* Put off no longer what has been put off. */
static coll_status coll__nccl_flush_now(coll_comm *comm)
{
    coll__nccl *me = coll__nccl_of(comm);
    coll_failure failure = { COLL_OK, -1, "" };
    const coll__nccl_now before = coll__nccl_enter(me, comm->trunk->stall_timeout_ms, &failure);

    coll__nccl_follow(me);
    coll__nccl_flush(me);
    return coll__nccl_leave(me, before) < 0 ? coll__comm_fail(comm, &failure) : COLL_OK;
}

COLL_API coll_status coll_set_stream(coll_comm *comm, struct CUstream_st *stream)
{
    const coll_status status = coll__nccl_enter_comm(comm, "set_stream");

    if (status < 0) return status;
    coll__nccl *me = coll__nccl_of(comm);
    if (!coll__nccl_has_stream(me->gpu, stream))
        return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "set_stream: the stream is none of device %d",
                                                     me->gpu->ordinal));
    const coll_status flushed = me->messages ? coll__nccl_flush_now(comm) : COLL_OK;
    me->stream = stream;
    return coll__leave(comm, flushed);
}

COLL_API coll_status coll_set_stream_ordered(coll_comm *comm, bool is_ordered)
{
    const coll_status status = coll__nccl_enter_comm(comm, "set_stream_ordered");

    if (status < 0) return status;
    coll__nccl_of(comm)->is_ordered = is_ordered;
    return coll__leave(comm, COLL_OK);
}

COLL_API coll_status coll_stream_wait(struct CUstream_st *stream, coll_request *request)
{
    if (!request || !coll__is_pending(request)) return request ? coll__status_of(request) : COLL_OK;
    coll_comm *comm = request->comm;
    coll_status status = coll__nccl_enter_comm(comm, "stream_wait");

    if (status < 0) return status;
    coll__nccl *me = coll__nccl_of(comm);
    if (!coll__nccl_mark_of(request)) status = coll__nccl_flush_now(comm);
    coll__mark *const mark = coll__nccl_mark_of(request);
    if (status == COLL_OK && mark && mark->stream != stream && coll__gpu_enter(me->gpu)) {
        if (me->gpu->cuda.StreamWaitEvent(stream, mark->event, 0) != COLL__CUDA_SUCCESS)
            status = coll__explain_error(comm, &request->call, COLL_ERR_ARGUMENT, "the stream cannot wait for it");
        coll__gpu_leave(me->gpu);
    }
    return coll__leave(comm, status);
}

#endif /* COLL_NCCL_H */
