/* coll_threads_shrink.h - after a failure: the surviving ranks of a domain migrate to a new one.
 *
 * The first rank that joins opens the migration.  The others find it by its list of ranks.  It is decided once all ranks have
 * joined that have not left the old domain, or at the timeout.  The rank that detects this opens the new domain.  Ranks that
 * enter it set its doorbells, if it has any (coll_hybrid.h). */
#ifndef COLL_THREADS_SHRINK_H
#define COLL_THREADS_SHRINK_H

enum { COLL__MIGRATION_LOOK_MS = 100, COLL__MIGRATION_SERVE_MS = 10 };

static coll__domain *coll__domain_open(const coll_allocator *memory, int first, int size, bool is_crowded);
static void coll__domain_release(coll__domain *domain);
static coll__thread *coll__thread_open(const coll_allocator *memory, coll__domain *domain, int rank);

typedef struct coll__migration {
    struct coll__migration *next;
    int            first;                         /* number of the new domain's first rank                    */
    int            count, users;                  /* users: ranks that have joined and not finished           */
    int           *ranks;                         /* behind this struct                                       */
    unsigned char *there;                         /* places in the list that have joined; behind that         */
    bool           is_decided;
    coll__domain     *fresh;                      /* NULL, once decided: no quorum, or no memory              */
} coll__migration;

/* Returns the migration of these ranks that this rank has not joined yet; opens it if needed.  The caller holds the domain's
 * lock. */
static coll__migration *coll__migration_find(coll__domain *domain, const int *ranks, int count, int me, int first)
{
    const size_t length = (size_t)count * sizeof *ranks;

    for (coll__migration *e = domain->migrations; e; e = e->next)
        if (!e->is_decided && e->count == count && !memcmp(e->ranks, ranks, length) && !coll__place_in(e->there, me))
            return e;
    coll__migration *e = (coll__migration *)coll__allocate(coll__like(domain), sizeof *e + length + coll__places_length(count));
    if (!e) return NULL;
    e->first = first;
    e->count = count;
    e->ranks = (int *)(void *)(e + 1);
    e->there = (unsigned char *)(e->ranks + count);
    memcpy(e->ranks, ranks, length);
    e->next = domain->migrations;
    domain->migrations = e;
    return e;
}

/* Decides the migration once all remaining ranks have joined, or at once if `is_late`. */
static void coll__migration_decide(const coll__thread *thread, coll__migration *e, bool is_late)
{
    coll__domain *domain = thread->domain;
    const int there = coll__places_in(e->there, e->count);
    bool is_complete = true;

    for (int i = 0; i < e->count; i++) {
        const bool has_left = __atomic_load_n(&coll__rank_slot_of(domain, e->ranks[i])->has_left, __ATOMIC_ACQUIRE);
        if (!coll__place_in(e->there, i) && !has_left) is_complete = false;
    }
    if (e->is_decided || (!is_complete && !is_late)) return;
    e->is_decided = true;
    if (coll__places_are_enough(e->there, e->count))
        e->fresh = coll__domain_open(coll__like(domain), e->first, there,
                                     there > coll__processors() || (domain->has_doorbells && domain->is_crowded));
    for (int i = 0; e->fresh && i < there; i++) coll__domain_rank_slots(e->fresh)[i].doorbell = coll__no_doorbell;
    if (e->fresh) e->fresh->has_doorbells = domain->has_doorbells;
    coll__domain_wake(thread);
    if (domain->has_doorbells) coll__word_wake(&domain->doorbell); /* ranks that wait here sleep on the word   */
}

static coll_status coll__migration_enter(coll__migration *e, int me, coll_survivors *out, coll_failure *failure)
{
    coll__survivors_in(e->there, e->ranks, e->count, me, out);
    if (!coll__places_are_enough(e->there, e->count)) return coll__failed_too_few(failure, out->count, e->count);
    coll__thread *thread = e->fresh ? coll__thread_open(coll__like(e), e->fresh, e->first + out->rank) : NULL;
    if (!thread) return coll__set_failure(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", out->count);
    out->context = thread;
    pthread_mutex_lock(&e->fresh->lock);
    e->fresh->holders++;
    pthread_mutex_unlock(&e->fresh->lock);
    return COLL_OK;
}

/* Migrates to a new domain, with the ranks of `ranks` that join in time.  Its first rank has number `first`.  Meanwhile
 * serve(context) is called repeatedly: a joining process may need it first. */
static coll_status coll__migration_run(coll__thread *thread, const int *ranks, int count, int first, int timeout_ms,
                                       void (*serve)(void *context), void *context, coll_survivors *out, coll_failure *failure)
{
    coll__domain *domain = thread->domain;
    const int64_t deadline = coll__deadline(timeout_ms);
    const int look_ms = serve ? COLL__MIGRATION_SERVE_MS : COLL__MIGRATION_LOOK_MS;
    int me = 0;

    while (ranks[me] != thread->rank) me++;
    pthread_mutex_lock(&domain->lock);
    coll__migration *e = coll__migration_find(domain, ranks, count, me, first);
    if (e) coll__place_set(e->there, me, true), e->users++;
    __atomic_add_fetch(&domain->sleepers, 1, __ATOMIC_SEQ_CST);   /* a leaving rank then rings the doorbell   */
    while (e && !e->is_decided) {
        const uint32_t seen = __atomic_load_n(&domain->doorbell, __ATOMIC_SEQ_CST);
        coll__migration_decide(thread, e, coll__now() >= deadline);
        const bool is_decided = e->is_decided;
        pthread_mutex_unlock(&domain->lock);
        if (!is_decided && serve) serve(context);
        if (!is_decided) coll__word_wait(&domain->doorbell, seen, coll__ms_until(deadline, look_ms));
        pthread_mutex_lock(&domain->lock);
    }
    __atomic_sub_fetch(&domain->sleepers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&domain->lock);
    if (!e) return coll__set_failure(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", count);
    const coll_status status = coll__migration_enter(e, me, out, failure);
    pthread_mutex_lock(&domain->lock);
    const bool is_last = --e->users == 0;
    coll__migration **at = &domain->migrations;
    while (is_last && *at != e) at = &(*at)->next;
    if (is_last) *at = e->next;
    pthread_mutex_unlock(&domain->lock);
    if (is_last && e->fresh) coll__domain_release(e->fresh);
    if (is_last) coll__give(e);
    return status;
}

static coll_status coll__threads_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                        coll_failure *failure)
{
    return coll__migration_run((coll__thread *)context, ranks, count, 0, timeout_ms, NULL, NULL, out, failure);
}

#endif /* COLL_THREADS_SHRINK_H */
