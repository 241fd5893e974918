#include "coll_work.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <thread>

namespace coll_torch {

std::mutex Endings::all_mutex;
std::vector<std::weak_ptr<Endings>> Endings::all;

std::shared_ptr<Endings> Endings::make()
{
    const auto made = std::make_shared<Endings>();
    const std::lock_guard<std::mutex> lock(all_mutex);

    all.erase(std::remove_if(all.begin(), all.end(), [](const auto &one) { return one.expired(); }), all.end());
    all.push_back(made);
    return made;
}

void Endings::hand(const std::shared_ptr<Endings> &to, std::function<void()> ending)
{
    const std::lock_guard<std::mutex> lock(to->mutex);

    to->waiting.push_back(std::move(ending));
    if (to->waiting.size() > to->idle) std::thread(serve, to).detach();
    else to->changed.notify_one();
}

std::exception_ptr failure(const std::string &why)
{
    return std::make_exception_ptr(c10::DistBackendError({ __func__, __FILE__, static_cast<uint32_t>(__LINE__) }, why));
}

std::vector<std::shared_ptr<Endings>> Endings::all_of_them()
{
    std::vector<std::shared_ptr<Endings>> found;
    const std::lock_guard<std::mutex> lock(all_mutex);

    for (const auto &one : all)
        if (auto there = one.lock()) found.push_back(std::move(there));
    return found;
}

void Endings::finish_all(Milliseconds limit)
{
    const auto deadline = Clock::now() + limit;

    for (const auto &one : all_of_them()) {
        std::unique_lock<std::mutex> lock(one->mutex);
        one->finished.wait_until(lock, deadline, [&] { return one->waiting.empty() && one->busy == 0; });
    }
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
            endings->busy++;
            lock.unlock();
            ending();
            lock.lock();
            endings->busy--;
        }
        endings->finished.notify_all();
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
    case at::kUInt16: return COLL_U16;
    case at::kUInt32: return COLL_U32;
    case at::kUInt64: return COLL_U64;
    case at::kFloat8_e4m3fn: return COLL_F8E4M3;
    case at::kFloat8_e5m2: return COLL_F8E5M2;
    case at::kBool: return COLL_BOOL;
    case at::kComplexFloat: return COLL_C64;
    case at::kComplexDouble: return COLL_C128;
    default: return COLL_BLOB(static_cast<long long>(tensor.element_size()));
    }
}

static std::atomic<uint64_t> keys{ 0 };

Work::Work(int rank, c10d::OpType type, const char *name, Tensors inputs, std::vector<Tensors> results,
           std::shared_ptr<Endings> threads)
    : BaseWork(rank, type, name, std::move(inputs)), key(++keys), title(name), outputs(std::move(results)),
      endings(std::move(threads))
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
    if (started == Clock::time_point()) started = Clock::now();
    status = coll_start(comm, &call, &request);
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
    status = coll_test(request);
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
    end(failure(why));
}

void Work::end(std::exception_ptr wrong)
{
    const at::NoGradGuard no_grad;

    if (ended) return;
    try {
        if (!wrong)
            for (const auto &step : afterwards) step();
    } catch (...) {
        wrong = std::current_exception();
    }
    kept.clear(), afterwards.clear(), following.clear();
    finished = Clock::now();
    if (over) over(*this, !wrong);
    over = nullptr;
    const std::lock_guard<std::mutex> lock(future_mutex); /* after a wait, a call that gets the future finds it done      */
    finish(wrong);
    ended = true;
    for (const auto &one : { future, future_result })
        if (one) {
            auto self = c10::intrusive_ptr<Work>::reclaim_copy(this);
            Endings::hand(endings, [self, one] { self->settle(one); });
        }
}

bool Work::wait(Milliseconds timeout)
{
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_done = [this] { return completed_; };

    if (timeout <= kNoTimeout) cv_.wait(lock, is_done);
    else if (!cv_.wait_for(lock, timeout, is_done))
        std::rethrow_exception(
            failure(title + " is not finished after " + std::to_string(timeout.count()) + " ms; it continues"));
    if (exception_) std::rethrow_exception(exception_);
    lock.unlock();
    synchronize();                                /* torch does not list it as unfinished any more */
    return true;
}

Tensors Work::result()
{
    Tensors all;

    for (const Tensors &some : outputs) all.insert(all.end(), some.begin(), some.end());
    return all;
}

float Work::getDuration() const
{
    const std::lock_guard<std::mutex> lock(mutex_);

    TORCH_CHECK(is_timed, title, " has no duration: it began before enableCollectivesTiming");
    TORCH_CHECK(completed_, title, " is not finished: it has no duration");
    return milliseconds();
}

float Work::milliseconds() const
{
    return started == Clock::time_point() ? 0 : std::chrono::duration<float, std::milli>(finished - started).count();
}

std::shared_ptr<c10d::WorkInfo> Work::info() const
{
    const Clock::time_point began = started == Clock::time_point() ? finished : started;
    const std::chrono::duration<float> lasted(finished - began);

    return std::make_shared<c10d::WorkInfo>(retrieveOpType(), number, began, finished, lasted);
}

/* The value has the form of torch's own back ends: a list of tensors, or of lists if there are several; of getFutureResult a
 * WorkResult. */
void Work::settle(const c10::intrusive_ptr<c10::ivalue::Future> &which)
{
    if (which == future_result)
        which->markCompleted(static_cast<int64_t>(!exception()                 ? c10d::WorkResult::SUCCESS
                                                  : status == COLL_ERR_TIMEOUT ? c10d::WorkResult::TIMEOUT
                                                                               : c10d::WorkResult::COMM_ERROR));
    else if (exception()) which->setError(exception());
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

c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult()
{
    const std::lock_guard<std::mutex> lock(future_mutex);

    if (!future_result) {
        future_result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
        if (ended) settle(future_result);
    }
    return future_result;
}

/* ---- several as one ---- */

Several::Several(int rank, c10d::OpType type, std::vector<c10::intrusive_ptr<coll_torch::Work>> works)
    : BaseWork(rank, type), parts(std::move(works))
{
}

bool Several::isCompleted()
{
    return std::all_of(parts.begin(), parts.end(), [](const auto &one) { return one->isCompleted(); });
}

bool Several::isSuccess() const
{
    return std::all_of(parts.begin(), parts.end(), [](const auto &one) { return one->isSuccess(); });
}

std::exception_ptr Several::exception() const
{
    for (const auto &one : parts)
        if (const std::exception_ptr wrong = one->exception()) return wrong;
    return nullptr;
}

bool Several::wait(Milliseconds timeout)
{
    const Clock::time_point deadline = Clock::now() + timeout;

    for (const auto &one : parts) {
        const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
        one->wait(timeout <= kNoTimeout ? kNoTimeout : std::max(left, Milliseconds(1)));
    }
    synchronize();
    return true;
}

Tensors Several::result()
{
    Tensors all;

    for (const auto &one : parts)
        for (const at::Tensor &tensor : one->result()) all.push_back(tensor);
    return all;
}

float Several::getDuration() const
{
    float longest = 0;

    for (const auto &one : parts) longest = std::max(longest, one->getDuration());
    return longest;
}

c10::intrusive_ptr<c10::ivalue::Future> Several::getFuture()
{
    const auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    const auto self = c10::intrusive_ptr<Several>::reclaim_copy(this);
    const auto left = std::make_shared<std::atomic<size_t>>(parts.size());

    if (parts.empty()) future->markCompleted(c10::IValue(Tensors()));
    for (const auto &one : parts)
        one->getFuture()->addCallback([future, self, left](c10::ivalue::Future &) {
            if (--*left) return;
            if (const std::exception_ptr wrong = self->exception()) future->setError(wrong);
            else future->markCompleted(c10::IValue(self->result()));
        });
    return future;
}

} // namespace coll_torch
