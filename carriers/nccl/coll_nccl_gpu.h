/* coll_nccl_gpu.h - the device: its context, the library's kernels, memory, and events.
 *
 * All communicators of one session that use a device share it; the session admits one thread at a time.  For a call of the
 * driver, a thread enters the device's primary context, which the CUDA runtime also uses, and leaves it. */
#ifndef COLL_NCCL_GPU_H
#define COLL_NCCL_GPU_H

/* The kernels, see coll_nccl_abi.h. */
typedef enum coll__kernel {
    COLL__COMBINE_F32, COLL__COMBINE_F64, COLL__COMBINE_I64, COLL__OVERFLOW, COLL__KERNEL_COUNT
} coll__kernel;

static const char *const coll__kernel_names[] = { "coll_combine_f32", "coll_combine_f64", "coll_combine_i64", "coll_overflow" };

/* An event at the end of an operation, and a word that its kernels may write.  Held by the request, and by the communicator whose
 * last operation it marks. */
typedef struct coll__mark {
    struct CUevent_st  *event;
    struct CUstream_st *stream;
    volatile unsigned  *found;                    /* pinned                                                   */
    int    holders;
    struct coll__mark *next, *all;                /* free; all of the device                                  */
} coll__mark;

/* Memory that grows.  Earlier blocks stay until the end: kernels, or a captured graph, may still use them. */
typedef struct coll__gpu_memory {
    void  *at;
    size_t length;
    struct coll__gpu_memory *before;
} coll__gpu_memory;

typedef struct coll__gpu {
    coll__nccl_calls nccl;
    coll__cuda_calls cuda;
    int    ordinal, holders;
    struct CUctx_st  *context;
    struct CUmod_st  *module;
    struct CUfunc_st *kernels[COLL__KERNEL_COUNT];
    coll__mark *marks, *free_marks;
} coll__gpu;

/* ---- >>calling ---- */

static const char *coll__cuda_text(const coll__gpu *gpu, coll__cuda_result is)
{
    const char *text = NULL;

    (void)gpu->cuda.GetErrorString(is, &text);
    return text ? text : "?";
}

static bool coll__gpu_enter(const coll__gpu *gpu) { return gpu->cuda.CtxPushCurrent_v2(gpu->context) == COLL__CUDA_SUCCESS; }

static void coll__gpu_leave(const coll__gpu *gpu)
{
    struct CUctx_st *ours;
    (void)gpu->cuda.CtxPopCurrent_v2(&ours);
}

/* The state of a communicator. */
static coll__nccl_result coll__nccl_state(const coll__gpu *gpu, struct ncclComm *comm)
{
    coll__nccl_result is = COLL__NCCL_SUCCESS;
    const coll__nccl_result asked = gpu->nccl.CommGetAsyncError(comm, &is);

    return asked != COLL__NCCL_SUCCESS ? asked : is;
}

/* Waits until NCCL has a result, and `event` is complete; either may be NULL.  Returns whether both are so in time, without an
 * error. */
static bool coll__gpu_wait(const coll__gpu *gpu, struct ncclComm *comm, struct CUevent_st *event, int limit_ms)
{
    const int64_t until = coll__deadline(limit_ms);
    const struct timespec delay = { 0, 20000 };

    for (;;) {
        const coll__nccl_result is = comm ? coll__nccl_state(gpu, comm) : COLL__NCCL_SUCCESS;
        const coll__cuda_result now = event ? gpu->cuda.EventQuery(event) : COLL__CUDA_SUCCESS;
        if (is == COLL__NCCL_SUCCESS && now == COLL__CUDA_SUCCESS) return true;
        if (is != COLL__NCCL_SUCCESS && is != COLL__NCCL_IN_PROGRESS) return false;
        if ((now != COLL__CUDA_SUCCESS && now != COLL__CUDA_NOT_READY) || coll__now() > until) return false;
        (void)nanosleep(&delay, NULL);
    }
}

static coll__cuda_address coll__cuda_at(const void *at) { return (coll__cuda_address)(uintptr_t)at; }

/* ---- >>memory ---- */

/* Returns at least `length` bytes; NULL: no memory.  `is_pinned`: of the host. */
static void *coll__gpu_memory_have(const coll__gpu *gpu, coll__gpu_memory *room, size_t length, bool is_pinned)
{
    const size_t wanted = coll__round_up(coll__most(length, 2 * room->length), 1 << 16);
    coll__gpu_memory *before = NULL;
    coll__cuda_address at = 0;
    void *host = NULL;

    if (room->length >= length) return room->at;
    if (room->at && !(before = (coll__gpu_memory *)coll__take(coll__like(gpu), sizeof *before))) return NULL;
    if (is_pinned) (void)gpu->cuda.MemAllocHost_v2(&host, wanted);
    else if (gpu->cuda.MemAlloc_v2(&at, wanted) == COLL__CUDA_SUCCESS) host = (void *)(uintptr_t)at;
    if (!host) {
        coll__give(before);
        return NULL;
    }
    if (before) *before = *room;
    *room = (coll__gpu_memory){ host, wanted, before };
    return host;
}

/* `is_idle` false: operations on it have never ended, so it is not freed. */
static void coll__gpu_memory_free(const coll__gpu *gpu, coll__gpu_memory *room, bool is_pinned, bool is_idle)
{
    coll__gpu_memory *older = NULL;

    for (coll__gpu_memory *now = room; now; now = older) {
        older = now->before;
        if (is_idle && now->at && is_pinned) (void)gpu->cuda.MemFreeHost(now->at);
        else if (is_idle && now->at) (void)gpu->cuda.MemFree_v2(coll__cuda_at(now->at));
        if (now != room) coll__give(now);
    }
    *room = (coll__gpu_memory){ NULL, 0, NULL };
}

/* ---- >>marks ---- */

static coll__mark *coll__mark_new(coll__gpu *gpu)
{
    coll__mark *mark = (coll__mark *)coll__allocate(coll__like(gpu), sizeof *mark);
    void *word = NULL;

    if (!mark) return NULL;
    if (gpu->cuda.EventCreate(&mark->event, COLL__CUDA_EVENT_DISABLE_TIMING) != COLL__CUDA_SUCCESS) mark->event = NULL;
    if (!mark->event || gpu->cuda.MemAllocHost_v2(&word, sizeof(unsigned)) != COLL__CUDA_SUCCESS) {
        if (mark->event) (void)gpu->cuda.EventDestroy_v2(mark->event);
        coll__give(mark);
        return NULL;
    }
    mark->found = (volatile unsigned *)word;
    mark->all = gpu->marks;
    gpu->marks = mark;
    return mark;
}

/* A mark without holders, then held by the caller.  NULL: no memory. */
static coll__mark *coll__mark_take(coll__gpu *gpu)
{
    coll__mark *mark = gpu->free_marks;

    if (mark) gpu->free_marks = mark->next;
    else mark = coll__mark_new(gpu);
    if (!mark) return NULL;
    mark->holders = 1;
    mark->next = NULL;
    *mark->found = 0;
    return mark;
}

static void coll__mark_drop(coll__gpu *gpu, coll__mark *mark)
{
    if (!mark || --mark->holders > 0) return;
    mark->next = gpu->free_marks;
    gpu->free_marks = mark;
}

/* ---- >>kernels ---- */

static bool coll__kernels_load(coll__gpu *gpu, char *why, size_t room)
{
    size_t length = 0;

    for (int i = 0; coll__nccl_ptx[i]; i++) length += strlen(coll__nccl_ptx[i]);
    char *const whole = (char *)coll__take(coll__like(gpu), length + 1);
    if (!whole) {
        coll__print(why, room, "no memory for the kernels");
        return false;
    }
    char *at = whole;
    for (int i = 0; coll__nccl_ptx[i]; at += strlen(at), i++) strcpy(at, coll__nccl_ptx[i]);
    coll__cuda_result is = gpu->cuda.ModuleLoadData(&gpu->module, whole);
    coll__give(whole);

    for (int i = 0; is == COLL__CUDA_SUCCESS && i < COLL__KERNEL_COUNT; i++)
        is = gpu->cuda.ModuleGetFunction(&gpu->kernels[i], gpu->module, coll__kernel_names[i]);
    if (is == COLL__CUDA_SUCCESS) return true;
    coll__print(why, room, "the kernels cannot be loaded: %s (CUDA error %u)", coll__cuda_text(gpu, is), is);
    return false;
}

/* ---- >>open, close ---- */

/* The context of a device, retained. */
static bool coll__gpu_context(coll__gpu *gpu, int ordinal, char *why, size_t room)
{
    int count = 0, device;

    coll__cuda_result is = gpu->cuda.Init(0);
    if (is == COLL__CUDA_SUCCESS) is = gpu->cuda.DeviceGetCount(&count);
    if (is == COLL__CUDA_NO_DEVICE || (is == COLL__CUDA_SUCCESS && count == 0)) {
        coll__print(why, room, "there is no GPU");
        return false;
    }
    if (is == COLL__CUDA_SUCCESS && (ordinal < 0 || ordinal >= count)) {
        coll__print(why, room, "there is no device %d, only %d from 0 on", ordinal, count);
        return false;
    }
    if (is == COLL__CUDA_SUCCESS) is = gpu->cuda.DeviceGet(&device, ordinal);
    if (is == COLL__CUDA_SUCCESS) is = gpu->cuda.DevicePrimaryCtxRetain(&gpu->context, device);
    if (is == COLL__CUDA_SUCCESS) {
        gpu->ordinal = device;
        return true;
    }
    gpu->context = NULL;
    coll__print(why, room, "device %d cannot be used: %s (CUDA error %u)", ordinal, coll__cuda_text(gpu, is), is);
    return false;
}

static void coll__gpu_free(coll__gpu *gpu, bool is_idle)
{
    const bool is_inside = gpu->context && coll__gpu_enter(gpu);

    for (coll__mark *mark = gpu->marks, *next; mark; mark = next) {
        next = mark->all;
        (void)gpu->cuda.EventDestroy_v2(mark->event);
        if (is_idle) (void)gpu->cuda.MemFreeHost((void *)(uintptr_t)mark->found);
        coll__give(mark);
    }
    if (gpu->module && is_idle) (void)gpu->cuda.ModuleUnload(gpu->module);
    if (is_inside) coll__gpu_leave(gpu);
    if (gpu->context) (void)gpu->cuda.DevicePrimaryCtxRelease_v2(gpu->ordinal);
    if (gpu->nccl.library) dlclose(gpu->nccl.library);
    if (gpu->cuda.library) dlclose(gpu->cuda.library);
    coll__give(gpu);
}

/* Opens device `ordinal`, held by the caller.  NULL, with the sentence. */
static coll__gpu *coll__gpu_open(int ordinal, char *why, size_t room)
{
    coll__gpu *gpu = (coll__gpu *)coll__allocate(NULL, sizeof *gpu);

    if (!gpu) {
        coll__print(why, room, "no memory for a device");
        return NULL;
    }
    gpu->holders = 1;
    bool is_there = coll__nccl_load(&gpu->nccl, why, room) && coll__cuda_load(&gpu->cuda, why, room)
                 && coll__gpu_context(gpu, ordinal, why, room);
    if (is_there && (is_there = coll__gpu_enter(gpu))) {
        is_there = coll__kernels_load(gpu, why, room);
        coll__gpu_leave(gpu);
    }
    if (is_there) return gpu;
    coll__gpu_free(gpu, true);
    return NULL;
}

#endif /* COLL_NCCL_GPU_H */
