/* coll_module.cpp - the module coll_torch._c. */

#include <torch/csrc/utils/pybind.h>

#define COLL_TORCH_PYTHON
#include "coll_group.h"

#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace coll_torch {

/* What Python holds is a c10d::ProcessGroup (Backend); these are the calls that only ours has. */
static Group &ours(Base &group)
{
    Group *const it = dynamic_cast<Group *>(&group);

    if (!it) throw std::invalid_argument("this process group is not of the back end coll but of " + group.getBackendName());
    return *it;
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
};

static c10::intrusive_ptr<Base> create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, double seconds,
                                       const std::string &name, const std::string &host)
{
    const Milliseconds timeout(static_cast<int64_t>(seconds * 1000));

    return c10::make_intrusive<Lent>(Settings{ store, rank, size, timeout, name, host });
}

static coll_type wire_of(const std::string &name)
{
    for (coll_type type = COLL_I8; type <= COLL_MXF8E5M2; type++)
        if (name == coll_type_name(type)) return type;
    throw std::invalid_argument("there is no wire type \"" + name + "\"");
}

static Begun allreduce_wire(Base &group, at::Tensor &tensor, const std::string &type, bool average, const py::object &residual,
                            unsigned flags, uint64_t seed)
{
    Wire wire{ wire_of(type), flags, seed, at::Tensor() };

    if (!residual.is_none()) wire.residual = residual.cast<at::Tensor>();
    const py::gil_scoped_release free;
    return ours(group).allreduce_wire(tensor, average ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM, wire);
}

} // namespace coll_torch

PYBIND11_MODULE(_c, module)
{
    using namespace coll_torch;
    const py::call_guard<py::gil_scoped_release> free;

    py::module_::import("torch.distributed");
    module.def("create", create, free);
    module.def("register", register_backend);
    module.def("allreduce_wire", allreduce_wire, py::arg("group"), py::arg("tensor"), py::arg("wire"),
               py::arg("average") = false, py::arg("residual") = py::none(), py::arg("flags") = 0, py::arg("seed") = 0);
    module.def("abort", [](Base &group, const std::string &why) { ours(group).end_on_purpose(why); }, free);
    module.def("close", [](Base &group) { ours(group).close(); }, free);
    module.attr("STOCHASTIC") = static_cast<int>(COLL_STOCHASTIC);
    module.attr("VERSION") = std::to_string(COLL_VERSION_MAJOR) + "." + std::to_string(COLL_VERSION_MINOR) + "."
                             + std::to_string(COLL_VERSION_PATCH);
}
