/* coll_progress.h - moves the operations of a communicator on, and the one loop that waits. */
#ifndef COLL_PROGRESS_H
#define COLL_PROGRESS_H

enum {
    COLL__WARN_FIRST_MS = 10000, COLL__ASK_BEFORE_MS = 500, COLL__REPORT_AFTER_MS = 100, COLL__SLEEP_MOST_MS = 1000,
    COLL__LOOKS_A_CLOCK = 64, COLL__YIELDS_A_CLOCK = 4, COLL__LOOKS_A_ROUND = 16
};

/* ---- >>requests end ---- */

static void coll__list_part_done(coll_request *whole, coll_request *part, coll_status status);
static void coll__list_free(struct coll__list *list);
static void coll__prepared_free(coll_request *r);

static void coll__request_free(coll_request *r)
{
    if (r->prepared) coll__prepared_free(r);
    coll__list_free(r->list);
    free(r->offsets);
    free(r);
}

/* COLL_DETECT_OVERFLOW, of a call that has ended well: look at the result of this rank, unless the transport has done so.  A
 * list is told by its parts, and counts once. */
static void coll__look_for_overflow(coll_request *r)
{
    const coll_call *c = &r->call;
    const int me = r->comm->rank;
    const bool has_result = (c->kind != COLL_REDUCE || me == c->root) && (c->kind != COLL_EXSCAN || me > 0);
    const size_t count = c->kind == COLL_REDUCE_SCATTERV ? c->recv_counts[me] : c->count;

    if (!coll__kind_reduces(c->kind)) return;
    if (c->kind != COLL_ALLREDUCE_LIST) {
        const int seen = r->is_offloaded ? r->task.is_finite : 0;
        r->has_overflow = seen || r->is_on_device ? seen < 0 : has_result && coll__overflows(c->recv, count, c->type);
    }
    if (r->has_overflow && !r->part_of) __atomic_add_fetch(&r->comm->overflows, 1, __ATOMIC_RELAXED);
}

/* Write a head where other threads read it. */
static inline void coll__doing_set(coll__trunk *trunk, uint64_t *words, const unsigned char *head)
{
    COLL__UNROLLED for (int i = 0; i < COLL_HEAD_LENGTH / 8; i++) {
        uint64_t word;
        memcpy(&word, head + 8 * i, 8);
        __atomic_store_n(&words[i], word, __ATOMIC_RELAXED);
    }
    (void)__atomic_add_fetch(&trunk->doing.turn, 1, __ATOMIC_RELEASE);
}

/* There is something for the program to look at. */
static inline void coll__fd_ring(coll__trunk *trunk)
{
    const uint64_t once = 1;

    if (trunk->fd < 0 || __atomic_exchange_n(&trunk->is_fd_rung, 1, __ATOMIC_ACQ_REL)) return;
    (void)!write(trunk->fd, &once, sizeof once);
}

/* The program looks. */
static inline void coll__fd_hear(coll__trunk *trunk)
{
    uint64_t rung;

    if (trunk->fd < 0 || !__atomic_load_n(&trunk->is_fd_rung, __ATOMIC_ACQUIRE)) return;
    (void)!read(trunk->fd, &rung, sizeof rung);
    __atomic_store_n(&trunk->is_fd_rung, 0, __ATOMIC_RELEASE);
}

/* Another thread may be waiting for it, and free it as soon as the status is written. */
static void coll__request_finish(coll_request *r, coll_status status)
{
    const bool is_detached = r->is_detached;
    coll_request *const whole = r->part_of;
    coll_status *const awaited = r->awaited;
    coll__trunk *const trunk = r->comm->trunk;

    if (status < 0 && r->comm->is_leaving) status = COLL_ERR_ABORTED;
    if (status == COLL_OK && r->call.flags & COLL_DETECT_OVERFLOW) coll__look_for_overflow(r);
    trunk->finished++;
    if (r->is_on_device && r->is_offloaded) trunk->on_device--;
    coll__record_end(r, status);
    if (r->track && !r->list) coll__doing_set(trunk, trunk->doing.last, r->head);         /* a list: its parts       */
    __atomic_store_n(&r->status, status, __ATOMIC_RELEASE);
    if (awaited) __atomic_store_n(awaited, COLL_OK, __ATOMIC_RELEASE);
    if (whole) coll__list_part_done(whole, r, status);
    else if (is_detached) coll__request_free(r);
    coll__fd_ring(trunk);
}

static inline coll_status coll__status_of(const coll_request *r) { return __atomic_load_n(&r->status, __ATOMIC_ACQUIRE); }
static inline bool coll__is_pending(const coll_request *r) { return coll__status_of(r) == COLL_PENDING; }

/* What a thread waits for: a request, or the first of several to end. */
typedef struct coll__goal {
    coll_comm    *comm;                           /* by which the thread is inside                            */
    coll_request *request;                        /* of several the one whose time limit and lateness count   */
    const coll_status *status;                    /* COLL_PENDING until then                                  */
    bool          has_user_op;                    /* which runs on this thread only                           */
    bool          is_on_device;
} coll__goal;

static inline bool coll__is_reached(const coll__goal *goal)
{
    return __atomic_load_n(goal->status, __ATOMIC_ACQUIRE) != COLL_PENDING;
}

/* ---- >>tracks: collectives of a track run one after the other, in the order started ---- */

static void coll__track_append(coll__track *track, coll_request *r)
{
    coll__trunk *trunk = track->comm->trunk;

    r->next = NULL;
    *track->queue_end = r;
    track->queue_end = &r->next;
    if (track->is_active) return;
    track->is_active = true;
    track->next = trunk->tracks;
    trunk->tracks = track;
}

static void coll__track_rest(coll__track *track)
{
    coll__track **at = &track->comm->trunk->tracks;

    while (*at != track) at = &(*at)->next;
    *at = track->next;
    track->is_active = false;
}

static coll_status coll__goes_by_hosts(const coll_request *r);
static coll_status coll__journey_start(coll_request *r);
static coll_status coll__journey_advance(coll_request *r);

/* As a call like it before; or by hosts, or as rounds of all ranks. */
static coll_status coll__engine_start(coll_request *r)
{
    coll__kept *kept = coll__kept_like(r);

    if (kept) {
        coll__flow_again(r, kept);
        return COLL_OK;
    }
    const coll_status by_hosts = coll__goes_by_hosts(r);
    if (by_hosts == COLL_OK) return coll__journey_start(r);
    return by_hosts == COLL_ERR_UNSUPPORTED ? coll__flow_start(r) : by_hosts;
}

static __attribute__((noinline)) coll_status coll__has_no_memory(coll_comm *comm)
{
    coll_failure failure = { COLL_OK, -1, "" };
    const int me = comm->trunk->rank;

    coll__blame(&failure, COLL_ERR_MEMORY, me, "rank %d has no memory for the operation", me);
    return coll__comm_fail(comm, &failure);
}

static coll_status coll__engine_advance(coll_comm *comm, coll_request *r)
{
    if (!r->is_started && coll__engine_start(r) < 0) return coll__has_no_memory(comm);
    r->is_started = true;
    return r->journey ? coll__journey_advance(r) : coll__flow_advance(r);
}

/* A caller's own operation runs on the caller's own thread, whoever else moves things on; and a device is the business of the
 * program's threads. */
static inline bool coll__is_for_others(const coll_request *r)
{
    const coll__mover *m = &r->comm->trunk->mover;

    if (r->is_on_device) return m->has_thread && pthread_equal(m->thread, pthread_self());
    return r->call.op == COLL_USER && !pthread_equal(__atomic_load_n(&r->comm->door.thread, __ATOMIC_RELAXED), pthread_self());
}

/* Look at a call that a device carries out. */
static coll_status coll__device_test(coll_comm *comm, coll_request *r)
{
    coll_failure failure = { COLL_OK, -1, "" };
    const coll_status status = comm->device->test(comm, r, &failure);

    return status < 0 ? coll__comm_fail(comm, failure.status != COLL_OK ? &failure : NULL) : status;
}

/* Move a collective on: the transport's whole, or rounds through the engine.  A call that names an algorithm wants the
 * engine. */
static coll_status coll__carry_on(coll_comm *comm, coll_request *r)
{
    const coll__trunk *trunk = comm->trunk;
    coll_failure failure;

    if (r->is_offloaded) {
        if (r->is_on_device) return coll__device_test(comm, r);
        failure.status = COLL_OK;
        const coll_status status = trunk->transport->offload(trunk->context, &r->task, &failure);
        if (status >= 0) return status;
        if (status != COLL_ERR_UNSUPPORTED) return coll__comm_fail(comm, failure.status != COLL_OK ? &failure : NULL);
        r->is_offloaded = false;                  /* declined: through the engine, then                       */
    }
    return coll__engine_advance(comm, r);
}

/* Run a track as far as it goes. */
static coll_status coll__track_advance(coll__track *track)
{
    for (bool is_last = false; !is_last;) {
        coll_request *r = track->queue;
        if (coll__is_for_others(r)) {
            coll__fd_ring(track->comm->trunk);
            return COLL_PENDING;
        }
        const coll_status status = coll__carry_on(track->comm, r);
        if (status != COLL_OK) return status;     /* after an error the queue is empty already                */
        track->queue = r->next;
        is_last = !track->queue;
        if (is_last) {
            track->queue_end = &track->queue;
            coll__track_rest(track);
        }
        coll__request_finish(r, COLL_OK);         /* may free the track, if it is the request's own           */
    }
    return COLL_OK;
}

static void coll__doing_comms(coll__trunk *trunk);

static coll_status coll__tracks_advance(coll__trunk *trunk)
{
    coll_status status = COLL_OK;

    for (coll__track *track = trunk->tracks, *next; track && status >= 0; track = next) {
        next = track->next;
        status = coll__track_advance(track);
    }
    return status;
}

/* coll_abort was called. */
static coll_status coll__abort_now(coll__trunk *trunk)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__blame(&failure, COLL_ERR_ABORTED, trunk->rank, "%s", trunk->abort_text);
    return coll__trunk_fail(trunk, &failure);
}

/* Move everything on; the transport may sleep up to wait_ms. */
static coll_status coll__advance(coll__trunk *trunk, int wait_ms)
{
    if (trunk->failure.status != COLL_OK) return trunk->failure.status;
    if (__atomic_load_n(&trunk->abort_wanted, __ATOMIC_ACQUIRE)) return coll__abort_now(trunk);
    if (trunk->transport->progress(trunk->context, wait_ms) < 0) return coll__trunk_fail(trunk, NULL);
    const coll_status status = coll__messages_advance(trunk);
    if (trunk->lingers) coll__doing_comms(trunk);
    return status < 0 ? status : coll__tracks_advance(trunk);
}

/* A look while spinning.  A collective that the transport carries out is looked at by itself most of the time: that is
 * cheap, and everything else can wait for a microsecond. */
static inline coll_status coll__look(coll__trunk *trunk, int looks, int wait_ms)
{
    coll__track *only = trunk->tracks;
    const bool is_alone = wait_ms == 0 && only && !only->next && only->queue->is_offloaded && looks % COLL__LOOKS_A_ROUND != 0;
    return is_alone ? coll__track_advance(only) : coll__advance(trunk, wait_ms);
}

/* Between two looks.  Whoever we wait for may share our processor, so it gets a turn now and then: always where there are
 * more ranks than processors, else after a few microseconds of spinning. */
static inline void coll__pause(const coll__trunk *trunk, int looks)
{
    const bool is_cheap = trunk->tracks && trunk->tracks->queue->is_offloaded;

    if (trunk->is_crowded || looks % (is_cheap ? COLL__LOOKS_A_CLOCK : COLL__LOOKS_A_CLOCK / 2) == 0) sched_yield();
    else coll__relax();
}

/* ---- >>holding: several threads, one trunk ----
 *
 * Communicators of one trunk may be used from different threads at once; one thread is inside, the holder.  Threads that wait
 * for something follow it: it moves everybody's operations on.  A thread that wants to start something is an entrant: it wakes
 * the holder up, if it sleeps, and gets its turn.  While none of the program's threads is inside, the library's own may be
 * (coll_mover.h), which gives way to every entrant. */

static void coll__mover_turn(coll__trunk *trunk);

static inline bool coll__is_shared(const coll__trunk *trunk) { return __atomic_load_n(&trunk->is_shared, __ATOMIC_ACQUIRE); }

static void coll__trunk_take_locked(coll_comm *comm)
{
    coll__trunk *trunk = comm->trunk;

    __atomic_add_fetch(&trunk->entrants, 1, __ATOMIC_SEQ_CST);
    while (trunk->is_held) {
        if (trunk->transport->wake) trunk->transport->wake(trunk->context);
        pthread_cond_wait(&trunk->changed, &trunk->lock);
    }
    __atomic_sub_fetch(&trunk->entrants, 1, __ATOMIC_SEQ_CST);
    trunk->is_held = comm->is_holder = true;
    trunk->visits++;
}

static void coll__trunk_take(coll_comm *comm)
{
    pthread_mutex_lock(&comm->trunk->lock);
    coll__trunk_take_locked(comm);
    pthread_mutex_unlock(&comm->trunk->lock);
}

static void coll__trunk_drop_locked(coll_comm *comm)
{
    coll__trunk *trunk = comm->trunk;

    trunk->is_held = comm->is_holder = false;
    pthread_cond_broadcast(&trunk->changed);
    if (trunk->mover.waits == COLL__FOR_A_DROP) coll__mover_turn(trunk);
}

static void coll__trunk_drop(coll_comm *comm)
{
    pthread_mutex_lock(&comm->trunk->lock);
    coll__trunk_drop_locked(comm);
    pthread_mutex_unlock(&comm->trunk->lock);
}

/* Let entrants in, and follow whoever holds the trunk then, until the goal is reached, or nobody holds it, or the time `until`
 * has come.  Unless the goal is reached, we hold it again afterwards. */
static void coll__trunk_follow(const coll__goal *goal, int64_t until)
{
    coll__trunk *trunk = goal->comm->trunk;
    const struct timespec at = { (time_t)(until / 1000000000), (long)(until % 1000000000) };
    int error = 0;

    coll__trunk_drop_locked(goal->comm);
    __atomic_add_fetch(&trunk->followers, 1, __ATOMIC_SEQ_CST);
    while ((trunk->is_held || trunk->entrants > 0) && !coll__is_reached(goal) && error == 0)
        error = pthread_cond_timedwait(&trunk->changed, &trunk->lock, &at);
    __atomic_sub_fetch(&trunk->followers, 1, __ATOMIC_SEQ_CST);
    if (!coll__is_reached(goal)) coll__trunk_take_locked(goal->comm);
}

/* Between two looks of the holder, which has something else to do at the time `next`.  true: the goal is reached, and we hold
 * the trunk no more. */
static bool coll__trunk_share(const coll__goal *goal, int64_t next)
{
    coll__trunk *trunk = goal->comm->trunk;
    const int entrants = __atomic_load_n(&trunk->entrants, __ATOMIC_SEQ_CST);
    const int followers = __atomic_load_n(&trunk->followers, __ATOMIC_SEQ_CST);

    if (!goal->comm->is_holder || (entrants == 0 && (followers == 0 || trunk->told == trunk->finished))) return false;
    const int64_t most = coll__now() + (int64_t)(goal->has_user_op ? 1 : COLL__SLEEP_MOST_MS) * COLL__MS;
    pthread_mutex_lock(&trunk->lock);
    trunk->told = trunk->finished;
    pthread_cond_broadcast(&trunk->changed);
    if (entrants > 0) coll__trunk_follow(goal, next < most ? next : most);
    pthread_mutex_unlock(&trunk->lock);
    return !goal->comm->is_holder;
}

/* ---- >>waiting ---- */

static const coll_request *coll__leg_of(const coll_request *r);

/* Mark the ranks of the trunk that a request waits for.  Gives how many; 0: it is none in particular. */
static int coll__late_ranks(const coll_request *r, unsigned char *is_late)
{
    const coll__trunk *trunk = r->comm->trunk;
    const bool is_message = coll__kind_is_message(r->call.kind);
    const coll_request *head = is_message || !r->track || !r->track->queue ? r : r->track->queue;
    const coll_request *running = !is_message && head->is_started && head->journey ? coll__leg_of(head) : head;
    int count = 0;

    if (running->is_on_device) return 0;          /* it does not say                                          */
    if (is_message) coll__messages_late(r, is_late);
    else if (running->is_offloaded && trunk->transport->mark_stragglers)
        trunk->transport->mark_stragglers(trunk->context, &running->task, is_late);
    else if (!running->is_offloaded && running->is_started) coll__flow_late(running, is_late);
    for (int i = 0; i < trunk->size; i++) count += is_late[i];
    return count;
}

/* "ranks 3, 5-7", and when that is most of them also whom it is not. */
static void coll__late_text(const coll__trunk *trunk, unsigned char *is_late, int count, char *text, size_t room)
{
    coll__print(text, room, count == 0 ? "the others" : count == 1 ? "rank " : "ranks ");
    coll__append_ranks(text, room, is_late, trunk->size);
    if (2 * count <= trunk->size || count + 1 >= trunk->size) return;
    for (int i = 0; i < trunk->size; i++) is_late[i] = !is_late[i] && i != trunk->rank;
    coll__append(text, room, " (not for ");
    coll__append_ranks(text, room, is_late, trunk->size);
    coll__append(text, room, ")");
    for (int i = 0; i < trunk->size; i++) is_late[i] = !is_late[i] && i != trunk->rank;
}

/* A line on the log: who is behind, and what is known of them. */
static void coll__late_warn(const coll_request *r, unsigned char *is_late, int count, double seconds)
{
    const coll_comm *comm = r->comm;
    const coll__trunk *trunk = comm->trunk;
    char who[160], what[COLL__CALL_ROOM], where[240] = "";

    coll__head_describe(r->head, what, sizeof what);
    if (r->call.name) coll__append(what, sizeof what, " \"%.64s\"", r->call.name);
    coll__late_text(trunk, is_late, count, who, sizeof who);
    if (count > 0 && trunk->transport->peer_status) trunk->transport->peer_status(trunk->context, is_late, where, sizeof where);
    coll__say(&trunk->log, COLL_LOG_WARN, "rank %d of %d: %s has been waiting %.1f s for %s%s%s%s", comm->rank, comm->size, what,
              seconds, who, *where ? " (" : "", where, *where ? ")" : "");
}

/* What is to be done about a request that is late. */
typedef enum coll__lateness { COLL__LATE_ASK, COLL__LATE_WARN, COLL__LATE_FAIL } coll__lateness;

static coll_status coll__late(coll_request *r, int64_t waited_ns, coll__lateness how)
{
    const coll__trunk *trunk = r->comm->trunk;
    const double seconds = (double)waited_ns * 1e-9;
    unsigned char *is_late = (unsigned char *)calloc((size_t)trunk->size, 1);
    coll_failure failure = { COLL_OK, -1, "" };
    char who[120] = "the others";
    int first = 0;

    const int count = is_late ? coll__late_ranks(r, is_late) : 0;
    while (count > 0 && !is_late[first]) first++;
    if (how == COLL__LATE_ASK && count > 0 && trunk->transport->peer_status)
        trunk->transport->peer_status(trunk->context, is_late, NULL, 0);
    if (how == COLL__LATE_WARN && is_late) coll__late_warn(r, is_late, count, seconds);
    if (how == COLL__LATE_FAIL && is_late) coll__late_text(trunk, is_late, count, who, sizeof who);
    free(is_late);
    if (how != COLL__LATE_FAIL) return COLL_PENDING;
    coll__blame(&failure, COLL_ERR_TIMEOUT, count > 0 ? first : -1, "no word from %s in %.3g s (rank %d waited)", who, seconds,
                trunk->rank);
    return coll__comm_fail(r->comm, &failure);
}

static coll_status coll__check_freed(coll_request *r);

enum { COLL__FREED_FIRST_MS = 250, COLL__FREED_MOST_MS = 5000 };

/* What a wait has to do at which time. */
typedef struct coll__patience {
    bool    is_virtual;                           /* such a world notices by itself when nothing can move     */
    int64_t began, spin_end, ask_at, warn_at, report_at, freed_at, deadline;
} coll__patience;

static void coll__patience_begin(coll__patience *p, const coll_request *r)
{
    const coll__trunk *trunk = r->comm->trunk;
    const int limit_ms = r->call.timeout_ms > 0 ? r->call.timeout_ms : trunk->stall_timeout_ms;

    p->is_virtual = trunk->transport->now != NULL;
    p->began = coll__clock(trunk);
    p->spin_end = p->began + (int64_t)trunk->spin_us * 1000;
    p->warn_at = p->began + (int64_t)COLL__WARN_FIRST_MS * COLL__MS;
    p->ask_at = p->warn_at - (int64_t)COLL__ASK_BEFORE_MS * COLL__MS;
    p->report_at = trunk->transport->report_stall ? p->began + (int64_t)COLL__REPORT_AFTER_MS * COLL__MS : coll__never;
    p->freed_at = p->began + (int64_t)COLL__FREED_FIRST_MS * COLL__MS;
    p->deadline = limit_ms > 0 ? p->began + (int64_t)limit_ms * COLL__MS : coll__never;
    if (p->is_virtual) p->ask_at = p->warn_at = p->report_at = p->freed_at = coll__never;
}

static int64_t coll__patience_next(const coll__patience *p)
{
    const int64_t warn_or_ask = p->ask_at < p->warn_at ? p->ask_at : p->warn_at;
    const int64_t freed_or_report = p->freed_at < p->report_at ? p->freed_at : p->report_at;
    const int64_t next = p->deadline < warn_or_ask ? p->deadline : warn_or_ask;
    return freed_or_report < next ? freed_or_report : next;
}

/* In a virtual world: is it time to ask? */
static bool coll__may_be_freed(const coll__trunk *trunk)
{
    return trunk->transport->has_freed && trunk->transport->has_freed(trunk->context, -1, 0);
}

/* Do what is due.  An error means that our patience has come to its end. */
static coll_status coll__patience_check(coll__patience *p, coll_request *r, int64_t now)
{
    const coll__trunk *trunk = r->comm->trunk;

    if (now >= p->deadline) return coll__late(r, now - p->began, COLL__LATE_FAIL);
    if (now >= p->warn_at) {
        coll__late(r, now - p->began, COLL__LATE_WARN);
        p->warn_at = p->began + 2 * (now - p->began);
        p->ask_at = p->warn_at - (int64_t)COLL__ASK_BEFORE_MS * COLL__MS;
    } else if (now >= p->ask_at) {
        coll__late(r, now - p->began, COLL__LATE_ASK);
        p->ask_at = coll__never;
    }
    if (p->is_virtual ? coll__may_be_freed(trunk) : now >= p->freed_at) {
        const int64_t most = (int64_t)COLL__FREED_MOST_MS * COLL__MS;
        if (!p->is_virtual) p->freed_at = now + (now - p->began < most ? now - p->began : most);
        if (coll__check_freed(r) < 0) return r->status;
    }
    if (now >= p->report_at || (p->is_virtual && trunk->transport->report_stall)) {
        const coll_request *running = r->track && r->track->queue ? r->track->queue : r;
        const bool is_ordered = running->track && !coll__kind_is_message(running->call.kind);  /* on a device both have one   */
        if (is_ordered || p->is_virtual) trunk->transport->report_stall(trunk->context, running->head);
        p->report_at = coll__never;
    }
    return COLL_OK;
}

/* In place of a long sleep in the transport, out of which no device wakes anybody. */
static int coll__device_nap(const coll__goal *goal)
{
    const struct timespec nap = { 0, 20000 };

    if (!goal->is_on_device) return 1;
    (void)nanosleep(&nap, NULL);
    return 0;
}

/* Wait until the goal is reached.  Spins for a while, because most waits are short; then sleeps in the transport, at most
 * until its time is up or a warning is due.  The first look never sleeps: what an earlier call has moved may be all that is
 * needed. */
static void coll__wait_until_reached(const coll__goal *goal)
{
    coll__trunk *trunk = goal->comm->trunk;
    coll__patience p = { .ask_at = coll__never, .warn_at = coll__never, .report_at = coll__never, .freed_at = coll__never,
                         .deadline = coll__never };
    const int looks_a_clock = trunk->spin_us <= 0 ? 1 : trunk->is_crowded ? COLL__YIELDS_A_CLOCK : COLL__LOOKS_A_CLOCK;
    const coll_status *const status = goal->status;
    bool has_begun = false, has_slept = false;

    for (int looks = 1; *status == COLL_PENDING; looks++) {
        int wait_ms = 0;
        if (looks % looks_a_clock == 0 || has_slept) {
            if (!has_begun) coll__patience_begin(&p, goal->request);
            has_begun = true;
            const int64_t now = coll__clock(trunk);
            if (coll__patience_check(&p, goal->request, now) < 0) return;
            const int most = p.is_virtual ? INT_MAX : COLL__SLEEP_MOST_MS;
            if (now >= p.spin_end && looks > 1) wait_ms = coll__ms_between(now, coll__patience_next(&p), most);
        }
        if (wait_ms > 0 && trunk->on_device > 0) wait_ms = coll__device_nap(goal);
        if (coll__look(trunk, looks, wait_ms) < 0) break;
        if (wait_ms > 0) has_slept = true;
        else if (*status == COLL_PENDING && !p.is_virtual) coll__pause(trunk, looks);
        if (*status == COLL_PENDING && coll__is_shared(trunk) && coll__trunk_share(goal, coll__patience_next(&p))) return;
    }
    if (has_slept && !p.is_virtual && trunk->failure.status == COLL_OK) (void)trunk->transport->progress(trunk->context, 0);
}

/* Others may see from here on in which call this rank waits. */
static void coll__wait_begin(const coll__goal *goal)
{
    coll__trunk *trunk = goal->comm->trunk;

    goal->request->comm->waiting = goal->request;
    (void)__atomic_add_fetch(&trunk->doing.inside, 1, __ATOMIC_RELAXED);
    coll__doing_set(trunk, trunk->doing.now, goal->request->head);
}

static void coll__wait_end(const coll__goal *goal)
{
    coll__trunk *trunk = goal->comm->trunk;

    (void)__atomic_sub_fetch(&trunk->doing.inside, 1, __ATOMIC_RELAXED);
    (void)__atomic_add_fetch(&trunk->doing.turn, 1, __ATOMIC_RELEASE);
    goal->request->comm->waiting = NULL;
}

static void coll__wait_for(const coll__goal *goal)
{
    coll__wait_begin(goal);
    coll__wait_until_reached(goal);
    coll__wait_end(goal);
}

static coll_status coll__wait(coll_request *r)
{
    const coll__goal goal = { r->comm, r, &r->status, r->track && r->call.op == COLL_USER, r->is_on_device };

    coll__wait_for(&goal);
    return r->status;
}

#endif /* COLL_PROGRESS_H */
