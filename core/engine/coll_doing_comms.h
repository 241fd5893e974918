/* coll_doing_comms.h - which communicators this rank has, for others to read. */
#ifndef COLL_DOING_COMMS_H
#define COLL_DOING_COMMS_H

#if !defined(COLL_NO_OS) && !defined(COLL_NO_WATCH)

static bool coll__has_comm(const coll__session *session, uint32_t id)
{
    const coll_comm *comm = session->comms;

    while (comm && comm->id != id) comm = comm->next;
    return comm != NULL;
}

/* Take down the number of a communicator; gives how many there have been. */
static int coll__doing_note(coll_doing_comms *out, int n, uint64_t number, bool is_map)
{
    const uint64_t back = out->below - 1 - number;

    if (is_map && back < COLL_DOING_COMMS * COLL_DOING_BITS)
        out->numbers[back / COLL_DOING_BITS] |= (uint64_t)1 << back % COLL_DOING_BITS;
    if (!is_map && n < COLL_DOING_COMMS) out->numbers[n] = number + 1;
    return n + 1;
}

/* Those that we have, and those that are freed while something sent in them is still to arrive; gives how many. */
static int coll__doing_list(coll__session *session, coll_doing_comms *out, bool is_map)
{
    int n = 0;

    *out = (coll_doing_comms){ .below = session->next_id };
    for (const coll_comm *comm = session->comms; comm; comm = comm->next) n = coll__doing_note(out, n, comm->id, is_map);
    session->lingers = false;
    for (const coll__message *m = session->messages ? session->messages->outgoing.first : NULL; m; m = m->next) {
        if (coll__has_comm(session, m->comm)) continue;
        session->lingers = true;
        n = coll__doing_note(out, n, m->comm, is_map);
    }
    return n;
}

/* Communicators have come or gone.  While some are being made, one that is not there may still come. */
static void coll__doing_comms(coll__session *session)
{
    coll_doing *d = &session->doing;
    coll_doing_comms now;
    const bool is_map = coll__doing_list(session, &now, false) > COLL_DOING_COMMS;

    if (is_map) coll__doing_list(session, &now, true), now.below |= COLL_DOING_MAP;
    if (session->deriving > 0) now.below = 0;
    (void)__atomic_add_fetch(&d->comms_turn, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < COLL_DOING_COMMS; i++) __atomic_store_n(&d->comms.numbers[i], now.numbers[i], __ATOMIC_SEQ_CST);
    __atomic_store_n(&d->comms.below, now.below, __ATOMIC_SEQ_CST);
    (void)__atomic_add_fetch(&d->comms_turn, 1, __ATOMIC_SEQ_CST);
}

#else

static void coll__doing_comms(coll__session *session) { (void)session; }

#endif
#endif /* COLL_DOING_COMMS_H */
