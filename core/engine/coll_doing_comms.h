/* coll_doing_comms.h - which communicators this rank has, for others to read. */
#ifndef COLL_DOING_COMMS_H
#define COLL_DOING_COMMS_H

#if COLL__HAS_OS && COLL__IS_WHOLE

static bool coll__has_comm(const coll__session *session, uint64_t id)
{
    const coll_comm *comm = session->comms;

    while (comm && comm->id != id) comm = comm->next;
    return comm != NULL;
}

/* Add an id to the list; false: no memory. */
static bool coll__comm_id_add(coll__session *session, uint64_t id)
{
    coll__comm_ids *const own = &session->ids;

    if (own->count == own->room) {
        const size_t room = own->room ? 2 * own->room : 8;
        uint64_t *more = (uint64_t *)coll__take_more(coll__like(session), own->ids, room * sizeof *more);
        if (!more) return false;
        own->ids = more;
        own->room = room;
    }
    own->ids[own->count++] = id;
    return true;
}

/* Communicators have come or gone.  Listed are those that there are, and those that are freed while something sent in them is
 * still to arrive.  Without memory for the list nothing is known. */
static void coll__doing_comms(coll__session *session)
{
    coll__comm_ids *const own = &session->ids;

    coll__lock_take(&own->lock);
    own->turn++;
    own->count = 0;
    own->is_known = session->deriving[0] + session->deriving[1] == 0;
    for (const coll_comm *comm = session->comms; comm; comm = comm->next) own->is_known &= coll__comm_id_add(session, comm->id);
    session->lingers = false;
    for (const coll__message *m = session->messages ? session->messages->outgoing.first : NULL; m; m = m->next) {
        if (coll__has_comm(session, m->comm)) continue;
        session->lingers = true;
        own->is_known &= coll__comm_id_add(session, m->comm);
    }
    coll__lock_drop(&own->lock);
}

static void coll__comm_ids_open(coll__session *session)
{
    coll__lock_init(&session->ids.lock);
    session->doing.comms = &session->ids;
}

/* In a forked child the lock stays as it is. */
static void coll__comm_ids_close(coll__session *session)
{
    coll__give(session->ids.ids);
    if (*session->guard) coll__lock_free(&session->ids.lock);
}

#else

static inline void coll__doing_comms(coll__session *session) { (void)session; }
static inline void coll__comm_ids_open(coll__session *session) { (void)session; }
static inline void coll__comm_ids_close(coll__session *session) { (void)session; }

#endif
#endif /* COLL_DOING_COMMS_H */
