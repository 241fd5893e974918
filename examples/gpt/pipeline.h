/* pipeline.h - the data of a rank in pipeline.c: the units of its stage, and memory for the pieces that are in flight. */
#ifndef GPT_PIPELINE_H
#define GPT_PIPELINE_H

#include "pages.h"

typedef enum pipeline_order { GPIPE, ONE_F_ONE_B } pipeline_order;

/* What a stage does in its turn. */
typedef struct turn { bool is_forward; int piece; } turn;

/* A piece in flight: the data that its units save, the results of the stage in both directions, and the sends of both. */
typedef struct slot { float *saved, *out, *back; coll_request *sent[2]; } slot;

typedef struct pipeline {
    gpt_trainer *t;
    coll_comm *comm;
    int stage, stages, begin, end;       /* this rank has units begin .. end - 1 */
    int pieces, early, slot_count;       /* `early` pieces go forward before the first comes back */
    size_t offset, count;                /* this rank's parameters among all */
    float *weights, *gradient, *arrived[2], *x, *y;
    coll_request *due[2];                /* what turns k and k + 1 are to work on, in flight to `arrived` */
    slot *slots;
    const gpt_page_of_text *text;        /* of this step */
    float scale;
    int step;
    double loss, clock_s, busy_s;        /* of this step; since the beginning */
} pipeline;

/* ---- >>beginning and end ---- */

/* All weights, on every rank: those of the stages follow each other. */
static inline coll_status pipeline_whole(pipeline *p, float *whole)
{
    size_t *const counts = gpt_bytes(p->t, GPT_OTHER, (size_t)p->stages * sizeof *counts);

    if (!counts) return COLL_ERR_MEMORY;
    TRY(coll_allgather(p->comm, &p->count, counts, 1, COLL_U64));
    return coll_allgatherv(p->comm, p->weights, p->count, whole, counts, NULL, COLL_F32);
}

/* Take this stage's first weights, and memory for batches of up to `sequences`.  An exit code. */
static inline int pipeline_open(pipeline *p, gpt_trainer *t, coll_comm *comm, int sequences, int pieces, pipeline_order order)
{
    const gpt_shape *const s = &t->shape;
    const int stage = coll_rank(comm), stages = coll_size(comm);
    const gpt_part layers = gpt_part_of(s->layers, stage, stages);

    *p = (pipeline){ .t = t, .comm = comm, .stage = stage, .stages = stages, .pieces = pieces,
                     .begin = stage ? layers.begin + 1 : 0, .end = layers.end + (stage == stages - 1 ? 2 : 1) };
    if (stages > s->layers) return gpt_refuse(t, "%d layers are too few for %d stages", s->layers, stages);
    if (pieces > sequences) return gpt_refuse(t, "a batch of %d sequences cannot be cut into %d pieces", sequences, pieces);
    p->offset = gpt_unit_offset(s, p->begin);
    p->count = gpt_unit_offset(s, p->end) - p->offset;
    p->early = order == GPIPE || stages - 1 - stage > pieces ? pieces : stages - 1 - stage;
    p->slot_count = p->early < pieces ? p->early + 1 : pieces;
    p->slots = gpt_bytes(t, GPT_OTHER, (size_t)p->slot_count * sizeof *p->slots);

    const int most = (sequences + pieces - 1) / pieces;
    const size_t rows = (size_t)most * (size_t)s->context, narrow = rows * (size_t)s->width + 1;
    const size_t broad = s->vocabulary > s->width ? rows * (size_t)s->vocabulary + 1 : narrow;
    size_t saved = 0;
    for (int u = p->begin; u < p->end; u++) saved += gpt_unit_saved(s, u, most);
    float *whole = NULL;
    const gpt_want wants[] = {
        { &p->weights, GPT_WEIGHTS, p->count }, { &p->gradient, GPT_GRADIENTS, p->count }, { &whole, GPT_OTHER, t->count },
        { &p->arrived[0], GPT_ACTIVATIONS, narrow }, { &p->arrived[1], GPT_ACTIVATIONS, narrow },
        { &p->x, GPT_ACTIVATIONS, narrow }, { &p->y, GPT_ACTIVATIONS, narrow },
    };
    if (!p->slots || !gpt_want_all(t, wants, sizeof wants / sizeof *wants)) return gpt_failed(t);
    for (int i = 0; i < p->slot_count; i++) {
        slot *const at = &p->slots[i];
        const gpt_want of_slot[] = { { &at->saved, GPT_ACTIVATIONS, saved }, { &at->out, GPT_ACTIVATIONS, broad },
                                     { &at->back, GPT_ACTIVATIONS, narrow } };

        if (!gpt_want_all(t, of_slot, 3)) return gpt_failed(t);
    }
    gpt_draw(s, (uint64_t)t->with->seed, whole);
    memcpy(p->weights, whole + p->offset, p->count * sizeof *whole);
    gpt_release(t, whole);
    return 0;
}

/* Processor time of this thread. */
static inline double pipeline_processor_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Say how much of the time the stages have had nothing to do: what is missing from as many times the longest clock. */
static inline coll_status pipeline_bubble(pipeline *p, double *bubble)
{
    double busy_s, longest_s;

    TRY(coll_allreduce(p->comm, &p->busy_s, &busy_s, 1, COLL_F64, COLL_SUM));
    TRY(coll_allreduce(p->comm, &p->clock_s, &longest_s, 1, COLL_F64, COLL_MAX));
    *bubble = 1 - busy_s / (longest_s * p->stages);
    return COLL_OK;
}

/* Free the requests that a failure has left. */
static inline void pipeline_close(pipeline *p)
{
    for (int i = 0; i < 2; i++) coll_request_free(p->due[i]);
    for (int i = 0; p->slots && i < 2 * p->slot_count; i++) coll_request_free(p->slots[i / 2].sent[i % 2]);
}

#endif /* GPT_PIPELINE_H */
