/* coll_progress.h - moves the operations of a communicator on, and the one loop that waits. */
#ifndef COLL_PROGRESS_H
#define COLL_PROGRESS_H

enum { COLL__WARN_FIRST_MS = 10000, COLL__REPORT_AFTER_MS = 100, COLL__SLEEP_MOST_MS = 1000, COLL__LOOKS_A_CLOCK = 64, COLL__LOOKS_A_ROUND = 16 };

/* ---- >>queue: collectives of a communicator run one after the other, in the order started ---- */

static void coll__queue_append(coll_comm *comm, coll_request *r)
{
    r->next = NULL;
    *comm->queue_end = r;
    comm->queue_end = &r->next;
}

static coll_status coll__engine_advance(coll_comm *comm, coll_request *r)
{
    coll_failure failure = { COLL_OK, -1, "" };

    if (!r->is_started && coll__flow_start(r) < 0) {
        coll__blame(&failure, COLL_ERR_MEMORY, comm->rank, "rank %d has no memory for the operation", comm->rank);
        return coll__comm_fail(comm, &failure);
    }
    r->is_started = true;
    return coll__flow_advance(r);
}

/* Move a collective on: the transport's whole, or rounds through the engine.  A call that names an algorithm wants the
 * engine. */
static coll_status coll__collective_advance(coll_comm *comm, coll_request *r)
{
    coll_failure failure;

    if (!r->is_offloaded) return coll__engine_advance(comm, r);
    failure.status = COLL_OK;
    const coll_status status = comm->transport->offload(comm->context, &r->task, &failure);
    if (status >= 0) return status;
    if (status != COLL_ERR_UNSUPPORTED) return coll__comm_fail(comm, failure.status != COLL_OK ? &failure : NULL);
    r->is_offloaded = false;                      /* declined: through the engine, then                       */
    return coll__engine_advance(comm, r);
}

/* Run the queue as far as it goes. */
static coll_status coll__queue_advance(coll_comm *comm)
{
    while (comm->queue) {
        coll_request *r = comm->queue;
        const coll_status status = coll__collective_advance(comm, r);
        if (status != COLL_OK) return status;     /* after an error the queue is empty already                */
        comm->queue = r->next;
        if (!comm->queue) comm->queue_end = &comm->queue;
        r->status = COLL_OK;
        coll__request_drop(r);
    }
    return COLL_OK;
}

/* Move everything on; the transport may sleep up to wait_ms. */
static coll_status coll__advance(coll_comm *comm, int wait_ms)
{
    if (comm->failure.status != COLL_OK) return comm->failure.status;
    if (comm->transport->progress(comm->context, wait_ms) < 0) return coll__comm_fail(comm, NULL);
    const coll_status status = coll__messages_advance(comm);
    return status < 0 ? status : coll__queue_advance(comm);
}

/* A look while spinning.  A collective that the transport carries out is looked at by itself most of the time: that is
 * cheap, and everything else can wait for a microsecond. */
static inline coll_status coll__look(coll_comm *comm, int looks, int wait_ms)
{
    const bool is_alone = wait_ms == 0 && comm->queue && comm->queue->is_offloaded && looks % COLL__LOOKS_A_ROUND != 0;
    return is_alone ? coll__queue_advance(comm) : coll__advance(comm, wait_ms);
}

/* Between two looks.  Whoever we wait for may share our processor, so it gets a turn now and then: always where there are
 * more ranks than processors, else after a few microseconds of spinning. */
static inline void coll__pause(const coll_comm *comm, int looks)
{
    const bool is_cheap = comm->queue && comm->queue->is_offloaded;

    if (comm->is_crowded || looks % (is_cheap ? COLL__LOOKS_A_CLOCK : COLL__LOOKS_A_CLOCK / 8) == 0) sched_yield();
    else coll__relax();
}

/* ---- >>waiting ---- */

/* Name the ranks that a request waits for.  Gives the first of them, -1 when it is none in particular. */
static int coll__late_ranks(const coll_request *r, char *text, size_t room)
{
    const coll_comm *comm = r->comm;
    unsigned char *is_late = (unsigned char *)calloc((size_t)comm->size, 1);
    int first = -1, count = 0;

    coll__print(text, room, "the others");
    if (!is_late) return -1;
    const coll_request *running = coll__kind_is_message(r->call.kind) || !comm->queue ? r : comm->queue;
    if (coll__kind_is_message(r->call.kind)) coll__messages_late(r, is_late);
    else if (running->is_offloaded && comm->transport->late) comm->transport->late(comm->context, &running->task, is_late);
    else if (!running->is_offloaded && running->is_started) coll__flow_late(running, is_late);
    for (int i = comm->size - 1; i >= 0; i--) if (is_late[i]) first = i, count++;
    if (count > 0) {
        coll__print(text, room, count == 1 ? "rank " : "ranks ");
        coll__append_ranks(text, room, is_late, comm->size);
    }
    free(is_late);
    return first;
}

static coll_status coll__late(coll_request *r, int64_t waited_ns, bool is_final)
{
    char who[120], what[96];
    coll_failure failure = { COLL_OK, -1, "" };
    const int first = coll__late_ranks(r, who, sizeof who);

    coll__head_describe(r->head, what, sizeof what);
    const double seconds = (double)waited_ns * 1e-9;
    if (!is_final) {
        coll__say(&r->comm->log, COLL_LOG_WARN, "rank %d of %d: %s%s%s has been waiting for %s for %.1f s", r->comm->rank,
                  r->comm->size, what, r->call.name ? " " : "", r->call.name ? r->call.name : "", who, seconds);
        return COLL_PENDING;
    }
    coll__blame(&failure, COLL_ERR_TIMEOUT, first, "no word from %s in %.3g s (rank %d waited)", who, seconds, r->comm->rank);
    return coll__comm_fail(r->comm, &failure);
}

/* Wait until a request is finished.  Spins for a while, because most waits are short; then sleeps in the transport, at most
 * until its time is up or a warning is due.  The first look never sleeps: what an earlier call has moved may be all that is
 * needed. */
static coll_status coll__wait_until_done(coll_request *r)
{
    coll_comm *comm = r->comm;
    const int limit_ms = r->call.timeout_ms > 0 ? r->call.timeout_ms : comm->stall_timeout_ms;
    int64_t began = 0, spin_end = 0, warn_at = 0, report_at = 0, deadline = coll__never;
    bool has_slept = false;

    for (int looks = 1; r->status == COLL_PENDING; looks++) {
        int wait_ms = 0;
        if (looks % COLL__LOOKS_A_CLOCK == 0 || has_slept || comm->spin_us <= 0) {
            const int64_t now = coll__now();
            if (!began) {
                began = now;
                spin_end = now + (int64_t)comm->spin_us * 1000;
                warn_at = now + (int64_t)COLL__WARN_FIRST_MS * COLL__MS;
                report_at = comm->transport->waiting ? now + (int64_t)COLL__REPORT_AFTER_MS * COLL__MS : coll__never;
                if (limit_ms > 0) deadline = now + (int64_t)limit_ms * COLL__MS;
            }
            if (now >= deadline) return coll__late(r, now - began, true);
            if (now >= warn_at) {
                coll__late(r, now - began, false);
                warn_at = began + 2 * (now - began);
            }
            if (now >= report_at) {               /* ranks that wait for one another may be in different calls */
                if (comm->queue) comm->transport->waiting(comm->context, comm->queue->head);
                report_at = coll__never;
            }
            int64_t until = deadline < warn_at ? deadline : warn_at;
            if (report_at < until) until = report_at;
            if (now >= spin_end && looks > 1) wait_ms = coll__ms_until(until, COLL__SLEEP_MOST_MS);
        }
        if (coll__look(comm, looks, wait_ms) < 0) break;
        if (wait_ms > 0) has_slept = true;
        else if (r->status == COLL_PENDING) coll__pause(comm, looks);
    }
    if (has_slept && comm->failure.status == COLL_OK) (void)comm->transport->progress(comm->context, 0);
    return r->status;
}

static coll_status coll__wait(coll_request *r)
{
    r->comm->waiting = r;
    const coll_status status = coll__wait_until_done(r);
    r->comm->waiting = NULL;
    return status;
}

#endif /* COLL_PROGRESS_H */
