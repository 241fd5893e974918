/* pipeline.c - pipeline parallel training: every rank has some of the layers, and a batch goes through them in pieces.
 *
 *     build/release/gpt/pipeline -t 4 --layers 4 --pieces 8            four stages, threads of this process
 *     build/release/coll-run -n 4 build/release/gpt/pipeline --layers 4 --pieces 8             processes that talk TCP
 *     build/release/gpt/pipeline -t 4 --layers 4 --pieces 8 --order 1f1b         the same bubble, less memory
 *
 * Stage s takes what stage s - 1 has made of a piece of the batch (a micro-batch), and sends on what it makes of it; the
 * gradients come back the same way.  There are no other messages.  The later stages wait for the first piece,
 * and the earlier ones for the last to come back: with S stages and M pieces (S - 1) / (M + S - 1) of the time, the bubble.
 *
 *     gpipe   all pieces forward, then all backward: a stage keeps what backward needs of M pieces
 *     1f1b    one forward, one backward as soon as there is one: stage s keeps that of S - s pieces at most
 *
 *                 gpipe                       1f1b                        three stages; pieces 0 to 3 forward, a to d back
 *     stage 0     0 1 2 3 . . . . a b c d     0 1 2 . . a 3 b . c . d
 *     stage 1     . 0 1 2 3 . . a b c d .     . 0 1 . a 2 b 3 c . d .
 *     stage 2     . . 0 1 2 3 a b c d . .     . . 0 a 1 b 2 c 3 d . .     --timeline FILE shows the real one
 *
 * Messages are tagged with their piece.  A receive is started one turn before its piece is needed, and a send is waited for when
 * its buffer is needed again, so a stage waits only for the stages whose work it needs.
 *
 * A gradient is the sum over the pieces in their order, which is the order of one rank: it has the same bits for every number of
 * stages and pieces, and in both orders.
 *
 * The bubble is measured on a virtual clock.  The clock of a stage advances by the processor time of its work, and a message
 * contains the clock of its sender, before which the piece cannot begin.  So it shows the cost of the order on a machine with a
 * processor for every stage, also if this machine has fewer. */
#include "pipeline.h"

/* ---- >>order ---- */

/* Turn k of 2 * pieces: first `early` pieces go forward, then one forward and one backward in turns, then the rest come back. */
static turn pipeline_turn(const pipeline *p, int k)
{
    const int later = k - p->early;

    if (later < 0) return (turn){ true, k };
    if (later >= 2 * (p->pieces - p->early)) return (turn){ false, k - p->pieces };
    return later % 2 ? (turn){ false, later / 2 } : (turn){ true, p->early + later / 2 };
}

/* The sequences of a piece. */
static gpt_part pipeline_part(const pipeline *p, int piece) { return gpt_part_of(p->text->sequences, piece, p->pieces); }

/* ---- >>messages: the rows of a piece, and behind them the clock ---- */

static size_t pipeline_floats(const pipeline *p, int piece)
{
    const gpt_part part = pipeline_part(p, piece);

    return (size_t)((part.end - part.begin) * p->t->shape.context) * (size_t)p->t->shape.width + 1;
}

/* Start to receive what turn k works on.  The first stage gets nothing on the way forward, and the last one nothing back. */
static coll_status pipeline_expect(pipeline *p, int k)
{
    const turn t = pipeline_turn(p, k);
    const int from = t.is_forward ? p->stage - 1 : p->stage + 1;

    if (k == 2 * p->pieces || from < 0 || from == p->stages) return COLL_OK;
    return coll_irecv(p->comm, p->arrived[k % 2], pipeline_floats(p, t.piece), COLL_F32, from, t.piece, &p->due[k % 2]);
}

static coll_status pipeline_send(pipeline *p, turn t, float *what, coll_request **out)
{
    const int to = t.is_forward ? p->stage + 1 : p->stage - 1;
    const size_t floats = pipeline_floats(p, t.piece);

    if (to < 0 || to == p->stages) return COLL_OK;
    what[floats - 1] = (float)p->clock_s;
    return coll_isend(p->comm, what, floats, COLL_F32, to, t.piece, out);
}

/* ---- >>work ---- */

/* Where a unit of this stage saves the data for backward. */
static float *pipeline_saved(const pipeline *p, const slot *s, int unit, int sequences)
{
    float *at = s->saved;

    for (int u = p->begin; u < unit; u++) at += gpt_unit_saved(&p->t->shape, u, sequences);
    return at;
}

/* One piece through the units of this stage, to s->out.  The last stage makes of it the gradient by the scores. */
static void pipeline_forward(pipeline *p, slot *s, int piece, const float *in)
{
    const gpt_shape *const shape = &p->t->shape;
    const gpt_part part = pipeline_part(p, piece);
    const int sequences = part.end - part.begin, letter = part.begin * shape->context;

    for (int u = p->begin; u < p->end; u++) {
        float *const out = u == p->end - 1 ? s->out : in == p->x ? p->y : p->x;

        gpt_unit_forward(shape, u, p->weights + gpt_unit_offset(shape, u) - p->offset, in, out,
                         pipeline_saved(p, s, u, sequences), p->text->letters + letter, sequences);
        in = out;
    }
    if (p->end == gpt_units(shape))
        p->loss += gpt_loss(s->out, s->out, p->text->targets + letter, sequences * shape->context, shape->vocabulary, p->scale);
}

/* And back: `dout` is the gradient by what this stage gave; s->back becomes that by what it was given. */
static void pipeline_backward(pipeline *p, slot *s, int piece, const float *dout)
{
    const gpt_shape *const shape = &p->t->shape;
    const gpt_part part = pipeline_part(p, piece);
    const int sequences = part.end - part.begin, letter = part.begin * shape->context;

    for (int u = p->end - 1; u >= p->begin; u--) {
        const size_t at = gpt_unit_offset(shape, u) - p->offset;
        float *const din = u == p->begin ? s->back : dout == p->x ? p->y : p->x;

        gpt_unit_backward(shape, u, p->weights + at, p->gradient + at, din, dout, pipeline_saved(p, s, u, sequences),
                          p->text->letters + letter, sequences);
        dout = din;
    }
}

/* Do this turn's work with the received piece, and send the result on. */
static coll_status pipeline_work(pipeline *p, turn t, const float *arrived)
{
    slot *const s = &p->slots[t.piece % p->slot_count];
    const double began_s = gpt_now_s(), before_s = pipeline_processor_s();
    char name[24];

    gpt_clock(p->t, GPT_COMPUTE);
    if (t.is_forward) pipeline_forward(p, s, t.piece, arrived);
    else pipeline_backward(p, s, t.piece, p->stage == p->stages - 1 ? s->out : arrived);
    const double spent_s = pipeline_processor_s() - before_s;
    p->busy_s += spent_s;
    p->clock_s += spent_s;
    snprintf(name, sizeof name, "%s %d", t.is_forward ? "forward" : "backward", t.piece);
    gpt_note(p->t, name, p->step, 0, began_s);
    gpt_clock(p->t, GPT_WAIT);
    return pipeline_send(p, t, t.is_forward ? s->out : s->back, &s->sent[t.is_forward]);
}

/* All turns of a step: the gradient of this stage's parameters, and on the last stage the loss. */
static coll_status pipeline_learn(pipeline *p, const gpt_page_of_text *text, int step, float scale, double *loss)
{
    p->text = text, p->step = step, p->scale = scale, p->loss = 0;
    memset(p->gradient, 0, p->count * sizeof *p->gradient);
    gpt_clock(p->t, GPT_WAIT);
    TRY(pipeline_expect(p, 0));
    for (int k = 0; k < 2 * p->pieces; k++) {
        const turn t = pipeline_turn(p, k);
        slot *const s = &p->slots[t.piece % p->slot_count];
        const float *const arrived = p->arrived[k % 2], *const clock = arrived + pipeline_floats(p, t.piece) - 1;
        const bool has_come = p->due[k % 2];

        TRY(pipeline_expect(p, k + 1));
        TRY(gpt_finish(&p->due[k % 2]));
        if (has_come && *clock > p->clock_s) p->clock_s = *clock;
        for (int i = 0; i < 2 && t.is_forward; i++) TRY(gpt_finish(&s->sent[i]));
        TRY(pipeline_work(p, t, arrived));
    }
    for (int i = 0; i < 2 * p->slot_count; i++) TRY(gpt_finish(&p->slots[i / 2].sent[i % 2]));
    gpt_clock(p->t, GPT_COMPUTE);
    *loss = p->loss;
    return COLL_OK;
}

#ifndef GPT_COMBINED                     /* combine.c has its own main */

static int pipeline_train(pipeline *p, gpt_page_of_text *text, float *m, float *v)
{
    gpt_trainer *const t = p->t;
    double loss = 0, bubble;

    for (int step = 0; step < t->with->steps; step++) {
        const float scale = gpt_scale(t, step);

        gpt_read_text(t, text, step, (gpt_part){ 0, gpt_batch(t, step) });
        if (pipeline_learn(p, text, step, scale, &loss)) return gpt_failed(t);
        gpt_adam(p->weights, p->gradient, m, v, p->count, gpt_rate((float)t->with->rate, step, t->with->steps), step);
        if (gpt_step(t, step, loss * (double)scale)) return gpt_failed(t);
    }
    float *const whole = gpt_floats(t, GPT_OTHER, t->count);
    if (!whole || pipeline_whole(p, whole) || pipeline_bubble(p, &bubble)) return gpt_failed(t);
    const int end = gpt_end(t, whole);
    const double formula = (p->stages - 1.0) / (p->pieces + p->stages - 1.0);
    if (t->rank || end) return end;
    if (t->with->is_json) printf("{\"bubble\":%.4f,\"formula\":%.4f}\n", bubble, formula);
    else printf("bubble         %.1f %%, by (S - 1) / (M + S - 1) %.1f %%\n", 100 * bubble, 100 * formula);
    return 0;
}

typedef struct queries { int pieces, order; } queries;

static int train(gpt_trainer *t)
{
    const queries *const with = t->own;
    gpt_page_of_text text;
    pipeline p;
    int code = pipeline_open(&p, t, t->comm, t->with->batch, with->pieces, (pipeline_order)with->order);

    if (!code) {
        float *const m = gpt_floats(t, GPT_OPTIMIZER, p.count), *const v = gpt_floats(t, GPT_OPTIMIZER, p.count);

        code = !m || !v || !gpt_open_text(t, &text, t->with->batch) || gpt_begin(t) ? gpt_failed(t)
             : pipeline_train(&p, &text, m, v);
    }
    pipeline_close(&p);
    return code;
}

int main(int argc, char **argv)
{
    queries own = { .pieces = 4 };
    const gpt_row rows[] = {
        { "pieces", "of a batch", &own.pieces, 1, 1e6, NULL, NULL, NULL },
        { "order", "of their work", &own.order, 0, 1, "gpipe 1f1b", NULL, NULL },
    };

    return gpt_main(argc, argv, &(gpt_page){ "pipeline", "pipeline parallel: every rank has some of the layers", train, rows, 2,
                                             &own });
}

#endif
