/* coll_parts.h - transports and parts of the library that a program may leave out, each by a switch for the compiler.
 *
 *   COLL_NO_SIM          the simulator: ranks under a virtual clock
 *   COLL_NO_TCP          ranks that are processes, and all that stands on it: keys, heartbeats, launchers' hosts
 *   COLL_NO_THREADS      ranks that are threads; a process then has one rank, alone or over TCP
 *   COLL_NO_JOINED       several ranks in each of several processes; left out with either of the two above
 *   COLL_NO_SHM          processes of one host meet over TCP, not in memory
 *   COLL_NO_LANES        one TCP connection to each peer, not several
 *   COLL_NO_URING        TCP by poll alone
 *   COLL_NO_RECORDER     the flight recorder: coll_dump, and files when something fails
 *   COLL_NO_BACKGROUND   the thread that moves operations while the program computes; coll_fd
 *   COLL_NO_HIERARCHY    collectives by hosts: on a host, between hosts, on a host
 *
 *   COLL_PORTABLE        what only Linux has (coll_system.h), and with it COLL_NO_SHM and COLL_NO_URING; on other systems it is
 *                        taken unasked
 *   COLL_ONLY_TRANSPORTS a list instead: -DCOLL_ONLY_TRANSPORTS=threads,tcp leaves out the others of threads, tcp, joined, sim
 *                        and mpi; joined is there with threads and tcp, and mpi takes COLL_WITH_MPI, too
 *   COLL_SMALL           threads and TCP by poll, and kernels for one set of instructions: COLL_NO_SIM, COLL_NO_URING and
 *                        COLL_NO_TIERS
 *
 * What is left out is not compiled, and its file says in its #else what becomes of those who ask for it: COLL_ERR_UNSUPPORTED,
 * and a sentence with the name of the switch. */
#ifndef COLL_PARTS_H
#define COLL_PARTS_H

#include "coll_system.h"

/* ---- >>profiles ---- */

#if defined(COLL_PORTABLE)
#if !defined(COLL_NO_SHM)
#define COLL_NO_SHM 1
#endif
#if !defined(COLL_NO_URING)
#define COLL_NO_URING 1
#endif
#endif
#if defined(COLL_SMALL)
#if !defined(COLL_NO_SIM)
#define COLL_NO_SIM 1
#endif
#if !defined(COLL_NO_URING)
#define COLL_NO_URING 1
#endif
#if !defined(COLL_NO_TIERS)
#define COLL_NO_TIERS 1
#endif
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
#if !(COLL__LISTED(COLL_ONLY_TRANSPORTS) & 1) && !defined(COLL_NO_THREADS)
#define COLL_NO_THREADS 1
#endif
#if !(COLL__LISTED(COLL_ONLY_TRANSPORTS) & 2) && !defined(COLL_NO_TCP)
#define COLL_NO_TCP 1
#endif
#if !(COLL__LISTED(COLL_ONLY_TRANSPORTS) & 8) && !defined(COLL_NO_SIM)
#define COLL_NO_SIM 1
#endif
#endif

/* ---- >>what follows ---- */

#if (defined(COLL_NO_TCP) || defined(COLL_NO_THREADS)) && !defined(COLL_NO_JOINED)
#define COLL_NO_JOINED 1
#endif

#if defined(COLL_NO_SHM)
enum { COLL__HAS_SHM = 0 };
#else
enum { COLL__HAS_SHM = 1 };
#endif

#if defined(COLL_NO_LANES)
enum { COLL__HAS_LANES = 0 };
#else
enum { COLL__HAS_LANES = 1 };
#endif

/* What all ranks must have, or all must lack: without it other messages are sent, and sums are grouped in another way.  These
 * bits go into the hello, beside those of the arithmetic. */
enum { COLL__LACKS_HIERARCHY = 0x10000 };
#if defined(COLL_NO_HIERARCHY)
enum { COLL__LACKS = COLL__LACKS_HIERARCHY };
#else
enum { COLL__LACKS = 0 };
#endif

/* Whoever has left something out has functions that nobody calls any more: the compiler drops them, and need not tell. */
#if defined(COLL_NO_SIM) || defined(COLL_NO_TCP) || defined(COLL_NO_THREADS) || defined(COLL_NO_JOINED) || defined(COLL_NO_SHM) \
    || defined(COLL_NO_LANES) || defined(COLL_NO_RECORDER) || defined(COLL_NO_BACKGROUND) || defined(COLL_NO_HIERARCHY)
#define COLL__LEAVES_OUT 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-const-variable"
#endif

#endif /* COLL_PARTS_H */
