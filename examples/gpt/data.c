/* data.c - data parallel training: every rank has the whole model and a part of each batch.
 *
 *     make build/release/gpt/data
 *     build/release/gpt/data -t 4                           four ranks, threads of this process
 *     build/release/coll-run -n 4 build/release/gpt/data    four ranks, processes that talk TCP
 *     build/release/coll-run -n 2 --threads 2 build/release/gpt/data       two processes of two ranks
 *
 * In each step the ranks share out the sequences of a batch; the last batch of a round may be smaller than the others, and
 * leave some ranks without any.  Each rank's gradient is that of its own sequences, scaled by the letters of the whole batch,
 * so the sum over the ranks is the gradient of the mean, however the sequences are divided.
 *
 * Backward makes the gradient from the last unit to the first.  It is cut into buckets of whole units, of --bucket KiB or more,
 * and as soon as a bucket is complete its sum is started (coll_restart of a prepared call), while backward works on the unit
 * before.  Over TCP an operation moves only while the program is inside the library; so between units all buckets in flight
 * are tested (coll_test).  --timeline FILE shows it, and --overlap no switches it off.
 *
 * The weights are never sent: they start equal and stay so to the last bit, because a sum has the same bits on every rank.  With
 * COLL_DETERMINISTIC it has the same ones on threads and on processes. */
#include "trainer.h"

typedef struct queries { int bucket_kib, is_overlapped; } queries;

enum { MOST_BUCKETS = GPT_MOST_LAYERS + 2 };

/* Units first .. last, and their sum over the ranks. */
typedef struct bucket { int first, last; coll_request *sum; bool is_going; double began_s; char name[32]; } bucket;

typedef struct learner {
    gpt_trainer *t;
    gpt_replica r;
    bucket buckets[MOST_BUCKETS];
    int bucket_count, going, step;
    coll_status status;
} learner;

/* Cut the units into buckets, from the last one on, and prepare the sum of each. */
static coll_status make_buckets(learner *l, const queries *with)
{
    const gpt_shape *const s = &l->t->shape;
    const size_t least = (size_t)with->bucket_kib * 1024 / sizeof(float);

    for (int last = gpt_units(s) - 1, first; last >= 0; last = first - 1) {
        bucket *const b = &l->buckets[l->bucket_count++];
        const size_t end = gpt_unit_offset(s, last + 1);

        for (first = last; first > 0 && end - gpt_unit_offset(s, first) < least;) first--;
        const size_t begin = gpt_unit_offset(s, first);
        b->first = first, b->last = last;
        snprintf(b->name, sizeof b->name, "units %d to %d", first, last);
        const coll_status status = coll_prepare(l->t->comm, &(coll_call){
            .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = l->r.gradient + begin, .count = end - begin, .type = COLL_F32,
            .op = COLL_SUM, .flags = COLL_DETERMINISTIC, .name = b->name }, &b->sum);
        if (status) return status;
    }
    return COLL_OK;
}

/* Progress operations in flight, and record completed ones. */
static void look(learner *l)
{
    for (int i = 0; i < l->bucket_count; i++) {
        bucket *const b = &l->buckets[i];
        if (!b->is_going || l->status) continue;

        const coll_status status = coll_test(b->sum);
        if (status == COLL_PENDING) continue;
        l->status = status;
        b->is_going = false;
        l->going--;
        gpt_note(l->t, b->name, l->step, 1, b->began_s);
    }
}

/* A unit's gradient is complete: start the sum of its bucket if it was the last one missing. */
static void unit_done(void *context, int unit)
{
    learner *const l = context;

    gpt_clock(l->t, GPT_COMMUNICATE);
    for (int i = 0; i < l->bucket_count; i++) {
        bucket *const b = &l->buckets[i];
        if (b->first != unit || l->status) continue;

        l->status = coll_restart(b->sum);
        b->is_going = true;
        b->began_s = gpt_now_s();
        l->going++;
    }
    look(l);
    gpt_clock(l->t, l->going ? GPT_OVERLAP : GPT_COMPUTE);
}

static coll_status step(learner *l, const queries *with)
{
    gpt_trainer *const t = l->t;
    const gpt_part part = gpt_part_of(gpt_batch(t, l->step), t->rank, t->size);
    const double began_s = gpt_now_s();
    const double share = gpt_replica_learn(t, &l->r, l->step, part, with->is_overlapped ? unit_done : NULL, l);

    gpt_note(t, "forward and backward", l->step, 0, began_s);
    for (int u = gpt_units(&t->shape) - 1; u >= 0 && !with->is_overlapped; u--) unit_done(l, u);

    const double waited_s = gpt_now_s();
    gpt_clock(t, GPT_WAIT);
    for (int i = 0; i < l->bucket_count && !l->status; i++) {
        l->status = coll_wait(l->buckets[i].sum);
        look(l);
    }
    gpt_note(t, "wait", l->step, 0, waited_s);
    gpt_clock(t, GPT_COMPUTE);
    if (l->status) return l->status;
    gpt_replica_update(t, &l->r, l->step);
    return gpt_step(t, l->step, share);
}

static int train(gpt_trainer *t)
{
    learner l = { .t = t };
    int code = 0;

    if (!gpt_replica_make(t, &l.r, (t->with->batch + t->size - 1) / t->size)) return gpt_failed(t);
    if (make_buckets(&l, t->own) || gpt_begin(t)) code = gpt_failed(t);
    for (; !code && l.step < t->with->steps; l.step++) {
        if (step(&l, t->own)) code = gpt_failed(t);
        else code = gpt_check(t, l.step, l.r.weights);
    }
    for (int i = 0; i < l.bucket_count; i++) coll_request_free(l.buckets[i].sum);
    return code ? code : gpt_end(t, l.r.weights);
}

int main(int argc, char **argv)
{
    queries own = { .bucket_kib = 256, .is_overlapped = 1 };
    const gpt_row rows[] = {
        { "bucket", "KiB of gradient that travel together, at least", &own.bucket_kib, 0, 1e6, NULL, NULL, NULL },
        { "overlap", "start sums while backward runs", &own.is_overlapped, 0, 1, "no yes", NULL, NULL },
    };

    return gpt_main(argc, argv, &(gpt_page){ "data", "data parallel: parts of each batch, gradients summed in buckets", train,
                                             rows, 2, &own });
}
