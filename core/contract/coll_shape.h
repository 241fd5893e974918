/* coll_shape.h - the shape of calls: which blocks each kind of call has in its two buffers, which ranks have them, and where in
 * a coll_call their counts are.  One row for each kind.
 *
 * A call has two sides, send and recv.  A row has three entries for each:
 *
 *     who   NONE        no rank has such a buffer        over  ONE           one block
 *           ALL         every rank has it                      RANKS         block i is that of rank i
 *           ROOT        the root has it                        SOURCES       block i comes from neighbor source i
 *           LATER       every rank but rank 0 has it           DESTINATIONS  block i goes to neighbor destination i
 *
 *     from  COUNT       each block has `count` elements; blocks are adjacent
 *           RECV_COUNT  the block has `recv_count`
 *           OWN_RECV    the block has recv_counts[this rank]
 *           LIST        block i has send_counts[i] elements at send_offsets[i]; for recv recv_counts[i] at recv_offsets[i]
 *           RECV_LIST   block i has recv_counts[i] elements, at this side's offsets
 *           TYPED       as LIST, with types for each block, and offsets in bytes
 *
 * The row of gatherv has ALL, ONE, COUNT for send, and ROOT, RANKS, LIST for recv.  With three ranks that is
 *
 *     send, on each rank      [ count ]
 *     recv, on the root       [ recv_counts[0] ]  [ recv_counts[1] ]  [ recv_counts[2] ]       each at its recv_offsets[i]
 *
 * A call with one block on each side has one vector, which algorithms may cut freely.  In place:
 *
 *     NEVER   not possible: the buffers are apart          BLOCK   the side of one block is this rank's block of the other side
 *     SAME    send is recv                                 START   as BLOCK, or the result at the start of the input
 *     ASIDE   send is recv, with recv's counts; the input is copied first, because its blocks are overwritten in any order
 *
 * To add a kind: a name at the end of coll_kind, and its functions, in coll.h; a row here; its algorithms in the table of
 * coll_algorithms.h; its functions in coll_impl.h.  Checks, layouts, choice, explanation and repetition follow from its row.
 * It uses messages where a transport does not execute it as a whole. */
#ifndef COLL_SHAPE_H
#define COLL_SHAPE_H

#include "../base/coll_text.h"

enum { COLL__WHO_NONE, COLL__WHO_ALL, COLL__WHO_ROOT, COLL__WHO_LATER };
enum { COLL__OVER_ONE, COLL__OVER_RANKS, COLL__OVER_SOURCES, COLL__OVER_DESTINATIONS };
enum {
    COLL__FROM_COUNT, COLL__FROM_RECV_COUNT, COLL__FROM_OWN_RECV,
    COLL__FROM_LIST, COLL__FROM_RECV_LIST, COLL__FROM_TYPED                       /* the lists come last      */
};
enum { COLL__IN_PLACE_NEVER, COLL__IN_PLACE_SAME, COLL__IN_PLACE_ASIDE, COLL__IN_PLACE_BLOCK, COLL__IN_PLACE_START };

/* Further traits of a kind. */
enum {
    COLL__REDUCES = 1, COLL__ROOTED = 2, COLL__MESSAGE = 4, COLL__NEIGHBORS = 8,
    COLL__PAIRWISE = 16,                          /* only sender and receiver of a message know its length    */
    COLL__SUMMED = 32                             /* blocks of different lengths, which every rank knows      */
};

typedef struct coll__side_shape { uint8_t who, over, from; } coll__side_shape;

typedef struct coll__kind_shape {
    coll__side_shape send, recv;
    uint8_t          in_place, traits;
} coll__kind_shape;

/* ---- >>rows ---- */

/* kind, its name;  send: who, over, from;  recv: who, over, from;  in place; traits */
#define COLL__EACH_KIND(X)                                                                                                    \
    X(BARRIER,         "barrier",         NONE,   ONE,   COUNT,     NONE,   ONE,   COUNT,      NEVER, 0)                      \
    X(BROADCAST,       "broadcast",       NONE,   ONE,   COUNT,     ALL,    ONE,   COUNT,      SAME,  COLL__ROOTED)           \
    X(REDUCE,          "reduce",          ALL,    ONE,   COUNT,     ROOT,   ONE,   COUNT,      SAME,                          \
      COLL__REDUCES | COLL__ROOTED)                                                                                           \
    X(ALLREDUCE,       "allreduce",       ALL,    ONE,   COUNT,     ALL,    ONE,   COUNT,      SAME,  COLL__REDUCES)          \
    X(REDUCE_SCATTER,  "reduce_scatter",  ALL,    RANKS, COUNT,     ALL,    ONE,   COUNT,      START, COLL__REDUCES)          \
    X(REDUCE_SCATTERV, "reduce_scatterv", ALL,    RANKS, RECV_LIST, ALL,    ONE,   OWN_RECV,   START,                         \
      COLL__REDUCES | COLL__SUMMED)                                                                                           \
    X(SCAN,            "scan",            ALL,    ONE,   COUNT,     ALL,    ONE,   COUNT,      SAME,  COLL__REDUCES)          \
    X(EXSCAN,          "exscan",          ALL,    ONE,   COUNT,     LATER,  ONE,   COUNT,      SAME,  COLL__REDUCES)          \
    X(GATHER,          "gather",          ALL,    ONE,   COUNT,     ROOT,   RANKS, COUNT,      BLOCK, COLL__ROOTED)           \
    X(GATHERV,         "gatherv",         ALL,    ONE,   COUNT,     ROOT,   RANKS, LIST,       BLOCK,                         \
      COLL__ROOTED | COLL__PAIRWISE)                                                                                          \
    X(SCATTER,         "scatter",         ROOT,   RANKS, COUNT,     ALL,    ONE,   COUNT,      BLOCK, COLL__ROOTED)           \
    X(SCATTERV,        "scatterv",        ROOT,   RANKS, LIST,      ALL,    ONE,   RECV_COUNT, BLOCK,                         \
      COLL__ROOTED | COLL__PAIRWISE)                                                                                          \
    X(ALLGATHER,       "allgather",       ALL,    ONE,   COUNT,     ALL,    RANKS, COUNT,      BLOCK, 0)                      \
    X(ALLGATHERV,      "allgatherv",      ALL,    ONE,   COUNT,     ALL,    RANKS, LIST,       BLOCK, COLL__SUMMED)           \
    X(ALLTOALL,        "alltoall",        ALL,    RANKS, COUNT,     ALL,    RANKS, COUNT,      ASIDE, 0)                      \
    X(ALLTOALLV,       "alltoallv",       ALL,    RANKS, LIST,      ALL,    RANKS, LIST,       ASIDE, COLL__PAIRWISE)         \
    X(ALLTOALLW,       "alltoallw",       ALL,    RANKS, TYPED,     ALL,    RANKS, TYPED,      ASIDE, COLL__PAIRWISE)         \
    X(NEIGHBOR_ALLGATHER, "neighbor_allgather", ALL, ONE, COUNT, ALL, SOURCES, COUNT, NEVER, COLL__NEIGHBORS)                 \
    X(NEIGHBOR_ALLGATHERV, "neighbor_allgatherv", ALL, ONE, COUNT, ALL, SOURCES, LIST, NEVER,                                 \
      COLL__NEIGHBORS | COLL__PAIRWISE)                                                                                       \
    X(NEIGHBOR_ALLTOALL, "neighbor_alltoall", ALL, DESTINATIONS, COUNT, ALL, SOURCES, COUNT, NEVER, COLL__NEIGHBORS)          \
    X(NEIGHBOR_ALLTOALLV, "neighbor_alltoallv", ALL, DESTINATIONS, LIST, ALL, SOURCES, LIST, NEVER,                           \
      COLL__NEIGHBORS | COLL__PAIRWISE)                                                                                       \
    X(NEIGHBOR_ALLTOALLW, "neighbor_alltoallw", ALL, DESTINATIONS, TYPED, ALL, SOURCES, TYPED, NEVER,                         \
      COLL__NEIGHBORS | COLL__PAIRWISE)                                                                                       \
    X(ALLREDUCE_LIST,  "allreduce_list",  NONE,   ONE,   COUNT,     NONE,   ONE,   COUNT,      NEVER, COLL__REDUCES)          \
    X(SEND,            "send",            ALL,    ONE,   COUNT,     NONE,   ONE,   COUNT,      NEVER, COLL__MESSAGE)          \
    X(RECV,            "recv",            NONE,   ONE,   COUNT,     ALL,    ONE,   COUNT,      NEVER, COLL__MESSAGE)          \
    X(SENDRECV,        "sendrecv",        ALL,    ONE,   COUNT,     ALL,    ONE,   RECV_COUNT, NEVER, COLL__MESSAGE)

#define COLL__KIND_ROW(kind, name, send_who, send_over, send_from, recv_who, recv_over, recv_from, in_place, traits)         \
    [COLL_##kind] = { { COLL__WHO_##send_who, COLL__OVER_##send_over, COLL__FROM_##send_from },                              \
                      { COLL__WHO_##recv_who, COLL__OVER_##recv_over, COLL__FROM_##recv_from },                              \
                      COLL__IN_PLACE_##in_place, traits },
#define COLL__KIND_NAME(kind, name, ...) [COLL_##kind] = name,

static const coll__kind_shape coll__kinds[] = { [0] = { .traits = 0 }, COLL__EACH_KIND(COLL__KIND_ROW) };     /* 0: no kind */
static const char coll__kind_names[][20] = { [0] = "?", COLL__EACH_KIND(COLL__KIND_NAME) };

#undef COLL__KIND_NAME
#undef COLL__KIND_ROW
#undef COLL__EACH_KIND

enum { COLL__KIND_COUNT = sizeof coll__kinds / sizeof *coll__kinds };             /* with 0, which is no kind */

/* ---- >>kinds ---- */

/* The row of an untrusted kind; invalid kinds have no sides and no traits. */
static inline const coll__kind_shape *coll__kind_shape_of(coll_kind kind)
{
    return &coll__kinds[(unsigned)kind < COLL__KIND_COUNT ? kind : 0];
}

COLL_API const char *coll_kind_name(coll_kind kind) { return coll__kind_names[(unsigned)kind < COLL__KIND_COUNT ? kind : 0]; }

/* Traits that calls of this program can have; the compiler drops code for the others. */
enum {
    COLL__TRAITS_HERE = COLL__REDUCES | COLL__MESSAGE | (COLL__HAS_NEIGHBOR ? COLL__NEIGHBORS : 0)
                      | (COLL__HAS_COUNTS ? COLL__PAIRWISE | COLL__SUMMED : 0)
                      | (COLL__HAS_BROADCAST || COLL__HAS_REDUCE || COLL__HAS_GATHER || COLL__HAS_SCATTER ? COLL__ROOTED : 0)
};

/* For any kind, including those left out of this program. */
static inline bool coll__kind_has(coll_kind kind, unsigned trait) { return (coll__kind_shape_of(kind)->traits & trait) != 0; }

/* For kinds of this program. */
static inline __attribute__((always_inline)) bool coll__kind_is(coll_kind kind, unsigned trait)
{
    return (trait & COLL__TRAITS_HERE) && coll__kind_has(kind, trait & COLL__TRAITS_HERE);
}

static inline bool coll__kind_reduces(coll_kind kind) { return coll__kind_is(kind, COLL__REDUCES); }
static inline bool coll__kind_has_root(coll_kind kind) { return coll__kind_is(kind, COLL__ROOTED); }
static inline bool coll__kind_is_message(coll_kind kind) { return coll__kind_is(kind, COLL__MESSAGE); }
static inline bool coll__kind_exchanges(coll_kind kind)
{
    return COLL__HAS_ALLTOALL && coll__kind_shape_of(kind)->in_place == COLL__IN_PLACE_ASIDE;
}

/* Has it one vector, and no blocks of ranks? */
static inline bool coll__kind_is_one_vector(coll_kind kind)
{
    const coll__kind_shape *shape = coll__kind_shape_of(kind);
    return shape->send.over == COLL__OVER_ONE && shape->recv.over == COLL__OVER_ONE;
}

/* Does a rank send from the buffer in which it receives? */
static inline bool coll__kind_has_one_buffer(coll_kind kind)
{
    const coll__kind_shape *shape = coll__kind_shape_of(kind);
    return COLL__HAS_BROADCAST && shape->in_place == COLL__IN_PLACE_SAME && shape->send.who == COLL__WHO_NONE;
}

/* ---- >>sides: the blocks of a call on one rank ---- */

/* The rank, the number of ranks, and the numbers of its neighbors. */
typedef struct coll__role { int rank, size, sources, destinations; } coll__role;

/* What a rank reads (send) or writes (recv): `blocks` blocks, adjacent or as listed. */
typedef struct coll__side {
    const char *name;                             /* "send" or "recv"                                         */
    bool   is_used;                               /* by this rank                                             */
    bool   is_listed, has_types;                  /* has counts and offsets for every block; types           */
    int    blocks;
    size_t count;                                 /* of each block, if they are not listed                    */
    const size_t *counts, *offsets;
    const coll_type *types;
    const unsigned char *at;
} coll__side;

/* With COLL_NO_COUNTS these are constants, for the compiler. */
static inline bool coll__is_listed(const coll__side *side) { return COLL__HAS_COUNTS && side->is_listed; }
static inline bool coll__has_types(const coll__side *side) { return COLL__HAS_COUNTS && side->has_types; }

/* Has this rank that buffer? */
static inline bool coll__is_held(const coll__side_shape *shape, int rank, int root)
{
    if (shape->who <= COLL__WHO_ALL) return shape->who == COLL__WHO_ALL;
    return shape->who == COLL__WHO_ROOT ? rank == root : rank > 0;
}

static coll__side coll__side_of(const coll__side_shape *shape, const coll_call *c, coll__role role, bool is_send)
{
    const bool is_used = coll__is_held(shape, role.rank, c->root), has_counts = COLL__HAS_COUNTS;

    return (coll__side){
        .name = is_send ? "send" : "recv", .is_used = is_used,
        .is_listed = has_counts && is_used && shape->from >= COLL__FROM_LIST,
        .has_types = has_counts && shape->from == COLL__FROM_TYPED,
        .blocks = shape->over == COLL__OVER_ONE ? 1 : shape->over == COLL__OVER_RANKS || !has_counts ? role.size
                : shape->over == COLL__OVER_SOURCES ? role.sources : role.destinations,
        .count = shape->from == COLL__FROM_RECV_COUNT ? c->recv_count
               : shape->from != COLL__FROM_OWN_RECV || !has_counts ? c->count : c->recv_counts ? c->recv_counts[role.rank] : 0,
        .counts = !has_counts ? NULL : is_send && shape->from != COLL__FROM_RECV_LIST ? c->send_counts : c->recv_counts,
        .offsets = !has_counts ? NULL : is_send ? c->send_offsets : c->recv_offsets,
        .types = !has_counts ? NULL : is_send ? c->send_types : c->recv_types,
        .at = (const unsigned char *)(is_send ? c->send : c->recv) };
}

/* Bytes of block `i`, and its offset.  `unit`: bytes of an element, if blocks have no types; 1: the result is in elements. */
static size_t coll__side_block(const coll__side *side, size_t unit, int i, size_t *at)
{
    const size_t own = coll__has_types(side) ? coll_type_size(side->types[i]) : unit;
    const size_t length = (coll__is_listed(side) ? side->counts[i] : side->count) * own;

    *at = coll__is_listed(side) ? side->offsets[i] * (coll__has_types(side) ? 1 : unit) : (size_t)i * length;
    return length;
}

/* Bytes of all blocks that this rank has. */
static size_t coll__side_length(const coll__side *side, size_t unit)
{
    size_t total = 0, at;

    for (int i = 0; side->is_used && i < side->blocks; i++) total += coll__side_block(side, unit, i, &at);
    return total;
}

/* Bytes from the start of the buffer to the end of its last block that is not empty. */
static size_t coll__side_extent(const coll__side *side, size_t unit)
{
    size_t extent = 0, at;

    for (int i = 0; side->is_used && i < side->blocks; i++) {
        const size_t length = coll__side_block(side, unit, i, &at);
        if (length) extent = at + length > extent ? at + length : extent;
    }
    return extent;
}

/* Elements of a call on `size` ranks, as far as every rank knows them. */
static double coll__call_elements(const coll_call *c, int size)
{
    const coll__kind_shape *shape = coll__kind_shape_of(c->kind);
    const bool is_per_rank = shape->send.over == COLL__OVER_RANKS || shape->recv.over == COLL__OVER_RANKS;
    double count = 0;

    if (c->kind == COLL_BARRIER || shape->traits & COLL__PAIRWISE) return 0;
    if (!(shape->traits & COLL__SUMMED)) return (double)c->count * (is_per_rank ? size : 1);
    for (int i = 0; i < size; i++) count += (double)c->recv_counts[i];
    return count;
}

#endif /* COLL_SHAPE_H */
