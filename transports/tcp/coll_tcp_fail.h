/* coll_tcp_fail.h - the first failure becomes everyone's.
 *
 * Rank 0 is the judge: a rank that meets an error tells it to rank 0, and the first such report, or what rank 0 has seen by
 * itself, is the verdict, which rank 0 sends to all.  A rank waits for the verdict, and keeps its connections open until
 * coll_free, for its neighbours could take their end for a death.  When rank 0 is dead, too busy to answer, or the one to be
 * blamed, the rank's own view stands. */
#ifndef COLL_TCP_FAIL_H
#define COLL_TCP_FAIL_H

enum { COLL__VERDICT_MS = 1000 };

/* The verdict.  Rank 0 tells it to all. */
static void coll__decide(coll__tcp *tcp, const coll_failure *failure)
{
    if (tcp->failure.status != COLL_OK) return;
    tcp->failure = *failure;
    for (int i = 1; tcp->rank == 0 && i < tcp->size; i++)
        if (tcp->controls[i].pipe.fd >= 0)
            coll__control_send(&tcp->controls[i].pipe, COLL__CONTROL_FAIL, failure->status, failure->rank, failure->text);
}

/* Report and wait for the verdict. */
static void coll__ask_for_verdict(coll__tcp *tcp, const coll_failure *cause)
{
    const int64_t deadline = coll__deadline(COLL__VERDICT_MS);
    const bool is_judge_late = cause->rank == 0 && cause->status == COLL_ERR_TIMEOUT;

    if (tcp->rank != 0 && tcp->controls[0].pipe.fd >= 0)
        coll__control_send(&tcp->controls[0].pipe, COLL__CONTROL_FAIL, cause->status, cause->rank, cause->text);
    coll__events(tcp);                            /* what caused it may have been told already                */
    while (tcp->rank != 0 && !is_judge_late && tcp->failure.status == COLL_OK && tcp->controls[0].pipe.fd >= 0 && coll__now() < deadline) {
        struct pollfd p = { .fd = tcp->io.events, .events = POLLIN };
        (void)poll(&p, 1, coll__ms_until(deadline, COLL__VERDICT_MS));
        coll__events(tcp);
    }
    coll__decide(tcp, cause);
}

static const coll_failure *coll__tcp_fail(void *context, const coll_failure *cause)
{
    coll__tcp *tcp = (coll__tcp *)context;

    if (tcp->failure.status == COLL_OK && !cause) return NULL;
    if (tcp->failure.status == COLL_OK) {
        const coll_failure own = *cause;
        coll__ask_for_verdict(tcp, &own);
    }
    coll__io_cancel(&tcp->io, tcp->streams, tcp->size * COLL_CHANNEL_COUNT);      /* the caller takes its buffers back */
    return &tcp->failure;
}

/* Tell rank 0 in which call we are waiting. */
static void coll__tcp_waiting(void *context, const unsigned char *head)
{
    coll__tcp *tcp = (coll__tcp *)context;
    unsigned char bytes[COLL__CONTROL_LENGTH];

    if (tcp->rank == 0) {
        coll__report(tcp, 0, head);
    } else if (tcp->controls[0].pipe.fd >= 0) {
        coll__control_write(bytes, COLL__CONTROL_WAITING, COLL_OK, tcp->rank, "");
        memcpy(bytes + COLL__CONTROL_TEXT, head, COLL_HEAD_LENGTH);
        (void)coll__pipe_move(&tcp->controls[0].pipe, bytes, sizeof bytes, true);
    }
}

static void coll__say_bye(coll__tcp *tcp)
{
    for (int i = tcp->rank == 0 ? 1 : 0; i < (tcp->rank == 0 ? tcp->size : 1); i++)
        if (tcp->controls[i].pipe.fd >= 0) coll__control_send(&tcp->controls[i].pipe, COLL__CONTROL_BYE, COLL_OK, tcp->rank, "");
}

/* Will nothing more come from this rank?  Its stream of messages has ended, or it has left and there never was one. */
static bool coll__tcp_has_left(const void *context, int peer)
{
    const coll__tcp *tcp = (const coll__tcp *)context;

    if (peer < 0) return tcp->bye_count + tcp->ended_count > 0;
    const coll__stream *s = coll__stream_to(tcp, peer, COLL_CHANNEL_MESSAGES);
    return s->state == COLL__STREAM_ENDED || (tcp->presence[peer] == COLL__GONE && s->state == COLL__STREAM_NONE);
}

#endif /* COLL_TCP_FAIL_H */
