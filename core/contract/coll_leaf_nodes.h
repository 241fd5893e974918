/* coll_leaf_nodes.h - the nodes of a run of leaves, for a call with leaves (see Leaves in coll.h).  Public; coll.h includes it.
 */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_LEAF_NODES_H
#define COLL_LEAF_NODES_H

/*     coll_sum_begin(&sum, first, n, COLL_F32, NULL);
 *     for (int64_t i = first; i < last; i++) compute(i, gradient), coll_sum_add(sum, gradient);
 *     coll_sum_end(sum, &call);                              call has kind, recv and op, and may have wire, scale, flags
 *     coll_run(comm, &call);
 *     coll_sum_free(sum);
 *
 * The nodes depend on the leaves alone.  A sum has memory for one vector for each bit of the number of leaves, or twice as much.
 * coll_sum_add reads as many bytes as a loop a[i] += b[i] does, on average, if the leaves are in memory.  Any thread may use a
 * sum, one at a time.  After an error, coll_error(NULL) has the sentence. */
typedef struct coll_sum coll_sum;

/* Begin to add up the leaves of this rank, from number first_leaf on.  They have `count` elements of any type that has a sum.
 * Memory comes from an allocator, or from malloc (NULL). */
COLL_API coll_status coll_sum_begin(coll_sum **out, int64_t first_leaf, size_t count, coll_type type,
                                    const coll_allocator *memory);

/* Begin again, in the same memory: for the next step.  The nodes of before are no longer valid. */
COLL_API coll_status coll_sum_restart(coll_sum *sum, int64_t first_leaf);

/* Return where the program may write the next leaf: coll_sum_add(sum, place) does not copy it.  If it is the only leaf, it is
 * the node, and recv of the call may be there, too.  NULL: the sum has another type than the leaves, or there is no memory. */
COLL_API void *coll_sum_place(coll_sum *sum);

/* Add the next leaf.  It may be changed afterwards, unless it is in its place.  After COLL_ERR_MEMORY it may be added again. */
COLL_API coll_status coll_sum_add(coll_sum *sum, const void *leaf);

/* Set send, count, type, first_leaf and leaves of a call.  The nodes are valid until another function is called with the sum.
 * A call in place may write to them. */
COLL_API coll_status coll_sum_end(coll_sum *sum, coll_call *call);

/* Free a sum.  NULL is allowed. */
COLL_API void coll_sum_free(coll_sum *sum);

#endif /* COLL_LEAF_NODES_H */
