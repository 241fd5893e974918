/* coll_tcp_heartbeat.h - the control connections while a job runs: heartbeats, failures, orderly leaves, activity.
 *
 * Every rank has a control connection to rank 0.  On it, each side sends COLL__BEATS heartbeats per liveness_timeout_ms, with
 * its activity.  What silence, closes and reports mean is in core/membership/coll_detector.h and coll_outcome.h.  If a data
 * connection between two other ranks gets no answers, its ends report that to rank 0.
 *
 * A thread (coll_tcp_control.h) goes on while the program computes, and stops if the process is suspended.  It shares its state
 * with the calling thread under a lock that is not held while waiting; `news` and a doorbell notify that thread.  Without the
 * thread (liveness_timeout_ms < 0) the calling thread reads the connections when idle, and silence is not detected.
 *
 * Outgoing control messages are not queued: each one is made from the state when the connection can take it. */
#ifndef COLL_TCP_HEARTBEAT_H
#define COLL_TCP_HEARTBEAT_H

#include "../../core/membership/coll_outcome.h"

#include <pthread.h>
#include <signal.h>

enum {
    COLL__HEARTBEAT_STACK = 256 * 1024, COLL__ASKED_MOST = 16,
    COLL__HANDSHAKES_MOST = 4096, COLL__HANDSHAKES_SPARE = 240    /* handshakes at the same time; those beyond the ranks' own */
};

typedef struct coll__control_line {
    coll__pipe    pipe;
    coll__dialler dialler;                        /* opens it, if rank 0 has left                             */
    bool          is_wanted;                      /* it is to be opened                                       */
    size_t        length, unsent;                 /* bytes received of the current message; bytes left to send */
    unsigned      wants;                          /* control messages to send, a bit for each                 */
    int           byes_told, deaths_told;         /* number of leaves and deaths sent                         */
    int           asked[COLL__ASKED_MOST], asked_count;           /* ranks to ask rank 0 about, or to answer about */
    int           asker;                          /* 1 + rank whose report the records of the rank are compared with; 0: none */
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
    int  line_count;                              /* other ranks: 1, or 2 * size                              */
    coll__doorbell ring;                          /* wakes the calling thread, which owns it                  */
    coll__doorbell doorbell;                      /* wakes the heartbeat thread                               */
    bool has_lock, has_thread;
    pthread_t thread;
    struct pollfd *fds;
    unsigned    news, is_stopping;                /* atomic                                                   */
    const char *abort_text;                       /* atomic; NULL: none                                       */
    pthread_mutex_t lock;                         /* guards the rest, and the control connections             */
    coll__detector detector;
    coll__outcome  outcome;
    bool    is_leaving;                           /* leave messages are being sent                            */
    unsigned char *reports;                       /* rank 0: calls in which each rank waits; others: in which the asker does */
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

static inline unsigned char *coll__report_of(const coll__heartbeat *p, int i) { return p->reports + i * COLL__REPORT_LENGTH; }

/* "rank 2 (hostB, pid 4711, 10.0.0.7:4242)" */
static const char *coll__heartbeat_who(const void *endpoints, int rank, char *text, size_t room)
{
    char where[COLL__ADDRESS_TEXT];
    const coll__endpoint *endpoint = (const coll__endpoint *)endpoints + rank;
    const coll__address a = coll__address_with(endpoint->addresses[0], endpoint->port);

    if (endpoint->count > 0) coll__address_text(&a, where, sizeof where);
    else coll__print(where, sizeof where, "at no known address");
    if (endpoint->pid) coll__print(text, room, "rank %d (%s, pid %u, %s)", rank, endpoint->name, (unsigned)endpoint->pid, where);
    else coll__print(text, room, "rank %d (%s)", rank, where);
    return text;
}

/* Notify the calling thread. */
static void coll__heartbeat_news(coll__heartbeat *p)
{
    __atomic_store_n(&p->news, 1, __ATOMIC_RELEASE);
    coll__doorbell_ring(&p->ring);
}

/* ---- >>sending ---- */

static inline unsigned coll__bit_of(coll__control_note note) { return 1u << (unsigned)note; }

/* The last heartbeat of a rank, with its age if its line is here. */
static coll__beat coll__heartbeat_of(const coll__heartbeat *p, int rank)
{
    coll__beat beat = p->beats[rank];

    if (p->detector.lines[rank].is_met)
        beat.age_ms = (uint32_t)(coll__detector_silence(&p->detector, rank, coll__now()) / COLL__MS);
    return beat;
}

/* The next control message for a connection; false: there is none. */
static bool coll__note_next(coll__heartbeat *p, coll__control_line *line, int index)
{
    const unsigned all = line->wants;
    const coll__outcome *const o = &p->outcome;
    const coll_failure *what = o->decision.status != COLL_OK ? &o->decision : &o->report;
    const coll__detector *const d = &p->detector;
    coll__control_note note = COLL__CONTROL_HEARTBEAT;

    while (p->rank == 0 && line->byes_told < d->left.count && d->left.list[line->byes_told] == index) line->byes_told++;
    if (all & coll__bit_of(COLL__CONTROL_HEARTBEAT)) {
        coll__beat_write(line->out, p->rank, &p->beats[p->rank]);
    } else if (all & coll__bit_of(COLL__CONTROL_FAIL)) {
        note = COLL__CONTROL_FAIL;
        coll__control_write(line->out, what == &o->decision ? note : COLL__CONTROL_REPORT, what->status, what->rank, what->text);
    } else if (p->rank == 0 && o->decision.status != COLL_OK && line->deaths_told < d->dead.count) {
        note = COLL__CONTROL_FAIL;                /* died after the decision                                  */
        coll__control_write(line->out, note, COLL_ERR_PEER, d->dead.list[line->deaths_told++], "");
    } else if (all & coll__bit_of(COLL__CONTROL_WAITING)) {
        note = COLL__CONTROL_WAITING;
        const int who = p->rank == 0 ? line->asker - 1 : p->rank;
        coll__control_write(line->out, note, COLL_OK, who, "");
        memcpy(line->out + COLL__CONTROL_TEXT, p->rank == 0 ? coll__report_of(p, who) : p->waiting, COLL__REPORT_LENGTH);
    } else if (line->asked_count > 0) {
        note = COLL__CONTROL_WHERE;
        const int rank = line->asked[--line->asked_count];
        const coll__beat beat = coll__heartbeat_of(p, rank);
        if (p->rank == 0) coll__beat_write(line->out, rank, &beat);
        else coll__control_write(line->out, note, COLL_OK, rank, "");
    } else if (p->rank == 0 && line->byes_told < d->left.count) {
        note = COLL__CONTROL_BYE;
        coll__control_write(line->out, note, COLL_OK, d->left.list[line->byes_told++], "");
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

/* A failure that counts, unless there is a decision.  Send it to all, unless it was received from rank 0. */
static void coll__heartbeat_decide(coll__heartbeat *p, const coll_failure *failure, coll__failure_source source)
{
    if (!coll__outcome_decide(&p->outcome, failure, source, coll__now())) return;
    if (source != COLL__FROM_FIRST) coll__heartbeat_want(p, COLL__CONTROL_FAIL);
    coll__heartbeat_news(p);
}

/* Decide that a rank failed. */
static void coll__heartbeat_failed(coll__heartbeat *p, coll_status status, int rank, const char *what,
                                   coll__failure_source source)
{
    coll_failure failure = { COLL_OK, -1, "" };

    coll__failed_member(&p->outcome, &failure, status, rank, what);
    coll__heartbeat_decide(p, &failure, source);
}

/* A rank of the new job after coll_shrink is not connected.  It may be alive: it also closes connections if it waited too long
 * in coll_shrink, and can take part in the next agreement.  So it is not recorded as dead. */
static void coll__heartbeat_missed(coll__heartbeat *p, int rank)
{
    const char *const what = "is gone: it was lost while the ranks that were left met";
    coll__heartbeat_failed(p, COLL_ERR_PEER, rank, what, COLL__FROM_START);
}

/* This rank detected a failure that rank 0 decides. */
static void coll__heartbeat_report(coll__heartbeat *p, coll_failure *cause)
{
    if (p->rank == 0 && cause->rank > 0) coll__excuse(cause, coll__report_of(p, cause->rank), p->reports);
    if (!coll__outcome_report(&p->outcome, cause, coll__now())) return;
    coll__heartbeat_want(p, COLL__CONTROL_FAIL);
    if (p->outcome.decision.status != COLL_OK) coll__heartbeat_news(p);
}

/* Report the ranks that exceed the limit of silence. */
static void coll__check_silence(coll__heartbeat *p)
{
    const bool is_decided = p->outcome.decision.status != COLL_OK;
    coll_failure failure = { COLL_OK, -1, "" };
    int count;

    const int first = coll__detector_check(&p->detector, is_decided, &count);
    if (first < 0 || is_decided) return;
    const bool is_unanswered = coll__unanswered_ms(p->lines[first].pipe.fd) >= p->liveness_ms / 2;
    coll__failed_silent(&p->outcome, &failure, first, count, is_unanswered);
    coll__heartbeat_decide(p, &failure, COLL__FROM_MEMBER);
}

static void coll__check_paths(coll__heartbeat *p, int64_t now)
{
    coll_failure cause = { COLL_OK, -1, "" };

    for (int i = 0; i < p->path_count && p->outcome.report.status == COLL_OK && p->outcome.decision.status == COLL_OK; i++) {
        coll__path *path = &p->paths[i];
        const int64_t ms = coll__unanswered_ms(path->fd);
        const int64_t answered_at = ms < 0 ? 0 : now - ms * COLL__MS;
        if (!coll__detector_path(&p->detector, path->peer, &path->unanswered_at, answered_at, now)) continue;
        coll__failed_link(&p->outcome, &cause, path->peer, "");
        coll__heartbeat_report(p, &cause);
    }
}

/* ---- >>receiving ---- */

/* A control connection is closed.  One that a probe opened tells nothing. */
static void coll__line_closed(coll__heartbeat *p, int index, int error)
{
    coll__control_line *line = &p->lines[index];
    char what[160];

    coll__pipe_close(&line->pipe);
    const coll__line_end end = index < p->size ? coll__detector_ended(&p->detector, index) : COLL__END_IN_ORDER;
    if (end == COLL__END_EARLY) coll__heartbeat_missed(p, index);
    if (end != COLL__END_DEATH) return;
    coll__heartbeat_failed(p, coll__ending_status(error), index, coll__lost_text(error, p->rank, index, what, sizeof what),
                           COLL__FROM_MEMBER);
}

/* Rank 0 compares the call in which a rank waits, and the one before, which a rank that only sends completes early, with the
 * reports of the others.  Ranks that do not wait in that call compare it with their records, once after each report of theirs. */
static void coll__heartbeat_compare(coll__heartbeat *p, int rank, const unsigned char *heads)
{
    unsigned char *const mine = coll__report_of(p, rank);
    coll_failure failure = { COLL_OK, -1, "" };

    memcpy(mine, heads, COLL__REPORT_LENGTH);
    for (int i = 0; i < p->size; i++) {
        if (!coll__reports_disagree(&failure, mine, rank, coll__report_of(p, i), i)) continue;
        coll__heartbeat_decide(p, &failure, COLL__FROM_MEMBER);
        return;
    }
    p->lines[rank].asker = 0;
    p->lines[rank].wants &= ~coll__bit_of(COLL__CONTROL_WAITING);
    for (int i = 0; i < p->size && coll__get32(mine + 8) != 0; i++) {
        coll__control_line *line = &p->lines[i];
        const unsigned char *const before = coll__report_of(p, line->asker > 0 ? line->asker - 1 : i);
        if (!memcmp(before, mine, COLL_HEAD_LENGTH)) continue;
        line->asker = 1 + rank;
        line->wants |= coll__bit_of(COLL__CONTROL_WAITING);
        coll__line_flush(p, i);
    }
    if (p->lines[0].asker > 0) coll__heartbeat_news(p);
}

static void coll__line_heard(coll__heartbeat *p, int index, const unsigned char *bytes)
{
    coll__control_line *line = &p->lines[index];
    coll__control control;

    if (!coll__control_read(bytes, p->size, &control)) {
        coll__line_closed(p, index, EPROTO);
        return;
    }
    const bool is_of_detector = p->rank != 0 && index == 0;
    const int rank = coll__detector_met(&p->detector, index, control.what.rank);
    switch (control.note) {
    case COLL__CONTROL_BYE:
        if (is_of_detector && rank == 0) memcpy(p->detector_made, bytes + COLL__CONTROL_TEXT, sizeof p->detector_made);
        if (p->rank == 0 && p->outcome.decision.status == COLL_OK) coll__heartbeat_compare(p, index, bytes + COLL__CONTROL_TEXT);
        if (rank < 0 || !coll__members_add(&p->detector.left, rank)) break;
        if (coll__outcome_left(&p->outcome, coll__now())) coll__heartbeat_want(p, COLL__CONTROL_FAIL);
        coll__heartbeat_news(p);
        break;
    case COLL__CONTROL_HEARTBEAT: coll__beat_read(bytes, &p->beats[rank]); break;
    case COLL__CONTROL_FAIL: case COLL__CONTROL_REPORT:
        if (p->rank == 0 && control.what.rank >= 0)
            coll__excuse(&control.what, coll__report_of(p, control.what.rank), coll__report_of(p, index));
        coll__heartbeat_decide(p, &control.what, is_of_detector ? COLL__FROM_FIRST
                               : control.note == COLL__CONTROL_REPORT ? COLL__FROM_REPORT : COLL__FROM_MEMBER);
        break;
    case COLL__CONTROL_WAITING:
        if (p->rank == 0) coll__heartbeat_compare(p, index, bytes + COLL__CONTROL_TEXT);
        if (!is_of_detector || rank < 0) break;
        memcpy(p->reports, bytes + COLL__CONTROL_TEXT, COLL__REPORT_LENGTH);
        line->asker = 1 + rank;
        coll__heartbeat_news(p);
        break;
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
        if (line->length > before) coll__detector_heard(&p->detector, index, coll__now());
        if (error == EAGAIN) return;
        line->length = 0;
        if (error) coll__line_closed(p, index, error);
        else coll__line_heard(p, index, line->bytes);
    }
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

/* ---- >>lines between other ranks, if rank 0 has left ---- */

/* Make space for the lines beyond [0]: [r] to rank r, opened here; [size + r] to rank r, opened there. */
static void coll__lines_widen(coll__heartbeat *p)
{
    if (p->line_count > 1) return;
    p->line_count = 2 * p->size;
    p->detector.watched = p->size;
    for (int i = 1; i < p->line_count; i++) p->lines[i].pipe.fd = -1;
}

/* A line is open: send heartbeat, and decision if any. */
static void coll__line_open(coll__heartbeat *p, int index, coll__pipe *pipe)
{
    coll__control_line *line = &p->lines[index];

    line->pipe = coll__pipe_take(pipe);
    line->length = line->unsent = 0;
    line->wants = coll__bit_of(COLL__CONTROL_HEARTBEAT)
                | (p->outcome.decision.status != COLL_OK ? coll__bit_of(COLL__CONTROL_FAIL) : 0)
                | (p->is_leaving ? coll__bit_of(COLL__CONTROL_BYE) : 0);
    coll__line_flush(p, index);
}

/* Another rank has opened a line.  A leaving rank closes it, for it could not send a leave message on it. */
static void coll__line_taken(coll__heartbeat *p, coll__pipe *pipe, int rank)
{
    coll__tune_socket(pipe->fd);
    pthread_mutex_lock(&p->lock);
    const bool is_fit = p->rank > 0 && rank > 0 && rank != p->rank && p->liveness_ms > 0 && !p->is_leaving;
    if (is_fit) coll__lines_widen(p);
    const bool is_taken = is_fit && p->lines[p->size + rank].pipe.fd < 0;
    if (is_taken) coll__line_open(p, p->size + rank, pipe);
    pthread_mutex_unlock(&p->lock);
    if (is_taken) coll__heartbeat_wake(p);
    else coll__pipe_close(pipe);
}

/* Open a line to a rank that this one waits for, if there is none. */
static void coll__line_want(coll__heartbeat *p, int rank)
{
    coll__lines_widen(p);
    coll__control_line *line = &p->lines[rank];
    if (line->is_wanted || line->dialler.handshake || line->pipe.fd >= 0) return;
    line->is_wanted = true;
    coll__heartbeat_wake(p);
}

/* Are lines being opened?  A rank that failed and leaves does it to send the reason. */
static bool coll__lines_are_wanted(const coll__heartbeat *p)
{
    for (int i = 1; p->rank != 0 && p->outcome.decision.status != COLL_OK && i < p->detector.watched; i++)
        if (p->lines[i].is_wanted || p->lines[i].dialler.handshake) return true;
    return false;
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
    p->outcome = (coll__outcome){ &p->detector, coll__heartbeat_who, endpoints, { .rank = -1 }, { .rank = -1 }, false, false };
    p->has_lock = pthread_mutex_init(&p->lock, NULL) == 0;
    if (!lines) return false;
    void *const memory = coll__take_zeros(coll__like(p->lines), coll__detector_memory(size), 1);
    if (memory) coll__detector_open(&p->detector, memory, size, rank);
    p->reports = (unsigned char *)coll__allocate(coll__like(p->lines), (size_t)p->line_count * COLL__REPORT_LENGTH);
    p->beats = (coll__beat *)coll__allocate(coll__like(p->lines), n * sizeof *p->beats);
    p->path_room = connections;
    p->paths = (coll__path *)coll__take_zeros(coll__like(p->lines), (size_t)connections, sizeof *p->paths);
    p->fds = (struct pollfd *)coll__allocate(coll__like(p->lines),
                                             ((rank == 0 ? n : 2 * n) + 2 + (size_t)handshakes) * sizeof *p->fds);
    return p->has_lock && memory && p->reports && p->beats && p->paths && p->fds;
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
        coll__dial_end(&p->lines[i].dialler.handshake);
        coll__pipe_close(&p->lines[i].pipe);
    }
    if (p->has_lock) pthread_mutex_destroy(&p->lock);
    coll__give(p->detector.lines);
    coll__give(p->reports);
    coll__give(p->beats);
    coll__give(p->fds);
    coll__give(p->paths);
}

#endif /* COLL_TCP_HEARTBEAT_H */
