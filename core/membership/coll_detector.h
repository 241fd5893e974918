/* coll_detector.h - the failure detector: which members of a world are silent, have left, or are dead.
 *
 * This is a state machine without socket, thread, clock, or memory of its own.  Member 0 watches all others, and each of them
 * watches member 0.  If member 0 has left, a member watches those to which it has opened a line.
 *
 *     silence    A member is dead if nothing is received from it for the timeout and one beat: so one that is stopped for less
 *                than the timeout is not.  All lines are read before that is checked.
 *     sleep      A member whose turns are more than half the timeout apart was stopped itself.  The others get another half.
 *     together   Members that fail together exceed the limit at different times: those that are silent for the timeout die with
 *                the first.  If these are most of the world, it is member 0 that is cut off (coll_outcome.h).
 *     path       A connection without beats is silent if data in flight on it has no answer within the limit of silence. */
#ifndef COLL_DETECTOR_H
#define COLL_DETECTOR_H

#include "../base/coll_base.h"

enum { COLL__BEATS = 8 };                         /* per timeout                                              */

typedef struct coll__detector_line {
    bool    is_up, is_met;                        /* it is reached; a note has come on it                     */
    int64_t heard_at, refused_at;                 /* the last bytes; the first refusal                        */
} coll__detector_line;

typedef enum coll__line_end { COLL__END_IN_ORDER, COLL__END_EARLY, COLL__END_DEATH } coll__line_end;

typedef struct coll__members { unsigned char *has; int *list, count; } coll__members;       /* in the order of the list */

typedef struct coll__detector {
    int     me, size, watched;                    /* watched: this many members, from 0 on                    */
    bool    has_slept;
    int64_t timeout;                              /* 0: silence is no death                                   */
    int64_t turned_at, woke_at, beat_at;          /* the last turn; the last one after a sleep; the next beat */
    coll__members left, dead;
    coll__detector_line *lines;
} coll__detector;

static inline int64_t coll__beat_interval(const coll__detector *d) { return d->timeout / COLL__BEATS; }
static inline int64_t coll__silence_limit(const coll__detector *d) { return d->timeout + coll__beat_interval(d); }
static inline size_t coll__detector_memory(int n) { return (size_t)n * (sizeof(coll__detector_line) + 2 * sizeof(int) + 2); }

/* `memory` has coll__detector_memory(size) bytes, which are 0.  Set `timeout`, turned_at and beat_at when its turns begin. */
static void coll__detector_open(coll__detector *d, void *memory, int size, int me)
{
    *d = (coll__detector){ .me = me, .size = size, .watched = me == 0 ? size : 1, .lines = (coll__detector_line *)memory };
    d->left.list = (int *)(void *)(d->lines + size);
    d->dead.list = d->left.list + size;
    d->left.has = (unsigned char *)(d->dead.list + size);
    d->dead.has = d->left.has + size;
}

/* Returns false: it is in the list already. */
static bool coll__members_add(coll__members *m, int member)
{
    if (m->has[member]) return false;
    m->has[member] = 1;
    m->list[m->count++] = member;
    return true;
}

/* ---- >>what happens ---- */

/* The line to a member is up: its silence counts from now on.  is_met: it is in this world for certain. */
static void coll__detector_up(coll__detector *d, int member, bool is_met, int64_t now)
{
    d->lines[member] = (coll__detector_line){ .is_up = true, .is_met = is_met, .heard_at = now };
}

/* Bytes have come.  Lines behind `size` were opened by the other end, and are not watched. */
static void coll__detector_heard(coll__detector *d, int line, int64_t now) { if (line < d->size) d->lines[line].heard_at = now; }

/* A note has come, about `about`.  Returns which member it counts for. */
static int coll__detector_met(coll__detector *d, int line, int about)
{
    if (line < d->size) d->lines[line].is_met = true;
    return d->me != 0 && line == 0 ? about : line % d->size;
}

/* The line has ended. */
static coll__line_end coll__detector_ended(coll__detector *d, int member)
{
    d->lines[member].is_up = false;
    if (d->left.has[member]) return COLL__END_IN_ORDER;
    if (!d->lines[member].is_met) return d->me == 0 || member == 0 ? COLL__END_EARLY : COLL__END_IN_ORDER;
    (void)coll__members_add(&d->dead, member);
    return COLL__END_DEATH;
}

/* So many connects in a row were refused.  Returns whether it is gone: all its addresses have refused them for the timeout. */
static bool coll__detector_refused(coll__detector *d, int member, int refusals, int addresses, int64_t now)
{
    if (refusals == 1) d->lines[member].refused_at = now;
    return refusals >= addresses && now - d->lines[member].refused_at > d->timeout;
}

/* Has this process been stopped so long that others may have declared it dead? */
static bool coll__detector_slept(const coll__detector *d, int64_t now)
{
    return d->has_slept || (d->timeout > 0 && now - d->turned_at > d->timeout / 2);
}

/* Returns whether a beat is due. */
static bool coll__detector_turn(coll__detector *d, int64_t now)
{
    if (now - d->turned_at > d->timeout / 2) d->has_slept = true, d->woke_at = now;
    d->turned_at = now;
    if (now < d->beat_at) return false;
    d->beat_at = now + coll__beat_interval(d);
    return true;
}

/* ---- >>decisions ---- */

static bool coll__detector_watches(const coll__detector *d, int member)
{
    return d->lines[member].is_up && !d->left.has[member] && !d->dead.has[member];
}

/* How long nothing was received from a member. */
static int64_t coll__detector_silence(const coll__detector *d, int member, int64_t until)
{
    const int64_t heard_at = d->lines[member].heard_at, least = d->woke_at - d->timeout / 2;
    return until - (heard_at > least ? heard_at : least);
}

static bool coll__detector_is_silent(const coll__detector *d, int member, int64_t most)
{
    return coll__detector_watches(d, member) && coll__detector_silence(d, member, d->turned_at) > most;
}

/* When the next turn is due.  If it is due still after a turn, a member may be silent: read all lines, and check. */
static int64_t coll__detector_next(const coll__detector *d)
{
    int64_t next = d->beat_at;

    for (int i = 0; i < d->watched; i++) {
        const int64_t late = coll__silence_limit(d) + 1 - coll__detector_silence(d, i, 0);
        if (coll__detector_watches(d, i) && late < next) next = late;
    }
    return next;
}

/* Returns the first member that is silent beyond the limit, and how many die; -1: none is. */
static int coll__detector_check(coll__detector *d, bool is_decided, int *count)
{
    const int64_t most = is_decided ? coll__silence_limit(d) : d->timeout;
    int first = 0;

    *count = 0;
    while (first < d->watched && !coll__detector_is_silent(d, first, coll__silence_limit(d))) first++;
    if (first == d->watched) return -1;
    for (int i = 0; i < d->watched; i++) {
        if (i != first && (d->me != 0 || !coll__detector_is_silent(d, i, most))) continue;
        (void)coll__members_add(&d->dead, i);
        ++*count;
    }
    return first;
}

/* A path to a member had its last answer at answered_at; 0: nothing is in flight.  Since *since an answer is missing.  Returns
 * whether it is silent, and no line shows it better: if the member's beats come, it only reads slowly. */
static bool coll__detector_path(const coll__detector *d, int member, int64_t *since, int64_t answered_at, int64_t now)
{
    const int64_t asked_at = *since && *since >= d->woke_at ? *since : now;

    *since = !answered_at ? 0 : answered_at > asked_at ? answered_at : asked_at;
    return *since && now - *since > coll__silence_limit(d) && !coll__detector_watches(d, member);
}

#endif /* COLL_DETECTOR_H */
