/* coll_progress.h - moves the operations of all communicators of a session on, for one thread or several. */
#ifndef COLL_PROGRESS_H
#define COLL_PROGRESS_H

enum { COLL__SLEEP_MOST_MS = 1000, COLL__LOOKS_A_CLOCK = 64, COLL__LOOKS_A_ROUND = 16,
       COLL__STARTS_A_LOOK = 16, COLL__BURST_US = 5 };

/* What a thread waits for: a request, or the first of several to end. */
typedef struct coll__goal {
    coll_comm    *comm;                           /* by which the thread is inside                            */
    coll_request *request;                        /* of several the one whose time limit and lateness count   */
    const coll_status *status;                    /* COLL_PENDING until then                                  */
    bool          has_user_op;                    /* which runs on this thread only                           */
    bool          is_silent;                      /* no sleep ends with it                                    */
} coll__goal;

static inline bool coll__is_reached(const coll__goal *goal)
{
    return __atomic_load_n(goal->status, __ATOMIC_ACQUIRE) != COLL_PENDING;
}

/* ---- >>orders: collectives of an order end one after the other, in the order started ---- */

/* Run an order as far as it goes. */
static coll_status coll__order_advance(coll__order *order)
{
    order->comm->session->ended_at = 0;
    for (bool is_last = false; !is_last;) {
        coll_request *r = order->queue;
        if (coll__is_for_others(r)) {
            coll__fd_ring(order->comm->session);
            return COLL_PENDING;
        }
        const coll_status status = r->is_over ? COLL_OK : coll__carry_on(r);
        if (status == COLL_PENDING && r->next) return order->rests ? COLL_PENDING : coll__order_abreast(order);
        if (status != COLL_OK) return status;     /* after an error the queue is empty already                */
        order->queue = r->next;
        order->rests = false;
        is_last = !order->queue;
        if (is_last) {
            order->queue_end = &order->queue;
            coll__order_rest(order);
        }
        coll__request_finish(r, COLL_OK);         /* may free the order, if it is the request's own           */
    }
    return COLL_OK;
}

static coll_status coll__orders_advance(coll__session *session)
{
    coll_status status = COLL_OK;

    for (coll__order *order = session->orders, *next; order && status >= 0; order = next) {
        next = order->next;
        status = coll__order_advance(order);
    }
    return status;
}

/* coll_abort was called. */
static coll_status coll__abort_now(coll__session *session)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__blame(&failure, COLL_ERR_ABORTED, session->rank, "%s", session->abort_text);
    return coll__session_fail(session, &failure);
}

/* Move everything on; the transport may sleep up to wait_ms. */
static coll_status coll__advance(coll__session *session, int wait_ms)
{
    if (session->failure.status != COLL_OK) return session->failure.status;
    if (__atomic_load_n(&session->abort_wanted, __ATOMIC_ACQUIRE)) return coll__abort_now(session);
    if (session->transport->progress(session->context, wait_ms) < 0) return coll__session_fail(session, NULL);
    const coll_status status = coll__messages_advance(session);
    if (session->lingers) coll__doing_comms(session);
    return status < 0 ? status : coll__orders_advance(session);
}

/* ---- >>starts ---- */

/* Does a collective start right behind another one?  Then what they have to send leaves together, with the next call that moves
 * anything: the one that waits for them, or every so many starts one. */
static bool coll__leaves_with_others(const coll_request *r)
{
    coll__session *session = r->comm->session;

    if (COLL__ABREAST == 1 || !r->order) return false;
    const int64_t now = r->record ? session->began_at : coll__clock(session);
    session->burst = now - session->started_at < (int64_t)COLL__BURST_US * 1000 ? session->burst + 1 : 0;
    session->started_at = now;
    return session->burst % COLL__STARTS_A_LOOK != 0;
}

/* Move on what has just been started.  The program's own time counts from here. */
static coll_status coll__move_started(coll__session *session)
{
    const coll_status status = coll__advance(session, 0);

    session->started_at = coll__clock(session);
    return status;
}

/* ---- >>looks ---- */

/* A look while spinning.  A collective that the transport carries out is looked at by itself most of the time: that is
 * cheap, and everything else can wait for a microsecond. */
static inline coll_status coll__look(coll__session *session, int looks, int wait_ms)
{
    coll__order *only = session->orders;
    const bool is_alone = wait_ms == 0 && only && !only->next && looks % COLL__LOOKS_A_ROUND != 0
                       && only->queue->carrier->traits & COLL__AS_A_WHOLE;
    return is_alone ? coll__order_advance(only) : coll__advance(session, wait_ms);
}

/* ---- >>a machine on which others compute ---- */

/* Is this a wait of a time in which others compute? */
static inline bool coll__is_busy(const coll__session *session) { return session->spin_began < session->busy_until; }

#if !defined(COLL_NO_OS)

/* For how many ns the ranks with which we share our processor may keep it to move what is under way, and be no program that
 * computes: a ns for each of their bytes, which is more than copying and adding up take. */
static int64_t coll__moving_ns(const coll__session *session)
{
    if (!session->is_crowded || !session->orders) return 0;
    const coll_request *const r = session->orders->queue;
    return (int64_t)(coll__call_elements(&r->call, r->comm->size) * (double)coll_type_size(r->call.type) / session->share);
}

/* Give way to whoever wants our processor.  A program that computes then has it for a whole turn of the scheduler, for who spins
 * has used up his own; who sleeps is let in as soon as he is woken.  So when that has happened we give way no more for a
 * while, and longer each time that we find it again. */
static inline void coll__give_way(coll__session *session)
{
    enum { TURN_US = 500, LEAST_MS = 20, MOST_MS = 1280 };
    const int64_t began = coll__now();

    coll__yield();
    const int64_t now = coll__now();
    if (now - began < (int64_t)TURN_US * 1000 + coll__moving_ns(session)) return;
    const bool is_again = now - session->busy_until < 4 * session->busy_ms * (int64_t)COLL__MS;
    session->busy_ms = !is_again ? LEAST_MS : session->busy_ms < MOST_MS ? 2 * session->busy_ms : MOST_MS;
    session->busy_until = now + session->busy_ms * (int64_t)COLL__MS;
}

enum { COLL__SPIN_BUSY_US = 10, COLL__SPIN_MISSES = 4, COLL__SPIN_TRIES = 64 };

/* How long a wait that begins now may spin.  Where others compute, for a moment and without giving way, as long as that pays: it
 * does for ranks that have a processor each, if they have it; where two have been put on one, whom we wait for cannot come while
 * we spin.  After some misses it is tried but now and then; and not for what the transport carries as a whole, where a wake-up is
 * short. */
static inline int coll__spin_now(coll__session *session, bool is_whole)
{
    if (session->busy_until) session->spin_began = coll__now();
    if (!coll__is_busy(session)) return session->spin_us;
    const bool pays = session->spin_misses < COLL__SPIN_MISSES || ++session->spin_tries % COLL__SPIN_TRIES == 0;
    return pays && !is_whole && !session->is_crowded ? coll__less(session->spin_us, COLL__SPIN_BUSY_US) : 0;
}

/* A wait that was allowed to spin is over.  One that took longer was of two ranks on a processor: the other came meanwhile. */
static inline void coll__spin_note(coll__session *session, bool has_slept)
{
    if (!coll__is_busy(session)) return;
    if (!has_slept && coll__now() - session->spin_began < 2 * COLL__SPIN_BUSY_US * (int64_t)1000) session->spin_misses = 0;
    else if (session->spin_misses < COLL__SPIN_MISSES) session->spin_misses++;
}

#else

static inline void coll__give_way(const coll__session *session) { (void)session; }
static inline int coll__spin_now(const coll__session *session, bool is_whole) { return (void)is_whole, session->spin_us; }
static inline void coll__spin_note(const coll__session *session, bool has_slept) { (void)session, (void)has_slept; }

#endif

/* Between two looks.  Whoever we wait for may share our processor, so it gets a turn now and then: always where there are
 * more ranks than processors, else after a few microseconds of spinning. */
static inline void coll__pause(coll__session *session, int looks)
{
    const bool is_cheap = session->orders && session->orders->queue->carrier->traits & COLL__AS_A_WHOLE;
    const bool is_due = session->is_crowded || looks % (is_cheap ? COLL__LOOKS_A_CLOCK : COLL__LOOKS_A_CLOCK / 2) == 0;

    if (is_due && !coll__is_busy(session)) coll__give_way(session);
    else coll__relax();
}

/* ---- >>holding: several threads, one session ----
 *
 * Communicators of one session may be used from different threads at once; one thread is inside, the holder.  Threads that wait
 * for something follow it: it moves everybody's operations on.  A thread that wants to start something is an entrant: it wakes
 * the holder up, if it sleeps, and gets its turn.  While none of the program's threads is inside, the library's own may be
 * (coll_background.h), which gives way to every entrant. */

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
    if (session->observer) session->observer->idle(session);
}

static void coll__session_drop(coll_comm *comm)
{
    coll__lock_take(&comm->session->lock);
    coll__session_drop_locked(comm);
    coll__lock_drop(&comm->session->lock);
}

/* Let entrants in, and follow whoever holds the session then, until the goal is reached, or nobody holds it, or the time `until`
 * has come.  Unless the goal is reached, we hold it again afterwards. */
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

/* Between two looks of the holder, which has something else to do at the time `next`.  true: the goal is reached, and we hold
 * the session no more. */
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

#if !defined(COLL_NO_WATCH)

/* What tells whom a carrier's call waits for. */
#define COLL__LATE(mark) mark

/* Mark the ranks of the session that a request waits for.  Gives how many; 0: it is none in particular. */
static int coll__late_ranks(const coll_request *r, unsigned char *is_late)
{
    const coll__session *session = r->comm->session;
    const coll_request *running = r->order && r->order->queue ? r->order->queue : r;
    int count = 0;

    if (running->carrier->late) running->carrier->late(running, is_late);
    for (int i = 0; i < session->size; i++) count += is_late[i];
    return count;
}

#else

#define COLL__LATE(mark) NULL

#endif

#endif /* COLL_PROGRESS_H */
