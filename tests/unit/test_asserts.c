/* test_asserts.c - internal assertions of the library report violations with their place; a release does not check them.
 *
 *     test_asserts */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"

#include <sys/wait.h>

#if defined(COLL_ASSERT)
static const bool is_on = true;
#else
static const bool is_on = false;
#endif

/* ---- each breaks something that must hold ---- */

static void take_from_empty_queue(coll_comm *comm)
{
    coll__message_queue empty = { .first = NULL };

    (void)comm;
    (void)coll__queue_take(&empty);
}

static void append_twice(coll_comm *comm)
{
    coll__message_list list = { .first = NULL };
    coll__message message = { .tag = 77, .peer = 1 };

    (void)comm;
    coll__message_append(&list, &message);
    coll__message_append(&list, &message);
}

static void finish_twice(coll_comm *comm)
{
    coll_request r = { .comm = comm, .call = { .kind = COLL_ALLGATHER }, .status = COLL_OK, .sequence = 12 };
    coll__request_finish(&r, COLL_OK);
}

static void queue_what_is_done(coll_comm *comm)
{
    coll_request r = { .comm = comm, .call = { .kind = COLL_BROADCAST }, .status = COLL_ERR_PEER };
    coll__order_append(&comm->main, &r);
}

static void drop_what_is_free(coll_comm *comm) { coll__session_drop(comm); }

static void combine_nothing(coll_comm *comm)
{
    coll__codec codec = { 0 };

    (void)comm;
    coll__combine(&codec, &(coll__sum){ .n = 0, .m = 1 });
}

/* ---- scripts and hierarchies ---- */

#if !COLL__HAS_HIERARCHY
#define IN_HIERARCHY
#else
static coll__sub_kind wait_for_ever(coll__hierarchy *state, int lane, int k, coll__sub *out)
{
    (void)state, (void)lane, (void)k;
    out->until = 99;
    return COLL__SUB_WAIT;
}

static void wait_for_one_another(coll_comm *comm)
{
    static const coll__script script = { 2, wait_for_ever, NULL, NULL };
    coll__runner runner = { .script = &script };
    coll__workspace workspace = { .arena = &runner };
    coll__order order = { .workspaces = { &workspace } };
    coll_request r = { .comm = comm, .order = &order, .call = { .kind = COLL_ALLREDUCE }, .sequence = 3 };

    (void)coll__script_advance(&r);
}

static void step_on_none(coll_comm *comm)
{
    const coll_request whole = { .comm = comm, .call = { .kind = COLL_BROADCAST }, .sequence = 5 };
    const coll__hierarchy h = { .whole = &whole };
    const coll_call call = { .kind = COLL_BARRIER };
    coll__sub sub = { .on = NULL };

    (void)coll__sub_call(&h, &sub, NULL, &call);
}

#define IN_HIERARCHY                                                                                              \
    { "script", "the lanes of allreduce 3 wait for one another, 0 and 0 steps done", wait_for_one_another },      \
    { "stage", "broadcast 5 has a step, barrier, on no communicator", step_on_none },
#endif

static void look_for_a_rank_elsewhere(coll_comm *comm)
{
    const int hosts[3] = { 7, 8, 7 };
    coll__topology *t = coll__topology_of(NULL, hosts, 3, 0);
    int host;

    (void)comm;
    if (t) (void)coll__place_of_rank(t, 7, &host);
}

/* ---- rows ---- */

static void open_beside_the_host(coll_comm *comm)
{
    coll__opened o = { .rank = 1, .size = 4 };

    (void)comm;
    coll__opened_at(&o, 3, 2);
}

/* ---- transports ---- */

static void end_message_twice(coll_comm *comm)
{
    coll_xfer x = { .peer = 3, .status = COLL_OK };
    coll__chain chain = { &x, &x.next };

    (void)comm;
    coll__chain_take(&chain, &x, COLL_ERR_MISMATCH);
}

#if !COLL__IS_WHOLE
#define IN_LANES
#else
static void end_what_is_not_queued(coll_comm *comm)
{
    coll_xfer x = { .peer = 3, .status = COLL_PENDING };
    coll__chain chain = { NULL, &chain.first };

    (void)comm;
    coll__chain_take(&chain, &x, COLL_OK);
}

#define IN_LANES { "unknown message", "a message with rank 3 ends with 0, after 1, and is not queued", end_what_is_not_queued },
#endif

static void send_more_than_there_is(coll_comm *comm)
{
    static coll__stream s = { .peer = 2 };

    (void)comm;
    coll__stream_pushed(&s, 7);
}

static void ask_for_a_rank_too_many(coll_comm *comm)
{
    static coll__tcp tcp = { .rank = 1, .size = 4 };

    (void)comm;
    (void)coll__stream_to(&tcp, 4, COLL_CHANNEL_MESSAGES);
}

static void listen_everywhere(coll_comm *comm)
{
    unsigned char bytes[COLL__ENDPOINT_LENGTH];
    const coll__endpoint endpoint = { .count = 9, .port = 80 };

    (void)comm;
    coll__endpoint_write(bytes, &endpoint);
}

/* ---- the simulator ---- */

#if !COLL__HAS_SIM
#define IN_SIMULATOR
#else
static void push_nothing(coll_comm *comm)
{
    static coll__sim w = { .now = 2 };

    (void)comm;
    coll__sim_push(&w, COLL__SIM_RUN, 1, NULL, 0);
}

static void run_twice(coll_comm *comm)
{
    static coll__sim w;
    static coll__sim_rank r = { .world = &w, .rank = 2, .state = COLL__SIM_FINISHED };

    (void)comm;
    coll__fiber_enter(&r);
}

static void lose_count(coll_comm *comm)
{
    static coll__sim w;
    coll__lane lane = { .from = 1, .to = 2, .recv_count = 1 };

    (void)comm;
    coll__lane_close(&w, &lane);
}

#define IN_SIMULATOR                                                                                              \
    { "event", "an event of kind 3 at 1 s, and it is 2 s, about nothing", push_nothing },                         \
    { "fiber", "rank 2 runs in state 2", run_twice },                                                             \
    { "lane", "channel 0 from rank 1 to rank 2 counts 1 receives and 0 messages", lose_count },
#endif

static const struct { const char *name, *says; void (*break_it)(coll_comm *); } breaches[] = {
    { "empty queue", "coll__queue_take: m does not hold: a message is taken from an empty queue", take_from_empty_queue },
    { "list", "coll__message_append: !m->list does not hold: a message with tag 77 of peer 1 is in a list", append_twice },
    { "request ends twice", "allgather 12 ends with 0, after 0", finish_twice },
    { "queued when done", "broadcast 0 is queued with status -", queue_what_is_done },
    { "not held", "rank 0 lets go of what it does not hold", drop_what_is_free },
    { "no sources", "0 sources for 1 results", combine_nothing },
    IN_HIERARCHY
    { "topology", "rank 7 of 3 is looked up on 2 hosts", look_for_a_rank_elsewhere },
    { "opened", "rank 1 is number 3 of 2 on its host, of 4", open_beside_the_host },
    { "message ends twice", "a message with rank 3 ends with -6, after 0", end_message_twice },
    IN_LANES
    { "sent too much", "7 bytes more have gone to rank 2 than were to go", send_more_than_there_is },
    { "no such stream", "rank 1 requests channel 1 to rank 4 of 4", ask_for_a_rank_too_many },
    { "endpoint", "an endpoint of 9 addresses, port 80", listen_everywhere },
    IN_SIMULATOR
};

/* What a process says that breaks something, and how it ends. */
static int run_breach(size_t i, char *said, size_t room)
{
    int ends[2], status = 0;
    size_t length = 0;
    ssize_t got;

    fflush(NULL);
    if (pipe(ends)) return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        coll_comm *comm;
        dup2(ends[1], 2);
        if (coll_init_threads(1, &comm, NULL) == COLL_OK) breaches[i].break_it(comm);
        _exit(0);
    }
    close(ends[1]);
    while (length < room - 1 && (got = read(ends[0], said + length, room - 1 - length)) > 0) length += (size_t)got;
    said[length] = '\0';
    close(ends[0]);
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

int main(void)
{
    int looks = 0;

    support_limit(60, NULL);
    COLL__ASSERT(++looks, "%d looks", looks);
    CHECK(looks == is_on, "%d looks", looks);
    for (size_t i = 0; is_on && i < sizeof breaches / sizeof *breaches; i++) {
        char said[1024];
        const int status = run_breach(i, said, sizeof said);
        CHECK(status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: %#x: %s", breaches[i].name,
              (unsigned)status, said);
        CHECK(strstr(said, "coll: internal error at ") && strstr(said, breaches[i].says) && strstr(said, "please report"),
              "%s: \"%s\"", breaches[i].name, said);
    }
    return CHECK_DONE();
}
