/* coll_tcp_control.h - what rank 0 hears from each rank, and each from rank 0, over the control connections; and the events:
 * everything that happens beside the transfers. */
#ifndef COLL_TCP_CONTROL_H
#define COLL_TCP_CONTROL_H

/* ---- >>notes ---- */

static void coll__decide(coll__tcp *tcp, const coll_failure *failure);

static void coll__bye_heard(coll__tcp *tcp, int rank)
{
    if (rank < 0 || tcp->presence[rank] != COLL__PRESENT) return;
    tcp->presence[rank] = COLL__SAID_BYE;
    tcp->bye_count++;
    for (int i = 1; tcp->rank == 0 && i < tcp->size; i++)         /* rank 0 passes it on                      */
        if (i != rank && tcp->controls[i].pipe.fd >= 0) coll__control_send(&tcp->controls[i].pipe, COLL__CONTROL_BYE, COLL_OK, rank, "");
}

/* The control connection `index` is closed.  Without a word before, that rank is dead. */
static void coll__control_closed(coll__tcp *tcp, int index, int error)
{
    coll__control_line *line = &tcp->controls[index];
    coll_failure failure = { COLL_OK, -1, "" };
    char who[COLL__ADDRESS_TEXT + 16];

    coll__io_forget(&tcp->io, line->pipe.fd);
    coll__pipe_close(&line->pipe);
    if (tcp->is_meeting) {
        coll__place_lost(tcp, index);
    } else if (tcp->presence[index] == COLL__PRESENT) {
        coll__blame(&failure, coll__ending_status(error), index, "%s is gone: %s", coll__rank_text(tcp, index, who, sizeof who),
                    coll__ending_text(error));
        coll__decide(tcp, &failure);
    }
}

/* Rank 0 learns in which call a rank is waiting, and compares it with what the others have said. */
static void coll__report(coll__tcp *tcp, int rank, const unsigned char *head)
{
    unsigned char *mine = tcp->reports + (size_t)rank * COLL_HEAD_LENGTH;
    coll_failure failure = { COLL_OK, -1, "" };

    memcpy(mine, head, COLL_HEAD_LENGTH);
    for (int i = 0; i < tcp->size; i++) {
        const unsigned char *other = tcp->reports + (size_t)i * COLL_HEAD_LENGTH;
        if (!coll__heads_disagree(mine, other)) continue;
        coll__blame_mismatch(&failure, other, i, mine, rank);
        coll__decide(tcp, &failure);
        return;
    }
}

static void coll__control_heard(coll__tcp *tcp, int index, const unsigned char *bytes)
{
    coll__control control;

    if (!coll__control_read(bytes, tcp->size, &control)) {
        coll__control_closed(tcp, index, EPROTO);
    } else if (control.note == COLL__CONTROL_BYE) {
        coll__bye_heard(tcp, tcp->rank == 0 ? index : control.what.rank);
    } else if (control.note == COLL__CONTROL_FAIL) {
        coll__decide(tcp, &control.what);
    } else if (control.note == COLL__CONTROL_WAITING && tcp->rank == 0) {
        coll__report(tcp, index, bytes + COLL__CONTROL_TEXT);
    } else if (control.note == COLL__CONTROL_PLACE && !(tcp->rank == 0 && coll__place_heard(tcp, index, bytes + COLL__CONTROL_TEXT))) {
        coll__control_closed(tcp, index, EPROTO);
    }
}

static void coll__control_event(coll__tcp *tcp, int index)
{
    coll__control_line *line = &tcp->controls[index];

    while (line->pipe.fd >= 0) {
        const ssize_t n = coll__pipe_move(&line->pipe, line->bytes + line->length, COLL__CONTROL_LENGTH - line->length, false);
        if (n == -EAGAIN) return;
        if (n < 0) {
            coll__control_closed(tcp, index, (int)-n);
            return;
        }
        line->length += (size_t)n;
        if (line->length < COLL__CONTROL_LENGTH) continue;
        line->length = 0;
        coll__control_heard(tcp, index, line->bytes);
    }
}

/* ---- >>events: everything but the transfers ---- */

/* Look, without waiting, whether anything has happened, and deal with it. */
static void coll__events(coll__tcp *tcp)
{
    struct epoll_event events[32];
    const bool had_byes = tcp->bye_count > 0;
    uint64_t rung;
    const int count = epoll_wait(tcp->io.events, events, 32, 0);

    for (int i = 0; i < count; i++) {
        const int index = (int)(events[i].data.u64 & 0xffffffff);
        switch ((coll__event)(events[i].data.u64 >> 32)) {
        case COLL__EVENT_LISTENER: coll__accept_all(tcp); break;
        case COLL__EVENT_GREETING: coll__greeting_event(tcp, index); break;
        case COLL__EVENT_CONTROL: coll__control_event(tcp, index); break;
        case COLL__EVENT_DIALLED: coll__stream_dialled(tcp, &tcp->streams[index]); break;
        case COLL__EVENT_BELL: (void)!read(tcp->io.bell, &rung, sizeof rung); break;
        }
    }
    if (tcp->greeting_count > 0) coll__greetings_expire(tcp);
    if (!had_byes) return;
    coll__accept_all(tcp);                        /* what a rank sent before it left may still be at the door */
    for (int r = 0; r < tcp->size && tcp->greeting_count == 0; r++)
        if (tcp->presence[r] == COLL__SAID_BYE) tcp->presence[r] = COLL__GONE;
}

#endif /* COLL_TCP_CONTROL_H */
