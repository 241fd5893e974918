/* ggml_coll.h - sums of tensors over the ranks of a job, for an engine like ggml: copy this file, and what it includes.
 *
 *     tensor t = { .type = (int)g->type, .data = g->data };              g is a struct ggml_tensor of the engine's graph
 *     memcpy(t.ne, g->ne, sizeof t.ne), memcpy(t.nb, g->nb, sizeof t.nb);
 *     tensor_sum sum;
 *     if (tensor_sum_begin(&sum, comm, &t, COLL_BF16)) return fprintf(stderr, "%s\n", sum.why), 1;        once, for each tensor
 *     ...
 *     if (tensor_sum_run(&sum)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;                     in every pass
 *
 * What is summed are the partial results of a matrix that is split by its columns: one tensor behind the attention of a block,
 * and one behind its feed-forward.  They lie at the same place in every pass, so the call is described and checked once.  All
 * ranks run the same sums in the same order, as they run the same graph.  So a blocking call will do: the library keeps its plan,
 * and later ones allocate nothing (tensors.c counts).  One by coll_prepare, which ranks may start in other orders, would have to
 * keep what comes over TCP before its restart. */
#ifndef GGML_COLL_H
#define GGML_COLL_H

#include "../../coll.h"

#include <stdio.h>
#include <string.h>

/* The fields of struct ggml_tensor that matter here, by the names and with the types that they have there; so have the values of
 * `type`, which are those of GGML_TYPE_F32, GGML_TYPE_F16 and GGML_TYPE_BF16. */
enum { TENSOR_F32 = 0, TENSOR_F16 = 1, TENSOR_BF16 = 30 };

typedef struct tensor {
    int     type;
    int64_t ne[4];                                /* elements in each dimension                               */
    size_t  nb[4];                                /* bytes from one to the next in each dimension             */
    void   *data;
} tensor;

typedef struct tensor_sum {
    coll_comm *comm;
    coll_call  call;
    char       why[160];                          /* the sentence of tensor_sum_begin, where that fails       */
} tensor_sum;

/* Do the elements lie one behind the other?  The nb of a dimension of one element does not matter. */
static inline bool tensor_is_contiguous(const tensor *t, size_t element)
{
    size_t next = element;

    for (int i = 0; i < 4; i++) {
        if (t->ne[i] != 1 && t->nb[i] != next) return false;
        next *= (size_t)t->ne[i];
    }
    return true;
}

/* Describe the sum of `t` over all ranks, in place.  COLL_ERR_UNSUPPORTED, with a sentence in sum->why: not this tensor. */
static inline coll_status tensor_sum_describe(tensor_sum *sum, coll_comm *comm, const tensor *t, coll_type wire)
{
    const coll_type type = t->type == TENSOR_F32 ? COLL_F32 : t->type == TENSOR_F16 ? COLL_F16
                         : t->type == TENSOR_BF16 ? COLL_BF16 : 0;
    char shape[96];

    *sum = (tensor_sum){ .comm = comm };
    snprintf(shape, sizeof shape, "a tensor [%lld, %lld, %lld, %lld]", (long long)t->ne[0], (long long)t->ne[1],
             (long long)t->ne[2], (long long)t->ne[3]);
    if (type == 0) {
        snprintf(sum->why, sizeof sum->why, "%s of type %d: only f32, f16 and bf16 are summed", shape, t->type);
        return COLL_ERR_UNSUPPORTED;
    }
    if (t->ne[0] < 0 || t->ne[1] < 0 || t->ne[2] < 0 || t->ne[3] < 0 || !tensor_is_contiguous(t, coll_type_size(type))) {
        snprintf(sum->why, sizeof sum->why, "%s that is not contiguous: make it so before it is summed", shape);
        return COLL_ERR_UNSUPPORTED;
    }
    sum->call = (coll_call){ .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = t->data, .type = type, .wire = wire,
                             .count = (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]), .op = COLL_SUM };
    return COLL_OK;
}

/* The same, once for a tensor that stays in place; nothing is sent.  It also refuses a `wire` that the library does not have for
 * this type.  `wire` is the type of the messages, 0 for the tensor's own.  `t` may be freed afterwards. */
static inline coll_status tensor_sum_begin(tensor_sum *sum, coll_comm *comm, const tensor *t, coll_type wire)
{
    if (tensor_sum_describe(sum, comm, t, wire)) return COLL_ERR_UNSUPPORTED;
    if (coll_explain(comm, &sum->call, sum->why, sizeof sum->why) >= 0) return COLL_OK;
    snprintf(sum->why, sizeof sum->why, "%s", coll_error(comm));
    return COLL_ERR_UNSUPPORTED;
}

/* The sum, with the same bits on every rank.  What fails is in coll_error(sum->comm). */
static inline coll_status tensor_sum_run(const tensor_sum *sum)
{
    return coll_run(sum->comm, &sum->call);
}

#ifdef GGML_MAX_DIMS                              /* ggml.h is included before                                */

/* In a graph of ggml: the sum over all ranks as a node, computed with the graph.
 *
 *     tensor_job job = { .comm = comm, .wire = COLL_BF16 };
 *     x = ggml_map_custom1_inplace(ctx, x, tensor_job_sum, 1, &job);             `x` is the partial result of this rank
 *     ...
 *     ggml_graph_compute_with_ctx(ctx, graph, threads);
 *     if (job.status) return fprintf(stderr, "%s\n", job.why), 1;               the first failure; later sums do nothing
 *
 * All ranks compute the same graph, whose nodes have the same order. */
typedef struct tensor_job {
    coll_comm  *comm;
    coll_type   wire;                             /* of the messages; 0: the type of the tensor               */
    coll_status status;
    char        why[160];
} tensor_job;

static inline void tensor_job_sum(struct ggml_tensor *dst, const struct ggml_tensor *a, int thread, int threads, void *context)
{
    tensor_job *const job = context;
    tensor t = { .type = (int)dst->type, .data = dst->data };
    tensor_sum sum;

    (void)a, (void)threads;                       /* dst is a                                                 */
    if (thread != 0 || job->status) return;
    memcpy(t.ne, dst->ne, sizeof t.ne), memcpy(t.nb, dst->nb, sizeof t.nb);
    job->status = tensor_sum_describe(&sum, job->comm, &t, job->wire);
    if (!job->status && (job->status = coll_run(job->comm, &sum.call)) != COLL_OK)
        snprintf(sum.why, sizeof sum.why, "%s", coll_error(job->comm));
    if (job->status) memcpy(job->why, sum.why, sizeof job->why);
}

#endif

#endif /* GGML_COLL_H */
