/* coll_memory.h - memory that the program owns: an allocator of its own, and the library's arena.  Public; coll.h includes it. */
#ifndef COLL_H
#include "../../coll.h"                           /* which includes this one                                  */
#endif
#ifndef COLL_MEMORY_H
#define COLL_MEMORY_H

#ifdef __cplusplus
extern "C" {
#endif

/* Where a communicator takes its memory, and all that is made from it: derived and shrunk ones, requests, and what is needed
 * while it opens.  It must stay until all of them are freed.  It is called by several threads at once where ranks are threads,
 * or where the library has a thread of its own.  What it gives need not be zeroed.
 *
 * A call that cannot do without what it is refused ends with COLL_ERR_MEMORY, or COLL_ERR_SYSTEM where a descriptor was wanted;
 * nothing is lost, and ranks that count on this one get COLL_ERR_PEER.  One that cannot even begin is waited for by the others
 * until their start_timeout_ms are over.
 *
 * Calls like earlier ones take no memory: collectives; and prepared calls and messages, where no more of them are under way at
 * once than ever before.  But a message of more than 8 KiB and up to 64 KiB that comes before its receive, or its prepared call
 * was restarted, is kept until then.  A coll_i... call takes its request.  Who has waited for 250 ms takes two bytes a rank, for
 * as long as it looks who is still there.  The simulator keeps what is under way.
 *
 * Not from here: memory that processes or threads share in whole pages, the rings of io_uring, stacks, what the functions of the
 * system and of OpenSSL take for themselves, the scratch memory of coll_reduce_local, and with COLL_PORTABLE a few bytes for each
 * coll_init, by which a forked child is known.  MPI, NCCL and what is wrapped by coll_wrap_... have memory of their own. */
typedef struct coll_allocator {
    void *(*allocate)(void *context, size_t length, size_t alignment);      /* a power of two; NULL: there is none */
    void  (*free)(void *context, void *at, size_t length);                  /* as it was allocated; never NULL */
    void   *context;
} coll_allocator;

/* ---- >>arena: all of it in one block of the program's ----
 *
 *     static unsigned char memory[256 << 10];
 *     const coll_config config = { .size = 1, .allocator = coll_arena_begin(memory, sizeof memory) };
 *     ...
 *     coll_free(comm);
 *     coll_arena_end(config.allocator);
 *
 * An arena gives parts of one block of memory, and takes them back: first fit, by address, and parts that meet are joined again.
 * A part costs nothing beside its length, which is rounded up to 16 bytes (8 where pointers have 4); to find one takes a step for
 * each hole.  The block may lie anywhere, also in static memory, and is left alone by the program until coll_arena_end.
 *
 * An arena may serve several communicators, and several threads at once; coll_arena_begin and coll_arena_end are called when
 * nobody else uses it.  Its lock is not the child's where another thread has it during a fork: there leave communicators alone
 * whose memory is of an arena that several threads use.  With COLL_NO_OS it has no lock.  With COLL_NO_MALLOC the library does
 * not know malloc, and communicators without an allocator get COLL_ERR_MEMORY. */

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
 *     coll_alloc_free(comm, gradients);
 *
 * Between processes of one host, the kernel copies long vectors that lie anywhere from one process to the other.  Memory from
 * coll_alloc is read where it is, as between threads.  The other processes cannot write to it.  Any rank may have it or not, for
 * any buffer, by itself; the results are the same.  Elsewhere it is memory like any other.
 *
 * Memory from coll_alloc outlives coll_shrink.  The ranks of the new communicator read it in place, also when the old one is
 * freed.  Both communicators give such memory, and each takes back what the other gave.
 *
 * coll_init reserves 64 GiB of addresses for it, or less: an eighth of RLIMIT_AS for all processes of the host together, and no
 * more than RLIMIT_FSIZE.  What does not fit comes from the communicator's allocator, and is not read in place.  Memory is taken
 * when it is used; mlockall locks what has been allocated, not what is reserved. */

/* Allocate memory that the ranks of this host can read in place.  It has `length` bytes, at an address that is a multiple of
 * 64, not zeroed.  NULL: there is no memory, with the sentence in coll_error(comm).  If processes share memory and the buffer
 * fits, it does not come from the communicator's allocator.  Free it with coll_alloc_free, before the last communicator of
 * this rank is freed that was made from the same coll_init, also by coll_shrink. */
COLL_API void *coll_alloc(coll_comm *comm, size_t length);

/* Free memory of coll_alloc.  NULL is valid.  No call of any rank may still use it: this is so when a collective that used it
 * has returned here. */
COLL_API void coll_alloc_free(coll_comm *comm, void *at);

#ifdef __cplusplus
}
#endif

#endif /* COLL_MEMORY_H */
