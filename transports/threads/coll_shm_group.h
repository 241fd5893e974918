/* coll_shm_group.h - groups: some ranks of a domain, with slots and operation numbers of their own.
 *
 * The first rank that enters creates the group.  The others find it by id, number and members: two groups without a common member
 * may have the same id and number.  So may a group that some ranks have left and others have not entered yet, and its successor.
 * A rank enters the oldest group in which its slot is free. */
#ifndef COLL_SHM_GROUP_H
#define COLL_SHM_GROUP_H

enum {
    COLL__EAGER_INSIDE = 24,                      /* bytes of an eager input in the line of its slot          */
    COLL__EAGER_SHORT = 256,                      /* bytes of an eager input beside its slot                  */
    COLL__PAGE = 4096
};

/* Bytes of longer eager inputs, in bounce buffers. */
typedef struct coll__eager_limits {
    size_t longest, all;                          /* of one rank; of all ranks together                       */
} coll__eager_limits;

/* [several processes][ranks share processors].  An eager input saves a wait, which is expensive if ranks share processors, but is
 * copied once more.  Between threads that takes longer than a wait from 4 KiB on. */
static const coll__eager_limits coll__eager_room[2][2] = {
    { {  4 << 10, 128 << 10 }, {  4 << 10,  16 << 10 } },
    { { 64 << 10, 128 << 10 }, { 16 << 10, 128 << 10 } },
};

/* A buffer of a rank: elements of one block, or of each; or lists of a kind without a common count. */
typedef struct coll__buffer {
    unsigned char   *at;
    size_t           count;
    const size_t    *counts, *offsets;
    const coll_type *types;
} coll__buffer;

/* What a rank publishes for a direct operation. */
typedef struct coll__view {
    coll__buffer         send, recv;
    const unsigned char *made;                    /* several processes: what it computes for others (coll_shm_reduce.h) */
} coll__view;

enum { COLL__LOOKS = 32 };                        /* polls of a number before other work                      */

enum { COLL__HEAD_WORDS = COLL_HEAD_LENGTH / 8 };

/* The number, the fingerprint and a short input share a cache line.  Longer inputs lie elsewhere: peers poll this line, and
 * processors then fetch the adjacent line, too, while its owner writes it. */
typedef struct __attribute__((aligned(COLL__LINE))) coll__slot {
    uint64_t      posted;                         /* operation of this slot; written last                     */
    uint64_t      head[COLL__HEAD_WORDS];         /* fingerprint of the call                                  */
    union {
        unsigned char data[COLL__EAGER_INSIDE];   /* the input, if it is eager and fits                       */
        coll__view    view;                       /* direct: addresses of the buffers                         */
    } is;
} coll__slot;

typedef struct __attribute__((aligned(COLL__LINE))) coll__group_slot {
    coll__slot slots[COLL__SHM_OP_SLOTS];
    unsigned char shorts[COLL__SHM_OP_SLOTS][COLL__EAGER_SHORT];      /* longer ones, by slot                 */
    __attribute__((aligned(COLL__LINE))) uint64_t done;     /* last direct phase that this rank has completed */
    uint64_t   overflowed;                        /* last operation whose share had an infinity or a NaN (COLL_DETECT_OVERFLOW) */
    uint64_t   refused;                           /* several processes: last phase in which a read was refused */
    uint64_t   careful;                           /* several processes: last operation whose result overwrites its input */
    __attribute__((aligned(COLL__LINE))) uint32_t has_left;
    bool       is_taken;                          /* its rank has entered the group; guarded by the domain's lock */
} coll__group_slot;

/* Followed by the members' ranks, their slots, and bounce buffers. */
typedef struct coll__group {
    uint64_t id;                                  /* of the communicator, ...                                 */
    uint32_t number;                              /* ... and of the order in it                               */
    int      count, holders;                      /* holders: members that have not left, or not entered yet  */
    size_t   bounce_length;                       /* bytes of a bounce buffer; 0: there are none              */
    size_t   length;                              /* bytes of the whole                                       */
    int64_t  next;                                /* offset of the next one in the domain's list              */
} coll__group;

static inline int *coll__group_ranks(coll__group *group) { return (int *)(void *)(group + 1); }

static inline coll__group_slot *coll__group_group_slots(coll__group *group)
{
    return (coll__group_slot *)coll__behind(group,
                                            coll__round_up(sizeof *group + (size_t)group->count * sizeof(int), COLL__LINE));
}

/* Bounce buffers: rows with one buffer per member. */
static inline unsigned char *coll__group_bounces(coll__group *group)
{
    return coll__behind(coll__group_group_slots(group) + group->count, 0);
}

/* ---- >>groups: in a domain of several processes their memory is reused ---- */

static void coll__group_free(coll__domain *domain, coll__group *group)
{
    if (!group) return;
    if (!domain->is_apart) {
        coll__unreserve(group, group->length);
        return;
    }
    group->next = domain->gaps;
    domain->gaps = coll__domain_place(domain, group);
}

/* Memory of a domain of several processes: that of a freed group of this length, or new memory before `end`.  NULL: none left. */
static coll__group *coll__domain_take(coll__domain *domain, size_t length, size_t end)
{
    coll__group *gap;

    for (int64_t *at = &domain->gaps; (gap = (coll__group *)coll__domain_at(domain, *at)) != NULL; at = &gap->next) {
        if (gap->length != length) continue;
        *at = gap->next;
        return (coll__group *)memset(gap, 0, length);
    }
    if (end < domain->room_at || end - domain->room_at < length) return NULL;
    domain->room_at += length;
    return (coll__group *)coll__domain_at(domain, (int64_t)(domain->room_at - length));
}

/* Memory for a group of `count` ranks with bounce buffers of this length.  NULL: none left. */
static coll__group *coll__group_take(coll__domain *domain, int count, size_t bounce_length)
{
    const size_t n = (size_t)count, head = coll__round_up(sizeof(coll__group) + n * sizeof(int), COLL__LINE);
    const size_t length = coll__round_up(head + n * (sizeof(coll__group_slot) + COLL__BOUNCE_SLOTS * bounce_length), COLL__PAGE);
    const size_t end = bounce_length ? domain->room_end / 2 : domain->room_end; /* the other half: groups without   */
    coll__group *group = domain->is_apart ? coll__domain_take(domain, length, end) : (coll__group *)coll__reserve(length);

    if (group) group->length = length;
    if (group) group->bounce_length = bounce_length;
    return group;
}

/* A group of these ranks; NULL: of all ranks of the domain. */
static coll__group *coll__group_new(coll__domain *domain, uint64_t id, uint32_t number, const int *ranks, int count)
{
    const coll__eager_limits *const limits = &coll__eager_room[domain->is_apart][domain->is_crowded];
    const size_t each = coll__least(limits->longest, limits->all / (size_t)count) / COLL__LINE * COLL__LINE;
    coll__group *group = each > COLL__EAGER_SHORT ? coll__group_take(domain, count, each) : NULL;

    if (!group) group = coll__group_take(domain, count, 0);
    if (!group) return NULL;
    group->id = id;
    group->number = number;
    group->count = group->holders = count;
    group->next = 0;
    for (int i = 0; i < count; i++) coll__group_ranks(group)[i] = ranks ? ranks[i] : coll__rank_slot_name(domain, i);
    return group;
}

/* Returns the group with this id, number and members in which slot `me` is free; creates it if needed.  The caller holds the
 * domain's lock. */
static coll__group *coll__group_find(coll__domain *domain, uint64_t id, uint32_t number, const int *ranks, int count, int me)
{
    int64_t *at = &domain->groups;

    for (coll__group *g; (g = (coll__group *)coll__domain_at(domain, *at)) != NULL; at = &g->next) {
        const bool is_ours = g->id == id && g->number == number && g->count == count
                          && !memcmp(coll__group_ranks(g), ranks, (size_t)count * sizeof *ranks);
        if (is_ours && !coll__group_group_slots(g)[me].is_taken) return g;
    }
    coll__group *const made = coll__group_new(domain, id, number, ranks, count);
    *at = coll__domain_place(domain, made);
    return made;
}

/* If the lock cannot be taken, the group stays in the list, with one holder too many. */
static void coll__group_leave(coll__thread *thread, coll__group *group, int me)
{
    coll__domain *domain = thread->domain;
    const bool has_lock = coll__domain_lock(thread);

    __atomic_store_n(&coll__group_group_slots(group)[me].has_left, 1, __ATOMIC_SEQ_CST);
    if (has_lock && --group->holders == 0) {
        int64_t *at = &domain->groups;
        while (coll__domain_at(domain, *at) != group) at = &((coll__group *)coll__domain_at(domain, *at))->next;
        *at = group->next;
        coll__group_free(domain, group);
    }
    if (has_lock) coll__domain_unlock(domain);
    (void)coll__domain_ring(thread);              /* members may wait for this rank                           */
}

static void coll__member_init(coll__member *m, coll__thread *thread, coll__group *group, int me)
{
    const int count = group->count, overlap = count <= COLL__FEW_RANKS ? COLL__SHM_OPS_OVERLAP : COLL__SHM_OPS_OVERLAP_MANY;

    m->thread = thread;
    m->group = group;
    m->ranks = coll__group_ranks(group);
    m->group_slots = coll__group_group_slots(group);
    m->own = &m->group_slots[me];
    m->count = count;
    m->rank = me;
    m->overlap = (uint64_t)overlap;
    m->slot_mask = 2 * (uint64_t)overlap - 1;
    for (int i = 0; thread->domain->is_apart && i < m->count; i++)
        m->is_apart |= coll__rank_slot_of(thread->domain, m->ranks[i])->process != thread->rank_slot->process;
    m->is_eager_only = coll__is_apart(m) && !thread->domain->can_copy;
    m->looks = thread->domain->is_crowded ? 1 : COLL__LOOKS;
    m->bounce_length = group->bounce_length;
    m->row_length = group->bounce_length * (size_t)count;
    m->bounces = coll__group_bounces(group);
}

static void coll__member_end(coll__member *m)
{
    if (m->thread && m->thread->stager == m) m->thread->stager = NULL;    /* its last operation failed        */
    coll__give(m->held);
}

/* The lock of the domain cannot be taken. */
static void coll__failed_lock(coll__thread *thread)
{
    const coll__domain *const domain = thread->domain;
    const int said = __atomic_load_n(&domain->locked_by, __ATOMIC_RELAXED) - 1;
    const int rank = coll__rank_slot_name(domain, coll__rank_slot_number(domain, said)) == said ? said : -1;
    char who[40] = "a rank";

    if (rank >= 0) coll__print(who, sizeof who, "rank %d", rank);
    coll__set_failure(&thread->suspicion, COLL_ERR_PEER, rank,
                      "%s has had the lock of the memory that this host's ranks share for "
                      "%d s: its process is stopped, or gets no processor", who, COLL__LOCK_MS / 1000);
}

/* If this rank has no memory, all ranks fail, because they depend on it. */
static void *coll__threads_group(void *context, uint64_t id, uint32_t number, const int *ranks, int count, int me)
{
    coll__thread *thread = (coll__thread *)context;
    coll__domain *domain = thread->domain;
    coll__member *m = (coll__member *)coll__allocate(coll__like(thread), sizeof *m);

    const bool has_lock = coll__domain_lock(thread);
    coll__group *group = has_lock ? coll__group_find(domain, id, number, ranks, count, me) : NULL;
    if (group) coll__group_group_slots(group)[me].is_taken = true;
    if (has_lock) coll__domain_unlock(domain);
    else coll__failed_lock(thread);
    if (!group || !m) {
        if (group) coll__group_leave(thread, group, me);
        coll__give(m);
        coll__set_failure(&thread->suspicion, COLL_ERR_MEMORY, thread->rank, m && domain->is_apart
                          ? "rank %d has no room for more communicators and prepared calls in the memory that this host's ranks "
                            "share: one counts until all ranks have freed it; free some, or set COLL_SHM_COLLECTIVES=off"
                          : "rank %d has no memory for a communicator", thread->rank);
        return NULL;
    }
    coll__member_init(m, thread, group, me);
    m->next = thread->members;
    thread->members = m;
    return m;
}

static void coll__threads_ungroup(void *context, void *handle)
{
    coll__member *m = (coll__member *)handle, **at = &m->thread->members;

    (void)context;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    coll__group_leave(m->thread, m->group, m->rank);
    coll__member_end(m);
    coll__give(m);
}

/* This rank's side of a task's group. */
static inline coll__member *coll__member_of(coll__thread *thread, const coll_task *task)
{
    return task->group ? (coll__member *)task->group : &thread->all;
}

/* Returns whether this member has left the group or the domain. */
static bool coll__member_left(const coll__member *m, int rank)
{
    return __atomic_load_n(&m->group_slots[rank].has_left, __ATOMIC_ACQUIRE) ||
           __atomic_load_n(&coll__rank_slot_of(m->thread->domain, m->ranks[rank])->has_left, __ATOMIC_ACQUIRE);
}

#endif /* COLL_SHM_GROUP_H */
