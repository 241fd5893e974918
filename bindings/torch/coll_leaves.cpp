/* coll_leaves.cpp - sums over leaves (Leaves in coll.h): the leaves of this rank, and the allreduce of those of all ranks. */

#include "coll_group.h"

#include <cstring>

namespace coll_torch {

static void check(coll_status status)
{
    TORCH_CHECK(status >= 0, coll_error(nullptr));
}

LeafSum::LeafSum(const at::Tensor &like, int64_t first) : type(like.scalar_type()), count(like.numel())
{
    check(coll_sum_begin(&sum, first, static_cast<size_t>(count), type_of(like), nullptr));
}

LeafSum::~LeafSum()
{
    coll_sum_free(sum);
}

void LeafSum::restart(int64_t first)
{
    check(coll_sum_restart(sum, first));
}

void LeafSum::add(const at::Tensor &leaf)
{
    TORCH_CHECK(leaf.layout() == at::kStrided && leaf.device().is_cpu(), "a leaf is a dense tensor on the CPU, and not ",
                leaf.layout(), " on ", leaf.device());
    TORCH_CHECK(leaf.scalar_type() == type && leaf.numel() == count, "a leaf of ", leaf.numel(), " elements of ",
                leaf.scalar_type(), " in a sum of ", count, " elements of ", type);
    const at::Tensor plain = leaf.contiguous().resolve_conj().resolve_neg();
    check(coll_sum_add(sum, plain.data_ptr()));
}

void LeafSum::end(coll_call &call) const
{
    check(coll_sum_end(sum, &call));
}

/* How many vectors a run has (Leaves in coll.h). */
static int64_t nodes_of(int64_t at, int64_t leaves)
{
    const int64_t end = at + leaves;
    int64_t nodes = 0;

    for (int64_t length; at < end; at += length, nodes++)
        for (length = 1; at % (2 * length) == 0 && at + 2 * length <= end;) length *= 2;
    return nodes;
}

/* The nodes of some sums, side by side: as if the leaves of all of them were one. */
static at::Tensor side_by_side(const std::vector<coll_call> &calls, int64_t nodes)
{
    const coll_type type = calls[0].type;
    const bool is_narrow = type == COLL_BF16 || type == COLL_F16 || type == COLL_F8E4M3 || type == COLL_F8E5M2;
    const size_t width = is_narrow ? sizeof(float) : coll_type_size(type);
    size_t row = 0, at = 0;

    for (const coll_call &one : calls) row += one.count * width;
    const at::Tensor all = at::empty({ nodes * static_cast<int64_t>(row) }, at::kByte);
    for (const coll_call &one : calls) {
        const size_t length = one.count * width;
        for (int64_t node = 0; length && node < nodes; node++)
            std::memcpy(static_cast<char *>(all.data_ptr()) + static_cast<size_t>(node) * row + at,
                        static_cast<const char *>(one.send) + static_cast<size_t>(node) * length, length);
        at += length;
    }
    return all;
}

Begun Group::allreduce_leaves(const LeafSums &sums, const Tensors &results, bool average)
{
    const Handle work = make(c10d::OpType::ALLREDUCE, "coll:all_reduce", {}, { results });
    std::vector<coll_call> calls(sums.size());

    TORCH_CHECK(!sums.empty() && sums.size() == results.size(), "there are ", sums.size(), " sums and ", results.size(),
                " results");
    for (size_t i = 0; i < sums.size(); i++) {
        sums[i]->end(calls[i]);
        TORCH_CHECK(calls[i].first_leaf == calls[0].first_leaf && calls[i].leaves == calls[0].leaves, "sum ", i, " has ",
                    calls[i].leaves, " leaves from ", calls[i].first_leaf, " on, and sum 0 ", calls[0].leaves, " from ",
                    calls[0].first_leaf, " on");
        TORCH_CHECK(calls[i].type == calls[0].type && type_of(results[i]) == calls[0].type, "sum ", i, " is of ",
                    coll_type_name(calls[i].type), ", its result of ", results[i].scalar_type(), ", and sum 0 of ",
                    coll_type_name(calls[0].type));
        TORCH_CHECK(results[i].numel() == static_cast<int64_t>(calls[i].count), "sum ", i, " has ", calls[i].count,
                    " elements, and its result ", results[i].numel());
    }
    work->call = calls[0];
    work->call.count = 0;
    for (const coll_call &one : calls) work->call.count += one.count;
    if (sums.size() == 1) work->ends_with([sums] {});                       /* which keeps the nodes until then */
    else work->call.send = work->reads(side_by_side(calls, nodes_of(calls[0].first_leaf, calls[0].leaves))).data_ptr();
    work->call.recv = work->spreads(results).data_ptr();
    work->call.op = average ? COLL_AVG : COLL_SUM;
    return begin(work, COLL_ALLREDUCE, c10d::kUnsetTimeout);
}

} // namespace coll_torch
