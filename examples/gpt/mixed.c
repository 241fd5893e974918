/* mixed.c - mixed precision: weights and gradients of 16 bits in memory and on the wire, and one copy of the weights in 32.
 *
 *     build/release/gpt/mixed -t 4 --type bf16
 *     build/release/coll-run -n 4 build/release/gpt/mixed --type f16
 *     build/release/gpt/mixed -t 4 --type f32                      the same program without any of it, to compare
 *
 * What is kept of the model between steps are 16-bit weights and 16-bit gradients, and the optimizer's: 32-bit master weights and
 * two moments.  Forward and backward unpack one unit at a time (coll_convert); its gradient is packed as soon as it is complete.
 * The sum over the ranks is an allreduce of 16-bit elements: half the bytes of f32, and yet the library adds up in 32 bits and
 * rounds once, so more ranks are not more error.
 *
 * f16 has no numbers below 6e-8 and none above 65504, and gradients get lost at its lower end.  So the loss is multiplied by a
 * scale, and the gradient divided by it again before it is used.  The scale is as large as it can be: it doubles after
 * --growth good steps, and halves when the sum has an infinity, and that step is dropped.  All ranks
 * know without a message whether it has: COLL_DETECT_OVERFLOW counts calls whose result has an infinity or a NaN
 * (coll_overflows), the result is the same on every rank, and so is the answer.  bf16 reaches as far as f32 and needs no scale.
 * */
#include "trainer.h"

typedef struct queries { int type, scale, growth; } queries;

static const coll_type TYPES[] = { COLL_F32, COLL_BF16, COLL_F16 };

typedef struct learner {
    gpt_trainer *t;
    const queries *with;
    coll_type type;
    void *weights, *gradient;        /* in this type                                    */
    float *master, *first, *second;  /* the optimizer's                                 */
    float *unit, *dunit;             /* weights and gradient of one unit, in f32        */
    float *saved, *one, *other;      /* saved by forward; the data between units        */
    uint8_t *letters, *targets;
    float scale;
    int step, good, dropped, steps_taken;
} learner;

static bool make(learner *l)
{
    gpt_trainer *const t = l->t;
    const gpt_shape *const s = &t->shape;
    const int most = (t->with->batch + t->size - 1) / t->size;
    const size_t rows = (size_t)most * (size_t)s->context, wide = (size_t)(s->width > s->vocabulary ? s->width : s->vocabulary);
    const size_t bytes = coll_type_size(l->type) * t->count;
    size_t largest = 0, saved = 0;

    for (int u = 0; u < gpt_units(s); u++) {
        if (gpt_unit_count(s, u) > largest) largest = gpt_unit_count(s, u);
        saved += gpt_unit_saved(s, u, most);
    }
    l->weights = gpt_bytes(t, GPT_WEIGHTS, bytes),          l->gradient = gpt_bytes(t, GPT_GRADIENTS, bytes);
    l->master = gpt_floats(t, GPT_OPTIMIZER, t->count);
    l->first = gpt_floats(t, GPT_OPTIMIZER, t->count),      l->second = gpt_floats(t, GPT_OPTIMIZER, t->count);
    l->unit = gpt_floats(t, GPT_WEIGHTS, largest),          l->dunit = gpt_floats(t, GPT_GRADIENTS, largest);
    l->saved = gpt_floats(t, GPT_ACTIVATIONS, saved);
    l->one = gpt_floats(t, GPT_ACTIVATIONS, rows * wide),   l->other = gpt_floats(t, GPT_ACTIVATIONS, rows * wide);
    l->letters = gpt_bytes(t, GPT_OTHER, rows),             l->targets = gpt_bytes(t, GPT_OTHER, rows);
    return l->weights && l->gradient && l->master && l->first && l->second && l->unit && l->dunit && l->saved && l->one
        && l->other && l->letters && l->targets;
}

/* Where a unit begins in a vector of the small type. */
static void *at_unit(const learner *l, void *vector, int unit)
{
    return (char *)vector + gpt_unit_offset(&l->t->shape, unit) * coll_type_size(l->type);
}

static void unpack(learner *l, int unit)
{
    (void)coll_convert(l->unit, COLL_F32, at_unit(l, l->weights, unit), l->type, gpt_unit_count(&l->t->shape, unit));
}

/* Forward and backward of `count` sequences, the gradient times l->scale in l->gradient.  Returns the share of the mean loss. */
static double learn(learner *l, int count)
{
    const gpt_shape *const s = &l->t->shape;
    const int units = gpt_units(s);
    const float mean = gpt_scale(l->t, l->step);
    float *in = l->one, *out = l->other;

    for (int u = 0; u < units; u++) {
        unpack(l, u);
        gpt_unit_forward(s, u, l->unit, in, out, gpt_saved_of(s, u, count, l->saved), l->letters, count);
        float *const next = in;
        in = out, out = next;
    }
    const double loss = gpt_loss(in, in, l->targets, count * s->context, s->vocabulary, mean * l->scale);
    for (int u = units - 1; u >= 0; u--) {
        unpack(l, u);
        memset(l->dunit, 0, gpt_unit_count(s, u) * sizeof *l->dunit);
        gpt_unit_backward(s, u, l->unit, l->dunit, out, in, gpt_saved_of(s, u, count, l->saved), l->letters, count);
        (void)coll_convert(at_unit(l, l->gradient, u), l->type, l->dunit, COLL_F32, gpt_unit_count(s, u));
        float *const next = in;
        in = out, out = next;
    }
    return loss * (double)mean;
}

/* The optimizer's step, unit after unit, on the 32-bit weights; then the 16-bit ones are those, rounded. */
static void update(learner *l)
{
    const gpt_trainer *const t = l->t;

    for (int u = 0; u < gpt_units(&t->shape); u++) {
        const size_t at = gpt_unit_offset(&t->shape, u), count = gpt_unit_count(&t->shape, u);

        (void)coll_convert(l->dunit, COLL_F32, at_unit(l, l->gradient, u), l->type, count);
        for (size_t i = 0; i < count; i++) l->dunit[i] /= l->scale;
        gpt_adam(l->master + at, l->dunit, l->first + at, l->second + at, count,
                 gpt_rate((float)t->with->rate, l->step, t->with->steps), l->steps_taken);
        (void)coll_convert(at_unit(l, l->weights, u), l->type, l->master + at, COLL_F32, count);
    }
    l->steps_taken++;
}

static coll_status step(learner *l)
{
    gpt_trainer *const t = l->t;
    const gpt_part part = gpt_part_of(gpt_batch(t, l->step), t->rank, t->size);
    const int length = t->shape.context, count = part.end - part.begin;
    const uint64_t before = coll_overflows(t->comm);
    double share = 0;

    for (int i = 0; i < count; i++)
        gpt_sequence(t, l->step, part.begin + i, l->letters + i * length, l->targets + i * length);
    if (count) share = learn(l, count);
    else memset(l->gradient, 0, t->count * coll_type_size(l->type));

    gpt_clock(t, GPT_COMMUNICATE);
    const coll_status status = coll_run(t->comm, &(coll_call){
        .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = l->gradient, .count = t->count, .type = l->type, .op = COLL_SUM,
        .flags = COLL_DETERMINISTIC | COLL_DETECT_OVERFLOW, .name = "gradient" });
    gpt_clock(t, GPT_COMPUTE);
    if (status) return status;

    if (coll_overflows(t->comm) > before) {
        l->scale /= 2;
        l->good = 0;
        l->dropped++;
    } else {
        update(l);
        if (++l->good % l->with->growth == 0 && l->type == COLL_F16) l->scale *= 2;
    }
    return gpt_step(t, l->step, share);
}

static int train(gpt_trainer *t)
{
    const queries *const with = t->own;
    learner l = { .t = t, .with = with, .type = TYPES[with->type] };
    int code = 0;

    if (!make(&l)) return gpt_failed(t);
    l.scale = l.type == COLL_F16 ? ldexpf(1, with->scale) : 1;
    gpt_draw(&t->shape, (uint64_t)t->with->seed, l.master);
    (void)coll_convert(l.weights, l.type, l.master, COLL_F32, t->count);
    if (gpt_begin(t)) return gpt_failed(t);
    for (; !code && l.step < t->with->steps; l.step++)
        code = step(&l) ? gpt_failed(t) : gpt_check(t, l.step, l.master);
    if (code || (code = gpt_end(t, l.master)) || t->rank || t->with->is_json) return code;
    printf("%-14s %d steps dropped, the scale is %g at the end\n", coll_type_name(l.type), l.dropped, (double)l.scale);
    return 0;
}

int main(int argc, char **argv)
{
    queries own = { .type = 1, .scale = 20, .growth = 100 };
    const gpt_row rows[] = {
        { "type", "of weights and gradients", &own.type, 0, 0, "f32 bf16 f16", NULL, NULL },
        { "scale", "first scale of f16, as a power of two", &own.scale, 0, 40, NULL, NULL, NULL },
        { "growth", "good steps until it is doubled", &own.growth, 1, 1e6, NULL, NULL, NULL },
    };

    return gpt_main(argc, argv, &(gpt_page){ "mixed", "mixed precision: 16 bits in memory and on the wire", train, rows, 3,
                                             &own });
}
