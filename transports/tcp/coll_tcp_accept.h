/* coll_tcp_accept.h - how connections come about: streams that we dial, and connections that we accept.
 *
 * Whoever reaches a port may connect, so work and memory for that are bounded.  There is room for greetings with all connections
 * that the other ranks may make, and COLL__GREETINGS_SPARE others, up to COLL__GREETINGS_MOST; each reads 128 bytes, and 32 more
 * of one whose hello was right.  While the job starts, a greeting may take COLL__GREETING_MS.  Later a rank that has begun
 * to dial may well compute for minutes before it goes on: then only connections without a valid hello are limited in time.
 * When there is no room, whoever has said the least, and among these the first to come, makes room for the next one: never one
 * that has said all, and none that came less than COLL__YOUNG_MS ago, for its hello may be on the way.  So a crowd that keeps
 * silent cannot keep out a rank that talks, and a rank that had to go nevertheless dials again.
 *
 * The heartbeat's thread accepts, too, and moves on with the greetings: the program may compute for minutes, and the queue of the
 * listener, once unauthenticated peers have filled it, would keep ranks out.  What it has not to decide it leaves to the caller's
 * thread. Beside a full queue even a rank that lives gives no answer, so that one that is dialled in vain is dialled again, for
 * four times liveness_timeout_ms: rank 0 tells before if its heartbeats have ceased. */
#ifndef COLL_TCP_ACCEPT_H
#define COLL_TCP_ACCEPT_H

/* ---- >>ways: what the bytes of a new stream go through ---- */

/* Bytes of a ring of memory that is shared with another rank of this host; 0: none is wanted. */
static size_t coll__ring_length(const coll__tcp *tcp)
{
    int neighbours = 0;

    if (!tcp->shares) return 0;
    for (int i = 0; i < tcp->size; i++) neighbours += coll__is_of_this_host(tcp, i);
    return neighbours > COLL__MEMORY_MANY ? COLL__MEMORY_RING_LEAST : COLL__MEMORY_RING;
}

/* One connection is all that is needed: between ranks of a host, whose bytes may go through memory.  Who dials decides. */
static void coll__stream_needs_one(coll__stream *s)
{
    if (!coll__bundle_of(s) || coll__bundle_of(s)->open > 0) return;
    coll__bundle_free(coll__bundle_of(s));
    s->bundle = NULL;
}

/* Both ends have greeted one another: the stream is open, when all its lanes are.  Between ranks of a host the bytes may go
 * through memory, unless they are sealed or checked on their way. */
static void coll__stream_open(coll__tcp *tcp, coll__stream *s, int lane, coll__pipe *pipe)
{
    const int from = tcp->rank < s->peer ? tcp->rank : s->peer, to = tcp->rank + s->peer - from, fd = pipe->fd;

    s->state = coll__stream_joined(s, lane, pipe) ? COLL__STREAM_OPEN : COLL__STREAM_NONE;
    coll__heartbeat_path(&tcp->heartbeat, s->peer, fd);
    if (coll__bundle_of(s) || !coll__pipe_is_plain(&s->pipe) || !coll__is_of_this_host(tcp, s->peer)) return;
    if (!coll__memory_begin(coll__like(tcp), &s->pipe, tcp->us.world, from, to, s->channel, coll__ring_length(tcp),
                            tcp->rank == from))
        coll__blame(&tcp->suspicion, COLL_ERR_MEMORY, tcp->rank, "has no memory for a connection to rank %d", s->peer);
}

/* ---- >>shortage: a connection that this process has nothing left for ---- */

static bool coll__is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

/* "Too many open files (ulimit -n is 1024)" */
static const char *coll__shortage_text(int error, char *text, size_t room)
{
    coll__print(text, room, "%s", strerror(error));
    if (error == EMFILE) coll__append(text, room, " (ulimit -n is %ld)", sysconf(_SC_OPEN_MAX));
    return text;
}

/* ---- >>dialling: a stream to a higher rank ---- */

static void coll__stream_unreachable(coll__tcp *tcp, coll__stream *s, int error)
{
    char what[160];

    s->state = COLL__STREAM_NONE;                 /* to be dialled at its next address                        */
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
    if (!coll__has_active_transfer(s)) return;    /* a receive from any: it may have left, and others may send */
    if (error) coll__print(what, sizeof what, "cannot be reached from rank %d: %s%s", tcp->rank, strerror(error),
                           s->is_unanswered ? "; its host is gone, or the link between the two" : "");
    else coll__print(what, sizeof what, "cannot be reached: it has no address that other hosts could reach");
    coll__suspect(tcp, s->peer, what);
}

/* That is not the peer's fault, but our own. */
static void coll__stream_unaffordable(coll__tcp *tcp, coll__stream *s, int error)
{
    char why[80];

    s->state = COLL__STREAM_ENDED;
    coll__blame(&tcp->suspicion, COLL_ERR_SYSTEM, tcp->rank, "has nothing left for a connection to rank %d: %s", s->peer,
                coll__shortage_text(error, why, sizeof why));
}

static void coll__stream_watch(coll__tcp *tcp, const coll__stream *s, short want)
{
    coll__io_watch(&tcp->io, s->greet->pipe.fd, want, coll__tag(COLL__EVENT_DIALLED, s->peer * COLL_CHANNEL_COUNT + s->channel));
}

/* How long no answer is no verdict.  Each try is a short one: the kernel repeats a call after 1 s, and then ever more rarely. */
static int64_t coll__dial_patience(const coll__heartbeat *p)
{
    enum { LEAST_MS = 4000 };
    const int64_t ms = p->liveness_ms > 0 ? 4 * (int64_t)p->liveness_ms : COLL__DIAL_MS;
    return (ms > LEAST_MS ? ms : LEAST_MS) * COLL__MS;
}

static void coll__stream_dialled(coll__tcp *tcp, coll__stream *s);

/* The other side had no room for us, or no patience: dial again, a little later. */
static void coll__stream_dial_again(coll__tcp *tcp, coll__stream *s)
{
    s->state = COLL__STREAM_NONE;
    s->dial_pause_ms = s->dial_pause_ms < COLL__REDIAL_LEAST_MS ? COLL__REDIAL_LEAST_MS : s->dial_pause_ms * 2;
    if (s->dial_pause_ms > COLL__REDIAL_MOST_MS) s->dial_pause_ms = COLL__REDIAL_MOST_MS;
    s->dial_at = coll__deadline(s->dial_pause_ms + tcp->rank % 7);
    tcp->redials++;
}

static void coll__stream_dial(coll__tcp *tcp, coll__stream *s)
{
    const bool is_last = s->tried + 1 >= tcp->endpoints[s->peer].count;
    if (tcp->shares && coll__is_of_this_host(tcp, s->peer)) coll__stream_needs_one(s);
    const coll__bundle *const lanes = coll__bundle_of(s);
    const coll__hello hello = { .purpose = COLL__PURPOSE_DATA, .channel = s->channel, .to = s->peer,
                                .more_lanes = lanes ? lanes->count - 1 : 0, .lane = lanes ? lanes->open : 0 };
    const int patience = is_last ? COLL__DIAL_ONCE_MS : COLL__DIAL_NEXT_MS;

    if (s->dial_at && coll__now() < s->dial_at) return;
    if (s->dial_at) tcp->redials--;
    s->dial_at = 0;
    if (!s->dial_until) s->dial_until = coll__now() + coll__dial_patience(&tcp->heartbeat);
    if (tcp->endpoints[s->peer].count == 0) {
        coll__stream_unreachable(tcp, s, 0);
        return;
    }
    const coll__address a = coll__endpoint_address(tcp, s->peer, s->tried);
    const int fd = coll__dial(&a);
    s->greet = fd < 0 ? NULL : (coll__greet *)coll__take(coll__like(tcp), sizeof *s->greet);
    if (!s->greet) {
        const int error = fd < 0 ? errno : ENOMEM;
        if (fd >= 0) close(fd);
        if (coll__is_shortage(error)) coll__stream_unaffordable(tcp, s, error);
        else coll__stream_unreachable(tcp, s, error);
        return;
    }
    coll__patience_of(fd, patience);
    coll__greet_call(s->greet, &tcp->us, fd, hello, coll__deadline(COLL__DIAL_MS));
    s->state = COLL__STREAM_DIALLING;
    coll__stream_watch(tcp, s, POLLOUT);
    if (!s->dial_pause_ms) return;
    /* The last time the hello came too late, perhaps since the program was away: now it goes out before we return. */
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    if (poll(&p, 1, COLL__REDIAL_WAIT_MS) > 0) coll__stream_dialled(tcp, s);
}

/* Somebody who has not proved the key answers in the peer's place.  Has he done so for too long?  Heartbeats say that the peer
 * lives, so this takes no longer than a silence would. */
static bool coll__stream_is_kept_away(const coll__tcp *tcp, coll__stream *s)
{
    enum { LEAST_MS = 3500 };
    const int liveness_ms = tcp->heartbeat.liveness_ms;
    const int most_ms = liveness_ms > 0 && liveness_ms < COLL__DIAL_MS ? liveness_ms : COLL__DIAL_MS;
    const int ms = most_ms > LEAST_MS ? most_ms : LEAST_MS;

    if (!s->refused_at) s->refused_at = coll__now();
    return coll__now() - s->refused_at > ms * (int64_t)COLL__MS;
}

/* The greeting has failed. */
static void coll__stream_turned_away(coll__tcp *tcp, coll__stream *s, coll_status status, const char *why)
{
    if (status == COLL_ERR_PEER || status == COLL_ERR_TIMEOUT) {
        coll__stream_dial_again(tcp, s);
        return;
    }
    s->state = COLL__STREAM_ENDED;
    coll__blame(&tcp->suspicion, status, s->peer, "cannot be talked to: %s", why);
}

/* The connect is decided, or the greeting can go on.  A hello that has waited for half the other side's patience, since the
 * program was away, is not said any more: its refusal might already be on the way, and our first bytes would be lost. */
static void coll__stream_dialled(coll__tcp *tcp, coll__stream *s)
{
    coll__greet *g = s->greet;

    if (s->state != COLL__STREAM_DIALLING) return;
    coll__io_forget(&tcp->io, g->pipe.fd);
    const int error = coll__dial_result(g->pipe.fd);
    const bool has_said_nothing = g->step == COLL__GREET_SAY && g->length == 0;
    const bool is_refused = error && error != ECONNRESET && has_said_nothing;
    const int64_t said_by = g->deadline - (COLL__DIAL_MS - COLL__GREETING_MS / 2) * (int64_t)COLL__MS;
    const bool is_late = has_said_nothing && coll__now() > said_by;
    coll_status status = error || is_late ? COLL_ERR_PEER : coll__greet_advance(g, &tcp->us);
    if (g->is_hearsay && coll__stream_is_kept_away(tcp, s)) status = COLL_ERR_DENIED;
    if (status == COLL_PENDING) {
        coll__stream_watch(tcp, s, g->want);
        return;
    }
    s->greet = NULL;
    if (status == COLL_OK) {
        pthread_mutex_lock(&tcp->heartbeat.lock); /* the heartbeat names ranks by their addresses              */
        coll__endpoint_prefer(&tcp->endpoints[s->peer], s->tried);
        pthread_mutex_unlock(&tcp->heartbeat.lock);
        s->dial_pause_ms = 0;
        s->refused_at = 0;
        s->dial_until = 0;
        coll__patience_of(g->pipe.fd, 0);         /* the kernel decides again                                 */
        coll__make_blocking(g->pipe.fd);
        coll__stream_open(tcp, s, g->hello.lane, &g->pipe);
    } else {
        coll__pipe_close(&g->pipe);
        if (is_refused) coll__stream_unreachable(tcp, s, error);
        else coll__stream_turned_away(tcp, s, status, g->why);
    }
    coll__give(g);
    if (status == COLL_OK && s->state == COLL__STREAM_NONE) coll__stream_dial(tcp, s);        /* the next lane      */
}

/* Without a key the dialler does not wait for an answer: a refusal then comes as the first thing on the stream, its beginning as
 * the head of a message. */
static void coll__stream_refused(coll__tcp *tcp, coll__stream *s)
{
    const coll_xfer *x = s->in.first;
    coll__strand *const lane = coll__bundle_of(s) ? coll__bundle_of(s)->refuser : NULL;
    unsigned char bytes[COLL__CONTROL_LENGTH] = { 0 };
    size_t length = lane ? sizeof lane->bytes : coll__least(x->moved, sizeof bytes);
    coll__control control;
    ssize_t n = 1;

    memcpy(bytes, lane ? lane->bytes : x->head, coll__least(length, COLL_HEAD_LENGTH));
    if (length > COLL_HEAD_LENGTH) memcpy(bytes + COLL_HEAD_LENGTH, x->buffer, length - COLL_HEAD_LENGTH);
    while (n > 0 && length < sizeof bytes) {
        n = coll__pipe_move(lane ? lane->pipe : &s->pipe, bytes + length, sizeof bytes - length, false);
        if (n > 0) length += (size_t)n;
    }
    const bool is_whole = coll__control_read(bytes, tcp->size, &control);
    coll__stream_turned_away(tcp, s, COLL_ERR_PROTOCOL, is_whole ? control.what.text : "it refused the connection");
}

/* ---- >>accepting: connections that come in ---- */

/* Is it a rank of this job that is one coll_shrink ahead or behind of us, quicker or slower than we are? */
static bool coll__greet_is_near(const coll__greet *g, const coll__identity *us)
{
    const bool is_hello = g->step == COLL__GREET_HEAR && g->length == COLL__HELLO_LENGTH
                       && coll__hello_may_begin(g->bytes, COLL__HELLO_LENGTH);
    const uint32_t epoch = is_hello ? coll__get32(g->bytes + 64) : us->epoch;

    return epoch == us->epoch + 1 || epoch + 1 == us->epoch;
}

/* A recovery in which all goes well is no warning; and who comes again and again for the same reason, as a caller does that
 * believes no refusal, is told of every few seconds. */
static coll_log_level coll__refusal_level(coll__tcp *tcp, const coll__greet *g, const coll__address *from, const char *reason)
{
    const coll__address host = coll__with_port(*from, 0);
    const int64_t now = coll__now();
    char where[COLL__ADDRESS_TEXT], text[400];
    unsigned char like[16];

    if (g && coll__greet_is_near(g, tcp->greets_as)) return COLL_LOG_INFO;
    coll__print(text, sizeof text, "%s %s", coll__address_text(&host, where, sizeof where), reason);
    coll__digest(like, text);
    const bool is_like = !memcmp(like, tcp->refused_like, sizeof like)
                      && now < tcp->refused_at + COLL__REFUSED_TELL_MS * (int64_t)COLL__MS;
    memcpy(tcp->refused_like, like, sizeof like);
    if (!is_like) tcp->refused_at = now;
    return is_like ? COLL_LOG_INFO : COLL_LOG_WARN;
}

/* Turn a connection away, with the reason, in answer to a greeting that has failed or, NULL, succeeded.  What has come is
 * read before the end, or the reason could be lost on the way. */
static void coll__refuse_greeting(coll__tcp *tcp, coll__pipe *pipe, const coll__greet *g, coll_status status, const char *reason)
{
    const coll__address from = coll__name_of(pipe->fd, true);
    unsigned char note[COLL__CONTROL_LENGTH];
    char where[COLL__ADDRESS_TEXT], text[COLL__CONTROL_PROOF - COLL__CONTROL_TEXT], rest[512];
    int reads = 0;

    coll__say(&tcp->log, coll__refusal_level(tcp, g, &from, reason), "rank %d turned away a connection from %s: %s", tcp->rank,
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
    coll__refuse_greeting(tcp, pipe, NULL, status, reason);
}

static void coll__control_event(coll__tcp *tcp, int index);
static void coll__probe_taken(coll__tcp *tcp, coll__pipe *pipe, int rank);

/* A rank joins the world that rank 0 brings together.  It will say where it listens. */
static void coll__take_rank(coll__tcp *tcp, coll__pipe *pipe, const coll__hello *hello)
{
    coll__control_line *line = &tcp->controls[hello->rank];
    char where[COLL__ADDRESS_TEXT], reason[160];

    if (hello->rank > 0 && line->pipe.fd >= 0) coll__control_event(tcp, hello->rank);     /* is it still there? */
    if (hello->rank == 0 || line->pipe.fd >= 0) {
        const coll__address other = coll__name_of(line->pipe.fd, true);
        coll__print(reason, sizeof reason, "another process has come with the same rank, %d%s%s", hello->rank,
                    hello->rank > 0 ? ", from " : "", hello->rank > 0 ? coll__address_text(&other, where, sizeof where) : "");
        coll__refuse(tcp, pipe, COLL_ERR_PROTOCOL, reason);
        return;
    }
    const bool is_unsafe = tcp->lacks_tls || (tcp->us.auth == COLL__AUTH_NONE && !tcp->is_open);
    if (is_unsafe && !tcp->has_warned && memcmp(hello->host, tcp->us.host, sizeof hello->host)) {
        tcp->has_warned = true;
        coll__say(&tcp->log, COLL_LOG_WARN, "%s", tcp->lacks_tls
                  ? "security is \"key\": ranks of other hosts are authenticated, and nothing is encrypted; compile with "
                    "-DCOLL_WITH_OPENSSL to encrypt, or set COLL_SECURITY=key to accept this"
                  : "security is \"open\": any process that reaches this port may join, read and change what is sent; set "
                    "COLL_KEY, or COLL_SECURITY=open to accept this");
    }
    memcpy(tcp->endpoints[hello->rank].host, hello->host, sizeof hello->host);
    coll__tune_socket(pipe->fd);
    line->pipe = coll__pipe_take(pipe);
    line->length = 0;
    line->lost_at = 0;
    coll__io_watch(&tcp->io, line->pipe.fd, POLLIN, coll__tag(COLL__EVENT_CONTROL, hello->rank));
    coll__control_send(&line->pipe, COLL__CONTROL_WELCOME, COLL_OK, -1, "");
}

/* Somebody has said who it is, and may be who it says. */
static void coll__greeted(coll__tcp *tcp, coll__pipe *pipe, const coll__hello *hello)
{
    if (hello->purpose == COLL__PURPOSE_PROBE) {
        coll__probe_taken(tcp, pipe, hello->rank);
        return;
    }
    if (hello->purpose == COLL__PURPOSE_JOIN) {
        if (tcp->is_bootstrapping) coll__take_rank(tcp, pipe, hello);
        else coll__refuse(tcp, pipe, COLL_ERR_PROTOCOL, "the job has started already");
        return;
    }
    coll__stream *s = coll__stream_to(tcp, hello->rank, hello->channel);
    if (!tcp->is_bootstrapping && hello->rank < tcp->rank && hello->more_lanes == 0) coll__stream_needs_one(s);
    if (tcp->is_bootstrapping || hello->rank >= tcp->rank || s->state != COLL__STREAM_NONE
        || (hello->more_lanes > 0) != (coll__bundle_of(s) != NULL) || coll__stream_lane(s, hello->lane)->fd >= 0) {
        coll__refuse(tcp, pipe, COLL_ERR_PROTOCOL, "a data connection that was not expected");
        return;
    }
    coll__tune_socket(pipe->fd);
    coll__stream_open(tcp, s, hello->lane, pipe);
}

static bool coll__agreement_admit(struct coll__agreement *h, coll__greet *g);

/* Go on with a greeting; true: it is over, one way or the other.  The heartbeat's thread only takes those who ask whether we
 * live, and makes room of those who have gone; it is not there while survivors agree. */
static bool coll__greeting_go_on(coll__tcp *tcp, coll__greet *g)
{
    const coll_status status = coll__greet_advance(g, tcp->greets_as);

    if (status == COLL_PENDING) return false;
    if (tcp->is_heartbeat_there && status != COLL_ERR_PEER && (status != COLL_OK || g->hello.purpose != COLL__PURPOSE_PROBE)) {
        g->want = 0;
        tcp->has_deferred = true;
        return false;
    }
    if (COLL__HAS_SHRINK && status == COLL_OK && tcp->agreement && !coll__past_of(g))
        return coll__agreement_admit(tcp->agreement, g);
    coll__io_forget(&tcp->io, g->pipe.fd);
    if (status == COLL_OK && coll__past_of(g)) coll__past_told(coll__past_of(g), &g->pipe);
    else if (status == COLL_OK) coll__greeted(tcp, &g->pipe, &g->hello);
    else if (status == COLL_ERR_PEER) coll__pipe_close(&g->pipe);
    else coll__refuse_greeting(tcp, &g->pipe, g, status, g->why);
    return true;
}

static void coll__greeting_close(coll__tcp *tcp, int index)
{
    tcp->greetings[index].pipe = (coll__pipe){ .fd = -1 };        /* whoever took it has it                  */
    while (tcp->greeting_count > 0 && tcp->greetings[tcp->greeting_count - 1].pipe.fd < 0) tcp->greeting_count--;
}

static void coll__greeting_event(coll__tcp *tcp, int index)
{
    coll__greet *g = &tcp->greetings[index];

    if (g->pipe.fd < 0) return;
    const short wanted = g->want;
    if (coll__greeting_go_on(tcp, g)) {
        coll__greeting_close(tcp, index);
    } else if (g->want != wanted) {
        coll__io_forget(&tcp->io, g->pipe.fd);
        if (g->want) coll__io_watch(&tcp->io, g->pipe.fd, g->want, coll__tag(COLL__EVENT_GREETING, index));
    }
}

/* Is this one that we wait for, as far as it says? */
static bool coll__greeting_is_expected(const coll__tcp *tcp, const coll__hello *hello)
{
    if (hello->purpose == COLL__PURPOSE_JOIN) return tcp->is_bootstrapping && tcp->controls[hello->rank].pipe.fd < 0;
    return hello->purpose == COLL__PURPOSE_PROBE
        || (hello->rank < tcp->rank && coll__stream_to(tcp, hello->rank, hello->channel)->state == COLL__STREAM_NONE);
}

/* Whose turn is it, of those who wait for an answer?  Ranks that are expected, then who came first; -1: nobody waits. */
static int coll__greeting_first(const coll__tcp *tcp)
{
    int first = -1;

    for (int pass = 0; pass < 2 && first < 0; pass++)
        for (int i = 0; i < tcp->greeting_count; i++) {
            const coll__greet *g = &tcp->greetings[i];
            if (g->pipe.fd < 0 || !g->is_waiting) continue;
            if (coll__greeting_is_expected(tcp, &g->hello) != (pass == 0)) continue;
            if (first < 0 || g->deadline < tcp->greetings[first].deadline) first = i;
        }
    return first;
}

/* There may be something to spend again. */
static void coll__greetings_spend(coll__tcp *tcp)
{
    int first = -1, before;

    do {
        before = first, first = coll__greeting_first(tcp);
        __atomic_store_n(&tcp->budget.is_awaited, false, __ATOMIC_RELAXED);
        if (first >= 0) coll__greeting_event(tcp, first);
    } while (first >= 0 && first != before);
}

/* Go on with all greetings: those who have hung up make room. */
static void coll__greetings_go_on(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->greeting_count; i++) coll__greeting_event(tcp, i);
}

/* Which greeting has come the least far, and among these is the oldest? */
static int coll__greeting_least(const coll__tcp *tcp)
{
    const coll__greet *least = NULL;

    for (int i = 0; i < tcp->greeting_count; i++) {
        const coll__greet *g = &tcp->greetings[i];
        if (g->pipe.fd < 0) continue;
        const bool is_less = !least || g->step < least->step || (g->step == least->step && g->length < least->length);
        const bool is_like = least && g->step == least->step && g->length == least->length;
        if (is_less || (is_like && g->deadline < least->deadline)) least = g;
    }
    return least ? (int)(least - tcp->greetings) : 0;
}

/* Close a connection to make room, and send it no reason.  Log this once a second at most. */
static void coll__greeting_drop(coll__tcp *tcp, int index)
{
    coll__io_forget(&tcp->io, tcp->greetings[index].pipe.fd);
    coll__pipe_close(&tcp->greetings[index].pipe);
    coll__greeting_close(tcp, index);
    tcp->dropped++;
    if (tcp->is_heartbeat_there || coll__now() < tcp->dropped_at + (int64_t)1000 * COLL__MS) return;
    coll__say(&tcp->log, COLL_LOG_WARN, "rank %d has many connections that do not say who they are; %d had to make room for "
              "others", tcp->rank, tcp->dropped);
    tcp->dropped = 0;
    tcp->dropped_at = coll__now();
}

/* Nobody accepts for a moment: the listener is not watched, or its queue would keep whoever waits awake. */
static void coll__accept_pause(coll__tcp *tcp, int ms)
{
    if (!tcp->is_deaf) coll__io_forget(&tcp->io, tcp->listener);
    tcp->is_deaf = true;
    tcp->deaf_until = coll__deadline(ms);
}

/* Somebody connects, and cannot be accepted: a greeting that has begun makes room for him.  false: there is none, and for a
 * moment nobody is accepted; or it is not for want of room. */
static bool coll__shortage_eased(coll__tcp *tcp, int error)
{
    const int64_t now = coll__now();
    bool has_any = false;

    if (!coll__is_shortage(error)) return false;
    if (now > tcp->short_at + COLL__SHORT_RUN_MS * (int64_t)COLL__MS) tcp->short_since = now;
    tcp->short_at = now;
    tcp->short_of = error;
    for (int i = 0; i < tcp->greeting_count; i++) has_any = has_any || tcp->greetings[i].pipe.fd >= 0;
    if (has_any) {
        coll__greeting_drop(tcp, coll__greeting_least(tcp));
    } else {
        coll__accept_pause(tcp, COLL__SHORT_AGAIN_MS);
    }
    return has_any;
}

/* The moment may be over.  The world goes on meanwhile, with all whom it has connections to; who connects has to wait, and the
 * log says so.  While all meet that is said in the end (coll_tcp_bootstrap.h). */
static void coll__shortage_attend(coll__tcp *tcp)
{
    const int64_t now = coll__now();
    const bool is_short = now < tcp->short_at + COLL__SHORT_RUN_MS * (int64_t)COLL__MS;
    char why[80];

    if (!tcp->is_bootstrapping && tcp->short_of && is_short
        && (!tcp->short_told_at || now > tcp->short_told_at + COLL__SHORT_TELL_MS * (int64_t)COLL__MS)) {
        coll__say(&tcp->log, COLL_LOG_WARN, "rank %d cannot let anybody in who connects to it: %s", tcp->rank,
                  coll__shortage_text(tcp->short_of, why, sizeof why));
        tcp->short_told_at = now;
    }
    if (now < tcp->deaf_until) return;
    coll__io_watch(&tcp->io, tcp->listener, POLLIN, coll__tag(COLL__EVENT_LISTENER, 0));
    tcp->is_deaf = false;
}

/* A place for one more greeting; -1: there is none for a moment.  Who would have to go gets a last look, for his hello may have
 * come meanwhile. */
static int coll__greeting_place(coll__tcp *tcp)
{
    for (int n = 0; n < tcp->greeting_room; n++) {
        int i = 0;
        while (i < tcp->greeting_count && tcp->greetings[i].pipe.fd >= 0) i++;
        if (i < tcp->greeting_room) return i;
        i = coll__greeting_least(tcp);
        const coll__greet *g = &tcp->greetings[i];
        const coll__greet_step step = g->step;
        const size_t length = g->length;
        coll__greeting_event(tcp, i);
        if (g->pipe.fd < 0 || g->step != step || g->length != length) continue;
        const int64_t came_at = g->deadline - COLL__GREETING_MS * (int64_t)COLL__MS;
        if (step == COLL__GREET_OVER || coll__now() < came_at + COLL__YOUNG_MS * (int64_t)COLL__MS) return -1;
        coll__greeting_drop(tcp, i);
    }
    return -1;
}

/* Accept who connects, a bounded number at once: this rank has other things to do, too.  true: nobody is left in the backlog. */
static bool coll__accept_all(coll__tcp *tcp)
{
    for (int n = 0; n < COLL__ACCEPTS_AT_ONCE; n++) {
        const int i = coll__greeting_place(tcp), fd = i < 0 ? -1 : coll__accept(tcp->listener), error = errno;
        if (i < 0) coll__accept_pause(tcp, COLL__YOUNG_MS);
        if (i < 0) return false;
        if (fd < 0 && error != ECONNABORTED && !coll__shortage_eased(tcp, error)) return error == EAGAIN;
        if (fd < 0) continue;
        coll__congest_accepted(fd);
        if (i >= tcp->greeting_count) tcp->greeting_count = i + 1;
        coll__greet_answer(&tcp->greetings[i], fd, coll__deadline(COLL__GREETING_MS));
        tcp->greetings[i].budget = &tcp->budget;
        coll__io_watch(&tcp->io, fd, POLLIN, coll__tag(COLL__EVENT_GREETING, i));
        coll__greeting_event(tcp, i);
    }
    return false;
}

/* Those who have kept silent for too long go, after a last look: their hello may have come while nobody read it.  The heartbeat's
 * thread gives no reasons, for it writes no log. */
static void coll__greetings_expire(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->greeting_count; i++) {
        coll__greet *g = &tcp->greetings[i];
        const bool may_stay = !tcp->is_bootstrapping && !tcp->agreement && g->step > COLL__GREET_HEAR;
        if (g->pipe.fd < 0 || coll__now() < g->deadline || may_stay) continue;
        const coll__greet_step step = g->step;
        coll__greeting_event(tcp, i);
        if (g->pipe.fd < 0 || g->step != step) continue;
        coll__io_forget(&tcp->io, g->pipe.fd);
        if (tcp->is_heartbeat_there || g->step == COLL__GREET_OVER) coll__pipe_close(&g->pipe);
        else coll__refuse(tcp, &g->pipe, COLL_ERR_TIMEOUT, "it did not say who it is");
        coll__greeting_close(tcp, i);
    }
}

/* Somebody connects (index -1), or goes on with his greeting.  true: nobody is being greeted any more,
 * nor in the backlog. */
static bool coll__accept_event(coll__tcp *tcp, int index)
{
    pthread_mutex_lock(&tcp->accept_lock);
    const bool is_drained = index < 0 && coll__accept_all(tcp);
    if (index >= 0) coll__greeting_event(tcp, index);
    const bool is_empty = is_drained && tcp->greeting_count == 0;
    pthread_mutex_unlock(&tcp->accept_lock);
    return is_empty;
}

/* See to those whom the heartbeat's thread has let in, and to those who have been there for too long. */
static void coll__accept_tidy(coll__tcp *tcp)
{
    pthread_mutex_lock(&tcp->accept_lock);
    if (tcp->has_deferred) coll__greetings_go_on(tcp);
    tcp->has_deferred = false;
    if (tcp->budget.is_awaited) coll__greetings_spend(tcp);
    if (tcp->greeting_count > 0) coll__greetings_expire(tcp);
    if (tcp->is_deaf) coll__shortage_attend(tcp);
    pthread_mutex_unlock(&tcp->accept_lock);
}

/* ---- >>the heartbeat's thread: it accepts while the program computes ---- */

/* What it polls; gives how much, and in `next` when to come again at the latest.  It never waits for the lock: when the caller's
 * thread is there, that will do, and with the next beat it looks again. */
static int coll__accept_watch(coll__tcp *tcp, struct pollfd *fds, int64_t *next)
{
    int n = 0;

    if (pthread_mutex_trylock(&tcp->accept_lock)) return 0;
    if (!tcp->agreement) {
        const bool is_deaf = tcp->is_deaf && coll__now() < tcp->deaf_until;
        tcp->is_heartbeat_there = true;
        coll__greetings_expire(tcp);
        if (tcp->budget.is_awaited) coll__greetings_spend(tcp);
        tcp->is_heartbeat_there = false;
        const int64_t soon = coll__deadline(COLL__REDIAL_LEAST_MS);
        if (tcp->budget.is_awaited && soon < *next) *next = soon;
        if (is_deaf && tcp->deaf_until < *next) *next = tcp->deaf_until;
        fds[n++] = (struct pollfd){ .fd = is_deaf ? -1 : tcp->listener, .events = POLLIN };
        for (int i = 0; i < tcp->greeting_count; i++) {
            const coll__greet *g = &tcp->greetings[i];
            if (g->pipe.fd >= 0 && g->want) fds[n++] = (struct pollfd){ .fd = g->pipe.fd, .events = g->want };
        }
    }
    pthread_mutex_unlock(&tcp->accept_lock);
    return n;
}

/* It has polled them: move on with the greetings that have something, and accept who connects. */
static void coll__accept_attend(coll__tcp *tcp, const struct pollfd *fds, int count)
{
    bool is_any = false, has_deferred = false;

    for (int i = 0; i < count; i++) is_any = is_any || fds[i].revents;
    if (!is_any || pthread_mutex_trylock(&tcp->accept_lock)) return;
    if (!tcp->agreement) {
        tcp->is_heartbeat_there = true;
        for (int i = 0, k = 1; i < tcp->greeting_count && k < count; i++) {
            if (tcp->greetings[i].pipe.fd != fds[k].fd) continue;
            if (fds[k++].revents) coll__greeting_event(tcp, i);
        }
        if (fds[0].revents) coll__accept_all(tcp);
        tcp->is_heartbeat_there = false;
        has_deferred = tcp->has_deferred;
    }
    pthread_mutex_unlock(&tcp->accept_lock);
    if (has_deferred) coll__heartbeat_news(&tcp->heartbeat);
}

#endif /* COLL_TCP_ACCEPT_H */
