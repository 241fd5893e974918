/* shard.c - data parallel training that keeps only once what need not be on every rank (ZeRO 1 to 3; the third is also FSDP).
 *
 *     build/release/gpt/shard -t 4 --level 3                         four ranks, threads of this process
 *     build/release/coll-run -n 4 build/release/gpt/shard --level 1        four processes that talk TCP
 *
 * Every rank learns from its part of the batch.  Each unit of the model is cut into a slice for each rank, as equal as it goes,
 * and a slice is kept only by its rank:
 *
 *     level    whole on every rank             in slices                       bytes of P parameters on N ranks
 *       0      weights, gradient, moments      -                               16 P              plain data parallel training
 *       1      weights, gradient               moments                          8 P +  8 P / N
 *       2      weights                         moments, gradient                4 P + 12 P / N
 *       3      -                               moments, gradient, weights           16 P / N
 *
 * and beside them the units at work: from level 2 on the gradients of two units, at level 3 the weights of two.
 *
 * The gradient of a unit is summed as soon as backward has it, while backward continues: by an allreduce, or from level 1 on by a
 * reduce_scatter, which leaves each rank its slice.  Adam works number by number, so every rank updates its own slices.
 * An allgather sends the weights to all: at levels 1 and 2 after the step; at level 3 whenever a unit is to work, one unit
 * ahead, and they are forgotten behind it.  An allreduce is a reduce_scatter and an allgather, so levels 1 and 2 send as much as
 * level 0, and level 3 half as much again, for its weights come once for forward and once for backward.
 *
 * The slices need not be equal: reduce_scatterv and allgatherv take any counts, 0 among them.  With COLL_DETERMINISTIC all levels
 * give the same bits. */
#include "shard.h"

/* ---- >>weights: whole, or fetched for the units at work ---- */

/* Start to send the weights of a unit to all ranks. */
static coll_status shard_fetch(shard *s, int unit)
{
    float *const slice_of = shard_at(s, s->weights, WEIGHTS, unit);
    float *const all = s->level == WEIGHTS ? s->fetched[unit % 2] : s->weights + gpt_unit_offset(&s->t->shape, unit);

    return coll_iallgatherv(s->comm, slice_of, s->slices[unit].count, all, s->counts + unit * s->size, NULL, COLL_F32,
                            &s->fetch[unit % 2]);
}

/* The weights of a unit, once they are there.  Those of `next`, the unit to work after it, are sent for. */
static coll_status shard_weights(shard *s, int unit, int next, const float **out)
{
    *out = s->level == WEIGHTS ? s->fetched[unit % 2] : s->weights + gpt_unit_offset(&s->t->shape, unit);
    if (s->level < WEIGHTS) return COLL_OK;
    gpt_clock(s->t, GPT_WAIT);
    TRY(gpt_finish(&s->fetch[unit % 2]));
    if (next >= 0) TRY(shard_fetch(s, next));
    gpt_clock(s->t, GPT_OVERLAP);
    return COLL_OK;
}

/* ---- >>gradient: summed unit by unit, while backward continues ---- */

/* Where backward may add up the gradient of a unit: in its place, or in one of two that all units use in turns. */
static coll_status shard_fresh(shard *s, int unit, float **out)
{
    *out = s->level < GRADIENT ? s->gradient + gpt_unit_offset(&s->t->shape, unit) : s->fresh[unit % 2];
    gpt_clock(s->t, GPT_WAIT);
    if (s->level >= GRADIENT && unit + 2 < s->units) TRY(gpt_finish(&s->sum[unit + 2]));
    gpt_clock(s->t, GPT_OVERLAP);
    memset(*out, 0, gpt_unit_count(&s->t->shape, unit) * sizeof **out);
    return COLL_OK;
}

/* Begin to sum it over the ranks, to where this rank keeps its slice, or all of it. */
static coll_status shard_sum(shard *s, int unit, float *fresh)
{
    return coll_start(s->comm, &(coll_call){ .kind = s->level == NOTHING ? COLL_ALLREDUCE : COLL_REDUCE_SCATTERV,
                                             .send = fresh, .recv = shard_at(s, s->gradient, GRADIENT, unit),
                                             .count = s->slices[unit].count, .recv_counts = s->counts + unit * s->size,
                                             .type = COLL_F32, .op = COLL_SUM, .flags = COLL_DETERMINISTIC,
                                             .name = "gradient of a unit" }, &s->sum[unit]);
}

/* ---- >>step ---- */

/* Forward and backward; the sum of the last gradients is still in flight. */
static coll_status shard_learn(shard *s, const gpt_page_of_text *text, float scale, double *loss)
{
    const gpt_shape *const shape = &s->t->shape;
    const int last = s->units - 1;
    float *saved = s->saved, *in = s->x, *out = s->y, *g;
    const float *w;

    if (s->level == WEIGHTS) TRY(shard_fetch(s, 0));
    for (int u = 0; u <= last; u++) {
        TRY(shard_weights(s, u, u < last ? u + 1 : u - 1, &w));
        gpt_unit_forward(shape, u, w, in, out, saved, text->letters, text->sequences);
        saved += gpt_unit_saved(shape, u, text->sequences);
        float *const next = in;
        in = out, out = next;
    }
    *loss = gpt_loss(in, in, text->targets, text->sequences * shape->context, shape->vocabulary, scale);
    for (int u = last; u >= 0; u--) {
        saved -= gpt_unit_saved(shape, u, text->sequences);
        TRY(shard_weights(s, u, u < last ? u - 1 : -1, &w));           /* those of the last unit and the one before are there */
        TRY(shard_fresh(s, u, &g));
        gpt_unit_backward(shape, u, w, g, out, in, saved, text->letters, text->sequences);
        TRY(shard_sum(s, u, g));
        float *const next = in;
        in = out, out = next;
    }
    return COLL_OK;
}

/* Bring this rank's slices on, and the weights to all that keep them whole. */
static coll_status shard_update(shard *s, float rate, int step)
{
    for (int u = 0; u < s->units; u++) {
        gpt_clock(s->t, GPT_WAIT);
        TRY(gpt_finish(&s->sum[u]));
        TRY(gpt_finish(&s->fetch[u % 2]));
        gpt_clock(s->t, GPT_OVERLAP);
        gpt_adam(shard_at(s, s->weights, WEIGHTS, u), shard_at(s, s->gradient, GRADIENT, u), shard_at(s, s->m, MOMENTS, u),
                 shard_at(s, s->v, MOMENTS, u), s->slices[u].count, rate, step);
        if (s->level == MOMENTS || s->level == GRADIENT) TRY(shard_fetch(s, u));
    }
    gpt_clock(s->t, GPT_WAIT);
    for (int i = 0; i < 2; i++) TRY(gpt_finish(&s->fetch[i]));
    gpt_clock(s->t, GPT_COMPUTE);
    return COLL_OK;
}

/* ---- >>beginning and end ---- */

/* All weights, on every rank. */
static coll_status shard_whole(shard *s, float *whole)
{
    for (int u = 0; u < s->units; u++) {
        const float *w = s->weights + gpt_unit_offset(&s->t->shape, u);

        if (s->level == WEIGHTS) TRY(shard_fetch(s, u));
        TRY(shard_weights(s, u, -1, &w));
        memcpy(whole + gpt_unit_offset(&s->t->shape, u), w, gpt_unit_count(&s->t->shape, u) * sizeof *w);
    }
    return COLL_OK;
}

static int shard_train(shard *s, gpt_page_of_text *text)
{
    gpt_trainer *const t = s->t;
    double loss, measured, formula;

    for (int step = 0; step < t->with->steps; step++) {
        const float scale = gpt_scale(t, step);

        gpt_read_text(t, text, step, gpt_part_of(gpt_batch(t, step), t->rank, t->size));
        if (shard_learn(s, text, scale, &loss)) return gpt_failed(t);
        if (shard_update(s, gpt_rate((float)t->with->rate, step, t->with->steps), step)) return gpt_failed(t);
        if (gpt_step(t, step, loss * (double)scale)) return gpt_failed(t);
    }
    float *const whole = gpt_floats(t, GPT_OTHER, t->count);
    if (!whole || shard_whole(s, whole) || shard_memory(s, &measured, &formula)) return gpt_failed(t);
    const int end = gpt_end(t, whole);
    if (t->rank || end) return end;
    if (t->with->is_json) printf("{\"state_bytes\":%.0f,\"formula\":%.0f}\n", measured, formula);
    else printf("state          %.0f bytes on the fullest rank, by the formula %.0f\n", measured, formula);
    return 0;
}

typedef struct queries { int level; } queries;

static int train(gpt_trainer *t)
{
    const queries *const with = t->own;
    const int most = (t->with->batch + t->size - 1) / t->size;
    gpt_page_of_text text;
    shard s;
    int code = shard_open(&s, t, t->comm, most, (shard_level)with->level);

    if (!code) code = !gpt_open_text(t, &text, most) || gpt_begin(t) ? gpt_failed(t) : shard_train(&s, &text);
    shard_close(&s);
    return code;
}

int main(int argc, char **argv)
{
    queries own = { .level = 3 };
    const gpt_row rows[] = {
        { "level", "in slices from 1 on moments, from 2 on gradients, at 3 weights", &own.level, 0, 3, NULL, NULL, NULL },
    };

    return gpt_main(argc, argv, &(gpt_page){ "shard", "data parallel, with moments, gradients and weights in slices", train, rows,
                                             1, &own });
}
