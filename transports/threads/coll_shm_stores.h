/* coll_shm_stores.h - whether long results are written by streaming stores, selected by timing the calls.
 *
 * A streaming store avoids reading a line before it is overwritten.  It is slower if the line would have stayed in a cache.  A
 * rank does not know its part of the cache: a virtual machine has less than the processor reports, and others use it, too.  So a
 * rank times its shares of some long calls in both ways, and continues with the faster one.  It repeats that after many calls.
 * Ranks may differ: this changes the time only. */
#ifndef COLL_SHM_STORES_H
#define COLL_SHM_STORES_H

enum {
    COLL__STORES_LEAST_BITS = 21,                 /* of both buffers together; shorter ones stay in own caches */
    COLL__TRIAL_TRIES = 5,                        /* of each way; the first finds the caches as the other     */
                                                  /* has left them, of the rest the fastest counts */
    COLL__TRIAL_AGAIN = 1024                      /* calls from one trial to the next                         */
};

/* The trial of a length; the first class of the list ends at 2^(bits + 1) bytes. */
static inline coll__trial *coll__trial_of(coll__trial *list, size_t length, int bits)
{
    const int at = 63 - __builtin_clzll(length) - bits, last = COLL__TRIAL_CLASSES - 1;
    return &list[at < 0 ? 0 : at < last ? at : last];
}

/* The trial of a long call; NULL: it is not long, or peers read results at once.  In place gains nothing: the lines were just
 * read, and are cached.  Of a combined input, only the length of the result counts. */
static inline coll__trial *coll__stores_of(const coll__shm_op *t, size_t *length)
{
    const coll_call *c = t->call;
    const coll__kind_shape *shape = coll__shape_in(t);
    const bool reduces = shape->traits & COLL__REDUCES;

    if (shape->send.who != COLL__WHO_NONE && c->send == c->recv) return NULL;
    *length = coll__extent(t, reduces ? &shape->recv : &shape->send, c->send_counts)
            + coll__extent(t, &shape->recv, c->recv_counts);
    if (*length >> COLL__STORES_LEAST_BITS == 0 || (coll__is_apart(t->m) && coll__pulls(t->form))) return NULL;
    return coll__trial_of(t->m->stores[reduces], *length, COLL__STORES_LEAST_BITS);
}

/* Returns whether this call uses the other way.  If two trials may apply to it, the second begins after the first. */
static inline bool coll__trial_other(coll__trial *s, bool is_second)
{
    const unsigned begin = is_second ? 2 * COLL__TRIAL_TRIES : 0, phase = (s->calls++ - begin) % COLL__TRIAL_AGAIN;

    if (phase == 0) s->best[0] = s->best[1] = 0;
    const bool is_try = phase < 2 * COLL__TRIAL_TRIES;
    s->counts = is_try && phase % COLL__TRIAL_TRIES > 0;
    return is_try ? phase >= COLL__TRIAL_TRIES : s->best[1] < s->best[0] * 0.95f;
}

static inline void coll__trial_note(coll__trial *s, bool is_other, int64_t ns, size_t length)
{
    float *const best = &s->best[is_other];
    const float each = (float)ns / (float)length;
    if (*best == 0 || each < *best) *best = each;
}

/* This rank's share of the work, timed in a trial. */
static coll_status coll__stored_share(const coll__shm_op *t)
{
    coll__shm_op share = *t;
    size_t length = 0;
    coll__trial *const s = coll__stores_of(t, &length);

    if (!s) return t->form->share(t);
    share.streams = coll__trial_other(s, coll__is_apart(t->m));
    const int64_t began = s->counts ? coll__now() : 0;
    const coll_status status = t->form->share(&share);
    if (share.streams) coll__streamed_end();
    if (s->counts) coll__trial_note(s, share.streams, coll__now() - began, length);
    return status;
}

#endif /* COLL_SHM_STORES_H */
