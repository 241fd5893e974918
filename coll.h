/* coll.h - collective operations in one C header: between threads, between hosts over TCP, over MPI, and between GPUs.
 *
 * Every collective: barrier, broadcast, reduce, allreduce, reduce-scatter, scan, gather, scatter, allgather, all-to-all, and
 * exchanges between the neighbors of a graph; and messages with tags.  For integers, floats of 8 to 64 bits, complex numbers,
 * (value, index) pairs and opaque elements, with the usual operations or your own.  16- and 8-bit floats are summed in 32 bits
 * and rounded once.  No launcher, no runtime and no library to install.
 *
 *     #define COLL_IMPLEMENTATION                       in exactly one C file, before any other include
 *     #include "coll.h"                                 cc train.c -pthread             (see Compiling)
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
 *         const int result = coll_spawn(4, worker, NULL);               four ranks, threads of this process
 *         return result < 0 ? fprintf(stderr, "%s\n", coll_error(NULL)), 1 : result;
 *     }
 *
 * The same worker between processes: each calls coll_init(&comm, NULL), and is started by coll-run, torchrun or by hand with
 * COLL_RANK, COLL_SIZE and COLL_ADDR set.
 *
 * MANUAL, in the order in which a program needs it; a glossary is at the end.  Sections begin with pieces of one program, where
 * `comm` is a communicator, and x and y are `n` floats each.
 *     to begin         Compiling, Ranks, Agreement, Buffers, Matrices, Numbers, Reduced precision
 *     to go on         Waiting, Prepared calls, Messages, Communicators, Threads, Memory
 *     between hosts    Bootstrap, Security, Environment
 *     when it fails    Errors, Time limits, After a failure
 *     to be fast       Algorithms, Hosts, Tuning
 *     other worlds     Simulation, MPI, GPUs
 *
 * COMPILING
 *         #define COLL_IMPLEMENTATION
 *         #include "coll.h"
 *   Exactly one C file has both lines, before any other include; all others have the second alone.  The implementation is C11
 * for Linux, by gcc or clang.  The declarations are C99 and C++11: a C++ program puts the two lines into one C file.
 *     cc train.c -pthread
 * TCP runs on io_uring where the compiler finds <liburing.h> (2.2 or later; Debian: liburing-dev) and the program liburing.so.2,
 * which it loads itself; elsewhere on poll, and coll_explain says why.  Before glibc 2.34 loading takes -ldl; a static program
 * loads nothing.  With COLL_WITH_URING a program is linked with liburing instead: add -luring.
 *   The library is one file, single/coll.h in its repository, for programs to copy.  The same in parts: coll.h, coll_impl.h,
 * core/, transports/ and carriers/.  COLL_VERSION_MAJOR, COLL_VERSION_MINOR and COLL_VERSION_PATCH are the version; what each
 * one brings is in CHANGELOG.md of the repository, and the tables are in its docs/reference.md.
 *   It may be a library, too: libcoll, by `make lib`, pkg-config, CMake, Meson or Debian's packages; see README.md.
 * A program that is linked with it has the second line alone.
 *   Parts can be left out: by a profile (COLL_LEAST, COLL_SMALL, COLL_TINY), by a list such as COLL_ONLY_TRANSPORTS=threads,tcp,
 * or by a switch such as COLL_NO_SHRINK; core/base/coll_parts.h lists them.  A call of what was left out returns
 * COLL_ERR_UNSUPPORTED, and its sentence names the switch.  They may stand in a file: -DCOLL_CONFIG_FILE='"my_coll.h"'.
 *   Switches: COLL_NO_URING (poll only), COLL_WITH_URING (link with -luring), COLL_WITH_OPENSSL (TLS; link with -lssl
 * -lcrypto), COLL_WITH_MPI (see MPI), COLL_WITH_NCCL (see GPUs), COLL_STATIC (every function is static), COLL_ASSERT (the
 * library checks its own state, and ends the program with a line to report where that is wrong; for debugging).
 *   Machines without atomic access to 64 bits (32-bit mips, powerpc and riscv, old arm) need -latomic.  musl needs the kernel's
 * headers.
 *   What would change the bits of results is refused.  -ffast-math and each part of it is an #error; where the compiler does
 * not tell, coll_init returns COLL_ERR_UNSUPPORTED.  So is the x87 (i686: compile with -msse2 -mfpmath=sse), and any
 * FLT_EVAL_METHOD but 0 (s390x with -std=c11: -fexcess-precision=fast).  Products are never fused with sums, whatever -march
 * says; clang's -ffp-contract=fast is refused by coll_init.
 *   The modes of the processor belong to the program.  Ranks meet over TCP or MPI only if all flush subnormals or none does (a
 * part linked with -ffast-math does), and if all round to nearest.  A thread sets its modes before it makes a communicator, and
 * leaves them.  Ranks of 32 and 64 bits, and of different machines, may be in one job if they have the same byte order.
 *   In C++ begin a descriptor with `coll_call call{};` and set what you need.  Designated initializers (C++20) warn of every
 * member that they leave out.
 *   Stack: a thread that calls the library needs 64 KiB for it.  Operations of your own (COLL_USER), the log hook, and what the
 * system needs to look up a name come on top.  The library's own threads have 256 and 512 KiB.
 *
 * RANKS
 *         int rank = coll_rank(comm), size = coll_size(comm);
 *         if (rank == 0) printf("%d ranks\n", size);
 *         if (coll_barrier(comm)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   A communicator joins `size` ranks, numbered from 0.  A rank is a process (coll_init) or a thread of one (coll_spawn,
 * coll_init_threads).  Several processes may bring several ranks each: COLL_RANK is then the first rank of a process, and
 * COLL_SIZE the number of all ranks.  Where a launcher counts processes, its numbers are multiplied by the ranks of each.
 *   A process that owns every rank connects to nobody, and needs no network.
 *   All ranks call the same collectives of a communicator, in the same order, with arguments that agree.
 *
 * AGREEMENT
 *         const int root = 0;
 *         double rate = coll_rank(comm) == root ? 0.1 : 0;
 *         if (coll_broadcast(comm, &rate, 1, COLL_F64, root)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   These must be equal on all ranks: kind, type, wire, op, root, count, and the options of a coll_call (algorithm, accumulate,
 * scale, flags, seed with COLL_STOCHASTIC, not_commutative).  v and w forms differ:
 *     allgatherv, reduce_scatterv      all counts are equal on all ranks; offsets may differ
 *     gatherv, scatterv, alltoallv,    the count (alltoallw: and the type) of a block is equal at its two ends; other ranks need
 *     alltoallw, neighbor_...v, ...w   not know it; where there is a root, counts and offsets matter there only
 *     allreduce_list                   number, types and counts of the buffers, in the same order
 *   Ranks that disagree get COLL_ERR_MISMATCH, and a sentence that names both calls.  Counts of v forms and of lists are
 * compared by a hash of 32 bits; flags are compared as they are.  If another option is set (algorithm, accumulate, scale, seed,
 * not_commutative), all of these are compared by a hash of 192 values: one wrong option in 192 is not seen.  Blocks without
 * elements have no type.  Buffers, offsets, rows and strides, residual, timeout_ms, name, fn and fn_context are not compared.
 *   A rank that needs nothing from the one that errs may finish before the error shows: the root of a broadcast or scatter, the
 * others in a reduce or gather, ranks of a scan.  If two ranks take themselves for the root, every rank may return COLL_OK with
 * different data.  Then the next collective in which these ranks exchange messages, or wait for one another in memory, returns
 * COLL_ERR_MISMATCH; or coll_free does, on at least one rank.  Later calls compare a hash of 16 bits of the calls before, and
 * coll_free one of 64.  Not found, for that would take a message more:
 *     at coll_free     over MPI and transports of the program's own; in communicators of some ranks of a job, calls that go by
 *                      messages, unless one has come already; prepared calls that go by messages; and where some ranks have made
 *                      more calls than others.  Calls of communicators of all ranks are compared when the last of them is freed
 *     at a next call   where none of those that disagreed waits for another again, as in the same mistaken broadcast once more
 *     while waiting    over TCP, after rank 0 has freed its last communicator: ranks that wait for one another in different calls
 *                      get COLL_ERR_TIMEOUT, after stall_timeout_ms
 *
 * BUFFERS
 *         float all[16], mine[4] = { 1, 2, 3, 4 };
 *         if (coll_allgather(comm, mine, all, 4, COLL_F32)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         if (coll_allreduce(comm, COLL_IN_PLACE, mine, 4, COLL_F32, COLL_MAX)) return 1;
 *   Counts are elements, and may be 0; the pointers may then be NULL.  Any alignment that the type allows is fine.  Offsets are
 * counted from the start of the buffer: in elements, in w forms in bytes.  NULL for the offsets of a v form means one block
 * after the other.  Buffers that a rank's role does not use may be NULL.
 *   In place is send == recv, or COLL_IN_PLACE for send (for recv at the root of a scatter).  Its meaning differs:
 *     gather, allgather (v)     the input lies in its block of recv: send == recv + rank * count, or recv + recv_offsets[rank];
 *                               of gather at the root
 *     reduce_scatter (v)        recv == send + rank * recv_count leaves the result there; recv == send, and COLL_IN_PLACE, at
 *                               the start of recv; either way the rest keeps the input
 *     scatter (v), at the root  its block stays where it is in send
 *     alltoall (v, w)           every block is replaced by the one that comes; the send arrays are ignored
 * Messages, broadcast and neighbor calls have no form in place.
 *   Any other overlap of send and recv, or of two blocks that are received, is an error.  Inputs are never written unless in
 * place.  Nothing outside the result is ever written.
 *
 * MATRICES
 *         float rows[3 * 8] = { 0 }, columns[12 * 2];
 *         const coll_call turn = { .kind = COLL_ALLTOALL, .send = rows, .recv = columns, .count = 3 * 2, .type = COLL_F32,
 *                                  .row = 2, .send_stride = 8 };
 *         if (coll_run(comm, &turn)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   Here each of 4 ranks has 3 rows of a matrix of 8 columns, [3][8], and gets 2 columns of all its rows, [12][2].
 *   The blocks of a broadcast, gather, scatter, allgather or alltoall may be columns of a matrix.  With coll_call.row a block of
 * `count` elements is count / row rows.  In a buffer with a stride each row begins so many elements behind the last one.  Where
 * the buffer has a block for every rank, they lie side by side: block i begins i * row behind the start.
 *     send_stride    of send: the one block, or in a scatter and an alltoall those of all ranks
 *     recv_stride    of recv: the one block (also that of a broadcast), or in a gather, allgather and alltoall those of all ranks
 *     0              the blocks of this buffer lie in one piece, one after the other, as without row
 *   All of this is each rank's own affair: ranks agree on count and type, and may have other rows, strides or none.  On the way a
 * block is its elements, row after row.  So shards [rows][wide / size] become [rows][wide] by an allgather with row =
 * wide / size and recv_stride = wide, and a matrix is turned from rows to columns as above, and back with recv_stride = wide.
 *   In place as above: the own block is then at + rank * row, and both strides are the same; COLL_IN_PLACE says so by itself.
 * Send and recv may lie between one another's rows where their strides are equal.  A stride that is too short for its rows, a
 * count that is no multiple of row, and rows in any other kind are COLL_ERR_ARGUMENT.  What is between rows is never written.
 *   A block with a stride is packed by its request, at the start, and spread at the end: a copy of what it holds, in memory that
 * a blocking call keeps for the next one.
 *
 * NUMBERS
 *         const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = n, .type = COLL_F32, .op = COLL_SUM,
 *                                  .flags = COLL_DETERMINISTIC };
 *         if (coll_run(comm, &call)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   Integers wrap.  COLL_AVG is the sum, divided afterwards; integers are summed in a wider type and truncated toward zero.
 * f16, bf16 and the 8-bit floats are summed in f32 and rounded once, to nearest even.
 *   NaN propagates through every operation, and comes out as the one canonical quiet NaN of its type.  For MIN and MAX, -0 is
 * less than +0.  Overflow becomes infinity (f8e4m3, which has none: NaN).  With COLL_SATURATE it becomes the largest finite
 * value of f16 and the 8-bit floats instead, and so does an infinity that is an input, with every operation and on its way to
 * such a wire; NaN remains NaN.
 *   LAND, LOR and LXOR take what is not zero as true, and give 1 or 0.  MINLOC and MAXLOC give the lower index where values are
 * equal.  What is not defined, such as the BAND of floats, is COLL_ERR_UNSUPPORTED with nothing sent; docs/reference.md has the
 * table.  Scans have no COLL_AVG.
 *   A result has the same bits on every rank, and in every run on the same number of ranks.  Two flags promise more:
 *     COLL_DETERMINISTIC    the same bits for every message size, algorithm and transport: additions follow a pairwise tree over
 *                           the rank numbers (in scans: left to right).  Where the grouping cannot matter (integers, MIN, MAX,
 *                           bits) this holds without the flag
 *     COLL_REPRODUCIBLE     a SUM or AVG of floats or complex numbers has the same bits for every order of the ranks, too
 * With either flag the bits are others for another number of ranks.
 *   COLL_REPRODUCIBLE in detail.  A result depends only on which inputs there are, and how many.  Each input is rounded to a
 * grid that the largest input of that element decides.  That changes it by at most 2^-42 of the largest on up to 1,024 ranks
 * (f64: 2^-84), and by twice as much for each doubling beyond (f64: four times).  Then the sum is exact, and rounded once.  f16
 * and the 8-bit floats lose nothing on up to 8,192 ranks.  An AVG, and a scale, are worked out in f64 from that sum; an AVG of
 * f64 does not overflow on the way.  A sum of zero is +0, also of -0 alone.  Only algorithms that combine all raw inputs at
 * once may serve, so partial sums never travel; the arithmetic is several times that of a plain sum.  There is no such PROD of
 * floats, and no such COLL_USER.  In scans, where the order of the ranks is part of the question, the flag means
 * COLL_DETERMINISTIC; elsewhere its promise holds anyway.
 *   An operation of your own (COLL_USER) may be regrouped; it may be reordered too unless not_commutative is set.  It must not
 * use communicators, nor may the log hook: COLL_ERR_ARGUMENT, but for coll_abort.
 *   With COLL_DETECT_OVERFLOW a reducing call of floats or complex numbers whose result on this rank has an infinity or a NaN
 * is counted when it ends; coll_overflows tells how many there were.  Calls that reduce nothing are not looked at.
 *
 * REDUCED PRECISION
 *         coll_allreduce_mixed(comm, x, x, n, COLL_F32, COLL_BF16, COLL_AVG);
 *   With a wire type (coll_allreduce_mixed, coll_call.wire) each input is rounded to the wire type once, and the sum is rounded
 * to it once.  Every element of recv is such a value, converted to the type.  Inputs and results take fewer bytes; partial
 * sums, which some algorithms pass on, travel in the type of the sum.
 *   The wire may be any float of as many bits as the type or fewer, under a float.  Where the wire has the greater range or the
 * more places (f16 and bf16, f8e4m3 and f8e5m2 under one another), the conversion to the type rounds and overflows as any
 * other; COLL_SATURATE keeps to the largest number that both have.
 *   COLL_MXI8, COLL_MXF8E4M3 and COLL_MXF8E5M2 are wire types under f32, f64, f16 and bf16 (OCP MX).  32 elements share a power
 * of two in a byte of its own: 1.03 bytes an element.  Elements are counted from the start of the vector; of its block in a
 * reduce_scatter; of a buffer in a list.  An element of mxi8 is off by at most 2^-7 of the largest of its group.  One of
 * mxf8e4m3 is off by 2^-4 of itself (the largest by 2^-3), one of mxf8e5m2 by 2^-3 of itself, unless it is far below the
 * largest.  A group with an infinity or a NaN, or whose result f16 does not reach, is NaN as a whole.  COLL_STOCHASTIC does not
 * go with them.
 *   Error feedback: with coll_call.residual, which begins as zeros, a call reduces what the wire carries of input + residual.
 * It leaves the rest in residual for the next call of the same vector, so that over many calls no input is lost.  The one
 * rounding of the sum is not fed back.  The residual of what is infinite or NaN is 0; after an error it is undefined.
 *   With COLL_STOCHASTIC every rounding to a type of 16 bits or fewer goes up or down at random, in proportion to the distance.
 * Inputs on their way to such a wire draw by the seed, the rank and the number of the element; results draw by the seed and the
 * number alone.  So all ranks have the same bits, and the same seed gives them again; with COLL_DETERMINISTIC also for every
 * algorithm and transport.  Numbers that the type has are kept.  In a list each buffer counts from 0, and draws by its place.
 * A step of training wants another seed each time.  Elsewhere the flag means nothing.
 *
 * WAITING
 *         coll_request *request;
 *         if (coll_iallreduce(comm, x, y, n, COLL_F32, COLL_SUM, &request)) return 1;
 *         coll_wait(request), coll_request_free(request);
 *   A blocking call is a start and a wait; it returns when this rank's part is done.  coll_i... calls return with a request and
 * do not wait.  The program leaves the buffers alone until coll_wait or coll_test says that the request is finished, and then
 * frees it (coll_request_free).  A request that is freed while it runs is detached: it goes on by itself.  Its buffers must
 * stay until it is known to be over: by a later collective of this communicator that has ended, or for a message by what the
 * receiver says.
 *   Collectives of one communicator run one after the other, in the order in which they were started; they may be waited for in
 * any order.  Any call that starts, waits or tests moves the operations of all communicators that come from the same coll_init.
 * Short ones that are queued do so at the same time, where that makes no difference to their results; and those that are
 * started within microseconds of one another leave together, with the next call that waits or tests.  So start many, and wait
 * for all.
 *   coll_wait_any, coll_wait_some and coll_test_any hand out requests that are finished, each exactly once, whoever has
 * finished it: this call, another thread, the progress thread or any other call.  A request that coll_test or coll_wait has
 * already called finished counts as handed out; coll_restart makes it eligible again.  These functions enter the communicators
 * of all requests that still run.  If these come from several coll_init, a wait looks at each in turn, and sleeps at most a
 * millisecond at a time.  A time limit counts while none of the requests finishes; the shortest one holds for all.
 *   Over TCP a progress thread of the library moves operations between calls.  It is made when the first request is started
 * that is not done at once.  It steps in when requests have been left alone for a tenth of a millisecond, sleeps where there is
 * nothing to move, and gives way to every call.  It takes no signals, runs on the processors of the thread that has made it,
 * and may call the log hook.  It leaves operations of your own (COLL_USER) to the program's threads.  With COLL_BACKGROUND=off,
 * and between threads, nothing moves between calls.
 *
 * PREPARED CALLS
 *         if (coll_prepare(comm, &call, &request)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         for (int step = 0; step < 3; step++) if (coll_restart(request) || coll_wait(request)) return 1;
 *         coll_request_free(request);
 *   coll_prepare checks and plans a call once; its request can be started again and again.  Each prepared call has an order of
 * its own, so that ranks may restart prepared calls in different orders.  A rank that restarts all of them before it waits for
 * the first may do both in any order.
 *   With waits in between there has to be one order of these calls, the same for all ranks, in which no rank waits for a call
 * before it has restarted all that come sooner.  Otherwise a circle of ranks may wait for one another: rank 0 restarts A and
 * waits for it before it restarts B, while rank 1 does so with B before A.
 *
 * MESSAGES
 *         const int next = (rank + 1) % size, before = (rank + size - 1) % size, tag = 7;
 *         if (coll_sendrecv(comm, x, n, next, y, n, before, COLL_F32, tag)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   coll_send, coll_recv and coll_sendrecv are outside the order of collectives.  They are matched by (source, tag) within a
 * communicator, in the order sent; their type must agree.  COLL_ANY_SOURCE and COLL_ANY_TAG (coll_recv; of coll_sendrecv the
 * source only) take what comes first, and coll_received tells of a finished request what that was.
 *   Short messages are kept for a receiver that does not ask yet, up to a bound; others wait for it.  So a program must not
 * count on coll_send to return before the receive is there.  A short message whose sender calls coll_free at once is delivered
 * first; coll_free takes up to 10 s for that where the receiver is busy, or its port is crowded by unauthenticated peers.
 *
 * COMMUNICATORS
 *         coll_comm *half;
 *         if (coll_split(comm, rank % 2, 0, &half)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         coll_barrier(half), coll_free(half);
 *   coll_split, coll_split_host, coll_dup and coll_create make further communicators from some or all ranks of one.
 * Collectives, orders and messages of different communicators never meet.  They share the connections, and so the fate: the
 * first failure ends all communicators that come from one coll_init.
 *   They may be freed in any order, and not by all ranks at once.  Freeing delivers first what this rank has sent.  It hurts
 * those calls of others, in this communicator, that still need this rank:
 *     collectives in which it has not done its part; receives that name it; long messages to it; and receives from any source
 *     when all others have gone
 * These end with COLL_ERR_PEER, and everything else with them.  All other calls go on: messages among the others, and receives
 * from any source that one of them serves.  A call that is hurt fails at once, or when it has waited a quarter of a second and
 * more.  Over TCP, where what was sent may still be on its way, it fails when nothing has come for liveness_timeout_ms since
 * the news, and never with liveness_timeout_ms < 0.  Only a thread that waits or tests finds it out.  Over MPI and transports
 * of the program's own the news is a message, which goes when the communicator is freed.
 *
 * THREADS
 *         coll_comm *other;
 *         if (coll_dup(comm, &other)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         coll_free(other);                         a second thread may use `other` while this one uses `comm`
 *   One thread at a time uses a communicator and its requests; a second one gets COLL_ERR_ARGUMENT, with its sentence in
 * coll_error(NULL).  It need not always be the same thread.  Different communicators, also of one coll_init, may be used from
 * different threads at once, also to make others from them.  coll_abort may come from any thread at any time but during
 * coll_free.  In a simulated world all ranks are one thread.  A communicator is not usable in a forked child (COLL_ERR_FORKED);
 * only coll_free works there.
 *
 * MEMORY
 *         static unsigned char memory[256 << 10];
 *         coll_config frugal = { .size = 1, .allocator = coll_arena_begin(memory, sizeof memory) }; (void)frugal;
 *   A communicator, and all that is made from it, takes its memory from the coll_allocator of its configuration, or from malloc.
 * An arena gives parts of one block (core/contract/coll_memory.h).  Any allocation may fail: the call ends with COLL_ERR_MEMORY,
 * or goes without.  Calls like earlier ones take none; a request has the memory of one that was freed.  Collectives that run at
 * the same time take what they need beside one another, or wait for one another.
 *
 * BOOTSTRAP
 *         coll_config config = { .rank = 0, .size = 1, .address = "10.0.0.1:5000", .tcp = { .network = "10.0.0.0/16" } };
 *         coll_comm *world;
 *         if (coll_init(&world, &config)) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
 *   Over TCP every rank dials rank 0, and tries again until the start timeout.  The address of rank 0 is one of
 *     host:port, [v6]:port, :port     a number or a name.  All addresses of a name are tried, 250 ms apart; link-local ones
 *                                     need their interface.  ":port" stands for all addresses of rank 0's host
 *     host:0, :0                      on rank 0 only: any port; `listening` is told which, and the program hands the text on
 *     file:PATH                       a rendezvous file in a directory that all share: rank 0 writes there where it listens, and
 *                                     removes it when all have come; one that an earlier job has left does no harm
 *     hosts                           a list: entry i is where rank i listens, the first is rank 0's
 *   A rank listens at the address from which it reached rank 0, at a port out of `ports` if that is set.  `network` names other
 * addresses: interfaces (eth1, ib*), addresses, subnets (10.1.0.0/16), and behind a ^ exceptions.  Loopback addresses are told
 * to ranks of the same host (kernel and network namespace) only.  Names are looked up by the system, which may take longer than
 * the timeout.
 *   Rank 0 says every 5 s whom it waits for.  At the end every rank that reached it says so, and the others say which addresses
 * they tried and what became of each.  Ranks of another world (COLL_WORLD, size, protocol), or with another arithmetic (see
 * Compiling), are turned away with a sentence, and rank 0 goes on waiting.
 *   Without an address: MASTER_ADDR and MASTER_PORT, of torchrun (the port behind, where torchrun's agent has that one) or of
 * anybody; under Slurm the first host of the step, and a port from 20000 to 29999 that job and step decide; where Open MPI,
 * MPICH, Flux or PALS have started all ranks on one host, a file in $TMPDIR or /dev/shm.  Rank 0 must be where the address
 * leads; where it is not, both ends say so.
 *
 * SECURITY
 *         coll_config guarded = { .size = 1, .tcp = { .key = "one secret of 16 bytes or more", .security = "key" } };
 *         coll_comm *alone;
 *         if (coll_init(&alone, &guarded)) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
 *   A key is a secret of 16 bytes or more that all ranks share: best 32 bytes at random, since whoever talks to a rank may
 * guess at a phrase for as long as he likes.  With a key both ends of every connection prove that they know it before anything
 * else is read: by HMAC-SHA256 over both ranks, the purpose, the job and fresh random numbers.  Whoever has another key or none
 * gets COLL_ERR_DENIED and a sentence; the others wait on for the rank that is missing.
 *   `security` says what else is done, and is the same on all ranks:
 *     key          nothing: whoever is on the way may read and change what is sent.  Authentication is not encryption
 *     tls          everything behind the greeting is encrypted and protected from changes: TLS 1.3, by OpenSSL, with the key as
 *                  its secret.  It takes COLL_WITH_OPENSSL (-lssl -lcrypto), and is then what a key means unless told otherwise
 *     key+check    sums (CRC32C) for every 64 KiB: finds what cables and cards do to bytes, and nobody's bad intentions
 *     open+check   the same without a key, for public addresses too
 *     open         no key, and public addresses may be used
 * Bytes that were changed on the way are COLL_ERR_PROTOCOL where that is noticed (tls, check).
 *   coll_explain and the log's first line name the security in force.  If there is a key, `security` is not set, and this
 * program was compiled without OpenSSL, rank 0 warns when ranks of other hosts join.
 *   Without a key, whoever reaches the port and knows the size and COLL_WORLD can join.  So ranks then listen at private
 * addresses only (loopback, RFC 1918, unique local, link-local, CGNAT), unless security is open; rank 0 says once when ranks of
 * other hosts come.  Each rank listens at one address: rank 0 at the one it was given, the others where they reached it from.
 *   A rank with a key believes a refusal only from a peer that proves the key with it; anybody else could end the job with one.
 * After any other refusal it tries on, and says so on the log after 3 s.  When its start timeout is over it gets
 * COLL_ERR_DENIED with that text; so too where rank 0 has no key.  Between ranks that have met, that time is
 * liveness_timeout_ms, from 3.5 to 20 s.
 *   Unauthenticated peers on a port cost some memory of a fixed size, and make room for ranks.  With a key a rank answers 200
 * of them a second, and one more for each rank; those that then prove the key do not count.  Nothing they say sizes or indexes
 * anything before it has been checked.
 *   A key file must belong to the user who runs the program, or to root, and nobody else may have any right to it (chmod 600);
 * otherwise it is refused.  But root may use a file of any owner, as containers do that run as root; and a file of root may be
 * readable by its group (chmod 640), as secrets are mounted.  The key itself is in no message, log or sentence; the library
 * wipes its copies.  One rank that has the key is trusted by all.
 *
 * ENVIRONMENT
 *   What a coll_config leaves at its default, but for the log function, comes from here.
 *     COLL_RANK, COLL_SIZE, COLL_ADDR=host:port       who this process is, and where rank 0 listens
 *     COLL_HOSTS, COLL_NETWORK, COLL_PORTS            see Bootstrap.  Without COLL_NETWORK: NCCL_SOCKET_IFNAME or
 *                                                     GLOO_SOCKET_IFNAME, as far as they name an address of this host
 *     COLL_LOCAL_RANK, COLL_LOCAL_SIZE                among the ranks of this host (default 0 of 1)
 *     COLL_THREADS                                    how many ranks this process is to make; another number is an error.
 *                                                     coll-run sets all of these (COLL_THREADS=T with --threads T, else 1),
 *                                                     COLL_WORLD, and with several hosts COLL_KEY
 *     COLL_WORLD=text                                 keeps jobs apart that meet at the same address
 *     COLL_TRANSPORT=tcp|threads|sim|mpi, COLL_SIM=text       see Simulation, MPI
 *     COLL_MPI=auto|native|messages|blocking          see MPI
 *     COLL_KEY=secret, COLL_KEY_FILE=path             see Security.  The file's first line; nobody else's to read
 *     COLL_SECURITY=open|key|tls, or +check           see Security
 *     COLL_IO=auto|uring|poll                         how sockets are driven.  auto: io_uring where it can be had
 *     COLL_SITE=text                                  where this host is (see Hosts)
 *     COLL_SHARE=0                                    processes of one host use TCP, and not memory that they share
 *     COLL_HUB=0                                      they do share it, for messages alone
 *     COLL_LANES=1                                    connections to each peer, the same number on all ranks, up to 16: for long
 *                                                     links, and those that hold each connection to a part of their rate.  A
 *                                                     body of more than 64 KiB goes over all that have room for it.
 *                                                     Between processes of a host one is enough, unless COLL_SHARE=0
 *     COLL_BACKGROUND=on|off                          whether operations move while the program computes (see Waiting)
 *     COLL_ALGORITHM=allreduce=ring,alltoall=circulant:4      see Algorithms
 *     COLL_TUNING=path                                see Tuning
 *     COLL_SPIN_US, COLL_START_TIMEOUT_MS, COLL_STALL_TIMEOUT_MS, COLL_LIVENESS_TIMEOUT_MS
 *     COLL_DUMP=directory                             see After a failure
 *     COLL_DEBUG=none|error|warn|info                 what goes to the log: to the hook, else to stderr (default: warn)
 *   Launchers.  The variables of torchrun, Open MPI, MPICH (Hydra, Intel), MVAPICH, Flux, PALS, jsrun and Slurm are
 * understood.  The first complete set counts; sets that disagree are an error.  Where none is complete, those of
 * LeaderWorkerSet, SkyPilot and AWS Batch count, for a program that is started once on each pod or node.  PMIX_RANK,
 * JOB_COMPLETION_INDEX (also 0: a pod of an indexed Job of Kubernetes is not told of how many) and PET_NNODES are then an
 * error: they tell of others, but not how many ranks there are.  COLL_SIZE=1, which needs no COLL_RANK, says that this process
 * is alone.
 *
 * ERRORS
 *         const coll_status status = coll_allreduce(comm, x, y, n, COLL_F32, COLL_BAND);
 *         if (status == COLL_ERR_UNSUPPORTED) fprintf(stderr, "%s: %s\n", coll_status_text(status), coll_error(comm));
 *   Every call returns a coll_status.  COLL_ERR_ARGUMENT and COLL_ERR_UNSUPPORTED mean that nothing was sent, and the
 * communicator is as before.  So does COLL_ERR_MEMORY where it comes before anything is sent; the other ranks then wait for
 * this one.
 *   Any other error ends the communicator on every rank.  Pending and later calls return the same cause at once, and only
 * coll_free and coll_shrink are left to do.  A rank that has not heard of it yet may still finish a call for which it has all
 * it needs, while the same call fails on another rank.  A call that begins after the news has come never returns COLL_OK: between
 * ranks that share memory, after any rank has returned the error.  recv is undefined after an error.
 *   coll_error(comm) is one sentence that says which rank, which call, which address and why.  A communicator that cannot be
 * made is also a line on the log, for programs that do not look at the status (COLL_DEBUG=none: it is not).
 *   coll_abort ends the communicator on purpose: from any thread, and over TCP (but with liveness_timeout_ms < 0) and between
 * threads from a signal handler too.  The library never exits, aborts or raises a signal.
 *
 * TIME LIMITS
 *         coll_call limited = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = n, .type = COLL_F32,
 *                                     .timeout_ms = 30000 };
 *         if (coll_run(comm, &limited)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *   Late.  A rank that is alive but late is waited for.  After 10 s, and then at doubling intervals, a line on the log names
 * it, and over TCP tells what it does instead.  timeout_ms (of a call) or stall_timeout_ms (of a communicator) turn lateness
 * into COLL_ERR_TIMEOUT.  They count from when the program begins to wait; or to test, while each test finds the call running.
 *   Dead.  A process that dies is noticed at once.  One that sends no heartbeat for liveness_timeout_ms is dead: it is stopped,
 * or its host, or its cable.  A small thread of each rank sends heartbeats to rank 0, also while the program computes, and rank
 * 0 sends them to all: eight times in liveness_timeout_ms.
 *   Silence counts from the last heartbeat received, and is judged at the limit and one such interval.  So a rank that is
 * stopped for less than the limit is never dead; one that is silent for good always is by then, and all know a round trip
 * later.  What has come is read before anybody is judged, so that a rank that was stopped itself blames nobody for that.  Ranks
 * that fall silent after the first failure are judged in the same way: coll_failed_ranks has them.
 *   If a process is stopped while it has the lock of the memory that its host's ranks share, calls that make communicators fail
 * after 10 s (twice liveness_timeout_ms, if that is more), and coll_free goes on without the lock after 10 s.
 *   All survivors name the same rank in the same words: rank, host, process, address.  Where not even the other host answers,
 * they name the link between two ranks, since nobody can tell which end of it is gone.
 *   The same holds for a connection between two ranks over which nothing passes any more: what is on its way then, or a probe
 * every interval (1 s at least), is unanswered for the limit and one interval, looked at once an interval.  A connection that
 * cannot be made, for want of an answer, is tried for four times the limit (4 s at least), as others may crowd the port.
 *   When rank 0 leaves in good order before the others, each of those asks the ranks that it waits for, and tells what it finds
 * to those that wait for it.
 *   liveness_timeout_ms < 0 is for programs that must not have a thread.  They notice only processes that end, and
 * ranks that are silent in coll_shrink for 10 s, or when its start_timeout_ms end.  They let ranks connect only while they are in
 * a call.  A host that vanishes is then noticed by TCP: after 25 s without traffic, or after the
 * 15 minutes for which Linux repeats what is on its way.
 *
 * AFTER A FAILURE
 *         coll_comm *left;
 *         if (status == COLL_ERR_PEER && coll_shrink(comm, &left) == COLL_OK) coll_free(comm), comm = left;
 *   coll_failed_ranks says who is known to have failed, and coll_shrink makes a communicator of those who are left.  A rank that
 * was given up writes nothing into their memory, whenever it goes on.  Inputs are as they were unless in place.  Of the call that
 * failed some ranks may have the result, and others the error: agree on where to go on, by an allreduce of the last step that is
 * complete.
 *   A network that falls into two parts must not make two jobs.  So most ranks have to be left, or half of them with rank 0,
 * for coll_shrink to succeed.  Where that rank 0 is cut off from most others it is itself the one that is given up.
 *   Over TCP, a rank that comes to coll_shrink later than the others is waited for: for twice liveness_timeout_ms where they are
 * enough without it, and then it is given up; for start_timeout_ms where they are too few.
 *   coll_dump writes the last 256 operations.  With COLL_DUMP=directory every rank writes them there when its communicator
 * fails, as coll-RANK.json (after a coll_shrink coll-RANK.1.json, ...).
 *
 * ALGORITHMS
 *         char why[512];
 *         coll_explain(comm, &call, why, sizeof why);
 *         printf("%s\n", why);
 *   A cost model chooses among the algorithms; coll_explain says what it chose, at what price, and what came next.  Between
 * threads the transport has its own way, by memory.  coll_call.algorithm = "ring" or "circulant:4" forces one for a call, also
 * between threads; behind the colon is the radix r, or the number of blocks or slices n.  An unknown name, or one that may not
 * be used there, is COLL_ERR_UNSUPPORTED.  COLL_ALGORITHM does it for the program, in every call where it may be used; an
 * unknown name is an error of coll_init.  Both must be the same on all ranks.
 *     barrier                     circulant:r tree:r
 *     broadcast                   tree:r scatter:r blocks:n chain:n dbtree:n
 *     reduce                      gather:r direct tree:r blocks:n dbtree:n
 *     allreduce                   gather:r direct:r shares circulant:r ring tree:r dbtree:n census
 *     reduce_scatter, ...v        gather:r tree:r direct circulant:r ring
 *     scan, exscan                gather:r transposed census chain:n
 *     gather, scatter, ...v       tree:r direct
 *     allgather, ...v             circulant:r far:r ring tree:r
 *     alltoall, ...v, ...w        circulant:r direct
 * gather, direct and shares (reductions), the trees of allreduce and reduce_scatter, transposed and chain (scans) keep the order
 * of COLL_DETERMINISTIC.  These, the census of scans and the dbtree of allreduce also serve operations that do not commute.  The
 * census of allreduce is only for those whose grouping cannot matter.  Where blocks have counts of their own, tree and circulant
 * take short ones along in packets, while longer ones go straight (coll_explain tells how long).  neighbor_... have direct alone.
 *
 * HOSTS
 *         coll_comm *host;
 *         if (coll_split_host(comm, &host)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         coll_free(host);
 *   Where ranks share hosts, and there are several hosts, a collective is hierarchical: collectives among the ranks of a host
 * (intra), by memory where they are threads, and collectives among one rank of each host (inter).  The latter run at the same
 * time for as many slices of the vector as the smallest host has ranks.  An allreduce over H hosts then sends 2 (H - 1) / H of
 * the vector from each host, however many ranks it has.
 *   16- and 8-bit floats, and sums over a wire type, are still rounded once.  Their sums cross between hosts as f32, 1.5 times
 * the bytes of 16 bits; or with COLL_ROUND_TWICE in the wire type.
 *   Sites are to hosts as hosts are to ranks: racks, switches, data centres, whose hosts share a link to the others.  A rank says
 * at which it is (COLL_SITE, coll_config.site: any text), or a tuning file does.  Then what crosses that link is what one rank of
 * each site would send, and within a site it goes by hosts: with two sites of 3 hosts and 0.25 Gbit/s between them, an allreduce
 * of 8 MiB takes 0.29 s, and 1.03 s where nobody knows of sites.
 *   These run as between single ranks: gather, scatter, alltoall, the neighbor calls, averages of integers, and calls that name
 * an algorithm; calls over groups (mx), with COLL_STOCHASTIC, and with COLL_DETERMINISTIC or COLL_REPRODUCIBLE where bits
 * depend on the order; and, unless the ranks of each host follow one another, scans, reduce_scatter and operations that do not
 * commute.
 *
 * TUNING
 *         char link[256];
 *         if (coll_measure(comm)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
 *         coll_link_text(comm, link, sizeof link), printf("%s\n", link);
 *   The cost model has four numbers.  They are built in, or those of a file, or (transport sim) those of the simulated machine;
 * or measured, once coll_measure has been called.  coll_explain tells which ones they are, and coll_link_text writes them as a
 * file has them:
 *     latency=12us overhead=1.2us gbit=10 reduce=4GB/s
 * latency is the time until a message is there; overhead the time of one more message at once; gbit the bits on the wire a
 * second (or wire=, a rate); reduce the bytes added up a second.  barrier= is the time of a barrier where the transport has a
 * way of its own.  Whatever the file does not mention is as built in; # begins a comment.
 *   If hosts have links of different rates, the numbers are those of the slowest, and faster=0-2:2.5 says that the links of
 * ranks 0 to 2 have 2.5 times its rate; 4: is rank 4, and 4-: all from there on.  Such words stand in rising order, and ranks
 * without one have the slowest link.  A long allreduce then gives each rank a share that its link can carry: with one link of
 * four at half the rate of the others it takes two thirds of the time.  Its bits are the same.
 *   site=8 site=16 say that from ranks 8 and 16 on it is another site (see Hosts), up to eight times; far_latency= and far_gbit=
 * what is between sites: the time until a message is there, and what the link of a site carries.
 *   coll-check measures the links between every two ranks, and writes all of this for jobs on the same hosts:
 *     coll-run -H a:4,b:4,c:4 coll-check --tuning job.tuning
 *     COLL_TUNING=job.tuning coll-run -H a:4,b:4,c:4 ./program
 * coll_measure leaves faster=, site=, far_latency= and far_gbit= as they are.  If rank 0 knows its site, it measures with ranks
 * of that site, provided that the ranks of each site follow one another.
 *   Rank 0 reads the file, and hands its numbers to the others as they meet.  It is enough that rank 0 has tuning_file or
 * COLL_TUNING; on other ranks neither is looked at.  coll_init_custom reads no file.
 *   What is measured differs a little from run to run, and must not show in results.  So in sums of floats, and wherever else
 * the grouping shows in the bits, measured numbers choose only among algorithms that give the same bits.  A file may change
 * such bits; with the same file they are the same in every run.
 *
 * SIMULATION
 *         COLL_TRANSPORT=sim COLL_SIM="latency=12us overhead=1.2us gbit=10 reduce=4GB/s hosts=8 seed=7 kill=3@120" ./program
 *   With COLL_TRANSPORT=sim, coll_spawn runs all ranks in the calling thread, up to 65536 of them, under a virtual clock
 * (coll_sim_time): the same engine and algorithms, on a machine that need not exist.  Each rank has a stack of its own, and
 * runs until it waits in a call of the library.  What a rank does in between takes no virtual time; a rank that waits in
 * anything else stops them all.  Static and thread-local variables are one for all ranks, and so is coll_error(NULL); nothing
 * notices it when ranks get in one another's way there.
 *   COLL_SIM describes the machine, and what is to go wrong in it:
 *     latency, overhead, local_latency, far_latency, jitter, detection = a time (ns, us, ms, s); gbit = Gbit/s; wire, local, far,
 *     reduce = a rate (GB/s, MB/s, Gbit/s, Mbit/s); hosts = how many, or per_host = ranks on each; sites = how many, each with a
 *     link to the others that carries far; capacity = messages in a channel (0: a send waits for its receive); seed; stack (KiB,
 *     MiB)
 *     kill=3@120   kill=3@1.5ms   stop=...            rank 3 at its 120th call of the transport, or at a time
 *     cut=4-7@1ms                                     ranks 4 to 7 from all others
 *     lose=2>1@5   late=2>1@5+3ms   pieces=2>1        message 5 from rank 2 to rank 1; without @: all of them
 *     slow=3:0.5   slow=3:0.5@1ms                     the network of the host of rank 3 to half its rate
 *   coll_init_threads with transport "sim" gives all ranks to one thread, which starts operations on each and polls
 * (coll_test).  When nothing can move any more, every rank gets COLL_ERR_TIMEOUT and a sentence that says who waits in which
 * call, or COLL_ERR_MISMATCH where two wait in different ones.  The same seed gives the same order of events.  A rank that is
 * killed or stopped counts for nothing in the result of coll_spawn.
 *
 * MPI
 *         #define COLL_WITH_MPI 1                                       compiled by mpicc
 *         if (coll_wrap_mpi(MPI_COMM_WORLD, &comm)) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
 *   coll_wrap_mpi makes a communicator of the ranks of an MPI communicator; coll_init with COLL_TRANSPORT=mpi of
 * MPI_COMM_WORLD.  The latter calls MPI_Init_thread where nobody has, and then MPI_Finalize when the last communicator of that
 * coll_init is freed.  Everything in this manual holds there too, but for this.
 *   Calls that MPI does right are handed to it: what only moves elements, reductions of integers of 32 and 64 bits (but min and
 * max of unsigned ones), sums and products of f32 and f64 without flags.  Not so alltoallw, neighbor calls, before MPI 4 v
 * forms, and of prepared calls those beyond the first 64 of a communicator.  All others are this library's own, over messages
 * of MPI; coll_explain says which way and why.
 *   COLL_MPI=messages leaves nothing to MPI.  COLL_MPI=native leaves everything to it, and refuses with COLL_ERR_UNSUPPORTED
 * what it does not do right.  auto is both.  Where all ranks wait for a call it takes MPI's blocking form, which is faster, as
 * ranks of one host with a processor each find out in memory; it begins when the last of them has come, and limits of time end
 * there.  Otherwise it takes the non-blocking one.  COLL_MPI=blocking, for programs that make blocking calls only, is auto with
 * blocking forms throughout: all calls, coll_i... too, then wait for the others as they start, without limits or warnings.
 *   Sums of floats by MPI have the bits that MPI makes: the same on all ranks, and in every run, as far as it promises that.
 * The flags, and COLL_MPI=messages, route around it.  NaN in such sums are whatever the processor makes of them.
 *   Ranks that disagree about a call of MPI are found when both have waited 100 ms, or by MPI's error, which does not name both
 * calls.  MPI may also take two different calls for one; COLL_MPI=messages compares all.
 *   After a failure MPI may still use the buffers of what was running until MPI_Finalize, for it has no way to give that up.
 * It may not return from MPI_Finalize then: programs that want to go on end by MPI_Abort.  A process that dies ends the job, as
 * MPI has it; there are no heartbeats and no coll_shrink.
 *   Threads: below MPI_THREAD_SERIALIZED only the thread that made the communicator may use it; with SERIALIZED no two threads
 * may be inside MPI or this library at once.  coll_split, coll_dup and coll_create wait for all members inside MPI, so that two
 * threads of a rank must not make communicators at once.
 *
 * GPUS
 *         if (coll_init_nccl(host, device, stream, &gpu)) return fprintf(stderr, "%s\n", coll_error(host)), 1;
 *         coll_iallreduce(gpu, gradient, gradient, n, COLL_BF16, COLL_SUM, &request);
 *         next_kernel<<<grid, block, 0, stream>>>(gradient);            sees the sum; the host has waited for nothing
 *   With COLL_WITH_NCCL, coll_init_nccl and coll_wrap_nccl make communicators whose buffers lie in the memory of a GPU, or in
 * pinned or managed memory, which it sees as well.  libnccl.so.2 (2.18 or later) and libcuda.so.1 are loaded when the first one
 * is made: the ones that the program has loaded already before any others, or those that COLL_NCCL_LIB and COLL_CUDA_LIB name.
 * Nothing of them is needed to compile or to link.  Everything below coll_init... is the same, but for this.
 *   Every call goes into a stream of the GPU when it is started.  Buffers are read and written when the stream comes to it.
 * What the program puts into the stream behind a call sees its result; what it has put in front of it is in the input; nobody
 * need wait.  coll_wait and blocking calls wait on the host, with time limits, and see a failure of any rank; what waits for
 * the stream by other means does not.
 *   coll_isend and coll_irecv go into the stream together with those that follow at once, with the next other call on the
 * communicator.  Only then are an exchange of two ranks, and a message to oneself, possible.
 *   Ranks issue all calls of all communicators of one device in the same order, restarts of prepared calls and messages between
 * two ranks included.  Messages match in the order in which they are started, on both ends with the same count; tags are not
 * looked at.  COLL_ANY_SOURCE, COLL_ANY_TAG and a blocking message to oneself alone are COLL_ERR_UNSUPPORTED.
 *   Who carries a call:
 *     NCCL itself          what only moves data; sums, products and integer MIN and MAX of the types that it has.  Those of
 *                          floats carry its guarantee, not the one of Numbers; an average, or a scale, is one more step
 *     NCCL and kernels     with the bits of the CPU: f16 and bf16, and f32 over such a wire, in f32 with one rounding; MIN and
 *     of the library       MAX of floats, bits and logic, averages of integers, scans, 16-bit integers; f32 and f64 with
 *                          COLL_DETERMINISTIC
 *     the host             what is left: COLL_USER, pairs, products of complex numbers, 8-bit floats, mx wires, residual,
 *                          COLL_REPRODUCIBLE, COLL_STOCHASTIC, COLL_SATURATE, a named algorithm.  In pinned memory, over the
 *                          connections that the ranks have there; such a call waits for the stream and the other ranks when it
 *                          is started, coll_i... too
 * coll_explain says which way a call goes.
 *   While the stream is captured into a graph, calls are recorded and return at once with COLL_OK.  Those that go by the host
 * are COLL_ERR_UNSUPPORTED then; memory that a call needs must be there from one like it before.
 *   Communicators of one coll_init_nccl may be used from different threads at once, others on the same device may not.  After a
 * failure NCCL's communicators are aborted, and what hangs in the stream ends; one that was wrapped is its owner's to abort.
 *
 * GLOSSARY
 *     algorithm       the messages by which a collective is carried out: which rank sends which blocks to whom in which round
 *     block           the elements of one rank, or for one rank, in a buffer
 *     bootstrap       how ranks find one another when coll_init is called
 *     collective      a call that all ranks of a communicator make together
 *     communicator    ranks that make collectives together, in an order of their own
 *     engine          the part that carries out calls by messages, round by round
 *     fold            to combine elements of several ranks by the operation of a call
 *     heartbeat       a message that says only that a process is alive
 *     hierarchical    put together from collectives within hosts (intra) and between hosts (inter)
 *     lane            one of several connections between two ranks
 *     offload         to hand a whole call to the transport, which has its own way for it
 *     order           calls that run one after the other; a communicator and each prepared call have one
 *     prepared call   a call that is checked and planned once, and started many times
 *     progress        moving operations on; the progress thread does so while the program computes
 *     rank            one of the processes or threads that work together, and its number
 *     rendezvous file the file in which rank 0 writes where it listens
 *     request         one operation that was started, until the program frees it
 *     root            the rank that has the input, or gets the result, alone
 *     slice           one of the parts into which the engine cuts a long vector, to have several on their way at once
 *     transport       what carries bytes between ranks: threads, tcp, sim, mpi, or one of the program's own
 *     wire type       the type in which a reducing call sends elements
 *     world           the ranks of one coll_init or coll_spawn
 */
#ifndef COLL_H
#define COLL_H

#if defined(COLL_IMPLEMENTATION) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1                         /* sockets, mmap and syscall under -std=c11 */
#endif

#include "core/base/coll_parts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#if COLL__HAS_OS
#include <stdio.h>
#endif

#define COLL_VERSION_MAJOR 0
#define COLL_VERSION_MINOR 3
#define COLL_VERSION_PATCH 0

#if defined(COLL_STATIC)
#define COLL_API __attribute__((unused)) static
#else
#define COLL_API extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- >>status: 0 is done, above is not yet, below is an error ---- */

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
typedef enum coll_status { COLL__STATUS_TABLE(COLL__STATUS_NAME) COLL__STATUS_LIMIT = 2 } coll_status;
#undef COLL__STATUS_NAME

/* The fixed text of a status, e.g. "a rank is gone or unreachable". */
COLL_API const char *coll_status_text(coll_status status);

/* ---- >>types: elements and what is done with them ---- */

/* Numbered from 1: 0 in a descriptor means "default". */
typedef int coll_type;
enum {
    COLL_I8 = 1, COLL_I16, COLL_I32, COLL_I64, COLL_U8, COLL_U16, COLL_U32, COLL_U64,
    COLL_BOOL,                                    /* one byte; whatever is not 0 is true                     */
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

/* Opaque elements of 1 to 2^30 - 1 bytes: moved as they are, and reduced by COLL_USER only. */
#ifdef __cplusplus
static constexpr coll_type coll__blob(long long bytes) { return static_cast<coll_type>(0x40000000 | bytes); }
#define COLL_BLOB(bytes) coll__blob(bytes)
#else
#define COLL_BLOB(bytes) ((coll_type)(0x40000000 | (bytes)))
#endif

typedef enum coll_op {
    COLL_SUM, COLL_PROD, COLL_MIN, COLL_MAX, COLL_AVG, COLL_BAND, COLL_BOR, COLL_BXOR, COLL_LAND, COLL_LOR, COLL_LXOR,
    COLL_MINLOC, COLL_MAXLOC, COLL_USER
} coll_op;

/* An operation of one's own: inout[i] = in[i] op inout[i], `in` holding the lower ranks' part.  Associative.  Elements are
 * never split, pointers are 16-byte aligned, and it runs only inside a call of this library, on the thread that last used the
 * communicator. */
typedef void coll_reduce_fn(const void *in, void *inout, size_t count, coll_type type, void *context);

typedef enum coll_kind {
    COLL_BARRIER = 1, COLL_BROADCAST, COLL_REDUCE, COLL_ALLREDUCE, COLL_REDUCE_SCATTER, COLL_REDUCE_SCATTERV,
    COLL_SCAN, COLL_EXSCAN, COLL_GATHER, COLL_GATHERV, COLL_SCATTER, COLL_SCATTERV, COLL_ALLGATHER, COLL_ALLGATHERV,
    COLL_ALLTOALL, COLL_ALLTOALLV, COLL_ALLTOALLW,
    COLL_NEIGHBOR_ALLGATHER, COLL_NEIGHBOR_ALLGATHERV,
    COLL_NEIGHBOR_ALLTOALL, COLL_NEIGHBOR_ALLTOALLV, COLL_NEIGHBOR_ALLTOALLW,
    COLL_ALLREDUCE_LIST,
    COLL_SEND, COLL_RECV, COLL_SENDRECV
} coll_kind;

enum { COLL_NO_RANK = -1, COLL_NO_COLOR = -1, COLL_ANY_SOURCE = -2, COLL_ANY_TAG = -2 };

COLL_API size_t      coll_type_size(coll_type type);      /* bytes of an element; 0 for an unknown type     */
COLL_API const char *coll_type_name(coll_type type);      /* "f32"; "?" for an unknown one                  */
COLL_API const char *coll_op_name(coll_op op);            /* "sum"                                          */
COLL_API const char *coll_kind_name(coll_kind kind);      /* "allreduce"                                    */

/* Stands for `send`: the input is in recv. */
#ifdef __cplusplus
#define COLL_IN_PLACE (reinterpret_cast<void *>(~intptr_t()))
#else
#define COLL_IN_PLACE ((void *)(intptr_t)-1)
#endif

/* ---- >>communicators: joining and leaving ---- */

typedef struct coll_comm coll_comm;
typedef struct coll_request coll_request;

#include "core/contract/coll_configuration.h"     /* coll_config, coll_sim                                     */

/* Join the ranks of this job, one per process, and give this one's communicator.  NULL: all from the environment.
 * Returns when every rank is there, or after start_timeout_ms with the missing ranks named in coll_error(NULL); or, when one that
 * had come is gone and has not come again within liveness_timeout_ms (and 1.5 s), with COLL_ERR_PEER, which names that one. */
COLL_API coll_status coll_init(coll_comm **out, const coll_config *config);

/* Make `count` ranks that are threads of this process, to be used by one thread at a time each.  Alone, out[i] belongs to rank i;
 * in a job of more ranks, to the one behind i others from config->rank (COLL_RANK) on, and the log hook may be called from
 * several threads at once. */
COLL_API coll_status coll_init_threads(int count, coll_comm **out, const coll_config *config);

/* Run fn(comm, arg) on `count` threads, each a rank, and wait for all.  Returns 0 when all did, else the result of the
 * lowest rank that did not return 0.  If no communicator can be made: a negative coll_status, with coll_error(NULL).  What fn
 * leaves of `comm` is freed when it returns; it may free it sooner, as after a coll_shrink, but frees what it has made itself. */
COLL_API int coll_spawn(int count, int (*fn)(coll_comm *comm, void *arg), void *arg);

/* The same with a configuration; NULL: as coll_spawn. */
COLL_API int coll_spawn_with(int count, int (*fn)(coll_comm *comm, void *arg), void *arg, const coll_config *config);

/* Leave; each rank by itself.  Pending requests end with COLL_ERR_ABORTED (and remain to be freed); others that still wait for
 * this rank in it get COLL_ERR_PEER (see Communicators).  Works in every state, on NULL too, and returns within 2 s,
 * or 10 s where it still has a message to deliver (see Messages).  Returns COLL_ERR_MISMATCH if other ranks have made other
 * collectives than this one (see Agreement), with coll_error(NULL) and a line on the log; the communicator is freed anyway. */
COLL_API coll_status coll_free(coll_comm *comm);

/* The ranks that give the same color, ordered by key and then by rank in `comm`, make a communicator.  COLL_NO_COLOR: none for
 * this rank, *out = NULL.  Called by all ranks of `comm`. */
COLL_API coll_status coll_split(coll_comm *comm, int color, int key, coll_comm **out);

/* The ranks that share memory, or at least the host, with this one. */
COLL_API coll_status coll_split_host(coll_comm *comm, coll_comm **out);

/* The same ranks again. */
COLL_API coll_status coll_dup(coll_comm *comm, coll_comm **out);

/* A communicator of the given `count` ranks of `comm`, in that order; called by these only, with the same list and tag.
 * Creations that overlap in time need different tags (0 <= tag) or different lists. */
COLL_API coll_status coll_create(coll_comm *comm, const int *ranks, int count, int tag, coll_comm **out);

/* What this rank of `comm` is called in the communicator of coll_init; COLL_NO_RANK for no such rank. */
COLL_API int coll_parent_rank(const coll_comm *comm, int rank);

/* End the communicator, and all that come from the same coll_init, on every rank, with COLL_ERR_ABORTED and this sentence.  From
 * any thread, also while another one waits inside a call, and from a signal handler (see Errors). */
COLL_API coll_status coll_abort(coll_comm *comm, const char *why);

/* After a failure: a communicator of those who are left, numbered from 0 in the order of `comm`.  Called by each of them, on the
 * communicator of coll_init or on any derived from it, whose ranks then come together.  Needs nothing of those who are lost, and
 * waits for ranks that are not known to be lost until the start_timeout_ms have passed; but once enough are there, only for two
 * liveness_timeout_ms (10 s at most) after the last one has come.  A process that has ended is known to be lost at once, also
 * when it ends in the meantime: then all others come together, or are all told that they are too few, within a
 * liveness_timeout_ms and a little.  One that is stopped or cut off in the meantime is lost after two of them; where rank 0 is
 * lost and too few have come, it cannot be told from one that is late, and is waited for until the start_timeout_ms have passed.
 * All ranks that get COLL_OK have the same communicator, even if more ranks are lost meanwhile.  After an error it may be called
 * again, on `comm` or on any communicator with the same ranks: retries and late ranks never make a second communicator.
 * A rank that has been given up stays so.
 * coll_shrink requires more than half of the ranks of `comm`, or exactly half including rank 0.  Therefore a partitioned network
 * never yields two jobs.  COLL_ERR_PEER: too few are left, or the others have given this rank up.
 * `comm` stays as it is, and is freed as ever; what it gives can be shrunk in turn.  Over TCP once for each coll_init; in a
 * simulated world also for one list of ranks only, and under coll_spawn. */
COLL_API coll_status coll_shrink(coll_comm *comm, coll_comm **out);

/* The ranks of `comm` known to have failed: that of the failure which ended it, where it is gone or was too late, and others that
 * this rank knows of.  After a coll_shrink that has succeeded: exactly those that did not come, the same on all who did; the
 * others are the ranks of what it gave, in the same order.  Gives how many, and writes the first `capacity` of them, the one
 * that ended it before the others. */
COLL_API int coll_failed_ranks(const coll_comm *comm, int *ranks, int capacity);

/* The graph of the neighbour calls of `comm`, replacing an earlier one: from whom and to whom this rank exchanges.  Lists may
 * name a rank twice, this one, or COLL_NO_RANK, whose block stays untouched.  Every edge is in the lists of both its ends: what
 * goes to the n-th place in which this rank names another as a destination comes from the n-th in which that one names it as a
 * source.
 * Called by all ranks; the lists are copied.  Prepared neighbour calls of before cannot be restarted. */
COLL_API coll_status coll_neighbors(coll_comm *comm, const int *sources, int source_count, const int *destinations,
                                    int destination_count);

COLL_API int coll_rank(const coll_comm *comm);
COLL_API int coll_size(const coll_comm *comm);
COLL_API int coll_local_rank(const coll_comm *comm);      /* among the ranks of this host, counted in the communicator of */
COLL_API int coll_local_size(const coll_comm *comm);      /* coll_init also for those derived from it                     */

/* The sentence of the last error of this communicator, "" when there was none.  NULL: of the last coll_init,
 * coll_init_threads or coll_spawn of the calling thread that failed.  Valid until the next call on the communicator. */
COLL_API const char *coll_error(const coll_comm *comm);

/* ---- >>collectives: blocking; each has a non-blocking twin below.  v: block i has counts[i] elements at offsets[i], in
 * elements; offsets NULL: one after the other ---- */

/* Return when every rank has called it. */
COLL_API coll_status coll_barrier(coll_comm *comm);

/* Copy the root's `count` elements into the buffer of every rank.  The root's own may be written with the bytes it has. */
COLL_API coll_status coll_broadcast(coll_comm *comm, void *buffer, size_t count, coll_type type, int root);

/* recv[i] on the root = send[i] of rank 0 op send[i] of rank 1 op ...; recv is untouched elsewhere. */
COLL_API coll_status coll_reduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                 coll_op op, int root);

/* The same on every rank, with identical bits.
 *
 *     coll_allreduce(comm, gradient, gradient, n, COLL_F32, COLL_AVG);
 */
COLL_API coll_status coll_allreduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                    coll_op op);

/* allreduce whose messages carry another type, e.g. COLL_F32 buffers over a COLL_BF16 wire.  Inputs are rounded to the wire
 * type, summed in f32 (f64 over f32: in f64) and rounded once more; recv holds values of the wire type, in the type of recv. */
COLL_API coll_status coll_allreduce_mixed(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                          coll_type wire, coll_op op);

/* One of many tensors of a coll_allreduce_list; send == recv, or COLL_IN_PLACE for send: in place. */
typedef struct coll_buffer { const void *send; void *recv; size_t count; coll_type type; } coll_buffer;

/* allreduce of every one of `n` buffers, of any types that have the operation; small ones travel together.  `buffers` must
 * live until it is finished. */
COLL_API coll_status coll_allreduce_list(coll_comm *comm, const coll_buffer *buffers, int n, coll_op op);

/* Reduce size * recv_count elements and leave block r, recv_count of them, on rank r.  v: block r has counts[r] elements, and
 * send holds the blocks one after the other; in a coll_call the counts are recv_counts. */
COLL_API coll_status coll_reduce_scatter(coll_comm *comm, const void *send, void *recv, size_t recv_count,
                                         coll_type type, coll_op op);
COLL_API coll_status coll_reduce_scatterv(coll_comm *comm, const void *send, void *recv, const size_t *counts,
                                          coll_type type, coll_op op);

/* recv[i] on rank r = send[i] of rank 0 op ... op send[i] of rank r.  COLL_AVG is COLL_ERR_UNSUPPORTED. */
COLL_API coll_status coll_scan(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op);

/* The same up to rank r - 1; recv of rank 0 is untouched. */
COLL_API coll_status coll_exscan(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, coll_op op);

/* recv of the root = the `count` elements of rank 0, of rank 1, ...  v: counts and offsets matter at the root only. */
COLL_API coll_status coll_gather(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, int root);
COLL_API coll_status coll_gatherv(coll_comm *comm, const void *send, size_t send_count, void *recv, const size_t *counts,
                                  const size_t *offsets, coll_type type, int root);

/* recv of rank r = block r, `count` elements, of the root's send.  v: counts and offsets matter at the root only. */
COLL_API coll_status coll_scatter(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type, int root);
COLL_API coll_status coll_scatterv(coll_comm *comm, const void *send, const size_t *counts, const size_t *offsets,
                                   void *recv, size_t recv_count, coll_type type, int root);

/* recv = the `count` elements of rank 0, of rank 1, ...: size * count elements on every rank.  v: counts are equal on all
 * ranks, offsets may differ. */
COLL_API coll_status coll_allgather(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type);
COLL_API coll_status coll_allgatherv(coll_comm *comm, const void *send, size_t send_count, void *recv, const size_t *counts,
                                     const size_t *offsets, coll_type type);

/* Block r of send goes to rank r, block r of recv comes from rank r; `count` elements each.  v: any counts, as long as both
 * ends of a pair agree.  w: every block has a type of its own, and offsets are in bytes. */
COLL_API coll_status coll_alltoall(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type);
COLL_API coll_status coll_alltoallv(coll_comm *comm, const void *send, const size_t *send_counts, const size_t *send_offsets,
                                    void *recv, const size_t *recv_counts, const size_t *recv_offsets, coll_type type);
COLL_API coll_status coll_alltoallw(coll_comm *comm, const void *send, const size_t *send_counts, const size_t *send_bytes,
                                    const coll_type *send_types, void *recv, const size_t *recv_counts,
                                    const size_t *recv_bytes, const coll_type *recv_types);

/* Between the neighbours of coll_neighbors.  allgather: send goes to every destination, block i of recv comes from source i.
 * alltoall: block i of send goes to destination i.  Not in place. */
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

/* ---- >>messages: matched by (source, tag) in the order sent, outside the order of collectives ---- */

/* Returns when the buffer may be reused; long messages, and many short ones that nobody receives, wait for the receiver.
 * 0 <= tag.  To oneself is allowed. */
COLL_API coll_status coll_send(coll_comm *comm, const void *buffer, size_t count, coll_type type, int peer, int tag);

/* `count` is the room: a shorter message is fine (coll_received tells), a longer one is COLL_ERR_MISMATCH, and so is one
 * of another type.  COLL_ANY_SOURCE and COLL_ANY_TAG take what comes first. */
COLL_API coll_status coll_recv(coll_comm *comm, void *buffer, size_t count, coll_type type, int peer, int tag);

/* Send to dest and receive from source at once, without deadlock in any pattern. */
COLL_API coll_status coll_sendrecv(coll_comm *comm, const void *send, size_t send_count, int dest,
                                   void *recv, size_t recv_count, int source, coll_type type, int tag);

/* ---- >>requests: start now, finish later ---- */

COLL_API coll_status coll_ibarrier(coll_comm *comm, coll_request **out);
COLL_API coll_status coll_ibroadcast(coll_comm *comm, void *buffer, size_t count, coll_type type, int root,
                                     coll_request **out);
COLL_API coll_status coll_ireduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                  coll_op op, int root, coll_request **out);
COLL_API coll_status coll_iallreduce(coll_comm *comm, const void *send, void *recv, size_t count, coll_type type,
                                     coll_op op, coll_request **out);
COLL_API coll_status coll_iallreduce_mixed(coll_comm *comm, const void *send, void *recv, size_t count,
                                           coll_type type, coll_type wire, coll_op op, coll_request **out);
COLL_API coll_status coll_iallreduce_list(coll_comm *comm, const coll_buffer *buffers, int n, coll_op op,
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

/* Move all operations of the communicator on and say how this one stands: COLL_PENDING, COLL_OK or an error. */
COLL_API coll_status coll_test(coll_request *request);

/* Wait until it is finished.  Neither coll_test nor coll_wait frees it; NULL counts as finished. */
COLL_API coll_status coll_wait(coll_request *request);

/* Wait for all; the first error found, each request's own status is left to coll_test. */
COLL_API coll_status coll_wait_all(int count, coll_request **requests);

/* Wait for one: *index says which, and what is returned is its status.  Each end is handed out once, whoever has brought it about
 * (see Waiting); one of which coll_test or coll_wait has told already, one that is prepared and not started, and NULLs are
 * skipped.  *index = -1: none is left, COLL_OK, or the call itself is an error. */
COLL_API coll_status coll_wait_any(int count, coll_request **requests, int *index);

/* The same for all that are finished, and at least one: *count of them, whose numbers are written to indices (room for n).
 * Returns the first error among them; each one's own status is left to coll_test.  *count = 0: none is left. */
COLL_API coll_status coll_wait_some(int n, coll_request **requests, int *indices, int *count);

/* coll_wait_any that does not wait.  COLL_PENDING with *index = -1: none is finished yet, and some are running. */
COLL_API coll_status coll_test_any(int n, coll_request **requests, int *index);

/* What a finished receive got; each pointer may be NULL. */
COLL_API coll_status coll_received(const coll_request *request, int *source, int *tag, size_t *count);

/* Free it.  One that is still running goes on by itself: its buffers must stay until it is known to be over. */
COLL_API void coll_request_free(coll_request *request);

/* Move all operations of the communicator on without waiting. */
COLL_API coll_status coll_progress(coll_comm *comm);

/* For event loops: a descriptor that becomes readable when an operation of this coll_init has ended, or when one needs a call of
 * the program to go on (COLL_USER).  Then call coll_progress, which makes it unreadable again, and coll_test; it may also be
 * readable for no reason.  It belongs to the communicators of the coll_init, stays the same, and is closed with the last of
 * them.  -1: there is none, because nothing moves while the program is not inside a call (see `background`). */
COLL_API int coll_fd(coll_comm *comm);

/* ---- >>call: one descriptor behind all of them; zero means default ---- */

enum {
    COLL_DETERMINISTIC = 1,       /* the same bits for every message size, algorithm and transport            */
    COLL_SATURATE = 2,            /* results of f16 and the 8-bit floats are finite, or NaN                   */
    COLL_REPRODUCIBLE = 4,        /* and for every order of the ranks: sums of floats are exact but for one rounding of
                                     the inputs to 2^-42 of the largest of them, or less (see Numbers)        */
    COLL_STOCHASTIC = 8,          /* rounding to 16 bits and fewer goes up or down at random, see seed        */
    COLL_DETECT_OVERFLOW = 16,    /* count calls whose result has an infinity or a NaN: coll_overflows        */
    COLL_ROUND_TWICE = 32         /* where hosts hold several ranks, their sums may be rounded before they cross: fewer bytes */
};

typedef struct coll_call {
    coll_kind   kind;             /* COLL_ALLREDUCE, ...                                                     */
    const void *send;
    void       *recv;             /* broadcast: the buffer                                                   */
    size_t      count;            /* elements; of one block where there are many                             */
    const size_t *send_counts, *send_offsets, *recv_counts, *recv_offsets;     /* v and w; reduce_scatterv: recv_counts */
    const coll_type *send_types, *recv_types;     /* w, whose offsets are in bytes                           */
    size_t      recv_count;       /* sendrecv: the room; scatterv: what this rank expects                    */
    size_t      row;              /* a block is rows of so many elements (see Matrices); 0: it lies in one piece */
    size_t      send_stride, recv_stride;         /* elements from one row to the next in that buffer; 0: none between rows */
    coll_type   type;             /* of the buffers                                                          */
    coll_type   wire;             /* in the messages of a reducing call; 0 = type                            */
    coll_type   accumulate;       /* of sums; 0 = f32 for floats of 8 and 16 bits, else type                 */
    coll_op     op;
    coll_reduce_fn *fn;           /* COLL_USER                                                               */
    void       *fn_context;
    bool        not_commutative;  /* COLL_USER: ranks must be combined in their order                        */
    double      scale;            /* floats: multiplies the sum before it is rounded; 0 = 1                  */
    unsigned    flags;            /* COLL_DETERMINISTIC, ...                                                 */
    uint64_t    seed;             /* COLL_STOCHASTIC: the same seed draws the same; all ranks give the same one */
    float      *residual;         /* error feedback with a wire of fewer bits, as long as send: added to the input, and
                                     replaced by what its rounding to the wire left out; NULL = none         */
    const coll_buffer *list;      /* allreduce_list                                                          */
    int         list_count;
    int         root;             /* send: the destination; recv: the source; sendrecv: the destination      */
    int         tag;
    int         source;           /* sendrecv: whom to receive from                                          */
    int         timeout_ms;       /* 0 = the communicator's stall_timeout_ms                                 */
    const char *algorithm;        /* force one by name (see coll_explain), with its radix or its number of blocks:
                                     "circulant:4"; NULL = COLL_ALGORITHM, or the library's choice.  The same on all ranks */
    const char *name;             /* appears in errors, e.g. "gradient of layer 3"                           */
} coll_call;                      /* whatever it points to must live until the request is finished (prepared: freed) */

COLL_API coll_status coll_run(coll_comm *comm, const coll_call *call);                               /* blocking */
COLL_API coll_status coll_start(coll_comm *comm, const coll_call *call, coll_request **out);     /* non-blocking */

/* Check and plan a call once, to start it many times: all ranks prepare in the same order as they start other calls, and may
 * then restart in any order (but see Prepared calls).  The request is not running yet: coll_restart, then coll_wait, again.  A
 * restart of one that is still running is COLL_ERR_ARGUMENT.  In sentences "allreduce #3 (prepared call 2)" is the third start
 * of the second call that was prepared on the communicator. */
COLL_API coll_status coll_prepare(coll_comm *comm, const coll_call *call, coll_request **out);
COLL_API coll_status coll_restart(coll_request *request);

/* ---- >>numbers: the library's own arithmetic, for one thread ---- */

COLL_API uint16_t coll_f32_to_f16(float value);           /* all round to nearest even                       */
COLL_API uint16_t coll_f32_to_bf16(float value);
COLL_API float    coll_f16_to_f32(uint16_t bits);
COLL_API float    coll_bf16_to_f32(uint16_t bits);
COLL_API uint8_t  coll_f32_to_f8e4m3(float value);
COLL_API uint8_t  coll_f32_to_f8e5m2(float value);
COLL_API float    coll_f8e4m3_to_f32(uint8_t bits);
COLL_API float    coll_f8e5m2_to_f32(uint8_t bits);

/* dst[i] = src[i] among the floats, rounded once; equal types of any kind copy, as memmove does.  Otherwise the buffers must not
 * overlap, unless dst == src and both types have the same size: that is COLL_ERR_ARGUMENT, with nothing written. */
COLL_API coll_status coll_convert(void *dst, coll_type dst_type, const void *src, coll_type src_type, size_t count);

/* The same, rounded up or down at random in proportion to the distance, to types of 16 bits and fewer: the mean of many
 * roundings of x is x.  Element i draws by `seed` and first + i, so the same call gives the same bits on every machine, and a
 * buffer may be converted in pieces.  Numbers that dst_type has are kept, and so is overflow as in coll_convert. */
COLL_API coll_status coll_convert_stochastic(void *dst, coll_type dst_type, const void *src, coll_type src_type, size_t count,
                                             uint64_t seed, uint64_t first);

/* inout[i] = in[i] op inout[i], with `in` as the lower rank's part.  COLL_AVG and COLL_USER are
 * COLL_ERR_UNSUPPORTED, and buffers that overlap without being the same are COLL_ERR_ARGUMENT. */
COLL_API coll_status coll_reduce_local(const void *in, void *inout, size_t count, coll_type type, coll_op op);

/* ---- >>seeing: what was chosen and what it cost ---- */

/* Write which way this call would go and what came next, e.g. "allreduce of 2048 x f32 (sum) on 4 ranks over tcp (poll): gather,
 * radix 4, 1 round, 1 slice, about 26.7 us; then gather:2 38.7 us, gather:3 38.7 us, direct:4 42.7 us".  Returns the length as
 * snprintf does, or a negative coll_status.  Sends nothing. */
COLL_API int coll_explain(coll_comm *comm, const coll_call *call, char *text, size_t length);

#if COLL__HAS_OS
/* Write the last operations of this rank on `comm`, up to 256, oldest first: which, when, how long, how they ended.  Blocking
 * calls between threads that did not have to wait are not listed.  While another thread is inside a call on `comm`, what is being
 * written at that moment may come out half. */
COLL_API void coll_dump(coll_comm *comm, FILE *file);
#endif

/* Measure the wire between rank 0 and some of the others, the rate of sums, and a barrier of the transport; choose algorithms by
 * what was found from here on (see Tuning).  Called by all ranks of `comm`; takes some 10 ms on a fast network.  Communicators
 * that are made from this one afterwards inherit the numbers; prepared calls of before keep theirs. */
COLL_API coll_status coll_measure(coll_comm *comm);

/* Write the numbers by which algorithms are chosen, as a tuning file has them: "latency=12us overhead=4us gbit=16
 * reduce=10GB/s".  Returns the length as snprintf does, or a negative coll_status. */
COLL_API int coll_link_text(const coll_comm *comm, char *text, size_t length);

/* How many calls with COLL_DETECT_OVERFLOW have ended with an infinity or a NaN in the result of this rank, since the
 * communicator was made.  After an allreduce it is the same on all ranks, with no further collective: a training step asks
 * before and after, and drops its gradients if the number has grown. */
COLL_API uint64_t coll_overflows(const coll_comm *comm);

/* Bytes that this rank has handed to and taken from the wire, headers included, for all communicators of its coll_init; 0
 * between threads, which use memory. */
COLL_API void coll_traffic(const coll_comm *comm, uint64_t *sent, uint64_t *received);

/* Virtual seconds that have passed for this rank of a simulated world; 0 elsewhere. */
COLL_API double coll_sim_time(const coll_comm *comm);

#ifdef __cplusplus
}
#endif

#include "core/contract/coll_memory.h"
#include "core/contract/coll_transport.h"
#include "core/contract/coll_wrap.h"

#endif /* COLL_H */

/* Outside the guard: a file that has already met coll.h through another header can still make the implementation. */
#ifdef COLL_IMPLEMENTATION
#include "coll_impl.h"
#endif
