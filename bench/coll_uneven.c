/* coll_uneven.c - alltoallv, gatherv and scatterv of short and uneven blocks: straight, in packets, and as the library chooses.
 *
 *     COLL_TRANSPORT=sim coll_uneven -n 32                      32 simulated ranks, in the simulator's clock
 *     COLL_TRANSPORT=sim COLL_SIM="latency=12us overhead=12us" coll_uneven -n 32
 *     coll-run -n 32 --no-prefix coll_uneven -r 15              32 processes over TCP; the median of 15 turns, with the quartiles
 *     coll_uneven -n 32 -b 64,4K                                threads; straight and in packets, by messages
 *
 * The ways take turns, so that other load of the machine affects all of them equally.  Blocks are
 *
 *     equal     all of B bytes              uneven    of 0 to 2 B bytes, another length for each pair of ranks
 *     huge      of B bytes, and one of 1 MiB, from rank 1 to rank 0; of scatterv from rank 0 to rank 1
 *
 * Every way is checked once, byte for byte, before it is timed.  Times are microseconds for one call, of the slowest rank. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAYS = 3, TURNS_MOST = 201, SIZES_MOST = 16, HUGE_BYTES = 1 << 20 };
enum { EQUAL, UNEVEN, HUGE_ONE, SHAPES };

static const char *const shape_names[SHAPES] = { "equal", "uneven", "huge" };

static const struct { coll_kind kind; const char *packets; } kinds[] = {
    { COLL_ALLTOALLV, "circulant" }, { COLL_GATHERV, "tree" }, { COLL_SCATTERV, "tree" },
};

static struct options { int ranks, turns, calls, sizes; size_t size[SIZES_MOST]; } options = { 0, 9, 0, 0, { 0 } };

/* ---- >>calls ---- */

typedef struct test {
    coll_comm *comm;
    coll_call  call;
    int        rank, size, shape;
    size_t     each;
    size_t    *send_counts, *recv_counts;
    unsigned char *send, *recv;
    size_t     sent, received;                    /* bytes                                                    */
} test;

static size_t length_of(const test *t, int from, int to)
{
    const int huge_from = t->call.kind == COLL_SCATTERV ? 0 : 1;

    if (t->shape == HUGE_ONE && from == huge_from && to == 1 - huge_from) return HUGE_BYTES;
    if (t->shape != UNEVEN) return t->each;
    return (size_t)((unsigned)(from * 7919 + to * 104729) * 2654435761u >> 8) % (2 * t->each + 1);
}

static unsigned char byte_of(int from, int to, size_t at) { return (unsigned char)(from * 131 + to * 17 + (int)(at % 251)); }

static bool is_between(const test *t, int from, int to)
{
    return t->call.kind == COLL_ALLTOALLV || (t->call.kind == COLL_GATHERV ? to == 0 : from == 0);
}

static void *need(size_t bytes)
{
    void *at = malloc(bytes ? bytes : 1);
    if (!at) exit(2);
    return at;
}

static void make(test *t)
{
    size_t at = 0;

    t->send_counts = (size_t *)need((size_t)t->size * 2 * sizeof *t->send_counts);
    t->recv_counts = t->send_counts + t->size;
    t->sent = t->received = 0;
    for (int i = 0; i < t->size; i++) {
        t->sent += t->send_counts[i] = is_between(t, t->rank, i) ? length_of(t, t->rank, i) : 0;
        t->received += t->recv_counts[i] = is_between(t, i, t->rank) ? length_of(t, i, t->rank) : 0;
    }
    t->send = (unsigned char *)need(t->sent), t->recv = (unsigned char *)need(t->received);
    for (int i = 0; i < t->size; i++)
        for (size_t k = 0; k < t->send_counts[i]; k++) t->send[at++] = byte_of(t->rank, i, k);
    t->call.send = t->send, t->call.recv = t->recv, t->call.type = COLL_U8;
    t->call.send_counts = t->send_counts, t->call.recv_counts = t->recv_counts;
    t->call.count = t->call.kind == COLL_GATHERV ? t->send_counts[0] : 0;
    t->call.recv_count = t->call.kind == COLL_SCATTERV ? t->recv_counts[0] : 0;
}

static void drop(test *t) { free(t->send_counts), free(t->send), free(t->recv); }

static void run(test *t)
{
    if (coll_run(t->comm, &t->call) == COLL_OK) return;
    fprintf(stderr, "coll_uneven: %s\n", coll_error(t->comm));
    exit(2);
}

/* Bytes that are wrong, on all ranks. */
static uint64_t wrong_of(test *t)
{
    uint64_t wrong = 0;
    size_t at = 0;

    if (t->received) memset(t->recv, 0xee, t->received);
    run(t);
    for (int i = 0; i < t->size; i++)
        for (size_t k = 0; k < t->recv_counts[i]; k++) wrong += t->recv[at++] != byte_of(i, t->rank, k);
    if (coll_allreduce(t->comm, COLL_IN_PLACE, &wrong, 1, COLL_U64, COLL_SUM)) exit(2);
    return wrong;
}

/* ---- >>times ---- */

/* In the simulator's world its clock, elsewhere that of the machine. */
static double now_of(const test *t)
{
    struct timespec now;

    if (coll_sim_time(t->comm) > 0) return coll_sim_time(t->comm);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds for one of so many calls, of the slowest rank. */
static double time_of(test *t, int calls)
{
    if (coll_barrier(t->comm)) exit(2);
    const double began = now_of(t);
    for (int i = 0; i < calls; i++) run(t);
    double seconds = (now_of(t) - began) / calls;
    if (coll_allreduce(t->comm, COLL_IN_PLACE, &seconds, 1, COLL_F64, COLL_MAX)) exit(2);
    return seconds;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One line of the table: the three ways in turns, and how many times as fast as straight the other two are. */
static bool compare(test *t, const char *packets)
{
    const char *const names[WAYS] = { "direct", packets, NULL };
    static double seconds[WAYS][TURNS_MOST];
    char why[512] = "";
    uint64_t wrong = 0;
    double longest = 0;

    for (int w = 0; w < WAYS; w++) {
        t->call.algorithm = names[w];
        wrong += wrong_of(t);
        const double once = time_of(t, 1);
        longest = once > longest ? once : longest;
    }
    const int calls = options.calls > 0 ? options.calls : longest < 5e-3 ? (int)(10e-3 / (longest + 1e-6)) + 1 : 2;
    for (int turn = 0; turn < options.turns; turn++)
        for (int w = 0; w < WAYS; w++) {
            t->call.algorithm = names[w];
            seconds[w][turn] = time_of(t, calls);
        }
    t->call.algorithm = NULL;
    (void)coll_explain(t->comm, &t->call, why, sizeof why);
    const char *chosen = strstr(why, "): ");
    if (t->rank != 0) return wrong == 0;
    for (int w = 0; w < WAYS; w++) qsort(seconds[w], (size_t)options.turns, sizeof **seconds, by_value);
    const int middle = options.turns / 2, quarter = options.turns / 4, most = options.turns - 1 - quarter;
    printf("%-10s %-7s %7zu", coll_kind_name(t->call.kind), shape_names[t->shape], t->each);
    for (int w = 0; w < WAYS; w++)
        printf(" %9.1f (%.1f-%.1f)", seconds[w][middle] * 1e6, seconds[w][quarter] * 1e6, seconds[w][most] * 1e6);
    printf("  %5.2f %5.2f  %s%.*s\n", seconds[0][middle] / seconds[1][middle], seconds[0][middle] / seconds[2][middle],
           wrong ? "WRONG DATA  " : "", (int)strcspn(chosen ? chosen + 3 : "", ","), chosen ? chosen + 3 : "");
    fflush(stdout);
    return wrong == 0;
}

/* ---- >>the run ---- */

static int worker(coll_comm *comm, void *unused)
{
    bool is_right = true;

    (void)unused;
    if (coll_rank(comm) == 0)
        printf("%d ranks, median (quartiles) of %d turns, us\n%-10s %-7s %7s %s\n", coll_size(comm), options.turns, "call",
               "blocks", "B", "  direct, in packets, chosen;  direct / packets, direct / chosen;  what was chosen");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int i = 0; i < options.sizes; i++) {
                test t = { .comm = comm, .call = { .kind = kinds[k].kind }, .rank = coll_rank(comm), .size = coll_size(comm),
                           .shape = shape, .each = options.size[i] };
                make(&t);
                is_right = compare(&t, kinds[k].packets) && is_right;
                drop(&t);
            }
    return !is_right;
}

static size_t size_of(char **text)
{
    const size_t number = strtoul(*text, text, 10);
    const size_t unit = **text == 'K' ? 1 << 10 : **text == 'M' ? 1 << 20 : 1;
    *text += unit > 1;
    *text += **text == ',';
    return number * unit;
}

int main(int count, char **words)
{
    coll_comm *comm;
    char usual[] = "8,64,256,1K,4K,64K", *sizes = usual;

    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(words[i], "-n")) options.ranks = atoi(words[i + 1]);
        else if (!strcmp(words[i], "-r")) options.turns = atoi(words[i + 1]);
        else if (!strcmp(words[i], "-i")) options.calls = atoi(words[i + 1]);
        else if (!strcmp(words[i], "-b")) sizes = words[i + 1];
        else count = 0;
    }
    if (count % 2 == 0 || options.turns < 1 || options.turns > TURNS_MOST || options.ranks < 0) {
        fprintf(stderr, "usage: coll_uneven [-n RANKS] [-b SIZE,SIZE...] [-r TURNS, 1 to %d] [-i CALLS]\n", TURNS_MOST);
        return 2;
    }
    while (*sizes && options.sizes < SIZES_MOST) options.size[options.sizes++] = size_of(&sizes);
    if (options.ranks > 0) return coll_spawn(options.ranks, worker, NULL, NULL);
    if (coll_init(&comm, NULL)) return fprintf(stderr, "%s\n", coll_error(NULL)), 2;
    const int wrong = worker(comm, NULL);
    coll_free(comm);
    return wrong;
}
