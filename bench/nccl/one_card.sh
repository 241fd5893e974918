#!/bin/sh
# one_card.sh [RANKS] - the bits of bench/nccl with several ranks on one GPU, each a process that NCCL takes
# for a host of its own.
# The processes share the GPU in turns, so the times mean nothing; an operation takes some 15 ms.
set -eu
ranks=${1:-2}
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
make --no-print-directory build/release/coll_nccl_bench build/release/coll-run
export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_DEBUG=WARN
export COLL_DEVICE=0 COLL_BENCH_BITS=1
exec build/release/coll-run -n "$ranks" sh -c 'NCCL_HOSTID=r$COLL_RANK exec build/release/coll_nccl_bench'
