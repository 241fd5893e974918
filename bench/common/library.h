/* library.h: what solo.c and start.c need of a library whose ranks are processes.  ours.c, mpi.c and gloo.cc have it. */
#ifndef BENCH_LIBRARY_H
#define BENCH_LIBRARY_H

#include "cases.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LIBRARY_WAYS = 4 };

/* One way in which the library does a collective; where it has several, each has a name. */
typedef struct library_way {
    const char *name;
    void (*op)(void *context, long i);            /* operation i; an error ends the program                    */
    void *context;
    bool  is_loose;                               /* writes into `out` beside the result                       */
    bool  is_base;                                /* the others are divided by it                              */
} library_way;

/* Join the ranks that a launcher has started; ends the program where that fails. */
void library_open(int *argc, char ***argv, int *rank, int *ranks);

/* The ways to do `part`, which must live and keep its buffers until the next call; 0: the library has no such collective. */
int library_ways(const bench_case *part, library_way *ways);

void library_close(void);

#ifdef __cplusplus
}
#endif

#endif /* BENCH_LIBRARY_H */
