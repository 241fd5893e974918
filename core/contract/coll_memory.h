/* coll_memory.h - allocators that the program supplies, and the arena of the library.  Public; coll.h includes it. */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_MEMORY_H
#define COLL_MEMORY_H

/* Allocates all memory of a communicator and of everything made from it: derived and shrunk communicators, requests, and
 * temporary memory of coll_init.  The allocator must exist until all of them are freed.  Several threads may call it at the
 * same time if ranks are threads, or if the library has a thread.  The memory need not be zeroed.
 *
 * If an allocation fails, a call that needs it returns COLL_ERR_MEMORY (COLL_ERR_SYSTEM for a descriptor).  No data is lost,
 * and ranks that depend on this one get COLL_ERR_PEER.  If a rank cannot begin to open a communicator for this reason, the
 * other ranks wait until their start_timeout_ms.
 *
 * Calls that repeat earlier ones allocate nothing: collectives; and prepared calls and messages, if no more of them are pending
 * at the same time than before.  There are four exceptions.  A message of more than 8 KiB and up to 64 KiB that arrives before
 * its receive, or before its prepared call was restarted, is buffered until then.  A coll_i... call allocates its request.  A
 * rank that has waited for 250 ms allocates two bytes for each rank while it checks which ranks have left.  The simulator keeps
 * messages in flight.
 *
 * Not allocated here: memory that processes or threads share in whole pages, the rings of io_uring, stacks, the scratch memory
 * of coll_reduce_local, memory of system functions and OpenSSL.  With COLL_PORTABLE also a few bytes for each coll_init, which
 * detect forks.  MPI, NCCL and communicators of coll_wrap_... have their own memory. */
typedef struct coll_allocator {
    void *(*allocate)(void *context, size_t length, size_t alignment);      /* alignment: a power of two; NULL: no memory */
    void  (*free)(void *context, void *at, size_t length);                  /* length: as allocated; `at` is never NULL */
    void   *context;
} coll_allocator;

/* ---- >>arena: an allocator for one block of memory ----
 *
 *     static unsigned char memory[256 << 10];
 *     const coll_config config = { .size = 1, .allocator = coll_arena_begin(memory, sizeof memory) };
 *     ...
 *     coll_free(comm);
 *     coll_arena_end(config.allocator);
 *
 * An arena allocates from one block of memory: first fit, by address; adjacent free parts are joined.  The length of a part is
 * rounded up to 16 bytes (8 with 4-byte pointers); there is no other overhead.  Allocation takes a step for each hole.  The
 * block may be anywhere, also in static memory.  The program must not use it until coll_arena_end.
 *
 * Several communicators and several threads may use an arena at the same time.  coll_arena_begin and coll_arena_end must not be
 * called while another thread uses it.  If another thread holds the lock of the arena during a fork, the child cannot use it:
 * in a forked child do not use communicators whose arena several threads share.  COLL_TINY has no lock. */

/* Make an arena of the `length` bytes at `memory`.  Never returns NULL.  If the block is too short for the arena's own records
 * (300 bytes at most), every allocation fails, and calls return COLL_ERR_MEMORY. */
COLL_API const coll_allocator *coll_arena_begin(void *memory, size_t length);

/* Return the memory of an arena to the program.  Returns COLL_ERR_ARGUMENT and changes nothing if some of it is in use, or if
 * this is no arena. */
COLL_API coll_status coll_arena_end(const coll_allocator *arena);

/* Return how many bytes of an arena are allocated now; 0 if it is no arena. */
COLL_API size_t coll_arena_used(const coll_allocator *arena);

/* Return the length in bytes that would have been enough so far, with holes and the arena's own records.  The same calls in the
 * same order fit in a block of this length. */
COLL_API size_t coll_arena_most(const coll_allocator *arena);

/* ---- >>buffers that the ranks of a host read in place ----
 *
 *     float *gradients = coll_alloc(comm, count * sizeof *gradients);
 *     ...
 *     coll_allreduce(comm, gradients, gradients, count, COLL_F32, COLL_SUM);
 *     coll_dealloc(comm, gradients);
 *
 * Between processes of one host, the kernel copies long vectors.  Memory from coll_alloc is read in place instead, as between
 * threads.  The other processes cannot write to it.  Each rank may use it for any buffer; results do not change.  In all other
 * cases it is ordinary memory.
 *
 * Memory from coll_alloc remains valid after coll_shrink.  The ranks of the new communicator read it in place, also when the
 * old one is freed.  Either communicator may free memory of the other.
 *
 * coll_init reserves 64 GiB of addresses for it, or less: an eighth of RLIMIT_AS for all processes of the host together, and at
 * most RLIMIT_FSIZE.  Memory that does not fit comes from the communicator's allocator, and is not read in place.  Pages are
 * taken when they are used; mlockall locks what has been allocated, not what is reserved. */

/* Allocate memory that the ranks of this host can read in place.  It has `length` bytes, at an address that is a multiple of
 * 64, not zeroed.  Returns NULL if there is no memory; coll_error(comm) has the reason.  If processes share memory and the
 * buffer fits, it does not come from the communicator's allocator.  Free it with coll_dealloc, before this rank frees its
 * last communicator of the same coll_init, including those of coll_shrink. */
COLL_API void *coll_alloc(coll_comm *comm, size_t length);

/* Free memory of coll_alloc.  NULL is allowed.  No rank's call may still use it: that is so when the collective that used it
 * has returned on this rank. */
COLL_API void coll_dealloc(coll_comm *comm, void *at);

#endif /* COLL_MEMORY_H */
