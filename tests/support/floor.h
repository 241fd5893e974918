/* floor.h - lower bounds for the time of every algorithm, from the parameters of a link.  Include it after the implementation of
 * the library. */
#ifndef FLOOR_H
#define FLOOR_H

/* How many ranks can have data of one rank by the time t, if it has them at 0: those that it takes `hops` consecutive messages
 * to reach, and the pauses of one overhead in all of their senders may be spread over them in any way. */
static inline double reached_by(const coll__link *link, double t, double enough)
{
    double reached = 1;

    for (int hops = 1; hops * link->latency <= t && reached < enough; hops++) {
        const double left = t - hops * link->latency;
        const double pauses = left < enough * link->overhead ? (double)(long)(left / link->overhead) : enough;
        double ways = 1;
        for (int i = 1; i <= hops && ways < enough; i++) ways = ways * (pauses + i) / i;
        reached += ways;
    }
    return reached;
}

/* The least time in which all can have data of one rank, or one rank the data of all. */
static inline double floor_latency(const coll__link *link, int size)
{
    double low = 0, high = coll__circulant_rounds(size, 2) * (link->latency + link->overhead);

    if (size < 2 || link->latency <= 0) return 0;
    for (int i = 0; i < 40; i++) {
        const double middle = (low + high) / 2;
        if (reached_by(link, middle, size) < size) low = middle;
        else high = middle;
    }
    return low;
}

/* The lower bounds: the latency of reaching all ranks, the bytes on the busiest rank or its share of the reduction, whichever is
 * longest; a vector in slices can be folded while it is in flight. */
static inline double floor_of(const coll__query *query)
{
    const double share = query->size > 1 ? query->bytes * (query->size - 1) / query->size : 0;
    double bytes = share, reduced = 0;

    if (query->size < 2) return 0;
    switch ((int)query->kind) {
    case COLL_BARRIER:         bytes = 0; break;
    case COLL_BROADCAST:       bytes = query->bytes; break;
    case COLL_REDUCE:
    case COLL_SCAN:            bytes = query->bytes, reduced = share; break;
    case COLL_EXSCAN:          bytes = query->bytes; break;   /* two ranks: nothing to fold */
    case COLL_ALLREDUCE:       bytes = 2 * share, reduced = share; break;
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV: reduced = share; break;
    case COLL_NEIGHBOR_ALLGATHER:
    case COLL_NEIGHBOR_ALLGATHERV:
    case COLL_NEIGHBOR_ALLTOALL:
    case COLL_NEIGHBOR_ALLTOALLV:
    case COLL_NEIGHBOR_ALLTOALLW: return query->link->latency;
    default: break;
    }
    return coll__longer(floor_latency(query->link, query->size),
                        coll__longer(bytes * query->link->per_byte, reduced * query->link->per_byte_reduced));
}

#endif /* FLOOR_H */
