/* coll_tcp_control.h - the heartbeat thread, the calling thread's part of the control connections, and other events.
 *
 * If rank 0 has left, a rank opens a line to each rank that it waits for, and watches it.  One that cannot be reached at all is
 * detected on its data connections.  All get one result.  Example: rank 3 waits for rank 2, which waits for rank 1, which is
 * suspended.  Rank 2 detects that, and sends it to rank 3.  A rank that failed and leaves opens lines to the ranks that may wait
 * for it, to send the reason: otherwise they would take the close for its death. */
#ifndef COLL_TCP_CONTROL_H
#define COLL_TCP_CONTROL_H

/* ---- >>lines to other ranks, if rank 0 has left ---- */

/* Before this rank waits for another one. */
static void coll__watch_rank(coll__tcp *tcp, int rank)
{
    coll__heartbeat *p = &tcp->heartbeat;

    if (tcp->presence[0] == COLL__PRESENT || tcp->presence[rank] != COLL__PRESENT || rank == tcp->rank || !p->has_thread) return;
    pthread_mutex_lock(&p->lock);
    coll__line_want(p, rank);
    pthread_mutex_unlock(&p->lock);
}

/* Before the calling thread waits: watch all ranks that it has transfers with. */
static void coll__watch_active(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->active.count && tcp->presence[0] != COLL__PRESENT; i++)
        if (tcp->active.streams[i]->state != COLL__STREAM_ENDED) coll__watch_rank(tcp, tcp->active.streams[i]->peer);
}

/* Begin or continue to open a line.  A rank that is reached is watched from then on. */
static void coll__line_dial(coll__heartbeat *p, int rank, int64_t now)
{
    const coll__hello hello = { .purpose = COLL__PURPOSE_PROBE, .to = rank };
    const coll__endpoint *to = &p->endpoints[rank];
    coll__control_line *line = &p->lines[rank];
    coll__dialler *d = &line->dialler;
    coll__detector_line *seen = &p->detector.lines[rank];
    int error;

    const bool may_begin = line->is_wanted && now >= d->call_at && (p->outcome.decision.status == COLL_OK || p->is_leaving);
    if (!d->handshake && !may_begin) return;
    line->is_wanted = false;
    if (!d->handshake) d->call_at = now + coll__beat_interval(&p->detector);
    if (to->count == 0) return;
    const coll_status status = coll__dialler_advance(d, &p->tcp->us, to, p->tcp->network.scope, hello, &error);
    const bool is_reached = d->handshake && d->handshake->is_reached;
    const bool is_lost = !is_reached && now - d->call_at > p->detector.timeout;
    if (error && coll__detector_refused(&p->detector, rank, d->refusals, to->count, now))
        coll__heartbeat_failed(p, COLL_ERR_PEER, rank, "is gone: its address refuses connections", COLL__FROM_MEMBER);
    if (is_reached && !seen->is_up) coll__detector_up(&p->detector, rank, false, now);
    if (status == COLL_OK) coll__line_open(p, rank, &d->handshake->pipe);
    if (status < 0) seen->is_up = false;
    if (is_lost) d->refusals = 0;
    if (status != COLL_PENDING || is_lost) coll__dial_end(&d->handshake);
    if (p->is_leaving) coll__heartbeat_news(p);   /* the calling thread waits for this                        */
}

/* ---- >>the heartbeat thread ---- */

/* Read the activity of this rank. */
static void coll__heartbeat_look(coll__heartbeat *p, int64_t now)
{
    uint64_t words[COLL_HEAD_LENGTH / 8];
    coll__beat *const own = &p->beats[p->rank];

    if (!p->session) return;
    const coll__activity *const d = &p->session->activity;
    const uint64_t turn = __atomic_load_n(&d->turn, __ATOMIC_ACQUIRE);
    if (turn != p->activity_count) {
        p->activity_count = turn;
        p->activity_since = now;
        own->is_inside = __atomic_load_n(&d->inside, __ATOMIC_RELAXED) > 0;
        for (int i = 0; i < COLL_HEAD_LENGTH / 8; i++) words[i] = __atomic_load_n(&d->now[i], __ATOMIC_RELAXED);
        memcpy(own->now, words, sizeof words);
        for (int i = 0; i < COLL_HEAD_LENGTH / 8; i++) words[i] = __atomic_load_n(&d->last[i], __ATOMIC_RELAXED);
        memcpy(own->last, words, sizeof words);
    }
    own->since_ms = (uint32_t)((now - p->activity_since) / COLL__MS);
    coll__beat_fill(own, p->session);
}

/* Report a coll_abort, which a signal handler may have called. */
static void coll__heartbeat_check_abort(coll__heartbeat *p)
{
    const char *why = __atomic_load_n(&p->abort_text, __ATOMIC_ACQUIRE);
    coll_failure cause = { COLL_OK, -1, "" };

    if (!why) return;
    coll__set_failure(&cause, COLL_ERR_ABORTED, p->rank, "%s", why);
    coll__heartbeat_report(p, &cause);
}

/* Do what is due; returns the time of the next call. */
static int64_t coll__heartbeat_due(coll__heartbeat *p, int64_t now)
{
    const bool is_beat = coll__detector_turn(&p->detector, now);

    coll__heartbeat_check_abort(p);
    if (is_beat) {
        coll__heartbeat_look(p, now);
        coll__heartbeat_want(p, COLL__CONTROL_HEARTBEAT);
        if (p->outcome.decision.status == COLL_OK) coll__check_paths(p, now);
    }
    if (coll__detector_next(&p->detector) <= now) {
        for (int i = 0; i < p->line_count; i++) coll__line_event(p, i);
        coll__check_silence(p);
    }
    for (int i = 1; p->rank != 0 && i < p->detector.watched; i++) coll__line_dial(p, i, now);
    coll__heartbeat_flush(p);
    return coll__detector_next(&p->detector);
}

/* Fill `fds`: the doorbell, then one entry for each control connection. */
static void coll__heartbeat_watch(coll__heartbeat *p)
{
    p->fds[0] = (struct pollfd){ .fd = p->doorbell.fd, .events = POLLIN };
    for (int i = 0; i < p->line_count; i++) {
        coll__pipe *pipe = &p->lines[i].pipe;
        const coll__handshake *g = p->lines[i].dialler.handshake;
        const short want = (short)(POLLIN | (p->lines[i].unsent > 0 ? POLLOUT : 0));
        p->fds[1 + i] = (struct pollfd){ .fd = pipe->fd, .events = pipe->fd < 0 ? 0 : coll__pipe_await(pipe, want) };
        if (g) p->fds[1 + i] = (struct pollfd){ .fd = g->pipe.fd, .events = g->want };
    }
}

static void *coll__heartbeat_main(void *at)
{
    coll__heartbeat *p = (coll__heartbeat *)at;

    pthread_mutex_lock(&p->lock);
    while (!__atomic_load_n(&p->is_stopping, __ATOMIC_ACQUIRE)) {
        int64_t next = coll__heartbeat_due(p, coll__now());
        const int count = p->line_count;
        coll__heartbeat_watch(p);
        pthread_mutex_unlock(&p->lock);
        const int accepted = coll__accept_watch(p->tcp, p->fds + 1 + count, &next);
        (void)poll(p->fds, (nfds_t)(1 + count + accepted), coll__ms_until(next, 60000));
        coll__accept_serve(p->tcp, p->fds + 1 + count, accepted);
        pthread_mutex_lock(&p->lock);
        if (p->fds[0].revents) coll__doorbell_clear(&p->doorbell);
        for (int i = 0; i < count; i++)
            if (p->lines[i].pipe.fd >= 0 && (p->fds[1 + i].revents || !p->fds[1 + i].events)) coll__line_event(p, i);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Begin.  are_met: the other ends know this job.  Returns 0, or the errno of a failed thread start. */
static int coll__heartbeat_open(coll__heartbeat *p, int liveness_ms, bool are_met, coll__doorbell ring)
{
    const int64_t now = p->activity_since = coll__now();
    int error = 0;

    p->liveness_ms = liveness_ms;
    p->ring = ring;
    p->detector.timeout = liveness_ms > 0 ? liveness_ms * (int64_t)COLL__MS : 0;
    p->detector.turned_at = p->detector.beat_at = now;
    for (int i = 0; i < p->line_count; i++) if (p->lines[i].pipe.fd >= 0) coll__detector_up(&p->detector, i, are_met, now);
    coll__heartbeat_want(p, COLL__CONTROL_HEARTBEAT); /* identify this rank early: one may die soon           */
    coll__heartbeat_flush(p);
    if (liveness_ms <= 0) return 0;
    error = coll__doorbell_open(&p->doorbell);
    p->has_thread = true;                         /* the thread reads it                                      */
    if (!error) error = coll__thread_begin(&p->thread, COLL__HEARTBEAT_STACK, coll__heartbeat_main, p);
    if (error) p->has_thread = false;
    return error;
}

/* ---- >>the calling thread ---- */

/* Used if there is no heartbeat thread. */
static void coll__control_event(coll__tcp *tcp, int index)
{
    if (tcp->is_bootstrapping) {
        coll__bootstrap_event(tcp, index);
        return;
    }
    pthread_mutex_lock(&tcp->heartbeat.lock);
    coll__line_event(&tcp->heartbeat, index);
    coll__heartbeat_tell(&tcp->heartbeat);
    pthread_mutex_unlock(&tcp->heartbeat.lock);
}

/* Read the decision and the leaves from the heartbeat.  Compare the call in which another rank waits. */
static void coll__control_listen(coll__tcp *tcp)
{
    coll__heartbeat *p = &tcp->heartbeat;
    const bool is_first = tcp->failure.status == COLL_OK;

    __atomic_store_n(&p->news, 0, __ATOMIC_RELAXED);
    pthread_mutex_lock(&p->lock);
    const int asker = tcp->suspicion.status == COLL_OK ? p->lines[0].asker - 1 : -1;
    if (asker >= 0 && coll__recorded_disagrees(&tcp->suspicion, p->session, coll__report_of(p, p->rank ? 0 : asker), asker))
        tcp->is_sentence = true;
    p->lines[0].asker = 0;
    if (is_first) tcp->failure = p->outcome.decision;
    p->outcome.is_taken = p->outcome.decision.status != COLL_OK;
    for (; tcp->bye_count < p->detector.left.count; tcp->bye_count++)
        tcp->presence[p->detector.left.list[tcp->bye_count]] = COLL__SAID_BYE;
    pthread_mutex_unlock(&p->lock);
    if (is_first && tcp->failure.status == COLL_ERR_TIMEOUT && (tcp->failure.rank < 0 || tcp->failure.rank == tcp->rank))
        coll__shortage_add(tcp, &tcp->failure);
}

static inline bool coll__has_news(const coll__tcp *tcp) { return __atomic_load_n(&tcp->heartbeat.news, __ATOMIC_ACQUIRE) != 0; }

/* After the start: hand the control connections to the heartbeat.  Without its thread this rank would seem dead to the others. */
static coll_status coll__control_open(coll__tcp *tcp, int liveness_ms)
{
    for (int i = 0; i < tcp->heartbeat.line_count; i++)
        if (tcp->controls[i].pipe.fd >= 0) coll__io_forget(&tcp->io, tcp->controls[i].pipe.fd);
    const int error = coll__heartbeat_open(&tcp->heartbeat, liveness_ms, tcp->us.epoch == 0, tcp->io.doorbell);
    if (error) return coll__start_failed(COLL_ERR_SYSTEM, "no thread for heartbeats: %s", strerror(error));
    for (int i = 0; i < tcp->heartbeat.line_count && !tcp->heartbeat.has_thread; i++)
        if (tcp->controls[i].pipe.fd >= 0)
            coll__io_watch(&tcp->io, tcp->controls[i].pipe.fd, POLLIN, coll__tag(COLL__EVENT_CONTROL, i));
    return COLL_OK;
}

/* ---- >>peer status: activity of other ranks ---- */

static void coll__append_beat(char *text, size_t room, int rank, const coll__beat *beat, int liveness_ms)
{
    char call[COLL__CALL_ROOM];

    coll__append(text, room, "rank %d", rank);
    if (!beat->pid) {
        coll__append(text, room, ": nothing is known");
        return;
    }
    if (beat->age_ms > (uint32_t)liveness_ms / 2)
        coll__append(text, room, " on %s, pid %u: no heartbeat for %.1f s", beat->name, (unsigned)beat->pid,
                     beat->age_ms * 1e-3);
    else if (beat->is_inside) {
        coll__head_describe(beat->now, call, sizeof call);
        coll__append(text, room, ": in %s for %.1f s", call, beat->since_ms * 1e-3);
    } else {
        coll__append(text, room, ": outside the library for %.1f s", beat->since_ms * 1e-3);
    }
    const uint32_t last = coll__get32(beat->last + 8);
    if (last && !beat->is_inside)
        coll__append(text, room, ", last finished %s #%u", coll_kind_name((coll_kind)beat->last[12]), (unsigned)last);
}

/* Rank 0 has all heartbeats.  Other ranks request up to COLL__ASKED_MOST of them from rank 0. */
static void coll__tcp_peer_status(void *context, const unsigned char *is_late, char *text, size_t room)
{
    coll__tcp *tcp = (coll__tcp *)context;
    coll__heartbeat *p = &tcp->heartbeat;
    coll__control_line *line = &p->lines[0];
    const char *comma = "";

    if (!p->has_thread) return;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < tcp->size && (text || tcp->rank != 0); i++) {
        if (!is_late[i] || i == tcp->rank) continue;
        if (!text) {
            if (i > 0 && line->asked_count < COLL__ASKED_MOST) line->asked[line->asked_count++] = i;
            continue;
        }
        const coll__beat beat = coll__heartbeat_of(p, i);
        coll__append(text, room, "%s", comma);
        coll__append_beat(text, room, i, &beat, p->liveness_ms);
        comma = "; ";
    }
    coll__heartbeat_tell(p);
    pthread_mutex_unlock(&p->lock);
}

/* Has a peer freed communicator `id`?  Its heartbeats lack it, and nothing else has been received from it for
 * liveness_timeout_ms.  The first two heartbeats do not count: they may be older than the communicator.  Nothing counts from
 * before this rank last made or freed a communicator. */
static bool coll__tcp_has_freed(void *context, int peer, uint64_t id)
{
    coll__tcp *tcp = (coll__tcp *)context;
    coll__heartbeat *p = &tcp->heartbeat;
    coll__control_line *line = &p->lines[0];
    coll__known *quiet = &tcp->known[peer], last = *quiet;

    if (!p->has_thread) return false;
    pthread_mutex_lock(&p->lock);
    if (tcp->rank != 0 && peer > 0 && line->pipe.fd >= 0 && line->asked_count < COLL__ASKED_MOST) {
        line->asked[line->asked_count++] = peer;
        coll__heartbeat_tell(p);
    }
    const coll__beat beat = p->beats[peer];
    pthread_mutex_unlock(&p->lock);
    quiet->received = 0;
    quiet->turn = beat.turn;
    quiet->own_version = p->session->comms_version;
    for (int channel = 0; channel < COLL_CHANNEL_COUNT; channel++)
        quiet->received += __atomic_load_n(&coll__stream_to(tcp, peer, channel)->received, __ATOMIC_RELAXED);
    if (last.received != quiet->received || last.turn != quiet->turn || last.own_version != quiet->own_version)
        quiet->since = coll__now(), quiet->beat = beat.number;
    return beat.turn && beat.number - quiet->beat >= 2 && !coll__beat_has(&beat, id)
        && coll__now() - quiet->since >= p->detector.timeout;
}

/* ---- >>events ---- */

/* Handle all pending events without waiting. */
static void coll__events(coll__tcp *tcp)
{
    uint64_t tags[COLL__EVENTS_AT_ONCE];
    const bool had_byes = tcp->bye_count > 0;
    const int count = coll__watched_look(&tcp->io.events, tags);

    for (int i = 0; i < count; i++) {
        const int index = (int)(tags[i] & 0xffffffff);
        switch ((coll__event)(tags[i] >> 32)) {
        case COLL__EVENT_LISTENER: coll__accept_event(tcp, -1); break;
        case COLL__EVENT_HANDSHAKE: coll__accept_event(tcp, index); break;
        case COLL__EVENT_CONTROL: coll__control_event(tcp, index); break;
        case COLL__EVENT_DIALLED: coll__stream_dialled(tcp, &tcp->streams[index]); break;
        case COLL__EVENT_DOORBELL: coll__doorbell_clear(&tcp->io.doorbell); break;
        }
    }
    coll__accept_tidy(tcp);
    if (coll__has_news(tcp)) coll__control_listen(tcp);
    if (!had_byes) return;
    const bool is_empty = coll__accept_event(tcp, -1);          /* data that a rank sent before it left may be pending  */
    for (int r = 0; r < tcp->size && is_empty; r++)
        if (tcp->presence[r] == COLL__SAID_BYE) tcp->presence[r] = COLL__LEFT;
}

/* How many processes are ready to join (coll_tcp_join.h): waits for `wanted`, or for as many as may.  -1: a rank has failed. */
static int coll__tcp_waiting(void *context, int wanted, int wait_ms)
{
    coll__tcp *const tcp = (coll__tcp *)context;
    const int64_t deadline = coll__deadline(wait_ms);
    const int enough = coll__less(wanted, tcp->elastic);

    for (;;) {
        pthread_mutex_lock(&tcp->accept_lock);
        const int ready = coll__waiters_look(tcp);
        pthread_mutex_unlock(&tcp->accept_lock);
        if (ready >= enough || coll__now() >= deadline) return ready;
        if (tcp->failure.status != COLL_OK) return -1;
        coll__io_wait_events(&tcp->io, COLL__YOUNG_MS);
        coll__events(tcp);
    }
}

#endif /* COLL_TCP_CONTROL_H */
