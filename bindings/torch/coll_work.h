/* coll_work.h - one operation of a process group: the call, what it keeps alive, and how it ends. */
#ifndef COLL_TORCH_WORK_H
#define COLL_TORCH_WORK_H

#include "coll_version.h"

#include "coll.h"

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace coll_torch {

using Tensors = std::vector<at::Tensor>;
using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/* In Python: torch.distributed.DistBackendError, which is a RuntimeError. */
std::exception_ptr failure(const std::string &why);

/* Threads on which futures end, and on which hooks are called.  What a program has chained to a future may wait for another one.
 * So each is given to a thread that has nothing else to do, and to a new one if there is none. */
class Endings {
public:
    static std::shared_ptr<Endings> make();
    static void hand(const std::shared_ptr<Endings> &to, std::function<void()> ending);
    void close();                                 /* threads that have nothing to do end                          */
    static void finish_all(Milliseconds limit);   /* wait until all that was handed has run, also of groups that are gone */

private:
    static void serve(std::shared_ptr<Endings> endings);
    static std::vector<std::shared_ptr<Endings>> all_of_them();

    static std::mutex all_mutex;
    static std::vector<std::weak_ptr<Endings>> all;

    std::mutex mutex;
    std::condition_variable changed, finished;
    std::vector<std::function<void()>> waiting;
    size_t idle = 0, busy = 0;
    bool closed = false;
};

class Work : public BaseWork {
public:
    Work(int rank, c10d::OpType type, const char *title, Tensors inputs, std::vector<Tensors> outputs,
         std::shared_ptr<Endings> endings);
    ~Work() override;

    bool wait(Milliseconds timeout = kNoTimeout) override;
    int sourceRank() const override { return source; }
    Tensors result() override;
    uint64_t getSequencenumber() const override { return number; }
    uint64_t getCompletionKey() const override { return key; }
    float getDuration() const override;           /* milliseconds, from the first call until the last has ended */
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

    /* Tensors as the library needs them, contiguous.  `reads` is the tensor or a copy; `writes` a place whose contents are in
     * the tensor when the operation ends; `changes` is both.  `packs` and `spreads` do so for many tensors. */
    at::Tensor reads(const at::Tensor &tensor);
    at::Tensor writes(const at::Tensor &tensor);
    at::Tensor changes(const at::Tensor &tensor);
    at::Tensor packs(const Tensors &tensors);
    at::Tensor spreads(const Tensors &tensors);

    /* When all is over, `to` becomes what is in `from`. */
    void copies(const at::Tensor &to, const at::Tensor &from);

    /* When all is over, on the thread of the group. */
    void ends_with(std::function<void()> step) { afterwards.push_back(std::move(step)); }

    /* A further call, which needs the results of those before: `fill` writes it into `call` when they have ended. */
    void follows(std::function<void()> fill) { following.push_back(std::move(fill)); }

    void start(coll_comm *comm);                  /* the next four: on the thread of the group  */
    bool is_over(coll_comm *comm);                /* and if so, it has been ended               */
    void end(const std::string &why);             /* with an exception of these words           */
    bool has_more() const { return !following.empty(); }          /* calls to start             */

    bool is_receive() const { return call.kind == COLL_RECV; }
    bool is_message() const { return is_receive() || call.kind == COLL_SEND; }

    float milliseconds() const;                   /* that it took; of one that has ended, as the next */
    std::shared_ptr<c10d::WorkInfo> info() const;

    coll_call call{};
    std::vector<size_t> send_counts, recv_counts;
    std::vector<coll_list_item> list;
    uint64_t number = 0;                          /* of its collectives or its messages, from 1  */
    bool is_timed = false;                        /* it has a duration                           */
    coll_status status = COLL_OK;                 /* of the thread of the group                  */
    std::function<void(const Work &, bool is_well)> over;          /* called before a program can see the end */

private:
    void go_on(coll_comm *comm);
    void end(std::exception_ptr wrong);           /* NULL: well */
    void settle(const c10::intrusive_ptr<c10::ivalue::Future> &which);

    const uint64_t key;
    const std::string title;
    const std::vector<Tensors> outputs;
    std::shared_ptr<Endings> endings;
    Tensors kept;
    std::vector<std::function<void()>> afterwards;
    std::deque<std::function<void()>> following;
    coll_request *request = nullptr;
    Clock::time_point started, finished;
    int source = -1;
    std::mutex future_mutex;
    c10::intrusive_ptr<c10::ivalue::Future> future, future_result;
    bool ended = false;
};

/* Several operations as one, which is over when all of them are. */
class Several : public BaseWork {
public:
    Several(int rank, c10d::OpType type, std::vector<c10::intrusive_ptr<coll_torch::Work>> works);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    bool wait(Milliseconds timeout = kNoTimeout) override;
    Tensors result() override;
    uint64_t getSequencenumber() const override { return parts.empty() ? 0 : parts.back()->getSequencenumber(); }
    uint64_t getCompletionKey() const override { return parts.empty() ? 0 : parts.back()->getCompletionKey(); } /* of the last */
    float getDuration() const override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

private:
    const std::vector<c10::intrusive_ptr<coll_torch::Work>> parts;
};

/* What the library calls the elements of this tensor; those that it only moves are opaque. */
coll_type type_of(const at::Tensor &tensor);

} // namespace coll_torch

#endif
