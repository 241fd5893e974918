/* coll_link_model.h - numbers of the link, and the length of slices. */
#ifndef COLL_LINK_MODEL_H
#define COLL_LINK_MODEL_H

#include "coll_uneven_split.h"

#if COLL__IS_TINY                                 /* little memory and slow links; equal on all ranks, as below */
enum {
    COLL__SLICE_MOST = 1 << 10, COLL__SLICE_LEAST = 1 << 10, COLL__LANDING_MOST = 1 << 10, COLL__LAG_LEAST = 1, COLL__LAG_MOST = 1
};
#else
enum {
    COLL__SLICE_MOST    = 128 << 10,              /* bytes of a block's slice: stays in cache until it is folded */
    COLL__SLICE_LEAST   = 16 << 10,
    COLL__LANDING_MOST  = 1 << 20,                /* bytes in transit to a rank in one round                  */
    COLL__LAG_LEAST     = 3,                      /* ticks in progress together (coll_engine.h)               */
    COLL__LAG_MOST      = 64
};
#endif

/* The tuner's numbers of the link; equal on every rank. */
typedef struct coll__link {
    double latency, overhead;                     /* s per message; s for a further message in a round        */
    double per_byte, per_byte_reduced;            /* s; per_byte: sent and received at the same time          */
    double per_byte_handled;                      /* s of the processor in addition to overhead: copies to and from the kernel */
} coll__link;

/* Between sites: latency, and the shared link of all hosts of a site.  0: as between hosts. */
typedef struct coll__far { double latency, per_byte; } coll__far;

/* Sites of consecutive ranks: the first rank of the second site, and so on.  Only for tuning files; with coll_config.site the
 * ranks of a site may be in any order. */
typedef struct coll__sites { int count, first[COLL__RUNS_MOST]; } coll__sites;

/* The source of the numbers. */
typedef enum coll__origin { COLL__BY_DEFAULT, COLL__BY_FILE, COLL__BY_SIMULATION } coll__origin;

enum { COLL__FILE_NAME_ROOM = COLL__HAS_CHOICE ? 64 : 1 };

/* Link numbers of a communicator: equal on all its ranks, and in every run with the same tuning file. */
typedef struct coll__numbers {
    coll__link   link;                            /* of the slowest rank                                      */
    coll__shares shares;                          /* if some links are faster                                 */
    coll__far    far;
    coll__sites  sites;
    double       barrier;                         /* in files of earlier versions; not used                   */
    coll__origin origin;
    char         file[COLL__FILE_NAME_ROOM];      /* the end of the tuning file's name                        */
} coll__numbers;

/* An algorithm's parameters.  Bytes are those of the whole vector on the wire (allgather: gathered; alltoall: sent by a rank). */
typedef struct coll__shape {
    int    size, radix, blocks;
    double slices;                                /* in a pipeline; otherwise 1                               */
    double bytes, sum_bytes;                      /* sum_bytes: as partial results, in the accumulator type   */
    const coll__shares *shares;                   /* NULL: all links are equal                                */
} coll__shape;

/* TCP within a machine or a rack, measured: 4 us of work per message, 12 us latency, 2 GB/s, copied at 4 GB/s. */
static const coll__link coll__link_default = { 12e-6, 4e-6, 0.5e-9, 0.1e-9, 0.25e-9 };

static inline double coll__longer(double a, double b) { return a > b ? a : b; }

/* ---- >>sites ---- */

static inline int coll__site_in(const coll__sites *s, int rank)
{
    int site = 0;

    while (site < s->count && s->first[site] <= rank) site++;
    return site;
}

/* The sites of some ranks; number i has rank ranks[i] in `all`.  None, if a site is not consecutive. */
static inline void coll__sites_inherit(coll__sites *s, const coll__sites *all, const int *ranks, int size)
{
    unsigned seen = 0;

    s->count = 0;
    for (int i = 0; COLL__HAS_CHOICE && all->count > 0 && i < size; i++) {
        const int site = coll__site_in(all, ranks[i]);
        if (i > 0 && site == coll__site_in(all, ranks[i - 1])) continue;
        if (seen >> site & 1) {
            s->count = 0;
            return;
        }
        if (i > 0) s->first[s->count++] = i;
        seen |= 1u << site;
    }
}

/* The link of one of `rails` ranks of a site that send to other sites at the same time. */
static inline coll__link coll__far_link(const coll__link *near, const coll__far *far, int rails)
{
    coll__link link = *near;

    link.latency = coll__longer(link.latency, far->latency);
    link.per_byte = coll__longer(link.per_byte, far->per_byte * rails);
    return link;
}

/* ---- >>slices of a vector ---- */

/* Bytes of a slice of a block, by default. */
static inline int coll__slice_bytes(int size)
{
    const int room = COLL__LANDING_MOST / size;
    return room < COLL__SLICE_LEAST ? COLL__SLICE_LEAST : room < COLL__SLICE_MOST ? room : COLL__SLICE_MOST;
}

/* Ticks in progress together: as many slices of this length as the link carries during its latency, plus one.  So a long link
 * is busy, and slices are short enough to be folded in cache.  Bits do not depend on it: the order of an element's terms
 * depends on its block, and slices are parts of every block. */
static inline long coll__lag(const coll__link *link, double slice_bytes)
{
    const double slice = slice_bytes * link->per_byte;
    const double ticks = slice > 0 ? link->latency / slice + 1 : (double)COLL__LAG_LEAST;

    if (COLL__LAG_MOST == COLL__LAG_LEAST) return COLL__LAG_MOST;
    if (ticks >= (double)COLL__LAG_MOST) return COLL__LAG_MOST;
    return ticks <= (double)COLL__LAG_LEAST ? COLL__LAG_LEAST : (long)ticks + (ticks > (double)(long)ticks);
}

#endif /* COLL_LINK_MODEL_H */
