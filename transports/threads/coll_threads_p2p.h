/* coll_threads_p2p.h - messages between the ranks of a process: copied once, by the receiver, from the sender's buffer. */
#ifndef COLL_THREADS_P2P_H
#define COLL_THREADS_P2P_H

#if COLL__HAS_MESSAGES

static inline coll__fifo *coll__recvs_from(const coll__thread *me, int peer, int channel)
{
    return &me->recvs[(peer - me->domain->first) * COLL_CHANNEL_COUNT + channel];
}

static inline coll__fifo *coll__inbox_of(const coll__domain *domain, int to, int from, int channel)
{
    const size_t row = (size_t)(to - domain->first), column = (size_t)(from - domain->first);
    return &domain->inboxes[(row * (size_t)domain->size + column) * COLL_CHANNEL_COUNT + (size_t)channel];
}

static void coll__fifo_put(coll__fifo *q, coll_xfer *x)
{
    x->next = NULL;
    *q->end = x;
    q->end = &x->next;
}

static coll_xfer *coll__fifo_take(coll__fifo *q)
{
    coll_xfer *x = q->first;
    if (x && !(q->first = x->next)) q->end = &q->first;
    return x;
}

/* This rank's own list of its sends. */
static void coll__sends_put(coll__thread *me, coll_xfer *x)
{
    coll__sends *s = &me->sends[(x->peer - me->domain->first) * COLL_CHANNEL_COUNT + x->channel];

    x->link = NULL;
    if (s->first) {
        s->last->link = x;
    } else {
        s->first = x;
        s->next = me->outgoing;
        me->outgoing = s;
    }
    s->last = x;
}

/* Puts a message into the receiver's inbox.  The receiver sets `moved`. */
static coll_status coll__threads_send(void *context, coll_xfer *x)
{
    coll__thread *me = (coll__thread *)context;
    coll__rank_slot *to = coll__rank_slot_of(me->domain, x->peer);

    x->moved = 0;
    coll__sends_put(me, x);
    pthread_mutex_lock(&to->lock);
    coll__fifo_put(coll__inbox_of(me->domain, x->peer, me->rank, x->channel), x);
    __atomic_add_fetch(&to->arrived, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&to->lock);
    (void)coll__domain_ring(me);
    return COLL_OK;
}

/* Removes the next message of a peer from the inbox; NULL: none. */
static coll_xfer *coll__inbox_take(coll__thread *me, int peer, int channel)
{
    coll__rank_slot *rank_slot = me->rank_slot;

    pthread_mutex_lock(&rank_slot->lock);
    coll_xfer *x = coll__fifo_take(coll__inbox_of(me->domain, me->rank, peer, channel));
    if (x) __atomic_sub_fetch(&rank_slot->arrived, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&rank_slot->lock);
    return x;
}

/* Copies one message from the sender's memory.  The sender may free it as soon as `moved` is set. */
static void coll__deliver(coll_xfer *from, coll_xfer *to)
{
    const bool fits = (to->any_head || !memcmp(from->head, to->head, COLL_HEAD_LENGTH)) && from->length == to->length;

    memcpy(to->head, from->head, COLL_HEAD_LENGTH);
    if (fits && to->length) memcpy(to->buffer, from->buffer, to->length);
    __atomic_store_n(&from->moved, 1, __ATOMIC_RELEASE);
    to->status = fits ? COLL_OK : COLL_ERR_MISMATCH;
}

/* Takes a message that is already there at once, without a search of all inboxes.  The next progress wakes its sender. */
static coll_status coll__threads_recv(void *context, coll_xfer *x)
{
    coll__thread *me = (coll__thread *)context;
    coll__fifo *recvs = coll__recvs_from(me, x->peer, x->channel);
    const uint32_t *arrived = &me->rank_slot->arrived;
    coll_xfer *from = NULL;

    me->has_posted = true;
    if (!recvs->first && __atomic_load_n(arrived, __ATOMIC_ACQUIRE) > 0 && coll__work_begin(me)) {
        from = coll__inbox_take(me, x->peer, x->channel);
        if (from) coll__deliver(from, x);
        coll__work_end(me);
    }
    if (from) {
        me->has_taken = true;
        return COLL_OK;
    }
    coll__fifo_put(recvs, x);
    me->waiting_recvs++;
    return COLL_OK;
}

/* Receives all messages that have a receive.  Returns whether there were any. */
static bool coll__receive_all(coll__thread *me)
{
    bool any = false;

    for (int i = 0; i < me->domain->size * COLL_CHANNEL_COUNT; i++) {
        const int peer = me->domain->first + i / COLL_CHANNEL_COUNT, channel = i % COLL_CHANNEL_COUNT;
        coll__fifo *recvs = coll__recvs_from(me, peer, channel);
        coll_xfer *x;
        while (recvs->first && (x = coll__inbox_take(me, peer, channel))) {
            coll__deliver(x, coll__fifo_take(recvs));
            me->waiting_recvs--;
            any = true;
        }
    }
    return any;
}

/* Completes sends that were received. */
static void coll__reap_sends(coll__thread *me)
{
    for (coll__sends **at = &me->outgoing, *s; (s = *at) != NULL;) {
        for (coll_xfer *x; (x = s->first) != NULL && __atomic_load_n(&x->moved, __ATOMIC_ACQUIRE);) {
            s->first = (coll_xfer *)x->link;
            x->status = COLL_OK;
        }
        if (s->first) at = &s->next;
        else *at = s->next;
    }
}

/* Withdraws sends that are still in inboxes, and waits for those that are being copied. */
static void coll__withdraw_sends(coll__thread *me)
{
    for (coll__sends *s = me->outgoing; s; s = s->next) {
        coll__rank_slot *to = coll__rank_slot_of(me->domain, s->first->peer);
        coll__fifo *inbox = coll__inbox_of(me->domain, s->first->peer, me->rank, s->first->channel);
        pthread_mutex_lock(&to->lock);
        const coll_xfer *const there = inbox->first;
        while (coll__fifo_take(inbox)) __atomic_sub_fetch(&to->arrived, 1, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&to->lock);
        for (coll_xfer *x = s->first; x && x != there; x = (coll_xfer *)x->link)
            while (!__atomic_load_n(&x->moved, __ATOMIC_ACQUIRE)) sched_yield();
    }
    me->outgoing = NULL;
}

/* A message of a collective from or to a rank that has left can never complete. */
static void coll__check_left(coll__thread *me)
{
    for (const coll__sends *s = me->outgoing; s; s = s->next)
        if (s->first->channel == COLL_CHANNEL_CALLS && me->has_left[s->first->peer - me->domain->first]
            && !__atomic_load_n(&s->last->moved, __ATOMIC_ACQUIRE))
            coll__failed_left(&me->suspicion, s->first->peer, me->rank);
    for (int i = 0; i < me->domain->size; i++) {
        const int peer = me->domain->first + i;
        if (coll__recvs_from(me, peer, COLL_CHANNEL_CALLS)->first && me->has_left[i])
            coll__failed_left(&me->suspicion, peer, me->rank);
    }
}

/* Receives messages, and completes sends. */
static coll_status coll__mail_look(coll__thread *me)
{
    coll__domain *domain = me->domain;
    bool any = me->has_taken;

    me->has_posted = me->has_taken = false;
    if (me->waiting_recvs > 0 && __atomic_load_n(&me->rank_slot->arrived, __ATOMIC_ACQUIRE) > 0) {
        if (!coll__work_begin(me)) return domain->failure.status;
        any |= coll__receive_all(me);
        coll__work_end(me);
    }
    if (any) (void)coll__domain_ring(me);
    if (me->outgoing) coll__reap_sends(me);
    if (me->gone_count > 0 && (me->waiting_recvs > 0 || me->outgoing)) coll__check_left(me);
    return COLL_OK;
}

/* `count` empty lists. */
static coll__fifo *coll__fifos_new(const coll_allocator *memory, size_t count)
{
    coll__fifo *q = (coll__fifo *)coll__allocate(memory, count * sizeof *q);

    for (size_t i = 0; q && i < count; i++) q[i].end = &q[i].first;
    return q;
}

/* Opens the lists of a rank.  Returns false: no memory. */
static bool coll__sends_open(coll__thread *me)
{
    const size_t lists = (size_t)me->domain->size * COLL_CHANNEL_COUNT;

    me->recvs = coll__fifos_new(coll__like(me), lists);
    me->sends = (coll__sends *)coll__allocate(coll__like(me), lists * sizeof *me->sends);
    return me->recvs && me->sends;
}

/* Opens the inboxes of a domain.  Returns false: no memory. */
static bool coll__inboxes_open(coll__domain *domain)
{
    domain->inboxes = coll__fifos_new(coll__like(domain), (size_t)domain->size * (size_t)domain->size * COLL_CHANNEL_COUNT);
    return domain->inboxes != NULL;
}

#else

static coll_status coll__threads_send(void *context, coll_xfer *x) { return (void)context, x->status = COLL_ERR_UNSUPPORTED; }
static coll_status coll__threads_recv(void *context, coll_xfer *x) { return (void)context, x->status = COLL_ERR_UNSUPPORTED; }
static inline coll_status coll__mail_look(const coll__thread *me) { return (void)me, COLL_OK; }
static inline void coll__withdraw_sends(const coll__thread *me) { (void)me; }
static inline bool coll__sends_open(const coll__thread *me) { return (void)me, true; }
static inline bool coll__inboxes_open(const coll__domain *domain) { return (void)domain, true; }

#endif

/* ---- >>ranks that have left ---- */

/* A rank leaves after all its messages were received.  So a rank that had left before this progress sends nothing more. */
static bool coll__threads_has_left(const void *context, int peer)
{
    const coll__thread *me = (const coll__thread *)context;
    return peer < 0 ? me->gone_count > 0 : me->has_left[peer - me->domain->first];
}

static void coll__see_who_left(coll__thread *me)
{
    const uint32_t count = __atomic_load_n(&me->domain->left_count, __ATOMIC_ACQUIRE);

    if (count == me->gone_count) return;
    me->gone_count = count;
    for (int i = 0; i < me->domain->size; i++)
        me->has_left[i] = __atomic_load_n(&coll__domain_rank_slots(me->domain)[i].has_left, __ATOMIC_ACQUIRE) != 0;
}

#endif /* COLL_THREADS_P2P_H */
