/* coll_tcp_fail.h - the first failure becomes everyone's.
 *
 * Rank 0 is the judge (coll_tcp_heartbeat.h): a rank that meets an error tells it to rank 0, and waits for the verdict.  It keeps
 * its connections open until coll_free, for its neighbours could take their end for a death.  When rank 0 is dead or gone, the
 * rank's own view stands, and is told to those with whom it has lines, or, by one that leaves, streams (coll_tcp_probe.h). */
#ifndef COLL_TCP_FAIL_H
#define COLL_TCP_FAIL_H

enum {
    COLL__VERDICT_MS = 1000,
    COLL__FLUSH_MS = 300                          /* what one that leaves gives itself until all is said      */
};

/* Until when may somebody else still say what has happened?  Rank 0 until `deadline`; where it has left, the one that is to be
 * blamed, if it is not known to have left: it may have failed, and be about to tell why. */
static int64_t coll__wait_for_verdict(coll__tcp *tcp, int blamed, int64_t began, int64_t deadline)
{
    coll__heartbeat *p = &tcp->heartbeat;

    pthread_mutex_lock(&p->lock);
    const bool has_judge = tcp->rank != 0 && tcp->controls[0].pipe.fd >= 0 && !p->has_left[0];
    const bool may_tell = coll__is_orphan(p) && p->has_thread && blamed > 0 && blamed != tcp->rank && !p->has_left[blamed]
                       && !p->is_dead[blamed];
    pthread_mutex_unlock(&p->lock);
    return has_judge ? deadline : may_tell ? began + COLL__FLUSH_MS * (int64_t)COLL__MS : began;
}

/* Report and wait for the verdict.  `is_suspicion`: the text is what is the matter with the rank that is to be blamed. */
static void coll__ask_for_verdict(coll__tcp *tcp, const coll_failure *cause, bool is_suspicion)
{
    coll__heartbeat *p = &tcp->heartbeat;
    const int64_t began = coll__now(), deadline = coll__deadline(COLL__VERDICT_MS) + (p->has_thread ? coll__silence_limit(p) : 0);
    const bool is_judge_late = !p->has_thread && cause->rank == 0 && cause->status == COLL_ERR_TIMEOUT;
    int64_t until;

    coll__events(tcp);
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->line_count; i++) coll__line_event(p, i);       /* what caused it may have come already     */
    p->is_asking = true;
    if (!coll__is_orphan(p)) coll__heartbeat_report(p, cause, is_suspicion);
    coll__heartbeat_tell(p);
    pthread_mutex_unlock(&p->lock);
    coll__control_listen(tcp);
    while (tcp->failure.status == COLL_OK && !is_judge_late
           && coll__now() < (until = coll__wait_for_verdict(tcp, cause->rank, began, deadline))) {
        coll__io_wait_events(&tcp->io, coll__ms_until(until, COLL__VERDICT_MS));
        coll__events(tcp);
    }
    pthread_mutex_lock(&p->lock);
    p->is_asking = false;
    if (is_suspicion) coll__heartbeat_blame(p, cause->status, cause->rank, cause->text);
    else coll__heartbeat_decide(p, cause, false);
    coll__heartbeat_tell(p);
    pthread_mutex_unlock(&p->lock);
    coll__control_listen(tcp);
}

static void coll__tcp_settle(coll__tcp *tcp, const coll_failure *cause, bool is_suspicion)
{
    const coll_failure own = *cause;

    if (tcp->failure.status == COLL_OK) coll__ask_for_verdict(tcp, &own, is_suspicion);
    coll__io_cancel(&tcp->io, tcp->streams, tcp->size * COLL_CHANNEL_COUNT);      /* the caller takes its buffers back */
}

static const coll_failure *coll__tcp_fail(void *context, const coll_failure *cause)
{
    coll__tcp *tcp = (coll__tcp *)context;

    if (tcp->failure.status == COLL_OK && !cause) return NULL;
    coll__tcp_settle(tcp, tcp->failure.status == COLL_OK ? cause : &tcp->failure, false);
    return &tcp->failure;
}

/* Only words and bells: this may be a signal handler. */
static bool coll__tcp_abort(void *context, const char *text)
{
    coll__heartbeat *p = &((coll__tcp *)context)->heartbeat;

    if (!p->has_thread) return false;
    __atomic_store_n(&p->abort_text, text, __ATOMIC_RELEASE);
    coll__heartbeat_wake(p);
    return true;
}

/* Tell rank 0 in which call we are waiting, and which was the last before it. */
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
    for (int i = 0; i < p->size; i++) is_failed[i] |= p->is_dead[i];
    pthread_mutex_unlock(&p->lock);
}

/* ---- >>leaving ---- */

/* Wait until the other side's kernel has all that we sent: an end that comes sooner could take it along. */
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

/* Say good-bye on all lines, and see that it arrives. */
static void coll__say_bye(coll__tcp *tcp, int64_t deadline)
{
    coll__heartbeat *p = &tcp->heartbeat;
    struct pollfd at = { .events = POLLOUT }, news = { .fd = p->ring.fd, .events = POLLIN };

    pthread_mutex_lock(&p->lock);
    coll__heartbeat_check_abort(p);               /* which our thread may not have seen yet                   */
    coll__heartbeat_want(p, COLL__CONTROL_BYE);
    p->is_leaving = true;
    coll__probe_to_tell(tcp);
    coll__heartbeat_tell(p);
    while (coll__is_telling(p) && coll__now() < deadline) {
        pthread_mutex_unlock(&p->lock);
        if (poll(&news, 1, 10) > 0) coll__bell_hear(&p->ring);
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

/* Who hears our good-bye looks once for what we sent in its backlog: its kernel must have it by then.  Where nothing has come
 * back from there yet the connection may still have to get in, and unauthenticated peers may be in the way. */
static void coll__streams_arrive(coll__tcp *tcp, int64_t deadline)
{
    enum { MOST_MS = 10000 };                     /* as the manual says of coll_free                          */
    const int64_t dial = coll__now() + coll__dial_patience(&tcp->heartbeat), most = coll__deadline(MOST_MS);
    const int64_t late = dial < most ? dial : most;

    for (int i = 0; tcp->streams && i < tcp->size * COLL_CHANNEL_COUNT; i++) {
        coll__stream *s = &tcp->streams[i];
        if (s->state != COLL__STREAM_OPEN || tcp->presence[s->peer] != COLL__PRESENT) continue;
        for (int k = 0; k < coll__lane_count(s); k++)
            coll__socket_flush(coll__stream_lane(s, k)->fd, s->received == 0 ? late : deadline);
    }
}

/* Has who leaves made other collectives than we?  Rank 0 compares all, and each other rank compares itself with rank 0. */
static coll_status coll__made_differ(coll__heartbeat *p, coll_failure *failure)
{
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->line_count; i++) coll__line_event(p, i);
    if (p->rank == 0 && p->verdict.status == COLL_OK) coll__heartbeat_compare(p, 0, p->made);
    if (p->verdict.status == COLL_ERR_MISMATCH) *failure = p->verdict;
    else if (p->rank != 0 && coll__heads_disagree(p->judge_made + COLL_HEAD_LENGTH, p->made + COLL_HEAD_LENGTH))
        coll__blame_mismatch(failure, p->made + COLL_HEAD_LENGTH, p->rank, p->judge_made + COLL_HEAD_LENGTH, 0);
    pthread_mutex_unlock(&p->lock);
    return failure->status;
}

/* What a good-bye says is at the other side before we look for theirs: so of two that leave at once one sees the other's. */
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

/* Will nothing more come from this rank?  It has left, and its stream of messages has ended, or there never was one.  An end
 * without a good-bye is a death, which is told with more to say about it (coll_tcp_heartbeat.h); but when rank 0 has left, nobody
 * passes good-byes on. */
static bool coll__tcp_has_left(const void *context, int peer)
{
    const coll__tcp *tcp = (const coll__tcp *)context;

    if (peer < 0) return tcp->bye_count + tcp->ended_count > 0;
    const coll__stream *s = coll__stream_to(tcp, peer, COLL_CHANNEL_MESSAGES);
    const bool is_told = tcp->rank == 0 || tcp->presence[0] == COLL__PRESENT;
    if (s->state == COLL__STREAM_ENDED) return !is_told || tcp->presence[peer] != COLL__PRESENT;
    return tcp->presence[peer] == COLL__GONE && s->state == COLL__STREAM_NONE;
}

#endif /* COLL_TCP_FAIL_H */
