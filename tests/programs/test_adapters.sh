#!/bin/sh
# test_adapters.sh - examples/adapters with the real engines, as far as their packages are small: LightGBM of PyPI.
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
if ! "$venv/bin/python" -c 'import lightgbm' 2> /dev/null; then
    rm -rf "$venv"
    python3 -m venv --system-site-packages "$venv" && "$venv/bin/pip" install -q 'lightgbm==4.*' > build/adapters/pip.log 2>&1
    if [ $? -ne 0 ]; then
        echo "left out - pip cannot install lightgbm:"
        tail -n 3 build/adapters/pip.log
        echo "0 passed, 0 failed"
        exit 0
    fi
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
$CC -std=c11 -O2 -fPIC -shared coll.c -o "$dir/libcoll.so" -pthread; conclusion $? "the library"
export COLL_LIBRARY="$dir/libcoll.so" PYTHONPATH="$PWD/bindings/python" XDG_CACHE_HOME="$dir/cache" PYTHONDONTWRITEBYTECODE=1
W="-std=c++11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror -fsyntax-only -I."
# shellcheck disable=SC2086
"$CXX" $W examples/adapters/lightgbm.cpp; conclusion $? "lightgbm.cpp: no warnings"
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
[ "$(find "$dir/cache" -name 'libcoll_lightgbm.so' | wc -l)" -eq 1 ]; conclusion $? "lightgbm.cpp is compiled once"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
