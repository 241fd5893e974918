/* coll_parts.h - transports and parts of the library that a program may leave out, each by a switch for the compiler.
 *
 *   COLL_NO_SIM          the simulator: ranks under a virtual clock
 *   COLL_NO_TCP          ranks that are processes, and all that stands on it: keys, heartbeats, launchers' hosts
 *   COLL_NO_THREADS      ranks that are threads; a process then has one rank, alone or over TCP
 *   COLL_NO_JOINED       several ranks in each of several processes, and whole collectives in memory that processes of one host
 *                        share; left out with either of the two above
 *   COLL_NO_SHM          processes of one host meet over TCP, not in memory
 *   COLL_NO_LANES        one TCP connection to each peer, not several
 *   COLL_NO_URING        TCP by poll alone, as where there is no <liburing.h>; COLL_WITH_URING instead links liburing, which is
 *                        otherwise loaded at run time
 *   COLL_NO_TIERS        kernels for AVX2 and AVX-512: there is one set, for the instructions that the compiler is told of
 *   COLL_NO_RECORDER     the flight recorder: coll_dump, and files when something fails
 *   COLL_NO_BACKGROUND   the thread that moves operations while the program computes; coll_fd
 *   COLL_NO_HIERARCHY    collectives by hosts: on a host, between hosts, on a host
 *
 *   COLL_NO_TUNER        the cost model: algorithms are chosen by counting their messages and bytes; coll_measure, tuning files
 *   COLL_NO_CHOICE       all algorithms but one for each collective, which suits short vectors and few ranks, and with them
 *                        COLL_NO_TUNER and COLL_NO_HIERARCHY; coll_call.algorithm
 *   COLL_NO_MESSAGES     send, recv, sendrecv, and collectives in rounds of messages: what is left is done by threads in the
 *                        memory that they share, with COLL_NO_CHOICE, COLL_NO_NEIGHBORS and COLL_ONLY_TRANSPORTS=threads.
 *                        Where there are no threads it leaves out nothing
 *   COLL_NO_LISTS        coll_allreduce_list
 *   COLL_NO_STRIDES      blocks that are columns of a matrix: coll_call.row, send_stride, recv_stride
 *   COLL_NO_COUNTS       blocks of different lengths: gatherv, scatterv, allgatherv, reduce_scatterv, alltoallv, alltoallw, and
 *                        with them COLL_NO_NEIGHBORS and COLL_NO_HIERARCHY
 *   COLL_NO_SHRINK       coll_shrink
 *   COLL_NO_WATCH        looking after those that one waits for: warnings of who is late, and errors where a rank has freed the
 *                        communicator; a time limit ends the wait for them
 *   COLL_NO_NEIGHBORS    collectives of neighbours, and coll_neighbors
 *   COLL_NO_NETWORKS     COLL_NETWORK, COLL_PORTS, and rank 0 in a file ("file:PATH"): ranks meet at host:port, over whatever
 *                        network leads there.  With it COLL_NO_LAUNCHERS
 *   COLL_NO_LAUNCHERS    variables of the environment that are not our own: what torchrun, MPI, Slurm and others say of ranks,
 *                        hosts and networks.  A process that one of them has started, one of several, is refused until COLL_RANK,
 *                        COLL_SIZE and COLL_ADDR say it
 *   COLL_NO_SECURITY     keys, TLS and sums of what is sent: COLL_KEY, COLL_KEY_FILE and all of COLL_SECURITY but "open" are
 *                        refused, and who listens at a public address has to be told "open"
 *   COLL_NO_ENV          variables of the environment, launchers with them: what coll_config says is all there is
 *   COLL_NO_TEXT         sentences: an error is its status, and coll_error gives that status's name
 *   COLL_NO_ARENA        coll_arena_begin: memory is malloc's or an allocator's of the program
 *   COLL_NO_STDIO        <stdio.h>: coll_dump goes, and with it sentences, the recorder, the simulator and TCP
 *   COLL_NO_OS           a machine without an operating system: no threads, processes, files or clock (core/base/coll_bare.h)
 *
 *   COLL_PORTABLE        what only Linux has (coll_system.h), and with it COLL_NO_SHM and COLL_NO_URING; on other systems it is
 *                        taken unasked
 *   COLL_ONLY_KINDS      a list instead: -DCOLL_ONLY_KINDS=broadcast,allreduce leaves out the other collectives of barrier,
 *                        broadcast, reduce, allreduce, reduce_scatter, scan, gather, scatter, allgather, alltoall and neighbor.
 *                        A name stands for all its forms, as alltoall for alltoallv and alltoallw; barrier,
 *                        allreduce and allgather, which the library needs itself, are in every program, and broadcast and
 *                        alltoall in those with the cost model; so are messages.  By hosts, a sum takes reduce_scatter and
 *                        alltoall, a broadcast scatter, and a reduce gather: these come with them, without COLL_NO_HIERARCHY
 *   COLL_ONLY_TRANSPORTS a list instead: -DCOLL_ONLY_TRANSPORTS=threads,tcp leaves out the others of threads, tcp, joined, sim
 *                        and mpi; joined is there with threads and tcp, and mpi takes COLL_WITH_MPI, too
 *   COLL_SMALL           a few boards on an Ethernet, one rank on each or several by threads: COLL_NO_SIM, COLL_NO_URING,
 *                        COLL_NO_JOINED, COLL_NO_SHM, COLL_NO_LANES, COLL_NO_RECORDER, COLL_NO_BACKGROUND, COLL_NO_TIERS,
 *                        COLL_NO_HIERARCHY, COLL_NO_LISTS, COLL_NO_STRIDES, COLL_NO_COUNTS, COLL_NO_SHRINK, COLL_NO_WATCH,
 *                        COLL_NO_NETWORKS, COLL_NO_STOCHASTIC and COLL_NO_REPRODUCIBLE; of the collectives barrier, broadcast,
 *                        reduce, allreduce, gather, scatter, allgather and alltoall, unless COLL_ONLY_KINDS says others; of the
 *                        types i32, f32, f64 and bf16, unless COLL_ONLY_TYPES does.  Sentences, keys, heartbeats and the cost
 *                        model stay: without the model nobody would know that the wire is slow.  It meets itself, and programs
 *                        with COLL_NO_HIERARCHY; others are told what differs
 *
 *   COLL_TINY            bare metal: COLL_NO_OS, COLL_NO_CHOICE, COLL_NO_LISTS, COLL_NO_STRIDES, COLL_NO_COUNTS, COLL_NO_SHRINK,
 *                        COLL_NO_WATCH, COLL_NO_SCALE, COLL_NO_TIERS, and of the collectives barrier, broadcast, reduce,
 *                        allreduce and allgather, unless COLL_ONLY_KINDS says others; of the types i32 and f32, unless
 *                        COLL_ONLY_TYPES does
 *
 * Which types of elements may go, and what goes with them, is in coll_parts_types.h.
 *
 * What is left out is not compiled, and its file says in its #else what becomes of those who ask for it: COLL_ERR_UNSUPPORTED,
 * and a sentence with the name of the switch. */
#ifndef COLL_PARTS_H
#define COLL_PARTS_H

/* ---- >>profiles ---- */

#if !defined(__linux__) && !defined(COLL_TINY) && !defined(COLL_NO_OS) && !defined(COLL_PORTABLE)
#define COLL_PORTABLE 1
#endif
#if defined(COLL_PORTABLE)
#undef COLL_NO_SHM
#define COLL_NO_SHM 1
#undef COLL_NO_URING
#define COLL_NO_URING 1
#endif

#if defined(COLL_SMALL) || defined(COLL_TINY)
#undef COLL_NO_LISTS
#define COLL_NO_LISTS 1
#undef COLL_NO_STRIDES
#define COLL_NO_STRIDES 1
#undef COLL_NO_COUNTS
#define COLL_NO_COUNTS 1
#undef COLL_NO_SHRINK
#define COLL_NO_SHRINK 1
#undef COLL_NO_WATCH
#define COLL_NO_WATCH 1
#undef COLL_NO_TIERS
#define COLL_NO_TIERS 1
#endif

#if defined(COLL_SMALL)
#undef COLL_NO_SIM
#define COLL_NO_SIM 1
#undef COLL_NO_JOINED
#define COLL_NO_JOINED 1
#undef COLL_NO_SHM
#define COLL_NO_SHM 1
#undef COLL_NO_LANES
#define COLL_NO_LANES 1
#undef COLL_NO_RECORDER
#define COLL_NO_RECORDER 1
#undef COLL_NO_URING
#define COLL_NO_URING 1
#undef COLL_NO_BACKGROUND
#define COLL_NO_BACKGROUND 1
#undef COLL_NO_HIERARCHY
#define COLL_NO_HIERARCHY 1
#undef COLL_NO_NETWORKS
#define COLL_NO_NETWORKS 1
#undef COLL_NO_STOCHASTIC
#define COLL_NO_STOCHASTIC 1
#undef COLL_NO_REPRODUCIBLE
#define COLL_NO_REPRODUCIBLE 1
#if !defined(COLL_ONLY_KINDS)
#define COLL_ONLY_KINDS broadcast, reduce, gather, scatter
#endif
#if !defined(COLL_ONLY_TYPES)
#define COLL_ONLY_TYPES i32, f32, f64, bf16
#endif
#endif

#if defined(COLL_TINY)
#undef COLL_NO_OS
#define COLL_NO_OS 1
#undef COLL_NO_CHOICE
#define COLL_NO_CHOICE 1
#undef COLL_NO_SCALE
#define COLL_NO_SCALE 1
#if !defined(COLL_ONLY_KINDS)
#define COLL_ONLY_KINDS broadcast, reduce
#endif
#if !defined(COLL_ONLY_TYPES)
#define COLL_ONLY_TYPES i32, f32
#endif
#endif

#if defined(COLL_NO_OS)
#undef COLL_NO_THREADS
#define COLL_NO_THREADS 1
#undef COLL_NO_BACKGROUND
#define COLL_NO_BACKGROUND 1
#undef COLL_NO_STDIO
#define COLL_NO_STDIO 1
#undef COLL_NO_ENV
#define COLL_NO_ENV 1
#endif

#if defined(COLL_NO_STDIO)
#undef COLL_NO_TEXT
#define COLL_NO_TEXT 1
#undef COLL_NO_RECORDER
#define COLL_NO_RECORDER 1
#undef COLL_NO_SIM
#define COLL_NO_SIM 1
#undef COLL_NO_TCP
#define COLL_NO_TCP 1
#endif

#if defined(COLL_NO_TIERS) && !defined(COLL__ONE_TIER)
#define COLL__ONE_TIER 1
#endif

/* ---- >>the list: each name is a bit, and a word that is none is 0 ---- */

#if defined(COLL_ONLY_TRANSPORTS)
#define COLL__LISTED_ 32
#define COLL__LISTED_threads 1
#define COLL__LISTED_tcp 2
#define COLL__LISTED_joined 3
#define COLL__LISTED_sim 8
#define COLL__LISTED_mpi 16
#define COLL__LISTED(...) COLL__LISTED_FIVE(__VA_ARGS__, , , , , ,)
#define COLL__LISTED_FIVE(a, b, c, d, e, ...) \
    (COLL__LISTED_##a | COLL__LISTED_##b | COLL__LISTED_##c | COLL__LISTED_##d | COLL__LISTED_##e)
#define COLL__KNOWN(...) COLL__KNOWN_FIVE(__VA_ARGS__, , , , , ,)
#define COLL__KNOWN_FIVE(a, b, c, d, e, ...) \
    (COLL__LISTED_##a && COLL__LISTED_##b && COLL__LISTED_##c && COLL__LISTED_##d && COLL__LISTED_##e)

#if !COLL__KNOWN(COLL_ONLY_TRANSPORTS)
#error "COLL_ONLY_TRANSPORTS is a list of some of threads, tcp, joined, sim and mpi, as in -DCOLL_ONLY_TRANSPORTS=threads,tcp"
#endif
#if !(COLL__LISTED(COLL_ONLY_TRANSPORTS) & COLL__LISTED_mpi)
#define COLL__LEAVES_OUT_MPI 1
#endif
#if !(COLL__LISTED(COLL_ONLY_TRANSPORTS) & 1)
#undef COLL_NO_THREADS
#define COLL_NO_THREADS 1
#endif
#if !(COLL__LISTED(COLL_ONLY_TRANSPORTS) & 2)
#undef COLL_NO_TCP
#define COLL_NO_TCP 1
#endif
#if !(COLL__LISTED(COLL_ONLY_TRANSPORTS) & 8)
#undef COLL_NO_SIM
#define COLL_NO_SIM 1
#endif
#endif

/* ---- >>what one switch takes along ---- */

#if defined(COLL_NO_THREADS) && defined(COLL_NO_MESSAGES)                /* a rank that is alone does what it does in rounds */
#undef COLL_NO_MESSAGES
#endif
#if defined(COLL_NO_MESSAGES)
#undef COLL_NO_TCP
#define COLL_NO_TCP 1
#undef COLL_NO_SIM
#define COLL_NO_SIM 1
#undef COLL_NO_NEIGHBORS
#define COLL_NO_NEIGHBORS 1
#undef COLL_NO_CHOICE
#define COLL_NO_CHOICE 1
#define COLL__LEAVES_OUT_MPI 1
#endif
#if defined(COLL_NO_CHOICE)
#undef COLL_NO_TUNER
#define COLL_NO_TUNER 1
#undef COLL_NO_HIERARCHY
#define COLL_NO_HIERARCHY 1
#endif
#if defined(COLL_NO_COUNTS)
#undef COLL_NO_NEIGHBORS
#define COLL_NO_NEIGHBORS 1
#undef COLL_NO_HIERARCHY
#define COLL_NO_HIERARCHY 1
#endif

#if defined(COLL_NO_COUNTS)
#define COLL__HAS_COUNTS 0
#else
#define COLL__HAS_COUNTS 1
#endif
#if defined(COLL_NO_LISTS)
#define COLL__HAS_LISTS 0
#else
#define COLL__HAS_LISTS 1
#endif
#if defined(COLL_NO_STRIDES)
#define COLL__HAS_STRIDES 0
#else
#define COLL__HAS_STRIDES 1
#endif
#if defined(COLL_NO_MESSAGES)
#define COLL__HAS_MESSAGES 0
#else
#define COLL__HAS_MESSAGES 1
#endif

/* ---- >>kinds: the same for collectives; COLL__HAS_SCAN is 1 or 0 ---- */

#define COLL__KINDS_ALL 2047
#if defined(COLL_ONLY_KINDS)
#define COLL__ASKED_ 4096
#define COLL__ASKED_barrier 1
#define COLL__ASKED_broadcast 2
#define COLL__ASKED_reduce 4
#define COLL__ASKED_allreduce 8
#define COLL__ASKED_reduce_scatter 16
#define COLL__ASKED_scan 32
#define COLL__ASKED_gather 64
#define COLL__ASKED_scatter 128
#define COLL__ASKED_allgather 256
#define COLL__ASKED_alltoall 512
#define COLL__ASKED_neighbor 1024
#define COLL__ASKED(...) COLL__ASKED_MANY(__VA_ARGS__, , , , , , , , , , , ,)
#define COLL__ASKED_MANY(a, b, c, d, e, f, g, h, i, j, k, ...) \
    (COLL__ASKED_##a | COLL__ASKED_##b | COLL__ASKED_##c | COLL__ASKED_##d | COLL__ASKED_##e | COLL__ASKED_##f \
     | COLL__ASKED_##g | COLL__ASKED_##h | COLL__ASKED_##i | COLL__ASKED_##j | COLL__ASKED_##k)
#define COLL__ALL_KNOWN(...) COLL__ALL_KNOWN_MANY(__VA_ARGS__, , , , , , , , , , , ,)
#define COLL__ALL_KNOWN_MANY(a, b, c, d, e, f, g, h, i, j, k, ...) \
    (COLL__ASKED_##a && COLL__ASKED_##b && COLL__ASKED_##c && COLL__ASKED_##d && COLL__ASKED_##e && COLL__ASKED_##f \
     && COLL__ASKED_##g && COLL__ASKED_##h && COLL__ASKED_##i && COLL__ASKED_##j && COLL__ASKED_##k)
#if !COLL__ALL_KNOWN(COLL_ONLY_KINDS)
#error "COLL_ONLY_KINDS is a list of collectives (core/base/coll_parts.h), as in -DCOLL_ONLY_KINDS=broadcast,allreduce"
#endif
#define COLL__KINDS_ASKED COLL__ASKED(COLL_ONLY_KINDS)
#else
#define COLL__KINDS_ASKED COLL__KINDS_ALL
#endif
#if defined(COLL_NO_NEIGHBORS)
#define COLL__KINDS_THERE (COLL__KINDS_ASKED & 1023)
#define COLL__SWITCH_OF_KIND(kind) ((kind) >= COLL_NEIGHBOR_ALLGATHER ? "COLL_NO_NEIGHBORS" : "COLL_ONLY_KINDS")
#else
#define COLL__KINDS_THERE COLL__KINDS_ASKED
#define COLL__SWITCH_OF_KIND(kind) "COLL_ONLY_KINDS"
#endif

#if COLL__KINDS_THERE & 2 || !defined(COLL_NO_TUNER)
#define COLL__HAS_BROADCAST 1
#else
#define COLL__HAS_BROADCAST 0
#endif
#if COLL__KINDS_THERE & 4
#define COLL__HAS_REDUCE 1
#else
#define COLL__HAS_REDUCE 0
#endif
#if COLL__KINDS_THERE & 16 || !defined(COLL_NO_HIERARCHY)
#define COLL__HAS_REDUCE_SCATTER 1
#else
#define COLL__HAS_REDUCE_SCATTER 0
#endif
#if COLL__KINDS_THERE & 32
#define COLL__HAS_SCAN 1
#else
#define COLL__HAS_SCAN 0
#endif
#if COLL__KINDS_THERE & 64 || (COLL__HAS_REDUCE && !defined(COLL_NO_HIERARCHY))
#define COLL__HAS_GATHER 1
#else
#define COLL__HAS_GATHER 0
#endif
#if COLL__KINDS_THERE & 128 || (COLL__HAS_BROADCAST && !defined(COLL_NO_HIERARCHY))
#define COLL__HAS_SCATTER 1
#else
#define COLL__HAS_SCATTER 0
#endif
#if COLL__KINDS_THERE & 1536 || !defined(COLL_NO_TUNER) || !defined(COLL_NO_HIERARCHY)    /* neighbours are made by an exchange */
#define COLL__HAS_ALLTOALL 1
#else
#define COLL__HAS_ALLTOALL 0
#endif
#if COLL__KINDS_THERE & 1024
#define COLL__HAS_NEIGHBOR 1
#else
#define COLL__HAS_NEIGHBOR 0
#endif
#define COLL__HAS_BARRIER 1
#define COLL__HAS_ALLREDUCE 1
#define COLL__HAS_ALLGATHER 1

/* ---- >>what follows ---- */

#if (defined(COLL_NO_TCP) || defined(COLL_NO_THREADS))
#undef COLL_NO_JOINED
#define COLL_NO_JOINED 1
#endif

#if defined(COLL_NO_URING)                        /* in other words: why                                     */
#define COLL__URING_LACK "compiled without liburing (COLL_NO_URING)"
#elif !defined(COLL_WITH_URING) && defined(__has_include)
#if !__has_include(<liburing.h>)
#define COLL_NO_URING 1
#define COLL__URING_LACK "compiled without liburing, whose <liburing.h> was not found"
#endif
#endif

#if defined(COLL_NO_NETWORKS)
#define COLL__HAS_NETWORKS 0
#undef COLL_NO_LAUNCHERS
#define COLL_NO_LAUNCHERS 1
#else
#define COLL__HAS_NETWORKS 1
#endif

#if defined(COLL_NO_SHM)
#define COLL__HAS_SHM 0
#else
#define COLL__HAS_SHM 1
#endif

#if defined(COLL_NO_SHM) || defined(COLL_NO_JOINED)
#define COLL__HAS_HUB 0                           /* of several processes                                     */
#else
#define COLL__HAS_HUB 1
#endif

#if defined(COLL_NO_TCP)                          /* whose row has options of its own in coll_config          */
#define COLL__HAS_OPTIONS 0
#else
#define COLL__HAS_OPTIONS 1
#endif

#if defined(COLL_NO_LANES)
#define COLL__HAS_LANES 0
#else
#define COLL__HAS_LANES 1
#endif

/* What all ranks must have, or all must lack: without it other messages are sent, and sums are grouped in another way.  These
 * bits go into the hello, beside those of the arithmetic. */
#define COLL__LACKS_HIERARCHY 0x10000
#define COLL__LACKS_TUNER 0x20000
#define COLL__LACKS_CHOICE 0x40000
#if defined(COLL_NO_CHOICE)
#define COLL__LACKS (COLL__LACKS_HIERARCHY | COLL__LACKS_TUNER | COLL__LACKS_CHOICE)
#elif defined(COLL_NO_HIERARCHY) && defined(COLL_NO_TUNER)
#define COLL__LACKS (COLL__LACKS_HIERARCHY | COLL__LACKS_TUNER)
#elif defined(COLL_NO_HIERARCHY)
#define COLL__LACKS COLL__LACKS_HIERARCHY
#elif defined(COLL_NO_TUNER)
#define COLL__LACKS COLL__LACKS_TUNER
#else
#define COLL__LACKS 0
#endif

#include "coll_parts_types.h"

/* Is anything left out?  Then there are functions that nobody calls. */
#if defined(COLL_NO_SIM) || defined(COLL_NO_TCP) || defined(COLL_NO_THREADS) || defined(COLL_NO_JOINED) || defined(COLL_NO_SHM) \
    || defined(COLL_NO_LANES) || defined(COLL_NO_RECORDER) || defined(COLL_NO_BACKGROUND) || defined(COLL_NO_HIERARCHY) \
    || defined(COLL_NO_LISTS) || defined(COLL_NO_STRIDES) || defined(COLL_NO_COUNTS) || defined(COLL_NO_SHRINK) \
    || defined(COLL_NO_WATCH) \
    || defined(COLL_NO_TUNER) || defined(COLL_NO_ENV) || defined(COLL_NO_TEXT) || defined(COLL_NO_ARENA) \
    || COLL__KINDS_THERE != COLL__KINDS_ALL || COLL__TYPES_THERE != COLL__TYPES_ALL || defined(COLL_NO_STOCHASTIC) \
    || defined(COLL_NO_REPRODUCIBLE) || defined(COLL_NO_SCALE) || defined(COLL_NO_LAUNCHERS) || defined(COLL_NO_NETWORKS) \
    || defined(COLL_NO_SECURITY)
#define COLL__LEAVES_OUT 1
#endif

#endif /* COLL_PARTS_H */
