/* coll_wrap.h - communicators made from those of NCCL and MPI.  Public; coll.h includes it. */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_WRAP_H
#define COLL_WRAP_H

#if defined(COLL_WITH_MPI)
#include <mpi.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>gpu: the same calls on buffers in GPU memory, through NCCL (see GPUs); with COLL_WITH_NCCL ---- */

#if defined(COLL_WITH_NCCL)

struct ncclComm;                                  /* ncclComm_t is a pointer to it                            */
struct CUstream_st;                               /* cudaStream_t and CUstream are pointers to it             */

/* Make a communicator for buffers in the memory of a CUDA device, from the ranks of `host`.  Each rank must use another device.
 * All ranks of `host` must call it.  `host` is unchanged.  If one of the two communicators fails, both fail, and NCCL is
 * aborted.  If one rank lacks the libraries or a GPU, all ranks get COLL_ERR_UNSUPPORTED; coll_error(host) has the reason. */
COLL_API coll_status coll_init_nccl(coll_comm *host, int device, struct CUstream_st *stream, coll_comm **out);

/* Make a communicator from the ranks of an NCCL communicator.  The NCCL communicator remains the caller's.  It must outlive
 * `out` and must not be used meanwhile.  All of its ranks must call this.  They also connect over TCP: rank 0 broadcasts its
 * address through NCCL. */
COLL_API coll_status coll_wrap_nccl(struct ncclComm *nccl, struct CUstream_st *stream, coll_comm **out);

/* Set the stream of later calls; it waits for pending operations.  Ranks may use different settings. */
COLL_API coll_status coll_set_stream(coll_comm *comm, struct CUstream_st *stream);

/* Set whether blocking calls return when they are enqueued in the stream, as in NCCL.  A later call returns their errors. */
COLL_API coll_status coll_set_stream_ordered(coll_comm *comm, bool is_ordered);

/* Make later work in `stream` wait for a request.  The caller does not block.  Not needed for the request's own stream. */
COLL_API coll_status coll_stream_wait(struct CUstream_st *stream, coll_request *request);

#endif

/* ---- >>mpi: communicators of MPI ---- */

#if defined(COLL_WITH_MPI)

/* Make a communicator of the ranks of an MPI communicator, with the same numbers.  All of them must call it, after
 * MPI_Init_thread and with the same COLL_MPI (see MPI in the manual; coll_config.mpi is for coll_init).  `comm` remains the
 * program's: its tags, order of messages and error handlers do not change.  Free the communicator with coll_free, before
 * MPI_Finalize. */
COLL_API coll_status coll_wrap_mpi(MPI_Comm comm, coll_comm **out);

#endif

#ifdef __cplusplus
}
#endif

#endif /* COLL_WRAP_H */
