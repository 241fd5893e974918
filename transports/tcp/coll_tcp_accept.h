/* coll_tcp_accept.h - opening data connections: connecting to higher ranks, and accepting connections.
 *
 * Any process that reaches the port can connect, so work and memory for handshakes are bounded.  The table of handshakes has
 * room for all connections of the other ranks and COLL__HANDSHAKES_SPARE more, up to COLL__HANDSHAKES_MOST.  A handshake reads
 * 128 bytes, and 32 more after a valid hello.  During the start, a handshake may take COLL__HANDSHAKE_MS.  After the start,
 * only handshakes without a valid hello have this limit: a rank that connects may compute for minutes before it continues.  If
 * the table is full, the handshake with the least progress is evicted, the oldest first.  A complete handshake, or one younger
 * than COLL__YOUNG_MS, stays.  Silent connections therefore cannot keep a rank out, and an evicted rank connects again.
 *
 * The heartbeat thread accepts connections, too: the program may compute for minutes, and a full backlog would keep ranks out.
 * It leaves to the calling thread what that thread must decide.  If a backlog is full, a live rank does not answer either.  So
 * a rank repeats an unanswered connect for four times liveness_timeout_ms; rank 0 reports missing heartbeats earlier. */
#ifndef COLL_TCP_ACCEPT_H
#define COLL_TCP_ACCEPT_H

/* ---- >>shared memory, lanes: how a new stream moves its bytes ---- */

/* Bytes of one shared-memory ring. */
static size_t coll__ring_length(const coll__tcp *tcp)
{
    int neighbours = 0;

    for (int i = 0; i < tcp->size; i++) neighbours += coll__is_of_this_host(tcp, i);
    return neighbours > COLL__MEMORY_MANY ? COLL__MEMORY_RING_LEAST : COLL__MEMORY_RING;
}

/* Use a single connection: between ranks of one host, whose bytes may go through memory.  The connecting rank decides. */
static void coll__stream_needs_one(coll__stream *s)
{
    if (!coll__stripe_set_of(s) || coll__stripe_set_of(s)->open > 0) return;
    coll__stripe_set_free(coll__stripe_set_of(s));
    s->stripe_set = NULL;
}

/* The handshake of one lane is complete.  The stream is open when all its lanes are.  Between ranks of one host, bytes may go
 * through memory unless they are encrypted or checked. */
static void coll__stream_open(coll__tcp *tcp, coll__stream *s, int lane, coll__pipe *pipe)
{
    const int from = tcp->rank < s->peer ? tcp->rank : s->peer, to = tcp->rank + s->peer - from, fd = pipe->fd;

    s->state = coll__stream_joined(s, lane, pipe) ? COLL__STREAM_OPEN : COLL__STREAM_NONE;
    coll__heartbeat_path(&tcp->heartbeat, s->peer, fd);
    if (coll__stripe_set_of(s) || !coll__pipe_is_plain(&s->pipe) || !coll__shares_with(tcp, s->peer)) return;
    if (!coll__memory_begin(coll__like(tcp), &s->pipe, tcp->us.world, from, to, s->channel, coll__ring_length(tcp),
                            tcp->rank == from))
        coll__set_failure(&tcp->suspicion, COLL_ERR_MEMORY, tcp->rank, "has no memory for a connection to rank %d", s->peer);
}

/* ---- >>shortage: no descriptor or memory for a connection ---- */

static bool coll__is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

/* "Too many open files (ulimit -n is 1024)" */
static const char *coll__shortage_text(int error, char *text, size_t room)
{
    coll__print(text, room, "%s", strerror(error));
    if (error == EMFILE) coll__append(text, room, " (ulimit -n is %ld)", sysconf(_SC_OPEN_MAX));
    return text;
}

static inline bool coll__is_short(const coll__tcp *tcp, int64_t now)
{
    return tcp->short_of && now < tcp->short_at + COLL__SHORT_RUN_MS * (int64_t)COLL__MS;
}

/* Connections could not be made: append it to the sentence on what that may have caused. */
static void coll__shortage_add(coll__tcp *tcp, coll_failure *failure)
{
    char why[80];

    pthread_mutex_lock(&tcp->accept_lock);
    if (coll__is_short(tcp, coll__now()))
        coll__append(failure->text, sizeof failure->text, "; rank %d has nothing left for a connection: %s", tcp->rank,
                     coll__shortage_text(tcp->short_of, why, sizeof why));
    pthread_mutex_unlock(&tcp->accept_lock);
}

/* ---- >>connecting: a stream to a higher rank ---- */

static void coll__stream_unreachable(coll__tcp *tcp, coll__stream *s, int error)
{
    char what[160];

    s->state = COLL__STREAM_NONE;                 /* connect to its next address                              */
    if (error == ETIMEDOUT || error == EHOSTUNREACH) s->is_unanswered = true;
    if (++s->tried < tcp->endpoints[s->peer].count) return;
    if (s->is_unanswered && coll__now() < s->dial_until) {
        s->tried = 0;
        s->is_unanswered = false;
        s->dial_at = coll__deadline(COLL__DIAL_REST_MS);
        tcp->redials++;
        return;
    }
    s->state = COLL__STREAM_ENDED;
    tcp->ended_count++;
    if (!coll__has_active_transfer(s)) return;    /* a receive from any rank can still complete               */
    if (error) coll__print(what, sizeof what, "cannot be reached from rank %d: %s%s", tcp->rank, strerror(error),
                           s->is_unanswered ? "; its host is gone, or the link between the two" : "");
    else coll__print(what, sizeof what, "cannot be reached from other hosts: it listens at a loopback address (COLL_NETWORK)");
    coll__suspect(tcp, s->peer, what);
}

static void coll__stream_watch(coll__tcp *tcp, const coll__stream *s, short want)
{
    coll__io_watch(&tcp->io, s->handshake->pipe.fd, want,
                   coll__tag(COLL__EVENT_DIALLED, s->peer * COLL_CHANNEL_COUNT + s->channel));
}

/* How long a missing answer is not an error.  Each attempt is short: the kernel repeats its SYN after 1 s, then ever more
 * rarely. */
static int64_t coll__dial_timeout(const coll__heartbeat *p)
{
    enum { LEAST_MS = 4000 };
    const int64_t ms = p->liveness_ms > 0 ? 4 * (int64_t)p->liveness_ms : COLL__DIAL_MS;
    return (ms > LEAST_MS ? ms : LEAST_MS) * COLL__MS;
}

static void coll__stream_dialled(coll__tcp *tcp, coll__stream *s);

static void coll__stream_dial(coll__tcp *tcp, coll__stream *s)
{
    if (coll__shares_with(tcp, s->peer)) coll__stream_needs_one(s);
    const coll__stripe_set *const lanes = coll__stripe_set_of(s);
    const coll__hello hello = { .purpose = COLL__PURPOSE_DATA, .channel = s->channel, .to = s->peer,
                                .more_lanes = lanes ? lanes->count - 1 : 0, .lane = lanes ? lanes->open : 0 };
    char why[80];

    if (s->dial_at && coll__now() < s->dial_at) return;
    if (s->dial_at) tcp->redials--;
    s->dial_at = 0;
    if (!s->dial_until) s->dial_until = coll__now() + coll__dial_timeout(&tcp->heartbeat);
    if (tcp->endpoints[s->peer].count == 0) {
        coll__stream_unreachable(tcp, s, 0);
        return;
    }
    const coll__address a = coll__endpoint_address(&tcp->endpoints[s->peer], s->tried, tcp->network.scope);
    s->handshake = coll__dial_begin(&tcp->us, &a, hello, coll__deadline(COLL__DIAL_MS));
    if (!s->handshake) {
        const int error = errno;
        if (!coll__is_shortage(error)) {
            coll__stream_unreachable(tcp, s, error);
            return;
        }
        s->state = COLL__STREAM_ENDED;            /* the fault is on this side                                */
        coll__set_failure(&tcp->suspicion, COLL_ERR_SYSTEM, tcp->rank, "has nothing left for a connection to rank %d: %s",
                          s->peer, coll__shortage_text(error, why, sizeof why));
        return;
    }
    coll__user_timeout(s->handshake->pipe.fd, COLL__DIAL_ONCE_MS);
    s->state = COLL__STREAM_DIALLING;
    coll__stream_watch(tcp, s, POLLOUT);
    if (!s->dial_pause_ms) return;
    /* The last hello was sent too late, perhaps because the program computed.  Now it is sent before the return. */
    struct pollfd p = { .fd = s->handshake->pipe.fd, .events = POLLOUT };
    if (poll(&p, 1, COLL__REDIAL_WAIT_MS) > 0) coll__stream_dialled(tcp, s);
}

/* A peer without a proof of the key refuses.  Has this lasted too long?  Heartbeats show that the rank lives, so the limit is
 * that of silence. */
static bool coll__stream_is_kept_away(const coll__tcp *tcp, coll__stream *s)
{
    enum { LEAST_MS = 3500 };
    const int liveness_ms = tcp->heartbeat.liveness_ms;
    const int most_ms = liveness_ms > 0 && liveness_ms < COLL__DIAL_MS ? liveness_ms : COLL__DIAL_MS;
    const int ms = most_ms > LEAST_MS ? most_ms : LEAST_MS;

    if (!s->refused_at) s->refused_at = coll__now();
    return coll__now() - s->refused_at > ms * (int64_t)COLL__MS;
}

/* The handshake failed.  If the other side evicted it, or it timed out, connect again after a pause. */
static void coll__stream_turned_away(coll__tcp *tcp, coll__stream *s, coll_status status, const char *why)
{
    if (status == COLL_ERR_PEER || status == COLL_ERR_TIMEOUT) {
        s->state = COLL__STREAM_NONE;
        s->dial_pause_ms = s->dial_pause_ms < COLL__REDIAL_LEAST_MS ? COLL__REDIAL_LEAST_MS : s->dial_pause_ms * 2;
        if (s->dial_pause_ms > COLL__REDIAL_MOST_MS) s->dial_pause_ms = COLL__REDIAL_MOST_MS;
        s->dial_at = coll__deadline(s->dial_pause_ms + tcp->rank % 7);
        tcp->redials++;
        return;
    }
    s->state = COLL__STREAM_ENDED;
    coll__set_failure(&tcp->suspicion, status, s->peer, "cannot be talked to: %s", why);
}

/* The connect has completed or failed, or the handshake can continue.  A hello older than half of the other side's time limit
 * is not sent: a refusal might already be on the way, and the first bytes of the stream would be lost. */
static void coll__stream_dialled(coll__tcp *tcp, coll__stream *s)
{
    coll__handshake *g = s->handshake;
    int error;

    if (s->state != COLL__STREAM_DIALLING) return;
    coll__io_forget(&tcp->io, g->pipe.fd);
    const bool has_said_nothing = g->step == COLL__HANDSHAKE_SAY && g->length == 0;
    const int64_t said_by = g->deadline - (COLL__DIAL_MS - COLL__HANDSHAKE_MS / 2) * (int64_t)COLL__MS;
    coll_status status = coll__dial_reach(g, &error);
    const bool is_late = has_said_nothing && coll__now() > said_by;
    if (status == COLL_OK) status = is_late ? COLL_ERR_PEER : coll__handshake_advance(g, &tcp->us);
    if (g->is_unauthenticated && coll__stream_is_kept_away(tcp, s)) status = COLL_ERR_DENIED;
    if (status == COLL_PENDING) {
        coll__stream_watch(tcp, s, g->want);
        return;
    }
    if (status == COLL_OK) {
        pthread_mutex_lock(&tcp->heartbeat.lock); /* the heartbeat thread reads the addresses                 */
        coll__endpoint *const to = &tcp->endpoints[s->peer];          /* the address that works comes first   */
        const coll__address works = coll__address_with(to->addresses[s->tried], 0);
        memcpy(to->addresses[s->tried], to->addresses[0], sizeof works.bytes);
        memcpy(to->addresses[0], works.bytes, sizeof works.bytes);
        pthread_mutex_unlock(&tcp->heartbeat.lock);
        s->dial_pause_ms = 0;
        s->refused_at = 0;
        s->dial_until = 0;
        coll__user_timeout(g->pipe.fd, 0);        /* the system's default again                               */
        (void)fcntl(g->pipe.fd, F_SETFL, fcntl(g->pipe.fd, F_GETFL) & ~O_NONBLOCK);           /* both back ends share it */
        coll__stream_open(tcp, s, g->hello.lane, &g->pipe);
    } else {
        coll__pipe_close(&g->pipe);
        if (error && error != ECONNRESET) coll__stream_unreachable(tcp, s, error);
        else coll__stream_turned_away(tcp, s, status, g->why);
    }
    coll__dial_end(&s->handshake);
    if (status == COLL_OK && s->state == COLL__STREAM_NONE) coll__stream_dial(tcp, s);        /* the next lane      */
}

/* Without a key the connecting rank does not wait for an answer.  A refusal then is the first data on the stream; its first
 * bytes arrive as the head of a message. */
static void coll__stream_refused(coll__tcp *tcp, coll__stream *s)
{
    const coll_xfer *x = s->in.first;
    coll__stripe *const lane = coll__stripe_set_of(s) ? coll__stripe_set_of(s)->refuser : NULL;
    unsigned char bytes[COLL__CONTROL_LENGTH] = { 0 };
    size_t length = lane ? sizeof lane->bytes : coll__least(x->moved, sizeof bytes);
    coll__control control;
    ssize_t n = 1;

    memcpy(bytes, lane ? lane->bytes : x->head, coll__least(length, COLL_HEAD_LENGTH));
    if (length > COLL_HEAD_LENGTH) memcpy(bytes + COLL_HEAD_LENGTH, x->buffer, length - COLL_HEAD_LENGTH);
    while (n > 0 && length < sizeof bytes) {
        n = coll__pipe_move(lane ? lane->link.pipe : &s->pipe, bytes + length, sizeof bytes - length, false);
        if (n > 0) length += (size_t)n;
    }
    const bool is_whole = coll__control_read(bytes, tcp->size, &control);
    coll__stream_turned_away(tcp, s, COLL_ERR_PROTOCOL, is_whole ? control.what.text : "it refused the connection");
}

/* ---- >>accepting ---- */

/* No warning during a normal recovery.  A repeated refusal with the same reason is a warning every few seconds only: a peer
 * with a key ignores unauthenticated refusals and retries. */
static coll_log_level coll__refusal_level(coll__tcp *tcp, const coll__handshake *g, coll__address from, const char *reason)
{
    const int64_t now = coll__now();
    char where[COLL__ADDRESS_TEXT], text[400];

    if (g && g->is_near) return COLL_LOG_INFO;
    from.port = 0;
    coll__print(text, sizeof text, "%s %s", coll__address_text(&from, where, sizeof where), reason);
    const uint32_t like = coll__text_hash(text, 0);
    const bool is_like = like == tcp->refused_like && now < tcp->refused_at + COLL__REFUSED_TELL_MS * (int64_t)COLL__MS;
    tcp->refused_like = like;
    if (!is_like) tcp->refused_at = now;
    return is_like ? COLL_LOG_INFO : COLL_LOG_WARN;
}

/* Refuse a connection and send the reason.  g: the handshake that failed; NULL: it was complete.  Received bytes are read
 * before the close: otherwise a reset could discard the reason. */
static void coll__refuse_handshake(coll__tcp *tcp, coll__pipe *pipe, const coll__handshake *g, coll_status status,
                                   const char *reason)
{
    const coll__address from = coll__name_of(pipe->fd, true);
    unsigned char note[COLL__CONTROL_LENGTH];
    char where[COLL__ADDRESS_TEXT], text[COLL__CONTROL_PROOF - COLL__CONTROL_TEXT], rest[512];
    int reads = 0;

    if (!tcp->is_heartbeat_there)                 /* its thread writes no log                                 */
        coll__say(&tcp->log, coll__refusal_level(tcp, g, from, reason), "rank %d turned away a connection from %s: %s", tcp->rank,
                  coll__address_text(&from, where, sizeof where), reason);
    coll__print(text, sizeof text, "rank %d refused the connection: %s", tcp->rank, reason);
    coll__control_write(note, COLL__CONTROL_REFUSE, status, -1, text);
    if (g) coll__refusal_prove(g, tcp->greets_as, note);
    (void)coll__pipe_move(pipe, note, sizeof note, true);
    while (reads < 16 && recv(pipe->fd, rest, sizeof rest, MSG_DONTWAIT) > 0) reads++;
    shutdown(pipe->fd, SHUT_WR);
    coll__pipe_close(pipe);
}

static void coll__refuse(coll__tcp *tcp, coll__pipe *pipe, coll_status status, const char *reason)
{
    coll__refuse_handshake(tcp, pipe, NULL, status, reason);
}

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

/* A rank joins during the start, at rank 0.  It sends its endpoint next. */
static void coll__take_rank(coll__tcp *tcp, coll__pipe *pipe, const coll__hello *hello)
{
    coll__control_line *line = &tcp->controls[hello->rank];
    char where[COLL__ADDRESS_TEXT], reason[160];

    if (hello->rank > 0 && line->pipe.fd >= 0) coll__bootstrap_event(tcp, hello->rank);   /* is it still there? */
    if (hello->rank == 0 || line->pipe.fd >= 0) {
        const coll__address other = coll__name_of(line->pipe.fd, true);
        coll__print(reason, sizeof reason, "another process has come with the same rank, %d%s%s", hello->rank,
                    hello->rank > 0 ? ", from " : "", hello->rank > 0 ? coll__address_text(&other, where, sizeof where) : "");
        coll__refuse(tcp, pipe, COLL_ERR_PROTOCOL, reason);
        return;
    }
    coll__warn_unprotected(tcp, hello->host);
    memcpy(tcp->endpoints[hello->rank].host, hello->host, sizeof hello->host);
    coll__tune_socket(pipe->fd);
    line->pipe = coll__pipe_take(pipe);
    line->length = 0;
    line->lost_at = 0;
    coll__io_watch(&tcp->io, line->pipe.fd, POLLIN, coll__tag(COLL__EVENT_CONTROL, hello->rank));
    coll__control_send(&line->pipe, COLL__CONTROL_WELCOME, COLL_OK, -1, "");
}

/* A handshake is complete. */
static void coll__greeted(coll__tcp *tcp, coll__pipe *pipe, const coll__hello *hello)
{
    if (hello->purpose == COLL__PURPOSE_PROBE) {
        coll__line_taken(&tcp->heartbeat, pipe, hello->rank);
        return;
    }
    if (hello->purpose == COLL__PURPOSE_JOIN) {
        if (tcp->is_bootstrapping) coll__take_rank(tcp, pipe, hello);
        else coll__refuse(tcp, pipe, COLL_ERR_PROTOCOL, "the job has started already");
        return;
    }
    coll__stream *s = coll__stream_to(tcp, hello->rank, hello->channel);
    if (!tcp->is_bootstrapping && hello->rank < tcp->rank && hello->more_lanes == 0) coll__stream_needs_one(s);
    if (tcp->is_bootstrapping || hello->purpose != COLL__PURPOSE_DATA || hello->rank >= tcp->rank || s->state != COLL__STREAM_NONE
        || (hello->more_lanes > 0) != (coll__stripe_set_of(s) != NULL) || coll__stream_lane(s, hello->lane)->fd >= 0) {
        coll__refuse(tcp, pipe, COLL_ERR_PROTOCOL, "a data connection that was not expected");
        return;
    }
    coll__tune_socket(pipe->fd);
    coll__stream_open(tcp, s, hello->lane, pipe);
}

/* Continue a handshake; true: it is over.  The heartbeat thread completes those of liveness probes and of ranks that want a past
 * decision, completes or refuses those of newcomers, and removes closed connections; it does not run this during an agreement. */
static bool coll__handshake_go_on(coll__tcp *tcp, coll__handshake *g)
{
    const coll_status status = coll__handshake_advance(g, tcp->greets_as);

    if (status == COLL_PENDING) return false;
    const bool is_answered = status == COLL_OK && (g->hello.purpose == COLL__PURPOSE_PROBE || coll__past_of(g));
    const bool is_newcomer = coll__hello_may_begin(g->call, sizeof g->call)
        && g->call[offsetof(coll__hello, purpose)] == COLL__PURPOSE_NEWCOMER;
    if (tcp->is_heartbeat_there && status != COLL_ERR_PEER && !is_answered && !is_newcomer) {
        g->want = 0;
        tcp->has_deferred = true;
        return false;
    }
    if (COLL__HAS_SHRINK && status == COLL_OK && tcp->agreement && !coll__past_of(g)) {
        tcp->admit(tcp->agreement, g);
        return true;
    }
    coll__io_forget(&tcp->io, g->pipe.fd);
    if (status == COLL_OK && coll__past_of(g) && g->hello.purpose == COLL__PURPOSE_NEWCOMER)
        coll__newcomer_comes(tcp, &g->pipe, &g->hello);
    else if (status == COLL_OK && coll__past_of(g)) coll__past_told(coll__past_of(g), &g->pipe);
    else if (status == COLL_OK) coll__greeted(tcp, &g->pipe, &g->hello);
    else if (status == COLL_ERR_PEER) coll__pipe_close(&g->pipe);
    else coll__refuse_handshake(tcp, &g->pipe, g, status, g->why);
    return true;
}

static void coll__handshake_close(coll__tcp *tcp, int index)
{
    tcp->handshakes[index].pipe = (coll__pipe){ .fd = -1 };       /* has a new owner, or is closed            */
    while (tcp->handshake_count > 0 && tcp->handshakes[tcp->handshake_count - 1].pipe.fd < 0) tcp->handshake_count--;
}

static void coll__handshake_event(coll__tcp *tcp, int index)
{
    coll__handshake *g = &tcp->handshakes[index];

    if (g->pipe.fd < 0) return;
    const short wanted = g->want;
    if (coll__handshake_go_on(tcp, g)) {
        coll__handshake_close(tcp, index);
    } else if (g->want != wanted) {
        coll__io_forget(&tcp->io, g->pipe.fd);
        if (g->want) coll__io_watch(&tcp->io, g->pipe.fd, g->want, coll__tag(COLL__EVENT_HANDSHAKE, index));
    }
}

/* The oldest handshake that waits for the budget; -1: none waits. */
static int coll__handshake_first(const coll__tcp *tcp)
{
    int first = -1;

    for (int i = 0; i < tcp->handshake_count; i++) {
        const coll__handshake *g = &tcp->handshakes[i];
        if (g->pipe.fd >= 0 && g->is_waiting && (first < 0 || g->deadline < tcp->handshakes[first].deadline)) first = i;
    }
    return first;
}

/* The budget may have been refilled. */
static void coll__handshakes_spend(coll__tcp *tcp)
{
    int first = -1, before;

    do {
        before = first, first = coll__handshake_first(tcp);
        __atomic_store_n(&tcp->budget.is_awaited, false, __ATOMIC_RELAXED);
        if (first >= 0) coll__handshake_event(tcp, first);
    } while (first >= 0 && first != before);
}

/* Continue all handshakes; closed connections free their slots. */
static void coll__handshakes_go_on(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->handshake_count; i++) coll__handshake_event(tcp, i);
}

/* The handshake with the least progress, and of these the oldest; -1: there is none. */
static int coll__handshake_least(const coll__tcp *tcp)
{
    const coll__handshake *least = NULL;

    for (int i = 0; i < tcp->handshake_count; i++) {
        const coll__handshake *g = &tcp->handshakes[i];
        if (g->pipe.fd < 0) continue;
        const bool is_less = !least || g->step < least->step || (g->step == least->step && g->length < least->length);
        const bool is_like = least && g->step == least->step && g->length == least->length;
        if (is_less || (is_like && g->deadline < least->deadline)) least = g;
    }
    return least ? (int)(least - tcp->handshakes) : -1;
}

/* Evict a handshake without a refusal.  The log says so at most once a second. */
static void coll__handshake_drop(coll__tcp *tcp, int index)
{
    coll__io_forget(&tcp->io, tcp->handshakes[index].pipe.fd);
    coll__pipe_close(&tcp->handshakes[index].pipe);
    coll__handshake_close(tcp, index);
    tcp->dropped++;
    if (tcp->is_heartbeat_there || coll__now() < tcp->dropped_at + (int64_t)1000 * COLL__MS) return;
    coll__say(&tcp->log, COLL_LOG_WARN, "rank %d has many connections that do not say who they are; %d had to make room for "
              "others", tcp->rank, tcp->dropped);
    tcp->dropped = 0;
    tcp->dropped_at = coll__now();
}

/* Stop accepting for a while.  The listener is not watched: pending connections would wake every wait. */
static void coll__accept_pause(coll__tcp *tcp, int ms)
{
    if (!tcp->is_deaf) coll__io_forget(&tcp->io, tcp->listener);
    tcp->is_deaf = true;
    tcp->deaf_until = coll__deadline(ms);
}

/* accept failed.  If a descriptor or memory is missing, evict a handshake.  false: there is none, and accepting pauses; or the
 * error is another one. */
static bool coll__shortage_eased(coll__tcp *tcp, int error)
{
    const int64_t now = coll__now();

    if (!coll__is_shortage(error)) return false;
    if (now > tcp->short_at + COLL__SHORT_RUN_MS * (int64_t)COLL__MS) tcp->short_since = now;
    tcp->short_at = now;
    tcp->short_of = error;
    const int least = coll__handshake_least(tcp);
    if (least >= 0) coll__handshake_drop(tcp, least);
    else coll__accept_pause(tcp, COLL__SHORT_AGAIN_MS);
    return least >= 0;
}

/* Resume accepting after a pause.  Existing connections are not affected.  The log says that new ones cannot be accepted;
 * during the start, the final error says it (coll_tcp_bootstrap.h). */
static void coll__shortage_serve(coll__tcp *tcp)
{
    const int64_t now = coll__now();
    char why[80];

    if (!tcp->is_bootstrapping && coll__is_short(tcp, now)
        && (!tcp->short_told_at || now > tcp->short_told_at + COLL__SHORT_TELL_MS * (int64_t)COLL__MS)) {
        coll__say(&tcp->log, COLL_LOG_WARN, "rank %d cannot accept connections: %s", tcp->rank,
                  coll__shortage_text(tcp->short_of, why, sizeof why));
        tcp->short_told_at = now;
    }
    if (now < tcp->deaf_until) return;
    coll__io_watch(&tcp->io, tcp->listener, POLLIN, coll__tag(COLL__EVENT_LISTENER, 0));
    tcp->is_deaf = false;
}

/* A free slot for a handshake; -1: none is free.  A candidate for eviction is read once more first, for its hello may have
 * arrived. */
static int coll__handshake_place(coll__tcp *tcp)
{
    for (int n = 0; n < tcp->handshake_room; n++) {
        int i = 0;
        while (i < tcp->handshake_count && tcp->handshakes[i].pipe.fd >= 0) i++;
        if (i < tcp->handshake_room) return i;
        i = coll__handshake_least(tcp);
        const coll__handshake *g = &tcp->handshakes[i];
        const coll__handshake_step step = g->step;
        const size_t length = g->length;
        coll__handshake_event(tcp, i);
        if (g->pipe.fd < 0 || g->step != step || g->length != length) continue;
        const int64_t came_at = g->deadline - COLL__HANDSHAKE_MS * (int64_t)COLL__MS;
        if (step == COLL__HANDSHAKE_OVER || coll__now() < came_at + COLL__YOUNG_MS * (int64_t)COLL__MS) return -1;
        coll__handshake_drop(tcp, i);
    }
    return -1;
}

/* Accept a bounded number of connections.  true: the backlog is empty. */
static bool coll__accept_all(coll__tcp *tcp)
{
    for (int n = 0; n < COLL__ACCEPTS_AT_ONCE; n++) {
        const int i = coll__handshake_place(tcp), fd = i < 0 ? -1 : coll__accept(tcp->listener), error = errno;
        if (i < 0) coll__accept_pause(tcp, COLL__YOUNG_MS);
        if (i < 0) return false;
        if (fd < 0 && error != ECONNABORTED && !coll__shortage_eased(tcp, error)) return error == EAGAIN;
        if (fd < 0) continue;
        coll__congest_accepted(fd);
        if (i >= tcp->handshake_count) tcp->handshake_count = i + 1;
        coll__handshake_answer(&tcp->handshakes[i], fd, coll__deadline(COLL__HANDSHAKE_MS));
        tcp->handshakes[i].budget = &tcp->budget;
        coll__io_watch(&tcp->io, fd, POLLIN, coll__tag(COLL__EVENT_HANDSHAKE, i));
        coll__handshake_event(tcp, i);
    }
    return false;
}

/* End handshakes that exceed their time limit, after a last read: the hello may have arrived unread.  The heartbeat thread
 * sends no reasons, for it writes no log. */
static void coll__handshakes_expire(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->handshake_count; i++) {
        coll__handshake *g = &tcp->handshakes[i];
        const bool may_stay = !tcp->is_bootstrapping && !tcp->agreement && g->step > COLL__HANDSHAKE_HEAR;
        if (g->pipe.fd < 0 || coll__now() < g->deadline || may_stay) continue;
        const coll__handshake_step step = g->step;
        coll__handshake_event(tcp, i);
        if (g->pipe.fd < 0 || g->step != step) continue;
        coll__io_forget(&tcp->io, g->pipe.fd);
        if (tcp->is_heartbeat_there || g->step == COLL__HANDSHAKE_OVER) coll__pipe_close(&g->pipe);
        else coll__refuse(tcp, &g->pipe, COLL_ERR_TIMEOUT, "it did not say who it is");
        coll__handshake_close(tcp, i);
    }
}

/* Accept connections (index -1), or continue a handshake.  true: no handshake is under way, and the backlog is empty. */
static bool coll__accept_event(coll__tcp *tcp, int index)
{
    pthread_mutex_lock(&tcp->accept_lock);
    const bool is_drained = index < 0 && coll__accept_all(tcp);
    if (index >= 0) coll__handshake_event(tcp, index);
    const bool is_empty = is_drained && tcp->handshake_count == 0;
    pthread_mutex_unlock(&tcp->accept_lock);
    return is_empty;
}

/* Finish what the heartbeat thread deferred, and end handshakes that exceed their time limit. */
static void coll__accept_tidy(coll__tcp *tcp)
{
    pthread_mutex_lock(&tcp->accept_lock);
    if (tcp->has_deferred) coll__handshakes_go_on(tcp);
    tcp->has_deferred = false;
    if (tcp->budget.is_awaited) coll__handshakes_spend(tcp);
    if (tcp->handshake_count > 0) coll__handshakes_expire(tcp);
    if (tcp->is_deaf) coll__shortage_serve(tcp);
    pthread_mutex_unlock(&tcp->accept_lock);
}

/* ---- >>the heartbeat thread: it accepts while the program computes ---- */

/* Fill `fds` for poll; returns their number, and lowers `next` to the latest time of the next look.  Never waits for the lock:
 * if the calling thread holds it, that thread accepts. */
static int coll__accept_watch(coll__tcp *tcp, struct pollfd *fds, int64_t *next)
{
    int n = 0;

    if (pthread_mutex_trylock(&tcp->accept_lock)) return 0;
    coll__waiters_beat(tcp, coll__now());
    if (!tcp->agreement) {
        const bool is_deaf = tcp->is_deaf && coll__now() < tcp->deaf_until;
        tcp->is_heartbeat_there = true;
        coll__handshakes_expire(tcp);
        if (tcp->budget.is_awaited) coll__handshakes_spend(tcp);
        tcp->is_heartbeat_there = false;
        const int64_t soon = coll__deadline(COLL__REDIAL_LEAST_MS);
        if (tcp->budget.is_awaited && soon < *next) *next = soon;
        if (is_deaf && tcp->deaf_until < *next) *next = tcp->deaf_until;
        fds[n++] = (struct pollfd){ .fd = is_deaf ? -1 : tcp->listener, .events = POLLIN };
        for (int i = 0; i < tcp->handshake_count; i++) {
            const coll__handshake *g = &tcp->handshakes[i];
            if (g->pipe.fd >= 0 && g->want) fds[n++] = (struct pollfd){ .fd = g->pipe.fd, .events = g->want };
        }
    }
    pthread_mutex_unlock(&tcp->accept_lock);
    return n;
}

/* After poll: continue handshakes that have data, and accept connections. */
static void coll__accept_serve(coll__tcp *tcp, const struct pollfd *fds, int count)
{
    bool is_any = false, has_deferred = false;

    for (int i = 0; i < count; i++) is_any = is_any || fds[i].revents;
    if (!is_any || pthread_mutex_trylock(&tcp->accept_lock)) return;
    if (!tcp->agreement) {
        tcp->is_heartbeat_there = true;
        for (int i = 0, k = 1; i < tcp->handshake_count && k < count; i++) {
            if (tcp->handshakes[i].pipe.fd != fds[k].fd) continue;
            if (fds[k++].revents) coll__handshake_event(tcp, i);
        }
        if (fds[0].revents) coll__accept_all(tcp);
        tcp->is_heartbeat_there = false;
        has_deferred = tcp->has_deferred;
    }
    pthread_mutex_unlock(&tcp->accept_lock);
    if (has_deferred) coll__heartbeat_news(&tcp->heartbeat);
}

#endif /* COLL_TCP_ACCEPT_H */
