/* memory - the memory of a rank: allocated bytes, by an allocator that counts, after each of some steps.
 *
 *     make memory                                    prints the table of docs/size.md
 *
 * Bytes are those that the library allocates, its own records of each block included; of ranks that are threads the
 * sum of all, divided.  Not counted is what does not come from coll_config.allocator (core/contract/coll_memory.h). */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MOST = 64, COUNT = 256, STEPS_MOST = 12 };

/* ---- >>counting ---- */

typedef struct counter { long bytes, blocks; } counter;

static void *count_allocate(void *context, size_t length, size_t alignment)
{
    counter *const c = (counter *)context;
    void *at = NULL;

    if (posix_memalign(&at, alignment < sizeof(void *) ? sizeof(void *) : alignment, length)) return NULL;
    __atomic_add_fetch(&c->bytes, (long)length, __ATOMIC_RELAXED);
    __atomic_add_fetch(&c->blocks, 1, __ATOMIC_RELAXED);
    return at;
}

static void count_free(void *context, void *at, size_t length)
{
    counter *const c = (counter *)context;

    __atomic_sub_fetch(&c->bytes, (long)length, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&c->blocks, 1, __ATOMIC_RELAXED);
    free(at);
}

/* ---- >>worlds ---- */

typedef struct world {
    const char *name;
    int         ranks;
    long        taken[STEPS_MOST];                /* bytes after each step, by rank                           */
    int         arrived;                          /* at the points where all ranks wait for the measurement   */
    counter     shared, own[RANKS_MOST];          /* of threads; of ranks over TCP                            */
    char        address[32];
} world;

typedef struct rank { world *w; coll_comm *comm; int number, step; float x[2 * COUNT]; } rank;

/* Wait for all ranks; meanwhile this rank progresses what others still need from it. */
static void meet(rank *r)
{
    world *const w = r->w;
    const int turn = __atomic_fetch_add(&w->arrived, 1, __ATOMIC_SEQ_CST) / w->ranks;

    while (__atomic_load_n(&w->arrived, __ATOMIC_SEQ_CST) < (turn + 1) * w->ranks) {
        coll_progress(r->comm);
        usleep(100);
    }
}

static void look(rank *r)
{
    world *const w = r->w;
    const bool is_tcp = !strcmp(w->name, "tcp");

    meet(r);
    if (r->number == (is_tcp ? 1 : 0)) w->taken[r->step] = is_tcp ? w->own[1].bytes : w->shared.bytes / w->ranks;
    r->step++;
    meet(r);
}

static const char *const step_names[] = {
    "a communicator, as it is opened", "with what the first allreduce of 1 KiB leaves", "and an allgather",
    "a derived communicator (coll_dup)", "with an allreduce on it", "a request that is not freed (coll_iallreduce)",
    "a prepared call", "messages: the first one", "a message of 1 KiB without a receive",
};
enum { STEPS = sizeof step_names / sizeof *step_names };

#define MUST(call) do { if ((call) != COLL_OK) fprintf(stderr, "%s\n", coll_error(r->comm)), exit(1); } while (0)

static void steps(rank *r)
{
    const int size = r->w->ranks, next = (r->number + 1) % size, before = (r->number + size - 1) % size;
    float *const in = r->x, *const out = r->x + COUNT;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = in, .recv = out, .count = COUNT, .type = COLL_F32,
                             .op = COLL_SUM };
    coll_comm *derived;
    coll_request *request;
    float *const all = (float *)calloc((size_t)size * COUNT, sizeof *all);

    look(r);
    for (int i = 0; i < 3; i++) MUST(coll_allreduce(r->comm, in, out, COUNT, COLL_F32, COLL_SUM));
    look(r);
    for (int i = 0; i < 3; i++) MUST(coll_allgather(r->comm, in, all, COUNT, COLL_F32));
    look(r);
    MUST(coll_dup(r->comm, &derived));
    look(r);
    for (int i = 0; i < 3; i++) MUST(coll_allreduce(derived, in, out, COUNT, COLL_F32, COLL_SUM));
    look(r);
    coll_free(derived);
    for (int i = 0; i < 3; i++) MUST(coll_barrier(r->comm));
    look(r);                                      /* from here on against this                                */
    MUST(coll_iallreduce(r->comm, in, out, COUNT, COLL_F32, COLL_SUM, &request));
    MUST(coll_wait(request));
    look(r);
    coll_request_free(request);
    MUST(coll_prepare(r->comm, &call, &request));
    for (int i = 0; i < 3; i++) {
        MUST(coll_restart(request));
        MUST(coll_wait(request));
        MUST(coll_barrier(r->comm));
    }
    look(r);
    coll_request_free(request);
    MUST(coll_sendrecv(r->comm, in, COUNT, next, out, COUNT, before, COLL_F32, 1));
    MUST(coll_barrier(r->comm));
    look(r);
    MUST(coll_send(r->comm, in, COUNT, COLL_F32, next, 2));
    for (int i = 0; i < 20; i++) MUST(coll_barrier(r->comm));
    look(r);
    MUST(coll_recv(r->comm, out, COUNT, COLL_F32, before, 2));
    free(all);
}

static int worker(coll_comm *comm, void *at)
{
    rank *const r = (rank *)calloc(1, sizeof *r);

    *r = (rank){ .w = (world *)at, .comm = comm, .number = coll_rank(comm) };
    steps(r);
    free(r);
    return 0;
}

typedef struct joiner { world *w; int number; pthread_t thread; } joiner;

static void *join(void *at)
{
    const joiner *const j = (const joiner *)at;
    const coll_allocator allocator = { count_allocate, count_free, &j->w->own[j->number] };
    const coll_config config = { .transport = "tcp", .rank = j->number, .size = j->w->ranks, .address = j->w->address,
                                 .allocator = &allocator, .tcp = { .io = "poll" } };
    coll_comm *comm;

    if (coll_init(&comm, &config)) return fprintf(stderr, "%s\n", coll_error(NULL)), exit(1), NULL;
    (void)worker(comm, j->w);
    coll_free(comm);
    return NULL;
}

static void run(world *w)
{
    const coll_allocator allocator = { count_allocate, count_free, &w->shared };
    const coll_config config = { .transport = "threads", .allocator = &allocator };
    joiner joiners[RANKS_MOST];

    if (strcmp(w->name, "tcp")) {
        if (coll_spawn(w->ranks, worker, w, &config)) exit(1);
    } else {
        snprintf(w->address, sizeof w->address, "127.0.0.1:%d", 20000 + (int)(getpid() + 97 * w->ranks) % 10000);
        for (int i = 0; i < w->ranks; i++) {
            joiners[i] = (joiner){ .w = w, .number = i };
            if (pthread_create(&joiners[i].thread, NULL, join, &joiners[i])) exit(1);
        }
        for (int i = 0; i < w->ranks; i++) pthread_join(joiners[i].thread, NULL);
    }
}

int main(void)
{
    static world worlds[] = {
        { .name = "threads", .ranks = 1 }, { .name = "threads", .ranks = 2 }, { .name = "threads", .ranks = 8 },
        { .name = "threads", .ranks = 64 }, { .name = "tcp", .ranks = 2 }, { .name = "tcp", .ranks = 4 },
        { .name = "tcp", .ranks = 8 }, { .name = "tcp", .ranks = 16 },
    };
    enum { WORLDS = sizeof worlds / sizeof *worlds };
    /* each of these is the difference of two measurements; the first three are totals */
    static const int after[STEPS] = { 0, 1, 2, 3, 4, 6, 7, 8, 9 }, against[STEPS] = { -1, -1, -1, 2, 3, 5, 5, 5, 8 };

    for (int i = 0; i < WORLDS; i++) run(&worlds[i]);
    printf("| bytes of each rank |");
    for (int i = 0; i < WORLDS; i++) printf(" %s, %d |", worlds[i].name, worlds[i].ranks);
    printf("\n|---|");
    for (int i = 0; i < WORLDS; i++) printf("---:|");
    for (int s = 0; s < STEPS; s++) {
        printf("\n| %s |", step_names[s]);
        for (int i = 0; i < WORLDS; i++)
            printf(" %ld |", worlds[i].taken[after[s]] - (against[s] < 0 ? 0 : worlds[i].taken[against[s]]));
    }
    const long sixteen = worlds[WORLDS - 1].taken[0], eight = worlds[WORLDS - 2].taken[0];
    printf("\n\nOver TCP a peer more takes %ld bytes, its connections included.\n", (sixteen - eight) / 8);
    return 0;
}
