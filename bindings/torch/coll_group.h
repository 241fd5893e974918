/* coll_group.h - a process group of torch.distributed over this library.
 *
 * Each group has its own communicator, which one thread uses: it starts the calls in the order in which the program has
 * made them, and ends each when the library has.  Between them it sleeps, until there is a new call or the library's descriptor
 * (coll_fd) says that something has ended.
 */
#ifndef COLL_TORCH_GROUP_H
#define COLL_TORCH_GROUP_H

#include "coll_work.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <optional>
#include <set>
#include <shared_mutex>
#include <thread>

#include <unistd.h>

namespace coll_torch {

using Handle = c10::intrusive_ptr<Work>;
using Begun = c10::intrusive_ptr<c10d::Work>;
using Lists = std::vector<Tensors>;

struct Settings {
    c10::intrusive_ptr<c10d::Store> store;
    int rank, size;
    Milliseconds timeout;
    std::string name;                             /* distinguishes groups that connect at one address                     */
    std::string host;                             /* where rank 0 listens; "*": the library knows; "": its environment
                                                     tells all ranks, and the store is not used                        */
    bool is_alone = false;                        /* it has no other ranks before reconnect                            */
};

/* Set when the program ends.  A thread that is connecting then does not return to Python, which has no place for it any more. */
extern std::atomic<bool> interpreter_ends;

/* How a sum goes over the wire (coll_call.wire, ...). */
struct Wire {
    coll_type type = 0;
    unsigned flags = 0;
    uint64_t seed = 0;
    at::Tensor residual;
};

/* The leaves of this rank, added up (Leaves in coll.h). */
class LeafSum {
public:
    LeafSum(const at::Tensor &like, int64_t first);
    ~LeafSum();
    LeafSum(const LeafSum &) = delete;
    LeafSum &operator=(const LeafSum &) = delete;
    void restart(int64_t first);
    void add(const at::Tensor &leaf);
    void end(coll_call &call) const;              /* set the call's input */

private:
    const at::ScalarType type;
    const int64_t count;
    coll_sum *sum = nullptr;
};
using LeafSums = std::vector<std::shared_ptr<LeafSum>>;

/* The functions of a program that a group calls, and the operations that have not ended. */
class Hooks {
public:
    /* registerOnCompletionHook: for each operation, one after the other. */
    static void over(const std::shared_ptr<Hooks> &hooks, const std::shared_ptr<Endings> &endings, const Work &work);
    void begun();
    void wait();                                  /* until no operation runs, and the hook has returned */
    void set(std::function<void(std::shared_ptr<c10d::WorkInfo>)> hook);

    /* Those with numbers. */
    using AtFailure = std::function<void()>;
    using AtSuccess = std::function<void(uint64_t key, float milliseconds)>;
    void set(int64_t number, AtFailure hook) { put(at_failure, number, std::move(hook)); }
    void set(int64_t number, AtSuccess hook) { put(at_success, number, std::move(hook)); }
    static void fail(const std::shared_ptr<Hooks> &hooks, const std::shared_ptr<Endings> &endings);
    void succeed(const Work &work) { call(at_success, work.getCompletionKey(), work.milliseconds()); }

    void forget();                                /* all of them: while Python can still free them      */

private:
    template <class Hook> using Table = std::map<int64_t, std::shared_ptr<Hook>>;

    static void serve(const std::shared_ptr<Hooks> &hooks);
    template <class Hook> void put(Table<Hook> &table, int64_t number, Hook hook);
    template <class Hook, class... Arguments> void call(const Table<Hook> &table, const Arguments &...arguments);

    std::mutex mutex;
    std::condition_variable changed;
    std::function<void(std::shared_ptr<c10d::WorkInfo>)> function;
    std::deque<std::shared_ptr<c10d::WorkInfo>> waiting;
    size_t running = 0;
    bool is_serving = false;
    Table<AtFailure> at_failure;
    Table<AtSuccess> at_success;
};

class Group : public Base {
public:
    explicit Group(const Settings &settings);
    ~Group() override;

    const std::string getBackendName() const override { return "coll"; }
    c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
    void setTimeout(Milliseconds timeout) override;
    c10d::ErrorType getError() override { return error; }

    Begun broadcast(Tensors &tensors, const c10d::BroadcastOptions &options = {}) override;
    Begun allreduce(Tensors &tensors, const c10d::AllreduceOptions &options = {}) override;
    Begun allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options = {}) override;
    Begun reduce(Tensors &tensors, const c10d::ReduceOptions &options = {}) override;
    Begun allgather(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options = {}) override;
    Begun _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options = {}) override;
    Begun allgather_coalesced(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options = {}) override;
    Begun allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::AllgatherOptions &options = {}) override;
    Begun gather(Lists &outputs, Tensors &inputs, const c10d::GatherOptions &options = {}) override;
    Begun gather_single(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &options = {}) override;
    Begun scatter(Tensors &outputs, Lists &inputs, const c10d::ScatterOptions &options = {}) override;
    Begun reduce_scatter(Tensors &outputs, Lists &inputs, const c10d::ReduceScatterOptions &options = {}) override;
    Begun _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &options = {}) override;
    Begun reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::ReduceScatterOptions &options = {}) override;
    Begun alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                        std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options = {}) override;
    Begun alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options = {}) override;
    Begun send(Tensors &tensors, int peer, int tag) override;
    Begun recv(Tensors &tensors, int peer, int tag) override;
    Begun recvAnysource(Tensors &tensors, int tag) override;
    Begun barrier(const c10d::BarrierOptions &options = {}) override;
    void monitoredBarrier(const c10d::BarrierOptions &options = {}, bool wait_all_ranks = false) override;
    Begun allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options = {}) override;

    void setSequenceNumberForGroup() override {}  /* every rank counts from 0 */
    uint64_t getSequenceNumberForGroup() override { return made; }
    void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) override;
    void waitForPendingWorks() override { hooks->wait(); }
    void set_failure_hook(int64_t number, Hooks::AtFailure hook) override { hooks->set(number, std::move(hook)); }
    void set_success_hook(int64_t number, Hooks::AtSuccess hook) override { hooks->set(number, std::move(hook)); }
    void enableCollectivesTiming() override { is_timing = true; }           /* of operations that begin from now on */

    /* What this thread begins until endCoalescing is one operation. */
    void startCoalescing() override;
    Begun endCoalescing() override;

    /* A group of some of these ranks, or of ranks of two groups, which connects through the store. */
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &options) override;
    c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store> &store,
                                            const c10::intrusive_ptr<Options> &options, const int &rank,
                                            const int &size) override;

    /* The group without some ranks, which need not be there; the others connect through the store of this group. */
    c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t> &excluded, int flags,
                                             const c10::intrusive_ptr<Options> &options) override;

    /* The same for a group that stays the object it is, in which ranks may be new: in 2.14 and later, reconfigure.  `handles` are
     * those of the ranks, in their order.  Those of the old group that are not among them need not call it.  What runs still is
     * finished or ends as in the destructor, in half of the limit; after abort it ends at once.  If it fails, the group is
     * connected to no one, and reconnect can be called again, with another uuid. */
    std::string handle() const override { return handle_; }
    Begun reconnect(int64_t uuid, const std::vector<std::string> &handles, std::optional<Milliseconds> limit) override;

    void abort() override { end_on_purpose("rank " + std::to_string(rank_) + " has aborted the process group"); }
    void shutdown() override { close(); }

    /* allreduce whose messages have another type: the buffers are of 16 to 64 bits, the wire of as many or fewer. */
    Begun allreduce_wire(at::Tensor &tensor, const c10d::ReduceOp &op, const Wire &wire);

    /* The sums of the leaves of all ranks, or their means, in one call.  Sums must stay as they are until it is over. */
    Begun allreduce_leaves(const LeafSums &sums, const Tensors &results, bool average);

    void end_on_purpose(const std::string &why);  /* coll_abort: every rank's operations end with this sentence */
    void close();                                 /* end what runs, and leave; the destructor does it too       */
    std::shared_ptr<Hooks> its_hooks() const { return hooks; }

protected:
    /* A group like this one, of the module's own class. */
    virtual c10::intrusive_ptr<c10d::Backend> other(const Settings &settings) const = 0;

private:
    Handle make(c10d::OpType type, const char *title, Tensors inputs, std::vector<Tensors> outputs);
    Handle begin(const Handle &work, coll_kind kind, Milliseconds timeout);
    Handle gather_block(at::Tensor &output, at::Tensor &input, Milliseconds timeout);
    Handle reduce_block(at::Tensor &output, at::Tensor &input, const c10d::ReduceOp &op, Milliseconds timeout);
    Milliseconds timeout() const { return Milliseconds(timeout_ms); }
    c10::intrusive_ptr<c10d::Backend> another(const c10::intrusive_ptr<c10d::Store> &store,
                                              const c10::intrusive_ptr<Options> &options, int rank, int size) const;
    void note(coll_status status);
    Begun receive(Tensors &tensors, int peer, int tag, c10d::OpType type, const char *title);
    void look_at(const char *title, const Tensors &tensors) const;
    void look_at_one(const char *title, const Tensors &tensors) const;
    void look_at_root(const char *title, int64_t root) const;
    void leave(Milliseconds limit);
    void run();
    bool take();
    bool end_those_that_are_over();
    bool may_leave() const;
    void sleep();
    void wake();

    std::atomic<int64_t> timeout_ms;
    const c10::intrusive_ptr<Options> options_;
    const c10::intrusive_ptr<c10d::Store> root_store;
    c10::intrusive_ptr<c10d::Store> store_;       /* a part of that for these members            */
    const std::string host_, handle_;
    const std::shared_ptr<Endings> endings = Endings::make();
    const std::shared_ptr<Hooks> hooks = std::make_shared<Hooks>();
    std::atomic<uint64_t> made{ 0 };
    std::atomic<bool> is_timing{ false };
    std::atomic<c10d::ErrorType> error{ c10d::ErrorType::SUCCESS };
    uint64_t monitored = 0;

    std::timed_mutex reconnecting;                /* one thread at a time                        */
    std::set<int64_t> uuids;                      /* that were used                              */
    using SameMembers = std::shared_lock<std::shared_mutex>;
    std::shared_mutex members;                    /* held by what reads rank and size, until it has begun an operation */

    std::mutex mutex;                             /* of the next eight */
    coll_comm *comm = nullptr;
    std::deque<Handle> queue;
    bool leaving = false, closed = false;         /* the thread is to end; and no other follows  */
    Clock::time_point leave_by;
    uint64_t messages = 0;
    std::thread::id coalescing;                   /* the thread that has called startCoalescing, or none */
    std::vector<Handle> coalesced;

    const pid_t owner;                            /* a forked child, such as a worker of a DataLoader, has no threads of ours */
    std::vector<Handle> running;                  /* of the thread, as the next two */
    std::deque<Handle> waiting;                   /* behind `chain`, to keep the order */
    Handle chain;                                 /* an operation that has calls left to start */
    int doorbell = -1;                            /* an eventfd: there is something to do for the thread */
    std::mutex runner_mutex;
    std::thread runner;
};

} // namespace coll_torch

#endif
