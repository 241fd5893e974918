/* coll_pool.h - the memory of requests: what one had that was freed, the next one has.
 *
 * An allocator keeps a few blocks of a size at hand, and looks for the others; a program has dozens of requests at a time, and
 * starts them again and again.  They are made by whoever is inside the session, and freed by any thread, also after the
 * communicator.  So those that are freed go onto a list of their own, in one piece (`freed`), and whoever is inside takes all of
 * it when he has none left (`kept`).  The pool lives as long as the session or the last of its requests. */
#ifndef COLL_POOL_H
#define COLL_POOL_H

#if COLL_REQUESTS > 0

/* In place of a list. */
static coll_request *coll__pool_closed(coll__pool *pool) { return (coll_request *)(void *)pool; }

/* Give all of a list back but the first `most` of it; how many these were. */
static size_t coll__pool_trim(coll_request **list, size_t most)
{
    size_t gone = 0;

    for (size_t n = 0; *list && n < most; n++) list = &(*list)->next;
    for (coll_request *r = *list, *next; r; r = next, gone++) {
        next = r->next;
        coll__give(r);
    }
    *list = NULL;
    return gone;
}

/* Memory for a request; NULL: there is none.  Inside the session. */
static coll_request *coll__request_take(coll_comm *comm)
{
    coll__pool **const at = &comm->session->pool, *const pool = *at ? *at
                            : (*at = (coll__pool *)coll__allocate(coll__like(comm), sizeof *pool));

    if (!pool) return NULL;
    if (!pool->kept) {
        pool->kept = __atomic_exchange_n(&pool->freed, NULL, __ATOMIC_ACQUIRE);
        pool->count -= coll__pool_trim(&pool->kept, COLL_REQUESTS);
    }
    coll_request *r = pool->kept;
    if (r) pool->kept = r->next;
    else if ((r = (coll_request *)coll__take(coll__like(comm), sizeof *r))) {
        r->pool = pool;
        pool->count++;
    }
    return r;
}

/* Give it back, from any thread. */
static void coll__request_give(coll_request *r)
{
    coll__pool *const pool = r->pool;
    coll_request *freed = __atomic_load_n(&pool->freed, __ATOMIC_ACQUIRE);

    do {
        if (freed == coll__pool_closed(pool)) {
            coll__give(r);
            if (__atomic_sub_fetch(&pool->left, 1, __ATOMIC_ACQ_REL) == 0) coll__give(pool);
            return;
        }
        r->next = freed;
    } while (!__atomic_compare_exchange_n(&pool->freed, &freed, r, true, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE));
}

/* The session ends.  Requests may be freed later, or at this moment: whoever comes last frees the pool. */
static void coll__pool_close(coll__pool *pool)
{
    if (!pool) return;
    pool->count -= coll__pool_trim(&pool->kept, 0);
    pool->kept = __atomic_exchange_n(&pool->freed, coll__pool_closed(pool), __ATOMIC_ACQ_REL);
    pool->count -= coll__pool_trim(&pool->kept, 0);
    if (pool->count == 0 || __atomic_add_fetch(&pool->left, (int64_t)pool->count, __ATOMIC_ACQ_REL) == 0) coll__give(pool);
}

#else

static coll_request *coll__request_take(coll_comm *comm)
{
    return (coll_request *)coll__take(coll__like(comm), sizeof(coll_request));
}

static inline void coll__request_give(coll_request *r) { coll__give(r); }
static inline void coll__pool_close(const coll__pool *pool) { (void)pool; }

#endif
#endif /* COLL_POOL_H */
