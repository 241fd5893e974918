/* coll_tcp_door.h - how connections come about: streams that we dial, and those who knock at our door. */
#ifndef COLL_TCP_DOOR_H
#define COLL_TCP_DOOR_H

/* ---- >>dialling: a stream to a higher rank ---- */

static void coll__stream_unreachable(coll__tcp *tcp, coll__stream *s, const char *why)
{
    char what[160];

    s->state = COLL__STREAM_ENDED;
    coll__print(what, sizeof what, "cannot be reached: %s", why);
    coll__suspect(tcp, s->peer, what);
}

static void coll__stream_watch(coll__tcp *tcp, const coll__stream *s, uint32_t want)
{
    coll__io_watch(&tcp->io, s->greet->pipe.fd, want, coll__tag(COLL__EVENT_DIALLED, s->peer * COLL_CHANNEL_COUNT + s->channel));
}

/* A kernel answers at once, whatever its processes do; but a call may get lost, and is repeated after 1 and 3 s. */
static int coll__dial_patience(const coll__pulse *p)
{
    enum { LEAST_MS = 3500 };
    return p->liveness_ms <= 0 || p->liveness_ms > COLL__DIAL_MS ? COLL__DIAL_MS : p->liveness_ms > LEAST_MS ? p->liveness_ms : LEAST_MS;
}

static void coll__stream_dial(coll__tcp *tcp, coll__stream *s)
{
    const coll__place_of *place = &tcp->places[s->peer];
    const coll__address a = coll__address_unpack(place->address, place->port);
    const coll__hello hello = { .purpose = COLL__PURPOSE_DATA, .channel = s->channel };
    const int patience = coll__dial_patience(&tcp->pulse), fd = coll__dial(&a);

    s->greet = fd < 0 ? NULL : (coll__greet *)malloc(sizeof *s->greet);
    if (!s->greet) {
        const int error = fd < 0 ? errno : ENOMEM;
        if (fd >= 0) close(fd);
        coll__stream_unreachable(tcp, s, strerror(error));
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
    coll__greet_call(s->greet, &tcp->us, fd, hello, coll__deadline(COLL__DIAL_MS));
    s->state = COLL__STREAM_DIALLING;
    coll__stream_watch(tcp, s, EPOLLOUT);
}

/* The connect is decided, or the greeting can go on. */
static void coll__stream_dialled(coll__tcp *tcp, coll__stream *s)
{
    coll__greet *g = s->greet;
    const int forever = 0;

    if (s->state != COLL__STREAM_DIALLING) return;
    coll__io_forget(&tcp->io, g->pipe.fd);
    const int error = coll__dial_result(g->pipe.fd);
    const coll_status status = error ? COLL_ERR_PEER : coll__greet_advance(g, &tcp->us);
    if (status == COLL_PENDING) {
        coll__stream_watch(tcp, s, (uint32_t)g->want);
        return;
    }
    if (status == COLL_OK) {
        s->pipe = g->pipe;
        setsockopt(s->pipe.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &forever, sizeof forever);
        coll__make_blocking(s->pipe.fd);
        s->state = COLL__STREAM_OPEN;
        coll__pulse_path(&tcp->pulse, s->peer, s->pipe.fd);
    } else {
        coll__pipe_close(&g->pipe);
        coll__stream_unreachable(tcp, s, error ? strerror(error) : g->why);
    }
    free(g);
    s->greet = NULL;
}

/* ---- >>the door: connections that come in ---- */

/* Turn a connection away, with the reason. */
static void coll__refuse(coll__tcp *tcp, coll__pipe *pipe, coll_status status, const char *reason)
{
    const coll__address from = coll__name_of(pipe->fd, true);
    char where[COLL__ADDRESS_TEXT], text[200];

    coll__say(&tcp->log, COLL_LOG_WARN, "rank %d turned away a connection from %s: %s", tcp->rank,
              coll__address_text(&from, where, sizeof where), reason);
    coll__print(text, sizeof text, "rank %d refused the connection: %s", tcp->rank, reason);
    coll__control_send(pipe, COLL__CONTROL_REFUSE, status, -1, text);
    coll__pipe_close(pipe);
}

/* A rank joins the world that rank 0 is gathering. */
static void coll__take_rank(coll__tcp *tcp, coll__pipe *pipe, const coll__hello *hello)
{
    coll__place_of *place = &tcp->places[hello->rank];
    coll__control_line *line = &tcp->controls[hello->rank];
    const coll__address from = coll__name_of(pipe->fd, true);
    int ignored;

    if (hello->rank == 0 || line->pipe.fd >= 0) {
        coll__refuse(tcp, pipe, COLL_ERR_PROTOCOL, "another process has come with the same rank");
        return;
    }
    coll__address_pack(&from, place->address, &ignored);
    place->port = hello->port;
    memcpy(place->host, hello->host, sizeof place->host);
    coll__tune_socket(pipe->fd);
    line->pipe = *pipe;
    line->length = 0;
    tcp->present_count++;
    coll__io_watch(&tcp->io, pipe->fd, EPOLLIN, coll__tag(COLL__EVENT_CONTROL, hello->rank));
    coll__control_send(&line->pipe, COLL__CONTROL_WELCOME, COLL_OK, -1, "");
}

/* Somebody has said who it is, and may be who it says. */
static void coll__greeted(coll__tcp *tcp, coll__pipe *pipe, const coll__hello *hello)
{
    if (hello->purpose == COLL__PURPOSE_MEET) {
        if (tcp->is_meeting) coll__take_rank(tcp, pipe, hello);
        else coll__refuse(tcp, pipe, COLL_ERR_PROTOCOL, "the job has started already");
        return;
    }
    coll__stream *s = coll__stream_to(tcp, hello->rank, hello->channel);
    if (tcp->is_meeting || hello->rank >= tcp->rank || s->state != COLL__STREAM_NONE) {
        coll__refuse(tcp, pipe, COLL_ERR_PROTOCOL, "a data connection that was not expected");
        return;
    }
    coll__tune_socket(pipe->fd);
    s->pipe = *pipe;
    s->state = COLL__STREAM_OPEN;
    coll__pulse_path(&tcp->pulse, s->peer, pipe->fd);
}

/* Go on with a greeting; true: it is over, one way or the other. */
static bool coll__greeting_go_on(coll__tcp *tcp, coll__greet *g)
{
    const coll_status status = coll__greet_advance(g, &tcp->us);

    if (status == COLL_PENDING) return false;
    coll__io_forget(&tcp->io, g->pipe.fd);
    if (status == COLL_OK) coll__greeted(tcp, &g->pipe, &g->hello);
    else if (status == COLL_ERR_PEER) coll__pipe_close(&g->pipe);
    else coll__refuse(tcp, &g->pipe, status, g->why);
    return true;
}

static void coll__greeting_close(coll__tcp *tcp, int index)
{
    tcp->greetings[index].pipe.fd = -1;
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
        coll__io_watch(&tcp->io, g->pipe.fd, (uint32_t)g->want, coll__tag(COLL__EVENT_GREETING, index));
    }
}

/* Go on with all greetings: those who have hung up make room. */
static void coll__greetings_go_on(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->greeting_count; i++) coll__greeting_event(tcp, i);
}

/* Let in who knocks, as long as there is room; each may take COLL__GREETING_MS to say who it is.  When there is no room, the
 * door is shut without a word: a rank then knocks again. */
static void coll__accept_all(coll__tcp *tcp)
{
    int fd;

    while ((fd = coll__accept(tcp->listener)) >= 0 || errno == ECONNABORTED) {
        int i = 0;
        if (fd < 0) continue;
        if (tcp->greeting_count == tcp->greeting_room) coll__greetings_go_on(tcp);
        while (i < tcp->greeting_count && tcp->greetings[i].pipe.fd >= 0) i++;
        if (i == tcp->greeting_room) {
            coll__say(&tcp->log, COLL_LOG_WARN, "rank %d has %d connections that do not say who they are, and takes no more",
                      tcp->rank, i);
            close(fd);
            continue;
        }
        if (i == tcp->greeting_count) tcp->greeting_count++;
        coll__greet_answer(&tcp->greetings[i], fd, coll__deadline(COLL__GREETING_MS));
        coll__io_watch(&tcp->io, fd, EPOLLIN, coll__tag(COLL__EVENT_GREETING, i));
        coll__greeting_event(tcp, i);
    }
}

static void coll__greetings_expire(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->greeting_count; i++) {
        coll__greet *g = &tcp->greetings[i];
        if (g->pipe.fd < 0 || coll__now() < g->deadline) continue;
        coll__io_forget(&tcp->io, g->pipe.fd);
        coll__refuse(tcp, &g->pipe, COLL_ERR_PROTOCOL, "it did not say who it is");
        coll__greeting_close(tcp, i);
    }
}

#endif /* COLL_TCP_DOOR_H */
