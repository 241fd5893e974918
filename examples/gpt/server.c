/* server.c - a parameter server: workers that do not wait for each other.
 *
 *     build/release/gpt/server -t 4                               rank 0 serves, three ranks work
 *     build/release/coll-run -n 4 build/release/gpt/server --stale 8
 *     build/release/gpt/server -t 4 --stale 0                     the synchronous run, to compare
 *
 * Rank 0 has the weights and the optimizer, and computes nothing else.  It sends a worker the weights and the number of a
 * batch; the worker sends back the gradient of that batch.  The server receives the next gradient to arrive (COLL_ANY_SOURCE),
 * applies it at once, and sends that worker the new weights.  No worker waits for the slowest one.  There is no allreduce,
 * only messages.
 *
 * The price is that a gradient is stale: between its weights leaving and its coming back, others have been applied.  --stale K
 * bounds by how many.  No more than K + 1 batches are out at a time; and when one of them would come too late if another went
 * first, the server receives only from the worker with the oldest weights; the library keeps the other gradients.  With
 * K = 0 one batch is computed at a time, and the training has the bits of one rank. */
#include "trainer.h"

enum { WORK, GRADIENT };             /* tags                                            */

typedef struct queries { int stale; } queries;

typedef struct server {
    gpt_trainer *t;
    gpt_replica r;
    float *message;                  /* a gradient, and behind it the loss              */
    int *since;                      /* of each worker: the step at which it got its weights; -1: idle */
    int handed, taken, out;          /* batches handed out, gradients applied, between the two */
    int worst, none, finished;       /* the stalest gradient; steps with none stale; workers that were sent the end     */
    double stale;                    /* sum over all gradients                          */
} server;

/* Send a worker the weights, and behind them the number of its batch; -1: there is none left.  A float has all of them. */
static coll_status hand_out(server *s, int worker, int batch)
{
    const size_t count = s->t->count;

    memcpy(s->message, s->r.weights, count * sizeof *s->message);
    s->message[count] = (float)batch;
    s->since[worker] = batch < 0 ? -1 : s->taken;
    s->finished += batch < 0;
    s->out += batch >= 0;
    return coll_send(s->t->comm, s->message, count + 1, COLL_F32, worker, WORK);
}

/* The source to receive from: any, or the worker whose weights are the oldest.  It has to be that one as soon as the pending
 * gradients, taken from the oldest on, would be just fresh enough: whichever of them came first would make one older than it too
 * stale. */
static int peer_set(const server *s, int bound)
{
    int oldest = COLL_ANY_SOURCE, late = 0;

    for (int w = 1; w < s->t->size; w++) {
        int before = 0;                          /* gradients that would be taken before this one */

        if (s->since[w] < 0) continue;
        for (int v = 1; v < s->t->size; v++)
            before += s->since[v] >= 0 && (s->since[v] < s->since[w] || (s->since[v] == s->since[w] && v < w));
        if (!before) oldest = w;
        late |= s->taken + before - s->since[w] >= bound;
    }
    return late ? oldest : COLL_ANY_SOURCE;
}

/* Receive one gradient and apply it.  *worker: whose it was. */
static coll_status take(server *s, int bound, int *worker)
{
    gpt_trainer *const t = s->t;
    coll_request *request;

    gpt_clock(t, GPT_WAIT);
    coll_status status = coll_irecv(t->comm, s->message, t->count + 1, COLL_F32, peer_set(s, bound), GRADIENT, &request);
    if (status) return status;
    status = coll_wait(request);
    if (!status) status = coll_received(request, worker, NULL, NULL);
    coll_request_free(request);
    gpt_clock(t, GPT_COMPUTE);
    if (status) return status;

    const int stale = s->taken - s->since[*worker];
    if (stale > s->worst) s->worst = stale;
    s->none += stale == 0;
    s->stale += stale;
    s->since[*worker] = -1;
    s->out--;
    memcpy(s->r.gradient, s->message, t->count * sizeof *s->message);
    gpt_replica_update(t, &s->r, s->taken);
    gpt_know(t, s->taken++, (double)s->message[t->count]);
    return COLL_OK;
}

/* Until all gradients have been received; then every worker gets a message to end. */
static coll_status serve(server *s, int bound)
{
    gpt_trainer *const t = s->t;
    coll_status status = COLL_OK;
    int worker;

    for (int w = 1; w < t->size; w++) s->since[w] = -1;
    while (!status && s->taken < t->with->steps) {
        for (worker = 1; worker < t->size && s->handed < t->with->steps && s->out <= bound && !status; worker++) {
            gpt_clock(t, GPT_COMMUNICATE);
            if (s->since[worker] < 0) status = hand_out(s, worker, s->handed++);
        }
        if (!status) status = take(s, bound, &worker);
    }
    for (worker = 1; worker < t->size && !status; worker++) status = hand_out(s, worker, -1);
    return status;
}

/* A worker has no step number, and does not depend on other workers. */
static coll_status work(gpt_trainer *t, gpt_replica *r, float *message)
{
    for (;;) {
        gpt_clock(t, GPT_WAIT);
        coll_status status = coll_recv(t->comm, message, t->count + 1, COLL_F32, 0, WORK);
        gpt_clock(t, GPT_COMPUTE);
        if (status) return status;

        const int batch = (int)message[t->count];
        memcpy(r->weights, message, t->count * sizeof *message);
        if (batch < 0) return COLL_OK;           /* and these weights are the last ones */
        message[t->count] = (float)gpt_replica_learn(t, r, batch, (gpt_part){ 0, gpt_batch(t, batch) }, NULL, NULL);
        memcpy(message, r->gradient, t->count * sizeof *message);
        gpt_clock(t, GPT_COMMUNICATE);
        status = coll_send(t->comm, message, t->count + 1, COLL_F32, 0, GRADIENT);
        if (status) return status;
    }
}

static int train(gpt_trainer *t)
{
    const queries *const with = t->own;
    server s = { .t = t };

    if (t->size < 2) return gpt_refuse(t, "a server and no worker: it takes two ranks (-t 2, or coll-run -n 2)");
    if (t->with->steps > 1 << 24) return gpt_refuse(t, "more than %d steps are not counted exactly", 1 << 24);
    s.message = gpt_floats(t, GPT_OTHER, t->count + 1);
    s.since = gpt_bytes(t, GPT_OTHER, (size_t)t->size * sizeof *s.since);
    if (!s.message || !s.since || !gpt_replica_make(t, &s.r, t->rank ? t->with->batch : 0)) return gpt_failed(t);
    if (t->rank) gpt_release(t, s.r.first), gpt_release(t, s.r.second);      /* only the server has an optimizer  */
    if (gpt_begin(t)) return gpt_failed(t);
    if (t->rank ? work(t, &s.r, s.message) : serve(&s, with->stale)) return gpt_failed(t);

    const int code = gpt_end(t, s.r.weights);
    if (code || t->rank || t->with->is_json) return code;
    printf("stale          %d steps at most, %.2f on average; %d of %d gradients were of the newest weights\n", s.worst,
           s.stale / s.taken, s.none, s.taken);
    return 0;
}

int main(int argc, char **argv)
{
    queries own = { .stale = 4 };
    const gpt_row rows[] = { { "stale", "steps by which a gradient may be late", &own.stale, 0, 1e6, NULL, NULL, NULL } };

    return gpt_main(argc, argv, &(gpt_page){ "server", "a parameter server and workers that do not wait for one another", train,
                                             rows, 1, &own });
}
