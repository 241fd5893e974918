/* coll_sparse.cpp - the sum of sparse tensors (COO), as of the gradients of an embedding.
 *
 * Three calls, each of which needs the result of the one before: the sizes of all tensors, all indices, all values.  Every
 * rank then adds the same values in the order of the ranks, so that the bits are the same everywhere. */

#include "coll_group.h"

#include <numeric>
#include <sstream>

namespace coll_torch {

static const char *const title = "coll:all_reduce of sparse tensors";

namespace {
/* The properties of a rank's tensor, sent to the others.  All but the number of its elements must agree. */
struct Header {
    enum { DIMS_MOST = 64 };
    int64_t stored, type, sparse_dims, dims, sizes[DIMS_MOST];

    explicit Header(const at::Tensor &tensor)
        : stored(tensor._nnz()), type(static_cast<int64_t>(tensor.scalar_type())), sparse_dims(tensor.sparse_dim()),
          dims(tensor.dim()), sizes{}
    {
        std::copy(tensor.sizes().begin(), tensor.sizes().end(), sizes);
    }

    bool fits(const Header &other) const
    {
        return type == other.type && sparse_dims == other.sparse_dims && dims == other.dims
               && std::equal(sizes, sizes + DIMS_MOST, other.sizes);
    }

    std::string text() const
    {
        std::ostringstream text;
        text << at::IntArrayRef(sizes, static_cast<size_t>(dims)) << " of " << static_cast<at::ScalarType>(type) << " with "
             << sparse_dims << " sparse and " << dims - sparse_dims << " dense dimensions";
        return text.str();
    }
};

/* The sum in the making. */
struct Sum {
    at::Tensor mine;                              /* coalesced */
    std::vector<Header> headers;                  /* of all ranks */
    at::Tensor indices, values;                   /* of all ranks, one behind the other */

    int64_t stored() const
    {
        return std::accumulate(headers.begin(), headers.end(), int64_t(0),
                               [](int64_t all, const Header &one) { return all + one.stored; });
    }
};
} // namespace

/* What one rank after the other has: of every stored element, numbers of this shape. */
static at::Tensor gathers(Work &work, const Sum &sum, const at::Tensor &mine, at::IntArrayRef shape)
{
    const int64_t width = c10::multiply_integers(shape);
    std::vector<int64_t> all = shape.vec();

    all.insert(all.begin(), sum.stored());
    work.recv_counts.clear();
    for (const Header &one : sum.headers) work.recv_counts.push_back(static_cast<size_t>(one.stored * width));
    const at::Tensor place = at::empty(all, mine.options());
    work.call.kind = COLL_ALLGATHERV;
    work.call.send = work.reads(mine).data_ptr();
    work.call.recv = place.data_ptr();
    work.call.count = static_cast<size_t>(mine.numel());
    work.call.type = type_of(mine);
    return place;
}

/* All ranks find the same error and report it; the group continues. */
static void look_at_headers(const Sum &sum)
{
    for (size_t r = 1; r < sum.headers.size(); r++)
        if (!sum.headers[r].fits(sum.headers[0]))
            throw std::runtime_error(std::string(title) + ": that of rank 0 is " + sum.headers[0].text() + ", and that of rank "
                                     + std::to_string(r) + " is " + sum.headers[r].text());
}

/* The type of sums, which are rounded once; truth values have no sums: one or more is true. */
static at::ScalarType sums_of(at::ScalarType type)
{
    return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type == at::kBool ? at::kInt : type;
}

/* Where in the tensor each stored element is, as one number. */
static at::Tensor keys_of(const Sum &sum)
{
    const int64_t dims = sum.mine.sparse_dim();
    Tensors parts;
    int64_t at = 0;

    for (const Header &one : sum.headers) {
        const at::Tensor own = sum.indices.narrow(0, at, one.stored).view({ dims, one.stored });
        at::Tensor key = at::zeros({ one.stored }, own.options());
        for (int64_t d = 0; d < dims; d++) key.mul_(one.sizes[d]).add_(own[d]);
        parts.push_back(key);
        at += one.stored;
    }
    return at::cat(parts);
}

static at::Tensor indices_of(at::Tensor keys, const at::Tensor &like)
{
    Tensors rows;

    for (int64_t d = like.sparse_dim() - 1; d >= 0; d--) {
        rows.insert(rows.begin(), keys.remainder(like.size(d)));
        keys = keys.div(like.size(d), "floor");
    }
    return rows.empty() ? at::empty({ 0, keys.numel() }, keys.options()) : at::stack(rows);
}

static at::Tensor added(const Sum &sum)
{
    const auto found = at::_unique2(keys_of(sum), /*sorted*/ true, /*return_inverse*/ true);
    const at::Tensor &keys = std::get<0>(found), &places = std::get<1>(found);
    const at::Tensor values = sum.values.to(sums_of(sum.values.scalar_type()));
    std::vector<int64_t> shape = values.sizes().vec();

    shape[0] = keys.numel();
    const at::Tensor total = at::zeros(shape, values.options());
    int64_t at = 0;
    for (const Header &one : sum.headers) {       /* of a rank no place comes twice */
        total.index_add_(0, places.narrow(0, at, one.stored), values.narrow(0, at, one.stored));
        at += one.stored;
    }
    return at::_sparse_coo_tensor_unsafe(indices_of(keys, sum.mine), total.to(sum.values.scalar_type()), sum.mine.sizes())
        ._coalesced_(true);
}

Begun Group::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    const SameMembers same(members);
    look_at_one(title, tensors);
    const at::Tensor tensor = tensors[0];
    TORCH_CHECK(tensor.layout() == at::kSparse, title, " takes COO tensors; this one is ", tensor.layout());
    TORCH_CHECK(tensor.device().is_cpu(), title, " takes tensors in the memory of the CPU; this one is on ", tensor.device());
    TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, title, " knows the operation SUM alone");
    TORCH_CHECK(tensor.dim() <= Header::DIMS_MOST, title, " takes ", int(Header::DIMS_MOST), " dimensions at most");
    const Handle work = c10::make_intrusive<Work>(rank_, c10d::OpType::ALLREDUCE, "coll:all_reduce", Tensors{ tensor },
                                                  std::vector<Tensors>{ { tensor } }, endings);
    const auto sum = std::make_shared<Sum>();
    Work *const it = work.get();

    sum->mine = tensor.detach().coalesce();
    const Header own(sum->mine);
    sum->headers.assign(static_cast<size_t>(size_), own);
    work->call.send = COLL_IN_PLACE;
    work->call.recv = sum->headers.data();
    work->call.count = sizeof own / sizeof(int64_t);
    work->call.type = COLL_I64;
    work->follows([sum, it] {
        look_at_headers(*sum);
        sum->indices = gathers(*it, *sum, sum->mine._indices(), { sum->mine.sparse_dim() });
    });
    work->follows([sum, it] { sum->values = gathers(*it, *sum, sum->mine._values(), sum->mine._values().sizes().slice(1)); });
    work->ends_with([sum, tensor] { at::Tensor(tensor).copy_(added(*sum)); });
    return begin(work, COLL_ALLGATHER, options.timeout);
}

} // namespace coll_torch
