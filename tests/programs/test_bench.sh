#!/bin/sh
# test_bench.sh - promises of the programs of bench/threads and bench/busy: every contender is measured in every test, a wrong
# result is noticed, and compare.py and busy.py make their tables.  The figures themselves are not checked.
#
# usage: [CC=cc] [CFLAGS=...] [COLL_LIBS=...] sh tests/programs/test_bench.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
# shellcheck disable=SC2086
. "$(dirname "$0")/bench.sh"

cd "$top/bench/threads" || exit 1
compile -c reference.c -o "$dir/reference.o" || exit 1
compile $defines -c ../common/ours.c -o "$dir/ours.o" || exit 1
compile pair.c "$dir/ours.o" "$dir/reference.o" -o "$dir/pair" $libs -lm || exit 1
compile $defines ../busy.c -o "$dir/busy" $libs -lm || exit 1
# These two compare the tiers, so that they need them.
tiers=${CFLAGS:--O0}
CFLAGS=$tiers compile numbers.c -o "$dir/numbers" $libs -lm || exit 1
CFLAGS=$tiers compile counters.c -o "$dir/counters" $libs -lm || exit 1
cd "$dir" || exit 1

for ranks in 1 2 3 4; do
    check_lines "every collective on $ranks ranks" ./pair $ranks 0.001 8,20,300000 all
    check_count "ours in all of them" '^time.*	ours	' 31
    check_count "the plain reference" '^time.*	ref-plain	' 31
    check_count "the mailbox, up to 64 KiB" '^time.*	ref-mail	' 20
    check_count "each with a ratio" '^ratio.*	ours/' "$(grep -c '^time.*	ref-' out)"
done
[ "$(uname -m)" != x86_64 ] || check_count "stores past the caches, from 256 KiB" '^time.*	ref-nt	' 10
check_lines "more ranks than processors" ./pair 24 0.001 8,64K allreduce,barrier
for contender in ours ref-plain ref-mail; do
    check_end "a wrong result of $contender" "^$contender: scan of 20 floats.*rank [01] has" 3 ./pair 2 0.001 80 scan $contender
done
check_end "no such collective" '"scam"' 2 ./pair 2 0.001 8 scan,scam
check_end "no such size" '"8,x"' 2 ./pair 2 0.001 8,x scan
check_end "too many ranks" 'usage' 2 ./pair 65 0.001 8 scan

check_lines "numbers" ./numbers 2 0.001 20,4K
check_count "every type, in place and not" '^time	types.*	\(f32\|bf16\|f16\|f8e4m3\|f8e5m2\|f64\)	' 24
check_count "every level, or that it is not there" '^\(time\|none\)	levels of' $((4 * 10 * 2))
check_count "none without its base" '^time	levels of.*	default	' 8

check_lines "kernels" ./counters 0.001 1K,64K
check_count "six kernels and two copies" '^time' 16
check_count "six against the better copy" '^bound' 24
check_count "four counters each, or that they are not there" '^\(count\|none\)' 48
check_end "no such kernel" '"f7 to f9"' 2 ./counters run 'f7 to f9' 1K 1

for side in sockets threads processes tcp; do
    for ranks in 2 5; do
        ./busy $side $ranks 100 0.001 0,20 8,1K,64K >out 2>err || fail "$side, $ranks ranks" "exit status $?"
        check_count "beside neighbors: $side, $ranks ranks" '^\(0\|20\)	[0-9]*	[0-9.]*	[0-9.]*	[1-9][0-9]*$' 6
    done
    check_end "a wrong result of $side" "^$side: rank [01] has a wrong byte 999 of rank 0" 3 \
        ./busy $side 2 100 0.001 0 1000 spoilt
done
check_end "sockets would block" '65537 bytes are too many' 2 ./busy sockets 2 100 0.001 0 65537
check_end "no such side" 'usage' 2 ./busy pipes 2 100 0.001 0 8

if command -v python3 >/dev/null 2>&1; then
    python3 "$top/bench/busy.py" --build . --tiny --also again=./busy >out 2>err
    status=$?
    [ $status -eq 0 ] && ok "busy.py" || fail "busy.py" "exit status $status"
    check_count "a table for each number of ranks and neighbors" '^[23] ranks beside [01] that compute, us$' 4
    check_count "its lines" '^ *\(0\|20\) *\(8\|1024\)\( *[0-9.]*\)\( *[0-9.]* *[0-9]*\.[0-9][0-9][ !]\)\{6\}$' 16
    check_count "and a summary" '^ *[23] *[01]\( *[0-9]*\.[0-9][0-9]\)' 4
    mpi=
    for name in openmpi mpich; do
        if command -v mpicc.$name >/dev/null 2>&1 && OMPI_CC=${CC:-cc} MPICH_CC=${CC:-cc} mpicc.$name -std=c11 -O1 \
            "$top/bench/common/mpi.c" "$top/bench/common/solo.c" -o mpi.$name 2>err; then mpi="$mpi $name"; fi
    done
    python3 "$top/bench/threads/compare.py" --build . --tiny --only allreduce,collectives,crowded,numbers >out 2>err
    status=$?
    [ $status -eq 0 ] && ok "compare.py" || fail "compare.py" "exit status $status"
    check_count "a table for each collective and number of ranks" '^### [a-z_ ]*, [25] ranks (us)' 13
    check_count "tables of numbers" '^### allreduce\( of types\|: levels\)' 6
    check_count "ours is held against the references" '^| ours / best reference ' 13
    check_count "the worst of them in the end" '^| [a-z_ ]*, [25] ranks *| *ours / best reference |' 13
    check_count "and in one line" '^[0-9]* of [0-9]* targets met' 1
    if [ -n "$mpi" ]; then check_count "and against$mpi" '^| ours / best peer ' 11; fi
    printf '#!/bin/sh\nexit 3\n' >pair
    check_end "compare.py tells of a wrong result" 'pair: exit status 3' 1 \
        python3 "$top/bench/threads/compare.py" --build . --tiny --only crowded
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
