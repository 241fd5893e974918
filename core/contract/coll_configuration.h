/* coll_configuration.h - how a communicator is to be made, and the simulated machine.  Public; coll.h includes it. */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_CONFIGURATION_H
#define COLL_CONFIGURATION_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>simulation: many ranks in one thread, under a virtual clock ---- */

/* What is to go wrong in a simulated world. */
typedef enum coll_sim_fault_kind {
    COLL_SIM_KILL = 1,            /* `rank` is no more, from its call `number` of the transport, or from `time` on */
    COLL_SIM_STOP,                /* `rank` stays where it is for ever, and nobody is told                   */
    COLL_SIM_CUT,                 /* from `time` on nothing passes between ranks rank..peer and the others   */
    COLL_SIM_LOSE,                /* message `number` (0: each) from rank to peer (-1: to anyone) is lost, and holds up
                                     those behind it                                                         */
    COLL_SIM_LATE,                /* it comes `amount` seconds late                                          */
    COLL_SIM_PIECES,              /* it comes byte by byte                                                   */
    COLL_SIM_SLOW                 /* from `time` on the network of the rank's host carries `amount` of what it did: 0.5: half
                                     of it                                                                   */
} coll_sim_fault_kind;

typedef struct coll_sim_fault {
    coll_sim_fault_kind kind;
    int      rank, peer;
    uint64_t number;              /* counted from 1                                                          */
    double   time, amount;        /* s                                                                       */
} coll_sim_fault;

/* The simulated machine.  Zero means the default written beside each field; less than zero: none. */
typedef struct coll_sim {
    double latency;               /* s until a message is there; 12 us                                       */
    double overhead;              /* s from one message that a rank sends, or receives, to the next; 4 us    */
    double seconds_per_byte;      /* on the wire; 0.5 ns                                                     */
    double seconds_per_byte_reduced;      /* in the arithmetic; 0.1 ns                                       */
    double local_latency, local_seconds_per_byte; /* between ranks of one host; 0.5 us, 0.1 ns               */
    int    ranks_per_host;        /* that share its NIC; 1                                                   */
    int    capacity;              /* messages from one rank to another that may wait for their receive; 0: any number;
                                     < 0: none, so that a program which counts on buffers for coll_send stands still */
    double jitter;                /* s by which a message may be later, drawn from the seed; none            */
    double detection;             /* s until a killed rank is missed; 1 ms                                   */
    uint64_t seed;                /* of the order of what happens at one instant; 1                          */
    size_t stack;                 /* bytes of a rank's stack under coll_spawn; 256 KiB, beyond 1024 ranks 64 KiB */
    const coll_sim_fault *faults; /* what is to go wrong; nothing                                            */
    int    fault_count;
    int    hosts_per_site;        /* that share one link to the other sites; none: there is one site         */
    double far_latency, far_seconds_per_byte;     /* between sites; those between hosts                      */
} coll_sim;

/* ---- >>configuration ---- */

/* What goes to the log: nothing; why a communicator could not be made; also who is late, or was turned away; also what was
 * chosen, and how it went. */
typedef enum coll_log_level { COLL_LOG_NONE = -1, COLL_LOG_ERROR = 1, COLL_LOG_WARN, COLL_LOG_INFO } coll_log_level;

/* What is the network's (transport tcp); see Bootstrap and Security in the manual.  All optional: zero means the
 * default written beside each field. */
typedef struct coll_tcp {
    const char *io;               /* "auto", "uring" or "poll"; default: COLL_IO, or auto                   */
    const char *hosts;            /* "hostA:4000,hostB:4000,...", where each rank listens, in order, instead of `address`;
                                     default: COLL_HOSTS, or none                                           */
    const char *network;          /* which of this host's addresses to use: an interface ("eth1", "ib*", "^docker0,lo"), an
                                     address or a subnet ("10.1.0.0/16"); default: COLL_NETWORK, or the way to rank 0 */
    const char *ports;            /* "5000-5099", to listen at; default: COLL_PORTS, or any that is free    */
    void      (*listening)(void *context, const char *address);   /* on rank 0, with an `address` of port 0 ("10.0.0.7:0"): is
                                     told where it listens, for the program to hand on to the others        */
    void       *listening_context;
    const char *key;              /* a secret of 16 bytes or more that all ranks share; default: COLL_KEY, or the first line of
                                     the file that COLL_KEY_FILE names, or none                             */
    const char *security;         /* what a key is for: "key" (who is who), "tls" (and nobody can read or change what is sent;
                                     compiled in with COLL_WITH_OPENSSL); without one: "open" lets public addresses be used;
                                     "key+check", "open+check", "check": sums of what is sent; default: COLL_SECURITY, or tls
                                     where there is a key and OpenSSL, else key                             */
    int         lanes;            /* connections to each peer, 1 to 16; default: COLL_LANES, or 1           */
    int         share_memory;     /* < 0: processes of one host do not meet in shared memory but over TCP; default: COLL_SHARE=0
                                     means -1                                                               */
    int         hub;              /* < 0: they exchange messages there, and do not carry out whole collectives as threads do;
                                     default: COLL_HUB=0 means -1                                           */
} coll_tcp;

/* All optional: zero means the default written beside each field. */
typedef struct coll_config {
    const char *transport;        /* "tcp", "threads", "sim" or "mpi"; default: COLL_TRANSPORT, or tcp for coll_init */
    int         rank, size;       /* size > 0: this rank of so many; default: COLL_RANK and COLL_SIZE, or the
                                     launcher's, or 0 of 1.  A size of 1 needs no network and never fails   */
    const char *address;          /* where rank 0 listens, "host:port" or "file:PATH" (see Bootstrap); default: COLL_ADDR, or
                                     what the launcher says                                                 */
    const char *world;            /* keeps jobs apart that meet at one address; default: COLL_WORLD, or ""  */
    int         start_timeout_ms; /* to meet all ranks; default: COLL_START_TIMEOUT_MS, or 60 s             */
    int         liveness_timeout_ms;      /* a process that sends no heartbeat for so long is dead, < 0: never; default:
                                     COLL_LIVENESS_TIMEOUT_MS, or 5 s                                       */
    int         stall_timeout_ms; /* an operation late by this fails; default: COLL_STALL_TIMEOUT_MS, or no limit */
    int         spin_us;          /* busy waiting before sleeping, < 0: none; default: COLL_SPIN_US, or 50 us,
                                     10 us where the host has more ranks than processors; and none while
                                     other programs are found to use a rank's processor                     */
    coll_log_level log_level;     /* default: COLL_DEBUG, or COLL_LOG_WARN                                  */
    void      (*log)(void *context, coll_log_level level, const char *line);   /* default: to stderr        */
    void       *log_context;      /* given back to log                                                      */
    const coll_sim *sim;          /* the machine of transport "sim"; default: COLL_SIM, or that of coll_sim  */
    const char *tuning_file;      /* what rank 0 is to believe of the wire (see Tuning); default: COLL_TUNING, or none */
    int         background;       /* < 0: no thread of the library moves operations on while the program computes, > 0: one does
                                     (see Waiting); default: COLL_BACKGROUND, or > 0 unless liveness_timeout_ms < 0 */
    const char *dump;             /* a directory: what this rank was doing is written there when the communicator fails
                                     (coll-RANK.json); default: COLL_DUMP, or none                          */
    coll_tcp    tcp;              /* what is the network's                                                  */
    const struct coll_allocator *allocator;       /* where memory comes from (see Memory); default: malloc  */
    const char *site;             /* where this rank's host is: a rack, a switch, a data centre (see Hierarchy); default:
                                     COLL_SITE, or "" which is one, too                                     */
} coll_config;

#ifdef __cplusplus
}
#endif

#endif /* COLL_CONFIGURATION_H */
