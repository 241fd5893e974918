/* coll_tuner.h - chooses algorithm, radix, blocks and slices by a cost model with the same numbers on every rank.
 *
 * It evaluates all closed forms of coll_cost.h that fit a call, fewer than 80, and takes the cheapest.  All ranks must choose
 * the same.  So the input is only the query, which is equal everywhere, and the arithmetic only sums, products, quotients and
 * comparisons of doubles.  With COLL_NO_CHOICE there is one algorithm for each kind.
 *
 * BITS.  A result must have the same bits in every run, but the processors that ranks share may differ between runs.  So they
 * may not determine bits.  If the grouping of a sum changes its bits, the first choice counts one processor for each rank.  If it
 * is canonical, the fastest canonical algorithm for the processors there are is used: all of these give the same bits, with every
 * radix and number of slices.  If not, algorithm, radix and blocks stay as they are.  All of this is in coll__choose. */
#ifndef COLL_TUNER_H
#define COLL_TUNER_H

#include <string.h>

#include "coll_algorithms.h"

/* ---- >>queries ---- */

enum {
    COLL__CANDIDATES_MOST = 80,
    COLL__CUT_MOST        = 4096,                 /* blocks or slices                                         */
    COLL__CUT_LEAST_BYTES = 1 << 10,              /* least bytes of a block or slice                          */
    COLL__CROWD_MOST      = 256,                  /* most ranks whose total work is counted                   */
    COLL__UNDER_WAY_CACHED = 1 << 20              /* bytes in transit per processor; above, half are out of its caches */
};

#define COLL__CUT_WORTH 1.02                      /* accepted slowdown for fewer messages                     */

/* What an algorithm sends: sums over all ranks; the rounds of the rank with the most. */
typedef struct coll__count { int radix, sent, moved, rounds; } coll__count;

static const int coll__radices[] = { 2, 3, 4, 6, 8, 12, 16, 24, 32 };     /* considered in addition to the size */

enum { COLL__RADICES = sizeof coll__radices / sizeof *coll__radices };

typedef coll__count coll__counts[COLL__RADICES + 1];      /* for each of these radices; the last: for another one */

/* A query; equal on all ranks. */
typedef struct coll__query {
    coll_kind kind;
    int       size;
    double    bytes, sum_bytes;                   /* of the whole vector, on the wire and as partial results  */
    bool      is_exact, is_commutative, must_be_canonical;
    const char *algorithm;                        /* NULL, "name" or "name:number": the radix, the blocks or the slices */
    const coll__link *link;
    const coll__shares *shares;                   /* of unequal links; NULL: all are equal                    */
    double    share;                              /* processors that a rank has; 0: one each                  */
    coll__counts *counts;                         /* of each algorithm for this size; NULL: not cached        */
} coll__query;

typedef struct coll__choice {
    const coll__algorithm *algorithm;
    int    radix, blocks;
    long   slices;                                /* 0: the engine decides                                    */
    int    room;                                  /* with packets: bytes of a block in one; 0: no packets     */
    double seconds;                               /* predicted                                                */
} coll__choice;

/* ---- >>names ---- */

/* The length of an algorithm's name if `text` is "name" or "name:number"; otherwise 0. */
static size_t coll__name_in(const coll__algorithm *a, const char *text)
{
    const size_t length = strlen(a->name);

    return !strncmp(a->name, text, length) && (!text[length] || text[length] == ':') ? length : 0;
}

/* Does "name" or "name:number" name this algorithm?  `number` is 0 if there is none; an invalid number gives false. */
static bool coll__is_named(const coll__algorithm *a, const char *text, long *number)
{
    size_t n = text ? coll__name_in(a, text) : 0;

    *number = 0;
    if (n == 0 || !text[n]) return !text || n > 0;
    for (n++; text[n] >= '0' && text[n] <= '9' && *number < 1000000; n++) *number = *number * 10 + (text[n] - '0');
    const bool is_radix = a->has_radix && *number >= 2;
    const bool is_cut = coll__has_cut(a) && *number >= 1 && *number <= COLL__CUT_MOST;
    return !text[n] && (is_radix || is_cut);
}

/* Why an algorithm of the kind cannot be used for it; NULL: it can. */
static const char *coll__why_unusable(const coll__algorithm *a, const coll__query *query)
{
    if (a->needs_exact && !query->is_exact) return "it is only for operations that are exact";
    if (!a->keeps_order && !query->is_commutative) return "it does not keep the order of the ranks (not_commutative)";
    if (a->is_canonical || query->is_exact || !query->must_be_canonical) return NULL;
    return "its bits are not those of COLL_DETERMINISTIC or COLL_REPRODUCIBLE";
}

static bool coll__may_be_used(const coll__algorithm *a, const coll__query *query)
{
    return a->kind == query->kind && !coll__why_unusable(a, query);
}

/* Why the algorithm that is named cannot carry out the call; NULL: it can; "": the kind has none of that name. */
static inline const char *coll__why_not(const coll__query *query)
{
    const char *why = "";
    long number;

    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        if (a->kind != query->kind || !coll__name_in(a, query->algorithm)) continue;
        why = coll__why_unusable(a, query);
        if (!why && !coll__is_named(a, query->algorithm, &number)) why = "what follows the colon is not a number that it takes";
    }
    return why;
}

/* ---- >>packets: blocks whose length only sender and receiver know ---- */

/* With lists of counts a rank knows only the blocks that it sends and receives.  Ranks that forward a block do not know its
 * length, and no rank can choose for all.  So the choice is made for each block, because its two ranks know its length.  A
 * short block is sent in a packet, by an algorithm with few messages.  A long block is sent directly, at the same time.  A
 * packet has a head with the length of the block, and `room` bytes.  So all packets have the same length, an algorithm treats
 * them as equal blocks, and both ranks know the length of every message.  A long block has a packet without bytes, so that its
 * two ranks detect if they disagree on whether it is long.
 *
 * The room is chosen by what all ranks know: their number and the link. */
enum {
    COLL__PACKET_HEAD = 16,
    COLL__PACKET_ROOM_LEAST  = 64, COLL__PACKET_ROOM_MOST = 4096
};

/* Packets must be this much faster than empty direct messages: if all blocks are long, packets only add to them. */
#define COLL__PACKETS_WORTH 1.5

/* Bytes of the vector that the algorithm moves. */
static inline double coll__packet_bytes(int size, int room) { return (double)size * (COLL__PACKET_HEAD + room); }

/* ---- >>properties of an algorithm ---- */

/* Is the vector not cut into slices?  So it is if only two ranks know the length of a block; and in direct gathers and
 * scatters, where slices gain nothing. */
static inline bool coll__goes_whole(coll_kind kind, int rounds)
{
    if (kind == COLL_GATHERV || kind == COLL_SCATTERV || (kind >= COLL_ALLTOALLV && kind <= COLL_NEIGHBOR_ALLTOALLW)) return true;
    return rounds == 1 && (kind == COLL_GATHER || kind == COLL_SCATTER);
}

/* Is it for such blocks in packets, not directly? */
static inline bool coll__in_packets(const coll__algorithm *a) { return a->has_radix && coll__goes_whole(a->kind, 0); }

/* Counts by running the algorithm; for a vector cut into many blocks, one of them.  Neighbor lists differ between ranks and are
 * not counted; there is no choice for them. */
static coll__count coll__count_sent(const coll__algorithm *a, int size, int radix, int blocks)
{
    const coll__graph no_ranks = { .sources = 0 };
    coll__round now = { .size = size, .radix = radix, .blocks = blocks, .graph = &no_ranks };
    const int ranks = a->is_even ? 1 : size, equal = size / ranks;
    int rounds = 0;

    for (now.rank = 0; now.rank < ranks; now.rank++)
        for (int k = 0; a->round(&now, k); k++) rounds = k >= rounds ? k + 1 : rounds;
    return (coll__count){ radix, now.sent * equal, now.moved * equal, rounds };
}

/* ---- >>candidates ---- */

/* The time of a vector in `slices` slices; rounds, work and folding are its values with all other numbers 0. */
static double coll__sliced_cost(const coll__algorithm *a, const coll__link *link, const coll__shape *s, double slices)
{
    static const coll__link rounds = { .latency = 1 };
    const coll__link bytes = { .overhead = link->overhead, .per_byte = link->per_byte,
                               .per_byte_handled = link->per_byte_handled };
    const coll__link folds = { .per_byte_reduced = link->per_byte_reduced };
    coll__shape slice = *s;

    if (slices <= 1) return coll__cost_of(a, link, s);
    slice.bytes /= slices, slice.sum_bytes /= slices;
    const double busy = coll__longer(coll__cost_of(a, &bytes, &slice), coll__cost_of(a, &folds, &slice));
    const double lag = (double)coll__lag(link, coll__slice_bytes(s->size));
    return coll__slices_time(slices, lag, coll__cost_of(a, &rounds, &slice), coll__cost_of(a, link, &slice), busy);
}

/* Slices into which the engine will cut the vector by itself (coll__execution_cut). */
static double coll__slices_of(const coll__algorithm *a, const coll__query *query, int radix, int blocks)
{
    const double longest = a->cut == COLL__CUT_SHARES ? coll__longest_share(query->shares, blocks) : 1.0 / blocks;
    const double slices = query->bytes * longest / coll__slice_bytes(query->size);

    if (slices <= 1 || coll__goes_whole(query->kind, coll__circulant_rounds(query->size, radix))) return 1;
    return slices > 1e9 ? 1e9 : (double)(long)slices + (slices > (double)(long)slices);
}

/* The count, cached: it takes much longer than the rest of a choice. */
static coll__count coll__count_of(const coll__algorithm *a, const coll__query *query, int radix, int blocks)
{
    int n = 0;

    while (n < COLL__RADICES && coll__radices[n] != radix) n++;
    coll__count *const at = query->counts ? &query->counts[a - coll__algorithms][n] : NULL;
    if (at && at->radix == radix) return *at;
    const coll__count found = coll__count_sent(a, query->size, radix, blocks);
    if (at) *at = found;
    return found;
}

/* The time if ranks share processors: the work of all ranks, divided among the processors.  A message costs its latency,
 * because most messages wake a rank; each round costs a latency, too.  A vector in many blocks is counted by one block.  If
 * many bytes wait in sockets until their rank runs, they have left the caches: bytes to many ranks at once take a quarter
 * longer.  `alone`: the time with one processor for each rank, also a bound; the shorter of the two counts a little, because
 * they interfere. */
static double coll__crowded_time(const coll__algorithm *a, const coll__query *query, int radix, int blocks, double cuts,
                                 double slices, double alone)
{
    const int counted = a->cut == COLL__CUT_MANY ? 1 : blocks;
    const coll__count n = coll__count_of(a, query, radix, counted);
    const double bytes = n.moved * 0.5 * (a->is_canonical ? query->bytes : query->sum_bytes) / counted;
    const double processors = query->size * query->share;
    const double ticks = slices * (coll__has_cut(a) ? coll__longer(n.rounds, cuts) : n.rounds);
    const double under_way = bytes / (ticks * processors * (double)COLL__UNDER_WAY_CACHED) - 0.5;
    const double cold = under_way < 0 ? 0 : under_way < 1 ? under_way : 1;        /* the fraction that is not in the caches */
    const double work = n.sent * cuts * query->link->latency + bytes * (1 + cold / 4) * query->link->per_byte;
    const double together = n.rounds * query->link->latency + work / processors;
    return together > alone ? together + alone / 8 : alone + together / 8;
}

/* Do ranks share processors, and are they few enough to count their work? */
static inline bool coll__is_crowd(const coll__query *query)
{
    return query->share > 0 && query->share < 1 && query->size <= COLL__CROWD_MOST;
}

/* The room of a packet, a power of 2.  All packets, full or empty, may take at most an eighth of the time of empty direct
 * messages to all ranks; and one packet for each rank may not exceed COLL__LANDING_MOST. */
static int coll__packet_room(const coll__algorithm *a, const coll__query *query, int radix)
{
    const coll__link bytes = { .per_byte = query->link->per_byte, .per_byte_handled = query->link->per_byte_handled };
    const coll__shape shape = { .size = query->size, .radix = radix, .blocks = query->size, .slices = 1,
                                .bytes = query->size, .sum_bytes = query->size };         /* packets of one byte */
    const double each = a->cost(&bytes, &shape), most = coll__burst(query->link, query->size - 1, 0, 0) / 8;
    int room = COLL__PACKET_ROOM_LEAST;

    while (room < COLL__PACKET_ROOM_MOST && (COLL__PACKET_HEAD + 2 * room) * each <= most
           && coll__packet_bytes(query->size, 2 * room) <= (double)COLL__LANDING_MOST) room *= 2;
    return room;
}

static coll__choice coll__priced(const coll__algorithm *a, const coll__query *query, int radix, long cut)
{
    const int room = coll__in_packets(a) ? coll__packet_room(a, query, radix) : 0;
    const int blocks = coll__blocks_of(a, query->size, (int)cut);
    const long pipelined = a->is_pipelined ? cut : 0;
    coll__query sent = *query;

    if (room) sent.bytes = sent.sum_bytes = coll__packet_bytes(query->size, room);
    const coll__shape shape = { query->size, radix, blocks, pipelined ? (double)cut : 1, sent.bytes, sent.sum_bytes,
                                query->shares };
    const double slices = pipelined ? 1 : coll__slices_of(a, &sent, radix, blocks);
    double seconds = coll__sliced_cost(a, query->link, &shape, slices);
    if (coll__is_crowd(query) && a->cost != coll__cost_neighbor)
        seconds = coll__crowded_time(a, &sent, radix, blocks, coll__has_cut(a) ? (double)cut : slices, slices, seconds);
    return (coll__choice){ a, radix, blocks, pipelined, room, seconds };
}

/* The number n of blocks or slices with the least time.  The time falls with n while long messages wait for one another, and
 * rises when their number dominates.  Search the best power of 2, then with decreasing steps.  Near the minimum the time is
 * flat: take fewer and longer messages, which need less processor time. */
static coll__choice coll__best_cut(const coll__algorithm *a, const coll__query *query)
{
    const double least = query->bytes / (double)COLL__CUT_LEAST_BYTES;
    const long most = least >= (double)COLL__CUT_MOST ? COLL__CUT_MOST : least > 1 ? (long)least : 1;
    coll__choice quickest = coll__priced(a, query, 2, 1), best;
    long at = 1;

    for (long n = 2; n <= most && n <= 8 * at; n *= 2) {
        const coll__choice more = coll__priced(a, query, 2, n);
        if (more.seconds < quickest.seconds) quickest = more, at = n;
    }
    for (long step = at / 2; step > 0; step /= 2)
        for (int sign = -1; sign <= 1; sign += 2) {
            const long n = at + sign * step < most ? at + sign * step : most;
            const coll__choice near = coll__priced(a, query, 2, n);
            if (near.seconds < quickest.seconds) quickest = near, at = n;
        }
    best = quickest;
    for (long fewer = at / 2; fewer >= 1; fewer /= 2) {
        const coll__choice longer = coll__priced(a, query, 2, fewer);
        if (longer.seconds > COLL__CUT_WORTH * quickest.seconds) break;
        best = longer;
    }
    return best;
}

/* The time for comparisons: cutting into many messages must be worth their work, and so must packets. */
static inline double coll__weighed_seconds(const coll__choice *choice)
{
    if (choice->room) return choice->seconds * COLL__PACKETS_WORTH;

    const bool is_cut = choice->slices > 1 || (choice->algorithm->cut == COLL__CUT_MANY && choice->blocks > 1);
    return is_cut ? choice->seconds * COLL__CUT_WORTH : choice->seconds;
}

/* Insert into a sorted list, the cheapest first; equal ones in the order of the table. */
static int coll__insert(coll__choice *list, int count, int room, coll__choice choice)
{
    int at = count;

    while (at > 0 && coll__weighed_seconds(&choice) < coll__weighed_seconds(&list[at - 1])) at--;
    if (at >= room) return count;
    if (count < room) count++;
    for (int i = count - 1; i > at; i--) list[i] = list[i - 1];
    list[at] = choice;
    return count;
}

/* All candidates with their costs, the cheapest first, up to `room`. */
static inline int coll__candidates(coll__choice *list, int room, const coll__query *query)
{
    const int size = query->size, own = size > 2 ? size : 2;
    int count = 0;

    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        long number;
        if (!coll__may_be_used(a, query) || !coll__is_named(a, query->algorithm, &number)) continue;
        const int named = coll__less((int)number, own);
        if (number > 0 && a->has_radix) count = coll__insert(list, count, room, coll__priced(a, query, named, 1));
        else if (number == 0 && coll__has_cut(a)) count = coll__insert(list, count, room, coll__best_cut(a, query));
        else if (!a->has_radix) count = coll__insert(list, count, room, coll__priced(a, query, own, number > 0 ? number : 1));
        else {
            for (int r = 0; r < COLL__RADICES && coll__radices[r] < own; r++)
                count = coll__insert(list, count, room, coll__priced(a, query, coll__radices[r], 1));
            count = coll__insert(list, count, room, coll__priced(a, query, own, 1));
        }
    }
    return count;
}

/* The cheapest by the query's link.  A canonical one, which rounds once and depends only on the inputs, may cost 3 % more.
 * false: none. */
static bool coll__choose_cheapest(coll__choice *choice, const coll__query *query)
{
    coll__choice list[COLL__CANDIDATES_MOST];
    const int count = coll__candidates(list, COLL__CANDIDATES_MOST, query);
    int best = 0;

    if (count == 0) return false;
    while (best < count && !list[best].algorithm->is_canonical) best++;
    if (best == count || query->is_exact || list[best].seconds >= 1.03 * list[0].seconds) best = 0;
    *choice = list[best];
    return true;
}

/* The algorithm for a query, or the one that it names, under the rule BITS above.  false: the named one does not exist or may
 * not be used. */
static inline bool coll__choose(coll__choice *choice, const coll__query *query)
{
    coll__query narrow = *query;

    if (!coll__is_crowd(query) || query->is_exact) return coll__choose_cheapest(choice, query);
    narrow.share = 0;
    if (!coll__choose_cheapest(choice, &narrow)) return false;
    if (!choice->algorithm->is_canonical) {
        const long cut = choice->algorithm->is_pipelined ? choice->slices : choice->blocks;
        *choice = coll__priced(choice->algorithm, query, choice->radix, cut);
        return true;
    }
    narrow.share = query->share;
    narrow.must_be_canonical = true;
    return coll__choose_cheapest(choice, &narrow);
}

/* The only algorithm of a kind, with COLL_NO_CHOICE. */
static inline coll__choice coll__only_choice(coll_kind kind, int size)
{
    const coll__algorithm *a = coll__algorithms;

    while (a->kind != kind) a++;
    return (coll__choice){ .algorithm = a, .radix = a->has_radix || size < 2 ? 2 : size, .blocks = coll__blocks_of(a, size, 1) };
}

#endif /* COLL_TUNER_H */
