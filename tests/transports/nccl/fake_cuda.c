/* fake_cuda.c - a fake libcuda.so.1: the functions of the driver that the library loads, and those that its tests need.
 *
 *   streams   each is a thread with a queue.  Work runs in order, after a random delay (FAKE_LATE_US).  If a buffer or a request
 *             is released too early, the work or a sanitizer detects it.
 *   memory    of all devices is one file, mapped twice.  A program gets a mapping without access; the work uses the other one.
 *             So the host cannot read or write device memory by mistake.  Pinned memory is in the same file, and there a program
 *             gets the mapping that the work uses.
 *   kernels   are the library's own, as functions of the host (fake_kernels.cc); the module's text must have their names and
 *             their parameters.
 *
 * Stricter than a driver:
 *   - memory is checked to the byte when the work runs; freed memory is never reused, and work that uses it ends the process.
 *     cuMemFree does not wait for the device, although a driver's usually does.
 *   - asynchronous copies from or to pageable memory end the process: a driver makes them synchronous, or reads later.
 *   - nothing is synchronous with the default stream, which is one more stream for each device.
 *   - destroyed streams and events are never released: using one ends the process.
 *   - while a stream is captured, the calls that CUDA names unsafe (allocating, querying an event, waiting) fail as they do there
 *     and invalidate the capture: in mode 0 from any thread, in mode 1 from the thread that captures.
 *   - after cuInit a forked child has no CUDA. */
#define _GNU_SOURCE 1
#include "fake.h"
#include "fake_kernels.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../../carriers/nccl/coll_nccl_abi.h"

typedef coll__cuda_result result;

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
       INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
       CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_ISOLATION = 905, CAPTURED_EVENT = 907 };

enum { DEVICES_MOST = 64, CONTEXTS_DEEP = 16, PAGE = 4096 };
static const size_t arena_size = (size_t)1 << 34;

/* The functions that the library loads are defined below with the library's declarations; the tests also load these. */
#define DECLARE(name, parameters) FAKE_API result cu##name parameters;
COLL__CUDA_FUNCTIONS(DECLARE)
#undef DECLARE

/* ---- >>failing, settings ---- */

void fake_fail(const char *format, ...)
{
    va_list list;

    fflush(NULL);
    fprintf(stderr, "the fake GPU: ");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n");
    _exit(FAKE_EXIT);
}

long fake_setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : otherwise;
}

/* ---- >>the library's state ---- */

typedef struct CUctx_st { int device, holders; } context;

/* An allocation.  In the arena they lie in the order in which they were made. */
typedef struct block {
    size_t offset, length;
    int    device;
    bool   is_pinned, is_alive;
} block;

/* A capture, the graph that it becomes, and the launches of that graph share one object, which is never released. */
typedef struct CUgraph_st {
    fake_work *works;
    int        count, room, mode, holders;
    pthread_t  thread;
    bool       is_active, is_spoilt;
    struct CUgraph_st *next;
} capture;

typedef struct item { fake_work work; uint64_t number; struct item *next; } item;

typedef struct CUstream_st {
    int      device;
    bool     has_left;
    uint64_t enqueued, done, random;
    item    *head, **tail;
    capture *capture;
    pthread_cond_t changed;
    struct CUstream_st *next;
} stream;

typedef struct CUevent_st {
    int      device;
    bool     has_left;
    uint64_t recorded, reached;
    capture *capture;
    struct CUevent_st *next;
} event;

typedef struct CUmod_st { char *text; } module;
typedef struct CUfunc_st { fake_kernel kernel; } function;

/* One lock for all of it; work runs outside. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t reached = PTHREAD_COND_INITIALIZER;         /* an event has been                        */
static struct {
    pid_t          pid;                           /* that has called cuInit                                   */
    int            devices, arena_fd;
    context        contexts[DEVICES_MOST];
    stream        *streams, *defaults[DEVICES_MOST];
    event         *events;
    capture       *captures;
    unsigned char *given, *view;                  /* the arena's two mappings                                 */
    size_t         used;
    block         *blocks;
    int            block_count, block_room;
} cuda;
static _Thread_local context *current[CONTEXTS_DEEP];
static _Thread_local int depth;

static void take(void) { pthread_mutex_lock(&lock); }
static void release(void) { pthread_mutex_unlock(&lock); }

static void *need(void *memory)
{
    if (!memory) fake_fail("no memory for the fake itself");
    return memory;
}

/* Make room for one more. */
static void *grow(void *array, int count, int *room, size_t each)
{
    if (count < *room) return array;
    *room = 2 * count + 64;
    return need(realloc(array, (size_t)*room * each));
}

int fake_current_device(void) { return depth && current[depth - 1] ? current[depth - 1]->device : -1; }

static bool has_context(void)
{
    const int device = fake_current_device();
    return cuda.pid == getpid() && device >= 0 && current[depth - 1]->holders > 0;
}

/* Of the functions that CUDA calls unsafe during a capture. */
static bool is_unsafe_now(void)
{
    bool is_unsafe = false;

    take();
    for (capture *c = cuda.captures; c; c = c->next) {
        if (!c->is_active || c->mode == 2 || (c->mode == 1 && !pthread_equal(c->thread, pthread_self()))) continue;
        c->is_spoilt = is_unsafe = true;
    }
    release();
    return is_unsafe;
}

#define NEED_CONTEXT() do { if (!has_context()) return INVALID_CONTEXT; } while (0)
#define NEED_CONTEXT_AND_CALM()                                                                   \
    do {                                                                                          \
        NEED_CONTEXT();                                                                           \
        if (is_unsafe_now()) return CAPTURE_UNSUPPORTED;                                          \
    } while (0)

/* ---- >>devices and contexts ---- */

result cuInit(unsigned flags)
{
    const long devices = fake_setting("FAKE_CUDA_DEVICES", 24);

    if (flags) return INVALID_VALUE;
    if (devices < 1) return NO_DEVICE;
    take();
    if (!cuda.pid) {
        cuda.devices = devices < DEVICES_MOST ? (int)devices : DEVICES_MOST;
        for (int i = 0; i < cuda.devices; i++) cuda.contexts[i].device = i;
        cuda.arena_fd = memfd_create("device memory", MFD_CLOEXEC);
        if (cuda.arena_fd < 0 || ftruncate(cuda.arena_fd, (off_t)arena_size)) fake_fail("no memory: %s", strerror(errno));
        cuda.given = mmap(NULL, arena_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        cuda.view = mmap(NULL, arena_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, cuda.arena_fd, 0);
        if (cuda.given == MAP_FAILED || cuda.view == MAP_FAILED) fake_fail("no addresses for device memory");
        cuda.pid = getpid();
    }
    release();
    return cuda.pid == getpid() ? OK : NOT_INITIALIZED;
}

result cuGetErrorString(result number, const char **text)
{
    static const struct { result number; const char *text; } texts[] = {
        { OK, "no error" }, { INVALID_VALUE, "invalid argument" }, { OUT_OF_MEMORY, "out of memory" },
        { NOT_INITIALIZED, "initialization error" }, { NO_DEVICE, "no CUDA-capable device is detected" },
        { INVALID_DEVICE, "invalid device ordinal" }, { INVALID_IMAGE, "device kernel image is invalid" },
        { INVALID_CONTEXT, "invalid device context" }, { INVALID_HANDLE, "invalid resource handle" },
        { NOT_FOUND, "named symbol not found" }, { NOT_READY, "device not ready" },
        { CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing" },
        { CAPTURE_INVALIDATED, "operation failed due to a previous error during capture" },
        { CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream" },
        { CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream" }
    };

    *text = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].number == number) *text = texts[i].text;
    return *text ? OK : INVALID_VALUE;
}

result cuDeviceGetCount(int *count)
{
    if (cuda.pid != getpid()) return NOT_INITIALIZED;
    *count = cuda.devices;
    return OK;
}

result cuDeviceGet(int *device, int ordinal)
{
    if (cuda.pid != getpid()) return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= cuda.devices) return INVALID_DEVICE;
    *device = ordinal;
    return OK;
}

result cuDevicePrimaryCtxRetain(context **out, int device)
{
    if (cuda.pid != getpid()) return NOT_INITIALIZED;
    if (device < 0 || device >= cuda.devices) return INVALID_DEVICE;
    take();
    cuda.contexts[device].holders++;
    release();
    *out = &cuda.contexts[device];
    return OK;
}

result cuDevicePrimaryCtxRelease_v2(int device)
{
    if (device < 0 || device >= cuda.devices) return INVALID_DEVICE;
    take();
    const bool is_held = cuda.contexts[device].holders > 0 && cuda.contexts[device].holders--;
    release();
    return is_held ? OK : INVALID_CONTEXT;
}

result cuCtxPushCurrent_v2(context *c)
{
    if (!c || c < cuda.contexts || c >= cuda.contexts + cuda.devices || !c->holders) return INVALID_CONTEXT;
    if (depth == CONTEXTS_DEEP) fake_fail("%d contexts are current on one thread: pushed, and never popped", depth);
    current[depth++] = c;
    return OK;
}

result cuCtxPopCurrent_v2(context **c)
{
    if (!depth) return INVALID_CONTEXT;
    depth--;
    if (c) *c = current[depth];
    return OK;
}

FAKE_API result cuCtxSetCurrent(context *c);
result cuCtxSetCurrent(context *c)
{
    if (depth) depth--;
    return c ? cuCtxPushCurrent_v2(c) : OK;
}

FAKE_API result cuCtxGetCurrent(context **c);
result cuCtxGetCurrent(context **c)
{
    *c = depth ? current[depth - 1] : NULL;
    return cuda.pid == getpid() ? OK : NOT_INITIALIZED;
}

/* ---- >>memory ---- */

#define HOST(address) ((void *)(uintptr_t)(address))

/* The allocation that an address is in, alive or not, and how far; under the lock.  Each kind is known by its own mapping. */
static block *block_of(const unsigned char *at, size_t *within)
{
    const bool is_given = at >= cuda.given && at < cuda.given + cuda.used;
    const bool is_view = at >= cuda.view && at < cuda.view + cuda.used;
    const size_t offset = (size_t)(at - (is_given ? cuda.given : cuda.view));
    int low = 0, high = cuda.block_count;

    if (!cuda.block_count || !(is_given || is_view)) return NULL;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (cuda.blocks[middle].offset <= offset) low = middle;
        else high = middle;
    }
    block *b = &cuda.blocks[low];
    *within = offset - b->offset;
    return *within < b->length && b->is_pinned == is_view ? b : NULL;
}

/* Pages of their own with one between, so that no two allocations touch; the end is checked to the byte. */
static result allocate(size_t length, bool is_pinned, void **out)
{
    const size_t pages = (length + PAGE - 1) / PAGE * PAGE;

    NEED_CONTEXT_AND_CALM();
    if (!length) return INVALID_VALUE;
    take();
    const bool fits = pages <= arena_size && cuda.used <= arena_size - pages - PAGE;
    if (fits) {
        cuda.blocks = grow(cuda.blocks, cuda.block_count, &cuda.block_room, sizeof *cuda.blocks);
        cuda.blocks[cuda.block_count++] = (block){ cuda.used, length, fake_current_device(), is_pinned, true };
        *out = (is_pinned ? cuda.view : cuda.given) + cuda.used;
        memset(cuda.view + cuda.used, 0xab, length);
        cuda.used += pages + PAGE;
    }
    release();
    return fits ? OK : OUT_OF_MEMORY;
}

static result deallocate(void *at, bool is_pinned)
{
    size_t within = 0;

    NEED_CONTEXT_AND_CALM();
    take();
    block *b = block_of(at, &within);
    const bool is_right = b && !within && b->is_pinned == is_pinned && b->is_alive;
    if (is_right) {
        b->is_alive = false;
        (void)madvise(cuda.view + b->offset, (b->length + PAGE - 1) / PAGE * PAGE, MADV_REMOVE);
    }
    release();
    return is_right ? OK : INVALID_VALUE;
}

result cuMemAlloc_v2(coll__cuda_address *out, size_t length)
{
    void *at = NULL;
    const result status = allocate(length, false, &at);

    if (!status) *out = (coll__cuda_address)(uintptr_t)at;
    return status;
}

result cuMemFree_v2(coll__cuda_address address) { return address ? deallocate(HOST(address), false) : OK; }
result cuMemAllocHost_v2(void **out, size_t length) { return allocate(length, true, out); }
result cuMemFreeHost(void *at) { return deallocate(at, true); }

fake_place fake_place_of(const void *pointer, int *device)
{
    const unsigned char *at = pointer;
    size_t within;

    take();
    const block *b = block_of(at, &within);
    const bool is_ours = cuda.given && ((at >= cuda.given && at < cuda.given + arena_size) ||
                                        (at >= cuda.view && at < cuda.view + arena_size));
    const fake_place place = b && b->is_alive ? b->is_pinned ? FAKE_PINNED : FAKE_DEVICE : is_ours ? FAKE_NOWHERE : FAKE_PAGEABLE;
    if (b && b->is_alive) *device = b->device;
    release();
    return place;
}

void *fake_view(const void *pointer, size_t length, const char *who)
{
    void *view = NULL;
    size_t within;

    take();
    const block *b = block_of(pointer, &within);
    if (b && !b->is_alive) fake_fail("%s works on memory that has been freed", who);
    if (b && length > b->length - within)
        fake_fail("%s goes %zu bytes beyond the end of an allocation of %zu", who, length - (b->length - within), b->length);
    if (b) view = cuda.view + b->offset + within;
    release();
    if (!view && length) fake_fail("%s works on %p, which is neither on a device nor pinned", who, pointer);
    return view;
}

int fake_arena_fd(void) { return cuda.arena_fd; }
size_t fake_arena_size(void) { return arena_size; }
size_t fake_arena_offset(const void *view) { return (size_t)((const unsigned char *)view - cuda.view); }

result cuPointerGetAttribute(void *value, unsigned attribute, coll__cuda_address address)
{
    int device = -1;
    const fake_place place = fake_place_of(HOST(address), &device);

    if (cuda.pid != getpid()) return NOT_INITIALIZED;
    if (place != FAKE_DEVICE && place != FAKE_PINNED) return INVALID_VALUE;
    switch (attribute) {
    case COLL__CUDA_POINTER_MEMORY_TYPE:
        *(unsigned *)value = place == FAKE_DEVICE ? COLL__CUDA_MEMORY_DEVICE : COLL__CUDA_MEMORY_HOST;
        return OK;
    case COLL__CUDA_POINTER_IS_MANAGED:     *(unsigned *)value = 0; return OK;
    case COLL__CUDA_POINTER_DEVICE_ORDINAL: *(int *)value = device; return OK;
    default:                                return INVALID_VALUE;
    }
}

/* ---- >>streams ---- */

static void be_late(uint64_t random, long late_us)
{
    const struct timespec time = { .tv_nsec = late_us > 0 ? (long)(random >> 8) % (late_us * 1000) : 0 };

    if (random % 4) return;
    if (time.tv_nsec > 0) nanosleep(&time, NULL);
    else sched_yield();
}

static void *stream_main(void *arg)
{
    stream *s = arg;
    const long late_us = fake_setting("FAKE_LATE_US", 40);

    for (;;) {
        take();
        while (!s->head && !s->has_left) pthread_cond_wait(&s->changed, &lock);
        item *i = s->head;
        if (i && !(s->head = i->next)) s->tail = &s->head;
        release();
        if (!i) return NULL;                      /* destroyed, and drained                                   */
        be_late(s->random = fake_mix(s->random), late_us);
        i->work.run(i->work.arg, i->number);
        if (i->work.drop) i->work.drop(i->work.arg);
        free(i);
        take();
        s->done++;
        pthread_cond_broadcast(&s->changed);
        release();
    }
}

static stream *stream_make(int device)
{
    stream *s = need(calloc(1, sizeof *s));
    pthread_attr_t attributes;
    pthread_t thread;

    s->device = device;
    s->tail = &s->head;
    s->random = fake_mix((uint64_t)fake_setting("FAKE_SEED", 1) + (uint64_t)device);
    pthread_cond_init(&s->changed, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, stream_main, s)) fake_fail("no thread for a stream");
    pthread_attr_destroy(&attributes);
    s->next = cuda.streams;
    cuda.streams = s;
    return s;
}

/* Under the lock: a stream, or the default one of this thread's device; NULL: it is none. */
static stream *stream_of(stream *given, int device)
{
    if (!given && device < 0) return NULL;
    if (!given && !cuda.defaults[device]) cuda.defaults[device] = stream_make(device);
    if (!given) return cuda.defaults[device];
    for (stream *s = cuda.streams; s; s = s->next) {
        if (s == given && s->has_left) fake_fail("a stream is used that has been destroyed");
        if (s == given) return s;
    }
    return NULL;
}

int fake_stream_device(stream *given)
{
    take();
    const stream *s = stream_of(given, fake_current_device());
    const int device = s ? s->device : -1;
    release();
    return device;
}

/* Behind what is in the stream. */
static void append(stream *s, fake_work work)
{
    item *i = need(malloc(sizeof *i));

    *i = (item){ .work = work, .number = work.issue ? work.issue(work.arg) : 0 };
    *s->tail = i;
    s->tail = &i->next;
    s->enqueued++;
    pthread_cond_broadcast(&s->changed);
}

int fake_enqueue(stream *given, fake_work work)
{
    take();
    stream *s = stream_of(given, fake_current_device());
    capture *c = s ? s->capture : NULL;
    if (c && !c->is_spoilt) {
        c->works = grow(c->works, c->count, &c->room, sizeof *c->works);
        c->works[c->count++] = work;
    } else if (s && !c) {
        append(s, work);
    }
    release();
    if (s && (!c || !c->is_spoilt)) return OK;
    if (work.drop) work.drop(work.arg);
    return s ? CAPTURE_INVALIDATED : INVALID_HANDLE;
}

FAKE_API result cuStreamCreate(stream **out, unsigned flags);
result cuStreamCreate(stream **out, unsigned flags)
{
    NEED_CONTEXT();
    (void)flags;
    take();
    *out = stream_make(fake_current_device());
    release();
    return OK;
}

FAKE_API result cuStreamDestroy_v2(stream *given);
result cuStreamDestroy_v2(stream *given)
{
    NEED_CONTEXT();
    if (!given) return INVALID_HANDLE;
    take();
    stream *s = stream_of(given, -1);
    if (s) s->has_left = true;
    if (s) pthread_cond_broadcast(&s->changed);
    release();
    return s ? OK : INVALID_HANDLE;
}

FAKE_API result cuStreamSynchronize(stream *given);
result cuStreamSynchronize(stream *given)
{
    NEED_CONTEXT_AND_CALM();
    take();
    stream *s = stream_of(given, fake_current_device());
    const uint64_t last = s ? s->enqueued : 0;
    while (s && s->done < last) pthread_cond_wait(&s->changed, &lock);
    release();
    return s ? OK : INVALID_HANDLE;
}

result cuStreamGetCtx(stream *given, context **c)
{
    const int device = fake_stream_device(given);

    NEED_CONTEXT();
    if (device < 0) return INVALID_HANDLE;
    *c = &cuda.contexts[device];
    return OK;
}

/* ---- >>copies ---- */

typedef struct copy { const void *from; void *to; size_t length; int value; } copy;

static void copy_run(void *arg, uint64_t number)
{
    const copy *c = arg;

    (void)number;
    void *to = fake_view(c->to, c->length, "a copy on a stream");
    if (!c->from) memset(to, c->value, c->length);
    else memcpy(to, fake_view(c->from, c->length, "a copy on a stream"), c->length);
}

static result copy_later(copy c, stream *s)
{
    int device;

    NEED_CONTEXT();
    if (!c.length) return OK;
    if (fake_place_of(c.to, &device) == FAKE_PAGEABLE || (c.from && fake_place_of(c.from, &device) == FAKE_PAGEABLE))
        fake_fail("an asynchronous copy of %zu bytes from or to pageable memory", c.length);
    (void)fake_view(c.to, c.length, "an asynchronous copy");
    if (c.from) (void)fake_view(c.from, c.length, "an asynchronous copy");
    copy *kept = need(malloc(sizeof *kept));
    *kept = c;
    return (result)fake_enqueue(s, (fake_work){ .run = copy_run, .drop = free, .arg = kept });
}

result cuMemcpyHtoDAsync_v2(coll__cuda_address to, const void *from, size_t length, stream *s)
{
    return copy_later((copy){ from, HOST(to), length, 0 }, s);
}

result cuMemcpyDtoHAsync_v2(void *to, coll__cuda_address from, size_t length, stream *s)
{
    return copy_later((copy){ HOST(from), to, length, 0 }, s);
}

result cuMemcpyDtoDAsync_v2(coll__cuda_address to, coll__cuda_address from, size_t length, stream *s)
{
    return copy_later((copy){ HOST(from), HOST(to), length, 0 }, s);
}

result cuMemsetD8Async(coll__cuda_address at, unsigned char value, size_t length, stream *s)
{
    return copy_later((copy){ NULL, HOST(at), length, value }, s);
}

FAKE_API result cuMemcpyHtoD_v2(coll__cuda_address to, const void *from, size_t length);
result cuMemcpyHtoD_v2(coll__cuda_address to, const void *from, size_t length)
{
    NEED_CONTEXT_AND_CALM();
    if (length) memcpy(fake_view(HOST(to), length, "a copy to a device"), from, length);
    return OK;
}

FAKE_API result cuMemcpyDtoH_v2(void *to, coll__cuda_address from, size_t length);
result cuMemcpyDtoH_v2(void *to, coll__cuda_address from, size_t length)
{
    NEED_CONTEXT_AND_CALM();
    if (length) memcpy(to, fake_view(HOST(from), length, "a copy from a device"), length);
    return OK;
}

/* ---- >>events ---- */

/* Under the lock. */
static event *event_of(event *given)
{
    for (event *e = cuda.events; e; e = e->next) {
        if (e == given && e->has_left) fake_fail("an event is used that has been destroyed");
        if (e == given) return e;
    }
    return NULL;
}

result cuEventCreate(event **out, unsigned flags)
{
    NEED_CONTEXT();
    (void)flags;
    event *e = need(calloc(1, sizeof *e));
    e->device = fake_current_device();
    take();
    e->next = cuda.events;
    cuda.events = e;
    release();
    *out = e;
    return OK;
}

result cuEventDestroy_v2(event *given)
{
    NEED_CONTEXT();
    take();
    event *e = event_of(given);
    if (e) e->has_left = true;
    release();
    return e ? OK : INVALID_HANDLE;
}

typedef struct mark { event *event; uint64_t number; } mark;

static void mark_reach(void *arg, uint64_t number)
{
    const mark *m = arg;

    (void)number;
    take();
    if (m->event->reached < m->number) m->event->reached = m->number;
    pthread_cond_broadcast(&reached);
    release();
}

static void mark_await(void *arg, uint64_t number)
{
    const mark *m = arg;

    (void)number;
    take();
    while (m->event->reached < m->number) pthread_cond_wait(&reached, &lock);
    release();
}

result cuEventRecord(event *given, stream *in)
{
    mark *m = need(malloc(sizeof *m));
    int status = INVALID_HANDLE;

    take();
    event *e = event_of(given);
    stream *s = stream_of(in, fake_current_device());
    if (e && s && s->device == e->device) {
        e->capture = s->capture;
        *m = (mark){ e, s->capture ? e->recorded : ++e->recorded };
        status = OK;
    }
    release();
    if (status || e->capture) {                   /* in a capture, the order of the works decides             */
        free(m);
        return (result)status;
    }
    return (result)fake_enqueue(in, (fake_work){ .run = mark_reach, .drop = free, .arg = m });
}

result cuEventQuery(event *given)
{
    NEED_CONTEXT_AND_CALM();
    take();
    const event *e = event_of(given);
    const result status = !e ? INVALID_HANDLE : e->capture ? CAPTURED_EVENT : e->reached >= e->recorded ? OK : NOT_READY;
    release();
    return status;
}

result cuStreamWaitEvent(stream *in, event *given, unsigned flags)
{
    mark *m = need(malloc(sizeof *m));
    int status = OK;

    take();
    event *e = event_of(given);
    stream *s = stream_of(in, fake_current_device());
    if (!e || !s || flags) status = INVALID_HANDLE;
    else if (e->capture && (!s->capture || s->capture == e->capture)) s->capture = e->capture;
    else if (e->capture || s->capture) status = CAPTURE_ISOLATION;
    if (!status) *m = (mark){ e, e->recorded };
    const bool is_done = status || e->capture;
    release();
    if (is_done) {
        free(m);
        return (result)status;
    }
    return (result)fake_enqueue(in, (fake_work){ .run = mark_await, .drop = free, .arg = m });
}

/* ---- >>captures: works that are kept instead of run, in the order of the calls, whichever streams they are for ---- */

FAKE_API result cuStreamBeginCapture_v2(stream *given, unsigned mode);
result cuStreamBeginCapture_v2(stream *given, unsigned mode)
{
    capture *c = need(calloc(1, sizeof *c));

    NEED_CONTEXT();
    *c = (capture){ .mode = (int)mode, .holders = 1, .thread = pthread_self(), .is_active = true };
    take();
    stream *s = given ? stream_of(given, -1) : NULL;
    if (s && !s->capture) {
        s->capture = c;
        c->next = cuda.captures;
        cuda.captures = c;
    }
    release();
    if (s && s->capture == c) return OK;
    free(c);
    return s ? INVALID_VALUE : CAPTURE_UNSUPPORTED;
}

result cuStreamIsCapturing(stream *given, unsigned *status)
{
    take();
    const stream *s = stream_of(given, fake_current_device());
    *status = !s || !s->capture ? 0 : s->capture->is_spoilt ? 2 : 1;
    release();
    return s ? OK : INVALID_HANDLE;
}

FAKE_API result cuStreamEndCapture(stream *given, capture **graph);
result cuStreamEndCapture(stream *given, capture **graph)
{
    take();
    stream *s = stream_of(given, fake_current_device());
    capture *c = s ? s->capture : NULL;
    for (stream *t = cuda.streams; t && c; t = t->next)
        if (t->capture == c) t->capture = NULL;
    if (c) c->is_active = false;
    release();
    *graph = c && !c->is_spoilt ? c : NULL;
    return !c ? INVALID_VALUE : c->is_spoilt ? CAPTURE_INVALIDATED : OK;
}

FAKE_API result cuGraphInstantiateWithFlags(capture **out, capture *graph, unsigned long long flags);
result cuGraphInstantiateWithFlags(capture **out, capture *graph, unsigned long long flags)
{
    if (flags || !graph->holders) return INVALID_VALUE;
    graph->holders++;
    *out = graph;
    return OK;
}

FAKE_API result cuGraphDestroy(capture *graph);
result cuGraphDestroy(capture *graph) { return graph->holders-- > 0 ? OK : INVALID_VALUE; }

FAKE_API result cuGraphExecDestroy(capture *graph);
result cuGraphExecDestroy(capture *graph) { return graph->holders-- > 0 ? OK : INVALID_VALUE; }

FAKE_API result cuGraphLaunch(capture *graph, stream *given);
result cuGraphLaunch(capture *graph, stream *given)
{
    NEED_CONTEXT();
    if (graph->holders < 1) fake_fail("a graph is launched that has been destroyed");
    take();
    stream *s = stream_of(given, fake_current_device());
    for (int i = 0; s && i < graph->count; i++) {
        fake_work again = graph->works[i];
        again.drop = NULL;
        append(s, again);
    }
    release();
    return s ? OK : INVALID_HANDLE;
}

/* ---- >>kernels ---- */

typedef struct launch {
    const fake_kernel *kernel;
    uint64_t           values[FAKE_PARAMETERS_MOST], blocks, threads;
} launch;

static void launch_run(void *arg, uint64_t number)
{
    launch *l = arg;

    (void)number;
    l->kernel->run(l->values, l->blocks, l->threads);
}

result cuModuleLoadData(module **out, const void *image)
{
    NEED_CONTEXT_AND_CALM();
    if (!strstr(image, ".version") || !strstr(image, ".target")) return INVALID_IMAGE;
    *out = need(malloc(sizeof **out));
    (*out)->text = need(strdup(image));
    return OK;
}

result cuModuleUnload(module *m)
{
    NEED_CONTEXT();
    free(m->text);
    free(m);
    return OK;
}

/* The text must have an entry of this name with the parameters of the source. */
static bool text_has(const char *text, const fake_kernel *k)
{
    const size_t length = strlen(k->name);
    int count = 0;

    while ((text = strstr(text, ".entry ")) != NULL) {
        text += 7;
        if (!strncmp(text, k->name, length) && !isalnum((unsigned char)text[length]) && text[length] != '_') break;
    }
    const char *end = text ? strchr(text, ')') : NULL;
    if (!end) return false;
    for (; (text = strstr(text, ".param ")) != NULL && text < end; text += 7, count++) {
        const bool is_wide = strcspn(text, "6") < strcspn(text, "3,)");         /* .u64 or .f64, not .u32 or .f32   */
        if (count == (int)strlen(k->sizes) || is_wide != (k->sizes[count] == '8'))
            fake_fail("kernel %s: parameter %d is another one in the module", k->name, count);
    }
    if (k->sizes[count]) fake_fail("kernel %s has %d parameters in the module, not %zu", k->name, count, strlen(k->sizes));
    return true;
}

result cuModuleGetFunction(function **out, module *m, const char *name)
{
    const fake_kernel *k;

    for (int i = 0; (k = fake_kernel_at(i)) != NULL; i++) {
        if (strcmp(k->name, name) || !text_has(m->text, k)) continue;
        *out = (function *)(uintptr_t)k;
        return OK;
    }
    return NOT_FOUND;
}

result cuLaunchKernel(function *f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                      unsigned block_z, unsigned shared_bytes, stream *s, void **parameters, void **extra)
{
    const bool is_sized = grid_x && grid_x <= INT32_MAX && block_x && block_x <= 1024;

    NEED_CONTEXT();
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1) fake_fail("a grid of more than one dimension");
    if (!is_sized || shared_bytes > 48 * 1024 || extra || !parameters) return INVALID_VALUE;
    launch *l = need(calloc(1, sizeof *l));
    *l = (launch){ .kernel = &f->kernel, .blocks = grid_x, .threads = block_x };
    for (int i = 0; f->kernel.sizes[i]; i++) memcpy(&l->values[i], parameters[i], (size_t)(f->kernel.sizes[i] - '0'));
    return (result)fake_enqueue(s, (fake_work){ .run = launch_run, .drop = free, .arg = l });
}
