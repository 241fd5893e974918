/* coll_activity.h - what this rank is doing, for other threads and through them for other ranks; its communicators; the
 * communicators that other ranks have freed.
 *
 * A call would wait forever for a rank that has freed its communicator.  There are two sources of that information. coll_free
 * sends a note to the peers with which it exchanges messages (coll_p2p.h).  A call that waits for long queries the
 * transport (coll_wait_loop.h).  Both add to the list session->gone.  Then messages and collectives that wait for such a rank
 * fail. */
#ifndef COLL_ACTIVITY_H
#define COLL_ACTIVITY_H

/* ---- >>the current call ---- */

#if COLL__HAS_OS

/* Count a change.  If no other thread uses the session, no atomic read-modify-write is needed, which would drain the store
 * buffer. */
static inline void coll__activity_count(coll__session *session)
{
    uint64_t *const turn = &session->activity.turn;

    if (coll__is_shared(session)) (void)__atomic_add_fetch(turn, 1, __ATOMIC_RELEASE);
    else __atomic_store_n(turn, __atomic_load_n(turn, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
}

/* Write a head that other threads read. */
static inline void coll__activity_set(coll__session *session, uint64_t *words, const unsigned char *head)
{
    COLL__UNROLLED for (int i = 0; i < COLL_HEAD_LENGTH / 8; i++) {
        uint64_t word;
        memcpy(&word, head + 8 * i, 8);
        __atomic_store_n(&words[i], word, __ATOMIC_RELAXED);
    }
    coll__activity_count(session);
}

/* The report of a rank that waits in the call with this head: the head, and that of the last ended call; session NULL: none. */
static void coll__report_make(const coll__session *session, const unsigned char *head, unsigned char *report)
{
    memcpy(report, head, COLL_HEAD_LENGTH);
    for (size_t i = 0; i < COLL_HEAD_LENGTH / 8; i++) {
        const uint64_t word = session ? __atomic_load_n(&session->activity.last[i], __ATOMIC_RELAXED) : 0;
        memcpy(report + COLL_HEAD_LENGTH + 8 * i, &word, 8);
    }
}

/* A wait in the call with this head begins. */
static inline void coll__activity_begin(coll__session *session, const unsigned char *head)
{
    (void)__atomic_add_fetch(&session->activity.inside, 1, __ATOMIC_RELAXED);
    coll__activity_set(session, session->activity.now, head);
}

static inline void coll__activity_end(coll__session *session)
{
    (void)__atomic_sub_fetch(&session->activity.inside, 1, __ATOMIC_RELAXED);
    coll__activity_count(session);
}

/* A call with COLL_DETECT_OVERFLOW has found an overflow. */
static inline void coll__overflows_count(coll_comm *comm) { (void)__atomic_add_fetch(&comm->overflows, 1, __ATOMIC_RELAXED); }
static inline uint64_t coll__overflows_of(const coll_comm *comm) { return __atomic_load_n(&comm->overflows, __ATOMIC_RELAXED); }

#else

/* No other thread reads. */
static inline void coll__activity_set(coll__session *session, uint64_t *words, const unsigned char *head)
{
    (void)session;
    memcpy(words, head, COLL_HEAD_LENGTH);
}

static inline void coll__activity_begin(coll__session *session, const unsigned char *head) { (void)session, (void)head; }
static inline void coll__activity_end(coll__session *session) { (void)session; }
static inline void coll__overflows_count(coll_comm *comm) { comm->overflows++; }
static inline uint64_t coll__overflows_of(const coll_comm *comm) { return comm->overflows; }

#endif

/* ---- >>the communicators of this rank ---- */

static coll_comm *coll__comm_find(const coll__session *session, uint64_t id)
{
    coll_comm *comm = session->comms;

    while (comm && comm->id != id) comm = comm->next;
    return comm;
}

/* Called before and after changes of the list of communicators, which other threads read.  In a forked child the lock may never
 * be released; there are no other threads, so it is not taken. */
static void coll__comms_hold(coll__session *session)
{
    if (*session->guard) coll__lock_take(&session->comms_lock);
    session->comms_version++;
}

static void coll__comms_release(coll__session *session)
{
    if (*session->guard) coll__lock_drop(&session->comms_lock);
}

/* Is the list of communicators complete?  Not while one is being made, nor while messages of a freed one are still to be sent. */
static inline bool coll__comms_are_known(const coll__session *session) { return session->deriving == 0 && !session->lingers; }

/* Has this rank freed a communicator?  The querying rank has it, so this rank has begun to make it.  Callable from any thread. */
static COLL__UNUSED bool coll__comm_is_freed(coll__session *session, uint64_t id)
{
    coll__lock_take(&session->comms_lock);
    const bool is_freed = coll__comms_are_known(session) && !coll__comm_find(session, id);
    coll__lock_drop(&session->comms_lock);
    return is_freed;
}

/* ---- >>the communicators that other ranks have freed ---- */

/* Has this peer left, and has all that it sent arrived? -1: has any? */
static inline bool coll__has_left(const coll__session *session, int peer)
{
    return session->transport->has_left && session->transport->has_left(session->context, peer);
}

/* The entry for a communicator that a peer has freed; NULL: none known. */
static coll__peer_left *coll__peer_left_of(const coll__session *session, int peer, uint64_t comm)
{
    coll__peer_left *g = COLL__IS_WHOLE ? session->gone : NULL;

    while (g && (g->peer != peer || g->comm != comm)) g = g->next;
    return g;
}

/* A peer has freed a communicator, after `sequence` collectives in it.  Ignored if this rank has freed it, too: it does not
 * have it and makes none. */
static coll_status coll__peer_left_note(coll__session *session, int peer, uint64_t comm, uint32_t sequence, bool is_sure)
{
    coll__peer_left *gone = coll__peer_left_of(session, peer, comm);

    if (gone) gone->is_sure |= is_sure;
    if (gone || !COLL__IS_WHOLE || (session->deriving == 0 && !coll__comm_find(session, comm))) return COLL_OK;
    gone = (coll__peer_left *)coll__allocate(coll__like(session), sizeof *gone);
    if (!gone) return COLL_ERR_MEMORY;
    *gone = (coll__peer_left){ session->gone, peer, sequence, comm, is_sure };
    session->gone = gone;
    return COLL_OK;
}

/* Remove entries of communicators that this rank has freed, too.  Waits while communicators are being made. */
static void coll__peer_left_sweep(coll__session *session)
{
    for (coll__peer_left **at = &session->gone; COLL__IS_WHOLE && *at && session->deriving == 0;) {
        coll__peer_left *g = *at;
        if (coll__comm_find(session, g->comm)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        coll__give(g);
    }
}

#endif /* COLL_ACTIVITY_H */
