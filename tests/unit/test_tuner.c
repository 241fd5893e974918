/* test_tuner - the numbers of the cost model: their text and their file; and that shared processors never decide about bits.
 *     COLL_TEST_SEED=... replays a seed */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"

static const char *const worlds[] = { "threads", "tcp-poll", "tcp-uring" };
enum { WORLDS = 3 };

#define STEP(call)                                                                              \
    do {                                                                                        \
        const coll_status step_status = (call);                                                 \
        CHECK(step_status == COLL_OK, "%s: %s", #call, coll_error(comm));                       \
        if (step_status) return 1;                                                              \
    } while (0)

static double fraction(uint64_t *state) { return (double)(support_random(state) >> 11) / (double)(UINT64_C(1) << 53); }

/* From `least` to `most`, every power of ten as likely. */
static double spread(uint64_t *state, double least, double most) { return least * pow(most / least, fraction(state)); }

static coll__link random_link(uint64_t *state)
{
    const double latency = spread(state, 2e-7, 2e-3), overhead = spread(state, 1e-8, 1e-4), per_byte = spread(state, 5e-12, 1e-7);
    return (coll__link){ latency, overhead, per_byte, spread(state, 1e-11, 1e-9), 0 };
}

static bool links_are_equal(const coll__link *a, const coll__link *b)
{
    return a->latency == b->latency && a->overhead == b->overhead && a->per_byte == b->per_byte
        && a->per_byte_reduced == b->per_byte_reduced;
}

/* ---- >>texts ---- */

static bool reads_as(const char *text, double latency, double overhead, double per_byte, double per_byte_reduced)
{
    coll__numbers n = { .link = coll__link_default };
    coll__wrong_word wrong;
    const double found[4] = { latency, overhead, per_byte, per_byte_reduced };

    if (!coll__numbers_read(&n, text, &wrong)) return false;
    const double got[4] = { n.link.latency, n.link.overhead, n.link.per_byte, n.link.per_byte_reduced };
    for (int i = 0; i < 4; i++) if (fabs(got[i] - found[i]) > 1e-12 * found[i]) return false;
    return true;
}

static void test_texts(uint64_t seed)
{
    static const char *const nonsense[] = {
        "x", "latency", "latency=", "latency=12kg", "latency=-1us", "latency=1us2", "gbit=10GB/s", "latency 12us", "late=1us",
        "latency=12us overhead", "latency=101s", "wire=1B/s", "gbit=1e+99", "latency=nan", "latency=12us;", "latency=1,5us",
        "=1us", "\x01"
    };
    const coll__link d = coll__link_default;

    CHECK(reads_as("latency=12us overhead=1.2us gbit=10 reduce=4GB/s", 12e-6, 1.2e-6, 0.8e-9, 0.25e-9), "the usual text");
    CHECK(reads_as("", d.latency, d.overhead, d.per_byte, d.per_byte_reduced), "an empty text");
    CHECK(reads_as("# gbit=7\n  latency=1ms, wire=100MB/s\r\n#x", 1e-3, d.overhead, 1e-8, d.per_byte_reduced),
          "lines and comments");
    CHECK(reads_as("wire=8Gbit/s latency=2e-6s", 2e-6, d.overhead, 1e-9, d.per_byte_reduced), "other units");
    CHECK(reads_as("gbit=0 reduce=0 overhead=0 latency=0", 0, 0, 0, 0), "no time at all");
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        coll__numbers n = { .link = d };
        coll__wrong_word wrong = { .length = 0 };
        CHECK(!coll__numbers_read(&n, nonsense[i], &wrong) && wrong.length > 0, "\"%s\" makes sense", nonsense[i]);
    }
    char digits[420], endless[520];
    memset(digits, '5', sizeof digits);
    digits[sizeof digits - 1] = '\0';
    snprintf(endless, sizeof endless, "latency=1.%sus", digits);
    CHECK(reads_as(endless, 1.5555555555555556e-6, d.overhead, d.per_byte, d.per_byte_reduced), "digits that no double holds");
    snprintf(endless, sizeof endless, "latency=%se-400", digits);         /* infinite over infinite           */
    coll__numbers any = { .link = d };
    coll__wrong_word wrong = { .length = 0 };
    CHECK(!coll__numbers_read(&any, endless, &wrong) && wrong.length > 0, "digits without end make sense");
    for (int i = 0; i < 20000; i++) {             /* what is printed reads as itself, and close to what it was    */
        uint64_t state = seed + (uint64_t)i;
        coll__numbers n = { .link = random_link(&state) }, before = n;
        char text[COLL__TUNING_ROOM], again[COLL__TUNING_ROOM];
        coll__numbers_print(&n, text, sizeof text);
        coll__numbers_round(&n);
        coll__numbers_print(&n, again, sizeof again);
        const coll__link kept = n.link;
        coll__numbers_round(&n);
        const bool is_near = fabs(n.link.latency / before.link.latency - 1) < 1e-4 && strlen(text) + 1 < sizeof text
                          && fabs(n.link.overhead / before.link.overhead - 1) < 1e-4
                          && fabs(n.link.per_byte / before.link.per_byte - 1) < 1e-4
                          && fabs(n.link.per_byte_reduced / before.link.per_byte_reduced - 1) < 1e-4;
        CHECK(!strcmp(text, again) && links_are_equal(&kept, &n.link) && is_near, "seed %llu: \"%s\", \"%s\"",
              (unsigned long long)seed + (unsigned)i, text, again);
    }
}

/* ---- >>bits ---- */

static coll__query random_query(uint64_t *state, const coll__link *link)
{
    const uint64_t flags = support_random(state);
    const double bytes = floor(spread(state, 1, 1e9)), sum = flags & 8 ? 2 * bytes : bytes;

    return (coll__query){ .kind = (coll_kind)(COLL_BARRIER + (int)(support_random(state) % COLL_NEIGHBOR_ALLTOALLW)),
                          .size = 1 + (int)spread(state, 1, 4000), .bytes = bytes, .sum_bytes = sum, .is_exact = (flags & 3) == 0,
                          .is_commutative = (flags & 48) != 0, .must_be_canonical = (flags & 192) == 0,
                          .link = link, .share = flags & 256 ? 0 : spread(state, 0.03, 1) };
}

static bool choices_are_equal(const coll__choice *a, const coll__choice *b)
{
    return a->algorithm == b->algorithm && a->radix == b->radix && a->blocks == b->blocks && a->slices == b->slices;
}

/* For all ranks that share processors, the bits are those of the choice with one processor for each rank; among the choices with
 * these bits the fastest is taken. */
static void test_bits(uint64_t seed)
{
    int canonical = 0, others = 0, moved = 0;

    for (int i = 0; i < (int)(30000 * support_scale()); i++) {
        uint64_t state = seed * 1000003 + (uint64_t)i;
        const coll__link file = random_link(&state), link = i % 2 ? coll__link_default : file;
        const coll__query query = random_query(&state, &link);
        coll__query plain = query, fixed = query;
        coll__choice got, alone, fastest;
        fixed.share = 0;
        const bool any = coll__choose(&got, &query);
        CHECK(any == coll__choose(&alone, &fixed) && any == coll__choose_cheapest(&fastest, &plain), "seed %llu, %d: no choice",
              (unsigned long long)seed, i);
        if (!any) continue;
        if (query.is_exact) {
            CHECK(choices_are_equal(&got, &fastest), "seed %llu, %d: not the fastest", (unsigned long long)seed, i);
            continue;
        }
        CHECK(got.algorithm->is_canonical == alone.algorithm->is_canonical,
              "seed %llu, %d: kind %d on %d: \"%s\", not \"%s\"", (unsigned long long)seed, i, (int)query.kind, query.size,
              got.algorithm->name, alone.algorithm->name);
        if (got.algorithm->is_canonical) {
            plain.must_be_canonical = true;
            coll__choose_cheapest(&fastest, &plain);
            CHECK(choices_are_equal(&got, &fastest), "seed %llu, %d: not the fastest", (unsigned long long)seed, i);
            canonical++;
            moved += !choices_are_equal(&got, &alone);
        } else {
            const long cut = got.algorithm->is_pipelined ? got.slices : got.blocks;
            CHECK(choices_are_equal(&got, &alone), "seed %llu, %d: kind %d on %d: \"%s\" with radix %d, not \"%s\" with %d",
                  (unsigned long long)seed, i, (int)query.kind, query.size, got.algorithm->name, got.radix,
                  alone.algorithm->name, alone.radix);
            CHECK(got.seconds == coll__priced(got.algorithm, &plain, got.radix, cut).seconds, "seed %llu, %d: %g s",
                  (unsigned long long)seed, i, got.seconds);
            others++;
        }
    }
    CHECK(support_scale() < 1 || (canonical > 1000 && others > 200 && moved > 200),
          "%d canonical, %d others, %d moved: the draw is poor", canonical, others, moved);
}

/* ---- >>crowds: ranks that share processors ---- */

/* The cached choice for each size is the same as without the cache. */
static coll__choice in_crowd(coll_kind kind, int size, double bytes, const char *algorithm, double share)
{
    static coll__counts remembered[2 * COLL__CROWD_MOST + 1][COLL__ALGORITHM_COUNT];
    coll__query query = { .kind = kind, .size = size, .bytes = bytes, .sum_bytes = bytes, .is_exact = true,
                              .is_commutative = true, .algorithm = algorithm, .link = &coll__link_default, .share = share };
    coll__choice choice = { .algorithm = NULL }, again = choice;

    CHECK(coll__choose(&choice, &query), "kind %d on %d: no \"%s\"", (int)kind, size, algorithm ? algorithm : "choice");
    query.counts = remembered[size];
    CHECK(coll__choose(&again, &query) && choices_are_equal(&choice, &again) && again.seconds == choice.seconds,
          "kind %d on %d: %g s by what is remembered, not %g", (int)kind, size, again.seconds, choice.seconds);
    return choice;
}

/* All ranks together send p times the data of one, if the table says so of an algorithm. */
static void test_counts(void)
{
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        for (int n = 1; a->is_even && n <= 40; n++)
            for (int radix = 2; radix <= (a->has_radix ? n > 2 ? n : 2 : 2); radix++) {
                const coll__count all = coll__count_sent(a, n, radix, coll__blocks_of(a, n, 1));
                int unlike = 0;
                for (int rank = 0; rank < n; rank++) {
                    coll__round now = { .rank = rank, .size = n, .radix = radix, .blocks = coll__blocks_of(a, n, 1),
                                        .is_exclusive = a->kind == COLL_EXSCAN };
                    int rounds = 0;
                    while (a->round(&now, rounds)) rounds++;
                    unlike += now.sent * n != all.sent || now.moved * n != all.moved || rounds != all.rounds;
                }
                CHECK(unlike == 0, "kind %d \"%s\" on %d, radix %d: %d ranks send more or less than rank 0", (int)a->kind,
                      a->name, n, radix, unlike);
            }
    }
}

/* Messages and bytes of all ranks, by hand: a tree has p - 1 of them however high it is; of the circulant each rank sends p - 1
 * blocks in each half. */
static void test_crowds(void)
{
    const coll__link d = coll__link_default;
    const double bytes = 16384, share = 0.25;     /* one slice on any of these numbers of ranks              */

    for (int n = 3; n <= COLL__CROWD_MOST; n += n < 40 ? 1 : 27) {
        char tree[20];
        snprintf(tree, sizeof tree, "tree:%d", n);
        const char *const names[] = { tree, "circulant:2" };
        for (int k = 0; k < 2; k++) {
            const int rounds = k == 0 ? 1 : 2 * coll__circulant_rounds(n, 2), messages = k == 0 ? n - 1 : rounds * n;
            const double sent = (k + 1) * (n - 1) * bytes;
            const double all = (messages * d.latency + sent * d.per_byte) / (n * share) + rounds * d.latency;
            const coll_kind kind = k == 0 ? COLL_BROADCAST : COLL_ALLREDUCE;
            const double alone = in_crowd(kind, n, bytes, names[k], 1).seconds;
            const double got = in_crowd(kind, n, bytes, names[k], share).seconds;
            const double want = all > alone ? all + alone / 8 : alone + all / 8;
            CHECK(fabs(got / want - 1) < 1e-9, "%d ranks, %s: %g s, not %g", n, names[k], got, want);
        }
    }
    for (int kind = COLL_BARRIER; kind <= COLL_ALLTOALL; kind++)
        for (int n = 1; n <= 2 * COLL__CROWD_MOST; n += n < 9 ? 1 : n < 40 ? 7 : 91) {
            const coll__choice alone = in_crowd((coll_kind)kind, n, bytes, NULL, 0);
            const coll__choice one = in_crowd((coll_kind)kind, n, bytes, NULL, 1);
            const coll__choice few = in_crowd((coll_kind)kind, n, bytes, NULL, share);
            CHECK(choices_are_equal(&alone, &one) && alone.seconds == one.seconds, "kind %d on %d: a whole processor", kind, n);
            CHECK(few.seconds >= alone.seconds, "kind %d on %d: %g s with less, %g s with more", kind, n, few.seconds,
                  alone.seconds);
        }
    CHECK(!strcmp(in_crowd(COLL_BROADCAST, 8, 65536, NULL, share).algorithm->name, "tree"), "a broadcast of few messages");
    CHECK(strcmp(in_crowd(COLL_ALLREDUCE, 8, 65536, NULL, share).algorithm->name, "gather"), "an allreduce of few bytes");
}

/* ---- >>simulated worlds ---- */

static int run_sim(int count, int (*fn)(coll_comm *comm, void *arg), void *arg, const coll_sim *sim, const char *file)
{
    const coll_config config = { .transport = "sim", .sim = sim, .tuning_file = file };
    return coll_spawn(count, fn, arg, &config);
}

static bool explains(coll_comm *comm, const char *words)
{
    static const double x[1000];
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = (void *)(uintptr_t)x, .count = 1000, .type = COLL_F64 };
    char text[700] = "";
    const int length = coll_explain(comm, &call, text, sizeof text);
    const bool is_right = length > 0 && (size_t)length < sizeof text && strstr(text, words) != NULL;

    CHECK(is_right, "no \"%s\" in: %s", words, text);
    return is_right;
}

/* ---- >>explanations: why a candidate that takes less time was not chosen ---- */

static const char *const reasons[] = {
    "gains too little for its messages", "without the bits of COLL_DETERMINISTIC",
    "the number of processors must not change the bits"
};
enum { REASONS = sizeof reasons / sizeof *reasons };

/* Each of "; then ring 33.2 us (why), tree:2 40 us": there is a reason if, and only if, it takes less time. */
static void check_reasons(const char *text, int *given)
{
    const char *about = strstr(text, " about "), *other = strstr(text, "; then ");
    const double chosen = about ? atof(about + 7) : 0;

    while (chosen > 0 && other && (other = strchr(other, ' ')) != NULL) {
        const char *const name = other + (strncmp(other, " then ", 6) ? 1 : 6), *const time = strchr(name, ' ');
        const char *const end = time ? strstr(time, " us") : NULL, *const why = end && end[3] == ' ' ? end + 5 : NULL;
        int reason = 0;
        while (why && reason < REASONS && strncmp(why, reasons[reason], strlen(reasons[reason])) != 0) reason++;
        CHECK(end && reason < REASONS, "no reason that is known: %s", text);
        CHECK(!end || (why ? atof(time) <= chosen : atof(time) >= chosen), "%.20s has %s reason: %s", name, why ? "a" : "no",
              text);
        if (why && reason < REASONS) given[reason]++;
        other = end ? strchr(end, ',') : NULL;
    }
}

static int reasons_worker(coll_comm *comm, void *arg)
{
    static const coll_type types[] = { COLL_F32, COLL_BF16, COLL_I32 };
    static float x[1];
    const coll_kind kinds[] = { COLL_ALLREDUCE, COLL_REDUCE, COLL_BROADCAST, COLL_ALLGATHER };
    int given[REASONS] = { 0 }, *const all = arg;
    uint64_t state = (uint64_t)all[REASONS];
    char text[900];

    if (coll_rank(comm) != 0) return 0;
    for (int i = 0; i < 4000; i++) {
        const coll_call call = { .kind = kinds[i % 4], .send = i % 4 == 2 ? NULL : COLL_IN_PLACE, .recv = x,
                                 .count = (size_t)spread(&state, 1, 3e6), .type = types[i / 4 % 3] };
        comm->numbers.link = random_link(&state);
        comm->session->share = i % 8 < 4 ? 0 : spread(&state, 0.03, 1);
        CHECK(coll_explain(comm, &call, text, sizeof text) > 0 && strlen(text) < sizeof text - 1, "%s", coll_error(comm));
        check_reasons(text, given);
    }
    for (int i = 0; i < REASONS; i++) all[i] += given[i];
    return 0;
}

static void test_reasons(uint64_t seed)
{
    const coll_sim sim = { .latency = 1e-5 };
    int given[REASONS + 1] = { [REASONS] = (int)(seed & 0xffff) };

    for (int count = 2; count < 20; count += 3)
        CHECK(run_sim(count, reasons_worker, given, &sim, NULL) == 0, "seed %llu: %d ranks", (unsigned long long)seed, count);
    for (int i = 0; i < REASONS; i++) CHECK(given[i] > 0, "no candidate \"%s\"", reasons[i]);
}

/* ---- >>real worlds ---- */

/* Have all ranks the same numbers? */
static bool agree(coll_comm *comm)
{
    coll__link all[SUPPORT_RANKS_MAX];
    bool equal = coll_allgather(comm, &comm->numbers.link, all, 1, COLL_BLOB(sizeof *all)) == COLL_OK;

    for (int i = 0; i < coll_size(comm) && equal; i++) equal = links_are_equal(&all[0], &all[i]);
    return equal;
}

/* A communicator made from another has its numbers; coll_link_text writes them as snprintf does. */
static int default_worker(coll_comm *comm, void *arg)
{
    coll_comm *after;
    char text[200], small[8];

    CHECK(explains(comm, "(default: latency=12us overhead=4us gbit=16 reduce=10GB/s)") && agree(comm), "%d ranks over %s",
          coll_size(comm), (char *)arg);
    const int length = coll_link_text(comm, text, sizeof text);
    CHECK(length == (int)strlen(text) && !strncmp(text, "latency=", 8) && coll_link_text(comm, NULL, 0) == length
          && coll_link_text(comm, small, sizeof small) == length && !strcmp(small, "latency"), "the text: %s", text);
    STEP(coll_dup(comm, &after));
    CHECK(links_are_equal(&after->numbers.link, &comm->numbers.link) && explains(after, "(default: latency="), "inherited");
    coll_free(after);
    return 0;
}

static void test_worlds(void)
{
    static const int sizes[] = { 1, 2, 3, 5 };

    for (int w = 0; w < WORLDS; w++) {
        const char *refusal = support_refusal(worlds[w]);
        if (refusal) printf("skipped %s: %s\n", worlds[w], refusal);
        for (int i = 0; i < 4 && !refusal; i++)
            CHECK(support_run(worlds[w], sizes[i], default_worker, (void *)(uintptr_t)worlds[w]) == 0, "%s, %d ranks", worlds[w],
                  sizes[i]);
    }
    CHECK(coll_link_text(NULL, NULL, 0) == COLL_ERR_ARGUMENT, "NULL");
}

/* ---- >>files ---- */

static char file_good[64], file_bad[64], file_unit[64], file_long[64];

static void write_file(char *path, const char *text, int times)
{
    strcpy(path, "/tmp/coll_tuning_XXXXXX");
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;

    if (!file) {
        CHECK(false, "no file at %s", path);
        return;
    }
    for (int i = 0; i < times; i++) fputs(text, file);
    fclose(file);
}

static int told_by_file(coll_comm *comm, void *arg)
{
    const coll__link want = { 7e-6, 1.5e-6, 8e-9 / 25, 1 / 5e9, 0 };
    const coll__link *got = &comm->numbers.link;
    char words[200];

    (void)arg;
    snprintf(words, sizeof words, "(from %s: latency=7us overhead=1.5us gbit=25 reduce=5GB/s)",
             *comm->numbers.file == '/' ? file_good : "the file of rank 0");
    CHECK(explains(comm, words), "rank %d", coll_rank(comm));
    CHECK(fabs(got->latency / want.latency - 1) < 1e-12 && fabs(got->overhead / want.overhead - 1) < 1e-12
          && fabs(got->per_byte / want.per_byte - 1) < 1e-12 && fabs(got->per_byte_reduced / want.per_byte_reduced - 1) < 1e-12,
          "rank %d", coll_rank(comm));
    CHECK(agree(comm), "rank %d", coll_rank(comm));
    return 0;
}

/* Only rank 0 is given the file; the others have one that does not exist. */
static void test_file_over_tcp(void)
{
    support_rank ranks[4];
    char address[64];
    const int port = support_reserve_port(address, sizeof address);

    memset(ranks, 0, sizeof ranks);
    for (int i = 0; i < 4; i++) {
        ranks[i].config = (coll_config){ .transport = "tcp", .rank = i, .size = 4, .address = address, .tcp = { .io = "poll" },
                                         .tuning_file = i == 0 ? file_good : i == 1 ? "/nowhere" : NULL };
        ranks[i].worker = told_by_file;
        CHECK(pthread_create(&ranks[i].thread, NULL, support_rank_main, &ranks[i]) == 0, "thread %d", i);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(ranks[i].thread, NULL);
        CHECK(ranks[i].hybrid == COLL_OK && ranks[i].result == 0, "rank %d over tcp", i);
    }
    close(port);
}

static void check_refused(const char *path, const char *words)
{
    const coll_config config = { .tuning_file = path };
    coll_comm *comm = NULL;

    CHECK(coll_init_threads(1, &comm, &config) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), words), "%s: %s", path,
          coll_error(NULL));
    CHECK(coll_init(&comm, &config) == COLL_ERR_ARGUMENT && strstr(coll_error(NULL), words), "%s: %s", path, coll_error(NULL));
}

static void test_files(void)
{
    const coll_sim sim = { .latency = 30e-6 };

    write_file(file_good, "# a switch\nlatency=7us overhead=1.5us\ngbit=25, reduce=5GB/s\n", 1);
    write_file(file_bad, "latency=7us oberhead=1us\n", 1);
    write_file(file_unit, "latency=7us overhead=1kg\n", 1);
    write_file(file_long, "latency=7us overhead=1us                                         \n", 100);
    const coll_config good = { .tuning_file = file_good };
    CHECK(support_run_config("threads", 3, &good, told_by_file, NULL) == 0, "threads");
    test_file_over_tcp();
    CHECK(run_sim(3, told_by_file, NULL, &sim, file_good) == 0, "a file beats what is simulated");
    setenv("COLL_TUNING", file_good, 1);
    CHECK(coll_spawn(2, told_by_file, NULL, NULL) == 0, "COLL_TUNING");
    check_refused("/nowhere/at/all", "No such file");
    check_refused(file_bad, "\"oberhead=1us\" begins with an unknown name; there is: latency, overhead, wire, gbit, reduce, "
                  "barrier, faster");
    check_refused(file_unit, "\"overhead=1kg\" makes no sense: overhead is a time, like 12us");
    check_refused(file_long, "longer than");
    check_refused("/", "directory");
    unsetenv("COLL_TUNING");
    unlink(file_good);
    unlink(file_bad);
    unlink(file_unit);
    unlink(file_long);
}

/* COLL_ALGORITHM: every call uses the named algorithm, the first call and similar ones, in every form. */
static int forced_worker(coll_comm *comm, void *arg)
{
    enum { COUNT = 100 };
    float in[COUNT], out[COUNT];
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = in, .recv = out, .count = COUNT, .type = COLL_F32 };
    char text[600];

    for (int i = 0; i < COUNT; i++) in[i] = (float)(coll_rank(comm) + i);
    for (int k = 0; k < 6; k++) {
        const coll_status status = k % 3 == 2 ? coll_run(comm, &call) : coll_allreduce(comm, in, out, COUNT, COLL_F32, COLL_SUM);
        CHECK(status == COLL_OK && out[1] == 4 * 1 + 6, "%s: %s", (const char *)arg, coll_error(comm));
        const coll_request *r = comm->plans[COLL_ALLREDUCE] ? &comm->plans[COLL_ALLREDUCE]->request : NULL;
        if (k % 3 == 2) continue;
        CHECK(r && !strcmp(r->carrier->name, "rounds") && r->execution
              && !strcmp(r->execution->choice.algorithm->name, "ring"),
              "%s: call %d goes by %s", (const char *)arg, k, r ? r->carrier->name : "no plan");
        CHECK(coll_explain(comm, &call, text, sizeof text) > 0 && strstr(text, "ring"), "%s: %s", (const char *)arg, text);
    }
    return 0;
}

static void test_forced(void)
{
    static const char *const over[] = { "threads", "sim" };

    setenv("COLL_ALGORITHM", "allreduce=ring", 1);
    for (int i = 0; i < 2; i++) {
        setenv("COLL_TRANSPORT", over[i], 1);
        CHECK(coll_spawn(4, forced_worker, (void *)(uintptr_t)over[i], NULL) == 0, "COLL_ALGORITHM over %s", over[i]);
    }
    unsetenv("COLL_TRANSPORT");
    unsetenv("COLL_ALGORITHM");
}

int main(void)
{
    const uint64_t seed = support_seed();

    support_limit(120, NULL);
    test_texts(seed);
    test_counts();
    test_crowds();
    test_bits(seed);
    test_reasons(seed);
    test_worlds();
    test_files();
    test_forced();
    return CHECK_DONE();
}
