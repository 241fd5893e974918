/* coll_tcp_join.h - processes that ask to join: the waiting list of rank 0, and the table of those that a coll_grow takes.
 *
 *     newcomer                            rank 0
 *     hello ->                            to the job, as a newcomer: it knows neither its size nor its epoch
 *                         <- welcome      it waits
 *     endpoint ->
 *                         <- heartbeat    as to other ranks: if they end, the newcomer looks for another rank 0
 *                         <- taken        its rank and world, and the table of endpoints
 *
 * All ranks get the table of newcomers before they agree (core/membership/coll_decision.h).  The newcomers' connection to rank 0
 * becomes their control connection.  One that is not there in its first world is left out of the next. */
#ifndef COLL_TCP_JOIN_H
#define COLL_TCP_JOIN_H

enum { COLL__NEWCOMER_SIZE = 2 };                 /* a newcomer is rank 1 of 2 until it is taken              */

/* The identity of a job, or of a newcomer, between the two. */
static void coll__newcomer_identify(coll__identity *us, const char *world, int rank)
{
    coll__world_id(us->world, 0, world, "newcomer");
    us->rank = rank;
    us->size = COLL__NEWCOMER_SIZE;
}

/* Newcomers may connect.  false: out of memory. */
static bool coll__newcomers_admit(coll__tcp *tcp, const char *world)
{
    coll__past *const job = tcp->elastic > 0 ? (coll__past *)coll__allocate(coll__like(tcp), sizeof *job) : NULL;

    if (!job) return tcp->elastic <= 0;
    job->us = tcp->us;
    coll__newcomer_identify(&job->us, world, 0);
    tcp->us.past = job;
    return true;
}

/* ---- >>the waiting list, under accept_lock ---- */

/* Have a process that listens on loopback listen where other hosts reach this one (coll_tcp_endpoints.h), once. */
static bool coll__waiter_redirect(const coll__tcp *tcp, coll__waiter *w, const coll__endpoint *told)
{
    const coll__endpoint *const own = &tcp->endpoints[0];
    coll__endpoint outer = { .count = 0 };

    for (int i = 0; i < own->count && !w->is_redirected && coll__is_loopback(told->addresses[0]); i++)
        if (!coll__is_loopback(own->addresses[i])) coll__addresses_add(outer.addresses, &outer.count, own->addresses[i]);
    w->is_redirected = true;
    return outer.count > 0 && coll__endpoint_send(&w->pipe, COLL__CONTROL_LISTEN, &outer, coll__deadline(COLL__TABLE_MS)) == 0;
}

static bool coll__waiter_is_ready(const coll__waiter *w) { return w->pipe.fd >= 0 && w->endpoint.port > 0; }

/* Read what the waiting processes have sent.  Returns how many are ready. */
static int coll__waiters_look(coll__tcp *tcp)
{
    int ready = 0;

    for (int i = 0; tcp->waiters && i < tcp->elastic; i++) {
        coll__waiter *const w = &tcp->waiters[i];
        coll__endpoint told = { .port = 0 };
        coll__control control;
        int error = EAGAIN;
        while (w->pipe.fd >= 0 && !(error = coll__pipe_fill(&w->pipe, w->bytes, &w->length, COLL__CONTROL_LENGTH))) {
            w->length = 0;
            if (w->endpoint.port || !coll__control_read(w->bytes, tcp->size, &control) || control.note != COLL__CONTROL_ENDPOINT
                || !coll__endpoint_read(w->bytes + COLL__CONTROL_TEXT, &told) || told.port == 0) break;
            const coll__address from = coll__name_of(w->pipe.fd, true);
            memcpy(told.host, w->endpoint.host, sizeof told.host);        /* from its hello                   */
            if (coll__waiter_redirect(tcp, w, &told)) continue;
            if (!coll__is_loopback(from.bytes)) coll__addresses_add(told.addresses, &told.count, from.bytes);
            w->endpoint = told;
            if (tcp->heartbeat.has_thread) coll__control_send(&w->pipe, COLL__CONTROL_HEARTBEAT, COLL_OK, 0, "");
        }
        if (error != EAGAIN) coll__pipe_close(&w->pipe);
        ready += coll__waiter_is_ready(w);
    }
    return ready;
}

/* The heartbeat thread: send heartbeats, behind the first one. */
static void coll__waiters_beat(coll__tcp *tcp, int64_t now)
{
    unsigned char note[COLL__CONTROL_LENGTH];

    if (!tcp->waiters || now < tcp->waiters_beat_at) return;
    tcp->waiters_beat_at = now + tcp->heartbeat.liveness_ms * (int64_t)COLL__MS / COLL__BEATS;
    for (int i = 0; i < tcp->elastic; i++) {
        coll__waiter *const w = &tcp->waiters[i];
        if (!coll__waiter_is_ready(w)) continue;
        coll__control_write(note, COLL__CONTROL_HEARTBEAT, COLL_OK, 0, "");
        if (coll__pipe_move(&w->pipe, note, sizeof note, true) != (ssize_t)sizeof note) coll__pipe_close(&w->pipe);
    }
}

static coll__waiter *coll__waiter_free(coll__tcp *tcp)
{
    if (!tcp->waiters) {
        tcp->waiters = (coll__waiter *)coll__allocate(coll__like(tcp), (size_t)tcp->elastic * sizeof *tcp->waiters);
        for (int i = 0; tcp->waiters && i < tcp->elastic; i++) tcp->waiters[i].pipe.fd = -1;
    }
    (void)coll__waiters_look(tcp);                /* some may have ended                                      */
    for (int i = 0; tcp->waiters && i < tcp->elastic; i++) if (tcp->waiters[i].pipe.fd < 0) return &tcp->waiters[i];
    return NULL;
}

/* The handshake of a newcomer is complete.  A world with newcomers admits none: it may be one of them, that calls again since the
 * rank 0 which has chosen it died.  While it waits for an answer, it does not listen: so the others see that it is not there. */
static void coll__newcomer_comes(coll__tcp *tcp, coll__pipe *pipe, const coll__hello *hello)
{
    if (tcp->voters < tcp->size) {
        coll__pipe_close(pipe);
        return;
    }
    coll__waiter *const w = tcp->rank == 0 ? coll__waiter_free(tcp) : NULL;
    if (!w) {
        pthread_mutex_lock(&tcp->heartbeat.lock);
        const coll__endpoint root = tcp->endpoints[0];
        pthread_mutex_unlock(&tcp->heartbeat.lock);
        if (tcp->rank > 0) (void)coll__endpoint_send(pipe, COLL__CONTROL_ENDPOINT, &root, coll__deadline(COLL__REDIAL_WAIT_MS));
        else coll__control_send(pipe, COLL__CONTROL_REFUSE, COLL_ERR_PEER, -1, "too many processes wait already (COLL_ELASTIC)");
        coll__pipe_close(pipe);
        return;
    }
    coll__tune_socket(pipe->fd);
    *w = (coll__waiter){ .pipe = coll__pipe_take(pipe) };
    memcpy(w->endpoint.host, hello->host, sizeof hello->host);
    coll__control_send(&w->pipe, COLL__CONTROL_WELCOME, COLL_OK, -1, "");
}

/* ---- >>coll_grow ---- */

static coll__orders coll__orders_of(const coll__tcp *tcp)
{
    return (coll__orders){ &tcp->endpoints[0].place, sizeof *tcp->endpoints };
}

/* The table of `count` newcomers, on all ranks.  Rank 0 writes those that were ready into it. */
static unsigned char *coll__tcp_newcomers(void *context, int count, const int *places, size_t *length)
{
    coll__tcp *const tcp = (coll__tcp *)context;
    coll__newcomers *n = NULL;
    int at = 0, place = 0, i = 0;

    *length = (size_t)count * COLL__ENDPOINT_LENGTH;
    coll__give(tcp->newcomers);
    if (count > 0) n = (coll__newcomers *)coll__allocate(coll__like(tcp), sizeof *n + *length);
    tcp->newcomers = n;
    if (!n) return NULL;
    n->count = count;
    pthread_mutex_lock(&tcp->accept_lock);
    for (int k = 0; tcp->waiters && k < tcp->elastic; k++) tcp->waiters[k].number = 0;
    for (int number = 1; number <= count; number++, i++) {
        coll__endpoint one = { .port = 0 };       /* it has ended since it was ready                          */
        while (tcp->waiters && i < tcp->elastic && !coll__waiter_is_ready(&tcp->waiters[i])) i++;
        if (tcp->waiters && i < tcp->elastic) tcp->waiters[i].number = number, one = tcp->waiters[i].endpoint;
        if (places) place = coll__order_next(coll__orders_of(tcp), tcp->size, places, &at, place) + 1;
        one.place = (uint32_t)place;
        coll__endpoint_write(n->bytes + (size_t)(number - 1) * COLL__ENDPOINT_LENGTH, &one);
    }
    pthread_mutex_unlock(&tcp->accept_lock);
    return n->bytes;
}

/* Rank 0 of the new world, before its heartbeat: take the connections of the newcomers, and send them the table.  Others go on
 * waiting. */
static void coll__newcomers_take(coll__tcp *old, coll__tcp *tcp)
{
    pthread_mutex_lock(&old->accept_lock);
    tcp->waiters = old->waiters;
    old->waiters = NULL;
    pthread_mutex_unlock(&old->accept_lock);
    for (int i = 0; tcp->waiters && i < tcp->elastic; i++) {
        coll__waiter *const w = &tcp->waiters[i];
        const int rank = tcp->voters + w->number - 1;
        if (w->number > 0 && rank < tcp->size && w->pipe.fd >= 0) {
            coll__warn_unprotected(tcp, w->endpoint.host);
            tcp->controls[rank].pipe = coll__pipe_take(&w->pipe);
        }
        w->number = 0;
    }
    if (tcp->voters < tcp->size) coll__send_table(tcp, tcp->voters);
}

/* ---- >>the newcomer ---- */

/* What a newcomer has been told: its rank and its world.  false: it is not valid. */
static bool coll__newcomer_taken(coll__tcp *tcp, const unsigned char *note)
{
    const unsigned char *const text = note + COLL__CONTROL_TEXT;
    const uint32_t rank = coll__get32(text + 20), size = coll__get32(text + 24), voters = coll__get32(text + 28);

    if (!tcp->is_newcomer || size > COLL__SIZE_MOST || rank >= size || voters > rank || voters == 0) return false;
    memcpy(tcp->us.world, text, COLL__WORLD_LENGTH);
    tcp->us.epoch = coll__get32(text + 16);
    tcp->us.rank = (int)rank;
    tcp->us.size = (int)size;
    tcp->voters = (int)voters;
    return true;
}

#endif /* COLL_TCP_JOIN_H */
