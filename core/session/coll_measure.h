/* coll_measure.h - the numbers of the cost model, measured: latency, overhead, seconds per byte, seconds per byte reduced; and
 * whose links are faster than those of others.
 *
 * What the model prices are rounds of the engine, so rounds of the engine are what is timed: three algorithms that compute
 * nothing, in the vocabulary of all the others, between rank 0 and a few ranks.  The rest of the communicator walks through
 * the same rounds with nothing to do in them.
 *
 *     ping       rank 0 -> peer -> rank 0 -> ...               a trip: 2 latency
 *     burst      rank 0 -> n peers at once -> rank 0 -> ...    a trip: 2 latency + (n - 1) overhead
 *     exchange   rank 0 <-> peer, a large message each         a round: latency + bytes * per_byte
 *     pairs      a rank of each host, two and two at once      a round: what the slower host of the two can carry
 *
 * Both directions of the exchange are busy at once, as they are in nearly all algorithms.  Each number is the median of
 * several runs, of the slowest peer: a collective waits for the last.  Rank 0 decides, and tells the others.
 *
 * A large message is as long as the link carries in 1.5 ms.  A host is in a pair with several others, and as fast as the best of
 * them shows; all tell all.  However many ranks there are, that is fifteen messages for each host.  One that is faster than all
 * that it is paired with is not found: a file can say so. */
#ifndef COLL_MEASURE_H
#define COLL_MEASURE_H

#if !defined(COLL_NO_TUNER)

enum {
    COLL__MEASURE_TRIPS = 8, COLL__MEASURE_RUNS = 5,
    COLL__MEASURE_EXCHANGES = 2, COLL__MEASURE_LONG_RUNS = 3,
    COLL__MEASURE_BYTES_LEAST = 32 << 10, COLL__MEASURE_BYTES = 1 << 20,
    COLL__MEASURE_BURST = 16,                     /* peers at most; between two ranks, half as many messages  */
    COLL__MEASURE_PEERS = 3,
    COLL__MEASURE_PAIRINGS = 5, COLL__MEASURE_PAIR_RUNS = 2,
    COLL__MEASURE_FOLDS = 64, COLL__MEASURE_FLOATS = 4096      /* 16 KiB a source: stays in the first cache   */
};

#define COLL__MEASURE_LONG 1.5e-3                 /* s that a large message is to take at most                */

/* ---- >>rounds; the radix stands for the peer, or for the number of messages ---- */

static bool coll__measure_ping(coll__round *now, int k)
{
    const int from = k % 2 ? now->radix : 0, to = now->radix - from;

    if (k == 2 * COLL__MEASURE_TRIPS) return false;
    if (now->rank == from) coll__send(now, to, coll__block(COLL__INPUT, 0));
    if (now->rank == to) coll__recv(now, from, coll__block(COLL__RESULT, 0));
    return true;
}

/* Message i goes to rank 1 + i, round the others; whoever got any answers once. */
static bool coll__measure_burst(coll__round *now, int k)
{
    const int others = now->size - 1, answers = coll__less(now->radix, others);
    const bool is_answer = k % 2;

    if (k == 2 * COLL__MEASURE_TRIPS) return false;
    for (int i = 0; i < (is_answer ? answers : now->radix); i++) {
        const int peer = 1 + i % others, from = is_answer ? peer : 0, to = peer - from;
        if (now->rank == from) coll__send(now, to, coll__block(COLL__INPUT, 0));
        if (now->rank == to) coll__recv(now, from, coll__block(COLL__RESULT, 0));
    }
    return true;
}

static bool coll__measure_exchange(coll__round *now, int k)
{
    if (k == COLL__MEASURE_EXCHANGES) return false;
    if (now->rank != 0 && now->rank != now->radix) return true;
    coll__send(now, now->radix - now->rank, coll__block(COLL__INPUT, 0));
    coll__recv(now, now->radix - now->rank, coll__block(COLL__RESULT, 0));
    return true;
}

/* With whom host `i` of so many is paired: its neighbour on one side, then on the other, the next but one likewise, who is on the
 * other half of the circle.  -1: with nobody. */
static int coll__measure_partner(int i, int hosts, int pairing)
{
    const int half = hosts / 2;
    const int partners[COLL__MEASURE_PAIRINGS] = {
        i ^ 1, ((i + 1) ^ 1) - 1, i ^ 2, ((i + 2) ^ 2) - 2, i < half ? i + half : i < 2 * half ? i - half : -1
    };

    if (pairing == 1 && hosts % 2 == 0 && (i == 0 || i == hosts - 1)) return hosts - 1 - i;
    return partners[pairing] < hosts ? partners[pairing] : -1;
}

/* The radix: 1 + the rank with which this one is paired; 0: none. */
static bool coll__measure_pairs(coll__round *now, int k)
{
    if (k > 0) return false;
    if (now->radix == 0) return true;
    coll__send(now, now->radix - 1, coll__block(COLL__INPUT, 0));
    coll__recv(now, now->radix - 1, coll__block(COLL__RESULT, 0));
    return true;
}

static const coll__algorithm coll__measure_ways[] = {
    { .kind = COLL_ALLTOALL, .name = "measure:ping", .round = coll__measure_ping, .cut = COLL__CUT_PER_RANK },
    { .kind = COLL_ALLTOALL, .name = "measure:burst", .round = coll__measure_burst, .cut = COLL__CUT_PER_RANK },
    { .kind = COLL_ALLTOALL, .name = "measure:exchange", .round = coll__measure_exchange, .cut = COLL__CUT_PER_RANK },
    { .kind = COLL_ALLTOALL, .name = "measure:pairs", .round = coll__measure_pairs, .cut = COLL__CUT_PER_RANK }
};
enum { COLL__MEASURE_PING, COLL__MEASURE_MANY, COLL__MEASURE_EXCHANGE, COLL__MEASURE_PAIRS };

/* Near in number, in the middle, and far: hosts are mostly runs of neighbouring ranks.  Gives how many. */
static int coll__measure_peers(int size, int *peers)
{
    const int wanted[COLL__MEASURE_PEERS] = { 1, size / 2, size - 1 };
    int count = 0;

    for (int i = 0; i < COLL__MEASURE_PEERS; i++)
        if (wanted[i] < size && wanted[i] > (count ? peers[count - 1] : 0)) peers[count++] = wanted[i];
    return count;
}

/* ---- >>runs ---- */

static double coll__median(double *values, int count)
{
    for (int i = 1; i < count; i++)
        for (int at = i; at > 0 && values[at] < values[at - 1]; at--) {
            const double value = values[at];
            values[at] = values[at - 1];
            values[at - 1] = value;
        }
    return values[count / 2];
}

static double coll__seconds_since(const coll__session *session, int64_t began)
{
    return (double)(coll__clock(session) - began) * 1e-9;
}

/* Run one of the ways above once.  The checks of ordinary calls have nothing to say about it: only rank 0 and its peers have
 * the memory that the call speaks of, and only they touch it. */
static coll_status coll__measure_once(coll_comm *comm, const coll__choice *way, unsigned char *memory, size_t bytes)
{
    coll_request r;

    r.call = (coll_call){ .kind = COLL_ALLTOALL, .send = memory, .recv = memory + bytes + 1, .count = bytes, .type = COLL_U8,
                          .algorithm = way->algorithm->name, .name = "measure" };
    coll__codec_move(&r.codec, COLL_U8);
    coll__request_init(&r, comm);
    r.offsets = NULL;
    r.way = way;
    r.carrier = coll__carrier_of(&r);
    const coll_status status = coll__launch(&r) < 0 ? r.status : coll__wait(&r);
    return status == COLL_PENDING ? comm->session->failure.status : status;
}

/* The median time of a way, divided by `parts`.  The first run does not count: it may have to connect. */
static coll_status coll__measure_way(coll_comm *comm, int which, int radix, unsigned char *memory, size_t bytes, int parts,
                                     double *seconds)
{
    const coll__choice way = { .algorithm = &coll__measure_ways[which], .radix = radix, .blocks = 1, .slices = 1 };
    const bool is_long = bytes > 0;
    const int runs = is_long ? COLL__MEASURE_LONG_RUNS : COLL__MEASURE_RUNS;
    double times[COLL__MEASURE_RUNS];

    for (int i = -1; i < runs; i++) {
        const int64_t began = coll__clock(comm->session);
        const coll_status status = coll__measure_once(comm, &way, memory, bytes);
        if (status < 0) return status;
        if (i >= 0) times[i] = coll__seconds_since(comm->session, began) / parts;
    }
    *seconds = coll__median(times, runs);
    return COLL_OK;
}

/* A barrier, where the transport takes it whole. */
static coll_status coll__measure_barrier(coll_comm *comm, double *seconds)
{
    double times[COLL__MEASURE_RUNS];
    coll_request r;

    *seconds = 0;
    if (!coll__order_is_offered(&comm->main)) return COLL_OK;
    for (int i = -1; i < COLL__MEASURE_RUNS; i++) {
        const int64_t began = coll__clock(comm->session);
        for (int trip = 0; trip < COLL__MEASURE_TRIPS; trip++) {
            r.call = (coll_call){ .kind = COLL_BARRIER, .name = "measure" };
            const coll_status status = coll__run_by_host(comm, &r);
            if (status < 0) return status;
        }
        if (i >= 0) times[i] = coll__seconds_since(comm->session, began) / COLL__MEASURE_TRIPS;
    }
    *seconds = coll__median(times, COLL__MEASURE_RUNS);
    return COLL_OK;
}

/* Seconds to add a byte of f32 to another. */
static double coll__measure_fold(const coll__session *session, unsigned char *memory)
{
    const size_t bytes = COLL__MEASURE_FLOATS * sizeof(float);
    const coll__source sources[2] = { { memory, COLL__AS_USER, 0 }, { memory + bytes, COLL__AS_USER, 1 } };
    const coll_call call = { .type = COLL_F32, .op = COLL_SUM };
    void *const result = memory + bytes;
    double times[COLL__MEASURE_RUNS];
    coll__codec codec;

    (void)coll__codec_reduce(&codec, &call, 1, NULL, 0);
    for (int i = -1; i < COLL__MEASURE_RUNS; i++) {
        const int64_t began = coll__clock(session);
        for (int k = 0; k < COLL__MEASURE_FOLDS; k++) {
            coll__combine(&codec, &(coll__sum){ .sources = sources, .n = 2, .results = &result, .m = 1, .format = COLL__AS_USER,
                                                .count = COLL__MEASURE_FLOATS, .scratch = memory + 2 * bytes });
            if (session->transport->charge_reduce) session->transport->charge_reduce(session->context, bytes);
        }
        if (i >= 0) times[i] = coll__seconds_since(session, began) / ((double)COLL__MEASURE_FOLDS * (double)bytes);
    }
    return coll__median(times, COLL__MEASURE_RUNS);
}

/* ---- >>who is faster ---- */

#define COLL__MEASURE_ALIKE 1.25                  /* by how much the rates of ranks may differ that count as alike */

/* The hosts of a communicator, in an order that all its ranks share; gives how many. */
static int coll__measure_hosts(const coll_comm *comm, int *host_of)
{
    const coll__session *session = comm->session;
    const coll_transport *t = session->transport;
    const coll__topology *hosts = comm->topology;

    for (int i = 0; i < comm->size; i++) host_of[i] = i;
    for (int host = 0; hosts && host < hosts->count; host++)
        for (int i = 0; i < coll__host_size(hosts, host); i++) host_of[coll__rank_at(hosts, host, i)] = host;
    if (hosts) return hosts->count;
    const bool is_one = !t->host || t->host(session->context, coll__world_rank(comm, 0))
                                    == t->host(session->context, coll__world_rank(comm, 1));
    return is_one ? 1 : comm->size;               /* without a list of them they are one, or one for each     */
}

static inline int coll__measure_first(const coll_comm *comm, int host)
{
    return comm->topology ? coll__rank_at(comm->topology, host, 0) : host;
}

/* Seconds of this host's quickest pair; 0: it was in none, or is not this rank's affair.  Partners begin a pairing together, and
 * two runs follow one another, for who is late in one of them is early by as much in the other. */
static coll_status coll__measure_pair(coll_comm *comm, int host, int hosts, unsigned char *memory, size_t bytes, double *seconds)
{
    const coll__session *session = comm->session;
    const bool is_first = coll__measure_first(comm, host) == comm->rank;
    coll_request r;

    *seconds = 0;
    for (int pairing = 0; pairing < COLL__MEASURE_PAIRINGS; pairing++) {
        const int partner = is_first ? coll__measure_partner(host, hosts, pairing) : -1;
        const coll__choice way = { .algorithm = &coll__measure_ways[COLL__MEASURE_PAIRS], .radix = partner < 0 ? 0
                                   : 1 + coll__measure_first(comm, partner), .blocks = 1, .slices = 1 };
        int64_t began = 0;
        r.call = (coll_call){ .kind = COLL_BARRIER, .name = "measure" };
        const coll_status status = coll__run_by_host(comm, &r);
        if (status < 0) return status;
        for (int i = -1; i < COLL__MEASURE_PAIR_RUNS; i++) {
            if (i == 0) began = coll__clock(session);
            const coll_status run = coll__measure_once(comm, &way, memory, bytes);
            if (run < 0) return run;
        }
        const double took = coll__seconds_since(session, began) / COLL__MEASURE_PAIR_RUNS;
        if (partner >= 0 && (*seconds <= 0 || took < *seconds)) *seconds = took;
    }
    return COLL_OK;
}

/* Rates that hardly differ become one: that of the slowest of those ranks. */
static void coll__measure_classes(double *rates, int count)
{
    for (double bound = 0, least;; bound = least * COLL__MEASURE_ALIKE) {
        least = 0;
        for (int i = 0; i < count; i++) if (rates[i] >= bound && (least <= 0 || rates[i] < least)) least = rates[i];
        if (least <= 0) return;
        for (int i = 0; i < count; i++)
            if (rates[i] >= least && rates[i] < least * COLL__MEASURE_ALIKE) rates[i] = least;
    }
}

/* What all ranks have found becomes the rates of their hosts, the same everywhere; but where it is hardly longer than the latency
 * they are alike. */
static void coll__measure_settle_rates(const coll_comm *comm, const int *host_of, int hosts, double latency, double *seconds,
                                       coll__numbers *found)
{
    int peers[COLL__MEASURE_PEERS];
    const int count = coll__measure_peers(comm->size, peers);
    double most = 0, seen = 0;

    for (int i = 0; i < hosts; i++) {
        seconds[i] = coll__longer(0, seconds[i] - latency);
        most = coll__longer(most, seconds[i]);
    }
    if (most < latency / 4) return;
    for (int i = -1; i < count; i++)
        seen = coll__longer(seen, seconds[host_of[i < 0 ? 0 : peers[i]]]);
    if (seen > 0) found->link.per_byte *= most / seen;    /* rank 0 may not have met the slowest                      */
    for (int i = 0; i < hosts; i++) seconds[i] = seconds[i] > 0 ? most / seconds[i] : 1;
    coll__measure_classes(seconds, hosts);
    for (int i = 0; i < comm->size; i++)
        coll__rates_add(&found->shares, i, coll__rate_in(seconds[host_of[i]]));
}

/* Whose links are faster.  `values` has room for two doubles and an int of each rank. */
static coll_status coll__measure_rates(coll_comm *comm, unsigned char *memory, size_t bytes, double latency, double *values,
                                       coll__numbers *found)
{
    double *const seconds = values + comm->size;
    int *const host_of = (int *)(void *)(seconds + comm->size);
    double own;
    coll_request r;

    found->shares.count = 0;
    if (comm->size < 3) return COLL_OK;
    if (coll__comm_topology(comm) < 0) return coll__has_no_memory(comm);
    const int hosts = coll__measure_hosts(comm, host_of);
    if (hosts < 3) return COLL_OK;
    coll_status status = coll__measure_pair(comm, host_of[comm->rank], hosts, memory, bytes, &own);
    if (status < 0) return status;
    r.call = (coll_call){ .kind = COLL_ALLGATHER, .send = &own, .recv = values, .count = 1, .type = COLL_F64, .name = "measure" };
    if ((status = coll__run_by_host(comm, &r)) < 0) return status;
    for (int i = 0; i < hosts; i++) seconds[i] = values[coll__measure_first(comm, i)];
    coll__measure_settle_rates(comm, host_of, hosts, latency, seconds, found);
    return COLL_OK;
}

/* ---- >>all of it ---- */

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
    const int count = coll__measure_peers(comm->size, peers);
    coll_status status = COLL_OK;
    double seconds, exchange = 0, latency = 0, burst;

    for (int i = 0; i < count && status == COLL_OK; i++) {
        status = coll__measure_way(comm, COLL__MEASURE_PING, peers[i], memory, 0, 2 * COLL__MEASURE_TRIPS, &seconds);
        if (status == COLL_OK) latency = coll__longer(latency, seconds);
        if (status < 0) break;
        status = coll__measure_way(comm, COLL__MEASURE_EXCHANGE, peers[i], memory, bytes, COLL__MEASURE_EXCHANGES, &seconds);
        if (status == COLL_OK) exchange = coll__longer(exchange, seconds);
    }
    if (count == 0 || status < 0) return status;
    status = coll__measure_way(comm, COLL__MEASURE_MANY, many, memory, 0, COLL__MEASURE_TRIPS, &burst);
    if (status < 0) return status;
    link->latency = latency;
    link->per_byte = (exchange - latency) / (double)bytes;
    if (many > 1) link->overhead = (burst - 2 * latency) / (many - 1);
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

    n->link.latency = coll__clamped(n->link.latency, 1e-8, 10);
    n->link.overhead = coll__clamped(n->link.overhead, 1e-9, 10 * n->link.latency);
    n->link.per_byte = coll__clamped(n->link.per_byte, 1e-13, 1e-3);
    n->link.per_byte_reduced = coll__clamped(n->link.per_byte_reduced, 1e-13, 1e-3);
    n->barrier = coll__clamped(n->barrier, 0, 10);
    coll__numbers_round(n);
    n->nominal = nominal;
}

/* The numbers of rank 0 become everyone's, and choices that were made with others are forgotten. */
static coll_status coll__measure_tell(coll_comm *comm, const coll__numbers *found)
{
    const coll__link *l = &found->link;
    double told[5] = { l->latency, l->overhead, l->per_byte, l->per_byte_reduced, found->barrier };
    coll_request r;

    r.call = (coll_call){ .kind = COLL_BROADCAST, .recv = told, .count = 5, .type = COLL_F64, .name = "measure" };
    const coll_status status = coll__run_by_host(comm, &r);
    if (status < 0) return status;
    comm->numbers.link = (coll__link){ told[0], told[1], told[2], told[3], comm->numbers.nominal.per_byte_handled };
    comm->numbers.barrier = told[4];
    comm->numbers.shares = found->shares;
    (void)coll__shares_settle(&comm->numbers.shares, comm->size);
    comm->numbers.origin = COLL__BY_MEASURING;
    comm->numbers.version++;
    return COLL_OK;
}

static coll_status coll__measure_inside(coll_comm *comm)
{
    const size_t values = coll__round_up((size_t)comm->size * (2 * sizeof(double) + sizeof(int)), 64);
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
    if (status == COLL_OK) status = coll__measure_rates(comm, buffers, bytes, latency, (double *)(void *)memory, &found);
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
