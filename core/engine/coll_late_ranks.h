/* coll_late_ranks.h - warnings and errors that name the ranks for which a call has waited too long. */
#ifndef COLL_LATE_RANKS_H
#define COLL_LATE_RANKS_H

COLL__FOR_SIZE

/* "ranks 3, 5-7".  If these are most ranks, also the others: "(not for 1, 2)". */
static void coll__late_text(const coll__session *session, unsigned char *is_late, int count, char *text, size_t room)
{
    coll__print(text, room, count == 0 ? "the others" : count == 1 ? "rank " : "ranks ");
    coll__append_ranks(text, room, is_late, session->size);
    if (2 * count <= session->size || count + 1 >= session->size) return;
    for (int i = 0; i < session->size; i++) is_late[i] = !is_late[i] && i != session->rank;
    coll__append(text, room, " (not for ");
    coll__append_ranks(text, room, is_late, session->size);
    coll__append(text, room, ")");
    for (int i = 0; i < session->size; i++) is_late[i] = !is_late[i] && i != session->rank;
}

/* Log a warning: the late ranks, and their state. */
static void coll__late_warn(const coll_request *r, unsigned char *is_late, int count, double seconds)
{
    const coll_comm *comm = r->comm;
    const coll__session *session = comm->session;
    char who[160], what[COLL__CALL_ROOM], where[240] = "";

    coll__head_describe(r->head, what, sizeof what);
    if (r->call.name) coll__append(what, sizeof what, " \"%.64s\"", r->call.name);
    coll__late_text(session, is_late, count, who, sizeof who);
    if (count > 0 && session->transport->peer_status)
        session->transport->peer_status(session->context, is_late, where, sizeof where);
    coll__say(&session->log, COLL_LOG_WARN, "rank %d of %d: %s has been waiting %.1f s for %s%s%s%s", comm->rank, comm->size,
              what, seconds, who, *where ? " (" : "", where, *where ? ")" : "");
}

typedef enum coll__lateness { COLL__LATE_ASK, COLL__LATE_WARN, COLL__LATE_FAIL } coll__lateness;

static coll_status coll__late(coll_request *r, int64_t waited_ns, coll__lateness how)
{
    const coll__session *session = r->comm->session;
    const double seconds = coll__seconds(waited_ns);
    unsigned char *is_late = (unsigned char *)coll__take_zeros(coll__like(session), (size_t)session->size, 1);
    coll_failure failure = { COLL_OK, -1, "" };
    char who[120] = "the others";
    int first = 0;

    const int count = is_late ? coll__late_ranks(r, is_late) : 0;
    while (count > 0 && !is_late[first]) first++;
    if (how == COLL__LATE_ASK && count > 0 && session->transport->peer_status)
        session->transport->peer_status(session->context, is_late, NULL, 0);
    if (how == COLL__LATE_WARN && is_late) coll__late_warn(r, is_late, count, seconds);
    if (how == COLL__LATE_FAIL && is_late) coll__late_text(session, is_late, count, who, sizeof who);
    coll__give(is_late);
    if (how != COLL__LATE_FAIL) return COLL_PENDING;
    coll__set_failure(&failure, COLL_ERR_TIMEOUT, count > 0 ? first : -1, "no word from %s in %.3g s (rank %d waited)", who,
                      seconds, session->rank);
    return coll__comm_fail(r->comm, &failure);
}

COLL__FOR_SPEED

#endif /* COLL_LATE_RANKS_H */
