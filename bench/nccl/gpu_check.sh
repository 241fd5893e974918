#!/bin/sh
# gpu_check.sh [RESULT] - all checks that need a GPU, in one command of at most 8 minutes; writes the file RESULT (gpu_check.txt).
#
# For a bare machine with CUDA 13, NCCL and PyTorch, and at least one GPU.  It builds what it runs.  Each step has a limit, and
# a step that fails does not stop the others.  With COLL_CUDA_LIB and COLL_NCCL_LIB set to the fake libraries of
# tests/transports/nccl it runs on any machine: the tests do this.
#
#   declarations   the library's declarations of CUDA and NCCL, compared with the headers
#   kernels        compiled again from their source, compared with the text that the library contains
#   one rank       coll_nccl_bench: every kernel's bits compared with the processor's; the time that the library adds to NCCL
#   contract       every collective, type and operation with a communicator of one rank; then random programs
#   streams        the order of a stream's work and the calls; takes 3 GPUs
#   one card       the bits of 2 and 3 processes that share one GPU
#   torch          torch.distributed with "cpu:coll,cuda:nccl"
#
# A step without its tools is "left out", with the reason.  The last line is "N passed, N failed, N left out"; the exit status is
# 1 if a step failed.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
result=${1:-gpu_check.txt}
case $result in /*) ;; *) result=$PWD/$result ;; esac
cd "$here" || exit 1
cuda=${CUDA_HOME:-/usr/local/cuda}
bin=build/release
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
PATH=$PATH:$cuda/bin
began=$(date +%s)
passed=0 failed=0 left_out=0
: > "$result" || exit 1

say() { echo "$*" | tee -a "$result"; }
left_out() { left_out=$((left_out + 1)); say "left out - $1: $2"; }
# NAME SECONDS COMMAND...: what it prints goes into the file, its end on the screen if it fails
step() {
    name=$1 most=$2; shift 2
    left=$((470 - $(date +%s) + began))
    [ "$left" -gt 0 ] || { failed=$((failed + 1)); say "FAILED - $name: the 8 minutes are over"; return 1; }
    [ "$most" -le "$left" ] || most=$left
    from=$(date +%s)
    timeout -k 5 "$most" "$@" > "$dir/log" 2>&1
    status=$? seconds=$(($(date +%s) - from))
    echo "---- $name: $*" >> "$result"
    cat "$dir/log" >> "$result"
    if [ $status -eq 0 ]; then passed=$((passed + 1)); say "ok - $name ($seconds s)"; return 0; fi
    tail -n 20 "$dir/log"
    failed=$((failed + 1))
    case $status in
    124 | 137) say "FAILED - $name: not finished after $most s" ;;
    *) say "FAILED - $name: status $status after $seconds s" ;;
    esac
    return 1
}

say "date: $(date -u +%Y-%m-%dT%H:%MZ), commit $(git rev-parse --short HEAD 2> /dev/null || echo unknown), $(uname -sm)"
say "GPU: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | tr '\n' ';' || true)"
say "compiler: $(nvcc --version 2> /dev/null | sed -n 's/.*release //p')"
python=
for one in python3 /usr/bin/python3; do
    if [ -z "$python" ] && "$one" -c 'import torch.version' 2> /dev/null; then python=$one; fi
done
[ -z "$python" ] || say "torch: $($python -c 'import torch; print(torch.__version__, "CUDA", torch.version.cuda)' 2> /dev/null)"

# The tests load fake libraries unless these two are set.  PyTorch's packages contain an NCCL outside of the loader's path.
given=${COLL_CUDA_LIB:+yes}
if [ -z "${COLL_NCCL_LIB:-}" ]; then
    COLL_NCCL_LIB=libnccl.so.2
    if [ -n "$python" ] && ! ldconfig -p 2> /dev/null | grep -q 'libnccl\.so\.2'; then
        inside=$($python -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")' 2> /dev/null)
        [ -z "$inside" ] || COLL_NCCL_LIB=$inside
    fi
fi
export COLL_CUDA_LIB="${COLL_CUDA_LIB:-libcuda.so.1}" COLL_NCCL_LIB
say "libraries: $COLL_CUDA_LIB, $COLL_NCCL_LIB"

header=
for folder in "$cuda/include" /usr/include /usr/local/include; do
    if [ -z "$header" ] && [ -e "$folder/nccl.h" ]; then header=$folder; fi
done
if [ -n "$header" ] && [ -e "$cuda/include/cuda.h" ]; then
    step declarations 60 "${CC:-cc}" -std=c11 -Wall -Wextra -Werror -isystem "$cuda/include" -isystem "$header" \
        -c tests/transports/nccl/abi.c -o "$dir/abi.o"
else
    left_out declarations "there is no nccl.h, or no cuda.h in $cuda/include"
fi
if command -v nvcc > /dev/null; then
    if step "kernels compiled" 60 sh tools/ptx.sh "$dir/ptx.h"; then
        step "kernels as in the library" 10 cmp "$dir/ptx.h" carriers/nccl/coll_nccl_ptx.h
    fi
else
    left_out kernels "there is no nvcc"
fi
step build 150 make --no-print-directory -j4 $bin/coll-run $bin/coll_nccl_bench $bin/test_nccl $bin/test_nccl_contract \
    $bin/test_nccl_random
step "one rank: bits and time" 90 env COLL_DEVICE=0 $bin/coll-run -n 1 $bin/coll_nccl_bench
step "contract of one rank" 60 $bin/test_nccl_contract nccl 1
step "random programs of one rank" 60 $bin/test_nccl_random --ranks 1 --steps 150 --seed 1
for ranks in 2 3; do step "one card, $ranks processes" 90 sh bench/nccl/one_card.sh $ranks; done
gpus=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU')
if [ "$gpus" -ge 3 ] || [ -n "$given" ]; then step streams 60 $bin/test_nccl order,streams,graphs
else left_out streams "its three ranks are threads, and NCCL requires a GPU for each: there are $gpus"
fi
if [ -z "$python" ]; then left_out torch "there is no python3 with PyTorch"
elif ! $python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
    left_out torch "this PyTorch finds no GPU"
elif step "torch: build" 150 make --no-print-directory -j4 torch TORCH_PYTHON="$python"; then
    step "torch: cpu:coll,cuda:nccl" 90 env PYTHONPATH="$PWD/build/torch" "$python" bench/nccl/torch_check.py
fi
say "$passed passed, $failed failed, $left_out left out"
[ "$failed" -eq 0 ]
