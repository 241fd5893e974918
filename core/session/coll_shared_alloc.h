/* coll_shared_alloc.h - memory that the ranks of a host read in place (core/contract/coll_memory.h). */
#ifndef COLL_SHARED_ALLOC_H
#define COLL_SHARED_ALLOC_H

COLL_API void *coll_alloc(coll_comm *comm, size_t length)
{
    if (!comm || !*comm->guard) return NULL;
    const coll_transport *t = comm->session->transport;
    const coll_allocator *shared = t->memory ? t->memory(comm->session->context) : NULL;
    void *at = shared ? coll__take_lines(shared, length) : NULL;

    if (!at) at = coll__take_lines(coll__like(comm), length);
    if (!at) coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "coll_alloc: no memory for %zu bytes", length);
    return at;
}

COLL_API void coll_dealloc(coll_comm *comm, void *at)
{
    if (comm && *comm->guard) coll__give(at);     /* a forked child frees nothing of its parent               */
}

#endif /* COLL_SHARED_ALLOC_H */
