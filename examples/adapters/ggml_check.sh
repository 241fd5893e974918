#!/bin/sh
# ggml_check.sh - a model computed by ggml on several processes: are the tokens the same?  Tokens/s beside llama.cpp's RPC.
#   usage: sh examples/adapters/ggml_check.sh [equal] [FOLDER]                 FOLDER: build/adapters/ggml
#          sh examples/adapters/ggml_check.sh time [FOLDER] [options of ggml_time.py]
#
# Compiles what PyPI's sources of llama-cpp-python contain: for `equal` ggml's part for CPUs, about 3 minutes of a processor; for
# `time` llama.cpp, too, about 20.  LLAMA=/path/to/llama.cpp: that one instead.  The models are made here.  `equal` ends with
# "N passed, N failed".
set -e
version=0.3.36
top=$(cd "$(dirname "$0")/../.." && pwd)
what=equal
case ${1:-} in equal | time) what=$1; shift ;; esac
folder=${1:-$top/build/adapters/ggml}
[ $# -eq 0 ] || shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$folder"
if [ -z "${LLAMA:-}" ]; then
    LLAMA=$folder/source/vendor/llama.cpp
    if [ ! -d source ]; then
        url=$(python3 -c 'import json, sys, urllib.parse, urllib.request
releases = json.load(urllib.request.urlopen("https://pypi.org/pypi/llama-cpp-python/json"))["releases"]
url = next(file["url"] for file in releases[sys.argv[1]] if file["packagetype"] == "sdist")
print(urllib.parse.urljoin("https://pypi.org/simple/llama-cpp-python/", url))' $version)
        python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' "$url" llama.tar.gz
        mkdir source.new && tar xzf llama.tar.gz -C source.new --strip-components=1 && mv source.new source
    fi
fi
cmake -S "$LLAMA" -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF \
    -DGGML_RPC=ON -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
    -DLLAMA_BUILD_APP=OFF > cmake.log 2>&1 || { tail cmake.log; exit 1; }
targets=ggml
[ $what = equal ] || targets='ggml llama-bench ggml-rpc-server'
# shellcheck disable=SC2086
cmake --build made --target $targets > make.log 2>&1 || { tail make.log; exit 1; }
make --no-print-directory -C "$top" build/release/coll-run build/release/coll.o > /dev/null
# shellcheck disable=SC2046
${CC:-cc} -std=c11 -O2 -Wall -Wextra -isystem "$LLAMA/ggml/include" "$top/examples/adapters/ggml_tokens.c" \
    "$top/build/release/coll.o" -Wl,--start-group $(find made -name 'libggml*.a') -Wl,--end-group \
    -o ggml_tokens -lstdc++ -lm -lpthread -ldl
if [ $what = time ]; then exec python3 "$top/examples/adapters/ggml_time.py" "$folder" "$@"; fi

seed=${COLL_TEST_SEED:-$(date +%s)} passed=0 failed=0
echo "seed $seed"
tokens() { # RANKS: the tokens on stdout, tokens/s or what failed in the file speed
    "$top/build/release/coll-run" -n "$1" ./ggml_tokens run model.gguf 128 > said 2> speed || echo "status $?"
    sed 's/^\[0\] //' said
}
for model in 1 2 3; do
    ./ggml_tokens make model.gguf $((seed + model))
    tokens 1 > one
    [ "$(wc -w < one)" -eq 128 ] && [ "$(tr ' ' '\n' < one | sort -u | wc -l)" -gt 3 ] || { cat one speed; exit 1; }
    sed 's/^\[0\] //' speed
    for ranks in 2 3 4; do
        for share in on off; do
            COLL_SHARE=$share tokens $ranks > many
            if cmp -s one many; then passed=$((passed + 1)) result=ok; else failed=$((failed + 1)) result=FAILED; fi
            echo "$result - model $model, $(sed 's/^\[0\] //' speed), COLL_SHARE=$share: the tokens of one process"
        done
    done
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
