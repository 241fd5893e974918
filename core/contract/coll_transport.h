/* coll_transport.h - what the library asks of whatever carries its messages.  Public: a program may bring its own.
 *
 * A transport connects ranks 0 .. size-1 and moves messages between them.  It knows bytes and peers; not types, operations
 * or algorithms.  Four functions are required (send, recv, progress, close), the others are optional.
 *
 * The rules:
 *  1. A message is a head of COLL_HEAD_LENGTH bytes followed by `length` bytes (0 is common).  Between two ranks, the
 *     messages of one channel match the receives of that channel in the order in which both were queued; channels are
 *     independent of one another: a message that nobody receives yet must not hold up another channel.
 *  2. Both sides know the length beforehand, and both compute the head.  If what arrives is not byte for byte the head that
 *     the receive expects (and any_head is not set), the receive ends with COLL_ERR_MISMATCH, its head replaced by the one
 *     that came, and the bytes behind it are not read.
 *  3. send and recv never block and never allocate; they may finish the transfer at once.  The caller owns the coll_xfer and
 *     leaves it and its buffer alone from then until status is no longer COLL_PENDING; status is written last.
 *  4. progress(0) moves what can be moved and returns at once.  progress(wait_ms > 0) may sleep that long, but returns early
 *     when something moved.  It may also return early for no reason.
 *     A peer that has closed is an error for the transfers that need it; a receive with any_head only listens, and stays
 *     pending.
 *  5. The first error of the transport ends it: progress then returns that error for ever, and everything pending is
 *     completed with it.  The calls of one context come from one thread at a time, wake and abort excepted.
 *  6. close works in every state, returns soon, and drops what groups there are.
 */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_TRANSPORT_H
#define COLL_TRANSPORT_H

#ifdef __cplusplus
extern "C" {
#endif

enum { COLL_HEAD_LENGTH = 32 };                   /* which call a message belongs to; opaque to a transport   */

enum { COLL_CHANNEL_CALLS = 0, COLL_CHANNEL_MESSAGES = 1, COLL_CHANNEL_COUNT = 2 };

/* One message on its way. */
typedef struct coll_xfer {
    unsigned char head[COLL_HEAD_LENGTH];
    void        *buffer;
    size_t       length;                          /* bytes                                                    */
    int          peer;                            /* never our own rank                                       */
    int          channel;                         /* COLL_CHANNEL_...                                         */
    bool         any_head;                        /* a receive that takes whatever head comes; a send that is of no
                                                     use to a peer that has closed, and then no error         */
    coll_status  status;                          /* COLL_PENDING, then COLL_OK or an error                   */
    size_t       moved;                           /* the transport's own: bytes so far, head included         */
    struct coll_xfer *next;                       /* the transport's own: queue link                          */
    void        *link;                            /* the transport's own: anything                            */
} coll_xfer;

enum { COLL_FAILURE_ROOM = 212 };                 /* bytes, with the 0 at the end                             */

/* Why a communicator ended, the same on all ranks. */
typedef struct coll_failure {
    coll_status status;
    int         rank;                             /* the rank to blame, -1: none                              */
    char        text[COLL_FAILURE_ROOM];          /* "rank 2 at 10.0.0.7:4242 is gone: connection reset by peer"; may
                                                     be empty                                                 */
} coll_failure;

/* Those who go on after a failure. */
typedef struct coll_survivors {
    void *context;                                /* of the new world                                         */
    int   rank, count;                            /* who we are in it, of how many                            */
    int  *ranks;                                  /* what they are called in the old one; room for all of them */
} coll_survivors;

/* A whole collective, offered to the transport. */
typedef struct coll_task {
    const coll_call     *call;                    /* checked, no defaults left in it                          */
    const unsigned char *head;                    /* its fingerprint, equal on ranks that agree               */
    const struct coll__codec *codec;              /* its arithmetic; opaque outside the library               */
    void                *group;                   /* of `group` below; NULL: all ranks                        */
    uint64_t             state[4];                /* the transport's own: zero when the task is first offered */
    int                  ahead;                   /* so many tasks of its group are in front of it (see offload_ahead) */
    signed char          is_finite;               /* COLL_DETECT_OVERFLOW: a transport that has looked at all of the
                                                     result may say 1, or -1 for an infinity or a NaN; 0: has not */
    bool                 is_blocking;             /* its caller does nothing else before it is over           */
} coll_task;

typedef coll_status coll_offload_fn(void *context, coll_task *task, coll_failure *failure);

typedef struct coll_transport {
    const char *name;                                                     /* "tcp"                            */
    coll_status (*send)    (void *context, coll_xfer *xfer);
    coll_status (*recv)    (void *context, coll_xfer *xfer);
    coll_status (*progress)(void *context, int wait_ms);
    void        (*close)   (void *context);

    /* Optional: tell every rank that the communicator has ended because of *cause, and give the one cause on which all
     * agree, which may be an earlier one.  cause NULL: progress failed, what was it?  Waits a bounded time at most. */
    const coll_failure *(*fail)(void *context, const coll_failure *cause);

    /* Optional: take a whole collective where that beats messages.  Called again until it gives something other than
     * COLL_PENDING; COLL_ERR_UNSUPPORTED declines, alike on all ranks, and with the inputs as they were; behind tasks in front
     * of it only at the first call.  Blames are set through `failure`.  COLL_TINY never calls it. */
    coll_offload_fn *offload;

    /* Optional, with offload: so many tasks of a group are offered while one in front of them is pending, in their order, with
     * their place behind it in task->ahead.  COLL_PENDING with state[0] still 0: it has not begun, and nothing behind it is
     * offered.  0: a task is offered when those before it are over. */
    int          offload_ahead;

    /* Optional, with offload: the function that takes calls of the kind, type, operation and group of this task, and takes *bound
     * in place of the context: what does not change from one to the next is looked up once.  NULL: offload does. */
    coll_offload_fn *(*bind)(void *context, const coll_task *task, void **bound);

    /* Optional, with offload: what becomes of this call on `size` ranks, and why, in a phrase?  1: it is taken; 0: it goes by
     * messages; -1: it is refused, with COLL_ERR_UNSUPPORTED.  Alike on all ranks. */
    int         (*can_offload)(const void *context, const coll_call *call, int size, char *why, size_t room);

    /* Optional, with offload: make a group, some ranks whose collectives are offloaded in an order of their own.  All of
     * `ranks`, and no other rank, make it with the same id of a communicator and number of an order there, which is 0 for its own
     * order; `me` is our place among them.  No group with a member in common has the same id and number.  NULL: their collectives
     * go by messages, on all of these ranks alike; one that alone cannot, for lack of memory, ends the transport. */
    void       *(*group)   (void *context, uint64_t id, uint32_t number, const int *ranks, int count, int me);
    void        (*ungroup) (void *context, void *group);

    /* Optional: where memory comes from that other ranks read in place.  From any thread.  NULL: there is none. */
    const struct coll_allocator *(*memory)(void *context);

    /* Optional: on which host a rank lives, any number that is equal for ranks that share one.  Without it: each on its own. */
    int         (*host)    (void *context, int rank);

    /* Optional: at which site that host is, any number that is equal for ranks at one.  Without it: all are at one. */
    int         (*site)    (void *context, int rank);

    /* Optional: this rank has been waiting for a while, in the collective with this head.  All ranks may be waiting for one
     * another in different calls, so that no message ever shows it: whoever hears of two such ranks makes it a failure. */
    void        (*report_stall)(void *context, const unsigned char *head);

    /* Optional: mark the ranks that an offloaded task is waiting for. */
    void        (*mark_stragglers)(const void *context, const coll_task *task, unsigned char *is_late);

    /* Optional: what do the ranks marked in is_late do?  Write what is known of them: "rank 3: outside the library for 40 s".
     * text NULL: that will be asked soon. */
    void        (*peer_status)(void *context, const unsigned char *is_late, char *text, size_t room);

    /* Optional: mark the ranks that are known to have failed. */
    void        (*failed)  (void *context, unsigned char *is_failed);

    /* Optional, after a failure: those of `ranks` who still live make a world of their own, in which they are numbered in the
     * order of that list.  Each of them calls it, with the same list, and it needs nothing of the others.  Waits timeout_ms at
     * most.  Fewer than half of them must not go on, nor a half without the first of the list.  The old context remains to
     * be closed.  An error is blamed in *failure. */
    coll_status (*shrink)  (void *context, const int *ranks, int count, int timeout_ms, coll_survivors *out,
                            coll_failure *failure);

    /* Optional: end the communicator on all ranks with COLL_ERR_ABORTED and this text, which stays, soon, whatever the program
     * does meanwhile.  From any thread, and from a signal handler.  false: not possible now; fail is called instead. */
    bool        (*abort)   (void *context, const char *text);

    /* Optional: has this peer closed, and has everything it sent come in?  A receive with any_head stays pending then; any
     * other one fails.  peer -1: is there such a peer? */
    bool        (*has_left)(const void *context, int peer);

    /* Optional: let a progress that sleeps in another thread return. */
    void        (*wake)    (void *context);

    /* Optional, with wake: the calls of a context may also come from a thread of the library's own, one at a time as ever, so
     * that operations move while the program computes. */
    bool        in_background;

    /* Optional, for a world with a clock of its own: the time there in nanoseconds, from any beginning, and that this rank has
     * just reduced so many bytes.  Without an operating system this is the only clock. */
    int64_t     (*now)     (void *context);
    void        (*charge_reduce)(void *context, size_t length);

    /* Optional: what this transport has moved, and how. */
    void        (*traffic) (const void *context, uint64_t *sent, uint64_t *received);
    const char *(*describe)(const void *context);                         /* "io_uring"                       */
} coll_transport;

/* Make a communicator over a transport that the program supplies.  All ranks call it, each with its own context, which
 * coll_free closes.  The struct must outlive the communicator. */
COLL_API coll_status coll_init_custom(const coll_transport *transport, void *context, int rank, int size,
                                      coll_comm **out);

/* coll_init_custom with a configuration, whose transport, rank and size are ignored.  NULL: as coll_init_custom. */
COLL_API coll_status coll_init_custom_with(const coll_transport *transport, void *context, int rank, int size,
                                           coll_comm **out, const coll_config *config);

#ifdef __cplusplus
}
#endif

#endif /* COLL_TRANSPORT_H */
