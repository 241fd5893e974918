/* coll_version.h - what depends on the version of PyTorch, and nothing else does.
 *
 * Before 2.0 a back end derives from c10d::ProcessGroup; from 2.0 on a ProcessGroup holds back ends, which derive from
 * c10d::Backend.  The methods are the same.  Run with 1.13.1 (Debian 12); the code for 2.0 and later has never been compiled.
 */
#ifndef COLL_TORCH_VERSION_H
#define COLL_TORCH_VERSION_H

#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace coll_torch {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

#ifdef COLL_TORCH_PYTHON
/* Register `create` in torch.distributed by the name "coll". */
inline void register_backend(const pybind11::object &create)
{
    using namespace pybind11::literals;
    const pybind11::object known = pybind11::module_::import("torch.distributed").attr("Backend").attr("register_backend");

#if TORCH_VERSION_MAJOR >= 2
    known("coll", create, "extended_api"_a = true, "devices"_a = std::vector<std::string>{ "cpu" });
#else
    known("coll", create, "extended_api"_a = true);
#endif
}
#endif

} // namespace coll_torch

#endif
