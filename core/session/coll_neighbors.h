/* coll_neighbors.h - the graph of a communicator: the neighbors of each rank. */
#ifndef COLL_NEIGHBORS_H
#define COLL_NEIGHBORS_H

/* Checks a list of neighbors: `count` ranks, or COLL_RANK_NONE. */
static coll_status coll__check_neighbors(coll_comm *comm, const char *name, const int *ranks, int count)
{
    if (count < 0)
        return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "neighbors: %d %ss are out of range: 0 or more", count, name);
    if (count > 0 && !ranks)
        return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "neighbors: the list of %d %ss is NULL", count, name);
    for (int i = 0; i < count; i++)
        if (ranks[i] != COLL_RANK_NONE && (ranks[i] < 0 || ranks[i] >= comm->size))
            return coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "neighbors: %s %d, at %d of the list, is out of range for "
                                       "%d ranks", name, ranks[i], i, comm->size);
    return COLL_OK;
}

/* Checks that both ends of every edge list it equally often: each rank sends each other one the number of its edges to it. */
static coll_status coll__check_edges(coll_comm *comm, const coll__graph *graph)
{
    const size_t size = (size_t)comm->size;
    uint32_t *out = (uint32_t *)coll__allocate(coll__like(comm), 2 * size * sizeof *out), *in = out ? out + size : NULL;
    coll_failure failure = { COLL_OK, -1, "" };
    coll_request r;

    if (!out) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "no memory for the neighbours of %d ranks", comm->size);
    for (int i = 0; i < graph->destinations; i++) if (graph->destination[i] != COLL_RANK_NONE) out[graph->destination[i]]++;
    r.call = (coll_call){ .kind = COLL_ALLTOALL, .send = out, .recv = in, .count = 1, .type = COLL_U32, .name = "neighbors" };
    coll_status status = coll__run_by_host(comm, &r);
    for (int i = 0; status == COLL_OK && i < graph->sources; i++) if (graph->source[i] != COLL_RANK_NONE) in[graph->source[i]]--;
    for (int i = 0; status == COLL_OK && i < comm->size; i++) {
        if (in[i] == 0) continue;
        coll__set_failure(&failure, COLL_ERR_MISMATCH, coll__world_rank(comm, i),
                          "neighbors: rank %d names rank %d as a destination %s often than rank %d names it as a source", i,
                              comm->rank,
                          in[i] < (uint32_t)INT32_MAX ? "more" : "less", comm->rank);
        status = coll__comm_fail(comm, &failure);
    }
    coll__give(out);
    return status;
}

/* Checks a graph, and sets it. */
static coll_status coll__neighbors_set(coll_comm *comm, const coll__graph *wanted)
{
    const size_t sources = (size_t)wanted->sources, destinations = (size_t)wanted->destinations;

    if (!COLL__HAS_NEIGHBOR)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "neighbors: this program was compiled with %s",
                                   COLL__HAS_COUNTS ? "a COLL_ONLY_KINDS that does not name neighbor" : "COLL_NO_COUNTS");
    coll_status status = coll__check_neighbors(comm, "source", wanted->source, wanted->sources);
    if (status == COLL_OK) status = coll__check_neighbors(comm, "destination", wanted->destination, wanted->destinations);
    if (status < 0) return status;
    int *lists = (int *)coll__take(coll__like(comm), (sources + destinations + 1) * sizeof *lists);
    if (!lists) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "no memory for %zu neighbours", sources + destinations);
    if (sources) memcpy(lists, wanted->source, sources * sizeof *lists);
    if (destinations) memcpy(lists + sources, wanted->destination, destinations * sizeof *lists);
    if ((status = coll__check_edges(comm, wanted)) < 0) {
        coll__give(lists);
        return status;
    }
    coll__give(comm->graph_lists);
    comm->graph_lists = lists;
    comm->graph_version++;
    comm->graph = (coll__graph){ wanted->sources, wanted->destinations, lists, lists + sources };
    return COLL_OK;
}

#endif /* COLL_NEIGHBORS_H */
