/* coll_wait_loop.h - the wait loop: spins, yields, sleeps, and checks time limits, late ranks (coll_late_ranks.h) and ranks that
 * left. */
#ifndef COLL_WAIT_LOOP_H
#define COLL_WAIT_LOOP_H

enum { COLL__WARN_FIRST_MS = 10000, COLL__ASK_BEFORE_MS = 500, COLL__WATCH_FIRST_MS = 100, COLL__WATCH_MOST_MS = 5000,
       COLL__TEST_WATCH_MS = 250, COLL__YIELDS_A_CLOCK = 4 };

/* The time limit of its caller in ms: its own, or the communicator's; INT_MAX: none. */
static int coll__limit_ms(const coll_request *r)
{
    const int limit_ms = r->call.timeout_ms != 0 ? r->call.timeout_ms : r->comm->session->stall_timeout_ms;
    return limit_ms > 0 ? limit_ms : INT_MAX;
}

COLL__FOR_SIZE

static coll_status coll__out_of_time(coll_request *r, int64_t waited_ns)
{
    coll_failure failure = { COLL_OK, -1, "" };

    if (COLL__IS_WHOLE) return coll__late(r, waited_ns, COLL__LATE_FAIL);
    coll__set_failure(&failure, COLL_ERR_TIMEOUT, -1, "no word from the others in time (rank %d waited)", r->comm->session->rank);
    return coll__comm_fail(r->comm, &failure);
}

/* ---- >>ranks that have left ---- */

/* Mark the ranks that a request waits for.  If the transport executes the whole call and does not know them: mark ranks that
 * freed the communicator before that call. */
static void coll__wanted_ranks(const coll_request *r, unsigned char *is_late)
{
    const coll__session *session = r->comm->session;
    const coll_request *head = r->order ? r->order->queue : NULL;

    if (coll__late_ranks(r, is_late) > 0 || !head || !(head->carrier->traits & COLL__AS_A_WHOLE) || head->prepared) return;
    for (int i = 0; i < session->size; i++) {
        const coll__peer_left *gone = coll__peer_left_of(session, i, r->comm->id);
        is_late[i] = gone && gone->sequence < head->sequence;
    }
}

/* A rank that a collective waits for, and that has left or freed its communicator; -1: none. */
static int coll__wanted_gone(const coll_request *r, unsigned char *is_late)
{
    const coll__session *session = r->comm->session;

    memset(is_late, 0, (size_t)session->size);
    coll__wanted_ranks(r, is_late);
    for (int i = 0; i < session->size; i++) {
        const coll__peer_left *gone = is_late[i] ? coll__peer_left_of(session, i, r->comm->id) : NULL;
        if (is_late[i] && i != session->rank && ((gone && gone->is_sure) || coll__has_left(session, i))) return i;
    }
    return -1;
}

/* If a running request waits for a rank that has freed its communicator, the request and the session fail.  All that the rank
 * sent before is processed first; this also ends messages that wait in vain. */
static coll_status coll__check_freed(coll_request *r)
{
    coll_comm *const comm = r->comm;
    coll__session *const session = comm->session;
    unsigned char *const is_late = (unsigned char *)coll__take_zeros(coll__like(session), (size_t)session->size, 1);
    bool (*const has_freed)(void *context, int peer, uint64_t id) = session->internals->has_freed;
    coll_failure failure = { COLL_OK, -1, "" };
    bool any = false;

    if (!is_late) return COLL_PENDING;
    coll__wanted_ranks(r, is_late);
    coll_status status = coll__messages_hear(comm);
    for (int i = 0; i < session->size && status == COLL_OK; i++) {
        if (!is_late[i] || i == session->rank) continue;
        const bool is_freed = has_freed ? has_freed(session->context, i, comm->id)
                              : coll__peer_left_of(session, i, comm->id) != NULL;
        if (is_freed) status = coll__peer_left_note(session, i, comm->id, UINT32_MAX, true);
        any = any || is_freed || coll__has_left(session, i);
    }
    status = status < 0 ? coll__session_broken(session, status) : any ? coll__advance(session, 0) : COLL_PENDING;
    const bool waits = status >= 0 && coll__is_pending(r) && !coll__kind_is_message(r->call.kind);
    const int gone = any && waits ? coll__wanted_gone(r, is_late) : -1;
    coll__give(is_late);
    if (gone < 0) return status < 0 ? status : COLL_PENDING;
    coll__set_failure(&failure, COLL_ERR_PEER, gone, "rank %d has left the communicator, and rank %d still waits for it", gone,
                      session->rank);
    return coll__session_fail(session, &failure);
}

/* Report the call in which this rank stalls: another one may wait in a different call.  Not one that starts at once: the calls
 * that it is made of have its number and other fingerprints. */
static void coll__report_stall(const coll_request *r)
{
    const coll__session *session = r->comm->session;
    const coll_request *running = r->order && r->order->queue ? r->order->queue : r;

    if (session->transport->now || !(running->carrier->traits & COLL__AT_CALL))
        session->transport->report_stall(session->context, running->head);
}

/* Report the call, and check for freed communicators; with virtual time the latter when it is due. */
static coll_status coll__look_around(coll_request *r)
{
    const coll__session *session = r->comm->session;
    const coll__internals *const i = session->internals;

    if (session->transport->report_stall) coll__report_stall(r);
    if (!COLL__IS_WHOLE || (session->transport->now && !(i->has_freed && i->has_freed(session->context, -1, 0)))) return COLL_OK;
    return coll__check_freed(r);
}

/* A test.  If `r` is still pending, its time limit counts from the first such test.  Programs that poll must learn of freed
 * communicators and of different calls, too. */
static void coll__test_again(coll_request *r)
{
    if (!coll__is_pending(r)) return;
    coll__session *const session = r->comm->session;
    const bool is_virtual = session->transport->now != NULL;
    const int64_t watch = (int64_t)COLL__TEST_WATCH_MS * COLL__MS;
    const int limit_ms = coll__limit_ms(r);

    if (limit_ms == INT_MAX && !is_virtual && ++session->tests % COLL__LOOKS_A_CLOCK != 0) return;
    const int64_t now = coll__clock(session);
    if (r->tested_at == 0) r->tested_at = now;
    if (limit_ms < INT_MAX && now - r->tested_at >= (int64_t)limit_ms * COLL__MS) {
        r->comm->waiting = r;                     /* the error sentence names it                              */
        (void)coll__out_of_time(r, now - r->tested_at);
        r->comm->waiting = NULL;
    } else if (COLL__IS_WHOLE && (is_virtual || (now >= session->watch_at && now - r->tested_at >= watch))) {
        session->watch_at = now + watch;
        (void)coll__look_around(r);
    }
}

COLL__FOR_SPEED

/* ---- >>the wait loop ---- */

/* Times at which a wait does something. */
typedef struct coll__wait_loop {
    bool    is_virtual;                           /* with virtual time the transport detects a standstill itself */
    int64_t began, spin_end, ask_at, warn_at, watch_at, deadline;
} coll__wait_loop;

#define COLL__WAIT_LOOP_FRESH                                                                                                  \
    { .ask_at = coll__never, .warn_at = coll__never, .watch_at = coll__never, .deadline = coll__never }

static void coll__wait_loop_begin(coll__wait_loop *p, const coll_request *r, int spin_us)
{
    const coll__session *session = r->comm->session;
    const int limit_ms = coll__limit_ms(r);

    p->is_virtual = session->transport->now != NULL;
    p->began = coll__clock(session);
    p->spin_end = p->began + (int64_t)spin_us * 1000;
    p->deadline = limit_ms < INT_MAX ? p->began + (int64_t)limit_ms * COLL__MS : coll__never;
    if (p->is_virtual) return;
    p->watch_at = p->began + (int64_t)coll__least(COLL__WATCH_FIRST_MS, (size_t)(limit_ms - limit_ms / 2)) * COLL__MS;
    if (!COLL__IS_WHOLE) return;
    p->warn_at = p->began + (int64_t)COLL__WARN_FIRST_MS * COLL__MS;
    p->ask_at = p->warn_at - (int64_t)COLL__ASK_BEFORE_MS * COLL__MS;
}

static int64_t coll__wait_loop_next(const coll__wait_loop *p)
{
    const int64_t warn_or_ask = p->ask_at < p->warn_at ? p->ask_at : p->warn_at;
    const int64_t next = p->deadline < warn_or_ask ? p->deadline : warn_or_ask;
    return p->watch_at < next ? p->watch_at : next;
}

/* Do what is due.  Returns an error if the time limit is over, or if a rank that the request needs has left. */
static coll_status coll__wait_loop_check(coll__wait_loop *p, coll_request *r, int64_t now)
{
    const int64_t most = (int64_t)COLL__WATCH_MOST_MS * COLL__MS;

    if (now >= p->deadline) return coll__out_of_time(r, now - p->began);
    if (COLL__IS_WHOLE && now >= p->warn_at) {
        coll__late(r, now - p->began, COLL__LATE_WARN);
        p->warn_at = p->began + 2 * (now - p->began);
        p->ask_at = p->warn_at - (int64_t)COLL__ASK_BEFORE_MS * COLL__MS;
    } else if (COLL__IS_WHOLE && now >= p->ask_at) {
        coll__late(r, now - p->began, COLL__LATE_ASK);
        p->ask_at = coll__never;
    }
    if (now < p->watch_at && !p->is_virtual) return COLL_OK;
    if (!p->is_virtual) p->watch_at = now + (now - p->began < most ? now - p->began : most);
    return coll__look_around(r) < 0 ? r->status : COLL_OK;
}

/* ---- >>waiting ---- */

/* Wait until the goal is reached.  Spins first, because most waits are short.  Then it sleeps in the transport, at most until
 * something is due.  The first look never sleeps: an earlier call may have finished it already. */
static void coll__wait_until_reached(const coll__goal *goal)
{
    coll__session *session = goal->comm->session;
    coll__wait_loop p = COLL__WAIT_LOOP_FRESH;
    const int looks_a_clock = session->is_crowded ? COLL__YIELDS_A_CLOCK : COLL__LOOKS_A_CLOCK;
    const coll_status *const status = goal->status;
    int spin_us = coll__spin_now(session);
    bool has_begun = false, has_slept = false;

    for (int looks = 1; *status == COLL_PENDING; looks++) {
        int wait_ms = 0;
        if (spin_us <= 0 || looks % looks_a_clock == 0 || has_slept) {
            if (!has_begun) coll__wait_loop_begin(&p, goal->request, spin_us);
            has_begun = true;
            const int64_t now = coll__clock(session);
            if (coll__wait_loop_check(&p, goal->request, now) < 0) return;
            const int most = p.is_virtual ? INT_MAX : COLL__SLEEP_MOST_MS;
            if ((spin_us <= 0 || now >= p.spin_end) && looks > 1) wait_ms = coll__ms_between(now, coll__wait_loop_next(&p), most);
        }
        if (wait_ms > 0 && session->silent > 0) { /* an end may not wake this thread                          */
            wait_ms = !goal->is_silent;
            if (goal->is_silent) coll__delay(20);
        }
        if (coll__look(session, looks, wait_ms) < 0) break;
        if (wait_ms > 0) has_slept = true;
        else if (*status == COLL_PENDING && spin_us > 0 && !p.is_virtual && !coll__pause(session, looks)) spin_us = 0;
        if (*status == COLL_PENDING && coll__is_shared(session) && coll__session_share(goal, coll__wait_loop_next(&p))) return;
    }
    if (has_slept && !p.is_virtual && session->failure.status == COLL_OK) (void)session->transport->progress(session->context, 0);
}

/* Publish the call in which this rank waits, and wait. */
static void coll__wait_for(const coll__goal *goal)
{
    coll__session *session = goal->comm->session;
    coll_comm *comm = goal->request->comm;

    comm->waiting = goal->request;
    coll__activity_begin(session, goal->request->head);
    coll__wait_until_reached(goal);
    coll__activity_end(session);
    comm->waiting = NULL;
}

static coll_status coll__wait(coll_request *r)
{
    const coll__goal goal = { r->comm, r, &r->status, r->order && r->call.op == COLL_USER,
                               (r->carrier->traits & COLL__WAKES_NONE) != 0 };

    coll__wait_for(&goal);
    return r->status;
}

#endif /* COLL_WAIT_LOOP_H */
