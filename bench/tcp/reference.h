/* reference.h: an allreduce of f32 between two processes over one TCP connection, hand-written, to compare a library with.
 *
 *     swap     each rank sends its input and adds what it receives; no send waits for arithmetic
 *     halves   each rank sums one half; on one connection the raw halves are sent first and the sums follow as they get ready,
 *              so that no byte waits for more than a chunk; half the arithmetic of swap, one more latency; from 8 KiB up
 *
 * Both know the sizes and the order beforehand, send no headers, check nothing, cannot fail and hold the only connection.  Calls
 * never block; a wait polls for some time, and then sleeps in poll.  Data that is added is received into a small buffer that
 * stays in the cache.  Their speed is a target for a library, not a lower bound. */
#ifndef BENCH_REFERENCE_H
#define BENCH_REFERENCE_H

#include "../common/cases.h"

typedef struct reference reference;
typedef enum reference_variant { REFERENCE_SWAP, REFERENCE_HALVES, REFERENCE_VARIANTS } reference_variant;

static const char *const reference_names[REFERENCE_VARIANTS] = { "ref-swap", "ref-halves" };

/* Both ends of a connection, before the ranks are forked; then the end of this rank. */
bool reference_connect(int ends[2]);
reference *reference_open(const int ends[2], int rank);
void reference_free(reference *reference);

/* This rank's part of a test, which must live while it runs. */
void reference_enter(reference *reference, const bench_case *part);

/* The operation of a variant, whose context is the reference; NULL: there is none for this collective or so many bytes. */
void (*reference_op(reference_variant variant, bench_collective collective, size_t bytes))(void *context, long i);

#endif /* BENCH_REFERENCE_H */
