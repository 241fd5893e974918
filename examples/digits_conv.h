/* digits_conv.h - a small convolution net for train_digits, with batch normalization over all ranks.
 *
 * 8x8 pixels, 16 filters of 3x3, each filter's output normalised, ReLU, the largest of each 2x2, and 10 outputs.
 *
 * Normalisation takes the mean and the variance of a filter over the whole batch.  The batch is shared out, and a rank that
 * used its own part would train another network than one rank does: of 32 digits on 16 ranks, one with the statistics of 2.  So
 * the sums are added up over the ranks before they are used, and once more on the way back, where each digit's gradient depends
 * on all others through them.  That is two small allreduces in the middle of a step (32 doubles each), and what
 * COLL_DETERMINISTIC is good for: with it, threads and processes have the same statistics to the last bit.  For single digits,
 * later, there is a running mean. */
#ifndef DIGITS_CONV_H
#define DIGITS_CONV_H

enum { SIDE = 8, FILTERS = 16, HALF = SIDE / 2, FEATURES = FILTERS * HALF * HALF };

typedef union convnet {
    struct {
        float kernel[FILTERS][9], gain[FILTERS], bias[FILTERS];
        float w[FEATURES][CLASSES], b[CLASSES];
    };
    float all[FILTERS * 11 + FEATURES * CLASSES + CLASSES];
} convnet;

/* Of each filter: the mean of what it gives, and 1 / its standard deviation. */
typedef struct moments { float mean[FILTERS], scale[FILTERS]; } moments;

/* What a digit makes of each layer; by: the gradient by what normalization gives. */
typedef struct conv_activity {
    float input[INPUTS], filtered[FILTERS][INPUTS], by[FILTERS][INPUTS];
    float pooled[FEATURES], output[CLASSES];
    uint8_t from[FEATURES];          /* the pixel that was the largest                  */
} conv_activity;

static void conv_start(convnet *w, uint64_t seed, uint64_t stream)
{
    fill(w->kernel[0], FILTERS * 9, 9, seed, stream);
    fill(w->w[0], FEATURES * CLASSES, FEATURES, seed, stream + 1);
    for (int f = 0; f < FILTERS; f++) w->gain[f] = 1;
}

/* Element `tap` of the 3x3 around pixel `at`; beyond the edge there is nothing. */
static float around(const float *image, int at, int tap)
{
    const int row = at / SIDE + tap / 3 - 1, column = at % SIDE + tap % 3 - 1;

    return row >= 0 && row < SIDE && column >= 0 && column < SIDE ? image[row * SIDE + column] : 0;
}

static void conv_filter(const convnet *w, const digit *d, conv_activity *a)
{
    for (int i = 0; i < INPUTS; i++) a->input[i] = (float)d->pixel[i] / 16;
    memset(a->filtered, 0, sizeof a->filtered);
    for (int at = 0; at < INPUTS; at++) for (int tap = 0; tap < 9; tap++) {
        const float x = around(a->input, at, tap);

        for (int f = 0; x != 0 && f < FILTERS; f++) a->filtered[f][at] += w->kernel[f][tap] * x;
    }
}

/* Everything behind the filters.  Returns the loss. */
static float conv_classify(const convnet *w, const moments *m, const digit *d, conv_activity *a)
{
    memcpy(a->output, w->b, sizeof a->output);
    for (int k = 0; k < FEATURES; k++) {
        const int f = k / (HALF * HALF), corner = k % (HALF * HALF) / HALF * 2 * SIDE + k % HALF * 2;

        a->pooled[k] = 0;                            /* ReLU: nothing is less, and nothing learns from 0 */
        a->from[k] = INPUTS;
        for (int i = 0; i < 4; i++) {
            const int at = corner + i / 2 * SIDE + i % 2;
            const float y = (a->filtered[f][at] - m->mean[f]) * m->scale[f] * w->gain[f] + w->bias[f];

            if (y > a->pooled[k]) a->pooled[k] = y, a->from[k] = (uint8_t)at;
        }
        for (int c = 0; c < CLASSES; c++) a->output[c] += a->pooled[k] * w->w[k][c];
    }
    return softmax(a->output, d->label);
}

/* Back to where normalization was; adds to the gradients of what is behind it, and to those of gain and bias. */
static void conv_back(const convnet *w, const moments *m, const digit *d, conv_activity *a, convnet *g)
{
    float output[CLASSES];

    memset(a->by, 0, sizeof a->by);
    for (int c = 0; c < CLASSES; c++) g->b[c] += output[c] = a->output[c] - (c == d->label ? 1.0f : 0.0f);
    for (int k = 0; k < FEATURES; k++) {
        const int f = k / (HALF * HALF), at = a->from[k];
        float sum = 0;

        for (int c = 0; c < CLASSES; c++) {
            sum += output[c] * w->w[k][c];
            g->w[k][c] += a->pooled[k] * output[c];
        }
        if (at == INPUTS) continue;
        a->by[f][at] = sum;
        g->bias[f] += sum;
        g->gain[f] += sum * (a->filtered[f][at] - m->mean[f]) * m->scale[f];
    }
}

/* Back through normalization, with the sums of the gradients of gain and bias over all ranks, to the filters. */
static void conv_back_filter(const convnet *w, const moments *m, const double *sums, double pixels, const conv_activity *a,
                             convnet *g)
{
    for (int f = 0; f < FILTERS; f++) {
        const float mean = (float)(sums[FILTERS + f] / pixels), along = (float)(sums[f] / pixels);

        for (int at = 0; at < INPUTS; at++) {
            const float normal = (a->filtered[f][at] - m->mean[f]) * m->scale[f];
            const float by = (a->by[f][at] - mean - normal * along) * m->scale[f] * w->gain[f];

            for (int tap = 0; tap < 9; tap++) g->kernel[f][tap] += by * around(a->input, at, tap);
        }
    }
}

/* Add up 2 * FILTERS numbers over the ranks. */
static coll_status conv_sum(coll_comm *comm, double *sums, const char *name)
{
    return coll_run(comm, &(coll_call){ .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = sums, .count = 2 * FILTERS,
                                        .type = COLL_F64, .op = COLL_SUM, .flags = COLL_DETERMINISTIC, .name = name });
}

/* Mean and variance of each filter over the batch of all ranks, of which this one has `count` digits. */
static coll_status conv_measure(coll_comm *comm, const conv_activity *a, size_t count, double pixels, moments *m)
{
    double sums[2 * FILTERS] = { 0 };

    for (size_t i = 0; i < count; i++) for (int f = 0; f < FILTERS; f++) for (int at = 0; at < INPUTS; at++) {
        const double x = (double)a[i].filtered[f][at];

        sums[f] += x;
        sums[FILTERS + f] += x * x;
    }
    TRY(conv_sum(comm, sums, "batch statistics"));
    for (int f = 0; f < FILTERS; f++) {
        const double mean = sums[f] / pixels, variance = sums[FILTERS + f] / pixels - mean * mean;

        m->mean[f] = (float)mean;
        m->scale[f] = (float)(1 / sqrt((variance > 0 ? variance : 0) + 1e-5));
    }
    return COLL_OK;
}

/* The gradient of this rank's digits, chosen[0 .. count), of a batch of `all`: as that of one rank that had them all.  running:
 * the moments for single digits. */
static coll_status conv_learn(coll_comm *comm, const convnet *w, convnet *g, const digit *digits, const size_t *chosen,
                              size_t count, size_t all, conv_activity *a, moments *running)
{
    const double pixels = (double)all * INPUTS;
    double sums[2 * FILTERS];
    moments m;

    for (size_t i = 0; i < count; i++) conv_filter(w, &digits[chosen[i]], &a[i]);
    TRY(conv_measure(comm, a, count, pixels, &m));
    for (size_t i = 0; i < count; i++) {
        conv_classify(w, &m, &digits[chosen[i]], &a[i]);
        conv_back(w, &m, &digits[chosen[i]], &a[i], g);
    }
    for (int f = 0; f < FILTERS; f++) sums[f] = (double)g->gain[f], sums[FILTERS + f] = (double)g->bias[f];
    TRY(conv_sum(comm, sums, "batch statistics, backward"));
    for (size_t i = 0; i < count; i++) conv_back_filter(w, &m, sums, pixels, &a[i], g);
    for (int f = 0; f < FILTERS; f++) {
        running->mean[f] += 0.1f * (m.mean[f] - running->mean[f]);
        running->scale[f] += 0.1f * (m.scale[f] - running->scale[f]);
    }
    return COLL_OK;
}

#endif /* DIGITS_CONV_H */
