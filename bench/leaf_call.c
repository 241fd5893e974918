/* leaf_call.c - an allreduce over leaves beside the plain one: what it costs that the sum does not depend on the number of ranks.
 *
 *     leaf_call -n 5                          five threads; 24 leaves in runs that are as equal as possible
 *     leaf_call -n 5 -l 1000 -b 64K,16M       another number of leaves, other vectors
 *     leaf_call -n 5 -k 200                   lists of 200 buffers of 64 to 4,096 floats
 *     coll-run -n 5 --no-prefix leaf_call     processes over TCP; bench/leaf_call.py: hosts with links of 1 Gbit/s
 *
 * The ways take turns, so that other load of the machine affects all of them equally:
 *
 *     plain      coll_allreduce of f32
 *     ordered    the same with COLL_DETERMINISTIC
 *     single     one leaf a rank: the tree over the ranks, and the exchange of runs before it
 *     split      the run of each rank has the nodes that a run has; adding leaves up (leaf_sum.c) is not part of the time
 *
 * Printed are the median of plain, and the medians and quartiles of the ratios within a turn: time / time, of the slowest rank,
 * so below 1 is faster; and the bytes that all ranks send, divided by those of ordered.  `single` must have the bits of
 * `ordered`, and `split` those of a sum of whole numbers. */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS_MOST = 201, SIZES_MOST = 16, BUFFERS_MOST = 10000 };
enum { PLAIN, ORDERED, SINGLE, SPLIT, WAYS };

static struct options { int ranks, turns, leaves, buffers, sizes; size_t size[SIZES_MOST]; } options = { 0, 15, 24, 0, 0, { 0 } };

typedef struct test {
    coll_comm *comm;
    coll_call  calls[WAYS];
    float     *x, *nodes, *results[WAYS];
    coll_list_item *lists[WAYS];                  /* -k                                                       */
    size_t     count;
} test;

static void *need(size_t bytes)
{
    void *at = malloc(bytes ? bytes : 1);
    if (!at) exit(2);
    return at;
}

static void run(const test *t, int way)
{
    if (coll_run(t->comm, &t->calls[way]) == COLL_OK) return;
    fprintf(stderr, "leaf_call: %s\n", coll_error(t->comm));
    exit(2);
}

/* All elements of a leaf are equal, and so are those of a node. */
static float leaf_of(int leaf) { return (float)(leaf % 97 + 1); }

/* Leaves of the first node of the run at ... end - 1, and how many nodes it has. */
static int length_of(int at, int end)
{
    int length = 1;
    while (at % (2 * length) == 0 && at + 2 * length <= end) length *= 2;
    return length;
}

static int nodes_of(int at, int end)
{
    int nodes = 0;
    for (; at < end; at += length_of(at, end)) nodes++;
    return nodes;
}

/* Floats of buffer i of a list. */
static size_t length_in(int i) { return (size_t)64 << i % 7; }

/* With -k: cut a call into the buffers of a list. */
static void cut(coll_call *call, coll_list_item **list, size_t nodes)
{
    *list = (coll_list_item *)need((size_t)options.buffers * sizeof **list);
    for (size_t i = 0, at = 0; i < (size_t)options.buffers; at += length_in((int)i++))
        (*list)[i] = (coll_list_item){ (const float *)call->send + at * nodes, (float *)call->recv + at, length_in((int)i),
                                       COLL_F32 };
    call->kind = COLL_ALLREDUCE_LIST, call->type = 0;
    call->list = *list, call->list_count = options.buffers;
    call->send = call->recv = NULL, call->count = 0;
}

/* The input of this rank and the nodes of its run. */
static void make(test *t, coll_comm *comm, size_t bytes)
{
    const int rank = coll_rank(comm), size = coll_size(comm);
    const int first = (int)((int64_t)options.leaves * rank / size), end = (int)((int64_t)options.leaves * (rank + 1) / size);
    const size_t count = bytes / sizeof(float);
    coll_call call = { .kind = COLL_ALLREDUCE, .count = count, .type = COLL_F32 };

    t->comm = comm, t->count = count;
    t->x = (float *)need(bytes), t->nodes = (float *)need((size_t)nodes_of(first, end) * bytes);
    for (size_t i = 0; i < count; i++) t->x[i] = (float)((i * 7919 + (size_t)rank * 104729) % 4093) * 0.37f;
    float *node = t->nodes;
    size_t each = count;                          /* floats of a node                                         */
    for (size_t k = 0, from = 0; from < count; k++, from += each) {
        if (options.buffers) each = length_in((int)k);
        for (int at = first, length; at < end; at += length, node += each) {
            float value = 0;
            length = length_of(at, end);
            for (int i = at; i < at + length; i++) value += leaf_of(i);
            for (size_t i = 0; i < each; i++) node[i] = value;
        }
    }
    for (int way = 0; way < WAYS; way++) {
        t->results[way] = (float *)need(bytes);
        call.send = way == SPLIT ? t->nodes : t->x;
        call.recv = t->results[way];
        call.flags = way == ORDERED ? COLL_DETERMINISTIC : 0;
        call.first_leaf = way == SINGLE ? rank : way == SPLIT ? first : 0;
        call.leaves = way == SINGLE ? 1 : way != SPLIT ? 0 : end > first ? end - first : -1;
        t->calls[way] = call;
        t->lists[way] = NULL;
        if (options.buffers) cut(&t->calls[way], &t->lists[way], way == SPLIT ? (size_t)nodes_of(first, end) : 1);
    }
}

static void drop(test *t)
{
    for (int way = 0; way < WAYS; way++) free(t->results[way]), free(t->lists[way]);
    free(t->x), free(t->nodes);
}

static bool is_right(const test *t)
{
    float sum = 0;

    for (int i = 0; i < options.leaves; i++) sum += leaf_of(i);
    for (size_t i = 0; i < t->count; i++) if (t->results[SPLIT][i] != sum) return false;
    return !memcmp(t->results[SINGLE], t->results[ORDERED], t->count * sizeof(float));
}

/* In the simulator's world its clock, elsewhere that of the machine. */
static double now_of(const test *t)
{
    struct timespec now;

    if (coll_sim_time(t->comm) > 0) return coll_sim_time(t->comm);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds for one of so many calls, of the slowest rank. */
static double time_of(const test *t, int way, int calls)
{
    if (coll_barrier(t->comm)) exit(2);
    const double began = now_of(t);
    for (int i = 0; i < calls; i++) run(t, way);
    double seconds = (now_of(t) - began) / calls;
    if (coll_allreduce(t->comm, COLL_IN_PLACE, &seconds, 1, COLL_F64, COLL_MAX)) exit(2);
    return seconds;
}

/* Bytes that all ranks send in a call. */
static double bytes_of(const test *t, int way)
{
    uint64_t before, after, received;

    coll_traffic(t->comm, &before, &received);
    run(t, way);
    coll_traffic(t->comm, &after, &received);
    double sent = (double)(after - before);
    if (coll_allreduce(t->comm, COLL_IN_PLACE, &sent, 1, COLL_F64, COLL_SUM)) exit(2);
    return sent;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_ratio(double seconds[WAYS][TURNS_MOST], int way, int beside)
{
    double ratios[TURNS_MOST];

    for (int i = 0; i < options.turns; i++) ratios[i] = seconds[way][i] / seconds[beside][i];
    qsort(ratios, (size_t)options.turns, sizeof *ratios, by_value);
    printf("   %6.3f (%.3f-%.3f)", ratios[options.turns / 2], ratios[options.turns / 4],
           ratios[options.turns - 1 - options.turns / 4]);
}

/* One line of the table.  Returns whether the bits are right. */
static bool compare(test *t, size_t bytes)
{
    double seconds[WAYS][TURNS_MOST], longest = 0, sent[WAYS];

    for (int way = 0; way < WAYS; way++) {
        run(t, way);
        sent[way] = bytes_of(t, way);
        const double once = time_of(t, way, 1);
        longest = once > longest ? once : longest;
    }
    int wrong = !is_right(t);
    if (coll_allreduce(t->comm, COLL_IN_PLACE, &wrong, 1, COLL_I32, COLL_SUM)) exit(2);
    const int calls = longest < 5e-3 ? (int)(10e-3 / (longest + 1e-6)) + 1 : 1;
    for (int turn = 0; turn < options.turns; turn++)
        for (int k = 0; k < WAYS; k++) {
            const int next = (k + turn) % WAYS;
            seconds[next][turn] = time_of(t, next, calls);
        }
    if (coll_rank(t->comm) != 0) return wrong == 0;
    double plain[TURNS_MOST];
    memcpy(plain, seconds[PLAIN], sizeof plain);
    qsort(plain, (size_t)options.turns, sizeof *plain, by_value);
    printf("%8zu %10.1f", bytes >> 10, plain[options.turns / 2] * 1e6);
    print_ratio(seconds, ORDERED, PLAIN);
    print_ratio(seconds, SINGLE, ORDERED);
    print_ratio(seconds, SPLIT, PLAIN);
    printf("   %6.3f %6.3f%s\n", sent[ORDERED] > 0 ? sent[SINGLE] / sent[ORDERED] : 0,
           sent[ORDERED] > 0 ? sent[SPLIT] / sent[ORDERED] : 0, wrong ? "   OTHER BITS" : "");
    fflush(stdout);
    return wrong == 0;
}

static int worker(coll_comm *comm, void *unused)
{
    bool right = true;

    (void)unused;
    if (coll_rank(comm) == 0)
        printf("%d ranks, %d leaves, median (quartiles) of %d turns\n%8s %10s   %-20s   %-20s   %-20s   %s\n", coll_size(comm),
               options.leaves, options.turns, "KiB", "plain, us", "ordered / plain", "single / ordered", "split / plain",
               "bytes beside ordered: single, split");
    for (int i = 0; i < options.sizes; i++) {
        test t;
        make(&t, comm, options.size[i]);
        right = compare(&t, options.size[i]) && right;
        drop(&t);
    }
    return !right;
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
    char usual[] = "8,1K,64K,1M,16M", *sizes = usual;

    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(words[i], "-n")) options.ranks = atoi(words[i + 1]);
        else if (!strcmp(words[i], "-r")) options.turns = atoi(words[i + 1]);
        else if (!strcmp(words[i], "-l")) options.leaves = atoi(words[i + 1]);
        else if (!strcmp(words[i], "-k")) options.buffers = atoi(words[i + 1]);
        else if (!strcmp(words[i], "-b")) sizes = words[i + 1];
        else count = 0;
    }
    if (count % 2 == 0 || options.turns < 1 || options.turns > TURNS_MOST || options.ranks < 0 || options.leaves < 1
        || options.leaves > 100000 || options.buffers < 0 || options.buffers > BUFFERS_MOST) {
        fprintf(stderr, "usage: leaf_call [-n RANKS] [-l LEAVES, to 100000] [-b SIZE,SIZE... | -k BUFFERS] [-r TURNS, 1 to %d]\n",
                TURNS_MOST);
        return 2;
    }
    for (int i = 0; i < options.buffers; i++) options.size[0] += length_in(i) * sizeof(float);
    if (options.buffers) options.sizes = 1;
    while (!options.buffers && *sizes && options.sizes < SIZES_MOST) options.size[options.sizes++] = size_of(&sizes);
    if (options.ranks > 0) return coll_spawn(options.ranks, worker, NULL, NULL) != 0;
    if (coll_init(&comm, NULL)) return fprintf(stderr, "%s\n", coll_error(NULL)), 2;
    const int wrong = worker(comm, NULL);
    coll_free(comm);
    return wrong;
}
