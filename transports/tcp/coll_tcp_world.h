/* coll_tcp_world.h - what a rank holds of its world: the places of all ranks, a stream for each peer and channel, the
 * control connections, the strangers at the door; and what happens to them. */
#ifndef COLL_TCP_WORLD_H
#define COLL_TCP_WORLD_H

enum {
    COLL__GREETING_MS = 5000,                     /* a connection must have said who it is by then            */
    COLL__DIAL_MS = 20000,
    COLL__LOOKS_AN_EVENT = 32
};

/* A connection that has not said yet who it is. */
typedef struct coll__greeting {
    int     fd, length;
    int64_t deadline;
    unsigned char bytes[COLL__HELLO_LENGTH];
} coll__greeting;

typedef struct coll__control_line {
    int    fd;
    size_t length;
    unsigned char bytes[COLL__CONTROL_LENGTH];
} coll__control_line;

typedef enum coll__presence { COLL__PRESENT, COLL__SAID_BYE, COLL__GONE } coll__presence;

typedef struct coll__tcp {
    int  rank, size, listener;
    bool is_meeting;                              /* rank 0, until all are there                              */
    coll__log log;
    unsigned char world[COLL__WORLD_LENGTH], host[COLL__HOST_LENGTH];
    coll__place_of *places;                       /* of every rank                                            */
    coll__stream   *streams;                      /* by peer and channel                                      */
    coll__active    active;
    coll__io        io;
    coll__control_line *controls;                 /* rank 0: one for every rank; the others: [0], to rank 0   */
    unsigned char  *presence;
    int             bye_count, ended_count, present_count;
    unsigned char  *reports;                      /* rank 0: the heads in which ranks say they are waiting    */
    coll__greeting *greetings;
    int             greeting_count, greeting_room;
    unsigned        looks;
    coll_failure    suspicion;                    /* what this rank thinks has happened                       */
    coll_failure    failure;                      /* what is agreed to have happened                          */
    char            tuning[COLL__TUNING_ROOM];    /* what rank 0 has read of the wire; "": nothing            */
} coll__tcp;

/* What an event is about: in the upper half of its tag, with an index in the lower. */
typedef enum coll__event {
    COLL__EVENT_LISTENER, COLL__EVENT_GREETING, COLL__EVENT_CONTROL, COLL__EVENT_DIALLED, COLL__EVENT_BELL
} coll__event;

static inline uint64_t coll__tag(coll__event event, int index) { return (uint64_t)event << 32 | (uint32_t)index; }

static inline coll__stream *coll__stream_to(const coll__tcp *tcp, int peer, int channel)
{
    return &tcp->streams[peer * COLL_CHANNEL_COUNT + channel];
}

static void coll__activate(coll__tcp *tcp, coll__stream *s)
{
    if (s->is_active) return;
    s->is_active = true;
    tcp->active.streams[tcp->active.count++] = s;
}

/* "rank 2 at 10.0.0.7:4242" */
static const char *coll__rank_text(const coll__tcp *tcp, int rank, char *text, size_t room)
{
    char where[COLL__ADDRESS_TEXT];
    const coll__address a = coll__address_unpack(tcp->places[rank].address, tcp->places[rank].port);

    coll__print(text, room, "rank %d at %s", rank, coll__address_text(&a, where, sizeof where));
    return text;
}

/* ---- >>trouble: noted here, settled in coll_tcp_fail.h ---- */

static void coll__suspect(coll__tcp *tcp, int peer, const char *what)
{
    char who[COLL__ADDRESS_TEXT + 16];
    const char *left = "has left the communicator, and another rank still waits for it";

    coll__blame(&tcp->suspicion, COLL_ERR_PEER, peer, "%s %s", coll__rank_text(tcp, peer, who, sizeof who),
                tcp->presence[peer] == COLL__PRESENT ? what : left);
}

static bool coll__has_active_transfer(const coll__stream *s)
{
    for (const coll_xfer *x = s->out.first; x; x = x->next) if (!x->any_head) return true;
    for (const coll_xfer *x = s->in.first; x; x = x->next) if (!x->any_head) return true;
    return false;
}

/* The connection has ended.  That is trouble only for transfers that somebody counts on. */
static void coll__stream_broken(coll__tcp *tcp, coll__stream *s, int error)
{
    char what[100];

    s->state = COLL__STREAM_ENDED;
    tcp->ended_count++;
    if (!coll__has_active_transfer(s) && !(s->in.first && s->in.first->moved > 0)) return;
    coll__print(what, sizeof what, "is gone: %s", coll__ending_text(error));
    coll__suspect(tcp, s->peer, what);
}

/* Can this stream never be what is wanted of it?  Its connection has ended, or the peer left without making one. */
static bool coll__is_in_vain(const coll__tcp *tcp, const coll__stream *s)
{
    const bool never_came = s->state == COLL__STREAM_NONE && tcp->presence[s->peer] == COLL__GONE;
    return (never_came || s->state == COLL__STREAM_ENDED) && coll__has_active_transfer(s);
}

/* ---- >>streams: making the connection ---- */

static void coll__stream_dial(coll__tcp *tcp, coll__stream *s)
{
    const coll__place_of *place = &tcp->places[s->peer];
    const coll__address a = coll__address_unpack(place->address, place->port);
    const int patience = COLL__DIAL_MS;
    char what[100];

    s->fd = coll__dial(&a);
    if (s->fd < 0) {
        s->state = COLL__STREAM_ENDED;
        coll__print(what, sizeof what, "cannot be reached: %s", strerror(errno));
        coll__suspect(tcp, s->peer, what);
        return;
    }
    setsockopt(s->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
    s->state = COLL__STREAM_DIALLING;
    coll__io_watch(&tcp->io, s->fd, EPOLLOUT, coll__tag(COLL__EVENT_DIALLED, s->peer * COLL_CHANNEL_COUNT + s->channel));
}

/* The connect is decided: say who we are. */
static void coll__stream_dialled(coll__tcp *tcp, coll__stream *s)
{
    coll__hello hello = { .rank = tcp->rank, .size = tcp->size, .purpose = COLL__PURPOSE_DATA, .channel = s->channel };
    unsigned char bytes[COLL__HELLO_LENGTH];
    const int forever = 0;
    char what[100];

    if (s->state != COLL__STREAM_DIALLING) return;
    coll__io_forget(&tcp->io, s->fd);
    memcpy(hello.world, tcp->world, sizeof hello.world);
    memcpy(hello.host, tcp->host, sizeof hello.host);
    coll__hello_write(bytes, &hello);
    int error = coll__dial_result(s->fd);
    if (!error && send(s->fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof bytes) error = errno;
    if (error) {
        s->state = COLL__STREAM_ENDED;
        coll__print(what, sizeof what, "cannot be reached: %s", strerror(error));
        coll__suspect(tcp, s->peer, what);
        return;
    }
    setsockopt(s->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &forever, sizeof forever);
    coll__make_blocking(s->fd);
    s->state = COLL__STREAM_OPEN;
}

/* ---- >>the door: connections that come in ---- */

static void coll__control_send(int fd, coll__control_note note, coll_status status, int rank, const char *text)
{
    unsigned char bytes[COLL__CONTROL_LENGTH];

    coll__control_write(bytes, note, status, rank, text);
    (void)send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Turn a connection away, with the reason. */
static void coll__refuse(coll__tcp *tcp, int fd, const char *reason)
{
    const coll__address from = coll__name_of(fd, true);
    char where[COLL__ADDRESS_TEXT], text[200];

    coll__say(&tcp->log, COLL_LOG_WARN, "rank %d turned away a connection from %s: %s", tcp->rank,
              coll__address_text(&from, where, sizeof where), reason);
    coll__print(text, sizeof text, "rank %d refused the connection: %s", tcp->rank, reason);
    coll__control_send(fd, COLL__CONTROL_REFUSE, COLL_ERR_PROTOCOL, -1, text);
    close(fd);
}

/* A rank joins the world that rank 0 is gathering. */
static void coll__take_rank(coll__tcp *tcp, int fd, const coll__hello *hello)
{
    coll__place_of *place = &tcp->places[hello->rank];
    const coll__address from = coll__name_of(fd, true);
    int ignored;

    if (hello->rank == 0 || tcp->controls[hello->rank].fd >= 0) {
        coll__refuse(tcp, fd, "another process has come with the same rank");
        return;
    }
    coll__address_pack(&from, place->address, &ignored);
    place->port = hello->port;
    memcpy(place->host, hello->host, sizeof place->host);
    coll__tune_socket(fd);
    tcp->controls[hello->rank].fd = fd;
    tcp->controls[hello->rank].length = 0;
    tcp->present_count++;
    coll__io_watch(&tcp->io, fd, EPOLLIN, coll__tag(COLL__EVENT_CONTROL, hello->rank));
    coll__control_send(fd, COLL__CONTROL_WELCOME, COLL_OK, -1, "");
}

/* Somebody has said who it is. */
static void coll__greeted(coll__tcp *tcp, int fd, const unsigned char *bytes)
{
    coll__hello hello;
    const char *wrong = coll__hello_read(bytes, tcp->world, tcp->size, &hello);

    if (wrong) {
        coll__refuse(tcp, fd, wrong);
    } else if (hello.purpose == COLL__PURPOSE_MEET) {
        if (tcp->is_meeting) coll__take_rank(tcp, fd, &hello);
        else coll__refuse(tcp, fd, "the job has started already");
    } else {
        coll__stream *s = coll__stream_to(tcp, hello.rank, hello.channel);
        if (tcp->is_meeting || hello.rank >= tcp->rank || s->state != COLL__STREAM_NONE) {
            coll__refuse(tcp, fd, "a data connection that was not expected");
            return;
        }
        coll__tune_socket(fd);
        s->fd = fd;
        s->state = COLL__STREAM_OPEN;
    }
}

/* Read on in a greeting; true: it is over, one way or the other. */
static bool coll__greeting_read(coll__tcp *tcp, coll__greeting *g)
{
    const ssize_t n = recv(g->fd, g->bytes + g->length, (size_t)(COLL__HELLO_LENGTH - g->length), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n > 0) g->length += (int)n;
    if (n > 0 && g->length < COLL__HELLO_LENGTH) return false;
    coll__io_forget(&tcp->io, g->fd);
    if (n > 0) coll__greeted(tcp, g->fd, g->bytes);
    else close(g->fd);
    return true;
}

static void coll__greeting_close(coll__tcp *tcp, int index)
{
    tcp->greetings[index].fd = -1;
    while (tcp->greeting_count > 0 && tcp->greetings[tcp->greeting_count - 1].fd < 0) tcp->greeting_count--;
}

/* Read on in all greetings: those who have hung up make room. */
static void coll__greetings_read(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->greeting_count; i++)
        if (tcp->greetings[i].fd >= 0 && coll__greeting_read(tcp, &tcp->greetings[i])) coll__greeting_close(tcp, i);
}

/* Let in who knocks, as long as there is room; each may take COLL__GREETING_MS to say who it is.  When there is no room, the
 * door is shut without a word: a rank then knocks again. */
static void coll__accept_all(coll__tcp *tcp)
{
    int fd;

    while ((fd = coll__accept(tcp->listener)) >= 0 || errno == ECONNABORTED) {
        int i = 0;
        if (fd < 0) continue;
        if (tcp->greeting_count == tcp->greeting_room) coll__greetings_read(tcp);
        while (i < tcp->greeting_count && tcp->greetings[i].fd >= 0) i++;
        if (i == tcp->greeting_room) {
            coll__say(&tcp->log, COLL_LOG_WARN, "rank %d has %d connections that do not say who they are, and takes no more",
                      tcp->rank, i);
            close(fd);
            continue;
        }
        if (i == tcp->greeting_count) tcp->greeting_count++;
        tcp->greetings[i] = (coll__greeting){ .fd = fd, .deadline = coll__deadline(COLL__GREETING_MS) };
        coll__io_watch(&tcp->io, fd, EPOLLIN, coll__tag(COLL__EVENT_GREETING, i));
        if (coll__greeting_read(tcp, &tcp->greetings[i])) coll__greeting_close(tcp, i);
    }
}

static void coll__greetings_expire(coll__tcp *tcp)
{
    for (int i = 0; i < tcp->greeting_count; i++) {
        coll__greeting *g = &tcp->greetings[i];
        if (g->fd < 0 || coll__now() < g->deadline) continue;
        coll__io_forget(&tcp->io, g->fd);
        coll__refuse(tcp, g->fd, "it did not say who it is");
        coll__greeting_close(tcp, i);
    }
}

/* ---- >>control: what rank 0 hears from each, and each from rank 0 ---- */

static void coll__decide(coll__tcp *tcp, const coll_failure *failure);

static void coll__bye_heard(coll__tcp *tcp, int rank)
{
    if (rank < 0 || tcp->presence[rank] != COLL__PRESENT) return;
    tcp->presence[rank] = COLL__SAID_BYE;
    tcp->bye_count++;
    for (int i = 1; tcp->rank == 0 && i < tcp->size; i++)         /* rank 0 passes it on                      */
        if (i != rank && tcp->controls[i].fd >= 0) coll__control_send(tcp->controls[i].fd, COLL__CONTROL_BYE, COLL_OK, rank, "");
}

/* The control connection `index` is closed.  Without a word before, that rank is dead. */
static void coll__control_closed(coll__tcp *tcp, int index, int error)
{
    coll__control_line *line = &tcp->controls[index];
    coll_failure failure = { COLL_OK, -1, "" };
    char who[COLL__ADDRESS_TEXT + 16];

    coll__io_forget(&tcp->io, line->fd);
    coll__close_fd(&line->fd);
    if (tcp->is_meeting) {
        tcp->present_count--;                     /* it may come again                                        */
    } else if (tcp->presence[index] == COLL__PRESENT) {
        coll__blame(&failure, COLL_ERR_PEER, index, "%s is gone: %s", coll__rank_text(tcp, index, who, sizeof who),
                    coll__ending_text(error));
        coll__decide(tcp, &failure);
    }
}

/* Rank 0 learns in which call a rank is waiting, and compares it with what the others have said. */
static void coll__report(coll__tcp *tcp, int rank, const unsigned char *head)
{
    unsigned char *mine = tcp->reports + (size_t)rank * COLL_HEAD_LENGTH;
    coll_failure failure = { COLL_OK, -1, "" };

    memcpy(mine, head, COLL_HEAD_LENGTH);
    for (int i = 0; i < tcp->size; i++) {
        const unsigned char *other = tcp->reports + (size_t)i * COLL_HEAD_LENGTH;
        if (!coll__heads_disagree(mine, other)) continue;
        coll__blame_mismatch(&failure, other, i, mine, rank);
        coll__decide(tcp, &failure);
        return;
    }
}

static void coll__control_heard(coll__tcp *tcp, int index, const unsigned char *bytes)
{
    coll__control control;

    if (!coll__control_read(bytes, tcp->size, &control)) {
        coll__control_closed(tcp, index, EPROTO);
    } else if (control.note == COLL__CONTROL_BYE) {
        coll__bye_heard(tcp, tcp->rank == 0 ? index : control.what.rank);
    } else if (control.note == COLL__CONTROL_FAIL) {
        coll__decide(tcp, &control.what);
    } else if (control.note == COLL__CONTROL_WAITING && tcp->rank == 0) {
        coll__report(tcp, index, bytes + COLL__CONTROL_TEXT);
    }
}

static void coll__control_event(coll__tcp *tcp, int index)
{
    coll__control_line *line = &tcp->controls[index];

    while (line->fd >= 0) {
        const ssize_t n = recv(line->fd, line->bytes + line->length, COLL__CONTROL_LENGTH - line->length, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            coll__control_closed(tcp, index, n < 0 ? errno : 0);
            return;
        }
        line->length += (size_t)n;
        if (line->length < COLL__CONTROL_LENGTH) continue;
        line->length = 0;
        coll__control_heard(tcp, index, line->bytes);
    }
}

/* ---- >>events: everything but the transfers ---- */

/* Look, without waiting, whether anything has happened, and deal with it. */
static void coll__events(coll__tcp *tcp)
{
    struct epoll_event events[32];
    const bool had_byes = tcp->bye_count > 0;
    uint64_t rung;
    const int count = epoll_wait(tcp->io.events, events, 32, 0);

    for (int i = 0; i < count; i++) {
        const int index = (int)(events[i].data.u64 & 0xffffffff);
        switch ((coll__event)(events[i].data.u64 >> 32)) {
        case COLL__EVENT_LISTENER: coll__accept_all(tcp); break;
        case COLL__EVENT_GREETING:
            if (tcp->greetings[index].fd >= 0 && coll__greeting_read(tcp, &tcp->greetings[index]))
                coll__greeting_close(tcp, index);
            break;
        case COLL__EVENT_CONTROL: coll__control_event(tcp, index); break;
        case COLL__EVENT_DIALLED: coll__stream_dialled(tcp, &tcp->streams[index]); break;
        case COLL__EVENT_BELL: (void)!read(tcp->io.bell, &rung, sizeof rung); break;
        }
    }
    if (tcp->greeting_count > 0) coll__greetings_expire(tcp);
    if (!had_byes) return;
    coll__accept_all(tcp);                        /* what a rank sent before it left may still be at the door */
    for (int r = 0; r < tcp->size && tcp->greeting_count == 0; r++)
        if (tcp->presence[r] == COLL__SAID_BYE) tcp->presence[r] = COLL__GONE;
}

/* ---- >>open, free ---- */

static void coll__tcp_free(coll__tcp *tcp)
{
    if (!tcp) return;
    coll__io_close(&tcp->io);
    coll__close_fd(&tcp->listener);
    for (int i = 0; tcp->streams && i < tcp->size * COLL_CHANNEL_COUNT; i++) coll__close_fd(&tcp->streams[i].fd);
    for (int i = 0; tcp->controls && i < (tcp->rank == 0 ? tcp->size : 1); i++) coll__close_fd(&tcp->controls[i].fd);
    for (int i = 0; i < tcp->greeting_count; i++) coll__close_fd(&tcp->greetings[i].fd);
    free(tcp->places);
    free(tcp->streams);
    free(tcp->active.streams);
    free(tcp->controls);
    free(tcp->presence);
    free(tcp->reports);
    free(tcp->greetings);
    free(tcp);
}

/* This machine and its network: ranks that agree on it may use loopback addresses. */
static void coll__host_identity(unsigned char *host)
{
    char text[128] = "", line[64] = "";
    struct stat s;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (f) {
        if (!fgets(line, sizeof line, f)) line[0] = '\0';
        fclose(f);
    }
    const unsigned long long inode = stat("/proc/self/ns/net", &s) ? 0 : (unsigned long long)s.st_ino;
    coll__print(text, sizeof text, "%s %llu", line, inode);
    coll__digest(host, text);
}

static coll__tcp *coll__tcp_new(const coll__settings *settings, const coll__log *log)
{
    const coll_config *c = &settings->config;
    const size_t size = (size_t)c->size, streams = size * COLL_CHANNEL_COUNT;
    coll__tcp *tcp = (coll__tcp *)coll__allocate(sizeof *tcp);
    char world[300];

    if (!tcp) return NULL;
    tcp->rank = c->rank;
    tcp->size = c->size;
    tcp->listener = tcp->io.events = tcp->io.bell = -1;
    tcp->log = *log;
    tcp->suspicion.rank = tcp->failure.rank = -1;
    coll__print(world, sizeof world, "%d %.250s", c->size, c->world);
    coll__digest(tcp->world, world);
    coll__host_identity(tcp->host);
    tcp->greeting_room = 2 * c->size + 16;
    tcp->places = (coll__place_of *)coll__allocate(size * sizeof *tcp->places);
    tcp->streams = (coll__stream *)coll__allocate(streams * sizeof *tcp->streams);
    tcp->active.streams = (coll__stream **)coll__allocate(streams * sizeof *tcp->active.streams);
    tcp->controls = (coll__control_line *)coll__allocate((c->rank == 0 ? size : 1) * sizeof *tcp->controls);
    tcp->presence = (unsigned char *)coll__allocate(size);
    tcp->reports = (unsigned char *)coll__allocate((c->rank == 0 ? size : 1) * COLL_HEAD_LENGTH);
    tcp->greetings = (coll__greeting *)coll__allocate((size_t)tcp->greeting_room * sizeof *tcp->greetings);
    for (size_t i = 0; tcp->streams && i < streams; i++) {
        coll__stream *s = &tcp->streams[i];
        s->fd = -1;
        s->peer = (int)(i / COLL_CHANNEL_COUNT);
        s->channel = (int)(i % COLL_CHANNEL_COUNT);
        s->out.end = &s->out.first;
        s->in.end = &s->in.first;
    }
    for (size_t i = 0; tcp->controls && i < (c->rank == 0 ? size : 1); i++) tcp->controls[i].fd = -1;
    if (tcp->places && tcp->streams && tcp->active.streams && tcp->controls && tcp->presence && tcp->reports
        && tcp->greetings) return tcp;
    coll__tcp_free(tcp);
    return NULL;
}

#endif /* COLL_TCP_WORLD_H */
