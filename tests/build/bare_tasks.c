/* bare_tasks.c - COLL_TINY as an RTOS has it, by threads of this machine: tasks that each have a session, over a transport
 * without a clock, in an arena (COLL_NO_MALLOC).  tests/build/test_bare.sh compiles and runs it. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include "../support/check.h"
#include <pthread.h>
#include <time.h>

enum { RANKS = 2, COUNT = 300, MEMORY = 64 << 10, MOST_TRIES = 2000 };

/* ---- >>a transport: two ranks in one memory; each sets the status of its own transfers only */

typedef struct side { coll_xfer *out[COLL_CHANNEL_COUNT], *in[COLL_CHANNEL_COUNT], *gone; } side;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct rank {
    side        own, *other;
    coll_status refuses;                          /* what progress returns once it is not COLL_OK             */
    int         slept, looked;                    /* calls of progress that might wait, and others            */
    coll_comm  *comm;
    coll_status status;
    unsigned char memory[MEMORY];
} rank;

static void delay(void) { (void)nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL); }

static coll_status queue(coll_xfer **list, coll_xfer *x)
{
    x->next = NULL;
    pthread_mutex_lock(&lock);
    while (*list) list = &(*list)->next;
    *list = x;
    pthread_mutex_unlock(&lock);
    return COLL_OK;
}

static coll_status task_send(void *context, coll_xfer *x) { return queue(&((rank *)context)->own.out[x->channel], x); }
static coll_status task_recv(void *context, coll_xfer *x) { return queue(&((rank *)context)->own.in[x->channel], x); }

/* Receive the other task's message on a channel. */
static void take(rank *me, int channel)
{
    coll_xfer **const out = &me->other->out[channel], **const in = &me->own.in[channel];

    while (*out && *in) {
        coll_xfer *const from = *out, *const to = *in;
        const bool is_same = !memcmp(from->head, to->head, COLL_HEAD_LENGTH) && from->length == to->length;
        *out = from->next, *in = to->next;
        from->next = me->other->gone, me->other->gone = from;
        memcpy(to->head, from->head, COLL_HEAD_LENGTH);
        if (from->length && from->length <= to->length) memcpy(to->buffer, from->buffer, from->length);
        to->status = is_same || to->any_head ? COLL_OK : COLL_ERR_MISMATCH;
    }
}

static coll_status task_progress(void *context, int wait_ms)
{
    rank *const me = (rank *)context;

    if (wait_ms > 0) me->slept++, delay();
    else me->looked++;
    pthread_mutex_lock(&lock);
    for (int channel = 0; channel < COLL_CHANNEL_COUNT; channel++) take(me, channel);
    for (coll_xfer *x = me->own.gone, *next; x; x = next) next = x->next, x->status = COLL_OK;
    me->own.gone = NULL;
    pthread_mutex_unlock(&lock);
    return me->refuses;
}

static void task_close(void *context) { memset(&((rank *)context)->own, 0, sizeof(side)); }

static const coll_transport tasks = { .name = "tasks", .send = task_send, .recv = task_recv, .progress = task_progress,
                                      .close = task_close };

/* ---- >>memory that runs out */

typedef struct short_memory { const coll_allocator *all; long left; bool was_refused; } short_memory;

static void *short_allocate(void *context, size_t length, size_t alignment)
{
    short_memory *const m = (short_memory *)context;

    if (m->left-- != 0) return m->all->allocate(m->all->context, length, alignment);
    m->was_refused = true;
    return NULL;
}

static void short_free(void *context, void *at, size_t length)
{
    short_memory *const m = (short_memory *)context;
    m->all->free(m->all->context, at, length);
}

/* ---- >>worlds */

static rank world[RANKS], alone;

static coll_status open_rank(rank *me, int number, int size, const coll_allocator *memory)
{
    const coll_config config = { .allocator = memory };
    return coll_init_custom(&tasks, me, number, size, &me->comm, &config);
}

static void open_world(void)
{
    memset(world, 0, sizeof world);
    for (int i = 0; i < RANKS; i++) {
        world[i].other = &world[1 - i].own;
        CHECK(open_rank(&world[i], i, RANKS, coll_arena_begin(world[i].memory, MEMORY)) == COLL_OK, "rank %d", i);
    }
}

/* Without a clock coll_free waits for its messages as long as the transport lives. */
static void close_world(void)
{
    for (int i = 0; i < RANKS; i++) {
        world[i].refuses = COLL_ERR_PEER;
        (void)coll_free(world[i].comm);
    }
}

/* ---- >>two tasks, and an operation of the program's in one of them */

static int is_inside, is_over;
static coll_status within = COLL_OK;

static void wait_for(const int *flag)
{
    for (int i = 0; i < MOST_TRIES && !__atomic_load_n(flag, __ATOMIC_ACQUIRE); i++) delay();
}

/* It lasts until the other task has made its call, and must not use a communicator of its own session. */
static void add(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    rank *const me = (rank *)context;

    (void)type;
    for (size_t i = 0; i < count; i++) ((float *)inout)[i] += ((const float *)in)[i];
    if (me != &world[0] || is_inside) return;
    within = coll_barrier(me->comm);
    __atomic_store_n(&is_inside, 1, __ATOMIC_RELEASE);
    wait_for(&is_over);
}

static void *sum_main(void *at)
{
    rank *const me = (rank *)at;
    float x[COUNT];

    for (int i = 0; i < COUNT; i++) x[i] = (float)(i + (me == &world[1]));
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = COUNT, .type = COLL_F32, .op = COLL_USER,
                             .fn = add, .fn_context = me };
    me->status = coll_run(me->comm, &call);
    for (int i = 0; i < COUNT && me->status == COLL_OK; i++) if (x[i] != (float)(2 * i + 1)) me->status = COLL_ERR_SYSTEM;
    return NULL;
}

static void test_tasks(void)
{
    pthread_t threads[RANKS];

    open_world();
    CHECK(open_rank(&alone, 0, 1, coll_arena_begin(alone.memory, MEMORY)) == COLL_OK, "alone");
    alone.other = &alone.own;
    for (int i = 0; i < RANKS; i++) (void)pthread_create(&threads[i], NULL, sum_main, &world[i]);
    wait_for(&is_inside);
    const coll_status status = coll_barrier(alone.comm);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < RANKS; i++) (void)pthread_join(threads[i], NULL);
    CHECK(is_inside, "the operation did not run");
    CHECK(status == COLL_OK, "a task cannot call while an operation runs in another: %s", coll_status_text(status));
    CHECK(within == COLL_ERR_ARGUMENT, "an operation calls in its own session: %s", coll_status_text(within));
    for (int i = 0; i < RANKS; i++) CHECK(world[i].status == COLL_OK, "rank %d: %s", i, coll_status_text(world[i].status));
    CHECK(coll_free(alone.comm) == COLL_OK, "alone");
    close_world();
}

/* ---- >>a wait without a clock sleeps in progress */

static void *late_main(void *at)
{
    rank *const me = (rank *)at;

    for (int i = 0; i < 100; i++) delay();
    me->status = coll_barrier(me->comm);
    return NULL;
}

static void test_sleep(void)
{
    pthread_t late;

    open_world();
    (void)pthread_create(&late, NULL, late_main, &world[1]);
    CHECK(coll_barrier(world[0].comm) == COLL_OK, "barrier");
    (void)pthread_join(late, NULL);
    CHECK(world[1].status == COLL_OK, "the late one");
    CHECK(world[0].slept > 10 && world[0].looked < 100, "a wait looked %d times and slept %d times", world[0].looked,
          world[0].slept);
    close_world();
}

/* ---- >>without memory, and without a transport that works */

static coll_status exchange(coll_comm *comm[RANKS], float *x, float *y)
{
    coll_request *r[2 * RANKS] = { NULL };
    coll_status worst = COLL_OK;

    for (int i = 0; i < RANKS && worst == COLL_OK; i++) {
        worst = coll_irecv(comm[i], y + i * COUNT, COUNT, COLL_F32, 1 - i, 3, &r[2 * i]);
        if (worst == COLL_OK) worst = coll_isend(comm[i], x, COUNT, COLL_F32, 1 - i, 3, &r[2 * i + 1]);
    }
    for (int tries = 0; tries < MOST_TRIES && worst == COLL_OK; tries++) {
        int pending = 0;
        for (int i = 0; i < 2 * RANKS; i++) {
            const coll_status status = coll_test(r[i]);
            pending += status == COLL_PENDING;
            if (status < 0) worst = status;
        }
        if (!pending) break;
    }
    for (int i = 0; i < 2 * RANKS; i++) coll_request_free(r[i]);
    return worst;
}

/* Refuse each allocation of rank 1 in turn. */
static void test_memory(void)
{
    static float x[COUNT], y[RANKS * COUNT];
    coll_status status = COLL_OK;
    long at = 0;
    bool was_refused = true;

    for (; was_refused; at++) {
        open_world();
        (void)coll_free(world[1].comm);
        short_memory shortage = { coll_arena_begin(world[1].memory, MEMORY), -1, false };
        const coll_allocator refusing = { short_allocate, short_free, &shortage };
        CHECK(open_rank(&world[1], 1, RANKS, &refusing) == COLL_OK, "rank 1");
        shortage.left = at;
        coll_comm *comms[RANKS] = { world[0].comm, world[1].comm };
        status = exchange(comms, x, y);
        was_refused = shortage.was_refused;
        CHECK(was_refused ? status == COLL_ERR_MEMORY || status == COLL_OK : status == COLL_OK, "allocation %ld: %s", at,
              coll_status_text(status));
        close_world();
    }
    CHECK(at > 4, "%ld allocations", at);
    open_world();
    world[0].refuses = COLL_ERR_PEER;
    status = coll_barrier(world[0].comm);
    CHECK(status == COLL_ERR_PEER, "a transport that fails with COLL_ERR_PEER: %s", coll_status_text(status));
    close_world();
}

static void test_local(void)
{
    int32_t a[COUNT], b[COUNT];

    for (int i = 0; i < COUNT; i++) a[i] = i, b[i] = 2 * i;
    CHECK(coll_reduce_local(b, a, COUNT, COLL_I32, COLL_SUM) == COLL_OK && b[COUNT - 1] == 3 * (COUNT - 1), "%d", b[COUNT - 1]);
}

int main(void)
{
    test_tasks();
    test_sleep();
    test_memory();
    test_local();
    return CHECK_DONE();
}
