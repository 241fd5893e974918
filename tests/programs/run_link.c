/* run_link.c - a rank of a job, for test_run.sh: rank 0 prints the numbers by which algorithms are chosen. */
#include "../../coll.h"

#include <stdio.h>

int main(void)
{
    coll_comm *comm = NULL;
    char text[1024];

    if (coll_init(&comm, NULL) || coll_link_text(comm, text, sizeof text) < 0)
        return fprintf(stderr, "run_link: %s\n", coll_error(comm)), 1;
    if (coll_rank(comm) == 0) puts(text);
    coll_free(comm);
    return 0;
}
