/* coll_comm.h - a communicator and its requests: fields, call fingerprints, sessions.
 *
 *   session    state shared by all communicators of one coll_init: the transport, the messages, the failure
 *   comm       some ranks of the session, numbered from 0
 *   order      collectives that end one after the other; each communicator and each prepared call has one
 *   request    one operation; a collective that the engine runs has an execution
 *   carrier    executes calls; an extended communicator has its own carrier for all of its calls */
#ifndef COLL_COMM_H
#define COLL_COMM_H

typedef struct coll__carrier coll__carrier;
typedef struct coll__message coll__message;       /* coll_p2p_match.h                                             */
typedef struct coll__messages coll__messages;     /* coll_p2p_protocol.h                                             */
typedef struct coll__prepared coll__prepared;     /* coll_prepared.h                                          */
typedef struct coll__strided coll__strided;       /* coll_strides.h                                           */
typedef struct coll__by_key coll__by_key;         /* coll_p2p_hooks.h                                            */

/* ---- >>execution: the state of a collective that runs through the engine (coll_execution.h, coll_engine.h) ---- */

/* What a message carries: the span of a step, or one block of it. */
typedef struct coll__cargo {
    bool       is_send;
    bool       is_packed;                         /* packed for this message, or unpacked from it             */
    coll__span span;
    size_t     at;                                /* bytes behind the base of its place; COLL__ELSEWHERE: in staging memory */
} coll__cargo;

/* Where a block is: `at` bytes behind the base of its place. */
typedef struct coll__spot { coll__place place; size_t at; } coll__spot;

/* A block that a round makes: a copy of another block, or a fold of several. */
typedef struct coll__made {
    coll__spot to;
    size_t     count, index;                      /* elements; index of the first one in its vector           */
    int        from;                              /* number of source spots: the next ones of the stage       */
} coll__made;

/* A round of one slice in progress. */
typedef struct coll__stage {
    int        xfer_count;                        /* messages of this round                                   */
    int        finished;                          /* completed messages, counted from the first               */
    int        copies, made_count;                /* blocks to make: copies; copies and folds                 */
    bool       is_kept;                           /* can be reused for the same round of another call         */
    size_t     staged;                            /* bytes of staging in use                                  */
    coll_xfer *xfers;
    coll__cargo *cargo;                           /* cargo[i] belongs to xfers[i]                             */
    coll__made *made;                             /* copies first                                             */
    coll__spot *spots;                            /* sources of `made`, in the same order                     */
    unsigned char *base[COLL__PLACES], *staging;
} coll__stage;

typedef enum coll__shape_kind {
    COLL__ONE,                                    /* one block for every block number                         */
    COLL__EQUAL,                                  /* blocks of `count` elements                               */
    COLL__CUT,                                    /* `count` elements in `blocks` nearly equal parts          */
    COLL__LISTED,                                 /* as counts and offsets say; in bytes if there are types   */
    COLL__VECTORS                                 /* vectors of `count` elements, each in `parts` parts       */
} coll__shape_kind;

typedef struct coll__layout {
    coll__shape_kind kind;
    unsigned char *base;
    int    blocks;                                /* block numbers are modulo this                            */
    size_t count;
#if COLL__HAS_LEAVES
    int    parts;
#endif
    int    group_bits;                            /* parts begin at multiples of 2^group_bits elements        */
    const coll__shares *shares;                   /* uneven split; NULL: even                                 */
    const size_t *counts, *offsets;
    const coll_type *types;
} coll__layout;

typedef struct coll__execution {
    coll__choice choice;
    int     rounds;
    coll__layout input, result;
    const coll__layout *vector;                   /* layout of the blocks whose values WORK and PART hold     */
    size_t  longest;                              /* elements of its longest block                            */
    long    slices, lag;                          /* see coll_engine.h                                        */
    long    ticks, posted, done;
    int     steps, moved, made, from;             /* of the largest round: steps, and blocks (coll__round)    */
    size_t  moved_in_all;                         /* blocks of all rounds                                     */
    int     slots[COLL__PLACES];                  /* slots of WORK and PART                                   */
    size_t  work_slot, part_slot;                 /* bytes of a slot                                          */
    int     stage_count;
    coll__stage *stages;                          /* of the slices in progress; is_cached: of all rounds      */
    bool    is_cached;                            /* the order owns its tables, for the next equal call       */
    bool    is_chosen_before;                     /* its choice is that of a cached call                      */
    void   *scratch;
    coll__source *sources;
    coll__step *list;                             /* steps of the round that is being posted                  */
    uint64_t  *peers;                             /* of every round, and of all rounds after it (coll_overlap.h); NULL: unknown */
    bool       has_peers;                         /* `peers` was computed                                     */
} coll__execution;

enum { COLL__NAME_CACHED = 24 };                  /* bytes of an algorithm's name                             */

/* What an order keeps of a call for equal calls: the tuner's choice.  For a short call also the whole execution, whose tables
 * have memory of their own. */
typedef struct coll__cached {
    coll_call  call;                              /* kind 0: none                                             */
    double     elements;                          /* of all blocks; the caller owns lists of counts           */
    char       algorithm[COLL__NAME_CACHED];      /* name of the algorithm, or ""                             */
    coll__choice choice;
    bool       has_execution;
    coll__execution execution;
    void      *memory;                            /* tables of the execution                                  */
    unsigned   arenas;                            /* the workspace's `arenas` at that time: its values are in that arena */
} coll__cached;

/* Memory for a running collective of an order, and the cache for later calls. */
typedef struct coll__workspace {
    void     *arena;                              /* memory of the running collective                         */
    unsigned  arenas;                             /* arenas allocated so far                                  */
    coll__cached *cached[COLL__CACHED];           /* the last different calls; NULL: empty                    */
    unsigned  cached_next;                        /* the entry to replace next                                */
    coll__execution execution;                    /* execution of a call that is not cached                   */
} coll__workspace;

/* ---- >>request ---- */

typedef struct coll__bounds { uintptr_t from, end; } coll__bounds;

/* The memory that a call reads and writes. */
typedef struct coll__touched {
    bool         is_known;
    coll__bounds reads, writes;
} coll__touched;

struct coll_request {
    coll_comm   *comm;                            /* NULL once the communicator is freed                      */
    struct coll__order *order;                    /* NULL: a message                                          */

    /* from here on to `call` coll__request_init sets all to 0 */
    coll_request *next;                           /* in the queue of its order                                */
    bool         is_started, is_prepared;
    bool         is_known;                        /* the program knows that it does not run: its end was
                                                     reported, or it was never started                        */
    bool         is_blocking;                     /* the caller gets no handle                                */
    bool         has_head;                        /* `head` is the fingerprint of a call like this one        */
    bool         has_overflow;                    /* COLL_DETECT_OVERFLOW: the result has an infinity or a NaN */
    unsigned char workspace;                      /* index of the workspace in its order                      */
    coll_status *awaited;                         /* set to COLL_OK when it ends (coll_wait_any.h); or NULL       */
    uint64_t     record;                          /* its number in the flight recorder; 0: none               */
    size_t      *offsets;                         /* owned: replaces missing offsets; or NULL                 */
    void        *changed;                         /* owned: the input with its residual; or NULL              */
    void        *carried;                         /* owned by the carrier                                     */
    coll__message *sending, *receiving;           /* send, recv, sendrecv                                     */
    size_t       got_count;
    coll_request *whole;                          /* the request of which this is a part; or NULL             */
    void       (*done)(coll_request *whole, coll_request *part, coll_status status);      /* called when it ends; or NULL */
    coll__prepared *prepared;                     /* coll_prepare: its own order                              */
    coll__strided *strided;                       /* the caller's strides; or NULL                            */

    coll_call    call;
    coll_status  status;
    bool         is_over;                         /* finished, but earlier calls of its order are not         */
    int64_t      tested_at;                       /* when a test first found it running; 0: never             */
    bool         ends_early;                      /* the call becomes part of its history                     */
    uint32_t     sequence;
    unsigned     graph_version;                   /* of the communicator's graph at the time of the check     */
    unsigned char head[COLL_HEAD_LENGTH];
    coll__codec  codec;
    const uint64_t *history;                      /* history in the fingerprint: its order's; or NULL         */
    coll__touched touched;                        /* bounds of its buffers, computed on demand                */
    const void  *input;                           /* with a residual: the caller's input, from which call.send is made */
    coll_task    task;                            /* used when the transport executes the whole call          */
    const coll__carrier *carrier;
    coll__execution  *execution;                  /* used when the engine runs it: cached, or the workspace's */
    int          got_source, got_tag;
    struct coll__pool *pool;                      /* owner of its memory; must be the last field              */
};

/* Memory of requests (coll_request_pool.h). */
typedef struct coll__pool {
    coll_request *kept;                           /* only used inside a call; linked by `next`                */
    coll_request *freed;                          /* atomic: pushed by any thread; coll__pool_closed: session ended */
    size_t  count;                                /* requests with memory of this pool, in use or free        */
    int64_t left;                                 /* atomic: requests still in use after the session ended    */
} coll__pool;

/* ---- >>carrier, extension ---- */

enum {
    COLL__AT_CALL = 1,                            /* starts when it is called, whatever is in front of it in
                                                     its order, and makes its own fingerprint; others start at
                                                     the front of their order                                 */
    COLL__AS_A_WHOLE = 2,                         /* not executed by the engine; polling it is cheap          */
    COLL__OWNER_ONLY = 4,                         /* only threads of the program may advance it               */
    COLL__WAKES_NONE = 8                          /* its end does not wake a thread that sleeps in the transport */
};

/* What executes a call: the engine in rounds, the transport as a whole, ... (coll_carriers.h).  The first of the session's
 * carriers that accepts a call gets it.  If `start` declines, the next one gets it.  Other errors of start and advance have
 * already failed the communicator. */
struct coll__carrier {
    const char *name;
    unsigned traits;
    bool        (*takes)  (const coll_request *r);        /* NULL: accepts every call                         */
    coll_status (*bind)   (coll_request *r);      /* prepares a checked call; sets the sentence of an error.
                                                     NULL: nothing to do                                      */
    coll_status (*start)  (coll_request *r);      /* COLL_PENDING: continue with advance, at once; COLL_OK:
                                                     finished; COLL_ERR_UNSUPPORTED: declined, nothing was
                                                     sent                                                     */
    coll_status (*advance)(coll_request *r);      /* continues a call that was COLL_PENDING                   */
    void (*late)   (const coll_request *r, unsigned char *is_late);   /* marks the ranks that it waits for; NULL: unknown */
    bool     (*passes)(const coll_request *r);    /* returns whether it will decline; NULL: unknown           */
    uint64_t (*later)(const coll_request *r);     /* peers of messages that a started call has still to queue
                                                     (coll_overlap.h).  NULL: no other call of the order may
                                                     run beside it                                            */
    void (*unbind) (coll_request *r);             /* called when it does not start again; NULL: nothing to free */
    void (*end)    (coll__session *session, coll_status status);  /* ends what is in no order; NULL: nothing to end */
    const char *says;                             /* its part of coll_explain; NULL: of `explain`             */
    bool (*explain)(coll_request *r, char *text, size_t room);        /* false: it would decline              */
};

/* NULL where no two collectives run at the same time. */
#define COLL__LATER(later) (COLL_OVERLAP > 1 ? later : NULL)

/* A communicator for buffers that are not in the memory of this process.  The extension executes its calls, messages and lists.
 * Calls of the library itself use memory of this process (is_by_host). */
struct coll__extension {
    const char *name;
    const coll__carrier *carrier;                 /* takes every call                                         */

    /* Extends `child` as `parent` is extended.  Collective over `child`. */
    coll_status (*derive)(coll_comm *parent, coll_comm *child);

    void (*end)   (coll_comm *comm);              /* the session has failed: stop what is running             */
    void (*close) (coll_comm *comm);
    void (*opened)(coll__session *session);       /* sets `inspect` if needed; NULL: nothing to set           */
};

/* ---- >>order, communicator, session ---- */

/* Spaces of message keys, for messages that do not use COLL_CHANNEL_CALLS (coll_p2p.h). */
typedef enum coll__space { COLL__SPACE_USER, COLL__SPACE_CALLS, COLL__SPACE_CREATE } coll__space;

typedef struct coll__order {
    coll_comm *comm;
    struct coll__order *next;                     /* in the session's list of active orders                   */
    bool      is_active;                          /* in that list                                             */
    bool      is_keyed;                           /* messages have keys, not COLL_CHANNEL_CALLS               */
    coll__space space;
    uint64_t  number;                             /* 0: the communicator's order; else the number of a
                                                     prepared call; COLL__SPACE_CREATE: a hash                */
    void     *group;                              /* the transport's group; NULL: all ranks                   */
    uint64_t  history;                            /* hash of its calls by messages that end early on some ranks */
    coll_request *queue, **queue_end;             /* the first one runs; later ones may, too (coll_overlap.h) */
    uint64_t  ahead;                              /* while a later call advances: peers of messages that the
                                                     calls before it have still to queue                      */
    int       place;                              /* number of calls before it                                */
    bool      rests;                              /* nothing behind the first can advance until the first ends
                                                     or a call is added                                       */
    coll__workspace *workspaces[COLL__OVERLAP];   /* NULL: not needed yet                                     */
    coll_comm *intra, *inter;                     /* for hierarchical collectives (coll_hierarchy_plan.h): the
                                                     ranks of this host; one rank of each host.  NULL: not
                                                     needed                                                   */
} coll__order;

typedef struct coll__background {
    bool      is_wanted;                          /* configured, and the transport supports it                */
    bool      has_thread, is_stopping;
    coll__thread_id thread;
    coll__cond  doorbell;
    bool      is_asleep;                          /* until an operation is started (coll_progress_thread.h)   */
    unsigned  starts;                             /* non-blocking operations started so far                   */
} coll__background;

/* Why a session ended: a coll_failure.  Without an operating system there are no texts, and it has no memory for one. */
#if COLL__HAS_OS
typedef coll_failure coll__cause;
#else
typedef struct coll__cause { coll_status status; int rank; char text[4]; } coll__cause;
#endif

/* Statistics of yields (coll_progress.h). */
typedef struct coll__yields {
    unsigned waits, slow_at;                      /* waits that spun so far; that number at the last slow yield */
    int      slow;                                /* slow yields close to one another                         */
    int      sleep_ms;                            /* how long the waits last slept at once; 0: not lately     */
    int64_t  sleep_until;                         /* until then every wait sleeps at once; 0: none            */
} coll__yields;

/* The result of coll_shrink for a rank; AGREED: of coll_agree, it has not failed. */
typedef enum coll__survival { COLL__NOT_LISTED, COLL__LOST, COLL__GOES_ON, COLL__AGREED } coll__survival;

/* What a list of ranks has decided. */
typedef struct coll__decided {
    struct coll__decided *next;
    int            count, *ranks;                 /* behind this struct: ranks, room for survivors, known.failed */
    uint64_t       of;                            /* 1 + id of the communicator whose round 0 has made known.next; 0: none */
    coll_decisions known;
} coll__decided;

/* Parts that report late ranks and freed communicators. */
#define COLL__IF_WATCH(function) (COLL__IS_WHOLE ? function : NULL)

/* What this rank is doing.  Other threads read it; each word is atomic by itself.  `turn` changes with every other word. */
typedef struct coll__activity {
    uint64_t turn;
    uint64_t inside;                              /* number of waits in the call `now`                        */
    uint64_t now[COLL_HEAD_LENGTH / 8], last[COLL_HEAD_LENGTH / 8];   /* last: the collective that ended last */
} coll__activity;

/* A communicator that a peer has freed, and how many collectives the peer had started in it. */
typedef struct coll__peer_left {
    struct coll__peer_left *next;
    int      peer;
    uint32_t sequence;
    uint64_t comm;
    bool     is_sure;                             /* all messages that the peer sent before have arrived      */
} coll__peer_left;

struct coll__session {
    const coll_transport *transport;
    void *context;
    int   rank, size, local_rank, local_size;
    int   processors;                             /* of this host, usable by its ranks                        */
    double share;                                 /* processors a rank has on the fullest host; same on all ranks */
    unsigned char *guard;                         /* *guard = 0: this is a forked child                       */
    int   spin_us, stall_timeout_ms, start_timeout_ms;
    bool  is_crowded;                             /* ranks share processors: yield between looks              */
    coll__yields yields;
    bool  runs_operation;                         /* without an operating system: an operation of the program is running */
    bool  offloads_all;                           /* the transport executes collectives of all ranks          */
    bool  is_synchronous;                         /* every send waits for its receive                         */
    const coll__internals *internals;             /* the transport's                                          */
    const coll__carrier *carriers;                /* in order of preference; the last one accepts any call    */
    int   carrier_count;
    coll__log  log;
    int   forced_at[COLL__FORCED_KINDS];          /* COLL_ALGORITHM by kind: 1 + the place in forced_text; 0: none */
    char  forced_text[COLL__FORCED_ROOM];
    coll__cause failure;                          /* status COLL_OK: no failure                               */
    char  dump[COLL__DUMP_ROOM];                  /* path for a report when the session fails; "": none       */
    int   generation;                             /* number of coll_shrink calls so far                       */
    unsigned char *survival;                      /* coll__survival of each rank, then a set of ranks; or NULL */
    bool  has_agreed;                             /* atomic: by the last call                                 */
    coll__decided *decided, *shrunk;              /* one for each list of ranks; that of the last coll_shrink */
    coll_comm     *successor;                     /* of that one, if coll_shrink has failed since; or NULL    */
    int           *former;                        /* by rank: in the communicator before; NULL: there was none */
    bool           has_newcomers;                 /* the first world of newcomers                             */
    bool           is_succeeded;                  /* coll_grow has begun to make another world                */
    coll__messages *messages;                     /* NULL: none yet                                           */
    const coll__by_key *by_key;                   /* with COLL__ON_DEMAND; NULL: not needed yet               */
    coll__pool *pool;                             /* memory of requests; NULL: none yet                       */
    coll__order *orders;                          /* the active ones                                          */
    coll_comm   *comms;
    uint64_t  named;                              /* communicators that this rank has numbered (coll_communicators.h) */
    coll__lock comms_lock;                        /* guards `comms` and the next three fields, which other threads read */
    uint32_t  comms_version;                      /* changes of `comms` so far                                */
    int       deriving;                           /* running calls that make communicators                    */
    bool      lingers;                            /* messages of a freed communicator are still to be sent    */
    coll__peer_left *gone;                        /* communicators freed by peers                             */
    unsigned  finished, told;                     /* finished requests so far; that number when the followers were last woken */
    int       silent;                             /* pending requests whose end wakes no sleeping thread      */
    const coll__extension *extension;             /* of the program, for communicators; or NULL               */
    const char *(*inspect)(const coll__session *session, const void *at);  /* why memory is unreadable, or NULL; NULL: no check */
    void    (*inspector)(void);                   /* owned by `inspect`                                       */
    /* threads with different communicators (coll_progress.h) */
    bool  is_shared;                              /* atomic: another thread may be inside; entering threads take the session */
    bool  has_many;                               /* there was more than one communicator                     */
    coll__lock lock;                         /* guards the rest                                          */
    coll__cond  changed;
    bool  is_held;                                /* a thread is inside                                       */
    unsigned visits;                              /* how often threads of the program have taken it           */
    int   entrants, followers;                    /* threads that want to start something; that wait for the holder */
    coll__background background;
    coll__doorbell doorbell;                      /* of coll_fd; created on demand                            */
    int   is_fd_rung;                             /* atomic: the descriptor is readable                       */
    int   abort_claimed, abort_wanted;            /* atomic: a thread writes abort_text; abort_text is complete */
    char  abort_text[COLL__ABORT_ROOM];
    coll__activity activity;
    uint32_t  made_calls;                         /* in freed communicators of all ranks: number of collectives */
    uint64_t  made_history;                       /* sum of their histories                                   */
    int64_t  started_at;                          /* start of the last one that did not end at once           */
    unsigned burst;                               /* consecutive collectives before it                        */
    unsigned tests;                               /* tests that found a pending request                       */
    int64_t  watch_at;                            /* time at which a test looks around (coll_wait_loop.h)     */
};

/* May another thread be inside? */
static inline bool coll__is_shared(const coll__session *session)
{
    return COLL__MANY_THREADS && __atomic_load_n(&session->is_shared, __ATOMIC_ACQUIRE);
}

static inline const char *coll__forced(const coll__session *session, coll_kind kind)
{
    return COLL__FORCED_KINDS > 1 && session->forced_at[kind] ? session->forced_text + session->forced_at[kind] - 1 : NULL;
}

enum { COLL__SPIN_US = 50, COLL__SPIN_CROWDED_US = 10 };      /* before sleeping; if there are more ranks than processors */

/* Its address identifies the thread, without a system or library call. */
static COLL__THREAD_LOCAL COLL__UNUSED char coll__thread_mark;

/* The plan of a kind of call (coll_plan.h): the checked parts of its last plain call. */
typedef struct coll__plan {
    bool      is_made;
    size_t    most;                               /* most elements that fit in the address space              */
    coll_offload_fn *start;                       /* the transport's entry for a whole call; NULL: the call
                                                     uses an order, or its wire has another type              */
    void     *bound;                              /* passed to it in place of the context                     */
    const coll__carrier *carrier;                 /* the carrier, if the transport does not finish at once    */
    coll_request request;                         /* request of blocking calls: arithmetic, fingerprint and task */
} coll__plan;

/* Without plans, blocking calls of all kinds share one request. */
enum { COLL__PLAN_PLACES = COLL__PLANS ? COLL__KIND_COUNT : 1 };

static inline unsigned coll__plan_place(coll_kind kind) { return COLL__PLANS ? (unsigned)kind : 0; }

struct coll_comm {
    int   rank, size;
    coll__session *session;
    unsigned char *guard;                         /* the session's                                            */
    coll_comm *next;                              /* in the list of the session                               */
    coll_comm **owner;                            /* where coll_spawn keeps it to free it; NULL: the program frees it */
    int  *members;                                /* session ranks of our ranks; NULL: the same numbers       */
    uint64_t id;                                  /* 0: of coll_init; unique in the session                   */
    uint32_t mark;                                /* hash of `id`, in fingerprints                            */
    const coll__extension *extension;             /* NULL: buffers are in the memory of this process          */
    void *extended;                               /* owned by the extension                                   */
    bool  is_by_host;                             /* the current call ignores the extension                   */
    coll__topology *topology;                     /* ranks by host; NULL: one host, or one rank on each       */
    bool  has_topology;                           /* `topology` was computed                                  */
    int   is_taken;                               /* atomic: a thread is inside (coll_comm_lock.h)            */
    const char *thread;                           /* atomic: mark of the thread that was inside last, which may run
                                                     the caller's operations                                  */
    bool  is_holder;                              /* the thread inside holds the session                      */
    bool  is_leaving;                             /* in coll_free                                             */
    bool  hears_all;                              /* listens for messages of every member                     */
    uint32_t sequence;                            /* collectives started so far                               */
    uint32_t prepare_count;
    uint64_t overflows;                           /* COLL_DETECT_OVERFLOW: calls that found one               */
    char  error[COLL__SENTENCE_ROOM];             /* sentence of the last failed call                         */
    char  ending[COLL__SENTENCE_ROOM];            /* sentence of the failure that ended the communicator; written at any time */
    union {
        const char *sentence;                     /* atomic: the later of the two; NULL: none                 */
        coll_status told;                         /* COLL_NO_TEXT: the status whose name is the sentence      */
    };
    const coll_request *waiting;                  /* the request that a caller waits for                      */
    const void *watch;                            /* atomic: the running wait for one of several (coll_wait_any.h) */
    coll_comm *beside;                            /* the next communicator that this wait has entered         */
    coll__order main;
    void *recorder;                               /* the flight recorder, or NULL                             */
    coll__prepared *prepared;                     /* all that are not freed                                   */
    coll__graph graph;
    int  *graph_lists;
    unsigned graph_version;                       /* replacements so far                                      */
    coll__plan *plans[COLL__PLAN_PLACES];         /* by kind; NULL: not called yet                            */
    coll__numbers numbers;
    coll__strided *spare;                         /* of the last blocking call with strides                   */
    coll__counts *counts;                         /* of the tuner, where ranks share processors; or NULL      */
};

/* The clock of the session's ranks. */
static inline int64_t coll__clock(const coll__session *session)
{
    return session->transport->now ? session->transport->now(session->context) : coll__now();
}

static inline int coll__world_rank(const coll_comm *comm, int rank) { return comm->members ? comm->members[rank] : rank; }

/* Does the extension execute the current call? */
static inline bool coll__is_extended(const coll_comm *comm) { return comm->extension && !comm->is_by_host; }

/* The rank here of a rank of the session; COLL_RANK_NONE: not a member. */
static int coll__rank_here(const coll_comm *comm, int world)
{
    if (!comm->members) return world;
    for (int i = 0; i < comm->size; i++) if (comm->members[i] == world) return i;
    return COLL_RANK_NONE;
}

/* ---- >>sides ---- */

static void coll__sides_of(const coll_comm *comm, const coll_call *c, coll__side *send, coll__side *recv)
{
    const coll__kind_shape *shape = coll__kind_shape_of(c->kind);
    const coll__role role = { comm->rank, comm->size, comm->graph.sources, comm->graph.destinations };

    *send = coll__side_of(&shape->send, c, role, true);
    *recv = coll__side_of(&shape->recv, c, role, false);
}

/* Elements of the input of a checked call that reduces, from the start of the buffer to the last element. */
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

/* ---- >>fingerprints ---- */

enum { COLL__MAGIC = 0xc011, COLL__PARTED_MAGIC = 0xc014 };
enum { COLL__REPORT_LENGTH = 2 * COLL_HEAD_LENGTH };      /* see coll__reports_disagree                               */

#define COLL__COUNT_MASK ((UINT64_C(1) << 48) - 1)

/* Options of a call in its fingerprint: its flags, and what else is set.  A rank names them from the fingerprint alone. */
enum { COLL__FLAGS = 63, COLL__BY_SCALE = 64, COLL__BY_SEED = 128, COLL__BY_TYPE = 256, COLL__BY_ALGORITHM = 512,
       COLL__HASHED = COLL__BY_SCALE | COLL__BY_SEED | COLL__BY_TYPE | COLL__BY_ALGORITHM };

/* By bit; the flags first. */
static const char *const coll__options[] = {
    "COLL_DETERMINISTIC", "COLL_SATURATE", "COLL_REPRODUCIBLE", "COLL_STOCHASTIC", "COLL_DETECT_OVERFLOW", "COLL_ROUND_TWICE",
    "scale", "seed", "accumulate", "algorithm", "not_commutative", "leaves"
};
enum { COLL__OPTION_COUNT = sizeof coll__options / sizeof *coll__options };
_Static_assert(COLL_ROUND_TWICE * 2 == COLL__FLAGS + 1 && COLL_USER < 16, "6 bits of flags, 4 of the operation, 12 of options");

static unsigned coll__options_of(const coll_call *call, bool reduces)
{
    const bool has_seed = COLL__IS_WHOLE && call->flags & COLL_STOCHASTIC && call->seed != 0;
    const unsigned algorithm = COLL__HAS_CHOICE && call->algorithm && !coll__kind_is_message(call->kind) ? COLL__BY_ALGORITHM : 0;

    if (!reduces) return algorithm;
    return algorithm | (call->flags & COLL__FLAGS) | (COLL__HAS_SCALE && coll__is_scaled(call) ? COLL__BY_SCALE : 0u)
        | (has_seed ? COLL__BY_SEED : 0u) | (call->accumulate ? COLL__BY_TYPE : 0u) | (unsigned)call->not_commutative << 10
        | (unsigned)(COLL__HAS_LEAVES && call->leaves != 0) << 11;
}

/* 16 bits of a hash of the options that have a value. */
static uint32_t coll__hash_options(const coll_call *call, unsigned options)
{
    uint64_t hash = options & COLL__BY_TYPE ? (uint64_t)call->accumulate : 0;

    if (COLL__HAS_SCALE && options & COLL__BY_SCALE) hash = coll__mix64(hash ^ coll__bits64(call->scale));
    if (options & COLL__BY_SEED) hash = coll__mix64(hash ^ call->seed);
    for (const char *at = options & COLL__BY_ALGORITHM ? call->algorithm : ""; *at; at++) hash = hash * 131 + (unsigned char)*at;
    return (uint32_t)(coll__mix64(hash) >> 48);
}

static inline unsigned coll__head_options(const unsigned char *head) { return head[15] | (unsigned)head[13] >> 4 << 8; }

static inline int coll__head_root(const unsigned char *head)
{
    return (int)(coll__head_options(head) & COLL__HASHED ? coll__get16(head + 20) : coll__get32(head + 20));
}

enum { COLL__PREPARED_MOST = 0xfff };            /* this number, or a greater one                            */

/* The mark of the communicator `id`.  0: of coll_init. */
static inline uint32_t coll__mark_of(uint64_t id) { return (uint32_t)(coll__mix64(id) >> 32); }

/* The fingerprint of a call, equal on all ranks that make the same call:
 *
 *      0 magic    2 step     4 communicator       8 sequence
 *     12 kind    13 op      14 wire   15 options 16 type          20 root    24 count[6]   30 history
 *                 options                                            or peer
 *
 * The step is set for each message: which round of which slice it belongs to.  The low 12 bits of the communicator's mark are
 * the number of a prepared call.  Options: 8 bits, and the upper 4 of the operation.  If one has a value
 * (COLL__HASHED), the upper half of root is a hash of these values.  If every rank knows all counts, count is their sum and root
 * a hash of them.  If only two ranks know the length of a message, they set its count and type.  History: 16
 * bits of a hash of earlier calls that end early on some ranks, if they used messages in the order of the communicator.  So a
 * mismatch in such a call is found when fingerprints are next compared. */
static void coll__head_of_call(unsigned char *head, const coll_call *call, int size, uint32_t order, uint32_t sequence)
{
    const unsigned traits = coll__kinds[call->kind].traits & COLL__TRAITS_HERE;
    const bool reduces = traits & COLL__REDUCES;
    size_t count = traits & COLL__PAIRWISE ? 0 : call->count;
    uint32_t root = (uint32_t)(traits & COLL__ROOTED ? call->root : traits & COLL__MESSAGE ? call->peer : 0);

    if (traits & COLL__SUMMED) {
        uint64_t hash = coll__hash_of_none;
        count = 0;
        for (int i = 0; i < size; i++) {
            count += call->recv_counts[i];
            hash = coll__hash_with(hash, call->recv_counts[i]);
        }
        root = coll__hash_end(hash);
    }
    const uint32_t op = reduces ? (uint32_t)call->op & 15 : 0;
    const uint32_t wire = reduces && call->wire != call->type ? (uint32_t)call->wire & 0xff : 0;
    const unsigned options = coll__options_of(call, reduces);
    const uint32_t what = ((uint32_t)call->kind & 0xff) | (op | options >> 8 << 4) << 8 | wire << 16 | options << 24;
    const uint32_t type = traits & COLL__PAIRWISE && call->send_types ? 0 : (uint32_t)call->type;
    coll__put64(head, COLL__MAGIC | (uint64_t)order << 32);
    coll__put64(head + 8, sequence | (uint64_t)what << 32);
    if (options & COLL__HASHED) root = (root & 0xffff) | coll__hash_options(call, options) << 16;
    coll__put64(head + 16, type | (uint64_t)root << 32);
    coll__put64(head + 24, count);
}

/* The head of the next call of the same kind.  Written in words of the size in which it is read: a load that spans several
 * pending stores waits until these have reached the cache. */
static inline void coll__head_set_next(unsigned char *head, uint32_t sequence, int root, size_t count, uint64_t history)
{
    coll__put32(head + 8, sequence);
    coll__put32(head + 20, (uint32_t)root);
    coll__put64(head + 24, count | history << 48);
}

static inline void coll__head_set_count(unsigned char *head, uint64_t count)
{
    coll__put64(head + 24, (count & COLL__COUNT_MASK) | (coll__get64(head + 24) & ~COLL__COUNT_MASK));
}

static inline uint64_t coll__head_count(const unsigned char *head) { return coll__get64(head + 24) & COLL__COUNT_MASK; }

/* Without such kinds in the program, histories are 0. */
enum { COLL__HAS_HISTORY = (COLL__TRAITS_HERE & (COLL__ROOTED | COLL__NEIGHBORS)) != 0 || COLL__HAS_SCAN };

/* `history` after a call with this fingerprint. */
static inline uint64_t coll__history_with(uint64_t history, const unsigned char *head)
{
    const uint64_t sum = coll__get64(head + 8) + coll__get64(head + 16) * UINT64_C(0xbf58476d1ce4e5b9) + coll__get64(head + 24);

    history = (history ^ sum) * UINT64_C(0x94d049bb133111eb);
    return history ^ history >> 32;
}

/* All collectives of the communicators of all ranks, in the form of a head: their number and their history.  No call has this
 * mark. */
static void coll__head_of_made(unsigned char *head, const coll__session *session)
{
    coll__put64(head, COLL__PARTED_MAGIC | (uint64_t)UINT32_MAX << 32);
    coll__put64(head + 8, session->made_calls);
    coll__put64(head + 16, 0);
    coll__put64(head + 24, session->made_history);
}

static inline void coll__head_set_step(unsigned char *head, long step) { coll__put16(head + 2, (uint32_t)step & 0xffff); }

/* Did two ranks make different calls of one number?  0: no call, or a list, which is its parts.  Many may have PREPARED_MOST. */
static bool coll__heads_disagree(const unsigned char *a, const unsigned char *b)
{
    return (~coll__get32(a + 4) & COLL__PREPARED_MOST || coll__get16(a) != COLL__MAGIC) && coll__get32(a + 8) != 0
        && !memcmp(a + 4, b + 4, 8) && memcmp(a + 12, b + 12, COLL_HEAD_LENGTH - 12) != 0;
}

#endif /* COLL_COMM_H */
