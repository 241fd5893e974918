/* coll_hosts.h - collectives of ranks that live on several hosts and share them: put together from collectives among the ranks
 * of a host and collectives among one rank of each host.
 *
 *            host 0        host 1        host 2
 *            0   1   2     3   4   5     6   7
 *            |   +---------|---+---------|---+       rail 1: the second rank of every host
 *            +-------------+-------------+           rail 0: the first
 *
 * There are as many rails as the smallest host has ranks.  A vector is cut into a slice for each rail, and each is brought
 * across the hosts by the ranks of its rail, at the same time as the others:
 *
 *     allreduce        reduce_scatter on the host    allreduce on the rail                  allgather on the host
 *     reduce           reduce_scatter on the host    reduce on the rail                     gather on the root's host
 *     broadcast        scatter on the root's host    broadcast on the rail                  allgather on the host
 *     allgather        allgather on the host         allgather on the rail     allgather on the host, for each other host
 *     reduce_scatter   one on the host, for each host    one on the rail                    what rails beyond one's own brought
 *     scan             reduce_scatter on the host, and a scan    exscan on the rail         allgather on the host, and a fold
 *     barrier          on the host                   on rail 0                              on the host
 *
 * So what leaves a host is what would leave it if it were one rank: 2 (H - 1) / H of the vector for an allreduce over H hosts.
 * Each line is a list of legs, a pure function of their number, as rounds are; every leg is a call of its own, on a
 * communicator of its own, which runs as any other: between threads by loads and stores, on rails through the engine.  A short
 * vector has one slice, so that it costs one message to each host.
 *
 * PARTS.  A long vector that is reduced or broadcast is cut into parts, so that one is on the rails while hosts hand out the one
 * before it and sum the one behind it, here part 1 of allreduce:
 *
 *     on the host   sum 0   sum 1           share 0   sum 2           share 1   sum 3  ...
 *     on the rail           part 0 ......   part 1 ...............    part 2 ...
 *
 * What is done on a host comes in the order of this line on all of its ranks, and so does what is done on a rail.
 *
 * SUMS.  Where elements are summed in another type than they have in memory or on the wire, legs carry sums in that type, so
 * that a result is still rounded once: 16-bit floats cross as f32 while they are summed and as what they are when they are
 * handed out, 1.5 times the bytes of a host of one rank.  With COLL_ROUND_TWICE sums are rounded before they cross, too.
 *
 * What depends on the order of all ranks (COLL_DETERMINISTIC, COLL_REPRODUCIBLE of floats; scans and operations that do not
 * commute, unless the hosts' ranks follow one another), what draws by the number of an element (COLL_STOCHASTIC), groups of the
 * wire (MX), averages of integers, gather, scatter, alltoall and what goes between neighbours, and calls that name an algorithm,
 * run as if every rank were a host. */
#ifndef COLL_HOSTS_H
#define COLL_HOSTS_H

enum {
    COLL__RAIL_LEAST = 16 << 10,                  /* bytes of a slice, from which there is more than one      */
    COLL__PART_LEAST = 1 << 20, COLL__PARTS_MOST = 8          /* bytes of a part, likewise                                */
};

/* ---- >>hosts: who lives where ---- */

/* Of a track.  Place k of host h is ranks[first[h] + k]. */
typedef struct coll__hosts {
    int   count, mine, place;                     /* hosts; ours, and our place there                         */
    int   rails, most;                            /* ranks of the smallest host, and of the largest           */
    bool  is_ordered;                             /* the ranks of a host follow one another                   */
    int  *first, *ranks;                          /* first[count] is the size                                 */
    coll_comm *local, *rail;                      /* the ranks of our host; those at our place; NULL: no rail here */
} coll__hosts;

static inline int coll__host_size(const coll__hosts *h, int host) { return h->first[host + 1] - h->first[host]; }

/* The rank of place k of a host; COLL_NO_RANK: there is none. */
static inline int coll__rank_at(const coll__hosts *h, int host, int place)
{
    return place < coll__host_size(h, host) ? h->ranks[h->first[host] + place] : COLL_NO_RANK;
}

static void coll__hosts_free(struct coll__hosts *h)
{
    if (!h) return;
    if (h->local) coll__comm_free(h->local);
    if (h->rail) coll__comm_free(h->rail);
    free(h->first);
    free(h);
}

static void coll__hosts_forget(struct coll__hosts *h)
{
    if (h && h->local) coll__track_forget(&h->local->main);
    if (h && h->rail) coll__track_forget(&h->rail->main);
}

/* Write down the ranks host by host, each host at its first rank; `homes`: where each rank lives, by any numbers. */
static void coll__hosts_sort(coll__hosts *h, const int *homes, int size, int rank)
{
    int at = 0;

    h->is_ordered = true;
    for (int i = 0; i < size; i++) {
        bool is_first = true;
        for (int k = 0; k < i && is_first; k++) is_first = homes[k] != homes[i];
        if (!is_first) continue;
        h->first[h->count] = at;
        for (int k = i; k < size; k++) {
            if (homes[k] != homes[i]) continue;
            if (k == rank) h->mine = h->count, h->place = at - h->first[h->count];
            h->is_ordered = h->is_ordered && k == at;
            h->ranks[at++] = k;
        }
        h->first[++h->count] = at;
    }
    h->rails = size;
    for (int i = 0; i < h->count; i++) {
        const int here = coll__host_size(h, i);
        if (here < h->rails) h->rails = here;
        if (here > h->most) h->most = here;
    }
}

enum { COLL__NUMBER_OF_HOSTS = 1 << 30 };         /* numbers of their tracks begin here                       */

/* Some ranks of a track's communicator, for its legs.  It is in no list: its parent alone runs calls on it, one at a time and
 * in an order that all its ranks share.  So its messages go where those of the parent go, by channel or by key. */
static coll_comm *coll__comm_for_legs(const coll__track *track, const int *ranks, int count, int me, int which)
{
    const coll_comm *parent = track->comm;
    coll_comm *comm = (coll_comm *)coll__allocate(sizeof *comm);

    if (comm) comm->members = (int *)malloc((size_t)count * sizeof *comm->members);
    if (!comm || !comm->members) {
        free(comm);
        return NULL;
    }
    for (int i = 0; i < count; i++) comm->members[i] = coll__world_rank(parent, ranks[i]);
    comm->trunk = parent->trunk;
    comm->guard = parent->guard;
    comm->rank = me;
    comm->size = count;
    comm->id = parent->id;
    comm->mark = parent->mark;
    comm->numbers = *track->numbers;
    coll__track_init(&comm->main, comm, track->space, COLL__NUMBER_OF_HOSTS + 2 * track->number + (uint32_t)which,
                     track->is_keyed);
    if (coll__track_join(&comm->main) == COLL_OK) return comm;
    coll__comm_free(comm);
    return NULL;
}

/* Who lives where, of a track's ranks; made when it is first asked for.  COLL_OK with track->hosts NULL: no two ranks share one
 * of several hosts. */
static coll_status coll__find_hosts(coll__track *track)
{
    const coll_comm *comm = track->comm;
    const coll__trunk *trunk = comm->trunk;
    const size_t size = (size_t)comm->size;

    if (track->has_hosts || !trunk->transport->host || comm->size < 3) return COLL_OK;
    coll__hosts *h = (coll__hosts *)coll__allocate(sizeof *h);
    int *memory = (int *)malloc((3 * size + 1) * sizeof *memory);
    if (!h || !memory) {
        free(h);
        free(memory);
        return COLL_ERR_MEMORY;
    }
    int *const homes = memory + 2 * size + 1, *rail = homes;
    h->first = memory;
    h->ranks = memory + size + 1;
    for (int i = 0; i < comm->size; i++) homes[i] = trunk->transport->host(trunk->context, coll__world_rank(comm, i));
    coll__hosts_sort(h, homes, comm->size, comm->rank);
    if (h->count > 1 && h->most > 1) {
        h->local = coll__comm_for_legs(track, h->ranks + h->first[h->mine], coll__host_size(h, h->mine), h->place, 0);
        for (int i = 0; i < h->count; i++) rail[i] = coll__rank_at(h, i, h->place);
        if (h->place < h->rails) h->rail = coll__comm_for_legs(track, rail, h->count, h->mine, 1);
        if (h->local && (h->rail || h->place >= h->rails)) track->hosts = h;
    }
    track->has_hosts = track->hosts || h->count == 1 || h->most == 1;
    if (!track->hosts) coll__hosts_free(h);
    return track->has_hosts ? COLL_OK : COLL_ERR_MEMORY;
}

/* ---- >>journey: the state of a call that goes by legs ---- */

/* What is done on the hosts before a part goes across, across, and on the hosts again.  Kinds that are not cut into parts do
 * everything in the first phase. */
typedef enum coll__phase { COLL__AT_HOME, COLL__ACROSS, COLL__HOME_AGAIN } coll__phase;

/* A phase of a part, on its way leg by leg. */
typedef struct coll__trip {
    coll_request leg;                             /* the one on its way                                       */
    bool         is_leg;                          /* it is                                                    */
    bool         is_on;                           /* there may be more legs                                   */
    coll__phase  phase;
    int          part, number;                    /* number: of the next leg                                  */
} coll__trip;

typedef struct coll__journey {
    const coll__hosts *hosts;
    coll_request *whole;
    coll__trip    on_host, on_rail, *now;         /* now: the one whose legs are asked for                    */
    int           step;                           /* the next phase to begin (coll__journey_step)             */
    coll_status   status;                         /* of a leg's departure                                     */
    bool          is_wide;                        /* legs carry sums of another type                          */
    coll_type     sum_type;
    size_t        unit, sum_unit, wire_unit;      /* bytes of an element in memory, of a sum, and of a result on rails */
    int           parts, slices;                  /* slices: of a part                                        */
    size_t       *counts, *offsets;               /* of the slices, for the ranks of our host; from the part's start */
    size_t       *rail_counts, *rail_offsets;     /* for those of our rail                                    */
    size_t        result_length;                  /* bytes of a part's results                                */
    unsigned char *sums, *results, *extra;        /* scratch: the input as sums; results as the wire has them; see below */
} coll__journey;

/* The elements of the part that is being worked on. */
static inline coll__range coll__part_now(const coll__journey *j)
{
    return coll__part(j->whole->call.count, 0, (size_t)j->parts, (size_t)j->now->part);
}

static inline coll__range coll__slice_at(const coll__journey *j, int slice)
{
    const coll__range part = coll__part_now(j);

    if (slice >= j->slices) return (coll__range){ part.at + part.count, 0 };
    const coll__range own = coll__part(part.count, 0, (size_t)j->slices, (size_t)slice);
    return (coll__range){ part.at + own.at, own.count };
}

/* Where the part that is being worked on begins in a vector of the user's. */
static inline unsigned char *coll__at_part(const coll__journey *j, const void *vector)
{
    return coll__behind(vector, coll__part_now(j).at * j->unit);
}

/* Where this part's results are. */
static inline unsigned char *coll__results_now(const coll__journey *j)
{
    return j->results ? j->results + (size_t)j->now->part * j->result_length : NULL;
}

static inline coll__range coll__own_slice(const coll__journey *j) { return coll__slice_at(j, j->hosts->place); }

/* The part of our slice that host `host` has in hand while results are handed out on the rail. */
static inline coll__range coll__piece_at(const coll__journey *j, int host)
{
    return coll__part(coll__own_slice(j).count, 0, (size_t)j->hosts->count, (size_t)host);
}

/* Does this rank bring a slice across? */
static inline bool coll__is_on_rail(const coll__journey *j) { return j->hosts->place < j->slices; }

/* The place of a rank on the root's host. */
static int coll__place_at_home(const coll__hosts *h, int rank, int *host)
{
    int at = 0;

    while (h->ranks[at] != rank) at++;
    for (*host = 0; h->first[*host + 1] <= at; ++*host) continue;
    return at - h->first[*host];
}

/* A leg that moves elements. */
static coll_call coll__moving(coll_kind kind, const void *send, void *recv, size_t count, coll_type type)
{
    return (coll_call){ .kind = kind, .send = send, .recv = recv, .count = count, .recv_count = count, .type = type };
}

/* A leg that reduces: sums of the journey's own type, or elements as the whole call has them.  The last one `finishes`: divides
 * and multiplies. */
static coll_call coll__reducing(const coll__journey *j, coll_kind kind, const void *send, void *recv, size_t count, bool finishes)
{
    const coll_call *c = &j->whole->call;
    coll_call call = *c;

    call.kind = kind;
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.send_counts = call.send_offsets = call.recv_counts = call.recv_offsets = NULL;
    call.flags &= ~(unsigned)(COLL_DETECT_OVERFLOW | COLL_ROUND_TWICE);
    call.residual = NULL;
    call.name = NULL;
    call.algorithm = NULL;
    call.root = 0;
    if (j->is_wide) {
        call.type = call.wire = call.accumulate = j->sum_type;
        call.flags &= ~(unsigned)COLL_SATURATE;
    }
    if (!finishes) {
        call.scale = 0;
        if (call.op == COLL_AVG) call.op = COLL_SUM;
    }
    return call;
}

/* Set the leg on its way. */
static coll_status coll__depart(coll__journey *j, coll_comm *comm, coll_call call)
{
    coll_request *leg = &j->now->leg;
    const coll_request *whole = j->whole;

    leg->call = call;
    leg->call.timeout_ms = 0;
    coll__request_init(leg, comm);
    const coll_status status = coll__check(comm, &leg->call, &leg->codec, &leg->offsets);
    if (status < 0) return status;
    if (call.op == COLL_AVG) leg->codec.divisor = whole->codec.divisor;
    leg->status = COLL_PENDING;
    leg->sequence = whole->sequence;
    memcpy(leg->head, whole->head, COLL_HEAD_LENGTH);     /* whoever disagrees is told of the whole call      */
    leg->is_offloaded = comm->main.group != NULL;
    leg->task = (coll_task){ &leg->call, leg->head, &leg->codec, comm->main.group, { 0 }, 0 };
    j->now->is_leg = true;
    return COLL_OK;
}

/* ---- >>work between the legs ---- */

/* The input as sums: rounded to the wire as every input is, and widened. */
static void coll__widen_input(const coll__journey *j, unsigned char *to, const unsigned char *from, size_t count)
{
    _Alignas(64) unsigned char wire[COLL__BLOCK];
    const coll_request *r = j->whole;
    const coll_type by = r->call.wire;
    coll__map *const widen = coll__conversion(j->sum_type, by, coll__tier());
    const size_t most = COLL__BLOCK / sizeof(double);

    for (size_t at = 0, length; at < count; at += length) {
        length = coll__least(count - at, most);
        const void *in = from + at * j->unit;
        if (!r->codec.same) coll__pack(&r->codec, wire, in, length, at, r->comm->rank), in = wire;
        if (by == j->sum_type) memcpy(to + at * j->sum_unit, in, length * j->sum_unit);
        else widen(to + at * j->sum_unit, in, length);
    }
}

/* The one rounding: finished sums as the wire has them. */
static void coll__round_sums(const coll__journey *j, unsigned char *to, unsigned char *from, size_t count)
{
    const coll__codec *codec = &j->whole->codec;
    const coll_type wire = j->whole->call.wire;

    if (codec->clamp) codec->clamp(from, from, count, 1, codec->limit);
    if (wire == j->sum_type) memcpy(to, from, count * j->sum_unit);
    else coll__conversion(wire, j->sum_type, coll__tier())(to, from, count);
}

/* ---- >>legs: number k of a phase of each kind.  false: there is none.  A leg that is work alone is done when its function
 * returns; one that does not concern this rank is passed over ---- */

typedef bool coll__legs(coll__journey *j, coll__phase phase, int k);

static void coll__go(coll__journey *j, coll_comm *comm, coll_call call) { j->status = coll__depart(j, comm, call); }

/* The sum over our host, each rank its slice. */
static void coll__sum_on_host(coll__journey *j, const void *in, void *out)
{
    coll_call call = coll__reducing(j, COLL_REDUCE_SCATTERV, in, out, j->counts[j->hosts->place], false);

    call.recv_counts = j->counts;
    call.send_offsets = j->offsets;
    coll__go(j, j->hosts->local, call);
}

/* Every rank of our host gets all slices of the result. */
static void coll__share_on_host(coll__journey *j)
{
    const coll_call *c = &j->whole->call;
    coll_call call = coll__moving(COLL_ALLGATHERV, COLL_IN_PLACE, coll__at_part(j, c->recv), j->counts[j->hosts->place], c->type);

    call.recv_counts = j->counts;
    call.recv_offsets = j->offsets;
    coll__go(j, j->hosts->local, call);
}

/* Wide sums of our slice: the sum over the rail, each host its piece, in its place. */
static void coll__sum_on_rail(coll__journey *j, unsigned char *slice)
{
    const int mine = j->hosts->mine;
    unsigned char *const piece = slice + j->rail_offsets[mine] * j->sum_unit;
    coll_call call = coll__reducing(j, COLL_REDUCE_SCATTERV, slice, piece, j->rail_counts[mine], true);

    call.recv_counts = j->rail_counts;
    call.send_offsets = j->rail_offsets;
    coll__go(j, j->hosts->rail, call);
}

/* Round our piece of the sums; it goes to all hosts, or to the root's. */
static void coll__hand_out_on_rail(coll__journey *j, unsigned char *sums, unsigned char *results, int root)
{
    const int mine = j->hosts->mine;
    const coll__range piece = coll__piece_at(j, mine);
    unsigned char *const own = results + piece.at * j->wire_unit;
    coll_call call = coll__moving(root < 0 ? COLL_ALLGATHERV : COLL_GATHERV, own, results, piece.count, j->whole->call.wire);

    coll__round_sums(j, own, sums + piece.at * j->sum_unit, piece.count);
    call.root = root < 0 ? 0 : root;
    call.recv_counts = j->rail_counts;
    call.recv_offsets = j->rail_offsets;
    coll__go(j, j->hosts->rail, call);
}

static bool coll__barrier_legs(coll__journey *j, coll__phase phase, int k)
{
    const bool is_across = phase == COLL__ACROSS;

    if (k > 0) return false;
    if (!is_across) coll__go(j, j->hosts->local, coll__moving(COLL_BARRIER, NULL, NULL, 0, 0));
    else if (j->hosts->place == 0) coll__go(j, j->hosts->rail, coll__moving(COLL_BARRIER, NULL, NULL, 0, 0));
    return true;
}

static bool coll__broadcast_legs(coll__journey *j, coll__phase phase, int k)
{
    const coll_call *c = &j->whole->call;
    const coll__range own = coll__own_slice(j);
    unsigned char *const slice = coll__behind(c->recv, own.at * j->unit);
    int home;
    const int place = coll__place_at_home(j->hosts, c->root, &home);

    if (k > 0) return false;
    if (phase == COLL__AT_HOME && home == j->hosts->mine) {
        void *const to = c->root == j->whole->comm->rank ? COLL_IN_PLACE : slice;
        coll_call call = coll__moving(COLL_SCATTERV, coll__at_part(j, c->recv), to, own.count, c->type);
        call.root = place;
        call.send_counts = j->counts;
        call.send_offsets = j->offsets;
        coll__go(j, j->hosts->local, call);
    } else if (phase == COLL__ACROSS && coll__is_on_rail(j)) {
        coll_call call = coll__moving(COLL_BROADCAST, NULL, slice, own.count, c->type);
        call.root = home;
        coll__go(j, j->hosts->rail, call);
    } else if (phase == COLL__HOME_AGAIN) {
        coll__share_on_host(j);
    }
    return true;
}

/* Both sums begin like this: over our host, as sums. */
static bool coll__sum_legs_at_home(coll__journey *j, int k, void *sums)
{
    const unsigned char *const in = coll__at_part(j, j->whole->call.send);
    const coll__range part = coll__part_now(j);
    unsigned char *const wide = coll__behind(j->sums, part.at * j->sum_unit);

    if (k == 0 && j->is_wide) coll__widen_input(j, wide, in, part.count);
    else if (k == 1) coll__sum_on_host(j, j->is_wide ? wide : in, sums);
    return k < 2;
}

static bool coll__allreduce_legs(coll__journey *j, coll__phase phase, int k)
{
    const coll_call *c = &j->whole->call;
    const coll__range own = coll__own_slice(j);
    unsigned char *const slice = coll__behind(c->recv, own.at * j->unit);
    unsigned char *const sums = j->is_wide ? j->sums + own.at * j->sum_unit : slice;
    unsigned char *const results = j->results ? coll__results_now(j) : slice;

    if (phase == COLL__AT_HOME) return coll__sum_legs_at_home(j, k, sums);
    if (phase == COLL__HOME_AGAIN) {
        if (k == 0 && results != slice) coll__unpack(&j->whole->codec, slice, results, own.count);
        if (k == 0) coll__share_on_host(j);
        return k < 1;
    }
    if (!coll__is_on_rail(j)) return false;
    if (k == 0 && j->is_wide) coll__sum_on_rail(j, sums);
    else if (k == 0) coll__go(j, j->hosts->rail, coll__reducing(j, COLL_ALLREDUCE, sums, sums, own.count, true));
    else if (k == 1 && j->is_wide) coll__hand_out_on_rail(j, sums, results, -1);
    return k < 2;
}

static bool coll__reduce_legs(coll__journey *j, coll__phase phase, int k)
{
    const coll_call *c = &j->whole->call;
    const coll__range own = coll__own_slice(j);
    unsigned char *const results = coll__results_now(j), *const sums = j->is_wide ? j->sums + own.at * j->sum_unit : results;
    int home;
    const int place = coll__place_at_home(j->hosts, c->root, &home);

    if (phase == COLL__AT_HOME) return coll__sum_legs_at_home(j, k, sums);
    if (phase == COLL__ACROSS && coll__is_on_rail(j)) {
        coll_call call = coll__reducing(j, COLL_REDUCE, sums, sums, own.count, true);
        call.root = home;
        if (k == 0 && j->is_wide) coll__sum_on_rail(j, sums);
        else if (k == 0) coll__go(j, j->hosts->rail, call);
        else if (k == 1 && j->is_wide) coll__hand_out_on_rail(j, sums, results, home);
        return k < 2;
    }
    if (phase == COLL__HOME_AGAIN && k == 0 && home == j->hosts->mine) {
        coll_call call = coll__moving(COLL_GATHERV, j->extra ? j->extra : results, coll__at_part(j, c->recv), own.count, c->type);
        if (j->extra) coll__unpack(&j->whole->codec, j->extra, results, own.count);
        call.root = place;
        call.recv_counts = j->counts;
        call.recv_offsets = j->offsets;
        coll__go(j, j->hosts->local, call);
    }
    return k < 1;
}

/* ---- >>blocks: legs of calls with a block for each rank.  Rail s serves places s, s + rails, ... of every host ---- */

static inline size_t coll__block_count_of(const coll__journey *j, int rank)
{
    const coll_call *c = &j->whole->call;
    return rank == COLL_NO_RANK ? 0 : coll__kind_is(c->kind, COLL__SUMMED) ? c->recv_counts[rank] : c->count;
}

/* Of the input of a reduce_scatter, or of the result of an allgather. */
static inline size_t coll__block_offset_of(const coll__journey *j, int rank)
{
    const coll_call *c = &j->whole->call;
    const size_t *offsets = c->kind == COLL_REDUCE_SCATTERV ? c->send_offsets : c->recv_offsets;

    if (rank == COLL_NO_RANK) return 0;
    return coll__kind_is(c->kind, COLL__SUMMED) ? offsets[rank] : (size_t)rank * c->count;
}

/* Times that the rails go round. */
static inline int coll__turns_of(const coll__hosts *h) { return (h->most + h->rails - 1) / h->rails; }

/* In j->counts and j->offsets: what the ranks of our host have in hand of host `host` in turn `turn`; from_all: all of
 * our own. */
static void coll__count_on_host(coll__journey *j, int host, int turn, bool from_all)
{
    const coll__hosts *h = j->hosts;

    for (int s = 0; s < coll__host_size(h, h->mine); s++) {
        const int rank = from_all ? coll__rank_at(h, host, s)
                       : s < h->rails ? coll__rank_at(h, host, turn * h->rails + s) : COLL_NO_RANK;
        j->counts[s] = coll__block_count_of(j, rank);
        j->offsets[s] = coll__block_offset_of(j, rank);
    }
}

/* In j->rail_counts and j->rail_offsets: what each host has on our rail in turn `turn`. */
static void coll__count_on_rail(coll__journey *j, int turn)
{
    const coll__hosts *h = j->hosts;

    for (int g = 0; g < h->count; g++) {
        const int rank = coll__rank_at(h, g, turn * h->rails + h->place);
        j->rail_counts[g] = coll__block_count_of(j, rank);
        j->rail_offsets[g] = coll__block_offset_of(j, rank);
    }
}

static bool coll__allgather_legs(coll__journey *j, coll__phase phase, int k)
{
    const coll__hosts *h = j->hosts;
    const coll_call *c = &j->whole->call;
    const int turns = coll__turns_of(h), behind = k - 1 - turns;
    coll_call call = coll__moving(COLL_ALLGATHERV, k == 0 ? c->send : COLL_IN_PLACE, c->recv, 0, c->type);
    const bool is_on_rail = k > 0 && k <= turns;

    if (phase != COLL__AT_HOME || behind >= turns * h->count) return false;
    if (is_on_rail && h->place >= h->rails) return true;
    if (behind >= 0 && behind / turns == h->mine) return true;
    if (is_on_rail) coll__count_on_rail(j, k - 1);
    else coll__count_on_host(j, k == 0 ? h->mine : behind / turns, k == 0 ? 0 : behind % turns, k == 0);
    call.recv_counts = is_on_rail ? j->rail_counts : j->counts;
    call.recv_offsets = is_on_rail ? j->rail_offsets : j->offsets;
    call.count = is_on_rail ? j->rail_counts[h->mine] : j->counts[h->place];
    coll__go(j, is_on_rail ? h->rail : h->local, call);
    return true;
}

/* Elements of all blocks before that of `rank`. */
static size_t coll__blocks_before(const coll__journey *j, int rank)
{
    size_t before = 0;
    for (int i = 0; i < rank; i++) before += coll__block_count_of(j, i);
    return before;
}

/* Elements that our rail has in hand before turn `turn`, and in it of the hosts before `host`; of `only` one host, if that is
 * not below zero. */
static size_t coll__in_hand_before(const coll__journey *j, int turn, int host, int only)
{
    const coll__hosts *h = j->hosts;
    size_t before = 0;

    for (int q = 0; q <= turn; q++)
        for (int g = 0; g < (q < turn ? h->count : host); g++)
            if (only < 0 || g == only) before += coll__block_count_of(j, coll__rank_at(h, g, q * h->rails + h->place));
    return before;
}

/* Where the rail's result of turn `turn` is to be in the end: our own block, or one that another rank of our host awaits. */
static unsigned char *coll__brought_to(const coll__journey *j, int turn)
{
    const size_t own = coll__in_hand_before(j, 1, 0, j->hosts->mine);

    if (turn == 0) return (unsigned char *)j->whole->call.recv;
    return j->extra + (coll__in_hand_before(j, turn, 0, j->hosts->mine) - own) * j->unit;
}

/* The input in one piece, block after block, as sums if need be. */
static void coll__line_up(const coll__journey *j)
{
    const coll_call *c = &j->whole->call;
    size_t at = 0;

    for (int r = 0; r < j->whole->comm->size; r++) {
        const size_t count = coll__block_count_of(j, r);
        const unsigned char *const from = coll__behind(c->send, coll__block_offset_of(j, r) * j->unit);
        if (j->is_wide) coll__widen_input(j, j->sums + at * j->sum_unit, from, count);
        else if (count) memcpy(j->sums + at * j->unit, from, count * j->unit);
        at += count;
    }
}

/* What rails beyond our host's own brought goes to the ranks that have none. */
static void coll__hand_over(coll__journey *j)
{
    const coll__hosts *h = j->hosts;
    const coll_call *c = &j->whole->call;
    const int here = coll__host_size(h, h->mine), carrier = h->place % h->rails;
    coll_call call = coll__moving(COLL_ALLTOALLV, j->extra, c->recv, 0, c->type);
    size_t at = 0;

    for (int k = 0; k < here; k++) {
        const bool is_ours = k >= h->rails && k % h->rails == h->place, is_from = h->place >= h->rails && k == carrier;
        j->counts[k] = is_ours ? coll__block_count_of(j, coll__rank_at(h, h->mine, k)) : 0;
        j->offsets[k] = at;
        at += j->counts[k];
        j->rail_counts[k] = is_from ? coll__block_count_of(j, j->whole->comm->rank) : 0;
        j->rail_offsets[k] = 0;
    }
    call.send_counts = j->counts;
    call.send_offsets = j->offsets;
    call.recv_counts = j->rail_counts;
    call.recv_offsets = j->rail_offsets;
    coll__go(j, h->local, call);
}

/* Sum the blocks of host k / turns that are brought in turn k % turns; each rank of a rail its own. */
static void coll__sum_blocks_on_host(coll__journey *j, int host, int turn)
{
    const coll__hosts *h = j->hosts;
    const unsigned char *const in = j->sums ? j->sums : (const unsigned char *)j->whole->call.send;
    const size_t before = coll__blocks_before(j, h->first[host] + turn * h->rails);
    unsigned char *const out = j->results + coll__in_hand_before(j, turn, host, -1) * j->sum_unit;
    size_t at = 0;

    coll__count_on_host(j, host, turn, false);
    for (int s = 0; s < coll__host_size(h, h->mine); s++) {
        j->offsets[s] = at;
        at += j->counts[s];
    }
    if (turn * h->rails < coll__host_size(h, host)) coll__sum_on_host(j, in + before * j->sum_unit, out);
}

static void coll__sum_blocks_on_rail(coll__journey *j, int turn)
{
    const coll__hosts *h = j->hosts;
    unsigned char *const in = j->results + coll__in_hand_before(j, turn, 0, -1) * j->sum_unit;
    size_t at = 0;

    coll__count_on_rail(j, turn);
    for (int g = 0; g < h->count; g++) {
        j->rail_offsets[g] = at;
        at += j->rail_counts[g];
    }
    coll__sum_on_rail(j, in);
}

/* The block of turn `turn` that has come, rounded if it is not yet. */
static void coll__take_block(const coll__journey *j, int turn)
{
    const coll__hosts *h = j->hosts;
    const size_t count = coll__block_count_of(j, coll__rank_at(h, h->mine, turn * h->rails + h->place));
    unsigned char *const from = j->results + coll__in_hand_before(j, turn, h->mine, -1) * j->sum_unit;
    unsigned char *const to = coll__brought_to(j, turn);

    if (count == 0) return;
    if (!j->is_wide) {
        memcpy(to, from, count * j->unit);
        return;
    }
    coll__round_sums(j, from, from, count);       /* each element ends where it began, or before              */
    coll__unpack(&j->whole->codec, to, from, count);
}

static bool coll__reduce_scatter_legs(coll__journey *j, coll__phase phase, int k)
{
    const coll__hosts *h = j->hosts;
    const int turns = coll__turns_of(h), across = k - 1 - turns * h->count, last = across - turns;

    if (phase != COLL__AT_HOME) return false;
    if (k == 0 && j->sums) coll__line_up(j);
    if (k == 0) return true;
    if (across < 0) coll__sum_blocks_on_host(j, (k - 1) / turns, (k - 1) % turns);
    if (across > 0 && last <= 0 && h->rail) coll__take_block(j, across - 1);
    if (across >= 0 && last < 0 && h->rail) coll__sum_blocks_on_rail(j, across);
    if (last == 0 && coll__host_size(h, h->mine) > h->rails) coll__hand_over(j);
    return last <= 0;
}

/* ---- >>scans ---- */

/* What all hosts before ours have, before what is here. */
static void coll__put_before(const coll__journey *j)
{
    const coll_request *r = j->whole;
    const coll_call *c = &r->call;
    void *const result = c->recv;
    const coll__source sources[2] = { { j->sums, COLL__AS_USER, 0 }, { (const unsigned char *)c->recv, COLL__AS_USER, 1 } };

    if (c->kind == COLL_EXSCAN && j->hosts->place == 0) {
        if (c->count) memcpy(c->recv, j->sums, c->count * j->unit);
        return;
    }
    coll__combine(&r->codec, &(coll__sum){ .sources = sources, .n = 2, .results = &result, .m = 1, .format = COLL__AS_USER,
                                           .count = c->count, .scratch = j->extra });
}

static bool coll__scan_legs(coll__journey *j, coll__phase phase, int k)
{
    const coll_call *c = &j->whole->call;
    const bool has_before = j->hosts->mine > 0;

    if (phase != COLL__AT_HOME) return false;
    if (k == 0) coll__sum_on_host(j, c->send, j->results);
    else if (k == 1) coll__go(j, j->hosts->local, coll__reducing(j, c->kind, c->send, c->recv, c->count, true));
    else if (k == 2 && coll__is_on_rail(j))
        coll__go(j, j->hosts->rail, coll__reducing(j, COLL_EXSCAN, j->results, j->results, coll__own_slice(j).count, true));
    else if (k == 3 && has_before) {
        coll_call call = coll__moving(COLL_ALLGATHERV, j->results, j->sums, coll__own_slice(j).count, c->type);
        call.recv_counts = j->counts;
        call.recv_offsets = j->offsets;
        coll__go(j, j->hosts->local, call);
    } else if (k == 4 && has_before) coll__put_before(j);
    return k < 5;
}

/* ---- >>which calls go by legs ---- */

static coll__legs *const coll__legs_of[COLL_ALLGATHERV + 1] = {
    [COLL_BARRIER] = coll__barrier_legs,                [COLL_BROADCAST] = coll__broadcast_legs,
    [COLL_REDUCE] = coll__reduce_legs,                  [COLL_ALLREDUCE] = coll__allreduce_legs,
    [COLL_REDUCE_SCATTER] = coll__reduce_scatter_legs,  [COLL_REDUCE_SCATTERV] = coll__reduce_scatter_legs,
    [COLL_SCAN] = coll__scan_legs,                      [COLL_EXSCAN] = coll__scan_legs,
    [COLL_ALLGATHER] = coll__allgather_legs,            [COLL_ALLGATHERV] = coll__allgather_legs,
};

/* In which type a call adds up. */
static coll_type coll__sum_type_of(const coll_call *c)
{
    if (c->accumulate) return c->accumulate;
    return c->op == COLL_USER ? c->type : coll__usual_accumulator(c->type);
}

/* Are sums on the legs to be of another type than elements? */
static bool coll__has_wide_sums(const coll_call *c)
{
    const bool is_other = coll__sum_type_of(c) != c->type || c->wire != c->type;
    return coll__kind_reduces(c->kind) && is_other && !(c->flags & COLL_ROUND_TWICE);
}

/* May the sum of a call be made of sums of hosts?  Only what all ranks know alike decides. */
static bool coll__sums_by_hosts(const coll_request *r, const coll__hosts *h)
{
    const coll_call *c = &r->call;
    const bool scales = c->scale != 0 && c->scale != 1, is_wide = coll__has_wide_sums(c);
    const bool keeps_order = (c->flags & (COLL_DETERMINISTIC | COLL_REPRODUCIBLE)) && !r->codec.is_exact;

    if (keeps_order || c->flags & COLL_STOCHASTIC || coll__is_mx(c->wire)) return false;
    if (c->op == COLL_AVG && coll__is_integer(c->type)) return false;
    if (!r->codec.is_commutative && !h->is_ordered) return false;
    if (coll__kind_scans(c->kind)) return h->is_ordered && !scales && coll__sum_type_of(c) == c->type && c->wire == c->type;
    if (c->kind == COLL_REDUCE_SCATTER || c->kind == COLL_REDUCE_SCATTERV) {
        if (!h->is_ordered || (!is_wide && coll__sum_type_of(c) != c->type)) return false;
    }
    return true;
}

/* Does a request, which is about to start, go by legs?  COLL_OK: it does; COLL_ERR_UNSUPPORTED: it does not. */
static coll_status coll__goes_by_hosts(const coll_request *r)
{
    coll__track *track = r->track;
    const coll_call *c = &r->call;
    const bool has_legs = c->kind <= COLL_ALLGATHERV && coll__legs_of[c->kind];

    if (!has_legs || c->algorithm || track->space != COLL__SPACE_CALLS) return COLL_ERR_UNSUPPORTED;
    if (coll__find_hosts(track) < 0) return COLL_ERR_MEMORY;
    if (!track->hosts) return COLL_ERR_UNSUPPORTED;
    return !coll__kind_reduces(c->kind) || coll__sums_by_hosts(r, track->hosts) ? COLL_OK : COLL_ERR_UNSUPPORTED;
}

/* ---- >>starting and going on ---- */

/* Bytes of the scratch memory that a kind needs: sums, results, extra. */
static void coll__journey_sizes(coll__journey *j, size_t sizes[3])
{
    const coll_call *c = &j->whole->call;
    const coll__hosts *h = j->hosts;
    const size_t slice = coll__part(coll__part(c->count, 0, (size_t)j->parts, 0).count, 0, (size_t)j->slices, 0).count;
    const bool is_other_wire = j->is_wide && c->wire != c->type;
    bool is_in_one_piece = true;

    sizes[0] = sizes[1] = sizes[2] = 0;
    switch (c->kind) {
    case COLL_ALLREDUCE:
        sizes[0] = j->is_wide ? c->count * j->sum_unit : 0;
        j->result_length = is_other_wire ? coll__round_up(slice * j->wire_unit, 64) : 0;
        sizes[1] = (size_t)j->parts * j->result_length;
        break;
    case COLL_REDUCE:
        sizes[0] = j->is_wide ? c->count * j->sum_unit : 0;
        j->result_length = coll__round_up(slice * coll__most(j->wire_unit, j->unit), 64);
        sizes[1] = (size_t)j->parts * j->result_length;
        sizes[2] = is_other_wire ? slice * j->unit : 0;
        break;
    case COLL_REDUCE_SCATTER: case COLL_REDUCE_SCATTERV:
        for (int r = 0; r < j->whole->comm->size; r++)
            is_in_one_piece = is_in_one_piece && coll__block_offset_of(j, r) == coll__blocks_before(j, r);
        sizes[0] = j->is_wide || !is_in_one_piece ? coll__blocks_before(j, j->whole->comm->size) * j->sum_unit : 0;
        sizes[1] = coll__in_hand_before(j, coll__turns_of(h), 0, -1) * j->sum_unit;
        sizes[2] = coll__in_hand_before(j, coll__turns_of(h), 0, h->mine) * j->unit;
        break;
    case COLL_SCAN: case COLL_EXSCAN:
        sizes[0] = c->count * j->unit;
        sizes[1] = slice * j->unit;
        sizes[2] = coll__combine_scratch(&j->whole->codec, 2);
        break;
    default: break;
    }
}

/* Take the memory of a journey from its track, which keeps it for the next one. */
static coll_status coll__journey_lay_out(coll_request *r, coll__journey *plan)
{
    coll__track *track = r->track;
    const coll__hosts *h = plan->hosts;
    const size_t table = (size_t)coll__most((size_t)h->most, (size_t)h->count);
    const size_t front = coll__round_up(sizeof *plan + 4 * table * sizeof(size_t), 64);
    size_t sizes[3], length = front;

    coll__journey_sizes(plan, sizes);
    for (int i = 0; i < 3; i++) length += coll__round_up(sizes[i], 64);
    if (!coll__arena_reserve(track, length)) return COLL_ERR_MEMORY;
    coll__journey *j = (coll__journey *)track->arena;
    unsigned char *at = (unsigned char *)track->arena + front;
    *j = *plan;
    j->counts = (size_t *)(void *)(j + 1);
    j->offsets = j->counts + table;
    j->rail_counts = j->offsets + table;
    j->rail_offsets = j->rail_counts + table;
    unsigned char **const places[3] = { &j->sums, &j->results, &j->extra };
    for (int i = 0; i < 3; at += coll__round_up(sizes[i++], 64)) *places[i] = sizes[i] ? at : NULL;
    r->journey = j;
    return COLL_OK;
}

/* Into how many slices a vector is cut.  Blocks of ranks are not. */
static int coll__slices_for(const coll__hosts *h, const coll_call *c, size_t unit)
{
    const bool has_blocks = c->kind == COLL_ALLGATHER || c->kind == COLL_REDUCE_SCATTER || coll__kind_is(c->kind, COLL__SUMMED);

    if (has_blocks) return h->rails;
    return (int)coll__least((size_t)h->rails, coll__most(1, c->count * unit / COLL__RAIL_LEAST));
}

/* Into how many parts. */
static int coll__parts_for(const coll_call *c, size_t unit)
{
    const bool has_parts = c->kind == COLL_ALLREDUCE || c->kind == COLL_REDUCE || c->kind == COLL_BROADCAST;

    if (!has_parts) return 1;
    return (int)coll__least(COLL__PARTS_MOST, coll__most(1, c->count * unit / COLL__PART_LEAST));
}

/* Make a request ready to go by legs. */
static coll_status coll__journey_start(coll_request *r)
{
    const coll__hosts *h = r->track->hosts;
    const coll_call *c = &r->call;
    coll__journey plan;

    memset(&plan, 0, sizeof plan);
    plan.hosts = h;
    plan.whole = r;
    plan.is_wide = coll__has_wide_sums(c);
    plan.sum_type = coll__sum_type_of(c);
    plan.unit = r->codec.type_size;
    plan.sum_unit = plan.is_wide ? coll_type_size(plan.sum_type) : plan.unit;
    plan.wire_unit = coll_type_size(c->wire);
    plan.parts = coll__parts_for(c, plan.unit);
    plan.slices = coll__slices_for(h, c, plan.unit);
    return coll__journey_lay_out(r, &plan);
}

/* Begin a phase of a part. */
static void coll__trip_begin(coll__journey *j, coll__trip *trip, coll__phase phase, int part)
{
    const coll__hosts *h = j->hosts;

    trip->phase = phase;
    trip->part = part;
    trip->number = 0;
    trip->is_on = true;
    j->now = trip;
    for (int s = 0; trip == &j->on_host && s < coll__host_size(h, h->mine); s++) {
        const coll__range slice = coll__slice_at(j, s);
        j->counts[s] = slice.count;
        j->offsets[s] = slice.at - coll__part_now(j).at;
    }
    for (int g = 0; trip == &j->on_rail && g < h->count; g++) {
        const coll__range piece = coll__piece_at(j, g);
        j->rail_counts[g] = piece.count;
        j->rail_offsets[g] = piece.at;
    }
}

/* Go on as far as it goes without waiting.  COLL_OK: this phase is over. */
static coll_status coll__trip_advance(coll__journey *j, coll__trip *trip)
{
    coll__legs *const legs = coll__legs_of[j->whole->call.kind];
    coll_comm *const comm = j->whole->comm;

    while (trip->is_on) {
        if (trip->is_leg) {
            const coll_status status = coll__carry_on(trip->leg.comm, &trip->leg);
            if (status != COLL_OK) return status;
            trip->is_leg = false;
        }
        j->now = trip;
        j->status = COLL_OK;
        trip->is_on = legs(j, trip->phase, trip->number++);
        if (j->status < 0) {
            coll_failure failure = { COLL_OK, -1, "" };
            const int me = comm->trunk->rank;
            coll__blame(&failure, j->status, me, "rank %d cannot go on: %s", me, coll__sentence_of(trip->leg.comm));
            return coll__comm_fail(comm, &failure);
        }
    }
    return COLL_OK;
}

/* Begin what comes next, if it can begin.  In this order: part 0 at home; then for each part i: across, part i - 1 home again,
 * part i + 1 at home; at last the last part home again.  Where parts end or begin there is nothing to do.  COLL_OK: the journey
 * is over. */
static coll_status coll__journey_step(coll__journey *j)
{
    const int last = 3 * j->parts + 1, i = (j->step + 2) / 3 - 1, which = (j->step + 2) % 3;
    const bool is_across = j->step < last && which == 0;

    if (j->on_host.is_on || (j->on_rail.is_on && (is_across || j->step >= last))) return COLL_PENDING;
    if (j->step > last) return COLL_OK;
    if (j->step == 0) coll__trip_begin(j, &j->on_host, COLL__AT_HOME, 0);
    else if (j->step == last) coll__trip_begin(j, &j->on_host, COLL__HOME_AGAIN, j->parts - 1);
    else if (is_across) coll__trip_begin(j, &j->on_rail, COLL__ACROSS, i);
    else if (which == 1 && i > 0) coll__trip_begin(j, &j->on_host, COLL__HOME_AGAIN, i - 1);
    else if (which == 2 && i + 1 < j->parts) coll__trip_begin(j, &j->on_host, COLL__AT_HOME, i + 1);
    j->step++;
    return COLL_PENDING;
}

/* The same for the whole call. */
static coll_status coll__journey_advance(coll_request *r)
{
    coll__journey *j = r->journey;

    for (;;) {
        const int before = j->step;
        const coll_status across = coll__trip_advance(j, &j->on_rail);
        const coll_status at_home = across < 0 ? across : coll__trip_advance(j, &j->on_host);
        if (at_home < 0) return at_home;
        if (coll__journey_step(j) == COLL_OK) return COLL_OK;
        if (j->step == before) return COLL_PENDING;
    }
}

/* The leg on its way; of two the one on the host, which everything else waits for. */
static const coll_request *coll__leg_of(const coll_request *r)
{
    const coll__journey *j = r->journey;
    return j->on_host.is_leg ? &j->on_host.leg : j->on_rail.is_leg ? &j->on_rail.leg : r;
}

#endif /* COLL_HOSTS_H */
