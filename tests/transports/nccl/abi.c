/* abi.c - the library's own declarations of NCCL and of the CUDA driver, and those of the false libraries, beside the real
 * headers: compiled where these are (abi.sh), and wrong if it does not.
 *
 * The functions of NCCL are declared with the header's own types for the two that cannot be declared twice.  Enumerations are
 * `unsigned` in ours, and CUcontext, CUstream and the like are pointers to the very structs that ours name. */
#include <cuda.h>
#include <nccl.h>
#include <stddef.h>

#define COLL__NCCL_ID ncclUniqueId
#define COLL__NCCL_CONFIG ncclConfig_t
#include "../../../carriers/nccl/coll_nccl_abi.h"

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours " is " #theirs)

SAME(sizeof(coll__nccl_result), sizeof(ncclResult_t));
SAME(sizeof(coll__cuda_result), sizeof(CUresult));
SAME(sizeof(coll__cuda_address), sizeof(CUdeviceptr));
SAME(sizeof(coll__nccl_id), sizeof(ncclUniqueId));
SAME(offsetof(coll__nccl_config, size), offsetof(ncclConfig_t, size));
SAME(offsetof(coll__nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(coll__nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(coll__nccl_config, blocking), offsetof(ncclConfig_t, blocking));
_Static_assert(sizeof(coll__nccl_config) <= sizeof(ncclConfig_t), "ours is the beginning of theirs");

SAME(COLL__NCCL_SUCCESS, ncclSuccess);                   SAME(COLL__NCCL_UNHANDLED_CUDA, ncclUnhandledCudaError);
SAME(COLL__NCCL_SYSTEM, ncclSystemError);                SAME(COLL__NCCL_INTERNAL, ncclInternalError);
SAME(COLL__NCCL_INVALID_ARGUMENT, ncclInvalidArgument);  SAME(COLL__NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(COLL__NCCL_REMOTE, ncclRemoteError);                SAME(COLL__NCCL_IN_PROGRESS, ncclInProgress);
SAME(COLL__NCCL_I8, ncclInt8);    SAME(COLL__NCCL_U8, ncclUint8);   SAME(COLL__NCCL_I32, ncclInt32);
SAME(COLL__NCCL_U32, ncclUint32); SAME(COLL__NCCL_I64, ncclInt64);  SAME(COLL__NCCL_U64, ncclUint64);
SAME(COLL__NCCL_F16, ncclFloat16); SAME(COLL__NCCL_F32, ncclFloat32); SAME(COLL__NCCL_F64, ncclFloat64);
SAME(COLL__NCCL_BF16, ncclBfloat16);
SAME(COLL__NCCL_SUM, ncclSum); SAME(COLL__NCCL_PROD, ncclProd); SAME(COLL__NCCL_MAX, ncclMax); SAME(COLL__NCCL_MIN, ncclMin);

SAME(COLL__CUDA_SUCCESS, CUDA_SUCCESS);     SAME(COLL__CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(COLL__CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE); SAME(COLL__CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(COLL__CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(COLL__CUDA_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(COLL__CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(COLL__CUDA_MEMORY_HOST, CU_MEMORYTYPE_HOST); SAME(COLL__CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(COLL__CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(COLL__CUDA_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);

/* The functions: ours, from the lists, are initialised with theirs. */
#define COMPARE(name, parameters) extern coll__nccl_result (*const ours_nccl_##name) parameters; \
    coll__nccl_result (*const ours_nccl_##name) parameters = nccl##name;
COLL__NCCL_FUNCTIONS(COMPARE)

#define COMPARE_TEXT(name, parameters) extern const char *(*const ours_nccl_##name) parameters; \
    const char *(*const ours_nccl_##name) parameters = nccl##name;
COLL__NCCL_TEXTS(COMPARE_TEXT)

#define COMPARE_CUDA(name, parameters) extern coll__cuda_result (*const ours_cuda_##name) parameters; \
    coll__cuda_result (*const ours_cuda_##name) parameters = cu##name;
COLL__CUDA_FUNCTIONS(COMPARE_CUDA)
