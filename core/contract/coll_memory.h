/* coll_memory.h - allocators that the program supplies, and the arena of the library.  Public; coll.h includes it. */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_MEMORY_H
#define COLL_MEMORY_H

#ifdef __cplusplus
extern "C" {
#endif

/* All memory of a communicator and of everything that is made from it: derived and shrunk communicators, requests, and what is
 * needed while it opens.  The allocator must exist until all of them are freed.  Several threads may call it at the same time
 * if ranks are threads, or if the library has a thread.  The memory need not be zeroed.
 *
 * If an allocation fails, a call that needs it returns COLL_ERR_MEMORY (COLL_ERR_SYSTEM for a descriptor).  No data is lost, and
 * ranks that depend on this one get COLL_ERR_PEER.  If a communicator cannot begin to open for this reason, the other ranks wait
 * for it until their start_timeout_ms.
 *
 * Calls that repeat earlier ones allocate nothing: collectives; and prepared calls and messages, if no more of them are pending
 * at the same time than before.  There are four exceptions.  A message of more than 8 KiB and up to 64 KiB that arrives before
 * its receive, or before its prepared call was restarted, is buffered until then.  A coll_i... call allocates its request.  A
 * rank that has waited for 250 ms takes two bytes a rank while it checks which ranks are still there.  The simulator keeps
 * messages in flight.
 *
 * Not allocated here: memory that processes or threads share in whole pages, the rings of io_uring, stacks, memory of system
 * functions and OpenSSL, the scratch memory of coll_reduce_local, and with COLL_PORTABLE a few bytes for each coll_init, by which
 * a forked child is detected.  MPI, NCCL and communicators of coll_wrap_... have their own memory. */
typedef struct coll_allocator {
    void *(*allocate)(void *context, size_t length, size_t alignment);      /* a power of two; NULL: there is none */
    void  (*free)(void *context, void *at, size_t length);                  /* as it was allocated; never NULL */
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
 * An arena allocates from one block of memory: first fit, by address; adjacent free parts are joined.  A part has no overhead
 * except that its length is rounded up to 16 bytes (8 if pointers have 4).  Finding a part takes a step for each hole.  The
 * block may be anywhere, also in static memory.  The program must not use it until coll_arena_end.
 *
 * Several communicators and several threads may use an arena at the same time.  coll_arena_begin and coll_arena_end must not be
 * called while another thread uses it.  If another thread holds the lock of the arena during a fork, the child cannot use it: in
 * a forked child do not use communicators whose arena several threads share.  COLL_TINY has no lock. */

/* Make an arena of the `length` bytes at `memory`.  Never returns NULL.  If the block has no room even for the arena's own
 * records, of 300 bytes at most, every allocation fails, and calls return COLL_ERR_MEMORY. */
COLL_API const coll_allocator *coll_arena_begin(void *memory, size_t length);

/* Return the memory of an arena to the program.  COLL_ERR_ARGUMENT, and nothing changes: some of it is still in use, or this
 * is no arena. */
COLL_API coll_status coll_arena_end(const coll_allocator *arena);

/* Return how many bytes of an arena are allocated now; 0 if it is no arena. */
COLL_API size_t coll_arena_used(const coll_allocator *arena);

/* Return the length in bytes that would have been enough so far, holes and the arena's own records included.  The same calls
 * in the same order need no larger block. */
COLL_API size_t coll_arena_most(const coll_allocator *arena);

/* ---- >>buffers that the ranks of a host read in place ----
 *
 *     float *gradients = coll_alloc(comm, count * sizeof *gradients);
 *     ...
 *     coll_allreduce(comm, gradients, gradients, count, COLL_F32, COLL_SUM);
 *     coll_dealloc(comm, gradients);
 *
 * Between processes of one host, the kernel copies long vectors in ordinary memory from one process to the other.  Memory from
 * coll_alloc is read in place, as between threads.  The other processes cannot write to it.  Each rank may use it or not, for any
 * buffer; the results are the same.  In all other cases it is ordinary memory.
 *
 * Memory from coll_alloc remains valid after coll_shrink.  The ranks of the new communicator read it in place, also when the old
 * one is freed.  Either communicator may free memory of the other.
 *
 * coll_init reserves 64 GiB of addresses for it, or less: an eighth of RLIMIT_AS for all processes of the host together, and at
 * most RLIMIT_FSIZE.  Memory that does not fit comes from the communicator's allocator, and is not read in place.  Pages are
 * taken when they are used; mlockall locks what has been allocated, not what is reserved. */

/* Allocate memory that the ranks of this host can read in place.  It has `length` bytes, at an address that is a multiple of
 * 64, not zeroed.  NULL: there is no memory, with the sentence in coll_error(comm).  If processes share memory and the buffer
 * fits, it does not come from the communicator's allocator.  Free it with coll_dealloc, before the last communicator of
 * this rank is freed that was made from the same coll_init, also by coll_shrink. */
COLL_API void *coll_alloc(coll_comm *comm, size_t length);

/* Free memory of coll_alloc.  NULL is valid.  No call of any rank may still use it: this is so when a collective that used it
 * has returned here. */
COLL_API void coll_dealloc(coll_comm *comm, void *at);

#ifdef __cplusplus
}
#endif

#endif /* COLL_MEMORY_H */
