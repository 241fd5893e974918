/* coll_mpi_group.h - groups: communicators of MPI for derived communicators, whose collectives have their own order.
 *
 * MPI matches collectives by the order in which a communicator's ranks start them.  A derived communicator is created while all
 * its members are inside that call.  So this may block (MPI_Comm_create_group).  Prepared calls have orders of their own, and
 * would each need a communicator of MPI, which has only some thousands.  They use messages.  So do stages of hierarchical calls,
 * whose orders are created during a call.
 *
 * A rank that leaves a group sends its members the number of collectives that it has begun there.  A member in a later one then
 * fails. */
#ifndef COLL_MPI_GROUP_H
#define COLL_MPI_GROUP_H

static void coll__mpi_group_init(coll__mpi_group *g, coll__mpi *mpi, uint64_t id, int count, int me)
{
    *g = (coll__mpi_group){ .mpi = mpi, .id = id, .count = count, .me = me, .comm = MPI_COMM_NULL, .request = MPI_REQUEST_NULL };
}

static void coll__mpi_group_free(coll__mpi_group *g)
{
    if (!g->mpi->is_finalized && g->comm != MPI_COMM_NULL) MPI_Comm_free(&g->comm);
    coll__give(g->stage);
    coll__give(g->lists);
    coll__mpi_intents_free(g);
    if (g != &g->mpi->all) coll__give(g);
}

static coll__mpi_group *coll__mpi_group_of(const coll__mpi *mpi, uint64_t id)
{
    coll__mpi_group *g = mpi->groups;

    while (g && g->id != id) g = g->next;
    return g;
}

/* Member `i` has left after it has begun so many collectives. */
static void coll__mpi_member_left(coll__mpi_group *g, int i, uint64_t began)
{
    if (!g->left || g->left[i]) return;
    g->left[i] = began + 1;
    g->left_count++;
}

/* A rank has left a group.  Its members have created it: they were inside the same call. */
static void coll__mpi_gone_from(coll__mpi *mpi, uint64_t id, int rank, uint64_t began)
{
    coll__mpi_group *g = coll__mpi_group_of(mpi, id);

    for (int i = 0; g && i < g->count; i++) if (g->ranks[i] == rank) coll__mpi_member_left(g, i, began);
}

/* ---- >>creation ---- */

/* For a derived communicator: all members are inside the call that creates it.  Returns MPI's code. */
static int coll__mpi_make_derived(coll__mpi_group *g)
{
    MPI_Group all_ranks = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    const int tag = (int)(coll__mix64(g->id) % 32768);
    int code = MPI_Comm_group(g->mpi->origin, &all_ranks);

    if (code == MPI_SUCCESS) code = MPI_Group_incl(all_ranks, g->count, g->ranks, &some);
    if (code == MPI_SUCCESS) code = MPI_Comm_create_group(g->mpi->origin, some, tag, &g->comm);
    if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
    if (all_ranks != MPI_GROUP_NULL) MPI_Group_free(&all_ranks);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = coll__mpi_intents_make(g);
    return code;
}

/* Returns whether MPI has completed all operations of a group. */
static bool coll__mpi_is_at_rest(coll__mpi_group *g)
{
    int is_done = !g->is_running;

    if (g->is_running && MPI_Test(&g->request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) is_done = 0;
    g->is_running = !is_done;
    return is_done;
}

/* Frees groups that were left while MPI had incomplete operations for them, which it cannot cancel. */
static void coll__mpi_sweep(coll__mpi *mpi)
{
    for (coll__mpi_group **at = &mpi->orphans, *g; (g = *at) != NULL;) {
        if (!coll__mpi_is_at_rest(g)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        coll__mpi_group_free(g);
    }
}

static void *coll__mpi_group_make(void *context, uint64_t id, uint32_t number, const int *ranks, int count, int me)
{
    coll__mpi *mpi = (coll__mpi *)context;
    const size_t n = (size_t)count;

    if (mpi->mode == COLL__MPI_MESSAGES || count == 1 || number) return NULL;
    if (mpi->failure.status != COLL_OK || !coll__mpi_may_call(mpi)) return NULL;
    coll__mpi_sweep(mpi);
    coll__mpi_group *g = (coll__mpi_group *)coll__allocate(coll__like(mpi), sizeof *g + n * (sizeof *g->left + sizeof *g->ranks));
    if (!g) {
        coll__set_failure(&mpi->suspicion, COLL_ERR_MEMORY, mpi->rank, "rank %d has no memory for a communicator", mpi->rank);
        return NULL;
    }
    coll__mpi_group_init(g, mpi, id, count, me);
    g->left = (uint64_t *)(void *)(g + 1);
    g->ranks = (int *)(void *)(g->left + n);
    memcpy(g->ranks, ranks, n * sizeof *ranks);
    if (coll__mpi_make_derived(g) != MPI_SUCCESS) {           /* no communicator is left: same on all its ranks */
        coll__mpi_group_free(g);
        return NULL;
    }
    g->next = mpi->groups;
    mpi->groups = g;
    return g;
}

/* ---- >>leaving ---- */

static void coll__mpi_group_say_gone(coll__mpi_group *g)
{
    coll__mpi *mpi = g->mpi;
    const coll__mpi_note note = { .word = COLL__MPI_GONE, .from = mpi->rank, .group = g->id, .counts = { g->turn } };

    for (int i = 0; i < g->count; i++)
        if (i != g->me && !mpi->has_left[g->ranks[i]] && !g->left[i]) coll__mpi_note_send(mpi, &note, g->ranks[i]);
}

static void coll__mpi_ungroup(void *context, void *handle)
{
    coll__mpi *mpi = (coll__mpi *)context;
    coll__mpi_group *g = (coll__mpi_group *)handle, **at = &mpi->groups;

    COLL__ASSERT(coll__mpi_group_of(mpi, g->id), "group %llx is left, and is none of rank %d",
                 (unsigned long long)g->id, mpi->rank);
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    const bool may_call = !mpi->is_finalized && coll__mpi_may_call(mpi);
    if (may_call && mpi->failure.status == COLL_OK) coll__mpi_group_say_gone(g);
    g->next = mpi->orphans;
    mpi->orphans = g;
    if (may_call) coll__mpi_sweep(mpi);
}

#endif /* COLL_MPI_GROUP_H */
