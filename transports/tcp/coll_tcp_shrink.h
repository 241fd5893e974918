/* coll_tcp_shrink.h - after a failure: the surviving ranks agree on flags, or form a new job.
 *
 * For that, they agree on its members (coll_tcp_consensus.h).  It keeps the listener, and the connections to the proposer,
 * which becomes rank 0.  Its world id is a hash of the agreement's id and the members: so late connections for the old job, or
 * for another agreement, are refused. */
#ifndef COLL_TCP_SHRINK_H
#define COLL_TCP_SHRINK_H

/* ---- >>the agreement: open, close ---- */

/* Handshakes are for the agreement while it runs, and for the job otherwise.  Handshakes under way when this changes are
 * dropped; ranks of this job connect again. */
static void coll__agreement_takes_listener(coll__agreement *h, bool is_open)
{
    coll__tcp *tcp = h->old;

    pthread_mutex_lock(&tcp->accept_lock);
    tcp->agreement = is_open ? h : NULL;
    tcp->admit = coll__agreement_admit;
    tcp->greets_as = is_open ? &h->us : &tcp->us;
    for (int i = tcp->handshake_count - 1; i >= 0; i--) {
        coll__handshake *g = &tcp->handshakes[i];
        if (g->pipe.fd < 0 || (is_open && g->step == COLL__HANDSHAKE_HEAR)) continue;
        coll__io_forget(&tcp->io, g->pipe.fd);
        coll__pipe_close(&g->pipe);
        coll__handshake_close(tcp, i);
    }
    pthread_mutex_unlock(&tcp->accept_lock);
}

static bool coll__agreement_open(coll__agreement *h)
{
    const size_t n = (size_t)h->count;

    h->kept = coll__kept_of(h->old, &h->us);
    h->consensus = h->kept ? &h->kept->consensus : NULL;
    h->lines = h->kept ? h->kept->lines : NULL;
    h->note = (unsigned char *)coll__take(coll__like(h->old), coll__member_note_most(h->count));
    h->fds = (struct pollfd *)coll__allocate(coll__like(h->old), (n + (size_t)h->old->handshake_room + 1) * sizeof *h->fds);
    if (h->kept && !h->lines) {
        h->lines = h->kept->lines = (coll__member_line *)coll__allocate(coll__like(h->old), n * sizeof *h->lines);
        for (int i = 0; h->lines && i < h->count; i++) h->lines[i].pipe.fd = -1;
    }
    coll__agreement_takes_listener(h, true);
    return h->lines && h->note && h->fds;
}

static void coll__agreement_close(coll__agreement *h, bool keeps_lines)
{
    for (int i = 0; keeps_lines && i < h->count; i++) coll__dial_end(&h->lines[i].dialler.handshake);
    if (h->kept && !keeps_lines) coll__member_lines_close(h->kept);
    coll__agreement_takes_listener(h, false);
    coll__give(h->note);
    coll__give(h->fds);
}

/* ---- >>the new job ---- */

/* The world id of a job of `ranks`, or of those in `members` with the newcomers of this hash. */
static void coll__agreement_name(unsigned char *world, const unsigned char *before, const int *ranks,
                                 const unsigned char *members, int count, uint64_t newcomers)
{
    char text[80] = "";
    uint64_t hash = newcomers ? newcomers : coll__hash_of_none;

    for (int i = 0; i < count; i++)
        if (!members || coll__place_in(members, i)) hash = coll__hash_with(hash, (uint64_t)(unsigned)ranks[i]);
    for (int i = 0; i < COLL__WORLD_LENGTH; i++) coll__append(text, sizeof text, "%02x", before[i]);
    coll__append(text, sizeof text, " without %016llx", (unsigned long long)hash);
    coll__digest(world, text);
}

/* The decision, kept for ranks that still connect for the agreement.  NULL: out of memory. */
static coll__past *coll__agreement_past(const coll__agreement *h)
{
    const coll__member_note note = { .kind = COLL__NOTE_DECIDED, .slot = h->consensus->slot - 1, .decision = h->consensus->past };
    coll__past *past = (coll__past *)coll__take(coll__like(h->old), sizeof *past + coll__note_room(h->count));

    if (!past) return NULL;
    past->us = h->us;
    h->old->us.past = NULL;                       /* now owned by past->us                                    */
    past->bytes = coll__behind(past, sizeof *past);
    past->length = coll__note_pack(past->bytes, h->note, coll__member_note_write(h->note, &note, h->count));
    return past;
}

/* Keep the last decisions; the identity of the job, which has no bytes, is behind them. */
static void coll__past_trim(coll__identity *us)
{
    enum { MOST = 8 };
    coll__past **at = &us->past;

    for (int n = 0; *at && (*at)->bytes; n++) {
        coll__past *const past = *at;
        if (n < MOST) at = &past->us.past;
        else *at = past->us.past, coll__wipe(past, sizeof *past), coll__give(past);
    }
}

/* A control connection goes on where the agreement has stopped to read: perhaps within a message.  What could not be sent in
 * time may not be continued by something else. */
static void coll__control_continue(coll__control_line *line, coll__member_line *from)
{
    if (from->length > 0) return;
    line->pipe = coll__pipe_take(&from->pipe);
    line->length = from->received % COLL__CONTROL_LENGTH;
    if (line->length) memcpy(line->bytes, from->in + (from->received - line->length), line->length);
}

/* The control connections: rank 0 takes those to its acceptors, other ranks the one to rank 0.  If one is missing, the new job
 * fails at once: it was lost during the agreement, or the rank got the decision from another rank. */
static coll_status coll__agreement_lines(coll__agreement *h, coll__tcp *tcp, const coll_survivors *out)
{
    int missing = 0;

    for (int rank = 0, i = 0; rank < out->count; rank++) {
        while (h->ranks[i] != out->ranks[rank]) i = (i + 1) % h->count;
        const bool is_kept = tcp->rank == 0 ? h->decider == h->me && i != h->me : rank == 0 && i == h->decider;
        if (is_kept) coll__control_continue(&tcp->controls[rank], &h->lines[i]);
    }
    if (tcp->rank == 0 && h->old->rank == 0) coll__newcomers_take(h->old, tcp);
    const int last = tcp->rank == 0 ? tcp->size : 1;
    while (missing < last && (missing == tcp->rank || tcp->controls[missing].pipe.fd >= 0)) missing++;
    const coll_status status = coll__control_open(tcp, h->old->heartbeat.liveness_ms);
    if (missing == last || status < 0) return status;
    pthread_mutex_lock(&tcp->heartbeat.lock);
    coll__heartbeat_missed(&tcp->heartbeat, missing);
    pthread_mutex_unlock(&tcp->heartbeat.lock);
    return COLL_OK;
}

/* This rank's context in the new job; it owns the listener and the pipes.  NULL: *failure has the reason. */
static coll__tcp *coll__agreement_world(coll__agreement *h, coll_survivors *out)
{
    coll__tcp *old = h->old;
    const coll__newcomers *const n = h->consensus->past.flags ? old->newcomers : NULL;
    coll__tcp_settings settings = { .config = { .rank = out->rank, .size = out->count + (n ? n->count : 0), .world = "",
                                                .tcp = old->options, .allocator = coll__like(old), .elastic = old->elastic },
                                    .is_open = old->is_open };
    coll__identity us = h->us;
    if (old->segment.fd < 0) settings.config.tcp.shm_collectives = COLL_OFF;      /* no segment was possible          */
    us.past = coll__agreement_past(h);
    coll__agreement_name(us.world, h->us.world, h->ranks, h->consensus->past.members, h->count, h->consensus->past.flags);
    coll__tcp *tcp = us.past ? coll__tcp_next(old, &settings, &us) : NULL;

    if (!tcp) {
        if (us.past) old->us.past = us.past->us.past;
        coll__give(us.past);
        coll__set_failure(h->failure, COLL_ERR_MEMORY, -1, us.past ? "%s" : "no memory for the new world", coll__start_error);
        return NULL;
    }
    coll__past_trim(&tcp->us);
    coll__shm_segment_follow(&tcp->segment, &old->segment);
    tcp->voters = out->count;
    tcp->has_new_root = out->ranks[0] >= old->voters;
    pthread_mutex_lock(&old->heartbeat.lock);
    for (int i = 0; i < out->count; i++) {
        tcp->endpoints[i] = old->endpoints[out->ranks[i]];
        if (n || !(old->voters < old->size || old->has_new_root)) tcp->endpoints[i].place = 0;
        tcp->heartbeat.beats[i] = old->heartbeat.beats[out->ranks[i]];
    }
    pthread_mutex_unlock(&old->heartbeat.lock);
    for (int i = tcp->voters; i < tcp->size; i++)
        (void)coll__endpoint_take(tcp, i, n->bytes + (size_t)(i - tcp->voters) * COLL__ENDPOINT_LENGTH);
    if (n) coll__orders_arrange(coll__orders_of(tcp), tcp->voters, tcp->size, out->ranks, old->size);
    memcpy(tcp->tuning, old->tuning, sizeof tcp->tuning);
    if (coll__agreement_lines(h, tcp, out) == COLL_OK) return tcp;
    coll__set_failure(h->failure, COLL_ERR_SYSTEM, -1, "%s", coll__start_error);
    coll__tcp_free(tcp);
    return NULL;
}

static coll_status coll__tcp_shrink(void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                                    coll_failure *failure)
{
    coll__tcp *old = (coll__tcp *)context;
    const int liveness = old->heartbeat.liveness_ms;
    coll__agreement h = { .old = old, .us = old->us, .ranks = ranks, .count = count, .failure = failure };
    coll_status status = COLL_OK;

    if (old->listener < 0) return coll__failed_over(failure);
    while (ranks[h.me] != old->rank) h.me++;
    h.us.rank = h.me;
    h.us.epoch++;
    h.us.size = count;
    const coll__newcomers *const n = count == old->size ? old->newcomers : NULL;
    h.newcomers = n ? coll__newcomers_hash(n->bytes, (size_t)n->count * COLL__ENDPOINT_LENGTH) : 0;
    coll__agreement_name(h.us.world, old->us.world, ranks, NULL, count, 0);
    h.deadline = coll__deadline(timeout_ms);
    h.grace_ms = liveness > 0 && liveness < COLL__AGREE_GRACE_MS / 2 ? 2 * liveness : COLL__AGREE_GRACE_MS;
    if (coll__agreement_open(&h)) status = coll__agreement_run(&h, out);
    else status = coll__set_failure(failure, COLL_ERR_MEMORY, -1, "no memory for %d ranks", count);
    const uint64_t hash = status == COLL_OK && !out->is_agree ? h.consensus->past.flags : 0;      /* of newcomers   */
    if (hash && hash != h.newcomers) status = coll__failed_given_up(failure);
    if (status == COLL_OK) coll__survivors_in(h.consensus->past.members, ranks, count, h.me, out);
    else out->count = 0;
    coll__orders_sort(coll__orders_of(old), out->ranks, out->count);
    for (int i = 0; i < out->count; i++) if (out->ranks[i] == old->rank) out->rank = i;
    if (status == COLL_OK) out->flags = h.consensus->past.flags;
    out->context = status == COLL_OK && !out->is_agree ? coll__agreement_world(&h, out) : NULL;
    if (status == COLL_OK && !out->is_agree && !out->context) status = failure->status;
    coll__agreement_close(&h, status == COLL_OK && out->is_agree);
    return status;
}

#endif /* COLL_TCP_SHRINK_H */
