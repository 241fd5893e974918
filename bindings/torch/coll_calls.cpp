/* coll_calls.cpp - the operations of c10d as calls of the library. */

#include "coll_group.h"

namespace coll_torch {

using c10d::OpType;

/* ---- what is refused, before anything moves ---- */

void Group::look_at(const char *title, const Tensors &tensors) const
{
    for (const at::Tensor &one : tensors) {
        TORCH_CHECK(one.layout() == at::kStrided, title, " takes dense tensors; this one is ", one.layout());
        TORCH_CHECK(one.device().is_cpu(), title, " takes tensors in the memory of the CPU; this one is on ", one.device());
    }
}

void Group::look_at_one(const char *title, const Tensors &tensors) const
{
    TORCH_CHECK(tensors.size() == 1, title, " takes one tensor, and not ", tensors.size());
}

void Group::look_at_root(const char *title, int64_t root) const
{
    TORCH_CHECK(root >= 0 && root < size_, title, " with rank ", root, " in a group of ", size_);
}

static void look_the_same(const char *title, const at::Tensor &one, const at::Tensor &other)
{
    TORCH_CHECK(one.scalar_type() == other.scalar_type(), title, " of ", one.scalar_type(), " and ", other.scalar_type(),
                "; its tensors have one type");
}

/* As many tensors as ranks, each as large as `one`, and of its type. */
static void look_at_blocks(const char *title, const Tensors &blocks, const at::Tensor &one, int size)
{
    TORCH_CHECK(blocks.size() == static_cast<size_t>(size), title, " takes a tensor for each of ", size, " ranks, and not ",
                blocks.size());
    for (const at::Tensor &block : blocks) {
        look_the_same(title, block, one);
        TORCH_CHECK(block.numel() == one.numel(), title, " of ", one.numel(), " and ", block.numel(),
                    " elements; its tensors are equally large");
    }
}

static void look_at_whole(const char *title, const at::Tensor &whole, const at::Tensor &block, int size)
{
    look_the_same(title, whole, block);
    TORCH_CHECK(whole.numel() == block.numel() * size, title, " of ", whole.numel(), " elements, which are not ", size,
                " times the ", block.numel(), " of a rank");
}

static size_t count_of(const at::Tensor &tensor)
{
    return static_cast<size_t>(tensor.numel());
}

/* Truth values have no sums: more than none is true. */
static coll_op op_of(const c10d::ReduceOp &op, const at::Tensor &tensor)
{
    const bool is_truth = tensor.scalar_type() == at::kBool;

    switch (op.op_) {
    case c10d::ReduceOp::PREMUL_SUM:
    case c10d::ReduceOp::SUM: return is_truth ? COLL_LOR : COLL_SUM;
    case c10d::ReduceOp::AVG: return COLL_AVG;
    case c10d::ReduceOp::PRODUCT: return is_truth ? COLL_LAND : COLL_PROD;
    case c10d::ReduceOp::MIN: return COLL_MIN;
    case c10d::ReduceOp::MAX: return COLL_MAX;
    case c10d::ReduceOp::BAND: return COLL_BAND;
    case c10d::ReduceOp::BOR: return COLL_BOR;
    case c10d::ReduceOp::BXOR: return COLL_BXOR;
    default: TORCH_CHECK(false, "the back end coll has no such ReduceOp (", static_cast<int>(op.op_), ")");
    }
}

/* PREMUL_SUM: the sum is multiplied before it is rounded, so it is rounded once.  The factor is the same on all ranks. */
static void combines(Work &work, const c10d::ReduceOp &op, const at::Tensor &tensor)
{
    work.call.op = op_of(op, tensor);
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return;
    TORCH_CHECK(op.supplement_, "PREMUL_SUM without a factor");
    const auto *const factor = static_cast<const c10d::PreMulSumSupplement *>(op.supplement_.get());
    work.call.scale = factor->tensor_factor.defined() ? factor->tensor_factor.item<double>() : factor->double_factor;
    TORCH_CHECK(work.call.scale != 0, "PREMUL_SUM with the factor 0");
}

/* ---- one buffer ---- */

Begun Group::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
    look_at_one("coll:broadcast", tensors);
    look_at_root("coll:broadcast", options.rootRank);
    const Handle work = make(OpType::BROADCAST, "coll:broadcast", tensors, { tensors });
    work->call.recv = work->changes(tensors[0]).data_ptr();
    work->call.count = count_of(tensors[0]);
    work->call.type = type_of(tensors[0]);
    work->call.root = static_cast<int>(options.rootRank);
    return begin(work, COLL_BROADCAST, options.timeout);
}

static void reduces(Work &work, const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    work.call.send = COLL_IN_PLACE;
    work.call.recv = work.changes(tensor).data_ptr();
    work.call.count = count_of(tensor);
    work.call.type = type_of(tensor);
    combines(work, op, tensor);
}

Begun Group::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    look_at_one("coll:all_reduce", tensors);
    if (tensors[0].layout() != at::kStrided) return allreduce_sparse(tensors, options);
    const Handle work = make(OpType::ALLREDUCE, "coll:all_reduce", tensors, { tensors });
    reduces(*work, tensors[0], options.reduceOp);
    return begin(work, COLL_ALLREDUCE, options.timeout);
}

Begun Group::allreduce_wire(at::Tensor &tensor, const c10d::ReduceOp &op, const Wire &wire)
{
    const Handle work = make(OpType::ALLREDUCE, "coll:all_reduce", { tensor }, { { tensor } });

    reduces(*work, tensor, op);
    work->call.wire = wire.type;
    work->call.flags = wire.flags;
    work->call.seed = wire.seed;
    if (wire.residual.defined()) {
        TORCH_CHECK(wire.residual.scalar_type() == at::kFloat && wire.residual.is_contiguous()
                        && wire.residual.numel() == tensor.numel(),
                    "a residual is a contiguous tensor of float32 with as many elements as are reduced");
        work->call.residual = static_cast<float *>(work->changes(wire.residual).data_ptr());
    }
    return begin(work, COLL_ALLREDUCE, c10d::kUnsetTimeout);
}

Begun Group::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
    TORCH_CHECK(!tensors.empty(), "coll:all_reduce_coalesced takes one tensor or more");
    const Handle work = make(OpType::ALLREDUCE_COALESCED, "coll:all_reduce", tensors, { tensors });
    for (const at::Tensor &one : tensors) {
        void *const place = work->changes(one).data_ptr();
        work->list.push_back({ place, place, count_of(one), type_of(one) });
    }
    combines(*work, options.reduceOp, tensors[0]);
    return begin(work, COLL_ALLREDUCE_LIST, options.timeout);
}

Begun Group::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    look_at_one("coll:reduce", tensors);
    look_at_root("coll:reduce", options.rootRank);
    const Handle work = make(OpType::REDUCE, "coll:reduce", tensors, { tensors });
    if (rank_ == options.rootRank) reduces(*work, tensors[0], options.reduceOp);
    else {
        work->call.send = work->reads(tensors[0]).data_ptr();
        work->call.count = count_of(tensors[0]);
        work->call.type = type_of(tensors[0]);
        combines(*work, options.reduceOp, tensors[0]);
    }
    work->call.root = static_cast<int>(options.rootRank);
    return begin(work, COLL_REDUCE, options.timeout);
}

Begun Group::barrier(const c10d::BarrierOptions &options)
{
    return begin(make(OpType::BARRIER, "coll:barrier", {}, {}), COLL_BARRIER, options.timeout);
}

/* ---- a block for every rank ---- */

static void moves(Work &work, const void *send, void *recv, const at::Tensor &block)
{
    work.call.send = send;
    work.call.recv = recv;
    work.call.count = count_of(block);
    work.call.type = type_of(block);
}

Begun Group::allgather(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    const SameMembers same(members);
    look_at_one("coll:all_gather", inputs);
    TORCH_CHECK(outputs.size() == 1, "coll:all_gather takes one list of tensors, and not ", outputs.size());
    look_at_blocks("coll:all_gather", outputs[0], inputs[0], size_);
    const Handle work = make(OpType::ALLGATHER, "coll:all_gather", inputs, outputs);
    moves(*work, work->reads(inputs[0]).data_ptr(), work->spreads(outputs[0]).data_ptr(), inputs[0]);
    return begin(work, COLL_ALLGATHER, options.timeout);
}

Handle Group::gather_block(at::Tensor &output, at::Tensor &input, Milliseconds limit)
{
    const SameMembers same(members);
    look_at_whole("coll:all_gather", output, input, size_);
    const Handle work = make(OpType::_ALLGATHER_BASE, "coll:all_gather", { input }, { { output } });
    moves(*work, work->reads(input).data_ptr(), work->writes(output).data_ptr(), input);
    return begin(work, COLL_ALLGATHER, limit);
}

Begun Group::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options)
{
    return gather_block(output, input, options.timeout);
}

static void look_at_pairs(const char *title, const Tensors &outputs, const Tensors &inputs)
{
    TORCH_CHECK(inputs.size() == outputs.size(), title, " takes as many inputs as outputs, and not ", inputs.size(), " and ",
                outputs.size());
}

Begun Group::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    std::vector<Handle> works;

    look_at_pairs("coll:all_gather", outputs, inputs);
    for (size_t i = 0; i < inputs.size(); i++) look_at_whole("coll:all_gather", outputs[i], inputs[i], size_);
    for (size_t i = 0; i < inputs.size(); i++) works.push_back(gather_block(outputs[i], inputs[i], options.timeout));
    return c10::make_intrusive<Several>(rank_, OpType::COALESCED, std::move(works));
}

/* Every rank's list travels as the bytes of its tensors, which may be of any types. */
Begun Group::allgather_coalesced(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    const SameMembers same(members);
    static const char *const title = "coll:all_gather";
    TORCH_CHECK(!inputs.empty(), title, " takes one tensor or more");
    TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), title, " takes a list for each of ", size_, " ranks, and not ",
                outputs.size());
    const auto bytes_of = [](const at::Tensor &one) { return one.view({ -1 }).view(at::kByte); };
    const Handle work = make(OpType::ALLGATHER_COALESCED, title, inputs, outputs);
    Tensors from, to;

    for (const at::Tensor &one : inputs) from.push_back(bytes_of(work->reads(one)));
    for (const Tensors &list : outputs) {
        TORCH_CHECK(list.size() == inputs.size(), title, " of ", inputs.size(), " tensors into ", list.size());
        for (size_t i = 0; i < list.size(); i++) {
            look_the_same(title, list[i], inputs[i]);
            TORCH_CHECK(list[i].numel() == inputs[i].numel(), title, " of ", inputs[i].numel(), " elements into ",
                        list[i].numel());
        }
    }
    /* In reverse order: first the data is written into places, then the places are copied. */
    Tensors places;
    for (const Tensors &list : outputs)
        for (const at::Tensor &one : list) places.push_back(at::empty(one.sizes(), one.options()));
    for (const at::Tensor &one : places) to.push_back(bytes_of(one));
    const at::Tensor sent = work->packs(from), got = work->spreads(to);
    size_t next = 0;
    for (const Tensors &list : outputs)
        for (const at::Tensor &one : list) work->copies(one, places[next++]);
    moves(*work, sent.data_ptr(), got.data_ptr(), sent);
    return begin(work, COLL_ALLGATHER, options.timeout);
}

Begun Group::gather(Lists &outputs, Tensors &inputs, const c10d::GatherOptions &options)
{
    const SameMembers same(members);
    const bool is_root = rank_ == options.rootRank;
    look_at_one("coll:gather", inputs);
    look_at_root("coll:gather", options.rootRank);
    TORCH_CHECK(outputs.size() == (is_root ? 1 : 0), "coll:gather takes one list of tensors at the root, and none elsewhere");
    if (is_root) look_at_blocks("coll:gather", outputs[0], inputs[0], size_);
    const Handle work = make(OpType::GATHER, "coll:gather", inputs, outputs);
    moves(*work, work->reads(inputs[0]).data_ptr(), is_root ? work->spreads(outputs[0]).data_ptr() : nullptr, inputs[0]);
    work->call.root = static_cast<int>(options.rootRank);
    return begin(work, COLL_GATHER, options.timeout);
}

Begun Group::gather_single(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &options)
{
    const SameMembers same(members);
    const bool is_root = rank_ == options.rootRank;
    look_at_root("coll:gather", options.rootRank);
    if (is_root) look_at_whole("coll:gather", output, input, size_);
    const Handle work = make(OpType::GATHER, "coll:gather", { input }, is_root ? Lists{ { output } } : Lists());
    moves(*work, work->reads(input).data_ptr(), is_root ? work->writes(output).data_ptr() : nullptr, input);
    work->call.root = static_cast<int>(options.rootRank);
    return begin(work, COLL_GATHER, options.timeout);
}

Begun Group::scatter(Tensors &outputs, Lists &inputs, const c10d::ScatterOptions &options)
{
    const SameMembers same(members);
    const bool is_root = rank_ == options.rootRank;
    look_at_one("coll:scatter", outputs);
    look_at_root("coll:scatter", options.rootRank);
    TORCH_CHECK(inputs.size() == (is_root ? 1 : 0), "coll:scatter takes one list of tensors at the root, and none elsewhere");
    if (is_root) look_at_blocks("coll:scatter", inputs[0], outputs[0], size_);
    const Handle work = make(OpType::SCATTER, "coll:scatter", is_root ? inputs[0] : Tensors(), { outputs });
    moves(*work, is_root ? work->packs(inputs[0]).data_ptr() : nullptr, work->writes(outputs[0]).data_ptr(), outputs[0]);
    work->call.root = static_cast<int>(options.rootRank);
    return begin(work, COLL_SCATTER, options.timeout);
}

Begun Group::reduce_scatter(Tensors &outputs, Lists &inputs, const c10d::ReduceScatterOptions &options)
{
    const SameMembers same(members);
    look_at_one("coll:reduce_scatter", outputs);
    TORCH_CHECK(inputs.size() == 1, "coll:reduce_scatter takes one list of tensors, and not ", inputs.size());
    look_at_blocks("coll:reduce_scatter", inputs[0], outputs[0], size_);
    const Handle work = make(OpType::REDUCE_SCATTER, "coll:reduce_scatter", inputs[0], { outputs });
    moves(*work, work->packs(inputs[0]).data_ptr(), work->writes(outputs[0]).data_ptr(), outputs[0]);
    combines(*work, options.reduceOp, outputs[0]);
    return begin(work, COLL_REDUCE_SCATTER, options.timeout);
}

Handle Group::reduce_block(at::Tensor &output, at::Tensor &input, const c10d::ReduceOp &op, Milliseconds limit)
{
    const SameMembers same(members);
    look_at_whole("coll:reduce_scatter", input, output, size_);
    const Handle work = make(OpType::_REDUCE_SCATTER_BASE, "coll:reduce_scatter", { input }, { { output } });
    moves(*work, work->reads(input).data_ptr(), work->writes(output).data_ptr(), output);
    combines(*work, op, output);
    return begin(work, COLL_REDUCE_SCATTER, limit);
}

Begun Group::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &options)
{
    return reduce_block(output, input, options.reduceOp, options.timeout);
}

Begun Group::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &options)
{
    std::vector<Handle> works;

    look_at_pairs("coll:reduce_scatter", outputs, inputs);
    for (size_t i = 0; i < inputs.size(); i++) look_at_whole("coll:reduce_scatter", inputs[i], outputs[i], size_);
    for (size_t i = 0; i < inputs.size(); i++)
        works.push_back(reduce_block(outputs[i], inputs[i], options.reduceOp, options.timeout));
    return c10::make_intrusive<Several>(rank_, OpType::COALESCED, std::move(works));
}

/* Rows for each rank, as elements; without a list the rows are divided evenly. */
static std::vector<size_t> counts_of(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size)
{
    const int64_t rows = tensor.dim() ? tensor.size(0) : 0, row = rows ? tensor.numel() / rows : 0;
    std::vector<size_t> counts;
    int64_t sum = 0;

    TORCH_CHECK(splits.empty() ? rows % size == 0 : splits.size() == static_cast<size_t>(size),
                "coll:all_to_all of ", rows, " rows and ", splits.size(), " parts among ", size, " ranks");
    for (int r = 0; r < size; r++) {
        const int64_t part = splits.empty() ? rows / size : splits[static_cast<size_t>(r)];
        TORCH_CHECK(part >= 0, "coll:all_to_all of ", part, " rows");
        sum += part;
        counts.push_back(static_cast<size_t>(part * row));
    }
    TORCH_CHECK(sum == rows, "coll:all_to_all of ", rows, " rows, whose parts have ", sum);
    return counts;
}

Begun Group::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                           std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options)
{
    const SameMembers same(members);
    look_the_same("coll:all_to_all", output, input);
    TORCH_CHECK_VALUE(input.is_contiguous() && output.is_contiguous(), "coll:all_to_all: Tensors must be contiguous");
    const Handle work = make(OpType::ALLTOALL_BASE, "coll:all_to_all", { input }, { { output } });
    const bool is_even = output_splits.empty() && input_splits.empty();
    work->send_counts = counts_of(input, input_splits, size_);
    work->recv_counts = counts_of(output, output_splits, size_);
    moves(*work, work->reads(input).data_ptr(), work->writes(output).data_ptr(), input);
    if (!is_even) return begin(work, COLL_ALLTOALLV, options.timeout);
    TORCH_CHECK(input.numel() == output.numel(), "coll:all_to_all of ", input.numel(), " elements into ", output.numel());
    work->call.count = count_of(input) / static_cast<size_t>(size_);
    work->send_counts.clear(), work->recv_counts.clear();
    return begin(work, COLL_ALLTOALL, options.timeout);
}

Begun Group::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
    const SameMembers same(members);
    static const char *const title = "coll:all_to_all";
    TORCH_CHECK(outputs.size() == static_cast<size_t>(size_) && inputs.size() == outputs.size(), title,
                " takes a tensor for each of ", size_, " ranks, and not ", inputs.size(), " and ", outputs.size());
    for (const Tensors *list : { &inputs, &outputs })
        for (const at::Tensor &one : *list) look_the_same(title, one, inputs[0]);
    const Handle work = make(OpType::ALLTOALL, title, inputs, { outputs });
    for (const at::Tensor &one : inputs) work->send_counts.push_back(count_of(one));
    for (const at::Tensor &one : outputs) work->recv_counts.push_back(count_of(one));
    moves(*work, work->packs(inputs).data_ptr(), work->spreads(outputs).data_ptr(), inputs[0]);
    return begin(work, COLL_ALLTOALLV, options.timeout);
}

/* ---- messages ---- */

Begun Group::send(Tensors &tensors, int peer, int tag)
{
    look_at_one("coll:send", tensors);
    look_at_root("coll:send", peer);
    const Handle work = make(OpType::SEND, "coll:send", tensors, {});
    moves(*work, work->reads(tensors[0]).data_ptr(), nullptr, tensors[0]);
    work->call.peer = peer, work->call.tag = tag;
    return begin(work, COLL_SEND, c10d::kUnsetTimeout);
}

Begun Group::receive(Tensors &tensors, int peer, int tag, OpType type, const char *title)
{
    look_at_one(title, tensors);
    const Handle work = make(type, title, {}, { tensors });
    moves(*work, nullptr, work->writes(tensors[0]).data_ptr(), tensors[0]);
    work->call.peer = peer, work->call.tag = tag;
    return begin(work, COLL_RECV, c10d::kUnsetTimeout);
}

Begun Group::recv(Tensors &tensors, int peer, int tag)
{
    look_at_root("coll:recv", peer);
    return receive(tensors, peer, tag, OpType::RECV, "coll:recv");
}

Begun Group::recvAnysource(Tensors &tensors, int tag)
{
    return receive(tensors, COLL_ANY_SOURCE, tag, OpType::RECVANYSOURCE, "coll:recvAnySource");
}

} // namespace coll_torch
