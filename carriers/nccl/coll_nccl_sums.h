/* coll_nccl_sums.h - reductions whose inputs NCCL moves and a kernel of the library combines, in the canonical order and with one
 * rounding: the bits are those of the processor.
 *
 *   at once      every rank gets all inputs, and combines them: short vectors, and scans
 *   by shards    rank r gets shard r of all inputs, n shards of 1/n, and combines them; the results are gathered:
 *
 *                    alltoall       (n - 1)/n of the vector, in the wire's type
 *                    kernel         reads n shards, writes one
 *                    allgather      (n - 1)/n of the vector, in the wire's type
 *
 * A ring sends as much.  Inputs of another type than the wire's are converted before, results afterwards. */
#ifndef COLL_NCCL_SUMS_H
#define COLL_NCCL_SUMS_H

/* ---- >>kernels ---- */

enum { COLL__KERNEL_BLOCK = 256, COLL__KERNEL_BLOCKS_MOST = 1024 };

static void coll__kernel_run(coll__nccl *me, coll__kernel which, size_t count, void **parameters)
{
    const size_t blocks = (count + COLL__KERNEL_BLOCK - 1) / COLL__KERNEL_BLOCK;
    const unsigned grid = (unsigned)coll__least(blocks, COLL__KERNEL_BLOCKS_MOST);

    if (count > 0)
        COLL__CUDA_DO(me, LaunchKernel, me->gpu->kernels[which], grid, 1, 1, COLL__KERNEL_BLOCK, 1, 1, 0, me->stream, parameters,
                      NULL);
}

/* out = the `n` vectors at `in` combined, `stride` bytes apart, finished and rounded.  The kernels have the numbers of coll_type
 * and coll_op. */
static void coll__nccl_combine(coll__nccl *me, const coll__sums *s, coll_type in_type, const void *in, size_t stride, int n,
                               coll_type out_type, void *out, size_t count)
{
    const bool is_integer = coll__is_integer(out_type) || out_type == COLL_BOOL, is_double = out_type == COLL_F64;
    const coll__kernel which = is_integer ? COLL__COMBINE_I64 : is_double ? COLL__COMBINE_F64 : COLL__COMBINE_F32;
    unsigned long long length = count, step = stride;
    int op = s->op == COLL_AVG ? (int)COLL_SUM : (int)s->op, order = s->order, ranks = (int)s->divisor;
    float divisor32 = (float)s->divisor, scale32 = (float)s->scale;
    double divisor64 = s->divisor, scale64 = s->scale;
    void *const divisor = is_integer ? (void *)&ranks : is_double ? (void *)&divisor64 : (void *)&divisor32;
    void *const scale = is_double ? (void *)&scale64 : (void *)&scale32;          /* not of integers          */
    void *all[] = { &in, &step, &n, &out, &length, &in_type, &out_type, &op, &order, divisor, scale };

    coll__kernel_run(me, which, count, all);
}

static void coll__nccl_convert(coll__nccl *me, void *to, coll_type to_type, const void *from, coll_type from_type, size_t count)
{
    const coll__sums same = { .op = COLL_SUM, .divisor = 1, .scale = 1 };
    coll__nccl_combine(me, &same, from_type, from, 0, 1, to_type, to, count);
}

/* COLL_DETECT_OVERFLOW: checks a result. */
static void coll__nccl_look_for_overflow(coll__nccl *me, const coll_call *call, coll__mark *mark)
{
    const bool is_complex = coll__is_complex(call->type);
    unsigned long long length = coll__result_count(me->owner, call) * (is_complex ? 2 : 1);
    coll_type type = call->type == COLL_C64 ? COLL_F32 : call->type == COLL_C128 ? COLL_F64 : call->type;
    const void *at = call->recv;
    volatile unsigned *found = mark->found;
    void *all[] = { &at, &length, &type, &found };

    if (coll__is_half(type) || type == COLL_F32 || type == COLL_F64) coll__kernel_run(me, COLL__OVERFLOW, (size_t)length, all);
}

/* ---- >>memory of a reduction ---- */

enum { COLL__NCCL_LINE = 256 };

/* The layout of the scratch memory. */
typedef struct coll__sum_plan {
    bool   is_at_once, converts;
    size_t shard;                                 /* numbers in a shard, but for the last ones                */
    size_t input, parts, result, length;          /* offsets in bytes: own input, parts, result; length of all */
} coll__sum_plan;

/* Numbers of shard `i` of `count`. */
static size_t coll__shard(const coll__sum_plan *plan, size_t count, int i)
{
    const size_t before = coll__least((size_t)i * plan->shard, count);
    return coll__least(plan->shard, count - before);
}

static coll__sum_plan coll__sum_plan_of(const coll_comm *comm, const coll_call *call, const coll__sums *s)
{
    const size_t n = (size_t)comm->size, count = call->count * s->times;
    const bool scatters = call->kind == COLL_REDUCE_SCATTER || call->kind == COLL_REDUCE_SCATTERV;
    const size_t own = coll__result_count(comm, call) * s->times;
    const size_t all = coll__input_extent(comm, call) * s->times;
    coll__sum_plan plan = { .converts = s->type != s->wire };

    plan.is_at_once = s->order || (!scatters && count * s->unit <= COLL__GATHER_MOST);
    plan.shard = plan.is_at_once ? count : scatters ? own : (count + n - 1) / n;
    plan.parts = coll__round_up(plan.converts ? all * s->unit : 0, COLL__NCCL_LINE);
    plan.result = plan.parts + coll__round_up(n * plan.shard * s->unit, COLL__NCCL_LINE);
    const bool is_direct = !plan.converts && (plan.is_at_once || scatters || (own && count == n * plan.shard));
    const size_t results = is_direct ? 0 : plan.is_at_once || scatters ? plan.shard : n * plan.shard;
    plan.length = plan.result + coll__round_up(results * s->unit, COLL__NCCL_LINE);
    return plan;
}

/* ---- >>at once, by shards ---- */

/* Copies the result to recv, converted if needed. */
static void coll__sums_deliver(coll__nccl *me, const coll_call *call, const coll__sums *s, const void *result, size_t count)
{
    if (s->type != s->wire) coll__nccl_convert(me, call->recv, s->type, result, s->wire, count);
    else coll__nccl_copy(me, call->recv, result, count * s->unit);
}

static void coll__sums_at_once(coll__nccl *me, const coll_call *call, const coll__sums *s, const coll__sum_plan *plan,
                               const void *input, unsigned char *scratch)
{
    const coll_comm *comm = me->owner;
    const size_t count = call->count * s->times;
    const int n = call->kind == COLL_SCAN ? comm->rank + 1 : call->kind == COLL_EXSCAN ? comm->rank : comm->size;
    unsigned char *const parts = scratch + plan->parts;
    void *const result = plan->converts ? scratch + plan->result : call->recv;

    if (count == 0) return;
    COLL__NCCL_DO(me, AllGather, input, parts, count * s->unit, COLL__NCCL_U8, me->comm, me->stream);
    if (coll__result_count(comm, call) == 0) return;
    coll__nccl_combine(me, s, s->wire, parts, count * s->unit, n, s->wire, result, count);
    coll__sums_deliver(me, call, s, result, count);
}

/* Every rank gets its shard of all inputs. */
static void coll__sums_spread(coll__nccl *me, const coll_call *call, const coll__sums *s, const coll__sum_plan *plan,
                              const unsigned char *input, unsigned char *parts)
{
    const coll_comm *comm = me->owner;
    const size_t count = call->count * s->times, stride = plan->shard * s->unit;
    const bool is_list = call->kind == COLL_REDUCE_SCATTERV, is_even = call->kind == COLL_REDUCE_SCATTER;
    const size_t own = is_list || is_even ? plan->shard : coll__shard(plan, count, comm->rank);

    coll__nccl_group(me);
    for (int i = 0; i < comm->size; i++) {
        const size_t numbers = is_list ? call->recv_counts[i] * s->times : is_even ? plan->shard : coll__shard(plan, count, i);
        const size_t at = is_list ? call->send_offsets[i] * s->times : (size_t)i * plan->shard;
        const unsigned char *const from = coll__behind(input, at * s->unit);
        if (i == comm->rank) {
            coll__nccl_copy(me, parts + (size_t)i * stride, from, numbers * s->unit);
            continue;
        }
        coll__nccl_send(me, from, numbers * s->unit, i);
        coll__nccl_recv(me, parts + (size_t)i * stride, own * s->unit, i);
    }
    coll__nccl_ungroup(me);
}

/* The root gets all shards of the result. */
static void coll__sums_collect(coll__nccl *me, const coll_call *call, const coll__sums *s, const coll__sum_plan *plan,
                               unsigned char *result)
{
    const coll_comm *comm = me->owner;
    const size_t count = call->count * s->times, stride = plan->shard * s->unit;

    coll__nccl_group(me);
    if (comm->rank != call->root)
        coll__nccl_send(me, result + (size_t)comm->rank * stride, coll__shard(plan, count, comm->rank) * s->unit, call->root);
    for (int i = 0; comm->rank == call->root && i < comm->size; i++)
        if (i != comm->rank) coll__nccl_recv(me, result + (size_t)i * stride, coll__shard(plan, count, i) * s->unit, i);
    coll__nccl_ungroup(me);
}

static void coll__sums_by_shards(coll__nccl *me, const coll_call *call, const coll__sums *s, const coll__sum_plan *plan,
                                 const void *input, unsigned char *scratch)
{
    const coll_comm *comm = me->owner;
    const bool scatters = call->kind == COLL_REDUCE_SCATTER || call->kind == COLL_REDUCE_SCATTERV;
    const size_t count = scatters ? plan->shard : call->count * s->times, stride = plan->shard * s->unit;
    const size_t own = scatters ? count : coll__shard(plan, count, comm->rank);
    const bool is_even = scatters || count == plan->shard * (size_t)comm->size;
    const bool has_result = call->kind != COLL_REDUCE || comm->rank == call->root;
    unsigned char *const parts = scratch + plan->parts;
    const bool is_aside = plan->converts || !is_even || !has_result;
    unsigned char *const result = is_aside ? scratch + plan->result : (unsigned char *)call->recv;
    unsigned char *const shard = scatters ? result : result + (size_t)comm->rank * stride;

    coll__sums_spread(me, call, s, plan, (const unsigned char *)input, parts);
    coll__nccl_combine(me, s, s->wire, parts, stride, comm->size, s->wire, shard, own);
    if (call->kind == COLL_REDUCE) coll__sums_collect(me, call, s, plan, result);
    else if (!scatters && stride)
        COLL__NCCL_DO(me, AllGather, shard, result, stride, COLL__NCCL_U8, me->comm, me->stream);
    if (has_result) coll__sums_deliver(me, call, s, result, count);
}

static void coll__nccl_sum(coll__nccl *me, const coll_call *call, const coll__sums *s)
{
    const coll__sum_plan plan = coll__sum_plan_of(me->owner, call, s);
    unsigned char *const scratch = coll__nccl_scratch(me, plan.length);
    const void *input = call->send;

    if (!scratch) return;
    if (plan.converts) {
        coll__nccl_convert(me, scratch, s->wire, call->send, s->type, coll__input_extent(me->owner, call) * s->times);
        input = scratch;
    }
    if (plan.is_at_once) coll__sums_at_once(me, call, s, &plan, input, scratch);
    else coll__sums_by_shards(me, call, s, &plan, input, scratch);
}

/* Divides and scales the sum of NCCL. */
static void coll__nccl_finish(coll__nccl *me, const coll_call *call, const coll__sums *s)
{
    const size_t count = coll__result_count(me->owner, call) * s->times;
    coll__sums one = *s;

    one.op = COLL_SUM;
    if (coll__is_integer(s->type) || (s->divisor <= 1 && s->scale >= 1 && s->scale <= 1)) return;
    coll__nccl_combine(me, &one, s->wire, call->recv, 0, 1, s->wire, call->recv, count);
}

#endif /* COLL_NCCL_SUMS_H */
