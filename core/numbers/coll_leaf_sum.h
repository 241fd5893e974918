/* coll_leaf_sum.h - the sum of a run of leaves on one rank (coll_sum_begin).
 *
 * The tree over all leaves is dyadic: node [k 2^j, (k + 1) 2^j) is the sum of its two halves.  A run of leaves is a sequence of
 * nodes, each as large as possible.  A binary counter finds them: leaf i completes as many nodes as its number has trailing ones,
 * except those that begin before the run.  The nodes so far are a stack of vectors, in the order of their leaves:
 *
 *      first leaf 3     [3]  [3][4]  [3][4,5]  [3][4,5][6]  [3][4..7]  [3][4..7][8]  ...
 *
 * A leaf that completes t nodes is added to t vectors in one pass, two at a time; only the last sum is written.  A leaf that
 * completes none is copied, unless the program has written it to its place.  Of 2^t leaves one completes t nodes or more.  So
 * a leaf reads and writes three vectors on average, its own included: as many as a += b does. */
#ifndef COLL_LEAF_SUM_H
#define COLL_LEAF_SUM_H

#include "coll_reduce_kernels.h"

/* to[i] = a[i] + (b[i] + c[i]): two additions in one pass.  `to` may be equal to a source. */
typedef void coll__three_fn(void *to, const void *a, const void *b, const void *c, size_t count);

#define COLL__THREE_IN(tier, bits)                                                                \
    COLL__IN_##tier static void coll__three_f##bits##_##tier(void *to, const void *a, const void *b, \
                                                             const void *c, size_t count)         \
    {                                                                                             \
        coll__raw_f##bits *out = to;                                                              \
        const coll__raw_f##bits *x = a, *y = b, *z = c;                                           \
        COLL__FREE_##tier                                                                         \
        for (size_t i = 0; i < count; i++) out[i] = coll__canon##bits(x[i] + (y[i] + z[i]));      \
    }
COLL__EACH_WIDE(COLL__THREE_IN, 32) COLL__EACH_WIDE(COLL__THREE_IN, 64)

/* A run that is being added up: leaves [first, next) of the whole tree so far, as `depth` nodes. */
struct coll_sum {
    coll__codec    codec;
    coll__three_fn *three;                        /* NULL: sums of integers                                   */
    uint64_t       first, next;
    size_t         count, stride;                 /* elements of a vector; bytes from one node to the next    */
    int            depth, room;                   /* nodes; vectors that there is memory for                  */
    bool           streams;                       /* leaves are copied past the caches                        */
    unsigned char *nodes;
};

/* Longer vectors are copied past the caches: several of them do not fit there. */
enum { COLL__RUN_STREAMED = 8 << 20 };

/* The nodes that leaf i completes, in a run that begins at `first`. */
static int coll__run_carries(uint64_t first, uint64_t i)
{
    int carries = 0;

    while ((i >> carries & 1) && (i + 1 - first) >> carries > 1) carries++;
    return carries;
}

/* The codec of leaves.  Nodes are plain vectors of accumulators, whatever order calls of this type use. */
static bool coll__run_codec_in(coll__codec *codec, coll_type type, int tier, char *why, size_t room)
{
    const coll_call call = { .kind = COLL_ALLREDUCE, .type = type, .op = COLL_SUM };

    if (!coll__codec_reduce_in(codec, &call, 1, tier, why, room)) return false;
#if COLL__HAS_ANY(COLL__TYPED_bf16)
    if (type == COLL_BF16) {
        codec->load_user = codec->load_wire = COLL__PICK_WIDE(coll__load_bf16, tier);
        codec->onto = COLL__PICK_WIDE(coll__onto_bf16, tier);
    }
#endif
    return true;
}

static coll__three_fn *coll__run_three(coll_type type, int tier)
{
    if (type == COLL_F64 || type == COLL_C128) return COLL__PICK_WIDE(coll__three_f64, tier);
    return coll__is_floating(type) ? COLL__PICK_WIDE(coll__three_f32, tier) : NULL;
}

static unsigned char *coll__run_node(const coll_sum *s, int at) { return s->nodes + (size_t)at * s->stride; }

/* Add a leaf to the last `carries` nodes, which become one; 0: copy it behind them. */
static void coll__run_fold(const coll_sum *s, const void *leaf, int carries)
{
    _Alignas(64) unsigned char block[COLL__BLOCK];
    const coll__codec *const codec = &s->codec;
    const coll__source source = { leaf, COLL__AS_USER, 0 };
    const bool is_onto = carries > 0 && codec->onto;
    const bool is_one_pass = carries ? carries == 1 || (carries == 2 && s->three) : s->streams;
    const bool is_whole = codec->direct && is_one_pass;   /* a long memcpy is slower than one of blocks */
    const size_t most = is_whole ? s->count : coll__block_count(codec), reals = coll__is_complex(codec->type) ? 2 : 1;

    for (size_t from = 0, length; from < s->count; from += length) {
        const size_t at = from * codec->acc_size;
        unsigned char *const last = coll__run_node(s, s->depth - carries) + at;
        const void *const raw = coll__source_at(codec, &source, from), *x = raw;

        length = coll__least(s->count - from, most);
        if (!is_onto) x = coll__load(codec, &source, carries || s->streams ? block : last, raw, length, from);
        for (int k = 1, levels; k <= carries; k += levels) {
            const unsigned char *const part = coll__run_node(s, s->depth - k) + at;
            levels = s->three && k < carries && (k > 1 || !is_onto) ? 2 : 1;
            void *const to = k + levels > carries ? last : block;
            if (levels == 2) s->three(to, coll__run_node(s, s->depth - k - 1) + at, part, x, length * reals);
            else if (k == 1 && is_onto) codec->onto(to, part, raw, length);
            else codec->combine(to, part, x, length);
            x = to;
        }
        if (x == last) continue;
        if (s->streams) coll__copy_streamed(last, x, length * codec->acc_size);
        else memcpy(last, x, length * codec->acc_size);
    }
    if (s->streams && !carries) coll__streamed_end();
}

#endif /* COLL_LEAF_SUM_H */
