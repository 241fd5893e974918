/* coll_features.h - which parts of the library are compiled: profiles, lists and switches.  Without any of them all parts are.
 *
 * Set them with -D, or in a file: -DCOLL_CONFIG_FILE='"my_coll.h"' is included before anything else.  A switch is set if it is
 * defined.  Switches defined as 0, removed switches and contradictions are errors.
 *
 *   profile                transports         collectives                                           types
 *   COLL_LEAST             threads            allreduce                                             f32
 *   COLL_SMALL             threads, tcp, mpi  broadcast, reduce, gather, scatter                    i32, f32, f64, bf16
 *   COLL_TINY              the program's own  broadcast, reduce                                     i32, f32
 *
 *   Each also has barrier, allreduce and allgather.  A list of the program replaces the profile's.
 *   COLL_LEAST sets COLL_NO_CHOICE, COLL_NO_ENV and COLL_NO_TEXT, and has no messages: no send, recv and coll_create.
 *   COLL_SMALL sets COLL_NO_SHM, COLL_NO_URING and COLL_NO_NETWORKS.
 *   COLL_TINY sets COLL_NO_OS and COLL_NO_CHOICE, and has no coll_call.scale.  Its sizes are small (coll_sizes.h).
 *   All three set COLL_NO_COUNTS, COLL_NO_SHRINK and COLL_NO_TIERS, and leave out parts that have no switch: several
 *   connections to a peer, the flight recorder, progress in the background, coll_allreduce_list, blocks with strides, warnings
 *   that name late ranks, errors for freed communicators, stochastic rounding, reproducible sums.
 *
 *   list                   as in -DCOLL_ONLY_TRANSPORTS=threads,tcp
 *   COLL_ONLY_TRANSPORTS   of threads, tcp, sim and mpi; hybrid stands for threads,tcp; mpi takes COLL_WITH_MPI, too
 *   COLL_ONLY_KINDS        of barrier, broadcast, reduce, allreduce, reduce_scatter, scan, gather, scatter, allgather, alltoall
 *                          and neighbor.  A name includes all its forms: alltoall includes alltoallv and alltoallw.  The
 *                          library itself needs barrier, allreduce and allgather; with hierarchies reduce_scatter and
 *                          alltoall, scatter for a broadcast, gather for a reduce
 *   COLL_ONLY_TYPES        of the names that coll_type_name gives (coll_feature_types.h)
 *
 *   switch                 leaves out
 *   COLL_NO_CHOICE         all algorithms but one for each collective, the cost model, tuning files, coll_call.algorithm; and
 *                          what COLL_NO_HIERARCHY leaves out
 *   COLL_NO_COUNTS         blocks of different lengths: gatherv, scatterv, allgatherv, reduce_scatterv, alltoallv, alltoallw,
 *                          collectives of neighbors; and what COLL_NO_HIERARCHY leaves out
 *   COLL_NO_ENV            environment variables: coll_config has all settings
 *   COLL_NO_HIERARCHY      hierarchical collectives
 *   COLL_NO_MALLOC         malloc: all memory comes from coll_config.allocator
 *   COLL_NO_NETWORKS       COLL_NETWORK, COLL_PORTS, rank 0 in a file ("file:PATH"), and the variables of launchers
 *   COLL_NO_OS             the operating system: threads, processes, files, the clock (coll_system_none.h), <stdio.h>; and what
 *                          COLL_NO_ENV and COLL_NO_TEXT leave out.  The program supplies the transport
 *   COLL_NO_SECURITY       keys, TLS and checksums of messages
 *   COLL_NO_SHM            shared memory between processes, and several ranks in each of several processes
 *   COLL_NO_SHRINK         coll_shrink
 *   COLL_NO_TEXT           error sentences: coll_error returns the name of the status
 *   COLL_NO_TIERS          kernels for AVX2 and AVX-512
 *   COLL_NO_URING          io_uring: TCP uses poll, as without <liburing.h>
 *
 *   COLL_PORTABLE          what only Linux has (coll_system.h), shared memory and io_uring; set on other systems
 *
 * Calling a part that was left out returns COLL_ERR_UNSUPPORTED; the error names the profile, list or switch. */
#ifndef COLL_FEATURES_H
#define COLL_FEATURES_H

#if defined(COLL_CONFIG_FILE)
#include COLL_CONFIG_FILE
#endif

/* ---- >>detection of switches ---- */

/* COLL__UNSET(COLL_NO_X) is 1 if COLL_NO_X is not defined, and 0 if it is; 2, which is refused, if it is defined as 0. */
#define COLL__UNSET(value) COLL__UNSET_AS(value)
#define COLL__UNSET_AS(value) COLL__UNSET_##value
#define COLL__UNSET_ 0
#define COLL__UNSET_1 0
#define COLL__UNSET_0 2
#define COLL__UNSET_COLL_LEAST 1
#define COLL__UNSET_COLL_SMALL 1
#define COLL__UNSET_COLL_TINY 1
#define COLL__UNSET_COLL_PORTABLE 1
#define COLL__UNSET_COLL_NO_CHOICE 1
#define COLL__UNSET_COLL_NO_COUNTS 1
#define COLL__UNSET_COLL_NO_ENV 1
#define COLL__UNSET_COLL_NO_HIERARCHY 1
#define COLL__UNSET_COLL_NO_MALLOC 1
#define COLL__UNSET_COLL_NO_NETWORKS 1
#define COLL__UNSET_COLL_NO_OS 1
#define COLL__UNSET_COLL_NO_SECURITY 1
#define COLL__UNSET_COLL_NO_SHM 1
#define COLL__UNSET_COLL_NO_SHRINK 1
#define COLL__UNSET_COLL_NO_TEXT 1
#define COLL__UNSET_COLL_NO_TIERS 1
#define COLL__UNSET_COLL_NO_URING 1
#define COLL__UNSET_COLL_WITH_MPI 1
#define COLL__UNSET_COLL_WITH_NCCL 1
#define COLL__UNSET_COLL_WITH_OPENSSL 1
#define COLL__UNSET_COLL_WITH_URING 1

#if (COLL__UNSET(COLL_LEAST) | COLL__UNSET(COLL_SMALL) | COLL__UNSET(COLL_TINY) | COLL__UNSET(COLL_PORTABLE) \
     | COLL__UNSET(COLL_NO_CHOICE) | COLL__UNSET(COLL_NO_COUNTS) | COLL__UNSET(COLL_NO_ENV) | COLL__UNSET(COLL_NO_HIERARCHY) \
     | COLL__UNSET(COLL_NO_MALLOC) | COLL__UNSET(COLL_NO_NETWORKS) | COLL__UNSET(COLL_NO_OS) | COLL__UNSET(COLL_NO_SECURITY) \
     | COLL__UNSET(COLL_NO_SHM) | COLL__UNSET(COLL_NO_SHRINK) | COLL__UNSET(COLL_NO_TEXT) | COLL__UNSET(COLL_NO_TIERS) \
     | COLL__UNSET(COLL_NO_URING) | COLL__UNSET(COLL_WITH_MPI) | COLL__UNSET(COLL_WITH_NCCL) | COLL__UNSET(COLL_WITH_OPENSSL) \
     | COLL__UNSET(COLL_WITH_URING)) & 2
#error "a profile or a switch (COLL_NO_..., COLL_WITH_..., COLL_PORTABLE) is defined as 0, which sets it: do not define it"
#endif

/* ---- >>switches that 0.3 removed ---- */

#if defined(COLL_NO_SIM) || defined(COLL_NO_TCP) || defined(COLL_NO_THREADS) || defined(COLL_NO_JOINED) \
    || defined(COLL_NO_MIXED) || defined(COLL_NO_FP8) || defined(COLL_NO_MX) || defined(COLL_NO_COMPLEX) \
    || defined(COLL_NO_PAIRS) || defined(COLL_NO_INT8_16) || defined(COLL_NO_NEIGHBORS) || defined(COLL_NO_TUNER) \
    || defined(COLL_NO_LAUNCHERS) || defined(COLL_NO_STDIO) || defined(COLL_NO_MESSAGES) || defined(COLL_NO_LANES) \
    || defined(COLL_NO_RECORDER) || defined(COLL_NO_BACKGROUND) || defined(COLL_NO_LISTS) || defined(COLL_NO_STRIDES) \
    || defined(COLL_NO_WATCH) || defined(COLL_NO_STOCHASTIC) || defined(COLL_NO_REPRODUCIBLE) || defined(COLL_NO_SCALE) \
    || defined(COLL_NO_ARENA)
#error "a switch COLL_NO_... is set that was removed: use COLL_ONLY_TRANSPORTS, COLL_ONLY_TYPES, COLL_ONLY_KINDS, a profile \
(COLL_LEAST, COLL_SMALL, COLL_TINY) or another switch (coll_features.h)"
#endif

/* ---- >>profiles ---- */

#define COLL__IS_LEAST (!COLL__UNSET(COLL_LEAST))
#define COLL__IS_SMALL (!COLL__UNSET(COLL_SMALL))
#define COLL__IS_TINY (!COLL__UNSET(COLL_TINY))
#define COLL__IS_WHOLE (!COLL__IS_LEAST && !COLL__IS_SMALL && !COLL__IS_TINY)     /* no profile               */
#if COLL__IS_LEAST
#define COLL__PROFILE "COLL_LEAST"
#elif COLL__IS_SMALL
#define COLL__PROFILE "COLL_SMALL"
#else
#define COLL__PROFILE "COLL_TINY"
#endif

/* ---- >>parts: 1 if compiled ---- */

#define COLL__HAS_OS (COLL__UNSET(COLL_NO_OS) && !COLL__IS_TINY)
#define COLL__HAS_CHOICE (COLL__UNSET(COLL_NO_CHOICE) && !COLL__IS_LEAST && !COLL__IS_TINY)
#define COLL__HAS_COUNTS (COLL__UNSET(COLL_NO_COUNTS) && COLL__IS_WHOLE)
#define COLL__HAS_ENV (COLL__UNSET(COLL_NO_ENV) && COLL__HAS_OS && !COLL__IS_LEAST)
#define COLL__HAS_HIERARCHY (COLL__UNSET(COLL_NO_HIERARCHY) && COLL__HAS_CHOICE && COLL__HAS_COUNTS)
#define COLL__HAS_MALLOC COLL__UNSET(COLL_NO_MALLOC)
#define COLL__HAS_MESSAGES (!COLL__IS_LEAST)      /* without, the transport executes every collective         */
#define COLL__HAS_NETWORKS (COLL__UNSET(COLL_NO_NETWORKS) && !COLL__IS_SMALL)
#define COLL__HAS_SCALE (!COLL__IS_TINY)
#define COLL__HAS_SECURITY COLL__UNSET(COLL_NO_SECURITY)
#define COLL__HAS_LEAVES COLL__IS_WHOLE
#define COLL__HAS_SHRINK (COLL__UNSET(COLL_NO_SHRINK) && COLL__IS_WHOLE)
#define COLL__HAS_TEXT (COLL__UNSET(COLL_NO_TEXT) && COLL__HAS_OS && !COLL__IS_LEAST)
#define COLL__HAS_RECORDER (COLL__IS_WHOLE && COLL__HAS_OS)
#define COLL__HAS_BACKGROUND (COLL__IS_WHOLE && COLL__HAS_OS)
#define COLL__HAS_HYBRID (COLL__HAS_TCP && COLL__HAS_THREADS && COLL__UNSET(COLL_NO_SHM) && !COLL__IS_SMALL)
#define COLL__HAS_SHM (COLL__UNSET(COLL_NO_SHM) && COLL__UNSET(COLL_PORTABLE) && !COLL__IS_SMALL)
#define COLL__HAS_DOMAIN (COLL__HAS_SHM && COLL__HAS_HYBRID)          /* domains of several processes         */

#if COLL__HAS_LEAVES                              /* the tree of a codec or a round; NULL: one input of each rank */
#define COLL__LEAVES_OF(it) ((const coll__leaves *)(it)->leaves)
#else
#define COLL__LEAVES_OF(it) ((void)(it), (const coll__leaves *)NULL)
#endif

/* ---- >>contradictions ---- */

#if COLL__IS_LEAST + COLL__IS_SMALL + COLL__IS_TINY > 1
#error "COLL_LEAST, COLL_SMALL and COLL_TINY exclude one another: choose one"
#endif
#if defined(COLL_NO_OS) && (COLL__IS_LEAST || COLL__IS_SMALL)
#error "COLL_LEAST and COLL_SMALL need an operating system: use COLL_TINY, or COLL_NO_OS alone"
#endif
#if defined(COLL_ONLY_TRANSPORTS) && !COLL__HAS_OS
#error "COLL_ONLY_TRANSPORTS does not go with COLL_TINY and COLL_NO_OS: without an operating system the transport is your own"
#endif
#if defined(COLL_WITH_URING) && (defined(COLL_NO_URING) || defined(COLL_PORTABLE) || COLL__IS_SMALL)
#error "COLL_WITH_URING does not go with COLL_NO_URING, COLL_SMALL and COLL_PORTABLE, which leave out io_uring"
#endif
#if defined(COLL_WITH_OPENSSL) && !COLL__HAS_SECURITY
#error "COLL_WITH_OPENSSL does not go with COLL_NO_SECURITY, which leaves out TLS"
#endif

/* ---- >>defaults of profiles, derived settings ---- */

#if COLL__IS_LEAST && !defined(COLL_ONLY_TRANSPORTS)
#define COLL_ONLY_TRANSPORTS threads
#elif COLL__IS_SMALL && !defined(COLL_ONLY_TRANSPORTS)
#define COLL_ONLY_TRANSPORTS threads, tcp, mpi
#endif
#if COLL__IS_LEAST && !defined(COLL_ONLY_KINDS)
#define COLL_ONLY_KINDS allreduce
#elif COLL__IS_SMALL && !defined(COLL_ONLY_KINDS)
#define COLL_ONLY_KINDS broadcast, reduce, gather, scatter
#elif COLL__IS_TINY && !defined(COLL_ONLY_KINDS)
#define COLL_ONLY_KINDS broadcast, reduce
#endif
#if COLL__IS_LEAST && !defined(COLL_ONLY_TYPES)
#define COLL_ONLY_TYPES f32
#elif COLL__IS_SMALL && !defined(COLL_ONLY_TYPES)
#define COLL_ONLY_TYPES i32, f32, f64, bf16
#elif COLL__IS_TINY && !defined(COLL_ONLY_TYPES)
#define COLL_ONLY_TYPES i32, f32
#endif
#if !defined(__linux__) && !defined(COLL_PORTABLE) && COLL__HAS_OS
#define COLL_PORTABLE 1
#endif

#if (defined(COLL_NO_TIERS) || !COLL__IS_WHOLE) && !defined(COLL__ONE_TIER)
#define COLL__ONE_TIER 1
#endif

#if defined(COLL_NO_URING) || defined(COLL_PORTABLE) || COLL__IS_SMALL
#define COLL__HAS_URING 0
#define COLL__URING_LACK "compiled without liburing (COLL_NO_URING)"
#elif !defined(COLL_WITH_URING) && defined(__has_include)
#if !__has_include(<liburing.h>)
#define COLL__HAS_URING 0
#define COLL__URING_LACK "compiled without liburing, whose <liburing.h> was not found"
#endif
#endif
#if !defined(COLL__HAS_URING)
#define COLL__HAS_URING 1
#endif

/* Parts that all ranks must have, or all lack: without them messages and sums differ.  Sent in the hello, with the bits of the
 * arithmetic. */
#define COLL__LACKS_HIERARCHY 0x10000
#define COLL__LACKS_CHOICE 0x40000
#define COLL__LACKS ((COLL__HAS_HIERARCHY ? 0 : COLL__LACKS_HIERARCHY) | (COLL__HAS_CHOICE ? 0 : COLL__LACKS_CHOICE))

/* ---- >>lists: each word is a bit; an unknown word has no macro, and is 0 ---- */

/* The words of a list, up to 26, as prefix_WORD op prefix_WORD op ...; prefix_ replaces missing ones. */
#define COLL__NONE_OF_26 , , , , , , , , , , , , , , , , , , , , , , , , , ,
#define COLL__WORDS(op, prefix, ...) COLL__WORDS_MANY(op, prefix, __VA_ARGS__, COLL__NONE_OF_26)
#define COLL__WORDS_MANY(...) COLL__WORDS_EACH(__VA_ARGS__)
#define COLL__WORDS_EACH(op, p, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, q, r, s, t, u, v, w, x, y, z, last, ...) \
    (p##_##a op p##_##b op p##_##c op p##_##d op p##_##e op p##_##f op p##_##g op p##_##h op p##_##i op p##_##j op p##_##k \
     op p##_##l op p##_##m op p##_##n op p##_##o op p##_##q op p##_##r op p##_##s op p##_##t op p##_##u op p##_##v op p##_##w \
     op p##_##x op p##_##y op p##_##z op p##_##last)

#define COLL__TRANSPORT_ 32
#define COLL__TRANSPORT_threads 1
#define COLL__TRANSPORT_tcp 2
#define COLL__TRANSPORT_hybrid 3
#define COLL__TRANSPORT_sim 8
#define COLL__TRANSPORT_mpi 16
#if defined(COLL_ONLY_TRANSPORTS)
#define COLL__TRANSPORTS COLL__WORDS(|, COLL__TRANSPORT, COLL_ONLY_TRANSPORTS)
#if !COLL__WORDS(&&, COLL__TRANSPORT, COLL_ONLY_TRANSPORTS)
#error "COLL_ONLY_TRANSPORTS has a word that is none of threads, tcp, hybrid, sim and mpi: the next error says which"
enum { coll__unknown_transport = COLL__TRANSPORTS };
#endif
#else
#define COLL__TRANSPORTS (COLL__HAS_OS ? 27 : 0)
#endif
#define COLL__HAS_THREADS ((COLL__TRANSPORTS & 1) != 0)
#define COLL__HAS_TCP ((COLL__TRANSPORTS & 2) != 0)
#define COLL__HAS_SIM ((COLL__TRANSPORTS & 8) != 0)
#if COLL__IS_LEAST && (COLL__TRANSPORTS & 31) != 1
#error "COLL_LEAST has threads alone, and no messages for other transports: use COLL_SMALL, or no profile"
#endif
#if defined(COLL_WITH_MPI) && !(COLL__TRANSPORTS & 16)
#error "COLL_WITH_MPI adds MPI, and COLL_ONLY_TRANSPORTS, a profile or COLL_NO_OS leaves it out: add mpi to COLL_ONLY_TRANSPORTS"
#endif

#define COLL__COLLECTIVE_ 4096
#define COLL__COLLECTIVE_barrier 1
#define COLL__COLLECTIVE_broadcast 2
#define COLL__COLLECTIVE_reduce 4
#define COLL__COLLECTIVE_allreduce 8
#define COLL__COLLECTIVE_reduce_scatter 16
#define COLL__COLLECTIVE_scan 32
#define COLL__COLLECTIVE_gather 64
#define COLL__COLLECTIVE_scatter 128
#define COLL__COLLECTIVE_allgather 256
#define COLL__COLLECTIVE_alltoall 512
#define COLL__COLLECTIVE_neighbor 1024
#if defined(COLL_ONLY_KINDS)
#define COLL__KINDS_ASKED COLL__WORDS(|, COLL__COLLECTIVE, COLL_ONLY_KINDS)
#if !COLL__WORDS(&&, COLL__COLLECTIVE, COLL_ONLY_KINDS)
#error "COLL_ONLY_KINDS has a word that is no collective (see coll_features.h): the next error says which"
enum { coll__unknown_collective = COLL__KINDS_ASKED };
#endif
#if COLL__KINDS_ASKED & 1024 && !COLL__HAS_COUNTS
#error "COLL_ONLY_KINDS names neighbor, which COLL_NO_COUNTS and every profile leave out"
#endif
#elif COLL__HAS_COUNTS
#define COLL__KINDS_ASKED 2047
#else
#define COLL__KINDS_ASKED 1023
#endif

/* Barrier, allreduce and allgather are always there. */
#define COLL__HAS_BROADCAST ((COLL__KINDS_ASKED & 2) != 0)
#define COLL__HAS_REDUCE ((COLL__KINDS_ASKED & 4) != 0)
#define COLL__HAS_REDUCE_SCATTER ((COLL__KINDS_ASKED & 16) != 0 || COLL__HAS_HIERARCHY)
#define COLL__HAS_SCAN ((COLL__KINDS_ASKED & 32) != 0)
#define COLL__HAS_GATHER ((COLL__KINDS_ASKED & 64) != 0 || (COLL__HAS_REDUCE && COLL__HAS_HIERARCHY))
#define COLL__HAS_SCATTER ((COLL__KINDS_ASKED & 128) != 0 || (COLL__HAS_BROADCAST && COLL__HAS_HIERARCHY))
#define COLL__HAS_ALLTOALL ((COLL__KINDS_ASKED & 1536) != 0)      /* coll_neighbors uses one */
#define COLL__HAS_NEIGHBOR ((COLL__KINDS_ASKED & 1024) != 0)

#include "coll_feature_types.h"

/* If anything is left out, some functions are unused. */
#if !(COLL__HAS_OS && COLL__HAS_HIERARCHY && COLL__HAS_ENV && COLL__HAS_NETWORKS && COLL__HAS_SECURITY && COLL__HAS_SHM \
      && COLL__HAS_SHRINK && COLL__HAS_TEXT) || defined(COLL_ONLY_TRANSPORTS) || defined(COLL_ONLY_KINDS) \
    || defined(COLL_ONLY_TYPES)
#define COLL__LEAVES_OUT 1
#endif

#endif /* COLL_FEATURES_H */
