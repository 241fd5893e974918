/* coll_mpi_native.h - whole collectives by MPI: the calls of coll_mpi_selection.h, each started in its non-blocking form and
 * tested until it is complete.  They use the blocking form if all ranks do (coll_mpi_forms.h), or if the program guarantees that
 * this is safe (COLL_MPI=blocking).
 *
 * In place becomes MPI_IN_PLACE at a root.  Otherwise MPI requires it on all ranks or none, because it may use another algorithm
 * then (Open MPI's MPI_Iallreduce does).  If a rank does not know whether all are in place, it copies the input. */
#ifndef COLL_MPI_NATIVE_H
#define COLL_MPI_NATIVE_H

#if COLL__MPI_LARGE
#define COLL__MPI_CALL(name) name##_c
#else
#define COLL__MPI_CALL(name) name
#endif

/* Memory of the group for what cannot be in the caller's; NULL: none.  It grows as needed. */
static unsigned char *coll__mpi_stage(coll__mpi_group *g, size_t length)
{
    if (length > g->stage_length) {
        coll__give(g->stage);
        g->stage = (unsigned char *)coll__take(coll__like(g->mpi), length);
        g->stage_length = g->stage ? length : 0;
    }
    return g->stage;
}

/* The arguments of an MPI call. */
typedef struct coll__mpi_terms {
    const void *send;
    void       *recv;
    coll__mpi_int count;                          /* of a block                                               */
    MPI_Datatype type;
    MPI_Op      op;
    coll__mpi_int *send_counts, *recv_counts;     /* v forms                                                  */
    coll__mpi_offset *send_offsets, *recv_offsets;
} coll__mpi_terms;

/* The lists of a v form in MPI's types.  Returns false: no memory. */
static bool coll__mpi_list(coll__mpi_group *g, const coll_call *c, size_t each, coll__mpi_terms *t)
{
    const size_t n = (size_t)g->count, words = 2 * n * (sizeof(coll__mpi_int) + sizeof(coll__mpi_offset));
    const bool is_root = g->me == c->root, sends = c->kind == COLL_ALLTOALLV || (c->kind == COLL_SCATTERV && is_root);
    const bool receives = c->kind != COLL_SCATTERV && (c->kind != COLL_GATHERV || is_root);
    const size_t *const lists[] = { sends ? c->send_counts : NULL, receives ? c->recv_counts : NULL,
                                    sends ? c->send_offsets : NULL, receives ? c->recv_offsets : NULL };

    if (!g->lists) g->lists = coll__take(coll__like(g->mpi), words);
    if (!g->lists) return false;
    coll__mpi_offset *offsets = (coll__mpi_offset *)g->lists;
    coll__mpi_int *counts = (coll__mpi_int *)(void *)(offsets + 2 * n);
    t->send_counts = counts;
    t->recv_counts = counts + n;
    t->send_offsets = offsets;
    t->recv_offsets = offsets + n;
    for (size_t i = 0; i < n; i++) {
        for (size_t side = 0; side < 2; side++) {
            if (lists[side]) counts[side * n + i] = (coll__mpi_int)(lists[side][i] * each);
            if (lists[2 + side]) offsets[side * n + i] = (coll__mpi_offset)(lists[2 + side][i] * each);
        }
    }
    return true;
}

/* Bytes from the start of a buffer to the end of its last block. */
static size_t coll__mpi_extent(const coll__mpi_group *g, const coll_call *c, size_t unit)
{
    size_t most = 0;

    if (c->kind == COLL_ALLTOALL) return c->count * unit * (size_t)g->count;
    for (int i = 0; i < g->count; i++)
        if (c->recv_counts[i]) most = coll__most(most, (c->recv_offsets[i] + c->recv_counts[i]) * unit);
    return most;
}

/* Returns whether this rank's own block is already in place. */
static bool coll__mpi_has_block(const void *all, const void *block, size_t offset)
{
    return (const unsigned char *)block == (const unsigned char *)all + offset;
}

/* Returns whether the result of a reduce_scatter begins in its input. */
static bool coll__mpi_is_inside(const coll__mpi_group *g, const coll_call *c, size_t unit)
{
    const uintptr_t from = (uintptr_t)c->send, to = (uintptr_t)c->recv;
    size_t all = c->count * (size_t)g->count;

    if (c->kind == COLL_REDUCE_SCATTERV) all = 0;
    for (int i = 0; c->kind == COLL_REDUCE_SCATTERV && i < g->count; i++) all += c->recv_counts[i];
    return to >= from && to - from <= all * unit;
}

/* Sends from a copy.  Returns false: no memory. */
static bool coll__mpi_send_copy(coll__mpi_group *g, coll__mpi_terms *t, size_t length)
{
    unsigned char *copy = length ? coll__mpi_stage(g, length) : NULL;

    if (copy) memcpy(copy, t->send, length);
    if (copy) t->send = copy;
    return copy || !length;
}

/* Returns whether this rank's call is in place, for kinds in which MPI requires that on all ranks or none. */
static bool coll__mpi_is_in_place(const coll__mpi_group *g, const coll_call *c, size_t unit)
{
    const size_t me = (size_t)g->me;

    switch (c->kind) {
    case COLL_ALLREDUCE:
    case COLL_SCAN:
    case COLL_EXSCAN:     return c->send == c->recv;
    case COLL_ALLGATHER:  return coll__mpi_has_block(c->recv, c->send, me * c->count * unit);
    case COLL_ALLGATHERV: return coll__mpi_has_block(c->recv, c->send, c->recv_offsets[me] * unit);
    default: return false;
    }
}

/* Sets MPI_IN_PLACE, or copies.  Returns false: no memory. */
static bool coll__mpi_place(coll__mpi_group *g, const coll_call *c, size_t unit, coll__mpi_terms *t)
{
    const size_t me = (size_t)g->me, at = me * c->count * unit;
    const bool is_root = g->me == c->root;

    if (g->in_place) return t->send = MPI_IN_PLACE, true;
    if (coll__mpi_is_in_place(g, c, unit))
        return coll__mpi_send_copy(g, t, (c->kind == COLL_ALLGATHERV ? c->recv_counts[me] : c->count) * unit);
    switch (c->kind) {
    case COLL_REDUCE:     if (is_root && t->send == t->recv) t->send = MPI_IN_PLACE; return true;
    case COLL_GATHER:     if (is_root && coll__mpi_has_block(t->recv, t->send, at)) t->send = MPI_IN_PLACE; return true;
    case COLL_SCATTER:    if (is_root && coll__mpi_has_block(t->send, t->recv, at)) t->recv = MPI_IN_PLACE; return true;
    case COLL_GATHERV:
        if (is_root && coll__mpi_has_block(t->recv, t->send, c->recv_offsets[me] * unit)) t->send = MPI_IN_PLACE;
        return true;
    case COLL_SCATTERV:
        if (is_root && coll__mpi_has_block(t->send, t->recv, c->send_offsets[me] * unit)) t->recv = MPI_IN_PLACE;
        return true;
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV:
        if (!coll__mpi_is_inside(g, c, unit)) return true;
        g->result_length = (c->kind == COLL_REDUCE_SCATTER ? c->count : c->recv_counts[me]) * unit;
        t->recv = coll__mpi_stage(g, g->result_length + 1);
        return t->recv != NULL;
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:  return t->send != t->recv || coll__mpi_send_copy(g, t, coll__mpi_extent(g, c, unit));
    default: return true;
    }
}

/* ---- >>start ---- */

/* One of the two forms of a call; the same on all ranks. */
#define COLL__MPI_RUN(name, i_name, ...)                                                                    \
    (g->form == COLL__MPI_IS_BLOCKING ? COLL__MPI_CALL(MPI_##name)(__VA_ARGS__)                           \
                                        : COLL__MPI_CALL(MPI_##i_name)(__VA_ARGS__, &g->request))

/* Starts a reduction; returns MPI's code. */
static int coll__mpi_start_sum(coll__mpi_group *g, const coll_call *c, const coll__mpi_terms *t)
{
    switch (c->kind) {
    case COLL_REDUCE:
        return COLL__MPI_RUN(Reduce, Ireduce, t->send, t->recv, t->count, t->type, t->op, c->root, g->comm);
    case COLL_ALLREDUCE:
        return COLL__MPI_RUN(Allreduce, Iallreduce, t->send, t->recv, t->count, t->type, t->op, g->comm);
    case COLL_REDUCE_SCATTER:
        return COLL__MPI_RUN(Reduce_scatter_block, Ireduce_scatter_block, t->send, t->recv, t->count, t->type, t->op, g->comm);
    case COLL_REDUCE_SCATTERV:
        return COLL__MPI_RUN(Reduce_scatter, Ireduce_scatter, t->send, t->recv, t->recv_counts, t->type, t->op, g->comm);
    case COLL_SCAN:
        return COLL__MPI_RUN(Scan, Iscan, t->send, t->recv, t->count, t->type, t->op, g->comm);
    default:
        return COLL__MPI_RUN(Exscan, Iexscan, t->send, t->recv, t->count, t->type, t->op, g->comm);
    }
}

/* Starts a collective that moves blocks. */
static int coll__mpi_start_move(coll__mpi_group *g, const coll_call *c, const coll__mpi_terms *t)
{
    const MPI_Datatype type = t->type;
    const coll__mpi_int n = t->count;

    switch (c->kind) {
    case COLL_BARRIER:
        return g->form == COLL__MPI_IS_BLOCKING ? MPI_Barrier(g->comm) : MPI_Ibarrier(g->comm, &g->request);
    case COLL_BROADCAST:
        return COLL__MPI_RUN(Bcast, Ibcast, t->recv, n, type, c->root, g->comm);
    case COLL_GATHER:
        return COLL__MPI_RUN(Gather, Igather, t->send, n, type, t->recv, n, type, c->root, g->comm);
    case COLL_SCATTER:
        return COLL__MPI_RUN(Scatter, Iscatter, t->send, n, type, t->recv, n, type, c->root, g->comm);
    case COLL_ALLGATHER:
        return COLL__MPI_RUN(Allgather, Iallgather, t->send, n, type, t->recv, n, type, g->comm);
    case COLL_ALLTOALL:
        return COLL__MPI_RUN(Alltoall, Ialltoall, t->send, n, type, t->recv, n, type, g->comm);
    case COLL_GATHERV:
        return COLL__MPI_RUN(Gatherv, Igatherv, t->send, n, type, t->recv, t->recv_counts, t->recv_offsets, type, c->root,
                             g->comm);
    case COLL_SCATTERV:
        return COLL__MPI_RUN(Scatterv, Iscatterv, t->send, t->send_counts, t->send_offsets, type, t->recv, n, type, c->root,
                             g->comm);
    case COLL_ALLGATHERV:
        return COLL__MPI_RUN(Allgatherv, Iallgatherv, t->send, n, type, t->recv, t->recv_counts, t->recv_offsets, type,
                             g->comm);
    default:
        return COLL__MPI_RUN(Alltoallv, Ialltoallv, t->send, t->send_counts, t->send_offsets, type, t->recv, t->recv_counts,
                             t->recv_offsets, type, g->comm);
    }
}

/* Begins a collective in MPI.  Returns its code. */
static int coll__mpi_begin(coll__mpi_group *g, const coll_call *c)
{
    const size_t unit = coll_type_size(c->type);
    const bool reduces = coll__kind_reduces(c->kind);
    const size_t each = reduces ? 1 : unit;       /* elements that are only moved are bytes                   */
    coll__mpi_terms t = { .send = c->send, .recv = c->recv, .type = MPI_BYTE, .op = MPI_OP_NULL };

    if (reduces) t.type = coll__mpi_number(c->type), t.op = coll__mpi_op(c->op);
    t.count = (coll__mpi_int)((c->kind == COLL_SCATTERV ? c->recv_count : c->count) * each);
    COLL__ASSERT(!g->is_running && g->comm != MPI_COMM_NULL, "%s begins as collective %llu of a group that %s",
                 coll_kind_name(c->kind), (unsigned long long)g->turn, g->is_running ? "runs another" : "is not made");
    g->is_done = false;
    g->result_length = 0;
    if (coll__kind_is(c->kind, COLL__SUMMED | COLL__PAIRWISE) && !coll__mpi_list(g, c, each, &t)) return MPI_ERR_NO_MEM;
    if (!coll__mpi_place(g, c, unit, &t)) return MPI_ERR_NO_MEM;
    const int code = reduces ? coll__mpi_start_sum(g, c, &t) : coll__mpi_start_move(g, c, &t);
    g->is_done = g->form == COLL__MPI_IS_BLOCKING;
    g->is_running = code == MPI_SUCCESS && !g->is_done;
    return code;
}

/* ---- >>offload ---- */

/* A member that has left before this collective never takes part in it. */
static coll_status coll__mpi_check_members(const coll__mpi_group *g, coll_failure *failure)
{
    const int me = g->mpi->rank;

    for (int i = 0; g->left_count && i < g->count; i++) {
        if (!g->left[i] || g->left[i] > g->turn) continue;
        const int rank = g->ranks ? g->ranks[i] : i;
        return coll__set_failure(failure, COLL_ERR_PEER, rank,
                                 "rank %d has left the communicator, and rank %d still waits for it",
                                 rank, me);
    }
    return COLL_PENDING;
}

/* Tests the request of a collective.  Open MPI passes its error to the error handler of MPI_COMM_WORLD, which usually ends the
 * process.  So that handler is replaced meanwhile, unless other threads may use it. */
static int coll__mpi_test(const coll__mpi *mpi, MPI_Request *request, int *is_done)
{
#if defined(OPEN_MPI)
    MPI_Errhandler theirs;
    int code = MPI_Request_get_status(*request, is_done, MPI_STATUS_IGNORE);

    if (code != MPI_SUCCESS || !*is_done) return code;
    if (mpi->thread_level < MPI_THREAD_MULTIPLE && MPI_Comm_get_errhandler(MPI_COMM_WORLD, &theirs) == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        code = MPI_Test(request, is_done, MPI_STATUS_IGNORE);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, theirs);
        MPI_Errhandler_free(&theirs);
        return code;
    }
#endif
    (void)mpi;
    return MPI_Test(request, is_done, MPI_STATUS_IGNORE);
}

/* Tests the collective of a group. */
static bool coll__mpi_is_done(coll__mpi_group *g)
{
    int is_done = 0;

    if (!g->is_running || g->is_done) return g->is_done;
    const int code = coll__mpi_test(g->mpi, &g->request, &is_done);
    if (code != MPI_SUCCESS) g->error = code, is_done = 1;
    g->is_done = is_done != 0;
    if (g->is_done) g->is_running = false, g->mpi->quiet = 0;
    return g->is_done;
}

enum { COLL__MPI_NEW, COLL__MPI_ASKS, COLL__MPI_BEGUN };     /* task->state[0]                                */

static coll_status coll__mpi_offload(void *context, coll_task *task, coll_failure *failure)
{
    coll__mpi *mpi = (coll__mpi *)context;
    coll__mpi_group *g = task->group ? (coll__mpi_group *)task->group : &mpi->all;

    if (task->state[0] == COLL__MPI_NEW) {
        if (coll__mpi_objects(task->call, g->count)) return COLL_ERR_UNSUPPORTED;
        if (!coll__mpi_may_call(mpi))
            return coll__set_failure(failure, mpi->suspicion.status, mpi->rank, "%s", mpi->suspicion.text);
        task->state[0] = COLL__MPI_ASKS;
        g->turn++;
        mpi->quiet = 0;
        coll__mpi_form_begin(g, task, coll__mpi_is_in_place(g, task->call, coll_type_size(task->call->type)));
    }
    if (task->state[0] == COLL__MPI_ASKS) {
        if (coll__mpi_form_of(g) == COLL__MPI_IS_OPEN) return coll__mpi_check_members(g, failure);
        task->state[0] = COLL__MPI_BEGUN;
        if (mpi->committed == g) mpi->committed = NULL;
        g->error = coll__mpi_begin(g, task->call);
        if (g->error != MPI_SUCCESS) return coll__mpi_failed(failure, mpi, coll_kind_name(task->call->kind), g->error);
    }
    if (!coll__mpi_is_done(g)) return coll__mpi_check_members(g, failure);
    if (g->error != MPI_SUCCESS) return coll__mpi_failed(failure, mpi, coll_kind_name(task->call->kind), g->error);
    if (g->result_length) memcpy(task->call->recv, g->stage, g->result_length);
    return COLL_OK;
}

#endif /* COLL_MPI_NATIVE_H */
