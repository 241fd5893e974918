/* coll.h - collective operations in one C header: between threads, and between processes over TCP.
 *
 * Allreduce, broadcast, reduce, reduce-scatter, allgather, barrier and tagged messages for integers and floats, 16-bit
 * floats included: these are summed in 32 bits and rounded once.  No launcher, no runtime and no library to install.
 *
 *     #define COLL_IMPLEMENTATION                       in exactly one C file, before any other include
 *     #include "coll.h"                                 cc train.c -pthread -luring     (-DCOLL_NO_URING: without -luring)
 *
 *     static int worker(coll_comm *comm, void *arg)
 *     {
 *         float x[2] = { (float)coll_rank(comm), 1 };
 *         if (coll_allreduce(comm, x, x, 2, COLL_F32, COLL_SUM)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         printf("rank %d of %d: %g %g\n", coll_rank(comm), coll_size(comm), x[0], x[1]);
 *         return 0;
 *     }
 *     int main(void) { return coll_spawn(4, worker, NULL); }          four ranks, threads of this process
 *
 * The same worker between processes: coll_init(&comm, NULL) in each of them, started by coll-run, torchrun or by hand
 * with COLL_RANK, COLL_SIZE and COLL_ADDR set.
 *
 * MANUAL
 *
 * Ranks.  A communicator joins `size` ranks, numbered from 0.  A rank is a thread of this process (coll_spawn,
 * coll_init_threads) or a process (coll_init).  All ranks call the same operations of a communicator in the same order,
 * with the same kind, count, type, op and root; ranks that disagree get COLL_ERR_MISMATCH and a sentence that names both
 * calls.  Messages (coll_send, coll_recv, coll_sendrecv) are outside that order and are matched by (source, tag).
 *
 * Threads.  One thread at a time per communicator; a second one gets COLL_ERR_ARGUMENT, with its sentence in
 * coll_error(NULL).  Different communicators may be
 * used from different threads at once.  A communicator is not usable in a forked child (COLL_ERR_FORKED).
 *
 * Buffers.  Counts are elements and may be 0 (the pointers may then be NULL).  Any alignment that the type allows is fine.
 * In place: send == recv, or COLL_IN_PLACE for send.  For allgather in place is send == recv + rank * count; for
 * reduce_scatter recv == send + rank * recv_count, or send == recv, which leaves the result at the start.  Any other overlap
 * of send and recv is an error.  Buffers that a rank's role does not use may be NULL.  Inputs are never written unless in place; nothing outside
 * the result is ever written.
 *
 * Numbers.  Integers wrap.  COLL_AVG is the sum, divided afterwards: integers sum in a wider type and truncate toward zero.
 * f16 and bf16 are summed in f32 and rounded once, to nearest even.  NaN propagates through every operation and comes out
 * as the one canonical quiet NaN of its type; -0 is less than +0 for MIN and MAX; overflow becomes infinity.  The order of
 * additions is fixed by the rank numbers alone (a pairwise tree), so the result has the same bits on every rank, in every
 * run, and also for every message size, on threads and over TCP.  With a wire type (coll_allreduce_mixed, coll_call.wire)
 * each input is rounded to the wire type once, the sum is rounded to it once, and every element of recv is such a value; it
 * halves the bytes of an algorithm, not the latency, and may tip the choice of the algorithm (coll_explain tells).
 *
 * Waiting.  A blocking call returns when this rank's part is done.  coll_i... calls return at once with a request; its
 * buffers stay untouched until coll_wait or a coll_test says so.  Operations of one communicator are carried out in the
 * order in which they were started; they may be waited for in any order.
 *
 * Errors.  Every call returns a coll_status.  COLL_ERR_ARGUMENT and COLL_ERR_UNSUPPORTED mean that nothing was sent and the
 * communicator is as before.  Any other error ends the communicator on every rank: pending and later calls return the same
 * cause at once, and only coll_free is left to do.  coll_error(comm) is one sentence that says which rank, which call, which
 * address and why.  recv is undefined after an error.  The library never exits, aborts or raises a signal.
 *
 * Time limits.  A peer that dies is noticed and named on all ranks.  A peer that is alive but late is waited for: after 10 s,
 * and then at doubling intervals, a line on the log names it.  timeout_ms (of a call) or stall_timeout_ms (of a communicator)
 * turn lateness into COLL_ERR_TIMEOUT.
 *
 * Environment.  Everything in coll_config can be set there; an explicit field beats the environment.
 *     COLL_RANK, COLL_SIZE, COLL_ADDR=host:port      who this process is, and where rank 0 listens ([v6]:port is fine).
 *                                                     torchrun's RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are understood;
 *                                                     so are the ranks of Open MPI, MPICH and Slurm, with COLL_ADDR beside them
 *     COLL_LOCAL_RANK, COLL_LOCAL_SIZE                among the ranks of this host (default 0 of 1)
 *     COLL_IO=auto|uring|poll                         how sockets are driven.  auto: io_uring where the kernel allows it
 *     COLL_WORLD=text                                 keeps jobs apart that meet at the same address
 *     COLL_SPIN_US, COLL_START_TIMEOUT_MS, COLL_STALL_TIMEOUT_MS
 *     COLL_DEBUG=error|warn|info                      what goes to stderr (default: warn)
 *
 * Security.  There is no authentication: whoever reaches rank 0's address and knows the size and COLL_WORLD can join.  Rank
 * 0 listens at the address in COLL_ADDR only, the others at the address from which they reached it.  Use trusted networks.
 *
 * Compiling.  The implementation is C11 for Linux, gcc or clang; the declarations are C99 and C++11.  In a C++ program put the
 * two lines of coll.c into one C file.  With -std=c11 include coll.h before any system header in that file.  Switches:
 * COLL_NO_URING (poll only), COLL_STATIC (every function static).
 */
#ifndef COLL_H
#define COLL_H

#if defined(COLL_IMPLEMENTATION) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1                         /* sockets, mmap and syscall under -std=c11 */
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COLL_VERSION_MAJOR 0
#define COLL_VERSION_MINOR 1
#define COLL_VERSION_PATCH 0

#if defined(COLL_STATIC)
#define COLL_API __attribute__((unused)) static
#else
#define COLL_API extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>status: 0 is done, above is not yet, below is an error ---- */

#define COLL__STATUS_TABLE(row)                                                                     \
    row(COLL_OK,                0, "done")                                                          \
    row(COLL_PENDING,           1, "not finished yet")                                              \
    row(COLL_ERR_ARGUMENT,     -1, "wrong argument; nothing was sent")                              \
    row(COLL_ERR_MEMORY,       -2, "out of memory")                                                 \
    row(COLL_ERR_SYSTEM,       -3, "a system call failed")                                          \
    row(COLL_ERR_TIMEOUT,      -4, "a rank is alive but late")                                      \
    row(COLL_ERR_PEER,         -5, "a rank is gone or unreachable")                                 \
    row(COLL_ERR_MISMATCH,     -6, "ranks made different calls")                                    \
    row(COLL_ERR_PROTOCOL,     -7, "received bytes that are not ours, or of a different version")   \
    row(COLL_ERR_DENIED,       -8, "wrong or missing key")                                          \
    row(COLL_ERR_UNSUPPORTED,  -9, "not available here; nothing was sent")                          \
    row(COLL_ERR_ABORTED,     -10, "the operation was given up")                                    \
    row(COLL_ERR_FORKED,      -11, "a communicator cannot be used in a forked child")

#define COLL__STATUS_NAME(name, value, text) name = value,
typedef enum coll_status { COLL__STATUS_TABLE(COLL__STATUS_NAME) COLL__STATUS_LIMIT = 2 } coll_status;
#undef COLL__STATUS_NAME

/* The fixed text of a status, e.g. "a rank is gone or unreachable". */
COLL_API const char *coll_status_text(coll_status status);

/* ---- >>types: elements and what is done with them ---- */

/* Numbered from 1: 0 in a descriptor means "default". */
typedef int coll_type;
enum {
    COLL_I8 = 1, COLL_I16, COLL_I32, COLL_I64, COLL_U8, COLL_U16, COLL_U32, COLL_U64,
    COLL_F16 = 10,                                /* IEEE 754 binary16                                      */
    COLL_BF16,                                    /* the upper half of a binary32                           */
    COLL_F32 = 14, COLL_F64
};

typedef enum coll_op { COLL_SUM, COLL_PROD, COLL_MIN, COLL_MAX, COLL_AVG } coll_op;

typedef enum coll_kind {
    COLL_BARRIER = 1, COLL_BROADCAST, COLL_REDUCE, COLL_ALLREDUCE, COLL_REDUCE_SCATTER, COLL_ALLGATHER,
    COLL_SEND, COLL_RECV, COLL_SENDRECV
} coll_kind;

COLL_API size_t      coll_type_size(coll_type type);      /* bytes of an element; 0 for an unknown type     */
COLL_API const char *coll_type_name(coll_type type);      /* "f32"; "?" for an unknown one                  */
COLL_API const char *coll_op_name(coll_op op);            /* "sum"                                          */
COLL_API const char *coll_kind_name(coll_kind kind);      /* "allreduce"                                    */

/* Stands for `send`: the input is in recv. */
#define COLL_IN_PLACE ((void *)(intptr_t)-1)

/* ---- >>communicators: joining and leaving ---- */

typedef struct coll_comm coll_comm;
typedef struct coll_request coll_request;

typedef enum coll_log_level { COLL_LOG_ERROR = 1, COLL_LOG_WARN, COLL_LOG_INFO } coll_log_level;

/* All optional: zero means the default written beside each field. */
typedef struct coll_config {
    const char *transport;        /* "tcp" or "threads"; default: tcp for coll_init                         */
    int         rank, size;       /* size > 0: this rank of so many; default: COLL_RANK and COLL_SIZE, or the
                                     launcher's, or 0 of 1.  A size of 1 needs no network and never fails   */
    const char *address;          /* where rank 0 listens, "host:port"; default: COLL_ADDR                  */
    const char *world;            /* keeps jobs apart that meet at one address; default: COLL_WORLD, or ""  */
    const char *io;               /* "auto", "uring" or "poll"; default: COLL_IO, or auto                   */
    int         start_timeout_ms; /* to meet all ranks; default: COLL_START_TIMEOUT_MS, or 60 s             */
    int         stall_timeout_ms; /* an operation late by this fails; default: COLL_STALL_TIMEOUT_MS, or no limit */
    int         spin_us;          /* busy waiting before sleeping, < 0: none; default: COLL_SPIN_US, or 50 us,
                                     and none over TCP where the host has more ranks than processors        */
    coll_log_level log_level;     /* default: COLL_DEBUG, or COLL_LOG_WARN                                  */
    void      (*log)(void *context, coll_log_level level, const char *line);   /* default: to stderr        */
    void       *log_context;      /* given back to log                                                      */
} coll_config;

/* Join the ranks of this job, one per process, and give this one's communicator.  NULL: all from the environment.
 * Returns when every rank is there, or after start_timeout_ms with the missing ranks named in coll_error(NULL). */
COLL_API coll_status coll_init(coll_comm **out, const coll_config *config);

/* Make `count` ranks that are threads of this process: out[i] belongs to rank i, to be used by one thread at a time. */
COLL_API coll_status coll_init_threads(int count, coll_comm **out, const coll_config *config);

/* Run fn(comm, arg) on `count` threads, each a rank, and wait for all.  Returns 0 when all did, else the result of the
 * lowest rank that did not return 0.  If no communicator can be made: a negative coll_status, with coll_error(NULL). */
COLL_API int coll_spawn(int count, int (*fn)(coll_comm *comm, void *arg), void *arg);

/* Leave.  Pending requests end with COLL_ERR_ABORTED (and remain to be freed); others that still wait for this rank get
 * COLL_ERR_PEER.  Works in every state, on NULL too, and returns within 2 s. */
COLL_API coll_status coll_free(coll_comm *comm);

COLL_API int coll_rank(const coll_comm *comm);
COLL_API int coll_size(const coll_comm *comm);
COLL_API int coll_local_rank(const coll_comm *comm);      /* among the ranks of this host                    */
COLL_API int coll_local_size(const coll_comm *comm);

/* The sentence of the last error of this communicator, "" when there was none.  NULL: of the last coll_init,
 * coll_init_threads or coll_spawn of the calling thread that failed.  Valid until the next call on the communicator. */
COLL_API const char *coll_error(const coll_comm *comm);

/* ---- >>collectives: blocking; each has a non-blocking twin below ---- */

/* Return when every rank has called it. */
COLL_API coll_status coll_barrier(coll_comm *comm);

/* Copy the root's `count` elements into the buffer of every rank.  The root's own may be written with the bytes it has. */
COLL_API coll_status coll_broadcast(coll_comm *comm, void *buffer, size_t count, coll_type type, int root);

/* recv[i] on the root = send[i] of rank 0 op send[i] of rank 1 op ...; recv is untouched elsewhere. */
COLL_API coll_status coll_reduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                 coll_op op, int root);

/* The same on every rank, with identical bits.
 *
 *     coll_allreduce(comm, gradient, gradient, n, COLL_F32, COLL_AVG);
 */
COLL_API coll_status coll_allreduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                    coll_op op);

/* allreduce whose messages carry another type: COLL_F32 buffers over a COLL_BF16 or COLL_F16 wire, half the bytes.  Inputs
 * are rounded to the wire type, summed in f32 and rounded once more; recv holds values of the wire type, as f32. */
COLL_API coll_status coll_allreduce_mixed(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                          coll_type wire, coll_op op);

/* Reduce size * recv_count elements and leave block r, recv_count of them, on rank r. */
COLL_API coll_status coll_reduce_scatter(coll_comm *comm, const void *send, void *recv, size_t recv_count,
                                         coll_type type, coll_op op);

/* recv = the `count` elements of rank 0, of rank 1, ...: size * count elements on every rank. */
COLL_API coll_status coll_allgather(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type);

/* ---- >>messages: matched by (source, tag) in the order sent, outside the order of collectives ---- */

/* Returns when the buffer may be reused; large messages wait for the receiver.  0 <= tag.  To oneself is allowed. */
COLL_API coll_status coll_send(coll_comm *comm, const void *buffer, size_t count, coll_type type, int peer, int tag);

/* `count` is the room: a shorter message is fine (coll_received tells), a longer one is COLL_ERR_MISMATCH, and so is one
 * of another type. */
COLL_API coll_status coll_recv(coll_comm *comm, void *buffer, size_t count, coll_type type, int peer, int tag);

/* Send to dest and receive from source at once, without deadlock in any pattern. */
COLL_API coll_status coll_sendrecv(coll_comm *comm, const void *send, size_t send_count, int dest,
                                   void *recv, size_t recv_count, int source, coll_type type, int tag);

/* ---- >>requests: start now, finish later ---- */

COLL_API coll_status coll_ibarrier(coll_comm *comm, coll_request **out);
COLL_API coll_status coll_ibroadcast(coll_comm *comm, void *buffer, size_t count, coll_type type, int root,
                                     coll_request **out);
COLL_API coll_status coll_ireduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                  coll_op op, int root, coll_request **out);
COLL_API coll_status coll_iallreduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                     coll_op op, coll_request **out);
COLL_API coll_status coll_iallreduce_mixed(coll_comm *comm, const void *send, void *recv, size_t count,
                                           coll_type type, coll_type wire, coll_op op, coll_request **out);
COLL_API coll_status coll_ireduce_scatter(coll_comm *comm, const void *send, void *recv, size_t recv_count,
                                          coll_type type, coll_op op, coll_request **out);
COLL_API coll_status coll_iallgather(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                     coll_request **out);
COLL_API coll_status coll_isend(coll_comm *comm, const void *buffer, size_t count, coll_type type, int peer, int tag,
                                coll_request **out);
COLL_API coll_status coll_irecv(coll_comm *comm, void *buffer, size_t count, coll_type type, int peer, int tag,
                                coll_request **out);
COLL_API coll_status coll_isendrecv(coll_comm *comm, const void *send, size_t send_count, int dest,
                                    void *recv, size_t recv_count, int source, coll_type type, int tag,
                                    coll_request **out);

/* Move all operations of the communicator on and say how this one stands: COLL_PENDING, COLL_OK or an error. */
COLL_API coll_status coll_test(coll_request *request);

/* Wait until it is finished.  Neither coll_test nor coll_wait frees it; NULL counts as finished. */
COLL_API coll_status coll_wait(coll_request *request);

/* Wait for all; the first error found, each request's own status is left to coll_test. */
COLL_API coll_status coll_wait_all(int count, coll_request **requests);

/* Wait for one that was not finished yet when called; NULLs and finished ones are skipped; *index = -1: none left. */
COLL_API coll_status coll_wait_any(int count, coll_request **requests, int *index);

/* What a finished receive got; each pointer may be NULL. */
COLL_API coll_status coll_received(const coll_request *request, int *source, int *tag, size_t *count);

/* Free it.  One that is still running goes on by itself: its buffers must stay until it is known to be over. */
COLL_API void coll_request_free(coll_request *request);

/* Move all operations of the communicator on without waiting. */
COLL_API coll_status coll_progress(coll_comm *comm);

/* ---- >>call: one descriptor behind all of them; zero means default ---- */

typedef struct coll_call {
    coll_kind   kind;             /* COLL_ALLREDUCE, ...                                                     */
    const void *send;
    void       *recv;             /* broadcast: the buffer                                                   */
    size_t      count;            /* elements; of one block for reduce_scatter and allgather                 */
    coll_type   type;             /* of the buffers                                                          */
    coll_type   wire;             /* in the messages of a reducing call; 0 = type                            */
    coll_op     op;
    int         root;             /* send: the destination; recv: the source; sendrecv: the destination      */
    int         tag;
    int         source;           /* sendrecv: whom to receive from                                          */
    size_t      recv_count;       /* sendrecv: the room                                                      */
    int         timeout_ms;       /* 0 = the communicator's stall_timeout_ms                                 */
    const char *algorithm;        /* force one by name (see coll_explain); 0 = the library's choice.  The same on all ranks */
    const char *name;             /* appears in errors, e.g. "gradient of layer 3"; must live as long as the call */
} coll_call;

COLL_API coll_status coll_run(coll_comm *comm, const coll_call *call);                               /* blocking */
COLL_API coll_status coll_start(coll_comm *comm, const coll_call *call, coll_request **out);     /* non-blocking */

/* ---- >>numbers: the library's own arithmetic, for one thread ---- */

COLL_API uint16_t coll_f32_to_f16(float value);           /* all round to nearest even                       */
COLL_API uint16_t coll_f32_to_bf16(float value);
COLL_API float    coll_f16_to_f32(uint16_t bits);
COLL_API float    coll_bf16_to_f32(uint16_t bits);

/* dst[i] = src[i] among f16, bf16, f32 and f64, rounded once; equal types copy.  The buffers must not overlap. */
COLL_API coll_status coll_convert(void *dst, coll_type dst_type, const void *src, coll_type src_type, size_t count);

/* inout[i] = in[i] op inout[i], with `in` as the lower rank's part.  COLL_AVG is COLL_ERR_UNSUPPORTED. */
COLL_API coll_status coll_reduce_local(const void *in, void *inout, size_t count, coll_type type, coll_op op);

/* ---- >>seeing: what was chosen and what it cost ---- */

/* Write which way this call would go and why, e.g. "allreduce of 4194304 x f32 on 4 ranks over tcp (io_uring): scatter,
 * 2 rounds, 64 slices".  Returns the length as snprintf does, or a negative coll_status.  Sends nothing. */
COLL_API int coll_explain(coll_comm *comm, const coll_call *call, char *text, size_t length);

/* Bytes that this rank has handed to and taken from the wire, headers included; 0 between threads, which use memory. */
COLL_API void coll_traffic(const coll_comm *comm, uint64_t *sent, uint64_t *received);

#ifdef __cplusplus
}
#endif

#include "core/coll_transport.h"

#endif /* COLL_H */

/* Outside the guard: a file that has already met coll.h through another header can still make the implementation. */
#ifdef COLL_IMPLEMENTATION
#include "coll_impl.h"
#endif
