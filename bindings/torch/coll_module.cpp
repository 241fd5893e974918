/* coll_module.cpp - the module coll_torch._c. */

#include <torch/csrc/utils/pybind.h>

#include "coll_group.h"

#include <pybind11/chrono.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

namespace py = pybind11;

namespace coll_torch {

/* A module that was compiled for another version would call other functions than it means. */
static void look_at_version()
{
    const std::string compiled = COLL_TORCH_MINOR, found = py::str(py::module_::import("torch").attr("__version__"));

    if (found.compare(0, compiled.size() + 1, compiled + ".") != 0)
        throw py::import_error("coll_torch was compiled for PyTorch " + compiled + ", and this is PyTorch " + found
                               + ": install the coll-torch that fits, or compile it again");
}

/* The last reference may be dropped by Python, whose lock the threads of the group may need to end. */
class Lent : public Group {
public:
    using Group::Group;
    ~Lent() override
    {
        if (!Py_IsInitialized() || !PyGILState_Check()) return; /* Group's destructor closes */
        const py::gil_scoped_release free;
        close();
    }

protected:
    c10::intrusive_ptr<c10d::Backend> other(const Settings &settings) const override;
};

/* All groups, for the end of the interpreter: the objects of Python may be gone while torch keeps a group. */
static std::mutex known_mutex;
static std::vector<c10::weak_intrusive_ptr<Lent>> known;

static c10::intrusive_ptr<Lent> make_known(const Settings &settings)
{
    const auto group = c10::make_intrusive<Lent>(settings);
    const std::lock_guard<std::mutex> lock(known_mutex);

    known.erase(std::remove_if(known.begin(), known.end(), [](const auto &one) { return one.expired(); }), known.end());
    known.emplace_back(group);
    return group;
}

static void close_all(Milliseconds limit)
{
    std::vector<c10::intrusive_ptr<Lent>> groups;
    {
        const std::lock_guard<std::mutex> lock(known_mutex);
        for (const auto &one : known)
            if (auto group = one.lock()) groups.push_back(std::move(group));
    }
    for (const auto &group : groups) group->close();
    for (const auto &group : groups) group->finish(limit), group->forget_hook();
}

c10::intrusive_ptr<c10d::Backend> Lent::other(const Settings &settings) const
{
    return make_known(settings);
}

static c10::intrusive_ptr<Lent> create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, Milliseconds timeout,
                                       const std::string &name, const std::string &host)
{
    return make_known(Settings{ store, rank, size, timeout, name, host });
}

static coll_type wire_of(const std::string &name)
{
    for (coll_type type = COLL_I8; type <= COLL_MXF8E5M2; type++)
        if (name == coll_type_name(type)) return type;
    throw std::invalid_argument("there is no wire type \"" + name + "\"");
}

static Begun allreduce_wire(Lent &group, at::Tensor &tensor, const std::string &type, bool average, const py::object &residual,
                            unsigned flags, uint64_t seed)
{
    Wire wire{ wire_of(type), flags, seed, at::Tensor() };

    if (!residual.is_none()) wire.residual = residual.cast<at::Tensor>();
    const py::gil_scoped_release free;
    return group.allreduce_wire(tensor, average ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM, wire);
}

} // namespace coll_torch

PYBIND11_MODULE(_c, module)
{
    using namespace coll_torch;
    using namespace pybind11::literals;
    const py::call_guard<py::gil_scoped_release> free;

    look_at_version();
    py::module_::import("torch.distributed");
    py::class_<Lent, c10d::Backend, c10::intrusive_ptr<Lent>>(module, "ProcessGroupColl",
                                                              "A back end of torch.distributed over this library.")
        .def(py::init(&create), "store"_a, "rank"_a, "size"_a, "timeout"_a = Milliseconds(kBackendDefaultTimeout), "name"_a = "",
             "host"_a = "*", free)
        .def("allreduce_wire", &allreduce_wire, "tensor"_a, "wire"_a, "average"_a = false, "residual"_a = py::none(),
             "flags"_a = 0, "seed"_a = 0)
        .def("get_error", &Lent::getError, free)
        .def_property_readonly("options", &Lent::getBackendOptions)
        .def("_end", &Lent::end_on_purpose, "why"_a, free)
        .def("_close", &Lent::close, free);
    module.def("close_all", &close_all, "limit"_a, free);
    module.attr("STOCHASTIC") = static_cast<int>(COLL_STOCHASTIC);
    module.attr("TORCH") = COLL_TORCH_MINOR;
    module.attr("VERSION") = std::to_string(COLL_VERSION_MAJOR) + "." + std::to_string(COLL_VERSION_MINOR) + "."
                             + std::to_string(COLL_VERSION_PATCH);
}
