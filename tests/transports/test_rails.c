/* test_rails.c - threads of several hosts, which are network namespaces: long vectors, in parts, and random programs
 * (test_random.c), over real sockets.  Needs root, or leave to make user namespaces.
 *
 *     test_rails [SEED]             COLL_TEST_SCALE below 1: of the shapes the last two, of types and programs half */
#define _GNU_SOURCE
#include "../support/net.h"

#define main random_main
#include "../collectives/test_random.c"
#undef main

#include "../support/parts.h"

#include <pthread.h>

enum { SECONDS = 250, HOSTS = 3, STEPS = 60 };

/* Threads of each host; 0: no such host.  And its site; NULL: none is given. */
typedef struct shape { int threads[HOSTS]; const char *sites[HOSTS]; } shape;

static const shape shapes[] = { { { 2, 2 }, { NULL } }, { { 3, 1 }, { NULL } }, { { 2, 1, 3 }, { "attic", "attic", "cellar" } },
                                { { 2, 1, 3 }, { NULL } } };

/* The settings of all hosts of a world. */
typedef struct trip { const net *net; const shape *shape; const char *io; int size; uint64_t seed; handshake *handshakes;
                        } trip;

typedef struct runner { pthread_t thread; coll_comm *comm; program *program; const char *way; } runner;

static void *runner_main(void *at)
{
    static const float one[1000] = { 1 };
    const runner *const me = at;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = one, .recv = (void *)(uintptr_t)one, .count = 1000,
                             .type = COLL_F32 };
    char text[600] = "";

    coll_explain(me->comm, &call, text, sizeof text);
    CHECK(strstr(text, me->way), "rank %d: %s", coll_rank(me->comm), text);
    (void)parts_worker(me->comm, NULL);
    (void)act(me->comm, me->program);
    CHECK(coll_free(me->comm) == COLL_OK, "coll_free");
    return NULL;
}

/* One host, whose ranks are threads of this process.  Returns whether a check has failed. */
static bool run_host(const trip *v, int host)
{
    const int here = v->shape->threads[host];
    program p = { .world = "rails", .size = v->size, .steps = STEPS, .seed = v->seed, .handshakes = v->handshakes };
    coll_comm *comms[RANKS_MOST];
    runner runners[RANKS_MOST];
    char address[40], where[20];
    int first = 0;

    for (int h = 0; h < host; h++) first += v->shape->threads[h];
    snprintf(address, sizeof address, "%s:7000", net_address(0, where, sizeof where));    /* in a network of our own          */
    const coll_config config = { .rank = first, .size = v->size, .address = address, .tcp = { .io = v->io, .security = "open" },
                                 .start_timeout_ms = 20000, .stall_timeout_ms = STALL_TIMEOUT_MS, .site = v->shape->sites[host] };
    now.p = &p;
    support_limit(SECONDS, report_ranks);
    if (!net_enter(v->net, host) || coll_init_threads(here, comms, &config)) {
        fprintf(stderr, "host %d: %s\n", host, coll_error(NULL));
        return true;
    }
    for (int i = 0; i < here; i++) {
        runners[i] = (runner){ .comm = comms[i], .program = &p, .way = v->shape->sites[0] ? "by sites: 2 sites" : "by hosts" };
        CHECK(!pthread_create(&runners[i].thread, NULL, runner_main, &runners[i]), "no thread");
    }
    for (int i = 0; i < here; i++) pthread_join(runners[i].thread, NULL);
    return p.failed || check__failed;
}

static void run_shape(const net *n, const shape *s, const char *io, uint64_t seed)
{
    trip v = { .net = n, .shape = s, .io = io, .seed = seed };
    pid_t hosts[HOSTS] = { 0 };

    for (int h = 0; h < HOSTS; h++) v.size += s->threads[h];
    const size_t length = (size_t)(STEPS * OPERATIONS_A_STEP * v.size) * sizeof *v.handshakes;
    v.handshakes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(v.handshakes != MAP_FAILED, "no memory for the hosts together");
    snprintf(case_name, sizeof case_name, "%s, hosts of %d, %d, %d ranks, seed %llu", io, s->threads[0], s->threads[1],
             s->threads[2], (unsigned long long)seed);
    fflush(NULL);
    for (int h = 0; h < HOSTS && s->threads[h] > 0; h++)
        if (!(hosts[h] = fork())) _exit(run_host(&v, h));
    for (int h = 0; h < HOSTS && s->threads[h] > 0; h++) {
        int status = -1;
        CHECK(waitpid(hosts[h], &status, 0) == hosts[h] && status == 0, "%s: host %d: status %x", case_name, h,
              (unsigned)status);
    }
    munmap(v.handshakes, length);
}

int main(int argc, char **argv)
{
    const size_t count = sizeof shapes / sizeof *shapes, first = support_scale() < 1 ? count - 2 : 0;
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : support_seed();
    net n = { .is_refused = true };
    const bool is_made = net_become_root() && net_make(&n);

    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seeds from %llu\n", (unsigned long long)seed);
    if (!is_made && n.is_refused) printf("rails: skipped: %s\n", n.why);
    CHECK(is_made || n.is_refused, "no network: %s", n.why);
    for (size_t i = 2 * first; is_made && i < 2 * count; i++) {
        const char *const io = i % 2 ? "uring" : "poll";
        if (i % 2 && support_refusal("tcp-uring")) printf("uring: skipped: %s\n", support_refusal("tcp-uring"));
        else run_shape(&n, &shapes[i / 2], io, seed + i);
    }
    if (is_made) net_end(&n);
    return CHECK_DONE();
}
