/* test_misuse.c - wrong calls: each gets the documented status on every rank, soon, with a sentence that names what is wrong, and
 * leaves the communicator as the contract says: working after COLL_ERR_ARGUMENT and COLL_ERR_UNSUPPORTED, ended otherwise.
 *
 *     test_misuse [WORLD,...] [PART,...] [show]          PART: local, mismatch, requests, groups, threads, ends
 *                                                        show: print all sentences
 *
 * Every case runs in a process of its own with a time limit, so a hang or a crash is one failure with a name.
 */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/model.h"
#include "../support/model_calls.h"
#include "../support/cases.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>

enum { RANKS_MOST = 5, THREE = 3, CALLER = 1000, NEXT = 1001, CASE_SECONDS = 20, SOON_MS = 3000, AT_ONCE_MS = 500 };

static bool shows;

static void run_case(void (*body)(const void *arg), const void *arg, const char *name)
{
    run_case_within(CASE_SECONDS, body, arg, name);
}

static void show(const char *sentence, const char *what)
{
    if (shows) printf("%-52s %s\n", what, sentence);
}

/* ---- >>afterwards ---- */

/* All ranks call this: does the communicator work? */
static void check_works(coll_comm *comm, const char *after)
{
    const int size = coll_size(comm);
    int32_t x = coll_rank(comm) + 1;
    const coll_status status = coll_allreduce(comm, &x, &x, 1, COLL_I32, COLL_SUM);

    CHECK(status == COLL_OK && x == size * (size + 1) / 2, "%s: rank %d, after %s: allreduce gives %d, status %d: %s", case_name,
          coll_rank(comm), after, x, (int)status, coll_error(comm));
}

/* The communicator has ended with `status`: every later call returns it at once, with the same sentence. */
static void check_ended(coll_comm *comm, coll_status status, const char *after)
{
    const int64_t began = now_ms();
    char before[512];
    int32_t x = 1;
    coll_request *r = NULL;
    coll_comm *other = NULL;

    snprintf(before, sizeof before, "%s", coll_error(comm));
    const bool is_ended = coll_barrier(comm) == status && coll_allreduce(comm, &x, &x, 1, COLL_I32, COLL_SUM) == status &&
                          coll_send(comm, &x, 1, COLL_I32, 0, 0) == status && coll_recv(comm, &x, 1, COLL_I32, 0, 0) == status &&
                          coll_ibarrier(comm, &r) == status && r == NULL && coll_progress(comm) == status &&
                          coll_dup(comm, &other) == status && other == NULL && coll_split(comm, 0, 0, &other) == status;
    CHECK(is_ended, "%s: rank %d, after %s: later calls do not all return %d", case_name, coll_rank(comm), after, (int)status);
    CHECK(!strcmp(before, coll_error(comm)), "%s: rank %d, after %s: \"%s\" has become \"%s\"", case_name, coll_rank(comm), after,
          before, coll_error(comm));
    CHECK(now_ms() - began < support_scaled(AT_ONCE_MS), "%s: rank %d, after %s: later calls took %d ms", case_name,
          coll_rank(comm), after, (int)(now_ms() - began));
}

/* One status, and the words of its sentence. */
static void check_said(coll_comm *comm, coll_status status, coll_status expected, const char *const *words, const char *what)
{
    const char *sentence = coll_error(comm);
    char me[40];

    snprintf(me, sizeof me, "rank %d of %d", coll_rank(comm), coll_size(comm));
    CHECK(status == expected, "%s: rank %d: %s: status %d, expected %d: \"%s\"", case_name, coll_rank(comm), what, (int)status,
          (int)expected, sentence);
    for (int i = 0; i < 3 && words[i]; i++)
        CHECK(strstr(sentence, words[i]), "%s: rank %d: %s: \"%s\" lacks \"%s\"", case_name, coll_rank(comm), what, sentence,
              words[i]);
    CHECK(strstr(sentence, me), "%s: rank %d: %s: \"%s\" lacks the rank", case_name, coll_rank(comm), what, sentence);
    if (coll_rank(comm) == 0) show(sentence, what);
}

/* ---- >>local: mistakes that the caller's own library sees ---- */

static float x[64], y[64];                        /* never touched by a wrong call                            */
static const size_t twos[] = { 2, 2, 2 }, apart[] = { 0, 2, 4 }, overlapping[] = { 0, 1, 4 }, bytes[] = { 0, 8, 16 },
                    overlapping_bytes[] = { 0, 4, 16 }, huge[] = { 2, SIZE_MAX / 2, 2 };
static float kept[64];
static const coll_list_item list_of_groups[] = { { x, y, 4, COLL_F32 }, { x + 8, y + 8, 4, COLL_MXI8 } };
static const coll_type floats[] = { COLL_F32, COLL_F32, COLL_F32 }, no_types[] = { COLL_F32, 99, COLL_F32 },
                       wire_types[] = { COLL_F32, COLL_MXF8E5M2, COLL_F32 };

typedef struct wrong {
    const char *name;
    coll_call   call;
    coll_status status;
    const char *words[3];
} wrong;

#define ARGUMENT    COLL_ERR_ARGUMENT
#define UNSUPPORTED COLL_ERR_UNSUPPORTED
#define BOTH        .send = x, .recv = y
#define FOUR        .count = 4, .type = COLL_F32
#define LISTS       .send_counts = twos, .send_offsets = apart, .recv_counts = twos, .recv_offsets = apart

static const coll_list_item list_overlaps[] = { { x, y, 4, COLL_F32 }, { x + 8, y + 2, 4, COLL_F32 } },
                         list_without_type[] = { { x, y, 4, COLL_F32 }, { x + 8, y + 8, 4, 99 } },
                         list_with_bits[] = { { x, y, 4, COLL_I32 }, { x + 8, y + 8, 4, COLL_F32 } };

static const wrong wrongs[] = {
    { "send to COLL_ANY_SOURCE", { .kind = COLL_SEND, .send = x, FOUR, .peer = COLL_ANY_SOURCE }, ARGUMENT, { "send", "-2" } },
    { "send with COLL_ANY_TAG", { .kind = COLL_SEND, .send = x, FOUR, .tag = COLL_ANY_TAG }, ARGUMENT, { "tag", "-2" } },
    { "send with tag -1", { .kind = COLL_SEND, .send = x, FOUR, .tag = -1 }, ARGUMENT, { "tag", "-1" } },
    { "recv with tag -3", { .kind = COLL_RECV, .recv = y, FOUR, .tag = -3 }, ARGUMENT, { "tag", "-3" } },
    { "recv from -3", { .kind = COLL_RECV, .recv = y, FOUR, .peer = -3 }, ARGUMENT, { "-3" } },
    { "sendrecv to COLL_ANY_SOURCE", { .kind = COLL_SENDRECV, BOTH, FOUR, .recv_count = 4, .peer = COLL_ANY_SOURCE }, ARGUMENT,
      { "-2" } },
    { "gather to root 3", { .kind = COLL_GATHER, BOTH, FOUR, .root = 3 }, ARGUMENT, { "gather", "root", "3" } },
    { "gatherv to root -1", { .kind = COLL_GATHERV, BOTH, FOUR, LISTS, .root = -1 }, ARGUMENT, { "gatherv", "root", "-1" } },
    { "scatter from root 3", { .kind = COLL_SCATTER, BOTH, FOUR, .root = 3 }, ARGUMENT, { "scatter", "root", "3" } },
    { "scatterv from root 99", { .kind = COLL_SCATTERV, BOTH, .recv_count = 2, .type = COLL_F32, LISTS, .root = 99 }, ARGUMENT,
      { "scatterv", "root", "99" } },
    { "scan without send", { .kind = COLL_SCAN, .recv = y, FOUR }, ARGUMENT, { "scan", "send", "NULL" } },
    { "scan without recv", { .kind = COLL_SCAN, .send = x, FOUR }, ARGUMENT, { "scan", "recv", "NULL" } },
    { "alltoall without recv", { .kind = COLL_ALLTOALL, .send = x, FOUR }, ARGUMENT, { "alltoall", "recv", "NULL" } },
    { "gather without recv at the root", { .kind = COLL_GATHER, .send = x, FOUR, .root = CALLER }, ARGUMENT, { "recv", "NULL" } },
    { "scatter without send at the root", { .kind = COLL_SCATTER, .recv = y, FOUR, .root = CALLER }, ARGUMENT,
      { "send", "NULL" } },
    { "scatterv without counts", { .kind = COLL_SCATTERV, BOTH, .recv_count = 2, .type = COLL_F32, .root = CALLER }, ARGUMENT,
      { "counts", "NULL" } },
    { "alltoallv without counts", { .kind = COLL_ALLTOALLV, BOTH, .type = COLL_F32 }, ARGUMENT, { "counts", "NULL" } },
    { "alltoallv with huge counts", { .kind = COLL_ALLTOALLV, BOTH, .type = COLL_F32, .send_counts = huge, .recv_counts = twos },
      ARGUMENT, { "send", "9223372036854775807" } },
    { "alltoallw without types", { .kind = COLL_ALLTOALLW, BOTH, LISTS }, ARGUMENT, { "types", "NULL" } },
    { "alltoallw with type 99", { .kind = COLL_ALLTOALLW, BOTH, .send_counts = twos, .send_offsets = bytes, .recv_counts = twos,
        .recv_offsets = bytes, .send_types = no_types, .recv_types = floats }, ARGUMENT, { "99" } },
    { "reduce_scatterv without counts", { .kind = COLL_REDUCE_SCATTERV, BOTH, .type = COLL_F32 }, ARGUMENT,
      { "counts", "NULL" } },
    { "allgatherv, received blocks overlap", { .kind = COLL_ALLGATHERV, BOTH, .count = 2, .type = COLL_F32, .recv_counts = twos,
        .recv_offsets = overlapping }, ARGUMENT, { "overlap" } },
    { "gatherv, received blocks overlap", { .kind = COLL_GATHERV, BOTH, .count = 2, .type = COLL_F32, .recv_counts = twos,
        .recv_offsets = overlapping, .root = CALLER }, ARGUMENT, { "overlap" } },
    { "alltoallv, received blocks overlap", { .kind = COLL_ALLTOALLV, BOTH, .type = COLL_F32, .send_counts = twos,
        .send_offsets = apart, .recv_counts = twos, .recv_offsets = overlapping }, ARGUMENT, { "overlap" } },
    { "alltoallw, received blocks overlap", { .kind = COLL_ALLTOALLW, BOTH, .send_counts = twos, .send_offsets = bytes,
        .recv_counts = twos, .recv_offsets = overlapping_bytes, .send_types = floats, .recv_types = floats }, ARGUMENT,
      { "overlap" } },
    { "alltoallv, send and recv overlap", { .kind = COLL_ALLTOALLV, .send = x, .recv = x + 1, .type = COLL_F32, LISTS }, ARGUMENT,
      { "overlap" } },
    { "scan, overlapping", { .kind = COLL_SCAN, .send = x, .recv = x + 1, FOUR }, ARGUMENT, { "overlap" } },
    { "gather, overlapping elsewhere", { .kind = COLL_GATHER, .send = x + 1, .recv = x, FOUR, .root = CALLER }, ARGUMENT,
      { "overlap" } },
    { "scatter, overlapping", { .kind = COLL_SCATTER, .send = x, .recv = x + 1, FOUR, .root = CALLER }, ARGUMENT, { "overlap" } },
    { "alltoall, overlapping", { .kind = COLL_ALLTOALL, .send = x, .recv = x + 2, FOUR }, ARGUMENT, { "overlap" } },
    { "a list that overlaps", { .kind = COLL_ALLREDUCE_LIST, .list = list_overlaps, .list_count = 2 }, ARGUMENT, { "overlap" } },
    { "a list with type 99", { .kind = COLL_ALLREDUCE_LIST, .list = list_without_type, .list_count = 2 }, ARGUMENT, { "99" } },
    { "a list with a cell that is not defined", { .kind = COLL_ALLREDUCE_LIST, .list = list_with_bits, .list_count = 2,
        .op = COLL_BAND }, UNSUPPORTED, { "f32", "band" } },
    { "a list at NULL", { .kind = COLL_ALLREDUCE_LIST, .list_count = 2 }, ARGUMENT, { "list", "NULL" } },
    { "a list of -1", { .kind = COLL_ALLREDUCE_LIST, .list = list_with_bits, .list_count = -1 }, ARGUMENT, { "-1" } },
    { "COLL_IN_PLACE away from the root", { .kind = COLL_GATHER, .send = COLL_IN_PLACE, .recv = y, FOUR, .root = NEXT }, ARGUMENT,
      { "COLL_IN_PLACE" } },
    { "COLL_IN_PLACE for recv away from the root", { .kind = COLL_SCATTER, .send = x, .recv = COLL_IN_PLACE, FOUR, .root = NEXT },
      ARGUMENT, { "COLL_IN_PLACE" } },
    { "COLL_IN_PLACE for send of scatter", { .kind = COLL_SCATTER, .send = COLL_IN_PLACE, .recv = y, FOUR, .root = CALLER },
      ARGUMENT, { "COLL_IN_PLACE" } },
    { "COLL_IN_PLACE for recv of alltoall", { .kind = COLL_ALLTOALL, .send = x, .recv = COLL_IN_PLACE, FOUR }, ARGUMENT,
      { "COLL_IN_PLACE" } },
    { "COLL_IN_PLACE in sendrecv", { .kind = COLL_SENDRECV, .send = COLL_IN_PLACE, .recv = y, FOUR, .recv_count = 4 }, ARGUMENT,
      { "COLL_IN_PLACE" } },
    { "COLL_USER without fn", { .kind = COLL_ALLREDUCE, BOTH, FOUR, .op = COLL_USER }, ARGUMENT, { "fn", "NULL" } },
    { "a BLOB of 0 bytes", { .kind = COLL_BROADCAST, .recv = y, .count = 1, .type = COLL_BLOB(0) }, ARGUMENT, { "coll_type" } },
    { "a BLOB of 2^30 bytes", { .kind = COLL_BROADCAST, .recv = y, .count = 1, .type = COLL_BLOB(1 << 30) }, ARGUMENT,
      { "coll_type" } },
    { "the sum of BLOBs", { .kind = COLL_REDUCE, BOTH, .count = 1, .type = COLL_BLOB(8) }, UNSUPPORTED, { "sum" } },
    { "the BAND of floats", { .kind = COLL_SCAN, BOTH, FOUR, .op = COLL_BAND }, UNSUPPORTED, { "f32", "band" } },
    { "the MINLOC of integers", { .kind = COLL_ALLREDUCE, BOTH, .count = 4, .type = COLL_I32, .op = COLL_MINLOC }, UNSUPPORTED,
      { "i32", "minloc" } },
    { "the sum of pairs", { .kind = COLL_REDUCE_SCATTER, BOTH, .count = 2, .type = COLL_F32_I32 }, UNSUPPORTED,
      { "f32_i32", "sum" } },
    { "the MAX of complex numbers", { .kind = COLL_EXSCAN, BOTH, .count = 2, .type = COLL_C64, .op = COLL_MAX }, UNSUPPORTED,
      { "c64", "max" } },
    { "op 14", { .kind = COLL_SCAN, BOTH, FOUR, .op = (coll_op)14 }, ARGUMENT, { "14", "op" } },
    { "type 27", { .kind = COLL_ALLTOALL, BOTH, .count = 1, .type = 27 }, ARGUMENT, { "27", "type" } },
    { "elements of mxi8", { .kind = COLL_ALLTOALL, BOTH, .count = 1, .type = COLL_MXI8 }, ARGUMENT, { "mxi8", "wire only" } },
    { "a sum of mxf8e4m3", { .kind = COLL_ALLREDUCE, BOTH, .count = 4, .type = COLL_MXF8E4M3 }, ARGUMENT,
      { "mxf8e4m3", "wire only" } },
    { "blocks of mxf8e5m2", { .kind = COLL_ALLTOALLW, BOTH, .send_counts = twos, .send_offsets = bytes, .recv_counts = twos,
        .recv_offsets = bytes, .send_types = floats, .recv_types = wire_types }, ARGUMENT, { "block 1", "mxf8e5m2" } },
    { "a list with mxi8", { .kind = COLL_ALLREDUCE_LIST, .list = list_of_groups, .list_count = 2 }, ARGUMENT,
      { "buffer 1", "mxi8", "wire only" } },
    { "accumulate in mxi8", { .kind = COLL_REDUCE, BOTH, FOUR, .accumulate = COLL_MXI8 }, ARGUMENT, { "mxi8", "wire only" } },
    { "i32 over mxi8", { .kind = COLL_SCAN, BOTH, .count = 4, .type = COLL_I32, .wire = COLL_MXI8 }, UNSUPPORTED,
      { "i32", "mxi8" } },
    { "f8e4m3 over mxf8e4m3", { .kind = COLL_ALLREDUCE, BOTH, .count = 4, .type = COLL_F8E4M3, .wire = COLL_MXF8E4M3 },
      UNSUPPORTED, { "f8e4m3", "mxf8e4m3" } },
    { "c64 over mxi8", { .kind = COLL_REDUCE, BOTH, .count = 4, .type = COLL_C64, .wire = COLL_MXI8 }, UNSUPPORTED,
      { "c64", "mxi8" } },
    { "the BAND of f32 over mxi8", { .kind = COLL_REDUCE, BOTH, FOUR, .wire = COLL_MXI8, .op = COLL_BAND }, UNSUPPORTED,
      { "f32", "band" } },
    { "a residual without a wire", { .kind = COLL_ALLREDUCE, BOTH, FOUR, .residual = kept }, ARGUMENT, { "residual", "wire" } },
    { "a residual of a broadcast", { .kind = COLL_BROADCAST, .recv = y, FOUR, .residual = kept }, ARGUMENT, { "residual" } },
    { "a residual of a barrier", { .kind = COLL_BARRIER, .residual = kept }, ARGUMENT, { "residual" } },
    { "a residual of f64", { .kind = COLL_ALLREDUCE, BOTH, .count = 4, .type = COLL_F64, .wire = COLL_F32, .residual = kept },
      UNSUPPORTED, { "residual", "f64" } },
    { "a residual of a list", { .kind = COLL_ALLREDUCE_LIST, .list = list_with_bits, .list_count = 2, .wire = COLL_BF16,
        .residual = kept }, UNSUPPORTED, { "residual", "list" } },
    { "a residual in the input", { .kind = COLL_REDUCE_SCATTER, BOTH, FOUR, .wire = COLL_MXI8, .residual = x + 11 }, ARGUMENT,
      { "residual", "send", "overlap" } },
    { "a residual in the result", { .kind = COLL_SCAN, BOTH, FOUR, .wire = COLL_BF16, .residual = y + 3 }, ARGUMENT,
      { "residual", "recv", "overlap" } },
    { "kind 27", { .kind = (coll_kind)27, BOTH, FOUR }, ARGUMENT, { "27", "kind" } },
    { "unknown flags", { .kind = COLL_ALLREDUCE, BOTH, FOUR, .flags = 64 }, ARGUMENT, { "flags" } },
    { "a reproducible product", { .kind = COLL_REDUCE, BOTH, FOUR, .op = COLL_PROD, .flags = COLL_REPRODUCIBLE }, UNSUPPORTED,
      { "reproducible", "prod", "f32" } },
    { "a reproducible product of complex numbers", { .kind = COLL_ALLREDUCE, BOTH, .count = 2, .type = COLL_C64, .op = COLL_PROD,
      .flags = COLL_REPRODUCIBLE | COLL_DETERMINISTIC }, UNSUPPORTED, { "reproducible", "prod", "c64" } },
    { "a reproducible sum in a ring", { .kind = COLL_ALLREDUCE, BOTH, FOUR, .flags = COLL_REPRODUCIBLE, .algorithm = "ring" },
      UNSUPPORTED, { "ring", "gather", "direct" } },
    { "a wire of more bits", { .kind = COLL_ALLREDUCE, BOTH, .count = 4, .type = COLL_F16, .wire = COLL_F64 }, UNSUPPORTED,
      { "f16", "f64" } },
    { "wire type 99", { .kind = COLL_REDUCE, BOTH, FOUR, .wire = 99 }, ARGUMENT, { "99", "wire" } },
    { "i32 over f16", { .kind = COLL_SCAN, BOTH, .count = 4, .type = COLL_I32, .wire = COLL_F16 }, UNSUPPORTED,
      { "i32", "f16" } },
    { "accumulate in type 99", { .kind = COLL_REDUCE, BOTH, FOUR, .accumulate = 99 }, ARGUMENT, { "99" } },
    { "an unknown algorithm", { .kind = COLL_SCAN, BOTH, FOUR, .algorithm = "magic" }, UNSUPPORTED, { "magic", "census" } },
    { "another kind's algorithm", { .kind = COLL_GATHER, BOTH, FOUR, .algorithm = "ring" }, UNSUPPORTED, { "ring", "tree" } },
    { "a neighbour call without neighbours", { .kind = COLL_NEIGHBOR_ALLGATHER, BOTH, FOUR }, ARGUMENT, { "coll_neighbors" } }
};
enum { WRONG_COUNT = sizeof wrongs / sizeof *wrongs };

static void check_wrong(coll_comm *comm, const wrong *w)
{
    const int rank = coll_rank(comm);
    uint64_t sent[2], received[2];
    coll_request *r = (coll_request *)(void *)&sent;
    coll_call call = w->call;
    char text[8];

    if (call.root == CALLER) call.root = rank;
    if (call.root == NEXT) call.root = (rank + 1) % THREE;
    call.name = "layer 3";
    coll_traffic(comm, &sent[0], &received[0]);
    check_said(comm, coll_run(comm, &call), w->status, w->words, w->name);
    if (coll_kind_name(call.kind)[0] != '?')
        CHECK(strstr(coll_error(comm), coll_kind_name(call.kind)) && strstr(coll_error(comm), "layer 3"),
              "%s: %s: \"%s\" lacks the kind or the name", case_name, w->name, coll_error(comm));
    check_said(comm, coll_start(comm, &call, &r), w->status, w->words, w->name);
    CHECK(r == NULL, "%s: %s: coll_start leaves a request", case_name, w->name);
    r = (coll_request *)(void *)&sent;
    check_said(comm, coll_prepare(comm, &call, &r), w->status, w->words, w->name);
    CHECK(r == NULL, "%s: %s: coll_prepare leaves a request", case_name, w->name);
    CHECK(coll_explain(comm, &call, text, sizeof text) == (int)w->status, "%s: %s: explained", case_name, w->name);
    coll_traffic(comm, &sent[1], &received[1]);
    CHECK(sent[0] == sent[1] && received[0] == received[1], "%s: %s: something was sent", case_name, w->name);
}

/* A reserved member of a call that is not 0.  The rest of such a call may be of another version: nothing of it is read. */
static void check_reserved(coll_comm *comm)
{
    static const coll_call plain = { .kind = COLL_ALLREDUCE, BOTH, FOUR };
    const int count = sizeof plain.reserved / sizeof *plain.reserved;
    coll_request *r = NULL;
    char said[60], text[8];

    for (int i = 0; i < count; i++) {
        coll_call call = plain;
        const char *const words[3] = { said, "set all members that you do not use to 0" };
        call.reserved[i] = (uint64_t)1 << 40;
        call.name = (const char *)(uintptr_t)8;
        snprintf(said, sizeof said, "reserved[%d] of the coll_call is not 0", i);
        check_said(comm, coll_run(comm, &call), COLL_ERR_ARGUMENT, words, "coll_run");
        check_said(comm, coll_start(comm, &call, &r), COLL_ERR_ARGUMENT, words, "coll_start");
        check_said(comm, coll_prepare(comm, &call, &r), COLL_ERR_ARGUMENT, words, "coll_prepare");
        CHECK(r == NULL && coll_explain(comm, &call, text, sizeof text) == COLL_ERR_ARGUMENT, "%s: coll_explain", case_name);
    }
    check_works(comm, "reserved members");
}

static int local_worker(coll_comm *comm, void *arg)
{
    (void)arg;
    check_reserved(comm);
    for (int i = 0; i < WRONG_COUNT; i++) {
        check_wrong(comm, &wrongs[i]);
        if (i % 16 == 15) check_works(comm, wrongs[i].name);
    }
    check_works(comm, "all wrong calls");
    for (int i = 0; i < 64; i++)
        CHECK(x[i] <= 0 && x[i] >= 0 && y[i] <= 0 && y[i] >= 0, "%s: element %d is touched", case_name, i);
    return 0;
}

/* Send blocks may overlap one another, and so may what is empty. */
static int allowed_worker(coll_comm *comm, void *arg)
{
    const size_t ones[] = { 1, 1, 1 }, same[] = { 0, 0, 0 }, none[] = { 0, 0, 0 };
    int32_t mine = coll_rank(comm) + 5, all[3] = { 0, 0, 0 };

    (void)arg;
    const coll_status status = coll_alltoallv(comm, &mine, ones, same, all, ones, NULL, COLL_I32);
    CHECK(status == COLL_OK && all[0] == 5 && all[1] == 6 && all[2] == 7, "%s: send blocks that overlap: %s",
          case_name, coll_error(comm));
    CHECK(coll_alltoallv(comm, NULL, none, same, NULL, none, same, COLL_I32) == COLL_OK, "%s: nothing: %s", case_name,
          coll_error(comm));
    CHECK(coll_allreduce_list(comm, NULL, 0, COLL_SUM) == COLL_OK, "%s: an empty list: %s", case_name, coll_error(comm));
    CHECK(coll_neighbors(comm, NULL, 0, NULL, 0) == COLL_OK && coll_neighbor_alltoall(comm, NULL, NULL, 3, COLL_F32) == COLL_OK,
          "%s: no neighbours: %s", case_name, coll_error(comm));
    check_works(comm, "what is allowed");
    return 0;
}

static coll_status no_transfer(void *context, coll_xfer *xfer) { return (void)context, (void)xfer, COLL_ERR_PEER; }
static coll_status no_progress(void *context, int wait_ms) { return (void)context, (void)wait_ms, COLL_OK; }
static void no_close(void *context) { (void)context; }

/* Reserved members of a configuration, of its parts and of a transport. */
static void reserved_case(const void *arg)
{
    coll_comm *comm = NULL;
    coll_sim sim = { 0 };
    coll_config config = { .size = 1, .sim = &sim, .log_level = COLL_LOG_NONE };
    coll_transport own = { .name = "own", .send = no_transfer, .recv = no_transfer, .progress = no_progress, .close = no_close };
    const struct { uint64_t *member; const char *says; } members[] = {
        { &config.reserved[0], "reserved[0] of the coll_config is not 0" },
        { &config.reserved[7], "reserved[7] of the coll_config is not 0" },
        { &config.tcp.reserved[3], "reserved[3] of the coll_tcp is not 0" },
        { &sim.reserved[2], "reserved[2] of the coll_sim is not 0" } };

    (void)arg;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        *members[i].member = 1;
        CHECK(coll_init(&comm, &config) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), members[i].says), "%s: %s",
              members[i].says, coll_error(NULL));
        CHECK(coll_init_threads(1, &comm, &config) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), members[i].says), "%s: %s",
              members[i].says, coll_error(NULL));
        CHECK(coll_spawn(1, allowed_worker, NULL, &config) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), members[i].says),
              "%s: %s", members[i].says, coll_error(NULL));
        *members[i].member = 0;
    }
    CHECK(coll_version() == COLL_VERSION && COLL_VERSION == 10000 * COLL_VERSION_MAJOR + 100 * COLL_VERSION_MINOR
          + COLL_VERSION_PATCH, "version %d, and the header has %d", coll_version(), COLL_VERSION);
    CHECK(coll_init(&comm, &config) == COLL_OK && coll_free(comm) == COLL_OK, "%s", coll_error(NULL));
    own.reserved[3] = 1;
    CHECK(coll_init_custom(&own, NULL, 0, 1, &comm, NULL) == COLL_ERR_ARGUMENT
          && strstr(coll_error(NULL), "reserved[3] of the coll_transport is not 0"), "%s", coll_error(NULL));
    own.reserved[3] = 0;
    CHECK(coll_init_custom(&own, NULL, 0, 1, &comm, NULL) == COLL_OK && coll_free(comm) == COLL_OK, "%s", coll_error(NULL));
}

/* ---- >>mismatch: ranks that disagree ---- */

static float in[64];
static const size_t threes[] = { 3, 3, 3, 3, 3 }, fours[] = { 4, 4, 4, 4, 4 };
static const coll_type integers[] = { COLL_I32, COLL_I32, COLL_I32, COLL_I32, COLL_I32 },
                       wide_floats[] = { COLL_F32, COLL_F32, COLL_F32, COLL_F32, COLL_F32 };
static const size_t places[] = { 0, 16, 32, 48, 64 };
static const coll_list_item list_a[] = { { in, NULL, 4, COLL_F32 }, { in, NULL, 2, COLL_F32 } },
                         list_b[] = { { in, NULL, 4, COLL_F32 }, { in, NULL, 2, COLL_I32 } },
                         list_c[] = { { in, NULL, 4, COLL_F32 }, { in, NULL, 3, COLL_F32 } };

static void no_fn(const void *from, void *inout, size_t count, coll_type type, void *context)
{
    (void)from, (void)inout, (void)count, (void)type, (void)context;
}

/* What all ranks but one call, and what that one does.  A rank that completes its part before the others have begun may be in
 * the next barrier when the difference is detected; so the words are those that appear in any case. */
typedef struct mismatch {
    const char *name;
    coll_call   usual, odd;
    const char *words[3];
} mismatch;

#define IN4     .send = in, .count = 4, .type = COLL_F32
#define ALLSUM  .kind = COLL_ALLREDUCE, IN4
#define VARIED(n) .send_counts = n, .recv_counts = n

static const mismatch mismatches[] = {
    { "counts", { ALLSUM }, { .kind = COLL_ALLREDUCE, .send = in, .count = 5, .type = COLL_F32 }, { "allreduce", "4", "5" } },
    { "types", { ALLSUM }, { .kind = COLL_ALLREDUCE, .send = in, .count = 4, .type = COLL_I32 }, { "f32", "i32" } },
    { "operations", { ALLSUM }, { ALLSUM, .op = COLL_MAX }, { "sum", "max" } },
    { "kinds", { ALLSUM }, { .kind = COLL_SCAN, IN4 }, { "allreduce" } },     /* the first rank of a scan may have completed it */
    { "a barrier and a gather", { .kind = COLL_BARRIER }, { .kind = COLL_GATHER, IN4 }, { "barrier" } },
    { "roots", { .kind = COLL_GATHER, IN4 }, { .kind = COLL_GATHER, IN4, .root = 1 }, { "gather" } },
    { "roots of a scatter", { .kind = COLL_SCATTER, IN4 }, { .kind = COLL_SCATTER, IN4, .root = 1 }, { "scatter" } },
    { "algorithms", { ALLSUM, .algorithm = "circulant" }, { ALLSUM, .algorithm = "ring" }, { "allreduce" } },
    { "the numbers of algorithms", { ALLSUM, .algorithm = "circulant:2" }, { ALLSUM, .algorithm = "circulant:3" },
      { "allreduce" } },
    { "wire types", { ALLSUM, .wire = COLL_BF16 }, { ALLSUM, .wire = COLL_F16 }, { "bf16", "f16" } },
    { "a wire type and none", { ALLSUM, .wire = COLL_BF16 }, { ALLSUM }, { "bf16" } },
    { "flags", { ALLSUM, .flags = COLL_DETERMINISTIC }, { ALLSUM }, { "allreduce" } },
    { "COLL_SATURATE", { .kind = COLL_ALLREDUCE, .send = in, .count = 4, .type = COLL_F16, .flags = COLL_SATURATE },
      { .kind = COLL_ALLREDUCE, .send = in, .count = 4, .type = COLL_F16 }, { "allreduce" } },
    { "COLL_REPRODUCIBLE", { ALLSUM, .flags = COLL_REPRODUCIBLE }, { ALLSUM }, { "allreduce" } },
    { "COLL_REPRODUCIBLE and COLL_DETERMINISTIC", { ALLSUM, .flags = COLL_REPRODUCIBLE }, { ALLSUM, .flags = COLL_DETERMINISTIC },
      { "allreduce" } },
    { "COLL_DETECT_OVERFLOW", { ALLSUM, .flags = COLL_DETECT_OVERFLOW }, { ALLSUM }, { "allreduce" } },
    { "seeds", { ALLSUM, .flags = COLL_STOCHASTIC, .seed = 1 }, { ALLSUM, .flags = COLL_STOCHASTIC, .seed = 2 },
      { "allreduce" } },
    { "scales", { ALLSUM, .scale = 2 }, { ALLSUM, .scale = 3 }, { "allreduce" } },
    { "an operation that may not be reordered", { ALLSUM, .op = COLL_USER, .fn = no_fn },
      { ALLSUM, .op = COLL_USER, .fn = no_fn, .not_commutative = true }, { "allreduce" } },
    { "BLOBs", { .kind = COLL_ALLGATHER, .send = in, .count = 2, .type = COLL_BLOB(8) },
      { .kind = COLL_ALLGATHER, .send = in, .count = 2, .type = COLL_BLOB(12) }, { "allgather" } },
    { "lists of other lengths", { .kind = COLL_ALLREDUCE_LIST, .list = list_a, .list_count = 2 },
      { .kind = COLL_ALLREDUCE_LIST, .list = list_a, .list_count = 1 }, { "list" } },
    { "lists of other types", { .kind = COLL_ALLREDUCE_LIST, .list = list_a, .list_count = 2 },
      { .kind = COLL_ALLREDUCE_LIST, .list = list_b, .list_count = 2 }, { "list" } },
    { "lists of other counts", { .kind = COLL_ALLREDUCE_LIST, .list = list_a, .list_count = 2 },
      { .kind = COLL_ALLREDUCE_LIST, .list = list_c, .list_count = 2 }, { "list" } },
    { "scans", { .kind = COLL_SCAN, IN4 }, { .kind = COLL_EXSCAN, IN4 }, { "scan", "exscan" } },
    { "counts of allgatherv", { .kind = COLL_ALLGATHERV, IN4, .recv_counts = fours },
      { .kind = COLL_ALLGATHERV, .send = in, .count = 3, .type = COLL_F32, .recv_counts = threes }, { "allgatherv" } },
    { "counts of reduce_scatterv", { .kind = COLL_REDUCE_SCATTERV, IN4, .recv_counts = fours },
      { .kind = COLL_REDUCE_SCATTERV, IN4, .recv_counts = threes }, { "reduce_scatterv" } },
    { "counts of gatherv", { .kind = COLL_GATHERV, IN4, .recv_counts = fours, .root = 1 },
      { .kind = COLL_GATHERV, .send = in, .count = 3, .type = COLL_F32, .recv_counts = threes, .root = 1 }, { "3", "4" } },
    { "counts of scatterv",
      { .kind = COLL_SCATTERV, .send = in, .type = COLL_F32, .recv_count = 4, .send_counts = fours, .root = 1 },
      { .kind = COLL_SCATTERV, .send = in, .type = COLL_F32, .recv_count = 3, .send_counts = threes, .root = 1 },
      { "3", "4" } },
    { "counts of alltoallv", { .kind = COLL_ALLTOALLV, .send = in, .type = COLL_F32, VARIED(fours) },
      { .kind = COLL_ALLTOALLV, .send = in, .type = COLL_F32, VARIED(threes) }, { "3", "4" } },
    { "types of alltoallw", { .kind = COLL_ALLTOALLW, .send = in, VARIED(fours), .send_offsets = places, .recv_offsets = places,
        .send_types = wide_floats, .recv_types = wide_floats },
      { .kind = COLL_ALLTOALLW, .send = in, VARIED(fours), .send_offsets = places, .recv_offsets = places, .send_types = integers,
        .recv_types = integers }, { "f32", "i32" } },
    { "counts of neighbor_alltoallv", { .kind = COLL_NEIGHBOR_ALLTOALLV, .send = in, .type = COLL_F32, VARIED(fours) },
      { .kind = COLL_NEIGHBOR_ALLTOALLV, .send = in, .type = COLL_F32, VARIED(threes) }, { "3", "4" } },
    { "counts of neighbor_allgatherv", { .kind = COLL_NEIGHBOR_ALLGATHERV, IN4, .recv_counts = fours },
      { .kind = COLL_NEIGHBOR_ALLGATHERV, .send = in, .count = 3, .type = COLL_F32, .recv_counts = threes },
      { "3", "4" } },
    { "counts of neighbor_alltoall", { .kind = COLL_NEIGHBOR_ALLTOALL, IN4 },
      { .kind = COLL_NEIGHBOR_ALLTOALL, .send = in, .count = 3, .type = COLL_F32 }, { "3", "4" } }
};
enum { MISMATCH_COUNT = sizeof mismatches / sizeof *mismatches };

typedef struct mismatch_run { const mismatch *row; int size, odd; } mismatch_run;

/* Every rank is a neighbour of every rank.  Ranks that have completed this may already have ended all with the next call. */
static void make_neighbors(coll_comm *comm)
{
    int all[RANKS_MOST] = { 0 };

    for (int i = 0; i < coll_size(comm); i++) all[i] = i;
    const coll_status status = coll_neighbors(comm, all, coll_size(comm), all, coll_size(comm));
    CHECK(status == COLL_OK || status == COLL_ERR_MISMATCH, "%s: coll_neighbors: %s", case_name, coll_error(comm));
}

/* An exchange between any two ranks: through shared memory if they have it, and through messages if there are any. */
static coll_status meet_all(coll_comm *comm)
{
    const bool are_threads = !strcmp(world, "threads");
    const bool have_domain = are_threads || !strcmp(world, "tcp-domain") || !strcmp(world, "hybrid");
    int32_t to_all[RANKS_MOST] = { 0 }, of_all[RANKS_MOST];
    coll_call call = { .kind = COLL_ALLTOALL, .send = to_all, .recv = of_all, .count = 1, .type = COLL_I32 };
    const coll_status status = have_domain ? coll_run(comm, &call) : COLL_OK;

    call.algorithm = "direct";
    return status == COLL_OK && !are_threads ? coll_run(comm, &call) : status;
}

static int mismatch_worker(coll_comm *comm, void *arg)
{
    const mismatch_run *run = arg;
    const int rank = coll_rank(comm);
    coll_call call = rank == run->odd ? run->row->odd : run->row->usual;
    float out[64];
    coll_list_item list[2];

    if (call.kind >= COLL_NEIGHBOR_ALLGATHER && call.kind <= COLL_NEIGHBOR_ALLTOALLW) make_neighbors(comm);
    for (int i = 0; i < call.list_count; i++) {
        list[i] = call.list[i];
        list[i].recv = out + 8 * i;
    }
    if (call.list) call.list = list;
    call.recv = out;
    const int64_t began = now_ms(), soon = support_scaled(SOON_MS);
    coll_status status = coll_run(comm, &call);
    while (status == COLL_OK && now_ms() - began < soon) status = meet_all(comm);          /* a rank that completed its part */
    const int took = (int)(now_ms() - began);
    check_said(comm, status, COLL_ERR_MISMATCH, run->row->words, run->row->name);
    CHECK(took < soon, "%s: rank %d got the error after %d ms", case_name, rank, took);
    if (status < 0) check_ended(comm, status, run->row->name);
    return 0;
}

static void mismatch_case(const void *arg)
{
    mismatch_run run = *(const mismatch_run *)arg;
    const int failed = model_run(world, run.size, NULL, mismatch_worker, &run);
    CHECK(failed == 0, "%s: the world could not be run", case_name);
}

/* Messages that do not fit: too long, or of another type. */
typedef struct messages { const char *name; size_t count, room; coll_type sent, received; const char *words[3]; } messages;

static const messages message_rows[] = {
    { "a message longer than the room", 5, 2, COLL_F32, COLL_F32, { "5", "2" } },
    { "a long message, longer than the room", 50000, 40000, COLL_F32, COLL_F32, { "50000", "40000" } },
    { "a message of another type", 4, 4, COLL_F32, COLL_I32, { "f32", "i32" } }
};
enum { MESSAGE_COUNT = sizeof message_rows / sizeof *message_rows };

static int message_worker(coll_comm *comm, void *arg)
{
    const messages *row = arg;
    const int rank = coll_rank(comm);
    float *data = support_need(calloc(50000, sizeof *data));
    coll_status status = COLL_OK;

    if (rank == 0) status = coll_send(comm, data, row->count, row->sent, 1, 3);
    if (rank == 1) status = coll_recv(comm, data, row->room, row->received, 0, 3);
    if (status == COLL_OK) status = coll_barrier(comm);
    check_said(comm, status, COLL_ERR_MISMATCH, row->words, row->name);
    if (status < 0) check_ended(comm, status, row->name);
    free(data);
    return 0;
}

static void message_case(const void *arg)
{
    messages row = *(const messages *)arg;
    CHECK(model_run(world, THREE, NULL, message_worker, &row) == 0, "%s: the world could not be run", case_name);
}

/* ---- >>requests ---- */

/* Rank 0 restarts twice while the others have not begun. */
static void check_restart_twice(coll_comm *comm)
{
    const char *const words[] = { "coll_wait", NULL, NULL };
    int32_t mine = coll_rank(comm) + 1, sum = 0, go = 0;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &mine, .recv = &sum, .count = 1, .type = COLL_I32, .name = "again" };
    coll_request *r = NULL;

    CHECK(coll_prepare(comm, &call, &r) == COLL_OK && r, "%s: coll_prepare: %s", case_name, coll_error(comm));
    if (!r) return;
    if (coll_rank(comm) == 0) {
        CHECK(coll_restart(r) == COLL_OK, "%s: coll_restart: %s", case_name, coll_error(comm));
        check_said(comm, coll_restart(r), ARGUMENT, words, "a restart of a running request");
        for (int i = 1; i < coll_size(comm); i++)
            CHECK(coll_send(comm, &go, 1, COLL_I32, i, 0) == COLL_OK, "%s: send", case_name);
    } else {
        CHECK(coll_recv(comm, &go, 1, COLL_I32, 0, 0) == COLL_OK && coll_restart(r) == COLL_OK, "%s: %s", case_name,
              coll_error(comm));
    }
    CHECK(coll_wait(r) == COLL_OK && sum == 6, "%s: the request gives %d: %s", case_name, sum, coll_error(comm));
    mine = 1;
    CHECK(coll_restart(r) == COLL_OK && coll_wait(r) == COLL_OK && sum == 3, "%s: again: %d", case_name, sum);
    coll_request_free(r);
}

/* Of a rank alone a call is over at once; it is refused as well. */
static void check_restart_unseen(coll_comm *comm)
{
    const char *const words[] = { "coll_wait", NULL, NULL };
    int32_t mine = 5, sum = 0;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &mine, .recv = &sum, .count = 1, .type = COLL_I32 };
    coll_comm *alone = NULL;
    coll_request *r = NULL;

    CHECK(coll_split(comm, coll_rank(comm), 0, &alone) == COLL_OK, "%s: coll_split: %s", case_name, coll_error(comm));
    CHECK(coll_prepare(alone, &call, &r) == COLL_OK && coll_restart(r) == COLL_OK, "%s: %s", case_name, coll_error(alone));
    check_said(alone, coll_restart(r), ARGUMENT, words, "a restart of a request that was not waited for");
    CHECK(coll_test(r) == COLL_OK && coll_restart(r) == COLL_OK && coll_wait(r) == COLL_OK && sum == 5, "%s: %s", case_name,
          coll_error(alone));
    coll_request_free(r);
    coll_free(alone);
}

/* Restarts of what was never prepared: such a request may outlive its communicator, so the sentence is the thread's. */
static void check_restart_others(coll_comm *comm)
{
    int32_t one = 1, sum = 0;
    coll_request *r = NULL;

    CHECK(coll_restart(NULL) == ARGUMENT, "%s: coll_restart(NULL)", case_name);
    CHECK(coll_iallreduce(comm, &one, &sum, 1, COLL_I32, COLL_SUM, &r) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    CHECK(coll_restart(r) == ARGUMENT && strstr(coll_error(NULL), "prepare"), "%s: a restart of what was not prepared: \"%s\"",
          case_name, coll_error(NULL));
    CHECK(coll_wait(r) == COLL_OK && sum == THREE, "%s: the request: %s", case_name, coll_error(comm));
    CHECK(coll_restart(r) == ARGUMENT && strstr(coll_error(NULL), "prepare"), "%s: a restart of a finished request: \"%s\"",
          case_name, coll_error(NULL));
    CHECK(coll_wait(r) == COLL_OK, "%s: the request has changed", case_name);
    coll_request_free(r);
}

/* NULL in the place of a request, or of a pointer to one; a request that is released. */
static void check_nulls(coll_comm *comm)
{
    const coll_call call = { .kind = COLL_BARRIER };
    int32_t one = 1, sum = 0;
    coll_request *r = NULL;
    int index = 3;

    CHECK(coll_ibarrier(comm, NULL) == ARGUMENT && coll_start(comm, &call, NULL) == ARGUMENT &&
          coll_prepare(comm, &call, NULL) == ARGUMENT && coll_run(comm, NULL) == ARGUMENT &&
          coll_start(comm, NULL, &r) == ARGUMENT && coll_dup(comm, NULL) == ARGUMENT && coll_split(comm, 0, 0, NULL) == ARGUMENT,
          "%s: NULL for the result", case_name);
    CHECK(coll_received(NULL, NULL, NULL, NULL) == ARGUMENT, "%s: coll_received(NULL)", case_name);
    CHECK(coll_wait_any(1, &r, &index) == COLL_OK && index == -1, "%s: coll_wait_any of a NULL", case_name);
    CHECK(coll_wait_all(-1, &r) == ARGUMENT && coll_wait_any(-1, &r, &index) == ARGUMENT && coll_wait_all(2, NULL) == ARGUMENT,
          "%s: less than no requests", case_name);
    CHECK(coll_iallreduce(comm, &one, &sum, 1, COLL_I32, COLL_SUM, &r) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    coll_request_free(r);
    CHECK(coll_barrier(comm) == COLL_OK && sum == THREE, "%s: a released one returns %d", case_name, sum);
}

/* Requests that run when their communicator is freed. */
static void check_pending_free(coll_comm *comm)
{
    coll_comm *copy = NULL;
    coll_request *r = NULL;
    int32_t never = 0;

    CHECK(coll_dup(comm, &copy) == COLL_OK, "%s: coll_dup: %s", case_name, coll_error(comm));
    if (!copy) return;
    CHECK(coll_irecv(copy, &never, 1, COLL_I32, coll_rank(comm), 5, &r) == COLL_OK, "%s: irecv", case_name);
    CHECK(coll_free(copy) == COLL_OK, "%s: coll_free of a copy", case_name);
    CHECK(coll_test(r) == COLL_ERR_ABORTED && coll_wait(r) == COLL_ERR_ABORTED, "%s: its request has %d", case_name,
          (int)coll_test(r));
    coll_request_free(r);
}

static int requests_worker(coll_comm *comm, void *arg)
{
    (void)arg;
    check_restart_twice(comm);
    check_restart_unseen(comm);
    check_works(comm, "a restart of a running request");
    check_restart_others(comm);
    check_works(comm, "a restart of what was not prepared");
    check_nulls(comm);
    check_works(comm, "NULLs");
    check_pending_free(comm);
    check_works(comm, "a copy freed with a request pending");
    return 0;
}

/* ---- >>groups: communicators and graphs ---- */

typedef struct wrong_list { const char *name; int ranks[4], count, tag; const char *words[3]; } wrong_list;

static const wrong_list wrong_lists[] = {
    { "a rank twice", { 0, 1, 2, 1 }, 4, 0, { "1", "twice" } },
    { "rank 3 of 3", { 0, 1, 2, 3 }, 4, 0, { "3" } },
    { "rank -1", { 0, 1, 2, -1 }, 4, 0, { "-1" } },
    { "tag -1", { 0, 1, 2 }, 3, -1, { "tag", "-1" } },
    { "no ranks", { 0 }, 0, 0, { NULL } },
    { "less than no ranks", { 0 }, -2, 0, { NULL } }
};

static void check_wrong_lists(coll_comm *comm)
{
    const int rank = coll_rank(comm), others[] = { (rank + 1) % THREE, (rank + 2) % THREE };
    const char *const none[] = { NULL, NULL, NULL };
    coll_comm *made = comm;

    for (size_t i = 0; i < sizeof wrong_lists / sizeof *wrong_lists; i++) {
        const wrong_list *w = &wrong_lists[i];
        made = comm;
        check_said(comm, coll_create(comm, w->ranks, w->count, w->tag, &made), ARGUMENT, w->words, w->name);
        CHECK(made == NULL, "%s: %s: the communicator is not NULL", case_name, w->name);
    }
    check_said(comm, coll_create(comm, others, 2, 0, &made), ARGUMENT, none, "a list without the caller");
    check_said(comm, coll_create(comm, NULL, 2, 0, &made), ARGUMENT, none, "a list at NULL");
    CHECK(coll_create(comm, others, 2, 0, NULL) == ARGUMENT, "%s: coll_create into NULL", case_name);
    check_works(comm, "wrong lists");
}

static void check_wrong_colors(coll_comm *comm)
{
    const char *const words[] = { "color", "-5", NULL };
    coll_comm *made = comm;

    if (coll_rank(comm) == 1) {
        check_said(comm, coll_split(comm, -5, 0, &made), ARGUMENT, words, "color -5");
        CHECK(made == NULL, "%s: color -5: the communicator is not NULL", case_name);
    }
    CHECK(coll_split(comm, 3, 0, &made) == COLL_OK && coll_size(made) == THREE, "%s: a split afterwards: %s", case_name,
          coll_error(comm));
    check_works(made, "a split after color -5");
    CHECK(coll_free(made) == COLL_OK, "%s: coll_free", case_name);
}

static void check_wrong_neighbors(coll_comm *comm)
{
    const char *const three[] = { "3", NULL, NULL }, *const none[] = { NULL, NULL, NULL };
    const int outside[] = { 0, 3 }, below[] = { -5 };

    check_said(comm, coll_neighbors(comm, outside, 2, NULL, 0), ARGUMENT, three, "a source that is no rank");
    check_said(comm, coll_neighbors(comm, NULL, 0, outside, 2), ARGUMENT, three, "a destination that is no rank");
    check_said(comm, coll_neighbors(comm, below, 1, NULL, 0), ARGUMENT, none, "source -5");
    check_said(comm, coll_neighbors(comm, outside, -1, NULL, 0), ARGUMENT, none, "less than no sources");
    check_said(comm, coll_neighbors(comm, NULL, 1, NULL, 0), ARGUMENT, none, "sources at NULL");
    check_works(comm, "wrong neighbours");
}

static int groups_worker(coll_comm *comm, void *arg)
{
    int ranks[2] = { -7, -7 };

    (void)arg;
    check_wrong_lists(comm);
    check_wrong_colors(comm);
    check_wrong_neighbors(comm);
    CHECK(coll_failed_ranks(comm, ranks, 2) == 0 && ranks[0] == -7 && coll_failed_ranks(comm, NULL, 0) == 0, "%s: failed ranks",
          case_name);
    CHECK(coll_world_rank(comm, -1) == COLL_RANK_NONE && coll_world_rank(comm, THREE) == COLL_RANK_NONE &&
          coll_world_rank(comm, 1) == 1, "%s: coll_world_rank", case_name);
    return 0;
}

/* An edge that only one of its ends gives. */
static int edges_worker(coll_comm *comm, void *arg)
{
    const char *const words[] = { "neighbor", "rank 0", "rank 1" };
    const int one[] = { 1 };
    const bool knows = coll_rank(comm) == 0;
    const coll_status status = coll_neighbors(comm, NULL, 0, one, knows ? 1 : 0);

    (void)arg;
    const coll_status later = status ? status : coll_barrier(comm);
    check_said(comm, later, COLL_ERR_MISMATCH, words, "an edge that one end does not give");
    if (later < 0) check_ended(comm, later, "edges that do not match");
    return 0;
}

/* ---- >>threads: two at once, and coll_abort ---- */

/* Rank 0 has a second thread, which waits inside a call. */
typedef struct second {
    coll_comm  *comm;
    coll_status status;
    int32_t     got;
    char        sentence[256];
} second;

static void *second_thread(void *arg)
{
    second *s = arg;

    do {                                          /* the first thread may be inside for a moment              */
        s->status = coll_recv(s->comm, &s->got, 1, COLL_I32, 1, 9);
    } while (s->status == COLL_ERR_ARGUMENT);
    return NULL;
}

/* Start it, and return when it is inside the library. */
static pthread_t begin_second(second *s)
{
    pthread_t thread;
    int inside = 0;

    CHECK(pthread_create(&thread, NULL, second_thread, s) == 0, "%s: no thread", case_name);
    while (inside < 100) {
        inside = coll_progress(s->comm) == COLL_ERR_ARGUMENT ? inside + 1 : 0;
        sched_yield();
    }
    return thread;
}

static int two_threads_worker(coll_comm *comm, void *arg)
{
    event *seen = arg;
    second s = { .comm = comm };
    int32_t x1 = 41;
    const char *const words[] = { "thread", NULL, NULL };

    if (coll_rank(comm) == 0) {
        const pthread_t thread = begin_second(&s);
        const coll_status status = coll_barrier(comm);
        CHECK(status == ARGUMENT && says(coll_error(NULL), words, 3), "%s: a second thread gets %d: \"%s\"", case_name,
              (int)status, coll_error(NULL));
        show(coll_error(NULL), "a second thread");
        event_raise(seen);
        pthread_join(thread, NULL);
        CHECK(s.status == COLL_OK && s.got == 41, "%s: the first thread gets %d and %d", case_name, (int)s.status, s.got);
    } else if (coll_rank(comm) == 1) {
        event_await(seen, 1);
        CHECK(coll_send(comm, &x1, 1, COLL_I32, 0, 9) == COLL_OK, "%s: send: %s", case_name, coll_error(comm));
    }
    check_works(comm, "two threads");
    return 0;
}

static int abort_worker(coll_comm *comm, void *arg)
{
    const bool by_second = arg != NULL;
    const char *const words[] = { "the user pressed stop", "rank 0", NULL };
    const int64_t began = now_ms();
    coll_comm *copy = NULL;
    second s = { .comm = comm };
    int32_t never = 0;
    coll_status status = coll_dup(comm, &copy);

    CHECK(status == COLL_OK || (status == COLL_ERR_ABORTED && coll_rank(comm) > 0), "%s: coll_dup: %s", case_name,
          coll_error(comm));                      /* rank 0 may have completed it, and abandon it             */
    if (coll_rank(comm) == 0 && by_second) {
        const pthread_t thread = begin_second(&s);
        CHECK(coll_abort(comm, "the user pressed stop") == COLL_OK, "%s: coll_abort: %s", case_name, coll_error(NULL));
        pthread_join(thread, NULL);
        status = s.status;
    } else if (coll_rank(comm) == 0) {
        CHECK(coll_abort(comm, "the user pressed stop") == COLL_OK, "%s: coll_abort: %s", case_name, coll_error(NULL));
        status = coll_barrier(comm);
    } else {
        status = coll_recv(comm, &never, 1, COLL_I32, 0, 1);
    }
    check_said(comm, status, COLL_ERR_ABORTED, words, "coll_abort");
    CHECK(now_ms() - began < support_scaled(SOON_MS), "%s: it took %d ms", case_name, (int)(now_ms() - began));
    check_ended(comm, COLL_ERR_ABORTED, "coll_abort");
    if (copy) check_ended(copy, COLL_ERR_ABORTED, "coll_abort of another communicator");
    CHECK(coll_free(copy) == COLL_OK, "%s: coll_free", case_name);
    return 0;
}

/* What an operation must not do, one case after the other. */
typedef struct caller { coll_comm *comm; coll_request *waits; int calls; } caller;

static void calling_sum(const void *from, void *inout, size_t count, coll_type type, void *context)
{
    caller *c = context;
    const char *const words[] = { "operation", NULL, NULL };
    int32_t one = 1, got = 0;
    int index = -1;
    coll_comm *copy = NULL;
    coll_request *request = NULL;
    const coll_status tried[] = {
        coll_barrier(c->comm), coll_allreduce(c->comm, &one, &got, 1, COLL_I32, COLL_SUM), coll_progress(c->comm),
        coll_ibarrier(c->comm, &request), coll_dup(c->comm, &copy), coll_wait(c->waits), coll_test(c->waits),
        coll_wait_any(1, &c->waits, &index), coll_free(c->comm)
    };

    (void)type;
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++)
        CHECK(tried[i] == ARGUMENT, "%s: call %zu of an operation gives %d", case_name, i, (int)tried[i]);
    CHECK(says(coll_error(NULL), words, 3), "%s: an operation gets \"%s\"", case_name, coll_error(NULL));
    for (size_t i = 0; i < count; i++) ((int32_t *)inout)[i] += ((const int32_t *)from)[i];
    c->calls++;
}

/* At once, and queued behind another call, with and without another rank to wait for. */
static int calling_worker(coll_comm *comm, void *arg)
{
    caller c = { .comm = comm };
    const int size = coll_size(comm);
    int32_t mine[3] = { 1, 2, 3 }, all[3] = { 0, 0, 0 }, never = 0;
    coll_call call = { .kind = COLL_ALLREDUCE, .send = mine, .recv = all, .count = 3, .type = COLL_I32, .op = COLL_USER,
                       .fn = calling_sum, .fn_context = &c };

    (void)arg;
    CHECK(coll_irecv(comm, &never, 1, COLL_I32, coll_rank(comm), 77, &c.waits) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    for (int round = 0; round < 4; round++) {
        coll_request *request = NULL;
        const coll_status status = round % 2 ? coll_start(comm, &call, &request) : coll_run(comm, &call);
        const coll_status ended = status == COLL_OK ? coll_wait(request) : status;
        CHECK(ended == COLL_OK && all[0] == size && all[2] == 3 * size, "%s: %d, %d, %d: %s", case_name, (int)ended, all[0],
              all[2], coll_error(comm));
        coll_request_free(request);
    }
    CHECK(coll_allreduce(comm, COLL_IN_PLACE, &c.calls, 1, COLL_I32, COLL_SUM) == COLL_OK && c.calls > 0,
          "%s: the operation was called %d times", case_name, c.calls);
    CHECK(coll_send(comm, mine, 1, COLL_I32, coll_rank(comm), 77) == COLL_OK && coll_wait(c.waits) == COLL_OK && never == 1,
          "%s: %s", case_name, coll_error(comm));
    coll_request_free(c.waits);
    check_works(comm, "operations that call");
    return 0;
}

static void calling_case(const void *arg)
{
    (void)arg;
    CHECK(model_run(world, THREE, NULL, calling_worker, NULL) == 0, "%s: the world could not be run", case_name);
}

static void two_threads_case(const void *arg)
{
    event seen = EVENT_INIT;

    (void)arg;
    CHECK(model_run(world, THREE, NULL, two_threads_worker, &seen) == 0, "%s: the world could not be run", case_name);
}

static void abort_case(const void *arg)
{
    int by_second = arg != NULL;
    CHECK(model_run(world, THREE, NULL, abort_worker, arg ? &by_second : NULL) == 0, "%s: the world could not be run", case_name);
}

/* Another thread aborts rank 0's communicator while all ranks make short calls, none of which waits for long. */
static void *busy_aborter(void *arg)
{
    atomic_int *calls = ((void **)arg)[1];

    while (atomic_load(calls) < 100) sched_yield();
    CHECK(coll_abort(((void **)arg)[0], "enough is enough") == COLL_OK, "%s: coll_abort", case_name);
    return NULL;
}

static int busy_worker(coll_comm *comm, void *arg)
{
    const char *const words[] = { "rank 0 gave up", "enough is enough", NULL };
    const int64_t began = now_ms();
    atomic_int calls = 0;
    void *both[2] = { comm, &calls };
    coll_status status = COLL_OK;
    pthread_t thread;
    int32_t sum = 1;

    (void)arg;
    const bool is_first = coll_rank(comm) == 0;
    if (is_first && pthread_create(&thread, NULL, busy_aborter, both)) return 1;
    while (status == COLL_OK && now_ms() - began < SOON_MS) {
        status = coll_allreduce(comm, &sum, &sum, 1, COLL_I32, COLL_MAX);
        atomic_fetch_add(&calls, 1);
    }
    if (is_first) pthread_join(thread, NULL);
    check_said(comm, status, COLL_ERR_ABORTED, words, "an abort amid short calls");
    return 0;
}

static void busy_case(const void *arg)
{
    (void)arg;
    CHECK(model_run(world, THREE, NULL, busy_worker, NULL) == 0, "%s: the world could not be run", case_name);
}

/* ---- >>ends: a rank that leaves, and one that is late ---- */

/* The last rank leaves; the others wait for it, in a communicator where its number differs. */
static int leaving_worker(coll_comm *comm, void *arg)
{
    const int backwards[] = { 2, 1, 0 };
    const char *const words[] = { "rank 2", NULL, NULL };
    coll_comm *turned = NULL;
    int ranks[4] = { -7, -7, -7, -7 };
    int32_t never = 0;

    (void)arg;
    const coll_status made = coll_create(comm, backwards, THREE, 0, &turned);
    CHECK(made == COLL_OK || made == COLL_ERR_PEER, "%s: coll_create: %s", case_name, coll_error(comm));
    if (!turned || coll_rank(comm) == 2) return coll_free(turned);        /* the others may already have detected it */
    const coll_status status = coll_recv(comm, &never, 1, COLL_I32, 2, 0);
    check_said(comm, status, COLL_ERR_PEER, words, "a rank that leaves");
    check_ended(comm, COLL_ERR_PEER, "a rank has left");
    CHECK(coll_failed_ranks(comm, ranks, 4) == 1 && ranks[0] == 2 && ranks[1] == -7, "%s: %d failed, the first is %d", case_name,
          coll_failed_ranks(comm, NULL, 0), ranks[0]);
    CHECK(coll_failed_ranks(turned, ranks, 4) == 1 && ranks[0] == 0, "%s: it is rank %d of the other", case_name, ranks[0]);
    CHECK(coll_barrier(turned) == COLL_ERR_PEER && coll_free(turned) == COLL_OK, "%s: the other communicator", case_name);
    return 0;
}

/* Rank 1 is in another call, so it is late for this one. */
static int late_worker(coll_comm *comm, void *arg)
{
    const char *const words[] = { "rank 1", NULL, NULL };
    const int64_t began = now_ms();
    float from[3] = { 0, 0, 0 }, to[3];
    const coll_call call = { .kind = COLL_ALLTOALL, .send = from, .recv = to, .count = 1, .type = COLL_F32, .timeout_ms = 1500 };
    int32_t never = 0;
    const coll_status status = coll_rank(comm) == 1 ? coll_recv(comm, &never, 1, COLL_I32, 0, 0) : coll_run(comm, &call);

    (void)arg;
    check_said(comm, status, COLL_ERR_TIMEOUT, words, "a rank that is late");
    CHECK(now_ms() - began < support_scaled(SOON_MS), "%s: it took %d ms", case_name, (int)(now_ms() - began));
    check_ended(comm, COLL_ERR_TIMEOUT, "a rank is late");
    return 0;
}

/* ---- >>all of it ---- */

typedef struct simple_case { const char *part, *name; int (*worker)(coll_comm *comm, void *arg); } simple_case;

static const simple_case simple_cases[] = {
    { "local", "wrong calls", local_worker },
    { "local", "unusual calls that are allowed", allowed_worker },
    { "requests", "requests", requests_worker },
    { "groups", "communicators and graphs", groups_worker },
    { "groups", "edges that do not match", edges_worker },
    { "ends", "a rank that leaves", leaving_worker },
    { "ends", "a rank that is late", late_worker }
};

static void simple_body(const void *arg)
{
    const simple_case *c = arg;
    CHECK(model_run(world, THREE, NULL, c->worker, NULL) == 0, "%s: the world could not be run", case_name);
}

static void run_mismatches(void)
{
    static const int sizes[] = { 2, 3, RANKS_MOST };
    char name[120];

    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2 * MISMATCH_COUNT; k++) {
            const mismatch_run run = { &mismatches[k / 2], sizes[i], k % 2 ? sizes[i] - 1 : 0 };
            snprintf(name, sizeof name, "mismatch of %d: %s, rank %d is odd", run.size, run.row->name, run.odd);
            run_case(mismatch_case, &run, name);
        }
    }
    for (int i = 0; i < MESSAGE_COUNT; i++) run_case(message_case, &message_rows[i], message_rows[i].name);
}

static void run_here(const char *parts)
{
    const bool is_sim = model_is_simulated(world);    /* its ranks share one thread                               */
    const int yes = 1;

    for (size_t i = 0; i < sizeof simple_cases / sizeof *simple_cases; i++)
        if (support_listed(parts, simple_cases[i].part)) run_case(simple_body, &simple_cases[i], simple_cases[i].name);
    if (support_listed(parts, "local") && !strcmp(world, "threads")) run_case(reserved_case, NULL, "reserved members");
    if (support_listed(parts, "mismatch")) run_mismatches();
    if (!support_listed(parts, "threads")) return;
    run_case(abort_case, NULL, "coll_abort");
    run_case(calling_case, NULL, "an operation that calls");
    if (is_sim) return;
    run_case(abort_case, &yes, "coll_abort from another thread");
    run_case(busy_case, NULL, "coll_abort amid short calls");
    run_case(two_threads_case, NULL, "two threads at once");
}

int main(int argc, char **argv)
{
    shows = argc > 1 && !strcmp(argv[argc - 1], "show");
    const int given = argc - shows;
    const char *list = given > 1 ? argv[1] : NULL, *parts = given > 2 ? argv[2] : NULL;

    cases_begin();
    for (int w = 0; w < MODEL_WORLD_COUNT; w++) {
        if (!support_listed(list, model_worlds[w])) continue;
        const char *refusal = model_refusal(model_worlds[w]);
        world = model_worlds[w];
        if (refusal) printf("%s: skipped: %s\n", world, refusal);
        else run_here(parts);
    }
    return CHECK_DONE();
}
