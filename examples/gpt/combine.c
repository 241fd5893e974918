/* combine.c - two ways at once: the ranks are a grid, whose rows split the model, and whose columns split the batch.
 *
 *     build/release/gpt/combine -t 4 --by tensor --ways 2                two groups of two ranks, threads of this process
 *     build/release/coll-run -n 4 build/release/gpt/combine --by pipeline --ways 2               processes that talk TCP
 *     build/release/coll-run -n 2 --threads 2 build/release/gpt/combine --by tensor --ways 2     a group in each process
 *
 *                     model, split in two
 *                     +--------+--------+
 *     batch, split    | rank 0 | rank 1 |        a row learns from its part of the batch, by tensor.c or by pipeline.c
 *     in two          +--------+--------+
 *                     | rank 2 | rank 3 |        a column has the same parameters: their gradients are added up by an allreduce,
 *                     +--------+--------+        and the same step follows on each
 *
 * Two coll_split make a communicator of each row and each column, over the connections that are there; the pages about one way
 * ask for a communicator, and do not see that there are others.  Ranks of a row follow each other, so that they share a host
 * where hosts have several ranks: a row talks several times in each layer, or for each piece, and a column once in a step.
 *
 * A grid of C columns and pipelines for rows gives the bits of data.c on as many ranks as there are rows. */
#define GPT_COMBINED
#include "tensor.c"
#include "pipeline.c"

enum { BY_TENSOR, BY_PIPELINE };

typedef struct queries { int by, ways, pieces, order, is_cut; } queries;

/* One rank's place: its row, which splits the model, and its column, which splits the batch. */
typedef struct grid {
    gpt_trainer *t;
    const queries *with;
    coll_comm *row, *column;
    tensor tensor;
    pipeline pipeline;
    float *weights, *gradient;
    size_t count;                        /* parameters of this rank */
} grid;

/* The gradient of the mean over the whole batch, from each row's part of it. */
static coll_status grid_learn(grid *g, const gpt_page_of_text *text, int step, float scale, double *loss)
{
    TRY(g->with->by == BY_TENSOR ? tensor_learn(&g->tensor, text, scale, loss)
                                 : pipeline_learn(&g->pipeline, text, step, scale, loss));
    gpt_clock(g->t, GPT_WAIT);
    TRY(coll_run(g->column, &(coll_call){ .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = g->gradient, .count = g->count,
                                          .type = COLL_F32, .op = COLL_SUM, .flags = COLL_DETERMINISTIC, .name = "gradient" }));
    gpt_clock(g->t, GPT_COMPUTE);
    return COLL_OK;
}

/* An exit code. */
static int grid_open(grid *g, gpt_trainer *t, int sequences)
{
    const queries *const with = g->with;
    const bool is_tensor = with->by == BY_TENSOR;
    const int code = is_tensor ? tensor_open(&g->tensor, t, g->row, sequences, with->is_cut)
                   : pipeline_open(&g->pipeline, t, g->row, sequences, with->pieces, (pipeline_order)with->order);

    g->weights  = is_tensor ? g->tensor.weights  : g->pipeline.weights;
    g->gradient = is_tensor ? g->tensor.gradient : g->pipeline.gradient;
    g->count    = is_tensor ? g->tensor.count    : g->pipeline.count;
    return code;
}

static int grid_train(grid *g)
{
    gpt_trainer *const t = g->t;
    const int row = coll_rank(g->column), rows = coll_size(g->column), most = (t->with->batch + rows - 1) / rows;
    gpt_page_of_text text;
    double loss = 0;
    const int code = grid_open(g, t, most);
    if (code) return code;

    float *const m = gpt_floats(t, GPT_OPTIMIZER, g->count), *const v = gpt_floats(t, GPT_OPTIMIZER, g->count);
    if (!m || !v || !gpt_open_text(t, &text, most) || gpt_begin(t)) return gpt_failed(t);
    for (int step = 0; step < t->with->steps; step++) {
        const float scale = gpt_scale(t, step);

        gpt_read_text(t, &text, step, gpt_part_of(gpt_batch(t, step), row, rows));
        if (grid_learn(g, &text, step, scale, &loss)) return gpt_failed(t);
        gpt_adam(g->weights, g->gradient, m, v, g->count, gpt_rate((float)t->with->rate, step, t->with->steps), step);
        if (gpt_step(t, step, loss * (double)scale)) return gpt_failed(t);
    }
    float *const whole = gpt_floats(t, GPT_OTHER, t->count);
    if (!whole || (g->with->by == BY_TENSOR ? tensor_whole(&g->tensor, whole) : pipeline_whole(&g->pipeline, whole)))
        return gpt_failed(t);
    return gpt_end(t, whole);
}

static int train(gpt_trainer *t)
{
    grid g = { .t = t, .with = t->own };
    const int ways = g.with->ways;

    if (t->size % ways) return gpt_refuse(t, "%d ranks cannot be put into rows of %d", t->size, ways);
    const bool is_made = !coll_split(t->comm, t->rank / ways, t->rank, &g.row)
                      && !coll_split(t->comm, t->rank % ways, t->rank, &g.column);
    const int code = is_made ? grid_train(&g) : gpt_failed(t);

    pipeline_close(&g.pipeline);
    coll_free(g.row);
    coll_free(g.column);
    return code;
}

int main(int argc, char **argv)
{
    queries own = { .ways = 2, .pieces = 2 };
    const gpt_row rows[] = {
        { "by", "what splits the model", &own.by, 0, 1, "tensor pipeline", NULL, NULL },
        { "ways", "ranks that share a model", &own.ways, 1, 1024, NULL, NULL, NULL },
        { "pieces", "of a row's part of the batch, by pipeline", &own.pieces, 1, 1e6, NULL, NULL, NULL },
        { "order", "of their work", &own.order, 0, 1, "gpipe 1f1b", NULL, NULL },
        { "rows", "between the layers, by tensor", &own.is_cut, 0, 1, "whole cut", NULL, NULL },
    };

    return gpt_main(argc, argv, &(gpt_page){ "combine", "a grid of ranks: rows split the model, columns split the batch", train,
                                             rows, 5, &own });
}
