/* coll_workspace.h - the memory of running calls: buffers of received blocks and partial sums, and cached executions.  A call
 * takes a workspace of its order; later calls reuse it. */
#ifndef COLL_WORKSPACE_H
#define COLL_WORKSPACE_H

/* Free the workspaces from `first` on; none is in use. */
static void coll__workspaces_give(coll__order *order, int first)
{
    for (int i = first; i < COLL__OVERLAP; i++) {
        coll__workspace *const w = order->workspaces[i];
        for (int k = 0; w && k < COLL__CACHED; k++) {
            if (w->cached[k]) coll__give(w->cached[k]->memory);
            coll__give(w->cached[k]);
        }
        if (w) coll__give(w->arena);
        coll__give(w);
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

/* Make a block at least `length` bytes long; earlier contents are lost.  Is its address another one? */
static bool coll__make_room(const coll_comm *comm, void **block, size_t length)
{
    if (*block && length <= coll__prefix_of(*block)->length) return false;
    coll__give(*block);
    *block = coll__allocate(coll__like(comm), length);
    return true;
}

/* Memory for a request while it runs; earlier contents are lost.  NULL: no memory. */
static unsigned char *coll__workspace_memory(const coll_request *r, size_t length)
{
    coll__workspace *const w = coll__workspace_reserve(r->order, r->workspace);

    if (!w) return NULL;
    w->arenas += coll__make_room(r->comm, &w->arena, length);
    return (unsigned char *)w->arena;
}

#endif /* COLL_WORKSPACE_H */
