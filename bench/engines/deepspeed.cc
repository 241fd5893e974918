/* deepspeed.cc - DeepSpeed's sum for inference on CPUs, from its csrc/cpu/comm/shm.cpp, which compare.sh downloads; and SGLang's,
 * from its sgl-kernel/csrc/cpu/shm.cpp, which began as a copy of it and still has the name of its shared memory.
 *
 * The kernel needs little of torch: a tensor with a type, a pointer and scalars of 16 bits.  These stand-ins replace it, so that
 * the comparison takes no installation of torch.  compare.sh makes empty files for the headers of torch. */
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace c10 {
enum class ScalarType { BFloat16, Half, Float };
}

namespace at {
struct BFloat16 {
    uint16_t bits;
    BFloat16(float x)
    {
        uint32_t u;
        memcpy(&u, &x, 4);
        bits = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    operator float() const
    {
        const uint32_t u = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &u, 4);
        return x;
    }
};
using Half = _Float16;
}

namespace torch {
struct Tensor {
    void *data;
    void *data_ptr() const { return data; }
    c10::ScalarType scalar_type() const { return c10::ScalarType::BFloat16; }
    size_t size(int) const { return 0; }          /* for an allgather of SGLang that is not called            */
    size_t stride(int) const { return 0; }
};
}

#include KERNEL                                   /* the path of shm.cpp                                      */

#include "engines.h"

const char *const engine_name = ENGINE;

static void key_text(char *text, size_t room, int key) { snprintf(text, room, "%d", key); }

void engine_create(int, int, int) {}

void engine_join(int size, int rank, int key)
{
    char address[] = "coll_bench", port[16];

    key_text(port, sizeof port, key);
    shm_initialize(size, rank, address, port);
}

void engine_unlink(int rank, int key)
{
    char name[128];

    snprintf(name, sizeof name, "%s_%d_coll_bench_%d_%d", SHM_BUFFER_NAME, (int)getuid(), key, rank);
    shm_unlink(name);
}

void engine_sum(uint16_t *data, size_t count)
{
    torch::Tensor tensor = { data };
    all_reduce_outer_loop(tensor, count, (int)(count * 2));
}
