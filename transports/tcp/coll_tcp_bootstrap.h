/* coll_tcp_bootstrap.h - the start: all ranks connect to rank 0, which sends the table of all endpoints once it has them.
 *
 *     rank 0                                  rank r
 *     listens                                 tries all addresses of rank 0, 250 ms apart; uses the first that connects
 *                         <- hello            its rank and world id
 *     welcome ->                              listens on the local address of this connection
 *                         <- endpoint         addresses and port of that listener
 *     (listen ->)         (<- endpoint)       if other hosts cannot reach that address (coll_tcp_endpoints.h)
 *     table   ->
 *
 * The connection stays as the control connection.  Rank 0 serves all ranks concurrently.  Every wait uses the deadline of the
 * start.  Until then a rank retries, and resolves names and reads files again.  Every 5 s rank 0 reports the missing ranks,
 * also to the connected ones.  If the connection of a rank closes, it must return within the liveness timeout, or the start
 * fails.  At the deadline, rank 0 sends the names of the missing ranks to all connected ranks.  A rank that has not reached
 * rank 0 reports each address that it tried, with the error.
 *
 * The address of rank 0 is a setting, the first of a list of hosts, or in a file ("file:PATH", coll_tcp_address_file.h). */
#ifndef COLL_TCP_BOOTSTRAP_H
#define COLL_TCP_BOOTSTRAP_H

enum {
    COLL__RETRY_LEAST_MS = 2, COLL__RETRY_MOST_MS = 500,
    COLL__BACK_MS = 1500,                         /* least time for a rank to reconnect                          */
    COLL__ANSWER_MS = 5000, COLL__REPORT_MS = 5000, COLL__TELL_MS = 200, COLL__GRACE_MS = 6000, COLL__LAST_MS = 50
};

/* Check the listener's address: without a key, it may be a private one only.  Close the listener if it is not allowed. */
static coll_status coll__listener_is_allowed(coll__tcp *tcp)
{
    coll__address at = coll__name_of(tcp->listener, false);
    char where[COLL__ADDRESS_TEXT];

    if (tcp->is_open || (tcp->us.auth & COLL__AUTH_KIND)) return COLL_OK;
    if (coll__is_wide(at.bytes) ? !coll__public_address(at.bytes) : coll__is_private(at.bytes)) return COLL_OK;
    coll__close_fd(&tcp->listener);
    return coll__start_failed(COLL_ERR_ARGUMENT, "rank %d does not listen: it would listen at %s, a public address, without a "
                              "key: set COLL_KEY, or COLL_SECURITY=open if that is meant", tcp->rank,
                              coll__address_text(&at, where, sizeof where));
}

/* ---- >>rank 0: its listener ---- */

/* Report the errno of a failed listen.  `where` may be "". */
static coll_status coll__listen_failed(const coll__tcp *tcp, const char *where, int port)
{
    const int error = errno;
    const char *const at = *where ? " at " : "";

    if (error == EADDRINUSE && port == 0 && tcp->network.port_first > 0)
        return coll__start_failed(COLL_ERR_SYSTEM, "rank %d cannot listen%s%.120s: no port from %d to %d is free", tcp->rank, at,
                                  where, tcp->network.port_first, tcp->network.port_last);
    return coll__start_failed(COLL_ERR_SYSTEM, "rank %d cannot listen%s%.120s: %s%s", tcp->rank, at, where, strerror(error),
                              error == EADDRINUSE ? " (ss -ltnp shows the process)" : "");
}

/* Listen, and record the endpoint.  Port 0, and a file: at a free port, and without a host at the addresses of the configured
 * network, or at the usual ones.  A given port: at the first address that is local and not loopback.  A host name may be loopback
 * on its own host (Debian) and another address elsewhere: rank 0 then listens on all addresses.  So it does if no address is
 * local, as behind a router.  A wildcard listener has no address: the other ranks use the one that they reached. */
static coll_status coll__listen_as_root(coll__tcp *tcp, const coll_config *c)
{
    const char *const where = c->address;
    coll__endpoint *const own = &tcp->endpoints[0];
    coll__address list[COLL__ADDRESSES_MOST];
    char host[256] = "";
    bool may_come, has_loopback = false;
    int count = 1, port = 0;

    if (!coll__rendezvous_path(where)) {
        const char *const wrong = coll__resolve(where, true, list, &count, &may_come);
        if (wrong) return coll__start_failed(COLL_ERR_ARGUMENT, "rank 0 cannot listen at \"%s\": %s", where, wrong);
        (void)coll__address_split(where, host, sizeof host, &port);
        if (port == 0 && !c->tcp.listening)
            return coll__start_failed(COLL_ERR_ARGUMENT,
                                      "port 0 in \"%s\" is any port: no rank learns which without `listening`", where);
    }
    const bool is_name = *host && !coll__is_literal(host) && strcasecmp(host, "localhost");
    const coll__address all = { .port = port };
    own->count = *host && port == 0 ? 0 : tcp->network.count;
    memcpy(own->addresses, tcp->network.addresses, sizeof own->addresses);
    if (!*host && port == 0 && own->count == 0) own->count = coll__network_usual(own->addresses);
    if (!*host) count = 1, list[0] = own->count == 1 ? coll__address_with(own->addresses[0], port) : all;
    if (port == 0 && (tcp->listener = coll__listen_within(&tcp->network, list[0], 0)) < 0)
        return coll__listen_failed(tcp, where, 0);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count && tcp->listener < 0; i++) {
            if (coll__is_loopback(list[i].bytes) != (pass == 1)) continue;
            has_loopback = pass == 1;
            if (has_loopback && is_name) continue;
            tcp->listener = coll__listen_at(&list[i]);
            if (tcp->listener < 0 && errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
                return coll__listen_failed(tcp, where, port);
        }
    if (tcp->listener < 0) {
        tcp->listener = coll__listen_at(&all);
        if (tcp->listener < 0) return coll__listen_failed(tcp, where, port);
        tcp->is_elsewhere = !has_loopback;
        coll__say(&tcp->log, has_loopback ? COLL_LOG_INFO : COLL_LOG_WARN,
                  "%s is no address of this host%s: rank 0 listens on all of them", where,
                  has_loopback ? " that others could reach" : "");
    }
    const coll__address here = coll__name_of(tcp->listener, false);
    if (own->count == 0 && !coll__is_wide(here.bytes)) coll__addresses_add(own->addresses, &own->count, here.bytes);
    own->port = here.port;
    memcpy(own->host, tcp->us.host, sizeof own->host);
    tcp->network.scope = here.scope;
    return coll__listener_is_allowed(tcp);
}

/* ---- >>rank 0: waiting for all ranks ---- */

/* Send a control message to all connected ranks. */
static void coll__bootstrap_tell(coll__tcp *tcp, coll__control_note note, coll_status status, const char *text)
{
    for (int i = 1; i < tcp->size; i++)
        if (tcp->controls[i].pipe.fd >= 0) coll__control_send(&tcp->controls[i].pipe, note, status, -1, text);
}

/* The rank that was connected and has been away for too long; -1: none. */
static int coll__bootstrap_lost(const coll__tcp *tcp, int liveness_ms, int64_t now)
{
    const int64_t timeout = (int64_t)coll__most((size_t)liveness_ms, COLL__BACK_MS) * COLL__MS;

    for (int i = 1; i < tcp->size && liveness_ms > 0; i++)
        if (tcp->controls[i].lost_at && now - tcp->controls[i].lost_at > timeout) return i;
    return -1;
}

/* Accept ranks until all endpoints are known.  An error: the deadline passed, a rank was lost, or accepting has failed for too
 * long, because this process is out of descriptors or memory. */
static coll_status coll__bootstrap_all(coll__tcp *tcp, const coll_config *c, int64_t began, int64_t deadline)
{
    int64_t report = coll__now() + (int64_t)COLL__REPORT_MS * COLL__MS, tell = coll__now() + (int64_t)COLL__TELL_MS * COLL__MS;
    char missing[120], why[80];

    while (tcp->present_count < tcp->size - 1) {
        const int64_t now = coll__now();
        const int lost = coll__bootstrap_lost(tcp, c->liveness_timeout_ms, now);
        const bool is_short = coll__is_short(tcp, now) && tcp->short_at > tcp->short_since + COLL__BACK_MS * (int64_t)COLL__MS;
        if (lost > 0)
            return coll__start_failed(COLL_ERR_PEER, "rank %d came to rank 0 at %s, is gone (%s), and has not come back for "
                                      "%.1f s", lost, c->address, coll__ending_text(tcp->controls[lost].lost_by),
                                      coll__waited_seconds(tcp->controls[lost].lost_at));
        if (is_short || now >= deadline || now >= tell) coll__missing_ranks(tcp, missing, sizeof missing);
        if (is_short)
            return coll__start_failed(COLL_ERR_SYSTEM, "rank 0 at %s has nothing left for another connection: %s; these ranks "
                                      "have not come: %s", c->address, coll__shortage_text(tcp->short_of, why, sizeof why),
                                      missing);
        if (now >= deadline)
            return coll__start_failed(COLL_ERR_TIMEOUT, "rank 0 waited %.1f s at %s%s; these ranks have not come: %s",
                                      coll__waited_seconds(began), c->address,
                                      tcp->is_elsewhere ? ", which is no address of its host" : "", missing);
        if (now >= tell) {
            tell = now + (int64_t)COLL__TELL_MS * COLL__MS;
            coll__bootstrap_tell(tcp, COLL__CONTROL_MISSING, COLL_OK, missing);
            if (now >= report) {
                coll__say(&tcp->log, COLL_LOG_WARN, "rank 0 waits at %s, since %.0f s, for %d of %d ranks: %s", c->address,
                          coll__waited_seconds(began), tcp->size - 1 - tcp->present_count, tcp->size, missing);
                report = now + (int64_t)COLL__REPORT_MS * COLL__MS;
            }
        }
        const int most_ms = tcp->budget.is_awaited ? COLL__REDIAL_LEAST_MS : tcp->is_deaf ? COLL__YOUNG_MS : 1000;
        coll__io_wait_events(&tcp->io, coll__ms_until(deadline < tell ? deadline : tell, most_ms));
        coll__events(tcp);
    }
    return COLL_OK;
}

static coll_status coll__bootstrap_as_root(coll__tcp *tcp, const coll_config *c)
{
    const int64_t began = coll__now(), deadline = coll__deadline(c->start_timeout_ms);
    const char *const path = coll__rendezvous_path(c->address);
    char nonce[COLL__NONCE_TEXT], text[COLL__ADDRESS_TEXT];
    coll_status status = coll__listen_as_root(tcp, c);

    if (status == COLL_OK && path) status = coll__rendezvous_publish(tcp, path, c->world, nonce);
    if (status < 0) return status;
    if (!path && c->tcp.listening && tcp->endpoints[0].count > 0) {
        const coll__address here = coll__endpoint_address(&tcp->endpoints[0], 0, tcp->network.scope);
        c->tcp.listening(c->tcp.listening_context, coll__address_text(&here, text, sizeof text));
    }
    coll__io_watch(&tcp->io, tcp->listener, POLLIN, coll__tag(COLL__EVENT_LISTENER, 0));
    tcp->is_bootstrapping = true;
    status = coll__bootstrap_all(tcp, c, began, deadline);
    if (status == COLL_OK && coll__ask_to_listen(tcp, deadline) > 0) status = coll__bootstrap_all(tcp, c, began, deadline);
    coll__rendezvous there;                       /* another job may have replaced the file                   */
    if (path && !coll__rendezvous_read(path, &there) && !strcmp(there.nonce, nonce)) unlink(path);
    tcp->is_bootstrapping = status < 0;
    if (status < 0) coll__bootstrap_tell(tcp, COLL__CONTROL_REFUSE, status, coll__start_error);
    else coll__send_table(tcp, 1);
    return status;
}

/* ---- >>the others: their listeners ---- */

/* Listen, and record the endpoint.  In this order: the entry in the list of hosts; the configured network; the addresses that
 * rank 0 asked for (`outer`); the local address of the control connection.  `hosts` and `outer` may be NULL. */
static coll_status coll__listen_as_other(coll__tcp *tcp, int control, const char *hosts, const coll__endpoint *outer)
{
    coll__endpoint *const own = &tcp->endpoints[tcp->rank];
    coll__address at = coll__name_of(control, false), entry[COLL__ADDRESSES_MOST];
    const bool is_near = coll__is_loopback(at.bytes);
    char name[COLL__ADDRESS_ROOM] = "";
    bool is_at_entry = false, may_come;
    int entries = 0;

    if (hosts && coll__hosts_entry(hosts, tcp->rank, name, sizeof name))
        (void)coll__resolve(name, true, entry, &entries, &may_come);
    for (int i = 0; i < entries && !is_at_entry; i++) {           /* a name may map to loopback: unfit if rank 0 is remote */
        is_at_entry = coll__is_ours(entry[i]) && (is_near || !coll__is_loopback(entry[i].bytes));
        if (is_at_entry) at = entry[i];
    }
    own->count = 0;
    for (int i = 0; i < tcp->network.count && !is_at_entry; i++)
        coll__addresses_add(own->addresses, &own->count, tcp->network.addresses[i]);
    for (int i = 0; outer && entries + tcp->network.count == 0 && i < outer->count; i++)
        coll__addresses_add(own->addresses, &own->count, outer->addresses[i]);
    if (own->count == 0) coll__addresses_add(own->addresses, &own->count, at.bytes);
    memcpy(at.bytes, own->addresses[0], sizeof at.bytes);
    if (own->count > 1) at = (coll__address){ .port = 0 };
    at.port = entries > 0 ? entry[0].port : 0;
    coll__close_fd(&tcp->listener);
    tcp->listener = coll__listen_within(&tcp->network, at, tcp->rank);
    if (tcp->listener < 0) return coll__listen_failed(tcp, name, at.port);
    for (int i = 0; i < entries && !is_at_entry; i++) coll__addresses_add(own->addresses, &own->count, entry[i].bytes);
    own->port = coll__name_of(tcp->listener, false).port;
    return coll__listener_is_allowed(tcp);
}

/* ---- >>other ranks: connecting to rank 0 ---- */

/* Handshake with rank 0, and wait for its welcome.  COLL_OK: g->pipe is ready.  COLL_ERR_PEER, COLL_ERR_TIMEOUT: failed, see
 * g->why.  Other errors: do not retry. */
static coll_status coll__introduce(coll__tcp *tcp, int fd, int64_t limit, coll__handshake *g)
{
    const coll__hello hello = { .purpose = tcp->is_newcomer ? COLL__PURPOSE_NEWCOMER : COLL__PURPOSE_JOIN };
    unsigned char bytes[COLL__CONTROL_LENGTH];
    coll__control control;

    coll__handshake_call(g, &tcp->us, fd, hello, limit);
    const coll_status greeted = coll__handshake_finish(g, &tcp->us);
    if (greeted < 0) return greeted;
    const int error = coll__pipe_transfer(&g->pipe, bytes, COLL__CONTROL_LENGTH, false, limit);
    const bool is_known = !error && coll__control_read(bytes, tcp->size, &control);
    if (is_known && control.note == COLL__CONTROL_WELCOME) return COLL_OK;
    const bool is_moved = tcp->is_newcomer && is_known && control.note == COLL__CONTROL_ENDPOINT
        && coll__endpoint_take(tcp, 0, bytes + COLL__CONTROL_TEXT);   /* it is called next                        */
    coll__print(g->why, sizeof g->why, "%s", error == ETIMEDOUT ? "no answer" : error ? strerror(error)
                : is_moved ? "this is not rank 0" : is_known ? control.what.text : "something else answers there");
    return !is_known || is_moved ? COLL_ERR_PEER : control.what.status < 0 ? control.what.status : COLL_ERR_PROTOCOL;
}

/* Try all addresses until one gives a welcome.  Returns the pipe, or none; then each address has its reason.  *status is an
 * error if retrying is useless, COLL_PENDING after an unauthenticated refusal. */
static coll__pipe coll__call_root(coll__tcp *tcp, coll__ways *ways, int answer_ms, int64_t deadline, coll_status *status)
{
    coll__handshake g;
    int at;

    for (int64_t soon = coll__deadline(answer_ms); (at = coll__ways_connect(ways, soon < deadline ? soon : deadline)) >= 0;
         soon = coll__deadline(answer_ms)) {
        coll__way *way = &ways->way[at];
        const int fd = way->fd;
        way->fd = -1;
        coll__ways_rest(ways);
        soon = coll__deadline(answer_ms);
        const coll_status told = coll__introduce(tcp, fd, soon < deadline ? soon : deadline, &g);
        if (told == COLL_OK) {
            tcp->endpoints[0].count = 0;
            coll__addresses_add(tcp->endpoints[0].addresses, &tcp->endpoints[0].count, way->to.bytes);
            tcp->endpoints[0].port = way->to.port;
            tcp->network.scope = way->to.scope;
            return coll__pipe_take(&g.pipe);
        }
        coll__way_ends(way, g.why);
        coll__pipe_close(&g.pipe);
        if (told != COLL_ERR_PEER && told != COLL_ERR_TIMEOUT) *status = told;
        else if (g.is_unauthenticated && coll__begins_refusal(g.bytes) && *status == COLL_OK) *status = COLL_PENDING;
    }
    return (coll__pipe){ .fd = -1 };
}

/* All addresses of "host:port", or of a list of them for a newcomer, of which one is enough.  Before them those of rank 0, if a
 * newcomer knows them from another rank, or has waited there. */
static const char *coll__resolve_some(const coll__tcp *tcp, const char *text, coll__address *list, int *count, bool *may_come)
{
    char entry[COLL__ADDRESS_ROOM];
    coll__address more[COLL__ADDRESSES_MOST];
    const char *wrong = "it is empty";
    const int known = tcp->is_newcomer ? tcp->endpoints[0].count : 0;
    int all = 0;

    for (; all < known; all++) list[all] = coll__endpoint_address(&tcp->endpoints[0], all, tcp->network.scope);
    for (int i = 0, n; coll__hosts_entry(text, i, entry, sizeof entry); i++) {
        const char *const fault = coll__resolve(entry, false, more, &n, may_come);
        if (fault) wrong = fault;
        for (int k = 0; k < n && all < known + COLL__ADDRESSES_MOST; k++) list[all++] = more[k];
    }
    *count = all;
    return all > known ? NULL : wrong;
}

/* Connect to rank 0 before the deadline. */
static coll_status coll__reach_root(coll__tcp *tcp, const coll_config *c, int64_t began, int64_t deadline, coll__pipe *pipe)
{
    const char *const path = coll__rendezvous_path(c->address), *wrong = NULL;
    coll__address list[COLL__ADDRESSES_MOST + COLL__ENDPOINT_ADDRESSES];
    const int alive_ms = tcp->is_newcomer && c->liveness_timeout_ms > 0 ? c->liveness_timeout_ms : COLL__ANSWER_MS;
    const int answer_ms = alive_ms < COLL__ANSWER_MS ? alive_ms : COLL__ANSWER_MS;            /* one may be stopped */
    int pause_ms = COLL__RETRY_LEAST_MS, count;
    bool has_told = false, is_found = false, may_come = true, is_denied = false, was_refused = false;
    char why[400] = "", now[400];

    for (;;) {
        coll__ways ways;
        coll_status status = COLL_OK;
        /* a last attempt too short to succeed would only replace the reason */
        const bool is_over = *why && coll__ms_until(deadline, COLL__LAST_MS) < COLL__LAST_MS;
        if (!is_over && path) {
            is_found = coll__rendezvous_follow(tcp, path, c->world, &ways, now, sizeof now);
        } else if (!is_over) {
            wrong = coll__resolve_some(tcp, c->address, list, &count, &may_come);
            if (wrong) coll__print(now, sizeof now, "%s", wrong);
            else coll__ways_make(&ways, list, count, &tcp->network);
            is_found = !wrong;
        }
        if (!is_over && is_found) {
            *pipe = coll__call_root(tcp, &ways, answer_ms, deadline, &status);
            if (pipe->fd >= 0) return COLL_OK;
            is_denied = status == COLL_PENDING;
            coll__ways_text(&ways, now, sizeof now);
        }
        /* a refusal by rank 0 says more than a later failure to connect */
        if (!is_over && (status == COLL_ERR_PROTOCOL || !was_refused)) memcpy(why, now, sizeof why);
        was_refused |= status == COLL_ERR_PROTOCOL;
        if (status == COLL_ERR_PROTOCOL && path) status = COLL_OK; /* stale file                              */
        if (wrong && !may_come) status = COLL_ERR_ARGUMENT;
        const double waited = coll__waited_seconds(began);
        if (status < 0) return coll__start_failed(status, "rank %d cannot join at %s: %s", tcp->rank, c->address, why);
        if (coll__now() >= deadline)
            return coll__start_failed(is_denied ? COLL_ERR_DENIED : COLL_ERR_TIMEOUT,
                                      "rank %d could not reach rank 0 at %s in %.1f s: %s%s", tcp->rank, c->address, waited, why,
                                      tcp->is_newcomer ? "; if the job began at a loopback address, only processes of its host "
                                      "can join: give rank 0 another one (COLL_ADDR)" : "");
        if (waited > 3 && !has_told) {
            coll__say(&tcp->log, COLL_LOG_WARN, "rank %d cannot reach rank 0 at %s yet: %s", tcp->rank, c->address, why);
            has_told = true;
        }
        (void)poll(NULL, 0, coll__ms_until(deadline, pause_ms + tcp->rank % 7));
        pause_ms = (int)coll__least((size_t)pause_ms * 2, COLL__RETRY_MOST_MS);
    }
}

/* ---- >>other ranks: waiting for the table ---- */

static coll_status coll__take_table(coll__tcp *tcp, coll__pipe *pipe, int64_t deadline)
{
    const size_t length = coll__table_length(tcp);
    unsigned char *table = (unsigned char *)coll__allocate(coll__like(tcp), length);

    if (!table) return coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", tcp->size);
    const int error = coll__pipe_transfer(pipe, table, length, false, deadline);
    const bool is_good = !error && coll__table_read(tcp, table);
    coll__give(table);
    if (is_good) return COLL_OK;
    return coll__start_failed(error ? COLL_ERR_PEER : COLL_ERR_PROTOCOL, "rank %d got no table of ranks from rank 0: %s",
                              tcp->rank, error ? coll__ending_text(error) : "what came is none");
}

/* Wait for rank 0.  A newcomer closes connections of others, which may look for rank 0 here: they try their next address. */
static void coll__await_note(coll__tcp *tcp, coll__pipe *pipe, int64_t limit)
{
    struct pollfd at[2] = { { .fd = pipe->fd }, { .fd = tcp->is_newcomer ? tcp->listener : -1, .events = POLLIN } };
    int ms;

    while ((at[0].events = coll__pipe_await(pipe, POLLIN)) && (ms = coll__ms_until(limit, 60000)) > 0) {
        if (poll(at, 2, ms) > 0 && at[0].revents) return;
        if (!at[1].revents) continue;
        const int fd = coll__accept(tcp->listener);
        if (fd >= 0) close(fd);
        else at[1].fd = -1;                       /* no descriptor is left: they wait                         */
        at[1].revents = 0;
    }
}

/* After the welcome: listen, send the endpoint, and wait for the table or a refusal. */
static coll_status coll__await_table(coll__tcp *tcp, const coll_config *c, coll__pipe *pipe, int64_t deadline)
{
    const int alive_ms = c->liveness_timeout_ms + c->liveness_timeout_ms / COLL__BEATS;
    const char *const where = c->address;
    int64_t limit = deadline;
    unsigned char note[COLL__CONTROL_LENGTH];
    coll__control control = { .note = COLL__CONTROL_WELCOME };
    coll__endpoint outer;
    char missing[160] = "";
    int error = 0;

    for (;;) {
        const bool is_request = control.note == COLL__CONTROL_LISTEN && coll__endpoint_read(note + COLL__CONTROL_TEXT, &outer)
            && outer.count > 0;
        if (is_request || control.note == COLL__CONTROL_WELCOME) {
            const coll_status status = coll__listen_as_other(tcp, pipe->fd, c->tcp.hosts, is_request ? &outer : NULL);
            if (status < 0) return status;
            error = coll__endpoint_send(pipe, COLL__CONTROL_ENDPOINT, &tcp->endpoints[tcp->rank], deadline);
        }
        if (!error) coll__await_note(tcp, pipe, limit);
        if (!error) error = coll__pipe_transfer(pipe, note, sizeof note, false, limit);
        if (error) break;
        if (!coll__control_read(note, tcp->size, &control))
            return coll__start_failed(COLL_ERR_PROTOCOL, "rank %d: something else than rank 0 answers at %s", tcp->rank, where);
        const bool is_beat = control.note == COLL__CONTROL_HEARTBEAT && alive_ms > 0;
        limit = is_beat && coll__deadline(alive_ms) < deadline ? coll__deadline(alive_ms) : deadline;
        if (control.note == COLL__CONTROL_TABLE) return coll__take_table(tcp, pipe, deadline);
        if (control.note == COLL__CONTROL_TAKEN && coll__newcomer_taken(tcp, note)) return COLL_OK;
        if (control.note == COLL__CONTROL_REFUSE)
            return coll__start_failed(control.what.status, "rank %d: %s", tcp->rank, control.what.text);
        if (control.note == COLL__CONTROL_MISSING)
            coll__print(missing, sizeof missing, "; when it last said so, it waited for %.110s", control.what.text);
    }
    const bool is_late = error == ETIMEDOUT && limit == deadline;
    return coll__start_failed(is_late ? COLL_ERR_TIMEOUT : COLL_ERR_PEER, "rank %d reached rank 0 at %s, but then: %s%s",
                              tcp->rank, where, !is_late ? coll__ending_text(error)
                              : tcp->is_newcomer ? "it was not taken before the time was up (coll_grow)"
                              : "not all ranks came before the time was up", missing);
}

static coll_status coll__bootstrap_as_other(coll__tcp *tcp, const coll_config *c)
{
    const int64_t began = coll__now(), deadline = coll__deadline(c->start_timeout_ms);
    /* rank 0 may report the missing ranks only at its own deadline, which may be later */
    const int64_t grace = (int64_t)coll__least((size_t)c->start_timeout_ms / 4, COLL__GRACE_MS);
    const int64_t last = deadline == coll__never ? deadline : deadline + grace * COLL__MS;
    coll__pipe *pipe = &tcp->controls[0].pipe;
    char why[COLL__START_ROOM];
    coll_status status;

    do {                                          /* a newcomer calls again if its rank 0 dies or is silent   */
        coll__pipe_close(pipe);
        status = coll__reach_root(tcp, c, began, deadline, pipe);
        if (status == COLL_OK) status = coll__await_table(tcp, c, pipe, last);
        if (status == COLL_OK || !tcp->is_newcomer) continue;
        tcp->endpoints[0].count = 0;
        coll__close_fd(&tcp->listener);           /* ranks that have it in their table see that it was not taken */
    } while (tcp->is_newcomer && status == COLL_ERR_PEER);
    if (tcp->is_newcomer && status < 0 && !strncmp(coll__start_error, "rank 1", 6)) {           /* it has no rank */
        coll__print(why, sizeof why, "%s", coll__start_error + 6);
        return coll__start_failed(status, "join: this process%s", why);
    }
    if (status < 0 || tcp->is_newcomer) return status;
    coll__io_watch(&tcp->io, pipe->fd, POLLIN, coll__tag(COLL__EVENT_CONTROL, 0));
    coll__io_watch(&tcp->io, tcp->listener, POLLIN, coll__tag(COLL__EVENT_LISTENER, 0));
    return COLL_OK;
}

/* ---- >>all ranks ---- */

/* Processors of the ranks of one host, summed up. */
typedef struct coll__host_ranks { int size, most, sum; uint64_t set; } coll__host_ranks;

/* Set this rank's local rank, the number of ranks on its host, and their processors.  Set `share`: processors per rank on the
 * host with the fewest, at most 1. */
static coll_status coll__count_neighbours(coll__tcp *tcp, coll__opened *opened)
{
    const int home = coll__tcp_host(tcp, tcp->rank);
    coll__host_ranks *const hosts = (coll__host_ranks *)coll__take_zeros(coll__like(tcp), (size_t)tcp->size, sizeof *hosts);
    const bool has_memory = hosts != NULL;
    int local_rank = 0;

    opened->share = 1;
    for (int i = 0; hosts && i < tcp->size; i++) {
        const coll__endpoint *const from = &tcp->endpoints[i];
        coll__host_ranks *const host = &hosts[coll__tcp_host(tcp, i)];
        host->size++;
        host->set |= from->processor_set;
        if (from->processors > host->most) host->most = from->processors;
        host->sum = coll__less(host->sum + from->processors, COLL__PROCESSORS_MOST);
        local_rank += i < tcp->rank && coll__tcp_host(tcp, i) == home;
    }
    for (int i = 0; hosts && i < tcp->size; i++) {
        const int processors = coll__processors_together(hosts[i].set, hosts[i].most, hosts[i].sum);
        const double share = hosts[i].size > 0 ? (double)processors / hosts[i].size : 1;
        if (share < opened->share) opened->share = share;
        if (i != home) continue;
        opened->processors = processors;
        coll__opened_at(opened, local_rank, hosts[i].size);
    }
    coll__give(hosts);
    return has_memory ? COLL_OK : coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", tcp->size);
}

/* All ranks parse the text of rank 0's tuning file, rank 0 too, so all have the same bits. */
static coll_status coll__take_tuning(const coll__tcp *tcp, coll__numbers *numbers)
{
    coll__numbers told = { .link = coll__link_default, .origin = COLL__BY_FILE };
    coll__wrong_word wrong;

    if (!COLL__HAS_CHOICE || !*tcp->tuning) return COLL_OK;
    if (!coll__numbers_read(&told, tcp->tuning, &wrong))
        return coll__start_failed(COLL_ERR_PROTOCOL, "rank %d cannot read what rank 0 says of the wire: %s", tcp->rank,
                                  tcp->tuning);
    coll__print(told.file, sizeof told.file, "%s", *numbers->file ? numbers->file : "the file of rank 0");
    if (tcp->voters < tcp->size) told.shares.count = told.sites.count = 0;        /* of other ranks           */
    *numbers = told;
    return COLL_OK;
}

/* ---- >>another world ---- */

/* The context of this process in another world, with its listener; `us` becomes its identity, and the owner of us->past.  NULL:
 * coll__start_error. */
static coll__tcp *coll__tcp_next(coll__tcp *old, const coll__tcp_settings *settings, const coll__identity *us)
{
    const int size = settings->config.size;
    coll__tcp *const tcp = coll__tcp_new(settings, &old->log);

    if (!tcp) {
        coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", size);
        return NULL;
    }
    tcp->us = *us;
    tcp->us.tls = coll__tls_share(old->us.tls);
    tcp->us.rank = settings->config.rank;
    tcp->us.size = size;
    tcp->network = old->network;
    tcp->lacks_tls = old->lacks_tls;
    tcp->has_warned = old->has_warned;
    coll__shm_segment_sign(&tcp->segment, tcp->rank, tcp->us.world);
    const size_t streams = (size_t)size * COLL_CHANNEL_COUNT * ((size_t)old->us.more_lanes + 1);
    if (coll__io_open(&tcp->io, coll__like(tcp), old->io.is_uring ? "auto" : "poll", streams, tcp->segment.fd >= 0,
                      &old->log) < 0) {
        tcp->us.past = NULL;
        coll__tcp_free(tcp);
        return NULL;
    }
    coll__io_forget(&old->io, old->listener);
    tcp->listener = old->listener;
    old->listener = -1;
    coll__io_watch(&tcp->io, tcp->io.doorbell.fd, POLLIN, coll__tag(COLL__EVENT_DOORBELL, 0));
    coll__io_watch(&tcp->io, tcp->listener, POLLIN, coll__tag(COLL__EVENT_LISTENER, 0));
    return tcp;
}

/* A newcomer that has been taken: its context in its first world.  Frees the one in which it has waited. */
static coll__tcp *coll__newcomer_enter(coll__tcp *old, const coll__tcp_settings *settings, coll_status *status)
{
    coll__tcp_settings mine = { .config = settings->config, .is_open = settings->is_open };

    mine.config.rank = old->us.rank;
    mine.config.size = old->us.size;
    coll__tcp *const tcp = coll__tcp_next(old, &mine, &old->us);
    *status = tcp ? COLL_OK : COLL_ERR_MEMORY;
    if (tcp) {
        old->us.past = NULL;
        tcp->voters = old->voters;
        coll__shm_segment_follow(&tcp->segment, &old->segment);
        tcp->endpoints[0] = old->endpoints[0];
        tcp->controls[0].pipe = coll__pipe_take(&old->controls[0].pipe);
        *status = coll__take_table(tcp, &tcp->controls[0].pipe, coll__deadline(COLL__TABLE_MS));
    }
    coll__tcp_free(old);
    return tcp;
}

/* The whole start; afterwards every rank knows all endpoints. */
static coll_status coll__tcp_join(coll__tcp **out, const coll__tcp_settings *settings, coll__opened *opened)
{
    const coll_config *c = &settings->config;
    const coll__log log = coll__log_of(c);
    coll__tcp *tcp = coll__tcp_new(settings, &log);

    *out = NULL;
    if (!tcp) return coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", c->size);
    tcp->is_newcomer = settings->is_newcomer;
    const size_t connections = (size_t)c->size * COLL_CHANNEL_COUNT * ((size_t)tcp->us.more_lanes + 1);
    coll_status status = coll__io_open(&tcp->io, coll__like(tcp), c->tcp.io, connections, tcp->segment.fd >= 0, &log);
    if (status == COLL_OK) status = coll__network_read(&tcp->network, settings, &log);
    if (status == COLL_OK) coll__io_watch(&tcp->io, tcp->io.doorbell.fd, POLLIN, coll__tag(COLL__EVENT_DOORBELL, 0));
    if (COLL__HAS_CHOICE && c->rank == 0 && opened->numbers.origin == COLL__BY_FILE)
        coll__numbers_print(&opened->numbers, tcp->tuning, sizeof tcp->tuning);
    const size_t job = strlen(settings->place.job);               /* newcomers have no launcher, or another one */
    if (status == COLL_OK && !coll__newcomers_admit(tcp, c->world + (job ? job + 1 : 0)))
        status = coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", c->size);
    if (tcp->is_newcomer) coll__newcomer_identify(&tcp->us, c->world, c->rank);
    if (status == COLL_OK) status = c->rank == 0 ? coll__bootstrap_as_root(tcp, c) : coll__bootstrap_as_other(tcp, c);
    if (status == COLL_OK && tcp->is_newcomer) {
        tcp = coll__newcomer_enter(tcp, settings, &status);
        if (status == COLL_ERR_PEER) coll__tcp_free(tcp);         /* its rank 0 has died since: it waits again    */
        if (status == COLL_ERR_PEER) return coll__tcp_join(out, settings, opened);
        if (!tcp) return status;
        opened->rank = tcp->rank;
        opened->size = tcp->size;
        int joined = -1;                          /* coll-run waits for it                                    */
        if (coll__environment_int("COLL_JOINED", 0, INT_MAX, &joined) && joined >= 0) (void)!write(joined, "", 1);
    }
    if (status == COLL_OK) status = coll__take_tuning(tcp, &opened->numbers);
    if (status == COLL_OK) status = coll__count_neighbours(tcp, opened);
    if (status == COLL_OK) status = coll__control_open(tcp, c->liveness_timeout_ms);
    if (status == COLL_OK) *out = tcp;
    else coll__tcp_free(tcp);
    return status;
}

#endif /* COLL_TCP_BOOTSTRAP_H */
