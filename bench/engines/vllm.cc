/* vllm.cc - vLLM's sum for inference on CPUs, from its csrc/cpu/shm.cpp, which compare.sh downloads; with the headers of PyTorch.
 *
 * On 3 and more ranks every rank adds in another order, its own part first.  So the ranks' sums can differ in the last bit. */
#include KERNEL                                   /* the path of shm.cpp                                      */

#include "engines.h"

const char *const engine_name = "vLLM";

static int64_t segments;

static std::string name_of(int key) { return "/coll_bench_vllm_" + std::to_string(key); }

void engine_create(int size, int rank, int key) { segments = init_shm_manager(name_of(key), size, rank, 1); }

void engine_join(int, int, int key) { join_shm_manager(segments, name_of(key)); }

void engine_unlink(int rank, int key) { shm_unlink((name_of(key) + '_' + std::to_string(rank)).c_str()); }

void engine_sum(uint16_t *data, size_t count)
{
    static torch::Tensor tensor;                  /* made once for a count, as an engine has it               */

    if (!tensor.defined() || tensor.data_ptr() != data || (size_t)tensor.numel() != count)
        tensor = torch::from_blob(data, { (int64_t)count }, torch::kBFloat16);
    shm_allreduce(segments, tensor);
}
