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

/* A communicator of the ranks of `host` for buffers in the memory of CUDA device `device`, each rank with another device.  Called
 * by all ranks of `host`, which remains as it is; the two share their fate, and NCCL is told of a failure of either.  Without
 * the libraries, or a GPU, on one of the ranks all get COLL_ERR_UNSUPPORTED, with the sentence in coll_error(host). */
COLL_API coll_status coll_init_nccl(coll_comm *host, int device, struct CUstream_st *stream, coll_comm **out);

/* The same for the ranks of a communicator of NCCL's, which remains the caller's: it must outlive `out`, and nobody else uses it
 * meanwhile.  Called by all of its ranks, which join over TCP as well: rank 0 says where by a broadcast of NCCL's. */
COLL_API coll_status coll_wrap_nccl(struct ncclComm *nccl, struct CUstream_st *stream, coll_comm **out);

/* The stream to which later calls go; it waits for the operations that are under way.  Ranks need not agree. */
COLL_API coll_status coll_set_stream(coll_comm *comm, struct CUstream_st *stream);

/* Blocking calls return when they are in the stream, as NCCL's do; their errors come with a later call. */
COLL_API coll_status coll_set_stream_ordered(coll_comm *comm, bool is_ordered);

/* Let what is put into `stream` from here on wait until this request is finished; the caller does not.  On the stream in which
 * the request runs that is so anyway. */
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

/* A communicator of the same ranks, which are numbered alike; called by all of them, after MPI_Init_thread and with the same
 * COLL_MPI (see MPI in the manual).  `comm` stays the program's own: none of its tags, orders or error handlers are touched.
 * It is freed with coll_free, before MPI_Finalize. */
COLL_API coll_status coll_wrap_mpi(MPI_Comm comm, coll_comm **out);

#ifdef __cplusplus
}
#endif
#endif

#endif /* COLL_WRAP_H */
