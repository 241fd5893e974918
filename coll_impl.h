/* coll_impl.h - the map of the house, and its front door.
 *
 * In reading order; each part uses only what stands above it.  The wings that have a folder stand by themselves: each of their
 * parts includes what it uses, so that it can be read, and parsed, alone.  tests/layers.sh sees to both.
 *
 *   coll.h                          the contract and the manual
 *   core/contract/
 *     coll_transport.h              what carries messages: the contract between the engine and the world
 *   core/base/                      what everybody needs
 *     coll_refuse.h                 where all this would not be right; flags for the rest
 *     coll_base.h                   time, memory, text, log, the record of a failure
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
 *   core/algorithms/                the plans: knows ranks and blocks; not bytes, types, memory or sockets
 *     coll_round.h                  the vocabulary of algorithms: send, recv, copy, fold, in rounds
 *     coll_circulant.h              rounds at fixed distances round a circle: circulant, far-first, alltoall, direct, ring
 *     coll_tree.h                   rounds with a root: tree and chain
 *     coll_blocks.h                 broadcast and reduce of n blocks in the fewest rounds
 *     coll_scan.h                   prefixes, and the census
 *     coll_cost.h                   what each of them costs, as closed forms
 *     coll_algorithms.h             the algorithms, put together from these, and the table of them
 *     coll_tuner.h                  the cost model chooses the algorithm
 *   core/engine/                    communicators, requests, and what moves them on
 *     coll_comm.h                   trunks, communicators, tracks, requests; fingerprints; the first failure
 *     coll_check.h                  the caller's mistakes, found before any byte moves; defaults
 *     coll_match.h                  which message goes into which receive: lists and bins of messages
 *     coll_notes.h                  what is written for messages by key, and how it leaves
 *     coll_messages.h               messages by key: send and recv, and tracks whose order others may not share
 *     coll_engine.h                 runs an algorithm: slices, messages, folds
 *     coll_progress.h               moves everything on; the loop that waits; threads that share a trunk
 *     coll_freed.h                  communicators that a rank has freed, and others still use
 *     coll_list.h                   many tensors in one operation
 *     coll_feedback.h               what a wire leaves out is kept, and added the next time
 *     coll_prepared.h               requests: made ready, started, and started again
 *     coll_enter.h                  one thread at a time in a communicator
 *     coll_again.h                  blocking calls: at once, and at a glance where they are like the last one
 *     coll_wait.h                   requests: tested, waited for - one, any, some or all of them - and freed
 *     coll_hosts.h                  ranks that share hosts: collectives put together from those of a host and those across
 *   core/session/                   what the public functions call: opening, deriving, measuring, telling
 *     coll_record.h                 the flight recorder: the last operations, written down when something fails
 *     coll_mover.h                  moves on in the background what nobody waits for
 *     coll_launchers.h              what launchers say in the environment: who, how many, where to meet
 *     coll_config.h                 configuration and environment
 *     coll_groups.h                 communicators: made, derived, freed
 *     coll_shrink.h                 after a failure: a communicator of those who are left
 *     coll_measure.h                the numbers of the cost model, measured
 *     coll_explain.h                what is chosen for a call, and why
 *   transports/coll_threads.h       ranks in one address space; takes whole collectives; with its parts in transports/threads/
 *   transports/coll_tcp.h           ranks in many processes, with its parts in transports/tcp/
 *   transports/coll_joined.h        both at once: threads of many processes
 *   transports/coll_mpi.h           ranks of MPI (COLL_WITH_MPI); takes whole collectives; with its parts in transports/mpi/
 *   transports/coll_sim.h           any number of ranks in one thread under a virtual clock, with its parts in transports/sim/
 *   transports/coll_nccl.h          buffers in the memory of GPUs, by NCCL (COLL_WITH_NCCL), with its parts in transports/nccl/
 *   this file                       the public functions: each fills a coll_call, checks it, hands it on
 *
 * The way of a call: coll_allreduce -> coll__run_simple -> coll__ready (checks) -> coll__begin -> coll__wait -> coll__advance ->
 * coll__track_advance -> either the transport's offload (threads), or coll__flow_advance -> an algorithm's round -> the
 * transport's send and recv, by key for derived communicators and prepared calls.  A blocking call that nothing is in front of
 * goes from its checks to the transport's offload at once, and one like the last of its kind from coll__run_simple.  A call of a
 * communicator that has a device goes from coll__begin to the device's start, and is looked at by its test. */
#ifndef COLL_IMPL_H
#define COLL_IMPL_H

#include "core/base/coll_refuse.h"
#if !defined(COLL__REFUSED)

#include "core/base/coll_base.h"
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
#include "core/algorithms/coll_circulant.h"
#include "core/algorithms/coll_tree.h"
#include "core/algorithms/coll_blocks.h"
#include "core/algorithms/coll_scan.h"
#include "core/algorithms/coll_cost.h"
#include "core/algorithms/coll_algorithms.h"
#include "core/algorithms/coll_tuner.h"
#include "core/engine/coll_comm.h"
#include "core/session/coll_record.h"
#include "core/engine/coll_check.h"
#include "core/engine/coll_match.h"
#include "core/engine/coll_notes.h"
#include "core/engine/coll_messages.h"
#include "core/engine/coll_engine.h"
#include "core/engine/coll_progress.h"
#include "core/engine/coll_freed.h"
#include "core/session/coll_mover.h"
#include "core/engine/coll_list.h"
#include "core/engine/coll_feedback.h"
#include "core/engine/coll_prepared.h"
#include "core/session/coll_launchers.h"
#include "core/session/coll_config.h"
#include "core/engine/coll_enter.h"
#include "core/engine/coll_wait.h"
#include "core/engine/coll_again.h"
#include "core/session/coll_groups.h"
#include "core/engine/coll_hosts.h"
#include "core/session/coll_shrink.h"
#include "core/session/coll_measure.h"
#include "core/session/coll_explain.h"
#include "transports/coll_threads.h"
#include "transports/coll_tcp.h"
#include "transports/coll_joined.h"
#include "transports/coll_sim.h"
#if defined(COLL_WITH_MPI)
#include "transports/coll_mpi.h"
#endif
#if defined(COLL_WITH_NCCL)
#include "transports/coll_nccl.h"
#endif

/* ---- >>communicators ---- */

static const char coll__forked_text[] = "this communicator belongs to the parent process: a forked child cannot use it";

/* `count` ranks that share a hub. */
static coll_status coll__open_threads(int count, coll_comm **out, coll__settings *s)
{
    coll__hub *hub = coll__hub_open(0, count, count > coll__processors());
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

/* A rank of several processes is in. */
static void coll__joined_up(coll_comm *comm, const coll__settings *s, const coll__log *log)
{
    coll__trunk *trunk = comm->trunk;

    coll__say(log, COLL_LOG_INFO, "rank %d of %d (from %s), rank %d of %d on its host, over %s at %s with %s", trunk->rank,
              trunk->size, s->source, s->local_rank, s->local_size, trunk->transport->name, s->config.address,
              trunk->transport->describe(trunk->context));
}

static coll_status coll__open_tcp(coll_comm **out, coll__settings *s)
{
    const coll_config *c = &s->config;
    const coll__log log = { c->log_level, c->log, c->log_context };
    coll__tcp *tcp = NULL;
    const coll_status status = coll__tcp_open(&tcp, s, &log);

    if (status < 0) return status;
    *out = coll__comm_new(&coll__tcp_transport, tcp, c->rank, c->size, s);
    if (!*out) return coll__start_failed(COLL_ERR_MEMORY, "no memory for rank %d of %d", c->rank, c->size);
    coll__joined_up(*out, s, &log);
    return COLL_OK;
}

/* `count` ranks of a world that has others. */
static coll_status coll__open_joined(int count, coll_comm **out, coll__settings *s)
{
    const coll__log log = { s->config.log_level, s->config.log, s->config.log_context };
    coll_status status;

    for (int i = 0; i < count; i++) out[i] = NULL;
    coll__arrival *all = coll__joined_meet(s, count, &log, &status);
    if (!all) return status;
    coll__hub *hub = coll__joined_hub(all);
    for (int i = 0; i < count && hub; i++) {
        const coll__settings *own = &all->comers[i].settings;
        coll__joined *me = coll__joined_take(all, i, hub);
        out[i] = me ? coll__comm_new(&coll__joined_transport, me, own->config.rank, own->config.size, own) : NULL;
        if (!out[i]) break;
        out[i]->trunk->offloads_all = false;
        coll__joined_up(out[i], own, &log);
    }
    if (!out[count - 1]) status = coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);
    for (int i = 0; i < count && status < 0; i++) {
        coll_free(out[i]);
        out[i] = NULL;
    }
    if (hub) coll__hub_release(hub);
    coll__arrival_free(all);
    return status;
}

/* `count` ranks of a simulated world. */
static coll_status coll__open_sim(int count, coll_comm **out, coll__settings *s)
{
    coll__sim_settings sim;
    coll_status status = coll__sim_settle(&sim, s->config.sim, count);

    for (int i = 0; i < count; i++) out[i] = NULL;
    if (status < 0) return status;
    const coll_sim *c = &sim.config;
    coll__sim *world = coll__sim_open(count, c);
    if (!world) status = coll__start_failed(COLL_ERR_MEMORY, "no memory for %d simulated ranks", count);
    if (s->numbers.origin == COLL__BY_DEFAULT) {
        s->numbers.link = (coll__link){ c->latency, c->overhead, c->seconds_per_byte, c->seconds_per_byte_reduced, 0 };
        s->numbers.nominal = s->numbers.link;
        s->numbers.origin = COLL__BY_SIMULATION;
    }
    for (int i = 0; i < count && status == COLL_OK; i++) {
        s->local_rank = i % c->ranks_per_host;
        s->local_size = (int)coll__least((size_t)c->ranks_per_host, (size_t)(count - i + s->local_rank));
        world->holders++;
        out[i] = coll__comm_new(&coll__sim_transport, &world->ranks[i], i, count, s);
        if (!out[i]) {
            status = coll__start_failed(COLL_ERR_MEMORY, "no memory for rank %d of %d", i, count);
            break;
        }
        out[i]->trunk->spin_us = 0;               /* nothing happens while a rank spins                       */
        out[i]->trunk->is_synchronous = c->capacity < 0;
    }
    for (int i = 0; i < count && status < 0; i++) {
        coll_free(out[i]);
        out[i] = NULL;
    }
    if (world) coll__sim_release(world);
    return status;
}

#if !defined(COLL_WITH_MPI)
static coll_status coll__open_mpi(coll_comm **out, coll__settings *s, const coll_config *config)
{
    (void)out, (void)s, (void)config;
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "transport \"mpi\", but this program was compiled without COLL_WITH_MPI");
}
#endif

static coll_status coll__init_as(coll__settings *s, coll_comm **out, const coll_config *config)
{
    const char *wanted = config && config->transport ? config->transport : getenv("COLL_TRANSPORT");
    if (wanted && !strcmp(wanted, "mpi")) return coll__open_mpi(out, s, config);
    coll_status status = coll__settle(s, config, 1);

    if (status == COLL_OK && s->config.rank == 0) status = coll__settle_tuning(s);      /* it hands on what it has read */
    if (status < 0) return status;
    const char *name = s->config.transport ? s->config.transport : s->config.size > 1 ? "tcp" : "threads";
    if (!strcmp(name, "threads") && s->config.size > 1)
        return coll__start_failed(COLL_ERR_ARGUMENT,
                                  "coll_init makes one rank: for %d ranks that are threads call coll_init_threads",
                                  s->config.size);
    if (!strcmp(name, "threads") || (!strcmp(name, "tcp") && s->config.size == 1)) return coll__open_threads(1, out, s);
    if (!strcmp(name, "tcp")) return coll__open_tcp(out, s);
    if (!strcmp(name, "sim") && s->config.size == 1) return coll__open_sim(1, out, s);
    if (!strcmp(name, "sim"))
        return coll__start_failed(COLL_ERR_ARGUMENT, "a simulated world is one thread: for %d ranks call coll_spawn or "
                                  "coll_init_threads", s->config.size);
    return coll__start_failed(COLL_ERR_ARGUMENT, "transport \"%.32s\" is none of tcp, threads, sim, mpi", name);
}

static coll_status coll__init(coll_comm **out, const coll_config *config)
{
    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init: out is NULL");
    *out = NULL;
    coll__settings *const s = coll__settings_new();
    if (!s) return COLL_ERR_MEMORY;
    const coll_status status = coll__init_as(s, out, config);
    coll__settings_free(s);
    return status;
}

COLL_API coll_status coll_init(coll_comm **out, const coll_config *config)
{
    return coll__started(coll__init(out, config), config);
}

static coll_status coll__init_threads_as(coll__settings *s, int count, coll_comm **out, const coll_config *config)
{
    coll_config wanted = config ? *config : (coll_config){ 0 };

    if (!wanted.transport) wanted.transport = getenv("COLL_TRANSPORT");
    const char *name = wanted.transport ? wanted.transport : "";
    const bool is_simulated = !strcmp(name, "sim");
    if (is_simulated) wanted.rank = 0, wanted.size = 1;       /* the launcher's rank and size are not ours    */
    coll_status status = coll__settle(s, &wanted, count);
    if (status == COLL_OK && s->config.rank == 0) status = coll__settle_tuning(s);
    if (status < 0) return status;
    if (s->config.size == count) s->local_size = count;       /* whatever a launcher has said of its processes    */
    if (is_simulated) return coll__open_sim(count, out, s);
    if (s->config.size == count) {
        if (count > 1 && s->launch.size == count && coll__counts_ranks(s->launch.by) && !coll__environment("COLL_THREADS"))
            coll__say(&(coll__log){ s->config.log_level, s->config.log, s->config.log_context }, COLL_LOG_WARN,
                      "this process makes all %d ranks of COLL_SIZE=%d and waits for no other process; where others are started "
                      "too, COLL_SIZE is the sum over all of them (COLL_THREADS=%d: this line is not needed)", count, count,
                      count);
        return coll__open_threads(count, out, s);
    }
    if (!strcmp(name, "threads"))
        return coll__start_failed(COLL_ERR_ARGUMENT, "there are %d ranks (from %s), but transport \"threads\" has only the %d of "
                                  "this process: leave the transport out", s->config.size, s->source, count);
    return count == 1 ? coll__open_tcp(out, s) : coll__open_joined(count, out, s);
}

static coll_status coll__init_threads(int count, coll_comm **out, const coll_config *config)
{
    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init_threads: out is NULL");
    if (count < 1 || count > COLL__SIZE_MOST)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init_threads: count %d is out of range: 1 to %d", count,
                                  COLL__SIZE_MOST);
    out[0] = NULL;
    coll__settings *const s = coll__settings_new();
    if (!s) return COLL_ERR_MEMORY;
    const coll_status status = coll__init_threads_as(s, count, out, config);
    coll__settings_free(s);
    return status;
}

COLL_API coll_status coll_init_threads(int count, coll_comm **out, const coll_config *config)
{
    return coll__started(coll__init_threads(count, out, config), config);
}

static coll_status coll__init_custom(const coll_transport *transport, void *context, int rank, int size, coll_comm **out)
{
    coll_config only = { 0 };

    if (!out || !transport || !transport->send || !transport->recv || !transport->progress || !transport->close)
        return coll__start_failed(COLL_ERR_ARGUMENT,
                                  "coll_init_custom: out is NULL, or the transport lacks send, recv, progress or close");
    *out = NULL;
    if (size < 1 || size > COLL__SIZE_MOST)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init_custom: size %d is out of range: 1 to %d", size, COLL__SIZE_MOST);
    if (rank < 0 || rank >= size)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init_custom: rank %d is out of range for %d ranks", rank, size);
    only.size = 1;
    coll__settings *const s = coll__settings_new();
    if (!s) return COLL_ERR_MEMORY;
    const coll_status status = coll__settle(s, &only, 1);
    if (status == COLL_OK) *out = coll__comm_new(transport, context, rank, size, s);
    coll__settings_free(s);
    if (status < 0) return status;
    return *out ? COLL_OK : coll__start_failed(COLL_ERR_MEMORY, "no memory for rank %d of %d", rank, size);
}

COLL_API coll_status coll_init_custom(const coll_transport *transport, void *context, int rank, int size, coll_comm **out)
{
    return coll__started(coll__init_custom(transport, context, rank, size, out), NULL);
}

COLL_API coll_status coll_free(coll_comm *comm)
{
    if (!comm) return COLL_OK;
    coll__trunk *trunk = comm->trunk;
    const bool is_forked = !*comm->guard;

    if (!is_forked && coll__is_shared(trunk)) coll__trunk_take(comm);
    const bool is_last = trunk->comms == comm && !comm->next;
    if (!is_forked && is_last) coll__mover_stop(trunk);
    if (is_forked) coll__comm_forget(comm);
    else coll__comm_leave(comm, is_last);
    coll__prepared_orphan(comm);
    coll__comm_unlink(comm);
    if (!is_last && !is_forked) coll__doing_comms(trunk);
    if (comm->is_holder) coll__trunk_drop(comm);
    if (comm->owner) *comm->owner = NULL;
    coll__comm_free(comm);
    if (is_last) coll__trunk_free(trunk);
    return COLL_OK;
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
    const coll__trunk *trunk = comm->trunk;
    const int host = trunk->transport->host ? trunk->transport->host(trunk->context, trunk->rank) : trunk->rank;
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
    return coll__leave(comm, me < 0 ? COLL_ERR_ARGUMENT : coll__create_inside(comm, ranks, count, me, tag, out));
}

COLL_API coll_status coll_neighbors(coll_comm *comm, const int *sources, int source_count, const int *destinations,
                                    int destination_count)
{
    coll_status status = coll__enter_alive(comm);
    const coll__graph graph = { source_count, destination_count, sources, destinations };

    if (status < 0) return status;
    status = coll__check_neighbors(comm, "source", sources, source_count);
    if (status == COLL_OK) status = coll__check_neighbors(comm, "destination", destinations, destination_count);
    return coll__leave(comm, status < 0 ? status : coll__neighbors_inside(comm, &graph));
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
    coll__trunk *trunk = comm->trunk;

    if (!__atomic_exchange_n(&trunk->abort_claimed, 1, __ATOMIC_ACQ_REL)) {
        coll__abort_sentence(trunk->abort_text, sizeof trunk->abort_text, trunk->rank, why);
        __atomic_store_n(&trunk->abort_wanted, 1, __ATOMIC_RELEASE);
    }
    if (!__atomic_load_n(&trunk->abort_wanted, __ATOMIC_ACQUIRE)) return COLL_OK;      /* another one is about to tell     */
    const bool is_told = trunk->transport->abort && trunk->transport->abort(trunk->context, trunk->abort_text);
    if (trunk->transport->wake) trunk->transport->wake(trunk->context);
    errno = error;
    if (is_told) return COLL_OK;
    if (!coll__door_claim(&comm->door, trunk, false)) return COLL_OK;      /* whoever is inside sees to it             */
    if (coll__is_shared(trunk)) coll__trunk_take(comm);
    (void)coll__advance(trunk, 0);
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

/* The one that is to blame, those of which the transport knows, and those who did not come when it was shrunk. */
COLL_API int coll_failed_ranks(const coll_comm *comm, int *ranks, int capacity)
{
    const coll__trunk *trunk = comm && *comm->guard ? comm->trunk : NULL;
    const bool has_failed = trunk && __atomic_load_n(&trunk->failure.status, __ATOMIC_ACQUIRE) != COLL_OK;
    unsigned char *is_failed = has_failed ? (unsigned char *)calloc((size_t)trunk->size, 1) : NULL;
    int count = 0;

    if (!is_failed) return 0;
    const coll_failure *why = &trunk->failure;
    if (why->rank >= 0 && (why->status == COLL_ERR_PEER || why->status == COLL_ERR_TIMEOUT)) is_failed[why->rank] = 1;
    if (trunk->transport->failed) trunk->transport->failed(trunk->context, is_failed);
    for (int i = 0; trunk->survival && i < trunk->size; i++)
        if (trunk->survival[i] != COLL__NOT_LISTED) is_failed[i] = trunk->survival[i] == COLL__LOST;
    for (int pass = 0; pass < 2; pass++)          /* the one that ended it first                              */
        for (int i = 0; i < comm->size; i++) {
            const int rank = coll__world_rank(comm, i);
            if (!is_failed[rank] || (rank == why->rank) != (pass == 0)) continue;
            if (ranks && count < capacity) ranks[count] = i;
            count++;
        }
    free(is_failed);
    return count;
}

COLL_API int coll_rank(const coll_comm *comm) { return comm ? comm->rank : -1; }
COLL_API int coll_size(const coll_comm *comm) { return comm ? comm->size : 0; }
COLL_API int coll_local_rank(const coll_comm *comm) { return comm ? comm->trunk->local_rank : -1; }
COLL_API int coll_local_size(const coll_comm *comm) { return comm ? comm->trunk->local_size : 0; }

COLL_API const char *coll_error(const coll_comm *comm)
{
    if (!comm) return coll__start_error;
    return *comm->guard ? coll__sentence_of(comm) : coll__forked_text;
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

    w->comm->owner = &w->comm;
    w->result = w->fn(w->comm, w->arg);
    coll_free(w->comm);
    return NULL;
}

/* All simulated ranks of a coll_spawn. */
typedef struct coll__crew { coll__worker *workers; } coll__crew;

static void coll__sim_body(void *arg, int rank)
{
    (void)coll__worker_main(&((coll__crew *)arg)->workers[rank]);
}

/* Free what killed and stopped ranks have left open: the communicators of each world in which they were, and those derived. */
static void coll__sim_bury(coll__sim *w)
{
    for (int i = 0; i < w->places; i++)
        for (coll__sim_rank *r = w->fibers[i].newest, *before; r; r = before) {
            coll__trunk *trunk = r->doing ? (coll__trunk *)((uintptr_t)r->doing - offsetof(coll__trunk, doing)) : NULL;
            before = r->before;
            if (r->has_closed || !trunk) continue;
            trunk->is_held = false;               /* whoever was inside will not come out                     */
            for (bool is_last = false; !is_last;) {
                is_last = trunk->comms->next == NULL;
                coll_free(trunk->comms);
            }
        }
}

/* coll_spawn in a simulated world: ranks are fibers of the calling thread. */
static int coll__spawn_sim(int count, int (*fn)(coll_comm *comm, void *arg), void *arg, const coll_config *config)
{
    coll_comm **comms = (coll_comm **)calloc((size_t)count, sizeof *comms);
    coll__crew crew = { (coll__worker *)calloc((size_t)count, sizeof(coll__worker)) };
    int result = comms && crew.workers ? coll__init_threads(count, comms, config)
                                       : coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);

    (void)coll__started((coll_status)result, config);
    if (result == 0) {
        coll__sim *world = ((coll__sim_rank *)comms[0]->trunk->context)->world;
        for (int i = 0; i < count; i++) crew.workers[i] = (coll__worker){ .comm = comms[i], .fn = fn, .arg = arg };
        const bool has_run = coll__sim_run(world, coll__sim_body, &crew) == COLL_OK;
        if (!has_run)
            result = coll__started(coll__start_failed(COLL_ERR_MEMORY, "no memory for the stacks of %d ranks", count), config);
        for (int i = 0; i < count; i++) {
            if (result == 0) result = crew.workers[i].result;
            if (!has_run) coll_free(comms[i]);
        }
        if (has_run) coll__sim_bury(world);
        coll__sim_run_end(world);
    }
    free(crew.workers);
    free(comms);
    return result;
}

COLL_API int coll_spawn(int count, int (*fn)(coll_comm *comm, void *arg), void *arg)
{
    if (!fn) return coll__started(coll__start_failed(COLL_ERR_ARGUMENT, "coll_spawn: fn is NULL"), NULL);
    if (count < 1 || count > COLL__SIZE_MOST)
        return coll__started(coll__start_failed(COLL_ERR_ARGUMENT, "coll_spawn: count %d is out of range: 1 to %d", count,
                                                COLL__SIZE_MOST), NULL);
    const char *transport = getenv("COLL_TRANSPORT");
    if (transport && !strcmp(transport, "sim")) return coll__spawn_sim(count, fn, arg, NULL);
    coll_comm **comms = (coll_comm **)calloc((size_t)count, sizeof *comms);
    coll__worker *workers = (coll__worker *)calloc((size_t)count, sizeof *workers);
    int result = comms && workers ? coll__init_threads(count, comms, NULL)
                                  : coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);
    int error = 0;

    (void)coll__started((coll_status)result, NULL);
    for (int i = count - 1; i >= 0 && result == 0; i--) {
        workers[i] = (coll__worker){ .comm = comms[i], .fn = fn, .arg = arg };
        if (i == 0) coll__worker_main(&workers[0]);           /* rank 0 is the caller's thread */
        else if (!error && (error = pthread_create(&workers[i].thread, NULL, coll__worker_main, &workers[i])) == 0)
            workers[i].is_running = true;
        if (error) {                              /* those that run are told that the others will not come    */
            for (int k = i; k >= 0; k--) coll_free(comms[k]);
            result = coll__started(coll__start_failed(COLL_ERR_SYSTEM, "cannot make a thread for rank %d of %d: %s", i, count,
                                                      strerror(error)), NULL);
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

/* Carry out the call in r->call, on this rank's stack. */
static coll_status coll__run(coll_comm *comm, coll_request *r)
{
    const coll_status status = coll__enter_alive(comm);
    return status < 0 ? status : coll__leave(comm, coll__run_inside(comm, r));
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

/* A request on the heap for a call, checked; inside a call on the communicator. */
static coll_status coll__request_new(coll_comm *comm, const coll_call *call, coll_request **out)
{
    if (!call || !out) return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "the call or out is NULL");
    coll_request *r = (coll_request *)coll__allocate(sizeof *r);

    *out = r;
    if (!r) return coll__explain_error(comm, call, COLL_ERR_MEMORY, "no memory for a request");
    r->call = *call;
    const coll_status status = coll__ready(comm, r);
    if (status == COLL_OK) return COLL_OK;
    *out = NULL;
    free(r);
    return status;
}

/* Start a request and see how far it comes; errors from here on are the request's. */
static void coll__start_request(coll_comm *comm, coll_request *r)
{
    coll_status begun = coll__begin(r);

    if (begun >= 0 && r->status == COLL_PENDING && !r->is_on_device) begun = coll__advance(comm->trunk, 0);
    if (begun < 0 && r->status == COLL_PENDING) r->status = comm->trunk->failure.status;
    if (r->status == COLL_PENDING && !r->is_on_device) coll__mover_rouse(comm);
}

COLL_API coll_status coll_start(coll_comm *comm, const coll_call *call, coll_request **out)
{
    if (out) *out = NULL;
    coll_status status = coll__enter_alive(comm);
    if (status < 0) return status;
    status = coll__request_new(comm, call, out);
    if (status == COLL_OK) coll__start_request(comm, *out);
    return coll__leave(comm, status);
}

COLL_API coll_status coll_prepare(coll_comm *comm, const coll_call *call, coll_request **out)
{
    if (out) *out = NULL;
    coll_status status = coll__enter_alive(comm);
    if (status < 0) return status;
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
    r.is_blocking = false;
    if ((status = coll__ready(comm, &r)) < 0) return coll__leave(comm, status);
    coll__explain_inside(comm, &r, line, sizeof line);
    coll__list_free(r.list);
    free(r.offsets);
    coll__leave(comm, COLL_OK);
    return snprintf(text, length, "%s", line);
}

COLL_API void coll_dump(coll_comm *comm, FILE *file)
{
    if (!comm || !file) return;
    if (!*comm->guard) {
        fprintf(file, "%s\n", coll__forked_text);
        return;
    }
    const bool is_inside = coll__enter(comm) == COLL_OK;
    coll__dump_text(comm, file);
    if (is_inside) (void)coll__leave(comm, COLL_OK);
}

COLL_API int coll_link_text(const coll_comm *comm, char *text, size_t length)
{
    char all[COLL__TUNING_ROOM];

    if (!comm || (length > 0 && !text)) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_link_text: comm or text is NULL");
    if (!*comm->guard) return COLL_ERR_FORKED;
    coll__numbers_print(&comm->numbers, all, sizeof all);
    return snprintf(text, length, "%s", all);
}

COLL_API coll_status coll_measure(coll_comm *comm)
{
    const coll_status status = coll__enter_alive(comm);
    return status < 0 ? status : coll__leave(comm, coll__measure_inside(comm));
}

COLL_API uint64_t coll_overflows(const coll_comm *comm)
{
    return comm && *comm->guard ? __atomic_load_n(&comm->overflows, __ATOMIC_RELAXED) : 0;
}

COLL_API void coll_traffic(const coll_comm *comm, uint64_t *sent, uint64_t *received)
{
    uint64_t out = 0, in = 0;
    const coll__trunk *trunk = comm && *comm->guard ? comm->trunk : NULL;

    if (trunk && trunk->transport->traffic) trunk->transport->traffic(trunk->context, &out, &in);
    if (sent) *sent = out;
    if (received) *received = in;
}

COLL_API double coll_sim_time(const coll_comm *comm)
{
    if (!comm || !*comm->guard || comm->trunk->transport != &coll__sim_transport) return 0;
    return ((const coll__sim_rank *)comm->trunk->context)->clock;
}

/* Messages that this rank of a simulated world has sent. */
static COLL__UNUSED uint64_t coll__sim_messages(const coll_comm *comm)
{
    return comm->trunk->transport == &coll__sim_transport ? ((const coll__sim_rank *)comm->trunk->context)->messages : 0;
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
        return coll_start(comm, call, out);                                                                 \
    }
#define COLL__UNPACK(...) __VA_ARGS__

/* The same for kinds that one glance is enough for (coll_again.h). */
#define COLL__SIMPLE(name, parameters, fields)                                                              \
    COLL_API coll_status coll_##name(COLL__UNPACK parameters)                                               \
    {                                                                                                       \
        return coll__run_simple(comm, COLL__UNPACK fields);                                                 \
    }                                                                                                       \
    COLL__STARTED(name, parameters, fields, (void)0)

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
           (COLL_SEND, buffer, NULL, count, type, COLL_SUM, peer), call->tag = tag)

COLL__BOTH(recv, (coll_comm *comm, void *buffer, size_t count, coll_type type, int peer, int tag),
           (COLL_RECV, NULL, buffer, count, type, COLL_SUM, peer), call->tag = tag)

COLL__BOTH(sendrecv,
           (coll_comm *comm, const void *send, size_t send_count, int dest, void *recv, size_t recv_count, int source,
            coll_type type, int tag),
           (COLL_SENDRECV, send, recv, send_count, type, COLL_SUM, dest),
           (call->recv_count = recv_count, call->source = source, call->tag = tag))

#undef COLL__BOTH
#undef COLL__STARTED
#undef COLL__SIMPLE
#undef COLL__UNPACK

#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#else
#pragma GCC pop_options
#endif
#endif /* COLL__REFUSED */
#endif /* COLL_IMPL_H */
