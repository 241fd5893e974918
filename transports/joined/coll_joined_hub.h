/* coll_joined_hub.h - the shared-memory domain of all ranks of a host: how it is set up, and how it ends.
 *
 * It lies in the segment (coll_tcp_room.h) of the first rank on that host.  The endpoint table tells all ranks whether each of
 * them has a segment; if one has none, there is no handshake.  The shared-memory handshake:
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
#ifndef COLL_JOINED_HUB_H
#define COLL_JOINED_HUB_H

#if COLL__HAS_HUB

enum {
    COLL__MEET_MS = 10000,                        /* for all ranks of a host, once the world is complete      */
    COLL__MEET_YIELDS = 2000, COLL__MEET_PAUSE_MS = 1,
    COLL__STAGINGS = 2 * COLL__STAGING_EACH       /* bytes of a staging area, at the end of a segment         */
};

/* State of a shared-memory handshake. */
typedef struct coll__meeting {
    coll__tcp *tcp;
    const coll__lent *lent;                       /* exported memory of this rank; NULL: none                 */
    int       *ranks;                             /* of this host, in ascending order                         */
    int        count, place;                      /* their number, and index of this rank                     */
    int64_t    deadline;
    int        turns;
} coll__meeting;

static inline coll__host_room_head *coll__host_room_head_at(void *at) { return (coll__host_room_head *)at; }

/* Waits a little.  Returns false after the deadline, or if the world has failed. */
static bool coll__meeting_waits(coll__meeting *meeting)
{
    if (meeting->turns++ < COLL__MEET_YIELDS) {
        sched_yield();
        return true;
    }
    return coll__tcp_progress(meeting->tcp, COLL__MEET_PAUSE_MS) == COLL_OK && coll__now() < meeting->deadline;
}

/* Maps the first `length` bytes of a rank's segment, once its word is set.  Returns NULL if that cannot happen.  The descriptor
 * may belong to another process (pid namespaces of containers) or, after a failure, to the previous world.  The first rank maps
 * the segments of the others read-only. */
static void *coll__meeting_visit(coll__meeting *meeting, int rank, size_t length)
{
    const coll__tcp *tcp = meeting->tcp;
    const coll__endpoint *endpoint = &tcp->endpoints[rank];
    void *at = NULL;

    for (;;) {
        const bool can_write = meeting->place > 0;
        uint64_t id = 0;
        size_t is_long = 0;
        int fd = coll__segment_open(endpoint->pid, endpoint->room - 1, can_write, &id, &is_long);
        if (fd >= 0 && is_long == COLL__ROOM_LENGTH)
            at = coll__segment_map_part(fd, 0, length, can_write ? PROT_READ | PROT_WRITE : PROT_READ);
        coll__close_fd(&fd);
        if (!at) return NULL;
        const coll__host_room_head *head = coll__host_room_head_at(at);
        const bool is_theirs = head->magic == COLL__ROOM_MAGIC && head->rank == (uint32_t)rank
                            && !memcmp(head->world, tcp->us.world, sizeof head->world);
        if (!is_theirs && tcp->us.epoch == 0) goto none;
        do {
            if (is_theirs && __atomic_load_n(&head->word, __ATOMIC_ACQUIRE) != COLL__ROOM_SILENT) return at;
            if (!coll__meeting_waits(meeting)) goto none;
        } while (is_theirs || meeting->turns % 64);
        coll__segment_unmap(at, length);          /* after a failure it may have a new one by now             */
        at = NULL;
    }
none:
    coll__segment_unmap(at, length);
    return NULL;
}

/* Writes this rank's word, in its own segment. */
static void coll__meeting_say(const coll__meeting *meeting, coll__host_room_word word)
{
    coll__host_room_head *head = coll__host_room_head_at(meeting->tcp->room.at);

    __atomic_store_n(&head->word, (uint32_t)word, __ATOMIC_SEQ_CST);
}

/* Ends the handshake, in the first rank's segment, and returns its outcome.  Any rank may give up at any time.  The outcome
 * written first holds for all. */
static coll__host_room_word coll__meeting_end(coll__host_room_head *first, coll__host_room_word word)
{
    uint32_t is = COLL__ROOM_OPEN;

    (void)__atomic_compare_exchange_n(&first->word, &is, (uint32_t)word, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return is == COLL__ROOM_OPEN ? word : (coll__host_room_word)is;
}

/* Takes this rank's slot.  `party`: the lowest rank of the same address space.  Returns false if a process that was suspended in
 * an earlier job, of the same name and address, has taken it. */
static bool coll__meeting_sit(const coll__meeting *meeting, coll__hub *hub, int party)
{
    const coll__tcp *tcp = meeting->tcp;
    const coll__lent *lent = meeting->lent;
    coll__desk *desk = &coll__hub_desks(hub)[meeting->place];
    const uint64_t staging = COLL__ROOM_LENGTH - COLL__STAGINGS;
    uint32_t nobody = 0;

    if (!__atomic_compare_exchange_n(&desk->pid, &nobody, (uint32_t)getpid(), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return false;
#if defined(__SANITIZE_THREAD__)                  /* it does not see that two mappings of a domain are one memory */
    party = tcp->rank;
#endif
    desk->party = party;
    desk->bell = tcp->io.bell;
    desk->bell_id = coll__fd_id(desk->bell.rope);
    desk->regions[COLL__REGION_STAGING] = (coll__region){ .segment = tcp->room.id, .number = (uint32_t)tcp->room.fd,
                                                          .base = (uint64_t)(uintptr_t)tcp->room.at + staging,
                                                          .length = COLL__STAGINGS, .offset = staging };
    if (lent) desk->regions[COLL__REGION_LENT] = (coll__region){ .segment = lent->id, .number = (uint32_t)lent->fd,
                                                                 .base = (uint64_t)(uintptr_t)lent->at, .length = lent->length };
    return true;
}

/* Returns whether this process may read the one that owns this segment. */
static bool coll__meeting_can_copy(const coll__host_room_head *head, uint32_t pid)
{
    uint32_t magic = 0;

    return !coll__process_read(pid, &magic, (const void *)(uintptr_t)head->base, sizeof magic) && magic == COLL__ROOM_MAGIC;
}

/* The first rank creates the domain. */
static coll__hub *coll__meeting_make(const coll__meeting *meeting, int party, bool is_crowded)
{
    coll__hub *hub = (coll__hub *)(void *)(meeting->tcp->room.at + COLL__ROOM_HEAD);
    pthread_mutexattr_t shared;

    hub->size = meeting->count;
    hub->has_names = hub->is_apart = hub->has_bells = true;
    memcpy(coll__hub_names(hub), meeting->ranks, (size_t)meeting->count * sizeof *meeting->ranks);
    hub->room_at = coll__round_up(coll__hub_length(hub->size), COLL__PAGE);
    hub->room_end = COLL__ROOM_LENGTH - COLL__STAGINGS - COLL__ROOM_HEAD;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&hub->lock, &shared);
    pthread_mutexattr_destroy(&shared);
    const bool is_made = hub->room_at < hub->room_end && coll__hub_begin(hub, is_crowded);
    return is_made && coll__meeting_sit(meeting, hub, party) ? hub : NULL;
}

/* The first rank waits for the others and publishes the outcome. */
static coll__hub *coll__meeting_lead(coll__meeting *meeting, int party, bool is_crowded)
{
    coll__hub *hub = coll__meeting_make(meeting, party, is_crowded);
    coll__host_room_head *const own = coll__host_room_head_at(meeting->tcp->room.at);
    bool can_copy = true;

    if (hub) coll__meeting_say(meeting, COLL__ROOM_OPEN);
    for (int i = 1; hub && i < meeting->count; i++) {
        const int rank = meeting->ranks[i];
        void *const at = coll__meeting_visit(meeting, rank, COLL__ROOM_HEAD);
        const coll__host_room_head *head = at ? coll__host_room_head_at(at) : NULL;
        const uint32_t word = head ? __atomic_load_n(&head->word, __ATOMIC_ACQUIRE) : COLL__ROOM_CANNOT;
        if (word == COLL__ROOM_CANNOT) hub = NULL;
        else can_copy = can_copy && word == COLL__ROOM_COPIES && coll__meeting_can_copy(head, meeting->tcp->endpoints[rank].pid);
        coll__segment_unmap(at, COLL__ROOM_HEAD);
    }
    if (hub) hub->can_copy = can_copy;
    if (hub && coll__meeting_end(own, COLL__ROOM_AGREED) == COLL__ROOM_AGREED) return hub;
    coll__meeting_say(meeting, COLL__ROOM_CANNOT);
    return NULL;
}

/* The other ranks join and wait for the outcome.  *at: their mapping. */
static coll__hub *coll__meeting_attend(coll__meeting *meeting, int party, void **at)
{
    const int first = meeting->ranks[0];
    coll__host_room_head *head = coll__host_room_head_at(*at = coll__meeting_visit(meeting, first, COLL__ROOM_LENGTH));
    coll__hub *hub = head ? (coll__hub *)(void *)coll__behind(head, COLL__ROOM_HEAD) : NULL;
    uint32_t word = head ? __atomic_load_n(&head->word, __ATOMIC_ACQUIRE) : COLL__ROOM_CANNOT;

    if (word == COLL__ROOM_CANNOT || hub->size != meeting->count || !coll__meeting_sit(meeting, hub, party)) {
        coll__meeting_say(meeting, COLL__ROOM_CANNOT);
        return NULL;
    }
    coll__meeting_say(meeting, coll__meeting_can_copy(head, meeting->tcp->endpoints[first].pid) ? COLL__ROOM_COPIES
                                                                                               : COLL__ROOM_READS);
    while ((word = __atomic_load_n(&head->word, __ATOMIC_ACQUIRE)) == COLL__ROOM_OPEN)
        if (!coll__meeting_waits(meeting)) (void)coll__meeting_end(head, COLL__ROOM_CANNOT);
    return word == COLL__ROOM_AGREED ? hub : NULL;
}

/* Lists the ranks of this host; count 0: some have no segment, so there is no domain.  Returns false: no memory. */
static bool coll__meeting_call(coll__meeting *meeting)
{
    const coll__tcp *tcp = meeting->tcp;
    bool has_rooms = tcp->room.at != NULL;

    meeting->ranks = (int *)coll__take(coll__like(tcp), (size_t)tcp->size * sizeof *meeting->ranks);
    meeting->deadline = coll__deadline(COLL__MEET_MS);
    for (int i = 0; meeting->ranks && i < tcp->size; i++) {
        if (!coll__is_of_this_host(tcp, i)) continue;
        has_rooms = has_rooms && tcp->endpoints[i].room && tcp->endpoints[i].pid;
        if (i == tcp->rank) meeting->place = meeting->count;
        meeting->ranks[meeting->count++] = i;
    }
    if (!has_rooms || meeting->count < 2) meeting->count = 0;
    return meeting->ranks != NULL;
}

/* Enters the domain of this host; `party`: the lowest rank of this process.  *lent: this rank's exported memory, created if
 * needed; *mapped: a mapping to unmap.  Returns NULL if there is no domain, or no memory (*status). */
static coll__thread *coll__host_hub_enter(coll__tcp *tcp, int party, bool is_crowded, coll__lent **lent, void **mapped,
                                          coll_status *status)
{
    const bool has_lent = *lent != NULL;
    coll__meeting meeting = { .tcp = tcp };
    coll__thread *thread = NULL;
    coll__hub *hub = NULL;
    void *at = NULL;

    *mapped = NULL;
    *status = coll__meeting_call(&meeting) ? COLL_OK : COLL_ERR_MEMORY;
    if (meeting.count > 0 && !has_lent) *lent = coll__lent_new(coll__like(tcp), meeting.count);
    meeting.lent = *lent;
    if (meeting.count > 0)
        hub = meeting.place == 0 ? coll__meeting_lead(&meeting, party, is_crowded) : coll__meeting_attend(&meeting, party, &at);
    coll__give(meeting.ranks);
    if (hub && !(thread = coll__thread_open_with(coll__like(tcp), hub, tcp->rank))) *status = COLL_ERR_MEMORY;
    if (thread) *mapped = at;
    else coll__segment_unmap(at, COLL__ROOM_LENGTH);
    if (thread || has_lent) return thread;
    coll__lent_drop(*lent);                       /* no peer would read it                                    */
    *lent = NULL;
    return NULL;
}

static void coll__host_hub_leave(coll__thread *thread, void *mapped)
{
    coll__threads_close(thread);
    coll__segment_unmap(mapped, COLL__ROOM_LENGTH);
}

/* ---- >>failure ---- */

/* Called before this rank waits in the domain, which does not show whether a peer is alive. */
static void coll__host_hub_probe(const coll__thread *thread, coll__tcp *tcp)
{
    const coll__hub *hub = thread->hub;

    for (int i = 0; i < hub->size && coll__probes_others(tcp); i++)
        if (!__atomic_load_n(&coll__hub_desks(hub)[i].has_left, __ATOMIC_ACQUIRE)) coll__probe_rank(tcp, coll__desk_name(hub, i));
}

/* All ranks have agreed on a failure.  No rank begins to access another one's memory, and ranks of this process end such
 * accesses.  Other processes only read, and check for a failure afterwards. */
static void coll__host_hub_fail(const coll__thread *thread, const coll_failure *agreed)
{
    coll__hub *hub = thread->hub;

    if (!coll__hub_has_failed(hub)) {
        hub->failure = *agreed;                   /* every rank writes the same                               */
        coll__hub_set_failed(hub);
    }
    (void)coll__hub_ring(thread);
    coll__hub_quiesce(thread);
}

#else

static inline coll__thread *coll__host_hub_enter(const coll__tcp *tcp, int party, bool is_crowded, coll__lent **lent,
                                                 void **mapped, coll_status *status)
{
    (void)tcp, (void)party, (void)is_crowded, (void)lent;
    *mapped = NULL;
    *status = COLL_OK;
    return NULL;
}

static inline void coll__host_hub_leave(const coll__thread *thread, const void *mapped) { (void)thread, (void)mapped; }
static inline void coll__host_hub_probe(const coll__thread *thread, const coll__tcp *tcp) { (void)thread, (void)tcp; }

static inline void coll__host_hub_fail(const coll__thread *thread, const coll_failure *agreed) { (void)thread, (void)agreed; }

#endif
#endif /* COLL_JOINED_HUB_H */
