/* coll_waiting.h - the processes that wait to join a world, as one of its members knows them.
 *
 * A process that wants to join calls the members, and repeats its request: its id, a random number.  The member that is, or
 * would be, the proposer puts it on its list; the others name that one.  A process that calls again, because its line has ended,
 * keeps its turn.  A request with an id whose line is up is refused: it is another process with that id, or the end of
 * the old line is still unknown. */
#ifndef COLL_WAITING_H
#define COLL_WAITING_H

#include "coll_decision.h"

typedef enum coll__join_answer {
    COLL__JOIN_WAITS,                             /* it is on the list                                        */
    COLL__JOIN_MOVED,                             /* ask another member, or the next world                    */
    COLL__JOIN_REFUSED,                           /* the line of this id is up                                */
    COLL__JOIN_FULL
} coll__join_answer;

typedef struct coll__waiter {
    uint64_t id;
    int      line;                                /* of the caller's                                          */
    bool     is_up;
} coll__waiter;

typedef struct coll__waiting {
    int count, most;                              /* most: at most COLL__NEWCOMERS_MOST                       */
    coll__waiter *waiters;                        /* in order of their first request                          */
} coll__waiting;

static int coll__waiting_find(const coll__waiting *w, uint64_t id)
{
    int i = 0;

    while (i < w->count && w->waiters[i].id != id) i++;
    return i;
}

static void coll__waiting_remove(coll__waiting *w, int at)
{
    memmove(w->waiters + at, w->waiters + at + 1, (size_t)(--w->count - at) * sizeof *w->waiters);
}

static COLL__UNUSED coll__join_answer coll__waiting_add(coll__waiting *w, uint64_t id, int line)
{
    const int at = coll__waiting_find(w, id);
    int ended = 0;

    if (at < w->count && w->waiters[at].is_up && w->waiters[at].line != line) return COLL__JOIN_REFUSED;
    if (at == w->count && w->count == w->most) {  /* one that has not called again leaves                     */
        while (ended < w->count && w->waiters[ended].is_up) ended++;
        if (ended == w->count) return COLL__JOIN_FULL;
        coll__waiting_remove(w, ended);
        return coll__waiting_add(w, id, line);
    }
    w->waiters[at] = (coll__waiter){ id, line, true };
    w->count += at == w->count;
    return COLL__JOIN_WAITS;
}

/* This line has ended. */
static COLL__UNUSED void coll__waiting_ended(coll__waiting *w, int line)
{
    for (int i = 0; i < w->count; i++) if (w->waiters[i].line == line) w->waiters[i].is_up = false;
}

#endif /* COLL_WAITING_H */
