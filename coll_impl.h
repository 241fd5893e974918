/* coll_impl.h - the map of the house, and its front door.
 *
 * In reading order; each part uses only what stands above it.  The wings that have a folder stand by themselves: each of their
 * parts includes what it uses, so that it can be read, and parsed, alone.  tests/layers.sh sees to both.
 *
 *   coll.h                          the contract and the manual
 *   core/base/                      what everybody needs
 *     coll_parts.h                  what a program may leave out: the switches; coll.h includes it
 *     coll_refuse.h                 where all this would not be right; flags for the rest
 *     coll_sizes.h                  how much memory is set aside for what
 *     coll_system.h                 what is asked of the system: by Linux's own calls, or by those of POSIX (COLL_PORTABLE);
 *                                   in its place coll_bare.h, where there is none (COLL_NO_OS)
 *     coll_base.h                   arithmetic, processors, time, numbers as bytes, memory
 *     coll_cpu.h                    what this processor has of instructions
 *     coll_text.h                   sentences: texts, log lines, asserts, the record of a failure
 *     coll_arena.h                  an allocator of one block of the program's memory
 *     coll_environment.h            environment variables as texts and numbers, and fields that they fill
 *     coll_segment.h                memory that processes of one host share
 *     coll_hmac.h                   proofs that one knows a key: SHA-256, HMAC, nonces
 *   core/numbers/                   elements: knows types and memory; not ranks, messages or time
 *     coll_types.h                  element types, the tiers of the kernels, one number from one type to another
 *     coll_arithmetic.h             what this program's arithmetic does otherwise than IEEE 754 says
 *     coll_uncached.h               memory written past the caches
 *     coll_vectors.h                sixteen elements at a time, for the tiers of x86-64
 *     coll_convert.h                arrays of one type of float into another
 *     coll_stochastic.h             the same, rounded up or down at random
 *     coll_reproducible.h           sums in which the order of the terms does not show
 *     coll_overflow.h               is there an infinity or a NaN?
 *     coll_mx.h                     groups of numbers that share a power of two, for the wire
 *     coll_folds.h                  two sources into one, for each (type, operation) that there is: the table of them
 *     coll_sums16.h                 sums of 16-bit floats, which have ways of their own
 *     coll_codec.h                  how elements are written in memory, on the wire and in the sum
 *     coll_kernels.h                all arithmetic: n sources -> wide accumulator -> one rounding -> m destinations
 *   core/algorithms/                what is sent where and when: knows ranks and blocks; not bytes, types, memory or sockets
 *     coll_round.h                  the vocabulary of algorithms: send, recv, copy, fold, in rounds
 *     coll_circulant.h              rounds at fixed distances round a circle: circulant, far-first, alltoall, direct, ring
 *     coll_tree.h                   rounds with a root: tree and chain
 *     coll_blocks.h                 broadcast and reduce of n blocks in the fewest rounds
 *     coll_scan.h                   prefixes, and the census
 *     coll_shares.h                 ranks whose links are faster than those of others, and how a vector is shared among them
 *     coll_link.h                   what is believed of the wire, and how long vectors are cut for it
 *     coll_cost.h                   what each of them costs, as closed forms
 *     coll_algorithms.h             the algorithms, put together from these, and the table of them
 *     coll_choice.h                 what may be chosen for a call
 *     coll_tuner.h                  the cost model chooses the algorithm
 *   core/contract/                  what calls and transports are
 *     coll_configuration.h          how a communicator is to be made, and the simulated machine; coll.h includes it
 *     coll_memory.h                 memory that the program owns: allocators, arenas; coll.h includes it
 *     coll_wrap.h                   communicators of the ranks of NCCL and MPI; coll.h includes it
 *     coll_transport.h              what carries messages: the contract between the engine and the world; coll.h includes it
 *     coll_shape.h                  which blocks each kind of call has in its buffers: a row for each kind
 *     coll_words.h                  numbers with units as texts, and texts of such words
 *     coll_tuning.h                 what the cost model is to believe of the wire, as a text and in a file
 *     coll_rows.h                   how a transport is opened: its settings, and what it gives back
 *   core/engine/                    communicators, requests, and what moves them on
 *     coll_topology.h               which ranks share a host
 *     coll_comm.h                   sessions, communicators, orders, requests; fingerprints
 *     coll_sentences.h              what a call is called, and what went wrong with it
 *     coll_strides.h                blocks that are columns of a matrix: packed, and spread
 *     coll_activity.h               what this rank does, and which communicators it and the others have freed
 *     coll_by_key.h                 messages by key, as others call them
 *     coll_pool.h                   the memory of requests
 *     coll_request.h                requests are made, queued, and end; the first failure, which ends all
 *     coll_order.h                  collectives one after the other: orders, begun and left; who carries them
 *     coll_plan.h                   what is settled of a plain call, for the next ones of its kind
 *     coll_check.h                  the caller's mistakes, found before any byte moves; defaults
 *     coll_strides_check.h          the same: what is said of rows is checked, and taken out of the call
 *     coll_match.h                  which message goes into which receive: lists and bins of messages
 *     coll_notes.h                  what is written for messages by key, and how it leaves
 *     coll_messages.h               messages by key: send and recv, and collectives whose order others may not share
 *     coll_execution.h              how a call is executed: layouts of its buffers, slices, memory; what an order caches of it
 *     coll_engine.h                 runs an algorithm: slices, messages, folds
 *     coll_no_messages.h            in place of the last three, where there are no messages (COLL_LEAST)
 *     coll_packets.h                runs an algorithm on blocks whose length only their two ends know
 *     coll_script.h                 runs a collective that is put together from calls of other communicators
 *     coll_stages.h                 hierarchical collectives as such scripts: on a host, between hosts, on a host
 *     coll_hierarchy.h              which calls are hierarchical; the communicators of their stages
 *     coll_abreast.h                collectives of one order that run at the same time
 *     coll_progress.h               moves everything on; threads that share a session
 *     coll_patience.h               the loop that waits, and looks after those it waits for
 *     coll_feedback.h               what a wire leaves out is kept, and added the next time
 *     coll_prepared.h               requests: made ready, started, and started again
 *     coll_list.h                   many tensors in one operation
 *     coll_offload.h                calls that the transport carries out as a whole
 *     coll_carriers.h               who carries out a call: one of these, messages, or rounds
 *     coll_enter.h                  one thread at a time in a communicator
 *     coll_fast_path.h              blocking calls: at once, and by the fast path where they have a plan
 *     coll_wait.h                   requests: tested, waited for - one, any, some or all of them - and freed
 *   core/session/                   what the public functions call: opening, deriving, measuring, telling
 *     coll_record.h                 the flight recorder: the last operations, written down when something fails
 *     coll_background.h                  moves on in the background what nobody waits for
 *     coll_launchers.h              what launchers say in the environment: who, and how many
 *     coll_config.h                 configuration and environment
 *     coll_groups.h                 communicators: made, derived, freed
 *     coll_neighbors.h              who is a neighbour of whom
 *     coll_shrink.h                 after a failure: a communicator of those who are left
 *     coll_measure.h                the numbers of the cost model, measured
 *     coll_buffers.h                memory that the ranks of a host read and write in place
 *     coll_explain.h                what is chosen for a call, and why
 *     coll_open.h                   which transport is opened, and the ranks of coll_spawn
 *   transports/coll_threads.h       ranks in one address space; takes whole collectives; with its parts in transports/threads/
 *   transports/coll_alone.h         the only rank there is, in a program without threads
 *   transports/coll_tcp.h           ranks in many processes, with its parts in transports/tcp/
 *   transports/coll_joined.h        both at once: processes of one host, threads of many processes; parts in transports/joined/
 *   transports/coll_mpi.h           ranks of MPI (COLL_WITH_MPI); takes whole collectives; with its parts in transports/mpi/
 *   transports/coll_sim.h           any number of ranks in one thread under a virtual clock, with its parts in transports/sim/
 *   carriers/coll_nccl.h            buffers in the memory of GPUs, by NCCL (COLL_WITH_NCCL), with its parts in carriers/nccl/
 *   this file                       the public functions: each fills a coll_call, checks it, hands it on
 *
 * The way of a call: coll_allreduce -> coll__run_simple -> coll__plan_ready (checks, makes the plan, finds the carrier) ->
 * coll__launch -> coll__wait -> coll__advance -> coll__order_advance -> the carrier's advance: the transport's offload (threads),
 * or coll__execution_advance -> an algorithm's round -> the transport's send and recv, by key for derived communicators and
 * prepared calls.  A blocking call that nothing is in front of goes from its checks to the transport's offload at once, and one
 * that suits the plan of its kind from coll__run_simple. */
#ifndef COLL_IMPL_H
#define COLL_IMPL_H

#include "core/base/coll_refuse.h"
#if !defined(COLL__REFUSED)

#include "core/base/coll_sizes.h"
#include "core/base/coll_base.h"
#include "core/base/coll_cpu.h"
#include "core/base/coll_text.h"
#include "core/base/coll_arena.h"
#include "core/base/coll_environment.h"
#include "core/base/coll_segment.h"
#include "core/base/coll_hmac.h"
#include "core/numbers/coll_types.h"
#include "core/numbers/coll_arithmetic.h"
#include "core/numbers/coll_uncached.h"
#include "core/numbers/coll_vectors.h"
#include "core/numbers/coll_convert.h"
#include "core/numbers/coll_stochastic.h"
#include "core/numbers/coll_reproducible.h"
#include "core/numbers/coll_overflow.h"
#include "core/numbers/coll_mx.h"
#include "core/numbers/coll_folds.h"
#include "core/numbers/coll_sums16.h"
#include "core/numbers/coll_codec.h"
#include "core/numbers/coll_kernels.h"
#include "core/algorithms/coll_round.h"
COLL__FOR_SIZE
#include "core/algorithms/coll_circulant.h"
#include "core/algorithms/coll_tree.h"
#include "core/algorithms/coll_blocks.h"
#include "core/algorithms/coll_scan.h"
#include "core/algorithms/coll_link.h"
#include "core/algorithms/coll_cost.h"
#include "core/algorithms/coll_algorithms.h"
#include "core/algorithms/coll_choice.h"
#include "core/algorithms/coll_tuner.h"
COLL__FOR_SPEED
#include "core/contract/coll_shape.h"
COLL__FOR_SIZE
#include "core/contract/coll_words.h"
#include "core/contract/coll_tuning.h"
#include "core/contract/coll_rows.h"
#include "core/engine/coll_topology.h"
COLL__FOR_SPEED
#include "core/engine/coll_comm.h"
COLL__FOR_SIZE
#include "core/engine/coll_sentences.h"
#include "core/engine/coll_strides.h"
COLL__FOR_SPEED
#include "core/engine/coll_activity.h"
#include "core/engine/coll_by_key.h"
#include "core/engine/coll_pool.h"
#include "core/engine/coll_request.h"
#include "core/engine/coll_order.h"
#include "core/engine/coll_plan.h"
#include "core/engine/coll_check.h"
#include "core/engine/coll_strides_check.h"
COLL__FOR_SIZE
#include "core/engine/coll_match.h"
#include "core/engine/coll_notes.h"
#if COLL__HAS_MESSAGES
#include "core/engine/coll_messages.h"
COLL__FOR_SPEED
#include "core/engine/coll_execution.h"
#include "core/engine/coll_engine.h"
#else
#include "core/engine/coll_no_messages.h"
COLL__FOR_SPEED
#endif
COLL__FOR_SIZE
#include "core/engine/coll_packets.h"
#include "core/engine/coll_script.h"
#include "core/engine/coll_stages.h"
#include "core/engine/coll_hierarchy.h"
COLL__FOR_SPEED
#include "core/engine/coll_abreast.h"
#include "core/engine/coll_progress.h"
#include "core/engine/coll_patience.h"
COLL__FOR_SIZE
#include "core/engine/coll_feedback.h"
#include "core/engine/coll_prepared.h"
#include "core/engine/coll_list.h"
COLL__FOR_SPEED
#include "core/engine/coll_offload.h"
#include "core/engine/coll_carriers.h"
#include "core/engine/coll_enter.h"
#include "core/engine/coll_wait.h"
#include "core/engine/coll_fast_path.h"
COLL__FOR_SIZE
#include "core/session/coll_record.h"
#include "core/session/coll_background.h"
#include "core/session/coll_launchers.h"
#include "core/session/coll_config.h"
#include "core/session/coll_groups.h"
#include "core/session/coll_neighbors.h"
#include "core/session/coll_shrink.h"
#include "core/session/coll_measure.h"
#include "core/session/coll_explain.h"
#include "core/session/coll_buffers.h"
#include "core/session/coll_open.h"
COLL__FOR_SPEED
#include "transports/coll_threads.h"
#include "transports/coll_alone.h"
#include "transports/coll_tcp.h"
COLL__FOR_SIZE
#include "transports/coll_joined.h"
#include "transports/coll_sim.h"
COLL__FOR_SPEED
#include "transports/coll_mpi.h"
#include "carriers/coll_nccl.h"

/* ---- >>communicators ---- */

static const char coll__forked_text[] = "this communicator belongs to the parent process: a forked child cannot use it";

static const coll__transport_row *const coll__transports[] = {
    &coll__host_row, &coll__joined_row, &coll__threads_row, &coll__alone_row, &coll__sim_row, &coll__mpi_row, NULL
};
static const coll__program coll__this_program = { coll__transports, &coll__nccl_extension };

static coll_status coll__init(coll_comm **out, const coll_config *config)
{
    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init: out is NULL");
    return coll__open(&coll__this_program, 1, true, out, config);
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
        status = coll__open(&coll__this_program, count, false, out, config);
    return coll__started(status, config);
}

COLL_API coll_status coll_init_custom(const coll_transport *transport, void *context, int rank, int size, coll_comm **out)
{
    return coll_init_custom_with(transport, context, rank, size, out, NULL);
}

COLL_API coll_status coll_init_custom_with(const coll_transport *transport, void *context, int rank, int size,
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

/* ---- >>deriving ---- */

COLL_API coll_status coll_split(coll_comm *comm, int color, int key, coll_comm **out)
{
    const coll_status status = coll__enter_alive(comm);

    if (status < 0) return status;
    if (out) *out = NULL;
    if (!out || color < COLL_NO_COLOR)
        return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, out ? "split: color %d is out of range: 0 or "
                                                     "more, or COLL_NO_COLOR" : "split: out is NULL", color));
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

COLL_API int coll_parent_rank(const coll_comm *comm, int rank)
{
    return comm && rank >= 0 && rank < comm->size ? coll__world_rank(comm, rank) : COLL_NO_RANK;
}

/* ---- >>ending on purpose, and asking why ---- */

/* From a signal handler nothing may be locked.  Where the transport can tell the others by itself, that is all; where it cannot,
 * this thread does, if nobody else is inside. */
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
    if (!__atomic_load_n(&session->abort_wanted, __ATOMIC_ACQUIRE)) return COLL_OK;    /* another one is about to tell     */
    const bool is_told = session->transport->abort && session->transport->abort(session->context, session->abort_text);
    if (session->transport->wake) session->transport->wake(session->context);
    errno = error;
    if (is_told) return COLL_OK;
    if (!coll__door_claim(comm, false)) return COLL_OK;    /* whoever is inside sees to it             */
    if (coll__is_shared(session)) coll__session_take(comm);
    (void)coll__advance(session, 0);
    return coll__leave(comm, COLL_OK);
}

COLL_API coll_status coll_shrink(coll_comm *comm, coll_comm **out)
{
    if (out) *out = NULL;
    const coll_status status = coll__enter(comm);
    if (status < 0) return status;
    if (!out) return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "shrink: out is NULL"));
    return coll__leave(comm, coll__shrink_inside(comm, out));
}

COLL_API int coll_failed_ranks(const coll_comm *comm, int *ranks, int capacity)
{
    return comm && *comm->guard ? coll__failed_ranks(comm, ranks, capacity) : 0;
}

COLL_API int coll_rank(const coll_comm *comm) { return comm ? comm->rank : -1; }
COLL_API int coll_size(const coll_comm *comm) { return comm ? comm->size : 0; }
COLL_API int coll_local_rank(const coll_comm *comm) { return comm ? comm->session->local_rank : -1; }
COLL_API int coll_local_size(const coll_comm *comm) { return comm ? comm->session->local_size : 0; }

COLL_API const char *coll_error(const coll_comm *comm)
{
    if (!comm) return coll__start_error;
    return *comm->guard ? coll__sentence_of(comm) : coll__forked_text;
}

COLL_API int coll_spawn(int count, int (*fn)(coll_comm *comm, void *arg), void *arg)
{
    return coll_spawn_with(count, fn, arg, NULL);
}

COLL_API int coll_spawn_with(int count, int (*fn)(coll_comm *comm, void *arg), void *arg, const coll_config *config)
{
    return coll__spawn(&coll__this_program, count, fn, arg, config);
}

/* ---- >>calls ---- */

/* Carry out the call in r->call, on this rank's stack. */
static coll_status coll__run(coll_comm *comm, coll_request *r)
{
    const coll_status status = coll__enter_alive(comm);
    return status < 0 ? status : coll__leave(comm, coll__run_inside(comm, r));
}

COLL_API coll_status coll_run(coll_comm *comm, const coll_call *call)
{
    coll_request r;

    coll__messages_use(comm);
    if (call) {
        r.call = *call;
        return coll__run(comm, &r);
    }
    const coll_status status = coll__enter(comm);
    return status < 0 ? status : coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "the call is NULL"));
}

static coll_status coll__start(coll_comm *comm, const coll_call *call, coll_request **out)
{
    if (out) *out = NULL;
    const coll_status status = coll__enter_alive(comm);
    return status < 0 ? status : coll__leave_started(comm, coll__request_new(comm, call, out), out);
}

COLL_API coll_status coll_start(coll_comm *comm, const coll_call *call, coll_request **out)
{
    coll__messages_use(comm);
    return coll__start(comm, call, out);
}

COLL_API coll_status coll_prepare(coll_comm *comm, const coll_call *call, coll_request **out)
{
    if (out) *out = NULL;
    coll_status status = coll__enter_alive(comm);
    if (status < 0) return status;
    coll__messages_use(comm);
    status = coll__request_new(comm, call, out);
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
    if (request->status == COLL_PENDING)
        return coll__leave(comm, coll__explain_error(comm, &request->call, COLL_ERR_ARGUMENT, "it is still running: wait for it "
                                                     "before it is started again"));
    if (coll__kind_is(request->call.kind, COLL__NEIGHBORS) && request->graph_version != comm->graph_version)
        return coll__leave(comm, coll__explain_error(comm, &request->call, COLL_ERR_ARGUMENT, "it was prepared for neighbours "
                                                     "that coll_neighbors has replaced"));
    request->is_known = false;
    coll__start_request(comm, request);
    return coll__leave(comm, COLL_OK);
}

/* ---- >>seeing ---- */

COLL_API int coll_explain(coll_comm *comm, const coll_call *call, char *text, size_t length)
{
    char line[640];
    coll_request r;
    coll_status status = coll__enter(comm);

    if (status < 0) return status;
    if (!call || (length > 0 && !text))
        return coll__leave(comm, coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "the call or text is NULL"));
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

COLL_API coll_status coll_measure(coll_comm *comm)
{
    const coll_status status = coll__enter_alive(comm);
    return status < 0 ? status : coll__leave(comm, coll__measure_inside(comm));
}

COLL_API uint64_t coll_overflows(const coll_comm *comm)
{
    return comm && *comm->guard ? coll__overflows_of(comm) : 0;
}

/* ---- >>wrappers: each operation, blocking and not, fills the same coll_call ---- */

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
    COLL__STARTED(name, parameters, fields, rest)
#define COLL__STARTED(name, parameters, fields, rest)                                                       \
    COLL_API coll_status coll_i##name(COLL__UNPACK parameters, coll_request **out)                          \
    {                                                                                                       \
        coll_call of_this, *const call = &of_this;                                                          \
        *call = coll__call_of fields;                                                                       \
        rest;                                                                                               \
        return coll__start(comm, call, out);                                                                 \
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

COLL__BOTH(allreduce_list, (coll_comm *comm, const coll_buffer *buffers, int n, coll_op op),
           (COLL_ALLREDUCE_LIST, NULL, NULL, 0, 0, op, 0), (call->list = buffers, call->list_count = n))

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

/* The three forms of an exchange, with all ranks and with neighbours. */
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
           (COLL_SEND, buffer, NULL, count, type, COLL_SUM, peer), (coll__messages_use(comm), call->tag = tag))

COLL__BOTH(recv, (coll_comm *comm, void *buffer, size_t count, coll_type type, int peer, int tag),
           (COLL_RECV, NULL, buffer, count, type, COLL_SUM, peer), (coll__messages_use(comm), call->tag = tag))

COLL__BOTH(sendrecv,
           (coll_comm *comm, const void *send, size_t send_count, int dest, void *recv, size_t recv_count, int source,
            coll_type type, int tag),
           (COLL_SENDRECV, send, recv, send_count, type, COLL_SUM, dest),
           (coll__messages_use(comm), call->recv_count = recv_count, call->source = source, call->tag = tag))

#undef COLL__BOTH
#undef COLL__STARTED
#undef COLL__SIMPLE
#undef COLL__UNPACK

#if defined(COLL__LEAVES_OUT)
#pragma GCC diagnostic pop
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#else
#pragma GCC pop_options
#endif
#endif /* COLL__REFUSED */
#endif /* COLL_IMPL_H */
