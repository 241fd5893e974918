/* support.h - what the tests with communicators share: worlds of several ranks in this process, a seeded generator, the
 * tests' own arithmetic, buffers that notice every write which is not the expected one, and a limit on the whole run.
 * Include after coll.h.
 *
 * A world is `size` threads, each with its own communicator: over memory ("threads"), over TCP on the loopback
 * ("tcp-poll", "tcp-uring"; "tcp-domain": in the shared memory of their host, as processes), or over both as if it were several
 * processes ("hybrid").  The library keeps no global state, so the ranks of all worlds can live in one process.
 */
#ifndef COLL_TESTS_SUPPORT_H
#define COLL_TESTS_SUPPORT_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SUPPORT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SUPPORT_ASAN 1
#endif
#endif
#if defined(SUPPORT_ASAN)
#include <sanitizer/asan_interface.h>
#endif

#include "check.h"
#include "support_numbers.h"
#include "available.h"

#if defined(SUPPORT_ASAN)
/* GCC 13 switches the first one on.  Each function then looks for free memory for its frame, among all that are under way:
 * minutes where the simulator computes the cost of many calls.  The second one: a request for more memory than the system has
 * returns NULL, as everywhere. */
const char *__asan_default_options(void);
__attribute__((weak)) const char *__asan_default_options(void)
{
    return "detect_stack_use_after_return=0:allocator_may_return_null=1";
}
#endif

#if defined(__SANITIZE_THREAD__)
/* OpenSSL is not compiled for ThreadSanitizer, which sees the memory that it copies and compares, but not its atomic operations:
 * the hash table of OpenSSL 3.5, which readers do not lock, would be reported.  Called before ThreadSanitizer is ready. */
const char *__tsan_default_suppressions(void);
__attribute__((weak, no_sanitize("thread"))) const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libcrypto.so\ncalled_from_lib:libssl.so\n";
}
#endif

/* A table of descriptors that grows makes a program with threads wait in the kernel until each processor has passed through the
 * scheduler.  On a loaded machine that has taken seconds, longer than the time limits of tests.  So it grows before there are
 * threads. */
__attribute__((constructor)) static void support_make_room(void)
{
    const int last = fcntl(0, F_DUPFD, 1023);

    if (last >= 0) close(last);
}

/* ---- >>seeds: every run can be had again ---- */

/* A well mixed function of its argument (splitmix64's output function). */
SUPPORT uint64_t support_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The next number of the generator splitmix64. */
SUPPORT uint64_t support_random(uint64_t *state)
{
    const uint64_t number = support_mix(*state);
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return number;
}

/* COLL_TEST_SEED, or 1. */
SUPPORT uint64_t support_seed(void)
{
    const char *text = getenv("COLL_TEST_SEED");
    return text && *text ? strtoull(text, NULL, 0) : 1;
}

/* COLL_TEST_SCALE: how many cases, 1 being the usual number. */
SUPPORT double support_scale(void)
{
    const char *text = getenv("COLL_TEST_SCALE");
    const double scale = text && *text ? strtod(text, NULL) : 1;
    return scale > 0 ? scale : 1;
}

/* Is `name` in the comma list?  NULL holds every name. */
SUPPORT bool support_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);

    if (!list) return true;
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (!strncmp(at, name, length) && (at[length] == ',' || !at[length])) return true;
    }
    return false;
}

SUPPORT void *support_need(void *memory)
{
    if (memory) return memory;
    fprintf(stderr, "out of memory for the test itself\n");
    exit(1);
}

/* ---- >>data: elements to test with, as bits ---- */

/* A float between 1/8 and 16 in magnitude. */
SUPPORT uint64_t support_ordinary_float(const support_type *type, uint64_t random)
{
    const uint64_t bias = (UINT64_C(1) << (type->exponent_bits - 1)) - 1;
    const uint64_t fraction = random & ((UINT64_C(1) << type->fraction_bits) - 1);

    return ((random >> 63) << type->exponent_bits | (bias - 3 + (random >> 53) % 7)) << type->fraction_bits | fraction;
}

/* A special float, one of 8 themes.  With one theme for all ranks, special values are combined. */
SUPPORT uint64_t support_special_float(const support_type *type, uint64_t theme, uint64_t random)
{
    const int width = (int)type->size * 8, fraction_bits = type->fraction_bits;
    const uint64_t top = (UINT64_C(1) << type->exponent_bits) - 1, infinite = top << fraction_bits;
    const uint64_t sign = (random >> 63) << (width - 1), fraction = random & ((UINT64_C(1) << fraction_bits) - 1);
    const uint64_t ordinary = support_ordinary_float(type, random);
    const bool is_special = (random >> 56 & 3) == 0;

    switch (theme) {
    case 0:  return sign;                                                              /* zeros                */
    case 1:  return is_special ? sign | infinite : ordinary;                           /* infinities           */
    case 2:  return is_special ? sign | infinite | fraction | 1 : ordinary;            /* NaNs                 */
    case 3:  return sign | fraction;                                                   /* subnormals           */
    case 4:  return (is_special ? sign : 0) | (top - 1) << fraction_bits | fraction;   /* sums overflow        */
    case 5:  return random & ~UINT64_C(0) >> (64 - width);                             /* anything             */
    case 6:  return sign | (1 + (random >> 60 & 1)) << fraction_bits | fraction;       /* products underflow   */
    default: return ordinary;
    }
}

/* An integer at the ends of its type, or any; more bits than the type has may be set. */
SUPPORT uint64_t support_special_integer(const support_type *type, uint64_t random)
{
    const uint64_t high = UINT64_C(1) << (type->size * 8 - 1);
    const uint64_t choices[] = { 0, 1, high, high - 1, ~UINT64_C(0), high + 1, ~UINT64_C(0) - 1, random };
    return choices[random >> 61];
}

/* Element `at` of the message from one rank to another, or from a rank to any rank. */
SUPPORT uint32_t support_word(int source, int dest, int tag, size_t at)
{
    return (uint32_t)at * UINT32_C(2654435761) + (uint32_t)(source * 1009 + dest * 31 + tag);
}

SUPPORT uint32_t *support_message_make(int source, int dest, int tag, size_t count)
{
    uint32_t *message = support_need(malloc(count * sizeof *message + 1));
    for (size_t i = 0; i < count; i++) message[i] = support_word(source, dest, tag, i);
    return message;
}

SUPPORT bool support_message_is_right(const uint32_t *message, int source, int dest, int tag, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (message[i] != support_word(source, dest, tag, i)) return false;
    return true;
}

/* ---- >>buffers: a write that is not the expected one is noticed ---- */

/*     block             data                     data + length
 *     | guard, >= 64    | the user's bytes       | guard, >= 64    |
 *
 * `image` is the expected content of the whole block.  A test fills data, calls support_seal, lets the library
 * work, puts the expected result into the image with support_expect, and compares everything at once.  Under
 * AddressSanitizer the guards cannot be read either while the buffer is sealed.
 *
 * In a world whose calls work elsewhere - in the memory of a GPU - the block has a twin there: support_seal takes the bytes to
 * it, support_fetch copies them back, and support_place translates a pointer into the block. */
enum { SUPPORT_GUARD = 64, SUPPORT_FILL = 0xd7 };

typedef struct support_buffer {
    unsigned char *block, *image, *data;
    size_t block_length, length;
    void *twin;
} support_buffer;

typedef struct support_memory {
    void *(*make)(const void *block, size_t length);
    void  (*free)(void *twin);
    void  (*push)(void *twin, const void *from, size_t length);
    void  (*pull)(void *to, const void *twin, size_t length);
    void *(*find)(const void *pointer);           /* returns pointers in no block unchanged                   */
} support_memory;

static const support_memory *support_elsewhere;   /* NULL: calls work on the blocks themselves                */

SUPPORT void *support_place(const void *pointer)
{
    return support_elsewhere ? support_elsewhere->find(pointer) : (void *)(uintptr_t)pointer;
}

/* Allow or forbid every access to the guards; without AddressSanitizer nothing happens. */
SUPPORT void support_guard(const support_buffer *buffer, bool forbid)
{
#if defined(SUPPORT_ASAN)
    const size_t before = (size_t)(buffer->data - buffer->block);
    const size_t behind = buffer->block_length - before - buffer->length;

    if (!forbid) {
        ASAN_UNPOISON_MEMORY_REGION(buffer->block, buffer->block_length);
        return;
    }
    ASAN_POISON_MEMORY_REGION(buffer->block, before);
    ASAN_POISON_MEMORY_REGION(buffer->data + buffer->length, behind);
#else
    (void)buffer, (void)forbid;
#endif
}

/* `length` bytes, `shift` bytes behind an address that is a multiple of 64. */
SUPPORT support_buffer support_buffer_make(size_t length, size_t shift)
{
    support_buffer buffer = { .length = length };

    buffer.block_length = (SUPPORT_GUARD + shift + length + SUPPORT_GUARD + 63) / 64 * 64;
    buffer.block = support_need(aligned_alloc(64, buffer.block_length));
    buffer.image = support_need(malloc(buffer.block_length));
    buffer.data = buffer.block + SUPPORT_GUARD + shift;
    memset(buffer.block, SUPPORT_FILL, buffer.block_length);
    if (support_elsewhere) buffer.twin = support_elsewhere->make(buffer.block, buffer.block_length);
    return buffer;
}

/* The data is filled: from here on every change counts. */
SUPPORT void support_seal(support_buffer *buffer)
{
    memcpy(buffer->image, buffer->block, buffer->block_length);
    if (buffer->twin) support_elsewhere->push(buffer->twin, buffer->block, buffer->block_length);
    support_guard(buffer, true);
}

/* The data can be read. */
SUPPORT void support_fetch(const support_buffer *buffer)
{
    support_guard(buffer, false);
    if (buffer->twin) support_elsewhere->pull(buffer->block, buffer->twin, buffer->block_length);
}

/* From byte `at` of the data on there must be these bytes in the end. */
SUPPORT void support_expect(support_buffer *buffer, size_t at, const void *bytes, size_t length)
{
    if (length) memcpy(buffer->image + (buffer->data - buffer->block) + at, bytes, length);
}

/* Is everything as expected, guards included?  If not, *at is the first wrong byte, counted from data. */
SUPPORT bool support_as_expected(const support_buffer *buffer, ptrdiff_t *at)
{
    size_t i = 0;

    support_fetch(buffer);
    if (!memcmp(buffer->block, buffer->image, buffer->block_length)) return true;
    while (buffer->block[i] == buffer->image[i]) i++;
    *at = (ptrdiff_t)i - (buffer->data - buffer->block);
    return false;
}

/* The image's byte `at` of the data. */
SUPPORT const unsigned char *support_expected(const support_buffer *buffer, ptrdiff_t at)
{
    return buffer->image + (buffer->data - buffer->block) + at;
}

SUPPORT void support_buffer_free(support_buffer *buffer)
{
    if (buffer->block) support_guard(buffer, false);
    if (buffer->twin) support_elsewhere->free(buffer->twin);
    free(buffer->block);
    free(buffer->image);
    *buffer = (support_buffer){ 0 };
}

/* ---- >>worlds: several ranks in one process ---- */

enum { SUPPORT_RANKS_MAX = 256 };

/* One rank of a world. */
typedef struct support_rank {
    pthread_t   thread;
    coll_config config;
    coll_comm  *comm;                             /* NULL before: the thread is to call coll_init             */
    coll_status hybrid;
    int       (*worker)(coll_comm *comm, void *arg);
    void       *arg;
    int         result;
} support_rank;

/* A loopback port for rank 0, which no other process can get while the socket is open.  The socket never listens, and
 * both sides set SO_REUSEADDR, so rank 0 can bind the same port.  Returns the socket, or -1. */
SUPPORT int support_reserve_port(char *address, size_t length)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t name_length = sizeof name;
    const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) || bind(fd, (struct sockaddr *)&name, sizeof name) ||
        getsockname(fd, (struct sockaddr *)&name, &name_length)) {
        close(fd);
        return -1;
    }
    snprintf(address, length, "127.0.0.1:%u", (unsigned)ntohs(name.sin_port));
    return fd;
}

/* Called with the result of coll_free on each rank; NULL: not.  Not in a simulated world. */
static void (*support_on_free)(int rank, coll_status status);

SUPPORT void *support_rank_main(void *arg)
{
    support_rank *r = arg;

    r->result = -1;
    if (!r->comm) r->hybrid = coll_init(&r->comm, &r->config);
    if (r->hybrid) {
        fprintf(stderr, "coll_init of rank %d of %d: %s: %s\n", r->config.rank, r->config.size,
                coll_status_text(r->hybrid), coll_error(NULL));
        return NULL;
    }
    const int rank = coll_rank(r->comm);
    r->result = r->worker(r->comm, r->arg);
    const coll_status status = coll_free(r->comm);
    if (support_on_free) support_on_free(rank, status);
    return NULL;
}

/* Make the communicators of a "threads" world. */
SUPPORT coll_status support_join_threads(int size, support_rank *ranks, const coll_config *config)
{
    coll_comm *comms[SUPPORT_RANKS_MAX] = { 0 };
    const coll_status status = coll_init_threads(size, comms, config);

    if (status) fprintf(stderr, "coll_init_threads(%d): %s: %s\n", size, coll_status_text(status), coll_error(NULL));
    for (int i = 0; i < size; i++) ranks[i].comm = comms[i];
    return status;
}

/* One process of a "hybrid" world. */
typedef struct support_part {
    pthread_t     thread;
    support_rank *ranks;
    int           count;
    coll_status   hybrid;
} support_part;

static void *support_part_main(void *arg)
{
    support_part *part = arg;
    part->hybrid = support_join_threads(part->count, part->ranks, &part->ranks->config);
    return NULL;
}

/* Make the communicators of a "hybrid" world: of processes with 1, 2, 3, 1, 2, 3, ... ranks, in one. */
SUPPORT coll_status support_join_parts(int size, support_rank *ranks)
{
    support_part parts[SUPPORT_RANKS_MAX];
    coll_status status = COLL_OK;
    int count = 0, first = 0;

    for (; first < size; first += parts[count++].count) {
        const int wanted = 1 + count % 3;
        parts[count] = (support_part){ .ranks = ranks + first, .count = wanted < size - first ? wanted : size - first };
        if (!pthread_create(&parts[count].thread, NULL, support_part_main, &parts[count])) continue;
        fprintf(stderr, "pthread_create failed for rank %d of %d\n", first, size);
        status = COLL_ERR_SYSTEM;
        break;
    }
    while (count-- > 0) {
        pthread_join(parts[count].thread, NULL);
        if (!status) status = parts[count].hybrid;
    }
    for (int i = 0; i < size && status; i++) coll_free(ranks[i].comm);
    return status;
}

/* The ranks of a simulated world are fibers of this thread; COLL_SIM describes the machine. */
SUPPORT int support_run_simulated(int size, int (*worker)(coll_comm *comm, void *arg), void *arg)
{
    const coll_config config = { .transport = "sim" };
    const int result = coll_spawn(size, worker, arg, &config);

    if (result) fprintf(stderr, "a simulated world ends with %d: %s\n", result, coll_error(NULL));
    return result != 0;
}

/* The same on a machine that this text describes. */
SUPPORT int support_run_machine(const char *machine, int size, int (*worker)(coll_comm *comm, void *arg), const void *arg)
{
    setenv("COLL_SIM", machine, 1);
    const int result = support_run_simulated(size, worker, (void *)(uintptr_t)arg);
    unsetenv("COLL_SIM");
    return result;
}

/* Run `worker` on `size` ranks of a world and return how many did not return 0 ("sim": 1 if any did not).  *base has time
 * limits, the log hook and other settings that the world does not set; NULL: none. */
SUPPORT int support_run_config(const char *world, int size, const coll_config *base,
                               int (*worker)(coll_comm *comm, void *arg), void *arg)
{
    const coll_config config = base ? *base : (coll_config){ 0 };
    const bool is_threads = !strcmp(world, "threads"), is_hybrid = !strcmp(world, "hybrid") && size > 1;
    const bool is_domain = !strcmp(world, "tcp-domain");
    char address[64] = "";
    int failed = 0, port = -1, started = 0;
    support_rank *ranks;

    if (size < 1 || size > SUPPORT_RANKS_MAX) return size;
    if (!strcmp(world, "sim")) return support_run_simulated(size, worker, arg);
    ranks = support_need(calloc((size_t)size, sizeof *ranks));
    if (is_threads && support_join_threads(size, ranks, &config)) goto fail;
    if (!is_threads && (port = support_reserve_port(address, sizeof address)) < 0) {
        fprintf(stderr, "no loopback port: %s\n", strerror(errno));
        goto fail;
    }
    for (int i = 0; i < size; i++) {
        ranks[i].config = config;
        ranks[i].worker = worker;
        ranks[i].arg = arg;
        if (is_threads) continue;
        ranks[i].config.transport = "tcp";
        ranks[i].config.rank = i;
        ranks[i].config.size = size;
        ranks[i].config.address = address;
        ranks[i].config.tcp.io = is_hybrid || is_domain ? NULL : !strcmp(world, "tcp-uring") ? "uring" : "poll";
        if (!is_hybrid && !is_domain) ranks[i].config.tcp.shm_collectives = COLL_OFF;
        if (is_hybrid) ranks[i].config.transport = NULL;
        /* Ranks of a TCP world share memory when it is even, not all of them when it is 3, 7, ..., none when it is 5, 9, ... */
        if (!is_domain && size % 2 && (size % 4 == 1 || i % 2)) ranks[i].config.tcp.share_memory = COLL_OFF;
    }
    if (is_hybrid && support_join_parts(size, ranks)) goto fail;
    for (; started < size; started++)
        if (pthread_create(&ranks[started].thread, NULL, support_rank_main, &ranks[started])) break;
    if (started < size) fprintf(stderr, "pthread_create failed for rank %d of %d\n", started, size);
    for (int i = started; i < size; i++) coll_free(ranks[i].comm);
    for (int i = 0; i < started; i++) pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < size; i++) failed += i >= started || ranks[i].result != 0;
    if (port >= 0) close(port);
    free(ranks);
    return failed;
fail:
    if (port >= 0) close(port);
    free(ranks);
    return size;
}

SUPPORT int support_run(const char *world, int size, int (*worker)(coll_comm *comm, void *arg), void *arg)
{
    return support_run_config(world, size, NULL, worker, arg);
}

#if defined(COLL_PORTABLE)
enum { SUPPORT_IS_PORTABLE = 1 };                 /* POSIX only, which reports less than Linux                */
#else
enum { SUPPORT_IS_PORTABLE = 0 };
#endif

/* A world that is left out returns an error that says so.  io_uring is not a transport, but a part of one (test_refused.c). */
SUPPORT void support_check_refused(const char *name, const char *missing)
{
    const bool is_hybrid = !strcmp(name, "hybrid"), is_tcp = !strncmp(name, "tcp", 3);
    const bool is_domain = !strcmp(name, "tcp-domain"), is_one = is_hybrid || is_domain; /* of three */
    const coll_config config = { .transport = is_hybrid ? NULL : is_tcp ? "tcp" : !strncmp(name, "sim", 3) ? "sim" : name,
                                 .size = is_one ? 3 : 0, .address = is_one ? "127.0.0.1:1" : NULL,
                                 .tcp = { .shm_collectives = is_domain }, .log_level = COLL_LOG_NONE };
    coll_comm *comms[2] = { NULL, NULL };

    if (!strcmp(missing, "COLL_NO_URING")) return;
    const coll_status status = is_domain ? coll_init(comms, &config) : coll_init_threads(2, comms, &config);
    CHECK(status == COLL_ERR_UNSUPPORTED && there_says(coll_error(NULL), missing), "%s: status %d, \"%s\" without %s", name,
          (int)status, coll_error(NULL), missing);
}

/* Why this world is not available on this machine or in this build, which then returns that error; NULL: it is available.  The
 * kernel is queried, not the library, so that a library that gives up too early does not look like a missing io_uring. */
SUPPORT const char *support_refusal(const char *world)
{
    static char text[80];
    const char *missing = there_missing_world(world);

    if (missing) {
        support_check_refused(world, missing);
        snprintf(text, sizeof text, "compiled with %s", missing);
        return text;
    }
    if (strcmp(world, "tcp-uring")) return NULL;
#if !defined(__NR_io_uring_setup)
    return "these kernel headers know no io_uring";
#else
    if (syscall(__NR_io_uring_setup, 1, NULL) >= 0 || errno == EFAULT) return NULL;
    return errno == ENOSYS ? "this kernel has no io_uring" : "this system does not permit io_uring";
#endif
}

/* Can this world be had?  If not, the output says why. */
SUPPORT bool support_has_world(const char *world)
{
    const char *refusal = support_refusal(world);

    if (refusal) printf("%s: skipped: %s\n", world, refusal);
    return !refusal;
}

/* All worlds in turn, from *at = 0 on: the next one that is in the comma list (NULL: all are) and that can be had; NULL: there
 * are no more. */
SUPPORT const char *support_world_next(const char *list, int *at)
{
    static const char *const worlds[] = { "threads", "tcp-poll", "tcp-uring", "tcp-domain", "hybrid", "sim" };

    while (*at < (int)(sizeof worlds / sizeof *worlds)) {
        const char *world = worlds[(*at)++];
        if (support_listed(list, world) && support_has_world(world)) return world;
    }
    return NULL;
}

/* ---- >>time: for tests that hang, or are slow ---- */

SUPPORT double support_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The limit for an action that takes `ms` if nothing else runs: as many times longer as there are tasks for each
 * processor, now or over the last minute: a bound is a promise of the library, not of the machine's other users. */
SUPPORT int64_t support_scaled(int64_t ms)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    double average = 0;
    int running = 0;
    FILE *file = fopen("/proc/loadavg", "re");

    if (file && fscanf(file, "%lf %*f %*f %d/", &average, &running) != 2) average = running = 0;
    if (file) fclose(file);
    const double tasks = running > average ? running : average, share = tasks / (double)(processors > 0 ? processors : 1);
    return share > 1 ? (int64_t)((double)ms * share) : ms;
}

static void (*support_limit_report)(void);

SUPPORT void support_limit_reached(int number)
{
    (void)number;
    alarm(5);                                     /* should the report hang, too */
    fprintf(stderr, "the test has reached its time limit\n");
    if (support_limit_report) support_limit_report();
    _exit(1);
}

/* End the process with status 1 after this time, or where the machine is busy after more, and call `report` before. */
SUPPORT void support_limit(unsigned seconds, void (*report)(void))
{
    struct sigaction action = { .sa_handler = support_limit_reached, .sa_flags = (int)SA_RESETHAND | SA_NODEFER };

    support_limit_report = report;
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)(support_scaled((int64_t)seconds * 1000) / 1000));
}

#endif /* COLL_TESTS_SUPPORT_H */
