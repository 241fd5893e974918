/* coll_tcp_control.h - the calling thread's part of the control connections, and all events beside the transfers. */
#ifndef COLL_TCP_CONTROL_H
#define COLL_TCP_CONTROL_H

/* ---- >>control connections ---- */

/* During the start, at rank 0: read endpoints, and detect closed connections.  A rank may connect again. */
static void coll__bootstrap_event(coll__tcp *tcp, int index)
{
    coll__control_line *line = &tcp->controls[index];
    coll__control control;
    int error = 0;

    if (line->pipe.fd < 0) return;
    while (!error && !(error = coll__pipe_fill(&line->pipe, line->bytes, &line->length, COLL__CONTROL_LENGTH))) {
        line->length = 0;
        if (!coll__control_read(line->bytes, tcp->size, &control) || control.note != COLL__CONTROL_ENDPOINT
            || !coll__endpoint_heard(tcp, index, line->bytes + COLL__CONTROL_TEXT)) error = EPROTO;
    }
    if (error == EAGAIN) return;
    coll__io_forget(&tcp->io, line->pipe.fd);
    coll__pipe_close(&line->pipe);
    coll__endpoint_lost(tcp, index);
    line->lost_at = coll__now();
    line->lost_by = error;
}

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

/* Read the decision and the leaves from the heartbeat. */
static void coll__control_listen(coll__tcp *tcp)
{
    coll__heartbeat *p = &tcp->heartbeat;
    const bool is_first = tcp->failure.status == COLL_OK;

    __atomic_store_n(&p->news, 0, __ATOMIC_RELAXED);
    pthread_mutex_lock(&p->lock);
    if (is_first) tcp->failure = p->decision;
    p->is_taken = p->decision.status != COLL_OK;
    for (; tcp->bye_count < p->departed_count; tcp->bye_count++) tcp->presence[p->departed[tcp->bye_count]] = COLL__SAID_BYE;
    pthread_mutex_unlock(&p->lock);
    if (is_first && tcp->failure.status == COLL_ERR_TIMEOUT && tcp->failure.rank == tcp->rank)
        coll__shortage_add(tcp, &tcp->failure);
}

static inline bool coll__has_news(const coll__tcp *tcp) { return __atomic_load_n(&tcp->heartbeat.news, __ATOMIC_ACQUIRE) != 0; }

/* After the start: hand the control connections to the heartbeat. */
static void coll__control_open(coll__tcp *tcp, int liveness_ms)
{
    for (int i = 0; i < tcp->heartbeat.line_count; i++)
        if (tcp->controls[i].pipe.fd >= 0) coll__io_forget(&tcp->io, tcp->controls[i].pipe.fd);
    const int error = coll__heartbeat_open(&tcp->heartbeat, liveness_ms, tcp->us.epoch == 0, tcp->io.doorbell);
    if (error)
        coll__say(&tcp->log, COLL_LOG_WARN, "rank %d has no thread to watch the others with (%s): one that stops will not be "
                  "noticed", tcp->rank, strerror(error));
    for (int i = 0; i < tcp->heartbeat.line_count && !tcp->heartbeat.has_thread; i++)
        if (tcp->controls[i].pipe.fd >= 0)
            coll__io_watch(&tcp->io, tcp->controls[i].pipe.fd, POLLIN, coll__tag(COLL__EVENT_CONTROL, i));
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
        coll__beat beat = p->beats[i];
        if (i < p->line_count && p->lines[i].is_met) beat.age_ms = (uint32_t)((coll__now() - p->lines[i].heard_at) / COLL__MS);
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
        && coll__now() - quiet->since >= coll__liveness(p);
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

#endif /* COLL_TCP_CONTROL_H */
