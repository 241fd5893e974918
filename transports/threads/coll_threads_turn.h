/* coll_threads_turn.h - a turn: publish, wait for those who matter, do one's part, and, if that was in others' memory, wait
 * until it is done on all sides. */
#ifndef COLL_THREADS_TURN_H
#define COLL_THREADS_TURN_H

/* Has it `length` bytes at most, an input by mail?  Answers alike on all ranks that make the same call. */
static inline bool coll__fits_mail(const coll__turn *t, size_t *length)
{
    const size_t one = t->call->count * t->unit;

    *length = 0;
    if (t->form->mail == COLL__MAIL_NEVER) return false;
    if (t->form->mail == COLL__MAIL_EMPTY) return true;
    *length = t->form->mail == COLL__MAIL_EACH ? one * (size_t)t->m->count : one;
    return *length <= COLL__MAIL_MOST;
}

/* What has a rank published in a turn?  Wait for nobody who will not come, and accept no other call than `head`. */
static inline coll_status coll__check_seat(const coll__member *m, const unsigned char *head, int rank, uint64_t turn,
                                    coll_failure *failure)
{
    const coll__slot *slot = coll__slot_in(m, rank, turn);
    const int *ranks = m->group->ranks;

    if (__atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) < turn) {
        if (!coll__member_left(m, rank)) return COLL_PENDING;
        if (__atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) < turn)      /* it may have published before it left */
            return coll__blame_left(failure, ranks[rank], ranks[m->rank]);
    }
    if (memcmp(slot->head, head, COLL_HEAD_LENGTH))
        return coll__blame_mismatch(failure, head, ranks[m->rank], slot->head, ranks[rank]);
    return COLL_OK;
}

/* Have all ranks published `turn`, and with the same call as we? */
static inline coll_status coll__check_all(coll__member *m, uint64_t turn, coll_failure *failure)
{
    if (m->all_posted >= turn) return COLL_OK;
    const unsigned char *head = coll__slot_in(m, m->rank, turn)->head;
    for (int i = 0; i < m->count; i++) {
        const coll_status status = coll__check_seat(m, head, i, turn, failure);
        if (status != COLL_OK) return status;
    }
    m->all_posted = turn;
    return COLL_OK;
}

/* Have those published whom this rank waits for? */
static inline coll_status coll__check_posted(const coll__turn *t, coll__whom whom)
{
    coll_status status = COLL_OK;

    if (whom == COLL__EVERYBODY) return coll__check_all(t->m, t->number, t->failure);
    for (int i = 0; i < t->m->count && status == COLL_OK; i++)
        if (coll__waits_for(t, whom, i)) status = coll__check_seat(t->m, t->task->head, i, t->number, t->failure);
    return status;
}

/* Have those done their share? */
static coll_status coll__check_done(const coll__turn *t, coll__whom whom)
{
    const coll__member *m = t->m;

    for (int i = 0; i < m->count; i++) {
        const uint64_t *done = &m->seats[i].done;
        if (!coll__waits_for(t, whom, i) || __atomic_load_n(done, __ATOMIC_ACQUIRE) >= t->number) continue;
        const bool has_left = coll__member_left(m, i);        /* looked at before what it may have done last  */
        const coll_status status = coll__check_seat(m, t->task->head, i, t->number, t->failure);
        if (status != COLL_OK) return status;
        if (__atomic_load_n(done, __ATOMIC_ACQUIRE) >= t->number) continue;
        return has_left ? coll__blame_left(t->failure, m->group->ranks[i], m->group->ranks[m->rank]) : COLL_PENDING;
    }
    return COLL_OK;
}

enum { COLL__TURN_NEW, COLL__TURN_POSTED, COLL__TURN_DONE };      /* task->state[0]; the turn is state[1]     */

/* The beginning of a turn: memory, then the word to the others. */
static coll_status coll__turn_post(coll__turn *t, size_t length)
{
    const coll_call *call = t->call;
    coll__member *m = t->m;
    const void *input = call->kind == COLL_BROADCAST ? call->recv : call->send;
    coll__slot *slot = coll__slot_in(m, m->rank, m->turn + 1);

    if (t->form->reduces && t->task->codec->acc_size > COLL__BLOCK) {
        const coll_status status = coll__need_scratch(t);
        if (status != COLL_OK) return status;
    }
    if (t->by_mail) {
        const bool has_input = t->form->mail_from != COLL__THE_ROOT || m->rank == call->root;
        if (length && has_input) memcpy(slot->is.data, input, length);
    } else {
        coll__view view = { (const unsigned char *)input, (unsigned char *)call->recv, call->count, call->recv_count,
                            call->send_counts, call->send_offsets, call->recv_counts, call->recv_offsets,
                            call->send_types, call->recv_types };
        const coll_status status = t->form->begin ? t->form->begin(t, &view) : COLL_OK;
        if (status != COLL_OK) return status;
        slot->is.view = view;
    }
    memcpy(slot->head, t->task->head, COLL_HEAD_LENGTH);
    t->number = ++m->turn;
    coll__hub_publish(m->thread->hub, &slot->posted, t->number);
    return COLL_OK;
}

/* Directly: once those have published who matter, do our share; once those are done who matter, it is over. */
static coll_status coll__turn_directly(const coll__turn *t, coll_task *task)
{
    coll__thread *thread = t->m->thread;
    coll_status status;

    if (task->state[0] == COLL__TURN_POSTED) {
        if ((status = coll__check_posted(t, t->form->from)) != COLL_OK) return status;
        if (!coll__work_begin(thread)) return thread->hub->failure.status;
        status = t->form->share(t);
        coll__work_end(thread);
        if (status != COLL_OK) return status;
        task->state[0] = COLL__TURN_DONE;
        coll__hub_publish(thread->hub, &t->m->seats[t->m->rank].done, t->number);
    }
    if ((status = coll__check_done(t, t->form->until)) != COLL_OK) return status;
    if (t->form->end) t->form->end(t);
    coll__end_allreduce(t, task);
    return status;
}

static coll_status coll__threads_offload(void *context, coll_task *task, coll_failure *failure)
{
    coll__member *m = coll__member_of((coll__thread *)context, task);
    const coll_call *call = task->call;
    coll__turn t = { m, task, call, coll__form_of(call->kind), failure, task->state[1], false, task->codec->type_size };
    size_t length;

    if (!t.form) return COLL_ERR_UNSUPPORTED;
    t.by_mail = coll__fits_mail(&t, &length);
    if (task->state[0] == COLL__TURN_NEW) {       /* slots are reused: everyone must be through with turn - 2 */
        coll_status status = coll__check_all(m, m->turn, failure);
        if (status == COLL_OK) status = coll__turn_post(&t, length);
        if (status != COLL_OK) return status;
        task->state[0] = COLL__TURN_POSTED;
        task->state[1] = t.number;
    }
    if (!t.by_mail) return coll__turn_directly(&t, task);
    const coll_status status = coll__check_posted(&t, t.form->mail_from);
    if (status == COLL_OK) t.form->read(&t);      /* all this rank needs is in the seats                      */
    return status;
}

/* A task that has not begun waits for the turn before it. */
static void coll__threads_late(const void *context, const coll_task *task, unsigned char *is_late)
{
    const coll__thread *me = (const coll__thread *)context;
    const coll__member *m = task->group ? (const coll__member *)task->group : &me->all;
    coll__turn t = { .m = (coll__member *)(uintptr_t)m, .task = task, .call = task->call,
                     .form = coll__form_of(task->call->kind), .unit = task->codec->type_size };
    size_t length;

    if (!t.form) return;
    const bool is_new = task->state[0] == COLL__TURN_NEW, is_done = task->state[0] == COLL__TURN_DONE;
    const uint64_t turn = is_new ? m->turn : task->state[1];
    const coll__whom whom = is_new ? COLL__EVERYBODY : is_done ? t.form->until
                          : coll__fits_mail(&t, &length) ? t.form->mail_from : t.form->from;
    for (int i = 0; i < m->count; i++) {
        const uint64_t *at = is_done ? &m->seats[i].done : &coll__slot_in(m, i, turn)->posted;
        if (coll__waits_for(&t, whom, i) && __atomic_load_n(at, __ATOMIC_ACQUIRE) < turn) is_late[m->group->ranks[i]] = 1;
    }
}

#endif /* COLL_THREADS_TURN_H */
