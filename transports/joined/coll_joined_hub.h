/* coll_joined_hub.h - the hub of all ranks of a host: how they come to have it, and how it ends.
 *
 * It lies in the room (coll_tcp_room.h) of the first rank that lives there.  All ranks know from the table of endpoints whether
 * each of them has a room, and otherwise nobody waits for anybody.  Then:
 *
 *     the first rank                              another one
 *     makes the hub; its word: OPEN
 *                                                 opens the room of the first, looks whether it may copy from its process, sits
 *                                                 down at its desk; its word, in its own room: COPIES or READS,
 *                                                 or CANNOT
 *     reads the words of all; its word: AGREED,
 *     or CANNOT, if one cannot or does not come
 *                                                 reads it
 *
 * So all have the hub, or nobody has.  Where one process may not copy from another (a hardened kernel, containers), the hub is
 * for short vectors, and messages carry the long ones.
 *
 * A process that is killed, or stopped for long, is found dead over TCP.  Nobody waits for what it is doing: it only reads, and
 * nothing of it stays behind. */
#ifndef COLL_JOINED_HUB_H
#define COLL_JOINED_HUB_H

#if COLL__HAS_HUB

enum {
    COLL__MEET_MS = 10000,                        /* for all ranks of a host to come, once all of the world are there */
    COLL__MEET_YIELDS = 2000, COLL__MEET_PAUSE_MS = 1,
    COLL__STAGINGS = 2 * COLL__STAGING_EACH       /* bytes of a staging area, at the end of a room            */
};

/* Those who come to terms. */
typedef struct coll__meeting {
    coll__tcp *tcp;
    const coll__lent *lent;                       /* ours; NULL: we have none                                 */
    int       *ranks;                             /* of this host, in ascending order                         */
    int        count, place;                      /* how many, and which of them we are                       */
    int64_t    deadline;
    int        turns;
} coll__meeting;

static inline coll__host_room_head *coll__host_room_head_at(void *at) { return (coll__host_room_head *)at; }

/* Wait a little.  false: it is too late, or somebody has died, and there is no world any more. */
static bool coll__meeting_waits(coll__meeting *meeting)
{
    if (meeting->turns++ < COLL__MEET_YIELDS) {
        sched_yield();
        return true;
    }
    return coll__tcp_progress(meeting->tcp, COLL__MEET_PAUSE_MS) == COLL_OK && coll__now() < meeting->deadline;
}

/* The first `length` bytes of the room of a rank, once its word is no longer `silence`.  NULL: there is no hope of that.  What is
 * found may be of somebody else, where processes have numbers of their own (containers), or, after a failure, still the room of
 * the world before.  The first rank only reads the rooms of the others. */
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
        coll__segment_unmap(at, length);          /* it may have another one by now, after a failure          */
        at = NULL;
    }
none:
    coll__segment_unmap(at, length);
    return NULL;
}

/* Our word, in our room. */
static void coll__meeting_say(const coll__meeting *meeting, coll__host_room_word word)
{
    coll__host_room_head *head = coll__host_room_head_at(meeting->tcp->room.at);

    __atomic_store_n(&head->word, (uint32_t)word, __ATOMIC_SEQ_CST);
}

/* End the meeting, in the room of the first rank, and give what has come of it.  Who gives up may do so at any time: what is said
 * first is so for all, and no rank has a hub that another one lacks. */
static coll__host_room_word coll__meeting_end(coll__host_room_head *first, coll__host_room_word word)
{
    uint32_t is = COLL__ROOM_OPEN;

    (void)__atomic_compare_exchange_n(&first->word, &is, (uint32_t)word, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return is == COLL__ROOM_OPEN ? word : (coll__host_room_word)is;
}

/* Our desk.  `party`: the first of the ranks that were opened together with us, which have one another's memory.  false: somebody
 * else has it, who was stopped in an earlier job of the same name, at the same address. */
static bool coll__meeting_sit(const coll__meeting *meeting, coll__hub *hub, int party)
{
    const coll__tcp *tcp = meeting->tcp;
    const coll__lent *lent = meeting->lent;
    coll__desk *desk = &coll__hub_desks(hub)[meeting->place];
    const uint64_t staging = COLL__ROOM_LENGTH - COLL__STAGINGS;
    uint32_t nobody = 0;

    if (!__atomic_compare_exchange_n(&desk->pid, &nobody, (uint32_t)getpid(), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return false;
#if defined(__SANITIZE_THREAD__)                  /* it does not see that two ranks of a process meet in two mappings of a hub */
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

/* May we copy from the process whose room this is? */
static bool coll__meeting_can_copy(const coll__host_room_head *head, uint32_t pid)
{
    uint32_t magic = 0;

    return !coll__process_read(pid, &magic, (const void *)(uintptr_t)head->base, sizeof magic) && magic == COLL__ROOM_MAGIC;
}

/* The first rank makes the hub. */
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

/* The first rank waits for the others, and says what comes of it. */
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

/* The others come, and hear what comes of it.  *at: what is mapped for them. */
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

/* The ranks of this host; count 0: some have no room, so that there will be no hub.  false: no memory. */
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

/* Our side of the hub of this host; `party`: the first of those of our process.  *lent: what this rank lends, made if need be;
 * *mapped: what is ours to unmap.  NULL: there is no hub, or, *status, no memory. */
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
    coll__lent_drop(*lent);                       /* nobody would read it                                     */
    *lent = NULL;
    return NULL;
}

static void coll__host_hub_leave(coll__thread *thread, void *mapped)
{
    coll__threads_close(thread);
    coll__segment_unmap(mapped, COLL__ROOM_LENGTH);
}

/* ---- >>failure ---- */

/* This rank is going to wait in the hub, where nothing shows whether another one lives. */
static void coll__host_hub_probe(const coll__thread *thread, coll__tcp *tcp)
{
    const coll__hub *hub = thread->hub;

    for (int i = 0; i < hub->size && coll__probes_others(tcp); i++)
        if (!__atomic_load_n(&coll__hub_desks(hub)[i].has_left, __ATOMIC_ACQUIRE)) coll__probe_rank(tcp, coll__desk_name(hub, i));
}

/* All ranks have agreed on a failure: nobody enters another one's memory any more, and those of our process who are in ours leave
 * it.  Those of other processes only read it, and look for a failure afterwards. */
static void coll__host_hub_fail(const coll__thread *thread, const coll_failure *agreed)
{
    coll__hub *hub = thread->hub;

    if (!coll__hub_has_failed(hub)) {
        hub->failure = *agreed;                   /* each of them writes the same                             */
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
