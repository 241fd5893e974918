/* ours.h: the collectives of cases.h by coll.h, between threads. */
#ifndef BENCH_OURS_H
#define BENCH_OURS_H

#include "cases.h"

struct coll_comm;

typedef struct ours {
    struct coll_comm *comm;
    const bench_case *part;
} ours;

/* All ranks' communicators; ends the program where there are none. */
void ours_open(int ranks, ours *all);
void ours_free(int ranks, ours *all);

/* The operation of a collective; its context is a rank's `ours`.  A call that fails ends the program. */
void (*ours_op(bench_collective collective))(void *context, long i);

#endif /* BENCH_OURS_H */
