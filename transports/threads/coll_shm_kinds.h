/* coll_shm_kinds.h - the table of kinds: which ranks depend on which, and what a rank does once they have published. */
#ifndef COLL_SHM_KINDS_H
#define COLL_SHM_KINDS_H

static void coll__read_nothing(const coll__shm_op *t) { (void)t; }

static const coll__form coll__forms[] = {
    [COLL_BARRIER] = { .eager = COLL__EAGER_EMPTY, .eager_from = COLL__ALL_PEERS, .read = coll__read_nothing },
#if COLL__HAS_BROADCAST
    [COLL_BROADCAST] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__THE_ROOT,
                         .read = coll__read_root, .share = coll__share_broadcast },
#endif
#if COLL__HAS_REDUCE
    [COLL_REDUCE] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__ON_ROOT,
                      .staged = COLL__STAGED_SHARE, .read = coll__read_sum, .share = coll__share_reduce,
                      .probe = coll__probe_parts },
#endif
    [COLL_ALLREDUCE] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__ALL_PEERS,
                         .staged = COLL__STAGED_SHARE, .read = coll__read_sum, .share = coll__share_reduce,
                         .probe = coll__probe_parts, .end = coll__end_allreduce },
#if COLL__HAS_REDUCE_SCATTER
    [COLL_REDUCE_SCATTER] = { .eager = COLL__EAGER_EACH, .eager_from = COLL__ALL_PEERS,
                              .staged = COLL__STAGED_INPUT,
                              .read = coll__read_sum, .share = coll__share_reduce_scatter, .probe = coll__probe_parts,
                              .begin = coll__begin_reduce_scatter, .end = coll__end_reduce_scatter },
#if COLL__HAS_COUNTS
    [COLL_REDUCE_SCATTERV] = { .eager = COLL__EAGER_LIST, .eager_from = COLL__ALL_PEERS,
                               .read = coll__read_sum, .share = coll__share_reduce_scatter, .probe = coll__probe_parts,
                               .begin = coll__begin_reduce_scatter, .end = coll__end_reduce_scatter },
#endif
#endif
#if COLL__HAS_SCAN
    [COLL_SCAN] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__LOWER,
                    .staged = COLL__STAGED_ALL, .read = coll__read_scan, .share = coll__share_scan,
                    .probe = coll__probe_parts },
    [COLL_EXSCAN] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__LOWER,
                      .staged = COLL__STAGED_ALL, .read = coll__read_scan, .share = coll__share_scan,
                      .probe = coll__probe_parts },
#endif
#if COLL__HAS_GATHER
    [COLL_GATHER] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__ON_ROOT, .with_root = true,
                      .read = coll__read_all, .share = coll__share_gather },
    [COLL_GATHERV] = { .with_root = true, .share = coll__share_gather },
#endif
#if COLL__HAS_SCATTER
    [COLL_SCATTER] = { .eager = COLL__EAGER_EACH, .eager_from = COLL__THE_ROOT, .with_root = true,
                       .read = coll__read_root, .share = coll__share_scatter },
    [COLL_SCATTERV] = { .with_root = true, .share = coll__share_scatter },
#endif
    [COLL_ALLGATHER] = { .eager = COLL__EAGER_ONE, .eager_from = COLL__ALL_PEERS,
                         .read = coll__read_all, .share = coll__share_fetch },
    [COLL_ALLGATHERV] = { .eager = COLL__EAGER_OWN, .eager_from = COLL__ALL_PEERS, .read = coll__read_list,
                          .share = coll__share_fetch },
#if COLL__HAS_ALLTOALL
    [COLL_ALLTOALL] = { .eager = COLL__EAGER_EACH, .eager_from = COLL__ALL_PEERS,
                        .read = coll__read_all, .share = coll__share_fetch, .probe = coll__probe_blocks,
                        .begin = coll__begin_alltoall },
    [COLL_ALLTOALLV] = { .share = coll__share_fetch, .probe = coll__probe_blocks,
                        .begin = coll__begin_alltoall },
    [COLL_ALLTOALLW] = { .share = coll__share_fetch, .probe = coll__probe_blocks,
                        .begin = coll__begin_alltoall },
#endif
};

/* An allreduce over nodes: never eager, because ranks have different numbers of them. */
static const coll__form coll__form_of_nodes = { .staged = COLL__STAGED_SHARE, .share = coll__share_reduce,
                                                .probe = coll__probe_parts };

/* NULL: not supported here. */
static inline const coll__form *coll__form_of(coll_kind kind)
{
    const coll__form *form = (size_t)kind < sizeof coll__forms / sizeof *coll__forms ? &coll__forms[kind] : NULL;
    return form && (form->read || form->share) ? form : NULL;
}

static inline const coll__form *coll__form_for(const coll_task *task)
{
    return COLL__LEAVES_OF(task->codec) ? &coll__form_of_nodes : coll__form_of(task->call->kind);
}

#endif /* COLL_SHM_KINDS_H */
