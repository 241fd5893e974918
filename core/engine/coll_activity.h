/* coll_activity.h - what this rank does and which communicators it has, for other threads to read, and through them for other
 * ranks; and which communicators the other ranks have freed.
 *
 * A call would wait forever for a rank that has freed its communicator.  This rank learns of that in two ways: coll_free sends a
 * note to the peers with which a rank exchanges messages (coll_messages.h), and a call that waits for long asks the transport
 * (coll_patience.h).  Both end in the list session->gone.  Then a message that waits for such a rank fails, and so does a
 * collective. */
#ifndef COLL_ACTIVITY_H
#define COLL_ACTIVITY_H

/* ---- >>the call in which this rank is ---- */

#if COLL__HAS_OS

/* Something has changed.  If no other thread uses the session, no locked instruction is needed: it would wait until all stores of
 * this rank have arrived at the other ranks. */
static inline void coll__doing_turn(coll__session *session)
{
    uint64_t *const turn = &session->doing.turn;

    if (coll__is_shared(session)) (void)__atomic_add_fetch(turn, 1, __ATOMIC_RELEASE);
    else __atomic_store_n(turn, __atomic_load_n(turn, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
}

/* Write a head where other threads read it. */
static inline void coll__doing_set(coll__session *session, uint64_t *words, const unsigned char *head)
{
    COLL__UNROLLED for (int i = 0; i < COLL_HEAD_LENGTH / 8; i++) {
        uint64_t word;
        memcpy(&word, head + 8 * i, 8);
        __atomic_store_n(&words[i], word, __ATOMIC_RELAXED);
    }
    coll__doing_turn(session);
}

/* The report of a rank that waits in the call with this head. */
static void coll__report_make(const coll__session *session, const unsigned char *head, unsigned char *report)
{
    memcpy(report, head, COLL_HEAD_LENGTH);
    for (size_t i = 0; session && i < COLL_HEAD_LENGTH / 8; i++) {
        const uint64_t word = __atomic_load_n(&session->doing.last[i], __ATOMIC_RELAXED);
        memcpy(report + COLL_HEAD_LENGTH + 8 * i, &word, 8);
    }
}

/* It waits in the call with this head. */
static inline void coll__doing_begin(coll__session *session, const unsigned char *head)
{
    (void)__atomic_add_fetch(&session->doing.inside, 1, __ATOMIC_RELAXED);
    coll__doing_set(session, session->doing.now, head);
}

static inline void coll__doing_end(coll__session *session)
{
    (void)__atomic_sub_fetch(&session->doing.inside, 1, __ATOMIC_RELAXED);
    coll__doing_turn(session);
}

/* A call with COLL_DETECT_OVERFLOW has found one. */
static inline void coll__overflows_count(coll_comm *comm) { (void)__atomic_add_fetch(&comm->overflows, 1, __ATOMIC_RELAXED); }
static inline uint64_t coll__overflows_of(const coll_comm *comm) { return __atomic_load_n(&comm->overflows, __ATOMIC_RELAXED); }

#else

/* No other thread reads. */
static inline void coll__doing_set(coll__session *session, uint64_t *words, const unsigned char *head)
{
    (void)session;
    memcpy(words, head, COLL_HEAD_LENGTH);
}

static inline void coll__doing_begin(coll__session *session, const unsigned char *head) { (void)session, (void)head; }
static inline void coll__doing_end(coll__session *session) { (void)session; }
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

/* Before and after a change of the list of communicators, which other threads read.  A forked child has no other threads, and the
 * lock may be taken in it forever. */
static void coll__comms_hold(coll__session *session)
{
    if (*session->guard) coll__lock_take(&session->comms_lock);
    session->comms_turn++;
}

static void coll__comms_release(coll__session *session)
{
    if (*session->guard) coll__lock_drop(&session->comms_lock);
}

/* Are all communicators of this rank in the list?  Not while one is being made, and not while something sent in one that is freed
 * has still to leave. */
static inline bool coll__comms_are_known(const coll__session *session) { return session->deriving == 0 && !session->lingers; }

/* Has the rank of this session freed a communicator?  The caller has that communicator, so the rank has begun to make it.  From
 * any thread. */
static COLL__UNUSED bool coll__comm_is_freed(coll__session *session, uint64_t id)
{
    coll__lock_take(&session->comms_lock);
    const bool is_freed = coll__comms_are_known(session) && !coll__comm_find(session, id);
    coll__lock_drop(&session->comms_lock);
    return is_freed;
}

/* ---- >>the communicators that other ranks have freed ---- */

/* Has this peer left, and has all that it sent come in?  -1: has any? */
static inline bool coll__has_left(const coll__session *session, int peer)
{
    return session->transport->has_left && session->transport->has_left(session->context, peer);
}

/* How a peer has freed this communicator; NULL: as far as is known, it has not. */
static coll__gone *coll__gone_of(const coll__session *session, int peer, uint64_t comm)
{
    coll__gone *g = COLL__IS_WHOLE ? session->gone : NULL;

    while (g && (g->peer != peer || g->comm != comm)) g = g->next;
    return g;
}

/* A peer has freed a communicator, in which it has started so many collectives.  If this rank does not have it and makes none, it
 * has freed it before. */
static coll_status coll__gone_note(coll__session *session, int peer, uint64_t comm, uint32_t sequence, bool is_sure)
{
    coll__gone *gone = coll__gone_of(session, peer, comm);

    if (gone) gone->is_sure |= is_sure;
    if (gone || !COLL__IS_WHOLE || (session->deriving == 0 && !coll__comm_find(session, comm))) return COLL_OK;
    gone = (coll__gone *)coll__allocate(coll__like(session), sizeof *gone);
    if (!gone) return COLL_ERR_MEMORY;
    *gone = (coll__gone){ session->gone, peer, sequence, comm, is_sure };
    session->gone = gone;
    return COLL_OK;
}

/* Forget what is known of communicators that this rank has freed, too; all that are not in the list, if it makes none. */
static void coll__gone_sweep(coll__session *session)
{
    for (coll__gone **at = &session->gone; COLL__IS_WHOLE && *at && session->deriving == 0;) {
        coll__gone *g = *at;
        if (coll__comm_find(session, g->comm)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        coll__give(g);
    }
}

#endif /* COLL_ACTIVITY_H */
