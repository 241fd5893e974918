/* coll_topology.h - groups ranks by host, or by site.  Input: host numbers; output: ranks, host by host.  Below, "host" also
 * means "site".
 *
 *     rank            0   1   2   3   4   5
 *     host number     7   3   7   3   9   7       any numbers, equal on the same host
 *
 *     host            0           1       2       numbered by first ranks
 *     ranks           0   2   5   1   3   4
 *     first           0           3       5   6   in this list
 *
 * Two sorts: by host number, to find the first rank of each host, and by that rank.  O(p log p) for p ranks. */
#ifndef COLL_TOPOLOGY_H
#define COLL_TOPOLOGY_H

#include "../base/coll_text.h"

/* Place k of host h is ranks[first[h] + k]. */
typedef struct coll__topology {
    bool is_by_site;
    int  count, least, most;                      /* hosts; ranks of the smallest and of the largest host     */
    int  host, place;                             /* of this rank                                             */
    bool is_ordered;                              /* ranks 0, 1, ... are already grouped by host              */
    int *first, *ranks;                           /* first[count] is the number of ranks                      */
} coll__topology;

static inline int coll__host_size(const coll__topology *t, int host) { return t->first[host + 1] - t->first[host]; }

/* The rank at place k of a host; COLL_RANK_NONE: none. */
static inline int coll__rank_at(const coll__topology *t, int host, int place)
{
    return place < coll__host_size(t, host) ? t->ranks[t->first[host] + place] : COLL_RANK_NONE;
}

/* The place and host of any rank. */
static int coll__place_of_rank(const coll__topology *t, int rank, int *host)
{
    int at = 0;

    COLL__ASSERT(rank >= 0 && rank < t->first[t->count], "rank %d of %d is looked up on %d hosts", rank, t->first[t->count],
                 t->count);
    while (t->ranks[at] != rank) at++;
    for (*host = 0; t->first[*host + 1] <= at; ++*host) continue;
    return at - t->first[*host];
}

typedef struct coll__resident { int host, rank; } coll__resident;

static int coll__compare_residents(const void *a, const void *b)
{
    const coll__resident *x = (const coll__resident *)a, *y = (const coll__resident *)b;
    return x->host != y->host ? (x->host > y->host) - (x->host < y->host) : (x->rank > y->rank) - (x->rank < y->rank);
}

/* hosts[i]: host number of rank i of `size`; `rank`: this one.  Free with coll__give; NULL: no memory. */
static coll__topology *coll__topology_of(const coll_allocator *memory, const int *hosts, int size, int rank)
{
    const size_t n = (size_t)size;
    coll__topology *t = (coll__topology *)coll__take(memory, sizeof *t + (2 * n + 1) * sizeof *t->first);
    coll__resident *all = (coll__resident *)coll__take(memory, n * sizeof *all);

    if (!t || !all) {
        coll__give(t);
        coll__give(all);
        return NULL;
    }
    int *const first = (int *)(void *)(t + 1), number = 0, leader = 0;
    *t = (coll__topology){ .least = size, .is_ordered = true, .first = first, .ranks = first + n + 1 };
    for (int i = 0; i < size; i++) all[i] = (coll__resident){ hosts[i], i };
    qsort(all, n, sizeof *all, coll__compare_residents);
    for (int i = 0; i < size; i++) {              /* call each host by its first rank                         */
        if (i == 0 || all[i].host != number) number = all[i].host, leader = all[i].rank;
        all[i].host = leader;
    }
    qsort(all, n, sizeof *all, coll__compare_residents);
    for (int i = 0; i < size; i++) {
        if (i == 0 || all[i].host != all[i - 1].host) first[t->count++] = i;
        if (all[i].rank == rank) t->host = t->count - 1, t->place = i - first[t->host];
        t->is_ordered = t->is_ordered && all[i].rank == i;
        t->ranks[i] = all[i].rank;
    }
    first[t->count] = size;
    for (int h = 0; h < t->count; h++) {
        if (coll__host_size(t, h) < t->least) t->least = coll__host_size(t, h);
        if (coll__host_size(t, h) > t->most) t->most = coll__host_size(t, h);
    }
    coll__give(all);
    COLL__ASSERT(first[t->count] == size && coll__rank_at(t, t->host, t->place) == rank,
                 "%d ranks of %d have a host of %d, rank %d is at %d.%d", first[t->count], size, t->count, rank, t->host,
                 t->place);
    return t;
}

#endif /* COLL_TOPOLOGY_H */
