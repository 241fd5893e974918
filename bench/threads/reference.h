/* reference.h: hand-written collectives of threads that share an address space, to hold a library against.
 *
 *     plain   every thread does its share of the whole operation on all ranks' own buffers, between two barriers of flags
 *     nt      the same with stores that go past the caches (x86); from 256 KiB up
 *     mail    every rank copies its input into its own box and reads what it needs from the others: one barrier's worth of
 *             waiting, twice the copies; up to 64 KiB
 *
 * They know the addresses of all buffers, the sizes and the order beforehand, check nothing and cannot fail.  Their speed is a
 * target for a library, not a lower bound: they are simple loops. */
#ifndef BENCH_REFERENCE_H
#define BENCH_REFERENCE_H

#include "../common/cases.h"

typedef struct reference reference;
typedef enum reference_variant { REFERENCE_PLAIN, REFERENCE_NT, REFERENCE_MAIL, REFERENCE_VARIANTS } reference_variant;

static const char *const reference_names[REFERENCE_VARIANTS] = { "ref-plain", "ref-nt", "ref-mail" };

/* One for all threads; `is_crowded`: waits yield at once. */
reference *reference_open(int ranks, bool is_crowded);
void reference_free(reference *reference);

/* This rank's part of a test, which must live while it runs.  A barrier after that, then operations 0, 1, 2, ...  Operation i
 * is the same on all ranks.  To be called again for another variant or test, with a barrier before. */
void reference_enter(reference *reference, const bench_case *part);

/* The operation of a variant, with the rank's own context; NULL: there is none for this collective or so many bytes. */
void (*reference_op(reference_variant variant, bench_collective collective, size_t bytes))(void *context, long i);
void *reference_context(reference *reference, int rank);

#endif /* BENCH_REFERENCE_H */
