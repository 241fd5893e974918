/* coll_tcp_meet.h - rendezvous: everybody dials rank 0, which hands out the table of all places when all are there.
 *
 * The connection stays, as the control connection.  Rank 0 serves all comers at once.  Every wait has the one deadline of the
 * start; when it passes, rank 0 names the missing ranks, to itself and to all that have come. */
#ifndef COLL_TCP_MEET_H
#define COLL_TCP_MEET_H

enum {
    COLL__RETRY_LEAST_MS = 10, COLL__RETRY_MOST_MS = 500,
    COLL__ANSWER_MS = 5000, COLL__TABLE_MS = 5000, COLL__REPORT_MS = 5000
};

/* ---- >>rank 0 ---- */

static void coll__missing_ranks(const coll__tcp *tcp, char *text, size_t room)
{
    unsigned char *is_missing = (unsigned char *)calloc((size_t)tcp->size, 1);

    *text = '\0';
    for (int i = 1; is_missing && i < tcp->size; i++) is_missing[i] = tcp->controls[i].pipe.fd < 0;
    if (is_missing) coll__append_ranks(text, room, is_missing, tcp->size);
    free(is_missing);
}

/* The table, to every rank.  One that has died meanwhile shows later, as a dead rank. */
static void coll__send_table(coll__tcp *tcp)
{
    const size_t length = COLL__CONTROL_LENGTH + (size_t)tcp->size * COLL__PLACE_LENGTH;
    unsigned char *bytes = (unsigned char *)coll__allocate(length);

    for (int i = 1; i < tcp->size; i++) {
        if (!bytes) break;
        if (i == 1) {
            coll__control_write(bytes, COLL__CONTROL_TABLE, COLL_OK, -1, tcp->tuning);
            for (int r = 0; r < tcp->size; r++)
                coll__place_write(bytes + COLL__CONTROL_LENGTH + (size_t)r * COLL__PLACE_LENGTH, &tcp->places[r]);
        }
        (void)coll__pipe_transfer(&tcp->controls[i].pipe, bytes, length, true, coll__deadline(COLL__TABLE_MS));
    }
    free(bytes);
}

static coll_status coll__listen_as_root(coll__tcp *tcp, const char *text)
{
    coll__address a;
    bool may_come;
    char public[200];
    const char *wrong = coll__resolve(text, true, &a, &may_come);

    if (wrong) return coll__start_failed(COLL_ERR_ARGUMENT, "rank 0 cannot listen at \"%s\": %s", text, wrong);
    if (!coll__may_listen(tcp, &a, public, sizeof public))
        return coll__start_failed(COLL_ERR_ARGUMENT, "rank 0 does not listen at \"%s\": %s", text, public);
    tcp->listener = coll__listen_at(&a);
    if (tcp->listener < 0 && errno == EADDRNOTAVAIL) {            /* an address of a router or a service in front of us */
        coll__address any = { .length = a.length };
        any.at.ss_family = a.at.ss_family;
        int port;
        unsigned char ignored[16];
        coll__address_pack(&a, ignored, &port);
        any = coll__with_port(any, port);
        if (!coll__may_listen(tcp, &any, public, sizeof public))
            return coll__start_failed(COLL_ERR_ARGUMENT, "%s is no address of this host, and rank 0 does not listen on all of them: "
                                      "%s", text, public);
        tcp->listener = coll__listen_at(&any);
        if (tcp->listener >= 0)
            coll__say(&tcp->log, COLL_LOG_WARN, "%s is no address of this host: rank 0 listens on all of them", text);
    }
    if (tcp->listener < 0)
        return coll__start_failed(COLL_ERR_SYSTEM, "rank 0 cannot listen at %s: %s%s", text, strerror(errno),
                                  errno == EADDRINUSE ? " (does another job use this port?)" : "");
    const coll__address here = coll__name_of(tcp->listener, false);
    coll__address_pack(&here, tcp->places[0].address, &tcp->places[0].port);
    memcpy(tcp->places[0].host, tcp->us.host, sizeof tcp->us.host);
    coll__io_watch(&tcp->io, tcp->listener, EPOLLIN, coll__tag(COLL__EVENT_LISTENER, 0));
    return COLL_OK;
}

static coll_status coll__meet_as_root(coll__tcp *tcp, const coll_config *c)
{
    const int64_t began = coll__now(), deadline = coll__deadline(c->start_timeout_ms);
    int64_t report = began + (int64_t)COLL__REPORT_MS * COLL__MS;
    char missing[120];
    coll_status status = coll__listen_as_root(tcp, c->address);

    if (status < 0) return status;
    tcp->is_meeting = true;
    while (tcp->present_count < tcp->size - 1) {
        const int64_t now = coll__now();
        if (now >= report || now >= deadline) {
            coll__missing_ranks(tcp, missing, sizeof missing);
            coll__say(&tcp->log, COLL_LOG_INFO, "rank 0 waits at %s for %d of %d ranks: %s", c->address,
                      tcp->size - 1 - tcp->present_count, tcp->size, missing);
            report = now + (int64_t)COLL__REPORT_MS * COLL__MS;
        }
        if (now >= deadline) {
            status = coll__start_failed(COLL_ERR_TIMEOUT, "rank 0 waited %.1f s at %s; these ranks have not come: %s",
                                        (double)(now - began) * 1e-9, c->address, missing);
            for (int i = 1; i < tcp->size; i++)
                if (tcp->controls[i].pipe.fd >= 0)
                    coll__control_send(&tcp->controls[i].pipe, COLL__CONTROL_REFUSE, status, -1, coll__start_error);
            return status;
        }
        struct pollfd p = { .fd = tcp->io.events, .events = POLLIN };
        (void)poll(&p, 1, coll__ms_until(deadline < report ? deadline : report, 1000));
        coll__events(tcp);
    }
    tcp->is_meeting = false;
    coll__send_table(tcp);
    return COLL_OK;
}

/* ---- >>the others ---- */

/* Connect to rank 0, listen where the way to it begins, and greet it.  COLL_OK, or an error with the reason in g->why; the pipe
 * is the caller's to close. */
static coll_status coll__call_root(coll__tcp *tcp, const coll__address *a, int64_t limit, coll__greet *g)
{
    coll__hello hello = { .purpose = COLL__PURPOSE_MEET };
    unsigned char ignored[16];
    const int fd = coll__dial(a);
    int error = fd < 0 ? errno : 0;

    *g = (coll__greet){ .pipe = { .fd = fd } };
    if (!error) {
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        (void)poll(&p, 1, coll__ms_until(limit, COLL__ANSWER_MS));
        error = coll__dial_result(fd);
        if (error == ENOTCONN) error = ETIMEDOUT;
    }
    if (!error) {
        const coll__address here = coll__with_port(coll__name_of(fd, false), 0);
        if (!coll__may_listen(tcp, &here, g->why, sizeof g->why)) return COLL_ERR_ARGUMENT;
        coll__close_fd(&tcp->listener);
        tcp->listener = coll__listen_at(&here);
        if (tcp->listener < 0) error = errno;
    }
    if (error) {
        coll__print(g->why, sizeof g->why, "%s", error == ETIMEDOUT ? "no answer" : strerror(error));
        return COLL_ERR_PEER;
    }
    const coll__address door = coll__name_of(tcp->listener, false);
    coll__address_pack(&door, ignored, &hello.port);
    coll__greet_call(g, &tcp->us, fd, hello, limit);
    return coll__greet_finish(g, &tcp->us);
}

/* One attempt to reach rank 0 and be welcome.  Gives the connection, or none with the reason in `why`; *status is an error
 * when there is no use in trying again. */
static coll__pipe coll__knock(coll__tcp *tcp, const coll_config *c, int64_t deadline, char *why, size_t room, coll_status *status)
{
    coll__address a;
    bool may_come;
    unsigned char bytes[COLL__CONTROL_LENGTH];
    coll__control control;
    coll__greet g;
    const char *wrong = coll__resolve(c->address, false, &a, &may_come);

    if (wrong) {
        coll__print(why, room, "%s", wrong);
        if (!may_come) *status = COLL_ERR_ARGUMENT;
        return (coll__pipe){ .fd = -1 };
    }
    const int64_t soon = coll__deadline(COLL__ANSWER_MS), limit = soon < deadline ? soon : deadline;
    const coll_status greeted = coll__call_root(tcp, &a, limit, &g);
    const int error = greeted < 0 ? 0 : coll__pipe_transfer(&g.pipe, bytes, COLL__CONTROL_LENGTH, false, limit);
    if (greeted < 0) {
        coll__print(why, room, "%s", g.why);
        if (greeted != COLL_ERR_PEER && greeted != COLL_ERR_TIMEOUT) *status = greeted;
    } else if (error) {
        coll__print(why, room, "%s", error == ETIMEDOUT ? "no answer" : strerror(error));
    } else if (!coll__control_read(bytes, tcp->size, &control)) {
        coll__print(why, room, "something else answers there");
    } else if (control.note == COLL__CONTROL_WELCOME) {
        coll__address_pack(&a, tcp->places[0].address, &tcp->places[0].port);
        return g.pipe;
    } else {
        coll__print(why, room, "%s", control.what.text);
        if (control.what.status != COLL_ERR_TIMEOUT) *status = control.what.status < 0 ? control.what.status : COLL_ERR_PROTOCOL;
    }
    coll__pipe_close(&g.pipe);
    return g.pipe;
}

/* Loopback addresses hold for ranks of the same host only; the others find them where they found rank 0, whose host it is. */
static void coll__table_read(coll__tcp *tcp, const unsigned char *bytes)
{
    const coll__place_of root = tcp->places[0];

    for (int i = 0; i < tcp->size; i++) {
        coll__place_read(bytes + (size_t)i * COLL__PLACE_LENGTH, &tcp->places[i]);
        if (i == 0 || (coll__is_loopback(tcp->places[i].address) && memcmp(tcp->places[i].host, tcp->us.host, sizeof tcp->us.host)))
            memcpy(tcp->places[i].address, root.address, sizeof root.address);
        if (i == 0) tcp->places[0].port = root.port;
    }
}

/* Welcome: now wait until all are there. */
static coll_status coll__await_table(coll__tcp *tcp, const coll_config *c, coll__pipe *pipe, int64_t deadline)
{
    unsigned char note[COLL__CONTROL_LENGTH];
    const size_t length = (size_t)tcp->size * COLL__PLACE_LENGTH;
    unsigned char *table = (unsigned char *)coll__allocate(length);
    coll__control control;

    if (!table) return coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", tcp->size);
    int error = coll__pipe_transfer(pipe, note, sizeof note, false, deadline);
    const bool is_note = !error && coll__control_read(note, tcp->size, &control);
    if (is_note && control.note == COLL__CONTROL_TABLE) error = coll__pipe_transfer(pipe, table, length, false, deadline);
    if (!error && is_note && control.note == COLL__CONTROL_TABLE) {
        coll__table_read(tcp, table);
        coll__print(tcp->tuning, sizeof tcp->tuning, "%s", control.what.text);
        free(table);
        return COLL_OK;
    }
    free(table);
    if (is_note && !error)
        return coll__start_failed(control.what.status < 0 ? control.what.status : COLL_ERR_PROTOCOL, "rank %d: %s", tcp->rank,
                                  control.what.text);
    const bool is_late = error == ETIMEDOUT;
    return coll__start_failed(is_late ? COLL_ERR_TIMEOUT : COLL_ERR_PEER, "rank %d reached rank 0 at %s, but then: %s", tcp->rank,
                              c->address, is_late ? "it had nothing to say until the time was up" : coll__ending_text(error));
}

static coll_status coll__meet_as_other(coll__tcp *tcp, const coll_config *c)
{
    const int64_t began = coll__now(), deadline = coll__deadline(c->start_timeout_ms);
    int pause_ms = COLL__RETRY_LEAST_MS;
    coll__pipe pipe;
    coll_status status = COLL_OK;
    bool has_told = false;
    char why[160] = "";

    while ((pipe = coll__knock(tcp, c, deadline, why, sizeof why, &status)).fd < 0) {
        const double waited = (double)(coll__now() - began) * 1e-9;
        if (status < 0)
            return coll__start_failed(status, "rank %d cannot join at %s: %s", tcp->rank, c->address, why);
        if (coll__now() >= deadline)
            return coll__start_failed(COLL_ERR_TIMEOUT, "rank %d could not reach rank 0 at %s in %.1f s: %s", tcp->rank,
                                      c->address, waited, why);
        if (waited > 3 && !has_told) {
            coll__say(&tcp->log, COLL_LOG_WARN, "rank %d cannot reach rank 0 at %s yet: %s", tcp->rank, c->address, why);
            has_told = true;
        }
        (void)poll(NULL, 0, coll__ms_until(deadline, pause_ms + tcp->rank % 7));
        pause_ms = (int)coll__least((size_t)pause_ms * 2, COLL__RETRY_MOST_MS);
    }
    tcp->controls[0].pipe = pipe;
    /* rank 0 may say who is missing at the very end of its own time */
    status = coll__await_table(tcp, c, &tcp->controls[0].pipe, deadline == coll__never ? deadline : deadline + (int64_t)COLL__TABLE_MS * COLL__MS);
    if (status < 0) return status;
    coll__io_watch(&tcp->io, pipe.fd, EPOLLIN, coll__tag(COLL__EVENT_CONTROL, 0));
    coll__io_watch(&tcp->io, tcp->listener, EPOLLIN, coll__tag(COLL__EVENT_LISTENER, 0));
    return COLL_OK;
}

/* ---- >>either ---- */

/* Which rank of how many this is on its host, by what all have said of their hosts. */
static void coll__count_neighbours(const coll__tcp *tcp, int *local_rank, int *local_size)
{
    *local_rank = *local_size = 0;
    for (int i = 0; i < tcp->size; i++) {
        if (memcmp(tcp->places[i].host, tcp->us.host, sizeof tcp->us.host)) continue;
        if (i < tcp->rank) ++*local_rank;
        ++*local_size;
    }
}

/* What rank 0 has read of the wire.  All ranks, rank 0 too, take it from the text that went round: so they have the same bits. */
static coll_status coll__take_tuning(const coll__tcp *tcp, coll__numbers *numbers)
{
    const coll__numbers *const before = numbers;
    coll__numbers told = { .link = coll__link_default, .origin = COLL__BY_FILE };
    size_t length;

    if (!*tcp->tuning) return COLL_OK;
    if (coll__numbers_read(&told, tcp->tuning, &length))
        return coll__start_failed(COLL_ERR_PROTOCOL, "rank %d cannot read what rank 0 says of the wire: %s", tcp->rank,
                                  tcp->tuning);
    coll__print(told.file, sizeof told.file, "%s", tcp->rank == 0 ? before->file : "the file of rank 0");
    *numbers = told;
    return COLL_OK;
}

/* Meet all ranks. */
static coll_status coll__tcp_open(coll__tcp **out, coll__settings *settings, const coll__log *log)
{
    const coll_config *c = &settings->config;
    coll__tcp *tcp = coll__tcp_new(settings, log);

    *out = NULL;
    if (!tcp) return coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", c->size);
    coll_status status = coll__io_open(&tcp->io, c->io, (size_t)c->size * COLL_CHANNEL_COUNT, log);
    if (status == COLL_OK) coll__io_watch(&tcp->io, tcp->io.bell, EPOLLIN, coll__tag(COLL__EVENT_BELL, 0));
    if (c->rank == 0 && settings->numbers.origin == COLL__BY_FILE)
        coll__numbers_print(&settings->numbers, tcp->tuning, sizeof tcp->tuning);
    if (status == COLL_OK) status = c->rank == 0 ? coll__meet_as_root(tcp, c) : coll__meet_as_other(tcp, c);
    if (status == COLL_OK) status = coll__take_tuning(tcp, &settings->numbers);
    if (status < 0) {
        coll__tcp_free(tcp);
        return status;
    }
    coll__control_open(tcp, c->liveness_timeout_ms);
    coll__count_neighbours(tcp, &settings->local_rank, &settings->local_size);
    *out = tcp;
    return COLL_OK;
}

#endif /* COLL_TCP_MEET_H */
