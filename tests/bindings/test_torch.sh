#!/bin/sh
# test_torch.sh - the back end of torch.distributed (bindings/torch/), with PyTorch 2.13 or later.
#   usage: [TORCH_PYTHON=python3] sh tests/bindings/test_torch.sh [PART...]
#
# Parts: ranks, found, faults, uses, leaves; and conformance, PyTorch's own tests of back ends (2 minutes of processors).  Without
# an argument every part is run, ranks on 1 and 3 ranks, uses on 4, leaves on 1 and 3, and a third of conformance, drawn at
# random, on 2.  The argument `all` runs each on 1, 2, 3 and 4, as far as its tests allow (20 minutes).
#
# Ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0
python=$TORCH_PYTHON
for one in "$PWD/build/torch-venv/bin/python3" python3; do
    if [ -z "$python" ] && "$one" -c 'import torch.version' 2> /dev/null; then python=$one; fi
done
if [ -z "$python" ]; then
    echo "FAILED - there is no PyTorch here: sh tools/deps.sh torch"
    echo "0 passed, 1 failed"
    exit 1
fi
make --no-print-directory torch TORCH_PYTHON="$python" || { echo "0 passed, 1 failed"; exit 1; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
tests=$PWD/bindings/torch/tests
export PYTHONPATH="$PWD/build/torch" PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 TMPDIR="$dir"
export TORCH_CPP_LOG_LEVEL=ERROR

counted() { # expected: lines "ok" in the log
    grep '^ok - ' "$dir/log"
    right=$(grep -c '^ok - ' "$dir/log")
    passed=$((passed + right)) failed=$((failed + $1 - right))
    [ "$right" -eq "$1" ] || grep -v '^ok - ' "$dir/log" | cut -c 1-400 | tail -n 60
}

ranks() { # expected ranks test...
    expected=$1 n=$2; shift 2
    timeout 300 "$python" "$tests/ranks.py" --ranks "$n" "$@" > "$dir/log" 2>&1
    counted "$expected"
}

conclusion() { # what: of the command before
    if [ $? -eq 0 ]; then passed=$((passed + 1)); echo "ok - $1"
    else failed=$((failed + 1)); echo "FAILED - $1"; tail -n 20 "$dir/log"; fi
}

test_ranks() {
    all=$(grep -c '^def test_' "$tests/ranks.py")
    for n in ${everywhere:-3}; do ranks "$all" $n; done
    ranks 1 3 last_death
    alone="test_broadcast test_allreduce_and_reduce test_average test_premultiplied_sum test_several_at_once test_coalesced
        test_gathering test_whole_tensors test_all_to_all test_many_at_once test_futures test_hooks test_sparse
        test_sparse_in_the_order_of_ranks test_objects test_ddp test_ddp_with_sparse_gradients test_zero_redundancy"
    ranks 18 1 $alone
    COLL_ADDR="file:$dir/address" ranks 2 3 test_average test_groups                # the library's own rendezvous
    COLL_NETWORK=lo ranks 2 3 test_average test_groups
    export TORCH_DISTRIBUTED_DEBUG=DETAIL         # torch's own wrapper, which waits for all ranks in every call
    ranks 7 3 watched_mismatch test_average test_coalesced test_groups test_sparse test_ddp test_ddp_over_a_wire
    unset TORCH_DISTRIBUTED_DEBUG
    timeout 100 "$python" -m torch.distributed.run --nproc_per_node 2 --master_port 0 --rdzv_backend c10d \
        --rdzv_endpoint localhost:0 "$tests/ranks.py" test_average test_objects test_ddp > "$dir/log" 2>&1
    counted 3
}

# PyTorch finds the back end without an import, and `import torch` does not load it.
test_found() {
    (cd "$dir" && timeout 100 "$python" -c '
import sys, torch
from torch import distributed
assert "coll_torch.groups" not in sys.modules and "coll_torch._c" not in sys.modules
for backend in "coll", "cpu:coll", "cpu:coll,cuda:gloo":
    distributed.init_process_group(backend, rank=0, world_size=1, init_method=f"file://{sys.argv[1]}/{backend}")
    x = torch.ones(3)
    distributed.all_reduce(x, distributed.ReduceOp.AVG)
    assert distributed.group.WORLD._get_backend(torch.device("cpu")).name() == "coll"
    distributed.destroy_process_group()' "$dir") > "$dir/log" 2>&1
    conclusion "found without an import: coll, cpu:coll, cpu:coll,cuda:gloo"
    timeout 100 "$python" -m coll_torch 3 > "$dir/log" 2>&1 && grep -q 'on 3 processes: as expected' "$dir/log"
    conclusion "python -m coll_torch"
    ${CC:-cc} -O0 -DCOLL__ONE_TIER -shared -fPIC coll.c -o "$dir/libcoll.so" -pthread
    COLL_LIBRARY="$dir/libcoll.so" PYTHONPATH="$PYTHONPATH:$PWD/bindings/python" \
        timeout 100 "$python" -m coll.torch > "$dir/log" 2>&1 \
        && grep -q 'on 2 processes: as expected' "$dir/log"
    conclusion "python -m coll.torch"
    (cd "$dir" && PYTHONPATH="$OLDPWD/build/torch" timeout 100 "$python" -c '
import torch
torch.__version__ = "2.99.1"
from coll_torch import _c') > "$dir/log" 2>&1
    grep -q 'compiled for PyTorch 2.*and this is PyTorch 2.99.1' "$dir/log"
    conclusion "a module for another PyTorch says so"
}

test_faults() {
    timeout 500 "$python" "$tests/faults.py" > "$dir/log" 2>&1
    count=$(sed -n 's/^1\.\.//p' "$dir/log")
    counted "${count:-1}"
}

test_uses() {
    for n in ${everywhere:+2} 4; do
        timeout 300 "$python" "$tests/uses.py" --ranks $n > "$dir/log" 2>&1
        counted "$(grep -c '^def use_' "$tests/uses.py")"
    done
}

test_leaves() { # the same weights, bit for bit
    for n in 1 ${everywhere:-3}; do
        timeout 300 "$python" "$tests/leaves.py" --ranks $n > "$dir/log" 2>&1
        counted "$(grep -c '^def test_' "$tests/leaves.py")"
    done
    timeout 300 "$python" "$tests/leaves.py" --ranks 3 last_gap > "$dir/log" 2>&1
    counted 1
}

conforms() { # ranks, of how many one is drawn: each of PyTorch's tests ends as conformance.txt says
    seed=${COLL_TEST_SEED:-$(date +%s)}
    [ "$2" -eq 1 ] || echo "conformance: COLL_TEST_SEED=$seed draws the same tests again"
    awk -v seed="$seed" -v each="$2" 'BEGIN { srand(seed % 2147483647) } /^[^#]/ && rand() * each < 1' \
        "$tests/conformance.txt" > "$dir/wanted"
    BACKEND=coll WORLD_SIZE=$1 timeout 900 "$python" "$tests/conformance.py" $(awk '{ print $1 }' "$dir/wanted") \
        > "$dir/conclusions" 2> "$dir/log"
    awk -v ranks="$1" '
        FILENAME == ARGV[1] { wanted[$1] = $(2 * ranks - 1); next }
        $2 in wanted { count++; if ($1 == wanted[$2]) right++; else print "FAILED - " $2 ": " $1 ", and not " wanted[$2] }
        END { for (name in wanted) all++; print right + 0, all - right }' "$dir/wanted" "$dir/conclusions" > "$dir/sum"
    grep FAILED "$dir/sum" && tail -n 100 "$dir/log"
    passed=$((passed + $(awk 'END { print $1 }' "$dir/sum"))) failed=$((failed + $(awk 'END { print $2 }' "$dir/sum")))
}

test_conformance() { for n in ${everywhere:-2}; do conforms $n $each; done; }

everywhere='' each=1
[ $# -gt 0 ] || each=3
if [ "$*" = all ]; then everywhere='2 3 4'; fi
if [ $# -eq 0 ] || [ "$everywhere" ]; then set -- ranks found faults uses leaves conformance; fi
for part in "$@"; do "test_$part"; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
