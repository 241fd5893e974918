/* coll_comm.h - a communicator and its requests: what they hold, how a call is named, how the first failure ends all. */
#ifndef COLL_COMM_H
#define COLL_COMM_H

/* ---- >>flow: the state of a collective that runs through the engine (coll_engine.h) ---- */

/* A round of one slice on its way. */
typedef struct coll__stage {
    int        xfer_count;                        /* messages of this round                                   */
    int        finished;                          /* so many from the front are known to be done              */
    int        step_count;
    size_t     staged;                            /* bytes of staging in use                                  */
    coll_xfer *xfers;
    coll__step **origin;                          /* origin[i]: the step that xfers[i] carries out            */
    coll__step *steps;
    unsigned char *work, *mine, *staging;
} coll__stage;

typedef struct coll__flow {
    const coll__algorithm *algorithm;
    int     radix, rounds;
    double  seconds;                              /* predicted                                                */
    int     blocks;                               /* that the vector is cut into                              */
    size_t  total;                                /* elements of the vector                                   */
    long    slices, lag;                          /* see coll_engine.h                                        */
    long    ticks, posted, done;
    size_t  slot_length;                          /* bytes of a work slot                                     */
    int     stage_count;
    coll__stage *stages;
    size_t  input_origin, result_origin;          /* element of the vector at which the user's buffer begins  */
} coll__flow;

/* ---- >>request ---- */

struct coll_request {
    coll_comm   *comm;                            /* NULL once the communicator is freed                      */
    coll_request *next;                           /* in the communicator's queue, or in a list of messages    */
    coll_call    call;
    coll_status  status;
    bool         is_detached;                     /* freed by its owner while running                         */
    bool         is_started;
    uint32_t     sequence;
    unsigned char head[COLL_HEAD_LENGTH];
    coll__codec  codec;
    coll_task    task;                            /* when the transport takes the whole call                  */
    bool         is_offloaded;
    coll__flow   flow;                            /* when the engine runs it                                  */
    struct coll__message *sending, *receiving;    /* send, recv, sendrecv                                     */
    int          got_source, got_tag;
    size_t       got_count;
};

/* ---- >>communicator ---- */

/* What the tuner knows of the wire; the same numbers on every rank. */
typedef struct coll__link {
    double latency, overhead;                     /* s a round, s a further message in it                     */
    double per_byte, per_byte_reduced;            /* s                                                        */
} coll__link;

struct coll_comm {
    int   rank, size, local_rank, local_size;
    const coll_transport *transport;
    void *context;
    unsigned char *guard;                         /* *guard = 0: this is a forked child                       */
    int   is_busy;                                /* a thread is inside a call                                */
    int   spin_us, stall_timeout_ms;
    bool  is_crowded;                             /* ranks share processors: yield between looks              */
    coll__log  log;
    coll__link link;
    uint32_t   sequence;                          /* collectives started so far                               */
    coll_failure failure;                         /* status COLL_OK: healthy                                  */
    char  error[448];
    const coll_request *waiting;                  /* the one that a caller waits for                          */
    coll_request *queue, **queue_end;             /* collectives, the first one running                       */
    struct coll__messages *messages;
    struct {                                      /* the arithmetic of the last reducing call                 */
        coll_type   type, wire;
        coll_op     op;
        coll__codec codec;
    } last;
    void  *arena;                                 /* memory of the running collective                         */
    size_t arena_length;
};

/* ---- >>naming a call ---- */

COLL_API const char *coll_kind_name(coll_kind kind)
{
    static const char *const names[] = { "?", "barrier", "broadcast", "reduce", "allreduce", "reduce_scatter", "allgather",
                                         "send", "recv", "sendrecv" };
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : names[0];
}

enum { COLL__MAGIC = 0xc011 };

static inline bool coll__kind_reduces(coll_kind kind)
{
    return kind == COLL_REDUCE || kind == COLL_ALLREDUCE || kind == COLL_REDUCE_SCATTER;
}

static inline bool coll__kind_has_root(coll_kind kind) { return kind == COLL_BROADCAST || kind == COLL_REDUCE; }

static inline bool coll__kind_is_message(coll_kind kind)
{
    return kind == COLL_SEND || kind == COLL_RECV || kind == COLL_SENDRECV;
}

/* The fingerprint of a call, equal on all ranks that make the same call:
 *
 *      0 magic    2 step     4 communicator       8 sequence
 *     12 kind    13 op      14 wire   15 zero    16 type          20 root    24 count
 *
 * The step is set for each message: which round of which slice it belongs to. */
static void coll__head_of_call(unsigned char *head, const coll_call *call, uint32_t sequence)
{
    const bool reduces = coll__kind_reduces(call->kind);

    coll__put16(head, COLL__MAGIC);
    coll__put16(head + 2, 0);
    coll__put32(head + 4, 0);
    coll__put32(head + 8, sequence);
    head[12] = (unsigned char)call->kind;
    head[13] = reduces ? (unsigned char)call->op : 0;
    head[14] = reduces ? (unsigned char)call->wire : 0;
    head[15] = 0;
    coll__put32(head + 16, (uint32_t)call->type);
    coll__put32(head + 20, coll__kind_has_root(call->kind) || coll__kind_is_message(call->kind) ? (uint32_t)call->root : 0);
    coll__put64(head + 24, call->count);
}

static inline void coll__head_set_step(unsigned char *head, long step) { coll__put16(head + 2, (uint32_t)step & 0xffff); }

/* "allreduce #17 of 1024 x f32 (sum)", from a head that may come from anywhere. */
static void coll__head_describe(const unsigned char *head, char *text, size_t room)
{
    const coll_kind kind = (coll_kind)head[12];
    const coll_type type = (coll_type)coll__get32(head + 16), wire = head[14];

    coll__print(text, room, "%s", coll_kind_name(kind));
    if (coll__get32(head + 8) && !coll__kind_is_message(kind)) coll__append(text, room, " #%u", (unsigned)coll__get32(head + 8));
    if (kind == COLL_BARRIER) return;
    coll__append(text, room, " of %llu x %s", (unsigned long long)coll__get64(head + 24), coll_type_name(type));
    if (coll__kind_reduces(kind) && wire != type) coll__append(text, room, " over %s", coll_type_name(wire));
    if (coll__kind_reduces(kind)) coll__append(text, room, " (%s)", coll_op_name((coll_op)head[13]));
    if (coll__kind_has_root(kind)) coll__append(text, room, " root %d", (int)coll__get32(head + 20));
    if (coll__kind_is_message(kind)) coll__append(text, room, " with rank %d", (int)coll__get32(head + 20));
}

/* Did two ranks make different calls under the same number? */
static bool coll__heads_disagree(const unsigned char *a, const unsigned char *b)
{
    return coll__get32(a + 8) == coll__get32(b + 8) && memcmp(a + 4, b + 4, COLL_HEAD_LENGTH - 4) != 0;
}

/* Blame: what arrived is not what this call expects. */
static coll_status coll__blame_mismatch(coll_failure *failure, const unsigned char *ours, int me,
                                        const unsigned char *theirs, int peer)
{
    char mine[96], other[96];

    coll__head_describe(ours, mine, sizeof mine);
    coll__head_describe(theirs, other, sizeof other);
    if (coll__get16(theirs) != COLL__MAGIC)
        return coll__blame(failure, COLL_ERR_PROTOCOL, peer, "rank %d got bytes from rank %d that are no message of ours", me,
                           peer);
    if (!strcmp(mine, other))
        return coll__blame(failure, COLL_ERR_PROTOCOL, peer, "rank %d is in step %u of %s, rank %d in step %u", me,
                           (unsigned)coll__get16(ours + 2), mine, peer, (unsigned)coll__get16(theirs + 2));
    return coll__blame(failure, COLL_ERR_MISMATCH, peer, "rank %d called %s, but rank %d called %s", me, mine, peer, other);
}

/* ---- >>errors: the sentence, and the first failure ending everything ---- */

/* Write the sentence that coll_error gives; `call` may be NULL. */
static COLL__PRINTF(4, 5) coll_status coll__explain_error(coll_comm *comm, const coll_call *call, coll_status status,
                                                          const char *format, ...)
{
    va_list list;

    coll__print(comm->error, sizeof comm->error, "rank %d of %d: ", comm->rank, comm->size);
    if (call) coll__append(comm->error, sizeof comm->error, "%s", coll_kind_name(call->kind));
    if (call && call->name) coll__append(comm->error, sizeof comm->error, " \"%.64s\"", call->name);
    if (call) coll__append(comm->error, sizeof comm->error, ": ");
    const size_t used = strlen(comm->error);
    va_start(list, format);
    vsnprintf(comm->error + used, sizeof comm->error - used, format, list);
    va_end(list);
    return status;
}

static void coll__request_drop(coll_request *request)
{
    if (request->is_detached) free(request);
}

/* End every collective in the queue with `status`. */
static void coll__queue_end_all(coll_comm *comm, coll_status status)
{
    while (comm->queue) {
        coll_request *first = comm->queue;
        comm->queue = first->next;
        first->status = status;
        coll__request_drop(first);
    }
    comm->queue_end = &comm->queue;
}

static void coll__messages_end_all(coll_comm *comm, coll_status status);

/* The communicator is at its end, because of *cause (NULL: of what the transport says).  Tells the others, takes the cause
 * on which all agree, and ends every operation with it. */
static coll_status coll__comm_fail(coll_comm *comm, const coll_failure *cause)
{
    if (comm->failure.status != COLL_OK) return comm->failure.status;

    const coll_failure *agreed = comm->transport->fail ? comm->transport->fail(comm->context, cause) : cause;
    if (agreed) comm->failure = *agreed;
    else coll__blame(&comm->failure, COLL_ERR_SYSTEM, -1, "the transport \"%s\" failed", comm->transport->name);

    const bool is_message = comm->waiting && coll__kind_is_message(comm->waiting->call.kind);
    const coll_request *running = is_message ? comm->waiting : comm->queue;
    char what[96];
    if (running) coll__head_describe(running->head, what, sizeof what);
    coll__print(comm->error, sizeof comm->error, "rank %d of %d: ", comm->rank, comm->size);
    if (running) coll__append(comm->error, sizeof comm->error, "%s", what);
    if (running && running->call.name) coll__append(comm->error, sizeof comm->error, " \"%.64s\"", running->call.name);
    coll__append(comm->error, sizeof comm->error, "%s%s", running ? ": " : "", comm->failure.text);
    coll__say(&comm->log, COLL_LOG_INFO, "%s", comm->error);
    coll__queue_end_all(comm, comm->failure.status);
    coll__messages_end_all(comm, comm->failure.status);
    return comm->failure.status;
}

#endif /* COLL_COMM_H */
