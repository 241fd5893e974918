/* coll_mpi_world.h - the state of a rank over MPI: its communicators, its streams, and the pending operations of MPI.
 *
 * Every operation of MPI that is not complete is a flight: a request, and its description.  The requests are contiguous, so that
 * one MPI_Testsome tests all of them.  The arrays double when they are full, so a program in a steady state allocates nothing for
 * a transfer. */
#ifndef COLL_MPI_WORLD_H
#define COLL_MPI_WORLD_H

enum {
    COLL__MPI_EAGER = 3968,                       /* bytes of a head and its body: below the eager limits     */
    COLL__MPI_SLOTS = 64,                         /* eager messages being sent                                */
    COLL__MPI_PIECE = 1 << 30                     /* bytes of the longest message                             */
};

/* Tags: eager messages and bodies of each channel, and notes. */
enum { COLL__MPI_TAG_EAGER = 0, COLL__MPI_TAG_BODY = COLL_CHANNEL_COUNT, COLL__MPI_TAG_NOTE = 2 * COLL_CHANNEL_COUNT };

typedef enum coll__mpi_mode { COLL__MPI_AUTO, COLL__MPI_NATIVE, COLL__MPI_MESSAGES, COLL__MPI_BLOCKING } coll__mpi_mode;

/* Messages from one peer on one channel. */
typedef struct coll__mpi_stream {
    coll_xfer *first, **end;                      /* receives, in order                                       */
    unsigned char *landing;                       /* buffer of the next eager message; NULL: no receive yet   */
    bool       is_posted;
    uint64_t   sent, received;                    /* eager messages                                           */
    uint64_t   said;                              /* number sent by a peer that has left                      */
} coll__mpi_stream;

/* What ranks send besides messages. */
typedef enum coll__mpi_word {
    COLL__MPI_REPORT = 1,                         /* to rank 0: this rank has failed, and why                 */
    COLL__MPI_DECISION,                           /* why all have failed                                      */
    COLL__MPI_WAITING,                            /* to rank 0: the head of the call in which this rank waits */
    COLL__MPI_BYE,                                /* this rank leaves; counts: its eager messages             */
    COLL__MPI_GONE                                /* it leaves a group; counts: collectives begun there       */
} coll__mpi_word;

typedef struct coll__mpi_note {
    int32_t  word, from;
    uint64_t group, counts[COLL_CHANNEL_COUNT];
    coll_failure failure;
    unsigned char head[COLL_HEAD_LENGTH];
} coll__mpi_note;

typedef enum coll__mpi_kind {
    COLL__MPI_SENDS_EAGER, COLL__MPI_SENDS_PART, COLL__MPI_SENDS_NOTE, COLL__MPI_LANDS, COLL__MPI_RECEIVES_PART, COLL__MPI_HEARS
} coll__mpi_kind;

typedef struct coll__mpi_flight {
    coll__mpi_kind kind;
    coll_xfer *x;                                 /* transfer of this part; NULL: ended                       */
    int        peer, channel;                     /* LANDS                                                    */
    int        slot;                              /* SENDS_EAGER                                              */
    bool       is_over;
    coll__mpi_note *note;                         /* SENDS_NOTE                                               */
} coll__mpi_flight;

/* The form of a collective (coll_mpi_forms.h). */
typedef enum coll__mpi_form { COLL__MPI_IS_NOT, COLL__MPI_IS_BLOCKING, COLL__MPI_IS_OPEN } coll__mpi_form;

/* Some ranks whose collectives MPI may carry out, one at a time (coll_mpi_native.h). */
typedef struct coll__mpi_group {
    struct coll__mpi *mpi;
    struct coll__mpi_group *next;
    uint64_t    id;                               /* of the communicator                                      */
    int         count, me;
    int        *ranks;                            /* in the world; NULL: the same; behind the group           */
    MPI_Comm    comm;                             /* for collectives                                          */
    MPI_Request request;                          /* of the collective                                        */
    bool        is_running, is_done;              /* done: but not seen by its task                           */
    int         error;                            /* MPI's code of the collective                             */
    uint64_t    turn;                             /* collectives begun                                        */
    struct coll__mpi_intent *intents;             /* words of all members; NULL: they do not share memory     */
    coll__mpi_form form;                          /* of the collective, and whether all are in place in it    */
    bool        in_place;
    const coll_task *task;                        /* of a rank that waits, until it is begun                  */
    uint64_t   *left;                             /* by member: 0, or the collectives it began before it left, plus 1 */
    int         left_count;
    unsigned char *stage;                         /* if the caller's memory cannot be used                    */
    size_t      stage_length, result_length;      /* of its room; of the result in it                         */
    void       *lists;                            /* counts and offsets in MPI's types                        */
} coll__mpi_group;

typedef struct coll__mpi {
    MPI_Comm    comm, origin;                     /* for messages and notes; for creating others from it      */
    int         rank, size, local_rank, local_size, site;
    double      share;                            /* of a processor for each rank of the fullest host         */
    bool        is_crowded;                       /* that is less than one                                    */
    bool        is_left, has_seen_off;            /* coll_free was called; all others have left               */
    bool        owns_mpi;                         /* coll_init has initialized MPI, so coll_free finalizes it */
    bool        is_finalized;                     /* MPI is finalized, and has released all of this           */
    int         thread_level, keyval;
    pthread_t   thread;                           /* the only one that may call MPI, below MPI_THREAD_SERIALIZED */
    int         mode;                             /* a coll__mpi_mode: COLL_MPI                               */
    int        *homes;                            /* the first rank of each rank's host; behind them, their sites */
    coll__mpi_stream *streams;
    unsigned char *has_left;                      /* ranks that have left                                     */
    int         gone_count;
    MPI_Request *requests;
    coll__mpi_flight *flights;
    MPI_Status *statuses;
    int        *indices;
    int         count, room;                      /* of flights                                               */
    unsigned char *slots;
    int         free_slots[COLL__MPI_SLOTS], free_count;
    coll__mpi_note heard;
    unsigned char *reports;                       /* rank 0: heads of the calls in which others wait          */
    bool        is_settled, is_known;             /* what was pending has ended; the others have the failure  */
    int64_t     gone_at;                          /* when a rank last left                                    */
    coll_failure suspicion, failure;
    coll__mpi_group all, *groups, *orphans;       /* orphans: left, with incomplete MPI operations            */
    coll__mpi_group *committed;                   /* this rank waits in its collective, which has not begun: coll_mpi_forms.h */
    int         quiet;                            /* tests since something moved                              */
    int         is_woken;                         /* atomic                                                   */
    uint64_t    bytes_sent, bytes_received;
    char        description[120];
} coll__mpi;

static inline coll__mpi_stream *coll__mpi_stream_of(const coll__mpi *mpi, int peer, int channel)
{
    return &mpi->streams[peer * COLL_CHANNEL_COUNT + channel];
}

/* ---- >>errors ---- */

/* A sentence on an error of MPI. */
static coll_status coll__mpi_failed(coll_failure *failure, const coll__mpi *mpi, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0, class = MPI_ERR_UNKNOWN;

    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    for (char *at = text; *at; at++) if (*at == '\n') *at = ' ';
    if (class == MPI_ERR_TRUNCATE)
        return coll__set_failure(failure, COLL_ERR_MISMATCH, mpi->rank,
                                 "rank %d: %s got more than it asked for: ranks disagree about "
                                 "the call (COLL_MPI=messages says which): %.60s", mpi->rank, what, text);
    return coll__set_failure(failure, COLL_ERR_SYSTEM, mpi->rank, "rank %d: %s failed: %.140s", mpi->rank, what, text);
}

/* Records an error; progress sends it to the others. */
static coll_status coll__mpi_suspect(coll__mpi *mpi, const char *what, int code)
{
    return coll__mpi_failed(&mpi->suspicion, mpi, what, code);
}

/* Returns whether this thread may call MPI. */
static bool coll__mpi_may_call(coll__mpi *mpi)
{
    const char *why = NULL;

    if (mpi->is_finalized) why = "MPI has been finalised; free communicators before MPI_Finalize";
    else if (mpi->thread_level < MPI_THREAD_SERIALIZED && !pthread_equal(mpi->thread, pthread_self()))
        why = "MPI was initialised for calls from one thread (MPI_THREAD_FUNNELED), and this is another one";
    if (!why) return true;
    coll__set_failure(&mpi->suspicion, COLL_ERR_SYSTEM, mpi->rank, "rank %d: %s", mpi->rank, why);
    if (mpi->failure.status == COLL_OK) mpi->failure = mpi->suspicion;
    return false;
}

/* ---- >>flights ---- */

/* Memory for so many flights; the requests move only between calls of MPI. */
static bool coll__mpi_grow(coll__mpi *mpi, int room)
{
    const size_t n = (size_t)room;
    MPI_Request *requests = (MPI_Request *)coll__take_more(coll__like(mpi), mpi->requests, n * sizeof *requests);
    if (requests) mpi->requests = requests;
    coll__mpi_flight *flights = (coll__mpi_flight *)coll__take_more(coll__like(mpi), mpi->flights, n * sizeof *flights);
    if (flights) mpi->flights = flights;
    MPI_Status *statuses = (MPI_Status *)coll__take_more(coll__like(mpi), mpi->statuses, n * sizeof *statuses);
    if (statuses) mpi->statuses = statuses;
    int *indices = (int *)coll__take_more(coll__like(mpi), mpi->indices, n * sizeof *indices);
    if (indices) mpi->indices = indices;
    if (!requests || !flights || !statuses || !indices) return false;
    mpi->room = room;
    return true;
}

/* Starts a flight: sends, or receives.  Returns false: MPI has not accepted it, or no memory, which is a failure. */
static bool coll__mpi_fly(coll__mpi *mpi, const coll__mpi_flight *flight, void *buffer, size_t length, int peer, int tag)
{
    const bool sends = flight->kind < COLL__MPI_LANDS;

    if (mpi->count == mpi->room && !coll__mpi_grow(mpi, 2 * mpi->room)) {
        coll__set_failure(&mpi->suspicion, COLL_ERR_MEMORY, mpi->rank, "rank %d has no memory for a message", mpi->rank);
        return false;
    }
    MPI_Request *const request = &mpi->requests[mpi->count];
    const int code = sends ? MPI_Isend(buffer, (int)length, MPI_BYTE, peer, tag, mpi->comm, request)
                           : MPI_Irecv(buffer, (int)length, MPI_BYTE, peer, tag, mpi->comm, request);
    if (code != MPI_SUCCESS) return coll__mpi_suspect(mpi, sends ? "MPI_Isend" : "MPI_Irecv", code), false;
    mpi->flights[mpi->count++] = *flight;
    return true;
}

#endif /* COLL_MPI_WORLD_H */
