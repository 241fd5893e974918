/* gpu_world.h - the world "nccl", whose buffers lie in the memory of devices.  Used after support.h. */
#ifndef GPU_WORLD_H
#define GPU_WORLD_H

#include "gpu.h"

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
        fprintf(stderr, "coll_init_nccl of rank %d: %s: %s\n", rank, coll_status_text(status), coll_error(host));
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

    gpu_load();
    support_elsewhere = &gpu_memory;
    const int failed = support_run_config("threads", size, config, gpu_rank, &w);
    support_elsewhere = NULL;
    return failed;
}

#endif /* GPU_WORLD_H */
