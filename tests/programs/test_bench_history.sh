#!/bin/sh
# test_bench_history.sh - what `make bench-compare` and `make bench-record` promise: a commit that is slower is found, and one
# that is not is not; a record says what was measured, can be read again, and shows what has changed since.
#
# usage: [CC=cc] sh tests/programs/test_bench_history.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
. "$(dirname "$0")/bench.sh"

command -v python3 > /dev/null || { echo "no python3 here"; echo "0 passed, 0 failed"; exit 0; }
cd "$dir" || exit 1

# name, pattern, exit status, command: ends with the status and prints something like that
check_said() {
    name=$1 pattern=$2 wanted=$3
    shift 3
    "$@" > out 2> err
    status=$?
    if [ $status -ne "$wanted" ]; then fail "$name" "exit status $status"
    elif ! grep -q -e "$pattern" out; then fail "$name" "no line like $pattern"
    else ok "$name"; fi
}

# ---- compare: figures that are known

canned() { python3 "$top/tests/programs/canned.py" "$1"; }
check_said "noise is no difference" '^24 cells, 0 slower, 0 faster' 0 canned same
check_said "a call that takes a tenth more" '^24 cells, 1 slower, 0 faster' 0 canned planted
check_count "is named, with its size" '^threads .*allreduce  *1K .* 1\.10[0-9] .*SLOWER' 1
check_said "what is slower only once is not" '^24 cells, 0 slower, 0 faster' 0 canned once
check_count "and is printed" 'not again' 1
check_said "what is faster" '^24 cells, 0 slower, 1 faster' 0 canned faster

# ---- compare: two commits, in its own repository, by instructions, which no neighbor changes

# of "make": a, b
compared() {
    make --no-print-directory -C "$dir/tree" config=plain ONLY=instructions CALLS=reduce A="$1" B="$2" bench-compare
}
commit() { git -C "$dir/tree" add -A && git -C "$dir/tree" -c user.name=a -c user.email=a@b commit -q -m "$1"; }

if [ "$(uname -m)" = x86_64 ] && command -v git > /dev/null; then
    mkdir tree
    for name in Makefile coll.c coll.h coll_impl.h core transports carriers bench tests; do cp -R "$top/$name" tree; done
    git init -q tree && commit first
    sed -i 's/^    coll__plan \*plan = comm->plans\[coll__plan_place(kind)\];$/&\n    for (volatile int i = 0; i < 99; i++) {}/' \
        tree/core/engine/coll_fast_path.h
    commit second
    check_said "a delay in a commit is found" '^1 cells, 1 slower, 0 faster' 2 compared HEAD~1 HEAD
    version=$(awk '/^#define COLL_VERSION_/ { printf "%s%s", dot, $3; dot = "." }' tree/coll.h)
    check_said "this tree beside the commit that it is" '^1 cells, 0 slower, 0 faster' 0 compared "$version" ''
    check_count "a version is its last commit" "^# old: $(git -C tree rev-parse --short HEAD) of .* ($version); new" 1
    check_end "no such commit" 'nonsense is no commit' 2 compared nonsense HEAD
    check_end "no commit at all" 'A is missing' 2 compared '' HEAD
fi

# ---- record

# of ours in four runs and of a peer in two rounds: with the ratio that a reference has
lines() {
    awk -v plain="$1" 'BEGIN {
        OFS = "\t"
        for (run = 0; run < 4; run++) {
            round = int(run / 2); spread = 1 + 0.02 * run
            print round, "time", "allreduce", 2, 1024, "ours", 0.9, 1, 1.1, 20
            print round, "ratio", "allreduce", 2, 1024, "ours/ref-plain", 0.5, plain * spread, 9, 20
            print round, "ratio", "allreduce", 2, 1024, "ours/ref-mail", 0.5, 0.8 * spread, 9, 20
            print round, "time", "barrier", 2, 0, "ours", 0.9, 12345.6, 1.1, 20
            print round, "ratio", "barrier", 2, 0, "ours/ref-plain", 0.5, 1.2, 9, 20
            print round, "others", "barrier", 2, 0, "-", 1, 1, 1, 20
        }
        for (round = 0; round < 2; round++) print round, "time", "allreduce", 2, 1024, "mpich", 3, 2 + 3 * round, 5, 20
    }' > raw
}
record() { python3 "$top/bench/history/record.py" "$@"; }

lines 1.2
check_end "a record" '3 cells in old.txt' 0 record --raw threads=raw --to old.txt
cp old.txt out
check_count "a reference: median and quartiles over the runs" \
    '^threads  *2 allreduce  *1K ours  *reference  *1\.00  *1\.218  *1\.236  *1\.254  *4  ref-plain$' 1
check_count "a peer: ratios of a round" '^threads  *2 allreduce  *1K ours  *peer  *1\.00  *0\.275  *0\.350  *0\.425  *2  mpich$' 1
check_count "in bad company" '^threads  *2 barrier  *- ours  *reference  *12\.3ms  *1\.200  *1\.200  *1\.200  *4  ref-plain~$' 1
check_count "where and of what" '^# \(coll\.h\|date\|machine\|cores\|compiler\)  *[^ ]' 5
check_said "is read again" '^3 cells' 0 record --read old.txt
check_said "and has not changed since" '^3 cells in both, 0 slower, 0 faster' 0 record --read old.txt old.txt
lines 1.5
record --raw threads=raw --to new.txt 2> err
check_said "a later one is slower" '^slower 1\.236 -> 1\.545  threads  *2 allreduce' 1 record --read old.txt new.txt
check_said "and the other way round faster" '^3 cells in both, 0 slower, 1 faster' 0 record --read new.txt old.txt
sed 's/1\.236/nonsense/' old.txt > bad.txt
check_end "what is no record" 'bad.txt:[0-9]* is no line of a record: threads' 2 record --read bad.txt
for kept in "$top"/bench/history/*.txt; do
    [ ! -e "$kept" ] || check_said "$(basename "$kept")" '^[1-9][0-9]* cells' 0 record --read "$kept"
done
check_end "no such bench" 'a bench is one of' 2 record --only threats

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
