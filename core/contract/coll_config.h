/* coll_config.h - the configuration of a communicator, and the simulated machine.  Public; coll.h includes it. */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_CONFIG_H
#define COLL_CONFIG_H

/* ---- >>simulation: many ranks in one thread, under a virtual clock ---- */

/* A fault of a simulated machine. */
typedef enum coll_sim_fault_kind {
    COLL_SIM_KILL = 1,            /* `rank` ends, at its call `number` of the transport, or at `time`        */
    COLL_SIM_STOP,                /* `rank` stops and sends nothing more                                     */
    COLL_SIM_CUT,                 /* from `time` on, ranks rank..peer are disconnected from the others       */
    COLL_SIM_LOSE,                /* message `number` (0: each) from rank to peer (-1: to all) is lost; later ones are delayed */
    COLL_SIM_LATE,                /* it arrives `amount` seconds late                                        */
    COLL_SIM_SLOW                 /* from `time` on, the network of the rank's host has `amount` of its rate; 0.5: half */
} COLL_INT32 coll_sim_fault_kind;

typedef struct coll_sim_fault {
    coll_sim_fault_kind kind;
    int      rank, peer;
    uint64_t number;              /* counted from 1                                                          */
    double   time, amount;        /* s                                                                       */
} coll_sim_fault;

/* The simulated machine.  Zero means the default written beside each field; -1: none. */
typedef struct coll_sim {
    double latency;               /* s from sending to arrival; 12 us                                        */
    double overhead;              /* s between two messages that a rank sends, or receives; 4 us             */
    double seconds_per_byte;      /* on the wire; 0.5 ns                                                     */
    double seconds_per_byte_reduced;      /* in the arithmetic; 0.1 ns                                       */
    double local_latency, local_seconds_per_byte; /* between ranks of one host; 0.5 us, 0.1 ns               */
    int    ranks_per_host;        /* ranks that share a NIC; 1                                               */
    int    capacity;              /* messages between two ranks that may wait for their receive; 0: any
                                     number; -1: none: a program that needs buffering by coll_send deadlocks */
    double jitter;                /* s that a message may take longer, at random; none                       */
    double detection;             /* s until a killed rank is detected; 1 ms                                 */
    uint64_t seed;                /* for jitter and the order of simultaneous events; 1                      */
    size_t stack;                 /* bytes of a rank's stack under coll_spawn; 256 KiB, 64 KiB if there are
                                     more than 1024 ranks                                                     */
    const coll_sim_fault *faults; /* none                                                                    */
    int    fault_count;
    int    hosts_per_site;        /* hosts that share one link to other sites; 0: one site                   */
    double far_latency, far_seconds_per_byte;     /* between sites; as between hosts                         */
    uint64_t reserved[4];         /* must be 0                                                               */
} coll_sim;

/* ---- >>configuration ---- */

/* A member with three states; in the environment on or off, or 1 or 0.  Times have the same convention: 0 is the default, and -1
 * means never, or none. */
enum { COLL_DEFAULT = 0, COLL_ON = 1, COLL_OFF = -1 };

/* What is logged: nothing; failures to make a communicator; also late and refused ranks; also choices and results. */
typedef enum coll_log_level { COLL_LOG_NONE = -1, COLL_LOG_ERROR = 1, COLL_LOG_WARN, COLL_LOG_INFO } COLL_INT32 coll_log_level;

/* Options of transport tcp; see Bootstrap and Security in the manual.  All optional: zero means the default given for each
 * field. */
typedef struct coll_tcp {
    const char *io;               /* "auto", "uring" or "poll"; default: COLL_IO, or auto                   */
    const char *hosts;            /* "hostA:4000,hostB:4000,...", where each rank listens, in order; replaces
                                     `address`; default: COLL_HOSTS, or none                                  */
    const char *network;          /* which of this host's addresses to use: an interface ("eth1", "ib*",
                                     "^docker0,lo"), an address or a subnet ("10.1.0.0/16"); default:
                                     COLL_NETWORK, or the route to rank 0                                     */
    const char *ports;            /* ports to listen at, "5000-5099"; default: COLL_PORTS, or any free port */
    void      (*listening)(void *context, const char *address);   /* on rank 0, if `address` has port 0: gets
                                                                     the address, which the program must pass
                                                                     to the other ranks                       */
    void       *listening_context;
    const char *key;              /* a secret of 16 bytes or more, the same on all ranks; default: COLL_KEY,
                                     or the first line of the file COLL_KEY_FILE, or none                     */
    const char *security;         /* "key": authentication; "tls": also encryption (requires COLL_WITH_OPENSSL); "open": no key,
                                     public addresses allowed; "key+check", "open+check", "check": also checksums; default:
                                     COLL_SECURITY, or tls if there is a key and OpenSSL, else key          */
    int         lanes;            /* connections to each peer, 1 to 16; default: COLL_LANES, or 1           */
    int         share_memory;     /* COLL_OFF: processes of one host use TCP, not shared memory; default: COLL_SHARE, or
                                     COLL_ON                                                                */
    int         shm_collectives;  /* COLL_OFF: they use shared memory for messages only, not for whole collectives; default:
                                     COLL_SHM_COLLECTIVES, or COLL_ON                                       */
    uint64_t    reserved[4];      /* must be 0                                                               */
} coll_tcp;

/* All optional: zero means the default given for each field. */
typedef struct coll_config {
    const char *transport;        /* "tcp", "threads", "sim" or "mpi"; default: COLL_TRANSPORT, or tcp for coll_init */
    int         rank, size;       /* size > 0: this rank of so many; default: COLL_RANK and COLL_SIZE, or the
                                     launcher's, or 0 of 1.  A size of 1 needs no network and never fails   */
    const char *address;          /* where rank 0 listens, "host:port" or "file:PATH" (see Bootstrap); default: COLL_ADDR, or
                                     what the launcher says                                                 */
    const char *world;            /* separates jobs that use one address; default: COLL_WORLD, or ""         */
    int         start_timeout_ms; /* until all ranks have joined; -1: wait for ever; default: COLL_START_TIMEOUT_MS, or 60 s */
    int         liveness_timeout_ms;      /* a process that sends no heartbeat for this time is dead; -1: never; default:
                                     COLL_LIVENESS_TIMEOUT_MS, or 5 s                                       */
    int         stall_timeout_ms; /* an operation that waits longer fails; -1: never; default: COLL_STALL_TIMEOUT_MS, or never */
    int         spin_us;          /* busy waiting before sleeping; -1: none; default: COLL_SPIN_US, or 50 us,
                                     10 us if the host has more ranks than processors, and none while other
                                     programs use the processor of a rank                                   */
    coll_log_level log_level;     /* default: COLL_DEBUG, or COLL_LOG_WARN                                  */
    void      (*log)(void *context, coll_log_level level, const char *line);   /* default: to stderr        */
    void       *log_context;      /* passed to log                                                          */
    const coll_sim *sim;          /* the machine of transport "sim"; default: COLL_SIM, or that of coll_sim  */
    const char *tuning_file;      /* the numbers of the cost model, read by rank 0 (see Tuning); default: COLL_TUNING, or none */
    int         background;       /* COLL_ON: a thread of the library progresses operations while the program computes (see
                                     Waiting); default: COLL_BACKGROUND, or COLL_ON unless liveness_timeout_ms is -1 */
    int         elastic;          /* how many processes may wait to join (coll_grow), at most 256; default: COLL_ELASTIC, or
                                     none                                                                   */
    const char *dump;             /* a directory to which this rank writes its last operations if the communicator fails
                                     (coll-RANK.json); default: COLL_DUMP, or none                          */
    coll_tcp    tcp;              /* options of transport tcp                                               */
    const struct coll_allocator *allocator;       /* for all memory (see Memory); default: malloc           */
    const char *site;             /* the site of this rank's host: a rack, a switch, a data center (see Hosts); default:
                                     COLL_SITE, or ""                                                       */
    const char *mpi;              /* transport mpi: "auto", "native", "messages" or "blocking" (see MPI in the manual), the same
                                     on all ranks; default: COLL_MPI, or auto                               */
    uint64_t    reserved[8];      /* must be 0                                                               */
} coll_config;

#endif /* COLL_CONFIG_H */
