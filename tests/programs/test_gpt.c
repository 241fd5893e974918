/* test_gpt.c - the model of examples/gpt against finite differences: the gradient of every parameter, and the promises that the
 * pages rely on (parts of a layer, and a batch in parts, give the bits of the whole; the table of tensors covers the vector).
 *
 * The model's own text is compiled here with doubles in the place of floats, so that differences are exact enough to show an
 * error in any single term. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif
#define float double
#define expf  exp
#define logf  log
#define sqrtf sqrt
#define powf  pow
#define cosf  cos
#include "../../examples/gpt/gpt.h"
#include "../support/check.h"

enum { SEQUENCES = 2, CONTEXT = 5 };

/* No size here divides another, nor the tile of the multiplication. */
static const gpt_shape shape = { .vocabulary = 7, .layers = 2, .width = 6, .heads = 3, .context = CONTEXT };

typedef struct fixture {
    double *weights, *gradient, *saved;
    size_t count;
    uint8_t letters[SEQUENCES * CONTEXT], targets[SEQUENCES * CONTEXT];
} fixture;

static fixture make(void)
{
    fixture f = { .count = gpt_parameters(&shape) };

    f.weights = calloc(f.count, sizeof *f.weights);
    f.gradient = calloc(f.count, sizeof *f.gradient);
    f.saved = calloc(gpt_saved_count(&shape, SEQUENCES), sizeof *f.saved);
    gpt_draw(&shape, 5, f.weights);
    for (size_t i = 0; i < f.count; i++) f.weights[i] += 0.1 * gpt_uniform(6, 1, i);       /* no gain is 1, no bias 0 */
    for (int i = 0; i < SEQUENCES * shape.context; i++) {
        f.letters[i] = (uint8_t)(gpt_chance(7, 2, (uint64_t)i) % (uint64_t)shape.vocabulary);
        f.targets[i] = (uint8_t)(gpt_chance(7, 3, (uint64_t)i) % (uint64_t)shape.vocabulary);
    }
    return f;
}

static void release(fixture *f)
{
    free(f->weights);
    free(f->gradient);
    free(f->saved);
}

static double loss_of(fixture *f)
{
    const double *const scores = gpt_forward(&shape, f->weights, f->letters, SEQUENCES, f->saved);

    return gpt_loss(NULL, scores, f->targets, SEQUENCES * shape.context, shape.vocabulary, 1);
}

/* Every parameter, one after the other; the worst of each tensor is checked. */
static void test_gradient(void)
{
    fixture f = make();
    gpt_span spans[GPT_MOST_SPANS];
    const int count = gpt_spans(&shape, spans);
    const double step = 1e-5;
    const double loss = gpt_learn(&shape, f.weights, f.gradient, f.letters, f.targets, SEQUENCES, 1, f.saved, NULL, NULL);

    CHECK(fabs(loss - loss_of(&f)) < 1e-12, "learning says %.15g, forward %.15g", loss, loss_of(&f));
    for (int i = 0; i < count; i++) {
        double worst = 0, largest = 0;

        for (size_t k = 0; k < (size_t)spans[i].rows * (size_t)spans[i].columns; k++) {
            const size_t at = spans[i].offset + k;
            const double before = f.weights[at];

            f.weights[at] = before + step;
            const double above = loss_of(&f);
            f.weights[at] = before - step;
            const double slope = (above - loss_of(&f)) / (2 * step);
            f.weights[at] = before;
            worst = fmax(worst, fabs(slope - f.gradient[at]));
            largest = fmax(largest, fabs(f.gradient[at]));
        }
        CHECK(largest > 1e-3 && worst < 1e-6 * fmax(1, largest), "%s of unit %d: off by %g, where the largest is %g",
              spans[i].name, spans[i].unit, worst, largest);
    }
    release(&f);
}

/* The table, the counts of units and the offsets in a block describe one vector. */
static void test_layout(void)
{
    gpt_span spans[GPT_MOST_SPANS];
    const int count = gpt_spans(&shape, spans);
    const gpt_block b = gpt_block_of(shape.width);
    const size_t offsets[] = { b.norm1_gain, b.norm1_bias, b.qkv_w, b.qkv_b, b.out_w, b.out_b, b.norm2_gain, b.norm2_bias,
                               b.up_w, b.up_b, b.down_w, b.down_b };
    size_t end = 0;

    for (int i = 0; i < count; i++) {
        CHECK(spans[i].offset == end, "%s of unit %d begins at %zu", spans[i].name, spans[i].unit, spans[i].offset);
        if (!i || spans[i].unit != spans[i - 1].unit)
            CHECK(gpt_unit_offset(&shape, spans[i].unit) == end, "unit %d does not begin at %zu", spans[i].unit, end);
        end += (size_t)spans[i].rows * (size_t)spans[i].columns;
    }
    CHECK(end == gpt_parameters(&shape), "%zu and %zu", end, gpt_parameters(&shape));
    for (int i = 0; i < GPT_SPANS_OF_BLOCK; i++)
        CHECK(spans[2 + i].offset == gpt_unit_offset(&shape, 1) + offsets[i], "%s", spans[2 + i].name);
}

/* A batch gives the bits that its sequences give one after the other. */
static void test_batches(void)
{
    fixture f = make();
    double *const parts = calloc(f.count, sizeof *parts);

    gpt_learn(&shape, f.weights, f.gradient, f.letters, f.targets, SEQUENCES, 0.5, f.saved, NULL, NULL);
    for (int s = 0; s < SEQUENCES; s++)
        gpt_learn(&shape, f.weights, parts, f.letters + s * shape.context, f.targets + s * shape.context, 1, 0.5, f.saved,
                  NULL, NULL);
    CHECK(!memcmp(parts, f.gradient, f.count * sizeof *parts), "a batch in parts has other bits");
    free(parts);
    release(&f);
}

/* Some columns of a layer, some heads, some rows: the bits that they have in the whole. */
static void test_parts(void)
{
    enum { ROWS = 9, IN = 21, OUT = 37, FIRST = 5, SOME = 19, HEADS = 3, SIZE = 5, WIDTH = HEADS * SIZE };
    double in[ROWS * IN], w[IN * OUT], some[IN * SOME], whole[ROWS * OUT], part[ROWS * SOME];
    double qkv[ROWS * 3 * WIDTH], one[ROWS * 3 * SIZE], heads[ROWS * WIDTH], head[ROWS * SIZE], saved[(HEADS + 1) * ROWS * ROWS];
    int wrong = 0;

    for (int i = 0; i < ROWS * IN; i++) in[i] = gpt_uniform(1, 1, (uint64_t)i) - 0.5;
    for (int i = 0; i < IN * OUT; i++) w[i] = gpt_uniform(1, 2, (uint64_t)i) - 0.5;
    for (int i = 0; i < IN; i++) memcpy(some + i * SOME, w + i * OUT + FIRST, sizeof(double[SOME]));
    gpt_linear_forward(whole, in, w, NULL, ROWS, IN, OUT);
    gpt_linear_forward(part, in + 2 * IN, some, NULL, ROWS - 2, IN, SOME);
    for (int r = 0; r < ROWS - 2; r++)
        wrong += memcmp(part + r * SOME, whole + (r + 2) * OUT + FIRST, sizeof(double[SOME])) != 0;
    CHECK(!wrong, "%d rows of some columns", wrong);

    for (int i = 0; i < ROWS * 3 * WIDTH; i++) qkv[i] = gpt_uniform(1, 3, (uint64_t)i) - 0.5;
    gpt_attention_forward(heads, qkv, saved, 1, ROWS, HEADS, SIZE);
    for (int h = 0; h < HEADS; h++) {
        for (int r = 0; r < ROWS * 3; r++) memcpy(one + r * SIZE, qkv + r * WIDTH + h * SIZE, sizeof(double[SIZE]));
        gpt_attention_forward(head, one, saved, 1, ROWS, 1, SIZE);
        for (int r = 0; r < ROWS; r++) wrong += memcmp(head + r * SIZE, heads + r * WIDTH + h * SIZE, sizeof(double[SIZE])) != 0;
    }
    CHECK(!wrong, "%d rows of single heads", wrong);
}

/* Adam takes any range: two halves are the whole. */
static void test_ranges(void)
{
    double w[2][40], g[40], m[2][40] = { { 0 } }, v[2][40] = { { 0 } };

    for (int i = 0; i < 40; i++) w[0][i] = w[1][i] = gpt_uniform(2, 1, (uint64_t)i), g[i] = gpt_uniform(2, 2, (uint64_t)i) - 0.5;
    for (int step = 0; step < 3; step++) {
        gpt_adam(w[0], g, m[0], v[0], 40, 0.1, step);
        gpt_adam(w[1], g, m[1], v[1], 13, 0.1, step);
        gpt_adam(w[1] + 13, g + 13, m[1] + 13, v[1] + 13, 27, 0.1, step);
    }
    CHECK(!memcmp(w[0], w[1], sizeof w[0]), "other bits in two ranges");
}

int main(void)
{
    test_gradient();
    test_layout();
    test_batches();
    test_parts();
    test_ranges();
    return CHECK_DONE();
}
