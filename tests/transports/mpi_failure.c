/* mpi_failure.c - what goes wrong over MPI: each case ends on every rank with a status and a sentence, and none hangs.
 *
 *     mpiexec -n N mpi_failure CASE          N >= 2; the cases are in the table below
 *
 * The communicator does not survive most of these, so each case is a job of its own.  Every rank prints what it has counted:
 * after some of them MPI has nothing left to add it up with. */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "mpi_main.h"

static int rank, size;
static int64_t x[4], y[4];

static bool is_native(void) { const char *mode = getenv("COLL_MPI"); return !mode || strcmp(mode, "messages") != 0; }

/* All survivors have the same cause. */
static void check_same(const coll_comm *comm, coll_status status)
{
    char own[512], first[512];
    const char *at = strstr(coll_error(comm), ": rank");
    int statuses[2] = { (int)status, -(int)status };

    snprintf(own, sizeof own, "%s", at ? at : coll_error(comm));
    memcpy(first, own, sizeof first);
    MPI_Bcast(first, (int)sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, statuses, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    CHECK(statuses[0] == -statuses[1], "statuses %d to %d", statuses[0], -statuses[1]);
    CHECK(!strcmp(strrchr(own, ':') ? strrchr(own, ':') : own, strrchr(first, ':') ? strrchr(first, ':') : first),
          "rank %d: \"%s\", but rank 0: \"%s\"", rank, own, first);
}

/* Ranks make different calls of one number, one of them nothing for MPI, and all of them wait. */
static void mismatch(coll_comm *comm)
{
    const coll_status status = rank == 1 ? coll_allreduce(comm, x, y, 4, COLL_I8, COLL_SUM) : coll_barrier(comm);

    CHECK(status == COLL_ERR_MISMATCH, "rank %d: status %d: %s", rank, (int)status, coll_error(comm));
    CHECK(strstr(coll_error(comm), "allreduce #1 of 4 x i8") && strstr(coll_error(comm), "barrier #1"), "%s", coll_error(comm));
    check_same(comm, status);
}

/* Over messages every call is compared, also one that would complete. */
static void counts(coll_comm *comm)
{
    const coll_status status = coll_allreduce(comm, x, y, rank == 1 ? 3 : 4, COLL_I64, COLL_SUM);

    if (is_native() && status == COLL_OK) return;
    CHECK(status == COLL_ERR_MISMATCH, "rank %d: status %d: %s", rank, (int)status, coll_error(comm));
    if (!is_native()) CHECK(strstr(coll_error(comm), "3 x i64") && strstr(coll_error(comm), "4 x i64"), "%s", coll_error(comm));
}

static void aborted(coll_comm *comm)
{
    coll_status status = COLL_OK;

    if (rank == 1) coll_abort(comm, "on purpose");
    for (int i = 0; i < 1000 && status == COLL_OK; i++) status = coll_allreduce(comm, x, y, 4, COLL_I64, COLL_SUM);
    CHECK(status == COLL_ERR_ABORTED, "rank %d: status %d: %s", rank, (int)status, coll_error(comm));
    CHECK(strstr(coll_error(comm), "rank 1 gave up: on purpose"), "%s", coll_error(comm));
    check_same(comm, status);
}

/* A rank leaves normally; a rank that still needs it gets an error, in calls that MPI carries out and in those of the engine. */
static void left(coll_comm *comm, unsigned flags)
{
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 4, .type = COLL_F64, .flags = flags };

    coll_status status = coll_barrier(comm);

    CHECK(status == COLL_OK || (rank == 2 && status == COLL_ERR_PEER), "rank %d: status %d: %s", rank, (int)status,
          coll_error(comm));                      /* the report may overtake the last message of the barrier  */
    if (rank == 1) return;                        /* main frees it                                            */
    if (status == COLL_OK) status = coll_run(comm, &call);
    CHECK(status == COLL_ERR_PEER, "rank %d: status %d: %s", rank, (int)status, coll_error(comm));
    CHECK(strstr(coll_error(comm), "rank 1"), "%s", coll_error(comm));
}

static void left_native(coll_comm *comm) { left(comm, 0); }
static void left_engine(coll_comm *comm) { left(comm, COLL_DETERMINISTIC); }

/* A derived communicator is freed by one rank while the others are in a call on it. */
static void left_derived(coll_comm *comm)
{
    coll_comm *copy = NULL;

    CHECK(coll_dup(comm, &copy) == COLL_OK && coll_barrier(copy) == COLL_OK, "%s", coll_error(comm));
    const coll_status status = rank == 1 ? COLL_ERR_PEER : coll_allreduce(copy, x, y, 4, COLL_I64, COLL_SUM);
    coll_free(copy);
    CHECK(status == COLL_ERR_PEER, "rank %d: status %d", rank, (int)status);
    if (rank != 1) CHECK(strstr(coll_error(comm), "rank 1"), "%s", coll_error(comm));
    if (rank == 1) while (coll_progress(comm) == COLL_OK) sched_yield();  /* the error reaches all ranks              */
}

/* Pending requests end when the communicator is freed, and within its bound. */
static void pending(coll_comm *comm)
{
    coll_request *one = NULL, *two = NULL;
    coll_comm *copy = NULL;

    const coll_status made = coll_dup(comm, &copy);               /* the failure of rank 1 may arrive before */
    CHECK(made == COLL_OK || (rank != 1 && made == COLL_ERR_PEER), "rank %d: status %d: %s", rank, (int)made, coll_error(comm));
    if (rank == 1 && made == COLL_OK) {
        CHECK(coll_iallreduce(copy, x, y, 4, COLL_I64, COLL_SUM, &one) == COLL_OK, "%s", coll_error(copy));
        CHECK(coll_irecv(copy, x, 1, COLL_I64, 0, 7, &two) == COLL_OK, "%s", coll_error(copy));
        const double begin = support_seconds();
        coll_free(copy);
        CHECK(support_seconds() - begin < 10, "coll_free took %.1f s", support_seconds() - begin);
        CHECK(coll_test(one) == COLL_ERR_ABORTED && coll_test(two) == COLL_ERR_ABORTED, "%d %d", (int)coll_test(one),
              (int)coll_test(two));
        coll_request_free(one);
        coll_request_free(two);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 1) coll_free(copy);
    CHECK(coll_barrier(comm) == COLL_ERR_PEER && strstr(coll_error(comm), "rank 1"), "%s", coll_error(comm));
}

static void late(coll_comm *comm)
{
    coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 4, .type = COLL_I64, .timeout_ms = 200 };
    const coll_status status = rank == 1 ? COLL_ERR_TIMEOUT : coll_run(comm, &call);

    CHECK(status == COLL_ERR_TIMEOUT, "rank %d: status %d: %s", rank, (int)status, coll_error(comm));
    while (coll_progress(comm) == COLL_OK) sched_yield();
    CHECK(coll_barrier(comm) == COLL_ERR_TIMEOUT, "%s", coll_error(comm));
}

/* A call that MPI does not do right is refused, on all ranks, and has no effect. */
static void refused(coll_comm *comm)
{
    static const struct { coll_type type; coll_op op; } cells[] = {
        { COLL_I8, COLL_SUM }, { COLL_U16, COLL_SUM }, { COLL_U32, COLL_MAX }, { COLL_F32, COLL_MAX }, { COLL_BF16, COLL_SUM },
        { COLL_C64, COLL_SUM }, { COLL_F64, COLL_AVG }, { COLL_F64_I32, COLL_MINLOC } };
    char text[600];

    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 2, .type = cells[i].type,
                                 .op = cells[i].op };
        for (int k = 0; k < 3; k++) {             /* the next ones as well                                    */
            const coll_status status = k == 1 ? coll_run(comm, &call) : coll_allreduce(comm, x, y, 2, call.type, call.op);
            CHECK(status == COLL_ERR_UNSUPPORTED && strstr(coll_error(comm), "COLL_MPI=native"), "%s: status %d: %s",
                  coll_type_name(cells[i].type), (int)status, coll_error(comm));
        }
    }
    for (unsigned flag = 1; flag <= COLL_ROUND_TWICE; flag *= 2) {        /* integers have no need of any     */
        coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 2, .type = COLL_I64, .flags = flag };
        CHECK(coll_explain(comm, &call, text, sizeof text) > 0 && strstr(text, "by MPI"), "flag %#x: %s", flag, text);
        call.type = COLL_F32;
        const bool is_idle = flag == COLL_DETECT_OVERFLOW;
        const coll_status status = coll_run(comm, &call);
        CHECK(is_idle ? status == COLL_OK : status == COLL_ERR_UNSUPPORTED && strstr(coll_error(comm), "MPI knows no flags"),
              "flag %#x: %s", flag, coll_error(comm));
    }
    const coll_call plain = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 4, .type = COLL_I64 };
    CHECK(coll_explain(comm, &plain, text, sizeof text) > 0 && strstr(text, "by MPI"), "%s", text);
    CHECK(coll_run(comm, &plain) == COLL_OK, "%s", coll_error(comm));
}

/* MPI_Finalize before coll_free: a status, and coll_free is safe. */
static void finalized(coll_comm *comm)
{
    coll_comm *copy = NULL, *none = NULL;

    CHECK(coll_dup(comm, &copy) == COLL_OK, "%s", coll_error(comm));
    MPI_Finalize();
    CHECK(coll_allreduce(comm, x, y, 4, COLL_I64, COLL_SUM) < 0, "a call after MPI_Finalize");
    CHECK(strstr(coll_error(comm), "finalised"), "%s", coll_error(comm));
    CHECK(coll_free(copy) == COLL_OK && coll_free(comm) == COLL_OK, "coll_free after MPI_Finalize");
    CHECK(coll_wrap_mpi(MPI_COMM_WORLD, &none) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "finalised"), "%s",
          coll_error(NULL));
}

static void arguments(coll_comm *comm)
{
    MPI_Comm half, inter;
    coll_comm *none = NULL;

    CHECK(coll_wrap_mpi(MPI_COMM_NULL, &none) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "NULL"), "%s", coll_error(NULL));
    CHECK(coll_wrap_mpi(MPI_COMM_WORLD, NULL) == COLL_ERR_ARGUMENT, "out is NULL");
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0, 3, &inter);
    CHECK(coll_wrap_mpi(inter, &none) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "intercommunicator"), "%s",
          coll_error(NULL));
    CHECK(coll_wrap_mpi(half, &none) == COLL_OK && coll_size(none) == (rank == 0 ? 1 : size - 1), "%s", coll_error(NULL));
    coll_free(none);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
}

/* coll_config.mpi selects the way, and COLL_MPI is then ignored. */
static void configured(coll_comm *comm)
{
    static const struct { const char *mpi, *says; } ways[] = {
        { "auto", "by MPI" }, { "native", "by MPI" }, { "messages", "by messages" }, { "blocking", "by MPI" } };
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 4, .type = COLL_I64 };
    const coll_call odd = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 4, .type = COLL_I8 };
    coll_comm *made = NULL;
    char text[600];

    setenv("COLL_MPI", "fast", 1);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const coll_config config = { .transport = "mpi", .mpi = ways[i].mpi };
        CHECK(coll_init(&made, &config) == COLL_OK, "mpi \"%s\": %s", ways[i].mpi, coll_error(NULL));
        CHECK(coll_explain(made, &call, text, sizeof text) > 0 && strstr(text, ways[i].says), "mpi \"%s\": %s", ways[i].mpi,
              text);
        const coll_status status = coll_run(made, &odd);
        CHECK(status == (i == 1 ? COLL_ERR_UNSUPPORTED : COLL_OK), "mpi \"%s\": %d: %s", ways[i].mpi, status, coll_error(made));
        CHECK(coll_barrier(made) == COLL_OK && coll_free(made) == COLL_OK, "mpi \"%s\"", ways[i].mpi);
    }
    const coll_config wrong = { .transport = "mpi", .mpi = "fast" };
    CHECK(coll_init(&made, &wrong) == COLL_ERR_ARGUMENT
          && strstr(coll_error(NULL), "mpi \"fast\" is none of auto, native, messages, blocking"), "%s", coll_error(NULL));
    const coll_config unlike = { .transport = "mpi", .mpi = rank == 0 ? "auto" : "messages" };
    CHECK(coll_init(&made, &unlike) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "COLL_MPI differs among the ranks"), "%s",
          coll_error(NULL));
    const coll_config variable = { .transport = "mpi" };
    CHECK(coll_init(&made, &variable) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), "COLL_MPI=fast"), "%s", coll_error(NULL));
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
}

/* ---- >>running ---- */

static const struct failure_case { const char *name; void (*run)(coll_comm *comm); } failures[] = {
    { "mismatch", mismatch }, { "counts", counts }, { "aborted", aborted }, { "left-native", left_native },
    { "left-engine", left_engine }, { "left-derived", left_derived }, { "pending", pending },
    { "late", late }, { "refused", refused }, { "arguments", arguments }, { "configured", configured },
    { "finalized", finalized },
};

int main(int argc, char **argv)
{
    coll_comm *comm = NULL;
    int is_finalized = 0;
    const char *name = argc > 1 ? argv[1] : "";

    if (!mpi_begin(&argc, &argv, &comm)) return 1;
    rank = coll_rank(comm);
    size = coll_size(comm);
    snprintf(case_name, sizeof case_name, "%s", name);
    bool is_known = false;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        if (strcmp(name, failures[i].name)) continue;
        is_known = true;
        failures[i].run(comm);
    }
    CHECK(is_known, "there is no case \"%s\"", name);
    MPI_Finalized(&is_finalized);
    if (!is_finalized) CHECK(coll_free(comm) == COLL_OK, "coll_free");
    const char *path = getenv("COLL_TEST_SUMS");  /* mpiexec mixes lines that several ranks write               */
    FILE *sums = path ? fopen(path, "a") : NULL;
    fprintf(sums ? sums : stdout, "%d passed, %d failed\n", check__passed, check__failed);
    if (sums) fclose(sums);
    fflush(NULL);
    if (is_finalized) return check__failed != 0;
    MPI_Finalize();
    return check__failed != 0;
}
