/* coll_configuration.h - the configuration of a communicator, and the simulated machine.  Public; coll.h includes it. */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_CONFIGURATION_H
#define COLL_CONFIGURATION_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>simulation: many ranks in one thread, under a virtual clock ---- */

/* A fault of a simulated machine. */
typedef enum coll_sim_fault_kind {
    COLL_SIM_KILL = 1,            /* `rank` ends, at its call `number` of the transport, or at `time`        */
    COLL_SIM_STOP,                /* `rank` stops and sends nothing more                                     */
    COLL_SIM_CUT,                 /* from `time` on ranks rank..peer are disconnected from the others        */
    COLL_SIM_LOSE,                /* message `number` (0: each) from rank to peer (-1: to all) is lost, and delays those
                                     behind it                                                               */
    COLL_SIM_LATE,                /* it arrives `amount` seconds late                                        */
    COLL_SIM_PIECES,              /* it arrives byte by byte                                                 */
    COLL_SIM_SLOW                 /* from `time` on the network of the rank's host has `amount` of its rate: 0.5: half */
} COLL_INT32 coll_sim_fault_kind;

typedef struct coll_sim_fault {
    coll_sim_fault_kind kind;
    int      rank, peer;
    uint64_t number;              /* counted from 1                                                          */
    double   time, amount;        /* s                                                                       */
} coll_sim_fault;

/* The simulated machine.  Zero means the default written beside each field; less than zero: none. */
typedef struct coll_sim {
    double latency;               /* s until a message arrives; 12 us                                        */
    double overhead;              /* s from one message that a rank sends, or receives, to the next; 4 us    */
    double seconds_per_byte;      /* on the wire; 0.5 ns                                                     */
    double seconds_per_byte_reduced;      /* in the arithmetic; 0.1 ns                                       */
    double local_latency, local_seconds_per_byte; /* between ranks of one host; 0.5 us, 0.1 ns               */
    int    ranks_per_host;        /* ranks that share a NIC; 1                                               */
    int    capacity;              /* messages from one rank to another that may wait for their receive; 0: any number;
                                     < 0: none, so that a program that relies on buffers for coll_send deadlocks */
    double jitter;                /* s that a message may take longer, at random by the seed; none           */
    double detection;             /* s until a killed rank is detected; 1 ms                                 */
    uint64_t seed;                /* of the order of simultaneous events; 1                                  */
    size_t stack;                 /* bytes of a rank's stack under coll_spawn; 256 KiB, beyond 1024 ranks 64 KiB */
    const coll_sim_fault *faults; /* none                                                                    */
    int    fault_count;
    int    hosts_per_site;        /* hosts that share one link to the other sites; 0: there is one site      */
    double far_latency, far_seconds_per_byte;     /* between sites; those between hosts                      */
} coll_sim;

/* ---- >>configuration ---- */

/* What is logged: nothing; why a communicator could not be made; also late and refused ranks; also choices and results. */
typedef enum coll_log_level { COLL_LOG_NONE = -1, COLL_LOG_ERROR = 1, COLL_LOG_WARN, COLL_LOG_INFO } COLL_INT32 coll_log_level;

/* Options of transport tcp; see Bootstrap and Security in the manual.  All optional: zero means the default given for each
 * field. */
typedef struct coll_tcp {
    const char *io;               /* "auto", "uring" or "poll"; default: COLL_IO, or auto                   */
    const char *hosts;            /* "hostA:4000,hostB:4000,...", where each rank listens, in order, instead of `address`;
                                     default: COLL_HOSTS, or none                                           */
    const char *network;          /* which of this host's addresses to use: an interface ("eth1", "ib*", "^docker0,lo"), an
                                     address or a subnet ("10.1.0.0/16"); default: COLL_NETWORK, or the way to rank 0 */
    const char *ports;            /* "5000-5099", to listen at; default: COLL_PORTS, or any that is free    */
    void      (*listening)(void *context, const char *address);   /* on rank 0, if the port of
                                     `address` is 0: receives the address, for the program to pass to the others */
    void       *listening_context;
    const char *key;              /* a secret of 16 bytes or more that all ranks share; default: COLL_KEY, or the first line of
                                     the file that COLL_KEY_FILE names, or none                             */
    const char *security;         /* "key": authentication; "tls": also encryption (requires COLL_WITH_OPENSSL); "open": no key,
                                     public addresses allowed; "key+check", "open+check", "check": also checksums; default:
                                     COLL_SECURITY, or tls if there is a key and OpenSSL, else key          */
    int         lanes;            /* connections to each peer, 1 to 16; default: COLL_LANES, or 1           */
    int         share_memory;     /* < 0: processes of one host use TCP, not shared memory; default: COLL_SHARE=0 means -1 */
    int         hub;              /* < 0: they use shared memory for messages only, not for whole collectives; default: COLL_HUB=0
                                     means -1                                                               */
} coll_tcp;

/* All optional: zero means the default given for each field. */
typedef struct coll_config {
    const char *transport;        /* "tcp", "threads", "sim" or "mpi"; default: COLL_TRANSPORT, or tcp for coll_init */
    int         rank, size;       /* size > 0: this rank of so many; default: COLL_RANK and COLL_SIZE, or the
                                     launcher's, or 0 of 1.  A size of 1 needs no network and never fails   */
    const char *address;          /* where rank 0 listens, "host:port" or "file:PATH" (see Bootstrap); default: COLL_ADDR, or
                                     what the launcher says                                                 */
    const char *world;            /* separates jobs that use one address; default: COLL_WORLD, or ""         */
    int         start_timeout_ms; /* until all ranks have joined; default: COLL_START_TIMEOUT_MS, or 60 s   */
    int         liveness_timeout_ms;      /* a process that sends no heartbeat for this time is dead; < 0: never; default:
                                     COLL_LIVENESS_TIMEOUT_MS, or 5 s                                       */
    int         stall_timeout_ms; /* an operation that waits longer fails; default: COLL_STALL_TIMEOUT_MS, or no limit */
    int         spin_us;          /* busy waiting before sleeping; < 0: none; default: COLL_SPIN_US, or 50 us,
                                     10 us if the host has more ranks than processors, and none while other
                                     programs use the processor of a rank                                   */
    coll_log_level log_level;     /* default: COLL_DEBUG, or COLL_LOG_WARN                                  */
    void      (*log)(void *context, coll_log_level level, const char *line);   /* default: to stderr        */
    void       *log_context;      /* passed to log                                                          */
    const coll_sim *sim;          /* the machine of transport "sim"; default: COLL_SIM, or that of coll_sim  */
    const char *tuning_file;      /* the numbers of the cost model, read by rank 0 (see Tuning); default: COLL_TUNING, or none */
    int         background;       /* > 0: a thread of the library progresses operations while the program computes, < 0: none
                                     (see Waiting); default: COLL_BACKGROUND, or > 0 unless liveness_timeout_ms < 0 */
    const char *dump;             /* a directory to which this rank writes its last operations if the communicator fails
                                     (coll-RANK.json); default: COLL_DUMP, or none                          */
    coll_tcp    tcp;              /* options of transport tcp                                               */
    const struct coll_allocator *allocator;       /* of all memory (see Memory); default: malloc            */
    const char *site;             /* the site of this rank's host: a rack, a switch, a data center (see Hosts); default:
                                     COLL_SITE, or ""                                                       */
    const char *mpi;              /* transport mpi: "auto", "native", "messages" or "blocking" (see MPI in the manual), the same
                                     on all ranks; default: COLL_MPI, or auto                               */
} coll_config;

#ifdef __cplusplus
}
#endif

#endif /* COLL_CONFIGURATION_H */
