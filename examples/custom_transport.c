/* custom_transport - a transport of one's own, outside the library: forked processes joined by pairs of unix sockets.
 *
 *     cc examples/custom_transport.c -o custom_transport -pthread && ./custom_transport 4
 *
 * Four functions make a transport: send, recv, progress, close.  The contract is in core/contract/coll_transport.h.  The
 * engine does the rest: every collective runs over it, and so do messages, communicators made by coll_split, and prepared
 * calls. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The connection to one peer for one channel: a socket, and the transfers queued on it in both directions. */
typedef struct wire {
    int        fd;
    bool       in_ended, out_ended;               /* the peer has closed it: all is read; no reader           */
    coll_xfer *out, *in;
    unsigned char head[COLL_HEAD_LENGTH];         /* of the message that is arriving                          */
} wire;

typedef struct wires {
    int         size;
    wire       *wire;                             /* [peer * COLL_CHANNEL_COUNT + channel]                    */
    coll_status status;
} wires;

static wire *wire_of(wires *w, const coll_xfer *x) { return &w->wire[x->peer * COLL_CHANNEL_COUNT + x->channel]; }

static coll_status queue(coll_xfer **list, coll_xfer *x)
{
    x->moved = 0;
    x->next = NULL;
    while (*list) list = &(*list)->next;
    *list = x;
    return COLL_OK;
}

static coll_status wires_send(void *context, coll_xfer *x) { return queue(&wire_of(context, x)->out, x); }
static coll_status wires_recv(void *context, coll_xfer *x) { return queue(&wire_of(context, x)->in, x); }

/* The next piece of a transfer: the rest of its head, or of its body. */
static unsigned char *piece(coll_xfer *x, unsigned char *head, size_t *length)
{
    const bool in_head = x->moved < COLL_HEAD_LENGTH;
    *length = (in_head ? COLL_HEAD_LENGTH : COLL_HEAD_LENGTH + x->length) - x->moved;
    return in_head ? head + x->moved : (unsigned char *)x->buffer + (x->moved - COLL_HEAD_LENGTH);
}

/* Does a queued transfer need the peer?  One that takes any head only listens, or answers: if the peer has closed, it stays
 * pending, and that is no error. */
static bool is_needed(const coll_xfer *x)
{
    while (x && x->any_head) x = x->next;
    return x != NULL;
}

/* The peer has closed the wire.  That is an error only if a transfer needs it. */
static bool end_wire(wires *w, wire *one, bool is_out)
{
    const coll_xfer *first = is_out ? one->out : one->in;

    if (is_out) one->out_ended = true;
    else one->in_ended = true;
    if (is_needed(first) || (!is_out && first->moved > 0)) w->status = COLL_ERR_PEER;
    return false;
}

/* Move one direction of a wire as far as it goes; true: something moved. */
static bool move(wires *w, wire *one, bool is_out)
{
    coll_xfer **first = is_out ? &one->out : &one->in;
    bool any = false;

    while (*first && w->status == COLL_OK) {
        coll_xfer *x = *first;
        size_t length;
        unsigned char *at = piece(x, is_out ? x->head : one->head, &length);
        if (is_out ? one->out_ended : one->in_ended) return end_wire(w, one, is_out);
        const ssize_t n = is_out ? send(one->fd, at, length, MSG_DONTWAIT | MSG_NOSIGNAL)
                                 : recv(one->fd, at, length, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) return end_wire(w, one, is_out);
        x->moved += (size_t)n;
        any = true;
        if (!is_out && x->moved == COLL_HEAD_LENGTH) {            /* is it the message that we expect?        */
            const bool is_wrong = !x->any_head && memcmp(x->head, one->head, COLL_HEAD_LENGTH) != 0;
            memcpy(x->head, one->head, COLL_HEAD_LENGTH);
            if (is_wrong) {
                *first = x->next;
                x->status = COLL_ERR_MISMATCH;
                break;
            }
        }
        if (x->moved < COLL_HEAD_LENGTH + x->length) continue;
        *first = x->next;                         /* unlink first: once the status is set it is not ours      */
        x->status = COLL_OK;
    }
    return any;
}

static coll_status wires_progress(void *context, int wait_ms)
{
    wires *w = context;
    const int count = w->size * COLL_CHANNEL_COUNT;
    struct pollfd fds[64 * COLL_CHANNEL_COUNT];
    bool any = false;

    for (int i = 0; i < count; i++) {
        if (w->wire[i].fd < 0) continue;
        any |= move(w, &w->wire[i], true);
        any |= move(w, &w->wire[i], false);
    }
    if (any || wait_ms == 0 || w->status != COLL_OK) return w->status;
    for (int i = 0; i < count; i++) {
        const wire *one = &w->wire[i];
        const short want = (short)((one->in && !one->in_ended ? POLLIN : 0) | (one->out && !one->out_ended ? POLLOUT : 0));
        fds[i] = (struct pollfd){ .fd = want ? w->wire[i].fd : -1, .events = want };
    }
    poll(fds, (nfds_t)count, wait_ms);
    return w->status;
}

static void wires_close(void *context)
{
    wires *w = context;

    for (int i = 0; i < w->size * COLL_CHANNEL_COUNT; i++)
        if (w->wire[i].fd >= 0) close(w->wire[i].fd);
    free(w->wire);
    free(w);
}

static const coll_transport wires_transport = {
    .name = "wires", .send = wires_send, .recv = wires_recv, .progress = wires_progress, .close = wires_close
};

/* ---- the program: every rank sums, sends round the ring, splits, and checks ---- */

static int work(coll_comm *comm)
{
    enum { COUNT = 100000 };
    const int rank = coll_rank(comm), size = coll_size(comm);
    static int64_t x[COUNT];
    int token = -1, pairs = 1;
    coll_comm *half;

    for (int i = 0; i < COUNT; i++) x[i] = rank + i;
    if (coll_allreduce(comm, x, x, COUNT, COLL_I64, COLL_SUM)
        || coll_sendrecv(comm, &rank, 1, (rank + 1) % size, &token, 1, (rank + size - 1) % size, COLL_I32, 0)
        || coll_split(comm, rank % 2, 0, &half)
        || coll_allreduce(half, &pairs, &pairs, 1, COLL_I32, COLL_SUM)
        || coll_barrier(comm)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
    for (int i = 0; i < COUNT; i++)
        if (x[i] != (int64_t)size * (size - 1) / 2 + (int64_t)size * i)
            return fprintf(stderr, "rank %d: wrong sum at %d\n", rank, i), 1;
    if (pairs != (size + 1 - rank % 2) / 2) return fprintf(stderr, "rank %d: wrong half of %d\n", rank, pairs), 1;
    if (token != (rank + size - 1) % size) return fprintf(stderr, "rank %d: wrong token %d\n", rank, token), 1;
    coll_free(half);
    if (rank == 0) printf("%d ranks over a transport of their own: right\n", size);
    return 0;
}

/* One process: keep our ends of the pairs, close all others. */
static int run_rank(int rank, int size, int (*pairs)[2])
{
    wires *w = malloc(sizeof *w);
    coll_comm *comm;

    *w = (wires){ size, calloc((size_t)size * COLL_CHANNEL_COUNT, sizeof *w->wire), COLL_OK };
    for (int a = 0; a < size; a++)
        for (int b = 0; b < size; b++)
            for (int c = 0; c < COLL_CHANNEL_COUNT; c++) {
                int *pair = pairs[(a * size + b) * COLL_CHANNEL_COUNT + c];
                if (a >= b) continue;                             /* the pair of a < b: end 0 is a's, end 1 is b's */
                if (rank != a) close(pair[0]);
                if (rank != b) close(pair[1]);
                if (rank == a) w->wire[b * COLL_CHANNEL_COUNT + c].fd = pair[0];
                if (rank == b) w->wire[a * COLL_CHANNEL_COUNT + c].fd = pair[1];
            }
    for (int c = 0; c < COLL_CHANNEL_COUNT; c++) w->wire[rank * COLL_CHANNEL_COUNT + c].fd = -1;
    if (coll_init_custom(&wires_transport, w, rank, size, &comm, NULL)) return 1;
    const int result = work(comm);
    coll_free(comm);
    return result;
}

int main(int argc, char **argv)
{
    const int size = argc > 1 ? atoi(argv[1]) : 4;
    int status, bad = 0;

    if (size < 1 || size > 64) return fprintf(stderr, "usage: custom_transport RANKS, 1 to 64\n"), 2;
    int(*pairs)[2] = calloc((size_t)size * (size_t)size * COLL_CHANNEL_COUNT, sizeof *pairs);
    for (int i = 0; i < size * size * COLL_CHANNEL_COUNT; i++)
        if (i / COLL_CHANNEL_COUNT / size < i / COLL_CHANNEL_COUNT % size && socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]))
            return perror("socketpair"), 1;
    for (int rank = 0; rank < size; rank++)
        if (fork() == 0) {
            const int result = run_rank(rank, size, pairs);
            fflush(stdout);
            _exit(result);
        }
    for (int i = 0; i < size * size * COLL_CHANNEL_COUNT; i++)
        if (i / COLL_CHANNEL_COUNT / size < i / COLL_CHANNEL_COUNT % size) close(pairs[i][0]), close(pairs[i][1]);
    while (wait(&status) > 0) bad |= status;
    free(pairs);
    return bad != 0;
}
