// oneccl.cc - see library.h: oneCCL for CPUs, with Intel MPI, whose mpiexec starts the ranks.
//
// It has no gather, scatter and scan.  On the buffers of a case one call is under way at a time, as in every library here.
#include "library.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <mpi.h>
#include <oneapi/ccl.hpp>

namespace {

std::unique_ptr<ccl::communicator> world;
const bench_case *part;

const ccl::datatype type = ccl::datatype::float32;
const ccl::reduction sum = ccl::reduction::sum;

int root_of(long i) { return static_cast<int>(i % part->ranks); }

ccl::event allreduce(long) { return ccl::allreduce(part->in, part->out, part->count, type, sum, *world); }
ccl::event allreduce_in_place(long) { return ccl::allreduce(part->out, part->out, part->count, type, sum, *world); }
ccl::event broadcast(long i) { return ccl::broadcast(part->out, part->count, type, root_of(i), *world); }
ccl::event reduce(long i) { return ccl::reduce(part->in, part->out, part->count, type, sum, root_of(i), *world); }
ccl::event allgather(long) { return ccl::allgather(part->in, part->out, part->block, type, *world); }
ccl::event reduce_scatter(long) { return ccl::reduce_scatter(part->in, part->out, part->block, type, sum, *world); }
ccl::event alltoall(long) { return ccl::alltoall(part->in, part->out, part->block, type, *world); }
ccl::event barrier(long) { return ccl::barrier(*world); }

// oneCCL reports errors by exceptions.
template <ccl::event (*operation_of)(long)> void waited(void *, long i)
{
    try {
        operation_of(i).wait();
    } catch (const std::exception &e) {
        std::fprintf(stderr, "oneccl: %s\n", e.what());
        std::exit(1);
    }
}

} // namespace

// What oneCCL's static library for CPUs expects of Intel's compiler, and pointers to functions of a profiler, which is not there.
extern "C" {
void *_intel_fast_memcpy(void *to, const void *from, size_t bytes) { return std::memcpy(to, from, bytes); }
void *_intel_fast_memset(void *to, int value, size_t bytes) { return std::memset(to, value, bytes); }
void *__itt_domain_create_ptr__3_0, *__itt_event_create_ptr__3_0, *__itt_event_end_ptr__3_0, *__itt_event_start_ptr__3_0,
    *__itt_metadata_add_ptr__3_0, *__itt_string_handle_create_ptr__3_0, *__itt_task_begin_ptr__3_0, *__itt_task_end_ptr__3_0,
    *__itt_thread_set_name_ptr__3_0;
}

extern "C" void library_open(int *argc, char ***argv, int *rank, int *ranks)
{
    ccl::shared_ptr_class<ccl::kvs> store;
    ccl::kvs::address_type address;

    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    ccl::init();
    if (*rank == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (*rank != 0) store = ccl::create_kvs(address);
    world.reset(new ccl::communicator(ccl::create_communicator(*ranks, *rank, store)));
}

extern "C" int library_ways(const bench_case *now, library_way *ways)
{
    void (*op)(void *, long) = nullptr;

    part = now;
    switch (part->collective) {
    case BENCH_ALLREDUCE:          op = waited<allreduce>; break;
    case BENCH_ALLREDUCE_IN_PLACE: op = waited<allreduce_in_place>; break;
    case BENCH_BROADCAST:          op = waited<broadcast>; break;
    case BENCH_REDUCE:             op = waited<reduce>; break;
    case BENCH_ALLGATHER:          op = waited<allgather>; break;
    case BENCH_REDUCE_SCATTER:     op = waited<reduce_scatter>; break;
    case BENCH_ALLTOALL:           op = waited<alltoall>; break;
    case BENCH_BARRIER:            op = waited<barrier>; break;
    default: return 0;
    }
    ways[0] = library_way{nullptr, op, nullptr, false, false};
    return 1;
}

extern "C" void library_close(void)
{
    world.reset();
    MPI_Finalize();
}
