/* coll_wrap.h - communicators of the ranks of other libraries: NCCL's and MPI's.  Public; coll.h includes it. */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_WRAP_H
#define COLL_WRAP_H

/* ---- >>gpu: the same calls on buffers in the memory of a GPU, by NCCL (see GPUs); with COLL_WITH_NCCL ---- */

#if defined(COLL_WITH_NCCL)

#ifdef __cplusplus
extern "C" {
#endif

struct ncclComm;                                  /* ncclComm_t is a pointer to it                            */
struct CUstream_st;                               /* and cudaStream_t, CUstream to this                       */

/* Make a communicator for buffers in the memory of a CUDA device, from the ranks of `host`.  Each rank has another device.
 * All ranks of `host` must call it.  `host` is unchanged; if one of the two fails, both fail, and NCCL is informed.  If one
 * rank lacks the libraries or a GPU, all ranks get COLL_ERR_UNSUPPORTED, with the sentence in coll_error(host). */
COLL_API coll_status coll_init_nccl(coll_comm *host, int device, struct CUstream_st *stream, coll_comm **out);

/* Make a communicator from the ranks of an NCCL communicator.  The latter remains the caller's: it must outlive `out`, and
 * must not be used in the meantime.  All of its ranks must call it.  They also connect over TCP: rank 0 sends its address by a
 * broadcast of NCCL. */
COLL_API coll_status coll_wrap_nccl(struct ncclComm *nccl, struct CUstream_st *stream, coll_comm **out);

/* Set the stream of later calls; it waits for pending operations.  Ranks need not agree. */
COLL_API coll_status coll_set_stream(coll_comm *comm, struct CUstream_st *stream);

/* Let blocking calls return when they are enqueued in the stream, as those of NCCL do.  A later call returns their errors. */
COLL_API coll_status coll_set_stream_ordered(coll_comm *comm, bool is_ordered);

/* Let later work in `stream` wait until a request is finished.  The caller does not wait.  In the stream of the request itself
 * this is always so. */
COLL_API coll_status coll_stream_wait(struct CUstream_st *stream, coll_request *request);

#ifdef __cplusplus
}
#endif
#endif

/* ---- >>mpi: the ranks of a communicator of MPI ---- */

#if defined(COLL_WITH_MPI)
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Make a communicator of the ranks of an MPI communicator, with the same numbers.  All of them must call it, after
 * MPI_Init_thread and with the same COLL_MPI (see MPI in the manual; coll_config.mpi is for coll_init).  `comm` remains the
 * program's own: its tags, orders and error handlers are not changed.  Free it with coll_free, before MPI_Finalize. */
COLL_API coll_status coll_wrap_mpi(MPI_Comm comm, coll_comm **out);

#ifdef __cplusplus
}
#endif
#endif

#endif /* COLL_WRAP_H */
