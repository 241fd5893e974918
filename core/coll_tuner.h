/* coll_tuner.h - which algorithm, which radix, how many slices: a cost model, fed with the same numbers on every rank.
 *
 * A round costs a latency; every further message of a rank in the same round costs an overhead; bytes cost time on the wire
 * and in the arithmetic.  The model is evaluated at each call: a few dozen additions.  All ranks must choose alike, so it
 * sees nothing but the call, the size and coll__link, which are equal everywhere. */
#ifndef COLL_TUNER_H
#define COLL_TUNER_H

typedef struct coll__choice {
    const coll__algorithm *algorithm;
    int    radix;
    double seconds;                               /* predicted                                                */
} coll__choice;

/* TCP within a machine or a rack, measured: 4 us of work a message, 12 us before it is there, 2 GB/s. */
static const coll__link coll__link_default = { 12e-6, 4e-6, 0.5e-9, 0.1e-9 };

/* Time for `rounds` rounds in which a rank sends `messages` messages in all. */
static double coll__rounds_time(const coll__link *link, int rounds, int messages)
{
    return rounds * link->latency + (messages > rounds ? messages - rounds : 0) * link->overhead;
}

/* Messages that a rank sends in the circulant or the tree of this radix. */
static int coll__messages_of(int size, int radix)
{
    int messages = 0;
    for (int skip = size; skip > 1;) {
        const int near = (skip + radix - 1) / radix;
        messages += (skip - 1) / near;
        skip = near;
    }
    return messages;
}

/* The radix with the least latency.  Every radix moves the same bytes, so the size of the message plays no part. */
static int coll__best_radix(const coll__link *link, int size)
{
    int best = size > 2 ? size : 2;
    double least = coll__rounds_time(link, coll__circulant_rounds(size, best), coll__messages_of(size, best));

    for (int radix = 2; radix < size && radix <= 32; radix++) {
        const double t = coll__rounds_time(link, coll__circulant_rounds(size, radix), coll__messages_of(size, radix));
        if (t < least) least = t, best = radix;
    }
    return best;
}

/* Predicted seconds of an algorithm.  `bytes`: of the whole vector on the wire. */
static double coll__predict(const coll__algorithm *algorithm, const coll__link *link, int size, int radix, double bytes)
{
    const double p = size, share = bytes * (p - 1) / p;
    const double spread = coll__rounds_time(link, coll__circulant_rounds(size, radix), coll__messages_of(size, radix));
    const double tree = coll__rounds_time(link, coll__tree_rounds(size, radix), coll__messages_of(size, radix));
    const double direct = coll__rounds_time(link, 1, size - 1);
    const double wire = link->per_byte, sum = link->per_byte_reduced;

    switch (algorithm->kind) {
    case COLL_BROADCAST:
        return algorithm->by_block ? tree + spread + 2 * share * wire
                                   : tree + coll__messages_of(size, radix) * bytes * wire;
    case COLL_REDUCE:
        return algorithm->by_block ? 2 * direct + 2 * share * wire + bytes * sum
                                   : tree + (p - 1) * bytes * wire + p * bytes * sum;
    case COLL_ALLREDUCE:
        return algorithm->by_block ? direct + spread + 2 * share * wire + bytes * sum
                                   : spread + (p - 1) * bytes * wire + p * bytes * sum;
    case COLL_REDUCE_SCATTER:
        return direct + share * wire + bytes * sum;
    default:
        return spread + share * wire;
    }
}

/* Elements of the vector that a call is about. */
static size_t coll__vector_count(const coll_call *call, int size)
{
    const bool per_rank = call->kind == COLL_REDUCE_SCATTER || call->kind == COLL_ALLGATHER;
    return per_rank ? call->count * (size_t)size : call->count;
}

/* The cheapest algorithm, or the one that the call names.  false: it names one that there is not. */
static bool coll__choose(coll__choice *choice, const coll_comm *comm, const coll_call *call)
{
    const int radix = coll__best_radix(&comm->link, comm->size);
    const double bytes = (double)coll__vector_count(call, comm->size) * (double)coll_type_size(call->wire);

    choice->algorithm = NULL;
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        if (a->kind != call->kind || (call->algorithm && strcmp(call->algorithm, a->name))) continue;
        const double t = coll__predict(a, &comm->link, comm->size, radix, bytes);
        if (!choice->algorithm || t < choice->seconds) *choice = (coll__choice){ a, radix, t };
    }
    return choice->algorithm != NULL;
}

#endif /* COLL_TUNER_H */
