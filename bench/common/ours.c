/* ours.c - see ours.h and library.h.  To be compiled as users compile the library: -O2 and nothing for this processor. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include "library.h"
#include "ours.h"

#include <stdio.h>
#include <stdlib.h>

/* Operation i as one call of the library. */
#define OURS_OP(name, call)                                                                         \
    static void name(void *context, long i)                                                         \
    {                                                                                               \
        const ours *const me = context;                                                             \
        const bench_case *const p = me->part;                                                       \
        coll_comm *const comm = me->comm;                                                           \
                                                                                                    \
        (void)i, (void)p;                                                                           \
        if (call) ours_fail(me);                                                                    \
    }

static _Noreturn void ours_fail(const ours *me)
{
    fprintf(stderr, "ours: %s\n", coll_error(me->comm));
    exit(1);
}

static int root_of(const bench_case *p, long i) { return (int)(i % p->ranks); }

OURS_OP(allreduce, coll_allreduce(comm, p->in, p->out, p->count, COLL_F32, COLL_SUM))
OURS_OP(allreduce_in_place, coll_allreduce(comm, p->out, p->out, p->count, COLL_F32, COLL_SUM))
OURS_OP(broadcast, coll_broadcast(comm, p->out, p->count, COLL_F32, root_of(p, i)))
OURS_OP(reduce, coll_reduce(comm, p->in, p->out, p->count, COLL_F32, COLL_SUM, root_of(p, i)))
OURS_OP(allgather, coll_allgather(comm, p->in, p->out, p->block, COLL_F32))
OURS_OP(reduce_scatter, coll_reduce_scatter(comm, p->in, p->out, p->block, COLL_F32, COLL_SUM))
OURS_OP(alltoall, coll_alltoall(comm, p->in, p->out, p->block, COLL_F32))
OURS_OP(gather, coll_gather(comm, p->in, p->out, p->block, COLL_F32, root_of(p, i)))
OURS_OP(scatter, coll_scatter(comm, p->in, p->out, p->block, COLL_F32, root_of(p, i)))
OURS_OP(scan, coll_scan(comm, p->in, p->out, p->count, COLL_F32, COLL_SUM))
OURS_OP(barrier, coll_barrier(comm))

void (*ours_op(bench_collective collective))(void *context, long i)
{
    static void (*const ops[BENCH_COLLECTIVES])(void *, long) = {
        [BENCH_ALLREDUCE] = allreduce, [BENCH_ALLREDUCE_IN_PLACE] = allreduce_in_place, [BENCH_BROADCAST] = broadcast,
        [BENCH_REDUCE] = reduce, [BENCH_ALLGATHER] = allgather, [BENCH_REDUCE_SCATTER] = reduce_scatter,
        [BENCH_ALLTOALL] = alltoall, [BENCH_GATHER] = gather, [BENCH_SCATTER] = scatter, [BENCH_SCAN] = scan,
        [BENCH_BARRIER] = barrier,
    };

    return ops[collective];
}

void ours_open(int ranks, ours *all)
{
    coll_comm **const comms = calloc((size_t)ranks, sizeof(coll_comm *));

    if (!comms || coll_init_threads(ranks, comms, NULL)) {
        fprintf(stderr, "ours: %s\n", coll_error(NULL));
        exit(1);
    }
    for (int r = 0; r < ranks; r++) all[r] = (ours){ .comm = comms[r] };
    free(comms);
}

bool ours_join(ours *me, int rank, int ranks, const char *address, const char *io, char *why, size_t room)
{
    const coll_config config = { .transport = "tcp", .rank = rank, .size = ranks, .address = address,
                                 .tcp = { .io = io, .share_memory = -1 } };

    *me = (ours){ 0 };
    if (coll_init(&me->comm, &config) == COLL_OK) return true;
    snprintf(why, room, "%s", coll_error(NULL));
    return false;
}

void ours_free(int ranks, ours *all)
{
    for (int r = 0; r < ranks; r++) coll_free(all[r].comm);
}

/* ---- >>library: one rank a process, as a launcher has started them ---- */

static ours library;

void library_open(int *argc, char ***argv, int *rank, int *ranks)
{
    (void)argc, (void)argv;
    if (coll_init(&library.comm, NULL)) {
        fprintf(stderr, "ours: %s\n", coll_error(NULL));
        exit(1);
    }
    *rank = coll_rank(library.comm);
    *ranks = coll_size(library.comm);
}

int library_ways(const bench_case *part, library_way *ways)
{
    library.part = part;
    ways[0] = (library_way){ .op = ours_op(part->collective), .context = &library };
    return 1;
}

void library_close(void)
{
    ours_free(1, &library);
}
