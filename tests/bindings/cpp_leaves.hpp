// cpp_leaves.hpp - coll::leaf_sum: the same bits on every number of ranks.  The oracle is a tree by recursion over all leaves.
// Used by test_cpp.cpp, after its check and same.
#ifndef CPP_LEAVES_HPP
#define CPP_LEAVES_HPP

// Magnitudes are far apart, so that another order of additions shows.
template <class T> T leaf_element(int leaf, std::size_t i)
{
    const std::size_t random = (static_cast<std::size_t>(leaf) * 2654435761u + i * 40503u) % 4093;
    return T((static_cast<float>(random) - 2000.0f) * (random % 3 ? 0.37f : 1e-4f));
}
template <> std::complex<float> leaf_element<std::complex<float>>(int leaf, std::size_t i)
{
    return { leaf_element<float>(leaf, i), leaf_element<float>(leaf + 50, i) };
}
template <class T> std::vector<T> leaf_of(int leaf, std::size_t count)
{
    std::vector<T> x;
    for (std::size_t i = 0; i < count; i++) x.push_back(leaf_element<T>(leaf, i));
    return x;
}

template <class T> struct leaf_wide { using type = T; };                              // what the sum is made in
template <> struct leaf_wide<coll::bf16> { using type = float; };

// The sum of leaves [first, first + length) of `total`; length is a power of two.
template <class W, class T> W leaf_node(int first, int length, int total, std::size_t i)
{
    if (length == 1) return W(leaf_element<T>(first, i));
    const W low = leaf_node<W, T>(first, length / 2, total, i);
    if (first + length / 2 >= total) return low;
    return low + leaf_node<W, T>(first + length / 2, length / 2, total, i);
}

template <class T> void leaves_of(const coll::communicator &comm, int total, std::size_t count)
{
    const int rank = comm.rank(), size = comm.size();
    const int first = total * rank / size, end = total * (rank + 1) / size;
    std::vector<T> expected, mean, y(count);
    int length = 1;

    while (length < total) length *= 2;
    for (std::size_t i = 0; i < count; i++) {
        using W = typename leaf_wide<T>::type;
        const W sum = leaf_node<W, T>(0, length, total, i);
        expected.push_back(T(sum)), mean.push_back(T(sum / static_cast<float>(total)));
    }
    coll::leaf_sum<T> sum(count);
    for (int round = 0; round < 2; round++) {
        sum.restart(first);
        for (int i = first; i < end; i++) {
            const coll::span<T> place = sum.place();
            const std::vector<T> leaf = leaf_of<T>(i, count);
            if (round && !place.empty()) std::copy(leaf.begin(), leaf.end(), place.begin());
            if (round && !place.empty()) sum.add(place);
            else sum.add(leaf);
        }
        check(same(comm.allreduce(sum), expected), comm, "leaves: returned");
        comm.allreduce(coll::from_to(sum, y), coll::avg);
        check(same(y, mean), comm, "leaves: the mean, in an output");
        auto request = comm.start().allreduce(sum);
        check(same(request.wait(), expected), comm, "leaves: started");
        auto planned = comm.prepare().allreduce(coll::from_to(sum, y));
        planned(), planned();
        check(same(y, expected), comm, "leaves: prepared");
    }
    coll::leaf_sum<T> moved = std::move(sum);
    check(same(comm.allreduce(moved), expected), comm, "leaves: moved");
}

static void leaves(const coll::communicator &comm)
{
    for (int total : { 1, 5, 24, 39 }) {          // some ranks have none
        leaves_of<float>(comm, total, 1003);
        leaves_of<std::complex<float>>(comm, total, 21);
        leaves_of<coll::bf16>(comm, total, 300);
    }
}

#if !defined(COLL_CPP_NO_EXCEPTIONS)
static void wrong_leaves(const coll::communicator &comm)
{
    coll::leaf_sum<float> sum(3), none = std::move(sum);
    std::vector<float> y(4);
    const auto says = [&](const char *words, auto &&fn) {
        bool is_known = false;
        try { fn(); } catch (const coll::error &wrong) { is_known = std::strstr(wrong.what(), words); }
        check(is_known, comm, words);
    };
    says("the leaf has 4 elements, and the sum 3", [&] { none.add(y); });
    says("first leaf -1 is out of range", [&] { none.restart(-1); });
    says("sum is NULL", [&] { sum.add(std::vector<float>(3)); });
    says("sum is NULL", [&] { comm.allreduce(sum); });
    says("the output has 4 elements, and needs 3", [&] { comm.allreduce(coll::from_to(none, y)); });
    says("there is no sum of", [&] { coll::leaf_sum<coll::located<float, std::int32_t>> of(1); });
    coll::options exact;
    exact.flags = COLL_REPRODUCIBLE;
    says("COLL_REPRODUCIBLE needs the leaves themselves", [&] { comm.allreduce(none, coll::sum, exact); });
}
#endif

#endif
