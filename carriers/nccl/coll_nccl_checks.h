/* coll_nccl_checks.h - what a communicator for the memory of a GPU rejects, before anything is enqueued: memory that its device
 * cannot access, messages that NCCL cannot match, and what cannot be captured into a graph. */
#ifndef COLL_NCCL_CHECKS_H
#define COLL_NCCL_CHECKS_H

/* Checks that the device can access this memory. */
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

static coll_status coll__nccl_check_buffers(coll_comm *comm, const coll_call *call)
{
    coll__side sides[2];
    coll_status status = COLL_OK;

    for (int i = 0; call->kind == COLL_ALLREDUCE_LIST && i < call->list_count && status == COLL_OK; i++) {
        const coll_list_item *b = &call->list[i];
        if (b->count == 0) continue;
        if (b->send != COLL_IN_PLACE) status = coll__nccl_check_memory(comm, call, "send of a buffer", b->send);
        if (status == COLL_OK) status = coll__nccl_check_memory(comm, call, "recv of a buffer", b->recv);
    }
    if (call->kind == COLL_ALLREDUCE_LIST || call->kind == COLL_BARRIER || status < 0) return status;
    coll__sides_of(comm, call, &sides[0], &sides[1]);
    for (int i = 0; i < 2 && status == COLL_OK; i++) {
        const coll__image used = coll__image_of(&sides[i], coll_type_size(call->type));
        if (used.length) status = coll__nccl_check_memory(comm, call, sides[i].name, used.at);
    }
    if (status == COLL_OK && call->residual && call->count)
        status = coll__nccl_check_memory(comm, call, "residual", call->residual);
    return status;
}

/* NCCL matches messages by their order only, and one from a rank to itself within a group only. */
static coll_status coll__nccl_check_message(coll_comm *comm, const coll_request *r)
{
    const coll_call *c = &r->call;
    const bool sends = c->kind != COLL_RECV, receives = c->kind != COLL_SEND;
    const int source = c->kind == COLL_SENDRECV ? c->source : c->peer;

    if (receives && (source == COLL_ANY_SOURCE || (c->kind == COLL_RECV && c->tag == COLL_ANY_TAG)))
        return coll__explain_error(comm, c, COLL_ERR_UNSUPPORTED, "between GPUs a receive has to name its source and tag");
    const bool is_lone = (sends && c->peer == comm->rank) != (receives && source == comm->rank);
    if (is_lone && r->is_blocking)
        return coll__explain_error(comm, c, COLL_ERR_UNSUPPORTED, "between GPUs a message to the rank itself takes "
                                   "coll_sendrecv, or coll_isend and coll_irecv");
    return COLL_OK;
}

/* Part `i` of a call: one of a list, as a call; or the call itself.  Returns its method, and why. */
static coll__nccl_way coll__nccl_part(const coll_comm *comm, const coll_request *r, int i, coll_call *one, coll__codec *codec,
                                      const char **why)
{
    *one = r->call;
    *codec = r->codec;
    if (r->call.kind == COLL_ALLREDUCE_LIST) {
        const coll_list_item *b = &r->call.list[i];
        one->kind = COLL_ALLREDUCE;
        one->send = b->send == COLL_IN_PLACE ? b->recv : b->send;
        one->recv = b->recv;
        one->count = b->count;
        one->type = b->type;
        one->wire = r->call.wire ? r->call.wire : b->type;
        one->seed = coll__seed_of(~r->call.seed, (uint64_t)i);
        one->list = NULL;
        one->list_count = 0;
        (void)coll__codec_reduce(codec, one, comm->size, NULL, 0);
    }
    return coll__nccl_way_of(comm, one, codec, why);
}

/* Memory of the device that a call needs besides its buffers. */
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
    coll__sides_of(comm, call, &send, &recv);
    return coll__image_of(&send, unit).length;
}

/* The worst method of a call, with its reason: for a list, that of a part by the host, if there is one.  *need: memory of the
 * device besides the buffers. */
static coll__nccl_way coll__nccl_way_of_all(const coll_comm *comm, const coll_request *r, const char **why, size_t *need)
{
    const int parts = r->call.kind == COLL_ALLREDUCE_LIST ? r->call.list_count : 1;
    coll__nccl_way worst = COLL__BY_NCCL;

    *why = "an empty list";
    *need = 0;
    for (int i = 0; i < parts; i++) {
        const char *reason = NULL;
        coll__codec codec;
        coll_call one;
        const coll__nccl_way way = coll__nccl_part(comm, r, i, &one, &codec, &reason);
        if (way >= worst) worst = way, *why = reason;
        *need = coll__most(*need, coll__nccl_need(comm, &one, way));
    }
    return worst;
}

/* A captured stream can have neither new memory nor the host. */
static coll_status coll__nccl_check_capture(coll_comm *comm, const coll_request *r)
{
    const char *why = NULL;
    size_t need;

    if (coll__nccl_way_of_all(comm, r, &why, &need) == COLL__BY_HOST)
        return coll__explain_error(comm, &r->call, COLL_ERR_UNSUPPORTED, "the stream is being captured, and this call goes by "
                                   "the host (%s)", why);
    if (need <= coll__nccl_of(comm)->scratch.length) return COLL_OK;
    return coll__explain_error(comm, &r->call, COLL_ERR_UNSUPPORTED, "the stream is being captured, and %zu bytes of memory are "
                               "needed: make such a call before", need);
}

static coll_status coll__nccl_bind(coll_request *r)
{
    coll_comm *comm = r->comm;
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

#endif /* COLL_NCCL_CHECKS_H */
