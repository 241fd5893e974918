// gloo.cc - see library.h: Gloo over its TCP transport, for processes that coll-run or a shell has given COLL_RANK and COLL_SIZE.
// They meet in the folder that BENCH_STORE names, which is empty before; BENCH_INTERFACE: the interface, else lo.
//
// An allreduce has three ways: the ring of the current interface, and two algorithm objects of the older one, which are made
// once for a buffer, work in place, and are usually faster.  There is no scan.
#include "../common/library.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
const bench_case *part;

// What the older objects are made for; an object reduces `out`.
std::unique_ptr<gloo::Algorithm> bcube, halving, scattering;

void add(void *to, const void *a, const void *b, size_t n) { gloo::sum<float>(to, a, b, n); }

int root_of(long i) { return static_cast<int>(i % part->ranks); }
bool is_root(long i) { return root_of(i) == part->rank; }

void allreduce(long)
{
    gloo::AllreduceOptions o(context);
    o.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    if (part->collective == BENCH_ALLREDUCE) o.setInput(part->in, part->count);
    o.setOutput(part->out, part->count);
    o.setReduceFunction(add);
    gloo::allreduce(o);
}

void by_object(gloo::Algorithm &object)
{
    if (part->collective != BENCH_ALLREDUCE_IN_PLACE) std::memcpy(part->out, part->in, part->count * sizeof(float));
    object.run();
}

void allreduce_bcube(long) { by_object(*bcube); }
void allreduce_halving(long) { by_object(*halving); }

void reduce_scatter(long) { by_object(*scattering); }

void broadcast(long i)
{
    gloo::BroadcastOptions o(context);
    o.setOutput(part->out, part->count);
    o.setRoot(root_of(i));
    gloo::broadcast(o);
}

void reduce(long i)
{
    gloo::ReduceOptions o(context);
    o.setInput(part->in, part->count);
    o.setOutput(part->out, part->count);
    o.setRoot(root_of(i));
    o.setReduceFunction(add);
    gloo::reduce(o);
}

void allgather(long)
{
    gloo::AllgatherOptions o(context);
    o.setInput(part->in, part->block);
    o.setOutput(part->out, part->count);
    gloo::allgather(o);
}

void alltoall(long)
{
    gloo::AlltoallOptions o(context);
    o.setInput(part->in, part->count);
    o.setOutput(part->out, part->count);
    gloo::alltoall(o);
}

void gather(long i)
{
    gloo::GatherOptions o(context);
    o.setInput(part->in, part->block);
    if (is_root(i)) o.setOutput(part->out, part->count);
    o.setRoot(root_of(i));
    gloo::gather(o);
}

void scatter(long i)
{
    gloo::ScatterOptions o(context);
    std::vector<float *> blocks;
    for (int r = 0; r < part->ranks; r++) blocks.push_back(part->in + static_cast<size_t>(r) * part->block);
    if (is_root(i)) o.setInputs(blocks, part->block);
    o.setOutput(part->out, part->block);
    o.setRoot(root_of(i));
    gloo::scatter(o);
}

void barrier(long)
{
    gloo::BarrierOptions o(context);
    gloo::barrier(o);
}

typedef void operation(long);

// Gloo reports errors by exceptions.
template <operation *operation_of> void guarded(void *, long i)
{
    try {
        operation_of(i);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "gloo: %s\n", e.what());
        std::exit(1);
    }
}

// It uses what is no result as room for partial sums.
library_way way(const char *name, void (*op)(void *, long)) { return library_way{name, op, nullptr, true, false}; }

// The store is passed by reference in older versions, as a shared pointer in newer ones.
template <class Context, class Store, class Device>
auto connect(Context &c, Store &store, Device &device, int) -> decltype(c.connectFullMesh(*store, device))
{
    return c.connectFullMesh(*store, device);
}
template <class Context, class Store, class Device>
auto connect(Context &c, Store &store, Device &device, long) -> decltype(c.connectFullMesh(store, device))
{
    return c.connectFullMesh(store, device);
}

const char *setting(const char *name, const char *otherwise)
{
    const char *const text = std::getenv(name);
    if (text && *text) return text;
    if (otherwise) return otherwise;
    std::fprintf(stderr, "gloo: %s is not set\n", name);
    std::exit(1);
}

} // namespace

extern "C" void library_open(int *, char ***, int *rank, int *ranks)
{
    *rank = std::atoi(setting("COLL_RANK", nullptr));
    *ranks = std::atoi(setting("COLL_SIZE", nullptr));
    try {
        gloo::transport::tcp::attr at;
        at.iface = setting("BENCH_INTERFACE", "lo");
        at.ai_family = AF_INET;
        auto device = gloo::transport::tcp::CreateDevice(at);
        auto store = std::make_shared<gloo::rendezvous::FileStore>(setting("BENCH_STORE", nullptr));
        context = std::make_shared<gloo::rendezvous::Context>(*rank, *ranks);
        connect(*context, store, device, 0);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "gloo: %s\n", e.what());
        std::exit(1);
    }
}

extern "C" int library_ways(const bench_case *now, library_way *ways)
{
    const std::vector<float *> pointers{now->out};
    const int count = static_cast<int>(now->count);

    part = now;
    bcube.reset();
    halving.reset();
    scattering.reset();
    switch (part->collective) {
    case BENCH_ALLREDUCE: case BENCH_ALLREDUCE_IN_PLACE:
        ways[0] = way("ring", guarded<allreduce>);
        if (part->count < static_cast<size_t>(part->ranks)) return 1;      // they divide by what is left of it
        bcube.reset(new gloo::AllreduceBcube<float>(context, pointers, count));
        halving.reset(new gloo::AllreduceHalvingDoubling<float>(context, pointers, count));
        ways[1] = way("bcube", guarded<allreduce_bcube>);
        ways[2] = way("halving", guarded<allreduce_halving>);
        return 3;
    case BENCH_BROADCAST: ways[0] = way(nullptr, guarded<broadcast>); return 1;
    case BENCH_REDUCE:    ways[0] = way(nullptr, guarded<reduce>); return 1;
    case BENCH_ALLGATHER: ways[0] = way(nullptr, guarded<allgather>); return 1;
    case BENCH_REDUCE_SCATTER:
        scattering.reset(new gloo::ReduceScatterHalvingDoubling<float>(
            context, pointers, count, std::vector<int>(static_cast<size_t>(part->ranks), static_cast<int>(part->block))));
        ways[0] = way(nullptr, guarded<reduce_scatter>);
        return 1;
    case BENCH_ALLTOALL: ways[0] = way(nullptr, guarded<alltoall>); return 1;
    case BENCH_GATHER:   ways[0] = way(nullptr, guarded<gather>); return 1;
    case BENCH_SCATTER:  ways[0] = way(nullptr, guarded<scatter>); return 1;
    case BENCH_BARRIER:  ways[0] = way(nullptr, guarded<barrier>); return 1;
    default: return 0;
    }
}

extern "C" void library_close(void)
{
    bcube.reset();
    halving.reset();
    scattering.reset();
}
