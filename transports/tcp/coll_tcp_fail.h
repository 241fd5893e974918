/* coll_tcp_fail.h - all ranks end with the first failure.
 *
 * Rank 0 is the failure detector (coll_tcp_heartbeat.h).  If a rank detects an error, it reports to rank 0, and waits for the
 * decision.  It keeps its connections open until coll_free, for its neighbors could take a close for a death.  If rank 0 is
 * dead or has left, the rank's own view stands.  It is sent on its lines and, when it leaves, to the peers of its streams. */
#ifndef COLL_TCP_FAIL_H
#define COLL_TCP_FAIL_H

enum {
    COLL__DECISION_MS = 1000,
    COLL__FLUSH_MS = 300                          /* time limit for the last messages of a leaving rank       */
};

/* Report, and wait for the decision. */
static void coll__ask_for_decision(coll__tcp *tcp, coll_failure *cause)
{
    coll__heartbeat *p = &tcp->heartbeat;
    const int64_t began = coll__now(),
                          deadline = coll__deadline(COLL__DECISION_MS) + (p->has_thread ? coll__silence_limit(&p->detector) : 0);
    const bool is_detector_late = !p->has_thread && cause->rank == 0 && cause->status == COLL_ERR_TIMEOUT;

    coll__events(tcp);
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->line_count; i++) coll__line_event(p, i);       /* the cause may have arrived already */
    p->outcome.is_asking = true;
    if (p->rank == 0 || !p->detector.left.has[0]) coll__heartbeat_report(p, cause);
    coll__heartbeat_tell(p);
    pthread_mutex_unlock(&p->lock);
    coll__control_listen(tcp);
    while (tcp->failure.status == COLL_OK && !is_detector_late) {
        pthread_mutex_lock(&p->lock);
        const int64_t soon = began + COLL__FLUSH_MS * (int64_t)COLL__MS;
        const int64_t until = coll__outcome_until(&p->outcome, cause->rank, began, soon, deadline);
        pthread_mutex_unlock(&p->lock);
        if (coll__now() >= until) break;
        coll__io_wait_events(&tcp->io, coll__ms_until(until, COLL__DECISION_MS));
        coll__events(tcp);
    }
    pthread_mutex_lock(&p->lock);
    p->outcome.is_asking = false;
    coll__heartbeat_decide(p, cause, COLL__FROM_MEMBER);
    coll__heartbeat_tell(p);
    pthread_mutex_unlock(&p->lock);
    coll__control_listen(tcp);
}

/* is_sentence: otherwise the name of the suspect rank precedes the text. */
static void coll__tcp_settle(coll__tcp *tcp, const coll_failure *cause, bool is_sentence)
{
    coll_failure own = { COLL_OK, -1, "" };

    if (is_sentence) own = *cause;
    else coll__failed_member(&tcp->heartbeat.outcome, &own, cause->status, cause->rank, cause->text);
    if (own.status == COLL_ERR_TIMEOUT && tcp->failure.status == COLL_OK) coll__shortage_add(tcp, &own);
    if (tcp->failure.status == COLL_OK) coll__ask_for_decision(tcp, &own);
    coll__io_cancel(&tcp->io, tcp->streams, tcp->size * COLL_CHANNEL_COUNT);      /* the buffers belong to the caller again */
}

static const coll_failure *coll__tcp_fail(void *context, const coll_failure *cause)
{
    coll__tcp *tcp = (coll__tcp *)context;

    if (tcp->failure.status == COLL_OK && !cause) return NULL;
    coll__tcp_settle(tcp, tcp->failure.status == COLL_OK ? cause : &tcp->failure, true);
    return &tcp->failure;
}

/* Async-signal-safe: only atomic words and doorbells. */
static bool coll__tcp_abort(void *context, const char *text)
{
    coll__heartbeat *p = &((coll__tcp *)context)->heartbeat;

    if (!p->has_thread) return false;
    __atomic_store_n(&p->abort_text, text, __ATOMIC_RELEASE);
    coll__heartbeat_wake(p);
    return true;
}

/* Report to rank 0 the call in which this rank waits, and the one before it. */
static void coll__tcp_report_stall(void *context, const unsigned char *head)
{
    coll__tcp *tcp = (coll__tcp *)context;
    coll__heartbeat *p = &tcp->heartbeat;

    pthread_mutex_lock(&p->lock);
    coll__report_make(p->session, head, p->waiting);
    if (tcp->rank == 0) coll__heartbeat_compare(p, 0, p->waiting);
    else coll__heartbeat_want(p, COLL__CONTROL_WAITING);
    coll__heartbeat_tell(p);
    pthread_mutex_unlock(&p->lock);
}

static void coll__tcp_watch(void *context, coll__session *session)
{
    coll__heartbeat *p = &((coll__tcp *)context)->heartbeat;

    pthread_mutex_lock(&p->lock);
    p->session = session;
    pthread_mutex_unlock(&p->lock);
}

static void coll__tcp_failed(void *context, unsigned char *is_failed)
{
    coll__heartbeat *p = &((coll__tcp *)context)->heartbeat;

    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->size; i++) is_failed[i] |= p->detector.dead.has[i];
    pthread_mutex_unlock(&p->lock);
}

/* ---- >>leaving ---- */

/* Wait until the peer's kernel has acknowledged all data: an earlier close could discard it. */
static void coll__socket_flush(int fd, int64_t deadline)
{
    while (coll__unacknowledged(fd) > 0 && coll__now() < deadline) {
        struct pollfd p = { .fd = fd, .events = 0 };
        if (poll(&p, 1, 1) > 0 && (p.revents & (POLLERR | POLLHUP))) return;
    }
}

static void coll__pipe_flush(coll__pipe *pipe, int64_t deadline)
{
    if (pipe->kind && pipe->kind->flush) pipe->kind->flush(pipe, deadline);
    coll__socket_flush(pipe->fd, deadline);
}

/* This rank failed, and leaves: open lines to all peers of its streams, to send the reason. */
static void coll__lines_to_tell(coll__tcp *tcp)
{
    coll__heartbeat *p = &tcp->heartbeat;

    if (p->rank == 0 || !p->detector.left.has[0] || p->outcome.decision.status == COLL_OK || !p->has_thread) return;
    coll__lines_widen(p);
    for (int i = 1; i < tcp->size; i++) {
        p->lines[i].is_wanted = false;
        if (!p->lines[i].dialler.handshake) p->lines[i].dialler.call_at = 0;
    }
    for (int i = COLL_CHANNEL_COUNT; i < tcp->size * COLL_CHANNEL_COUNT; i++) {
        const coll__stream *s = &tcp->streams[i];
        const bool is_there = s->state != COLL__STREAM_NONE && s->state != COLL__STREAM_ENDED
                           && !p->detector.left.has[s->peer] && !p->detector.dead.has[s->peer];
        if (is_there && p->lines[tcp->size + s->peer].pipe.fd < 0) coll__line_want(p, s->peer);
    }
}

/* Send leave messages on all control connections, and wait until they are sent. */
static void coll__say_bye(coll__tcp *tcp, int64_t deadline)
{
    coll__heartbeat *p = &tcp->heartbeat;
    struct pollfd at = { .events = POLLOUT }, news = { .fd = p->ring.fd, .events = POLLIN };

    pthread_mutex_lock(&p->lock);
    coll__heartbeat_check_abort(p);               /* the heartbeat thread may not have seen it                */
    coll__heartbeat_want(p, COLL__CONTROL_BYE);
    p->is_leaving = true;
    coll__lines_to_tell(tcp);
    coll__heartbeat_tell(p);
    while (coll__lines_are_wanted(p) && coll__now() < deadline) {
        pthread_mutex_unlock(&p->lock);
        if (poll(&news, 1, 10) > 0) coll__doorbell_clear(&p->ring);
        pthread_mutex_lock(&p->lock);
    }
    for (int i = 0; i < p->line_count; i++) {
        while (p->lines[i].unsent > 0 && coll__now() < deadline) {
            at.fd = p->lines[i].pipe.fd;
            pthread_mutex_unlock(&p->lock);
            (void)poll(&at, 1, 10);
            pthread_mutex_lock(&p->lock);
            coll__line_flush(p, i);
        }
    }
    pthread_mutex_unlock(&p->lock);
    coll__heartbeat_stop(p);
    for (int i = 0; i < p->line_count; i++)
        if (p->lines[i].pipe.fd >= 0) coll__pipe_flush(&p->lines[i].pipe, deadline);
}

/* After a leave message the peer looks once for data in its backlog, so its kernel must have the data by then.  If nothing was
 * ever received from it, the connection may still wait to be accepted, delayed by unauthenticated peers. */
static void coll__streams_arrive(coll__tcp *tcp, int64_t deadline)
{
    enum { MOST_MS = 10000 };                     /* documented for coll_free                                 */
    const int64_t dial = coll__now() + coll__dial_timeout(&tcp->heartbeat), most = coll__deadline(MOST_MS);
    const int64_t late = dial < most ? dial : most;

    for (int i = 0; tcp->streams && i < tcp->size * COLL_CHANNEL_COUNT; i++) {
        coll__stream *s = &tcp->streams[i];
        if (s->state != COLL__STREAM_OPEN || tcp->presence[s->peer] != COLL__PRESENT) continue;
        for (int k = 0; k < coll__lane_count(s); k++)
            coll__socket_flush(coll__stream_lane(s, k)->fd, s->received == 0 ? late : deadline);
    }
}

/* Compare the collectives of a leaving rank with those of this rank: rank 0 compares all, others compare with rank 0. */
static coll_status coll__made_differ(coll__heartbeat *p, coll_failure *failure)
{
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->line_count; i++) coll__line_event(p, i);
    if (p->rank == 0 && p->outcome.decision.status == COLL_OK) coll__heartbeat_compare(p, 0, p->made);
    if (p->outcome.decision.status == COLL_ERR_MISMATCH) *failure = p->outcome.decision;
    else if (p->rank != 0 && coll__heads_disagree(p->detector_made + COLL_HEAD_LENGTH, p->made + COLL_HEAD_LENGTH))
        coll__failed_mismatch(failure, p->made + COLL_HEAD_LENGTH, p->rank, p->detector_made + COLL_HEAD_LENGTH, 0);
    pthread_mutex_unlock(&p->lock);
    return failure->status;
}

/* The leave message is sent before the second comparison.  So if two ranks leave at once, at least one sees the other's. */
static coll_status coll__tcp_part(void *context, void *group, const unsigned char *made, coll_failure *failure)
{
    coll__tcp *tcp = (coll__tcp *)context;
    const int64_t deadline = coll__deadline(COLL__FLUSH_MS);

    (void)group;
    memcpy(tcp->heartbeat.made + COLL_HEAD_LENGTH, made, COLL_HEAD_LENGTH);
    if (coll__made_differ(&tcp->heartbeat, failure) < 0) return failure->status;
    coll__streams_arrive(tcp, deadline);
    coll__say_bye(tcp, deadline);
    return coll__made_differ(&tcp->heartbeat, failure);
}

/* Will this rank send nothing more?  It has left, and its stream of messages is closed or was never opened.  A close without a
 * leave message is a death, which coll_tcp_heartbeat.h reports in more detail.  If rank 0 has left, no rank forwards leave
 * messages. */
static bool coll__tcp_has_left(const void *context, int peer)
{
    const coll__tcp *tcp = (const coll__tcp *)context;

    if (peer < 0) return tcp->bye_count + tcp->ended_count > 0;
    const coll__stream *s = coll__stream_to(tcp, peer, COLL_CHANNEL_MESSAGES);
    const bool is_known = tcp->rank == 0 || tcp->presence[0] == COLL__PRESENT;
    if (s->state == COLL__STREAM_ENDED) return !is_known || tcp->presence[peer] != COLL__PRESENT;
    return tcp->presence[peer] == COLL__LEFT && s->state == COLL__STREAM_NONE;
}

#endif /* COLL_TCP_FAIL_H */
