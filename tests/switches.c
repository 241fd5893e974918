/* switches.c - what is left of the library where some of it was left out: each transport that is there gives the right bits, and
 * what is not there is refused with the sentence that names its switch.  tests/test_switches.sh compiles it in many ways. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <sys/wait.h>

enum { RANKS = 3, LONGEST = 70000 };              /* f32: beyond what is sent at once, and what one lane carries at a time */

static int failures;

#define CHECK(what, ...) \
    do { \
        if (!(what)) { \
            failures++; \
            fprintf(stderr, "switches.c:%d: ", __LINE__); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
        } \
    } while (0)

/* ---- >>bits ---- */

/* Element i of what a rank gives to rank `to`: a small whole number, so that every order of a sum gives the same bits. */
static float element(int rank, int to, size_t i) { return (float)((rank * 31 + to * 7 + (int)(i % 1000)) % 511); }

static void fill(float *x, int rank, int to, size_t count) { for (size_t i = 0; i < count; i++) x[i] = element(rank, to, i); }

static int differ(const float *x, int rank, int to, size_t count)
{
    for (size_t i = 0; i < count; i++) if (x[i] != element(rank, to, i)) return 1;
    return 0;
}

static int sums_differ(const float *x, int size, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < size; r++) sum += element(r, 0, i);
        if (memcmp(&sum, &x[i], sizeof sum)) return 1;
    }
    return 0;
}

/* Four collectives; 0: all is right. */
static int four_calls(coll_comm *comm, float *x, float *y, size_t count)
{
    const int rank = coll_rank(comm), size = coll_size(comm), root = size - 1;
    int wrong = 0;

    fill(x, rank, 0, count);
    if (coll_allreduce(comm, x, y, count, COLL_F32, COLL_SUM) || sums_differ(y, size, count)) wrong |= 1;
    fill(x, rank, 5, count);
    if (coll_broadcast(comm, x, count, COLL_F32, root) || differ(x, root, 5, count)) wrong |= 2;
    fill(x, rank, 1, count);
    if (coll_allgather(comm, x, y, count, COLL_F32)) wrong |= 4;
    for (int r = 0; r < size; r++) if (differ(y + (size_t)r * count, r, 1, count)) wrong |= 4;
    for (int r = 0; r < size; r++) fill(x + (size_t)r * count, rank, r, count);
    if (coll_alltoall(comm, x, y, count, COLL_F32)) wrong |= 8;
    for (int r = 0; r < size; r++) if (differ(y + (size_t)r * count, r, rank, count)) wrong |= 8;
    return wrong;
}

/* What every rank of every world does.  Its result is a set of what was wrong. */
static int worker(coll_comm *comm, void *arg)
{
    static const size_t counts[] = { 1, 1000, LONGEST };
    const size_t room = (size_t)LONGEST * (size_t)coll_size(comm);
    float *x = (float *)malloc(2 * room * sizeof *x);
    int wrong = x ? 0 : 64;

    if (coll_size(comm) != *(const int *)arg) wrong |= 32;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !wrong; i++) wrong |= four_calls(comm, x, x + room, counts[i]);
    free(x);
    if (wrong) fprintf(stderr, "rank %d of %d: wrong %d: %s\n", coll_rank(comm), coll_size(comm), wrong, coll_error(comm));
    return wrong;
}

/* ---- >>worlds ---- */

static COLL__UNUSED int world_of(const char *transport)
{
    int size = RANKS;

    setenv("COLL_TRANSPORT", transport, 1);
    const int wrong = coll_spawn(size, worker, &size);
    unsetenv("COLL_TRANSPORT");
    return wrong;
}

/* Ranks of one process of several: from `first` on, `count` of them. */
static int process_of(const char *address, int first, int count, int lanes)
{
    coll_config config = { .rank = first, .size = RANKS, .address = address };
    char rank[12];
    int size = RANKS;
    coll_comm *comm;

    if (count > 1) {                              /* coll_spawn asks the environment                          */
        snprintf(rank, sizeof rank, "%d", first);
        setenv("COLL_RANK", rank, 1);
        setenv("COLL_SIZE", "3", 1);
        setenv("COLL_ADDR", address, 1);
        return coll_spawn(count, worker, &size);
    }
    config.tcp.lanes = lanes;
    config.tcp.share_memory = lanes > 1 ? -1 : 0;
    if (coll_init(&comm, &config)) return fprintf(stderr, "%s\n", coll_error(NULL)), 16;
    const int wrong = worker(comm, &size);
    coll_free(comm);
    return wrong;
}

/* Processes that meet by a file; with `together` ranks in the first of them. */
static COLL__UNUSED int processes(int together, int lanes)
{
    char folder[] = "/tmp/coll-switches-XXXXXX", file[64], address[80];
    pid_t pids[RANKS];
    int count = 0, wrong = 0, status;

    if (!mkdtemp(folder)) return 128;
    snprintf(file, sizeof file, "%s/where", folder);
    snprintf(address, sizeof address, "file:%s", file);
    for (int rank = 0; rank < RANKS; rank += rank == 0 ? together : 1) {
        const pid_t pid = fork();
        if (pid == 0) _Exit(process_of(address, rank, rank == 0 ? together : 1, lanes) & 255);
        pids[count++] = pid;
    }
    for (int i = 0; i < count; i++)
        if (pids[i] < 0 || waitpid(pids[i], &status, 0) < 0 || status != 0) wrong = 1;
    unlink(file);
    rmdir(folder);
    return wrong;
}

static int worlds(void)
{
    int count = 0;

#if !defined(COLL_NO_THREADS)
    CHECK(!world_of("threads"), "three threads");
    count++;
#endif
#if !defined(COLL_NO_SIM)
    CHECK(!world_of("sim"), "three simulated ranks");
    count++;
#endif
#if !defined(COLL_NO_TCP)
    CHECK(!processes(1, 1), "three processes");
    count++;
#if !defined(COLL_NO_LANES)
    CHECK(!processes(1, 3), "three processes with three lanes");
    count++;
#endif
#endif
#if !defined(COLL_NO_JOINED)
    CHECK(!processes(2, 1), "a process of two ranks and one of one");
    count++;
#endif
    return count;
}

/* ---- >>alone, and what is refused ---- */

/* A single rank is there in every program. */
static void alone(void)
{
    const coll_config config = { .size = 1, .log_level = COLL_LOG_NONE };
    float x = 3, y = 0;
    int size = 1;
    coll_comm *comm;

    CHECK(coll_init(&comm, &config) == COLL_OK, "alone: %s", coll_error(NULL));
    if (!comm) return;
    CHECK(!worker(comm, &size), "alone: %s", coll_error(comm));
    CHECK(coll_sendrecv(comm, &x, 1, 0, &y, 1, 0, COLL_F32, 4) == COLL_OK && y == 3, "to itself: %s", coll_error(comm));
    coll_free(comm);
}

/* ranks 0: one process, by coll_init.  Otherwise so many threads. */
static COLL__UNUSED void refused(const char *what, const coll_config *config, int ranks, const char *words)
{
    coll_comm *comms[RANKS] = { NULL };
    const coll_status status = ranks == 0 ? coll_init(comms, config) : coll_init_threads(ranks, comms, config);

    CHECK(status == COLL_ERR_UNSUPPORTED && strstr(coll_error(NULL), words), "%s: %d, \"%s\" without \"%s\"", what, (int)status,
          coll_error(NULL), words);
    for (int i = 0; i < RANKS; i++) coll_free(comms[i]);
}

static COLL__UNUSED void absent(const char *transport, const char *words)
{
    const coll_config plain = { .log_level = COLL_LOG_NONE }, here = { .transport = transport, .log_level = COLL_LOG_NONE };
    const coll_config elsewhere = { .rank = 1, .size = RANKS, .address = "127.0.0.1:1", .log_level = COLL_LOG_NONE };

    refused(transport, &here, RANKS, words);
    if (!strcmp(transport, "tcp")) refused("an address", &elsewhere, 0, words);
    setenv("COLL_TRANSPORT", transport, 1);
    refused("COLL_TRANSPORT", &plain, RANKS, words);
    unsetenv("COLL_TRANSPORT");
}

static void left_out(void)
{
    const coll_config plain = { .log_level = COLL_LOG_NONE };
    coll_config asked = plain;

#if defined(COLL_NO_SIM)
    absent("sim", "this program was compiled with COLL_NO_SIM");
#endif
#if defined(COLL_NO_TCP)
    absent("tcp", "this program was compiled with COLL_NO_TCP");
#endif
#if defined(COLL_NO_THREADS)
    absent("threads", "this program was compiled with COLL_NO_THREADS");
    refused("three ranks", &plain, RANKS, "this program was compiled with COLL_NO_THREADS");
#endif
#if defined(COLL_NO_JOINED)
    asked.size = RANKS;
    refused("two of three ranks", &asked, 2, "this program was compiled with COLL_NO_");
    asked = plain;
#endif
#if defined(COLL_NO_SHM) && !defined(COLL_NO_TCP)
    asked = (coll_config){ .size = RANKS, .address = "127.0.0.1:0", .log_level = COLL_LOG_NONE, .tcp = { .share_memory = 1 } };
    refused("share_memory", &asked, 0, "this program was compiled with COLL_NO_SHM");
    asked = plain;
#endif
#if defined(COLL_NO_LANES) && !defined(COLL_NO_TCP)
    asked = (coll_config){ .size = RANKS, .address = "127.0.0.1:0", .log_level = COLL_LOG_NONE, .tcp = { .lanes = 2 } };
    refused("lanes", &asked, 0, "this program was compiled with COLL_NO_LANES");
    asked = plain;
#endif
#if defined(COLL_NO_RECORDER)
    asked.dump = "/tmp";
    refused("dump", &asked, 1, "this program was compiled with COLL_NO_RECORDER");
    asked = plain;
#endif
#if defined(COLL_NO_BACKGROUND)
    asked.background = 1;
    refused("background", &asked, 1, "this program was compiled with COLL_NO_BACKGROUND");
#endif
    (void)asked;
}

/* The public functions of a part are there without it. */
static void functions(void)
{
    const coll_config config = { .size = 1, .log_level = COLL_LOG_NONE };
    char text[4000] = "";
    coll_comm *comm;
    FILE *file = tmpfile();

    if (coll_init(&comm, &config) != COLL_OK || !file) {
        CHECK(false, "no communicator, or no file");
        return;
    }
    CHECK(coll_barrier(comm) == COLL_OK, "barrier");
    coll_dump(comm, file);
    rewind(file);
    CHECK(fread(text, 1, sizeof text - 1, file) > 0, "coll_dump writes nothing");
    fclose(file);
#if defined(COLL_NO_RECORDER)
    CHECK(strstr(text, "this program was compiled with COLL_NO_RECORDER"), "coll_dump: %s", text);
#else
    CHECK(strstr(text, "rank 0 of 1") && !strstr(text, "COLL_NO_RECORDER"), "coll_dump: %s", text);
#endif
    const int fd = coll_fd(comm);
#if defined(COLL_NO_BACKGROUND)
    CHECK(fd == -1 && strstr(coll_error(comm), "COLL_NO_BACKGROUND"), "coll_fd: %d, %s", fd, coll_error(comm));
#else
    CHECK(fd >= -1, "coll_fd: %d", fd);
#endif
    CHECK(coll_sim_time(comm) == 0, "a virtual clock that is not there");
    coll_free(comm);
}

int main(void)
{
    const int count = worlds();

    alone();
    left_out();
    functions();
    if (failures == 0) printf("%d worlds\n", count);
    return failures > 0;
}
