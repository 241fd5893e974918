/* coll_tcp_heartbeat.h - the control connections while a job runs: heartbeats, the verdict, who has left, who does what.
 *
 * Every rank has a line to rank 0.  Over it each says COLL__BEATS times in liveness_timeout_ms that it lives and what it does.
 * Silence counts from the last that has come.  It is judged at liveness_timeout_ms and one such interval, so that a rank that is
 * stopped for less never is dead; and what has come is read before anybody is judged, for the judge may have been stopped
 * himself.  Rank 0 judges the others, each of them judges rank 0.  The first failure that rank 0 sees or is told of is the
 * verdict, which it sends to all; of those who die later it sends them the ranks.  When rank 0 is the dead one, all find that by
 * themselves, and say it in the same words.  A connection between two other ranks over which nothing passes any more is noticed
 * by its own ends, from what their kernels know, and told to rank 0.  When rank 0 has left in good order, each rank judges by
 * itself, and has lines of its own to those it waits for (coll_tcp_probe.h).
 *
 * A thread does all this, so that it goes on while the program computes, and stops when the process is stopped.  It takes no
 * part in anything else.  The caller's thread shares the state under a lock, which nobody holds while he waits, and is told by a
 * word and a bell that there is news.  Without the thread (liveness_timeout_ms < 0) the caller's thread reads the lines itself,
 * when it has nothing else to do, and silence means nothing.
 *
 * What is still to be said on a line is not queued: it follows from the state, note by note, as the line takes them. */
#ifndef COLL_TCP_HEARTBEAT_H
#define COLL_TCP_HEARTBEAT_H

#include <pthread.h>
#include <signal.h>

enum {
    COLL__HEARTBEAT_STACK = 256 * 1024, COLL__BEATS = 8,          /* heartbeats in a liveness_timeout_ms                      */
    COLL__ASKED_MOST = 16,
    COLL__GREETINGS_MOST = 4096, COLL__GREETINGS_SPARE = 240      /* greetings at the same time; those beside the ranks' own */
};

typedef struct coll__control_line {
    coll__pipe    pipe;
    struct coll__greet *greet;                    /* while we call, which only ranks other than 0 do          */
    bool          is_wanted;                      /* to be called, no sooner than call_at                     */
    bool          is_reached;                     /* the one that we call has a kernel that lives             */
    bool          is_met;                         /* a note has come: from now on an end is a death           */
    int           calls;                          /* how often                                                */
    unsigned      refusing;                       /* its addresses at which nobody listens, a bit for each    */
    int64_t       refused_at;                     /* since when calls have come to that and to nothing else   */
    int64_t       call_at;
    size_t        length, unsent;                 /* of the note that is coming in; of the one going out: what is left */
    unsigned      wants;                          /* notes that are to be said, a bit for each                */
    int           byes_told, deaths_told;         /* how many of those who have left, and who have died       */
    int           asked[COLL__ASKED_MOST], asked_count;           /* ranks to ask about, or that somebody asked about */
    int64_t       heard_at;
    int64_t       lost_at;                        /* in the bootstrap: this one came, and has gone again; 0: no */
    int           lost_by;                        /* the errno of its end; 0: it has closed                   */
    unsigned char bytes[COLL__CONTROL_LENGTH], out[COLL__CONTROL_LENGTH];
} coll__control_line;

/* A connection to another rank, beside the lines. */
typedef struct coll__path { int fd, peer; int64_t unanswered_at; } coll__path;

typedef struct coll__heartbeat {
    int  rank, size, liveness_ms;
    const coll__endpoint *endpoints;
    struct coll__tcp *tcp;                        /* whose heartbeat this is                                  */
    coll__control_line *lines;                    /* rank 0: one for every rank; the others: [0], to rank 0   */
    int  line_count;                              /* the others: 1, or with the lines of coll_tcp_probe.h       */
    coll__bell ring;                              /* wakes the caller's thread, whose it is                   */
    coll__bell bell;                              /* wakes ours                                               */
    bool has_lock, has_thread;
    pthread_t thread;
    struct pollfd *fds;
    int64_t beat_at, turned_at;
    unsigned    news, is_stopping;                /* atomic                                                   */
    const char *abort_text;                       /* atomic; NULL: none                                       */
    pthread_mutex_t lock;                         /* guards the rest, and the lines                           */
    coll_failure verdict, report;                 /* report: what rank 0 is told                              */
    bool    is_leaving;                           /* good-byes are on their way                               */
    bool    is_asking;                            /* the caller's thread has something to report, and waits for the verdict */
    bool    has_slept;                            /* we were stopped, or without a processor, for a large part of that time */
    bool    is_taken;                             /* the caller's thread has the verdict                      */
    bool    is_suspicion;                         /* its text is what is the matter with its rank, not a sentence */
    bool    has_abort_told;
    int    *departed, departed_count;             /* who has said good-bye, in that order                     */
    int    *dead, dead_count;                     /* who has died, in that order                              */
    unsigned char *has_left, *is_dead;
    unsigned char *was_late;                      /* it did not answer when this world was agreed on          */
    unsigned char *reports;                       /* rank 0: what each rank has said of its waiting           */
    unsigned char  waiting[COLL__REPORT_LENGTH];
    unsigned char  made[COLL__REPORT_LENGTH];    /* of us when we leave: nothing, and coll__head_of_made     */
    unsigned char  judge_made[COLL__REPORT_LENGTH];          /* of rank 0, when it has                       */
    coll__beat  own, *beats;                      /* ours; what each rank last said                           */
    coll__session *session;                       /* whose transport this is; NULL: not known yet             */
    uint64_t doing_turn;
    int64_t  doing_since;
    coll__path *paths;
    int      path_count, path_room;
} coll__heartbeat;

/* How many greetings a rank may have at the same time. */
static inline int coll__greeting_room(int size, int lanes)
{
    return (int)coll__least(2 * (size_t)size * (size_t)lanes + COLL__GREETINGS_SPARE, COLL__GREETINGS_MOST);
}

static inline int64_t coll__liveness(const coll__heartbeat *p) { return (int64_t)p->liveness_ms * COLL__MS; }
static inline int64_t coll__beat_interval(const coll__heartbeat *p) { return coll__liveness(p) / COLL__BEATS; }
static inline int64_t coll__silence_limit(const coll__heartbeat *p) { return coll__liveness(p) + coll__beat_interval(p); }

/* "rank 2 (hostB, pid 4711, 10.0.0.7:4242)" */
static const char *coll__heartbeat_who(const coll__heartbeat *p, int rank, char *text, size_t room)
{
    char where[COLL__ADDRESS_TEXT];
    const coll__endpoint *endpoint = &p->endpoints[rank];
    const coll__address a = coll__address_unpack(endpoint->addresses[0], endpoint->port);

    if (endpoint->count > 0) coll__address_text(&a, where, sizeof where);
    else coll__print(where, sizeof where, "at no known address");
    if (endpoint->pid) coll__print(text, room, "rank %d (%s, pid %u, %s)", rank, endpoint->name, (unsigned)endpoint->pid, where);
    else coll__print(text, room, "rank %d (%s)", rank, where);
    return text;
}

/* Does nobody judge for this rank? */
static inline bool coll__is_orphan(const coll__heartbeat *p) { return p->rank != 0 && p->has_left[0]; }

/* Something has happened that the caller's thread should know. */
static void coll__heartbeat_news(coll__heartbeat *p)
{
    __atomic_store_n(&p->news, 1, __ATOMIC_RELEASE);
    coll__bell_ring(&p->ring);
}

/* ---- >>telling ---- */

static inline unsigned coll__bit_of(coll__control_note note) { return 1u << (unsigned)note; }

/* What rank 0 answers who asks about a rank. */
static void coll__heartbeat_answer(const coll__heartbeat *p, int rank, unsigned char *out)
{
    coll__beat beat = rank == p->rank ? p->own : p->beats[rank];

    if (rank != p->rank && beat.pid) beat.age_ms = (uint32_t)((coll__now() - p->lines[rank].heard_at) / COLL__MS);
    coll__beat_write(out, rank, &beat);
}

/* The next note for a line; false: nothing is to be said. */
static bool coll__note_next(coll__heartbeat *p, coll__control_line *line, int index)
{
    const unsigned all = line->wants;
    const coll_failure *what = p->verdict.status != COLL_OK ? &p->verdict : &p->report;
    coll__control_note note = COLL__CONTROL_HEARTBEAT;

    while (p->rank == 0 && line->byes_told < p->departed_count && p->departed[line->byes_told] == index) line->byes_told++;
    if (all & coll__bit_of(COLL__CONTROL_HEARTBEAT)) {
        coll__beat_write(line->out, p->rank, &p->own);
    } else if (all & coll__bit_of(COLL__CONTROL_FAIL)) {
        note = COLL__CONTROL_FAIL;
        const bool is_suspicion = what == &p->report && p->is_suspicion;
        coll__control_write(line->out, is_suspicion ? COLL__CONTROL_SUSPECT : note, what->status, what->rank, what->text);
    } else if (p->rank == 0 && p->verdict.status != COLL_OK && line->deaths_told < p->dead_count) {
        note = COLL__CONTROL_FAIL;                /* after the verdict: it is dead, too                       */
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
        return true;                              /* our own, if it is wanted, comes last                     */
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

/* Say what a line takes of what is to be said.  One that takes nothing any more shows its end when it is read. */
static void coll__line_flush(coll__heartbeat *p, int index)
{
    coll__control_line *line = &p->lines[index];

    while (line->pipe.fd >= 0 && (line->unsent > 0 || coll__note_next(p, line, index))) {
        const ssize_t n = coll__pipe_move(&line->pipe, line->out + (COLL__CONTROL_LENGTH - line->unsent), line->unsent, true);
        if (n == -EAGAIN) return;
        if (n < 0) {
            line->unsent = line->wants = 0;
            line->asked_count = 0;
            line->byes_told = p->departed_count;
            line->deaths_told = p->dead_count;
            return;
        }
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

/* ---- >>judging ---- */

/* Have we been asleep for so long that the others may have given us up? */
static bool coll__heartbeat_slept(const coll__heartbeat *p)
{
    return p->has_slept || (p->liveness_ms > 0 && coll__now() - p->turned_at > coll__liveness(p) / 2);
}

/* A rank is dead, whatever the verdict is: nobody waits for it. */
static void coll__heartbeat_dies(coll__heartbeat *p, int rank)
{
    if (!p->is_dead[rank]) p->dead[p->dead_count++] = rank;
    p->is_dead[rank] = 1;
}

/* The verdict.  It is told to all lines but one that brought it.  Rank 0, when it comes back to life after the others have given
 * it up, finds what they have said since, and the ends of those who have left for it: that it is dead is then the verdict, in
 * whatever order the news is read. */
static void coll__heartbeat_decide(coll__heartbeat *p, const coll_failure *failure, bool is_told)
{
    const bool is_given_up = p->rank == 0 && failure->rank == 0 && !p->is_taken && coll__heartbeat_slept(p);
    const bool is_first = p->verdict.status == COLL_OK || is_given_up;
    const bool is_death = (failure->status == COLL_ERR_PEER || failure->status == COLL_ERR_TIMEOUT) && failure->rank >= 0;

    if (is_death && (is_first || is_told)) coll__heartbeat_dies(p, failure->rank);
    if (!is_first) return;
    p->verdict = *failure;
    if (!is_told) coll__heartbeat_want(p, COLL__CONTROL_FAIL);
    coll__heartbeat_news(p);
}

/* Blame a rank, by its name: "rank 2 (hostB, ...) is gone". */
static void coll__heartbeat_blame(coll__heartbeat *p, coll_status status, int rank, const char *what)
{
    coll_failure failure = { COLL_OK, -1, "" };
    char who[COLL__ADDRESS_TEXT + COLL__NAME_LENGTH + 40];

    coll__blame(&failure, status, rank, "%s %s", coll__heartbeat_who(p, rank, who, sizeof who), what);
    coll__heartbeat_decide(p, &failure, false);
}

/* What a rank has found by itself.  At rank 0, and where rank 0 has left, that is the verdict; elsewhere rank 0 is told, and the
 * first report counts. */
static void coll__heartbeat_report(coll__heartbeat *p, const coll_failure *cause, bool is_suspicion)
{
    const bool is_judge = p->rank == 0 || p->has_left[0];

    if (p->verdict.status != COLL_OK) return;
    if (is_judge && is_suspicion) coll__heartbeat_blame(p, cause->status, cause->rank, cause->text);
    else if (is_judge) coll__heartbeat_decide(p, cause, false);
    if (is_judge || p->report.status != COLL_OK) return;
    p->report = *cause;
    p->is_suspicion = is_suspicion;
    coll__heartbeat_want(p, COLL__CONTROL_FAIL);
}

static bool coll__line_is_watched(const coll__heartbeat *p, int index)
{
    const coll__control_line *line = &p->lines[index];
    const bool is_ours = index < p->size && index < p->line_count;
    return is_ours && (line->pipe.fd >= 0 || line->is_reached) && !p->has_left[index] && !p->is_dead[index];
}

static void coll__line_event(coll__heartbeat *p, int index);

/* Has a rank sent no heartbeat for so long?  What lies in the socket is one, though we have not read it yet. */
static bool coll__line_is_silent(coll__heartbeat *p, int index, int64_t now, int64_t most)
{
    if (!coll__line_is_watched(p, index) || now - p->lines[index].heard_at <= most) return false;
    coll__line_event(p, index);
    return coll__line_is_watched(p, index) && now - p->lines[index].heard_at > most;
}

/* Which line has been silent for too long?  -1: none.  Silence counts from the last that has come. */
static int coll__first_silent(coll__heartbeat *p, int64_t now)
{
    for (int i = 0; i < p->line_count; i++)
        if (coll__line_is_silent(p, i, now, coll__silence_limit(p))) return i;
    return -1;
}

/* "the link between rank 0 (...) and rank 3 (...) is silent: no answer for 5 s" */
static void coll__blame_link(const coll__heartbeat *p, coll_failure *failure, int blamed, int a, int b, const char *rest)
{
    char one[COLL__ADDRESS_TEXT + COLL__NAME_LENGTH + 40], two[COLL__ADDRESS_TEXT + COLL__NAME_LENGTH + 40];

    coll__blame(failure, COLL_ERR_PEER, blamed, "the link between %s and %s is silent: no answer for %.3g s%s",
                coll__heartbeat_who(p, a < b ? a : b, one, sizeof one), coll__heartbeat_who(p, a < b ? b : a, two, sizeof two),
                p->liveness_ms * 1e-3, rest);
}

/* Ranks that have sent no heartbeat for too long.  They come at intervals, and who is the first to be given up has missed
 * one more: those who have been silent for the whole limit then have failed, too.  When they are most of the job, it is
 * rank 0 that is cut off. */
static void coll__judge_silence(coll__heartbeat *p, int64_t now)
{
    char what[160], others[80] = "", rest[100] = "";
    const int first = coll__first_silent(p, now);
    coll_failure failure = { COLL_OK, -1, "" };
    int count = 0;

    if (first < 0) return;
    if (p->verdict.status != COLL_OK) {
        coll__heartbeat_dies(p, first);
        return;
    }
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
        coll__heartbeat_blame(p, COLL_ERR_PEER, 0, what);
    } else if (coll__unanswered_ms(p->lines[first].pipe.fd) >= p->liveness_ms / 2) {      /* nobody can tell host from link   */
        if (count > 1) coll__print(rest, sizeof rest, ", nor from ranks %s", others);
        coll__blame_link(p, &failure, first, p->rank, first, rest);
        coll__heartbeat_decide(p, &failure, false);
    } else {
        coll__heartbeat_blame(p, COLL_ERR_PEER, first, what);
    }
}

/* Since when has nothing come back for what is on its way over this connection?  0: it is not so.  What was last heard before
 * anything was asked does not count. */
static int64_t coll__path_unanswered(const coll__path *path, int64_t now)
{
    const int64_t ms = coll__unanswered_ms(path->fd);

    if (ms < 0) return 0;
    const int64_t answered_at = now - ms * COLL__MS;
    const int64_t asked_at = path->unanswered_at ? path->unanswered_at : now;
    return answered_at > asked_at ? answered_at : asked_at;
}

/* A path beside which there is a line is left to that.  If the line is silent, too, all then say the same; if it is not, the link
 * is whole, and the other side only reads slowly: its kernel may drop what it has no room for, and say nothing. */
static void coll__judge_paths(coll__heartbeat *p, int64_t now)
{
    coll_failure cause = { COLL_OK, -1, "" };

    for (int i = 0; i < p->path_count && p->report.status == COLL_OK && p->verdict.status == COLL_OK; i++) {
        coll__path *path = &p->paths[i];
        path->unanswered_at = coll__path_unanswered(path, now);
        if (!path->unanswered_at || now - path->unanswered_at <= coll__silence_limit(p)) continue;
        if (coll__line_is_watched(p, path->peer)) continue;
        coll__blame_link(p, &cause, path->peer, p->rank, path->peer, "");
        coll__heartbeat_report(p, &cause, false);
    }
}

/* ---- >>hearing ---- */

static void coll__bye_heard(coll__heartbeat *p, int rank)
{
    if (rank < 0 || p->has_left[rank]) return;
    p->has_left[rank] = 1;
    p->departed[p->departed_count++] = rank;
    coll__heartbeat_news(p);
    if (rank == 0 && p->report.status != COLL_OK && !p->is_asking) {              /* it has left without an answer        */
        const coll_failure cause = p->report;
        coll__heartbeat_report(p, &cause, p->is_suspicion);
    }
}

/* A rank of a world that others have made after a failure has not come to it.  It may live: it ends a line, too, when it has
 * waited for too long in coll_shrink, and comes when these ranks meet again.  So it is not called dead. */
static void coll__heartbeat_missed(coll__heartbeat *p, int rank)
{
    const int before = p->dead_count;

    coll__heartbeat_blame(p, COLL_ERR_PEER, rank, "is gone: it was lost while the ranks that were left met");
    while (p->dead_count > before) p->is_dead[p->dead[--p->dead_count]] = 0;
}

/* A line is closed.  Without a good-bye before, that rank is dead, unless it was only on its way to us, or asked us. */
static void coll__line_closed(coll__heartbeat *p, int index, int error)
{
    coll__control_line *line = &p->lines[index];
    char what[160];

    coll__pipe_close(&line->pipe);
    line->is_reached = false;
    if (!line->is_met && !p->has_left[index % p->size] && (p->rank == 0 || index == 0)) coll__heartbeat_missed(p, index);
    if (!line->is_met || index >= p->size || p->has_left[index]) return;
    coll__heartbeat_dies(p, index);
    coll__heartbeat_blame(p, coll__ending_status(error), index, coll__gone_text(error, p->rank, index, what, sizeof what));
}

/* Rank 0 learns in which call a rank is waiting, and which one it has been through before, and compares these with what the
 * others have said: who only had to send is through, whatever the others make of that. */
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
    const bool is_of_judge = p->rank != 0 && index == 0;                  /* nobody else speaks for another           */
    const int rank = is_of_judge ? control.what.rank : index % p->size;
    line->is_met = true;
    switch (control.note) {
    case COLL__CONTROL_BYE:
        if (is_of_judge && rank == 0) memcpy(p->judge_made, bytes + COLL__CONTROL_TEXT, sizeof p->judge_made);
        if (p->rank == 0 && p->verdict.status == COLL_OK) coll__heartbeat_compare(p, index, bytes + COLL__CONTROL_TEXT);
        coll__bye_heard(p, rank);
        break;
    case COLL__CONTROL_HEARTBEAT: coll__beat_read(bytes, &p->beats[rank]); break;
    case COLL__CONTROL_FAIL: coll__heartbeat_decide(p, &control.what, is_of_judge); break;
    case COLL__CONTROL_SUSPECT: if (p->rank == 0) coll__heartbeat_report(p, &control.what, true); break;
    case COLL__CONTROL_WAITING: if (p->rank == 0) coll__heartbeat_compare(p, index, bytes + COLL__CONTROL_TEXT); break;
    case COLL__CONTROL_WHERE:
        if (p->rank == 0 && line->asked_count < COLL__ASKED_MOST) line->asked[line->asked_count++] = control.what.rank;
        break;
    default: break;
    }
}

/* Read what a line has. */
static void coll__line_event(coll__heartbeat *p, int index)
{
    coll__control_line *line = &p->lines[index];

    while (line->pipe.fd >= 0) {
        const ssize_t n = coll__pipe_move(&line->pipe, line->bytes + line->length, COLL__CONTROL_LENGTH - line->length, false);
        if (n == -EAGAIN) return;
        if (n < 0) {
            coll__line_closed(p, index, (int)-n);
            return;
        }
        line->length += (size_t)n;
        line->heard_at = coll__now();
        if (line->length < COLL__CONTROL_LENGTH) continue;
        line->length = 0;
        coll__line_heard(p, index, line->bytes);
    }
}

/* ---- >>beating ---- */

/* Of ranks that rank 0 has left: coll_tcp_probe.h. */
static void coll__probe_due(coll__heartbeat *p, int64_t now);
static void coll__probe_go_on(coll__heartbeat *p, int rank);
static void coll__probe_ends(coll__control_line *line);
/* The listener, while the program computes: coll_tcp_accept.h. */
static int  coll__accept_watch(struct coll__tcp *tcp, struct pollfd *fds, int64_t *next);
static void coll__accept_attend(struct coll__tcp *tcp, const struct pollfd *fds, int count);

/* See what our own rank does. */
static void coll__heartbeat_look(coll__heartbeat *p, int64_t now)
{
    uint64_t words[COLL_HEAD_LENGTH / 8];

    if (!p->session) return;
    const coll__doing *const d = &p->session->doing;
    const uint64_t turn = __atomic_load_n(&d->turn, __ATOMIC_ACQUIRE);
    if (turn != p->doing_turn) {
        p->doing_turn = turn;
        p->doing_since = now;
        p->own.is_inside = __atomic_load_n(&d->inside, __ATOMIC_RELAXED) > 0;
        for (int i = 0; i < COLL_HEAD_LENGTH / 8; i++) words[i] = __atomic_load_n(&d->now[i], __ATOMIC_RELAXED);
        memcpy(p->own.now, words, sizeof words);
        for (int i = 0; i < COLL_HEAD_LENGTH / 8; i++) words[i] = __atomic_load_n(&d->last[i], __ATOMIC_RELAXED);
        memcpy(p->own.last, words, sizeof words);
    }
    p->own.since_ms = (uint32_t)((now - p->doing_since) / COLL__MS);
    coll__beat_fill(&p->own, p->session);
}

/* coll_abort was called, perhaps in a signal handler. */
static void coll__heartbeat_check_abort(coll__heartbeat *p)
{
    const char *why = __atomic_load_n(&p->abort_text, __ATOMIC_ACQUIRE);
    coll_failure cause = { COLL_OK, -1, "" };

    if (!why || p->has_abort_told) return;
    p->has_abort_told = true;
    coll__blame(&cause, COLL_ERR_ABORTED, p->rank, "%s", why);
    coll__heartbeat_report(p, &cause, false);
}

/* What is due at this time.  Gives when to come again.  Who has been asleep himself, stopped or without a processor, cannot tell
 * how long the others were silent: he gives them another half of their time. */
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
        if (p->verdict.status == COLL_OK) coll__judge_paths(p, now);
    }
    if (coll__first_silent(p, now) >= 0) {
        for (int i = 0; i < p->line_count; i++) coll__line_event(p, i);
        coll__judge_silence(p, now);
    }
    if (p->verdict.status == COLL_OK || p->is_leaving) coll__probe_due(p, now);
    coll__heartbeat_flush(p);
    next = p->beat_at;
    for (int i = 0; i < p->line_count; i++)
        if (coll__line_is_watched(p, i) && p->lines[i].heard_at + coll__silence_limit(p) < next)
            next = p->lines[i].heard_at + coll__silence_limit(p) + 1;
    return next;
}

/* What to poll for, in fds: a line in its own place, behind our bell. */
static void coll__heartbeat_watch(coll__heartbeat *p)
{
    p->fds[0] = (struct pollfd){ .fd = p->bell.fd, .events = POLLIN };
    for (int i = 0; i < p->line_count; i++) {
        coll__pipe *pipe = &p->lines[i].pipe;
        const coll__greet *g = p->lines[i].greet;
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
        coll__accept_attend(p->tcp, p->fds + 1 + count, accepted);
        pthread_mutex_lock(&p->lock);
        if (p->fds[0].revents) coll__bell_hear(&p->bell);
        for (int i = 0; i < count; i++) {
            const coll__control_line *line = &p->lines[i];
            if (line->greet && p->fds[1 + i].revents) coll__probe_go_on(p, i);
            else if (line->pipe.fd >= 0 && (p->fds[1 + i].revents || !p->fds[1 + i].events)) coll__line_event(p, i);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- >>from other threads ---- */

/* Wake our thread.  From a signal handler, too. */
static void coll__heartbeat_wake(coll__heartbeat *p)
{
    coll__bell_ring(&p->bell);
}

/* The caller's thread has set something that is to be told: at once, and what a line does not take later. */
static void coll__heartbeat_tell(coll__heartbeat *p)
{
    bool is_stuck = false;

    coll__heartbeat_flush(p);
    for (int i = 0; i < p->line_count; i++) is_stuck = is_stuck || p->lines[i].unsent > 0;
    if (is_stuck && p->has_thread) coll__heartbeat_wake(p);
}

/* A connection to a peer is open, and stays so until the heartbeat is closed.  The kernel is to ask the other one for an answer
 * often enough, also when nothing is sent. */
static void coll__heartbeat_path(coll__heartbeat *p, int peer, int fd)
{
    const int seconds = p->liveness_ms / 1000, idle = seconds / COLL__BEATS > 1 ? seconds / COLL__BEATS : 1;

    if (p->liveness_ms <= 0) return;
    coll__keep_alive(fd, idle, idle, 2 * COLL__BEATS);            /* the kernel's own verdict comes after ours        */
    coll__ask_again_within(fd, idle * 1000);
    pthread_mutex_lock(&p->lock);
    if (p->path_count == p->path_room) {
        const int room = p->path_room ? 2 * p->path_room : 16;
        coll__path *paths = (coll__path *)coll__take_more(coll__like(p->lines), p->paths, (size_t)room * sizeof *paths);
        if (paths) p->paths = paths, p->path_room = room;
    }
    if (p->path_count < p->path_room) p->paths[p->path_count++] = (coll__path){ fd, peer, 0 };    /* no memory: unwatched */
    pthread_mutex_unlock(&p->lock);
}

/* ---- >>open, close ---- */

/* false: no memory. */
static bool coll__heartbeat_init(coll__heartbeat *p, int rank, int size, int greetings, coll__control_line *lines,
                             const coll__endpoint *endpoints)
{
    const size_t n = (size_t)size;

    p->rank = rank;
    p->size = size;
    p->endpoints = endpoints;
    p->lines = lines;
    p->line_count = rank == 0 ? size : 1;
    p->bell = p->ring = coll__no_bell;
    p->verdict.rank = p->report.rank = -1;
    p->has_lock = pthread_mutex_init(&p->lock, NULL) == 0;
    if (!lines) return false;
    p->departed = (int *)coll__allocate(coll__like(p->lines), 2 * n * sizeof *p->departed);
    p->dead = p->departed ? p->departed + n : NULL;
    p->has_left = (unsigned char *)coll__allocate(coll__like(p->lines), 3 * n);
    p->is_dead = p->has_left ? p->has_left + n : NULL;
    p->was_late = p->has_left ? p->has_left + 2 * n : NULL;
    p->reports = (unsigned char *)coll__allocate(coll__like(p->lines), (size_t)p->line_count * COLL__REPORT_LENGTH);
    p->beats = (coll__beat *)coll__allocate(coll__like(p->lines), n * sizeof *p->beats);
    p->fds = (struct pollfd *)coll__allocate(coll__like(p->lines),
                                             ((rank == 0 ? n : 2 * n) + 2 + (size_t)greetings) * sizeof *p->fds);
    p->own.pid = (uint32_t)getpid();
    if (gethostname(p->own.name, sizeof p->own.name - 1)) coll__print(p->own.name, sizeof p->own.name, "?");
    return p->has_lock && p->departed && p->has_left && p->reports && p->beats && p->fds;
}

/* All lines are there, and those at their other ends know of this world, or may (are_met false): begin.  Gives 0, or the errno
 * for which there is no thread; then nobody watches. */
static int coll__heartbeat_open(coll__heartbeat *p, int liveness_ms, bool are_met, coll__bell ring)
{
    int error = 0;

    p->liveness_ms = liveness_ms;
    p->ring = ring;
    p->turned_at = p->doing_since = coll__now();
    p->beat_at = p->turned_at;
    for (int i = 0; i < p->line_count; i++) p->lines[i].heard_at = p->turned_at, p->lines[i].is_met = are_met;
    coll__heartbeat_want(p, COLL__CONTROL_HEARTBEAT); /* who we are; at once, for one may die soon            */
    coll__heartbeat_flush(p);
    if (liveness_ms <= 0) return 0;
    error = coll__bell_open(&p->bell);
    if (!error) error = coll__thread_begin(&p->thread, COLL__HEARTBEAT_STACK, coll__heartbeat_main, p);
    p->has_thread = error == 0;
    if (error) p->liveness_ms = 0;
    return error;
}

/* The thread ends; the lines stay. */
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
    coll__bell_close(&p->bell);
    for (int i = 0; p->lines && i < p->line_count; i++) {
        coll__probe_ends(&p->lines[i]);
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
