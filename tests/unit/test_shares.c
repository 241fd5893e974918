/* test_shares - ranks whose links have different rates: how a vector is divided among them, that its bits are those of equal
 * shares, that the time is the least possible, and the tuning file.  test_tuning tests how faster ranks are found.
 *     COLL_TEST_SEED=... replays a seed */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"

enum { SIZE_MOST = 17, COUNT_MOST = 3000 };

static const char file[] = "build/test_shares.tuning";

typedef struct machine { coll_sim sim; coll_sim_fault slow[SIZE_MOST]; int slows; } machine;

/* `size` hosts with a rank each, some of which have a part of the network of the others. */
static void machine_make(machine *m, int size, uint64_t *state)
{
    static const double parts[] = { 0.5, 0.4, 0.1, 0.25, 2, 0.9 };

    memset(m, 0, sizeof *m);
    m->sim = (coll_sim){ .seconds_per_byte = 8e-9, .faults = m->slow };
    for (int i = 0; i < size; i++)
        if (support_random(state) % 3 == 0)
            m->slow[m->slows++] = (coll_sim_fault){ .kind = COLL_SIM_SLOW, .rank = i,
                                                    .amount = parts[support_random(state) % 6] };
    m->sim.fault_count = m->slows;
}

static int spawn_on(const machine *m, int size, int (*worker)(coll_comm *comm, void *arg), void *arg)
{
    const coll_config config = { .transport = "sim", .sim = &m->sim };
    return coll_spawn(size, worker, arg, &config);
}

/* ---- >>shares ---- */

/* Of each rank, by the text of the header of coll_uneven_split.h, in doubles; returns T; the slowest rank carries a vector in
 * 1. */
static double shares_of(const double *rates, int size, double *shares)
{
    double low = 0, high = 4.0 * size, least = rates[0], all = 0;

    for (int i = 1; i < size; i++) least = rates[i] < least ? rates[i] : least;
    for (int turn = 0; turn < 200; turn++) {
        const double t = (low + high) / 2;
        double sum = 0;
        for (int i = 0; i < size; i++) sum += fmax(0, (rates[i] * t - 1) / (size - 2));
        if (sum < 1) low = t;
        else high = t;
    }
    const double t = fmax(high, 1 / least);
    for (int i = 0; i < size; i++) all += shares[i] = fmax(0, rates[i] * t - 1);
    for (int i = 0; i < size; i++) shares[i] /= all;
    return t * least;
}

static void test_division(uint64_t seed)
{
    static const double kinds[] = { 1, 2, 2.5, 10, 1.5 };
    double rates[40], wanted[40];

    for (int trial = 0; trial < 4000; trial++) {
        uint64_t state = seed + (uint64_t)trial;
        const int size = 3 + (int)(support_random(&state) % 38);
        coll__shares s = { .count = 0 };
        double rate = 1, least = 1e9, most = 0;
        for (int i = 0, runs = 0; i < size; i++) {
            if (support_random(&state) % 5 == 0 && runs++ < COLL__RUNS_MOST - 2) rate = kinds[support_random(&state) % 5];
            rates[i] = rate;
            least = fmin(least, rate), most = fmax(most, rate);
            coll__rates_add(&s, i, coll__rate_in(rate));
        }
        const double by = coll__shares_settle(&s, size);
        CHECK(by == least && (s.count > 0) == (most > least), "seed %llu: %d ranks, %g and %g", (unsigned long long)seed,
              size, by, least);
        if (s.count == 0) continue;
        for (int i = 0; i < size; i++) rates[i] = (double)coll__run_of(&s, i)->rate / COLL__RATE_UNIT;
        const double time = shares_of(rates, size, wanted);
        CHECK(fabs(s.time - time) < 1e-9 * time, "seed %llu: T is %.17g, and not %.17g",
              (unsigned long long)seed + (unsigned)trial, s.time, time);
        const size_t groups = (size_t)(support_random(&state) >> 34);
        double longest = 0;
        CHECK(coll__share_begin(&s, groups, 0) == 0 && coll__share_begin(&s, groups, size) == groups, "all of it");
        for (int i = 0; i < size; i++) {
            const double share = (double)(coll__share_begin(&s, groups, i + 1) - coll__share_begin(&s, groups, i));
            CHECK(fabs(share - wanted[i] * (double)groups) < 2 + 1e-6 * (double)groups, "seed %llu: rank %d of %d has %g of %zu",
                  (unsigned long long)seed + (unsigned)trial, i, size, share, groups);
            longest = fmax(longest, wanted[i]);
        }
        CHECK(fabs(coll__longest_share(&s, size) - longest) < 1e-6, "the longest share");
    }
}

/* ---- >>bits ---- */

typedef struct trial { uint64_t seed; const char *world; const machine *machine; } trial;

/* A call by shares, and by equal ones, out of place and in place. */
static void compare(coll_comm *comm, const trial *t, coll_call call, unsigned char *in, unsigned char *out, unsigned char *other)
{
    const size_t length = call.count * coll_type_size(call.type);

    call.send = in;
    call.recv = out;
    call.algorithm = "direct";
    const coll_status by_direct = coll_run(comm, &call);
    call.recv = other;
    call.algorithm = "shares";
    const coll_status by_shares = coll_run(comm, &call);
    CHECK(by_direct == by_shares, "%s: %s", t->world, coll_error(comm));
    if (by_direct < 0) return;
    CHECK(memcmp(out, other, length) == 0, "%s, seed %llu: %zu x %s on %d ranks", t->world, (unsigned long long)t->seed,
          call.count, coll_type_name(call.type), coll_size(comm));
    call.send = call.recv = in;
    CHECK(coll_run(comm, &call) == COLL_OK && memcmp(out, in, length) == 0, "%s, seed %llu: in place, %zu x %s on %d ranks: %s",
          t->world, (unsigned long long)t->seed, call.count, coll_type_name(call.type), coll_size(comm), coll_error(comm));
}

static int bits_worker(coll_comm *comm, void *arg)
{
    static const coll_type types[] = { COLL_F32, COLL_F64, COLL_BF16, COLL_I32, COLL_F32, COLL_F32 };
    static const coll_type wires[] = { (coll_type)0, (coll_type)0, (coll_type)0, (coll_type)0, COLL_BF16, COLL_MXF8E4M3 };
    static const coll_op ops[] = { COLL_SUM, COLL_MAX, COLL_AVG, COLL_SUM };
    const trial *const t = (const trial *)arg;
    const size_t room = COUNT_MOST * sizeof(double);
    unsigned char *const memory = (unsigned char *)support_need(malloc(3 * room));
    uint64_t state = t->seed;                     /* the same on all ranks                                    */

    for (int i = 0; i < 24; i++) {
        const int kind = i % 6;
        const size_t count = i < 6 ? (size_t)i : (size_t)(support_random(&state) % COUNT_MOST);
        const coll_call call = { .kind = COLL_ALLREDUCE, .count = count, .type = types[kind], .wire = wires[kind],
                                 .op = ops[support_random(&state) % 4] };
        uint64_t own = t->seed + 77 * (unsigned)coll_rank(comm) + 13 * (unsigned)i;
        for (size_t k = 0; k < count; k++) {
            const float value = (float)(int64_t)(support_random(&own) % 2000001 - 1000000) / 1024;
            const double wide = (double)value;
            const int32_t whole = (int32_t)value;
            uint16_t half;
            memcpy(&half, (const char *)&value + 2, 2);
            if (call.type == COLL_F32) memcpy(memory + 4 * k, &value, 4);
            else if (call.type == COLL_F64) memcpy(memory + 8 * k, &wide, 8);
            else if (call.type == COLL_I32) memcpy(memory + 4 * k, &whole, 4);
            else memcpy(memory + 2 * k, &half, 2);
        }
        compare(comm, t, call, memory, memory + room, memory + 2 * room);
    }
    free(memory);
    return 0;
}

static void test_bits(uint64_t seed)
{
    static const char *const worlds[] = { "sim", "threads", "tcp-poll", "tcp-uring" };
    static const char *const texts[] = { "gbit=1 faster=0:2 faster=2-:3.5", "faster=1:2" };
    const coll_config config = { .tuning_file = file };

    for (int size = 1; size <= SIZE_MOST; size++) {
        machine m;
        trial t = { seed + (uint64_t)size, "sim", &m };
        uint64_t state = t.seed;
        machine_make(&m, size, &state);
        CHECK(spawn_on(&m, size, bits_worker, &t) == 0, "%d simulated ranks, seed %llu", size, (unsigned long long)t.seed);
    }
    for (int k = 0; k < 2; k++) {
        FILE *out = fopen(file, "w");
        CHECK(out && fputs(texts[k], out) > 0 && fclose(out) == 0, "cannot write %s", file);
        for (int i = 0; i < 4; i++)
            for (int size = 3; size <= 6; size += 3) {
                trial t = { seed, worlds[i], NULL };
                const coll_config simulated = { .transport = "sim", .tuning_file = file };
                if (i > 0 && !support_has_world(worlds[i])) continue;
                const int result = i ? support_run_config(worlds[i], size, &config, bits_worker, &t)
                                     : coll_spawn(size, bits_worker, &t, &simulated);
                CHECK(result == 0, "%s, %d ranks, %s", worlds[i], size, texts[k]);
            }
    }
}

/* ---- >>time ---- */

enum { LONG = 1 << 22 };                          /* of f32: 16 MiB                                           */

typedef struct timed { const char *algorithm; double seconds; bool asks; } timed;

static int timed_worker(coll_comm *comm, void *arg)
{
    timed *const t = (timed *)arg;
    float *const x = (float *)support_need(calloc(LONG, sizeof *x));
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = LONG, .type = COLL_F32, .op = COLL_SUM,
                             .algorithm = t->algorithm };
    char text[900];

    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    const double began = coll_sim_time(comm);
    CHECK(coll_run(comm, &call) == COLL_OK, "%s", coll_error(comm));
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    if (coll_rank(comm) == 0) t->seconds = coll_sim_time(comm) - began;
    if (coll_rank(comm) == 0 && t->asks) {
        CHECK(coll_explain(comm, &call, text, sizeof text) > 0 && strstr(text, ": shares, 2 rounds") && strstr(text, " faster="),
              "%s", text);
    }
    free(x);
    return 0;
}

static double time_of(const machine *m, int size, const char *algorithm, bool asks)
{
    timed t = { .algorithm = algorithm, .asks = asks };

    CHECK(spawn_on(m, size, timed_worker, &t) == 0, "%d ranks", size);
    return t.seconds;
}

/* Within a tenth of what no way can be faster than, and faster than equal blocks. */
static void check_time(const char *what, const machine *m, int size, const double *rates)
{
    static const char *const others[] = { "direct", "ring", "circulant" };
    double shares[SIZE_MOST], slowest = rates[0], best = 1e9;

    for (int i = 1; i < size; i++) slowest = fmin(slowest, rates[i]);
    const double bound = shares_of(rates, size, shares) / slowest * LONG * sizeof(float) * m->sim.seconds_per_byte;
    const double known = time_of(m, size, NULL, true);
    for (int i = 0; i < 3; i++) best = fmin(best, time_of(m, size, others[i], false));
    CHECK(known < 1.1 * bound, "%s: %.4f s, and %.4f is the bound", what, known, bound);
    CHECK(known < best, "%s: %.4f s, and %.4f by equal blocks", what, known, best);
    printf("%-28s bound %.4f s, shares %.3f of it, equal blocks %.3f\n", what, bound, known / bound, best / bound);
}

static void test_time(void)
{
    static const struct { const char *what; int size; double rates[SIZE_MOST]; } jobs[] = {
        { "one link of four at half",    4, { 1, 1, 1, 0.5 } },
        { "one of eight at half",        8, { 1, 0.5, 1, 1, 1, 1, 1, 1 } },
        { "two of five at 0.4",          5, { 0.4, 1, 1, 0.4, 1 } },
        { "one of three at a tenth",     3, { 1, 0.1, 1 } },
        { "1 and 2.5 Gbit/s",            6, { 1, 1, 1, 0.4, 0.4, 0.4 } },
        { "one of six is four times",    6, { 0.25, 0.25, 1, 0.25, 0.25, 0.25 } },
    };

    for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++) {
        machine m = { .sim = { .seconds_per_byte = 8e-9 } };
        m.sim.faults = m.slow;
        for (int i = 0; i < jobs[j].size; i++)
            if (jobs[j].rates[i] < 1)
                m.slow[m.slows++] = (coll_sim_fault){ .kind = COLL_SIM_SLOW, .rank = i, .amount = jobs[j].rates[i] };
        m.sim.fault_count = m.slows;
        check_time(jobs[j].what, &m, jobs[j].size, jobs[j].rates);
    }
}

/* ---- >>inherited ---- */

typedef struct kept { const char *rates, *evens; double gbit; } kept;

/* The numbers are those of the slowest link, and a communicator made from another keeps the rates of its ranks. */
static int kept_worker(coll_comm *comm, void *arg)
{
    const kept *const k = (const kept *)arg;
    char text[256];
    coll_comm *half = NULL;

    (void)coll_link_text(comm, text, sizeof text);
    const char *const rates = strstr(text, " faster="), *const gbit = strstr(text, " gbit=");
    CHECK(!strcmp(rates ? rates : "", k->rates), "\"%s\" is left, and not \"%s\"", text, k->rates);
    CHECK(gbit && fabs(atof(gbit + 6) / k->gbit - 1) < 0.02, "\"%s\", and not %g", text, k->gbit);
    CHECK(coll_split(comm, coll_rank(comm) % 2, 0, &half) == COLL_OK, "%s", coll_error(comm));
    if (coll_rank(comm) % 2 == 0) {
        (void)coll_link_text(half, text, sizeof text);
        const char *const own = strstr(text, " faster=");
        CHECK(!strcmp(own ? own : "", k->evens), "the even ranks have \"%s\", and not \"%s\"", text, k->evens);
    }
    coll_free(half);
    return 0;
}

static void check_kept(const char *sim, int size, const kept *k)
{
    CHECK(support_run_machine(sim, size, kept_worker, k) == 0, "%d ranks, %s", size, sim);
}

static void test_kept(void)
{
    check_kept("gbit=1 slow=3:0.5", 4, &(kept){ " faster=0-2:2", "", 0.5 });
    check_kept("gbit=1", 64, &(kept){ "", "", 1 });
    check_kept("gbit=2.5 slow=3:0.4", 64, &(kept){ " faster=0-2:2.5 faster=4-:2.5", "", 1 });
    check_kept("gbit=2.5 slow=2:0.4", 64, &(kept){ " faster=0-1:2.5 faster=3-:2.5", " faster=0:2.5 faster=2-:2.5", 1 });
    check_kept("gbit=2.5 hosts=16 slow=5:0.4", 64,
               &(kept){ " faster=0-3:2.5 faster=8-:2.5", " faster=0-1:2.5 faster=4-:2.5", 1 });
    check_kept("gbit=1 slow=1:0.5 slow=3:0.5 slow=5:0.5", 6, &(kept){ " faster=0:2 faster=2:2 faster=4:2", "", 0.5 });
    check_kept("gbit=1 slow=0:0.5", 6, &(kept){ " faster=1-:2", " faster=1-:2", 0.5 });
}

/* ---- >>files ---- */

static void refused(const char *text, const char *words)
{
    const coll_config config = { .tuning_file = file };
    coll_comm *comm = NULL;
    FILE *out = fopen(file, "w");

    CHECK(out && fputs(text, out) >= 0 && fclose(out) == 0, "cannot write %s", file);
    CHECK(coll_init(&comm, &config) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), words), "%s: %s", text, coll_error(NULL));
}

static int text_worker(coll_comm *comm, void *arg)
{
    char text[256];

    (void)coll_link_text(comm, text, sizeof text);
    CHECK(strstr(text, (const char *)arg) || coll_size(comm) < 3, "\"%s\" has not \"%s\"", text, (const char *)arg);
    return 0;
}

static void test_files(void)
{
    static const char *const wrong[] = {
        "faster=", "faster=3", "faster=3:", "faster=3:0.5", "faster=3-1:2", "faster=x:2", "faster=3:2 faster=2:2", "faster=-3:2",
        "faster=2-:2 faster=5:2", "faster=1:1e9", "faster=1:2x", "faster=1-2-3:2",
        "faster=1:2 faster=3:2 faster=5:2 faster=7:2 faster=9:2"
    };
    const coll_config config = { .tuning_file = file };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(wrong[i], "makes no sense: faster is ranks and by how much they are faster than the slowest, like 0-2:2.5");
    refused("late=1", "late");
    refused("faster=9:2", "faster= names ranks beyond the 1 that there are");
    refused("faster=0-1:2", "faster= names ranks beyond the 1 that there are");
    FILE *out = fopen(file, "w");
    CHECK(out && fputs("gbit=1 faster=0:2.5 faster=1:2.5 faster=3-:4", out) > 0 && fclose(out) == 0, "cannot write %s", file);
    for (int size = 4; size < 6; size++) {
        CHECK(support_run_config("threads", size, &config, text_worker, (void *)(uintptr_t)" faster=0-1:2.5 faster=3-:4") == 0,
              "threads");
        CHECK(support_run_config("tcp-poll", size, &config, text_worker, (void *)(uintptr_t)" faster=0-1:2.5 faster=3-:4") == 0,
              "tcp");
    }
    unlink(file);
}

int main(void)
{
    const uint64_t seed = support_seed();

    support_limit(600, NULL);
    test_division(seed);
    test_bits(seed);
    test_time();
    test_kept();
    test_files();
    return CHECK_DONE();
}
