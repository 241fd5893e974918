/* coll_gone.h - what peers have said when they freed a communicator: NOTE_GONE of coll_messages.h.  Without anybody who looks
 * after that (a profile) it is told, and not heard; without messages nobody tells. */
#ifndef COLL_GONE_H
#define COLL_GONE_H

#if COLL__IS_WHOLE

/* Forget who has freed communicators that this rank has freed too.  One that is not there may still come, out of a call that was
 * under way when the news came: as long as that is of this generation, or of the one before. */
static void coll__gone_sweep(coll__session *session)
{
    coll__gone **at = session->messages ? &session->messages->gone : NULL;

    const bool is_idle = session->deriving[0] + session->deriving[1] == 0;
    while (at && *at) {
        coll__gone *g = *at;
        const bool may_come = !is_idle && session->derive_generation - g->generation < 2;
        const coll_comm *comm = may_come ? NULL : session->comms;
        while (comm && comm->id != g->comm) comm = comm->next;
        if (comm || may_come) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        coll__give(g);
    }
}

static coll_status coll__note_gone(coll__session *session, int peer, uint64_t comm, uint64_t sequence)
{
    coll__gone *gone = (coll__gone *)coll__take_zeros(coll__like(session), 1, sizeof *gone);

    if (!gone) return COLL_ERR_MEMORY;
    gone->peer = peer;
    gone->comm = comm;
    gone->sequence = (uint32_t)sequence;
    gone->generation = session->derive_generation;
    gone->next = session->messages->gone;
    session->messages->gone = gone;
    coll__gone_sweep(session);
    return COLL_OK;
}

/* This rank frees a communicator. */
static void coll__gone_forget(coll__messages *all, uint64_t comm)
{
    for (coll__gone **at = &all->gone; *at;) {
        coll__gone *g = *at;
        if (g->comm != comm) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        coll__give(g);
    }
}

static void coll__gone_free(coll__messages *all)
{
    for (coll__gone *g = all->gone, *next; g; g = next) {
        next = g->next;
        coll__give(g);
    }
}

/* What this peer has said when it freed a communicator; NULL: nothing. */
static const coll__gone *coll__gone_of(const coll__session *session, int peer, uint64_t comm)
{
    const coll__gone *g = session->messages ? session->messages->gone : NULL;

    while (g && (g->peer != peer || g->comm != comm)) g = g->next;
    return g;
}

/* Where the transport does not know who has freed a communicator, its members listen to one another: from its beginning, or, in
 * that of coll_init, from when one has waited for long. */
static coll_status coll__messages_hear(const coll_comm *comm)
{
    coll__session *session = comm->session;
    coll_status status = COLL_OK;

    for (int i = 0; i < comm->size && !session->transport->has_freed && status == COLL_OK; i++)
        status = coll__peer_open(session, coll__world_rank(comm, i));
    return status;
}

#else

static inline void coll__gone_sweep(const coll__session *session) { (void)session; }
static inline void coll__gone_forget(const coll__messages *all, uint64_t comm) { (void)all, (void)comm; }
static inline void coll__gone_free(const coll__messages *all) { (void)all; }
static inline coll_status coll__messages_hear(const coll_comm *comm) { return (void)comm, COLL_OK; }

static inline coll_status coll__note_gone(const coll__session *session, int peer, uint64_t comm, uint64_t sequence)
{
    return (void)session, (void)peer, (void)comm, (void)sequence, COLL_OK;
}

static inline const coll__gone *coll__gone_of(const coll__session *session, int peer, uint64_t comm)
{
    return (void)session, (void)peer, (void)comm, NULL;
}

#endif
#endif /* COLL_GONE_H */
