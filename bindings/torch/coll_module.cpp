/* coll_module.cpp - the module coll_torch._c.  Only this file is compiled; it includes the others, for which the compiler would
 * read all headers of PyTorch again. */

#include <torch/csrc/utils/pybind.h>

#include "coll_calls.cpp"
#include "coll_group.cpp"
#include "coll_leaves.cpp"
#include "coll_sparse.cpp"
#include "coll_work.cpp"

#include <pybind11/chrono.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <set>

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

/* All groups, for the end of the interpreter: the objects of Python may be gone while torch keeps a group. */
class PyGroup;
static std::mutex known_mutex;
static std::set<PyGroup *> known;

/* The last reference may be dropped by Python, whose lock the threads of the group may need to end. */
class PyGroup : public Group {
public:
    explicit PyGroup(const Settings &settings) : Group(settings)
    {
        const std::lock_guard<std::mutex> lock(known_mutex);
        known.insert(this);
    }

    ~PyGroup() override
    {
        std::optional<py::gil_scoped_release> free;
        if (Py_IsInitialized() && PyGILState_Check()) free.emplace();
        {
            const std::lock_guard<std::mutex> lock(known_mutex);
            known.erase(this);
        }
        close();
    }

protected:
    c10::intrusive_ptr<c10d::Backend> other(const Settings &settings) const override
    {
        return c10::make_intrusive<PyGroup>(settings);
    }
};

/* The mutex is not held while a hook runs or is freed: it may have the last reference to a group. */
static void close_all(Milliseconds limit)
{
    std::vector<std::shared_ptr<Hooks>> hooks;

    interpreter_ends = true;
    {
        const std::lock_guard<std::mutex> lock(known_mutex);
        for (PyGroup *const group : known) group->close(), hooks.push_back(group->its_hooks());
    }
    Endings::finish_all(limit);
    for (const auto &one : hooks) one->forget();
}

static c10::intrusive_ptr<PyGroup> create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, Milliseconds timeout,
                                       const std::string &name, const std::string &host, bool is_alone)
{
    return c10::make_intrusive<PyGroup>(Settings{ store, rank, size, timeout, name, host, is_alone });
}

static coll_type wire_of(const std::string &name)
{
    for (coll_type type = COLL_I8; type <= COLL_MXF8E5M2; type++)
        if (name == coll_type_name(type)) return type;
    throw std::invalid_argument("there is no wire type \"" + name + "\"");
}

static Begun allreduce_wire(PyGroup &group, at::Tensor &tensor, const std::string &type, bool average, const py::object &residual,
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
    py::class_<LeafSum, std::shared_ptr<LeafSum>>(module, "LeafSum")
        .def(py::init<const at::Tensor &, int64_t>(), "like"_a, "first_leaf"_a = 0)
        .def("restart", &LeafSum::restart, "first_leaf"_a)
        .def("add", &LeafSum::add, "leaf"_a, free);
    py::class_<PyGroup, c10d::Backend, c10::intrusive_ptr<PyGroup>>(module, "ProcessGroupColl",
                                                              "A back end of torch.distributed over this library.")
        .def(py::init(&create), "store"_a, "rank"_a, "size"_a, "timeout"_a = Milliseconds(kBackendDefaultTimeout), "name"_a = "",
             "host"_a = "*", "is_alone"_a = false, free)
        .def("allreduce_wire", &allreduce_wire, "tensor"_a, "wire"_a, "average"_a = false, "residual"_a = py::none(),
             "flags"_a = 0, "seed"_a = 0)
        .def("allreduce_leaves", &PyGroup::allreduce_leaves, "sums"_a, "results"_a, "average"_a = false, free)
        .def("get_error", &PyGroup::getError, free)
        .def_property_readonly("options", &PyGroup::getBackendOptions)
        .def("_end", &PyGroup::end_on_purpose, "why"_a, free)
        .def("_close", &PyGroup::close, free);
    module.def("close_all", &close_all, "limit"_a, free);
    module.attr("STOCHASTIC") = static_cast<int>(COLL_STOCHASTIC);
    module.attr("TORCH") = COLL_TORCH_MINOR;
    module.attr("VERSION") = std::to_string(COLL_VERSION_MAJOR) + "." + std::to_string(COLL_VERSION_MINOR) + "."
                             + std::to_string(COLL_VERSION_PATCH);
}
