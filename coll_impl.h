/* coll_impl.h - the list of all parts, and the public functions.
 *
 * The map: the files are included in reading order; each part uses only parts above it.  Parts in folders include what they use,
 * so that each can be compiled alone.  tests/layers.sh checks both.  docs/design.md describes the folders.  coll.h includes
 * core/base/coll_features.h (switches and profiles) and the interfaces in core/contract that are public.
 *
 * The path of a call: coll_allreduce -> coll__run_simple -> coll__plan_ready (checks, plan, carrier) -> coll__launch ->
 * coll__wait -> coll__advance -> coll__order_advance -> the carrier's advance: the transport's offload (threads), or
 * coll__execution_advance -> an algorithm's round -> the transport's send and recv (by key for derived communicators and
 * prepared calls).  If nothing runs before it, a blocking call goes from its checks directly to the transport's offload; if it
 * fits the plan of its kind, from coll__run_simple. */
#ifndef COLL_IMPL_H
#define COLL_IMPL_H

#include "core/base/coll_platform_check.h"        /* refuses unsuitable compilers and options; pragmas for the rest */
#if !defined(COLL__REFUSED)

#include "core/base/coll_sizes.h"                 /* sizes of buffers, caches and limits                    */
#include "core/base/coll_base.h"                  /* arithmetic, processors, time, numbers as bytes, memory */
#include "core/base/coll_cpu.h"                   /* instruction sets of the processor                      */
#include "core/base/coll_text.h"                  /* sentences: texts, log lines, asserts, failures         */
#include "core/base/coll_arena.h"                 /* an allocator in one block of the program's memory      */
#include "core/base/coll_environment.h"           /* environment variables as texts and numbers, and fields that they fill */
#include "core/base/coll_segment.h"               /* memory that processes of one host share                */
#include "core/base/coll_hmac.h"                  /* proof of a shared key: SHA-256, HMAC, nonces           */
#include "core/numbers/coll_types.h"              /* element types, kernel tiers, conversion of single numbers */
#include "core/numbers/coll_arithmetic.h"         /* where this program's arithmetic differs from IEEE 754  */
#include "core/numbers/coll_stream_store.h"       /* streaming stores                                       */
#include "core/numbers/coll_simd.h"               /* vectors of sixteen elements, for the tiers of x86-64   */
#include "core/numbers/coll_convert.h"            /* conversion of arrays of floats                         */
#include "core/numbers/coll_stochastic.h"         /* the same with stochastic rounding                      */
#include "core/numbers/coll_reproducible.h"       /* sums that do not depend on the order of the terms      */
#include "core/numbers/coll_overflow.h"           /* detection of infinities and NaNs                       */
#include "core/numbers/coll_mx.h"                 /* groups of numbers with a common exponent, for the wire */
#include "core/numbers/coll_reduce_ops.h"         /* folds of two sources: the table of all (type, operation) pairs */
#include "core/numbers/coll_sums16.h"             /* sums of 16-bit floats, by special instructions         */
#include "core/numbers/coll_codec.h"              /* formats of elements in memory, on the wire and in sums */
#include "core/numbers/coll_reduce_kernels.h"     /* all arithmetic: n sources -> accumulator -> one rounding -> m destinations */
#include "core/numbers/coll_leaf_sum.h"           /* sums of runs of leaves, one leaf after the other       */
#include "core/algorithms/coll_round.h"           /* steps of algorithms: send, recv, copy, fold, in rounds */
COLL__FOR_SIZE
#include "core/algorithms/coll_ring_bruck.h"      /* rounds at fixed distances on a circle: circulant, alltoall, direct, ring */
#include "core/algorithms/coll_tree.h"            /* rounds with a root: tree and chain                     */
#include "core/algorithms/coll_blocks.h"          /* broadcast and reduce of n blocks in the fewest rounds  */
#include "core/algorithms/coll_scan.h"            /* prefix sums, and the census                            */
#include "core/algorithms/coll_link_model.h"      /* numbers of the link, and the length of slices          */
#include "core/algorithms/coll_cost.h"            /* costs of algorithms, as closed forms                   */
#include "core/algorithms/coll_algorithms.h"      /* the algorithms, composed of these, and their table     */
#include "core/algorithms/coll_tuner.h"           /* the candidates for a call, and the choice by the cost model */
COLL__FOR_SPEED
#include "core/contract/coll_shape.h"             /* blocks in the buffers of each kind of call: a row for each kind */
COLL__FOR_SIZE
#include "core/contract/coll_keyvalue.h"          /* numbers with units as texts, and texts of such words   */
#include "core/contract/coll_tuning.h"            /* link numbers for the cost model, as text and in a file */
#include "core/contract/coll_transport_registry.h" /* opening transports: settings and results              */
#include "core/membership/coll_decision.h"        /* quorum, decisions, and their notes as bytes            */
#if COLL__HAS_SIM || COLL__HAS_TCP
#include "core/membership/coll_newcomers.h"       /* the order of ranks when newcomers take places          */
#include "core/membership/coll_consensus.h"       /* how the members of a world decide: Paxos               */
#endif
#include "core/engine/coll_topology.h"            /* ranks grouped by host                                  */
COLL__FOR_SPEED
#include "core/engine/coll_comm.h"                /* sessions, communicators, orders, requests; fingerprints */
COLL__FOR_SIZE
#include "core/engine/coll_error_text.h"          /* descriptions of calls, and error sentences             */
#include "core/engine/coll_flight_recorder.h"     /* the flight recorder: the last operations, written after a failure */
#include "core/engine/coll_strides.h"             /* blocks that are columns of a matrix: packing, unpacking */
COLL__FOR_SPEED
#include "core/engine/coll_activity.h"            /* what this rank is doing, and which communicators were freed */
#include "core/engine/coll_p2p_hooks.h"           /* messages by key, as seen by other parts                */
#include "core/engine/coll_request_pool.h"        /* memory of requests                                     */
#include "core/engine/coll_request.h"             /* begin and end of requests; the first failure, which ends all */
#include "core/engine/coll_workspace.h"           /* memory of running calls                                */
#include "core/engine/coll_order.h"               /* orders: collectives that run one after the other; choice of carriers */
#include "core/engine/coll_plan.h"                /* the checked parts of a plain call, for later calls of its kind */
#include "core/engine/coll_check_arguments.h"     /* checks of arguments, before any byte is sent; defaults */
#include "core/engine/coll_check_strides.h"       /* the same for strides, which are replaced by packed buffers */
COLL__FOR_SIZE
#include "core/engine/coll_p2p_match.h"           /* matching of messages and receives: bins                */
#include "core/engine/coll_p2p_protocol.h"        /* notes of messages by key, and sending                  */
#if COLL__HAS_MESSAGES
#include "core/engine/coll_p2p.h"                 /* messages by key: send and recv, and collectives without a common order */
COLL__FOR_SPEED
#include "core/engine/coll_execution.h"           /* plans of executions: layouts, slices, memory; the cache of an order */
#include "core/engine/coll_engine.h"              /* runs an algorithm: slices, messages, folds             */
#else
COLL__FOR_SPEED
#endif
COLL__FOR_SIZE
#include "core/engine/coll_packets.h"             /* runs an algorithm on blocks whose length only sender and receiver know */
#include "core/engine/coll_subcalls.h"            /* runs a collective that consists of calls on other communicators */
#include "core/engine/coll_hierarchical.h"        /* hierarchical collectives as such scripts               */
#include "core/engine/coll_hierarchy_plan.h"      /* which calls are hierarchical; the communicators of their stages */
COLL__FOR_SPEED
#include "core/engine/coll_overlap.h"             /* collectives of one order that overlap                  */
#include "core/engine/coll_progress.h"            /* advances everything; threads that share a session      */
#include "core/engine/coll_late_ranks.h"          /* warnings and errors that name late ranks               */
#include "core/engine/coll_wait_loop.h"           /* the wait loop; ranks that left                         */
COLL__FOR_SIZE
#include "core/engine/coll_error_feedback.h"      /* error feedback: residuals of narrow wire types         */
#include "core/engine/coll_prepared.h"            /* prepares, starts and restarts requests                 */
#include "core/engine/coll_allreduce_list.h"      /* many tensors in one operation                          */
#include "core/engine/coll_allreduce_leaves.h"    /* sums over leaves                                       */
COLL__FOR_SPEED
#include "core/engine/coll_offload.h"             /* calls that the transport executes as a whole           */
#include "core/engine/coll_carriers.h"            /* the table of carriers: these, messages, rounds         */
#include "core/engine/coll_comm_lock.h"           /* the lock of a communicator                             */
#include "core/engine/coll_wait_any.h"            /* tests, waits (one, any, some, all) and frees of requests */
#include "core/engine/coll_fast_path.h"           /* blocking calls: at once, and by the fast path if they have a plan */
COLL__FOR_SIZE
#include "core/session/coll_progress_thread.h"    /* progress in the background                             */
#include "core/session/coll_launchers.h"          /* rank and size from the variables of launchers          */
#include "core/session/coll_config_defaults.h"    /* configuration and environment                          */
#include "core/session/coll_communicators.h"      /* makes, derives and frees communicators                 */
#include "core/session/coll_neighbors.h"          /* the graph of neighbors                                 */
#include "core/session/coll_agree.h"              /* agreement on flags and on failed ranks                 */
#include "core/session/coll_shrink.h"             /* after a failure: a communicator of the survivors       */
#include "core/session/coll_grow.h"               /* processes that join                                    */
#include "core/session/coll_explain.h"            /* explains the choice for a call                         */
#include "core/session/coll_shared_alloc.h"       /* memory that the ranks of a host read in place          */
#include "core/session/coll_sum_leaves.h"         /* the functions of leaf sums: memory, errors             */
#include "core/session/coll_init.h"               /* opens transports, and runs the ranks of coll_spawn     */
COLL__FOR_SPEED
#include "transports/coll_threads.h"              /* ranks in one address space; executes whole collectives */
#include "transports/coll_alone.h"                /* a single rank, in a program without threads            */
#include "transports/coll_tcp.h"                  /* ranks in many processes                                */
COLL__FOR_SIZE
#include "transports/coll_hybrid.h"               /* both: processes of one host, threads of many processes */
#include "transports/coll_sim.h"                  /* any number of ranks in one thread with a virtual clock */
COLL__FOR_SPEED
#include "transports/coll_mpi.h"                  /* ranks of MPI (COLL_WITH_MPI); executes whole collectives */
#include "carriers/coll_nccl.h"                   /* buffers in GPU memory, through NCCL (COLL_WITH_NCCL)   */

/* ---- >>communicators ---- */

static const char coll__forked_text[] = "this communicator belongs to the parent process: a forked child cannot use it";

static const coll__transport_row *const coll__transports[] = {
    &coll__host_row, &coll__hybrid_row, &coll__threads_row, &coll__alone_row, &coll__sim_row, &coll__mpi_row, NULL
};
static const coll__program coll__this_program = { coll__transports, &coll__nccl_extension };

static coll_status coll__init(coll_comm **out, const coll_config *config)
{
    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init: out is NULL");
    return coll__open_one(&coll__this_program, out, config);
}

COLL_API coll_status coll_init(coll_comm **out, const coll_config *config)
{
    return coll__started(coll__init(out, config), config);
}

COLL_API coll_status coll_init_threads(int count, coll_comm **out, const coll_config *config)
{
    coll_status status;

    if (!out) status = coll__start_failed(COLL_ERR_ARGUMENT, "coll_init_threads: out is NULL");
    else if ((status = coll__check_count("coll_init_threads", count)) == COLL_OK)
        status = coll__open(&coll__this_program, count, COLL__START_SEVERAL, out, config);
    return coll__started(status, config);
}

COLL_API coll_status coll_init_custom(const coll_transport *transport, void *context, int rank, int size,
                                      coll_comm **out, const coll_config *config)
{
    return coll__started(coll__open_custom(&coll__this_program, transport, context, rank, size, out, config), config);
}

#if defined(COLL_WITH_MPI)
COLL_API coll_status coll_wrap_mpi(MPI_Comm comm, coll_comm **out)
{
    return coll__started(coll__wrap_mpi(&coll__this_program, comm, out), NULL);
}
#endif

#if defined(COLL_WITH_NCCL)
COLL_API coll_status coll_wrap_nccl(struct ncclComm *nccl, struct CUstream_st *stream, coll_comm **out)
{
    return coll__started(coll__wrap_nccl(&coll__this_program, nccl, stream, out), NULL);
}
#endif

COLL_API coll_status coll_free(coll_comm *comm)
{
    if (comm && coll__is_called_back(comm)) return coll__stay_out(comm);
    return comm ? coll__comm_close(comm) : COLL_OK;
}

/* ---- >>derived communicators ---- */

COLL_API coll_status coll_split(coll_comm *comm, int color, int key, coll_comm **out)
{
    const coll_status status = coll__enter_alive(comm);

    if (status < 0) return status;
    if (out) *out = NULL;
    if (!out || color < COLL_COLOR_NONE)
        return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, out ? "split: color %d is out of range: 0 or "
                                                     "more, or COLL_COLOR_NONE" : "split: out is NULL", color));
    return coll__leave(comm, coll__split_inside(comm, color, key, out));
}

COLL_API coll_status coll_split_host(coll_comm *comm, coll_comm **out)
{
    const coll_status status = coll__enter_alive(comm);

    if (status < 0) return status;
    if (!out) return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "split_host: out is NULL"));
    *out = NULL;
    const coll__session *session = comm->session;
    const int host = session->transport->host ? session->transport->host(session->context, session->rank) : session->rank;
    return coll__leave(comm, coll__split_inside(comm, host, 0, out));
}

COLL_API coll_status coll_dup(coll_comm *comm, coll_comm **out)
{
    const coll_status status = coll__enter_alive(comm);

    if (status < 0) return status;
    if (!out) return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "dup: out is NULL"));
    *out = NULL;
    return coll__leave(comm, coll__split_inside(comm, 0, 0, out));
}

COLL_API coll_status coll_create(coll_comm *comm, const int *ranks, int count, int tag, coll_comm **out)
{
    const coll_status status = coll__enter_alive(comm);

    if (status < 0) return status;
    if (out) *out = NULL;
    if (!out) return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "create: out is NULL"));
    const int me = coll__place_among(comm, ranks, count, tag);
    return coll__leave(comm, me < 0 ? (coll_status)me : coll__create_inside(comm, ranks, count, me, tag, out));
}

COLL_API coll_status coll_neighbors(coll_comm *comm, const int *sources, int source_count, const int *destinations,
                                    int destination_count)
{
    const coll_status status = coll__enter_alive(comm);
    const coll__graph graph = { source_count, destination_count, sources, destinations };

    return status < 0 ? status : coll__leave(comm, coll__neighbors_set(comm, &graph));
}

COLL_API int coll_world_rank(const coll_comm *comm, int rank)
{
    return comm && rank >= 0 && rank < comm->size ? coll__world_rank(comm, rank) : COLL_RANK_NONE;
}

/* ---- >>abort, failures, errors ---- */

/* No locks, because a signal handler may call it.  If the transport cannot abort by itself, this thread does it, if no other
 * thread is inside. */
COLL_API coll_status coll_abort(coll_comm *comm, const char *why)
{
    const int error = errno;

    if (!comm) return coll__start_failed(COLL_ERR_ARGUMENT, "the communicator is NULL");
    if (!*comm->guard) return COLL_ERR_FORKED;
    coll__session *session = comm->session;

    if (!coll__flag_set(&session->abort_claimed)) {
        coll__abort_sentence(session->abort_text, sizeof session->abort_text, session->rank, why);
        __atomic_store_n(&session->abort_wanted, 1, __ATOMIC_RELEASE);
    }
    if (!__atomic_load_n(&session->abort_wanted, __ATOMIC_ACQUIRE)) return COLL_OK;    /* another thread is writing the text */
    const bool is_known = session->transport->abort && session->transport->abort(session->context, session->abort_text);
    if (session->transport->wake) session->transport->wake(session->context);
    errno = error;
    if (is_known) return COLL_OK;
    if (!coll__comm_lock_try(comm)) return COLL_OK;           /* the thread inside does it                */
    if (coll__is_shared(session)) coll__session_take(comm);
    (void)coll__advance(session, 0);
    return coll__leave(comm, COLL_OK);
}

COLL_API coll_status coll_shrink(coll_comm *comm, coll_comm **out)
{
    return coll__next_world(comm, out, "shrink", COLL__SHRINKS(coll__shrink_inside));
}

COLL_API coll_status coll_join(coll_comm **out, const coll_config *config)
{
    return coll__started(coll__join(&coll__this_program, out, config), config);
}

COLL_API int coll_rank(const coll_comm *comm) { return comm ? comm->rank : -1; }
COLL_API int coll_size(const coll_comm *comm) { return comm ? comm->size : 0; }
COLL_API int coll_local_rank(const coll_comm *comm) { return comm ? comm->session->local_rank : -1; }
COLL_API int coll_local_size(const coll_comm *comm) { return comm ? comm->session->local_size : 0; }

COLL_API const char *coll_error(const coll_comm *comm)
{
    if (!comm) return coll__start_error;
    if (!*comm->guard) return coll__forked_text;
    return coll__has_own_sentence(comm) ? coll__start_error : coll__sentence_of(comm);
}

COLL_API int coll_spawn(int count, int (*fn)(coll_comm *comm, void *arg), void *arg, const coll_config *config)
{
    return coll__spawn(&coll__this_program, count, fn, arg, config);
}

/* ---- >>calls ---- */

/* Execute the call in r->call; its request is on the caller's stack. */
static coll_status coll__run(coll_comm *comm, coll_request *r)
{
    const coll_status status = coll__enter_alive(comm);
    return status < 0 ? status : coll__leave(comm, coll__run_inside(comm, r));
}

static inline bool coll__is_descriptor(const coll_call *call) { return call && coll__descriptor_set(call) < 0; }

static coll_status coll__refuse_descriptor(coll_comm *comm, const coll_call *call)
{
    const coll_status status = coll__enter(comm);
    return status < 0 ? status : coll__leave(comm, coll__check_descriptor(comm, call));
}

COLL_API coll_status coll_run(coll_comm *comm, const coll_call *call)
{
    coll_request r;

    if (!coll__is_descriptor(call)) return coll__refuse_descriptor(comm, call);
    coll__messages_use(comm);
    r.call = *call;
    return coll__run(comm, &r);
}

static coll_status coll__start(coll_comm *comm, const coll_call *call, coll_request **out)
{
    if (out) *out = NULL;
    const coll_status status = coll__enter_alive(comm);
    return status < 0 ? status : coll__leave_started(comm, coll__request_new(comm, call, out), out);
}

COLL_API coll_status coll_start(coll_comm *comm, const coll_call *call, coll_request **out)
{
    if (out) *out = NULL;
    if (!coll__is_descriptor(call)) return coll__refuse_descriptor(comm, call);
    coll__messages_use(comm);
    return coll__start(comm, call, out);
}

COLL_API coll_status coll_prepare(coll_comm *comm, const coll_call *call, coll_request **out)
{
    if (out) *out = NULL;
    coll_status status = coll__enter_alive(comm);
    if (status < 0) return status;
    coll__messages_use(comm);
    status = coll__check_descriptor(comm, call);
    if (status == COLL_OK) status = coll__request_new(comm, call, out);
    if (status == COLL_OK && coll__prepare(comm, *out) < 0) {
        status = coll__explain_error(comm, call, COLL_ERR_MEMORY, "no memory to prepare it");
        coll__request_free(*out);
        *out = NULL;
    }
    return coll__leave(comm, status);
}

COLL_API coll_status coll_restart(coll_request *request)
{
    if (!request || !request->is_prepared)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_restart: the request was not made by coll_prepare");
    if (!request->comm) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_restart: the communicator of the request is freed");
    coll_comm *comm = request->comm;
    const coll_status status = coll__enter_alive(comm);
    if (status < 0) return status;
    if (!request->is_known)
        return coll__leave(comm, coll__explain_error(comm, &request->call, COLL_ERR_ARGUMENT, "its end has not been reported: "
                                                     "call coll_wait before coll_restart"));
    if (coll__kind_is(request->call.kind, COLL__NEIGHBORS) && request->graph_version != comm->graph_version)
        return coll__leave(comm, coll__explain_error(comm, &request->call, COLL_ERR_ARGUMENT, "it was prepared for neighbours "
                                                     "that coll_neighbors has replaced"));
    request->is_known = false;
    coll__start_request(comm, request);
    return coll__leave(comm, COLL_OK);
}

/* ---- >>inspection ---- */

COLL_API int coll_explain(coll_comm *comm, const coll_call *call, char *text, size_t length)
{
    char line[640];
    coll_request r;
    coll_status status = coll__enter(comm);

    if (status < 0) return status;
    if (!call || (length > 0 && !text))
        return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "the call or text is NULL"));
    if ((status = coll__check_descriptor(comm, call)) < 0) return coll__leave(comm, status);
    r.call = *call;
    coll__messages_use(comm);
    if ((status = coll__ready(comm, &r, false)) < 0) return coll__leave(comm, status);
    coll__explain_inside(comm, &r, line, sizeof line);
    coll__release(&r);
    coll__leave(comm, COLL_OK);
    return coll__give_text(text, length, line);
}

COLL_API void coll_dump(coll_comm *comm, void (*line)(void *context, const char *text), void *context)
{
    coll__dump_fn *const write = line ? line : coll__dump_line;

    if (!comm) return;
    const bool is_inside = *comm->guard && coll__enter(comm) == COLL_OK;
    coll__callback_begin();
    if (*comm->guard) coll__dump_text(comm, write, context);
    else write(context, coll__forked_text);
    coll__callback_end();
    if (is_inside) (void)coll__leave(comm, COLL_OK);
}

COLL_API int coll_link_text(const coll_comm *comm, char *text, size_t length)
{
    char all[COLL__TUNING_ROOM];

    if (!comm || (length > 0 && !text)) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_link_text: comm or text is NULL");
    if (!*comm->guard) return COLL_ERR_FORKED;
    coll__numbers_print(&comm->numbers, all, sizeof all);
    return coll__give_text(text, length, all);
}

COLL_API uint64_t coll_overflows(const coll_comm *comm)
{
    return comm && *comm->guard ? coll__overflows_of(comm) : 0;
}

/* ---- >>wrappers: each operation, blocking or not, fills the same coll_call ---- */

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
        return coll__start(comm, call, out);                                                                \
    }
#define COLL__UNPACK(...) __VA_ARGS__

/* The same for kinds that have a fast path (coll_fast_path.h). */
#define COLL__SIMPLE(name, parameters, fields)                                                              \
    COLL_API coll_status coll_##name(COLL__UNPACK parameters)                                               \
    {                                                                                                       \
        return coll__run_simple(comm, COLL__UNPACK fields);                                                 \
    }                                                                                                       \
    COLL_API coll_status coll_i##name(COLL__UNPACK parameters, coll_request **out)                          \
    {                                                                                                       \
        return coll__start_simple(comm, COLL__UNPACK fields, out);                                          \
    }

COLL__SIMPLE(barrier, (coll_comm *comm), (COLL_BARRIER, NULL, NULL, 0, 0, COLL_SUM, 0))

COLL__SIMPLE(broadcast, (coll_comm *comm, void *buffer, size_t count, coll_type type, int root),
           (COLL_BROADCAST, NULL, buffer, count, type, COLL_SUM, root))

COLL__SIMPLE(reduce, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op, int root),
           (COLL_REDUCE, send, recv, count, type, op, root))

COLL__BOTH(allreduce_mixed,
           (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_type wire, coll_op op),
           (COLL_ALLREDUCE, send, recv, count, type, op, 0), call->wire = wire)

COLL__BOTH(allreduce_list, (coll_comm *comm, const coll_list_item *list, int count, coll_op op),
           (COLL_ALLREDUCE_LIST, NULL, NULL, 0, 0, op, 0), (call->list = list, call->list_count = count))

COLL__SIMPLE(allreduce, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op),
             (COLL_ALLREDUCE, send, recv, count, type, op, 0))

COLL__SIMPLE(reduce_scatter, (coll_comm *comm, const void *send, void *recv, size_t recv_count, coll_type type, coll_op op),
           (COLL_REDUCE_SCATTER, send, recv, recv_count, type, op, 0))

COLL__BOTH(reduce_scatterv, (coll_comm *comm, const void *send, void *recv, const size_t *counts, coll_type type, coll_op op),
           (COLL_REDUCE_SCATTERV, send, recv, 0, type, op, 0), call->recv_counts = counts)

COLL__SIMPLE(scan, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op),
           (COLL_SCAN, send, recv, count, type, op, 0))

COLL__SIMPLE(exscan, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op),
           (COLL_EXSCAN, send, recv, count, type, op, 0))

COLL__SIMPLE(gather, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, int root),
           (COLL_GATHER, send, recv, count, type, COLL_SUM, root))

COLL__BOTH(gatherv,
           (coll_comm *comm, const void *send, size_t send_count, void *recv, const size_t *counts, const size_t *offsets,
            coll_type type, int root),
           (COLL_GATHERV, send, recv, send_count, type, COLL_SUM, root),
           (call->recv_counts = counts, call->recv_offsets = offsets))

COLL__SIMPLE(scatter, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, int root),
           (COLL_SCATTER, send, recv, count, type, COLL_SUM, root))

COLL__BOTH(scatterv,
           (coll_comm *comm, const void *send, const size_t *counts, const size_t *offsets, void *recv, size_t recv_count,
            coll_type type, int root),
           (COLL_SCATTERV, send, recv, 0, type, COLL_SUM, root),
           (call->send_counts = counts, call->send_offsets = offsets, call->recv_count = recv_count))

COLL__SIMPLE(allgather, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type),
           (COLL_ALLGATHER, send, recv, count, type, COLL_SUM, 0))

COLL__BOTH(allgatherv,
           (coll_comm *comm, const void *send, size_t send_count, void *recv, const size_t *counts, const size_t *offsets,
            coll_type type),
           (COLL_ALLGATHERV, send, recv, send_count, type, COLL_SUM, 0),
           (call->recv_counts = counts, call->recv_offsets = offsets))

COLL__BOTH(neighbor_allgather, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type),
           (COLL_NEIGHBOR_ALLGATHER, send, recv, count, type, COLL_SUM, 0), (void)0)

COLL__BOTH(neighbor_allgatherv,
           (coll_comm *comm, const void *send, size_t send_count, void *recv, const size_t *counts, const size_t *offsets,
            coll_type type),
           (COLL_NEIGHBOR_ALLGATHERV, send, recv, send_count, type, COLL_SUM, 0),
           (call->recv_counts = counts, call->recv_offsets = offsets))

/* The three forms of alltoall, for all ranks and for neighbors. */
#define COLL__EXCHANGES(prefix, PREFIX, form)                                                                   \
    form(prefix##alltoall, (coll_comm *comm, const void *send, void *recv, size_t count, coll_type type),    \
         (COLL_##PREFIX##ALLTOALL, send, recv, count, type, COLL_SUM, 0))                                    \
    COLL__BOTH(prefix##alltoallv,                                                                            \
               (coll_comm *comm, const void *send, const size_t *send_counts, const size_t *send_offsets,    \
                void *recv, const size_t *recv_counts, const size_t *recv_offsets, coll_type type),          \
               (COLL_##PREFIX##ALLTOALLV, send, recv, 0, type, COLL_SUM, 0),                                 \
               (call->send_counts = send_counts, call->send_offsets = send_offsets,                          \
                call->recv_counts = recv_counts, call->recv_offsets = recv_offsets))                         \
    COLL__BOTH(prefix##alltoallw,                                                                            \
               (coll_comm *comm, const void *send, const size_t *send_counts, const size_t *send_bytes,      \
                const coll_type *send_types, void *recv, const size_t *recv_counts, const size_t *recv_bytes, \
                const coll_type *recv_types),                                                                \
               (COLL_##PREFIX##ALLTOALLW, send, recv, 0, 0, COLL_SUM, 0),                                    \
               (call->send_counts = send_counts, call->send_offsets = send_bytes, call->send_types = send_types, \
                call->recv_counts = recv_counts, call->recv_offsets = recv_bytes, call->recv_types = recv_types))
#define COLL__PLAIN(name, parameters, fields) COLL__BOTH(name, parameters, fields, (void)0)
COLL__EXCHANGES(, , COLL__SIMPLE)
COLL__EXCHANGES(neighbor_, NEIGHBOR_, COLL__PLAIN)
#undef COLL__PLAIN
#undef COLL__EXCHANGES

COLL__BOTH(send, (coll_comm *comm, const void *buffer, size_t count, coll_type type, int peer, int tag),
           (COLL_SEND, buffer, NULL, count, type, COLL_SUM, 0), (coll__messages_use(comm), call->peer = peer, call->tag = tag))

COLL__BOTH(recv, (coll_comm *comm, void *buffer, size_t count, coll_type type, int peer, int tag),
           (COLL_RECV, NULL, buffer, count, type, COLL_SUM, 0), (coll__messages_use(comm), call->peer = peer, call->tag = tag))

COLL__BOTH(sendrecv,
           (coll_comm *comm, const void *send, size_t send_count, int dest, void *recv, size_t recv_count, int source,
            coll_type type, int tag),
           (COLL_SENDRECV, send, recv, send_count, type, COLL_SUM, 0),
           (coll__messages_use(comm), call->recv_count = recv_count, call->peer = dest, call->source = source, call->tag = tag))

#undef COLL__BOTH
#undef COLL__SIMPLE
#undef COLL__UNPACK

#if defined(COLL__LEAVES_OUT)
#pragma GCC diagnostic pop
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#pragma clang diagnostic pop
#else
#pragma GCC pop_options
#endif
#endif /* COLL__REFUSED */
#endif /* COLL_IMPL_H */
