#include "coll_group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <climits>
#include <iomanip>
#include <random>
#include <sstream>
#include <utility>

namespace coll_torch {

/* ---- start ---- */

static int as_ms(Milliseconds time)
{
    return static_cast<int>(std::min<int64_t>(std::max<int64_t>(time.count(), 1), INT_MAX));
}

/* The first line; below it there is a stack of calls. */
static std::string first_line(const std::exception &wrong)
{
    const std::string text = wrong.what();

    return text.substr(0, text.find('\n'));
}

static void put(c10d::Store &store, const std::string &key, const std::string &text)
{
    try {
        store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
    } catch (const std::exception &wrong) {
        std::rethrow_exception(failure("the process group cannot write into the store: " + first_line(wrong)));
    }
}

static std::string look_up(c10d::Store &store, const std::string &key)
{
    const std::vector<uint8_t> text = store.get(key);

    return std::string(text.begin(), text.end());
}

static const char *const address_key = "coll/address";
static const char *const failure_mark = "!";      /* before the sentence of a rank 0 that could not listen */

namespace {
struct Announcement {
    c10d::Store *store;
    bool is_made;
    std::exception_ptr wrong;
};
} // namespace

static void announce(void *context, const char *address)
{
    Announcement *const it = static_cast<Announcement *>(context);

    try {                                         /* an exception must not pass through the library */
        put(*it->store, address_key, address);
        it->is_made = true;
    } catch (...) {
        it->wrong = std::current_exception();
    }
}

std::atomic<bool> interpreter_ends{ false };

/* A thread that is connecting as the interpreter ends must not return to it: that would end the program with std::terminate. */
namespace {
class Connecting {
public:
    void stay_if_it_ended() const
    {
        while (interpreter_ends && !ended_before) pause();
    }

private:
    const bool ended_before = interpreter_ends;
};
} // namespace

/* While one thread waits in a TCPStore, no other can use that object: the wait is given a connection of its own. */
static void await(const c10::intrusive_ptr<c10d::Store> &store, const std::string &key, Milliseconds limit)
{
    auto *const part = dynamic_cast<c10d::PrefixStore *>(store.get());
    const auto whole = part ? part->getUnderlyingNonPrefixStore() : store;
    const bool is_tcp = dynamic_cast<c10d::TCPStore *>(whole.get());

    if (!store->check({ key })) (is_tcp ? store->clone() : store)->wait({ key }, limit);
}

static std::string address_of_rank_0(const Settings &settings, const Connecting &connecting)
{
    const auto deadline = Clock::now() + settings.timeout;

    try {
        await(settings.store, address_key, settings.timeout);
    } catch (const std::exception &wrong) {
        connecting.stay_if_it_ended();
        const std::string limit = std::to_string(settings.timeout.count());
        std::rethrow_exception(failure(Clock::now() >= deadline
                                           ? "rank 0 has published no address in the store after " + limit + " ms"
                                           : "the address of rank 0 cannot be read from the store: " + first_line(wrong)));
    }
    const std::string address = look_up(*settings.store, address_key);
    if (address.compare(0, 1, failure_mark) == 0) std::rethrow_exception(failure(address.substr(1)));
    return address;
}

/* Rank 0 listens at any port, and publishes its address in the store. */
static coll_comm *meet(const Settings &settings)
{
    const Connecting connecting;
    const auto deadline = Clock::now() + settings.timeout;
    const bool by_store = settings.size > 1 && !settings.host.empty();
    const std::string world = "torch " + settings.name;
    std::string address = (settings.host == "*" ? "" : settings.host) + ":0";
    Announcement announcement{ settings.store.get(), false, nullptr };
    coll_comm *comm = nullptr;
    coll_config config{};

    if (by_store && settings.rank > 0) address = address_of_rank_0(settings, connecting);
    if (by_store && settings.rank == 0) put(*settings.store, "coll/start", ""); /* is the store there? */
    config.rank = settings.rank, config.size = settings.size;
    config.world = world.c_str();
    config.start_timeout_ms = as_ms(std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()));
    config.background = COLL_ON;
    if (by_store) {
        config.address = address.c_str();
        if (settings.rank == 0) config.tcp.listening = announce, config.tcp.listening_context = &announcement;
    }
    const coll_status status = coll_init(&comm, &config);
    connecting.stay_if_it_ended();
    if (announcement.wrong) {
        coll_free(comm);
        std::rethrow_exception(announcement.wrong);
    }
    if (status < 0) {
        const std::string why = coll_error(nullptr);
        if (by_store && settings.rank == 0 && !announcement.is_made) put(*settings.store, address_key, failure_mark + why);
        std::rethrow_exception(failure(why));
    }
    return comm;
}

/* Not the same as that of any other group; in a set, in the order of the ranks. */
static std::string new_handle(int rank)
{
    std::random_device random;
    std::ostringstream text;

    text << "coll/" << std::setw(8) << std::setfill('0') << rank << "/" << getpid() << std::hex;
    for (int i = 0; i < 4; i++) text << "-" << random();
    return text.str();
}

Group::Group(const Settings &settings)
    : Base(settings.rank, settings.size), timeout_ms(settings.timeout.count()),
      options_(c10::make_intrusive<Options>("coll", settings.timeout)), root_store(settings.store), store_(settings.store),
      host_(settings.host), handle_(new_handle(settings.rank)), owner(getpid())
{
    options_->group_name = settings.name;
    if (!settings.is_alone) comm = meet(settings);
    doorbell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (doorbell < 0) {
        coll_free(comm);
        std::rethrow_exception(failure("the process group cannot have a descriptor for its thread (eventfd)"));
    }
    if (comm) runner = std::thread([this] { run(); });
}

Group::~Group()
{
    close();
    ::close(doorbell);
}

/* ---- the thread ---- */

void Group::wake()
{
    const uint64_t one = 1;

    if (write(doorbell, &one, sizeof one) < 0) return; /* the counter is full: it wakes anyway */
}

/* Start the operations that the program has begun since.  The calls of one operation are consecutive on all ranks, so
 * collectives wait for its last one; messages, which have no such order, do not. */
bool Group::take()
{
    const size_t before = running.size();
    {
        const std::lock_guard<std::mutex> lock(mutex);
        waiting.insert(waiting.end(), queue.begin(), queue.end());
        queue.clear();
    }
    for (auto next = waiting.begin(); next != waiting.end();) {
        const Handle work = *next;
        if (chain && !chain->has_more()) chain.reset();
        if (chain && !work->is_message()) {
            ++next;
            continue;
        }
        next = waiting.erase(next);
        work->start(comm);
        running.push_back(work);
        if (work->has_more()) chain = work;
    }
    return running.size() > before;
}

/* The failure of a call that moved nothing leaves the group as it was. */
void Group::note(coll_status status)
{
    if (status >= 0 || status == COLL_ERR_ARGUMENT || status == COLL_ERR_UNSUPPORTED || error != c10d::ErrorType::SUCCESS) return;
    error = status == COLL_ERR_TIMEOUT ? c10d::ErrorType::TIMEOUT
            : status == COLL_ERR_PEER  ? c10d::ErrorType::REMOTE_ERROR
                                       : c10d::ErrorType::COMM_ERROR;
    Hooks::fail(hooks, endings);
}

bool Group::end_those_that_are_over()
{
    const size_t before = running.size();

    note(coll_progress(comm));
    running.erase(std::remove_if(running.begin(), running.end(),
                                 [this](const Handle &one) {
                                     const bool is_over_now = one->is_over(comm);
                                     if (is_over_now) Hooks::over(hooks, endings, *one);
                                     return is_over_now;
                                 }),
                  running.end());
    return running.size() < before;
}

/* What others may need of this rank goes out before it leaves. */
bool Group::may_leave() const
{
    return (waiting.empty() && std::all_of(running.begin(), running.end(), [](const Handle &one) { return one->is_receive(); }))
           || Clock::now() > leave_by;
}

static const std::chrono::microseconds spin_time(50); /* before it sleeps: a short call is over by then */

void Group::sleep()
{
    struct pollfd watched[2] = { { doorbell, POLLIN, 0 }, { coll_fd(comm), POLLIN, 0 } };
    const bool is_known = watched[1].fd >= 0;
    uint64_t rung;

    if (poll(watched, is_known ? 2 : 1, running.empty() ? -1 : is_known ? 100 : 1) < 0) return;
    if (read(doorbell, &rung, sizeof rung) < 0) return;
}

void Group::run()
{
    auto busy_until = Clock::now();
    bool is_leaving = false;

    for (;;) {
        const bool has_ended = end_those_that_are_over(), has_begun = take();
        {
            const std::lock_guard<std::mutex> lock(mutex);
            is_leaving = leaving && queue.empty();
        }
        if (is_leaving && may_leave()) break;
        if (has_begun || has_ended) busy_until = Clock::now() + spin_time;
        else if (!running.empty() && Clock::now() < busy_until) sched_yield();
        else sleep();
    }
    std::unique_lock<std::mutex> lock(mutex);
    coll_comm *const left = comm;
    const std::string end = closed ? "destroyed" : "reconfigured";
    comm = nullptr;
    lock.unlock();
    coll_free(left);
    running.insert(running.end(), waiting.begin(), waiting.end());
    for (const Handle &one : running) {
        one->end("the process group was " + end + " before this operation was finished");
        Hooks::over(hooks, endings, *one);
    }
    running.clear(), waiting.clear(), chain.reset();
}

void Group::end_on_purpose(const std::string &why)
{
    if (getpid() != owner) return;
    const std::lock_guard<std::mutex> lock(mutex);

    if (comm) coll_abort(comm, why.c_str());
    wake();
}

/* With runner_mutex. */
void Group::leave(Milliseconds limit)
{
    {
        const std::lock_guard<std::mutex> lock(mutex);
        leaving = true;
        leave_by = Clock::now() + std::min(limit, Milliseconds(10000));
        wake();
    }
    if (runner.joinable()) runner.join();
}

void Group::close()
{
    if (getpid() != owner) {
        if (runner.joinable()) runner.detach();
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex);
        closed = true;
    }
    const std::lock_guard<std::mutex> of_runner(runner_mutex);
    leave(timeout());
    endings->close();
}

Handle Group::make(c10d::OpType type, const char *title, Tensors inputs, std::vector<Tensors> outputs)
{
    look_at(title, inputs);
    for (const Tensors &some : outputs) look_at(title, some);
    const Handle work = c10::make_intrusive<Work>(rank_, type, title, std::move(inputs), std::move(outputs), endings);
    work->is_timed = is_timing;
    return work;
}

Handle Group::begin(const Handle &work, coll_kind kind, Milliseconds limit)
{
    if (getpid() != owner) std::rethrow_exception(failure("a process group cannot be used in a forked child"));
    const std::lock_guard<std::mutex> lock(mutex);

    if (closed) std::rethrow_exception(failure("the process group has been destroyed"));
    if (leaving || !comm) std::rethrow_exception(failure("the process group is connected to no one; reconfigure connects it"));
    work->call.kind = kind;
    work->call.timeout_ms = as_ms(limit > kNoTimeout ? limit : timeout());
    work->number = work->is_message() ? ++messages : ++made;
    work->over = [this](const Work &one, bool is_well) {
        if (is_well) hooks->succeed(one);
        else note(one.status);
    };
    if (coalescing == std::this_thread::get_id()) coalesced.push_back(work);
    hooks->begun();
    queue.push_back(work);
    wake();
    return work;
}

void Group::startCoalescing()
{
    const std::lock_guard<std::mutex> lock(mutex);

    TORCH_CHECK(coalescing == std::thread::id(), "coll: startCoalescing was called twice without endCoalescing");
    coalescing = std::this_thread::get_id();
}

Begun Group::endCoalescing()
{
    const std::lock_guard<std::mutex> lock(mutex);

    TORCH_CHECK(coalescing == std::this_thread::get_id(), "coll: endCoalescing was called without startCoalescing");
    coalescing = std::thread::id();
    return c10::make_intrusive<Several>(rank_, c10d::OpType::COALESCED, std::exchange(coalesced, {}));
}

void Group::setTimeout(Milliseconds limit)
{
    timeout_ms = limit.count();
    options_->timeout = limit;
}

/* ---- hooks ---- */

void Group::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook)
{
    hooks->set(std::move(hook));                  /* it may hold an object of Python: it is moved, and not copied */
    onCompletionHook_ = [](std::shared_ptr<c10d::WorkInfo>) {};             /* torch reads whether there is one */
}

void Hooks::set(std::function<void(std::shared_ptr<c10d::WorkInfo>)> hook)
{
    const std::lock_guard<std::mutex> lock(mutex);

    TORCH_CHECK(!function, "coll: the process group has a completion hook already");
    function = std::move(hook);
}

template <class Hook> void Hooks::put(Table<Hook> &table, int64_t number, Hook hook)
{
    auto one = hook ? std::make_shared<Hook>(std::move(hook)) : nullptr;    /* the old one is freed without the lock */
    const std::lock_guard<std::mutex> lock(mutex);

    if (one) one.swap(table[number]);
    else if (const auto old = table.find(number); old != table.end()) one.swap(old->second), table.erase(old);
}

/* Without the lock: a hook may take itself away. */
template <class Hook, class... Arguments> void Hooks::call(const Table<Hook> &table, const Arguments &...arguments)
{
    std::vector<std::shared_ptr<Hook>> all;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        for (const auto &one : table) all.push_back(one.second);
    }
    for (const auto &hook : all) {
        try {
            (*hook)(arguments...);
        } catch (const std::exception &wrong) {
            TORCH_WARN("coll: a hook has failed: ", wrong.what());
        }
    }
}

/* On another thread, so that operations end at once; the end of the program waits for it. */
void Hooks::fail(const std::shared_ptr<Hooks> &hooks, const std::shared_ptr<Endings> &endings)
{
    {
        const std::lock_guard<std::mutex> lock(hooks->mutex);
        if (hooks->at_failure.empty()) return;
    }
    Endings::hand(endings, [hooks] { hooks->call(hooks->at_failure); });
}

/* What is taken from the tables is freed without the lock. */
void Hooks::forget()
{
    std::function<void(std::shared_ptr<c10d::WorkInfo>)> hook;
    Table<AtFailure> failures;
    Table<AtSuccess> successes;
    const std::lock_guard<std::mutex> lock(mutex);

    if (!is_serving) function.swap(hook);
    at_failure.swap(failures), at_success.swap(successes);
}

void Hooks::begun()
{
    const std::lock_guard<std::mutex> lock(mutex);

    running++;
}

void Hooks::over(const std::shared_ptr<Hooks> &hooks, const std::shared_ptr<Endings> &endings, const Work &work)
{
    const std::lock_guard<std::mutex> lock(hooks->mutex);

    hooks->running--;
    hooks->changed.notify_all();
    if (!hooks->function) return;
    hooks->waiting.push_back(work.info());
    if (hooks->is_serving) return;
    hooks->is_serving = true;
    Endings::hand(endings, [hooks] { serve(hooks); });
}

void Hooks::serve(const std::shared_ptr<Hooks> &hooks)
{
    std::unique_lock<std::mutex> lock(hooks->mutex);

    while (!hooks->waiting.empty()) {
        const auto info = hooks->waiting.front();
        hooks->waiting.pop_front();
        lock.unlock();
        try {
            hooks->function(info);
        } catch (const std::exception &wrong) {
            TORCH_WARN("coll: the completion hook has failed: ", wrong.what());
        }
        lock.lock();
    }
    hooks->is_serving = false;
    hooks->changed.notify_all();
}

void Hooks::wait()
{
    std::unique_lock<std::mutex> lock(mutex);

    changed.wait(lock, [this] { return running == 0 && !is_serving; });
}

/* ---- groups made from this one ---- */

c10::intrusive_ptr<c10d::Backend> Group::another(const c10::intrusive_ptr<c10d::Store> &store,
                                                 const c10::intrusive_ptr<Options> &options, int rank, int size) const
{
    const std::string name = options && !options->group_name.empty() ? options->group_name : options_->group_name + "/part";

    return other(Settings{ store, rank, size, options ? options->timeout : timeout(), name, host_.empty() ? "*" : host_ });
}

c10::intrusive_ptr<c10d::Backend> Group::split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                               const c10::intrusive_ptr<Options> &options)
{
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);

    if (own == ranks.end()) return nullptr;
    return another(store, options, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()));
}

c10::intrusive_ptr<c10d::Backend> Group::merge(const c10::intrusive_ptr<c10d::Store> &store,
                                               const c10::intrusive_ptr<Options> &options, const int &rank, const int &size)
{
    return another(store, options, rank, size);
}

c10::intrusive_ptr<c10d::Backend> Group::shrink(const std::vector<int64_t> &excluded, int flags,
                                                const c10::intrusive_ptr<Options> &options)
{
    static const int abort_first = 1;             /* torch.distributed.SHRINK_ABORT */
    std::string name = "coll/without";
    int rank = rank_, size = size_;

    for (const int64_t one : excluded) {
        TORCH_CHECK(one >= 0 && one < size_ && one != rank_, "coll: shrink without rank ", one, ": rank ", rank_, " of ", size_,
                    " can exclude the other ranks");
        name += "/" + std::to_string(one);
        rank -= one < rank_;
        size--;
    }
    if (flags & abort_first) abort();
    return another(c10::make_intrusive<c10d::PrefixStore>(name, store_), options, rank, size);
}

Begun Group::reconnect(int64_t uuid, const std::vector<std::string> &handles, std::optional<Milliseconds> given)
{
    const Milliseconds limit = std::max(given.value_or(timeout()), Milliseconds(1));
    const auto deadline = Clock::now() + limit;
    const auto own = std::find(handles.begin(), handles.end(), handle_);

    if (getpid() != owner) std::rethrow_exception(failure("a process group cannot be used in a forked child"));
    const std::unique_lock<std::timed_mutex> one_at_a_time(reconnecting, deadline);
    if (!one_at_a_time) std::rethrow_exception(failure("another thread reconfigures the process group"));
    TORCH_CHECK(own != handles.end(), "coll: reconfigure without the handle of this rank, ", handle_);
    TORCH_CHECK(std::set<std::string>(handles.begin(), handles.end()).size() == handles.size(),
                "coll: reconfigure with a handle twice");
    TORCH_CHECK(uuids.insert(uuid).second, "coll: reconfigure with the uuid ", uuid, ", which was already used");
    {
        const std::lock_guard<std::mutex> of_runner(runner_mutex);
        leave(limit / 2);
        const std::lock_guard<std::mutex> lock(mutex);
        if (closed) std::rethrow_exception(failure("the process group has been destroyed"));
    }
    const std::string part = "reconfigure/" + std::to_string(uuid) + "/" + handles[0];
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    const Settings settings{ c10::make_intrusive<c10d::PrefixStore>(part, root_store),
                             static_cast<int>(own - handles.begin()),
                             static_cast<int>(handles.size()),
                             std::max(left, Milliseconds(1)),
                             options_->group_name + "/" + std::to_string(uuid),
                             host_.empty() ? "*" : host_ };
    coll_comm *const met = meet(settings);
    const std::unique_lock<std::shared_mutex> no_operation(members);
    const std::lock_guard<std::mutex> of_runner(runner_mutex);
    const std::lock_guard<std::mutex> lock(mutex);
    if (closed) {
        coll_free(met);
        std::rethrow_exception(failure("the process group has been destroyed"));
    }
    renumber(settings.rank, settings.size);
    store_ = settings.store;
    made = 0, messages = 0, monitored = 0, error = c10d::ErrorType::SUCCESS;
    comm = met, leaving = false;
    runner = std::thread([this] { run(); });
    return c10::make_intrusive<Several>(rank_, c10d::OpType::UNKNOWN, std::vector<Handle>());
}

/* ---- a barrier that names missing ranks: through the store, so that the communicator survives a late rank ---- */

void Group::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks)
{
    const Milliseconds limit = options.timeout == c10d::kUnsetTimeout ? timeout() : options.timeout;
    const auto deadline = Clock::now() + limit;
    const std::string round = "coll/monitored/" + std::to_string(monitored++) + "/", result = round + "result";
    std::string missing;
    int count = 0;

    if (rank_ > 0) {
        put(*store_, round + std::to_string(rank_), "here");
        /* rank 0 may arrive as late as the limit and wait as long again; that it says so may take a loaded machine a second */
        store_->wait({ result }, std::max(2 * limit, Milliseconds(1)) + Milliseconds(1000));
        const std::string text = look_up(*store_, result);
        if (text == "well") return;
        throw std::runtime_error("Rank " + std::to_string(rank_) + " successfully reached monitoredBarrier, but received "
                                 "errors while waiting for send/recv from rank 0: " + text); /* torch's own words */
    }
    for (int r = 1; r < size_ && limit > kNoTimeout && (count == 0 || wait_all_ranks); r++) {
        const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
        try {
            store_->wait({ round + std::to_string(r) }, std::max(left, Milliseconds(1)));
        } catch (const std::exception &) {
            missing += (count++ ? ", " : "") + std::to_string(r);
        }
    }
    if (count == 0 && limit > kNoTimeout) return put(*store_, result, "well");
    const std::string who = count > 1 ? "Ranks " : "Rank ", what = count > 0 ? missing + " failed to pass" : "0 timed out in";
    const std::string text = "[Rank 0]: " + who + what + " monitoredBarrier in " + std::to_string(limit.count()) + " ms";
    put(*store_, result, text);
    throw std::runtime_error(text);
}

} // namespace coll_torch
