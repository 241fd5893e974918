#include "coll_group.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <climits>

namespace coll_torch {

/* ---- start ---- */

static int as_ms(Milliseconds time)
{
    return static_cast<int>(std::min<int64_t>(std::max<int64_t>(time.count(), 1), INT_MAX));
}

static void put(c10d::Store &store, const std::string &key, const std::string &text)
{
    store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
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
};
} // namespace

static void announce(void *context, const char *address)
{
    Announcement *const it = static_cast<Announcement *>(context);

    it->is_made = true;
    put(*it->store, address_key, address);
}

/* Rank 0 listens at any port, and publishes its address in the store. */
void Group::meet(const Settings &settings)
{
    const bool by_store = size_ > 1 && !settings.host.empty();
    const std::string world = "torch " + settings.name;
    std::string address = (settings.host == "*" ? "" : settings.host) + ":0";
    Announcement announcement{ store_.get(), false };
    coll_config config{};

    if (by_store && rank_ > 0) {
        address = look_up(*store_, address_key);
        if (address.compare(0, 1, failure_mark) == 0) throw std::runtime_error(address.substr(1));
    }
    config.rank = rank_, config.size = size_;
    config.world = world.c_str();
    config.start_timeout_ms = as_ms(timeout_);
    config.background = COLL_ON;
    if (by_store) {
        config.address = address.c_str();
        if (rank_ == 0) config.tcp.listening = announce, config.tcp.listening_context = &announcement;
    }
    if (coll_init(&comm, &config) < 0) {
        const std::string why = coll_error(nullptr);
        if (by_store && rank_ == 0 && !announcement.is_made) put(*store_, address_key, failure_mark + why);
        throw std::runtime_error(why);
    }
}

Group::Group(const Settings &settings)
    : Base(settings.rank, settings.size), timeout_(settings.timeout), store_(settings.store), owner(getpid())
{
    meet(settings);
    doorbell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (doorbell < 0) {
        coll_free(comm);
        throw std::runtime_error("the process group cannot have a descriptor for its thread (eventfd)");
    }
    runner = std::thread([this] { run(); });
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

bool Group::end_those_that_are_over()
{
    const size_t before = running.size();

    coll_progress(comm);
    running.erase(std::remove_if(running.begin(), running.end(), [this](const Handle &one) { return one->is_over(comm); }),
                  running.end());
    return running.size() < before;
}

/* What others may need of this rank goes out before it leaves. */
bool Group::may_leave() const
{
    return (waiting.empty() && std::all_of(running.begin(), running.end(), [](const Handle &one) { return one->is_receive(); }))
           || std::chrono::steady_clock::now() > leave_by;
}

static const std::chrono::microseconds patience(50); /* before it sleeps: a short call is over by then */

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
    auto busy_until = std::chrono::steady_clock::now();
    bool is_leaving = false;

    for (;;) {
        const bool has_ended = end_those_that_are_over(), has_begun = take();
        {
            const std::lock_guard<std::mutex> lock(mutex);
            is_leaving = closing && queue.empty();
        }
        if (is_leaving && may_leave()) break;
        if (has_begun || has_ended) busy_until = std::chrono::steady_clock::now() + patience;
        else if (!running.empty() && std::chrono::steady_clock::now() < busy_until) sched_yield();
        else sleep();
    }
    std::unique_lock<std::mutex> lock(mutex);
    coll_comm *const left = comm;
    comm = nullptr;
    lock.unlock();
    coll_free(left);
    running.insert(running.end(), waiting.begin(), waiting.end());
    for (const Handle &one : running) one->end("the process group was destroyed before this operation was over");
    running.clear(), waiting.clear(), chain.reset();
}

void Group::end_on_purpose(const std::string &why)
{
    if (getpid() != owner) return;
    const std::lock_guard<std::mutex> lock(mutex);

    if (comm) coll_abort(comm, why.c_str());
    wake();
}

void Group::close()
{
    if (getpid() != owner) {
        if (runner.joinable()) runner.detach();
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex);
        closing = true;
        leave_by = std::chrono::steady_clock::now() + std::min(timeout_, Milliseconds(10000));
        wake();
    }
    if (runner.joinable()) runner.join();
    endings->close();
}

Handle Group::make(c10d::OpType type, const char *title, Tensors inputs, std::vector<Tensors> outputs)
{
    look_at(title, inputs);
    for (const Tensors &some : outputs) look_at(title, some);
    return c10::make_intrusive<Work>(rank_, type, title, std::move(inputs), std::move(outputs), endings);
}

Begun Group::begin(const Handle &work, coll_kind kind, Milliseconds timeout)
{
    if (getpid() != owner) throw std::runtime_error("a process group cannot be used in a forked child");
    const std::lock_guard<std::mutex> lock(mutex);

    if (closing) throw std::runtime_error("the process group has been destroyed");
    work->call.kind = kind;
    work->call.timeout_ms = as_ms(timeout > kNoTimeout ? timeout : timeout_);
    if (kind != COLL_SEND && kind != COLL_RECV) made++;
    queue.push_back(work);
    wake();
    return work;
}

/* ---- a barrier that names missing ranks: through the store, so that the communicator survives a late rank ---- */

void Group::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks)
{
    const Milliseconds limit = options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
    const auto deadline = std::chrono::steady_clock::now() + limit;
    const std::string round = "coll/monitored/" + std::to_string(monitored++) + "/", result = round + "verdict";
    std::string missing;
    int count = 0;

    if (rank_ > 0) {
        put(*store_, round + std::to_string(rank_), "here");
        store_->wait({ result }, std::max(2 * limit, Milliseconds(1)));
        const std::string text = look_up(*store_, result);
        if (text == "well") return;
        throw std::runtime_error("Rank " + std::to_string(rank_) + " successfully reached monitoredBarrier, but received "
                                 "errors while waiting for send/recv from rank 0: " + text); /* torch's own words */
    }
    for (int r = 1; r < size_ && limit > kNoTimeout && (count == 0 || wait_all_ranks); r++) {
        const auto left = std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now());
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
