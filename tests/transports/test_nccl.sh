#!/bin/sh
# Communicators on GPUs, on any machine: fake libraries of CUDA and NCCL alone, the library on them, the contract with
# each version of NCCL that has other functions, random programs.  Where CUDA's headers and compiler are, the declarations and the
# kernels' text are compared with them.
#   usage: test_nccl.sh [CONFIG] [few]        few: the smaller half, for a sanitizer that is slow; COLL_TEST_SEED replays
cd "$(dirname "$0")/../.." || exit 1
. tests/support/folder.sh
config=${1:-release} few=$2 dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export TSAN_OPTIONS="atexit_sleep_ms=0 $TSAN_OPTIONS"
passed=0 failed=0
bin=$(folder "$config")

count() { # name status: add what the log ends with
    line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed' "$dir/log" | tail -n 1)
    p=${line%% *} rest=${line#*, } f=${rest%% *}
    [ -n "$line" ] || p=0 f=1
    if [ "$2" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f))
    if [ "$f" -eq 0 ]; then grep -a skipped "$dir/log"; echo "ok - $1: $p"; else tail -n 30 "$dir/log"; echo "FAILED - $1"; fi
}
tested() { # name program arguments...
    name=$1; shift
    "$@" > "$dir/log" 2>&1
    count "$name" $?
}
check() { # name command...
    name=$1; shift
    if "$@" > "$dir/log" 2>&1; then passed=$((passed + 1)); echo "ok - $name"
    else failed=$((failed + 1)); tail -n 20 "$dir/log"; echo "FAILED - $name"; fi
}

programs="$bin/test_nccl_fakes $bin/test_nccl $bin/test_nccl_contract $bin/test_nccl_random"
make --no-print-directory -k config="$config" CPPFLAGS="$CPPFLAGS" $programs > "$dir/log" 2>&1 \
    || { tail -n 30 "$dir/log"; failed=1; }
tested "the fakes" $bin/test_nccl_fakes
tested "communicators" $bin/test_nccl
sizes="1 2 3 5" versions="21805"
[ -z "$few" ] || sizes=2 versions=
for size in $sizes; do tested "contract, $size ranks" $bin/test_nccl_contract nccl $size; done
for version in $versions; do
    tested "contract, NCCL $version" env COLL_NCCL_LIB="$PWD/$bin/fake_nccl_$version.so" $bin/test_nccl_contract nccl 2
done
for ranks in 2 3 5; do
    tested "random programs, $ranks ranks" $bin/test_nccl_random --ranks $ranks --steps 150 --seed "${COLL_TEST_SEED:-$ranks}"
done

# ---- where CUDA is
if [ -n "$few" ]; then
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
fi
cuda=${CUDA_HOME:-/usr/local/cuda}
if [ -e "$cuda/include/nccl.h" ] && [ -e "$cuda/include/cuda.h" ]; then
    for cc in gcc clang; do
        check "declarations as in the headers, $cc" $cc -std=c11 -Wall -Wextra -Werror -isystem "$cuda/include" \
            -c tests/transports/nccl/abi.c -o "$dir/abi.o"
    done
else
    echo "skipped: declarations as in the headers: there is no nccl.h or no cuda.h in $cuda/include"
fi
if PATH="$PATH:$cuda/bin" command -v nvcc > /dev/null; then
    check "kernels compiled again" env PATH="$PATH:$cuda/bin" sh tools/ptx.sh "$dir/ptx.h"
    check "the text of the kernels is that of their source" cmp "$dir/ptx.h" carriers/nccl/coll_nccl_ptx.h
else
    echo "skipped: the text of the kernels: there is no nvcc"
fi

# ---- the check for machines with a GPU: it passes on the fakes, and fails without a driver
if [ "$config" = release ]; then
    check "gpu_check.sh" env COLL_BENCH_BITS=1 COLL_CUDA_LIB="$PWD/$bin/fake_cuda.so" \
        COLL_NCCL_LIB="$PWD/$bin/fake_nccl_22809.so" sh bench/nccl/gpu_check.sh "$dir/gpu_check.txt"
    COLL_BENCH_BITS=1 COLL_CUDA_LIB=/nowhere/libcuda.so.1 sh bench/nccl/gpu_check.sh "$dir/no_gpu.txt" > /dev/null 2>&1
    check "gpu_check.sh without a driver" grep -q '^FAILED - one rank' "$dir/no_gpu.txt"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
