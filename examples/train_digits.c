/* train_digits - teach a small neural network to read handwritten digits, on any number of ranks.
 *
 *     cc -O2 examples/train_digits.c -o train_digits -pthread -lm
 *     ./train_digits                          one rank
 *     ./train_digits -t 4                     four ranks, threads of this process
 *     coll-run -n 4 ./train_digits            four ranks, processes that talk TCP
 *     coll-run -n 4 ./train_digits --wire bf16          half the bytes in every message
 *     ./train_digits -t 4 --net conv          convolutions, and batch statistics over all ranks
 *
 * Data parallel training: every rank holds the whole network and the same digits.  In each step
 * the ranks share out a batch, each sums the gradients of its part, one allreduce adds these sums
 * up, and every rank applies the same update.  The weights are never sent: they start out equal
 * and stay so to the last bit, because allreduce gives identical bits on every rank.  This is
 * checked at the end.
 *
 * The same for any number of ranks: the batches, and so the training up to rounding;
 * all bits of the weights for the same number of ranks, whether threads or processes, because the
 * gradients are summed with COLL_DETERMINISTIC.  The network has 64 inputs (8x8
 * pixels), 128 hidden units (ReLU) and 10 outputs (softmax, cross-entropy), and learns by gradient
 * descent with momentum.  The other one, --net conv, is in digits_conv.h. */
#define COLL_IMPLEMENTATION
#include "../coll.h"
#include "data_file.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF     /* a * b + c rounds twice everywhere; for gcc -std=c11 says it */
#endif

enum {
    INPUTS     = 64,
    HIDDEN     = 128,
    CLASSES    = 10,
    PARAMETERS = INPUTS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES
};

static const float  MOMENTUM  = 0.9f;
static const char  *DATA_PATH = "examples/data/digits.csv";

/* The parameters, by layer and as one vector: the vector is what allreduce and the update see.
 * A gradient and a velocity have the same shape. */
typedef union network {
    struct {
        float w1[INPUTS][HIDDEN],  b1[HIDDEN];
        float w2[HIDDEN][CLASSES], b2[CLASSES];
    };
    float all[PARAMETERS];
} network;

_Static_assert(sizeof(network) == PARAMETERS * sizeof(float), "the vector covers every layer");

typedef struct digit {
    uint8_t pixel[INPUTS];           /* ink, 0..16, row by row                          */
    uint8_t label;                   /* 0..9                                            */
} digit;

typedef struct options {
    int         threads;             /* ranks in this process; 0: this process is one   */
    bool        is_conv;             /* the convolution net                             */
    coll_type   wire;                /* of the gradients in messages                    */
    int         epochs, batch;       /* batch: digits a step, over all ranks            */
    float       rate;
    uint64_t    seed;
    const char *data;                /* NULL: look for DATA_PATH                        */
    bool        is_json;
} options;

#define TRY(call) do { const coll_status try_ = (call); if (try_) return try_; } while (0)

/* ---- >>chance: the same numbers on every rank, without any message ---- */

enum { STREAM_SPLIT, STREAM_W1, STREAM_W2, STREAM_EPOCH };      /* and one more for each epoch */

/* The finalizer of splitmix64: every bit of the result depends on every bit of x. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Number `at` of a stream: a function without a state, so no rank can be ahead of another. */
static uint64_t chance(uint64_t seed, uint64_t stream, uint64_t at)
{
    const uint64_t step = 0x9e3779b97f4a7c15u;

    return mix(mix(mix(seed + step) + (stream + 1) * step) + (at + 1) * step);
}

static void shuffle(size_t *order, size_t count, uint64_t seed, uint64_t stream)
{
    for (size_t i = count; i > 1; i--) {
        const size_t k = (size_t)(chance(seed, stream, i) % i), last = order[i - 1];

        order[i - 1] = order[k];
        order[k] = last;
    }
}

/* Uniform in [-limit, limit): He initialization for ReLU.  24 bits fit a float exactly. */
static void fill(float *weights, size_t count, int inputs, uint64_t seed, uint64_t stream)
{
    const float limit = sqrtf(6 / (float)inputs);

    for (size_t i = 0; i < count; i++)
        weights[i] = ((float)(chance(seed, stream, i) >> 40) * 0x1p-23f - 1) * limit;
}

/* ---- >>nets ---- */

/* Turn scores into probabilities and return the cross-entropy of the label. */
static float softmax(float *z, int label)
{
    float top = z[0], sum = 0;

    for (int k = 1; k < CLASSES; k++) top = z[k] > top ? z[k] : top;
    const float target = z[label] - top;
    for (int k = 0; k < CLASSES; k++) sum += z[k] = expf(z[k] - top);
    for (int k = 0; k < CLASSES; k++) z[k] /= sum;
    return logf(sum) - target;
}

#include "digits_conv.h"

/* The parameters of either net, as one vector too. */
typedef union parameters { network dense; convnet conv; float all[PARAMETERS]; } parameters;

_Static_assert(sizeof(convnet) <= sizeof(network), "the vector has room for either");

/* One rank's view of the training.  order[0 .. train_count) are the digits to learn from, shuffled
 * again in each epoch, and order[train_count .. count) those to be tested on, which never change. */
typedef struct trainer {
    coll_comm     *comm;
    const options *with;
    digit         *digits;
    size_t        *order;
    size_t         count, train_count;
    parameters     weights, gradient, velocity;
    size_t         parameter_count;
    conv_activity *activities;       /* of this rank's part of a batch                  */
    moments        running;          /* the batch statistics of the last steps          */
    double         loss, accuracy;   /* after the last epoch                            */
    double         communication_s;  /* inside of coll_..., waiting for others included */
} trainer;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- >>data: rank 0 reads it, and broadcasts it ---- */

/* Read "p,p,...,p,label". */
static bool parse_digit(const char *line, digit *out)
{
    for (int i = 0; i <= INPUTS; i++) {
        char *end;
        const long value = strtol(line, &end, 10);

        if (end == line || value < 0 || value > (i < INPUTS ? 16 : CLASSES - 1)) return false;
        if (i < INPUTS ? *end != ',' : *end != '\n' && *end != '\r' && *end != '\0') return false;
        *(i < INPUTS ? &out->pixel[i] : &out->label) = (uint8_t)value;
        line = end + 1;
    }
    return true;
}

/* Read the digits of a file.  Returns how many, or 0 after a sentence on stderr. */
static size_t load(const char *path, digit **out)
{
    FILE *const file = path ? fopen(path, "r") : data_open(DATA_PATH);
    const char *const name = path ? path : DATA_PATH;
    const char *problem = NULL;
    char line[512];
    size_t count = 0, room = 0;

    *out = NULL;
    if (!file) return fprintf(stderr, "train_digits: %s: %s\n", name, strerror(errno)), 0;
    while (!problem && fgets(line, sizeof line, file)) {
        if (count == room) {
            digit *const more = realloc(*out, (room = 2 * room + 1024) * sizeof **out);

            if (!more) { problem = "out of memory"; break; }
            *out = more;
        }
        if (parse_digit(line, &(*out)[count])) count++;
        else problem = "expected 64 pixels from 0 to 16 and a class from 0 to 9";
    }
    if (!problem && ferror(file)) problem = "cannot be read";
    if (!problem && count < 2) problem = "fewer than two digits";
    if (problem) fprintf(stderr, "train_digits: %s, line %zu: %s\n", name, count + 1, problem);
    fclose(file);
    return problem ? 0 : count;
}

/* Give every rank the digits that rank 0 has read.  t->count == 0: it could not, and said why. */
static coll_status share_digits(trainer *t)
{
    const int root = 0;
    uint64_t count = 0;

    if (coll_rank(t->comm) == root) count = load(t->with->data, &t->digits);
    TRY(coll_broadcast(t->comm, &count, 1, COLL_U64, root));
    t->count = (size_t)count;
    if (coll_rank(t->comm) != root && count) t->digits = calloc(t->count, sizeof *t->digits);
    if (count && !t->digits) return COLL_ERR_MEMORY;
    return coll_broadcast(t->comm, t->digits, t->count * sizeof *t->digits, COLL_U8, root);
}

/* Hold a fifth of the digits back for the test, and start the weights. */
static coll_status prepare(trainer *t)
{
    const uint64_t seed = t->with->seed;

    t->order = calloc(t->count, sizeof *t->order);
    if (!t->order) return COLL_ERR_MEMORY;
    t->train_count = t->count - (t->count + 4) / 5;
    for (size_t i = 0; i < t->count; i++) t->order[i] = i;
    shuffle(t->order, t->count, seed, STREAM_SPLIT);
    t->parameter_count = t->with->is_conv ? sizeof(convnet) / sizeof(float) : PARAMETERS;
    if (t->with->is_conv) {
        const size_t most = (size_t)t->with->batch / (size_t)coll_size(t->comm) + 1;

        conv_start(&t->weights.conv, seed, STREAM_W1);
        t->activities = calloc(most, sizeof *t->activities);
        return t->activities ? COLL_OK : COLL_ERR_MEMORY;
    }
    fill(t->weights.dense.w1[0], INPUTS * HIDDEN,  INPUTS, seed, STREAM_W1);
    fill(t->weights.dense.w2[0], HIDDEN * CLASSES, HIDDEN, seed, STREAM_W2);
    return COLL_OK;
}

/* ---- >>network: one digit, one rank ---- */

/* What a digit makes of each layer. */
typedef struct activity {
    float input[INPUTS], hidden[HIDDEN];
    float output[CLASSES];           /* probabilities                                   */
} activity;

/* Returns the loss.  Inner loops run over the units of the next layer, which are independent: a
 * compiler may vectorize them without changing the order of any sum. */
static float forward(const network *w, const digit *d, activity *a)
{
    memcpy(a->hidden, w->b1, sizeof a->hidden);
    memcpy(a->output, w->b2, sizeof a->output);
    for (int i = 0; i < INPUTS; i++) {
        a->input[i] = (float)d->pixel[i] / 16;
        for (int j = 0; j < HIDDEN; j++) a->hidden[j] += a->input[i] * w->w1[i][j];
    }
    for (int j = 0; j < HIDDEN; j++) {
        a->hidden[j] = a->hidden[j] > 0 ? a->hidden[j] : 0;
        for (int k = 0; k < CLASSES; k++) a->output[k] += a->hidden[j] * w->w2[j][k];
    }
    return softmax(a->output, d->label);
}

/* Add this digit's gradient to g. */
static void backward(const network *w, const digit *d, const activity *a, network *g)
{
    float output[CLASSES], hidden[HIDDEN];       /* the loss by what enters each unit */

    for (int k = 0; k < CLASSES; k++) {
        output[k] = a->output[k] - (k == d->label ? 1.0f : 0.0f);
        g->b2[k] += output[k];
    }
    for (int j = 0; j < HIDDEN; j++) {
        float sum = 0;

        for (int k = 0; k < CLASSES; k++) {
            sum += output[k] * w->w2[j][k];
            g->w2[j][k] += a->hidden[j] * output[k];
        }
        hidden[j] = a->hidden[j] > 0 ? sum : 0;
        g->b1[j] += hidden[j];
    }
    for (int i = 0; i < INPUTS; i++)
        for (int j = 0; j < HIDDEN; j++) g->w1[i][j] += a->input[i] * hidden[j];
}

/* ---- >>training: the part of a rank, and what is said to the others ---- */

typedef struct span { size_t begin, end; } span;

/* This rank's part of order[begin .. begin + count): the parts differ by one digit at most, and
 * are empty on some ranks where there are fewer digits than ranks. */
static span my_part(const trainer *t, size_t begin, size_t count)
{
    const size_t rank = (size_t)coll_rank(t->comm), size = (size_t)coll_size(t->comm);

    return (span){ begin + count * rank / size, begin + count * (rank + 1) / size };
}

/* One step on order[begin .. begin + count).  Every rank takes part in the allreduce, also one
 * without digits; the sum is divided by the digits of all ranks, however few the last batch has. */
static coll_status step(trainer *t, size_t begin, size_t count)
{
    const span part = my_part(t, begin, count);
    const float share = 1 / (float)count;

    memset(&t->gradient, 0, sizeof t->gradient);
    for (size_t i = part.begin; i < part.end && !t->with->is_conv; i++) {
        const digit *const d = &t->digits[t->order[i]];
        activity a;

        forward(&t->weights.dense, d, &a);
        backward(&t->weights.dense, d, &a, &t->gradient.dense);
    }
    if (t->with->is_conv)
        TRY(conv_learn(t->comm, &t->weights.conv, &t->gradient.conv, t->digits, t->order + part.begin,
                       part.end - part.begin, count, t->activities, &t->running));

    const double start_s = now_s();
    TRY(coll_run(t->comm, &(coll_call){ .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE,
                                        .recv = t->gradient.all, .count = t->parameter_count,
                                        .type = COLL_F32, .wire = t->with->wire, .op = COLL_SUM,
                                        .flags = COLL_DETERMINISTIC, .name = "gradient" }));
    t->communication_s += now_s() - start_s;

    for (size_t i = 0; i < t->parameter_count; i++) {
        t->velocity.all[i] = MOMENTUM * t->velocity.all[i] + t->gradient.all[i] * share;
        t->weights.all[i] -= t->with->rate * t->velocity.all[i];
    }
    return COLL_OK;
}

/* The loss of one digit, and whether it is recognized. */
static float read_digit(const trainer *t, const digit *d, bool *is_right)
{
    activity a;
    conv_activity c;
    float loss;

    if (t->with->is_conv) {
        conv_filter(&t->weights.conv, d, &c);
        loss = conv_classify(&t->weights.conv, &t->running, d, &c);
    } else loss = forward(&t->weights.dense, d, &a);

    const float *const output = t->with->is_conv ? c.output : a.output;
    *is_right = true;
    for (int k = 0; k < CLASSES; k++)
        if (k != d->label && !(output[k] < output[d->label])) *is_right = false;
    return loss;
}

/* The mean loss over the digits learned from, and the accuracy on those held back. */
static coll_status evaluate(trainer *t)
{
    const size_t test_count = t->count - t->train_count;
    const span train = my_part(t, 0, t->train_count);
    const span test  = my_part(t, t->train_count, test_count);
    bool is_right;
    double loss = 0;
    int64_t right = 0;

    for (size_t i = train.begin; i < train.end; i++)
        loss += (double)read_digit(t, &t->digits[t->order[i]], &is_right);
    for (size_t i = test.begin; i < test.end; i++) {
        (void)read_digit(t, &t->digits[t->order[i]], &is_right);
        right += is_right;
    }

    const double start_s = now_s();
    TRY(coll_allreduce(t->comm, &loss, &loss, 1, COLL_F64, COLL_SUM));
    TRY(coll_allreduce(t->comm, &right, &right, 1, COLL_I64, COLL_SUM));
    t->communication_s += now_s() - start_s;
    t->loss = loss / (double)t->train_count;
    t->accuracy = (double)right / (double)test_count;
    return COLL_OK;
}

static coll_status train(trainer *t)
{
    const size_t batch = (size_t)t->with->batch;

    for (int epoch = 1; epoch <= t->with->epochs; epoch++) {
        const double start_s = now_s(), communication_s = t->communication_s;

        shuffle(t->order, t->train_count, t->with->seed, STREAM_EPOCH + (uint64_t)epoch);
        for (size_t at = 0; at < t->train_count; at += batch) {
            const size_t left = t->train_count - at;

            TRY(step(t, at, left < batch ? left : batch));
        }
        TRY(evaluate(t));
        if (coll_rank(t->comm) > 0) continue;
        const double epoch_s = now_s() - start_s;
        printf("epoch %2d   loss %.4f   accuracy %5.1f %%   %6.1f ms, %2.0f %% in communication\n",
               epoch, t->loss, 100 * t->accuracy, 1e3 * epoch_s,
               100 * (t->communication_s - communication_s) / epoch_s);
        fflush(stdout);
    }
    return COLL_OK;
}

/* ---- >>result: do all ranks hold the same weights, and what did it cost ---- */

/* FNV-1a over the bits of all weights. */
static uint64_t hash_weights(const float *weights, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &weights[i], sizeof bits);
        for (int k = 0; k < 4; k++) hash = (hash ^ (bits >> 8 * k & 255)) * 0x100000001b3u;
    }
    return hash;
}

/* How the gradients travel, in the library's own words: "tcp (io_uring)". */
static void name_transport(trainer *t, char *name, size_t length)
{
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = &t->gradient,
                             .count = t->parameter_count, .type = COLL_F32, .wire = t->with->wire };
    const char *const before = "ranks over ";
    char text[256] = "";

    (void)coll_explain(t->comm, &call, text, sizeof text);
    const char *const at = strstr(text, before), *const from = at ? at + strlen(before) : "?";

    snprintf(name, length, "%.*s", (int)strcspn(from, ":"), from);
}

/* Compare the weights of all ranks, and let rank 0 report.  The least and the greatest hash are
 * equal only if all are.  The bytes are the mean over the ranks, of the training only. */
static coll_status report(trainer *t, double total_s, uint64_t sent, bool *is_equal)
{
    const uint64_t hash = hash_weights(t->weights.all, t->parameter_count);
    uint64_t least, greatest;
    char transport[64];

    TRY(coll_allreduce(t->comm, &hash, &least, 1, COLL_U64, COLL_MIN));
    TRY(coll_allreduce(t->comm, &hash, &greatest, 1, COLL_U64, COLL_MAX));
    TRY(coll_allreduce(t->comm, &sent, &sent, 1, COLL_U64, COLL_AVG));
    *is_equal = least == greatest;
    if (coll_rank(t->comm) > 0) return COLL_OK;

    const int size = coll_size(t->comm);
    const char *const wire = coll_type_name(t->with->wire);
    name_transport(t, transport, sizeof transport);
    if (t->with->is_json) {
        printf("{\"ranks\":%d,\"transport\":\"%s\",\"wire\":\"%s\",\"loss\":%.6f,\"accuracy\":%.6f,"
               "\"seconds\":%.4f,\"communication_seconds\":%.4f,\"bytes_sent\":%" PRIu64 ","
               "\"weights\":\"%016" PRIx64 "\",\"identical\":%s}\n", size, transport, wire, t->loss,
               t->accuracy, total_s, t->communication_s, sent, hash, *is_equal ? "true" : "false");
        return COLL_OK;
    }
    printf("ranks          %d, over %s, wire %s\n", size, transport, wire);
    printf("loss           %.6f\n", t->loss);
    printf("accuracy       %.1f %% of %zu digits never learned from\n", 100 * t->accuracy,
           t->count - t->train_count);
    printf("time           %.3f s, of it in communication %.3f s\n", total_s, t->communication_s);
    printf("bytes sent     %" PRIu64 " a rank\n", sent);
    printf("weights        %016" PRIx64 ", %s\n", hash,
           *is_equal ? "identical bits on every rank" : "and OTHERS on other ranks");
    return COLL_OK;
}

static coll_status run(trainer *t, bool *is_equal)
{
    uint64_t before, after;

    TRY(share_digits(t));
    if (!t->count) return COLL_OK;
    TRY(prepare(t));
    TRY(coll_barrier(t->comm));

    const double start_s = now_s();
    coll_traffic(t->comm, &before, NULL);
    TRY(train(t));
    coll_traffic(t->comm, &after, NULL);
    return report(t, now_s() - start_s, after - before, is_equal);
}

/* The life of one rank.  Returns its exit status. */
static int worker(coll_comm *comm, void *arg)
{
    trainer *const t = calloc(1, sizeof *t);
    coll_status status = COLL_ERR_MEMORY;
    bool is_equal = false;

    if (t) {
        t->comm = comm;
        t->with = arg;
        status = run(t, &is_equal);
        free(t->digits);
        free(t->order);
        free(t->activities);
        free(t);
    }
    const char *const why = *coll_error(comm) ? coll_error(comm) : coll_status_text(status);
    if (status) fprintf(stderr, "train_digits: %s\n", why);
    return status || !is_equal;
}

/* ---- >>options ---- */

static const char *const HELP =
    "usage: train_digits [options]            as one rank, or as many as coll-run starts\n"
    "  -t, --threads N     N ranks, threads of this process\n"
    "      --net NAME      dense (default) or conv, with batch statistics over all ranks\n"
    "      --wire TYPE     of the gradients in messages: f32 (default), bf16 or f16\n"
    "      --epochs N      rounds over the digits (default 20)\n"
    "      --batch N       digits a step, over all ranks (default 32)\n"
    "      --rate X        learning rate (default 0.05)\n"
    "      --seed N        of the first weights and of every shuffle (default 1)\n"
    "      --data FILE     64 pixels and the class a line (default: examples/data/digits.csv)\n"
    "      --json          the result as one line of JSON\n"
    "  -h, --help          this text\n";

static _Noreturn void refuse(const char *option, const char *need, const char *text)
{
    fprintf(stderr, "train_digits: --%s needs %s, not '%s'\n", option, need, text);
    exit(2);
}

/* A number in [least, most], which a double holds exactly. */
static double number(const char *option, const char *text, double least, double most,
                     bool is_whole)
{
    char *end, need[80];
    const double value = strtod(text, &end);
    const bool is_number = end != text && !*end && (!is_whole || value == floor(value));

    if (is_number && value >= least && value <= most) return value;
    snprintf(need, sizeof need, "a %s from %g to %.17g", is_whole ? "whole number" : "number",
             least, most);
    refuse(option, need, text);
}

static coll_type parse_wire(const char *text)
{
    const coll_type types[] = { COLL_F32, COLL_BF16, COLL_F16 };

    for (int i = 0; i < 3; i++)
        if (!strcmp(text, coll_type_name(types[i]))) return types[i];
    refuse("wire", "f32, bf16 or f16", text);
}

/* Whether it is the convolution net. */
static bool parse_net(const char *text)
{
    if (!strcmp(text, "conv")) return true;
    if (strcmp(text, "dense")) refuse("net", "dense or conv", text);
    return false;
}

static options parse_options(int argc, char **argv)
{
    enum { WIRE = 256, NET, EPOCHS, BATCH, RATE, SEED, DATA, JSON };
    static const struct option names[] = {
        { "threads", required_argument, NULL, 't'    },
        { "wire",    required_argument, NULL, WIRE   },
        { "net",     required_argument, NULL, NET    },
        { "epochs",  required_argument, NULL, EPOCHS },
        { "batch",   required_argument, NULL, BATCH  },
        { "rate",    required_argument, NULL, RATE   },
        { "seed",    required_argument, NULL, SEED   },
        { "data",    required_argument, NULL, DATA   },
        { "json",    no_argument,       NULL, JSON   },
        { "help",    no_argument,       NULL, 'h'    },
        { NULL, 0, NULL, 0 }
    };
    options o = { .wire = COLL_F32, .epochs = 20, .batch = 32, .rate = 0.05f, .seed = 1 };

    for (int c; (c = getopt_long(argc, argv, "t:h", names, NULL)) != -1;) switch (c) {
        case 't':    o.threads = (int)number("threads", optarg, 1, 256, true);        break;
        case WIRE:   o.wire    = parse_wire(optarg);                                  break;
        case NET:    o.is_conv = parse_net(optarg);                                   break;
        case EPOCHS: o.epochs  = (int)number("epochs", optarg, 1, 10000, true);       break;
        case BATCH:  o.batch   = (int)number("batch", optarg, 1, 1000000, true);      break;
        case RATE:   o.rate    = (float)number("rate", optarg, 0, 100, false);        break;
        case SEED:   o.seed    = (uint64_t)number("seed", optarg, 0, 0x1p53, true);   break;
        case DATA:   o.data    = optarg;                                              break;
        case JSON:   o.is_json = true;                                                break;
        case 'h':    fputs(HELP, stdout);                                             exit(0);
        default:     exit(2);                    /* getopt_long has said why */
    }
    if (optind < argc) {
        fprintf(stderr, "train_digits: no argument like '%s' is expected\n", argv[optind]);
        exit(2);
    }
    return o;
}

int main(int argc, char **argv)
{
    options o = parse_options(argc, argv);
    coll_comm *comm;

    if (o.threads) {
        return coll_spawn(o.threads, worker, &o, NULL) != 0;
    }
    if (coll_init(&comm, NULL)) return 1;
    const int result = worker(comm, &o);
    coll_free(comm);
    return result;
}
