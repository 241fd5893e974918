/* test_nccl_random.c - random programs on GPUs, which are false ones unless others are named: see nccl/gpu.h. */
#include "test_random.c"
