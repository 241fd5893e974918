/* coll_mover.h - a thread that moves operations on while the program computes.
 *
 * A collective is many messages, with sums in between, and somebody has to make the next ones out of those that have come.
 * While a thread of the program is inside a call it sees to that for all operations; between calls the mover does.  Each trunk
 * has one, over a transport that allows it, made by the first non-blocking operation that is not done when the call that starts
 * it returns: who makes only blocking calls has none.
 *
 *                       a start                            left alone for a whole nap
 *     asleep until one  ------->  a nap, of 0.1 ms and more  ------->  inside: moves on, sleeps in the transport
 *            ^                     |                   ^                  |
 *            +---------------------+                   +------------------+
 *              nothing is pending                        an entrant, or nothing is pending
 *
 * It is a holder of the trunk like any other (coll_progress.h), with three differences.  It comes in only when nobody is inside
 * or waits; it leaves for every entrant; and it leaves the caller's own operations, and calls on devices, alone
 * (coll__is_for_others).
 *
 * Naps keep it out of the way of programs that call often.  As long as calls come within a nap it leaves things to them, and its
 * naps grow, up to 1 ms; so do they when an entrant soon turns it out again.  Somebody who is inside at the end of a nap wakes it
 * up when he leaves, if anything is pending then, and a start does when it sleeps for good: no other call pays for it.  While it
 * sleeps for good, and there is but one communicator, who enters need not take the trunk. */
#ifndef COLL_MOVER_H
#define COLL_MOVER_H

#include <signal.h>

enum { COLL__NAP_LEAST_US = 100, COLL__NAP_MOST_US = 1000, COLL__MOVER_STACK = 512 * 1024 };

/* Is there anything to move?  Calls on devices move by themselves.  While nobody is inside, or by whoever is. */
static bool coll__trunk_is_busy(const coll__trunk *trunk)
{
    const coll__messages *all = trunk->messages;

    for (const coll__track *track = trunk->tracks; track; track = track->next) if (!track->queue->is_on_device) return true;
    if (trunk->failure.status != COLL_OK) return false;
    return all && (all->outgoing.first || all->wanted.first || all->moving.first || all->replies.first);
}

/* ---- >>the thread ---- */

static inline bool coll__mover_must_leave(const coll__trunk *trunk)
{
    return __atomic_load_n(&trunk->entrants, __ATOMIC_SEQ_CST) > 0;
}

/* Hold the trunk until somebody else wants it, or there is nothing left to move.  The last look lets the transport know that
 * nobody sleeps in it. */
static void coll__mover_move(coll__trunk *trunk)
{
    coll_status status = coll__advance(trunk, 0);

    while (status >= 0 && coll__trunk_is_busy(trunk) && !coll__mover_must_leave(trunk))
        status = coll__advance(trunk, COLL__SLEEP_MOST_MS);
    if (trunk->failure.status == COLL_OK) (void)trunk->transport->progress(trunk->context, 0);
}

/* Sleep until a nap is over, or the mover is to end. */
static void coll__mover_nap(coll__trunk *trunk)
{
    const int64_t until = coll__now() + trunk->mover.nap;
    const struct timespec at = { (time_t)(until / 1000000000), (long)(until % 1000000000) };
    int error = 0;

    while (!trunk->mover.is_stopping && error == 0)
        error = pthread_cond_timedwait(&trunk->mover.bell, &trunk->lock, &at);
}

/* Sleep until somebody sees to it that it naps again. */
static void coll__mover_sleep(coll__trunk *trunk, coll__mover_wait what)
{
    coll__mover *m = &trunk->mover;

    if (what == COLL__FOR_A_START) __atomic_store_n(&trunk->is_shared, trunk->has_many, __ATOMIC_RELEASE);
    m->waits = what;
    while (m->waits != COLL__FOR_A_NAP && !m->is_stopping) pthread_cond_wait(&m->bell, &trunk->lock);
}

/* Others are at work: keep away for longer. */
static void coll__mover_shy(coll__mover *m)
{
    if (m->nap < (int64_t)COLL__NAP_MOST_US * 1000) m->nap *= 2;
}

/* Sleep for a while.  true: something is pending that has been left alone all the time. */
static bool coll__mover_rest(coll__trunk *trunk)
{
    coll__mover *m = &trunk->mover;
    const unsigned visits = trunk->visits, starts = m->starts;

    coll__mover_nap(trunk);
    if (m->is_stopping || trunk->entrants > 0 || trunk->followers > 0) return false;
    const bool was_alone = !trunk->is_held && trunk->visits == visits;
    if (!was_alone) coll__mover_shy(m);
    if (trunk->is_held) coll__mover_sleep(trunk, COLL__FOR_A_DROP);
    else if (coll__trunk_is_busy(trunk)) return was_alone;
    else if (m->starts == starts) coll__mover_sleep(trunk, COLL__FOR_A_START);
    return false;
}

static void *coll__mover_main(void *at)
{
    coll__trunk *trunk = (coll__trunk *)at;
    coll__mover *m = &trunk->mover;

    pthread_mutex_lock(&trunk->lock);
    while (!m->is_stopping) {
        if (!coll__mover_rest(trunk)) continue;
        const int64_t began = coll__now();
        trunk->is_held = true;
        pthread_mutex_unlock(&trunk->lock);
        coll__mover_move(trunk);
        pthread_mutex_lock(&trunk->lock);
        trunk->is_held = false;
        pthread_cond_broadcast(&trunk->changed);
        const bool is_welcome = trunk->entrants == 0 || coll__now() - began > (int64_t)COLL__NAP_MOST_US * 1000;
        if (is_welcome) m->nap = (int64_t)COLL__NAP_LEAST_US * 1000;
        else coll__mover_shy(m);
    }
    pthread_mutex_unlock(&trunk->lock);
    return NULL;
}

/* ---- >>from the program's threads ---- */

/* The lock is held, so the thread comes no further than that. */
static void coll__mover_begin(coll__trunk *trunk)
{
    coll__mover *m = &trunk->mover;
    const int error = coll__thread_begin(&m->thread, COLL__MOVER_STACK, coll__mover_main, trunk);

    m->has_thread = error == 0;
    if (m->has_thread) return;
    m->is_wanted = false;
    coll__say(&trunk->log, COLL_LOG_INFO, "no thread to move operations while the program computes: %s", strerror(error));
}

/* The holder leaves, and the mover sleeps for that: it is its turn, unless there is nothing to move. */
static void coll__mover_turn(coll__trunk *trunk)
{
    coll__mover *m = &trunk->mover;

    m->waits = coll__trunk_is_busy(trunk) ? COLL__FOR_A_NAP : COLL__FOR_A_START;
    if (m->waits == COLL__FOR_A_NAP) pthread_cond_signal(&m->bell);
    else __atomic_store_n(&trunk->is_shared, trunk->has_many, __ATOMIC_RELEASE);
}

/* Something has been started by a thread inside `comm` that is not done.  From here on that thread must hold the trunk. */
static void coll__mover_rouse(coll_comm *comm)
{
    coll__trunk *trunk = comm->trunk;
    coll__mover *m = &trunk->mover;

    if (!m->is_wanted) return;
    pthread_mutex_lock(&trunk->lock);
    if (!m->has_thread) coll__mover_begin(trunk);
    if (m->has_thread) {
        __atomic_store_n(&trunk->is_shared, true, __ATOMIC_RELEASE);
        if (!comm->is_holder) coll__trunk_take_locked(comm);
        m->starts++;
        if (m->waits == COLL__FOR_A_START) {
            m->waits = COLL__FOR_A_NAP;
            pthread_cond_signal(&m->bell);
        }
    }
    pthread_mutex_unlock(&trunk->lock);
}

/* The last communicator is being freed, by a thread that holds the trunk, or need not. */
static void coll__mover_stop(coll__trunk *trunk)
{
    coll__mover *m = &trunk->mover;

    if (!m->has_thread) return;
    pthread_mutex_lock(&trunk->lock);
    m->is_stopping = true;
    pthread_cond_signal(&m->bell);
    pthread_mutex_unlock(&trunk->lock);
    pthread_join(m->thread, NULL);
    m->has_thread = false;
}

#endif /* COLL_MOVER_H */
