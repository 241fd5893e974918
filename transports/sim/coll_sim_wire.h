/* coll_sim_wire.h - messages under the virtual clock: costs, matching, faults.
 *
 *     sender                       wire                                receiver
 *     injected at t                egress: max(t, NIC free)            first byte: latency later
 *     next: at t + overhead        NIC busy for length * per_byte      ingress: max(that, NIC free, overhead after the previous
 *     or later                     after that                          one); last byte: length * per_byte later
 *
 * So a lone message arrives at t + latency + length * per_byte, that of the slower NIC.  The head takes no time, so that closed
 * forms are exact.  Ranks of one host share a NIC; between them messages cost local latency and bytes, and use no NIC.
 *
 * The hosts of a site share a link to the other sites, which carries one message after the other each way, as NICs do:
 *
 *     NIC of the sender ---- link of its site ---- far latency ---- link of the receiver's site ---- NIC of the receiver
 *
 * A NIC is busy with such a message as long as with any other, and can then serve nearby hosts. */
#ifndef COLL_SIM_WIRE_H
#define COLL_SIM_WIRE_H

/* The host and the site of a rank of the same world. */
static int coll__sim_host_of(void *context, int rank)
{
    const coll__sim_rank *r = (const coll__sim_rank *)context, *all = r - r->rank;
    return all[rank].place / r->world->config.ranks_per_host;
}

static int coll__sim_site_of(void *context, int rank)
{
    const int each = ((const coll__sim_rank *)context)->world->config.hosts_per_site;
    return each > 0 ? coll__sim_host_of(context, rank) / each : 0;
}

/* ---- >>faults: of places, in any world ---- */

/* Kills or stops a rank.  The others detect a death after the detection time. */
static void coll__sim_strike_rank(coll__sim_rank *r, bool is_kill, double time)
{
    coll__sim *w = r->world;

    if (r->has_closed || r->state >= COLL__SIM_FINISHED) return;
    r->state = is_kill ? COLL__SIM_KILLED : COLL__SIM_STOPPED;
    if (w->fibers) {
        coll__fiber *const f = &w->fibers[r->place];
        w->live--;
        w->waiting -= f->migration != NULL;
        f->migration = NULL;
        f->is_over = true;
    }
    r->clock = time;
    coll__print(w->hint, sizeof w->hint, "rank %d was %s at ", r->rank, is_kill ? "killed" : "stopped");
    coll__append_time(w->hint, sizeof w->hint, r->clock);
    if (is_kill) coll__sim_push(w, COLL__SIM_NOTICE, r->clock + w->config.detection, r, 0);
}

/* Counts a call, and applies the faults of this rank that are due. */
static void coll__sim_count_call(coll__sim_rank *r)
{
    coll__sim *w = r->world;

    r->calls++;
    for (int i = 0; i < w->config.fault_count; i++) {
        coll__sim_strike *s = &w->strikes[i];
        if (s->is_over || s->fault.rank != r->place || s->fault.kind > COLL_SIM_STOP) continue;
        if (s->fault.number ? r->calls < s->fault.number : r->clock < s->fault.time) continue;
        s->is_over = true;
        coll__sim_strike_rank(r, s->fault.kind == COLL_SIM_KILL, s->fault.number ? r->clock : s->fault.time);
    }
}

/* Applies faults to the message that rank `from` now sends to rank `to`. */
static void coll__sim_mark(coll__sim *w, coll__parcel *p, int from, int to)
{
    const int sender = w->ranks[from].place, receiver = w->ranks[to].place;

    for (int i = 0; i < w->config.fault_count; i++) {
        coll__sim_strike *s = &w->strikes[i];
        const coll_sim_fault *f = &s->fault;
        if (f->kind != COLL_SIM_LOSE && f->kind != COLL_SIM_LATE) continue;
        if (f->rank != sender || (f->peer >= 0 && f->peer != receiver)) continue;
        if (++s->seen != f->number && f->number) continue;
        if (f->kind == COLL_SIM_LATE) p->delay += f->amount;
        if (f->kind != COLL_SIM_LOSE) continue;
        p->is_lost = true;
        coll__print(w->hint, sizeof w->hint, "a message from rank %d to rank %d was lost", from, to);
    }
}

/* Seconds per byte at the NIC of a host. */
static double coll__sim_per_byte(const coll__sim *w, int host, double time)
{
    double seconds = w->config.seconds_per_byte;

    for (int i = 0; i < w->config.fault_count; i++) {
        const coll_sim_fault *f = &w->strikes[i].fault;
        if (f->kind == COLL_SIM_SLOW && f->rank / w->config.ranks_per_host == host && time >= f->time) seconds /= f->amount;
    }
    return seconds;
}

/* Returns whether nothing that place `from` sends at this time reaches place `to`. */
static bool coll__sim_is_cut(coll__sim *w, int from, int to, double time)
{
    for (int i = 0; i < w->config.fault_count; i++) {
        const coll_sim_fault *f = &w->strikes[i].fault;
        if (f->number || time < f->time) continue;
        if (f->kind == COLL_SIM_KILL && f->rank == from) return true;
        if (f->kind != COLL_SIM_CUT) continue;
        if ((from >= f->rank && from <= f->peer) == (to >= f->rank && to <= f->peer)) continue;
        coll__print(w->hint, sizeof w->hint, "ranks %d to %d were cut off from the others at ", f->rank, f->peer);
        coll__append_time(w->hint, sizeof w->hint, f->time);
        return true;
    }
    return false;
}

/* ---- >>matching: the first receive of a lane and its first message ---- */

/* Copies what a sender still holds, so that it may reuse its buffer. */
static void coll__parcel_keep(coll__sim *w, coll__parcel *p, const void *from)
{
    if (p->length == 0) return;
    p->kept = p->length <= COLL__PARCEL_SMALL ? p->small : (unsigned char *)coll__take(coll__like(w), p->length);
    if (p->kept) memcpy(p->kept, from, p->length);
    else coll__sim_no_memory(w);
}

static void coll__sender_done(coll__sim *w, coll__parcel *p, double time)
{
    coll_xfer *x = p->xfer;

    p->xfer = NULL;
    x->status = COLL_OK;
    coll__sim_tell(&w->ranks[p->lane->from], time);
}

/* Copies messages for which the lane now has capacity; their senders continue. */
static void coll__lane_refill(coll__sim *w, coll__lane *lane, double time)
{
    coll__parcel *p = lane->parcels;

    for (int i = 0; p && i < w->config.capacity && w->failure.status == COLL_OK; i++, p = p->next) {
        if (!p->xfer) continue;
        coll__parcel_keep(w, p, p->xfer->buffer);
        if (w->failure.status == COLL_OK) coll__sender_done(w, p, time);
    }
}

/* Receives one message, at `time`. */
static void coll__lane_join(coll__sim *w, coll__lane *lane, double time)
{
    coll_xfer *x = lane->recvs;
    coll__parcel *p = lane->parcels;
    coll__sim_rank *to = &w->ranks[lane->to];
    const bool fits = (x->any_head || !memcmp(x->head, p->head, COLL_HEAD_LENGTH)) && x->length == p->length;
    const void *bytes = p->xfer ? p->xfer->buffer : p->kept;

    COLL__ASSERT(p->is_arrived && x->status == COLL_PENDING, "a message from rank %d to rank %d is received %s, with status %d",
                 lane->from, lane->to, p->is_arrived ? "twice" : "before it is there", x->status);
    lane->recvs = x->next;
    lane->recv_count--;
    lane->parcels = p->next;
    lane->parcel_count--;
    memcpy(x->head, p->head, COLL_HEAD_LENGTH);
    if (fits && p->length && !p->is_placed) memcpy(x->buffer, bytes, p->length);
    to->received += COLL_HEAD_LENGTH + (fits ? p->length : 0);
    x->status = fits ? COLL_OK : COLL_ERR_MISMATCH;
    if (p->xfer) coll__sender_done(w, p, time);
    coll__parcel_give(w, p);
    if (w->config.capacity > 0) coll__lane_refill(w, lane, time);
    if (w->failure.status == COLL_OK) coll__sim_tell(to, time);
}

/* Receives all messages that have arrived and have a receive. */
static void coll__lane_settle(coll__sim *w, coll__lane *lane, double time)
{
    while (lane->recvs && lane->parcels && lane->parcels->is_arrived) {
        coll__lane_join(w, lane, time);
        if (w->failure.status != COLL_OK) return; /* the lane is freed                                        */
    }
    coll__lane_close(w, lane);
}

/* ---- >>transfer ---- */

static void coll__parcel_deliver(coll__sim *w, coll__parcel *p)
{
    p->is_arrived = true;
    coll__lane_settle(w, p->lane, w->now);
}

/* The last byte arrives at `end`. */
static void coll__parcel_come_in(coll__sim *w, coll__parcel *p, double end)
{
    if (end > w->now) coll__sim_push(w, COLL__SIM_DELIVER, end, p, 0);
    else coll__parcel_deliver(w, p);
}

/* The first byte is at the receiver's NIC. */
static void coll__parcel_arrive(coll__sim *w, coll__parcel *p)
{
    const int at = coll__sim_host_of(w->ranks, p->lane->to);
    coll__sim_host *host = &w->hosts[at];
    coll__sim_rank *to = &w->ranks[p->lane->to];
    const double start = coll__later(w->now, to->next_recv), length = (double)p->length;
    const int from_site = coll__sim_site_of(w->ranks, p->lane->from), site = coll__sim_site_of(w->ranks, p->lane->to);
    double begin = start, last = p->last;

    to->next_recv = start + w->config.overhead;   /* a receive has the same overhead as a send                */
    if (from_site != site) {
        const double enters = coll__later(start, w->sites[site].in_free);
        w->sites[site].in_free = last = coll__later(enters + length * w->config.far_seconds_per_byte, last);
        begin = coll__later(enters, last - length * coll__sim_per_byte(w, at, enters));
    }
    begin = coll__later(begin, host->in_free);
    host->in_free = coll__later(begin + length * coll__sim_per_byte(w, at, begin), last);
    coll__parcel_come_in(w, p, host->in_free);
}

/* A message leaves the sender at `time`. */
static void coll__parcel_leave(coll__sim *w, coll__parcel *p, double time)
{
    const coll_sim *c = &w->config;
    const int from = p->lane->from, to = p->lane->to;
    const double length = (double)p->length, jitter = c->jitter > 0 ? c->jitter * coll__sim_fraction(w) : 0;

    if (!p->is_lost) p->is_lost = coll__sim_is_cut(w, w->ranks[from].place, w->ranks[to].place, time);
    if (p->is_lost) return;                       /* it is never received, nor are those behind it            */
    if (coll__sim_host_of(w->ranks, from) == coll__sim_host_of(w->ranks, to)) {
        const double begin = time + c->local_latency + jitter + p->delay;
        coll__parcel_come_in(w, p, begin + length * c->local_seconds_per_byte);
        return;
    }
    coll__sim_host *host = &w->hosts[coll__sim_host_of(w->ranks, from)];
    const bool is_far = coll__sim_site_of(w->ranks, from) != coll__sim_site_of(w->ranks, to);
    const double way = (is_far ? c->far_latency : c->latency) + jitter + p->delay, begin = coll__later(time, host->out_free);
    const double out = coll__sim_per_byte(w, coll__sim_host_of(w->ranks, from), begin);
    const bool is_slower = c->fault_count > 0 && out > coll__sim_per_byte(w, coll__sim_host_of(w->ranks, to), begin);
    double leaves = begin, last = host->out_free = begin + length * out;
    if (is_far) {
        coll__sim_host *site = &w->sites[coll__sim_site_of(w->ranks, from)];
        leaves = coll__later(begin, site->out_free);
        site->out_free = last = coll__later(leaves + length * c->far_seconds_per_byte, last);
    }
    p->last = is_slower || is_far ? last + way : 0;
    coll__sim_push(w, COLL__SIM_ARRIVE, leaves + way, p, 0);
}

/* ---- >>leaving ---- */

static void coll__sim_failed_left(coll__sim *w, int rank, int by)
{
    coll_failure failure = { COLL_OK, -1, "" };
    coll__set_failure(&failure, COLL_ERR_PEER, rank, "rank %d has left the communicator, and rank %d still waits for it", rank,
                      by);
    coll__sim_end(w, &failure);
}

/* Returns whether the last receive of a lane never completes.  Receives of any head do not count. */
static inline bool coll__lane_starves(const coll__lane *lane)
{
    return lane->recv_count > lane->parcel_count && !lane->last_recv->any_head;
}

/* All ranks see that this rank has closed. */
static void coll__sim_left(coll__sim_rank *r)
{
    coll__sim *w = r->world;

    r->has_left = true;
    w->left_count++;
    for (const coll__lane *lane = r->sends, *next; lane && w->failure.status == COLL_OK; lane = next) {
        next = lane->from_next;
        if (coll__lane_starves(lane)) {
            coll__sim_failed_left(w, r->rank, lane->to);
            return;
        }
        coll__sim_tell(&w->ranks[lane->to], w->now);
    }
    for (const coll__lane *lane = r->recvs, *next; lane && w->failure.status == COLL_OK; lane = next) {
        next = lane->to_next;
        bool waits = false;
        for (const coll__parcel *p = lane->parcels; p; p = p->next) waits |= p->xfer != NULL;
        if (waits && lane->channel == COLL_CHANNEL_CALLS) {
            coll__sim_failed_left(w, r->rank, lane->from);
            return;
        }
        if (waits) coll__sim_tell(&w->ranks[lane->from], w->now);
    }
}

/* A closing rank withdraws its receives, and the sends that it still holds. */
static void coll__sim_withdraw(coll__sim_rank *r)
{
    coll__sim *w = r->world;

    for (coll__lane *lane = r->recvs, *next; lane; lane = next) {
        next = lane->to_next;
        lane->recvs = NULL;
        lane->recv_count = 0;
        coll__lane_close(w, lane);
    }
    for (coll__lane *lane = r->sends, *next; lane; lane = next) {
        next = lane->from_next;
        lane->last_parcel = NULL;
        for (coll__parcel **at = &lane->parcels, *p; (p = *at) != NULL;) {
            if (!p->xfer) {
                lane->last_parcel = p;
                at = &p->next;
                continue;
            }
            *at = p->next;
            lane->parcel_count--;
            if (p->is_arrived || p->is_lost) coll__parcel_give(w, p);
            else p->is_cancelled = true;
        }
        coll__lane_close(w, lane);
    }
}

/* ---- >>send, recv ---- */

static bool coll__sim_begin_call(coll__sim_rank *r);

/* The same for a transfer, which otherwise gets the status of the end. */
static bool coll__sim_begin_xfer(coll__sim_rank *r, coll_xfer *x)
{
    if (!coll__sim_begin_call(r)) {
        if (coll__sim_end_of(r)->status != COLL_OK) x->status = coll__sim_end_of(r)->status;
        return false;
    }
    r->polls = 0;
    r->world->idle = 0;
    r->world->is_asking = false;
    return true;
}

static coll_status coll__sim_send(void *context, coll_xfer *x)
{
    coll__sim_rank *r = (coll__sim_rank *)context;
    coll__sim *w = r->world;

    if (!coll__sim_begin_xfer(r, x)) return COLL_OK;
    if (w->ranks[x->peer].has_left && x->channel == COLL_CHANNEL_CALLS) {
        coll__sim_failed_left(w, x->peer, r->rank);
        x->status = w->failure.status;
        return COLL_OK;
    }
    coll__lane *lane = coll__lane_open(w, r->rank, x->peer, x->channel);
    coll__parcel *p = lane ? (coll__parcel *)coll__sim_spare(w, &w->spare_parcels, sizeof *p) : NULL;
    bool waits = false;
    if (!p) coll__sim_no_memory(w);
    else {
        memset(p, 0, offsetof(coll__parcel, head));
        r->clock = coll__later(r->clock, r->next_send);
        r->next_send = r->clock + w->config.overhead;
        r->messages++;
        r->sent += COLL_HEAD_LENGTH + x->length;
        p->lane = lane;
        p->length = x->length;
        memcpy(p->head, x->head, COLL_HEAD_LENGTH);
        coll__sim_mark(w, p, r->rank, x->peer);

        const coll_xfer *to = lane->parcels ? NULL : lane->recvs;
        waits = w->config.capacity != 0 && lane->parcel_count >= w->config.capacity;
        if (waits) p->xfer = x;
        else if (to && to->length == x->length && (to->any_head || !memcmp(to->head, x->head, COLL_HEAD_LENGTH))) {
            if (x->length && !p->is_lost) memcpy(to->buffer, x->buffer, x->length);
            p->is_placed = true;
        } else coll__parcel_keep(w, p, x->buffer);
    }
    if (w->failure.status != COLL_OK) {
        if (p) coll__parcel_give(w, p);
        x->status = w->failure.status;
        return COLL_OK;
    }
    if (lane->parcels) lane->last_parcel->next = p;
    else lane->parcels = p;
    lane->last_parcel = p;
    lane->parcel_count++;
    if (!waits) x->status = COLL_OK;
    if (r->clock > w->now && w->config.ranks_per_host > 1) coll__sim_push(w, COLL__SIM_INJECT, r->clock, p, 0);
    else coll__parcel_leave(w, p, r->clock);
    return COLL_OK;
}

static coll_status coll__sim_recv(void *context, coll_xfer *x)
{
    coll__sim_rank *r = (coll__sim_rank *)context;
    coll__sim *w = r->world;

    if (!coll__sim_begin_xfer(r, x)) return COLL_OK;
    coll__lane *lane = coll__lane_open(w, x->peer, r->rank, x->channel);
    if (!lane) {
        coll__sim_no_memory(w);
        x->status = COLL_ERR_MEMORY;
        return COLL_OK;
    }
    x->next = NULL;
    if (lane->recvs) lane->last_recv->next = x;
    else lane->recvs = x;
    lane->last_recv = x;
    lane->recv_count++;
    if (w->ranks[x->peer].has_left && coll__lane_starves(lane)) coll__sim_failed_left(w, x->peer, r->rank);
    else coll__lane_settle(w, lane, r->clock);
    return COLL_OK;
}

#endif /* COLL_SIM_WIRE_H */
