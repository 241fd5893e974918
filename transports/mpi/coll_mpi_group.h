/* coll_mpi_group.h - groups: communicators of MPI for derived communicators and prepared calls, whose collectives have their own
 * order.
 *
 * MPI matches collectives by the order in which a communicator's ranks start them, including the creation of communicators.  So
 * every group has two: one for its collectives, and its origin, from which those of its prepared calls are created: all ranks
 * prepare in one order.  A derived communicator is created while all its members are inside that call.  So this may block
 * (MPI_Comm_create_group).  Preparing a call must not block (MPI_Comm_idup), but its restarts may.
 *
 * MPI has some thousands of communicators.  If none is left, MPICH 4.0.2 crashes in MPI_Comm_idup.  So only the first prepared
 * calls of a communicator, by number, have one.  The others use messages.  So do stages of hierarchical calls, whose orders are
 * created during a call.
 *
 * A rank that leaves a group sends its members the number of collectives that it has begun there.  A member in a
 * later one then fails. */
#ifndef COLL_MPI_GROUP_H
#define COLL_MPI_GROUP_H

enum { COLL__MPI_PREPARED_MOST = 64 };            /* of a communicator, with one of MPI                       */

static void coll__mpi_group_init(coll__mpi_group *g, coll__mpi *mpi, uint64_t id, uint32_t number, int count, int me)
{
    *g = (coll__mpi_group){ .mpi = mpi, .id = id, .number = number, .count = count, .me = me, .comm = MPI_COMM_NULL,
                            .origin = MPI_COMM_NULL, .request = MPI_REQUEST_NULL };
}

static void coll__mpi_group_free(coll__mpi_group *g)
{
    const bool is_alive = !g->mpi->is_finalized;

    coll__give(g->ranks);
    coll__give(g->left);
    if (is_alive && g->comm != MPI_COMM_NULL) MPI_Comm_free(&g->comm);
    if (is_alive && g->origin != MPI_COMM_NULL) MPI_Comm_free(&g->origin);
    coll__give(g->stage);
    coll__give(g->lists);
    coll__mpi_intents_free(g);
    if (g != &g->mpi->all) coll__give(g);
}

static coll__mpi_group *coll__mpi_group_of(const coll__mpi *mpi, uint64_t id, uint64_t number)
{
    coll__mpi_group *g = mpi->groups;

    while (g && (g->id != id || g->number != number)) g = g->next;
    return g;
}

/* Member `i` has left after it has begun so many collectives. */
static void coll__mpi_member_left(coll__mpi_group *g, int i, uint64_t began)
{
    if (!g->left || g->left[i]) return;
    g->left[i] = began + 1;
    g->left_count++;
}

static int coll__mpi_member_of(const coll__mpi_group *g, int rank)
{
    for (int i = 0; i < g->count; i++) if ((g->ranks ? g->ranks[i] : i) == rank) return i;
    return -1;
}

/* Applies what was received on a group before it was created here. */
static void coll__mpi_words_take(coll__mpi *mpi, coll__mpi_group *g)
{
    for (coll__mpi_word_of **at = &mpi->words; *at;) {
        coll__mpi_word_of *w = *at;
        const int i = w->id == g->id && w->number == g->number ? coll__mpi_member_of(g, w->from) : -1;
        if (i < 0) {
            at = &w->next;
            continue;
        }
        coll__mpi_member_left(g, i, w->began);
        *at = w->next;
        coll__give(w);
    }
}

/* A rank has left a group. */
static void coll__mpi_gone_from(coll__mpi *mpi, uint64_t id, uint64_t number, int rank, uint64_t began)
{
    coll__mpi_group *g = coll__mpi_group_of(mpi, id, number);

    if (g) {
        const int i = coll__mpi_member_of(g, rank);
        if (i >= 0) coll__mpi_member_left(g, i, began);
        return;
    }
    coll__mpi_word_of *w = (coll__mpi_word_of *)coll__allocate(coll__like(mpi), sizeof *w);
    if (!w) return;
    *w = (coll__mpi_word_of){ mpi->words, id, number, began, rank };
    mpi->words = w;
}

/* ---- >>creation ---- */

/* For a derived communicator: all members are inside the call that creates it.  Returns MPI's code. */
static int coll__mpi_make_derived(coll__mpi_group *g)
{
    MPI_Group all_ranks = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    const int tag = (int)(coll__mix64(g->id) % 32768);
    int code = MPI_Comm_group(g->mpi->all.origin, &all_ranks);

    if (code == MPI_SUCCESS) code = MPI_Group_incl(all_ranks, g->count, g->ranks, &some);
    if (code == MPI_SUCCESS) code = MPI_Comm_create_group(g->mpi->all.origin, some, tag, &g->comm);
    if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
    if (all_ranks != MPI_GROUP_NULL) MPI_Group_free(&all_ranks);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(g->comm, &g->origin);
    if (code == MPI_SUCCESS) code = coll__mpi_intents_make(g);
    return code;
}

/* Progresses what is created from this group's origin: one at a time, in the order in which all ranks prepare. */
static void coll__mpi_make_on(coll__mpi_group *parent)
{
    for (coll__mpi_group *g; (g = parent->unmade) != NULL;) {
        int is_done = 0;
        if (g->error == MPI_SUCCESS && g->request == MPI_REQUEST_NULL)
            g->error = MPI_Comm_idup(parent->origin, &g->comm, &g->request);
        if (g->error == MPI_SUCCESS) g->error = MPI_Test(&g->request, &is_done, MPI_STATUS_IGNORE);
        if (g->error == MPI_SUCCESS && !is_done) return;
        if (g->error == MPI_SUCCESS) g->error = MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
        g->is_making = false;
        g->mpi->quiet = 0;
        g->mpi->unmade_count--;
        parent->unmade = g->next_unmade;
    }
}

/* For a prepared call of the world or of a group: queued.  If this rank has freed the call by then, it still creates the
 * communicator, because the others do. */
static void coll__mpi_make_prepared(coll__mpi_group *g, coll__mpi_group *parent)
{
    coll__mpi_group **at = &parent->unmade;

    while (*at) at = &(*at)->next_unmade;
    *at = g;
    g->parent = parent;
    g->is_making = true;
    g->mpi->unmade_count++;
    coll__mpi_make_on(parent);
}

/* Returns whether MPI has created the communicator of a group; if g->error is set, it could not. */
static bool coll__mpi_is_made(coll__mpi_group *g)
{
    if (g->is_making) coll__mpi_make_on(g->parent);
    return !g->is_making;
}

/* Returns whether MPI has completed all operations of a group. */
static bool coll__mpi_is_at_rest(coll__mpi_group *g)
{
    int is_done = !g->is_running;

    if (g->is_running && MPI_Test(&g->request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) is_done = 0;
    g->is_running = !is_done;
    return coll__mpi_is_made(g) && !g->unmade && is_done;
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

/* Progresses the communicators that MPI is creating, also of groups that this rank has left. */
static void coll__mpi_make_all(coll__mpi *mpi)
{
    coll__mpi_make_on(&mpi->all);
    for (coll__mpi_group *g = mpi->groups; g; g = g->next) coll__mpi_make_on(g);
    for (coll__mpi_group *g = mpi->orphans; g; g = g->next) coll__mpi_make_on(g);
}

enum { COLL__MPI_MAKING_MS = 5000 };

/* Waits until none is being created.  Open MPI numbers new communicators one after the other: one whose creation blocks would
 * wait for those that other ranks, inside the same call, cannot progress. */
static void coll__mpi_make_the_rest(coll__mpi *mpi)
{
    const int64_t deadline = coll__deadline(COLL__MPI_MAKING_MS);

    while (mpi->unmade_count > 0 && coll__now() < deadline) {
        coll__mpi_make_all(mpi);
        sched_yield();
    }
}

static void *coll__mpi_group_make(void *context, uint64_t id, uint32_t number, const int *ranks, int count, int me)
{
    coll__mpi *mpi = (coll__mpi *)context;
    coll__mpi_group *const parent = id ? coll__mpi_group_of(mpi, id, 0) : &mpi->all;
    const bool is_possible = count > 1 && number <= COLL__MPI_PREPARED_MOST && (number == 0 || parent);

    if (mpi->mode == COLL__MPI_MESSAGES || !is_possible) return NULL;
    if (mpi->failure.status != COLL_OK || !coll__mpi_may_call(mpi)) return NULL;
    coll__mpi_sweep(mpi);
    coll__mpi_group *g = (coll__mpi_group *)coll__take(coll__like(mpi), sizeof *g);
    int code = MPI_ERR_NO_MEM;
    if (g) {
        coll__mpi_group_init(g, mpi, id, number, count, me);
        g->ranks = (int *)coll__take(coll__like(mpi), (size_t)count * sizeof *g->ranks);
        g->left = (uint64_t *)coll__allocate(coll__like(mpi), (size_t)count * sizeof *g->left);
    }
    if (!g || !g->ranks || !g->left) {
        coll__set_failure(&mpi->suspicion, COLL_ERR_MEMORY, mpi->rank, "rank %d has no memory for a communicator", mpi->rank);
    } else {
        memcpy(g->ranks, ranks, (size_t)count * sizeof *ranks);
        if (number == 0) coll__mpi_make_the_rest(mpi);
        code = number ? MPI_SUCCESS : coll__mpi_make_derived(g);
        if (number) coll__mpi_make_prepared(g, parent);
    }
    if (code != MPI_SUCCESS) {                    /* no communicator is left: same on all its ranks           */
        if (g) coll__mpi_group_free(g);
        return NULL;
    }
    g->next = mpi->groups;
    mpi->groups = g;
    coll__mpi_words_take(mpi, g);
    return g;
}

/* ---- >>leaving ---- */

static void coll__mpi_group_say_gone(coll__mpi_group *g)
{
    coll__mpi *mpi = g->mpi;
    coll__mpi_parcel *parcel = coll__mpi_note_new(mpi, COLL__MPI_GONE);

    if (!parcel) return;
    parcel->note.group = g->id;
    parcel->note.counts[0] = g->turn;
    parcel->note.counts[1] = g->number;
    for (int i = 0; i < g->count; i++)
        if (i != g->me && !mpi->is_gone[g->ranks[i]] && !g->left[i]) coll__mpi_note_send(mpi, parcel, g->ranks[i]);
    coll__mpi_parcel_done(parcel);
}

static void coll__mpi_ungroup(void *context, void *handle)
{
    coll__mpi *mpi = (coll__mpi *)context;
    coll__mpi_group *g = (coll__mpi_group *)handle, **at = &mpi->groups;

    COLL__ASSERT(coll__mpi_group_of(mpi, g->id, g->number), "group %llx is left, and is none of rank %d",
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
