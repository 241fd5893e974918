/* coll_threads_shrink.h - after a failure: the surviving ranks of a domain migrate to a new one.
 *
 * The first rank that joins opens the migration.  The others find it by its list of ranks.  It is decided once all ranks have
 * joined that have not left the old domain, or at the timeout.  The rank that detects this opens the new domain.  Ranks that
 * enter it set its doorbells, if it has any (coll_joined.h). */
#ifndef COLL_THREADS_SHRINK_H
#define COLL_THREADS_SHRINK_H

enum { COLL__EXODUS_LOOK_MS = 100, COLL__EXODUS_SERVE_MS = 10 };

static coll__hub *coll__hub_open(const coll_allocator *memory, int first, int size, bool is_crowded);
static void coll__hub_release(coll__hub *hub);
static coll__thread *coll__thread_open(coll__hub *hub, int rank);

typedef struct coll__exodus {
    struct coll__exodus *next;
    int            first;                         /* number of the new domain's first rank                    */
    int            count, users;                  /* users: ranks that have joined and not finished           */
    int           *ranks;
    unsigned char *is_there;                      /* by index in the list                                     */
    bool           is_decided;
    coll__hub     *fresh;                         /* NULL, once decided: no quorum, or no memory              */
} coll__exodus;

static void coll__exodus_free(coll__exodus *e)
{
    if (!e) return;
    coll__give(e->ranks);
    coll__give(e->is_there);
    coll__give(e);
}

/* Returns the migration of these ranks that this rank has not joined yet; opens it if needed.  The caller holds the domain's
 * lock. */
static coll__exodus *coll__exodus_find(coll__hub *hub, const int *ranks, int count, int me, int first)
{
    const size_t length = (size_t)count * sizeof *ranks;

    for (coll__exodus *e = hub->exoduses; e; e = e->next)
        if (!e->is_decided && e->count == count && !memcmp(e->ranks, ranks, length) && !e->is_there[me]) return e;
    coll__exodus *e = (coll__exodus *)coll__allocate(coll__like(hub), sizeof *e);
    if (!e) return NULL;
    e->first = first;
    e->count = count;
    e->ranks = (int *)coll__take(coll__like(hub), length);
    e->is_there = (unsigned char *)coll__take_zeros(coll__like(hub), (size_t)count, 1);
    if (!e->ranks || !e->is_there) {
        coll__exodus_free(e);
        return NULL;
    }
    memcpy(e->ranks, ranks, length);
    e->next = hub->exoduses;
    hub->exoduses = e;
    return e;
}

/* Decides the migration once all remaining ranks have joined, or at once if `is_late`. */
static void coll__exodus_decide(const coll__thread *thread, coll__exodus *e, bool is_late)
{
    coll__hub *hub = thread->hub;
    int there = 0;
    bool is_complete = true;

    for (int i = 0; i < e->count; i++) {
        there += e->is_there[i];
        const bool has_left = __atomic_load_n(&coll__desk_of(hub, e->ranks[i])->has_left, __ATOMIC_ACQUIRE);
        if (!e->is_there[i] && !has_left) is_complete = false;
    }
    if (e->is_decided || (!is_complete && !is_late)) return;
    e->is_decided = true;
    if (coll__is_quorum(e->is_there, e->count))
        e->fresh = coll__hub_open(coll__like(hub), e->first, there,
                                  there > coll__processors() || (hub->has_bells && hub->is_crowded));
    for (int i = 0; e->fresh && i < there; i++) coll__hub_desks(e->fresh)[i].bell = coll__no_bell;
    if (e->fresh) e->fresh->has_bells = hub->has_bells;
    coll__hub_wake(thread);
    if (hub->has_bells) coll__word_wake(&hub->bell);              /* ranks that wait here sleep on the word   */
}

static coll_status coll__exodus_enter(coll__exodus *e, int me, coll_survivors *out, coll_failure *failure)
{
    int there = 0;

    out->count = 0;
    for (int i = 0; i < e->count; i++) {
        if (i == me) out->rank = out->count;
        if (e->is_there[i]) out->ranks[out->count++] = e->ranks[i];
        there += e->is_there[i];
    }
    if (!coll__is_quorum(e->is_there, e->count))
        return coll__blame(failure, COLL_ERR_PEER, -1, "only %d of %d ranks are left: that is not most of them", there, e->count);
    coll__thread *thread = e->fresh ? coll__thread_open(e->fresh, e->first + out->rank) : NULL;
    if (!thread) return coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", there);
    out->context = thread;
    pthread_mutex_lock(&e->fresh->lock);
    e->fresh->holders++;
    pthread_mutex_unlock(&e->fresh->lock);
    return COLL_OK;
}

/* Migrates to a new domain, with the ranks of `ranks` that join in time.  Its first rank has number `first`.  Meanwhile
 * serve(context) is called repeatedly: a joining process may need it first. */
static coll_status coll__exodus_run(coll__thread *thread, const int *ranks, int count, int first, int timeout_ms,
                                    void (*serve)(void *context), void *context, coll_survivors *out, coll_failure *failure)
{
    coll__hub *hub = thread->hub;
    const int64_t deadline = coll__deadline(timeout_ms);
    const int look_ms = serve ? COLL__EXODUS_SERVE_MS : COLL__EXODUS_LOOK_MS;
    int me = 0;

    while (ranks[me] != thread->rank) me++;
    pthread_mutex_lock(&hub->lock);
    coll__exodus *e = coll__exodus_find(hub, ranks, count, me, first);
    if (e) e->is_there[me] = 1, e->users++;
    __atomic_add_fetch(&hub->sleepers, 1, __ATOMIC_SEQ_CST);      /* a leaving rank then rings the doorbell   */
    while (e && !e->is_decided) {
        const uint32_t seen = __atomic_load_n(&hub->bell, __ATOMIC_SEQ_CST);
        coll__exodus_decide(thread, e, coll__now() >= deadline);
        const bool is_decided = e->is_decided;
        pthread_mutex_unlock(&hub->lock);
        if (!is_decided && serve) serve(context);
        if (!is_decided) coll__word_wait(&hub->bell, seen, coll__ms_until(deadline, look_ms));
        pthread_mutex_lock(&hub->lock);
    }
    __atomic_sub_fetch(&hub->sleepers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&hub->lock);
    if (!e) return coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", count);
    const coll_status status = coll__exodus_enter(e, me, out, failure);
    pthread_mutex_lock(&hub->lock);
    const bool is_last = --e->users == 0;
    coll__exodus **at = &hub->exoduses;
    while (is_last && *at != e) at = &(*at)->next;
    if (is_last) *at = e->next;
    pthread_mutex_unlock(&hub->lock);
    if (is_last && e->fresh) coll__hub_release(e->fresh);
    if (is_last) coll__exodus_free(e);
    return status;
}

static coll_status coll__threads_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                        coll_failure *failure)
{
    return coll__exodus_run((coll__thread *)context, ranks, count, 0, timeout_ms, NULL, NULL, out, failure);
}

#endif /* COLL_THREADS_SHRINK_H */
