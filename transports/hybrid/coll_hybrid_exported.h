/* coll_hybrid_exported.h - exported memory: the program has it from coll_alloc, and the other ranks of the host read it in place.
 *
 *     head                how many bytes of the segment may be accessed
 *     the rest            an arena (core/base/coll_arena.h)
 *
 * It is a separate segment (coll_segment.h) and belongs to no world: a world that coll_shrink creates uses that of the previous
 * one, and the last one that is closed unmaps it.  All addresses are reserved at the start, but only what has been allocated may
 * be accessed: so mlockall takes memory for no more. */
#ifndef COLL_HYBRID_EXPORTED_H
#define COLL_HYBRID_EXPORTED_H

#if COLL__HAS_DOMAIN

enum {
    COLL__EXPORTED_PIECE = 2 << 20,               /* bytes: it is opened by whole pieces                      */
    COLL__EXPORTED_PART = 8                       /* the segments of a host use 1 of so many addresses that a process may have */
};

#define COLL__EXPORTED_MOST  ((size_t)(sizeof(void *) > 4 ? (uint64_t)64 << 30 : (uint64_t)64 << 20))
#define COLL__EXPORTED_LEAST ((size_t)8 << 20)

typedef struct coll__exported {
    int             users;                        /* worlds that use it                                       */
    coll__shm_segment segment;
    size_t          length, opened;
    coll__lock      lock;                         /* guards `opened`                                          */
    const coll_allocator *arena;
    coll_allocator  allocator;                    /* for the program                                          */
} coll__exported;

/* Makes the first `end` bytes accessible.  Returns false: the system refuses. */
static bool coll__exported_open(coll__exported *exported, size_t end)
{
    const size_t to = coll__least(coll__round_up(end, COLL__EXPORTED_PIECE), exported->length);

    if (to <= exported->opened) return true;
    if (mprotect(exported->segment.at, to, PROT_READ | PROT_WRITE)) return false;
    exported->opened = to;
    __atomic_store_n((uint64_t *)(void *)exported->segment.at, (uint64_t)to, __ATOMIC_RELEASE);
    return true;
}

/* The arena writes behind what it allocates, so a little more is opened. */
static void *coll__exported_allocate(void *context, size_t length, size_t alignment)
{
    coll__exported *const exported = (coll__exported *)context;
    void *at = NULL;

    if (length > exported->length || alignment > exported->length) return NULL;
    coll__lock_take(&exported->lock);
    if (coll__exported_open(exported, COLL__LINE + coll_arena_most(exported->arena) + length + alignment + COLL__LINE))
        at = exported->arena->allocate(exported->arena->context, length, alignment);
    coll__lock_drop(&exported->lock);
    return at;
}

/* Returns unused pages to the system; peers keep them mapped, and read zeros. */
static void coll__exported_punch(void *at, size_t length)
{
    enum { WORTH = 64 << 10 };
    const uintptr_t begin = (uintptr_t)at, first = (begin + COLL__PAGE - 1) / COLL__PAGE * COLL__PAGE;
    const uintptr_t end = (begin + length) / COLL__PAGE * COLL__PAGE;

    if (length >= WORTH && end > first) (void)madvise((void *)first, end - first, MADV_REMOVE);
}

static void coll__exported_free(void *context, void *at, size_t length)
{
    const coll__exported *const exported = (const coll__exported *)context;

    coll__exported_punch(at, length);
    exported->arena->free(exported->arena->context, at, length);
}

/* A world no longer uses it. */
static void coll__exported_drop(coll__exported *exported)
{
    if (!exported || __atomic_sub_fetch(&exported->users, 1, __ATOMIC_ACQ_REL) > 0) return;
    coll__segment_unmap(exported->segment.at, exported->length);
    coll__close_fd(&exported->segment.fd);
    coll__lock_free(&exported->lock);
    coll__give(exported);
}

/* Another world uses it. */
static inline coll__exported *coll__exported_share(coll__exported *exported)
{
    if (exported) __atomic_add_fetch(&exported->users, 1, __ATOMIC_RELAXED);
    return exported;
}

/* For one of `ranks` ranks of a host: the largest that the limits of this process allow.  NULL: none. */
static coll__exported *coll__exported_new(const coll_allocator *memory, int ranks)
{
    coll__exported *const exported = (coll__exported *)coll__allocate(memory, sizeof *exported);
    struct rlimit most = { RLIM_INFINITY, RLIM_INFINITY };

    if (!exported) return NULL;
    *exported = (coll__exported){ .users = 1, .segment = coll__no_segment,
                                  .allocator = { coll__exported_allocate, coll__exported_free, exported } };
    coll__lock_init(&exported->lock);
    (void)getrlimit(RLIMIT_AS, &most);
    for (size_t length = COLL__EXPORTED_MOST; !exported->segment.at && length >= COLL__EXPORTED_LEAST; length /= 2) {
        if (most.rlim_cur != RLIM_INFINITY && length > most.rlim_cur / COLL__EXPORTED_PART / (rlim_t)ranks) continue;
        exported->length = length;
        exported->segment = coll__shm_segment_new(length, PROT_NONE);
    }
    if (!exported->segment.at || !coll__exported_open(exported, 1)) {
        coll__exported_drop(exported);
        return NULL;
    }
    exported->arena = coll_arena_begin(exported->segment.at + COLL__LINE, exported->length - COLL__LINE);
    return exported;
}

#else

typedef struct coll__exported { coll_allocator allocator; } coll__exported;

static inline void coll__exported_drop(const coll__exported *exported) { (void)exported; }
static inline coll__exported *coll__exported_share(coll__exported *exported) { return exported; }

#endif
#endif /* COLL_HYBRID_EXPORTED_H */
