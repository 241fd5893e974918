/* coll_mpi_world.h - what a rank over MPI holds: its communicators, its streams, and the operations of MPI in flight.
 *
 * Everything that MPI has been asked for and has not finished is a flight: a request, and beside it what it is about.  The
 * requests lie side by side, so that one MPI_Testsome looks at all of them.  The arrays double when they are full, and so
 * nothing is allocated for a transfer once a program has reached its pace. */
#ifndef COLL_MPI_WORLD_H
#define COLL_MPI_WORLD_H

enum {
    COLL__MPI_EAGER = 3968,                       /* bytes of a head and what comes with it: below the eager limits */
    COLL__MPI_SLOTS = 64,                         /* eager messages on their way out                          */
    COLL__MPI_PIECE = 1 << 30                     /* the longest message                                      */
};

/* Tags: eager messages and bodies of each channel, and what is told beside them. */
enum { COLL__MPI_TAG_EAGER = 0, COLL__MPI_TAG_BODY = COLL_CHANNEL_COUNT, COLL__MPI_TAG_NOTE = 2 * COLL_CHANNEL_COUNT };

typedef enum coll__mpi_mode { COLL__MPI_AUTO, COLL__MPI_NATIVE, COLL__MPI_MESSAGES, COLL__MPI_BLOCKING } coll__mpi_mode;

/* Messages from one peer on one channel. */
typedef struct coll__mpi_stream {
    coll_xfer *first, **end;                      /* receives, in order                                       */
    unsigned char *landing;                       /* where the next eager message lands; NULL: there was no receive yet */
    bool       is_posted;
    uint64_t   sent, received;                    /* eager messages                                           */
    uint64_t   said;                              /* by a peer that has left: how many it has sent            */
} coll__mpi_stream;

/* What ranks tell one another beside the messages. */
typedef enum coll__mpi_word {
    COLL__MPI_REPORT = 1,                         /* to rank 0: this rank has failed, and why                 */
    COLL__MPI_VERDICT,                            /* why all have failed                                      */
    COLL__MPI_WAITING,                            /* to rank 0: the head of the call in which this rank waits */
    COLL__MPI_BYE,                                /* this rank leaves; counts: its eager messages             */
    COLL__MPI_GONE                                /* it leaves a group; counts: the collectives it began there, and its number */
} coll__mpi_word;

typedef struct coll__mpi_note {
    int32_t  word, from;
    uint64_t group, counts[COLL_CHANNEL_COUNT];
    coll_failure failure;
    unsigned char head[COLL_HEAD_LENGTH];
} coll__mpi_note;

/* A note on its way to one or more ranks. */
typedef struct coll__mpi_parcel { int left; coll__mpi_note note; } coll__mpi_parcel;

typedef enum coll__mpi_kind {
    COLL__MPI_SENDS_EAGER, COLL__MPI_SENDS_PART, COLL__MPI_SENDS_NOTE, COLL__MPI_LANDS, COLL__MPI_RECEIVES_PART, COLL__MPI_HEARS
} coll__mpi_kind;

typedef struct coll__mpi_flight {
    coll__mpi_kind kind;
    coll_xfer *x;                                 /* whose part it is; NULL: nobody's any more                */
    int        peer, channel;                     /* LANDS                                                    */
    int        slot;                              /* SENDS_EAGER                                              */
    bool       is_over;
    coll__mpi_parcel *parcel;                     /* SENDS_NOTE                                               */
} coll__mpi_flight;

/* Of a collective: what it takes (coll_mpi_forms.h). */
typedef enum coll__mpi_form { COLL__MPI_IS_NOT, COLL__MPI_IS_BLOCKING, COLL__MPI_IS_OPEN } coll__mpi_form;

/* Some ranks whose collectives MPI may carry out, one at a time (coll_mpi_native.h). */
typedef struct coll__mpi_group {
    struct coll__mpi *mpi;
    struct coll__mpi_group *next;
    uint64_t    id;                               /* of the communicator, ...                                 */
    uint32_t    number;                           /* ... and of the order there                               */
    int         count, me;
    int        *ranks;                            /* in the world; NULL: the same                             */
    MPI_Comm    comm, mother;                     /* for collectives; for the making of others from it, in an order of its own */
    struct coll__mpi_group *parent;               /* from whose mother `comm` is made; NULL: not in this way  */
    struct coll__mpi_group *unmade, *next_unmade; /* those to be made from our mother, in order: the first is under way */
    MPI_Request request;                          /* of `comm` while it is made, then of the collective       */
    bool        is_making, is_running, is_done;   /* making: or waiting for it; done: but not seen by its task */
    int         error;                            /* what MPI has said of the collective, or of `comm`        */
    uint64_t    turn;                             /* collectives begun                                        */
    struct coll__mpi_pledge *pledges;             /* words of all members; NULL: they do not share memory     */
    coll__mpi_form form;                          /* of the collective, and whether all are in place in it    */
    bool        in_place;
    const coll_task *task;                        /* of a rank that waits, until it is begun                  */
    uint64_t   *left;                             /* of each member that has left: the collectives it began, plus 1 */
    int         left_count;
    unsigned char *stage;                         /* memory where the caller's cannot be used                 */
    size_t      stage_length;
    void       *lists;                            /* counts and offsets as MPI wants them                     */
} coll__mpi_group;

/* Word of a group that this rank has not made yet. */
typedef struct coll__mpi_word_of {
    struct coll__mpi_word_of *next;
    uint64_t id, number, began;                   /* of the group; collectives                                */
    int      from;
} coll__mpi_word_of;

typedef struct coll__mpi {
    MPI_Comm    comm;                             /* for messages and notes                                   */
    int         rank, size, local_rank, local_size, site;
    double      share;                            /* of a processor for each rank of the fullest host         */
    bool        is_crowded;                       /* that is less than one                                    */
    bool        is_left, has_seen_off;            /* coll_free has been here; all others have left            */
    bool        owns_mpi;                         /* coll_init has initialised it, and so finalises it        */
    bool        is_finalized;                     /* MPI is no more, and all that it had of us is given back  */
    int         thread_level, keyval;
    pthread_t   thread;                           /* the only one that may call MPI, below MPI_THREAD_SERIALIZED */
    int         mode;                             /* a coll__mpi_mode: COLL_MPI                               */
    int        *homes;                            /* the first rank of each rank's host; behind them, their sites */
    coll__mpi_stream *streams;
    unsigned char *is_gone;                       /* ranks that have left                                     */
    int         gone_count;
    MPI_Request *requests;
    coll__mpi_flight *flights, *landed;
    MPI_Status *statuses;
    int        *indices;
    int         count, room;                      /* of flights                                               */
    unsigned char *slots;
    int         free_slots[COLL__MPI_SLOTS], free_count;
    coll__mpi_note heard;
    unsigned char *reports;                       /* rank 0: the heads in which the others wait               */
    bool        is_settled, is_told;              /* what was pending has ended; the others know of the failure */
    int64_t     gone_at;                          /* when the last one left                                   */
    coll_failure suspicion, failure;
    coll__mpi_group all, *groups, *orphans;       /* orphans: left by us, while MPI is at work for them      */
    coll__mpi_group *pledged;                     /* in whose collective this rank waits that is not begun: coll_mpi_forms.h */
    int         unmade_count;
    coll__mpi_word_of *words;
    int         quiet;                            /* looks since something moved                              */
    int         is_woken;                         /* atomic                                                   */
    uint64_t    bytes_sent, bytes_received;
    char        description[120];
} coll__mpi;

static inline coll__mpi_stream *coll__mpi_stream_of(const coll__mpi *mpi, int peer, int channel)
{
    return &mpi->streams[peer * COLL_CHANNEL_COUNT + channel];
}

/* ---- >>trouble ---- */

/* What MPI says of an error, in a sentence. */
static coll_status coll__mpi_blame(coll_failure *failure, const coll__mpi *mpi, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0, class = MPI_ERR_UNKNOWN;

    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    for (char *at = text; *at; at++) if (*at == '\n') *at = ' ';
    if (class == MPI_ERR_TRUNCATE)
        return coll__blame(failure, COLL_ERR_MISMATCH, mpi->rank, "rank %d: %s got more than it asked for: ranks disagree about "
                           "the call (COLL_MPI=messages says which): %.60s", mpi->rank, what, text);
    return coll__blame(failure, COLL_ERR_SYSTEM, mpi->rank, "rank %d: %s failed: %.140s", mpi->rank, what, text);
}

/* Note what went wrong; progress tells the others. */
static coll_status coll__mpi_suspect(coll__mpi *mpi, const char *what, int code)
{
    return coll__mpi_blame(&mpi->suspicion, mpi, what, code);
}

/* May this thread call MPI at all? */
static bool coll__mpi_may_call(coll__mpi *mpi)
{
    const char *why = NULL;

    if (mpi->is_finalized) why = "MPI has been finalised; free communicators before MPI_Finalize";
    else if (mpi->thread_level < MPI_THREAD_SERIALIZED && !pthread_equal(mpi->thread, pthread_self()))
        why = "MPI was initialised for calls from one thread (MPI_THREAD_FUNNELED), and this is another one";
    if (!why) return true;
    coll__blame(&mpi->suspicion, COLL_ERR_SYSTEM, mpi->rank, "rank %d: %s", mpi->rank, why);
    if (mpi->failure.status == COLL_OK) mpi->failure = mpi->suspicion;
    return false;
}

/* ---- >>flights ---- */

/* Make room for so many flights; the requests move only between calls of MPI. */
static bool coll__mpi_grow(coll__mpi *mpi, int room)
{
    const size_t n = (size_t)room;
    MPI_Request *requests = (MPI_Request *)coll__take_more(coll__like(mpi), mpi->requests, n * sizeof *requests);
    if (requests) mpi->requests = requests;
    coll__mpi_flight *flights = (coll__mpi_flight *)coll__take_more(coll__like(mpi), mpi->flights, n * sizeof *flights);
    if (flights) mpi->flights = flights;
    coll__mpi_flight *landed = (coll__mpi_flight *)coll__take_more(coll__like(mpi), mpi->landed, n * sizeof *landed);
    if (landed) mpi->landed = landed;
    MPI_Status *statuses = (MPI_Status *)coll__take_more(coll__like(mpi), mpi->statuses, n * sizeof *statuses);
    if (statuses) mpi->statuses = statuses;
    int *indices = (int *)coll__take_more(coll__like(mpi), mpi->indices, n * sizeof *indices);
    if (indices) mpi->indices = indices;
    if (!requests || !flights || !landed || !statuses || !indices) return false;
    mpi->room = room;
    return true;
}

/* Where the request of a new flight goes; NULL: no memory, which ends it all.  coll__mpi_fly then counts it. */
static MPI_Request *coll__mpi_board(coll__mpi *mpi)
{
    if (mpi->count < mpi->room || coll__mpi_grow(mpi, 2 * mpi->room)) return &mpi->requests[mpi->count];
    coll__blame(&mpi->suspicion, COLL_ERR_MEMORY, mpi->rank, "rank %d has no memory for a message", mpi->rank);
    return NULL;
}

/* The flight whose request is at the end is under way, if MPI has accepted it. */
static bool coll__mpi_fly(coll__mpi *mpi, const coll__mpi_flight *flight, const char *what, int code)
{
    COLL__ASSERT(mpi->count < mpi->room, "%s has no room: %d operations of %d", what, mpi->count, mpi->room);
    if (code != MPI_SUCCESS) return coll__mpi_suspect(mpi, what, code), false;
    mpi->flights[mpi->count++] = *flight;
    return true;
}

#endif /* COLL_MPI_WORLD_H */
