/* coll_threads_reach.h - how a rank reaches what lies in the memory of another.
 *
 *     it is of our process                 where it says
 *     it lies in the other one's room      in the same place of that room, which we have mapped, too (coll_alloc)
 *     anywhere else                        the kernel copies it (process_vm_readv): to the first piece of it that stays in the
 *                                          cache, where it is combined, and back
 *
 * So what a rank combines for others comes by windows of many elements: of those inputs that cannot be read in place a window is
 * fetched, and of the results that cannot be written there, it is sent afterwards.  Where all ranks are of one process the window
 * is everything, and nothing is copied. */
#ifndef COLL_THREADS_REACH_H
#define COLL_THREADS_REACH_H

COLL__FOR_SIZE

#if COLL__HAS_HUB

enum { COLL__FETCH_BYTES = 128 << 10, COLL__FETCH_EACH = 16 << 10 };  /* what a rank fetches at once, and more for each rank */

static void coll__reach_close(coll__thread *me)
{
    for (int i = 0; me->rooms && i < me->hub->size; i++)
        coll__segment_unmap(me->rooms[i], (size_t)coll__hub_desks(me->hub)[i].room_length);
    for (int i = 0; me->ropes && i < me->hub->size; i++) coll__bell_close(&me->ropes[i]);
    coll__give(me->rooms);
    coll__give(me->ropes);
    coll__give(me->fetched);
}

/* Of a hub that is_apart; false: no memory. */
static bool coll__reach_open(coll__thread *me, const coll_allocator *memory)
{
    const size_t size = (size_t)me->hub->size;

    me->rooms = (unsigned char **)coll__allocate(memory, size * sizeof *me->rooms);
    me->ropes = (coll__bell *)coll__allocate(memory, size * sizeof *me->ropes);
    me->fetched_length = COLL__FETCH_BYTES + size * COLL__FETCH_EACH;
    me->fetched = coll__take_lines(memory, me->fetched_length);
    for (size_t i = 0; me->ropes && i < size; i++) me->ropes[i] = coll__no_bell;
    return me->rooms && me->ropes && me->fetched;
}

/* The address `at` of the rank with this desk, in our memory.  NULL: it is not there. */
static void *coll__reach_at(coll__thread *me, int number, const void *at)
{
    unsigned char **const room = &me->rooms[number];
    const coll__desk *const desk = &coll__hub_desks(me->hub)[number];
    const uint64_t distance = (uint64_t)(uintptr_t)at - desk->room_base;

    if (desk->party == me->desk->party) return (void *)(uintptr_t)at;
    if (distance >= desk->room_length) return NULL;
    if (!*room) {
        size_t length = 0;
        int fd = coll__segment_open(desk->pid, desk->room_number, &length);
        if (fd >= 0 && length == desk->room_length) *room = (unsigned char *)coll__segment_map(fd, length);
        coll__close_fd(&fd);
    }
    return *room ? *room + distance : NULL;
}

#else

static inline void coll__reach_close(const coll__thread *me) { (void)me; }
static inline bool coll__reach_open(const coll__thread *me, const coll_allocator *memory)
{
    return (void)me, (void)memory, false;
}

static inline void *coll__reach_at(const coll__thread *me, int number, const void *at)
{
    return (void)me, (void)number, (void *)(uintptr_t)at;
}

#endif

COLL__FOR_SPEED

/* Does `at` lie in the room of this member?  Asked of a rank's own memory: then the others reach it there. */
static inline bool coll__is_in_room(const coll__member *m, int rank, const void *at)
{
    const coll__desk *const desk = coll__desk_of(m->thread->hub, m->ranks[rank]);
    return (uint64_t)(uintptr_t)at - desk->room_base < desk->room_length;
}

/* Apart: does it lie there because coll_alloc() has given it?  In front of that is the staging area. */
static inline bool coll__is_allocated(const coll__member *m, int rank, const void *at)
{
    const uint64_t staging = coll__desk_of(m->thread->hub, m->ranks[rank])->staging;
    return coll__is_in_room(m, rank, at) && (uint64_t)(uintptr_t)at >= staging + 2 * COLL__STAGING_EACH;
}

/* The address `at` of a member of the group, in our memory.  NULL: it is not there. */
static inline void *coll__reach(const coll__member *m, int rank, const void *at)
{
    if (!coll__is_apart(m) || rank == m->rank) return (void *)(uintptr_t)at;
    return coll__reach_at(m->thread, coll__desk_number(m->thread->hub, m->ranks[rank]), at);
}

COLL__FOR_SIZE

static coll_status coll__reach_failed(const coll__member *m, int rank, int error, coll_failure *failure)
{
    const int name = m->ranks[rank], me = m->ranks[m->rank];

    if (error == ESRCH) return coll__blame(failure, COLL_ERR_PEER, name, "rank %d is gone: its process has ended", name);
    if (error == EFAULT)
        return coll__blame(failure, COLL_ERR_ARGUMENT, name,
                           "a buffer of rank %d is shorter than its call says, or may not be used", name);
    return coll__blame(failure, COLL_ERR_SYSTEM, name, "rank %d cannot reach the memory of rank %d: %s", me, name,
                       strerror(error));
}

/* Read and write the memory of a member where it is not ours. */
static coll_status coll__reach_read(const coll__member *m, int rank, void *to, const void *from, size_t length,
                                    coll_failure *failure)
{
    const void *const there = coll__reach(m, rank, from);
    int error = 0;

    if (there) memcpy(to, there, length);
    else error = coll__process_read(coll__desk_of(m->thread->hub, m->ranks[rank])->pid, to, from, length);
    return error ? coll__reach_failed(m, rank, error, failure) : COLL_OK;
}

static coll_status coll__reach_write(const coll__member *m, int rank, void *to, const void *from, size_t length,
                                     coll_failure *failure)
{
    void *const there = coll__reach(m, rank, to);
    int error = 0;

    if (there) memcpy(there, from, length);
    else error = coll__process_write(coll__desk_of(m->thread->hub, m->ranks[rank])->pid, to, from, length);
    return error ? coll__reach_failed(m, rank, error, failure) : COLL_OK;
}

COLL__FOR_SPEED

#endif /* COLL_THREADS_REACH_H */
