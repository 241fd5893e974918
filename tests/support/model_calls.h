/* model_calls.h - a descriptor as the blocking and the non-blocking call that says the same, and worlds by name, the simulated
 * one included.  Used after model.h. */
#ifndef MODEL_CALLS_H
#define MODEL_CALLS_H

/* ---- >>styles ---- */

typedef enum model_style { MODEL_BLOCKING, MODEL_REQUEST, MODEL_PREPARED, MODEL_RUN, MODEL_START, MODEL_STYLE_COUNT } model_style;

static const char *const model_style_names[] = { "blocking", "request", "prepared", "coll_run", "coll_start" };

/* Can the call be made without a descriptor? */
SUPPORT bool model_is_plain(const coll_call *d)
{
    const bool is_scaled = d->scale < 0 || d->scale > 0;

    return !d->algorithm && !d->flags && !is_scaled && d->op != COLL_USER && !d->accumulate && !d->timeout_ms &&
           (!d->wire || d->kind == COLL_ALLREDUCE);
}

SUPPORT coll_status model_plain(coll_comm *m, const coll_call *d)
{
    switch (d->kind) {
    case COLL_BARRIER:         return coll_barrier(m);
    case COLL_BROADCAST:       return coll_broadcast(m, d->recv, d->count, d->type, d->root);
    case COLL_REDUCE:          return coll_reduce(m, d->send, d->recv, d->count, d->type, d->op, d->root);
    case COLL_ALLREDUCE:
        if (d->wire) return coll_allreduce_mixed(m, d->send, d->recv, d->count, d->type, d->wire, d->op);
        return coll_allreduce(m, d->send, d->recv, d->count, d->type, d->op);
    case COLL_REDUCE_SCATTER:  return coll_reduce_scatter(m, d->send, d->recv, d->count, d->type, d->op);
    case COLL_REDUCE_SCATTERV: return coll_reduce_scatterv(m, d->send, d->recv, d->recv_counts, d->type, d->op);
    case COLL_SCAN:            return coll_scan(m, d->send, d->recv, d->count, d->type, d->op);
    case COLL_EXSCAN:          return coll_exscan(m, d->send, d->recv, d->count, d->type, d->op);
    case COLL_GATHER:          return coll_gather(m, d->send, d->recv, d->count, d->type, d->root);
    case COLL_GATHERV:
        return coll_gatherv(m, d->send, d->count, d->recv, d->recv_counts, d->recv_offsets, d->type, d->root);
    case COLL_SCATTER:         return coll_scatter(m, d->send, d->recv, d->count, d->type, d->root);
    case COLL_SCATTERV:
        return coll_scatterv(m, d->send, d->send_counts, d->send_offsets, d->recv, d->recv_count, d->type, d->root);
    case COLL_ALLGATHER:       return coll_allgather(m, d->send, d->recv, d->count, d->type);
    case COLL_ALLGATHERV:
        return coll_allgatherv(m, d->send, d->count, d->recv, d->recv_counts, d->recv_offsets, d->type);
    case COLL_ALLTOALL:        return coll_alltoall(m, d->send, d->recv, d->count, d->type);
    case COLL_ALLTOALLV:
        return coll_alltoallv(m, d->send, d->send_counts, d->send_offsets, d->recv, d->recv_counts, d->recv_offsets, d->type);
    case COLL_ALLTOALLW:
        return coll_alltoallw(m, d->send, d->send_counts, d->send_offsets, d->send_types, d->recv, d->recv_counts,
                              d->recv_offsets, d->recv_types);
    case COLL_NEIGHBOR_ALLGATHER: return coll_neighbor_allgather(m, d->send, d->recv, d->count, d->type);
    case COLL_NEIGHBOR_ALLGATHERV:
        return coll_neighbor_allgatherv(m, d->send, d->count, d->recv, d->recv_counts, d->recv_offsets, d->type);
    case COLL_NEIGHBOR_ALLTOALL:  return coll_neighbor_alltoall(m, d->send, d->recv, d->count, d->type);
    case COLL_NEIGHBOR_ALLTOALLV:
        return coll_neighbor_alltoallv(m, d->send, d->send_counts, d->send_offsets, d->recv, d->recv_counts,
                                       d->recv_offsets, d->type);
    case COLL_NEIGHBOR_ALLTOALLW:
        return coll_neighbor_alltoallw(m, d->send, d->send_counts, d->send_offsets, d->send_types, d->recv, d->recv_counts,
                                       d->recv_offsets, d->recv_types);
    case COLL_ALLREDUCE_LIST:  return coll_allreduce_list(m, d->list, d->list_count, d->op);
    case COLL_SEND:            return coll_send(m, d->send, d->count, d->type, d->peer, d->tag);
    case COLL_RECV:            return coll_recv(m, d->recv, d->count, d->type, d->peer, d->tag);
    default:
        return coll_sendrecv(m, d->send, d->count, d->peer, d->recv, d->recv_count, d->source, d->type, d->tag);
    }
}

SUPPORT coll_status model_request(coll_comm *m, const coll_call *d, coll_request **out)
{
    switch (d->kind) {
    case COLL_BARRIER:         return coll_ibarrier(m, out);
    case COLL_BROADCAST:       return coll_ibroadcast(m, d->recv, d->count, d->type, d->root, out);
    case COLL_REDUCE:          return coll_ireduce(m, d->send, d->recv, d->count, d->type, d->op, d->root, out);
    case COLL_ALLREDUCE:
        if (d->wire) return coll_iallreduce_mixed(m, d->send, d->recv, d->count, d->type, d->wire, d->op, out);
        return coll_iallreduce(m, d->send, d->recv, d->count, d->type, d->op, out);
    case COLL_REDUCE_SCATTER:  return coll_ireduce_scatter(m, d->send, d->recv, d->count, d->type, d->op, out);
    case COLL_REDUCE_SCATTERV: return coll_ireduce_scatterv(m, d->send, d->recv, d->recv_counts, d->type, d->op, out);
    case COLL_SCAN:            return coll_iscan(m, d->send, d->recv, d->count, d->type, d->op, out);
    case COLL_EXSCAN:          return coll_iexscan(m, d->send, d->recv, d->count, d->type, d->op, out);
    case COLL_GATHER:          return coll_igather(m, d->send, d->recv, d->count, d->type, d->root, out);
    case COLL_GATHERV:
        return coll_igatherv(m, d->send, d->count, d->recv, d->recv_counts, d->recv_offsets, d->type, d->root, out);
    case COLL_SCATTER:         return coll_iscatter(m, d->send, d->recv, d->count, d->type, d->root, out);
    case COLL_SCATTERV:
        return coll_iscatterv(m, d->send, d->send_counts, d->send_offsets, d->recv, d->recv_count, d->type, d->root, out);
    case COLL_ALLGATHER:       return coll_iallgather(m, d->send, d->recv, d->count, d->type, out);
    case COLL_ALLGATHERV:
        return coll_iallgatherv(m, d->send, d->count, d->recv, d->recv_counts, d->recv_offsets, d->type, out);
    case COLL_ALLTOALL:        return coll_ialltoall(m, d->send, d->recv, d->count, d->type, out);
    case COLL_ALLTOALLV:
        return coll_ialltoallv(m, d->send, d->send_counts, d->send_offsets, d->recv, d->recv_counts, d->recv_offsets, d->type,
                               out);
    case COLL_ALLTOALLW:
        return coll_ialltoallw(m, d->send, d->send_counts, d->send_offsets, d->send_types, d->recv, d->recv_counts,
                               d->recv_offsets, d->recv_types, out);
    case COLL_NEIGHBOR_ALLGATHER: return coll_ineighbor_allgather(m, d->send, d->recv, d->count, d->type, out);
    case COLL_NEIGHBOR_ALLGATHERV:
        return coll_ineighbor_allgatherv(m, d->send, d->count, d->recv, d->recv_counts, d->recv_offsets, d->type, out);
    case COLL_NEIGHBOR_ALLTOALL:  return coll_ineighbor_alltoall(m, d->send, d->recv, d->count, d->type, out);
    case COLL_NEIGHBOR_ALLTOALLV:
        return coll_ineighbor_alltoallv(m, d->send, d->send_counts, d->send_offsets, d->recv, d->recv_counts,
                                        d->recv_offsets, d->type, out);
    case COLL_NEIGHBOR_ALLTOALLW:
        return coll_ineighbor_alltoallw(m, d->send, d->send_counts, d->send_offsets, d->send_types, d->recv, d->recv_counts,
                                        d->recv_offsets, d->recv_types, out);
    case COLL_ALLREDUCE_LIST:  return coll_iallreduce_list(m, d->list, d->list_count, d->op, out);
    case COLL_SEND:            return coll_isend(m, d->send, d->count, d->type, d->peer, d->tag, out);
    case COLL_RECV:            return coll_irecv(m, d->recv, d->count, d->type, d->peer, d->tag, out);
    default:
        return coll_isendrecv(m, d->send, d->count, d->peer, d->recv, d->recv_count, d->source, d->type, d->tag, out);
    }
}

/* Make the call in a style.  Blocking ones leave no request; a prepared one has been restarted once. */
SUPPORT coll_status model_begin(coll_comm *comm, const coll_call *d, model_style style, coll_request **out)
{
    const bool is_plain = model_is_plain(d);
    coll_status status;

    *out = NULL;
    switch (style) {
    case MODEL_BLOCKING: return is_plain ? model_plain(comm, d) : coll_run(comm, d);
    case MODEL_REQUEST:  return is_plain ? model_request(comm, d, out) : coll_start(comm, d, out);
    case MODEL_RUN:      return coll_run(comm, d);
    case MODEL_START:    return coll_start(comm, d, out);
    default:             break;
    }
    status = coll_prepare(comm, d, out);
    return status ? status : coll_restart(*out);
}

/* ---- >>worlds ---- */

#if defined(COLL_WITH_NCCL)
#include "../transports/nccl/gpu_world.h"
static const char *const model_worlds[] = { "nccl" };
#else
static const char *const model_worlds[] = { "threads", "tcp-poll", "tcp-uring", "tcp-domain", "hybrid", "sim", "sim-hosts",
                                            "sim-sites" };
#endif
enum { MODEL_WORLD_COUNT = sizeof model_worlds / sizeof *model_worlds };

SUPPORT bool model_is_simulated(const char *name) { return !strncmp(name, "sim", 3); }
SUPPORT bool model_is_gpu(const char *name) { return !strcmp(name, "nccl"); }

/* Run `worker` on every rank of a world (sim-hosts: three ranks on a host; sim-sites: two, and two hosts at a site); how many, or
 * at least whether one, did not return 0. */
SUPPORT int model_run(const char *name, int size, const coll_config *config, int (*worker)(coll_comm *comm, void *arg), void *arg)
{
#if defined(COLL_WITH_NCCL)
    if (model_is_gpu(name)) return gpu_run(size, config, worker, arg);
#endif
    if (!model_is_simulated(name)) return support_run_config(name, size, config, worker, arg);
    if (!strcmp(name, "sim")) return support_run_simulated(size, worker, arg);
    const bool has_sites = !strcmp(name, "sim-sites");
    const coll_sim machine = { .ranks_per_host = has_sites ? 2 : 3, .hosts_per_site = has_sites ? 2 : 0 };
    const coll_config simulated = { .transport = "sim", .sim = &machine };
    return coll_spawn(size, worker, arg, &simulated);
}

/* Why a world cannot be had here; NULL: it can. */
SUPPORT const char *model_refusal(const char *name) { return model_is_gpu(name) ? NULL : support_refusal(name); }

#endif /* MODEL_CALLS_H */
