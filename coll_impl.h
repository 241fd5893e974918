/* coll_impl.h - the map of the house, and its front door.
 *
 * In reading order; each part uses only what stands above it:
 *
 *   coll.h                       the contract and the manual
 *   core/coll_transport.h        what carries messages: the contract between the engine and the world
 *   core/coll_base.h             time, memory, text, log, the record of a failure
 *   core/coll_types.h            element types and conversions
 *   core/coll_kernels.h          all arithmetic: n sources -> wide accumulator -> one rounding -> m destinations
 *   core/coll_round.h            the vocabulary of algorithms: send, recv, copy, fold, in rounds
 *   core/coll_algorithms.h       the algorithms, pure functions of the round
 *   core/coll_comm.h             communicators, requests, fingerprints, the first failure
 *   core/coll_tuner.h            a cost model chooses the algorithm
 *   core/coll_check.h            the caller's mistakes, found before any byte moves
 *   core/coll_engine.h           runs an algorithm: slices, messages, folds
 *   core/coll_messages.h         send and recv
 *   core/coll_progress.h         moves everything on; the loop that waits
 *   core/coll_config.h           configuration and environment
 *   transports/coll_threads.h    ranks in one address space; takes whole collectives
 *   transports/coll_tcp.h        ranks in many processes, with its parts in transports/tcp/
 *   this file                    the public functions: each fills a coll_call, checks it, hands it on
 *
 * The way of a call: coll_allreduce -> coll_run -> coll__check -> coll__wait -> coll__advance -> either the transport's
 * offload (threads), or coll__flow_advance -> an algorithm's round -> the transport's send and recv. */
#ifndef COLL_IMPL_H
#define COLL_IMPL_H

#ifdef __cplusplus
#error "the implementation of coll.h is C11: put #define COLL_IMPLEMENTATION and #include \"coll.h\" into one .c file"
#endif
#ifndef __linux__
#error "the implementation of coll.h is for Linux"
#endif

#include <stdlib.h>
#if defined(__GLIBC__) && !defined(__USE_MISC)
#error "with -std=c11 include coll.h before any system header in the file that defines COLL_IMPLEMENTATION"
#endif

#include "core/coll_base.h"
#include "core/coll_types.h"
#include "core/coll_kernels.h"
#include "core/coll_round.h"
#include "core/coll_algorithms.h"
#include "core/coll_comm.h"
#include "core/coll_tuner.h"
#include "core/coll_check.h"
#include "core/coll_engine.h"
#include "core/coll_messages.h"
#include "core/coll_progress.h"
#include "core/coll_config.h"
#include "transports/coll_threads.h"
#include "transports/coll_tcp.h"

/* ---- >>entering: one thread at a time, not in a forked child, not after the end ---- */

static coll_status coll__enter(coll_comm *comm)
{
    if (!comm) return coll__start_failed(COLL_ERR_ARGUMENT, "the communicator is NULL");
    if (!*comm->guard) return COLL_ERR_FORKED;
    if (__atomic_exchange_n(&comm->is_busy, 1, __ATOMIC_ACQUIRE))
        return coll__start_failed(COLL_ERR_ARGUMENT, "rank %d: another thread is inside a call on this communicator", comm->rank);
    return COLL_OK;
}

static coll_status coll__leave(coll_comm *comm, coll_status status)
{
    __atomic_store_n(&comm->is_busy, 0, __ATOMIC_RELEASE);
    return status;
}

/* ---- >>communicators ---- */

static const char coll__forked_text[] = "this communicator belongs to the parent process: a forked child cannot use it";

/* A communicator over an open transport, which it takes over.  On failure the transport is closed. */
static coll_comm *coll__comm_new(const coll_transport *transport, void *context, int rank, int size, const coll__settings *s)
{
    coll_comm *comm = (coll_comm *)coll__allocate(sizeof *comm);

    if (comm) comm->guard = coll__fork_guard();
    if (!comm || !comm->guard) {
        free(comm);
        transport->close(context);
        coll__start_failed(COLL_ERR_MEMORY, "no memory for a communicator");
        return NULL;
    }
    comm->rank = rank;
    comm->size = size;
    comm->local_rank = s->local_rank;
    comm->local_size = s->local_size;
    comm->transport = transport;
    comm->context = context;
    comm->stall_timeout_ms = s->config.stall_timeout_ms;
    comm->log = (coll__log){ s->config.log_level, s->config.log, s->config.log_context };
    comm->link = coll__link_default;
    comm->failure.rank = -1;
    comm->queue_end = &comm->queue;
    comm->is_crowded = s->local_size > coll__processors();
    comm->spin_us = s->config.spin_us > 0 ? s->config.spin_us : s->config.spin_us < 0 ? 0 : 50;
    return comm;
}

/* `count` ranks that share a hub. */
static coll_status coll__open_threads(int count, coll_comm **out, coll__settings *s)
{
    coll__hub *hub = coll__hub_open(count);
    coll_status status = hub ? COLL_OK : coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);

    for (int i = 0; i < count; i++) out[i] = NULL;
    for (int i = 0; i < count && status == COLL_OK; i++) {
        coll__thread *me = coll__thread_open(hub, i);
        if (me) {
            hub->holders++;
            s->local_rank = i;
            out[i] = coll__comm_new(&coll__threads_transport, me, i, count, s);
        }
        if (!out[i]) status = coll__start_failed(COLL_ERR_MEMORY, "no memory for rank %d of %d", i, count);
    }
    for (int i = 0; i < count && status < 0; i++) {
        coll_free(out[i]);
        out[i] = NULL;
    }
    if (hub) coll__hub_release(hub);
    return status;
}

static coll_status coll__open_tcp(coll_comm **out, coll__settings *s)
{
    const coll_config *c = &s->config;
    const coll__log log = { c->log_level, c->log, c->log_context };
    coll__tcp *tcp = NULL;
    const coll_status status = coll__tcp_open(&tcp, s, &log);

    if (status < 0) return status;
    *out = coll__comm_new(&coll__tcp_transport, tcp, c->rank, c->size, s);
    if (!*out) return COLL_ERR_MEMORY;
    if ((*out)->is_crowded && c->spin_us == 0) (*out)->spin_us = 0;       /* spinning would keep the others from running */
    coll__say(&log, COLL_LOG_INFO, "rank %d of %d (from %s), rank %d of %d on its host, over tcp at %s with %s", c->rank, c->size,
              s->source, s->local_rank, s->local_size, c->address, coll__tcp_transport.describe(tcp));
    return COLL_OK;
}

COLL_API coll_status coll_init(coll_comm **out, const coll_config *config)
{
    coll__settings s;

    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init: out is NULL");
    *out = NULL;
    const coll_status status = coll__settle(&s, config);
    if (status < 0) return status;
    const char *name = s.config.transport ? s.config.transport : s.config.size > 1 ? "tcp" : "threads";
    if (!strcmp(name, "threads") && s.config.size > 1)
        return coll__start_failed(COLL_ERR_ARGUMENT,
                                  "coll_init makes one rank: for %d ranks that are threads call coll_init_threads",
                                  s.config.size);
    if (!strcmp(name, "threads") || (!strcmp(name, "tcp") && s.config.size == 1)) return coll__open_threads(1, out, &s);
    if (!strcmp(name, "tcp")) return coll__open_tcp(out, &s);
    return coll__start_failed(COLL_ERR_ARGUMENT, "transport \"%.32s\" is none of tcp, threads", name);
}

COLL_API coll_status coll_init_threads(int count, coll_comm **out, const coll_config *config)
{
    coll_config only = { 0 };
    coll__settings s;
    int outside = 0;

    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init_threads: out is NULL");
    if (count < 1 || count > COLL__SIZE_MOST)
        return coll__start_failed(COLL_ERR_ARGUMENT, "%d ranks are not within 1 to %d", count, COLL__SIZE_MOST);
    out[0] = NULL;
    if (config) only = *config;
    if (only.size == 0 && !coll__environment_int("COLL_SIZE", 1, COLL__SIZE_MOST, &outside)) return COLL_ERR_ARGUMENT;
    if (only.size > count || outside > count)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "%d threads of a job of %d ranks: threads cannot join other processes "
                                  "in one communicator", count, only.size > count ? only.size : outside);
    only.rank = 0;
    only.size = 1;                                /* the launcher's rank and size are not ours                */
    const coll_status status = coll__settle(&s, &only);
    if (status < 0) return status;
    s.local_size = count;
    return coll__open_threads(count, out, &s);
}

COLL_API coll_status coll_init_custom(const coll_transport *transport, void *context, int rank, int size, coll_comm **out)
{
    coll__settings s;
    coll_config only = { 0 };

    if (!out || !transport || !transport->send || !transport->recv || !transport->progress || !transport->close)
        return coll__start_failed(COLL_ERR_ARGUMENT,
                                  "coll_init_custom: out is NULL, or the transport lacks send, recv, progress or close");
    *out = NULL;
    if (size < 1 || size > COLL__SIZE_MOST || rank < 0 || rank >= size)
        return coll__start_failed(COLL_ERR_ARGUMENT, "rank %d of %d makes no sense", rank, size);
    only.size = 1;
    const coll_status status = coll__settle(&s, &only);
    if (status < 0) return status;
    *out = coll__comm_new(transport, context, rank, size, &s);
    return *out ? COLL_OK : COLL_ERR_MEMORY;
}

enum { COLL__DELIVER_MS = 600 };                  /* with a verdict and a flush, coll_free stays under 2 s    */

/* What others await is delivered first; what is still running then is given up. */
COLL_API coll_status coll_free(coll_comm *comm)
{
    if (!comm) return COLL_OK;
    if (*comm->guard) {
        const int64_t deadline = coll__deadline(COLL__DELIVER_MS);
        while (comm->failure.status == COLL_OK && !coll__messages_delivered(comm) && coll__now() < deadline)
            if (coll__advance(comm, 10) < 0) break;
        if (comm->queue && comm->failure.status == COLL_OK) {
            coll_failure failure = { COLL_ERR_PEER, comm->rank, "" };
            coll__print(failure.text, sizeof failure.text, "rank %d has left the communicator in the middle of an operation",
                        comm->rank);
            if (comm->transport->fail) (void)comm->transport->fail(comm->context, &failure);
        }
        comm->transport->close(comm->context);
        coll__queue_end_all(comm, COLL_ERR_ABORTED);
        coll__messages_end_all(comm, COLL_ERR_ABORTED);
    }
    coll__messages_free(comm);
    coll__fork_guard_free(comm->guard);
    free(comm->arena);
    free(comm);
    return COLL_OK;
}

COLL_API int coll_rank(const coll_comm *comm) { return comm ? comm->rank : -1; }
COLL_API int coll_size(const coll_comm *comm) { return comm ? comm->size : 0; }
COLL_API int coll_local_rank(const coll_comm *comm) { return comm ? comm->local_rank : -1; }
COLL_API int coll_local_size(const coll_comm *comm) { return comm ? comm->local_size : 0; }

COLL_API const char *coll_error(const coll_comm *comm)
{
    if (!comm) return coll__start_error;
    return *comm->guard ? comm->error : coll__forked_text;
}

/* ---- >>spawn ---- */

typedef struct coll__worker {
    pthread_t  thread;
    coll_comm *comm;
    int      (*fn)(coll_comm *comm, void *arg);
    void      *arg;
    int        result;
    bool       is_running;
} coll__worker;

static void *coll__worker_main(void *at)
{
    coll__worker *w = (coll__worker *)at;

    w->result = w->fn(w->comm, w->arg);
    coll_free(w->comm);
    return NULL;
}

COLL_API int coll_spawn(int count, int (*fn)(coll_comm *comm, void *arg), void *arg)
{
    if (!fn) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_spawn: fn is NULL");
    if (count < 1 || count > COLL__SIZE_MOST)
        return coll__start_failed(COLL_ERR_ARGUMENT, "%d ranks are not within 1 to %d", count, COLL__SIZE_MOST);
    coll_comm **comms = (coll_comm **)calloc((size_t)count, sizeof *comms);
    coll__worker *workers = (coll__worker *)calloc((size_t)count, sizeof *workers);
    int result = comms && workers ? coll_init_threads(count, comms, NULL)
                                  : coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);
    int error = 0;

    for (int i = count - 1; i >= 0 && result == 0; i--) {
        workers[i] = (coll__worker){ .comm = comms[i], .fn = fn, .arg = arg };
        if (i == 0) coll__worker_main(&workers[0]);           /* rank 0 is the caller's thread */
        else if (!error && (error = pthread_create(&workers[i].thread, NULL, coll__worker_main, &workers[i])) == 0)
            workers[i].is_running = true;
        if (error) {                              /* those that run are told that the others will not come    */
            for (int k = i; k >= 0; k--) coll_free(comms[k]);
            result = coll__start_failed(COLL_ERR_SYSTEM, "rank %d of %d: no thread: %s", i, count, strerror(error));
        }
    }
    for (int i = 0; workers && i < count; i++) {
        if (workers[i].is_running) pthread_join(workers[i].thread, NULL);
        if (result == 0) result = workers[i].result;
    }
    free(workers);
    free(comms);
    return result;
}

/* ---- >>calls ---- */

/* Everything of a request but the flow, which its start sets. */
static void coll__request_init(coll_request *r, coll_comm *comm)
{
    r->comm = comm;
    r->next = NULL;
    r->status = COLL_PENDING;
    r->is_detached = r->is_started = false;
    r->sending = r->receiving = NULL;
    r->got_source = r->got_tag = -1;
    r->got_count = 0;
    r->is_offloaded = comm->transport->offload && !r->call.algorithm;
    const bool is_message = coll__kind_is_message(r->call.kind);
    if (!is_message) r->sequence = ++comm->sequence;
    coll__head_of_call(r->head, &r->call, is_message ? 0 : r->sequence);
    r->task = (coll_task){ &r->call, r->head, &r->codec, { 0 } };
}

/* Start a checked call whose request lives at `r`. */
static coll_status coll__launch(coll_comm *comm, coll_request *r)
{
    coll__request_init(r, comm);
    if (coll__kind_is_message(r->call.kind)) {
        const coll_status status = coll__messages_start(r);
        return status < 0 ? status : coll__advance(comm, 0);     /* on its way, also if nobody waits for it    */
    }
    const bool is_first = comm->queue == NULL;
    coll__queue_append(comm, r);
    return is_first ? coll__queue_advance(comm) : COLL_OK;
}

/* Carry out the call in r->call, on this rank's stack. */
static coll_status coll__run(coll_comm *comm, coll_request *r)
{
    coll_status status = coll__enter(comm);

    if (status < 0) return status;
    if (comm->failure.status != COLL_OK) return coll__leave(comm, comm->failure.status);
    status = coll__check(comm, &r->call, &r->codec);
    if (status == COLL_OK) status = coll__launch(comm, r) < 0 ? r->status : coll__wait(r);
    return coll__leave(comm, status == COLL_PENDING ? comm->failure.status : status);
}

COLL_API coll_status coll_run(coll_comm *comm, const coll_call *call)
{
    coll_request r;

    if (call) {
        r.call = *call;
        return coll__run(comm, &r);
    }
    const coll_status status = coll__enter(comm);
    return status < 0 ? status : coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "the call is NULL"));
}

COLL_API coll_status coll_start(coll_comm *comm, const coll_call *call, coll_request **out)
{
    coll_status status = coll__enter(comm);

    if (status < 0) return status;
    if (out) *out = NULL;
    if (!call || !out) return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "the call or out is NULL"));
    if (comm->failure.status != COLL_OK) return coll__leave(comm, comm->failure.status);
    coll_request *r = (coll_request *)coll__allocate(sizeof *r);
    if (!r) return coll__leave(comm, coll__explain_error(comm, call, COLL_ERR_MEMORY, "no memory for a request"));
    r->call = *call;
    status = coll__check(comm, &r->call, &r->codec);
    if (status < 0) {
        free(r);
        return coll__leave(comm, status);
    }
    *out = r;
    coll_status begun = coll__launch(comm, r);
    if (begun >= 0 && r->status == COLL_PENDING) begun = coll__advance(comm, 0);
    if (begun < 0 && r->status == COLL_PENDING) r->status = comm->failure.status;
    return coll__leave(comm, COLL_OK);            /* errors from here on are the request's                    */
}

/* ---- >>requests ---- */

COLL_API coll_status coll_test(coll_request *request)
{
    if (!request || request->status != COLL_PENDING) return request ? request->status : COLL_OK;
    coll_comm *comm = request->comm;
    const coll_status status = coll__enter(comm);
    if (status < 0) return status;
    (void)coll__advance(comm, 0);
    return coll__leave(comm, request->status);
}

COLL_API coll_status coll_wait(coll_request *request)
{
    if (!request || request->status != COLL_PENDING) return request ? request->status : COLL_OK;
    coll_comm *comm = request->comm;
    const coll_status status = coll__enter(comm);
    return status < 0 ? status : coll__leave(comm, coll__wait(request));
}

COLL_API coll_status coll_wait_all(int count, coll_request **requests)
{
    coll_status first = COLL_OK;

    if (count < 0 || (count > 0 && !requests))
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_wait_all: %d requests make no sense", count);
    for (int i = 0; i < count; i++) {
        const coll_status status = coll_wait(requests[i]);
        if (first == COLL_OK) first = status;
    }
    return first;
}

COLL_API coll_status coll_wait_any(int count, coll_request **requests, int *index)
{
    int pending = 0;

    if (count < 0 || (count > 0 && !requests) || !index)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_wait_any: %d requests make no sense, or index is NULL", count);
    *index = -1;
    bool *was_pending = (bool *)calloc((size_t)count + 1, sizeof *was_pending);
    if (!was_pending) return coll__start_failed(COLL_ERR_MEMORY, "coll_wait_any: no memory for %d requests", count);
    for (int i = 0; i < count; i++)
        if (requests[i] && requests[i]->status == COLL_PENDING) was_pending[i] = true, pending++;
    for (int looks = 0; pending > 0 && *index < 0; looks++) {
        for (int i = 0; i < count && *index < 0; i++)
            if (was_pending[i] && coll_test(requests[i]) != COLL_PENDING) *index = i;
        if (*index < 0 && looks > COLL__LOOKS_A_CLOCK) sched_yield();
    }
    free(was_pending);
    return *index < 0 ? COLL_OK : requests[*index]->status;
}

COLL_API coll_status coll_received(const coll_request *request, int *source, int *tag, size_t *count)
{
    if (!request || request->status == COLL_PENDING || request->got_source < 0)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_received: the request is no finished receive");
    if (source) *source = request->got_source;
    if (tag) *tag = request->got_tag;
    if (count) *count = request->got_count;
    return COLL_OK;
}

COLL_API void coll_request_free(coll_request *request)
{
    if (!request) return;
    if (request->status == COLL_PENDING) request->is_detached = true;
    else free(request);
}

COLL_API coll_status coll_progress(coll_comm *comm)
{
    const coll_status status = coll__enter(comm);
    if (status < 0) return status;
    const coll_status moved = coll__advance(comm, 0);
    return coll__leave(comm, moved < 0 ? moved : COLL_OK);
}

/* ---- >>seeing ---- */

static const char *coll__plural(long count) { return count == 1 ? "" : "s"; }

COLL_API int coll_explain(coll_comm *comm, const coll_call *call, char *text, size_t length)
{
    char what[96];
    coll_request r;
    coll_status status = coll__enter(comm);

    if (status < 0) return status;
    if (!call || (length > 0 && !text))
        return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "the call or text is NULL"));
    r.call = *call;
    r.comm = comm;
    if ((status = coll__check(comm, &r.call, &r.codec)) < 0) return coll__leave(comm, status);
    coll__head_of_call(r.head, &r.call, 0);
    coll__head_describe(r.head, what, sizeof what);
    const char *how = comm->transport->describe ? comm->transport->describe(comm->context) : "";
    const bool is_message = coll__kind_is_message(r.call.kind);
    if (is_message || (comm->transport->offload && !r.call.algorithm)) {
        coll__leave(comm, COLL_OK);
        return snprintf(text, length, "%s on %d rank%s over %s (%s): %s", what, comm->size, coll__plural(comm->size),
                        comm->transport->name, how,
                        is_message ? "one message" : "the transport's own way");
    }
    coll__flow_plan(&r);
    coll__leave(comm, COLL_OK);
    const coll__flow *f = &r.flow;
    return snprintf(text, length, "%s on %d rank%s over %s (%s): %s, radix %d, %d round%s, %ld slice%s, about %.3g us", what,
                    comm->size, coll__plural(comm->size), comm->transport->name, how, f->algorithm->name, f->radix, f->rounds,
                    coll__plural(f->rounds), f->slices, coll__plural(f->slices), f->seconds * 1e6);
}

COLL_API void coll_traffic(const coll_comm *comm, uint64_t *sent, uint64_t *received)
{
    uint64_t out = 0, in = 0;

    if (comm && *comm->guard && comm->transport->traffic) comm->transport->traffic(comm->context, &out, &in);
    if (sent) *sent = out;
    if (received) *received = in;
}

/* ---- >>wrappers: each operation, blocking and not, fills the same coll_call ---- */

/* The fields that most calls have.  Field by field: compilers clear a whole struct with an instruction that takes longer
 * than the rest of a short call. */
static inline coll_call coll__call_of(coll_kind kind, const void *send, void *recv, size_t count, coll_type type, coll_op op,
                                      int root)
{
    coll_call call;

    call.kind = kind;
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.type = type;
    call.wire = 0;
    call.op = op;
    call.root = root;
    call.tag = call.source = 0;
    call.recv_count = 0;
    call.timeout_ms = 0;
    call.algorithm = call.name = NULL;
    return call;
}

/* coll_NAME and coll_iNAME: `fields` begin the call, `rest` completes it. */
#define COLL__BOTH(name, parameters, fields, rest)                                                          \
    COLL_API coll_status coll_##name(COLL__UNPACK parameters)                                               \
    {                                                                                                       \
        coll_request r;                                                                                     \
        coll_call *const call = &r.call;                                                                    \
        *call = coll__call_of fields;                                                                       \
        rest;                                                                                               \
        return coll__run(comm, &r);                                                                         \
    }                                                                                                       \
    COLL_API coll_status coll_i##name(COLL__UNPACK parameters, coll_request **out)                          \
    {                                                                                                       \
        coll_call of_this, *const call = &of_this;                                                          \
        *call = coll__call_of fields;                                                                       \
        rest;                                                                                               \
        return coll_start(comm, call, out);                                                                 \
    }
#define COLL__UNPACK(...) __VA_ARGS__

COLL__BOTH(barrier, (coll_comm *comm), (COLL_BARRIER, NULL, NULL, 0, 0, COLL_SUM, 0), (void)0)

COLL__BOTH(broadcast, (coll_comm *comm, void *buffer, size_t count, coll_type type, int root),
           (COLL_BROADCAST, NULL, buffer, count, type, COLL_SUM, root), (void)0)

COLL__BOTH(reduce, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op, int root),
           (COLL_REDUCE, send, recv, count, type, op, root), (void)0)

COLL__BOTH(allreduce, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op),
           (COLL_ALLREDUCE, send, recv, count, type, op, 0), (void)0)

COLL__BOTH(allreduce_mixed,
           (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_type wire, coll_op op),
           (COLL_ALLREDUCE, send, recv, count, type, op, 0), call->wire = wire)

COLL__BOTH(reduce_scatter, (coll_comm *comm, const void *send, void *recv, size_t recv_count, coll_type type, coll_op op),
           (COLL_REDUCE_SCATTER, send, recv, recv_count, type, op, 0), (void)0)

COLL__BOTH(allgather, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type),
           (COLL_ALLGATHER, send, recv, count, type, COLL_SUM, 0), (void)0)

COLL__BOTH(send, (coll_comm *comm, const void *buffer, size_t count, coll_type type, int peer, int tag),
           (COLL_SEND, buffer, NULL, count, type, COLL_SUM, peer), call->tag = tag)

COLL__BOTH(recv, (coll_comm *comm, void *buffer, size_t count, coll_type type, int peer, int tag),
           (COLL_RECV, NULL, buffer, count, type, COLL_SUM, peer), call->tag = tag)

COLL__BOTH(sendrecv,
           (coll_comm *comm, const void *send, size_t send_count, int dest, void *recv, size_t recv_count, int source,
            coll_type type, int tag),
           (COLL_SENDRECV, send, recv, send_count, type, COLL_SUM, dest),
           (call->recv_count = recv_count, call->source = source, call->tag = tag))

#undef COLL__BOTH
#undef COLL__UNPACK

#endif /* COLL_IMPL_H */
