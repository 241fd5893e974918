/* test_budget.c - processes that know the world, but not the key, and send a valid hello as often as they can: a rank answers a
 * limited number of them a second, and the ranks connect meanwhile, also if the accepting rank computes.
 *
 *     test_budget
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"
#include "man_in_the_middle.h"

#define KEY "a key of all ranks, 0123456789"

enum { CASE_SECONDS = 60, RANKS = 3, INTRUDERS = 4 };

typedef struct intruder {
    pthread_t thread;
    int       port, answers, over;
    int       rank, size, to;                     /* of its hello                                             */
    coll__purpose purpose;
} intruder;

/* Send a hello, read the answer, close, and connect again. */
static void *intruder_main(void *at)
{
    intruder *p = at;
    coll__tcp_settings settings = { .config = { .rank = 1, .size = RANKS, .world = "" }, .auth = COLL__AUTH_KEY,
                                    .key = "not the key" };
    coll__identity us = { .rank = 0 };
    coll__hello hello = { .purpose = (unsigned char)p->purpose, .to = p->to };
    unsigned char bytes[COLL__HELLO_LENGTH], answer[COLL__HELLO_LENGTH];
    unsigned char note[COLL__CONTROL_LENGTH];

    CHECK(coll__identify(&us, &settings), "no identity");
    us.rank = p->rank;
    us.size = p->size;
    coll__hello_as(&hello, &us);
    coll__hello_write(bytes, &hello);
    while (!__atomic_load_n(&p->over, __ATOMIC_ACQUIRE)) {
        const int fd = man_dials(p->port);
        if (fd < 0) continue;
        const bool has_answer = man_writes(fd, bytes, sizeof bytes) && man_reads(fd, answer, sizeof answer);
        static const unsigned char none[COLL__SHA_LENGTH] = { 0 };
        if (has_answer && !coll__begins_refusal(answer)) p->answers++;
        else if (has_answer && man_reads(fd, note, sizeof note - sizeof answer)
                 && memcmp(note + sizeof note - sizeof answer - sizeof none, none, sizeof none)) p->answers++;
        close(fd);
    }
    return NULL;
}

static void intruders_begin(intruder *intruders, intruder like)
{
    for (int i = 0; i < INTRUDERS; i++) {
        intruders[i] = like;
        intruders[i].rank = (like.to + 1 + i % 2) % RANKS;    /* one of the others                            */
        CHECK(!pthread_create(&intruders[i].thread, NULL, intruder_main, &intruders[i]), "no thread");
    }
}

/* Returns how many answers they have got. */
static int intruders_end(intruder *intruders)
{
    int answers = 0;

    for (int i = 0; i < INTRUDERS; i++) __atomic_store_n(&intruders[i].over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < INTRUDERS; i++) {
        pthread_join(intruders[i].thread, NULL);
        answers += intruders[i].answers;
    }
    return answers;
}

static void budget_case(const void *arg)
{
    const bool is_right = *(const bool *)arg;
    const int room = 2 * RANKS + COLL__HANDSHAKES_SPARE;
    intruder intruders[INTRUDERS];
    joiner joiners[RANKS];
    journal said = JOURNAL;
    char address[64];
    const int held = support_reserve_port(address, sizeof address);

    for (int i = 0; i < RANKS; i++)
        joiners[i] = (joiner){ .config = { .transport = "tcp", .rank = i, .size = RANKS, .address = address,
                                           .tcp = { .key = KEY, .security = "key", .share_memory = COLL_OFF },
                                           .start_timeout_ms = 30000, .log = journal_line, .log_context = &said } };
    const int64_t began = coll__now(), enough = began + 2000 * (int64_t)COLL__MS;
    joiner_run(&joiners[0]);
    intruders_begin(intruders, (intruder){ .port = atoi(strchr(address, ':') + 1), .size = is_right ? RANKS : RANKS + 1,
                               .purpose = COLL__PURPOSE_JOIN });
    while (coll__now() < enough) (void)poll(NULL, 0, 50);         /* the time over which they are counted      */
    for (int i = 1; i < RANKS; i++) joiner_run(&joiners[i]);
    for (int i = 0; i < RANKS; i++) joiner_join(&joiners[i]);
    const double seconds = (double)(coll__now() - began) * 1e-9;
    const int answers = intruders_end(intruders);
    for (int i = 0; i < RANKS; i++) expect_success(&joiners[i]);
    const double most = 2 * room + (COLL__ANSWERS_A_SECOND + RANKS) * seconds;
    printf("%s: %d answers in %.1f s, of %.0f at most\n", case_name, answers, seconds, most);
    CHECK(answers > 0 && answers <= (int)most + 1, "%s: %d answers in %.1f s", case_name, answers, seconds);
    CHECK(joiners[1].took_ms < support_scaled(2000) && joiners[2].took_ms < support_scaled(2000),
          "%s: the ranks connected after %d and %d ms", case_name, (int)joiners[1].took_ms, (int)joiners[2].took_ms);
    close(held);
}

/* ---- >>a rank that computes ---- */

typedef struct office { event met, over; coll__tcp *busy; int port; } office;

/* Rank 0 dials the last rank, which makes no call: its heartbeat thread answers. */
static coll_status call_busy(joiner *g, office *o)
{
    const coll__stream *const s = coll__stream_to(inside_tcp(g->comm), RANKS - 1, COLL_CHANNEL_MESSAGES);
    intruder intruders[INTRUDERS];
    coll_request *request;
    int32_t x = 42;

    intruders_begin(intruders, (intruder){ .port = o->port, .size = RANKS, .purpose = COLL__PURPOSE_PROBE, .to = RANKS - 1 });
    while (!__atomic_load_n(&o->busy->budget.is_awaited, __ATOMIC_RELAXED)) (void)poll(NULL, 0, 1);
    const int64_t began = now_ms();
    coll_status status = coll_isend(g->comm, &x, 1, COLL_I32, RANKS - 1, 7, &request);
    while (!status && s->state != COLL__STREAM_OPEN && now_ms() - began < 20000) status = coll_progress(g->comm);
    CHECK(now_ms() - began < support_scaled(2000), "%s: connected after %d ms", case_name, (int)(now_ms() - began));
    (void)intruders_end(intruders);
    event_raise(&o->over);
    if (!status) status = coll_wait(request);
    coll_request_free(request);
    return status;
}

static coll_status work_or_call(joiner *g)
{
    office *o = g->arg;
    const int me = coll_rank(g->comm);
    int32_t x = 0;

    if (me == RANKS - 1) {
        o->busy = inside_tcp(g->comm);
        o->port = coll__name_of(o->busy->listener, false).port;
    }
    event_raise(&o->met);
    event_await(&o->met, RANKS);
    if (me == 0) return call_busy(g, o);
    event_await(&o->over, 1);
    const coll_status status = me == RANKS - 1 ? coll_recv(g->comm, &x, 1, COLL_I32, 0, 7) : COLL_OK;
    CHECK(me < RANKS - 1 || status || x == 42, "%s: received %d", case_name, (int)x);
    return status;
}

static void busy_case(const void *unused)
{
    office o = { .met = EVENT_INIT, .over = EVENT_INIT };
    joiner joiners[RANKS];
    journal said = JOURNAL;
    char address[64];
    const int held = support_reserve_port(address, sizeof address);

    (void)unused;
    for (int i = 0; i < RANKS; i++)
        joiners[i] = (joiner){ .body = work_or_call, .arg = &o,
                               .config = { .transport = "tcp", .rank = i, .size = RANKS, .address = address,
                                           .tcp = { .key = KEY, .security = "key", .share_memory = COLL_OFF },
                                           .start_timeout_ms = 30000, .log = journal_line, .log_context = &said } };
    for (int i = 0; i < RANKS; i++) joiner_run(&joiners[i]);
    for (int i = 0; i < RANKS; i++) joiner_join(&joiners[i]);
    for (int i = 0; i < RANKS; i++) expect_success(&joiners[i]);
    close(held);
}

int main(void)
{
    static const bool yes = true, no = false;

    cases_begin_without_key();
    world = "budget";
    run_case_within(CASE_SECONDS, budget_case, &yes, "right hellos");
    run_case_within(CASE_SECONDS, budget_case, &no, "hellos that are refused");
    run_case_within(CASE_SECONDS, busy_case, NULL, "a rank that computes");
    return CHECK_DONE();
}
