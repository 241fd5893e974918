/* shard.h - the data of a rank in shard.c: its slice of each unit, and memory for the vectors that its level keeps. */
#ifndef GPT_SHARD_H
#define GPT_SHARD_H

#include "pages.h"

typedef enum shard_level { NOTHING, MOMENTS, GRADIENT, WEIGHTS } shard_level;

/* A rank's slice of a unit: where it begins among all parameters, where among the slices of this rank, and its floats. */
typedef struct slice { size_t in_all, in_mine, count; } slice;

typedef struct shard {
    gpt_trainer *t;
    coll_comm *comm;
    shard_level level;
    int units, size;
    size_t *counts, mine;                /* [units][size]: floats of each rank's slice of each unit; the sum of this rank's */
    slice *slices;                       /* of this rank; at level 0 it has the whole of each unit */
    float *weights, *gradient, *m, *v;   /* whole or in slices, as the level says */
    float *fetched[2], *fresh[2];        /* weights of two units, at level 3; gradients of two units, from level 2 on */
    coll_request *fetch[2], **sum;       /* what is in flight: to `fetched`; the sum of each unit's gradient */
    float *saved, *x, *y;
} shard;

/* Where this rank's slice of a unit is in what is kept in slices from a level on. */
static inline float *shard_at(const shard *s, float *what, shard_level from, int unit)
{
    return what + (s->level < from ? s->slices[unit].in_all : s->slices[unit].in_mine);
}

/* Cut the units, take memory for batches of up to `sequences`, and the first weights: for these, and for the hash at the end, a
 * rank has the whole model for a moment at every level.  An exit code. */
static inline int shard_open(shard *s, gpt_trainer *t, coll_comm *comm, int sequences, shard_level level)
{
    const int rank = coll_rank(comm), units = gpt_units(&t->shape);
    size_t largest = 0;
    float *whole = NULL;

    *s = (shard){ .t = t, .comm = comm, .level = level, .units = units, .size = coll_size(comm) };
    s->counts = gpt_bytes(t, GPT_OTHER, (size_t)(units * s->size) * sizeof *s->counts);
    s->slices = gpt_bytes(t, GPT_OTHER, (size_t)units * sizeof *s->slices);
    s->sum = gpt_bytes(t, GPT_OTHER, (size_t)units * sizeof *s->sum);
    if (!s->counts || !s->slices || !s->sum) return gpt_failed(t);
    for (int u = 0; u < units; u++) {
        const size_t all = gpt_unit_count(&t->shape, u), offset = gpt_unit_offset(&t->shape, u);

        for (int r = 0; r < s->size; r++) {
            const gpt_part part = gpt_part_of((int)all, r, s->size);

            s->counts[u * s->size + r] = (size_t)(part.end - part.begin);
            if (r == rank) s->slices[u] = (slice){ offset + (size_t)part.begin, s->mine, (size_t)(part.end - part.begin) };
        }
        if (level == NOTHING) s->slices[u] = (slice){ offset, offset, all };
        s->mine += s->slices[u].count;
        largest = all > largest ? all : largest;
    }
    const size_t p = t->count, mine = s->mine, of_weights = level == WEIGHTS ? largest : 0;
    const size_t of_gradient = level >= GRADIENT ? largest : 0, rows = (size_t)sequences * (size_t)t->shape.context;
    const size_t wide = rows * (size_t)(t->shape.vocabulary > t->shape.width ? t->shape.vocabulary : t->shape.width);
    const gpt_want wants[] = {
        { &whole, GPT_OTHER, p }, { &s->weights, GPT_WEIGHTS, level < WEIGHTS ? p : mine },
        { &s->gradient, GPT_GRADIENTS, level < GRADIENT ? p : mine }, { &s->m, GPT_OPTIMIZER, level < MOMENTS ? p : mine },
        { &s->v, GPT_OPTIMIZER, level < MOMENTS ? p : mine }, { &s->fetched[0], GPT_WEIGHTS, of_weights },
        { &s->fetched[1], GPT_WEIGHTS, of_weights }, { &s->fresh[0], GPT_GRADIENTS, of_gradient },
        { &s->fresh[1], GPT_GRADIENTS, of_gradient }, { &s->x, GPT_ACTIVATIONS, wide }, { &s->y, GPT_ACTIVATIONS, wide },
        { &s->saved, GPT_ACTIVATIONS, gpt_saved_count(&t->shape, sequences) },
    };
    if (!gpt_want_all(t, wants, sizeof wants / sizeof *wants)) return gpt_failed(t);
    gpt_draw(&t->shape, (uint64_t)t->with->seed, whole);
    for (int u = 0; u < units; u++)
        memcpy(shard_at(s, s->weights, WEIGHTS, u), whole + s->slices[u].in_all, s->slices[u].count * sizeof *whole);
    if (level < WEIGHTS) memcpy(s->weights, whole, p * sizeof *whole);
    gpt_release(t, whole);
    return 0;
}

/* Free the requests that a failure has left. */
static inline void shard_close(shard *s)
{
    for (int i = 0; i < 2; i++) coll_request_free(s->fetch[i]);
    for (int u = 0; s->sum && u < s->units; u++) coll_request_free(s->sum[u]);
}

/* Bytes of weights, gradient and moments: those of the rank that has most, and what the table above says of them, with the units
 * at work. */
static inline coll_status shard_memory(shard *s, double *measured, double *formula)
{
    const gpt_trainer *const t = s->t;
    const double p = 4.0 * (double)t->count, n = s->size, level = s->level;
    double largest = 0;

    for (int u = 0; u < s->units; u++) largest = fmax(largest, 4.0 * (double)gpt_unit_count(&t->shape, u));
    *formula = 2 * (level < MOMENTS ? p : p / n) + (level < GRADIENT ? p : p / n + 2 * largest)
             + (level < WEIGHTS ? p : p / n + 2 * largest);
    *measured = (double)(t->peak[GPT_WEIGHTS] + t->peak[GPT_GRADIENTS] + t->peak[GPT_OPTIMIZER]);
    return coll_allreduce(s->comm, measured, measured, 1, COLL_F64, COLL_MAX);
}

#endif /* GPT_SHARD_H */
