/* switches.c - tests the library without some parts: each remaining transport has the right bits, and calls of a missing part
 * fail with the sentence that names its switch.  test_switches.sh compiles it in many ways. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/loopback.h"

enum { RANKS = 3, LONGEST = 70000 };              /* beyond what is sent at once, and what one lane carries at a time */

/* Four bytes that can be summed in this program. */
#if COLL__TYPES_THERE & COLL__TYPED_f32
typedef float number;
enum { NUMBER = COLL_F32 };
#elif COLL__TYPES_THERE & COLL__TYPED_i32
typedef int32_t number;
enum { NUMBER = COLL_I32 };
#else
#error "COLL_ONLY_TYPES of a test has f32 or i32"
#endif

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
static number element(int rank, int to, size_t i) { return (number)((rank * 31 + to * 7 + (int)(i % 1000)) % 511); }

static void fill(number *x, int rank, int to, size_t count) { for (size_t i = 0; i < count; i++) x[i] = element(rank, to, i); }

static int differ(const number *x, int rank, int to, size_t count)
{
    for (size_t i = 0; i < count; i++) if (x[i] != element(rank, to, i)) return 1;
    return 0;
}

static int sums_differ(const number *x, int size, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        number sum = 0;
        for (int r = 0; r < size; r++) sum += element(r, 0, i);
        if (memcmp(&sum, &x[i], sizeof sum)) return 1;
    }
    return 0;
}

#if !COLL__HAS_TEXT
static bool says(const char *sentence, const char *words) { return (void)words, sentence && *sentence; }
#else
static bool says(const char *sentence, const char *words) { return strstr(sentence, words) != NULL; }
#endif

/* A collective that was left out is refused, with the name of the list; one that is there is not. */
static bool is_there(coll_comm *comm, int has, coll_status status)
{
    if (has) return true;
    CHECK(status == COLL_ERR_UNSUPPORTED && says(coll_error(comm), "COLL_ONLY_KINDS"), "left out: %d, %s", (int)status,
          coll_error(comm));
    return false;
}

/* Four collectives; 0: all is right. */
static int four_calls(coll_comm *comm, number *x, number *y, size_t count)
{
    const int rank = coll_rank(comm), size = coll_size(comm), root = size - 1;
    int wrong = 0;

    fill(x, rank, 0, count);
    if (coll_allreduce(comm, x, y, count, NUMBER, COLL_SUM) || sums_differ(y, size, count)) wrong |= 1;
    fill(x, rank, 5, count);
    coll_status status = coll_broadcast(comm, x, count, NUMBER, root);
    if (is_there(comm, COLL__HAS_BROADCAST, status) && (status || differ(x, root, 5, count))) wrong |= 2;
    fill(x, rank, 1, count);
    if (coll_allgather(comm, x, y, count, NUMBER)) wrong |= 4;
    for (int r = 0; r < size; r++) if (differ(y + (size_t)r * count, r, 1, count)) wrong |= 4;
    for (int r = 0; r < size; r++) fill(x + (size_t)r * count, rank, r, count);
    status = coll_alltoall(comm, x, y, count, NUMBER);
    if (!is_there(comm, COLL__HAS_ALLTOALL, status)) return wrong;
    if (status) wrong |= 8;
    for (int r = 0; r < size; r++) if (differ(y + (size_t)r * count, r, rank, count)) wrong |= 8;
    return wrong;
}

/* To the next rank, from the one before, as neighbors; 0: all is right. */
static int neighbours(coll_comm *comm, number *x, number *y, size_t count)
{
    const int rank = coll_rank(comm), size = coll_size(comm), next = (rank + 1) % size, before = (rank + size - 1) % size;
    const coll_status hybrid = coll_neighbors(comm, &before, 1, &next, 1);

    fill(x, rank, next, count);
    const coll_status status = coll_neighbor_alltoall(comm, x, y, count, NUMBER);
    if (COLL__HAS_NEIGHBOR) return hybrid || status || differ(y, before, rank, count) ? 16 : 0;
    const bool is_known = says(coll_error(comm), COLL__HAS_COUNTS ? "COLL_ONLY_KINDS" : "COLL_NO_COUNTS");
    return hybrid == COLL_ERR_UNSUPPORTED && status == COLL_ERR_UNSUPPORTED && is_known ? 0 : 16;
}

/* What every rank of every world does.  Its result is a set of what was wrong. */
static int worker(coll_comm *comm, void *arg)
{
    static const size_t counts[] = { 1, 1000, LONGEST };
    const size_t room = (size_t)LONGEST * (size_t)coll_size(comm);
    number *x = (number *)malloc(2 * room * sizeof *x);
    int wrong = x ? 0 : 64;

    if (coll_size(comm) != *(const int *)arg) wrong |= 32;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !wrong; i++) wrong |= four_calls(comm, x, x + room, counts[i]);
    if (!wrong) wrong |= neighbours(comm, x, x + room, 1000);
    free(x);
    if (wrong) fprintf(stderr, "rank %d of %d: wrong %d: %s\n", coll_rank(comm), coll_size(comm), wrong, coll_error(comm));
    return wrong;
}

#include "switch_types.h"

/* ---- >>worlds ---- */

/* Ranks that one thread runs, in turns: allreduce, and one of each other kind that is there. */
static void loops(int size)
{
    enum { COUNT = 5000 };
    static loop_world w;
    static number x[LOOP_MOST][LOOP_MOST * COUNT], y[LOOP_MOST][LOOP_MOST * COUNT];
    const coll_kind kinds[] = { COLL_BARRIER, COLL_BROADCAST, COLL_REDUCE, COLL_ALLREDUCE, COLL_SCAN, COLL_GATHER, COLL_ALLGATHER,
                                COLL_ALLTOALL, COLL_REDUCE_SCATTER };
    const int has[] = { 1, COLL__HAS_BROADCAST, COLL__HAS_REDUCE, 1, COLL__HAS_SCAN,
                        COLL__HAS_GATHER, 1, COLL__HAS_ALLTOALL, COLL__HAS_REDUCE_SCATTER };

    if (!COLL__HAS_MESSAGES) {
        CHECK(!loop_open(&w, size, &loop_transport) && says(coll_error(NULL), COLL__PROFILE), "ranks in turns: %s",
              coll_error(NULL));
        return;
    }
    CHECK(loop_open(&w, size, &loop_transport), "%d ranks in turns: %s", size, coll_error(NULL));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        coll_call calls[LOOP_MOST];
        for (int r = 0; r < size; r++) {
            fill(x[r], r, 0, COUNT * (size_t)size);
            memcpy(y[r], x[r], sizeof y[r]);
            calls[r] = (coll_call){ .kind = kinds[k], .send = kinds[k] == COLL_BROADCAST ? NULL : x[r], .recv = y[r],
                                    .count = COUNT, .type = NUMBER, .op = COLL_SUM };
        }
        if (!has[k]) {
            CHECK(!is_there(w.comms[0], 0, coll_run(w.comms[0], &calls[0])), "kind %d", (int)kinds[k]);
            continue;
        }
        CHECK(loop_run(&w, calls) == COLL_OK, "%s of %d ranks in turns: %s", coll_kind_name(kinds[k]), size,
              coll_error(w.comms[0]));
        for (int r = 0; r < size; r++) {
            if (kinds[k] == COLL_ALLREDUCE) CHECK(!sums_differ(y[r], size, COUNT), "allreduce in turns, rank %d of %d", r, size);
            if (kinds[k] == COLL_BROADCAST) CHECK(!differ(y[r], 0, 0, COUNT), "broadcast in turns, rank %d of %d", r, size);
            for (int from = 0; kinds[k] == COLL_ALLGATHER && from < size; from++)
                CHECK(!differ(y[r] + (size_t)from * COUNT, from, 0, COUNT), "allgather in turns, rank %d of %d", r, size);
        }
        if (kinds[k] == COLL_REDUCE) CHECK(!sums_differ(y[0], size, COUNT), "reduce in turns, %d ranks", size);
    }
    loop_free(&w);
}

static COLL__UNUSED int world_of(const char *transport)
{
    int size = RANKS;

#if !COLL__HAS_ENV
    if (!strcmp(transport, "sim")) return 0;      /* which has no other name than that in the environment     */
#endif
    setenv("COLL_TRANSPORT", transport, 1);
    const int wrong = coll_spawn(size, worker, &size, NULL);
    unsetenv("COLL_TRANSPORT");
    return wrong;
}

static COLL__UNUSED int process_of_lost(const char *address, int rank);

/* Ranks of one process of several: from `first` on, `count` of them; count 0: see process_of_lost. */
static int process_of(const char *address, int first, int count, int lanes)
{
    coll_config config = { .rank = first, .size = RANKS, .address = address };
    char rank[12];
    int size = RANKS;
    coll_comm *comm;

    if (count == 0) return process_of_lost(address, first);
    if (count > 1) {                              /* coll_spawn reads the environment                         */
        snprintf(rank, sizeof rank, "%d", first);
        setenv("COLL_RANK", rank, 1);
        setenv("COLL_SIZE", "3", 1);
        setenv("COLL_ADDR", address, 1);
        return coll_spawn(count, worker, &size, NULL);
    }
    config.tcp.lanes = lanes;
    config.tcp.share_memory = lanes > 1 ? COLL_OFF : COLL_DEFAULT;
    if (coll_init(&comm, &config)) return fprintf(stderr, "%s\n", coll_error(NULL)), 16;
    const int wrong = worker(comm, &size);
    coll_free(comm);
    return wrong;
}

/* A port at which no process listens now. */
static COLL__UNUSED int free_port(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || getsockname(fd, (struct sockaddr *)&at, &length)) perror("port");
    close(fd);
    return ntohs(at.sin_port);
}

/* Processes that meet by a file, or at a port; with `together` ranks in the first of them, 0: one of them is lost. */
static COLL__UNUSED int processes(int together, int lanes)
{
    char folder[] = "/tmp/coll-switches-XXXXXX", file[64], address[80];
    pid_t pids[RANKS];
    int count = 0, wrong = 0, status;

    if (!mkdtemp(folder)) return 128;
    snprintf(file, sizeof file, "%s/where", folder);
#if !COLL__HAS_NETWORKS
    snprintf(address, sizeof address, "127.0.0.1:%d", free_port());
#else
    snprintf(address, sizeof address, "file:%s", file);
#endif
    for (int rank = 0; rank < RANKS; rank += rank == 0 && together > 1 ? together : 1) {
        const pid_t pid = fork();
        if (pid == 0) _Exit(process_of(address, rank, rank == 0 || together == 0 ? together : 1, lanes) & 255);
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

#if COLL__HAS_THREADS
    CHECK(!world_of("threads"), "three threads");
    count++;
#endif
#if COLL__HAS_SIM
    CHECK(!world_of("sim"), "three simulated ranks");
    count++;
#endif
#if COLL__HAS_TCP
    CHECK(!processes(1, 1), "three processes");
    count++;
#if !COLL__HAS_SHRINK
    CHECK(!processes(0, 1), "coll_shrink after a loss");
#endif
#if COLL__IS_WHOLE
    CHECK(!processes(1, 3), "three processes with three lanes");
    count++;
#endif
#endif
#if COLL__HAS_HYBRID && COLL__HAS_ENV                  /* coll_spawn reads the environment    */
    CHECK(!processes(2, 1), "a process of two ranks and one of one");
    count++;
#endif
    return count;
}

/* ---- >>single rank, and refusals ---- */

/* A call that is not there is refused, with the name of its switch. */
static bool is_refused(coll_comm *comm, int has, coll_status status, const char *name)
{
    if (has) return false;
    CHECK(status == COLL_ERR_UNSUPPORTED && says(coll_error(comm), name), "%s: %d, %s", name, (int)status, coll_error(comm));
    return true;
}

/* Lists, blocks of different lengths, a named algorithm, groups by agreement, and surviving ranks. */
static void forms(coll_comm *comm, number *x)
{
    const coll_list_item buffer = { .send = COLL_IN_PLACE, .recv = x, .count = 1, .type = NUMBER };
    const size_t count = 1;
    const int self = 0;
    coll_call named = { .kind = COLL_ALLREDUCE, .send = x, .recv = x, .count = 1, .type = NUMBER, .op = COLL_SUM,
                        .algorithm = "direct" };
    coll_comm *other = NULL;

    const coll_status list = coll_allreduce_list(comm, &buffer, 1, COLL_SUM);
    if (!is_refused(comm, COLL__IS_WHOLE, list, COLL__PROFILE)) CHECK(list == COLL_OK, "a list: %s", coll_error(comm));
    const coll_call strided = { .kind = COLL_ALLGATHER, .send = COLL_IN_PLACE, .recv = x, .count = 1, .type = NUMBER, .row = 1,
                                .recv_stride = 9 };
    const coll_status rows = coll_run(comm, &strided);
    if (!is_refused(comm, COLL__IS_WHOLE, rows, COLL__PROFILE)) CHECK(rows == COLL_OK, "rows: %s", coll_error(comm));
    const coll_status gathered = coll_allgatherv(comm, COLL_IN_PLACE, 1, x, &count, NULL, NUMBER);
    if (!is_refused(comm, COLL__HAS_COUNTS, gathered, "COLL_NO_COUNTS"))
        CHECK(gathered == COLL_OK, "allgatherv: %s", coll_error(comm));
    const coll_status by_name = coll_run(comm, &named);
    if (!is_refused(comm, COLL__HAS_CHOICE, by_name, "COLL_NO_CHOICE"))
        CHECK(by_name == COLL_OK, "by name: %s", coll_error(comm));
#if COLL__TYPES_THERE & COLL__TYPED_f32
    named.algorithm = NULL, named.scale = 2, *x = 3;
    const coll_status scaled = coll_run(comm, &named);
    if (!is_refused(comm, COLL__HAS_SCALE, scaled, COLL__PROFILE))
        CHECK(scaled == COLL_OK && *x == 6, "a scale: %s", coll_error(comm));
    named.scale = 1;
    CHECK(coll_run(comm, &named) == COLL_OK, "a scale of 1: %s", coll_error(comm));
#endif
    const coll_status made = coll_create(comm, &self, 1, 7, &other);
    if (!is_refused(comm, COLL__HAS_MESSAGES, made, COLL__PROFILE)) CHECK(made == COLL_OK, "create: %s", coll_error(comm));
    coll_free(other);
    CHECK(coll_split(comm, 0, 0, &other) == COLL_OK, "split: %s", coll_error(comm));
    coll_free(other);
#if !COLL__HAS_SHRINK
    const int has_shrink = 0;
#else
    const int has_shrink = 1;
#endif
    const coll_status shrunk = coll_shrink(comm, &other);
    if (!is_refused(comm, has_shrink, shrunk, "COLL_NO_SHRINK"))
        CHECK(shrunk == COLL_ERR_ARGUMENT, "shrink: %d, %s", (int)shrunk, coll_error(comm));
}

/* A single rank is there in every program. */
static void alone(void)
{
    const coll_config config = { .size = 1, .log_level = COLL_LOG_NONE };
    number x = 3, y = 0;
    int size = 1;
    coll_comm *comm;

    CHECK(coll_init(&comm, &config) == COLL_OK, "alone: %s", coll_error(NULL));
    if (!comm) return;
    CHECK(!worker(comm, &size), "alone: %s", coll_error(comm));
    const coll_status sent = coll_sendrecv(comm, &x, 1, 0, &y, 1, 0, NUMBER, 4);
    if (is_refused(comm, COLL__HAS_MESSAGES, sent, COLL__PROFILE)) y = 3;
    else CHECK(sent == COLL_OK && y == 3, "to itself: %s", coll_error(comm));
    forms(comm, &x);
    coll_free(comm);
}

/* ranks 0: one process, by coll_init.  Otherwise so many threads. */
static COLL__UNUSED void refused(const char *what, const coll_config *config, int ranks, const char *words)
{
    coll_comm *comms[RANKS] = { NULL };
    const coll_status status = ranks == 0 ? coll_init(comms, config) : coll_init_threads(ranks, comms, config);

    CHECK(status == COLL_ERR_UNSUPPORTED && says(coll_error(NULL), words), "%s: %d, \"%s\" without \"%s\"", what, (int)status,
          coll_error(NULL), words);
    for (int i = 0; i < RANKS; i++) coll_free(comms[i]);
}

static COLL__UNUSED void absent(const char *transport, const char *words)
{
    const coll_config plain = { .log_level = COLL_LOG_NONE }, here = { .transport = transport, .log_level = COLL_LOG_NONE };
    const coll_config elsewhere = { .rank = 1, .size = RANKS, .address = "127.0.0.1:1", .log_level = COLL_LOG_NONE };

    refused(transport, &here, RANKS, words);
    if (!strcmp(transport, "tcp")) refused("an address", &elsewhere, 0, words);
#if COLL__HAS_ENV
    setenv("COLL_TRANSPORT", transport, 1);
    refused("COLL_TRANSPORT", &plain, RANKS, words);
    unsetenv("COLL_TRANSPORT");
#endif
    (void)plain;
}

/* With a key, or an option that requires one, a rank is refused. */
static COLL__UNUSED void keys(void)
{
    const coll_config plain = { .size = RANKS, .address = "127.0.0.1:0", .log_level = COLL_LOG_NONE };
    coll_config asked = plain;

    asked.tcp.key = "a key of more than sixteen bytes";
    refused("a key", &asked, 0, "this program was compiled with COLL_NO_SECURITY");
    asked = plain;
    asked.tcp.security = "check";
    refused("sums", &asked, 0, "this program was compiled with COLL_NO_SECURITY");
#if COLL__HAS_ENV
    static const char *const names[] = { "COLL_KEY", "COLL_KEY_FILE" };
    for (int i = 0; i < 2; i++) {
        setenv(names[i], "/tmp/no-such-file-of-a-key", 1);
        refused(names[i], &plain, 0, "this program was compiled with COLL_NO_SECURITY");
        unsetenv(names[i]);
    }
#endif
}

/* One process of three dies; the others must not continue without it. */
static COLL__UNUSED int process_of_lost(const char *address, int rank)
{
    const coll_config config = { .rank = rank, .size = RANKS, .address = address, .log_level = COLL_LOG_NONE };
    coll_comm *comm, *left = NULL;

    if (coll_init(&comm, &config) != COLL_OK) return fprintf(stderr, "%s\n", coll_error(NULL)), 16;
    if (rank == RANKS - 1) return 0;
    if (coll_barrier(comm) == COLL_OK) return 18;
    const coll_status status = coll_shrink(comm, &left);
    const bool is_known = status == COLL_ERR_UNSUPPORTED && says(coll_error(comm), "was compiled with COLL_NO_SHRINK");
    coll_free(left);
    coll_free(comm);
    return is_known ? 0 : (fprintf(stderr, "coll_shrink: %d\n", (int)status), 19);
}

static void left_out(void)
{
    const coll_config plain = { .log_level = COLL_LOG_NONE };
    coll_config asked = plain;

    if (!COLL__HAS_SIM) absent("sim", "(COLL_ONLY_TRANSPORTS)");
    if (!COLL__HAS_TCP) absent("tcp", "(COLL_ONLY_TRANSPORTS)");
    if (!COLL__HAS_THREADS) absent("threads", "(COLL_ONLY_TRANSPORTS)");
    if (!COLL__HAS_THREADS) refused("three ranks", &plain, RANKS, "(COLL_ONLY_TRANSPORTS)");
    asked.size = RANKS;
    if (!COLL__HAS_HYBRID) refused("two of three ranks", &asked, 2, COLL__HYBRID_WITHOUT);
    asked = plain;
#if !COLL__HAS_SHM && COLL__HAS_TCP
    asked = (coll_config){ .size = RANKS, .address = "127.0.0.1:0", .log_level = COLL_LOG_NONE, .tcp = { .share_memory = 1 } };
    refused("share_memory", &asked, 0, "this program was compiled with COLL_NO_SHM");
    asked = plain;
#endif
#if !COLL__HAS_DOMAIN && COLL__HAS_TCP
    asked = (coll_config){ .size = RANKS, .address = "127.0.0.1:0", .log_level = COLL_LOG_NONE,
                           .tcp = { .shm_collectives = COLL_ON } };
    refused("shm_collectives", &asked, 0, COLL__HYBRID_WITHOUT);
#endif
#if !COLL__IS_WHOLE && COLL__HAS_TCP
    asked = (coll_config){ .size = RANKS, .address = "127.0.0.1:0", .log_level = COLL_LOG_NONE, .tcp = { .lanes = 2 } };
    refused("lanes", &asked, 0, "this program was compiled with " COLL__PROFILE);
    asked = plain;
#endif
#if !COLL__HAS_SECURITY && COLL__HAS_TCP
    keys();
#endif
#if !COLL__HAS_NETWORKS && COLL__HAS_TCP
    asked = (coll_config){ .size = RANKS, .address = "127.0.0.1:0", .log_level = COLL_LOG_NONE, .tcp = { .network = "lo" } };
    refused("network", &asked, 0, "this program was compiled with COLL_NO_NETWORKS");
    asked.tcp = (coll_tcp){ .ports = "5000-5001" };
    refused("ports", &asked, 0, "this program was compiled with COLL_NO_NETWORKS");
    asked = (coll_config){ .size = RANKS, .address = "file:/tmp/no-such-file", .log_level = COLL_LOG_NONE };
    refused("a file", &asked, 0, "this program was compiled with COLL_NO_NETWORKS");
    asked = plain;
#endif
#if !COLL__HAS_NETWORKS && COLL__HAS_ENV
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    refused("OMPI_COMM_WORLD_SIZE", &plain, 0, "this program was compiled with COLL_NO_NETWORKS");
    unsetenv("OMPI_COMM_WORLD_SIZE");
#endif
    asked.dump = "/tmp";
    if (!COLL__HAS_RECORDER) refused("dump", &asked, 1, "this program was compiled with " COLL__PROFILE);
    asked = plain;
    asked.background = COLL_ON;
    if (!COLL__HAS_BACKGROUND) refused("background", &asked, 1, "this program was compiled with " COLL__PROFILE);
#if !COLL__HAS_CHOICE && COLL__HAS_ENV
    setenv("COLL_ALGORITHM", "allreduce=ring", 1);
    refused("COLL_ALGORITHM", &asked, 1, "this program was compiled with COLL_NO_CHOICE");
    unsetenv("COLL_ALGORITHM");
#endif
#if !COLL__HAS_CHOICE
    asked = (coll_config){ .tuning_file = "/tmp/no-such-file", .log_level = COLL_LOG_NONE };
    refused("tuning_file", &asked, 1, "this program was compiled with COLL_NO_CHOICE");
#endif
    (void)asked;
}

typedef struct report { coll_comm *comm; char text[4000]; int lines, refused; } report;

/* A line has no newline, and a call on the communicator is refused. */
static void add_line(void *context, const char *line)
{
    report *r = context;

    r->lines++;
    r->refused += coll_barrier(r->comm) == COLL_ERR_ARGUMENT && !strchr(line, '\n');
    if (strlen(r->text) + strlen(line) < sizeof r->text) strcat(r->text, line);
}

static void dumped(coll_comm *comm)
{
    report r = { comm, "", 0, 0 };

    coll_dump(comm, add_line, &r);
    CHECK(r.lines > 0 && r.refused == r.lines, "coll_dump: %d of %d", r.refused, r.lines);
    CHECK(!COLL__HAS_OS || strstr(r.text, "rank 0 of 1"), "coll_dump: %s", r.text);
    CHECK(COLL__HAS_RECORDER != !!strstr(r.text, COLL__HAS_OS ? "this program was compiled with " COLL__PROFILE : COLL__PROFILE),
          "coll_dump: %s", r.text);
}

/* A communicator in an arena. */
static void in_arena(void)
{
    static unsigned char memory[1 << 18];
    const coll_config config = { .size = 1, .log_level = COLL_LOG_NONE, .allocator = coll_arena_begin(memory, sizeof memory) };
    coll_comm *comm;

    CHECK(coll_init(&comm, &config) == COLL_OK, "a communicator in an arena: %s", coll_error(NULL));
    CHECK(coll_arena_used(config.allocator) > 0, "it is not in the arena");
    coll_free(comm);
    CHECK(coll_arena_end(config.allocator) == COLL_OK, "it leaves memory behind");
}

/* The public functions of a part are there without it. */
static void functions(void)
{
    const coll_config config = { .size = 1, .log_level = COLL_LOG_NONE };
    const int self = 0;
    coll_comm *comm;

    if (coll_init(&comm, &config) != COLL_OK) {
        CHECK(false, "no communicator");
        return;
    }
    (void)is_there(comm, 1, coll_barrier(comm));
    dumped(comm);
    const int fd = coll_fd(comm);
    CHECK(COLL__HAS_BACKGROUND ? fd >= -1 : fd == -1 && says(coll_error(comm), COLL__PROFILE), "coll_fd: %d, %s", fd,
          coll_error(comm));
    const coll_status hybrid = coll_neighbors(comm, &self, 1, &self, 1);
    CHECK(hybrid == (COLL__HAS_NEIGHBOR ? COLL_OK : COLL_ERR_UNSUPPORTED), "coll_neighbors: %d, %s", (int)hybrid,
          coll_error(comm));
    CHECK(coll_sim_time(comm) == 0, "a virtual clock that is not there");
    coll_free(comm);
}

int main(void)
{
    const int count = worlds();

    for (int size = 1; size <= LOOP_MOST; size++) loops(size);
    alone();
    left_out();
    functions();
    in_arena();
    if (COLL__HAS_MESSAGES) types();              /* in turns                                                 */
    if (failures == 0) printf("%d worlds\n", count);
    return failures > 0;
}
