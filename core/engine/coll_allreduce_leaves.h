/* coll_allreduce_leaves.h - allreduce over leaves: ranks exchange their runs, check them, and reduce the terms of their tree
 * (coll_leaves.h).  If the tree is that over the ranks, and elements of nodes and results have the same type, the second step is
 * an ordinary allreduce in the canonical order. */
#ifndef COLL_ALLREDUCE_LEAVES_H
#define COLL_ALLREDUCE_LEAVES_H

#if COLL__HAS_LEAVES

typedef struct coll__leaf_run { int64_t first, leaves; } coll__leaf_run;

/* The state of a call. */
typedef struct coll__leaf_call {
    coll_request sub;                             /* the exchange of runs, then the sum                       */
    bool         is_summing;
    coll__leaves tree;
    void        *lists;                           /* of the tree                                              */
    coll__leaf_run runs[];                        /* of every rank                                            */
} coll__leaf_call;

static inline coll__leaf_call *coll__leaf_call_of(const coll_request *r) { return (coll__leaf_call *)r->carried; }

static bool coll__leaves_take(const coll_request *r) { return r->call.leaves != 0 && r->call.kind == COLL_ALLREDUCE; }

static coll_status coll__leaves_bind(coll_request *r)
{
    const size_t length = sizeof(coll__leaf_call) + (size_t)r->comm->size * sizeof(coll__leaf_run);
    coll__leaf_call *const l = (coll__leaf_call *)coll__allocate(coll__like(r->comm), length);

    if (!l) return coll__explain_error(r->comm, &r->call, COLL_ERR_MEMORY, "no memory for the runs of leaves");
    r->carried = l;
    return COLL_OK;
}

static void coll__leaves_unbind(coll_request *r)
{
    if (r->carried) coll__give(coll__leaf_call_of(r)->lists);
    coll__give(r->carried);
    r->carried = NULL;
}

/* Begin a call of this call, in the same order, with its fingerprint. */
static void coll__leaves_call(const coll_request *whole, const coll_call *call, const coll__codec *codec)
{
    coll_request *const r = &coll__leaf_call_of(whole)->sub;

    *r = (coll_request){ .comm = whole->comm, .order = whole->order, .workspace = whole->workspace, .call = *call,
                         .codec = *codec, .status = COLL_PENDING, .sequence = whole->sequence, .got_source = -1,
                         .got_tag = -1 };
    r->call.leaves = 0;
    memcpy(r->head, whole->head, COLL_HEAD_LENGTH);
    r->carrier = coll__carrier_of(r);
    coll__task_init(r);
}

static coll_status coll__leaves_start(coll_request *r)
{
    coll__leaf_call *const l = coll__leaf_call_of(r);
    coll__leaf_run *const own = &l->runs[r->comm->rank];
    const coll_call exchange = { .kind = COLL_ALLGATHER, .send = own, .recv = l->runs, .count = sizeof(coll__leaf_run),
                                 .type = COLL_U8, .wire = COLL_U8 };
    coll__codec codec;

    *own = (coll__leaf_run){ r->call.first_leaf, r->call.leaves > 0 ? r->call.leaves : 0 };
    l->is_summing = false;
    (void)coll__codec_move(&codec, COLL_U8);
    coll__leaves_call(r, &exchange, &codec);
    return COLL_PENDING;
}

/* Do the runs adjoin, from leaf 0 on?  Otherwise the same sentence on every rank. */
static coll_status coll__leaves_check(const coll_request *r, int64_t *all)
{
    const coll__leaf_run *const runs = coll__leaf_call_of(r)->runs;
    coll_failure failure = { COLL_OK, -1, "" };
    int before = -1;

    *all = 0;
    for (int i = 0; i < r->comm->size && failure.status == COLL_OK; i++) {
        const coll__leaf_run *const run = &runs[i];
        const int rank = coll__world_rank(r->comm, i);
        if (run->leaves == 0) continue;
        if ((uint64_t)run->leaves > (uint64_t)(INT_MAX - *all))
            coll__set_failure(&failure, COLL_ERR_MISMATCH, rank, "rank %d has %lld leaves, and the ranks before it %lld: at most "
                              "%d are possible", rank, (long long)run->leaves, (long long)*all, INT_MAX);
        else if (run->first != *all && before < 0)
            coll__set_failure(&failure, COLL_ERR_MISMATCH, rank, "the first leaves, those of rank %d, begin with leaf %lld: they "
                              "must begin with 0", rank, (long long)run->first);
        else if (run->first != *all)
            coll__set_failure(&failure, COLL_ERR_MISMATCH, rank, "rank %d has leaves %lld to %lld, but those of rank %d end with "
                              "%lld: runs must adjoin, in the order of the ranks", rank, (long long)run->first,
                              (long long)(run->first + run->leaves - 1), before, (long long)*all - 1);
        before = rank;
        *all += failure.status == COLL_OK ? run->leaves : 0;
    }
    if (*all == 0) coll__set_failure(&failure, COLL_ERR_MISMATCH, -1, "no rank has leaves");
    return failure.status == COLL_OK ? COLL_OK : coll__comm_fail(r->comm, &failure);
}

/* Make the tree of the runs. */
static coll_status coll__leaves_plan(const coll_request *r)
{
    coll__leaf_call *const l = coll__leaf_call_of(r);
    const int size = r->comm->size;
    const bool are_sums = !coll__wants_reproducible(&r->call);    /* and not the leaves themselves                */
    int64_t nodes = 0;

    for (int i = 0; i < size; i++) nodes += coll__leaf_vectors(l->runs[i].first, l->runs[i].leaves, are_sums);
    (void)coll__make_room(r->comm, &l->lists, (size_t)nodes * (sizeof(coll__leaf_node) + sizeof(coll__leaf_term))
                                              + (2 * (size_t)nodes + (size_t)size + 1) * sizeof(int));
    if (!l->lists) return coll__has_no_memory(r->comm);
    coll__leaves *const t = &l->tree;
    *t = (coll__leaves){ .are_sums = are_sums, .node = (coll__leaf_node *)l->lists };
    t->term = (coll__leaf_term *)(void *)(t->node + nodes);
    t->node_number = (int *)(void *)(t->term + nodes);
    t->term_number = t->node_number + nodes;
    t->first_term = t->term_number + nodes;
    for (int i = 0; i < size; i++) coll__leaves_add(t, i, l->runs[i].first, l->runs[i].leaves);
    coll__leaves_settle(t, r->comm->rank, size);
    return COLL_OK;
}

/* The runs are known: start the sum. */
static coll_status coll__leaves_sum(const coll_request *r)
{
    coll__leaf_call *const l = coll__leaf_call_of(r);
    coll__codec codec = r->codec;
    coll_call call = r->call;
    int64_t all;
    coll_status status = coll__leaves_check(r, &all);

    if (status == COLL_OK) status = coll__leaves_plan(r);
    if (status < 0) return status;
    const bool is_one_type = !l->tree.are_sums || (codec.acc_size == codec.type_size && coll__is_same(&codec));
    call.flags &= ~(unsigned)COLL_DETECT_OVERFLOW;
    if (call.op == COLL_AVG) codec.divisor = (int)all;
    if (is_one_type && coll__leaves_are_ranks(&l->tree, r->comm->size)) {
        if (l->tree.are_sums) call.flags |= COLL_DETERMINISTIC;
    } else {
        call.algorithm = COLL__HAS_CHOICE ? "direct" : NULL;
        call.flags |= COLL__OVER_NODES;
        codec.leaves = &l->tree;
    }
    coll__leaves_call(r, &call, &codec);
    l->is_summing = true;
    return COLL_PENDING;
}

static coll_status coll__leaves_advance(coll_request *r)
{
    coll__leaf_call *const l = coll__leaf_call_of(r);
    coll_status status = coll__carry_on(&l->sub);

    if (status != COLL_OK || l->is_summing) return status;
    status = coll__leaves_sum(r);
    return status < 0 ? status : coll__carry_on(&l->sub);
}

static COLL__UNUSED void coll__leaves_late(const coll_request *r, unsigned char *is_late)
{
    const coll_request *const sub = &coll__leaf_call_of(r)->sub;

    if (r->is_started && sub->carrier->late) sub->carrier->late(sub, is_late);
}

#endif
#endif /* COLL_ALLREDUCE_LEAVES_H */
