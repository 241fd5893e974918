/* test_budget.c - peers that know the world, but not the key, and say a right hello as often as they can: rank 0 answers so
 * many of them a second, and the ranks meet meanwhile.
 *
 *     test_budget
 */
#define COLL__ONE_TIER 1
#include "inside.h"

#include "check.h"
#include "support.h"
#include "cases.h"
#include "joiners.h"
#include "man.h"

#define KEY "a key of all ranks, 0123456789"

enum { CASE_SECONDS = 60, RANKS = 3, PESTS = 4 };

typedef struct pest {
    pthread_t thread;
    int       port, answers, over;
    int       rank, size;                         /* of its hello                                             */
} pest;

/* Say hello, take the answer, go, and come again. */
static void *pest_main(void *at)
{
    pest *p = at;
    coll__tcp_settings settings = { .config = { .rank = 1, .size = RANKS, .world = "" }, .auth = COLL__AUTH_KEY,
                                    .key = "not the key" };
    coll__identity us = { .rank = 0 };
    coll__hello hello = { .purpose = COLL__PURPOSE_JOIN };
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

static void budget_case(const void *arg)
{
    const bool is_right = *(const bool *)arg;
    const int room = coll__greeting_room(RANKS, 1);
    pest pests[PESTS];
    joiner joiners[RANKS];
    journal said = JOURNAL;
    char address[64];
    const int held = support_reserve_port(address, sizeof address);
    int answers = 0;

    for (int i = 0; i < RANKS; i++)
        joiners[i] = (joiner){ .config = { .transport = "tcp", .rank = i, .size = RANKS, .address = address,
                                           .tcp = { .key = KEY, .security = "key", .share_memory = -1 },
                                           .start_timeout_ms = 30000, .log = journal_line, .log_context = &said } };
    const int64_t began = coll__now(), enough = began + 2000 * (int64_t)COLL__MS;
    joiner_run(&joiners[0]);
    for (int i = 0; i < PESTS; i++) {
        pests[i] = (pest){ .port = atoi(strchr(address, ':') + 1), .rank = 1 + i % 2, .size = is_right ? RANKS : RANKS + 1 };
        CHECK(!pthread_create(&pests[i].thread, NULL, pest_main, &pests[i]), "no thread");
    }
    while (coll__now() < enough) (void)poll(NULL, 0, 50);         /* the time over which they are counted      */
    for (int i = 1; i < RANKS; i++) joiner_run(&joiners[i]);
    for (int i = 0; i < RANKS; i++) joiner_join(&joiners[i]);
    for (int i = 0; i < PESTS; i++) __atomic_store_n(&pests[i].over, 1, __ATOMIC_RELEASE);
    const double seconds = (double)(coll__now() - began) * 1e-9;
    for (int i = 0; i < PESTS; i++) {
        pthread_join(pests[i].thread, NULL);
        answers += pests[i].answers;
    }
    for (int i = 0; i < RANKS; i++) expect_success(&joiners[i]);
    const double most = 2 * room + (COLL__ANSWERS_A_SECOND + RANKS) * seconds;
    printf("%s: %d answers in %.1f s, of %.0f at most\n", case_name, answers, seconds, most);
    CHECK(answers > 0 && answers <= (int)most + 1, "%s: %d answers in %.1f s", case_name, answers, seconds);
    CHECK(joiners[1].took_ms < support_patience(2000) && joiners[2].took_ms < support_patience(2000),
          "%s: the ranks were kept out for %d and %d ms", case_name, (int)joiners[1].took_ms, (int)joiners[2].took_ms);
    close(held);
}

int main(void)
{
    static const bool yes = true, no = false;

    cases_begin_without_key();
    world = "budget";
    run_case_within(CASE_SECONDS, budget_case, &yes, "right hellos");
    run_case_within(CASE_SECONDS, budget_case, &no, "hellos that are refused");
    return CHECK_DONE();
}
