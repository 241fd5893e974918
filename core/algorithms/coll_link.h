/* coll_link.h - what is believed of the wire, and how long vectors are cut for it. */
#ifndef COLL_LINK_H
#define COLL_LINK_H

#include "coll_shares.h"

#if COLL__IS_TINY                                 /* little memory, and a wire so slow that nothing is gained by more; the same on
                                                     all ranks that meet, as all of these                     */
enum {
    COLL__SLICE_MOST = 1 << 10, COLL__SLICE_LEAST = 1 << 10, COLL__LANDING_MOST = 1 << 10, COLL__LAG_LEAST = 1, COLL__LAG_MOST = 1
};
#else
enum {
    COLL__SLICE_MOST    = 128 << 10,              /* bytes of a block's slice: stays in cache until folded    */
    COLL__SLICE_LEAST   = 16 << 10,
    COLL__LANDING_MOST  = 1 << 20,                /* bytes that may be on their way to a rank in one round    */
    COLL__LAG_LEAST     = 3,                      /* ticks on their way together (coll_engine.h)              */
    COLL__LAG_MOST      = 64
};
#endif

/* What the tuner knows of the wire; the same numbers on every rank. */
typedef struct coll__link {
    double latency, overhead;                     /* s a message; s a further message in the same round       */
    double per_byte, per_byte_reduced;            /* s; per_byte: sent and received at the same time          */
    double per_byte_handled;                      /* s of the processor, behind the overhead: copies to and from the kernel */
} coll__link;

/* Between sites: until a message is there; and what the link carries that all hosts of a site share.  0: as between hosts. */
typedef struct coll__far { double latency, per_byte; } coll__far;

/* Sites that are ranks in a row, each: where the second one begins, and so on.  They bound what a file can say; ranks that are
 * told where they are (coll_config.site) may be in any order. */
typedef struct coll__sites { int count, first[COLL__RUNS_MOST]; } coll__sites;

/* Who said so. */
typedef enum coll__origin { COLL__BY_DEFAULT, COLL__BY_FILE, COLL__BY_SIMULATION, COLL__BY_MEASURING } coll__origin;

enum { COLL__FILE_NAME_ROOM = COLL__HAS_CHOICE ? 64 : 1 };

/* What a communicator believes of its wire.  `nominal`, shares, far and sites are the same in every run, and so may decide about
 * bits (coll_tuner.h); `link` is `nominal`, or what has been measured since. */
typedef struct coll__numbers {
    coll__link   link, nominal;                   /* of the slowest rank                                      */
    coll__shares shares;                          /* where some are faster                                    */
    coll__far    far, nominal_far;
    coll__sites  sites;
    double       barrier;                         /* s a barrier that the transport takes whole; 0: not measured */
    coll__origin origin;
    unsigned     version;                         /* how often they have been replaced                        */
    char         file[COLL__FILE_NAME_ROOM];      /* the end of its name                                      */
} coll__numbers;

/* What is to be run.  Bytes are those of the whole vector on the wire (allgather: gathered; alltoall: sent by a rank). */
typedef struct coll__shape {
    int    size, radix, blocks;
    long   slices;
    double bytes, sum_bytes;                      /* sum_bytes: the same as partial results, in accumulator format */
    const coll__shares *shares;                   /* NULL: ranks are alike                                    */
} coll__shape;

/* TCP within a machine or a rack, measured: 4 us of work a message, 12 us before it is there, 2 GB/s, copied at 4 GB/s. */
static const coll__link coll__link_default = { 12e-6, 4e-6, 0.5e-9, 0.1e-9, 0.25e-9 };

static inline double coll__longer(double a, double b) { return a > b ? a : b; }

/* ---- >>sites ---- */

static inline int coll__site_in(const coll__sites *s, int rank)
{
    int site = 0;

    while (site < s->count && s->first[site] <= rank) site++;
    return site;
}

/* From this rank on it is another site.  Where there are too many nothing is known of any. */
static inline void coll__sites_add(coll__sites *s, int rank)
{
    if (s->count >= 0) s->count = s->count < COLL__RUNS_MOST ? s->count + 1 : -1;
    if (s->count > 0) s->first[s->count - 1] = rank;
}

/* Those of some ranks, of which number i is called ranks[i] where the sites are `all`; none if a site is not a row of them. */
static inline void coll__sites_inherit(coll__sites *s, const coll__sites *all, const int *ranks, int size)
{
    unsigned seen = 0;

    s->count = 0;
    for (int i = 0; COLL__HAS_CHOICE && all->count > 0 && i < size; i++) {
        const int site = coll__site_in(all, ranks[i]);
        if (i > 0 && site == coll__site_in(all, ranks[i - 1])) continue;
        if (i > 0) coll__sites_add(s, i);
        if (seen >> site & 1) s->count = -1;
        seen |= 1u << site;
    }
    if (s->count < 0) s->count = 0;
}

/* The link of one of so many ranks of a site that send to other sites at the same time. */
static inline coll__link coll__far_link(const coll__link *near, const coll__far *far, int rails)
{
    coll__link link = *near;

    link.latency = coll__longer(link.latency, far->latency);
    link.per_byte = coll__longer(link.per_byte, far->per_byte * rails);
    return link;
}

/* ---- >>slices: a vector that the engine cuts ---- */

/* Bytes of a slice of a block, where nothing else is asked for. */
static inline int coll__slice_bytes(int size)
{
    const int room = COLL__LANDING_MOST / size;
    return room < COLL__SLICE_LEAST ? COLL__SLICE_LEAST : room < COLL__SLICE_MOST ? room : COLL__SLICE_MOST;
}

/* Ticks that are on their way together: as many slices of this length as the link carries in its latency, and one; so a long link
 * is kept busy, and slices stay short enough to be folded in cache.  It does not show in the bits: which terms of an element meet
 * in which order is a matter of its block, and slices, however many at once, are shares of every block. */
static inline long coll__lag(const coll__link *link, double slice_bytes)
{
    const double slice = slice_bytes * link->per_byte;
    const double ticks = slice > 0 ? link->latency / slice + 1 : COLL__LAG_LEAST;

    if (COLL__LAG_MOST == COLL__LAG_LEAST) return COLL__LAG_MOST;
    if (ticks >= COLL__LAG_MOST) return COLL__LAG_MOST;
    return ticks <= COLL__LAG_LEAST ? COLL__LAG_LEAST : (long)ticks + (ticks > (double)(long)ticks);
}

#endif /* COLL_LINK_H */
