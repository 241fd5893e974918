/* elastic.c - trains on while ranks are killed, and while others join: the weights stay those of an undisturbed training.
 *
 *     coll-run -n 4 --elastic 2:4 --restart 20 elastic                 every 100 steps a rank is killed, and another one joins
 *     coll-run -n 4 --elastic 2:4 elastic --kill-every 0               no more than you kill yourself: kill -9 PID
 *     coll-run -H a:2,b:2 --elastic 2:4 elastic                        or a whole host
 *     coll-run --join a:29500 -n 2 --elastic 2:8 elastic               or hosts that come and go
 *
 * This is leaves.c, whose sums have the same bits on any number of ranks, and coll_grow between two steps.  coll-run starts a
 * process in the place of the one that has died; there coll_init joins the job.  After each change all ranks load the text again,
 * for the one that joins has none, and continue with the state of one that has taken the last step.
 *
 * At the end all train once more, undisturbed.  Rank 0 prints both losses and whether the weights have the same bits. */
#define GPT_COMBINED
#include "leaves.c"

/* This rank dies before this step, unless another one has just done so. */
static bool is_next(const learner *l, int changed_at)
{
    const int every = l->with->kill_step, size = l->t->size;

    return every > 0 && l->step % every == 0 && l->step > changed_at && size > 2 && l->step / every % size == l->t->rank;
}

/* Continue with these ranks.  A rank that joins has done the same up to gpt_begin when it comes to `train`. */
static coll_status change(learner *l, coll_comm *comm)
{
    gpt_trainer *const t = l->t;
    coll_status status = gpt_join(t, comm);

    if (status) return status;
    gpt_release(t, t->text.letters);
    t->text = (gpt_text){ 0 };
    if (gpt_load(t)) return COLL_ERR_PEER;
    status = gpt_begin(t);
    if (!status) status = catch_up(l);
    if (!status && !t->rank) printf("%d ranks continue with step %d\n", t->size, l->step + 1), fflush(stdout);
    return status;
}

/* All steps, with ranks that die and ranks that join. */
static coll_status train_on(learner *l)
{
    gpt_trainer *const t = l->t;
    coll_status status = gpt_begin(t);

    if (!status) status = catch_up(l);
    for (int changed_at = l->step; l->step < t->with->steps;) {
        coll_comm *next = NULL;

        if (!status && is_next(l, changed_at)) raise(SIGKILL);
        if (!status) status = step(l);
        if (!status) status = coll_grow(t->comm, &next);
        if (status == COLL_ERR_PEER) status = coll_shrink(t->comm, &next);
        while (!status && next) {
            status = change(l, next);
            changed_at = l->step;
            next = NULL;
            if (status == COLL_ERR_PEER) status = coll_shrink(t->comm, &next);
        }
        if (status) return status;
    }
    return status;
}

static int train(gpt_trainer *t)
{
    learner l = { .t = t, .with = t->own };

    if (t->with->threads) return gpt_refuse(t, "a rank that can be killed is a process: coll-run --elastic");
    if (!make(&l) || train_on(&l)) return coll_sum_free(l.sum), gpt_failed(t);
    const double loss = gpt_final_loss(t);
    const uint64_t bits = gpt_hash(l.r.weights, t->count);

    gpt_draw(&t->shape, (uint64_t)t->with->seed, l.r.weights);
    memset(l.r.first, 0, t->count * sizeof *l.r.first);
    memset(l.r.second, 0, t->count * sizeof *l.r.second);
    l.step = t->known = 0;
    coll_status status = COLL_OK;
    while (!status && l.step < t->with->steps) status = step(&l);
    coll_sum_free(l.sum);
    if (status) return gpt_failed(t);
    const bool is_same = bits == gpt_hash(l.r.weights, t->count);
    if (!t->rank)
        printf("loss           %.6f with ranks that die and join, %.6f undisturbed: %s bits\n", loss, gpt_final_loss(t),
               is_same ? "the same" : "OTHER");
    return gpt_end(t, l.r.weights) || !is_same;
}

int main(int argc, char **argv)
{
    queries own = { .micro = 24, .kill_step = 100 };
    const gpt_row rows[] = {
        { "micro", "parts of a batch, one leaf of the sum each", &own.micro, 1, 1e6, NULL, NULL, NULL },
        { "kill-every", "steps between two deaths, while there are 3 ranks; 0: none", &own.kill_step, 0, 1e7, NULL, NULL, NULL },
    };

    return gpt_main(argc, argv, &(gpt_page){ "elastic", "ranks that die, and ranks that join", train, rows, 2, &own });
}
