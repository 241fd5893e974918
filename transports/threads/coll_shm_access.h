/* coll_shm_access.h - how a rank reads the memory of a peer.
 *
 *     same process                         in place
 *     a region of the peer (coll_alloc)    in this rank's read-only mapping of that region
 *     anywhere else                        the kernel copies it (process_vm_readv)
 *
 * A rank never writes into another process: it could be suspended while it does, declared failed, and resumed after the others
 * have reused that memory.
 *
 * A rank combines its share by windows of many elements.  If an input cannot be read in place, a window of it is fetched, into
 * memory that stays in the cache.  If all ranks are of one process, the window is everything, and nothing is copied.
 *
 * If the kernel refuses to copy, the status is COLL_ERR_UNSUPPORTED, and the call is carried out in another way. */
#ifndef COLL_SHM_ACCESS_H
#define COLL_SHM_ACCESS_H

COLL__FOR_SIZE

#if COLL__HAS_DOMAIN

enum { COLL__FETCH_BYTES = 128 << 10, COLL__FETCH_EACH = 16 << 10 };  /* bytes that a rank fetches at once; more per rank    */

static void coll__shm_access_close(coll__thread *me)
{
    for (int i = 0; me->mappings && i < COLL__REGIONS * me->domain->size; i++)
        coll__segment_unmap((void *)(uintptr_t)me->mappings[i].at, (size_t)me->mappings[i].region.length);
    for (int i = 0; me->peer_doorbells && i < me->domain->size; i++) coll__doorbell_close(&me->peer_doorbells[i]);
    coll__give(me->mappings);
    coll__give(me->peer_doorbells);
    coll__give(me->fetched);
}

/* For a domain of several processes that all ranks have entered.  Returns false: no memory. */
static bool coll__shm_access_open(coll__thread *me, const coll_allocator *memory)
{
    const size_t size = (size_t)me->domain->size;

    me->mappings = (coll__mapping *)coll__allocate(memory, COLL__REGIONS * size * sizeof *me->mappings);
    me->peer_doorbells = (coll__doorbell *)coll__allocate(memory, size * sizeof *me->peer_doorbells);
    me->fetched_length = COLL__FETCH_BYTES + size * COLL__FETCH_EACH;
    me->fetched = coll__take_lines(memory, me->fetched_length);
    for (size_t i = 0; me->peer_doorbells && i < size; i++) me->peer_doorbells[i] = coll__no_doorbell;
    for (int i = 0; me->peer_doorbells && i < me->domain->size; i++) (void)coll__doorbell_to(me, i);
    for (size_t i = 0; me->mappings && i < COLL__REGIONS * size; i++)
        me->mappings[i].region = coll__domain_rank_slots(me->domain)[i / COLL__REGIONS].regions[i % COLL__REGIONS];
    return me->mappings && me->peer_doorbells && me->fetched;
}

/* Maps a region of process `pid`.  Its descriptor may be another segment by now, if its rank has left or changed worlds. */
static void coll__mapping_open(coll__mapping *m, uint32_t pid, bool can_grow)
{
    const coll__region *const r = &m->region;
    uint64_t id = 0;
    size_t length = 0;
    int fd = coll__segment_open(pid, r->number, false, &id, &length);

    if (fd >= 0 && id == r->segment && r->length <= length && r->offset <= length - r->length)
        m->at = (const unsigned char *)coll__segment_map_part(fd, r->offset, (size_t)r->length, can_grow ? PROT_NONE : PROT_READ);
    coll__close_fd(&fd);
    if (m->at) m->opened = can_grow ? 0 : r->length;
    m->is_refused = !m->at;
}

/* Makes a growing region accessible as far as its rank has, if the system allows it. */
static void coll__mapping_grow(coll__mapping *m)
{
    void *const at = (void *)(uintptr_t)m->at;

    if (!m->opened && mprotect(at, COLL__PAGE, PROT_READ)) return;
    const uint64_t said = __atomic_load_n((const uint64_t *)(const void *)m->at, __ATOMIC_ACQUIRE);
    const uint64_t to = said < m->region.length ? said : m->region.length;
    if (to > m->opened && !mprotect(at, (size_t)to, PROT_READ)) m->opened = to;
}

/* Where address `at` of the rank with this slot is mapped here; NULL: nowhere. */
static const void *coll__shm_access_at(coll__thread *me, int number, const void *at, size_t length)
{
    const coll__rank_slot *const rank_slot = &coll__domain_rank_slots(me->domain)[number];

    if (rank_slot->process == me->rank_slot->process) return at;
    for (int i = 0; i < COLL__REGIONS; i++) {
        coll__mapping *const m = &me->mappings[number * COLL__REGIONS + i];
        const uint64_t distance = (uint64_t)(uintptr_t)at - m->region.base, end = distance + length;
        const bool can_grow = i == COLL__REGION_EXPORTED;
        if (distance >= m->region.length || length > m->region.length - distance) continue;
        if (!m->at && !m->is_refused) coll__mapping_open(m, rank_slot->pid, can_grow);
        if (m->at && end > m->opened && can_grow) coll__mapping_grow(m);
        return m->at && end <= m->opened ? m->at + distance : NULL;
    }
    return NULL;
}

#else

static inline void coll__shm_access_close(const coll__thread *me) { (void)me; }
static inline bool coll__shm_access_open(const coll__thread *me, const coll_allocator *memory)
{
    return (void)me, (void)memory, false;
}

static inline const void *coll__shm_access_at(const coll__thread *me, int number, const void *at, size_t length)
{
    return (void)me, (void)number, (void)length, at;
}

#endif

COLL__FOR_SPEED

/* Returns whether `at` is memory of coll_alloc, for a rank's own memory: peers read that in place. */
static inline bool coll__is_in_room(const coll__member *m, int rank, const void *at)
{
    const coll__region *const r = &coll__rank_slot_of(m->thread->domain, m->ranks[rank])->regions[COLL__REGION_EXPORTED];
    return (uint64_t)(uintptr_t)at - r->base < r->length;
}

/* Where address `at` of a member is mapped here, for reading; NULL: nowhere. */
static inline const void *coll__shm_access(const coll__member *m, int rank, const void *at, size_t length)
{
    if (!coll__is_apart(m) || rank == m->rank) return at;
    return coll__shm_access_at(m->thread, coll__rank_slot_number(m->thread->domain, m->ranks[rank]), at, length);
}

COLL__FOR_SIZE

/* Reads a member's memory.  COLL_ERR_UNSUPPORTED: the kernel does not copy it, or the process has ended, which TCP detects. */
static coll_status coll__shm_access_read(const coll__member *m, int rank, void *to, const void *from, size_t length)
{
    const void *const there = coll__shm_access(m, rank, from, length);

    if (there) memcpy(to, there, length);
    else if (coll__process_read(coll__rank_slot_of(m->thread->domain, m->ranks[rank])->pid, to, from, length))
        return COLL_ERR_UNSUPPORTED;
    return COLL_OK;
}

/* Checks that these bytes can be read, by the first and the last. */
static coll_status coll__shm_access_try(const coll__member *m, int rank, const void *from, size_t length)
{
    unsigned char byte;
    const unsigned char *const first = (const unsigned char *)from;
    const coll_status status = length ? coll__shm_access_read(m, rank, &byte, first, 1) : COLL_OK;

    return length > 1 && status == COLL_OK ? coll__shm_access_read(m, rank, &byte, first + length - 1, 1) : status;
}

COLL__FOR_SPEED

#endif /* COLL_SHM_ACCESS_H */
