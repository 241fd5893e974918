// train.cc - the same in C++, where another file compiles the library, or a library is linked.
#include <coll.h>
#include <cstdio>

static int worker(coll_comm *comm, void *)
{
    float x = static_cast<float>(coll_rank(comm));
    coll_call call{};
    call.kind = COLL_ALLREDUCE;
    call.send = call.recv = &x;
    call.count = 1;
    call.type = COLL_F32;
    call.op = COLL_SUM;
    return coll_run(comm, &call) == COLL_OK && x == 6 ? 0 : 1;
}

int main()
{
    if (coll_spawn(4, worker, nullptr, nullptr) != 0) return 1;
    std::printf("taken in: %d.%d.%d\n", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
    return 0;
}
