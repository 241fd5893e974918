#!/bin/sh
# compare.sh [RANKS...] - sums of bf16 in shared memory by DeepSpeed's kernel for inference on CPUs, and by coll_allreduce.
#
#   sh bench/engines/compare.sh                    2, 4 and 8 processes
#   DEEPSPEED=/path/to/DeepSpeed sh ...            its sources, instead of the release on PyPI that is named below
#
# The kernel is compiled in a temporary folder with the flags that DeepSpeed uses; nothing is installed.  It needs AVX-512.
set -eu
version=0.19.8
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
grep -q avx512bw /proc/cpuinfo || { echo "compare.sh: DeepSpeed's kernel needs AVX-512 (avx512bw)" >&2; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
if [ -z "${DEEPSPEED:-}" ]; then
    url=$(python3 -c 'import json, sys, urllib.parse, urllib.request
releases = json.load(urllib.request.urlopen("https://pypi.org/pypi/deepspeed/json"))["releases"]
url = next(file["url"] for file in releases[sys.argv[1]] if file["packagetype"] == "sdist")
print(urllib.parse.urljoin("https://pypi.org/simple/deepspeed/", url))' $version)
    python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' "$url" "$folder/deepspeed.tar.gz"
    tar -xzf "$folder/deepspeed.tar.gz" -C "$folder"
    DEEPSPEED=$folder/deepspeed-$version
fi
kernel=$DEEPSPEED/csrc/cpu/comm/shm.cpp
[ -f "$kernel" ] || kernel=$DEEPSPEED/deepspeed/ops/csrc/cpu/comm/shm.cpp
[ -f "$kernel" ] || { echo "compare.sh: no csrc/cpu/comm/shm.cpp in $DEEPSPEED" >&2; exit 1; }
mkdir "$folder/torch" "$folder/ATen"
: > "$folder/torch/extension.h"
: > "$folder/ATen/ATen.h"
make --no-print-directory build/release/coll-run build/release/coll.o
${CXX:-c++} -std=c++17 -O3 -march=native -fopenmp -w -I"$folder" -Ibench/engines "-DKERNEL=\"$kernel\"" \
    -c bench/engines/deepspeed.cc -o "$folder/deepspeed.o"
${CC:-cc} -std=c11 -O2 -Wall -Wextra -c bench/engines/engines.c -o "$folder/engines.o"
${CXX:-c++} -fopenmp "$folder/engines.o" "$folder/deepspeed.o" build/release/coll.o -o "$folder/engines" -lpthread -ldl -lrt -lm
[ $# -gt 0 ] || set -- 2 4 8
for ranks; do OMP_NUM_THREADS=1 build/release/coll-run -n "$ranks" "$folder/engines"; done
