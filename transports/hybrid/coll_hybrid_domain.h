/* coll_hybrid_domain.h - the shared-memory domain of all ranks of a host: how it is set up, and how it ends.
 *
 * It lies in the segment (coll_tcp_shm_segment.h) of the first rank on that host.  The endpoint table tells all ranks whether
 * each of them has a segment; if one has none, there is no handshake.  The shared-memory handshake:
 *
 *     first rank                                  other rank
 *     creates the domain; its word: OPEN
 *                                                 maps the first rank's segment, checks if it may read that process, takes its
 *                                                 rank slot; its word, in its own segment: COPIES or READS,
 *                                                 or CANNOT
 *     reads the words of all; its word: AGREED,
 *     or CANNOT if a rank cannot or times out
 *                                                 reads it
 *
 * So either all ranks have the domain, or none.  If one process may not read another (hardened kernel, containers), the domain
 * carries short vectors, and messages carry long ones.
 *
 * A process that is killed, or suspended for long, is detected over TCP.  Peers need not wait for its accesses: it only reads. */
#ifndef COLL_HYBRID_DOMAIN_H
#define COLL_HYBRID_DOMAIN_H

enum { COLL__DOMAIN_OF_PROCESS, COLL__DOMAIN_OF_HOST, COLL__DOMAINS };

typedef struct coll__hybrid {
    coll__tcp    *tcp;
    coll__thread *domains[COLL__DOMAINS];         /* this rank's side of each; NULL: none                     */
    void         *mapped;                         /* mapping of the host's                                    */
    coll__exported   *exported;                   /* exported memory of this rank; NULL: none                 */
    char          description[200];
} coll__hybrid;

#if COLL__HAS_DOMAIN

enum {
    COLL__SHM_HANDSHAKE_MS = 10000,               /* for all ranks of a host, once the world is complete      */
    COLL__SHM_HANDSHAKE_YIELDS = 2000, COLL__SHM_HANDSHAKE_PAUSE_MS = 1,
    COLL__STAGINGS = 2 * COLL__STAGING_EACH       /* bytes of a staging area, at the end of a segment         */
};

/* State of a shared-memory handshake. */
typedef struct coll__shm_handshake {
    coll__tcp *tcp;
    const coll__exported *exported;               /* exported memory of this rank; NULL: none                 */
    int       *ranks;                             /* of this host, in ascending order                         */
    int        count, place;                      /* their number, and index of this rank                     */
    int64_t    deadline;
    int        tries;
} coll__shm_handshake;

static inline coll__shm_segment_head *coll__shm_segment_head_at(void *at) { return (coll__shm_segment_head *)at; }

/* Waits a little.  Returns false after the deadline, or if the world has failed. */
static bool coll__shm_handshake_waits(coll__shm_handshake *handshake)
{
    if (handshake->tries++ < COLL__SHM_HANDSHAKE_YIELDS) {
        sched_yield();
        return true;
    }
    return coll__tcp_progress(handshake->tcp, COLL__SHM_HANDSHAKE_PAUSE_MS) == COLL_OK && coll__now() < handshake->deadline;
}

/* Maps the first `length` bytes of a rank's segment, once its word is set.  Returns NULL if that cannot happen.  The descriptor
 * may belong to another process (pid namespaces of containers) or, after a failure, to the previous world.  The first rank maps
 * the segments of the others read-only. */
static void *coll__shm_handshake_map(coll__shm_handshake *handshake, int rank, size_t length)
{
    const coll__tcp *tcp = handshake->tcp;
    const coll__endpoint *endpoint = &tcp->endpoints[rank];
    void *at = NULL;

    for (;;) {
        const bool can_write = handshake->place > 0;
        uint64_t id = 0;
        size_t is_long = 0;
        int fd = coll__segment_open(endpoint->pid, endpoint->segment - 1, can_write, &id, &is_long);
        if (fd >= 0 && is_long == COLL__SEGMENT_LENGTH)
            at = coll__segment_map_part(fd, 0, length, can_write ? PROT_READ | PROT_WRITE : PROT_READ);
        coll__close_fd(&fd);
        if (!at) return NULL;
        const coll__shm_segment_head *head = coll__shm_segment_head_at(at);
        const bool is_theirs = head->magic == COLL__SEGMENT_MAGIC && head->rank == (uint32_t)rank
                            && !memcmp(head->world, tcp->us.world, sizeof head->world);
        if (!is_theirs && tcp->us.epoch == 0) goto none;
        do {
            if (is_theirs && __atomic_load_n(&head->word, __ATOMIC_ACQUIRE) != COLL__SEGMENT_SILENT) return at;
            if (!coll__shm_handshake_waits(handshake)) goto none;
        } while (is_theirs || handshake->tries % 64);
        coll__segment_unmap(at, length);          /* after a failure it may have a new one by now             */
        at = NULL;
    }
none:
    coll__segment_unmap(at, length);
    return NULL;
}

/* Writes this rank's word, in its own segment. */
static void coll__shm_handshake_say(const coll__shm_handshake *handshake, coll__shm_segment_word word)
{
    coll__shm_segment_head *head = coll__shm_segment_head_at(handshake->tcp->segment.at);

    __atomic_store_n(&head->word, (uint32_t)word, __ATOMIC_SEQ_CST);
}

/* Ends the handshake, in the first rank's segment, and returns its outcome.  Any rank may give up at any time.  The outcome
 * written first holds for all. */
static coll__shm_segment_word coll__shm_handshake_end(coll__shm_segment_head *first, coll__shm_segment_word word)
{
    uint32_t is = COLL__SEGMENT_OPEN;

    (void)__atomic_compare_exchange_n(&first->word, &is, (uint32_t)word, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return is == COLL__SEGMENT_OPEN ? word : (coll__shm_segment_word)is;
}

static coll__region coll__region_of(const coll__shm_segment *segment, uint64_t offset, uint64_t length)
{
    return (coll__region){ .segment = segment->id, .number = (uint32_t)segment->fd, .offset = offset, .length = length,
                           .base = (uint64_t)(uintptr_t)segment->at + offset };
}

/* Takes this rank's slot.  `process`: the lowest rank of the same address space.  Returns false if a process that was suspended
 * in an earlier job, of the same name and address, has taken it. */
static bool coll__shm_handshake_take_slot(const coll__shm_handshake *handshake, coll__domain *domain, int process)
{
    const coll__tcp *tcp = handshake->tcp;
    const coll__exported *exported = handshake->exported;
    coll__rank_slot *rank_slot = &coll__domain_rank_slots(domain)[handshake->place];
    const uint64_t staging = COLL__SEGMENT_LENGTH - COLL__STAGINGS;
    uint32_t none = 0;

    if (!__atomic_compare_exchange_n(&rank_slot->pid, &none, (uint32_t)getpid(), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return false;
#if defined(__SANITIZE_THREAD__)                  /* it does not see that two mappings of a domain are one memory */
    process = tcp->rank;
#endif
    rank_slot->process = process;
    rank_slot->doorbell = tcp->io.doorbell;
    rank_slot->doorbell_id = coll__fd_id(rank_slot->doorbell.write_fd);
    rank_slot->regions[COLL__REGION_STAGING] = coll__region_of(&tcp->segment, staging, COLL__STAGINGS);
    if (exported) rank_slot->regions[COLL__REGION_EXPORTED] = coll__region_of(&exported->segment, 0, exported->length);
    return true;
}

/* Returns whether this process may read the one that owns this segment. */
static bool coll__shm_handshake_can_copy(const coll__shm_segment_head *head, uint32_t pid)
{
    uint32_t magic = 0;

    return !coll__process_read(pid, &magic, (const void *)(uintptr_t)head->base, sizeof magic) && magic == COLL__SEGMENT_MAGIC;
}

/* The first rank creates the domain. */
static coll__domain *coll__shm_handshake_make(const coll__shm_handshake *handshake, int process, bool is_crowded)
{
    coll__domain *domain = (coll__domain *)(void *)(handshake->tcp->segment.at + COLL__SEGMENT_HEAD);
    pthread_mutexattr_t shared;

    domain->size = handshake->count;
    domain->has_names = domain->is_apart = domain->has_doorbells = true;
    memcpy(coll__domain_names(domain), handshake->ranks, (size_t)handshake->count * sizeof *handshake->ranks);
    domain->room_at = coll__round_up(coll__domain_length(domain->size), COLL__PAGE);
    domain->room_end = COLL__SEGMENT_LENGTH - COLL__STAGINGS - COLL__SEGMENT_HEAD;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&domain->lock, &shared);
    pthread_mutexattr_destroy(&shared);
    const bool is_made = domain->room_at < domain->room_end && coll__domain_begin(domain, is_crowded);
    return is_made && coll__shm_handshake_take_slot(handshake, domain, process) ? domain : NULL;
}

/* The first rank waits for the others and publishes the outcome. */
static coll__domain *coll__shm_handshake_lead(coll__shm_handshake *handshake, int process, bool is_crowded)
{
    coll__domain *domain = coll__shm_handshake_make(handshake, process, is_crowded);
    coll__shm_segment_head *const own = coll__shm_segment_head_at(handshake->tcp->segment.at);
    bool can_copy = true;

    if (domain) coll__shm_handshake_say(handshake, COLL__SEGMENT_OPEN);
    for (int i = 1; domain && i < handshake->count; i++) {
        const int rank = handshake->ranks[i];
        void *const at = coll__shm_handshake_map(handshake, rank, COLL__SEGMENT_HEAD);
        const coll__shm_segment_head *head = at ? coll__shm_segment_head_at(at) : NULL;
        const uint32_t word = head ? __atomic_load_n(&head->word, __ATOMIC_ACQUIRE) : COLL__SEGMENT_CANNOT;
        if (word == COLL__SEGMENT_CANNOT) domain = NULL;
        else can_copy = can_copy && word == COLL__SEGMENT_COPIES
                        && coll__shm_handshake_can_copy(head, handshake->tcp->endpoints[rank].pid);
        coll__segment_unmap(at, COLL__SEGMENT_HEAD);
    }
    if (domain) domain->can_copy = can_copy;
    if (domain && coll__shm_handshake_end(own, COLL__SEGMENT_AGREED) == COLL__SEGMENT_AGREED) return domain;
    coll__shm_handshake_say(handshake, COLL__SEGMENT_CANNOT);
    return NULL;
}

/* The other ranks join and wait for the outcome.  *at: their mapping. */
static coll__domain *coll__shm_handshake_follow(coll__shm_handshake *handshake, int process, void **at)
{
    const int first = handshake->ranks[0];
    coll__shm_segment_head *head = coll__shm_segment_head_at(*at = coll__shm_handshake_map(handshake, first,
                                                                                           COLL__SEGMENT_LENGTH));
    coll__domain *domain = head ? (coll__domain *)(void *)coll__behind(head, COLL__SEGMENT_HEAD) : NULL;
    uint32_t word = head ? __atomic_load_n(&head->word, __ATOMIC_ACQUIRE) : COLL__SEGMENT_CANNOT;

    if (word == COLL__SEGMENT_CANNOT || domain->size != handshake->count
        || !coll__shm_handshake_take_slot(handshake, domain, process)) {
        coll__shm_handshake_say(handshake, COLL__SEGMENT_CANNOT);
        return NULL;
    }
    coll__shm_handshake_say(handshake,
                            coll__shm_handshake_can_copy(head, handshake->tcp->endpoints[first].pid) ? COLL__SEGMENT_COPIES
                                                                                               : COLL__SEGMENT_READS);
    while ((word = __atomic_load_n(&head->word, __ATOMIC_ACQUIRE)) == COLL__SEGMENT_OPEN)
        if (!coll__shm_handshake_waits(handshake)) (void)coll__shm_handshake_end(head, COLL__SEGMENT_CANNOT);
    return word == COLL__SEGMENT_AGREED ? domain : NULL;
}

/* Lists the ranks of this host; count 0: some have no segment, so there is no domain.  Returns false: no memory. */
static bool coll__shm_handshake_call(coll__shm_handshake *handshake)
{
    const coll__tcp *tcp = handshake->tcp;
    bool has_segments = tcp->segment.at != NULL;

    handshake->ranks = (int *)coll__take(coll__like(tcp), (size_t)tcp->size * sizeof *handshake->ranks);
    handshake->deadline = coll__deadline(COLL__SHM_HANDSHAKE_MS);
    for (int i = 0; handshake->ranks && i < tcp->size; i++) {
        if (!coll__is_of_this_host(tcp, i)) continue;
        has_segments = has_segments && tcp->endpoints[i].segment && tcp->endpoints[i].pid;
        if (i == tcp->rank) handshake->place = handshake->count;
        handshake->ranks[handshake->count++] = i;
    }
    if (!has_segments || handshake->count < 2) handshake->count = 0;
    return handshake->ranks != NULL;
}

/* Enters the domain of this host, if there is one; `process`: the lowest rank of this process.  Creates this rank's exported
 * memory if needed.  Fails if there is no memory. */
static coll_status coll__host_domain_enter(coll__hybrid *me, int process, bool is_crowded)
{
    coll__tcp *const tcp = me->tcp;
    const bool has_exported = me->exported != NULL;
    coll__shm_handshake handshake = { .tcp = tcp };
    coll_status status = coll__shm_handshake_call(&handshake) ? COLL_OK : COLL_ERR_MEMORY;
    coll__thread *thread = NULL;
    coll__domain *domain = NULL;

    if (handshake.count > 0 && !has_exported) me->exported = coll__exported_new(coll__like(tcp), handshake.count);
    handshake.exported = me->exported;
    if (handshake.count > 0)
        domain = handshake.place == 0 ? coll__shm_handshake_lead(&handshake, process, is_crowded)
                 : coll__shm_handshake_follow(&handshake, process, &me->mapped);
    coll__give(handshake.ranks);
    if (domain && !(thread = coll__thread_open(coll__like(tcp), domain, tcp->rank))) status = COLL_ERR_MEMORY;
    me->domains[COLL__DOMAIN_OF_HOST] = thread;
    if (thread) return status;
    coll__segment_unmap(me->mapped, COLL__SEGMENT_LENGTH);
    me->mapped = NULL;
    if (has_exported) return status;
    coll__exported_drop(me->exported);            /* no peer would read it                                    */
    me->exported = NULL;
    return status;
}

static void coll__host_domain_leave(const coll__hybrid *me)
{
    coll__threads_close(me->domains[COLL__DOMAIN_OF_HOST]);
    coll__segment_unmap(me->mapped, COLL__SEGMENT_LENGTH);
}

/* ---- >>failure ---- */

/* Called before this rank waits in the domain, which does not show whether a peer is alive. */
static void coll__host_domain_probe(const coll__thread *thread, coll__tcp *tcp)
{
    const coll__domain *domain = thread->domain;

    for (int i = 0; i < domain->size && tcp->presence[0] != COLL__PRESENT; i++)
        if (!__atomic_load_n(&coll__domain_rank_slots(domain)[i].has_left, __ATOMIC_ACQUIRE))
            coll__watch_rank(tcp, coll__rank_slot_name(domain, i));
}

/* All ranks have agreed on a failure.  No rank begins to access another one's memory, and ranks of this process end such
 * accesses.  Other processes only read, and check for a failure afterwards. */
static void coll__host_domain_fail(const coll__thread *thread, const coll_failure *agreed)
{
    coll__domain *domain = thread->domain;

    if (!coll__domain_has_failed(domain)) {
        domain->failure = *agreed;                /* every rank writes the same                               */
        coll__domain_set_failed(domain);
    }
    (void)coll__domain_ring(thread);
    coll__domain_quiesce(thread);
}

#else

static inline coll_status coll__host_domain_enter(const coll__hybrid *me, int process, bool is_crowded)
{
    (void)me, (void)process, (void)is_crowded;
    return COLL_OK;
}

static inline void coll__host_domain_leave(const coll__hybrid *me) { (void)me; }
static inline void coll__host_domain_probe(const coll__thread *thread, const coll__tcp *tcp) { (void)thread, (void)tcp; }

static inline void coll__host_domain_fail(const coll__thread *thread, const coll_failure *agreed) { (void)thread, (void)agreed; }

#endif
#endif /* COLL_HYBRID_DOMAIN_H */
