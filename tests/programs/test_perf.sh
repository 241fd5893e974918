#!/bin/sh
# test_perf.sh - what coll_perf promises: every collective, type and operation is measured and right,
# the table has its columns, JSON parses, and bad options get one sentence and exit status 2; and that coll_tune works.
#
# usage: [CC=cc] [CFLAGS=...] [COLL_LIBS=...] sh tests/programs/test_perf.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
# Lists of options are meant to be split into words.
# shellcheck disable=SC2086

. "$(dirname "$0")/bench.sh"

compile "$top/bench/coll_perf.c" -o "$dir/coll_perf" $libs || exit 1
perf=$dir/coll_perf
few="-n 1 -w 0"
cd "$dir" || exit 1
unset COLL_RANK COLL_SIZE COLL_ADDR

# The lines of a table: 15 columns, nothing wrong in columns 10 and 15, and so many of them.
table_is_right() {
    awk -v lines="$1" '
        /^#/ { if (/out of bounds values: 0 OK/) conclusion = 1; if (/avg bus bandwidth: /) average = 1; next }
        NF != 15 || $10 !~ /^(0|N\/A)$/ || $15 !~ /^(0|N\/A)$/ || $10 $15 == "N/AN/A" { print "line " NR ": " $0; exit bad = 1 }
        $10 == 0 && $6 <= 0 || $15 == 0 && $11 <= 0 { print "line " NR " took no time: " $0; exit bad = 1 }
        { n++ }
        END {
            if (bad) exit
            if (n != lines) print n + 0 " lines instead of " lines
            else if (!conclusion) print "no \"out of bounds values: 0 OK\""
            else if (!average) print "no \"avg bus bandwidth\""
        }' out
}

# name, lines, command: succeeds, and prints such a table and nothing on stderr
check_table() {
    name=$1 lines=$2
    shift 2
    "$@" >out 2>err
    status=$?
    detail=$(table_is_right "$lines")
    if [ $status -ne 0 ]; then fail "$name" "exit status $status"
    elif [ -n "$detail" ]; then fail "$name" "$detail"
    elif [ -s err ]; then fail "$name" "something on stderr"
    else ok "$name"; fi
}

# name, pattern: the last output has a line like that
check_line() {
    if grep -q -e "$2" out; then ok "$1"; else fail "$1" "no line like $2"; fi
}

# name, file, lines: so many lines, each a JSON object
check_json() {
    if [ "$(grep -c . "$2")" -ne "$3" ]; then
        fail "$1" "$(grep -c . "$2") lines instead of $3"
    elif command -v python3 >/dev/null 2>&1; then
        if python3 -c 'import json, sys
for line in sys.stdin: assert isinstance(json.loads(line), dict), line' <"$2" 2>err; then ok "$1"; else fail "$1" "no JSON"; fi
    elif [ "$(grep -c '^{"[a-z_]*":.*}$' "$2")" -eq "$3" ]; then ok "$1"
    else fail "$1" "no objects"; fi
}

# pattern, options: nothing on stdout, one line on stderr that is like the pattern, exit status 2
check_refusal() {
    pattern=$1
    shift
    COLL_DEBUG=error "$perf" "$@" >out 2>err
    status=$?
    if [ $status -ne 2 ]; then fail "refused: $*" "exit status $status"
    elif [ "$(grep -c . err)" -ne 1 ] || ! grep -q -e "^coll_perf: .*$pattern" err; then
        fail "refused: $*" "not one sentence with $pattern"
    elif grep -q -v '^#' out; then fail "refused: $*" "something was measured"
    else ok "refused: $*"; fi
}

# 12 types x (3 reducing collectives x 5 operations + 3 others) x 2 sizes, and the barrier
for ranks in 1 2 3; do
    check_table "everything on $ranks threads" 433 "$perf" -t $ranks -C all -d all -o all -b 40 -e 5000 -f 125 $few
done
check_table "tiny sizes come out as one element" 7 "$perf" -t 3 -C all -b 1 -e 1 $few
check_table "size 0" 14 "$perf" -t 2 -C allreduce,allgather -b 0 -e 256 -f 2 $few
check_table "adaptive iterations" 2 "$perf" -t 2 -b 64 -e 64K -f 1024
check_line "memcpy has a row" '^# memcpy of 65536 bytes'
check_line "the largest size is explained" '^# allreduce of 16384 x f32 .*threads'
check_line "the head names version and transport" '^# transport: threads .*ranks: 2 '
check_table "steps of bytes, suffixes, long names" 5 "$perf" --nthreads=2 --minbytes 1k --maxbytes=5K --stepbytes 1K --iters 1
check_table "nccl-tests' names of types" 2 "$perf" -t2 -Call_reduce -dfloat,half -b64 -e64 $few
check_table "each root has its line" 6 "$perf" -t 3 -C broadcast,reduce -r all -b 64 -e 64 $few
check_table "one root" 2 "$perf" -t 3 -C broadcast,reduce -r 2 -b 64 -e 64 $few
check_table "wire" 2 "$perf" -t 3 -C allreduce --wire bf16 -d f32 -o sum,avg -b 4K -e 4K $few
check_line "wire is in the type column" ' f32/bf16 '
check_table "unsupported combinations are left out" 1 "$perf" -t 2 --wire bf16 -d f32,i32 -b 64 -e 64 $few
check_line "and named" '^# left out: .*i32'
check_table "algorithm" 2 "$perf" -t 3 -C allreduce -A direct -b 64 -e 64K -f 1024 $few
check_table "pinned" 1 "$perf" -t 3 --pin -b 64 -e 64 $few
check_table "no threads, no job: one rank" 1 "$perf" -b 64 -e 64 $few

"$perf" -t 2 -b 64 -e 64 -c 0 $few >out 2>err
if [ $? -eq 0 ] && awk '!/^#/ { exit $10 != "N/A" || $15 != "N/A" }' out; then ok "no check, no #wrong"
else fail "no check, no #wrong" "exit status, or not N/A"; fi

"$perf" -t 2 -C all -b 64 -e 64 $few --json >out 2>err
check_json "JSON on stdout" out 15                # head, summary, 7 collectives, 6 of them with memcpy
check_table "table beside a JSON file" 2 "$perf" -t 2 -C reduce,broadcast -b 64 -e 64 $few --json file.json
check_json "JSON in a file" file.json 6

"$perf" -h >out 2>err
if [ $? -eq 0 ] && [ ! -s err ]; then check_line "help" '--minbytes'; else fail "help" "exit status, or something on stderr"; fi

check_refusal 'no option -z' -z
check_refusal 'no option --foo' --foo 3
check_refusal '"x" is no option' x
check_refusal 'needs a value' -t 2 -b
check_refusal '12q is not a number' -b 12q
check_refusal 'is not a number' -e 99999999999G
check_refusal 'is not a number' -t 0
check_refusal 'is not a number' -n -3
check_refusal 'smallest size' -b 2M -e 1M
check_refusal 'does not know "f31"' -d f31
check_refusal 'does not know "gather"' -C allreduce,gather
check_refusal 'takes one type' --wire all
check_refusal 'takes no value' --pin=3
check_refusal 'root 7' -t 2 -r 7
check_refusal 'nowhere/x: ' -t 2 -e 8 --json nowhere/x

"$perf" -t 2 -A nonsense -e 8 >out 2>err
if [ $? -eq 2 ] && grep -q '^# left out: .*no algorithm "nonsense"' out; then ok "an algorithm that there is not"
else fail "an algorithm that there is not" "exit status, or no sentence"; fi

# Three processes over TCP.
if compile "$top/tools/coll-run.c" -o "$dir/coll-run" 2>err; then
    check_table "three processes" 13 ./coll-run -n 3 -t 20 --no-prefix "$perf" -C all -d f32,bf16 -b 2K -e 2K $few -r 1 -c 1
else
    fail "three processes" "coll-run does not compile"
fi

# coll_tune, which is made of the same parts and takes the tests' stage and floor.
if compile "$top/bench/coll_tune.c" -o "$dir/coll_tune" $libs 2>err && "$dir/coll_tune" forms >out 2>err \
    && grep -q '^| alltoall |' out; then ok "coll_tune forms"
else fail "coll_tune forms" "does not compile, or has no table"; fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
