/* test_nccl_contract.c - the cells of the contract on GPUs, which are false ones unless others are named: see nccl/gpu.h. */
#include "test_contract.c"
