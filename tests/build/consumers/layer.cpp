// layer.cpp - the same by coll.hpp, which is where coll.h is.
#include <coll.hpp>
#include <cstdio>

int main()
{
    for (float sum : coll::spawn(4, [](coll::communicator &comm) { return comm.allreduce(float(comm.rank())); }))
        if (sum != 6) return 1;
    std::printf("taken in: %d.%d.%d\n", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
    return 0;
}
