/* resume.c - checkpoints: stop and continue, with another number of ranks, or with the survivors after one has died.
 *
 *     resume -t 4 --checkpoint run.ckpt --stop 300                 300 steps, and their state in a file
 *     coll-run -n 3 resume --checkpoint run.ckpt                   the rest, on three processes
 *     resume -t 4 --checkpoint run.ckpt --kill-rank 2 --kill-step 150       rank 2 ends in the middle; the others continue
 *     coll-run --survive -n 4 resume --checkpoint run.ckpt --kill-rank 2 --kill-step 150
 *
 * (In the last one the process kills itself with SIGKILL; without --survive coll-run would then end the others.)
 *
 * Every --interval steps rank 0 writes weights, moments and the number of the step to a new file, and renames it when all of it
 * is on the disk: there is a complete checkpoint at any time.  What a step learns from follows from its number, so a training
 * that is taken up again sees the batches that it would have seen: on as many ranks it ends with the same bits, on another
 * number with the same loss up to rounding.
 *
 * If a rank dies, the current or next call of all others returns COLL_ERR_PEER.  coll_shrink makes a communicator of the
 * survivors; one of them reads the last checkpoint, a broadcast sends it to all, and the batches are divided among
 * fewer ranks.  The losses in flight at that moment are lost, and computed again. */
#include "trainer.h"

#include <signal.h>

typedef struct queries { const char *path; int interval, stop, kill_rank, kill_step; } queries;

/* The header before the weights and the two moments.  It has no padding, because two headers are compared byte by byte. */
typedef struct head {
    char magic[8];
    gpt_shape shape;
    int32_t seed, batch, steps, step, letters;   /* step: the first that is not done    */
    uint64_t count, hash;                        /* of each of the three vectors; of all of them */
} head;

_Static_assert(sizeof(head) == 64, "no padding");

typedef struct learner { gpt_trainer *t; const queries *with; gpt_replica r; int step; } learner;

enum { VECTORS = 3 };

static float *vector(const learner *l, int at)
{
    return at == 0 ? l->r.weights : at == 1 ? l->r.first : l->r.second;
}

static head make_head(const learner *l)
{
    const gpt_trainer *const t = l->t;
    uint64_t hash = 0;

    for (int i = 0; i < VECTORS; i++) hash = gpt_mix(hash ^ gpt_hash(vector(l, i), t->count));
    return (head){ .magic = "collgpt", .shape = t->shape, .seed = t->with->seed, .batch = t->with->batch, .steps = t->with->steps,
                   .step = l->step, .letters = (int32_t)t->text.length, .count = t->count, .hash = hash };
}

/* Rank 0: writes all of it, or keeps the old file. */
static bool save(const learner *l)
{
    const head h = make_head(l);
    char path[4096];

    if ((size_t)snprintf(path, sizeof path, "%s.new", l->with->path) >= sizeof path) return false;
    FILE *const file = fopen(path, "wb");
    if (!file) return false;
    bool is_written = fwrite(&h, sizeof h, 1, file) == 1;
    for (int i = 0; i < VECTORS; i++) is_written &= fwrite(vector(l, i), sizeof(float), h.count, file) == h.count;
    is_written = is_written && !fflush(file) && !fsync(fileno(file));
    return !fclose(file) && is_written && !rename(path, l->with->path);
}

/* Rank 0: 1 there is one, 0 there is none, -1 it cannot be used, and the sentence says why. */
static int restore(learner *l, char *why, size_t length)
{
    FILE *const file = fopen(l->with->path, "rb");
    head h, ours;

    if (!file && errno == ENOENT) return 0;
    if (!file) return snprintf(why, length, "%s", strerror(errno)), -1;
    bool is_whole = fread(&h, sizeof h, 1, file) == 1 && !memcmp(h.magic, "collgpt", 8) && h.count == l->t->count
        && h.step >= 0 && h.step <= l->t->with->steps;
    for (int i = 0; i < VECTORS && is_whole; i++) is_whole = fread(vector(l, i), sizeof(float), h.count, file) == h.count;
    fclose(file);
    if (!is_whole) return snprintf(why, length, "not a whole checkpoint of a model of this size"), -1;
    l->step = h.step;
    ours = make_head(l);
    if (ours.hash != h.hash) return snprintf(why, length, "it has been damaged"), -1;
    if (memcmp(&ours, &h, sizeof h)) return snprintf(why, length, "it is from a training with other options"), -1;
    return 1;
}

/* All ranks: take up the last checkpoint, or begin.  Gives an exit code. */
static int load(learner *l)
{
    gpt_trainer *const t = l->t;
    int32_t found[2] = { 0 };
    char why[256] = "";

    if (!t->rank) found[0] = restore(l, why, sizeof why), found[1] = l->step;
    if (coll_broadcast(t->comm, found, 2, COLL_I32, 0)) return gpt_failed(t);
    if (found[0] < 0) return gpt_refuse(t, "%s: %s", l->with->path, why);
    l->step = found[0] ? found[1] : 0;
    if (!found[0]) {
        memset(l->r.first, 0, t->count * sizeof *l->r.first);
        memset(l->r.second, 0, t->count * sizeof *l->r.second);
        gpt_draw(&t->shape, (uint64_t)t->with->seed, l->r.weights);
    }
    for (int i = 0; i < VECTORS && found[0]; i++)
        if (coll_broadcast(t->comm, vector(l, i), t->count, COLL_F32, 0)) return gpt_failed(t);
    if (!t->rank && !t->with->is_json) printf("%d ranks begin with step %d\n", t->size, l->step + 1);
    return 0;
}

/* The end of this rank, without a goodbye.  A thread can only leave, and that is no less sudden to the others. */
static bool dies(const learner *l)
{
    const queries *const with = l->with;

    if (l->step != with->kill_step - 1 || coll_rank(l->t->home) != with->kill_rank) return false;
    if (!l->t->with->threads) raise(SIGKILL);
    return true;
}

static coll_status step(learner *l)
{
    gpt_trainer *const t = l->t;
    const gpt_part part = gpt_part_of(gpt_batch(t, l->step), t->rank, t->size);
    const double share = gpt_replica_learn(t, &l->r, l->step, part, NULL, NULL);

    gpt_clock(t, GPT_COMMUNICATE);
    coll_status status = coll_run(t->comm, &(coll_call){ .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = l->r.gradient,
                                                         .count = t->count, .type = COLL_F32, .op = COLL_SUM,
                                                         .flags = COLL_DETERMINISTIC, .name = "gradient" });
    gpt_clock(t, GPT_COMPUTE);
    if (status) return status;
    gpt_replica_update(t, &l->r, l->step);
    status = gpt_step(t, l->step, share);
    l->step++;
    return status;
}

/* Where a checkpoint is due: later steps may be repeated, and the losses of earlier ones must be complete. */
static coll_status keep(learner *l)
{
    const bool is_due = l->step % l->with->interval == 0 || l->step == l->with->stop || l->step == l->t->with->steps;
    const coll_status status = is_due ? gpt_flush(l->t) : COLL_OK;

    if (!status && is_due && !l->t->rank && !save(l))
        fprintf(stderr, "resume: %s cannot be written: %s; going on\n", l->with->path, strerror(errno));
    return status;
}

/* The survivors go back to the last checkpoint.  Returns an exit code. */
static int recover(learner *l)
{
    gpt_trainer *const t = l->t;
    coll_comm *left;
    char why[512];

    snprintf(why, sizeof why, "%s", *coll_error(t->comm) ? coll_error(t->comm) : coll_error(t->news));
    if (coll_shrink(t->comm, &left) || gpt_join(t, left)) return gpt_failed(t);
    if (!t->rank) fprintf(stderr, "resume: %s\n", why);
    return load(l);
}

static int train(gpt_trainer *t)
{
    const queries *const with = t->own;
    learner l = { .t = t, .with = with };

    if (!with->path) return gpt_refuse(t, "--checkpoint FILE says where the state is kept");
    if (with->kill_rank >= t->size) return gpt_refuse(t, "there is no rank %d to be killed", with->kill_rank);
    if (!gpt_replica_make(t, &l.r, t->with->batch)) return gpt_failed(t);

    int code = load(&l);
    t->first = t->known = l.step;
    if (!code && gpt_begin(t)) code = gpt_failed(t);
    const int end = with->stop && with->stop < t->with->steps ? with->stop : t->with->steps;
    while (!code && l.step < end) {
        if (dies(&l)) return 0;
        coll_status status = step(&l);
        if (!status) status = keep(&l);
        if (status == COLL_ERR_PEER) code = recover(&l);
        else if (status) code = gpt_failed(t);
    }
    return code ? code : gpt_end(t, l.r.weights);
}

int main(int argc, char **argv)
{
    queries own = { .interval = 100, .kill_rank = -1 };
    const gpt_row rows[] = {
        { "checkpoint", "file: taken up where there is one, and written", NULL, 0, 0, NULL, NULL, &own.path },
        { "interval", "steps between checkpoints", &own.interval, 1, 1e7, NULL, NULL, NULL },
        { "stop", "end before this many steps are done; 0: no", &own.stop, 0, 1e7, NULL, NULL, NULL },
        { "kill-rank", "that is to die", &own.kill_rank, -1, 4095, NULL, NULL, NULL },
        { "kill-step", "in which it dies; 0: none", &own.kill_step, 0, 1e7, NULL, NULL, NULL },
    };

    return gpt_main(argc, argv, &(gpt_page){ "resume", "checkpoints, and going on after a rank is lost", train, rows, 5, &own });
}
