/* coll_threads_stores.h - whether long results are stored past the caches, learned from the calls themselves.
 *
 * A store past the caches saves that a line is read before it is overwritten; where the line would have stayed in a cache, it
 * loses.  How much cache there is for a rank nobody tells: what the processor says of its own is not what a virtual machine has
 * of it, and others use it, too.  So a rank times its shares of some long calls, first one way and then the other, and goes on
 * with the better one; after many calls it looks again.  Ranks may differ: it shows in the time only. */
#ifndef COLL_THREADS_STORES_H
#define COLL_THREADS_STORES_H

enum {
    COLL__STORES_LEAST_BITS = 21,                 /* of both buffers together; what is shorter stays in our own caches */
    COLL__TRIAL_TRIES = 5,                        /* of each way; the first finds the caches as the other way */
                                                  /* has left them, and of the rest the fastest counts        */
    COLL__TRIAL_AGAIN = 1024                      /* calls from one look to the next                          */
};

/* That of a length, in a list of classes of which the first ends at 2^(bits + 1) bytes. */
static inline coll__trial *coll__trial_of(coll__trial *list, size_t length, int bits)
{
    const int at = 63 - __builtin_clzll(length) - bits, last = COLL__TRIAL_CLASSES - 1;
    return &list[at < 0 ? 0 : at < last ? at : last];
}

/* Do results stay where this rank stores them?  Apart others read them at once, but of blocks that are each rank's own. */
static inline bool coll__stores_stay(const coll__turn *t) { return !coll__is_apart(t->m) || !t->form->pull; }

/* That of a long call; NULL: it is not long.  In place there is nothing to gain: the lines are in the cache, because they have
 * just been read.  Of an input that is combined only as much counts as there is of the result. */
static inline coll__trial *coll__stores_of(const coll__turn *t, size_t *length)
{
    const coll_call *c = t->call;
    const coll__kind_shape *shape = coll__shape_in(t);
    const bool reduces = shape->traits & COLL__REDUCES;

    if (shape->send.who != COLL__WHO_NOBODY && c->send == c->recv) return NULL;
    *length = coll__extent(t, reduces ? &shape->recv : &shape->send, c->send_counts)
            + coll__extent(t, &shape->recv, c->recv_counts);
    if (*length >> COLL__STORES_LEAST_BITS == 0 || !coll__stores_stay(t)) return NULL;
    return coll__trial_of(t->m->stores[reduces], *length, COLL__STORES_LEAST_BITS);
}

/* Shall this call go the other way?  Of two trials that may be of one call the second begins when the first is over. */
static inline bool coll__trial_other(coll__trial *s, bool is_second)
{
    const unsigned begin = is_second ? 2 * COLL__TRIAL_TRIES : 0, phase = (s->calls++ - begin) % COLL__TRIAL_AGAIN;

    if (phase == 0) s->best[0] = s->best[1] = 0;
    const bool is_try = phase < 2 * COLL__TRIAL_TRIES;
    s->counts = is_try && phase % COLL__TRIAL_TRIES > 0;
    return is_try ? phase >= COLL__TRIAL_TRIES : s->best[1] < s->best[0] * 0.95f;
}

/* What it has taken. */
static inline void coll__trial_note(coll__trial *s, bool is_other, int64_t ns, size_t length)
{
    float *const best = &s->best[is_other];
    const float each = (float)ns / (float)length;
    if (*best == 0 || each < *best) *best = each;
}

/* This rank's share of the work. */
static coll_status coll__stored_share(coll__turn *t)
{
    size_t length = 0;
    coll__trial *const s = coll__stores_of(t, &length);

    if (!s) return t->form->share(t);
    t->streams = coll__trial_other(s, coll__is_apart(t->m));
    const int64_t began = s->counts ? coll__now() : 0;
    const coll_status status = t->form->share(t);
    if (t->streams) coll__uncached_end();
    if (s->counts) coll__trial_note(s, t->streams, coll__now() - began, length);
    return status;
}

#endif /* COLL_THREADS_STORES_H */
