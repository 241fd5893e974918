/* coll_tcp_shrink.h - after a failure: those who are left make a world of their own.
 *
 * They have agreed on who they are (coll_tcp_gather.h).  The new world takes over the listener, and the connections to the host,
 * which is its rank 0.  Its name is made of that of the gathering, and of who goes on: what is late of the old world, or of
 * another gathering, is turned away. */
#ifndef COLL_TCP_SHRINK_H
#define COLL_TCP_SHRINK_H

/* ---- >>the new world ---- */

/* The name of a world made of `ranks`, or of those of them that are there. */
static void coll__gathering_name(unsigned char *world, const unsigned char *before, const int *ranks,
                                 const unsigned char *is_there, int count)
{
    char text[80] = "";
    uint64_t hash = 1469598103934665603u;

    for (int i = 0; i < count; i++)
        if (!is_there || is_there[i]) hash = (hash ^ (uint64_t)(unsigned)ranks[i]) * 1099511628211u;
    for (int i = 0; i < COLL__WORLD_LENGTH; i++) coll__append(text, sizeof text, "%02x", before[i]);
    coll__append(text, sizeof text, " without %016llx", (unsigned long long)hash);
    coll__digest(world, text);
}

/* What the new world tells those who still call for the gathering.  NULL: no memory. */
static coll__past *coll__gathering_past(const coll__gathering *h)
{
    coll__past *past = (coll__past *)malloc(sizeof *past + (size_t)h->count);

    if (!past) return NULL;
    past->us = h->us;
    past->us.past = NULL;
    past->table = coll__behind(past, sizeof *past);
    memcpy(past->table, h->table, (size_t)h->count);
    return past;
}

/* The control connections: at rank 0 those to its attendees, elsewhere the one to rank 0.  A rank that has none to rank 0 has
 * lost it, and knows how this world ends. */
static void coll__gathering_lines(coll__gathering *h, coll__tcp *tcp)
{
    for (int i = 0, rank = 0; i < h->count; i++) {
        if (!h->table[i]) continue;
        if (tcp->rank == 0 && i != h->me) tcp->controls[rank].pipe = coll__pipe_take(&h->attendees[i].heard.pipe);
        if (tcp->rank > 0 && rank == 0 && i == h->host) tcp->controls[0].pipe = coll__pipe_take(&h->calls[0].heard.pipe);
        rank++;
    }
    coll__control_open(tcp, h->old->pulse.has_thread ? h->old->pulse.liveness_ms : -1);
    if (tcp->rank == 0 || tcp->controls[0].pipe.fd >= 0) return;
    pthread_mutex_lock(&tcp->pulse.lock);
    coll__pulse_blame(&tcp->pulse, COLL_ERR_PEER, 0, "is gone: it was lost while the ranks that were left met");
    pthread_mutex_unlock(&tcp->pulse.lock);
}

/* The context of this rank in it; it takes the listener and the pipes over.  NULL: no memory, or no descriptors. */
static coll__tcp *coll__gathering_world(coll__gathering *h, coll_survivors *out)
{
    coll__tcp *old = h->old;
    coll__settings settings = { .config = { .rank = out->rank, .size = out->count, .world = "",
                                           .tcp.lanes = old->us.more_lanes + 1, .tcp.share_memory = old->shares ? 0 : -1 },
                                .is_open = old->is_open };
    coll__past *past = coll__gathering_past(h);
    coll__tcp *tcp = past ? coll__tcp_new(&settings, &old->log) : NULL;

    if (!tcp) {
        free(past);
        return NULL;
    }
    tcp->us = h->us;
    tcp->us.seal = coll__seal_share(old->us.seal);
    tcp->us.past = past;
    tcp->us.rank = out->rank;
    tcp->us.size = out->count;
    tcp->network = old->network;
    coll__gathering_name(tcp->us.world, h->us.world, h->ranks, h->table, h->count);
    if (coll__io_open(&tcp->io, old->io.is_uring ? "auto" : "poll",
                      (size_t)out->count * COLL_CHANNEL_COUNT * ((size_t)old->us.more_lanes + 1),
                      &old->log) < 0) {
        coll__tcp_free(tcp);
        return NULL;
    }
    pthread_mutex_lock(&old->pulse.lock);
    for (int i = 0; i < out->count; i++) {
        tcp->places[i] = old->places[out->ranks[i]];
        tcp->pulse.signs[i] = old->pulse.signs[out->ranks[i]];
    }
    pthread_mutex_unlock(&old->pulse.lock);
    coll__io_forget(&old->io, old->listener);
    tcp->listener = old->listener;
    old->listener = -1;
    coll__io_watch(&tcp->io, tcp->io.bell, EPOLLIN, coll__tag(COLL__EVENT_BELL, 0));
    coll__io_watch(&tcp->io, tcp->listener, EPOLLIN, coll__tag(COLL__EVENT_LISTENER, 0));
    coll__gathering_lines(h, tcp);
    return tcp;
}

static coll_status coll__tcp_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                    coll_failure *failure)
{
    coll__tcp *old = (coll__tcp *)context;
    const int liveness = old->pulse.has_thread ? old->pulse.liveness_ms : 0;
    coll__gathering h = { .old = old, .us = old->us, .ranks = ranks, .count = count, .failure = failure,
                          .is_watched = liveness > 0 };
    coll_status status = COLL_OK;

    if (old->listener < 0)
        return coll__blame(failure, COLL_ERR_UNSUPPORTED, -1, "this has been done already: shrink the communicator it gave");
    while (ranks[h.me] != old->rank) h.me++;
    h.us.rank = h.me;
    h.us.epoch++;
    h.us.size = count;
    coll__gathering_name(h.us.world, old->us.world, ranks, NULL, count);
    h.deadline = coll__deadline(timeout_ms);
    h.grace_ms = liveness > 0 && liveness < COLL__GATHER_GRACE_MS / 2 ? 2 * liveness : COLL__GATHER_GRACE_MS;
    if (coll__gathering_open(&h)) status = coll__gathering_meet(&h);
    else status = coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", count);
    if (status == COLL_OK && !h.table[h.me])
        status = coll__blame(failure, COLL_ERR_PEER, -1, "the others have given this rank up");
    out->count = 0;
    for (int i = 0; status == COLL_OK && i < count; i++) {
        if (!h.table[i]) continue;
        if (i == h.me) out->rank = out->count;
        out->ranks[out->count++] = ranks[i];
    }
    out->context = status == COLL_OK ? coll__gathering_world(&h, out) : NULL;
    if (status == COLL_OK && !out->context)
        status = coll__blame(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", out->count);
    coll__gathering_close(&h);
    return status;
}

#endif /* COLL_TCP_SHRINK_H */
