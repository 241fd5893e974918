/* starting_ranks.h - joining ranks: threads that call coll_init, record its result, its log and the addresses of the ranks, and
 * exchange messages with all others afterwards.  Used after inside.h, check.h, support.h, cases.h and joining_ranks.h. */
#ifndef STARTING_RANKS_H
#define STARTING_RANKS_H

enum { JOINING_MOST = 6, START_MS = 15000 };

typedef struct joining {
    pthread_t   thread;
    coll_config config;
    void      (*settle)(const struct joining *g); /* what its thread does first; NULL: nothing                */
    const void *place;                            /* for settle                                               */
    int         network;                          /* its network namespace; 0: the current one                */
    bool        is_crowded;                       /* it assumes that ranks share processors                   */
    coll_comm  *comm;
    coll_status status;
    int64_t     took_ms;
    char        sentence[512];
    journal     said;
    int         port;                             /* its address in the table of rank 0                       */
    char        address[COLL__ADDRESS_TEXT];
    bool        is_good;
} joining;

/* Before the first case: remove the variables of the environment that are settings, and find root's commands. */
SUPPORT void joining_begin(void)
{
    clearenv();
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    cases_begin();
}

/* ---- >>one joining rank ---- */

SUPPORT bool is_congested_by(int fd, const char *name)
{
    char has[32] = "";
    socklen_t length = sizeof has - 1;

    return !getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, has, &length) && !strcmp(has, name);
}

/* A connection within one kernel is not paced; one to another host has the system's congestion control. */
SUPPORT void expect_pace(const joining *g, coll__tcp *tcp)
{
    const int fresh = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char usual[32] = "";
    socklen_t length = sizeof usual - 1;

    CHECK(fresh >= 0 && !getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, usual, &length), "%s: no socket", case_name);
    if (fresh >= 0) close(fresh);
    CHECK(is_congested_by(tcp->listener, "reno"), "%s: a connection accepted by rank %d is paced", case_name, g->config.rank);
    for (int peer = 0; peer < tcp->size; peer++) {
        const coll__stream *s = coll__stream_to(tcp, peer, COLL_CHANNEL_CALLS);
        if (s->state != COLL__STREAM_OPEN || (g->network > 0 && coll__is_of_this_host(tcp, peer))) continue;
        CHECK(is_congested_by(s->pipe.fd, g->network > 0 ? usual : "reno"), "%s: rank %d, %s rank %d: another congestion control",
              case_name, g->config.rank, g->network > 0 ? "far from" : "at home with", peer);
    }
}

SUPPORT void *joining_main(void *at)
{
    joining *g = at;
    int32_t data[3];

    if (g->settle) g->settle(g);
    const int64_t began = now_ms();
    g->status = coll_init(&g->comm, &g->config);
    g->took_ms = now_ms() - began;
    snprintf(g->sentence, sizeof g->sentence, "%s", coll_error(NULL));
    if (g->status != COLL_OK) return NULL;
    const coll__tcp *tcp = inside_tcp(g->comm);
    const coll__address a = coll__endpoint_address(&tcp->endpoints[g->config.rank], 0, tcp->network.scope);
    coll__address_text(&a, g->address, sizeof g->address);
    g->port = tcp->endpoints[g->config.rank].port;
    g->is_crowded = g->comm->session->is_crowded;
    g->is_good = true;
    for (int root = 0; root < g->config.size && g->is_good; root++) {         /* a message between any two            */
        int32_t all[JOINING_MOST], back[JOINING_MOST];
        for (int i = 0; i < g->config.size; i++) all[i] = g->config.rank * 100 + i;
        g->is_good = coll_alltoall(g->comm, all, back, 1, COLL_I32) == COLL_OK;
        for (int i = 0; i < g->config.size; i++) g->is_good = g->is_good && back[i] == i * 100 + g->config.rank;
    }
    data[0] = 1;
    g->is_good = g->is_good && coll_allreduce(g->comm, data, data, 1, COLL_I32, COLL_SUM) == COLL_OK && data[0] == g->config.size;
    expect_pace(g, inside_tcp(g->comm));
    if (!g->is_good) snprintf(g->sentence, sizeof g->sentence, "%s", coll_error(g->comm));
    coll_free(g->comm);
    return NULL;
}

/* ---- >>all of them ---- */

/* `size` joining ranks, not started yet. */
SUPPORT void joining_make(joining *joining_ranks, int size, const char *address)
{
    for (int i = 0; i < size; i++) {
        memset(&joining_ranks[i], 0, sizeof joining_ranks[i]);
        joining_ranks[i].said = (journal)JOURNAL;
        joining_ranks[i].config = (coll_config){ .rank = i, .size = size, .address = address, .start_timeout_ms = START_MS,
                                                 .tcp = { .io = "poll" },
                                                 .log = journal_line, .log_context = &joining_ranks[i].said,
                                                        .log_level = COLL_LOG_INFO };
    }
}

SUPPORT void joining_start(joining *g)
{
    CHECK(pthread_create(&g->thread, NULL, joining_main, g) == 0, "%s: no thread", case_name);
}

SUPPORT void expect_world(joining *joining_ranks, int size)
{
    for (int i = 0; i < size; i++) {
        pthread_join(joining_ranks[i].thread, NULL);
        CHECK(joining_ranks[i].is_good, "%s: rank %d: status %d, %s", case_name, i, (int)joining_ranks[i].status,
              joining_ranks[i].sentence);
    }
}

SUPPORT void expect_failure(joining *g, coll_status status, int most_ms, const char *word, const char *other)
{
    pthread_join(g->thread, NULL);
    CHECK(g->status == status && strstr(g->sentence, word) && strstr(g->sentence, other),
          "%s: rank %d: status %d, \"%s\" (with \"%s\" and \"%s\")", case_name,
          g->config.rank, (int)g->status, g->sentence, word, other);
    CHECK(g->took_ms <= support_scaled(most_ms), "%s: rank %d took %d ms", case_name, g->config.rank, (int)g->took_ms);
}

#endif /* STARTING_RANKS_H */
