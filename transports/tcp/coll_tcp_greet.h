/* coll_tcp_greet.h - who is there: the first words on every connection, seen from either end.
 *
 * The one who calls says who it is; the other one checks that.  A greeting is moved on as its socket allows, by whoever waits
 * for it: coll__greet_advance never blocks.  Nothing is allocated for a caller that has not been checked, and it gets
 * COLL__HELLO_LENGTH bytes to say it in. */
#ifndef COLL_TCP_GREET_H
#define COLL_TCP_GREET_H

/* What a rank knows of its world before it talks to anybody. */
typedef struct coll__identity {
    unsigned char world[COLL__WORLD_LENGTH], host[COLL__HOST_LENGTH];
    int rank, size;
} coll__identity;

typedef struct coll__greet {
    coll__pipe  pipe;
    bool        is_caller;
    short       want;                             /* what to poll the socket for before the next advance      */
    int         length;                           /* bytes that have been moved                               */
    int64_t     deadline;
    coll__hello hello;                            /* of the caller: what it says; at the other end: what came */
    coll_status status;                           /* what to tell the caller when it is turned away           */
    char        why[128];                         /* and the sentence                                         */
    unsigned char bytes[COLL__HELLO_LENGTH];
} coll__greet;

/* Begin to say `hello` on a connected socket, which the greeting takes over. */
static void coll__greet_call(coll__greet *g, const coll__identity *us, int fd, coll__hello hello, int64_t deadline)
{
    *g = (coll__greet){ .pipe = { .fd = fd }, .is_caller = true, .want = POLLOUT, .deadline = deadline, .hello = hello };
    g->hello.rank = us->rank;
    g->hello.size = us->size;
    memcpy(g->hello.world, us->world, sizeof us->world);
    memcpy(g->hello.host, us->host, sizeof us->host);
    coll__hello_write(g->bytes, &g->hello);
}

/* Begin to listen to whoever is at an accepted socket, which the greeting takes over. */
static void coll__greet_answer(coll__greet *g, int fd, int64_t deadline)
{
    *g = (coll__greet){ .pipe = { .fd = fd }, .want = POLLIN, .deadline = deadline };
}

/* Move on.  COLL_OK: both ends know with whom they talk, and the pipe is ready; COLL_PENDING: poll for g->want first; an error:
 * g->why says why not.  The pipe stays the greeting's own until somebody takes it. */
static coll_status coll__greet_advance(coll__greet *g, const coll__identity *us)
{
    while (g->length < COLL__HELLO_LENGTH) {
        const ssize_t n = coll__pipe_move(&g->pipe, g->bytes + g->length, (size_t)(COLL__HELLO_LENGTH - g->length), g->is_caller);
        if (n == -EAGAIN) return COLL_PENDING;
        if (n < 0) {
            coll__print(g->why, sizeof g->why, "%s", coll__ending_text((int)-n));
            return COLL_ERR_PEER;
        }
        g->length += (int)n;
    }
    const char *wrong = g->is_caller ? NULL : coll__hello_read(g->bytes, us->world, us->size, &g->hello);
    if (!wrong) return COLL_OK;
    coll__print(g->why, sizeof g->why, "%s", wrong);
    return COLL_ERR_PROTOCOL;
}

/* The same, waiting until the greeting's deadline. */
static coll_status coll__greet_finish(coll__greet *g, const coll__identity *us)
{
    coll_status status;

    while ((status = coll__greet_advance(g, us)) == COLL_PENDING) {
        const int ms = coll__ms_until(g->deadline, 60000);
        struct pollfd p = { .fd = g->pipe.fd, .events = g->want };
        if (ms == 0) {
            coll__print(g->why, sizeof g->why, "no answer");
            return COLL_ERR_TIMEOUT;
        }
        (void)poll(&p, 1, ms);
    }
    return status;
}

#endif /* COLL_TCP_GREET_H */
