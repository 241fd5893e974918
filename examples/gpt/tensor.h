/* tensor.h - the data of a rank in tensor.c: its share of each tensor and of the rows, and memory for them. */
#ifndef GPT_TENSOR_H
#define GPT_TENSOR_H

#include "pages.h"

/* Attention or gelu with its two linear layers, the first of `first` columns and the second of `second` rows.  Its parameters:
 * gain and bias of the norm, weights and bias of the first layer, weights and bias of the second. */
typedef struct half { int first, second; size_t w1, b1, w2, b2, count; } half;

/* What a half keeps for the way back: what came in and its norm, for the rows of this rank; for all rows what the first layer
 * gave, and what the second one got; and what attention keeps. */
typedef struct kept { float *in, *normal, *first, *middle, *look; } kept;

/* What a rank has of the model and of the rows, and buffers: x and its gradient for the rows of this rank, `full` and `partial`
 * for all rows, `broad` for the inner numbers. */
typedef struct tensor {
    gpt_trainer *t;
    coll_comm *comm;
    bool is_cut;                         /* between the halves a rank has some of the rows, and not all */
    int rank, size, heads, wide;         /* wide: the columns of its heads */
    int sequences, rows, begin, mine;    /* rows of this step; those of this rank begin at `begin` */
    size_t *counts, count;               /* floats of each rank's rows; parameters of this rank */
    half halves[2];
    float *weights, *gradient, *saved, *x, *dx, *narrow, *full, *partial, *broad, *scores;
} tensor;

/* Which rows are whose, of so many sequences. */
static inline void tensor_rows(tensor *p, int sequences)
{
    p->sequences = sequences;
    p->rows = sequences * p->t->shape.context;
    for (int r = 0; r < p->size; r++) {
        const gpt_part part = p->is_cut ? gpt_part_of(p->rows, r, p->size) : (gpt_part){ 0, p->rows };

        p->counts[r] = (size_t)(part.end - part.begin) * (size_t)p->t->shape.width;
        if (r == p->rank) p->begin = part.begin, p->mine = part.end - part.begin;
    }
}

/* Cut the part of p->saved that half number `at` has.  Returns the floats of this half and all before it. */
static inline size_t tensor_cut(const tensor *p, int at, kept *k)
{
    const size_t mine = (size_t)p->mine * (size_t)p->t->shape.width, rows = (size_t)p->rows;
    const size_t look = gpt_attention_saved(p->sequences, p->t->shape.context, p->heads);
    float **const part[] = { &k->in, &k->normal, &k->first, &k->middle, &k->look };
    size_t floats = 0;

    for (int h = 0; h <= at; h++) {
        const half *const of = &p->halves[h % 2];
        const size_t count[] = { mine, mine, rows * (size_t)of->first, rows * (size_t)of->second, h % 2 ? 0 : look };

        for (int i = 0; i < 5; floats += count[i++]) *part[i] = p->saved ? p->saved + floats : NULL;
    }
    return floats;
}

/* ---- >>shares: which part of each tensor a rank has ---- */

/* Copy the share that `rank` has of each tensor out of the whole model, or back into it.  In a half only the first layer's
 * columns are split (in attention each of q, k and v), and the second one's rows; biases of columns go with these. */
static inline void tensor_copy(const tensor *p, int rank, float *whole, float *share, bool is_back)
{
    gpt_span spans[GPT_MOST_SPANS];
    const int count = gpt_spans(&p->t->shape, spans);

    for (int i = 0; i < count; i++) {
        const bool is_block = spans[i].unit > 0 && spans[i].unit <= p->t->shape.layers;
        const int place = is_block ? (i - 2) % 6 : 0, blocks = place / 2 == 1 && (i - 2) % 12 < 6 ? 3 : 1;
        const int block = spans[i].columns / blocks, columns = place / 2 == 1 ? block / p->size : block;
        const int rows = place == 4 ? spans[i].rows / p->size : spans[i].rows;
        float *const from = whole + spans[i].offset + (place == 4 ? rank * rows * block : place / 2 == 1 ? rank * columns : 0);

        for (int r = 0; r < rows; r++) for (int b = 0; b < blocks; b++, share += columns) {
            float *const at = from + (r * blocks + b) * block;

            memcpy(is_back ? at : share, is_back ? share : at, (size_t)columns * sizeof *share);
        }
    }
}

/* All weights, on every rank. */
static inline coll_status tensor_whole(tensor *p, float *whole)
{
    float *const shares = gpt_floats(p->t, GPT_OTHER, p->count * (size_t)p->size);

    if (!shares) return COLL_ERR_MEMORY;
    TRY(coll_allgather(p->comm, p->weights, shares, p->count, COLL_F32));
    for (int r = 0; r < p->size; r++) tensor_copy(p, r, whole, shares + (size_t)r * p->count, true);
    gpt_release(p->t, shares);
    return COLL_OK;
}

/* Take this rank's share of the first weights, and memory for batches of up to `sequences`.  An exit code. */
static inline int tensor_open(tensor *p, gpt_trainer *t, coll_comm *comm, int sequences, bool is_cut)
{
    const gpt_shape *const s = &t->shape;
    const int rank = coll_rank(comm), size = coll_size(comm), heads = s->heads / size, wide = s->width / size;
    const size_t d = (size_t)s->width;

    if (s->heads % size) return gpt_refuse(t, "%d heads cannot be shared out among %d ranks", s->heads, size);
    *p = (tensor){ .t = t, .comm = comm, .is_cut = is_cut, .rank = rank, .size = size, .heads = heads, .wide = wide,
                   .halves = { { .first = 3 * wide, .second = wide }, { .first = 4 * wide, .second = 4 * wide } } };
    for (int i = 0; i < 2; i++) {
        half *const h = &p->halves[i];

        h->w1 = 2 * d, h->b1 = h->w1 + d * (size_t)h->first, h->w2 = h->b1 + (size_t)h->first;
        h->b2 = h->w2 + d * (size_t)h->second, h->count = h->b2 + d;
    }
    p->count = gpt_unit_count(s, 0) + gpt_unit_count(s, s->layers + 1)
             + (size_t)s->layers * (p->halves[0].count + p->halves[1].count);
    if (!(p->counts = gpt_bytes(t, GPT_OTHER, (size_t)size * sizeof *p->counts))) return gpt_failed(t);
    tensor_rows(p, sequences);
    p->mine++;                           /* of a smaller batch a rank may have one row more */

    const size_t all = (size_t)p->rows * d, broad = 4 * (size_t)(p->rows * wide), mine = (size_t)p->mine * d;
    float *whole = NULL;
    const gpt_want wants[] = {
        { &whole, GPT_OTHER, t->count }, { &p->weights, GPT_WEIGHTS, p->count }, { &p->gradient, GPT_GRADIENTS, p->count },
        { &p->saved, GPT_ACTIVATIONS, tensor_cut(p, 2 * s->layers - 1, &(kept){ 0 }) },
        { &p->x, GPT_ACTIVATIONS, mine }, { &p->dx, GPT_ACTIVATIONS, mine }, { &p->narrow, GPT_ACTIVATIONS, mine },
        { &p->full, GPT_ACTIVATIONS, is_cut ? all : 0 }, { &p->partial, GPT_ACTIVATIONS, broad > all ? broad : all },
        { &p->broad, GPT_ACTIVATIONS, broad }, { &p->scores, GPT_ACTIVATIONS, (size_t)p->mine * (size_t)s->vocabulary },
    };
    if (!gpt_want_all(t, wants, sizeof wants / sizeof *wants)) return gpt_failed(t);
    gpt_draw(s, (uint64_t)t->with->seed, whole);
    tensor_copy(p, rank, whole, p->weights, false);
    gpt_release(t, whole);
    return 0;
}

#endif /* GPT_TENSOR_H */
