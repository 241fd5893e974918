# bench.sh - what test_perf.sh, test_bench.sh, test_bench_tcp.sh and test_bench_history.sh share: a folder that goes away, a
# compiler, and checks.  Read by them.
# Lists of options are meant to be split into words.
# shellcheck disable=SC2086

top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
dir=$(mktemp -d) || exit 1
passed=0
failed=0
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM

export COLL_LIVENESS_TIMEOUT_MS=120000  # bound to a processor that others have: late, not dead (bench/common/harness.py, too)
libs=${COLL_LIBS:--pthread}
defines=
for word in $libs; do case $word in -D*) defines="$defines $word" ;; esac; done
# Figures are not checked, and compiling the library takes most of the time: the fastest compilation is enough.
compile() { ${CC:-cc} -std=c11 ${CFLAGS:--O0 -DCOLL__ONE_TIER} "$@"; }

ok() {
    passed=$((passed + 1))
    echo "ok - $1"
}

fail() {
    failed=$((failed + 1))
    echo "FAILED - $1: $2"
    sed 's/^/    /' err | head -n 5
}

# name, command: succeeds, says nothing on stderr, and all its lines have nine columns and figures that are in order
check_lines() {
    name=$1
    shift
    "$@" >out 2>err
    status=$?
    wrong=$(awk -F '\t' 'NF != 9 || ($1 != "none" && ($6 < 0 || $6 > $7 || $7 > $8 || $9 < 1)) { print NR ": " $0; exit }' out)
    if [ $status -ne 0 ]; then fail "$name" "exit status $status"
    elif [ -n "$wrong" ]; then fail "$name" "line $wrong"
    elif [ -s err ]; then fail "$name" "something on stderr"
    else ok "$name"; fi
}

# name, pattern, lines: the last output has so many lines like that
check_count() {
    found=$(grep -c -e "$2" out)
    if [ "$found" -eq "$3" ]; then ok "$1"; else fail "$1" "$found lines like $2 instead of $3"; fi
}

# name, pattern, exit status, command: ends with the status and says something like that
check_end() {
    name=$1 pattern=$2 wanted=$3
    shift 3
    "$@" >out 2>err
    status=$?
    if [ $status -ne "$wanted" ]; then fail "$name" "exit status $status"
    elif ! grep -q -e "$pattern" err; then fail "$name" "no $pattern on stderr"
    else ok "$name"; fi
}
