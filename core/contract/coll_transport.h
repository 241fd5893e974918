/* coll_transport.h - the interface of a transport, which carries messages.  Public: a program may supply its own.
 *
 * A transport connects ranks 0 .. size-1 and moves messages between them.  It knows bytes and peers, not types, operations or
 * algorithms.  Four functions are required (send, recv, progress, close), the others are optional.
 *
 * Rules:
 *   1. A message is a head of COLL_HEAD_LENGTH bytes followed by `length` bytes, often 0.  Between two ranks, the messages
 *      of one channel match the receives of that channel in the order in which both were queued.  Channels are independent:
 *      a message without a receive must not block another channel.
 *   2. Both sides know the length and compute the head.  If the received head differs from the head of the receive (and
 *      any_head is not set), the receive ends with COLL_ERR_MISMATCH.  Its head is replaced by the received one, and the
 *      bytes after it are not read.
 *   3. send and recv never block and never allocate; they may finish the transfer at once.  The caller owns the coll_xfer.
 *      It must not change the coll_xfer or its buffer until status is no longer COLL_PENDING.  The transport writes status
 *      last.
 *   4. progress(0) does all that is possible and returns at once.  progress(wait_ms > 0) may sleep up to that time; it
 *      returns early if something moved, and may also return early for no reason.  If a peer has closed, transfers that need
 *      it fail.  A receive with any_head stays pending.
 *   5. The first error ends the transport: from then on progress returns that error, and all pending transfers are completed
 *      with it.  Calls on one context come from one thread at a time, except wake and abort.
 *   6. close works in every state, returns soon, and frees the groups.
 *
 * A coll_transport with a reserved member other than 0 is refused with COLL_ERR_ARGUMENT: later versions use these members. */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_TRANSPORT_H
#define COLL_TRANSPORT_H

enum { COLL_HEAD_LENGTH = 32 };                   /* identifies the call of a message; opaque to a transport  */

enum { COLL_CHANNEL_CALLS = 0, COLL_CHANNEL_MESSAGES = 1, COLL_CHANNEL_COUNT = 2 };

/* A message in transit. */
typedef struct coll_xfer {
    unsigned char head[COLL_HEAD_LENGTH];
    void        *buffer;
    size_t       length;                          /* bytes                                                    */
    int          peer;                            /* never this rank                                          */
    int          channel;                         /* COLL_CHANNEL_...                                         */
    bool         any_head;                        /* receive: accepts any head; send: not needed by a peer
                                                     that has closed, which is then no error                  */
    coll_status  status;                          /* COLL_PENDING, then COLL_OK or an error                   */
    size_t       moved;                           /* owned by the transport: bytes so far, head included      */
    struct coll_xfer *next;                       /* owned by the transport: queue link                       */
    void        *link;                            /* owned by the transport                                   */
} coll_xfer;

enum { COLL_FAILURE_ROOM = 212 };                 /* bytes, with the 0 at the end                             */

/* Why a communicator ended, the same on all ranks. */
typedef struct coll_failure {
    coll_status status;
    int         rank;                             /* the rank that caused it, -1: none                        */
    char        text[COLL_FAILURE_ROOM];          /* "rank 2 at 10.0.0.7:4242 is gone: connection reset by peer"; may
                                                     be empty                                                 */
} coll_failure;

/* What a list of ranks has decided by coll_agree, as far as this rank knows.  Before a failure collectives of all of them
 * decide: `next` is known to all of them before it counts. */
typedef struct coll_decisions {
    uint32_t count;                               /* decisions so far                                         */
    bool     has_next;
    uint64_t last, next;                          /* flags of the last one, and of the one that follows       */
    unsigned char *failed;                        /* by place in the list: left out by the last one           */
    void    *kept;                                /* memory of the transport, freed by the library; NULL: none yet */
} coll_decisions;

/* The result of `shrink`: the ranks that continue. */
typedef struct coll_survivors {
    void *context;                                /* of the new job                                           */
    int   rank, count;                            /* our rank in it, and its size                             */
    int  *ranks;                                  /* their ranks in the old one; has room for all of them     */
    coll_decisions *known;                        /* given: of these ranks                                    */
    bool  is_agree;                               /* given: for coll_agree                                    */
    uint64_t flags;                               /* for coll_agree: given, and the result                    */
} coll_survivors;

/* A whole collective that is offered to the transport. */
typedef struct coll_task {
    const coll_call     *call;                    /* checked, with all defaults filled in                     */
    const unsigned char *head;                    /* its fingerprint, equal on ranks that agree               */
    const struct coll__codec *codec;              /* its arithmetic; opaque outside the library               */
    void                *group;                   /* result of `group` below; NULL: all ranks                 */
    uint64_t             state[4];                /* owned by the transport: zero when the task is first offered */
    int                  ahead;                   /* number of tasks of its group before it (see offload_ahead) */
    signed char          is_finite;               /* COLL_DETECT_OVERFLOW: a transport that has checked all of
                                                     the result may set 1, or -1 for an infinity or a NaN; 0:
                                                     not checked                                              */
    bool                 is_blocking;             /* the caller does nothing else until it is finished        */
} coll_task;

typedef coll_status coll_offload_fn(void *context, coll_task *task, coll_failure *failure);

typedef struct coll_transport {
    const char *name;                                                     /* "tcp"                            */
    coll_status (*send)    (void *context, coll_xfer *xfer);
    coll_status (*recv)    (void *context, coll_xfer *xfer);
    coll_status (*progress)(void *context, int wait_ms);
    void        (*close)   (void *context);

    /* Optional: tell every rank that the communicator has failed because of *cause.  Returns the one cause on which all ranks
     * agree, which may be an earlier one.  cause NULL: return why progress failed.  Waits for a bounded time. */
    const coll_failure *(*fail)(void *context, const coll_failure *cause);

    /* Optional: execute a whole collective.  Called again until it returns something other than COLL_PENDING.
     * COLL_ERR_UNSUPPORTED declines: it must do so on all ranks, with unchanged inputs, and at the first call if tasks are
     * before it.  It must decline flags that it does not know.  Sets the cause of an error in *failure.  COLL_TINY never calls
     * it. */
    coll_offload_fn *offload;

    /* Optional, with offload: the number of tasks of a group that are offered, in order, while an earlier one is pending;
     * task->ahead is their place after it.  COLL_PENDING with state[0] == 0: the task has not begun, and later ones are not
     * offered.  0: a task is offered when earlier ones are finished. */
    int          offload_ahead;

    /* Optional, with offload: return the function for calls with the kind, type, operation and group of this task; it is called
     * with *bound instead of the context.  So constant parts are looked up once.  NULL: offload is called. */
    coll_offload_fn *(*bind)(void *context, const coll_task *task, void **bound);

    /* Optional, with offload: how is this call on `size` ranks executed?  Writes the reason to `why`.  1: offload executes it;
     * 0: messages; -1: it is refused with COLL_ERR_UNSUPPORTED.  The same on all ranks. */
    int         (*can_offload)(const void *context, const coll_call *call, int size, char *why, size_t room);

    /* Optional, with offload: make a group of ranks, whose collectives are offloaded in their own order.  All of `ranks`, and
     * no other rank, make it with the same communicator id and order number (0: the communicator's own order); `me` is our
     * index.  Groups with a common member differ in id or number.  NULL, on all of these ranks: their collectives use messages.
     * If a single rank fails, for lack of memory, the transport fails. */
    void       *(*group)   (void *context, uint64_t id, uint32_t number, const int *ranks, int count, int me);
    void        (*ungroup) (void *context, void *group);

    /* Optional: the allocator of memory that other ranks read in place.  Callable from any thread.  NULL: none. */
    const struct coll_allocator *(*memory)(void *context);

    /* Optional: the host of a rank, as any number that is equal for ranks of one host.  Default: each rank on its own host. */
    int         (*host)    (void *context, int rank);

    /* Optional: the site of a rank's host, as any number that is equal for hosts of one site.  Default: one site. */
    int         (*site)    (void *context, int rank);

    /* Optional, repeated: this rank waits long in the collective with this head.  Ranks may wait for one another in different
     * calls, which no message shows.  If two reports show different calls, the transport must fail with COLL_ERR_MISMATCH. */
    void        (*report_stall)(void *context, const unsigned char *head);

    /* Optional: mark the ranks that an offloaded task waits for. */
    void        (*mark_stragglers)(const void *context, const coll_task *task, unsigned char *is_late);

    /* Optional: describe the ranks marked in is_late, as in "rank 3: outside the library for 40 s".  text NULL: a call with
     * text follows soon. */
    void        (*peer_status)(void *context, const unsigned char *is_late, char *text, size_t room);

    /* Optional: mark the ranks that have failed. */
    void        (*failed)  (void *context, unsigned char *is_failed);

    /* Optional, after a failure: the live ranks among `ranks` form a new job, numbered in the order of that list.  Each of them
     * calls it with the same list; the other ranks are not needed.  Waits at most timeout_ms.  Requires a quorum: more than
     * half of them, or exactly half including the first.  The old context must still be closed.  Sets the cause of an error in
     * *failure.  If out->is_agree: there is no new job; they agree on out->ranks and on the bitwise AND of their out->flags.  A
     * rank that is not in out->ranks stays out of later results. */
    coll_status (*shrink)  (void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                            coll_failure *failure);

    /* Optional: soon end the communicator on all ranks with COLL_ERR_ABORTED and this text, whatever the program does.  `text`
     * stays valid.  Callable from any thread and from a signal handler.  false: not possible now; fail is called instead. */
    bool        (*abort)   (void *context, const char *text);

    /* Optional: has this peer closed, and has everything it sent arrived?  Then a receive with any_head stays pending; any
     * other one fails.  peer -1: is there such a peer? */
    bool        (*has_left)(const void *context, int peer);

    /* Optional: make a progress that sleeps in another thread return. */
    void        (*wake)    (void *context);

    /* Optional, with wake: a thread of the library may also call the context, one thread at a time, to progress operations in
     * the background. */
    bool        in_background;

    /* Optional, for a virtual clock: its time in nanoseconds since any moment; and the bytes that this rank has just reduced.
     * Without an operating system this is the only clock. */
    int64_t     (*now)     (void *context);
    void        (*charge_reduce)(void *context, size_t length);

    /* Optional: bytes sent and received so far; and a description. */
    void        (*traffic) (const void *context, uint64_t *sent, uint64_t *received);
    const char *(*describe)(const void *context);                         /* "io_uring"                       */

    uint64_t    reserved[4];                                              /* must be 0                        */
} coll_transport;

/* Make a communicator over a transport that the program supplies.  All ranks call it, each with its own context, which
 * coll_free closes.  The struct must outlive the communicator.  transport, rank and size of `config` are ignored.  NULL:
 * all values are taken from the environment. */
COLL_API coll_status coll_init_custom(const coll_transport *transport, void *context, int rank, int size,
                                      coll_comm **out, const coll_config *config);

#endif /* COLL_TRANSPORT_H */
