/* test_sentences.c - the exact text of errors: what is wrong, the value, what is allowed, what to do.
 *
 * Mistakes that the caller's library detects, and calls about which ranks disagree: flags by their names, prepared calls by the
 * order in which they were prepared; in errors, in dumps and in explanations.
 *
 *     test_sentences [worlds]
 */
#define _GNU_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"

enum { SECONDS = 120 };

static const char *world = "";
static float x[64], y[64];

/* ---- >>local: sentences of calls that are refused ---- */

static const size_t twos[] = { 2, 2, 2 }, nones[] = { 0, 0, 0 }, bytes[] = { 0, 8, 16 };
static const coll_type floats[] = { COLL_F32, COLL_F32, COLL_F32 }, integers[] = { COLL_I32, COLL_I32, COLL_I32 };
static const coll_list_item overlapping[] = { { x, y, 4, COLL_F32 }, { x + 8, y + 2, 4, COLL_F32 } };

#define ONE_OF_THREE "rank 0 of 3: "
#define BOTH  .send = x, .recv = y
#define FOUR  .count = 4, .type = COLL_F32
#define WIDE  .kind = COLL_ALLTOALLW, BOTH, .send_offsets = bytes, .recv_offsets = bytes

static void nothing(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    (void)in, (void)inout, (void)count, (void)type, (void)context;
}

static const struct { coll_call call; const char *sentence; } refused[] = {
    { { .kind = COLL_ALLREDUCE, BOTH, .count = 4, .type = 77 }, "allreduce: invalid type 77 (see coll_type)" },
    { { .kind = COLL_ALLREDUCE, BOTH, FOUR, .op = (coll_op)50 }, "allreduce: invalid op 50 (see coll_op)" },
    { { .kind = COLL_ALLREDUCE, BOTH, FOUR, .wire = 77 }, "allreduce: invalid wire type 77 (see coll_type)" },
    { { .kind = COLL_ALLREDUCE, BOTH, FOUR, .flags = 0x101 },
      "allreduce: unknown flags 0x100 (see COLL_DETERMINISTIC and those below it)" },
    { { .kind = COLL_ALLREDUCE, BOTH, .count = 4, .type = COLL_MXI8 },
      "allreduce: mxi8 is a type for the wire only (coll_call.wire)" },
    { { .kind = COLL_ALLREDUCE, BOTH, FOUR, .op = COLL_USER }, "allreduce: op is COLL_USER, but fn is NULL: give the function" },
    { { .kind = COLL_ALLREDUCE, BOTH, FOUR, .scale = 1e300 }, "allreduce: scale 1e+300 is not finite in f32" },
    { { .kind = COLL_BROADCAST, .recv = y, FOUR, .root = 9 }, "broadcast: root 9 is out of range for 3 ranks" },
    { { .kind = COLL_SEND, .send = x, FOUR, .peer = 3 }, "send: destination 3 is out of range for 3 ranks" },
    { { .kind = COLL_RECV, .recv = y, FOUR, .peer = -5 }, "recv: source -5 is out of range for 3 ranks" },
    { { .kind = COLL_SENDRECV, BOTH, FOUR, .recv_count = 4, .source = 7 }, "sendrecv: source 7 is out of range for 3 ranks" },
    { { .kind = COLL_SEND, .send = x, FOUR, .root = 2 }, "send: root is 2, but messages have a peer: set peer" },
    { { .kind = COLL_RECV, .recv = y, FOUR, .root = COLL_ANY_SOURCE }, "recv: root is -2, but messages have a peer: set peer" },
    { { .kind = COLL_SEND, .send = x, FOUR, .tag = -7 }, "send: tag -7 is out of range: 0 or more" },
    { { .kind = COLL_RECV, .recv = y, FOUR, .tag = -7 }, "recv: tag -7 is out of range: 0 or more, or COLL_ANY_TAG" },
    { { .kind = COLL_SEND, .send = COLL_IN_PLACE, FOUR },
      "send: send is COLL_IN_PLACE: there is no form in place, give the buffer" },
    { { .kind = COLL_BROADCAST, .recv = COLL_IN_PLACE, FOUR },
      "broadcast: the buffer is COLL_IN_PLACE, which stands for send: give the buffer" },
    { { .kind = COLL_GATHER, .send = COLL_IN_PLACE, FOUR, .root = 1 },
      "gather: send is COLL_IN_PLACE: only the root may be in place, give the buffer" },
    { { .kind = COLL_SCATTER, .send = COLL_IN_PLACE, .recv = y, FOUR },
      "scatter: send is COLL_IN_PLACE: at the root give the buffer, and COLL_IN_PLACE for recv" },
    { { .kind = COLL_SCATTER, .send = COLL_IN_PLACE, .recv = y, FOUR, .root = 1 },
      "scatter: send is COLL_IN_PLACE: only the root sends, give NULL" },
    { { .kind = COLL_SCATTER, .recv = COLL_IN_PLACE, FOUR, .root = 1 },
      "scatter: recv is COLL_IN_PLACE, which stands for send, and for recv at the root: give the buffer" },
    { { .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, FOUR },
      "allreduce: send is COLL_IN_PLACE, but recv is NULL: give the buffer as recv" },
    { { .kind = COLL_ALLREDUCE, .recv = y, FOUR }, "allreduce: send is NULL, with 4 elements: give their address" },
    { { .kind = COLL_ALLREDUCE, .send = x, .recv = x + 1, FOUR },
      "allreduce: send and recv overlap, but not as an operation in place would: give the same buffer, or two apart" },
    { { WIDE, .send_counts = twos, .recv_counts = twos, .send_types = floats, .recv_types = integers },
      "alltoallw: this rank's own block has 2 x f32 in send, but 2 x i32 in recv: make them the same" },
    { { .kind = COLL_ALLTOALLV, BOTH, .type = COLL_F32, .send_counts = twos, .recv_counts = nones },
      "alltoallv: this rank's own block has 2 x f32 in send, but 0 x f32 in recv: make them the same" },
    { { WIDE, .send_counts = twos, .recv_counts = twos, .send_types = floats },
      "alltoallw: the recv types are NULL: give 3, one for each block" },
    { { .kind = COLL_REDUCE_SCATTERV, BOTH, .type = COLL_F32 },
      "reduce_scatterv: the recv counts are NULL: give 3, one for each block" },
    { { .kind = COLL_ALLREDUCE_LIST, .list = overlapping, .list_count = 2 },
      "allreduce_list: buffers of the list overlap one another: keep them apart" },
    { { .kind = COLL_ALLREDUCE_LIST, .list = overlapping, .list_count = -2 },
      "allreduce_list: a list of -2 buffers is out of range: 0 or more" },
    { { .kind = COLL_BROADCAST, .recv = y, FOUR, .residual = x }, "broadcast: there is a residual, but nothing is rounded: leave "
      "it NULL" },
    { { .kind = COLL_SCAN, BOTH, FOUR, .algorithm = "magic" },
      "scan: no algorithm \"magic\" for this call; use gather, transposed, census, chain" },
    { { .kind = COLL_REDUCE_SCATTER, BOTH, FOUR, .flags = COLL_DETERMINISTIC, .algorithm = "ring" },
      "reduce_scatter: no algorithm \"ring\" for this call: its bits are not those of COLL_DETERMINISTIC or "
      "COLL_REPRODUCIBLE; use gather, tree, direct" },
    { { .kind = COLL_ALLREDUCE, BOTH, FOUR, .op = COLL_USER, .fn = nothing, .not_commutative = true, .algorithm = "ring" },
      "allreduce: no algorithm \"ring\" for this call: it does not keep the order of the ranks (not_commutative); "
      "use gather, direct, shares, tree, dbtree" },
    { { .kind = COLL_ALLREDUCE, BOTH, FOUR, .algorithm = "ring:x" },
      "allreduce: no algorithm \"ring:x\" for this call: what follows the colon is not a number that it takes; use gather, "
      "direct, shares, circulant, ring, tree, dbtree" },
    { { .kind = COLL_EXSCAN, BOTH, FOUR, .op = COLL_AVG },
      "exscan: avg is not defined for scans: ranks would divide by different numbers" },
    { { .kind = COLL_ALLGATHERV, .send = y + 2, .recv = y, .count = 2, .recv_counts = twos, .type = COLL_F32 },
      "allgatherv: blocks that are received overlap one another, or what is sent: keep them apart; in place, send is "
      "COLL_IN_PLACE or this rank's block of recv" },
    { { .kind = COLL_ALLTOALLV, .send = y + 1, .recv = y, .send_counts = twos, .recv_counts = twos, .type = COLL_F32 },
      "alltoallv: blocks that are received overlap one another, or what is sent: keep them apart; in place, send is "
      "COLL_IN_PLACE" },
    { { .kind = (coll_kind)99 }, "invalid kind 99 (see coll_kind)" },
};

static void refuse_all(coll_comm *comm)
{
    const int ranks[] = { 0, 0 }, far[] = { 9 };
    coll_comm *out;

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char whole[300];
        snprintf(whole, sizeof whole, ONE_OF_THREE "%s", refused[i].sentence);
        const coll_status status = coll_run(comm, &refused[i].call);
        const there_lack lack = there_call(&refused[i].call);
        const bool is_said = (status == COLL_ERR_ARGUMENT || status == COLL_ERR_UNSUPPORTED) && !strcmp(coll_error(comm), whole);
        CHECK(is_said || there_refuses(&lack, status, coll_error(comm)), "%s: status %d, \"%s\", not \"%s\"", world,
              (int)status, coll_error(comm), whole);
    }
#define SAYS(call, sentence)                                                                                       \
    CHECK((call) == COLL_ERR_ARGUMENT && !strcmp(coll_error(comm), ONE_OF_THREE sentence), "%s: \"%s\"", world, coll_error(comm))
    SAYS(coll_split(comm, -5, 0, &out), "split: color -5 is out of range: 0 or more, or COLL_COLOR_NONE");
    SAYS(coll_create(comm, ranks, 2, 0, &out), "create: rank 0, at 1 of the list, is named twice");
    SAYS(coll_create(comm, far, 1, 0, &out), "create: rank 9, at 0 of the list, is out of range");
    SAYS(coll_create(comm, ranks, 0, 0, &out), "create: count 0 is out of range: 1 or more");
    SAYS(coll_create(comm, ranks, 1, -4, &out), "create: tag -4 is out of range: 0 or more");
    SAYS(coll_create(comm, NULL, 1, 0, &out), "create: the list of ranks is NULL");
    if (COLL__HAS_NEIGHBOR) {
        SAYS(coll_neighbors(comm, far, 1, ranks, 1), "neighbors: source 9, at 0 of the list, is out of range for 3 ranks");
        SAYS(coll_neighbors(comm, ranks, 1, NULL, 2), "neighbors: the list of 2 destinations is NULL");
    } else {
        CHECK(coll_neighbors(comm, far, 1, ranks, 1) == COLL_ERR_UNSUPPORTED && there_says(coll_error(comm), THERE_NO_NEIGHBORS),
              "%s: \"%s\"", world, coll_error(comm));
    }
#undef SAYS
    int index;
    CHECK(coll_wait_all(-3, NULL) == COLL_ERR_ARGUMENT
          && !strcmp(coll_error(NULL), "coll_wait_all: count -3 is out of range: 0 or more"), "%s", coll_error(NULL));
    CHECK(coll_wait_any(2, NULL, &index) == COLL_ERR_ARGUMENT
          && !strcmp(coll_error(NULL), "coll_wait_any: the list of 2 requests is NULL"), "%s", coll_error(NULL));
}

/* Blocks of no elements have no type that could differ, not those of this rank and not those of others. */
static void exchange_nothing(coll_comm *comm)
{
    coll_call call = { WIDE, .send_counts = nones, .recv_counts = nones, .send_types = floats, .recv_types = integers };
    const there_lack lack = there_call(&call);
    const coll_status status = coll_run(comm, &call);

    CHECK(lack.count ? there_refuses(&lack, status, coll_error(comm)) : status == COLL_OK, "%s: blocks of no elements: %s", world,
          coll_error(comm));
}

static int local_worker(coll_comm *comm, void *arg)
{
    (void)arg;
    if (coll_rank(comm) == 0) refuse_all(comm);
    exchange_nothing(comm);
    return coll_barrier(comm);
}

/* ---- >>mismatch: errors of calls about which ranks disagree ---- */

#define SUM .kind = COLL_ALLREDUCE, FOUR
enum { ALL_FLAGS = COLL_DETERMINISTIC | COLL_SATURATE | COLL_REPRODUCIBLE | COLL_STOCHASTIC | COLL_DETECT_OVERFLOW
               | COLL_ROUND_TWICE };

typedef struct mismatch { coll_call usual, odd; int prepared; const char *words[2], *not_word; } mismatch;

static const mismatch mismatches[] = {
    { { SUM }, { SUM, .flags = COLL_DETERMINISTIC | COLL_SATURATE }, 0, { "(sum) with COLL_DETERMINISTIC|COLL_SATURATE" },
      "compare" },
    { { SUM, .flags = COLL_DETERMINISTIC }, { SUM, .flags = COLL_DETERMINISTIC | COLL_DETECT_OVERFLOW }, 0,
      { "(sum) with COLL_DETECT_OVERFLOW" }, "COLL_DETERMINISTIC" },
    { { SUM, .flags = COLL_SATURATE }, { SUM, .flags = COLL_REPRODUCIBLE }, 0, { "with COLL_SATURATE", "with COLL_REPRODUCIBLE" },
      "|" },
    { { SUM }, { SUM, .flags = ALL_FLAGS }, 0, { "COLL_DETERMINISTIC|", "|COLL_ROUND_TWICE" }, "options" },
    { { SUM }, { SUM, .scale = 3 }, 0, { "(sum) with scale" }, "COLL_" },
    { { SUM, .scale = 2 }, { SUM, .scale = 3 }, 0, { "(sum) with scale", "(sum) with another scale" }, "COLL_" },
    { { SUM, .scale = 2, .flags = COLL_SATURATE }, { SUM, .scale = 2 }, 0, { "(sum) with COLL_SATURATE" }, "scale" },
    { { SUM, .flags = COLL_STOCHASTIC, .seed = 1 }, { SUM, .flags = COLL_STOCHASTIC, .seed = 2 }, 0,
      { "(sum) with seed", "(sum) with another seed" }, "COLL_" },
    { { SUM, .accumulate = COLL_F64, .scale = 2 }, { SUM, .accumulate = COLL_F64, .scale = 3 }, 0,
      { "with scale|accumulate", "with another scale or accumulate" }, "COLL_" },
    { { SUM }, { SUM, .accumulate = COLL_F64 }, 0, { "(sum) with accumulate" }, "scale" },
#if COLL__HAS_LEAVES
    { { SUM }, { SUM, .leaves = 1 }, 0, { "(sum) with leaves" }, "scale" },
#endif
    { { SUM, .flags = COLL_SATURATE }, { SUM, .algorithm = "gather" }, 0, { "with COLL_SATURATE", "with algorithm" }, "(prep" },
    { { SUM, .algorithm = "ring" }, { SUM, .algorithm = "gather" }, 0, { "with algorithm", "with another algorithm" }, "COLL_" },
    /* a rank that names an algorithm uses messages; if ranks end the call early, another call may be the first to differ */
#define NAMED(of, kinds, by, word) { { of, .kind = kinds }, { of, .kind = kinds, .algorithm = by }, 0, { word }, "COLL_" }
#define ROOTED FOUR, .root = 2
    NAMED(ROOTED, COLL_BROADCAST, "tree:3", NULL), NAMED(ROOTED, COLL_REDUCE, "direct", NULL),
    NAMED(ROOTED, COLL_GATHER, "tree", NULL), NAMED(ROOTED, COLL_SCATTER, "tree", NULL),
    NAMED(FOUR, COLL_SCAN, "chain", NULL), NAMED(FOUR, COLL_EXSCAN, "gather", NULL),
    NAMED(FOUR, COLL_ALLGATHER, "ring", "with algorithm"), NAMED(FOUR, COLL_ALLTOALL, "direct", "with algorithm"),
    NAMED(FOUR, COLL_REDUCE_SCATTER, "ring", "with algorithm"), NAMED(.count = 0, COLL_BARRIER, "tree", "with algorithm"),
    { { .kind = COLL_BROADCAST, ROOTED, .algorithm = "tree" }, { .kind = COLL_BROADCAST, ROOTED }, 0, { NULL }, "COLL_" },
    { { SUM }, { SUM, .op = COLL_MAX }, 2, { "#1 (prepared call 2) of 4 x f32 (sum)", "#1 (prepared call 2) of 4 x f32 (max)" },
      "call 1" },
};
enum { MISMATCHES = sizeof mismatches / sizeof *mismatches };

static coll_status mismatch_start(coll_comm *comm, coll_call call, int prepared)
{
    coll_request *first = NULL, *second = NULL;
    float in[12] = { 1, 2, 3, 4 }, out[12];       /* blocks of 3 ranks                                        */
    coll_call before = { .kind = COLL_ALLREDUCE, .send = in, .recv = out, FOUR };

    call.send = in;
    call.recv = out;
    if (!prepared) return coll_run(comm, &call);
    CHECK(coll_prepare(comm, &before, &first) == COLL_OK && coll_prepare(comm, &call, &second) == COLL_OK, "%s: prepared: %s",
          world, coll_error(comm));
    coll_status status = coll_restart(second);
    if (status == COLL_OK) status = coll_wait(second);
    coll_request_free(first);
    coll_request_free(second);
    return status;
}

/* An invalid call of one rank is no call about which ranks disagree. */
static int check_left_out(coll_comm *comm, const coll_call *call, const there_lack *lack)
{
    const coll_status status = mismatch_start(comm, *call, 0);

    CHECK(there_refuses(lack, status, coll_error(comm)), "%s: \"%s\" without %s", world, coll_error(comm), lack->names[0]);
    return coll_barrier(comm);
}

static int mismatch_worker(coll_comm *comm, void *arg)
{
    const mismatch *m = arg;
    const there_lack lack = there_call(&m->odd);

    if (lack.count) return check_left_out(comm, &m->odd, &lack);
    coll_status status = mismatch_start(comm, coll_rank(comm) == 1 ? m->odd : m->usual, m->prepared);

    /* a rank may have had all it needed for a call before the disagreement was detected */
    for (int i = 0; i < 3 && status == COLL_OK; i++) status = coll_barrier(comm);
    const char *said = coll_error(comm), *cause = strstr(said, " called ");
    CHECK(status == COLL_ERR_MISMATCH && cause, "%s: row %d: status %d, \"%s\"", world, (int)(m - mismatches), (int)status, said);
    for (int i = 0; cause && i < 2; i++)
        CHECK(!m->words[i] || strstr(cause, m->words[i]), "%s: row %d: \"%s\" lacks \"%s\"", world, (int)(m - mismatches), said,
              m->words[i]);
    CHECK(!cause || !strstr(cause, m->not_word), "%s: row %d: \"%s\" has \"%s\"", world, (int)(m - mismatches), said,
          m->not_word);
    return 0;
}

/* ---- >>dumps and explanations: the same words ---- */

static void put_line(void *file, const char *line) { fprintf(file, "%s\n", line); }

static bool dumped(coll_comm *comm, const char *words)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);

    if (!file) return false;
    coll_dump(comm, put_line, file);
    fclose(file);
    if (!COLL__HAS_RECORDER) words = "nothing is recorded, for this program was compiled with " COLL__PROFILE;
    const bool has = strstr(text, words) != NULL;
    if (!has) fprintf(stderr, "no \"%s\" in\n%s", words, text);
    free(text);
    return has;
}

static int dump_worker(coll_comm *comm, void *arg)
{
    float in[4] = { 1, 2, 3, 4 }, out[4], two[4];
    coll_call call = { .kind = COLL_ALLREDUCE, .send = in, .recv = out, FOUR, .flags = COLL_DETERMINISTIC | COLL_SATURATE,
                       .name = "grad" };
    coll_request *r[3] = { NULL };
    char text[400];

    (void)arg;
    CHECK(coll_explain(comm, &call, text, sizeof text) > 0
          && strstr(text, "allreduce of 4 x f32 (sum) with COLL_DETERMINISTIC|COLL_SATURATE on 3 ranks"), "%s: \"%s\"", world,
          text);
    call.algorithm = "ring", call.flags = 0;
    CHECK(!COLL__HAS_CHOICE || (coll_explain(comm, &call, text, sizeof text) > 0
                                && strstr(text, "; it is named, and not chosen beside ")), "%s: \"%s\"", world, text);
    call.algorithm = NULL, call.flags = COLL_DETERMINISTIC | COLL_SATURATE;
    CHECK(coll_prepare(comm, &call, &r[0]) == COLL_OK, "%s: %s", world, coll_error(comm));
    call.recv = two;
    CHECK(coll_prepare(comm, &call, &r[1]) == COLL_OK, "%s: %s", world, coll_error(comm));
    for (int i = 0; i < 2; i++) CHECK(coll_restart(r[1]) == COLL_OK && coll_wait(r[1]) == COLL_OK, "%s", coll_error(comm));
    CHECK(coll_restart(r[0]) == COLL_OK && coll_wait(r[0]) == COLL_OK, "%s: %s", world, coll_error(comm));
    call.scale = 0.5;
    CHECK(coll_start(comm, &call, &r[2]) == COLL_OK && coll_wait(r[2]) == COLL_OK, "%s: %s", world, coll_error(comm));
    CHECK(dumped(comm, "allreduce #2 (prepared call 2) of 4 x f32 (sum) with COLL_DETERMINISTIC|COLL_SATURATE \"grad\": done "
                 "after"), "%s: the second call", world);
    CHECK(dumped(comm, "allreduce #1 (prepared call 1) of 4 x f32"), "%s: the first call", world);
    CHECK(dumped(comm, "(sum) with COLL_DETERMINISTIC|COLL_SATURATE|scale"), "%s: a scale", world);
    for (int i = 0; i < 3; i++) coll_request_free(r[i]);
    return coll_barrier(comm);
}

/* ---- >>log: the end of a communicator is a warning, once a rank ---- */

static int ends_said;

static void count_end(void *context, coll_log_level level, const char *line)
{
    (void)context;
    if (level == COLL_LOG_WARN && strstr(line, "rank 1 gave up: enough")) __atomic_fetch_add(&ends_said, 1, __ATOMIC_RELAXED);
}

/* The program looks at no status. */
static int ending_worker(coll_comm *comm, void *arg)
{
    coll_comm *twin = NULL;

    (void)arg;
    (void)coll_dup(comm, &twin);
    if (coll_rank(comm) == 1) (void)coll_abort(comm, "enough");
    for (int i = 0; i < 3; i++) (void)coll_barrier(comm), (void)coll_barrier(twin);
    coll_free(twin);
    return 0;
}

/* ---- >>threads: who is inside is reported to the other one ---- */

static coll_comm *entered;

static void enter_twice(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    int32_t one = 1;

    (void)in, (void)inout, (void)count, (void)type;
    *(coll_status *)context = coll_allreduce(entered, &one, &one, 1, COLL_I32, COLL_SUM);
}

static int twice_worker(coll_comm *comm, void *arg)
{
    coll_status status = COLL_OK;
    float in = 1, out;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &in, .recv = &out, .count = 1, .type = COLL_F32, .op = COLL_USER,
                             .fn = enter_twice, .fn_context = &status };

    (void)arg;
    CHECK(!*coll_error(comm), "a communicator without an error: \"%s\"", coll_error(comm));
    if (coll_rank(comm) == 0) entered = comm;
    CHECK(coll_barrier(comm) == COLL_OK && coll_run(comm, &call) == COLL_OK, "%s", coll_error(comm));
    if (status) CHECK(status == COLL_ERR_ARGUMENT && strstr(coll_error(entered), "must not use communicators"), "\"%s\"",
                      coll_error(entered));
    return coll_barrier(comm);
}

/* ---- >>variables ---- */

static int typos;

static void count_typos(void *context, coll_log_level level, const char *line)
{
    (void)context;
    typos += level == COLL_LOG_WARN && (strstr(line, "COLL_STRAT_TIMEOUT_MS is not read: did you mean COLL_START_TIMEOUT_MS?")
                                        || strstr(line, "COLL_RNAK is not read: did you mean COLL_RANK?")
                                        || strstr(line, "COLL_LANE is not read: did you mean COLL_LANES?"));
}

static void check_variables(void)
{
    const coll_config shut = { .log_level = COLL_LOG_NONE };
    coll_config wrong = { .size = 2, .rank = 1, .address = "127.0.0.1:70000", .log_level = COLL_LOG_NONE };
    coll_comm *comm = NULL;

    setenv("COLL_SPIN_US", "-1", 1);
    CHECK(coll_init_threads(1, &comm, &shut) == COLL_OK, "COLL_SPIN_US=-1: %s", coll_error(NULL));
    coll_free(comm);
    unsetenv("COLL_SPIN_US");
    CHECK(coll_init(&comm, &wrong) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "its port is out of range: 1 to 65535"),
          "a port of 70000: \"%s\"", coll_error(NULL));
    const coll_config told = { .log = count_typos };
    setenv("COLL_STRAT_TIMEOUT_MS", "1", 1), setenv("COLL_RNAK", "1", 1), setenv("COLL_LANE", "1", 1);
    setenv("COLL_OF_THE_PROGRAM", "1", 1), setenv("COLL_TUNING", "", 1);
#if defined(COLL_PORTABLE) || !COLL__HAS_ENV || !COLL__HAS_TEXT || !COLL__IS_WHOLE
    const int expected = 0;                       /* needs `environ`, which not every system has in a library */
#else
    const int expected = 3;
#endif
    CHECK(coll_init_threads(1, &comm, &told) == COLL_OK && typos == expected, "%d typing errors are logged, not %d",
          typos, expected);
    coll_free(comm);
    unsetenv("COLL_STRAT_TIMEOUT_MS"), unsetenv("COLL_RNAK"), unsetenv("COLL_LANE"), unsetenv("COLL_OF_THE_PROGRAM");
    unsetenv("COLL_TUNING");
    wrong.address = "127.0.0.1:seven";
    CHECK(coll_init(&comm, &wrong) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "not of the form host:port"), "\"%s\"",
          coll_error(NULL));
}

static void check_end_is_said(void)
{
    const coll_config config = { .log = count_end };

    CHECK(coll_spawn(3, ending_worker, NULL, &config) == 0, "threads: a program that looks at no status");
    CHECK(ends_said == 3, "threads: the end was said %d times, to 3 ranks", ends_said);
}

/* ---- >>main ---- */

static void run(const char *what, int (*worker)(coll_comm *comm, void *arg), const void *arg)
{
    const int result = support_run(world, 3, worker, (void *)(uintptr_t)arg);

    CHECK(result == 0, "%s: %s: %d", world, what, result);
}

int main(int argc, char **argv)
{
    support_limit(SECONDS, NULL);
    for (int at = 0; (world = support_world_next(argc > 1 ? argv[1] : NULL, &at)) != NULL;) {
        run("refused", local_worker, NULL);
        run("dumps", dump_worker, NULL);
        for (int k = 0; k < MISMATCHES; k++) run("mismatch", mismatch_worker, &mismatches[k]);
        const coll_config limited = { .stall_timeout_ms = 1000 };     /* virtual time costs nothing                         */
        for (int k = 0; k < MISMATCHES && !strcmp(world, "sim"); k++)
            CHECK(support_run_config(world, 3, &limited, mismatch_worker, (void *)(uintptr_t)&mismatches[k]) == 0, "row %d", k);
    }
    check_end_is_said();
    check_variables();
    CHECK(coll_spawn(2, twice_worker, NULL, NULL) == 0, "two of them");
    return CHECK_DONE();
}
