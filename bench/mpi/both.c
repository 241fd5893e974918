/* both.c - see library.h: MPI called directly, and through coll.h, side by side in one job.
 *
 * common/mpi.c and common/ours.c are compiled for this with other names for what both define; ours.c joins by COLL_TRANSPORT=mpi,
 * and finds MPI initialised. */
#define _DEFAULT_SOURCE 1
#include "../common/library.h"

#include <stdio.h>
#include <stdlib.h>

void mpi_library_open(int *argc, char ***argv, int *rank, int *ranks);
int  mpi_library_ways(const bench_case *part, library_way *ways);
void mpi_library_close(void);
void ours_library_open(int *argc, char ***argv, int *rank, int *ranks);
int  ours_library_ways(const bench_case *part, library_way *ways);
void ours_library_close(void);

void library_open(int *argc, char ***argv, int *rank, int *ranks)
{
    int same[2] = { 0, 0 };

    setenv("COLL_TRANSPORT", "mpi", 1);
    mpi_library_open(argc, argv, rank, ranks);
    ours_library_open(argc, argv, &same[0], &same[1]);
    if (same[0] == *rank && same[1] == *ranks) return;
    fprintf(stderr, "MPI says rank %d of %d, the library %d of %d\n", *rank, *ranks, same[0], same[1]);
    exit(1);
}

int library_ways(const bench_case *part, library_way *ways)
{
    const int direct = mpi_library_ways(part, ways), ours = ours_library_ways(part, ways + direct);

    for (int i = 0; i < direct; i++) ways[i].name = "direct", ways[i].is_base = true;
    for (int i = direct; i < direct + ours; i++) ways[i].name = "coll";
    return direct + ours;
}

void library_close(void)
{
    ours_library_close();
    mpi_library_close();
}
