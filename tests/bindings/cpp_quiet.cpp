// cpp_quiet.cpp - coll.hpp without exceptions (-fno-exceptions): errors are in last(), and results are empty.
#include "../../coll.hpp"

#include <cstdio>
#include <cstring>

static_assert(!coll::detail::can_throw, "this file is compiled with -fno-exceptions");

static int worker(coll::communicator &comm)
{
    std::vector<int> x(comm.size() == 1 ? 0 : 3, comm.rank()), y(1);
    int right = comm.allreduce(1) == comm.size() && !comm.last();

    comm.allreduce(coll::from_to(x, y));
    right += comm.last().status() == COLL_ERR_ARGUMENT && std::strstr(comm.last().what(), "has 1 elements");
    right += comm.allreduce(x, coll::minloc).empty() && comm.last().status() == COLL_ERR_UNSUPPORTED;
    auto request = comm.start().allreduce(coll::from_to(x, y));
    right += comm.last() && !request.valid();
    request.wait();
    right += comm.last() && comm.allreduce(1) == comm.size() && !comm.last();
    const coll::communicator none = comm.split(COLL_COLOR_NONE);
    right += !none.valid() && none.allreduce(1) == 0 && none.last();
    coll::communicator moved = comm.dup(), to = std::move(moved);
    right += moved.allreduce(1) == 0 && moved.last() && to.allreduce(1) == comm.size();
    comm.broadcast(coll::matrix_view(x, 2, 2));
    right += comm.last().status() == COLL_ERR_ARGUMENT && std::strstr(comm.last().what(), "beyond the 3 elements");
    std::vector<coll::request<std::vector<int>>> requests;
    requests.push_back(comm.start().allgather(coll::matrix_view(x, 2, 2)));
    right += comm.last() && !requests[0].valid() && coll::wait_some(requests).empty() && !coll::test_any(requests);
    requests.push_back(comm.start().allgather(coll::matrix_view(x, 2, 1, 2)));
    right += coll::wait_some(requests) == std::vector<std::size_t>(1, 1) && requests[1].wait().size() == 4 && !comm.last();
    return right;
}

int main()
{
    coll::error why;
    int right = 0;
    for (int ok : coll::spawn(2, worker, {}, &why)) right += ok;
    coll_config config{};
    config.transport = "nosuch";
    right += coll::init(config).valid() ? 0 : 1;
    std::vector<int> none = coll::spawn(2, worker, config, &why);
    right += none.empty() && why && std::strstr(why.what(), "nosuch");
    std::printf("%d passed, %d failed\n", right, 22 - right);
    return right != 22;
}
