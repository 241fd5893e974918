#!/bin/sh
# ggml_check.sh - a model computed by ggml on 1, 2, 3 and 4 processes: the same tokens?  And how many in a second.
#   usage: [GGML=/path/to/ggml] sh examples/adapters/ggml_check.sh [FOLDER]        FOLDER: build/adapters/ggml
#
# Compiles ggml's part for CPUs, about 3 minutes of a processor: that of $GGML, or the one that PyPI's sources of ggml-python
# contain.  The models are made here.  Ends with "N passed, N failed".
set -e
version=0.0.45
top=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$top/build/adapters/ggml}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$folder"
if [ -z "${GGML:-}" ]; then
    GGML=$folder/source/vendor/ggml
    if [ ! -d source ]; then
        url=$(python3 -c 'import json, sys, urllib.parse, urllib.request
releases = json.load(urllib.request.urlopen("https://pypi.org/pypi/ggml-python/json"))["releases"]
url = next(file["url"] for file in releases[sys.argv[1]] if file["packagetype"] == "sdist")
print(urllib.parse.urljoin("https://pypi.org/simple/ggml-python/", url))' $version)
        python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' "$url" ggml.tar.gz
        mkdir source.new && tar xzf ggml.tar.gz -C source.new --strip-components=1 && mv source.new source
    fi
fi
cmake -S "$GGML" -B made -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF \
    -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF > cmake.log 2>&1
cmake --build made --target ggml > make.log 2>&1 || { tail make.log; exit 1; }
make --no-print-directory -C "$top" build/release/coll-run build/release/coll.o > /dev/null
# shellcheck disable=SC2046
${CC:-cc} -std=c11 -O2 -Wall -Wextra -isystem "$GGML/include" "$top/examples/adapters/ggml_tokens.c" "$top/build/release/coll.o" \
    $(find made -name 'libggml-cpu.a') $(find made -name 'libggml.a') $(find made -name 'libggml-cpu.a') \
    $(find made -name 'libggml-base.a') -o ggml_tokens -lstdc++ -lm -lpthread -ldl

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
