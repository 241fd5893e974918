/* coll_progress.h - advances the operations of all communicators of a session, for one thread or several. */
#ifndef COLL_PROGRESS_H
#define COLL_PROGRESS_H

enum { COLL__SLEEP_MOST_MS = 1000, COLL__LOOKS_A_CLOCK = 64, COLL__LOOKS_A_ROUND = 16,
       COLL__STARTS_A_LOOK = 16, COLL__BURST_US = 5 };

/* What a thread waits for: a request, or the first of several to end. */
typedef struct coll__goal {
    coll_comm    *comm;                           /* the communicator that the thread has entered             */
    coll_request *request;                        /* of several: the one whose time limit and late ranks count */
    const coll_status *status;                    /* COLL_PENDING until the goal is reached                   */
    bool          has_user_op;                    /* the operation must run on this thread                    */
    bool          is_silent;                      /* its end wakes no sleeping thread                         */
} coll__goal;

static inline bool coll__is_reached(const coll__goal *goal)
{
    return __atomic_load_n(goal->status, __ATOMIC_ACQUIRE) != COLL_PENDING;
}

/* ---- >>orders: collectives of an order end one after the other, in the order started ---- */

/* Advance an order as far as possible. */
static coll_status coll__order_advance(coll__order *order)
{
    for (bool is_last = false; !is_last;) {
        coll_request *r = order->queue;
        if (coll__is_for_others(r)) {
            coll__fd_ring(order->comm->session);
            return COLL_PENDING;
        }
        const coll_status status = r->is_over ? COLL_OK : coll__carry_on(r);
        if (status == COLL_PENDING && r->next) return order->rests ? COLL_PENDING : coll__order_overlap(order);
        if (status != COLL_OK) return status;     /* after an error the queue is empty                        */
        order->queue = r->next;
        order->rests = false;
        is_last = !order->queue;
        if (is_last) {
            order->queue_end = &order->queue;
            coll__order_rest(order);
        }
        coll__request_finish(r, COLL_OK);         /* may free the order, if the request owns it               */
    }
    return COLL_OK;
}

/* coll_abort was called. */
static coll_status coll__abort_now(coll__session *session)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__set_failure(&failure, COLL_ERR_ABORTED, session->rank, "%s", session->abort_text);
    return coll__session_fail(session, &failure);
}

/* Advance everything; the transport may sleep up to wait_ms. */
static coll_status coll__advance(coll__session *session, int wait_ms)
{
    if (session->failure.status != COLL_OK) return session->failure.status;
    if (__atomic_load_n(&session->abort_wanted, __ATOMIC_ACQUIRE)) return coll__abort_now(session);
    coll_status status = session->transport->progress(session->context, wait_ms);
    if (status < 0) return coll__session_broken(session, status);
    status = session->messages ? COLL__BY_KEY(session, advance, session) : session->failure.status;
    if (COLL__IS_WHOLE && session->lingers && !session->messages->outgoing.first) {
        coll__comms_hold(session);
        session->lingers = false;
        coll__comms_release(session);
    }
    for (coll__order *order = session->orders, *next; order && status >= 0; order = next) {
        next = order->next;
        status = coll__order_advance(order);
    }
    return status;
}

/* ---- >>starts ---- */

/* Does a collective follow closely on another one?  Then its messages are sent together with later ones: by the next wait, or
 * every COLL__STARTS_A_LOOK starts. */
static bool coll__leaves_with_others(const coll_request *r)
{
    coll__session *session = r->comm->session;

    if (COLL__OVERLAP == 1 || !r->order) return false;
    const int64_t now = coll__clock(session);
    session->burst = now - session->started_at < (int64_t)COLL__BURST_US * 1000 ? session->burst + 1 : 0;
    session->started_at = now;
    return session->burst % COLL__STARTS_A_LOOK != 0;
}

/* ---- >>looks ---- */

/* A look while spinning.  If the transport executes the only active collective, most looks poll that collective alone, which is
 * cheap. */
static inline coll_status coll__look(coll__session *session, int looks, int wait_ms)
{
    coll__order *only = session->orders;
    const bool is_alone = COLL__TAKES_WHOLE && wait_ms == 0 && only && !only->next && looks % COLL__LOOKS_A_ROUND != 0
                       && only->queue->carrier->traits & COLL__AS_A_WHOLE;
    return is_alone ? coll__order_advance(only) : coll__advance(session, wait_ms);
}

/* ---- >>yields, and processors on which other programs compute ----
 *
 * A rank that waits spins and yields, because the rank that it waits for may need its processor.  Among ranks a yield takes
 * some microseconds.  A spinning thread has used its time slice, so a program that computes keeps the processor until the next
 * tick of the scheduler (1 to 4 ms).  A thread that sleeps gets the processor soon after it is woken.  Therefore a session
 * whose yields are slow sleeps at once in every wait, for 30 ms.  Then it spins again, and two slow yields are enough to repeat
 * this, each time for twice as long, up to half a second.  Calls that follow one another at once make so many waits between two
 * slow yields that spinning pays, and goes on.
 *
 * What it costs: while waits sleep at once, a short one takes the time of a wake-up, about 10 us more.  In the end each trial
 * costs a rank two ticks in half a second.  2 ranks on 2 processors over TCP beside one program that computes take 15 % longer
 * than if they spun on.  Long vectors of ranks that share a processor make yields slow too; a wake-up is short beside that. */

/* A yield took `ns` and ended at `now`.  Several slow yields close together count; a single one does not.  Waits that sleep at
 * once are not counted. */
static inline void coll__yield_note(coll__yields *y, int64_t now, int64_t ns)
{
    enum { SLOW_US = 1000, APART = 64, ENOUGH = 3, AGAIN = 2, SLEEP_LEAST_MS = 30, SLEEP_MOST_MS = 500 };
    const bool is_first = y->waits - y->slow_at > APART;

    if (ns < (int64_t)SLOW_US * 1000) return;
    y->slow = is_first ? 1 : y->slow + 1;
    y->slow_at = y->waits;
    if (is_first) y->sleep_ms = 0;
    if (y->slow < ENOUGH) return;
    y->slow = ENOUGH - AGAIN;
    y->sleep_ms = y->sleep_ms == 0 ? SLEEP_LEAST_MS : y->sleep_ms < SLEEP_MOST_MS / 2 ? 2 * y->sleep_ms : SLEEP_MOST_MS;
    y->sleep_until = now + y->sleep_ms * (int64_t)COLL__MS;
}

/* May a wait that begins at `now` spin and yield, or does it sleep at once? */
static inline bool coll__may_yield(coll__yields *y, int64_t now)
{
    if (now < y->sleep_until) return false;
    y->sleep_until = 0;
    y->waits++;
    return true;
}

/* Yield.  false: it was slow, and waits sleep from now on, this one too. */
static inline bool coll__give_way(coll__session *session)
{
    const int64_t began = coll__now();

    coll__yield();
    const int64_t now = coll__now();
    coll__yield_note(&session->yields, now, now - began);
    return session->yields.sleep_until == 0;
}

/* How many us a wait that begins now may spin. */
static inline int coll__spin_now(coll__session *session)
{
    return coll__may_yield(&session->yields, session->yields.sleep_until ? coll__now() : 0) ? session->spin_us : 0;
}

/* Between two looks of a wait that spins.  The awaited rank may share our processor: yield at every look if ranks share
 * processors, else now and then. false: the wait must sleep. */
static inline bool coll__pause(coll__session *session, int looks)
{
    const bool is_cheap = COLL__TAKES_WHOLE && session->orders && session->orders->queue->carrier->traits & COLL__AS_A_WHOLE;
    const bool is_due = session->is_crowded || looks % (is_cheap ? COLL__LOOKS_A_CLOCK : COLL__LOOKS_A_CLOCK / 2) == 0;

    if (is_due) return coll__give_way(session);
    coll__relax();
    return true;
}

/* ---- >>holding: several threads, one session ----
 *
 * Threads may use different communicators of one session at the same time.  One thread is inside, the holder; it advances the
 * operations of all.  Threads that wait are followers.  A thread that wants to start something is an entrant: it wakes a
 * sleeping holder, then takes over.  While no thread of the program is inside, the library's own thread may be
 * (coll_progress_thread.h); it yields to every entrant. */

static void coll__session_take_locked(coll_comm *comm)
{
    coll__session *session = comm->session;

    __atomic_add_fetch(&session->entrants, 1, __ATOMIC_SEQ_CST);
    while (session->is_held) {
        if (session->transport->wake) session->transport->wake(session->context);
        coll__cond_wait(&session->changed, &session->lock);
    }
    __atomic_sub_fetch(&session->entrants, 1, __ATOMIC_SEQ_CST);
    session->is_held = comm->is_holder = true;
    session->visits++;
}

static void coll__session_take(coll_comm *comm)
{
    coll__lock_take(&comm->session->lock);
    coll__session_take_locked(comm);
    coll__lock_drop(&comm->session->lock);
}

static void coll__session_drop_locked(coll_comm *comm)
{
    coll__session *session = comm->session;

    COLL__ASSERT(session->is_held && comm->is_holder, "rank %d lets go of what it does not hold", session->rank);
    session->is_held = comm->is_holder = false;
    coll__cond_wake(&session->changed);
}

static void coll__session_drop(coll_comm *comm)
{
    coll__lock_take(&comm->session->lock);
    coll__session_drop_locked(comm);
    coll__lock_drop(&comm->session->lock);
}

/* Let entrants in, then follow the holder until the goal is reached, no thread holds the session, or the time is `until`.
 * Unless the goal is reached, this thread holds the session again afterwards. */
static void coll__session_follow(const coll__goal *goal, int64_t until)
{
    coll__session *session = goal->comm->session;
    int error = 0;

    coll__session_drop_locked(goal->comm);
    __atomic_add_fetch(&session->followers, 1, __ATOMIC_SEQ_CST);
    while ((session->is_held || session->entrants > 0) && !coll__is_reached(goal) && error == 0)
        error = coll__cond_wait_until(&session->changed, &session->lock, until);
    __atomic_sub_fetch(&session->followers, 1, __ATOMIC_SEQ_CST);
    if (!coll__is_reached(goal)) coll__session_take_locked(goal->comm);
}

/* Between two looks of the holder, whose next action is due at `next`. true: the goal is reached, and this thread no longer
 * holds the session. */
static bool coll__session_share(const coll__goal *goal, int64_t next)
{
    coll__session *session = goal->comm->session;
    const int entrants = __atomic_load_n(&session->entrants, __ATOMIC_SEQ_CST);
    const int followers = __atomic_load_n(&session->followers, __ATOMIC_SEQ_CST);

    if (!goal->comm->is_holder || (entrants == 0 && (followers == 0 || session->told == session->finished))) return false;
    const int64_t most = coll__now() + (int64_t)(goal->has_user_op ? 1 : COLL__SLEEP_MOST_MS) * COLL__MS;
    coll__lock_take(&session->lock);
    session->told = session->finished;
    coll__cond_wake(&session->changed);
    if (entrants > 0) coll__session_follow(goal, next < most ? next : most);
    coll__lock_drop(&session->lock);
    return !goal->comm->is_holder;
}

/* ---- >>lateness ---- */

/* Mark the ranks of the session that a request waits for.  Returns how many; 0: unknown. */
static int coll__late_ranks(const coll_request *r, unsigned char *is_late)
{
    const coll__session *session = r->comm->session;
    const coll_request *running = r->order && r->order->queue ? r->order->queue : r;
    int count = 0;

    if (running->carrier->late) running->carrier->late(running, is_late);
    for (int i = 0; i < session->size; i++) count += is_late[i];
    return count;
}

#endif /* COLL_PROGRESS_H */
