/* coll_measure.h - measures the numbers of the cost model: latency, overhead, seconds per byte, seconds per byte reduced; and a
 * barrier, if the transport has one.
 *
 * The model prices rounds of the engine, so rounds of the engine are timed: algorithms that compute nothing, between rank 0 and a
 * few ranks.  The other ranks of the communicator run the same rounds with nothing to do in them.
 *
 *     ping       rank 0 -> peer -> rank 0 -> ...               a trip: 2 latency
 *     burst      rank 0 -> n peers at once -> rank 0 -> ...    a trip: 2 latency + (n - 1) overhead
 *     exchange   rank 0 <-> peer, a large message each         a round: latency + bytes * per_byte
 *
 * Both directions of an exchange are busy at once, as in nearly all algorithms.  A large message occupies the link for 1.5 ms.
 *
 * Each number is the median of several runs, of the slowest peer: a collective waits for the last rank.  Rank 0 decides, and
 * sends the numbers to the others.  Faster links and sites are not measured here: tools/coll-check.c writes them to a tuning
 * file. */
#ifndef COLL_MEASURE_H
#define COLL_MEASURE_H

#if COLL__HAS_CHOICE

enum {
    COLL__MEASURE_TRIPS = 8, COLL__MEASURE_RUNS = 5,
    COLL__MEASURE_EXCHANGES = 2, COLL__MEASURE_LONG_RUNS = 3,
    COLL__MEASURE_BYTES_LEAST = 32 << 10, COLL__MEASURE_BYTES = 1 << 20,
    COLL__MEASURE_BURST = 16,                     /* peers at most; between two ranks, half as many messages  */
    COLL__MEASURE_PEERS = 3,
    COLL__MEASURE_FOLDS = 64, COLL__MEASURE_FLOATS = 4096      /* 16 KiB per source: fits in the first cache  */
};

/* ---- >>rounds; radix: the peer, or the number of messages ---- */

static bool coll__measure_ping(coll__round *now, int k)
{
    const int from = k % 2 ? now->radix : 0, to = now->radix - from;

    if (k == 2 * COLL__MEASURE_TRIPS) return false;
    if (now->rank == from) coll__send(now, to, coll__block(COLL__INPUT, 0));
    if (now->rank == to) coll__recv(now, from, coll__block(COLL__RESULT, 0));
    return true;
}

/* Message i goes to rank 1 + i, modulo the others; each rank that receives any sends one answer. */
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

static const coll__algorithm coll__measure_ways[] = {
    { .kind = COLL_ALLTOALL, .name = "measure:ping", .round = coll__measure_ping, .cut = COLL__CUT_PER_RANK },
    { .kind = COLL_ALLTOALL, .name = "measure:burst", .round = coll__measure_burst, .cut = COLL__CUT_PER_RANK },
    { .kind = COLL_ALLTOALL, .name = "measure:exchange", .round = coll__measure_exchange, .cut = COLL__CUT_PER_RANK }
};
enum { COLL__MEASURE_PING, COLL__MEASURE_MANY, COLL__MEASURE_EXCHANGE };

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

/* Runs one of these algorithms once.  The checks of ordinary calls do not apply: only rank 0 and its peers have the memory of the
 * call, and only they access it. */
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

/* The median time of an algorithm, divided by `parts`.  The first run does not count: it may connect. */
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

/* A barrier, if the transport carries it out. */
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
        if (i >= 0) times[i] = coll__seconds_since(comm->session, began) / (double)COLL__MEASURE_TRIPS;
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

/* ---- >>the wire ---- */

#define COLL__MEASURE_LONG 1.5e-3                 /* s: limit for a large message                             */

/* Rank 0 measures with some of the first ranks of the communicator: of all, or of those at its site if sites are known. */
static int coll__measure_near(const coll_comm *comm)
{
    const coll__topology *const t = comm->topology;
    const bool has_sites = t && t->is_by_site && t->is_ordered && coll__host_size(t, 0) > 1;

    return has_sites ? coll__host_size(t, 0) : comm->size;
}

/* A near, a middle and a far rank: hosts usually have consecutive ranks.  Returns their number. */
static int coll__measure_peers(int size, int *peers)
{
    const int wanted[COLL__MEASURE_PEERS] = { 1, size / 2, size - 1 };
    int count = 0;

    for (int i = 0; i < COLL__MEASURE_PEERS; i++)
        if (wanted[i] < size && wanted[i] > (count ? peers[count - 1] : 0)) peers[count++] = wanted[i];
    return count;
}

/* Length of a large message: rank 0 tries a short one with the last of its peers, and broadcasts the length. */
static coll_status coll__measure_length(coll_comm *comm, unsigned char *memory, size_t *bytes)
{
    double told = COLL__MEASURE_BYTES_LEAST, latency = 0, seconds = 0;
    const int peer = coll__measure_near(comm) - 1;
    coll_request r;

    coll_status status = coll__measure_way(comm, COLL__MEASURE_PING, peer, memory, 0, 2 * COLL__MEASURE_TRIPS, &latency);
    if (status == COLL_OK)
        status = coll__measure_way(comm, COLL__MEASURE_EXCHANGE, peer, memory, COLL__MEASURE_BYTES_LEAST, COLL__MEASURE_EXCHANGES,
                                   &seconds);
    if (status < 0) return status;
    const double each = (seconds - latency) / (double)COLL__MEASURE_BYTES_LEAST;
    while (told < (double)COLL__MEASURE_BYTES && 2 * told * each <= COLL__MEASURE_LONG) told *= 2;
    r.call = (coll_call){ .kind = COLL_BROADCAST, .recv = &told, .count = 1, .type = COLL_F64, .name = "measure" };
    status = coll__run_by_host(comm, &r);
    *bytes = (size_t)told;
    return status;
}

/* Rate of the link between rank 0 and a peer, as a multiple of the slowest. */
static double coll__measure_rate(const coll__shares *s, int peer)
{
    if (s->count == 0) return 1;
    const uint32_t own = coll__run_of(s, 0)->rate, other = coll__run_of(s, peer)->rate;
    return (double)(own < other ? own : other) / (double)COLL__RATE_UNIT;
}

/* Runs on every rank; the numbers of rank 0 count. */
static coll_status coll__measure_wire(coll_comm *comm, unsigned char *memory, size_t bytes, coll__link *link)
{
    const int near = coll__measure_near(comm);
    const int many = near == 2 ? COLL__MEASURE_BURST / 2 : coll__less(near - 1, COLL__MEASURE_BURST);
    int peers[COLL__MEASURE_PEERS];
    const int count = coll__measure_peers(near, peers), last = coll__less(many, near - 1);
    double ping, seconds, latency = 0, exchange = 0, burst, reach = 0;

    coll_status status = coll__measure_way(comm, COLL__MEASURE_PING, last, memory, 0, 2 * COLL__MEASURE_TRIPS, &reach);
    for (int i = 0; i < count && status == COLL_OK; i++) {
        status = coll__measure_way(comm, COLL__MEASURE_PING, peers[i], memory, 0, 2 * COLL__MEASURE_TRIPS, &ping);
        if (status < 0) break;
        latency = coll__longer(latency, ping);
        if (peers[i] <= last) reach = coll__longer(reach, ping);
        status = coll__measure_way(comm, COLL__MEASURE_EXCHANGE, peers[i], memory, bytes, COLL__MEASURE_EXCHANGES, &seconds);
        if (status < 0) break;
        exchange = coll__longer(exchange, ping + (seconds - ping) * coll__measure_rate(&comm->numbers.shares, peers[i]));
    }
    if (status < 0) return status;
    status = coll__measure_way(comm, COLL__MEASURE_MANY, many, memory, 0, COLL__MEASURE_TRIPS, &burst);
    if (status < 0) return status;
    link->latency = latency;
    link->per_byte = (exchange - latency) / (double)bytes;
    if (many > 1) link->overhead = (burst - 2 * reach) / (many - 1);      /* reach: of the farthest peer of the burst */
    return COLL_OK;
}

/* ---- >>the numbers ---- */

static double coll__clamped(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

/* Limits a disturbed measurement to possible values: no wire of more than 10 TB/s, no free message.  Rounds the numbers, so that
 * the text of coll_link_text is exact. */
static void coll__numbers_settle(coll__numbers *n)
{
    n->link.latency = coll__clamped(n->link.latency, 1e-8, 10);
    n->link.overhead = coll__clamped(n->link.overhead, 1e-9, 10 * n->link.latency);
    n->link.per_byte = coll__clamped(n->link.per_byte, 1e-13, 1e-3);
    n->link.per_byte_reduced = coll__clamped(n->link.per_byte_reduced, 1e-13, 1e-3);
    n->barrier = coll__clamped(n->barrier, 0, 10);
    coll__numbers_round(n);
}

/* All ranks use the numbers of rank 0, and discard choices made with others. */
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
    comm->numbers.origin = COLL__BY_MEASURING;
    comm->numbers.version++;
    coll__phases_estimate(&comm->main);
    return COLL_OK;
}

static coll_status coll__measure_inside(coll_comm *comm)
{
    const bool knows_sites = coll__comm_topology(comm) == COLL_OK;
    size_t bytes = 0;
    coll__numbers found = comm->numbers;
    coll_failure failure = { COLL_OK, -1, "" };
    coll_status status = COLL_OK;
    unsigned char *const memory = comm->gauge
        = (unsigned char *)coll__allocate(coll__like(comm), 2 * (size_t)COLL__MEASURE_BYTES + 64);
    if (!memory || !knows_sites) {                /* all ranks fail, because they depend on this one          */
        const int me = comm->session->rank;
        coll__set_failure(&failure, COLL_ERR_MEMORY, me, "rank %d has no memory to measure with", me);
        return coll__session_fail(comm->session, &failure);
    }
    if (comm->size > 1) status = coll__measure_length(comm, memory, &bytes);
    if (status == COLL_OK && comm->size > 1) status = coll__measure_wire(comm, memory, bytes, &found.link);
    if (status == COLL_OK) status = coll__measure_barrier(comm, &found.barrier);
    if (status == COLL_OK && comm->rank == 0) {
        memset(memory, 0, 2 * COLL__MEASURE_FLOATS * sizeof(float));
        found.link.per_byte_reduced = coll__measure_fold(comm->session, memory);
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
                               "was compiled with COLL_NO_CHOICE");
}

#endif
#endif /* COLL_MEASURE_H */
