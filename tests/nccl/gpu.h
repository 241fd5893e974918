/* gpu.h - GPUs for tests: the driver and NCCL, found where the library finds them, and the world "nccl", whose buffers lie in
 * the memory of devices.  Used after support.h.
 *
 * Where COLL_CUDA_LIB and COLL_NCCL_LIB are not set they become the fakes beside the test's program; set to the real libraries,
 * the same tests run on GPUs, one for each rank. */
#ifndef GPU_H
#define GPU_H

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

#include "../../transports/nccl/coll_nccl_abi.h"

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
#define GPU_MEMBER_NCCL(name, since, parameters) coll__nccl_result (*name) parameters;
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

SUPPORT void *gpu_symbol(void *library, const char *name, bool is_needed)
{
    void *symbol = dlsym(library, name);
    if (symbol || !is_needed) return symbol;
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
    gpu_name_fakes(0);
    gpu.library = dlopen(getenv("COLL_CUDA_LIB"), RTLD_NOW | RTLD_LOCAL);
    nccl.library = dlopen(getenv("COLL_NCCL_LIB"), RTLD_NOW | RTLD_LOCAL);
    if (!gpu.library || !nccl.library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define GPU_LOAD(name, parameters) *(void **)&gpu.name = gpu_symbol(gpu.library, "cu" #name, true);
    COLL__CUDA_FUNCTIONS(GPU_LOAD)
    GPU_FUNCTIONS(GPU_LOAD)
#define GPU_LOAD_NCCL(name, since, parameters) *(void **)&nccl.name = gpu_symbol(nccl.library, "nccl" #name, (since) < 22000);
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
SUPPORT void gpu_push(void *to, const void *from, size_t length) { gpu_must(gpu.MemcpyHtoD_v2(gpu_address(to), from, length), "copy"); }
SUPPORT void gpu_pull(void *to, const void *from, size_t length) { gpu_must(gpu.MemcpyDtoH_v2(to, gpu_address(from), length), "copy"); }

/* ---- >>buffers: the test's own memory, and where it lies on the device of the thread that made it ---- */

typedef struct gpu_twin {
    const unsigned char *block;
    size_t               length;
    void                *device;
    struct gpu_twin     *next;
} gpu_twin;

static _Thread_local gpu_twin *gpu_twins;

static void *gpu_twin_make(const void *block, size_t length)
{
    gpu_twin *t = support_need(malloc(sizeof *t));

    *t = (gpu_twin){ block, length, gpu_alloc(length), gpu_twins };
    gpu_twins = t;
    return t->device;
}

static void gpu_twin_free(void *device)
{
    for (gpu_twin **at = &gpu_twins; *at; at = &(*at)->next) {
        gpu_twin *t = *at;
        if (t->device != device) continue;
        *at = t->next;
        gpu_free(device);
        free(t);
        return;
    }
}

static void *gpu_twin_find(const void *pointer)
{
    const unsigned char *at = pointer;

    for (const gpu_twin *t = gpu_twins; t; t = t->next)
        if (at >= t->block && at < t->block + t->length) return (unsigned char *)t->device + (at - t->block);
    return (void *)(uintptr_t)pointer;
}

static const support_memory gpu_memory = { gpu_twin_make, gpu_twin_free, gpu_push, gpu_pull, gpu_twin_find };

/* ---- >>the world: ranks that are threads, each with a device and a stream ---- */

typedef struct gpu_world {
    int (*worker)(coll_comm *comm, void *arg);
    void *arg;
} gpu_world;

/* Every third rank uses the default stream of its device. */
static int gpu_rank(coll_comm *host, void *arg)
{
    const gpu_world *w = arg;
    const int rank = coll_rank(host);
    coll_comm *comm = NULL;

    gpu_use(rank);
    struct CUstream_st *stream = rank % 3 == 2 ? NULL : gpu_stream();
    const coll_status status = coll_init_nccl(host, rank, stream, &comm);
    if (status) {
        fprintf(stderr, "coll_init_nccl of rank %d of %d: %s: %s\n", rank, coll_size(host), coll_status_text(status), coll_error(host));
        return -1;
    }
    const int result = w->worker(comm, w->arg);
    coll_free(comm);
    if (stream) gpu_must(gpu.StreamDestroy_v2(stream), "cuStreamDestroy");
    return result;
}

SUPPORT int gpu_run(int size, const coll_config *config, int (*worker)(coll_comm *comm, void *arg), void *arg)
{
    gpu_world w = { worker, arg };

    if (!gpu.library) gpu_load();
    support_elsewhere = &gpu_memory;
    const int failed = support_run_config("threads", size, config, gpu_rank, &w);
    support_elsewhere = NULL;
    return failed;
}

#endif /* GPU_H */
