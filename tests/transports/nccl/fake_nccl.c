/* fake_nccl.c - a fake libnccl.so.2 of the version FAKE_VERSION: the functions that the library loads, with strict checks.
 *
 * As NCCL does, it refuses (with a result): 16-bit integers, 8-bit floats in a reduction, a root, a peer or an operation that is
 * none, memory that is not on the communicator's device, a stream of another device, two ranks on one device, a configuration
 * without its magic number, and any call while an earlier one of a non-blocking communicator is in progress.  One error in a
 * group is the error of the group, and then none of it is done.
 *
 * Where NCCL would hang, crash or race, it ends the process with a sentence:
 *   - ranks whose collectives differ in kind, count, type, operation, root or order; messages whose two ends differ in length;
 *   - exchanges outside of a group, messages of a rank to itself included;
 *   - operations that wait for longer than FAKE_HANG_MS for ranks that do not come;
 *   - two threads at once in calls for one device, also on two communicators, also when one is between the calls of a group;
 *   - a communicator that is used after it has been destroyed or aborted, and an abort while another thread is in a call;
 *   - buffers of a launch that overlap, but for the one form in which each call may work in place.
 *
 * A non-blocking communicator returns InProgress for some calls of CommGetAsyncError, and puts the work into the stream with the
 * last of them: work that the program adds earlier runs first.  CommFinalize ends when all ranks have called it or aborted.
 *
 * FAKE_NCCL_FAULT is a list of RANK:WHAT[:N], RANK being * for all:
 *   init         CommInitRankConfig fails with UnhandledCudaError, and the others wait
 *   progress:N   calls of a non-blocking communicator say InProgress N times (otherwise up to twice, at random)
 *   call:N       call N that would launch something fails with SystemError (counted from 0)
 *   remote:N     from launch N on, CommGetAsyncError says RemoteError, and the launches wait for an abort
 *   lost:N       launch N never comes to its peers, and waits for an abort */
#define _GNU_SOURCE 1
#include "../../../coll.h"

#include "fake.h"
#include "fake_world.h"

#include "../../../carriers/nccl/coll_nccl_abi.h"

#include <limits.h>
#include <sched.h>

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif

typedef coll__nccl_result result;

#define DECLARE(name, parameters) FAKE_API result nccl##name parameters;
COLL__NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
#define DECLARE(name, parameters) FAKE_API const char *nccl##name parameters;
COLL__NCCL_TEXTS(DECLARE)
#undef DECLARE

enum { OK = 0, UNHANDLED_CUDA = 1, SYSTEM = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6, IN_PROGRESS = 7 };
enum { OPERATIONS_MOST = POSTS_MOST, DEVICES_MOST = 64, TYPES_HERE = FAKE_VERSION >= 22400 ? TYPES : TYPES - 2 };

/* ---- >>state ---- */

/* A call, before it is posted: the post's send and recv are set when the launch begins. */
typedef struct operation {
    post        post;
    const void *send;
    void       *recv;
    size_t      send_length, recv_length;
} operation;

typedef struct launch {
    struct ncclComm    *comm;
    struct CUstream_st *stream;
    bool                is_grouped, is_lost;
    int                 count;
    operation          *operations;
    struct launch      *next;
} launch;

struct ncclComm {
    struct ncclComm *next;                        /* of all there ever were                                   */
    bool      is_over;                            /* destroyed or aborted                                     */
    bool      is_blocking;
    world    *world;
    int       rank, size, device;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    result    state;                              /* the result of CommGetAsyncError                          */
    bool      is_finalising, is_finalised, is_busy;           /* busy: a thread of its own runs               */
    _Atomic bool is_aborted;
    int       polls;                              /* until the held work goes into the stream                 */
    launch   *held;
    long      hang_ms;
    uint64_t  random, calls, launches, issued, begun;         /* issued, begun: launches in their order       */
    int       pid, fd;                            /* of the unique id                                         */
    char      error[160];
};

static pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *comms;
static _Atomic(pthread_t *) insiders[DEVICES_MOST];           /* the thread that is in a call for the device  */
static _Thread_local struct { int depth; launch *launches, **last; result error; int devices; int device[DEVICES_MOST]; } group;
static _Thread_local pthread_t self;

static void *need(void *memory)
{
    if (!memory) fake_fail("no memory for the fake itself");
    return memory;
}

/* ---- >>faults ---- */

/* N of the fault `what` for this rank; -1: it has none. */
static long fault_of(int rank, const char *what)
{
    const char *at = getenv("FAKE_NCCL_FAULT");
    const size_t length = strlen(what);

    for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "") {
        char *behind;
        const bool is_all = *at == '*';
        const long who = is_all ? rank : strtol(at, &behind, 10);
        if (is_all) behind = (char *)(uintptr_t)(at + 1);
        if (who != rank || *behind != ':' || strncmp(behind + 1, what, length)) continue;
        behind += 1 + length;
        if (*behind == ':') return strtol(behind + 1, NULL, 10);
        if (!*behind || *behind == ',') return 0;
    }
    return -1;
}

/* ---- >>entering: which thread may call ---- */

static struct ncclComm *known(struct ncclComm *given)
{
    struct ncclComm *c;

    pthread_mutex_lock(&comms_lock);
    for (c = comms; c && c != given; c = c->next) { }
    pthread_mutex_unlock(&comms_lock);
    if (!c) fake_fail("%p is no communicator", (void *)given);
    if (c->is_over) fake_fail("rank %d of %d: the communicator has been destroyed or aborted, and is used", c->rank, c->size);
    return c;
}

/* Yield, so that a forbidden concurrent call can happen. */
static void enter_device(int device)
{
    pthread_t *none = NULL;

    self = pthread_self();
    if (!atomic_compare_exchange_strong(&insiders[device], &none, &self) && none != &self)
        fake_fail("two threads are in calls of NCCL for device %d at the same time", device);
    sched_yield();
}

static void leave_device(int device) { atomic_store(&insiders[device], NULL); }

/* The device of a group's call stays entered until the group ends. */
static void enter(const struct ncclComm *c)
{
    for (int i = 0; i < group.devices; i++)
        if (group.device[i] == c->device) return;
    enter_device(c->device);
    if (group.depth) group.device[group.devices++] = c->device;
}

static result leave(const struct ncclComm *c, result status)
{
    if (group.depth && status > OK && status != IN_PROGRESS) group.error = status;
    if (!group.depth) leave_device(c->device);
    return status;
}

static result refuse(struct ncclComm *c, result status, const char *text)
{
    pthread_mutex_lock(&c->lock);
    snprintf(c->error, sizeof c->error, "%s", text);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* ---- >>launches: what a stream does ---- */

static uint64_t launch_issue(void *arg)
{
    launch *l = arg;
    pthread_mutex_lock(&l->comm->lock);
    const uint64_t number = l->comm->issued++;
    pthread_mutex_unlock(&l->comm->lock);
    return number;
}

static void launch_drop(void *arg)
{
    launch *l = arg;
    free(l->operations);
    free(l);
}

/* Post the launch's operations in the slot; under the world's lock. */
static void launch_post(launch *l, group_slot *s)
{
    for (int i = 0; i < l->count; i++) {
        operation *o = &l->operations[i];
        post *p = &s->post[i];
        *p = o->post;
        if (o->send_length) p->send = fake_arena_offset(fake_view(o->send, o->send_length, call_names[p->call]));
        if (o->recv_length) p->recv = fake_arena_offset(fake_view(o->recv, o->recv_length, call_names[p->call]));
        p->number = p->call == SEND ? s->sent[p->root]++ : p->call == RECV ? s->received[p->root]++ : s->collectives++;
    }
    s->is_grouped = l->is_grouped;
    s->posts = l->count;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* End a process that waits for too long. */
static void look_at_clock(const struct ncclComm *c, int64_t since, const char *what)
{
    char text[2048];

    if (!c->hang_ms || now_ms() - since < c->hang_ms) return;
    world_tell(c->world, text, sizeof text);
    fake_fail("hangs: rank %d of %d has waited for %ld ms in %s%s", c->rank, c->size, c->hang_ms, what, text);
}

/* Be in the launch until all of it is done. */
static void launch_carry_out(launch *l)
{
    struct ncclComm *c = l->comm;
    world *w = c->world;
    group_slot *s = &w->group_slots[c->rank];
    const int64_t since = now_ms();
    bool is_over = false;

    world_lock(w);
    if (!l->is_lost) launch_post(l, s);
    world_step(w, c->rank);
    world_unlock(w);
    while (!is_over && !c->is_aborted) {
        const unsigned turn = w->turn;
        world_lock(w);
        is_over = !l->is_lost && !is_posted(s);
        world_unlock(w);
        if (is_over) break;
        world_wait(w, turn, 20);
        look_at_clock(c, since, l->is_lost ? "a launch that was lost" : call_names[l->operations[0].post.call]);
    }
    world_lock(w);
    s->posts = 0;
    world_unlock(w);
}

/* Launches of a communicator follow one another, on whichever streams they are. */
static void launch_run(void *arg, uint64_t number)
{
    launch *l = arg;
    struct ncclComm *c = l->comm;

    pthread_mutex_lock(&c->lock);
    while (c->begun < number) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    if (!c->is_aborted) launch_carry_out(l);
    pthread_mutex_lock(&c->lock);
    c->begun = number + 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static result enqueue(launch *l)
{
    struct ncclComm *c = l->comm;

    if (!fake_enqueue(l->stream, (fake_work){ launch_issue, launch_run, launch_drop, l })) return OK;
    return refuse(c, UNHANDLED_CUDA, "the stream does not take the launch");
}

/* Into the stream; or kept until a non-blocking communicator has been queried often enough. */
static result deliver(launch *l)
{
    struct ncclComm *c = l->comm;
    const long fault = fault_of(c->rank, "progress"), lost = fault_of(c->rank, "lost"), remote = fault_of(c->rank, "remote");

    pthread_mutex_lock(&c->lock);
    const uint64_t number = c->launches++;
    if (remote >= 0 && number >= (uint64_t)remote) c->state = REMOTE;
    l->is_lost = c->state == REMOTE || (lost >= 0 && number == (uint64_t)lost);
    const int polls = c->is_blocking || c->state ? 0 : fault >= 0 ? (int)fault : (int)((c->random = fake_mix(c->random)) % 3);
    if (polls) {
        c->held = l;
        c->polls = polls;
        c->state = IN_PROGRESS;
    }
    pthread_mutex_unlock(&c->lock);
    return polls ? IN_PROGRESS : enqueue(l);
}

/* ---- >>calls ---- */

static bool overlap(const void *a, size_t a_length, const void *b, size_t b_length)
{
    const unsigned char *x = a, *y = b;
    return a_length && b_length && x < y + b_length && y < x + a_length;
}

/* Buffers of one launch that overlap, where a result can fall on something else. */
static void check_overlaps(const launch *l)
{
    ptrdiff_t at;

    for (int i = 0; i < l->count; i++) {
        for (int j = 0; j < l->count; j++) {
            const operation *a = &l->operations[i], *b = &l->operations[j];
            const size_t block = a->post.count * fake_type_size(a->post.type);
            if (j > i && overlap(a->recv, a->recv_length, b->recv, b->recv_length))
                fake_fail("rank %d: two results of one group overlap (%s, %s)", l->comm->rank, call_names[a->post.call],
                          call_names[b->post.call]);
            if (!overlap(a->recv, a->recv_length, b->send, b->send_length)) continue;
            if (i == j && in_place_at(a->post.call, l->comm->rank, (ptrdiff_t)block, &at) &&
                (const unsigned char *)a->send + at == (const unsigned char *)a->recv) continue;
            fake_fail("rank %d: the result of %s overlaps what %s sends, not as it may in place", l->comm->rank,
                      call_names[a->post.call], call_names[b->post.call]);
        }
    }
}

/* Can the communicator's device reach the memory? */
static const char *check_memory(const struct ncclComm *c, const void *pointer, size_t length)
{
    int device = c->device;

    if (!length) return NULL;
    switch (fake_place_of(pointer, &device)) {
    case FAKE_DEVICE: case FAKE_PINNED: break;
    default: return "a buffer is not a valid pointer of a device";
    }
    (void)fake_view(pointer, length, "a call of NCCL");
    return fake_place_of(pointer, &device) == FAKE_DEVICE && device != c->device ? "a buffer is on another device" : NULL;
}

static const char *check_call(const struct ncclComm *c, operation *o, struct CUstream_st *stream)
{
    const post *p = &o->post;

    if (p->type >= TYPES_HERE) return "no such type";
    if (reduces(p->call) && p->op >= OPS) return "no such operation";
    if (reduces(p->call) && p->type > TYPE_REDUCED_MOST) return "8-bit floats are not reduced on this device";
    if ((has_root(p->call) || is_message(p->call)) && (p->root < 0 || p->root >= c->size)) return "no such root or peer";
    if (stream && fake_stream_device(stream) != c->device) return "the stream is one of another device";
    const size_t length = p->count * fake_type_size(p->type);
    o->send_length = p->call == RECV ? 0 : p->call == SEND ? length : length * parts_sent(p->call, c->rank, p->root, c->size);
    o->recv_length = p->call == SEND ? 0 : p->call == RECV ? length : length * parts_received(p->call, c->rank, p->root, c->size);
    const char *wrong = check_memory(c, o->send, o->send_length);
    return wrong ? wrong : check_memory(c, o->recv, o->recv_length);
}

/* Of the group, or of its own. */
static launch *launch_of(struct ncclComm *c, struct CUstream_st *stream)
{
    launch *l;

    for (l = group.launches; l && l->comm != c; l = l->next) { }
    if (l && l->stream != stream) fake_fail("one group of rank %d uses two streams, which is more than this fake does", c->rank);
    if (l) return l;
    l = need(calloc(1, sizeof *l));
    *l = (launch){ .comm = c, .stream = stream, .is_grouped = group.depth > 0,
                   .operations = need(calloc(group.depth ? OPERATIONS_MOST : 1, sizeof *l->operations)) };
    if (group.depth) *group.last = l, group.last = &l->next;
    return l;
}

static result run_call(struct ncclComm *c, struct CUstream_st *stream, operation o)
{
    const char *wrong;

    c = known(c);
    enter(c);
    pthread_mutex_lock(&c->lock);
    const bool is_early = c->state == IN_PROGRESS, is_failed = fault_of(c->rank, "call") == (long)c->calls++;
    const bool is_finalised = c->is_finalising;
    pthread_mutex_unlock(&c->lock);
    if (is_early) return leave(c, refuse(c, INVALID_ARGUMENT, "the previous operation has not returned ncclSuccess yet"));
    if (is_finalised) return leave(c, refuse(c, INVALID_USAGE, "the communicator has been finalised"));
    if (is_failed) return leave(c, refuse(c, SYSTEM, "a call has failed because the test wants it"));
    if ((wrong = check_call(c, &o, stream)) != NULL) return leave(c, refuse(c, INVALID_ARGUMENT, wrong));
    if (!o.post.count && !is_message(o.post.call)) return leave(c, OK);
    launch *l = launch_of(c, stream);
    if (l->count == OPERATIONS_MOST) fake_fail("a group has more than %d operations", OPERATIONS_MOST);
    l->operations[l->count++] = o;
    if (group.depth) return leave(c, OK);
    check_overlaps(l);
    return leave(c, deliver(l));
}

result ncclGroupStart(void)
{
    if (!group.depth) group.launches = NULL, group.last = &group.launches, group.error = OK;
    group.depth++;
    return OK;
}

result ncclGroupEnd(void)
{
    result status = group.error;

    if (!group.depth) return INVALID_USAGE;
    if (--group.depth) return OK;
    while (group.launches) {
        launch *l = group.launches;
        group.launches = l->next;
        if (group.error) launch_drop(l);
        if (group.error) continue;
        check_overlaps(l);
        const result one = deliver(l);
        if (one && (!status || status == IN_PROGRESS)) status = one;
    }
    while (group.devices) leave_device(group.device[--group.devices]);
    return status;
}

typedef struct CUstream_st *stream;

result ncclAllReduce(const void *send, void *recv, size_t count, unsigned type, unsigned op, struct ncclComm *c, stream s)
{
    return run_call(c, s, (operation){ .post = { .call = ALL_REDUCE, .type = type, .op = op, .count = count }, .send = send,
                                       .recv = recv });
}

result ncclReduce(const void *send, void *recv, size_t count, unsigned type, unsigned op, int root, struct ncclComm *c, stream s)
{
    return run_call(c, s, (operation){ .post = { .call = REDUCE, .type = type, .op = op, .root = root, .count = count },
                                       .send = send, .recv = recv });
}

result ncclReduceScatter(const void *send, void *recv, size_t count, unsigned type, unsigned op, struct ncclComm *c, stream s)
{
    return run_call(c, s, (operation){ .post = { .call = REDUCE_SCATTER, .type = type, .op = op, .count = count }, .send = send,
                                       .recv = recv });
}

/* The calls that only move. */
static result move(call which, const void *send, void *recv, size_t count, unsigned type, int root, struct ncclComm *c, stream s)
{
    return run_call(c, s, (operation){ .post = { .call = which, .type = type, .root = root, .count = count }, .send = send,
                                       .recv = recv });
}

result ncclBroadcast(const void *send, void *recv, size_t count, unsigned type, int root, struct ncclComm *c, stream s)
{
    return move(BROADCAST, send, recv, count, type, root, c, s);
}

result ncclAllGather(const void *send, void *recv, size_t count, unsigned type, struct ncclComm *c, stream s)
{
    return move(ALL_GATHER, send, recv, count, type, 0, c, s);
}

result ncclSend(const void *send, size_t count, unsigned type, int peer, struct ncclComm *c, stream s)
{
    return move(SEND, send, NULL, count, type, peer, c, s);
}

result ncclRecv(void *recv, size_t count, unsigned type, int peer, struct ncclComm *c, stream s)
{
    return move(RECV, NULL, recv, count, type, peer, c, s);
}

/* ---- >>communicators ---- */

/* The content of a unique id: where the world's memory is. */
typedef struct address { char magic[16]; int pid, fd; } address;
static const char magic[16] = "the fake NCCL 1";

result ncclGetVersion(int *version) { return *version = FAKE_VERSION, OK; }

result ncclGetUniqueId(coll__nccl_id *id)
{
    address a = { .pid = getpid(), .fd = memfd_create("world", MFD_CLOEXEC) };

    if (a.fd < 0 || ftruncate(a.fd, sizeof(world))) fake_fail("no file for a world: %s", strerror(errno));
    memcpy(a.magic, magic, sizeof magic);
    memset(id, 0x5a, sizeof *id);
    memcpy(id->internal, &a, sizeof a);
    return OK;
}

/* Take the slot, and wait for the other ranks. */
static result join(struct ncclComm *c)
{
    const int64_t since = now_ms();
    world *w = world_open(c->pid, c->fd);

    if (fault_of(c->rank, "init") >= 0) return refuse(c, UNHANDLED_CUDA, "CUDA driver version is insufficient for this runtime");
    if (!w) return refuse(c, REMOTE, "the process that made the unique id has ended");
    world_lock(w);
    group_slot *s = &w->group_slots[c->rank];
    if (s->is_taken) fake_fail("two ranks %d join one communicator", c->rank);
    if (w->taken && w->size != c->size) fake_fail("rank %d joins %d ranks, others %d", c->rank, c->size, w->size);
    *s = (group_slot){ .is_taken = true, .pid = getpid(), .device = c->device, .arena_fd = fake_arena_fd() };
    w->size = c->size;
    w->taken++;
    world_unlock(w);
    world_changed(w);
    pthread_mutex_lock(&c->lock);
    c->world = w;
    pthread_mutex_unlock(&c->lock);
    for (bool is_full = false; !is_full;) {
        const unsigned turn = w->turn;
        world_lock(w);
        is_full = w->taken == w->size;
        world_unlock(w);
        if (c->is_aborted) return REMOTE;
        if (!is_full) world_wait(w, turn, 20);
        if (!is_full) look_at_clock(c, since, "CommInitRank, for missing ranks");
    }
    for (int i = 0; i < c->size; i++)
        if (i != c->rank && w->group_slots[i].pid == s->pid && w->group_slots[i].device == s->device)
            return refuse(c, INVALID_USAGE, "Duplicate GPU detected");
    return OK;
}

static void set_state(struct ncclComm *c, result state)
{
    pthread_mutex_lock(&c->lock);
    c->state = state;
    c->is_busy = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void *join_main(void *arg)
{
    struct ncclComm *c = arg;
    set_state(c, join(c));
    return NULL;
}

/* All launches have ended, and all ranks have called. */
static result finalise(struct ncclComm *c)
{
    const int64_t since = now_ms();
    world *w = c->world;
    group_slot *s = &w->group_slots[c->rank];

    pthread_mutex_lock(&c->lock);
    while (c->begun < c->issued && !c->is_aborted) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    world_lock(w);
    s->is_done = true;
    world_unlock(w);
    world_changed(w);
    for (bool is_all = false; !is_all && !c->is_aborted;) {
        const unsigned turn = w->turn;
        is_all = true;
        world_lock(w);
        for (int i = 0; i < w->size; i++) is_all = is_all && (w->group_slots[i].is_done || w->group_slots[i].has_left);
        world_unlock(w);
        if (!is_all) world_wait(w, turn, 20);
        if (!is_all) look_at_clock(c, since, "CommFinalize, for ranks that do not");
    }
    pthread_mutex_lock(&c->lock);
    c->is_finalised = true;
    pthread_mutex_unlock(&c->lock);
    return OK;
}

static void *finalise_main(void *arg)
{
    struct ncclComm *c = arg;
    set_state(c, finalise(c));
    return NULL;
}

/* At once, or in a separate thread while the communicator returns InProgress. */
static result do_job(struct ncclComm *c, void *(*job)(void *arg))
{
    pthread_attr_t attributes;
    pthread_t thread;

    c->state = IN_PROGRESS;
    c->is_busy = true;
    if (c->is_blocking) return job(c), c->state;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, job, c)) fake_fail("no thread for a job of NCCL");
    pthread_attr_destroy(&attributes);
    return IN_PROGRESS;
}

result ncclCommInitRankConfig(struct ncclComm **out, int size, coll__nccl_id id, int rank, coll__nccl_config *config)
{
    struct ncclComm *c;
    address a;

    memcpy(&a, id.internal, sizeof a);
    if (memcmp(a.magic, magic, sizeof magic)) return INVALID_ARGUMENT;
    if (size < 1 || size > SLOTS_MOST || rank < 0 || rank >= size) return INVALID_ARGUMENT;
    if (config && (config->magic != (unsigned)COLL__NCCL_MAGIC || config->size < sizeof *config)) return INVALID_ARGUMENT;
    if (config && config->blocking != INT_MIN && config->blocking != 0 && config->blocking != 1) return INVALID_ARGUMENT;
    if (group.depth) fake_fail("a communicator is made in a group, which is more than this fake does");
    if (fake_current_device() < 0) fake_fail("a communicator is made with no context current: NCCL would take device 0");
    c = need(calloc(1, sizeof *c));
    *c = (struct ncclComm){ .rank = rank, .size = size, .device = fake_current_device(), .pid = a.pid, .fd = a.fd,
                            .is_blocking = !config || config->blocking != 0, .hang_ms = fake_setting("FAKE_HANG_MS", 20000),
                            .random = fake_mix((uint64_t)fake_setting("FAKE_SEED", 1) + (uint64_t)rank) };
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    pthread_mutex_lock(&comms_lock);
    c->next = comms;
    comms = c;
    pthread_mutex_unlock(&comms_lock);
    *out = c;
    const result status = do_job(c, join_main);
    if (status && status != IN_PROGRESS) *out = NULL, c->is_over = true;
    return status;
}

/* Each query advances the work in progress; the last one puts it into the stream. */
result ncclCommGetAsyncError(struct ncclComm *given, result *out)
{
    struct ncclComm *c = known(given);
    launch *l = NULL;

    pthread_mutex_lock(&c->lock);
    if (c->polls && !--c->polls) {
        l = c->held;
        c->held = NULL;
        c->state = OK;
    }
    *out = c->state;
    pthread_mutex_unlock(&c->lock);
    if (l && (*out = enqueue(l)) != OK) set_state(c, *out);
    return OK;
}

result ncclCommFinalize(struct ncclComm *given)
{
    struct ncclComm *c = known(given);

    enter(c);
    pthread_mutex_lock(&c->lock);
    const bool is_early = c->state == IN_PROGRESS, is_again = c->is_finalising;
    c->is_finalising = !is_early;
    pthread_mutex_unlock(&c->lock);
    if (is_early || is_again) return leave(c, is_early ? INVALID_ARGUMENT : INVALID_USAGE);
    return leave(c, do_job(c, finalise_main));
}

/* A communicator that has not been finalised is finalised first, and this waits for it. */
result ncclCommDestroy(struct ncclComm *given)
{
    struct ncclComm *c = given ? known(given) : NULL;

    if (!c) return OK;
    enter(c);
    if (c->state == IN_PROGRESS) fake_fail("rank %d: CommDestroy while the communicator is in progress", c->rank);
    if (!c->is_finalised) (void)finalise(c);
    c->is_over = true;
    return leave(c, OK);
}

/* The launches end as they are; the other ranks get no notification. */
result ncclCommAbort(struct ncclComm *given)
{
    struct ncclComm *c = given ? known(given) : NULL;

    if (!c) return OK;
    enter(c);
    c->is_aborted = true;
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->changed);
    while (c->is_busy || c->begun < c->issued) {
        pthread_mutex_unlock(&c->lock);
        if (c->world) world_changed(c->world);
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
        pthread_mutex_lock(&c->lock);
    }
    if (c->held) launch_drop(c->held);
    c->held = NULL;
    c->is_over = true;
    pthread_mutex_unlock(&c->lock);
    if (c->world) {
        world_lock(c->world);
        c->world->group_slots[c->rank].has_left = true;
        world_unlock(c->world);
        world_changed(c->world);
    }
    return leave(c, OK);
}

result ncclCommCount(struct ncclComm *c, int *count) { return *count = known(c)->size, OK; }
result ncclCommUserRank(struct ncclComm *c, int *rank) { return *rank = known(c)->rank, OK; }
result ncclCommCuDevice(struct ncclComm *c, int *device) { return *device = known(c)->device, OK; }

const char *ncclGetLastError(struct ncclComm *c) { return c ? c->error : ""; }

const char *ncclGetErrorString(result number)
{
    static const char *const texts[] = { "no error", "unhandled cuda error", "unhandled system error", "internal error",
                                         "invalid argument", "invalid usage",
                                         "remote process exited or there was a network error", "NCCL operation in progress" };
    return number < sizeof texts / sizeof *texts ? texts[number] : "unknown result code";
}
