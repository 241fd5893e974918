/* gpt.h - a small transformer that reads text letter by letter: forward, backward, and one step of its optimizer.
 *
 * There are no ranks in this file.  Every program in this folder trains this model in another way, and takes from it the pieces
 * that way needs:
 *
 *     kernels        linear, norm, gelu, attention, embed, loss: pure functions on plain arrays.  They ask for the width of what
 *                    they are given and not for that of the model, so that a rank may call them with a part: some of the columns,
 *                    some of the heads, some of the rows
 *     units          unit 0 turns letters into vectors, units 1 .. layers are the blocks, unit layers + 1 is the last norm and
 *                    the scores of the letters.  gpt_unit_forward and gpt_unit_backward take the weights and the gradient of
 *                    only that unit, and a buffer of the caller for the data that backward needs of forward
 *     parameters     one vector, unit after unit; gpt_spans is the table of its parts
 *
 * Arrays are row after row; a row is a letter of a sequence, and sequences follow each other.  The weights of a linear layer
 * are w[inputs][outputs].  q, k and v are three blocks of columns, [q | k | v], each head after head.
 *
 * What is called d... is the gradient by what follows the d.  The gradients of parameters are added to, those of activations
 * are overwritten.  Every sum runs in one order, however the rows are cut: a batch gives the bits that its sequences give one
 * after the other, and the same bits on any processor, for products are rounded before they are added. */
#ifndef GPT_H
#define GPT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF     /* a * b + c rounds twice everywhere; for gcc -std=c11 says it */
#endif

/* Where the loader can choose, the multiplication is there twice, in vectors of 4 and of 8: the same bits, at twice the speed. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GPT_FAST __attribute__((target_clones("avx2", "default")))
#else
#define GPT_FAST
#endif

/* The sizes of a model.  width = heads * head size. */
typedef struct gpt_shape { int vocabulary, layers, width, heads, context; } gpt_shape;

/* ---- >>random: a function of seed, stream and index, without a state, so that no rank can be ahead of another ---- */

/* The finalizer of splitmix64: every bit of the result depends on every bit of x. */
static inline uint64_t gpt_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t gpt_chance(uint64_t seed, uint64_t stream, uint64_t at)
{
    const uint64_t step = 0x9e3779b97f4a7c15u;

    return gpt_mix(gpt_mix(gpt_mix(seed + step) + (stream + 1) * step) + (at + 1) * step);
}

/* Uniform in [0, 1); 24 bits fit a float exactly. */
static inline float gpt_uniform(uint64_t seed, uint64_t stream, uint64_t at)
{
    return (float)(gpt_chance(seed, stream, at) >> 40) * 0x1p-24f;
}

/* ---- >>multiply: the one loop in which the time goes ---- */

enum { GPT_ROWS = 4, GPT_COLUMNS = 16, GPT_DEPTH = 64 };         /* of the tile that stays in registers; of a panel */

/* c[i][j] += sum over k of a[i][k] * b[k][j], k upwards.  Element (i, k) of a is a[i * a_row + k * a_step], and so for b: a
 * matrix is transposed by exchanging its strides.  A panel of b is copied to where its rows follow each other.  At the edges
 * the tile repeats the last row of a and takes zeros of b; these results are not stored. */
GPT_FAST static inline void gpt_multiply(float *c, int c_row, const float *a, int a_row, int a_step, const float *b, int b_row,
                                         int b_step, int rows, int depth, int columns)
{
    float panel[GPT_DEPTH][GPT_COLUMNS], sum[GPT_ROWS][GPT_COLUMNS];

    for (int j = 0; j < columns; j += GPT_COLUMNS) for (int k = 0; k < depth; k += GPT_DEPTH) {
        const int width = columns - j < GPT_COLUMNS ? columns - j : GPT_COLUMNS;
        const int deep = depth - k < GPT_DEPTH ? depth - k : GPT_DEPTH;

        for (int d = 0; d < deep; d++)
            for (int s = 0; s < GPT_COLUMNS; s++) panel[d][s] = s < width ? b[(k + d) * b_row + (j + s) * b_step] : 0;
        for (int i = 0; i < rows; i += GPT_ROWS) {
            const int high = rows - i < GPT_ROWS ? rows - i : GPT_ROWS;
            const float *in[GPT_ROWS];

            for (int r = 0; r < GPT_ROWS; r++) in[r] = a + (i + (r < high ? r : high - 1)) * a_row + k * a_step;
            for (int r = 0; r < GPT_ROWS; r++)
                for (int s = 0; s < GPT_COLUMNS; s++) sum[r][s] = r < high && s < width ? c[(i + r) * c_row + j + s] : 0;
            for (int d = 0; d < deep; d++)
                for (int r = 0; r < GPT_ROWS; r++)
                    for (int s = 0; s < GPT_COLUMNS; s++) sum[r][s] += in[r][d * a_step] * panel[d][s];
            for (int r = 0; r < high; r++)
                for (int s = 0; s < width; s++) c[(i + r) * c_row + j + s] = sum[r][s];
        }
    }
}

/* ---- >>kernels: forward and backward of each kind of layer ---- */

/* out = in w + b; b == NULL: no bias. */
static inline void gpt_linear_forward(float *out, const float *in, const float *w, const float *b, int rows, int inputs,
                                      int outputs)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < outputs; j++) out[r * outputs + j] = b ? b[j] : 0;
    gpt_multiply(out, outputs, in, inputs, 1, w, outputs, 1, rows, inputs, outputs);
}

/* din = dout w', dw += in' dout, db += the rows of dout; din and db may be NULL. */
static inline void gpt_linear_backward(float *din, float *dw, float *db, const float *dout, const float *in, const float *w,
                                       int rows, int inputs, int outputs)
{
    if (din) {
        memset(din, 0, (size_t)rows * (size_t)inputs * sizeof *din);
        gpt_multiply(din, inputs, dout, outputs, 1, w, 1, outputs, rows, outputs, inputs);
    }
    gpt_multiply(dw, outputs, in, 1, inputs, dout, outputs, 1, inputs, rows, outputs);
    for (int r = 0; db && r < rows; r++)
        for (int j = 0; j < outputs; j++) db[j] += dout[r * outputs + j];
}

/* The mean of a row, and 1 / its standard deviation. */
static inline void gpt_moments(const float *in, int width, float *mean, float *scale)
{
    float sum = 0, squares = 0;

    for (int j = 0; j < width; j++) sum += in[j];
    *mean = sum / (float)width;
    for (int j = 0; j < width; j++) squares += (in[j] - *mean) * (in[j] - *mean);
    *scale = 1 / sqrtf(squares / (float)width + 1e-5f);
}

/* Each row to mean 0 and deviation 1, then times gain, plus bias. */
static inline void gpt_norm_forward(float *out, const float *in, const float *gain, const float *bias, int rows, int width)
{
    for (int r = 0; r < rows; r++, in += width, out += width) {
        float mean, scale;

        gpt_moments(in, width, &mean, &scale);
        for (int j = 0; j < width; j++) out[j] = (in[j] - mean) * scale * gain[j] + bias[j];
    }
}

/* `in` is what forward was given; the moments are worked out again rather than kept.  din == dout is allowed. */
static inline void gpt_norm_backward(float *din, float *dgain, float *dbias, const float *dout, const float *in,
                                     const float *gain, int rows, int width)
{
    for (int r = 0; r < rows; r++, in += width, dout += width, din += width) {
        float mean, scale, sum = 0, along = 0;

        gpt_moments(in, width, &mean, &scale);
        for (int j = 0; j < width; j++) {
            const float normal = (in[j] - mean) * scale, by = dout[j] * gain[j];

            dgain[j] += dout[j] * normal;
            dbias[j] += dout[j];
            sum += by;
            along += by * normal;
        }
        sum /= (float)width, along /= (float)width;
        for (int j = 0; j < width; j++)
            din[j] = (dout[j] * gain[j] - sum - (in[j] - mean) * scale * along) * scale;
    }
}

/* x times the logistic function of 1.702 x: the Gaussian error unit to two places, with one exponential. */
static inline void gpt_gelu_forward(float *out, const float *in, int count)
{
    for (int i = 0; i < count; i++) out[i] = in[i] / (1 + expf(-1.702f * in[i]));
}

/* din == dout is allowed. */
static inline void gpt_gelu_backward(float *din, const float *dout, const float *in, int count)
{
    for (int i = 0; i < count; i++) {
        const float s = 1 / (1 + expf(-1.702f * in[i]));

        din[i] = dout[i] * (s + 1.702f * in[i] * s * (1 - s));
    }
}

/* Floats that attention keeps: how much each letter looks at each earlier one, and as much again for one head on the way back. */
static inline size_t gpt_attention_saved(int sequences, int length, int heads)
{
    return ((size_t)sequences * (size_t)heads + 1) * (size_t)length * (size_t)length;
}

/* Every letter looks back at those before it and at itself.  qkv has 3 * heads * size columns, out heads * size. */
static inline void gpt_attention_forward(float *out, const float *qkv, float *saved, int sequences, int length, int heads,
                                         int size)
{
    const int width = heads * size, row = 3 * width;
    const float scale = 1 / sqrtf((float)size);

    memset(out, 0, (size_t)sequences * (size_t)length * (size_t)width * sizeof *out);
    for (int s = 0; s < sequences; s++) for (int h = 0; h < heads; h++) {
        const float *const q = qkv + s * length * row + h * size, *const k = q + width, *const v = k + width;
        float *const look = saved + (s * heads + h) * length * length;

        memset(look, 0, (size_t)length * (size_t)length * sizeof *look);
        gpt_multiply(look, length, q, row, 1, k, 1, row, length, size, length);
        for (int i = 0; i < length; i++) {
            float *const at = look + i * length, top = at[0], sum = 0;

            for (int j = 1; j <= i; j++) top = at[j] > top ? at[j] : top;
            for (int j = 0; j <= i; j++) sum += at[j] = expf((at[j] - top) * scale);
            for (int j = 0; j < length; j++) at[j] = j <= i ? at[j] / sum : 0;
        }
        gpt_multiply(out + s * length * width + h * size, width, look, length, 1, v, row, 1, length, length, size);
    }
}

static inline void gpt_attention_backward(float *dqkv, const float *dout, const float *qkv, float *saved, int sequences,
                                          int length, int heads, int size)
{
    const int width = heads * size, row = 3 * width;
    const float scale = 1 / sqrtf((float)size);
    float *const by = saved + sequences * heads * length * length;

    memset(dqkv, 0, (size_t)sequences * (size_t)length * (size_t)row * sizeof *dqkv);
    for (int s = 0; s < sequences; s++) for (int h = 0; h < heads; h++) {
        const int at = s * length * row + h * size;
        const float *const q = qkv + at, *const k = q + width, *const v = k + width;
        const float *const from = dout + s * length * width + h * size, *const look = saved + (s * heads + h) * length * length;

        gpt_multiply(dqkv + at + 2 * width, row, look, 1, length, from, width, 1, length, length, size);
        memset(by, 0, (size_t)length * (size_t)length * sizeof *by);
        gpt_multiply(by, length, from, width, 1, v, 1, row, length, size, length);
        for (int i = 0; i < length; i++) {
            float along = 0;

            for (int j = 0; j <= i; j++) along += by[i * length + j] * look[i * length + j];
            for (int j = 0; j < length; j++) by[i * length + j] = look[i * length + j] * (by[i * length + j] - along) * scale;
        }
        gpt_multiply(dqkv + at, row, by, length, 1, k, row, 1, length, length, size);
        gpt_multiply(dqkv + at + width, row, by, 1, length, q, row, 1, length, length, size);
    }
}

/* out = the vector of the letter + that of its place. */
static inline void gpt_embed_forward(float *out, const uint8_t *letters, const float *letter, const float *place, int sequences,
                                     int length, int width)
{
    for (int r = 0; r < sequences * length; r++)
        for (int j = 0; j < width; j++) out[r * width + j] = letter[letters[r] * width + j] + place[r % length * width + j];
}

static inline void gpt_embed_backward(float *dletter, float *dplace, const float *dout, const uint8_t *letters, int sequences,
                                      int length, int width)
{
    for (int r = 0; r < sequences * length; r++)
        for (int j = 0; j < width; j++) {
            dletter[letters[r] * width + j] += dout[r * width + j];
            dplace[r % length * width + j] += dout[r * width + j];
        }
}

/* The sum over the rows of -log of the probability of the right letter.  dlogits, unless NULL, becomes the gradient of this sum
 * times `scale`: 1 / the letters of the whole batch, on however many ranks they are.  dlogits == logits is allowed. */
static inline double gpt_loss(float *dlogits, const float *logits, const uint8_t *targets, int rows, int vocabulary, float scale)
{
    double loss = 0;

    for (int r = 0; r < rows; r++, logits += vocabulary) {
        float top = logits[0], sum = 0;

        for (int k = 1; k < vocabulary; k++) top = logits[k] > top ? logits[k] : top;
        for (int k = 0; k < vocabulary; k++) sum += expf(logits[k] - top);
        loss += (double)(logf(sum) - (logits[targets[r]] - top));
        for (int k = 0; dlogits && k < vocabulary; k++)
            dlogits[r * vocabulary + k] = (expf(logits[k] - top) / sum - (k == targets[r] ? 1.0f : 0.0f)) * scale;
    }
    return loss;
}

/* ---- >>parameters: one vector, unit after unit ---- */

enum { GPT_SPANS_OF_BLOCK = 12, GPT_MOST_LAYERS = 64, GPT_MOST_SPANS = GPT_SPANS_OF_BLOCK * GPT_MOST_LAYERS + 5 };

/* One tensor: its offset in the vector of all parameters, and the range of its first values (< 0: all ones). */
typedef struct gpt_span { const char *name; int unit, rows, columns; size_t offset; float spread; } gpt_span;

static inline int gpt_units(const gpt_shape *s) { return s->layers + 2; }

/* Write the table, GPT_MOST_SPANS rows at most, in the order of the vector.  Returns how many there are. */
static inline int gpt_spans(const gpt_shape *s, gpt_span *out)
{
    const int d = s->width, last = s->layers + 1;
    const float in = 1 / sqrtf((float)d), inner = 1 / sqrtf((float)(8 * d * s->layers));
    const gpt_span block[GPT_SPANS_OF_BLOCK] = {
        { "norm1.gain", 0, 1, d, 0, -1 },      { "norm1.bias", 0, 1, d, 0, 0 },
        { "qkv.w", 0, d, 3 * d, 0, in },       { "qkv.b", 0, 1, 3 * d, 0, 0 },
        { "out.w", 0, d, d, 0, 2 * inner },    { "out.b", 0, 1, d, 0, 0 },
        { "norm2.gain", 0, 1, d, 0, -1 },      { "norm2.bias", 0, 1, d, 0, 0 },
        { "up.w", 0, d, 4 * d, 0, in },        { "up.b", 0, 1, 4 * d, 0, 0 },
        { "down.w", 0, 4 * d, d, 0, inner },   { "down.b", 0, 1, d, 0, 0 },
    };
    int count = 0;
    size_t offset = 0;

    out[count++] = (gpt_span){ "letters", 0, s->vocabulary, d, 0, 0.05f };
    out[count++] = (gpt_span){ "places", 0, s->context, d, 0, 0.05f };
    for (int l = 1; l <= s->layers; l++)
        for (int i = 0; i < GPT_SPANS_OF_BLOCK; i++) {
            out[count] = block[i];
            out[count++].unit = l;
        }
    out[count++] = (gpt_span){ "norm.gain", last, 1, d, 0, -1 };
    out[count++] = (gpt_span){ "norm.bias", last, 1, d, 0, 0 };
    out[count++] = (gpt_span){ "scores.w", last, d, s->vocabulary, 0, in };
    for (int i = 0; i < count; i++) {
        out[i].offset = offset;
        offset += (size_t)out[i].rows * (size_t)out[i].columns;
    }
    return count;
}

/* Where a tensor of a block begins in the parameters of that block. */
typedef struct gpt_block {
    size_t norm1_gain, norm1_bias, qkv_w, qkv_b, out_w, out_b, norm2_gain, norm2_bias, up_w, up_b, down_w, down_b, count;
} gpt_block;

static inline gpt_block gpt_block_of(int width)
{
    const size_t d = (size_t)width, dd = d * d;

    return (gpt_block){ 0, d, 2 * d, 2 * d + 3 * dd, 5 * d + 3 * dd, 5 * d + 4 * dd, 6 * d + 4 * dd, 7 * d + 4 * dd,
                        8 * d + 4 * dd, 8 * d + 8 * dd, 12 * d + 8 * dd, 12 * d + 12 * dd, 13 * d + 12 * dd };
}

/* Parameters of a unit, and where they begin; the unit behind the last one begins where all end. */
static inline size_t gpt_unit_count(const gpt_shape *s, int unit)
{
    const size_t d = (size_t)s->width;

    if (unit == 0) return (size_t)(s->vocabulary + s->context) * d;
    return unit <= s->layers ? gpt_block_of(s->width).count : 2 * d + d * (size_t)s->vocabulary;
}

static inline size_t gpt_unit_offset(const gpt_shape *s, int unit)
{
    size_t offset = 0;

    for (int u = 0; u < unit; u++) offset += gpt_unit_count(s, u);
    return offset;
}

static inline size_t gpt_parameters(const gpt_shape *s) { return gpt_unit_offset(s, gpt_units(s)); }

/* Draw the first weights of all units: each by the seed and its place in the vector, uniform within the deviation of its span. */
static inline void gpt_draw(const gpt_shape *s, uint64_t seed, float *weights)
{
    gpt_span spans[GPT_MOST_SPANS];
    const int count = gpt_spans(s, spans);

    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < (size_t)spans[i].rows * (size_t)spans[i].columns; k++) {
            const size_t at = spans[i].offset + k;

            weights[at] = spans[i].spread < 0 ? 1 : (2 * gpt_uniform(seed, 0, at) - 1) * 1.7320508f * spans[i].spread;
        }
}

/* ---- >>units: the model in the pieces that pipelines and shards are made of ---- */

/* What forward leaves for backward, and the room that backward works in, for so many sequences. */
typedef struct gpt_saved { float *in, *normal, *qkv, *look, *heads, *middle, *normal2, *up, *active, *wide, *narrow; } gpt_saved;

/* Cut `base` into these parts.  Returns the number of floats; base may be NULL to learn it. */
static inline size_t gpt_cut_saved(const gpt_shape *s, int unit, int sequences, float *base, gpt_saved *out)
{
    const size_t rows = (size_t)sequences * (size_t)s->context, d = rows * (size_t)s->width;
    const size_t look = gpt_attention_saved(sequences, s->context, s->heads);
    float **const part[] = { &out->in, &out->normal, &out->narrow, &out->heads, &out->middle, &out->normal2, &out->qkv,
                             &out->up, &out->active, &out->wide, &out->look };
    const size_t count[] = { d, d, d, d, d, d, 3 * d, 4 * d, 4 * d, 4 * d, look };
    const int parts = unit == 0 ? 0 : unit <= s->layers ? 11 : 3;
    size_t offset = 0;

    for (int i = 0; i < parts; i++) {
        *part[i] = base ? base + offset : NULL;
        offset += count[i];
    }
    return offset;
}

/* Floats that `saved` must hold for one unit and so many sequences. */
static inline size_t gpt_unit_saved(const gpt_shape *s, int unit, int sequences)
{
    gpt_saved parts;

    return gpt_cut_saved(s, unit, sequences, NULL, &parts);
}

/* Floats that a row has behind this unit: the width, or the scores of all letters. */
static inline int gpt_unit_columns(const gpt_shape *s, int unit) { return unit <= s->layers ? s->width : s->vocabulary; }

static inline void gpt_block_forward(const gpt_shape *s, const float *w, float *out, const gpt_saved *a, int sequences)
{
    const gpt_block at = gpt_block_of(s->width);
    const int d = s->width, rows = sequences * s->context;

    gpt_norm_forward(a->normal, a->in, w + at.norm1_gain, w + at.norm1_bias, rows, d);
    gpt_linear_forward(a->qkv, a->normal, w + at.qkv_w, w + at.qkv_b, rows, d, 3 * d);
    gpt_attention_forward(a->heads, a->qkv, a->look, sequences, s->context, s->heads, d / s->heads);
    gpt_linear_forward(a->middle, a->heads, w + at.out_w, w + at.out_b, rows, d, d);
    for (int i = 0; i < rows * d; i++) a->middle[i] += a->in[i];
    gpt_norm_forward(a->normal2, a->middle, w + at.norm2_gain, w + at.norm2_bias, rows, d);
    gpt_linear_forward(a->up, a->normal2, w + at.up_w, w + at.up_b, rows, d, 4 * d);
    gpt_gelu_forward(a->active, a->up, rows * 4 * d);
    gpt_linear_forward(out, a->active, w + at.down_w, w + at.down_b, rows, 4 * d, d);
    for (int i = 0; i < rows * d; i++) out[i] += a->middle[i];
}

static inline void gpt_block_backward(const gpt_shape *s, const float *w, float *g, float *din, const float *dout,
                                      const gpt_saved *a, int sequences)
{
    const gpt_block at = gpt_block_of(s->width);
    const int d = s->width, rows = sequences * s->context;

    gpt_linear_backward(a->wide, g + at.down_w, g + at.down_b, dout, a->active, w + at.down_w, rows, 4 * d, d);
    gpt_gelu_backward(a->wide, a->wide, a->up, rows * 4 * d);
    gpt_linear_backward(a->narrow, g + at.up_w, g + at.up_b, a->wide, a->normal2, w + at.up_w, rows, d, 4 * d);
    gpt_norm_backward(din, g + at.norm2_gain, g + at.norm2_bias, a->narrow, a->middle, w + at.norm2_gain, rows, d);
    for (int i = 0; i < rows * d; i++) din[i] += dout[i];
    gpt_linear_backward(a->narrow, g + at.out_w, g + at.out_b, din, a->heads, w + at.out_w, rows, d, d);
    gpt_attention_backward(a->wide, a->narrow, a->qkv, a->look, sequences, s->context, s->heads, d / s->heads);
    gpt_linear_backward(a->narrow, g + at.qkv_w, g + at.qkv_b, a->wide, a->normal, w + at.qkv_w, rows, d, 3 * d);
    gpt_norm_backward(a->wide, g + at.norm1_gain, g + at.norm1_bias, a->narrow, a->in, w + at.norm1_gain, rows, d);
    for (int i = 0; i < rows * d; i++) din[i] += a->wide[i];
}

/* One unit.  `w`: the parameters of this unit; `in`: what the unit before gave, copied to `saved` (unit 0 reads `letters`, the
 * others do not); `out`: rows of gpt_unit_columns. */
static inline void gpt_unit_forward(const gpt_shape *s, int unit, const float *w, const float *in, float *out, float *saved,
                                    const uint8_t *letters, int sequences)
{
    const int d = s->width, rows = sequences * s->context;
    gpt_saved a;

    if (unit == 0) {
        gpt_embed_forward(out, letters, w, w + s->vocabulary * d, sequences, s->context, d);
        return;
    }
    gpt_cut_saved(s, unit, sequences, saved, &a);
    memcpy(a.in, in, (size_t)rows * (size_t)d * sizeof *in);
    if (unit <= s->layers) {
        gpt_block_forward(s, w, out, &a, sequences);
        return;
    }
    gpt_norm_forward(a.normal, a.in, w, w + d, rows, d);
    gpt_linear_forward(out, a.normal, w + 2 * d, NULL, rows, d, s->vocabulary);
}

/* `g`: the gradient of this unit's parameters, added to.  `din` must not be `dout`; unit 0 has none. */
static inline void gpt_unit_backward(const gpt_shape *s, int unit, const float *w, float *g, float *din, const float *dout,
                                     float *saved, const uint8_t *letters, int sequences)
{
    const int d = s->width, rows = sequences * s->context;
    gpt_saved a;

    gpt_cut_saved(s, unit, sequences, saved, &a);
    if (unit == 0) gpt_embed_backward(g, g + s->vocabulary * d, dout, letters, sequences, s->context, d);
    else if (unit <= s->layers) gpt_block_backward(s, w, g, din, dout, &a, sequences);
    else {
        gpt_linear_backward(a.narrow, g + 2 * d, NULL, dout, a.normal, w + 2 * d, rows, d, s->vocabulary);
        gpt_norm_backward(din, g, g + d, a.narrow, a.in, w, rows, d);
    }
}

/* ---- >>whole: all units one after the other ---- */

/* Floats that all units save, and two buffers for the data between units. */
static inline size_t gpt_saved_count(const gpt_shape *s, int sequences)
{
    const size_t rows = (size_t)sequences * (size_t)s->context;
    size_t count = 2 * rows * (size_t)(s->width > s->vocabulary ? s->width : s->vocabulary);

    for (int u = 0; u < gpt_units(s); u++) count += gpt_unit_saved(s, u, sequences);
    return count;
}

/* Called as soon as the gradient of a unit is complete. */
typedef void gpt_unit_fn(void *context, int unit);

/* The part of `saved` that a unit has; behind the last one stand the two buffers. */
static inline float *gpt_saved_of(const gpt_shape *s, int unit, int sequences, float *saved)
{
    for (int u = 0; u < unit; u++) saved += gpt_unit_saved(s, u, sequences);
    return saved;
}

/* All units forward.  Returns the scores, rows of `vocabulary` in `saved`. */
static inline float *gpt_forward(const gpt_shape *s, const float *w, const uint8_t *letters, int sequences, float *saved)
{
    const size_t rows = (size_t)sequences * (size_t)s->context;
    float *in = gpt_saved_of(s, gpt_units(s), sequences, saved);
    float *out = in + rows * (size_t)(s->width > s->vocabulary ? s->width : s->vocabulary);

    for (int u = 0; u < gpt_units(s); u++) {
        gpt_unit_forward(s, u, w, in, out, saved, letters, sequences);
        saved += gpt_unit_saved(s, u, sequences);
        w += gpt_unit_count(s, u);
        float *const next = in;
        in = out, out = next;
    }
    return in;
}

/* Forward and backward: adds to the gradient, and returns the sum of the losses of all letters.  `done`, unless NULL, is called
 * for each unit, last to first, once its gradient is there; it may use nothing of `saved`. */
static inline double gpt_learn(const gpt_shape *s, const float *w, float *g, const uint8_t *letters, const uint8_t *targets,
                               int sequences, float scale, float *saved, gpt_unit_fn *done, void *context)
{
    const int units = gpt_units(s), rows = sequences * s->context;
    float *dout = gpt_forward(s, w, letters, sequences, saved);
    float *const two = gpt_saved_of(s, units, sequences, saved);
    float *din = dout != two ? two : two + (size_t)rows * (size_t)(s->width > s->vocabulary ? s->width : s->vocabulary);
    const double loss = gpt_loss(dout, dout, targets, rows, s->vocabulary, scale);

    for (int u = units - 1; u >= 0; u--) {
        const size_t at = gpt_unit_offset(s, u);

        gpt_unit_backward(s, u, w + at, g + at, din, dout, gpt_saved_of(s, u, sequences, saved), letters, sequences);
        float *const next = dout;
        dout = din, din = next;
        if (done) done(context, u);
    }
    return loss;
}

/* ---- >>optimizer: Adam, element by element, so that a rank may own any range ---- */

/* `step` counts from 0; m and v begin as zeros. */
static inline void gpt_adam(float *w, const float *g, float *m, float *v, size_t count, float rate, int step)
{
    const float keep = 0.9f, keep2 = 0.99f;
    const float whole = 1 - powf(keep, (float)(step + 1)), whole2 = 1 - powf(keep2, (float)(step + 1));

    for (size_t i = 0; i < count; i++) {
        m[i] = keep * m[i] + (1 - keep) * g[i];
        v[i] = keep2 * v[i] + (1 - keep2) * g[i] * g[i];
        w[i] -= rate * (m[i] / whole) / (sqrtf(v[i] / whole2) + 1e-8f);
    }
}

/* Up in the first twentieth of the training, then down to a tenth along a cosine. */
static inline float gpt_rate(float rate, int step, int steps)
{
    const int rise = steps / 20 + 1;

    if (step < rise) return rate * (float)(step + 1) / (float)rise;
    return rate * (0.55f + 0.45f * cosf(3.14159265f * (float)(step - rise) / (float)(steps > rise ? steps - rise : 1)));
}

#endif /* GPT_H */
