/* ranks.h - the ranks of a program: a board each (COLL_TINY), or threads of this machine.  The program defines its type `job`,
 * what a rank has, and the function that each runs. */
#ifndef RANKS_H
#define RANKS_H

#include <stdio.h>
#include <stdlib.h>

static int work(coll_comm *comm, job *j);         /* 0: all is well                                           */

#if defined(COLL_TINY)
#if !defined(BARE_MEMORY)
#define BARE_MEMORY (32 << 10)                    /* bytes; the used part is printed at the end               */
#endif
#include "uart.h"
#include "board.h"

/* The arguments are RANK, SIZE and NOISE: so many of 65536 received bytes are lost or changed.  A real board would know its rank
 * by a switch, or by its program. */
int main(int argc, char **argv)
{
    static job mine;
    static uart_world world;
    static unsigned char memory[BARE_MEMORY];     /* all that the library has: no malloc is linked            */
    coll_comm *comm;
    int number[3] = { 0 };

    for (int i = 0; i < 3 && argc > 3; i++) number[i] = atoi(argv[argc - 3 + i]);
    world.rank = number[0], world.size = number[1];
    if (world.size < 1 || world.size > UART_RANKS || world.rank < 0 || world.rank >= world.size || number[2] < 0)
        return printf("usage: RANK SIZE NOISE, of 1 to %d ranks\n", UART_RANKS), 2;
    board_begin((uint32_t)number[2], (uint32_t)world.rank + 1);
    const coll_config config = { .allocator = coll_arena_begin(memory, sizeof memory) };
    const coll_status status = coll_init_custom(&uart_transport, &world, world.rank, world.size, &comm, &config);
    if (status) return printf("rank %d of %d: %s\n", world.rank, world.size, coll_error(NULL)), 1;
    const unsigned opened = (unsigned)coll_arena_most(config.allocator);       /* before its first call            */
    const int result = work(comm, &mine);
    coll_free(comm);
    const size_t used = coll_arena_most(config.allocator);
    if (coll_arena_end(config.allocator)) return printf("rank %d: memory lost\n", world.rank), 1;
    printf("rank %d used: stack %u, communicator %u, with all buffers %u, lines %u bytes; %lu pieces sent, %lu of them again, "
           "%lu frames broken\n", world.rank, (unsigned)board_stack(), opened, (unsigned)used,
           (unsigned)(sizeof world + sizeof board), (unsigned long)world.pieces, (unsigned long)world.repeated,
           (unsigned long)world.bad);
    return result;
}

#else

static int worker(coll_comm *comm, void *jobs) { return work(comm, (job *)jobs + coll_rank(comm)); }

/* The argument is how many. */
int main(int argc, char **argv)
{
    const int size = argc > 1 ? atoi(argv[1]) : 4;
    static job jobs[64];

    if (size < 1 || size > 64) return printf("usage: RANKS, 1 to 64\n"), 2;
    const int result = coll_spawn(size, worker, jobs, NULL);
    return result < 0 ? printf("%s\n", coll_error(NULL)), 1 : result;
}

#endif

#endif /* RANKS_H */
