/* test_nccl_random.c - random programs on GPUs, fake ones unless others are named: see nccl/gpu.h. */
#if !defined(COLL_WITH_NCCL)
#error "its world is one with COLL_WITH_NCCL"
#endif
#include "../collectives/test_random.c"
