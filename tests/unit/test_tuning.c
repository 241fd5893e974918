/* test_tuning - what coll-check writes into a tuning file: which hosts have faster links, and which are far from each other.
 * First decided from matrices, of machines of all sorts; then measured by coll-check itself on simulated machines.  The library
 * reads each file, and says the same.  That real hosts are measured is for test_run.sh.
 *     COLL_TEST_SEED=... replays a seed */
#define main coll_check_main
#define CHECK_NOW(c) coll_sim_time((c)->comm)
#include "../../tools/coll-check.c"
#undef main

#include "../support/check.h"
#include "../support/support.h"

enum { HOSTS_MOST = 64, RANKS_MOST = 128 };

static char file[] = "/tmp/coll_tuning_XXXXXX";

/* ---- >>machines ---- */

/* Hosts in sites.  Of `noise` a measurement may be slower, by chance. */
typedef struct machine {
    int    ranks, per_host, sites;                /* sites: of equally many hosts, in rows                    */
    bool   take_turns;                            /* the hosts of sites do, instead                           */
    double far_latency, far_rate, noise;
    double rates[HOSTS_MOST];                     /* bytes/s; 0: 1.25e9                                       */
} machine;

static const double near_latency = 12e-6;

static int hosts_of(const machine *m) { return (m->ranks + m->per_host - 1) / m->per_host; }

static int site_of(const machine *m, int host)
{
    if (m->sites < 2) return 0;
    return m->take_turns ? host % m->sites : host * m->sites / hosts_of(m);
}

static double rate_of_host(const machine *m, int host) { return m->rates[host] > 0 ? m->rates[host] : 1.25e9; }

static double noisy(const machine *m, uint64_t *state)
{
    return 1 + m->noise * (double)(support_random(state) % 1000) / 1000;
}

/* What coll-check would measure. */
static double *rows_of(const machine *m, uint64_t *state)
{
    const size_t ranks = (size_t)m->ranks;
    double *const rows = support_need(calloc(2 * ranks * ranks, sizeof *rows));

    for (int a = 0; a < m->ranks; a++) {
        for (int b = 0; b < m->ranks; b++) {
            const int from = a / m->per_host, to = b / m->per_host;
            const bool is_far = site_of(m, from) != site_of(m, to);
            double *const latency = &rows[(size_t)a * 2 * ranks + (size_t)b], *const rate = latency + ranks;
            if (a == b) continue;
            *latency = (from == to ? 1e-6 : is_far ? m->far_latency : near_latency) * noisy(m, state);
            *rate = from == to ? 1e10 : fmin(rate_of_host(m, from), rate_of_host(m, to));
            if (is_far && m->far_rate > 0) *rate = fmin(*rate, m->far_rate);
            *rate /= noisy(m, state);
        }
    }
    return rows;
}

/* What a host sends to its partner across while others do, too. */
static double rate_across(const machine *m, const tuning *t, int host, int round, uint64_t *state)
{
    const int other = partner_across(t, hosts_of(m), host, round);
    double crowd = 0, rate = rate_of_host(m, host);

    if (other < 0) return 0;
    for (int a = 0; a < hosts_of(m); a++) {
        const int its = partner_across(t, hosts_of(m), a, round);
        crowd += its >= 0 && site_of(m, a) == site_of(m, host) && (a < its) == (host < other);
    }
    if (m->far_rate > 0) rate = fmin(rate, m->far_rate / crowd);
    return rate / noisy(m, state);
}

static void decide(const machine *m, uint64_t seed, char *text, char *notes)
{
    static const near_link near = { 12e-6, 1.2e-6, 3e9 / 8, 4e9 };
    uint64_t state = seed;
    int firsts[RANKS_MOST];
    double *const rows = rows_of(m, &state), across[HOSTS_MOST], most[HOSTS_MOST] = { 0 };
    links l = { 0 };
    tuning t = { 0 };

    for (int i = 0; i < m->ranks; i++) firsts[i] = i / m->per_host * m->per_host;
    number_hosts(&l, firsts, m->ranks);
    join_pairs(&l, rows);
    find_sites(&l, &t);
    for (int round = 0; round < t.sites + t.sites % 2 - 1 && t.sites > 1; round++) {
        for (int a = 0; a < l.hosts; a++) across[a] = rate_across(m, &t, a, round, &state);
        add_across(&t, l.hosts, round, across, most);
    }
    if (t.sites > 1) t.far_rate = least_across(&t, most);
    find_rates(&l, &t);
    tuning_text(&l, &t, &near, text, notes);
    tuning_free(&l, &t);
    free(rows);
}

/* ---- >>read by the library ---- */

/* Does a text have this word?  Of a rate the library writes five digits. */
static bool has_word(const char *text, const char *word)
{
    const size_t length = strlen(word), name = strncmp(word, "faster=", 7) ? length : strcspn(word, ":") + 1;

    for (const char *at = text; *at; at += strcspn(at, " "), at += *at == ' ') {
        if (strncmp(at, word, name)) continue;
        if (name == length ? at[name] == ' ' || !at[name] : fabs(atof(at + name) / atof(word + name) - 1) < 1e-4) return true;
    }
    return false;
}

/* Every word of the file is what the library says of the job. */
static int reading_worker(coll_comm *comm, void *arg)
{
    char said[1024], text[TUNING_ROOM], *rest = NULL;

    (void)coll_link_text(comm, said, sizeof said);
    strcpy(text, arg);
    for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
        CHECK(has_word(said, word), "\"%s\" is written, and \"%s\" is read", word, said);
    return 0;
}

static void check_read(const char *text, int ranks)
{
    const coll_config config = { .transport = "sim", .tuning_file = file };

    CHECK(coll_spawn(ranks, reading_worker, (void *)(uintptr_t)text, &config) == 0, "%s\"%s\"", text, coll_error(NULL));
}

/* ---- >>decided ---- */

typedef struct wanted { const char *gbit, *rates, *sites, *note; double far_latency, far_gbit; } wanted;

/* The words that begin with `name`, each behind a space. */
static const char *words_of(const char *text, const char *name, char *out)
{
    char copy[TUNING_ROOM], *rest = NULL;

    *out = '\0';
    strcpy(copy, text);
    for (char *word = strtok_r(copy, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
        if (!strncmp(word, name, strlen(name))) strcat(strcat(out, " "), word);
    return out;
}

static double value_of(const char *text, const char *name)
{
    char words[TUNING_ROOM];
    return atof(words_of(text, name, words) + (*words ? strlen(name) + 1 : 0));
}

static void check_text(const char *what, const char *text, const char *notes, const wanted *w, double slack)
{
    char words[TUNING_ROOM];

    CHECK(!w->gbit || !strcmp(words_of(text, "gbit=", words), w->gbit), "%s: not \"%s\", but %s", what, w->gbit, text);
    CHECK(!strcmp(words_of(text, "faster=", words), w->rates), "%s: not \"%s\", but %s", what, w->rates, text);
    CHECK(!strcmp(words_of(text, "site=", words), w->sites), "%s: not \"%s\", but %s", what, w->sites, text);
    CHECK(w->note ? strstr(notes, w->note) != NULL : !*notes, "%s: not the note \"%s\", but \"%s\"", what, w->note, notes);
    for (int i = 0; i < 2; i++) {
        const char *const name = i ? "far_gbit=" : "far_latency=";
        const double wants = i ? w->far_gbit : w->far_latency, value = value_of(text, name);
        CHECK(value >= wants / slack && value <= wants * slack, "%s: %s%g, and not %g", what, name, value, wants);
    }
}

static void check_decided(const char *what, const machine *m, const wanted *w)
{
    char text[TUNING_ROOM], notes[TUNING_ROOM];

    decide(m, 1, text, notes);
    check_text(what, text, notes, w, 1.001);
    CHECK(strstr(text, "latency=12us overhead=1.2us gbit=") == text && strstr(text, " reduce=4GB/s\n"), "%s: %s",
          what, text);
    CHECK(write_file(file, text, notes), "no file");
    check_read(text, m->ranks);
}

/* A host of this rate, where the others have 1 Gbit/s. */
#define ONE(host, rate) .rates = { [host] = rate }

static void test_rates(void)
{
    const double slow = 0.5e9 / 8 * 2.5;
    machine m = { .ranks = 4, .per_host = 1, ONE(3, 0.625e9) };

    check_decided("one of four at half", &m, &(wanted){ " gbit=5", " faster=0-2:2", "", NULL, 0, 0 });
    check_decided("64 equal", &(machine){ 64, 1, 1, false, 0, 0, 0, { 0 } }, &(wanted){ " gbit=10", "", "", NULL, 0, 0 });
    m = (machine){ .ranks = 64, .per_host = 1, ONE(3, 0.5e9) };
    check_decided("one of 64", &m, &(wanted){ " gbit=4", " faster=0-2:2.5 faster=4-:2.5", "", NULL, 0, 0 });
    m = (machine){ .ranks = 64, .per_host = 4, ONE(1, 0.5e9) };
    check_decided("one of 16 hosts", &m, &(wanted){ " gbit=4", " faster=0-3:2.5 faster=8-:2.5", "", NULL, 0, 0 });
    m = (machine){ .ranks = 8, .per_host = 8, ONE(0, 0.5e9) };
    check_decided("one host", &m, &(wanted){ " gbit=3", "", "", NULL, 0, 0 });
    m = (machine){ .ranks = 6, .per_host = 1, .rates = { [1] = slow, [3] = slow, [5] = slow } };
    for (int i = 0; i < 3; i++) m.rates[2 * i] = 2 * slow;
    check_decided("every other one", &m, &(wanted){ " gbit=1.25", " faster=0:2 faster=2:2 faster=4:2", "", NULL, 0, 0 });
    m = (machine){ .ranks = 2, .per_host = 1, ONE(0, 0.5e9) };
    check_decided("two", &m, &(wanted){ " gbit=4", "", "", NULL, 0, 0 });
    m = (machine){ .ranks = 6, .per_host = 1, ONE(2, 5e9) };
    check_decided("faster than all others", &m, &(wanted){ " gbit=10", "", "", NULL, 0, 0 });
    m.rates[5] = 5e9;
    check_decided("two that are faster than others", &m, &(wanted){ " gbit=10", " faster=2:4 faster=5-:4", "", NULL, 0, 0 });
    m = (machine){ .ranks = 6, .per_host = 1, .rates = { 1e9, 1.2e9, 1.24e9, 1.26e9, 2e9, 2e9 } };
    check_decided("equal and not", &m, &(wanted){ " gbit=8", " faster=3:1.25 faster=4-:2", "", NULL, 0, 0 });
    m = (machine){ .ranks = 17, .per_host = 1 };
    for (int i = 0; i < 8; i += 2) m.rates[i] = 0.5e9;
    check_decided("eight runs", &m,
                  &(wanted){ " gbit=4", " faster=1:2.5 faster=3:2.5 faster=5:2.5 faster=7-:2.5", "", NULL, 0, 0 });
    m.rates[16] = 0.5e9;
    check_decided("nine runs", &m,
                  &(wanted){ " gbit=4", "", "", "have 9 runs of equal rates, and a tuning file at most 8", 0, 0 });
    m = (machine){ .ranks = 3, .per_host = 1, .rates = { 1e15, 1e15, 1e6 } };
    check_decided("beyond what a file can say", &m, &(wanted){ " gbit=0.008", " faster=0-1:65536", "", NULL, 0, 0 });
}

static void test_sites(void)
{
    static const machine alone = { 8, 1, 8, false, 500e-6, 0, 0, { 0 } };

    check_decided("noise", &(machine){ 16, 1, 1, false, 0, 0, 0.3, { 0 } }, &(wanted){ NULL, "", "", NULL, 0, 0 });
    check_decided("two sites of 3", &(machine){ 6, 1, 2, false, 500e-6, 0, 0, { 0 } },
                  &(wanted){ NULL, "", " site=3", NULL, 500, 30 });
    check_decided("two sites of 32", &(machine){ 64, 1, 2, false, 500e-6, 1.25e9, 0, { 0 } },
                  &(wanted){ NULL, "", " site=32", NULL, 500, 10 });
    check_decided("four sites", &(machine){ 64, 1, 4, false, 100e-6, 0.3125e9, 0, { 0 } },
                  &(wanted){ NULL, "", " site=16 site=32 site=48", NULL, 100, 2.5 });
    check_decided("four sites of 8 hosts of 2", &(machine){ 64, 2, 4, false, 100e-6, 0.3125e9, 0, { 0 } },
                  &(wanted){ NULL, "", " site=16 site=32 site=48", NULL, 100, 2.5 });
    check_decided("three sites, and a slow host", &(machine){ 12, 1, 3, false, 2e-3, 0.125e9, 0, { [3] = 0.625e9 } },
                  &(wanted){ " gbit=5", " faster=0-2:2 faster=4-:2", " site=4 site=8", NULL, 2000, 1 });
    check_decided("sites that take turns", &(machine){ 8, 1, 2, true, 500e-6, 1.25e9, 0, { 0 } },
                  &(wanted){ NULL, "", "", "at 2 sites, and ranks of one site do not follow one another", 500, 10 });
    check_decided("nine sites", &(machine){ 18, 1, 9, false, 1e-3, 1.25e9, 0, { 0 } },
                  &(wanted){ NULL, "", " site=2 site=4 site=6 site=8 site=10 site=12 site=14 site=16", NULL, 1000, 10 });
    check_decided("ten sites", &(machine){ 20, 1, 10, false, 1e-3, 1.25e9, 0, { 0 } },
                  &(wanted){ NULL, "", "", "at 10 sites, and a tuning file has at most 9", 1000, 10 });
    check_decided("each host alone", &alone, &(wanted){ NULL, "", "", NULL, 0, 0 });
    check_decided("one of three alone", &(machine){ 3, 1, 2, false, 1e-3, 0, 0, { 0 } }, &(wanted){ NULL, "", "", NULL, 0, 0 });
    check_decided("not 3 times as far", &(machine){ 6, 1, 2, false, 34e-6, 0, 0, { 0 } }, &(wanted){ NULL, "", "", NULL, 0, 0 });
    check_decided("not 20 us farther", &(machine){ 6, 1, 2, false, 31e-6, 0, 0, { 0 } }, &(wanted){ NULL, "", "", NULL, 0, 0 });
    check_decided("3 times as far", &(machine){ 6, 1, 2, false, 37e-6, 0, 0, { 0 } },
                  &(wanted){ NULL, "", " site=3", NULL, 37, 30 });
}

/* Far pairs within what near pairs join are no sites. */
static void test_chain(void)
{
    links l = { .ranks = 4, .hosts = 4 };
    tuning t = { 0 };

    l.latency = support_need(calloc(16, sizeof *l.latency));
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) l.latency[4 * a + b] = abs(a - b) < 2 ? 10e-6 : 1e-3;
    find_sites(&l, &t);
    CHECK(t.sites == 1 && t.far_latency == 0 && t.site[0] == 0 && t.site[3] == 0, "%d sites", t.sites);
    tuning_free(&l, &t);
}

/* What must be found on any machine, by the text in the header of check_tuning.h; rates are 1.6 times apart or equal. */
static void test_random(uint64_t seed)
{
    static const double kinds[] = { 1.25e9, 2e9, 5e9, 0.5e9 };

    for (int trial = 0, most = (int)(300 * support_scale()); trial < most; trial++) {
        const unsigned long long number = seed + (unsigned)trial;
        uint64_t state = number;
        machine m = { .per_host = 1 + (int)(support_random(&state) % 3), .sites = 1 + (int)(support_random(&state) % 4),
                      .far_latency = 100e-6, .noise = 0.1 };
        const int hosts = m.sites * (2 + (int)(support_random(&state) % 6));
        char text[TUNING_ROOM], notes[TUNING_ROOM], words[TUNING_ROOM], sites[256] = "", *at;
        double seen[HOSTS_MOST], least = 1e99;
        m.ranks = hosts * m.per_host;
        m.far_rate = 0.1e9;
        for (int a = 0; a < hosts; a++)
            m.rates[a] = a && support_random(&state) % 3 ? m.rates[a - 1] : kinds[support_random(&state) % 4];
        for (int a = 0; a < hosts; a++) {
            double best = 0;
            for (int b = 0; b < hosts; b++)
                if (b != a && site_of(&m, a) == site_of(&m, b)) best = fmax(best, fmin(m.rates[a], m.rates[b]));
            least = fmin(least, seen[a] = best);
        }
        for (int a = 1; a < hosts && m.sites > 1; a++)
            if (site_of(&m, a) != site_of(&m, a - 1)) snprintf(strchr(sites, 0), 20, " site=%d", a * m.per_host);
        decide(&m, state, text, notes);
        CHECK(!strcmp(words_of(text, "site=", words), sites), "seed %llu: not \"%s\", but %s", number, sites, text);
        CHECK(m.sites < 2 || fabs(value_of(text, "far_gbit=") / 0.8 - 1) < 0.12, "seed %llu: %s", number, text);
        (void)words_of(text, "faster=", at = words);
        for (int first = 0, end; first < hosts && !strstr(notes, "runs of equal rates"); first = end) {
            for (end = first + 1; end < hosts && seen[end] == seen[first];) end++;
            char from[40] = "";
            if (seen[first] == least) continue;
            snprintf(from, sizeof from, " faster=%d", first * m.per_host);
            if (end == hosts) strcat(from, "-:");
            else if (end > first + 1 || m.per_host > 1) snprintf(strchr(from, 0), 20, "-%d:", end * m.per_host - 1);
            else strcat(from, ":");
            const bool is_right = !strncmp(at, from, strlen(from));
            const double faster = is_right ? strtod(at + strlen(from), &at) : 0;
            CHECK(fabs(faster / (seen[first] / least) - 1) < 0.15, "seed %llu: no \"%s%g\" at \"%s\" of %s", number, from,
                  seen[first] / least, at, text);
            if (!is_right) break;
        }
        CHECK(!*at || strstr(notes, "runs of equal rates"), "seed %llu: \"%s\" is too much", number, at);
        CHECK(write_file(file, text, notes), "no file");
        check_read(text, m.ranks);
    }
}

/* ---- >>measured on simulated machines ---- */

static int measuring_worker(coll_comm *comm, void *arg)
{
    check *const c = support_need(calloc(1, sizeof *c));
    int everyone[RANKS_MOST];

    (void)arg;
    c->comm = comm;
    c->rank = coll_rank(comm);
    c->size = coll_size(comm);
    c->row = support_need(calloc(2 * (size_t)c->size, sizeof *c->row));
    c->chunks = support_need(calloc(FLIGHT, CHUNK_MOST));
    for (int i = 0; i < c->size; i++) everyone[i] = i;
    measure_all(c, everyone, c->size);
    if (gather_rows(c)) tune(c, file);
    const bool failed = c->failed;
    free(c->row);
    free(c->rows);
    free(c->chunks);
    free(c);
    return failed;
}

/* A long allreduce, by shares. */
typedef struct timed { double seconds; } timed;

static int timed_worker(coll_comm *comm, void *arg)
{
    enum { LONG = 1 << 22 };
    timed *const t = arg;
    float *const x = support_need(calloc(LONG, sizeof *x));
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = LONG, .type = COLL_F32, .op = COLL_SUM };
    char text[900];

    CHECK(coll_explain(comm, &call, text, sizeof text) > 0 && strstr(text, ": shares, 2 rounds"), "%s", text);
    CHECK(coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    const double began = coll_sim_time(comm);
    CHECK(coll_run(comm, &call) == COLL_OK && coll_barrier(comm) == COLL_OK, "%s", coll_error(comm));
    if (coll_rank(comm) == 0) t->seconds = coll_sim_time(comm) - began;
    free(x);
    return 0;
}

/* With the file it is as fast as where the machine is known, within a twentieth. */
static void check_time(const char *sim, int ranks)
{
    const coll_config config = { .transport = "sim", .tuning_file = file };
    timed known = { 0 }, told = { 0 };

    setenv("COLL_SIM", sim, 1);
    CHECK(support_run_simulated(ranks, timed_worker, &known) == 0, "%s", sim);
    CHECK(coll_spawn(ranks, timed_worker, &told, &config) == 0, "%s: %s", sim, coll_error(NULL));
    unsetenv("COLL_SIM");
    CHECK(known.seconds > 0 && told.seconds < 1.05 * known.seconds, "%s: %.4f s, and %.4f where the machine is known", sim,
          told.seconds, known.seconds);
}

/* A communicator of one rank per host of a site is derived from that of all ranks: its messages are two.  With two ranks the
 * overhead is not measured. */
static void check_measured(const char *sim, int ranks, const wanted *w)
{
    char text[TUNING_ROOM] = "";

    CHECK(support_run_machine(sim, ranks, measuring_worker, NULL) == 0, "%s: %s", sim, coll_error(NULL));
    FILE *const in = fopen(file, "r");
    const size_t got = in ? fread(text, 1, sizeof text - 1, in) : 0;
    if (in) fclose(in);
    text[got] = '\0';
    const char *const lines = strchr(text, '\n');
    CHECK(lines && *text == '#', "no file: %s", text);
    if (!lines) return;
    check_text(sim, lines + 1, "", w, 1.1);
    const double latency = value_of(lines, "latency="), overhead = value_of(lines, "overhead=");
    const double twice = *w->sites || strstr(sim, "per_host") ? 2 : 1;
    const double each = strstr(sim, "per_host=2 sites=3") ? latency / 3 : twice * 4;
    CHECK(fabs(latency / (8 + twice * 4) - 1) < 0.05 && fabs(overhead / each - 1) < 0.05, "%s: %s", sim, text);
    CHECK(fabs(value_of(lines, "gbit=") / (strstr(sim, "slow=") ? 0.5 : 1) - 1) < 0.05, "%s: %s", sim, text);
    check_read(lines + 1, ranks);
    if (*w->rates && !*w->sites && !strstr(sim, "per_host")) check_time(sim, ranks);
}

static void test_measured(void)
{
    check_measured("latency=12us overhead=4us gbit=1 slow=3:0.5", 4, &(wanted){ NULL, " faster=0-2:2", "", NULL, 0, 0 });
    check_measured("latency=12us overhead=4us gbit=1 sites=2 far_latency=500us far=0.125GB/s", 6,
                   &(wanted){ NULL, "", " site=3", NULL, 500, 1 });
    if (support_scale() < 1) return;
    check_measured("latency=12us overhead=4us gbit=1", 10, &(wanted){ NULL, "", "", NULL, 0, 0 });
    check_measured("latency=12us overhead=4us gbit=1 per_host=3 slow=5:0.5", 12,
                   &(wanted){ NULL, " faster=0-2:2 faster=6-:2", "", NULL, 0, 0 });
    check_measured("latency=12us overhead=4us gbit=1 slow=1:0.5 slow=3:0.5 slow=5:0.5", 6,
                   &(wanted){ NULL, " faster=0:2 faster=2:2 faster=4:2", "", NULL, 0, 0 });
    check_measured("latency=12us overhead=4us gbit=1 sites=2 far_latency=500us far=0.25GB/s", 8,
                   &(wanted){ NULL, "", " site=4", NULL, 500, 2 });
    check_measured("latency=12us overhead=4us gbit=1 per_host=2 sites=3 far_latency=2ms far=0.03125GB/s", 12,
                   &(wanted){ NULL, "", " site=4 site=8", NULL, 2000, 0.25 });
    check_measured("latency=12us overhead=4us gbit=1 sites=3 far_latency=2ms far=0.125GB/s slow=3:0.5", 12,
                   &(wanted){ NULL, " faster=0-2:2 faster=4-:2", " site=4 site=8", NULL, 2000, 1 });
}

int main(void)
{
    const uint64_t seed = support_seed();
    const int fd = mkstemp(file);

    support_limit(600, NULL);
    CHECK(fd >= 0 && close(fd) == 0, "no file");
    test_rates();
    test_sites();
    test_chain();
    test_random(seed);
    test_measured();
    unlink(file);
    return CHECK_DONE();
}
