/* train - boards without an operating system teach a small neural network to read digits, together.
 *
 *     sh examples/bare/run.sh 4                 four boards, emulated; and the same training by four threads of this machine
 *     cc train.c -pthread && ./a.out 4        only the latter (run.sh makes digits.h)
 *
 * Data parallel training: every rank has the whole network, and takes its part of each batch.  Two allreduces a step: of the
 * gradient, and of how well it went.  The same source runs on a Cortex-M3 over serial lines, whose floats are made by
 * software, and as threads on a PC (ranks.h).  All ranks of both end with the same bits, for each + - * is rounded as IEEE 754
 * says, and COLL_DETERMINISTIC fixes the order of sums. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"
#include "digits.h"

#include <stdio.h>
#include <string.h>

enum { INPUTS = 64, HIDDEN = 12, CLASSES = 10, BATCH = 32, EPOCHS = 3 };
enum { DIGITS = sizeof digits / sizeof *digits, WEIGHTS = (INPUTS + 1) * HIDDEN + (HIDDEN + 1) * CLASSES };

/* The last row of each layer is its bias.  As one vector, too: that is what is summed, and updated. */
typedef union network {
    struct {
        float first[INPUTS + 1][HIDDEN], second[HIDDEN + 1][CLASSES];
    };
    float all[WEIGHTS];
} network;

/* What a rank has. */
typedef struct job {
    network weights, gradient;
    float   told[2];                              /* of the last epoch: squared error, and how many were right */
} job;

#include "ranks.h"

/* ---- >>the network: ReLU, and the squared distance from what it should say ---- */

/* Uniform in [-1/4, 1/4), the same on every rank. */
static void begin(job *j)
{
    uint32_t x = 2463534242u;

    for (int i = 0; i < WEIGHTS; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        j->weights.all[i] = (float)(x >> 8) * 0x1p-25f - 0.25f;
    }
}

/* Add one digit to the gradient, and to the report. */
static void learn(job *j, const unsigned char *digit)
{
    const network *w = &j->weights;
    network *g = &j->gradient;
    float in[INPUTS + 1], hidden[HIDDEN + 1], error[CLASSES];
    int best = 0;

    for (int i = 0; i < INPUTS; i++) in[i] = (float)digit[i] * 0.0625f;
    in[INPUTS] = hidden[HIDDEN] = 1;
    for (int h = 0; h < HIDDEN; h++) {
        float sum = 0;
        for (int i = 0; i <= INPUTS; i++) sum += in[i] * w->first[i][h];
        hidden[h] = sum > 0 ? sum : 0;
    }
    for (int c = 0; c < CLASSES; c++) {
        error[c] = 0;
        for (int h = 0; h <= HIDDEN; h++) error[c] += hidden[h] * w->second[h][c];
        if (error[c] > error[best]) best = c;
    }
    j->told[1] += best == digit[INPUTS];
    error[digit[INPUTS]] -= 1;
    for (int c = 0; c < CLASSES; c++) j->told[0] += error[c] * error[c];
    for (int h = 0; h <= HIDDEN; h++) {
        float back = 0;
        for (int c = 0; c < CLASSES; c++) {
            g->second[h][c] += hidden[h] * error[c];
            back += w->second[h][c] * error[c];
        }
        for (int i = 0; h < HIDDEN && hidden[h] > 0 && i <= INPUTS; i++) g->first[i][h] += in[i] * back;
    }
}

/* ---- >>the training ---- */

/* A rank that does not answer for this long is taken for dead. */
static coll_status sum(coll_comm *comm, float *x, size_t count)
{
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = count, .type = COLL_F32, .op = COLL_SUM,
                             .flags = COLL_DETERMINISTIC, .timeout_ms = 20000 };
    return coll_run(comm, &call);
}

static coll_status train(coll_comm *comm, job *j)
{
    const int rank = coll_rank(comm), size = coll_size(comm);

    begin(j);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        float error = 0, right = 0;
        for (int first = 0; first + BATCH <= DIGITS; first += BATCH) {
            memset(&j->gradient, 0, sizeof j->gradient);
            j->told[0] = j->told[1] = 0;
            for (int i = rank; i < BATCH; i += size) learn(j, digits[first + i]);
            coll_status status = sum(comm, j->gradient.all, WEIGHTS);
            if (status == COLL_OK) status = sum(comm, j->told, 2);
            if (status) return status;
            for (int i = 0; i < WEIGHTS; i++) j->weights.all[i] -= j->gradient.all[i] * (0.25f / BATCH);
            error += j->told[0], right += j->told[1];
        }
        j->told[0] = error / (DIGITS - DIGITS % BATCH), j->told[1] = right;
    }
    return COLL_OK;
}

/* ---- >>report: bits, the same on every rank ---- */

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* FNV-1a over the bits of all weights. */
static uint32_t hash_of(const network *w)
{
    uint32_t hash = 2166136261u;

    for (int i = 0; i < WEIGHTS; i++)
        for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (bits_of(w->all[i]) >> shift & 255)) * 16777619u;
    return hash;
}

static int work(coll_comm *comm, job *j)
{
    const int rank = coll_rank(comm), size = coll_size(comm);

    if (train(comm, j)) return printf("rank %d of %d: %s\n", rank, size, coll_error(comm)), 1;
    printf("rank %d of %d: %d of %d right, loss %08lx, weights %08lx\n", rank, size, (int)j->told[1], DIGITS - DIGITS % BATCH,
           (unsigned long)bits_of(j->told[0]), (unsigned long)hash_of(&j->weights));
    return 0;
}
