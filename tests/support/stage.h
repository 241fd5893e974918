/* stage.h - many cases, one after the other, on one simulated world: every rank is a fiber that plays its part in each, and in
 * between the clock is put back to 0, so that each case begins on an idle machine without the price of making one.
 *
 * Used after coll.h. */
#ifndef STAGE_H
#define STAGE_H

typedef struct stage_record { double seconds; uint64_t messages, sent, received; } stage_record;

typedef struct stage {
    const coll_sim *sim;
    int   size;
    coll_status (*enter)(struct stage *s, coll_comm *comm);           /* once, by every rank; NULL: nothing   */
    bool        (*next)(struct stage *s);         /* by one rank: check the last case, prepare the next; false: none   */
    coll_status (*play)(struct stage *s, coll_comm *comm);            /* by every rank                        */
    void *arg;
    stage_record *records;                        /* of the ranks, in the case that was played last           */
    int   played;                                 /* cases before the present one                             */
    double seconds;                               /* the slowest rank of the last one                         */
    char  error[500];                             /* of the first rank that failed                            */
    int   waiting;
    long  turn;                                   /* pages turned: the first one begins the first case        */
    bool  is_over;
} stage;

/* Nothing is in flight any more, since every rank has received all: the machine is as new. */
static void stage_rewind(coll__sim *w, const coll__sim_rank *self)
{
    const int hosts = (w->size - 1) / w->config.ranks_per_host + 1;

    w->now = 0;
    w->event_count = 0;
    for (int i = 0; i < hosts; i++) w->hosts[i] = (coll__sim_host){ 0, 0 };
    for (int i = 0; i < w->size; i++) {
        coll__sim_rank *r = &w->ranks[i];
        r->clock = r->next_send = r->next_recv = 0;
        r->timer_at = coll__sim_never;
        if (r == self) continue;
        r->wake_at = 0;
        coll__sim_push(w, COLL__SIM_RUN, 0, r, r->generation);
    }
}

/* Wait for all ranks; the last one turns the page.  false: there is no more to play. */
static bool stage_gate(stage *s, coll_comm *comm)
{
    coll__sim_rank *r = (coll__sim_rank *)comm->session->context;
    const long turn = s->turn;

    if (++s->waiting < s->size) {
        while (s->turn == turn && r->world->failure.status == COLL_OK) coll__fiber_wait(r, coll__sim_never, -1);
        return s->turn != turn && !s->is_over;
    }
    s->waiting = 0;
    s->seconds = 0;
    for (int i = 0; i < s->size; i++) if (s->records[i].seconds > s->seconds) s->seconds = s->records[i].seconds;
    s->played = (int)s->turn;
    s->is_over = !s->next(s);
    s->turn++;
    stage_rewind(r->world, r);
    return !s->is_over;
}

static int stage_rank(coll_comm *comm, void *arg)
{
    stage *s = (stage *)arg;
    const coll__sim_rank *r = (const coll__sim_rank *)comm->session->context;
    stage_record *record = &s->records[r->rank];
    coll_status status = s->enter ? s->enter(s, comm) : COLL_OK;

    while (status == COLL_OK && stage_gate(s, comm)) {
        const stage_record before = { 0, r->messages, r->sent, r->received };
        status = s->play(s, comm);
        *record = (stage_record){ r->clock, r->messages - before.messages, r->sent - before.sent, r->received - before.received };
    }
    if (status != COLL_OK && !*s->error) coll__print(s->error, sizeof s->error, "%s", coll_error(comm));
    return status != COLL_OK;
}

/* Play all cases.  false: a call failed or the world stood still, in case number `played` or the one before; `error` says why. */
static bool stage_run(stage *s)
{
    const coll_config config = { .transport = "sim", .sim = s->sim };

    s->records = (stage_record *)calloc((size_t)s->size, sizeof *s->records);
    s->waiting = s->played = 0;
    s->turn = 0;
    s->is_over = false;
    *s->error = 0;
    const int result = s->records ? coll_spawn(s->size, stage_rank, s, &config) : 1;
    if (result && !*s->error) coll__print(s->error, sizeof s->error, "%s", coll_error(NULL));
    free(s->records);
    s->records = NULL;
    return result == 0 && s->is_over;
}

#endif /* STAGE_H */
