#!/bin/sh
# compare.sh [deepspeed|vllm|sglang]... [RANKS]... - sums of bf16 in shared memory: kernels of inference engines for CPUs, and
# coll_allreduce.
#
#   sh bench/engines/compare.sh                    DeepSpeed, 2, 3 and 4 processes
#   sh bench/engines/compare.sh vllm 2 4 8         vLLM: with a PyTorch in build/torch-venv (tools/deps.sh torch) or in $PYTHON
#   DEEPSPEED=/path VLLM=/path SGLANG=/path ...    its sources, instead of the release on PyPI that is named below
#
# SGLang has no sources of its kernels on PyPI: SGLANG is a copy of its repository.  The kernels are compiled in a temporary
# folder with the flags that the engines use; nothing is installed.  They need AVX-512.
set -eu
deepspeed=0.19.8 vllm=0.33.0
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
fail() { echo "compare.sh: $1" >&2; exit 1; }
grep -q avx512bw /proc/cpuinfo || { echo "compare.sh: the kernels need AVX-512 (avx512bw)" >&2; exit 77; }
engines='' ranks=''
for word; do
    case $word in
        deepspeed | vllm | sglang) engines="$engines $word" ;;
        *[!0-9]* | '') fail "invalid argument \"$word\": use deepspeed, vllm, sglang, and numbers of ranks" ;;
        *) ranks="$ranks $word" ;;
    esac
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

# Downloads the sources of package $1, version $2; $3: the part of them that is unpacked.
download() {
    url=$(python3 -c 'import json, sys, urllib.parse, urllib.request
package, version = sys.argv[1:]
releases = json.load(urllib.request.urlopen(f"https://pypi.org/pypi/{package}/json"))["releases"]
url = next(file["url"] for file in releases[version] if file["packagetype"] == "sdist")
print(urllib.parse.urljoin(f"https://pypi.org/simple/{package}/", url))' "$1" "$2")
    python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' "$url" "$folder/$1.tar.gz"
    tar -xzf "$folder/$1.tar.gz" -C "$folder" --wildcards "$1-$2/$3/*"
}

# Compiles the kernel of engine $1 into $folder/$1.o; prints what the linker needs.
compile() {
    kernel='' libraries=''
    case $1 in
        deepspeed)
            name=DeepSpeed
            [ -n "${DEEPSPEED:-}" ] || { download deepspeed $deepspeed csrc/cpu; DEEPSPEED=$folder/deepspeed-$deepspeed; }
            kernel=$DEEPSPEED/csrc/cpu/comm/shm.cpp ;;
        sglang)
            name=SGLang
            [ -n "${SGLANG:-}" ] || fail "set SGLANG to a copy of SGLang's repository: PyPI has no sources of its kernels"
            kernel=$SGLANG/sgl-kernel/csrc/cpu/shm.cpp ;;
        vllm)
            [ -n "${VLLM:-}" ] || { download vllm $vllm csrc/cpu; VLLM=$folder/vllm-$vllm; }
            kernel=$VLLM/csrc/cpu/shm.cpp ;;
    esac
    [ -f "$kernel" ] || fail "no file $kernel"
    if [ "$1" = vllm ]; then
        python=${PYTHON:-$(ls build/torch-venv/bin/python3 2> /dev/null || echo python3)}
        torch=$($python -c 'import os, torch; print(os.path.dirname(torch.__file__))') \
            || fail "vLLM's kernel needs PyTorch 2: sh tools/deps.sh torch, or set PYTHON"
        flags="-std=c++20 -mf16c -mavx512f -mavx512vl -mavx512bw -mavx512dq -DVLLM_CPU_EXTENSION -I$VLLM/csrc"
        if grep -q avx512_bf16 /proc/cpuinfo; then flags="$flags -mavx512bf16 -mavx512vnni"; fi
        flags="$flags -isystem $torch/include -isystem $torch/include/torch/csrc/api/include"
        libraries="-L$torch/lib -Wl,-rpath,$torch/lib -ltorch -ltorch_cpu -lc10"
        source=bench/engines/vllm.cc
    else
        mkdir -p "$folder/torch/csrc/distributed/c10d" "$folder/ATen"
        for header in torch/extension.h torch/all.h torch/csrc/distributed/c10d/ProcessGroup.hpp ATen/ATen.h; do
            : > "$folder/$header"
        done
        flags="-std=c++17 -march=native -DENGINE=\"$name\" -I$folder"
        source=bench/engines/deepspeed.cc
    fi
    # shellcheck disable=SC2086
    ${CXX:-c++} $flags "-DKERNEL=\"$kernel\"" -O3 -DNDEBUG -fopenmp -w -Ibench/engines -c $source -o "$folder/$1.o"
    echo "$libraries"
}

make --no-print-directory build/release/coll-run build/release/coll.o
${CC:-cc} -std=c11 -O2 -Wall -Wextra -c bench/engines/engines.c -o "$folder/engines.o"
for engine in ${engines:-deepspeed}; do
    libraries=$(compile "$engine")
    # shellcheck disable=SC2086
    ${CXX:-c++} -fopenmp "$folder/engines.o" "$folder/$engine.o" build/release/coll.o -o "$folder/$engine" $libraries \
        -lpthread -ldl -lrt -lm
    for count in ${ranks:-2 3 4}; do OMP_NUM_THREADS=1 build/release/coll-run -n "$count" "$folder/$engine"; done
done
