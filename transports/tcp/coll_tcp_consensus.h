/* coll_tcp_consensus.h - after a failure: the notes of the consensus (core/membership/coll_consensus.h) over TCP.
 *
 * All ranks have the table of endpoints, and the listeners are still open.  `ranks` lists the members; a place is an index in it.
 * A proposer connects to all absent members, another member to its proposer.  If all addresses of a member refuse the connect, it
 * is lost.  Each pair of members has one line.  If both connect, the line is that of the later place: an earlier one replaces its
 * own, and a later one refuses another.
 *
 * A note is sent as control messages, so that an agreement leaves nothing else on a line: a job that takes the line over ignores
 * them.  A rank that has the decision sends it to each rank that still connects for this agreement (coll__past_told), and closes
 * that line.  A line is lasting if the other side has sent a note as a proposer. */
#ifndef COLL_TCP_CONSENSUS_H
#define COLL_TCP_CONSENSUS_H

enum {
    COLL__AGREE_GRACE_MS = 10000, COLL__AGAIN_MS = 20, COLL__AGREE_LOOK_MS = 50,
    COLL__CALL_AGAIN_MS = 200,                    /* of a proposer                                            */
    COLL__LAST_NOTES_MS = 200                     /* to send them                                             */
};

typedef struct coll__agreement {
    coll__tcp     *old;
    coll__identity us;                            /* rank: place in the list                                  */
    const int     *ranks;                         /* the list: ranks of the old job                           */
    int            count, me;
    coll__kept    *kept;                          /* between calls; NULL: no memory                           */
    coll__consensus *consensus;                   /* the kept one, and its lines                              */
    uint64_t       newcomers;                     /* the hash of their table, of a coll_grow; 0: none         */
    coll__member_line *lines;
    unsigned char *note;
    struct pollfd *fds;
    coll__consensus_role role;                    /* as seen last, as the next one                            */
    int            follows;
    int            decider;                       /* sent the decision on a lasting line, or `me`; -1: none   */
    int            grace_ms;
    int64_t        deadline;
    coll_failure  *failure;
} coll__agreement;

/* Read the failures that the old job's heartbeat knows.  Rank 0 has received from all others.  Without rank 0, each rank has
 * only its own view, which may be wrong: such a member is suspect, not lost.  So is one that has left: it may have the decision,
 * be in the next job already, and alone know it. */
static void coll__agreement_look(coll__agreement *h)
{
    coll__heartbeat *p = &h->old->heartbeat;
    const coll__detector *const d = &p->detector;

    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < h->count; i++) {
        const int rank = h->ranks[i];
        if (i == h->me || h->consensus->places[i].is_there) continue;
        if (d->me == 0 && d->dead.has[rank]) coll__consensus_lost(h->consensus, i);
        if (d->left.has[rank] || d->dead.has[rank]) coll__consensus_suspect(h->consensus, i);
    }
    pthread_mutex_unlock(&p->lock);
}

/* ---- >>lines ---- */

static void coll__member_line_rest(const coll__agreement *h, coll__member_line *line)
{
    coll__dial_end(&line->dialler.handshake);
    line->dialler.call_at = coll__deadline(h->consensus->role == COLL__CONSENSUS_PROPOSES ? COLL__CALL_AGAIN_MS : COLL__AGAIN_MS);
}

static void coll__member_line_down(coll__agreement *h, int place)
{
    coll__member_line *line = &h->lines[place];

    if (line->pipe.fd >= 0) coll__consensus_down(h->consensus, place);
    coll__pipe_close(&line->pipe);
    coll__member_line_rest(h, line);
}

static void coll__member_line_up(coll__agreement *h, int place, coll__pipe *pipe)
{
    const size_t room = coll__note_room(h->count);
    coll__member_line *line = &h->lines[place];

    if (line->pipe.fd >= 0) coll__member_line_down(h, place);
    if (!line->in) line->in = (unsigned char *)coll__take(coll__like(h->old), 2 * room);
    line->pipe = coll__pipe_take(pipe);
    line->received = line->sent = line->length = 0;
    line->is_lasting = false;
    if (line->in) {
        line->out = line->in + room;
        coll__dial_end(&line->dialler.handshake);
        coll__consensus_up(h->consensus, place);
    } else {
        coll__pipe_close(&line->pipe);
        coll__member_line_rest(h, line);
    }
}

/* Connect to a member, without blocking.  If that fails, its next address is tried, after a pause if it was the last one. */
static void coll__member_call(coll__agreement *h, int place)
{
    const coll__hello hello = { .purpose = COLL__PURPOSE_JOIN, .to = place };
    const coll__endpoint *to = &h->old->endpoints[h->ranks[place]];
    coll__dialler *d = &h->lines[place].dialler;
    int error;

    if (coll__now() < d->call_at && !d->handshake) return;
    if (to->count == 0) coll__consensus_lost(h->consensus, place);
    if (to->count == 0) return;
    const coll_status status = coll__dialler_advance(d, &h->us, to, h->old->network.scope, hello, &error);
    if (coll__is_shortage(error)) h->old->short_of = error, h->old->short_at = coll__now();
    if (status == COLL_OK) coll__member_line_up(h, place, &d->handshake->pipe);
    else if (error && d->calls % to->count) coll__dial_end(&d->handshake);
    else if (status < 0) coll__member_line_rest(h, &h->lines[place]);
    if (error && d->refusals >= to->count) coll__consensus_lost(h->consensus, place);
}

/* Read the next note.  COLL_PENDING: incomplete; COLL_ERR_PEER: the line is closed, or refused. */
static coll_status coll__member_note_next(coll__agreement *h, coll__member_line *line, size_t *length)
{
    coll__control control;
    int error = coll__pipe_fill(&line->pipe, line->in, &line->received, COLL__CONTROL_LENGTH);

    if (!error) {
        const unsigned char *const head = line->in + COLL__CONTROL_TEXT;
        if (!coll__control_read(line->in, h->count, &control) || control.note != COLL__CONTROL_MEMBERS) return COLL_ERR_PEER;
        const bool has_decision = coll__member_note_has_decision((coll__member_note_kind)head[0], coll__get64(head + 8));
        *length = has_decision ? coll__member_note_most(h->count) : COLL__NOTE_HEAD;
        error = coll__pipe_fill(&line->pipe, line->in, &line->received, coll__note_messages(*length));
    }
    if (error) return error == EAGAIN ? COLL_PENDING : COLL_ERR_PEER;
    line->received = 0;
    coll__note_unpack(h->note, line->in, *length);
    return COLL_OK;
}

/* Read all notes of a line, until there is an outcome. */
static void coll__member_hear(coll__agreement *h, int place)
{
    coll__member_line *line = &h->lines[place];
    coll_status status = COLL_OK;
    size_t length;

    while (coll__consensus_is_busy(h->consensus) && (status = coll__member_note_next(h, line, &length)) == COLL_OK) {
        const coll__member_note_kind kind = (coll__member_note_kind)h->note[0];
        if (kind == COLL__NOTE_PREPARE || kind == COLL__NOTE_PROPOSE || kind == COLL__NOTE_PING) line->is_lasting = true;
        if (!coll__consensus_note(h->consensus, place, h->note, length, coll__now())) status = COLL_ERR_PEER;
        if (status < 0) break;
        if (!coll__consensus_is_busy(h->consensus) && line->is_lasting) h->decider = place;
    }
    if (status < 0) coll__member_line_down(h, place);
}

/* Send what the consensus has for a member and the line takes.  Returns whether all is sent. */
static bool coll__member_tell(coll__agreement *h, int place)
{
    coll__member_line *line = &h->lines[place];

    while (line->pipe.fd >= 0) {
        if (line->length == 0) {
            const size_t note = coll__consensus_say(h->consensus, place, h->note, coll__now());
            if (note == 0) return true;
            line->length = coll__note_pack(line->out, h->note, note);
            line->sent = 0;
        }
        const ssize_t n = coll__pipe_move(&line->pipe, line->out + line->sent, line->length - line->sent, true);
        if (n == -EAGAIN) return false;
        if (n < 0) coll__member_line_down(h, place);
        else line->sent += (size_t)n;
        if (line->sent == line->length) line->length = 0;
    }
    return true;
}

/* ---- >>accepting ---- */

/* A handshake is complete; the agreement owns its pipe. */
static void coll__agreement_admit(coll__agreement *h, coll__handshake *g)
{
    const int place = g->hello.rank;

    coll__io_forget(&h->old->io, g->pipe.fd);
    if (g->hello.purpose != COLL__PURPOSE_JOIN || place == h->me) {
        coll__refuse(h->old, &g->pipe, COLL_ERR_PROTOCOL, "it is not expected here");
    } else if (place < h->me && h->lines[place].pipe.fd >= 0) {
        coll__pipe_close(&g->pipe);
    } else {
        coll__tune_socket(g->pipe.fd);
        coll__member_line_up(h, place, &g->pipe);
    }
}

/* A member that has a proposer accepts nothing: others may have its decision already, and connect for the new job. */
static bool coll__agreement_accepts(const coll__agreement *h)
{
    const coll__consensus *c = h->consensus;

    return c->role != COLL__CONSENSUS_FOLLOWS || h->lines[c->proposer].pipe.fd < 0 || !h->lines[c->proposer].is_lasting;
}

static void coll__agreement_accept(coll__agreement *h)
{
    coll__tcp *tcp = h->old;

    if (!coll__agreement_accepts(h)) return;
    pthread_mutex_lock(&tcp->accept_lock);
    if (!tcp->is_deaf) (void)coll__accept_all(tcp);
    coll__handshakes_go_on(tcp);
    pthread_mutex_unlock(&tcp->accept_lock);
    coll__accept_tidy(tcp);
}

/* ---- >>running ---- */

/* What to poll a line for; fd -1: nothing. */
static struct pollfd coll__member_watch(coll__member_line *line)
{
    const short want = (short)(POLLIN | (line->length > 0 ? POLLOUT : 0));

    if (line->pipe.fd >= 0) return (struct pollfd){ .fd = line->pipe.fd, .events = coll__pipe_await(&line->pipe, want) };
    const coll__handshake *g = line->dialler.handshake;
    return g ? (struct pollfd){ .fd = g->pipe.fd, .events = g->want } : (struct pollfd){ .fd = -1 };
}

static void coll__agreement_wait(coll__agreement *h, int64_t until)
{
    const coll__tcp *tcp = h->old;
    const bool is_busy = coll__consensus_is_busy(h->consensus), has_listener = is_busy && coll__agreement_accepts(h);
    int n = 0, ms;

    h->fds[n++] = (struct pollfd){ .fd = tcp->is_deaf || !has_listener ? -1 : tcp->listener, .events = POLLIN };
    for (int i = 0; has_listener && i < tcp->handshake_count; i++) {
        const coll__handshake *g = &tcp->handshakes[i];
        if (g->pipe.fd >= 0 && g->step != COLL__HANDSHAKE_OVER && g->want)
            h->fds[n++] = (struct pollfd){ .fd = g->pipe.fd, .events = g->want };
    }
    for (int i = 0; i < h->count; i++) {
        const struct pollfd at = coll__member_watch(&h->lines[i]);
        if (at.fd >= 0) h->fds[n++] = at;
        else if (is_busy && coll__consensus_wants(h->consensus, i) && h->lines[i].dialler.call_at < until)
            until = h->lines[i].dialler.call_at;
    }
    ms = coll__ms_until(until, COLL__AGREE_LOOK_MS);
    for (int i = 1; i < n; i++) if (h->fds[i].events == 0) ms = 0;
    (void)poll(h->fds, (nfds_t)n, ms);
}

/* A new proposer leaves others some time to call.  One that follows another now closes the lines of its members: while they
 * have it as a proposer, they accept no other. */
static void coll__agreement_check_role(coll__agreement *h)
{
    const coll__consensus *c = h->consensus;
    const bool gives_way = h->role == COLL__CONSENSUS_PROPOSES && c->role == COLL__CONSENSUS_FOLLOWS;

    if (c->role == h->role && c->proposer == h->follows) return;
    h->role = c->role;
    h->follows = c->proposer;
    for (int i = 0; i < h->count; i++) {
        if (gives_way && i != c->proposer && h->lines[i].pipe.fd >= 0) coll__member_line_down(h, i);
        h->lines[i].dialler.call_at = c->role == COLL__CONSENSUS_PROPOSES ? coll__deadline(COLL__AGREE_LOOK_MS) : 0;
        h->lines[i].dialler.calls = h->lines[i].dialler.refusals = 0;
    }
}

static void coll__agreement_advance(coll__agreement *h)
{
    coll__consensus *c = h->consensus;

    coll__agreement_look(h);
    coll__agreement_accept(h);
    for (int i = 0; i < h->count && coll__consensus_is_busy(c); i++) {
        if (h->lines[i].pipe.fd >= 0) coll__member_hear(h, i);
        else if (coll__consensus_wants(c, i)) coll__member_call(h, i);
        else coll__dial_end(&h->lines[i].dialler.handshake);
    }
    if (!coll__consensus_is_busy(c)) return;
    coll__consensus_tick(c, coll__now());
    if (c->role == COLL__CONSENSUS_DECIDED && !coll__consensus_is_behind(c)) h->decider = h->me;
    coll__agreement_check_role(h);
    for (int i = 0; i < h->count; i++) (void)coll__member_tell(h, i);
}

/* Send the last notes. */
static void coll__agreement_tell(coll__agreement *h)
{
    const int64_t deadline = coll__deadline(COLL__LAST_NOTES_MS);

    for (;;) {
        bool is_all = true;
        for (int i = 0; i < h->count; i++) is_all = coll__member_tell(h, i) && is_all;
        if (is_all || coll__now() >= deadline) return;
        coll__agreement_wait(h, deadline);
    }
}

/* Begin the agreement, or begin it again after an error. */
static void coll__agreement_begin(coll__agreement *h, const coll_survivors *out)
{
    coll__consensus *c = h->consensus;

    coll__consensus_learn(c, out->known);
    for (int i = 0; i < h->count; i++) {
        if (h->lines[i].pipe.fd >= 0) coll__consensus_up(c, i);
        else coll__consensus_down(c, i);
        c->places[i].is_suspect = h->lines[i].is_lasting = false;
    }
    coll__consensus_begin(c, out->is_agree ? COLL__DECIDES_FLAGS : COLL__DECIDES_GO_ON,
                          out->is_agree ? out->flags : h->newcomers, coll__now(), h->grace_ms * (int64_t)COLL__MS,
                          h->deadline);
    h->decider = -1;
    coll__agreement_check_role(h);
}

/* Run the agreement, unless an earlier call has.  COLL_OK: the decision is in h->consensus->past. */
static coll_status coll__agreement_run(coll__agreement *h, const coll_survivors *out)
{
    coll__consensus *const c = h->consensus;

    coll__agreement_begin(h, out);
    while (coll__consensus_is_busy(c)) {
        coll__agreement_advance(h);
        if (coll__consensus_is_busy(c)) coll__agreement_wait(h, coll__consensus_next(c));
    }
    coll__agreement_tell(h);
    if (c->role == COLL__CONSENSUS_DECIDED) return c->past.kind == c->kind ? COLL_OK : coll__failed_over(h->failure);
    if (c->role == COLL__CONSENSUS_GIVEN_UP) (void)coll__failed_given_up(h->failure);
    else (void)coll__failed_too_few(h->failure, c->counted, c->count);
    coll__shortage_add(h->old, h->failure);
    return h->failure->status;
}

#endif /* COLL_TCP_CONSENSUS_H */
