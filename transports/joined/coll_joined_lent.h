/* coll_joined_lent.h - exported memory: the program has it from coll_alloc, and the other ranks of the host read it in place.
 *
 *     head                how many bytes of the segment may be accessed
 *     the rest            an arena (core/base/coll_arena.h)
 *
 * It is a separate segment (coll_segment.h) and belongs to no world: a world that coll_shrink creates uses that of the previous
 * one, and the last one that is closed unmaps it.  All addresses are reserved at the start, but only what has been allocated may
 * be accessed: so mlockall takes memory for no more. */
#ifndef COLL_JOINED_LENT_H
#define COLL_JOINED_LENT_H

#if COLL__HAS_HUB

enum {
    COLL__LENT_PIECE = 2 << 20,                   /* bytes: it is opened by whole pieces                      */
    COLL__LENT_PART = 8                           /* the segments of a host use 1 of so many addresses that a process may have */
};

#define COLL__LENT_MOST  ((size_t)(sizeof(void *) > 4 ? (uint64_t)64 << 30 : (uint64_t)64 << 20))
#define COLL__LENT_LEAST ((size_t)8 << 20)

typedef struct coll__lent {
    int             users;                        /* worlds that use it                                       */
    int             fd;
    uint64_t        id;                           /* coll__fd_id                                              */
    unsigned char  *at;
    size_t          length, opened;
    coll__lock      lock;                         /* guards `opened`                                          */
    const coll_allocator *arena;
    coll_allocator  allocator;                    /* for the program                                          */
} coll__lent;

/* Makes the first `end` bytes accessible.  Returns false: the system refuses. */
static bool coll__lent_open(coll__lent *lent, size_t end)
{
    const size_t to = coll__least(coll__round_up(end, COLL__LENT_PIECE), lent->length);

    if (to <= lent->opened) return true;
    if (mprotect(lent->at, to, PROT_READ | PROT_WRITE)) return false;
    lent->opened = to;
    __atomic_store_n((uint64_t *)(void *)lent->at, (uint64_t)to, __ATOMIC_RELEASE);
    return true;
}

/* The arena writes behind what it allocates, so a little more is opened. */
static void *coll__lent_allocate(void *context, size_t length, size_t alignment)
{
    coll__lent *const lent = (coll__lent *)context;
    void *at = NULL;

    if (length > lent->length || alignment > lent->length) return NULL;
    coll__lock_take(&lent->lock);
    if (coll__lent_open(lent, COLL__LINE + coll_arena_most(lent->arena) + length + alignment + COLL__LINE))
        at = lent->arena->allocate(lent->arena->context, length, alignment);
    coll__lock_drop(&lent->lock);
    return at;
}

/* Returns unused pages to the system; peers keep them mapped, and read zeros. */
static void coll__lent_punch(void *at, size_t length)
{
    enum { WORTH = 64 << 10 };
    const uintptr_t begin = (uintptr_t)at, first = (begin + COLL__PAGE - 1) / COLL__PAGE * COLL__PAGE;
    const uintptr_t end = (begin + length) / COLL__PAGE * COLL__PAGE;

    if (length >= WORTH && end > first) (void)madvise((void *)first, end - first, MADV_REMOVE);
}

static void coll__lent_free(void *context, void *at, size_t length)
{
    const coll__lent *const lent = (const coll__lent *)context;

    coll__lent_punch(at, length);
    lent->arena->free(lent->arena->context, at, length);
}

/* A world no longer uses it. */
static void coll__lent_drop(coll__lent *lent)
{
    if (!lent || __atomic_sub_fetch(&lent->users, 1, __ATOMIC_ACQ_REL) > 0) return;
    coll__segment_unmap(lent->at, lent->length);
    coll__close_fd(&lent->fd);
    coll__lock_free(&lent->lock);
    coll__give(lent);
}

/* Another world uses it. */
static inline coll__lent *coll__lent_share(coll__lent *lent)
{
    if (lent) __atomic_add_fetch(&lent->users, 1, __ATOMIC_RELAXED);
    return lent;
}

/* For one of `ranks` ranks of a host: the largest that the limits of this process allow.  NULL: none. */
static coll__lent *coll__lent_new(const coll_allocator *memory, int ranks)
{
    coll__lent *const lent = (coll__lent *)coll__allocate(memory, sizeof *lent);
    struct rlimit most = { RLIM_INFINITY, RLIM_INFINITY };

    if (!lent) return NULL;
    *lent = (coll__lent){ .users = 1, .fd = -1, .allocator = { coll__lent_allocate, coll__lent_free, lent } };
    coll__lock_init(&lent->lock);
    (void)getrlimit(RLIMIT_AS, &most);
    for (size_t length = COLL__LENT_MOST; !lent->at && length >= COLL__LENT_LEAST; length /= 2) {
        if (most.rlim_cur != RLIM_INFINITY && length > most.rlim_cur / COLL__LENT_PART / (rlim_t)ranks) continue;
        lent->length = length;
        lent->fd = coll__segment_make(length);
        if (lent->fd >= 0) lent->at = (unsigned char *)coll__segment_map_part(lent->fd, 0, length, PROT_NONE);
        if (!lent->at) coll__close_fd(&lent->fd);
    }
    if (!lent->at || !coll__lent_open(lent, 1)) {
        coll__lent_drop(lent);
        return NULL;
    }
#if defined(MADV_DONTDUMP)
    (void)madvise(lent->at, lent->length, MADV_DONTDUMP);
#endif
    lent->id = coll__fd_id(lent->fd);
    lent->arena = coll_arena_begin(lent->at + COLL__LINE, lent->length - COLL__LINE);
    return lent;
}

#else

typedef struct coll__lent { coll_allocator allocator; } coll__lent;

static inline void coll__lent_drop(const coll__lent *lent) { (void)lent; }
static inline coll__lent *coll__lent_share(coll__lent *lent) { return lent; }

#endif
#endif /* COLL_JOINED_LENT_H */
