/* tensor.c - tensor parallel training: every rank has a part of every layer.
 *
 *     build/release/gpt/tensor -t 4                            four threads of this process, each with a fourth of the heads
 *     build/release/coll-run -n 4 build/release/gpt/tensor     four ranks, processes that talk TCP
 *     build/release/gpt/tensor -t 4 --rows cut                 sequence parallel: also the rows between the layers are shared out
 *
 * A block of the model is two halves of one shape: norm, a linear layer, something in the middle (attention, or gelu), a linear
 * layer, and the sum with what came in.  The first layer is split by columns: from the whole input each rank works out its
 * heads, or its inner numbers, and needs no other.  The second one is split by rows: its input is the rank's part, and it
 * gives one term of a sum over the ranks.  So ranks meet once in each half on the way forward, and once on the way back:
 *
 *     forward    norm -> gather -> first layer | middle | second layer -> SUM -> + x
 *     backward   norm <-   SUM  <- first layer | middle | second layer <- gather
 *
 * With whole rows SUM is an allreduce and gather is nothing: every rank has all that is between the halves, and works out norms
 * and scores as all others do.  With cut rows SUM is a reduce_scatter, which leaves each rank its rows, and gather an allgather,
 * half an allreduce each; norms, and what is kept for the way back, are then shared out as well.  What a norm gives is gathered
 * again on the way back rather than kept, so a quarter more is sent.  The gradients of norms, letters and scores are sums over
 * the rows of a rank; one allreduce_list adds them up.
 *
 * Memory and arithmetic of the blocks fall with the number of ranks, but every SUM is waited for: this is for ranks that share a
 * host.  The sums run in another order than on one rank, so the last bits differ; on threads and over TCP they are the same. */
#include "tensor.h"

/* ---- >>exchange: the two places where ranks exchange data ---- */

/* All rows of what each rank has its own of. */
static coll_status tensor_gather(tensor *p, const float *mine, const float **all)
{
    *all = p->is_cut ? p->full : mine;
    if (!p->is_cut) return COLL_OK;
    gpt_clock(p->t, GPT_WAIT);
    TRY(coll_allgatherv(p->comm, mine, p->counts[p->rank], p->full, p->counts, NULL, COLL_F32));
    gpt_clock(p->t, GPT_COMPUTE);
    return COLL_OK;
}

/* The rows of this rank of the sum of all ranks' `partial`, which has all rows. */
static coll_status tensor_sum(tensor *p, float *mine)
{
    gpt_clock(p->t, GPT_WAIT);
    TRY(coll_run(p->comm, &(coll_call){ .kind = p->is_cut ? COLL_REDUCE_SCATTERV : COLL_ALLREDUCE, .send = p->partial,
                                        .recv = mine, .count = (size_t)p->rows * (size_t)p->t->shape.width,
                                        .recv_counts = p->counts, .type = COLL_F32, .op = COLL_SUM,
                                        .flags = COLL_DETERMINISTIC, .name = "sum of a split layer" }));
    gpt_clock(p->t, GPT_COMPUTE);
    return COLL_OK;
}

/* ---- >>half: each rank its share, x in place ---- */

/* Rank 0 adds the bias to the sum. */
static coll_status tensor_forward(tensor *p, int at, const float *w, float *x)
{
    const half *const h = &p->halves[at % 2];
    const int d = p->t->shape.width;
    const float *all;
    kept k;

    tensor_cut(p, at, &k);
    memcpy(k.in, x, (size_t)(p->mine * d) * sizeof *x);
    gpt_norm_forward(k.normal, x, w, w + d, p->mine, d);
    TRY(tensor_gather(p, k.normal, &all));
    gpt_linear_forward(k.first, all, w + h->w1, w + h->b1, p->rows, d, h->first);
    if (at % 2) gpt_gelu_forward(k.middle, k.first, p->rows * h->first);
    else gpt_attention_forward(k.middle, k.first, k.look, p->sequences, p->t->shape.context, p->heads, p->wide / p->heads);
    gpt_linear_forward(p->partial, k.middle, w + h->w2, p->rank ? NULL : w + h->b2, p->rows, h->second, d);
    TRY(tensor_sum(p, p->narrow));
    for (int i = 0; i < p->mine * d; i++) x[i] += p->narrow[i];
    return COLL_OK;
}

static coll_status tensor_backward(tensor *p, int at, const float *w, float *g, float *dx)
{
    const half *const h = &p->halves[at % 2];
    const int d = p->t->shape.width;
    const float *all;
    kept k;

    tensor_cut(p, at, &k);
    TRY(tensor_gather(p, dx, &all));
    gpt_linear_backward(p->partial, g + h->w2, g + h->b2, all, k.middle, w + h->w2, p->rows, h->second, d);
    if (at % 2) gpt_gelu_backward(p->broad, p->partial, k.first, p->rows * h->first);
    else gpt_attention_backward(p->broad, p->partial, k.first, k.look, p->sequences, p->t->shape.context, p->heads,
                                p->wide / p->heads);
    TRY(tensor_gather(p, k.normal, &all));
    gpt_linear_backward(p->partial, g + h->w1, g + h->b1, p->broad, all, w + h->w1, p->rows, d, h->first);
    TRY(tensor_sum(p, p->narrow));
    gpt_norm_backward(p->narrow, g, g + d, p->narrow, k.in, w, p->mine, d);
    for (int i = 0; i < p->mine * d; i++) dx[i] += p->narrow[i];
    return COLL_OK;
}

/* ---- >>step ---- */

/* With cut rows each rank has the gradients of norms, letters and scores of its own rows only: add them up. */
static coll_status tensor_sum_shared(tensor *p)
{
    const gpt_shape *const s = &p->t->shape;
    coll_list_item list[2 * GPT_MOST_LAYERS + 2];
    float *g = p->gradient;
    int n = 0;

    list[n++] = (coll_list_item){ g, g, gpt_unit_count(s, 0), COLL_F32 };
    g += gpt_unit_count(s, 0);
    for (int at = 0; at < 2 * s->layers; g += p->halves[at++ % 2].count)
        list[n++] = (coll_list_item){ g, g, 2 * (size_t)s->width, COLL_F32 };
    list[n++] = (coll_list_item){ g, g, gpt_unit_count(s, s->layers + 1), COLL_F32 };
    gpt_clock(p->t, GPT_WAIT);
    TRY(coll_run(p->comm, &(coll_call){ .kind = COLL_ALLREDUCE_LIST, .list = list, .list_count = n, .op = COLL_SUM,
                                        .flags = COLL_DETERMINISTIC, .name = "gradients of what is whole" }));
    gpt_clock(p->t, GPT_COMPUTE);
    return COLL_OK;
}

/* The gradient of this rank's parameters by a text that is the same on all ranks.  The shares of *loss add up to it. */
static coll_status tensor_learn(tensor *p, const gpt_page_of_text *text, float scale, double *loss)
{
    const gpt_shape *const s = &p->t->shape;
    const int d = s->width, kinds = s->vocabulary;

    tensor_rows(p, text->sequences);
    memset(p->gradient, 0, p->count * sizeof *p->gradient);
    for (int r = 0, row = p->begin; r < p->mine; r++, row++)
        gpt_embed_forward(p->x + r * d, text->letters + row, p->weights, p->weights + (kinds + row % s->context) * d, 1, 1, d);
    float *w = p->weights + gpt_unit_count(s, 0), *g = p->gradient + gpt_unit_count(s, 0);
    for (int at = 0; at < 2 * s->layers; at++) {
        TRY(tensor_forward(p, at, w, p->x));
        w += p->halves[at % 2].count, g += p->halves[at % 2].count;
    }
    gpt_norm_forward(p->narrow, p->x, w, w + d, p->mine, d);
    gpt_linear_forward(p->scores, p->narrow, w + 2 * d, NULL, p->mine, d, kinds);
    *loss = gpt_loss(p->scores, p->scores, text->targets + p->begin, p->mine, kinds, scale);
    if (!p->is_cut && p->rank) *loss = 0;
    gpt_linear_backward(p->partial, g + 2 * d, NULL, p->scores, p->narrow, w + 2 * d, p->mine, d, kinds);
    gpt_norm_backward(p->dx, g, g + d, p->partial, p->x, w, p->mine, d);
    for (int at = 2 * s->layers - 1; at >= 0; at--) {
        w -= p->halves[at % 2].count, g -= p->halves[at % 2].count;
        TRY(tensor_backward(p, at, w, g, p->dx));
    }
    for (int r = 0, row = p->begin; r < p->mine; r++, row++)
        gpt_embed_backward(p->gradient, p->gradient + (kinds + row % s->context) * d, p->dx + r * d, text->letters + row, 1, 1,
                           d);
    return p->is_cut ? tensor_sum_shared(p) : COLL_OK;
}

#ifndef GPT_COMBINED                      /* combine.c has its own main */

typedef struct queries { int is_cut; } queries;

static int train(gpt_trainer *t)
{
    const queries *const with = t->own;
    gpt_page_of_text text;
    tensor p;
    double loss = 0;
    const int code = tensor_open(&p, t, t->comm, t->with->batch, with->is_cut);
    if (code) return code;

    float *const m = gpt_floats(t, GPT_OPTIMIZER, p.count), *const v = gpt_floats(t, GPT_OPTIMIZER, p.count);
    if (!m || !v || !gpt_open_text(t, &text, t->with->batch) || gpt_begin(t)) return gpt_failed(t);
    for (int step = 0; step < t->with->steps; step++) {
        const float scale = gpt_scale(t, step);

        gpt_read_text(t, &text, step, (gpt_part){ 0, gpt_batch(t, step) });
        if (tensor_learn(&p, &text, scale, &loss)) return gpt_failed(t);
        gpt_adam(p.weights, p.gradient, m, v, p.count, gpt_rate((float)t->with->rate, step, t->with->steps), step);
        if (gpt_step(t, step, loss * (double)scale)) return gpt_failed(t);
    }
    float *const whole = gpt_floats(t, GPT_OTHER, t->count);
    return !whole || tensor_whole(&p, whole) ? gpt_failed(t) : gpt_end(t, whole);
}

int main(int argc, char **argv)
{
    queries own = { 0 };
    const gpt_row rows[] = { { "rows", "between the layers", &own.is_cut, 0, 1, "whole cut", NULL, NULL } };

    return gpt_main(argc, argv, &(gpt_page){ "tensor", "tensor parallel: every rank has a part of every layer", train, rows, 1,
                                             &own });
}

#endif
