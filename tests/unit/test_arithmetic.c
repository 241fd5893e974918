/* test_arithmetic.c - ranks whose arithmetic differs refuse each other: in each case every rank sets the rounding mode, or
 * what to do with subnormals, before it joins.
 *
 *     test_arithmetic */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include <fenv.h>

enum { RANKS = 3, TIMEOUT_MS = 2000 };

typedef enum mode { USUAL, UP, DOWN, TO_ZERO, FLUSHING, MODES } mode;

static const char *const mode_says[MODES] = { "keeps to IEEE 754", "rounds up", "rounds down", "rounds toward zero",
                                              "flushes subnormals, ignores subnormals" };

/* Set the mode of this thread; false: the machine does not have it, or the test cannot set it. */
static bool set_mode(mode m)
{
    static const int rounding[MODES] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST };

#if defined(__SSE2__)
    const unsigned flushing = 0x8040, others = __builtin_ia32_stmxcsr() & ~flushing;
    __builtin_ia32_ldmxcsr(m == FLUSHING ? others | flushing : others);
#else
    if (m == FLUSHING) return false;
#endif
    return !fesetround(rounding[m]);
}

/* One rank: its configuration, and its result. */
typedef struct rank {
    pthread_t   thread;
    mode        mode;
    coll_config config;
    coll_status status;
    bool        is_right;
    char        sentence[512];
} rank;

/* The sum of a rank for each is the same everywhere, whatever the mode: subnormals, and what rounds. */
static bool is_equal_everywhere(coll_comm *comm)
{
    double x[2] = { 0x1p-1070, 1.0 / (3 + coll_rank(comm)) }, all[2 * RANKS];

    if (coll_allreduce(comm, x, x, 2, COLL_F64, COLL_SUM) || coll_allgather(comm, x, all, 2, COLL_F64)) return false;
    for (int i = 1; i < RANKS; i++)
        if (memcmp(all, all + 2 * i, sizeof x)) return false;
    return true;
}

static void *rank_main(void *arg)
{
    rank *r = arg;
    coll_comm *comm = NULL;

    (void)set_mode(r->mode);
    r->status = coll_init(&comm, &r->config);
    snprintf(r->sentence, sizeof r->sentence, "%s", r->status ? coll_error(NULL) : "");
    r->is_right = comm && is_equal_everywhere(comm);
    coll_free(comm);
    (void)set_mode(USUAL);
    return NULL;
}

static void meet(rank *ranks, const mode *modes, const char *security)
{
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank){ .mode = modes[i] };
        ranks[i].config = (coll_config){ .transport = "tcp", .rank = i, .size = RANKS, .address = address,
                                         .tcp = { .security = security },
                                         .start_timeout_ms = TIMEOUT_MS, .log_level = COLL_LOG_ERROR };
        if (strstr(security, "key")) ranks[i].config.tcp.key = "a key that is long enough";
        pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(ranks[i].thread, NULL);
    close(port);
}

/* Rank 1 is another one than the others: it and rank 0 name both. */
static void test_different(mode others, mode odd, const char *security)
{
    rank ranks[RANKS];
    const mode modes[RANKS] = { others, odd, others };

    meet(ranks, modes, security);
    CHECK(ranks[1].status == COLL_ERR_PROTOCOL && strstr(ranks[1].sentence, mode_says[odd])
              && strstr(ranks[1].sentence, mode_says[others]),
          "%s: %s among those where it %s: %s: %s", security, mode_says[odd], mode_says[others],
          coll_status_text(ranks[1].status), ranks[1].sentence);
    for (int i = 0; i < RANKS; i++) CHECK(ranks[i].status < 0, "%s: rank %d is in", security, i);
}

static void test_same(mode m)
{
    rank ranks[RANKS];
    const mode modes[RANKS] = { m, m, m };

    meet(ranks, modes, "open");
    for (int i = 0; i < RANKS; i++)
        CHECK(!ranks[i].status && ranks[i].is_right, "all of them: it %s: rank %d: %s: %s", mode_says[m], i,
              coll_status_text(ranks[i].status), ranks[i].sentence);
}

int main(void)
{
    static const char *const securities[] = { "open", "open+check", "key", "key+check" };

    for (mode m = USUAL; m < MODES; m++) {
        if (!set_mode(m)) continue;
        (void)set_mode(USUAL);
        test_same(m);
        if (m == USUAL) continue;
        test_different(USUAL, m, securities[m % 4]);
        test_different(m, USUAL, securities[(m + 1) % 4]);
    }
    return CHECK_DONE();
}
