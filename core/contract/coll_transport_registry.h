/* coll_transport_registry.h - opening transports: the settings, a table with a row for each transport, and the result. */
#ifndef COLL_TRANSPORT_REGISTRY_H
#define COLL_TRANSPORT_REGISTRY_H

#include "coll_shape.h"
#include "coll_tuning.h"

enum { COLL__SIZE_MOST = 65536, COLL__ELASTIC_MOST = 256 };

/* Length of COLL_ALGORITHM, and the kinds for which it may name an algorithm. */
enum { COLL__FORCED_ROOM = COLL__HAS_ENV && COLL__HAS_CHOICE ? 256 : 1,
       COLL__FORCED_KINDS = COLL__HAS_ENV && COLL__HAS_CHOICE ? COLL__KIND_COUNT : 1 };

/* A launcher: the names of its environment variables. */
typedef struct coll__launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
    const char *job, *part;                       /* variables that identify the job, and this try or step of it; NULL: none */
    bool        is_strict;                        /* an incomplete set of these variables is an error, not another program's */
    bool        is_of_hosts;                      /* it counts hosts or pods, which may have several processes */
    const char *where;                            /* describes the host of rank 0 in messages                 */
} coll__launcher;

/* What the environment has. */
typedef struct coll__launched {
    const char *source;                           /* the name of the launcher, or "nothing in the environment" */
    const coll__launcher *by;                     /* NULL: none                                               */
    int  rank, size, local_rank, local_size;      /* local_size 0: unknown                                    */
} coll__launched;

/* How many entries "a:1,b:2,c:3" has. */
static int coll__hosts_count(const char *hosts)
{
    int n = 1;
    for (; *hosts; hosts++) n += *hosts == ',';
    return n;
}

typedef struct coll__extension coll__extension;   /* core/engine/coll_comm.h                                  */
typedef struct coll__session coll__session;

/* A configuration with all defaults filled in. */
typedef struct coll__settings {
    coll_config config;
    int         count;                            /* ranks of this process; config.rank is the first          */
    int         processors;                       /* usable by this process                                   */
    coll_status status;                           /* < 0: invalid                                             */
    const char *source;                           /* origin of the rank: "the configuration", "torchrun", ... */
    coll__launched launch;                        /* from the environment, if it was read                     */
    const coll__extension *extension;             /* of the program                                           */
    bool        is_newcomer;                      /* of coll_join: rank and size are not known yet            */
    uint32_t    arithmetic;                       /* of the program: coll__arithmetic                         */
    coll__numbers numbers;                        /* link numbers for the tuner                               */
    char        forced_text[COLL__FORCED_ROOM];                 /* names of COLL_ALGORITHM, each ended by '\0'              */
    int         forced_at[COLL__FORCED_KINDS];    /* 1 + where that of each kind begins; 0: none              */
} coll__settings;


/* Why a transport is missing. */
#define COLL__MISSING "this program was compiled without it (COLL_ONLY_TRANSPORTS)"

/* The switch that left out several ranks per process, and domains of several processes. */
#define COLL__HYBRID_WITHOUT (COLL__HAS_TCP && COLL__HAS_THREADS ? "COLL_NO_SHM" : "COLL_ONLY_TRANSPORTS")

/* How a transport continues with the survivors (coll_transport.shrink). */
#define COLL__SHRINKS(how) (COLL__HAS_SHRINK ? how : NULL)

/* This rank makes no more collectives in a group; group NULL: of all ranks, and close follows.  `made` has, as a head, the
 * number and the history of those of all ranks.  Names in *failure a rank with the same number but another history, as far as
 * known without waiting; notifies the remaining ranks. */
typedef coll_status coll__part_fn(void *context, void *group, const unsigned char *made, coll_failure *failure);

/* What the library's transports do in addition to coll_transport, when a peer leaves or frees a communicator.  Each may be
 * NULL. */
typedef struct coll__internals {
    coll__part_fn *part;

    /* Processes that wait to join; NULL: none can. */
    const struct coll__elastic *elastic;

    /* Gives access to what this rank is doing and to its communicators (coll_activity.h), while the context is open. */
    void (*watch)(void *context, coll__session *session);

    /* Has this live peer freed its communicator with this id, and has all that it sent before arrived?  May send a query and
     * return the result of a later call.  With virtual time it is first called with peer -1: is a query due? */
    bool (*has_freed)(void *context, int peer, uint64_t id);
} coll__internals;

static const coll__internals coll__no_internals;

/* An open rank.  The caller owns it and closes the context. */
typedef struct coll__opened {
    const coll_transport *transport;
    void         *context;
    int           rank, size, local_rank, local_size;
    int           processors;                     /* of its host, usable by the ranks there                   */
    double        share;                          /* processors of each rank on the fullest host; 0: no other hosts */
    int           spin_us;                        /* as in coll_config                                        */
    bool          is_crowded;                     /* ranks share processors                                   */
    bool          offloads_all;                   /* the transport executes collectives of all ranks          */
    bool          is_synchronous;                 /* every send waits for its receive                         */
    const coll__internals *internals;
    coll__numbers numbers;                        /* the same on all ranks                                    */
} coll__opened;

/* A rank of coll_spawn. */
typedef struct coll__worker {
    coll__thread_id  thread;
    coll_comm *comm;
    int      (*fn)(coll_comm *comm, void *arg);
    void      *arg;
    int        result;
    bool       is_running;
} coll__worker;

/* Properties of a transport: which ranks of a job this process may open, and when it is chosen. */
enum {
    COLL__OPENS_ALL = 1, COLL__OPENS_ONE = 2, COLL__OPENS_SOME = 4,       /* ONE, SOME: there are others in other processes */
    COLL__WHEN_NAMED = 8,                         /* only chosen by name                                      */
    COLL__COUNTS_ITSELF = 16,                     /* it knows rank and size itself, so the environment is not
                                                     read; it is opened with invalid settings, too, because
                                                     other ranks wait for this one                            */
    COLL__ADMITS = 64,                            /* processes can join                                       */
    COLL__LEAVES_JOB = 32                         /* the ranks that one process makes are the whole job,
                                                     whatever a launcher says                                 */
};

typedef struct coll__transport_row {
    const char *name;                             /* NULL: cannot be chosen by name                           */
    const char *missing;                          /* why this program lacks it; NULL: it has it               */
    unsigned    traits;
    bool      (*settle)(coll_config *c);          /* fills its own part of the configuration; false: an error,
                                                     with its sentence.  NULL: nothing to fill                */

    /* Open ranks config.rank .. config.rank + count - 1.  Negative status, with its sentence: none is open. */
    coll_status (*open)(const coll__settings *s, int count, coll__opened *out);

    /* Optional: run the workers, which are all ranks of a job, and free their resources.  NULL: each is a thread. */
    coll_status (*spawn)(int count, coll__worker *workers);
} coll__transport_row;

/* What a program contains. */
typedef struct coll__program {
    const coll__transport_row *const *transports; /* in order of preference; ends with NULL                   */
    const coll__extension *extension;
} coll__program;

/* A rank with default values for its host. */
static coll__opened coll__opened_as(const coll_transport *transport, void *context, int rank, int size, const coll__settings *s)
{
    COLL__ASSERT(rank >= 0 && rank < size && size <= COLL__SIZE_MOST, "transport %s opens rank %d of %d", transport->name, rank,
                 size);
    return (coll__opened){ .transport = transport, .context = context, .rank = rank, .size = size, .local_size = 1,
                           .processors = s->processors, .spin_us = s->config.spin_us, .offloads_all = transport->offload != NULL,
                           .internals = &coll__no_internals, .numbers = s->numbers };
}

/* How a transport admits processes that wait to join (core/session/coll_grow.h). */
typedef struct coll__elastic {
    /* How many are ready, at rank 0, which waits for so many, at most for wait_ms.  -1: a rank has failed before. */
    int    (*waiting)(void *context, int wanted, int wait_ms);

    /* All ranks: a table of `count`, on which the next `shrink` decides, too.  Rank 0 has filled it with those that were ready.
     * NULL: out of memory, or `count` is 0, and the next one is without.  places, at rank 0: of these ranks in the world after
     * the next, in ascending order, or -1: behind the one before; newcomers have the lowest others.  NULL: they are behind. */
    unsigned char *(*table)(void *context, int count, const int *places, size_t *length);

    /* A new context of `shrink`: does it have newcomers, or one from before as rank 0?  Then *out is set, with *status. */
    bool   (*enter)(void *context, coll__opened *out, coll_status *status);
} coll__elastic;

/* Set the rank's place among the ranks of its host. */
static void coll__opened_at(coll__opened *o, int local_rank, int local_size)
{
    COLL__ASSERT(local_rank >= 0 && local_rank < local_size && local_size <= o->size,
                 "rank %d is number %d of %d on its host, of %d", o->rank, local_rank, local_size, o->size);
    o->local_rank = local_rank;
    o->local_size = local_size;
    o->is_crowded = local_size > o->processors;
}

static coll__log coll__log_of(const coll_config *c) { return (coll__log){ c->log_level, c->log, c->log_context }; }

#endif /* COLL_TRANSPORT_REGISTRY_H */
