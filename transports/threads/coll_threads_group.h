/* coll_threads_group.h - groups: some ranks of the hub with seats of their own, so that their turns are counted apart.
 *
 * Whoever comes first makes the group and the others find it, by its id and its members: two groups without a common member
 * may have the same id.  A group that some have left already, and others have not yet entered, is older than its successor of
 * the same name; so the oldest one in which our seat is still free is ours. */
#ifndef COLL_THREADS_GROUP_H
#define COLL_THREADS_GROUP_H

enum {
    COLL__EAGER_SHORT = 256,                      /* bytes of an eager message that fits in a slot            */
    COLL__EAGER_LONG = 4096, COLL__EAGER_ALL = 16384          /* of a longer one, and of those of all ranks   */
};

/* What a rank publishes of its call in a direct turn. */
typedef struct coll__view {
    const unsigned char *send;
    unsigned char       *recv;
    size_t               count, recv_count;
    const size_t        *send_counts, *send_offsets, *recv_counts, *recv_offsets;
    const coll_type     *send_types, *recv_types;
} coll__view;

enum { COLL__LOOKS = 32 };                        /* at a word that has not come, before one does something else */

enum { COLL__HEAD_WORDS = COLL_HEAD_LENGTH / 8 };

/* The number, the fingerprint and a short input share a cache line. */
typedef struct __attribute__((aligned(COLL__LINE))) coll__slot {
    uint64_t      posted;                         /* the turn that this slot is of; written last              */
    uint64_t      head[COLL__HEAD_WORDS];         /* the fingerprint of the call                              */
    union {
        unsigned char data[COLL__EAGER_SHORT];    /* the input, if it is eager                                 */
        coll__view    view;                       /* directly: where the buffers are                          */
    } is;
} coll__slot;

typedef struct __attribute__((aligned(COLL__LINE))) coll__seat {
    coll__slot slots[COLL__TURN_SLOTS];
    __attribute__((aligned(COLL__LINE))) uint64_t done;     /* the last direct turn in which this rank's share is done */
    uint64_t   overflowed;                        /* the last one whose share had an infinity or a NaN (COLL_DETECT_OVERFLOW) */
    __attribute__((aligned(COLL__LINE))) uint32_t has_left;
    bool       is_taken;                          /* its rank has entered the group; guarded by the hub's lock */
} coll__seat;

typedef struct coll__group {
    uint64_t    id;
    int         count, holders;                   /* holders: members that have not left, or not entered yet  */
    int        *ranks;                            /* as the hub calls them                                    */
    coll__seat *seats;                            /* each written by its own rank only                        */
    unsigned char *bounce;                        /* room for long eager messages, one for each slot; NULL: there are none */
    size_t      bag_length;
    struct coll__group *next;
} coll__group;

static void coll__group_free(coll__group *group)
{
    if (!group) return;
    coll__give(group->ranks);
    coll__unreserve(group->seats, (size_t)group->count * sizeof *group->seats);
    coll__unreserve(group->bounce, COLL__TURN_SLOTS * (size_t)group->count * group->bag_length);
    coll__give(group);
}

/* A group of these ranks; `ranks` NULL: of the hub's first ones.  Where ranks share processors, waiting is dear, and an eager
 * message saves a wait but has to be read by all: so longer ones are eager there, as long as there are not too many. */
static coll__group *coll__group_new(const coll__hub *hub, uint64_t id, const int *ranks, int count)
{
    coll__group *group = (coll__group *)coll__allocate(coll__like(hub), sizeof *group);

    if (!group) return NULL;
    group->id = id;
    group->count = group->holders = count;
    group->ranks = (int *)coll__allocate(coll__like(hub), (size_t)count * sizeof *group->ranks);
    group->seats = (coll__seat *)coll__reserve((size_t)count * sizeof *group->seats);
    group->bag_length = hub->is_crowded ? coll__least(COLL__EAGER_LONG, COLL__EAGER_ALL / (size_t)count) : 0;
    if (group->bag_length <= COLL__EAGER_SHORT) group->bag_length = 0;
    if (group->bag_length) group->bounce = (unsigned char *)coll__reserve(COLL__TURN_SLOTS * (size_t)count * group->bag_length);
    if (!group->ranks || !group->seats || (group->bag_length && !group->bounce)) {
        coll__group_free(group);
        return NULL;
    }
    for (int i = 0; i < count; i++) group->ranks[i] = ranks ? ranks[i] : hub->first + i;
    return group;
}

/* The group with this id and these members in which seat `me` is free, made if need be.  The caller holds the hub's lock. */
static coll__group *coll__group_find(coll__hub *hub, uint64_t id, const int *ranks, int count, int me)
{
    coll__group **at = &hub->groups;

    for (; *at; at = &(*at)->next) {
        const coll__group *g = *at;
        const bool is_ours = g->id == id && g->count == count && !memcmp(g->ranks, ranks, (size_t)count * sizeof *ranks);
        if (is_ours && !g->seats[me].is_taken) return *at;
    }
    return *at = coll__group_new(hub, id, ranks, count);
}

static void coll__group_leave(coll__hub *hub, coll__group *group, int me)
{
    pthread_mutex_lock(&hub->lock);
    __atomic_store_n(&group->seats[me].has_left, 1, __ATOMIC_SEQ_CST);
    if (--group->holders == 0) {
        coll__group **at = &hub->groups;
        while (*at != group) at = &(*at)->next;
        *at = group->next;
        coll__group_free(group);
    }
    pthread_mutex_unlock(&hub->lock);
    coll__hub_ring(hub);                          /* some may wait for us there                               */
}

/* false: no memory. */
static bool coll__member_init(coll__member *m, coll__thread *thread, coll__group *group, int me)
{
    const size_t each = (size_t)group->count, sorts = group->bounce ? 2 : 1;
    coll__source *eager = (coll__source *)coll__allocate(coll__like(thread), sorts * COLL__TURN_SLOTS * each * sizeof *eager);

    if (!eager) return false;
    m->thread = thread;
    m->group = group;
    m->seats = group->seats;
    m->own = &group->seats[me];
    m->count = group->count;
    m->rank = me;
    m->looks = thread->hub->is_crowded ? 1 : COLL__LOOKS;
    m->eager_most = coll__most(COLL__EAGER_SHORT, group->bag_length);
    m->cache_share = thread->hub->cache_length / 4 * 3 / (size_t)group->count;      /* a quarter is for everything else */
    for (int k = 0; k < COLL__TURN_SLOTS; k++, eager += sorts * each) {
        m->eager[0][k] = eager;
        m->eager[1][k] = eager + (sorts - 1) * each;
        for (int i = 0; i < group->count; i++) {
            const size_t bag = ((size_t)i * COLL__TURN_SLOTS + (size_t)k) * group->bag_length;
            if (group->bounce) m->eager[1][k][i] = (coll__source){ group->bounce + bag, COLL__AS_USER, i };
            m->eager[0][k][i] = (coll__source){ group->seats[i].slots[k].is.data, COLL__AS_USER, i };
        }
    }
    return true;
}

static void coll__member_end(coll__member *m)
{
    coll__give(m->held);
    coll__give(m->eager[0][0]);
}

/* Without memory for our side of it, it is the end of all: the others count on us. */
static void *coll__threads_group(void *context, uint64_t id, const int *ranks, int count, int me)
{
    coll__thread *thread = (coll__thread *)context;
    coll__hub *hub = thread->hub;
    coll__member *m = (coll__member *)coll__allocate(coll__like(hub), sizeof *m);

    pthread_mutex_lock(&hub->lock);
    coll__group *group = coll__group_find(hub, id, ranks, count, me);
    if (group) group->seats[me].is_taken = true;
    pthread_mutex_unlock(&hub->lock);
    if (!group || !m || !coll__member_init(m, thread, group, me)) {
        if (group) coll__group_leave(hub, group, me);
        coll__give(m);
        coll__blame(&thread->suspicion, COLL_ERR_MEMORY, thread->rank, "rank %d has no memory for a communicator", thread->rank);
        return NULL;
    }
    m->next = thread->members;
    thread->members = m;
    return m;
}

static void coll__threads_ungroup(void *context, void *handle)
{
    coll__thread *thread = (coll__thread *)context;
    coll__member *m = (coll__member *)handle, **at = &thread->members;

    while (*at != m) at = &(*at)->next;
    *at = m->next;
    coll__group_leave(thread->hub, m->group, m->rank);
    coll__member_end(m);
    coll__give(m);
}

/* Our side of the group in which a task is carried out. */
static inline coll__member *coll__member_of(coll__thread *thread, const coll_task *task)
{
    return task->group ? (coll__member *)task->group : &thread->all;
}

/* Has this member left the group, or the hub? */
static bool coll__member_left(const coll__member *m, int rank)
{
    return __atomic_load_n(&m->seats[rank].has_left, __ATOMIC_ACQUIRE) ||
           __atomic_load_n(&coll__desk_of(m->thread->hub, m->group->ranks[rank])->has_left, __ATOMIC_ACQUIRE);
}

#endif /* COLL_THREADS_GROUP_H */
