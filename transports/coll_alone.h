/* coll_alone.h - the only rank there is, in a program that was compiled without threads.
 *
 * A rank without peers sends nothing: the engine copies, and keeps the messages of a rank to itself.  With threads
 * this is a world of one of these. */
#ifndef COLL_ALONE_H
#define COLL_ALONE_H

#if !COLL__HAS_THREADS

static coll_status coll__alone_transfer(void *context, coll_xfer *x)
{
    (void)context;
    return x->status = COLL_ERR_ARGUMENT;         /* there is no peer                                         */
}

/* Nothing comes from anywhere: who waits may only be waiting for another thread of the program. */
static coll_status coll__alone_progress(void *context, int wait_ms)
{
    (void)context;
    if (wait_ms > 0) coll__delay(1000);
    return COLL_OK;
}

static void coll__alone_close(void *context) { (void)context; }

static const coll_transport coll__alone_transport = {
    .name = "alone",
    .send = coll__alone_transfer,
    .recv = coll__alone_transfer,
    .progress = coll__alone_progress,
    .close = coll__alone_close,
};

static coll_status coll__alone_open(const coll__settings *s, int count, coll__opened *out)
{
    if (count > 1)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "%d ranks in one process are threads, but this program was compiled "
                                  "without them (COLL_ONLY_TRANSPORTS)", count);
    *out = coll__opened_as(&coll__alone_transport, NULL, 0, 1, s);
    return COLL_OK;
}

static const coll__transport_row coll__alone_row = { .traits = COLL__OPENS_ALL, .open = coll__alone_open };

#else

static const coll__transport_row coll__alone_row = { .traits = COLL__WHEN_NAMED };        /* never chosen     */

#endif
#endif /* COLL_ALONE_H */
