/* coll_measure.h - the numbers of the cost model, measured: latency, overhead, seconds per byte, seconds per byte reduced; whose
 * links are faster than those of others; and which hosts are far from one another.
 *
 * Each number is the median of several runs (coll_measure_runs.h), of the slowest peer: a collective waits for the last.  Rank 0
 * decides, and tells the others.  A large message is as long as the link carries in 1.5 ms. */
#ifndef COLL_MEASURE_H
#define COLL_MEASURE_H

#if !defined(COLL_NO_TUNER)

#define COLL__MEASURE_LONG 1.5e-3                 /* s that a large message is to take at most                */

/* How long a large message is to be: rank 0 tries a short one with the last rank, and tells all, with the latency. */
static coll_status coll__measure_length(coll_comm *comm, unsigned char *memory, size_t *bytes, double *latency)
{
    double told[2] = { 0, COLL__MEASURE_BYTES_LEAST }, seconds = 0;
    const int peer = comm->size - 1;
    coll_request r;

    coll_status status = coll__measure_way(comm, COLL__MEASURE_PING, peer, memory, 0, 2 * COLL__MEASURE_TRIPS, &told[0]);
    if (status == COLL_OK)
        status = coll__measure_way(comm, COLL__MEASURE_EXCHANGE, peer, memory, COLL__MEASURE_BYTES_LEAST, COLL__MEASURE_EXCHANGES,
                                   &seconds);
    if (status < 0) return status;
    const double each = (seconds - told[0]) / COLL__MEASURE_BYTES_LEAST;
    while (told[1] < COLL__MEASURE_BYTES && 2 * told[1] * each <= COLL__MEASURE_LONG) told[1] *= 2;
    r.call = (coll_call){ .kind = COLL_BROADCAST, .recv = told, .count = 2, .type = COLL_F64, .name = "measure" };
    status = coll__run_by_host(comm, &r);
    *latency = told[0];
    *bytes = (size_t)told[1];
    return status;
}

/* Every rank runs this; what rank 0 finds is what counts. */
static coll_status coll__measure_wire(coll_comm *comm, unsigned char *memory, size_t bytes, coll__link *link)
{
    const int many = comm->size == 2 ? COLL__MEASURE_BURST / 2 : coll__less(comm->size - 1, COLL__MEASURE_BURST);
    int peers[COLL__MEASURE_PEERS];
    const int count = coll__measure_peers(comm->size, peers), last = coll__less(many, comm->size - 1);
    coll_status status = COLL_OK;
    double seconds, exchange = 0, latency = 0, burst, reach = 0;

    if (count > 0) status = coll__measure_way(comm, COLL__MEASURE_PING, last, memory, 0, 2 * COLL__MEASURE_TRIPS, &reach);
    for (int i = 0; i < count && status == COLL_OK; i++) {
        status = coll__measure_way(comm, COLL__MEASURE_PING, peers[i], memory, 0, 2 * COLL__MEASURE_TRIPS, &seconds);
        if (status == COLL_OK) latency = coll__longer(latency, seconds);
        if (peers[i] <= last) reach = coll__longer(reach, seconds);
        if (status < 0) break;
        status = coll__measure_way(comm, COLL__MEASURE_EXCHANGE, peers[i], memory, bytes, COLL__MEASURE_EXCHANGES, &seconds);
        if (status == COLL_OK) exchange = coll__longer(exchange, seconds);
    }
    if (count == 0 || status < 0) return status;
    status = coll__measure_way(comm, COLL__MEASURE_MANY, many, memory, 0, COLL__MEASURE_TRIPS, &burst);
    if (status < 0) return status;
    link->latency = latency;
    link->per_byte = (exchange - latency) / (double)bytes;
    if (many > 1) link->overhead = (burst - 2 * reach) / (many - 1);      /* reach: of the farthest that the burst goes to    */
    return COLL_OK;
}

static double coll__clamped(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

/* What no machine can be, a measurement that was disturbed may be: a wire of more than 10 TB/s, a message for nothing.  And
 * rounded, so that the text of coll_link_text is all there is to know. */
static void coll__numbers_settle(coll__numbers *n)
{
    const coll__link nominal = n->nominal;
    const coll__far nominal_far = n->nominal_far;

    n->link.latency = coll__clamped(n->link.latency, 1e-8, 10);
    n->link.overhead = coll__clamped(n->link.overhead, 1e-9, 10 * n->link.latency);
    n->link.per_byte = coll__clamped(n->link.per_byte, 1e-13, 1e-3);
    n->link.per_byte_reduced = coll__clamped(n->link.per_byte_reduced, 1e-13, 1e-3);
    n->barrier = coll__clamped(n->barrier, 0, 10);
    n->far.per_byte = coll__clamped(n->far.per_byte, 0, 1e-3);
    coll__numbers_round(n);
    n->nominal = nominal;
    n->nominal_far = nominal_far;
}

/* The numbers of rank 0 become everyone's, and choices that were made with others are forgotten. */
static coll_status coll__measure_tell(coll_comm *comm, const coll__numbers *found)
{
    const coll__link *l = &found->link;
    double told[7] = { l->latency, l->overhead, l->per_byte, l->per_byte_reduced, found->barrier, found->far.latency,
                       found->far.per_byte };
    coll_request r;

    r.call = (coll_call){ .kind = COLL_BROADCAST, .recv = told, .count = 7, .type = COLL_F64, .name = "measure" };
    const coll_status status = coll__run_by_host(comm, &r);
    if (status < 0) return status;
    comm->numbers.link = (coll__link){ told[0], told[1], told[2], told[3], comm->numbers.nominal.per_byte_handled };
    comm->numbers.barrier = told[4];
    comm->numbers.far = (coll__far){ told[5], told[6] };
    comm->numbers.sites = found->sites;
    comm->numbers.shares = found->shares;
    (void)coll__shares_settle(&comm->numbers.shares, comm->size);
    comm->numbers.origin = COLL__BY_MEASURING;
    comm->numbers.version++;
    coll__stages_believe(&comm->main);
    return COLL_OK;
}

static coll_status coll__measure_inside(coll_comm *comm)
{
    const size_t values = coll__hosts_seen_bytes(comm->size);
    size_t bytes = 0;
    double latency = 0;
    coll__numbers found = comm->numbers;
    coll_failure failure = { COLL_OK, -1, "" };
    unsigned char *const memory = comm->gauge
        = (unsigned char *)coll__allocate(coll__like(comm), values + 2 * (size_t)COLL__MEASURE_BYTES + 64);
    if (!memory) {                                /* the others count on us: this is the end of all           */
        const int me = comm->session->rank;
        coll__blame(&failure, COLL_ERR_MEMORY, me, "rank %d has no memory to measure with", me);
        return coll__session_fail(comm->session, &failure);
    }
    unsigned char *const buffers = memory + values;
    coll_status status = comm->size > 1 ? coll__measure_length(comm, buffers, &bytes, &latency) : COLL_OK;
    if (status == COLL_OK) status = coll__measure_wire(comm, buffers, bytes, &found.link);
    if (status == COLL_OK) status = coll__measure_hosts(comm, memory, bytes, latency, &found);
    if (status == COLL_OK) status = coll__measure_barrier(comm, &found.barrier);
    if (status == COLL_OK && comm->rank == 0) {
        memset(buffers, 0, 2 * COLL__MEASURE_FLOATS * sizeof(float));
        found.link.per_byte_reduced = coll__measure_fold(comm->session, buffers);
        coll__numbers_settle(&found);
    }
    coll__give(memory);
    comm->gauge = NULL;
    return status == COLL_OK ? coll__measure_tell(comm, &found) : status;
}

#else

static coll_status coll__measure_inside(coll_comm *comm)
{
    return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "measure: there is no model to measure for, since this program "
                               "was compiled with COLL_NO_TUNER");
}

#endif
#endif /* COLL_MEASURE_H */
