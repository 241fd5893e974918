/* coll_version.h - what depends on the version of PyTorch, and nothing else does: 2.13 and later. */
#ifndef COLL_TORCH_VERSION_H
#define COLL_TORCH_VERSION_H

#include <torch/version.h>

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13)
#error "the back end coll requires PyTorch 2.13 or later"
#endif

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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

    /* A group whose members change (reconfigure, from 2.14 on).  Its rank is the place of its own handle.  Without a limit: that
     * of the group. */
    virtual std::string handle() const = 0;
    virtual c10::intrusive_ptr<c10d::Work> reconnect(int64_t uuid, const std::vector<std::string> &handles,
                                                     std::optional<std::chrono::milliseconds> limit) = 0;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsReconfigure() const override { return true; }
    c10d::ReconfigureHandle get_reconfigure_handle() const override { return handle(); }
    c10::intrusive_ptr<c10d::Work> reconfigure(const c10d::ReconfigureOptions &options) override
    {
        std::vector<std::string> handles;

        std::visit([&](const auto &some) { handles.assign(some.begin(), some.end()); }, options.handles);
        if (!std::holds_alternative<std::vector<std::string>>(options.handles)) std::sort(handles.begin(), handles.end());
        return reconnect(options.uuid, handles, options.timeout);
    }

protected:
    void renumber(int rank, int size) { rank_ = rank, size_ = size; }

public:
#else
    void renumber(int, int) { TORCH_CHECK(false, "the members of a group can change from PyTorch 2.14 on"); }
#endif

    /* Hooks before a failure ends the group (from 2.14 on), and when an operation has ended well (from 2.15 on), which torch's
     * flight recorder uses.  An empty function takes the one with this number away. */
    virtual void set_failure_hook(int64_t number, std::function<void()> hook) = 0;
    virtual void set_success_hook(int64_t number, std::function<void(uint64_t key, float milliseconds)> hook) = 0;
#ifdef C10D_BACKEND_HAS_HOOKS
    void registerAbortHook(int64_t number, c10d::AbortHook hook) override { set_failure_hook(number, std::move(hook)); }
    void unregisterAbortHook(int64_t number) override { set_failure_hook(number, nullptr); }
#endif
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
    void registerCompletionHook(int64_t number, c10d::CompletionHook hook) override
    {
        set_success_hook(number, [hook](uint64_t key, float milliseconds) { hook({ key, milliseconds }); });
    }
    void unregisterCompletionHook(int64_t number) override { set_success_hook(number, nullptr); }
#endif

    /* Virtual in some versions. */
    bool supportsSplitting() const { return true; }
    bool supportsCoalescing() const { return true; }
    bool supportsShrinking() const { return true; }
    bool supportsAbortHooks() const { return true; }
    bool supportsCompletionHooks() const { return true; }
};

/* The base of an operation. */
class BaseWork : public c10d::Work {
public:
    using c10d::Work::Work;

    virtual uint64_t getCompletionKey() const = 0; /* from 2.15 on it overrides that of c10d::Work: no two have the same */
};

#define COLL_TORCH_TEXT_(x) #x
#define COLL_TORCH_TEXT(x) COLL_TORCH_TEXT_(x)
#define COLL_TORCH_MINOR COLL_TORCH_TEXT(TORCH_VERSION_MAJOR) "." COLL_TORCH_TEXT(TORCH_VERSION_MINOR)

} // namespace coll_torch

#endif
