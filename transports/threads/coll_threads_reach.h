/* coll_threads_reach.h - how a rank reads what lies in the memory of another.
 *
 *     it is of our process                 where it says
 *     it lies in the other one's room      in the same place of that room, which we have mapped, too (coll_alloc)
 *     anywhere else                        the kernel copies it (process_vm_readv)
 *
 * A rank never writes into another process: it may be stopped in the middle of that, given up by the others, and continued when
 * these use their memory for something else.
 *
 * A rank combines its share by windows of many elements: of inputs that cannot be read in place a window is fetched, to the first
 * piece of memory that stays in the cache.  Where all ranks are of one process the window is everything, and nothing is copied.
 *
 * Where the kernel refuses to copy, the status is COLL_ERR_UNSUPPORTED, and the call goes another way. */
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
    for (int i = 0; me->ropes && i < me->hub->size; i++) (void)coll__rope_to(me, i);
    return me->rooms && me->ropes && me->fetched;
}

/* What lies at `at` in the memory of the rank with this desk, in ours.  NULL: it is not there. */
static const void *coll__reach_at(coll__thread *me, int number, const void *at, size_t length)
{
    unsigned char **const room = &me->rooms[number];
    const coll__desk *const desk = &coll__hub_desks(me->hub)[number];
    const uint64_t distance = (uint64_t)(uintptr_t)at - desk->room_base;

    if (desk->party == me->desk->party) return at;
    if (distance >= desk->room_length || length > desk->room_length - distance) return NULL;
    if (!*room) {
        size_t is_long = 0;
        int fd = coll__segment_open(desk->pid, desk->room_number, &is_long);
        if (fd >= 0 && is_long == desk->room_length) *room = (unsigned char *)coll__segment_map(fd, is_long);
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

static inline const void *coll__reach_at(const coll__thread *me, int number, const void *at, size_t length)
{
    return (void)me, (void)number, (void)length, at;
}

#endif

COLL__FOR_SPEED

/* Does `at` lie in the room of this member?  Asked of a rank's own memory: then the others reach it there. */
static inline bool coll__is_in_room(const coll__member *m, int rank, const void *at)
{
    const coll__desk *const desk = coll__desk_of(m->thread->hub, m->ranks[rank]);
    return (uint64_t)(uintptr_t)at - desk->room_base < desk->room_length;
}

/* What lies at `at` in the memory of a member of the group, in ours, to be read.  NULL: it is not there. */
static inline const void *coll__reach(const coll__member *m, int rank, const void *at, size_t length)
{
    if (!coll__is_apart(m) || rank == m->rank) return at;
    return coll__reach_at(m->thread, coll__desk_number(m->thread->hub, m->ranks[rank]), at, length);
}

COLL__FOR_SIZE

/* Read the memory of a member.  COLL_ERR_UNSUPPORTED: the kernel does not copy it, or the process has ended; that shows over
 * TCP. */
static coll_status coll__reach_read(const coll__member *m, int rank, void *to, const void *from, size_t length)
{
    const void *const there = coll__reach(m, rank, from, length);

    if (there) memcpy(to, there, length);
    else if (coll__process_read(coll__desk_of(m->thread->hub, m->ranks[rank])->pid, to, from, length))
        return COLL_ERR_UNSUPPORTED;
    return COLL_OK;
}

/* Can so many bytes be read?  Tells by the first and the last. */
static coll_status coll__reach_try(const coll__member *m, int rank, const void *from, size_t length)
{
    unsigned char byte;
    const unsigned char *const first = (const unsigned char *)from;
    const coll_status status = length ? coll__reach_read(m, rank, &byte, first, 1) : COLL_OK;

    return length > 1 && status == COLL_OK ? coll__reach_read(m, rank, &byte, first + length - 1, 1) : status;
}

COLL__FOR_SPEED

#endif /* COLL_THREADS_REACH_H */
