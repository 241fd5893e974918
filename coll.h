/* coll.h - collective operations in one C header: between threads, between hosts over TCP, over MPI, and between GPUs.
 *
 * Every collective: barrier, broadcast, reduce, allreduce, reduce-scatter, scan, gather, scatter, allgather, all-to-all, and
 * exchanges between the neighbors of a graph; and messages with tags.  For integers, floats of 8 to 64 bits, complex numbers,
 * (value, index) pairs and opaque elements, with the usual operations or user-defined ones.  16- and 8-bit floats are summed in
 * 32 bits and rounded once.  No launcher, no daemon and no installed library is needed.
 *
 *     #define COLL_IMPLEMENTATION                       in exactly one C file, before any other include
 *     #include "coll.h"                                 cc train.c -pthread             (see Compiling)
 *     #include <stdio.h>
 *
 *     static int worker(coll_comm *comm, void *arg)
 *     {
 *         float x[2] = { (float)coll_rank(comm), 1 };
 *         if (coll_allreduce(comm, x, x, 2, COLL_F32, COLL_SUM)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         printf("rank %d of %d: %g %g\n", coll_rank(comm), coll_size(comm), x[0], x[1]);
 *         return 0;
 *     }
 *     int main(void)
 *     {
 *         return coll_spawn(4, worker, NULL, NULL) != 0;                four ranks, threads of this process
 *     }
 *
 * If each rank is a process, the worker is the same.  Start the processes with coll-run or torchrun, or set COLL_RANK, COLL_SIZE
 * and COLL_ADDR in each:
 *
 *     int main(void)
 *     {
 *         coll_comm *comm;
 *         if (coll_init(&comm, NULL)) return 1;
 *         const int result = worker(comm, NULL);
 *         coll_free(comm);
 *         return result;
 *     }
 *
 * MANUAL, in the order in which a program needs it; a glossary is at the end.  Sections begin with pieces of one program: `comm`
 * is a communicator, and x and y are arrays of `n` floats.
 *     to begin         Compiling, Ranks, Agreement, Buffers, Matrices, Numbers, Leaves, Reduced precision
 *     to go on         Waiting, Prepared calls, Messages, Communicators, Threads, Memory
 *     between hosts    Bootstrap, Security, Environment
 *     when it fails    Errors, Time limits, After a failure
 *     to be fast       Algorithms, Hosts, Tuning
 *     other worlds     Simulation, MPI, GPUs
 *
 * COMPILING
 *         #define COLL_IMPLEMENTATION
 *         #include "coll.h"
 *   Exactly one C file contains both lines, before any other include.  All other files contain the second line alone.  The
 * implementation is C11 for Linux, for gcc or clang.  The declarations are C99 and C++11: a C++ program compiles the
 * implementation in a C file.
 *     cc train.c -pthread
 *   TCP uses io_uring if the compiler finds <liburing.h> (2.2 or later; Debian: liburing-dev) and the program finds
 * liburing.so.2, which it loads itself.  Otherwise TCP uses poll, and coll_explain says why.  Before glibc 2.34 loading requires
 * -ldl.  A static program loads nothing.
 *   The library is one file, single/coll.h in its repository.  The same in parts: coll.h, coll_impl.h, core/, transports/ and
 * carriers/.  A program may also link with libcoll (`make lib`, pkg-config, CMake, Meson, Debian packages; see docs/install.md).
 * COLL_VERSION_MAJOR, COLL_VERSION_MINOR and COLL_VERSION_PATCH are the version of the header.  COLL_VERSION is the same in
 * one number (0.4.0: 400), and coll_version() returns that of the library.  docs/reference.md has tables of types and
 * algorithms.
 *   Macros that a program may define:
 *     COLL_WITH_URING           link with liburing (-luring) instead of loading it
 *     COLL_WITH_OPENSSL         TLS; link with -lssl -lcrypto
 *     COLL_WITH_MPI, _NCCL      see MPI, GPUs
 *     COLL_STATIC               every function is static
 *     COLL_API                  precedes the declaration and the definition of every function (default: extern).  Example:
 *                               -DCOLL_API='__attribute__((visibility("hidden")))' hides them in a shared library
 *     COLL_ASSERT               for debugging: the library checks its own state, and ends the program with a line to report
 *     COLL_LEAST, COLL_SMALL,   profiles that leave parts out; so do the lists COLL_ONLY_TRANSPORTS=threads,tcp,
 *     COLL_TINY                 COLL_ONLY_KINDS and COLL_ONLY_TYPES.  See docs/size.md
 *     COLL_CONFIG_FILE='"f.h"'  a file of the program that defines any of these; it is included first
 *   Calling a disabled part returns COLL_ERR_UNSUPPORTED and names the switch.
 *   Machines without 64-bit atomics (32-bit mips, powerpc and riscv, old arm) require -latomic.  musl requires the kernel's
 * headers.
 *   Compiler options that change results are refused.  -ffast-math and each part of it is an #error.  If the compiler does not
 * reveal it, coll_init returns COLL_ERR_UNSUPPORTED.  The same holds for the x87 (i686: compile with -msse2 -mfpmath=sse) and for
 * any FLT_EVAL_METHOD but 0 (s390x with -std=c11: -fexcess-precision=fast).  Products are never fused with sums, whatever -march
 * says.  coll_init refuses clang's -ffp-contract=fast.
 *   The library never changes FPU modes.  Ranks connect over TCP or MPI only if all of them flush subnormals or none does
 * (linking one part with -ffast-math flushes), and if all round to nearest.  A thread sets its modes before it makes a
 * communicator, and keeps them.  Ranks of 32 and 64 bits and of different machines may be in one job if they have the same byte
 * order.
 *   Set all members of a coll_call or a coll_config that you do not use to 0, as an initializer does.  Later versions use the
 * reserved ones: if one of them is not 0, the call returns COLL_ERR_ARGUMENT.  In C++ begin a descriptor with `coll_call call{};`
 * and set the members.  Designated initializers (C++20) warn about every member that is left out.
 *   Stack: a thread that calls the library needs 64 KiB for it.  User-defined operations (COLL_USER), the log hook, and name
 * lookups of the system need additional stack.  The library's own threads have 256 and 512 KiB.
 *
 * RANKS
 *         int rank = coll_rank(comm), size = coll_size(comm);
 *         if (rank == 0) printf("%d ranks\n", size);
 *         if (coll_barrier(comm)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   A communicator connects `size` ranks, numbered from 0.  A rank is a thread or a process.  The same function can run on both;
 * only the call that makes the communicator differs:
 *     coll_spawn(count, worker, arg, config)       the library makes `count` threads; each calls worker(comm, arg)
 *     coll_init_threads(count, comms, config)      the program has made the threads; thread i uses comms[i]
 *     coll_init(&comm, config)                     this process is one rank; the others are other processes
 *     coll_init_custom(transport, context, rank, size, &comm, config)      the same over a transport that the program supplies
 *   The first two also work in a process of a larger job: each process then has several ranks.  COLL_RANK is the first rank of a
 * process, and COLL_SIZE is the number of all ranks.  If a launcher counts processes, its numbers are multiplied by the ranks of
 * each.  A process that has all ranks needs no network.
 *   All ranks make the same collective calls on a communicator, in the same order, with arguments that agree.
 *
 * AGREEMENT
 *         const int root = 0;
 *         double rate = coll_rank(comm) == root ? 0.1 : 0;
 *         if (coll_broadcast(comm, &rate, 1, COLL_F64, root)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   These must be equal on all ranks: kind, type, wire, op, root, count, and the options of a coll_call (algorithm, accumulate,
 * scale, flags, seed with COLL_STOCHASTIC, not_commutative).  v and w forms differ:
 *     allgatherv, reduce_scatterv      all counts are equal on all ranks; offsets may differ
 *     gatherv, scatterv, alltoallv,    the count (alltoallw: and the type) of a block is equal at its two ends; other ranks
 *     alltoallw, neighbor_...v, ...w   do not need it; if there is a root, counts and offsets matter there only
 *     allreduce_list                   number, types and counts of the buffers, in the same order
 *   Ranks that disagree get COLL_ERR_MISMATCH, and a sentence that names both calls, and the options that differ.  Flags, and
 * which options are set, are compared exactly.  Values of algorithm, accumulate, scale and seed are compared with a hash of 16
 * bits; counts of v forms and of lists with one of 32 bits, or of 16 if such an option is set.  Blocks without elements have no
 * type.  These are not compared: buffers, offsets, rows and strides, residual, timeout_ms, name, fn and fn_context.
 *   A rank that needs nothing from the mistaken rank may return before the mismatch is found: the root of a broadcast or scatter,
 * the other ranks of a reduce or gather, ranks of a scan.  If two ranks act as the root, every rank may return COLL_OK with
 * different data.  Then the next collective in which these ranks exchange messages, or wait for each other in memory, returns
 * COLL_ERR_MISMATCH; or coll_free does, on at least one rank.  Later calls compare a hash of 16 bits of the calls before, and
 * coll_free one of 64.  Detecting the following would require another message:
 *     at coll_free     over MPI and transports that the program supplies; in communicators of some ranks of a job, calls that use
 *                      messages, unless one has arrived already; prepared calls that use messages; and if some ranks have made
 *                      more calls than others.  Calls of communicators of all ranks are compared when the last of them is freed
 *     at a next call   if none of the ranks that disagreed waits for another again, as in the same mistaken broadcast once more
 *     while waiting    over TCP, after rank 0 has freed its last communicator; and in a call that the others have ended 256
 *                      operations ago (over MPI and with COLL_SMALL: 2).  Ranks get COLL_ERR_TIMEOUT after stall_timeout_ms
 *
 * BUFFERS
 *         float all[16], mine[4] = { 1, 2, 3, 4 };
 *         if (coll_allgather(comm, mine, all, 4, COLL_F32)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         if (coll_allreduce(comm, COLL_IN_PLACE, mine, 4, COLL_F32, COLL_MAX)) return 1;
 *   A count is a number of elements and may be 0; the pointers may then be NULL.  Any alignment that the type allows is valid.
 * Offsets are counted from the start of the buffer: in elements, in w forms in bytes.  NULL offsets in a v form mean that the
 * blocks are adjacent.  Buffers that the role of a rank does not use may be NULL.
 *   A call is in place if send == recv, or if send is COLL_IN_PLACE (at the root of a scatter: recv).  The meaning depends on the
 * kind:
 *     gather, allgather (v)     the input is in its block of recv: send == recv + rank * count, or recv + recv_offsets[rank];
 *                               for gather at the root
 *     reduce_scatter (v)        if recv == send + rank * recv_count, the result is written there; if recv == send, or with
 *                               COLL_IN_PLACE, at the start of recv.  In both cases the rest keeps the input
 *     scatter (v), at the root  its block stays where it is in send
 *     alltoall (v, w)           every block is replaced by the one that arrives; the send arrays are ignored
 *   Messages, broadcast and neighbor calls have no form in place.
 *   Any other overlap of send and recv, or of two blocks that are received, is an error.  Inputs are written only in place.
 * Nothing outside the result is ever written.
 *
 * MATRICES
 *         float rows[3 * 8] = { 0 }, columns[12 * 2];
 *         const coll_call turn = { .kind = COLL_ALLTOALL, .send = rows, .recv = columns, .count = 3 * 2, .type = COLL_F32,
 *                                  .row = 2, .send_stride = 8 };
 *         if (coll_run(comm, &turn)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   In this example each of 4 ranks has 3 rows of a matrix of 8 columns, [3][8].  It gets 2 columns of all rows, [12][2].
 *   The blocks of a broadcast, gather, scatter, allgather or alltoall may be columns of a matrix.  If coll_call.row is set, a
 * block of `count` elements is count / row rows.  In a buffer with a stride, each row begins that many elements after the
 * previous one.  If the buffer has a block for every rank, the blocks lie side by side: block i begins i * row elements after the
 * start.
 *     send_stride    of send: the one block, or in a scatter and an alltoall the blocks of all ranks
 *     recv_stride    of recv: the one block (also of a broadcast), or in a gather, allgather and alltoall the blocks of all ranks
 *     0              the blocks of this buffer are contiguous and adjacent, as without row
 *   Ranks must agree on count and type, not on row and strides.  In a message a block is its elements, row after row.  So an
 * allgather with row = wide / size and recv_stride = wide joins shards [rows][wide / size] to [rows][wide].  The alltoall above
 * converts a matrix from rows to columns; with recv_stride = wide it converts it back.
 *   In place works as above: the rank's own block is then at + rank * row, and both strides are equal; COLL_IN_PLACE implies
 * that.  Send and recv may lie between each other's rows if their strides are equal.  A stride that is shorter than its rows, a
 * count that is no multiple of row, and rows in any other kind return COLL_ERR_ARGUMENT.  Elements between rows are never
 * written.
 *   A block with a stride is packed when its request starts, and unpacked at the end.  The copy takes memory, which a blocking
 * call keeps for the next one.
 *
 * NUMBERS
 *         const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = n, .type = COLL_F32, .op = COLL_SUM,
 *                                  .flags = COLL_DETERMINISTIC };
 *         if (coll_run(comm, &call)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   Integers wrap.  COLL_AVG is the sum, divided afterwards; integers are summed in a wider type and truncated toward zero.  f16,
 * bf16 and the 8-bit floats are summed in f32 and rounded once, to nearest even.
 *   NaN propagates through every operation.  The result is the one canonical quiet NaN of its type.  For MIN and MAX, -0 is less
 * than +0.  Overflow becomes infinity (f8e4m3, which has none: NaN).  With COLL_SATURATE, overflow and infinite inputs become the
 * largest finite value of f16 and the 8-bit floats, for every operation and for such a wire; NaN remains NaN.
 *   LAND, LOR and LXOR treat every value except 0 as true, and return 1 or 0.  MINLOC and MAXLOC return the lower index if values
 * are equal.  Scans have no COLL_AVG.  An undefined combination, such as BAND of floats, returns COLL_ERR_UNSUPPORTED and sends
 * nothing; docs/reference.md has the table.
 *   A result has the same bits on every rank, and in every run on the same number of ranks.  Two flags guarantee more:
 *     COLL_DETERMINISTIC    the same bits for every message size, algorithm and transport: additions follow a pairwise tree over
 *                           the rank numbers (in scans: left to right).  If the grouping cannot matter (integers, MIN, MAX,
 *                           bits), this holds without the flag
 *     COLL_REPRODUCIBLE     a SUM or AVG of floats or complex numbers has the same bits for every order of the ranks, too
 *   With either flag the bits depend on the number of ranks.  With leaves they do not (see Leaves).
 *   COLL_REPRODUCIBLE: a result depends only on the inputs and their number.  Each input is rounded to a grid that the largest
 * input of that element determines.  This changes it by at most 2^-42 of the largest on up to 1,024 ranks (f64: 2^-84), and by
 * twice as much for each doubling beyond (f64: four times).  Then the sum is exact, and rounded once.  f16 and the 8-bit floats
 * lose nothing on up to 8,192 ranks.  AVG and scale are calculated in f64 from that sum; an AVG of f64 does not overflow on the
 * way.  A sum of zero is +0, also of -0 alone.  Only algorithms that combine all raw inputs at once are used, so partial sums are
 * never sent; the arithmetic costs several times that of a plain sum.  PROD of floats and COLL_USER do not support the flag.  In
 * scans, whose result depends on the order of the ranks, it means COLL_DETERMINISTIC; in all other calls its guarantee holds
 * anyway.
 *   A user-defined operation (COLL_USER) may be regrouped.  It may also be reordered unless not_commutative is set.  It and the
 * log hook must not call functions on communicators, except coll_abort: such a call returns COLL_ERR_ARGUMENT.  Every function
 * of the program that the library calls must return: it must not throw an exception (coll.hpp catches it) or call longjmp.
 *   With COLL_DETECT_OVERFLOW, a reducing call of floats or complex numbers whose result on this rank contains an infinity or a
 * NaN is counted; coll_overflows returns the number.  Calls that reduce nothing are not examined.
 *
 * LEAVES
 *         const coll_call step = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = n, .type = COLL_F32, .op = COLL_AVG,
 *                                  .first_leaf = rank, .leaves = 1 };
 *         if (coll_run(comm, &step)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   With leaves, a sum of floats or complex numbers has the same bits on every number of ranks.  A leaf is one input of the whole
 * job, such as the gradient of a micro-batch: a vector of `count` elements.  Leaves are numbered from 0: rank 0 has the first
 * ones, rank 1 the next ones, and so on.  Each rank passes its run: the number of its first leaf, and how many it has.  -1 means
 * none; the rank sends nothing.  0 means no leaves: an ordinary call.  All ranks pass leaves, or none does.
 *   The sum follows the dyadic tree over all leaves.  A node is the leaves k 2^j ... (k + 1) 2^j - 1, the sum of its two halves.
 * A half beyond the last leaf is absent: 7 leaves are ((0+1)+(2+3))+((4+5)+6).  COLL_AVG divides by the number of leaves.  The
 * sum is divided, scaled and rounded once.  So the result depends only on the leaves, not on ranks or transport.
 *   `send` has the nodes of the rank's run: the largest nodes that lie in it, one vector after the other, in the order of their
 * leaves.  The run 3 ... 9 has the nodes 3, 4-7 and 8-9: three vectors.  coll_sum_begin, coll_sum_add and
 * coll_sum_end make them and fill in the call (core/contract/coll_leaf_nodes.h).
 *   Elements of nodes have the type of the sum: f32 for floats of 8 and 16 bits, else `type`; or f64 if accumulate is COLL_F64.
 * Elements of recv have `type`.  In place, recv is the start of send; both types must be equal.  With a wire type only the result
 * is rounded to it, not the leaves.
 *   Ranks first exchange their runs, 16 bytes each.  If these do not adjoin, every rank gets COLL_ERR_MISMATCH.  If each rank has
 * one node, as with equal powers of two, or with 24 leaves on 5 ranks as 8, 8, 4, 2 and 2, the call then sends what it sends
 * without leaves.  If all ranks share memory, none is sent: each of p ranks reads its share of the V nodes of all, V / p vectors;
 * without leaves it reads one.  Otherwise nodes at the seams between ranks are sent to one rank and added there, if this saves
 * bytes.  So p ranks with V nodes send at most (p - 1)(1 + V / p) vectors; without leaves they send 2 (p - 1).  A run of n leaves
 * has at most 2 log2(n + 1) nodes.  24 leaves in equal runs on 5, 7 and 8 ranks take 1.38, 1.17 and 1.29 times the bytes.  Nodes
 * are sent in the type of the sum, results in the wire type.
 *   With COLL_REPRODUCIBLE, `send` has the leaves themselves, in `type`.  The same leaves then give the same bits in any order.
 *   Leaves are for COLL_SUM and COLL_AVG in an allreduce, and in an allreduce_list, whose items each have nodes in send.  Small
 * items share messages, as without leaves: their nodes are copied.  Each item of more than 64 KiB, and each MiB of smaller ones
 * of a type, is one sum with one exchange of runs.  COLL_STOCHASTIC, MX wires, residuals, named algorithms, GPU memory,
 * COLL_SMALL and COLL_TINY exclude leaves.
 *
 * REDUCED PRECISION
 *         coll_allreduce_mixed(comm, x, x, n, COLL_F32, COLL_BF16, COLL_AVG);
 *   With a wire type (coll_allreduce_mixed, coll_call.wire), each input is rounded to the wire type once, and the sum is rounded
 * to it once.  Every element of recv is such a value, converted to the type of the buffer.  Inputs and results are sent with
 * fewer bytes.  Partial sums, which some algorithms send, have the type of the sum.
 *   If the type is a float, the wire may be any float of at most as many bits.  If the wire has a greater range or more digits
 * than the type (f16 and bf16, f8e4m3 and f8e5m2), the conversion to the type rounds and overflows as any other; COLL_SATURATE
 * limits it to the largest number that both have.
 *   COLL_MXI8, COLL_MXF8E4M3 and COLL_MXF8E5M2 are wire types for f32, f64, f16 and bf16 (OCP MX).  32 elements share a power of
 * two in one byte: 1.03 bytes an element.  Elements are counted from the start of the vector; of its block in a reduce_scatter;
 * of a buffer in a list.  The error of an element of mxi8 is at most 2^-7 of the largest of its group.  The error of one of
 * mxf8e4m3 is 2^-4 of itself (of the largest 2^-3), of mxf8e5m2 2^-3 of itself, unless it is far below the largest.  A group is
 * NaN as a whole if it contains an infinity or a NaN, or if f16 cannot represent its result.  COLL_STOCHASTIC does not support
 * these types.
 *   Error feedback: if coll_call.residual is set, the call reduces what the wire can represent of input + residual.  It stores
 * the rest in residual for the next call of the same vector, so that over many calls no input is lost.  The residual begins as
 * zeros.  The rounding of the sum is not fed back.  The residual of an infinity or a NaN is 0; after an error it is undefined.
 *   With COLL_STOCHASTIC every rounding to a type of 16 bits or fewer goes up or down at random, in proportion to the distance.
 * The random numbers of an input depend on the seed, the rank and the index of the element; those of a result on the seed and the
 * index.  So all ranks have the same bits, and the same seed gives the same bits again; with COLL_DETERMINISTIC also for every
 * algorithm and transport.  Values that the type can represent are not changed.  In a list each buffer counts from 0, and its
 * position enters the numbers.  Use another seed in each training step.  In other calls the flag has no effect.
 *
 * WAITING
 *         coll_request *request;
 *         if (coll_iallreduce(comm, x, y, n, COLL_F32, COLL_SUM, &request)) return 1;
 *         coll_wait(request), coll_request_free(request);
 *   A blocking call is a start and a wait; it returns when this rank's part is complete.  A coll_i... call returns a request and
 * does not wait:
 *     coll_status coll_wait(coll_request *request);
 *     coll_status coll_test(coll_request *request);                                  COLL_PENDING: not finished
 *     coll_status coll_wait_all(int count, coll_request **requests);
 *     coll_status coll_wait_any(int count, coll_request **requests, int *index);
 *     void        coll_request_free(coll_request *request);
 *   The program must not use the buffers until coll_wait or coll_test reports that the request is finished.  Then it frees the
 * request.  A request that is freed while it runs continues in the background.  Its buffers must stay valid until it is known to
 * be finished: when a later collective of this communicator has returned, or for a message when the receiver confirms it.
 *   Collectives of one communicator run one after the other, in the order in which they were started.  They may be waited for in
 * any order.  Any call that starts, waits or tests progresses the operations of all communicators of the same coll_init.  Short
 * queued collectives run at the same time if this does not change their results.  Those that are started within microseconds of
 * each other are sent together, by the next call that waits or tests.  Therefore start many, and wait for all.
 *   coll_wait_any, coll_wait_some and coll_test_any report each completed request exactly once, no matter which thread or call
 * completed it.  A request that coll_test or coll_wait has already reported is skipped; coll_restart makes it eligible again.
 * These functions use the communicators of all requests that are pending.  If these belong to several coll_init, a wait polls
 * each in turn and sleeps at most a millisecond at a time.  A time limit counts while none of the requests finishes; the shortest
 * limit applies to all.
 *   Over TCP a progress thread of the library progresses operations between calls.  It is created when the first request is
 * started that does not finish at once.  It runs if requests have not been progressed for a tenth of a millisecond, sleeps if
 * there is nothing to do, and yields to every call.  It blocks all signals, runs on the processors of the thread that created it,
 * and may call the log hook.  It does not run user-defined operations (COLL_USER).  With COLL_BACKGROUND=off, and between
 * threads, operations progress only inside calls.
 *
 * PREPARED CALLS
 *         if (coll_prepare(comm, &call, &request)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         for (int step = 0; step < 3; step++) if (coll_restart(request) || coll_wait(request)) return 1;
 *         coll_request_free(request);
 *     coll_status coll_prepare(coll_comm *comm, const coll_call *call, coll_request **out);
 *     coll_status coll_restart(coll_request *request);
 *   coll_prepare checks and plans a call once; its request can be started many times.  Each prepared call has its own order, so
 * ranks may restart prepared calls in different orders.  A rank that restarts all of them before it waits for the first may do
 * both in any order.
 *   If a rank waits in between, there must be one order of these calls, the same for all ranks.  Every rank must restart all
 * earlier calls of that order before it waits for a call.  Otherwise ranks may deadlock: rank 0 restarts A and waits for it
 * before it restarts B, while rank 1 restarts B and waits for it before it restarts A.
 *
 * MESSAGES
 *         const int next = (rank + 1) % size, before = (rank + size - 1) % size, tag = 7;
 *         if (coll_sendrecv(comm, x, n, next, y, n, before, COLL_F32, tag)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   coll_send, coll_recv and coll_sendrecv are not part of the order of collectives.  They are matched by (source, tag) within a
 * communicator, in the order sent; their types must agree.  COLL_ANY_SOURCE and COLL_ANY_TAG (coll_recv; for coll_sendrecv the
 * source only) match the first message that arrives.  coll_received returns its source, tag and count.
 *   Short messages are buffered until they are received, up to a limit; longer ones wait for the receiver.  So a program must not
 * rely on coll_send returning before the receive is started.  If the sender of a short message calls coll_free at once, coll_free
 * delivers the message first.  This takes up to 10 s if the receiver is busy, or if unauthenticated peers occupy its port.
 *
 * COMMUNICATORS
 *         coll_comm *half;
 *         if (coll_split(comm, rank % 2, 0, &half)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         coll_barrier(half), coll_free(half);
 *     coll_status coll_split(coll_comm *comm, int color, int key, coll_comm **out);
 *     coll_status coll_split_host(coll_comm *comm, coll_comm **out);
 *     coll_status coll_dup(coll_comm *comm, coll_comm **out);
 *     coll_status coll_create(coll_comm *comm, const int *ranks, int count, int tag, coll_comm **out);
 *   These functions make communicators from some or all ranks of another one.  Collectives, orders and messages of different
 * communicators never interfere.  All communicators derived from one coll_init share its connections.  If any of them fails, all
 * of them fail.
 *   coll_free may be called in any order, and at different times on different ranks.  It first delivers the messages that this
 * rank has sent.  Calls of other ranks on this communicator that still need this rank then fail with COLL_ERR_PEER:
 *     collectives in which it has not done its part; receives that name it; long messages to it; and receives from any source
 *     when all other ranks have freed the communicator
 *   All other calls continue: messages among the other ranks, and receives from any source that one of them serves.  A call that
 * needs the rank fails at once, or after it has waited a tenth of a second or more.  Over TCP, where data may still be in
 * flight, it fails when nothing has arrived for liveness_timeout_ms since then, and never if liveness_timeout_ms is -1.  Only a
 * thread that waits or tests detects it.  Over MPI and transports that the program supplies, coll_free sends a message for this.
 *
 * THREADS
 *         coll_comm *other;
 *         if (coll_dup(comm, &other)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         coll_free(other);                         a second thread may use `other` while this one uses `comm`
 *   One thread at a time may use a communicator and its requests.  A second thread gets COLL_ERR_ARGUMENT, and coll_error on that
 * thread says so.  It need not always be the same thread.  Different communicators, also of one coll_init, may be used from
 * different threads at the same time, also to make others.  coll_abort may be called from any thread at any time except during
 * coll_free.  In a simulated job all ranks are one thread.  A communicator cannot be used in a forked child (COLL_ERR_FORKED);
 * only coll_free works there.  A forked child that does not call exec keeps the connections of its parent open (see TIME LIMITS).
 *
 * MEMORY
 *         static unsigned char memory[256 << 10];
 *         coll_config frugal = { .size = 1, .allocator = coll_arena_begin(memory, sizeof memory) }; (void)frugal;
 *   A communicator, and everything that is made from it, takes its memory from the coll_allocator of its configuration, or from
 * malloc.  An arena is an allocator for one block of memory (core/contract/coll_memory.h).  If an allocation fails, the call
 * returns COLL_ERR_MEMORY or continues without it.  A call that repeats an earlier one allocates nothing; a new request reuses
 * the memory of one that was freed.  Collectives that run at the same time either allocate separately or wait for each other.
 *
 * BOOTSTRAP
 *         coll_config config = { .rank = 0, .size = 1, .address = "10.0.0.1:5000", .tcp = { .network = "10.0.0.0/16" } };
 *         coll_comm *world;
 *         if (coll_init(&world, &config)) return 1;
 *   Over TCP every rank connects to rank 0, and retries until start_timeout_ms.  The address of rank 0 is one of
 *     host:port, [v6]:port, :port     a number or a name.  All addresses of a name are tried, 250 ms apart; link-local ones
 *                                     need their interface.  ":port" means all addresses of rank 0's host
 *     host:0, :0                      on rank 0 only: any port.  `listening` receives it, and the program passes it to the others
 *     file:PATH                       a rendezvous file in a directory that all ranks share: rank 0 writes its address there, and
 *                                     removes the file when all have joined.  A file of an earlier job does no harm
 *     hosts                           a list: entry i is where rank i listens, the first is rank 0's
 *   A rank listens at the address from which it reached rank 0, at a port out of `ports` if that is set.  `network` selects other
 * addresses: interfaces (eth1, ib*), addresses, subnets (10.1.0.0/16), and exceptions after a ^.  Loopback addresses are used
 * only between ranks of the same host (kernel and network namespace).  The system looks up names, which may take longer than the
 * time limit.
 *   Rank 0 logs every 5 s which ranks are missing.  When the time is over, every rank that reached rank 0 reports this, and the
 * others report which addresses they tried and the result of each.  Ranks of another world (COLL_WORLD, size, protocol, and the
 * job and its restart or step by torchrun, Slurm and others), or with different arithmetic (see Compiling), are refused with a
 * sentence, and rank 0 continues to wait.
 *   If no address is given, these are used: MASTER_ADDR and MASTER_PORT (under torchrun the next port, if its agent has that
 * one); under Slurm the first host of the step, and a port from 20000 to 29999 that job and step determine; if Open MPI, MPICH,
 * Flux or PALS have started all ranks on one host, a file in $TMPDIR or /dev/shm.  Rank 0 must run on the host of that address.
 * If it does not, both ends report it.
 *
 * SECURITY
 *         coll_config guarded = { .size = 1, .tcp = { .key = "one secret of 16 bytes or more", .security = "key" } };
 *         coll_comm *alone;
 *         if (coll_init(&alone, &guarded)) return 1;
 *   A key is a secret of 16 bytes or more that all ranks share.  Use 32 random bytes: an attacker who talks to a rank can guess
 * at a passphrase without limit.  With a key both ends of every connection prove that they know it before anything else is read,
 * by HMAC-SHA256 over both ranks, the purpose, the job and fresh random numbers.  A process with another key or none gets
 * COLL_ERR_DENIED and a sentence; the ranks continue to wait for the missing rank.
 *   `security` selects the protection, and must be the same on all ranks:
 *     key          no more than that: every host on the network can read and change data.  Authentication is not encryption
 *     tls          everything after the handshake is encrypted and protected from changes: TLS 1.3, by OpenSSL, with the key as
 *                  its secret.  Requires COLL_WITH_OPENSSL (-lssl -lcrypto), and is then the default if there is a key
 *     key+check    checksums (CRC32C) for every 64 KiB: detects accidental changes, not deliberate ones
 *     open+check   the same without a key, also at public addresses
 *     open         no key; public addresses may be used
 *   If changed bytes are detected (tls, check), the call returns COLL_ERR_PROTOCOL.  coll_explain and the first line of the log
 * name the security in use.  If there is a key, `security` is not set, and this program was compiled without OpenSSL, rank 0
 * warns when ranks of other hosts join.
 *   Without a key, a process that reaches the port and knows the size and COLL_WORLD can join.  Therefore ranks then listen at
 * private addresses only (loopback, RFC 1918, unique local, link-local, CGNAT), unless security is open; rank 0 logs once when
 * ranks of other hosts join.  Each rank listens at one address: rank 0 at its given address, the others at the address from which
 * they reached it.
 *   If a key is set, only authenticated refusals end a connection attempt.  Unauthenticated refusals are ignored: the rank
 * retries, and logs a warning after 3 s.  After its start timeout it returns COLL_ERR_DENIED with that text; the same if rank 0
 * has no key.  Between ranks that have connected before, that time is liveness_timeout_ms, from 3.5 to 20 s.
 *   Unauthenticated connections use bounded memory and are evicted first.  With a key a rank answers 200 of them a second, and
 * one more for each rank; those that then prove the key do not count.  No value that they send is used as a size or an index
 * before it has been checked.
 *   A key file must belong to the user who runs the program, or to root, and no other user may have any right to it (chmod 600);
 * otherwise it is refused.  Two exceptions: root may use a file of any owner, as containers that run as root do; and a file of
 * root may be readable by its group (chmod 640), as secrets are mounted.  The key itself is in no message, log or sentence; the
 * library wipes its copies.  A rank that has the key is trusted by all.
 *
 * ENVIRONMENT
 *   Members of a coll_config that have their defaults are read from these variables, except the log function.  Switches are on or
 * off; 1 and 0 are understood.  If the name of a variable differs from one of them by a letter, a warning is logged.
 *     COLL_RANK, COLL_SIZE, COLL_ADDR=host:port       this rank, the number of ranks, and where rank 0 listens
 *     COLL_HOSTS, COLL_NETWORK, COLL_PORTS            see Bootstrap.  Without COLL_NETWORK: NCCL_SOCKET_IFNAME or
 *                                                     GLOO_SOCKET_IFNAME, as far as they name an address of this host
 *     COLL_LOCAL_RANK, COLL_LOCAL_SIZE                among the ranks of this host (default 0 of 1)
 *     COLL_THREADS                                    how many ranks this process must make; another number is an error.
 *                                                     coll-run sets all of these (COLL_THREADS=T with --threads T, else 1),
 *                                                     COLL_WORLD, and with several hosts COLL_KEY
 *     COLL_WORLD=text, COLL_SITE=text                 separates jobs that use the same address; where this host is (see Hosts)
 *     COLL_TRANSPORT=tcp|threads|sim|mpi, COLL_SIM=text, COLL_MPI=auto|native|messages|blocking       see Simulation, MPI
 *     COLL_KEY=secret, COLL_KEY_FILE=path, COLL_SECURITY=open|key|tls, or +check       see Security.  The first line of the file;
 *                                                     no other user may read it
 *     COLL_IO=auto|uring|poll                         auto: io_uring if it is available, else poll
 *     COLL_SHARE, COLL_SHM_COLLECTIVES=on|off         off: processes of one host use TCP, or shared memory for messages only
 *     COLL_LANES=1                                    connections to each peer, the same number on all ranks, up to 16.  More
 *                                                     help on links with a long latency, or with a limit for each connection.
 *                                                     A message of more than 64 KiB uses all that have room for it.
 *                                                     Between processes of a host one is enough, unless COLL_SHARE=off
 *     COLL_ELASTIC=N                                  how many processes may wait to join (coll_grow)
 *     COLL_JOIN=on, COLL_JOINED=FD                    coll_init joins (coll_join); it then writes a byte to descriptor FD
 *     COLL_BACKGROUND=on|off                          whether operations progress while the program computes (see Waiting)
 *     COLL_ALGORITHM=allreduce=ring,alltoall=circulant:4      see Algorithms
 *     COLL_TUNING=path                                see Tuning
 *     COLL_SPIN_US, COLL_START_TIMEOUT_MS, COLL_STALL_TIMEOUT_MS, COLL_LIVENESS_TIMEOUT_MS
 *                                                     as the member: -1 means none, or never; 0 is refused
 *     COLL_DUMP=directory                             see After a failure
 *     COLL_DEBUG=none|error|warn|info                 what is logged: to the hook, else to stderr (default: warn)
 *   Launchers: the variables of torchrun, Open MPI, MPICH (Hydra, Intel), MVAPICH, Flux, PALS, jsrun and Slurm are
 * understood.  The first complete set is used; sets that disagree are an error.  If none is complete, those of LeaderWorkerSet,
 * SkyPilot and AWS Batch are used, for a program that is started once on each pod or node.  PMIX_RANK, JOB_COMPLETION_INDEX (also
 * 0) and PET_NNODES without a complete set are an error: they show that there are other ranks, but not how many.  COLL_SIZE=1,
 * which needs no COLL_RANK, declares that this process is alone.
 *
 * ERRORS
 *         const coll_status status = coll_allreduce(comm, x, y, n, COLL_F32, COLL_BAND);
 *         if (status == COLL_ERR_UNSUPPORTED) fprintf(stderr, "%s: %s\n", coll_status_text(status), coll_error(comm));
 *     const char *coll_error(const coll_comm *comm);               the last error as a sentence; NULL: of a failed coll_init
 *     const char *coll_status_text(coll_status status);            the fixed text of a status
 *     coll_status coll_abort(coll_comm *comm, const char *why);    ends the communicator on all ranks
 *   Every call returns a coll_status.  COLL_ERR_ARGUMENT and COLL_ERR_UNSUPPORTED mean that nothing was sent, and the
 * communicator is unchanged.  The same holds for COLL_ERR_MEMORY if it occurs before anything is sent; the other ranks then wait
 * for this one.
 *   Any other error ends the communicator on every rank.  Pending and later calls return the same cause at once; only coll_free,
 * coll_shrink and coll_agree remain useful.  A rank that has not been notified yet may still finish a call for which it has all
 * data, while the same call fails on another rank.  A call that begins after the notification never returns COLL_OK; between
 * ranks that share memory, after any rank has returned the error.  After an error recv is undefined.
 *   The sentence of coll_error says which rank, which call, which address and why.  If a communicator cannot be made, it is also
 * logged as an error, so a program need not print it.  If one ends, it is logged as a warning, once on each rank.
 * "allreduce #17" in a sentence is the 17th collective of the communicator, of whatever kind.
 *   coll_abort may be called from any thread.  Between threads, and over TCP unless liveness_timeout_ms is -1, it may also be
 * called from a signal handler.  The library never exits, aborts or raises a signal.
 *
 * TIME LIMITS
 *         coll_call limited = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = n, .type = COLL_F32,
 *                                     .timeout_ms = 30000 };
 *         if (coll_run(comm, &limited)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   Late ranks.  A rank that is alive but late is waited for.  After 10 s, and then at doubling intervals, a line on the log
 * names it, and over TCP says what it does.  timeout_ms (of a call) or stall_timeout_ms (of a communicator) turn lateness into
 * COLL_ERR_TIMEOUT.  They count from when the program begins to wait, or to test while each test finds the call running.  A rank
 * that waits in the same call itself is not named: coll_failed_ranks then returns none.
 *   Dead ranks.  A process that ends is detected at once, unless a forked child of it continues without calling exec.  Such a
 * child holds the connections open.  The death is then detected as silence is; with liveness_timeout_ms < 0, when the child ends.
 *   If a rank sends no heartbeat for liveness_timeout_ms, it is declared dead: it is stopped, or its host or cable has failed.  A
 * thread of each rank sends heartbeats to rank 0, also while the program computes, and rank 0 sends them to all: eight times in
 * liveness_timeout_ms.
 *   Silence is measured from the last heartbeat received, and checked at the limit plus one such interval.  So a rank that is
 * stopped for less than the limit is never declared dead.  A rank that is silent for good always is, and all ranks know it a
 * round trip later.  Data that has arrived is read before any rank is declared dead, so a rank that was stopped itself
 * declares no other rank dead for that reason.  Ranks that fall silent after the first failure are detected in the
 * same way; coll_failed_ranks returns them.
 *   The ranks of a host share a lock in memory.  If a process is stopped while it holds the lock, calls that make communicators
 * fail after 10 s, or after twice liveness_timeout_ms if that is more.  coll_free continues without the lock after 10 s.
 *   All survivors name the same rank in the same words: rank, host, process, address.  If not even the other host answers, they
 * name the link between two ranks, because it is unknown which end has failed.
 *   A connection between two ranks is checked in the same way.  It has failed if data in flight, or a probe every interval (1 s
 * at least), is not acknowledged for the limit plus one interval.  If a connection cannot be made because nothing answers, it is
 * tried for four times the limit (4 s at least), since other connections may occupy the port.
 *   When rank 0 has left in good order before the others, each of those asks the ranks that it waits for, and passes on what it
 * finds.
 *   liveness_timeout_ms = -1 is for programs that must not have an additional thread.  These detect only processes that end, and
 * ranks that are silent in coll_shrink for 10 s, or until its start_timeout_ms.  They accept connections only while they are in a
 * call.  TCP then detects a host that vanishes: after 25 s without traffic, or after the 15 minutes for which Linux retransmits.
 *
 * AFTER A FAILURE
 *         coll_comm *left;
 *         if (status == COLL_ERR_PEER && coll_shrink(comm, &left) == COLL_OK) coll_free(comm), comm = left;
 *     coll_status coll_shrink(coll_comm *comm, coll_comm **out);
 *     coll_status coll_agree(coll_comm *comm, uint64_t *flags);            before a failure, too
 *     int         coll_failed_ranks(const coll_comm *comm, int *ranks, int capacity);
 *     void        coll_dump(coll_comm *comm, void (*line)(void *context, const char *text), void *context);
 *   coll_failed_ranks returns the ranks that are known to have failed.  coll_shrink makes a communicator of the remaining ranks.
 * A rank that was given up writes nothing into their memory, even if it continues later.  Inputs are unchanged unless in place.
 * Some ranks may have the result of the failed call, and others the error.  Therefore agree on where to continue, by coll_agree
 * before coll_shrink, or after it for example by an allreduce of the last complete step.  Both require a quorum: more than half
 * of the ranks, or exactly half including rank 0.  So a partitioned network never yields two jobs; a rank without a quorum gets
 * COLL_ERR_PEER.  If rank 0 is disconnected from most others, rank 0 is given up.  Over TCP other processes may join (coll_grow,
 * coll_replace).  coll_dump reports the last 256 operations to a function, or on stderr.  With COLL_DUMP=directory every rank
 * writes them there when its communicator fails: coll-RANK.json (after a coll_shrink coll-RANK.1.json, ...).
 *
 * ALGORITHMS
 *         char why[512];
 *         coll_explain(comm, &call, why, sizeof why);
 *         printf("%s\n", why);
 *   A cost model chooses the algorithm; coll_explain prints the choice, its predicted time, and the next best ones.  Between
 * threads the transport has its own method, by memory.  coll_call.algorithm = "ring" or "circulant:4" selects one for a call,
 * also between threads; after the colon is the radix r, or the number of blocks or slices n.  An unknown name, or one that the
 * call cannot use, returns COLL_ERR_UNSUPPORTED.  COLL_ALGORITHM selects algorithms for all calls that can use them; an unknown
 * name is an error of coll_init.  Both must be the same on all ranks.
 *     barrier                     circulant:r tree:r
 *     broadcast                   tree:r scatter:r blocks:n dbtree:n
 *     reduce                      gather:r direct tree:r blocks:n dbtree:n
 *     allreduce                   gather:r direct:r shares circulant:r ring tree:r dbtree:n census
 *     reduce_scatter, ...v        gather:r tree:r direct circulant:r ring
 *     scan, exscan                gather:r transposed census chain:n
 *     gather, scatter, ...v       tree:r direct
 *     allgather, ...v             circulant:r ring tree:r
 *     alltoall, ...v, ...w        circulant:r direct
 *   These keep the order of COLL_DETERMINISTIC: gather, direct and shares (reductions), the trees of allreduce and
 * reduce_scatter, transposed and chain (scans).  These, the census of scans and the dbtree of allreduce also support operations
 * that do not commute.  The census of allreduce supports only operations whose grouping cannot matter.  If blocks have different
 * counts, tree and circulant send short blocks in packets, and longer ones directly (coll_explain prints the limit).
 * neighbor_... calls have only direct.
 *
 * HOSTS
 *         coll_comm *host;
 *         if (coll_split_host(comm, &host)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         coll_free(host);
 *   If ranks share hosts, and there are several hosts, a collective is hierarchical.  It consists of collectives among the ranks
 * of a host (intra), by memory if they are threads, and of collectives among one rank of each host (inter).  The vector is
 * divided into as many slices as the smallest host has ranks, and the inter collectives of all slices run at the same time.  An
 * allreduce over H hosts then sends 2 (H - 1) / H of the vector from each host, however many ranks it has.
 *   16- and 8-bit floats, and sums over a wire type, are still rounded once.  Their sums are sent between hosts as f32, 1.5 times
 * the bytes of 16 bits; with COLL_ROUND_TWICE in the wire type.
 *   Sites are groups of hosts that share a link to the other sites: racks, switches, data centers.  A rank gives its site as
 * COLL_SITE or coll_config.site (any text), or a tuning file does.  Between sites, collectives then send what one rank of each
 * site would send; within a site they are hierarchical by hosts.  Example: with two sites of 3 hosts and 0.25 Gbit/s between
 * them, an allreduce of 8 MiB takes 0.29 s instead of 1.03 s.
 *   These calls are never hierarchical: gather, scatter, alltoall, the neighbor calls, averages of integers, calls that name an
 * algorithm, calls with mx wires, with COLL_STOCHASTIC, and with COLL_DETERMINISTIC or COLL_REPRODUCIBLE if bits depend on the
 * order.  Scans, reduce_scatter and operations that do not commute are hierarchical only if the ranks of each host are
 * consecutive.
 *
 * TUNING
 *         char link[256];
 *         coll_link_text(comm, link, sizeof link), printf("%s\n", link);
 *   The cost model has four numbers.  They are built in, or read from a file, or (transport sim) those of the simulated machine.
 * coll_explain says which, and coll_link_text writes them in the form of the file:
 *     latency=12us overhead=1.2us gbit=10 reduce=4GB/s
 *   latency is the time until a message arrives; overhead the time of one more message at the same time; gbit the bits on the
 * wire a second (or wire=, a rate); reduce the bytes added a second.  barrier= in files of earlier versions is ignored.  Values
 * that the file does not contain are those built in; # begins a comment.
 *   If hosts have links of different rates, the numbers are those of the slowest, and faster=0-2:2.5 says that the links of ranks
 * 0 to 2 have 2.5 times its rate; 4: is rank 4, and 4-: all ranks from 4 on.  Such words are in rising order, and ranks without
 * one have the slowest link.  A long allreduce then gives each rank a share that its link can carry: if one link of four has half
 * the rate of the others, it takes two thirds of the time.  Its bits are the same.
 *   site=8 site=16 say that another site begins at ranks 8 and 16 (see Hosts), up to eight times.  far_latency= and far_gbit=
 * describe the link between sites: the time until a message arrives, and the rate of the link of a site.
 *   coll-check measures the links between every two ranks, and writes such a file for jobs on the same hosts:
 *     coll-run -H a:4,b:4,c:4 coll-check --tuning job.tuning
 *     COLL_TUNING=job.tuning coll-run -H a:4,b:4,c:4 ./program
 *   Rank 0 reads the file, and sends its numbers to the others while they connect.  Only rank 0 needs tuning_file or COLL_TUNING;
 * on other ranks both are ignored.  coll_init_custom reads no file.
 *   A file may change the bits of sums of floats, because it may change the grouping.  With the same file they are the same in
 * every run.
 *
 * SIMULATION
 *         COLL_TRANSPORT=sim COLL_SIM="latency=12us overhead=1.2us gbit=10 reduce=4GB/s hosts=8 seed=7 kill=3@120" ./program
 *   If COLL_TRANSPORT=sim is set, coll_spawn runs all ranks in the calling thread, up to 65536 of them, under a virtual clock
 * (coll_sim_time): the same engine and algorithms on a simulated machine.  Each rank has its own stack, and runs until it waits
 * in a call of the library.  Computing takes no virtual time.  A rank that waits in any other function stops all of them.  All
 * ranks share static and thread-local variables, and coll_error(NULL).  Conflicts between ranks in such variables are not
 * detected.
 *   COLL_SIM describes the machine and the faults:
 *     latency, overhead, local_latency, far_latency, jitter, detection = a time (ns, us, ms, s); gbit = Gbit/s; wire, local, far,
 *     reduce = a rate (GB/s, MB/s, Gbit/s, Mbit/s); hosts = how many, or per_host = ranks on each; sites = how many, each with a
 *     link to the others of rate far; capacity = messages in a channel (0: a send waits for its receive); seed; stack (KiB, MiB)
 *     kill=3@120   kill=3@1.5ms   stop=...            rank 3 at its 120th call of the transport, or at a time
 *     cut=4-7@1ms                                     ranks 4 to 7 from all others
 *     lose=2>1@5   late=2>1@5+3ms                     message 5 from rank 2 to rank 1; without @: all of them
 *     slow=3:0.5   slow=3:0.5@1ms                     the network of the host of rank 3 to half its rate
 *   coll_init_threads with transport "sim" gives all ranks to one thread, which starts operations on each and polls (coll_test).
 * If no operation can progress any more, every rank gets COLL_ERR_TIMEOUT and a sentence that names the waiting ranks and calls,
 * or COLL_ERR_MISMATCH if two wait in different calls.  The same seed gives the same order of events.  A rank that is killed or
 * stopped does not affect the result of coll_spawn.
 *   With `elastic` in the coll_config of coll_spawn so many more ranks wait, and have the numbers behind the others in COLL_SIM.
 * coll_grow and coll_replace take them: each calls the function of coll_spawn with the new communicator.
 *
 * MPI
 *         #define COLL_WITH_MPI 1                                       compiled by mpicc
 *         if (coll_wrap_mpi(MPI_COMM_WORLD, &comm)) return 1;
 *   coll_wrap_mpi makes a communicator of the ranks of an MPI communicator; coll_init with COLL_TRANSPORT=mpi uses
 * MPI_COMM_WORLD.  The latter calls MPI_Init_thread if the program has not, and then MPI_Finalize when the last communicator of
 * that coll_init is freed.  This manual holds for MPI too, with the following exceptions.
 *   Calls that MPI does correctly are handed to it: those that only move elements, reductions of integers of 32 and 64 bits
 * (except min and max of unsigned ones), sums and products of f32 and f64 without flags.  Not handed to MPI: alltoallw, neighbor
 * calls, before MPI 4 v forms, and prepared calls.  The library itself carries out all other calls, over messages of MPI.
 * coll_explain says which way and why.
 *   COLL_MPI=messages hands nothing to MPI.  COLL_MPI=native hands everything to MPI, and returns COLL_ERR_UNSUPPORTED for what
 * MPI does not do correctly.  auto is both.  If all ranks wait for a call, auto uses MPI's blocking form, which is faster; ranks
 * of one host with a processor each detect this in shared memory.  The call then begins when the last rank has made it, and time
 * limits end there.  In all other cases auto uses the non-blocking form.  COLL_MPI=blocking, for programs that make blocking
 * calls only, is auto with blocking forms always: all calls, also coll_i..., then wait for the others when they start, without
 * limits or warnings.
 *   Sums of floats by MPI have the bits that MPI calculates: the same on all ranks and in every run as far as MPI guarantees
 * that.  The flags, and COLL_MPI=messages, avoid MPI's sums.  NaN in such sums depends on the processor.
 *   Ranks that disagree about a call of MPI are detected when both have waited 100 ms, or by an error of MPI, which does not name
 * both calls.  MPI may also accept two different calls as one; COLL_MPI=messages compares all.
 *   After a failure MPI may still use the buffers of pending operations until MPI_Finalize, because MPI cannot cancel them.
 * MPI_Finalize may then not return: programs end by MPI_Abort.  If a process dies, MPI ends the job; there are no heartbeats and
 * no coll_shrink.
 *   Threads: below MPI_THREAD_SERIALIZED only the thread that made the communicator may use it; with SERIALIZED no two threads
 * may be inside MPI or this library at the same time.  coll_split, coll_dup and coll_create wait for all members inside MPI, so
 * two threads of a rank must not make communicators at the same time.
 *
 * GPUS
 *         if (coll_init_nccl(host, device, stream, &gpu)) return fprintf(stderr, "%s\n", coll_error(host)), 1;
 *         coll_iallreduce(gpu, gradient, gradient, n, COLL_BF16, COLL_SUM, &request);
 *         next_kernel<<<grid, block, 0, stream>>>(gradient);            reads the sum; the host has not waited
 *   With COLL_WITH_NCCL, coll_init_nccl and coll_wrap_nccl make communicators whose buffers are in the memory of a GPU, or in
 * pinned or managed memory, which the GPU can access.  libnccl.so.2 (2.18 or later) and libcuda.so.1 are loaded when the first
 * one is made: those that the program has already loaded, or those that COLL_NCCL_LIB and COLL_CUDA_LIB name.  They are not
 * needed to compile or to link.  All other functions are the same, with the following exceptions.
 *   Every call is enqueued in a stream of the GPU when it is started.  Buffers are read and written when the stream executes it.
 * Work that is enqueued after a call sees its result; its input contains what was enqueued before.  The host need not wait.
 * coll_wait and blocking calls wait on the host, with time limits, and detect a failure of any rank.  Waiting for the stream by
 * other means does not.
 *   coll_isend and coll_irecv are enqueued together with those that follow at once, by the next other call on the communicator.
 * Only this makes an exchange of two ranks, and a message to the own rank, possible.
 *   Ranks issue all calls of all communicators of one device in the same order, including restarts of prepared calls and messages
 * between two ranks.  Messages match in the order in which they are started, with the same count at both ends; tags are ignored.
 * COLL_ANY_SOURCE, COLL_ANY_TAG and a blocking message to the own rank alone return COLL_ERR_UNSUPPORTED.
 *   How a call is carried out:
 *     NCCL itself          calls that only move data; sums, products and integer MIN and MAX of the types that it has.  Those of
 *                          floats have its guarantee, not that of Numbers; an average, or a scale, is one more step
 *     NCCL and kernels     with the bits of the CPU: f16 and bf16, and f32 over such a wire, in f32 with one rounding; MIN and
 *     of the library       MAX of floats, bits and logic, averages of integers, scans, 16-bit integers; f32 and f64 with
 *                          COLL_DETERMINISTIC
 *     the host             all others: COLL_USER, pairs, products of complex numbers, 8-bit floats, mx wires, residual,
 *                          COLL_REPRODUCIBLE, COLL_STOCHASTIC, COLL_SATURATE, a named algorithm.  In pinned memory, over the
 *                          connections of the host; such a call waits for the stream and the other ranks when it is started,
 *                          also coll_i... calls
 *   coll_explain says which way a call is carried out.
 *   While the stream is captured into a graph, calls are recorded and return at once with COLL_OK.  Those that the host carries
 * out return COLL_ERR_UNSUPPORTED then.  Memory that a call needs must exist from an earlier, similar call.
 *   Communicators of one coll_init_nccl may be used from different threads at the same time, others on the same device may not.
 * After a failure NCCL's communicators are aborted, and pending work in the stream ends.  The owner of a wrapped communicator
 * must abort it.
 *
 * GLOSSARY
 *     algorithm       the messages of a collective: which rank sends which blocks to which rank in which round
 *     block           the elements of one rank, or for one rank, in a buffer
 *     collective      a call that all ranks of a communicator make together
 *     communicator    ranks that make collectives together, in an order of their own
 *     engine          the part of the library that carries out calls by messages, round by round
 *     heartbeat       a message that says only that a process is alive
 *     hierarchical    composed of collectives within hosts (intra) and between hosts (inter)
 *     lane            one of several connections between two ranks
 *     order           calls that run one after the other; a communicator and each prepared call have one
 *     prepared call   a call that is checked and planned once, and started many times
 *     progress        carrying on pending operations; the progress thread does so while the program computes
 *     rank            one of the processes or threads that work together, and its number
 *     rendezvous file the file in which rank 0 writes where it listens
 *     request         one operation that was started, until the program frees it
 *     root            the one rank that has the input, or gets the result
 *     slice           one of the parts into which the engine divides a long vector, to have several in flight
 *     transport       what carries bytes between ranks: threads, tcp, sim, mpi, or one that the program supplies
 *     wire type       the type in which a reducing call sends elements
 *     world           the ranks of one coll_init or coll_spawn
 */
#ifndef COLL_H
#define COLL_H

#if defined(COLL_IMPLEMENTATION) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1                         /* sockets, mmap and syscall under -std=c11 */
#endif

#include "core/base/coll_features.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COLL_VERSION_MAJOR 0
#define COLL_VERSION_MINOR 4
#define COLL_VERSION_PATCH 0
#define COLL_VERSION (COLL_VERSION_MAJOR * 10000 + COLL_VERSION_MINOR * 100 + COLL_VERSION_PATCH)

#if defined(COLL_STATIC) && defined(COLL_API)
#error "COLL_STATIC defines COLL_API: define one of the two"
#elif defined(COLL_STATIC)
#define COLL_API __attribute__((unused)) static
#elif !defined(COLL_API)
#define COLL_API extern
#endif

/* Every public enum has 32 bits, also with -fshort-enums. */
#define COLL_INT32 __attribute__((mode(SI)))

#ifdef __cplusplus
extern "C" {
#endif

/* Return the COLL_VERSION of the library.  A program that is linked with libcoll compares it with its own. */
COLL_API int coll_version(void);

/* ---- >>status: 0: done; positive: not yet; negative: an error ---- */

#define COLL__STATUS_TABLE(row)                                                                     \
    row(COLL_OK,                0, "done")                                                          \
    row(COLL_PENDING,           1, "not finished yet")                                              \
    row(COLL_ERR_ARGUMENT,     -1, "wrong argument; nothing was sent")                              \
    row(COLL_ERR_MEMORY,       -2, "out of memory")                                                 \
    row(COLL_ERR_SYSTEM,       -3, "a system call failed")                                          \
    row(COLL_ERR_TIMEOUT,      -4, "a rank is alive but late")                                      \
    row(COLL_ERR_PEER,         -5, "a rank is gone or unreachable")                                 \
    row(COLL_ERR_MISMATCH,     -6, "ranks made different calls")                                    \
    row(COLL_ERR_PROTOCOL,     -7, "received bytes that are not ours, or of a different version")   \
    row(COLL_ERR_DENIED,       -8, "wrong or missing key")                                          \
    row(COLL_ERR_UNSUPPORTED,  -9, "not available here; nothing was sent")                          \
    row(COLL_ERR_ABORTED,     -10, "the operation was given up")                                    \
    row(COLL_ERR_FORKED,      -11, "a communicator cannot be used in a forked child")

#define COLL__STATUS_NAME(name, value, text) name = value,
typedef enum coll_status { COLL__STATUS_TABLE(COLL__STATUS_NAME) } COLL_INT32 coll_status;
#undef COLL__STATUS_NAME

/* Return the fixed text of a status: "a rank is gone or unreachable". */
COLL_API const char *coll_status_text(coll_status status);

/* ---- >>types and operations ---- */

/* Numbered from 1: 0 in a descriptor means "default". */
typedef int32_t coll_type;
enum {
    COLL_I8 = 1, COLL_I16, COLL_I32, COLL_I64, COLL_U8, COLL_U16, COLL_U32, COLL_U64,
    COLL_BOOL,                                    /* one byte; every value but 0 is true                      */
    COLL_F16,                                     /* IEEE 754 binary16                                       */
    COLL_BF16,                                    /* the upper half of a binary32                            */
    COLL_F8E4M3, COLL_F8E5M2,                     /* OCP 8-bit floats; e4m3 has no infinity                  */
    COLL_F32, COLL_F64,
    COLL_C64, COLL_C128,                          /* complex: two f32, two f64                               */
    COLL_F32_I32, COLL_F64_I32, COLL_F64_I64,     /* (value, index), laid out as the C struct of the two     */
    COLL_I32_I32, COLL_I64_I32, COLL_I64_I64,
    COLL_MXI8, COLL_MXF8E4M3, COLL_MXF8E5M2       /* for `wire` only: OCP microscaling, blocks of 32 elements of 8 bits with a
                                                     power of two for all of them, 33 bytes; coll_type_size is 0      */
};

/* Opaque elements of 1 to 2^30 - 1 bytes.  They are copied unchanged, and reduced by COLL_USER only. */
#ifdef __cplusplus
static constexpr coll_type coll__blob(long long bytes) { return static_cast<coll_type>(0x40000000 | bytes); }
#define COLL_BLOB(bytes) coll__blob(bytes)
#else
#define COLL_BLOB(bytes) ((coll_type)(0x40000000 | (bytes)))
#endif

typedef enum coll_op {
    COLL_SUM, COLL_PROD, COLL_MIN, COLL_MAX, COLL_AVG, COLL_BAND, COLL_BOR, COLL_BXOR, COLL_LAND, COLL_LOR, COLL_LXOR,
    COLL_MINLOC, COLL_MAXLOC, COLL_USER
} COLL_INT32 coll_op;

/* A user-defined operation: inout[i] = in[i] op inout[i].  `in` is the part of the lower ranks.  It must be associative.
 * Elements are never split, and pointers are aligned to 16 bytes.  It runs only inside a call of this library, on the thread
 * that last used the communicator. */
typedef void coll_reduce_fn(const void *in, void *inout, size_t count, coll_type type, void *context);

typedef enum coll_kind {
    COLL_BARRIER = 1, COLL_BROADCAST, COLL_REDUCE, COLL_ALLREDUCE, COLL_REDUCE_SCATTER, COLL_REDUCE_SCATTERV,
    COLL_SCAN, COLL_EXSCAN, COLL_GATHER, COLL_GATHERV, COLL_SCATTER, COLL_SCATTERV, COLL_ALLGATHER, COLL_ALLGATHERV,
    COLL_ALLTOALL, COLL_ALLTOALLV, COLL_ALLTOALLW,
    COLL_NEIGHBOR_ALLGATHER, COLL_NEIGHBOR_ALLGATHERV,
    COLL_NEIGHBOR_ALLTOALL, COLL_NEIGHBOR_ALLTOALLV, COLL_NEIGHBOR_ALLTOALLW,
    COLL_ALLREDUCE_LIST,
    COLL_SEND, COLL_RECV, COLL_SENDRECV
} COLL_INT32 coll_kind;

enum { COLL_RANK_NONE = -1, COLL_COLOR_NONE = -1, COLL_ANY_SOURCE = -2, COLL_ANY_TAG = -2 };

/* Return the size or the name of a type, an operation or a kind. */
COLL_API size_t      coll_type_size(coll_type type);      /* bytes of an element; 0 for an unknown type     */
COLL_API const char *coll_type_name(coll_type type);      /* "f32"; "?" for an unknown one                  */
COLL_API const char *coll_op_name(coll_op op);            /* "sum"                                          */
COLL_API const char *coll_kind_name(coll_kind kind);      /* "allreduce"                                    */

/* As `send`: the input is in recv. */
#ifdef __cplusplus
#define COLL_IN_PLACE (reinterpret_cast<void *>(~intptr_t()))
#else
#define COLL_IN_PLACE ((void *)(intptr_t)-1)
#endif

/* ---- >>communicators ---- */

typedef struct coll_comm coll_comm;
typedef struct coll_request coll_request;

#include "core/contract/coll_config.h"            /* coll_config, coll_sim                                     */

/* Make this process a rank of a job, and return its communicator.  NULL: all values are taken from the environment.
 * Returns when every rank has joined.  After start_timeout_ms it fails, and coll_error(NULL) names the missing ranks.  If a
 * rank that had joined ends, and does not join again within liveness_timeout_ms and 1.5 s, it returns COLL_ERR_PEER, which
 * names that rank. */
COLL_API coll_status coll_init(coll_comm **out, const coll_config *config);

/* Make `count` ranks for threads of this process.  One thread at a time may use each.  If this process is the whole job,
 * out[i] is rank i.  In a larger job out[i] is rank config->rank (COLL_RANK) + i, and the log hook may be called from several
 * threads at the same time. */
COLL_API coll_status coll_init_threads(int count, coll_comm **out, const coll_config *config);

/* Run fn(comm, arg) on `count` threads, each a rank, and wait for all of them.  NULL for config: all values are taken from the
 * environment.  Returns 0 if all calls of fn returned 0, else the result of the lowest rank that did not.  If no communicator can
 * be made, it returns a negative coll_status, with the sentence in coll_error(NULL).  When fn returns, `comm` is freed if fn has
 * not freed it, as after a coll_shrink.  fn must free all communicators that it makes. */
COLL_API int coll_spawn(int count, int (*fn)(coll_comm *comm, void *arg), void *arg, const coll_config *config);

/* Free a communicator of this rank.  Pending requests end with COLL_ERR_ABORTED, and must still be freed.  Calls of other ranks
 * on this communicator that still need this rank fail with COLL_ERR_PEER (see Communicators).  Valid in every state, and for
 * NULL.  Returns within 2 s, or within 10 s if a message must still be delivered (see Messages).
 * Returns COLL_ERR_MISMATCH if other ranks have made other collectives than this one (see Agreement), with the sentence in
 * coll_error(NULL) and on the log; and the error with which the communicator ends while coll_free delivers messages.  The
 * communicator is freed in any case. */
COLL_API coll_status coll_free(coll_comm *comm);

/* Divide the ranks of `comm` into communicators, one for each color.  Ranks are ordered by key, and then by rank in `comm`.
 * With COLL_COLOR_NONE this rank gets none, and *out is NULL.  All ranks of `comm` must call it. */
COLL_API coll_status coll_split(coll_comm *comm, int color, int key, coll_comm **out);

/* Make a communicator of the ranks that share memory, or at least the host, with this one. */
COLL_API coll_status coll_split_host(coll_comm *comm, coll_comm **out);

/* Make a communicator of the same ranks. */
COLL_API coll_status coll_dup(coll_comm *comm, coll_comm **out);

/* Make a communicator of the given `count` ranks of `comm`, in that order.  Only these ranks call it, with the same list and
 * tag.  Creations at the same time must have different tags (0 <= tag) or different lists. */
COLL_API coll_status coll_create(coll_comm *comm, const int *ranks, int count, int tag, coll_comm **out);

/* Return the rank that a rank of `comm` has in the communicator of coll_init.  COLL_RANK_NONE: no such rank. */
COLL_API int coll_world_rank(const coll_comm *comm, int rank);

/* End a communicator on every rank, with COLL_ERR_ABORTED and this sentence.  All communicators of the same coll_init end.  It
 * may be called from any thread, also while another one waits inside a call, and from a signal handler (see Errors). */
COLL_API coll_status coll_abort(coll_comm *comm, const char *why);

/* Make a communicator of the ranks that are left after a failure, in the order of `comm`.  Each of them must call it, on the
 * communicator of coll_init or on one derived from it.  It needs nothing from failed ranks.  COLL_ERR_PEER: there is no quorum,
 * or the others have given this rank up, for ever.  COLL_ERR_MEMORY, COLL_ERR_SYSTEM: this rank lacks memory, descriptors or a
 * thread; the others may go on without it.  It waits for ranks that are not known to have failed until start_timeout_ms; if those
 * that have called it are a quorum, only for twice liveness_timeout_ms (10 s at most) after the last one.  A process that ends in
 * the meantime is detected at once.  Then all others get a communicator, or COLL_ERR_PEER, within about liveness_timeout_ms.  A
 * process that is stopped or disconnected in the meantime is detected after twice that time.  If rank 0 has failed and the ranks
 * are no quorum, it is indistinguishable from a late rank.  All ranks that get COLL_OK have the same communicator, even if more
 * ranks fail meanwhile.  After an error it may be called again, on `comm` or on any communicator with the same ranks: retries and
 * late ranks never make a second communicator.  `comm` is unchanged and must be freed.  The new communicator can be shrunk in
 * turn.  In it ranks of one process share the memory of their host, as those of several do.  Over TCP once for each coll_init; in
 * a simulated job for one list of ranks. */
COLL_API coll_status coll_shrink(coll_comm *comm, coll_comm **out);

/* A job whose coll_config has `elastic` takes processes that call coll_join.  They wait at rank 0 until all ranks call coll_grow:
 *     if (coll_grow(comm, &more) == COLL_OK && more) coll_free(comm), comm = more;      all ranks, between two steps
 *     if (coll_join(&comm, &config) == COLL_OK) restore(comm);                          the process that joins
 * With `elastic` ranks that are all in one process are over TCP, too, and need an address.  Those of coll_spawn take none, unless
 * they are simulated.  In a process that shall have several ranks, a thread for each calls coll_join, and waits by itself. */

/* Take the processes that wait into a new communicator, behind the ranks of `comm`, which keep their order.  *out is NULL if none
 * waits: `comm` goes on.  Otherwise free `comm`, and with it derived communicators, prepared calls and memory from coll_alloc.
 * All ranks call it on the communicator of the whole job, with no operation under way.  Ranks and joining processes that die
 * meanwhile are left out.  Processes that join are no part of a quorum (coll_shrink) before they are in the new communicator.
 * The numbers of a tuning file are not kept.
 * COLL_ERR_PEER: call coll_shrink on `comm`; its new communicator may have the joining processes.  COLL_ERR_ARGUMENT: `comm` is a
 * derived communicator, or an operation is under way.  COLL_ERR_UNSUPPORTED: the transport is neither TCP nor sim. */
COLL_API coll_status coll_grow(coll_comm *comm, coll_comm **out);

/* coll_shrink, and processes that wait take the places of the failed ranks, of rank 0 too.  All others keep their ranks, and the
 * size stays.  If fewer come in start_timeout_ms, they take the lowest of these places, and the ranks behind the others move up.
 * A process that dies while it joins is replaced by another one that waits.  If one rank calls coll_replace after a failure, and
 * others coll_shrink, all replace.
 * Errors are those of coll_shrink and coll_grow: after COLL_ERR_PEER call coll_replace or coll_shrink again, on `comm`. */
COLL_API coll_status coll_replace(coll_comm *comm, coll_comm **out);

/* Join a job, and wait until it takes this process, at most for start_timeout_ms.  Job and process have the same `world`,
 * `security`, `key` and `lanes`.  `address` is where a rank listens, or a list ("hostA:4000,hostB:4000"); it cannot be a
 * rendezvous file.  rank, size and hosts are ignored.  COLL_ERR_TIMEOUT: it was not taken.  COLL_ERR_DENIED: the key is another
 * one.  COLL_ERR_PROTOCOL: the job is another one, or has no `elastic`. */
COLL_API coll_status coll_join(coll_comm **out, const coll_config *config);

/* Return how many processes wait, at rank 0; 0 at other ranks. */
COLL_API int coll_waiting(const coll_comm *comm);

/* Return the rank that a rank of `comm`, a communicator of coll_shrink, coll_grow or coll_replace, had in the one before.
 * COLL_RANK_NONE: it was not in it; or this process was not, because it has joined. */
COLL_API int coll_former_rank(const coll_comm *comm, int rank);

/* Agree on the bitwise AND of the flags of all ranks that have not failed, and on which ones have failed: *flags and, until the
 * next call, coll_failed_ranks are the same on all ranks that get COLL_OK.  All ranks that have not failed must call it, before
 * or after a failure, in the order of their collectives; non-blocking calls may be under way.  After a failure, communicators
 * with the same ranks share this order.  Quorum, late ranks and ranks that are given up are those of coll_shrink.  After an error
 * *flags is unchanged, and a repeated call returns the result that others have, if there is one.  A rank passes its own on in its
 * next coll_agree or coll_shrink: after COLL_ERR_PEER call one before coll_free.  Cost: an allreduce of 8 bytes and a barrier;
 * after a failure about 4 notes between each rank and one. */
COLL_API coll_status coll_agree(coll_comm *comm, uint64_t *flags);

/* Return how many ranks of `comm` are known to have failed, and write the first `capacity` of them.  The one that ended the
 * communicator comes first, if it is dead or was too late.  After a successful coll_shrink these are exactly the ranks that
 * are not in the new communicator, and the same on all ranks of it. */
COLL_API int coll_failed_ranks(const coll_comm *comm, int *ranks, int capacity);

/* Set the graph of the neighbor calls of `comm`: the ranks that this rank receives from and sends to.  It replaces an earlier
 * graph.  A list may contain a rank several times, this rank, and COLL_RANK_NONE, whose block stays unchanged.  Every edge must
 * be in the lists of both its ends.  If a rank is listed several times, its n-th entry as a destination matches the n-th entry of
 * this rank in its list of sources.
 * All ranks must call it.  The lists are copied.  Prepared neighbor calls from before cannot be restarted. */
COLL_API coll_status coll_neighbors(coll_comm *comm, const int *sources, int source_count, const int *destinations,
                                    int destination_count);

/* Return the rank of this process or thread, or the number of ranks. */
COLL_API int coll_rank(const coll_comm *comm);
COLL_API int coll_size(const coll_comm *comm);
COLL_API int coll_local_rank(const coll_comm *comm);      /* the rank among those of coll_init on this host           */
COLL_API int coll_local_size(const coll_comm *comm);      /* the number of ranks of coll_init on this host            */

/* Return the last error of a communicator as a sentence, "" if there was none.  NULL: of the last coll_init, coll_init_threads
 * or coll_spawn of the calling thread that failed.  Valid until the next call on the communicator. */
COLL_API const char *coll_error(const coll_comm *comm);

/* ---- >>collectives: blocking; the non-blocking forms are below.  v: block i has counts[i] elements at offsets[i], in
 * elements; offsets NULL: blocks are adjacent ---- */

/* Wait until every rank has called it. */
COLL_API coll_status coll_barrier(coll_comm *comm);

/* Copy `count` elements of the root to every rank.  The root's buffer may be written with the bytes that it has. */
COLL_API coll_status coll_broadcast(coll_comm *comm, void *buffer, size_t count, coll_type type, int root);

/* Combine the elements of all ranks on the root.  recv[i] on the root = send[i] of rank 0 op send[i] of rank 1 op ...  recv of
 * the other ranks is not written. */
COLL_API coll_status coll_reduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                 coll_op op, int root);

/* Combine the elements of all ranks on every rank, with identical bits.
 *
 *     coll_allreduce(comm, gradient, gradient, n, COLL_F32, COLL_AVG);
 */
COLL_API coll_status coll_allreduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                    coll_op op);

/* Combine the elements of all ranks on every rank, with messages of another type.  Example: COLL_F32 buffers over a COLL_BF16
 * wire.  Inputs are rounded to the wire type, summed in f32 (f64 over f32: in f64) and rounded once more.  recv contains
 * values of the wire type, converted to its own type. */
COLL_API coll_status coll_allreduce_mixed(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                          coll_type wire, coll_op op);

/* One item of a coll_allreduce_list.  In place: send == recv, or send is COLL_IN_PLACE. */
typedef struct coll_list_item { const void *send; void *recv; size_t count; coll_type type; } coll_list_item;

/* Combine each of `count` buffers of all ranks on every rank.  Their types may differ.  Small buffers share messages.  `list`
 * must stay valid until the call is finished. */
COLL_API coll_status coll_allreduce_list(coll_comm *comm, const coll_list_item *list, int count, coll_op op);

/* Combine the elements of all ranks, and leave block r of the result on rank r.  send has size * recv_count elements.  v:
 * block r has counts[r] elements, and the blocks of send are adjacent; in a coll_call the counts are recv_counts. */
COLL_API coll_status coll_reduce_scatter(coll_comm *comm, const void *send, void *recv, size_t recv_count,
                                         coll_type type, coll_op op);
COLL_API coll_status coll_reduce_scatterv(coll_comm *comm, const void *send, void *recv, const size_t *counts,
                                          coll_type type, coll_op op);

/* Combine the elements of the ranks up to this one.  recv[i] on rank r = send[i] of rank 0 op ... op send[i] of rank r.
 * COLL_AVG returns COLL_ERR_UNSUPPORTED. */
COLL_API coll_status coll_scan(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op);

/* Combine the elements of the ranks below this one.  recv of rank 0 is not written. */
COLL_API coll_status coll_exscan(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op);

/* Collect the elements of all ranks on the root, in the order of the ranks.  v: counts and offsets matter at the root only. */
COLL_API coll_status coll_gather(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, int root);
COLL_API coll_status coll_gatherv(coll_comm *comm, const void *send, size_t send_count, void *recv, const size_t *counts,
                                  const size_t *offsets, coll_type type, int root);

/* Distribute blocks of the root's send: block r goes to recv of rank r.  v: counts and offsets matter at the root only. */
COLL_API coll_status coll_scatter(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, int root);
COLL_API coll_status coll_scatterv(coll_comm *comm, const void *send, const size_t *counts, const size_t *offsets,
                                   void *recv, size_t recv_count, coll_type type, int root);

/* Collect the elements of all ranks on every rank, in the order of the ranks.  recv has size * count elements.  v: counts are
 * equal on all ranks, offsets may differ. */
COLL_API coll_status coll_allgather(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type);
COLL_API coll_status coll_allgatherv(coll_comm *comm, const void *send, size_t send_count, void *recv, const size_t *counts,
                                     const size_t *offsets, coll_type type);

/* Exchange blocks: block r of send goes to rank r, and block r of recv comes from rank r.  v: any counts on which both ends of
 * a pair agree.  w: every block has its own type, and offsets are in bytes. */
COLL_API coll_status coll_alltoall(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type);
COLL_API coll_status coll_alltoallv(coll_comm *comm, const void *send, const size_t *send_counts, const size_t *send_offsets,
                                    void *recv, const size_t *recv_counts, const size_t *recv_offsets, coll_type type);
COLL_API coll_status coll_alltoallw(coll_comm *comm, const void *send, const size_t *send_counts, const size_t *send_bytes,
                                    const coll_type *send_types, void *recv, const size_t *recv_counts,
                                    const size_t *recv_bytes, const coll_type *recv_types);

/* Exchange blocks with the neighbors that coll_neighbors has set.  allgather: send goes to every destination, and block i of
 * recv comes from source i.  alltoall: block i of send goes to destination i.  There is no form in place. */
COLL_API coll_status coll_neighbor_allgather(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type);
COLL_API coll_status coll_neighbor_allgatherv(coll_comm *comm, const void *send, size_t send_count, void *recv,
                                              const size_t *counts, const size_t *offsets, coll_type type);
COLL_API coll_status coll_neighbor_alltoall(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type);
COLL_API coll_status coll_neighbor_alltoallv(coll_comm *comm, const void *send, const size_t *send_counts,
                                             const size_t *send_offsets, void *recv, const size_t *recv_counts,
                                             const size_t *recv_offsets, coll_type type);
COLL_API coll_status coll_neighbor_alltoallw(coll_comm *comm, const void *send, const size_t *send_counts,
                                             const size_t *send_bytes, const coll_type *send_types, void *recv,
                                             const size_t *recv_counts, const size_t *recv_bytes,
                                             const coll_type *recv_types);

/* ---- >>messages: matched by (source, tag) in the order sent, not part of the order of collectives ---- */

/* Send a message to one rank.  Returns when the buffer may be reused.  Long messages, and many short ones that are not
 * received, wait for the receiver.  0 <= tag.  A rank may send to itself. */
COLL_API coll_status coll_send(coll_comm *comm, const void *buffer, size_t count, coll_type type, int peer, int tag);

/* Receive a message.  `count` is the room.  A shorter message is valid (coll_received returns its length).  A longer one, and
 * one of another type, is COLL_ERR_MISMATCH.  COLL_ANY_SOURCE and COLL_ANY_TAG match the first message that arrives. */
COLL_API coll_status coll_recv(coll_comm *comm, void *buffer, size_t count, coll_type type, int peer, int tag);

/* Send to dest and receive from source at the same time, without deadlock in any pattern. */
COLL_API coll_status coll_sendrecv(coll_comm *comm, const void *send, size_t send_count, int dest,
                                   void *recv, size_t recv_count, int source, coll_type type, int tag);

/* ---- >>requests: the non-blocking forms ---- */

COLL_API coll_status coll_ibarrier(coll_comm *comm, coll_request **out);
COLL_API coll_status coll_ibroadcast(coll_comm *comm, void *buffer, size_t count, coll_type type, int root,
                                     coll_request **out);
COLL_API coll_status coll_ireduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                  coll_op op, int root, coll_request **out);
COLL_API coll_status coll_iallreduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                     coll_op op, coll_request **out);
COLL_API coll_status coll_iallreduce_mixed(coll_comm *comm, const void *send, void *recv, size_t count,
                                           coll_type type, coll_type wire, coll_op op, coll_request **out);
COLL_API coll_status coll_iallreduce_list(coll_comm *comm, const coll_list_item *list, int count, coll_op op,
                                          coll_request **out);
COLL_API coll_status coll_ireduce_scatter(coll_comm *comm, const void *send, void *recv, size_t recv_count,
                                          coll_type type, coll_op op, coll_request **out);
COLL_API coll_status coll_ireduce_scatterv(coll_comm *comm, const void *send, void *recv, const size_t *counts,
                                           coll_type type, coll_op op, coll_request **out);
COLL_API coll_status coll_iscan(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                coll_op op, coll_request **out);
COLL_API coll_status coll_iexscan(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                  coll_op op, coll_request **out);
COLL_API coll_status coll_igather(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                  int root, coll_request **out);
COLL_API coll_status coll_igatherv(coll_comm *comm, const void *send, size_t send_count, void *recv,
                                   const size_t *counts, const size_t *offsets, coll_type type, int root,
                                   coll_request **out);
COLL_API coll_status coll_iscatter(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                   int root, coll_request **out);
COLL_API coll_status coll_iscatterv(coll_comm *comm, const void *send, const size_t *counts, const size_t *offsets,
                                    void *recv, size_t recv_count, coll_type type, int root, coll_request **out);
COLL_API coll_status coll_iallgather(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                     coll_request **out);
COLL_API coll_status coll_iallgatherv(coll_comm *comm, const void *send, size_t send_count, void *recv,
                                      const size_t *counts, const size_t *offsets, coll_type type,
                                      coll_request **out);
COLL_API coll_status coll_ialltoall(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                    coll_request **out);
COLL_API coll_status coll_ialltoallv(coll_comm *comm, const void *send, const size_t *send_counts,
                                     const size_t *send_offsets, void *recv, const size_t *recv_counts,
                                     const size_t *recv_offsets, coll_type type, coll_request **out);
COLL_API coll_status coll_ialltoallw(coll_comm *comm, const void *send, const size_t *send_counts,
                                     const size_t *send_bytes, const coll_type *send_types, void *recv,
                                     const size_t *recv_counts, const size_t *recv_bytes,
                                     const coll_type *recv_types, coll_request **out);
COLL_API coll_status coll_ineighbor_allgather(coll_comm *comm, const void *send, void *recv, size_t count,
                                              coll_type type, coll_request **out);
COLL_API coll_status coll_ineighbor_allgatherv(coll_comm *comm, const void *send, size_t send_count, void *recv,
                                               const size_t *counts, const size_t *offsets, coll_type type,
                                               coll_request **out);
COLL_API coll_status coll_ineighbor_alltoall(coll_comm *comm, const void *send, void *recv, size_t count,
                                             coll_type type, coll_request **out);
COLL_API coll_status coll_ineighbor_alltoallv(coll_comm *comm, const void *send, const size_t *send_counts,
                                              const size_t *send_offsets, void *recv, const size_t *recv_counts,
                                              const size_t *recv_offsets, coll_type type, coll_request **out);
COLL_API coll_status coll_ineighbor_alltoallw(coll_comm *comm, const void *send, const size_t *send_counts,
                                              const size_t *send_bytes, const coll_type *send_types, void *recv,
                                              const size_t *recv_counts, const size_t *recv_bytes,
                                              const coll_type *recv_types, coll_request **out);
COLL_API coll_status coll_isend(coll_comm *comm, const void *buffer, size_t count, coll_type type, int peer, int tag,
                                coll_request **out);
COLL_API coll_status coll_irecv(coll_comm *comm, void *buffer, size_t count, coll_type type, int peer, int tag,
                                coll_request **out);
COLL_API coll_status coll_isendrecv(coll_comm *comm, const void *send, size_t send_count, int dest,
                                    void *recv, size_t recv_count, int source, coll_type type, int tag,
                                    coll_request **out);

/* Progress all operations of the communicator, and return the status of a request.  COLL_PENDING: it is not finished. */
COLL_API coll_status coll_test(coll_request *request);

/* Wait until a request is finished.  Neither coll_test nor coll_wait frees it.  NULL counts as finished. */
COLL_API coll_status coll_wait(coll_request *request);

/* Wait for all requests.  Returns the first error found; coll_test returns the status of each request. */
COLL_API coll_status coll_wait_all(int count, coll_request **requests);

/* Wait for one of several requests.  *index is its number, and its status is returned.  Each completed request is reported
 * exactly once (see Waiting).  Skipped are requests that coll_test or coll_wait has reported, prepared ones that are not
 * started, and NULLs.  *index = -1: none is left (COLL_OK), or the call itself failed. */
COLL_API coll_status coll_wait_any(int count, coll_request **requests, int *index);

/* Wait for at least one of several requests, and report all that are finished.  *done is how many, and their numbers are
 * written to indices (room for count).  Returns the first error among them; coll_test returns the status of each.  *done = 0:
 * none is left. */
COLL_API coll_status coll_wait_some(int count, coll_request **requests, int *indices, int *done);

/* coll_wait_any without waiting.  COLL_PENDING with *index = -1: none is finished yet, and some are running. */
COLL_API coll_status coll_test_any(int count, coll_request **requests, int *index);

/* coll_wait_all without waiting.  COLL_PENDING: some are running, and none is reported.  Else all are finished, and it returns
 * the first error found. */
COLL_API coll_status coll_test_all(int count, coll_request **requests);

/* Return the source, the tag and the count of a finished receive.  Each pointer may be NULL. */
COLL_API coll_status coll_received(const coll_request *request, int *source, int *tag, size_t *count);

/* Free a request.  If it is still running it continues: its buffers must stay valid until it is known to be finished. */
COLL_API void coll_request_free(coll_request *request);

/* Progress all operations of the communicator without waiting. */
COLL_API coll_status coll_progress(coll_comm *comm);

/* Return a file descriptor for event loops.  It becomes readable when an operation of this coll_init has finished, or needs a
 * call of the program to progress (COLL_USER).  Then call coll_progress, which makes it unreadable again, and coll_test.  It
 * may also become readable without a reason.  It belongs to the communicators of the coll_init, stays the same, and is closed
 * with the last of them.  -1: there is none, because operations progress only inside calls (see `background`). */
COLL_API int coll_fd(coll_comm *comm);

/* ---- >>call: one descriptor for every call; zero means default ---- */

enum {
    COLL_DETERMINISTIC = 1,       /* the same bits for every message size, algorithm and transport            */
    COLL_SATURATE = 2,            /* results of f16 and the 8-bit floats are finite, or NaN                   */
    COLL_REPRODUCIBLE = 4,        /* also for every order of the ranks: inputs are rounded once, by 2^-42 of the largest at
                                     most; then sums of floats are exact (see Numbers)                        */
    COLL_STOCHASTIC = 8,          /* rounding to 16 bits and fewer goes up or down at random; see seed        */
    COLL_DETECT_OVERFLOW = 16,    /* count calls whose result has an infinity or a NaN: coll_overflows        */
    COLL_ROUND_TWICE = 32         /* if hosts have several ranks, their sums may be rounded before they are sent between hosts */
};

typedef struct coll_call {
    coll_kind   kind;             /* COLL_ALLREDUCE, ...                                                     */
    const void *send;
    void       *recv;             /* broadcast: the buffer                                                   */
    size_t      count;            /* elements; of one block if there are several                             */
    const size_t *send_counts, *send_offsets, *recv_counts, *recv_offsets;     /* v and w; reduce_scatterv: recv_counts */
    const coll_type *send_types, *recv_types;     /* w, whose offsets are in bytes                           */
    size_t      recv_count;       /* sendrecv: the room; scatterv: what this rank expects                    */
    size_t      row;              /* elements in a row of a block (see Matrices); 0: the block is contiguous */
    size_t      send_stride, recv_stride;         /* elements from one row to the next in that buffer; 0: rows are adjacent */
    coll_type   type;             /* of the buffers                                                          */
    coll_type   wire;             /* of the messages of a reducing call; 0 = type                            */
    coll_type   accumulate;       /* of sums; 0 = f32 for floats of 8 and 16 bits, else type                 */
    coll_op     op;
    coll_reduce_fn *fn;           /* COLL_USER                                                               */
    void       *fn_context;
    bool        not_commutative;  /* COLL_USER: ranks must be combined in their order                        */
    double      scale;            /* floats: multiplies the sum before it is rounded; 0 = 1                  */
    unsigned    flags;            /* COLL_DETERMINISTIC, ...                                                 */
    uint64_t    seed;             /* COLL_STOCHASTIC: the same seed gives the same random numbers; equal on all ranks */
    float      *residual;         /* error feedback if the wire has fewer bits: as long as send, added to the input, and
                                     replaced by the part that the wire cannot represent; NULL = none        */
    const coll_list_item *list;   /* allreduce_list                                                          */
    int         list_count;
    int         root;             /* of broadcast, reduce, gather and scatter                                */
    int         peer;             /* send, sendrecv: the destination; recv: the source                       */
    int         source;           /* sendrecv: the rank to receive from                                      */
    int         tag;              /* of messages                                                             */
    int         timeout_ms;       /* 0 = the communicator's stall_timeout_ms; -1: never                      */
    const char *algorithm;        /* an algorithm by name, with its radix or number of blocks: "circulant:4" (see
                                     coll_explain); NULL = COLL_ALGORITHM, or the library's choice.  Equal on all ranks */
    const char *name;             /* appears in errors, e.g. "gradient of layer 3"                           */
    int64_t     first_leaf;       /* number of this rank's first leaf, counted over all ranks (see Leaves)   */
    int64_t     leaves;           /* how many this rank has: send has the nodes of this run; -1: none; 0: a call without leaves */
    uint64_t    reserved[2];      /* must be 0                                                               */
} coll_call;                      /* what it points to must stay valid until the request is finished (prepared: freed) */

/* Carry out the call that a descriptor describes. */
COLL_API coll_status coll_run(coll_comm *comm, const coll_call *call);                               /* blocking */
COLL_API coll_status coll_start(coll_comm *comm, const coll_call *call, coll_request **out);     /* non-blocking */

/* Check and plan a call once, to start it many times.  All ranks must prepare in the same order as they start other calls, and
 * may then restart in any order (see Prepared calls for the exception).  The request is not running yet: call coll_restart,
 * then coll_wait, many times.  coll_restart returns COLL_ERR_ARGUMENT unless coll_wait, coll_test, or a wait for several has
 * reported the end of the last start.  In sentences "allreduce #3 (prepared call 2)" is the third start of the second call that
 * was prepared on the communicator. */
COLL_API coll_status coll_prepare(coll_comm *comm, const coll_call *call, coll_request **out);
COLL_API coll_status coll_restart(coll_request *request);

/* ---- >>numbers: the arithmetic of the library on buffers of one thread ---- */

/* Convert one float.  All functions round to nearest even. */
COLL_API uint16_t coll_f32_to_f16(float value);           /* all round to nearest even                       */
COLL_API uint16_t coll_f32_to_bf16(float value);
COLL_API float    coll_f16_to_f32(uint16_t bits);
COLL_API float    coll_bf16_to_f32(uint16_t bits);
COLL_API uint8_t  coll_f32_to_f8e4m3(float value);
COLL_API uint8_t  coll_f32_to_f8e5m2(float value);
COLL_API float    coll_f8e4m3_to_f32(uint8_t bits);
COLL_API float    coll_f8e5m2_to_f32(uint8_t bits);

/* Convert floats from one type to another: dst[i] = src[i], rounded once.  Equal types of any kind copy, as memmove does.
 * Otherwise the buffers must not overlap, unless dst == src and both types have the same size.  If they do, it returns
 * COLL_ERR_ARGUMENT and writes nothing. */
COLL_API coll_status coll_convert(void *dst, coll_type dst_type, const void *src, coll_type src_type, size_t count);

/* Convert floats with random rounding, to types of 16 bits and fewer.  Each value is rounded up or down in proportion to the
 * distance: the mean of many roundings of x is x.  The random number of element i depends on `seed` and first + i.  So the
 * same call gives the same bits on every machine, and a buffer may be converted in pieces.  Values that dst_type can represent
 * are not changed.  Overflow is as in coll_convert. */
COLL_API coll_status coll_convert_stochastic(void *dst, coll_type dst_type, const void *src, coll_type src_type, size_t count,
                                             uint64_t seed, uint64_t first);

/* Combine two buffers of this rank: inout[i] = in[i] op inout[i], `in` being the lower rank's part.  COLL_AVG and COLL_USER
 * return COLL_ERR_UNSUPPORTED.  Buffers that overlap without being the same return COLL_ERR_ARGUMENT. */
COLL_API coll_status coll_reduce_local(void *inout, const void *in, size_t count, coll_type type, coll_op op);

/* ---- >>inspection: choices, costs and counters ---- */

/* Write how a call would be carried out, and which alternatives come next.  Example: "allreduce of 2048 x f32 (sum) on 4 ranks
 * over tcp (poll): gather, radix 4, 1 round, 1 slice, about 26.7 us; then gather:2 38.7 us, gather:3 38.7 us, direct:4 42.7
 * us".  Returns the length as snprintf does, or a negative coll_status.  Sends nothing. */
COLL_API int coll_explain(coll_comm *comm, const coll_call *call, char *text, size_t length);

/* Report the last operations of this rank on `comm`, up to 256, oldest first: which, when, how long, and the result.  `line` is
 * called once for each line, which has no newline and is valid until it returns; NULL: the lines are written to stderr.  `line`
 * must not call functions on communicators, except coll_abort.  Blocking calls between threads that did not have to wait are
 * not listed.  While another thread is inside a call on `comm`, the entry that is being written at that moment may be
 * incomplete. */
COLL_API void coll_dump(coll_comm *comm, void (*line)(void *context, const char *text), void *context);

/* Write the numbers of the cost model in the form of a tuning file: "latency=12us overhead=4us gbit=16 reduce=10GB/s".
 * Returns the length as snprintf does, or a negative coll_status. */
COLL_API int coll_link_text(const coll_comm *comm, char *text, size_t length);

/* Return how many calls with COLL_DETECT_OVERFLOW have produced an infinity or a NaN on this rank.  They are counted from when
 * the communicator was made.  After an allreduce the number is the same on all ranks, without another collective.  A training
 * step reads it before and after, and discards its gradients if it has grown. */
COLL_API uint64_t coll_overflows(const coll_comm *comm);

/* Return the bytes that this rank has sent and received, headers included, for all communicators of its coll_init.  0 between
 * threads, which use memory. */
COLL_API void coll_traffic(const coll_comm *comm, uint64_t *sent, uint64_t *received);

/* Return the virtual seconds that have passed for this rank of a simulated job; 0 in other jobs. */
COLL_API double coll_sim_time(const coll_comm *comm);

#include "core/contract/coll_memory.h"
#include "core/contract/coll_leaf_nodes.h"
#include "core/contract/coll_transport.h"

#ifdef __cplusplus
}
#endif

#include "core/contract/coll_wrap.h"

#endif /* COLL_H */

/* Outside the guard: a file that has already met coll.h through another header can still make the implementation. */
#ifdef COLL_IMPLEMENTATION
#include "coll_impl.h"
#endif
