/* coll_mpi_forms.h - which of MPI's two forms a collective uses: MPI_Allreduce, or MPI_Iallreduce.
 *
 * The blocking form costs less.  All ranks must use the same form, because MPI does not match the two.  But a rank may wait in a
 * call that another has only started.  If all members of a group share a host, each publishes its state in shared memory when it
 * begins a collective: FREE if it has only started it, COMMITTED if it waits for it; and whether it is in place.
 *
 *     one is FREE                       the non-blocking form: a FREE rank uses it at once, COMMITTED ranks follow
 *     all are COMMITTED, to one call      the blocking form: no rank waits in it for anything but this collective
 *
 * While a COMMITTED rank waits for the states of others, it progresses its earlier operations.  So a late, departed or failed
 * rank has the same effect as in any call.  States are used only for collectives in which every rank waits for every rank.  A
 * rank is COMMITTED to one collective at a time: if it entered one of two, others could wait in the second.
 *
 * CONSISTENCY.  A member writes only its own word.  Words only advance, so all or none see a FREE, or another call.  A rank that
 * has begun its next collective has overwritten its word.  It also publishes the last collective that it ran in the blocking
 * form.  That is not a later one, which would need the words of all ranks that still wait.
 *
 * WITHDRAWAL.  A rank that fails while it waits publishes WAVERS and reads all words.  If a member has not arrived, it becomes
 * FREE: a rank selects the blocking form after reading all words twice.  The second time is after that member has arrived, so the
 * rank has seen WAVERS.  If all have arrived, the blocking form may have begun, and the rank takes part in it; that is short.
 *
 * Ranks of several hosts use the non-blocking form, and so do ranks that share processors: MPI spins while it waits. */
#ifndef COLL_MPI_FORMS_H
#define COLL_MPI_FORMS_H

#if !defined(COLL__MPI_CROWDS)                    /* 1: also if ranks share processors, for tests             */
#define COLL__MPI_CROWDS 0
#endif

typedef enum coll__mpi_stand { COLL__MPI_FREE, COLL__MPI_INTENDS, COLL__MPI_WAVERS } coll__mpi_stand;

/* A word: the number of the collective, some bits of its fingerprint, in place or not, and a coll__mpi_stand. */
enum { COLL__MPI_TURN_SHIFT = 24, COLL__MPI_PRINT_BITS = 21, COLL__MPI_IN_PLACE = 4, COLL__MPI_STAND = 3 };

typedef struct coll__mpi_intent {
    uint64_t word;
    uint64_t last;                                /* word of its last collective in the blocking form         */
    uint64_t apart[14];                           /* two cache lines: processors fetch them in pairs          */
} coll__mpi_intent;

/* ---- >>memory ---- */

#if COLL__HAS_SHM

static void coll__mpi_intents_free(coll__mpi_group *g)
{
    coll__segment_unmap(g->intents, (size_t)g->count * sizeof *g->intents);
    g->intents = NULL;
}

static bool coll__mpi_intents_help(const coll__mpi_group *g)
{
    const coll__mpi *mpi = g->mpi;

    if (g->count == 1 || (mpi->is_crowded && !COLL__MPI_CROWDS)) return false;
    if (mpi->mode == COLL__MPI_MESSAGES || mpi->mode == COLL__MPI_BLOCKING) return false;
    for (int i = 1; i < g->count; i++)
        if (mpi->homes[g->ranks ? g->ranks[i] : i] != mpi->homes[g->ranks ? g->ranks[0] : 0]) return false;
    return true;
}

/* Collective: memory for the words of a new group, a segment of its first rank; if one member has none, no member has.  Returns
 * MPI's code. */
static int coll__mpi_intents_make(coll__mpi_group *g)
{
    struct { uint64_t id; uint32_t pid, fd; } offer = { 0, 0, 0 };
    const size_t length = (size_t)g->count * sizeof *g->intents;
    uint64_t id = 0;
    size_t is_long = 0;
    int fd = -1;

    if (!coll__mpi_intents_help(g)) return MPI_SUCCESS;
    if (g->me == 0 && (fd = coll__segment_make(length)) >= 0) {
        offer.id = id = coll__fd_id(fd);
        offer.pid = (uint32_t)getpid();
        offer.fd = (uint32_t)fd;
        is_long = length;
    }
    int code = MPI_Bcast(&offer, (int)sizeof offer, MPI_BYTE, 0, g->comm);
    if (g->me != 0 && code == MPI_SUCCESS && offer.id) fd = coll__segment_open(offer.pid, offer.fd, true, &id, &is_long);
    if (fd >= 0 && id == offer.id && is_long == length) g->intents = (coll__mpi_intent *)coll__segment_map(fd, length);
    int is_there = g->intents != NULL;
    if (code == MPI_SUCCESS) code = MPI_Allreduce(MPI_IN_PLACE, &is_there, 1, MPI_INT, MPI_MIN, g->comm);
    coll__close_fd(&fd);
    if (!is_there || code != MPI_SUCCESS) coll__mpi_intents_free(g);
    return code;
}

#else

static void coll__mpi_intents_free(coll__mpi_group *g) { g->intents = NULL; }
static int  coll__mpi_intents_make(coll__mpi_group *g) { g->intents = NULL; return MPI_SUCCESS; }

#endif

/* ---- >>words ---- */

static uint64_t coll__mpi_read(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static void     coll__mpi_write(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

/* How far the collective of a word is ahead of this one.  The numbers wrap. */
static int64_t coll__mpi_ahead(uint64_t word, uint64_t mine)
{
    const uint64_t turns = (word >> COLL__MPI_TURN_SHIFT) - (mine >> COLL__MPI_TURN_SHIFT);
    return (int64_t)(turns << COLL__MPI_TURN_SHIFT);
}

/* Reads the words of the others once, and returns the form that follows.  *in_place: whether all are in place. */
static coll__mpi_form coll__mpi_look_at_words(const coll__mpi_group *g, uint64_t mine, bool *in_place)
{
    bool is_open = false;

    *in_place = mine & COLL__MPI_IN_PLACE;
    for (int i = 0; i < g->count; i++) {
        const coll__mpi_intent *p = &g->intents[i];
        const uint64_t word = i == g->me ? mine : coll__mpi_read(&p->word);
        const int64_t ahead = coll__mpi_ahead(word, mine);
        if (ahead > 0) {
            const uint64_t last = coll__mpi_read(&p->last);
            *in_place = last & COLL__MPI_IN_PLACE;
            return coll__mpi_ahead(last, mine) == 0 ? COLL__MPI_IS_BLOCKING : COLL__MPI_IS_NOT;
        }
        if (ahead < 0 || (word & COLL__MPI_STAND) == COLL__MPI_WAVERS) is_open = true;
        else if ((word ^ mine) & ~(uint64_t)COLL__MPI_IN_PLACE) return COLL__MPI_IS_NOT;
        else if (!(word & COLL__MPI_IN_PLACE)) *in_place = false;
    }
    return is_open ? COLL__MPI_IS_OPEN : COLL__MPI_IS_BLOCKING;
}

/* ---- >>a collective ---- */

enum { COLL__MPI_LONG = 64 << 10 };               /* bytes: messages of this length wait for the receiver     */

/* Returns whether every rank waits for every rank.  Rooted kinds and scans do if blocks are long, because a send of a long block
 * waits for its receiver.  All ranks know the length, except in v forms. */
static bool coll__mpi_finds(const coll_call *c)
{
    if (!coll__kind_has_root(c->kind) && c->kind != COLL_SCAN && c->kind != COLL_EXSCAN) return true;
    return !coll__kind_is(c->kind, COLL__SUMMED | COLL__PAIRWISE) && c->count * coll_type_size(c->type) >= COLL__MPI_LONG;
}

/* Publishes that this rank begins the group's next collective: COMMITTED or FREE. */
static void coll__mpi_form_begin(coll__mpi_group *g, const coll_task *task, bool in_place)
{
    coll__mpi *mpi = g->mpi;

    g->in_place = false;
    g->form = mpi->mode == COLL__MPI_BLOCKING ? COLL__MPI_IS_BLOCKING : COLL__MPI_IS_NOT;
    if (!g->intents || !coll__mpi_finds(task->call)) return;
    const bool is_committed = task->is_blocking && !mpi->committed;
    const uint64_t print = coll__history_with(coll__get64(task->head), task->head) >> (64 - COLL__MPI_PRINT_BITS);
    const uint64_t word = g->turn << COLL__MPI_TURN_SHIFT | print << 3
                        | (in_place ? COLL__MPI_IN_PLACE : 0) | (is_committed ? COLL__MPI_INTENDS : COLL__MPI_FREE);
    coll__mpi_write(&g->intents[g->me].word, word);
    if (!is_committed) return;
    g->form = COLL__MPI_IS_OPEN;
    g->task = task;
    mpi->committed = g;
}

/* Returns the form, as far as it is known. */
static coll__mpi_form coll__mpi_form_of(coll__mpi_group *g)
{
    if (g->form != COLL__MPI_IS_OPEN) return g->form;
    coll__mpi_intent *own = &g->intents[g->me];
    const uint64_t mine = own->word;
    coll__mpi_form form = coll__mpi_look_at_words(g, mine, &g->in_place);
    if (form == COLL__MPI_IS_BLOCKING) form = coll__mpi_look_at_words(g, mine, &g->in_place);
    g->form = form;
    if (form == COLL__MPI_IS_BLOCKING)
        coll__mpi_write(&own->last, (mine & ~(uint64_t)COLL__MPI_IN_PLACE) | (g->in_place ? COLL__MPI_IN_PLACE : 0));
    else g->in_place = false;
    return form;
}

/* This rank fails and withdraws.  Returns true if it cannot, and must take part in the blocking form. */
static bool coll__mpi_take_back(coll__mpi_group *g)
{
    if (coll__mpi_form_of(g) != COLL__MPI_IS_OPEN) return g->form == COLL__MPI_IS_BLOCKING;
    uint64_t *word = &g->intents[g->me].word;
    const uint64_t mine = *word, bare = mine & ~(uint64_t)COLL__MPI_STAND;
    bool have_come = true;

    coll__mpi_write(word, bare | COLL__MPI_WAVERS);
    for (int i = 0; i < g->count; i++)
        if (i != g->me && coll__mpi_ahead(coll__mpi_read(&g->intents[i].word), mine) < 0) have_come = false;
    coll__mpi_write(word, have_come ? mine : bare | COLL__MPI_FREE);
    while (have_come && coll__mpi_form_of(g) == COLL__MPI_IS_OPEN) sched_yield();            /* others may waver */
    return have_come && g->form == COLL__MPI_IS_BLOCKING;
}

#endif /* COLL_MPI_FORMS_H */
