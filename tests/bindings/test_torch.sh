#!/bin/sh
# test_torch.sh - the back end of torch.distributed (bindings/torch/), under torch's own launcher.
#   usage: sh tests/bindings/test_torch.sh [conformance]         conformance: only PyTorch's own tests of back ends
#
# Ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0
python=
for one in python3 /usr/bin/python3; do
    if [ -z "$python" ] && "$one" -c 'import torch.version' 2> /dev/null; then python=$one; fi
done
if [ -z "$python" ]; then
    echo "left out - there is no PyTorch here (Debian: python3-torch libtorch-dev pybind11-dev python3-dev)"
    echo "0 passed, 0 failed"
    exit 0
fi
make --no-print-directory torch TORCH_PYTHON="$python" || { echo "0 passed, 1 failed"; exit 1; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
ranks=$PWD/bindings/torch/tests/ranks.py
export PYTHONPATH="$PWD/build/torch" PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1

# Under Python 3.11 the launcher of 1.13 fails over its own default of -r and -t; these are other values.
launched() { # expected ranks test...: as many lines "ok" as there are tests
    expected=$1 n=$2; shift 2
    timeout 200 "$python" -m torch.distributed.run -r 9:1 -t 9:1 --nproc_per_node "$n" --master_port 0 --rdzv_backend c10d \
        --rdzv_endpoint localhost:0 "$ranks" "$@" > "$dir/log" 2>&1
    grep '^ok - ' "$dir/log"
    right=$(grep -c '^ok - ' "$dir/log")
    passed=$((passed + right)) failed=$((failed + expected - right))
    [ "$right" -eq "$expected" ] || grep -v '^ok - ' "$dir/log"
}

conforms() { # ranks: every test of PyTorch's ends as conformance.txt says
    BACKEND=coll WORLD_SIZE=$1 timeout 900 "$python" bindings/torch/tests/conformance.py > "$dir/conclusions" 2> "$dir/log"
    awk -v ranks="$1" '
        FILENAME == ARGV[1] { if (/^[^#]/) wanted[$1] = $(2 * ranks - 1); next }
        $2 in wanted { count++; if ($1 == wanted[$2]) right++; else print "FAILED - " $2 ": " $1 ", and not " wanted[$2] }
        END { for (name in wanted) all++; print right + 0, all - right }' bindings/torch/tests/conformance.txt \
        "$dir/conclusions" > "$dir/sum"
    grep FAILED "$dir/sum" && cat "$dir/log"
    passed=$((passed + $(awk 'END { print $1 }' "$dir/sum"))) failed=$((failed + $(awk 'END { print $2 }' "$dir/sum")))
}

if [ "$1" != conformance ]; then
    all=$(grep -c '^def test_' "$ranks")
    for n in 2 3 4; do launched "$all" $n; done
    launched 1 3 last_death
    alone="test_broadcast test_allreduce_and_reduce test_average test_coalesced test_gathering test_whole_tensors test_all_to_all
        test_many_at_once test_futures test_sparse test_sparse_in_the_order_of_ranks test_objects test_ddp
        test_ddp_with_sparse_gradients test_zero_redundancy"
    launched 15 1 $alone
    export COLL_ADDR="file:$dir/address"          # the library's own rendezvous
    launched 2 3 test_average test_groups
    unset COLL_ADDR
    export COLL_NETWORK=lo
    launched 2 3 test_average test_groups
    unset COLL_NETWORK
    export TORCH_DISTRIBUTED_DEBUG=DETAIL         # torch's own wrapper, which waits for all ranks in every call
    launched 7 3 watched_mismatch test_average test_coalesced test_groups test_sparse test_ddp test_ddp_over_a_wire
    unset TORCH_DISTRIBUTED_DEBUG
fi
conforms 2
[ "$1" != conformance ] || { conforms 3; conforms 4; }
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
