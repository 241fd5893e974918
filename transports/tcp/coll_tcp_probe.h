/* coll_tcp_probe.h - liveness probes after rank 0 has left: each rank probes the ranks it waits for, and detects failures
 * itself.
 *
 * A rank that waits for another one connects to its listener.  This control connection carries heartbeats in both directions,
 * leaves, and the decision, as those to rank 0 do.  The rank that connected detects failures: if the other one is reached and
 * sends no heartbeat for liveness_timeout_ms, it is dead.  If all its addresses refuse connects for that long, it has left or
 * is dead.  A rank that cannot be reached at all is not detected here, but on its data connections.  A rank that connected to
 * this one is not watched: any rank may connect and then stay silent.
 *
 * All waiting ranks get the same result.  Example: rank 3 waits for rank 2, which waits for rank 1, which is suspended.  Rank
 * 2 detects that, and tells rank 3, for each rank forwards a decision on all control connections.  A rank that failed and
 * leaves connects to the ranks that may wait for it, and sends the reason: otherwise they would take the close for its death.
 *
 * The heartbeat thread does this, and accepts probes (coll_tcp_accept.h), for the program may compute for a long time.
 *
 * Control connections of a rank other than 0: [0] to rank 0; [r] to rank r, opened here; [size + r] to rank r, opened there. */
#ifndef COLL_TCP_PROBE_H
#define COLL_TCP_PROBE_H

/* Make space for the control connections beyond [0]. */
static void coll__lines_widen(coll__heartbeat *p)
{
    if (p->line_count > 1) return;
    p->line_count = 2 * p->size;
    for (int i = 1; i < p->line_count; i++) p->lines[i].pipe.fd = -1;
}

/* A control connection is open: send heartbeat, and decision if any. */
static void coll__line_open(coll__heartbeat *p, int index, coll__pipe *pipe)
{
    coll__control_line *line = &p->lines[index];

    line->pipe = coll__pipe_take(pipe);
    line->length = line->unsent = 0;
    line->wants = coll__bit_of(COLL__CONTROL_HEARTBEAT) | (p->decision.status != COLL_OK ? coll__bit_of(COLL__CONTROL_FAIL) : 0)
                | (p->is_leaving ? coll__bit_of(COLL__CONTROL_BYE) : 0);
    coll__line_flush(p, index);
}

/* ---- >>probing ---- */

/* Probe a rank that this one waits for, if rank 0 has left. */
static void coll__probe_rank(coll__tcp *tcp, int rank)
{
    coll__heartbeat *p = &tcp->heartbeat;
    coll__control_line *line = &p->lines[rank];

    if (tcp->presence[0] == COLL__PRESENT || tcp->presence[rank] != COLL__PRESENT || rank == tcp->rank || !p->has_thread) return;
    pthread_mutex_lock(&p->lock);
    coll__lines_widen(p);
    const bool is_new = !line->is_wanted && !line->handshake && line->pipe.fd < 0;
    if (is_new) line->is_wanted = true;
    pthread_mutex_unlock(&p->lock);
    if (is_new) coll__heartbeat_wake(p);
}

/* Before the calling thread waits: probe all ranks that it has transfers with. */
static void coll__probe_after_all(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->active.count && tcp->presence[0] != COLL__PRESENT; i++)
        if (tcp->active.streams[i]->state != COLL__STREAM_ENDED) coll__probe_rank(tcp, tcp->active.streams[i]->peer);
}

/* This rank failed, and leaves: connect to all peers of its streams, to send the reason. */
static void coll__probe_to_tell(coll__tcp *tcp)
{
    coll__heartbeat *p = &tcp->heartbeat;

    if (!coll__is_orphan(p) || p->decision.status == COLL_OK || !p->has_thread) return;
    coll__lines_widen(p);
    for (int i = 1; i < tcp->size; i++) p->lines[i].is_wanted = false;
    for (int i = COLL_CHANNEL_COUNT; i < tcp->size * COLL_CHANNEL_COUNT; i++) {
        const coll__stream *s = &tcp->streams[i];
        coll__control_line *line = &p->lines[s->peer];
        const bool is_there = s->state != COLL__STREAM_NONE && s->state != COLL__STREAM_ENDED && !p->has_left[s->peer]
                           && !p->is_dead[s->peer];
        if (!is_there || line->pipe.fd >= 0 || p->lines[tcp->size + s->peer].pipe.fd >= 0) continue;
        line->is_wanted = true;
        line->call_at = 0;
    }
    coll__heartbeat_wake(p);
}

/* Are such connects still in progress? */
static bool coll__is_telling(const coll__heartbeat *p)
{
    for (int i = 1; p->rank != 0 && p->decision.status != COLL_OK && i < p->line_count && i < p->size; i++)
        if (p->lines[i].is_wanted || p->lines[i].handshake) return true;
    return false;
}

/* Record the result of the last connect: refused, or another one. */
static void coll__probe_answered(coll__heartbeat *p, int rank, bool is_refused, int64_t now)
{
    coll__control_line *line = &p->lines[rank];

    line->refusals = is_refused ? line->refusals + 1 : 0;
    if (line->refusals == 1) line->refused_at = now;
    if (is_refused && line->refusals >= p->endpoints[rank].count && now - line->refused_at > coll__liveness(p))
        coll__heartbeat_failed(p, COLL_ERR_PEER, rank, "is gone: its address refuses connections");
}

static void coll__probe_call(coll__heartbeat *p, int rank, int64_t now)
{
    const coll__hello hello = { .purpose = COLL__PURPOSE_PROBE, .to = rank };
    coll__control_line *line = &p->lines[rank];

    line->is_wanted = line->is_met = false;
    line->call_at = now + coll__beat_interval(p);
    if (p->endpoints[rank].count == 0) return;
    const coll__address a = coll__endpoint_address(p->tcp, rank, line->calls++ % p->endpoints[rank].count);
    line->handshake = coll__dial_begin(&p->tcp->us, &a, hello, coll__never);
    if (line->handshake) line->heard_at = now;
    else if (errno != ENOMEM) coll__probe_answered(p, rank, errno == ECONNREFUSED, now);
}

/* Start the requested connects.  If an address does not answer, the next attempt uses the next one. */
static void coll__probe_due(coll__heartbeat *p, int64_t now)
{
    for (int i = 1; p->rank != 0 && i < p->line_count && i < p->size; i++) {
        coll__control_line *line = &p->lines[i];
        if (line->handshake && !line->handshake->is_reached && now - line->heard_at > coll__liveness(p)) {
            coll__probe_answered(p, i, false, now);
            coll__dial_end(&line->handshake);
        }
        if (line->is_wanted && !line->handshake && now >= line->call_at) coll__probe_call(p, i, now);
    }
}

/* The connect has completed or failed, or the handshake can continue. */
static void coll__probe_go_on(coll__heartbeat *p, int rank)
{
    coll__control_line *line = &p->lines[rank];
    coll__handshake *g = line->handshake;
    const bool was_reached = g->is_reached;
    int error;

    const coll_status status = coll__dial_advance(g, &p->tcp->us, &error);
    if (!was_reached && (g->is_reached || error)) {
        coll__probe_answered(p, rank, error == ECONNREFUSED, coll__now());
        line->heard_at = coll__now();
    }
    if (status == COLL_OK) coll__line_open(p, rank, &g->pipe);
    if (status != COLL_PENDING) coll__dial_end(&line->handshake);
    if (p->is_leaving) coll__heartbeat_news(p);   /* the calling thread waits for this                        */
}

/* ---- >>being probed ---- */

/* A probe has connected.  A leaving rank closes it, for it could not send a leave message on it. */
static void coll__probe_taken(coll__tcp *tcp, coll__pipe *pipe, int rank)
{
    coll__heartbeat *p = &tcp->heartbeat;
    const int index = tcp->size + rank;

    coll__tune_socket(pipe->fd);
    pthread_mutex_lock(&p->lock);
    const bool is_fit = tcp->rank > 0 && rank > 0 && rank != tcp->rank && p->liveness_ms > 0 && !p->is_leaving;
    if (is_fit) coll__lines_widen(p);
    const bool is_taken = is_fit && p->lines[index].pipe.fd < 0;
    if (is_taken) coll__line_open(p, index, pipe);
    pthread_mutex_unlock(&p->lock);
    if (is_taken) coll__heartbeat_wake(p);
    else coll__pipe_close(pipe);
}

#endif /* COLL_TCP_PROBE_H */
