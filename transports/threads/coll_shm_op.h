/* coll_shm_op.h - a shared-memory operation: publish, wait for the required peers, do this rank's share.  If the share
 * accessed peers' memory, wait until they are done, too.
 *
 * Between processes, a direct operation has a barrier after each phase, also for ranks that have all data:
 *
 *     probed    only if a result overwrites an input (careful): every rank has tried to read what it needs
 *     done      every rank has done its share, in its own memory
 *     pulled    every rank has copied what others have computed for it
 *
 * If the system refuses a rank access to a peer's memory, the rank publishes that with the phase.  All ranks see it and decline
 * the operation, with their inputs unchanged. */
#ifndef COLL_SHM_OP_H
#define COLL_SHM_OP_H

/* task->state[0]: not begun; eager input or buffers published; direct: the last completed phase.  state[1]: number of the
 * operation. */
enum { COLL__SHM_OP_NEW, COLL__SHM_OP_POSTED, COLL__SHM_OP_PROBED, COLL__SHM_OP_DONE, COLL__SHM_OP_PULLED };

enum { COLL__PHASES = 4 };                        /* phases of an operation (coll__group_slot.done)                 */

static inline uint64_t coll__phase(uint64_t op_number, uint64_t state)
{
    return op_number * COLL__PHASES + state - COLL__SHM_OP_POSTED;
}

/* Bytes of the longest eager input.  Same on every rank for the same call. */
static inline size_t coll__eager_bytes(const coll__member *m, const coll__form *form, const coll_call *call, size_t unit)
{
    size_t most = 0, sum = 0;

    if (!form->read) return (size_t)1 << 30;      /* never eager                                              */
    if (form->eager <= COLL__EAGER_ONE) return form->eager == COLL__EAGER_EMPTY ? 0 : call->count * unit;
    if (form->eager == COLL__EAGER_EACH) return call->count * unit * (size_t)m->count;
    for (int i = 0; i < m->count; i++) most = coll__most(most, call->recv_counts[i]), sum += call->recv_counts[i];
    return unit * (form->eager == COLL__EAGER_OWN ? most : sum);
}

/* Returns whether an operation is direct: its eager input has no room, or sums of its elements need extra memory. */
static inline bool coll__is_direct(const coll__member *m, const coll__form *form, const coll_call *call, size_t unit,
                                   size_t length)
{
    if (length <= COLL__EAGER_SHORT) return false;
    return length > coll__bounce_most(m, form) || __builtin_expect(unit > COLL__BLOCK && coll__kind_reduces(call->kind), 0);
}

static inline uint64_t coll__head_word(const unsigned char *head, int i)
{
    uint64_t word;

    memcpy(&word, head + 8 * i, 8);
    return word;
}

static inline void coll__slot_set_head(coll__slot *slot, const unsigned char *head)
{
    __atomic_store_n(&slot->head[0], coll__head_word(head, 0), __ATOMIC_RELAXED);
    __atomic_store_n(&slot->head[1], coll__head_word(head, 1), __ATOMIC_RELAXED);
    __atomic_store_n(&slot->head[2], coll__head_word(head, 2), __ATOMIC_RELAXED);
    __atomic_store_n(&slot->head[3], coll__head_word(head, 3), __ATOMIC_RELAXED);
}

static inline bool coll__slot_has_head(const coll__slot *slot, const uint64_t *head)
{
    return ((__atomic_load_n(&slot->head[0], __ATOMIC_RELAXED) ^ head[0])
            | (__atomic_load_n(&slot->head[1], __ATOMIC_RELAXED) ^ head[1])
            | (__atomic_load_n(&slot->head[2], __ATOMIC_RELAXED) ^ head[2])
            | (__atomic_load_n(&slot->head[3], __ATOMIC_RELAXED) ^ head[3])) == 0;
}

/* Polls a published number up to `looks` times. */
static inline bool coll__has_come(const uint64_t *at, uint64_t op_number, int looks)
{
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < op_number) {
        if (--looks <= 0) return false;
        coll__relax();
    }
    return true;
}

/* Checks what a rank has published in a slot.  Returns COLL_PENDING if nothing yet, COLL_ERR_PEER if the rank has left,
 * COLL_ERR_MISMATCH if its call differs from that of this rank. */
static __attribute__((noinline)) coll_status coll__check_group_slot(const coll__member *m, int rank, uint64_t op_number,
                                                                    coll_failure *failure)
{
    const coll__slot *slot = coll__slot_in(m, rank, op_number);
    const uint64_t *head = coll__slot_in(m, m->rank, op_number)->head;
    const int *ranks = m->ranks;

    if (!coll__has_come(&slot->posted, op_number, m->looks)) {
        if (!coll__member_left(m, rank)) return COLL_PENDING;
        if (__atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) < op_number) /* it may have published before it left */
            return coll__failed_left(failure, ranks[rank], ranks[m->rank]);
    }
    if (!coll__slot_has_head(slot, head))
        return coll__failed_mismatch(failure, (const unsigned char *)head, ranks[m->rank], (const unsigned char *)slot->head,
                                     ranks[rank]);
    return COLL_OK;
}

/* Returns whether another rank has published `op_number` in this slot, with this head. */
static inline bool coll__has_posted(const coll__slot *slot, const uint64_t *head, uint64_t op_number)
{
    return __atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) >= op_number && coll__slot_has_head(slot, head);
}

/* Checks that a rank has published `op_number`, with the same call as this rank. */
static inline coll_status coll__check_one(const coll__member *m, int rank, uint64_t op_number, coll_failure *failure)
{
    const uint64_t *head = coll__slot_in(m, m->rank, op_number)->head;
    const bool is_there = rank == m->rank || coll__has_posted(coll__slot_in(m, rank, op_number), head, op_number);
    return is_there ? COLL_OK : coll__check_group_slot(m, rank, op_number, failure);
}

static inline bool coll__have_all_posted(const coll__member *m, uint64_t op_number)
{
    const unsigned slot = coll__slot_number(m, op_number);
    const uint64_t *head = m->own->slots[slot].head;
    const coll__group_slot *const own = m->own, *const end = m->group_slots + m->count;

    for (const coll__group_slot *group_slot = m->group_slots; group_slot < end; group_slot++)
        if (group_slot != own && !coll__has_posted(&group_slot->slots[slot], head, op_number)) return false;
    return true;
}

/* Slow path of coll__check_all. */
static __attribute__((noinline)) coll_status coll__check_all_late(const coll__member *m, uint64_t op_number,
                                                                  coll_failure *failure)
{
    for (int i = 0; i < m->count; i++) {
        const coll_status status = coll__check_one(m, i, op_number, failure);
        if (status != COLL_OK) return status;
    }
    return COLL_OK;
}

/* Checks that all ranks have published, also in operations in which this rank did not wait: its call may differ there. */
static inline coll_status coll__check_all(coll__member *m, uint64_t op_number, coll_failure *failure)
{
    while (m->all_posted < op_number) {
        const uint64_t next = m->all_posted + 1;
        if (!coll__have_all_posted(m, next)) {
            const coll_status status = coll__check_all_late(m, next, failure);
            if (status != COLL_OK) return status;
        }
        m->all_posted = next;
    }
    return COLL_OK;
}

/* The operation that all ranks must have published before this rank publishes its next one.  A rank that publishes operation n
 * has completed those up to n - overlapping.  There are 2 * overlapping slots, so the next slot is free then.  The same holds for
 * bounce buffers with COLL__BOUNCES_OVERLAP. */
static inline uint64_t coll__shm_op_before(const coll__member *m, bool has_bounce)
{
    const uint64_t op_number = m->op_number + 1, overlap = has_bounce ? COLL__BOUNCES_OVERLAP : m->overlap;
    return op_number > overlap ? op_number - overlap : 0;
}

/* Checks that the next operation may be published while `ahead` earlier ones are incomplete. */
static __attribute__((noinline)) coll_status coll__check_room_late(coll__member *m, bool has_bounce, int ahead,
                                                                   coll_failure *failure)
{
    const bool has_bounce_ahead = m->last_bounce + (uint64_t)ahead > m->op_number;

    if (ahead >= COLL__BOUNCES_OVERLAP && (has_bounce_ahead || (uint64_t)ahead >= m->overlap)) return COLL_PENDING;
    return coll__check_all(m, coll__shm_op_before(m, has_bounce), failure);
}

/* Fast path: none is incomplete, and all ranks have published enough. */
static inline coll_status coll__check_room(coll__member *m, bool has_bounce, int ahead, coll_failure *failure)
{
    const uint64_t overlap = has_bounce ? COLL__BOUNCES_OVERLAP : m->overlap;
    const bool is_free = !ahead && m->all_posted + overlap > m->op_number;

    return is_free ? COLL_OK : coll__check_room_late(m, has_bounce, ahead, failure);
}

/* Checks that the required peers have published. */
static inline coll_status coll__check_posted(const coll__shm_op *t, coll__peer_set peer_set)
{
    coll__member *m = t->m;
    const int root = t->call->root;
    coll_status status = COLL_OK;

    if (peer_set == COLL__ALL_PEERS || (peer_set == COLL__ON_ROOT && m->rank == root))
        return coll__check_all(m, t->number, t->failure);
    if (peer_set == COLL__THE_ROOT) return coll__check_one(m, root, t->number, t->failure);
    for (int i = 0; peer_set == COLL__LOWER && i < m->rank && status == COLL_OK; i++)
        status = coll__check_one(m, i, t->number, t->failure);
    return status;
}

/* The required peers of a direct operation: those that must have published, or be done. */
static inline coll__peer_set coll__peers_of(const coll__member *m, const coll__form *form, bool is_done)
{
    if (coll__is_apart(m) || !form->with_root) return COLL__ALL_PEERS;
    return is_done ? COLL__ON_ROOT : COLL__THE_ROOT;
}

/* Checks that the required peers have completed the phase that ends with `state`. */
static coll_status coll__check_done(const coll__shm_op *t, uint64_t state)
{
    const coll__member *m = t->m;
    const coll__peer_set peer_set = coll__peers_of(m, t->form, true);
    const uint64_t phase = coll__phase(t->number, state), *const head = coll__slot_in(m, m->rank, t->number)->head;

    for (int i = 0; i < m->count; i++) {
        const uint64_t *done = &m->group_slots[i].done;
        if (!coll__waits_for(t, peer_set, i)) continue;
        const coll__slot *slot = coll__slot_in(m, i, t->number);
        if (coll__has_come(done, phase, m->looks) && coll__slot_has_head(slot, head)) continue;
        const bool has_left = coll__member_left(m, i);        /* load first: it may finish a phase, then leave */
        const coll_status status = coll__check_group_slot(m, i, t->number, t->failure);
        if (status != COLL_OK) return status;
        if (__atomic_load_n(done, __ATOMIC_ACQUIRE) >= phase) continue;
        return has_left ? coll__failed_left(t->failure, m->ranks[i], m->ranks[m->rank]) : COLL_PENDING;
    }
    return COLL_OK;
}

/* Publishes the next operation, which is in this rank's slot.  Returns false if the domain has failed. */
static inline bool coll__shm_op_publish(coll__member *m, const coll_task *task, coll__slot *slot, uint64_t op_number)
{
    coll__group_slot *const own = m->own;

    COLL__ASSERT(op_number == m->op_number + 1 && __atomic_load_n(&slot->posted, __ATOMIC_RELAXED) < op_number,
                 "operation %llu follows %llu",
                 (unsigned long long)op_number, (unsigned long long)m->op_number);
    coll__slot_set_head(slot, task->head);
    m->op_number = op_number;
    if (__builtin_expect(!coll__domain_publish(m->thread, &slot->posted, op_number), 0)) return false;
    coll__fetch_to_write(&own->slots[coll__slot_number(m, op_number + 1)]); /* the next slot, while this operation waits */
    return true;
}

/* Eager protocol: copies the input into this rank's slot, beside it or into its bounce buffer, and publishes it. */
static inline __attribute__((always_inline)) bool coll__shm_op_post(coll__member *m, const coll__form *form,
                                                                    const coll_task *task, size_t length,
                                                                    const coll__eagers *eager)
{
    const coll_call *call = task->call;
    const uint64_t op_number = m->op_number + 1;
    const bool has_input = !coll__is_eager_of_root(form) || m->rank == call->root;
    const bool is_broadcast = form == &coll__forms[COLL_BROADCAST];
    unsigned char *const own = (unsigned char *)(uintptr_t)coll__eager_at(eager, m->rank);

    if (length > COLL__EAGER_SHORT) m->last_bounce = op_number;
    if (form->eager == COLL__EAGER_OWN) length = call->recv_counts[m->rank] * task->codec->type_size;
    if (has_input) coll__copy_eager(own, (const unsigned char *)(is_broadcast ? call->recv : call->send), length);
    return coll__shm_op_publish(m, task, &m->own->slots[coll__slot_number(m, op_number)], op_number);
}

/* The task continues from here at its next offer. */
static inline void coll__shm_op_posted(coll_task *task, uint64_t op_number)
{
    task->state[0] = COLL__SHM_OP_POSTED;
    task->state[1] = op_number;
}

COLL__FOR_SIZE

/* Begins a direct operation: allocates memory, then publishes the buffers. */
static coll_status coll__shm_op_begin(coll__shm_op *t)
{
    const coll_call *call = t->call;
    coll__slot *slot = coll__slot_in(t->m, t->m->rank, t->m->op_number + 1);
    coll__view *view = &slot->is.view;

    const void *const send = call->kind == COLL_BROADCAST ? call->recv : call->send;
    const bool has_two_counts = coll__shape_in(t)->recv.from == COLL__FROM_RECV_COUNT;
    view->send = (coll__buffer){ (unsigned char *)(uintptr_t)send, call->count, call->send_counts, call->send_offsets,
                                 call->send_types };
    view->recv = (coll__buffer){ (unsigned char *)call->recv, has_two_counts ? call->recv_count : call->count,
                                 call->recv_counts, call->recv_offsets, call->recv_types };
    t->number = t->m->op_number + 1;
    t->m->staging = (coll__staging){ .send = NULL };
    coll_status status = t->form->begin ? t->form->begin(t, view) : COLL_OK;
    t->m->staging.send = view->send.at;
    t->m->staging.recv = view->recv.at;
    if (status == COLL_OK && coll__is_apart(t->m)) status = coll__staging_begin(t, view);
    if (status != COLL_OK) return status;
    if (t->m->staging.is_careful) t->m->own->careful = t->number;
    coll__shm_op_posted(t->task, t->number);
    return coll__shm_op_publish(t->m, t->task, slot, t->number) ? COLL_OK : t->m->thread->domain->failure.status;
}

/* Between processes, after a phase that read peers' memory.  If a peer has failed or left meanwhile, it may have reused its
 * memory, and the data is invalid. */
static coll_status coll__check_read(const coll__shm_op *t)
{
    const coll__member *const m = t->m;

    if (coll__domain_has_failed(m->thread->domain)) return m->thread->domain->failure.status;
    for (int i = 0; i < m->count; i++)
        if (coll__member_left(m, i)) return coll__failed_left(t->failure, m->ranks[i], m->ranks[m->rank]);
    return COLL_OK;
}

/* Runs this rank's part of the phase that ends with `state`; work NULL: there is none. */
static coll_status coll__shm_op_step(const coll__shm_op *t, coll_status (*work)(const coll__shm_op *t), uint64_t state)
{
    coll__thread *const thread = t->m->thread;

    if (!coll__work_begin(thread)) return thread->domain->failure.status;
    coll_status status = work ? work(t) : COLL_OK;
    coll__work_end(thread);
    if (coll__is_apart(t->m) && status == COLL_ERR_UNSUPPORTED) {
        t->m->own->refused = coll__phase(t->number, state);
        status = COLL_OK;
    }
    if (coll__is_apart(t->m) && status == COLL_OK) status = coll__check_read(t);
    if (status != COLL_OK) return status;
    t->task->state[0] = state;
    (void)coll__domain_publish(thread, &t->m->own->done, coll__phase(t->number, state));
    return COLL_OK;
}

/* Between processes: returns whether a rank was refused access in a phase up to that of `state`. */
static bool coll__shm_op_is_refused(const coll__shm_op *t, uint64_t state)
{
    for (int i = 0; i < t->m->count; i++) {
        const uint64_t refused = t->m->group_slots[i].refused;
        if (refused > coll__phase(t->number, COLL__SHM_OP_POSTED) && refused <= coll__phase(t->number, state)) return true;
    }
    return false;
}

/* Returns whether any rank's result overwrites its input. */
static bool coll__shm_op_is_careful(const coll__shm_op *t)
{
    for (int i = 0; i < t->m->count; i++) if (t->m->group_slots[i].careful == t->number) return true;
    return false;
}

#if !defined(COLL__STREAMED)
#define COLL__STREAMED ((size_t)40 << 20)         /* bytes of input and result: longer than most caches       */
#endif

/* Returns whether results are written by streaming stores.  In place they gain nothing: the lines were just read, and are cached.
 * Results that peers copy at once are better in a cache.  A reduction reads the inputs of all ranks, of the length of the result
 * each. */
static bool coll__shm_op_streams(const coll__shm_op *t)
{
    const coll_call *c = t->call;
    const coll__kind_shape *shape = coll__shape_in(t);
    const size_t result = coll__extent(t, &shape->recv, c->recv_counts);

    if (shape->send.who != COLL__WHO_NONE && c->send == c->recv) return false;
    if (coll__is_apart(t->m) && coll__pulls(t->form)) return false;
    return result + (shape->traits & COLL__REDUCES ? (size_t)t->m->count * result : coll__extent(t, &shape->send, c->send_counts))
        >= COLL__STREAMED;
}

/* This rank's share.  Between processes, if the next phase overwrites the input, also probes what it will read. */
static coll_status coll__share_work(const coll__shm_op *t)
{
    coll__shm_op share = *t;

    share.streams = coll__shm_op_streams(t);
    const coll_status status = t->form->share(&share);
    if (share.streams) coll__streamed_end();
    const bool tries = coll__is_apart(t->m) && status == COLL_OK && coll__pulls(t->form) && coll__is_overwritten(t);
    return tries ? t->form->probe(t) : status;
}

/* Between processes: the phase before the share.  If a rank is refused access, no share is needed. */
static coll_status coll__shm_op_probe(const coll__shm_op *t)
{
    coll_status status = COLL_OK;

    if (t->task->state[0] == COLL__SHM_OP_POSTED && t->form->probe && coll__shm_op_is_careful(t))
        status = coll__shm_op_step(t, t->form->probe, COLL__SHM_OP_PROBED);
    if (status != COLL_OK || t->task->state[0] != COLL__SHM_OP_PROBED || !t->m->staging.is_careful) return status;
    return coll__check_done(t, COLL__SHM_OP_PROBED);
}

/* Between processes: declines on all ranks, because some were refused access.  Fails if the input is already overwritten. */
static coll_status coll__shm_op_decline(const coll__shm_op *t)
{
    const int me = t->m->ranks[t->m->rank];

    const bool is_shared = t->m->staging.is_careful && !coll__shm_op_is_refused(t, COLL__SHM_OP_PROBED);
    const bool is_pulled = t->task->state[0] == COLL__SHM_OP_PULLED && coll__is_overwritten(t);
    if (!is_shared && !is_pulled) return COLL_ERR_UNSUPPORTED;
    return coll__set_failure(t->failure, COLL_ERR_SYSTEM, me,
                             "the processes of this host can no longer read one another's memory, "
                             "and the input of rank %d is overwritten: the right was lost in the middle of a call in place", me);
}

/* Between processes: once all are done, copies what others have computed for this rank. */
static coll_status coll__shm_op_pull(const coll__shm_op *t)
{
    coll_status status = COLL_OK;

    if (coll__pulls(t->form) && t->task->state[0] == COLL__SHM_OP_DONE && !coll__shm_op_is_refused(t, COLL__SHM_OP_DONE))
        status = coll__shm_op_step(t, coll__pull, COLL__SHM_OP_PULLED);
    if (status == COLL_OK && t->task->state[0] == COLL__SHM_OP_PULLED)
        status = coll__check_done(t, COLL__SHM_OP_PULLED);
    if (status != COLL_OK) return status;
    if (t->m->thread->stager == t->m) t->m->thread->stager = NULL;
    return coll__shm_op_is_refused(t, t->task->state[0]) ? coll__shm_op_decline(t) : COLL_OK;
}

/* Direct protocol: once the required peers have published, does this rank's share; ends once the required peers are done. */
static __attribute__((noinline)) coll_status coll__shm_op_directly(coll__member *m, const coll__form *form, coll_task *task,
                                                                   coll_failure *failure)
{
    coll__shm_op op_number = { .m = m, .task = task, .call = task->call, .form = form, .failure = failure,
                               .number = task->state[1], .unit = task->codec->type_size }, *const t = &op_number;
    coll_status status;

    if (task->state[0] == COLL__SHM_OP_NEW) {
        if (coll__kind_reduces(task->call->kind) && (status = coll__need_scratch(t)) != COLL_OK) return status;
        if ((status = coll__shm_op_begin(t)) != COLL_OK) return status;
    }
    if (task->state[0] == COLL__SHM_OP_POSTED && (status = coll__check_posted(t, coll__peers_of(m, form, false))) != COLL_OK)
        return status;
    if (coll__is_apart(m) && (status = coll__shm_op_probe(t)) != COLL_OK) return status;
    if (task->state[0] < COLL__SHM_OP_DONE) {
        const bool is_vain = coll__is_apart(m) && coll__shm_op_is_refused(t, COLL__SHM_OP_PROBED);
        coll__fetch_to_write(&m->own->done);
        status = coll__shm_op_step(t, is_vain ? NULL : coll__share_work, COLL__SHM_OP_DONE);
        if (status != COLL_OK) return status;
    }
    if (task->state[0] == COLL__SHM_OP_DONE && (status = coll__check_done(t, COLL__SHM_OP_DONE)) != COLL_OK)
        return status;
    if (coll__is_apart(m) && (status = coll__shm_op_pull(t)) != COLL_OK) return status;
    if (form->end) form->end(t);
    return status;
}

COLL__FOR_SPEED

/* If earlier operations are incomplete, only publishes the eager input.  A later call completes the task. */
static __attribute__((noinline)) coll_status coll__shm_op_ahead(coll__member *m, const coll__form *form, coll_task *task,
                                                                size_t length)
{
    const uint64_t op_number = m->op_number + 1;
    const coll__eagers eager = coll__eagers_of(m, form, op_number, length);

    const bool goes_on = coll__shm_op_post(m, form, task, length, &eager);
    coll__shm_op_posted(task, op_number);
    return goes_on ? COLL_PENDING : m->thread->domain->failure.status;
}

/* Publishes an eager input first, because peers wait for it. */
static inline __attribute__((always_inline)) coll_status coll__shm_op_take(coll__member *m, const coll__form *form,
                                                                           coll_task *task, coll_failure *failure)
{
    const bool is_new = task->state[0] == COLL__SHM_OP_NEW;
    const size_t length = coll__eager_bytes(m, form, task->call, task->codec->type_size);
    const bool is_direct = coll__is_direct(m, form, task->call, task->codec->type_size, length);
    coll_status status;

    if (is_direct && m->is_eager_only) return COLL_ERR_UNSUPPORTED;       /* same on all ranks, without waiting */
    if (is_new && (status = coll__check_room(m, length > COLL__EAGER_SHORT, task->ahead, failure)) != COLL_OK) return status;
    if (task->ahead) return is_new && !is_direct ? coll__shm_op_ahead(m, form, task, length) : COLL_PENDING;
    if (is_direct) return coll__shm_op_directly(m, form, task, failure);
    const uint64_t op_number = is_new ? m->op_number + 1 : task->state[1];
    const coll__shm_op t = { .m = m, .task = task, .call = task->call, .form = form, .failure = failure, .number = op_number,
                             .eager = coll__eagers_of(m, form, op_number, length), .unit = task->codec->type_size };
    if (is_new && __builtin_expect(!coll__shm_op_post(m, form, task, length, &t.eager), 0))
        return m->thread->domain->failure.status;
    if ((status = coll__check_posted(&t, form->eager_from)) != COLL_OK) {
        if (is_new) coll__shm_op_posted(task, op_number);
        return status;
    }
    if (form->eager_from != COLL__ON_ROOT || m->rank == task->call->root) form->read(&t); /* inputs are in the slots */
    return COLL_OK;
}

static coll_status coll__threads_offload(void *context, coll_task *task, coll_failure *failure)
{
    const coll__form *form = coll__form_for(task);

    if (!form) return COLL_ERR_UNSUPPORTED;
    coll__member *const m = coll__member_of((coll__thread *)context, task);
    const int looks = m->looks;
    if (!task->is_blocking) m->looks = 1;         /* its caller has other operations to move                  */
    const coll_status status = coll__shm_op_take(m, form, task, failure);
    m->looks = looks;
    return status;
}

/* One function for each short, frequent kind, with its row of the table as a constant.  Programs that are compiled for size have
 * none. */
#if !defined(COLL__AS_ASKED)
#define COLL__TAKE(name, kind)                                                                              \
    static coll_status coll__take_##name(void *member, coll_task *task, coll_failure *failure)              \
    {                                                                                                       \
        return coll__shm_op_take((coll__member *)member, &coll__forms[kind], task, failure);                \
    }

COLL__TAKE(barrier, COLL_BARRIER)
COLL__TAKE(broadcast, COLL_BROADCAST)
COLL__TAKE(reduce, COLL_REDUCE)
COLL__TAKE(allreduce, COLL_ALLREDUCE)
COLL__TAKE(reduce_scatter, COLL_REDUCE_SCATTER)
COLL__TAKE(allgather, COLL_ALLGATHER)
COLL__TAKE(alltoall, COLL_ALLTOALL)

#undef COLL__TAKE

#endif

static coll_offload_fn *coll__threads_bind(void *context, const coll_task *task, void **bound)
{
    *bound = coll__member_of((coll__thread *)context, task);
    switch (task->call->kind) {
#if !defined(COLL__AS_ASKED)
    case COLL_BARRIER:        return coll__take_barrier;
    case COLL_BROADCAST:      return coll__take_broadcast;
    case COLL_REDUCE:         return coll__take_reduce;
    case COLL_ALLREDUCE:      return coll__take_allreduce;
    case COLL_REDUCE_SCATTER: return coll__take_reduce_scatter;
    case COLL_ALLGATHER:      return coll__take_allgather;
    case COLL_ALLTOALL:       return coll__take_alltoall;
#endif
    default:                  return NULL;
    }
}

COLL__FOR_SIZE

/* Returns whether a call that member `rank` has published, and member `by` has not, differs from what `by` reports under that
 * number.  One of them is this rank.  Slots of the other one that are ahead of its own cannot be overwritten meanwhile. */
static bool coll__posted_disagrees(const coll__member *m, int rank, const unsigned char *report, int by, coll_failure *failure)
{
    unsigned char posted[COLL__REPORT_LENGTH] = { 0 };

    for (uint64_t i = 0; i <= m->slot_mask; i++) {
        const coll__slot *const slot = &m->group_slots[rank].slots[i], *const other = &m->group_slots[by].slots[i];
        if (__atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) <= __atomic_load_n(&other->posted, __ATOMIC_ACQUIRE)) continue;
        memcpy(posted, slot->head, COLL_HEAD_LENGTH);
        if (coll__reports_disagree(failure, posted, m->ranks[rank], report, m->ranks[by])) return true;
    }
    return false;
}

/* Publishes this rank's report.  Compares it with the reports of the others and what they have published, and their reports with
 * its records and what it has published: a rank may wait in messages for others that have ended the call in shared memory. */
static coll_status coll__domain_compare(coll__thread *me, const coll__session *session, const unsigned char *head,
                                        coll_failure *failure)
{
    coll__domain *domain = me->domain;
    const coll__rank_slot *rank_slots = coll__domain_rank_slots(domain);
    unsigned char *const report = me->rank_slot->report;
    bool differs = false;

    if (!coll__domain_lock(me)) return COLL_OK;
    coll__report_make(session, head, report);
    for (int i = 0; i < domain->size && !differs; i++) {
        const int rank = coll__rank_slot_name(domain, i);
        differs = coll__reports_disagree(failure, report, me->rank, rank_slots[i].report, rank)
               || coll__recorded_disagrees(failure, session, rank_slots[i].report, rank);
    }
    for (const coll__member *m = &me->all; m && !differs; m = m == &me->all ? me->members : m->next)
        for (int i = 0; i < m->count && !differs; i++)
            differs = coll__posted_disagrees(m, i, report, m->rank, failure)
                   || coll__posted_disagrees(m, m->rank, coll__rank_slot_of(domain, m->ranks[i])->report, i, failure);
    coll__domain_unlock(domain);
    return differs ? failure->status : COLL_OK;
}

/* This rank waits in a call.  If another one has made a different call of the same number, both would block forever. */
static void coll__threads_report_stall(void *context, const unsigned char *head)
{
    coll__thread *me = (coll__thread *)context;
    coll_failure failure = { COLL_OK, -1, "" };

    if (coll__domain_compare(me, me->rank_slot->session, head, &failure) < 0) (void)coll__threads_fail(me, &failure);
}

/* Checks the operations in which this rank has not waited.  If two ranks leave at once, left_count orders them: the second sees
 * what the first has published. */
static coll_status coll__threads_part(void *context, void *group, const unsigned char *made, coll_failure *failure)
{
    coll__thread *me = (coll__thread *)context;
    const coll__member *m = group ? (const coll__member *)group : &me->all;

    if (!group && coll__domain_compare(me, NULL, made, failure) < 0) return failure->status;
    (void)__atomic_fetch_add(&me->domain->left_count, 0, __ATOMIC_ACQ_REL);
    for (uint64_t op_number = m->all_posted + 1; op_number <= m->op_number; op_number++)
        for (int i = 0; i < m->count; i++) {
            const coll__slot *const slot = coll__slot_in(m, i, op_number);
            if (__atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) != op_number) continue;
            if (coll__check_group_slot(m, i, op_number, failure) == COLL_OK) continue;
            if (!m->is_apart) (void)coll__threads_fail(me, failure);
            return failure->status;
        }
    return COLL_OK;
}

/* A task that has not begun waits for a free slot. */
static void coll__threads_mark_stragglers(const void *context, const coll_task *task, unsigned char *is_late)
{
    const coll__thread *me = (const coll__thread *)context;
    const coll__member *m = task->group ? (const coll__member *)task->group : &me->all;
    coll__shm_op t = { .m = (coll__member *)(uintptr_t)m, .task = (coll_task *)(uintptr_t)task, .call = task->call,
                       .form = coll__form_for(task), .unit = task->codec->type_size };

    if (!t.form) return;
    const bool is_new = task->state[0] == COLL__SHM_OP_NEW, is_done = task->state[0] > COLL__SHM_OP_POSTED;
    const size_t length = coll__eager_bytes(m, t.form, task->call, t.unit);
    const bool is_direct = coll__is_direct(m, t.form, task->call, t.unit, length);
    const uint64_t op_number = is_new ? coll__shm_op_before(m, length > COLL__EAGER_SHORT) : task->state[1];
    const coll__peer_set peer_set = is_new ? COLL__ALL_PEERS : !is_direct ? t.form->eager_from
                                  : coll__peers_of(m, t.form, is_done);
    const uint64_t number = is_done ? coll__phase(op_number, task->state[0]) : op_number;
    for (int i = 0; i < m->count; i++) {
        const uint64_t *at = is_done ? &m->group_slots[i].done : &coll__slot_in(m, i, op_number)->posted;
        if (coll__waits_for(&t, peer_set, i) && __atomic_load_n(at, __ATOMIC_ACQUIRE) < number) is_late[m->ranks[i]] = 1;
    }
}

COLL__FOR_SPEED

#endif /* COLL_SHM_OP_H */
