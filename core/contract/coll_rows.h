/* coll_rows.h - how a transport is opened: the settings, a row of a table for each transport, and what it gives back. */
#ifndef COLL_ROWS_H
#define COLL_ROWS_H

#include "coll_shape.h"
#include "coll_tuning.h"

enum { COLL__SIZE_MOST = 65536 };

/* Of COLL_ALGORITHM: its length, and the kinds for which it may name one. */
enum { COLL__FORCED_ROOM = COLL__HAS_ENV && COLL__HAS_CHOICE ? 256 : 1,
       COLL__FORCED_KINDS = COLL__HAS_ENV && COLL__HAS_CHOICE ? COLL__KIND_COUNT : 1 };

/* A launcher: the names of the variables by which it tells. */
typedef struct coll__launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
    const char *job;                              /* what names the job on a host; NULL: nothing does         */
    bool        is_strict;                        /* half of this row is a mistake, not somebody else's word  */
    bool        is_of_hosts;                      /* it counts hosts or pods, which may hold several processes */
    const char *where;                            /* tells a person which host is that of rank 0              */
} coll__launcher;

/* What the environment says. */
typedef struct coll__launched {
    const char *source;                           /* the name of the launcher, or "nothing in the environment" */
    const coll__launcher *by;                     /* NULL: none                                               */
    int  rank, size, local_rank, local_size;      /* local_size 0: not said                                   */
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

/* A configuration without defaults left in it. */
typedef struct coll__settings {
    coll_config config;
    int         count;                            /* ranks of this process, config.rank being the first       */
    int         processors;                       /* that this process may use                                */
    coll_status status;                           /* < 0: they make no sense                                  */
    const char *source;                           /* who said the rank: "the configuration", "torchrun", ...  */
    coll__launched launch;                        /* what the environment says, where it was asked            */
    const coll__extension *extension;             /* of this program                                          */
    uint32_t    arithmetic;                       /* of this program: coll__arithmetic                        */
    coll__numbers numbers;                        /* what the tuner is to believe of the wire                 */
    char        forced_text[COLL__FORCED_ROOM];                 /* names of COLL_ALGORITHM, each ended by '\0'              */
    int         forced_at[COLL__FORCED_KINDS];    /* 1 + where that of each kind begins; 0: none              */
} coll__settings;


/* Why one was left out. */
#define COLL__MISSING "this program was compiled without it (COLL_ONLY_TRANSPORTS)"

/* Without which there are no several ranks in each of several processes, and no hub of processes. */
#define COLL__JOINED_WITHOUT (COLL__HAS_TCP && COLL__HAS_THREADS ? "COLL_NO_SHM" : "COLL_ONLY_TRANSPORTS")

/* How a transport goes on with those who are left (coll_transport.shrink). */
#define COLL__SHRINKS(how) (COLL__HAS_SHRINK ? how : NULL)

/* This rank makes no more collectives in a group; group NULL: of all ranks, and close follows.  `made` tells in the form of a
 * head which ones it has made of those of all ranks.  Blames in *failure a rank that has made as many, but other ones, as far as
 * that shows without waiting for anybody, and tells those who are still there. */
typedef coll_status coll__part_fn(void *context, void *group, const unsigned char *made, coll_failure *failure);

/* What a transport of the library does beside its coll_transport: of a peer that leaves or frees a communicator.  Each may be
 * NULL. */
typedef struct coll__internals {
    coll__part_fn *part;

    /* Here is what this rank does, and which communicators it has (coll_activity.h), as long as the context is open. */
    void (*watch)(void *context, coll__session *session);

    /* Has this peer, which lives, freed its communicator with this id, and has all that it sent before come in?  May ask, and
     * know later: it is called again.  In a world with a clock of its own peer -1 is asked about first: is it time to ask? */
    bool (*has_freed)(void *context, int peer, uint64_t id);
} coll__internals;

static const coll__internals coll__no_internals;

/* A rank that is in.  It belongs to whoever has asked for it, who closes the context. */
typedef struct coll__opened {
    const coll_transport *transport;
    void         *context;
    int           rank, size, local_rank, local_size;
    int           processors;                     /* of its host, that the ranks there may use                */
    double        share;                          /* of one, for each rank of the fullest host; 0: these are all there are */
    int           spin_us;                        /* as in coll_config                                        */
    bool          is_crowded;                     /* ranks share processors                                   */
    bool          offloads_all;                   /* the transport takes collectives of all ranks             */
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

/* What a transport is for: which ranks of a world this process may bring, and when it is chosen. */
enum {
    COLL__OPENS_ALL = 1, COLL__OPENS_ONE = 2, COLL__OPENS_SOME = 4,       /* ONE, SOME: there are others elsewhere */
    COLL__WHEN_NAMED = 8,                         /* it is never chosen unasked                               */
    COLL__COUNTS_ITSELF = 16,                     /* it knows rank and size, and the environment is not asked; it is opened with
                                                     settings that make no sense, too, for the others wait for this rank */
    COLL__LEAVES_JOB = 32                         /* ranks that one process makes are all there are, whatever a launcher says */
};

typedef struct coll__transport_row {
    const char *name;                             /* NULL: it cannot be asked for                             */
    const char *missing;                          /* why this program has it not; NULL: it has                */
    unsigned    traits;
    bool      (*settle)(coll_config *c);          /* fill what of the configuration is its own; false: an error, with its
                                                     sentence.  NULL: nothing is                              */

    /* Open ranks config.rank .. config.rank + count - 1.  A negative status, with its sentence: none is open. */
    coll_status (*open)(const coll__settings *s, int count, coll__opened *out);

    /* Optional: run the workers, all ranks of a world, and free what they leave.  NULL: each is a thread. */
    coll_status (*spawn)(int count, coll__worker *workers);
} coll__transport_row;

/* What a program has been compiled with. */
typedef struct coll__program {
    const coll__transport_row *const *transports; /* in the order in which one is chosen that nobody names; NULL ends them */
    const coll__extension *extension;
} coll__program;

/* A rank of whose world and host nothing is known but this. */
static coll__opened coll__opened_as(const coll_transport *transport, void *context, int rank, int size, const coll__settings *s)
{
    COLL__ASSERT(rank >= 0 && rank < size && size <= COLL__SIZE_MOST, "transport %s opens rank %d of %d", transport->name, rank,
                 size);
    return (coll__opened){ .transport = transport, .context = context, .rank = rank, .size = size, .local_size = 1,
                           .processors = s->processors, .spin_us = s->config.spin_us, .offloads_all = transport->offload != NULL,
                           .internals = &coll__no_internals, .numbers = s->numbers };
}

/* Where it is among the ranks of its host. */
static void coll__opened_at(coll__opened *o, int local_rank, int local_size)
{
    COLL__ASSERT(local_rank >= 0 && local_rank < local_size && local_size <= o->size,
                 "rank %d is number %d of %d on its host, of %d", o->rank, local_rank, local_size, o->size);
    o->local_rank = local_rank;
    o->local_size = local_size;
    o->is_crowded = local_size > o->processors;
}

static coll__log coll__log_of(const coll_config *c) { return (coll__log){ c->log_level, c->log, c->log_context }; }

#endif /* COLL_ROWS_H */
