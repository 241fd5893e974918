/* leaves.c - data parallel training with the same bits on any number of ranks, also after ranks are lost.
 *
 *     leaves -t 4                                           four threads
 *     coll-run -n 3 leaves                                  three processes: the weights of four threads, bit for bit
 *     leaves -t 8 --kill-rank 2 --kill-step 150             rank 2 ends in the middle; the weights stay those of one rank
 *     coll-run --survive -n 5 leaves --kill-rank 0 --kill-step 150
 *
 * A batch is cut into --micro parts, whatever the number of ranks.  The gradient of a part is a leaf.  Each rank has a run of
 * leaves and adds them up (coll_sum_add); the allreduce adds what the ranks have, in the tree that one rank alone would use.  So
 * the sum of a step, and the weights after it, depend on the parts only and not on who had them.
 *
 * If a rank dies, the others divide the parts among themselves anew.  Nothing is read from a file: a survivor that has finished
 * the step already has the weights that the others would compute, so it sends them.  --trace FILE writes the weights' hash after
 * each step. */
#include "trainer.h"

#include <signal.h>

typedef struct queries { int micro, kill_rank, kill_step; const char *trace; } queries;

typedef struct learner {
    gpt_trainer *t;
    const queries *with;
    gpt_replica r;
    coll_sum *sum;                   /* of the leaves of this rank                      */
    int step;                        /* the first that is not done                      */
    FILE *trace;
} learner;

/* A leaf has one more element: its share of the mean loss.  So the losses have the same bits, too. */
static size_t leaf_count(const learner *l) { return l->t->count + 1; }

/* Rank 0 writes the step and a hash of the weights.  A new rank 0 continues the file, and may repeat a step. */
static void note(learner *l)
{
    gpt_trainer *const t = l->t;

    if (!l->with->trace || t->rank || !l->step) return;
    if (!l->trace) l->trace = fopen(l->with->trace, coll_rank(t->home) ? "a" : "w");
    if (l->trace) fprintf(l->trace, "%d %016" PRIx64 "\n", l->step, gpt_hash(l->r.weights, t->count)), fflush(l->trace);
}

/* The gradient of the whole batch, in r.gradient: this rank adds up the leaves of its run, the allreduce all of them. */
static coll_status sum_leaves(learner *l)
{
    gpt_trainer *const t = l->t;
    const gpt_part run = gpt_part_of(l->with->micro, t->rank, t->size);
    coll_call call = { .kind = COLL_ALLREDUCE, .recv = l->r.gradient, .op = COLL_SUM, .name = "gradient" };
    coll_status status = coll_sum_restart(l->sum, run.begin);

    for (int leaf = run.begin; leaf < run.end && !status; leaf++) {
        const gpt_part part = gpt_part_of(gpt_batch(t, l->step), leaf, l->with->micro);
        l->r.gradient[t->count] = (float)gpt_replica_learn(t, &l->r, l->step, part, NULL, NULL);
        status = coll_sum_add(l->sum, l->r.gradient);
    }
    if (!status) status = coll_sum_end(l->sum, &call);
    gpt_clock(t, GPT_COMMUNICATE);
    if (!status) status = coll_run(t->comm, &call);
    gpt_clock(t, GPT_COMPUTE);
    return status;
}

static coll_status step(learner *l)
{
    const coll_status status = sum_leaves(l);

    if (status) return status;
    gpt_replica_update(l->t, &l->r, l->step);
    gpt_know(l->t, l->step++, (double)l->r.gradient[l->t->count]);
    note(l);
    return COLL_OK;
}

/* The ranks continue after the last step that any of them has finished; one that has sends its state to all. */
static coll_status catch_up(learner *l)
{
    gpt_trainer *const t = l->t;
    float *const vectors[] = { l->r.weights, l->r.first, l->r.second };
    int32_t last[2] = { l->step, -l->step };
    coll_status status = coll_allreduce(t->comm, COLL_IN_PLACE, last, 2, COLL_I32, COLL_MAX);

    if (status || last[0] == -last[1]) return status;
    int32_t root = l->step == last[0] ? t->rank : t->size;
    status = coll_allreduce(t->comm, COLL_IN_PLACE, &root, 1, COLL_I32, COLL_MIN);
    for (int i = 0; i < 3 && !status; i++) status = coll_broadcast(t->comm, vectors[i], t->count, COLL_F32, root);
    if (!status) status = coll_broadcast(t->comm, t->losses, (size_t)last[0], COLL_F64, root);
    if (status) return status;
    l->step = t->known = last[0];
    note(l);
    return COLL_OK;
}

/* Memory, and the first weights. */
static bool make(learner *l)
{
    gpt_trainer *const t = l->t;

    if (!gpt_replica_make(t, &l->r, t->with->batch)) return false;
    gpt_release(t, l->r.gradient);
    l->r.gradient = gpt_floats(t, GPT_GRADIENTS, leaf_count(l));
    return l->r.gradient && !coll_sum_begin(&l->sum, 0, leaf_count(l), COLL_F32, NULL);
}

#ifndef GPT_COMBINED                     /* elastic.c has its own main */
/* The end of this rank, without a goodbye.  A thread can only leave, and that is no less sudden to the others. */
static bool dies(const learner *l)
{
    if (l->step != l->with->kill_step - 1 || coll_rank(l->t->home) != l->with->kill_rank) return false;
    if (!l->t->with->threads) raise(SIGKILL);
    return true;
}

static int recover(learner *l)
{
    gpt_trainer *const t = l->t;
    coll_comm *left;
    char why[512];

    snprintf(why, sizeof why, "%s", coll_error(t->comm));
    if (coll_shrink(t->comm, &left) || gpt_join(t, left) || catch_up(l)) return gpt_failed(t);
    if (!t->rank) fprintf(stderr, "leaves: %s; %d ranks continue with step %d\n", why, t->size, l->step + 1);
    return 0;
}

static int train(gpt_trainer *t)
{
    learner l = { .t = t, .with = t->own };

    if (l.with->kill_rank >= t->size) return gpt_refuse(t, "there is no rank %d to be killed", l.with->kill_rank);

    int code = !make(&l) || gpt_begin(t) ? gpt_failed(t) : 0;
    while (!code && l.step < t->with->steps) {
        if (dies(&l)) break;
        const coll_status status = step(&l);
        if (status == COLL_ERR_PEER) code = recover(&l);
        else if (status) code = gpt_failed(t);
        else code = gpt_check(t, l.step - 1, l.r.weights);
    }
    if (l.trace) fclose(l.trace);
    coll_sum_free(l.sum);
    if (!code && l.step < t->with->steps) return 0;
    return code ? code : gpt_end(t, l.r.weights);
}

int main(int argc, char **argv)
{
    queries own = { .micro = 24, .kill_rank = -1 };
    const gpt_row rows[] = {
        { "micro", "parts of a batch, one leaf of the sum each", &own.micro, 1, 1e6, NULL, NULL, NULL },
        { "kill-rank", "that is to die", &own.kill_rank, -1, 4095, NULL, NULL, NULL },
        { "kill-step", "in which it dies; 0: none", &own.kill_step, 0, 1e7, NULL, NULL, NULL },
        { "trace", "file: the hash of the weights after each step", NULL, 0, 0, NULL, NULL, &own.trace },
    };

    return gpt_main(argc, argv, &(gpt_page){ "leaves", "the same bits on any number of ranks, also after a failure", train, rows,
                                             4, &own });
}

#endif
