/* coll_measure_hosts.h - what pairs of hosts show: whose links are faster than those of others, and which hosts are far from one
 * another, at different sites.
 *
 * A host is in a pair with several others, and as fast as the best of them shows; all tell all.  However many ranks there are,
 * that is fifteen large messages for each host, and some more empty ones.  One that is faster than all that it is paired with is
 * not found: a file can say so.
 *
 * Pairs are near or far where there is a wide gap between the latencies of the two sorts.  Hosts are at one site where near pairs
 * lead from one to the other; no far pair may be at one site then.  In the last pairing each host is paired with one of the other
 * half of all: what crosses the links between sites then shows what they carry. */
#ifndef COLL_MEASURE_HOSTS_H
#define COLL_MEASURE_HOSTS_H

#if !defined(COLL_NO_TUNER)

enum {
    COLL__MEASURE_PAIRINGS = 5, COLL__MEASURE_HALVES = COLL__MEASURE_PAIRINGS - 1,    /* halves: the last pairing */
    COLL__MEASURE_PAIR_RUNS = 2, COLL__MEASURE_EMPTY_RUNS = 4
};

#define COLL__MEASURE_ALIKE 1.25                  /* by how much the rates of ranks may differ that count as alike */
#define COLL__MEASURE_GAP   3                     /* by how much latencies of far pairs differ from those of near ones, */
#define COLL__MEASURE_FAR   20e-6                 /* and by how many seconds, at least                        */

/* What a host has seen of the one that it is paired with: seconds of a large message, and of an empty one; 0: of nobody. */
typedef struct coll__pair_seen { double large, empty; } coll__pair_seen;

typedef struct coll__host_seen { coll__pair_seen pairs[COLL__MEASURE_PAIRINGS]; } coll__host_seen;

/* What all ranks know in the end. */
typedef struct coll__hosts_seen {
    int     hosts;                                /* in an order that all ranks share                         */
    size_t  bytes;                                /* of a large message                                       */
    double  latency;                              /* s; of the near pairs, where some are far                 */
    coll__host_seen *of_ranks;                    /* those that are the first of their hosts have seen something */
    double *times;                                /* of all hosts, or of all pairs                            */
    int    *first, *site;                         /* of each host: its first rank; the first host of its site */
    int    *host_of;                              /* of each rank                                             */
} coll__hosts_seen;

/* ---- >>which hosts there are ---- */

/* Bytes that it takes for so many ranks. */
static inline size_t coll__hosts_seen_bytes(int size)
{
    const size_t each = sizeof(coll__host_seen) + COLL__MEASURE_PAIRINGS * sizeof(double) + 3 * sizeof(int);
    return coll__round_up((size_t)size * each, 64);
}

/* COLL_ERR_MEMORY: there is none to find the hosts with. */
static coll_status coll__hosts_find(coll__hosts_seen *all, const coll_comm *comm, void *memory)
{
    const size_t n = (size_t)comm->size;
    coll__topology *const t = comm->session->transport->host ? coll__comm_divided(comm, COLL__HOST) : NULL;

    all->of_ranks = (coll__host_seen *)memory;
    all->times = (double *)(void *)(all->of_ranks + n);
    all->first = (int *)(void *)(all->times + COLL__MEASURE_PAIRINGS * n);
    all->site = all->first + n;
    all->host_of = all->site + n;
    all->hosts = t ? t->count : comm->size;
    if (!t && comm->session->transport->host) return COLL_ERR_MEMORY;
    for (int host = 0; host < all->hosts; host++) {
        all->first[host] = t ? coll__rank_at(t, host, 0) : host;
        for (int i = 0; i < (t ? coll__host_size(t, host) : 1); i++) all->host_of[t ? coll__rank_at(t, host, i) : host] = host;
    }
    coll__give(t);
    return COLL_OK;
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

/* What a host has seen in a pairing. */
static inline const coll__pair_seen *coll__pair_of(const coll__hosts_seen *all, int host, int pairing)
{
    return &all->of_ranks[all->first[host]].pairs[pairing];
}

/* With whom a host was paired, and at what latency, which both have seen: one later, the other by as much earlier.  -1: with
 * nobody, or with one in front of it, so that each pair is looked at once. */
static int coll__pair_latency(const coll__hosts_seen *all, int host, int pairing, double *seconds)
{
    const int partner = coll__measure_partner(host, all->hosts, pairing);

    if (partner < host) return -1;
    *seconds = (coll__pair_of(all, host, pairing)->empty + coll__pair_of(all, partner, pairing)->empty) / 2;
    return partner;
}

/* ---- >>pairs ---- */

/* Run exchanges of a pair one after the other, for who is late in one of them is early by as much in the next.  Gives the seconds
 * of each. */
static coll_status coll__measure_row(coll_comm *comm, const coll__choice *way, unsigned char *memory, size_t bytes, int runs,
                                     double *seconds)
{
    const int64_t began = coll__clock(comm->session);
    coll_status status = COLL_OK;

    for (int i = 0; i < runs && status == COLL_OK; i++) status = coll__measure_once(comm, way, memory, bytes);
    *seconds = coll__seconds_since(comm->session, began) / runs;
    return status;
}

/* The exchanges of a pair.  Partners begin together; the first run may have to connect. */
static coll_status coll__measure_pair(coll_comm *comm, const coll__choice *way, unsigned char *memory, size_t bytes,
                                      coll__pair_seen *seen)
{
    coll_request r;

    r.call = (coll_call){ .kind = COLL_BARRIER, .name = "measure" };
    coll_status status = coll__run_by_host(comm, &r);
    if (status == COLL_OK) status = coll__measure_once(comm, way, memory, 0);
    if (status == COLL_OK) status = coll__measure_row(comm, way, memory, 0, COLL__MEASURE_EMPTY_RUNS, &seen->empty);
    if (status == COLL_OK) status = coll__measure_once(comm, way, memory, bytes);
    if (status == COLL_OK) status = coll__measure_row(comm, way, memory, bytes, COLL__MEASURE_PAIR_RUNS, &seen->large);
    return status;
}

/* All pairs of this rank's host, whose first rank is in them. */
static coll_status coll__measure_pairings(coll_comm *comm, const coll__hosts_seen *all, unsigned char *memory,
                                          coll__host_seen *own)
{
    const int host = all->host_of[comm->rank];

    memset(own, 0, sizeof *own);
    for (int pairing = 0; pairing < COLL__MEASURE_PAIRINGS; pairing++) {
        const int partner = all->first[host] == comm->rank ? coll__measure_partner(host, all->hosts, pairing) : -1;
        const coll__choice way = { .algorithm = &coll__measure_ways[COLL__MEASURE_PAIRS],
                                   .radix = partner < 0 ? 0 : 1 + all->first[partner], .blocks = 1, .slices = 1 };
        const coll_status status = coll__measure_pair(comm, &way, memory, all->bytes, &own->pairs[pairing]);
        if (status < 0) return status;
        if (partner < 0) own->pairs[pairing] = (coll__pair_seen){ 0, 0 };
    }
    return COLL_OK;
}

/* ---- >>sites ---- */

static int coll__compare_times(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The latency from which on a pair is far; 0: none is.  Also that in the middle of the near ones, and of the far ones. */
static double coll__far_from(const coll__hosts_seen *all, double *near, double *far)
{
    double *const times = all->times;
    int count = 0, gap = 0;

    for (int i = 0; i < all->hosts; i++)
        for (int k = 0; k < COLL__MEASURE_PAIRINGS; k++) count += coll__pair_latency(all, i, k, &times[count]) >= 0;
    qsort(times, (size_t)count, sizeof *times, coll__compare_times);
    for (int i = 1; i < count; i++)
        if (gap == 0 || times[i] * times[gap - 1] > times[i - 1] * times[gap]) gap = i;
    if (gap == 0 || times[gap] < COLL__MEASURE_GAP * times[gap - 1] || times[gap] - times[gap - 1] < COLL__MEASURE_FAR) return 0;
    *near = times[gap / 2];
    *far = times[(gap + count) / 2];
    return times[gap];
}

/* Join the sites of near pairs.  false: nothing was left to join. */
static bool coll__sites_join(const coll__hosts_seen *all, double far_from)
{
    int *const site = all->site;
    bool has_joined = false;
    double seconds;

    for (int i = 0; i < all->hosts; i++)
        for (int k = 0; k < COLL__MEASURE_PAIRINGS; k++) {
            const int partner = coll__pair_latency(all, i, k, &seconds);
            if (partner < 0 || seconds >= far_from || site[i] == site[partner]) continue;
            site[i] = site[partner] = coll__less(site[i], site[partner]);
            has_joined = true;
        }
    return has_joined;
}

/* No far pair is at one site, and no host is alone: else what has been seen is no map. */
static bool coll__sites_agree(const coll__hosts_seen *all, double far_from)
{
    double seconds;

    for (int i = 0; i < all->hosts; i++) {
        bool is_alone = true;
        for (int k = 0; k < COLL__MEASURE_PAIRINGS; k++) {
            const int other = coll__measure_partner(i, all->hosts, k), partner = coll__pair_latency(all, i, k, &seconds);
            if (other >= 0 && all->site[other] == all->site[i]) is_alone = false;
            if (partner >= 0 && all->site[partner] == all->site[i] && seconds >= far_from) return false;
        }
        if (is_alone) return false;
    }
    return true;
}

/* Seconds a byte on the link of a site, that all its hosts share: of the slowest, when both halves of the hosts met.  On a link
 * that is always busy the runs of a row overlap, and only one of them waits for the latency. */
static double coll__far_per_byte(const coll__hosts_seen *all, double latency)
{
    double most = 0;

    for (int i = 0; i < all->hosts; i++) {        /* each site once, at its first host                        */
        double slowest = 0;
        int crossing = 0;
        for (int k = i; all->site[i] == i && k < all->hosts; k++) {
            if (all->site[k] != i) continue;
            const int partner = coll__measure_partner(k, all->hosts, COLL__MEASURE_HALVES);
            if (partner < 0 || all->site[partner] == i) continue;
            slowest = coll__longer(slowest, coll__pair_of(all, k, COLL__MEASURE_HALVES)->large);
            crossing++;
        }
        if (crossing == 0) continue;
        most = coll__longer(most, (slowest - latency / COLL__MEASURE_PAIR_RUNS) / ((double)all->bytes * crossing));
    }
    return most;
}

/* Where sites begin; none if one is not a row of ranks, or there are too many. */
static void coll__sites_begin(coll__sites *s, const coll__hosts_seen *all, int size)
{
    s->count = 0;
    for (int i = 1; i < size && s->count >= 0; i++) {
        const int site = all->site[all->host_of[i]];
        if (site == all->site[all->host_of[i - 1]]) continue;
        coll__sites_add(s, i);
        for (int k = 0; k < i && s->count >= 0; k++) if (all->site[all->host_of[k]] == site) s->count = -1;
    }
    if (s->count < 0) s->count = 0;
}

/* Which sites there are, and what is between them. */
static void coll__measure_settle_sites(const coll_comm *comm, coll__hosts_seen *all, coll__numbers *found)
{
    double near = 0, far = 0;
    const double far_from = coll__far_from(all, &near, &far);

    for (int i = 0; i < all->hosts; i++) all->site[i] = i;
    while (far_from > 0 && coll__sites_join(all, far_from)) continue;
    if (!(far_from > 0) || !coll__sites_agree(all, far_from)) return;
    coll__sites_begin(&found->sites, all, comm->size);
    found->far = (coll__far){ far, coll__far_per_byte(all, far) };
    found->link.latency = all->latency = near;
}

/* ---- >>rates ---- */

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

/* Seconds of a large message, beside the latency, of a host's quickest pair. */
static double coll__host_seconds(const coll__hosts_seen *all, int host)
{
    double least = 0;

    for (int k = 0; k < COLL__MEASURE_PAIRINGS; k++) {
        const double took = coll__pair_of(all, host, k)->large;
        if (took > 0 && (least <= 0 || took < least)) least = took;
    }
    return coll__longer(0, least - all->latency);
}

/* What all ranks have found becomes the rates of their hosts, the same everywhere; but where it is hardly longer than the latency
 * they are alike. */
static void coll__measure_settle_rates(const coll_comm *comm, const coll__hosts_seen *all, coll__numbers *found)
{
    double *const times = all->times;
    int peers[COLL__MEASURE_PEERS];
    const int count = coll__measure_peers(comm->size, peers);
    double most = 0, seen = 0;

    for (int i = 0; i < all->hosts; i++) {
        times[i] = coll__host_seconds(all, i);
        most = coll__longer(most, times[i]);
    }
    if (most < all->latency / 4) return;
    for (int i = -1; i < count; i++)
        seen = coll__longer(seen, times[all->host_of[i < 0 ? 0 : peers[i]]]);
    if (found->far.latency > 0) found->link.per_byte = most / (double)all->bytes;         /* rank 0 has met far ones, too     */
    else if (seen > 0) found->link.per_byte *= most / seen;       /* rank 0 may not have met the slowest                      */
    for (int i = 0; i < all->hosts; i++) times[i] = times[i] > 0 ? most / times[i] : 1;
    coll__measure_classes(times, all->hosts);
    for (int i = 0; i < comm->size; i++)
        coll__rates_add(&found->shares, i, coll__rate_in(times[all->host_of[i]]));
}

/* Whose links are faster, and who is far from whom; `latency`: of rank 0's farthest.  `memory` has coll__hosts_seen_bytes for us,
 * and behind them what messages take. */
static coll_status coll__measure_hosts(coll_comm *comm, unsigned char *memory, size_t bytes, double latency, coll__numbers *found)
{
    coll__hosts_seen all = { .bytes = bytes, .latency = latency };
    coll__host_seen own;
    coll_request r;

    found->shares.count = found->sites.count = 0;
    found->far = (coll__far){ 0, 0 };
    if (comm->size < 3) return COLL_OK;
    if (coll__hosts_find(&all, comm, memory) < 0) return coll__has_no_memory(comm);
    if (all.hosts < 3) return COLL_OK;
    coll_status status = coll__measure_pairings(comm, &all, memory + coll__hosts_seen_bytes(comm->size), &own);
    if (status < 0) return status;
    r.call = (coll_call){ .kind = COLL_ALLGATHER, .send = &own, .recv = all.of_ranks, .count = sizeof own / sizeof(double),
                          .type = COLL_F64, .name = "measure" };
    if ((status = coll__run_by_host(comm, &r)) < 0) return status;
    coll__measure_settle_sites(comm, &all, found);
    coll__measure_settle_rates(comm, &all, found);
    return COLL_OK;
}

#endif
#endif /* COLL_MEASURE_HOSTS_H */
