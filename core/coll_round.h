/* coll_round.h - the vocabulary of algorithms: a round, and the few things a rank does in it.
 *
 * An algorithm is a function of (rank, size, root, radix) and the number k of the round.  It writes down what this rank does
 * in round k and says whether there is such a round; the same k is the last on every rank.  It knows ranks and blocks; it
 * knows neither bytes nor types, memory, time nor the network, and it keeps nothing from one round to the next.
 *
 * The vector of a call is cut into blocks, one per rank or just one in all (coll__algorithm.by_block).  A span is some
 * consecutive blocks of one place; block numbers go round the circle.  Within a round the order is: copies; then sends and
 * receives, all at once; then folds.  Sends see the places as the rounds before have left them.
 */
#ifndef COLL_ROUND_H
#define COLL_ROUND_H

typedef enum coll__place {
    COLL__INPUT,                                  /* what this rank brings: the user's send buffer            */
    COLL__RESULT,                                 /* what it is to have: the user's recv buffer               */
    COLL__WORK,                                   /* one slot per rank: its contribution, not yet reduced     */
    COLL__MINE                                    /* the folded block of a rank that has no result buffer     */
} coll__place;

typedef struct coll__span {
    coll__place place;
    int first, blocks;                            /* COLL__WORK: slots; each is as long as the block to fold  */
} coll__span;

typedef enum coll__verb { COLL__SEND, COLL__RECV, COLL__COPY, COLL__FOLD } coll__verb;

typedef struct coll__step {
    coll__verb verb;
    int        peer;                              /* send, recv                                               */
    coll__span span;                              /* what is sent; where the rest ends up                     */
    coll__span from;                              /* copy                                                     */
} coll__step;

/* What an algorithm is told, and what it answers. */
typedef struct coll__round {
    int rank, size, root, radix;
    coll__step *steps;                            /* NULL: only count                                         */
    int count, capacity;                          /* capacity: 2 * size + 2 is enough for every algorithm     */
} coll__round;

static inline void coll__add_step(coll__round *now, coll__step step)
{
    if (now->steps && now->count < now->capacity) now->steps[now->count] = step;
    now->count++;
}

/* A span that starts at block `first`, which may be up to one turn off the circle. */
static inline coll__span coll__blocks(const coll__round *now, coll__place place, int first, int blocks)
{
    return (coll__span){ place, coll__wrap(first, now->size), blocks };
}

/* The whole vector of an algorithm that is not by_block. */
static inline coll__span coll__all(coll__place place) { return (coll__span){ place, 0, 1 }; }

static inline void coll__send(coll__round *now, int peer, coll__span span)
{
    coll__add_step(now, (coll__step){ .verb = COLL__SEND, .peer = coll__wrap(peer, now->size), .span = span });
}

static inline void coll__recv(coll__round *now, int peer, coll__span span)
{
    coll__add_step(now, (coll__step){ .verb = COLL__RECV, .peer = coll__wrap(peer, now->size), .span = span });
}

static inline void coll__copy(coll__round *now, coll__span to, coll__span from)
{
    coll__add_step(now, (coll__step){ .verb = COLL__COPY, .span = to, .from = from });
}

/* Combine the contributions of all ranks in rank order, ours from the input and the others' from their slots, round the sum
 * once, and leave it in the one block `to`. */
static inline void coll__fold(coll__round *now, coll__span to)
{
    coll__add_step(now, (coll__step){ .verb = COLL__FOLD, .span = to });
}

#endif /* COLL_ROUND_H */
