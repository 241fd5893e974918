/* coll_version.h - what depends on the version of PyTorch, and nothing else does: 2.13 and later. */
#ifndef COLL_TORCH_VERSION_H
#define COLL_TORCH_VERSION_H

#include <torch/version.h>

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13)
#error "the back end coll requires PyTorch 2.13 or later"
#endif

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace coll_torch {

/* The base of a group.  A class of PyTorch's has other virtual functions in each minor version, so a module that was compiled for
 * one version must not run with another (COLL_TORCH_MINOR). */
class Base : public c10d::Backend {
public:
    using c10d::Backend::Backend;

    /* From 2.14 on these override functions of c10d::Backend.  all_gather_single and the others of 2.14 that have an older name
     * call the function with that name. */
    virtual c10::intrusive_ptr<c10d::Work> gather_single(at::Tensor &output, at::Tensor &input,
                                                         const c10d::GatherOptions &options = {}) = 0;

    /* Not virtual any more in later versions. */
    bool supportsSplitting() const { return true; }
    bool supportsCoalescing() const { return true; }
    bool supportsShrinking() const { return true; }
};

#define COLL_TORCH_TEXT_(x) #x
#define COLL_TORCH_TEXT(x) COLL_TORCH_TEXT_(x)
#define COLL_TORCH_MINOR COLL_TORCH_TEXT(TORCH_VERSION_MAJOR) "." COLL_TORCH_TEXT(TORCH_VERSION_MINOR)

} // namespace coll_torch

#endif
