/* coll_request_pool.h - memory of requests, reused after they are freed.
 *
 * General allocators are slow for such repeated use.  Requests are made inside the session, and freed by any thread, even after
 * the communicator.  Freed requests go to the list `freed`.  When `kept` is empty, the thread inside takes all of `freed` at
 * once.  The pool lives as long as the session and its requests. */
#ifndef COLL_REQUEST_POOL_H
#define COLL_REQUEST_POOL_H

#if COLL_REQUESTS > 0

/* Marks the list of a closed pool. */
static coll_request *coll__pool_closed(coll__pool *pool) { return (coll_request *)(void *)pool; }

/* Free all of a list except its first `most` entries; returns how many. */
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

/* Memory for a request; NULL: none.  Called inside the session. */
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

/* Free a request, from any thread. */
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

/* Close the pool at the end of the session.  Requests may be freed concurrently or later; the last one frees the pool. */
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
#endif /* COLL_REQUEST_POOL_H */
