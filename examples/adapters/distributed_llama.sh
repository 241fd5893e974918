#!/bin/sh
# distributed_llama.sh - make distributed-llama with its own sockets and over coll.h, and compare both.
#   usage: DLLAMA=/path/to/its/repository sh distributed_llama.sh build [FOLDER]      a minute; FOLDER: build/adapters/dllama
#          sh distributed_llama.sh check [FOLDER] equal|time [options of distributed_llama_check.py]
#
# It needs git, a C and a C++ compiler.  DLLAMA may be a bare repository; without it https://github.com/b4rtaz/distributed-llama
# is cloned.  The models are made here.
set -e
top=$(cd "$(dirname "$0")/../.." && pwd)
what=${1:-build}
folder=${2:-$top/build/adapters/dllama}
commit=8d624a7b1f9acc0855d71a32519b22fe51e0bd86  # 18 January 2026

if [ "$what" = check ]; then
    shift 2 2> /dev/null || shift $#
    exec python3 "$top/examples/adapters/distributed_llama_check.py" "$folder" "$@"
fi
mkdir -p "$folder"
cd "$folder"
if [ ! -d source ]; then
    git clone -q "${DLLAMA:-https://github.com/b4rtaz/distributed-llama}" source.new
    git -C source.new -c advice.detachedHead=false checkout -q $commit
    mv source.new source
fi
${CC:-cc} -std=c11 -O2 -c "$top/coll.c" -o coll.o
git -C source checkout -q .                       # as it is
make -s -C source dllama
cp source/dllama dllama.sockets
sed -i -e 's/.*tryReadWithMaxAttempts(ROOT_SOCKET_INDEX, \(&controlPacket, [^,]*\), maxAttempts))/if (!nodes_broadcast(\1))/' \
    -e 's/network->writeAll(&controlPacket,/nodes_broadcast(\&controlPacket,/' \
    -e '/^#include "app.hpp"/a #include "distributed_llama.h"' source/src/app.cpp
sed -i -e '/^static void syncWithRoot/,/^}/d' -e '/^static void syncNodeSlices/,/^}/d' \
    -e '/^void NnNetworkNodeSynchronizer::sync/,/^}/c void NnNetworkNodeSynchronizer::sync(NnUint segment, NnUint, NnUint t) {\
    if (t == 0) nodes_sync(execution, netConfig, &nodeConfig->segments[segment]);\
}' \
    -e '/^NnNetwork::~NnNetwork/a nodes_leave();' -e '/^#include "nn-network.hpp"/a #include "distributed_llama.h"' \
    source/src/nn/nn-network.cpp
# Behind the connections of a worker, then behind those of the root node.
awk '/Network is initialized/ && ++n { print n == 1 ? "nodes_join(nodeIndex + 1, nSockets + 1, sockets[0].fd);" \
                                                    : "nodes_join(0, nSockets + 1, sockets[0].fd);" } { print }' \
    source/src/nn/nn-network.cpp > network.cpp && mv network.cpp source/src/nn/nn-network.cpp
[ "$(grep -c nodes_ source/src/app.cpp source/src/nn/nn-network.cpp | cut -d : -f 2 | xargs)" = "3 4" ]
rm -f source/*.o source/dllama
make -s -C source dllama CXXFLAGS="-std=c++11 -O3 -march=native -mtune=native -I$top -I$top/examples/adapters" \
    LIBS="$PWD/coll.o -lpthread"
cp source/dllama dllama.coll
