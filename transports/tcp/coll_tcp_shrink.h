/* coll_tcp_shrink.h - after a failure: those who are left make a world of their own.
 *
 * All know the table of places, and the listeners are still open.  The survivors gather at the first rank of the list that is not
 * known to be lost: the host.  It admits who comes until all are there that may still come, or, once there are enough, nobody
 * has come for a while; then it tells them who is there.  The one who does not come is out.  A host that is dead refuses the
 * connection or never says welcome, and then the next one in the list is tried.
 *
 * The world has a name of its own, made of the old one and the list, and then another one of who is there: what is late of the
 * old world, or of another gathering, is turned away.  Nothing is asked of those who are lost. */
#ifndef COLL_TCP_SHRINK_H
#define COLL_TCP_SHRINK_H

enum { COLL__HALL_GRACE_MS = 10000, COLL__AGAIN_MS = 20, COLL__HALL_LOOK_MS = 50 };

typedef struct coll__hall {
    coll__tcp     *old;
    coll__identity us;                            /* by our place in the list                                 */
    const int     *ranks;                         /* the list: what they are called in the old world          */
    int            count, me;
    unsigned char *is_there, *is_lost;            /* by place                                                 */
    coll__pipe    *pipes;                         /* of the host, to each; the others: [0], to the host       */
    coll__greet   *greets;                        /* with those at the door                                   */
    struct pollfd *fds;
    int            greet_room, grace_ms;
    int64_t        deadline;
    coll_failure  *failure;
} coll__hall;

/* Look what the pulse of the old world knows of those who are lost. */
static void coll__hall_look(coll__hall *h)
{
    coll__pulse *p = &h->old->pulse;

    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < h->count; i++)
        if (i != h->me && (p->is_dead[h->ranks[i]] || p->has_left[h->ranks[i]])) h->is_lost[i] = 1;
    pthread_mutex_unlock(&p->lock);
}

/* ---- >>the host ---- */

/* Somebody has come. */
static void coll__hall_admit(coll__hall *h, coll__greet *g)
{
    const int place = g->hello.rank;

    if (g->hello.purpose != COLL__PURPOSE_MEET || place == h->me || h->is_there[place]) {
        coll__refuse(h->old, &g->pipe, COLL_ERR_PROTOCOL, "it is not expected here");
    } else if (place < h->me) {
        coll__refuse(h->old, &g->pipe, COLL_ERR_PEER, "the others have given this rank up");
    } else {
        coll__tune_socket(g->pipe.fd);
        h->pipes[place] = g->pipe;
        h->is_there[place] = 1;
        h->is_lost[place] = 0;
        coll__control_send(&g->pipe, COLL__CONTROL_WELCOME, COLL_OK, -1, "");
    }
    g->pipe.fd = -1;
}

static void coll__hall_door(coll__hall *h)
{
    int fd;

    while ((fd = coll__accept(h->old->listener)) >= 0 || errno == ECONNABORTED) {
        int i = 0;
        if (fd < 0) continue;
        while (i < h->greet_room && h->greets[i].pipe.fd >= 0) i++;
        if (i < h->greet_room) coll__greet_answer(&h->greets[i], fd, coll__deadline(COLL__GREETING_MS));
        else close(fd);                           /* who belongs here knocks again                            */
    }
    for (int i = 0; i < h->greet_room; i++) {
        coll__greet *g = &h->greets[i];
        if (g->pipe.fd < 0) continue;
        const coll_status status = coll__greet_advance(g, &h->us);
        if (status == COLL_OK) coll__hall_admit(h, g);
        else if (status != COLL_PENDING && status != COLL_ERR_PEER) coll__greeting_refuse(h->old, g, &h->us, status);
        else if (status != COLL_PENDING || coll__now() >= g->deadline) coll__pipe_close(&g->pipe);
    }
}

/* Those who are there say nothing; something to read is an end. */
static void coll__hall_roll_call(coll__hall *h)
{
    unsigned char byte;

    for (int i = 0; i < h->count; i++) {
        if (i == h->me || !h->is_there[i] || coll__pipe_move(&h->pipes[i], &byte, 1, false) == -EAGAIN) continue;
        coll__pipe_close(&h->pipes[i]);
        h->is_there[i] = 0;
        h->is_lost[i] = 1;
    }
}

static void coll__hall_wait(coll__hall *h, int64_t until)
{
    int n = 0;

    h->fds[n++] = (struct pollfd){ .fd = h->old->listener, .events = POLLIN };
    for (int i = 0; i < h->greet_room; i++)
        if (h->greets[i].pipe.fd >= 0) h->fds[n++] = (struct pollfd){ .fd = h->greets[i].pipe.fd, .events = h->greets[i].want };
    for (int i = 0; i < h->count; i++)
        if (i != h->me && h->is_there[i]) h->fds[n++] = (struct pollfd){ .fd = h->pipes[i].fd, .events = POLLIN };
    (void)poll(h->fds, (nfds_t)n, coll__ms_until(until, COLL__HALL_LOOK_MS));
}

/* Gather.  COLL_OK: enough are there. */
static coll_status coll__hall_gather(coll__hall *h)
{
    int64_t until = h->deadline;
    int there = 1, before = 1;

    h->is_there[h->me] = 1;
    for (;;) {
        int open = 0;
        coll__hall_look(h);
        coll__hall_door(h);
        coll__hall_roll_call(h);
        there = 0;
        for (int i = 0; i < h->count; i++) there += h->is_there[i], open += !h->is_there[i] && !h->is_lost[i] && i > h->me;
        const bool is_enough = coll__is_quorum(h->is_there, h->count);
        if (!is_enough) until = h->deadline;
        else if (there != before || until == h->deadline) until = coll__deadline(h->grace_ms);
        if (until > h->deadline) until = h->deadline;
        before = there;
        if (open == 0 || coll__now() >= until) break;
        coll__hall_wait(h, until);
    }
    if (coll__is_quorum(h->is_there, h->count)) return COLL_OK;
    return coll__blame(h->failure, COLL_ERR_PEER, -1, "only %d of %d ranks are left: that is not most of them, and the others "
                       "might go on elsewhere", there, h->count);
}

/* Tell them who is there, or why it comes to nothing. */
static void coll__hall_tell(coll__hall *h)
{
    unsigned char note[COLL__CONTROL_LENGTH];

    for (int i = 0; i < h->count; i++) {
        if (i == h->me || !h->is_there[i]) continue;
        const bool is_off = h->failure->status != COLL_OK;
        coll__control_write(note, is_off ? COLL__CONTROL_REFUSE : COLL__CONTROL_TABLE, h->failure->status, -1, h->failure->text);
        if (!coll__pipe_transfer(&h->pipes[i], note, sizeof note, true, coll__deadline(COLL__TABLE_MS)) && !is_off)
            (void)coll__pipe_transfer(&h->pipes[i], h->is_there, (size_t)h->count, true, coll__deadline(COLL__TABLE_MS));
    }
}

/* ---- >>the others ---- */

/* Read `length` bytes from the host, as long as it may still come.  0, or an errno. */
static int coll__hall_hear(coll__hall *h, coll__pipe *pipe, int host, unsigned char *bytes, size_t length, int64_t until)
{
    while (length > 0) {
        const ssize_t n = coll__pipe_move(pipe, bytes, length, false);
        if (n < 0 && n != -EAGAIN) return (int)-n;
        if (n > 0) {
            bytes += n;
            length -= (size_t)n;
            continue;
        }
        struct pollfd at = { .fd = pipe->fd, .events = coll__pipe_await(pipe, POLLIN) };
        if (at.events) (void)poll(&at, 1, coll__ms_until(until, COLL__HALL_LOOK_MS));
        if (coll__now() >= until) return ETIMEDOUT;
        coll__hall_look(h);
        if (h->is_lost[host]) return ECONNRESET;
    }
    return 0;
}

/* Call on the host once.  COLL_OK: it has told who is there.  COLL_PENDING: it is not ready to receive anybody.
 * COLL_ERR_PEER: it is lost.  Any other error is that of the gathering. */
static coll_status coll__hall_call(coll__hall *h, int host, int64_t until)
{
    const coll__place_of *place = &h->old->places[h->ranks[host]];
    const coll__address a = coll__address_unpack(place->addresses[0], place->port);
    const coll__hello hello = { .purpose = COLL__PURPOSE_MEET, .to = host };
    unsigned char note[COLL__CONTROL_LENGTH];
    coll__control control;
    coll__greet g;
    const int fd = coll__dial(&a);

    if (fd < 0) return COLL_ERR_PEER;
    struct pollfd at = { .fd = fd, .events = POLLOUT };
    if (poll(&at, 1, coll__ms_until(until, h->grace_ms)) <= 0 || coll__dial_result(fd)) {
        close(fd);
        return COLL_ERR_PEER;
    }
    coll__greet_call(&g, &h->us, fd, hello, until);
    coll_status status = coll__greet_finish(&g, &h->us);
    const int error = status < 0 ? 0 : coll__hall_hear(h, &g.pipe, host, note, sizeof note, until);
    if (status == COLL_ERR_TIMEOUT || error == ETIMEDOUT) status = COLL_ERR_PEER;
    else if (status < 0 || error) status = COLL_PENDING;          /* shut out: the next attempt will show whether it lives */
    if (status == COLL_OK && !coll__control_read(note, h->count, &control)) status = COLL_ERR_PEER;
    if (status == COLL_OK && control.note != COLL__CONTROL_WELCOME)
        status = control.what.status == COLL_ERR_PROTOCOL ? COLL_PENDING : control.what.status;
    if (status == COLL_OK && coll__hall_hear(h, &g.pipe, host, note, sizeof note, h->deadline)) status = COLL_ERR_PEER;
    else if (status == COLL_OK && !coll__control_read(note, h->count, &control)) status = COLL_ERR_PEER;
    else if (status == COLL_OK && control.note != COLL__CONTROL_TABLE) status = COLL_ERR_ABORTED;
    if (status == COLL_OK && coll__hall_hear(h, &g.pipe, host, h->is_there, (size_t)h->count, h->deadline))
        status = COLL_ERR_PEER;
    if (status == COLL_OK && h->is_there[h->me] == 1) {
        h->pipes[0] = g.pipe;
        return COLL_OK;
    }
    if (status < 0 && status != COLL_ERR_PEER) (void)coll__blame(h->failure, COLL_ERR_PEER, -1, "%s", control.what.text);
    coll__pipe_close(&g.pipe);
    return status == COLL_OK ? COLL_ERR_PEER : status;
}

/* Go to the host.  COLL_PENDING: it is lost, and the next one is to be tried. */
static coll_status coll__hall_join(coll__hall *h, int host)
{
    const int64_t soon = coll__deadline(h->grace_ms), until = soon < h->deadline ? soon : h->deadline;
    coll_status status;

    while ((status = coll__hall_call(h, host, until)) == COLL_PENDING && !h->is_lost[host] && coll__now() < until) {
        (void)poll(NULL, 0, COLL__AGAIN_MS);      /* it has not heard of the failure yet                      */
        coll__hall_look(h);
    }
    if (status == COLL_OK || h->failure->status != COLL_OK) return h->failure->status;
    h->is_lost[host] = 1;
    memset(h->is_there, 0, (size_t)h->count);
    return COLL_PENDING;
}

/* ---- >>the new world ---- */

/* The name of a world made of `ranks`, or of those of them that are there. */
static void coll__hall_name(unsigned char *world, const unsigned char *before, const int *ranks, const unsigned char *is_there,
                            int count)
{
    char text[80] = "";
    uint64_t hash = 1469598103934665603u;

    for (int i = 0; i < count; i++)
        if (!is_there || is_there[i]) hash = (hash ^ (uint64_t)(unsigned)ranks[i]) * 1099511628211u;
    for (int i = 0; i < COLL__WORLD_LENGTH; i++) coll__append(text, sizeof text, "%02x", before[i]);
    coll__append(text, sizeof text, " without %016llx", (unsigned long long)hash);
    coll__digest(world, text);
}

/* The context of this rank in it; it takes the listener and the pipes over.  NULL: no memory, or no descriptors. */
static coll__tcp *coll__hall_world(coll__hall *h, coll_survivors *out)
{
    coll__tcp *old = h->old;
    coll__settings settings = { .config = { .rank = out->rank, .size = out->count, .world = "",
                                           .lanes = old->us.more_lanes + 1 }, .auth = old->us.auth,
                                .is_open = old->is_open };
    coll__tcp *tcp = coll__tcp_new(&settings, &old->log);

    if (!tcp) return NULL;
    coll__seal *const seal = tcp->us.seal;        /* the only thing that cannot be shared                     */
    tcp->us = h->us;
    tcp->us.seal = seal;
    tcp->us.rank = out->rank;
    tcp->us.size = out->count;
    coll__hall_name(tcp->us.world, h->us.world, h->ranks, h->is_there, h->count);
    if (coll__io_open(&tcp->io, old->io.is_uring ? "auto" : "poll",
                      (size_t)out->count * COLL_CHANNEL_COUNT * ((size_t)old->us.more_lanes + 1),
                      &old->log) < 0) {
        coll__tcp_free(tcp);
        return NULL;
    }
    pthread_mutex_lock(&old->pulse.lock);
    for (int i = 0; i < out->count; i++) {
        tcp->places[i] = old->places[out->ranks[i]];
        tcp->pulse.signs[i] = old->pulse.signs[out->ranks[i]];
    }
    pthread_mutex_unlock(&old->pulse.lock);
    for (int i = 0, rank = 0; i < h->count; i++) {
        if (!h->is_there[i]) continue;
        if (out->rank == 0 && i != h->me) tcp->controls[rank].pipe = h->pipes[i], h->pipes[i].fd = -1;
        rank++;
    }
    if (out->rank != 0) tcp->controls[0].pipe = h->pipes[0], h->pipes[0].fd = -1;
    coll__io_forget(&old->io, old->listener);
    tcp->listener = old->listener;
    old->listener = -1;
    coll__io_watch(&tcp->io, tcp->io.bell, EPOLLIN, coll__tag(COLL__EVENT_BELL, 0));
    coll__io_watch(&tcp->io, tcp->listener, EPOLLIN, coll__tag(COLL__EVENT_LISTENER, 0));
    coll__control_open(tcp, old->pulse.has_thread ? old->pulse.liveness_ms : -1);
    return tcp;
}

static bool coll__hall_open(coll__hall *h)
{
    const size_t n = (size_t)h->count;

    h->greet_room = h->count + 16;
    h->is_there = (unsigned char *)coll__allocate(n);
    h->is_lost = (unsigned char *)coll__allocate(n);
    h->pipes = (coll__pipe *)coll__allocate(n * sizeof *h->pipes);
    h->greets = (coll__greet *)coll__allocate((size_t)h->greet_room * sizeof *h->greets);
    h->fds = (struct pollfd *)coll__allocate((n + (size_t)h->greet_room + 1) * sizeof *h->fds);
    for (int i = 0; h->pipes && i < h->count; i++) h->pipes[i].fd = -1;
    for (int i = 0; h->greets && i < h->greet_room; i++) h->greets[i].pipe.fd = -1;
    pthread_mutex_lock(&h->old->door);
    h->old->is_gathering = true;
    for (int i = 0, at = 0; h->greets && i < h->old->greeting_count && at < h->greet_room; i++) {
        coll__greet *g = &h->old->greetings[i];   /* somebody quicker than us may stand at the door already   */
        if (g->pipe.fd < 0) continue;
        coll__io_forget(&h->old->io, g->pipe.fd);
        h->greets[at++] = *g;
        g->pipe = (coll__pipe){ .fd = -1 };
    }
    pthread_mutex_unlock(&h->old->door);
    return h->is_there && h->is_lost && h->pipes && h->greets && h->fds;
}

static void coll__hall_close(coll__hall *h)
{
    for (int i = 0; h->pipes && i < h->count; i++) coll__pipe_close(&h->pipes[i]);
    for (int i = 0; h->greets && i < h->greet_room; i++) coll__pipe_close(&h->greets[i].pipe);
    free(h->is_there);
    free(h->is_lost);
    free(h->pipes);
    free(h->greets);
    free(h->fds);
}

/* Find the host, or be it.  COLL_OK: h->is_there says who goes on. */
static coll_status coll__hall_meet(coll__hall *h)
{
    coll_status status = COLL_PENDING;

    for (int i = 0; i < h->me && status == COLL_PENDING; i++) {
        coll__hall_look(h);
        if (!h->is_lost[i]) status = coll__hall_join(h, i);
    }
    if (status != COLL_PENDING) return status;
    status = coll__hall_gather(h);
    coll__hall_tell(h);
    return status;
}

static coll_status coll__tcp_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                    coll_failure *failure)
{
    coll__tcp *old = (coll__tcp *)context;
    const int liveness = old->pulse.has_thread ? old->pulse.liveness_ms : 0;
    coll__hall h = { .old = old, .us = old->us, .ranks = ranks, .count = count, .failure = failure };
    coll_status status = COLL_OK;

    if (old->listener < 0)
        return coll__blame(failure, COLL_ERR_UNSUPPORTED, -1, "this has been done already: shrink the communicator it gave");
    while (ranks[h.me] != old->rank) h.me++;
    h.us.rank = h.me;
    h.us.epoch++;
    h.us.size = count;
    coll__hall_name(h.us.world, old->us.world, ranks, NULL, count);
    h.deadline = coll__deadline(timeout_ms);
    h.grace_ms = liveness > 0 && liveness < COLL__HALL_GRACE_MS / 2 ? 2 * liveness : COLL__HALL_GRACE_MS;
    if (coll__hall_open(&h)) status = coll__hall_meet(&h);
    else status = coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", count);
    out->count = 0;
    for (int i = 0; status == COLL_OK && i < count; i++) {
        if (!h.is_there[i]) continue;
        if (i == h.me) out->rank = out->count;
        out->ranks[out->count++] = ranks[i];
    }
    out->context = status == COLL_OK ? coll__hall_world(&h, out) : NULL;
    if (status == COLL_OK && !out->context) 
        status = coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", out->count);
    coll__hall_close(&h);
    return status;
}

#endif /* COLL_TCP_SHRINK_H */
