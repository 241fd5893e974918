/* joining_ranks.h - ranks that are threads which call coll_init, and records of their logs: for tests of which ranks connect, and
 * of their errors.  Used after coll.h, check.h, support.h and cases.h. */
#ifndef JOINERS_H
#define JOINERS_H

/* ---- >>journals ---- */

enum { JOURNAL_MOST = 64 };

typedef struct journal {
    pthread_mutex_t lock;
    pthread_cond_t  grown;
    int             count;
    char            lines[JOURNAL_MOST][256];
} journal;

#define JOURNAL { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, { "" } }

/* The log of a configuration, whose context is the journal. */
SUPPORT void journal_line(void *context, coll_log_level level, const char *line)
{
    journal *j = context;

    (void)level;
    pthread_mutex_lock(&j->lock);
    if (j->count < JOURNAL_MOST) snprintf(j->lines[j->count++], sizeof j->lines[0], "%s", line);
    pthread_cond_broadcast(&j->grown);
    pthread_mutex_unlock(&j->lock);
}

/* Wait until there are so many lines. */
SUPPORT void journal_await(journal *j, int count)
{
    pthread_mutex_lock(&j->lock);
    while (j->count < count) pthread_cond_wait(&j->grown, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

static inline int journal_count_inside(const journal *j, const char *text)
{
    int found = 0;

    for (int i = 0; i < j->count; i++) found += strstr(j->lines[i], text) != NULL;
    return found;
}

/* How many lines hold this text? */
SUPPORT int journal_count(journal *j, const char *text)
{
    pthread_mutex_lock(&j->lock);
    const int found = journal_count_inside(j, text);
    pthread_mutex_unlock(&j->lock);
    return found;
}

/* Wait until so many do. */
SUPPORT void journal_await_text(journal *j, const char *text, int count)
{
    pthread_mutex_lock(&j->lock);
    while (journal_count_inside(j, text) < count) pthread_cond_wait(&j->grown, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

/* ---- >>joiners ---- */

typedef struct joiner {
    pthread_t   thread;
    coll_config config;
    coll_status (*body)(struct joiner *g);        /* called after coll_init; NULL: joiner_adds_up             */
    void       *arg;
    coll_comm  *comm;                             /* while the body runs; not NULL afterwards if it was in    */
    coll_status hybrid, status;                   /* what coll_init gave, and what came in the end            */
    int64_t     took_ms, body_ms;                 /* coll_init, and the body                                  */
    char        sentence[512];
} joiner;

/* The usual body: all ranks make an allreduce. */
SUPPORT coll_status joiner_adds_up(joiner *g)
{
    int32_t n = 1;
    const coll_status status = coll_allreduce(g->comm, &n, &n, 1, COLL_I32, COLL_SUM);

    CHECK(status || n == coll_size(g->comm), "%s: rank %d: %d ranks added up", case_name, coll_rank(g->comm), (int)n);
    return status;
}

SUPPORT void *joiner_main(void *at)
{
    joiner *g = at;
    const int64_t began = now_ms();

    /* starts that are to fail have their sentence checked, and no other line on stderr */
    if (!g->config.log && g->config.log_level == 0) g->config.log_level = COLL_LOG_NONE;
    g->hybrid = g->status = coll_init(&g->comm, &g->config);
    const int64_t met = now_ms();
    if (g->hybrid == COLL_OK) g->status = g->body ? g->body(g) : joiner_adds_up(g);
    g->body_ms = now_ms() - met;
    g->took_ms = met - began;
    snprintf(g->sentence, sizeof g->sentence, "%s", coll_error(g->comm));
    coll_free(g->comm);
    return NULL;
}

SUPPORT void joiner_run(joiner *g) { CHECK(!pthread_create(&g->thread, NULL, joiner_main, g), "%s: no thread", case_name); }
SUPPORT void joiner_join(joiner *g) { pthread_join(g->thread, NULL); }

SUPPORT void expect_success(const joiner *g)
{
    CHECK(g->status == COLL_OK, "%s: rank %d: %s: %s", case_name, g->config.rank, coll_status_text(g->status), g->sentence);
}

#endif /* JOINERS_H */
