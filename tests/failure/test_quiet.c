/* test_quiet.c - the log of a recovery without faults: late connections of the old world are refused without a log line.
 *
 *     test_quiet
 *
 * Rank 1 has dialled rank 2, which computes, when the world fails, and all shrink.  Before and after that a rank connects to rank
 * 2 that is one coll_shrink ahead, or behind: no warning; and a rank that is many of them ahead: one warning. */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"

enum { CASE_SECONDS = 30, RANKS = 4, DIALLER = 1, CALLED = 2, ABORTER = 3 };

typedef struct scene {
    const char *key, *security, *io;
    int   liveness_ms;
    event dialled, failed;
} scene;

/* Send a hello of this epoch to the listener of a rank that is in the library, or will be, and wait until it closes the
 * connection. */
static void dial(coll_comm *comm, int rank, uint32_t epoch)
{
    const coll__tcp *tcp = inside_tcp(comm);
    const coll__address a = coll__endpoint_address(&tcp->endpoints[rank], 0, tcp->network.scope);
    const coll__hello hello = { .rank = 0, .size = RANKS - 1, .to = rank, .purpose = COLL__PURPOSE_JOIN, .epoch = epoch };
    const int fd = coll__socket(coll__family_of(&a), SOCK_STREAM, true);
    unsigned char bytes[COLL__HELLO_LENGTH], rest[COLL__CONTROL_LENGTH];

    coll__hello_write(bytes, &hello);
    CHECK(coll__connect(fd, &a) && send(fd, bytes, sizeof bytes, 0) == sizeof bytes,
          "%s: no rank listens", case_name);
    while (recv(fd, rest, sizeof rest, 0) > 0) { }
    close(fd);
}

static coll_status fail_and_shrink(joiner *g)
{
    scene *s = g->arg;
    const int rank = coll_rank(g->comm);
    coll_comm *left = NULL;
    coll_request *r = NULL;
    int32_t n = rank, sum = 1;
    coll_status status = COLL_OK;

    if (rank == ABORTER) dial(g->comm, CALLED, 1);
    status = coll_barrier(g->comm);
    if (rank == DIALLER) {                        /* until the hello is sent                                  */
        const coll__stream *stream = coll__stream_to(inside_tcp(g->comm), CALLED, COLL_CHANNEL_MESSAGES);
        status = coll_isend(g->comm, &n, 1, COLL_I32, CALLED, 1, &r);
        while (!status && stream->state != COLL__STREAM_OPEN
               && !(stream->handshake && stream->handshake->step > COLL__HANDSHAKE_SAY))
            (void)coll_progress(g->comm);
        event_raise(&s->dialled);
    } else if (rank == ABORTER) {
        event_await(&s->dialled, 1);
        (void)coll_abort(g->comm, "a test");
    } else if (rank == CALLED) {
        event_await(&s->failed, 2);               /* it computes until the others have detected the failure   */
    }
    if (!status) status = coll_barrier(g->comm);
    CHECK(status == COLL_ERR_ABORTED, "%s: rank %d: %d %s", case_name, rank, (int)status, coll_error(g->comm));
    event_raise(&s->failed);
    status = coll_shrink(g->comm, &left);
    CHECK(!status && coll_size(left) == RANKS, "%s: rank %d: coll_shrink %d: %s", case_name, rank, (int)status,
          coll_error(status ? g->comm : left));
    if (!status && rank == ABORTER) {
        dial(left, CALLED, 0);
        dial(left, CALLED, 2);
        dial(left, CALLED, 7);
    }
    if (!status) status = coll_alltoall(left, NULL, NULL, 0, COLL_I32);
    if (!status) status = coll_allreduce(left, &sum, &sum, 1, COLL_I32, COLL_SUM);
    CHECK(!status && sum == RANKS, "%s: rank %d: %d ranks: %s", case_name, rank, (int)sum, coll_error(left));
    coll_request_free(r);
    coll_free(left);
    return status;
}

static void recovery_case(const void *arg)
{
    scene s = *(const scene *)arg;
    journal said = JOURNAL;
    joiner joiners[RANKS];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    for (int i = 0; i < RANKS; i++) {
        joiners[i] = (joiner){ .body = fail_and_shrink, .arg = &s,
                               .config = { .rank = i, .size = RANKS, .address = address,
                                           .tcp = { .key = s.key, .security = s.security, .io = s.io, .share_memory = COLL_OFF },
                                           .background = COLL_OFF, .liveness_timeout_ms = s.liveness_ms,
                                           .log = journal_line, .log_context = &said } };
        joiner_run(&joiners[i]);
    }
    for (int i = 0; i < RANKS; i++) joiner_join(&joiners[i]);
    CHECK(journal_count(&said, "turned away") == 1, "%s: %d lines, the first: \"%s\"", case_name, said.count, said.lines[0]);
    close(port);
}

int main(void)
{
    static const scene all[] = {
        { NULL, NULL, "poll", 0, EVENT_INIT, EVENT_INIT }, { NULL, NULL, "uring", -1, EVENT_INIT, EVENT_INIT },
        { "a key of all ranks, 0123456789", "key", "poll", -1, EVENT_INIT, EVENT_INIT },
        { "a key of all ranks, 0123456789", "key+check", "uring", 0, EVENT_INIT, EVENT_INIT },
        { NULL, "open+check", "poll", -1, EVENT_INIT, EVENT_INIT },
#if defined(COLL_WITH_OPENSSL)
        { "a key of all ranks, 0123456789", "tls", "poll", -1, EVENT_INIT, EVENT_INIT },
        { "a key of all ranks, 0123456789", "tls", "uring", 0, EVENT_INIT, EVENT_INIT },
#endif
    };

    unsetenv("COLL_KEY");
    unsetenv("COLL_SECURITY");
    cases_begin();
    world = "recovery";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        scene s = all[i];
        char name[80];
        if (support_refusal("tcp-uring")) s.io = "poll";
        snprintf(name, sizeof name, "security %s, %s, heartbeats %s", s.security ? s.security : "none", s.io,
                 s.liveness_ms < 0 ? "off" : "on");
        run_case_within(CASE_SECONDS, recovery_case, &s, name);
    }
    return CHECK_DONE();
}
