#!/bin/sh
# vowpal_wabbit.sh - make Vowpal Wabbit from its source package on PyPI, with its own sockets and over coll.h, and compare both.
#   usage: vowpal_wabbit.sh build [FOLDER]         about 20 minutes of a processor; FOLDER: build/adapters/vw
#          vowpal_wabbit.sh check [FOLDER] equal|time [options of vowpal_wabbit_check.py]
#
# It needs pip, cmake, ninja, a C and a C++ compiler, and zlib (Debian: python3-venv cmake ninja-build g++ zlib1g-dev).
# OPTIMIZE=-O1 compiles in half the time.
set -e
top=$(cd "$(dirname "$0")/../.." && pwd)
what=${1:-build}
folder=${2:-$top/build/adapters/vw}
version=9.11.9

if [ "$what" = check ]; then
    shift 2 2> /dev/null || shift $#
    exec python3 "$top/examples/adapters/vowpal_wabbit_check.py" "$folder" "$@"
fi
mkdir -p "$folder"
cd "$folder"
if [ ! -d source ]; then
    python3 -m venv venv && venv/bin/pip install -q setuptools wheel
    venv/bin/pip download -q --no-deps --no-binary :all: --no-build-isolation "vowpalwabbit==$version" -d .
    mkdir source.new && tar xzf "vowpalwabbit-$version.tar.gz" -C source.new --strip-components=1 && mv source.new source
fi
${CC:-cc} -std=c11 -O2 -c "$top/coll.c" -o coll.o
cmake -S source -B made -G Ninja -DCMAKE_CXX_FLAGS_RELEASE="${OPTIMIZE:--O3} -DNDEBUG" -DBUILD_TESTING=OFF -DWARNINGS=OFF \
    -DVW_BUILD_VW_C_WRAPPER=OFF -DVW_FEAT_FLATBUFFERS=OFF -DVW_FEAT_CSV=OFF -DVW_FEAT_CB_GRAPH_FEEDBACK=OFF \
    -DVW_FEAT_LDA=OFF -DVW_FEAT_SEARCH=OFF -DVW_FEAT_LAS_SIMD=OFF \
    -DCMAKE_CXX_FLAGS="-I$top -I$top/examples/adapters" -DCMAKE_CXX_STANDARD_LIBRARIES="$PWD/coll.o -pthread" > cmake.log
if [ ! -x vw.sockets ]; then                      # as it is
    cmake --build made --target vw_cli_bin vw_spanning_tree_bin
    cp made/vowpalwabbit/spanning_tree_bin/spanning_tree .
    cp made/vowpalwabbit/cli/vw vw.sockets
fi
# The adapter in the place of the class, and nothing in the place of its functions.
own=source/vowpalwabbit/allreduce
sed -i '/^class all_reduce_sockets/,/^};/c\}\n#include "vowpal_wabbit.h"\nnamespace VW\n{' $own/include/vw/allreduce/allreduce.h
grep -q vowpal_wabbit.h $own/include/vw/allreduce/allreduce.h
echo '#include "vw/allreduce/allreduce.h"' > $own/src/allreduce_sockets.cc
cmake --build made --target vw_cli_bin
cp made/vowpalwabbit/cli/vw vw.coll
