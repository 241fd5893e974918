// test_cpp.cpp - the contract of coll.hpp: every collective, of several types, with sums, maxima and operations of the
// program's own, in every form of buffers and of calls, against an oracle that works on the inputs of all ranks; bits are
// compared.  Then wrong sizes, errors, requests that are dropped, and objects that were moved away.
//   usage: test_cpp            threads, 1 to 5, or to 17, and the simulator;  ends with "N passed, N failed"
//          test_cpp threads    only some of the threads
//          test_cpp hybrid     a rank of a job
//          test_cpp killed     the same, where rank 1 dies
#include "../../coll.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <thread>
#if __cplusplus >= 202002L
#include <span>
#endif

static std::atomic<int> passed, failed;

static void check(bool is_right, const coll::communicator &comm, const char *what)
{
    if (is_right) { passed++; return; }
    failed++;
    std::printf("FAILED - %s, rank %d of %d\n", what, comm.rank(), comm.size());
}

// ---- values: whole and small, so that sums are exact in any order and type

template <class T> T value(int rank, std::size_t i)
{
    return T(static_cast<float>((static_cast<std::size_t>(rank) * 7 + i * 3) % 11));
}
template <> bool value<bool>(int rank, std::size_t i) { return (static_cast<std::size_t>(rank) + i) % 3 == 0; }
template <> std::complex<float> value<std::complex<float>>(int rank, std::size_t i)
{
    return { value<float>(rank, i), value<float>(rank, i + 1) };
}

struct map { std::uint32_t factor, term; };       // x -> factor x + term: combined in order, or wrong
static map then(const map &low, const map &high) { return { low.factor * high.factor, high.factor * low.term + high.term }; }
template <> map value<map>(int rank, std::size_t i)
{
    return { static_cast<std::uint32_t>(rank) * 2 + 3, static_cast<std::uint32_t>(i) + 1 };
}
template <> coll::located<float, std::int32_t> value<coll::located<float, std::int32_t>>(int rank, std::size_t i)
{
    return { value<float>(rank, i), rank };
}

template <class T> std::vector<T> mine(int rank, std::size_t count, std::size_t first = 0)
{
    std::vector<T> x;
    for (std::size_t i = 0; i < count; i++) x.push_back(value<T>(rank, first + i));
    return x;
}
template <class X, class Y> bool same(const X &x, const Y &y)
{
    const auto a = coll::detail::view(x);
    const auto b = coll::detail::view(y);
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}
template <class T> std::vector<T> part(const std::vector<T> &x, std::size_t at, std::size_t count)
{
    std::vector<T> some;
    for (std::size_t i = at; i < at + count; i++) some.push_back(x[i]);
    return some;
}

// What ranks `from` to `to` - 1 have together.
template <class T, class F> std::vector<T> combined(int from, int to, std::size_t count, F fn)
{
    std::vector<T> all = mine<T>(from, count);
    for (int rank = from + 1; rank < to; rank++)
        for (std::size_t i = 0; i < count; i++) all[i] = fn(all[i], value<T>(rank, i));
    return all;
}

// ---- reductions

template <class T, class Op, class F>
static void reductions(const coll::communicator &comm, std::size_t count, Op op, F fn, const coll::options &with = {})
{
    const int rank = comm.rank(), size = comm.size();
    const std::size_t ranks = static_cast<std::size_t>(size), me = static_cast<std::size_t>(rank);
    const std::vector<T> x = mine<T>(rank, count), sum = combined<T>(0, size, count, fn);
    std::vector<T> y(count), z = x;

    check(same(comm.allreduce(x, op, with), sum), comm, "allreduce");
    comm.allreduce(coll::from_to(x, y), op, with);
    check(same(y, sum), comm, "allreduce from_to");
    comm.allreduce(coll::in_place(z), op, with);
    check(same(z, sum), comm, "allreduce in place");
    check(same(comm.start().allreduce(coll::in_place(mine<T>(rank, count)), op, with).wait(), sum), comm, "allreduce moved in");
    check(same(comm.allreduce(coll::from_to(x, std::vector<T>(count)), op, with), sum), comm, "allreduce into one moved in");
    auto first = comm.start().allreduce(mine<T>(rank, count), op, with);
    auto second = comm.start().scan(x, op, with);
    check(same(second.wait(), combined<T>(0, rank + 1, count, fn)), comm, "scan started");
    check(same(first.wait(), sum), comm, "allreduce started");
    {
        coll::prepared again = comm.prepare().allreduce(coll::from_to(x, y), op, with);
        for (int i = 0; i < 3; i++) {
            y.assign(count, T());
            again();
            check(same(y, sum), comm, "allreduce prepared");
        }
        coll::prepared never = comm.prepare().allreduce(coll::in_place(y), op, with);
    }
    for (int root = 0; root < size; root++) {
        const std::vector<T> got = comm.reduce(x, op, root, with);
        check(rank == root ? same(got, sum) : got.empty(), comm, "reduce");
        z = x;
        comm.reduce(coll::in_place(z), op, root, with);
        check(same(z, rank == root ? sum : x), comm, "reduce in place");
    }
    z = x;
    comm.scan(coll::in_place(z), op, with);
    check(same(z, combined<T>(0, rank + 1, count, fn)), comm, "scan");
    const std::vector<T> before = rank ? combined<T>(0, rank, count, fn) : std::vector<T>(count);
    check(same(comm.exscan(x, op, with), before), comm, "exscan");
    z = x;
    comm.exscan(coll::in_place(z), op, with);
    check(same(z, rank ? before : x), comm, "exscan in place");

    const std::vector<T> wide = mine<T>(rank, count * ranks), all = combined<T>(0, size, count * ranks, fn);
    check(same(comm.reduce_scatter(wide, op, with), part(all, me * count, count)), comm, "reduce_scatter");
    z = wide;
    comm.reduce_scatter(coll::in_place(z), op, with);
    check(same(part(z, me * count, count), part(all, me * count, count)), comm, "reduce_scatter in place");
    std::vector<std::size_t> counts, at(1);
    for (std::size_t i = 0; i < ranks; i++) counts.push_back(count + i), at.push_back(at[i] + counts[i]);
    const std::vector<T> ragged = mine<T>(rank, at[ranks]), whole = combined<T>(0, size, at[ranks], fn);
    check(same(comm.reduce_scatterv(ragged, counts, op, with), part(whole, at[me], counts[me])), comm, "reduce_scatterv");
    z = ragged;
    comm.reduce_scatterv(coll::in_place(z), counts, op, with);
    check(same(part(z, at[me], counts[me]), part(whole, at[me], counts[me])), comm, "reduce_scatterv in place");
}

// ---- what moves elements

// What all ranks have, one behind the other: equal blocks, blocks of count + rank elements, and those for this rank.
template <class T> struct everyone {
    std::vector<T> all, ragged, turned;
    std::vector<std::size_t> counts, at = std::vector<std::size_t>(1);

    everyone(const coll::communicator &comm, std::size_t count)
    {
        const std::size_t me = static_cast<std::size_t>(comm.rank());
        for (int from = 0; from < comm.size(); from++) {
            const std::size_t own = count + static_cast<std::size_t>(from);
            for (const T &one : mine<T>(from, count)) all.push_back(one);
            for (const T &one : mine<T>(from, own)) ragged.push_back(one);
            for (const T &one : mine<T>(from, count, me * count)) turned.push_back(one);
            counts.push_back(own), at.push_back(at.back() + own);
        }
    }
};

template <class T> static void rooted(const coll::communicator &comm, std::size_t count)
{
    const int rank = comm.rank(), size = comm.size();
    const std::size_t ranks = static_cast<std::size_t>(size), me = static_cast<std::size_t>(rank);
    const everyone<T> have(comm, count);
    const std::vector<T> x = mine<T>(rank, count), own = mine<T>(rank, have.counts[me]), &all = have.all, none;

    for (int root = 0; root < size; root++) {
        const bool is_root = rank == root;
        std::vector<T> z = x;
        comm.broadcast(z, root);
        check(same(z, mine<T>(root, count)), comm, "broadcast");
        check(same(comm.broadcast(mine<T>(rank, count), root), mine<T>(root, count)), comm, "broadcast moved in");
        std::vector<T> placed = mine<T>(rank, count);
        comm.broadcast(coll::in_place(placed), root);
        check(same(placed, mine<T>(root, count)), comm, "broadcast in place");
        check(same(comm.broadcast(coll::into(mine<T>(rank, count)), root), mine<T>(root, count)), comm, "broadcast into");
        std::vector<T> got = comm.gather(x, root);
        check(same(got, is_root ? all : none), comm, "gather");
        z = is_root ? std::vector<T>(count * ranks) : x;
        for (std::size_t i = 0; i < count && is_root; i++) z[me * count + i] = x[i];
        comm.gather(coll::in_place(z), root);
        check(same(z, is_root ? all : x), comm, "gather in place");
        check(same(comm.scatter(is_root ? all : none, root, count), x), comm, "scatter");
        z.assign(count, T());
        if (is_root) comm.scatter(coll::from_to(all, z), root);
        else comm.scatter(coll::into(z), root);
        check(same(z, x), comm, "scatter into");
        z = is_root ? all : std::vector<T>(count);
        comm.scatter(coll::in_place(z), root);
        check(same(z, is_root ? all : x), comm, "scatter in place");
        got = comm.gatherv(own, comm.gather(own.size(), root), root);
        check(same(got, is_root ? have.ragged : none), comm, "gatherv");
        const coll::blocks lists = is_root ? coll::blocks(have.counts) : coll::blocks();
        got = comm.scatterv(is_root ? have.ragged : none, lists, root, have.counts[me]);
        check(same(got, own), comm, "scatterv");
        z = is_root ? have.ragged : own;
        comm.gatherv(coll::in_place(z), lists, root);
        check(same(z, is_root ? have.ragged : own), comm, "gatherv in place");
        comm.scatterv(coll::in_place(z), lists, root);
        check(same(z, is_root ? have.ragged : own), comm, "scatterv in place");
    }
}

template <class T> static void among_all(const coll::communicator &comm, std::size_t count)
{
    const int rank = comm.rank(), size = comm.size();
    const std::size_t ranks = static_cast<std::size_t>(size), me = static_cast<std::size_t>(rank);
    const everyone<T> have(comm, count);
    const std::vector<T> x = mine<T>(rank, count), own = mine<T>(rank, have.counts[me]);
    const auto &[all, ragged, turned, counts, at] = have;
    std::vector<T> z(count * ranks);

    check(same(comm.allgather(x), all), comm, "allgather");
    for (std::size_t i = 0; i < count; i++) z[me * count + i] = x[i];
    comm.allgather(coll::in_place(z));
    check(same(z, all), comm, "allgather in place");
    check(same(comm.allgatherv(own, comm.allgather(own.size())), ragged), comm, "allgatherv");
    z.assign(at[ranks], T());
    for (std::size_t i = 0; i < own.size(); i++) z[at[me] + i] = own[i];
    comm.allgatherv(coll::in_place(z), counts);
    check(same(z, ragged), comm, "allgatherv in place");
    std::vector<std::size_t> apart;                                       // a gap of one behind every block
    std::vector<T> gaps(at[ranks] + ranks, value<T>(1, 1)), expected = gaps;
    for (std::size_t i = 0; i < ranks; i++) {
        apart.push_back(at[i] + i);
        for (std::size_t k = 0; k < counts[i]; k++) expected[apart[i] + k] = ragged[at[i] + k];
    }
    comm.allgatherv(coll::from_to(own, gaps), coll::blocks(counts, apart));
    check(same(gaps, expected), comm, "allgatherv with offsets");

    const std::vector<T> wide = mine<T>(rank, count * ranks);
    check(same(comm.alltoall(wide), turned), comm, "alltoall");
    z = wide;
    comm.alltoall(coll::in_place(z));
    check(same(z, turned), comm, "alltoall in place");
    check(same(comm.start().alltoall(coll::in_place(mine<T>(rank, count * ranks))).wait(), turned), comm, "alltoall moved in");

    std::vector<std::size_t> sends;                                       // rank a sends a + b to rank b, which is b + a
    std::vector<T> out, in;
    for (int peer = 0; peer < size; peer++) {
        sends.push_back(static_cast<std::size_t>(rank + peer));
        for (const T &one : mine<T>(rank, sends.back(), static_cast<std::size_t>(peer))) out.push_back(one);
        for (const T &one : mine<T>(peer, sends.back(), me)) in.push_back(one);
    }
    check(same(comm.alltoallv(out, sends, comm.alltoall(sends)), in), comm, "alltoallv");
    comm.alltoallv(coll::in_place(out), {}, sends);
    check(same(out, in), comm, "alltoallv in place");
}

template <class T> static void of_any_types(const coll::communicator &comm, std::size_t count)
{
    const int rank = comm.rank(), size = comm.size();
    const std::size_t ranks = static_cast<std::size_t>(size);
    const std::vector<T> x = mine<T>(rank, count);

    // Every rank sends T to even ranks and doubles to odd ones.
    std::vector<std::vector<T>> from(ranks, x), to(ranks, std::vector<T>(count));
    std::vector<std::array<double, 2>> pair_from(ranks, { { double(rank), 1 } }), pair_to(ranks);
    std::vector<coll::any_span<const void>> sent;
    std::vector<coll::any_span<void>> taken;
    for (std::size_t i = 0; i < ranks; i++) {
        if (i % 2) sent.emplace_back(pair_from[i]);
        else sent.emplace_back(from[i]);
        if (rank % 2) taken.emplace_back(pair_to[i]);
        else taken.emplace_back(to[i]);
    }
    comm.alltoallw(sent, taken);
    bool is_right = true;
    for (int i = 0; i < size; i++) {
        const std::size_t k = static_cast<std::size_t>(i);
        is_right = is_right && (rank % 2 ? pair_to[k][0] == double(i) : same(to[k], mine<T>(i, count)));
    }
    check(is_right, comm, "alltoallw");
}

template <class T> static void movements(const coll::communicator &comm, std::size_t count)
{
    rooted<T>(comm, count);
    among_all<T>(comm, count);
    of_any_types<T>(comm, count);
}

template <class T> static void neighbors_and_messages(const coll::communicator &comm, std::size_t count)
{
    const int rank = comm.rank(), size = comm.size(), next = (rank + 1) % size, before = (rank + size - 1) % size;
    const std::vector<T> x = mine<T>(rank, count), theirs = mine<T>(before, count), behind = mine<T>(next, count);

    // A ring in which everyone has two neighbors, before and behind.
    comm.neighbors(std::array<int, 2>{ { before, next } }, std::array<int, 2>{ { next, before } });
    std::vector<T> both = theirs, apart = theirs, two = x;
    both.insert(both.end(), behind.begin(), behind.end());
    check(same(comm.neighbor_allgather(x), both), comm, "neighbor_allgather");
    const std::vector<std::size_t> counts(2, count);
    check(same(comm.neighbor_allgatherv(x, counts), both), comm, "neighbor_allgatherv");
    two.insert(two.end(), x.begin(), x.end());
    check(same(comm.neighbor_alltoall(two), both), comm, "neighbor_alltoall");
    check(same(comm.neighbor_alltoallv(two, counts, counts), both), comm, "neighbor_alltoallv");
    std::vector<T> a(count), b(count);
    comm.neighbor_alltoallw({ x, x }, { a, b });
    check(same(a, theirs) && same(b, behind), comm, "neighbor_alltoallw");

    check(same(comm.sendrecv(x, next, before), theirs), comm, "sendrecv");
    auto sending = comm.start().send(x, next, 4);
    std::vector<T> room(count + 5);
    comm.start().recv(coll::span<T>(room), before, 4).wait();
    sending.wait();
    room.resize(count);
    check(same(room, theirs), comm, "send and recv");
    sending = comm.start().send(x, next, 5);
    check(same(comm.recv(std::vector<T>(count + 5), before), theirs), comm, "recv of one moved in is as long as what came");
    sending.wait();
}

template <class T> static void numbers(const coll::communicator &comm, std::size_t count)
{
    const auto add = [](T a, T b) { return T(a + b); };
    const auto greater = [](T a, T b) { return b > a ? b : a; };
    reductions<T>(comm, count, coll::sum, add);
    reductions<T>(comm, count, coll::max, greater);
    reductions<T>(comm, count, add, add);
    reductions<T>(comm, count, [&](coll::span<const T> low, coll::span<T> high) {
        for (std::size_t i = 0; i < low.size(); i++) high[i] = greater(low[i], high[i]);
    }, greater);
    movements<T>(comm, count);
    neighbors_and_messages<T>(comm, count);
}

static void every_type(const coll::communicator &comm, std::size_t count)
{
    numbers<float>(comm, count);
    numbers<double>(comm, count);
    numbers<std::int8_t>(comm, count);
    numbers<std::int64_t>(comm, count);
    numbers<coll::bf16>(comm, count);
    const auto add = [](std::complex<float> a, std::complex<float> b) { return a + b; };
    reductions<std::complex<float>>(comm, count, coll::sum, add);
    coll::options in_order;
    in_order.not_commutative = true;
    reductions<map>(comm, count, then, then, in_order);
    movements<map>(comm, count);
    using pair = coll::located<float, std::int32_t>;
    reductions<pair>(comm, count, coll::maxloc, [](pair a, pair b) { return b.value > a.value ? b : a; });
}

// ---- the rest

static_assert(coll::type_of<const float> == COLL_F32 && coll::type_of<unsigned char> == COLL_U8, "");
static_assert(coll::type_of<std::int64_t> == COLL_I64 && coll::type_of<bool> == COLL_BOOL, "");
static_assert(coll::type_of<map> == COLL_BLOB(8) && coll::type_of<coll::f8e5m2> == COLL_F8E5M2, "");
static_assert(coll::type_of<coll::located<std::int64_t, std::int32_t>> == COLL_I64_I32, "");
static_assert(sizeof(coll::bf16) == 2 && std::is_trivial<coll::f8e4m3>::value, "");
static_assert(!std::is_copy_constructible<coll::communicator>::value && !std::is_copy_constructible<coll::request<int>>::value
              && !std::is_copy_constructible<coll::buffer<int>>::value, "");

static void values_and_options(coll::communicator &comm)
{
    const int rank = comm.rank(), size = comm.size(), pairs = size * (size - 1) / 2;
    float plain[3] = { 1, 2, float(rank) };
    std::array<int, 2> array = { { rank, 1 } };
    double rate = rank == size - 1 ? 0.25 : 0;
    bool ready = rank == 0;

    check(comm.allreduce(rank) == pairs && comm.scan(1) == rank + 1, comm, "one element is returned as it is");
    check(comm.start().allreduce(rank).wait() == pairs, comm, "one element, started");
    comm.broadcast(rate, size - 1);
    check(rate == 0.25 && comm.broadcast(rank + 5, size - 1) == size + 4, comm, "broadcast of one element");
    check(comm.allreduce(ready, coll::lor) && (size == 1 || !comm.allreduce(ready, coll::land)), comm, "bool");
    comm.allreduce(coll::in_place(plain));
    check(plain[1] == float(2 * size) && plain[2] == float(pairs), comm, "a C array");
    check(comm.allreduce(array)[0] == pairs, comm, "std::array");
#if __cplusplus >= 202002L
    comm.allreduce(coll::in_place(std::span<int>(array)));
    check(array[1] == size, comm, "std::span");
#endif
    array = { { rank, 1 } }, plain[2] = float(rank);
    comm.allreduce_list({ plain, array }, coll::max);
    check(plain[2] == float(size - 1) && array[0] == size - 1, comm, "allreduce_list");

    coll::options narrow;
    narrow.wire = coll::type_of<coll::bf16>, narrow.flags = COLL_DETERMINISTIC, narrow.name = "narrow";
    std::vector<float> residual(2);
    narrow.residual = residual;
    const std::vector<float> fine = { 1.00390625f, 2 };
    check(comm.allreduce(fine, coll::avg, narrow)[0] == 1 && residual[0] == 0.00390625f, comm, "wire and residual");
    coll::options scaled;
    scaled.scale = 0.5;
    check(comm.allreduce(4.0f, coll::sum, scaled) == float(2 * size), comm, "scale");
    coll::options ring;
    ring.algorithm = "ring";
    check(comm.explain().allreduce(fine, coll::sum, ring).find("ring") != std::string::npos, comm, "explain");

    const coll::communicator half = comm.split(rank % 2, -rank), same_again = comm.dup();
    check(half.size() == (size + 1 - rank % 2) / 2 && half.world_rank(0) >= rank, comm, "split, highest first");
    check(!comm.split(COLL_COLOR_NONE).valid(), comm, "split into none");
    check(same_again.allreduce(1) == size && comm.split_host().size() > comm.local_rank(), comm, "dup and split_host");
    const std::array<int, 1> only = { { rank } };
    check(comm.create(only).allreduce(7) == 7, comm, "create");

    coll::buffer<double> memory = comm.alloc<double>(100), moved;
    memory[99] = rank;
    comm.allreduce(coll::in_place(memory));
    moved = std::move(memory);
    check(moved[99] == double(pairs) && moved[0] == 0 && memory.size() == 0, comm, "alloc");
    const auto kept = comm.start().allreduce(coll::in_place(std::move(moved))).wait();
    check(kept.size() == 100 && kept[99] == double(pairs * size), comm, "a buffer that is moved in comes back");

    auto a = comm.start().barrier();
    auto b = comm.start().allgather(rank);
    coll::wait_all(a, b);
    check(!a.valid() && !b.valid(), comm, "wait_all of several kinds");
    auto testing = comm.start().barrier();
    while (!testing.test()) comm.progress();
    testing.wait();
    check(comm.fd() >= -1, comm, "fd");
}

// ---- several requests at once

// Those that are finished, one after the other or many at once, each handed out once; each has its buffer.
static void several(const coll::communicator &comm)
{
    const int size = comm.size();
    std::vector<coll::request<std::vector<int>>> requests;
    std::vector<int> seen;
    const auto begin = [&] {
        requests.clear(), seen.assign(7, 0);
        for (int i = 0; i < 7; i++) requests.push_back(comm.start().allreduce(coll::in_place(std::vector<int>(3, i))));
        requests.insert(requests.begin() + 2, coll::request<std::vector<int>>());
    };
    const auto end = [&](std::size_t i) {
        const std::size_t which = i - (i > 2);
        const std::vector<int> wanted(3, static_cast<int>(which) * size);
        if (i != 2 && requests[i].test() && requests[i].wait() == wanted) seen[which]++;
    };

    begin();
    while (const auto one = coll::wait_any(requests)) end(*one);
    check(seen == std::vector<int>(7, 1), comm, "wait_any");
    begin();
    for (std::vector<std::size_t> some; !(some = coll::wait_some(requests)).empty(); )
        for (std::size_t i : some) end(i);
    check(seen == std::vector<int>(7, 1) && !coll::wait_any(requests), comm, "wait_some");
    begin();
    bool is_left = true;
    while (is_left)
        if (const auto one = coll::test_any(requests, &is_left)) end(*one), is_left = true;
    check(seen == std::vector<int>(7, 1) && !coll::test_any(requests), comm, "test_any");
    begin();
    requests[4].wait();
    auto moved = std::move(requests[5]);
    for (auto &one : requests) while (!one.test()) {}
    check(coll::wait_some(requests).empty(), comm, "what wait and test have told is not handed out again");
    check(moved.wait() == std::vector<int>(3, 4 * size), comm, "nor one that was moved away");
    requests.clear();
    check(!coll::wait_any(requests) && coll::wait_some(requests).empty(), comm, "of no requests none is waited for");
    check(!coll::test_any(requests, &is_left) && !is_left, comm, "of no requests none is left");
    for (int i = 0; i < 5; i++) requests.push_back(comm.start().allreduce(std::vector<int>(2, i)));
    const auto results = coll::wait_all(requests);
    check(results.size() == 5 && results[4] == std::vector<int>(2, 4 * size), comm, "wait_all");
}

// Prepared calls stay, whichever call waits for them.
static void several_prepared(const coll::communicator &comm)
{
    const int size = comm.size();
    std::vector<int> x(4);
    std::vector<coll::prepared> calls;
    for (int &one : x) calls.push_back(comm.prepare().allreduce(coll::in_place(one)));

    check(coll::wait_some(calls).empty(), comm, "prepared calls that were not started are not finished");
    for (int round = 0; round < 4; round++) {
        std::size_t seen = 0;
        x.assign(4, round);
        for (coll::prepared &one : calls) one.restart();
        if (round == 0) seen = calls.size(), coll::wait_all(calls);
        if (round == 1) seen = calls.size(), coll::wait_all(calls[0], calls[1], calls[2], calls[3]);
        if (round == 2) while (const auto one = coll::wait_any(calls)) calls[*one].wait(), seen++;
        while (round == 3 && seen < calls.size()) for (std::size_t i : coll::wait_some(calls)) calls[i].wait(), seen++;
        check(seen == 4 && x == std::vector<int>(4, round * size), comm, "several prepared calls");
    }
}

// The source of a receive from any rank.
static void receipts(const coll::communicator &comm)
{
    const int rank = comm.rank(), size = comm.size();
    const std::size_t me = static_cast<std::size_t>(rank);

    if (rank) comm.send(std::vector<int>(me, rank), 0, rank + 3);
    std::vector<coll::request<std::vector<int>>> requests;
    for (int i = 1; i < size && rank == 0; i += 2)
        requests.push_back(comm.start().recv(std::vector<int>(20), i, i + 3));
    for (int i = 1; i < size && rank == 0; i++) {
        const bool is_started = !requests.empty();
        std::vector<int> got = is_started ? requests.back().wait() : comm.recv(std::vector<int>(20));
        if (is_started) requests.pop_back();
        const coll::received from = comm.received();
        check(from.count == got.size() && from.tag == from.source + 3 && got.size() == static_cast<std::size_t>(from.source)
              && got == std::vector<int>(got.size(), from.source), comm, "received");
    }
    comm.barrier();
    const int before = (rank + size - 1) % size;
    comm.sendrecv(rank, (rank + 1) % size, COLL_ANY_SOURCE, 2);
    const coll::received from = comm.received();
    check(from.source == before && from.tag == 2 && from.count == 1, comm, "received by sendrecv");
}

#if !defined(COLL_CPP_NO_EXCEPTIONS)
template <class F>
static void refuses(coll::communicator &comm, F &&fn, const char *words, coll_status status = COLL_ERR_ARGUMENT)
{
    bool is_right = false;
    try { fn(); } catch (const coll::error &wrong) {
        is_right = wrong.status() == status && wrong.rank() == comm.rank() && std::strstr(wrong.what(), words);
        if (!is_right) std::printf("%s\n", wrong.what());
    }
    check(is_right, comm, words);
    comm.throwing(false);                         // and the same in silence
    fn();
    check(comm.last().status() == status && std::strstr(comm.last().what(), words), comm, "last");
    comm.barrier();
    check(!comm.last(), comm, "the communicator is as before");
    comm.throwing(true);
}

static void wrong_sizes(coll::communicator &comm)
{
    const std::size_t ranks = static_cast<std::size_t>(comm.size());
    std::vector<float> x(6 * ranks + 1), y(5), empty;

    refuses(comm, [&] { comm.allreduce(coll::from_to(x, y)); }, "allreduce: the output has 5 elements, and needs");
    refuses(comm, [&] { comm.start().allreduce(coll::from_to(x, y)).wait(); }, "");
    refuses(comm, [&] { comm.allgather(coll::from_to(y, x)); }, "allgather: the output has");
    const std::vector<std::size_t> sixes(ranks, 6);
    refuses(comm, [&] { comm.alltoallv(x, sixes, sixes); }, "alltoallv: the input has");
    refuses(comm, [&] { comm.allgatherv(y, std::vector<std::size_t>(ranks + 1, 5)); }, "counts and 0 offsets for the");
    refuses(comm, [&] { comm.allgatherv(y, coll::blocks{}); }, "there are 0 counts");
    refuses(comm, [&] { comm.reduce_scatterv(x, std::vector<std::size_t>(ranks, 6)); }, "reduce_scatterv: the input has");
    refuses(comm, [&] { comm.reduce_scatterv(x, {}); }, "reduce_scatterv");
    refuses(comm, [&] { comm.scatter(coll::into(y), comm.rank()); }, "scatter: this rank sends, and has no input");
    refuses(comm, [&] { comm.alltoallw({ x }, {}); }, "blocks to send and 0 to receive");
    refuses(comm, [&] { comm.broadcast(x, comm.size()); }, "root");
    refuses(comm, [&] { comm.allreduce(x, coll::band); }, "band of f32", COLL_ERR_UNSUPPORTED);
    coll::options short_residual;
    short_residual.residual = y, short_residual.wire = COLL_BF16;
    refuses(comm, [&] { comm.allreduce(x, coll::sum, short_residual); }, "the residual has 5 elements");
    if (comm.size() > 1) {
        refuses(comm, [&] { comm.alltoall(x); }, "which is no multiple of its");
        refuses(comm, [&] { comm.allgather(coll::in_place(x)); }, "allgather: the output has");
        if (comm.rank()) refuses(comm, [&] { comm.scatter(empty, 0); }, "it needs the number of elements to receive");
        else { comm.barrier(); }
    }
    coll::buffer<int> memory = comm.alloc<int>(3);
    refuses(comm, [&] { comm.free(); }, "there are buffers of this communicator");
}

#endif

#include "cpp_leaves.hpp"
#include "cpp_matrices.hpp"

#if !defined(COLL_CPP_NO_EXCEPTIONS)
static void lifetimes(coll::communicator &comm)
{
    const int size = comm.size();
    for (int i = 0; i < 3; i++) {
        std::vector<int> borrowed(1000, 1);
        auto dropped = comm.start().allreduce(std::vector<int>(1000, 1));
        auto in_place = comm.start().allreduce(coll::in_place(borrowed));
        auto assigned = comm.start().barrier();
        assigned = comm.start().barrier();
    }
    comm.start().allreduce(std::vector<float>(5000), [](float a, float b) { return a + b; });
    check(comm.allreduce(1) == size, comm, "requests dropped without a wait");

    auto request = comm.start().allreduce(1), other = std::move(request);
    bool is_known = false;
    try { request.wait(); } catch (const coll::error &wrong) { is_known = wrong.status() == COLL_ERR_ARGUMENT; }
    check(is_known && !request.valid() && request.test(), comm, "a request that was moved away");
    check(other.wait() == size, comm, "where it was moved to");
    is_known = false;
    try { other.wait(); } catch (const coll::error &wrong) { is_known = std::strstr(wrong.what(), "is no request"); }
    check(is_known, comm, "a request that was waited for");

    coll::communicator copy = comm.dup(), moved = std::move(copy);
    for (int what = 0; what < 4; what++) {
        is_known = false;
        try {
            if (what == 0) copy.barrier();
            if (what == 1) copy.start().barrier();
            if (what == 2) copy.alloc<int>(1);
            if (what == 3) copy.split(0);
        } catch (const coll::error &wrong) { is_known = wrong.status() == COLL_ERR_ARGUMENT && wrong.rank() == COLL_RANK_NONE; }
        check(is_known, comm, "a communicator that was moved away");
    }
    check(!copy.valid() && copy.last() && moved.allreduce(1) == size, comm, "where it was moved to");

    auto late = moved.start().allreduce(std::vector<int>(9, 1));
    moved = coll::communicator();                 // it is left with its last request
    check(late.wait() == std::vector<int>(9, size), comm, "a request that outlives its communicator");
    coll::communicator left = comm.dup();
    left.free();
    is_known = false;
    try { left.barrier(); } catch (const coll::error &wrong) { is_known = std::strstr(wrong.what(), "it was freed"); }
    check(is_known, comm, "a communicator that was freed");

    is_known = false;
    try { comm.allreduce(1, [](int, int) -> int { throw std::runtime_error("mine"); }); }
    catch (const std::runtime_error &mine) { is_known = std::strcmp(mine.what(), "mine") == 0; }
    check(is_known || size == 1, comm, "what an operation throws");
    comm.barrier();
}

extern "C" {
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));
}

// A request that ends with an error is returned, and its wait throws; an error of the call itself is thrown by the call.
static void several_wrong(coll::communicator &comm)
{
    for (bool throws : { true, false }) {
        coll::communicator other = comm.dup();
        other.throwing(throws);
        std::vector<coll::request<std::vector<int>>> requests(1);
        requests.push_back(other.start().recv(std::vector<int>(1), other.rank(), 9));
        bool is_left = false, is_known = false;
        check(!coll::test_any(requests, &is_left) && is_left, comm, "one that goes on");
        other.free();
        check(coll::wait_some(requests) == std::vector<std::size_t>(1, 1), comm, "one that was aborted is handed out");
        try { is_known = requests[1].wait().empty() && other.last().status() == COLL_ERR_ABORTED; }
        catch (const coll::error &wrong) { is_known = throws && wrong.status() == COLL_ERR_ABORTED; }
        check(is_known && !coll::wait_any(requests), comm, "what has become of it");
    }
}

// A second thread, while this one is inside of the communicator.
static void entered_twice(coll::communicator &comm)
{
    std::vector<coll::request<int>> requests;
    int told = 0, called = 0;

    requests.push_back(comm.start().recv(0, comm.rank(), 9));
    comm.allreduce(1, [&](int a, int b) {
        std::thread([&] {
            try { coll::wait_any(requests); } catch (const coll::error &wrong) { told += wrong.status() == COLL_ERR_ARGUMENT; }
            try { coll::wait_some(requests); } catch (const coll::error &wrong) { told += wrong.status() == COLL_ERR_ARGUMENT; }
        }).join();
        called++;
        return a + b;
    });
    check(told == 2 * called && comm.allreduce(called) > 0, comm, "a wait for several by a second thread is an error");
    comm.send(8, comm.rank(), 9);
    check(coll::wait_any(requests) == std::size_t(0) && requests[0].wait() == 8, comm, "and afterwards it is as before");
}

static coll::communicator alone_here() { return coll::init([] { coll_config c{}; c.size = 1; return c; }()); }

// If one rank throws, spawn ends; the others get COLL_ERR_PEER.
static void first_exception()
{
    std::string told;
    std::atomic<int> peers(0);
    try {
        coll::spawn(3, [&](coll::communicator &comm) {
            if (comm.rank() == 1) throw std::runtime_error("rank 1 has had enough");
            try { comm.allreduce(1); } catch (const coll::error &wrong) {
                if (wrong.status() == COLL_ERR_PEER && wrong.rank() == comm.rank() && std::strstr(wrong.what(), "rank 1"))
                    peers++;
                throw;
            }
        });
    } catch (const std::runtime_error &mine) { told = mine.what(); }
    const coll::communicator alone = alone_here();
    check(told == "rank 1 has had enough" && peers == 2, alone, "the first exception ends spawn");
}

static void failures()
{
    const coll::communicator alone = alone_here();
    std::atomic<int> peers(0);
    const coll_sim_fault fault = { COLL_SIM_KILL, 2, -1, 9, 0, 0 };
    coll_sim sim{};
    sim.faults = &fault, sim.fault_count = 1;
    coll_config config{};
    config.transport = "sim", config.sim = &sim, config.log_level = COLL_LOG_NONE;
    if (__lsan_disable) __lsan_disable();         // the killed rank is not freed, nor its memory
    const std::vector<int> sizes = coll::spawn(4, [&](coll::communicator &comm) {
        comm.throwing(false);
        while (!comm.last()) comm.allreduce(1);
        if (comm.last().status() == COLL_ERR_PEER && comm.last().rank() == comm.rank()
            && std::strstr(comm.last().what(), "rank 2")) peers++;
        if (comm.failed_ranks() == std::vector<int>(1, 2)) peers++;
        if (comm.agree(15u & ~(1u << comm.rank())) == 4) peers++;
        comm = comm.shrink();
        return comm.allreduce(1);
    }, config);
    if (__lsan_enable) __lsan_enable();
    check(peers == 9 && sizes == std::vector<int>(3, 3), alone, "a rank is killed, and the others go on");

    config = {};
    config.transport = "nosuch";
    coll::error why;
    coll::init(config, &why);
    check(why.status() == COLL_ERR_ARGUMENT && std::strstr(why.what(), "nosuch"), alone, "init says why not");
    coll::spawn(2, [](coll::communicator &comm) { comm.barrier(); }, config, &why);
    check(why && std::strstr(why.what(), "nosuch"), alone, "spawn says why not");
    bool is_known = false;
    try { coll::init(config); } catch (const coll::error &wrong) { is_known = std::strstr(wrong.what(), "nosuch"); }
    check(is_known, alone, "init throws");
}
#endif

// What is as quick on many ranks.
static void at_any_size(coll::communicator &comm)
{
    matrices_of<float>(comm);
    matrices_of<map>(comm);
    matrices_of<std::int8_t>(comm);
    matrices_of_programs(comm);
    several(comm);
    several_prepared(comm);
    receipts(comm);
#if !defined(COLL_CPP_NO_EXCEPTIONS)
    wrong_matrices(comm);
    several_wrong(comm);
#endif
}

// All of it, for the ranks of any world.
static void contract(coll::communicator &comm)
{
    at_any_size(comm);
    for (std::size_t count : { std::size_t(0), std::size_t(1), std::size_t(37) }) every_type(comm, count);
    numbers<float>(comm, 5003);
    values_and_options(comm);
    leaves(comm);
#if !defined(COLL_CPP_NO_EXCEPTIONS)
    wrong_leaves(comm);
    wrong_sizes(comm);
    lifetimes(comm);
#endif
    check(!comm.last(), comm, "nothing has failed");
}

int main(int argc, char **argv)
{
    const std::string what = argc > 1 ? argv[1] : "";

    if (what.empty() || what == "threads") {
        for (int ranks = 1; ranks <= 17; ranks++)
            if (what.empty() || ranks == 3 || ranks == 17) coll::spawn(ranks, ranks <= 5 ? contract : at_any_size);
#if !defined(COLL_CPP_NO_EXCEPTIONS)
        coll::spawn(3, entered_twice);
        first_exception();
#endif
    }
    if (what.empty()) {
        coll_config config{};
        config.transport = "sim";
        coll::spawn(3, contract, config);
#if !defined(COLL_CPP_NO_EXCEPTIONS)
        failures();
#endif
    } else if (what != "threads") {
        coll::communicator comm = coll::init();
        if (what == "hybrid") contract(comm);
        else if (comm.rank() == 1) std::raise(SIGKILL);
        else {
            comm.throwing(false);
            while (!comm.last()) comm.allreduce(1.0);
            check(comm.last().status() == COLL_ERR_PEER && comm.last().rank() == comm.rank()
                  && std::strstr(comm.last().what(), "rank 1"), comm, "a process is killed");
        }
    }
    std::printf("%d passed, %d failed\n", passed.load(), failed.load());
    return failed != 0;
}
