#!/bin/sh
# test_python.sh - the table of declarations and what is made of it, and the Python package.
#   usage: [CC=cc] sh tests/bindings/test_python.sh [unittest's names, like test_requests]
#
# Ends with "N passed, N failed": checks of the bindings, and tests of bindings/python/tests.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/folder.sh
: "${CC:=cc}"
passed=0 failed=0
conclusion() { # status what
    if [ "$1" -eq 0 ]; then passed=$((passed + 1)); echo "ok - $2"; else failed=$((failed + 1)); echo "FAILED - $2"; fi
}
python=
for one in python3 /usr/bin/python3; do
    if [ -z "$python" ] && "$one" -c 'import numpy' 2> /dev/null; then python=$one; fi
done
[ -n "$python" ] || { echo "FAILED - there is no python3 with NumPy (Debian: python3-numpy)"; echo "0 passed, 1 failed"; exit 1; }

python3 bindings/generate.py --check; conclusion $? "nothing that is generated is stale"
CC=$CC python3 bindings/layout.py; conclusion $? "every language has the layouts of C"

make --no-print-directory "$(folder release)/coll-run" "$(folder release)/train_digits" || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
$CC -std=c11 -O0 -DCOLL__ONE_TIER -fPIC -shared coll.c -o "$dir/libcoll.so" -pthread; conclusion $? "the library"

# The raw declarations of other languages, with the library: every rank prints the sum.
says_the_sum() { # program
    LD_LIBRARY_PATH=$dir "$(folder release)/coll-run" -n 3 --no-prefix "$1" | sort | tr '\n' ';' \
        | grep -qx 'rank 0 of 3: 3.0 3.0;rank 1 of 3: 3.0 3.0;rank 2 of 3: 3.0 3.0;'
}
if command -v gfortran > /dev/null 2>&1; then
    from=$PWD/bindings/fortran
    (cd "$dir" && gfortran "$from/coll_raw.f90" "$from/hello.f90" -L. -lcoll -o fortran) \
        && says_the_sum "$dir/fortran"
    conclusion $? "Fortran"
else echo "left out - Fortran: there is no gfortran here"; fi
if command -v rustc > /dev/null 2>&1; then
    sys=bindings/rust/coll-sys
    rustc --edition=2021 --crate-type=rlib --crate-name=coll_sys --out-dir "$dir" $sys/src/lib.rs \
        && rustc --edition=2021 --extern coll_sys="$dir/libcoll_sys.rlib" -L "$dir" -l coll -o "$dir/rust" \
            $sys/examples/hello.rs \
        && says_the_sum "$dir/rust"
    conclusion $? "Rust"
else echo "left out - Rust: there is no rustc here"; fi

# Where the library is looked for.
env -u COLL_LIBRARY LD_LIBRARY_PATH="$dir/elsewhere" PYTHONPATH=bindings/python "$python" -c '
import coll; print(coll._load.lib)' 2>&1 | grep -q 'pip install CHECKOUT.*make install.*set COLL_LIBRARY\|CDLL'
conclusion $? "without a library it says what to do"
series=$(sed -n 's/^#define COLL_VERSION_M[A-Z]* //p' coll.h | paste -sd .)
mkdir "$dir/alone" && cp -r bindings/python/coll "$dir/alone" && cp "$dir/libcoll.so" "$dir/alone/coll/libcoll.so.$series" \
    && test "$(env -u COLL_LIBRARY PYTHONPATH="$dir/alone" "$python" -c 'import coll; print(coll._load.lib._name)')" \
        = "$dir/alone/coll/libcoll.so.$series"
conclusion $? "the library beside the package"
: > "$dir/alone/coll/libcoll.so.$series"
env -u COLL_LIBRARY PYTHONPATH="$dir/alone" "$python" -c 'import coll' 2>&1 \
    | grep -q "/alone/coll/libcoll.so.$series: file too short"
conclusion $? "one that cannot be loaded is an error, and no other one is taken"
if COLL_LIBRARY=/nowhere.so PYTHONPATH=bindings/python "$python" -c 'import coll' 2> /dev/null; then false; fi
conclusion $? "a library that COLL_LIBRARY names and is not there is an error"

export COLL_DIGITS="$PWD/$(folder release)/train_digits"
export COLL_LIBRARY="$dir/libcoll.so" COLL_RUN="$PWD/$(folder release)/coll-run"
export PYTHONPATH="$PWD/bindings/python:$PWD/bindings/python/tests"
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=default
(cd bindings/python/tests && "$python" -m unittest -v "$@") > "$dir/log" 2>&1
status=$?
cat "$dir/log"
ran=$(sed -n 's/^Ran \([0-9]*\) tests\{0,1\} in .*/\1/p' "$dir/log")
wrong=$(grep -cE '^(FAIL|ERROR): ' "$dir/log")
[ $status -eq 0 ] || [ "$wrong" -gt 0 ] || wrong=1
passed=$((passed + ${ran:-0} - wrong)) failed=$((failed + wrong))
if command -v mypy > /dev/null 2>&1; then
    (cd bindings/python && mypy --python-executable "$python" coll); conclusion $? "mypy"
fi
[ "$passed" -ge 0 ] || passed=0
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
