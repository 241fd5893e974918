/* coll_comm.h - a communicator and its requests: what they hold, how a call is named, how the first failure ends all.
 *
 *   session      what all communicators of one coll_init share: the transport, the messages, the fate
 *   comm       some ranks of it, numbered from 0
 *   order      collectives that are carried out one after the other: each communicator has one, and each prepared call
 *   request    one operation; a collective that the engine runs has an execution
 *   carrier    who carries a call out; that of an extended communicator carries all of its calls
 */
#ifndef COLL_COMM_H
#define COLL_COMM_H

typedef struct coll__carrier coll__carrier;
typedef struct coll__message coll__message;       /* coll_match.h                                             */
typedef struct coll__messages coll__messages;     /* coll_notes.h                                             */
typedef struct coll__prepared coll__prepared;     /* coll_prepared.h                                          */
typedef struct coll__strided coll__strided;       /* coll_strides.h                                           */
typedef struct coll__by_key coll__by_key;         /* coll_by_key.h                                            */

/* ---- >>execution: the state of a collective that runs through the engine (coll_execution.h, coll_engine.h) ---- */

/* What a message carries: the span of a step, or one block of it. */
typedef struct coll__cargo {
    bool       is_send;
    bool       is_packed;                         /* for this message, or unpacked from it                    */
    coll__span span;
    size_t     at;                                /* bytes behind the base of the place from which it goes, or to which it
                                                     comes; COLL__ELSEWHERE: to or from staging memory        */
} coll__cargo;

/* Where a block lies: so many bytes behind the base of its place. */
typedef struct coll__spot { coll__place place; size_t at; } coll__spot;

/* A block that a round makes out of others: a copy of one, or a fold. */
typedef struct coll__made {
    coll__spot to;
    size_t     count, index;                      /* elements; the first one's number in its vector           */
    int        from;                              /* of so many spots: the next ones of the stage             */
} coll__made;

/* A round of one slice on its way. */
typedef struct coll__stage {
    int        xfer_count;                        /* messages of this round                                   */
    int        finished;                          /* so many from the front are known to be done              */
    int        copies, made_count;                /* blocks to be made: copies, and with those that are folded */
    bool       is_kept;                           /* what is here serves the same round of another call       */
    size_t     staged;                            /* bytes of staging in use                                  */
    coll_xfer *xfers;
    coll__cargo *cargo;                           /* cargo[i]: what xfers[i] carries                          */
    coll__made *made;                             /* copies first                                             */
    coll__spot *spots;                            /* of what they are made, in that order                     */
    unsigned char *base[COLL__PLACES], *staging;
} coll__stage;

/* Where the blocks of a buffer lie. */
typedef enum coll__shape_kind {
    COLL__ONE,                                    /* one block, whatever its number                           */
    COLL__EQUAL,                                  /* blocks of `count` elements                               */
    COLL__CUT,                                    /* `count` elements in `blocks` nearly equal parts          */
    COLL__LISTED                                  /* as counts and offsets say; with types in bytes           */
} coll__shape_kind;

typedef struct coll__layout {
    coll__shape_kind kind;
    unsigned char *base;
    int    blocks;                                /* the circle of block numbers                              */
    size_t count;
    int    group_bits;                            /* parts begin at multiples of 2^group_bits of a block      */
    const coll__shares *shares;                   /* by which it is cut; NULL: evenly                         */
    const size_t *counts, *offsets;
    const coll_type *types;
} coll__layout;

typedef struct coll__execution {
    coll__choice choice;
    int     rounds;
    coll__layout input, result;
    const coll__layout *vector;                   /* whose blocks WORK and PART hold values of                */
    size_t  longest;                              /* elements of its longest block                            */
    long    slices, lag;                          /* see coll_engine.h                                        */
    long    ticks, posted, done;
    int     steps, moved, made, from;             /* of the busiest round: steps, and blocks (coll__round)    */
    size_t  moved_in_all;                         /* blocks, in all rounds                                    */
    int     slots[COLL__PLACES];                  /* of WORK and PART                                         */
    size_t  work_slot, part_slot;                 /* bytes of a slot                                          */
    int     stage_count;
    coll__stage *stages;                          /* of the slices on their way; is_cached: of all rounds       */
    bool    is_cached;                            /* its tables are the order's, for the next one like it     */
    bool    is_chosen_before;                     /* its choice is that of a call that is cached              */
    bool    is_declined;                          /* by rounds: planned, and not begun                        */
    void   *scratch;
    coll__source *sources;
    coll__step *list;                             /* the steps of the round that is being posted              */
    uint64_t  *peers;                             /* of every round, then of all behind it (coll_abreast.h); NULL: not known */
    bool       has_peers;                         /* they have been asked for                                 */
} coll__execution;

enum { COLL__NAME_CACHED = 24 };                  /* bytes of the name of an algorithm                        */

/* What an order has made of a call, for the calls like it: the choice of the tuner; and of a short one the whole execution, its
 * tables in memory of their own. */
typedef struct coll__cached {
    coll_call  call;                              /* kind 0: none                                             */
    double     elements;                          /* of all blocks: lists of counts are the caller's          */
    char       algorithm[COLL__NAME_CACHED];      /* that it names, or ""                                     */
    unsigned   version;                           /* of the numbers by which it was chosen                    */
    coll__choice choice;
    bool       has_execution;
    coll__execution execution;
    void      *memory;                            /* of its tables                                            */
    size_t     length;
    unsigned   arenas;                            /* as its workspace counts them: its values lie in the last */
} coll__cached;

/* Memory for a collective of an order while it runs, which keeps what it has made for the next ones. */
typedef struct coll__workspace {
    void     *arena;                              /* of the running one                                       */
    size_t    arena_length;
    unsigned  arenas;                             /* that there have been                                     */
    coll__cached *cached[COLL__CACHED];           /* of the last calls that differ; NULL: no such call yet    */
    unsigned  cached_next;                        /* the oldest                                               */
    coll__execution execution;                    /* of one that is not cached                                */
} coll__workspace;

/* ---- >>request ---- */

/* From a first byte to behind a last one. */
typedef struct coll__bounds { uintptr_t from, end; } coll__bounds;

/* The memory that a call reads and writes. */
typedef struct coll__touched {
    bool         is_known;
    coll__bounds reads, writes;
} coll__touched;

struct coll_request {
    coll_comm   *comm;                            /* NULL once the communicator is freed                      */
    coll_request *next;                           /* in the queue of its order                                */
    struct coll__order *order;                    /* NULL: a message                                          */
    coll_call    call;
    coll_status  status;
    bool         is_started, is_prepared;
    bool         is_over;                         /* but for its turn to end, behind others of its order      */
    unsigned char workspace;                      /* of its order: which                                      */
    bool         is_blocking;                     /* its caller does not get it                               */
    bool         is_known;                        /* not running, as far as the program knows: it has been told of the end,
                                                     or never started it                                      */
    coll_status *awaited;                         /* what its end makes COLL_OK (coll_wait.h), or NULL        */
    int64_t      tested_at;                       /* when a test first found it running; 0: none has          */
    bool         has_head;                        /* the fingerprint is that of a call like this one          */
    bool         ends_early;                      /* its history grows with it                                */
    uint32_t     sequence;
    uint64_t     record;                          /* the observer's own; 0 in the beginning                   */
    unsigned     graph_version;                   /* of the communicator's graph when the call was checked    */
    unsigned char head[COLL_HEAD_LENGTH];
    coll__codec  codec;
    const uint64_t *history;                      /* that goes into the fingerprint: its order's, or none     */
    coll__touched touched;                        /* where its buffers are, once that has been asked for      */
    size_t      *offsets;                         /* ours, where the caller gave none; and what is made of the input */
    const void  *input;                           /* with a residual: the caller's, of which call.send is made */
    coll_task    task;                            /* when the transport takes the whole call                  */
    const coll__carrier *carrier;
    void        *carried;                         /* the carrier's own                                        */
    coll__execution  *execution;                  /* when the engine runs it: one that is cached, or the workspace's own */
    coll__message *sending, *receiving;           /* send, recv, sendrecv                                     */
    int          got_source, got_tag;
    size_t       got_count;
    coll_request *whole;                          /* of which this is a part; NULL: of none                   */
    void       (*done)(coll_request *whole, coll_request *part, coll_status status);      /* its end is told; NULL: to nobody */
    coll__prepared *prepared;                     /* coll_prepare: its own order                              */
    const coll__choice *way;                      /* decided already; NULL: the tuner is asked                */
    coll__strided *strided;                       /* what the caller said of rows; NULL: nothing              */
    bool         has_overflow;                    /* COLL_DETECT_OVERFLOW: its result has an infinity or a NaN */
    struct coll__pool *pool;                      /* whose its memory is; the last field                      */
};

/* Memory of requests (coll_pool.h). */
typedef struct coll__pool {
    coll_request *kept;                           /* by who is inside; linked by `next`                       */
    coll_request *freed;                          /* atomic: by anybody; coll__pool_closed: the session is gone */
    size_t  count;                                /* requests that have memory of this pool, in use or not    */
    int64_t left;                                 /* atomic: of those in use when the session ended           */
} coll__pool;

/* ---- >>carrier, extension ---- */

enum {
    COLL__AT_CALL = 1,                            /* it starts where it is called, whatever is in front of it, and names
                                                     itself; the others start in front of their order         */
    COLL__AS_A_WHOLE = 2,                         /* by somebody else: a look at it is cheap                  */
    COLL__OWNER_ONLY = 4,                         /* it is looked at by threads of the program only           */
    COLL__WAKES_NOBODY = 8                        /* its end ends no sleep in the transport                   */
};

/* Who carries a call out: the engine in rounds, the transport as a whole, ... (coll_carriers.h).  A call goes to the first of the
 * session's carriers that takes it, and where that one declines when it starts, to the next.  Other errors of start and advance
 * are the end of the communicator, which they have brought about. */
struct coll__carrier {
    const char *name;
    unsigned traits;
    bool        (*takes)  (const coll_request *r);        /* NULL: whatever it is                             */
    coll_status (*bind)   (coll_request *r);      /* make a checked one ready; an error has a sentence.  NULL: it is */
    coll_status (*start)  (coll_request *r);      /* COLL_PENDING: it goes on with advance, at once; COLL_OK: it is over;
                                                     COLL_ERR_UNSUPPORTED: declined, with nothing sent        */
    coll_status (*advance)(coll_request *r);      /* one that was COLL_PENDING                                */
    void (*late)   (const coll_request *r, unsigned char *is_late);   /* mark whom it waits for; NULL: it does not know */
    bool     (*passes)(const coll_request *r);    /* will it decline?  NULL: that is not known before         */
    uint64_t (*later)(const coll_request *r);     /* of one that has started: with whom it has still to queue messages
                                                     (coll_abreast.h).  NULL: it has its order to itself      */
    void (*unbind) (coll_request *r);             /* it does not start again; NULL: there is nothing to free  */
    void (*end)    (coll__session *session, coll_status status);  /* end what is in no order; NULL: nothing is */
    bool (*explain)(coll_request *r, char *text, size_t room);        /* false: it would decline              */
};

/* Where no two collectives run at the same time nobody asks for it. */
#define COLL__LATER(later) (COLL_ABREAST > 1 ? later : NULL)

/* What makes a communicator one for other buffers than those in the memory of this process.  It carries its calls, messages and
 * lists too; the others carry what the ranks have to tell one another beside that (is_by_host). */
struct coll__extension {
    const char *name;
    const coll__carrier *carrier;                 /* takes every call                                         */

    /* Extend `child`, all of whose ranks call this, as `parent` is. */
    coll_status (*derive)(coll_comm *parent, coll_comm *child);

    void (*end)   (coll_comm *comm);              /* the session has failed: let go of what is running        */
    void (*close) (coll_comm *comm);
    void (*opened)(coll__session *session);       /* set `inspect`, if there is a need; NULL: there is none   */
};

/* ---- >>order, communicator, session ---- */

/* Spaces of keys, by which messages beside COLL_CHANNEL_CALLS find their receivers (coll_messages.h). */
typedef enum coll__space { COLL__SPACE_USER, COLL__SPACE_CALLS, COLL__SPACE_CREATE } coll__space;

typedef struct coll__order {
    coll_comm *comm;
    struct coll__order *next;                     /* in the session's list of those with something to do      */
    bool      is_active;                          /* is in it                                                 */
    bool      is_keyed;                           /* by keys, not on COLL_CHANNEL_CALLS                       */
    coll__space space;
    uint64_t  number;                             /* 0: the communicator's own; otherwise of a prepared call; of
                                                     COLL__SPACE_CREATE a hash                                */
    const coll__numbers *numbers;                 /* by which its algorithms are chosen: the communicator's, or those
                                                     of the time when the call was prepared                   */
    void     *group;                              /* of the transport; NULL: all ranks                        */
    uint64_t  history;                            /* of its calls that end early on some ranks, by messages: a hash */
    coll_request *queue, **queue_end;             /* the first one is running; some behind it may be (coll_abreast.h) */
    uint64_t  ahead;                              /* while one behind it moves on: with whom those in front of that one have
                                                     still to queue messages                                  */
    int       place;                              /* and how many these are                                   */
    bool      rests;                              /* those behind the first have nothing to do before that one is over, or
                                                     another one comes                                        */
    coll__workspace *workspaces[COLL__ABREAST];   /* NULL: not needed so far                                  */
    coll_comm *intra, *inter;                     /* of hierarchical collectives (coll_hierarchy.h): the ranks of our host; one
                                                     of each host.  NULL: not needed so far, or never         */
} coll__order;

/* What the progress thread sleeps for (coll_background.h). */
typedef enum coll__background_wait { COLL__FOR_A_NAP, COLL__FOR_A_START, COLL__FOR_A_DROP } coll__background_wait;

typedef struct coll__background {
    bool      is_wanted;                          /* by the configuration, and the transport has what it takes */
    bool      has_thread, is_stopping;
    coll__thread_id thread;
    coll__cond  bell;
    coll__background_wait waits;
    int64_t   nap;                                /* ns that a request is left to the program's own threads   */
    unsigned  starts;                             /* of non-blocking operations, so far                       */
} coll__background;

/* Why a session ended: a coll_failure.  Without an operating system there are no sentences, and it has room for none. */
#if COLL__HAS_OS
typedef coll_failure coll__cause;
#else
typedef struct coll__cause { coll_status status; int rank; char text[4]; } coll__cause;
#endif

/* Who looks on: the flight recorder, and what moves operations on in the background.  The engine works without; short calls that
 * the transport carries out at once are not told of. */
typedef struct coll__observer {
    void (*begin) (coll_request *r);                              /* it is launched: its head is written      */
    void (*end)   (const coll_request *r, coll_status status);    /* it ends; soon it may be freed            */
    void (*failed)(const coll__session *session);                 /* all is over: nothing has been ended yet  */
    void (*idle)  (coll__session *session);                       /* its holder leaves; the lock is held      */
} coll__observer;

/* What a session has learned from its yields (coll_progress.h). */
typedef struct coll__yields {
    unsigned waits, slow_at;                      /* that have spun so far; how many, at the last slow yield  */
    int      slow;                                /* slow yields so far, each soon after the one before       */
    int      sleep_ms;                            /* for how long waits slept the last time; 0: not lately    */
    int64_t  sleep_until;                         /* until then every wait sleeps at once; 0: none does       */
} coll__yields;

/* What coll_shrink has made of a rank. */
typedef enum coll__survival { COLL__NOT_LISTED, COLL__LOST, COLL__GOES_ON } coll__survival;

/* Looking after those that one waits for. */
#define COLL__IF_WATCH(function) (COLL__IS_WHOLE ? function : NULL)

/* What this rank does.  Other threads read it, in whole words that are atomic each by itself; `turn` changes whenever the others
 * do. */
typedef struct coll__doing {
    uint64_t turn;
    uint64_t inside;                              /* > 0: waits in the call `now`                             */
    uint64_t now[COLL_HEAD_LENGTH / 8], last[COLL_HEAD_LENGTH / 8];   /* last: the collective that ended last  */
} coll__doing;

/* A communicator that a peer has freed, after it had started so many collectives in it. */
typedef struct coll__gone {
    struct coll__gone *next;
    int      peer;
    uint32_t sequence;
    uint64_t comm;
    bool     is_sure;                             /* nothing that it sent before is on its way any more       */
} coll__gone;

struct coll__session {
    const coll_transport *transport;
    void *context;
    int   rank, size, local_rank, local_size;
    int   processors;                             /* of this host, that its ranks may use                     */
    double share;                                 /* of a processor that a rank has on the fullest host; the same on all ranks */
    unsigned char *guard;                         /* *guard = 0: this is a forked child                       */
    int   spin_us, stall_timeout_ms, start_timeout_ms;
    bool  is_crowded;                             /* ranks share processors: yield between looks              */
    coll__yields yields;
    bool  runs_operation;                         /* without an operating system: one of the program's runs   */
    bool  offloads_all;                           /* the transport takes collectives of all ranks             */
    bool  is_synchronous;                         /* every send waits for its receive                         */
    const coll__internals *internals;             /* the transport's                                          */
    bool  has_membarrier;                         /* the kernel                                               */
    const coll__carrier *carriers;                /* in the order in which they are asked; the last one takes any call */
    int   carrier_count;
    const coll__observer *observer;               /* NULL: nobody                                             */
    coll__log  log;
    const char *forced[COLL__FORCED_KINDS];       /* COLL_ALGORITHM, by kind; in forced_text                  */
    char  forced_text[COLL__FORCED_ROOM];
    coll__cause failure;                          /* status COLL_OK: healthy                                  */
    char  dump[COLL__DUMP_ROOM];                  /* where to write what this rank was doing when it fails; "": nowhere */
    int   generation;                             /* how often this has been shrunk                           */
    unsigned char *survival;                      /* of each rank, when it was shrunk: coll__survival; NULL: it was not */
    int           *listed;                        /* the list of a coll_shrink, and room for who is left of it */
    int            listed_count;
    coll_comm     *successor;                     /* of that list, where a coll_shrink has failed since; NULL: none */
    coll__messages *messages;                     /* NULL: none so far                                        */
    const coll__by_key *by_key;                   /* with COLL__ON_DEMAND; NULL: no call has needed it        */
    coll__pool *pool;                             /* memory of requests; NULL: none has been made so far      */
    coll__order *orders;                          /* with something to do                                     */
    coll_comm   *comms;
    uint64_t  named;                              /* communicators that this rank has named (coll_groups.h)   */
    coll__lock comms_lock;                        /* guards `comms`, and the next three, which other threads read */
    uint32_t  comms_turn;                         /* how often they have changed                              */
    int       deriving;                           /* calls under way that make communicators                  */
    bool      lingers;                            /* something sent in a communicator that is freed is still to go */
    coll__gone *gone;                             /* communicators that peers have freed                      */
    unsigned  finished, told;                     /* requests so far; when the followers last heard of it     */
    int       silent;                             /* requests under way whose end ends no sleep               */
    const coll__extension *extension;             /* of this program, which communicators may have            */
    const char *(*inspect)(const coll__session *session, const void *at);  /* why this process cannot read there; NULL: it can.
                                                     NULL in its place: nobody need ask                       */
    void    (*inspector)(void);                   /* its own                                                  */
    /* several threads, each with a communicator of its own (coll_progress.h) */
    bool  is_shared;                              /* atomic: another thread may be inside; who enters takes the session */
    bool  has_many;                               /* there has been more than one communicator                */
    coll__lock lock;                         /* guards the rest                                          */
    coll__cond  changed;
    bool  is_held;                                /* a thread is inside                                       */
    unsigned visits;                              /* how often the program's threads have taken it            */
    int   entrants, followers;                    /* threads that want to start something; that wait for the holder */
    coll__background background;
    coll__bell bell;                              /* of coll_fd; none as long as nobody has asked for it      */
    int   is_fd_rung;                             /* atomic: it is readable                                   */
    int   abort_claimed, abort_wanted;            /* atomic: somebody writes abort_text; it is written        */
    char  abort_text[COLL__ABORT_ROOM];
    coll__doing doing;                            /* what this rank does, for others to read                  */
    uint32_t  made_calls;                         /* in the communicators of all ranks that are freed: collectives, */
    uint64_t  made_history;                       /* and a sum of their histories                             */
    int64_t  began_at;                            /* the last collective, by the observer's clock             */
    int64_t  ended_at;                            /* the last one, if others may have ended with it; 0: none have */
    int64_t  started_at;                          /* the last one that did not end at once                    */
    unsigned burst;                               /* how many followed one another before that                */
    unsigned tests;                               /* that found something running                             */
    int64_t  freed_at;                            /* when a test is to ask who has freed communicators        */
};

/* May another thread be inside? */
static inline bool coll__is_shared(const coll__session *session)
{
    return COLL__MANY_THREADS && __atomic_load_n(&session->is_shared, __ATOMIC_ACQUIRE);
}

/* The algorithm that COLL_ALGORITHM names for a kind; NULL: none. */
static inline const char *coll__forced(const coll__session *session, coll_kind kind)
{
    return COLL__FORCED_KINDS > 1 ? session->forced[kind] : NULL;
}

enum { COLL__SPIN_US = 50, COLL__SPIN_CROWDED_US = 10 };      /* before sleeping; with more ranks than processors */

/* Who may be inside a call on a communicator (coll_enter.h). */
typedef struct coll__door {
    int       is_taken, is_claimed;
    const char *owner;                            /* the mark of `thread`, if it may take the short way       */
    int       hands;                              /* how often it has changed them                            */
    coll__thread_id thread;                             /* the one that was inside last: it may run the caller's operations */
    unsigned char inside[COLL__HANDS_MOST];       /* by the short way: one for each owner                     */
} coll__door;

/* The plan of a kind of call (coll_plan.h): what is settled of its last plain call. */
typedef struct coll__plan {
    bool      is_made;
    size_t    most;                               /* elements that do not go beyond memory                    */
    coll_offload_fn *start;                       /* the transport's, which takes it as a whole; NULL: it goes by an order,
                                                     or its wire has another type                             */
    void     *bound;                              /* what it takes in place of the context                    */
    const coll__carrier *carrier;                 /* that takes it, if the transport does not at once         */
    coll_request request;                         /* of blocking calls, with its arithmetic, fingerprint and task */
} coll__plan;

/* Where plans are not kept, blocking calls of all kinds share the request of one. */
enum { COLL__PLAN_PLACES = COLL__PLANS ? COLL__KIND_COUNT : 1 };

static inline unsigned coll__plan_place(coll_kind kind) { return COLL__PLANS ? (unsigned)kind : 0; }

struct coll_comm {
    int   rank, size;
    coll__session *session;
    unsigned char *guard;                         /* the session's                                            */
    coll_comm *next;                              /* in the session                                           */
    coll_comm **owner;                            /* where coll_spawn keeps it, to free it; NULL: the program does */
    int  *members;                                /* what our ranks are called in the session; NULL: the same */
    uint64_t id;                                  /* 0: of coll_init; no other communicator of the session has it */
    uint32_t mark;                                /* a hash of it, in fingerprints                            */
    const coll__extension *extension;             /* NULL: buffers are in the memory of this process          */
    void *extended;                               /* the extension's own                                      */
    bool  is_by_host;                             /* the call that is being made is as if there were none     */
    coll__topology *topology;                     /* who shares a host; NULL: nobody, or all of us            */
    bool  has_topology;                           /* it has been looked at                                    */
    coll__door door;
    bool  is_holder;                              /* and it holds the session                                 */
    bool  is_leaving;                             /* coll_free is at work                                     */
    bool  hears_all;                              /* we listen for messages of every member                   */
    uint32_t sequence;                            /* collectives started so far                               */
    uint32_t prepare_count;
    uint64_t overflows;                           /* calls with COLL_DETECT_OVERFLOW that have found one      */
    char  error[COLL__SENTENCE_ROOM];             /* what the last call that failed has to say, and ...       */
    char  ending[COLL__SENTENCE_ROOM];            /* ... what has ended the communicator, at a time of its own */
    union {
        const char *sentence;                     /* atomic: the later one; NULL: neither is written          */
        coll_status told;                         /* with COLL_NO_TEXT: the status whose name is the sentence */
    };
    const coll_request *waiting;                  /* the one that a caller waits for                          */
    const void *watch;                            /* atomic: the wait for one of several that is inside (coll_wait.h) */
    coll_comm *beside;                            /* the next one that it is inside of                        */
    bool  is_chief;                               /* the first one of its session there                       */
    coll__order main;
    void *recorder;                               /* the observer's own: it is freed with the communicator    */
    coll__prepared *prepared;                     /* all that are not freed                                   */
    coll__graph graph;
    int  *graph_lists;
    unsigned graph_version;                       /* how often it has been replaced                           */
    coll__plan *plans[COLL__PLAN_PLACES];         /* of each kind; NULL: it was not called so far             */
    coll__plan *others[COLL__PLAN_PLACES];        /* of its calls that do not calculate plainly: for their checks alone */
    coll__numbers numbers;
    unsigned char *gauge;                         /* memory of coll_measure while it runs: a simulated rank that is killed
                                                     in it never comes back to free it                        */
    coll__strided *spare;                         /* of the last blocking call with rows                      */
    coll__counts *counts;                         /* of the tuner, where ranks share processors; NULL: none yet */
};

/* The time there is for the ranks of a session. */
static inline int64_t coll__clock(const coll__session *session)
{
    return session->transport->now ? session->transport->now(session->context) : coll__now();
}

static inline int coll__world_rank(const coll_comm *comm, int rank) { return comm->members ? comm->members[rank] : rank; }

/* Is the call that is being made one for the extension? */
static inline bool coll__is_extended(const coll_comm *comm) { return comm->extension && !comm->is_by_host; }

/* What a rank of the session is called here; COLL_NO_RANK: it is no member. */
static int coll__rank_here(const coll_comm *comm, int world)
{
    if (!comm->members) return world;
    for (int i = 0; i < comm->size; i++) if (comm->members[i] == world) return i;
    return COLL_NO_RANK;
}

/* ---- >>sides ---- */

static void coll__sides_of(const coll_comm *comm, const coll_call *c, coll__side *send, coll__side *recv)
{
    const coll__kind_shape *shape = coll__kind_shape_of(c->kind);
    const coll__role role = { comm->rank, comm->size, comm->graph.sources, comm->graph.destinations };

    *send = coll__side_of(&shape->send, c, role, true);
    *recv = coll__side_of(&shape->recv, c, role, false);
}

/* Elements of the input of a settled call that reduces, from the start of the buffer to the last. */
static size_t coll__input_extent(const coll_comm *comm, const coll_call *call)
{
    coll__side send, recv;

    coll__sides_of(comm, call, &send, &recv);
    return coll__side_extent(&send, 1);
}

/* Elements of its result on this rank. */
static size_t coll__result_count(const coll_comm *comm, const coll_call *call)
{
    coll__side send, recv;

    coll__sides_of(comm, call, &send, &recv);
    return recv.is_used ? recv.count : 0;
}

/* ---- >>naming a call ---- */

enum { COLL__MAGIC = 0xc011, COLL__PARTED_MAGIC = 0xc014 };
enum { COLL__REPORT_LENGTH = 2 * COLL_HEAD_LENGTH };      /* see coll__reports_disagree                               */

#define COLL__COUNT_MASK ((UINT64_C(1) << 48) - 1)

static uint32_t coll__hash_counts(const size_t *counts, int n)
{
    uint64_t hash = coll__hash_of_none;
    for (int i = 0; i < n; i++) hash = coll__hash_with(hash, counts[i]);
    return coll__hash_end(hash);
}

/* All flags that there are, with their names. */
static const struct { unsigned flag; const char *name; } coll__flags[] = {
#define COLL__FLAG(name) { name, #name }
    COLL__FLAG(COLL_DETERMINISTIC), COLL__FLAG(COLL_SATURATE), COLL__FLAG(COLL_REPRODUCIBLE), COLL__FLAG(COLL_STOCHASTIC),
    COLL__FLAG(COLL_DETECT_OVERFLOW), COLL__FLAG(COLL_ROUND_TWICE)
#undef COLL__FLAG
};
enum { COLL__FLAG_COUNT = sizeof coll__flags / sizeof *coll__flags, COLL__FLAGS = (1 << COLL__FLAG_COUNT) - 1 };

/* What else the ranks must agree on, in one byte.  Flags alone are themselves, so that they can be named to others; with an
 * algorithm, or anything else on which the numbers depend, it is a hash of them all, above the flags.  0: nothing. */
static unsigned char coll__hash_options(const coll_call *call, bool reduces)
{
    uint64_t hash = 0;
    const uint64_t scale = COLL__HAS_SCALE ? coll__bits64(call->scale) : 0;
    const char *const algorithm = COLL__HAS_CHOICE ? call->algorithm : NULL;
    const bool is_scaled = COLL__HAS_SCALE && coll__is_scaled(call);
    const bool has_seed = COLL__IS_WHOLE && call->flags & COLL_STOCHASTIC && call->seed != 0;

    if (reduces && !algorithm && !is_scaled && !call->accumulate && !call->not_commutative && !has_seed)
        return (unsigned char)(call->flags & COLL__FLAGS);
    if (reduces && (scale << 1 != 0 || call->accumulate || call->flags || call->not_commutative)) {
        if (scale != coll__bits64(1)) hash = scale;
        if (COLL__IS_WHOLE && call->flags & COLL_STOCHASTIC) hash = hash * 131 + call->seed;
        hash ^= hash >> 32;                       /* a sign and an exponent alone would be multiplied out     */
        hash = ((hash * 31 + (uint64_t)call->accumulate) * (COLL__FLAGS + 1) + call->flags) * 2 + call->not_commutative;
    }
    for (const char *at = algorithm; at && *at; at++) hash = hash * 131 + (unsigned char)*at;
    if (hash == 0) return 0;
    return (unsigned char)(COLL__FLAGS + 1 + (uint32_t)((hash * 0x9e3779b97f4a7c15u) >> 32) % (255 - COLL__FLAGS));
}

enum { COLL__PREPARED_MOST = 0xfff };            /* this one, or a later one                                 */

/* The mark of the communicator with this id.  0: of coll_init. */
static inline uint32_t coll__mark_of(uint64_t id) { return (uint32_t)(coll__mix64(id) >> 32); }

/* The mark of a communicator, with the number of a prepared call; 0: none. */
static inline uint32_t coll__head_mark(const coll_comm *comm, uint64_t prepared)
{
    const uint32_t number = prepared < COLL__PREPARED_MOST ? (uint32_t)prepared : COLL__PREPARED_MOST;
    return (comm->mark & ~(uint32_t)COLL__PREPARED_MOST) | number;
}

/* The fingerprint of a call, equal on all ranks that make the same call:
 *
 *      0 magic    2 step     4 communicator       8 sequence
 *     12 kind    13 op      14 wire   15 options 16 type          20 root    24 count[6]   30 history
 *
 * The step is set for each message: which round of which slice it belongs to.  Under the communicator's mark are 12 bits for the
 * number of a prepared call (coll__head_mark).  Options: see coll__hash_options.  Where every rank knows all counts, the count
 * is their sum and a hash of them stands for the root; where only two ranks know the length of a message, they set its count and
 * type.  History: 16 bits of a hash of earlier calls that end early on some ranks, among those that go by messages in the order
 * of the communicator: ranks that disagreed in one find it when they next compare fingerprints, in whatever call. */
static void coll__head_of_call(unsigned char *head, const coll_call *call, int size, uint32_t order, uint32_t sequence)
{
    const unsigned traits = coll__kinds[call->kind].traits & COLL__TRAITS_HERE;
    const bool reduces = traits & COLL__REDUCES;
    size_t count = traits & COLL__PAIRWISE ? 0 : call->count;
    uint32_t root = traits & (COLL__ROOTED | COLL__MESSAGE) ? (uint32_t)call->root : 0;

    if (traits & COLL__SUMMED) {
        count = 0;
        for (int i = 0; i < size; i++) count += call->recv_counts[i];
        root = coll__hash_counts(call->recv_counts, size);
    }
    const uint32_t op = reduces ? (uint32_t)call->op & 0xff : 0;
    const uint32_t wire = reduces && call->wire != call->type ? (uint32_t)call->wire & 0xff : 0;
    const uint32_t options = coll__hash_options(call, reduces);
    const uint32_t what = ((uint32_t)call->kind & 0xff) | op << 8 | wire << 16 | options << 24;
    const uint32_t type = traits & COLL__PAIRWISE && call->send_types ? 0 : (uint32_t)call->type;
    coll__put64(head, COLL__MAGIC | (uint64_t)order << 32);
    coll__put64(head + 8, sequence | (uint64_t)what << 32);
    coll__put64(head + 16, type | (uint64_t)root << 32);
    coll__put64(head + 24, count);
}

/* A part says of which whole it is one: in place of its kind and its root. */
static inline void coll__head_of_part(unsigned char *head, const unsigned char *whole)
{
    head[12] = whole[12];
    memcpy(head + 20, whole + 20, 4);
}

/* The head of the next call of the same kind.  In whole words, as it is read: a processor that reads in one piece what was just
 * written in several waits until it has left for the caches. */
static inline void coll__head_set_next(unsigned char *head, uint32_t sequence, int root, size_t count, uint64_t history)
{
    coll__put32(head + 8, sequence);
    coll__put32(head + 20, (uint32_t)root);
    coll__put64(head + 24, count | history << 48);
}

/* Set the count alone. */
static inline void coll__head_set_count(unsigned char *head, uint64_t count)
{
    coll__put64(head + 24, (count & COLL__COUNT_MASK) | (coll__get64(head + 24) & ~COLL__COUNT_MASK));
}

static inline uint64_t coll__head_count(const unsigned char *head) { return coll__get64(head + 24) & COLL__COUNT_MASK; }

/* Without such a kind in the program histories stay 0. */
enum { COLL__HAS_HISTORY = (COLL__TRAITS_HERE & (COLL__ROOTED | COLL__NEIGHBORS)) != 0 || COLL__HAS_SCAN };

/* May a rank end a call of this kind before its fingerprint has been compared, through others, with those of all ranks?  As the
 * root of a broadcast does, and each other rank in a reduce. */
static inline bool coll__ends_early(coll_kind kind)
{
    return coll__kind_is(kind, COLL__ROOTED | COLL__NEIGHBORS) || (COLL__HAS_SCAN && (kind == COLL_SCAN || kind == COLL_EXSCAN));
}

/* What `history` becomes with a call of this fingerprint. */
static inline uint64_t coll__history_with(uint64_t history, const unsigned char *head)
{
    const uint64_t sum = coll__get64(head + 8) + coll__get64(head + 16) * UINT64_C(0xbf58476d1ce4e5b9) + coll__get64(head + 24);

    history = (history ^ sum) * UINT64_C(0x94d049bb133111eb);
    return history ^ history >> 32;
}

/* All collectives of the communicators of all ranks, in the form of a head: how many there were, and their history.  No call has
 * this mark. */
static void coll__head_of_made(unsigned char *head, const coll__session *session)
{
    coll__put64(head, COLL__PARTED_MAGIC | (uint64_t)UINT32_MAX << 32);
    coll__put64(head + 8, session->made_calls);
    coll__put64(head + 16, 0);
    coll__put64(head + 24, session->made_history);
}

/* A communicator of all ranks is freed.  Not all ranks free them in the same order. */
static void coll__made_add(coll__session *session, const coll_comm *comm)
{
    session->made_calls += comm->sequence;
    session->made_history += coll__mix64(comm->main.history ^ coll__mix64((uint64_t)comm->mark << 32 | comm->sequence));
}

static inline void coll__head_set_step(unsigned char *head, long step) { coll__put16(head + 2, (uint32_t)step & 0xffff); }

/* Did two ranks make different calls under the same number?  0 is none: the head of no call, or of one that is its parts. */
static bool coll__heads_disagree(const unsigned char *a, const unsigned char *b)
{
    return coll__get32(a + 8) != 0 && !memcmp(a + 4, b + 4, 8) && memcmp(a + 12, b + 12, COLL_HEAD_LENGTH - 12) != 0;
}

#endif /* COLL_COMM_H */
