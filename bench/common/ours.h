/* ours.h: the collectives of cases.h by coll.h, between threads and between processes. */
#ifndef BENCH_OURS_H
#define BENCH_OURS_H

#include "cases.h"

struct coll_comm;

typedef struct ours {
    struct coll_comm *comm;
    const bench_case *part;
} ours;

/* The communicators of all ranks, which are threads of this process; ends the program where there are none. */
void ours_open(int ranks, ours *all);

/* That of one rank of several processes, which meet at `address` and are joined by TCP, also on one host; io: "auto", "uring" or
 * "poll".  False, with the reason in `why`: not to be had. */
bool ours_join(ours *me, int rank, int ranks, const char *address, const char *io, char *why, size_t room);

void ours_free(int ranks, ours *all);

/* The operation of a collective; its context is a rank's `ours`.  A call that fails ends the program. */
void (*ours_op(bench_collective collective))(void *context, long i);

#endif /* BENCH_OURS_H */
