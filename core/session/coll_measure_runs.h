/* coll_measure_runs.h - the rounds by which the wire is measured, and how their time is taken.
 *
 * What the model prices are rounds of the engine, so rounds of the engine are what is timed: algorithms that compute nothing, in
 * the vocabulary of all the others, between rank 0 and a few ranks, or between the ranks of a pair.  The rest of the communicator
 * walks through the same rounds with nothing to do in them.
 *
 *     ping       rank 0 -> peer -> rank 0 -> ...               a trip: 2 latency
 *     burst      rank 0 -> n peers at once -> rank 0 -> ...    a trip: 2 latency + (n - 1) overhead
 *     exchange   rank 0 <-> peer, a large message each         a round: latency + bytes * per_byte
 *     pairs      a rank of each host, two and two at once      a round: what the slower host of the two can carry
 *
 * Both directions of an exchange are busy at once, as they are in nearly all algorithms. */
#ifndef COLL_MEASURE_RUNS_H
#define COLL_MEASURE_RUNS_H

#if !defined(COLL_NO_TUNER)

enum {
    COLL__MEASURE_TRIPS = 8, COLL__MEASURE_RUNS = 5,
    COLL__MEASURE_EXCHANGES = 2, COLL__MEASURE_LONG_RUNS = 3,
    COLL__MEASURE_BYTES_LEAST = 32 << 10, COLL__MEASURE_BYTES = 1 << 20,
    COLL__MEASURE_BURST = 16,                     /* peers at most; between two ranks, half as many messages  */
    COLL__MEASURE_PEERS = 3,
    COLL__MEASURE_FOLDS = 64, COLL__MEASURE_FLOATS = 4096      /* 16 KiB a source: stays in the first cache   */
};

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

#endif
#endif /* COLL_MEASURE_RUNS_H */
