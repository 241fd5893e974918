#include "coll_work.h"

#include <ATen/core/grad_mode.h>

#include <cstring>
#include <thread>

namespace coll_torch {

void Endings::hand(const std::shared_ptr<Endings> &to, std::function<void()> ending)
{
    const std::lock_guard<std::mutex> lock(to->mutex);

    to->waiting.push_back(std::move(ending));
    if (to->waiting.size() > to->idle) std::thread(serve, to).detach();
    else to->changed.notify_one();
}

void Endings::close()
{
    const std::lock_guard<std::mutex> lock(mutex);

    closed = true;
    changed.notify_all();
}

void Endings::serve(std::shared_ptr<Endings> endings)
{
    std::unique_lock<std::mutex> lock(endings->mutex);

    for (;;) {
        while (!endings->waiting.empty()) {
            const std::function<void()> ending = std::move(endings->waiting.front());
            endings->waiting.erase(endings->waiting.begin());
            lock.unlock();
            ending();
            lock.lock();
        }
        if (endings->closed) return;
        endings->idle++;
        endings->changed.wait(lock, [&] { return endings->closed || !endings->waiting.empty(); });
        endings->idle--;
    }
}

coll_type type_of(const at::Tensor &tensor)
{
    switch (tensor.scalar_type()) {
    case at::kByte: return COLL_U8;
    case at::kChar: return COLL_I8;
    case at::kShort: return COLL_I16;
    case at::kInt: return COLL_I32;
    case at::kLong: return COLL_I64;
    case at::kHalf: return COLL_F16;
    case at::kBFloat16: return COLL_BF16;
    case at::kFloat: return COLL_F32;
    case at::kDouble: return COLL_F64;
    case at::kBool: return COLL_BOOL;
    case at::kComplexFloat: return COLL_C64;
    case at::kComplexDouble: return COLL_C128;
    default: return COLL_BLOB(static_cast<long long>(tensor.element_size()));
    }
}

Work::Work(int rank, c10d::OpType type, const char *name, Tensors inputs, std::vector<Tensors> results,
           std::shared_ptr<Endings> threads)
    : c10d::Work(rank, type, name, std::move(inputs)), title(name), outputs(std::move(results)), endings(std::move(threads))
{
}

Work::~Work()
{
    coll_request_free(request);
}

/* ---- tensors in one piece ---- */

static bool is_plain(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

static at::Tensor place_like(const at::Tensor &tensor)
{
    return is_plain(tensor) ? tensor : at::empty(tensor.sizes(), tensor.options());
}

at::Tensor Work::reads(const at::Tensor &tensor)
{
    kept.push_back(is_plain(tensor) ? tensor : place_like(tensor).copy_(tensor));
    return kept.back();
}

at::Tensor Work::writes(const at::Tensor &tensor)
{
    const at::Tensor place = place_like(tensor);

    kept.push_back(place);
    if (!place.is_same(tensor)) copies(tensor, place);
    return place;
}

at::Tensor Work::changes(const at::Tensor &tensor)
{
    const at::Tensor place = writes(tensor);

    if (!place.is_same(tensor)) place.copy_(tensor);
    return place;
}

/* Do they lie one behind the other already, as the parts of a tensor that was cut do? */
static bool adjoin(const Tensors &tensors)
{
    const char *next = static_cast<const char *>(tensors[0].data_ptr());

    for (const at::Tensor &one : tensors) {
        if (!is_plain(one) || one.data_ptr() != next || !one.storage().is_alias_of(tensors[0].storage())) return false;
        next += one.nbytes();
    }
    return true;
}

static int64_t elements_of(const Tensors &tensors)
{
    int64_t sum = 0;

    for (const at::Tensor &one : tensors) sum += one.numel();
    return sum;
}

static at::Tensor place_for(const Tensors &tensors)
{
    const int64_t count = elements_of(tensors);

    return adjoin(tensors) ? tensors[0].as_strided({ count }, { 1 }) : at::empty({ count }, tensors[0].options());
}

at::Tensor Work::packs(const Tensors &tensors)
{
    const at::Tensor place = place_for(tensors);

    kept.push_back(place);
    if (adjoin(tensors)) return place;
    int64_t at = 0;
    for (const at::Tensor &one : tensors) {
        place.narrow(0, at, one.numel()).view(one.sizes()).copy_(one);
        at += one.numel();
    }
    return place;
}

at::Tensor Work::spreads(const Tensors &tensors)
{
    const at::Tensor place = place_for(tensors);

    kept.push_back(place);
    if (adjoin(tensors)) return place;
    afterwards.emplace_back([tensors, place] {
        int64_t at = 0;
        for (const at::Tensor &one : tensors) {
            one.copy_(place.narrow(0, at, one.numel()).view(one.sizes()));
            at += one.numel();
        }
    });
    return place;
}

void Work::copies(const at::Tensor &to, const at::Tensor &from)
{
    afterwards.emplace_back([to, from] { to.copy_(from); });
}

/* ---- its life ---- */

void Work::start(coll_comm *comm)
{
    if (!send_counts.empty()) call.send_counts = send_counts.data();
    if (!recv_counts.empty()) call.recv_counts = recv_counts.data();
    if (!list.empty()) call.list = list.data(), call.list_count = static_cast<int>(list.size());
    const coll_status status = coll_start(comm, &call, &request);
    if (status < 0) end(coll_error(comm));
}

/* The call is over, and another one follows. */
void Work::go_on(coll_comm *comm)
{
    const std::function<void()> fill = std::move(following.front());
    const at::NoGradGuard no_grad;

    following.pop_front();
    coll_request_free(request);
    request = nullptr;
    try {
        fill();
    } catch (...) {
        return end(std::current_exception());
    }
    start(comm);
}

bool Work::is_over(coll_comm *comm)
{
    if (ended) return true;
    const coll_status status = coll_test(request);
    if (status == COLL_PENDING) return false;
    const std::string timed_out = status == COLL_ERR_TIMEOUT ? title + " ended by a timeout - " : "";
    if (status < 0) return end(timed_out + coll_error(comm)), true;
    if (has_more()) return go_on(comm), ended;
    if (is_receive()) coll_received(request, &source, nullptr, nullptr);
    end(std::exception_ptr());
    return true;
}

void Work::end(const std::string &why)
{
    end(std::make_exception_ptr(std::runtime_error(why)));
}

void Work::end(std::exception_ptr wrong)
{
    const at::NoGradGuard no_grad;

    try {
        if (!wrong)
            for (const auto &step : afterwards) step();
    } catch (...) {
        wrong = std::current_exception();
    }
    kept.clear(), afterwards.clear(), following.clear();
    const std::lock_guard<std::mutex> lock(future_mutex); /* after a wait, a call that gets the future finds it done      */
    finish(wrong);
    ended = true;
    if (future) {
        auto self = c10::intrusive_ptr<Work>::reclaim_copy(this);
        Endings::hand(endings, [self] { self->settle(self->future); });
    }
}

bool Work::wait(Milliseconds timeout)
{
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_done = [this] { return completed_; };

    if (timeout <= kNoTimeout) cv_.wait(lock, is_done);
    else if (!cv_.wait_for(lock, timeout, is_done))
        throw std::runtime_error(title + " is not over after " + std::to_string(timeout.count()) + " ms; it goes on");
    if (exception_) std::rethrow_exception(exception_);
    return true;
}

Tensors Work::result()
{
    Tensors all;

    for (const Tensors &some : outputs) all.insert(all.end(), some.begin(), some.end());
    return all;
}

/* The value has the form of torch's own back ends: a list of tensors, or of lists where there are several. */
void Work::settle(const c10::intrusive_ptr<c10::ivalue::Future> &which)
{
    if (exception()) which->setError(exception());
    else if (outputs.empty()) which->markCompleted(c10::IValue(Tensors()));
    else if (outputs.size() == 1) which->markCompleted(c10::IValue(outputs[0]));
    else which->markCompleted(c10::IValue(outputs));
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    const std::lock_guard<std::mutex> lock(future_mutex);

    if (!future) {
        const auto tensors = c10::ListType::create(c10::TensorType::get());
        future = c10::make_intrusive<c10::ivalue::Future>(outputs.size() > 1 ? c10::ListType::create(tensors) : tensors);
        if (ended) settle(future);
    }
    return future;
}

} // namespace coll_torch
