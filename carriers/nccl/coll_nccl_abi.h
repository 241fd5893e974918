/* coll_nccl_abi.h - the functions of NCCL and of the CUDA driver that the library calls, with own declarations.
 *
 * Both are loaded at run time (coll_nccl_load.h), so none of their headers is included and nothing is linked.  Handles have the
 * names of the structs in nccl.h and cuda.h; enumerations are the `unsigned` that they are in the ABI.  Lists hold the functions:
 * name without its prefix, parameters.  They generate the tables of pointers and the loading.  A test compares every declaration
 * with the real headers, if these exist.  For that test, two types that cannot be declared twice may be named from outside
 * (COLL__NCCL_ID, COLL__NCCL_CONFIG).
 *
 * Every function of NCCL returns a coll__nccl_result (0: success), every one of the driver a CUresult (0: success).
 *
 * THE KERNELS (coll_nccl_kernels.cu) are PTX text and are looked up by name.  Types and ops are the numbers of coll_type
 * and coll_op, lengths are elements, strides are bytes; every thread handles elements at a stride of the whole grid.
 *
 *   coll_combine_f32(const void *in, u64 stride, int n, void *out, u64 count, int in_type, int out_type, int op, int order,
 *                    float divisor, float scale)
 *       out[i] = in[0][i] op in[1][i] op ... op in[n - 1][i], source k begins at in + k * stride.  `in_type` and `out_type`:
 *       COLL_F16, COLL_BF16 or COLL_F32; all is computed in f32.  order 0: the left-complete pairwise tree over the index of the
 *       source, ((0+1)+(2+3))+((4+5)+6); order 1: from left to right.  Then x / divisor * scale, in this order and each
 *       rounded to f32 (1 and 1: no effect), then one rounding to `out_type`, to nearest even, NaN as the canonical one.
 *       op: SUM, PROD, MIN, MAX (NaN propagates, -0 < +0), LAND, LOR, LXOR (1 or 0).  `out` may be source 0 of n = 1.  With n = 1
 *       and SUM it converts, with the results of the library's coll_convert.
 *   coll_combine_f64(the same, with double divisor, double scale)       types: COLL_F64
 *   coll_combine_i64(const void *in, u64 stride, int n, void *out, u64 count, int in_type, int out_type, int op, int order,
 *                    int divisor)
 *       The same for COLL_I8 to COLL_U64 and COLL_BOOL, in 64 bits, of which the lower ones are stored; `order` has no effect.
 *       op: SUM, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, LXOR; results of COLL_BOOL are 1 or 0.  divisor > 1: the sum is
 *       divided by it and truncated toward zero (types of at most 32 bits only).
 *   coll_overflow(const void *in, u64 count, int type, unsigned *found)
 *       *found = 1 if an element of COLL_F16, COLL_BF16, COLL_F32 or COLL_F64 is infinite or NaN; else unchanged. */
#ifndef COLL_NCCL_ABI_H
#define COLL_NCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

/* ---- >>types ---- */

struct ncclComm;
struct CUstream_st;
struct CUevent_st;
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;

typedef unsigned coll__nccl_result;
typedef unsigned coll__cuda_result;
typedef unsigned long long coll__cuda_address;    /* CUdeviceptr                                              */

typedef struct coll__nccl_id { char internal[128]; } coll__nccl_id;

/* The part of ncclConfig_t that exists since 2.14; NCCL reads no more than `size` bytes. */
typedef struct coll__nccl_config {
    size_t   size;
    unsigned magic, version;
    int      blocking;
} coll__nccl_config;

#ifndef COLL__NCCL_ID
#define COLL__NCCL_ID coll__nccl_id
#endif
#ifndef COLL__NCCL_CONFIG
#define COLL__NCCL_CONFIG coll__nccl_config
#endif

/* ---- >>values ---- */

enum {
    COLL__NCCL_MAGIC = (int)0xcafebeef, COLL__NCCL_CONFIG_VERSION = 21400, COLL__NCCL_OLDEST = 21800,

    COLL__NCCL_SUCCESS = 0, COLL__NCCL_UNHANDLED_CUDA = 1, COLL__NCCL_SYSTEM = 2, COLL__NCCL_INTERNAL = 3,
    COLL__NCCL_INVALID_ARGUMENT = 4, COLL__NCCL_INVALID_USAGE = 5, COLL__NCCL_REMOTE = 6, COLL__NCCL_IN_PROGRESS = 7,

    COLL__NCCL_I8 = 0, COLL__NCCL_U8 = 1, COLL__NCCL_I32 = 2, COLL__NCCL_U32 = 3, COLL__NCCL_I64 = 4, COLL__NCCL_U64 = 5,
    COLL__NCCL_F16 = 6, COLL__NCCL_F32 = 7, COLL__NCCL_F64 = 8, COLL__NCCL_BF16 = 9,

    COLL__NCCL_SUM = 0, COLL__NCCL_PROD = 1, COLL__NCCL_MAX = 2, COLL__NCCL_MIN = 3
};

enum {
    COLL__CUDA_SUCCESS = 0, COLL__CUDA_NO_DEVICE = 100, COLL__CUDA_INVALID_DEVICE = 101, COLL__CUDA_NOT_READY = 600,

    COLL__CUDA_POINTER_MEMORY_TYPE = 2,           /* CU_POINTER_ATTRIBUTE_...                                 */
    COLL__CUDA_POINTER_IS_MANAGED = 8,
    COLL__CUDA_POINTER_DEVICE_ORDINAL = 9,
    COLL__CUDA_MEMORY_HOST = 1, COLL__CUDA_MEMORY_DEVICE = 2,         /* CU_MEMORYTYPE_...                    */

    COLL__CUDA_EVENT_DISABLE_TIMING = 2,
    COLL__CUDA_CAPTURE_NONE = 0
};

/* ---- >>functions: X(name as it is exported, parameters) ---- */

#define COLL__NCCL_FUNCTIONS(X)                                                                                       \
    X(GetVersion, (int *version))                                                                                     \
    X(GetUniqueId, (COLL__NCCL_ID *id))                                                                               \
    X(CommInitRankConfig, (struct ncclComm **comm, int size, COLL__NCCL_ID id, int rank,                              \
                                  COLL__NCCL_CONFIG *config))                                                         \
    X(CommFinalize, (struct ncclComm *comm))                                                                          \
    X(CommDestroy, (struct ncclComm *comm))                                                                           \
    X(CommAbort, (struct ncclComm *comm))                                                                             \
    X(CommGetAsyncError, (struct ncclComm *comm, coll__nccl_result *result))                                          \
    X(CommCount, (struct ncclComm *comm, int *count))                                                                 \
    X(CommUserRank, (struct ncclComm *comm, int *rank))                                                               \
    X(CommCuDevice, (struct ncclComm *comm, int *device))                                                             \
    X(AllReduce, (const void *send, void *recv, size_t count, unsigned type, unsigned op, struct ncclComm *comm,      \
                         struct CUstream_st *stream))                                                                 \
    X(Reduce, (const void *send, void *recv, size_t count, unsigned type, unsigned op, int root,                      \
                      struct ncclComm *comm, struct CUstream_st *stream))                                             \
    X(ReduceScatter, (const void *send, void *recv, size_t recv_count, unsigned type, unsigned op,                    \
                             struct ncclComm *comm, struct CUstream_st *stream))                                      \
    X(Broadcast, (const void *send, void *recv, size_t count, unsigned type, int root, struct ncclComm *comm,         \
                         struct CUstream_st *stream))                                                                 \
    X(AllGather, (const void *send, void *recv, size_t count, unsigned type, struct ncclComm *comm,                   \
                         struct CUstream_st *stream))                                                                 \
    X(Send, (const void *send, size_t count, unsigned type, int peer, struct ncclComm *comm,                          \
                    struct CUstream_st *stream))                                                                      \
    X(Recv, (void *recv, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream))   \
    X(GroupStart, (void))                                                                                             \
    X(GroupEnd, (void))

/* The same, of those that return a text. */
#define COLL__NCCL_TEXTS(X)                                                                                           \
    X(GetLastError, (struct ncclComm *comm))                                                                          \
    X(GetErrorString, (coll__nccl_result result))

/* Contexts are pushed and popped, so a call restores that of its thread. */
#define COLL__CUDA_FUNCTIONS(X)                                                                                       \
    X(Init, (unsigned flags))                                                                                         \
    X(GetErrorString, (coll__cuda_result result, const char **text))                                                  \
    X(DeviceGetCount, (int *count))                                                                                   \
    X(DeviceGet, (int *device, int ordinal))                                                                          \
    X(DevicePrimaryCtxRetain, (struct CUctx_st **context, int device))                                                \
    X(DevicePrimaryCtxRelease_v2, (int device))                                                                       \
    X(CtxPushCurrent_v2, (struct CUctx_st *context))                                                                  \
    X(CtxPopCurrent_v2, (struct CUctx_st **context))                                                                  \
    X(StreamGetCtx, (struct CUstream_st *stream, struct CUctx_st **context))                                          \
    X(StreamWaitEvent, (struct CUstream_st *stream, struct CUevent_st *event, unsigned flags))                        \
    X(StreamIsCapturing, (struct CUstream_st *stream, unsigned *status))                                              \
    X(MemAlloc_v2, (coll__cuda_address *address, size_t length))                                                      \
    X(MemFree_v2, (coll__cuda_address address))                                                                       \
    X(MemAllocHost_v2, (void **address, size_t length))                                                               \
    X(MemFreeHost, (void *address))                                                                                   \
    X(MemcpyHtoDAsync_v2, (coll__cuda_address to, const void *from, size_t length, struct CUstream_st *stream))       \
    X(MemcpyDtoHAsync_v2, (void *to, coll__cuda_address from, size_t length, struct CUstream_st *stream))             \
    X(MemcpyDtoDAsync_v2, (coll__cuda_address to, coll__cuda_address from, size_t length, struct CUstream_st *stream)) \
    X(MemsetD8Async, (coll__cuda_address at, unsigned char value, size_t length, struct CUstream_st *stream))         \
    X(EventCreate, (struct CUevent_st **event, unsigned flags))                                                       \
    X(EventRecord, (struct CUevent_st *event, struct CUstream_st *stream))                                            \
    X(EventQuery, (struct CUevent_st *event))                                                                         \
    X(EventDestroy_v2, (struct CUevent_st *event))                                                                    \
    X(PointerGetAttribute, (void *value, unsigned attribute, coll__cuda_address address))                             \
    X(ModuleLoadData, (struct CUmod_st **module, const void *image))                                                  \
    X(ModuleUnload, (struct CUmod_st *module))                                                                        \
    X(ModuleGetFunction, (struct CUfunc_st **function, struct CUmod_st *module, const char *name))                    \
    X(LaunchKernel, (struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
                     unsigned block_y, unsigned block_z, unsigned shared_bytes, struct CUstream_st *stream,           \
                     void **parameters, void **extra))

#endif /* COLL_NCCL_ABI_H */
