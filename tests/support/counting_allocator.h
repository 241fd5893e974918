/* counting_allocator.h - an allocator for tests, which counts allocations and frees, and can refuse.  Include after support.h. */
#ifndef COLL_TESTS_COUNTER_H
#define COLL_TESTS_COUNTER_H

/* ---- >>an allocator that counts, and refuses a chosen allocation ---- */

typedef struct counter {
    long taken, refused_at;                       /* so far; 0: none is refused                               */
    long blocks, bytes;                           /* that are out                                             */
    int  was_refused, is_wrong;
} counter;

static void *counter_allocate(void *context, size_t length, size_t alignment)
{
    counter *const p = (counter *)context;
    const long number = __atomic_add_fetch(&p->taken, 1, __ATOMIC_RELAXED);
    void *at = NULL;

    if (alignment == 0 || (alignment & (alignment - 1)) != 0) p->is_wrong = 1;
    if (number == __atomic_load_n(&p->refused_at, __ATOMIC_RELAXED)) return p->was_refused = 1, NULL;
    if (posix_memalign(&at, alignment < sizeof(void *) ? sizeof(void *) : alignment, length)) return NULL;
    memset(at, 0xa5, length);                     /* the library must not expect zeros                        */
    __atomic_add_fetch(&p->blocks, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&p->bytes, (long)length, __ATOMIC_RELAXED);
    return at;
}

static void counter_free(void *context, void *at, size_t length)
{
    counter *const p = (counter *)context;

    __atomic_sub_fetch(&p->blocks, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&p->bytes, (long)length, __ATOMIC_RELAXED);
    memset(at, 0x5a, length);
    free(at);
}

#endif /* COLL_TESTS_COUNTER_H */
