/* workers.c - a transformer that one root and its workers run together, a token at a time, by tensor parallelism.
 *
 *     build/release/coll-run -n 3 build/release/inference/workers [TOKENS]         a root and two workers, processes
 *     build/release/inference/workers -t 3 [TOKENS]                                threads
 *
 * Every rank has some of the heads, of the inner numbers and of the vocabulary; how many ranks there are is free.  For a token
 *
 *     root       broadcasts the position and the token
 *     all        for each layer: attention of the own heads -> sum over the ranks, feed-forward likewise
 *     root       gathers the logits, and takes the largest
 *
 * Sums, broadcast and gather go by the library, with f32, bf16 or (as the Q80 of such engines) 8 bits for an element and a scale
 * for 32 of them in the messages; and for comparison by the loop of star.h.  First the root runs the whole model; then each
 * way is given the same tokens, its logits are held against those, and all ranks must have the same bits in between. */
#define _GNU_SOURCE 1
#include "../../coll.h"
#include "star.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

enum { LAYERS = 4, WIDTH = 256, HEADS = 8, HEAD = WIDTH / HEADS, INNER = 688, LETTERS = 512, TOKENS_MOST = 256 };

#define TRY(call) do { const int try_ = (call); if (try_) return try_; } while (0)

/* What a rank has of it: rows (w1, w3, query, key, value, letters) or columns (out, w2), [rows][columns] of the part. */
typedef struct layer { float *query, *key, *value, *out, *w1, *w2, *w3, *keys, *values; } layer;

typedef struct model {
    int   head, heads, inner, inners, letter, letters;        /* the first one of this rank, and how many     */
    layer layers[LAYERS];
    float *embedding, *last;
    float x[WIDTH], normed[WIDTH], partial[WIDTH], q[WIDTH], mixed[WIDTH], up[INNER], scores[TOKENS_MOST];
} model;

/* How the ranks talk: by calls that are described once, or by the star. */
typedef struct talk {
    coll_comm *comm;                              /* NULL: there is no other rank                             */
    star      *star;                              /* NULL: by the library                                     */
    coll_call  token, sum, gather;
    size_t     counts[STAR_MOST];                 /* logits of each rank                                      */
    float      room[WIDTH];
} talk;

typedef struct order { int32_t position, token; } order;

static int first_of(int all, int rank, int size) { return all * rank / size; }

/* ---- >>weights: element (row, column) of a matrix is a number drawn by both, so every rank draws its part ---- */

static float drawn(uint32_t matrix, int row, int column)
{
    uint32_t at = matrix * 0x9e3779b9u + (uint32_t)row * 4096 + (uint32_t)column;

    at = (at ^ (at >> 16)) * 0x7feb352du;
    at = (at ^ (at >> 15)) * 0x846ca68bu;
    return (float)((at ^ (at >> 16)) >> 8) * 0x1p-23f - 1;
}

static float *part(uint32_t matrix, int row, int rows, int column, int columns, float scale)
{
    float *const w = malloc((size_t)(rows * columns + 1) * sizeof *w);

    for (int i = 0; w && i < rows * columns; i++) w[i] = scale * drawn(matrix, row + i / columns, column + i % columns);
    return w;
}

static bool model_make(model *m, int rank, int size)
{
    const float in = sqrtf(3.0f / WIDTH), back = sqrtf(3.0f / INNER);
    bool ok = true;

    memset(m, 0, sizeof *m);
    m->head = first_of(HEADS, rank, size), m->heads = first_of(HEADS, rank + 1, size) - m->head;
    m->inner = first_of(INNER, rank, size), m->inners = first_of(INNER, rank + 1, size) - m->inner;
    m->letter = first_of(LETTERS, rank, size), m->letters = first_of(LETTERS, rank + 1, size) - m->letter;
    for (uint32_t l = 0; l < LAYERS; l++) {
        layer *const at = &m->layers[l];
        const int from = m->head * HEAD, wide = m->heads * HEAD;
        at->query = part(8 * l, from, wide, 0, WIDTH, in), at->key = part(8 * l + 1, from, wide, 0, WIDTH, in);
        at->value = part(8 * l + 2, from, wide, 0, WIDTH, in), at->out = part(8 * l + 3, 0, WIDTH, from, wide, in);
        at->w1 = part(8 * l + 4, m->inner, m->inners, 0, WIDTH, in), at->w3 = part(8 * l + 5, m->inner, m->inners, 0, WIDTH, in);
        at->w2 = part(8 * l + 6, 0, WIDTH, m->inner, m->inners, back);
        at->keys = malloc((size_t)(TOKENS_MOST * wide + 1) * sizeof(float));
        at->values = malloc((size_t)(TOKENS_MOST * wide + 1) * sizeof(float));
        ok = ok && at->query && at->key && at->value && at->out && at->w1 && at->w2 && at->w3 && at->keys && at->values;
    }
    m->embedding = part(8 * LAYERS, 0, LETTERS, 0, WIDTH, 1);
    m->last = part(8 * LAYERS + 1, m->letter, m->letters, 0, WIDTH, in);
    return ok && m->embedding && m->last;
}

static void model_free(model *m)
{
    for (int l = 0; l < LAYERS; l++) {
        layer *const at = &m->layers[l];
        free(at->query), free(at->key), free(at->value), free(at->out), free(at->w1), free(at->w2), free(at->w3);
        free(at->keys), free(at->values);
    }
    free(m->embedding), free(m->last);
}

/* ---- >>talking ---- */

static void talk_begin(talk *t, coll_comm *comm, star *s, coll_type wire, order *next, model *m, float *logits)
{
    *t = (talk){ .comm = comm, .star = s };
    if (!comm) return;
    for (int r = 0; r < coll_size(comm); r++)
        t->counts[r] = (size_t)(first_of(LETTERS, r + 1, coll_size(comm)) - first_of(LETTERS, r, coll_size(comm)));
    t->token = (coll_call){ .kind = COLL_BROADCAST, .recv = next, .count = 2, .type = COLL_I32, .name = "next token" };
    t->sum = (coll_call){ .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = m->partial, .count = WIDTH, .type = COLL_F32,
                          .wire = wire, .op = COLL_SUM, .name = "sum of a split layer" };
    t->gather = (coll_call){ .kind = COLL_GATHERV, .send = logits + m->letter, .recv = logits, .count = (size_t)m->letters,
                             .recv_counts = t->counts, .type = COLL_F32, .name = "logits" };
}

static int talk_token(talk *t, order *next)
{
    if (!t->comm) return 0;
    return t->star ? !star_broadcast(t->star, next, sizeof *next) : coll_run(t->comm, &t->token);
}

static int talk_sum(talk *t, float *partial)
{
    if (!t->comm) return 0;
    return t->star ? !star_sum(t->star, partial, t->room, WIDTH) : coll_run(t->comm, &t->sum);
}

static int talk_gather(talk *t, const model *m, float *logits)
{
    if (!t->comm) return 0;
    if (!t->star) return coll_run(t->comm, &t->gather);
    if (t->star->rank > 0) return !star_send(t->star->fd[0], logits + m->letter, (size_t)m->letters * sizeof *logits);
    float *at = logits + t->counts[0];
    for (int r = 1; r < t->star->size; at += t->counts[r++])
        if (!star_recv(t->star->fd[r], at, t->counts[r] * sizeof *at)) return 1;
    return 0;
}

/* ---- >>one token ---- */

static void norm(float *out, const float *x)
{
    float squares = 0;
    for (int i = 0; i < WIDTH; i++) squares += x[i] * x[i];
    for (int i = 0; i < WIDTH; i++) out[i] = x[i] / sqrtf(squares / WIDTH + 1e-5f);
}

static void matmul(float *out, const float *w, const float *x, int rows, int columns)
{
    for (int r = 0; r < rows; r++) {
        float sum = 0;
        for (int c = 0; c < columns; c++) sum += w[r * columns + c] * x[c];
        out[r] = sum;
    }
}

/* Turn pairs of each head by an angle that the position decides. */
static void rotate(float *x, int heads, int position)
{
    for (int i = 0; i < heads * HEAD; i += 2) {
        const float angle = (float)position * powf(10000, -(float)(i % HEAD) / HEAD), c = cosf(angle), s = sinf(angle);
        const float a = x[i], b = x[i + 1];
        x[i] = a * c - b * s, x[i + 1] = a * s + b * c;
    }
}

static void attention(model *m, const layer *at, int position)
{
    const int wide = m->heads * HEAD;

    matmul(m->q, at->query, m->normed, wide, WIDTH);
    matmul(at->keys + position * wide, at->key, m->normed, wide, WIDTH);
    matmul(at->values + position * wide, at->value, m->normed, wide, WIDTH);
    rotate(m->q, m->heads, position), rotate(at->keys + position * wide, m->heads, position);
    memset(m->mixed, 0, sizeof m->mixed);
    for (int h = 0; h < wide; h += HEAD) {
        float top = -INFINITY, sum = 0;
        for (int p = 0; p <= position; p++) {
            matmul(&m->scores[p], at->keys + p * wide + h, m->q + h, 1, HEAD);
            m->scores[p] /= sqrtf(HEAD), top = m->scores[p] > top ? m->scores[p] : top;
        }
        for (int p = 0; p <= position; p++) sum += m->scores[p] = expf(m->scores[p] - top);
        for (int p = 0; p <= position; p++)
            for (int i = h; i < h + HEAD; i++) m->mixed[i] += m->scores[p] / sum * at->values[p * wide + i];
    }
    matmul(m->partial, at->out, m->mixed, WIDTH, wide);
}

static void feed_forward(model *m, const layer *at)
{
    float *const gate = m->up;

    for (int i = 0; i < m->inners; i++) {
        float a, b;
        matmul(&a, at->w1 + i * WIDTH, m->normed, 1, WIDTH), matmul(&b, at->w3 + i * WIDTH, m->normed, 1, WIDTH);
        gate[i] = a / (1 + expf(-a)) * b;
    }
    matmul(m->partial, at->w2, gate, WIDTH, m->inners);
}

/* The logits behind `next`: all of them at the root, a worker's own at their place. */
static int step(model *m, talk *t, order *next, float *logits)
{
    TRY(talk_token(t, next));
    memcpy(m->x, m->embedding + next->token * WIDTH, sizeof m->x);
    for (int half = 0; half < 2 * LAYERS; half++) {
        norm(m->normed, m->x);
        if (half % 2 == 0) attention(m, &m->layers[half / 2], next->position);
        else feed_forward(m, &m->layers[half / 2]);
        TRY(talk_sum(t, m->partial));
        for (int i = 0; i < WIDTH; i++) m->x[i] += m->partial[i];
    }
    norm(m->normed, m->x);
    matmul(logits + m->letter, m->last, m->normed, m->letters, WIDTH);
    return talk_gather(t, m, logits);
}

static int largest(const float *logits)
{
    int best = 0;
    for (int i = 1; i < LETTERS; i++) best = logits[i] > logits[best] ? i : best;
    return best;
}

/* ---- >>the ways side by side ---- */

static const struct way { const char *name; coll_type wire; bool is_star; double most; } ways[] = {
    { "coll f32", 0, false, 1e-4 }, { "coll bf16", COLL_BF16, false, 0.02 }, { "coll mxi8", COLL_MXI8, false, 0.06 },
    { "star f32", 0, true, 1e-4 },
};

typedef struct job { int tokens; order said[TOKENS_MOST]; float alone[TOKENS_MOST][LETTERS], logits[LETTERS]; } job;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Only the root: the generated text, and all logits. */
static int run_alone(job *j, model *m)
{
    talk none = { 0 };
    const double start = now();

    for (int p = 0; p < j->tokens; p++) {
        j->said[p] = (order){ p, p == 0 ? 1 : largest(j->alone[p - 1]) };
        TRY(step(m, &none, &j->said[p], j->alone[p]));
    }
    printf("%-10s %9.1f tokens/s\n", "alone", j->tokens / (now() - start));
    return 0;
}

/* Gives -1 where the ranks cannot talk, 1 where the logits are wrong. */
static int run_way(job *j, model *m, coll_comm *comm, star *s, const struct way *way)
{
    order next;
    talk t;
    double off = 0, taken = 0, span = 0;
    int same = 0;

    talk_begin(&t, comm, way->is_star ? s : NULL, way->wire, &next, m, j->logits);
    TRY(-(coll_barrier(comm) != COLL_OK));
    for (int p = 0; p < j->tokens; p++) {
        const double start = now();
        next = j->said[p];                        /* a worker's is overwritten                                */
        if (step(m, &t, &next, j->logits)) return -1;
        taken += now() - start;
        for (int i = 0; coll_rank(comm) == 0 && i < LETTERS; i++) {
            off = fmax(off, fabs((double)j->logits[i] - (double)j->alone[p][i]));
            span = fmax(span, fabs((double)j->alone[p][i]));
        }
        same += coll_rank(comm) == 0 && largest(j->logits) == largest(j->alone[p]);
    }
    uint64_t ends[3] = { 0, 0, off <= way->most * span };
    for (int i = 0; i < WIDTH; i++) {
        uint32_t bits;
        memcpy(&bits, &m->x[i], 4), ends[0] = ends[0] * 31 + bits;
    }
    ends[1] = ~ends[0];                           /* the least of these is that of the most                   */
    TRY(-(coll_allreduce(comm, COLL_IN_PLACE, ends, 3, COLL_U64, COLL_MIN) != COLL_OK));
    if (coll_rank(comm) == 0)
        printf("%-10s %9.1f tokens/s   logits within %.1e, %d of %d tokens the same   %s, %s\n", way->name, j->tokens / taken,
               off / span, same, j->tokens, ends[2] ? "right" : "WRONG", ends[0] == ~ends[1] ? "the same bits" : "BITS DIFFER");
    return !ends[2] || ends[0] != ~ends[1];
}

static int worker(coll_comm *comm, void *arg)
{
    const int rank = coll_rank(comm), size = coll_size(comm);
    job *const j = calloc(1, sizeof *j);
    model m, whole;
    star s = { 0 };
    int wrong = 0;

    if (!j || !model_make(&m, rank, size) || !star_open(&s, comm))
        return fprintf(stderr, "rank %d: no memory, or no star\n", rank), 1;
    j->tokens = *(const int *)arg;
    if (rank == 0) {
        printf("%d ranks, %d layers of width %d, %d tokens\n", size, LAYERS, WIDTH, j->tokens);
        if (!model_make(&whole, 0, 1)) return fprintf(stderr, "no memory\n"), 1;
        wrong = run_alone(j, &whole);
        model_free(&whole);
    }
    for (size_t w = 0; wrong >= 0 && w < sizeof ways / sizeof *ways; w++) {
        const int result = run_way(j, &m, comm, &s, &ways[w]);
        wrong = result < 0 ? result : wrong | result;
    }
    if (wrong < 0) fprintf(stderr, "rank %d: %s\n", rank, *coll_error(comm) ? coll_error(comm) : "the star is broken");
    star_close(&s);
    model_free(&m);
    free(j);
    return wrong != 0;
}

int main(int argc, char **argv)
{
    const bool is_threads = argc > 2 && strcmp(argv[1], "-t") == 0;
    coll_comm *comm;
    int tokens = argc > 1 + 2 * is_threads ? atoi(argv[1 + 2 * is_threads]) : 64;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (tokens < 1 || tokens > TOKENS_MOST) return fprintf(stderr, "usage: workers [-t RANKS] [TOKENS], up to 256\n"), 2;
    if (is_threads) {
        return coll_spawn(atoi(argv[2]), worker, &tokens, NULL) != 0;
    }
    if (coll_init(&comm, NULL)) return 1;
    const int result = worker(comm, &tokens);
    return coll_free(comm) != COLL_OK || result;
}
