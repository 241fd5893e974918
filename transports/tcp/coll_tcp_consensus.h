/* coll_tcp_consensus.h - consensus after a failure: the surviving ranks agree on the members of the next job.
 *
 * All ranks have the table of endpoints, and the listeners are still open.  `ranks` lists the candidates.  Each rank connects
 * to the ranks before it in this list, in order, until one answers: the proposer (`proposer` in the code).  If none before it is
 * left, a rank is itself the proposer.  The proposer admits ranks that connect, and connects to the others.  If a connect is
 * refused, that rank is lost.  Then the proposer proposes a table: one byte for each rank of the list, 1 for members.
 *
 *     acceptors               proposer
 *     hello ->                            its world id: hash of the old world id and the list
 *                          <- welcome (base)          prepare: accept no proposal below base from any rank
 *     hold (proposal, base) ->            promise, with the last proposal accepted; 0: none
 *                          <- missing     repeated: a sign of life
 *     hold (proposal, base) ->            its answer: ranks that fail together are detected together
 *                          <- table (proposal)
 *     hold (proposal, base) ->            accepted
 *                          <- agreed      once all present have accepted; or refuse: no quorum
 *
 * This is Paxos.  The base of a proposer consists of a round and its index; its proposals are numbered from there.  If an
 * acceptor has promised more, it says so, and the proposer starts the next round.  A proposer needs a quorum.  It must propose
 * what any acceptor present has accepted before, for that may be decided.  So all ranks that get a table get the same one, no
 * matter which ranks die and which proposer they reach.  If the table contains a dead rank, the new job fails at once, and
 * shrinks in turn.  A late rank is marked late in the next agreement too, so it is not waited for twice.  A rank with the
 * table sends it to each rank that still connects for this agreement (coll__past_told); a rank learns so that it is not a
 * member.
 *
 * A rank keeps its promise and its accepted proposal as long as its job (coll__acceptor).  coll_shrink may fail and be called
 * again.  A proposer may replace its own undecided proposal, for no other rank could have decided it.
 *
 * Received data is read before a rank is declared lost.  A closed connection is detected at once.  A rank that sends nothing
 * for `grace_ms` is late; it may only be slow.  With a quorum, late ranks are not waited for.  Without one, the proposer keeps
 * connecting, and gives up its role if an earlier proposer answers.  So all live ranks reach the same proposer in the end. */
#ifndef COLL_TCP_CONSENSUS_H
#define COLL_TCP_CONSENSUS_H

enum {
    COLL__AGREE_GRACE_MS = 10000, COLL__AGAIN_MS = 20, COLL__AGREE_LOOK_MS = 50,
    COLL__CALL_AGAIN_MS = 200,                    /* to a rank that was not ready                             */
    COLL__SIGNS = 8                               /* signs of life per grace_ms                               */
};

/* Receives control messages; some have a table behind them. */
typedef struct coll__heard {
    coll__pipe     pipe;
    unsigned char *bytes;                         /* a control message and a table                            */
    size_t         length;                        /* received                                                 */
    coll__control  control;                       /* last complete control message                            */
    uint64_t       ballot, promise;               /* of that message                                          */
} coll__heard;

/* An acceptor that has connected to the proposer. */
typedef struct coll__voter {
    coll__heard heard;
    uint64_t    asked;                            /* the ballot that it was sent to accept                    */
    uint64_t    holds;                            /* last ballot that it has accepted                         */
    int         owes;                             /* answers: one for each message sent                       */
    int64_t     silent_since;                     /* valid while owes > 0                                     */
} coll__voter;

/* A connection attempt to another rank. */
typedef struct coll__dialling {
    coll__handshake *handshake;                   /* NULL: none in progress                                   */
    coll__heard  heard;                           /* after the handshake                                      */
    int          way;                             /* index of the next address                                */
    unsigned     refusing;                        /* addresses that refuse the connect, a bit for each        */
    int64_t      call_at;                         /* do not connect earlier                                   */
    int64_t      turned_away_at;                  /* since when it is not ready; 0: ready, or unknown         */
} coll__dialling;

typedef struct coll__agreement {
    coll__tcp     *old;
    coll__identity us;                            /* rank: index in the list                                  */
    const int     *ranks;                         /* the list: ranks of the old job                           */
    int            count, me;
    unsigned char *is_there;                      /* by index, as the next three                              */
    unsigned char *is_lost;                       /* it refuses connects, or has left                         */
    unsigned char *is_late;                       /* no answer in time                                        */
    unsigned char *is_said_dead;                  /* dead in the old job's view                               */
    coll__acceptor *own;                          /* promise and accepted proposal, kept between calls        */
    uint64_t       base;                          /* proposer: promised by those present; 0: not the proposer */
    coll__voter *voters;                          /* proposer: by index                                       */
    coll__dialling *calls;                        /* proposer: to all absent ranks; others: to the proposer   */
    struct pollfd *fds;
    int            grace_ms;
    int            shortage;                      /* errno of the last socket that could not be made; 0: none */
    int            proposer;                      /* the proposer that sent the decision on a lasting connection; -1: none */
    int64_t        began, deadline, sign_at;      /* began: when this rank became the proposer                */
    coll_failure  *failure;
} coll__agreement;

/* Read the failures that the old job's heartbeat knows.  Rank 0 has received from all others.  Without rank 0, each rank has
 * only its own view, which may be wrong: such a rank is marked late, not lost. */
static void coll__agreement_look(coll__agreement *h)
{
    coll__heartbeat *p = &h->old->heartbeat;
    const int64_t now = coll__now();

    pthread_mutex_lock(&p->lock);
    const bool is_detector = p->rank == 0 && p->has_thread && now - p->turned_at < coll__liveness(p) / 2;
    for (int i = 0; i < h->count; i++) {
        const int rank = h->ranks[i];
        if (i == h->me || h->is_there[i]) continue;
        const bool is_silent = is_detector && p->lines[rank].pipe.fd >= 0 && now - p->lines[rank].heard_at > coll__liveness(p);
        if (p->has_left[rank] || is_silent || (p->rank == 0 && p->is_dead[rank])) h->is_lost[i] = 1;
        if (p->is_dead[rank] && !h->is_said_dead[i]) h->is_said_dead[i] = h->is_late[i] = 1;
    }
    pthread_mutex_unlock(&p->lock);
}

/* Until when an answer or a sign of life may be missing.  Near the deadline two missing signs are enough. */
static int64_t coll__agreement_timeout(const coll__agreement *h, int64_t since)
{
    const int64_t grace = h->grace_ms * (int64_t)COLL__MS, two_signs = since + 2 * grace / COLL__SIGNS;
    const int64_t last = two_signs > h->deadline ? two_signs : h->deadline;

    return since + grace < last ? since + grace : last;
}

/* A rank has connected, or answered. */
static void coll__agreement_lives(coll__agreement *h, int place) { h->is_lost[place] = h->is_late[place] = 0; }

/* The proposer, as far as this rank knows. */
static int coll__agreement_first(const coll__agreement *h)
{
    int i = 0;

    while (i < h->me && (h->is_lost[i] || h->is_late[i])) i++;
    return i;
}

/* ---- >>control messages ---- */

static bool coll__heard_open(const coll__agreement *h, coll__heard *heard, coll__pipe *pipe)
{
    if (!heard->bytes) heard->bytes = (unsigned char *)coll__take(coll__like(h->old), COLL__CONTROL_LENGTH + (size_t)h->count);
    heard->pipe = coll__pipe_take(pipe);
    heard->length = 0;
    if (heard->bytes) return true;
    coll__pipe_close(&heard->pipe);
    return false;
}

static inline const unsigned char *coll__heard_table(const coll__heard *heard) { return heard->bytes + COLL__CONTROL_LENGTH; }

/* The next control message, with its table.  COLL_PENDING: incomplete; COLL_ERR_PEER: the connection is closed. */
static coll_status coll__heard_next(const coll__agreement *h, coll__heard *heard)
{
    int error = coll__pipe_fill(&heard->pipe, heard->bytes, &heard->length, COLL__CONTROL_LENGTH);

    if (!error && !coll__control_read(heard->bytes, h->count, &heard->control)) return COLL_ERR_PEER;
    if (!error) {
        const bool has_text = heard->control.note == COLL__CONTROL_REFUSE;
        heard->ballot = has_text ? 0 : coll__get64(heard->bytes + COLL__CONTROL_TEXT);
        heard->promise = has_text ? 0 : coll__get64(heard->bytes + COLL__CONTROL_TEXT + 8);
        const size_t table = heard->ballot > 0 ? (size_t)h->count : 0;
        error = coll__pipe_fill(&heard->pipe, heard->bytes, &heard->length, COLL__CONTROL_LENGTH + table);
    }
    if (error) return error == EAGAIN ? COLL_PENDING : COLL_ERR_PEER;
    heard->length = 0;
    return COLL_OK;
}

static void coll__heard_close(coll__heard *heard)
{
    coll__pipe_close(&heard->pipe);
    coll__give(heard->bytes);
    heard->bytes = NULL;
}

/* Accept a proposal, instead of an earlier one. */
static void coll__agreement_hold(coll__agreement *h, uint64_t ballot, const unsigned char *table)
{
    if (ballot <= h->own->ballot) return;
    h->own->ballot = ballot;
    h->own->is_bound = true;
    memcpy(h->own->table, table, (size_t)h->count);
}

/* Record the decision. */
static void coll__agreement_settle(coll__agreement *h, const unsigned char *table)
{
    memmove(h->own->table, table, (size_t)h->count);
    h->own->ballot = COLL__BALLOT_DECIDED;
}

/* Is the last control message the decision?  Then record it. */
static bool coll__heard_decision(coll__agreement *h, const coll__heard *heard)
{
    const bool is_decision = heard->control.note == COLL__CONTROL_AGREED && heard->ballot > 0;

    if (is_decision) coll__agreement_settle(h, coll__heard_table(heard));
    return is_decision;
}

/* ---- >>connecting ---- */

static void coll__dialling_ends(coll__dialling *c)
{
    if (c->handshake) coll__pipe_close(&c->handshake->pipe);
    coll__give(c->handshake);
    c->handshake = NULL;
    coll__pipe_close(&c->heard.pipe);
}

/* End an attempt, and pause before the next one. */
static void coll__dialling_rests(const coll__agreement *h, coll__dialling *c)
{
    coll__dialling_ends(c);
    c->call_at = coll__deadline(h->base > 0 ? COLL__CALL_AGAIN_MS : COLL__AGAIN_MS);
}

/* No connection: use the next address, and pause after the last one.  If all addresses refuse, the rank is lost. */
static void coll__dialling_hopeless(coll__agreement *h, int to, int error)
{
    coll__dialling *c = &h->calls[to];
    const int count = h->old->endpoints[h->ranks[to]].count;

    if (error == ECONNREFUSED) c->refusing |= 1u << (unsigned)((c->way - 1) % count);
    else c->refusing = 0;
    if (c->refusing == (1u << (unsigned)count) - 1) h->is_lost[to] = 1;
    if (c->way % count == 0) coll__dialling_rests(h, c);
    else coll__dialling_ends(c);
}

static void coll__dialling_begin(coll__agreement *h, int to)
{
    coll__dialling *c = &h->calls[to];
    const int rank = h->ranks[to], count = h->old->endpoints[rank].count;
    const coll__hello hello = { .purpose = COLL__PURPOSE_JOIN, .to = to };

    if (count == 0) h->is_lost[to] = 1;
    if (count == 0) return;
    const coll__address a = coll__endpoint_address(h->old, rank, c->way++ % count);
    const int fd = coll__dial(&a), error = errno;
    if (fd < 0 && coll__is_shortage(error)) h->shortage = error;
    if (fd < 0) coll__dialling_hopeless(h, to, error);
    else c->handshake = (coll__handshake *)coll__take(coll__like(h->old), sizeof *c->handshake);
    if (c->handshake) coll__handshake_call(c->handshake, &h->us, fd, hello, coll__never);
    else if (fd >= 0) close(fd);
}

/* Continue an attempt without blocking.  true: a control message has arrived. */
static bool coll__dialling_advance(coll__agreement *h, int to)
{
    coll__dialling *c = &h->calls[to];
    coll_status status = COLL_OK;

    if (!c->handshake && c->heard.pipe.fd < 0 && coll__now() >= c->call_at) coll__dialling_begin(h, to);
    if (!c->handshake && c->heard.pipe.fd < 0) return false;
    if (c->handshake && c->handshake->step == COLL__HANDSHAKE_SAY && c->handshake->length == 0) {
        struct pollfd at = { .fd = c->handshake->pipe.fd, .events = POLLOUT };
        if (poll(&at, 1, 0) <= 0) return false;
        const int error = coll__dial_result(at.fd);
        if (error) coll__dialling_hopeless(h, to, error);
        if (error) return false;
        c->refusing = 0;
    }
    if (c->handshake) {
        status = coll__handshake_advance(c->handshake, &h->us);
        if (status == COLL_OK && !coll__heard_open(h, &c->heard, &c->handshake->pipe)) status = COLL_ERR_MEMORY;
        if (status == COLL_OK) {
            coll__give(c->handshake);
            c->handshake = NULL;
        }
    }
    if (status == COLL_OK) status = coll__heard_next(h, &c->heard);
    if (status >= 0) return status == COLL_OK;
    if (!c->turned_away_at && status != COLL_ERR_PEER) c->turned_away_at = coll__now();
    coll__dialling_rests(h, c);
    return false;
}

/* What to poll for; events 0: nothing, continue at once. */
static struct pollfd coll__dialling_watch(coll__dialling *c)
{
    if (c->handshake) return (struct pollfd){ .fd = c->handshake->pipe.fd, .events = c->handshake->want };
    if (c->heard.pipe.fd < 0) return (struct pollfd){ .fd = -1, .events = POLLIN };
    return (struct pollfd){ .fd = c->heard.pipe.fd, .events = coll__pipe_await(&c->heard.pipe, POLLIN) };
}

/* ---- >>the proposer ---- */

/* Drop its connection.  Only a new connect shows whether it is alive: it may have closed an old connection after a suspension. */
static void coll__voter_lost(coll__agreement *h, int place)
{
    coll__heard_close(&h->voters[place].heard);
    memset(&h->voters[place], 0, sizeof h->voters[place]);
    h->voters[place].heard.pipe.fd = -1;
    h->is_there[place] = 0;
}

/* Send it a control message, with the table if the message has a ballot. */
static void coll__voter_send(coll__agreement *h, int place, coll__control_note note, uint64_t ballot, uint64_t promise)
{
    coll__voter *g = &h->voters[place];

    if (g->owes++ == 0) g->silent_since = coll__now();
    if (!coll__table_send(&g->heard.pipe, note, h->me, ballot, promise, h->own->table, ballot > 0 ? h->count : 0))
        coll__voter_lost(h, place);
}

/* Send prepare.  The rank is present once it has promised. */
static void coll__voter_ask(coll__agreement *h, int place)
{
    coll__voter *g = &h->voters[place];

    h->is_there[place] = 0;
    g->asked = g->holds = 0;
    coll__voter_send(h, place, COLL__CONTROL_WELCOME, 0, h->base);
}

/* Start a round above all known promises. */
static void coll__agreement_raise(coll__agreement *h, uint64_t promised)
{
    h->base = h->own->promised = ((promised >> 48) + 1) << 48 | (uint64_t)h->me << 32;
    for (int i = 0; i < h->count; i++) if (h->voters[i].heard.pipe.fd >= 0) coll__voter_ask(h, i);
}

/* Receive promises and accepted proposals from all acceptors. */
static void coll__agreement_hear(coll__agreement *h)
{
    const int64_t now = coll__now();

    for (int i = 0; i < h->count; i++) {
        coll__voter *g = &h->voters[i];
        coll_status status = COLL_PENDING;
        if (g->heard.pipe.fd < 0) continue;
        while ((status = coll__heard_next(h, &g->heard)) == COLL_OK && g->heard.control.note == COLL__CONTROL_HOLD) {
            const uint64_t ballot = g->heard.ballot;
            g->owes -= g->owes > 0;
            g->silent_since = now;
            if (g->heard.promise > h->base) coll__agreement_raise(h, g->heard.promise);
            if (g->heard.promise != h->base) continue;        /* answer to an earlier prepare                 */
            g->holds = ballot;
            if (!h->is_there[i]) coll__agreement_hold(h, ballot, coll__heard_table(&g->heard));
            h->is_there[i] = 1;
            h->calls[i].turned_away_at = 0;
            coll__agreement_lives(h, i);
        }
        const bool is_late = g->owes > 0 && now > coll__agreement_timeout(h, g->silent_since);
        if (status != COLL_PENDING || is_late) coll__voter_lost(h, i);
        if (status == COLL_PENDING && is_late) h->is_late[i] = 1;
    }
}

/* A handshake is complete.  false: it must wait. */
static bool coll__agreement_admit(coll__agreement *h, coll__handshake *g)
{
    const int place = g->hello.rank;
    const bool is_proposer = h->base > 0, is_call = g->hello.purpose == COLL__PURPOSE_JOIN && place != h->me;

    if (is_call && (place < h->me ? is_proposer && coll__is_quorum(h->is_there, h->count) : !is_proposer)) return false;
    coll__io_forget(&h->old->io, g->pipe.fd);
    if (is_call && place < h->me) {               /* an earlier proposer is alive: connect to it              */
        coll__agreement_lives(h, place);
        coll__pipe_close(&g->pipe);
        return true;
    }
    if (!is_call || h->voters[place].heard.pipe.fd >= 0) {
        coll__refuse(h->old, &g->pipe, COLL_ERR_PROTOCOL, "it is not expected here");
        return true;
    }
    coll__tune_socket(g->pipe.fd);
    coll__agreement_lives(h, place);              /* wait for it until it answers                             */
    if (coll__heard_open(h, &h->voters[place].heard, &g->pipe)) coll__voter_ask(h, place);
    return true;
}

static void coll__agreement_accept(coll__agreement *h)
{
    coll__tcp *tcp = h->old;

    pthread_mutex_lock(&tcp->accept_lock);
    if (!tcp->is_deaf) (void)coll__accept_all(tcp);
    coll__handshakes_go_on(tcp);
    pthread_mutex_unlock(&tcp->accept_lock);
    coll__accept_tidy(tcp);
}

/* Connect to absent ranks.  true: a rank has sent the decision, now in h->own->table. */
static bool coll__agreement_call_all(coll__agreement *h)
{
    const int64_t now = coll__now();

    for (int i = 0; i < h->count; i++) {
        coll__dialling *c = &h->calls[i];
        const bool is_absent = i != h->me && !h->is_lost[i] && !h->is_there[i] && h->voters[i].heard.pipe.fd < 0;
        if (is_absent && coll__dialling_advance(h, i)) {
            if (coll__heard_decision(h, &c->heard)) return true;
            if (c->heard.control.note == COLL__CONTROL_WELCOME) coll__agreement_lives(h, i);      /* an earlier proposer */
            if (c->heard.control.note == COLL__CONTROL_REFUSE && !c->turned_away_at) c->turned_away_at = now;
            coll__dialling_ends(c);
        }
        if (!is_absent) coll__dialling_ends(c);
        else if (c->turned_away_at && now - c->turned_away_at > h->grace_ms * (int64_t)COLL__MS) h->is_late[i] = 1;
    }
    return false;
}

/* Send a sign of life to all present, which must answer: otherwise an acceptor is silent until it gets a table. */
static void coll__agreement_sign(coll__agreement *h)
{
    const int64_t now = coll__now();

    if (now < h->sign_at) return;
    h->sign_at = now + h->grace_ms * (int64_t)COLL__MS / COLL__SIGNS;
    for (int i = 0; i < h->count; i++)
        if (h->is_there[i] && i != h->me) coll__voter_send(h, i, COLL__CONTROL_MISSING, 0, 0);
}

static void coll__agreement_wait(coll__agreement *h, int64_t until)
{
    const coll__tcp *tcp = h->old;
    int n = 0, ms = coll__ms_until(until, COLL__AGREE_LOOK_MS);

    h->fds[n++] = (struct pollfd){ .fd = tcp->is_deaf ? -1 : tcp->listener, .events = POLLIN };
    for (int i = 0; i < tcp->handshake_count; i++) {
        const coll__handshake *g = &tcp->handshakes[i];
        if (g->pipe.fd < 0 || g->step == COLL__HANDSHAKE_OVER || !g->want) continue;
        h->fds[n++] = (struct pollfd){ .fd = g->pipe.fd, .events = g->want };
    }
    for (int i = 0; i < h->count; i++) {
        coll__pipe *pipe = &h->voters[i].heard.pipe;
        if (pipe->fd >= 0) h->fds[n++] = (struct pollfd){ .fd = pipe->fd, .events = coll__pipe_await(pipe, POLLIN) };
        const struct pollfd at = coll__dialling_watch(&h->calls[i]);
        if (at.fd >= 0) h->fds[n++] = at;
    }
    for (int i = 0; i < n; i++) if (h->fds[i].events == 0) ms = 0;
    (void)poll(h->fds, (nfds_t)n, ms);
}

/* There is a quorum, and no other rank is waited for: propose a table.  true: all present have accepted.  They send nothing
 * more in this agreement, so their connections can serve the new job. */
static bool coll__agreement_propose(coll__agreement *h)
{
    coll__acceptor *own = h->own;
    bool is_accepted = true;

    if (own->ballot < h->base || (!own->is_bound && memcmp(h->own->table, h->is_there, (size_t)h->count))) {
        if (!own->is_bound) memcpy(h->own->table, h->is_there, (size_t)h->count);
        own->ballot = own->ballot < h->base ? h->base : own->ballot + 1;
    }
    for (int i = 0; i < h->count; i++) {
        coll__voter *g = &h->voters[i];
        if (i == h->me || !h->is_there[i]) continue;
        if (g->asked != own->ballot || g->holds != own->ballot || g->owes > 0) is_accepted = false;
        if (g->asked == own->ballot) continue;
        g->asked = own->ballot;
        coll__voter_send(h, i, COLL__CONTROL_TABLE, own->ballot, 0);
    }
    if (is_accepted) coll__agreement_settle(h, h->own->table);
    return is_accepted;
}

/* Count the ranks present, and those that may still connect.  Without a quorum late ranks are waited for, except a rank that
 * the old job declared dead and that stays silent.  may_be_enough: the ranks that are not lost may be a quorum. */
static int coll__agreement_tally(const coll__agreement *h, int *open, bool *may_be_enough)
{
    const bool is_enough = coll__is_quorum(h->is_there, h->count);
    const bool has_waited = coll__now() - h->began > h->grace_ms * (int64_t)COLL__MS;
    int there = 0, most = 0;

    *open = 0;
    for (int i = 0; i < h->count; i++) {
        const bool may_come = !h->is_late[i] || !(is_enough || (h->is_said_dead[i] && has_waited));
        there += h->is_there[i];
        most += !h->is_lost[i];
        *open += !h->is_there[i] && !h->is_lost[i] && may_come;
    }
    *may_be_enough = coll__is_enough(most, !h->is_lost[0], h->count);
    return there;
}

/* Stop being the proposer, for an earlier one is alive.  The acceptors find it, too. */
static void coll__agreement_leave(coll__agreement *h)
{
    for (int i = 0; i < h->count; i++) {
        if (h->voters[i].heard.pipe.fd >= 0) coll__voter_lost(h, i);
        coll__dialling_ends(&h->calls[i]);
        if (i > h->me) coll__agreement_lives(h, i);
    }
    h->is_there[h->me] = 0;
    h->base = 0;
}

/* Act as the proposer.  COLL_OK: decided, in h->own->table.  COLL_PENDING: another rank is the proposer. */
static coll_status coll__agreement_seek(coll__agreement *h)
{
    int64_t until = h->deadline;
    int before = 1, open;
    bool may_be_enough;

    h->is_there[h->me] = 1;
    h->began = coll__now();
    coll__agreement_raise(h, h->own->promised);
    for (int i = 0; i < h->count; i++) {
        h->calls[i].call_at = coll__deadline(COLL__AGREE_LOOK_MS);
        h->calls[i].turned_away_at = 0;
    }
    for (;;) {
        coll__agreement_look(h);
        coll__agreement_accept(h);
        coll__agreement_hear(h);
        if (coll__agreement_call_all(h)) return COLL_OK;
        const int there = coll__agreement_tally(h, &open, &may_be_enough);
        const bool is_enough = coll__is_quorum(h->is_there, h->count);
        if (coll__agreement_first(h) < h->me && coll__now() < h->deadline) {
            coll__agreement_leave(h);
            return COLL_PENDING;
        }
        /* without a quorum the others are waited for only to be counted */
        if (!is_enough) until = may_be_enough ? h->deadline : h->began + h->grace_ms * (int64_t)COLL__MS;
        else if (there != before || until == h->deadline) until = coll__deadline(h->grace_ms);
        if (until > h->deadline) until = h->deadline;
        before = there;
        const bool is_time = open == 0 || coll__now() >= until;
        char why[80];
        if (is_time && !is_enough && h->shortage)
            return coll__set_failure(h->failure, COLL_ERR_PEER, -1,
                                     "only %d of %d ranks were reached: this rank has nothing left for "
                                     "a connection: %s", there, h->count, coll__shortage_text(h->shortage, why, sizeof why));
        if (is_time && !is_enough)
            return coll__set_failure(h->failure, COLL_ERR_PEER, -1,
                                     "only %d of %d ranks are left: that is not most of them, and the "
                                     "others might go on elsewhere", there, h->count);
        if (is_time && coll__agreement_propose(h)) return COLL_OK;
        coll__agreement_sign(h);
        coll__agreement_wait(h, is_time ? coll__never : until);
    }
}

/* Send the decision, or the failure, to all present.  Connections with outstanding answers are closed, for the new job would
 * read these; such ranks connect again. */
static void coll__agreement_tell(coll__agreement *h)
{
    const coll_failure *why = h->failure;

    for (int i = 0; i < h->count; i++) {
        coll__pipe *pipe = &h->voters[i].heard.pipe;
        if (why->status == COLL_OK && (h->voters[i].owes > 0 || !h->is_there[i])) coll__pipe_close(pipe);
        if (pipe->fd < 0 || !h->is_there[i]) continue;
        if (why->status == COLL_OK)
            (void)coll__table_send(pipe, COLL__CONTROL_AGREED, h->me, COLL__BALLOT_DECIDED, 0, h->own->table,
                                   h->count);
        else
            coll__control_send(pipe, COLL__CONTROL_REFUSE, why->status, -1, why->text);
    }
}

/* ---- >>acceptors ---- */

/* Send the promise and the last accepted proposal. */
static bool coll__agreement_say(const coll__agreement *h, coll__pipe *pipe)
{
    return coll__table_send(pipe, COLL__CONTROL_HOLD, h->me, h->own->ballot, h->own->promised, h->own->table, h->count);
}

/* Take part after the proposer's welcome.  COLL_OK: decided.  COLL_PENDING: the proposer is lost.  Errors are those of the
 * agreement. */
static coll_status coll__agreement_serve(coll__agreement *h, coll__heard *heard)
{
    int64_t heard_at = coll__now();
    coll_status status = COLL_OK;

    for (;;) {
        for (; status == COLL_OK; status = coll__heard_next(h, heard)) {
            const coll__control_note note = heard->control.note;
            heard_at = coll__now();
            if (note == COLL__CONTROL_REFUSE)
                return coll__set_failure(h->failure, heard->control.what.status, -1, "%s", heard->control.what.text);
            if (coll__heard_decision(h, heard)) return COLL_OK;
            if (note != COLL__CONTROL_TABLE && note != COLL__CONTROL_WELCOME && note != COLL__CONTROL_MISSING) continue;
            if (heard->promise > h->own->promised) h->own->promised = heard->promise;
            if (heard->ballot >= h->own->promised) coll__agreement_hold(h, heard->ballot, coll__heard_table(heard));
            if (!coll__agreement_say(h, &heard->pipe)) return COLL_PENDING;
        }
        const int64_t until = coll__agreement_timeout(h, heard_at);
        if (status < 0 || coll__now() > until) return COLL_PENDING;
        struct pollfd at = { .fd = heard->pipe.fd, .events = coll__pipe_await(&heard->pipe, POLLIN) };
        if (at.events) (void)poll(&at, 1, coll__ms_until(until, 1000));
        status = coll__heard_next(h, heard);
    }
}

/* Connect to a proposer.  Returns as above; COLL_PENDING also if an earlier proposer is alive. */
static coll_status coll__agreement_join(coll__agreement *h, int proposer)
{
    coll__dialling *c = &h->calls[proposer];
    const int64_t soon = coll__deadline(h->grace_ms), until = soon < h->deadline ? soon : h->deadline;
    coll_status status = COLL_PENDING;

    c->way = 0;
    c->refusing = 0;
    c->call_at = 0;
    for (;;) {
        coll__agreement_look(h);
        coll__agreement_accept(h);
        const bool has_note = coll__dialling_advance(h, proposer);
        if (has_note && c->heard.control.note == COLL__CONTROL_WELCOME) {
            status = coll__agreement_serve(h, &c->heard);
            break;
        }
        const bool is_decided = has_note && coll__heard_decision(h, &c->heard);
        if (has_note) coll__dialling_rests(h, c);  /* it has not noticed the failure yet, or its connection is not needed */
        if (is_decided) return COLL_OK;
        if ((!has_note && coll__agreement_first(h) != proposer) || coll__now() >= until) break;
        struct pollfd at = coll__dialling_watch(c);
        if (at.events) (void)poll(&at, 1, coll__ms_until(at.fd < 0 ? c->call_at : until, COLL__AGREE_LOOK_MS));
    }
    if (status == COLL_OK) h->proposer = proposer;
    else coll__dialling_ends(c);
    if (status == COLL_PENDING && coll__agreement_first(h) == proposer) h->is_late[proposer] = 1;
    return status;
}

/* Run the agreement, unless an earlier call has.  COLL_OK: the decision is in h->own->table. */
static coll_status coll__agreement_run(coll__agreement *h)
{
    coll_status status = h->own->ballot == COLL__BALLOT_DECIDED ? COLL_OK : COLL_PENDING;

    h->proposer = -1;
    while (status == COLL_PENDING) {
        coll__agreement_look(h);
        const int first = coll__agreement_first(h);
        status = first < h->me ? coll__agreement_join(h, first) : coll__agreement_seek(h);
    }
    if (h->base > 0) coll__agreement_tell(h);
    return status;
}

#endif /* COLL_TCP_CONSENSUS_H */
