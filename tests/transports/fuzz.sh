#!/bin/sh
# The fuzzers, each for a while (COLL_FUZZ_SECONDS, default 5), from the corpus beside this file.  What is found is left in
# build/fuzz/, and the fuzzer run again with that file alone replays it.
cd "$(dirname "$0")/../.." || exit 1
seconds=${COLL_FUZZ_SECONDS:-5}
passed=0 failed=0
mkdir -p build/fuzz

fuzz() { # name source flags...
    name=$1 source=$2; shift 2
    mkdir -p "build/fuzz/corpus-$name"
    if ! clang -std=c11 -g -O0 -fsanitize=fuzzer,address "$@" "$source" \
            -o "build/fuzz/$name" -pthread -lm > "build/fuzz/$name.log" 2>&1; then
        failed=$((failed + 1)); echo "FAILED - $name does not build: $(tail -n 5 "build/fuzz/$name.log")"
    elif "build/fuzz/$name" -max_total_time="$seconds" -max_len=2048 -timeout=10 -rss_limit_mb=1024 \
            -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus-$name" "tests/transports/corpus/$name" \
            > "build/fuzz/$name.log" 2>&1; then
        passed=$((passed + 1)); echo "ok - $name: $(grep -E '^#[0-9]+.DONE' "build/fuzz/$name.log")"
    else
        failed=$((failed + 1)); echo "FAILED - $name: $(grep -vE '^#' "build/fuzz/$name.log" | tail -n 30)"
    fi
}

fuzz wire tests/transports/test_wire.c -DCOLL_FUZZ
fuzz tcp tests/transports/fuzz_tcp.c
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
