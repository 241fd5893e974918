/* coll_threads.h - ranks that are threads of one process: collectives by loads and stores on one another's buffers.
 *
 * All ranks share a hub with one seat each.  A collective is a turn, numbered from 1 on every rank.
 *
 *   MAIL, short vectors.  Each rank copies its input into its seat and publishes the number of the turn beside it; whoever
 *   needs the input reads it there.  One phase: nobody waits for the readers, because a seat has two slots, used in turns.
 *   A slot may be written again in turn t + 2 once all have published t + 1, for then they are through with t.
 *
 *   DIRECT, long vectors.  Each rank publishes where its buffers are; when all have, each does its share of the elements for
 *   all ranks: reads that share of every input, combines it in rank order, stores it to every output.  When all are done,
 *   all return.  Every input line is read once and every output line written once, which is the least there is.
 *
 * Messages (for send and recv, and for algorithms named by the caller) are copied once, by the receiver, from the sender's
 * buffer.  A failing rank waits until no other is at work in its memory before it returns.
 *
 * Waiting is the engine's: it looks at the seats again and again for a while, and then sleeps on the hub's bell, a futex
 * that is rung by whoever publishes something while there are sleepers. */
#ifndef COLL_THREADS_H
#define COLL_THREADS_H

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>

enum { COLL__MAIL_MOST = 256, COLL__SHARE_UNIT = 64 };

/* The number, the fingerprint and a short input share a cache line. */
typedef struct __attribute__((aligned(COLL__LINE))) coll__slot {
    uint64_t      posted;                         /* the turn that this slot is of; written last              */
    unsigned char head[COLL_HEAD_LENGTH];         /* the fingerprint of the call                              */
    unsigned char data[COLL__MAIL_MOST];          /* MAIL: the input; DIRECT: coll__buffers                   */
} coll__slot;

typedef struct coll__buffers { const unsigned char *send; unsigned char *recv; } coll__buffers;

typedef struct __attribute__((aligned(COLL__LINE))) coll__seat {
    coll__slot slots[2];
    __attribute__((aligned(COLL__LINE))) uint64_t done;     /* the last DIRECT turn in which this rank's share is done */
    uint32_t is_working;                          /* this rank reads or writes other ranks' memory            */
    uint32_t has_left;
    __attribute__((aligned(COLL__LINE))) pthread_mutex_t lock;  /* guards the messages to this rank           */
    uint32_t arrived;                             /* how many there are                                       */
} coll__seat;

typedef struct coll__fifo { coll_xfer *first, **end; } coll__fifo;

typedef struct coll__hub {
    int      size, holders;                       /* holders: ranks that have not freed their communicator    */
    bool     has_membarrier;
    uint32_t left_count;
    __attribute__((aligned(COLL__LINE))) uint32_t bell;
    uint32_t sleepers, has_failed;
    pthread_mutex_t lock;                         /* guards failure until has_failed is set, and holders      */
    coll_failure    failure;
    coll__seat     *seats;
    coll__fifo     *inboxes;                      /* sends not taken yet, by receiver, sender and channel     */
} coll__hub;

/* One rank's side. */
typedef struct coll__thread {
    coll__hub *hub;
    int        rank;
    bool       is_armed;                          /* counted among the sleepers                               */
    uint32_t   bell_seen;
    uint64_t   turn, all_posted;                  /* every rank is known to have published all_posted         */
    coll_xfer *outgoing;                          /* our sends that have not been taken yet                   */
    coll__fifo *recvs;                            /* ours, by peer and channel                                */
    int        waiting_recvs;
    unsigned char *is_gone;                       /* ranks that had left when progress last began             */
    uint32_t   gone_count;
    coll__source *sources;
    void       **results;
    void        *scratch;
} coll__thread;

/* ---- >>bell: waking those who sleep ---- */

static void coll__hub_futex(coll__hub *hub, int operation, uint32_t value, int wait_ms)
{
    const struct timespec t = { wait_ms / 1000, (long)(wait_ms % 1000) * COLL__MS };
    (void)syscall(SYS_futex, &hub->bell, operation | FUTEX_PRIVATE_FLAG, value, operation == FUTEX_WAIT ? &t : NULL, NULL, 0);
}

static void coll__hub_ring(coll__hub *hub)
{
    if (__atomic_load_n(&hub->sleepers, __ATOMIC_SEQ_CST) == 0) return;
    __atomic_add_fetch(&hub->bell, 1, __ATOMIC_SEQ_CST);
    coll__hub_futex(hub, FUTEX_WAKE, INT_MAX, 0);
}

/* Publish a number that others wait for.  Either this rank sees that somebody sleeps, or the one who goes to sleep sees the
 * number at its last look.  That takes a full barrier on both sides; where the kernel has membarrier, the sleeper executes it
 * for all, and publishing is a plain store, which need not wait for the cache lines written before. */
static inline void coll__hub_publish(coll__hub *hub, uint64_t *at, uint64_t value)
{
    if (hub->has_membarrier) {
        __atomic_store_n(at, value, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } else {
        (void)__atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
    }
    coll__hub_ring(hub);
}

static bool coll__membarrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static void coll__membarrier(const coll__hub *hub)
{
    if (hub->has_membarrier) (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* ---- >>failure: kept in the hub, the first one for all ---- */

/* From here on nobody enters anyone's memory; wait for those who are in it. */
static void coll__hub_quiesce(coll__hub *hub)
{
    for (int i = 0; i < hub->size; i++)
        while (__atomic_load_n(&hub->seats[i].is_working, __ATOMIC_SEQ_CST)) sched_yield();
}

static const coll_failure *coll__threads_fail(void *context, const coll_failure *cause)
{
    coll__thread *me = (coll__thread *)context;
    coll__hub *hub = me->hub;

    pthread_mutex_lock(&hub->lock);
    if (!hub->has_failed && cause) {
        hub->failure = *cause;
        __atomic_store_n(&hub->has_failed, 1, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&hub->lock);
    if (!__atomic_load_n(&hub->has_failed, __ATOMIC_SEQ_CST)) return NULL;
    coll__hub_ring(hub);
    coll__hub_quiesce(hub);
    return &hub->failure;
}

/* Go to work in other ranks' memory; false: the communicator has failed. */
static bool coll__work_begin(coll__thread *me)
{
    uint32_t *is_working = &me->hub->seats[me->rank].is_working;

    (void)__atomic_exchange_n(is_working, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&me->hub->has_failed, __ATOMIC_SEQ_CST)) return true;
    __atomic_store_n(is_working, 0, __ATOMIC_SEQ_CST);
    return false;
}

static void coll__work_end(coll__thread *me)
{
    __atomic_store_n(&me->hub->seats[me->rank].is_working, 0, __ATOMIC_RELEASE);
}

static coll_status coll__blame_left(coll_failure *failure, int rank, int by)
{
    return coll__blame(failure, COLL_ERR_PEER, rank, "rank %d has left the communicator, and rank %d still waits for it",
                       rank, by);
}

/* ---- >>messages: the receiver copies ---- */

static inline coll__fifo *coll__recvs_from(const coll__thread *me, int peer, int channel)
{
    return &me->recvs[peer * COLL_CHANNEL_COUNT + channel];
}

static inline coll__fifo *coll__inbox_of(const coll__hub *hub, int to, int from, int channel)
{
    return &hub->inboxes[((size_t)to * (size_t)hub->size + (size_t)from) * COLL_CHANNEL_COUNT + (size_t)channel];
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

/* The xfer goes into the receiver's inbox.  The receiver reports in `moved`; `link` makes the list of our own. */
static coll_status coll__threads_send(void *context, coll_xfer *x)
{
    coll__thread *me = (coll__thread *)context;
    coll__seat *to = &me->hub->seats[x->peer];

    x->moved = 0;
    x->link = me->outgoing;
    me->outgoing = x;
    pthread_mutex_lock(&to->lock);
    coll__fifo_put(coll__inbox_of(me->hub, x->peer, me->rank, x->channel), x);
    __atomic_add_fetch(&to->arrived, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&to->lock);
    coll__hub_ring(me->hub);
    return COLL_OK;
}

static coll_status coll__threads_recv(void *context, coll_xfer *x)
{
    coll__thread *me = (coll__thread *)context;

    coll__fifo_put(coll__recvs_from(me, x->peer, x->channel), x);
    me->waiting_recvs++;
    return COLL_OK;
}

/* Take the next message of a peer out of our inbox, NULL when there is none. */
static coll_xfer *coll__inbox_take(coll__thread *me, int peer, int channel)
{
    coll__seat *seat = &me->hub->seats[me->rank];

    pthread_mutex_lock(&seat->lock);
    coll_xfer *x = coll__fifo_take(coll__inbox_of(me->hub, me->rank, peer, channel));
    if (x) __atomic_sub_fetch(&seat->arrived, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&seat->lock);
    return x;
}

/* Carry out one message: from the sender's memory into ours.  The sender may be gone as soon as `moved` is set. */
static void coll__deliver(coll_xfer *from, coll_xfer *to)
{
    const bool fits = (to->any_head || !memcmp(from->head, to->head, COLL_HEAD_LENGTH)) && from->length == to->length;

    memcpy(to->head, from->head, COLL_HEAD_LENGTH);
    if (fits && to->length) memcpy(to->buffer, from->buffer, to->length);
    __atomic_store_n(&from->moved, 1, __ATOMIC_RELEASE);
    to->status = fits ? COLL_OK : COLL_ERR_MISMATCH;
}

/* Receive what can be received; true: something was. */
static bool coll__receive_all(coll__thread *me)
{
    bool any = false;

    for (int i = 0; i < me->hub->size * COLL_CHANNEL_COUNT; i++) {
        const int peer = i / COLL_CHANNEL_COUNT, channel = i % COLL_CHANNEL_COUNT;
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

/* Note which of our sends have been taken. */
static void coll__reap_sends(coll__thread *me)
{
    for (coll_xfer **at = &me->outgoing; *at;) {
        coll_xfer *x = *at;
        if (__atomic_load_n(&x->moved, __ATOMIC_ACQUIRE)) {
            *at = (coll_xfer *)x->link;
            x->status = COLL_OK;
        } else {
            at = (coll_xfer **)(void *)&x->link;
        }
    }
}

/* Take back what nobody has begun to receive, and wait for what is being copied. */
static void coll__withdraw_sends(coll__thread *me)
{
    for (coll_xfer *x = me->outgoing; x; x = (coll_xfer *)x->link) {
        coll__seat *to = &me->hub->seats[x->peer];
        coll__fifo *inbox = coll__inbox_of(me->hub, x->peer, me->rank, x->channel);
        coll_xfer **at = &inbox->first;
        pthread_mutex_lock(&to->lock);
        while (*at && *at != x) at = &(*at)->next;
        const bool is_there = *at != NULL;
        if (is_there) {
            *at = x->next;
            if (!*at) inbox->end = at;
            __atomic_sub_fetch(&to->arrived, 1, __ATOMIC_RELAXED);
        }
        pthread_mutex_unlock(&to->lock);
        while (!is_there && !__atomic_load_n(&x->moved, __ATOMIC_ACQUIRE)) sched_yield();
    }
    me->outgoing = NULL;
}

/* A rank leaves when everything it sent has been taken; so whoever had left before this progress has nothing more to say. */
static bool coll__threads_has_left(const void *context, int peer)
{
    const coll__thread *me = (const coll__thread *)context;
    return peer < 0 ? me->gone_count > 0 : me->is_gone[peer];
}

static void coll__see_who_left(coll__thread *me)
{
    const uint32_t count = __atomic_load_n(&me->hub->left_count, __ATOMIC_ACQUIRE);

    if (count == me->gone_count) return;
    me->gone_count = count;
    for (int i = 0; i < me->hub->size; i++) me->is_gone[i] = __atomic_load_n(&me->hub->seats[i].has_left, __ATOMIC_ACQUIRE) != 0;
}

/* A receive of a collective from a rank that has left will never end. */
static coll_status coll__check_left(coll__thread *me)
{
    coll_failure failure = { COLL_OK, -1, "" };

    for (int peer = 0; peer < me->hub->size; peer++) {
        if (!coll__recvs_from(me, peer, COLL_CHANNEL_CALLS)->first || !me->is_gone[peer]) continue;
        coll__blame_left(&failure, peer, me->rank);
        coll__threads_fail(me, &failure);
        return failure.status;
    }
    return COLL_OK;
}

/* ---- >>progress ---- */

static void coll__sleep(coll__thread *me, int wait_ms)
{
    coll__hub *hub = me->hub;

    if (me->is_armed) {
        coll__hub_futex(hub, FUTEX_WAIT, me->bell_seen, wait_ms);
    } else {                                      /* arm first; the caller looks once more before it sleeps   */
        __atomic_add_fetch(&hub->sleepers, 1, __ATOMIC_SEQ_CST);
        coll__membarrier(hub);
        me->is_armed = true;
    }
    me->bell_seen = __atomic_load_n(&hub->bell, __ATOMIC_SEQ_CST);
}

static coll_status coll__threads_progress(void *context, int wait_ms)
{
    coll__thread *me = (coll__thread *)context;
    coll__hub *hub = me->hub;

    if (wait_ms > 0) {
        coll__sleep(me, wait_ms);
    } else if (me->is_armed) {
        __atomic_sub_fetch(&hub->sleepers, 1, __ATOMIC_SEQ_CST);
        me->is_armed = false;
    }
    if (__atomic_load_n(&hub->has_failed, __ATOMIC_ACQUIRE)) return hub->failure.status;
    coll__see_who_left(me);
    if (me->waiting_recvs > 0 && __atomic_load_n(&hub->seats[me->rank].arrived, __ATOMIC_ACQUIRE) > 0) {
        if (!coll__work_begin(me)) return hub->failure.status;
        const bool any = coll__receive_all(me);
        coll__work_end(me);
        if (any) coll__hub_ring(hub);
    }
    if (me->outgoing) coll__reap_sends(me);
    return me->gone_count > 0 && me->waiting_recvs > 0 ? coll__check_left(me) : COLL_OK;
}

/* ---- >>collectives: what a rank does once the others have published ---- */

/* The input of a rank in this turn: from its seat, or where it lies. */
static const unsigned char *coll__input_of(const coll__thread *me, int rank, uint64_t turn, bool by_mail)
{
    const coll__slot *slot = &me->hub->seats[rank].slots[turn & 1];
    coll__buffers b;

    if (by_mail) return slot->data;
    memcpy(&b, slot->data, sizeof b);
    return b.send;
}

static unsigned char *coll__output_of(const coll__thread *me, int rank, uint64_t turn)
{
    coll__buffers b;

    memcpy(&b, me->hub->seats[rank].slots[turn & 1].data, sizeof b);
    return b.recv;
}

/* This rank's share of `count` elements, in whole cache lines. */
static void coll__share(const coll__thread *me, size_t count, size_t *at, size_t *share)
{
    const size_t size = (size_t)me->hub->size, each = coll__round_up((count + size - 1) / size, COLL__SHARE_UNIT);

    *at = coll__least(each * (size_t)me->rank, count);
    *share = coll__least(each, count - *at);
}

/* Combine elements from..from+count of all inputs into `results`, of which there are `m`. */
static void coll__combine_inputs(coll__thread *me, const coll_task *task, uint64_t turn, bool by_mail, size_t from, int m,
                                 size_t count)
{
    const size_t skip = from * task->codec->type_size;

    for (int i = 0; i < me->hub->size; i++)
        me->sources[i] = (coll__source){ coll__input_of(me, i, turn, by_mail) + skip, false };
    coll__combine(task->codec, me->sources, me->hub->size, me->results, m, count, me->scratch);
}

/* memcpy that takes NULL where there is nothing to copy. */
static inline void coll__copy_bytes(void *to, const void *from, size_t length)
{
    if (length) memcpy(to, from, length);
}

/* Everything this rank needs, out of the seats. */
static void coll__read_mail(coll__thread *me, const coll_task *task, uint64_t turn)
{
    const coll_call *call = task->call;
    const size_t length = call->count * task->codec->type_size;
    unsigned char *recv = (unsigned char *)call->recv;

    me->results[0] = call->recv;
    switch (call->kind) {
    case COLL_BROADCAST:
        if (me->rank != call->root) coll__copy_bytes(recv, coll__input_of(me, call->root, turn, true), length);
        break;
    case COLL_REDUCE:
        if (me->rank == call->root) coll__combine_inputs(me, task, turn, true, 0, 1, call->count);
        break;
    case COLL_ALLREDUCE:
        coll__combine_inputs(me, task, turn, true, 0, 1, call->count);
        break;
    case COLL_REDUCE_SCATTER:
        coll__combine_inputs(me, task, turn, true, (size_t)me->rank * call->count, 1, call->count);
        break;
    case COLL_ALLGATHER:
        for (int i = 0; length && i < me->hub->size; i++)
            memcpy(recv + (size_t)i * length, coll__input_of(me, i, turn, true), length);
        break;
    default: break;
    }
}

/* This rank's share of the whole operation, in everybody's buffers. */
static void coll__do_share(coll__thread *me, const coll_task *task, uint64_t turn)
{
    const coll_call *call = task->call;
    const size_t unit = task->codec->type_size, length = call->count * unit;
    const int size = me->hub->size;
    size_t at, count;

    coll__share(me, call->count, &at, &count);
    const size_t skip = at * unit;
    if (count == 0 && call->kind != COLL_ALLGATHER) return;
    switch (call->kind) {
    case COLL_BROADCAST:
        for (int i = 0; i < size; i++)
            if (i != call->root)
                memcpy(coll__output_of(me, i, turn) + skip, coll__input_of(me, call->root, turn, false) + skip, count * unit);
        break;
    case COLL_REDUCE:
        me->results[0] = coll__output_of(me, call->root, turn) + skip;
        coll__combine_inputs(me, task, turn, false, at, 1, count);
        break;
    case COLL_ALLREDUCE:
        for (int i = 0; i < size; i++) me->results[i] = coll__output_of(me, i, turn) + skip;
        coll__combine_inputs(me, task, turn, false, at, size, count);
        break;
    case COLL_REDUCE_SCATTER:                     /* block 0 first: a result in place may overwrite block 0 of its input */
        for (int i = 0; i < size; i++) {
            me->results[0] = coll__output_of(me, i, turn) + skip;
            coll__combine_inputs(me, task, turn, false, (size_t)i * call->count + at, 1, count);
        }
        break;
    case COLL_ALLGATHER:
        for (int i = 0; i < size; i++) {
            unsigned char *to = (unsigned char *)call->recv + (size_t)i * length;
            const unsigned char *from = coll__input_of(me, i, turn, false);
            if (to != from && length) memcpy(to, from, length);
        }
        break;
    default: break;
    }
}

/* ---- >>turns ---- */

static size_t coll__input_length(const coll_task *task, int size)
{
    const coll_call *call = task->call;
    const size_t length = call->count * task->codec->type_size;
    return call->kind == COLL_BARRIER ? 0 : call->kind == COLL_REDUCE_SCATTER ? length * (size_t)size : length;
}

/* Whose input this rank has to see in a call with a root. */
static bool coll__needs(const coll__thread *me, const coll_call *call, int rank)
{
    return call->kind == COLL_BROADCAST ? rank == call->root && me->rank != call->root : me->rank == call->root;
}

static void coll__post_turn(coll__thread *me, const coll_task *task, uint64_t turn, bool by_mail)
{
    const coll_call *call = task->call;
    coll__slot *slot = &me->hub->seats[me->rank].slots[turn & 1];

    memcpy(slot->head, task->head, COLL_HEAD_LENGTH);
    if (by_mail) {
        const size_t length = coll__input_length(task, me->hub->size);
        if (length && (call->kind != COLL_BROADCAST || me->rank == call->root)) memcpy(slot->data, call->send, length);
    } else {
        const coll__buffers b = { (const unsigned char *)call->send, (unsigned char *)call->recv };
        memcpy(slot->data, &b, sizeof b);
    }
    coll__hub_publish(me->hub, &slot->posted, turn);
}

/* What has a rank published in a turn?  Wait for nobody who will not come, and accept no other call than `head`. */
static coll_status coll__check_seat(const coll__thread *me, const unsigned char *head, int rank, uint64_t turn,
                                    coll_failure *failure)
{
    const coll__seat *seat = &me->hub->seats[rank];
    const coll__slot *slot = &seat->slots[turn & 1];
    const bool has_left = __atomic_load_n(&seat->has_left, __ATOMIC_ACQUIRE);

    if (__atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) < turn)
        return has_left ? coll__blame_left(failure, rank, me->rank) : COLL_PENDING;
    if (memcmp(slot->head, head, COLL_HEAD_LENGTH))
        return coll__blame_mismatch(failure, head, me->rank, slot->head, rank);
    return COLL_OK;
}

/* Have all ranks published `turn`, and with the same call as we? */
static coll_status coll__check_all(coll__thread *me, uint64_t turn, coll_failure *failure)
{
    const unsigned char *head = me->hub->seats[me->rank].slots[turn & 1].head;

    for (int i = 0; i < me->hub->size && me->all_posted < turn; i++) {
        const coll_status status = coll__check_seat(me, head, i, turn, failure);
        if (status != COLL_OK) return status;
    }
    if (me->all_posted < turn) me->all_posted = turn;
    return COLL_OK;
}

/* Have all ranks done their share? */
static coll_status coll__check_done(const coll__thread *me, uint64_t turn, coll_failure *failure)
{
    for (int i = 0; i < me->hub->size; i++) {
        const coll__seat *seat = &me->hub->seats[i];
        const bool has_left = __atomic_load_n(&seat->has_left, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&seat->done, __ATOMIC_ACQUIRE) < turn)
            return has_left ? coll__blame_left(failure, i, me->rank) : COLL_PENDING;
    }
    return COLL_OK;
}

enum { COLL__TURN_NEW, COLL__TURN_POSTED, COLL__TURN_DONE };

/* By mail: once those have published whose input this rank needs, it has all it needs. */
static coll_status coll__turn_by_mail(coll__thread *me, const coll_task *task, coll_failure *failure)
{
    const uint64_t turn = task->state[1];
    coll_status status = COLL_OK;

    if (coll__kind_has_root(task->call->kind)) {
        for (int i = 0; i < me->hub->size && status == COLL_OK; i++)
            if (coll__needs(me, task->call, i)) status = coll__check_seat(me, task->head, i, turn, failure);
    } else {
        status = coll__check_all(me, turn, failure);
    }
    if (status == COLL_OK) coll__read_mail(me, task, turn);
    return status;
}

/* Directly: all publish, all do their share, all are done. */
static coll_status coll__turn_directly(coll__thread *me, coll_task *task, coll_failure *failure)
{
    const uint64_t turn = task->state[1];

    if (task->state[0] == COLL__TURN_POSTED) {
        const coll_status status = coll__check_all(me, turn, failure);
        if (status != COLL_OK) return status;
        if (!coll__work_begin(me)) return me->hub->failure.status;
        coll__do_share(me, task, turn);
        coll__work_end(me);
        task->state[0] = COLL__TURN_DONE;
        coll__hub_publish(me->hub, &me->hub->seats[me->rank].done, turn);
    }
    return coll__check_done(me, turn, failure);
}

static coll_status coll__threads_offload(void *context, coll_task *task, coll_failure *failure)
{
    coll__thread *me = (coll__thread *)context;
    const bool by_mail = coll__input_length(task, me->hub->size) <= COLL__MAIL_MOST;

    if (task->state[0] == COLL__TURN_NEW) {       /* slots are reused: everyone must be through with turn - 2 */
        const coll_status status = coll__check_all(me, me->turn, failure);
        if (status != COLL_OK) return status;
        task->state[1] = ++me->turn;
        coll__post_turn(me, task, me->turn, by_mail);
        task->state[0] = COLL__TURN_POSTED;
    }
    return by_mail ? coll__turn_by_mail(me, task, failure) : coll__turn_directly(me, task, failure);
}

static void coll__threads_late(const void *context, const coll_task *task, unsigned char *is_late)
{
    const coll__thread *me = (const coll__thread *)context;
    const uint64_t turn = me->turn;

    for (int i = 0; i < me->hub->size; i++) {
        const coll__seat *seat = &me->hub->seats[i];
        const uint64_t posted = __atomic_load_n(&seat->slots[turn & 1].posted, __ATOMIC_ACQUIRE);
        const uint64_t done = __atomic_load_n(&seat->done, __ATOMIC_ACQUIRE);
        is_late[i] = task->state[0] == COLL__TURN_DONE ? done < turn : posted < turn;
    }
}

/* ---- >>open, close ---- */

static void coll__hub_release(coll__hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    const bool is_last = --hub->holders == 0;
    pthread_mutex_unlock(&hub->lock);
    if (!is_last) return;
    for (int i = 0; i < hub->size; i++) pthread_mutex_destroy(&hub->seats[i].lock);
    pthread_mutex_destroy(&hub->lock);
    free(hub->seats);
    free(hub->inboxes);
    free(hub);
}

static void coll__thread_free(coll__thread *me)
{
    free(me->recvs);
    free(me->is_gone);
    free(me->sources);
    free(me->results);
    free(me->scratch);
    free(me);
}

static void coll__threads_close(void *context)
{
    coll__thread *me = (coll__thread *)context;
    coll__hub *hub = me->hub;

    if (me->is_armed) __atomic_sub_fetch(&hub->sleepers, 1, __ATOMIC_SEQ_CST);
    coll__withdraw_sends(me);
    __atomic_store_n(&hub->seats[me->rank].has_left, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&hub->left_count, 1, __ATOMIC_SEQ_CST);
    coll__hub_ring(hub);
    coll__thread_free(me);
    coll__hub_release(hub);
}

static const char *coll__threads_describe(const void *context)
{
    (void)context;
    return "shared memory";
}

static coll__fifo *coll__fifos_new(size_t count)
{
    coll__fifo *q = (coll__fifo *)coll__allocate(count * sizeof *q);

    for (size_t i = 0; q && i < count; i++) q[i].end = &q[i].first;
    return q;
}

static coll__thread *coll__thread_open(coll__hub *hub, int rank)
{
    const size_t size = (size_t)hub->size;
    coll__thread *me = (coll__thread *)coll__allocate(sizeof *me);

    if (!me) return NULL;
    me->hub = hub;
    me->rank = rank;
    me->recvs = coll__fifos_new(size * COLL_CHANNEL_COUNT);
    me->is_gone = (unsigned char *)coll__allocate(size);
    me->sources = (coll__source *)coll__allocate(size * sizeof *me->sources);
    me->results = (void **)coll__allocate(size * sizeof *me->results);
    me->scratch = coll__allocate(coll__combine_scratch(hub->size));
    if (me->recvs && me->is_gone && me->sources && me->results && me->scratch) return me;
    coll__thread_free(me);
    return NULL;
}

/* A hub for `size` ranks, held by the caller until coll__hub_release. */
static coll__hub *coll__hub_open(int size)
{
    const size_t n = (size_t)size;
    coll__hub *hub = (coll__hub *)coll__allocate(sizeof *hub);

    if (!hub) return NULL;
    hub->size = size;
    hub->holders = 1;
    hub->failure.rank = -1;
    hub->has_membarrier = coll__membarrier_register();
    hub->seats = (coll__seat *)coll__allocate(n * sizeof *hub->seats);
    hub->inboxes = coll__fifos_new(n * n * COLL_CHANNEL_COUNT);
    if (!hub->seats || !hub->inboxes) {
        free(hub->seats);
        free(hub->inboxes);
        free(hub);
        return NULL;
    }
    pthread_mutex_init(&hub->lock, NULL);         /* a default mutex needs no resources on Linux              */
    for (int i = 0; i < size; i++) pthread_mutex_init(&hub->seats[i].lock, NULL);
    return hub;
}

static const coll_transport coll__threads_transport = {
    .name = "threads",
    .send = coll__threads_send,
    .recv = coll__threads_recv,
    .progress = coll__threads_progress,
    .close = coll__threads_close,
    .fail = coll__threads_fail,
    .offload = coll__threads_offload,
    .late = coll__threads_late,
    .has_left = coll__threads_has_left,
    .describe = coll__threads_describe,
};

#endif /* COLL_THREADS_H */
