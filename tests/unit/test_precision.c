/* test_precision.c - how exact a sum of 16-bit floats is over 64 ranks, by four schemes, all of them carried out.
 *
 *     test_precision                 COLL_TEST_SEED=n repeats a run; prints a table in Markdown
 *
 * Three of them are methods of other libraries, here with messages and coll_reduce_local, which rounds each sum of two to 16
 * bits: a ring; halving, whose partial sums cross six times; and hosts of 8 that send one partial sum each.  The fourth is
 * coll_allreduce.  An error is counted in units of u times the sum of |x|, u being half a unit in the last place of 1. */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"

enum { RANKS = 64, HOST = 8, COUNT = 64 * 48, LIMIT_SECONDS = 120 };

typedef enum scheme { RING, HALVING, HOSTS, OURS, SCHEMES } scheme;

static const char *const scheme_names[SCHEMES] = {
    "ring, 16-bit partial sums", "halving, 16-bit partial sums", "hosts of 8, a 16-bit partial sum each", "coll_allreduce"
};

/* What is summed, and what each scheme made of it. */
typedef struct sample {
    const char *name;
    coll_type   type;
    double      u, offset;                        /* |x| + offset where everything has one sign               */
    bool        is_positive;
    uint16_t    inputs[RANKS][COUNT];
    uint16_t    results[SCHEMES][COUNT];
} sample;

/* ---- >>schemes: each leaves block r of the sum on rank r, in place ---- */

enum { BLOCK = COUNT / RANKS };

/* to += from, each sum rounded to 16 bits. */
static int add(const sample *s, const uint16_t *from, uint16_t *to, size_t count)
{
    return coll_reduce_local(to, from, count, s->type, COLL_SUM) != COLL_OK;
}

/* p - 1 rounds: pass a block on, add ours to the received one. */
static int ring(coll_comm *comm, const sample *s, uint16_t *x)
{
    const int me = coll_rank(comm), next = (me + 1) % RANKS, previous = (me + RANKS - 1) % RANKS;
    uint16_t came[BLOCK];
    int wrong = 0;

    for (int k = 0; k < RANKS - 1; k++) {
        const int out = (me - k - 1 + 2 * RANKS) % RANKS, in = (me - k - 2 + 2 * RANKS) % RANKS;
        wrong += coll_sendrecv(comm, x + out * BLOCK, BLOCK, next, came, BLOCK, previous, s->type, k) != COLL_OK;
        wrong += add(s, came, x + in * BLOCK, BLOCK);
    }
    return wrong;
}

/* Six rounds, each with half of what is left. */
static int halving(coll_comm *comm, const sample *s, uint16_t *x)
{
    const int me = coll_rank(comm);
    uint16_t *const came = support_need(malloc(COUNT / 2 * sizeof *came));
    int first = 0, wrong = 0;

    for (int half = RANKS / 2; half > 0; half /= 2) {
        const bool is_upper = me & half;
        const int keep = first + (is_upper ? half : 0), give = first + (is_upper ? 0 : half);
        const size_t length = (size_t)half * BLOCK;
        wrong += coll_sendrecv(comm, x + give * BLOCK, length, me ^ half, came, length, me ^ half, s->type, half) != COLL_OK;
        wrong += add(s, came, x + keep * BLOCK, length);
        first = keep;
    }
    free(came);
    return wrong;
}

/* f32 within a host, one rounding there; f32 between the hosts, and one more. */
static int hosts(coll_comm *comm, const sample *s, uint16_t *x)
{
    coll_comm *host = NULL, *rail = NULL;
    const int me = coll_rank(comm), place = me % HOST, row = me / HOST;
    enum { SHARE = COUNT / HOST };
    uint16_t *const partial = support_need(malloc(SHARE * sizeof *partial));
    int wrong = coll_split(comm, row, me, &host) != COLL_OK || coll_split(comm, place, me, &rail) != COLL_OK;

    const coll_call within = { .kind = COLL_REDUCE_SCATTER, .send = x, .recv = partial, .count = SHARE, .type = s->type,
                               .flags = COLL_DETERMINISTIC };
    const coll_call between = { .kind = COLL_REDUCE_SCATTER, .send = partial, .recv = x + me * BLOCK, .count = BLOCK,
                                .type = s->type, .flags = COLL_DETERMINISTIC };
    wrong += coll_run(host, &within) != COLL_OK || coll_run(rail, &between) != COLL_OK;
    free(partial);
    coll_free(host);
    coll_free(rail);
    return wrong;
}

/* Where block r of the sum, as rank r has it, belongs in the vector: hosts cut it by place first. */
static int block_of(scheme which, int rank) { return which == HOSTS ? rank % HOST * HOST + rank / HOST : rank; }

static int run_sample(coll_comm *comm, void *arg)
{
    sample *s = arg;
    const int me = coll_rank(comm);
    uint16_t *const x = support_need(malloc(sizeof s->inputs[me]));
    int wrong = 0;

    for (int which = 0; which < SCHEMES; which++) {
        memcpy(x, s->inputs[me], sizeof s->inputs[me]);
        if (which == RING) wrong += ring(comm, s, x);
        if (which == HALVING) wrong += halving(comm, s, x);
        if (which == HOSTS) wrong += hosts(comm, s, x);
        if (which == OURS) wrong += coll_allreduce(comm, x, x, COUNT, s->type, COLL_SUM) != COLL_OK;
        memcpy(&s->results[which][block_of((scheme)which, me) * BLOCK], x + me * BLOCK, BLOCK * sizeof *x);
    }
    CHECK(wrong == 0, "rank %d: %s", me, coll_error(comm));
    free(x);
    return wrong;
}

/* ---- >>figures ---- */

typedef struct figures { double rms, most, wrong; } figures;         /* wrong: %, not the correctly rounded sum         */

/* A double holds the sum of these without rounding, but for numbers so close to 0 that they do not matter here. */
static figures figures_of(const sample *s, scheme which)
{
    const support_type *type = support_type_of(s->type);
    figures f = { 0, 0, 0 };

    for (size_t i = 0; i < COUNT; i++) {
        double exact = 0, size = 0;
        for (int k = 0; k < RANKS; k++) {
            const double x = support_value(type, s->inputs[k][i]);
            exact += x;
            size += fabs(x);
        }
        const double error = fabs(support_value(type, s->results[which][i]) - exact) / size / s->u;
        f.rms += error * error / COUNT;
        f.most = fmax(f.most, error);
        f.wrong += s->results[which][i] != support_bits(type, exact) ? 100.0 / COUNT : 0;
    }
    f.rms = sqrt(f.rms);
    return f;
}

static double normal(uint64_t *state)
{
    const double a = ((double)(support_random(state) >> 11) + 0.5) * 0x1p-53, b = (double)(support_random(state) >> 11) * 0x1p-53;
    return sqrt(-2 * log(a)) * cos(6.283185307179586 * b);
}

static void sample_fill(sample *s, uint64_t *state)
{
    const support_type *type = support_type_of(s->type);

    for (int k = 0; k < RANKS; k++)
        for (size_t i = 0; i < COUNT; i++) {
            const double x = normal(state);
            s->inputs[k][i] = (uint16_t)support_bits(type, s->is_positive ? fabs(x) + s->offset : x);
        }
}

/* What the figures were elsewhere, by another program on other data: within 15 % of the rms, and some of a percentage. */
typedef struct reference { double rms, wrong; } reference;

static const reference references[3][SCHEMES] = {
    { { 1.97, 77 }, { 0.53, 32 }, { 0.36, 11 }, { 0.32, 0 } },
    { { 0.378, 79 }, { 0.177, 62 }, { 0.095, 41 }, { 0.067, 0 } },
    { { 0.389, 80 }, { 0.179, 64 }, { 0.095, 42 }, { 0.068, 0 } }
};

static void check_figures(const sample *s, const figures *f, const reference *r)
{
    for (int which = 0; which < SCHEMES; which++) {
        CHECK(fabs(f[which].rms / r[which].rms - 1) < 0.15, "%s, %s: rms %.3g", s->name, scheme_names[which], f[which].rms);
        CHECK(fabs(f[which].wrong - r[which].wrong) < 5, "%s, %s: %.1f %% wrong", s->name, scheme_names[which], f[which].wrong);
        if (which) CHECK(f[which].rms < f[which - 1].rms, "%s: %s is not better", s->name, scheme_names[which]);
    }
    CHECK(f[OURS].most <= 1, "%s: off by %.3g", s->name, f[OURS].most);
    CHECK(f[OURS].wrong < 0.1, "%s: %.2f %% are not correctly rounded", s->name, f[OURS].wrong);
}

int main(void)
{
    static sample samples[3] = { { .name = "bf16, one sign", .type = COLL_BF16, .u = 0x1p-8, .offset = 1, .is_positive = true },
                                 { .name = "bf16, mean 0", .type = COLL_BF16, .u = 0x1p-8 },
                                 { .name = "f16, mean 0", .type = COLL_F16, .u = 0x1p-11 } };
    figures f[3][SCHEMES];
    uint64_t state = support_seed();

    support_limit(LIMIT_SECONDS, NULL);
    for (int i = 0; i < 3; i++) {
        sample_fill(&samples[i], &state);
        setenv("COLL_TRANSPORT", "sim", 1);
        CHECK(coll_spawn(RANKS, run_sample, &samples[i], NULL) == 0, "%s", samples[i].name);
        unsetenv("COLL_TRANSPORT");
        for (int which = 0; which < SCHEMES; which++) f[i][which] = figures_of(&samples[i], (scheme)which);
        check_figures(&samples[i], f[i], references[i]);
    }
    printf("%d ranks, %d sums each; error in units of u times the sum of |x|: rms, largest; sums not correctly rounded\n\n",
           RANKS, COUNT);
    printf("| |");
    for (int i = 0; i < 3; i++) printf(" %s |", samples[i].name);
    printf("\n| --- | --- | --- | --- |\n");
    for (int which = 0; which < SCHEMES; which++) {
        printf("| %s |", scheme_names[which]);
        for (int i = 0; i < 3; i++)
            printf(" %.3f, %.2f; %.2g %% |", f[i][which].rms, f[i][which].most, f[i][which].wrong);
        printf("\n");
    }
    printf("\n");
    return CHECK_DONE();
}
