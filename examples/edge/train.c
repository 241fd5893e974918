/* train - boards on an Ethernet teach one network to read handwritten digits: once with f32 in the messages, once with bf16.
 *
 *     arm-linux-gnueabihf-gcc -std=c11 -O2 -DCOLL_SMALL -static train.c -o train -pthread -lm
 *     COLL_RANK=0 COLL_SIZE=4 COLL_ADDR=10.0.0.1:5000 ./train [STEPS [BATCH]]        on the board 10.0.0.1
 *     COLL_RANK=1 COLL_SIZE=4 COLL_ADDR=10.0.0.1:5000 ./train [STEPS [BATCH]]        on the next one, and so on
 *
 * Each board has the whole network and all digits.  In a step each takes its part of a batch, one allreduce adds the gradients
 * up, and all apply the same update.  The types are those that COLL_SMALL has: i32, f32, f64, bf16. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"
#include "../data_file.h"

#include <math.h>
#include <stdio.h>

enum { INPUTS = 64, HIDDEN = 512, CLASSES = 10, DIGITS = 1797, HELD_BACK = 360,
       PARAMETERS = INPUTS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES };

typedef union network {
    struct { float w1[INPUTS][HIDDEN], b1[HIDDEN], w2[HIDDEN][CLASSES], b2[CLASSES]; };
    float all[PARAMETERS];
} network;

static float pixels[DIGITS][INPUTS];
static int   labels[DIGITS];
static network weights, gradient, velocity;

#define TRY(call) do { const coll_status try_ = (call); if (try_) return try_; } while (0)

static bool load(void)
{
    FILE *file = data_open("examples/data/digits.csv");
    int count = 0, value = 0, at = 0;

    if (!file) return perror("train: examples/data/digits.csv"), false;
    while (count < DIGITS && fscanf(file, "%d%*[,\n]", &value) == 1) {
        if (at < INPUTS) pixels[count][at++] = (float)value / 16;
        else labels[count++] = value, at = 0;
    }
    fclose(file);
    return count == DIGITS || (fprintf(stderr, "train: %d digits, not %d\n", count, DIGITS), false);
}

/* The same numbers on every board, without a message: a function of `at`. */
static uint32_t chance(uint32_t at)
{
    at = (at ^ (at >> 16)) * 0x7feb352du;
    at = (at ^ (at >> 15)) * 0x846ca68bu;
    return at ^ (at >> 16);
}

static void begin(void)
{
    memset(&weights, 0, sizeof weights);
    memset(&velocity, 0, sizeof velocity);
    for (int i = 0; i < PARAMETERS - CLASSES; i++) {                          /* of the biases, 0                 */
        const float limit = i < INPUTS * HIDDEN ? 0.3f : i < (INPUTS + 1) * HIDDEN ? 0 : 0.1f;
        weights.all[i] = ((float)(chance((uint32_t)i) >> 8) * 0x1p-23f - 1) * limit;
    }
}

/* Probabilities of the classes; gives the loss. */
static float forward(const float *x, int label, float *hidden, float *out)
{
    float top = -INFINITY, sum = 0;

    memcpy(hidden, weights.b1, sizeof weights.b1);
    memcpy(out, weights.b2, sizeof weights.b2);
    for (int i = 0; i < INPUTS; i++)
        for (int j = 0; x[i] > 0 && j < HIDDEN; j++) hidden[j] += x[i] * weights.w1[i][j];
    for (int j = 0; j < HIDDEN; j++) {
        hidden[j] = hidden[j] > 0 ? hidden[j] : 0;
        for (int k = 0; hidden[j] > 0 && k < CLASSES; k++) out[k] += hidden[j] * weights.w2[j][k];
    }
    for (int k = 0; k < CLASSES; k++) top = out[k] > top ? out[k] : top;
    for (int k = 0; k < CLASSES; k++) sum += out[k] = expf(out[k] - top);
    for (int k = 0; k < CLASSES; k++) out[k] /= sum;
    return -logf(out[label] + 1e-30f);
}

/* Add a digit's gradient; gives its loss. */
static float learn(int digit)
{
    const float *x = pixels[digit];
    float hidden[HIDDEN], out[CLASSES];
    const float loss = forward(x, labels[digit], hidden, out);

    out[labels[digit]] -= 1;
    for (int k = 0; k < CLASSES; k++) gradient.b2[k] += out[k];
    for (int j = 0; j < HIDDEN; j++) {
        float sum = 0;
        if (!(hidden[j] > 0)) { hidden[j] = 0; continue; }
        for (int k = 0; k < CLASSES; k++) sum += out[k] * weights.w2[j][k], gradient.w2[j][k] += hidden[j] * out[k];
        gradient.b1[j] += hidden[j] = sum;        /* from here on the loss by what enters the unit            */
    }
    for (int i = 0; i < INPUTS; i++)
        for (int j = 0; x[i] > 0 && j < HIDDEN; j++) gradient.w1[i][j] += x[i] * hidden[j];
    return loss;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Right answers of all boards to the digits held back, and do all have the same weights, bit for bit? */
static coll_status evaluate(coll_comm *comm, int *right, int *is_same)
{
    float hidden[HIDDEN], out[CLASSES];
    int32_t sum = 0, ends[2];
    uint32_t bits, all = 0;

    for (int d = DIGITS - HELD_BACK + coll_rank(comm); d < DIGITS; d += coll_size(comm)) {
        int best = 0;
        (void)forward(pixels[d], labels[d], hidden, out);
        for (int k = 1; k < CLASSES; k++) best = out[k] > out[best] ? k : best;
        sum += best == labels[d];
    }
    TRY(coll_allreduce(comm, &sum, right, 1, COLL_I32, COLL_SUM));
    for (int i = 0; i < PARAMETERS; i++) memcpy(&bits, &weights.all[i], 4), all = all * 31 + bits;
    memcpy(&ends[0], &all, 4);
    ends[1] = ~ends[0];                           /* the least of these is that of the most                   */
    TRY(coll_allreduce(comm, COLL_IN_PLACE, ends, 2, COLL_I32, COLL_MIN));
    *is_same = ends[0] == ~ends[1];
    return COLL_OK;
}

static coll_status train(coll_comm *comm, const char *name, coll_type wire, int steps, int batch, int *is_same)
{
    const int rank = coll_rank(comm), size = coll_size(comm), tail = steps / 5 + 1, trained = DIGITS - HELD_BACK;
    double loss = 0, talking = 0;
    int right = 0;

    begin();
    TRY(coll_barrier(comm));
    const double start = now();
    for (int step = 0; step < steps; step++) {
        memset(&gradient, 0, sizeof gradient);
        for (int i = batch * rank / size; i < batch * (rank + 1) / size; i++) {
            const float its = learn((int)(chance((uint32_t)(step * batch + i)) % (uint32_t)trained));
            if (step >= steps - tail) loss += (double)its / (tail * batch);
        }
        const double sent = now();
        TRY(coll_allreduce_mixed(comm, COLL_IN_PLACE, gradient.all, PARAMETERS, COLL_F32, wire, COLL_SUM));
        talking += now() - sent;
        for (int i = 0; i < PARAMETERS; i++) {
            velocity.all[i] = 0.9f * velocity.all[i] + gradient.all[i] / (float)batch;
            weights.all[i] -= 0.05f * velocity.all[i];
        }
    }
    const double took = now() - start;
    TRY(coll_allreduce(comm, COLL_IN_PLACE, &loss, 1, COLL_F64, COLL_SUM));
    TRY(evaluate(comm, &right, is_same));
    if (rank == 0)
        printf("%-5s %9d %9.1f %12.1f %13.1f %9.5f %9.1f%%   %s\n", name, PARAMETERS * (wire == COLL_F32 ? 4 : 2), steps / took,
               1e3 * (took - talking) / steps, 1e3 * talking / steps, loss, 100.0 * right / HELD_BACK,
               *is_same ? "the same bits" : "BITS DIFFER");
    return COLL_OK;
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? atoi(argv[1]) : 200, batch = argc > 2 ? atoi(argv[2]) : 8;
    int same[2] = { 0, 0 };
    coll_comm *comm;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (steps < 1 || steps > 100000 || batch < 1 || batch > 10000) return fprintf(stderr, "usage: train [STEPS [BATCH]]\n"), 2;
    if (!load()) return 1;
    if (coll_init(&comm, NULL)) return 1;
    if (coll_rank(comm) == 0) printf("%d boards, %d parameters, %d steps of %d digits\n"
        "wire      bytes   steps/s   ms computing   ms allreduce   loss    accuracy   the boards have\n",
        coll_size(comm), PARAMETERS, steps, batch);
    if (train(comm, "f32", COLL_F32, steps, batch, &same[0]) || train(comm, "bf16", COLL_BF16, steps, batch, &same[1]))
        return fprintf(stderr, "%s\n", coll_error(comm)), 1;
    return coll_free(comm) != COLL_OK || !same[0] || !same[1];
}
