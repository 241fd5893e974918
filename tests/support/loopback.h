/* loopback.h - several ranks in one thread, by a transport of queues: for builds without threads and processes.
 * Every call is started on all ranks, and they are tested in turns until all have ended. */
#ifndef LOOP_H
#define LOOP_H

enum { LOOP_MOST = 8 };

typedef struct loop_end { coll_xfer *sends, *recvs; } loop_end;       /* of one direction between two ranks, and a channel */

typedef struct loop_rank {
    int       rank;
    loop_end *ends;                               /* of all: [(from * LOOP_MOST + to) * COLL_CHANNEL_COUNT + channel] */
} loop_rank;

static loop_end *loop_between(loop_rank *r, int from, int to, int channel)
{
    return &r->ends[(from * LOOP_MOST + to) * COLL_CHANNEL_COUNT + channel];
}

static void loop_append(coll_xfer **list, coll_xfer *x)
{
    x->next = NULL;
    while (*list) list = &(*list)->next;
    *list = x;
}

/* Whatever has both ends, in order. */
static void loop_match(loop_end *e)
{
    while (e->sends && e->recvs) {
        coll_xfer *const s = e->sends, *const r = e->recvs;
        const bool is_right = r->any_head || !memcmp(s->head, r->head, COLL_HEAD_LENGTH);
        e->sends = s->next;
        e->recvs = r->next;
        memcpy(r->head, s->head, COLL_HEAD_LENGTH);
        if (is_right && s->length) memcpy(r->buffer, s->buffer, s->length);
        s->status = COLL_OK;
        r->status = is_right ? COLL_OK : COLL_ERR_MISMATCH;
    }
}

static coll_status loop_send(void *context, coll_xfer *x)
{
    loop_rank *const r = (loop_rank *)context;
    loop_end *const e = loop_between(r, r->rank, x->peer, x->channel);

    loop_append(&e->sends, x);
    loop_match(e);
    return COLL_OK;
}

static coll_status loop_recv(void *context, coll_xfer *x)
{
    loop_rank *const r = (loop_rank *)context;
    loop_end *const e = loop_between(r, x->peer, r->rank, x->channel);

    loop_append(&e->recvs, x);
    loop_match(e);
    return COLL_OK;
}

static coll_status loop_progress(void *context, int wait_ms) { return (void)context, (void)wait_ms, COLL_OK; }

/* No rank sends to a rank that has closed, or waits for it: its queued transfers are dropped. */
static void loop_close(void *context)
{
    loop_rank *const r = (loop_rank *)context;

    for (int i = 0; i < LOOP_MOST; i++)
        for (int c = 0; c < COLL_CHANNEL_COUNT; c++) {
            loop_between(r, r->rank, i, c)->sends = NULL;
            loop_between(r, i, r->rank, c)->recvs = NULL;
        }
}

static const coll_transport loop_transport = {
    .name = "loop", .send = loop_send, .recv = loop_recv, .progress = loop_progress, .close = loop_close
};

/* A world of `size` ranks, by loop_transport or one that is built on it; false: it cannot be made. */
typedef struct loop_world {
    int        size;
    loop_end   ends[LOOP_MOST * LOOP_MOST * COLL_CHANNEL_COUNT];
    loop_rank  ranks[LOOP_MOST];
    coll_comm *comms[LOOP_MOST];
} loop_world;

static bool loop_open(loop_world *w, int size, const coll_transport *transport)
{
    memset(w, 0, sizeof *w);
    w->size = size;
    for (int i = 0; i < size; i++) {
        w->ranks[i] = (loop_rank){ i, w->ends };
        if (coll_init_custom(transport, &w->ranks[i], i, size, &w->comms[i], NULL) != COLL_OK) return false;
    }
    return true;
}

/* Ranks close one after the other, as in threads: nothing is in flight any more. */
static void loop_free(loop_world *w)
{
    for (int i = 0; i < w->size; i++) coll_free(w->comms[i]);
}

/* One call on each rank. */
static coll_status loop_run(loop_world *w, const coll_call *calls)
{
    coll_request *requests[LOOP_MOST] = { NULL };
    coll_status status = COLL_OK;
    int left = 0;

    for (int i = 0; i < w->size; i++) {
        const coll_status begun = coll_start(w->comms[i], &calls[i], &requests[i]);
        if (begun < 0) status = begun;
    }
    do {
        left = 0;
        for (int i = 0; i < w->size && status == COLL_OK; i++) {
            const coll_status now = coll_test(requests[i]);
            if (now < 0) status = now;
            left += now == COLL_PENDING;
        }
    } while (left > 0 && status == COLL_OK);
    for (int i = 0; i < w->size; i++) coll_request_free(requests[i]);
    return status;
}

#endif /* LOOP_H */
