/* coll_threads_shrink.h - after a failure: the surviving ranks of a domain agree on flags, or migrate to a new one.
 *
 * The first rank that joins opens the migration.  The others find it by its list of ranks.  It is decided once all ranks have
 * joined that have not left the old domain, or at the timeout.  The rank that detects this opens the new domain.
 *
 * An agreement is a migration without a new domain.  Of two ranks that are in different ones, the one that is ahead knows the
 * decision that the other one still waits for. */
#ifndef COLL_THREADS_SHRINK_H
#define COLL_THREADS_SHRINK_H

enum { COLL__MIGRATION_LOOK_MS = 100 };

typedef struct coll__migration {
    struct coll__migration *next;
    int            count, users;                  /* users: ranks that have joined and not finished           */
    int           *ranks;                         /* behind this struct                                       */
    unsigned char *there, *failed;                /* places in the list that have joined; left out earlier    */
    bool           is_decided, is_agree, is_bound;                /* bound: `flags` are those of all ranks    */
    uint32_t       slot;                          /* decisions before it                                      */
    uint64_t       flags, last;                   /* last: of the decision before it                          */
    coll__domain     *fresh;                      /* NULL, once decided: no quorum, or no memory              */
} coll__migration;

/* Returns the migration of these ranks that this rank has not joined yet; opens it if needed.  The caller holds the domain's
 * lock. */
static coll__migration *coll__migration_find(coll__domain *domain, const int *ranks, int count, int me,
                                             const coll_survivors *own)
{
    const size_t length = (size_t)count * sizeof *ranks, set = coll__places_length(count);
    const uint32_t slot = own->known ? own->known->count : 0;

    for (coll__migration *e = domain->migrations; e; e = e->next) {
        const bool is_same = e->is_agree == own->is_agree && e->count == count && !memcmp(e->ranks, ranks, length);
        if (is_same && !e->is_decided && (e->slot == slot || !e->is_agree) && !coll__place_in(e->there, me)) return e;
    }
    coll__migration *e = (coll__migration *)coll__allocate(coll__like(domain), sizeof *e + length + 2 * set);
    if (!e) return NULL;
    e->count = count;
    e->is_agree = own->is_agree;
    e->slot = slot;
    e->flags = UINT64_MAX;
    e->ranks = (int *)(void *)(e + 1);
    e->there = (unsigned char *)(e->ranks + count);
    e->failed = e->there + set;
    memcpy(e->ranks, ranks, length);
    e->next = domain->migrations;
    domain->migrations = e;
    return e;
}

/* The caller holds the domain's lock. */
static void coll__migration_join(coll__domain *domain, coll__migration *e, int me, const coll_survivors *own)
{
    e->users++;
    if (own->known && own->known->count >= e->slot) {
        e->slot = own->known->count;
        e->last = own->known->last;
        for (int i = 0; i < e->count; i++) coll__place_set(e->failed, i, own->known->failed[i]);
    }
    for (coll__migration *o = domain->migrations; o; o = o->next) {           /* the later one ends an agreement */
        coll__migration *const before = o->slot < e->slot ? o : e, *const later = before == o ? e : o;
        const bool is_same = o->count == e->count && !memcmp(o->ranks, e->ranks, (size_t)e->count * sizeof *e->ranks);
        if (!is_same || o->slot == e->slot || !before->is_agree || before->is_decided) continue;
        before->is_decided = true;
        before->flags = later->last;
        for (int i = 0; i < e->count; i++) coll__place_set(before->there, i, !coll__place_in(later->failed, i));
        coll__word_wake(&domain->doorbell);
    }
    if (e->is_decided) return;
    coll__place_set(e->there, me, true);
    if (e->is_agree && own->known->has_next) e->is_bound = true, e->flags = own->known->next;
    else if (!e->is_bound) e->flags &= own->flags;
}

/* Decides the migration once all remaining ranks have joined, or at once if `is_late`. */
static void coll__migration_decide(const coll__thread *thread, coll__migration *e, bool is_late)
{
    coll__domain *domain = thread->domain;
    const coll_failure *const why = &domain->failure;
    const int late = why->status == COLL_ERR_TIMEOUT ? why->rank : -1;        /* it has been given up          */
    bool is_complete = true;

    for (int i = 0; i < e->count; i++) {
        const bool has_left = __atomic_load_n(&coll__rank_slot_of(domain, e->ranks[i])->has_left, __ATOMIC_ACQUIRE);
        const bool may_come = !has_left && e->ranks[i] != late && !coll__place_in(e->failed, i);
        if (!coll__place_in(e->there, i) && may_come) is_complete = false;
    }
    if (e->is_decided || (!is_complete && !is_late)) return;
    e->is_decided = true;
    for (int i = 0; i < e->count; i++) {
        if (coll__place_in(e->failed, i)) coll__place_set(e->there, i, false);
        else if (e->is_bound) coll__place_set(e->there, i, true);
    }
    const int there = coll__places_in(e->there, e->count);
    if (!e->is_agree && coll__places_are_enough(e->there, e->count))
        e->fresh = coll__domain_open(coll__like(domain), 0, there, there > coll__processors());
    coll__domain_wake(thread);
}

static coll_status coll__migration_enter(coll__migration *e, int me, coll_survivors *out, coll_failure *failure)
{
    coll__survivors_in(e->there, e->ranks, e->count, me, out);
    if (!coll__places_are_enough(e->there, e->count)) return coll__failed_too_few(failure, out->count, e->count);
    if (!coll__place_in(e->there, me)) return coll__failed_given_up(failure);
    out->flags = e->flags;
    if (e->is_agree) return COLL_OK;
    coll__thread *thread = e->fresh ? coll__thread_open(coll__like(e), e->fresh, out->rank) : NULL;
    if (!thread) return coll__set_failure(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", out->count);
    out->context = thread;
    pthread_mutex_lock(&e->fresh->lock);
    e->fresh->holders++;
    pthread_mutex_unlock(&e->fresh->lock);
    return COLL_OK;
}

/* Agrees with the ranks of `ranks` that join in time, or migrates to a new domain with them. */
static coll_status coll__threads_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                        coll_failure *failure)
{
    const coll__thread *const thread = (const coll__thread *)context;
    coll__domain *domain = thread->domain;
    const int64_t deadline = coll__deadline(timeout_ms);
    int me = 0;

    while (ranks[me] != thread->rank) me++;
    pthread_mutex_lock(&domain->lock);
    coll__migration *e = coll__migration_find(domain, ranks, count, me, out);
    if (e) coll__migration_join(domain, e, me, out);
    __atomic_add_fetch(&domain->sleepers, 1, __ATOMIC_SEQ_CST);   /* a leaving rank then rings the doorbell   */
    while (e && !e->is_decided) {
        const uint32_t seen = __atomic_load_n(&domain->doorbell, __ATOMIC_SEQ_CST);
        coll__migration_decide(thread, e, coll__now() >= deadline);
        const bool is_decided = e->is_decided;
        pthread_mutex_unlock(&domain->lock);
        if (!is_decided) coll__word_wait(&domain->doorbell, seen, coll__ms_until(deadline, COLL__MIGRATION_LOOK_MS));
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

#endif /* COLL_THREADS_SHRINK_H */
