/* coll_nccl.h - buffers in the memory of GPUs: calls are enqueued in a stream, and NCCL carries them out.
 *
 * This is no transport but an extension of communicators (coll_comm.h), whose ranks are connected by a transport.  That transport
 * reports failures, detects ranks that wait in different calls, splits and shrinks.  A call has a number and a fingerprint like
 * any other.  It stays in the queue of its order until its event is complete.
 *
 * A derived communicator has its own of NCCL: its rank 0 creates an id, which the host broadcasts. */
#ifndef COLL_NCCL_H
#define COLL_NCCL_H

#if defined(COLL_WITH_NCCL)

#include "nccl/coll_nccl_abi.h"                   /* the functions of NCCL and of the driver, with own declarations */
#include "nccl/coll_nccl_ptx.h"                   /* the kernels, from coll_nccl_kernels.cu                 */
#include "nccl/coll_nccl_load.h"                  /* both libraries, loaded at run time                     */
#include "nccl/coll_nccl_gpu.h"                   /* the device: its context, kernels, memory, events       */
#include "nccl/coll_nccl_state.h"                 /* a communicator of NCCL that extends one of the library; its failures */
#include "nccl/coll_nccl_ways.h"                  /* which method a call uses, and why                      */
#include "nccl/coll_nccl_calls.h"                 /* by NCCL alone                                          */
#include "nccl/coll_nccl_sums.h"                  /* by NCCL and kernels                                    */
#include "nccl/coll_nccl_host.h"                  /* by the host                                            */
#include "nccl/coll_nccl_checks.h"                /* what is rejected                                       */
#include "nccl/coll_nccl_begin.h"                 /* calls are enqueued in the stream, and polled           */
#include "nccl/coll_nccl_handshake.h"             /* the ranks of an NCCL communicator join over TCP        */

/* ---- >>communicators for the memory of the host ---- */

static const char *coll__nccl_inspect(const coll__session *session, const void *at)
{
    coll__cuda_result (*attribute)(void *value, unsigned which, coll__cuda_address address);
    unsigned kind = 0, is_managed = 0;

    memcpy(&attribute, &session->inspector, sizeof attribute);
    if (attribute(&kind, COLL__CUDA_POINTER_MEMORY_TYPE, coll__cuda_at(at)) != COLL__CUDA_SUCCESS) return NULL;
    (void)attribute(&is_managed, COLL__CUDA_POINTER_IS_MANAGED, coll__cuda_at(at));
    if (kind != COLL__CUDA_MEMORY_DEVICE || is_managed) return NULL;
    return "in the memory of a GPU: this communicator is for the memory of the host, and coll_init_nccl makes one for that of "
           "GPUs";
}

/* If the program has loaded the driver, buffers in the memory of a GPU are detected before they are read. */
static void coll__nccl_opened(coll__session *session)
{
    const char *asked = coll__variable("COLL_CUDA_LIB");
    void *const driver = dlopen(asked && *asked ? asked : "libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    if (!driver) return;
    if (coll__library_find(driver, "cuPointerGetAttribute", &session->inspector)) session->inspect = coll__nccl_inspect;
    dlclose(driver);                              /* its owner and GPUs keep it loaded                        */
    for (coll_comm *comm = session->comms; comm && session->inspect; comm = comm->next)
        coll__plans_forget(comm);                 /* drops plans that lack this check                         */
}

/* ---- >>communicators ---- */

/* The session has failed: aborts, because kernels would wait for other ranks forever. */
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

/* Returns whether all that was begun is complete, after a short wait. */
static bool coll__nccl_is_idle(const coll__nccl *me)
{
    return !me->last || coll__gpu_wait(me->gpu, NULL, me->last->event, COLL__DELIVER_MS);
}

/* Ends without a failure: what was begun completes first. */
static void coll__nccl_finalize(coll__nccl *me)
{
    const coll__nccl_result is = me->gpu->nccl.CommFinalize(me->comm);
    const bool is_requested = is == COLL__NCCL_SUCCESS || is == COLL__NCCL_IN_PROGRESS;

    if (is_requested && coll__gpu_wait(me->gpu, me->comm, NULL, COLL__DELIVER_MS)) (void)me->gpu->nccl.CommDestroy(me->comm);
    else (void)me->gpu->nccl.CommAbort(me->comm);
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
    coll__gpu_memory_free(gpu, &me->scratch, false, is_idle);
    coll__gpu_memory_free(gpu, &me->pinned, true, is_idle);
    if (is_inside) coll__gpu_leave(gpu);
    if (--gpu->holders == 0) coll__gpu_free(gpu, is_idle);
    coll__give(me);
    comm->extension = NULL;
    comm->extended = NULL;
}

static coll_status coll__nccl_derive(coll_comm *parent, coll_comm *child);

static const coll__carrier coll__nccl_carrier = {
    .name = "nccl",
    .traits = COLL__AT_CALL | COLL__AS_A_WHOLE | COLL__OWNER_ONLY | COLL__WAKES_NONE,
    .bind = coll__nccl_bind,
    .start = coll__nccl_start,
    .advance = coll__nccl_advance,
    .explain = coll__nccl_explain,
};

static const coll__extension coll__nccl_extension = {
    .name = "nccl",
    .carrier = &coll__nccl_carrier,
    .derive = coll__nccl_derive,
    .end = coll__nccl_end,
    .close = coll__nccl_close,
    .opened = coll__nccl_opened,
};

/* Adds a device to `comm`, with the memory that every call needs.  Takes over a hold on the device.  NULL: no memory. */
static coll__nccl *coll__nccl_attach(coll_comm *comm, coll__gpu *gpu, struct CUstream_st *stream)
{
    coll__nccl *me = (coll__nccl *)coll__allocate(coll__like(comm), sizeof *me);
    void *room = NULL;

    if (me && coll__gpu_enter(gpu)) {
        room = coll__gpu_memory_have(gpu, &me->scratch, 1, false);
        coll__gpu_leave(gpu);
    }
    if (!room) {
        coll__give(me);
        if (--gpu->holders == 0) coll__gpu_free(gpu, true);
        return NULL;
    }
    me->owner = comm;
    me->gpu = gpu;
    me->stream = stream;
    me->is_own = true;
    comm->extension = &coll__nccl_extension;
    comm->extended = me;
    if (!comm->session->inspect) coll__nccl_opened(comm->session);
    return me;
}

/* Creates the communicator of NCCL: the host broadcasts rank 0's id. */
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
                          .timeout_ms = comm->session->start_timeout_ms };
    coll_status status = coll__run_by_host(comm, &r);
    if (status < 0) return status;
    me->comm = NULL;
    const coll__nccl_now before = coll__nccl_enter(me, comm->session->start_timeout_ms, &failure);
    me->now.status = COLL_OK;                     /* no communicator yet, which is no error                   */
    failure = (coll_failure){ COLL_OK, -1, "" };
    if (note.is != COLL__NCCL_SUCCESS) (void)coll__nccl_failed(me, "ncclGetUniqueId", note.is);
    if (me->now.status == COLL_OK) {
        me->now.is_in_group = true;               /* in progress: polled below, when it is known              */
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
    const int rank = child->session->rank;

    from->gpu->holders++;
    coll__nccl *me = coll__nccl_attach(child, from->gpu, from->stream);
    if (!me) {
        coll__set_failure(&failure, COLL_ERR_MEMORY, rank, "rank %d has no memory on its device", rank);
        return coll__comm_fail(child, &failure);
    }
    me->is_ordered = from->is_ordered;
    const coll_status status = coll__nccl_join(child);
    if (status < 0) coll__nccl_close(child);
    return status;
}

/* ---- >>creation ---- */

/* The device of another communicator of the session, or a new one; held by the caller. */
static coll__gpu *coll__nccl_gpu(const coll__session *session, int ordinal, char *why, size_t room)
{
    for (const coll_comm *comm = session->comms; comm; comm = comm->next) {
        coll__gpu *const gpu = comm->extension == &coll__nccl_extension ? coll__nccl_of(comm)->gpu : NULL;
        if (!gpu || gpu->ordinal != ordinal) continue;
        gpu->holders++;
        return gpu;
    }
    return coll__gpu_open(ordinal, why, room);
}

/* Returns whether a stream belongs to the device.  NULL is a stream of every device. */
static bool coll__nccl_has_stream(const coll__gpu *gpu, struct CUstream_st *stream)
{
    struct CUctx_st *context = NULL;
    bool is_ours = true;

    if (!stream || !coll__gpu_enter(gpu)) return true;
    is_ours = gpu->cuda.StreamGetCtx(stream, &context) == COLL__CUDA_SUCCESS && context == gpu->context;
    coll__gpu_leave(gpu);
    return is_ours;
}

/* A rank's status before anything is created. */
typedef struct coll__nccl_word { int32_t status; char why[220]; } coll__nccl_word;

/* All ranks exchange their status; if one has an error, all report which. */
static coll_status coll__nccl_agree(coll_comm *comm, const coll__nccl_word *mine, coll_comm *tell)
{
    coll__nccl_word *all = (coll__nccl_word *)coll__take_zeros(coll__like(comm), (size_t)comm->size, sizeof *all);
    coll_request r;

    if (!all) return coll__explain_error(tell, NULL, COLL_ERR_MEMORY, "no memory for %d ranks", comm->size);
    r.call = (coll_call){ .kind = COLL_ALLGATHER, .send = mine, .recv = all, .count = 1, .type = COLL_BLOB(sizeof *all),
                          .name = "init_nccl" };
    coll_status status = coll__run_by_host(comm, &r);
    if (status < 0) coll__sentence_copy(tell, comm);
    for (int i = 0; status == COLL_OK && i < comm->size; i++) {
        all[i].why[sizeof all[i].why - 1] = '\0';
        if (all[i].status == COLL_OK) continue;
        status = coll__explain_error(tell, NULL, (coll_status)all[i].status < 0 ? (coll_status)all[i].status : COLL_ERR_PROTOCOL,
                                     "nccl: rank %d: %s", i, all[i].why);
    }
    coll__give(all);
    return status;
}

/* Inside a call on `host`: a communicator of the same ranks, with a device. */
static coll_status coll__init_nccl_inside(coll_comm *host, int device, struct CUstream_st *stream, struct ncclComm *given,
                                          coll_comm **out)
{
    coll__nccl_word word = { COLL_OK, "" };
    coll_comm *comm = NULL;
    coll__nccl *me = NULL;

    coll_status status = coll__split_inside(host, 0, 0, &comm);
    if (status < 0) return status;
    comm->is_holder = host->is_holder;
    coll__gpu *gpu = coll__nccl_gpu(host->session, device, word.why, sizeof word.why);
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
        coll__sentence_copy(host, comm);
    host->is_holder = comm->is_holder;
    comm->is_holder = false;
    if (status == COLL_OK) {
        *out = comm;
        return COLL_OK;
    }
    if (comm->extension) coll__nccl_close(comm);
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
    if (host->extension)
        return coll__leave(host, coll__explain_error(host, NULL, COLL_ERR_ARGUMENT, "init_nccl: this communicator is for the "
                                                     "memory of a GPU already: take the one that it was made from"));
    return coll__leave(host, coll__init_nccl_inside(host, device, stream, NULL, out));
}

static coll_status coll__wrap_nccl(const coll__program *program, struct ncclComm *nccl, struct CUstream_st *stream,
                                   coll_comm **out)
{
    coll__nccl_handshake handshake = { .comm = nccl, .stream = stream };
    coll_comm *host = NULL;
    coll__nccl_calls calls;
    int size = 0, device = 0;
    char why[220] = "";

    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_wrap_nccl: out is NULL");
    *out = NULL;
    if (!nccl) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_wrap_nccl: the communicator is NULL");
    const bool is_loaded = coll__nccl_load(&calls, why, sizeof why);
    const bool is_known = is_loaded && calls.CommCount(nccl, &size) == COLL__NCCL_SUCCESS
                       && calls.CommCuDevice(nccl, &device) == COLL__NCCL_SUCCESS
                       && calls.CommUserRank(nccl, &handshake.rank) == COLL__NCCL_SUCCESS;
    if (calls.library) dlclose(calls.library);
    if (!is_loaded) return coll__start_failed(COLL_ERR_UNSUPPORTED, "coll_wrap_nccl: %s", why);
    if (!is_known) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_wrap_nccl: NCCL does not know the communicator");
    handshake.gpu = coll__gpu_open(device, why, sizeof why);
    if (!handshake.gpu) return coll__start_failed(COLL_ERR_UNSUPPORTED, "coll_wrap_nccl: %s", why);
    coll_status status = coll__nccl_has_stream(handshake.gpu, stream) ? COLL_OK
                       : coll__start_failed(COLL_ERR_ARGUMENT, "coll_wrap_nccl: the stream is none of device %d", device);
    if (status == COLL_OK) status = coll__nccl_handshake_run(program, &handshake, size, &host);
    if (status == COLL_OK) {
        status = coll__init_nccl_inside(host, device, stream, nccl, out);
        if (status < 0) (void)coll__start_failed(status, "%s", coll__sentence_of(host));
        coll__comm_close(host);
    }
    coll__gpu_free(handshake.gpu, true);
    return status;
}

/* ---- >>streams ---- */

/* Enter a communicator that has a device. */
static coll_status coll__nccl_enter_comm(coll_comm *comm, const char *what)
{
    const coll_status status = coll__enter_alive(comm);

    if (status < 0 || comm->extension == &coll__nccl_extension) return status;
    return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "%s: this communicator has no device", what));
}

/* Enqueues deferred messages. */
static coll_status coll__nccl_flush_now(coll_comm *comm)
{
    coll__nccl *me = coll__nccl_of(comm);
    coll_failure failure = { COLL_OK, -1, "" };
    const coll__nccl_now before = coll__nccl_enter(me, comm->session->stall_timeout_ms, &failure);

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

#else

static const coll__extension coll__nccl_extension = { .name = "nccl" };

#endif
#endif /* COLL_NCCL_H */
