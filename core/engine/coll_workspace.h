/* coll_workspace.h - the memory of running calls: buffers of received blocks and partial sums, and cached executions.  A call
 * takes a workspace of its order; later calls reuse it. */
#ifndef COLL_WORKSPACE_H
#define COLL_WORKSPACE_H

static void coll__workspace_clear(coll__workspace *w)
{
    coll__give(w->arena);
    w->arena = NULL;
    w->arena_length = 0;
    for (int i = 0; i < COLL__CACHED; i++) {
        if (w->cached[i]) coll__give(w->cached[i]->memory);
        coll__give(w->cached[i]);
        w->cached[i] = NULL;
    }
}

/* Free the workspaces from `i` on; none is in use. */
static void coll__workspaces_give(coll__order *order, int i)
{
    for (; i < COLL__OVERLAP; i++) {
        if (order->workspaces[i]) coll__workspace_clear(order->workspaces[i]);
        coll__give(order->workspaces[i]);
        order->workspaces[i] = NULL;
    }
}

/* The workspace of a running request; NULL: not needed so far. */
static inline coll__workspace *coll__workspace_of(const coll_request *r) { return r->order->workspaces[r->workspace]; }

/* Workspace `i` of the order; NULL: no memory. */
static coll__workspace *coll__workspace_reserve(coll__order *order, int i)
{
    coll__workspace **at = &order->workspaces[i];

    if (!*at) *at = (coll__workspace *)coll__allocate(coll__like(order->comm), sizeof **at);
    return *at;
}

/* Memory for a request while it runs; earlier contents are lost.  NULL: no memory. */
static unsigned char *coll__workspace_memory(const coll_request *r, size_t length)
{
    coll__workspace *const w = coll__workspace_reserve(r->order, r->workspace);

    if (!w) return NULL;
    if (length <= w->arena_length) return (unsigned char *)w->arena;
    coll__give(w->arena);
    w->arenas++;
    w->arena = coll__allocate(coll__like(r->comm), length);
    w->arena_length = w->arena ? length : 0;
    return (unsigned char *)w->arena;
}

#endif /* COLL_WORKSPACE_H */
