/* test_errors.c - bad input gets a status and a sentence, never a crash, a hang or lost data.
 *
 *     test_errors [WORLD,...] [PART,...]                WORLD: threads, tcp-poll, tcp-uring, joined
 *                                                       PART: arguments, mismatch, leaving, deadlines, requests
 *
 * Every case runs in a process of its own with a time limit, so a hang or a crash is one failure with a name and the cases
 * behind it still run.  The ranks of a case are threads of that process, over memory or over TCP on the loopback; ranks that
 * are killed, and the start of ranks, are in test_faults.c.
 */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "leaving_ranks.h"

#include <limits.h>
#include <sched.h>

enum { COUNT_MOST = 1 << 17, CASE_SECONDS = 30, MISMATCH_SECONDS = 6, MISMATCH_MS = 3000 };

static void run_case(void (*body)(const void *arg), const void *arg, const char *name)
{
    run_case_within(CASE_SECONDS, body, arg, name);
}

/* ---- >>arguments ---- */

enum { THREE = 3, CALLER = 1000 };                /* ranks of the world; a root that stands for the caller    */

static float x[64], y[64];                        /* never touched by a wrong call                            */

typedef struct wrong {
    const char *name;
    coll_call   call;
    coll_status status;
    const char *words[3];
} wrong;

#define ARGUMENT    COLL_ERR_ARGUMENT
#define UNSUPPORTED COLL_ERR_UNSUPPORTED
#define FOUR        .count = 4, .type = COLL_F32
#define BIG         "9223372036854775807"

static const wrong wrongs[] = {
    { "send to rank 3 of 3", { .kind = COLL_SEND, .send = x, FOUR, .peer = 3 }, ARGUMENT,
      { "destination 3 is out of range for 3 ranks" } },
    { "send to rank -1", { .kind = COLL_SEND, .send = x, FOUR, .peer = -1 }, ARGUMENT, { "-1" } },
    { "recv from rank 3 of 3", { .kind = COLL_RECV, .recv = y, FOUR, .peer = 3 }, ARGUMENT, { "source 3 is out" } },
    { "recv from rank -7", { .kind = COLL_RECV, .recv = y, FOUR, .peer = -7 }, ARGUMENT, { "-7" } },
    { "sendrecv to rank 99", { .kind = COLL_SENDRECV, .send = x, .recv = y, FOUR, .recv_count = 4, .peer = 99 }, ARGUMENT,
     { "99" } },
    { "sendrecv from rank -3", { .kind = COLL_SENDRECV, .send = x, .recv = y, FOUR, .recv_count = 4, .source = -3 }, ARGUMENT,
      { "source", "-3" } },
    { "send with tag -5", { .kind = COLL_SEND, .send = x, FOUR, .tag = -5 }, ARGUMENT, { "tag", "-5" } },
    { "recv with tag -5", { .kind = COLL_RECV, .recv = y, FOUR, .tag = -5 }, ARGUMENT, { "tag", "-5" } },
    { "sendrecv with the least tag", { .kind = COLL_SENDRECV, .send = x, .recv = y, FOUR, .recv_count = 4, .tag = INT_MIN },
      ARGUMENT, { "tag", "-2147483648" } },
    { "broadcast from root 3", { .kind = COLL_BROADCAST, .recv = y, FOUR, .root = 3 }, ARGUMENT, { "root 3 is out" } },
    { "broadcast from root -1", { .kind = COLL_BROADCAST, .recv = y, FOUR, .root = -1 }, ARGUMENT, { "root", "-1" } },
    { "reduce to root 99", { .kind = COLL_REDUCE, .send = x, .recv = y, FOUR, .root = 99 }, ARGUMENT, { "root", "99" } },
    { "type 0", { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 4 }, ARGUMENT, { "0", "type" } },
    { "type 27", { .kind = COLL_BROADCAST, .recv = y, .count = 4, .type = 27 }, ARGUMENT, { "27", "type" } },
    { "type 40", { .kind = COLL_ALLGATHER, .send = x, .recv = y, .count = 4, .type = 40 }, ARGUMENT, { "40", "type" } },
    { "type -1", { .kind = COLL_SEND, .send = x, .count = 4, .type = -1 }, ARGUMENT, { "-1", "type" } },
    { "a blob of no bytes", { .kind = COLL_RECV, .recv = y, .count = 4, .type = COLL_BLOB(0) }, ARGUMENT,
      { "1073741824", "type" } },
    { "op 77", { .kind = COLL_ALLREDUCE, .send = x, .recv = y, FOUR, .op = (coll_op)77 }, ARGUMENT, { "77", "op" } },
    { "op -1", { .kind = COLL_REDUCE_SCATTER, .send = x, .recv = y, FOUR, .op = (coll_op)-1 }, ARGUMENT, { "-1", "op" } },
    { "op 14", { .kind = COLL_REDUCE, .send = x, .recv = y, FOUR, .op = (coll_op)14 }, ARGUMENT, { "14", "op" } },
    { "kind 0", { .send = x, .recv = y, FOUR }, ARGUMENT, { "0", "kind" } },
    { "kind 42", { .kind = (coll_kind)42, .send = x, .recv = y, FOUR }, ARGUMENT, { "42", "kind" } },
    { "kind -1", { .kind = (coll_kind)-1, .send = x, .recv = y, FOUR }, ARGUMENT, { "-1", "kind" } },
    { "a huge allreduce", { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = SIZE_MAX / 2, .type = COLL_F32 }, ARGUMENT,
     { BIG } },
    { "a huge allreduce of bytes", { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = SIZE_MAX / 2, .type = COLL_U8 },
     ARGUMENT, { BIG } },
    { "a huge allgather", { .kind = COLL_ALLGATHER, .send = x, .recv = y, .count = SIZE_MAX / 2, .type = COLL_I8 }, ARGUMENT,
     { BIG } },
    { "a huge reduce_scatter", { .kind = COLL_REDUCE_SCATTER, .send = x, .recv = y, .count = SIZE_MAX / 2, .type = COLL_F64 },
     ARGUMENT, { BIG } },
    { "an allgather whose result is huge", { .kind = COLL_ALLGATHER, .send = x, .recv = y, .count = SIZE_MAX / 8,
                                            .type = COLL_F32 }, ARGUMENT,
      { "2305843009213693951", "3 ranks" } },
    { "a huge broadcast", { .kind = COLL_BROADCAST, .recv = y, .count = SIZE_MAX, .type = COLL_F16 }, ARGUMENT,
     { "18446744073709551615" } },
    { "a huge send", { .kind = COLL_SEND, .send = x, .count = SIZE_MAX / 2, .type = COLL_F32 }, ARGUMENT, { BIG } },
    { "a huge recv", { .kind = COLL_RECV, .recv = y, .count = SIZE_MAX / 2, .type = COLL_F32 }, ARGUMENT, { BIG } },
    { "a sendrecv with huge room", { .kind = COLL_SENDRECV, .send = x, .recv = y, FOUR, .recv_count = SIZE_MAX / 2 }, ARGUMENT,
     { BIG } },
    { "allreduce without send", { .kind = COLL_ALLREDUCE, .recv = y, FOUR }, ARGUMENT, { "send", "NULL", "4" } },
    { "allreduce without recv", { .kind = COLL_ALLREDUCE, .send = x, FOUR }, ARGUMENT, { "recv", "NULL" } },
    { "broadcast without a buffer", { .kind = COLL_BROADCAST, FOUR }, ARGUMENT, { "buffer", "NULL" } },
    { "reduce without send", { .kind = COLL_REDUCE, .recv = y, FOUR }, ARGUMENT, { "send", "NULL" } },
    { "reduce without recv on the root", { .kind = COLL_REDUCE, .send = x, FOUR, .root = CALLER }, ARGUMENT, { "recv", "NULL" } },
    { "reduce_scatter without recv", { .kind = COLL_REDUCE_SCATTER, .send = x, FOUR }, ARGUMENT, { "recv", "NULL" } },
    { "allgather without send", { .kind = COLL_ALLGATHER, .recv = y, FOUR }, ARGUMENT, { "send", "NULL" } },
    { "send without a buffer", { .kind = COLL_SEND, FOUR }, ARGUMENT, { "NULL" } },
    { "recv without a buffer", { .kind = COLL_RECV, FOUR }, ARGUMENT, { "NULL" } },
    { "sendrecv without recv", { .kind = COLL_SENDRECV, .send = x, FOUR, .recv_count = 7 }, ARGUMENT, { "recv", "NULL", "7" } },
    { "COLL_IN_PLACE without recv", { .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, FOUR }, ARGUMENT, { "COLL_IN_PLACE",
            "NULL" } },
    { "COLL_IN_PLACE for recv", { .kind = COLL_ALLREDUCE, .send = x, .recv = COLL_IN_PLACE, FOUR }, ARGUMENT,
     { "COLL_IN_PLACE" } },
    { "COLL_IN_PLACE for both", { .kind = COLL_ALLGATHER, .send = COLL_IN_PLACE, .recv = COLL_IN_PLACE, FOUR }, ARGUMENT,
     { "COLL_IN_PLACE" } },
    { "COLL_IN_PLACE to broadcast", { .kind = COLL_BROADCAST, .recv = COLL_IN_PLACE, FOUR }, ARGUMENT, { "COLL_IN_PLACE" } },
    { "COLL_IN_PLACE to send", { .kind = COLL_SEND, .send = COLL_IN_PLACE, FOUR }, ARGUMENT, { "COLL_IN_PLACE" } },
    { "COLL_IN_PLACE to receive", { .kind = COLL_RECV, .recv = COLL_IN_PLACE, FOUR }, ARGUMENT, { "COLL_IN_PLACE" } },
    { "COLL_IN_PLACE in sendrecv", { .kind = COLL_SENDRECV, .send = COLL_IN_PLACE, .recv = y, FOUR, .recv_count = 4 }, ARGUMENT,
     { "COLL_IN_PLACE" } },
    { "allreduce, overlapping", { .kind = COLL_ALLREDUCE, .send = x, .recv = x + 1, FOUR }, ARGUMENT, { "overlap" } },
    { "allreduce, overlapping below", { .kind = COLL_ALLREDUCE, .send = x + 3, .recv = x, FOUR }, ARGUMENT, { "overlap" } },
    { "reduce, overlapping on the root", { .kind = COLL_REDUCE, .send = x, .recv = x + 1, FOUR, .root = CALLER }, ARGUMENT,
     { "overlap" } },
    { "reduce_scatter, overlapping", { .kind = COLL_REDUCE_SCATTER, .send = x, .recv = x + 1, FOUR }, ARGUMENT, { "overlap" } },
    { "allgather, overlapping", { .kind = COLL_ALLGATHER, .send = x + 1, .recv = x, FOUR }, ARGUMENT, { "overlap" } },
    { "sendrecv, in one buffer", { .kind = COLL_SENDRECV, .send = x, .recv = x, FOUR, .recv_count = 4 }, ARGUMENT,
     { "overlap" } },
    { "an unknown algorithm", { .kind = COLL_ALLREDUCE, .send = x, .recv = y, FOUR, .algorithm = "magic" }, UNSUPPORTED,
      { "magic", "gather", "direct" } },
    { "an unknown algorithm to broadcast", { .kind = COLL_BROADCAST, .recv = y, FOUR, .algorithm = "magic" }, UNSUPPORTED,
      { "magic", "tree", "scatter" } },
    { "another kind's algorithm", { .kind = COLL_ALLREDUCE, .send = x, .recv = y, FOUR, .algorithm = "blocks" }, UNSUPPORTED,
      { "blocks", "gather", "direct" } },
    { "bf16 over f64", { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 4, .type = COLL_BF16, .wire = COLL_F64 },
     UNSUPPORTED,
      { "bf16", "f64" } },
    { "f32 over i8", { .kind = COLL_REDUCE, .send = x, .recv = y, FOUR, .wire = COLL_I8 }, UNSUPPORTED, { "f32", "i8" } },
    { "i32 over f16", { .kind = COLL_REDUCE_SCATTER, .send = x, .recv = y, .count = 4, .type = COLL_I32, .wire = COLL_F16 },
     UNSUPPORTED,
      { "i32", "f16" } },
    { "f16 over f32", { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 4, .type = COLL_F16, .wire = COLL_F32 },
     UNSUPPORTED,
      { "f16", "f32" } },
    { "wire type 99", { .kind = COLL_ALLREDUCE, .send = x, .recv = y, FOUR, .wire = 99 }, ARGUMENT, { "99", "wire" } },
};
enum { WRONG_COUNT = sizeof wrongs / sizeof *wrongs };

static void check_refused(coll_comm *comm, const wrong *w)
{
    const int rank = coll_rank(comm);
    const char *const kind = coll_kind_name(w->call.kind), *who[] = { NULL, NULL, NULL };
    uint64_t sent[2], received[2];
    char me[32], text[8] = "";
    coll_request *r = (coll_request *)(void *)&sent;
    coll_call call = w->call;

    if (call.root == CALLER) call.root = rank;
    call.name = "layer 3";
    snprintf(me, sizeof me, "rank %d of %d", rank, THREE);
    who[0] = me;
    if (*kind != '?') who[1] = kind, who[2] = call.name;
    coll_traffic(comm, &sent[0], &received[0]);
    const coll_status ran = coll_run(comm, &call);
    CHECK(ran == w->status && says(coll_error(comm), w->words, 3), "%s: rank %d: %s: status %d, \"%s\"", case_name, rank,
          w->name, (int)ran, coll_error(comm));
    CHECK(says(coll_error(comm), who, 3), "%s: rank %d: %s: \"%s\" lacks the rank, the kind or the name", case_name, rank,
          w->name, coll_error(comm));
    const coll_status started = coll_start(comm, &call, &r);
    CHECK(started == w->status && r == NULL && says(coll_error(comm), w->words, 3), "%s: rank %d: %s, started: status %d, \"%s\"",
          case_name, rank, w->name, (int)started, coll_error(comm));
    const int explained = coll_explain(comm, &call, text, sizeof text);
    CHECK(explained == (int)w->status, "%s: rank %d: %s, explained: %d", case_name, rank, w->name, explained);
    coll_traffic(comm, &sent[1], &received[1]);
    CHECK(sent[0] == sent[1] && received[0] == received[1], "%s: rank %d: %s: something was sent", case_name, rank, w->name);
}

/* The calls with a signature of their own hand their arguments on as they are. */
static void check_wrappers(coll_comm *comm)
{
    coll_request *r = NULL;

    CHECK(coll_broadcast(comm, x, 4, COLL_F32, 3) == ARGUMENT && coll_ibroadcast(comm, x, 4, COLL_F32, -1, &r) == ARGUMENT &&
          coll_reduce(comm, x, y, 4, COLL_F32, COLL_SUM, 3) == ARGUMENT && coll_ireduce(comm, x, y, 4, 0, COLL_SUM, 0,
                                                                                        &r) == ARGUMENT &&
          coll_allreduce(comm, x, x + 1, 4, COLL_F32, COLL_SUM) == ARGUMENT && coll_iallreduce(comm, x, y, 4, COLL_F32,
                  (coll_op)14, &r) == ARGUMENT &&
          coll_allreduce_mixed(comm, x, y, 4, COLL_F16, COLL_F64, COLL_SUM) == UNSUPPORTED &&
          coll_iallreduce_mixed(comm, x, y, 4, COLL_I8, COLL_F16, COLL_SUM, &r) == UNSUPPORTED &&
          coll_reduce_scatter(comm, NULL, y, 4, COLL_F32, COLL_SUM) == ARGUMENT && coll_ireduce_scatter(comm, x, NULL, 4,
                  COLL_F32, COLL_SUM, &r) == ARGUMENT &&
          coll_allgather(comm, x, NULL, 4, COLL_F32) == ARGUMENT && coll_iallgather(comm, x, y, 4, 99, &r) == ARGUMENT &&
          coll_send(comm, x, 4, COLL_F32, 3, 0) == ARGUMENT && coll_isend(comm, x, 4, COLL_F32, 0, -1, &r) == ARGUMENT &&
          coll_recv(comm, y, 4, COLL_F32, -1, 0) == ARGUMENT && coll_irecv(comm, NULL, 4, COLL_F32, 0, 0, &r) == ARGUMENT &&
          coll_sendrecv(comm, x, 4, 0, x, 4, 0, COLL_F32, 0) == ARGUMENT && coll_isendrecv(comm, x, 4, 0, y, 4, 3, COLL_F32, 0,
                  &r) == ARGUMENT &&
          r == NULL, "%s: a wrapper accepts a wrong argument: %s", case_name, coll_error(comm));
    CHECK(coll_run(comm, NULL) == ARGUMENT && strstr(coll_error(comm), "call"), "%s: coll_run of NULL: %s", case_name,
          coll_error(comm));
    CHECK(coll_start(comm, NULL, &r) == ARGUMENT && strstr(coll_error(comm), "call"), "%s: coll_start of NULL: %s", case_name,
          coll_error(comm));
    CHECK(coll_ibarrier(comm, NULL) == ARGUMENT && strstr(coll_error(comm), "out"), "%s: out is NULL: %s", case_name,
          coll_error(comm));
    CHECK(coll_explain(comm, NULL, NULL, 0) == ARGUMENT, "%s: coll_explain of NULL", case_name);
}

static void arguments_worker(coll_comm **at, void *arg)
{
    coll_comm *comm = *at;
    int32_t in = 1, out = 0;

    (void)arg;
    for (int i = 0; i < WRONG_COUNT; i++) {
        if (coll_rank(comm) == 0) case_step = wrongs[i].name;
        check_refused(comm, &wrongs[i]);
        check_works(comm, wrongs[i].name);
    }
    check_wrappers(comm);
    check_works(comm, "the wrappers");
    for (int root = 0; root < THREE; root++) {
        const bool is_root = coll_rank(comm) == root;
        const coll_status status = coll_reduce(comm, &in, is_root ? &out : NULL, 1, COLL_I32, COLL_SUM, root);
        CHECK(status == COLL_OK && (!is_root || out == THREE), "%s: reduce without recv off the root: %s", case_name,
              coll_error(comm));
    }
    CHECK(coll_allreduce(comm, NULL, NULL, 0, COLL_F32, COLL_SUM) == COLL_OK && coll_broadcast(comm, NULL, 0, COLL_I8,
            0) == COLL_OK &&
          coll_allgather(comm, NULL, NULL, 0, COLL_F64) == COLL_OK && coll_reduce_scatter(comm, NULL, NULL, 0, COLL_U8,
                                                                                          COLL_MAX) == COLL_OK,
          "%s: NULL buffers of no elements: %s", case_name, coll_error(comm));
    check_works(comm, "NULL buffers");
}

static void arguments_case(const void *arg)
{
    (void)arg;
    run_world(THREE, NULL, arguments_worker, NULL);
}

static int never(coll_comm *comm, void *arg) { (void)comm, (void)arg; return 1; }

static void nulls_case(const void *arg)
{
    coll_comm *comms[2] = { NULL, NULL };
    coll_request *r = NULL;
    const coll_call call = { .kind = COLL_BARRIER };
    uint64_t sent = 1, received = 1;

    (void)arg, (void)putenv("COLL_DEBUG=none");
    CHECK(coll_barrier(NULL) == ARGUMENT && strstr(coll_error(NULL), "NULL"), "coll_barrier(NULL): %s", coll_error(NULL));
    CHECK(coll_run(NULL, &call) == ARGUMENT && coll_start(NULL, &call, &r) == ARGUMENT &&
          coll_explain(NULL, &call, NULL, 0) == ARGUMENT && coll_progress(NULL) == ARGUMENT
          && coll_send(NULL, x, 1, COLL_F32, 0, 0) == ARGUMENT, "calls on a NULL communicator");
    CHECK(coll_free(NULL) == COLL_OK && coll_rank(NULL) < 0 && coll_size(NULL) <= 0, "questions to a NULL communicator");
    coll_traffic(NULL, &sent, &received);
    CHECK(sent == 0 && received == 0, "the traffic of a NULL communicator");
    CHECK(coll_init(NULL, NULL) == ARGUMENT && strstr(coll_error(NULL), "NULL"), "coll_init(NULL): %s", coll_error(NULL));
    CHECK(coll_init_threads(2, NULL, NULL) == ARGUMENT && strstr(coll_error(NULL), "NULL"), "coll_init_threads to NULL: %s",
          coll_error(NULL));
    CHECK(coll_init_threads(0, comms, NULL) == ARGUMENT && strstr(coll_error(NULL), "0"), "coll_init_threads(0): %s",
          coll_error(NULL));
    CHECK(coll_init_threads(-3, comms, NULL) == ARGUMENT && strstr(coll_error(NULL), "-3"), "coll_init_threads(-3): %s",
          coll_error(NULL));
    CHECK(coll_init_threads(INT_MAX, comms, NULL) == ARGUMENT, "coll_init_threads(INT_MAX): %s", coll_error(NULL));
    CHECK(coll_spawn(2, NULL, NULL, NULL) == ARGUMENT && strstr(coll_error(NULL), "NULL"), "coll_spawn of NULL: %s",
          coll_error(NULL));
    CHECK(coll_spawn(0, never, NULL, NULL) == ARGUMENT && coll_spawn(-1, never, NULL, NULL) == ARGUMENT,
          "coll_spawn(0): %s", coll_error(NULL));
    CHECK(!strcmp(coll_kind_name((coll_kind)-1), "?") && !strcmp(coll_type_name(-1), "?") &&
          !strcmp(coll_op_name((coll_op)99), "?") && *coll_status_text((coll_status)-99), "names of unknown values");
}

/* ---- >>mismatch: ranks that make different calls ---- */

#define F32(n) .count = n, .type = COLL_F32

typedef struct mismatch {
    const char *name;
    coll_call   usual, odd;                       /* one rank is odd                                          */
    bool        is_swapped;                       /* each goes on with the other's call; else with a barrier  */
    const char *words[3];
} mismatch;

static const mismatch mismatches[] = {
    { "allreduce and barrier", { .kind = COLL_ALLREDUCE, F32(4) }, { .kind = COLL_BARRIER }, false, { "allreduce", "barrier",
            "called" } },
    { "allreduce and allgather", { .kind = COLL_ALLREDUCE, F32(4) }, { .kind = COLL_ALLGATHER, F32(4) }, false, { "allreduce",
            "allgather", "called" } },
    { "broadcast and reduce", { .kind = COLL_BROADCAST, F32(4) }, { .kind = COLL_REDUCE, F32(4) }, false, { "rank", "called" } },
    { "large allreduce and reduce_scatter", { .kind = COLL_ALLREDUCE, F32(COUNT_MOST) }, { .kind = COLL_REDUCE_SCATTER,
                                                                                          F32(COUNT_MOST / 8) }, false,
      { "allreduce", "reduce_scatter", "called" } },
    { "counts 4 and 5", { .kind = COLL_ALLREDUCE, F32(4) }, { .kind = COLL_ALLREDUCE, F32(5) }, false, { "4 x f32", "5 x f32",
            "called" } },
    { "counts 0 and 1", { .kind = COLL_ALLREDUCE, F32(0) }, { .kind = COLL_ALLREDUCE, F32(1) }, false, { "0 x f32", "1 x f32",
            "called" } },
    { "counts 100000 and 100001", { .kind = COLL_ALLREDUCE, F32(100000) }, { .kind = COLL_ALLREDUCE, F32(100001) }, false,
      { "100000 x f32", "100001 x f32", "called" } },
    { "a short and a long one", { .kind = COLL_ALLREDUCE, F32(4) }, { .kind = COLL_ALLREDUCE, F32(COUNT_MOST) }, false,
     { "of 4 x f32", "131072 x f32", "called" } },
    { "types", { .kind = COLL_ALLREDUCE, F32(4) }, { .kind = COLL_ALLREDUCE, .count = 4, .type = COLL_I32 }, false, { "4 x f32",
            "4 x i32", "called" } },
    { "types of allgather", { .kind = COLL_ALLGATHER, F32(2048) }, { .kind = COLL_ALLGATHER, .count = 1024, .type = COLL_F64 },
     false,
      { "2048 x f32", "1024 x f64", "called" } },
    { "ops", { .kind = COLL_REDUCE_SCATTER, F32(4) }, { .kind = COLL_REDUCE_SCATTER, F32(4), .op = COLL_MAX }, false, { "sum",
            "max", "called" } },
    { "broadcast roots", { .kind = COLL_BROADCAST, F32(4) }, { .kind = COLL_BROADCAST, F32(4), .root = 1 }, false,
     { "broadcast", "root", "called" } },
    { "long broadcast roots", { .kind = COLL_BROADCAST, F32(COUNT_MOST) }, { .kind = COLL_BROADCAST, F32(COUNT_MOST),
                                                                            .root = 1 }, false,
      { "broadcast", "root", "called" } },
    { "reduce roots", { .kind = COLL_REDUCE, F32(4) }, { .kind = COLL_REDUCE, F32(4), .root = 1 }, false, { "reduce", "root",
            "called" } },
    { "wires", { .kind = COLL_ALLREDUCE, F32(4) }, { .kind = COLL_ALLREDUCE, F32(4), .wire = COLL_BF16 }, false, { "allreduce",
            "over bf16", "called" } },
    { "order", { .kind = COLL_ALLREDUCE, F32(4) }, { .kind = COLL_BARRIER }, true, { "allreduce", "barrier", "called" } },
};
enum { MISMATCH_COUNT = sizeof mismatches / sizeof *mismatches };

typedef struct mismatch_run { const mismatch *row; int size, odd; } mismatch_run;

/* This call on fresh buffers, and the status it ends with. */
static coll_status call_on(coll_comm *comm, coll_call call)
{
    const size_t room = (size_t)COUNT_MOST * sizeof(double), size = (size_t)coll_size(comm);
    const bool is_wide = call.kind == COLL_ALLGATHER || call.kind == COLL_REDUCE_SCATTER;
    float *send = support_need(calloc(1, is_wide ? call.count * 8 * size + 1 : room));
    float *recv = support_need(calloc(1, is_wide ? call.count * 8 * size + 1 : room));

    call.send = call.kind == COLL_BROADCAST ? NULL : send;
    call.recv = recv;
    const coll_status status = coll_run(comm, &call);
    free(send);
    free(recv);
    return status;
}

static void mismatch_worker(coll_comm **at, void *arg)
{
    const mismatch_run *run = arg;
    const mismatch *row = run->row;
    const coll_call barrier = { .kind = COLL_BARRIER };
    coll_comm *comm = *at;
    const bool is_odd = coll_rank(comm) == run->odd;
    const int64_t began = now_ms();
    const coll_call next = !row->is_swapped ? barrier : is_odd ? row->usual : row->odd;
    const coll_status first = call_on(comm, is_odd ? row->odd : row->usual);
    coll_status second = first ? first : call_on(comm, next);
    /* a third rank may have had all it needed for two calls before the disagreement was detected */
    for (int i = 0; i < 2 && second == COLL_OK; i++) second = coll_barrier(comm);

    CHECK(second == COLL_ERR_MISMATCH && says(coll_error(comm), row->words, 3), "%s: rank %d has %d, %d: \"%s\"",
          case_name, coll_rank(comm), (int)first, (int)second, coll_error(comm));
    CHECK(now_ms() - began < support_scaled(MISMATCH_MS), "%s: rank %d got the error after %d ms", case_name, coll_rank(comm),
          (int)(now_ms() - began));
    if (second) check_ended(comm, second, row->name);
    timed_free(at, row->name);
}

static void mismatch_case(const void *arg)
{
    mismatch_run run = *(const mismatch_run *)arg;
    run_world(run.size, NULL, mismatch_worker, &run);
}

typedef struct message {
    const char *name;
    size_t      count, room;
    coll_type   sent, received;
    bool        is_late, is_request;              /* the receive is posted when the message is there; coll_irecv */
    const char *words[3];
} message;

static const message messages[] = {
    { "another type", 4, 4, COLL_F32, COLL_I32, false, false, { "4 x i32", "4 x f32", "tag 7" } },
    { "another type, waiting", 4, 4, COLL_F32, COLL_I32, true, false, { "4 x i32", "4 x f32", "tag 7" } },
    { "another type, requested", 4, 4, COLL_F32, COLL_I32, false, true, { "4 x i32", "4 x f32", "tag 7" } },
    { "another type, waiting, requested", 4, 4, COLL_F32, COLL_I32, true, true, { "4 x i32", "4 x f32", "tag 7" } },
    { "another type of a long one", COUNT_MOST, COUNT_MOST, COLL_F32, COLL_I32, false, false, { "x i32", "x f32", "tag 7" } },
    { "too little room", 5, 4, COLL_F32, COLL_F32, false, false, { "4 x f32", "5 x f32", "tag 7" } },
    { "too little room, waiting", 5, 0, COLL_F32, COLL_F32, true, false, { "0 x f32", "5 x f32", "tag 7" } },
    { "too little room for a long one", COUNT_MOST, COUNT_MOST - 1, COLL_F32, COLL_F32, false, false, { "131071 x f32",
            "131072 x f32", "tag 7" } },
    { "too little room for a long one, waiting", COUNT_MOST, 1, COLL_F32, COLL_F32, true, false, { "1 x f32", "131072 x f32",
            "tag 7" } },
};
enum { MESSAGE_COUNT = sizeof messages / sizeof *messages };

/* Rank 0 sends, the last rank receives, those between wait at a barrier. */
static void message_worker(coll_comm **at, void *arg)
{
    const message *l = arg;
    coll_comm *comm = *at;
    const int rank = coll_rank(comm), last = coll_size(comm) - 1;
    const int64_t began = now_ms();
    float *buffer = support_need(calloc(COUNT_MOST, sizeof *buffer)), token = 0;
    coll_request *sending = NULL, *receiving = NULL;
    coll_status first = COLL_OK, second;

    if (rank == 0) {
        first = coll_isend(comm, buffer, l->count, l->sent, last, 7, &sending);
        if (l->is_late) (void)coll_send(comm, &token, 1, COLL_F32, last, 8);
        first = first ? first : coll_wait(sending);
    } else if (rank == last) {
        if (l->is_late) (void)coll_recv(comm, &token, 1, COLL_F32, 0, 8);
        if (l->is_request) first = coll_irecv(comm, buffer, l->room, l->received, 0, 7, &receiving);
        else first = coll_recv(comm, buffer, l->room, l->received, 0, 7);
        if (receiving) first = coll_wait(receiving);
        CHECK(first == COLL_ERR_MISMATCH, "%s of %d: %s: recv gives %d: %s", case_name, last + 1, l->name, (int)first,
              coll_error(comm));
    }
    second = first ? first : coll_barrier(comm);
    CHECK(second == COLL_ERR_MISMATCH && says(coll_error(comm), l->words, 3), "%s of %d: %s: rank %d has %d, %d: \"%s\"",
          case_name,
          last + 1, l->name, rank, (int)first, (int)second, coll_error(comm));
    CHECK(now_ms() - began < support_scaled(MISMATCH_MS), "%s of %d: %s: rank %d failed after %d ms", case_name, last + 1,
          l->name, rank, (int)(now_ms() - began));
    if (second) check_ended(comm, second, l->name);
    coll_request_free(sending);
    coll_request_free(receiving);
    timed_free(at, l->name);
    free(buffer);
}

static void message_case(const void *arg)
{
    for (int i = 0; i < MESSAGE_COUNT; i++) {
        message l = messages[i];
        case_step = l.name;
        run_world(*(const int *)arg, NULL, message_worker, &l);
    }
}

/* ---- >>leaving: a rank frees its communicator, and the others still wait for it, or do not ---- */

typedef enum wait_for { BY_COLLECTIVE, BY_RECV, BY_SEND, BY_CHAIN } wait_for;

typedef struct departure {
    const char *name;
    wait_for    how;
    coll_kind   kind;
    size_t      count;
    const char *algorithm;
    int         leaving;
    event       waiting;                          /* raised by each rank that has begun to wait               */
} departure;

static const departure departures[] = {
    { .name = "a barrier", .kind = COLL_BARRIER },
    { .name = "a barrier up a tree", .kind = COLL_BARRIER, .algorithm = "tree" },
    { .name = "a short allreduce", .kind = COLL_ALLREDUCE, .count = 4 },
    { .name = "a long allreduce", .kind = COLL_ALLREDUCE, .count = COUNT_MOST },
    { .name = "a long allreduce by rounds", .kind = COLL_ALLREDUCE, .count = COUNT_MOST, .algorithm = "direct" },
    { .name = "an allgather", .kind = COLL_ALLGATHER, .count = 4 },
    { .name = "a recv", .how = BY_RECV, .count = 4 },
    { .name = "a long send", .how = BY_SEND, .count = COUNT_MOST },
    { .name = "a chain of recv", .how = BY_CHAIN, .count = 4 },
};
enum { DEPARTURE_COUNT = sizeof departures / sizeof *departures };

/* A chain begins at the first rank, or at the last one: each rank sends to the next, so that there are connections. */
static void join_chain(coll_comm *comm, int step)
{
    const int size = coll_size(comm), before = coll_rank(comm) - step, behind = coll_rank(comm) + step;
    int32_t token = 1;
    coll_status status = COLL_OK;

    if (before >= 0 && before < size) status = coll_recv(comm, &token, 1, COLL_I32, before, 2);
    if (status == COLL_OK && behind >= 0 && behind < size) status = coll_send(comm, &token, 1, COLL_I32, behind, 2);
    CHECK(status == COLL_OK, "%s: the chain: rank %d has %d: %s", case_name, coll_rank(comm), (int)status, coll_error(comm));
}

static void departure_worker(coll_comm **at, void *arg)
{
    departure *d = arg;
    coll_comm *comm = *at;
    const int size = coll_size(comm), rank = coll_rank(comm);
    const size_t count = d->kind == COLL_ALLGATHER ? d->count * (size_t)size : d->count;
    float *send = support_need(calloc(count + 1, sizeof *send)), *recv = support_need(calloc(count + 1, sizeof *recv));
    coll_call call = { .kind = d->kind, .send = send, .recv = recv, .count = d->count, .type = COLL_F32, .root = d->leaving,
                      .algorithm = d->algorithm };
    coll_request *r = NULL;

    const int step = d->leaving == 0 ? 1 : -1;    /* of a chain, from it on                                   */

    if (d->how == BY_RECV || d->how == BY_CHAIN) call.kind = COLL_RECV;
    if (d->how == BY_SEND) call.kind = COLL_SEND;
    if (call.kind >= COLL_SEND) call.root = 0, call.peer = d->leaving;
    if (d->how == BY_CHAIN) call.peer = rank - step;
    if (d->how == BY_CHAIN) join_chain(comm, step);
    check_works(comm, "the start");
    if (rank == d->leaving) {
        event_await(&d->waiting, size - 1);
        timed_free(at, "its work");
    } else {
        const coll_status started = coll_start(comm, &call, &r);
        event_raise(&d->waiting);
        const int64_t began = now_ms();
        const coll_status status = started ? started : coll_wait(r);
        CHECK(status == COLL_ERR_PEER && names_rank(coll_error(comm), d->leaving),
              "%s of %d: %s, rank %d leaves: rank %d has %d: \"%s\"",
              case_name, size, d->name, d->leaving, rank, (int)status, coll_error(comm));
        CHECK(now_ms() - began < support_scaled(MISMATCH_MS), "%s of %d: %s, rank %d leaves: rank %d got the error after %d ms",
              case_name, size, d->name, d->leaving,
              rank, (int)(now_ms() - began));
        if (status) check_ended(comm, status, d->name);
        timed_free(at, d->name);
        coll_request_free(r);
    }
    free(send);
    free(recv);
}

/* A normal end: the rank that leaves has completed its calls, the others exchange messages in a ring without it. */
static void ring_worker(coll_comm **at, void *arg)
{
    const int leaving = *(const int *)arg, size = coll_size(*at), rank = coll_rank(*at);
    float *out = support_need(calloc(COUNT_MOST, sizeof *out)), *in = support_need(calloc(COUNT_MOST, sizeof *in));
    coll_status status = COLL_OK;
    coll_comm *comm = *at;

    check_works(comm, "the start");
    if (rank == leaving) {
        timed_free(at, "its work");
    } else {
        int next = (rank + 1) % size, last = (rank + size - 1) % size;
        if (next == leaving) next = (next + 1) % size;
        if (last == leaving) last = (last + size - 1) % size;
        for (int i = 0; i < 60 && status == COLL_OK; i++) {
            const size_t count = i % 10 == 9 ? COUNT_MOST : 5;
            out[count - 1] = (float)(1000 * rank + i);
            status = coll_sendrecv(comm, out, count, next, in, count, last, COLL_F32, i);
            CHECK(status == COLL_OK && (int)in[count - 1] == 1000 * last + i,
                  "%s of %d: rank %d has left, and exchange %d of rank %d has %d: %s",
                  case_name, size, leaving, i, rank, (int)status, coll_error(comm));
        }
        timed_free(at, "the ring");
    }
    free(out);
    free(in);
}

static void leaving_case(const void *arg)
{
    const int size = *(const int *)arg;

    for (int i = 0; i < DEPARTURE_COUNT; i++)
        for (int leaving = 0; leaving < size; leaving += size - 1) {
            departure d = departures[i];
            d.leaving = leaving;
            d.waiting = (event)EVENT_INIT;
            case_step = d.name;
            run_world(size, NULL, departure_worker, &d);
        }
    for (int leaving = 0; leaving < size && size > 2; leaving++) {
        case_step = "in good order";
        run_world(size, NULL, ring_worker, &leaving);
    }
}

/* Rank 0, which reports leaving ranks, has left; then the last rank leaves, and those between still wait for it. */
static void after_zero_worker(coll_comm **at, void *arg)
{
    departure *d = arg;
    coll_comm *comm = *at;
    const int rank = coll_rank(comm), last = coll_size(comm) - 1;
    int32_t token = 5;
    coll_request *r = NULL;

    for (int i = 1; i < last; i++) {              /* there are connections for messages                       */
        if (rank == i) (void)coll_send(comm, &token, 1, COLL_I32, last, 1);
        if (rank == last) (void)coll_recv(comm, &token, 1, COLL_I32, i, 1);
    }
    check_works(comm, "the start");
    if (rank == 0) {
        event_await(&d->waiting, last - 1);
        timed_free(at, "its work");
        for (int i = 0; i < last; i++) event_raise(&d->waiting);
        return;
    }
    if (rank == last) {
        event_await(&d->waiting, 2 * last - 1);
        timed_free(at, "its work, behind rank 0");
        return;
    }
    coll_status status = coll_irecv(comm, &token, 1, COLL_I32, last, 2, &r);
    event_raise(&d->waiting);
    if (status == COLL_OK) status = coll_wait(r);
    CHECK(status == COLL_ERR_PEER && names_rank(coll_error(comm), last), "%s: rank %d has %d: \"%s\"", case_name, rank,
          (int)status, coll_error(comm));
    coll_request_free(r);
    timed_free(at, "the last has left");
}

static void after_zero_case(const void *arg)
{
    departure d = { .waiting = EVENT_INIT };
    run_world(*(const int *)arg, NULL, after_zero_worker, &d);
}

/* ---- >>deadlines: a rank that is alive but late ---- */

enum { LIMIT_MS = 500 };

typedef struct deadline {
    const char *name;
    coll_kind   kind;
    size_t      count;
    const char *algorithm;
    bool        is_request, is_configured;        /* waited for; by stall_timeout_ms instead of timeout_ms    */
    enum { WAITED, TESTED, TESTED_AMONG_OTHERS } by;              /* a request                               */
    int         late;
    int64_t     first;                            /* atomic: when the first rank called                       */
    event       over;                             /* raised by each rank that has timed out                   */
} deadline;

/* A configured one holds for the first calls, too. */
static int limit_of(const deadline *d) { return d->is_configured ? 2 * LIMIT_MS : LIMIT_MS; }

static const deadline deadlines[] = {
    { .name = "barrier", .kind = COLL_BARRIER },
    { .name = "barrier, configured", .kind = COLL_BARRIER, .is_configured = true },
    { .name = "allreduce", .kind = COLL_ALLREDUCE, .count = 4 },
    { .name = "long allreduce", .kind = COLL_ALLREDUCE, .count = COUNT_MOST },
    { .name = "long allreduce by rounds", .kind = COLL_ALLREDUCE, .count = COUNT_MOST, .algorithm = "direct" },
    { .name = "long allreduce, a request, configured", .kind = COLL_ALLREDUCE, .count = COUNT_MOST, .is_request = true,
     .is_configured = true },
    { .name = "allreduce, tested", .kind = COLL_ALLREDUCE, .count = 4, .is_request = true, .by = TESTED },
    { .name = "recv, tested, configured", .kind = COLL_RECV, .count = 4, .is_request = true, .is_configured = true,
     .by = TESTED },
    { .name = "allgather, tested among others", .kind = COLL_ALLGATHER, .count = 4, .is_request = true,
     .by = TESTED_AMONG_OTHERS },
    { .name = "recv, tested among others", .kind = COLL_RECV, .count = 4, .is_request = true, .by = TESTED_AMONG_OTHERS },
    { .name = "allgather, a request", .kind = COLL_ALLGATHER, .count = 4, .is_request = true },
    { .name = "broadcast", .kind = COLL_BROADCAST, .count = 4 },
    { .name = "recv", .kind = COLL_RECV, .count = 4 },
    { .name = "recv, a request, configured", .kind = COLL_RECV, .count = 4, .is_request = true, .is_configured = true },
};
enum { DEADLINE_COUNT = sizeof deadlines / sizeof *deadlines };

/* How a request ends; it is also tested, and must end long before the suite's time limit. */
static coll_status deadline_end(const deadline *d, coll_request *r)
{
    const int64_t began = now_ms();
    coll_status status = COLL_PENDING;
    int index;

    if (d->by == WAITED) return coll_wait(r);
    while (status == COLL_PENDING && now_ms() - began < support_scaled(4 * limit_of(d))) {
        status = d->by == TESTED ? coll_test(r) : coll_test_any(1, &r, &index);
        sched_yield();
    }
    return status;
}

static void deadline_worker(coll_comm **at, void *arg)
{
    deadline *d = arg;
    coll_comm *comm = *at;
    const int size = coll_size(comm), rank = coll_rank(comm);
    float *send = support_need(calloc(COUNT_MOST, sizeof *send)), *recv = support_need(calloc(COUNT_MOST, sizeof *recv));
    coll_call call = { .kind = d->kind, .send = send, .recv = recv, .count = d->count, .type = COLL_F32, .root = d->late,
                       .algorithm = d->algorithm, .name = "layer 9", .timeout_ms = d->is_configured ? 0 : LIMIT_MS };
    const char *const words[] = { coll_kind_name(d->kind), call.name };
    coll_request *r = NULL;
    coll_status status;

    check_works(comm, "the start");
    check_lists_work(comm, "the start");
    if (d->kind == COLL_RECV) call.root = 0, call.peer = d->late;
    if (rank == d->late) event_await(&d->over, size - 1);
    if (rank == d->late && d->kind == COLL_RECV) call = (coll_call){ .kind = COLL_BARRIER };
    const int64_t began = now_ms();
    int64_t none = 0;
    if (rank != d->late) (void)__atomic_compare_exchange_n(&d->first, &none, began, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (d->is_request) status = coll_start(comm, &call, &r) ? COLL_ERR_ABORTED : deadline_end(d, r);
    else status = coll_run(comm, &call);
    /* all messages from the late rank's peers may have arrived: that one call then succeeds, but none after it */
    if (rank == d->late && status == COLL_OK) status = coll_barrier(comm);
    const int ms = (int)(now_ms() - began), after = (int)(began + ms - __atomic_load_n(&d->first, __ATOMIC_SEQ_CST));
    if (rank != d->late) event_raise(&d->over);
    CHECK(status == COLL_ERR_TIMEOUT && names_rank(coll_error(comm), d->late),
          "%s of %d: %s, rank %d is late: rank %d has %d after %d ms: \"%s\"",
          case_name, size, d->name, d->late, rank, (int)status, ms, coll_error(comm));
    if (rank != d->late) CHECK(after >= limit_of(d) * 3 / 4 && ms <= support_scaled(2 * limit_of(d)),
                               "%s of %d: %s, rank %d is late: rank %d failed after %d ms", case_name, size,
                               d->name, d->late, rank, ms);
    else CHECK(ms <= support_scaled(AT_ONCE_MS), "%s of %d: %s: the late rank %d failed after %d ms", case_name, size, d->name,
               rank, ms);
    if (rank != d->late) CHECK(says(coll_error(comm), words, 2), "%s of %d: %s: rank %d: \"%s\" lacks the call or its name",
                               case_name, size, d->name,
                               rank, coll_error(comm));
    if (status) check_ended(comm, status, d->name);
    timed_free(at, d->name);
    coll_request_free(r);
    free(send);
    free(recv);
}

static void deadlines_case(const void *arg)
{
    const int size = *(const int *)arg;

    for (int i = 0; i < DEADLINE_COUNT; i++)
        for (int late = 0; late < size; late += size - 1) {
            const coll_config config = { .stall_timeout_ms = deadlines[i].is_configured ? limit_of(&deadlines[i]) : 0 };
            deadline d = deadlines[i];
            d.late = late;
            d.over = (event)EVENT_INIT;
            case_step = d.name;
            if (size == 2 || i % 2 == 0) run_world(size, &config, deadline_worker, &d);       /* a fifth of a second each */
        }
}

/* ---- >>requests ---- */

static event has_started = EVENT_INIT, has_left = EVENT_INIT;

/* Rank 0 frees its communicator with four requests pending. */
static void abandoned_worker(coll_comm **at, void *arg)
{
    coll_comm *comm = *at;
    float a[4] = { 0 }, b[4] = { 0 }, c[4 * RANKS_MOST] = { 0 }, d[4] = { 0 };
    coll_request *r[4] = { NULL, NULL, NULL, NULL };
    coll_status status = COLL_OK;

    (void)arg;
    check_works(comm, "the start");
    event_raise(&has_started);                    /* no rank may be inside the call when rank 0 leaves        */
    if (coll_rank(comm) == 0) {
        event_await(&has_started, coll_size(comm));
        CHECK(coll_iallreduce(comm, a, b, 4, COLL_F32, COLL_SUM, &r[0]) == COLL_OK && coll_iallgather(comm, a, c, 4, COLL_F32,
                &r[1]) == COLL_OK &&
              coll_irecv(comm, d, 4, COLL_F32, 1, 5, &r[2]) == COLL_OK && coll_ibarrier(comm, &r[3]) == COLL_OK, "%s: %s",
                  case_name, coll_error(comm));
        timed_free(at, "four starts");
        for (int i = 0; i < 4; i++)
            CHECK(coll_test(r[i]) == COLL_ERR_ABORTED && coll_wait(r[i]) == COLL_ERR_ABORTED,
                  "%s: request %d has %d after coll_free", case_name, i,
                  (int)coll_test(r[i]));
        CHECK(coll_wait_all(4, r) == COLL_ERR_ABORTED && coll_received(r[2], NULL, NULL, NULL) == ARGUMENT, "%s: all requests",
              case_name);
        for (int i = 0; i < 4; i++) coll_request_free(r[i]);
        event_raise(&has_left);
        return;
    }
    event_await(&has_left, 1);
    /* the messages of rank 0 may suffice for the requests that it has started, but no more come */
    for (int i = 0; i < 4 && status == COLL_OK; i++)
        status = i == 0 ? coll_allreduce(comm, a, b, 4, COLL_F32, COLL_SUM) : i == 1 ? coll_allgather(comm, a, c, 4, COLL_F32)
            : coll_barrier(comm);
    CHECK(status == COLL_ERR_PEER && names_rank(coll_error(comm), 0), "%s of %d: rank %d has %d: \"%s\"", case_name,
          coll_size(comm), coll_rank(comm),
          (int)status, coll_error(comm));
    if (status) check_ended(comm, status, "rank 0 has left");
}

static void received_worker(coll_comm **at, void *arg)
{
    coll_comm *comm = *at;
    const int peer = 1 - coll_rank(comm);
    float a[4] = { 1, 2, 3, 4 }, b[8] = { 0 };
    coll_request *r[3] = { NULL, NULL, NULL };
    int source = -9, tag = -9, index = 9;
    size_t count = 99;

    (void)arg;
    CHECK(coll_irecv(comm, b, 8, COLL_F32, peer, 3, &r[0]) == COLL_OK && coll_received(r[0], &source, &tag, &count) == ARGUMENT
          && source == -9 && tag == -9 &&
          count == 99 && *coll_error(NULL), "%s: coll_received of an unfinished receive: %s", case_name, coll_error(NULL));
    check_works(comm, "two receives");            /* no message is sent before both have tested               */
    CHECK(coll_isend(comm, a, 4, COLL_F32, peer, 3, &r[1]) == COLL_OK && coll_ibarrier(comm, &r[2]) == COLL_OK
          && coll_wait_all(3, r) == COLL_OK,
          "%s: an exchange: %s", case_name, coll_error(comm));
    CHECK(coll_received(r[0], &source, &tag, &count) == COLL_OK && source == peer && tag == 3 && count == 4,
          "%s: received from %d, tag %d, %zu", case_name,
          source, tag, count);
    CHECK(coll_received(r[0], NULL, NULL, NULL) == COLL_OK, "%s: coll_received without an interest", case_name);
    CHECK(coll_received(r[1], &source, &tag, &count) == ARGUMENT && coll_received(r[2], &source, &tag, &count) == ARGUMENT,
          "%s: coll_received of no receive",
          case_name);
    CHECK(coll_wait_any(3, r, &index) == COLL_OK && index == -1, "%s: coll_wait_any of finished ones gives %d", case_name, index);
    for (int i = 0; i < 3; i++) coll_request_free(r[i]);
}

static void no_requests_case(const void *arg)
{
    coll_request *none[2] = { NULL, NULL };
    int index = 9;

    (void)arg;
    CHECK(coll_test(NULL) == COLL_OK && coll_wait(NULL) == COLL_OK && coll_wait_all(2, none) == COLL_OK && coll_wait_all(0,
            NULL) == COLL_OK, "NULL requests");
    CHECK(coll_wait_any(2, none, &index) == COLL_OK && index == -1, "coll_wait_any of NULLs gives %d", index);
    index = 9;
    CHECK(coll_wait_any(0, NULL, &index) == COLL_OK && index == -1, "coll_wait_any of nothing gives %d", index);
    CHECK(coll_wait_any(-1, none, &index) == ARGUMENT && coll_wait_any(2, NULL, &index) == ARGUMENT && coll_wait_any(2, none,
            NULL) == ARGUMENT &&
          coll_wait_all(-1, none) == ARGUMENT && coll_wait_all(1, NULL) == ARGUMENT, "requests that make no sense");
    CHECK(coll_received(NULL, NULL, NULL, NULL) == ARGUMENT, "coll_received of NULL");
    coll_request_free(NULL);
}

static event is_inside = EVENT_INIT;

static void blocked_worker(coll_comm **at, void *arg)
{
    coll_comm *comm = *at;
    int32_t token = 11;
    coll_status status = COLL_OK;

    (void)arg;
    if (coll_rank(comm) == 1) {
        event_await(&is_inside, 1);
        status = coll_send(comm, &token, 1, COLL_I32, 0, 1);
    } else {
        token = 0;                                /* the other thread may be inside the library now           */
        while ((status = coll_recv(comm, &token, 1, COLL_I32, 1, 1)) == ARGUMENT) sched_yield();
        event_await(&is_inside, 1);               /* the other thread has returned, before this one frees     */
    }
    CHECK(status == COLL_OK && token == 11, "%s: rank %d has %d: %s", case_name, coll_rank(comm), (int)status, coll_error(comm));
    check_works(comm, "a second thread");
}

static void two_threads_case(const void *arg)
{
    member members[2];
    int32_t n = 1;
    coll_request *r = NULL;

    (void)arg;
    if (!open_world(2, NULL, members)) return;
    coll_comm *comm = members[0].comm;
    for (int i = 0; i < 2; i++) {
        members[i].worker = blocked_worker;
        CHECK(pthread_create(&members[i].thread, NULL, member_work, &members[i]) == 0, "%s: no thread", case_name);
    }
    case_step = "waiting for a thread to be inside";
    while (coll_progress(comm) != ARGUMENT) sched_yield();        /* from here on it is in its recv           */
    case_step = "a thread is inside";
    CHECK(coll_barrier(comm) == ARGUMENT && strstr(coll_error(NULL), "thread") && strstr(coll_error(NULL), "rank 0"),
          "%s: \"%s\"", case_name, coll_error(NULL));
    CHECK(coll_allreduce(comm, &n, &n, 1, COLL_I32, COLL_SUM) == ARGUMENT && coll_send(comm, &n, 1, COLL_I32, 1, 1) == ARGUMENT &&
          coll_ibarrier(comm, &r) == ARGUMENT && r == NULL && coll_progress(comm) == ARGUMENT, "%s: a second thread gets in",
              case_name);
    event_raise(&is_inside);
    for (int i = 0; i < 2; i++) pthread_join(members[i].thread, NULL);
}

static void after_fork_worker(coll_comm **at, void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) check_works(*at, "a fork");
}

/* In the child: what is wrong, as bits. */
static int forked_child(coll_comm *comm, coll_request *pending)
{
    int32_t n = 1;
    char text[8];
    const coll_call call = { .kind = COLL_BARRIER };
    coll_request *r = NULL;
    int wrong_bits = 0;

    if (coll_barrier(comm) != COLL_ERR_FORKED || coll_allreduce(comm, &n, &n, 1, COLL_I32,
                                                                COLL_SUM) != COLL_ERR_FORKED) wrong_bits |= 1;
    if (!strstr(coll_error(comm), "fork")) wrong_bits |= 2;
    if (coll_ibarrier(comm, &r) != COLL_ERR_FORKED || r || coll_progress(comm) != COLL_ERR_FORKED) wrong_bits |= 4;
    if (coll_test(pending) != COLL_ERR_FORKED || coll_wait(pending) != COLL_ERR_FORKED) wrong_bits |= 8;
    if (coll_explain(comm, &call, text, sizeof text) != (int)COLL_ERR_FORKED) wrong_bits |= 16;
    if (coll_free(comm) != COLL_OK) wrong_bits |= 32;
    return wrong_bits;
}

static void fork_case(const void *arg)
{
    member members[2];
    coll_request *pending = NULL, *other = NULL;
    int status = -1;

    (void)arg;
    if (!open_world(2, NULL, members)) return;
    coll_comm *comm = members[0].comm;
    CHECK(coll_ibarrier(comm, &pending) == COLL_OK && coll_test(pending) == COLL_PENDING, "%s: a barrier to come: %s",
          case_name, coll_error(comm));
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(forked_child(comm, pending));
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "%s: the child has found %#x", case_name,
          (unsigned)status);
    CHECK(coll_test(pending) == COLL_PENDING, "%s: the parent's request has %d", case_name, (int)coll_test(pending));
    CHECK(coll_ibarrier(members[1].comm, &other) == COLL_OK, "%s: rank 1: %s", case_name, coll_error(members[1].comm));
    case_step = "the barrier behind the fork";
    for (bool is_over = false; !is_over; sched_yield()) {         /* both must make progress                  */
        const bool is_over_here = coll_test(pending) != COLL_PENDING, is_over_there = coll_test(other) != COLL_PENDING;
        is_over = is_over_here && is_over_there;
    }
    CHECK(coll_test(pending) == COLL_OK && coll_test(other) == COLL_OK, "%s: the barrier: %s", case_name, coll_error(comm));
    coll_request_free(pending);
    coll_request_free(other);
    work_and_close(2, members, after_fork_worker, NULL);
}

static void abandoned_case(const void *arg) { run_world(*(const int *)arg, NULL, abandoned_worker, NULL); }
static void received_case(const void *arg) { (void)arg; run_world(2, NULL, received_worker, NULL); }

/* ---- >>all of it ---- */

static void run_here(const char *parts)
{
    static const int sizes[] = { 2, 3, RANKS_MOST };
    const int two = 2;
    char name[100];

    if (support_listed(parts, "arguments")) run_case(arguments_case, NULL, "arguments");
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2 * MISMATCH_COUNT && support_listed(parts, "mismatch"); k++) {
            const mismatch_run run = { &mismatches[k / 2], sizes[i], k % 2 ? sizes[i] - 1 : 0 };
            snprintf(name, sizeof name, "mismatch of %d: %s, rank %d is odd", run.size, run.row->name, run.odd);
            run_case_within(MISMATCH_SECONDS, mismatch_case, &run, name);
        }
        snprintf(name, sizeof name, "messages that do not fit, of %d", sizes[i]);
        if (support_listed(parts, "mismatch")) run_case(message_case, &sizes[i], name);
        snprintf(name, sizeof name, "leaving of %d", sizes[i]);
        if (support_listed(parts, "leaving")) run_case(leaving_case, &sizes[i], name);
        snprintf(name, sizeof name, "leaving after rank 0, of %d", sizes[i]);
        if (support_listed(parts, "leaving") && sizes[i] > 2) run_case_within(MISMATCH_SECONDS, after_zero_case, &sizes[i], name);
        snprintf(name, sizeof name, "deadlines of %d", sizes[i]);
        if (support_listed(parts, "deadlines") && sizes[i] < RANKS_MOST) run_case(deadlines_case, &sizes[i], name);
        snprintf(name, sizeof name, "abandoned requests of %d", sizes[i]);
        if (support_listed(parts, "requests")) run_case(abandoned_case, &sizes[i], name);
    }
    if (!support_listed(parts, "requests")) return;
    run_case(received_case, &two, "received");
    run_case(two_threads_case, NULL, "two threads");
    run_case(fork_case, NULL, "a fork");
}

int main(int argc, char **argv)
{
    static const char *const worlds[] = { "threads", "tcp-poll", "tcp-uring", "tcp-domain", "hybrid" };
    const char *list = argc > 1 ? argv[1] : NULL, *parts = argc > 2 ? argv[2] : NULL;

    cases_begin();
    if (support_listed(parts, "arguments")) run_case(nulls_case, NULL, "NULLs");
    if (support_listed(parts, "requests")) run_case(no_requests_case, NULL, "no requests");
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        if (!support_listed(list, worlds[i])) continue;
        const char *refusal = support_refusal(worlds[i]);
        if (refusal) printf("%s: skipped: %s\n", worlds[i], refusal);
        world = worlds[i];
        if (!refusal) run_here(parts);
    }
    return CHECK_DONE();
}
