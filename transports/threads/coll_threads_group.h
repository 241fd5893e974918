/* coll_threads_group.h - groups: some ranks of a domain, with slots and operation numbers of their own.
 *
 * The first rank that enters creates the group.  The others find it by id, number and members: two groups without a common member
 * may have the same id and number.  So may a group that some ranks have left and others have not entered yet, and its successor.
 * A rank enters the oldest group in which its slot is free. */
#ifndef COLL_THREADS_GROUP_H
#define COLL_THREADS_GROUP_H

enum {
    COLL__EAGER_INSIDE = 24,                      /* bytes of an eager input in the line of its slot          */
    COLL__EAGER_SHORT = 256,                      /* bytes of an eager input beside its slot                  */
    COLL__PAGE = 4096
};

/* Bytes of longer eager inputs, in bounce buffers. */
typedef struct coll__eager_limits {
    size_t learned_from;                          /* longer: timing decides if eager or direct                */
    size_t longest, all;                          /* of one rank; of all ranks together                       */
} coll__eager_limits;

/* [several processes][ranks share processors].  If ranks share processors, waiting is expensive: an eager input saves a wait, but
 * all ranks have to read it. */
static const coll__eager_limits coll__eager_room[2][2] = {
    { { 1024, 32 << 10, 128 << 10 }, { SIZE_MAX,  4 << 10, 16 << 10 } },
    { { 4096, 64 << 10, 128 << 10 }, { SIZE_MAX, 16 << 10, 128 << 10 } },
};

/* What a rank publishes for a direct operation. */
typedef struct coll__view {
    const unsigned char *send;
    unsigned char       *recv;
    const unsigned char *made;                    /* several processes: what it computes for others (coll_threads_sums.h) */
    size_t               count;
    size_t               recv_count;              /* from here on: kinds without a common count               */
    const size_t        *send_counts, *send_offsets, *recv_counts, *recv_offsets;
    const coll_type     *send_types, *recv_types;
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

typedef struct __attribute__((aligned(COLL__LINE))) coll__seat {
    coll__slot slots[COLL__TURN_SLOTS];
    unsigned char shorts[COLL__TURN_SLOTS][COLL__EAGER_SHORT];        /* longer ones, by slot                 */
    __attribute__((aligned(COLL__LINE))) uint64_t done;     /* last direct phase that this rank has completed */
    uint64_t   overflowed;                        /* last operation whose share had an infinity or a NaN (COLL_DETECT_OVERFLOW) */
    uint64_t   refused;                           /* several processes: last phase in which a read was refused */
    uint64_t   careful;                           /* several processes: last operation whose result overwrites its input */
    __attribute__((aligned(COLL__LINE))) uint32_t has_left;
    bool       is_taken;                          /* its rank has entered the group; guarded by the domain's lock */
} coll__seat;

enum { COLL__EAGERNESS_KINDS = COLL_ALLTOALLW + 1, COLL__EAGERNESS_CLASSES = 8 };    /* lengths: powers of 2         */

/* The protocol for calls of one kind and length class, and timings of the first member (coll_threads_eagerness.h). */
typedef struct coll__eagerness {
    uint64_t word;                                /* first operation << 2 | protocol before it << 1 | protocol from it on; 1:
                                                     direct                                                   */
    int64_t  began;                               /* start of the timed run,                                  */
    uint64_t bytes;                               /* and bytes of its inputs                                  */
    uint32_t calls, runs, rest;                   /* in this run; runs; calls until the next run              */
    float    best[2];                             /* ns per byte, of each protocol                            */
} coll__eagerness;

/* Followed by the members' ranks, their slots, and bounce buffers. */
typedef struct coll__group {
    uint64_t id;                                  /* of the communicator, ...                                 */
    uint32_t number;                              /* ... and of the order in it                               */
    coll__eagerness eagerness[COLL__EAGERNESS_KINDS][COLL__EAGERNESS_CLASSES];
    int      count, holders;                      /* holders: members that have not left, or not entered yet  */
    size_t   bag_length;                          /* bytes of a bounce buffer; 0: there are none              */
    size_t   length;                              /* bytes of the whole                                       */
    int64_t  next;                                /* offset of the next one in the domain's list              */
} coll__group;

static inline int *coll__group_ranks(coll__group *group) { return (int *)(void *)(group + 1); }

static inline coll__seat *coll__group_seats(coll__group *group)
{
    return (coll__seat *)coll__behind(group, coll__round_up(sizeof *group + (size_t)group->count * sizeof(int), COLL__LINE));
}

/* Bounce buffers: rows with one buffer per member. */
static inline unsigned char *coll__group_bags(coll__group *group)
{
    return coll__behind(coll__group_seats(group) + group->count, 0);
}

/* ---- >>memory of a domain of several processes: returned blocks are reused ---- */

typedef struct coll__gap { size_t length; int64_t next; } coll__gap;

/* `end`: limit for memory that was never used.  Returns NULL if there is none left. */
static void *coll__hub_take(coll__hub *hub, size_t length, size_t end)
{
    for (int64_t *at = &hub->gaps; *at; at = &((coll__gap *)coll__hub_at(hub, *at))->next) {
        coll__gap *gap = (coll__gap *)coll__hub_at(hub, *at);
        if (gap->length != length) continue;
        *at = gap->next;
        return memset(gap, 0, length);
    }
    if (end < hub->room_at || end - hub->room_at < length) return NULL;
    hub->room_at += length;
    return coll__hub_at(hub, (int64_t)(hub->room_at - length));
}

static void coll__hub_give(coll__hub *hub, void *at, size_t length)
{
    coll__gap *gap = (coll__gap *)at;

    gap->length = length;
    gap->next = hub->gaps;
    hub->gaps = coll__hub_place(hub, gap);
}

/* ---- >>groups ---- */

static void coll__group_free(coll__hub *hub, coll__group *group)
{
    if (!group) return;
    if (hub->is_apart) coll__hub_give(hub, group, group->length);
    else coll__unreserve(group, group->length);
}

/* Memory for a group of `count` ranks with bounce buffers of this length.  NULL: none left. */
static coll__group *coll__group_take(coll__hub *hub, int count, size_t bag_length)
{
    const size_t n = (size_t)count, head = coll__round_up(sizeof(coll__group) + n * sizeof(int), COLL__LINE);
    const size_t length = coll__round_up(head + n * (sizeof(coll__seat) + COLL__BAG_SLOTS * bag_length), COLL__PAGE);
    const size_t end = bag_length ? hub->room_end / 2 : hub->room_end;    /* the other half: groups without   */
    coll__group *group = (coll__group *)(hub->is_apart ? coll__hub_take(hub, length, end) : coll__reserve(length));

    if (group) group->length = length;
    if (group) group->bag_length = bag_length;
    return group;
}

/* A group of these ranks; NULL: of all ranks of the domain. */
static coll__group *coll__group_new(coll__hub *hub, uint64_t id, uint32_t number, const int *ranks, int count)
{
    const coll__eager_limits *const limits = &coll__eager_room[hub->is_apart][hub->is_crowded];
    const size_t each = coll__least(limits->longest, limits->all / (size_t)count) / COLL__LINE * COLL__LINE;
    coll__group *group = each > COLL__EAGER_SHORT ? coll__group_take(hub, count, each) : NULL;

    if (!group) group = coll__group_take(hub, count, 0);
    if (!group) return NULL;
    group->id = id;
    group->number = number;
    group->count = group->holders = count;
    group->next = 0;
    for (int i = 0; i < count; i++) coll__group_ranks(group)[i] = ranks ? ranks[i] : coll__desk_name(hub, i);
    return group;
}

/* Returns the group with this id, number and members in which slot `me` is free; creates it if needed.  The caller holds the
 * domain's lock. */
static coll__group *coll__group_find(coll__hub *hub, uint64_t id, uint32_t number, const int *ranks, int count, int me)
{
    int64_t *at = &hub->groups;

    for (coll__group *g; (g = (coll__group *)coll__hub_at(hub, *at)) != NULL; at = &g->next) {
        const bool is_ours = g->id == id && g->number == number && g->count == count
                          && !memcmp(coll__group_ranks(g), ranks, (size_t)count * sizeof *ranks);
        if (is_ours && !coll__group_seats(g)[me].is_taken) return g;
    }
    coll__group *const made = coll__group_new(hub, id, number, ranks, count);
    *at = coll__hub_place(hub, made);
    return made;
}

/* If the lock cannot be taken, the group stays in the list, with one holder too many. */
static void coll__group_leave(coll__thread *thread, coll__group *group, int me)
{
    coll__hub *hub = thread->hub;
    const bool has_lock = coll__hub_lock(thread);

    __atomic_store_n(&coll__group_seats(group)[me].has_left, 1, __ATOMIC_SEQ_CST);
    if (has_lock && --group->holders == 0) {
        int64_t *at = &hub->groups;
        while (coll__hub_at(hub, *at) != group) at = &((coll__group *)coll__hub_at(hub, *at))->next;
        *at = group->next;
        coll__group_free(hub, group);
    }
    if (has_lock) coll__hub_unlock(hub);
    (void)coll__hub_ring(thread);                 /* members may wait for this rank                           */
}

static void coll__member_init(coll__member *m, coll__thread *thread, coll__group *group, int me)
{
    const int count = group->count, abreast = count <= COLL__FEW_RANKS ? COLL__TURNS_ABREAST : COLL__TURNS_ABREAST_MANY;

    m->thread = thread;
    m->group = group;
    m->ranks = coll__group_ranks(group);
    m->seats = coll__group_seats(group);
    m->own = &m->seats[me];
    m->count = count;
    m->rank = me;
    m->abreast = (uint64_t)abreast;
    m->slot_mask = 2 * (uint64_t)abreast - 1;
    for (int i = 0; thread->hub->is_apart && i < m->count; i++)
        m->is_apart |= coll__desk_of(thread->hub, m->ranks[i])->party != thread->desk->party;
    m->is_eager_only = coll__is_apart(m) && !thread->hub->can_copy;
    m->looks = thread->hub->is_crowded ? 1 : COLL__LOOKS;
    m->bag_length = group->bag_length;
    m->row_length = group->bag_length * (size_t)count;
    m->bags = coll__group_bags(group);
    m->eager_most = coll__most(COLL__EAGER_SHORT, m->bag_length);
    m->rooted_most = coll__most(COLL__EAGER_SHORT, m->row_length);
    m->learned_from = m->is_eager_only ? SIZE_MAX : coll__eager_room[thread->hub->is_apart][thread->hub->is_crowded].learned_from;
    m->eager_sure = coll__least(coll__least(m->learned_from, m->eager_most), COLL__BLOCK);
}

static void coll__member_end(coll__member *m)
{
    if (m->thread && m->thread->stager == m) m->thread->stager = NULL;    /* its last operation failed        */
    coll__give(m->held);
}

/* The lock of the domain cannot be taken. */
static void coll__blame_lock(coll__thread *thread)
{
    const coll__hub *const hub = thread->hub;
    const int said = __atomic_load_n(&hub->locked_by, __ATOMIC_RELAXED) - 1;
    const int rank = coll__desk_name(hub, coll__desk_number(hub, said)) == said ? said : -1;
    char who[40] = "a rank";

    if (rank >= 0) coll__print(who, sizeof who, "rank %d", rank);
    coll__blame(&thread->suspicion, COLL_ERR_PEER, rank, "%s has had the lock of the memory that this host's ranks share for "
                "%d s: its process is stopped, or gets no processor", who, COLL__LOCK_MS / 1000);
}

/* If this rank has no memory, all ranks fail, because they depend on it. */
static void *coll__threads_group(void *context, uint64_t id, uint32_t number, const int *ranks, int count, int me)
{
    coll__thread *thread = (coll__thread *)context;
    coll__hub *hub = thread->hub;
    coll__member *m = (coll__member *)coll__allocate(coll__like(thread), sizeof *m);

    const bool has_lock = coll__hub_lock(thread);
    coll__group *group = has_lock ? coll__group_find(hub, id, number, ranks, count, me) : NULL;
    if (group) coll__group_seats(group)[me].is_taken = true;
    if (has_lock) coll__hub_unlock(hub);
    else coll__blame_lock(thread);
    if (!group || !m) {
        if (group) coll__group_leave(thread, group, me);
        coll__give(m);
        coll__blame(&thread->suspicion, COLL_ERR_MEMORY, thread->rank, "rank %d has no memory for a communicator", thread->rank);
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
    return __atomic_load_n(&m->seats[rank].has_left, __ATOMIC_ACQUIRE) ||
           __atomic_load_n(&coll__desk_of(m->thread->hub, m->ranks[rank])->has_left, __ATOMIC_ACQUIRE);
}

#endif /* COLL_THREADS_GROUP_H */
