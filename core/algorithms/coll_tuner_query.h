/* coll_tuner_query.h - queries for an algorithm, choices, and the algorithms that may be chosen. */
#ifndef COLL_TUNER_QUERY_H
#define COLL_TUNER_QUERY_H

#include "coll_algorithms.h"

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
    const coll__link *link;                       /* for speed                                                */
    const coll__link *nominal;                    /* for the bits of the result; NULL: the same               */
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

enum {
    COLL__CUT_MOST  = 4096                        /* blocks or slices                                         */
};

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
    const coll__graph nobody = { .sources = 0 };
    coll__round now = { .size = size, .radix = radix, .blocks = blocks, .graph = &nobody };
    const int ranks = a->is_even ? 1 : size, alike = size / ranks;
    int rounds = 0;

    for (now.rank = 0; now.rank < ranks; now.rank++)
        for (int k = 0; a->round(&now, k); k++) rounds = k >= rounds ? k + 1 : rounds;
    return (coll__count){ radix, now.sent * alike, now.moved * alike, rounds };
}

#endif /* COLL_TUNER_QUERY_H */
