/* coll_tcp_heartbeat.h - the control connections while a job runs: heartbeats, failure decision, orderly leaves, activity.
 *
 * Every rank has a control connection to rank 0.  On it, each side sends COLL__BEATS heartbeats per liveness_timeout_ms, with
 * its activity.  Silence is measured from the last received bytes.  The limit is liveness_timeout_ms plus one heartbeat
 * interval, so a rank that is suspended for less is never declared dead.  Received bytes are read before a decision, for the
 * detector itself may have been suspended.  Rank 0 is the failure detector for all ranks; each rank watches rank 0.  The first
 * failure that rank 0 detects or receives is the decision.  It sends the decision to all, and after it the ranks that die
 * later.  If rank 0 dies, each rank detects that itself, and uses the same sentence.  If a data connection between two other
 * ranks gets no answers, its ends detect that and report to rank 0.  If rank 0 has left, each rank decides for itself, and
 * probes the ranks that it waits for (coll_tcp_probe.h).
 *
 * A thread does this, so it goes on while the program computes, and stops if the process is suspended.  It shares its state
 * with the calling thread under a lock that is not held while waiting; `news` and a doorbell notify that thread.  Without the
 * thread (liveness_timeout_ms < 0) the calling thread reads the connections when idle, and silence is not detected.
 *
 * Outgoing control messages are not queued: each one is made from the state when the connection can take it. */
#ifndef COLL_TCP_HEARTBEAT_H
#define COLL_TCP_HEARTBEAT_H

#include <pthread.h>
#include <signal.h>

enum {
    COLL__HEARTBEAT_STACK = 256 * 1024, COLL__BEATS = 8,          /* per liveness_timeout_ms                  */
    COLL__ASKED_MOST = 16,
    COLL__HANDSHAKES_MOST = 4096, COLL__HANDSHAKES_SPARE = 240    /* handshakes at the same time; those beyond the ranks' own */
};

typedef struct coll__control_line {
    coll__pipe    pipe;
    struct coll__handshake *handshake;            /* while connecting; NULL on rank 0                         */
    bool          is_wanted;                      /* connect, not before call_at                              */
    bool          is_met;                         /* a control message has arrived: a close is now a death    */
    int           calls;                          /* connection attempts                                      */
    int           refusals;                       /* connects that were refused, in a row                     */
    int64_t       refused_at;                     /* since when every attempt has been refused                */
    int64_t       call_at;
    size_t        length, unsent;                 /* bytes received of the current message; bytes left to send */
    unsigned      wants;                          /* control messages to send, a bit for each                 */
    int           byes_told, deaths_told;         /* number of leaves and deaths sent                         */
    int           asked[COLL__ASKED_MOST], asked_count;           /* ranks to ask rank 0 about, or to answer about */
    int64_t       heard_at;
    int64_t       lost_at;                        /* during the start: when it was lost again; 0: not         */
    int           lost_by;                        /* errno of the close; 0: end of stream                     */
    unsigned char bytes[COLL__CONTROL_LENGTH], out[COLL__CONTROL_LENGTH];
} coll__control_line;

/* A data connection that is watched for missing answers. */
typedef struct coll__path { int fd, peer; int64_t unanswered_at; } coll__path;

typedef struct coll__heartbeat {
    int  rank, size, liveness_ms;
    const coll__endpoint *endpoints;
    struct coll__tcp *tcp;
    coll__control_line *lines;                    /* rank 0: one for each rank; others: [0], to rank 0        */
    int  line_count;                              /* other ranks: 1, or 2 * size (coll_tcp_probe.h)           */
    coll__doorbell ring;                          /* wakes the calling thread, which owns it                  */
    coll__doorbell doorbell;                      /* wakes the heartbeat thread                               */
    bool has_lock, has_thread;
    pthread_t thread;
    struct pollfd *fds;
    int64_t beat_at, turned_at;
    unsigned    news, is_stopping;                /* atomic                                                   */
    const char *abort_text;                       /* atomic; NULL: none                                       */
    pthread_mutex_t lock;                         /* guards the rest, and the control connections             */
    coll_failure decision, report;                /* report: sent to rank 0                                   */
    bool    is_leaving;                           /* leave messages are being sent                            */
    bool    is_asking;                            /* the calling thread has reported, and waits for the decision */
    bool    has_slept;                            /* this process was suspended for a large part of liveness_ms */
    bool    is_taken;                             /* the calling thread has read the decision                 */
    int    *departed, departed_count;             /* ranks that have left, in that order                      */
    int    *dead, dead_count;                     /* ranks that have died, in that order                      */
    unsigned char *has_left, *is_dead;
    unsigned char *was_late;                      /* did not answer during the agreement on this job          */
    unsigned char *reports;                       /* rank 0: calls in which each rank waits                   */
    unsigned char  waiting[COLL__REPORT_LENGTH];
    unsigned char  made[COLL__REPORT_LENGTH];    /* sent when leaving: nothing, and coll__head_of_made        */
    unsigned char  detector_made[COLL__REPORT_LENGTH];       /* of rank 0, once it has left                   */
    coll__beat *beats;                            /* last heartbeat of each rank, also of this one            */
    coll__session *session;                       /* NULL: not known yet                                      */
    uint64_t activity_count;
    int64_t  activity_since;
    coll__path *paths;
    int      path_count, path_room;
} coll__heartbeat;

/* How many handshakes a rank may have at the same time. */
static inline int coll__handshake_room(int size, int lanes)
{
    return (int)coll__least(2 * (size_t)size * (size_t)lanes + COLL__HANDSHAKES_SPARE, COLL__HANDSHAKES_MOST);
}

static inline int64_t coll__liveness(const coll__heartbeat *p) { return (int64_t)p->liveness_ms * COLL__MS; }
static inline int64_t coll__beat_interval(const coll__heartbeat *p) { return coll__liveness(p) / COLL__BEATS; }
static inline int64_t coll__silence_limit(const coll__heartbeat *p) { return coll__liveness(p) + coll__beat_interval(p); }

/* "rank 2 (hostB, pid 4711, 10.0.0.7:4242)" */
static const char *coll__heartbeat_who(const coll__heartbeat *p, int rank, char *text, size_t room)
{
    char where[COLL__ADDRESS_TEXT];
    const coll__endpoint *endpoint = &p->endpoints[rank];
    const coll__address a = coll__address_with(endpoint->addresses[0], endpoint->port);

    if (endpoint->count > 0) coll__address_text(&a, where, sizeof where);
    else coll__print(where, sizeof where, "at no known address");
    if (endpoint->pid) coll__print(text, room, "rank %d (%s, pid %u, %s)", rank, endpoint->name, (unsigned)endpoint->pid, where);
    else coll__print(text, room, "rank %d (%s)", rank, where);
    return text;
}

/* Has this rank lost its failure detector, because rank 0 has left? */
static inline bool coll__is_orphan(const coll__heartbeat *p) { return p->rank != 0 && p->has_left[0]; }

/* Notify the calling thread. */
static void coll__heartbeat_news(coll__heartbeat *p)
{
    __atomic_store_n(&p->news, 1, __ATOMIC_RELEASE);
    coll__doorbell_ring(&p->ring);
}

/* ---- >>sending ---- */

static inline unsigned coll__bit_of(coll__control_note note) { return 1u << (unsigned)note; }

/* Rank 0's answer about a rank. */
static void coll__heartbeat_answer(const coll__heartbeat *p, int rank, unsigned char *out)
{
    coll__beat beat = p->beats[rank];

    if (rank != p->rank && beat.pid) beat.age_ms = (uint32_t)((coll__now() - p->lines[rank].heard_at) / COLL__MS);
    coll__beat_write(out, rank, &beat);
}

/* The next control message for a connection; false: there is none. */
static bool coll__note_next(coll__heartbeat *p, coll__control_line *line, int index)
{
    const unsigned all = line->wants;
    const coll_failure *what = p->decision.status != COLL_OK ? &p->decision : &p->report;
    coll__control_note note = COLL__CONTROL_HEARTBEAT;

    while (p->rank == 0 && line->byes_told < p->departed_count && p->departed[line->byes_told] == index) line->byes_told++;
    if (all & coll__bit_of(COLL__CONTROL_HEARTBEAT)) {
        coll__beat_write(line->out, p->rank, &p->beats[p->rank]);
    } else if (all & coll__bit_of(COLL__CONTROL_FAIL)) {
        note = COLL__CONTROL_FAIL;
        coll__control_write(line->out, note, what->status, what->rank, what->text);
    } else if (p->rank == 0 && p->decision.status != COLL_OK && line->deaths_told < p->dead_count) {
        note = COLL__CONTROL_FAIL;                /* died after the decision                                  */
        coll__control_write(line->out, note, COLL_ERR_PEER, p->dead[line->deaths_told++], "");
    } else if (all & coll__bit_of(COLL__CONTROL_WAITING)) {
        note = COLL__CONTROL_WAITING;
        coll__control_write(line->out, note, COLL_OK, p->rank, "");
        memcpy(line->out + COLL__CONTROL_TEXT, p->waiting, sizeof p->waiting);
    } else if (line->asked_count > 0) {
        note = COLL__CONTROL_WHERE;
        const int rank = line->asked[--line->asked_count];
        if (p->rank == 0) coll__heartbeat_answer(p, rank, line->out);
        else coll__control_write(line->out, note, COLL_OK, rank, "");
    } else if (p->rank == 0 && line->byes_told < p->departed_count) {
        note = COLL__CONTROL_BYE;
        coll__control_write(line->out, note, COLL_OK, p->departed[line->byes_told++], "");
        line->unsent = COLL__CONTROL_LENGTH;
        return true;                              /* this rank's own leave is sent last                       */
    } else if (all & coll__bit_of(COLL__CONTROL_BYE)) {
        note = COLL__CONTROL_BYE;
        coll__control_write(line->out, note, COLL_OK, p->rank, "");
        memcpy(line->out + COLL__CONTROL_TEXT, p->made, sizeof p->made);
    } else {
        return false;
    }
    line->wants &= ~coll__bit_of(note);
    line->unsent = COLL__CONTROL_LENGTH;
    return true;
}

/* Send as much as the connection takes.  If it fails, the next read detects the close. */
static void coll__line_flush(coll__heartbeat *p, int index)
{
    coll__control_line *line = &p->lines[index];

    while (line->pipe.fd >= 0 && (line->unsent > 0 || coll__note_next(p, line, index))) {
        const ssize_t n = coll__pipe_move(&line->pipe, line->out + (COLL__CONTROL_LENGTH - line->unsent), line->unsent, true);
        if (n < 0 && n != -EAGAIN) line->unsent = 0;
        if (n < 0) return;
        line->unsent -= (size_t)n;
    }
}

static void coll__heartbeat_want(coll__heartbeat *p, coll__control_note note)
{
    for (int i = 0; i < p->line_count; i++) if (p->lines[i].pipe.fd >= 0) p->lines[i].wants |= coll__bit_of(note);
}

static void coll__heartbeat_flush(coll__heartbeat *p)
{
    for (int i = 0; i < p->line_count; i++) coll__line_flush(p, i);
}

/* ---- >>failure detection ---- */

/* Was this process suspended so long that others may have declared it dead? */
static bool coll__heartbeat_slept(const coll__heartbeat *p)
{
    return p->has_slept || (p->liveness_ms > 0 && coll__now() - p->turned_at > coll__liveness(p) / 2);
}

/* Record a death, independent of the decision: no call waits for this rank any longer. */
static void coll__heartbeat_dies(coll__heartbeat *p, int rank)
{
    if (!p->is_dead[rank]) p->dead[p->dead_count++] = rank;
    p->is_dead[rank] = 1;
}

/* Set the decision, and send it to all unless it was received from rank 0.  If rank 0 was suspended and others declared it
 * dead, their reports and closes arrive in any order: the decision then is that rank 0 is dead. */
static void coll__heartbeat_decide(coll__heartbeat *p, const coll_failure *failure, bool is_known)
{
    const bool is_given_up = p->rank == 0 && failure->rank == 0 && !p->is_taken && coll__heartbeat_slept(p);
    const bool is_first = p->decision.status == COLL_OK || is_given_up;
    const bool is_death = (failure->status == COLL_ERR_PEER || failure->status == COLL_ERR_TIMEOUT) && failure->rank >= 0;

    if (is_death && (is_first || is_known)) coll__heartbeat_dies(p, failure->rank);
    if (!is_first) return;
    p->decision = *failure;
    if (!is_known) coll__heartbeat_want(p, COLL__CONTROL_FAIL);
    coll__heartbeat_news(p);
}

/* "rank 2 (hostB, ...) is gone" */
static void coll__peer_failure(const coll__heartbeat *p, coll_failure *failure, coll_status status, int rank, const char *what)
{
    char who[COLL__ADDRESS_TEXT + COLL__NAME_LENGTH + 40];

    coll__set_failure(failure, status, rank, "%s %s", coll__heartbeat_who(p, rank, who, sizeof who), what);
}

/* Decide that a rank failed. */
static void coll__heartbeat_failed(coll__heartbeat *p, coll_status status, int rank, const char *what)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__peer_failure(p, &failure, status, rank, what);
    coll__heartbeat_decide(p, &failure, false);
}

/* This rank detected a failure.  At rank 0, or if rank 0 has left, that is the decision.  Otherwise it is reported to rank 0;
 * the first report counts. */
static void coll__heartbeat_report(coll__heartbeat *p, const coll_failure *cause)
{
    const bool is_detector = p->rank == 0 || p->has_left[0];

    if (p->decision.status != COLL_OK) return;
    if (is_detector) coll__heartbeat_decide(p, cause, false);
    if (is_detector || p->report.status != COLL_OK) return;
    p->report = *cause;
    coll__heartbeat_want(p, COLL__CONTROL_FAIL);
}

static bool coll__line_is_watched(const coll__heartbeat *p, int index)
{
    const coll__control_line *line = &p->lines[index];
    const bool is_ours = index < p->size && index < p->line_count;
    const bool is_reached = line->pipe.fd >= 0 || (line->handshake && line->handshake->is_reached);
    return is_ours && is_reached && !p->has_left[index] && !p->is_dead[index];
}

static void coll__line_event(coll__heartbeat *p, int index);

/* Has a rank sent nothing for longer than `most`?  Unread bytes in the socket count as received. */
static bool coll__line_is_silent(coll__heartbeat *p, int index, int64_t now, int64_t most)
{
    if (!coll__line_is_watched(p, index) || now - p->lines[index].heard_at <= most) return false;
    coll__line_event(p, index);
    return coll__line_is_watched(p, index) && now - p->lines[index].heard_at > most;
}

/* The first rank that exceeded the silence limit; -1: none. */
static int coll__first_silent(coll__heartbeat *p, int64_t now)
{
    for (int i = 0; i < p->line_count; i++)
        if (coll__line_is_silent(p, i, now, coll__silence_limit(p))) return i;
    return -1;
}

/* "the link between rank 0 (...) and rank 3 (...) is silent: no answer for 5 s" */
static void coll__failed_link(const coll__heartbeat *p, coll_failure *failure, int suspect, int a, int b, const char *rest)
{
    char one[COLL__ADDRESS_TEXT + COLL__NAME_LENGTH + 40], two[COLL__ADDRESS_TEXT + COLL__NAME_LENGTH + 40];

    coll__set_failure(failure, COLL_ERR_PEER, suspect, "the link between %s and %s is silent: no answer for %.3g s%s",
                      coll__heartbeat_who(p, a < b ? a : b, one, sizeof one),
                          coll__heartbeat_who(p, a < b ? b : a, two, sizeof two),
                      p->liveness_ms * 1e-3, rest);
}

/* Declare ranks dead that exceeded the silence limit.  Heartbeats are periodic: ranks that failed together exceed it at
 * different times, so ranks silent for liveness_timeout_ms are included.  If these are most of the job, rank 0 is cut off. */
static void coll__check_silence(coll__heartbeat *p, int64_t now)
{
    char what[160], others[80] = "", rest[100] = "";
    const int first = coll__first_silent(p, now);
    coll_failure failure = { COLL_OK, -1, "" };
    int count = 0;

    if (first >= 0 && p->decision.status != COLL_OK) coll__heartbeat_dies(p, first);
    if (first < 0 || p->decision.status != COLL_OK) return;
    for (int i = 0; p->rank == 0 && i < p->size; i++) {
        if (!coll__line_is_silent(p, i, now, coll__liveness(p))) continue;
        coll__heartbeat_dies(p, i);
        count++;
    }
    if (p->rank == 0) coll__append_ranks(others, sizeof others, p->is_dead, p->size);
    if (count > 1) coll__append(rest, sizeof rest, ", as have ranks %s", others);
    coll__print(what, sizeof what, "has sent no heartbeat for %.3g s%s", p->liveness_ms * 1e-3, rest);
    if (2 * count > p->size) {
        coll__print(what, sizeof what, "is cut off: no heartbeat from ranks %s for %.3g s", others, p->liveness_ms * 1e-3);
        coll__heartbeat_failed(p, COLL_ERR_PEER, 0, what);
    } else if (coll__unanswered_ms(p->lines[first].pipe.fd) >= p->liveness_ms / 2) {      /* host or link: undecidable */
        if (count > 1) coll__print(rest, sizeof rest, ", nor from ranks %s", others);
        coll__failed_link(p, &failure, first, p->rank, first, rest);
        coll__heartbeat_decide(p, &failure, false);
    } else {
        coll__heartbeat_failed(p, COLL_ERR_PEER, first, what);
    }
}

/* Since when has data in flight on this connection had no answer?  0: all is answered.  Time before the first such look does
 * not count. */
static int64_t coll__path_unanswered(const coll__path *path, int64_t now)
{
    const int64_t ms = coll__unanswered_ms(path->fd);

    if (ms < 0) return 0;
    const int64_t answered_at = now - ms * COLL__MS;
    const int64_t asked_at = path->unanswered_at ? path->unanswered_at : now;
    return answered_at > asked_at ? answered_at : asked_at;
}

/* A data connection to a rank with a watched control connection is skipped.  If that is silent too, all ranks report the same.
 * If it is not, the link works and the peer only reads slowly: its kernel may drop data without an answer. */
static void coll__check_paths(coll__heartbeat *p, int64_t now)
{
    coll_failure cause = { COLL_OK, -1, "" };

    for (int i = 0; i < p->path_count && p->report.status == COLL_OK && p->decision.status == COLL_OK; i++) {
        coll__path *path = &p->paths[i];
        path->unanswered_at = coll__path_unanswered(path, now);
        if (!path->unanswered_at || now - path->unanswered_at <= coll__silence_limit(p)) continue;
        if (coll__line_is_watched(p, path->peer)) continue;
        coll__failed_link(p, &cause, path->peer, p->rank, path->peer, "");
        coll__heartbeat_report(p, &cause);
    }
}

/* ---- >>receiving ---- */

static void coll__bye_heard(coll__heartbeat *p, int rank)
{
    if (rank < 0 || p->has_left[rank]) return;
    p->has_left[rank] = 1;
    p->departed[p->departed_count++] = rank;
    coll__heartbeat_news(p);
    if (rank == 0 && p->report.status != COLL_OK && !p->is_asking) {              /* it left without a decision */
        const coll_failure cause = p->report;
        coll__heartbeat_report(p, &cause);
    }
}

/* A rank of the new job after coll_shrink is not connected.  It may be alive: it also closes connections if it waited too long
 * in coll_shrink, and can take part in the next agreement.  So it is not recorded as dead. */
static void coll__heartbeat_missed(coll__heartbeat *p, int rank)
{
    const int before = p->dead_count;

    coll__heartbeat_failed(p, COLL_ERR_PEER, rank, "is gone: it was lost while the ranks that were left met");
    while (p->dead_count > before) p->is_dead[p->dead[--p->dead_count]] = 0;
}

/* A control connection is closed.  Without a leave message the rank is dead, unless it never sent anything, or had connected
 * as a probe. */
static void coll__line_closed(coll__heartbeat *p, int index, int error)
{
    coll__control_line *line = &p->lines[index];
    char what[160];

    coll__pipe_close(&line->pipe);
    if (!line->is_met && !p->has_left[index % p->size] && (p->rank == 0 || index == 0)) coll__heartbeat_missed(p, index);
    if (!line->is_met || index >= p->size || p->has_left[index]) return;
    coll__heartbeat_dies(p, index);
    coll__heartbeat_failed(p, coll__ending_status(error), index, coll__lost_text(error, p->rank, index, what, sizeof what));
}

/* Rank 0 compares the call in which a rank waits, and its previous call, with the reports of the others.  A previous call
 * counts, because a rank that only sends in it completes early. */
static void coll__heartbeat_compare(coll__heartbeat *p, int rank, const unsigned char *heads)
{
    unsigned char *const mine = p->reports + (size_t)rank * COLL__REPORT_LENGTH;
    coll_failure failure = { COLL_OK, -1, "" };

    memcpy(mine, heads, COLL__REPORT_LENGTH);
    for (int i = 0; i < p->size; i++) {
        if (!coll__reports_disagree(&failure, mine, rank, p->reports + (size_t)i * COLL__REPORT_LENGTH, i)) continue;
        coll__heartbeat_decide(p, &failure, false);
        return;
    }
}

static void coll__line_heard(coll__heartbeat *p, int index, const unsigned char *bytes)
{
    coll__control_line *line = &p->lines[index];
    coll__control control;

    if (!coll__control_read(bytes, p->size, &control)) {
        coll__line_closed(p, index, EPROTO);
        return;
    }
    const bool is_of_detector = p->rank != 0 && index == 0;               /* only rank 0 reports about others */
    const int rank = is_of_detector ? control.what.rank : index % p->size;
    line->is_met = true;
    switch (control.note) {
    case COLL__CONTROL_BYE:
        if (is_of_detector && rank == 0) memcpy(p->detector_made, bytes + COLL__CONTROL_TEXT, sizeof p->detector_made);
        if (p->rank == 0 && p->decision.status == COLL_OK) coll__heartbeat_compare(p, index, bytes + COLL__CONTROL_TEXT);
        coll__bye_heard(p, rank);
        break;
    case COLL__CONTROL_HEARTBEAT: coll__beat_read(bytes, &p->beats[rank]); break;
    case COLL__CONTROL_FAIL: coll__heartbeat_decide(p, &control.what, is_of_detector); break;
    case COLL__CONTROL_WAITING: if (p->rank == 0) coll__heartbeat_compare(p, index, bytes + COLL__CONTROL_TEXT); break;
    case COLL__CONTROL_WHERE:
        if (p->rank == 0 && line->asked_count < COLL__ASKED_MOST) line->asked[line->asked_count++] = control.what.rank;
        break;
    default: break;
    }
}

/* Read until there are `wanted` bytes.  Returns 0, or an errno: EAGAIN; ECONNRESET at the end of the stream. */
static int coll__pipe_fill(coll__pipe *pipe, unsigned char *bytes, size_t *length, size_t wanted)
{
    while (*length < wanted) {
        const ssize_t n = coll__pipe_move(pipe, bytes + *length, wanted - *length, false);
        if (n < 0) return (int)-n;
        *length += (size_t)n;
    }
    return 0;
}

/* Read all that a control connection has. */
static void coll__line_event(coll__heartbeat *p, int index)
{
    coll__control_line *line = &p->lines[index];

    while (line->pipe.fd >= 0) {
        const size_t before = line->length;
        const int error = coll__pipe_fill(&line->pipe, line->bytes, &line->length, COLL__CONTROL_LENGTH);
        if (line->length > before) line->heard_at = coll__now();
        if (error == EAGAIN) return;
        line->length = 0;
        if (error) coll__line_closed(p, index, error);
        else coll__line_heard(p, index, line->bytes);
    }
}

/* ---- >>the heartbeat thread ---- */

/* Defined in coll_tcp_probe.h. */
static void coll__probe_due(coll__heartbeat *p, int64_t now);
static void coll__probe_go_on(coll__heartbeat *p, int rank);
/* Defined in coll_tcp_accept.h. */
static int  coll__accept_watch(struct coll__tcp *tcp, struct pollfd *fds, int64_t *next);
static void coll__accept_serve(struct coll__tcp *tcp, const struct pollfd *fds, int count);

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

/* Do what is due; returns the time of the next call.  After this process was suspended, silence of others is not reliable:
 * each gets another half of liveness_timeout_ms. */
static int64_t coll__heartbeat_due(coll__heartbeat *p, int64_t now)
{
    int64_t next;

    p->has_slept = coll__heartbeat_slept(p);
    for (int i = 0; now - p->turned_at > coll__liveness(p) / 2 && i < p->line_count; i++)
        if (now - p->lines[i].heard_at > coll__liveness(p) / 2) p->lines[i].heard_at = now - coll__liveness(p) / 2;
    for (int i = 0; now - p->turned_at > coll__liveness(p) / 2 && i < p->path_count; i++) p->paths[i].unanswered_at = 0;
    p->turned_at = now;
    coll__heartbeat_check_abort(p);
    if (now >= p->beat_at) {
        p->beat_at = now + coll__beat_interval(p);
        coll__heartbeat_look(p, now);
        coll__heartbeat_want(p, COLL__CONTROL_HEARTBEAT);
        if (p->decision.status == COLL_OK) coll__check_paths(p, now);
    }
    if (coll__first_silent(p, now) >= 0) {
        for (int i = 0; i < p->line_count; i++) coll__line_event(p, i);
        coll__check_silence(p, now);
    }
    if (p->decision.status == COLL_OK || p->is_leaving) coll__probe_due(p, now);
    coll__heartbeat_flush(p);
    next = p->beat_at;
    for (int i = 0; i < p->line_count; i++)
        if (coll__line_is_watched(p, i) && p->lines[i].heard_at + coll__silence_limit(p) < next)
            next = p->lines[i].heard_at + coll__silence_limit(p) + 1;
    return next;
}

/* Fill `fds`: the doorbell, then one entry for each control connection. */
static void coll__heartbeat_watch(coll__heartbeat *p)
{
    p->fds[0] = (struct pollfd){ .fd = p->doorbell.fd, .events = POLLIN };
    for (int i = 0; i < p->line_count; i++) {
        coll__pipe *pipe = &p->lines[i].pipe;
        const coll__handshake *g = p->lines[i].handshake;
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
        for (int i = 0; i < count; i++) {
            const coll__control_line *line = &p->lines[i];
            if (line->handshake && p->fds[1 + i].revents) coll__probe_go_on(p, i);
            else if (line->pipe.fd >= 0 && (p->fds[1 + i].revents || !p->fds[1 + i].events)) coll__line_event(p, i);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- >>from other threads ---- */

/* Async-signal-safe. */
static inline void coll__heartbeat_wake(coll__heartbeat *p) { coll__doorbell_ring(&p->doorbell); }

/* Send what the calling thread has set; the heartbeat thread sends what a connection does not take now. */
static void coll__heartbeat_tell(coll__heartbeat *p)
{
    bool is_stuck = false;

    coll__heartbeat_flush(p);
    for (int i = 0; i < p->line_count; i++) is_stuck = is_stuck || p->lines[i].unsent > 0;
    if (is_stuck && p->has_thread) coll__heartbeat_wake(p);
}

/* Watch a data connection until the heartbeat is closed.  The kernel probes it often enough, even if nothing is sent. */
static void coll__heartbeat_path(coll__heartbeat *p, int peer, int fd)
{
    const int seconds = p->liveness_ms / 1000, idle = seconds / COLL__BEATS > 1 ? seconds / COLL__BEATS : 1;

    if (p->liveness_ms <= 0) return;
    coll__keep_alive(fd, idle, idle, 2 * COLL__BEATS);            /* later than this detector                 */
    coll__ask_again_within(fd, idle * 1000);
    pthread_mutex_lock(&p->lock);
    if (p->path_count < p->path_room) p->paths[p->path_count++] = (coll__path){ fd, peer, 0 };
    pthread_mutex_unlock(&p->lock);
}

/* ---- >>open, close ---- */

/* The most handshakes and data connections are given.  false: out of memory. */
static bool coll__heartbeat_init(coll__heartbeat *p, int rank, int size, int handshakes, int connections,
                                 coll__control_line *lines, const coll__endpoint *endpoints)
{
    const size_t n = (size_t)size;

    p->rank = rank;
    p->size = size;
    p->endpoints = endpoints;
    p->lines = lines;
    p->line_count = rank == 0 ? size : 1;
    p->doorbell = p->ring = coll__no_doorbell;
    p->decision.rank = p->report.rank = -1;
    p->has_lock = pthread_mutex_init(&p->lock, NULL) == 0;
    if (!lines) return false;
    p->departed = (int *)coll__allocate(coll__like(p->lines), 2 * n * sizeof *p->departed);
    p->dead = p->departed ? p->departed + n : NULL;
    p->has_left = (unsigned char *)coll__allocate(coll__like(p->lines), 3 * n);
    p->is_dead = p->has_left ? p->has_left + n : NULL;
    p->was_late = p->has_left ? p->has_left + 2 * n : NULL;
    p->reports = (unsigned char *)coll__allocate(coll__like(p->lines), (size_t)p->line_count * COLL__REPORT_LENGTH);
    p->beats = (coll__beat *)coll__allocate(coll__like(p->lines), n * sizeof *p->beats);
    p->path_room = connections;
    p->paths = (coll__path *)coll__take_zeros(coll__like(p->lines), (size_t)connections, sizeof *p->paths);
    p->fds = (struct pollfd *)coll__allocate(coll__like(p->lines),
                                             ((rank == 0 ? n : 2 * n) + 2 + (size_t)handshakes) * sizeof *p->fds);
    return p->has_lock && p->departed && p->has_left && p->reports && p->beats && p->paths
        && p->fds;
}

/* Begin.  are_met: the other ends know this job.  Returns 0, or the errno of a failed thread start; then no silence is
 * detected. */
static int coll__heartbeat_open(coll__heartbeat *p, int liveness_ms, bool are_met, coll__doorbell ring)
{
    int error = 0;

    p->liveness_ms = liveness_ms;
    p->ring = ring;
    p->turned_at = p->activity_since = coll__now();
    p->beat_at = p->turned_at;
    for (int i = 0; i < p->line_count; i++) p->lines[i].heard_at = p->turned_at, p->lines[i].is_met = are_met;
    coll__heartbeat_want(p, COLL__CONTROL_HEARTBEAT); /* identify this rank early: one may die soon           */
    coll__heartbeat_flush(p);
    if (liveness_ms <= 0) return 0;
    error = coll__doorbell_open(&p->doorbell);
    if (!error) error = coll__thread_begin(&p->thread, COLL__HEARTBEAT_STACK, coll__heartbeat_main, p);
    p->has_thread = error == 0;
    if (error) p->liveness_ms = 0;
    return error;
}

/* End the thread; the connections stay open. */
static void coll__heartbeat_stop(coll__heartbeat *p)
{
    if (!p->has_thread) return;
    __atomic_store_n(&p->is_stopping, 1, __ATOMIC_RELEASE);
    coll__heartbeat_wake(p);
    pthread_join(p->thread, NULL);
    p->has_thread = false;
}

static void coll__heartbeat_close(coll__heartbeat *p)
{
    coll__heartbeat_stop(p);
    coll__doorbell_close(&p->doorbell);
    for (int i = 0; p->lines && i < p->line_count; i++) {
        coll__dial_end(&p->lines[i].handshake);
        coll__pipe_close(&p->lines[i].pipe);
    }
    if (p->has_lock) pthread_mutex_destroy(&p->lock);
    coll__give(p->departed);
    coll__give(p->has_left);
    coll__give(p->reports);
    coll__give(p->beats);
    coll__give(p->fds);
    coll__give(p->paths);
}

#endif /* COLL_TCP_HEARTBEAT_H */
