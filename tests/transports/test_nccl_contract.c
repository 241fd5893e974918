/* test_nccl_contract.c - the cells of the contract on GPUs, fake ones unless others are named: see nccl/gpu.h. */
#if !defined(COLL_WITH_NCCL)
#error "its world is one with COLL_WITH_NCCL"
#endif
#include "../collectives/test_contract.c"
