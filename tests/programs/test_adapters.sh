#!/bin/sh
# test_adapters.sh - examples/adapters: with the real engine where its package is small (LightGBM of PyPI), and the adapter of
# Vowpal Wabbit with stand-ins.  examples/adapters/README.md has the commands for the other engines.
#   usage: [CC=cc] [CXX=c++] sh tests/programs/test_adapters.sh
#
# The package is installed into build/adapters/venv.  Ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
: "${CC:=cc}" "${CXX:=c++}"
export CC CXX
mkdir -p build/adapters
venv=build/adapters/venv
passed=0 failed=0
conclusion() { # status what
    if [ "$1" -eq 0 ]; then passed=$((passed + 1)); echo "ok - $2"; else failed=$((failed + 1)); echo "FAILED - $2"; fi
}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
$CC -std=c11 -O0 -DCOLL__ONE_TIER -fPIC -shared coll.c -o "$dir/libcoll.so" -pthread; conclusion $? "the library"
W="-std=c++11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror -I."

# ---- Vowpal Wabbit

# shellcheck disable=SC2086
"$CXX" $W -O1 tests/programs/vowpal_wabbit.cc -o "$dir/vw" -L"$dir" -lcoll -Wl,-rpath,"$dir" -pthread
conclusion $? "vowpal_wabbit.h: no warnings"
nodes() { # NODES SHARE [LAST]: what each node prints falls into $dir/0, $dir/1, ...
    pids=
    rm -f "$dir/address"
    for node in $(seq 0 $(($1 - 1))); do
        COLL_SHARE=$2 COLL_DEBUG=none "$dir/vw" "file:$dir/address" "$1" "$node" $3 > "$dir/$node" & pids="$pids $!"
    done
    for pid in $pids; do wait "$pid"; done
}
for count in 1 2 3 4; do
    for share in on off; do
        nodes $count $share
        right=0
        for node in $(seq 0 $((count - 1))); do [ "$(cat "$dir/$node")" = ok ] && right=$((right + 1)); done
        [ $right -eq $count ]; conclusion $? "vowpal_wabbit.h: $count nodes, COLL_SHARE=$share: $right are right"
    done
done
nodes 3 on 1
grep -q "rank 1" "$dir/0" && grep -q "rank 1" "$dir/2"
conclusion $? "vowpal_wabbit.h: a node that ends is named: $(cat "$dir/0")"

# ---- LightGBM

if ! "$venv/bin/python" -c 'import lightgbm' 2> /dev/null; then
    rm -rf "$venv"
    python3 -m venv --system-site-packages "$venv" && "$venv/bin/pip" install -q 'lightgbm==4.*' > build/adapters/pip.log 2>&1
    if [ $? -ne 0 ]; then
        echo "left out - pip cannot install lightgbm:"
        tail -n 3 build/adapters/pip.log
        echo "$passed passed, $failed failed"
        [ "$failed" -eq 0 ]
        exit
    fi
fi
export COLL_LIBRARY="$dir/libcoll.so" PYTHONPATH="$PWD/bindings/python" XDG_CACHE_HOME="$dir/cache" PYTHONDONTWRITEBYTECODE=1
# shellcheck disable=SC2086
"$CXX" $W -fsyntax-only examples/adapters/lightgbm.cpp; conclusion $? "lightgbm.cpp: no warnings"
for what in equal failures; do
    "$venv/bin/python" examples/adapters/lightgbm_check.py $what > "$dir/log" 2>&1
    status=$?
    cat "$dir/log"
    right=$(grep -c '^ok - ' "$dir/log") wrong=$(grep -c '^FAILED - ' "$dir/log")
    passed=$((passed + right)) failed=$((failed + wrong))
    expected=18
    [ $what = equal ] || expected=6
    [ $status -eq 0 ] && [ "$right" -eq $expected ]; conclusion $? "lightgbm_check.py $what: $right of $expected"
done
for kind in '' --threads; do
    # shellcheck disable=SC2086
    "$venv/bin/python" examples/adapters/lightgbm_check.py time --ranks 3 --rounds 1 --trees 5 --rows 600 $kind > "$dir/log" 2>&1
    status=$?
    cat "$dir/log"
    [ $status -eq 0 ] && grep -q '"side": "coll".*"ratio"' "$dir/log"; conclusion $? "lightgbm_check.py time $kind"
done
[ "$(find "$dir/cache" -name 'libcoll_lightgbm.so' | wc -l)" -eq 1 ]; conclusion $? "lightgbm.cpp is compiled once"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
