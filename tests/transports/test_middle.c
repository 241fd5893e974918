/* test_middle.c - a proxy without the key between two ranks: between a rank and rank 0 at the start (control connection), and
 * between two ranks of a world (data connection).  The proxy forwards the handshake and then negotiates TLS itself with the
 * dialling rank and with the accepting rank.  It changes, drops and repeats records; it replays old handshakes; and it sends
 * refusals in the name of another rank.
 *
 *     test_middle [PART,...]            PART: tls, records, again, refusals
 *
 * Built with COLL_WITH_OPENSSL where there is OpenSSL; otherwise the TLS cases are left out, and the first line says so.
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"
#include "man_in_the_middle.h"

#define KEY "a key of all ranks, 0123456789"

enum { CASE_SECONDS = 40, WORDS = 3000, LIVENESS_MS = 1500 };

static int start_ms;                              /* limit for a rank to connect: takes 1.2 s on an idle machine */

#if defined(COLL_WITH_OPENSSL)
#define HAS_TLS true
#else
#define HAS_TLS false
#endif

/* ---- >>worlds of two ranks, with the proxy between them ---- */

typedef struct scene {
    man         man;
    bool        is_data;                          /* between rank 0, which dials, and rank 1; else between rank 1 and rank 0 */
    const char *io, *security;
    event       met;
    int         port;                             /* of rank 1                                                */
    joiner       joiners[2];
    journal     said;
    char        between[64];
} scene;

static int port_of(const coll__tcp *tcp)
{
    return coll__name_of(tcp->listener, false).port;
}

/* A secret that both ranks exchange. */
static int32_t word_of(int rank, int i) { return (int32_t)support_mix((uint64_t)(unsigned)rank << 32 | (unsigned)i); }

/* Rank 0 gets the address of the proxy for rank 1, then both exchange their secrets.  Either an error, or the received text is
 * right.  That a record is missing is seen at the next one, which may be a heartbeat: the ranks exchange them until then. */
static coll_status meet_and_talk(joiner *g)
{
    scene *s = g->arg;
    const int me = coll_rank(g->comm);
    coll__tcp *tcp = inside_tcp(g->comm);
    static const coll_type T = COLL_I32;
    int32_t *out = support_need(malloc(WORDS * sizeof *out)), *in = support_need(calloc(WORDS, sizeof *in));
    const bool breaks = s->man.does >= MAN_CHANGES && s->man.does <= MAN_REPEATS;
    const int64_t until = now_ms() + (breaks ? support_scaled(LIVENESS_MS) : 0);
    coll_status status = COLL_OK;
    bool is_right = true;

    if (me == 1) s->port = port_of(tcp);
    event_raise(&s->met);
    event_await(&s->met, 2);
    if (me == 0 && s->is_data) {
        man_begins(&s->man, s->port, s->between);
        tcp->endpoints[1].port = s->man.port;
    }
    for (int i = 0; i < WORDS; i++) out[i] = word_of(me, i);
    for (int round = 0; (round < 4 || now_ms() < until) && !status; round++) {
        memset(in, 0, WORDS * sizeof *in);
        status = coll_sendrecv(g->comm, out, WORDS, !me, in, WORDS, !me, 3, T);
        for (int i = 0; i < WORDS && !status; i++) is_right = is_right && in[i] == word_of(!me, i);
    }
    if (!status) status = coll_barrier(g->comm);
    CHECK(is_right, "%s: rank %d has something else than was sent, and no error", case_name, me);
    free(out);
    free(in);
    return status;
}

static void scene_plays(scene *s)
{
    char address[64];
    const int held = support_reserve_port(address, sizeof address);

    s->met = (event)EVENT_INIT;
    s->said = (journal)JOURNAL;
    start_ms = support_scaled(1200) < 3600 ? (int)support_scaled(1200) : 3600;
    if (!s->is_data) man_begins(&s->man, atoi(strchr(address, ':') + 1), s->between);
    for (int i = 0; i < 2; i++) {
        s->joiners[i] = (joiner){ .body = meet_and_talk, .arg = s, .config = {
            .transport = "tcp", .rank = i, .size = 2, .address = i == 1 && !s->is_data ? s->between : address,
            .tcp = { .key = KEY, .security = s->security, .io = s->io, .share_memory = COLL_OFF }, .start_timeout_ms = start_ms,
            .stall_timeout_ms = 5000, .liveness_timeout_ms = LIVENESS_MS, .log = journal_line, .log_context = &s->said } };
        if (s->is_data || s->man.does == MAN_FORWARDS || s->man.most > 0)
            s->joiners[i].config.start_timeout_ms = (int)support_scaled(4000);
        joiner_run(&s->joiners[i]);
    }
    joiner_join(&s->joiners[1]);
    event_raise(&s->met);                         /* rank 0 may already wait for it                           */
    joiner_join(&s->joiners[0]);
    if (!s->is_data || s->man.port) man_ends(&s->man);
    close(held);
}

/* Neither rank has a result, and the proxy has read no plain text. */
static void expect_nothing_gained(scene *s)
{
    CHECK(man_counts(&s->man.done) > 0, "%s: the man in the middle has done nothing", case_name);
    CHECK(man_counts(&s->man.stolen) == 0, "%s: the man in the middle has read %d bytes", case_name, man_counts(&s->man.stolen));
    for (int i = 0; i < 2; i++)
        CHECK(s->joiners[i].status < 0, "%s: rank %d has COLL_OK", case_name, i);
}

static const char *line_name(bool is_data) { return is_data ? "a data connection" : "a control connection"; }

/* ---- >>tls: the proxy negotiates TLS itself ---- */

static void tls_case(const void *arg)
{
    scene *s = support_need(malloc(sizeof *s));

    memcpy(s, arg, sizeof *s);
    scene_plays(s);
    if (s->man.does == MAN_FORWARDS) {            /* proves that what follows fails because of the proxy       */
        for (int i = 0; i < 2; i++) expect_success(&s->joiners[i]);
    } else {
        const int victim = (s->man.does == MAN_PLAYS_SERVER) == s->is_data ? 0 : 1;
        expect_nothing_gained(s);
        if (s->man.does == MAN_PLAYS_SERVER)
            CHECK(s->joiners[victim].status == COLL_ERR_DENIED && strstr(s->joiners[victim].sentence, "TLS"),
                  "%s: rank %d has %d, \"%s\"", case_name, victim, (int)s->joiners[victim].status, s->joiners[victim].sentence);
        else
            CHECK(journal_count(&s->said, "TLS"), "%s: no log line says that TLS could not begin", case_name);
    }
    free(s);
}

static void test_tls(const char *io)
{
    static const man_does all[] = { MAN_FORWARDS, MAN_PLAYS_SERVER, MAN_PLAYS_CLIENT };
    static const char *const names[] = { "forwards", "plays the server", "plays the client" };

    for (int data = 0; data < 2; data++)
        for (int i = 0; i < 3; i++)
            for (int tls = 0; tls < (i && !strcmp(io, "poll") ? MAN_TLS_LIMIT : 1); tls++) {
                const scene s = { .man = { .does = all[i], .tls = (man_tls)tls }, .is_data = data, .io = io, .security = "tls" };
                char name[120];
                snprintf(name, sizeof name, "%s, %s: the proxy %s, way %d", io, line_name(data), names[i], tls);
                run_case_within(CASE_SECONDS, tls_case, &s, name);
            }
}

/* ---- >>records: the proxy changes, drops and repeats records ---- */

static void record_case(const void *arg)
{
    scene *s = support_need(malloc(sizeof *s));

    memcpy(s, arg, sizeof *s);
    scene_plays(s);
    expect_nothing_gained(s);
    free(s);
}

static void test_records(const char *io)
{
    static const char *const names[] = { "changes", "drops", "repeats" };

    for (int data = 0; data < 2; data++)
        for (int does = MAN_CHANGES; does <= MAN_REPEATS; does++)
            for (int from = 0; from < 2; from++)
                for (int record = 0; record < 5; record += data ? 2 : 4) {
                    const scene s = { .man = { .does = (man_does)does, .from = from, .record = record }, .is_data = data,
                                      .io = io, .security = "tls" };
                    char name[120];
                    snprintf(name, sizeof name, "%s, %s: the proxy %s record %d of the %s", io, line_name(data),
                             names[does - MAN_CHANGES], record, from ? "one called" : "caller");
                    run_case_within(CASE_SECONDS, record_case, &s, name);
                }
}

/* ---- >>again: replayed handshakes ---- */

/* The answer of the accepting rank, and everything that the dialling rank has sent. */
static void again_case(const void *arg)
{
    scene *s = support_need(malloc(sizeof *s)), *before = support_need(malloc(sizeof *s));
    const scene *asked = arg;
    char address[64];

    memcpy(before, asked, sizeof *before);
    before->man.does = MAN_FORWARDS;
    scene_plays(before);
    for (int i = 0; i < 2; i++) expect_success(&before->joiners[i]);
    CHECK(before->man.kept_length[0] >= COLL__HELLO_LENGTH + COLL__SHA_LENGTH
          && before->man.kept_length[1] >= COLL__HELLO_LENGTH, "%s: nothing was recorded", case_name);
    memcpy(s, asked, sizeof *s);
    memcpy(s->man.kept[1], before->man.kept[1], sizeof s->man.kept[1]);
    scene_plays(s);
    expect_nothing_gained(s);
    const int victim = s->is_data ? 0 : 1;
    CHECK(s->joiners[victim].status == COLL_ERR_DENIED && strstr(s->joiners[victim].sentence, "its key is another one"),
          "%s: rank %d has %d, \"%s\"", case_name, victim, (int)s->joiners[victim].status, s->joiners[victim].sentence);

    const int held = support_reserve_port(address, sizeof address);       /* now to a rank 0 that waits for rank 1 */
    joiner joiners[2];
    journal said = JOURNAL;
    unsigned char byte;
    for (int i = 0; i < 2; i++) {
        joiners[i] = (joiner){ .config = { .transport = "tcp", .rank = i, .size = 2, .address = address,
                                           .tcp = { .key = KEY, .security = s->security, .io = s->io }, .start_timeout_ms = 20000,
                                           .log = journal_line, .log_context = &said } };
        if (i == 1) {
            int fd;
            while ((fd = man_dials(atoi(strchr(address, ':') + 1))) < 0) sched_yield();
            CHECK(man_writes(fd, before->man.kept[0], before->man.kept_length[0]), "%s: no rank listens", case_name);
            while (man_reads(fd, &byte, 1)) { }   /* until the proxy is refused                               */
            close(fd);
        }
        joiner_run(&joiners[i]);
    }
    for (int i = 0; i < 2; i++) joiner_join(&joiners[i]);
    for (int i = 0; i < 2; i++) expect_success(&joiners[i]);
    CHECK(journal_count(&said, s->is_data ? "turned away" : "its key is another one") == 1, "%s: no connection is refused",
          case_name);
    close(held);
    free(before);
    free(s);
}

static void test_again(const char *io)
{
    for (int data = 0; data < 2; data++)
        for (int tls = 0; tls <= HAS_TLS; tls++) {
            const scene s = { .man = { .does = MAN_ANSWERS_AGAIN }, .is_data = data, .io = io, .security = tls ? "tls" : "key" };
            char name[120];
            snprintf(name, sizeof name, "%s, %s, security %s: replayed handshakes", io, line_name(data), s.security);
            run_case_within(CASE_SECONDS, again_case, &s, name);
        }
}

/* ---- >>refusals: the proxy sends them in the name of another rank ---- */

#define ITS_TEXT "this text is from the proxy"

/* A few times: the world forms nevertheless.  Always: the error of the dialling rank contains the refusal and its sender. */
static void refusal_case(const void *arg)
{
    scene *s = support_need(malloc(sizeof *s));

    memcpy(s, arg, sizeof *s);
    scene_plays(s);
    CHECK(man_counts(&s->man.done) >= (s->man.most ? s->man.most : 2), "%s: the proxy has refused %d times", case_name,
          man_counts(&s->man.done));
    if (s->man.most) {
        for (int i = 0; i < 2; i++) expect_success(&s->joiners[i]);
    } else {
        const joiner *victim = &s->joiners[s->is_data ? 0 : 1];
        const bool is_refusal = s->man.does == MAN_REFUSES && s->man.status != COLL_ERR_TIMEOUT;
        const bool is_chance = s->man.does == MAN_REFUSES && !is_refusal;     /* text of a rank with start_timeout_ms 0 */
        const coll_status due = is_refusal || (s->is_data && !is_chance) ? COLL_ERR_DENIED : COLL_ERR_TIMEOUT;
        const bool is_said = strstr(victim->sentence, "an unauthenticated peer says: " ITS_TEXT);
        CHECK(victim->status == due, "%s: rank %d has %d, \"%s\"", case_name, victim->config.rank, (int)victim->status,
              victim->sentence);
        CHECK(is_said || !is_refusal, "%s: \"%s\"", case_name, victim->sentence);
        CHECK(s->is_data || victim->took_ms >= start_ms - COLL__LAST_MS, "%s: ended after %d ms", case_name,
              (int)victim->took_ms);
        CHECK(s->joiners[!victim->config.rank].status < 0, "%s: the other one has COLL_OK", case_name);
    }
    free(s);
}

static void test_refusals(const char *io)
{
    static const struct { man_does does; coll_status status; } all[] = {
        { MAN_REFUSES, COLL_ERR_DENIED }, { MAN_REFUSES, COLL_ERR_PROTOCOL }, { MAN_REFUSES, COLL_ERR_ABORTED },
        { MAN_REFUSES, COLL_ERR_TIMEOUT }, { MAN_RAVES, COLL_OK }
    };

    for (int data = 0; data < 2; data++)
        for (int most = 0; most <= 3; most += 3)
            for (int tls = 0; tls <= HAS_TLS; tls++)
                for (size_t i = 0; i < (strcmp(io, "poll") ? 1 : sizeof all / sizeof *all); i++) {
                    const scene s = { .man = { .does = all[i].does, .status = all[i].status, .text = ITS_TEXT, .most = most },
                                      .is_data = data, .io = io, .security = tls ? "tls" : "key" };
                    char name[120];
                    snprintf(name, sizeof name, "%s, %s, security %s: the proxy sends %d %s", io, line_name(data), s.security,
                             (int)all[i].status, most ? "3 times" : "always");
                    run_case_within(CASE_SECONDS, refusal_case, &s, name);
                }
}

/* ---- >>all of it ---- */

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;
    static const char *const ios[] = { "poll", "uring" };

    (void)signal(SIGPIPE, SIG_IGN);               /* OpenSSL writes to the proxy's sockets itself              */
    cases_begin_without_key();
    printf("%s\n", HAS_TLS ? "with TLS" : "without TLS: not compiled in");
    world = "middle";
    for (int i = 0; i < 2; i++) {
        const char *refusal = support_refusal(i ? "tcp-uring" : "tcp-poll");
        if (refusal) {
            printf("%s: skipped: %s\n", ios[i], refusal);
            continue;
        }
        if (HAS_TLS && support_listed(parts, "tls")) test_tls(ios[i]);
        if (HAS_TLS && support_listed(parts, "records") && i == 0) test_records(ios[i]);
        if (support_listed(parts, "again")) test_again(ios[i]);
        if (support_listed(parts, "refusals")) test_refusals(ios[i]);
    }
    return CHECK_DONE();
}
