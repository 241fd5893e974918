/* coll_rows.h - how a transport is opened: a row of a table for each, and what it gives back. */
#ifndef COLL_ROWS_H
#define COLL_ROWS_H

#include "coll_options.h"
#include "coll_settings.h"

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
    coll__part_fn *part;                          /* NULL: nothing is compared                                 */
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
    const coll__option *options;                  /* what of the configuration is its own; NULL: nothing is   */

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
                           .numbers = s->numbers };
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
