/* gpu.h - GPUs for tests: the driver and NCCL, found where the library finds them.  Used after support.h.
 *
 * Where COLL_CUDA_LIB and COLL_NCCL_LIB are not set they become the fakes beside the test's program; set to the real libraries,
 * the same tests run on GPUs, one for each rank. */
#ifndef GPU_H
#define GPU_H

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

#include "../../../carriers/nccl/coll_nccl_abi.h"

struct CUgraph_st;
struct CUgraphExec_st;

/* What only tests need of the driver. */
#define GPU_FUNCTIONS(X)                                                                          \
    X(CtxSetCurrent, (struct CUctx_st *context))                                                  \
    X(StreamCreate, (struct CUstream_st **stream, unsigned flags))                                \
    X(StreamDestroy_v2, (struct CUstream_st *stream))                                             \
    X(StreamSynchronize, (struct CUstream_st *stream))                                            \
    X(StreamBeginCapture_v2, (struct CUstream_st *stream, unsigned mode))                         \
    X(StreamEndCapture, (struct CUstream_st *stream, struct CUgraph_st **graph))                  \
    X(GraphInstantiateWithFlags, (struct CUgraphExec_st **out, struct CUgraph_st *graph, unsigned long long flags)) \
    X(GraphLaunch, (struct CUgraphExec_st *graph, struct CUstream_st *stream))                    \
    X(GraphExecDestroy, (struct CUgraphExec_st *graph))                                           \
    X(GraphDestroy, (struct CUgraph_st *graph))                                                   \
    X(MemcpyHtoD_v2, (coll__cuda_address to, const void *from, size_t length))                    \
    X(MemcpyDtoH_v2, (void *to, coll__cuda_address from, size_t length))

#define GPU_MEMBER(name, parameters) coll__cuda_result (*name) parameters;
#define GPU_MEMBER_NCCL(name, parameters) coll__nccl_result (*name) parameters;
static struct { void *library; COLL__CUDA_FUNCTIONS(GPU_MEMBER) GPU_FUNCTIONS(GPU_MEMBER) } gpu;
static struct { void *library; COLL__NCCL_FUNCTIONS(GPU_MEMBER_NCCL) } nccl;

/* ---- >>loading ---- */

/* Name the fakes, of this version of NCCL (0: the newest), unless others are named. */
SUPPORT void gpu_name_fakes(int version)
{
    char self[PATH_MAX] = "", path[PATH_MAX + 64];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *directory = length > 0 ? dirname(self) : ".";

    snprintf(path, sizeof path, "%s/fake_cuda.so", directory);
    setenv("COLL_CUDA_LIB", path, 0);
    snprintf(path, sizeof path, "%s/fake_nccl_%d.so", directory, version ? version : 22809);
    setenv("COLL_NCCL_LIB", path, version != 0);
}

SUPPORT void *gpu_symbol(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol) return symbol;
    fprintf(stderr, "the test needs %s\n", name);
    exit(1);
}

SUPPORT void gpu_must(coll__cuda_result result, const char *what)
{
    if (!result) return;
    fprintf(stderr, "the test's own %s fails with %u\n", what, result);
    exit(1);
}

/* Once in a process, before any thread. */
SUPPORT void gpu_load(void)
{
    if (gpu.library) return;
    gpu_name_fakes(0);
    gpu.library = dlopen(getenv("COLL_CUDA_LIB"), RTLD_NOW | RTLD_LOCAL);
    nccl.library = dlopen(getenv("COLL_NCCL_LIB"), RTLD_NOW | RTLD_LOCAL);
    if (!gpu.library || !nccl.library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define GPU_LOAD(name, parameters) *(void **)&gpu.name = gpu_symbol(gpu.library, "cu" #name);
    COLL__CUDA_FUNCTIONS(GPU_LOAD)
    GPU_FUNCTIONS(GPU_LOAD)
#define GPU_LOAD_NCCL(name, parameters) *(void **)&nccl.name = gpu_symbol(nccl.library, "nccl" #name);
    COLL__NCCL_FUNCTIONS(GPU_LOAD_NCCL)
    gpu_must(gpu.Init(0), "cuInit");
}

/* ---- >>devices ---- */

/* This thread works on a device. */
SUPPORT void gpu_use(int device)
{
    struct CUctx_st *context = NULL;

    gpu_must(gpu.DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    gpu_must(gpu.CtxSetCurrent(context), "cuCtxSetCurrent");
}

SUPPORT struct CUstream_st *gpu_stream(void)
{
    struct CUstream_st *stream = NULL;
    gpu_must(gpu.StreamCreate(&stream, 1), "cuStreamCreate");
    return stream;
}

SUPPORT void *gpu_alloc(size_t length)
{
    coll__cuda_address at = 0;
    gpu_must(gpu.MemAlloc_v2(&at, length ? length : 1), "cuMemAlloc");
    return (void *)(uintptr_t)at;
}

SUPPORT coll__cuda_address gpu_address(const void *at) { return (coll__cuda_address)(uintptr_t)at; }
SUPPORT void gpu_free(void *at) { gpu_must(gpu.MemFree_v2(gpu_address(at)), "cuMemFree"); }

SUPPORT void gpu_push(void *to, const void *from, size_t length)
{
    gpu_must(gpu.MemcpyHtoD_v2(gpu_address(to), from, length), "cuMemcpyHtoD");
}

SUPPORT void gpu_pull(void *to, const void *from, size_t length)
{
    gpu_must(gpu.MemcpyDtoH_v2(to, gpu_address(from), length), "cuMemcpyDtoH");
}

#endif /* GPU_H */
